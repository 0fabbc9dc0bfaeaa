"""A small OpenAI-compatible server on loopback whose answers are scripted."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any] | bytes | int]


@dataclass
class ChatServer:
    """``answer`` makes the body of a chat completion from the request: JSON, raw bytes, or the
    status of an error; ``models`` and ``props`` are other pages, None is 404.

    A request whose text is ``hang`` waits for ``release``, one with ``drop`` loses its line.
    """

    answer: Answer
    url: str = ""
    models: dict[str, Any] | None = None
    props: dict[str, Any] | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)


def completion(text: str, **more: Any) -> dict[str, Any]:
    """The body of a chat completion."""
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **more}


@contextmanager
def chat_server(answer: Answer, **pages: Any) -> Iterator[ChatServer]:
    """Run a server on a free port of loopback."""
    served = ChatServer(answer, **pages)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = {"/v1/models": served.models, "/props": served.props}.get(self.path)
            self._send(200 if page is not None else 404, page or {})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.requests.append(request)
            text = request["messages"][-1]["content"]
            if text == "hang":
                served.release.wait(60)
            if text == "drop":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.close_connection = True
                return
            made = served.answer(request) if self.path == "/v1/chat/completions" else 404
            if isinstance(made, int):
                self._send(made, {"error": {"message": f"status\n{made}"}})
            else:
                self._send(200, made)

        def _send(self, status: int, body: dict[str, Any] | bytes) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            with contextlib.suppress(ConnectionError):  # the client may have had enough
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
