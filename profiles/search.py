"""Where profiles are found: a path, ./.outrider/, the user's folder, the built-in ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import nearest

DEFAULT_PROFILE = "smollm2"
BARE_PROFILE = "base"
"""What a model file given by itself runs with."""

BUILT_IN = Path(__file__).parent


def default_profile(overrides: Mapping[str, object]) -> str:
    """What runs when no profile is named."""
    return BARE_PROFILE if "target.model" in overrides else DEFAULT_PROFILE


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that is searched, and how it is called."""

    origin: str
    folder: Path


def places() -> tuple[Place, ...]:
    """Return the folders in the order they are searched."""
    return (
        Place("project", Path(".outrider")),
        Place("user", user_folder()),
        Place("built-in", BUILT_IN),
    )


def user_folder() -> Path:
    """Return the folder of the user's own profiles."""
    import platformdirs

    return Path(platformdirs.user_config_path("outrider", appauthor=False))


def is_path(name: str) -> bool:
    """Return whether ``name`` means a file rather than a profile to search for."""
    separators = {os.sep, os.altsep or os.sep}
    return name.endswith((".yaml", ".yml")) or any(mark in name for mark in separators)


def find(name: str, *, beside: Path | None = None, skip: Sequence[str] = ()) -> Path:
    """Return the file of profile ``name``.

    A relative path starts at ``beside``. Real paths in ``skip`` are passed over where the name
    is searched, so that a profile can extend the one of the same name that it hides.
    """
    if is_path(name):
        return (beside or Path()) / Path(name).expanduser()
    found = [path for _, path in _candidates(name)]
    for path in found:
        if os.path.realpath(path) not in skip:
            return path
    if found:
        return found[0]
    known = sorted({path.stem for _, path in every_file()})
    raise ProfileError(f"no profile {name!r}{nearest(name, known)}; allowed: {', '.join(known)}")


def every_file() -> Iterator[tuple[Place, Path]]:
    """Yield every profile file of every place; a name may come more than once."""
    for place in places():
        if place.folder.is_dir():
            for path in sorted(place.folder.iterdir()):
                if path.suffix in (".yaml", ".yml"):
                    yield place, path


def _candidates(name: str) -> Iterator[tuple[Place, Path]]:
    for place in places():
        for suffix in (".yaml", ".yml"):
            path = place.folder / f"{name}{suffix}"
            if os.path.exists(path):  # unlike Path.exists it never raises
                yield place, path
