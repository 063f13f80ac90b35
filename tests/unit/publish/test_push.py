"""Pushing an export, against a hub on this machine that speaks the hub's protocol."""

import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest

from tiny_lora import lora_trainer, write_base
from tiny_step import make_trainer
from vcsd.cli import app
from vcsd.errors import ConfigError, RunError
from vcsd.publish.push import push, require_account, require_repository

SAVE = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}


class FakeHub:
    """A hub for one user. It keeps requests and what commits contain."""

    def __init__(self):
        self.requests, self.files, self.created, self.refuses = [], {}, [], False
        self.is_private = None  # of the repository; None if there is none yet
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                path = self.path.partition("?")[0]
                hub.requests.append((self.command, path, self.headers.get("Authorization")))
                code, tree = hub.reply(path, body)
                text = json.dumps(tree).encode()
                self.send_response(code)
                if code == 404:
                    self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *given):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reply(self, path, body):
        if path == "/api/whoami-v2":
            return (401, {"error": "Invalid username or password."}) if self.refuses else (200, {"name": "me"})
        if path == "/api/repos/create":
            self.created.append(json.loads(body))
            self.is_private = is_private(self.created[-1]) if self.is_private is None else self.is_private
            return 200, {"url": f"{self.url}/me/first", "name": "me/first"}
        if path.endswith("/preupload/main"):
            files = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                     for file in json.loads(body)["files"]]  # fmt: skip
            return 200, {"files": files}
        if path.endswith("/commit/main"):
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return 200, {"success": True, "commitOid": "0" * 40, "commitUrl": f"{self.url}/me/first/commit/{'0' * 40}"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        found = 200, {"id": "me/first", "sha": "0" * 40, "siblings": [], "private": self.is_private}
        return (404, {"error": "Repository not found"}) if self.is_private is None else found


@pytest.fixture
def hub(monkeypatch):
    fake = FakeHub()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", fake.url)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_TELEMETRY", True)  # as in a process of the command
    monkeypatch.setenv("HF_TOKEN", "hf_not_a_real_token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "first"
    make_trainer(folder, arguments=SAVE).train()
    return folder


def vcsd(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["vcsd", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        app.main()
    shown = capsys.readouterr()
    return stop.value.code, shown.out + shown.err


def is_private(created):
    """Versions of the client send a word or a flag."""
    return created["visibility"] == "private" if "visibility" in created else created["private"]


def test_an_export_is_pushed_whole_and_private_with_its_card(hub, run, tmp_path, monkeypatch, capsys):
    code, shown = vcsd(monkeypatch, capsys, "export", run, "--out", tmp_path / "out", "--push", "me/first")
    assert code == 0, shown
    assert f"Pushed to {hub.url}/me/first." in shown
    assert [is_private(created) for created in hub.created] == [True]
    assert hub.files == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert b"# me/first" in hub.files["README.md"]
    assert {token for _, _, token in hub.requests} == {"Bearer hf_not_a_real_token"}


def test_a_public_repository_must_be_asked_for(hub, run, tmp_path, monkeypatch, capsys):
    words = ("export", run, "--out", tmp_path / "out", "--push", "me/first", "--public")
    code, shown = vcsd(monkeypatch, capsys, *words)
    assert code == 0, shown
    assert [is_private(created) for created in hub.created] == [False]


def test_an_existing_repository_that_stays_private_is_said_to_be(hub, run, tmp_path, monkeypatch, capsys):
    hub.is_private = True
    words = ("export", run, "--out", tmp_path / "out", "--push", "me/first", "--public")
    code, shown = vcsd(monkeypatch, capsys, *words)
    assert code == 0, shown
    assert "me/first already existed and is still private." in shown
    assert "README.md" in hub.files


def test_a_public_repository_is_not_written_to_by_accident(hub, run, tmp_path, monkeypatch, capsys):
    hub.is_private = False
    code, shown = vcsd(monkeypatch, capsys, "export", run, "--out", tmp_path / "out", "--push", "me/first")
    assert code == 2
    assert "this repository is public already. Add --public if you mean that." in " ".join(shown.split())
    assert not (tmp_path / "out").exists()
    assert hub.files == {}


def test_an_adapter_is_pushed_with_the_hub_id_of_its_base_and_no_path(hub, tmp_path, monkeypatch, capsys):
    write_base(tmp_path / "secret" / "base")
    lora_trainer(tmp_path / "run", tmp_path / "secret" / "base", arguments=SAVE).train()
    words = ("export", tmp_path / "run", "--out", tmp_path / "out", "--adapter")
    code, shown = vcsd(monkeypatch, capsys, *words, "--push", "me/first")
    assert code == 2
    assert "Name its hub id: --base ORG/NAME." in " ".join(shown.split())
    assert hub.requests == []
    code, shown = vcsd(monkeypatch, capsys, *words, "--push", "me/first", "--base", "org/base")
    assert code == 0, shown
    assert json.loads(hub.files["adapter_config.json"])["base_model_name_or_path"] == "org/base"
    assert b"base_model: org/base" in hub.files["README.md"]
    assert not [name for name, content in hub.files.items() if b"secret" in content]
    words = ("export", tmp_path / "run", "--out", tmp_path / "local", "--adapter")
    assert vcsd(monkeypatch, capsys, *words)[0] == 0
    assert json.loads((tmp_path / "local" / "adapter_config.json").read_text())["base_model_name_or_path"] is None
    assert "secret" not in (tmp_path / "local" / "README.md").read_text()


def test_nothing_is_sent_without_push(hub, run, tmp_path, monkeypatch, capsys):
    code, shown = vcsd(monkeypatch, capsys, "export", run, "--out", tmp_path / "out")
    assert code == 0, shown
    assert (tmp_path / "out" / "README.md").is_file()
    assert hub.requests == []


def test_a_refused_token_is_told_before_anything_is_exported(hub, run, tmp_path, monkeypatch, capsys):
    hub.refuses = True
    code, shown = vcsd(monkeypatch, capsys, "export", run, "--out", tmp_path / "out", "--push", "me/first")
    assert code == 2
    assert "Run hf auth login." in shown
    assert not (tmp_path / "out").exists()
    assert hub.created == []


def test_without_a_token_or_network_the_error_says_what_to_do(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(ConfigError, match="Run hf auth login, or set HF_TOKEN"):
        require_account("me/first")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE is set"):
        require_account("me/first")
    assert hub.requests == []


def test_a_failed_upload_keeps_the_export_and_says_how_to_try_again(hub, tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("---\nlibrary_name: transformers\n---\n")
    monkeypatch.setattr(hub, "reply", lambda path, body: (403, {"error": "You have no rights."}))
    with pytest.raises(RunError, match=rf"hf upload me/first {tmp_path}"):
        push(tmp_path, "me/first", message="Upload")


@pytest.mark.parametrize(
    "name", ["first", "me/", "/first", "me/a/b", "me/../x", "https://hub/me/x", "me/a b", "me/x.git"]
)
def test_a_name_that_the_hub_cannot_have_is_refused(name):
    with pytest.raises(ConfigError, match="Write ORG/NAME"):
        require_repository(name)
    require_repository("my-org/Qwen3-VL-2B.vcsd_1")
