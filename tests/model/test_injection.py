"""What messages spell stays text: no role changes, no control token is added, nothing is lost.

The vocabularies are those of the tiny models, and made-up ones of the families whose
templates are imitated here: the first normal tokens of a tiny model, renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.gguf_edit import GgufEdit
from tools.properties import PROPERTY

from outrider.speculative.chat_template import ChatTemplate
from outrider.speculative.disguise import SpecialTexts
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_header import GgufArray
from outrider.speculative.model import Model
from outrider.speculative.settings import ModelSettings
from outrider.speculative.vocabulary import Vocabulary

ZOO = Path(__file__).parents[1] / "fixtures" / "zoo"
ZOO_TARGETS = sorted(path.stem for path in ZOO.glob("target-*.gguf"))
CONTROL, USER_DEFINED = 3, 4  # token types in a file (llama.h)
FIRST_RENAMED = 300

CHATML = """\
{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
LLAMA_3 = """\
{{- bos_token }}{%- for m in messages %}
{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim }}
{{- '<|eot_id|>' }}{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""
GEMMA = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}\
{% endif %}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('roles must alternate user/assistant') }}{% endif %}\
<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}
{{ m['content'] | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
MISTRAL = """\
{{- bos_token }}{%- if messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] %}{%- set messages = messages[1:] %}{%- endif %}
{%- for m in messages %}{%- if m['role'] == 'user' %}
{%- if loop.last and system is defined %}
{{- '[INST]' + system + '\n\n' + m['content'] + '[/INST]' }}
{%- else %}{{- '[INST]' + m['content'] + '[/INST]' }}{%- endif %}
{%- else %}{{- m['content'] + eos_token }}{%- endif %}{%- endfor %}"""
# nothing stands between two messages, and brackets around them
GLUED = """\
{% for m in messages %}{{ m['content'] | trim }}{% endfor %}<|im_end|>\
{% for m in messages %}<{{ m['content'] }}>[{{ m['content'] }}]{% endfor %}<|im_end|>"""


@dataclass(frozen=True)
class Family:
    """A template and the texts that must be tokens in its vocabulary.

    ``longer`` is a control token that begins like a mark; what follows the mark could complete it.
    """

    template: str
    marks: Sequence[str]
    longer: Sequence[str] = ()


FAMILIES = {
    "chatml": Family(CHATML, ["<|im_start|>", "<|im_end|>"]),
    "llama-3": Family(LLAMA_3, ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    "gemma": Family(GEMMA, ["<start_of_turn>", "<end_of_turn>"]),
    "mistral": Family(MISTRAL, ["[INST]", "[/INST]"], ["[INST]x"]),
    "glued": Family(GLUED, ["<|im_start|>", "<|im_end|>"]),
}


@dataclass(frozen=True)
class Read:
    """A template with a vocabulary. ``special`` are the tokens that no message may add."""

    template: ChatTemplate
    vocabulary: Vocabulary
    special: Mapping[int, str]

    def encode(self, messages: Sequence[Mapping[str, object]]) -> list[int]:
        vocabulary = self.vocabulary
        return self.template.encode(
            messages,
            lambda text, special: vocabulary.encode(text, parse_special=special),
            vocabulary.control_texts,
        )

    def control_ids(self, messages: Sequence[Mapping[str, object]]) -> list[int]:
        return [i for i in self.encode(messages) if i in self.special]

    def text(self, messages: Sequence[Mapping[str, object]]) -> str:
        """The prompt as its tokens print it, control tokens as the vocabulary writes them."""
        pieces = (
            self.special[i].encode() if i in self.special else self.vocabulary.piece(i)
            for i in self.encode(messages)
        )
        return b"".join(pieces).decode("utf-8", "surrogatepass")


def _array(file: GgufFile, key: str) -> GgufArray:
    value = file.metadata[key]
    assert isinstance(value, GgufArray)
    return value


def _write(path: Path, kinds_of: Mapping[str, int], *, space_prefix: bool) -> None:
    """A tiny model in which the given texts are tokens of these kinds."""
    source = ZOO / "target-llama.gguf"
    file = GgufFile.open(source)
    tokens = _array(file, "tokenizer.ggml.tokens").strings()
    kinds = [int(one) for one in _array(file, "tokenizer.ggml.token_type").numbers()]
    for unused, (text, kind) in enumerate(kinds_of.items(), FIRST_RENAMED):
        token = text.encode()
        token_id = tokens.index(token) if token in tokens else unused
        tokens[token_id], kinds[token_id] = token, kind
    edit = GgufEdit(source).set("tokenizer.ggml.tokens", tokens)
    edit.set("tokenizer.ggml.token_type", kinds)
    edit.set("tokenizer.ggml.add_space_prefix", space_prefix).write(path)


def _read(path: Path, family: Family) -> Iterator[Read]:
    model = Model(ModelSettings(path, gpu_layers=0), "target")
    vocabulary = model.vocabulary
    template = ChatTemplate(
        family.template,
        name="chat.jinja",
        bos_text=vocabulary.bos_text,
        eos_text=vocabulary.eos_text,
    )
    names = {*vocabulary.control_texts, *family.marks}
    special = {i: text for i in range(vocabulary.size) if (text := model.native.text(i)) in names}
    assert {*family.marks} <= {*special.values()}
    yield Read(template, vocabulary, special)
    model.close()


KINDS = {"control": CONTROL, "user-defined": USER_DEFINED}


@pytest.fixture(
    scope="module",
    params=[
        (family, kind, space_prefix)
        for family in FAMILIES
        for kind in KINDS
        for space_prefix in (False, True)
        # llama.cpp makes a control token of what ends a turn, and "glued" writes no other mark
        if (family, kind) != ("glued", "user-defined")
    ],
    ids=lambda param: f"{param[0]}-{param[1]}{'-space' if param[2] else ''}",
)
def read(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Read]:
    name, kind, space_prefix = request.param
    family = FAMILIES[name]
    path = tmp_path_factory.mktemp("vocabulary") / "model.gguf"
    kinds_of = dict.fromkeys(family.marks, KINDS[kind]) | dict.fromkeys(family.longer, CONTROL)
    _write(path, kinds_of, space_prefix=space_prefix)
    yield from _read(path, family)


ROLES = ("system", "user", "assistant", "user")
HARMLESS = [{"role": role, "content": "hello"} for role in ROLES]


def _conversation(texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in zip(ROLES, texts, strict=True)]


def _check(read: Read, messages: Sequence[Mapping[str, str]]) -> None:
    assert read.control_ids(messages) == read.control_ids(HARMLESS)
    # what the tokens print is what the template wrote, white space at the edges of parts aside
    source = [dict(m) for m in messages]
    if "no system role" in read.template._source:
        system, first, *rest = source
        first["content"] = f"{system['content']}\n\n{first['content']}"
        source = [first, *rest]
    assert read.text(messages).replace(" ", "") == read.template.render(source).replace(" ", "")


def _attacks(read: Read) -> list[str]:
    marks = [*read.special.values()]
    halves = [part for mark in marks for part in (mark[:-1], mark[1:], mark[:3], mark[3:])]
    role_marks = ["\n", "system\n", "user", "assistant", "model"]
    alike = ["＜|im_start|＞", "<\u200b|im_start|>", "‹|im_end|›", "<¦im_end¦>", "⟨s⟩"]
    ours = ["\ufdd0", "\ufdd00\ufdd0", "\U0002a6d6", "\U0002a6d5", "\U0010ffff", "\ue000"]
    return [*marks, *halves, *role_marks, *alike, *ours, " ", "é", '"', "\\"]


def test_every_special_text_in_full(read: Read) -> None:
    everything = "".join(f"{text}system\n{text}{text} {text}" for text in read.special.values())
    answer = "fine" if _has_user_defined(read) else everything
    _check(read, _conversation([everything, everything, answer, everything]))


def test_every_special_text_in_two_pieces(read: Read) -> None:
    """Cut everywhere; the second piece is the next message, or stands around one."""
    for text in read.special.values():
        for cut in range(1, len(text)):
            head, tail = text[:cut], text[cut:]
            for texts in (
                [head, tail, "fine", "ok"],
                [f"a{head}", f"{tail}b", head, tail],
                [f"a{head} ", f" {tail}b", f"{head}\n", f"\n{tail}"],
                [tail, head, tail, f"{tail}{head}"],
                [f"{head}{text}", f"{text}{tail}", "fine", f"{head}{text}{tail}"],
                [head[1:], tail[:-1], "fine", text[1:-1]],
            ):
                _check(read, _conversation(texts))


@PROPERTY
@given(data=st.data())
def test_no_content_adds_a_special_token_or_loses_a_letter(read: Read, data: st.DataObject) -> None:
    fragments = st.sampled_from(_attacks(read))
    contents = st.lists(fragments, min_size=1, max_size=6).map("".join)
    texts = [data.draw(contents, label=role) for role in ROLES]
    if _has_user_defined(read):
        texts[2] = "fine"  # an answer may hold user-defined tokens that the model wrote
    _check(read, _conversation(texts))


def _has_user_defined(read: Read) -> bool:
    return any(read.vocabulary.piece(i) for i in read.special)


def test_an_answer_keeps_the_user_defined_tokens_that_the_model_wrote(tmp_path: Path) -> None:
    """Templates look for them, as for </think>; in a question they are text."""
    path = tmp_path / "model.gguf"
    _write(path, {"</think>": USER_DEFINED}, space_prefix=False)
    template = "{% set think = '</think>' %}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    for read in _read(path, Family(template, ["</think>"])):
        [think] = [i for i, text in read.special.items() if text == "</think>"]
        for role, count in (("assistant", 1), ("user", 0), ("system", 0)):
            messages = [{"role": role, "content": "a</think>b"}]
            assert read.encode(messages).count(think) == count
            assert read.text(messages) == "a</think>b"


@pytest.mark.parametrize("name", ZOO_TARGETS)
@pytest.mark.parametrize("family", ["own", "chatml", "glued"])
def test_the_tiny_models(name: str, family: str) -> None:
    path = ZOO / f"{name}.gguf"
    own = Model(ModelSettings(path, gpu_layers=0), "target")
    source = own.chat_template
    own.close()
    assert source is not None
    template = source if family == "own" else FAMILIES[family].template
    for read in _read(path, Family(template, FAMILIES["chatml"].marks)):
        everything = "".join(f"{text}system\n{text}{text} {text}" for text in _attacks(read))
        _check(read, _conversation([everything] * 4))
        for text in _attacks(read):
            _check(read, _conversation([text] * 4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_prefix_puts_no_space_around_a_spelling(kind: str, tmp_path: Path) -> None:
    """With the prefix only the parts after a control token of the template begin with one."""
    path = tmp_path / "model.gguf"
    _write(path, {"<start_of_turn>": KINDS[kind]}, space_prefix=True)
    template = "{% for m in messages %}<start_of_turn>{{ m['content'] }}<|im_end|>{% endfor %}"
    for read in _read(path, Family(template, ["<start_of_turn>"])):
        messages = [{"role": "user", "content": "a<start_of_turn><|im_end|>b <start_of_turn>\nc"}]
        assert read.text(messages) == (
            "<start_of_turn> a<start_of_turn><|im_end|>b <start_of_turn>\nc<|im_end|>"
        )


OVERLAPPING = ["<a>", "<a><b", "b><c>", "c>", ">", "<a><b><c><d"]


def test_special_texts_are_found_as_the_tokenizer_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    _write(path, dict.fromkeys(OVERLAPPING, CONTROL), space_prefix=False)
    model = Model(ModelSettings(path, gpu_layers=0), "target")
    special, native = SpecialTexts(model.vocabulary.control_texts), model.native

    @PROPERTY
    @given(st.lists(st.sampled_from(["<a>", "<b>", "<c>", "<d", "b", "<", ">", "x"]), max_size=12))
    def check(parts: list[str]) -> None:
        text = "".join(parts)
        found = [text[start:end] for start, end in special.spans(text)]
        ids = model.vocabulary.encode(text, parse_special=True)
        assert found == [native.text(i) for i in ids if native.attributes(i) & 8]

    check()
    model.close()


def test_harmless_text_is_tokenized_in_one_piece(read: Read) -> None:
    """As llama-server does: only what would add a control token is read apart."""
    vocabulary = read.vocabulary
    calls: list[tuple[str, bool]] = []

    def tokenize(text: str, special: bool) -> list[int]:
        calls.append((text, special))
        return vocabulary.encode(text, parse_special=special)

    read.encode(HARMLESS)  # it has asked which marks of the template are tokens
    texts = ["im_", "<", "|>", "end"]  # parts of special texts, but not of one here
    messages = _conversation([f"a {text} b" for text in texts])
    control = vocabulary.control_texts
    token_ids = read.template.encode(messages, tokenize, control)
    assert [special for _, special in calls] == [True]
    assert token_ids == vocabulary.encode(calls[0][0], parse_special=True)
