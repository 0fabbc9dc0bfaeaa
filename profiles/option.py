"""Option: what the type of a schema field cannot say (help, flags, limits)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

NO_UNKNOWN_KEYS: Any = {"extra": "forbid"}
"""What pydantic is told about every part of a profile."""


@dataclass(frozen=True, slots=True)
class Option:
    """Annotation of a field of :mod:`outrider.profiles.schema`.

    ``flags`` are separated by blanks; a field without any can only be set in a profile.
    ``also`` lists llama.cpp's spellings of a value that the type writes differently.
    ``accept`` looks at a whole value and raises ValueError, which says what is allowed.
    """

    help: str
    flags: str = ""
    minimum: float | None = None
    maximum: float | None = None
    metavar: str | None = None
    also: tuple[tuple[str, object], ...] = ()
    accept: Callable[[Any], object] | None = None

    def spelled(self, value: object) -> object:
        """Return ``value`` with llama.cpp's spelling replaced; refuse a bool as a number."""
        for spelling, meaning in self.also:
            if str(value).lower() == spelling:
                return meaning
        if isinstance(value, bool) and self.minimum is not None:
            raise ValueError("not a number")
        return value

    def limited(self, value: object) -> object:
        """Return ``value`` if all its numbers lie within the limits (NaN never does)."""
        if self.accept and value is not None:
            self.accept(value)
        for number in value.values() if isinstance(value, Mapping) else (value,):
            if (
                self.minimum is not None
                and self.maximum is not None
                and isinstance(number, int | float)
                and not self.minimum <= number <= self.maximum
            ):
                raise ValueError("out of range")
        return value

    # pydantic calls these two. It is imported here because `outrider --help` must not need it.

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        read = core_schema.no_info_before_validator_function(self.spelled, handler(source))
        return core_schema.no_info_after_validator_function(self.limited, read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        described: dict[str, Any] = {**handler(schema), "description": self.help}
        if self.minimum is not None and self.maximum is not None:
            _limit_numbers(described, self.minimum, self.maximum)
        return described


def _limit_numbers(schema: dict[str, Any], minimum: float, maximum: float) -> None:
    if schema.get("type") in ("integer", "number"):
        schema |= {"minimum": minimum, "maximum": maximum}
    for alternative in schema.get("anyOf", ()):
        _limit_numbers(alternative, minimum, maximum)
