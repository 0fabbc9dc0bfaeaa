"""SweepOutcome: what a sweep found, as the table and the JSON show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from outrider.cli.bench.break_even import BreakEven, Drafts
from outrider.cli.bench.candidates import LENGTHS, Candidate
from outrider.cli.bench.sweep import Standing
from outrider.cli.bench.sweep_run import Answer
from outrider.speculative.statistics import SpeculationStats


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One candidate. ``tokens_per_s`` is the best's, times the ratio on the shared prompts; None
    where every answer was too short to be timed.
    """

    candidate: Candidate
    standing: Standing
    tokens_per_s: float | None
    stats: SpeculationStats
    num_answers: int


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """``rows`` in the order of the grid; ``equal`` are not distinguishable from ``best``.

    ``same_text`` is on how many prompts, of how many, all candidates gave the same tokens;
    None where they need not (the temperature is not 0).
    """

    rows: tuple[SweepRow, ...]
    best: SweepRow
    equal: tuple[SweepRow, ...]
    same_text: tuple[int, int] | None
    break_even: tuple[BreakEven, ...]
    snippet: str

    def summary(self) -> dict[str, object]:
        return {
            "candidates": [_row_json(row) for row in self.rows],
            "best": self.best.candidate.label,
            "not_distinguishable": [row.candidate.label for row in self.equal],
            "same_text": None
            if self.same_text is None
            else {"prompts": self.same_text[1], "identical": self.same_text[0]},
            "break_even": [one.as_json() for one in self.break_even],
            "profile": self.snippet,
        }


def sweep_rows(
    candidates: Sequence[Candidate], standings: Sequence[Standing], answers: Sequence[Answer]
) -> tuple[SweepRow, ...]:
    """A row for each candidate, in their order; ``standings`` begins with the best."""
    speeds = [a.tokens_per_s for a in answers if a.candidate == standings[0].candidate]
    speed = median(one for one in speeds if one is not None)
    rows = []
    for standing in sorted(standings, key=lambda one: one.candidate):
        stats, own = SpeculationStats(), _of(answers, [standing.candidate])
        for answer in own:
            stats.merge(answer.result.stats)
        rows.append(
            SweepRow(
                candidates[standing.candidate],
                standing,
                speed * standing.ratio.value if standing.ratio.num_pairs else None,
                stats,
                len(own),
            )
        )
    return tuple(rows)


def same_text(answers: Sequence[Answer]) -> tuple[int, int]:
    """On how many prompts all gave the same tokens, and how many prompts there were."""
    texts: dict[int, list[list[int]]] = {}
    for answer in answers:
        texts.setdefault(answer.prompt, []).append(answer.result.token_ids)
    same = sum(all(ids == given[0] for ids in given) for given in texts.values())
    return same, len(texts)


def family(candidates: Sequence[Candidate], standings: Sequence[Standing]) -> list[int]:
    """The fastest candidate that drafts, and those that differ from it by the length only."""
    drafting = [one.candidate for one in standings if candidates[one.candidate].profile.drafters]
    if not drafting:
        return []

    def others(index: int) -> dict[str, object]:
        values = candidates[index].values
        return {axis: value for axis, value in values.items() if axis != "length"}

    return [index for index in sorted(drafting) if others(index) == others(drafting[0])]


def drafts_by_length(
    drafter: str, candidates: Sequence[Candidate], members: Sequence[int], answers: Sequence[Answer]
) -> tuple[float, dict[int, Drafts]]:
    """Seconds of one draft token of ``drafter``, and its drafts at each fixed length."""
    lengths = {candidates[index].length: index for index in members}
    fixed = {length: index for length, index in lengths.items() if length}
    made: dict[int, Drafts] = {}
    if not fixed:
        made = {length: Drafts() for length in LENGTHS if isinstance(length, int) and length}
    for length, index in fixed.items():
        own = list(_counts(drafter, _of(answers, [index])))
        made[length] = Drafts(
            sum(drafted for drafted, _, _ in own),
            sum(accepted for _, accepted, _ in own),
            median(s / n for n, _, s in own) if own else None,
        )
    whole = [s / n for n, _, s in _counts(drafter, _of(answers, members))]
    return (median(whole) if whole else 0.0), made


def _counts(drafter: str, answers: Sequence[Answer]) -> Iterator[tuple[int, int, float]]:
    """Drafted, accepted, seconds of each answer in which the drafter drafted."""
    for answer in answers:
        counts = answer.result.stats.per_drafter.get(drafter)
        if counts is not None and counts.drafted:
            yield counts.drafted, counts.accepted, counts.draft_s


def _of(answers: Sequence[Answer], candidates: Sequence[int]) -> list[Answer]:
    return [answer for answer in answers if answer.candidate in candidates]


def answer_json(answer: Answer, candidates: Sequence[Candidate]) -> Mapping[str, object]:
    """One measurement as it is saved."""
    result = answer.result
    stats, timings = result.stats, result.timings
    return {
        "round": answer.round,
        "arm": candidates[answer.candidate].label,
        "prompt": answer.prompt,
        "question_id": answer.sample,
        "tokens_per_s": timings.tokens_per_s,
        "generation_s": timings.generation_s,
        "first_token_s": timings.time_to_first_token_s,
        "prompt_tokens": result.prompt_tokens,
        "steps": stats.steps,
        "drafts": stats.drafts,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "draft_s": stats.draft_s,
        "verify_s": stats.verify_s,
        "drafters": {
            name: {
                "drafts": one.drafts,
                "drafted": one.drafted,
                "accepted": one.accepted,
                "draft_s": one.draft_s,
            }
            for name, one in stats.per_drafter.items()
        },
        "seed": result.seed,
        "finish_reason": result.finish_reason,
        "token_ids": result.token_ids,
    }


def _row_json(row: SweepRow) -> dict[str, object]:
    ratio = row.standing.ratio
    value, low, high = (
        (ratio.value, ratio.low, ratio.high) if ratio.num_pairs else (None, None, None)
    )
    return {
        "label": row.candidate.label,
        **row.candidate.values,
        "tokens_per_s": row.tokens_per_s,
        "ratio_to_best": value,
        "low": low,
        "high": high,
        "prompts": row.num_answers,
        "pairs": ratio.num_pairs,
        "left_after_round": row.standing.left_after,
        "drafts": row.stats.drafts,
        "drafted": row.stats.drafted,
        "accepted": row.stats.accepted,
        "acceptance_rate": row.stats.acceptance_rate,
        "mean_accepted_length": row.stats.mean_accepted_length,
    }
