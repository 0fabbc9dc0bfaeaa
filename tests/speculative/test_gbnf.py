"""GBNF in llguidance allows exactly the tokens that llama.cpp's own sampler allows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from tools.llama_grammar import LlamaGrammar

from outrider.speculative.gbnf import Chars, GbnfError, Seq, parse_gbnf
from outrider.speculative.gbnf_lark import gbnf_to_lark
from outrider.speculative.grammar_vocabulary import GrammarVocabulary
from outrider.speculative.lexemes import recursive_rules, with_lexemes
from outrider.speculative.llama import NativeModel

MODEL = Path(__file__).parents[1] / "fixtures" / "zoo" / "target-llama.gguf"
# llguidance otherwise allows one token alone where only one text is possible
EVERY_TOKEN = '%llguidance {"no_forcing": true}\n'

GRAMMARS = {
    "json": r"""
        root ::= thing
        thing ::= map | list | text | number | "true" blank | "false" blank | "null" blank
        map ::= "{" blank (pair ("," blank pair)*)? "}" blank
        pair ::= text ":" blank thing
        list ::= "[" blank (thing ("," blank thing)*)? "]" blank
        text ::= "\"" (plain | "\\" ["\\/bfnrt] | "\\u" [0-9a-fA-F]{4})* "\"" blank
        plain ::= [^"\\\x00-\x1f\x7f]
        number ::= "-"? ("0" | [1-9] [0-9]{0,12}) ("." [0-9]+)? ([eE] [+-]? [0-9]{1,3})? blank
        blank ::= | " " | "\n" [ \t]{0,8}
    """,
    "json array": r"""
        root ::= "[\n" gap (item (",\n" gap item)*)? "]"
        item ::= ("\"" [^"]* "\"" | "[" gap (item ("," gap item)*)? "]" | [0-9]+) gap
        gap ::= | " " | "\n" [ \t]{0,4}
    """,
    "arithmetic": r"""
        root ::= (sum "=" gap value "\n")+
        sum ::= value ([-+*/] value)*
        value ::= name | [0-9]+ gap | "(" gap sum ")" gap
        name ::= [a-z] [a-z0-9_]* gap
        gap ::= [ \t\n]*
    """,
    "chess": r"""
        root ::= "1. " turn ([1-9] [0-9]? ". " turn)+
        turn ::= move " " move "\n"
        move ::= (piece | pawn | "O-O" "-O"?) [+#]?
        piece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
        pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
    """,
    "program": r"""
        root ::= (type name "(" (type name)? "){" step* "}")*
        step ::= type name gap "=" gap sum ";" | name gap "=" gap sum ";" | "return" gap sum ";" |
            "if(" test "){" step* "}" ("else{" step* "}")? | "//" [^\n]* "\n" |
            "/*" ([^*] | "*" [^/])* "*/"
        test ::= sum ("<=" | "<" | "==" | "!=" | ">=" | ">") sum
        sum ::= factor ([-+*/] factor)*
        factor ::= name | [0-9]+ | "-" factor | name "(" sum? ")" | "(" gap sum gap ")"
        type ::= ("int" | "float" | "char") gap
        name ::= [a-zA-Z_] [a-zA-Z_0-9]*
        gap ::= [ \t\n]+
    """,
    "words": r"""
        root ::= sign+ ([ \t\n] sign+)*
        sign ::= [a-zA-Z0-9] | [!"#$%&'()*+,-./:;<=>?@[\\\]^_`{|}~]
    """,
    "japanese": r"""
        root ::= sign+ ([ \t\n] sign+)*
        sign ::= [ぁ-ゟ] | [ァ-ヿ] | [、-〾] | [一-鿿]
    """,
    "items": 'root ::= ("- " [^\\r\\n]+ "\\n")+',
    "greedy": 'root ::= [a-z]+ "a"',
    "greedy inside": 'root ::= "(" root ")" | [a-z]+ "a"',
    "greedy twice": 'root ::= [a-z]+ ("[" root "]" [a-z]*)? "a"',
    "blanks before a line's end": 'root ::= ("a" | "(" root ")") [ \\n]* "\\n"',
    "a name or a word": 'root ::= ("ab" ")" | [ab]+ "c") root? | "(" root ")"',
    "two ways to go on": 'root ::= [ab]+ ("b" root)? "b" | "c"',
    "prefixes": 'root ::= "a"? [a-z] "ab" root? | "aba"',
    "palindromes": 'root ::= "a" root "a" | "b" root "b" | [ab]?',
    "ambiguous": 'root ::= item item*\nitem ::= [a-z]* "x" | "(" root ")"',
    "keyword or name": """
        root ::= step+
        step ::= "if" gap name ";" | name gap "=" gap value ";"
        name ::= [a-z]+
        value ::= name | "(" value ")"
        gap ::= " "*
    """,
    "blanks between": 'root ::= gap "a" gap root gap | "b"\ngap ::= [ \\n]*',
    "same first byte": 'root ::= ("é" | "è" root "!" | [ぁ-ん]+ "あ" root?)+',
    "not": 'root ::= "<" [^>]* ">" root? | "é"',
    "nested": 'root ::= ((("a" | "b"){2,3} | ) "c"){1,2} ("(" root ")")*',
    "escapes": 'root ::= "\\x41\\u0042\\U00000043\\n\\t\\r\\\\\\"" [\\]\\-\\[^] root?',
    "dashes": 'root ::= [a-] [-z] [a\\-c]+ ("," root)?',
    "empty": 'root ::= "" | | "a" root "b"',
    "any": 'root ::= . "(" .* ")" root | "x"',
    "comments": '# first\nroot ::= # here\n  "a" ( # nested\n "b"\n\n | "c" )\t# last\n#\n',
}


class Peers:
    """llguidance and llama.cpp with one vocabulary."""

    def __init__(self) -> None:
        vocabulary = GrammarVocabulary(MODEL)
        self.model = model = NativeModel(MODEL, 0, None)
        self.ends = {id_ for id_ in range(model.vocab_size) if model.is_end(id_)}
        self.pieces = [model.piece(id_) for id_ in range(model.vocab_size)]
        self.tokenizer: LLTokenizer = vocabulary.tokenizer(
            lambda text: model.tokenize(text, parse_special=False), sorted(self.ends), model.piece
        )

    def allowed(self, matcher: LLMatcher) -> set[int]:
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        assert not matcher.is_error(), matcher.get_error()
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()
        # a zero ends a text for llama.cpp
        return {id_ for id_ in allowed if not self.pieces[id_].startswith(b"\0")}

    def walk(self, gbnf: str, steps: int, seed: int, prefix: str = EVERY_TOKEN) -> bytes:
        """Go a random way and compare what is allowed at each place."""
        rng = random.Random(seed)
        lark = LLMatcher.grammar_from_lark(prefix + gbnf_to_lark(gbnf))
        matcher = LLMatcher(self.tokenizer, lark, log_level=0)
        peer = LlamaGrammar(self.model, gbnf)
        text = b""
        try:
            for _ in range(steps):
                ours, theirs = self.allowed(matcher), self._utf8(text, peer.allowed())
                if prefix:
                    assert ours == theirs, text
                else:
                    assert ours
                    assert ours <= theirs, text
                going_on = sorted(ours - self.ends)
                if not going_on:
                    break
                if rng.random() < 0.3:
                    going_on = sorted(going_on, key=lambda id_: -len(self.pieces[id_]))[:10]
                token = rng.choice(going_on)
                peer.accept(token)
                assert matcher.consume_token(token)
                text += self.pieces[token]
        finally:
            peer.close()
        return text

    def _utf8(self, text: bytes, allowed: set[int]) -> set[int]:
        """Without what llama.cpp allows though the answer would not be UTF-8.

        It lets control tokens stand for their names and lets an answer end within a character.
        """
        is_whole = _begins_utf8(text) == "whole"
        return {
            id_
            for id_ in allowed
            if (id_ in self.ends and is_whole)
            or (self.pieces[id_] and _begins_utf8(text + self.pieces[id_]))
        }


def _begins_utf8(text: bytes) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return "begun" if error.reason == "unexpected end of data" else ""
    return "whole"


@pytest.fixture(scope="module")
def peers() -> Iterator[Peers]:
    peers = Peers()
    yield peers
    peers.model.close()


@pytest.mark.parametrize("name", GRAMMARS)
def test_allows_what_llama_cpp_allows(peers: Peers, name: str) -> None:
    for seed in range(4):
        peers.walk(GRAMMARS[name], 40, seed)


@pytest.mark.parametrize("name", ["json", "chess", "program"])
def test_a_forced_token_is_one_of_the_allowed(peers: Peers, name: str) -> None:
    for seed in range(4):
        peers.walk(GRAMMARS[name], 40, seed, prefix="")


LEAVES = st.sampled_from(['"a"', '"b"', '"ab"', "[ab]", "[^a]", "[a-c]", '"é"', "name", "."])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        groups.map(" ".join),
        groups.map(lambda parts: f"({' | '.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
        inner.map(lambda part: f'"(" {part} root? ")"'),
        inner.map(lambda part: f'"a" ({part} | root) [ab]* "b"'),
        inner.map(lambda part: f'[ab]* {part} ("c" root)? [a-c]+ "a"'),
        inner.map(lambda part: f'([ab]+ root? | {part}) ("ab" | "b" root "a")'),
    )


BODIES = st.recursive(LEAVES, _larger, max_leaves=6)


@settings(max_examples=60, deadline=None)
@given(BODIES, BODIES, st.integers(0, 1000))
def test_random_grammars(peers: Peers, body: str, name: str, seed: int) -> None:
    gbnf = f"root ::= {body}\nname ::= {name.replace('name', '[bc]+').replace('root', '[a]')}\n"
    try:
        gbnf_to_lark(gbnf)
        LlamaGrammar(peers.model, gbnf).close()
    except ValueError:
        return  # never ends, or begins with itself, which llama.cpp cannot do
    # few steps: llama.cpp's time doubles with each where a text can be read in many ways
    peers.walk(gbnf, 6, seed)


def test_a_rule_may_begin_with_itself(peers: Peers) -> None:
    lark = EVERY_TOKEN + gbnf_to_lark('root ::= root "+" [a-c]+ | [a-c]+')
    matcher = LLMatcher(peers.tokenizer, LLMatcher.grammar_from_lark(lark), log_level=0)
    for char in (b"a", b"+", b"b"):
        assert matcher.consume_token(peers.pieces.index(char))
    texts = {peers.pieces[id_] for id_ in peers.allowed(matcher) - peers.ends}
    assert {b"a", b"b", b"c", b"+"} <= texts
    assert all(set(text) <= set(b"abc+") for text in texts)
    assert matcher.is_accepting()


def test_lexemes_are_as_large_as_they_may_be() -> None:
    plain = with_lexemes(parse_gbnf('root ::= word ("," word)*\nword ::= [a-z]+'))
    assert gbnf_to_lark('root ::= "a" "b"').count("\n") == 2
    assert list(plain) == ["root"]
    quoted = gbnf_to_lark('root ::= "[" root "]" | "\\"" [^"]* "\\""')
    assert quoted.count("T") == 6  # three lexemes, each named where it is and where it is made


def test_recursive_rules_are_those_that_reach_themselves() -> None:
    rules = parse_gbnf('root ::= a | b\na ::= "x" a | "y"\nb ::= c\nc ::= "z"')
    assert recursive_rules(rules) == {"root", "a"}


def test_characters() -> None:
    rules = parse_gbnf('root ::= [^\\x00-\\uD7FE] "é"')
    assert rules["root"] == Seq(
        (Chars(((0xD7FF, 0xD7FF), (0xE000, 0x10FFFF))), Chars(((233, 233),)))
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("root", "line 1, column 5: expected '::='"),
        ('root ::= "a', "line 1, column 10: this string is never closed"),
        ("root ::= [a", "line 1, column 10: this character class is never closed"),
        ('root ::= "b" ("a"', "line 1, column 14: this '(' is never closed"),
        ('root ::= "a" )', "line 1, column 14: expected a newline, the end of the rule"),
        ('root ::=\n "a"\nx ::= y', "line 3, column 7: there is no rule 'y'"),
        ('x ::= "a"', "there is no rule 'root', with which a grammar begins"),
        ('root ::= "a"\n\nroot ::= "b"', "line 3, column 1: rule 'root' is there a second time"),
        ('root ::= "a" root', "rule 'root' never ends"),
        ('root ::= "a" | b\nb ::= "c" b+', "rule 'b' never ends"),
        ('root ::= "\\q"', "line 1, column 11: unknown escape \\q"),
        ('root ::= "\\u12"', "line 1, column 11: unknown escape \\u"),
        ('root ::= "\\ud800"', "line 1, column 11: \\ud800 is no character"),
        ("root ::= [z-a]", "line 1, column 11: the range runs backwards"),
        ("root ::= [^]", "line 1, column 10: the character class is empty"),
        ('root ::= "a"{1,1000000}', "line 1, column 13: {1,1000000}: at most 2000 repetitions"),
        ('root ::= "a"{3,1}', "line 1, column 13: {3,1}: the second number is smaller"),
        ('root ::= "a"{,3}', "line 1, column 13: expected {m}, {m,} or {m,n}"),
        ("root ::= *", "line 1, column 10: nothing before '*' that it could repeat"),
        ("root ::= <think>", "line 1, column 10: tokens (<...>) cannot be used here"),
        ("root ::= " + "(" * 5000, "line 1, column 110: more than 100 groups"),
        ('root ::= "a"\n  | "b"', "line 2, column 3: the line before must end with '|'"),
        ('root ::= "a" $', "line 1, column 14: unexpected '$'"),
    ],
)
def test_says_where_a_grammar_is_wrong(text: str, message: str) -> None:
    with pytest.raises(GbnfError) as caught:
        gbnf_to_lark(text)
    assert str(caught.value).startswith(message)


def test_a_grammar_of_thousands_of_rules_is_refused_at_once() -> None:
    names = [f"r{number}" for number in range(2000)]
    rules = [f'{name} ::= "{name}" [a-z]* ("(" root ")")?' for name in names]
    with pytest.raises(GbnfError, match="is too large"):
        gbnf_to_lark("\n".join([f"root ::= {' | '.join(names)}", *rules]))
