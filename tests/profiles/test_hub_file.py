"""Each test runs in a process of its own: huggingface_hub reads its environment once."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tools.file_server import FileServer

# the hub's client sleeps for half a minute between its own attempts: not here
FETCHER = """
import sys, time
time.sleep = lambda seconds: None
from outrider.profiles.model_source import ModelSource
from outrider.profiles.sources import fetch
sha256 = sys.argv[2] or None
seen = []
for offline in sys.argv[3:]:
    try:
        path = fetch(ModelSource(sys.argv[1], sha256), progress=seen.append, offline=offline == "1")
        print("got", path)
    except Exception as error:
        print(type(error).__name__, error)
for step in seen:
    print(step.phase, step.name, step.origin, step.done, step.total)
"""
CONTENT = random.Random(1).randbytes(200_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
REPO = "me/tiny-GGUF"


@pytest.fixture
def hub(server: FileServer) -> FileServer:
    server.add_repository(
        REPO,
        {
            "tiny-Q8_0.gguf": CONTENT,
            "sub/tiny-Q4_K_M.gguf": b"small",
            "mmproj-Q4_K_M.gguf": b"eyes",
            "tiny-IQ2-00001-of-00002.gguf": b"1",
            "tiny-IQ2-00002-of-00002.gguf": b"2",
            "README.md": b"about",
        },
    )
    return server


def run(url: str, source: str, *offline: str, sha256: str = "", **more: str) -> list[str]:
    home = str(Path("hub").resolve())
    environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": home, **more}
    done = subprocess.run(
        [sys.executable, "-c", FETCHER, source, sha256, *(offline or ("0",))],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_file_comes_from_the_endpoint_and_lies_in_its_cache(hub: FileServer) -> None:
    got, *steps = run(hub.url, f"hf:{REPO}/tiny-Q8_0.gguf", sha256=SHA256)
    path = Path(got.removeprefix("got "))
    assert path.name == "tiny-Q8_0.gguf"
    assert path.is_relative_to(Path("hub").resolve())
    assert path.read_bytes() == CONTENT
    assert steps[0].split()[:3] == ["download", "tiny-Q8_0.gguf", REPO]
    assert "download tiny-Q8_0.gguf me/tiny-GGUF 200000 200000" in steps
    assert steps[-1] == "check tiny-Q8_0.gguf me/tiny-GGUF 200000 200000"


def test_a_second_time_asks_nobody(hub: FileServer) -> None:
    source = f"hf:{REPO}/tiny-Q8_0.gguf"
    first, *_ = run(hub.url, source)
    hub.requests.clear()
    again, *_ = run(hub.url, source, "0", "1")
    assert again == first
    assert hub.requests == []


def test_what_other_programs_fetched_is_found_without_asking(hub: FileServer) -> None:
    run(hub.url, f"hf:{REPO}/sub/tiny-Q4_K_M.gguf")
    hub.requests.clear()
    (named, *_) = run(hub.url, f"hf:{REPO}/sub/tiny-Q4_K_M.gguf", "1", XDG_CACHE_HOME="/nowhere")
    (quant, *_) = run(hub.url, f"hf:{REPO}:q4_k_m", "1", XDG_CACHE_HOME="/nowhere")
    assert named == quant
    assert named.endswith("sub/tiny-Q4_K_M.gguf")
    assert hub.requests == []


def test_a_quantisation_finds_its_one_file(hub: FileServer) -> None:
    got, *_ = run(hub.url, f"hf:{REPO}:q4_k_m")
    assert got.endswith("/sub/tiny-Q4_K_M.gguf")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            f"hf:{REPO}:IQ2",
            f"ProfileError hf:{REPO}:IQ2: 2 files match; give one as hf:{REPO}/FILE:"
            " tiny-IQ2-00001-of-00002.gguf, tiny-IQ2-00002-of-00002.gguf",
        ),
        (f"hf:{REPO}:Q2_K", f"ProfileError hf:{REPO}:Q2_K: 0 files match; give one as"),
        (
            f"hf:{REPO}/no.gguf",
            f"SourceError hf:{REPO}/no.gguf: no such file in the repository",
        ),
        (
            "hf:me/none/no.gguf",
            "SourceError hf:me/none/no.gguf: no such repository, or a private one",
        ),
        ("hf:me/none:Q8_0", "SourceError hf:me/none:Q8_0: no such repository, or a private one"),
    ],
)
def test_what_is_not_there_is_one_line(hub: FileServer, source: str, message: str) -> None:
    (line,) = run(hub.url, source)
    assert line.startswith(message)


def test_offline_says_so_and_asks_nobody(hub: FileServer) -> None:
    for form in ("/tiny-Q8_0.gguf", ":Q8_0"):
        (line,) = run(hub.url, f"hf:{REPO}{form}", "1")
        assert line == f"SourceError hf:{REPO}{form}: not on this machine yet, and offline"
    assert hub.requests == []


def test_no_connection_is_one_line() -> None:
    (line,) = run("http://127.0.0.1:1", f"hf:{REPO}/tiny-Q8_0.gguf")
    assert line.startswith(f"SourceError hf:{REPO}/tiny-Q8_0.gguf: ")
    assert line.endswith("check the connection and try again")
    assert "Connection refused" in line


def test_a_wrong_hash_names_both(hub: FileServer) -> None:
    line, *_ = run(hub.url, f"hf:{REPO}/tiny-Q8_0.gguf", sha256="0" * 64)
    assert f"sha256 is {SHA256}, expected {'0' * 64}: give the right file, or delete it" in line


def test_a_cut_connection_is_resumed(hub: FileServer) -> None:
    path = f"/{REPO}/resolve/main/tiny-Q8_0.gguf"
    hub.cuts[path] = 100_000
    line, *_ = run(hub.url, f"hf:{REPO}/tiny-Q8_0.gguf", sha256=SHA256)
    assert line.startswith(f"SourceError hf:{REPO}/tiny-Q8_0.gguf: ")
    assert line.endswith("; what came is kept, try again")
    assert not list(Path("hub").rglob("snapshots/*/*.gguf"))
    hub.cuts.clear()
    line, *_ = run(hub.url, f"hf:{REPO}/tiny-Q8_0.gguf", sha256=SHA256)
    assert Path(line.removeprefix("got ")).read_bytes() == CONTENT
