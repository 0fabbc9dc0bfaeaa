"""ModelStore: each file is loaded once, however many contexts run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from outrider.speculative.llama import StopFlag
from outrider.speculative.model import Model
from outrider.speculative.settings import ModelSettings

Progress = Callable[[str, float], bool | None]
"""Told (stage, 0..1); False stops loading."""
Role = Literal["target", "drafter"]


class ModelStore:
    """The loaded models by file and GPU layers; ``stop`` breaks off what they decode."""

    def __init__(self, progress: Progress) -> None:
        self.stop = StopFlag()
        self._progress = progress
        self._models: dict[tuple[object, ...], Model] = {}

    def get(self, settings: ModelSettings, role: Role, *, load_heads: bool = False) -> Model:
        """The model of ``settings``, loaded if it is not yet.

        Raises:
            InputError: the file is not what ``role`` needs.
            EngineError: llama.cpp refused it.
        """
        key = _key(settings)
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = Model(
                settings, role, self._report(role), load_heads=load_heads
            )
            model.native.stop = self.stop
        return model

    def keep_only(self, wanted: Iterable[ModelSettings]) -> None:
        """Free the models of all other settings."""
        kept = {_key(settings) for settings in wanted}
        for key in self._models.keys() - kept:
            self._models.pop(key).close()

    def close(self) -> None:
        self.keep_only(())

    def _report(self, role: Role) -> Callable[[float], bool]:
        def report(fraction: float) -> bool:
            return self._progress(role, fraction) is not False

        return report


def _key(settings: ModelSettings) -> tuple[object, ...]:
    return settings.path.resolve(), settings.gpu_layers
