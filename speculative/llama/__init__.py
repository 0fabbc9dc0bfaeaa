"""Every llama.cpp symbol that is called, and nothing else of llama.cpp.

Thin wrappers with Python types. They translate, count and free; what llama.cpp would assert
on is checked by the callers (``model.py``, ``llama_runner.py``, ``draft_context.py``) before a
call is made, since a failed assert ends the interpreter.
"""

from outrider.speculative.llama.library import (
    ATTR_CONTROL,
    ATTR_UNKNOWN,
    CONTEXT_DEFAULT,
    CONTEXT_MTP,
    identity,
    last_error,
    library,
    supports_gpu,
    system_info,
)
from outrider.speculative.llama.native_context import NativeContext
from outrider.speculative.llama.native_model import NativeModel
from outrider.speculative.llama.stop_flag import StopFlag

__all__ = [
    "ATTR_CONTROL",
    "ATTR_UNKNOWN",
    "CONTEXT_DEFAULT",
    "CONTEXT_MTP",
    "NativeContext",
    "NativeModel",
    "StopFlag",
    "identity",
    "last_error",
    "library",
    "supports_gpu",
    "system_info",
]
