from __future__ import annotations

import signal
import threading

import pytest

from outrider.cli.interrupts import Interrupts


def test_the_first_signal_cancels_and_a_second_ctrl_c_interrupts() -> None:
    cancelled: list[None] = []
    with Interrupts(lambda: cancelled.append(None)) as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert (interrupts.exit_code, len(cancelled)) == (130, 1)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert len(cancelled) == 1


def test_termination_cancels_too() -> None:
    cancelled: list[None] = []
    with Interrupts(lambda: cancelled.append(None)) as interrupts:
        signal.raise_signal(signal.SIGTERM)
    assert (interrupts.exit_code, len(cancelled)) == (143, 1)


def test_without_something_to_cancel_ctrl_c_is_only_noted() -> None:
    terminate = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) is terminate
    assert interrupts.exit_code == 130


def test_the_former_handlers_come_back() -> None:
    former = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError), Interrupts(lambda: None):
        raise ValueError
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == former


def test_outside_the_main_thread_nothing_is_changed() -> None:
    codes: list[int | None] = []

    def enter() -> None:
        with Interrupts(lambda: None) as interrupts:
            codes.append(interrupts.exit_code)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert codes == [None]
