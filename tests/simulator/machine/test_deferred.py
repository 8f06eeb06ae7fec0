"""What is put off gives what doing it at once gives: values, bits, findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tilus
import torch
from orders import ORDERS, faults, run_in
from tensor_core_scripts import Product

from blackwell_matmul.kernels import rung
from blackwell_matmul.simulator.machine import global_memory
from blackwell_matmul.simulator.machine.deferred import Patch, SharedStorage, TensorStorage, tiling
from blackwell_matmul.simulator.machine.memory import Box, View
from blackwell_matmul.simulator.order.across_ctas import tiles
from blackwell_matmul.simulator.types import element_by_name

ALWAYS, NEVER = 0, 2**62
HALF, FLOAT = element_by_name("float16", 16), element_by_name("float32", 32)


def numbers(rows: int, columns: int, seed: int) -> torch.Tensor:
    """Small integers: every order of summation gives the same."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-4, 5, (rows, columns))).half()


WHOLE, ODD = (256, 256, 192), (129, 136, 200)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "m", "n", "k"),
    [
        *((name, *sizes) for name in ("v0", "v1", "v2", "g0") for sizes in (WHOLE, ODD)),
        ("blackwell", *ODD),
        ("hopper", *ODD),
    ],
)
def test_a_rung_computes_the_same(name: str, m: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = numbers(m, k, 0), numbers(n, k, 1)
    want = (a.float() @ b.float().T).half()
    for pays in (ALWAYS, NEVER):
        monkeypatch.setattr(global_memory, "IMAGE_PAYS_ELEMENTS", pays)
        for order in ORDERS:
            c = torch.full((m, n), float("nan"), dtype=torch.float16)
            run = run_in(order, rung(name), m, n, k, a, b, c, target=rung(name).target)
            assert not run.findings and torch.equal(c, want), (pays, order)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v0", "v1", "v2", "blackwell", "g0"])
def test_each_order_gives_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_memory, "IMAGE_PAYS_ELEMENTS", ALWAYS)
    m, n, k = 256, 200, 328
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    results = []
    for order in ORDERS:
        results.append(torch.full((m, n), float("nan"), dtype=torch.float16))
        run_in(order, rung(name), m, n, k, a, b, results[-1], target=rung(name).target)
    assert all(torch.equal(c, results[0]) for c in results)


MUTANTS: list[dict[str, Any]] = [
    {}, {"wait_tma": False}, {"wait_mma": False}, {"wait_last": False}, {"clear": False}, {"early": True},
    {"other_warp": True}, {"wait_load": False},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("flags", MUTANTS, ids=str)
def test_faults_and_their_wrong_numbers_are_the_same(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = numbers(128, 96, 2).numpy(), numbers(16, 96, 3).numpy()
    for order in ORDERS:
        seen = []
        for pays in (ALWAYS, NEVER):
            monkeypatch.setattr(global_memory, "IMAGE_PAYS_ELEMENTS", pays)
            d = np.zeros((128, 16), np.float32)
            run = run_in(order, Product(tilus.float16, tilus.float32, **flags), 3, a, b, d)
            seen.append((faults(run), d))
        assert seen[0][0] == seen[1][0], order
        np.testing.assert_array_equal(seen[0][1], seen[1][1], err_msg=str(order))


# histories of one shared tensor and one accumulator, against numpy


def views(storage: SharedStorage) -> list[View]:
    root = storage.root
    stages = [root.slice((stage, 0, 0), (1, 2), (8, 8)) for stage in range(2)]
    quarters = [s.slice((row, 0), (0, 1), (4, 8)) for s in stages for row in (0, 4)]
    odd = [stages[0].slice((2, 2), (0, 1), (4, 4)), stages[1].slice((0, 4), (0, 1), (8, 4))]
    halves = [root.reshape((2, 2, 4, 8)).slice((stage, 1, 0, 0), (2, 3), (4, 8)) for stage in range(2)]
    return [*stages, *quarters, *odd, *halves, stages[0].permute((1, 0)), stages[1].reshape((4, 16))]


def some_patch(images: np.ndarray, spans: Box, which: int) -> Patch:
    """Of one of two images, of which the first is also seen by itself."""
    batch = which % 2
    return Patch(images[0], spans, (0, 1)) if which == 2 else Patch(images, ((batch, batch + 1), *spans), (1, 2))


@pytest.mark.parametrize("seed", range(40))
def test_histories(seed: int) -> None:
    random = np.random.default_rng(seed)
    images = random.integers(-4, 5, (2, 32, 64)).astype(np.float32)
    storage = SharedStorage("s", HALF, np.zeros((2, 8, 8), np.float32))
    memory = TensorStorage(FLOAT, np.zeros((16, 16), np.float32))
    plain, cells = np.zeros((2, 8, 8), np.float32), np.zeros((16, 16), np.float32)
    mine, theirs = views(storage), views(SharedStorage("p", HALF, plain))
    for _ in range(60):
        which, action = int(random.integers(len(mine))), random.choice(["hold", "write", "read", "mma", "ld"])
        view, data = mine[which], theirs[which].data
        box = tuple([(0, extent) for extent in view.shape])
        if action == "hold" and view.index is None:
            rows, columns = (int(random.integers(2)) * 8, int(random.integers(6)) * 8)
            spans = ((rows, rows + view.shape[0]), (columns, columns + view.shape[1]))
            patch = some_patch(images, spans, int(random.integers(3)))
            storage.hold(view.region(box).box, view, box, patch)
            data[...] = patch.values()
        elif action == "write":
            values = random.integers(-4, 5, view.shape).astype(np.float32)
            view.write(values, box)
            data[...] = values
        elif action == "read":
            np.testing.assert_array_equal(view.read(), data)
        elif action == "mma":
            corner, keep = int(random.integers(2)) * 4, bool(random.integers(2))
            _multiply(memory, cells, mine[:2], theirs[:2], corner, keep)
        elif action == "ld":
            memory.flush(((0, 16), (0, 5)))
            np.testing.assert_array_equal(memory.data[:, :5], cells[:, :5])
    memory.flush(((0, 16), (0, 16)))
    np.testing.assert_array_equal(memory.data, cells)


def _multiply(
    memory: TensorStorage, cells: np.ndarray, mine: list[View], theirs: list[View], corner: int, keep: bool
) -> None:
    """The product of both stages into a corner of the accumulator, put off if it can be, and at once."""
    left, right = mine[0], mine[1].permute((1, 0))
    box = ((corner, corner + 8), (corner, corner + 8))
    target = cells[corner : corner + 8, corner : corner + 8]
    target[...] = target * keep + theirs[0].data @ theirs[1].data.T
    a, b = left.storage.patch(left), right.storage.patch(right)
    if a is not None and b is not None:
        memory.multiply(box, a, b, keep)
        return
    memory.flush(box)
    own = memory.data[corner : corner + 8, corner : corner + 8]
    own[...] = own * keep + left.read() @ right.read()


def test_neighbours_become_one_product() -> None:
    image = np.random.default_rng(0).integers(-4, 5, (16, 64)).astype(np.float32)
    memory = TensorStorage(FLOAT, np.zeros((8, 8), np.float32))
    box = ((0, 8), (0, 8))
    for k in range(0, 64, 8):
        a, b = Patch(image, ((0, 8), (k, k + 8)), (0, 1)), Patch(image, ((8, 16), (k, k + 8)), (1, 0))
        memory.multiply(box, a, b, k != 0)
        assert len(memory.products) == 1 and not memory.data.any()
    memory.flush(box)
    np.testing.assert_array_equal(memory.data, image[:8] @ image[8:].T)


def test_a_tile_of_one_of_several_matrices() -> None:
    images = np.random.default_rng(0).integers(-4, 5, (2, 16, 64)).astype(np.float32)
    first, other = (Patch(images, ((batch, batch + 1), (0, 8), (0, 32)), (1, 2)) for batch in (0, 1))
    beside = Patch(images, ((1, 2), (0, 8), (32, 64)), (1, 2))
    np.testing.assert_array_equal(other.values(), images[1, :8, :32])
    np.testing.assert_array_equal(other.seen((1, 0)).values(), images[1, :8, :32].T)
    np.testing.assert_array_equal(first.moved((1, 8, 16)).values(), images[1, 8:, 16:48])
    np.testing.assert_array_equal(other.part([(2, 4), (8, 24)]).values(), images[1, 2:4, 8:24])
    whole = other.then(beside, 1)
    assert first.then(beside, 1) is None and whole is not None
    np.testing.assert_array_equal(whole.values(), images[1, :8])


def test_pieces_of_a_tile() -> None:
    rows = [((r, r + 2), (0, 4)) for r in (4, 0, 2)]
    assert tiling(((0, 6), (0, 4)), rows) == [(rows[1], 0), (rows[2], 0), (rows[0], 0)]
    assert tiling(((0, 8), (0, 4)), rows) == []
    assert tiling(((0, 6), (0, 4)), [((0, 2), (0, 4)), ((3, 6), (0, 4))]) == []


@pytest.mark.parametrize(
    ("boxes", "whole"),
    [
        ([((0, 2), (0, 3)), ((2, 4), (0, 3))], True),
        ([((0, 2), (0, 3)), ((2, 4), (0, 2))], False),
        ([((0, 3), (0, 3)), ((2, 4), (0, 3))], False),
        ([((0, 2), (0, 3)), ((2, 5), (0, 3))], False),
        ([], False),
    ],
)
def test_rectangles_that_tile_an_output(boxes: list[Any], whole: bool) -> None:
    assert tiles(boxes, (4, 3)) is whole
