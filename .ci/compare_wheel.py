"""Compares a wheel's files with the folders they come from: nothing missing, nothing more."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("cli", "profiles", "speculative")
SHIPPED = (".py", ".yaml", ".gguf", ".jsonl", ".typed")


def expected() -> set[str]:
    """The files of the tree that belong in the wheel, by their names in it."""
    return {
        f"outrider/{path.relative_to(ROOT).as_posix()}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SHIPPED and path.is_file()
    }


def main(wheel: str) -> int:
    """Print the differences; the exit code is 1 if there are any."""
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if ".dist-info/" not in name}
    problems = [f"not in the wheel: {name}" for name in sorted(expected() - shipped)]
    problems += [f"not in the tree: {name}" for name in sorted(shipped - expected())]
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        problems.append("not in the wheel: LICENSE")
    print("\n".join(problems) or f"{len(shipped)} files, as in the tree")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
