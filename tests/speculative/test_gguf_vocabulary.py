"""The vocabulary of a file: what llama.cpp would make of the same metadata."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.gguf_writer import Given, array, model, write

from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_vocabulary import GgufVocabulary


def _vocabulary(tmp_path: Path, **changes: Given) -> GgufVocabulary:
    changes = {f"tokenizer__ggml__{name}": value for name, value in changes.items()}
    file = GgufFile.open(write(tmp_path / "v.gguf", model(**changes)))
    vocabulary = GgufVocabulary.read(file)
    assert vocabulary is not None
    return vocabulary


def test_spm_defaults(tmp_path: Path) -> None:
    vocabulary = _vocabulary(tmp_path)
    assert (vocabulary.kind, vocabulary.num_tokens) == ("SPM", 9)
    assert (vocabulary.bos, vocabulary.eos) == (1, 2)
    assert (vocabulary.add_bos, vocabulary.add_eos) == (True, False)


@pytest.mark.parametrize(
    ("tokenizer", "pre", "add_bos", "add_eos"),
    [
        ("gpt2", "smollm", False, False),
        ("gpt2", "llama-bpe", True, False),
        ("gpt2", "tekken", True, False),
        ("llama", "llama-bpe", True, False),
        ("t5", "default", False, True),
        ("rwkv", "default", False, False),
        ("gemma4", "gemma4", True, False),
    ],
)
def test_what_is_added_when_the_file_is_silent(
    tokenizer: str, pre: str, add_bos: bool, add_eos: bool, tmp_path: Path
) -> None:
    vocabulary = _vocabulary(tmp_path, model=tokenizer, pre=pre)
    assert (vocabulary.add_bos, vocabulary.add_eos) == (add_bos, add_eos)


def test_the_file_wins_over_the_defaults(tmp_path: Path) -> None:
    vocabulary = _vocabulary(
        tmp_path, add_bos_token=False, add_eos_token=True, bos_token_id=3, padding_token_id=4
    )
    assert (vocabulary.add_bos, vocabulary.add_eos) == (False, True)
    assert vocabulary.special == {"bos": 3, "eos": 2, "eot": None, "pad": 4}


def test_ids_outside_the_vocabulary_do_not_count(tmp_path: Path) -> None:
    # the default of BPE, 11, lies outside this vocabulary of nine as well
    vocabulary = _vocabulary(tmp_path, model="gpt2", eos_token_id=9, bos_token_id=8)
    assert (vocabulary.bos, vocabulary.eos) == (8, None)
    assert _vocabulary(tmp_path, eos_token_id=9).eos == 2
    eleven = [f"word{number}" for number in range(11)]
    assert _vocabulary(tmp_path, model="gpt2", tokens=eleven).bos is None


def test_the_pinned_library_agrees_about_the_zoo(zoo: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    kinds = {"SPM": llama_cpp.LLAMA_VOCAB_TYPE_SPM}
    for path in sorted(zoo.glob("*.gguf")):
        ours = GgufVocabulary.read(GgufFile.open(path))
        assert ours is not None
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        native = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        vocabulary = llama_cpp.llama_model_get_vocab(native)
        try:
            assert llama_cpp.llama_vocab_type(vocabulary) == kinds[ours.kind]
            assert llama_cpp.llama_vocab_n_tokens(vocabulary) == ours.num_tokens
            assert llama_cpp.llama_vocab_bos(vocabulary) == ours.bos
            assert llama_cpp.llama_vocab_eos(vocabulary) == ours.eos
            assert llama_cpp.llama_vocab_pad(vocabulary) == ours.special["pad"]
            assert llama_cpp.llama_vocab_get_add_bos(vocabulary) == ours.add_bos
            assert llama_cpp.llama_vocab_get_add_eos(vocabulary) == ours.add_eos
            texts = ours.texts()
            for token_id in range(ours.num_tokens):
                assert llama_cpp.llama_vocab_get_text(vocabulary, token_id) == texts[token_id]
        finally:
            llama_cpp.llama_model_free(native)


def test_no_tokenizer_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "v.gguf", {"general.architecture": "clip"})
    assert GgufVocabulary.read(GgufFile.open(path)) is None


def test_an_unknown_tokenizer_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the tokenizer 'quipu' is unknown.*gpt2, .*llama"):
        _vocabulary(tmp_path, model="quipu")


def test_a_missing_or_wrong_token_list_is_refused(tmp_path: Path) -> None:
    metadata = model()
    del metadata["tokenizer.ggml.tokens"]
    file = GgufFile.open(write(tmp_path / "v.gguf", metadata))
    with pytest.raises(InputError, match="no token list"):
        GgufVocabulary.read(file)
    with pytest.raises(InputError, match=r"'tokenizer\.ggml\.tokens' is not strings"):
        _vocabulary(tmp_path, tokens=array(5, 1, bytes(4)))
