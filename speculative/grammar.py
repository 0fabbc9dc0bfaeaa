"""Grammars for the answer: JSON schema, GBNF, Lark or a regex, checked before a model loads."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from outrider.speculative.errors import InputError
from outrider.speculative.gbnf import GbnfError
from outrider.speculative.gbnf_lark import gbnf_to_lark
from outrider.speculative.settings import GrammarSettings

if TYPE_CHECKING:
    from llguidance import LLTokenizer
    from llguidance._lib import JsonCompileOptions

# As llama.cpp's own JSON grammar; without a limit small models write blanks until -n ends them.
_JSON_OPTIONS: JsonCompileOptions = {"whitespace_pattern": r" |\n[ \t]{0,20}"}

_NO_FORCING = '\n%llguidance {"no_forcing": true}\n'

_LARK = re.compile(r"^\s*(%llguidance\b|start\s*(\[[^\]]*\]\s*)?:(?!:=))", re.MULTILINE)
_POSITION = re.compile(r"^at \d+\(\d+\): ")
_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*)", re.DOTALL)
_REGEX_ERROR = re.compile(
    r"regex parse error:\n {4}(?P<text>.*)\n(?P<caret> *)\^+.*\nerror: (?P<problem>.*)"
)
_LOOK_AROUND = re.compile(r"lookarounds not supported")
_NO_LOOK_AROUND = "\\b, look-around, and ^ or $ in the middle are not supported"
_MISSING = re.compile(r"Resource '(.*)' is not present in a registry")
_NO_TARGET = re.compile(r"Pointer '(.*)' does not exist")


@functools.lru_cache(maxsize=8)
def compile_grammar(settings: GrammarSettings) -> str:
    """The grammar as llguidance's matcher takes it, in Lark.

    All tokens that keep the text a beginning of the language are allowed: llguidance would
    otherwise allow of a text without alternatives only its canonical tokens.

    Raises:
        InputError: it cannot be used; the line begins with ``settings.name`` and says where.
    """
    settings = replace(settings, text=settings.text.removeprefix("\ufeff"))
    if not settings.text.strip():
        raise InputError(f"{settings.name}: is empty")
    try:
        settings.text.encode()
        lark = _COMPILERS[settings.kind](settings)
    except UnicodeEncodeError:
        raise InputError(f"{settings.name}: is not UTF-8 text") from None
    except RecursionError:
        raise InputError(f"{settings.name}: is nested too deeply") from None
    return lark + _NO_FORCING


def _json_schema(settings: GrammarSettings) -> str:
    from llguidance import LLMatcher

    try:
        schema = json.loads(settings.text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{settings.name}: {where}: not JSON: {error.msg}") from None
    except ValueError as error:
        raise InputError(f"{settings.name}: not JSON: {str(error).partition(';')[0]}") from None
    if not isinstance(schema, dict | bool):
        raise InputError(
            f"{settings.name}: a schema is an object, or true; this is {_JSON_NAMES[type(schema)]}"
        )
    if schema is False:
        raise InputError(f"{settings.name}: no value can match the schema false")
    text = "{}" if schema is True else settings.text
    try:
        _check(settings, LLMatcher.grammar_from_json_schema(text, _JSON_OPTIONS))
    except ValueError as error:
        _refuse(settings, str(error))
    whole = {} if schema is True else schema
    given = whole.get("x-guidance", {})
    options = _JSON_OPTIONS | given if isinstance(given, dict) else given
    return "start: %json " + json.dumps(whole | {"x-guidance": options})


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_JSON_NAMES = {list: "an array", str: "a string", int: "a number", float: "a number"}
_JSON_NAMES[type(None)] = "null"


def _grammar(settings: GrammarSettings) -> str:
    try:
        lark = settings.text if _LARK.search(settings.text) else gbnf_to_lark(settings.text)
    except GbnfError as error:
        raise InputError(f"{settings.name}: {error}") from None
    _check(settings, lark)
    return lark


def _regex(settings: GrammarSettings) -> str:
    from llguidance import LLMatcher

    grammar = json.loads(LLMatcher.grammar_from_regex(settings.text))
    lark = str(grammar["grammars"][0]["lark_grammar"])
    _check(settings, lark)
    return lark


_COMPILERS = {"json-schema": _json_schema, "grammar": _grammar, "regex": _regex}


def _check(settings: GrammarSettings, grammar: str) -> None:
    """Compile it for a vocabulary of single bytes and see that an answer can begin."""
    from llguidance import LLMatcher

    is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    if is_error:
        _refuse(settings, messages[0])
    matcher = LLMatcher(_byte_tokenizer(), grammar, log_level=0)
    if matcher.is_error() and "special token" not in matcher.get_error():
        _refuse(settings, matcher.get_error())
    if not matcher.is_error():
        matcher.compute_bitmask()
        if matcher.is_error():
            _refuse(settings, matcher.get_error())


@functools.cache
def _byte_tokenizer() -> LLTokenizer:
    from llguidance import LLTokenizer
    from llguidance._tokenizer import TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Bytes()), slices=[])


class _Bytes:
    """A vocabulary of all bytes and an end."""

    bos_token_id = None
    eos_token_id = 256
    tokens = (*(bytes((byte,)) for byte in range(256)), b"\xff<end>")

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def _refuse(settings: GrammarSettings, error: str) -> NoReturn:
    raise matcher_fault(settings, error)


def matcher_fault(settings: GrammarSettings, error: str) -> InputError:
    """The error for what llguidance says of a grammar, in one line."""
    explain = _explain_schema if settings.kind == "json-schema" else _explain_text
    return InputError(f"{settings.name}: {_explain_limits(error) or explain(settings, error)}")


def _explain_limits(error: str) -> str | None:
    if error.startswith("NoExtension"):
        return "no answer can match it"
    first = _POSITION.sub("", error.partition("\n")[0])  # of what GBNF was turned into
    return f"is too large: {first}" if "too big" in first or "too complex" in first else None


def _explain_schema(settings: GrammarSettings, error: str) -> str:
    if error.startswith("Unimplemented keys: "):
        names = ", ".join(map(repr, json.loads(error.removeprefix("Unimplemented keys: "))))
        return f"cannot be enforced: {names}; leave it out or say it in another way"
    if error.startswith("oneOf constraints"):
        return "cannot be enforced: 'oneOf' whose options overlap; use 'anyOf'"
    if error.startswith("Unsatisfiable schema: "):
        return f"no value can match it: {error.removeprefix('Unsatisfiable schema: ')}"
    if error.startswith("Unknown format: "):
        return f"cannot be enforced: 'format' {error.removeprefix('Unknown format: ')!r}"
    if match := _MISSING.match(error):
        return f"{match[1]!r} is not in the schema; only references inside it (#/...) can be used"
    if match := _NO_TARGET.match(error):
        return f"'$ref': there is no '#{match[1]}' in the schema"
    if _LOOK_AROUND.match(error):
        return f"'pattern': {_NO_LOOK_AROUND}"
    if match := _REGEX_ERROR.match(error):
        return f"'pattern' {match['text']!r}: column {len(match['caret']) - 3}: {match['problem']}"
    return re.sub(r" at line \d+ column \d+$", "", error.partition("\n")[0])


def _explain_text(settings: GrammarSettings, error: str) -> str:
    place = _PLACE.match(error)
    problem = place[3] if place else error
    regex = _REGEX_ERROR.search(problem)
    if regex is not None:
        column = len(regex["caret"]) - 3
        problem = regex["problem"]
        if settings.kind == "regex":
            return f"column {_given_column(settings.text, regex['text'], column)}: {problem}"
        problem = f"regex /{regex['text']}/, column {column}: {problem}"
    elif _LOOK_AROUND.search(problem):
        problem = _NO_LOOK_AROUND
    if place is None or settings.kind == "regex":
        return problem.partition("\n")[0]
    problem = problem.partition("\n")[0].partition(' (at "')[0]
    problem = problem.partition("; following special tokens")[0]
    return f"line {place[1]}, column {place[2]}: {problem}"


def _given_column(given: str, written: str, column: int) -> int:
    """The column in the text as it was given; llguidance writes some characters as two."""
    at = 0
    for number, char in enumerate(given, 1):
        if at >= column - 1:
            return number
        at += 1 if written[at : at + 1] == char else 2
    return len(given) + 1
