"""Small scripts of scalars, control flow, threads, printing and synchronisation."""

import tilus
from tilus import float16, float32, int32, int64, uint32
from tilus.hidet.ir.primitives.cuda.cvta import cvta_generic_to_shared


class Scalars(tilus.Script):
    """Integer arithmetic, one result an element."""

    def __call__(self, a: int32, b: int32, u: uint32, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=int32, shape=[15])
        total: int32 = a + b
        product: int32 = a * b
        quotient: int32 = a // b
        rest: int32 = a % b
        shifted: uint32 = u << 4
        below: uint32 = u - 2000000000
        wide: int64 = total
        ordered: int32 = (a < b) + 2 * (a == b) + 4 * (a >= b)
        low: int32 = min(a, b)
        high: int32 = max(a, b)
        picked: int32 = a if a % 2 == 0 else b
        mask: int32 = (a & 12) | (b ^ 3)
        self.put(g_y, 0, total)
        self.put(g_y, 1, product)
        self.put(g_y, 2, quotient)
        self.put(g_y, 3, rest)
        self.put(g_y, 4, int32(shifted >> 8))
        self.put(g_y, 5, int32(below >> 1))
        self.put(g_y, 6, int32(wide * 3))
        self.put(g_y, 7, ordered)
        self.put(g_y, 8, low)
        self.put(g_y, 9, high)
        self.put(g_y, 10, picked)
        self.put(g_y, 11, mask)
        self.put(g_y, 12, int32(a < u))
        self.put(g_y, 13, int32((u // a) >> 1))
        self.put(g_y, 14, int32((u % a) >> 1))

    def put(self, g_y: tilus.GlobalTensor, index: int, value: int32):
        tile = self.register_tensor(dtype=int32, shape=[1], init=lambda i: value)
        self.store_global(g_y, tile, offsets=[index])


class Floats(tilus.Script):
    """Float scalars hold what their type can hold."""

    def __call__(self, x: float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        third: float32 = x / 3.0
        y = self.register_tensor(dtype=float32, shape=[4], init=lambda i: third + i)
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[4]), y, offsets=[0])


class Loops(tilus.Script):
    """Every kind of loop adds what it saw to one counter."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def __call__(self, n: int32, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1  # with two, one could still store the 7 after the other stored the total
        total: int32 = 0
        if self.kind == "range":
            for i in range(n):
                total += i
        elif self.kind == "start":
            for i in range(3, n, 4):
                total += i
        elif self.kind == "unroll":
            for i in self.range(0, n, 1, unroll=4):
                total += i * i
        elif self.kind == "unroll_all":
            for i in self.range(0, 6, 1, unroll="all"):
                total += i * n
        elif self.kind == "nested":
            for i in range(n):
                for j in range(i):
                    if j > 4:
                        break
                    total += i * 10 + j
        elif self.kind == "while":
            i: int32 = n
            while i != 1:
                if i % 2 == 0:
                    i = i // 2
                else:
                    i = i * 3 + 1
                total += 1
        elif self.kind == "break":
            k: int32 = 0
            while k < 1000:
                k += 1
                if k == n:
                    break
                elif k > n:
                    total += 1000
                else:
                    total += k
        elif self.kind == "return":
            tile = self.register_tensor(dtype=int32, shape=[1], init=lambda i: 7)
            self.store_global(self.global_view(y_ptr, dtype=int32, shape=[1]), tile, offsets=[0])
            if n > 5:
                return
            total = -1
        result = self.register_tensor(dtype=int32, shape=[1], init=lambda i: total)
        self.store_global(self.global_view(y_ptr, dtype=int32, shape=[1]), result, offsets=[0])


class Groups(tilus.Script):
    """Each thread group writes its own part."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=int32, shape=[128])
        if self.kind == "groups":
            with self.thread_group(0, 64):
                self.fill(g_y, 0, 64, 1)
            with self.thread_group(64, 64):
                self.fill(g_y, 64, 64, 2)
        elif self.kind == "warps":
            with self.single_warp():
                self.fill(g_y, 0, 32, 1)
            with self.single_warp(2):
                self.fill(g_y, 64, 32, 3)
            with self.warp_group(1, 1):
                self.fill(g_y, 32, 32, 2)
            with self.warp_group(3, 1):
                self.fill(g_y, 96, 32, 4)
        elif self.kind == "halves":
            for half in self.range(0, 8, 1, unroll="all"):
                with self.thread_group(0, 16):
                    self.fill(g_y, half * 16, 16, half)
        elif self.kind == "upper half":
            with self.thread_group(48, 16):
                self.fill(g_y, 48, 16, 9)
        elif self.kind == "nested":
            with self.thread_group(64, 64):
                with self.thread_group(32, 32):
                    self.fill(g_y, 96, 32, 5)
                self.sync()
        elif self.kind == "single":
            with self.single_thread():
                self.fill(g_y, 3, 1, 11)
            with self.single_thread(thread=65):
                self.fill(g_y, 65, 1, 12)

    def fill(self, g_y: tilus.GlobalTensor, begin: int32, count: int, value: int32):
        tile = self.register_tensor(dtype=int32, shape=[count], init=lambda i: value * 1000 + i)
        self.store_global(g_y, tile, offsets=[begin])


class HandOver(tilus.Script):
    """One group of warps writes shared memory and another reads it after a barrier."""

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[256])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[256])
        s = self.shared_tensor(dtype=float16, shape=[256])
        with self.thread_group(64, 64):
            self.store_shared(s, self.load_global(g_x, offsets=[0], shape=[256]))
            self.sync()
        self.sync()
        with self.thread_group(0, 64):
            self.store_global(g_y, self.load_shared(s), offsets=[0])


class Uneven(tilus.Script):
    """A barrier of all warps that one warp never reaches."""

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        with self.single_warp(1):
            self.printf("one\n")
            return
        self.sync()


class Promise(tilus.Script):
    """A promise about an argument."""

    def __call__(self, n: int32, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        self.assume(n % 16 == 0)
        y = self.register_tensor(dtype=int32, shape=[32], init=lambda i: n)
        self.store_global(self.global_view(y_ptr, dtype=int32, shape=[32]), y, offsets=[0])


class Prints(tilus.Script):
    """Everything that prints."""

    def __call__(self, n: int32, x_ptr: ~float32):
        self.attrs.blocks = 2
        self.attrs.warps = 2
        x = self.load_global(self.global_view(x_ptr, dtype=float32, shape=[2, 64]), offsets=[0, 0], shape=[2, 64])
        s = self.shared_tensor(dtype=float32, shape=[2, 64])
        self.store_shared(s, x)
        self.sync()
        if self.blockIdx.x == 1:
            self.printf("n = %d, %lld, %5.2f, %%\n", n, n * 2, 0.125)
            self.print_tensor("x: ", x)
            self.print_tensor("s: ", s, fmt="%.1f")


class InTurn(tilus.Script):
    """CTAs add to one element in the order of their index, by a semaphore of the caller. clears: the last one stores 0
    to it."""

    def __init__(self, release: bool = True, clears: bool = True):
        super().__init__()
        self.release, self.clears = release, clears

    def __call__(self, blocks: int32, lock_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = blocks
        self.attrs.warps = 2
        g_y = self.global_view(y_ptr, dtype=int32, shape=[64])
        g_lock = self.global_view(lock_ptr, dtype=int32, shape=[1])
        self.lock_semaphore(g_lock[0].item_ptr(), self.blockIdx.x)  # lock
        y = self.load_global(g_y, offsets=[0], shape=[64])
        y = y * 3 + self.register_tensor(dtype=int32, shape=[64], init=lambda i: i + self.blockIdx.x)
        self.store_global(g_y, y, offsets=[0])
        self.sync()
        if self.release:
            self.release_semaphore(
                g_lock[0].item_ptr(), (self.blockIdx.x + 1) % blocks if self.clears else self.blockIdx.x + 1
            )


class Flagged(tilus.Script):
    """CTA 0 stores x to t and raises a flag of the caller, and CTA 1 copies t to y. clears: CTA 1
    lowers the flag at last, by a release ("last") or a plain store ("store"). back: CTA 1 answers by 2 in the flag, for
    which CTA 0 waits."""

    def __init__(self, clears: str = "", back: bool = False):
        super().__init__()
        self.clears, self.back = clears, back

    def __call__(self, x_ptr: ~int32, t_ptr: ~int32, flags_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = 2
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=int32, shape=[32])
        g_t = self.global_view(t_ptr, dtype=int32, shape=[32])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[32])
        g_flags = self.global_view(flags_ptr, dtype=int32, shape=[2, 3])
        flag: ~int32 = g_flags[1, 1].item_ptr()
        if self.blockIdx.x == 0:
            self.store_global(g_t, self.load_global(g_x, offsets=[0], shape=[32]), offsets=[0])
            self.sync()
            self.release_semaphore(flag, 1)  # raise
            if self.back:
                self.lock_semaphore(flag, 2)
        else:
            self.lock_semaphore(flag, 1)  # wait
            self.store_global(g_y, self.load_global(g_t, offsets=[0], shape=[32]), offsets=[0])
            self.sync()
            if self.back:
                self.release_semaphore(flag, 2)
            if self.clears == "last":
                self.release_semaphore(flag, 0)
            if self.clears == "store":
                zero = self.register_tensor(dtype=int32, shape=[1, 1], init=0)
                self.store_global(g_flags, zero, offsets=[1, 1])


class InTurnOfItsOwn(tilus.Script):
    """CTAs add to one element in turn, by a semaphore that the kernel allocates. clears: the last one stores 0 to it.
    first: CTA 0 stores to it, and its other threads wait for that."""

    def __init__(self, clean: bool = True, clears: bool = True, first: bool = False):
        super().__init__()
        self.clean, self.clears, self.first = clean, clears, first

    def __call__(self, blocks: int32, y_ptr: ~int32):
        self.attrs.blocks = blocks
        self.attrs.warps = 2
        g_y = self.global_view(y_ptr, dtype=int32, shape=[64])
        turn = self.global_tensor(dtype=int32, shape=[2, 3], requires_clean=self.clean)
        lock: ~int32 = turn[1, 1].item_ptr()
        if self.first:
            self.release_semaphore(lock, self.blockIdx.x)
            self.sync()
        if self.blockIdx.x > 0 or self.first:
            self.lock_semaphore(lock, self.blockIdx.x)  # lock
        self.store_global(g_y, self.load_global(g_y, offsets=[0], shape=[64]) + 1, offsets=[0])
        self.sync()
        self.release_semaphore(lock, (self.blockIdx.x + 1) % blocks if self.clears else self.blockIdx.x + 1)


class Unknown(tilus.Script):
    """A shared address as a number, which the simulator does not give."""

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=uint32, shape=[1])
        s = self.shared_tensor(dtype=uint32, shape=[4])
        pointer: ~uint32 = s[0].item_ptr()
        address: uint32 = cvta_generic_to_shared(pointer)
        self.store_global(g_y, self.register_tensor(dtype=uint32, shape=[1], init=lambda i: address), offsets=[0])
