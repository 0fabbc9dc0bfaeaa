"""Whether this processor adds in the order of the one on which fixtures were recorded."""

from __future__ import annotations

from outrider.speculative.llama import system_info


def is_recording_processor() -> bool:
    """True if logits are bit for bit those that were recorded: with AVX-512.

    Without it F16 models differ in the second decimal of a logit, between batch shapes too.
    """
    return "AVX512 = 1" in system_info()
