"""ChatTemplate: the model's own Jinja template, from messages to prompt tokens."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from outrider.speculative.errors import InputError

Message = Mapping[str, str]

# noncharacters of Unicode: no text that is exchanged contains them
_MARK = "\ufdd0"
_MARKED = re.compile(f"{_MARK}([0-9]+){_MARK}")
_PROBE = "outrider probes the system message"


class ChatTemplate:
    """Renders a conversation the way the model was trained to read it.

    A control token that a message merely spells stays text: its spelling is taken out before
    rendering and put back as ordinary tokens, so no message can change roles.
    """

    def __init__(self, source: str, *, name: str, bos_text: str = "", eos_text: str = "") -> None:
        """Compile ``source``; ``name`` says in errors where it came from.

        Raises:
            InputError: the template is broken; the message has its line.
        """
        self._name = name
        self._defined = {"bos_token": bos_text, "eos_token": eos_text}
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise InputError(
                f"{name}: line {error.lineno}: {error.message};"
                " give another one with --chat-template-file"
            ) from None
        self._takes_system = self._probe_system()

    def encode(
        self,
        messages: Sequence[Message],
        tokenize: Callable[[str, bool], list[int]],
        control_texts: Sequence[str],
        kwargs: Mapping[str, object] | None = None,
    ) -> list[int]:
        """Token ids of the prompt that asks for the next answer.

        Args:
            messages: dicts with ``role`` and ``content``.
            tokenize: (text, parse_special) -> token ids.
            control_texts: spellings of the model's control tokens.
            kwargs: more variables for the template.

        Raises:
            InputError: the template failed or refused; the message has its line.
        """
        spellings: list[str] = []
        marked = [dict(m, content=_mark(m["content"], control_texts, spellings)) for m in messages]
        if not self._takes_system:
            marked = _fold_system(marked)
        text = self.render(marked, kwargs)
        token_ids: list[int] = []
        # split keeps the captured numbers at the odd places
        for place, part in enumerate(_MARKED.split(text)):
            if place % 2:
                token_ids += tokenize(spellings[int(part)], False)
            elif part:
                token_ids += tokenize(part, True)
        return token_ids

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

    def _probe_system(self) -> bool:
        """False if the template refuses or drops a system message."""
        messages = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "Hi"}]
        try:
            return _PROBE in self.render(messages)
        except InputError:
            return False


def _fold_system(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Put the system message in front of the first user turn."""
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    rest = [dict(m) for m in messages if m["role"] != "system"]
    for message in rest:
        if system and message["role"] == "user":
            message["content"] = f"{system}\n\n{message['content']}"
            break
    return rest


def _mark(content: str, control_texts: Sequence[str], spellings: list[str]) -> str:
    """Replace each spelling of a control token by a numbered mark."""

    def replace(match: re.Match[str]) -> str:
        spellings.append(match.group())
        return f"{_MARK}{len(spellings) - 1}{_MARK}"

    longest_first = sorted((*control_texts, _MARK), key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), replace, content)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> NoReturn:
    raise InputError(f"the template refuses this conversation: {message}")


def _template_line(error: BaseException) -> int | str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == "<template>"]
    return lines[-1] if lines and lines[-1] else "?"
