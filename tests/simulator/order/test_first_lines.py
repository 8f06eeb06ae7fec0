"""One line changed in a cluster: the first finding names that line, or the line that lacks something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_cta_pairs
from barrier_scripts import Ring
from changed_scripts import Marked, dropped, loaded, plain
from orders import ORDERS, run_in
from pair_scripts import PairProduct
from told_scripts import COLUMNS, ROWS, ToldRows


def rows() -> Any:
    x = np.arange(10 * ROWS * COLUMNS, dtype=np.float32).reshape(-1, COLUMNS)
    y = np.zeros((len(x) + 4, COLUMNS), np.float32)
    return (5, x, y), y, np.concatenate([x + 1, np.ones_like(y[:4])])


INPUTS = {PairProduct: test_cta_pairs.product, ToldRows: rows}
CHANGED = [
    dropped(ToldRows, "done", "the missing sync: self.sync() between {load} and {copy} of the next round"),
    Marked(ToldRows, (("wait", "(1)", "(2)"),), "copy_async_wait_group(2) at {wait} leaves all 2 groups in flight"),
    Marked(
        ToldRows, (("other", "1 - rank", "rank + 0"),),
        "phase 0 of told of CTA (0, 0, 0) ended with arrivals of that CTA alone at {tell}: their rank, or the count of"
        " 1 at {told}, is wrong",
    ),
    dropped(PairProduct, "room", "the missing wait: mbarrier.wait on empty[0] before {load a} of the next round"),
    Marked(
        PairProduct, (("room", "self", "if rank == 0: self"),),
        "warp 0 of CTA (0, 0, 0) waits for empty at {room}, and warp 0 of CTA (1, 0, 0) does not: the missing wait:"
        " mbarrier.wait on empty[0] before {load a}",
    ),
    Marked(PairProduct, (("row", "self.blockIdx.x", "(self.blockIdx.x // 2 * 2)"),), "each CTA executes that line"),
    Marked(
        PairProduct, (("end", "cluster.sync", "sync"),),
        "is used after it was freed for both CTAs of the pair; the missing sync: self.cluster.sync() after {load t}",
    ),
    Marked(
        PairProduct, (("rounds", "0, k,", "0, k + self.block_k,"),),
        "warp 1 of CTA (0, 0, 0) goes on in the loop of the wait at {wait}, and warp 0 of CTA (0, 0, 0) has left"
        " that of the arrival at {announce}: the two loops have to end after the same round",
    ),
]  # fmt: skip


@pytest.mark.slow
def test_the_kernel_is_silent_and_right() -> None:
    for order in ORDERS:
        args, output, expected = rows()
        assert run_in(order, ToldRows(), *args, target="sm_100a").findings == (), order
        np.testing.assert_array_equal(output, expected)


@pytest.mark.slow
@pytest.mark.parametrize("changed", CHANGED, ids=str)
def test_the_first_finding_names_what_was_changed(changed: Marked) -> None:
    args, _, _ = INPUTS[changed.script]()
    found = run_in(ORDERS[0], loaded(changed.text, changed.script), *args, target="sm_100a").findings
    assert changed.sentence() in plain(found[0]), changed.sentence()


@pytest.mark.parametrize("order", ORDERS[:2], ids=str)
def test_a_loader_that_has_left_its_loop_is_not_named_while_a_stage_of_the_ring_is_not_waited_for(order: Any) -> None:
    """The reader waits for stage 0 twice, in place of stage 1. The loader has filled both, as early as it could: the
    copy into stage 1 is in flight or complete."""
    at_stage_0 = Marked(Ring, (("wait", "full[slot], phase=turn", "full[0], phase=j & 1"),), "")
    x, y = np.zeros((2, 2 * 32, 64), np.float16)
    found = run_in(order, loaded(at_stage_0.text, Ring), 2, x, y).findings
    (stuck,) = (plain(each) for each in found if each.code == "deadlock")
    assert "waits at" in stuck and "for parity 1 of full[0]" in stuck and "the two loops" not in stuck
