"""From settings to drafters, and what is refused before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tools.gguf_writer import Block, Given, gguf
from tools.witness import engine_settings, model_settings

from outrider.speculative.drafters import KINDS
from outrider.speculative.drafters.build import (
    Site,
    build_chain,
    draft_limit,
    fixed_length,
    kind_of,
    plan,
)
from outrider.speculative.drafters.chain import ChainDrafter
from outrider.speculative.drafters.model_drafter import ModelDrafter
from outrider.speculative.engine import Engine
from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_vocabulary import GgufVocabulary
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model_store import ModelStore
from outrider.speculative.settings import DrafterSettings, SpeculationSettings

FIXED = SpeculationSettings(adaptive=False)
TOKENS = "tokenizer.ggml.tokens"


@pytest.fixture
def target(zoo: Path) -> Path:
    return zoo / "target-llama.gguf"


@pytest.fixture
def site(target: Path) -> Iterator[Site]:
    models = ModelStore(lambda _role, _fraction: None)
    settings = model_settings(target)
    runner = LlamaRunner(models.get(settings, "target"), settings, n_ctx=256)
    yield Site(runner, models, n_seq=1)
    runner.close()
    models.close()


def _build(drafters: Sequence[DrafterSettings], site: Site) -> ChainDrafter:
    return build_chain([plan(one, FIXED, site.target.model.path) for one in drafters], site)


def _model(path: Path, kind: str = "draft-simple") -> DrafterSettings:
    return DrafterSettings(kind, model_settings(path))


def _file(
    path: Path, metadata: Mapping[str, Given], tensors: Mapping[str, Block] | None = None
) -> Path:
    path.write_bytes(gguf(metadata, tensors))
    return path


def _words(target: Path) -> list[bytes]:
    """The vocabulary of the target, as the file has it."""
    vocabulary = GgufVocabulary.read(GgufFile.open(target))
    assert vocabulary is not None
    return list(vocabulary.texts())


# kinds


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("draft-simpel", "draft-simple"),
        ("ngram_simple", "ngram-simple"),
        ("orakel", "oracle"),
        ("eagle", None),
    ],
)
def test_an_unknown_kind_names_the_nearest(name: str, nearest: str | None) -> None:
    with pytest.raises(InputError) as caught:
        kind_of(DrafterSettings(name))
    message = str(caught.value)
    assert message.startswith(f"drafter '{name}': allowed draft-simple, draft-eagle3")
    assert message.endswith(f"; did you mean {nearest}?") == (nearest is not None)
    assert "\n" not in message


def test_a_model_drafter_without_a_model(site: Site) -> None:
    with pytest.raises(InputError, match="drafter draft-simple needs a model; give --model-draft"):
        _build([DrafterSettings("draft-simple")], site)


def test_neither_kind_nor_model() -> None:
    with pytest.raises(InputError, match="needs a kind or a model; give --spec-type or"):
        kind_of(DrafterSettings(""))


def test_a_kind_that_is_not_given_is_read_from_the_file(zoo: Path, tmp_path: Path) -> None:
    assert kind_of(_model(zoo / "draft-simple.gguf", "")) is KINDS["draft-simple"]
    head = _file(tmp_path / "head.gguf", {"general.architecture": "eagle3"})
    assert kind_of(_model(head, "")) is KINDS["draft-eagle3"]


def test_a_draft_file_that_is_missing(site: Site, tmp_path: Path) -> None:
    for kind in ("", "draft-simple"):
        with pytest.raises(InputError, match=r"gone\.gguf"):
            _build([_model(tmp_path / "gone.gguf", kind)], site)


def test_drafters_are_built_in_the_order_written(zoo: Path, site: Site) -> None:
    drafters = [
        DrafterSettings("ngram-simple", options={"match": 3, "size": 5}),
        _model(zoo / "draft-simple.gguf", ""),
        DrafterSettings("script", options={"drafts": [[1]]}),
        DrafterSettings("oracle", options={"answer": [1, 2], "prompt_length": 4}),
        DrafterSettings("filler", options={"token_id": 7}),
    ]
    chain = _build(drafters, site)
    names = ["ngram-simple", "draft-simple", "script", "oracle", "filler"]
    assert [member.name for member in chain.members] == names
    assert [member.n_max for member in chain.members] == [5, 3, 64, 64, 3]
    assert [member.gives_law for member in chain.members] == [False, True, False, False, False]
    chain.close()


def test_what_was_built_is_closed_when_the_next_cannot_be(
    zoo: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    close = ModelDrafter.close

    def noted(drafter: ModelDrafter) -> None:
        closed.append(drafter)
        close(drafter)

    monkeypatch.setattr(ModelDrafter, "close", noted)
    good = _model(zoo / "draft-simple.gguf")
    broken = DrafterSettings("oracle", options={"answer": [1]})
    with pytest.raises(TypeError):
        _build([good, broken], site)
    assert len(closed) == 1


# lengths


@pytest.mark.parametrize(
    ("kind", "own", "bound", "fixed", "adaptive"),
    [
        ("draft-simple", None, None, 3, 8),
        ("draft-simple", 5, None, 5, 5),
        ("draft-simple", None, 12, 12, 12),
        ("draft-simple", 5, 2, 2, 2),
        ("draft-simple", 2, 5, 2, 2),
        ("ngram-simple", None, None, 48, 48),
        ("ngram-simple", None, 6, 6, 6),
        ("ngram-simple", 9, None, 9, 9),
        ("ngram-edit", None, None, 64, 64),
        ("ngram-edit", 9, None, 9, 9),
        ("filler", None, None, 3, 8),
    ],
)
def test_lengths(
    kind: str, own: int | None, bound: int | None, fixed: int, adaptive: int, zoo: Path
) -> None:
    model = model_settings(zoo / "draft-simple.gguf") if KINDS[kind].needs_model else None
    settings = DrafterSettings(kind, model, n_max=own)
    timed = SpeculationSettings(n_max=bound)
    steady = SpeculationSettings(n_max=bound, adaptive=False)
    assert fixed_length(settings, steady) == draft_limit(settings, steady) == fixed
    assert draft_limit(settings, timed) == adaptive


# pairs


def test_a_vocabulary_of_another_size_is_refused_with_both(target: Path, tmp_path: Path) -> None:
    small = _file(tmp_path / "small.gguf", _llama(_words(target)[:300]))
    message = _refusal(target, small)
    assert message.startswith(f"{small} cannot draft for {target}: vocabulary:")
    assert "drafter 300, target 512" in message


def test_another_token_is_refused_with_its_id_and_both_texts(target: Path, tmp_path: Path) -> None:
    words = _words(target)
    before, words[270] = words[270].decode(), b"Wort"
    other = _file(tmp_path / "other.gguf", _llama(words))
    message = _refusal(target, other)
    assert f"token 270 is 'Wort' for the drafter, {before!r} for the target" in message


def test_the_target_needs_no_check_against_itself(target: Path) -> None:
    with Engine.load(engine_settings(target, [_model(target)])) as engine:
        assert engine.drafter_names == ("draft-simple",)
        # one file, loaded once
        assert len(engine._models._models) == 1


def _llama(words: list[bytes]) -> dict[str, Given]:
    return {
        "general.architecture": "llama",
        "llama.context_length": 256,
        "tokenizer.ggml.model": "llama",
        TOKENS: words,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def _refusal(target: Path, draft: Path) -> str:
    with pytest.raises(InputError) as caught:
        Engine.load(engine_settings(target, [_model(draft)]))
    assert "\n" not in str(caught.value)
    return str(caught.value)
