"""How good is `predict` on a ladder that nothing here was compared with before? No GPU needed.

    python bench/public_ladder.py

gau-nernst/learn-cuda (02e_matmul_sm100) publishes TFLOPS of its kernels on a B200 at 4096x4096x4096 in bf16, and says
that they vary from run to run. `public_ladder_kernels.py` has the same designs in tilus: the tiles, the stages, which
warp does what, and that threads store C themselves, 16 bytes at a time. Tile and stages of each are those published;
the clock is not known.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from blackwell_matmul.harness.predicting import predict

HERE = Path(__file__).parent
KERNELS = HERE / "public_ladder_kernels.py"
SIZE = (4096, 4096, 4096)


@dataclass(frozen=True)
class Published:
    """A kernel and its TFLOPS, as its author measured them, and the one here that is like it."""

    name: str
    tflops: float
    kernel: str
    schedule: str


RUNGS = (
    Published("v2b, one stage", 721.02, "Serial", "block_n=256,block_k=256,stages=1"),
    Published("v3, two stages", 914.42, "Serial", "block_n=256,block_k=128,stages=2"),
    Published("v4, specialised warps", 1053.61, "Specialised", "block_n=128,block_k=64,stages=7"),
    Published("v5, pairs of CTAs", 1169.65, "Pairs", "block_n=256,block_k=64,stages=7,ctas=0"),
    Published("v6, and they stay", 1273.32, "Pairs", "block_n=256,block_k=64,stages=7,ctas=148"),
    Published("v7b, 128 CTAs", 1316.16, "Pairs", "block_n=256,block_k=64,stages=7,ctas=128"),
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
    found = predict(f"{KERNELS}:{rung.kernel}", *SIZE, dtype="bf16", schedule=rung.schedule, target="B200")
    assert found.tflops is not None
    numbers = rung.tflops, round(found.tflops, 1), round(rung.tflops / found.tflops - 1, 4), round(found.ghz, 3)
    return Compared(rung.name, rung.schedule, *numbers, found.explanation)


def main() -> None:
    found = [compared(rung) for rung in RUNGS]
    for each in found:
        print(f"{each.name:24} {each.published:7.0f} {each.predicted:7.0f} {each.error:+.1%}", flush=True)
    errors = [abs(each.error) for each in found]
    summary = {"rows": len(found), "mean_error": round(statistics.mean(errors), 4), "worst_error": max(errors)}
    print(summary)
    record = {"command": "python bench/public_ladder.py", "predicted": True, **summary}
    text = json.dumps({**record, "rungs": [asdict(each) for each in found]}, indent=1)
    (HERE / "results" / "public_ladder.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
