"""NgramCounts: how often which token followed an n-gram."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

MAX_N = 4

_TOKEN_BITS = 32
_ONE = 1 << _TOKEN_BITS
_TOKEN_MASK = _ONE - 1


class Followers:
    """The tokens that followed one n-gram, in the order in which they first did.

    ``best`` is a token with the highest count, ``total`` the sum of all counts.
    """

    __slots__ = ("best", "counts", "total")

    def __init__(self, token: int, count: int) -> None:
        self.counts = {token: count}
        self.best = token
        self.total = count

    def add(self, token: int, count: int) -> None:
        """Count ``token`` again; a negative ``count`` takes that back."""
        self.total += count
        now = self.counts.get(token, 0) + count
        if now:
            self.counts[token] = now
        else:
            del self.counts[token]
        if count < 0 and token == self.best:
            self.best = max(self.counts, key=self.counts.__getitem__, default=token)
        elif now > self.counts[self.best]:
            self.best = token


class NgramCounts:
    """N-grams of 1 to 4 tokens, written as little-endian int32, and what followed them.

    Most n-grams have one follower; they hold it as one number, ``count << 32 | token``.
    """

    def __init__(self) -> None:
        self._parts: dict[bytes, int | Followers] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[tuple[bytes, Mapping[int, int]]]:
        """Each n-gram with its followers and their counts."""
        return ((ngram, _followers(part).counts) for ngram, part in self._parts.items())

    def after(self, ngram: bytes) -> Followers | None:
        """What followed ``ngram``."""
        part = self._parts.get(ngram)
        return None if part is None else _followers(part)

    def add(self, ngram: bytes, token: int, count: int = 1) -> None:
        """Count a follower."""
        part = self._parts.get(ngram)
        if part is None:
            self._parts[ngram] = count << _TOKEN_BITS | token
        elif not isinstance(part, int):
            part.add(token, count)
        elif part & _TOKEN_MASK == token:
            self._parts[ngram] = part + (count << _TOKEN_BITS)
        else:
            self._parts[ngram] = followers = _followers(part)
            followers.add(token, count)

    def take_back(self, ngram: bytes, token: int) -> None:
        """Undo one count."""
        part = self._parts[ngram]
        if isinstance(part, int):
            self._parts[ngram] = part = part - _ONE
            is_empty = part < _ONE
        else:
            part.add(token, -1)
            is_empty = not part.total
        if is_empty:
            del self._parts[ngram]

    def merge(self, other: NgramCounts) -> None:
        """Add all counts of ``other``."""
        for ngram, counts in other:
            for token, count in counts.items():
                self.add(ngram, token, count)


def _followers(part: int | Followers) -> Followers:
    if isinstance(part, int):
        return Followers(part & _TOKEN_MASK, part >> _TOKEN_BITS)
    return part
