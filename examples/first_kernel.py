"""A first kernel: C = relu(A @ B.T + bias), a tile of C for each CTA. docs/first_kernel.md writes it step by step."""

import torch

from blackwell_matmul import Script, simulate

# isort: split
from tilus import float16, float32, int32, uint32  # after blackwell_matmul: then it works without git, too
from tilus.utils import cdiv


class LinearRelu(Script):
    def __init__(self, block_m: int = 128, block_n: int = 64, block_k: int = 32):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k

    def __call__(self, m: int32, n: int, k: int, a: ~float16, b: ~float16, bias: ~float16, c: ~float16):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        row: int32 = self.block_m * self.blockIdx.x
        column: int32 = self.block_n * self.blockIdx.y

        g_a = self.global_view(a, dtype=float16, shape=[m, k])
        g_b = self.global_view(b, dtype=float16, shape=[n, k])
        g_bias = self.global_view(bias, dtype=float16, shape=[1, n])
        g_c = self.global_view(c, dtype=float16, shape=[m, n])

        s_a = self.shared_tensor(dtype=float16, shape=[self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[self.block_n, self.block_k])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.block_m, self.block_n])
        done = self.mbarrier.alloc(counts=1)
        phase: uint32 = 0
        self.sync()

        for offset_k in range(0, k, self.block_k):
            self.copy_async(g_a, s_a, offsets=[row, offset_k])
            self.copy_async(g_b, s_b, offsets=[column, offset_k])
            self.copy_async_wait_all()
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                self.tcgen05.mma(s_a, s_b.transpose(), t_acc, enable_input_d=offset_k != 0)
                self.tcgen05.commit(mbarrier=done)
            self.mbarrier.wait(done, phase=phase)
            phase ^= 1

        acc = self.tcgen05.load(t_acc)
        self.tcgen05.wait_load()
        added = acc + self.load_global(g_bias, offsets=[0, column], shape=[1, self.block_n]).to(float32)
        relu = self.where(added > 0.0, added, 0.0)
        self.store_global(g_c, relu.to(float16), offsets=[row, column])
        self.sync()
        self.tcgen05.dealloc(t_acc)


def example_args(m=256, n=128, k=192):
    a, b, bias = (torch.randn(shape).half() for shape in ((m, k), (n, k), (n,)))
    return m, n, k, a, b, bias, torch.full((m, n), float("nan")).half()


def reference(m, n, k, a, b, bias, c):
    return {"c": torch.relu(a.double() @ b.double().T + bias.double())}


def main() -> int:
    torch.manual_seed(0)  # the same inputs in every run
    arguments = example_args()
    run = simulate(LinearRelu, *arguments)
    error = (arguments[-1] - reference(*arguments)["c"]).abs().max().item()
    print(run)
    print(f"largest error {error:.3f}", *run.findings, sep="\n")
    return 0 if error < 0.03 and run.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
