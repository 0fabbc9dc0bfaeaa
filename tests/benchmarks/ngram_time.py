"""Time the n-gram drafters take in a step (propose and observe) as the text grows.

    python tests/benchmarks/ngram_time.py [--steps 400] [--lengths 1000,8000,64000]

The text is made up: words by Zipf's law, and passages of it that come again, so that drafts are
made and accepted. Each step commits what a target that writes this text would accept.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import mean, median, quantiles

import numpy as np
from numpy.typing import NDArray
from tools.draft_law import GREEDY

from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.drafters.ngram_cache import NgramCacheDrafter
from outrider.speculative.drafters.ngram_edit import NgramEditDrafter
from outrider.speculative.drafters.ngram_map import NgramMapDrafter
from outrider.speculative.drafters.ngram_mod import NgramModDrafter
from outrider.speculative.drafters.ngram_pool import NgramPool
from outrider.speculative.drafters.ngram_simple import NgramSimpleDrafter
from outrider.speculative.proposal import DraftRequest, Verdict
from outrider.speculative.token_sequence import TokenSequence, common_prefix_length

I32 = NDArray[np.int32]
VOCAB_SIZE = 50_000
DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "ngram-simple": lambda: NgramSimpleDrafter(12, 48),
    "ngram-simple, match 3": lambda: NgramSimpleDrafter(3, 48),
    "ngram-map-k": lambda: NgramMapDrafter(12, 48, has_values=False),
    "ngram-map-k4v": lambda: NgramMapDrafter(12, 48, has_values=True),
    "ngram-mod": lambda: NgramModDrafter(NgramPool(24), 48, 64),
    "ngram-edit": lambda: NgramEditDrafter(4, 64),
    "ngram-cache": lambda: NgramCacheDrafter(VOCAB_SIZE),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lengths", default="1000,8000,64000")
    arguments = parser.parse_args()
    print(f"{'drafter':<22} {'tokens':>7} {'first ms':>9} {'median us':>10} {'mean us':>8}", end="")
    print(f" {'95 % us':>8} {'drafts':>7} {'accepted':>9}")
    for length in map(int, arguments.lengths.split(",")):
        text = made_up_text(length + 70 * arguments.steps)
        for name, make in DRAFTERS.items():
            show(name, length, make(), text, arguments.steps)


def made_up_text(length: int) -> I32:
    numbers = np.random.default_rng(1)
    parts: list[I32] = [numbers.zipf(1.3, 400).clip(max=VOCAB_SIZE - 1).astype(np.int32)]
    total = 400
    while total < length:
        text = np.concatenate(parts)
        begin = int(numbers.integers(0, total - 150))
        again = text[begin : begin + int(numbers.integers(40, 150))]
        new = numbers.zipf(1.3, 60).clip(max=VOCAB_SIZE - 1).astype(np.int32)
        parts = [text, again, new]
        total += len(again) + len(new)
    return np.concatenate(parts)[:length]


def show(name: str, length: int, drafter: Drafter, text: I32, num_steps: int) -> None:
    tokens = TokenSequence(text[:length])
    times, drafts, accepted = [], 0, 0
    for _ in range(num_steps):
        rest = text[len(tokens) :]
        request = DraftRequest(0, tokens.ids, 64, GREEDY, revision=tokens.revision)
        started = time.perf_counter()
        [proposal] = drafter.propose([request])
        times.append(time.perf_counter() - started)
        stood = common_prefix_length(np.array(proposal.token_ids, np.int32), rest)
        if proposal.token_ids:
            verdict = Verdict(stood, int(rest[stood]), "bonus")
            started = time.perf_counter()
            drafter.observe_verdict(0, verdict)
            times[-1] += time.perf_counter() - started
            drafts, accepted = drafts + 1, accepted + stood
        tokens.extend(rest[: stood + 1])
    first, *later = (1e6 * seconds for seconds in times)
    print(
        f"{name:<22} {length:>7} {first / 1e3:>9.1f} {median(later):>10.1f} {mean(later):>8.1f}"
        f" {quantiles(later, n=20)[-1]:>8.1f} {drafts:>7} {accepted:>9}"
    )


if __name__ == "__main__":
    main()
