from __future__ import annotations

import pytest

from outrider.profiles.chain import apply_drafter_flags, drafter_faults
from outrider.profiles.errors import ProfileError
from outrider.profiles.model_source import ModelSource
from outrider.profiles.schema import Drafter

NGRAM = Drafter(kind="ngram-simple", match=3)
MODEL = Drafter(kind="draft-simple", model=ModelSource("d.gguf"), n_max=5)
OTHER = ModelSource("other.gguf")


def test_without_flags_the_chain_stays() -> None:
    assert apply_drafter_flags((NGRAM, MODEL), {"sampling.temp": 1}) == (NGRAM, MODEL)


def test_none_removes_everything_other_drafter_flags_included() -> None:
    flags = {"drafter.kinds": (), "drafter.gpu_layers": 3, "drafter.model": OTHER}
    assert apply_drafter_flags((NGRAM, MODEL), flags) == ()


def test_kinds_replace_the_chain_and_keep_known_settings() -> None:
    chain = apply_drafter_flags((NGRAM, MODEL), {"drafter.kinds": ("draft-simple", "filler")})
    assert chain == (MODEL, Drafter(kind="filler"))


def test_a_kind_names_the_drafter_whose_file_was_to_tell_it() -> None:
    unnamed = Drafter(model=ModelSource("d.gguf"), threads=2)
    chain = apply_drafter_flags((unnamed,), {"drafter.kinds": ("draft-simple",)})
    assert chain == (Drafter(kind="draft-simple", model=ModelSource("d.gguf"), threads=2),)


def test_a_draft_model_replaces_the_model_and_keeps_the_rest() -> None:
    chain = apply_drafter_flags((NGRAM, MODEL), {"drafter.model": OTHER})
    assert chain == (NGRAM, Drafter(kind="draft-simple", model=OTHER, n_max=5))


def test_a_draft_model_is_added_where_there_is_none() -> None:
    assert apply_drafter_flags((NGRAM,), {"drafter.model": OTHER}) == (NGRAM, Drafter(model=OTHER))
    kinds = {"drafter.kinds": ("draft-simple",), "drafter.model": OTHER}
    assert apply_drafter_flags((NGRAM,), kinds) == (Drafter(kind="draft-simple", model=OTHER),)


def test_settings_go_to_the_drafters_that_have_them() -> None:
    flags = {"drafter.match": 7, "drafter.gpu_layers": "all", "drafter.threads": 2}
    ngram, model = apply_drafter_flags((NGRAM, MODEL), flags)
    assert (ngram.match, ngram.gpu_layers, ngram.threads) == (7, "auto", None)
    assert (model.match, model.gpu_layers, model.threads) == (None, "all", 2)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "drafter.gpu_layers",
            3,
            "--gpu-layers-draft: 3: needs a draft model among the drafters: add --model-draft FILE",
        ),
        (
            "drafter.ngram_simple.match",
            3,
            "--spec-ngram-simple-size-n: 3: needs ngram-simple among the drafters:"
            " add --spec-type ngram-simple",
        ),
    ],
)
def test_a_setting_nobody_has_is_refused(path: str, value: object, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        apply_drafter_flags((Drafter(kind="filler"),), {path: value})
    assert str(caught.value) == message


def test_the_flags_of_a_kind_set_nothing_in_others() -> None:
    chain = (NGRAM, Drafter(kind="ngram-map-k"), Drafter(kind="ngram-mod"))
    flags = {
        "drafter.ngram_map_k.match": 9,
        "drafter.ngram_map_k.min_hits": 2,
        "drafter.ngram_mod.n_max": 32,
        "drafter.ngram_mod.n_match": 16,
    }
    assert apply_drafter_flags(chain, flags) == (
        NGRAM,
        Drafter(kind="ngram-map-k", match=9, min_hits=2),
        Drafter(kind="ngram-mod", n_match=16, n_max=32),
    )
    with pytest.raises(ProfileError) as caught:
        apply_drafter_flags(chain, {"drafter.ngram_cache.static": "corpus.bin"})
    assert str(caught.value) == (
        "--lookup-cache-static: 'corpus.bin': needs ngram-cache among the drafters:"
        " add --spec-type ngram-cache"
    )


def test_settings_of_another_kind_are_faults() -> None:
    wrong = Drafter(kind="ngram-simple", threads=2, cache_type_k="q8_0")
    assert list(drafter_faults((MODEL, wrong))) == [
        "drafters[1].threads: 2: ngram-simple has no such setting",
        "drafters[1].cache_type_k: 'q8_0': ngram-simple has no such setting",
    ]
    assert list(drafter_faults((Drafter(model=OTHER, match=3),))) == [
        "drafters[0].match: 3: a draft model has no such setting"
    ]
    mod = Drafter(kind="ngram-mod", match=3, n_match=24, n_max=9)
    assert list(drafter_faults((mod,))) == ["drafters[0].match: 3: ngram-mod has no such setting"]
    assert list(drafter_faults((NGRAM, MODEL, Drafter(model=OTHER)))) == []
