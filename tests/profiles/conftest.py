"""A package index on loopback that pip uses instead of the user's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.file_server import FileServer, file_server


@pytest.fixture
def server() -> Iterator[FileServer]:
    """A file server that nothing uses yet."""
    with file_server() as served:
        yield served


@pytest.fixture
def index(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> FileServer:
    """The server as pip's only index; pip neither retries nor resumes by itself."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_RESUME_RETRIES", "0")
    return server
