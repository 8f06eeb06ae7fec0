"""One script that copies between two tensors of any types, by each way that tilus has."""

import tilus
from tilus import int32, void_p


class Copies(tilus.Script):
    """`how` names the instruction; the source is of type `a`, the destination of type `b`."""

    def __init__(self, how: str, a: tilus.DataType, b: tilus.DataType):
        super().__init__()
        self.how = how
        self.a = a
        self.b = b

    def __call__(self, shift: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=self.a, shape=[128, 64])
        y = self.global_view(y_ptr, dtype=self.b, shape=[128, 64])
        if self.how == "store_global":
            tile = self.load_global(x, offsets=[0, 0], shape=[128, 64])
            self.store_global(y, tile, offsets=[0, 0])
        if self.how == "copy_async":
            into = self.shared_tensor(dtype=self.b, shape=[128, 64])
            self.copy_async(x, into, offsets=[0, 0])
            self.copy_async_wait_all()
            self.sync()
            self.store_global(y, self.load_shared(into), offsets=[0, 0])
        if self.how == "store_shared":
            into = self.shared_tensor(dtype=self.b, shape=[128, 64])
            self.store_shared(into, self.load_global(x, offsets=[0, 0], shape=[128, 64]))
            self.sync()
            self.store_global(y, self.load_shared(into), offsets=[0, 0])
        if self.how == "assign":
            into = self.register_tensor(dtype=self.b, shape=[128, 64], init=0)
            self.assign(into, self.load_global(x, offsets=[0, 0], shape=[128, 64]))
            self.store_global(y, into, offsets=[0, 0])
        if self.how == "an assignment to a slice":
            into = self.register_tensor(dtype=self.b, shape=[128, 64], init=0)
            into[0:128, 0:64] = self.load_global(x, offsets=[0, 0], shape=[128, 64])
            self.store_global(y, into, offsets=[0, 0])
        if self.how == "tma.global_to_shared":
            into = self.shared_tensor(dtype=self.b, shape=[128, 64])
            full = self.mbarrier.alloc(counts=[1])
            self.sync()
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[0], transaction_bytes=into.nbytes)
                self.tma.global_to_shared(src=x, dst=into, offsets=[0, 0], mbarrier=full[0])
            self.mbarrier.wait(full[0], phase=0)
            self.store_global(y, self.load_shared(into), offsets=[0, 0])
        if self.how == "tma.shared_to_global":
            out_of = self.shared_tensor(dtype=self.a, shape=[128, 64])
            self.store_shared(out_of, self.load_global(x, offsets=[0, 0], shape=[128, 64]))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                self.tma.shared_to_global(out_of, y, offsets=[0, 0])
                self.tma.commit_group()
                self.tma.wait_group(n=0)
        if self.how == "tcgen05.store":
            into = self.tcgen05.alloc(dtype=self.b, shape=[128, 64])
            self.tcgen05.store(into, self.load_global(x, offsets=[0, 0], shape=[128, 64]))
            self.tcgen05.wait_store()
            self.sync()
            tile = self.tcgen05.load(into)
            self.tcgen05.wait_load()
            self.store_global(y, tile, offsets=[0, 0])
            self.sync()
            self.tcgen05.dealloc(into)


class Dims(tilus.Script):
    """y = x, a square tile of it, by the way that `how` names, with these dims."""

    target = "sm_90a"

    def __init__(self, how: str, dims: list[int]):
        super().__init__()
        self.how = how
        self.dims = dims

    def __call__(self, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.global_view(x_ptr, dtype=int32, shape=[32, 32])
        y = self.global_view(y_ptr, dtype=int32, shape=[32, 32])
        s = self.shared_tensor(dtype=int32, shape=[32, 32])
        if self.how == "copy_async":
            self.copy_async(x, s, offsets=[0, 0], dims=self.dims)
            self.copy_async_wait_all()
            self.sync()
            self.store_global(y, self.load_shared(s), offsets=[0, 0])
        elif self.how == "load_global":
            self.store_global(y, self.load_global(x, offsets=[0, 0], shape=[32, 32], dims=self.dims), offsets=[0, 0])
        else:
            tile = self.load_global(x, offsets=[0, 0], shape=[32, 32])
            if self.how == "store_global":
                self.store_global(y, tile, offsets=[0, 0], dims=self.dims)
            else:
                self.store_shared(s, tile)
                self.fence.proxy_async(space="shared")
                self.sync()
                self.tma.shared_to_global(s, y, offsets=[0, 0], dims=self.dims)
                self.tma.commit_group()
                self.tma.wait_group(0)
