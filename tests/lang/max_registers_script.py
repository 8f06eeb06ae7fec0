"""A script whose first warpgroup gives registers to the others.

Its knobs are read by tilus: no `from __future__ import annotations`.
"""

from tilus import GlobalTensor, int32, void_p

from blackwell_matmul.lang import MaxRegisters
from blackwell_matmul.runtime.script import Script


class Giving(Script):
    """written[warpgroup - 1] = warpgroup, by two warpgroups that take registers from a first.

    keeps, takes: registers of a thread. exchanged: inc in place of dec. warps: those that give.
    """

    target = "sm_90a"
    setmaxnreg = MaxRegisters()

    def __init__(self, keeps: int = 24, takes: int = 240, exchanged: bool = False, warps: int = 4):
        super().__init__()
        self.keeps = keeps
        self.takes = takes
        self.exchanged = exchanged
        self.warps = warps

    def __call__(self, m: int32, written: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 12
        g_written = self.global_view(written, dtype=int32, shape=[m])
        with self.warp_group(0, self.warps):
            if self.exchanged:
                self.setmaxnreg.inc(self.keeps)
            else:
                self.setmaxnreg.dec(self.keeps)
        with self.warp_group(4, 4):
            self.take(g_written, 1)
        with self.warp_group(8, 4):
            self.take(g_written, 2)

    def take(self, g_written: GlobalTensor, number: int):
        """Take registers, and write the warpgroup's number."""
        self.setmaxnreg.inc(self.takes)
        self.store_global(g_written, self.register_tensor(dtype=int32, shape=[1], init=number), offsets=[number - 1])
