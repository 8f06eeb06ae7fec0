"""`WarpLayout` against tilus's own statement of who holds what."""

from __future__ import annotations

import numpy as np
import pytest
from tilus.ir.instructions.cuda.mma_dot import AtomicMmaConfig
from tilus.ir.layout.ops import column_local, column_spatial, local, replicated, spatial
from tilus.ir.layout.ops.register_ops import auto_local_spatial, permute, reduce

from blackwell_matmul.simulator.machine.registers import (
    WARP,
    ThreadGroup,
    WarpLayout,
    broadcast_index,
    local_index,
    pick,
)

LAYOUTS = {
    "spatial": spatial(8, 4),
    "spatial_local": spatial(8, 4).local(2, 3),
    "local_spatial": local(2, 2).spatial(4, 8),
    "column_spatial": column_spatial(16, 8).local(1, 4),
    "column_local": spatial(4, 8).column_local(4, 2),
    "columns": column_local(2, 4).column_spatial(8, 16),
    "replicated": replicated(4, 4, num_workers=64),
    "half_replicated": reduce(spatial(8, 16).local(2, 2), [1], keepdims=True),
    "reduced": reduce(spatial(8, 16).local(2, 2), [0], keepdims=False),
    "one_dimension": spatial(128).local(4),
    "three_dimensions": local(2, 1, 1).spatial(4, 2, 8).local(1, 3, 2),
    "permuted": permute(spatial(8, 8).local(2, 4), [1, 0]),
    "automatic": auto_local_spatial(128, [64, 32]),
    "scalar": replicated(num_workers=32),
    "sixteen_lanes": spatial(16).local(2),
    "interleaved": spatial(2, 2).local(2, 1).spatial(4, 8).local(1, 2),
    **{
        f"{name}.{operand}": getattr(config, operand)
        for name, config in AtomicMmaConfig.all_configs().items()
        for operand in ("la", "lb", "lc")
        if name.startswith(("m16n8k16v1", "m8n8k16v2", "m16n8k32v1"))
    },
}
WARPS = [(name, warp) for name, layout in LAYOUTS.items() for warp in range(max(layout.spatial_size // 32, 1))]


def held_by_tilus(layout, thread: int) -> list[tuple[int, ...]]:
    """The element in each register of a thread."""
    held = [layout.get_global(local_index=i, spatial_index=thread) for i in range(layout.local_size)]
    return [tuple(int(index) for index in indices) for indices in held]


def group_of(layout) -> ThreadGroup:
    return ThreadGroup(0, layout.spatial_size)


def numbered(layout) -> np.ndarray:
    return np.arange(int(np.prod(layout.shape)), dtype=np.int64).reshape(tuple(layout.shape))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "warp"), WARPS)
def test_load_takes_what_each_register_holds(name: str, warp: int) -> None:
    layout = LAYOUTS[name]
    mine, tile = WarpLayout(layout, group_of(layout), warp), numbered(layout)
    registers = mine.load(tile)
    assert registers.shape == (WARP, layout.local_size)
    for lane in range(mine.lane, mine.lane + mine.lanes):
        want = [tile[index] for index in held_by_tilus(layout, warp * WARP + lane)]
        assert registers[lane].tolist() == want


@pytest.mark.slow
@pytest.mark.parametrize(("name", "warp"), WARPS)
def test_store_is_the_inverse(name: str, warp: int) -> None:
    layout = LAYOUTS[name]
    mine, tile = WarpLayout(layout, group_of(layout), warp), numbered(layout)
    out = np.full_like(tile, -1)
    mine.store(out, mine.load(tile))
    held = np.zeros(tile.shape, bool)
    for lane in range(mine.lane, mine.lane + mine.lanes):
        for index in held_by_tilus(layout, warp * WARP + lane):
            held[index] = True
    np.testing.assert_array_equal(out, np.where(held, tile, -1))
    box = tuple(slice(lo, hi) for lo, hi in mine.box)
    assert held[box].sum() == held.sum()
    assert mine.dense == bool(held[box].all())


@pytest.mark.parametrize(("name", "warp"), WARPS)
def test_the_strided_path_equals_the_indexed_one(name: str, warp: int) -> None:
    layout = LAYOUTS[name]
    fast, slow = (WarpLayout(layout, group_of(layout), warp) for _ in range(2))
    slow._strided = None
    tile = np.random.default_rng(0).random(tuple(layout.shape))
    np.testing.assert_array_equal(fast.load(tile), slow.load(tile))
    outs = [np.zeros_like(tile) for _ in range(2)]
    fast.store(outs[0], slow.load(tile))
    slow.store(outs[1], slow.load(tile))
    np.testing.assert_array_equal(*outs)


def test_common_layouts_take_the_strided_path() -> None:
    for name in ("spatial", "local_spatial", "column_spatial", "one_dimension", "m16n8k16v1_f16_f32.la"):
        layout = LAYOUTS[name]
        assert WarpLayout(layout, group_of(layout), 0)._strided is not None, name


@pytest.mark.parametrize("name", ["spatial", "automatic", "one_dimension"])
def test_loaded_registers_never_share_the_tile(name: str) -> None:
    layout = LAYOUTS[name]
    tile = numbered(layout)
    assert not np.shares_memory(WarpLayout(layout, group_of(layout), 0).load(tile), tile)


@pytest.mark.parametrize("name", LAYOUTS)
def test_local_index_finds_the_register(name: str) -> None:
    layout = LAYOUTS[name]
    for thread in range(0, layout.spatial_size, 5):
        for register, index in enumerate(held_by_tilus(layout, thread)):
            found = local_index(layout, [np.asarray(i) for i in index])
            assert int(np.ravel(found)[0]) == register


@pytest.mark.parametrize("shape", [(16, 1), (1, 32), (32,), (1, 1), ()])
def test_broadcast_index(shape: tuple[int, ...]) -> None:
    """The operand is held by every thread; each takes the element that it needs."""
    out, operand = spatial(8, 4).local(2, 8), replicated(*shape, num_workers=32)
    group = ThreadGroup(0, 32)
    values = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    registers = WarpLayout(operand, group, 0).load(values)
    aligned = pick(registers, broadcast_index(out, operand, group, 0))
    want = WarpLayout(out, group, 0).load(np.broadcast_to(values, (16, 32)))
    np.testing.assert_array_equal(aligned, want)


@pytest.mark.parametrize(("begin", "count"), [(0, 16), (16, 16), (32, 64), (5, 1), (96, 32)])
def test_thread_groups(begin: int, count: int) -> None:
    group = ThreadGroup(begin, count)
    threads = [w * WARP + group.lanes(w)[0] + i for w in group.warps for i in range(group.lanes(w)[1])]
    assert threads == list(range(begin, begin + count))


def test_a_group_inside_a_warp() -> None:
    """Lanes outside of the group are not touched."""
    mine = WarpLayout(spatial(16), ThreadGroup(48, 16), 1)
    registers = mine.load(np.arange(1, 17))
    assert registers[:16].tolist() == [[0]] * 16
    assert registers[16:, 0].tolist() == list(range(1, 17))
