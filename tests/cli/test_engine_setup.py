from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from outrider.cli.engine_setup import (
    engine_settings,
    generation_settings,
    load_engine,
    sampling_settings,
    tell_notices,
    template_kwargs,
)
from outrider.cli.errors import UsageError
from outrider.profiles.load import load_profile
from outrider.profiles.sampling import GRAMMAR_KEYS
from outrider.profiles.schema import Profile
from outrider.speculative.settings import (
    DrafterSettings,
    GenerationSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)


def profile(zoo: Path, **overrides: object) -> Profile:
    paths = {name.replace("__", "."): value for name, value in overrides.items()}
    target = {"source": str(zoo / "target-llama.gguf")}
    return load_profile("base", {"target.model": target, **paths})


def test_the_base_profile_is_the_engines_own_defaults(zoo: Path) -> None:
    settings = engine_settings(profile(zoo))
    assert settings.target == ModelSettings(path=zoo / "target-llama.gguf")
    assert settings.drafters == ()
    assert settings.speculation == SpeculationSettings()
    assert generation_settings(profile(zoo)) == GenerationSettings()


def test_every_value_arrives(zoo: Path) -> None:
    draft = zoo / "draft-simple.gguf"
    given = profile(
        zoo,
        target__ctx_size=512,
        target__batch_size=64,
        target__ubatch_size=32,
        target__threads=2,
        target__threads_batch=3,
        target__gpu_layers=0,
        target__flash_attn="off",
        target__cache_type_k="q8_0",
        target__cache_type_v="bf16",
        drafter__kinds=("draft-simple", "ngram-simple"),
        drafter__model={"source": str(draft)},
        drafter__match=2,
        drafter__size=5,
        drafter__threads=4,
        drafter__threads_batch=5,
        drafter__gpu_layers=1,
        drafter__cache_type_k="f32",
        drafter__cache_type_v="q4_0",
        speculation__n_max=6,
        speculation__n_min=1,
        speculation__p_min=0.5,
        speculation__sampling="probabilistic",
        speculation__verify="match",
        speculation__adaptive=False,
        speculation__max_slots=2,
        sampling__temp=0.1,
        sampling__top_k=3,
        sampling__top_p=0.4,
        sampling__min_p=0.2,
        sampling__repeat_penalty=1.5,
        sampling__repeat_last_n=9,
        sampling__frequency_penalty=0.3,
        sampling__presence_penalty=0.6,
        sampling__logit_bias={5: -1.0},
        sampling__ignore_eos=True,
        sampling__seed=11,
        sampling__predict=12,
        sampling__stop=("END",),
    )
    settings = engine_settings(given)
    assert settings.target == ModelSettings(
        zoo / "target-llama.gguf", 512, 64, 32, 2, 3, 0, "off", "q8_0", "bf16"
    )
    assert settings.drafters == (
        DrafterSettings(
            "draft-simple", ModelSettings(draft, 512, 64, 32, 4, 5, 1, "off", "f32", "q4_0")
        ),
        DrafterSettings("ngram-simple", options={"match": 2, "size": 5}),
    )
    assert settings.speculation == SpeculationSettings(
        6, 1, 0.5, "probabilistic", "match", False, 2
    )
    sampling = SamplingSettings(
        temp=0.1,
        top_k=3,
        top_p=0.4,
        min_p=0.2,
        repeat_penalty=1.5,
        repeat_last_n=9,
        frequency_penalty=0.3,
        presence_penalty=0.6,
        logit_bias={5: -1.0},
        ignore_eos=True,
    )
    assert generation_settings(given) == GenerationSettings(sampling, 12, ("END",), 11)


def test_what_only_some_drafters_have_arrives(zoo: Path) -> None:
    given = profile(
        zoo,
        drafter__kinds=("ngram-map-k4v", "ngram-mod", "ngram-cache"),
        drafter__ngram_map_k4v__match=4,
        drafter__ngram_map_k4v__size=9,
        drafter__ngram_map_k4v__min_hits=2,
        drafter__ngram_mod__n_match=16,
        drafter__ngram_mod__n_min=0,
        drafter__ngram_mod__n_max=7,
        drafter__ngram_cache__static="corpus.bin",
        drafter__ngram_cache__dynamic="earlier.bin",
    )
    assert engine_settings(given).drafters == (
        DrafterSettings("ngram-map-k4v", options={"match": 4, "size": 9, "min_hits": 2}),
        DrafterSettings("ngram-mod", n_max=7, options={"n_match": 16, "n_min": 0}),
        DrafterSettings("ngram-cache", options={"static": "corpus.bin", "dynamic": "earlier.bin"}),
    )


def test_no_value_of_the_profile_is_forgotten() -> None:
    """The names that engine and profile share are the same: a new one has to be mapped."""
    shared = {"target": ModelSettings, "sampling": SamplingSettings}
    for section, settings in shared.items():
        schema = type(getattr(Profile(), section))
        here = {field.name for field in fields(schema)}
        there = {field.name for field in fields(cast(Any, settings))}
        assert there - here <= {"path"}
        of_the_answer = {field.name for field in fields(GenerationSettings)}
        assert here - there <= {"model", *of_the_answer, *GRAMMAR_KEYS}


def test_threads_follow_the_target_unless_given(zoo: Path) -> None:
    draft = {"source": str(zoo / "draft-simple.gguf")}
    settings = engine_settings(profile(zoo, target__threads=3, drafter__model=draft))
    [drafter] = settings.drafters
    assert drafter.kind == ""  # read from the file
    assert drafter.model is not None
    assert (drafter.model.threads, drafter.model.threads_batch) == (3, 3)
    assert settings.target.threads_batch == 3


def test_a_profile_without_a_model_says_how_to_give_one() -> None:
    with pytest.raises(UsageError, match="profile base names no model: give one with -m"):
        engine_settings(load_profile("base"))


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, {"enable_thinking": True, "thinking": True}),  # as llama.cpp
        ({"chat__reasoning": "off"}, {"enable_thinking": False, "thinking": False}),
        ({"chat__reasoning": "on"}, {"enable_thinking": True, "thinking": True}),
        (
            {"chat__reasoning": "on", "chat__template_kwargs": {"enable_thinking": 1, "a": 2}},
            {"enable_thinking": 1, "thinking": True, "a": 2},
        ),
        (
            {"chat__reasoning_preserve": True},
            {"enable_thinking": True, "thinking": True, "preserve_reasoning": True},
        ),
    ],
)
def test_reasoning_is_a_variable_of_the_template(
    zoo: Path, values: dict[str, object], wanted: dict[str, object]
) -> None:
    assert template_kwargs(profile(zoo, **values).chat) == wanted


def test_notices_are_told_about_given_flags_or_with_v(capsys: pytest.CaptureFixture[str]) -> None:
    notices = ("--gpu-layers 5: this build runs on the CPU only", "context 9: trained on 8")
    engine = cast(Any, SimpleNamespace(notices=notices))
    tell_notices(engine, {}, verbose=False)
    tell_notices(engine, {"sampling.temp": 0.0}, verbose=False)
    assert capsys.readouterr().err == ""
    tell_notices(engine, {"target.gpu_layers": 5}, verbose=False)
    assert capsys.readouterr().err == f"outrider: note: {notices[0]}\n"
    tell_notices(engine, {}, verbose=True)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_engine_is_loaded(zoo: Path) -> None:
    stages: list[str] = []
    given = profile(zoo, target__ctx_size=256)
    with load_engine(given, progress=lambda stage, _done: stages.append(stage)) as engine:
        assert (engine.model_name, engine.n_ctx) == ("zoo target-llama", 256)
    assert set(stages) == {"target"}


def test_the_defaults_of_both_sides_are_the_same() -> None:
    """Profiles and the engine do not know each other: each writes llama.cpp's defaults down."""
    assert sampling_settings(Profile().sampling) == SamplingSettings()
