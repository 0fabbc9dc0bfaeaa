"""The header reader: right about good files, and one line about every other."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools.gguf_writer import Block, Given, Raw, array, gguf, model, text, write

from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_header import MAX_HEADER_BYTES, GgufArray
from outrider.speculative.load_guard import check_loadable
from outrider.speculative.model_facts import ModelFacts
from outrider.speculative.tensor_types import TENSOR_TYPES

ZOO = Path(__file__).parent.parent / "fixtures" / "zoo"
TARGET = (ZOO / "target-llama.gguf").read_bytes()
HEADER_BYTES = 14272
FILE_SETTINGS = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300
)


def test_reads_the_zoo_target(zoo: Path) -> None:
    file = GgufFile.open(zoo / "target-llama.gguf")
    assert file.version == 3
    assert file.alignment == 32
    assert file.data_offset == HEADER_BYTES
    assert file.text("general.architecture") == "llama"
    assert file.integer("llama.block_count") == 4
    assert file.flag("tokenizer.ggml.add_space_prefix") is False
    tokens = file.text_array("tokenizer.ggml.tokens")
    assert tokens is not None
    assert tokens.strings()[:6] == [
        b"<unk>",
        b"<s>",
        b"</s>",
        b"<|im_start|>",
        b"<|im_end|>",
        b"<|mask|>",
    ]
    embedding = file.tensors["token_embd.weight"]
    assert (embedding.shape, embedding.type_name) == ((96, 512), "f16")
    assert sum(tensor.num_elements for tensor in file.tensors.values()) == 277344


def test_tensors_tile_the_file_to_its_last_byte(zoo: Path) -> None:
    for path in sorted(zoo.glob("*.gguf")):
        file = GgufFile.open(path)
        position = file.data_offset
        for tensor in file.tensors.values():
            assert tensor.offset == position
            position += -(-tensor.num_bytes // 32) * 32
        assert position == path.stat().st_size


def test_reads_every_kind_of_value(tmp_path: Path) -> None:
    metadata: dict[str, Given] = {
        "u8": Raw(0, b"\xff"),
        "i8": Raw(1, b"\xff"),
        "u16": Raw(2, b"\xff\xff"),
        "i16": Raw(3, b"\xff\xff"),
        "i32": Raw(5, struct.pack("<i", -7)),
        "f32": 0.5,
        "yes": True,
        "text": "naïve",
        "u64": Raw(10, struct.pack("<Q", 2**64 - 1)),
        "i64": Raw(11, struct.pack("<q", -(2**63))),
        "f64": Raw(12, struct.pack("<d", 0.1)),
    }
    file = GgufFile.open(write(tmp_path / "kinds.gguf", metadata))
    assert file.metadata == {
        "u8": 255,
        "i8": -1,
        "u16": 65535,
        "i16": -1,
        "i32": -7,
        "f32": 0.5,
        "yes": True,
        "text": "naïve",
        "u64": 2**64 - 1,
        "i64": -(2**63),
        "f64": 0.1,
    }


def test_arrays_are_decoded_when_asked_for(tmp_path: Path) -> None:
    metadata: dict[str, Given] = {
        "words": ["one", "", "three"],
        "numbers": [3, -1, 2],
        "flags": array(7, 3, b"\x01\x00\x01"),
        "none": array(8, 0, b""),
        "after": 9,
    }
    file = GgufFile.open(write(tmp_path / "arrays.gguf", metadata))
    assert _strings(file, "words") == [b"one", b"", b"three"]
    assert file.integers("numbers") == (3, -1, 2)
    assert file.integers("after") == (9,)
    assert file.integers("missing") == ()
    assert _strings(file, "none") == []
    flags = file.array("flags")
    assert isinstance(flags, GgufArray)
    assert flags.numbers() == (True, False, True)


def test_long_string_arrays_need_several_reads(tmp_path: Path) -> None:
    # the header is read in steps of a mebibyte at first; strings lie across the borders
    words = [b"x" * (n % 977) for n in range(9000)]
    file = GgufFile.open(write(tmp_path / "long.gguf", {"words": words, "after": 5}))
    assert file.data_offset > 4 << 20
    assert _strings(file, "words") == words
    assert file.integer("after") == 5


def test_alignment_of_the_file_is_used(tmp_path: Path) -> None:
    metadata: dict[str, Given] = {"general.alignment": 8, "k": ""}
    path = write(tmp_path / "aligned.gguf", metadata, tensors={})
    # 24 bytes of counts, two keys with lengths and types, values of 4 and 8 bytes: 78
    assert GgufFile.open(path).data_offset == 80


def test_wrong_kind_of_value_names_the_key(tmp_path: Path) -> None:
    file = GgufFile.open(
        write(tmp_path / "kind.gguf", {"a": "text", "b": True, "c": ["x"], "d": [1]})
    )
    asked: list[Callable[[], object]] = [
        lambda: file.integer("a"),
        lambda: file.integer("b"),
        lambda: file.text("b"),
        lambda: file.integers("c"),
        lambda: file.text_array("a"),
        lambda: file.text_array("d"),
        lambda: file.flag("a"),
    ]
    for ask in asked:
        with pytest.raises(InputError, match=r"kind\.gguf: metadata '[abcd]' is not"):
            ask()


def _header(num_tensors: int, num_keys: int, body: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys) + body


BAD_FILES = {
    "empty": (b"", "is empty"),
    "another format": (b"PK\x03\x04" + bytes(60), "not a GGUF file, it begins with b'PK"),
    "two bytes": (b"GG", "not a GGUF file"),
    "only the magic": (b"GGUF", "cut short"),
    "version 1": (_header(0, 0, version=1), "GGUF version 1;"),
    "version 4": (_header(0, 0, version=4), "GGUF version 4;"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "countless keys": (_header(0, 2**63), "claims 9,223,372,036,854,775,808 metadata keys"),
    "countless tensors": (_header(2**62, 0), "claims 4,611,686,018,427,387,904 tensors"),
    "endless key": (_header(0, 1, struct.pack("<Q", 2**64 - 1) + bytes(16)), "cut short"),
    "endless string": (
        _header(0, 1, text("key") + struct.pack("<IQ", 8, 2**40) + bytes(8)),
        "needs 1,099,511,627,8",
    ),
    "endless array": (
        _header(0, 1, text("key") + struct.pack("<IIQ", 9, 12, 2**60) + bytes(8)),
        "cut short",
    ),
    "endless array of strings": (
        _header(0, 1, text("key") + struct.pack("<IIQ", 9, 8, 2**60) + bytes(8)),
        "cut short",
    ),
    "endless string in an array": (
        _header(0, 1, text("key") + struct.pack("<IIQQ", 9, 8, 2, 2**63) + bytes(64)),
        "cut short",
    ),
    "unknown value type": (_header(0, 1, text("key") + struct.pack("<IQ", 13, 0)), "has type 13"),
    "array of arrays": (
        _header(0, 1, text("key") + struct.pack("<IIQ", 9, 9, 1) + bytes(32)),
        "is an array of type 9",
    ),
    "empty key": (_header(0, 1, text("") + struct.pack("<IQ", 4, 0)), "key '' is empty"),
    "a key twice": (
        _header(0, 2, (text("key") + struct.pack("<II", 4, 0)) * 2),
        "'key' is empty or there twice",
    ),
    "alignment 12": (gguf({"general.alignment": 12}), "not a power of two"),
    "alignment 0": (gguf({"general.alignment": 0}), "not a power of two"),
    "alignment in words": (gguf({"general.alignment": "32"}), "not a power of two"),
    "five dimensions": (gguf({}, {"a": Block((1, 1, 1, 1, 1))}), "claims 5 dimensions"),
    "unknown tensor type": (gguf({}, {"a": Block(kind=4)}), "unknown type 4"),
    "half a block": (gguf({}, {"a": Block((48,), 8, 51)}), "not whole q8_0 blocks of 32"),
    "impossible shape": (gguf({}, {"a": Block((2**40, 2**40))}), "impossible shape"),
    "long tensor name": (gguf({}, {"a" * 64: Block()}), "tensor name of 64"),
    "tensor data missing": (gguf({}, {"a": Block((64,), 0, 32)}), "cut short: tensor 'a'"),
    "a tensor twice": (
        _header(2, 0, (text("a") + struct.pack("<IQIQ", 1, 1, 0, 0)) * 2 + bytes(64)),
        "tensor 'a' is there twice",
    ),
    "a gap between tensors": (
        gguf({}, {"a": Block((4,), 0, 40), "b": Block()}),
        "tensor 'b' does not lie where",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line_with_path_and_reason(name: str, tmp_path: Path) -> None:
    data, reason = BAD_FILES[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        GgufFile.open(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert reason in message
    assert "\n" not in message
    assert ";" in message  # what to do comes after it


def test_a_header_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    path.write_bytes(_header(0, 1, text("key") + struct.pack("<IQ", 8, MAX_HEADER_BYTES)))
    os.truncate(path, 2 * MAX_HEADER_BYTES)
    with pytest.raises(InputError, match="claims more than 256 MiB"):
        GgufFile.open(path)


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "none.gguf", "no such file"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / ("n" * 300), "cannot be read"),
        ("nul\0name", "cannot be a file name"),
    ):
        with pytest.raises(InputError, match=reason):
            GgufFile.open(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "locked.gguf"
    path.write_bytes(TARGET)
    path.chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        GgufFile.open(path)


def test_an_error_while_reading_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    path = tmp_path / "locked.gguf"
    path.write_bytes(TARGET)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match=r"locked\.gguf: cannot be read: Permission denied"):
        GgufFile.open(path)


def _use(data: bytes, path: Path) -> None:
    """All that is done with a header before the native library sees the file."""
    path.write_bytes(data)
    with suppress(InputError):
        file = GgufFile.open(path)
        ModelFacts.of(file)
        check_loadable(file)


def _strings(file: GgufFile, key: str) -> list[bytes]:
    array = file.text_array(key)
    assert array is not None
    return array.strings()


@FILE_SETTINGS
@given(length=st.integers(0, len(TARGET) - 1))
def test_a_truncated_file_is_refused(length: int, tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(TARGET[:length])
    with pytest.raises(InputError):
        GgufFile.open(path)


@FILE_SETTINGS
@given(
    changes=st.lists(
        st.tuples(st.integers(0, HEADER_BYTES - 8), st.binary(min_size=1, max_size=8)),
        min_size=1,
        max_size=12,
    ),
    length=st.integers(0, len(TARGET)),
)
def test_a_damaged_file_raises_nothing_else(
    changes: list[tuple[int, bytes]], length: int, tmp_path: Path
) -> None:
    data = bytearray(TARGET)
    for position, new in changes:
        data[position : position + len(new)] = new
    _use(bytes(data), tmp_path / "whole.gguf")
    _use(bytes(data[:length]), tmp_path / "short.gguf")


@FILE_SETTINGS
@given(body=st.binary(max_size=400), counts=st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_noise_after_the_magic_raises_nothing_else(
    body: bytes, counts: tuple[int, int], tmp_path: Path
) -> None:
    _use(_header(*counts, body), tmp_path / "noise.gguf")


@FILE_SETTINGS
@given(
    key=st.sampled_from(sorted(GgufFile.open(ZOO / "target-llama.gguf").metadata)),
    value=st.sampled_from([Raw(4, bytes(4)), Raw(5, b"\xff" * 4), Raw(7, b"\x01")])
    | st.builds(Raw, st.just(8), st.text().map(text))
    | st.builds(lambda numbers: array(5, len(numbers), struct.pack(f"<{len(numbers)}i", *numbers)),
                st.lists(st.integers(-2**31, 2**31 - 1), max_size=4))
    | st.builds(lambda words: array(8, len(words), b"".join(map(text, words))),
                st.lists(st.text(max_size=3), max_size=4)),
)  # fmt: skip
def test_unexpected_metadata_raises_nothing_else(key: str, value: Raw, tmp_path: Path) -> None:
    _use(gguf({**model(), key: value}), tmp_path / "odd.gguf")


def test_tensor_types_are_those_of_the_installed_library() -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    library = ctypes.CDLL(
        str(next((Path(llama_cpp.__file__).parent / "lib").glob("*ggml-base*")).resolve())
    )
    library.ggml_type_name.restype = ctypes.c_char_p
    library.ggml_type_size.restype = ctypes.c_size_t
    library.ggml_blck_size.restype = ctypes.c_int64
    for number, kind in TENSOR_TYPES.items():
        assert library.ggml_type_name(number).decode() == kind.name
        assert library.ggml_type_size(number) == kind.block_bytes
        assert library.ggml_blck_size(number) == kind.block_size
    removed = [n for n in range(43) if n not in TENSOR_TYPES]
    assert all(library.ggml_blck_size(number) == 0 for number in removed)
