"""Copy a tensor without TMA: each thread loads into registers and stores from there. To compare with."""

from tilus import DataType, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.primitives.tensors import check_alike, element_type
from blackwell_matmul.runtime.script import Script


class PlainCopy(Script):
    """y = x for contiguous tensors of one shape, whose number of elements is a constant of the kernel.

    With a constant tilus knows where bounds can lie, and moves 16 bytes at a time.
    """

    knobs = ("block", "warps")

    def __init__(self, dtype: DataType, n: int, block: int, warps: int):
        super().__init__()
        self.dtype = dtype
        self.n = n
        self.block = block
        self.warps = warps

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = cdiv(self.n, self.block)
        self.attrs.warps = self.warps
        offset: int32 = self.block * self.blockIdx.x
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[self.n])
        g_y = self.global_view(y_ptr, dtype=self.dtype, shape=[self.n])
        self.store_global(g_y, self.load_global(g_x, offsets=[offset], shape=[self.block]), offsets=[offset])

    @classmethod
    def check_arguments(cls, x, y):
        """Raise InputError, one sentence, for tensors that TMA could not copy either."""
        check_alike({"x": x}, {"y": y})

    @classmethod
    def complete(cls, pins, args, target):
        """Return the arguments of `__init__` for these tensors."""
        cls.check_arguments(*args)
        return {"dtype": element_type(args[0]), "n": args[0].numel(), "block": 2048, "warps": 4, **pins}
