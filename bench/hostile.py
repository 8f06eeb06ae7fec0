"""A hostile user with patience: tests/test_hostile.py with thousands of cases, and new ones in every run.

    python bench/hostile.py                       # 2000 cases for each function
    python bench/hostile.py 500 -k "simulate or run_script"

The first argument is the number of cases; the others go to pytest. A failing case is printed as the call that fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests" / "base" / "test_hostile.py"
CASES = "2000"


def main(argv: list[str]) -> int:
    number, options = (argv[0], argv[1:]) if argv and argv[0].isdigit() else (CASES, argv)
    command = [sys.executable, "-m", "pytest", str(TESTS), "--tb=short", "--durations=5", *options]
    return subprocess.run(command, env={**os.environ, "HOSTILE_EXAMPLES": number}).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
