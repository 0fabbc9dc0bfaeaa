"""ChatTemplate: the model's own Jinja template, from messages to prompt tokens."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from outrider.speculative.disguise import Disguise, SpecialTexts, Spellings, Tokenize
from outrider.speculative.errors import InputError

Message = Mapping[str, Any]

_PROBE = "outrider probes this message"
# what role marks look like: <|user|>, [INST]
_MARKUP = re.compile(r"<[^<>\s]{1,64}>|\[/?[A-Z_]{2,64}\]")
_NAMES = ("role", "type")
_FIRST_MARK = "\U00020000"


class ChatTemplate:
    """Renders a conversation the way the model was trained to read it.

    A control token that a message merely spells stays text: its spelling is hidden while the
    template is rendered, and read as ordinary text after it. So no message can change roles.
    """

    def __init__(self, source: str, *, name: str, bos_text: str = "", eos_text: str = "") -> None:
        """Compile ``source``; ``name`` says in errors where it came from.

        Raises:
            InputError: the template is broken; the message has its line.
        """
        self._name = name
        self._source = source
        self._defined = {"bos_token": bos_text, "eos_token": eos_text}
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise InputError(
                f"{name}: line {error.lineno}: {error.message};"
                " give another one with --chat-template-file"
            ) from None
        user = {"role": "user", "content": _PROBE}
        self._takes_parts = False
        takes_text = self._shows([user])
        self._takes_parts = not takes_text and self._shows([_in_parts(user)])
        # one that shows nothing needs variables that are not known yet
        needs_more = not takes_text and not self._takes_parts
        asked = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "Hi"}]
        self._takes_system = needs_more or self._shows(asked)
        self._spellings: tuple[Sequence[str], Spellings] | None = None

    def encode(
        self,
        messages: Sequence[Message],
        tokenize: Tokenize,
        control_texts: Sequence[str],
        kwargs: Mapping[str, object] | None = None,
    ) -> list[int]:
        """Token ids of the prompt that asks for the next answer.

        Args:
            messages: dicts with ``role`` and ``content``, a text or a list of text parts.
            tokenize: (text, parse_special) -> token ids.
            control_texts: spellings of the model's control tokens.
            kwargs: more variables for the template.

        Raises:
            InputError: the template failed or refused; the message has its line.
        """
        spellings = self._spellings_of(control_texts, tokenize)
        plain: Sequence[Message] = [dict(m, content=_text(m.get("content"))) for m in messages]
        if not self._takes_system:
            plain = _fold_system(plain)
        used = set(self._source + json.dumps([plain, kwargs], ensure_ascii=False, default=str))
        disguise = Disguise(spellings, used)
        hidden = []
        for message in plain:
            # an answer may hold what the model itself wrote, as <think>: templates look for it
            is_answer = message.get("role") == "assistant"
            special = spellings.control if is_answer else spellings.either
            hidden.append(_hidden(message, disguise, special))
        return disguise.encode(self.render(self._formed(hidden), kwargs), tokenize)

    def render(
        self, messages: Sequence[Message], kwargs: Mapping[str, object] | None = None
    ) -> str:
        """The prompt as text, the beginning of the answer included."""
        variables = {**self._defined, "messages": messages, "add_generation_prompt": True}
        try:
            return self._template.render(variables | dict(kwargs or {}))
        except InputError as error:
            raise InputError(f"{self._name}: {error}") from None
        except Exception as error:  # a template can raise anything
            raise InputError(
                f"{self._name}: line {_template_line(error)}: {error};"
                " give another one with --chat-template-file"
            ) from None

    @property
    def source(self) -> str:
        """The text of the template."""
        return self._source

    def _shows(self, messages: Sequence[Message]) -> bool:
        """False if the template refuses or drops the probe in ``messages``, or prints a list."""
        try:
            text = self.render(self._formed(messages)).lower()
        except InputError:
            return False
        return _PROBE in text and "'type'" not in text

    def _formed(self, messages: Sequence[Message]) -> list[Message]:
        return [_in_parts(m) for m in messages] if self._takes_parts else list(messages)

    def _spellings_of(self, control_texts: Sequence[str], tokenize: Tokenize) -> Spellings:
        """Control tokens, and user-defined ones that the template itself writes."""
        if self._spellings is None or self._spellings[0] is not control_texts:
            written = {t for t in _MARKUP.findall(self._source) if len(tokenize(t, False)) == 1}
            self._spellings = control_texts, Spellings.of(control_texts, written)
        return self._spellings[1]


class _Generation(jinja2.ext.Extension):
    """Passes through what Transformers marks for training: ``{% generation %}``."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    """What Transformers gives a chat template."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _text(content: object) -> str:
    """The content of a message as one text; its parts are lines."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, Sequence) else [content]
    texts: list[str] = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            raise InputError(f"a message has the content {part!r}: only text can be read")
        texts.append(text)
    return "\n".join(texts)


def _in_parts(message: Message) -> Message:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _fold_system(messages: Sequence[Message]) -> Sequence[Message]:
    """Put the system message in front of the first user turn, or make it one."""
    system = "\n\n".join(m["content"] for m in messages if m.get("role") == "system")
    rest = [dict(m) for m in messages if m.get("role") != "system"]
    first = next((m for m in rest if m.get("role") == "user"), None)
    if first is not None and system:
        first["content"] = f"{system}\n\n{first['content']}"
    elif system:
        rest.insert(0, {"role": "user", "content": system})
    return rest


def _hidden(value: Any, disguise: Disguise, special: SpecialTexts, *, edges: bool = True) -> Any:
    """``value`` with all its texts hidden; a template compares names, so those stay if they can."""
    if isinstance(value, str):
        return disguise.hide(value, special, edges=edges)
    if isinstance(value, Mapping):
        return {
            key: _hidden(one, disguise, special, edges=key not in _NAMES)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_hidden(one, disguise, special) for one in value]
    return value


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, **options)
    # what stands for a hidden character is no text that could be escaped
    return re.sub(r"[^\0-\x7f]", _escaped, text) if ensure_ascii else text


def _escaped(match: re.Match[str]) -> str:
    return match.group() if match.group() >= _FIRST_MARK else json.dumps(match.group())[1:-1]


def _raise_exception(message: str) -> NoReturn:
    raise InputError(f"the template refuses this conversation: {message}")


def _template_line(error: BaseException) -> int | str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == "<template>"]
    return lines[-1] if lines and lines[-1] else "?"
