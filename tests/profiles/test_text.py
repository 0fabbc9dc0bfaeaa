from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tools.full_disk import full_disk

from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import FIELDS
from outrider.profiles.load import list_profiles, load_profile
from outrider.profiles.text import effective_yaml, key_table, new_profile

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [entry.name for entry in list_profiles()])
def test_what_is_shown_loads_to_the_same_profile(name: str) -> None:
    profile = load_profile(name)
    Path("shown.yaml").write_text(effective_yaml(profile))
    assert replace(load_profile("shown.yaml"), name=name) == profile


def test_odd_values_survive_being_shown() -> None:
    Path("odd.yaml").write_text(
        "description: 'on: # é\u2028'\nsampling: {stop: ['no', '1', \"a\\n\"], seed: 7,"
        " logit_bias: {5: -.inf}}\nchat: {system: 'null'}\ndrafters: [{kind: filler, n_max: 2}]"
    )
    profile = load_profile("odd.yaml")
    Path("shown.yaml").write_text(effective_yaml(profile))
    assert replace(load_profile("shown.yaml"), name="odd.yaml") == profile


def test_a_new_profile_extends_and_changes_nothing_yet(user_folders: Path) -> None:
    path = new_profile("mine", "smollm2")
    assert path == user_folders / "config" / "outrider" / "mine.yaml"
    mine = load_profile("mine")
    assert mine.extends is None
    plain = load_profile("smollm2")
    assert replace(mine, name="", description="") == replace(plain, name="", description="")


def test_the_examples_in_a_new_profile_are_right(user_folders: Path) -> None:
    path = new_profile("mine", "smollm2")
    lines = path.read_text().splitlines()
    examples = [line.removeprefix("# ") for line in lines if line.startswith("# ") and "{" in line]
    assert examples
    path.write_text("\n".join([*lines, *examples]))
    assert load_profile("mine").target.ctx_size == 8192


@pytest.mark.parametrize("name", ["1", "on", "1.5"])
def test_names_that_yaml_would_read_otherwise_work(name: str) -> None:
    new_profile(name, "smollm2")
    new_profile("child", name)
    assert load_profile("child").drafters[1].n_max == 3


def test_a_new_profile_may_extend_a_file() -> None:
    Path("a: b.yaml").write_text("sampling: {temp: 1}")
    new_profile("mine", "./a: b.yaml")
    assert load_profile("mine").sampling.temp == 1


def test_a_full_disk_leaves_no_part_of_a_profile(user_folders: Path) -> None:
    with full_disk(10), pytest.raises(ProfileError, match=r"mine.yaml: cannot be written"):
        new_profile("mine", "smollm2")
    assert list((user_folders / "config" / "outrider").iterdir()) == []


def test_nothing_is_overwritten() -> None:
    path = new_profile("mine", "smollm2")
    path.write_text("description: kept")
    with pytest.raises(ProfileError, match=r"mine.yaml: exists already; choose another name"):
        new_profile("mine", "smollm2")
    assert path.read_text() == "description: kept"


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "a.yaml", "-x", "a b"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ProfileError, match="allowed: letters, digits"):
        new_profile(name, "smollm2")


def test_a_parent_that_is_none_is_refused(user_folders: Path) -> None:
    with pytest.raises(ProfileError, match="no profile 'nosuch'"):
        new_profile("mine", "nosuch")
    assert not (user_folders / "config").exists()


def test_a_folder_that_cannot_be_written_is_one_line(user_folders: Path) -> None:
    (user_folders / "config").write_text("a file where a folder should be")
    with pytest.raises(ProfileError, match="cannot be written: Not a directory"):
        new_profile("mine", "smollm2")


def test_the_documentation_has_the_key_table() -> None:
    text = (ROOT / "docs" / "profiles.md").read_text("utf-8")
    assert key_table() in text, "put the output of outrider.profiles.text.key_table() there"


def test_the_key_table_has_every_key() -> None:
    table = key_table()
    assert len(table.splitlines()) == len(FIELDS) + 2
    assert "| `sampling.temp` | --temp --temperature | 0.8 | a number from 0 to 5 |" in table
    assert "| `sampling.repeat_penalty` | --repeat-penalty | 1.0 |" in table
    assert "| `drafters[].model` | -md " in table
