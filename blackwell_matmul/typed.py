"""What a type checker takes the rungs for: calling a class gives what is called on tensors, and all knobs are optional.

Nothing here is imported when a program runs. A rung's own `__init__` has the knobs that are chosen for a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from blackwell_matmul.kernels.matmul import MatmulScript
from blackwell_matmul.script import Script
from blackwell_matmul.simulator.findings import Run


class Rung(MatmulScript):
    """What calling the class gives, a `script.Kernel`. dtype: a type of tilus or its name. knobs: those of `Schedule`
    that the rung has."""

    script_cls: type[Script]
    pins: Mapping[str, object]

    def __init__(self, *, dtype: object = ..., **knobs: Any) -> None: ...

    def __call__(self, m: int, n: int, k: int, a: Tensor, b: Tensor, c: Tensor, *more: object) -> Run | Any: ...


class BlackwellMatmulV0(Rung): ...


class BlackwellMatmulV1(Rung): ...


class BlackwellMatmulV2(Rung): ...


class BlackwellMatmulV3(Rung): ...


class BlackwellMatmulV4(Rung): ...


class BlackwellMatmulV5(Rung): ...


class BlackwellMatmulV6(Rung): ...


class BlackwellMatmulV7(Rung): ...


class HopperMatmulV0(Rung): ...


class HopperMatmulV1(Rung): ...


class HopperMatmulV2(Rung): ...


class HopperMatmulV3(Rung): ...


class HopperMatmulV4(Rung): ...


class HopperMatmulV5(Rung): ...


class HopperMatmulV6(Rung): ...


class HopperMatmulV7(Rung): ...


class HopperMatmulV8(Rung): ...


class GeforceMatmulV0(Rung): ...
