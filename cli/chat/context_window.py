"""Making room: which turns leave the context when a conversation has grown too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from outrider.cli.chat.transcript import Transcript
from outrider.speculative.errors import PromptTooLongError

Policy = Literal["drop-oldest", "stop"]

_LEAST_ROOM = 256


def fit_context(
    transcript: Transcript,
    encode: Callable[[list[dict[str, str]]], list[int]],
    *,
    n_ctx: int,
    predict: int,
    policy: Policy,
    with_reasoning: bool = False,
) -> list[int]:
    """The prompt of the conversation, after dropping its oldest turns if it does not fit.

    ``with_reasoning`` gives the template what was thought in earlier turns.

    Turns are dropped whole, the system prompt and the present message stay. Once one must go,
    a quarter of the context is made free, so that not every turn is read again from the start.

    Raises:
        PromptTooLongError: it does not fit and no turn may be dropped.
    """
    prompt_ids = encode(transcript.messages(with_reasoning=with_reasoning))
    room = min(n_ctx // 4, predict if predict > 0 else _LEAST_ROOM)
    if policy == "stop" or len(prompt_ids) + room <= n_ctx:
        return _checked(prompt_ids, n_ctx)
    former = transcript.first_in_context
    while len(prompt_ids) + n_ctx // 4 > n_ctx and transcript.first_in_context + 1 < len(
        transcript.turns
    ):
        transcript.first_in_context += 1
        prompt_ids = encode(transcript.messages(with_reasoning=with_reasoning))
    try:
        return _checked(prompt_ids, n_ctx)
    except PromptTooLongError:
        transcript.first_in_context = former
        raise


def _checked(prompt_ids: list[int], n_ctx: int) -> list[int]:
    if len(prompt_ids) >= n_ctx:
        raise PromptTooLongError(len(prompt_ids) + 1, n_ctx)
    return prompt_ids
