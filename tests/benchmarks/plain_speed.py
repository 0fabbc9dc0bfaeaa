"""Plain decoding against a native llama-server: tokens/s at two depths, interleaved.

    python tests/benchmarks/plain_speed.py MODEL.gguf LLAMA_SERVER [--rounds 7]

Both sides get the same prompt tokens, threads and context, temperature 0, end tokens ignored.
The server's figure is its own ``predicted_per_second``; both leave the first token out.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from outrider.speculative.engine import Engine
from outrider.speculative.events import FinishEvent
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    EngineSettings,
    GenerationSettings,
    ModelSettings,
    SamplingSettings,
)

TOKENS = 128
DEPTHS = (0, 1024)
TEXT = "The history of the lighthouse begins with open fires built on hills beside the sea. "


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("server")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    target = ModelSettings(arguments.model, ctx_size=2048, threads=arguments.threads)
    with (
        serving(arguments.server, arguments.model, arguments.threads) as url,
        Engine.load(EngineSettings(target)) as engine,
    ):
        session = engine.session()
        long = engine.encode(TEXT * 100)
        for depth in DEPTHS:
            prompt = long[: depth or 8]
            ours, theirs = [], []
            for number in range(arguments.rounds + 1):
                pair = [ask_engine(session, prompt), ask_server(url, prompt)]
                if number:  # the first round warms up
                    ours.append(pair[0])
                    theirs.append(pair[1])
            ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
            print(
                f"depth {depth:5}: outrider {median(ours):6.1f} tok/s  llama-server"
                f" {median(theirs):6.1f} tok/s, {median(ours) / median(theirs):.3f} of it,"
                f" {median(ratios):.3f} within a round"
                f"  ({', '.join(f'{ratio:.2f}' for ratio in ratios)})"
            )


def ask_engine(session: Session, prompt: list[int]) -> float:
    session.reset()
    sampling = SamplingSettings(temp=0, ignore_eos=True)
    *_, last = session.generate(prompt, GenerationSettings(sampling, predict=TOKENS))
    assert isinstance(last, FinishEvent)
    speed = last.result.timings.tokens_per_s
    assert speed is not None
    assert len(last.result.token_ids) == TOKENS
    return speed


def ask_server(url: str, prompt: list[int]) -> float:
    body = {
        "prompt": prompt,
        "n_predict": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
    }
    timings = post(f"{url}/completion", body)["timings"]
    assert timings["predicted_n"] == TOKENS
    return float(timings["predicted_per_second"])


@contextmanager
def serving(server: str, model: Path, threads: int, flags: Sequence[str] = ()) -> Iterator[str]:
    """A llama-server of its own, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [server, "-m", str(model), "-c", "2048", "-t", str(threads), "-np", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--no-webui", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield wait_for(f"http://127.0.0.1:{port}", process)
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> str:
    for _ in range(300):
        if process.poll() is not None:
            raise SystemExit(f"the server ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=1):
                return url
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


def post(url: str, body: dict[str, object]) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
