"""Timing a machine whose times are known, and keeping what was found."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tools.recording_runner import RecordingRunner
from tools.toy_runner import ToyRunner, markov

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.calibration import CostFile, calibrate, is_as_before
from outrider.speculative.settings import EngineSettings, ModelSettings
from outrider.speculative.step_costs import CPU_CURVE, StepCosts


class Machine(RecordingRunner):
    """A toy whose decodes take what ``seconds`` says of their rows, by a clock of its own."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        super().__init__(ToyRunner(markov(16, 1, 1), 16, n_ctx=256, max_outputs=65))
        self.now = 0.0
        self.sizes: list[int] = []
        self._seconds = seconds

    def decode(self, blocks: Sequence[Block]) -> BatchOutputs:
        rows = len(blocks[0].token_ids)
        self.now += self._seconds(rows)
        self.sizes.append(rows)
        return super().decode(blocks)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], Machine]:
    def make(seconds: Callable[[int], float]) -> Machine:
        made = Machine(seconds)
        monkeypatch.setattr(time, "perf_counter", lambda: made.now)
        return made

    return make


Make = Callable[[Callable[[int], float]], Machine]


def test_a_quick_machine_is_measured_whole(machine: Make) -> None:
    runner = machine(lambda rows: 0.0002 + 0.0001 * rows)
    costs = StepCosts(CPU_CURVE)
    calibrate(runner, costs, 65, lambda _stage, _part: None)
    assert costs.verify_s(64)[[0, 1, 3, 7, 15, 64]] == pytest.approx(
        [0.0002 + 0.0001 * rows for rows in (1, 2, 4, 8, 16, 65)]
    )
    assert runner.now < 0.5
    assert runner.cached_length(0) == 0


def test_sizes_that_nobody_can_draft_are_left_out(machine: Make) -> None:
    runner = machine(lambda rows: 0.001 * rows)
    calibrate(runner, StepCosts(), 4, lambda _stage, _part: None)
    assert set(runner.sizes) == {1, 2, 3, 4}


def test_a_slow_machine_is_not_kept_waiting(machine: Make) -> None:
    """A second a row: one decode more than the first, and the assumed curve for the rest."""
    runner = machine(lambda rows: 1.0 * rows)
    costs = StepCosts(CPU_CURVE)
    calibrate(runner, costs, 65, lambda _stage, _part: None)
    assert runner.sizes == [1, 1]
    assert costs.verify_s(3)[[0, 3]] == pytest.approx([1.0, 2.5])


def test_half_a_second_is_kept(machine: Make) -> None:
    for row_s in (0.0001, 0.001, 0.005, 0.02, 0.05):
        runner = machine(row_s.__mul__)
        calibrate(runner, StepCosts(), 65, lambda _stage, _part: None)
        assert runner.now - runner.sizes[0] * row_s < 0.5, row_s


def test_a_neighbour_that_comes_and_goes_is_not_measured(machine: Make) -> None:
    noise = random.Random(4)
    runner = machine(lambda rows: 0.001 * rows * noise.choice((1, 1, 5)))
    costs = StepCosts(CPU_CURVE)
    calibrate(runner, costs, 8, lambda _stage, _part: None)
    assert costs.verify_s(7)[[0, 1, 3, 7]] == pytest.approx([0.001, 0.002, 0.004, 0.008])


@pytest.mark.parametrize(("fourth", "same"), [(2.0, True), (2.2, True), (4.0, False), (1.0, False)])
def test_what_was_kept_is_checked(machine: Make, fourth: float, same: bool) -> None:
    """Kept: four rows cost two plain steps. A machine twice as slow in all is the same."""
    costs = StepCosts(CPU_CURVE)
    costs.calibrate({1: 1.0, 2: 1.5, 4: 2.0})
    runner = machine({1: 2.0, 4: 2 * fourth}.__getitem__)
    assert is_as_before(runner, costs, 65) == same


# the file


@pytest.fixture
def settings(tmp_path: Path) -> EngineSettings:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"x")
    return EngineSettings(ModelSettings(model))


def _costs() -> StepCosts:
    costs = StepCosts(CPU_CURVE)
    costs.calibrate({1: 0.5, 4: 1.5})
    return costs


def test_costs_are_kept(settings: EngineSettings, tmp_path: Path) -> None:
    CostFile(tmp_path / "costs", settings, ["a"]).write(_costs())
    again = StepCosts(CPU_CURVE)
    assert CostFile(tmp_path / "costs", settings, ["a"]).read(again)
    assert again.verify_s(7).tolist() == _costs().verify_s(7).tolist()
    assert [path.suffix for path in (tmp_path / "costs").iterdir()] == [".json"]


def test_other_models_and_settings_have_files_of_their_own(
    settings: EngineSettings, tmp_path: Path
) -> None:
    def path(changed: EngineSettings, kinds: Sequence[str] = ("a",)) -> Path:
        return CostFile(tmp_path, changed, kinds).path

    target = settings.target
    paths = {
        path(settings),
        path(settings, ["b"]),
        path(replace(settings, target=replace(target, threads=7))),
        path(replace(settings, target=replace(target, cache_type_k="q8_0"))),
        path(replace(settings, target=replace(target, gpu_layers=3))),
    }
    target.path.write_bytes(b"another")
    paths.add(path(settings))
    assert len(paths) == 6
    assert path(settings) in paths


@pytest.mark.parametrize("content", ["", "[]", "{", '{"verify_s": {}}', "\x00\xff"])
def test_a_broken_file_is_measured_anew(
    settings: EngineSettings, tmp_path: Path, content: str
) -> None:
    file = CostFile(tmp_path, settings, ["a"])
    file.path.write_text(content, "latin-1")
    assert not file.read(StepCosts())
    file.write(_costs())
    assert file.read(StepCosts())


def test_where_nothing_can_be_written_nothing_is_said(
    settings: EngineSettings, tmp_path: Path
) -> None:
    (tmp_path / "costs").write_text("a file, no folder")
    file = CostFile(tmp_path / "costs", settings, ["a"])
    file.write(_costs())
    assert not file.read(StepCosts())
