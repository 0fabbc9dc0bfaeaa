from __future__ import annotations

import ctypes
import os
import select
import signal
import threading

import pytest

from outrider.cli.interrupts import Interrupts, interrupts_held


def test_the_first_signal_cancels_and_a_second_ctrl_c_interrupts() -> None:
    cancelled: list[None] = []
    with Interrupts(lambda: cancelled.append(None)) as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert (interrupts.exit_code, bool(cancelled)) == (130, True)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_termination_cancels_too() -> None:
    cancelled: list[None] = []
    with Interrupts(lambda: cancelled.append(None)) as interrupts:
        signal.raise_signal(signal.SIGTERM)
    assert (interrupts.exit_code, bool(cancelled)) == (143, True)


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


def test_a_signal_is_heard_while_the_main_thread_is_in_native_code() -> None:
    libc = ctypes.CDLL(None)
    reader, writer = os.pipe()
    waiting = (ctypes.c_int * 2)(reader, select.POLLIN)

    def interrupt() -> None:
        # a call that a signal of its own thread ends would prove nothing
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    def end_wait() -> None:
        os.write(writer, b"x")

    with Interrupts(end_wait) as interrupts:
        threading.Thread(target=interrupt).start()
        assert libc.poll(waiting, 1, 30_000) == 1
    assert interrupts.exit_code == 130
    os.close(reader)
    os.close(writer)


def test_ctrl_c_waits_for_what_must_be_done_whole() -> None:
    done: list[str] = []

    def begin_and_end() -> None:
        with interrupts_held():
            done.append("begun")
            signal.raise_signal(signal.SIGINT)
            done.append("ended")

    with pytest.raises(KeyboardInterrupt):
        begin_and_end()
    assert done == ["begun", "ended"]
    with interrupts_held():
        done.clear()  # nothing came, nothing is raised
