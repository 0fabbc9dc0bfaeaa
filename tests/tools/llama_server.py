"""A real llama-server (the wheel xllamacpp) in a process of its own, on loopback.

Run as a program it serves until its standard input ends: the server goes with its user.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """``spec_type`` is a name of llama.cpp's enumeration, lower case: ``draft_simple``, ...

    ``ngram`` are the settings of that kind if it is one of the n-gram family, by llama.cpp's
    names; ``ctx_size`` is that of each slot.
    """

    model: str
    spec_type: str = "none"
    draft_model: str = ""
    n_max: int = 3
    match: int = 12
    size: int = 48
    ctx_size: int = 1024
    ngram: Mapping[str, object] = field(default_factory=dict)
    parallel: int = 1


@dataclass(frozen=True, slots=True)
class Completion:
    """What one request gave, and the draft tokens it cost and kept."""

    token_ids: list[int]
    drafted: int
    accepted: int


class LlamaServer:
    """Asks a server that runs at ``address``."""

    def __init__(self, address: str) -> None:
        assert address.startswith("http://127.0.0.1:")
        self.address = address

    def complete(
        self, prompt: str | Sequence[int], num_tokens: int, slot: int | None = None
    ) -> Completion:
        """Exactly ``num_tokens`` tokens at temperature 0, end tokens banned.

        In a ``slot`` a conversation goes on: what it shares with the prompt is not read again.
        """
        body = {
            "prompt": prompt,
            "n_predict": num_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": slot is not None,
            "id_slot": -1 if slot is None else slot,
            "return_tokens": True,
        }
        request = urllib.request.Request(
            f"{self.address}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        # no proxy: the server is on this machine
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
        timings = answer["timings"]
        assert answer["stop_type"] == "limit"
        return Completion(
            answer["tokens"], timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
        )


@contextmanager
def llama_server(settings: ServerSettings, log: Path) -> Iterator[LlamaServer]:
    """A server that runs for the time of the context; its log goes to the file ``log``."""
    command = [sys.executable, __file__, json.dumps(asdict(settings))]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, f"llama-server did not start:\n{log.read_text(errors='replace')[-2000:]}"
        try:
            yield LlamaServer(address)
        finally:
            process.stdin.close()


def _serve(settings: ServerSettings) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings.model
    params.n_ctx = settings.ctx_size * settings.parallel
    params.n_parallel = settings.parallel
    params.kv_unified = False
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    speculative = params.speculative
    types = xllamacpp.common_speculative_type
    name = f"COMMON_SPECULATIVE_TYPE_{settings.spec_type.upper()}"
    speculative.types = [getattr(types, name)]
    speculative.draft.n_max = settings.n_max
    speculative.draft.probabilistic = False
    if settings.draft_model:
        speculative.draft.mparams.path = settings.draft_model
    speculative.ngram_simple.size_n = settings.match
    speculative.ngram_simple.size_m = settings.size
    for key, value in settings.ngram.items():
        setattr(getattr(speculative, settings.spec_type), key, value)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    _serve(ServerSettings(**json.loads(sys.argv[1])))
