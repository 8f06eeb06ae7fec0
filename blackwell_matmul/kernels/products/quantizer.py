"""Kernel of `quantize`: a matrix of 16 or 32 bits to mxfp8, mxfp4 or nvfp4, with scales in torch's SWIZZLE_32_4_4.

A CTA computes an atom of scales, 128 rows by 4 blocks. Each thread has whole blocks, so that threads exchange nothing:

    128 rows x 4 blocks of nvfp4    thread     0        1        2        3     row 0, and 32, 64, 96
                                               4        5        6        7     row 1, and 33, 65, 97
                                    elements   0..15   16..31   32..47   48..63
"""

from tilus import DataType, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.kernels.host.block_scaled import check_number
from blackwell_matmul.kernels.host.forms import ABSENT
from blackwell_matmul.kernels.host.matmul import check_device, check_is_tensor, check_layout, check_shape, size
from blackwell_matmul.kernels.parts.block_quantizer import BlockQuantizer
from blackwell_matmul.kernels.primitives.tensors import TILUS_NAMES, element_type
from blackwell_matmul.lang import FORMATS
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.runtime.script import Script


class BlackwellQuantizer(Script):
    """data, scales = quantize(x[batches, m, k]); k is a multiple of the block.

    factor: second scale of nvfp4, one float32, or 0. data: bytes [batches, m, k], or [batches, m, k / 2] with two e2m1
    in a byte. scales: bytes [batches, scales in whole atoms].
    """

    knobs = ("dtype", "scaling")
    targets = ("sm_100a", "sm_103a", "sm_120a", "sm_121a")

    def __init__(self, dtype: str, x_dtype: DataType, scaling: str = "rceil", two_levels: bool = False):
        super().__init__()
        self.dtype = dtype
        self.x_dtype = x_dtype
        self.scaling = scaling
        self.two_levels = two_levels
        self.block = FORMATS[dtype].block
        self.threads = 8 * self.block  # each has 64 elements

    def __call__(
        self, batches: int32, m: int32, k: int, x_ptr: void_p, factor_ptr: void_p, data_ptr: void_p, scale_ptr: void_p
    ):
        tiles: int32 = cdiv(m, 128)
        atoms = cdiv(k, 4 * self.block)
        self.attrs.blocks = batches * cdiv(m, 128) * cdiv(k, 4 * self.block)
        self.attrs.warps = self.threads // 32
        batch: int32 = self.blockIdx.x // (tiles * atoms)
        row: int32 = self.blockIdx.x // atoms % tiles * 128
        first: int32 = self.blockIdx.x % atoms * 4

        blocks = k // self.block
        element, per_byte = FORMATS[self.dtype].element, FORMATS[self.dtype].per_byte
        g_x = self.global_view(x_ptr, dtype=self.x_dtype, shape=[batches, m, blocks, self.block])
        g_data = self.global_view(data_ptr, dtype=element, shape=[batches, m, blocks, self.block // per_byte])
        quantizer = BlockQuantizer(
            self.dtype, self.scaling, self.two_levels, self.threads, across=4, blocks=4,
            batches=batches, m=m, k=k, scale_ptr=scale_ptr, factor_ptr=factor_ptr,
        )  # fmt: skip

        # Global memory -> registers -> global memory. Elements outside of x are zeros, and are not stored.
        r_x = self.load_global(g_x, offsets=[batch, row, first, 0], shape=[128, 4, self.block], dims=[1, 2, 3])
        r_data, r_scales = quantizer.quantize(r_x.to(float32))
        self.store_global(g_data, r_data, offsets=[batch, row, first, 0], dims=[1, 2, 3])
        quantizer.store_scales(r_scales, batch, row, first)

    @classmethod
    def check_arguments(cls, batches, m, k, x, factor, data, scales):
        """Raise InputError for arguments that fit no format."""
        for name, value in (("batches", batches), ("m", m), ("k", k)):
            size(name, value)
        tensors = {"x": x, "data": data, "scales": scales} | ({} if factor is ABSENT else {"factor": factor})
        for name, tensor in tensors.items():
            check_is_tensor(name, tensor)
            check_layout(name, tensor)
        check_device(tensors)
        if x.dtype not in TILUS_NAMES:
            raise InputError(f"x is {x.dtype}; it must be {' or '.join(map(str, TILUS_NAMES))}.")
        check_shape("x", x, "bmk", {"b": batches, "m": m, "k": k})
        if factor is not ABSENT:
            check_number("factor", factor)

    @classmethod
    def complete(cls, pins, args, target):
        """Return the arguments of `__init__` for these tensors; raise InputError for tensors of another format."""
        cls.check_arguments(*args)
        batches, m, k, x, factor, data, scales = args
        form = BLOCK_SCALED.get(pins.get("dtype"))
        if form is None:
            raise InputError(f"dtype is {shown(pins.get('dtype'))}; pin one of {', '.join(BLOCK_SCALED)}.")
        if k % form.block:
            raise InputError(f"k is {k}; it must be a multiple of {form.block}, a block of {pins['dtype']}.")
        check_shape("data", data, "bmc", {"b": batches, "m": m, "c": k // form.per_byte})
        check_shape("scales", scales, "bs", {"b": batches, "s": form.scales(m, k)})
        return {"x_dtype": element_type(x), "two_levels": factor is not ABSENT, **pins}
