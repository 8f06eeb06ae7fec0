"""Contenders that run anywhere, right and wrong in every way that matters. Each `make` gives one call."""

from __future__ import annotations

import os
import signal
import time

import torch

from blackwell_matmul.harness.calls.scaled_operands import dequantised
from blackwell_matmul.problem.problem import Problem


def right():
    def call(a, b, c):
        c.copy_(a @ b.T)

    return call


def own_output():
    return lambda a, b, c: a @ b.T


def scaled():
    """Right for operands of nvfp4."""

    def call(a, b, scale_a, scale_b, c):
        m, n, k = a.shape[0], b.shape[0], 2 * a.shape[1]
        wide = (dequantised(Problem(m, n, k, "nvfp4"), *each) for each in ((a, scale_a), (b, scale_b)))
        c.copy_(next(wide) @ next(wide).T)

    return call


def scaled_the_other_way():
    """Takes the scales of B for those of A."""
    call = scaled()
    return lambda a, b, scale_a, scale_b, c: call(a, b, scale_b, scale_a, c)


def wrong():
    def call(a, b, c):
        c.copy_(a @ b.T)
        c[-1, -1] += 1

    return call


def half():
    def call(a, b, c):
        columns = c.shape[1] // 2
        c[:, :columns].copy_((a @ b.T)[:, :columns])

    return call


def outside():
    def call(a, b, c):
        torch.as_strided(c, (c.numel() + 1,), (1,), c.storage_offset()).fill_(0)
        c.copy_(a @ b.T)

    return call


def hangs():
    return lambda a, b, c: time.sleep(1000)


def dies():
    return lambda a, b, c: os.kill(os.getpid(), signal.SIGSEGV)


def leaves():
    return lambda a, b, c: os._exit(3)


def raises():
    def call(a, b, c):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nsecond line")

    return call


def hangs_later():
    """Right the first time; it hangs when it is timed."""
    calls = []

    def call(a, b, c):
        calls.append(1)
        if len(calls) > 1:
            time.sleep(1000)
        c.copy_(a @ b.T)

    return call


def differs_sometimes():
    calls = []

    def call(a, b, c):
        calls.append(1)
        c.copy_(a @ b.T)
        if len(calls) % 7 == 0:
            c[0, 0] = -c[0, 0] + 1

    return call


def chatty():
    def call(a, b, c):
        print("a library says something", flush=True)
        os.system("echo and so does its child")
        c.copy_(a @ b.T)

    return call


nothing = None
