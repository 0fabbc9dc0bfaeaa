"""The profile in use and the engine that runs it: what ``/spec``, ``/set``, ``/profile`` change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from outrider.cli.engine_setup import (
    engine_settings,
    grammar_settings,
    load_engine,
    sampling_settings,
    use_template_file,
)
from outrider.cli.errors import UsageError
from outrider.cli.stats_view import pause_words
from outrider.profiles.load import load_profile, override
from outrider.profiles.schema import Profile
from outrider.speculative.errors import InputError

if TYPE_CHECKING:
    from outrider.speculative.engine import Engine

Progress = Callable[[str, float], None]
Loading = Callable[[], AbstractContextManager[Progress]]

# flags that say which models: /profile NAME goes by the profile's own
_MODEL_FLAGS = ("target.model", "drafter.", "chat.template_file")


def open_engine(profile: Profile, progress: Progress | None = None) -> Engine:
    """Load what the profile names; refused if there is no chat template."""
    grammar_settings(profile.sampling)
    engine = load_engine(profile, progress=progress)
    try:
        use_template_file(engine, profile.chat)
        if not engine.has_chat_template:
            raise UsageError(
                f"{engine.model_name} has no chat template:"
                " give one with --chat-template-file FILE, or use outrider run --raw"
            )
        engine.resolve_rule(sampling_settings(profile.sampling))
    except BaseException:
        engine.close()
        raise
    return engine


class RunningModels:
    """One engine at a time, and the session that the conversation goes on in.

    ``drafting`` is the last profile that had a drafter, for ``/spec on``. ``loading`` is
    entered while something is loaded; it gives what progress is told to.
    """

    def __init__(
        self,
        profile: Profile,
        engine: Engine,
        loading: Loading,
        overrides: Mapping[str, object] | None = None,
    ) -> None:
        self.profile = self.drafting = profile
        self.engine = engine
        self.session = engine.session()
        self._loading = loading
        self._overrides = overrides or {}

    def close(self) -> None:
        self.engine.close()

    @property
    def rule(self) -> str:
        """The rule that drafts are verified by now."""
        return self.engine.resolve_rule(sampling_settings(self.profile.sampling))

    def with_values(self, values: Mapping[str, object]) -> Profile:
        """The profile with other values; ProfileError if they are not allowed."""
        return override(self.profile, values)

    def apply(self, profile: Profile) -> None:
        """Use other settings from the next answer on; refused if they cannot work together."""
        self.engine.resolve_rule(sampling_settings(profile.sampling))
        grammar_settings(profile.sampling)
        self.profile = profile

    def configure(self, profile: Profile) -> None:
        """Draft in the way of ``profile``; if that cannot work the former way stays."""
        settings, former = engine_settings(profile), engine_settings(self.profile)
        with self._loading():
            self.engine.configure(settings.speculation, settings.drafters)
            try:
                self.apply(profile)
            except InputError:
                self.engine.configure(former.speculation, former.drafters)
                raise
        if profile.drafters:
            self.drafting = profile

    def switch(self, name: str) -> None:
        """Go on with another profile; the present models stay until the new ones are loaded."""
        kept = {k: v for k, v in self._overrides.items() if not k.startswith(_MODEL_FLAGS)}
        profile = load_profile(name, kept)
        with self._loading() as progress:
            engine = open_engine(profile, progress)
        self.engine.close()
        self.profile = self.drafting = profile
        self.engine, self.session = engine, engine.session()

    def value(self, path: str) -> str:
        """A setting in words: ``sampling.temp`` is ``0.8``."""
        section, _, key = path.partition(".")
        value = getattr(getattr(self.profile, section), key)
        if value is None or value == ():
            return "none"
        return f"{value:g}" if isinstance(value, float) else str(value)

    def off_words(self) -> str:
        """Why there is no drafter."""
        off = [text for text in self.engine.notices if text.startswith("speculation off")]
        if off:
            return off[0]
        return "speculation off by /spec" if self.drafting.drafters else "no drafter"

    def drafting_words(self) -> list[str]:
        """How drafts are made, in the two or three rows of ``/spec``."""
        names = self.engine.drafter_names
        if not names:
            return [self.off_words()]
        speculation = self.engine.speculation
        mode = "adaptive" if speculation.adaptive else "fixed length"
        most = f" up to {speculation.n_max}" if speculation.n_max else ""
        chosen = " (auto)" if speculation.verify == "auto" else ""
        rows = [
            f"speculation on, {mode}{most}   verification {self.rule}{chosen}",
            f"drafters    {', then '.join(names)}",
        ]
        pause = self.session.stats.paused
        return [*rows, pause_words(pause)] if pause else rows
