"""llama.cpp's n-gram drafters written for reading: they search where ours look up.

Each has its three calls: ``begin`` with the whole prompt of an answer, ``draft`` with the text,
the token drawn after it and the most tokens wanted, ``accept`` with how many of them stood.
``as_llama`` keeps the faults that ours do not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Tokens = Sequence[int]


class SlowDrafter(Protocol):
    def begin(self, prompt: Tokens) -> None: ...

    def draft(self, text: Tokens, last: int, limit: int) -> list[int]: ...

    def accept(self, num_accepted: int) -> None: ...


def simulate(drafter: SlowDrafter, prompt: Tokens, answer: Tokens) -> tuple[int, int]:
    """Drafted and accepted tokens of a target that writes ``answer`` and stops at its length."""
    drafter.begin(prompt)
    drafted = accepted = 0
    written = 1  # the first token comes with the prompt
    while written < len(answer):
        draft: list[int] = []
        if room := len(answer) - written - 1:
            draft = drafter.draft([*prompt, *answer[: written - 1]], answer[written - 1], room)
        stood = shared(draft, answer[written:])
        if draft:
            drafter.accept(stood)
        drafted, accepted, written = drafted + len(draft), accepted + stood, written + stood + 1
    return drafted, accepted


def shared(one: Tokens, other: Tokens) -> int:
    """How many tokens they have in common at the start."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


@dataclass
class _Slot:
    place: int
    count: int
    accepted: int


@dataclass
class _Entry:
    place: int
    hits: int
    scanned: int
    slots: list[_Slot]


class SlowMap:
    """``ngram-map-k``, or with ``values`` ``ngram-map-k4v``."""

    def __init__(
        self,
        n: int,
        m: int,
        min_hits: int = 1,
        *,
        values: bool,
        as_llama: bool = False,
        table_size: int = 262144,
    ) -> None:
        self.n, self.m, self.min_hits = n, m, min_hits
        self.values, self.as_llama = values, as_llama
        self.table: dict[int, int] = {}
        self.table_size = table_size
        self.entries: list[_Entry] = []
        self.last_in_table = self.size_at_begin = self.size_seen = 0
        self.seen: list[int] = []
        self.chosen: _Slot | None = None
        self.limit = 0
        self.wanted = 0
        self.num_edits = 0

    def begin(self, prompt: Tokens) -> None:
        size, gone_from = len(prompt), self.size_seen
        if size < self.size_seen:
            gone_from = self.size_at_begin
            if gone_from > size:
                gone_from = max(0, size - self.n - self.m)
            self._forget(gone_from)
            self.last_in_table = max(0, gone_from - 1)
        kept = shared(self.seen, prompt)
        if kept < gone_from and not self.as_llama:
            self.num_edits += 1
            start = max(0, kept - self.n - self.m)
            self._forget(start)
            self.last_in_table = min(self.last_in_table, max(0, start - 1))
        self.size_seen = self.size_at_begin = size

    def _forget(self, place: int) -> None:
        self.table = {slot: start for slot, start in self.table.items() if start < place}
        for entry in self.entries:
            if self.values:
                entry.slots = [slot for slot in entry.slots if slot.place < place]
        self.entries = [
            entry
            for entry in self.entries
            if entry.place < place and (entry.slots or not self.values)
        ]

    def draft(self, text: Tokens, last: int, limit: int) -> list[int]:
        n, m, size = self.n, self.m, len(text)
        self.chosen, self.limit, self.seen = None, limit, [*text, last]
        if size < 2 * n + m:
            return []
        self.size_seen = size
        key = [*text[size - n + 1 :], last]
        new = [
            *self._new_places(self.size_at_begin, 0),
            *self._new_places(size, self.size_at_begin),
        ]
        place = self.table.get(self._hash(key), 0)
        if not (0 < place < size - n - m - 1 and list(text[place : place + n]) == key):
            place = next((j for j in new if list(text[j : j + n]) == key), 0)
        for j in new:
            self.table.setdefault(self._hash(text[j : j + n]), j)
        self.last_in_table = max(self.last_in_table, size - n - m - 1)
        return self._use(text, key, place)[:limit] if place else []

    def _new_places(self, size: int, after: int) -> Iterator[int]:
        """From the last start that a value follows down to those known, or to ``after``."""
        yield from range(size - self.n - self.m - 1, max(after, self.last_in_table), -1)

    def _hash(self, tokens: Tokens) -> int:
        value: int = sum(t * 2654435761**i for i, t in enumerate(reversed(tokens)))
        return value % 2**32 % self.table_size

    def _use(self, text: Tokens, key: list[int], place: int) -> list[int]:
        n, m = self.n, self.m
        entry = next((e for e in self.entries if list(text[e.place : e.place + n]) == key), None)
        if entry is None:
            entry = _Entry(place, 0, 0, [] if self.values else [_Slot(0, 0, m)])
            self.entries.append(entry)
        entry.hits = min(entry.hits + 1, 16380)
        # llama.cpp's ngram-map-k does not look at min_hits
        if entry.hits < self.min_hits and (self.values or not self.as_llama):
            return []
        self.chosen = self._best(text, key, entry, place) if self.values else entry.slots[0]
        if self.chosen is None:
            return []
        self.wanted = min(m, self.chosen.accepted)
        return list(text[place + n : place + n + self.wanted])

    def _best(self, text: Tokens, key: list[int], entry: _Entry, place: int) -> _Slot | None:
        n, m = self.n, self.m
        for i in range(entry.scanned, place + 1):
            if list(text[i : i + n]) != key:
                continue
            value = text[i + n : i + n + m]
            for slot in entry.slots:
                if text[slot.place : slot.place + m] == value:
                    slot.count = min(slot.count + 1, 16380)
                    break
            else:
                if len(entry.slots) < 4:
                    entry.slots.append(_Slot(i + n, 1, m))
        entry.scanned = place
        counts = [slot.count for slot in entry.slots]
        first = counts.index(max(counts))
        others = sum(counts) - counts[first]
        return None if others and counts[first] < 2 * others else entry.slots[first]

    def accept(self, num_accepted: int) -> None:
        if self.chosen is None:
            return
        is_cut = self.limit < self.wanted
        if self.as_llama or not (is_cut and num_accepted == self.limit):
            self.chosen.accepted = num_accepted


class SlowPool:
    """The table of ``ngram-mod``."""

    def __init__(self, size: int = 4 * 1024 * 1024) -> None:
        self.size = size
        self.table: dict[int, int] = {}

    def place(self, window: Tokens) -> int:
        value = 0
        for token in window:
            value = (value * 6364136223846793005 + token) % 2**64
        return value % self.size


class SlowMod:
    """``ngram-mod`` of one sequence; ``peers`` are all sequences of the pool, this one too."""

    def __init__(
        self,
        pool: SlowPool,
        peers: list[SlowMod],
        n: int,
        n_min: int,
        n_max: int,
        *,
        as_llama: bool = False,
    ) -> None:
        self.pool, self.peers = pool, peers
        self.n, self.n_min, self.n_max = n, n_min, n_max
        self.as_llama = as_llama
        self.added = self.drafted = self.low = self.num_resets = 0
        peers.append(self)

    def begin(self, prompt: Tokens) -> None:
        self.added = 0
        if len(prompt) < self.n:
            return
        self._add(prompt)
        if len(self.pool.table) > self.pool.size / 4:
            self._reset()
            if not self.as_llama:
                self._add(prompt)

    def _add(self, text: Tokens) -> None:
        for i in range(self.added, len(text) - self.n):
            self.pool.table[self.pool.place(text[i : i + self.n])] = text[i + self.n]
        self.added = len(text) - self.n

    def _reset(self) -> None:
        self.num_resets += 1
        self.pool.table.clear()
        if not self.as_llama:
            for peer in self.peers:
                peer.added = 0

    def draft(self, text: Tokens, last: int, limit: int) -> list[int]:
        self.drafted = 0
        if len(text) < self.n:
            return []
        if self.added + 32 < len(text):
            self._add(text)
        window = [*text, last][-self.n :]
        found: list[int] = []
        while len(found) < self.n_max:
            token = self.pool.table.get(self.pool.place(window))
            if token is None:
                if len(found) < self.n_min:
                    return []
                break
            found.append(token)
            window = [*window[1:], token]
        self.drafted = len(found) if self.as_llama else len(found[:limit])
        return found[:limit]

    def accept(self, num_accepted: int) -> None:
        if not self.drafted:
            return
        if num_accepted / self.drafted >= 0.25:
            self.low = 0
            return
        self.low += 1
        if self.low == 5:
            self._reset()
            self.low = self.added = 0


Counts = dict[tuple[int, ...], dict[int, int]]


class SlowCache:
    """``ngram-cache``: with ``as_llama`` it counts only within what came since the last draft."""

    def __init__(
        self, dynamic: Counts | None = None, static: Counts | None = None, *, as_llama: bool = False
    ) -> None:
        self.context: Counts = {}
        self.dynamic, self.static = dynamic or {}, static or {}
        self.as_llama = as_llama
        self.num_fed = 0

    def begin(self, prompt: Tokens) -> None:
        pass

    def draft(self, text: Tokens, last: int, limit: int) -> list[int]:
        tokens = [*text, last]
        if not self.as_llama:
            self.context = counted(tokens)
        elif self.num_fed < len(tokens):
            self._feed(tokens[self.num_fed :])
            self.num_fed = len(tokens)
        drafted: list[int] = []
        while len(tokens) >= 2 and len(drafted) < min(8, limit):
            token = self._next([*tokens, *drafted])
            if token is None:
                break
            drafted.append(token)
        return drafted

    def _feed(self, tokens: Tokens) -> None:
        for n in (1, 2, 3, 4):
            for i in range(n, len(tokens)):
                part = self.context.setdefault(tuple(tokens[i - n : i]), {})
                part[tokens[i]] = part.get(tokens[i], 0) + 1

    def _next(self, tokens: Tokens) -> int | None:
        static = self.static.get(tuple(tokens[-2:]), {})
        lax = ((2, 66), (2, 50), (1, 50), (1, 50))
        strict = ((4, 75), (3, 66), (2, 66), (2, 66))
        for counts, limits in ((self.context, lax), (self.dynamic, strict)):
            for n in range(min(4, len(tokens)), 0, -1):
                part = counts.get(tuple(tokens[-n:]), {})
                token = _clear_winner(part, static, *limits[n - 1])
                if token is not None:
                    return token
        return _clear_winner(static, {}, *lax[1])

    def accept(self, num_accepted: int) -> None:
        pass


def counted(tokens: Tokens) -> Counts:
    """What followed each n-gram of 1 to 4 tokens, in the order of the text."""
    counts: Counts = {}
    for i, token in enumerate(tokens):
        for n in range(1, min(4, i) + 1):
            part = counts.setdefault(tuple(tokens[i - n : i]), {})
            part[token] = part.get(token, 0) + 1
    return counts


def _clear_winner(
    part: dict[int, int], static: dict[int, int], min_total: int, min_percent: int
) -> int | None:
    total = sum(part.values())
    if not total or total < min_total:
        return None
    weighted = [
        (count * (100 * static[token] if token in static else 1), count, age, token)
        for age, (token, count) in enumerate(part.items())
    ]
    _, count, _, token = max(weighted)
    return token if 100 * count >= min_percent * total else None
