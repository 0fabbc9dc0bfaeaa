"""Scheduler: rounds of one target decode that carries the blocks of all generations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.draft_length import StepLoad
from outrider.speculative.drafters.chain import ChainDrafter
from outrider.speculative.errors import EngineError
from outrider.speculative.events import Event, PromptEvent, StepEvent
from outrider.speculative.generation import Generation, Slot
from outrider.speculative.proposal import DraftRequest, Proposal, Verdict
from outrider.speculative.runner import Rollback, Runner
from outrider.speculative.settings import SpeculationSettings
from outrider.speculative.statistics import Pause, Rule
from outrider.speculative.step_costs import StepCosts
from outrider.speculative.token_sequence import common_prefix_length
from outrider.speculative.verifier import verify

# a cancel during a long prompt is heard between chunks
_PROMPT_CHUNK = 512
_PLAIN_SAMPLE = 4
_NO_DRAFT = Proposal()


@dataclass(slots=True, eq=False)
class Scheduler:
    """Drafts, decodes, verifies and rolls back, one round at a time.

    ``chances`` are the coins of a synthetic run, None in a real one.
    """

    runner: Runner
    drafter: ChainDrafter
    speculation: SpeculationSettings
    costs: StepCosts
    chances: tuple[float, ...] | None = None
    _num_plain: int = 0  # steps in a row without a draft

    def begin(self, generation: Generation) -> None:
        """Reuse what the slot has cached of the prompt, drop the rest."""
        slot, prompt = generation.slot, generation.prompt
        cached = slot.tokens.ids[: self.runner.cached_length(slot.seq_id)]
        # one token at least is decoded: its row starts the answer
        shared = min(common_prefix_length(cached, prompt), len(prompt) - 1)
        if not self.runner.truncate(slot.seq_id, shared):
            shared = 0
        slot.tokens.truncate(0)
        slot.tokens.extend(prompt)
        generation.num_cached_prompt = generation.num_prompt_read = slot.num_read = shared

    def round(self, generations: Sequence[Generation]) -> list[list[Event]]:
        """One target decode for all ``generations``; the events of each, in order.

        A generation whose rows are no use ends with finish reason ``error``.

        Raises:
            EngineError: the decode failed; every sequence is as it was before.
        """
        num_cells = sum([generation.slot.num_read for generation in generations])
        num_reading = sum([generation.is_reading for generation in generations])
        load = StepLoad(num_cells, len(generations) - num_reading - 1)
        proposals = self._draft(generations, load)
        drafted = time.perf_counter()
        blocks = self._blocks(generations, proposals, num_reading)
        started = time.perf_counter()
        outputs = self.runner.decode(blocks)
        decoded = time.perf_counter()
        verify_s = decoded - started
        self.drafter.observe_batch(blocks, outputs)
        events = []
        for generation, block, proposal in zip(generations, blocks, proposals, strict=True):
            try:
                events.append(self._settle(generation, block, proposal, outputs, verify_s))
            except EngineError as error:  # its rows are no use; the others go on
                generation.finish("error", ("bad_outputs", str(error)))
                events.append([])
        # rolling back may decode, which uses up the outputs: after all of them are read
        for generation in generations:
            if not self._roll_back(generation.slot) and generation.finish_reason is None:
                raise EngineError("the target could not roll back; --spec-type none avoids it")
        if self._learns and not num_reading:
            num_drafted = sum(map(len, proposals))
            self._num_plain = 0 if num_drafted else self._num_plain + 1
            # the first step without a draft, and then some of those that follow it
            if self._num_plain % _PLAIN_SAMPLE <= 1:
                self.costs.observe_verify(num_drafted + len(generations), verify_s, num_cells)
                self.costs.observe_host(started - drafted + time.perf_counter() - decoded)
        return events

    def _settle(
        self,
        generation: Generation,
        block: Block,
        proposal: Proposal,
        outputs: BatchOutputs,
        seconds: float,
    ) -> list[Event]:
        if generation.is_reading:
            return self._settle_prompt(generation, block, outputs, seconds)
        generation.stats.verify_s += seconds
        return [self._settle_step(generation, block, proposal, outputs)]

    def end(self, generation: Generation) -> None:
        """Leave the slot consistent however the generation ended: one token not cached.

        The caches of the drafters are cut there too.
        """
        slot = generation.slot
        if generation.is_reading:
            slot.tokens.truncate(min(slot.num_read + 1, len(slot.tokens)))
        self._roll_back(slot)
        self.drafter.settle(slot.seq_id, slot.tokens.ids)

    def _roll_back(self, slot: Slot) -> bool:
        """Cut from the cache what is no part of the text; False if the cache is empty now.

        The newest token is not in it. After an end token it may be: where that could not be cut
        off, because the last block began with it, it stays.
        """
        length = slot.num_read
        if self.runner.rollback is Rollback.TRUNCATE:
            length = min(length, len(slot.tokens) - 1)
        return self.runner.truncate(slot.seq_id, max(length, 0))

    def _draft(self, generations: Sequence[Generation], load: StepLoad) -> list[Proposal]:
        """A proposal for each generation; an empty one where nothing is drafted."""
        if not self.drafter.members:
            if self.drafter.dropped:
                self._note_dropped(generations)
            return [_NO_DRAFT] * len(generations)
        generating, limit = load.other_rows + 1, self.speculation.max_slots
        if 0 < limit < generating:
            for generation in generations:
                generation.stats.paused = Pause(f"{generating} slots generate, limit {limit}")
            return [_NO_DRAFT] * len(generations)
        rows = min(self.runner.max_outputs, self.runner.n_batch) // len(generations)
        wanted = [(g, self._request(g, rows - 1, load)) for g in generations]
        requests = [request for _, request in wanted if request is not None]
        if not requests:
            return [_NO_DRAFT] * len(generations)
        made = iter(self.drafter.propose(requests))
        proposals = [
            _NO_DRAFT if request is None else _valid(generation, next(made))
            for generation, request in wanted
        ]
        spent = self.drafter.spent
        if self._learns:
            self._learn_drafting()
        for (generation, request), proposal in zip(wanted, proposals, strict=True):
            if request is None:
                continue
            for one in spent:
                generation.stats.draft_s += one.seconds
                if one.num_tokens:
                    generation.stats.drafter(one.drafter).draft_s += one.seconds
            for name, count in proposal.discarded:
                generation.stats.discard(name, count)
        return proposals

    @property
    def _learns(self) -> bool:
        """True if costs decide anything."""
        return self.speculation.adaptive and bool(self.drafter.members)

    def _learn_drafting(self) -> None:
        for one in self.drafter.spent:
            seconds = one.seconds - one.catch_up_s
            self.costs.observe_draft(one.num_tokens, seconds, one.drafter)
            if one.is_look and one.num_tokens:
                self.costs.observe_look(one.seconds, one.drafter)

    def _request(self, generation: Generation, most: int, load: StepLoad) -> DraftRequest | None:
        if generation.is_reading or generation.law.is_forced:  # it is known what comes
            return None
        policy = generation.draft_length
        bound = policy.bound(min(generation.max_draft, most), load)
        generation.last_draft_length = policy.length
        generation.stats.paused = policy.paused
        if bound <= 0:
            return None
        law, coins = generation.law, generation.coins
        sampled = (
            self.speculation.sampling == "probabilistic"
            and not law.is_greedy
            and not law.is_adaptive
        )
        return DraftRequest(
            generation.slot.seq_id,
            generation.slot.tokens.ids,
            bound,
            lambda: law.draft(coins),
            uniform=generation.uniforms.proposal if sampled else None,
            min_tokens=min(self.speculation.n_min, bound),
            min_prob=self.speculation.p_min,
            gates=policy.gates,
            revision=generation.slot.tokens.revision,
        )

    def _note_dropped(self, generations: Sequence[Generation]) -> None:
        *_, (name, reason) = self.drafter.dropped.items()
        for generation in generations:
            generation.stats.paused = Pause(f"{name} dropped: {reason}")

    def _blocks(
        self, generations: Sequence[Generation], proposals: Sequence[Proposal], num_reading: int
    ) -> list[Block]:
        share = 0
        if num_reading:
            used = len(generations) - num_reading + sum(map(len, proposals))
            share = min(_PROMPT_CHUNK, (self.runner.n_batch - used) // num_reading)
        return [
            _prompt_block(generation, share)
            if generation.is_reading
            else _step_block(generation, proposal)
            for generation, proposal in zip(generations, proposals, strict=True)
        ]

    def _settle_prompt(
        self, generation: Generation, block: Block, outputs: BatchOutputs, seconds: float
    ) -> list[Event]:
        generation.num_prompt_read += len(block.token_ids)
        generation.slot.num_read = generation.num_prompt_read
        generation.timings.prompt_s += seconds
        generation.timings.prompt_tokens += len(block.token_ids)
        events: list[Event] = [
            PromptEvent(
                generation.num_prompt_read, len(generation.prompt), generation.num_cached_prompt
            )
        ]
        if not generation.is_reading:
            events.append(self._settle_step(generation, block, _NO_DRAFT, outputs, is_step=False))
            generation.timings.time_to_first_token_s = time.perf_counter() - generation.started
        return events

    def _settle_step(
        self,
        generation: Generation,
        block: Block,
        proposal: Proposal,
        outputs: BatchOutputs,
        *,
        is_step: bool = True,
    ) -> StepEvent:
        slot = generation.slot
        coins = generation.coins
        law = generation.law.block(
            outputs.logits(block), slot.tokens.ids, proposal.token_ids, coins
        )
        rule = self._rule(generation, proposal)
        failure = None
        try:
            verdict = verify(proposal, law, coins, rule, generation.is_end, self.chances or ())
        except EngineError as error:  # the draft tokens before the row of no use stand
            failure, verdict = error, Verdict(len(law.laws), None, "none")
        tokens, num_accepted = generation.commit(proposal, verdict, rule, law, is_step=is_step)
        read = block.start_pos + len(block.token_ids) - len(proposal) + num_accepted
        slot.num_read = min(read, len(slot.tokens))
        if failure is not None:
            generation.finish("error", ("bad_outputs", str(failure)))
        if proposal.token_ids:
            self.drafter.observe_verdict(slot.seq_id, verdict)
        reasoning, text = generation.take_text()
        return StepEvent(text, tuple(tokens), num_accepted, reasoning)

    def _rule(self, generation: Generation, proposal: Proposal) -> Rule:
        if self.chances is not None:
            return "synthetic"
        if generation.law.is_greedy:
            return "greedy"
        if generation.law.is_adaptive:
            return "match"
        if self.speculation.verify == "auto":
            return "match" if proposal.distributions is None else "rejection"
        return "rejection" if self.speculation.verify == "rejection" else "match"


def _prompt_block(generation: Generation, share: int) -> Block:
    start = generation.num_prompt_read
    part = generation.prompt[start : start + share]
    is_last = start + len(part) == len(generation.prompt)
    return Block(generation.slot.seq_id, part, start, num_outputs=int(is_last))


def _step_block(generation: Generation, proposal: Proposal) -> Block:
    tokens = generation.slot.tokens.ids
    block = tokens[-1:]
    if proposal.token_ids:
        block = np.array((block[0], *proposal.token_ids), np.int32)
    return Block(generation.slot.seq_id, block, len(tokens) - 1, num_outputs=len(block))


def _valid(generation: Generation, proposal: Proposal) -> Proposal:
    """The part of a deterministic draft that the grammar lets stand.

    A sampled draft stays whole: what the grammar forbids is rejected by the ratio test.
    """
    if proposal.distributions is not None:
        return proposal
    count = generation.law.num_valid(proposal.token_ids)
    if count == len(proposal):
        return proposal
    discarded = (*proposal.discarded, (proposal.drafter, len(proposal) - count))
    return replace(proposal.cut(count), discarded=discarded)
