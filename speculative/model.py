"""Model: the weights and the vocabulary of one GGUF file, shared by every context on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from outrider.speculative.cache_size import cell_bytes
from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.llama import NativeModel
from outrider.speculative.load_guard import check_loadable, check_target
from outrider.speculative.settings import ModelSettings
from outrider.speculative.vocabulary import Vocabulary

# a plain step reads the model once and the cache once, but the cache less well: so much longer a
# byte (measured on a CPU, 4-bit weights and 16-bit cache)
_READING_CELLS = 1.7


class Model:
    """A loaded model. Checked in Python first, so that llama.cpp never sees a broken file."""

    def __init__(
        self,
        settings: ModelSettings,
        role: Literal["target", "drafter"],
        progress: Callable[[float], bool] | None = None,
        *,
        load_heads: bool = False,
    ) -> None:
        """Load ``settings.path``; ``load_heads`` includes NextN heads.

        Raises:
            InputError: missing, truncated, not GGUF, an unknown architecture, no text model.
            EngineError: llama.cpp refused the file.
        """
        self.path: Path = settings.path
        file = GgufFile.open(settings.path)
        check_target(file) if role == "target" else check_loadable(file)
        self.name = file.text("general.name") or self.path.stem
        layers = settings.gpu_layers
        self.native = NativeModel(
            settings.path,
            layers if isinstance(layers, int) else None,
            progress,
            load_heads=load_heads,
        )
        if role == "target" and not self.native.is_decoder:
            self.native.close()
            raise InputError(f"{settings.path}: this model does not generate text")
        self.vocabulary = Vocabulary(self.native)
        # what a cached token adds to a row, in plain steps, at first
        cell = cell_bytes(file, settings.cache_type_k, settings.cache_type_v)
        self.cell_cost = _READING_CELLS * cell / file.file_size

    @property
    def n_ctx_train(self) -> int:
        return self.native.n_ctx_train

    def drafting_length(self, target: Model, n_ctx: int) -> int:
        """Tokens a text may have for this model to draft for ``target`` in a context of ``n_ctx``.

        One that was trained on shorter texts than the target stops where they ended.
        """
        trained = self.n_ctx_train
        return min(trained, n_ctx) if trained < target.n_ctx_train else n_ctx

    @property
    def chat_template(self) -> str | None:
        return self.native.chat_template

    def close(self) -> None:
        self.native.close()
