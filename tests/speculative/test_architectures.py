"""The list of architectures against the library that is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools.gguf_writer import write

from outrider.speculative.architectures import (
    CHAINED_HEADS,
    KNOWN_ARCHITECTURES,
    NOT_WRITERS,
    READABLE_LAYERS,
    RUNNABLE_HEADS,
)

# In a process of its own: what llama.cpp makes of each file is read from its log.
PROBE = """
import ctypes, json, sys
import llama_cpp

lines = []

@llama_cpp.llama_log_callback
def keep(level, text, data):
    lines.append(text.decode())

llama_cpp.llama_log_set(keep, ctypes.c_void_p(0))
unknown = []
for path in sys.argv[1:]:
    lines.clear()
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    assert not llama_cpp.llama_model_load_from_file(path.encode(), parameters)
    if "unknown model architecture" in "".join(lines):
        unknown.append(path)
print(json.dumps(unknown))
"""


def test_the_installed_library_knows_each_of_them(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    names = [*sorted(KNOWN_ARCHITECTURES), "quipu"]
    paths = [
        str(write(tmp_path / f"{name}.gguf", {"general.architecture": name}, {})) for name in names
    ]
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, *paths], capture_output=True, text=True, check=True
    )
    assert json.loads(probe.stdout) == [paths[-1]]


def test_the_smaller_lists_are_parts_of_the_large_one() -> None:
    assert READABLE_LAYERS < KNOWN_ARCHITECTURES
    assert NOT_WRITERS < KNOWN_ARCHITECTURES
    assert not READABLE_LAYERS & NOT_WRITERS
    assert CHAINED_HEADS < RUNNABLE_HEADS < KNOWN_ARCHITECTURES
