"""A small HTTP server on loopback that plays a package index and a model hub."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FileServer:
    """What is served. ``cuts`` maps a path to how many bytes of it come before the line breaks.

    ``hold`` is waited for once half of any file that is in ``held`` was sent.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    headers: dict[str, Mapping[str, str]] = field(default_factory=dict)
    cuts: dict[str, int] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    hold: threading.Event = field(default_factory=threading.Event)
    half_sent: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)

    def add_package(self, name: str, version: str, members: Mapping[str, bytes]) -> str:
        """Serve a wheel with ``members``; return its path."""
        wheel_name = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        path = f"/files/{wheel_name}"
        self.files[path] = wheel(name, version, members)
        page = f'<!DOCTYPE html><a href="{path}">{wheel_name}</a>'
        self.files[f"/simple/{name}/"] = page.encode()
        self.headers[f"/simple/{name}/"] = {"Content-Type": "text/html"}
        return path

    def add_repository(self, repo: str, files: Mapping[str, bytes]) -> None:
        """Serve a model repository with one commit."""
        siblings = [{"rfilename": name} for name in files]
        about = {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings}
        tree = [
            {"type": "file", "path": name, "size": len(files[name]), "oid": "0"} for name in files
        ]
        for path, value in (
            (f"/api/models/{repo}", about),
            (f"/api/models/{repo}/revision/main", about),
            (f"/api/models/{repo}/tree/main", tree),
        ):
            self.files[path] = json.dumps(value).encode()
            self.headers[path] = {"Content-Type": "application/json"}
        for name, content in files.items():
            path = f"/{repo}/resolve/main/{name}"
            self.files[path] = content
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            self.headers[path] = {"ETag": etag, "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            self.files[f"/{repo}/resolve/{COMMIT}/{name}"] = content
            self.headers[f"/{repo}/resolve/{COMMIT}/{name}"] = self.headers[path]


def wheel(name: str, version: str, members: Mapping[str, bytes]) -> bytes:
    """Return a wheel that holds ``members``."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    files = {
        **members,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return buffer.getvalue()


@contextmanager
def file_server() -> Iterator[FileServer]:
    """Run a server on a free port of loopback."""
    served = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            path = self.path.split("?")[0]
            served.requests.append(f"{self.command} {path}")
            if path not in served.files:
                self.send_response(404)
                self.send_header("X-Error-Code", self._error_code(path))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = served.files[path]
            begin = self._range_start(len(body))
            self.send_response(206 if begin else 200)
            for name, value in served.headers.get(path, {}).items():
                self.send_header(name, value)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - begin))
            self.end_headers()
            if with_body:
                self._send(path, body, begin)

        def _error_code(self, path: str) -> str:
            repo = "/".join(path.split("/")[1:3])
            return "EntryNotFound" if f"/api/models/{repo}" in served.files else "RepoNotFound"

        def _range_start(self, size: int) -> int:
            wanted = self.headers.get("Range", "")
            begin = wanted.removeprefix("bytes=").split("-")[0]
            return min(int(begin), size) if begin.isdecimal() else 0

        def _send(self, path: str, body: bytes, begin: int) -> None:
            end = min(served.cuts.get(path, len(body)), len(body))
            middle = (begin + end) // 2 if path in served.held else end
            self.wfile.write(body[begin:middle])
            self.wfile.flush()
            if path in served.held:
                served.half_sent.set()
                served.hold.wait(60)
                self.wfile.write(body[middle:end])
            self.close_connection = True

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
        served.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
