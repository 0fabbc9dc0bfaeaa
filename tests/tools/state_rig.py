"""A target and a drafter that reads it, driven by hand as the scheduler drives them.

The test decides what is committed, not the models: any draft may be accepted, by any count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tools.gguf_edit import GgufEdit
from tools.witness import model_settings
from tools.zoo_pairs import Pair

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.drafters.build import Site, build_chain, plan
from outrider.speculative.drafters.dflash import DflashDrafter
from outrider.speculative.drafters.draft_context import DraftContext, Part
from outrider.speculative.drafters.state_drafter import StateDrafter
from outrider.speculative.law import DraftLaw, TokenLaw
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model_store import ModelStore
from outrider.speculative.proposal import DraftRequest
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import (
    DrafterSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)
from outrider.speculative.token_sequence import common_prefix_length
from outrider.speculative.uniforms import Coins, Uniforms

F32 = NDArray[np.float32]

N_MAX = 4


@dataclass(frozen=True, slots=True, eq=False)
class Drafted:
    """A draft and the rows it was read from."""

    token_ids: tuple[int, ...]
    rows: F32


class SeenLaw(DraftLaw):
    """A greedy law that keeps the rows it was asked about."""

    def __init__(self) -> None:
        super().__init__(TokenLaw(Sampler(SamplingSettings(temp=0))), Coins(Uniforms(0), 0))
        self.rows: list[F32] = []

    def argmax(self, row: F32, history: NDArray[np.int32]) -> int | None:
        self.rows.append(row.copy())
        return super().argmax(row, history)

    def begin(self) -> SeenLaw:
        return self


class CountingContext(DraftContext):
    """Notes for each decode which sequences had how many entries, and whether rows came out."""

    def __init__(self, context: DraftContext) -> None:
        super().__init__(context._native, context._hidden_width, context.max_length)
        self.decodes: list[tuple[dict[int, int], bool]] = []

    def decode(self, parts: Sequence[Part], *, outputs: bool) -> None:
        self.decodes.append(({part.seq_id: len(part) for part in parts}, outputs))
        super().decode(parts, outputs=outputs)


class StateRig:
    """One target context with ``n_seq`` sequences, its drafter, and a second drafter like it.

    ``texts`` are the committed tokens, of which the newest is not decoded. The second drafter
    is what the first is compared with: it is emptied each time and given the rows anew.
    """

    def __init__(self, target: ModelSettings, drafter: DrafterSettings, *, n_seq: int = 1) -> None:
        """Load them; see :func:`exact_settings`."""
        self._models = ModelStore(lambda _role, _fraction: None)
        has_own_heads = drafter.kind == "draft-mtp" and drafter.model is None
        model = self._models.get(target, "target", load_heads=has_own_heads)
        way = SpeculationSettings(adaptive=False, n_max=N_MAX)
        drafting = plan(drafter, way, target.path)
        self.runner = LlamaRunner(
            model,
            target,
            n_ctx=target.ctx_size,
            n_seq=n_seq,
            max_outputs=n_seq * (1 + N_MAX),
            taps=drafting.taps,
            num_snapshots=N_MAX,
        )
        site = Site(self.runner, self._models, n_seq)
        self._chains = [build_chain([drafting], site) for _ in range(2)]
        self.drafter, self._second = (_state_drafter(chain.members[0]) for chain in self._chains)
        self.context = CountingContext(self.drafter._context)
        self.drafter._context = self.context
        self.texts: list[list[int]] = [[] for _ in range(n_seq)]
        # the newest row that the target computed for each position
        self._rows: list[dict[int, F32]] = [{} for _ in range(n_seq)]
        self._cached: list[list[int]] = [[] for _ in range(n_seq)]

    def close(self) -> None:
        for chain in self._chains:
            chain.close()
        self.runner.close()
        self._models.close()

    # what can happen to a sequence

    def decode(self, blocks: Sequence[Block], *, is_seen: bool = True) -> None:
        """A target decode, which the drafter sees or (attached later) does not."""
        outputs = self.runner.decode(blocks)
        for block in blocks:
            self._cached[block.seq_id] += block.token_ids.tolist()
        if is_seen:
            self.drafter.observe_batch(blocks, outputs)
        self._note(blocks, outputs)

    def prompt(
        self,
        tokens: Sequence[int],
        first: int,
        *,
        piece: int = 512,
        seq: int = 0,
        is_seen: bool = True,
    ) -> None:
        """A prompt is read, as far as it is not cached, and answered by ``first``."""
        self.begin(tokens, seq=seq)
        while block := self.prompt_block(tokens, piece, seq=seq):
            self.decode([block], is_seen=is_seen)
        self.texts[seq] = [*tokens, first]

    def reset(self, seq: int = 0) -> None:
        """A new chat."""
        self.texts[seq] = []
        self.runner.truncate(seq, 0)
        self.drafter.forget(seq)
        self._cached[seq] = []

    def begin(self, tokens: Sequence[int], *, seq: int = 0) -> None:
        """Keep what is cached of a prompt."""
        cached = np.array(self._cached[seq], np.int32)
        shared = common_prefix_length(cached, np.array(tokens, np.int32))
        self._truncate(seq, min(shared, len(tokens) - 1))

    def prompt_block(self, tokens: Sequence[int], piece: int, *, seq: int = 0) -> Block | None:
        """The next piece of a prompt that is being read."""
        start = len(self._cached[seq])
        part = np.array(tokens[start : start + piece], np.int32)
        is_last = start + piece >= len(tokens)
        return Block(seq, part, start, num_outputs=int(is_last)) if len(part) else None

    def step_block(self, draft: Sequence[int], *, seq: int = 0) -> Block:
        text = self.texts[seq]
        tokens = np.array([text[-1], *draft], np.int32)
        return Block(seq, tokens, len(text) - 1, num_outputs=len(tokens))

    def step(self, draft: Sequence[int], accepted: int, own: int, *, seq: int = 0) -> None:
        """A step that keeps ``accepted`` tokens of a draft and adds ``own``."""
        self.decode([self.step_block(draft, seq=seq)])
        self.settle(draft, accepted, own, seq=seq)

    def settle(self, draft: Sequence[int], accepted: int, own: int, *, seq: int = 0) -> None:
        """What follows a decode: the accepted tokens are committed, the others cut off."""
        self.texts[seq] += [*draft[:accepted], own]
        self._truncate(seq, len(self.texts[seq]) - 1)

    # what is drafted

    def draft(self, length: int = N_MAX) -> Drafted:
        """The draft of sequence 0."""
        return self.drafts({0: length})[0]

    def drafts(self, lengths: Mapping[int, int]) -> dict[int, Drafted]:
        """The drafts of several sequences, all asked for at once in the order given."""
        return self._draft(self.drafter, {seq: self.texts[seq] for seq in lengths}, lengths)

    def fresh_draft(self, seq: int = 0, *, first: int = 0, length: int = N_MAX) -> Drafted:
        """The same of an empty drafter that is given the target's rows from ``first`` on."""
        second, text = self._second, self.texts[seq]
        second.forget(0)
        end = len(text) - 1
        rows = np.array([self._rows[seq][position] for position in range(first, end)])
        # more than its ring takes is read in two parts
        half = first + 400
        if end > half:
            second._mirror(0).ring.write(first, [rows[:400]])
            self._draft(second, {0: text[: half + 1]}, {0: 1})
            second._mirror(0).ring.write(half, [rows[400:]])
        else:
            second._mirror(0).ring.write(first, [rows])
        return self._draft(second, {0: text}, {0: length})[0]

    def check_rows(self, seq: int = 0) -> None:
        """The rows of the text are those of a fresh target that reads it at once."""
        text = self.texts[seq][:-1]
        runner = LlamaRunner(
            self.runner.model,
            self.runner.settings,
            n_ctx=self.runner.n_ctx,
            taps=self.runner.taps,
            num_snapshots=self.runner.num_snapshots,
        )
        block = Block(0, np.array(text, np.int32), 0, num_outputs=1)
        expected = _states(runner.decode([block]), block, self.drafter.taps)
        found = np.array([self._rows[seq][position] for position in range(len(text))])
        np.testing.assert_allclose(found, expected, atol=1e-3)
        runner.close()

    def _draft(
        self, drafter: StateDrafter, texts: Mapping[int, list[int]], lengths: Mapping[int, int]
    ) -> dict[int, Drafted]:
        laws = {seq: SeenLaw() for seq in texts}
        proposals = drafter.propose(
            [
                DraftRequest(seq, np.array(text, np.int32), lengths[seq], laws[seq].begin)
                for seq, text in texts.items()
            ]
        )
        rows = {seq: np.array(law.rows) for seq, law in laws.items()}
        has_scores = isinstance(drafter, DflashDrafter) and drafter._shape.lattice
        if has_scores and any(map(len, proposals)):
            # no logits come out: the scores it walks through
            block = max(lengths.values()) + 1
            hidden = drafter._context.hidden(len(texts) * block).reshape(len(texts), block, -1)
            rows = {seq: hidden[i].copy() for i, seq in enumerate(texts)}
        return {
            seq: Drafted(proposal.token_ids, rows[seq])
            for seq, proposal in zip(texts, proposals, strict=True)
        }

    def _truncate(self, seq: int, length: int) -> None:
        if not self.runner.truncate(seq, length):
            self._cached[seq] = []
        del self._cached[seq][length:]
        if not self._cached[seq] and self.texts[seq]:
            # a recurrent target that cannot go back so far: read again
            text = self.texts[seq][:length]
            for start in range(0, len(text), 512):
                part = np.array(text[start : start + 512], np.int32)
                self.decode([Block(seq, part, start, num_outputs=0)])

    def _note(self, blocks: Sequence[Block], outputs: BatchOutputs) -> None:
        for block in blocks:
            for i, row in enumerate(_states(outputs, block, self.drafter.taps)):
                self._rows[block.seq_id][block.start_pos + i] = row


def exact_settings(pair: Pair, folder: Path, n_ctx: int) -> tuple[ModelSettings, DrafterSettings]:
    """The target and the drafter of a pair; ``folder`` keeps their files with exact weights."""
    target, drafter = _exact(model_settings(pair.target, n_ctx), folder), pair.drafter
    if drafter.model is not None:
        drafter = replace(drafter, model=_exact(drafter.model, folder))
    return target, drafter


def _exact(settings: ModelSettings, folder: Path) -> ModelSettings:
    """Without what makes a number depend on the batch it was computed in.

    Rounded to 16 bits, in a cache or on the way to a product with such weights, a last bit of
    float32 becomes one of float16; and flash attention adds up in another way from 64 rows on.
    """
    path = folder / settings.path.name
    if not path.exists():
        GgufEdit(settings.path).widen().write(path)
    return replace(settings, path=path, cache_type_k="f32", cache_type_v="f32", flash_attn="off")


def _state_drafter(member: object) -> StateDrafter:
    assert isinstance(member, StateDrafter)
    return member


def _states(outputs: BatchOutputs, block: Block, taps: Sequence[int]) -> F32:
    return np.concatenate([outputs.states(block, tap) for tap in taps], axis=1)


def assert_same_draft(found: Drafted, expected: Drafted) -> None:
    """Rows within 1e-3 as far as both drafts went the same way: they part only at a tie.

    ``found`` may be shorter.
    """
    assert len(found.token_ids)
    assert len(found.token_ids) <= len(expected.token_ids)
    for i, (row, fresh) in enumerate(zip(found.rows, expected.rows, strict=False)):
        if found.token_ids[:i] != expected.token_ids[:i]:
            return
        np.testing.assert_allclose(row, fresh, atol=1e-3, rtol=0)
