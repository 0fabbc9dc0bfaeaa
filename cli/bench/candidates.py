"""Candidates: the grid of settings that a sweep tries."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from outrider.cli.errors import UsageError
from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import check
from outrider.profiles.load import override
from outrider.profiles.schema import Profile

Length = int | Literal["adaptive"]

LENGTHS: tuple[Length, ...] = (0, 1, 2, 3, 4, 6, 8)
_NO_DRAFTER_HAS = ("p_min", "verify")


@dataclass(frozen=True, slots=True)
class Axes:
    """The values of each setting that is tried; empty: as the profile has it."""

    lengths: tuple[Length, ...] = ()
    p_min: tuple[float, ...] = ()
    drafters: tuple[tuple[str, ...], ...] = ()
    verify: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the grid. ``values`` are what it has of the settings that are tried.

    A value is None where it means nothing: without a drafter there is no p_min.
    """

    profile: Profile
    values: Mapping[str, object]

    @property
    def label(self) -> str:
        """``3``, or ``length 3, p_min 0.5`` where several settings are tried."""
        given = {axis: value for axis, value in self.values.items() if value is not None}
        if len(self.values) == 1:
            return str(*given.values())
        return ", ".join(f"{axis} {value}" for axis, value in given.items())

    @property
    def length(self) -> int | None:
        """The fixed draft length, 0 without a drafter; None where it changes or is the kind's."""
        if not self.profile.drafters:
            return 0
        speculation = self.profile.speculation
        return None if speculation.adaptive else speculation.n_max


def read_axes(
    lengths: str | None = None,
    p_min: str | None = None,
    drafters: str | None = None,
    verify: str | None = None,
    threads: str | None = None,
) -> Axes:
    """The axes from what the command line says.

    Raises:
        ProfileError: a value that is not allowed.
    """
    return Axes(
        lengths=_read(lengths, _length),
        p_min=_read(p_min, _reader("speculation.p_min", "--p-min")),
        drafters=_read(drafters, _reader("drafter.kinds", "--drafters"), ";"),
        verify=_read(verify, _reader("speculation.verify", "--verify")),
        threads=_read(threads, _reader("target.threads", "-t/--threads")),
    )


def grid(profile: Profile, axes: Axes) -> tuple[Candidate, ...]:
    """Every combination; those without a drafter only once for each number of threads.

    Where no setting has several values, the draft lengths of the profile's drafters are tried.

    Raises:
        UsageError: nothing to compare.
    """
    axes = _with_default(profile, axes)
    tried = {name: values for name in _AXES if len(values := getattr(axes, name)) > 1}
    candidates: list[Candidate] = []
    for point in itertools.product(*(getattr(axes, name) or (None,) for name in _AXES)):
        made = _candidate(profile, dict(zip(_AXES, point, strict=True)), list(tried))
        if all(made.profile != other.profile for other in candidates):
            candidates.append(made)
    if len(candidates) < 2:
        raise UsageError("bench sweep: one candidate only; give two values or more to compare")
    return tuple(candidates)


def _with_default(profile: Profile, axes: Axes) -> Axes:
    if any(len(getattr(axes, name)) > 1 for name in _AXES):
        return axes
    if axes.lengths:
        raise UsageError("--lengths: one length only; give two or more, such as 0,3")
    if not profile.drafters and not any(axes.drafters):
        raise UsageError(
            f"profile {profile.name} has no drafter, so there is nothing to try;"
            " give --spec-type, --drafters or --threads with several values"
        )
    adaptive: tuple[Length, ...] = ("adaptive",) if profile.speculation.adaptive else ()
    return replace(axes, lengths=(*LENGTHS, *adaptive))


def _candidate(profile: Profile, point: Mapping[str, Any], tried: Sequence[str]) -> Candidate:
    chosen = profile
    for name, value in point.items():
        if value is not None:
            chosen = _AXES[name](chosen, value)
    if not chosen.drafters:  # what is left of the drafts' settings means nothing
        chosen = replace(chosen, speculation=profile.speculation)
    return Candidate(
        chosen, {_WORDS.get(name, name): _shown(name, point, chosen) for name in tried}
    )


def _shown(name: str, point: Mapping[str, Any], profile: Profile) -> object:
    if not profile.drafters:
        if name in _NO_DRAFTER_HAS:
            return None
        if name == "lengths":
            return 0
        if name == "drafters":
            return "none"
    value = point[name]
    return ",".join(value) if name == "drafters" else value


def _with_length(profile: Profile, length: Length) -> Profile:
    if length == 0:
        return replace(profile, drafters=())
    if length == "adaptive":
        return override(profile, {"speculation.adaptive": True})
    # a drafter's own limit would be in the way of longer drafts
    drafters = tuple(replace(drafter, n_max=None) for drafter in profile.drafters)
    fixed = {"speculation.n_max": length, "speculation.adaptive": False}
    return override(replace(profile, drafters=drafters), fixed)


def _setter(path: str) -> Callable[[Profile, Any], Profile]:
    return lambda profile, value: override(profile, {path: value})


# the drafters first: the length is that of the drafters which are there
_AXES: Mapping[str, Callable[[Profile, Any], Profile]] = {
    "drafters": _setter("drafter.kinds"),
    "lengths": _with_length,
    "p_min": _setter("speculation.p_min"),
    "verify": _setter("speculation.verify"),
    "threads": _setter("target.threads"),
}
_WORDS = {"lengths": "length"}


def _read(text: str | None, read: Callable[[str], Any], separator: str = ",") -> tuple[Any, ...]:
    if text is None:
        return ()
    return tuple(dict.fromkeys(read(part.strip()) for part in text.split(separator)))


def _reader(path: str, name: str) -> Callable[[str], Any]:
    return lambda text: check(path, text, name=name)


def _length(text: str) -> Length:
    if text in ("0", "adaptive"):
        return 0 if text == "0" else "adaptive"
    try:
        return int(str(check("speculation.n_max", text, name="--lengths")))
    except (ProfileError, ValueError):
        raise UsageError(
            f"--lengths: {text!r}: allowed: whole numbers from 0 to 64, adaptive"
        ) from None
