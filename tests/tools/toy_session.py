"""A session on toy models, without an engine around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from outrider.speculative.constraint import Constraint
from outrider.speculative.draft_length import AdaptiveLength, DraftLength, FixedLength
from outrider.speculative.drafters.chain import ChainDrafter
from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.events import Event, FinishEvent, GenerationResult
from outrider.speculative.generation import Generation
from outrider.speculative.runner import Runner
from outrider.speculative.scheduler import Scheduler
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    GenerationSettings,
    GrammarSettings,
    SpeculationSettings,
)
from outrider.speculative.step_costs import StatedCosts
from outrider.speculative.tokenizer import Tokenizer

_NAMES = ("draft-simple", "ngram-simple", "script", "oracle", "filler")


def stated_costs() -> StatedCosts:
    """A fifth of a plain step for each more row, a tenth for a token of the model drafter."""
    draft_costs = {name: 0.1 if name == "draft-simple" else 0.0 for name in _NAMES}
    return StatedCosts({1: 1.0, 1001: 201.0}, draft_costs)


def fixed(length: int) -> Callable[[], DraftLength]:
    """A factory of lengths that are always ``length``."""
    return lambda: FixedLength(length)


def adaptive(n_max: int) -> Callable[[], DraftLength]:
    """A factory of adaptive lengths with stated costs: reproducible."""
    limits = dict.fromkeys(_NAMES, n_max)
    return lambda: AdaptiveLength(stated_costs(), limits)


def toy_scheduler(
    runner: Runner,
    members: Sequence[Drafter] = (),
    speculation: SpeculationSettings | None = None,
) -> Scheduler:
    return Scheduler(
        runner, ChainDrafter(members), speculation or SpeculationSettings(), stated_costs()
    )


def toy_session(
    runner: Runner,
    tokenizer: Tokenizer,
    members: Sequence[Drafter] = (),
    length: Callable[[], DraftLength] | None = None,
    speculation: SpeculationSettings | None = None,
    constrain: Callable[[GrammarSettings], Constraint] | None = None,
) -> Session:
    """A session on sequence 0 of ``runner`` that drafts with ``members``, 3 tokens by default."""
    scheduler = toy_scheduler(runner, members, speculation)
    make = length or fixed(3)
    return Session(0, lambda: scheduler, tokenizer, lambda _settings: make(), constrain)


def answer(
    session: Session, prompt_ids: Sequence[int], settings: GenerationSettings
) -> GenerationResult:
    """The result of one answer, read to its end."""
    return result_of(session.generate(prompt_ids, settings))


def result_of(events: Iterable[Event]) -> GenerationResult:
    """The result in the last event; all events are read."""
    *before, last = events
    assert not any(isinstance(event, FinishEvent) for event in before)
    assert isinstance(last, FinishEvent)
    return last.result


def check_counts(generation: Generation | GenerationResult) -> None:
    """The identities of the counts that hold on every path."""
    stats = generation.stats
    emitted = len(generation.token_ids)
    assert stats.emitted == emitted == stats.accepted + stats.own
    assert 0 <= stats.accepted <= stats.drafted
    assert stats.drafts <= stats.steps
    from_prompt = min(emitted, 1)
    assert stats.steps - (stats.own - from_prompt) in (0, 1)
    assert sum(stats.accepted_histogram) == stats.drafts
    assert sum(i * n for i, n in enumerate(stats.accepted_histogram)) == stats.accepted
    assert sum(stats.drafts_per_position) == stats.drafted
    assert sum(counts.drafted for counts in stats.per_drafter.values()) == stats.drafted
    assert sum(counts.accepted for counts in stats.per_drafter.values()) == stats.accepted
    assert sum(stats.verification.values()) == stats.drafts
