"""Make a GGUF file of another quantisation from one that is quantised already.

    python tests/benchmarks/requantise.py IN.gguf OUT.gguf --type q4_0

What the first quantisation lost stays lost: good enough to measure speed, not quality. As with
llama-quantize the token embeddings may get a finer type than the rest; what was written is shown.
"""

from __future__ import annotations

import argparse
import ctypes
from collections import Counter
from pathlib import Path

import llama_cpp

from outrider.speculative.gguf_file import GgufFile

TYPES = {
    "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
    "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "q4_k_m": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "f16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--type", choices=TYPES, default="q4_0")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    requantise(arguments.source, arguments.result, TYPES[arguments.type], arguments.threads)
    for path in (arguments.source, arguments.result):
        file = GgufFile.open(path)
        counts = Counter(tensor.type_name for tensor in file.tensors.values())
        print(f"{path.name}: {file.file_size / 1e6:.1f} MB, tensors {dict(counts.most_common())}")


def requantise(source: Path, result: Path, file_type: int, threads: int) -> None:
    """Write ``result``; a file that exists is left alone."""
    if result.exists():
        raise SystemExit(f"{result}: exists; remove it or give another name")
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = file_type
    parameters.nthread = threads
    parameters.allow_requantize = True
    code = llama_cpp.llama_model_quantize(bytes(source), bytes(result), ctypes.byref(parameters))
    if code != 0:
        result.unlink(missing_ok=True)
        raise SystemExit(f"{source}: llama.cpp could not requantise it (code {code})")


if __name__ == "__main__":
    main()
