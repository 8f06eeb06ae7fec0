"""How good is `predict` on ladders that nothing here was compared with before? No GPU needed.

    python bench/public_ladder.py

- gau-nernst/learn-cuda (02e_matmul_sm100) publishes TFLOPS of its kernels on a B200 at 4096x4096x4096 in bf16, and says
  that they vary from run to run.
- triton-lang/triton (python/tutorials/gluon, 07-persistence and 08-warp-specialization) has TFLOPS of kernels at
  8192x8192 by k in fp16, on a Blackwell with 13.5 tiles for each SM, as a GB200 has, and on a Hopper.
- Modular ("Matrix Multiplication on Blackwell", part 4) has those of its last kernel, 4096x4096x4096 in bf16.
- HazyResearch/ThunderKittens (kernels/gemm/educational_b200, levels 6 to 9) has those of one call after two others, by
  the host's clock, and mlc-ai/modern-gpu-programming-for-mlsys (chapter_gemm_advanced, steps 4, 7, 8 and 9) the times
  of a thousand calls at locked clocks, both at 4096x4096x4096 on a B200. They were predicted once, before anything here
  knew of them.
- triton-lang/triton has TFLOPS of block-scaled kernels: of its example 04-2cta-block-scale-matmul, in squares (pull
  request 9697; triton.testing.do_bench, random values of fp4, also in mxfp8), and of the last kernel of its tutorial
  11-tcgen05-mma-scaled, 8192x8192x8192. They were known before the kernels were written here; no figure was changed.

`public_ladder_kernels.py` has the same designs in tilus: the tiles, the stages, which warp does what, and how C goes
out. Tile and stages of each are those published; neither the clock nor, but for Triton's normal ones, the inputs are
known. H5 and V6 stand for two at the published tile and stages: H5 has a warp that loads, Triton's Hopper kernel has
none. Kernels whose tiles are not published (JAX's Pallas) are left out, and those that steal a stage for C.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from blackwell_matmul.harness.predicting import predict

HERE = Path(__file__).parent
KERNELS = HERE / "public_ladder_kernels.py"
SQUARE = (4096, 4096, 4096)


@dataclass(frozen=True)
class Published:
    """A kernel and its TFLOPS, as its author measured them, and the one here that is like it."""

    name: str
    tflops: float
    kernel: str
    schedule: str
    size: tuple[int, int, int] = SQUARE
    dtype: str = "bf16"
    gpu: str = "B200"


GAU_NERNST = (
    Published("v2b, one stage", 721.02, "Serial", "block_n=256,block_k=256,stages=1"),
    Published("v3, two stages", 914.42, "Serial", "block_n=256,block_k=128,stages=2"),
    Published("v4, specialised warps", 1053.61, "Specialised", "block_n=128,block_k=64,stages=7"),
    Published("v5, pairs of CTAs", 1169.65, "Pairs", "block_n=256,block_k=64,stages=7,ctas=0"),
    Published("v6, the same, persistent", 1273.32, "Pairs", "block_n=256,block_k=64,stages=7,ctas=148"),
    Published("v7b, 128 CTAs", 1316.16, "Pairs", "block_n=256,block_k=64,stages=7,ctas=128"),
)


def by_k(name: str, kernel: str, schedule: str, gpu: str, tflops: Sequence[float]) -> Iterator[Published]:
    for k, each in zip((512, 1024, 2048, 4096, 8192, 16384), tflops, strict=True):
        yield Published(f"{name}, k {k}", each, kernel, schedule, (8192, 8192, k), "fp16", gpu)


GLUON = (
    *by_k("nonpersistent", "Together", "ctas=0", "B200", (615.86, 997.16, 1152.74, 1164.05, 1160.93, 1185.62)),
    *by_k("persistent", "Together", "ctas=148", "B200", (828.70, 1077.28, 1190.55, 1120.92, 1074.97, 1096.34)),
    *by_k("warp-specialised", "Stays", "ctas=148", "B200", (1160.28, 1249.69, 1347.18, 1390.95, 1350.01, 1448.14)),
    *by_k(
        "Hopper, persistent and pipelined", "h5",
        "block_m=128,block_n=256,block_k=64,stages=3,consumers=2,e_block_n=64,group_m=4", "H100",
        (539.88, 602.52, 625.91, 640.48, 661.57, 670.00),
    ),
)  # fmt: skip
"""group_m=4: 128 CTAs have tiles of 4 rows and all columns at a time, as there."""

MODULAR = (
    Published("kernel 8, CLC", 1772, "v6", "block_m=256,block_n=256,block_k=64,stages=5,e_block_n=32,group_m=8"),
)


KITTENS = (
    Published("level 6, TMA and tcgen05", 293, "Alone", "stages=1"),
    Published("level 7, specialised warps", 731, "Alone", "stages=3"),
    Published("level 8, C in parts", 1050, "Alone", "block_n=256,stages=3"),
    Published("level 9, pairs of CTAs", 1285, "Couples", "stages=4,strip_n=32"),
)


def squares(dtype: str, one: Sequence[float], pairs: Sequence[float]) -> Iterator[Published]:
    for size, *both in zip((8192, 16384, 32768), one, pairs, strict=True):
        for ctas, stages, each in zip((1, 2), (3, 5), both, strict=True):
            name = f"{dtype}, {'pairs of CTAs' if ctas == 2 else 'one CTA'}, {size}"
            yield Published(name, each, "Scaled", f"ctas={ctas},stages={stages}", (size,) * 3, dtype)


GLUON_SCALED = (
    *squares("mxfp8", (2525.9, 2409.3, 2468.7), (2895.0, 2755.0, 2632.9)),
    *squares("nvfp4", (4781.9, 4837.0, 4723.3), (5730.0, 5562.0, 5362.4)),
    *(
        Published(f"tutorial, {dtype}, 8192", tflops, "Scaled", "ctas=1,stages=3,stay=148", (8192,) * 3, dtype)
        for dtype, tflops in (("mxfp8", 2378.49), ("mxfp4", 4870.97), ("nvfp4", 4846.83))
    ),
)
"""Tiles, stages, accumulators and the order of tiles are those of the files."""

FLOP = 2 * math.prod(SQUARE)

MLC = (
    Published("step 4, TMA", FLOP / 493.814e6, "Alone", "stages=1,waits=1"),
    Published("step 7, specialised warps", FLOP / 226.613e6, "AloneStays", "stages=2"),
    Published("step 8, pairs of CTAs", FLOP / 103.529e6, "Couples", "sums=1,stages=4,ctas=148,together=2"),
    Published("step 9, two accumulators", FLOP / 94.139e6, "Couples", "sums=2,stages=4,ctas=148"),
)


@dataclass(frozen=True)
class Compared:
    """predicted: TFLOPS. error: of the time."""

    name: str
    schedule: str
    published: float
    predicted: float
    error: float
    ghz: float
    explanation: tuple[str, ...]


def compared(rung: Published) -> Compared:
    kernel = f"{KERNELS}:{rung.kernel}" if rung.kernel[0].isupper() else rung.kernel
    found = predict(kernel, *rung.size, dtype=rung.dtype, schedule=rung.schedule, target=rung.gpu, explained=False)
    assert found.tflops is not None
    numbers = (
        round(rung.tflops, 2),
        round(found.tflops, 1),
        round(rung.tflops / found.tflops - 1, 4),
        round(found.ghz, 3),
    )
    return Compared(rung.name, rung.schedule, *numbers, found.explanation)


def compare(name: str, rungs: Sequence[Published]) -> None:
    found = [compared(rung) for rung in rungs]
    for each in found:
        print(f"{each.name:42} {each.published:7.0f} {each.predicted:7.0f} {each.error:+.1%}", flush=True)
    errors = [abs(each.error) for each in found]
    summary = {"rows": len(found), "mean_error": round(statistics.mean(errors), 4), "worst_error": max(errors)}
    print(summary)
    record = {"command": "python bench/public_ladder.py", "predicted": True, **summary}
    text = json.dumps({**record, "rungs": [asdict(each) for each in found]}, indent=1)
    (HERE / "results" / f"{name}.json").write_text(text + "\n")


def main() -> None:
    compare("public_ladder", GAU_NERNST)
    compare("public_ladder_gluon", GLUON)
    compare("public_ladder_gluon_scaled", GLUON_SCALED)
    compare("public_ladder_modular", MODULAR)
    compare("public_ladder_kittens", KITTENS)
    compare("public_ladder_mlc", MLC)


if __name__ == "__main__":
    main()
