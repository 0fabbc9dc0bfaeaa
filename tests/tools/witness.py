"""A witness of an engine's answers: each is replayed on a fresh context, tolerance 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.recording_runner import RecordingRunner
from tools.replay import Answer, Replay
from tools.toy_session import check_counts, result_of

from outrider.speculative.engine import Engine
from outrider.speculative.events import GenerationResult
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    ModelSettings,
    SpeculationSettings,
)


def model_settings(path: Path, ctx_size: int = 1024) -> ModelSettings:
    """A small model for tests: one thread is fastest, and the same on every machine."""
    return ModelSettings(path, ctx_size=ctx_size, threads=1, threads_batch=1, gpu_layers=0)


def engine_settings(
    target: Path,
    drafters: Sequence[DrafterSettings] = (),
    *,
    ctx_size: int = 1024,
    parallel: int = 1,
    **speculation: object,
) -> EngineSettings:
    """A fixed draft length unless ``speculation`` says otherwise."""
    ways = SpeculationSettings(**{"adaptive": False, **speculation})  # type: ignore[arg-type]
    return EngineSettings(model_settings(target, ctx_size), tuple(drafters), ways, parallel)


def fresh_runner(engine: Engine, max_outputs: int, num_snapshots: int = 1) -> LlamaRunner:
    """A new context of the engine's target."""
    settings = engine._settings
    return LlamaRunner(
        engine._target,
        settings.target,
        n_ctx=engine.n_ctx,
        n_seq=settings.parallel,
        max_outputs=max_outputs,
        num_snapshots=num_snapshots,
    )


class Witness:
    """Watches the target of ``engine`` from now on; the engine's slots must be unused."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        runner = engine._running.runner
        assert isinstance(runner, LlamaRunner)
        self.recorder = RecordingRunner(runner)
        engine._running.runner = self.recorder
        self._runner = fresh_runner(engine, self.recorder.max_outputs, runner.num_snapshots)
        self._replay = Replay(self._runner, engine._target.vocabulary, engine._constrain)

    def close(self) -> None:
        self._runner.close()

    def configure(
        self, speculation: SpeculationSettings, drafters: Sequence[DrafterSettings] | None = None
    ) -> None:
        """Draft in another way on the same context."""
        self.engine._running.runner = self.recorder.runner
        self.engine.configure(speculation, drafters)
        assert self.engine._running.runner is self.recorder.runner
        self.engine._running.runner = self.recorder
        for seq_id in range(self.engine._settings.parallel):
            if not self.recorder.cached_length(seq_id):  # emptied, where nobody saw it
                self._runner.truncate(seq_id, 0)

    def answer(
        self,
        session: Session,
        prompt_ids: Sequence[int],
        settings: GenerationSettings,
        *,
        reset: bool = False,
    ) -> GenerationResult:
        """An answer whose every token was found to be what its row of logits says.

        ``reset`` begins with an empty cache: a prompt that is read in other pieces is not
        cached bit for bit the same.
        """
        self.recorder.calls.clear()
        if reset:
            session.reset()
        result = result_of(session.generate(prompt_ids, settings))
        check_counts(result)
        self._replay.check(self.recorder.calls, {0: Answer(prompt_ids, settings, result)})
        return result
