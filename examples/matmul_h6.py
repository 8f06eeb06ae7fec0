"""H6: clusters that read B once, specialised warps, CTAs that stay, TMA and wgmma."""

import torch

from blackwell_matmul import HopperMatmulV6
from blackwell_matmul.harness import report

m, n, k = 512, 512, 512


def main() -> int:
    torch.manual_seed(0)  # the same inputs in every run
    # A kernel runs where its tensors live. On the CPU that is the simulator: no GPU is needed.
    a = torch.randn(m, k, dtype=torch.float16)
    b = torch.randn(n, k, dtype=torch.float16)
    c = torch.empty(m, n, dtype=torch.float16)

    matmul = HopperMatmulV6()
    run = matmul(m, n, k, a, b, c)  # C[m, n] = A[m, k] @ B[n, k].T

    result = report(run, a, b, c)  # against float64
    print(result)
    return 0 if result.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
