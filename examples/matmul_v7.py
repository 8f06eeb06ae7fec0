"""The product, BlackwellMatmul: a linear layer with its bias and its activation, in one kernel, on x as it lies."""

import torch
from torch.nn import functional

from blackwell_matmul import BlackwellMatmul, Epilogue

m, n, k = 512, 512, 512


def main() -> int:
    torch.manual_seed(0)  # the same inputs in every run
    # A kernel runs where its tensors live. On the CPU that is the simulator: no GPU is needed.
    x = torch.randn(k, m, dtype=torch.float16).T  # contiguous along m, and read so
    w = torch.randn(n, k, dtype=torch.float16) / k**0.5
    bias = torch.randn(n, dtype=torch.float16)
    c = torch.empty(m, n, dtype=torch.float16)

    layer = BlackwellMatmul(form=Epilogue(bias=True, activation="gelu"))
    run = layer(m, n, k, x, w, c, bias)  # C[m, n] = gelu(X[m, k] @ W[n, k].T + bias[n])

    exact = functional.gelu(functional.linear(x.double(), w.double(), bias.double()))
    ours, torchs = ((c.double() - exact).abs().max(), functional.gelu(functional.linear(x, w, bias)))
    ratio = float(ours / (torchs.double() - exact).abs().max())
    told = f"{'correct' if ratio <= 2 else 'wrong'}: largest error {ratio:.2f}x torch's own"
    what = f"{run.kernel}  {m}x{n}x{k} fp16, x transposed, bias and GELU"
    print(f"{what}  {told}  simulated in {run.seconds:.2f} s on the CPU")
    return 0 if ratio <= 2 and run.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
