"""The profile format as a JSON Schema for editors, and the adapter that checks by it."""

from __future__ import annotations

import functools
from typing import Any

from outrider.profiles.schema import Profile


@functools.cache
def profile_adapter() -> Any:
    """Return pydantic's adapter of :class:`Profile`."""
    from pydantic import TypeAdapter

    return TypeAdapter(Profile)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a profile file."""
    schema: dict[str, Any] = profile_adapter().json_schema()
    del schema["properties"]["name"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
