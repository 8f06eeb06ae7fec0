"""CTA pairs: values, tensor memory that two CTAs share out, mapped addresses, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tilus
from clean import clean, only
from orders import ORDERS, faulty, finding, line_of, lines, run_in, silent
from pair_scripts import MasksOfRank, PairCopies, PairMemory, PairProduct, WholeMapped

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.simulator import Run, Severity
from blackwell_matmul.simulator.listener import Listener


def operands(m: int, n: int, k: int, dtype: Any = np.float16) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Small integers: every product and sum is exact."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (m, k)), rng.integers(-3, 4, (n, k))
    return a.astype(dtype), b.astype(dtype), (a @ b.T).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name, numpy_type", [("float16", np.float16), ("float8_e4m3", ml_dtypes.float8_e4m3fn)])
@pytest.mark.parametrize("shape", [(256, 32, 64), (130, 8, 48), (513, 72, 32)])
def test_a_product_by_pairs(name: str, numpy_type: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, expected = operands(m, n, k, numpy_type)
    c = np.zeros((m, n), np.float32)
    silent(PairProduct(dtype=getattr(tilus, name)), (m, n, k, a, b, c), c, expected)


def test_a_mask_may_depend_on_the_rank() -> None:
    x = np.random.default_rng(0).integers(-3, 4, (128, 16)).astype(np.float16)
    y = np.zeros((256, 128), np.float32)
    silent(MasksOfRank(), (x, y), y, np.tile(x.astype(np.float32) @ x.T.astype(np.float32), (2, 1)))


@pytest.mark.parametrize("block_n", [16, 48, 256])
def test_each_cta_brings_half_of_b(block_n: int) -> None:
    a, b, expected = operands(256, block_n, 32)
    c = np.zeros((256, block_n), np.float32)
    clean(PairProduct(block_n=block_n), 256, block_n, 32, a, b, c)
    np.testing.assert_array_equal(c, expected)


def test_an_accumulator_of_halves_is_refused() -> None:
    a, b, _ = operands(256, 32, 64)
    c = np.zeros((256, 32), np.float16)
    with pytest.raises(CompileError, match=r"a column of tensor memory for each float16.* accumulator of float32"):
        clean(PairProduct(total=tilus.float16), 256, 32, 64, a, b, c)


def test_values_that_are_computed_again_are_those_of_a_run_in_full() -> None:
    rng = np.random.default_rng(1)
    m, n, k = 1100, 136, 104
    a, b = (rng.standard_normal((extent, k)).astype(np.float16) for extent in (m, n))
    again, full = np.zeros((m, n), np.float32), np.zeros((m, n), np.float32)
    clean(PairProduct(), m, n, k, a, b, again)
    clean(PairProduct(), m, n, k, a, b, full, listeners=[Listener()])
    np.testing.assert_array_equal(again, full)


# tensor memory


def tensor_memory(fault: str = "") -> Run:
    y = np.zeros((256, 32), np.int32)
    run = run_in(ORDERS[0], PairMemory(fault), y)
    if run.ok:
        expected = [np.arange(4096).reshape(128, 32) + 1000 * rank for rank in range(2)]
        np.testing.assert_array_equal(y, np.concatenate(expected))
    return run


def test_both_ctas_allocate_and_free() -> None:
    assert not tensor_memory().findings


def test_the_peer_may_not_have_started() -> None:
    found = only(tensor_memory("no sync at the start"), "peer-not-started")
    assert found.severity is Severity.UNGUARANTEED and lines(found)[0] == line_of(PairMemory, "# alloc")


def test_a_peer_that_does_not_allocate() -> None:
    found = finding(tensor_memory("one CTA allocates"), "deadlock")
    assert "of CTA (1, 0, 0) at the allocation of t_0" in found.message
    assert lines(found)[0] == line_of(PairMemory, "# alone")


def test_the_right_to_allocate_is_given_up_by_both() -> None:
    found = finding(tensor_memory("gives up before"), "tensor-memory-permit")
    assert lines(found) == (line_of(PairMemory, "# alloc"), line_of(PairMemory, "# permit")) and found.count == 2


def test_more_columns_than_there_are() -> None:
    found = finding(tensor_memory("too much"), "tensor-memory-exhausted")
    assert lines(found)[0] == line_of(PairMemory, "# more") and "asks for 32" in found.message


def test_a_cta_without_a_peer() -> None:
    found = finding(tensor_memory("no cluster"), "no-such-cta")
    assert "has no peer: the cluster has 1 CTA; cluster_blocks = 2 works" in found.message


def test_freed_twice_does_not_compile() -> None:
    with pytest.raises(CompileError):
        tensor_memory("freed twice")


@pytest.mark.parametrize("fault, mark", [("copies", "# copy"), ("commits for one", "# commit")])
def test_one_group_in_all_of_a_kernel(fault: str, mark: str) -> None:
    found = finding(tensor_memory(fault), "mixed-cta-groups")
    assert lines(found) == (line_of(PairMemory, mark), line_of(PairMemory, "# alloc"))
    assert "PTX wants one value for all of a kernel" in found.message


# deadlocks


def notes_of(fault: str) -> list[str]:
    a, b, _ = operands(256, 32, 160)
    run = run_in(ORDERS[0], PairProduct(fault), 256, 32, 160, a, b, np.zeros((256, 32), np.float32))
    return list(finding(run, "deadlock").notes)


def test_a_commit_that_leaves_a_cta_out_is_named() -> None:
    notes = notes_of("commit tells the even CTA only")
    assert "no line of the kernel makes arrivals on empty[0] of CTA (1, 0, 0)" in notes
    assert any(
        "signals those in the mask 0b1 alone; with multicast_mask=0b11 it signals every CTA's" in n for n in notes
    )
    assert any("signals its own CTA's barrier alone" in note for note in notes_of("done tells the even CTA only"))


def test_who_brings_bytes_to_a_mapped_barrier() -> None:
    notes = notes_of("commit tells the even CTA only")
    (bytes_for,) = [note for note in notes if note.startswith("bytes for full[0] of CTA (0, 0, 0)")]
    assert "by warp 0 of CTA (0, 0, 0), warp 0 of CTA (1, 0, 0), which wait themselves" in bytes_for


# mapped addresses


def tiles() -> tuple[np.ndarray, np.ndarray]:
    return (np.arange(32 * 64) % 512).reshape(32, 64).astype(np.float16), np.zeros((64, 64), np.float16)


def test_a_multicast_load_tells_the_ctas_of_one_parity() -> None:
    x, y = tiles()
    silent(PairCopies(), (x, y), y, np.concatenate([x, x]))


def test_a_load_can_tell_its_own_pair_alone() -> None:
    found = finding(faulty(PairCopies(target=2), *tiles()), "remote-mbarrier")
    assert "a load for the pair of CTA (1, 0, 0) signals full of CTA (2, 0, 0)" in found.message
    assert lines(found)[0] == line_of(PairCopies, "# load")


def test_a_load_for_one_cta_tells_that_one() -> None:
    found = finding(faulty(PairCopies(cta_group=1), *tiles()), "remote-mbarrier")
    assert lines(found)[0] == line_of(PairCopies, "# alone")


def test_a_wait_is_on_a_barrier_of_its_own() -> None:
    found = finding(faulty(PairCopies(waits_at=1), *tiles()), "remote-mbarrier")
    assert "full of CTA (1, 0, 0) is used by CTA (0, 0, 0)" in found.message
    assert lines(found)[0] == line_of(PairCopies, "# wait")


def test_a_rank_that_the_cluster_does_not_have() -> None:
    found = finding(faulty(PairCopies(target=4), *tiles()), "no-such-cta")
    assert "map_shared_addr names CTA rank 4; the cluster has 4 CTAs" in found.message


def test_addresses_that_are_mapped_together() -> None:
    x, y = tiles()
    silent(WholeMapped(), (x, y[:32]), y[:32], x)
