"""Commands about saved conversations."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.chat.markdown_export import markdown
from outrider.cli.chat.session_list import SHOWN_SESSIONS, SessionList, named_path, when_words
from outrider.cli.chat.slash.registry import COMMANDS
from outrider.cli.chat.transcript import saved_sessions, session_path, sessions_folder
from outrider.cli.errors import UsageError

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat


@COMMANDS.command("/save", "save under a name", usage="NAME|PATH")
def save(chat: Chat, argument: str) -> None:
    if not argument:
        chat.renderer.show([f"saved after every answer: {chat.conversation.path}"])
        return
    named_path(argument, "/save")
    chat.conversation.save_as(argument)
    chat.note(f"saved to {chat.conversation.path}")


def _load_choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    for name in saved_sessions():
        try:
            changed = (sessions_folder() / f"{name}.json").stat().st_mtime
        except OSError:
            continue
        yield name, when_words(datetime.fromtimestamp(changed))


@COMMANDS.command("/load", "go on with a saved chat", usage="N|NAME|PATH", choices=_load_choices)
def load(chat: Chat, argument: str) -> None:
    if not argument:
        _show(chat, SHOWN_SESSIONS)
        return
    chat.load(_path(chat, argument, "/load"))


def _sessions_choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    yield "all", f"more than the newest {SHOWN_SESSIONS}"
    yield "delete ", "delete a saved chat, by number or name"
    yield "export ", "write this chat as Markdown"
    if typed.startswith("delete "):
        for name, changed in _load_choices(chat, typed):
            yield f"delete {name}", changed


@COMMANDS.command(
    "/sessions",
    "list, open, delete saved chats",
    usage="[all|delete N|export [PATH]]",
    choices=_sessions_choices,
)
def sessions(chat: Chat, argument: str) -> None:
    action, _, rest = argument.partition(" ")
    if argument in ("", "all"):
        _show(chat, None if argument else SHOWN_SESSIONS)
    elif action == "delete" and rest.strip():
        _delete(chat, rest.strip())
    elif action == "export":
        _export(chat, rest.strip())
    else:
        raise UsageError(
            f"/sessions {argument}: allowed: all, delete N, delete NAME, export [PATH]"
        )


def _show(chat: Chat, most: int | None) -> None:
    """Print the table; from now on numbers are those of its rows."""
    found = SessionList.read(most)
    chat.numbered_sessions = [session.path for session in found.sessions]
    if found.note:
        chat.note(found.note)
    if not found.sessions:
        chat.renderer.show(["no saved chats"])
        return
    width, _ = chat.renderer.size()
    present = chat.conversation.path
    rows = found.rows(present, width, chat.glyphs)
    if found.num_older:
        rows.append(f"{found.num_older:,} older: /sessions all")
    others = [n for n, path in enumerate(chat.numbered_sessions, 1) if path != present]
    hints = [f"/load {others[0]} opens", f"/sessions delete {others[-1]}"] if others else []
    hints.append("outrider chat --session NAME")
    line = f" {chat.glyphs.separator} ".join(hints)
    chat.renderer.show([*rows, *([line] if len(line) < width else hints)])


def _path(chat: Chat, argument: str, command: str) -> Path:
    """The file that a number of the last table, a name or a path means."""
    if not argument.isdecimal():
        return session_path(argument)
    if not chat.numbered_sessions:
        chat.numbered_sessions = [session.path for session in SessionList.read().sessions]
    number, last = int(argument), len(chat.numbered_sessions)
    if not 1 <= number <= last:
        allowed = f"allowed: 1 to {last}" if last else "there are no saved chats"
        raise UsageError(f"{command} {argument}: {allowed}; /sessions lists them")
    return chat.numbered_sessions[number - 1]


def _delete(chat: Chat, argument: str) -> None:
    path = _path(chat, argument, "/sessions delete")
    if path.parent != sessions_folder() or not path.exists():
        raise UsageError(f"/sessions delete {argument}: no such saved chat; /sessions lists them")
    if path.resolve() == chat.conversation.path.resolve():
        raise UsageError(
            f"/sessions delete {argument}: this chat goes on here; /clear begins another"
        )
    path.unlink()
    chat.note(f"deleted {path.stem}")


def _export(chat: Chat, argument: str) -> None:
    """Write the conversation beside the work; a file that is there stays."""
    name = chat.conversation.path.stem
    path = Path(argument or f"{name}.md").expanduser()
    text = markdown(chat.transcript, name)
    try:
        file = path.open("x", encoding="utf-8", errors="replace")
    except FileExistsError:
        raise UsageError(f"/sessions export: {path} exists; give another name") from None
    try:
        with file:
            file.write(text)
    except OSError:
        path.unlink()  # half a document is none
        raise
    chat.note(f"written to {path}")
