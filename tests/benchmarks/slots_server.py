"""Many streams at once beside a native llama-server: aggregate tokens/s, interleaved.

    python tests/benchmarks/slots_server.py MODEL.gguf LLAMA_SERVER [--rounds 5] [--tokens 96]

Both sides get the same prompt tokens, threads, cache and number of slots, in one unified cache;
temperature 0, end tokens ignored, no drafts. The server is asked by as many connections at once
as there are streams, and streams its tokens, which are timed as they come; ours are written by
one engine in this process. Two figures: the tokens a second of all streams from when the last
of them had its first token, and those over all the time from the first request, prompts included.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

from outrider.speculative.engine import Engine
from outrider.speculative.settings import EngineSettings, ModelSettings

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.plain_speed import serving
from benchmarks.slots import (
    CONTEXT,
    STREAMS,
    Stream,
    answer_all,
    generating_speed,
    given_prompts,
    whole_speed,
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--chars", type=int, default=400, help="of each prompt")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    num_slots, num_tokens = max(STREAMS), arguments.tokens
    target = ModelSettings(arguments.model, ctx_size=CONTEXT, threads=arguments.threads)
    # the last of a flag counts
    flags = ["-np", str(num_slots), "-c", str(CONTEXT), "--kv-unified"]
    with (
        serving(arguments.server, arguments.model, arguments.threads, flags) as url,
        Engine.load(EngineSettings(target, parallel=num_slots)) as engine,
    ):
        sessions = [engine.session() for _ in range(num_slots)]
        prompts = given_prompts(engine, arguments.chars)
        print("| streams | what | outrider | llama-server | ratio | rounds |")
        print("|---|---|---|---|---|---|")
        for count in STREAMS:
            ours, theirs = [], []
            for number in range(arguments.rounds + 1):
                for is_ours in (True, False) if number % 2 else (False, True):
                    if is_ours:
                        ours.append(answer_all(engine, sessions, prompts[:count], num_tokens))
                    else:
                        theirs.append(ask_server(url, prompts[:count], num_tokens))
            for name, speed in (("generating", generating_speed), ("whole", whole_speed)):
                # the first round warms up
                print_row(
                    f"| {count} | {name} |", [*map(speed, ours)][1:], [*map(speed, theirs)][1:]
                )


def print_row(head: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    print(
        f"{head} {median(ours):.1f} | {median(theirs):.1f} | {median(ratios):.3f} |"
        f" {', '.join(f'{ratio:.2f}' for ratio in ratios)} |",
        flush=True,
    )


def ask_server(url: str, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Stream]:
    with ThreadPoolExecutor(len(prompts)) as threads:
        return list(threads.map(partial(_stream, url, num_tokens), prompts))


def _stream(url: str, num_tokens: int, prompt: Sequence[int]) -> Stream:
    body = {
        "prompt": prompt,
        "n_predict": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
        "return_tokens": True,
        "stream": True,
    }
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    stream = Stream(time.perf_counter())
    with urllib.request.urlopen(request) as lines:
        for line in lines:
            if line.startswith(b"data: {"):
                tokens = json.loads(line[6:]).get("tokens", ())
                if tokens:
                    stream.came.append((time.perf_counter(), len(tokens)))
    assert stream.num_emitted == num_tokens, f"{stream.num_emitted} of {num_tokens} tokens came"
    return stream


if __name__ == "__main__":
    main()
