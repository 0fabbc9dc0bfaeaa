"""`outrider doctor`: its rules on made-up figures, and whole runs on tiny models."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.program import COMMAND, environment, outrider, outrider_here
from tools.terminal import Terminal

from outrider.cli.bench.arm import arm_of
from outrider.cli.bench.break_even import BreakEven
from outrider.cli.doctor import neighbours
from outrider.cli.doctor.advice import advise, advise_smaller
from outrider.cli.doctor.cost_curve import CostCurve, measure_curve
from outrider.cli.doctor.diagnosis import Diagnosis, break_evens
from outrider.cli.doctor.draft_cost import N_GRAM, DraftCost, draft_costs
from outrider.cli.doctor.memory import MemoryNeed
from outrider.cli.doctor.neighbours import CoreTime, others_share
from outrider.cli.doctor.processor import Processor, examine_processor, feature_words
from outrider.cli.doctor.step_times import StepTimes, Turn
from outrider.cli.doctor.view import doctor_lines, quiet_words
from outrider.cli.glyphs import ASCII, UNICODE
from outrider.cli.local_drafters import LocalDrafter, local_drafters
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.model_facts import ModelFacts
from outrider.speculative.settings import DrafterSettings, SpeculationSettings

MIB = 2**20
# the figures of the screen that was designed: a step of one row takes 14.8 ms
COSTS = {1: 1.0, 2: 1.7, 4: 2.6, 8: 5.0, 16: 8.8}
CURVE = CostCurve({rows: (0.0148 * cost,) * 5 for rows, cost in COSTS.items()})
PROCESSOR = Processor(2, 2, ("AVX2", "FMA"), ())
MEMORY = MemoryNeed(94_000_000, 180 * MIB, 62 * MIB, 17 * 2**30, 23 * 2**30, is_allocated=True)
# so that a draft of 1, 3, 7, 15 needs 0.78, 0.61, 0.65, 0.60
EAGLE3 = DraftCost(
    "draft-eagle3",
    {
        1: 0.0148 * (0.78 - 0.7),
        3: 0.0148 * (3 * 0.61 - 1.6),
        7: 0.0148 * (7 * 0.65 - 4.0),
        15: 0.0148 * (15 * 0.60 - 7.8),
    },
)
FREE = DraftCost(N_GRAM, {1: 0.0, 15: 0.0})


@pytest.fixture
def diagnosis(zoo: Path) -> Diagnosis:
    costs = break_evens(CURVE, [FREE, EAGLE3])
    return Diagnosis(
        profile="smollm2",
        facts=ModelFacts.read(zoo / "target-llama.gguf"),
        n_ctx=4096,
        processor=PROCESSOR,
        memory=MEMORY,
        curve=CURVE,
        far=None,
        break_even=costs,
        drafters=(LocalDrafter(zoo / "draft-simple.gguf", "draft-simple", in_profile=False),),
        advice=advise(arm_of("smollm2", {}), PROCESSOR, costs),
    )


# --- what is shown


def test_the_screen(diagnosis: Diagnosis) -> None:
    assert doctor_lines(diagnosis, UNICODE, 80) == [
        "machine   2 cores, AVX2 FMA, build uses both   17 of 23 GiB free   2 threads: ok",
        "model     smollm2   file 94 MB + cache 180 MiB + buffers 62 MiB   fits",
        "quiet     yes, repeats differ by 0 %",
        "rows in one step         1     2     4     8    16",
        "verify cost           1.00  1.70  2.60  5.00  8.80  1.00 = 14.8 ms",
        "draft length             –     1     3     7    15",
        "needs, n-gram            –  0.70  0.53  0.57  0.52",
        "needs, draft-eagle3      –  0.78  0.61  0.65  0.60",
        "drafters  draft-simple.gguf (draft-simple)",
        "Speculation pays here from an acceptance of about 0.53 on, with short drafts.",
        "Code and quoted text reach that, free prose seldom. Try:",
        "  outrider chat -P smollm2 --spec-type ngram-edit",
    ]


def test_a_narrow_terminal_has_each_check_on_two_lines(diagnosis: Diagnosis) -> None:
    lines = doctor_lines(diagnosis, ASCII, 40)
    assert lines[:4] == [
        "machine",
        "  2 cores, AVX2 FMA, build uses both",
        "  17 of 23 GiB free   2 threads: ok",
        "model",
    ]
    assert "rows in one step         1     2     4" in lines
    assert all(len(line) <= 40 for line in lines if not line.startswith("  outrider"))
    assert all(line.isascii() for line in lines)


def test_a_restless_machine_gets_no_recommendation_and_says_so(diagnosis: Diagnosis) -> None:
    times = {1: (1.0, 1.19, 1.0, 1.19, 1.0, 1.19)}
    restless = CostCurve(times)
    assert not restless.is_quiet
    lines = doctor_lines(replace(diagnosis, curve=restless, advice=None), UNICODE, 80)
    assert "quiet     no, repeats differ by 17 %: figures below may be wrong" in lines
    assert not any("Try" in line for line in lines)


def test_what_is_not_measured_is_a_dash(diagnosis: Diagnosis) -> None:
    short = replace(EAGLE3, draft_s={1: EAGLE3.draft_s[1], 3: EAGLE3.draft_s[3]})
    far = CostCurve({1: (0.02,), 4: (0.05,)}, depth=2048)
    lines = doctor_lines(
        replace(diagnosis, far=far, break_even=break_evens(CURVE, [FREE, short])), UNICODE, 80
    )
    assert "needs, draft-eagle3      –  0.78  0.61     –     –" in lines
    assert "behind 2,048 tokens   1.00     –  2.50     –     –  1.00 = 20.0 ms" in lines


def test_json_has_everything(diagnosis: Diagnosis) -> None:
    made = diagnosis.as_json({"cpu": "x"}, {"outrider": "0"})
    again = json.loads(json.dumps(made))
    assert [*again] == [
        "schema",
        "machine",
        "build",
        "model",
        "memory",
        "quiet",
        "cost_curve",
        "break_even",
        "drafters",
        "recommendation",
    ]
    assert again["quiet"] == {"quiet": True, "spread": 0.0, "others": None, "limit": 0.10}
    needs = {one["length"]: one["needs"] for one in again["break_even"][1]["lengths"]}
    assert needs == pytest.approx({1: 0.78, 3: 0.61, 7: 0.65, 15: 0.60})
    assert again["recommendation"]["command"].startswith("outrider chat")


# --- what is recommended


def flat(per_row: float) -> list[BreakEven]:
    """Break-even where each row more costs ``per_row`` of the first: every length needs that."""
    curve = CostCurve({rows: (1 + per_row * (rows - 1),) for rows in (1, 2, 4, 8)})
    return list(break_evens(curve, [FREE]))


@pytest.mark.parametrize(
    ("per_row", "command", "word"),
    [
        (0.95, "outrider chat -P smollm2 --spec-type none", "does not pay"),
        (0.60, "outrider chat -P smollm2 --spec-type ngram-edit", "free prose seldom"),
        (0.10, "outrider chat -P smollm2 --spec-type ngram-edit", "with ease"),
    ],
)
def test_the_recommendation_follows_the_cost(per_row: float, command: str, word: str) -> None:
    advice = advise(arm_of("smollm2", {}), PROCESSOR, flat(per_row))
    assert advice is not None
    assert advice.command == command
    assert word in " ".join(advice.words)


def test_a_draft_model_that_prose_can_feed_is_recommended() -> None:
    curve = CostCurve({rows: (1 + 0.05 * (rows - 1),) for rows in (1, 2, 4, 8)})
    cheap = DraftCost("draft-eagle3", {1: 0.1, 7: 0.7})
    advice = advise(arm_of("smollm2", {}), PROCESSOR, break_evens(curve, [FREE, cheap]))
    assert advice is not None
    assert advice.command == "outrider chat -P smollm2"
    assert "0.15 on with draft-eagle3, 0.05 without" in advice.words[0]


def test_the_command_keeps_what_was_asked_for_and_mends_the_threads(zoo: Path) -> None:
    model = str(zoo / "target-llama.gguf")
    given = {"target.threads": 9, "target.ctx_size": 512, "sampling.temp": 0.0}
    spec = arm_of(None, given | {"target.model": _source(model), "drafter.kinds": ("ngram-mod",)})
    advice = advise(spec, replace(PROCESSOR, threads=9), flat(0.95))
    assert advice is not None
    assert advice.command == f"outrider chat -t 2 -c 512 -m {model} --spec-type none"
    assert advise_smaller(spec, 256).command.startswith("outrider chat -t 9 -c 256 ")


def _source(text: str) -> Any:
    from outrider.profiles.model_source import ModelSource

    return ModelSource(text)


# --- how it is measured


class SlowModel:
    """Takes a second for each row, by a clock of its own, two right after another size.

    The first decode of a size takes 9.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.asked: list[int] = []
        monkeypatch.setattr("outrider.cli.doctor.cost_curve.time.perf_counter", lambda: self.now)

    def time_batch(self, rows: int) -> float:
        seconds = float(9 * rows)
        if rows in self.asked:
            seconds = float(rows if rows == self.asked[-1] else 2 * rows)
        self.asked.append(rows)
        self.now += seconds
        return seconds


def test_sizes_take_turns_and_the_first_decode_of_a_turn_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = SlowModel(monkeypatch)
    curve = measure_curve(model.time_batch, 5, 1000.0)
    assert [*curve.times] == [1, 2, 3, 4, 5]
    assert all(seconds == (rows,) * len(seconds) for rows, seconds in curve.times.items())
    assert model.asked[:5] == [1, 2, 4, 3, 5]
    assert model.asked[5:35] == [1, 1, 1, 2, 2, 2, 4, 4, 4, 3, 3, 3, 5, 5, 5] * 2
    assert curve.cost(4) == 4.0


def test_a_slow_model_does_not_get_to_the_larger_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SlowModel(monkeypatch)
    curve = measure_curve(model.time_batch, 64, 100.0)
    # 1 and 2 rows take 27 seconds, more than the quarter that the first decodes get
    assert [*curve.times] == [1, 2]
    assert model.now == pytest.approx(100.0, abs=8)
    slower = SlowModel(monkeypatch)
    few = measure_curve(slower.time_batch, 64, 4.0)
    assert [len(seconds) for seconds in few.times.values()] == [4]


def test_a_single_interruption_is_no_restlessness_a_neighbour_is() -> None:
    repeats = [1.0, 1.01, 0.99, 1.0, 1.02, 1.01, 1.0, 0.99]
    once = [*repeats[:-1], 30.0]
    by_turns = [a * b for a, b in zip(repeats, itertools.cycle((1.0, 1.5)), strict=False)]
    assert CostCurve({1: tuple(once), 2: tuple(repeats)}).is_quiet
    assert not CostCurve({1: tuple(by_turns), 2: tuple(by_turns)}).is_quiet
    assert CostCurve({1: (1.0,)}).spread is None
    assert not CostCurve({1: (1.0,)}).is_quiet


def test_a_neighbour_that_slows_every_repeat_is_seen_too() -> None:
    steady = {1: (1.0,) * 5, 2: (2.0,) * 5}
    assert CostCurve(steady, others=0.09).is_quiet
    noisy = CostCurve(steady, others=0.38)
    assert not noisy.is_quiet
    words = "no, other programs use 38 % of the cores: figures below may be wrong"
    assert quiet_words(noisy) == words


def test_the_work_of_others_is_all_work_but_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  900 900 900 900 0 0 0 0 0 0\n"
        "cpu0 100 20 30 5000 7 1 2 3 0 0\n"
        "cpu1 9000 0 0 0 0 0 0 0 0 0\n"  # not one of ours
    )
    monkeypatch.setattr(neighbours, "_STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    now = CoreTime.now()
    assert now is not None
    assert now.busy_s == pytest.approx(1.56)
    assert now.cores == 1
    before, after = CoreTime(10.0, 1.0, 100.0, 2), CoreTime(17.0, 4.0, 105.0, 2)
    assert others_share(before, after) == pytest.approx(0.4)  # 4 of 10 seconds
    assert others_share(None, after) is None
    monkeypatch.setattr(neighbours, "_STAT", tmp_path / "none")
    assert CoreTime.now() is None


def test_the_cost_of_a_draft_lies_on_lines_between_the_measured_lengths() -> None:
    cost = DraftCost("x", {1: 2.0, 3: 3.0})
    token_s = {length: drafts.token_s for length, drafts in cost.drafts([1, 2, 3, 4]).items()}
    assert token_s == {1: 2.0, 2: 1.25, 3: 1.0}


def test_n_gram_drafts_cost_the_same_however_long() -> None:
    cost = DraftCost(N_GRAM, {1: 2.0, 3: 3.0})
    assert {n: one.token_s for n, one in cost.drafts([3, 6]).items()} == {3: 1.0, 6: 0.5}


def test_the_cost_of_a_drafter_is_its_drafting_and_how_much_it_slows_the_decode() -> None:
    # three turns of each way, the machine half as fast in the second; a plain step takes 10 s
    moods = (1.0, 2.0, 1.0)

    def turns(length: int, name: str, decode_s: float, host_s: float) -> StepTimes:
        drafters = (DrafterSettings("filler"),) if length else ()
        taken = [Turn(mood * decode_s, mood * host_s) for mood in moods]
        return StepTimes(SpeculationSettings(n_max=length), drafters, name, taken)

    plain = turns(0, "", 9.0, 1.0)
    rounds = [
        (plain, turns(3, "", 30.0, 1.5), turns(3, "head", 36.0, 4.5)),
        (plain, turns(1, "", 20.0, 1.5), turns(1, "head", 22.0, 2.5)),
        (plain, turns(7, "", 40.0, 1.5), turns(7, "head", 44.0, 6.5)),
    ]
    rounds[1][2].turns[0] = Turn(80.0, 9.0)  # interrupted for once: no part of it is believed
    n_gram, head = draft_costs(rounds, 0.01)
    assert (n_gram.drafter, head.drafter) == (N_GRAM, "head")
    assert n_gram.draft_s == pytest.approx({3: 0.0005, 1: 0.0005, 7: 0.0005})
    # of the decodes, a tenth longer (36 of 30 and 80 of 20 are not in the middle)
    assert head.draft_s == pytest.approx(
        {3: 0.0035 + 0.1 * 0.03, 1: 0.0015 + 0.1 * 0.02, 7: 0.0055 + 0.1 * 0.04}
    )


def test_the_time_beside_the_decode_is_a_part_of_every_step() -> None:
    curve = CostCurve({1: (1.0,), 2: (1.5,)})
    drafter = DraftCost("x", {1: 0.2})
    (one,) = break_evens(curve, [drafter], host_s=0.1)
    # (1.5 + 0.1 + 0.2) / (1.0 + 0.1) - 1
    assert one.lengths[0].needs == pytest.approx(0.7 / 1.1)


# --- the machine


def test_what_the_build_lacks_is_named() -> None:
    facts = {"cpu_features": ["avx", "avx2", "fma", "f16c", "avx512f"], "load_average": [0.1, 0, 0]}
    processor = examine_processor(facts, "CPU : AVX = 1 | AVX2 = 1 | F16C = 1 | FMA = 0 |", 1)
    assert feature_words(processor) == "AVX2 FMA AVX512, build lacks FMA AVX512"
    assert feature_words(PROCESSOR) == "AVX2 FMA, build uses both"


def test_threads_against_cores_and_load() -> None:
    assert PROCESSOR.advice is None
    assert replace(PROCESSOR, load=0.4).advice is None
    assert replace(PROCESSOR, threads=4).advice == "more than 2 cores, give -t 2"
    busy = replace(PROCESSOR, load=1.2).advice
    assert busy == "the load is 1.2, end other programs or give -t 1"


# --- drafters


def test_local_drafters_are_those_that_fit(zoo: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    target.write_bytes((zoo / "target-llama.gguf").read_bytes())
    for name in ("eagle3-d2t", "draft-simple", "lfm2-eagle3-d2t", "target-mtp3-mimo2"):
        (tmp_path / f"{name}.gguf").write_bytes((zoo / f"{name}.gguf").read_bytes())
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    found = local_drafters(GgufFile.open(target), [tmp_path / "draft-simple.gguf"])
    names = {one.path.name: (one.kind, one.in_profile) for one in found}
    assert names["draft-simple.gguf"] == ("draft-simple", True)
    assert names["eagle3-d2t.gguf"] == ("draft-eagle3", False)
    assert not {"target.gguf", "target-mtp3-mimo2.gguf", "broken.gguf"} & {*names}
    assert "smollm2-135m-eagle3.gguf" not in names


# --- whole runs


@pytest.fixture
def model(zoo: Path) -> tuple[str, ...]:
    return ("-m", str(zoo / "target-llama.gguf"), "-t", "1", "-c", "512")


def test_a_whole_run_with_a_draft_model(model: tuple[str, ...], zoo: Path) -> None:
    run = outrider("doctor", *model, "-md", str(zoo / "eagle3-d2t.gguf"), "--json")
    assert (run.returncode, run.stderr) == (0, b"")
    said = json.loads(run.stdout)
    assert said["model"]["context"] == 512
    assert said["memory"]["fits"] is True
    assert said["memory"]["allocated"] is True
    n_gram, eagle3 = said["break_even"]
    assert (n_gram["drafter"], eagle3["drafter"]) == ("n-gram", "draft-eagle3")
    for one in (n_gram, eagle3):
        for row in one["lengths"]:
            draft_s = (row["step_cost"] - one["verify_cost"][str(row["length"] + 1)]) * one[
                "plain_s"
            ]
            assert draft_s > (0 if one is eagle3 else -1e-9), row
            assert row["needs"] == pytest.approx((row["step_cost"] - 1) / row["length"])
    assert {1, 2, 3, 4, 8} <= {row["length"] for row in n_gram["lengths"]}
    assert (said["recommendation"] is not None) is said["quiet"]["quiet"]


def test_a_plain_profile_is_examined_too(model: tuple[str, ...]) -> None:
    run = outrider("doctor", *model, env={"NO_COLOR": "1"})
    assert (run.returncode, run.stderr) == (0, b"")
    lines = run.stdout.decode().splitlines()
    labels = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert labels[:3] == ["machine", "model", "quiet"]
    assert any(line.startswith("needs, n-gram") for line in lines)
    assert "\x1b" not in run.stdout.decode()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-c", "no"], "-c/--ctx-size"),
        (["-m", "nowhere.gguf"], "nowhere.gguf"),
        (["--spec-type", "ngram-mood"], "ngram-mood"),
        (["--spec-synth-len", "2"], "--spec-synth-len"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str) -> None:
    run = outrider_here("doctor", *words)
    assert (run.returncode, run.stdout) == (2, b"")
    assert run.stderr.count(b"\n") == 1
    assert message in run.stderr.decode()


def test_a_model_that_does_not_fit_is_not_loaded(
    model: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from outrider.cli.doctor import examination
    from outrider.cli.program import run_program

    # a file of 583,616 bytes, and 4 layers of 1 head of 32: 512 bytes of cache a token
    monkeypatch.setattr(examination, "free_memory", lambda: 950_000)
    monkeypatch.setattr(examination, "load_engine", None)
    assert run_program(["doctor", *model[:-1], "1024"]) == 0
    out = capsys.readouterr().out
    assert "does not fit" in out
    assert "With a context of 512 tokens it fits" in out
    assert " -c 512" in out
    assert "verify cost" not in out


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_while_it_measures(model: tuple[str, ...]) -> None:
    with Terminal([*COMMAND, "doctor", *model], env=environment()) as terminal:
        terminal.wait_for("measuring")
        terminal.send("\x03")
        assert terminal.wait_exit() == 130
