"""The entry point. Nothing is imported outside ``main``: Ctrl-C is quiet from the first moment."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the program with the process's arguments and return its exit code."""
    try:
        from outrider.cli.program import run_program

        return run_program(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    finally:
        # an interrupt inside code that is run from text, as dataclasses are made, is noted as one
        # that nobody caught, and would end the process by the signal; running any other forgets it
        exec("")


if __name__ == "__main__":
    sys.exit(main())
