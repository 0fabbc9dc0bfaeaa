"""Made-up conversations that drafters follow: answers, undo, another answer, edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from tools.draft_law import GREEDY
from tools.slow_ngrams import SlowDrafter

from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.proposal import DraftRequest, Verdict
from outrider.speculative.token_sequence import TokenSequence

VOCAB_SIZE = 3


@dataclass(frozen=True)
class Step:
    """A draft of at most ``limit`` tokens is asked for, ``accept`` of it stand, one is drawn."""

    limit: int
    accept: int
    token: int


@dataclass(frozen=True)
class Answer:
    """``cut`` tokens are taken back, ``prompt`` is added, then the answer is written."""

    cut: int
    prompt: tuple[int, ...]
    steps: tuple[Step, ...]


tokens = st.integers(0, VOCAB_SIZE - 1)
steps = st.builds(Step, st.integers(1, 6), st.sampled_from([0, 1, 2, 9, 9]), tokens)


def conversations(max_cut: int) -> st.SearchStrategy[list[Answer]]:
    """Answers that take back at most ``max_cut`` tokens; long prompts, so that much repeats."""
    prompts = st.lists(tokens, min_size=1, max_size=40).map(tuple)
    answers = st.builds(
        Answer,
        st.integers(0, max_cut),
        prompts,
        st.lists(steps, min_size=1, max_size=12).map(tuple),
    )
    return st.lists(answers, min_size=1, max_size=5)


class Talk:
    """Writes conversations and compares each draft with that of a slow drafter.

    ``tell`` is whether requests say when tokens were taken back.
    """

    def __init__(self, drafter: Drafter, slow: SlowDrafter, *, seq_id: int = 0, tell: bool = True):
        self.text = TokenSequence()
        self.drafts: list[tuple[int, ...]] = []
        self._drafter = drafter
        self._slow = slow
        self._seq_id = seq_id
        self._tell = tell

    def run(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self.begin(answer)
            for step in answer.steps:
                self.step(step)

    def begin(self, answer: Answer) -> None:
        self.text.truncate(max(len(self.text) - answer.cut, 0))
        self.text.extend(answer.prompt)
        # the first token is drawn with the prompt
        self._slow.begin(self.text.ids.tolist())
        self.text.extend([answer.prompt[0]])

    def step(self, step: Step) -> None:
        ids = self.text.ids
        ids.flags.writeable = False
        revision = self.text.revision if self._tell else None
        request = DraftRequest(self._seq_id, ids, step.limit, GREEDY, revision=revision)
        [proposal] = self._drafter.propose([request])
        *before, last = ids.tolist()
        limit = min(step.limit, self._drafter.n_max)
        assert list(proposal.token_ids) == self._slow.draft(before, last, limit)
        self.drafts.append(proposal.token_ids)
        stood = min(step.accept, len(proposal))
        if proposal.token_ids:
            self._drafter.observe_verdict(self._seq_id, Verdict(stood, step.token, "recovered"))
            self._slow.accept(stood)
        self.text.extend(np.array([*proposal.token_ids[:stood], step.token], np.int32))
