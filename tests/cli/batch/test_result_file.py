from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.full_disk import full_disk

from outrider.cli.batch.order import InOrder
from outrider.cli.batch.result_file import ResultFile
from outrider.cli.errors import OutputError, UsageError


def row(id_: object, reason: str = "stop") -> dict[str, object]:
    return {"id": id_, "finish_reason": reason, "text": "ä"}


def lines(path: Path) -> list[object]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_results_are_added_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    file = ResultFile(path)
    assert file.finished == set()
    file.write(row("a"))
    file.write(row(2))
    file.close()
    again = ResultFile(path)
    assert again.finished == {"a", 2}
    again.write(row("c"))
    again.close()
    assert lines(path) == ["a", 2, "c"]


@pytest.mark.parametrize("cut", range(1, 40))
def test_half_a_line_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "out.jsonl"
    whole = json.dumps(row("a")).encode() + b"\n"
    half = (json.dumps(row("b")).encode() + b"\n")[:-cut]
    path.write_bytes(whole + half)
    file = ResultFile(path)
    assert file.finished == {"a"}
    file.write(row("b"))
    file.close()
    assert lines(path) == ["a", "b"]


def test_what_failed_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    rows = [row("a"), row("b", "error"), row("c", "cancelled"), row("d", "length")]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    file = ResultFile(path)
    file.close()
    assert file.finished == {"a", "d"}
    assert lines(path) == ["a", "d"]


@pytest.mark.parametrize("content", ["hello\n", '{"a": 1}\n', "[1]\n", '{"id": 1}\n'])
def test_another_file_is_never_written_to(tmp_path: Path, content: str) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match="line 1 is no result"):
        ResultFile(path)
    assert path.read_text() == content


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    file = ResultFile(path)
    file.write(row("a"))
    size = path.stat().st_size
    with full_disk(size + 10), pytest.raises(OutputError, match="File too large"):
        file.write(row("b"))
    file.close()
    assert lines(path) == ["a"]
    assert path.stat().st_size == size


def test_results_in_order_wait_for_those_before_them() -> None:
    written: list[object] = []
    order = InOrder(lambda result: written.append(result["id"]))
    for place in (2, 0, 3):
        order.put(place, {"id": place})
    assert written == [0]
    order.put(1, {"id": 1})
    assert written == [0, 1, 2, 3]
