"""The JSON object of one answer (`run --json`): keys, order and types are fixed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from outrider.cli.errors import exit_code
from outrider.speculative.errors import PromptTooLongError
from outrider.speculative.events import GenerationResult
from outrider.speculative.logprobs import TokenLogprob
from outrider.speculative.statistics import (
    RULES,
    Decision,
    DrafterCounts,
    Pause,
    SpeculationStats,
    Timings,
)

SCHEMA = 1


def result_json(
    result: GenerationResult,
    *,
    profile: str,
    model: str | None,
    drafters: Sequence[str],
    n_max: int | None,
    synthetic: bool = False,
) -> dict[str, object]:
    """One answer with its counts and times; what does not exist is None.

    ``n_max`` is the draft limit in force, None where each drafter keeps its own.
    """
    return {
        "schema": SCHEMA,
        "text": result.text,
        "reasoning": result.reasoning,
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason,
        "error": _error(result.error),
        "usage": {
            "prompt_tokens": result.prompt_tokens,
            "cached_tokens": result.cached_tokens,
            "completion_tokens": result.completion_tokens,
        },
        "timings": _timings(result.timings),
        "speculation": {
            "drafters": list(drafters),
            "n_max": n_max,
            **_speculation(result.stats, synthetic),
            "decisions": [_decision(one) for one in result.decisions],
        },
        "logprobs": None if result.logprobs is None else [_logprob(row) for row in result.logprobs],
        "seed": result.seed,
        "profile": profile,
        "model": model,
    }


def error_code(error: BaseException) -> str:
    """The kind of an error, as ``error.code`` says it."""
    if isinstance(error, PromptTooLongError):
        return "prompt_too_long"
    return "input" if exit_code(error) == 2 else "runtime"


def _logprob(row: TokenLogprob) -> dict[str, object]:
    return {
        "token_id": row.token_id,
        "text": row.piece.decode("utf-8", "replace"),
        "bytes": list(row.piece),
        "logprob": row.logprob if row.logprob > -math.inf else None,
        "top": [{"token_id": token_id, "logprob": value} for token_id, value in row.top],
    }


def _error(error: tuple[str, str] | None) -> dict[str, str] | None:
    return None if error is None else {"code": error[0], "message": error[1]}


def _timings(timings: Timings) -> dict[str, float | None]:
    return {
        "load_s": timings.load_s,
        "prompt_s": timings.prompt_s,
        "time_to_first_token_s": timings.time_to_first_token_s,
        "generation_s": timings.generation_s,
        "prompt_tokens_per_s": timings.prompt_tokens_per_s,
        "tokens_per_s": timings.tokens_per_s,
    }


def _speculation(stats: SpeculationStats, synthetic: bool) -> dict[str, object]:
    return {
        "verification": {rule: stats.verification[rule] for rule in RULES},
        "synthetic": synthetic,
        "steps": stats.steps,
        "drafts": stats.drafts,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "own": stats.own,
        "discarded": stats.discarded,
        "acceptance_rate": stats.acceptance_rate,
        "mean_accepted_length": stats.mean_accepted_length,
        "accepted_per_position": stats.accepted_per_position,
        "accepted_histogram": stats.accepted_histogram,
        "paused": _pause(stats.paused),
        "draft_s": stats.draft_s,
        "verify_s": stats.verify_s,
        "per_drafter": {name: _drafter(counts) for name, counts in stats.per_drafter.items()},
    }


def _decision(decision: Decision) -> dict[str, object]:
    pause = decision.pause
    return {
        "drafter": decision.drafter,
        "length": decision.length,
        "needed": pause and pause.needed,
        "measured": pause and pause.measured,
    }


def _pause(pause: Pause | None) -> dict[str, object] | None:
    if pause is None:
        return None
    return {"reason": pause.reason, "needed": pause.needed, "measured": pause.measured}


def _drafter(counts: DrafterCounts) -> dict[str, object]:
    return {
        "drafts": counts.drafts,
        "drafted": counts.drafted,
        "accepted": counts.accepted,
        "discarded": counts.discarded,
        "acceptance_rate": counts.acceptance_rate,
        "mean_accepted_length": counts.mean_accepted_length,
        "draft_s": counts.draft_s,
    }
