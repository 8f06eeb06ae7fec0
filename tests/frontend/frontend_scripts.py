"""Small scripts for the tests of the frontend: one for each kind of code that a line or a name can come from.

tilus reads the source of a script with `inspect` and refuses postponed annotations, so that they live here.
"""

import tilus
from tilus import DataType, RegisterLayout, RegisterTensor, boolean, float16, float32, int32, uint32, void_p
from tilus.ir.layout.ops import column_local, local, replicated
from tilus.utils import cdiv


class Ring(tilus.Class):
    """A helper object: what it binds to self is named after the variable that holds the object."""

    def __init__(self, stages: int):
        self.stages: int = stages
        self.full = self.mbarrier.alloc([1 for _ in range(stages)])
        self.stage: int32 = 0
        self.phase: uint32 = 0

    def barrier(self) -> RegisterTensor:
        return self.full[self.stage]

    def acquire(self):
        self.mbarrier.wait(self.full[self.stage], phase=self.phase)

    def advance(self):
        self.stage = (self.stage + 1) % self.stages
        self.phase = self.phase ^ (self.stage == 0)


@tilus.autotune("block_m, block_n", [(128, 64), (128, 128)])
@tilus.autotune("stages", [2, 3])
class TmaMatmul(tilus.Script):
    """TMA, mbarriers and tcgen05, with a helper object and barriers unpacked from a list."""

    def __init__(self, block_m: int, block_n: int, stages: int, block_k: int = 32):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.stages = stages

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = cdiv(m, self.block_m), cdiv(n, self.block_n)
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, self.block_n, self.block_k])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.block_m, self.block_n])
        done, _spare = self.mbarrier.alloc([1, 1]).tolist()
        done_phase: uint32 = 0
        ring = Ring(self.stages)
        self.sync()
        for offset_k in range(0, k, self.block_k):
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        ring.barrier(),
                        transaction_bytes=s_a[0].nbytes + s_b[0].nbytes,
                    )
                self.tma.global_to_shared(
                    src=g_a,
                    dst=s_a[ring.stage],
                    offsets=[self.blockIdx.x * self.block_m, offset_k],
                    mbarrier=ring.barrier(),
                )
                self.tma.global_to_shared(
                    src=g_b,
                    dst=s_b[ring.stage],
                    offsets=[self.blockIdx.y * self.block_n, offset_k],
                    mbarrier=ring.barrier(),
                )
                ring.acquire()
                self.tcgen05.mma(
                    s_a[ring.stage],
                    s_b[ring.stage].transpose(),
                    t_acc,
                    enable_input_d=offset_k != 0,
                )
                self.tcgen05.commit(mbarrier=done)
                self.mbarrier.wait(done, phase=done_phase)
                done_phase ^= 1
            ring.advance()
            self.sync()
        r_acc = self.tcgen05.load(t_acc)
        self.tcgen05.wait_load()
        offsets = [self.blockIdx.x * self.block_m, self.blockIdx.y * self.block_n]
        self.store_global(g_c, r_acc.to(float16), offsets=offsets)
        self.sync()
        self.tcgen05.dealloc(t_acc)


class Arithmetic(tilus.Script):
    """Registers only, with every control statement, an assumption and both kinds of print."""

    def __init__(self):
        super().__init__()

    def __call__(self, n: int32, limit: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = cdiv(n, 128)
        self.attrs.warps = 4
        self.assume(n % 4 == 0 and limit % 2 == 0)
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n])
        offset: int32 = self.blockIdx.x * 128
        x = self.load_global(
            g_x,
            offsets=[offset],
            shape=[128],
        )
        y = self.register_tensor(dtype=float32, shape=[128], init=lambda i: i)
        x = x * y + 1.0
        step: int32 = 0
        while step < limit:
            if step > 3:
                break
            elif step == 2:
                x = self.exp(x)
            else:
                x += y
            step += 1
        for i in self.range(4, unroll=2):
            x = self.abs(x) + y
        for j in range(1, n, 3):
            x -= y
        total = self.sum(x, dim=0, keepdim=True)
        self.printf("step %d\n", step)
        self.print_tensor("total", total)
        self.store_global(g_y, x, offsets=[offset])


class Doubler(tilus.Class):
    def __init__(self, factor: int):
        self.factor: int = factor

    def apply(self, value: RegisterTensor) -> RegisterTensor:
        scaled = value * self.factor
        return scaled


class Inlined(tilus.Script):
    """Methods of the script and of an object, which tilus inlines."""

    def __init__(self):
        super().__init__()
        self.block = 128

    def read(self, ptr: ~float32, n: int32) -> RegisterTensor:
        g_in = self.global_view(ptr, dtype=float32, shape=[n])
        values = self.load_global(g_in, offsets=[self.blockIdx.x * self.block], shape=[self.block])
        return values

    def write(self, ptr: ~float32, n: int32, values: RegisterTensor):
        g_out = self.global_view(ptr, dtype=float32, shape=[n])
        self.store_global(g_out, values, offsets=[self.blockIdx.x * self.block])

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = cdiv(n, self.block)
        self.attrs.warps = 4
        doubler = Doubler(2)
        x = self.read(x_ptr, n)
        self.write(y_ptr, n, doubler.apply(x))


class CpAsync(tilus.Script):
    """cp.async, shared memory that is freed and used again, attributes of the script, an mma.sync product."""

    def __init__(self, stages: int = 2, copies: int = 1, debug: bool = False):
        super().__init__()
        self.stages = stages
        self.copies = copies

    def __call__(self, n: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float32, scale: float = 1.0):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_a = self.global_view(a_ptr, dtype=float16, shape=[16, n])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, 16])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[16, 16])
        self.s_a = self.shared_tensor(dtype=float16, shape=[self.stages, 16, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, 32, 16])
        acc = self.register_tensor(dtype=float32, shape=[16, 16], init=0.0)
        for offset in range(0, n, 32):
            self.copy_async(g_a, self.s_a[0], offsets=[0, offset])
            self.copy_async(g_b, s_b[0], offsets=[offset, 0])
            self.copy_async_commit_group()
            self.copy_async_wait_group(0)
            self.sync()
            a = self.load_shared(self.s_a[0])
            acc = self.dot(a, self.load_shared(s_b[0]), acc)
            self.sync()
        self.free_shared(self.s_a)
        self.free_shared(s_b)
        s_c = self.shared_tensor(dtype=float32, shape=[16, 16])
        self.store_shared(s_c, acc)
        self.sync()
        self.store_global(g_c, self.load_shared(s_c), offsets=[0, 0])


class TensorMemory(tilus.Script):
    """One tcgen05 allocation, given back or not; printing it makes a pass insert instructions."""

    def __init__(self, leak: bool = False):
        super().__init__()
        self.leak = leak

    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, 32])
        self.tcgen05.store(t_acc, src=self.register_tensor(dtype=float32, shape=[128, 32], init=0.0))
        self.tcgen05.wait_store()
        self.print_tensor("accumulator", t_acc)
        self.sync()
        if not self.leak:
            self.tcgen05.dealloc(t_acc)


# --- scripts that tilus refuses, each at another stage


class TooMuchShared(tilus.Script):
    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        s_big = self.shared_tensor(dtype=float32, shape=[64 * 1024])
        self.free_shared(s_big)


class NoLayout(tilus.Script):
    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        self.sync()
        r_lonely = self.register_tensor(dtype=float32, shape=[64], init=0.0)
        s_lonely = self.shared_tensor(dtype=float32, shape=[64])
        self.store_shared(s_lonely, r_lonely)


class WrongShapes(tilus.Script):
    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        s_x = self.shared_tensor(dtype=float32, shape=[64])
        r_x = self.register_tensor(dtype=float32, shape=[32], init=0.0)
        self.store_shared(s_x, r_x)


class WrongAssume(tilus.Script):
    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        self.sync()
        self.assume(n > 3)


class UndefinedName(tilus.Script):
    def broken(self, n: int32):
        self.sync()
        self.printf("%d\n", nothing)  # noqa: F821

    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        self.broken(n)


class RaisesInInit(tilus.Script):
    def __init__(self, block: int = 3):
        super().__init__()
        assert block % 2 == 0, "block must be even"

    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1


@tilus.autotune("block", [3, 4, 5, 6])
class OddFails(RaisesInInit):
    """Half of its space does not build."""


class NoCall(tilus.Script):
    pass


class OfList(tilus.Script):
    def __call__(self, m: list):
        self.attrs.blocks = m


class NoAnnotation(tilus.Script):
    def __call__(self, n):
        self.attrs.blocks = 1


class Scalars(tilus.Script):
    """One parameter of each kind."""

    def __call__(self, n: int, name: str, flag: bool, rate: float, m: int32, on: boolean, p: ~float32, q: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1


class OneFloat(tilus.Script):
    def __call__(self, factor: float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1


class Debugged(tilus.Script):
    debug_schedule = {"block": 8}

    def __init__(self, block: int, warps: int = 4):
        super().__init__()
        self.warps = warps

    def __call__(self, n: int32):
        self.attrs.blocks = n
        self.attrs.warps = self.warps
        self.sync()


class Completing(tilus.Script):
    """Chooses its own `__init__` arguments, from pins, arguments and target."""

    def __init__(self, block: int = 64, label: str = ""):
        super().__init__()

    @classmethod
    def complete(cls, pins, args, target):
        return {"block": pins.get("block", args[0] // 2), "label": target}

    def __call__(self, n: int):
        self.attrs.blocks = 1
        self.attrs.warps = 1


class Sliced(tilus.Script):
    """Each thread has 2 x 4 elements, row by row, and stores a slice: row 1, or column 1."""

    def __init__(self, row: bool):
        super().__init__()
        self.row = row
        self.layout = local(2, 1, 4).spatial(1, 32, 1)

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32, 4])
        whole = self.load_global(g_x, offsets=[0, 0, 0], shape=[2, 32, 4])
        self.annotate_layout(whole, self.layout)
        if self.row:
            g_y = self.global_view(y_ptr, dtype=float32, shape=[32, 4])
            self.store_global(g_y, whole[1], offsets=[0, 0])
        else:
            g_z = self.global_view(y_ptr, dtype=float32, shape=[2, 32])
            self.store_global(g_z, whole[:, :, 1], offsets=[0, 0])


class Registers(tilus.Script):
    """A tile of 16 x 32 in the registers of a warp, a part of it read or written, and what comes of it stored."""

    def __init__(self, layout: RegisterLayout, part: str = ""):
        super().__init__()
        self.layout = layout
        self.part = part

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=int32, shape=[16, 32])
        x = self.load_global(g_x, offsets=[0, 0], shape=[16, 32])
        self.annotate_layout(x, self.layout)
        if self.part == "element":
            x[3, 2] = 5
        if self.part == "wrong threads":
            column = self.squeeze(self.load_global(g_x, offsets=[0, 3], shape=[16, 1]), dim=1)
            self.annotate_layout(column, replicated(16, num_workers=32))
            x[:, 1] = column
        if self.part == "row":
            self.store_global(self.global_view(y_ptr, dtype=int32, shape=[32]), x[3], offsets=[0])
        elif self.part == "column":
            self.store_global(self.global_view(y_ptr, dtype=int32, shape=[16]), x[:, 5], offsets=[0])
        elif self.part == "squeezed":
            y = self.squeeze(self.unsqueeze(x, dim=1), dim=1)
            self.store_global(self.global_view(y_ptr, dtype=int32, shape=[16, 32]), y, offsets=[0, 0])
        else:
            self.store_global(self.global_view(y_ptr, dtype=int32, shape=[16, 32]), x, offsets=[0, 0])


class Reduced(tilus.Script):
    """One reduction along the second dimension of a tile."""

    def __init__(self, op: str, dtype: DataType, shape: list, layout, warps: int):
        super().__init__()
        self.op = op
        self.dtype = dtype
        self.shape = shape
        self.layout = layout
        self.warps = warps

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=self.shape)
        x = self.load_global(g_x, offsets=[0, 0], shape=self.shape)
        self.annotate_layout(x, self.layout)
        if self.op == "sum":
            y = self.sum(x, dim=1)
        elif self.op == "max":
            y = self.max(x, dim=1)
        else:
            y = self.min(x, dim=1)
        self.store_global(self.global_view(y_ptr, dtype=self.dtype, shape=y.shape), y, offsets=[0])


class PairedDot(tilus.Script):
    """mma.sync of operands of which each thread holds four neighbours along k, for two instructions."""

    def __init__(self, in_place: bool = True):
        super().__init__()
        self.in_place = in_place

    def __call__(self, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        a = self.load_global(self.global_view(a_ptr, dtype=float16, shape=[16, 32]), offsets=[0, 0], shape=[16, 32])
        b = self.load_global(self.global_view(b_ptr, dtype=float16, shape=[32, 8]), offsets=[0, 0], shape=[32, 8])
        c = self.load_global(self.global_view(c_ptr, dtype=float16, shape=[16, 8]), offsets=[0, 0], shape=[16, 8])
        self.annotate_layout(a, column_local(2, 2).spatial(8, 4).local(1, 4))
        self.annotate_layout(b, local(2, 1).column_spatial(4, 8).local(4, 1))
        self.annotate_layout(c, local(2, 1).spatial(8, 4).local(1, 2))
        g_d = self.global_view(d_ptr, dtype=float16, shape=[16, 8])
        if self.in_place:
            self.dot(a, b, c, out=c)
            self.store_global(g_d, c, offsets=[0, 0])
        else:
            d = self.dot(a, b, c)
            self.annotate_layout(d, local(2, 1).spatial(8, 4).local(1, 2))
            self.store_global(g_d, d, offsets=[0, 0])


class Remapped(tilus.Script):
    """The CTA of rank 1 lets the name of the barriers, or of the first one, stand for those of rank 0."""

    def __init__(self, whole: bool):
        super().__init__()
        self.whole = whole

    def __call__(self, x_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[32, 64])
        s = self.shared_tensor(dtype=float16, shape=[16, 64])
        full = self.mbarrier.alloc(counts=[1, 1])
        self.cluster.sync()
        first = full[0]
        if self.cluster.blockRank == 0:
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(first, transaction_bytes=4096)
        elif self.whole:
            full = self.cluster.map_shared_addr(full, target_rank=0)
            first = full[0]
        else:
            first = self.cluster.map_shared_addr(first, target_rank=0)
        row = 16 * self.cluster.blockRank
        self.tma.global_to_shared(src=g_x, dst=s, offsets=[row, 0], mbarrier=first, cta_group=2)
        if self.cluster.blockRank == 0:
            self.mbarrier.wait(full[0], phase=0)
        self.cluster.sync()


class Starred(tilus.Script):
    def __call__(self, n: int32, *args: int32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
