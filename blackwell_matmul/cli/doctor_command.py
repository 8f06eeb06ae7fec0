"""`doctor`: diagnose the installation."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

from blackwell_matmul.cli.options import Json
from blackwell_matmul.cli.output import finish
from blackwell_matmul.cli.views.doctor_view import diagnosis, diagnosis_record


def doctor(as_json: Json = False) -> None:
    """Report this machine's packages, GPUs and their features, and problems with their remedies.

    Exit code 0: no problem, also without a GPU. 1: a problem. 2: could not run.

    Examples:

    `blackwell-matmul doctor`

    `blackwell-matmul doctor --json`
    """
    with redirect_stdout(sys.stderr):  # libraries may print when they are imported
        from blackwell_matmul.cli.doctor import diagnosis_lines, facts

        found = facts.gather()
        told = diagnosis_lines.diagnose(found)
    well = not any(each.status == "problem" for each in told)
    finish(as_json, lambda: diagnosis_record(found, told), lambda: diagnosis(told), well)
