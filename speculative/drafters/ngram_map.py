"""NgramMapDrafter: llama.cpp's ``ngram-map-k`` and ``ngram-map-k4v`` (common/ngram-map.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile

from outrider.speculative.drafters.ngram_index import NgramIndex
from outrider.speculative.drafters.text_drafter import TextDrafter
from outrider.speculative.proposal import DraftRequest

_TABLE_SIZE = 262144
_MAX_VALUES = 4
_MAX_COUNT = 16380


@dataclass(slots=True, eq=False)
class _Value:
    """What followed a key: where it stands, how often it was seen, how much of it held."""

    accepted: int
    start: int = 0
    count: int = 0


@dataclass(slots=True, eq=False)
class _Key:
    """An n-gram that came again; it was ``start`` that was found first."""

    start: int
    values: list[_Value] = field(default_factory=list)
    num_hits: int = 0
    num_scanned: int = 0


class _Reader:
    """The map of one sequence.

    The table keeps, for each hash, the occurrence that was registered first, as llama.cpp's
    does; of two n-grams that share an entry only one is ever found again.
    """

    def __init__(self, match: int, size: int, min_hits: int, *, has_values: bool) -> None:
        self._match = match
        self._size = size
        self._min_hits = min_hits
        self._has_values = has_values
        self._index = NgramIndex(match)
        self._table: dict[int, int] = {}
        self._registered = 0  # the last start that was offered to the table
        self._keys: dict[bytes, _Key] = {}
        self._begun = 0  # length of the text when the answer began
        self._checked = 0  # length of the text when it was last looked at
        self._drafted: _Value | None = None
        self._wanted = 0
        self.num_matched: int | None = None

    def read(self, request: DraftRequest) -> None:
        change = self._index.follow(request)
        if change.is_new_answer:
            self._begin(len(self._index) - 1, change.num_kept)

    def draft(self, max_tokens: int) -> Sequence[int]:
        self._drafted = None
        # the pending token is the end of the key, no part of the text that is searched
        length = len(self._index) - 1
        if length < 2 * self._match + self._size:
            return ()
        self._checked = length
        start = self._find(length)
        self._register(length)
        value = self._value(start) if start else None
        if value is None:
            return ()
        wanted = min(self._size, value.accepted)
        begin = start + self._match
        self._drafted, self._wanted = value, wanted
        self.num_matched = self._index.num_matched(begin)
        found: list[int] = self._index.ids[begin : begin + min(wanted, max_tokens)].tolist()
        return found

    def observe(self, num_accepted: int, num_drafted: int) -> None:
        # a draft that was cut and held says nothing about what was cut off
        is_cut = num_drafted < self._wanted
        if self._drafted is not None and not (is_cut and num_accepted == num_drafted):
            self._drafted.accepted = num_accepted

    # the start of an answer

    def _begin(self, length: int, num_kept: int) -> None:
        """Drop what stood in text that is gone."""
        valid_to = self._checked
        if length < self._checked:
            valid_to = self._begun
            if length < self._begun:
                valid_to = max(length - self._match - self._size, 0)
            self._drop(valid_to)
            self._registered = max(valid_to - 1, 0)
        if num_kept < valid_to:
            # llama.cpp keeps what stood in text that was changed but not made shorter
            changed = max(num_kept - self._match - self._size, 0)
            self._drop(changed)
            self._registered = min(self._registered, max(changed - 1, 0))
        self._begun = self._checked = length

    def _drop(self, begin: int) -> None:
        """Drop all that stands at ``begin`` or after it."""
        self._table = {entry: start for entry, start in self._table.items() if start < begin}
        kept = {}
        for ngram, key in self._keys.items():
            if self._has_values:
                key.values = [value for value in key.values if value.start < begin]
            if key.start < begin and key.values:
                kept[ngram] = key
        self._keys = kept

    # the table

    def _find(self, length: int) -> int:
        """Start of an earlier occurrence of the last tokens; 0 if none is known."""
        key = len(self._index) - self._match
        last = self._last_start(length)
        start = self._table.get(self._index.hashes[key] % _TABLE_SIZE, 0)
        if 0 < start < last and self._index.is_equal(start, key):
            return start
        begun = self._begun
        for start in takewhile(lambda start: start > self._registered, self._index.earlier(key)):
            # what lies between is never searched, as in llama.cpp
            if start <= self._last_start(begun) or begun < start <= last:
                return start
        return 0

    def _register(self, length: int) -> None:
        """Offer the new starts to the table, the last one first."""
        last, registered = self._last_start(length), self._registered
        prompt = range(self._last_start(self._begun), registered, -1)
        answer = range(last, max(self._begun, registered), -1)
        for start in chain(answer, prompt):
            self._table.setdefault(self._index.hashes[start] % _TABLE_SIZE, start)
        self._registered = max(last, registered)

    def _last_start(self, length: int) -> int:
        """The last start in a text that is searched: a whole value and a token must follow."""
        return length - self._match - self._size - 1

    # keys and values

    def _value(self, start: int) -> _Value | None:
        """What is expected after the key at ``start``; None if nothing stands out."""
        ngram = self._index.ngram(start)
        key = self._keys.get(ngram)
        if key is None:
            values = [] if self._has_values else [_Value(self._size)]
            key = self._keys[ngram] = _Key(start, values)
        key.num_hits = min(key.num_hits + 1, _MAX_COUNT)
        if key.num_hits < self._min_hits:
            return None
        if not self._has_values:
            return key.values[0]
        self._scan(key, start)
        return _favourite(key.values)

    def _scan(self, key: _Key, start: int) -> None:
        """Count what followed the key, from where the last scan ended up to ``start``."""
        back = chain((start,), self._index.earlier(start))
        # the place where the last scan ended counts again, as in llama.cpp
        known = {self._text(value.start): value for value in key.values}
        for found in reversed(list(takewhile(lambda at: at >= key.num_scanned, back))):
            begin = found + self._match
            text = self._text(begin)
            if text in known:
                known[text].count = min(known[text].count + 1, _MAX_COUNT)
            elif len(known) < _MAX_VALUES:
                known[text] = _Value(self._size, begin, count=1)
        key.values = list(known.values())
        key.num_scanned = start

    def _text(self, start: int) -> bytes:
        return self._index.ids[start : start + self._size].tobytes()


def _favourite(values: list[_Value]) -> _Value | None:
    """The value seen most often, if it was seen twice as often as all others together."""
    best = max(values, key=lambda value: value.count)
    others = sum(value.count for value in values) - best.count
    return best if best.count >= 2 * others else None


class NgramMapDrafter(TextDrafter[_Reader]):
    """Looks up the last ``match`` tokens and proposes up to ``size`` that followed them.

    ``ngram-map-k`` proposes what followed where the n-gram was registered; after a rejection
    only as many tokens as held. ``ngram-map-k4v`` counts what followed at up to four kinds of
    continuation and proposes only if one stands out. Nothing is proposed for an n-gram that
    came less than ``min_hits`` times again (llama.cpp's ``ngram-map-k`` ignores that number).
    """

    def __init__(
        self,
        match: int,
        size: int,
        min_hits: int = 1,
        n_max: int | None = None,
        *,
        has_values: bool,
    ) -> None:
        """``has_values`` makes it ``ngram-map-k4v``."""
        self.name = "ngram-map-k4v" if has_values else "ngram-map-k"
        super().__init__(
            min(size, n_max or size),
            lambda: _Reader(match, size, min_hits, has_values=has_values),
        )
