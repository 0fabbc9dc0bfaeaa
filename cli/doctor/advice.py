"""Advice: what to do about speculation here, in plain words with a command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.cli.bench.arm import ArmSpec
from outrider.cli.bench.break_even import BreakEven, LengthCost
from outrider.cli.doctor.draft_cost import N_GRAM
from outrider.cli.doctor.processor import Processor
from outrider.cli.options import all_flags
from outrider.profiles.model_source import ModelSource

NO_SECOND_MODEL = "ngram-edit"

# acceptance rates that texts reach
_PROSE = 0.45  # free prose with a good draft model
_COPY = 0.85  # a copy or an edit of text that is there
_ABOUT = 0.02
_SHORT = 8  # tokens
_KEPT = ("target.", "drafter.", "speculation.")  # the rest has nothing to do with speed


@dataclass(frozen=True, slots=True)
class Advice:
    """``words`` are sentences; ``command`` is what to run."""

    words: tuple[str, ...]
    command: str

    def as_json(self) -> dict[str, object]:
        return {"text": " ".join(self.words), "command": self.command}


def best_length(one: BreakEven) -> LengthCost | None:
    """The shortest draft that needs about the least acceptance."""
    least = min((cost.needs for cost in one.lengths), default=0.0)
    near = [cost for cost in one.lengths if cost.needs <= least + _ABOUT]
    return min(near, key=lambda cost: cost.length, default=None)


def advise(spec: ArmSpec, processor: Processor, costs: Sequence[BreakEven]) -> Advice | None:
    """One recommendation; None where nothing was measured.

    A model drafter is recommended if free prose reaches what it needs, else drafting from the
    text so far; no drafter if even copied text does not pay.
    """
    words, flags = list[str](), dict[str, object]()
    if processor.threads > processor.cores:
        words.append("More threads than cores wait for each other.")
        flags["target.threads"] = processor.cores
    by_name = {one.drafter: cost for one in costs if (cost := best_length(one)) is not None}
    n_gram = by_name.pop(N_GRAM, None)
    if n_gram is None:
        return None
    models = {name: cost for name, cost in by_name.items() if cost.needs <= _PROSE}
    if models:
        name = min(models, key=lambda drafter: models[drafter].needs)
        words += [
            f"Speculation pays here from an acceptance of about {models[name].needs:.2f} on with"
            f" {name}, {n_gram.needs:.2f} without a draft model.",
            "Free prose can reach that too. Try:",
        ]
        return Advice(tuple(words), command(spec, flags))
    if n_gram.needs > _COPY:
        words += [
            f"Speculation does not pay here: it needs an acceptance of {n_gram.needs:.2f},"
            " which hardly any text reaches. Try:"
        ]
        return Advice(tuple(words), command(spec, flags, "none"))
    short = "short" if n_gram.length <= _SHORT else "long"
    reach = "Code and quoted text reach that, free prose seldom."
    if n_gram.needs <= _PROSE:
        reach = "Code and quoted text reach that with ease."
    words += [
        f"Speculation pays here from an acceptance of about {n_gram.needs:.2f} on, with {short}"
        " drafts.",
        f"{reach} Try:",
    ]
    return Advice(tuple(words), command(spec, flags, NO_SECOND_MODEL))


def advise_smaller(spec: ArmSpec, longest: int | None) -> Advice:
    """What to do about a model that does not fit; ``longest`` is the context that would."""
    if longest is None:
        return Advice(
            ("The model is too large for this memory. A smaller one, such as:",),
            "outrider chat -P smollm2",
        )
    return Advice(
        (f"With a context of {longest:,} tokens it fits. Try:",),
        command(spec, {"target.ctx_size": longest}),
    )


def command(spec: ArmSpec, changes: Mapping[str, object], drafter: str | None = None) -> str:
    """``outrider chat`` with the flags that were given, some of them changed.

    ``drafter`` takes the place of all drafters.
    """
    given = {
        path: value
        for path, value in {**spec.overrides, **changes}.items()
        if path.startswith(_KEPT)
    }
    if drafter is not None:
        given = {path: value for path, value in given.items() if not path.startswith("drafter")}
        given["drafter.kinds"] = (drafter,)
    words = ["outrider", "chat"]
    if "target.model" not in given or spec.text != "base":
        words += ["-P", spec.text]
    for path, value in given.items():
        words += _flag(path, value)
    return shlex.join(words)


def _flag(path: str, value: Any) -> list[str]:
    flags = all_flags(path)
    if isinstance(value, bool):
        return [flag for flag in flags if flag.startswith("--no-") is not value][:1]
    if path == "drafter.kinds":
        return [flags[0], ",".join(value)]
    if isinstance(value, ModelSource):
        value = value.source
    if isinstance(value, list | tuple):
        return [word for one in value for word in (flags[0], str(one))]
    return [flags[0], str(value)]
