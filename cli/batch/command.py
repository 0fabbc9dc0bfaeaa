"""The batch: requests from a file over the slots of one engine, results to another file."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.batch.order import InOrder
from outrider.cli.batch.progress import BatchProgress
from outrider.cli.batch.request import BadLine, BatchRequest, read_requests
from outrider.cli.batch.result_file import ResultFile
from outrider.cli.bench.show import live_row
from outrider.cli.engine_setup import (
    generation_settings,
    grammar_settings,
    load_engine,
    tell_notices,
    template_kwargs,
    use_template_file,
)
from outrider.cli.errors import UsageError, message, printable, say
from outrider.cli.glyphs import glyphs_for
from outrider.cli.interrupts import Interrupts
from outrider.cli.result_json import error_code, result_json
from outrider.cli.stats_view import SYNTHETIC
from outrider.profiles.errors import ProfileError
from outrider.profiles.schema import Profile
from outrider.speculative.errors import EngineError
from outrider.speculative.events import Event, FinishEvent, GenerationResult, StepEvent
from outrider.speculative.statistics import SpeculationStats, Timings

if TYPE_CHECKING:
    from outrider.speculative.engine import Engine
    from outrider.speculative.generation import Generation
    from outrider.speculative.reasoning_tags import ReasoningTags
    from outrider.speculative.session import Session


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What is asked: ``source`` and ``target`` None are stdin and stdout."""

    source: Path | None
    target: Path | None
    num_slots: int
    in_order: bool = False
    raw: bool = False
    verbose: bool = False


def run_batch(profile: Profile, overrides: Mapping[str, object], plan: BatchPlan) -> int:
    """Answer what is not answered yet; return the exit code: 1 if something failed.

    Raises:
        UsageError: a file that cannot be read or written, or settings that cannot work.
        OutputError: the results cannot be written any more.
    """
    requests = read_requests(plan.source, profile)
    results = ResultFile(plan.target)
    try:
        todo = [one for one in requests if one.id not in results.finished]
        progress = BatchProgress(len(todo), plan.num_slots, skipped=len(requests) - len(todo))
        batch = _Batch(profile, plan, results, progress)
        code = batch.run(todo, overrides) if todo else 0
    finally:
        results.close()
    say(printable(progress.summary(glyphs_for(getattr(sys.stderr, "encoding", None)))))
    return code or int(bool(progress.failures))


@dataclass(slots=True)
class _Running:
    """A request that is being answered."""

    place: int
    request: BatchRequest
    session: Session
    num_emitted: int = 0


@dataclass(slots=True)
class _Batch:
    profile: Profile
    plan: BatchPlan
    results: ResultFile
    progress: BatchProgress
    _running: dict[Generation, _Running] = field(default_factory=dict)
    _order: InOrder | None = None

    def run(self, todo: list[BatchRequest | BadLine], overrides: Mapping[str, object]) -> int:
        """The exit code of an interrupt, else 0."""
        if self.plan.in_order:
            self._order = InOrder(self.results.write)
        num_slots = min(self.plan.num_slots, len(todo))
        grammar_settings(self.profile.sampling)
        with load_engine(self.profile, parallel=num_slots) as engine:
            if not self.plan.raw:
                use_template_file(engine, self.profile.chat)
            tell_notices(engine, overrides, verbose=self.plan.verbose)
            if self.profile.speculation.is_synthetic:
                say(f"outrider: {SYNTHETIC}")
            with Interrupts(lambda: None) as interrupts, live_row() as tell:
                columns = shutil.get_terminal_size().columns
                glyphs = glyphs_for(sys.stderr.encoding)
                sessions = [engine.session() for _ in range(num_slots)]
                for _ in self._rounds(engine, todo, sessions):
                    if self.progress.is_due():
                        tell(self.progress.row(columns, glyphs))
                    if interrupts.exit_code is not None:
                        return interrupts.exit_code
        return 0

    def _rounds(
        self, engine: Engine, todo: list[BatchRequest | BadLine], free: list[Session]
    ) -> Iterator[None]:
        """One decode for all slots after another; free ones take the next requests."""
        waiting = enumerate(todo)
        with contextlib.closing(engine.rounds()) as rounds:
            while True:
                while free:
                    place, request = next(waiting, (0, None))
                    if request is None:
                        break
                    generation = self._begun(engine, place, request, free)
                    if generation is not None:
                        rounds.join(generation)
                if not self._running:
                    return
                for generation, events in rounds.advance():
                    self._follow(engine, generation, events, free)
                yield

    def _begun(
        self, engine: Engine, place: int, request: BatchRequest | BadLine, free: list[Session]
    ) -> Generation | None:
        """Start a request on a free session; one that cannot work has its result at once."""
        if isinstance(request, BadLine):
            self._fail(engine, place, request, "input", request.reason)
            return None
        session = free.pop()
        try:
            prompt_ids = self._prompt_ids(engine, request)
            profile = request.profile
            settings = generation_settings(
                profile,
                grammar=grammar_settings(profile.sampling),
                tags=self._tags(engine, prompt_ids, profile),
            )
            engine.resolve_rule(settings.sampling)
            generation = session.begin(prompt_ids, settings)
        except (EngineError, ProfileError, UsageError) as error:
            free.append(session)
            self._fail(engine, place, request, error_code(error), message(error))
            return None
        self._running[generation] = _Running(place, request, session)
        return generation

    def _tags(
        self, engine: Engine, prompt_ids: list[int], profile: Profile
    ) -> ReasoningTags | None:
        if self.plan.raw:
            return None
        return engine.reasoning_tags(prompt_ids, template_kwargs(profile.chat))

    def _prompt_ids(self, engine: Engine, request: BatchRequest) -> list[int]:
        if self.plan.raw or not engine.has_chat_template:
            if request.prompt is None:
                raise UsageError('"messages" need a chat template; give "prompt"')
            return engine.encode(request.prompt)
        return engine.render(request.conversation(), template_kwargs(request.profile.chat))

    def _follow(
        self, engine: Engine, generation: Generation, events: list[Event], free: list[Session]
    ) -> None:
        one = self._running[generation]
        for event in events:
            if isinstance(event, StepEvent) and event.token_ids:
                self.progress.emitted(len(event.token_ids), is_first=not one.num_emitted)
                one.num_emitted += len(event.token_ids)
            elif isinstance(event, FinishEvent):
                del self._running[generation]
                free.append(one.session)
                self._end(engine, one, event.result)

    def _end(self, engine: Engine, one: _Running, result: GenerationResult) -> None:
        if result.error is not None:
            self.progress.failed(f"line {one.request.number}: {result.error[1]}")
        else:
            self.progress.ended(result)
        self._put(engine, one.place, one.request, result)

    def _fail(
        self, engine: Engine, place: int, request: BatchRequest | BadLine, code: str, reason: str
    ) -> None:
        """A request without an answer has a result all the same."""
        reason = f"line {request.number}: {reason}"
        self.progress.failed(reason)
        result = GenerationResult(
            text="",
            token_ids=[],
            finish_reason="error",
            prompt_tokens=0,
            cached_tokens=0,
            stats=SpeculationStats(),
            timings=Timings(),
            seed=self.profile.sampling.seed or 0,
            error=(code, reason),
        )
        self._put(engine, place, request, result)

    def _put(
        self, engine: Engine, place: int, request: BatchRequest | BadLine, result: GenerationResult
    ) -> None:
        result.timings.load_s = engine.load_s
        described = result_json(
            result,
            profile=self.profile.name,
            model=engine.model_name,
            drafters=engine.drafter_names,
            n_max=self.profile.speculation.n_max,
            synthetic=self.profile.speculation.is_synthetic,
        )
        row = {"id": request.id, **described}
        if self._order is None:
            self.results.write(row)
        else:
            self._order.put(place, row)
