"""The command line: `python -m torch2carton` and the script `torch2carton`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line with the arguments of the process, and ends the process with its exit status."""
    import os
    import signal

    from . import _native

    # The program handles Ctrl-C itself where an unfinished output has to be removed; elsewhere the signal ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    status = _native.main(["torch2carton", *sys.argv[1:]])
    # The program has flushed its output, and nothing of Python's is left to do.
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
