from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.profiles.fields import FIELDS
from outrider.profiles.json_schema import json_schema


@pytest.fixture
def schema() -> dict[str, Any]:
    return json_schema()


def test_it_is_json_and_names_its_dialect(schema: dict[str, Any]) -> None:
    text = json.dumps(schema, allow_nan=False)
    assert json.loads(text)["$schema"].startswith("https://json-schema.org/")


def test_every_mapping_refuses_unknown_keys(schema: dict[str, Any]) -> None:
    for part in (schema, *schema["$defs"].values()):
        assert part["additionalProperties"] is False


def test_the_name_is_not_a_key(schema: dict[str, Any]) -> None:
    assert set(schema["properties"]) == {
        "schema",
        "extends",
        "description",
        "target",
        "drafters",
        "speculation",
        "sampling",
        "chat",
    }


def test_every_field_is_there_with_title_help_and_limits(schema: dict[str, Any]) -> None:
    for field in FIELDS:
        section, _, key = field.path.rpartition(".")
        if field.path == "drafter.kinds":
            continue
        part = schema["$defs"][section.title()] if section else schema
        described = part["properties"][key]
        assert described["description"] == field.help
        if field.minimum is not None and field.path != "sampling.logit_bias":
            numbers = [
                item
                for item in (described, *described.get("anyOf", ()))
                if item.get("type") in ("integer", "number")
            ]
            assert [(n["minimum"], n["maximum"]) for n in numbers] == [
                (field.minimum, field.maximum)
            ]
        if field.choices and key != "schema":
            enums = [
                item["enum"] for item in (described, *described.get("anyOf", ())) if "enum" in item
            ]
            assert enums == [list(field.choices)]


def test_some_limits_by_hand(schema: dict[str, Any]) -> None:
    temp = schema["$defs"]["Sampling"]["properties"]["temp"]
    assert (temp["title"], temp["minimum"], temp["maximum"]) == ("Temp", 0, 5)
    assert schema["properties"]["schema"]["const"] == 1
    assert schema["$defs"]["ModelSource"]["required"] == ["source"]
