"""Vector add: TMA loads both operands, threads add them, TMA stores the sum."""

from tilus import DataType, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.primitives.tensors import check_alike, check_count, element_type
from blackwell_matmul.runtime.script import Script


class VectorAdd(Script):
    """z = x + y for vectors of n elements, any n: a tensor map of one dimension has no stride to align."""

    knobs = ("block",)

    def __init__(self, dtype: DataType, block: int = 256):
        super().__init__()
        self.dtype = dtype
        self.block = block

    def __call__(self, n: int32, x_ptr: void_p, y_ptr: void_p, z_ptr: void_p):
        self.attrs.blocks = cdiv(n, self.block)
        self.attrs.warps = 1
        offset: int32 = self.block * self.blockIdx.x
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[n])
        g_y = self.global_view(y_ptr, dtype=self.dtype, shape=[n])
        g_z = self.global_view(z_ptr, dtype=self.dtype, shape=[n])
        s_x = self.shared_tensor(dtype=self.dtype, shape=[self.block])
        s_y = self.shared_tensor(dtype=self.dtype, shape=[self.block])
        arrived = self.mbarrier.alloc(counts=1)
        self.sync()  # every lane sees the initialised barrier

        # Two copies, one barrier: its phase ends when the bytes of both have arrived.
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=s_x.nbytes + s_y.nbytes)
        self.tma.global_to_shared(src=g_x, dst=s_x, offsets=[offset], mbarrier=arrived)
        self.tma.global_to_shared(src=g_y, dst=s_y, offsets=[offset], mbarrier=arrived)
        self.mbarrier.wait(arrived, phase=0)

        # The sum takes the place of x. Threads write through the generic proxy and TMA reads through the async proxy:
        # each writer fences, then all meet.
        total = self.load_shared(s_x) + self.load_shared(s_y)
        self.sync()
        self.store_shared(s_x, total)
        self.fence.proxy_async(space="shared")
        self.sync()
        self.tma.shared_to_global(s_x, g_z, offsets=[offset])
        self.tma.commit_group()
        self.tma.wait_group(n=0, read=True)  # shared memory must last until TMA has read it

    @classmethod
    def check_arguments(cls, n, x, y, z):
        """Raise InputError for tensors that do not fit, or that no tensor map can describe."""
        check_alike({"x": x, "y": y}, {"z": z})
        check_count(n, x)

    @classmethod
    def complete(cls, pins, args, target):
        """Return the arguments of `__init__` for these tensors."""
        cls.check_arguments(*args)
        return {"dtype": element_type(args[1]), "block": 256, **pins}
