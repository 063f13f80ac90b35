"""A server on this machine that speaks chat completions, in any mood.

with toy_server(reply) as server:       # reply(request) -> (status, body), body a dict, text or None to hang up
    server.url, server.requests
"""

import json
import socket
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LONGEST_TEST = 60.0
"""Seconds; a hostile server gives up by then, whatever the client does."""


def completion(text, reason="stop", num_tokens=3, **message):
    return {
        "choices": [{"message": {"role": "assistant", "content": text, **message}, "finish_reason": reason}],
        "usage": {"completion_tokens": num_tokens},
    }


class _PatientServer(ThreadingHTTPServer):
    request_queue_size = 128
    """With the usual 5, a client with 16 threads waits a second for some of its connections."""


class ToyServer:
    def __init__(self, reply, models):
        self.requests, self.headers = [], []
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler):  # noqa: N805
                handler.send(
                    200 if models is not None else 404,
                    {"data": [{"id": name, **m} for name, m in (models or {}).items()]},
                )

            def do_POST(handler):  # noqa: N805
                request = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                with lock:
                    self.requests.append(request)
                    self.headers.append(dict(handler.headers))
                    status, body = reply(request)
                with suppress(BrokenPipeError, ConnectionResetError):  # a client that did not wait
                    if body is not None:
                        handler.send(status, body)

            def send(handler, status, body):  # noqa: N805
                content = (body if isinstance(body, str) else json.dumps(body)).encode()
                handler.send_response(status)
                handler.send_header("Content-Length", str(len(content)))
                handler.end_headers()
                handler.wfile.write(content)

            def log_message(handler, *about):  # noqa: N805
                pass

        self.http = _PatientServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"


@contextmanager
def toy_server(reply, models=None):
    server = ToyServer(reply, models)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()


@contextmanager
def raw_server(talk):
    """A server that reads each request and then does as it likes: talk(connection, request). Counts requests."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests, threads = [], []

    def one(connection):
        connection.settimeout(LONGEST_TEST)
        with connection, suppress(OSError):
            request = connection.recv(2**16)
            requests.append(request)
            talk(connection, request)

    def serve():
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=one, args=(listener.accept()[0],), daemon=True))
                threads[-1].start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", requests
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for each in threads:
            each.join()
