"""A shell script as the user's editor."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

Editor = Callable[[str], Path]


def shell_editor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Editor:
    """Makes a script the editor; ``$1`` is the file."""

    def editor(script: str) -> Path:
        path = folder / "my editor.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", f"'{path}'")
        return path

    return editor
