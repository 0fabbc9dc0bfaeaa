"""Rounds: answers that are written together, one decode of the target a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.speculative.errors import CacheFullError, DecodeStoppedError, EngineError
from outrider.speculative.events import Event
from outrider.speculative.generation import Generation, Slot
from outrider.speculative.scheduler import Scheduler
from outrider.speculative.token_sequence import common_prefix_length

Told = list[tuple[Generation, list[Event]]]

_WORTH_WAITING = 64  # tokens that another answer is about to read


class Rounds:
    """Every answer goes through here; ``chat`` and ``run`` are the case of one at a time.

    All share one cache. When it is full, what slots without an answer keep of former texts is
    dropped first. Then the youngest answer is *parked*: its part of the cache is given up, and
    read again as soon as another answer has ended. Its tokens, its text and the uniforms it is
    drawn with stay, so it goes on as if nothing had been.
    """

    def __init__(self, scheduler: Callable[[], Scheduler], slots: Sequence[Slot] = ()) -> None:
        """``slots`` are all of the context, those without an answer too; more may come.

        ``scheduler`` is asked anew in each round: settings change.
        """
        self._scheduler = scheduler
        self._slots = slots
        self._running: list[Generation] = []  # the oldest first
        self._parked: list[Generation] = []
        # who waits for whom to have read how much
        self._waiting: dict[Generation, tuple[Generation, int]] = {}

    def close(self) -> None:
        """Break off what still runs; every slot is left consistent. To be called in the end."""
        for generation in (*self._running, *self._parked):
            self._scheduler().end(generation)
        self._running.clear()
        self._parked.clear()
        self._waiting.clear()

    def join(self, generation: Generation) -> None:
        """From the next round on, or when one that reads the same beginning has read it."""
        if generation.settings.predict == 0:
            generation.finish("length")
        if self._scheduler().runner.can_share:
            reading = [one for one in self._running if one.is_reading]
            common = {one: common_prefix_length(one.reading, generation.reading) for one in reading}
            first = max(common, key=lambda one: common[one], default=None)
            if first and common[first] - generation.slot.num_read >= _WORTH_WAITING:
                self._waiting[generation] = first, common[first]
        self._running.append(generation)

    @property
    def num_running(self) -> int:
        """Answers that have not ended, parked ones included."""
        return len(self._running) + len(self._parked)

    @property
    def num_parked(self) -> int:
        return len(self._parked)

    def advance(self) -> Told:
        """One round: what each answer has to tell; a FinishEvent is its last."""
        if self._parked or self._waiting:
            over = [one for one in self._parked if one.is_cancelled]
            for generation in over:
                generation.finish("cancelled")
            if over:
                return self._ended([], over)
            if self._parked and not self._running:
                self._resume()
            self._let_in()
        active = []
        for generation in self._running:
            if generation.is_cancelled:
                generation.finish("cancelled")
            if generation.finish_reason is None and generation not in self._waiting:
                active.append(generation)
        told = self._round(active)
        over = [one for one in self._running if one.finish_reason is not None]
        return self._ended(told, over) if over else told

    def _let_in(self) -> None:
        """Those who wait for something that has come, or will not."""
        for generation, (first, length) in list(self._waiting.items()):
            comes = first in self._running and first.finish_reason is None
            is_there = first.slot.num_read >= min(length, len(first.reading) - 1)
            if generation.finish_reason is None and comes and not is_there:
                continue
            del self._waiting[generation]
            self._scheduler().resume(generation, self._others(generation))

    def _round(self, active: list[Generation]) -> Told:
        """Decode; make room for as long as the cache is full."""
        while active:
            try:
                told = self._scheduler().round(active)
                return list(zip(active, told, strict=True))
            except CacheFullError as error:
                if self._drop_idle():
                    continue
                if len(active) > 1:
                    self._park(active.pop())
                    continue
                active[0].finish("error", ("cache_full", str(error)))
            except DecodeStoppedError:
                for generation in active:
                    generation.finish("cancelled")
            except EngineError as error:
                for generation in active:
                    generation.finish("error", ("decode_failed", str(error)))
            break
        return []

    def _ended(self, told: Told, over: Sequence[Generation]) -> Told:
        """What was told, with the last event of those that are over; who waits goes on."""
        events = {one: list[Event]() for one in over} | dict(told)
        num_freed = 0
        for generation in over:
            self._waiting.pop(generation, None)
            self._scheduler().end(generation)
            if generation in self._parked:
                self._parked.remove(generation)
            else:
                self._running.remove(generation)
                num_freed += 1
            events[generation] = [*events[generation], generation.finish_event()]
        for _ in range(min(num_freed, len(self._parked))):
            self._resume()
        return list(events.items())

    def _drop_idle(self) -> bool:
        """Empty the slots that no answer is written on; False if they are."""
        busy = {one.slot.seq_id for one in (*self._running, *self._parked)}
        idle = [slot for slot in self._slots if slot.seq_id not in busy and slot.num_read]
        for slot in idle:
            self._scheduler().forget(slot)
        return bool(idle)

    def _park(self, generation: Generation) -> None:
        self._running.remove(generation)
        self._parked.append(generation)
        self._scheduler().park(generation)

    def _resume(self) -> None:
        """Go on with the oldest of the parked ones."""
        generation = min(self._parked, key=lambda one: one.started)
        self._parked.remove(generation)
        self._scheduler().resume(generation, self._others(generation))
        self._running.append(generation)
        self._running.sort(key=lambda one: one.started)

    def _others(self, generation: Generation) -> list[Slot]:
        """Whose cache may have what it is to read."""
        return [slot for slot in self._slots if slot is not generation.slot]
