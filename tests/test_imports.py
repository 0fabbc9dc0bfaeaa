"""Which part may import what, and that help imports nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("cli", "profiles", "speculative")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

TERMINAL_LIBRARIES = {"typer", "rich", "prompt_toolkit"}
HEAVY = {
    "huggingface_hub",
    "jinja2",
    "llama_cpp",
    "llguidance",
    "numpy",
    "prompt_toolkit",
    "pydantic",
    "rich.live",
    "yaml",
}


def imported(source: str) -> Iterator[str]:
    """The full names of the modules that ``source`` imports, inside functions as well."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def allowed_parts(folder: str) -> set[str]:
    return set(FOLDERS) if folder == "cli" else {folder}


def faults(folder: str, source: str) -> list[str]:
    """The imports of a module in ``folder`` that break a rule."""
    broken = []
    for name in imported(source):
        top, *rest = name.split(".")
        if (
            (top == "outrider" and rest and rest[0] not in allowed_parts(folder))
            or (top in TERMINAL_LIBRARIES and folder != "cli")
            or top in {"click", *FOLDERS}
        ):
            broken.append(name)
    return broken


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependencies_point_one_way(path: Path) -> None:
    folder = path.relative_to(ROOT).parts[0]
    assert faults(folder, path.read_text("utf-8")) == []


def test_one_package_holds_every_native_symbol() -> None:
    users = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if any(name.split(".")[0] == "llama_cpp" for name in imported(path.read_text("utf-8")))
    ]
    assert users == ["speculative/llama/library.py"]


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("profiles", "from outrider.speculative.errors import InputError"),
        ("profiles", "import outrider.cli"),
        ("profiles", "from outrider import cli"),
        ("speculative", "from outrider.profiles import load"),
        ("speculative", "def f():\n    import rich.live"),
        ("speculative", "from typer import echo"),
        ("cli", "import click"),
        ("cli", "from speculative.errors import InputError"),
    ],
)
def test_the_rules_can_fail(folder: str, line: str) -> None:
    assert faults(folder, line)


def test_help_imports_nothing_heavy() -> None:
    probe = (
        "import sys; from outrider.cli.program import run_program; run_program(['--help']);"
        " print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "chat" in done.stdout
    assert not HEAVY & set(done.stderr.split())
