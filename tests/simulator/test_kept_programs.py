"""What is lowered is kept for as many programs as are built, and nothing of the others."""

from __future__ import annotations

import gc
import importlib
import linecache

import pytest
import torch

from blackwell_matmul import BlackwellMatmulV0, simulate

simulating = importlib.import_module("blackwell_matmul.simulator.simulate")
building = importlib.import_module("blackwell_matmul.frontend.build")


@pytest.mark.slow
def test_programs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (simulating, building):
        monkeypatch.setattr(module, "CACHED_PROGRAMS", 2)
        kept = "_lowered" if module is simulating else "_cache"
        monkeypatch.setattr(module, kept, type(getattr(module, kept))())
    gc.freeze()  # the collector is to walk through what this test makes, and through nothing older
    lowered = []
    for n in (8, 16, 24, 32):
        a, b, c = (torch.ones(rows, columns).half() for rows, columns in ((1, 16), (n, 16), (1, n)))
        simulate(BlackwellMatmulV0, 1, n, 16, a, b, c, workers=1, checks=False, trace=False)
        lowered.append(next(reversed(simulating._lowered.values())).main.__code__.co_filename)
    gc.collect()
    gc.unfreeze()
    assert len(simulating._lowered) == 2
    assert [file in linecache.cache for file in lowered] == [False, False, True, True]
