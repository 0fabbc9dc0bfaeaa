"""What fills the context: the parts of the prompt in tokens."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from outrider.cli.bench.chart import bar
from outrider.cli.engine_setup import engine_settings, template_kwargs
from outrider.cli.glyphs import UNICODE, Glyphs
from outrider.cli.stats_view import fit, percent
from outrider.speculative.cache_size import CacheShape, cache_bytes
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.settings import EngineSettings, ModelSettings

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat

_MIB = 2**20
_NARROW = 60
_TURNS_SHOWN = 8
_NOUNS = {"user": "message", "assistant": "answer"}
_LABEL, _COUNT = 14, 8  # columns
_CELLS = 64  # of a bar that stands for the whole context


@dataclass(frozen=True, slots=True)
class ContextUse:
    """The tokens of the prompt by its parts, which sum to it, and the bytes of the caches.

    ``drafter`` is None without a draft model. ``num_left`` turns left the context.
    """

    parts: Mapping[str, int]
    n_ctx: int
    cache: int
    drafter: int | None = None
    num_left: int = 0

    @property
    def used(self) -> int:
        return sum(self.parts.values())

    @property
    def free(self) -> int:
        return max(0, self.n_ctx - self.used)


def context_use(chat: Chat) -> ContextUse:
    """What the next message finds: the conversation, and what is attached already."""
    models = chat.models
    settings, n_ctx = engine_settings(models.profile), models.engine.n_ctx
    cache, drafter = cache_sizes(settings, n_ctx, models.engine.max_draft)
    return ContextUse(prompt_parts(chat), n_ctx, cache, drafter, chat.transcript.first_in_context)


def next_prompt(chat: Chat) -> list[int]:
    """The tokens of the next prompt while nothing is typed yet, attached files included."""
    return chat.models.engine.render(
        _next_messages(chat), template_kwargs(chat.models.profile.chat)
    )


def prompt_parts(chat: Chat) -> dict[str, int]:
    """The tokens of the next prompt by what they stand for; what is no text is the template's."""
    pieces = chat.models.engine.pieces(next_prompt(chat))
    labels, texts = zip(*_texts(chat), strict=True)
    counts = count_tokens(pieces, texts)
    parts = {"system prompt": 0} if chat.transcript.system else {}
    parts["template"] = len(pieces) - sum(counts)
    for label, count in zip(labels, counts, strict=True):
        parts[label] = parts.get(label, 0) + count
    if not parts["attached"]:
        del parts["attached"]
    return parts


def count_tokens(pieces: Sequence[bytes], texts: Sequence[str]) -> list[int]:
    """How many tokens of a prompt stand for each of ``texts``, which it has in this order.

    A token on a border belongs to the first text it has a byte of.
    """
    prompt = b"".join(pieces)
    ends = list(accumulate(map(len, pieces)))
    counts, place, first = [], 0, 0
    for text in texts:
        data = text.encode("utf-8", "replace")
        start = prompt.find(data, place)
        if start < 0:  # templates trim messages
            data = data.strip()
            start = prompt.find(data, place)
        if start < 0 or not data:
            counts.append(0)
            continue
        place = start + len(data)
        begin = max(first, bisect_right(ends, start))
        first = max(begin, bisect_left(ends, place) + 1)
        counts.append(first - begin)
    return counts


def cache_sizes(settings: EngineSettings, n_ctx: int, longest_draft: int) -> tuple[int, int | None]:
    """Bytes of the target's cache, and of the draft models' if there are any."""
    drafters = [_cache_bytes(one.model, n_ctx, 0) for one in settings.drafters if one.model]
    return _cache_bytes(settings.target, n_ctx, longest_draft), sum(drafters) if drafters else None


def context_rows(use: ContextUse, *, width: int, glyphs: Glyphs = UNICODE) -> list[str]:
    """``/context``: the whole in the first row, then its parts with bars."""
    used = f"{use.used:,} of {use.n_ctx:,} tokens, {percent(use.used, use.n_ctx)}"
    free, caches = f"{use.free:,} free", [f"cache {_mebibytes(use.cache)}"]
    if use.drafter is not None:
        caches.append(f"drafter {_mebibytes(use.drafter)}")
    left = []
    if use.num_left:
        turns = "turn 1" if use.num_left == 1 else f"turns 1 to {use.num_left}"
        left = [f"{turns} left the context to make room"]
    if width < _NARROW:
        return [used, free, *caches, *(f"{p} {n:,}" for p, n in use.parts.items()), *left]
    label = max(_LABEL, *map(len, use.parts))
    room = width - 1 - (label + _COUNT + 2)
    # a bar of the whole context has 64 cells, unless the longest one here would not fit
    whole = max(room * use.n_ctx / _CELLS, *use.parts.values())
    rows = [fit([used, free, ", ".join(caches)], "     ", width - 1)]
    for part, count in use.parts.items():
        drawn = bar(count, whole, room, glyphs)
        rows.append(f"{part:<{label}}{count:>{_COUNT},}  {drawn}".rstrip())
    return rows + left


def _next_messages(chat: Chat) -> list[dict[str, str]]:
    with_reasoning = chat.models.profile.chat.reasoning_preserve
    messages = chat.transcript.messages(with_reasoning=with_reasoning)
    if messages and messages[-1]["role"] == "user":  # it has no answer, so the next leaves it out
        messages.pop()
    return [*messages, {"role": "user", "content": chat.attachments.message("")}]


def _texts(chat: Chat) -> Iterator[tuple[str, str]]:
    """(part, text) of the next prompt in its order; old turns are one part."""
    turns, first = chat.transcript.turns, chat.transcript.first_in_context
    numbers = [n for n, turn in enumerate(turns, 1) if n > first and turn.answer]
    old = numbers[:-_TURNS_SHOWN]
    together = ""
    if old:
        together = f"turns {old[0]} to {old[-1]}" if len(old) > 1 else f"turn {old[0]}"
    *messages, attached = _next_messages(chat)
    following = iter(numbers)
    number = 0
    for message in messages:
        role = message["role"]
        if role == "system":
            yield "system prompt", message["content"]
            continue
        if role == "user":
            number = next(following)
        label = together if number in old else f"{_NOUNS[role]} {number}"
        yield label, message.get("reasoning_content", "")
        yield label, message["content"]
    yield "attached", attached["content"]


def _cache_bytes(model: ModelSettings, n_ctx: int, longest_draft: int) -> int:
    shape = CacheShape(
        n_ctx, min(model.ubatch_size, n_ctx), model.cache_type_k, model.cache_type_v, longest_draft
    )
    return cache_bytes(GgufFile.open(model.path), shape)


def _mebibytes(size: int) -> str:
    return f"{size / _MIB:,.0f} MiB" if size >= _MIB else f"{size / _MIB:.1f} MiB"
