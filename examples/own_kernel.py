"""A kernel of your own, from nothing: y = relu(x), a tile for each CTA, by TMA in and out. It runs on the CPU."""

import torch

from blackwell_matmul import Script, simulate

# isort: split
from tilus import float32, int32  # after blackwell_matmul, which makes this work on machines without git as well
from tilus.utils import cdiv


class Relu(Script):
    def __init__(self, rows: int = 32, columns: int = 32):
        super().__init__()
        self.rows = rows
        self.columns = columns

    def __call__(self, m: int32, n: int, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = [cdiv(m, self.rows), cdiv(n, self.columns)]
        self.attrs.warps = 4
        row: int32 = self.blockIdx.x * self.rows
        column: int32 = self.blockIdx.y * self.columns
        g_x = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[m, n])
        tile = self.shared_tensor(dtype=float32, shape=[self.rows, self.columns])
        arrived = self.mbarrier.alloc(counts=1)
        self.sync()  # every warp sees the initialised barrier
        with self.single_warp():
            with self.single_thread():  # one arrival, which announces the bytes
                self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=tile.nbytes)
            self.tma.global_to_shared(src=g_x, dst=tile, offsets=[row, column], mbarrier=arrived)
        self.mbarrier.wait(arrived, phase=0)  # try it without this line
        values = self.load_shared(tile)
        self.sync()  # all have read the tile before anybody writes it
        self.store_shared(tile, self.where(values > 0.0, values, 0.0))
        self.fence.proxy_async(space="shared")  # written by threads, to be read by TMA
        self.sync()
        with self.single_warp():
            self.tma.shared_to_global(tile, g_y, offsets=[row, column])
            self.tma.commit_group()
            self.tma.wait_group(n=0, read=True)


def main() -> int:
    torch.manual_seed(0)  # the same input in every run
    x = torch.randn(100, 60)  # rows of 240 bytes: TMA wants a multiple of 16
    y = torch.empty_like(x)
    run = simulate(Relu, 100, 60, x, y, schedule={"rows": 64})
    right = torch.equal(y, x.relu())
    print(f"{run.kernel} on {run.grid} CTAs: {'right' if right else 'WRONG'}", *run.findings, sep="\n")
    return 0 if right and run.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
