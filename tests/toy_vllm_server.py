"""A server with the endpoints of vLLM that a trainer uses, over real HTTP on localhost. It samples nothing.

It reads weights from files as vLLM's worker does, and can be told to fail: `failures` maps a path to how often.
"""

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from vcsd.rollout.vllm.file_transfer import FileReceiver


class ToyVLLMServer:
    """Replies with `reply` to each request: token ids, or a function of the version, the seed and the rollout's index.

    `restart` forgets the weights, as a new process would.
    """

    def __init__(self, reply=(5, 2)):
        self.reply, self.failures, self.calls, self.bodies, self.headers = reply, {}, [], [], []
        self.slow_seconds, self.room = 0.0, None
        self.restart()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def restart(self):
        self.version, self.weights, self.is_updating, self._receiver = "default", {}, False, None

    def stop(self):
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path, body):
        """The status and the reply to a request."""
        self.calls.append(path)
        if self.failures.get(path, 0):
            self.failures[path] -= 1
            return 500, {"error": "CUDA out of memory"}
        if path == "/inference/v1/generate":
            return self._generate(body)
        if path == "/v1/models" and self.room is not None:
            return 200, {"data": [{"id": "toy", "max_model_len": self.room}]}
        if path == "/weight_info":
            return 200, {"weight_version": self.version}
        if path == "/reset_prefix_cache":
            return 200, {"success": True}
        return self._weights(path, body)

    def _weights(self, path, body):
        if path == "/init_weight_transfer_engine":
            self._receiver = FileReceiver(**body["init_info"])
        elif path == "/start_weight_update":
            if self.is_updating:
                return 500, {"error": "already active"}
            self.is_updating = True
        elif path == "/update_weights":
            try:
                self.weights |= {name: tensor.clone() for name, tensor in self._receiver.read(body["update_info"])}
            except Exception as error:
                self.is_updating = False
                return 500, {"error": str(error)}
        elif path == "/finish_weight_update":
            self.is_updating = False
            self.version = body.get("weight_version", self.version)
        return 200, {}

    def _generate(self, body):
        self.bodies.append(body)
        time.sleep(self.slow_seconds)
        values, version = body["sampling_params"], self.version
        if self.room is not None and len(body["token_ids"]) >= self.room:
            return 400, {"error": "longer than the maximum model length"}
        choices = []
        for index in range(values["n"]):
            ids = list(self.reply(version, values["seed"], index) if callable(self.reply) else self.reply)
            logs = {"content": [{"logprob": -1.0} for _ in ids]} if "logprobs" in values else None
            choices.append({"finish_reason": "stop", "token_ids": ids, "logprobs": logs, "index": index})
        return 200, {"choices": choices[::-1], "prompt_token_ids": body["token_ids"]}


def _handler(server):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._reply(None)

        def do_POST(self):
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, body):
            server.headers.append(dict(self.headers))
            status, reply = server.answer(urlsplit(self.path).path, body)
            content = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with suppress(ConnectionError):  # the trainer gave up
                self.wfile.write(content)

        def log_message(self, *args):
            pass

    return Handler
