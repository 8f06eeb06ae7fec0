"""The room adds to tilus and replaces nothing in it."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMPARE = """
import sys
from blackwell_matmul.frontend.faults.tilus_compat import import_tilus
import_tilus()
import blackwell_matmul.frontend.recording, tilus.backends.emitters, tilus.ir.layout.inference.order

def parts():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "tilus" or module is None:
            continue
        for key, value in list(vars(module).items()):
            found[name, key] = value
            inside = dict(vars(value)) if isinstance(value, type) else value if isinstance(value, dict) else {}
            for part, each in list(inside.items()):
                found[name, key, str(part)] = each
                if isinstance(each, dict):
                    found.update({(name, key, str(part), str(p)): e for p, e in list(each.items())})
    return found

before = parts()
import blackwell_matmul.lang
after = parts()
changed = [key for key, value in before.items() if key not in after or after[key] is not value]
added = [key for key in after if key not in before and "lang" in str(getattr(after[key], "__module__", ""))]
assert len(before) > 5000, len(before)
assert not changed, changed[:5]
assert added
print(len(before), "parts of tilus unchanged")
"""


@pytest.mark.process
def test_nothing_of_tilus_is_replaced() -> None:
    result = subprocess.run([sys.executable, "-c", COMPARE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "unchanged" in result.stdout
