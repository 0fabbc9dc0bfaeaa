"""Every test gets folders of its own: no test sees or touches the user's files."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from outrider.profiles.load import load_profile
from outrider.profiles.search import BUILT_IN
from outrider.profiles.sources import locate

# a shell starts background jobs with ctrl-c ignored, and children would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
# children that may not keep what they compile would compile it again and again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(scope="session")
def zoo() -> Path:
    """Folder of the tiny trained models."""
    return FIXTURES / "zoo"


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The file of the default model, looked for before a test gets folders of its own.

    ``OUTRIDER_TEST_MODEL`` names another place.
    """
    source = load_profile(str(BUILT_IN / "smollm2-plain.yaml")).target.model
    assert source is not None
    path = os.environ.get("OUTRIDER_TEST_MODEL") or locate(source)
    if path is None:
        pytest.fail("the default model is not on this machine; run: outrider models pull smollm2")
    return Path(path)


@pytest.fixture(autouse=True)
def user_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point every user folder (config, cache, data) and the working folder at a temporary one."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CONFIG", "CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    for name in ("NO_COLOR", "OUTRIDER_CONFIG_HOME", "OUTRIDER_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return home
