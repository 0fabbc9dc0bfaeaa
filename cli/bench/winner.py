"""The winner of a sweep as a profile: the YAML of what differs, and a file for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from outrider.cli.errors import UsageError
from outrider.cli.interrupts import interrupts_held
from outrider.profiles.model_source import LocalPart, ModelSource, parse_part
from outrider.profiles.schema import Drafter, Profile
from outrider.profiles.text import new_profile

_SECTIONS = ("target", "drafters", "speculation", "sampling", "chat")
# how it was measured, not how to go on
_OF_THE_SWEEP = ("predict", "seed", "ignore_eos")


def snippet(profile: Profile, parent: Profile) -> str:
    """The YAML that makes ``parent`` this profile; empty if it is that already."""
    import yaml

    wanted, known = (_values(_anchored(one)) for one in (profile, parent))
    changes: dict[str, Any] = {}
    for section in _SECTIONS:
        if section == "drafters":
            if wanted[section] != known[section]:
                changes[section] = [_set_keys(drafter) for drafter in wanted[section]]
            continue
        different = {k: v for k, v in wanted[section].items() if v != known[section][k]}
        if section == "target" and "model" in different:
            different["model"] = _without_none(different["model"])
        if section == "sampling":
            different = {k: v for k, v in different.items() if k not in _OF_THE_SWEEP}
        if different:
            changes[section] = different
    if not changes:
        return ""
    text: str = yaml.safe_dump(changes, sort_keys=False, allow_unicode=True, width=1000)
    return text


@contextmanager
def reserved(name: str | None, parent: str) -> Iterator[Path | None]:
    """A new user profile that extends ``parent``; gone again if what follows fails.

    Made at the beginning, so that a name that cannot be used costs no measurement.

    Raises:
        ProfileError: the name is not allowed, or there is such a profile.
    """
    if name is None:
        yield None
        return
    path: Path | None = None
    try:
        with interrupts_held():  # no file that nobody knows of
            path = new_profile(name, parent)
        yield path
    except BaseException:
        if path is not None:
            path.unlink(missing_ok=True)
        raise


def write(path: Path, text: str, why: str) -> None:
    """Put the winner's snippet into its file."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"# {why}\n{text}")
    except OSError as error:
        raise UsageError(f"--write {path}: {error.strerror}") from None


def _values(profile: Profile) -> dict[str, Any]:
    values: dict[str, Any] = _plain(asdict(profile))
    return values


def _set_keys(drafter: dict[str, Any]) -> dict[str, Any]:
    unset = _plain(asdict(Drafter()))
    return {
        key: _without_none(value) if key == "model" else value
        for key, value in drafter.items()
        if value != unset[key]
    }


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _anchored(profile: Profile) -> Profile:
    """With whole paths: in a file they would start at its folder."""
    drafters = tuple(
        replace(
            drafter,
            model=_whole_source(drafter.model),
            static=_whole(drafter.static),
            dynamic=_whole(drafter.dynamic),
        )
        for drafter in profile.drafters
    )
    return replace(
        profile,
        target=replace(profile.target, model=_whole_source(profile.target.model)),
        drafters=drafters,
        sampling=replace(
            profile.sampling,
            json_schema_file=_whole(profile.sampling.json_schema_file),
            grammar_file=_whole(profile.sampling.grammar_file),
        ),
        chat=replace(profile.chat, template_file=_whole(profile.chat.template_file)),
    )


def _whole(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().resolve())


def _whole_source(model: ModelSource | None) -> ModelSource | None:
    if model is None:
        return None
    texts = tuple(_whole_text(text) for text in model.texts)
    return replace(model, source=texts[0] if isinstance(model.source, str) else texts)


def _whole_text(text: str) -> str:
    part = parse_part(text)
    return str(part.path.resolve()) if isinstance(part, LocalPart) and not part.built_in else text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
