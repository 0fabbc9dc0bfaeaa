"""Engine: loads the models, checks that they fit, and hands out sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from outrider.speculative.acceptance import AcceptanceModel
from outrider.speculative.answer_pool import AnswerPool
from outrider.speculative.cache_size import num_snapshots
from outrider.speculative.calibration import CostFile, calibrate, is_as_before, timed_decode
from outrider.speculative.chat_template import Message
from outrider.speculative.constraint import Constraint
from outrider.speculative.draft_length import AdaptiveLength, DraftLength, FixedLength
from outrider.speculative.drafters import KINDS
from outrider.speculative.drafters.build import (
    DraftPlan,
    Site,
    build_chain,
    fixed_length,
    kind_of,
    plan,
)
from outrider.speculative.errors import InputError
from outrider.speculative.generation import Slot
from outrider.speculative.grammar_vocabulary import GrammarVocabulary
from outrider.speculative.llama import supports_gpu
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model_store import ModelStore, Progress
from outrider.speculative.outlook import Outlook, outlook
from outrider.speculative.prompt_encoder import PromptEncoder
from outrider.speculative.reasoning_tags import ReasoningTags
from outrider.speculative.rounds import Rounds
from outrider.speculative.runner import Runner
from outrider.speculative.sampler import Sampler
from outrider.speculative.scheduler import Scheduler
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    GrammarSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)
from outrider.speculative.statistics import Rule
from outrider.speculative.step_costs import (
    CPU_CURVE,
    GPU_CURVE,
    STATED_CURVE,
    StatedCosts,
    StepCosts,
)
from outrider.speculative.synthetic import acceptance_chances

_MOST_TIMED = 64  # rows of a decode; beyond them the curve goes on as it is assumed
_DRAFT_COST = 0.1  # of a model drafter's token, in plain steps, where none may be measured


class Engine:
    """A target, its drafters and what they run with. Use :meth:`load`, and ``with``."""

    def __init__(self, settings: EngineSettings, progress: Progress) -> None:
        started = time.perf_counter()
        self._settings = settings
        self._progress = progress
        self._models = ModelStore(lambda stage, fraction: self._progress(stage, fraction))
        self._scheduler: Scheduler | None = None
        self._drafters: tuple[DrafterSettings, ...] = ()
        self._slots: list[Slot] = []
        self._cost_file: CostFile | None = None
        self._acceptance: dict[str, AcceptanceModel] = {}
        self._grammar_vocabulary: GrammarVocabulary | None = None
        self.notices: tuple[str, ...] = ()
        try:
            if settings.is_constrained:  # its table is made while the models load
                self._grammar_vocabulary = GrammarVocabulary(settings.target.path)
            own_heads = any(_uses_own_heads(d, settings.target) for d in settings.drafters)
            self._target = self._models.get(settings.target, "target", load_heads=own_heads)
            self.n_ctx = settings.target.ctx_size or self._target.n_ctx_train
            self._prompts = PromptEncoder(self._target)
            self.configure(settings.speculation, settings.drafters)
            self.notices = tuple(self._notices())
        except BaseException:
            self.close()
            raise
        self.load_s = time.perf_counter() - started

    @classmethod
    def load(cls, settings: EngineSettings, *, progress: Progress | None = None) -> Self:
        """Load everything; ``progress`` gets ("target" | "drafter" | "measure", 0..1).

        It may return False to stop, which is an EngineError.

        Raises:
            InputError: a file, a pair or a combination of settings that cannot work.
            EngineError: llama.cpp failed.
        """
        return cls(settings, progress or (lambda _stage, _fraction: None))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free everything: drafters, then contexts, then models. Twice is harmless."""
        if self._scheduler is not None:
            self._keep_costs()
            self._scheduler.drafter.close()
            self._scheduler.runner.close()
            self._scheduler = None
        self._models.close()

    # what it is

    @property
    def model_name(self) -> str:
        return self._target.name

    @property
    def drafter_names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self._running.drafter.members)

    @property
    def max_draft(self) -> int:
        """The most tokens that any drafter proposes at once."""
        return self._running.drafter.n_max

    @property
    def acceptance_chances(self) -> tuple[float, ...] | None:
        """The coins of synthetic acceptance, by position; None in a real run."""
        return self._running.chances

    @property
    def speculation(self) -> SpeculationSettings:
        return self._running.speculation

    @property
    def gives_law(self) -> bool:
        """True if a drafter says what its tokens are drawn from, as it is used now."""
        running = self._running
        return running.speculation.sampling == "probabilistic" and running.drafter.gives_law

    def outlooks(self, num_cells: int) -> tuple[Outlook, ...]:
        """What drafts cost and bring, for each drafter, behind ``num_cells`` cached tokens."""
        return tuple(
            outlook(name, longest, self._running.costs, self._acceptance[name], num_cells)
            for name, longest in self._limits().items()
        )

    # text to tokens

    @property
    def has_chat_template(self) -> bool:
        return self._prompts.has_template

    def encode(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Token ids of a raw prompt, with exactly one BOS where the model wants it."""
        return self._prompts.encode(text, parse_special=parse_special)

    def pieces(self, token_ids: Sequence[int]) -> list[bytes]:
        """What each token prints; nothing for control tokens."""
        return [self._target.vocabulary.piece(token_id) for token_id in token_ids]

    def render(
        self, messages: Sequence[Message], kwargs: Mapping[str, object] | None = None
    ) -> list[int]:
        """Token ids of the prompt that asks for the next answer of a conversation.

        Raises:
            InputError: the model has no chat template, or it failed.
        """
        return self._prompts.render(messages, kwargs)

    def reasoning_tags(
        self, prompt_ids: Sequence[int], kwargs: Mapping[str, object] | None = None
    ) -> ReasoningTags | None:
        """How the answer to a rendered prompt marks reasoning; None if the template knows none."""
        return self._prompts.reasoning_tags(prompt_ids, kwargs)

    def replace_template(self, source: str, name: str) -> None:
        """Use another chat template; ``name`` says in errors where it came from."""
        self._prompts.replace_template(source, name)

    # speculation

    def configure(
        self,
        speculation: SpeculationSettings,
        drafters: Sequence[DrafterSettings] | None = None,
        *,
        progress: Progress | None = None,
    ) -> None:
        """Draft in another way; ``drafters`` None keeps the kinds.

        Sessions go on; if the new drafts are longer than the context has outputs for, or read
        hidden states, the conversation is read again. From now on ``progress`` is told what
        that of :meth:`load` was.

        Raises:
            InputError: a combination that cannot work; the former way stays.
        """
        self._progress = progress or self._progress
        drafters = self._drafters if drafters is None else tuple(drafters)
        _check(speculation)
        plans = [plan(one, speculation, self._target.path) for one in drafters]
        longest = max((one.n_max for one in plans), default=0)
        chances = _synthetic_chances(speculation, longest)
        runner = self._runner_for(plans, longest)
        try:
            chain = build_chain(plans, Site(runner, self._models, self._settings.parallel))
        except BaseException:
            if self._scheduler is None or runner is not self._scheduler.runner:
                runner.close()
            raise
        curve = GPU_CURVE if self._uses_gpu else CPU_CURVE
        costs = StepCosts(curve, self._target.cell_cost)
        if self._scheduler is not None:
            costs.take_plain_steps(self._scheduler.costs)
        self._replace(Scheduler(runner, chain, speculation, costs, chances))
        self._acceptance = {m.name: AcceptanceModel(m.n_max) for m in chain.members}
        if runner.taps:
            # nobody has kept the hidden states of what is cached
            for seq_id in range(self._settings.parallel):
                runner.truncate(seq_id, 0)
        self._drafters = drafters
        in_use = [self._settings.target, *(d.model for d in drafters if d.model)]
        self._models.keep_only(in_use)
        self._fixed_length = max((fixed_length(d, speculation) for d in drafters), default=0)
        if chain.members and speculation.adaptive and chances is None:
            self._measure()

    def resolve_rule(self, sampling: SamplingSettings) -> Rule:
        """The rule drafts are verified by, "auto" resolved.

        Raises:
            InputError: the rule cannot be used at this temperature.
        """
        verify = self.speculation.verify
        if self._running.chances is not None:
            return "synthetic"
        if Sampler(sampling).is_greedy:
            return "greedy"
        if verify == "greedy":
            raise InputError(
                f"--spec-verify greedy: only at temperature 0, it is {sampling.temp:g};"
                " allowed here: auto, match, rejection"
            )
        if verify == "rejection" and sampling.mirostat:
            raise InputError(
                f"--spec-verify rejection: not with --mirostat {sampling.mirostat}, which learns"
                " from the token it drew; allowed here: auto, match"
            )
        if verify != "auto":
            return verify
        if sampling.mirostat:
            return "match"
        return "rejection" if self.gives_law else "match"

    @property
    def max_batch(self) -> int:
        """The most rows that fit behind what is cached, in one batch."""
        runner = self._running.runner
        cached = sum(map(runner.cached_length, range(self._settings.parallel)))
        return min(runner.max_outputs, runner.n_ctx - cached)

    def time_batch(self, num_rows: int) -> float:
        """Seconds of one target decode of ``num_rows`` rows behind what is cached."""
        return timed_decode(self._running.runner, num_rows)

    def wrap_runner(self, wrap: Callable[[Runner], Runner]) -> None:
        """Put something around the target's runner, until it is configured anew.

        For what watches or slows down every decode: benchmarks and tests.
        """
        self._running.runner = wrap(self._running.runner)

    # conversations

    def session(self) -> Session:
        """A conversation on a slot of its own.

        Raises:
            InputError: all slots are taken.
        """
        if len(self._slots) >= self._settings.parallel:
            raise InputError(f"all {self._settings.parallel} slots are taken; give --parallel")
        session = Session(
            len(self._slots),
            lambda: self._running,
            self._target.vocabulary,
            self._plan,
            self._constrain,
            self._models.stop,
            self._slots,
        )
        self._slots.append(session.slot)
        return session

    def pool(self) -> AnswerPool:
        """Answers on several sessions together; to be closed before the engine is."""
        return AnswerPool(lambda: self._running, self._slots)

    def rounds(self) -> Rounds:
        """Answers that are written together; to be closed before the engine is."""
        return Rounds(lambda: self._running, self._slots)

    # inside

    @property
    def _running(self) -> Scheduler:
        assert self._scheduler is not None, "the engine is closed"
        return self._scheduler

    def _constrain(self, grammar: GrammarSettings) -> Constraint:
        """Follows one answer through a grammar."""
        if self._running.chances is not None:
            raise InputError(
                f"{grammar.name}: synthetic acceptance keeps tokens that a grammar forbids;"
                " leave one of them out"
            )
        if self._grammar_vocabulary is None:
            self._grammar_vocabulary = GrammarVocabulary(self._target.path)
        vocabulary = self._target.vocabulary
        tokenizer = self._grammar_vocabulary.tokenizer(
            vocabulary.encode_bytes, vocabulary.end_ids, vocabulary.piece
        )
        return Constraint(tokenizer, grammar)

    def _plan(self, settings: GenerationSettings) -> DraftLength:
        """How long the drafts of an answer may be."""
        rule = self.resolve_rule(settings.sampling)
        running = self._running
        if not running.speculation.adaptive or running.chances is not None:
            return FixedLength(self._fixed_length)
        limits = self._limits()
        if settings.seed is not None and rule == "rejection":
            # a timed length would let the machine's mood choose which coins are thrown, and
            # one learnt from earlier answers what was asked before
            return AdaptiveLength(self._stated_costs(limits), limits)
        for acceptance in self._acceptance.values():
            acceptance.begin_answer(self._settings.parallel)
        return AdaptiveLength(running.costs, limits, self._acceptance)

    def _limits(self) -> dict[str, int]:
        """The most tokens in a draft of each drafter."""
        bound = self.speculation.n_max
        return {m.name: min(m.n_max, bound or m.n_max) for m in self._running.drafter.members}

    def _stated_costs(self, drafters: Iterable[str]) -> StatedCosts:
        """What steps are taken to cost where no clock may have a part in it."""
        costs = {name: _DRAFT_COST if KINDS[name].is_model else 0.0 for name in drafters}
        return StatedCosts(GPU_CURVE if self._uses_gpu else STATED_CURVE, costs)

    @property
    def _uses_gpu(self) -> bool:
        return self._settings.target.gpu_layers != 0 and supports_gpu()

    def _notices(self) -> list[str]:
        notices = []
        layers = self._settings.target.gpu_layers
        if layers not in ("auto", 0) and not supports_gpu():
            notices.append(
                f"--gpu-layers {layers}: this build of llama.cpp runs on the CPU only;"
                " reinstall llama-cpp-python with CMAKE_ARGS for your GPU"
            )
        trained = self._target.n_ctx_train
        if self.n_ctx > trained:
            notices.append(f"context {self.n_ctx:,}: the model was trained on {trained:,} tokens")
        for drafter in self._drafters:
            if drafter.model is not None and kind_of(drafter).is_model:
                model = self._models.get(drafter.model, "drafter")
                length = model.drafting_length(self._target, self.n_ctx)
                if length < self.n_ctx:
                    name = drafter.model.path.name
                    notices.append(f"{name}: trained on {length:,} tokens, it drafts no further")
        return notices

    def _runner_for(self, plans: Sequence[DraftPlan], longest: int) -> LlamaRunner:
        """The present runner if it gives what the drafters need, else a new one."""
        outputs = self._settings.parallel * (1 + longest)
        taps = frozenset(tap for one in plans for tap in one.taps)
        snapshots = num_snapshots(longest)
        if self._scheduler is not None:
            runner = self._scheduler.runner
            assert isinstance(runner, LlamaRunner)
            enough = runner.max_outputs >= outputs and runner.num_snapshots >= snapshots
            if enough and runner.taps == taps:
                return runner
        return LlamaRunner(
            self._target,
            self._settings.target,
            n_ctx=self.n_ctx,
            n_seq=self._settings.parallel,
            max_outputs=outputs,
            taps=taps,
            num_snapshots=snapshots,
        )

    def _replace(self, scheduler: Scheduler) -> None:
        self._keep_costs()
        former, self._scheduler = self._scheduler, scheduler
        if former is not None:
            former.drafter.close()
            if former.runner is not scheduler.runner:
                former.runner.close()

    def _measure(self) -> None:
        """Know what batches and drafts cost: from the last time, or by timing some."""
        running = self._running
        runner, costs = running.runner, running.costs
        most = min(self.max_batch, _MOST_TIMED)  # of all slots together
        if most < 1:
            return
        is_known, folder = False, self._settings.costs_folder
        if folder is not None:
            self._cost_file = CostFile(folder, self._settings, self.drafter_names)
            is_known = self._cost_file.read(costs) and is_as_before(runner, costs, most)
        if not is_known:
            calibrate(runner, costs, most, self._progress)
        for member in running.drafter.members:
            if costs.token_s(member.name) is None:
                # others than models cost nothing, as far as is known
                seconds = member.time_token() if KINDS[member.name].is_model else 0.0
                if seconds is None:
                    seconds = _DRAFT_COST * float(costs.verify_s(0)[0])
                costs.observe_draft(1, seconds, member.name)

    def _keep_costs(self) -> None:
        """Write what was learnt of the costs for the next start."""
        if self._cost_file is not None and self._scheduler is not None:
            self._cost_file.write(self._scheduler.costs)
            self._cost_file = None


def _uses_own_heads(drafter: DrafterSettings, target: ModelSettings) -> bool:
    if drafter.kind != "draft-mtp":
        return False
    return drafter.model is None or drafter.model.path.resolve() == target.path.resolve()


def _check(speculation: SpeculationSettings) -> None:
    """Refuse combinations that would make the result wrong."""
    if speculation.n_min > 0 and speculation.sampling == "probabilistic":
        raise InputError(
            f"--spec-draft-n-min {speculation.n_min} with --spec-draft-sampling probabilistic:"
            " dropping short drafts of sampled tokens would bias the text; give n-min 0"
        )


def _synthetic_chances(speculation: SpeculationSettings, n_max: int) -> tuple[float, ...] | None:
    if not speculation.is_synthetic:
        return None
    if n_max == 0:
        raise InputError("synthetic acceptance needs a drafter; give --spec-type filler")
    return acceptance_chances(n_max, speculation.synth_rates, speculation.synth_len)
