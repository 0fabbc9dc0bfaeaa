from __future__ import annotations

import pytest

from outrider.cli.batch.progress import BatchProgress
from outrider.cli.glyphs import ASCII, UNICODE
from outrider.speculative.events import GenerationResult
from outrider.speculative.statistics import SpeculationStats, StepRecord, Timings


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def answered(drafted: int, accepted: int) -> GenerationResult:
    stats = SpeculationStats()
    stats.observe(StepRecord(drafted, accepted, 1, "match", "d"))
    return GenerationResult("", [], "stop", 0, 0, stats, Timings(), 0)


@pytest.fixture
def progress() -> BatchProgress:
    """41 of 64 done in 48 s, 4,622 tokens after the first ones."""
    clock = Clock()
    made = BatchProgress(64, 4, clock=clock)
    assert made.is_due()
    for _ in range(4):
        made.emitted(1, is_first=True)
    clock.now += 48
    made.emitted(4622, is_first=False)
    for _ in range(41):
        made.ended(answered(100, 61))
    return made


def test_the_row_while_it_runs(progress: BatchProgress) -> None:
    # 4,622 tokens in 48 s; 41 took 48 s, 23 take 27 s
    row = progress.row(100, UNICODE)
    bar = "█████████████░░░░░░░"
    assert row == f"41 of 64  {bar}  64 %  4 slots  96.3 tok/s  acc .61  0:27 left"
    assert progress.row(40, ASCII) == "41/64 96.3 tok/s acc .61"


def test_the_last_line(progress: BatchProgress) -> None:
    progress.failed('line 17: no "prompt"')
    assert (
        progress.summary(UNICODE)
        == '41 done, 1 failed (line 17: no "prompt") · 96.3 tok/s · acceptance 0.61'
    )


def test_nothing_is_known_before_the_first_token() -> None:
    fresh = BatchProgress(2, 1, skipped=3)
    assert fresh.row(100, UNICODE) == f"0 of 2  {20 * '░'}   0 %  1 slot  – tok/s  acc –"
    assert fresh.summary(UNICODE) == "0 done, 3 were there already"


def test_the_row_is_due_four_times_a_second() -> None:
    clock = Clock()
    progress = BatchProgress(2, 1, clock=clock)
    due = []
    for _ in range(10):
        due.append(progress.is_due())
        clock.now += 0.1
    assert due == [True, False, False, True, False, False, True, False, False, True]
