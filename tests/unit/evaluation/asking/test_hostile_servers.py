"""A server may be hostile: it gets no key but its own, and neither its size nor its slowness stops a run for long."""

import json
import logging
import time

import pytest

from toy_questions import question
from toy_server import LONGEST_TEST, completion, raw_server, toy_server
from vcsd.errors import ConfigError, RunError
from vcsd.evaluation.asking import transport
from vcsd.evaluation.asking.address import Address
from vcsd.evaluation.asking.ask import ask
from vcsd.evaluation.asking.chat import ChatClient
from vcsd.evaluation.asking.server_answerer import ServerAnswerer

KEY = "sk-test-0123456789abcdef"


def client(url, **settings):
    return ChatClient(url, **{"num_tries": 3, "sleep": lambda seconds: None, "timeout": LONGEST_TEST, **settings})


def send_head(connection, *lines, status="200 OK"):
    connection.sendall("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1"))


def send_answer(connection, body):
    content = json.dumps(body).encode()
    send_head(connection, f"Content-Length: {len(content)}")
    connection.sendall(content)


# --- the key ---


def redirect_to(location, status):
    return lambda connection, request: send_head(
        connection, f"Location: {location}", "Content-Length: 0", status=f"{status} Elsewhere"
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("key", [KEY, None])
def test_no_request_follows_a_redirect_to_another_server(status, key):
    with raw_server(lambda connection, request: send_answer(connection, {"data": []})) as (thief, stolen):
        with raw_server(redirect_to(f"{thief}/models", status)) as (url, _):
            with pytest.raises(RunError, match="redirects to"):
                client(url, api_key=key).models()
            with pytest.raises(RunError, match="redirects to"):
                client(url, api_key=key).complete({"model": "toy"})
        assert stolen == []


def test_with_a_key_no_redirect_is_followed_and_without_one_only_within_the_server():
    def talk(connection, request):
        if request.startswith(b"GET /v1/models "):
            return send_head(connection, "Location: /other", "Content-Length: 0", status="302 Elsewhere")
        return send_answer(connection, {"data": [{"id": "toy"}]})

    with raw_server(talk) as (url, requests):
        assert client(url).models() == [{"id": "toy"}]
        requests.clear()
        with pytest.raises(RunError, match="redirects to"):
            client(url, api_key=KEY).models()
        assert len(requests) == 1


def test_redirects_in_a_circle_end():
    with raw_server(redirect_to("/v1/models", 302)) as (url, requests):
        with pytest.raises(RunError, match="redirects to"):
            client(url).models()
        assert len(requests) == transport.MAX_REDIRECTS


def test_a_key_that_the_server_echoes_is_in_no_prediction_identity_log_or_error(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)

    def echo(request):
        if "2" in request["messages"][-1]["content"][-1]["text"]:
            return 400, {"message": f"Bearer {KEY} may not ask this"}
        return 200, completion(f"Your key is {KEY}.", reasoning_content=f"{KEY}?", **{KEY: KEY})

    path = tmp_path / "predictions.jsonl"
    with toy_server(echo, models={"toy": {"root": f"/models/{KEY}"}}) as server:
        asker = ServerAnswerer(client(server.url, api_key=KEY), "toy")
        predictions = ask([question(str(n), text=f"is it {n}?") for n in range(3)], asker, path=path)
    assert predictions[0].text == "<think>***?</think>Your key is ***."
    assert "*** may not ask this" in predictions[2].error
    assert KEY not in path.read_text() + str(asker.identity) + caplog.text
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, f"no: {KEY}"),
        (401, json.dumps({"error": f"wrong key {KEY}"})),
        (200, f"not JSON {KEY}"),
        (200, json.dumps([KEY])),
        (200, json.dumps({"choices": KEY})),
        (200, json.dumps(completion(None, KEY))),
    ],
)
def test_no_error_quotes_the_key(status, body):
    with (
        toy_server(lambda request: (status, body), models={}) as server,
        pytest.raises(RunError) as error,
    ):
        client(server.url, api_key=KEY).complete({"model": "toy"})
    assert "***" in str(error.value)
    assert KEY not in str(error.value)


def test_the_words_of_an_answer_survive_a_key_that_is_no_secret():
    with toy_server(lambda request: (200, completion("EMPTY, the bearer"))) as server:
        assert client(server.url, api_key="EMPTY").complete({}).text == "EMPTY, the bearer"


def test_keys_in_an_address_are_sent_but_never_shown():
    seen = []

    def talk(connection, request):
        seen.append(request)
        send_answer(connection, completion(f"{KEY} hunter22 aGVyOmh1bnRlcjIy"))

    with raw_server(talk) as (url, _):
        asked = client(url.replace("//", "//her:hunter22@") + f"?api_key={KEY}")
        answer = asked.complete({})
    assert seen[0].startswith(f"POST /v1/chat/completions?api_key={KEY} ".encode())
    assert b"Authorization: Basic aGVyOmh1bnRlcjIy\r\n" in seen[0]
    assert asked.url == url.replace("//", "//***@") + "?api_key=***"
    assert answer.text == "*** *** ***"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1"),
        ("https://gate/Qwen3-VL-30B-A3B-Instruct-FP8/v1", "https://gate/Qwen3-VL-30B-A3B-Instruct-FP8/v1"),
        (f"https://gate/{KEY}/v1", "https://gate/***/v1"),
        ("https://gate/0123456789abcdef0123456789abcdef/v1", "https://gate/***/v1"),
        ("http://u:p@[::1]:80/v1?a=1&b", "http://***@[::1]:80/v1?a=***&b=***"),
    ],
)
def test_an_address_is_shown_without_its_keys_and_otherwise_as_given(url, shown):
    assert Address.parse(url).shown == shown


@pytest.mark.parametrize(
    "url", [f"http://me:{KEY}@:x/v1", f"ftp://me:{KEY}@host/v1", f"http://h:x/v1?key={KEY}", f"http://h:x/{KEY}/v1"]
)
def test_an_invalid_address_is_refused_without_showing_its_key(url):
    with pytest.raises(ConfigError, match="is not an address") as error:
        ChatClient(url)
    assert KEY not in str(error.value)


# --- size and time ---


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "a body": (HEAD + b"\r\n", b" " * 2**16),
    "a body of ten gigabytes": (HEAD + b"Content-Length: 10000000000\r\n\r\n", b" " * 2**16),
    "chunks": (CHUNKED, b"10000\r\n" + b" " * 2**16 + b"\r\n"),
    "a chunk of negative length": (CHUNKED + b"-1\r\n", b" " * 2**16),
    "a huge chunk": (CHUNKED + b"FFFFFFFFFFFF\r\n", b" " * 2**16),
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n" * 2**13),
    "continues": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2**11),
}


@pytest.mark.parametrize(("start", "more"), ENDLESS.values(), ids=ENDLESS.keys())
def test_an_endless_reply_is_given_up_after_its_limit(start, more, monkeypatch):
    def talk(connection, request):
        connection.sendall(start)
        while True:
            connection.sendall(more)

    monkeypatch.setattr(transport, "MAX_BYTES", 2**20)
    with raw_server(talk) as (url, requests):
        with pytest.raises(RunError, match=r"larger than .* MiB. That was try 2 of 9"):
            client(url, num_tries=9).models()
        assert len(requests) == 2


def test_an_endless_error_is_read_only_as_far_as_it_is_quoted():
    def talk(connection, request):
        send_head(connection, status="500 Broken")
        while True:
            connection.sendall(b"x" * 2**16)

    with raw_server(talk) as (url, _), pytest.raises(RunError, match=r"status 500: x+ \.\.\.") as error:
        client(url).models()
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("chunk", [b"-5\r\nabc\r\n", b"zz\r\n", b"5\r\nab", b""])
def test_a_malformed_reply_is_a_failed_try(chunk):
    with (
        raw_server(lambda connection, request: connection.sendall(CHUNKED + chunk)) as (url, requests),
        pytest.raises(RunError, match="try 3 of 3"),
    ):
        client(url).models()
    assert len(requests) == 3


def test_an_answer_longer_than_its_tokens_could_be_is_given_up():
    with toy_server(lambda request: (200, completion("x" * request["length"]))) as server:
        assert len(client(server.url).complete({"max_tokens": 1000, "length": 128_000}).text) == 128_000
        assert len(client(server.url).complete({"max_tokens": 6, "length": 2**16}).text) == 2**16
        with pytest.raises(RunError, match=r"has 128,001 characters, more than its tokens could have. .* try 2 of 3"):
            client(server.url).complete({"max_tokens": 1000, "length": 128_001})


def drip_body(connection, request):
    send_head(connection, "Content-Length: 1000000")
    drip(connection, b" ")


def drip_head(connection, request):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    drip(connection, b"X-Drip: 1\r\n")


def drip_status(connection, request):
    drip(connection, b"H")


def drip_continues(connection, request):
    drip(connection, b"HTTP/1.1 100 Continue\r\n\r\n")


def drip_error(connection, request):
    send_head(connection, "Content-Length: 1000000", status="400 No")
    drip(connection, b" ")


def drip_without_length(connection, request):
    send_head(connection)
    connection.sendall(b'{"data": []}')
    drip(connection, b" ")


def drip(connection, piece):
    for _ in range(int(LONGEST_TEST / 0.05)):
        connection.sendall(piece)
        time.sleep(0.05)


@pytest.mark.parametrize(
    "talk",
    [drip_body, drip_head, drip_status, drip_continues, drip_error, drip_without_length],
    ids=lambda f: f.__name__,
)
def test_a_dripping_server_is_given_up_when_the_total_time_is_over(talk):
    with raw_server(talk) as (url, requests):
        start = time.monotonic()
        with pytest.raises(RunError, match=r"no complete answer within 0.5 seconds. That was try 2 of 9"):
            client(url, timeout=0.5, num_tries=9).models()
        assert time.monotonic() - start < LONGEST_TEST / 2
        assert len(requests) == 2


def test_a_server_that_drips_while_tls_begins_is_given_up_too():
    def talk(connection, request):
        connection.sendall(b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb")  # a long ServerHello
        drip(connection, b"\x03")

    with raw_server(talk) as (url, _), pytest.raises(RunError, match=r"no complete answer within 0.5 seconds"):
        client(url.replace("http:", "https:"), timeout=0.5).models()


def test_a_proxy_that_drips_before_the_server_is_reached_is_given_up_too(monkeypatch):
    waited_for = []

    def talk(connection, request):
        assert request.startswith(b"CONNECT server.example:443 ")
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        drip(connection, b"X-Drip: 1\r\n")
        waited_for.append(request)  # nobody hung up

    with raw_server(talk) as (url, _):
        monkeypatch.setenv("https_proxy", url.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(RunError, match=r"no complete answer within 0.5 seconds. That was try 2 of 9"):
            client("https://server.example/v1", timeout=0.5, num_tries=9).models()
    assert waited_for == []


def test_a_server_with_odd_names_and_places_is_no_crash():
    models = {"toy": {"root": "x" * 5000}, "y" * 100_000: {}}
    with toy_server(lambda request: (200, completion("yes")), models=models) as server:
        assert "root" not in ServerAnswerer(client(server.url), "toy").identity
        with pytest.raises(ConfigError, match="does not serve 'ty'") as error:
            ServerAnswerer(client(server.url), "ty")
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("tokens", [-1, 10**400, True, "3", None, 1.5])
def test_an_odd_number_of_tokens_is_no_number_of_tokens(tokens):
    with toy_server(lambda request: (200, completion("yes", num_tokens=tokens))) as server:
        assert client(server.url).complete({}).num_tokens is None


@pytest.mark.parametrize("depth", [100, 900, 990, 1000, 5000, 100_000])
def test_a_deeply_nested_answer_is_an_error(depth):
    body = '{"choices": ' + "[" * depth + "]" * depth + "}"
    with toy_server(lambda request: (200, body)) as server, pytest.raises(RunError, match="the answer is not"):
        client(server.url, api_key=KEY).complete({})
