"""C[m, n] = A[m, k] @ B[n, k].T by torch.compile: max-autotune over cuBLAS and inductor's Triton templates, with TMA.

`make()` gives the call that `blackwell-matmul bench` times. Each starts from an empty dynamo: after a second size a
compiled function is compiled again with symbolic sizes, and those kernels are several times slower. The call returns
its output, since inductor would copy it into one that is given.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

SWITCHES = ("enable_persistent_tma_matmul", "enable_template_tma_store")
"""Of `torch._inductor.config.triton`; off by default. Each is an environment variable, too, in capitals."""


def make() -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    torch._dynamo.reset()
    options = {"max_autotune": True, **{f"triton.{name}": True for name in SWITCHES if _has(name)}}
    product = torch.compile(_product, dynamic=False, fullgraph=True, options=options)

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return product(a, b)

    return call


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b.T


def _has(switch: str) -> bool:
    """torch 2.11 has both; a version without one of them would refuse its name."""
    import torch._inductor.config as config

    return hasattr(config.triton, switch)


def main() -> int:
    call = make()
    a, b = (torch.randn(rows, 256, device="cuda").half() for rows in (333, 512))
    print(SWITCHES, (call(a, b, a) - a @ b.T).abs().max().item())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
