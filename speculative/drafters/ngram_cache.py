"""NgramCacheDrafter: llama.cpp's ``ngram-cache``, the most frequent next token, over and over."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.speculative.drafters.ngram_cache_file import add_counts, load_counts
from outrider.speculative.drafters.ngram_counts import MAX_N, Followers, NgramCounts
from outrider.speculative.drafters.seen_text import SeenText
from outrider.speculative.drafters.text_drafter import TextDrafter
from outrider.speculative.errors import EngineError, InputError
from outrider.speculative.proposal import DraftRequest

_log = logging.getLogger(__name__)

_WORD = 4
_STATIC_N = 2  # of the static cache only pairs are looked up


@dataclass(frozen=True, slots=True)
class _Limits:
    """How often an n-gram of 1, 2, 3, 4 tokens must have been seen, and in how many per cent
    of the cases its follower must be the same."""

    min_total: tuple[int, int, int, int]
    min_percent: tuple[int, int, int, int]


_LAX = _Limits((2, 2, 1, 1), (66, 50, 50, 50))
_STRICT = _Limits((4, 3, 2, 2), (75, 66, 66, 66))


@dataclass(slots=True)
class _Caches:
    """What all sequences share: ``dynamic`` from earlier texts, ``static`` from a corpus."""

    dynamic: NgramCounts
    static: NgramCounts


class _Reader:
    """Counts the n-grams of one sequence and looks its end up in all caches."""

    num_matched: int | None = None

    def __init__(self, caches: _Caches) -> None:
        self.context = NgramCounts()
        self._caches = caches
        self._text = SeenText()

    def read(self, request: DraftRequest) -> None:
        for ngram, token in self._transitions(self._text.compare(request).num_kept):
            self.context.take_back(ngram, token)
        change = self._text.follow(request)
        for ngram, token in self._transitions(change.num_kept):
            self.context.add(ngram, token)

    def draft(self, max_tokens: int) -> Sequence[int]:
        if len(self._text) < _STATIC_N:
            return ()
        tail = _bytes(self._text.ids[-MAX_N:].tolist())
        drafted: list[int] = []
        while len(drafted) < max_tokens:
            token = self._next(tail)
            if token is None:
                break
            drafted.append(token)
            tail = (tail + _bytes([token]))[-MAX_N * _WORD :]
        return drafted

    def observe(self, num_accepted: int, num_drafted: int) -> None:
        pass

    def _transitions(self, begin: int) -> Iterator[tuple[bytes, int]]:
        """The n-grams before each token from ``begin`` on, with that token."""
        first = max(begin - MAX_N, 0)
        tokens = self._text.ids[first:].tolist()
        text = _bytes(tokens)
        for at in range(begin - first, len(tokens)):
            for n in range(1, min(MAX_N, at) + 1):
                yield text[_WORD * (at - n) : _WORD * at], tokens[at]

    def _next(self, tail: bytes) -> int | None:
        """The token expected after ``tail``, the last tokens of the text."""
        caches = self._caches
        static = caches.static.after(tail[-_STATIC_N * _WORD :])
        token = _likely(self.context, tail, static, _LAX)
        if token is None:
            token = _likely(caches.dynamic, tail, static, _STRICT)
        if token is None and static is not None:
            token = _accepted(static, None, _STATIC_N, _LAX)
        return token


def _bytes(tokens: list[int]) -> bytes:
    return b"".join([token.to_bytes(_WORD, "little") for token in tokens])


def _likely(
    counts: NgramCounts, tail: bytes, static: Followers | None, limits: _Limits
) -> int | None:
    """What follows the longest end of ``tail`` of which that is clear."""
    for n in range(len(tail) // _WORD, 0, -1):
        followers = counts.after(tail[-n * _WORD :])
        if followers is not None:
            token = _accepted(followers, static, n, limits)
            if token is not None:
                return token
    return None


def _accepted(
    followers: Followers, static: Followers | None, n: int, limits: _Limits
) -> int | None:
    """The follower that counts most, weighted by the static cache, if the limits allow it."""
    if followers.total < limits.min_total[n - 1]:
        return None
    weights = {} if static is None else static.counts
    token = _first(followers, weights)
    share = 100 * followers.counts[token]
    return token if share >= limits.min_percent[n - 1] * followers.total else None


def _first(followers: Followers, weights: dict[int, int]) -> int:
    """The follower with the highest weighted count.

    Of equal ones the more frequent counts, then the one that came up later. Only a follower of
    at least half of the cases is accepted: where there are more than two that can be ``best``
    alone, so that nothing but it and what outweighs it must be looked at.
    """
    counts = followers.counts
    candidates = [followers.best, *(token for token in weights if token in counts)]
    if len(counts) <= 2:
        candidates = list(reversed(counts))

    def weight(token: int) -> tuple[int, int]:
        factor = 100 * weights[token] if token in weights else 1
        return counts[token] * factor, counts[token]

    return max(candidates, key=weight)


class NgramCacheDrafter(TextDrafter[_Reader]):
    """Looks up the last 1 to 4 tokens in this text, in earlier texts and in a corpus.

    ``dynamic`` is a file of what earlier texts were like; the texts seen here are added to it
    when they are forgotten or the drafter is closed (llama.cpp's server only reads it).
    ``static`` is a file made from a corpus. A dynamic file that is missing is begun.
    """

    name = "ngram-cache"

    def __init__(
        self,
        vocab_size: int,
        static: Path | None = None,
        dynamic: Path | None = None,
        n_max: int = 8,
    ) -> None:
        """Read the files.

        Raises:
            InputError: a file that cannot be used.
        """
        self._vocab_size = vocab_size
        self._path = dynamic
        self._learned = NgramCounts()
        self._caches = _Caches(
            dynamic=_begun(dynamic, vocab_size) if dynamic else NgramCounts(),
            static=load_counts(static, vocab_size) if static else NgramCounts(),
        )
        super().__init__(n_max, lambda: _Reader(self._caches))

    def forget(self, seq_id: int) -> None:
        reader = self._readers.pop(seq_id, None)
        if reader is not None and self._path is not None:
            self._learned.merge(reader.context)
            self._caches.dynamic.merge(reader.context)

    def close(self) -> None:
        for seq_id in list(self._readers):
            self.forget(seq_id)
        if self._path is None or not len(self._learned):
            return
        try:
            add_counts(self._path, self._learned, self._vocab_size)
        except (OSError, EngineError) as error:
            # whatever closes the drafter has more to close
            _log.warning("%s: what was learned is not saved: %s", self._path, error)
        self._learned = NgramCounts()


def _begun(path: Path, vocab_size: int) -> NgramCounts:
    """The dynamic cache at ``path``, empty if there is no such file yet."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InputError(f"{path}: cannot save a lookup cache there: no such folder")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path}: cannot save a lookup cache there: the folder is read-only")
    return load_counts(path, vocab_size) if path.exists() else NgramCounts()
