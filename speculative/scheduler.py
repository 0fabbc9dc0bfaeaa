"""Scheduler: rounds of one target decode that carries the blocks of all generations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.drafters.chain import ChainDrafter
from outrider.speculative.errors import CacheFullError, EngineError
from outrider.speculative.events import Event, PromptEvent, StepEvent
from outrider.speculative.generation import Generation, Slot
from outrider.speculative.proposal import NO_DRAFT, DraftRequest, Proposal, Verdict
from outrider.speculative.runner import Rollback, Runner
from outrider.speculative.settings import SpeculationSettings
from outrider.speculative.statistics import Pause, Rule
from outrider.speculative.step_costs import ALONE, StepCosts, StepLoad
from outrider.speculative.token_sequence import common_prefix_length
from outrider.speculative.verifier import verify

I32 = NDArray[np.int32]

# tokens of a prompt that are read at once: as many as take about so long. Their rows are the
# same bit for bit in all of these, as long as no part is smaller than the smallest
_PROMPT_CHUNKS = (512, 256, 128, 64)
_CHUNK_S = 0.5
# tokens that steps and what is read beside them are kept within: where a decode is split, a
# sliding window may have moved on before drafts in it are taken back
_MICROBATCH = 512
_PLAIN_SAMPLE = 4


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
    _reading_speed: float = 0.0  # prompt tokens a second, lately; 0 before it is known

    def begin(self, generation: Generation, others: Sequence[Slot] = ()) -> None:
        """Reuse what the slot, or one of the ``others``, has cached of the prompt."""
        slot = generation.slot
        generation.num_cached_prompt = self._reuse(slot, generation.prompt, others)
        slot.tokens.truncate(0)
        slot.tokens.extend(generation.prompt)

    def park(self, generation: Generation) -> None:
        """Give up its part of the cache; a step fails until :meth:`resume`."""
        slot = generation.slot
        self._read_anew(generation)
        self.runner.truncate(slot.seq_id, 0)
        self.drafter.forget(slot.seq_id)  # its room in their caches, too

    def resume(self, generation: Generation, others: Sequence[Slot] = ()) -> None:
        """Read on, or what was given up again, after all that is cached of it by now."""
        num_reused = self._reuse(generation.slot, generation.reading, others)
        if not generation.goes_on:
            generation.num_cached_prompt = num_reused

    def forget(self, slot: Slot) -> None:
        """Empty a slot."""
        slot.tokens.truncate(0)
        slot.num_read = 0
        self.runner.truncate(slot.seq_id, 0)
        self.drafter.forget(slot.seq_id)

    def _reuse(self, slot: Slot, wanted: I32, others: Sequence[Slot]) -> int:
        """Keep or take over what is cached of the beginning of ``wanted``; how many tokens.

        One token at least is decoded: its row starts the answer.
        """
        most = len(wanted) - 1
        shared = {one.seq_id: min(self._num_shared(one, wanted), most) for one in (slot, *others)}
        own, best = shared[slot.seq_id], max(shared, key=lambda seq_id: shared[seq_id])
        if shared[best] > own and self.runner.share(best, slot.seq_id, shared[best]):
            own = shared[best]
        elif not self.runner.truncate(slot.seq_id, own):
            own = 0
        slot.num_read = own
        return own

    def _num_shared(self, slot: Slot, wanted: I32) -> int:
        cached = slot.tokens.ids[: self.runner.cached_length(slot.seq_id)]
        return common_prefix_length(cached, wanted)

    def round(self, generations: Sequence[Generation]) -> list[list[Event]]:
        """One target decode for the ``generations``, the oldest first; the events of each.

        A generation whose rows are no use ends with finish reason ``error``.

        Raises:
            EngineError: the decode failed; every sequence is as it was before.
        """
        if len(generations) == 1:
            return self._decode(generations)
        active = self._active(generations)
        told = dict(zip(active, self._decode(active), strict=True))
        return [told.get(generation, []) for generation in generations]

    def _active(self, generations: Sequence[Generation]) -> Sequence[Generation]:
        """All that generate, and of those that read the oldest, as many as there is room for.

        A step waits for one part of a prompt at most, however many are read.
        """
        reading = [generation for generation in generations if generation.is_reading]
        if len(reading) < 2:
            return generations
        chunk = self._prompt_chunk(max(map(_num_unread, reading)), self.runner.n_batch)
        room = chunk if len(reading) < len(generations) else self.runner.n_batch
        left_out = set()
        for generation in reading:
            part = min(chunk, _num_unread(generation))
            if part <= room or generation is reading[0]:
                room -= part
            else:
                left_out.add(generation)
        return [generation for generation in generations if generation not in left_out]

    def _decode(self, generations: Sequence[Generation]) -> list[list[Event]]:
        num_cells = num_reading = 0
        for generation in generations:
            num_cells += generation.slot.num_read
            num_reading += generation.is_reading
        # a row reads the cells of its own sequence, others are skipped (ggml-cpu/ops.cpp)
        num_cells //= len(generations)
        proposals = self._draft(generations, num_cells, len(generations) - num_reading)
        drafted = time.perf_counter()
        blocks = self._blocks(generations, proposals, num_reading)
        started = time.perf_counter()
        try:
            outputs = self.runner.decode(blocks)
        except CacheFullError:
            if not any(map(len, proposals)):
                raise
            # the slots share the cache: without the drafts there may be room
            proposals = _discarded(generations, proposals)
            blocks = self._blocks(generations, proposals, num_reading)
            started = time.perf_counter()
            outputs = self.runner.decode(blocks)
        decoded = time.perf_counter()
        verify_s = decoded - started
        if num_reading:
            self._reading_speed = sum(len(block.token_ids) for block in blocks) / verify_s
        self.drafter.observe_batch(blocks, outputs)
        events = []
        for place, generation in enumerate(generations):
            block, proposal = blocks[place], proposals[place]
            try:
                if num_reading and generation.is_reading:
                    events.append(self._settle_prompt(generation, block, outputs, verify_s))
                    continue
                generation.stats.verify_s += verify_s
                events.append([self._settle_step(generation, block, proposal, outputs)])
            except EngineError as error:  # its rows are no use; the others go on
                generation.finish("error", ("bad_outputs", str(error)))
                events.append([])
        # rolling back may decode, which uses up the outputs: after all of them are read
        for generation in generations:
            if not self._roll_back(generation.slot) and generation.finish_reason is None:
                self._read_anew(generation)  # a window has moved on too far
        if self._learns and not num_reading:
            num_drafted = sum([len(proposal.token_ids) for proposal in proposals])
            self._num_plain = 0 if num_drafted else self._num_plain + 1
            num_rows = num_drafted + len(generations)
            # of steps without a draft the second, and then some of those that follow it
            if num_drafted or self._num_plain % _PLAIN_SAMPLE == 2:
                self.costs.observe_verify(num_rows, verify_s, num_cells)
                self.costs.observe_host(started - drafted + time.perf_counter() - decoded)
            elif self._num_plain == 1:
                self.costs.observe_switch(num_rows, verify_s, num_cells)
        return events

    def _read_anew(self, generation: Generation) -> None:
        """Its part of the cache is empty, or will be: no step before all is read again."""
        slot = generation.slot
        if not generation.is_reading:
            generation.reading = slot.tokens.ids[:-1].copy()
        slot.num_read = 0

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
            length = min(length, slot.tokens.length - 1)
        return self.runner.truncate(slot.seq_id, max(length, 0))

    def _draft(
        self, generations: Sequence[Generation], num_cells: int, generating: int
    ) -> list[Proposal]:
        """A proposal for each generation; an empty one where nothing is drafted.

        ``generating`` of them are not reading.
        """
        if not self.drafter.members:
            if self.drafter.dropped:
                self._note_dropped(generations)
            return [NO_DRAFT] * len(generations)
        limit = self.speculation.max_slots
        if 0 < limit < generating:
            for generation in generations:
                generation.stats.paused = Pause(f"{generating} slots generate, limit {limit}")
            return [NO_DRAFT] * len(generations)
        rows = min(self.runner.max_outputs, self.runner.n_batch) // len(generations)
        proposals = [NO_DRAFT] * len(generations)
        places, requests = [], []
        for place, one in enumerate(generations):
            request = self._request(one, rows - 1, generations, num_cells)
            if request is not None:
                places.append(place)
                requests.append(request)
        if not requests:
            return proposals
        for index, proposal in enumerate(self.drafter.propose(requests)):
            place = places[index]
            proposals[place] = self._count_draft(generations[place], proposal)
        if self.speculation.adaptive:
            self._learn_drafting()
        return proposals

    def _count_draft(self, generation: Generation, proposal: Proposal) -> Proposal:
        """What may stand of a draft, after its time and what was thrown away are counted."""
        stats = generation.stats
        if not generation.law.is_plain:
            proposal = _valid(generation, proposal)
        for one in self.drafter.spent:
            stats.draft_s += one.seconds
            if one.num_tokens:
                stats.spend(one.drafter, one.seconds)
        for name, count in proposal.discarded:
            stats.discard(name, count)
        return proposal

    @property
    def _learns(self) -> bool:
        """True if costs decide anything."""
        return self.speculation.adaptive and bool(self.drafter.members)

    def _learn_drafting(self) -> None:
        for one in self.drafter.spent:
            seconds = one.seconds - one.catch_up_s
            if seconds > one.catch_up_s:  # reading gives the first token, too
                self.costs.observe_draft(one.num_tokens, seconds, one.drafter)
            if one.is_look and one.num_tokens:
                self.costs.observe_look(one.seconds, one.drafter)

    def _request(
        self,
        generation: Generation,
        most: int,
        generations: Sequence[Generation],
        num_cells: int,
    ) -> DraftRequest | None:
        policy, law = generation.draft_length, generation.law
        if generation.is_reading or law.is_forced or policy.waits():  # forced: what comes is known
            return None
        adaptive = self.speculation.adaptive
        load = _load(generation, generations, num_cells) if adaptive else ALONE
        bound = policy.bound(min(generation.max_draft, most), load)
        generation.last_draft_length = policy.length
        generation.stats.paused = policy.paused
        if bound <= 0:
            return None
        sampled = (
            self.speculation.sampling == "probabilistic"
            and not law.is_greedy
            and not law.is_adaptive
        )
        return DraftRequest(
            generation.slot.seq_id,
            generation.slot.tokens.ids,
            bound,
            lambda: law.draft(generation.coins),
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
        chunk = room = 0
        if num_reading:
            used = len(generations) - num_reading + sum(map(len, proposals))
            most = min(self.runner.n_batch, _MICROBATCH) if used else self.runner.n_batch
            room = max(most - used, 1) // num_reading or 1
            longest = max(map(_num_unread, generations))
            chunk = self._prompt_chunk(longest, room)
        blocks = []
        for generation, proposal in zip(generations, proposals, strict=True):
            if num_reading and generation.is_reading:
                blocks.append(_prompt_block(generation, chunk, room))
            else:
                blocks.append(_step_block(generation, proposal))
        return blocks

    def _prompt_chunk(self, longest: int, room: int) -> int:
        """Prompt tokens to read at once; few of a long one until it is known how long they take."""
        most: float = room
        if longest > _PROMPT_CHUNKS[0] or self._reading_speed:
            most = min(room, _CHUNK_S * self._reading_speed)
        within = (n for n in _PROMPT_CHUNKS if n <= most)
        return next(within, _PROMPT_CHUNKS[-1])

    def _settle_prompt(
        self, generation: Generation, block: Block, outputs: BatchOutputs, seconds: float
    ) -> list[Event]:
        generation.slot.num_read += len(block.token_ids)
        if generation.goes_on:
            return []
        generation.timings.prompt_s += seconds
        generation.timings.prompt_tokens += len(block.token_ids)
        num_read = generation.slot.num_read
        events: list[Event] = [
            PromptEvent(num_read, len(generation.prompt), generation.num_cached_prompt)
        ]
        if not generation.is_reading:
            events.append(self._settle_step(generation, block, NO_DRAFT, outputs, is_step=False))
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
        tokens, record = generation.commit(proposal, verdict, rule, law, is_step=is_step)
        read = block.start_pos + len(block.token_ids) - len(proposal.token_ids) + record.accepted
        slot.num_read = min(read, slot.tokens.length)
        if failure is not None:
            generation.finish("error", ("bad_outputs", str(failure)))
        if proposal.token_ids:
            self.drafter.observe_verdict(slot.seq_id, verdict)
        reasoning, text = generation.take_text()
        spans = generation.accepted_spans(text)
        return StepEvent(text, tuple(tokens), record.accepted, reasoning, record.drafted, spans)

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


def _prompt_block(generation: Generation, chunk: int, room: int) -> Block:
    """The next part of a prompt, about ``chunk`` tokens, where a batch has ``room`` for them.

    A largest chunk is cut into parts of which none is smaller than the smallest.
    """
    start, wanted = generation.slot.num_read, generation.reading
    largest, smallest = _PROMPT_CHUNKS[0], _PROMPT_CHUNKS[-1]
    rest = largest - (start - generation.num_cached_prompt) % largest
    rest = min(rest, len(wanted) - start)
    count = min(chunk if rest - chunk >= smallest else rest, room)
    part = wanted[start : start + count]
    gives_row = start + len(part) == len(wanted) and not generation.goes_on
    return Block(generation.slot.seq_id, part, start, num_outputs=int(gives_row))


def _load(generation: Generation, generations: Sequence[Generation], num_cells: int) -> StepLoad:
    """What the step carries beside the draft of one, as decided and seen by now."""
    num_own = generation.slot.num_read
    if len(generations) == 1:
        return StepLoad(num_cells, num_own)
    others = [one for one in generations if one is not generation and not one.is_reading]
    return StepLoad.beside(num_cells, num_own, [one.draft_length.expected for one in others])


def _num_unread(generation: Generation) -> int:
    return len(generation.reading) - generation.slot.num_read


def _step_block(generation: Generation, proposal: Proposal) -> Block:
    slot = generation.slot
    block = slot.tokens.last_and(proposal.token_ids)
    return Block(slot.seq_id, block, slot.tokens.length - 1, len(block))


def _discarded(generations: Sequence[Generation], proposals: Sequence[Proposal]) -> list[Proposal]:
    """No drafts instead of ``proposals``, which count as thrown away."""
    for generation, proposal in zip(generations, proposals, strict=True):
        if proposal.token_ids:
            generation.stats.discard(proposal.drafter, len(proposal))
    return [NO_DRAFT] * len(generations)


def _valid(generation: Generation, proposal: Proposal) -> Proposal:
    """The part of a deterministic draft that the grammar lets stand.

    A sampled draft stays whole: what the grammar forbids is rejected by the ratio test.
    """
    if proposal.distributions is not None:
        return proposal
    count = generation.law.num_valid(proposal.token_ids)
    if count == len(proposal.token_ids):
        return proposal
    discarded = (*proposal.discarded, (proposal.drafter, len(proposal) - count))
    return replace(proposal.cut(count), discarded=discarded)
