"""Trials that need no GPU."""

from __future__ import annotations

import os
import time

from blackwell_matmul.base.errors import UnsupportedError


def tells(step, word):
    step("reading")
    return {"word": word, "variable": os.environ.get("A_SWITCH", "")}


def leaves(step):
    step("leaving")
    os._exit(3)


def hangs(step):
    step("hanging")
    time.sleep(600)


def refuses(step):
    raise UnsupportedError("there is nothing here.")
