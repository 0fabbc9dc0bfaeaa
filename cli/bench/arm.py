"""Arm: one of the things that are compared, a profile with flags on an engine of its own."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from outrider.cli.bench.machine import model_facts
from outrider.cli.engine_setup import (
    engine_settings,
    generation_settings,
    grammar_settings,
    load_engine,
    template_kwargs,
    use_template_file,
)
from outrider.cli.errors import UsageError
from outrider.cli.options import takes_fields
from outrider.cli.strict_parser import StrictCommand
from outrider.profiles.load import load_profile
from outrider.profiles.schema import Profile
from outrider.profiles.search import default_profile
from outrider.speculative.events import FinishEvent, GenerationResult, StepEvent
from outrider.speculative.settings import EngineSettings, GenerationSettings
from outrider.speculative.statistics import SpeculationStats, Timings

if TYPE_CHECKING:
    from outrider.speculative.engine import Engine
    from outrider.speculative.session import Session

Conversation = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ArmSpec:
    """What an arm runs: ``text`` is what the user wrote, ``overrides`` its flags by field path."""

    text: str
    profile: Profile
    overrides: Mapping[str, object]


def arm_of(name: str | None, overrides: Mapping[str, object]) -> ArmSpec:
    """What a command's own ``--profile`` and flags say; the default profile without either."""
    chosen = name or default_profile(overrides)
    return ArmSpec(chosen, load_profile(chosen, overrides), overrides)


def parse_arm(text: str) -> ArmSpec:
    """Read ``PROFILE [flags]``, the flags as for ``outrider run``.

    Raises:
        UsageError: a flag that does not exist or a value that is not allowed.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}") from None
    if not words or words[0].startswith("-"):
        raise UsageError(f'{text!r}: allowed: "PROFILE [flags]", such as "smollm2 -n 32"')
    name, overrides = _arm_command().main(words, prog_name=repr(text), standalone_mode=False)
    return ArmSpec(text, load_profile(name, overrides), overrides)


@functools.cache
def _arm_command() -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command(cls=StrictCommand)
    @takes_fields()
    def arm(profile: Annotated[str, typer.Argument()], *, overrides: dict[str, object]) -> Any:
        return profile, overrides

    return get_command(app)


class Arm:
    """A loaded engine and the session that answers; a context manager.

    ``label`` is A or B. Nothing of an answer stays in the cache: each prompt is read whole.
    """

    def __init__(
        self,
        label: str,
        spec: ArmSpec,
        *,
        parallel: int = 1,
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        self.label = label
        self.spec = spec
        self._grammar = grammar_settings(spec.profile.sampling)
        self.engine: Engine = load_engine(spec.profile, parallel=parallel, progress=progress)
        use_template_file(self.engine, spec.profile.chat)
        self.session: Session = self.engine.session()

    def __enter__(self) -> Arm:
        return self

    def __exit__(self, *exception: object) -> None:
        self.engine.close()

    def encode(self, conversation: Conversation) -> list[int]:
        """The prompt that asks for the next answer; without a template the last text as it is."""
        if not self.engine.has_chat_template:
            return self.engine.encode(str(conversation[-1]["content"]))
        return self.engine.render(conversation, template_kwargs(self.spec.profile.chat))

    def settings(self, prompt_ids: Sequence[int], **changes: Any) -> GenerationSettings:
        """How the profile answers; ``changes`` are fields of its sampling (temp, predict, ...)."""
        profile = self.spec.profile
        profile = replace(profile, sampling=replace(profile.sampling, **changes))
        tags = self.engine.reasoning_tags(prompt_ids, template_kwargs(profile.chat))
        return generation_settings(profile, grammar=self._grammar, tags=tags)

    def answer(
        self, prompt_ids: Sequence[int], settings: GenerationSettings, *, keep_cache: bool = False
    ) -> GenerationResult:
        """One answer, read to its end."""
        if not keep_cache:
            self.session.reset()
        for event in self.session.generate(prompt_ids, settings):
            if isinstance(event, FinishEvent):
                return event.result
        raise AssertionError("a generation ends with a FinishEvent")

    def steps(
        self, prompt_ids: Sequence[int], settings: GenerationSettings, count: int
    ) -> tuple[list[int], SpeculationStats, Timings]:
        """The first ``count`` steps of an answer, or all of a shorter one; the cache is kept.

        Broken off between two steps, so that no draft is cut short by a limit.
        """
        token_ids: list[int] = []
        with contextlib.closing(self.session.generate(prompt_ids, settings)) as events:
            for event in events:
                if isinstance(event, StepEvent):
                    token_ids += event.token_ids
                if self.session.stats.steps >= count:
                    break
        return token_ids, self.session.stats, self.session.timings

    def models(self) -> dict[str, dict[str, object]]:
        """What identifies the files: the target and each draft model."""
        return models_of(engine_settings(self.spec.profile))


def models_of(settings: EngineSettings) -> dict[str, dict[str, object]]:
    """What identifies the files: the target and each draft model, by its place in the chain."""
    paths = {"target": settings.target.path}
    for number, drafter in enumerate(settings.drafters, 1):
        if drafter.model is not None:
            paths[f"drafter {number}"] = drafter.model.path
    return {role: model_facts(path) for role, path in paths.items()}
