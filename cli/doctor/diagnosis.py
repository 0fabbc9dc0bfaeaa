"""Diagnosis: everything that the doctor found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.cli.bench.break_even import BreakEven, break_even
from outrider.cli.doctor.advice import Advice
from outrider.cli.doctor.cost_curve import RESTLESS, CostCurve
from outrider.cli.doctor.draft_cost import DraftCost
from outrider.cli.doctor.memory import MemoryNeed
from outrider.cli.doctor.processor import Processor
from outrider.cli.local_drafters import LocalDrafter
from outrider.speculative.model_facts import ModelFacts

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``curve`` is None where nothing could be measured; ``far`` is the curve at ``far.depth``."""

    profile: str
    facts: ModelFacts
    n_ctx: int
    processor: Processor
    memory: MemoryNeed
    curve: CostCurve | None
    far: CostCurve | None
    break_even: tuple[BreakEven, ...]
    drafters: tuple[LocalDrafter, ...]
    advice: Advice | None

    def as_json(self, machine: Mapping[str, Any], library: Mapping[str, Any]) -> dict[str, Any]:
        """One object; null for what was not measured."""
        return {
            "schema": SCHEMA,
            "machine": {**machine, **self.processor.as_json()},
            "build": {
                **library,
                "features_used": list(self.processor.used),
                "features_unused": list(self.processor.unused),
            },
            "model": self._model_json(),
            "memory": self.memory.as_json(),
            "quiet": self._quiet_json(),
            "cost_curve": [_curve_json(one) for one in (self.curve, self.far) if one is not None],
            "break_even": [one.as_json() for one in self.break_even],
            "drafters": [one.as_json() for one in self.drafters],
            "recommendation": self.advice.as_json() if self.advice else None,
        }

    def _model_json(self) -> dict[str, Any]:
        facts = self.facts
        return {
            "profile": self.profile,
            "file": str(facts.path),
            "name": facts.name,
            "architecture": facts.architecture,
            "file_type": facts.file_type,
            "parameters": facts.num_parameters,
            "context": self.n_ctx,
        }

    def _quiet_json(self) -> dict[str, Any] | None:
        if self.curve is None:
            return None
        return {
            "quiet": self.curve.is_quiet,
            "spread": self.curve.spread,
            "others": self.curve.others,
            "limit": RESTLESS,
        }


def break_evens(
    curve: CostCurve, costs: Sequence[DraftCost], host_s: float = 0.0
) -> tuple[BreakEven, ...]:
    """What each draft length needs: n-gram drafts, then models'.

    ``host_s`` is what every step takes beyond its decode. A length is measured if the curve has
    the rows to verify it, one more.
    """
    verify_s = {rows: seconds + host_s for rows, seconds in curve.verify_s.items()}
    lengths = [rows - 1 for rows in verify_s if rows > 1]
    return tuple(
        break_even(one.drafter, verify_s, one.token_s, one.drafts(lengths)) for one in costs
    )


def _curve_json(curve: CostCurve) -> dict[str, Any]:
    return {
        "depth": curve.depth,
        "plain_s": curve.plain_s,
        "rows": [
            {
                "rows": rows,
                "cost": curve.cost(rows),
                "seconds": seconds,
                "repeats": len(curve.times[rows]),
            }
            for rows, seconds in curve.verify_s.items()
        ],
    }
