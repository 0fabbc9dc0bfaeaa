"""Break-even: the glossary's definitions on known times, and real batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from outrider.cli.bench.arm import Arm, arm_of
from outrider.cli.bench.break_even import Drafts, LengthCost, break_even, verify_times
from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.runner import Runner


def test_the_example_of_the_screens() -> None:
    """Costs, needs, has and gain as in the table of /spec."""
    one = LengthCost(length=1, step_cost=1.21, has=0.81)
    assert (round(one.needs, 2), round(one.gain or 0, 2)) == (0.21, 1.50)
    four = LengthCost(length=4, step_cost=2.04, has=0.56)
    assert (round(four.needs, 2), round(four.gain or 0, 2)) == (0.26, 1.59)


def test_a_step_is_its_batch_and_its_drafts() -> None:
    """One row 10 ms, five rows 16 ms, four draft tokens of 1 ms: 20 ms, twice a plain step."""
    verify_s = {1: 0.010, 3: 0.013, 5: 0.016}
    drafts = {4: Drafts(drafted=40, accepted=30, token_s=0.001), 2: Drafts()}
    made = break_even("draft-simple", verify_s, 0.0035, drafts)
    two, four = made.lengths
    assert four.length == 4
    assert four.step_cost == pytest.approx(2.0)
    assert four.needs == pytest.approx(0.25)
    assert four.has == 0.75
    assert four.gain == pytest.approx(2.0)
    # nothing was drafted at 2: the price of a token at other lengths, and nothing it has
    assert two.step_cost == pytest.approx((0.013 + 2 * 0.0035) / 0.010)
    assert (two.has, two.gain) == (None, None)
    assert made.as_json()["verify_cost"] == pytest.approx({"1": 1.0, "3": 1.3, "5": 1.6})


def test_exactly_what_is_needed_is_plain_speed() -> None:
    needs = LengthCost(length=3, step_cost=1.9).needs
    assert LengthCost(length=3, step_cost=1.9, has=needs).gain == pytest.approx(1.0)


def test_batches_of_all_sizes_are_timed_and_leave_no_trace(zoo: Path) -> None:
    flags = {
        "target.model": {"source": str(zoo / "target-llama.gguf")},
        "target.threads": 1,
        "target.ctx_size": 256,
        "drafter.kinds": ("filler",),
        "sampling.temp": 0.0,
    }
    sizes: list[int] = []
    with Arm("A", arm_of(None, flags)) as arm:
        prompt = arm.encode([{"role": "user", "content": "Count from 2 to 9."}])
        before = arm.answer(prompt, arm.settings(prompt, predict=20))
        held: list[Runner] = []

        def hold(runner: Runner) -> Runner:
            held.append(runner)
            return runner

        arm.engine.wrap_runner(hold)
        [runner] = held
        cached = runner.cached_length(0)
        decode = runner.decode

        def watched(blocks: Sequence[Block]) -> BatchOutputs:
            sizes.extend(len(block.token_ids) for block in blocks)
            return decode(blocks)

        runner.decode = watched  # type: ignore[method-assign]
        made = verify_times(arm.engine.time_batch, [1, 2, 5])
        assert runner.cached_length(0) == cached
        after = arm.answer(prompt, arm.settings(prompt, predict=20))
    assert list(made) == [1, 2, 5]
    assert all(seconds > 0 for seconds in made.values())
    assert sizes[:6] == [1, 2, 5, 1, 2, 5]  # in turn
    assert after.token_ids == before.token_ids
