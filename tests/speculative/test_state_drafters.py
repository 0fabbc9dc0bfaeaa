"""Drafters that read the target's hidden states: their cache is always that of the text.

After anything that can happen to a sequence, the next draft's rows must be those of an empty
draft cache that is given the target's rows anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tools.state_rig import N_MAX, StateRig, assert_same_draft
from tools.zoo_pairs import PAIRS, Pair

from outrider.speculative.settings import (
    GenerationSettings,
    SamplingSettings,
)

STATE_PAIRS = [
    PAIRS[name]
    for name in (
        "eagle3-d2t",
        "eagle3-full",
        "dflash",
        "dflash2",
        "dspark",
        "dspark-spec",
        "mtp-glm4moe",
        "mtp-qwen35",
        "mtp-qwen35-head",
        "mtp3-mimo2",
        "lfm2-dflash",
        "lfm2-eagle3-d2t",
    )
]
all_pairs = pytest.mark.parametrize("pair", STATE_PAIRS, ids=lambda pair: pair.name)
VOCAB_SIZE = 512
ASKED = GenerationSettings(SamplingSettings(temp=0), predict=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("widened")


@pytest.fixture
def rig(pair: Pair, folder: Path) -> Iterator[StateRig]:
    rig = StateRig(pair, folder)
    yield rig
    rig.close()


class Fate:
    """Throws the dice for one sequence."""

    def __init__(self, seed: int) -> None:
        self._numbers = np.random.default_rng(seed)

    def tokens(self, low: int, high: int) -> list[int]:
        count = int(self._numbers.integers(low, high + 1))
        return [int(token) for token in self._numbers.integers(0, VOCAB_SIZE, count)]

    def token(self) -> int:
        return self.tokens(1, 1)[0]

    def number(self, low: int, high: int) -> int:
        return int(self._numbers.integers(low, high + 1))


EVENTS = (
    "own draft",
    "own draft",
    "own draft",
    "draft of another",
    "plain steps",
    "asked twice",
    "next turn",
    "undo",
    "new chat",
    "cancelled",
)


def _happen(rig: StateRig, event: str, fate: Fate) -> None:
    text = rig.texts[0]
    match event:
        case "own draft":
            drafted, _ = rig.draft(length=fate.number(1, N_MAX))[0]
            rig.step(drafted, fate.number(0, len(drafted)), fate.token())
        case "draft of another":
            draft = fate.tokens(1, N_MAX)
            rig.step(draft, fate.number(0, len(draft)), fate.token())
        case "plain steps":
            for _ in range(fate.number(1, 20)):
                rig.step([], 0, fate.token())
        case "asked twice":
            rig.draft(length=fate.number(1, N_MAX))
        case "next turn":
            rig.prompt([*text, *fate.tokens(1, 30)], fate.token(), piece=fate.number(1, 40))
        case "undo":
            kept = text[: fate.number(1, len(text))]
            rig.prompt([*kept, *fate.tokens(1, 9)], fate.token(), piece=fate.number(3, 40))
        case "new chat":
            rig.drafter.forget(0)
            rig.runner.truncate(0, 0)
            rig.prompt(fate.tokens(1, 60), fate.token())
        case "cancelled":
            # the prompt is given up in the middle, another takes its place
            given_up, piece = [*text, *fate.tokens(20, 40)], fate.number(1, 19)
            rig.begin(given_up)
            block = rig.prompt_block(given_up, piece)
            assert block is not None
            rig.decode([block])
            kept = given_up[: fate.number(1, len(given_up))]
            rig.prompt([*kept, *fate.tokens(1, 9)], fate.token())


@all_pairs
@pytest.mark.parametrize("seed", [1, 2])
def test_the_draft_cache_is_that_of_the_text(rig: StateRig, seed: int) -> None:
    fate = Fate(seed)
    rig.prompt(fate.tokens(2, 60), fate.token())
    for _ in range(40):
        event = EVENTS[fate.number(0, len(EVENTS) - 1)]
        if len(rig.texts[0]) > 400:
            event = "new chat"
        _happen(rig, event, fate)
        found = rig.draft()[0]
        assert len(found[0]) == min(N_MAX, rig.drafter.n_max)
        assert_same_draft(found, rig.fresh_draft())
    rig.check_rows()
