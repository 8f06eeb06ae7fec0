"""What must not be left behind when a CTA returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from async_scripts import StripStore, TmaLoad
from orders import ORDERS, faulty, finding, line_of, lines, run_in
from tensor_core_scripts import LastMma

from blackwell_matmul.simulator import Severity


def test_a_load_that_outlives_its_cta_is_unguaranteed() -> None:
    x, y = np.ones((40, 24), np.float32), np.zeros((16, 8), np.float32)
    for order in ORDERS:
        found = finding(run_in(order, TmaLoad([40, 24], [16, 8], [0, 0], wait=False), x, y), "in-flight-at-exit")
        assert found.severity is Severity.UNGUARANTEED
        assert lines(found)[0] == line_of(TmaLoad, "global_to_shared")
        assert "mbarrier.wait on full" in found.message


@pytest.mark.parametrize("flags", [{"wait": False, "last": False}, {"commit": False}])
def test_a_store_whose_source_ends_with_the_cta(flags: dict[str, Any]) -> None:
    """Nobody waited until TMA had read shared memory: it may read what another CTA puts there."""
    x, y = np.ones((32, 64), np.float16), np.zeros((32, 64), np.float16)
    run = faulty(StripStore(**flags), 1, x, y)
    found = finding(run, "in-flight-at-exit")
    assert found.severity is Severity.ERROR and lines(found)[0] == line_of(StripStore, "shared_to_global")
    assert np.isnan(y.astype(np.float32)).all()


def test_a_store_whose_source_was_read_may_outlive_its_cta() -> None:
    x, y = np.ones((64, 64), np.float16), np.zeros((64, 64), np.float16)
    for order in ORDERS:
        assert not run_in(order, StripStore(last=False), 2, x, y).findings
        assert (y == 2).all()


def test_a_barrier_that_nobody_waits_for() -> None:
    run = faulty(LastMma(wait=False), np.ones((128, 64), np.float16))
    found = [f for f in run.findings if f.code == "in-flight-at-exit"]
    assert {lines(f)[0] for f in found} == {line_of(LastMma, "tcgen05.mma"), line_of(LastMma, "tcgen05.commit")}
