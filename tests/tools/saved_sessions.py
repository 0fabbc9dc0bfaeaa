"""Saved chats to begin a test with."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tools.scripted_chat import Scripted

from outrider.cli.chat.transcript import Transcript, sessions_folder


def save(name: str, *messages: str, age_s: int = 0, model: str = "Scripted") -> Path:
    """A saved chat that was written ``age_s`` ago."""
    transcript = Transcript()
    for message in messages:
        transcript.ask(message)
        transcript.answer(f"answer to {message}", {"profile": "smollm2", "model": model})
    path = sessions_folder() / f"{name}.json"
    transcript.save(path)
    written = time.time() - age_s
    os.utime(path, (written, written))
    return path


def plain(scripted: Scripted) -> list[str]:
    return scripted.screen.of("plain")
