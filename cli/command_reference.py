"""docs/commands.md, made from the commands: ``python -m outrider.cli.command_reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from outrider.cli.app import command

_WIDTH = 80
_HEAD = """\
# Commands

Made from the program's own help by `python -m outrider.cli.command_reference`; a test compares.

- `outrider` alone, or with options and no command, is `outrider chat`.
- A single-dash option is one whole name, as in llama.cpp: `-mm` is not `-m m`. Long options are
  `--name value` or `--name=value`. Text that begins with a dash goes after `--`.
- A flag wins over the profile, the profile over the model's own metadata.
- Stdout is the answer, stderr everything else.
- Exit codes: 0 done, 1 failed while running, 2 bad input or configuration, 130 interrupted.
"""


def reference() -> str:
    """The help of every command, as Markdown."""
    sections = [f"## {name}\n\n```text\n{text}\n```\n" for name, text in _pages(command(), None)]
    return "\n".join([_HEAD, *sections, f"## In the chat\n\n{slash_commands()}"])


def slash_commands() -> str:
    """The commands of the chat, as a Markdown table."""
    from outrider.cli.chat.slash import COMMANDS

    cells = ((f"{one.name} {one.usage}".rstrip(), one.help) for one in COMMANDS)
    escaped = ((call.replace("|", "\\|"), help.replace("|", "\\|")) for call, help in cells)
    rows = (f"| `{call}` | {help} |" for call, help in escaped)
    return "\n".join(["| command | does |", "|---|---|", *rows, ""])


def _pages(node: Any, parent: Any) -> Iterator[tuple[str, str]]:
    """Name and help of a command and, for a group, of those below it."""
    name = node.name if parent else "outrider"
    settings = {"terminal_width": _WIDTH, **node.context_settings}
    context = node.context_class(node, info_name=name, parent=parent, **settings)
    with context.scope(cleanup=False):
        yield context.command_path, node.get_help(context)
    for child in getattr(node, "commands", {}).values():
        yield from _pages(child, context)


if __name__ == "__main__":
    sys.stdout.write(reference())
