"""Drafters that cannot work are refused before llama.cpp could abort on them.

Every test runs in this process: an abort would end it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tools.gguf_edit import GgufEdit
from tools.gguf_writer import Block, model, write
from tools.toy_session import result_of
from tools.witness import engine_settings, model_settings
from tools.zoo_pairs import PAIRS, PROMPTS, ZOO

from outrider.speculative.drafters.build import plan
from outrider.speculative.engine import Engine
from outrider.speculative.errors import EngineError, InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_vocabulary import GgufVocabulary
from outrider.speculative.settings import (
    DrafterSettings,
    GenerationSettings,
    SamplingSettings,
    SpeculationSettings,
)

LLAMA = ZOO / "target-llama.gguf"
QWEN = ZOO / "target-mtp-qwen35.gguf"
ASKED = GenerationSettings(SamplingSettings(temp=0), predict=20)
NO_OTHER = "; use a drafter made for this model, or --spec-type ngram-edit, which needs none"


def _refusal(target: Path, drafter: Path | None, kind: str = "", p_min: float = 0.0) -> str:
    settings = model_settings(drafter) if drafter else None
    with pytest.raises(InputError) as caught:
        Engine.load(engine_settings(target, [DrafterSettings(kind, settings)], p_min=p_min))
    message = str(caught.value)
    assert "\n" not in message
    return message


# a file that is something else

FILES = {
    "draft-simple": "draft-simple",
    "draft-eagle3": "eagle3-d2t",
    "draft-dflash": "dflash",
    "draft-dspark": "dspark",
    "draft-mtp": "mtp-qwen35-head",
}


@pytest.mark.parametrize(
    ("asked", "made"), [(asked, made) for asked in FILES for made in FILES if asked != made]
)
def test_a_file_that_is_no_drafter_of_the_asked_kind(asked: str, made: str) -> None:
    target = QWEN if "draft-mtp" in (asked, made) else LLAMA
    draft = ZOO / f"{FILES[made]}.gguf"
    is_what = (
        "it is a whole model, for draft-simple"
        if made == "draft-simple"
        else f"it is a {made} drafter"
    )
    assert _refusal(target, draft, asked) == (
        f"{draft} cannot draft for {target}: kind: {is_what}, --spec-type says {asked}{NO_OTHER}"
    )


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("eagle3", "draft-eagle3"),
        ("draft-eagle", "draft-eagle3"),
        ("draft-dflsh", "draft-dflash"),
        ("draft_mtp", "draft-mtp"),
        ("dspark", "draft-dspark"),
    ],
)
def test_a_misspelt_kind_gets_the_nearest(asked: str, nearest: str) -> None:
    message = _refusal(LLAMA, ZOO / "eagle3-d2t.gguf", asked)
    assert message.startswith(f"drafter {asked!r}: allowed draft-simple, draft-eagle3, draft-mtp")
    assert message.endswith(f"; did you mean {nearest}?")


@pytest.mark.parametrize("kind", ["draft-eagle3", "draft-dflash", "draft-dspark"])
def test_a_kind_that_needs_a_file(kind: str) -> None:
    assert _refusal(LLAMA, None, kind) == f"drafter {kind} needs a model; give --model-draft FILE"


# a drafter of another target


@pytest.mark.parametrize(
    ("name", "key", "target"),
    [
        ("eagle3-d2t", "eagle3.target_hidden_size", LLAMA),
        ("eagle3-full", "eagle3.target_hidden_size", LLAMA),
        ("dflash", "dflash.embedding_length", LLAMA),
        ("dspark", "dflash.embedding_length", LLAMA),
        ("mtp-qwen35-head", "qwen35.embedding_length", QWEN),
    ],
)
def test_another_width(name: str, key: str, target: Path, tmp_path: Path) -> None:
    draft = GgufEdit(ZOO / f"{name}.gguf").set(key, 64).write(tmp_path / "draft.gguf")
    assert _refusal(target, draft) == (
        f"{draft} cannot draft for {target}: width: drafter expects 64, target 96{NO_OTHER}"
    )


@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("lfm2-dflash", "target-llama", "drafter reads 1 3 4, target has 4"),
        ("lfm2-eagle3-d2t", "target-llama", "drafter reads 1 3 4, target has 4"),
        # a block of NextN heads is counted in the file, but is no layer that can be read
        ("eagle3-d2t", "target-mtp-qwen35", "drafter reads 1 2 3, target has 3"),
        ("dspark-spec", "target-mtp-qwen35", "drafter reads 1 2 3, target has 3"),
        ("lfm2-dflash", "target-mtp3-mimo2", "drafter reads 1 3 4, target has 4"),
    ],
)
def test_layers_that_the_target_does_not_have(name: str, target: str, reason: str) -> None:
    assert f": layers: {reason};" in _refusal(ZOO / f"{target}.gguf", ZOO / f"{name}.gguf")


@pytest.mark.parametrize(
    ("name", "layers", "reason"),
    [
        ("eagle3-d2t", [1, 2], "drafter reads 1 2, target has 4; eagle3 reads 3"),
        ("eagle3-d2t", [0, 1, 2, 3], "drafter reads 0 1 2 3, target has 4; eagle3 reads 3"),
        ("eagle3-d2t", [1, 2, -1], "drafter reads 1 2 -1, target has 4"),
        ("dflash", [1, 2, 9], "drafter reads 1 2 9, target has 4"),
    ],
)
def test_impossible_layers(name: str, layers: list[int], reason: str, tmp_path: Path) -> None:
    source = ZOO / f"{name}.gguf"
    key = f"{GgufFile.open(source).text('general.architecture')}.target_layers"
    draft = GgufEdit(source).set(key, layers).write(tmp_path / "draft.gguf")
    assert f": layers: {reason};" in _refusal(LLAMA, draft)
    draft = GgufEdit(source).drop(key).write(tmp_path / "draft.gguf")
    assert ": layers: drafter reads none, target has 4" in _refusal(LLAMA, draft)


def _words(path: Path) -> list[bytes]:
    vocabulary = GgufVocabulary.read(GgufFile.open(path))
    assert vocabulary is not None
    return list(vocabulary.texts())


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("eagle3-d2t", LLAMA),
        ("dflash2", LLAMA),
        ("dspark-spec", LLAMA),
        ("mtp-qwen35-head", QWEN),
        ("draft-simple", LLAMA),
    ],
)
def test_another_vocabulary(name: str, target: Path, tmp_path: Path) -> None:
    source = ZOO / f"{name}.gguf"
    words = _words(source)
    before, words[300] = words[300].decode(), b"Wort"
    key = "tokenizer.ggml.tokens"
    draft = GgufEdit(source).set(key, words).write(tmp_path / "draft.gguf")
    assert (
        f": vocabulary: token 300 is 'Wort' for the drafter, {before!r} for the target"
        in _refusal(target, draft)
    )
    draft = GgufEdit(source).set(key, words[:300]).write(tmp_path / "draft.gguf")
    assert ": vocabulary: drafter 300, target 512: over 128 apart" in _refusal(target, draft)


@pytest.mark.parametrize("name", ["eagle3-d2t", "dflash", "dspark-spec"])
@pytest.mark.parametrize("extra", [-12, 8])
def test_a_vocabulary_of_nearly_the_size_does_not_do_for_borrowed_tensors(
    name: str, extra: int, tmp_path: Path
) -> None:
    words = [*_words(LLAMA), *(f"extra{i}".encode() for i in range(8))][: 512 + extra]
    edit = GgufEdit(ZOO / f"{name}.gguf").set("tokenizer.ggml.tokens", words)
    assert (
        f": vocabulary: drafter {512 + extra}, target 512:"
        " it uses the target's embeddings, both must have as many"
    ) in _refusal(LLAMA, edit.write(tmp_path / "draft.gguf"))


@pytest.mark.parametrize("target", ["target-swa-gemma3", "target-mtp-glm4moe"])
@pytest.mark.parametrize("name", ["eagle3-d2t", "eagle3-full", "dflash", "dflash2", "dspark"])
def test_a_target_whose_layers_cannot_be_read(name: str, target: str) -> None:
    architecture = target.rpartition("-")[2]
    message = _refusal(ZOO / f"{target}.gguf", ZOO / f"{name}.gguf")
    assert f": kind: {architecture} targets do not let their layers be read;" in message


# NextN heads


@pytest.mark.parametrize("target", ["target-llama", "target-hybrid-lfm2", "target-swa-gemma3"])
def test_a_target_without_heads(target: str) -> None:
    path = ZOO / f"{target}.gguf"
    assert _refusal(path, None, "draft-mtp") == (
        f"{path}: drafter draft-mtp: this target has no NextN heads;"
        " give them with --model-draft FILE, or use --spec-type ngram-edit"
    )


def test_a_target_whose_heads_were_left_out(tmp_path: Path) -> None:
    """Its metadata still count them."""
    edit = GgufEdit(ZOO / "target-mtp-glm4moe.gguf").drop_block(4)
    path = edit.write(tmp_path / "target.gguf")
    assert ": this target has no NextN heads;" in _refusal(path, None, "draft-mtp")
    with Engine.load(engine_settings(path)) as engine:
        assert engine.drafter_names == ()


def test_heads_of_another_architecture() -> None:
    message = _refusal(LLAMA, ZOO / "mtp-qwen35-head.gguf")
    assert ": kind: drafter of qwen35, target llama;" in message
    # a whole model that has heads may lend them, but to its own kind only
    assert ": kind: drafter of qwen35, target llama;" in _refusal(LLAMA, QWEN, "draft-mtp")


def test_heads_that_were_not_loaded() -> None:
    """llama.cpp counts them all the same and aborts on them."""
    prompt = PROMPTS[0]
    with Engine.load(engine_settings(QWEN)) as engine:
        session = engine.session()
        first = result_of(session.generate(engine.encode(prompt.text), ASKED))
        with pytest.raises(InputError) as caught:
            engine.configure(SpeculationSettings(), [DrafterSettings("draft-mtp")])
        assert str(caught.value) == (
            f"{QWEN}: loaded without NextN heads; start with --spec-type draft-mtp"
        )
        # the former way stays
        assert engine.drafter_names == ()
        again = result_of(session.generate(engine.encode(prompt.text), ASKED))
        assert again.token_ids == first.token_ids


def test_the_target_as_its_own_draft_file_uses_its_own_heads() -> None:
    drafter = DrafterSettings("draft-mtp", model_settings(QWEN))
    with Engine.load(engine_settings(QWEN, [drafter], n_max=4)) as engine:
        assert len(engine._models._models) == 1
        prompt = PROMPTS[0]
        result = result_of(engine.session().generate(engine.encode(prompt.text), ASKED))
        assert result.token_ids == PAIRS["mtp-qwen35"].answer(prompt)
        assert result.stats.accepted > 0


@pytest.mark.parametrize(
    ("architecture", "heads", "reason"),
    [
        ("llama", 1, "1 NextN head of llama: they cannot be run"),
        ("exaone-moe", 1, "1 NextN head of exaone-moe: they cannot be run"),
        ("qwen35", 2, "2 NextN heads of qwen35: only one can be run"),
        ("hy_v3", 2, "2 NextN heads of hy_v3: only one can be run"),
        ("mimo2", 2, None),
        ("glm4moe", 1, None),
    ],
)
def test_heads_that_cannot_be_run(
    architecture: str, heads: int, reason: str | None, tmp_path: Path
) -> None:
    metadata = model(general__architecture=architecture)
    metadata.update(
        {
            f"{architecture}.block_count": 3,
            f"{architecture}.embedding_length": 64,
            f"{architecture}.nextn_predict_layers": heads,
        }
    )
    names = [f"blk.{i}.nextn.eh_proj.weight" for i in range(3 - heads, 3)]
    tensors = {name: Block() for name in ["blk.0.attn_q.weight", *names]}
    path = write(tmp_path / "target.gguf", metadata, tensors)
    drafter = DrafterSettings("draft-mtp")
    if reason is None:
        plan(drafter, SpeculationSettings(), path)
        return
    with pytest.raises(InputError) as caught:
        plan(drafter, SpeculationSettings(), path)
    assert str(caught.value) == (
        f"{path}: drafter draft-mtp: {reason}; use another drafter, or --spec-type ngram-edit"
    )


def test_heads_that_share_the_cache_of_their_target(tmp_path: Path) -> None:
    """Not known here: a context of theirs would empty the target's."""
    metadata = model(general__architecture="gemma4")
    metadata["gemma4.embedding_length"] = 64
    target = write(tmp_path / "target.gguf", metadata)
    metadata = model(general__architecture="gemma4-assistant")
    metadata |= {
        "gemma4-assistant.block_count": 2,
        "gemma4-assistant.embedding_length": 64,
        "gemma4-assistant.nextn_predict_layers": 2,
    }
    names = [f"blk.{i}.nextn.eh_proj.weight" for i in range(2)]
    draft = write(tmp_path / "draft.gguf", metadata, {name: Block() for name in names})
    with pytest.raises(InputError, match="NextN heads of gemma4-assistant: they cannot be run"):
        plan(DrafterSettings("", model_settings(draft)), SpeculationSettings(), target)


# what a file lacks


def test_p_min_for_a_dspark_drafter_without_a_confidence_head() -> None:
    """llama-server goes on without a drafter and does not say so."""
    draft = ZOO / "dspark-spec.gguf"
    assert _refusal(LLAMA, draft, p_min=0.5) == (
        f"--spec-draft-p-min 0.5: {draft} has no confidence head to cut drafts by;"
        " give 0, or a shorter --spec-draft-n-max"
    )
    pair = PAIRS["dspark-spec"]
    with pair.load(n_max=4) as engine:
        with pytest.raises(InputError, match="has no confidence head"):
            engine.configure(SpeculationSettings(adaptive=False, n_max=4, p_min=0.1))
        assert engine.speculation.p_min == 0
        assert engine.drafter_names == ("draft-dspark",)
    # with the head it cuts, and DFlash needs none
    for name in ("dspark", "dflash"):
        with PAIRS[name].load(n_max=4, p_min=0.5) as engine:
            assert engine.drafter_names == (PAIRS[name].kind,)


@pytest.mark.parametrize("name", ["dflash", "dflash2", "dspark", "dspark-spec"])
def test_a_block_drafter_without_a_mask_token(name: str, tmp_path: Path) -> None:
    edit = GgufEdit(ZOO / f"{name}.gguf").drop("tokenizer.ggml.mask_token_id")
    draft = edit.write(tmp_path / "draft.gguf")
    assert _refusal(LLAMA, draft) == (
        f"{draft}: a {PAIRS[name].kind} drafter without a mask token; convert it again"
    )


@pytest.mark.parametrize("name", ["eagle3-d2t", "dflash2", "dspark", "mtp-qwen35-head"])
@pytest.mark.parametrize("kind", ["given", "found"])
def test_a_truncated_file(name: str, kind: str, tmp_path: Path) -> None:
    pair = PAIRS.get(name, PAIRS["mtp-qwen35-head"])
    content = (ZOO / f"{name}.gguf").read_bytes()
    for length in (0, 3, 20, 1000, len(content) // 2, len(content) - 64):
        draft = tmp_path / "draft.gguf"
        draft.write_bytes(content[:length])
        message = _refusal(pair.target, draft, pair.kind if kind == "given" else "")
        assert message.startswith(f"{draft}: ")
        assert message.endswith(("fetch it again", "fetch or convert it again", "model file"))


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    for kind in ("", *FILES):
        message = _refusal(LLAMA, tmp_path / "gone.gguf", kind)
        assert message == f"{tmp_path}/gone.gguf: no such file; check the path"


@pytest.mark.parametrize("name", ["eagle3-d2t", "dflash", "dspark"])
def test_a_drafter_that_lacks_a_tensor_is_an_error_not_an_abort(name: str, tmp_path: Path) -> None:
    """Its header is right: llama.cpp reads the file and refuses."""
    draft = GgufEdit(ZOO / f"{name}.gguf").drop("fc.weight").write(tmp_path / "draft.gguf")
    settings = replace(PAIRS[name].drafter, model=model_settings(draft))
    with pytest.raises(EngineError, match=r"draft\.gguf: llama\.cpp cannot load this model"):
        Engine.load(engine_settings(LLAMA, [settings]))
