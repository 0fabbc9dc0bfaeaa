"""Cost of a grammar mask beside llama.cpp's own grammar sampler, on the same GBNF grammar.

    python tests/benchmarks/mask_cost.py [MODEL.gguf ...]

Without arguments: the target models of the built-in profiles that have been fetched. The text
is JSON that the grammar allows; at each of its tokens the next row is masked by each, in
random order: by llguidance with our conversion and with its own, by llama.cpp, and 8 rows at once.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from llguidance import LLExecutor, LLMatcher
from llguidance.gbnf_to_lark import gbnf_to_lark as own_conversion

from outrider.profiles.load import list_profiles, load_profile
from outrider.profiles.sources import locate
from outrider.speculative.gbnf_lark import gbnf_to_lark
from outrider.speculative.grammar_vocabulary import GrammarVocabulary
from outrider.speculative.llama import NativeModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.llama_grammar import LlamaGrammar

ROWS = 8
GRAMMAR = r"""
root ::= map
thing ::= map | list | text | number | ("true" | "false" | "null") blank
map ::= "{" blank (text ":" blank thing ("," blank text ":" blank thing)*)? "}" blank
list ::= "[" blank (thing ("," blank thing)*)? "]" blank
text ::= "\"" ([^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" blank
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,3})? blank
blank ::= | " " | "\n" [ \t]{0,20}
"""
TEXT = Path(__file__).parents[1] / "fixtures" / "zoo" / "expected.json"
PROSE = {"title": "An été in Ōsaka", "text": 'He said: "well, that is it."\nThen he left. ' * 4}
LENGTH = 1200  # characters of the text


def main() -> None:
    for path in [Path(name) for name in sys.argv[1:]] or fetched_models():
        measure(path)


def fetched_models() -> list[Path]:
    sources = [load_profile(profile.name).target.model for profile in list_profiles()]
    found = {locate(source) for source in sources if source is not None}
    return sorted(path for path in found if path is not None)


def measure(path: Path) -> None:
    vocabulary = GrammarVocabulary(path)
    model = NativeModel(path, 0, None)
    size = model.vocab_size
    ends = [token for token in range(size) if model.is_end(token)]
    tokenizer = vocabulary.tokenizer(
        lambda text: model.tokenize(text, parse_special=False), ends, model.piece
    )
    text = json.dumps(
        {"prose": PROSE, **json.loads(TEXT.read_text())}, indent=1, ensure_ascii=False
    )
    tokens = model.tokenize(text[:LENGTH].encode(), parse_special=False)
    ours = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(gbnf_to_lark(GRAMMAR)))
    block = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(gbnf_to_lark(GRAMMAR)))
    own = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(own_conversion(GRAMMAR)))
    peer = LlamaGrammar(model, GRAMMAR)
    executor = LLExecutor(1)
    masks = np.zeros((ROWS, (size + 31) // 32), np.int32)
    address, row_bytes = masks.ctypes.data, masks.strides[0]
    ways: dict[str, tuple[int, Callable[[int], object]]] = {
        "llguidance, our conversion": (
            1,
            lambda at: ours.unsafe_compute_mask_ptr(address, row_bytes),
        ),
        f"llguidance, {ROWS} rows at once": (
            ROWS,
            lambda at: executor.unsafe_compute_mask_ptr_with_draft_token(
                [(block, 0, tokens[at : at + ROWS - 1])], address, row_bytes, ROWS
            ),
        ),
        "llguidance, its own conversion": (
            1,
            lambda at: own.unsafe_compute_mask_ptr(address, row_bytes),
        ),
        "llama.cpp": (1, lambda at: peer.apply()),
    }
    rng = random.Random(1)
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for at, token in enumerate(tokens[: -ROWS + 1]):
        # in any order: whoever comes after llama.cpp finds the processor's caches empty
        for name in rng.sample(list(ways), len(ways)):
            rows, mask = ways[name]
            started = time.perf_counter()
            mask(at)
            costs[name].append(1e6 * (time.perf_counter() - started) / rows)
        if not all(matcher.consume_token(token) for matcher in (ours, block, own)):
            raise SystemExit(ours.get_error() or own.get_error())
        peer.accept(token)
    print(f"{path.name}: {size:,} tokens, {len(costs['llama.cpp'])} positions; microseconds a row")
    for name, values in costs.items():
        print(f"  {name:32} median {median(values):10.1f}   worst {max(values):10.1f}")
    peer.close()
    model.close()


if __name__ == "__main__":
    main()
