"""The project file against the tree: every package and every data file is shipped."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("cli", "profiles", "speculative")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    places = {f"outrider.{'.'.join(path.relative_to(ROOT).parts)}": path for path in folders}
    setuptools = PROJECT["tool"]["setuptools"]
    assert set(setuptools["packages"]) == set(places)
    assert setuptools["package-dir"] == {
        name: path.relative_to(ROOT).as_posix() for name, path in places.items()
    }


def test_every_data_file_is_shipped() -> None:
    shipped = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                assert any(path.match(pattern) for pattern in shipped), path


def test_the_version_is_said_once() -> None:
    assert version("outrider") == PROJECT["project"]["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (\S+)", changelog, re.MULTILINE)
    assert headings[0] in ("Unreleased", PROJECT["project"]["version"])


def test_the_command_leads_to_the_program() -> None:
    (command,) = entry_points(group="console_scripts", name="outrider")
    assert command.load().__name__ == "main"


def test_links_for_the_type_checkers() -> None:
    for folder in FOLDERS:
        link = ROOT / ".ci" / "typing" / "outrider" / folder
        if not link.is_symlink():
            pytest.skip("a checkout without links")
        assert link.resolve() == ROOT / folder


def test_the_wheel_comparison_finds_differences(tmp_path: Path) -> None:
    import zipfile

    wheel = tmp_path / "outrider.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("outrider/cli/stray.py", "")
        archive.writestr("outrider-0.1.0.dist-info/METADATA", "")
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "compare_wheel.py", wheel],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert "not in the tree: outrider/cli/stray.py" in lines
    assert "not in the wheel: outrider/speculative/py.typed" in lines
    assert "not in the wheel: LICENSE" in lines
