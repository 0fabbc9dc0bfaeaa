"""Lookup caches on disk: llama.cpp's format, damage, and several programs at once."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.drafters.ngram_cache_file import add_counts, load_counts
from outrider.speculative.drafters.ngram_counts import NgramCounts
from outrider.speculative.errors import InputError

VOCAB_SIZE = 512
Plain = dict[tuple[int, ...], dict[int, int]]


def _bytes(plain: Plain) -> bytes:
    """The file as common/ngram-cache.cpp writes it."""
    parts = []
    for ngram, part in plain.items():
        parts.append(struct.pack("<4i", *ngram, *[-1] * (4 - len(ngram))))
        parts.append(struct.pack("<i", len(part)))
        parts += [struct.pack("<2i", token, count) for token, count in part.items()]
    return b"".join(parts)


def _plain(counts: NgramCounts) -> Plain:
    return {struct.unpack(f"<{len(n) // 4}i", n): dict(part) for n, part in counts}


def _counts(plain: Plain) -> NgramCounts:
    counts = NgramCounts()
    for ngram, part in plain.items():
        for token, count in part.items():
            counts.add(struct.pack(f"<{len(ngram)}i", *ngram), token, count)
    return counts


ONE: Plain = {(3,): {4: 2, 5: 1}, (3, 4): {9: 1}, (1, 2, 3, 4): {511: 7, 0: 1}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lookup.bin"


def test_reading_what_llama_cpp_wrote(path: Path) -> None:
    path.write_bytes(_bytes(ONE))
    assert _plain(load_counts(path, VOCAB_SIZE)) == ONE


def test_writing_what_llama_cpp_reads(path: Path) -> None:
    add_counts(path, _counts(ONE), VOCAB_SIZE)
    assert path.read_bytes() == _bytes(ONE)


tokens = st.integers(0, VOCAB_SIZE - 1)
plains = st.dictionaries(
    st.lists(tokens, min_size=1, max_size=4).map(tuple),
    st.dictionaries(tokens, st.integers(1, 2**31 - 1), min_size=1, max_size=4),
    max_size=6,
)


@PROPERTY
@given(plains, plains)
def test_adding_to_a_file(tmp_path_factory: pytest.TempPathFactory, one: Plain, two: Plain) -> None:
    path = tmp_path_factory.mktemp("cache") / "lookup.bin"
    together: Plain = {}
    for plain in (one, two):
        add_counts(path, _counts(plain), VOCAB_SIZE)
        for ngram, part in plain.items():
            known = together.setdefault(ngram, {})
            for token, count in part.items():
                # what does not fit the format stays at its limit
                known[token] = min(known.get(token, 0) + count, 2**31 - 1)
        assert path.read_bytes() == _bytes(together)
        assert [p.name for p in path.parent.iterdir()] == ["lookup.bin"]


def test_an_empty_file_is_an_empty_cache(path: Path) -> None:
    path.write_bytes(b"")
    assert len(load_counts(path, VOCAB_SIZE)) == 0


# damage


def _refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_counts(path, VOCAB_SIZE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_file(path: Path) -> None:
    assert _refusal(path) == f"{path}: cannot read the lookup cache: No such file or directory"
    assert _refusal(path.parent) == f"{path.parent}: cannot read the lookup cache: Is a directory"


def test_a_file_cut_anywhere(path: Path) -> None:
    whole = _bytes(ONE)
    ends = {len(_bytes(dict(list(ONE.items())[:n]))) for n in range(4)}
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        if size in ends:
            assert len(load_counts(path, VOCAB_SIZE)) < 3
        elif size % 4:
            expected = f"no lookup cache: {size} bytes are not whole numbers of 4 bytes"
            assert _refusal(path) == f"{path}: {expected}"
        else:
            assert _refusal(path) == f"{path}: the lookup cache is cut off: {size} bytes"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((-1, -1, -1, -1, 1, 5, 1), "nonsense at byte 0"),
        ((3, -1, -1, -1, 0), "nonsense at byte 0"),
        ((3, -1, -1, -1, -4), "nonsense at byte 0"),
        ((3, -1, -1, -1, -4, 5, 1, 5, 1, 5, 1), "nonsense at byte 0"),
        ((3, -1, -1, -1, 1, -5, 1), "nonsense at byte 0"),
        ((3, -1, -1, -1, 1, 5, 0), "nonsense at byte 0"),
        ((3, -1, -1, -1, 1, 5, 1, 3, 4, -1, -1, 1, 5, -2), "nonsense at byte 28"),
        ((3, -1, -1, -1, 2**31 - 1, 5, 1), "cut off"),
        ((3, -1, -1, -1, 1, 512, 1), "has token 512, the target has 512 tokens"),
    ],
)
def test_files_that_are_none(path: Path, words: tuple[int, ...], message: str) -> None:
    path.write_bytes(struct.pack(f"<{len(words)}i", *words))
    assert message in _refusal(path)
    before = path.read_bytes()
    with pytest.raises(InputError):
        add_counts(path, _counts(ONE), VOCAB_SIZE)
    assert path.read_bytes() == before


def test_a_model_is_no_lookup_cache(zoo: Path) -> None:
    assert str(zoo) in _refusal(zoo / "target-llama.gguf")


_FULL = """
import resource, sys
from pathlib import Path
from outrider.speculative.drafters.ngram_cache_file import add_counts
from outrider.speculative.drafters.ngram_counts import NgramCounts

counts = NgramCounts()
for token in range(100):
    counts.add((3).to_bytes(4, "little"), token, 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
try:
    add_counts(Path(sys.argv[1]), counts, 512)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of the size of files there")
def test_a_full_disk_leaves_the_file_alone(path: Path) -> None:
    path.write_bytes(_bytes(ONE))
    command = [sys.executable, "-c", _FULL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "File too large\n"
    assert path.read_bytes() == _bytes(ONE)
    assert [p.name for p in path.parent.iterdir() if p.is_file()] == [path.name]


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.bin"
    link.symlink_to(path)
    add_counts(link, _counts(ONE), VOCAB_SIZE)
    assert link.is_symlink()
    assert path.read_bytes() == _bytes(ONE)


# several programs

_ADDER = """
import sys
from pathlib import Path
from outrider.speculative.drafters.ngram_cache_file import add_counts
from outrider.speculative.drafters.ngram_counts import NgramCounts

counts = NgramCounts()
counts.add((3).to_bytes(4, "little"), int(sys.argv[2]), 1)
sys.stdin.readline()
for _ in range(25):
    add_counts(Path(sys.argv[1]), counts, 512)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")
def test_programs_that_save_at_once_lose_nothing(path: Path) -> None:
    adders = [
        subprocess.Popen(
            [sys.executable, "-c", _ADDER, str(path), str(token)], stdin=subprocess.PIPE, text=True
        )
        for token in (7, 7, 8)
    ]
    for adder in adders:
        assert adder.stdin is not None
        adder.stdin.write("\n")
        adder.stdin.close()
    assert [adder.wait(timeout=60) for adder in adders] == [0, 0, 0]
    assert _plain(load_counts(path, VOCAB_SIZE)) == {(3,): {7: 50, 8: 25}}
