"""Sum over the parts of a product whose K is divided among CTAs, with its epilogue.

For few tiles with a long K, `HopperMatmul` with `divides_k` computes sums over parts of K. This kernel adds the parts,
which are still in the L2. All SMs share the elements of C, and the lanes of a warp share the parts, so that each thread
has few loads. An example of rows = 4, in which a warp has 32 elements of C:

    lane            0      1     ...     7      8      9     ...    31
    part            0      0             0      1      1             3       then part + 4, + 8, ...
    elements      0..3   4..7         28..31  0..3   4..7         28..31

Each lane adds its parts in order, then the lanes' sums are added in a fixed order: C has the same bits in every run.
"""

from dataclasses import replace

import torch
from tilus import float32, int32, void_p
from tilus.ir.layout.ops import spatial
from tilus.utils import cdiv

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpus import gpu_for_target
from blackwell_matmul.kernels.host.forms import ABSENT, OUTPUTS, check_extra, pinned_form
from blackwell_matmul.kernels.host.matmul import (
    check_device,
    check_is_tensor,
    check_layout,
    check_memory_of_c,
    check_shape,
    size,
)
from blackwell_matmul.kernels.parts.epilogue import EpilogueScript
from blackwell_matmul.problem.form import PLAIN, Form

WARPS = 4
LOADED_NUMBERS = 4
"""Number of fp32 numbers in the widest load, of 16 bytes."""

ROWS, FEW_LOADS = (1, 2, 4, 8, 16), 3
"""Values of `rows`, and the maximum loads of a lane. With more loads, more rows were faster (8 sizes on an H200)."""


class SumOfParts(EpilogueScript):
    """C[m, n] = epilogue(sums[0, m, n] + sums[1, m, n] + ..), with sums[parts, m, line] in fp32. line: n, rounded up so
    that rows are multiples of 16 bytes.

    rows: number of lanes that share an element; each lane adds different parts. block_n: columns of C of a CTA.
    """

    target = "sm_90a"
    knobs = ("rows", "block_n")
    divisors = {"n": 8, "line": LOADED_NUMBERS}

    def __init__(self, rows: int, block_n: int, form: Form):
        super().__init__()
        self.take_form(form)
        self.rows = rows
        self.block_n = self.e_block_n = block_n
        lanes = 32 // rows  # of a warp, that load one part
        across = min(lanes, block_n // LOADED_NUMBERS)
        warps_across = min(WARPS, block_n // LOADED_NUMBERS // across)
        self.block_m = lanes // across * (WARPS // warps_across)
        places = spatial(1, WARPS // warps_across, warps_across).spatial(rows, lanes // across, across)
        self.layout = places.local(1, 1, LOADED_NUMBERS)

    def __call__(
        self,
        parts: int32,
        m: int32,
        n: int32,
        line: int32,
        sums_ptr: void_p,
        c_ptr: void_p,
        bias_ptr: void_p = 0,
        residual_ptr: void_p = 0,
    ):
        tiles_n: int32 = cdiv(n, self.block_n)
        self.attrs.blocks = cdiv(m, self.block_m) * cdiv(n, self.block_n)
        self.attrs.warps = WARPS
        row: int32 = self.blockIdx.x // tiles_n * self.block_m
        column: int32 = self.blockIdx.x % tiles_n * self.block_n

        self.open_epilogue(1, m, n, bias_ptr, residual_ptr, ABSENT, ABSENT)
        g_sums = self.global_view(sums_ptr, dtype=float32, shape=[parts, m, line])
        g_c = self.global_view(c_ptr, dtype=self.c_dtype, shape=[m, n])

        # Global memory -> registers -> global memory. Parts that do not exist are zeros; elements outside of C are not
        # stored.
        r_sums = self.register_tensor(dtype=float32, shape=[self.rows, self.block_m, self.block_n], init=0.0)
        self.annotate_layout(r_sums, self.layout)
        for part in self.range(0, parts, self.rows, unroll=8):
            r_sums += self.load_global(g_sums, offsets=[part, row, column], shape=r_sums.shape)
        r_c = self.finish(self.sum(r_sums, dim=0), 0, row, column)
        self.store_global(g_c, r_c.to(self.c_dtype), offsets=[row, column])

    @classmethod
    def check_arguments(cls, parts, m, n, line, sums, c, bias=ABSENT, residual=ABSENT):
        """Raise InputError for arguments that do not fit together."""
        sizes = {name: size(name, value) for name, value in zip("pmnl", (parts, m, n, line))}
        extra = {name: each for name, each in (("bias", bias), ("residual", residual)) if each is not ABSENT}
        tensors = {"sums": sums, "c": c, **extra}
        for name, tensor in tensors.items():
            check_is_tensor(name, tensor)
        check_device(tensors)
        for name, dims in (("sums", "pml"), ("c", "mn")):
            check_layout(name, tensors[name])
            check_shape(name, tensors[name], dims, sizes)
        if sums.dtype is not torch.float32 or c.dtype not in OUTPUTS:
            offered = " or ".join(map(str, OUTPUTS))
            raise InputError(f"sums is {sums.dtype} and c {c.dtype}; sums must be {torch.float32}, and c {offered}.")
        if line < n or line % LOADED_NUMBERS:
            raise InputError(f"line is {line}; it must be a multiple of {LOADED_NUMBERS}, and n = {n} or more.")
        check_extra(extra, c, {"m": m, "n": n, "batches": 1})
        check_memory_of_c(c, {name: tensor for name, tensor in tensors.items() if name != "c"})

    @classmethod
    def complete(cls, pins, args, target, gpu=None):
        """Return the arguments of `__init__`. rows is the smallest value with which most SMs get a CTA, and lanes have
        few loads."""
        cls.check_arguments(*args)
        parts, m, n, _, _, c, bias, residual = args
        form = pinned_form(pins.get("form", PLAIN))
        epilogue = replace(form.epilogue, bias=bias is not ABSENT, residual=residual is not ABSENT)
        at_once = 32 * WARPS * LOADED_NUMBERS  # numbers that a CTA loads
        wanted = (gpu or gpu_for_target(target)).sm_count * 3 // 4 * at_once
        able = (each for each in ROWS if each >= parts or (m * n * each >= wanted and each * FEW_LOADS >= parts))
        rows = pins.get("rows") or next(able, ROWS[-1])
        columns = min(at_once // rows, max(LOADED_NUMBERS, 1 << (n - 1).bit_length()))
        return {"rows": rows, "block_n": columns, **pins, "form": Form(out=OUTPUTS[c.dtype], epilogue=epilogue)}
