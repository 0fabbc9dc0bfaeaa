"""The entry point. Nothing is imported outside ``main``: Ctrl-C is quiet from the first moment."""

from __future__ import annotations

import _thread
import sys


def main() -> int:
    """Run the program with the process's arguments and return its exit code."""
    sys.unraisablehook = _on_dropped
    try:
        from outrider.cli.program import run_program

        return run_program(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    finally:
        sys.unraisablehook = sys.__unraisablehook__
        # an interrupt inside code that is run from text, as dataclasses are made, is noted as one
        # that nobody caught, and would end the process by the signal; running any other forgets it
        exec("")


def _on_dropped(dropped: sys.UnraisableHookArgs) -> None:
    """A Ctrl-C that came where Python drops exceptions comes again.

    It drops them in a finalizer, in a callback of native code, and in one of a weak reference,
    which every import has.
    """
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_interrupt_again, ())
    else:
        sys.__unraisablehook__(dropped)


def _interrupt_again() -> None:
    import time

    from outrider.cli.interrupts import interrupt_main_thread

    time.sleep(0.01)  # until the main thread has left that place
    if sys.unraisablehook is _on_dropped:  # there is still something to end
        interrupt_main_thread()


if __name__ == "__main__":
    sys.exit(main())
