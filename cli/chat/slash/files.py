"""Commands that put files into the next message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from outrider.cli.chat.attachments import Attachment, matching_files, read_file
from outrider.cli.chat.context_view import next_prompt
from outrider.cli.chat.path_choices import path_choices, words
from outrider.cli.chat.slash.registry import COMMANDS
from outrider.cli.chat.token_view import text_tokens
from outrider.cli.errors import UsageError
from outrider.cli.stats_view import plural

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat

_MOST_FILES = 50
_MOST_CHARACTERS = 32  # in a token; a file with more is too large without counting
_MOST_NAMES = 12
_LITTLE_ROOM = 256


def _read_choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    if any(chat.attachments):
        yield "none", "take back what is attached"
    yield from path_choices(typed)


@COMMANDS.command(
    "/read",
    "put text files into the next message",
    usage="[FILE[:FROM-TO] ...|none]",
    choices=_read_choices,
)
def read(chat: Chat, argument: str) -> None:
    if not argument:
        rows = [_words(chat, file) for file in chat.attachments]
        chat.renderer.show(rows or ["nothing is attached; /read FILE puts one into the message"])
    elif argument == "none":
        chat.attachments.clear()
        chat.note("nothing is attached")
    else:
        for word in words(argument, "/read"):
            file, room = read_file(word), _Room(chat)
            room.take(file)
            chat.note(f"{_words(chat, file)}, goes with your next message")
            _warn(chat, [file], room)


@COMMANDS.command(
    "/glob",
    "put all files that match into the next message",
    usage="PATTERN",
    choices=lambda chat, typed: path_choices(typed),
)
def read_matching(chat: Chat, argument: str) -> None:
    patterns = words(argument, "/glob")
    with chat.interruptible():  # a tree may be large
        _attach_all(chat, matching_files(patterns), f"/glob {argument}".rstrip())


def _attach_all(chat: Chat, names: Sequence[str], command: str) -> None:
    """Attach the files that can be; say which, and which not and why."""
    if not names:
        raise UsageError(f"{command}: no such files; example: /glob src/**/*.py")
    room = _Room(chat)
    taken: list[Attachment] = []
    skipped: list[str] = []
    for name in names:
        try:
            if len(taken) == _MOST_FILES:
                raise UsageError(f"more than {_MOST_FILES} files")
            file = read_file(name)
            if len(file.text) > _MOST_CHARACTERS * chat.models.engine.n_ctx:
                raise UsageError("too large")
            room.take(file)
        except (UsageError, OSError) as error:
            skipped.append(f"{name} ({_why(error, name)})")
        else:
            taken.append(file)
    if taken:
        tokens = sum(_num_tokens(chat, file) for file in taken)
        counts = f"{plural(len(taken), 'file')}, {plural(tokens, 'token')}"
        chat.note(f"{counts} with your next message: {_listed([file.name for file in taken])}")
    if skipped:
        chat.note(f"skipped {plural(len(skipped), 'file')}: {_listed(skipped)}")
    _warn(chat, taken, room)


def _warn(chat: Chat, taken: Iterable[Attachment], room: _Room) -> None:
    """Say what may surprise: bytes that were lost, no place for an answer."""
    for file in taken:
        if file.num_replaced:
            lost = plural(file.num_replaced, "byte")
            chat.note(f"{file.name} is not UTF-8: {lost} replaced by {chr(0xFFFD)}")
    if taken and room.free < _LITTLE_ROOM:
        chat.note(f"{plural(room.free, 'token')} left for your question and the answer")


class _Room:
    """The tokens of the context that are free for files; measured once for several of them."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._used = len(next_prompt(chat))

    @property
    def free(self) -> int:
        return max(0, self._chat.models.engine.n_ctx - self._used)

    def take(self, file: Attachment) -> None:
        """Attach ``file`` in the place of its former text; UsageError if it does not fit."""
        former = self._chat.attachments.find(file.title)
        given_up = _num_tokens(self._chat, former) if former else 0
        tokens, free = _num_tokens(self._chat, file), self.free + given_up
        if tokens >= free:
            enough = _enough(self._used - given_up + tokens)
            raise UsageError(
                f"{tokens:,} tokens do not fit, {free:,} are free; -c {enough} or /read a part"
            )
        self._chat.attachments.add(file, tokens)
        self._used += tokens - given_up


def _enough(tokens: int) -> int:
    """A context that keeps a quarter free for the question and the answer."""
    n_ctx = 1024
    while 3 * n_ctx < 4 * tokens:
        n_ctx *= 2
    return n_ctx


def _num_tokens(chat: Chat, file: Attachment) -> int:
    return len(text_tokens(chat.models.engine, file.block))


def _words(chat: Chat, file: Attachment) -> str:
    """``notes.txt, 312 lines, 4,120 tokens``."""
    lines = file.part or plural(file.num_lines, "line")
    return f"{file.name}, {lines}, {plural(_num_tokens(chat, file), 'token')}"


def _why(error: Exception, name: str) -> str:
    """Why a file was skipped, without its name and without advice."""
    text = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return text.removeprefix(f"{name}: ").partition(";")[0]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
