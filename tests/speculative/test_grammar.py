"""What a user gives as a grammar: what is taken, and what is said of the rest."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from llguidance import LLMatcher

from outrider.speculative.errors import InputError
from outrider.speculative.grammar import _byte_tokenizer, compile_grammar, matcher_fault
from outrider.speculative.settings import GrammarKind, GrammarSettings


def compiled(kind: GrammarKind, text: str) -> str:
    return compile_grammar(GrammarSettings(kind, text, f"--{kind}"))


def fault(kind: GrammarKind, text: str) -> str:
    with pytest.raises(InputError) as caught:
        compiled(kind, text)
    message = str(caught.value)
    assert message.startswith(f"--{kind}: ")
    assert "\n" not in message
    return message.removeprefix(f"--{kind}: ")


def accepts(kind: GrammarKind, text: str, answer: str) -> bool:
    matcher = LLMatcher(_byte_tokenizer(), compiled(kind, text), log_level=0)
    data = list(answer.encode())
    return matcher.validate_tokens(data) == len(data) and (
        matcher.consume_tokens(data) and matcher.is_accepting()
    )


OBJECT = json.dumps(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ('{"name":"x"}', True),
        ('{"name": "x", "age": 3}', True),
        ('{\n    "name": "x",\n    "age": 3\n}', True),
        ('{"name": "x", "age": -3}', False),
        ('{"age": 3}', False),
        ('{"name": "x"', False),
        ('{  "name": "x"}', False),  # blanks have an end
        ('{\n\n"name": "x"}', False),
    ],
)
def test_json_schema(answer: str, is_right: bool) -> None:
    assert accepts("json-schema", OBJECT, answer) == is_right


def test_true_is_a_schema_for_any_value() -> None:
    for answer in ("3", "null", '["a", {"b": 1.5e3}]'):
        assert accepts("json-schema", "true", answer)
    assert fault("json-schema", "false") == "no value can match the schema false"


def test_regex() -> None:
    assert accepts("regex", "^[a-z]+/\\d{2}$", "ab/12")
    assert not accepts("regex", "^[a-z]+/\\d{2}$", "ab/123")
    assert accepts("regex", "a\nb|é", "é")


def test_gbnf_and_lark() -> None:
    assert accepts("grammar", 'root ::= "(" root ")" | "x"', "((x))")
    assert accepts("grammar", 'start: "(" start ")" | "x"', "((x))")
    assert accepts("grammar", "%llguidance {}\nstart: A\nA: /[a-z]+/", "word")
    # a GBNF rule may be called start
    assert accepts("grammar", 'start ::= "x"\nroot ::= start', "x")


def test_a_byte_order_mark_is_no_fault() -> None:
    assert compiled("json-schema", "\ufeff" + OBJECT) == compiled("json-schema", OBJECT)
    assert accepts("grammar", '\ufeffroot ::= "x"', "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ('{"a":}', "line 1, column 6: not JSON: Expecting value"),
        ('{"a": 1,\n "b": [1,}', "line 2, column 10: not JSON: Expecting value"),
        ('{"a": NaN}', "not JSON: NaN is no JSON number"),
        ("[" * 100_000, "is nested too deeply"),
        ("3", "a schema is an object, or true; this is a number"),
        ("[]", "a schema is an object, or true; this is an array"),
        ("null", "a schema is an object, or true; this is null"),
        ('{"const": "\ud800"}', "is not UTF-8 text"),
        ('{"properties": {"a": {"type": "strin"}}}', "Invalid type: strin"),
        ('{"not": {}}', "cannot be enforced: 'not'; "),
        ('{"if": {}, "then": {}}', "cannot be enforced: 'if', 'then'; "),
        ('{"type": "array", "uniqueItems": true}', "cannot be enforced: 'uniqueItems'; "),
        ('{"type": "string", "format": "foo"}', "cannot be enforced: 'format' 'foo'"),
        (
            '{"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]}',
            "cannot be enforced: 'oneOf' whose options overlap; use 'anyOf'",
        ),
        ('{"$ref": "#/$defs/x"}', "'$ref': there is no '#/$defs/x' in the schema"),
        ('{"$ref": "http://a.b/c"}', "'http://a.b/c' is not in the schema; "),
        ('{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}', "no answer can match it"),
        (
            '{"type": "integer", "minimum": 5, "maximum": 3}',
            "no value can match it: minimum (5) is greater than maximum (3)",
        ),
        ('{"enum": []}', "no value can match it: "),
        ('{"allOf": [{"type": "string"}, {"type": "integer"}]}', "no value can match it: "),
        ('{"type": "string", "pattern": "ab("}', "'pattern' 'ab(': column 3: unclosed group"),
        ('{"type": "string", "pattern": "\\\\bfoo"}', "'pattern': \\b, look-around, "),
        ('{"type": "string", "minLength": -1}', "Expected positive integer for 'minLength'"),
        ('{"x-guidance": {"foo": 1}}', "unknown field `foo`"),
        ('{"minimum": 1e400}', "number out of range"),
    ],
)
def test_faults_of_a_schema(text: str, message: str) -> None:
    assert fault("json-schema", text).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("ab(", "column 3: unclosed group"),
        ("é/\n(", "column 4: unclosed group"),
        ("a{2,1}", "column 2: invalid repetition count range"),
        ("a\\q", "column 2: unrecognized escape sequence"),
        ("x(?=a)b", "column 2: look-around"),
        ("a\\1", "column 2: backreferences are not supported"),
        ("a^b", "\\b, look-around, and ^ or $ in the middle are not supported"),
        ("[^\\s\\S]", "no answer can match it"),
        ("(" * 5000, "column 5000: unclosed group"),
        ("\ud800", "is not UTF-8 text"),
    ],
)
def test_faults_of_a_regex(text: str, message: str) -> None:
    assert fault("regex", text).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("start: a", 'line 1, column 8: unknown name: "a"'),
        ('start: A\nA: "x" A', 'line 2, column 4: circular reference in token "A"'),
        ("start: (", "line 1, column 9: Expected token ')', found '\\n'"),
        ("start: A\nA: /ab(/", "line 2, column 4: regex /ab(/, column 3: unclosed group"),
        ("start: a\na: a", "no answer can match it"),
        ("start: @sub", "unknown grammar @sub"),
        ("root ::= x", "line 1, column 10: there is no rule 'x'"),
        ('root ::= "a"' + "*" * 5000, "is nested too deeply"),
        ("\n".join(f"x{n} ::= x{n + 1} x{n + 1}" for n in range(60)), "line 60, column 9: "),
        (
            "root ::= x0\nx60 ::= [a-z]\n"
            + "\n".join(f"x{n} ::= x{n + 1} x{n + 1}" for n in range(60)),
            "is too large: initial lexer configuration",
        ),
    ],
)
def test_faults_of_a_grammar(text: str, message: str) -> None:
    assert fault("grammar", text).startswith(message)


def test_special_tokens_are_left_to_the_model() -> None:
    settings = GrammarSettings("grammar", 'start: <tool> "a"', "--grammar")
    matcher = LLMatcher(_byte_tokenizer(), compile_grammar(settings), log_level=0)
    message = str(matcher_fault(settings, matcher.get_error()))
    assert message.startswith('--grammar: line 1, column 8: unknown special token: "<tool>"')
    assert "\n" not in message


def test_llguidance_is_loaded_only_to_compile() -> None:
    program = (
        "import sys; import outrider.speculative.grammar;"
        "import outrider.speculative.grammar_vocabulary; print('llguidance' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.strip() == "False", result.stderr
