"""Tint: the words of an answer that were drafted and accepted look different."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.cli.screen.panel import Row
from outrider.speculative.events import Spans


def tint_legend(look: str, columns: int) -> Row:
    """What the tint means; ``look`` is how accepted text looks: coloured, underlined."""
    forms = (
        f" tint: {look} = drafted and accepted, plain = the target's own",
        f" tint: {look} = accepted draft",
    )
    return [(next((form for form in forms if len(form) < columns), " tint"), "dim")]


def tinted_pieces(text: str, accepted: Spans) -> Iterator[tuple[str, bool]]:
    """The text in pieces, each with whether it was drafted and accepted."""
    place = 0
    for start, end in accepted:
        yield text[place:start], False
        yield text[start:end], True
        place = end
    yield text[place:], False


def split_spans(accepted: Spans, place: int) -> tuple[Spans, Spans]:
    """The spans of the text before ``place`` and of that from there on."""
    before = [(start, min(end, place)) for start, end in accepted if start < place]
    after = [(max(start, place) - place, end - place) for start, end in accepted if end > place]
    return tuple(before), tuple(after)
