"""PromptEncoder: texts and conversations to the token ids that a model is asked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from outrider.speculative.chat_template import ChatTemplate, Message
from outrider.speculative.errors import InputError
from outrider.speculative.model import Model
from outrider.speculative.reasoning_tags import ReasoningTags, find_tags, opens

_TAG_TOKENS = 32  # at the end of a prompt: an opened tag is among them


class PromptEncoder:
    """The target's vocabulary and chat template, or another template given instead."""

    def __init__(self, target: Model) -> None:
        self._target = target
        self._template: ChatTemplate | None = None

    @property
    def has_template(self) -> bool:
        return self._template is not None or self._target.chat_template is not None

    def encode(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Token ids of a raw prompt, with exactly one BOS where the model wants it."""
        vocabulary = self._target.vocabulary
        return vocabulary.with_bos(vocabulary.encode(text, parse_special=parse_special))

    def render(
        self, messages: Sequence[Message], kwargs: Mapping[str, object] | None = None
    ) -> list[int]:
        """Token ids of the prompt that asks for the next answer of a conversation.

        Raises:
            InputError: the model has no chat template, or it failed.
        """
        vocabulary = self._target.vocabulary
        token_ids = self._chat_template().encode(
            messages,
            lambda text, special: vocabulary.encode(text, parse_special=special),
            vocabulary.control_texts,
            kwargs,
        )
        return vocabulary.with_bos(token_ids)

    def reasoning_tags(
        self, prompt_ids: Sequence[int], kwargs: Mapping[str, object] | None = None
    ) -> ReasoningTags | None:
        """How the answer to a rendered prompt marks reasoning; None if the template knows none.

        A message can switch thinking off: whether the prompt opened a thought is seen at its end.
        """
        tags = find_tags(self._chat_template(), kwargs or {}) if self.has_template else None
        if tags is None:
            return None
        vocabulary = self._target.vocabulary
        end = b"".join(
            vocabulary.piece(i) or vocabulary.text(i).encode() for i in prompt_ids[-_TAG_TOKENS:]
        )
        return replace(tags, is_open=opens(end.decode("utf-8", "replace"), tags.start))

    def replace_template(self, source: str, name: str) -> None:
        """Use another chat template; ``name`` says in errors where it came from.

        Raises:
            InputError: it is broken.
        """
        vocabulary = self._target.vocabulary
        self._template = ChatTemplate(
            source, name=name, bos_text=vocabulary.bos_text, eos_text=vocabulary.eos_text
        )

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            source = self._target.chat_template
            if source is None:
                raise InputError(
                    f"{self._target.path}: the model has no chat template;"
                    " give one with --chat-template-file"
                )
            self.replace_template(source, f"{self._target.path}: chat template")
        assert self._template is not None
        return self._template
