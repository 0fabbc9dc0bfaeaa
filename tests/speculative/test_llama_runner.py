"""The runner on real (tiny) models: rows, sequences, rollback, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.errors import EngineError
from outrider.speculative.llama import library
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model import Model
from outrider.speculative.runner import Rollback
from outrider.speculative.settings import ModelSettings

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

ZOO = Path(__file__).parents[1] / "fixtures" / "zoo"
VOCAB_SIZE, WIDTH = 512, 96


class MakeRunner(Protocol):
    def __call__(
        self,
        of: Model | None = None,
        *,
        n_ctx: int = 256,
        n_seq: int = 1,
        max_outputs: int = 1,
        embeddings: bool = False,
        batch_size: int = 2048,
        ubatch_size: int = 512,
        num_snapshots: int = 0,
    ) -> LlamaRunner: ...


def _model(name: str) -> Model:
    return Model(ModelSettings(ZOO / f"{name}.gguf"), "target")


@pytest.fixture(scope="module")
def model() -> Model:
    return _model("target-llama")


@pytest.fixture
def make_runner(model: Model) -> Iterator[MakeRunner]:
    """Makes runners, of the target if of no other model, and closes them."""
    runners: list[LlamaRunner] = []

    def make(
        of: Model | None = None,
        *,
        n_ctx: int = 256,
        n_seq: int = 1,
        max_outputs: int = 1,
        embeddings: bool = False,
        batch_size: int = 2048,
        ubatch_size: int = 512,
        num_snapshots: int = 0,
    ) -> LlamaRunner:
        of = of or model
        settings = ModelSettings(of.path, batch_size=batch_size, ubatch_size=ubatch_size, threads=1)
        runner = LlamaRunner(
            of,
            settings,
            n_ctx=n_ctx,
            n_seq=n_seq,
            max_outputs=max_outputs,
            embeddings=embeddings,
            num_snapshots=num_snapshots,
        )
        runners.append(runner)
        return runner

    yield make
    for runner in runners:
        runner.close()


def _tokens(count: int, seed: int = 0) -> I32:
    """Text-like tokens, none of them a control token."""
    return np.random.default_rng(seed).integers(262, 512, count).astype(np.int32)


def _block(runner: LlamaRunner, seq_id: int, count: int, num_outputs: int, seed: int = 0) -> Block:
    start = runner.cached_length(seq_id)
    return Block(seq_id, _tokens(count, 100 * seed + start + seq_id), start, num_outputs)


def _check_rows(runner: LlamaRunner, blocks: Sequence[Block], outputs: BatchOutputs) -> None:
    """Each row is the one llama.cpp finds by the index of its token in the batch."""
    assert len(outputs) == sum(block.num_outputs for block in blocks)
    end = 0
    for block in blocks:
        end += len(block.token_ids)
        rows = outputs.logits(block)
        assert rows.shape == (block.num_outputs, VOCAB_SIZE)
        for i, row in enumerate(rows):
            by_index = runner._context.logits_of(end - block.num_outputs + i)
            np.testing.assert_array_equal(row, by_index)
    # no row twice: another index would not have gone unseen
    every = np.concatenate([outputs.logits(block) for block in blocks])
    assert len(np.unique(every, axis=0)) == len(every)


def _assert_close(rows: F32, expected: F32) -> None:
    """The same up to the rounding of another batch size; another history is far from it."""
    np.testing.assert_allclose(rows, expected, rtol=0, atol=0.1)


# rows

SHAPES = {
    "all rows": [(0, 30, 30)],
    "the last row": [(0, 30, 1)],
    "some rows": [(0, 30, 7)],
    "no rows": [(0, 30, 0)],
    "two sequences": [(0, 5, 5), (1, 5, 5)],
    "blocks of different length": [(1, 17, 3), (0, 4, 4)],
    "a prompt beside a block": [(2, 50, 1), (0, 4, 4), (1, 2, 1)],
    "a block without rows between": [(0, 3, 3), (2, 40, 0), (1, 6, 2)],
}


@pytest.mark.parametrize("ubatch_size", [512, 8, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_those_llama_cpp_gives_by_index(
    shape: str, ubatch_size: int, make_runner: MakeRunner
) -> None:
    """In several microbatches too, and in decode after decode."""
    runner = make_runner(n_seq=3, max_outputs=40, ubatch_size=ubatch_size)
    for seed, name in enumerate((shape, "two sequences", shape)):
        blocks = [_block(runner, *part, seed=seed) for part in SHAPES[name]]
        before = [runner.cached_length(seq_id) for seq_id in range(3)]
        outputs = runner.decode(blocks)
        if blocks[0].num_outputs or len(blocks) > 1:
            _check_rows(runner, blocks, outputs)
        assert len(outputs) == sum(block.num_outputs for block in blocks)
        for block in blocks:
            before[block.seq_id] += len(block.token_ids)
        assert [runner.cached_length(seq_id) for seq_id in range(3)] == before


def test_it_decodes_what_llama_server_decoded(make_runner: MakeRunner, model: Model) -> None:
    """The answers of llama-server at temperature 0: each token is the argmax, ties aside."""
    runner = make_runner(max_outputs=128)
    num_tokens = num_best = 0
    for line in (ZOO / "prompts.jsonl").read_text().splitlines():
        prompt = json.loads(line)
        answer = prompt["greedy"]["target-llama"]["tokens"]
        token_ids = model.vocabulary.with_bos(
            model.vocabulary.encode(prompt["text"], parse_special=True)
        )
        runner.truncate(0, 0)
        whole = np.array(token_ids + answer[:-1], np.int32)
        block = Block(0, whole, 0, num_outputs=len(answer))
        rows = runner.decode([block]).logits(block)
        gaps = rows.max(axis=1) - rows[np.arange(len(answer)), answer]
        assert gaps.max() < 0.5
        num_tokens += len(answer)
        num_best += int((gaps == 0).sum())
    assert num_tokens > 500
    assert num_best > 0.99 * num_tokens


def test_sequences_do_not_see_each_other(make_runner: MakeRunner) -> None:
    together, alone = make_runner(n_seq=2, max_outputs=8), make_runner(max_outputs=8)
    first, second = Block(0, _tokens(20, 1), 0, 4), Block(1, _tokens(33, 2), 0, 4)
    both = together.decode([first, second])
    rows = both.logits(second).copy(), both.logits(first).copy()
    for block, expected in zip((second, first), rows, strict=True):
        block = replace(block, seq_id=0)
        alone.truncate(0, 0)
        _assert_close(alone.decode([block]).logits(block), expected)


@pytest.mark.parametrize("ubatch_size", [512, 4])
def test_embeddings(ubatch_size: int, make_runner: MakeRunner) -> None:
    runner = make_runner(n_seq=2, embeddings=True, ubatch_size=ubatch_size)
    lib, context = library(), runner._context
    for seed in range(2):
        blocks = [_block(runner, 0, 9, 9, seed), _block(runner, 1, 4, 4, seed)]
        outputs = runner.decode(blocks)
        _check_rows(runner, blocks, outputs)
        states = np.concatenate([outputs.embeddings(block) for block in blocks])
        assert states.shape == (13, WIDTH)
        for i, state in enumerate(states):
            pointer = lib.llama_get_embeddings_ith(context._handle, i)
            np.testing.assert_array_equal(state, np.array(pointer[:WIDTH], np.float32))
        assert len(np.unique(states, axis=0)) == 13


def test_without_embeddings_there_are_none(make_runner: MakeRunner) -> None:
    runner = make_runner()
    block = _block(runner, 0, 4, 1)
    outputs = runner.decode([block])
    with pytest.raises(RuntimeError, match="without embeddings"):
        outputs.embeddings(block)


# outputs are a view, and only of the last decode


def test_outputs_are_a_view(make_runner: MakeRunner) -> None:
    runner = make_runner(max_outputs=8, embeddings=True)
    block = _block(runner, 0, 8, 8)
    outputs = runner.decode([block])
    assert np.shares_memory(outputs.logits(block), outputs.logits(block))
    assert outputs.logits(block).flags.writeable  # else argmax would copy each row
    with pytest.raises(ValueError, match="read-only"):
        outputs.embeddings(block)[0, 0] = 1


def test_stale_outputs_raise(make_runner: MakeRunner) -> None:
    runner = make_runner(embeddings=True)
    block = _block(runner, 0, 4, 4)
    outputs = runner.decode([block])
    runner.truncate(0, 2)
    outputs.logits(block)  # rolling back decodes nothing
    runner.decode([_block(runner, 0, 2, 2)])
    for use in (outputs.logits, outputs.embeddings):
        with pytest.raises(RuntimeError, match="stale"):
            use(block)


def test_outputs_of_a_closed_runner_raise(make_runner: MakeRunner) -> None:
    runner = make_runner()
    block = _block(runner, 0, 4, 1)
    outputs = runner.decode([block])
    runner.close()
    with pytest.raises(RuntimeError, match="stale"):
        outputs.logits(block)


# rollback


@pytest.mark.parametrize("kept", [0, 1, 20, 23])
def test_after_a_rollback_rows_are_those_of_a_fresh_cache(
    kept: int, make_runner: MakeRunner
) -> None:
    used, fresh = make_runner(max_outputs=4), make_runner(max_outputs=4)
    beginning = _tokens(24)
    used.decode([Block(0, beginning, 0, 1)])
    used.decode([Block(0, _tokens(7, seed=5), 24, 4)])
    assert used.truncate(0, kept)
    assert used.cached_length(0) == kept
    block = Block(0, _tokens(4, seed=6), kept, 4)
    rows = used.decode([block]).logits(block)
    if kept:
        fresh.decode([Block(0, beginning[:kept], 0, 1)])
    _assert_close(rows, fresh.decode([block]).logits(block))


def test_rejected_tokens_leave_no_trace(make_runner: MakeRunner) -> None:
    """Two sequences; one draft is taken back, the other sequence stands as it is."""
    used, fresh = (make_runner(n_seq=2, max_outputs=8) for _ in range(2))
    for runner in (used, fresh):
        runner.decode([Block(0, _tokens(20, 1), 0, 1), Block(1, _tokens(9, 2), 0, 1)])
    used.decode([Block(0, _tokens(5, 3), 20, 5)])
    assert used.truncate(0, 20)
    assert (used.cached_length(0), used.cached_length(1)) == (20, 9)
    blocks = [Block(0, _tokens(4, 4), 20, 4), Block(1, _tokens(4, 5), 9, 4)]
    one, other = used.decode(blocks), fresh.decode(blocks)
    for block in blocks:
        np.testing.assert_array_equal(one.logits(block), other.logits(block))


def test_truncating_to_more_than_there_is_changes_nothing(make_runner: MakeRunner) -> None:
    runner = make_runner()
    runner.decode([_block(runner, 0, 6, 1)])
    assert runner.truncate(0, 6)
    assert runner.truncate(0, 100)
    assert runner.cached_length(0) == 6
    with pytest.raises(ValueError, match="-1"):
        runner.truncate(0, -1)
    assert runner.cached_length(0) == 6


@pytest.mark.parametrize("num_snapshots", [0, 2, 4])
def test_a_recurrent_model_goes_back_into_its_last_block(
    make_runner: MakeRunner, num_snapshots: int
) -> None:
    """From snapshots as far as they reach, else from a checkpoint: the rows are as if fresh."""
    hybrid = _model("target-hybrid-lfm2")
    used = make_runner(hybrid, max_outputs=6, num_snapshots=num_snapshots)
    kind = Rollback.BOUNDED if num_snapshots else Rollback.CHECKPOINT
    assert used.rollback is kind
    for kept in range(1, 5):
        used.truncate(0, 0)
        fresh = make_runner(hybrid, max_outputs=6)
        beginning, draft = Block(0, _tokens(24), 0, 1), _tokens(5, 7)
        for runner in (used, fresh):
            runner.decode([beginning])
        used.decode([Block(0, draft, 24, 5)])
        assert used.truncate(0, 24 + kept)
        assert used.cached_length(0) == 24 + kept
        for token in draft[:kept]:
            fresh.decode([Block(0, np.array([token]), fresh.cached_length(0), 1)])
        after = Block(0, _tokens(3, 9), 24 + kept, 3)
        rows, expected = (runner.decode([after]).logits(after) for runner in (used, fresh))
        np.testing.assert_allclose(rows, expected, atol=2e-3)


def test_a_recurrent_model_cannot_go_back_before_its_last_block(make_runner: MakeRunner) -> None:
    runner = make_runner(_model("target-hybrid-lfm2"), max_outputs=4)
    beginning = Block(0, _tokens(24), 0, 1)
    row = runner.decode([beginning]).logits(beginning).copy()
    assert not runner.truncate(0, 23)
    assert runner.cached_length(0) == 0
    np.testing.assert_array_equal(runner.decode([beginning]).logits(beginning), row)


@pytest.mark.parametrize("back", [1, 2, 3])
def test_snapshots_reach_no_further_than_the_last_decode(
    make_runner: MakeRunner, back: int
) -> None:
    """llama.cpp says yes as far as it has snapshots, and hands out those of another text."""
    used, fresh = (
        make_runner(_model("target-hybrid-lfm2"), max_outputs=4, num_snapshots=4) for _ in "12"
    )
    tokens = _tokens(30)
    for start, end in ((0, 26), (26, 28), (28, 30)):
        used.decode([Block(0, tokens[start:end], start, 1)])
    kept = 30 - back
    assert used.truncate(0, kept) == (back < 2)
    assert used.cached_length(0) == (kept if back < 2 else 0)
    start = used.cached_length(0)
    if start:
        fresh.decode([Block(0, tokens[:start], 0, 1)])
    after = Block(0, _tokens(3, 9), start, 3)
    rows, expected = (runner.decode([after]).logits(after) for runner in (used, fresh))
    np.testing.assert_allclose(rows, expected, atol=2e-3)


def test_a_sliding_window_keeps_what_it_still_holds(make_runner: MakeRunner) -> None:
    """Window 24: its cache of 256 cells has overwritten the beginning of 600 tokens."""
    gemma = _model("target-swa-gemma3")
    runner = make_runner(gemma, n_ctx=1024, max_outputs=4, ubatch_size=32)
    tokens = _tokens(600)
    runner.decode([Block(0, tokens, 0, 1)])
    assert runner.rollback is Rollback.TRUNCATE

    assert runner.truncate(0, 590)
    block = Block(0, tokens[590:594], 590, 4)
    rows = runner.decode([block]).logits(block).copy()
    fresh = make_runner(gemma, n_ctx=1024, max_outputs=4, ubatch_size=32)
    fresh.decode([Block(0, tokens[:590], 0, 1)])
    _assert_close(rows, fresh.decode([block]).logits(block))

    assert not runner.truncate(0, 100)
    assert runner.cached_length(0) == 0
    start = Block(0, tokens[:4], 0, 4)
    again = runner.decode([start]).logits(start)
    fresh.truncate(0, 0)
    np.testing.assert_array_equal(again, fresh.decode([start]).logits(start))


# what llama.cpp would assert on


def _ids(*token_ids: int) -> I32:
    return np.array(token_ids, np.int32)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([], "0 tokens"),
        ([Block(0, _ids(), 4, 0)], "0 outputs of 0 tokens"),
        ([Block(0, _ids(300, 301), 4, 3)], "3 outputs of 2 tokens"),
        ([Block(0, _ids(300), 4, -1)], "-1 outputs of 1 tokens"),
        ([Block(-1, _ids(300), 0, 1)], "sequence -1"),
        ([Block(2, _ids(300), 0, 1)], r"sequence 2, there are 0\.\.1"),
        ([Block(0, _ids(300), 4, 1), Block(0, _ids(300), 5, 1)], "two blocks of the same sequence"),
        ([Block(0, _ids(300), 3, 1)], "holds 4 tokens, the block starts at 3"),
        ([Block(0, _ids(300), 5, 1)], "holds 4 tokens, the block starts at 5"),
        ([Block(1, _ids(300), 4, 1)], "holds 0 tokens, the block starts at 4"),
        ([Block(0, _ids(300, 512), 4, 1)], r"token id out of 0\.\.511"),
        ([Block(0, _ids(-1, 300), 4, 1)], r"token id out of 0\.\.511"),
        ([Block(0, _tokens(253), 4, 1)], "257 tokens, the context has 256"),
        ([Block(0, _tokens(9), 4, 9)], "9 outputs, this runner gives 8"),
        ([Block(0, _tokens(5), 4, 5), Block(1, _tokens(4), 0, 4)], "9 outputs"),
        ([Block(0, _tokens(100), 4, 1), Block(1, _tokens(29), 0, 1)], "129 tokens, a batch takes"),
    ],
)
def test_refusals(blocks: list[Block], message: str, make_runner: MakeRunner) -> None:
    """Nothing is decoded, and nothing is lost."""
    runner = make_runner(n_seq=2, max_outputs=8, batch_size=128)
    block = Block(0, _tokens(4), 0, 4)
    outputs = runner.decode([block])
    with pytest.raises(ValueError, match=message):
        runner.decode(blocks)
    assert (runner.cached_length(0), runner.cached_length(1)) == (4, 0)
    _check_rows(runner, [block], outputs)
    runner.decode([Block(0, _tokens(8, seed=1), 4, 8)])


def test_a_context_smaller_than_llama_cpp_makes_them_is_kept_to(make_runner: MakeRunner) -> None:
    """llama.cpp rounds up to 256 cells."""
    runner = make_runner(n_ctx=20)
    assert runner.n_ctx == 20
    with pytest.raises(ValueError, match="21 tokens, the context has 20"):
        runner.decode([Block(0, _tokens(21), 0, 1)])
    runner.decode([Block(0, _tokens(20), 0, 1)])


def test_with_embeddings_every_token_is_an_output(make_runner: MakeRunner) -> None:
    runner = make_runner(embeddings=True)
    with pytest.raises(ValueError, match="every token is an output"):
        runner.decode([Block(0, _tokens(4), 0, 3)])


def test_there_is_a_row_for_each_sequence_at_least(make_runner: MakeRunner) -> None:
    runner = make_runner(n_seq=3)
    assert runner.max_outputs == 3
    runner.decode([Block(seq_id, _tokens(2), 0, 1) for seq_id in range(3)])


# a decode that fails


class Interruption:
    """Ends decodes of ``runner`` at the poll ``after``, or never; counts the polls."""

    def __init__(self, runner: LlamaRunner, after: int | None = None) -> None:
        self.num_polls = 0
        self._after = after
        lib = library()
        self._callback = lib.ggml_abort_callback(self._poll)  # llama.cpp keeps a raw pointer
        lib.llama_set_abort_callback(runner._context._handle, self._callback, None)
        runner._context._obey_stop = lambda obey: None  # type: ignore[method-assign]

    def _poll(self, _data: object) -> bool:
        self.num_polls += 1
        return self._after is not None and self.num_polls > self._after


def test_a_failed_decode_leaves_the_sequences_as_they_were(make_runner: MakeRunner) -> None:
    """Two sequences share 256 cells: the second block finds no room."""
    runner, fresh = (make_runner(n_seq=2, max_outputs=8) for _ in range(2))
    for each in (runner, fresh):
        each.decode([Block(0, _tokens(200), 0, 1), Block(1, _tokens(10), 0, 1)])
    with pytest.raises(EngineError, match=r"no room for 103 more tokens; .*--ctx-size"):
        runner.decode([Block(1, _tokens(100), 10, 1), Block(0, _tokens(3), 200, 3)])
    assert (runner.cached_length(0), runner.cached_length(1)) == (200, 10)
    blocks = [Block(0, _tokens(5, seed=8), 200, 5), Block(1, _tokens(3, seed=9), 10, 3)]
    outputs, expected = runner.decode(blocks), fresh.decode(blocks)
    _check_rows(runner, blocks, outputs)
    for block in blocks:
        np.testing.assert_array_equal(outputs.logits(block), expected.logits(block))


def test_a_decode_cut_short_leaves_nothing_behind(make_runner: MakeRunner) -> None:
    """Of eight microbatches some are in the cache when it ends."""
    runner, fresh = (make_runner(max_outputs=4, ubatch_size=8) for _ in range(2))
    for each in (runner, fresh):
        each.decode([Block(0, _tokens(20), 0, 1)])
    block = Block(0, _tokens(64, seed=1), 20, 1)
    whole = Interruption(fresh)
    fresh.decode([block])
    fresh.truncate(0, 20)
    half = Interruption(runner, after=whole.num_polls // 2)
    with pytest.raises(EngineError, match="reading 64 tokens was broken off"):
        runner.decode([block])
    assert runner.cached_length(0) == 20
    assert runner._context.last_position(0) == 19
    assert half.num_polls > 100
    never = Interruption(runner)
    block = Block(0, _tokens(4, seed=2), 20, 4)
    _check_rows(runner, [block], outputs := runner.decode([block]))
    np.testing.assert_array_equal(outputs.logits(block), fresh.decode([block]).logits(block))
    assert never.num_polls


def test_outputs_before_a_failed_decode_are_stale(make_runner: MakeRunner) -> None:
    runner = make_runner(n_seq=2)
    block = Block(0, _tokens(200), 0, 1)
    outputs = runner.decode([block])
    with pytest.raises(EngineError):
        runner.decode([Block(1, _tokens(100), 0, 1)])
    with pytest.raises(RuntimeError, match="stale"):
        outputs.logits(block)
