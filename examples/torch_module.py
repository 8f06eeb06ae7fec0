"""A torch module of your own whose forward pass is BlackwellMatmulV1.

The kernel computes A @ B.T, as a Linear layer does. TMA wants rows that are multiples of 16 bytes, 8 elements here,
so other sizes are padded with zeros, which change no sum.
"""

import torch
from torch import nn
from torch.nn import functional as F

from blackwell_matmul import BlackwellMatmulV1

matmul = BlackwellMatmulV1()


class Product(torch.autograd.Function):
    """x @ weight.T by the kernel; the gradients are two more products, by the same kernel."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return product(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return product(grad, weight.T), product(grad.T, x.T)


def product(a, b):
    """A[m, k] @ B[n, k].T for any m, n and k: n and k are padded to multiples of 8, and the padding of n is cut off."""
    (m, k), n = a.shape, b.shape[0]
    a = F.pad(a, (0, -k % 8)).contiguous()
    b = F.pad(b, (0, -k % 8, 0, -n % 8)).contiguous()
    c = a.new_empty(m, b.shape[0])
    matmul(m, b.shape[0], a.shape[1], a, b, c)
    return c[:, :n]


class BlackwellLinear(nn.Linear):
    """nn.Linear on 16-bit tensors, for inputs with any number of leading dimensions."""

    def forward(self, x):
        y = Product.apply(x.reshape(-1, self.in_features), self.weight)
        y = y if self.bias is None else y + self.bias
        return y.reshape(*x.shape[:-1], self.out_features)


def main() -> int:
    torch.manual_seed(0)
    ours = BlackwellLinear(100, 50, dtype=torch.bfloat16)
    theirs = nn.Linear(100, 50, dtype=torch.bfloat16)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(4, 33, 100, dtype=torch.bfloat16)
    x_ours, x_theirs = x.clone().requires_grad_(), x.clone().requires_grad_()

    y_ours, y_theirs = ours(x_ours), theirs(x_theirs)
    y_ours.square().mean().backward()
    y_theirs.square().mean().backward()

    pairs = {
        "output": (y_ours, y_theirs),
        "x.grad": (x_ours.grad, x_theirs.grad),
        "weight.grad": (ours.weight.grad, theirs.weight.grad),
    }
    ok = True
    for name, (mine, reference) in pairs.items():
        close = torch.allclose(mine.float(), reference.float(), rtol=0.05, atol=0.02 * reference.abs().max().item())
        print(f"{name:12} {tuple(mine.shape)!s:14} {'as torch computes it' if close else 'DIFFERS'}")
        ok &= close
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
