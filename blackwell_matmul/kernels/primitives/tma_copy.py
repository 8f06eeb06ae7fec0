"""Copy a tensor by TMA: global memory -> shared memory -> global memory, one box for each CTA."""

from math import prod

from tilus import DataType, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.primitives.tensors import box_offsets, check_alike, default_box, element_type, plain_box
from blackwell_matmul.runtime.script import Script


class TmaCopy(Script):
    """y = x for contiguous tensors of one shape, with 1 to 5 dimensions; rows are multiples of 16 bytes.

    The shape is constant at compile time: a call with another shape compiles another kernel.
    """

    knobs = ("box",)

    def __init__(self, dtype: DataType, shape: tuple, box: tuple):
        super().__init__()
        self.dtype = dtype
        self.shape = list(shape)
        self.box = list(box)
        self.boxes = [cdiv(extent, step) for extent, step in zip(shape, box)]

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = prod(self.boxes)
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=self.shape)
        g_y = self.global_view(y_ptr, dtype=self.dtype, shape=self.shape)
        tile = self.shared_tensor(dtype=self.dtype, shape=self.box)
        arrived = self.mbarrier.alloc(counts=1)
        self.sync()  # every lane sees the initialised barrier
        offsets = box_offsets(self.blockIdx.x, self.boxes, self.box)

        # One thread announces the bytes of the whole box: TMA counts those outside of x too, which arrive as zeros.
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=tile.nbytes)
        self.tma.global_to_shared(src=g_x, dst=tile, offsets=offsets, mbarrier=arrived)
        self.mbarrier.wait(arrived, phase=0)

        # TMA has written the box and TMA reads it: one proxy, no fence. Elements outside of y are not stored.
        self.tma.shared_to_global(tile, g_y, offsets=offsets)
        self.tma.commit_group()
        self.tma.wait_group(n=0, read=True)  # shared memory must last until TMA has read it

    @classmethod
    def check_arguments(cls, x, y):
        """Raise InputError for tensors that do not fit, or that no tensor map can describe."""
        check_alike({"x": x}, {"y": y})

    @classmethod
    def complete(cls, pins, args, target):
        """Return the arguments of `__init__` for these tensors."""
        cls.check_arguments(*args)
        x = args[0]
        box = pins.get("box") or default_box(tuple(x.shape), x.element_size())
        return {"dtype": element_type(x), "shape": tuple(x.shape), "box": plain_box(box, x)}
