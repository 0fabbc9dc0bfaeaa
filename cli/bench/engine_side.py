"""EngineSide: an engine in this process that answers conversations."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from outrider.cli.bench.arm import Arm, ArmSpec
from outrider.cli.bench.reply import Message, Reply, TurnError
from outrider.cli.chat.transcript import system_messages
from outrider.cli.errors import UsageError
from outrider.profiles.errors import ProfileError
from outrider.profiles.load import override
from outrider.speculative.answer_pool import AnswerPool
from outrider.speculative.errors import EngineError
from outrider.speculative.events import GenerationResult

_PATHS = {"temperature": "sampling.temp", "chat_template_kwargs": "chat.template_kwargs"}


class EngineSide:
    """Asks the engine of an arm; the cache is kept within a conversation.

    ``pool`` answers several threads together, each on a session of its own.
    """

    def __init__(self, arm: Arm, pool: AnswerPool | None = None) -> None:
        self._arm = arm
        self._pool = pool
        self._of_thread = threading.local()
        self._system = system_messages(arm.spec.profile.chat.system)

    def ask(self, messages: Sequence[Message], prompt_ids: Sequence[int] | None) -> Reply:
        started = time.perf_counter()
        try:
            ids = prompt_ids or self._arm.encode([*self._system, *messages])
            result = self._answer(ids, keep_cache=len(messages) > 1)
        except EngineError as error:
            raise TurnError(str(error)) from None
        if result.finish_reason == "error":
            raise TurnError(result.error[1] if result.error else "the engine failed")
        timings, stats = result.timings, result.stats
        return Reply(
            text=result.text,
            finish_reason=result.finish_reason,
            prompt_tokens=result.prompt_tokens,
            cached_tokens=result.cached_tokens,
            completion_tokens=result.completion_tokens,
            latency_s=time.perf_counter() - started,
            prompt_s=timings.prompt_s,
            first_token_s=timings.time_to_first_token_s if result.token_ids else None,
            timed_tokens=max(timings.tokens - timings.first_step_tokens, 0),
            timed_s=timings.generation_s,
            speed_from="engine",
            drafts=stats.drafts,
            drafted=stats.drafted,
            accepted=stats.accepted,
            prompt_ids=list(ids),
            token_ids=list(result.token_ids),
        )

    def _answer(self, prompt_ids: Sequence[int], *, keep_cache: bool) -> GenerationResult:
        settings = self._arm.settings(prompt_ids)
        if self._pool is None:
            return self._arm.answer(prompt_ids, settings, keep_cache=keep_cache)
        session = getattr(self._of_thread, "session", None)
        if session is None:
            is_warm_up = threading.current_thread() is threading.main_thread()
            session = self._arm.session if is_warm_up else self._arm.engine.session()
            self._of_thread.session = session
        return self._pool.answer(session, prompt_ids, settings, keep_cache=keep_cache)


def spec_with(
    spec: ArmSpec, osl: int, temp: float, seed: int, extra: Mapping[str, object]
) -> ArmSpec:
    """The arm with answers of ``osl`` tokens and with the request fields in ``extra``.

    Raises:
        UsageError: a field that the engine does not have, or a value that is not allowed.
    """
    fixed = {"sampling.temp": temp, "sampling.seed": seed, "sampling.predict": osl}
    given = {_PATHS.get(key, f"sampling.{key}"): value for key, value in extra.items()}
    try:
        profile = override(spec.profile, fixed | given)
    except ProfileError as error:
        raise UsageError(f"--extra-inputs: {error}") from None
    return ArmSpec(spec.text, profile, spec.overrides)
