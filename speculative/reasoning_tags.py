"""find_tags: how a chat template marks what its model thinks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from outrider.speculative.chat_template import ChatTemplate, Message
from outrider.speculative.errors import InputError

_USER = "outrider asks"
_THOUGHT = "outrider thinks"
_ANSWER = "outrider answers"
_ASKED: Message = {"role": "user", "content": _USER}
_ANSWERED: Message = {
    "role": "assistant",
    "content": _ANSWER,
    # the names that templates know it by
    "reasoning_content": _THOUGHT,
    "reasoning": _THOUGHT,
    "thinking": _THOUGHT,
}

_MARKER = re.compile(r"<[^<>\s]+>|\[[^\[\]\n]+\]|◁[^◁▷\s]+▷")
# two markers at the end, the first perhaps with a channel's name: a thought without words
_EMPTY_THOUGHT = re.compile(rf"((?:{_MARKER.pattern})\w*)\s*({_MARKER.pattern})\s*\Z")

_KNOWN = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
)


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The texts around a thought; ``is_open`` if the prompt ends with the first of them."""

    start: str
    end: str
    is_open: bool


def find_tags(template: ChatTemplate, kwargs: Mapping[str, object]) -> ReasoningTags | None:
    """The tags of a template, None if it knows no reasoning.

    They are read around the thought of a past answer, where the template shows it; else they
    are a known pair that its source has; else the empty thought that it writes itself when
    thinking is switched off. ``kwargs`` are the template's variables: ``is_open`` is about the
    prompt rendered with them.
    """
    on = {**kwargs, "enable_thinking": True, "thinking": True}
    off = {**kwargs, "enable_thinking": False, "thinking": False}
    pair = (
        _shown(template, on)
        or _shown(template, kwargs)
        or _known(template.source)
        or _empty_thought(_opening(template, on), _opening(template, off))
    )
    if pair is None:
        return None
    start, end = pair
    return ReasoningTags(start, end, is_open=opens(_opening(template, kwargs), start))


def opens(prompt: str, start: str) -> bool:
    """True if the answer to ``prompt`` begins inside of the tag ``start``."""
    return prompt.rstrip().endswith(start)


def _shown(template: ChatTemplate, kwargs: Mapping[str, object]) -> tuple[str, str] | None:
    """The texts around the thought of a past answer."""
    # some templates show it only where no answer is asked for
    past = _render(template, [_ASKED, _ANSWERED], {**kwargs, "add_generation_prompt": False})
    before, _, after = past.rpartition(_USER)[2].partition(_THOUGHT)
    between, is_answered, _ = after.partition(_ANSWER)
    start = _start(before, _opening(template, kwargs))
    end = between.strip().partition("\n")[0].rstrip()
    return (start, end) if is_answered and start and _MARKER.search(end) else None


def _start(before: str, opening: str) -> str:
    """The start tag, which ends ``before``: the text from a question to a thought.

    ``opening`` is what follows a question when the model is to answer. What a past answer has
    more than that is the tag; has it no more, the prompt opened the thought itself.
    """
    for start, _ in _KNOWN:
        if before.rstrip().endswith(start):
            return start
    same = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, opening, strict=False))
    )
    markers = list(_MARKER.finditer(before))
    cut = min([same, *(m.start() for m in markers if m.start() < same < m.end())])
    if more := before[cut:].strip():
        return more.rpartition("\n")[2].lstrip()
    prefilled = opening[same:].strip()
    if prefilled and not _MARKER.search(prefilled):
        return prefilled
    is_last = markers and before.rstrip().endswith(markers[-1].group())
    return markers[-1].group() if is_last else ""


def _known(source: str) -> tuple[str, str] | None:
    """The first known pair of which the source has one; many have only the end tag, to cut
    past thoughts out."""
    return next((pair for pair in _KNOWN if pair[0] in source or pair[1] in source), None)


def _empty_thought(on: str, off: str) -> tuple[str, str] | None:
    """The tags of an empty thought that ends ``off``."""
    match = _EMPTY_THOUGHT.search(off)
    if match is None:
        return None
    start, end = match.groups()
    # what ``on`` has as well, and goes on after, is the header of a role
    return (start, end) if start not in on or opens(on, start) else None


def _opening(template: ChatTemplate, kwargs: Mapping[str, object]) -> str:
    """What a prompt has after the user's text."""
    return _render(template, [_ASKED], kwargs).rpartition(_USER)[2]


def _render(
    template: ChatTemplate, messages: Sequence[Message], kwargs: Mapping[str, object]
) -> str:
    """The rendered text; nothing if the template refuses or fails."""
    try:
        return template.render(messages, kwargs)
    except InputError:
        return ""
