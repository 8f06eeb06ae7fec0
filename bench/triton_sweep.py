"""One TMA configuration of a Triton kernel in a process of its own, under a time limit: how does it end?

    python bench/triton_sweep.py 256x256x128 --stages 5 --warps 16 --size 4096
    TRITON_AGGRESSIVE_TMA=1 python bench/triton_sweep.py --size 4096   # the first that runs
    TRITON_INTERPRET=1 python bench/triton_sweep.py 64x64x32 --size 200   # on the CPU

What the compiler prints is left as it is, for a report to those who can mend it; the last line says how it ended.
Timings of all configurations: `blackwell-matmul bench --suite triton-tma`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys

from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul_studies.tma_configurations import TmaConfiguration, configurations, first_that_runs

WRONG = 3
"""What a child exits with that computed something else."""


def main() -> int:
    try:
        return _main(_options())
    except BlackwellMatmulError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _main(options: argparse.Namespace) -> int:
    if options.block is None:
        key, candidates = (options.kernel, options.size), configurations(options.kernel)
        first_that_runs(key, candidates, lambda each: _run(each, options))
        return 0
    chosen = TmaConfiguration.parse(f"{options.block} s{options.stages} w{options.warps}")
    if options.inside:
        return inside(options.kernel, options.size, chosen)
    return 0 if _told(chosen, options) == "right" else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("block", nargs="?", help="64x64x32 of a gemm, 64x64 of a copy; left out: the first that runs")
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--warps", type=int, default=4)
    parser.add_argument("--size", type=int, default=4096, help="m, n and k, or rows and columns; a multiple of 8")
    parser.add_argument("--kernel", choices=("gemm", "copy"), default="gemm")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that it may take")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- around the child


def _run(chosen: TmaConfiguration, options: argparse.Namespace) -> None:
    if (how := _told(chosen, options)) != "right":
        raise RuntimeError(how)


def _told(chosen: TmaConfiguration, options: argparse.Namespace) -> str:
    how = ended(options.kernel, options.size, chosen, options.limit)
    print(f"{options.kernel} {options.size}, {chosen}: {how}", flush=True)
    return how


def ended(kernel: str, size: int, chosen: TmaConfiguration, limit_s: float) -> str:
    """ "right", or what became of it."""
    block, stages, warps = "x".join(map(str, chosen.block)), chosen.num_stages, chosen.num_warps
    settings = {"--stages": stages, "--warps": warps, "--size": size, "--kernel": kernel}
    words = [word for name, value in settings.items() for word in (name, str(value))]
    try:
        done = subprocess.run([sys.executable, __file__, block, *words, "--inside"], timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"still running after {limit_s:g} s, and ended"
    return _of_code(done.returncode)


def _of_code(code: int) -> str:
    if code < 0:
        return f"ended by signal {-code} ({signal.Signals(-code).name})"
    return {0: "right", WRONG: "wrong result"}.get(code, f"failed, exit code {code}")


# --- inside the child


def inside(kernel: str, size: int, chosen: TmaConfiguration) -> int:
    import torch
    import triton

    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    device = torch.device("cpu" if interpreted else "cuda")
    where = "the CPU, in Triton's interpreter" if interpreted else torch.cuda.get_device_name()
    print(f"Triton {triton.__version__}, torch {torch.__version__}, {where}", flush=True)
    return 0 if {"gemm": _gemm, "copy": _copy}[kernel](size, chosen, device) else WRONG


def _gemm(size: int, chosen: TmaConfiguration, device: object) -> bool:
    """Small integers: sums are exact in float32, in any order, and rounded once."""
    import torch

    from blackwell_matmul_studies.baselines import triton_kernels

    a, b = (torch.randint(-4, 5, (size, size), device=device).half() for _ in range(2))
    c = torch.full_like(a, torch.nan)
    triton_kernels.gemm(a, b, c, "host", chosen.block, num_stages=chosen.num_stages, num_warps=chosen.num_warps)
    return torch.equal(c, (a.double() @ b.double().T).half())


def _copy(size: int, chosen: TmaConfiguration, device: object) -> bool:
    import torch

    from blackwell_matmul_studies.baselines import triton_kernels

    x = torch.randn(size, size, device=device).half()
    y = torch.full_like(x, torch.nan)
    triton_kernels.copy(x, y, "host", chosen.block, num_stages=chosen.num_stages, num_warps=chosen.num_warps)
    return torch.equal(x, y)


if __name__ == "__main__":
    raise SystemExit(main())
