"""Completion of file names in the argument of a command."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Iterator

from outrider.cli.errors import UsageError, printable
from outrider.cli.stats_view import plural

_MOST_ENTRIES = 2000
_HAS_ESCAPES = os.sep == "/"


def words(argument: str, command: str) -> list[str]:
    """The words of an argument; names with spaces stand in quotes."""
    lexer = shlex.shlex(argument, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    lexer.escape = "\\" if _HAS_ESCAPES else ""
    try:
        return list(lexer)
    except ValueError:
        raise UsageError(
            f'{command} {argument}: a quote is open; quote names that hold one, "it\'s.txt"'
        ) from None


def path_choices(typed: str) -> Iterator[tuple[str, str]]:
    """(argument, description) for every file or folder that the last word can become."""
    start = _word_start(typed)
    before, word = typed[:start], typed[start:]
    quote = word[:1] if word[:1] in ("'", '"') else ""
    plain = _unquoted(word, quote)
    folder, begun = os.path.split(plain)
    for entry in _entries(os.path.expanduser(folder) or "."):
        is_hidden = entry.name.startswith(".") and not begun
        if is_hidden or not entry.name.startswith(begun) or (quote and quote in entry.name):
            continue
        name = plain[: len(plain) - len(begun)] + entry.name
        is_folder, meaning = _described(entry)
        yield before + _written(name, quote, is_open=is_folder), meaning


def _word_start(typed: str) -> int:
    """Where the word that is being typed begins."""
    start, quote, is_escaped = 0, "", False
    for place, character in enumerate(typed):
        if is_escaped:
            is_escaped = False
        elif quote:
            quote = "" if character == quote else quote
        elif character in ("'", '"'):
            quote = character
        elif character == "\\":
            is_escaped = _HAS_ESCAPES
        elif character.isspace():
            start = place + 1
    return start


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder, by name; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as found:
            entries = list(itertools.islice(found, _MOST_ENTRIES))
    except (OSError, ValueError):
        return []
    # what cannot be shown cannot be completed
    return sorted((e for e in entries if printable(e.name) == e.name), key=lambda e: e.name)


def _described(entry: os.DirEntry[str]) -> tuple[bool, str]:
    try:
        if entry.is_dir():
            return True, "folder"
        return False, _size_words(entry.stat().st_size) if entry.is_file() else ""
    except OSError:
        return False, ""


def _size_words(size: int) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return plural(size, "byte")


def _unquoted(word: str, quote: str) -> str:
    if quote:
        return word[1:].removesuffix(quote)
    return re.sub(r"\\(.)", r"\1", word) if _HAS_ESCAPES else word.replace('"', "")


def _written(name: str, quote: str, *, is_open: bool) -> str:
    """A name as it is typed; a folder stays open for what follows in it."""
    end = "/" if is_open else ""
    if quote:
        return f"{quote}{name}{end or quote}"
    if _HAS_ESCAPES:
        return re.sub(r"([\s'\"\\])", r"\\\1", name) + end
    return re.sub(r"([\s']+)", r'"\1"', name) + end  # my" "file: what was typed stays as it is
