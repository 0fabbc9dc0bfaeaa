from __future__ import annotations

import math
from pathlib import Path

import pytest

from outrider.profiles.errors import ProfileError
from outrider.profiles.yaml_file import read_yaml


def read(text: str | bytes) -> object:
    path = Path("p.yaml")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path).data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", None),
        ("010", 10),
        ("-1", -1),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("'1'", "1"),
        ("0x10", "0x10"),
    ],
)
def test_words_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    data = read(f"a: {text}")
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_not_a_number_is_read() -> None:
    data = read("a: .nan")
    assert isinstance(data, dict)
    assert math.isnan(data["a"])


def test_keys_are_text() -> None:
    assert read("{1: a, on: b, ~: c}") == {"1": "a", "on": "b", "~": "c"}


def test_anchors_and_merges_work() -> None:
    assert read("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}") == {
        "a": {"b": 1, "c": 2},
        "d": {"b": 1, "c": 3},
    }


def test_a_byte_order_mark_is_no_fault() -> None:
    assert read(b"\xef\xbb\xbfa: 1") == {"a": 1}


def test_lines_are_known() -> None:
    Path("p.yaml").write_text("a:\n  - x\n  - b: 1\n    c: 2\n")
    file = read_yaml(Path("p.yaml"))
    assert file.line(("a",)) == 1
    assert file.line(("a", 1, "c")) == 4
    assert file.line(("nothing",)) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "p.yaml: empty; a profile begins with 'schema: 1'"),
        ("# only this\n", "p.yaml: empty; a profile begins with 'schema: 1'"),
        ("- a", "p.yaml: a list, not a mapping; a profile begins with 'schema: 1'"),
        ("hello", "p.yaml: plain text, not a mapping; a profile begins with 'schema: 1'"),
        ("a: b: c", "p.yaml: not YAML: mapping values are not allowed here (line 1, column 5)"),
        ("a: 1\nb: [", "p.yaml: not YAML: expected the node content, but found '<stream end>'"),
        ("a: 1\na: 2", "p.yaml: not YAML: key 'a' appears twice (line 2, column 1)"),
        ("a: {b: 1, b: 2}", "p.yaml: not YAML: key 'b' appears twice (line 1, column 11)"),
        ("{[a]: 1}", "p.yaml: not YAML: a key must be one word (line 1, column 2)"),
        ("a: *b", "p.yaml: not YAML: found undefined alias 'b' (line 1, column 4)"),
        ("a: !!python/name:os.system x", "p.yaml: not YAML: could not determine a constructor"),
        ("--- {a: 1}\n--- {b: 2}", "p.yaml: not YAML: but found another document (line 2,"),
        ("&a {b: *a}", "p.yaml: not a profile: nested too deeply"),
        ("[" * 1500, "p.yaml: not a profile: nested too deeply"),
        (b"a: \x01", "p.yaml: not YAML: unacceptable character #x0001"),
        (b"a: 1\nb: \xff", "p.yaml: not UTF-8 text (line 2); save it as UTF-8"),
        ("a: 1\n".encode("utf-16"), "p.yaml: not UTF-8 text (line 1); save it as UTF-8"),
        (b"GGUF\x03", "p.yaml: a model, not a profile; give it with -m"),
        (b"a" * 1_000_001, "p.yaml: larger than 1 MB; a profile is a small YAML file"),
    ],
)
def test_every_bad_file_is_one_line(content: str | bytes, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read(content)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert "<unicode string>" not in str(caught.value) or "unacceptable" in message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.yaml", "no.yaml: no such file"),
        (".", ".: a folder; allowed: a YAML file"),
        ("a\0.yaml", "a\0.yaml: cannot be read: embedded null byte"),
        ("x" * 300, "cannot be read: File name too long"),
    ],
)
def test_what_is_no_file_is_one_line(name: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read_yaml(Path(name))
    assert str(caught.value).endswith(message)
