from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.cli.result_json import result_json
from outrider.speculative.events import GenerationResult
from outrider.speculative.statistics import Decision, Pause, SpeculationStats, StepRecord, Timings

# the object of the design, types by example
SHAPE = json.loads("""
{"schema": 1, "text": "...", "reasoning": null, "token_ids": [], "finish_reason": "stop",
 "error": null,
 "usage": {"prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0},
 "timings": {"load_s": 0, "prompt_s": 0, "time_to_first_token_s": 0, "generation_s": 0,
   "prompt_tokens_per_s": 0, "tokens_per_s": 0},
 "speculation": {"drafters": ["draft-eagle3"], "n_max": 3,
   "verification": {"greedy": 0, "match": 0, "rejection": 0, "synthetic": 0},
   "synthetic": false, "steps": 0, "drafts": 0, "drafted": 0, "accepted": 0, "own": 0,
   "discarded": 0, "acceptance_rate": null, "mean_accepted_length": null,
   "accepted_per_position": [], "accepted_histogram": [], "paused": null, "draft_s": 0,
   "verify_s": 0, "per_drafter": {}, "decisions": []},
 "logprobs": null, "seed": 0, "profile": "...", "model": "..."}
""")


def keys(value: Any) -> Any:
    """The keys of nested objects, in order."""
    return [(key, keys(value[key])) for key in value] if isinstance(value, dict) else None


def result(stats: SpeculationStats, timings: Timings, **changes: Any) -> GenerationResult:
    values: dict[str, Any] = {
        "text": "1, 2",
        "token_ids": [5, 6, 7, 8],
        "finish_reason": "stop",
        "prompt_tokens": 9,
        "cached_tokens": 3,
        "stats": stats,
        "timings": timings,
        "seed": 42,
    }
    return GenerationResult(**values | changes)


def described(outcome: GenerationResult, **changes: Any) -> dict[str, Any]:
    names: dict[str, Any] = {"profile": "p", "model": "m", "drafters": ("draft-simple",)}
    return result_json(outcome, **{"n_max": None, **names, **changes})


def test_keys_and_order_are_the_designs() -> None:
    made = described(result(SpeculationStats(), Timings()))
    assert keys(made) == keys(SHAPE)


def test_an_answer_without_drafts_has_nulls_and_no_zeros_in_their_place() -> None:
    made = described(result(SpeculationStats(), Timings()), drafters=())
    speculation = made["speculation"]
    assert made["timings"]["tokens_per_s"] is None
    assert made["timings"]["prompt_tokens_per_s"] is None
    assert speculation["acceptance_rate"] is speculation["mean_accepted_length"] is None
    assert speculation["accepted_per_position"] == speculation["accepted_histogram"] == []
    assert speculation["paused"] is speculation["n_max"] is made["error"] is None
    assert speculation["drafters"] == []


def test_counts_of_two_drafts() -> None:
    stats = SpeculationStats()
    stats.observe(StepRecord(own=1, is_step=False))
    stats.observe(StepRecord(drafted=3, accepted=1, own=1, rule="greedy", drafter="draft-simple"))
    stats.observe(StepRecord(drafted=1, accepted=1, own=1, rule="match", drafter="ngram-simple"))
    stats.observe(StepRecord(own=1))
    stats.discard("draft-simple", 2)
    stats.paused = Pause("too slow", needed=0.7, measured=0.4)
    decisions = (Decision("ngram-simple", 12), Decision("draft-simple", 0, stats.paused))
    made = described(result(stats, Timings(load_s=0.5), decisions=decisions), n_max=3)
    json.dumps(made, allow_nan=False)
    speculation = made["speculation"]
    assert speculation["verification"] == {"greedy": 1, "match": 1, "rejection": 0, "synthetic": 0}
    assert (speculation["steps"], speculation["drafts"]) == (3, 2)
    assert (speculation["drafted"], speculation["accepted"], speculation["own"]) == (4, 2, 4)
    assert (speculation["acceptance_rate"], speculation["mean_accepted_length"]) == (0.5, 2.0)
    assert speculation["accepted_per_position"] == [1.0, 0.0, 0.0]
    assert speculation["accepted_histogram"] == [0, 2]
    assert (speculation["discarded"], speculation["n_max"]) == (2, 3)
    assert speculation["paused"] == {"reason": "too slow", "needed": 0.7, "measured": 0.4}
    assert speculation["decisions"] == [
        {"drafter": "ngram-simple", "length": 12, "needed": None, "measured": None},
        {"drafter": "draft-simple", "length": 0, "needed": 0.7, "measured": 0.4},
    ]
    assert speculation["per_drafter"]["draft-simple"] == {
        "drafts": 1,
        "drafted": 3,
        "accepted": 1,
        "discarded": 2,
        "acceptance_rate": pytest.approx(1 / 3, abs=0),
        "mean_accepted_length": 2.0,
        "draft_s": 0.0,
    }
    assert made["usage"] == {"prompt_tokens": 9, "cached_tokens": 3, "completion_tokens": 4}
    assert (made["seed"], made["profile"], made["model"]) == (42, "p", "m")
    assert made["timings"]["load_s"] == 0.5


def test_an_error_has_code_and_message() -> None:
    failed = result(
        SpeculationStats(), Timings(), finish_reason="error", error=("decode_failed", "no room")
    )
    made = described(failed)
    assert made["finish_reason"] == "error"
    assert made["error"] == {"code": "decode_failed", "message": "no room"}
