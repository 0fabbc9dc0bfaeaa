"""Random JSON schemas, the same for the same seed, whose values are short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Schema = dict[str, Any]

FORMATS = {
    "date": 10,
    "date-time": 24,
    "time": 14,
    "duration": 8,
    "email": 12,
    "hostname": 12,
    "ipv4": 15,
    "ipv6": 20,
    "uri": 16,
    "uuid": 36,
}
"""The formats that llguidance knows, and how long their texts may be: some have no end."""

PATTERNS = (
    "^[A-Z]{2}-[0-9]{3}$",
    "^(red|green|blue) (cat|dog)s?$",
    "^\\+?[0-9]{1,6}$",
    '^[a-f\\\\"é]{0,5}$',
)
_NAMES = ("id", "name", "age", "größe", "a/b", 'say "hi"', "property_name", "x", "😀")
_TEXTS = ("", "red", "a\nb", 'he said "no"', "back\\slash", "naïve 😀", "true", "end")
_MAX_DEPTH = 2


class RandomSchema:
    """Makes schemas; each has a ``$defs`` of its own to refer to."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._definitions: list[str] = []

    def make(self) -> Schema:
        """A whole schema; most are objects."""
        self._definitions = []
        definitions = {}
        for name in ("first", "second")[: self._random.choice((0, 0, 1, 2))]:
            definitions[name] = self._value(1)
            self._definitions.append(name)
        schema = self._object(0) if self._random.random() < 0.8 else self._value(0)
        return {**schema, "$defs": definitions} if definitions else schema

    def _value(self, depth: int) -> Schema:
        kinds = [*self._leaves, self._leaf, self._leaf]
        if depth < _MAX_DEPTH:
            kinds += [self._object, self._object, self._array, self._array, self._any_of]
        if self._definitions:
            kinds += [self._reference]
        return self._random.choice(kinds)(depth)

    @property
    def _leaves(self) -> list[Callable[[int], Schema]]:
        return [self._string, self._integer, self._number, self._enum, self._const]

    def _leaf(self, depth: int) -> Schema:
        """A value without limits, and short."""
        return {"type": self._random.choice(("boolean", "null", ["null", "boolean"]))}

    def _object(self, depth: int) -> Schema:
        random = self._random
        names = random.sample(_NAMES, random.randint(0 if depth else 1, 3 - depth))
        schema: Schema = {
            "type": "object",
            "properties": {name: self._value(depth + 1) for name in names},
            "required": [name for name in names if random.random() < 0.6],
            "additionalProperties": False,
        }
        if random.random() < 0.8:
            return schema
        # a number of properties can be bounded only where those with a name are required
        schema |= {"required": names, "maxProperties": len(names) + 1}
        if random.random() < 0.3:
            return {**schema, "additionalProperties": random.choice((True, {"type": "boolean"}))}
        return {**schema, "patternProperties": {"^[ab]{1,2}$": self._value(depth + 1)}}

    def _array(self, depth: int) -> Schema:
        random = self._random
        least = random.randint(0, 2)
        schema = {"type": "array", "minItems": least, "maxItems": least + random.randint(0, 2)}
        if random.random() < 0.2:
            first = [self._value(depth + 1) for _ in range(random.randint(1, 2))]
            return {"type": "array", "prefixItems": first, "items": False, "minItems": len(first)}
        return {**schema, "items": self._value(depth + 1)}

    def _any_of(self, depth: int) -> Schema:
        return {"anyOf": [self._value(depth + 1) for _ in range(self._random.randint(2, 3))]}

    def _reference(self, depth: int) -> Schema:
        return {"$ref": f"#/$defs/{self._random.choice(self._definitions)}"}

    def _string(self, depth: int) -> Schema:
        random = self._random
        which = random.randrange(3)
        if which == 0:
            name = random.choice(list(FORMATS))
            return {"type": "string", "format": name, "maxLength": FORMATS[name]}
        if which == 1:
            return {"type": "string", "pattern": random.choice(PATTERNS)}
        least = random.randint(0, 4)
        return {"type": "string", "minLength": least, "maxLength": least + random.randint(0, 8)}

    def _integer(self, depth: int) -> Schema:
        random = self._random
        least = random.randint(-2000, 2000)
        if random.random() < 0.2:
            return {"type": "integer", "minimum": 0, "maximum": 500, "multipleOf": 7}
        if random.random() < 0.3:
            return {
                "type": "integer",
                "exclusiveMinimum": least,
                "exclusiveMaximum": least + random.randint(2, 9),
            }
        return {"type": "integer", "minimum": least, "maximum": least + random.randint(0, 5000)}

    def _number(self, depth: int) -> Schema:
        random = self._random
        least = random.randint(-400, 400) / 8
        return {"type": "number", "minimum": least, "maximum": least + random.randint(1, 800) / 8}

    def _enum(self, depth: int) -> Schema:
        values: Sequence[object] = (*_TEXTS, 0, -7, 2.5, None, True, [], [1, "a"], {"k": 1})
        return {"enum": self._random.sample(values, self._random.randint(1, 4))}

    def _const(self, depth: int) -> Schema:
        values: Sequence[object] = (*_TEXTS, 12, None, False, {"unit": "kg", "n": [1, 2]})
        return {"const": self._random.choice(values)}
