"""The table of ``/branch``: the branches of a conversation and where they part."""

from __future__ import annotations

from outrider.cli.chat.session_list import shorten
from outrider.cli.chat.transcript import Branch, Transcript
from outrider.cli.errors import printable
from outrider.cli.glyphs import UNICODE, Glyphs
from outrider.cli.stats_view import plural

_BEGINNING = 400  # characters of a text that can be of use in a row


def branch_rows(transcript: Transcript, width: int, glyphs: Glyphs = UNICODE) -> list[str]:
    """One row a branch; the one in use has a ``>`` and begins with its first message."""
    table = [("", "#", "turns", "parts at", "begins")]
    for number, branch in enumerate(transcript.branches, 1):
        is_used = branch is transcript.branch
        parts, begins = parting(branch, Branch() if is_used else transcript.branch)
        parts = glyphs.dash if is_used else parts
        mark, turns = ">" if is_used else "", f"{len(branch.turns):,}"
        table.append((mark, str(number), turns, parts, begins or glyphs.dash))
    column = max(len(row[3]) for row in table)
    return [
        shorten(f"{mark:1}{number:>3}  {turns:>5}  {parts:<{column}}  {begins}", width - 1, glyphs)
        for mark, number, turns, parts, begins in table
    ]


def branch_choices(transcript: Transcript) -> list[tuple[str, str]]:
    """The branches that can be switched to, in words."""
    choices = []
    for branch in transcript.others:
        parts, begins = parting(branch, transcript.branch)
        words = [plural(len(branch.turns), "turn"), parts, begins]
        choices.append((str(transcript.branches.index(branch) + 1), "   ".join(words).rstrip()))
    return choices


def parting(branch: Branch, other: Branch) -> tuple[str, str]:
    """Where ``branch`` leaves ``other`` (``message 2``, ``answer 1``), and how it goes on."""
    turn = branch.shared(other)
    if turn == len(branch.turns):
        return f"end of {turn}", ""
    mine = branch.turns[turn]
    has_same_message = turn < len(other.turns) and other.turns[turn].message == mine.message
    if has_same_message:
        return f"answer {turn + 1}", beginning(mine.answer or "")
    return f"message {turn + 1}", beginning(mine.message)


def beginning(text: str) -> str:
    """The first words of a text, on one line."""
    return printable(" ".join(text[:_BEGINNING].split()))
