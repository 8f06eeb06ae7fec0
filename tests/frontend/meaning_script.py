"""A kernel whose meaning the tests of `fingerprint` change, by all that it reads."""

import tilus
from tilus import RegisterTensor, float32

FACTOR = 2.0
TABLE = {"added": [0.0]}
KIND = float32


class Settings:
    more = 0.0


class Rest(tilus.Class):
    def __init__(self):
        pass

    def add(self, x: RegisterTensor):
        return x + Settings.more


class Base(tilus.Script):
    ADDED = 0.0

    def finish(self, x: RegisterTensor):
        return x


def helper(more=0.0):
    return more


def closed(hidden):
    def inside():
        return hidden

    def change(value):
        nonlocal hidden
        hidden = value

    return inside, change


of_closure, change_closure = closed(0.0)


class Scale(Base):
    def __init__(self, given=0.0):
        super().__init__()
        self.added = TABLE["added"][0] + helper() + of_closure() + given

    def __call__(self, x: ~float32, y: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        g_x = self.global_view(x, dtype=float32, shape=[8, 8])
        g_y = self.global_view(y, dtype=float32, shape=[8, 8])
        unit: KIND = 1.0
        rest = Rest()
        r = self.load_global(g_x, offsets=[0, 0], shape=[8, 8])
        self.store_global(g_y, self.finish(rest.add(r * FACTOR) + self.added + self.ADDED) * unit, offsets=[0, 0])
