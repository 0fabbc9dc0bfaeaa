"""Reading that is broken off in the midst of a decode: the caches, and the answers after it."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tools.toy_session import result_of

from outrider.speculative.batch_outputs import Block
from outrider.speculative.drafters.chain import ChainDrafter
from outrider.speculative.drafters.drafter import DrafterDefaults
from outrider.speculative.engine import Engine
from outrider.speculative.errors import CacheFullError, DecodeStoppedError, EngineError
from outrider.speculative.events import PromptEvent
from outrider.speculative.llama import library, native_context
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model import Model
from outrider.speculative.proposal import DraftRequest, Proposal
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)

ZOO = Path(__file__).parents[1] / "fixtures" / "zoo"
TARGETS = ("target-llama", "target-swa-gemma3", "target-hybrid-lfm2", "target-mtp-qwen35")
SETTINGS = GenerationSettings(SamplingSettings(temp=0, ignore_eos=True), predict=24, seed=1)


def _tokens(count: int, seed: int = 0) -> list[int]:
    """Text-like tokens, none of them a control token."""
    return [int(token) for token in np.random.default_rng(seed).integers(262, 512, count)]


CLEAR_PROMPT = _tokens(40, seed=7)  # no step of the llama's answer is nearer to a tie than 0.3


def _engine(target: str, drafters: Sequence[DrafterSettings] = (), n_ctx: int = 2048) -> Engine:
    model = ModelSettings(ZOO / f"{target}.gguf", ctx_size=n_ctx, threads=1, ubatch_size=32)
    speculation = SpeculationSettings(adaptive=False)
    return Engine.load(EngineSettings(model, tuple(drafters), speculation))


def _fresh(target: str, prompt: Sequence[int]) -> list[int]:
    with _engine(target) as engine:
        return result_of(engine.session().generate(prompt, SETTINGS)).token_ids


def _block(token_ids: Sequence[int], start: int, num_outputs: int) -> Block:
    return Block(0, np.array(token_ids, np.int32), start, num_outputs)


def _stop_after(num_asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let llama.cpp find the flag set when it asks for so many times."""
    left = iter(range(num_asked))
    callback = library().ggml_abort_callback(lambda _flag: next(left, None) is None)
    monkeypatch.setattr(native_context, "is_set_function", lambda: callback)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("num_cached", [0, 200])
@pytest.mark.parametrize("num_asked", [None, 10, 700])
def test_the_cache_is_as_before_or_empty(
    target: str, num_cached: int, num_asked: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off at once by the flag, in the first microbatch, and after some of them."""
    model = Model(ModelSettings(ZOO / f"{target}.gguf"), "target")
    settings = ModelSettings(model.path, threads=1, ubatch_size=32)
    runner = LlamaRunner(model, settings, n_ctx=1024, max_outputs=2, num_snapshots=4)
    cached, more = _tokens(num_cached), _tokens(300, seed=1)
    if cached:
        runner.decode([_block(cached, 0, 0)])
    with monkeypatch.context() as patched:
        if num_asked is None:
            model.native.stop.set()
        else:
            _stop_after(num_asked, patched)
        with pytest.raises(DecodeStoppedError):
            runner.decode([_block(more, num_cached, 1)])
    model.native.stop.clear()
    kept = runner.cached_length(0)
    assert kept == (num_cached if target == "target-llama" else kept)
    assert kept in (0, num_cached)
    rest = _block([*cached, *more][kept:], kept, 1)
    row = runner.decode([rest]).logits(rest)[0].copy()
    runner.truncate(0, 0)
    if kept:
        runner.decode([_block(cached, 0, 0)])
    np.testing.assert_array_equal(row, runner.decode([rest]).logits(rest)[0])
    runner.close()
    model.close()


def test_steps_of_an_answer_are_never_broken_off() -> None:
    model = Model(ModelSettings(ZOO / "target-llama.gguf"), "target")
    runner = LlamaRunner(model, ModelSettings(model.path, threads=1), n_ctx=256, max_outputs=4)
    model.native.stop.set()
    runner.decode([_block(_tokens(4), 0, 4)])
    assert runner.cached_length(0) == 4
    runner.close()
    model.close()


def _stop_while_decoding(session: Session) -> threading.Thread:
    """Cancels from another thread, most likely in the midst of a decode."""
    thread = threading.Timer(0.002, session.cancel)
    thread.start()
    return thread


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("num_events", [0, 1, 2])
def test_the_next_answer_is_that_of_a_fresh_engine(target: str, num_events: int) -> None:
    first, prompt = _tokens(150), _tokens(1300, seed=2)
    with _engine(target) as engine:
        session = engine.session()
        result_of(session.generate(first, SETTINGS))
        events = session.generate([*first, *prompt], SETTINGS)
        for _ in range(num_events):
            assert isinstance(next(events), PromptEvent)
        thread = _stop_while_decoding(session)
        result = result_of(events)
        thread.join()
        assert result.finish_reason == "cancelled"
        assert session.context_used <= len(first) + len(prompt)
        again = result_of(session.generate([*first, 300, *prompt[:600]], SETTINGS))
    assert again.token_ids == _fresh(target, [*first, 300, *prompt[:600]])


def test_a_flag_set_before_the_chunk_breaks_it_off() -> None:
    """What a signal does whose handler ran just before the decode."""
    prompt = _tokens(1300)
    with _engine("target-llama") as engine:
        session = engine.session()
        events = session.generate(prompt, SETTINGS)
        assert next(events) == PromptEvent(64, 1300, 0)
        session._stop.set()
        result = result_of(events)
        assert (result.finish_reason, result.token_ids) == ("cancelled", [])
        assert session.context_used == 64
        again = result_of(session.generate(prompt, SETTINGS))
        assert again.cached_tokens == 64
    assert again.token_ids == _fresh("target-llama", prompt)


def test_a_drafter_that_catches_up_is_broken_off_but_not_dropped() -> None:
    draft = DrafterSettings(
        "draft-simple", model=ModelSettings(ZOO / "draft-simple.gguf", threads=1)
    )
    prompt = _tokens(900)
    with _engine("target-llama", [draft]) as engine:
        session = engine.session()
        for event in (events := session.generate(prompt, SETTINGS)):
            if not isinstance(event, PromptEvent):
                break  # the first token: the drafter has not read anything yet
        session._stop.set()
        result = result_of([*events])
        assert (result.finish_reason, len(result.token_ids)) == ("cancelled", 1)
        assert not session.dropped
        again = result_of(session.generate(prompt, SETTINGS))
        assert again.stats.drafted > 0
        assert not session.dropped
    assert again.token_ids == _fresh("target-llama", prompt)


class _Failing(DrafterDefaults):
    """Fails when asked for the ``number``-th time, or when it sees that batch."""

    name = "failing"
    n_max = 3

    def __init__(self, number: int, error: EngineError, *, observing: bool = False) -> None:
        self._left, self._error, self._observing = number, error, observing

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        if not self._observing:
            self._count()
        return [Proposal((300, 301), drafter=self.name) for _ in requests]

    def observe_batch(self, blocks: object, outputs: object) -> None:
        if self._observing:
            self._count()

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise self._error


@pytest.mark.parametrize("observing", [False, True])
def test_a_drafter_that_fails_is_dropped_and_the_answer_is_the_same(observing: bool) -> None:
    prompt = CLEAR_PROMPT
    with _engine("target-llama", [DrafterSettings("ngram-simple")]) as engine:
        session = engine.session()
        failing = _Failing(4, EngineError("no hidden states"), observing=observing)
        engine._running.drafter = ChainDrafter([failing])
        result = result_of(session.generate(prompt, SETTINGS))
        assert session.dropped == {"failing": "no hidden states"}
        assert result.finish_reason == "length"
        assert result.stats.drafts > 0
    assert result.token_ids == _fresh("target-llama", prompt)


def test_a_full_cache_is_no_reason_to_drop_a_drafter() -> None:
    prompt = CLEAR_PROMPT
    with _engine("target-llama", [DrafterSettings("ngram-simple")]) as engine:
        session = engine.session()
        failing = _Failing(4, CacheFullError("no room"))
        engine._running.drafter = ChainDrafter([failing])
        result = result_of(session.generate(prompt, SETTINGS))
        assert not session.dropped
        assert result.stats.drafts > 10
    assert result.token_ids == _fresh("target-llama", prompt)


def test_drafts_that_do_not_fit_the_shared_cache_are_left_out() -> None:
    """Two slots, and a cache that has room for their next tokens but not for their drafts."""
    settings = replace(SETTINGS, predict=8)
    model = ModelSettings(ZOO / "target-llama.gguf", ctx_size=256, threads=1)
    with Engine.load(
        EngineSettings(
            model,
            (DrafterSettings("ngram-simple"),),
            SpeculationSettings(adaptive=False),
            parallel=2,
        )
    ) as engine:
        idle, session = engine.session(), engine.session()
        result_of(idle.generate(_tokens(150), replace(settings, predict=1)))
        failing = _Failing(0, EngineError(""))
        engine._running.drafter = ChainDrafter([failing])
        # 256 cells: 150 of the other slot, 97 of this prompt, 7 of the answer, and 2 are left
        prompt = _tokens(97, seed=3)
        result = result_of(session.generate(prompt, settings))
        assert result.finish_reason == "length", result.error
        assert result.stats.discarded > 0
        assert result.stats.drafts > 0
    with _engine("target-llama") as engine:
        fresh = result_of(engine.session().generate(prompt, settings))
    assert result.token_ids == fresh.token_ids


def test_ctrl_c_inside_a_native_log_line_is_not_lost() -> None:
    """Python runs the signal's handler in the log callback, which ctypes lets nothing out of."""
    model = Model(ModelSettings(ZOO / "target-llama.gguf"), "target")
    signals = iter([signal.SIGINT])

    class Interrupting(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            for number in signals:
                signal.raise_signal(number)
            return True

    log = logging.getLogger("outrider.llama")
    log.addFilter(interrupting := Interrupting())
    try:
        with pytest.raises(KeyboardInterrupt):
            # a context that is larger than what the model was trained for: a warning
            LlamaRunner(model, ModelSettings(model.path, threads=1), n_ctx=4096)
    finally:
        log.removeFilter(interrupting)
    model.close()
