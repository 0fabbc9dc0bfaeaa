"""AnswerPool: several sessions answered together, one decode a round for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

from outrider.speculative.errors import EngineError
from outrider.speculative.events import FinishEvent, GenerationResult
from outrider.speculative.generation import Generation, Slot
from outrider.speculative.rounds import Rounds
from outrider.speculative.scheduler import Scheduler
from outrider.speculative.session import Session
from outrider.speculative.settings import GenerationSettings


@dataclass(slots=True, eq=False)
class _Ticket:
    """One answer that somebody waits for."""

    session: Session
    prompt_ids: Sequence[int]
    settings: GenerationSettings
    keep_cache: bool
    done: threading.Event = field(default_factory=threading.Event)
    result: GenerationResult | None = None
    error: BaseException | None = None


class AnswerPool:
    """Any thread may ask; a thread of its own makes every call of the model.

    Answers join the running ones at the next round and leave when they end.
    """

    def __init__(self, scheduler: Callable[[], Scheduler], slots: Sequence[Slot] = ()) -> None:
        self._scheduler = scheduler
        self._slots = slots
        self._arrived: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
        self._thread.start()

    def answer(
        self,
        session: Session,
        prompt_ids: Sequence[int],
        settings: GenerationSettings,
        *,
        keep_cache: bool = True,
    ) -> GenerationResult:
        """Wait for one answer; a session answers one prompt at a time.

        Raises:
            InputError: the prompt cannot be answered.
        """
        ticket = _Ticket(session, prompt_ids, settings, keep_cache)
        self._arrived.put(ticket)
        ticket.done.wait()
        if ticket.error is not None:
            raise ticket.error
        assert ticket.result is not None
        return ticket.result

    def close(self) -> None:
        """Finish the running answers and end the thread."""
        self._arrived.put(None)
        self._thread.join()

    def _run(self) -> None:
        tickets: dict[Generation, _Ticket] = {}
        rounds, is_closed = Rounds(self._scheduler, self._slots), False
        while tickets or not is_closed:
            while not is_closed and (not tickets or not self._arrived.empty()):
                ticket = self._arrived.get()
                if ticket is None:
                    is_closed = True
                elif (generation := _begun(ticket)) is not None:
                    tickets[generation] = ticket
                    rounds.join(generation)
            for generation, events in rounds.advance() if tickets else ():
                for event in events:
                    if isinstance(event, FinishEvent):
                        ticket = tickets.pop(generation)
                        ticket.result = event.result
                        ticket.done.set()


def _begun(ticket: _Ticket) -> Generation | None:
    """The generation of a ticket; None if it cannot begin, which the ticket then says."""
    try:
        if not ticket.keep_cache:
            ticket.session.reset()
        generation = ticket.session.begin(ticket.prompt_ids, ticket.settings)
    except EngineError as error:
        ticket.error = error
        ticket.done.set()
        return None
    return generation
