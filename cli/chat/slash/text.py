"""Commands about what was written: copying an answer, the tokens of a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from outrider.cli.chat.clipboard import copy_text
from outrider.cli.chat.slash.registry import COMMANDS
from outrider.cli.chat.token_view import text_tokens, token_rows
from outrider.cli.errors import UsageError
from outrider.cli.screen.render import PlainRenderer, write_terminal
from outrider.cli.stats_view import plural

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat

_SHORT = 40


def _copy_choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    yield "code", "the last code block of the last answer"
    for number, turn in enumerate(chat.transcript.turns, 1):
        if turn.answer:
            yield str(number), " ".join(turn.answer[: 2 * _SHORT].split())[:_SHORT]


@COMMANDS.command(
    "/copy",
    "copy the last answer, its last code block or answer N",
    usage="[code|N]",
    choices=_copy_choices,
)
def copy(chat: Chat, argument: str) -> None:
    text = _code(chat) if argument == "code" else _answer(chat, argument)
    # TERM=dumb knows no escape sequences
    write = None if isinstance(chat.renderer, PlainRenderer) else write_terminal
    copied = copy_text(text, write)
    num_lines = copied.count("\n") + (not copied.endswith("\n"))
    chat.note(f"copied {plural(num_lines, 'line')}")


def _answer(chat: Chat, argument: str) -> str:
    """The answer that ``argument`` means, the last one if it is empty."""
    turns = chat.transcript.turns
    answers = {str(number): turn.answer for number, turn in enumerate(turns, 1) if turn.answer}
    if not answers:
        raise UsageError("/copy: there is no answer yet")
    text = answers.get(argument or list(answers)[-1])
    if text is None:
        numbers = f"1 to {len(turns)}" if len(turns) > 1 else "1"
        raise UsageError(f"/copy {argument}: allowed: code, or the number of an answer, {numbers}")
    return text


def _code(chat: Chat) -> str:
    """The last code block of the last answer."""
    from outrider.cli.screen.markdown import parse

    blocks = [token for block in parse(_answer(chat, "")) for token in block.tokens]
    code = [token.content for token in blocks if token.type in ("fence", "code_block")]
    if not code:
        raise UsageError("/copy code: the last answer has no code block")
    return code[-1]


@COMMANDS.command("/tokens", "the tokens of a text, or of the last message", usage="[TEXT]")
def tokens(chat: Chat, argument: str) -> None:
    turns = chat.transcript.turns
    if not argument and not turns:
        raise UsageError("/tokens: there is no message yet; /tokens TEXT")
    engine, text = chat.models.engine, argument or turns[-1].message
    token_ids = text_tokens(engine, text)
    count = plural(len(token_ids), "token")
    characters = plural(len(text), "character")
    width, _ = chat.renderer.size()
    rows = token_rows(token_ids, engine.pieces(token_ids), width=width, glyphs=chat.glyphs)
    chat.renderer.show([f"{count}, {characters}", *rows])
