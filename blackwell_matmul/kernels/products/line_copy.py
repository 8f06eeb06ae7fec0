"""Copy of one or two operands whose lines TMA cannot read, into lines that TMA can read.

Lines of the source begin anywhere in memory, so that no wider load than of one element is possible. The lanes of a warp
copy neighbours of a line:

    thread       0   1   ...   31    32  33  ...   63    64 ..      96 .. 127
    line         0   0          0     1   1         1     2          3             then line + 4
    element      0   1         31     0   1        31     0 .. 31    0 .. 31       then element + 32, + 64, ...
"""

from tilus import DataType, int32, void_p
from tilus.ir.layout.ops import local
from tilus.utils import cdiv

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.kernels.host.forms import ABSENT
from blackwell_matmul.kernels.host.matmul import (
    MatmulScript,
    check_device,
    check_dtype,
    check_is_tensor,
    check_memory_of_c,
    check_same,
    check_shape,
    size,
)
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH
from blackwell_matmul.runtime.script import Script

WARPS = 4
LINES, ELEMENTS = 2 * WARPS, 8 * 32
"""Lines and elements of a CTA. Each thread loads 16 elements before it stores one."""


class LineCopy(Script):
    """target[batches, lines, length] = source, and the same for a second operand, if there is one.

    Elements of a line follow each other. between, line: elements from batch to batch, and from line to line, of the
    source. to_line: elements from line to line of the target, whose batches follow each other.
    """

    knobs = ("dtype",)

    def __init__(self, dtype: DataType):
        super().__init__()
        self.dtype = dtype
        self.layout = local(LINES // WARPS, ELEMENTS // 32).spatial(WARPS, 32)

    def __call__(
        self,
        batches: int32,
        lines: int32,
        length: int32,
        between: int32,
        line: int32,
        to_line: int32,
        source_ptr: void_p,
        target_ptr: void_p,
        second_batches: int32 = 0,
        second_lines: int32 = 0,
        second_length: int32 = 0,
        second_between: int32 = 0,
        second_line: int32 = 0,
        second_to_line: int32 = 0,
        second_source_ptr: void_p = 0,
        second_target_ptr: void_p = 0,
    ):
        # CTAs of each operand.
        first = batches * cdiv(lines, LINES) * cdiv(length, ELEMENTS)
        second = second_batches * cdiv(second_lines, LINES) * cdiv(second_length, ELEMENTS)
        self.attrs.blocks = first + second
        self.attrs.warps = WARPS
        if self.blockIdx.x < first:
            self.copy(self.blockIdx.x, batches, lines, length, between, line, to_line, source_ptr, target_ptr)
        else:
            self.copy(
                self.blockIdx.x - first, second_batches, second_lines, second_length, second_between, second_line,
                second_to_line, second_source_ptr, second_target_ptr,
            )  # fmt: skip

    def copy(
        self,
        tile: int32,
        batches: int32,
        lines: int32,
        length: int32,
        between: int32,
        line: int32,
        to_line: int32,
        source_ptr: void_p,
        target_ptr: void_p,
    ):
        """Copy tile number `tile` of an operand."""
        tiles_of_line: int32 = cdiv(length, ELEMENTS)
        tiles: int32 = tiles_of_line * cdiv(lines, LINES)  # of a batch
        batch: int32 = tile // tiles
        first: int32 = tile % tiles // tiles_of_line * LINES
        element: int32 = tile % tiles_of_line * ELEMENTS
        shape = [batches, lines, length]
        g_source = self.global_view(source_ptr, dtype=self.dtype, shape=shape, strides=[between, line, 1])
        g_target = self.global_view(target_ptr, dtype=self.dtype, shape=shape, strides=[lines * to_line, to_line, 1])
        offsets = [batch, first, element]
        r_copy = self.load_global(g_source, offsets=offsets, shape=[LINES, ELEMENTS], dims=[1, 2])
        self.annotate_layout(r_copy, self.layout)
        self.store_global(g_target, r_copy, offsets=offsets, dims=[1, 2])

    @classmethod
    def check_arguments(
        cls,
        batches,
        lines,
        length,
        between,
        line,
        to_line,
        source,
        target,
        second_batches=0,
        second_lines=0,
        second_length=0,
        second_between=0,
        second_line=0,
        second_to_line=0,
        second_source=ABSENT,
        second_target=ABSENT,
    ):
        """Raise InputError for arguments that do not fit together. An absent second operand has zeros."""
        _check_operand(batches, lines, length, between, line, to_line, source, target)
        second = (second_batches, second_lines, second_length, second_between, second_line, second_to_line)
        if second_source is ABSENT and second_target is ABSENT and not any(second):
            return
        _check_operand(*second, second_source, second_target)
        check_same("type", {"source": str(source.dtype), "second_source": str(second_source.dtype)})
        check_device({"source": source, "second_source": second_source})

    @classmethod
    def complete(cls, pins, args, target):
        """Return the arguments of `__init__` for these tensors."""
        cls.check_arguments(*args)
        return {"dtype": MatmulScript.type_named(DTYPE_OF_TORCH[str(args[6].dtype)]), **pins}


def _check_operand(batches, lines, length, between, line, to_line, source, target):
    sizes = {name: size(name, value) for name, value in zip("bml", (batches, lines, length))}
    strides = {"source": (between, line, 1), "target": (lines * to_line, to_line, 1)}
    for name, tensor in {"source": source, "target": target}.items():
        check_is_tensor(name, tensor)
        check_dtype(name, tensor)
        check_shape(name, tensor, "bml", sizes)
        if tuple(tensor.stride()) != strides[name]:
            raise InputError(f"{name} has strides {tuple(tensor.stride())}, and is passed with {strides[name]}.")
    check_same("type", {"source": str(source.dtype), "target": str(target.dtype)})
    check_device({"source": source, "target": target})
    check_memory_of_c(target, {"source": source})
