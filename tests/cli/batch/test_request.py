from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.cli.batch.request import BadLine, BatchRequest, read_requests
from outrider.cli.errors import UsageError
from outrider.profiles.load import load_profile
from outrider.profiles.schema import Profile


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile("smollm2-plain", {"chat.system": "S", "sampling.temp": 0.5})


def read(tmp_path: Path, profile: Profile, *lines: object) -> list[BatchRequest | BadLine]:
    path = tmp_path / "in.jsonl"
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(texts))
    return read_requests(path, profile)


def test_a_prompt_stands_after_the_system_message(tmp_path: Path, profile: Profile) -> None:
    one, own, none = read(
        tmp_path,
        profile,
        {"id": "a", "prompt": "Hi"},
        {"prompt": "Hi", "system": "T"},
        {"prompt": "Hi", "system": ""},
    )
    assert isinstance(one, BatchRequest)
    assert isinstance(own, BatchRequest)
    assert isinstance(none, BatchRequest)
    user = {"role": "user", "content": "Hi"}
    assert one.conversation() == [{"role": "system", "content": "S"}, user]
    assert own.conversation() == [{"role": "system", "content": "T"}, user]
    assert none.conversation() == [user]
    assert (one.id, own.id, none.id) == ("a", 2, 3)


def test_messages_are_taken_as_they_are(tmp_path: Path, profile: Profile) -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    (one,) = read(tmp_path, profile, {"id": 7, "messages": messages})
    assert isinstance(one, BatchRequest)
    assert (one.id, one.conversation()) == (7, messages)


def test_a_line_has_settings_of_its_own(tmp_path: Path, profile: Profile) -> None:
    one, other = read(
        tmp_path,
        profile,
        {"prompt": "a", "temp": 0, "top-k": 5, "max_tokens": 9, "stop": ["x"]},
        {"prompt": "b"},
    )
    assert isinstance(one, BatchRequest)
    assert isinstance(other, BatchRequest)
    sampling = one.profile.sampling
    assert (sampling.temp, sampling.top_k, sampling.predict, sampling.stop) == (0, 5, 9, ("x",))
    assert other.profile.sampling.temp == 0.5


@pytest.mark.parametrize(
    ("line", "id_", "reason"),
    [
        (b"{", 1, "not JSON"),
        (b"[]", 1, "not a JSON object"),
        (b'{"prompt": "\xff"}', 1, "not UTF-8"),
        ({"id": "x"}, "x", 'no "prompt"'),
        ({"id": "x", "prompt": 3}, "x", '"prompt": must be a text'),
        ({"id": "x", "prompt": "a", "messages": []}, "x", "both"),
        ({"id": "x", "messages": []}, "x", "must be a list"),
        ({"messages": [{"role": "tool", "content": ""}]}, 1, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, 1, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, 1, "the last must be the user's"),
        ({"id": "x", "prompt": "a", "tmep": 1}, "x", "did you mean 'temp'?"),
        ({"id": "x", "prompt": "a", "temp": 9}, "x", "sampling.temp"),
        ({"id": True, "prompt": "a"}, 1, '"id"'),
        ({"id": 1.5, "prompt": "a"}, 1, '"id"'),
        (b"[" * 100_000, 1, "not JSON"),
    ],
)
def test_a_bad_line_keeps_its_id_and_says_why(
    tmp_path: Path, profile: Profile, line: object, id_: object, reason: str
) -> None:
    bad, good = read(tmp_path, profile, line, {"prompt": "good"})
    assert isinstance(bad, BadLine)
    assert isinstance(good, BatchRequest)
    assert (bad.number, bad.id) == (1, id_)
    assert reason in bad.reason


def test_the_same_id_twice_is_a_bad_line_with_another_id(tmp_path: Path, profile: Profile) -> None:
    first, second, third = read(
        tmp_path, profile, {"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}, {"prompt": "z"}
    )
    assert isinstance(first, BatchRequest)
    assert isinstance(second, BadLine)
    assert second.id == "a (line 2)"
    assert "is line 1" in second.reason
    assert third.id == 3


def test_blank_lines_count_but_ask_nothing(tmp_path: Path, profile: Profile) -> None:
    (one,) = read(tmp_path, profile, b"", b"  ", {"prompt": "x"})
    assert (one.number, one.id) == (3, 3)


def test_a_file_without_a_line_is_refused(tmp_path: Path, profile: Profile) -> None:
    with pytest.raises(UsageError, match="there is no line in it"):
        read(tmp_path, profile, b"")
    with pytest.raises(UsageError, match="No such file"):
        read_requests(tmp_path / "none", profile)
