"""A chat on a real model, whose screen is a list; its answers can be scripted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tools.scripted_chat import Answer, ListScreen, Nothing, ScriptedSession

from outrider.cli.chat.chat import Chat
from outrider.cli.chat.running_models import RunningModels, open_engine
from outrider.cli.glyphs import UNICODE
from outrider.profiles.fields import check
from outrider.profiles.load import load_profile


@dataclass
class EngineChat:
    """The chat and its screen."""

    chat: Chat
    screen: ListScreen

    def script(self, *answers: Answer) -> ScriptedSession:
        """From now on the session gives ``answers``; prompts are still the model's."""
        session = ScriptedSession(list(answers))
        self.chat.models.session = cast(Any, session)
        return session


@contextlib.contextmanager
def engine_chat(model: Path, *, columns: int = 80, **values: object) -> Iterator[EngineChat]:
    """A chat on ``model`` at temperature 0; ``values`` are fields as ``target__ctx_size``."""

    @contextlib.contextmanager
    def loading() -> Iterator[Callable[[str, float], None]]:
        yield lambda stage, share: None

    overrides = {
        "target.model": check("target.model", str(model)),
        "target.threads": 1,
        "sampling.temp": 0.0,
        **{key.replace("__", "."): value for key, value in values.items()},
    }
    profile = load_profile("base", overrides)
    models = RunningModels(profile, open_engine(profile), loading, overrides)
    try:
        screen, keyboard = ListScreen(columns), cast(Any, Nothing())
        chat = Chat(models, renderer=cast(Any, screen), keyboard=keyboard, glyphs=UNICODE)
        yield EngineChat(chat, screen)
    finally:
        models.close()
