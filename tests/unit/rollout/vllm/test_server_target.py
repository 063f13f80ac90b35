"""A server gets weights and requests over HTTP; one that is lost gets them again, and a batch is whole or nothing."""

import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError

from toy_server import LONGEST_TEST, raw_server
from toy_vllm_server import ToyVLLMServer
from vcsd.errors import ConfigError, RunError
from vcsd.rollout.vllm import file_transfer, server_client
from vcsd.rollout.vllm.file_transfer import FileReceiver, FileSender
from vcsd.rollout.vllm.server_client import KEY, ServerClient, ServerLostError, check_url
from vcsd.rollout.vllm.server_target import SendsFiles, ServerTarget, UpdatesOnly, to_reply
from vcsd.rollout.vllm.vllm_requests import ImageSpan, RequestImages
from vcsd.rollout.vllm.weight_sync import WeightSync, refuse_other_version

EXPECTED = {"a": (40,), "b": (2, 2)}


@pytest.fixture
def server():
    toy = ToyVLLMServer()
    yield toy
    toy.stop()


@pytest.fixture
def target(server):
    made = make_target(server)
    yield made
    made.close()


def make_target(server, **settings):
    client = ServerClient(server.url, timeout=10.0, sleep=lambda seconds: None)
    return ServerTarget(client, SendsFiles(**settings), encode=lambda images: ["patches"] * len(images.names))


def weights(seed=0):
    torch.manual_seed(seed)
    return {"a": torch.randn(40).bfloat16(), "b": torch.randn(2, 2).bfloat16()}


def send(target, tensors, step):
    return WeightSync(EXPECTED).send(target, lambda: iter(tensors.items()), step)


def holds(server, tensors):
    return all(torch.equal(server.weights[name], tensor) for name, tensor in tensors.items())


def test_weights_arrive_under_their_version_and_caches_are_cleared(server, target):
    sent = weights()
    send(target, sent, 3)
    assert server.version == "step-3"
    assert holds(server, sent)
    order = [path for path in server.calls if path != "/weight_info"]
    assert order == [
        *("/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update"),
        *("/reset_mm_cache", "/reset_encoder_cache", "/reset_prefix_cache"),
    ]


def test_only_what_changed_travels(server):
    target, sent = make_target(server, sends_changes=True), weights()
    send(target, sent, 1)
    whole = target.sent_bytes
    sent["a"][7] += 1
    send(target, sent, 2)
    assert (whole, target.sent_bytes) == (88, 6)
    assert holds(server, sent)
    target.close()


def test_a_server_that_lost_its_copy_gets_everything(server):
    target, sent = make_target(server, sends_changes=True), weights()
    send(target, sent, 1)
    server._receiver._receiver._tensors["a"][3] += 1  # a copy that is not what was sent
    sent["a"][7] += 1
    send(target, sent, 2)
    assert target.sent_bytes == 88
    assert holds(server, sent)
    assert server.version == "step-2"
    target.close()


def test_a_restarted_server_is_noticed_and_gets_everything(server):
    target, sent = make_target(server, sends_changes=True), weights()
    send(target, sent, 1)
    server.restart()
    with pytest.raises(RunError, match="uses the weights 'default' instead of 'step-1'"):
        refuse_other_version(target, "step-1")
    send(target, sent, 2)
    assert holds(server, sent)
    assert target.sent_bytes == 88
    target.close()


def test_an_update_that_another_trainer_did_not_finish_is_ended(server, target):
    server.is_updating = True
    sent = weights()
    send(target, sent, 1)
    assert holds(server, sent)


def ask(target, prompts=3, **values):
    inputs = [target.to_input([1, 2, place], None, "step-1") for place in range(prompts)]
    values = {"n": 2, "logit_bias": {9: -100.0}, **values}
    return target.generate(inputs, [values] * prompts, tell=lambda done: None)


def test_requests_carry_token_ids_and_replies_come_in_order(server, target):
    replies = ask(target, logprobs=0)
    assert [reply.prompt_token_ids for reply in replies] == [[1, 2, 0], [1, 2, 1], [1, 2, 2]]
    assert [len(reply.outputs) for reply in replies] == [2, 2, 2]
    assert replies[0].outputs[0].logprobs[0][5].logprob == -1.0
    assert set(server.bodies[0]) == {"token_ids", "cache_salt", "sampling_params", "return_token_ids"}
    assert server.bodies[0]["sampling_params"]["logit_bias"] == {"9": -100.0}


def test_images_travel_as_features_with_the_places_of_their_tokens(server, target):
    grid = torch.tensor([[1, 2, 2]])
    images = RequestImages(torch.zeros(4, 8), grid, ["step-1/x"], [ImageSpan(1, 1)])
    asked = target.to_input([1, 9, 2], images, "step-1")
    assert asked["features"] == {
        "mm_hashes": {"image": ["step-1/x"]},
        "mm_placeholders": {"image": [{"offset": 1, "length": 1}]},
        "kwargs_data": {"image": ["patches"]},
    }


def test_after_a_lost_request_no_other_is_in_flight(server, target):
    """Else the weights would change under it, or the caches could not be cleared."""
    running, counted, generate = [0], threading.Lock(), server._generate

    def failing(body):
        with counted:
            running[0] += 1
        try:
            if body["token_ids"] == [1]:
                return 500, {"error": "CUDA out of memory"}
            time.sleep(0.3)
            return generate(body)
        finally:
            with counted:
                running[0] -= 1

    server._generate = failing
    inputs = [target.to_input([token], None, "step-1") for token in (1, 2, 3)]
    with pytest.raises(ServerLostError, match="out of memory"):
        target.generate(inputs, [{"n": 1}] * 3, lambda done: None)
    assert running == [0]


def test_requests_that_are_given_up_end_at_once(server, target):
    reached, released = threading.Event(), threading.Event()

    def hangs(body):
        reached.set()
        released.wait(60)
        return 200, {}

    server._generate = hangs
    failed = []

    def ask():
        try:
            target.client.post("/inference/v1/generate", {})
        except ServerLostError as error:
            failed.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    assert reached.wait(30)
    target.client.give_up()
    thread.join(30)
    try:
        assert not thread.is_alive()
        assert "does not answer" in failed[0]
        with pytest.raises(ServerLostError, match="were given up"):
            target.client.get("/health")
    finally:
        released.set()


def test_a_key_press_ends_requests_that_wait_for_replies(server, target, monkeypatch):
    """Python joins the threads of a pool when it exits: the process would live until the last reply."""
    reached, released, whole = threading.Event(), threading.Event(), server._generate

    def hangs(body):
        reached.set()
        released.wait(60)
        return 200, {}

    def interrupt(future, *settings):
        assert reached.wait(30)
        raise KeyboardInterrupt

    server._generate = hangs
    before = set(threading.enumerate())
    monkeypatch.setattr("vcsd.rollout.vllm.server_target.as_completed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        target.generate([{"token_ids": [1]}] * 3, [{}] * 3, tell=lambda done: None)
    try:
        waiting = [thread for thread in set(threading.enumerate()) - before if "ThreadPoolExecutor" in thread.name]
        assert not waiting
        server._generate = whole
        assert target.client.is_ready(), "the client can be used again"
    finally:
        released.set()


def folders(root):
    return sorted(path for path in root.iterdir() if path.is_dir())


def run_and_kill(root, code):
    """Run code in another process with this folder in place of /dev/shm; the process kills itself."""
    start = f"import os; from vcsd.rollout.vllm import file_transfer as f; f.ROOTS = ({str(root)!r},); "
    code = f"die = lambda *given, **named: os.kill(os.getpid(), 9)\n{start}{code}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL


def test_weights_of_a_killed_trainer_are_removed_and_those_of_others_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(file_transfer, "ROOTS", (str(tmp_path),))
    run_and_kill(tmp_path, "s = f.FileSender(); (s.folder / '1.safetensors').write_text('x'); die()")
    (left,) = folders(tmp_path)
    alive = FileSender()
    assert not left.exists()
    unknown = tmp_path / "vcsd-weights-without-lock"
    unknown.mkdir()
    other = FileSender()
    assert folders(tmp_path) == sorted([alive.folder, other.folder, unknown])
    alive.close()
    other.close()
    assert folders(tmp_path) == [unknown]


@pytest.mark.parametrize("moment", ["f.Path.open = die", "f.fcntl.flock = die", "f.Path.rename = die"])
def test_a_folder_whose_maker_was_killed_before_it_had_its_name_is_removed_at_the_next_sync(
    tmp_path, monkeypatch, moment
):
    monkeypatch.setattr(file_transfer, "ROOTS", (str(tmp_path),))
    sender = FileSender()
    if "flock" in moment:  # the second call, after that for the lock of all makers
        moment = "take = f.fcntl.flock; f.fcntl.flock = lambda file, how: die() if how == 2 else take(file, how)"
    run_and_kill(tmp_path, f"f.remove_left_behind = lambda root: None; {moment}; f.FileSender()")
    assert len(folders(tmp_path)) == 2
    for _ in sender.updates([("a", torch.ones(2))]):
        pass
    assert folders(tmp_path) == [sender.folder]
    sender.close()


def test_a_folder_that_a_live_trainer_is_making_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(file_transfer, "ROOTS", (str(tmp_path),))
    named = Path.rename
    seen = []

    def renamed_late(path, name):
        seen.append((file_transfer.remove_left_behind(tmp_path), path.exists()))
        return named(path, name)

    monkeypatch.setattr(Path, "rename", renamed_late)
    (sender := FileSender()).close()
    assert seen == [([], True)]
    assert not sender.folder.exists()


def test_one_lost_request_loses_the_batch(server, target):
    server.failures["/inference/v1/generate"] = 1
    with pytest.raises(ServerLostError, match="CUDA out of memory"):
        ask(target)


def test_a_slow_reply_is_a_lost_server(server, target):
    server.slow_seconds = 3.0
    target.client.timeout = 0.2
    with pytest.raises(ServerLostError, match="does not answer"):
        ask(target, prompts=1)


def test_a_dead_server_is_lost(server, target):
    server.stop()
    with pytest.raises(ServerLostError, match="does not answer"):
        target.weight_version()


def test_waiting_counts_down_and_ends(server, caplog):
    waits = []
    client = ServerClient("http://127.0.0.1:9", sleep=waits.append)
    with pytest.raises(ServerLostError, match=r"did not answer within 25 s\. Start it with"):
        client.wait_until_ready(25.0)
    assert len(waits) == 25
    told = [record.message for record in caplog.records if "Waiting for" in record.message]
    assert [text.split(", for ")[1] for text in told] == ["25 s more.", "20 s more.", "10 s more.", "0 s more."][:3]


def reply_late(connection, _):
    """Reply when the longest test is over, unless the client hangs up before."""
    connection.sendall(HEAD)
    if select.select([connection], [], [], LONGEST_TEST)[0] == []:
        connection.sendall(b"Content-Length: 0\r\n\r\n")


def test_the_health_of_a_silent_server_has_a_short_deadline_of_its_own(monkeypatch):
    monkeypatch.setattr(server_client, "HEALTH_SECONDS", 0.2, raising=False)
    with raw_server(reply_late) as (url, requests):
        assert not ServerClient(url.removesuffix("/v1"), timeout=2 * LONGEST_TEST).is_ready()
        assert requests[0].startswith(b"GET /health ")


def test_waiting_for_a_silent_server_counts_the_time_of_its_replies_and_says_what_was_wrong(monkeypatch):
    monkeypatch.setattr(server_client, "HEALTH_SECONDS", 0.5, raising=False)
    with raw_server(reply_late) as (url, requests):
        client = ServerClient(url.removesuffix("/v1"), timeout=0.5, sleep=lambda seconds: None)
        wrong = r"within 3 s\..* The last try: .* /health \(TimeoutError: no complete reply within 0\.5 s\)"
        with pytest.raises(ServerLostError, match=wrong):
            client.wait_until_ready(3.0)
        assert len(requests) < 4  # each costs half a second, and a second's pause


def test_a_health_report_without_end_is_given_up():
    def talk(connection, _):
        connection.sendall(HEAD + b"Content-Length: 10000000\r\n\r\n" + b" " * 10**7)

    with raw_server(talk) as (url, _):
        assert "more than 65,536 bytes" in ServerClient(url.removesuffix("/v1"))._problem(20.0)


def test_a_reply_with_too_many_headers_is_given_up():
    reply, lost = HEAD + b"a: b\r\n" * 1000 + b"\r\n", pytest.raises(ServerLostError, match="more than 100 headers")
    with raw_server(lambda connection, _: connection.sendall(reply)) as (url, _), lost:
        ServerClient(url.removesuffix("/v1")).get("/weight_info")


def test_a_connection_that_is_not_accepted_is_given_up_before_a_reply_would_be(monkeypatch):
    given = []

    def refuse(address, timeout, *_):
        given.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.create_connection", refuse)
    with pytest.raises(ServerLostError, match=r"does not answer /weight_info \(TimeoutError: timed out\)"):
        ServerClient("http://127.0.0.1:9").get("/weight_info")
    assert given == [server_client.CONNECT_SECONDS]


def test_a_server_that_ended_is_not_waited_for():
    client = ServerClient("http://127.0.0.1:9", sleep=lambda seconds: None)
    with pytest.raises(RunError, match="ended with code 1"):
        client.wait_until_ready(600.0, lambda: "the vLLM server ended with code 1.")


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "https://a:1", "http://a", "http://a:b", "http://a:1/v1", "ftp://a:1", ""]
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigError, match="is not an address such as"):
        check_url(url)


def test_a_password_in_an_address_is_refused_and_not_shown():
    with pytest.raises(ConfigError, match="must not hold a password") as caught:
        check_url("http://me:secret@a:1")
    assert "secret" not in str(caught.value)


def test_the_key_is_sent_and_masked(server, monkeypatch):
    monkeypatch.setenv(KEY, "topsecret")
    client = ServerClient(server.url)
    monkeypatch.setattr(server, "answer", lambda path, body: (401, {"error": "wrong key topsecret"}))
    with pytest.raises(RunError, match=r"wrong key \*\*\*"):
        client.get("/weight_info")
    assert server.headers[-1]["Authorization"] == "Bearer topsecret"


def test_another_machine_gets_a_warning(caplog):
    ServerClient("http://10.0.0.1:8000")
    assert "Whoever reaches it can replace its weights" in caplog.text


def test_a_reply_of_another_release_is_an_error():
    with pytest.raises(RunError, match="is incomplete or not valid"):
        to_reply({"choices": [{"index": 0, "token_ids": [1], "finish_reason": "stop"}]})


CHOICE = {"index": 0, "token_ids": [1], "finish_reason": "stop"}


@pytest.mark.parametrize(
    "changes",
    [
        {"choices": 3},
        {"choices": ["a"]},
        {"choices": [[1]]},
        {"choices": {"index": 0}},
        {"prompt_token_ids": 5},
        {"prompt_token_ids": [True]},
        {"choices": [{**CHOICE, "index": "x"}]},
        {"choices": [{**CHOICE, "index": None}]},
        {"choices": [{**CHOICE, "token_ids": None}]},
        {"choices": [{**CHOICE, "token_ids": "12"}]},
        {"choices": [{**CHOICE, "token_ids": ["a"]}]},
        {"choices": [{**CHOICE, "token_ids": [1.5]}]},
        {"choices": [{**CHOICE, "token_ids": [float("nan")]}]},
        {"choices": [{**CHOICE, "logprobs": 4}]},
        {"choices": [{**CHOICE, "logprobs": {"content": []}}]},
        {"choices": [{**CHOICE, "logprobs": {"content": [{"logprob": "much"}]}}]},
        {"choices": [{**CHOICE, "logprobs": {"content": [{"logprob": 10**400}]}}]},
        {"choices": [{**CHOICE, "logprobs": {"content": ["a"]}}]},
    ],
)
def test_a_reply_that_no_server_should_send_is_an_error(changes):
    whole = {"prompt_token_ids": [1], "choices": [CHOICE]}
    assert to_reply(whole).outputs[0].token_ids == [1]
    with pytest.raises(RunError, match="is incomplete or not valid"):
        to_reply({**whole, **changes})


class EndlessHandler(BaseHTTPRequestHandler):
    """Sends a body that has no end: a length of ten gigabytes, no length, or chunks."""

    def do_GET(self):
        kind = self.path.strip("/")
        self.send_response(200)
        if kind == "length":
            self.send_header("Content-Length", str(10**10))
        if kind.startswith("chunk"):
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        piece = b" " * 2**16
        with suppress(OSError):
            if kind == "chunk-1":
                self.wfile.write(b"-1\r\n")
            while True:
                self.wfile.write(b"10000\r\n" + piece + b"\r\n" if kind == "chunks" else piece)

    def log_message(self, *given):
        pass


@pytest.mark.parametrize("kind", ["length", "none", "chunks", "chunk-1"])
def test_a_reply_without_end_is_given_up(kind, monkeypatch):
    monkeypatch.setattr(server_client, "MAX_BYTES", 2**20)
    server = ThreadingHTTPServer(("127.0.0.1", 0), EndlessHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(ServerLostError, match=r"does not answer /[a-z1-]+ \(\w+: "):
            ServerClient(f"http://127.0.0.1:{server.server_port}").get(f"/{kind}")
    finally:
        server.shutdown()
        server.server_close()


def test_a_deeply_nested_reply_is_an_error():
    with pytest.raises(ServerLostError, match="is not JSON"):
        server_client._parsed(b"[" * 10**6, "a server")


@pytest.mark.parametrize("folder", ["/etc", "/dev/shm", "/dev/shm/other", "/dev/shm/vcsd-weights-none", "../x"])
def test_a_worker_reads_no_other_folder(folder):
    with pytest.raises(ValueError, match="does not hold a trainer's weights"):
        FileReceiver(folder, keeps_copy=False)


def test_a_worker_reads_no_other_file():
    sender = FileSender()
    receiver = FileReceiver(str(sender.folder), keeps_copy=False)
    update = {"file": "../../etc/passwd", "names": [], "forms": [], "checksums": []}
    with pytest.raises(ValueError, match="is not a file of weights"):
        list(receiver.read(update))
    sender.close()
    assert not sender.folder.exists()


def test_large_weights_are_sent_in_several_files_that_are_removed(monkeypatch):
    monkeypatch.setattr("vcsd.rollout.vllm.file_transfer._FILE_BYTES", 100)
    sender, tensors = FileSender(), {name: torch.randn(20) for name in "abc"}
    receiver, names = FileReceiver(str(sender.folder), keeps_copy=False), []
    for update in sender.updates(tensors.items()):
        assert len(list(sender.folder.glob("*.safetensors"))) == 1
        for name, tensor in receiver.read(update):
            assert torch.equal(tensor, tensors[name])
            names.append((update["file"], name))
    assert [name for _, name in names] == ["a", "b", "c"]
    assert len({file for file, _ in names}) == 3
    assert list(sender.folder.glob("*.safetensors")) == []
    sender.close()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux lists what a process maps")
def test_weights_that_a_worker_keeps_do_not_keep_the_memory_of_removed_files():
    """A tensor of safetensors is its file. Kept ones would fill /dev/shm with all weights, in files without names."""
    sender = FileSender(sends_changes=True)
    receiver = FileReceiver(str(sender.folder), keeps_copy=True)
    weight = torch.randn(1000)
    for sent in (weight, weight + (torch.arange(1000) == 7)):
        for update in sender.updates([("a", sent)]):
            assert [torch.equal(tensor, sent) for _, tensor in receiver.read(update)] == [True]
        assert str(sender.folder) not in Path("/proc/self/maps").read_text()
    sender.close()


def test_ipc_handles_are_never_sent_over_http():
    posted = []
    client = UpdatesOnly(SimpleNamespace(post=lambda *given: posted.append(given)))
    with pytest.raises(ValueError, match="would unpickle"):
        client.update_weights({"ipc_handles": []})
    client.update_weights({"names": ["a"]})
    assert posted == [("/update_weights", {"update_info": {"names": ["a"]}})]


def test_a_full_memory_is_one_sentence_and_leaves_no_file(monkeypatch):
    def save_file(tensors, path):
        path.write_bytes(b"half")
        raise SafetensorError("Error while serializing: No space left on device")

    monkeypatch.setattr("vcsd.rollout.vllm.file_transfer.save_file", save_file)
    sender = FileSender()
    try:
        with pytest.raises(RunError, match=r"cannot be written to .*No space left.*larger --shm-size"):
            list(sender.updates([("a", torch.ones(2))]))
        assert list(sender.folder.glob("*.safetensors")) == []
    finally:
        sender.close()


HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {
    "statuses to continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a line of the head": (HEAD + b"a: ", b"b"),
    "the size of a chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
    "lines after the body": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"),
    "a body": (HEAD + b"Content-Length: 100000\r\nConnection: close\r\n\r\n", b"1"),
}


@pytest.mark.parametrize("part", ENDLESS)
@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_reply_without_end_ends_in_time_and_when_it_is_given_up(part, is_given_up):
    begun = threading.Event()

    def talk(connection, _):
        connection.sendall(ENDLESS[part][0])
        while True:
            connection.sendall(ENDLESS[part][1])
            begun.set()
            time.sleep(0.01)

    with raw_server(talk) as (url, _):
        client = ServerClient(url.removesuffix("/v1"), timeout=60 if is_given_up else 0.3)
        if is_given_up:
            threading.Thread(target=lambda: begun.wait(30) and client.give_up(), daemon=True).start()
        with pytest.raises(
            ServerLostError, match="does not answer" if is_given_up else "no complete reply within 0.3 s"
        ):
            client.get("/health")


@pytest.mark.parametrize("cut", [HEAD, HEAD + b"Content-Le", HEAD + b"Content-Length: 3\r\n\r\n", HEAD + b"\r\n"])
def test_a_reply_that_is_cut_short_is_no_reply(cut):
    """An update of the weights would count as done: its reply has no body."""

    def talk(connection, request):
        if not request.endswith(b"{}"):  # closing before the whole request is read would reset the connection
            connection.recv(2)
        connection.sendall(cut)

    lost = pytest.raises(ServerLostError, match=r"does not say where it ends|lacks 3 bytes")
    with raw_server(talk) as (url, _), lost:
        ServerClient(url.removesuffix("/v1")).post("/update_weights")


def test_a_key_in_the_head_of_a_reply_is_not_shown(monkeypatch):
    monkeypatch.setenv(KEY, "sk-12345678")
    reply = b"HTTP/1.1 sk-12345678" + b"x" * 5000 + b"\r\n\r\n"
    with raw_server(lambda connection, _: connection.sendall(reply)) as (url, _):
        with pytest.raises(ServerLostError) as raised:
            ServerClient(url.removesuffix("/v1")).get("/health")
        assert "sk-12345678" not in str(raised.value)
        assert len(str(raised.value)) < 500
