"""A script whose CTAs take numbers from one counter.

Its knobs are read by tilus: no `from __future__ import annotations`.
"""

from tilus import int32, void_p

from blackwell_matmul.lang import Atomics
from blackwell_matmul.runtime.script import Script


class Numbered(Script):
    """taken[number] = 1 + the CTA that took it; each CTA takes numbers until one is at least `count`.

    last: value after which the counter is 0, from `count`. wide, whole: a counter of int64, or the tensor in place of
    its address. warps: number of warps that count.
    """

    target = "sm_90a"
    atomic = Atomics()

    def __init__(self, last: int = 0, wide: bool = False, whole: bool = False, warps: int = 1):
        super().__init__()
        self.last = last
        self.wide = wide
        self.whole = whole
        self.warps = warps

    def __call__(self, ctas: int32, count: int32, taken: void_p):
        self.attrs.blocks = [ctas]
        self.attrs.warps = self.warps
        g_taken = self.global_view(taken, dtype=int32, shape=[count])
        g_counter = self.global_tensor(dtype=int32, shape=[2], requires_clean=True)
        counter = g_counter if self.whole else taken if self.wide else g_counter[1].item_ptr()
        number: int32 = 0
        while number < count:
            number = self.atomic.inc(counter, last=count + ctas - 1 + self.last).item()
            r_cta = self.register_tensor(dtype=int32, shape=[1], init=lambda _: self.blockIdx.x + 1)
            self.store_global(g_taken, r_cta, offsets=[number])


class NumberedByCaller(Script):
    """As `Numbered`, with a counter of the caller."""

    target = "sm_90a"
    atomic = Atomics()

    def __call__(self, ctas: int32, count: int32, taken: void_p, counter: ~int32):
        self.attrs.blocks = [ctas]
        self.attrs.warps = 1
        g_taken = self.global_view(taken, dtype=int32, shape=[count])
        number: int32 = 0
        while number < count:
            number = self.atomic.inc(counter, last=count + ctas - 1).item()
            r_cta = self.register_tensor(dtype=int32, shape=[1], init=lambda _: self.blockIdx.x + 1)
            self.store_global(g_taken, r_cta, offsets=[number])
