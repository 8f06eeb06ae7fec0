"""Mutants of kernels: every line of a kernel that orders something, dropped or changed, must not go unnoticed.

The kernels are the rungs, the products, the grouped kernels, those that quantise and, for Hopper, those of
`wgmma_kernels`. "ring of v4" is
V4 with the lines of `kernels/parts/ring.py` changed, and so on for each part of each kernel that uses it.

Mutants are generated from the kernel's file: each wait, fence, arrive, commit and sync dropped, or moved past its
neighbour; each count of bytes and of arrivals, each phase, stage, scope, rank, group number and barrier changed, and
each number that a part's method keeps. A case
is a mutant with a schedule and a size, simulated with the checks on, in the default order. It is killed by a finding,
by wrong values or because it does not compile.

A case that survives counts as equivalent only if one of `RULES` shows it, from a record of both runs that the checks
have no part in: the mutant takes the same steps as the kernel, on the same memory and barriers, and before each step
at least the same others are known to have happened; or the orders that it loses are between steps that share neither
memory nor a barrier. `EXCEPTIONS` has what no rule shows; they are counted apart.

Methods of `COMPUTING` are changed in what they compute: each bound, sum, product, constant and choice. Such a mutant is
run in one case after another until one kills it. One must, unless it compiles to the kernel's own program in all.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import itertools
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from blackwell_matmul import quantize
from blackwell_matmul.base.errors import CompileError, InputError
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.harness.calls.inputs import arguments_of
from blackwell_matmul.harness.calls.scaled_operands import dequantised
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.kernels import KERNELS, PRODUCTS, RUNGS, rung
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.form import Epilogue
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.simulator import Run
from blackwell_matmul.simulator.description import Access
from blackwell_matmul.simulator.machine.cta import Cta
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.order.frontier import Frontier
from blackwell_matmul.simulator.order.happens_before import HappensBefore
from blackwell_matmul.simulator.order.lines import ProgramLines
from blackwell_matmul.simulator.simulate import Bound, Lowered, new_simulation, prepare, run_simulation

HOPPER = {
    "wgmma": ("wgmma_serial", "WgmmaMatmul"),
    "wgmma_pipelined": ("wgmma_pipelined", "WgmmaPipelined"),
    "wgmma_specialised": ("wgmma_specialised", "WgmmaSpecialised"),
}
"""File and class of those in `wgmma_kernels`."""
GROUPED = {
    "grouped_blackwell": ("blackwell", "BlackwellGroupedMatmul"),
    "gradient_blackwell": ("blackwell_gradient", "BlackwellGroupedGradient"),
    "grouped_hopper": ("hopper", "HopperGroupedMatmul"),
    "gradient_hopper": ("hopper_gradient", "HopperGroupedGradient"),
}
"""File and class of the grouped kernels, which are in `kernels/experts`."""
QUANTIZERS = {
    "quantizer": ("quantizer", "BlackwellQuantizer"),
    "scaled_quantizer": ("scaled_quantizer", "BlackwellScaledQuantizer"),
}
"""File and class of the kernels that quantise, which are in `kernels/products`."""
ROOMS = (
    (HOPPER, "blackwell_matmul_studies.wgmma_kernels"),
    (GROUPED, "blackwell_matmul.kernels.experts"),
    (QUANTIZERS, "blackwell_matmul.kernels.products"),
)
OWN = (*RUNGS, *PRODUCTS, *GROUPED, *QUANTIZERS, *HOPPER)
"""Kernels whose own lines are changed."""
TWO_GROUPS = {"block_m": 128, "block_n": 64, "consumers": 2}
ONE_GROUP = {"block_m": 64, "block_n": 64, "consumers": 1, "group_m": 4}
SPLIT = {split_k: {"cluster_m": 1, "split_k": split_k, "sm_count": split_k} for split_k in (2, 4)}
"""A cluster for each number of parts, and no other."""
ABOVE = {cluster_m: {"cluster_m": cluster_m, "sm_count": cluster_m} for cluster_m in (1, 2)}
WHOLE_K = {"cluster_n": 1, "split_k": 1}
RECTANGLE = {"block_k": 32, "e_block_n": 32, "stages": 2, "cluster_m": 2, "cluster_n": 2, "sm_count": 4}
ODD_STRIPS = {"block_m": 64, "block_n": 96, "e_block_n": 32, "consumers": 1}
"""Three strips in two buffers: the last one of a tile and the first one of the next share one."""

NVFP4 = {"dtype": "nvfp4", "out": "nvfp4"}
SCHEDULES: Mapping[str, tuple[dict[str, Any], ...]] = {
    "quantizer": tuple(
        {"dtype": dtype, "scaling": scaling}
        for dtype, scaling in (
            ("mxfp8", "rceil"),
            ("mxfp8", "floor"),
            ("mxfp4", "rceil"),
            ("mxfp4", "floor"),
            ("nvfp4", "rceil"),
        )
    ),
    "scaled_quantizer": (
        {**NVFP4, "block_m": 256, "block_n": 128, "block_k": 64, "e_block_n": 64, "stages": 2, "group_m": 4},
    ),
    "overlapping_sums of scaled_quantizer": (
        {**NVFP4, "block_m": 256, "block_n": 256, "block_k": 256, "e_block_n": 64, "stages": 2, "group_m": 4},
    ),
    "scale_atoms of scaled_quantizer": (
        {**NVFP4, "block_m": 256, "block_n": 128, "block_k": 64, "e_block_n": 64, "stages": 3, "group_m": 4},
    ),
    "block_quantizer of scaled_quantizer": tuple(
        {**NVFP4, "out": out, "block_m": 256, "block_n": 64, "block_k": 64, "e_block_n": 64, "stages": 2, "group_m": 4}
        for out in BLOCK_SCALED
    ),
    "v0": (
        {"block_m": 128, "block_n": 64, "block_k": 32},
        {"block_m": 128, "block_n": 128, "block_k": 16},
    ),
    "v1": (
        {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 16},
        {"block_m": 128, "block_n": 64, "block_k": 64, "e_block_n": 64},
    ),
    "v2": (
        {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3},
        {"block_m": 128, "block_n": 64, "block_k": 16, "e_block_n": 32, "stages": 2},
        {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 64, "stages": 6},
    ),
    "v3": (
        {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3},
        {"block_m": 128, "block_n": 64, "block_k": 16, "e_block_n": 64, "stages": 2},
    ),
    "v4": (
        {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 4},
        {"block_m": 128, "block_n": 64, "block_k": 16, "e_block_n": 64, "stages": 2, "group_m": 1},
    ),
    "v5": (
        {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 4},
        {"block_m": 128, "block_n": 64, "block_k": 16, "e_block_n": 64, "stages": 2, "group_m": 1},
    ),
    "v6": (
        {"block_m": 256, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 4},
        {"block_m": 256, "block_n": 64, "block_k": 16, "e_block_n": 64, "stages": 2, "group_m": 1},
    ),
    "blackwell": (
        {"block_m": 256, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 4},
        {"block_m": 256, "block_n": 64, "block_k": 16, "e_block_n": 64, "stages": 2, "group_m": 1},
    ),
    "s0": (
        {"block_m": 128, "block_n": 64, "block_k": 128, "e_block_n": 16},
        {"block_m": 128, "block_n": 96, "block_k": 64, "e_block_n": 32},
    ),
    "s1": (
        {"block_m": 128, "block_n": 64, "block_k": 128, "e_block_n": 16, "stages": 3, "group_m": 4},
        {"block_m": 128, "block_n": 96, "block_k": 64, "e_block_n": 32, "stages": 2, "group_m": 1},
    ),
    "s2": (
        {"block_m": 256, "block_n": 256, "block_k": 256, "e_block_n": 32, "stages": 2, "group_m": 4},
        {"block_m": 256, "block_n": 96, "block_k": 64, "e_block_n": 32, "stages": 3, "group_m": 1},
    ),
    "scale_atoms of s1": ({"block_m": 128, "block_n": 96, "block_k": 64, "e_block_n": 32, "stages": 3, "group_m": 1},),
    "overlapping_sums of s2": (
        {"block_m": 256, "block_n": 256, "block_k": 256, "e_block_n": 32, "stages": 2, "group_m": 4},
    ),
    "few": (
        {"block_m": 128, "block_n": 16, "block_k": 64, "stages": 2, "split_k": 2},
        {"block_m": 128, "block_n": 32, "block_k": 64, "stages": 3, "split_k": 1},
    ),
    **{
        name: ({"block_m": block_m, "block_n": 64, "block_k": 64, "e_block_n": e_block_n, "stages": 2, "sm_count": 3},)
        for name, block_m, e_block_n in (
            ("grouped_blackwell", 128, 32),
            ("gradient_blackwell", 128, 32),
            ("grouped_hopper", 64, 64),
            ("gradient_hopper", 64, 32),
        )
    },
    **{f"{part} of hopper": ({**ONE_GROUP, **RECTANGLE, "split_k": 1},) for part in ("multicast", "operand")},
    "epilogue of hopper": (
        {
            **TWO_GROUPS,
            "block_n": 128,
            "block_k": 32,
            "e_block_n": 32,
            "stages": 2,
            "group_m": 4,
            **ABOVE[1],
            **WHOLE_K,
        },
    ),
    "zero_padding of hopper": (
        {**ONE_GROUP, "block_m": 16, "block_k": 64, "e_block_n": 16, "stages": 3, **SPLIT[2], "cluster_n": 1},
    ),
    "tile_order of hopper": (
        {**ONE_GROUP, "block_k": 32, "e_block_n": 32, "stages": 2, **ABOVE[1], **WHOLE_K, "sm_count": 2, "queue": 1},
        {**ONE_GROUP, "block_k": 32, "e_block_n": 32, "stages": 2, **ABOVE[2], **WHOLE_K, "sm_count": 4, "queue": 1},
    ),
    "h0": (
        {"block_m": 128, "block_n": 64, "block_k": 32},
        {"block_m": 128, "block_n": 128, "block_k": 16},
    ),
    "h1": (
        {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 16},
        {"block_m": 128, "block_n": 64, "block_k": 64, "e_block_n": 64},
    ),
    "h2": (
        {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3},
        {"block_m": 128, "block_n": 64, "block_k": 16, "e_block_n": 64, "stages": 6},
    ),
    "h3": (
        {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "consumers": 2},
        {"block_m": 128, "block_n": 64, "block_k": 16, "e_block_n": 64, "stages": 2, "consumers": 2},
    ),
    "h4": ({**TWO_GROUPS, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 1},),
    "h5": (
        {**TWO_GROUPS, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 1, "sm_count": 2},
        {**TWO_GROUPS, "block_k": 16, "e_block_n": 64, "stages": 2, "group_m": 4, "sm_count": 1},
        {**ODD_STRIPS, "block_k": 32, "stages": 3, "group_m": 4, "sm_count": 1},
    ),
    "h6": (
        {**TWO_GROUPS, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 1, **ABOVE[2]},
        {**TWO_GROUPS, "block_k": 16, "e_block_n": 64, "stages": 2, "group_m": 4, **ABOVE[1]},
        {**ODD_STRIPS, "block_k": 32, "stages": 2, "group_m": 4, **ABOVE[2]},
    ),
    "h7": (
        {**TWO_GROUPS, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 1, **SPLIT[2]},
        {**ONE_GROUP, "block_k": 16, "e_block_n": 16, "stages": 2, **SPLIT[4]},
        {**ONE_GROUP, "block_k": 32, "e_block_n": 32, "stages": 2, **SPLIT[2], "cluster_m": 2, "sm_count": 4},
    ),
    "hopper": (
        {**TWO_GROUPS, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 1, **SPLIT[2], "cluster_n": 1},
        {**ONE_GROUP, "block_k": 16, "e_block_n": 16, "stages": 2, **SPLIT[4], "cluster_n": 1},
        {**ONE_GROUP, **RECTANGLE, "split_k": 2, "cluster_n": 1},
        {**ONE_GROUP, **RECTANGLE, "split_k": 1},
    ),
    "g0": (
        {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3},
        {"block_m": 128, "block_n": 64, "block_k": 16, "e_block_n": 64, "stages": 2},
    ),
    "g1": (
        {"block_m": 128, "block_n": 64, "block_k": 128, "e_block_n": 16, "stages": 3},
        {"block_m": 128, "block_n": 128, "block_k": 64, "e_block_n": 32, "stages": 2},
    ),
    "wgmma": ({"block_m": 64, "block_n": 64, "block_k": 32}, {"block_m": 128, "block_n": 32, "block_k": 64}),
    "wgmma_pipelined": (
        {"block_m": 64, "block_n": 64, "block_k": 32, "stages": 3},
        {"block_m": 128, "block_n": 32, "block_k": 16, "stages": 2},
    ),
    "wgmma_specialised": (
        {"block_n": 64, "block_k": 32, "stages": 3, "num_ctas": 2},
        {"block_n": 32, "block_k": 16, "stages": 2, "num_ctas": 1},
    ),
}
"""Every knob is given, so that no rule has a part in what is run; `sm_count` leaves a CTA several tiles. A part without
schedules of its own has the kernel's."""

MUTATION_SIZES = ((200, 72, 264), (128, 64, 96), (100, 40, 16))
"""M, N, K: tails in each dimension; fewer k-tiles than six stages; one k-tile."""
SIZES_OF_CLC = ((200, 232, 136), (128, 64, 48))
"""For rungs that go through several tiles: a team of four, with tails in each dimension; a single tile."""
SIZES_OF_SCALED = ((200, 232, 352), (128, 64, 96), (100, 40, 32))
"""For rungs with block scales: K by 32, and tiles of B that begin within an atom of scales."""

SIZES_OF_SCALED_CLC = ((256, 776, 800), (128, 64, 96))
"""For such rungs that go through several tiles: four of a pair, the last one narrow; a single tile."""

BIASED = ("epilogue", "column_vector")
"""Parts that act only for a call with a bias."""
SIZES_OF = {
    "quantizer": ((9, 1, 160), (131, 2, 96)),
    "scaled_quantizer": ((300, 288, 160), (9, 96, 64)),
    "block_quantizer of scaled_quantizer": ((140, 384, 64), (9, 224, 64)),
    "few": ((20, 136, 264), (16, 128, 128)),
    **dict.fromkeys(GROUPED, ((200, 72, 136), (96, 64, 64))),
    "zero_padding of hopper": ((24, 88, 200), (16, 64, 128)),
    "tile_order of hopper": ((328, 200, 72), (128, 64, 64)),
    **dict.fromkeys(("raster of blackwell", "raster of hopper"), ((600, 136, 40),)),
}
"""Sizes of a kernel, or of a part of a kernel, that is not run with those above. "quantizer": rows, matrices, K."""

RENAMED = "Everybody takes the same other barrier for a stage."
EXCEPTIONS: Mapping[tuple[str, str, str], str] = {
    ("ring", "first value", "self.stage: int32 = 0"): "One k-tile: everybody takes the same other stage for it.",
    ("overlapping_sums", "first value", "self.turn: int32 = 0"): "Everybody begins with the other accumulator.",
    ("ring", "next stage", "return self.full_barriers[self.stage]"): RENAMED,
    ("ring", "next stage", "return self.empty_barriers[stage]"): RENAMED,
    (
        "ring",
        "never changed",
        "self.stage = 0 if self.stage == self.stages - 1 else self.stage + 1",
    ): "Everybody stays at the first stage, whose phase then changes each time: a ring of one stage.",
    (
        "block_quantizer",
        "other number",
        "r_nan = self.register_tensor(dtype=int32, shape=[1, 1, 1], init=NAN)",
    ): "The bits of another NaN: e4m3 and e2m1 have the same bytes for each, and so has its product.",
    **{
        (
            "block_quantizer",
            operator,
            "offsets=[batch, row // 128, block // 4, 0, 0, 0 if blocks == 4 else block % 4],",
        ): "A tile of 4 blocks begins at a multiple of 4; tiles of 2 blocks, in `scaled_quantizer`, kill it."
        for operator in ("other choice", "other bound")
    },
    (
        "block_quantizer",
        "other number",
        "r_zero = self.register_tensor(dtype=int32, shape=[1, 1, 1], init=0)",
    ): 'Rounded up, the byte of such a block is dropped for that of NaN; "floor", in `quantizer`, kills it.',
    (
        "grouped_raster",
        "one more",
        "self.tiles_m = cdiv(self.end - self.begin, self.block_m)",
    ): "A tile more of each group: its rows are beyond the group's end, and are computed and not stored.",
    (
        "v3",
        "next stage",
        "self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=tile_bytes)",
    ): "A multiple of the stages in k-tiles: each phase gets its announcement, though after its bytes, and a wait may"
    " only take longer.",
    **{(name, "other rank", "if rank == 0:"): "One tile: either CTA may ask for both." for name in ("v6", "blackwell")},
    **{
        (
            name,
            "own CTA only",
            'ring.empty(), transaction_bytes=0, target_rank=target, scope="cta"',
        ): "No stage is used again, and a CTA that waits at its end for two arrivals of its own has all the bytes that "
        "the other one writes into it, because its consumers have waited for them."
        for name in ("h7",)
    },
}
"""(kernel or part, operator, line) of mutants that are equivalent though no rule shows it, with the reason. Those of a
part hold in each kernel that uses it."""


# mutants


@dataclass(frozen=True)
class Mutant:
    """One change of one line. code: the line as it was; column: from 0."""

    rung: str
    operator: str
    line: int
    column: int
    code: str
    source: str

    def __str__(self) -> str:
        return f"{self.rung}:{self.line}:{self.column} {self.operator}"


@dataclass(frozen=True)
class Edit:
    """Replace what `node` spans by `text`, or exchange it with the statement `swap`."""

    operator: str
    node: Any
    text: str = ""
    swap: Any = None


ORDERING = frozenset({
    "clc.try_cancel", "cluster.sync", "copy_async_commit_group", "copy_async_wait_all", "copy_async_wait_group",
    "fence.proxy_async", "mbarrier.arrive", "mbarrier.arrive_and_expect_tx",
    "mbarrier.arrive_and_expect_tx_multicast", "mbarrier.arrive_and_expect_tx_remote", "mbarrier.wait", "sync",
    "tcgen05.commit", "tcgen05.dealloc", "tcgen05.wait_load", "tcgen05.wait_store", "tma.commit_group",
    "tma.wait_group", "wgmma.commit_group", "wgmma.fence", "wgmma.wait_group",
})  # fmt: skip
"""Statements that order something: each of them is dropped, and moved."""
OTHER = {"wait_full": "wait_empty", "wait_empty": "wait_full", "full": "empty", "empty": "full"}
"""Methods of `Ring`, and which one is taken for which."""


COMPUTING: Mapping[str, tuple[str, ...]] = {
    "block_quantizer": ("quantize", "powers", "numbers", "store_scales"),
    "quantizer": ("__call__",),
    "scaled_quantizer": ("open_output", "finish", "store"),
}
"""Methods, by the kernel or the part, whose numbers are changed."""
ANOTHER: Mapping[type[ast.AST], Any] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Div: ast.Mult, ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq,
}  # fmt: skip
"""An operation, and which one is taken for it."""
COMPUTED = ("other operation", "other bound", "other number", "other choice")
"""Operators of mutants that compute something else."""


def kernels() -> list[str]:
    """Return the names of all kernels, and of each part of each kernel that uses it: "ring of v4"."""
    return [*OWN, *(f"{part} of {name}" for name in OWN for part in parts(kernel_source(name)))]


def mutants(name: str) -> list[Mutant]:
    """Every mutant of a kernel, or of a part of a kernel, in the order of its lines."""
    source, made = source_of(name), []
    lines, tree = source.splitlines(), ast.parse(source)
    every = itertools.chain(edits(tree), computed(tree, COMPUTING.get(name.partition(" of ")[0], ())))
    for edit in sorted(every, key=lambda edit: (edit.node.lineno, edit.node.col_offset)):
        line, column, changed = edit.node.lineno, edit.node.col_offset, apply(edit, source)
        if changed != source:
            made.append(Mutant(name, edit.operator, line, column, lines[line - 1].strip(), whole(name, changed)))
    return made


def source_of(name: str) -> str:
    """Return the text whose lines are changed."""
    part, of, owner = name.rpartition(" of ")
    return parts(kernel_source(owner))[part] if of else kernel_source(owner)


def kernel_source(name: str) -> str:
    return Path(inspect.getfile(kernel(name))).read_text()


def whole(name: str, changed: str) -> str:
    """Return the file of the kernel that a text belongs to."""
    part, of, owner = name.rpartition(" of ")
    return with_part(kernel_source(owner), part, changed) if of else changed


SHARED = re.compile(r"^from (blackwell_matmul\.kernels\.(?:parts|experts)\.(\w+)) import .*$", re.M)
"""An import of device code that kernels share."""


def parts(text: str) -> dict[str, str]:
    """Return the texts of the parts that a kernel or a part imports, and of those that they import, by name."""
    found: dict[str, str] = {}
    for module, part in SHARED.findall(text):
        own = inspect.getsource(importlib.import_module(module))
        found |= {part: own, **parts(own)}
    return found


def with_part(text: str, part: str, changed: str) -> str:
    """Return the text of a kernel with a changed part where it, or a part that uses it, is imported."""

    def imported(line: re.Match[str]) -> str:
        if line[2] == part:
            return changed
        own = inspect.getsource(importlib.import_module(line[1]))
        return with_part(own, part, changed) if part in parts(own) else line[0]

    return SHARED.sub(imported, text)


def edits(tree: ast.Module) -> Iterator[Edit]:
    barriers = _barrier_names(tree)
    for node in _kept_numbers(tree):
        yield Edit("one more", node.value, f"({ast.unparse(node.value)}) + 1")
    for node in ast.walk(tree):
        if _orders(node):
            yield Edit("drop", node, "pass")
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            yield from _variable(node)
        if isinstance(node, ast.Call):
            yield from _call(node, barriers)
        if isinstance(node, ast.Subscript):
            yield from _stage(node)
        if isinstance(node, ast.Compare) and ast.unparse(node) == "rank == 0":
            yield Edit("other rank", node, "rank == 1")
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list):
                yield from _moves(body)


def computed(tree: ast.Module, methods: tuple[str, ...]) -> Iterator[Edit]:
    """Yield changes of what methods with these names compute."""
    named = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name in methods)
    for node in itertools.chain.from_iterable(ast.walk(statement) for each in named for statement in each.body):
        if isinstance(node, ast.BinOp):
            yield Edit("other operation", node, ast.unparse(ast.BinOp(node.left, ANOTHER[type(node.op)](), node.right)))
        if isinstance(node, ast.Compare) and type(node.ops[0]) in ANOTHER:
            other = ast.Compare(node.left, [ANOTHER[type(node.ops[0])]()], node.comparators)
            yield Edit("other bound", node, ast.unparse(other))
        if isinstance(node, (ast.If, ast.IfExp)):
            yield Edit("other choice", node.test, f"not ({ast.unparse(node.test)})")
        if isinstance(node, ast.Call):
            yield from _computed_call(node)


def _computed_call(node: ast.Call) -> Iterator[Edit]:
    """Numbers that registers begin with, directions of rounding, and which of two a choice takes."""
    for keyword in node.keywords:
        if keyword.arg == "up":
            yield Edit("other choice", keyword.value, f"not {ast.unparse(keyword.value)}")
        if keyword.arg == "init" and not isinstance(keyword.value, ast.Lambda):
            yield Edit("other number", keyword.value, f"({ast.unparse(keyword.value)}) - 1")
    if _called(node) == "where":
        yield Edit("other choice", node.args[1], ast.unparse(node.args[2]))
        yield Edit("other choice", node.args[2], ast.unparse(node.args[1]))


def _called(node: ast.AST | None) -> str:
    """`sync` for a call of self.sync, and so on."""
    return ast.unparse(node.func).removeprefix("self.") if isinstance(node, ast.Call) else ""


def _orders(node: ast.AST) -> bool:
    called = _called(node.value) if isinstance(node, ast.Expr) else ""
    return called in ORDERING or called.rpartition(".")[2] in ("wait_full", "wait_empty", "advance")


def _barrier_names(tree: ast.Module) -> list[str]:
    """Names of single barriers."""
    assigned = [(node.targets[0], node.value) for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    return [
        name.id
        for name, call in assigned
        if isinstance(name, ast.Name)
        and isinstance(call, ast.Call)
        and _called(call) == "mbarrier.alloc"
        and isinstance(call.keywords[0].value, ast.Constant)
    ]


def _variable(node: Any) -> Iterator[Edit]:
    """Phases and stages: their first value, and what becomes of them."""
    target = node.target if not isinstance(node, ast.Assign) else node.targets[0]
    name = ast.unparse(target).rpartition(".")[2]
    if "phase" not in name and name not in ("stage", "refill", "last", "turn"):
        return
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield Edit("first value", node.value, f"1 - ({ast.unparse(node.value)})")
    else:
        yield Edit("never changed", node, "pass")
    if isinstance(node, ast.AugAssign) and not isinstance(node.value, ast.Constant):
        yield Edit("changed each time", node.value, "1")


def _kept_numbers(tree: ast.Module) -> Iterator[Any]:
    """What methods of a part assign to its numbers, other than stages and phases."""
    for part in tree.body:
        if isinstance(part, ast.ClassDef) and [ast.unparse(base) for base in part.bases] == ["tilus.Class"]:
            methods = [each for each in part.body if isinstance(each, ast.FunctionDef) and each.name != "__init__"]
            for node in itertools.chain.from_iterable(map(ast.walk, methods)):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                    if not list(_variable(node)) and not node.targets[0].attr.startswith("r_"):
                        yield node


def _call(node: ast.Call, barriers: list[str]) -> Iterator[Edit]:
    called, given = _called(node), {keyword.arg: keyword.value for keyword in node.keywords}
    if "transaction_bytes" in given:
        yield from _plus_and_minus("tx bytes", given["transaction_bytes"], 16)
    if called == "mbarrier.alloc":
        counts = given["counts"]
        yield from _plus_and_minus("arrival count", counts.elt if isinstance(counts, ast.ListComp) else counts, 1)
    if called == "Ring":
        yield from _ring(node, given)
    if isinstance(node.func, ast.Attribute) and node.func.attr in OTHER and not node.args:
        yield Edit("the other one", node.func, f"{ast.unparse(node.func.value)}.{OTHER[node.func.attr]}")
    yield from _strength(node, called, given)
    yield from _cluster(called, given)
    if called == "tma.wait_group":
        yield Edit("one group less", given["n"], f"{ast.unparse(given['n'])} + 1")
        if "read" in given:
            yield Edit("waits for the writes too", given["read"], "False")
    if called == "wgmma.wait_group":
        yield Edit("one group less", node.args[0], f"{ast.unparse(node.args[0])} + 1")
    if called == "fence.proxy_async":
        yield Edit("other space", given["space"], '"global"')
    if called == "single_thread":
        yield Edit("32 arrivals for one", node.func, "self.single_warp")
    for barrier in [given.get("mbarrier"), *(node.args[:1] if called.startswith("mbarrier.") else [])]:
        if isinstance(barrier, ast.Name):
            yield from (Edit("other barrier", barrier, other) for other in barriers if other != barrier.id)


Given = Mapping[str | None, ast.expr]
"""The keywords of a call."""


def _strength(node: ast.Call, called: str, given: Given) -> Iterator[Edit]:
    """What a wait waits for, and how much it and an arrival order."""
    if called == "mbarrier.wait":
        yield Edit("other parity", given["phase"], f"({ast.unparse(given['phase'])}) ^ 1")
    if called == "mbarrier.wait" or called.startswith("mbarrier.arrive"):
        last = [*node.args, *given.values()][-1]
        yield Edit("relaxed", last, f'{ast.unparse(last)}, sem="relaxed"')
    if "scope" in given:
        yield Edit("CTA scope", given["scope"], '"cta"')


def _cluster(called: str, given: Given) -> Iterator[Edit]:
    """Which CTAs are meant."""
    if "target_rank" in given:
        yield Edit("own CTA only", given["target_rank"], "self.cluster.blockRank")
        if called.startswith("mbarrier.arrive") and "scope" not in given:
            yield Edit("CTA scope", given["transaction_bytes"], '0, scope="cta"')
    if "multicast_mask" in given:
        yield Edit("only one CTA", given["multicast_mask"], "1")
        yield Edit("only the other CTA", given["multicast_mask"], "2")
    if "multicast" in given:
        yield Edit("the other multicast", given["multicast"], f"not {ast.unparse(given['multicast'])}")
    if "cta_group" in given and ast.unparse(given["cta_group"]) == "2":
        yield Edit("one CTA's", given["cta_group"], "1")


def _ring(node: ast.Call, given: Given) -> Iterator[Edit]:
    """How many arrivals fill and empty a stage."""
    for count in ("fills", "empties"):
        if count in given:
            yield from _plus_and_minus("arrival count", given[count], 1)
        else:
            yield Edit("arrival count + 1", node.args[0], f"{ast.unparse(node.args[0])}, {count}=2")


def _plus_and_minus(operator: str, node: ast.expr, step: int) -> Iterator[Edit]:
    yield Edit(f"{operator} + {step}", node, f"({ast.unparse(node)}) + {step}")
    yield Edit(f"{operator} - {step}", node, f"({ast.unparse(node)}) - {step}")


def _stage(node: ast.Subscript) -> Iterator[Edit]:
    """The slot of a ring."""
    first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
    if isinstance(first, ast.Name) and first.id != "half" and _is_name(node.value):
        yield Edit("next stage", first, f"({first.id} + 1) % self.stages")
    if isinstance(first, ast.Attribute) and first.attr == "stage":
        ring = ast.unparse(first.value)
        yield Edit("next stage", first, f"({ring}.stage + 1) % {ring}.stages")


def _is_name(node: ast.expr) -> bool:
    """A tensor: of the method, or of the kernel."""
    return ast.unparse(node).removeprefix("self.").isidentifier()


def _moves(body: list[Any]) -> Iterator[Edit]:
    """A statement that orders something, past its neighbours; two of that kind only once."""
    for first, second in itertools.pairwise(body):
        one, two = _orders(first), _orders(second)
        if (one and isinstance(second, ast.Expr)) or (two and _acts(first)):
            yield Edit("exchanged with the next", first, swap=second)


def _acts(node: ast.AST) -> bool:
    """A statement that is no docstring."""
    return isinstance(node, (ast.Expr, ast.Assign)) and not isinstance(node.value, ast.Constant)


def apply(edit: Edit, source: str) -> str:
    """The source with the edit, and with as many lines as before."""
    lines = source.splitlines(keepends=True)
    begin, end = _span(edit.node, lines)
    if edit.swap is None:
        gone = source[begin:end].count("\n")
        return source[:begin] + edit.text + "\n" * gone + source[end:]
    other_begin, other_end = _span(edit.swap, lines)
    parts = (
        source[:begin],
        source[other_begin:other_end],
        source[end:other_begin],
        source[begin:end],
        source[other_end:],
    )
    return "".join(parts)


def _span(node: Any, lines: list[str]) -> tuple[int, int]:
    starts = [0, *itertools.accumulate(map(len, lines))]
    ascii_only = all(line.isascii() for line in lines[node.lineno - 1 : node.end_lineno])
    assert ascii_only, "columns of the syntax tree are bytes"
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


# running one

NUMBERS = itertools.count()


def load(source: str, class_name: str, folder: Path) -> type:
    """The class, from a file of its own: tilus reads the source."""
    path = folder / f"mutant_{next(NUMBERS)}.py"
    path.write_text(source)
    return loaded(path, class_name)


@functools.cache
def kernel(name: str) -> type:
    """Return the class that is mutated, or whose part is."""
    name = name.rpartition(" of ")[2]
    if name in KERNELS:
        return rung(name)
    room, (file, class_name) = next((room, named[name]) for named, room in ROOMS if name in named)
    found: type = getattr(importlib.import_module(f"{room}.{file}"), class_name)
    return found


def loaded(path: Path, class_name: str) -> type:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found: type = getattr(module, class_name)
    return found


@dataclass(frozen=True)
class Case:
    """What a mutant is run with. call: a name of `CALLS`."""

    target: str
    schedule: tuple[tuple[str, Any], ...]
    size: tuple[int, int, int]
    call: str = "product"

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.size))} {','.join(f'{name}={value}' for name, value in self.schedule)}"


def cases(name: str) -> list[Case]:
    """Return every case of a kernel, or of a part of a kernel."""
    cls: Any = kernel(name)
    part, _, owner = name.rpartition(" of ")
    target = "sm_90a" if owner in HOPPER else "sm_100a" if owner in QUANTIZERS else cls.target
    features = () if owner in HOPPER else getattr(cls, "features", ())
    scaled = "scaled" in features
    of_kind = (MUTATION_SIZES, SIZES_OF_CLC), (SIZES_OF_SCALED, SIZES_OF_SCALED_CLC)
    usual = of_kind[scaled]["clc" in features]
    sizes = SIZES_OF.get(name, SIZES_OF.get(owner, usual))
    kind = "scaled" if scaled else "bias" if part in BIASED else "product"
    call = owner.partition("_")[0] if owner in GROUPED else owner if owner in QUANTIZERS else kind
    schedules = SCHEDULES.get(name, SCHEDULES[owner])
    return [Case(target, tuple(schedule.items()), size, call) for schedule in schedules for size in sizes]


def drawn(mutant: Mutant, each: int | None) -> list[Case]:
    """Return so many cases of a mutant, always the same ones; every case for None, and for one that computes."""
    every = cases(mutant.rung)
    few = each is not None and mutant.operator not in COMPUTED
    return random.Random(str(mutant)).sample(every, min(each or 0, len(every))) if few else every


@dataclass(frozen=True)
class Call:
    """The arguments of a call, and whether C is right after the call."""

    args: tuple[Any, ...]
    right: Callable[[], bool]
    pins: Mapping[str, Any] = field(default_factory=dict)


def _whole_numbers(*shape: int) -> torch.Tensor:
    """Small ones, whose sums are exact in every order."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(shape[0])).half()


def _product(m: int, n: int, k: int) -> Call:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    c = torch.full((m, n), float("nan")).half()
    return Call((m, n, k, a, b, c), lambda: check_matmul(a, b, c).ok)


def _biased(m: int, n: int, k: int) -> Call:
    a, b, bias = _whole_numbers(m, k), _whole_numbers(n, k), _whole_numbers(n)
    c = torch.full((m, n), float("nan")).half()
    exact = a.double() @ b.double().T + bias.double()
    return Call((m, n, k, a, b, c, bias), lambda: torch.equal(c.double(), exact), {"form": Epilogue(bias=True)})


def _grouped(m: int, n: int, k: int) -> Call:
    """Of three groups the second is empty; rows follow the last one."""
    ends = (m // 3, m // 3, 2 * m // 3)
    x, w, exact = _whole_numbers(m, k), _whole_numbers(3, k, n), torch.zeros(m, n, dtype=torch.float64)
    for group, (begin, end) in enumerate(itertools.pairwise((0, *ends))):
        exact[begin:end] = x[begin:end].double() @ w[group].double()
    c = torch.full((m, n), float("nan")).half()
    offs = torch.tensor(ends, dtype=torch.int32)
    return Call((m, n, k, 3, x, w, offs, c), lambda: torch.equal(c.double(), exact))


def _gradient(m: int, n: int, k: int) -> Call:
    """Of the same groups."""
    ends = (m // 3, m // 3, 2 * m // 3)
    x, y = _whole_numbers(m, k), _whole_numbers(m, n)
    x[ends[-1] :], y[ends[-1] :] = torch.nan, torch.nan  # must not be read
    groups = itertools.pairwise((0, *ends))
    exact = torch.stack([x[begin:end].double().T @ y[begin:end].double() for begin, end in groups])
    c = torch.full((3, k, n), float("nan")).half()
    offs = torch.tensor(ends, dtype=torch.int32)
    return Call((m, n, k, 3, x, y, offs, c), lambda: torch.equal(c.double(), exact))


def _scaled(m: int, n: int, k: int) -> Call:
    problem = Problem(m, n, k, "nvfp4")
    arguments = arguments_of(problem, 0)
    return Call(arguments, lambda: check_product(problem, arguments[3:]).ok)


def _outputs(dtype: str, batches: int, m: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return bytes for elements and scales, all of them wrong."""
    form = BLOCK_SCALED[dtype]
    data = torch.full((batches, m, k // form.per_byte), 0xEE, dtype=torch.uint8)
    return data, torch.full((batches, form.scales(m, k)), 0xEE, dtype=torch.uint8)


def _equal_bytes(made: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(one, other.view(torch.uint8)) for one, other in zip(made, wanted, strict=True))


def _quantizer(m: int, batches: int, k: int, dtype: str, scaling: str) -> Call:
    """Of many powers of two, with ties, numbers beyond each bound, zeros, subnormal numbers, NaN and infinities.

    nvfp4 has a second scale for more than one matrix.
    """
    generator = torch.Generator().manual_seed(m)
    powers = torch.randint(-30, 30, (batches, m, k // 16), generator=generator).repeat_interleave(16, 2)
    x = torch.randn(batches, m, k, generator=generator) * torch.exp2(powers.float())
    x[:, 1] = torch.randint(-24, 25, (k,), generator=generator) / 4
    x[:, 2] *= 1e-38
    x[:, 3] = -0.0
    x[:, 4], x[:, 4, ::16] = 1.0, 448.0 * 6
    for place, value in enumerate((torch.nan, -torch.nan, torch.inf, -torch.inf)):
        x[:, 5 + place, 7 * place] = value
    factor = torch.tensor([0.3]) if dtype == "nvfp4" and batches > 1 else None
    made, wanted = _outputs(dtype, batches, m, k), quantize(x, dtype, scaling, factor)
    args = (batches, m, k, x, 0 if factor is None else factor, *made)
    return Call(args, lambda: _equal_bytes(made, wanted))


def _scaled_quantizer(m: int, n: int, k: int, dtype: str, out: str) -> Call:
    """Of nvfp4 with scales of 1/2, 1 and 2, whose sums are exact in every order; with a factor and a bias.

    C of nvfp4 has a second scale. Columns 300 and 340, of a C that has them, are NaN and an infinity. For 224 columns
    the factor is an infinity, which makes NaN of zeros beyond C.
    """
    generator, problem = torch.Generator().manual_seed(m), Problem(m, n, k, dtype)
    form = BLOCK_SCALED[dtype]
    a, b = (torch.randint(0, 256, (rows, k // 2), generator=generator).to(torch.uint8) for rows in (m, n))
    scale_a, scale_b = (
        torch.randint(6, 9, (form.scales(rows, k),), generator=generator).to(torch.uint8) * 8 for rows in (m, n)
    )
    bias = torch.randn(n, generator=generator)
    factor = torch.tensor([torch.inf if n == 224 else 0.37])
    bias[300:301], bias[340:341] = torch.nan, torch.inf
    factor_c = torch.tensor([0.05]) if out == "nvfp4" else None
    of_a, of_b = (dequantised(problem, *each) for each in ((a, scale_a), (b, scale_b)))
    wanted = quantize((of_a.double() @ of_b.double().T).float() * factor + bias, out, global_scale=factor_c)
    (c,), (scale_c,) = _outputs(out, 1, m, n)
    if n % BLOCK_SCALED[out].atom_k:
        scale_c.zero_()  # the caller clears atoms beyond the last tile
    args = (m, n, k, a, b, scale_a, scale_b, c, scale_c, factor, 0 if factor_c is None else factor_c, bias)
    return Call(args, lambda: _equal_bytes((c, scale_c), wanted))


FORMAT_KNOBS = {"dtype", "scaling", "out"}
"""Knobs of the kernels that quantise on which the arguments depend."""
CALLS: Mapping[str, Callable[..., Call]] = {
    "product": _product, "scaled": _scaled, "bias": _biased, "grouped": _grouped, "gradient": _gradient,
    "quantizer": _quantizer, "scaled_quantizer": _scaled_quantizer,
}  # fmt: skip


def prepared(cls: Any, case: Case) -> tuple[Call, Bound, Lowered]:
    """Return the call, and what `prepare` returns for it."""
    schedule = dict(case.schedule)
    call = CALLS[case.call](*case.size, **{name: schedule[name] for name in FORMAT_KNOBS & schedule.keys()})
    script = cls(**call.pins) if call.pins else cls
    return call, *prepare(script, call.args, schedule, case.target)


def execute(cls: Any, case: Case, order: Callable[[ProgramLines], HappensBefore] | None = None) -> tuple[Run, bool]:
    """Return the run, and whether C is right."""
    call, bound, lowered = prepared(cls, case)
    simulation = new_simulation(bound, lowered, "adversarial", 0)
    if order is not None:
        lines = ProgramLines(lowered.program)
        simulation.checks = lambda: (order(lines),)
    run = run_simulation(bound, simulation, 1, None, time.perf_counter())
    return run, call.right()


# the rules for equivalence

Name = tuple[Any, ...]
PATHS = ("generic", "shared", "global_", "tensor", "steps")


@dataclass(frozen=True)
class RecordedStep:
    """An access, an operation, an arrival or a wait. known: what had happened before it, as far as each path tells.

    touches: path, region, and whether it writes. signals, waits: the barrier and the phase that it tells or saw.
    """

    known: Mapping[str, frozenset[Name]]
    touches: tuple[tuple[str, Region, bool], ...] = ()
    signals: tuple[str, int] | None = None
    waits: tuple[str, int] | None = None


class StepRecorder(HappensBefore):
    """Writes down every step. Its name is what is done by whom, and not where the source says so."""

    def __init__(self, lines: ProgramLines, log: dict[Name, RecordedStep]) -> None:
        super().__init__(lines)
        self.sweep_at = sys.maxsize  # events keep their meaning to the end
        self.log = log
        self.names: dict[int, list[Name]] = defaultdict(list)
        self.again: Counter[Name] = Counter()

    def _step(self, lanes: Any, instruction: Any, *facts: str, **about: Any) -> Name:
        name = (lanes.cta.position, str(lanes), instruction.description.name, *facts)
        self.again[name] += 1
        return self._write((*name, self.again[name]), lanes, **about)

    def _write(self, name: Name, known: Frontier, **about: Any) -> Name:
        events = {path: getattr(known, path) for path in PATHS}
        names = {each: self._names(each) for each in set(events.values())}  # most paths tell the same
        self.log[name] = RecordedStep({path: names[each] for path, each in events.items()}, **about)
        return name

    def _names(self, events: int) -> frozenset[Name]:
        return frozenset(itertools.chain.from_iterable(self.names.get(bit, ()) for bit in bits(events)))

    def accessed(self, warp: Any, instruction: Any, effect: Any, region: Any) -> None:
        write = effect.access is Access.WRITE
        lanes = self.acting(warp, instruction)
        name = self._step(lanes, instruction, effect.operand, str(region), touches=((effect.path, region, write),))
        super().accessed(warp, instruction, effect, region)
        self.names[lanes.own].append(name)

    def issued(self, op: Any, warp: Any, instruction: Any, regions: Any) -> None:
        self._issue(super().issued, op, warp, instruction, regions)

    def joined(self, op: Any, warp: Any, instruction: Any, regions: Any) -> None:
        self._issue(super().joined, op, warp, instruction, regions)

    def _issue(self, ordered: Callable[..., None], op: Any, warp: Any, instruction: Any, regions: Any) -> None:
        effects = [effect for effect in instruction.description.effects if effect.operand in regions]
        touches = tuple((e.path, regions[e.operand], e.access is Access.WRITE) for e in effects)
        told = None if op.barrier is None else (str(op.barrier), op.barrier.phase)
        facts = (*(f"{e.operand} {regions[e.operand]}" for e in effects), str(told))
        name = self._step(self.acting(warp, instruction), instruction, *facts, touches=touches, signals=told)
        ordered(op, warp, instruction, regions)
        operation = self.operations[op]
        self.names[operation.source].append(name)
        if operation.event != operation.source:
            self.names[operation.event].append((*name, END))

    def arrived(self, barrier: Any, warp: Any, instruction: Any, scope: str, count_bytes: int) -> None:
        told = (str(barrier), barrier.phase)
        self._step(self.acting(warp, instruction), instruction, str(told), signals=told)
        super().arrived(barrier, warp, instruction, scope, count_bytes)

    def passed(self, barrier: Any, warp: Any, instruction: Any, scope: str) -> None:
        seen = (str(barrier), barrier.phase - 1)
        name = self._step(self.acting(warp, instruction), instruction, str(seen), waits=seen)
        super().passed(barrier, warp, instruction, scope)
        self.names[self.of(barrier).waits[warp.index].event].append(name)

    # the life of a CTA in a cluster: what reaches into it comes after its start and before its end

    def started(self, cta: Any) -> None:
        super().started(cta)
        if cta in self.beginnings:
            name = self._write((cta.position, "starts"), Frontier(), touches=(("generic", life(cta), True),))
            self.names[self.beginnings[cta]].append(name)

    def reaches(self, warp: Any, instruction: Any, cta: Any, event: int) -> None:
        touches = (("generic", life(cta), False),)
        self.names[event].append(
            self._step(self.acting(warp, instruction), instruction, f"into {cta.position}", touches=touches)
        )
        super().reaches(warp, instruction, cta, event)

    def exits(self, cta: Any) -> None:
        if cta in self.beginnings:
            known = Frontier()
            known.steps = self.known_steps(cta)
            self._write((cta.position, "exits"), known, touches=(("steps", life(cta), True),))
        super().exits(cta)


def life(cta: Any) -> Region:
    """A region that stands for all of the CTA."""
    return Region(cta, ((0, 1),))


END = "end"
"""After the name of a bulk store: its writes are over too."""


def bits(mask: int) -> Iterator[int]:
    while mask:
        yield mask & -mask
        mask &= mask - 1


def steps(cls: Any, case: Case) -> dict[Name, RecordedStep]:
    log: dict[Name, RecordedStep] = {}
    execute(cls, case, lambda lines: StepRecorder(lines, log))
    return log


def keeps_every_order(kernel: Mapping[Name, RecordedStep], mutant: Mapping[Name, RecordedStep]) -> bool:
    """The same steps, and each of them after at least the same others: what the mutant may do, the kernel may do."""
    return kernel.keys() == mutant.keys() and all(
        step.known[path] <= mutant[name].known[path] for name, step in kernel.items() for path in PATHS
    )


def keeps_the_orders_that_matter(kernel: Mapping[Name, RecordedStep], mutant: Mapping[Name, RecordedStep]) -> bool:
    """The same steps, and each of them after the same of those that it depends on: of two that lost their order none
    writes what the other touches, nor is one a wait on a barrier and the other a signal of a later phase to it."""
    return kernel.keys() == mutant.keys() and not any(
        loses_what_it_needs(step, mutant[name], kernel) for name, step in kernel.items()
    )


def loses_what_it_needs(step: RecordedStep, other: RecordedStep, kernel: Mapping[Name, RecordedStep]) -> bool:
    """Whether of the earlier steps that only `step` comes after there is one without which it is too early; from the
    regions alone, pair by pair."""
    for path, region, write in step.touches:
        if any(_conflicts(name, kernel, region, write) for name in step.known[path] - other.known[path]):
            return True
    if step.signals is None:
        return False
    barrier, phase = step.signals
    waits = [kernel[name].waits for name in step.known["steps"] - other.known["steps"] if name[-1] != END]
    return any(wait[0] == barrier and wait[1] < phase for wait in waits if wait)


def _conflicts(name: Name, kernel: Mapping[Name, RecordedStep], region: Region, write: bool) -> bool:
    ended = name[-1] == END
    touches = kernel[name[:-1] if ended else name].touches
    return any(
        (write or writes) and region.storage is other.storage and region.meets(other)
        for _, other, writes in touches if writes or not ended
    )  # fmt: skip


def differs_where_nobody_waits(kernel: Mapping[Name, RecordedStep], mutant: Mapping[Name, RecordedStep]) -> bool:
    """The rule above, without the arrivals of phases that nobody waits for, and without the waits that pass at once,
    because the phase before the first is over: nothing follows from either. If such an arrival reaches into another
    CTA, that CTA must not have exited: the mutant may do so less often, and no later. Nor does it matter who waits for
    a barrier's last phase, and how often, or for a barrier for which the mutant never waits, if what comes after has
    its orders all the same."""
    last, both = last_phases(mutant), {**kernel, **mutant}
    awaited = {step.waits[0] for step in mutant.values() if step.waits is not None}
    waits = {name for name in kernel.keys() ^ mutant.keys()
             if _waits_for_the_last(both[name], last) or _waits_beyond(both[name], awaited)}  # fmt: skip
    return keeps_the_orders_that_matter(consequential(kernel, mutant, waits), consequential(mutant, mutant, waits))


def consequential(
    steps: Mapping[Name, RecordedStep], mutant: Mapping[Name, RecordedStep], waits: Set[Name]
) -> dict[Name, RecordedStep]:
    spared = waits | {name for name, step in steps.items() if _reaches(step) and name not in mutant}
    awaited = {step.waits for name, step in steps.items() if name not in spared}
    kept = {name: step for name, step in steps.items() if name not in spared and not _idle(step, awaited)}
    names = kept.keys() | {(*name, END) for name in kept}
    return {name: replace(step, known={path: known & names for path, known in step.known.items()})
            for name, step in kept.items()}  # fmt: skip


def last_phases(steps: Mapping[Name, RecordedStep]) -> dict[str, int]:
    """Of each barrier that is signalled."""
    last: dict[str, int] = {}
    for step in steps.values():
        if step.signals is not None:
            barrier, phase = step.signals
            last[barrier] = max(phase, last.get(barrier, phase))
    return last


def _waits_for_the_last(step: RecordedStep, last: Mapping[str, int]) -> bool:
    """A phase that no other follows, so that such a wait passes once and for all."""
    return step.waits is not None and not step.touches and step.waits[1] >= last.get(step.waits[0], 0)


def _waits_beyond(step: RecordedStep, awaited: Set[str]) -> bool:
    return step.waits is not None and not step.touches and step.waits[0] not in awaited


def _reaches(step: RecordedStep) -> bool:
    """Into another CTA. The arrival or the copy that does so is a step of its own."""
    return any(isinstance(region.storage, Cta) and not write for _, region, write in step.touches)


def _idle(step: RecordedStep, awaited: set[tuple[str, int] | None]) -> bool:
    told_nobody = step.signals is not None and step.signals not in awaited
    return not step.touches and (told_nobody or (step.waits is not None and step.waits[1] < 0))


RULES: Mapping[str, Callable[[Mapping[Name, RecordedStep], Mapping[Name, RecordedStep]], bool]] = {
    "keeps every order": keeps_every_order,
    "loses only orders between steps that share nothing": keeps_the_orders_that_matter,
    "differs only in arrivals and waits without a consequence": differs_where_nobody_waits,
}


@functools.cache
def kernel_steps(name: str, case: Case) -> dict[Name, RecordedStep]:
    return steps(kernel(name), case)


# the study


@dataclass(frozen=True)
class Outcome:
    """What became of one case. how: the findings' codes, "values", "does not compile", a rule, or a reason."""

    mutant: Mutant
    case: Case
    verdict: str
    how: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.verdict} {self.mutant} | {self.mutant.code} | {self.case} | {', '.join(self.how)}"


def judge(mutant: Mutant, case: Case, folder: Path) -> Outcome:
    return Outcome(mutant, case, *_judge(mutant, case, folder))


def _judge(mutant: Mutant, case: Case, folder: Path) -> tuple[str, tuple[str, ...]]:
    name = kernel(mutant.rung).__name__
    try:
        cls = load(mutant.source, name, folder)
        run, right = execute(cls, case)
    except CompileError:
        return "killed", ("does not compile",)
    except InputError:
        return "killed", ("is refused",)
    codes = tuple(sorted({finding.code for finding in run.findings}))
    if codes or not right:
        return "killed", codes or ("values",)
    if mutant.operator in COMPUTED:
        same = program(cls, case) == program(kernel(mutant.rung), case)
        return ("equivalent", ("compiles to the same program",)) if same else _excused(mutant)
    whole, mine = kernel_steps(mutant.rung, case), steps(cls, case)
    for rule, holds in RULES.items():
        if holds(whole, mine):
            return "equivalent", (rule,)
    return _excused(mutant)


def program(cls: Any, case: Case) -> str:
    """Return the text of the program; a line that this case does not reach has no part in it."""
    return str(prepared(cls, case)[2].program)


def _excused(mutant: Mutant) -> tuple[str, tuple[str, ...]]:
    reason = EXCEPTIONS.get((mutant.rung.partition(" of ")[0], mutant.operator, mutant.code))
    return ("exception", (reason,)) if reason else ("survived", ())


def judge_all(mutant: Mutant, each: int | None = None) -> list[Outcome]:
    """Judge one mutant in all of its cases, or in so many, in a process that does nothing else meanwhile."""
    torch.set_num_threads(1)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in drawn(mutant, each):
            outcomes.append(judge(mutant, case, Path(folder)))
            if mutant.operator in COMPUTED and outcomes[-1].verdict == "killed":
                right = "equivalent", ("right in this case, and killed in another one",)
                return [one if one.verdict != "survived" else Outcome(mutant, one.case, *right) for one in outcomes]
    return outcomes
