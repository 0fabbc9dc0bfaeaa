"""Processor: its cores and features, and what the llama.cpp build and the threads make of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.speculative.threads import physical_cores, thread_count

# what llama.cpp has code for: its own name, the system's, and the short name for the screen
_FEATURES = (
    ("AVX", "avx", "AVX"),
    ("AVX2", "avx2", "AVX2"),
    ("FMA", "fma", "FMA"),
    ("F16C", "f16c", "F16C"),
    ("AVX_VNNI", "avx_vnni", "AVX-VNNI"),
    ("AVX512", "avx512f", "AVX512"),
    ("AVX512_VNNI", "avx512_vnni", "VNNI"),
    ("AVX512_BF16", "avx512_bf16", "BF16"),
    ("AMX_INT8", "amx_int8", "AMX"),
    ("NEON", "asimd", "NEON"),
    ("DOTPROD", "asimddp", "DOTPROD"),
    ("MATMUL_INT8", "i8mm", "I8MM"),
    ("SVE", "sve", "SVE"),
)
_IMPLIED = frozenset({"AVX", "F16C"})  # every processor with AVX2 has them
_BUSY_SHARE = 0.5  # of the cores, taken before anything was measured


@dataclass(frozen=True, slots=True)
class Processor:
    """``used`` and ``unused`` are features of the processor that the build has code for or not.

    ``load`` is how many threads ran or waited in the last minute, None if nobody tells.
    """

    cores: int
    threads: int
    used: tuple[str, ...]
    unused: tuple[str, ...]
    load: float | None = None

    @property
    def advice(self) -> str | None:
        """What is wrong with the number of threads, and the flag to give; None if it is right."""
        if self.threads > self.cores:
            return f"more than {self.cores} cores, give -t {self.cores}"
        if self.load is None or self.load < max(1.0, _BUSY_SHARE * self.cores):
            return None
        free = max(1, self.cores - round(self.load))
        other = f" or give -t {free}" if free < self.threads else ""
        return f"the load is {self.load:.1f}, end other programs{other}"

    def as_json(self) -> dict[str, Any]:
        return {
            "cores": self.cores,
            "threads": self.threads,
            "threads_ok": self.advice is None,
            "advice": self.advice,
        }


def examine_processor(
    facts: Mapping[str, Any], system_info: str, requested_threads: int
) -> Processor:
    """From :func:`outrider.cli.bench.machine.machine_facts` and llama.cpp's own words."""
    built = set(re.findall(r"(\w+) = [1-9]", system_info))
    has = set(facts["cpu_features"])
    present = [(name, short) for name, flag, short in _FEATURES if flag in has]
    load = facts["load_average"]
    return Processor(
        cores=physical_cores(),
        threads=thread_count(requested_threads),
        used=tuple(short for name, short in present if name in built),
        unused=tuple(short for name, short in present if name not in built),
        load=load[0] if load else None,
    )


def feature_words(processor: Processor) -> str:
    """``AVX2 FMA, build uses both``; what it does not use is named."""
    used = [name for name in processor.used if name not in _IMPLIED]
    every = [*used, *processor.unused]
    if not every:
        return "no vector features known"
    words = " ".join(every)
    if processor.unused:
        return f"{words}, build lacks {' '.join(processor.unused)}"
    return f"{words}, build uses {'it' if len(used) == 1 else 'both' if len(used) == 2 else 'all'}"
