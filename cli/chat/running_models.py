"""The profile in use and the engine that runs it: what ``/spec``, ``/set``, ``/profile`` change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from outrider.cli.engine_setup import (
    engine_settings,
    grammar_settings,
    load_engine,
    sampling_settings,
    use_template_file,
)
from outrider.cli.errors import UsageError
from outrider.cli.interrupts import Interrupts
from outrider.profiles.load import load_profile, override
from outrider.profiles.schema import Profile

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

    ``original`` is the profile as it was loaded, ``drafting`` are the last drafters that were
    in use, for ``/spec on``. ``once`` is the command whose way of drafting holds for the next
    message only. ``loading`` is entered while something is loaded; it gives what progress is
    told to.
    """

    def __init__(
        self,
        profile: Profile,
        engine: Engine,
        loading: Loading,
        overrides: Mapping[str, object] | None = None,
    ) -> None:
        self._loading = loading
        self._overrides = overrides or {}
        self._use(profile, engine)

    def _use(self, profile: Profile, engine: Engine) -> None:
        self.profile = self.original = profile
        self.drafting = profile.drafters
        self.engine = engine
        self.session = engine.session()
        self.once: str | None = None
        self._former: Profile | None = None  # its way of drafting comes back after that message

    def close(self) -> None:
        self.engine.close()

    @property
    def rule(self) -> str:
        """The rule that drafts are verified by now."""
        return self.engine.resolve_rule(sampling_settings(self.profile.sampling))

    @property
    def longest(self) -> int:
        """The most tokens that a draft can have now."""
        return max((one.longest for one in self.engine.outlooks(0)), default=0)

    def calibrated_s(self) -> float | None:
        """Seconds of a plain step near this context length, by what was timed at the start.

        None where nothing was: fixed lengths and coins need no times.
        """
        if not self.engine.speculation.adaptive or self.rule == "synthetic":
            return None
        outlooks = self.engine.outlooks(self.session.context_used)
        return outlooks[0].plain_s if outlooks else None

    def with_values(self, values: Mapping[str, object]) -> Profile:
        """The profile with other values; ProfileError if they are not allowed."""
        return override(self.profile, values)

    def apply(self, profile: Profile) -> None:
        """Use other settings from the next answer on; refused if they cannot work together."""
        self.engine.resolve_rule(sampling_settings(profile.sampling))
        grammar_settings(profile.sampling)
        self.profile = profile

    def use_settings_of(self, profile: Profile) -> None:
        """Sample and chat as another profile says; how drafts are made stays."""
        self.profile = replace(self.profile, sampling=profile.sampling, chat=profile.chat)

    def configure(self, profile: Profile) -> None:
        """Draft in the way of ``profile``; if that cannot work the former way stays."""
        self._configure(profile)
        if profile.drafters:
            self.drafting = profile.drafters

    def configure_once(self, profile: Profile, command: str) -> None:
        """The same for the next message only; ``command`` is what said so."""
        former = self.profile
        self._configure(profile)
        self._former, self.once = former, command

    def skip_once(self) -> None:
        """Make no drafts for the next message; what drafts stays loaded."""
        self.end_once()
        self.session.is_drafting, self.once = False, "/spec off once"

    def end_once(self) -> None:
        """Go back to the way before one message was to have its own."""
        former, self._former, self.once = self._former, None, None
        self.session.is_drafting = True
        if former is not None:
            self._configure(
                replace(self.profile, drafters=former.drafters, speculation=former.speculation)
            )

    def _configure(self, profile: Profile) -> None:
        settings, former = engine_settings(profile), engine_settings(self.profile)
        with self._loading() as progress, Interrupts() as interrupts:

            def report(stage: str, share: float) -> bool:
                progress(stage, share)
                return interrupts.exit_code is None

            try:
                self.engine.configure(settings.speculation, settings.drafters, progress=report)
                if interrupts.exit_code is not None:
                    raise KeyboardInterrupt
                self.apply(profile)
            except BaseException:  # the engine may have changed already
                self.engine.configure(former.speculation, former.drafters, progress=progress)
                if interrupts.exit_code is not None:
                    raise KeyboardInterrupt from None
                raise

    def switch(self, name: str) -> None:
        """Go on with another profile; the present models stay until the new ones are loaded."""
        kept = {k: v for k, v in self._overrides.items() if not k.startswith(_MODEL_FLAGS)}
        profile = load_profile(name, kept)
        with self._loading() as progress:
            engine = open_engine(profile, progress)
        self.engine.close()
        self._use(profile, engine)

    def off_words(self) -> str:
        """Why nothing is drafted; nothing if something is."""
        if not self.session.is_drafting:
            return "speculation off by /spec off once (this message)"
        if self.engine.drafter_names:
            return ""
        off = [text for text in self.engine.notices if text.startswith("speculation off")]
        if off:
            return off[0]
        if self.profile.drafters:
            dropped = self.session.dropped
            return "".join(f"{name} dropped: {dropped[name]}" for name in list(dropped)[-1:])
        return "speculation off by /spec" if self.drafting else "no drafter"
