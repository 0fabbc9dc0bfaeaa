"""A conversation as a Markdown document."""

from __future__ import annotations

import re

from outrider.cli.chat.transcript import Transcript, Turn

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def markdown(transcript: Transcript, title: str) -> str:
    """System message, messages and answers under headings; what was thought is folded."""
    parts = [f"# {title}", f"Begun {transcript.created:%Y-%m-%d %H:%M}."]
    if transcript.system:
        parts += ["## System message", _closed(transcript.system)]
    for number, turn in enumerate(transcript.turns, 1):
        parts += [f"## Message {number}", _closed(turn.message), f"## Answer {number}"]
        parts += _answer(turn)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _answer(turn: Turn) -> list[str]:
    model, thought = turn.details.get("model"), turn.details.get("reasoning")
    parts = [f"*{model}*"] if isinstance(model, str) else []
    if isinstance(thought, str):
        parts += ["<details>\n<summary>Reasoning</summary>", _closed(thought), "</details>"]
    return [*parts, _closed(turn.answer)] if turn.answer else parts


def _closed(text: str) -> str:
    """``text`` with its last code fence closed: it may not swallow the headings that follow."""
    fence = ""
    for line in text.splitlines():
        match = _FENCE.fullmatch(line)
        if match is None:
            continue
        marks, rest = match[1], match[2]
        if not fence:
            fence = "" if marks[0] == "`" and "`" in rest else marks
        elif marks.startswith(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text
