"""Lookup caches on disk, in llama.cpp's format (common/ngram-cache.cpp).

Little-endian int32 throughout, one n-gram after another: its 4 tokens, the unused ones -1; the
number of followers; each follower's token and count.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outrider.speculative.atomic_file import replace_file
from outrider.speculative.drafters.ngram_counts import MAX_N, NgramCounts
from outrider.speculative.errors import InputError

if sys.platform == "win32":

    def _lock(descriptor: int) -> None:
        """An open file cannot be replaced there: the last one to save wins."""
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


_WORD = 4
_UNUSED = b"\xff" * _WORD
_MAX_COUNT = 2**31 - 1


def load_counts(path: Path, vocab_size: int) -> NgramCounts:
    """Read a lookup cache.

    Raises:
        InputError: it cannot be read, is damaged, or knows tokens the target does not have.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read the lookup cache: {error.strerror}") from None
    if len(data) % _WORD:
        raise InputError(
            f"{path}: no lookup cache: {len(data):,} bytes are not whole numbers of {_WORD} bytes"
        )
    counts = NgramCounts()
    for ngram, tokens, numbers in _records(path, data):
        if max(tokens) >= vocab_size:
            raise InputError(
                f"{path}: made for another vocabulary: has token {max(tokens):,},"
                f" the target has {vocab_size:,} tokens"
            )
        for token, count in zip(tokens, numbers, strict=True):
            counts.add(ngram, token, count)
    return counts


def _records(path: Path, data: bytes) -> Iterator[tuple[bytes, array[int], array[int]]]:
    """Each n-gram with its followers and their counts."""
    words = array("i", data)
    if sys.byteorder == "big":
        words.byteswap()
    begin = 0
    while begin < len(words):
        header = begin + MAX_N + 1
        # a number that is no number is found below
        end = header + 2 * max(words[header - 1], 0) if header <= len(words) else header
        if end > len(words):
            raise InputError(f"{path}: the lookup cache is cut off: {len(data):,} bytes")
        ngram = data[_WORD * begin : _WORD * (header - 1)]
        while ngram.endswith(_UNUSED):
            ngram = ngram[:-_WORD]
        tokens, numbers = words[header:end:2], words[header + 1 : end : 2]
        if not ngram or not tokens or min(tokens) < 0 or min(numbers) < 1:
            raise InputError(f"{path}: no lookup cache: nonsense at byte {_WORD * begin:,}")
        yield ngram, tokens, numbers
        begin = end


def add_counts(path: Path, counts: NgramCounts, vocab_size: int) -> None:
    """Add ``counts`` to the lookup cache at ``path``; nothing that others saved meanwhile is lost.

    Raises:
        InputError: what is there now is damaged.
        OSError: it cannot be written; the file is as it was.
    """
    path = path.resolve()
    with _held(path):
        together = load_counts(path, vocab_size)
        together.merge(counts)
        replace_file(path, _encoded(together))


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold the file at ``path``, empty if there was none, against other programs."""
    while True:
        with path.open("ab") as file:
            _lock(file.fileno())
            # whoever held it before may have put another file there
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    yield
                    return


def _encoded(counts: NgramCounts) -> bytes:
    words = array("i")
    for ngram, followers in counts:
        words.frombytes(ngram + _UNUSED * (MAX_N - len(ngram) // _WORD))
        words.append(len(followers))
        for token, count in followers.items():
            words.extend((token, min(count, _MAX_COUNT)))
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()
