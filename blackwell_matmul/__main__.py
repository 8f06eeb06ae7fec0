"""`python -m blackwell_matmul`: the command line, also without its script on the PATH.

Ctrl-C during the imports ends it with the usual sentence and exit code.
"""

import os
import signal
import sys
from contextlib import suppress


def main() -> int:
    """Run this process's command line and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from blackwell_matmul.base.processes import collect_seldom
    from blackwell_matmul.cli import main as run_line

    collect_seldom()

    return run_line()


def _leave(*_: object) -> None:
    """Exit at once with the message of `cli.main`; an interrupted import would print a traceback."""
    with suppress(OSError):
        os.write(2, b"error: interrupted.\n")
        if "--json" in sys.argv:
            os.write(1, b'{"error": "interrupted."}\n')
    os._exit(128 + signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
