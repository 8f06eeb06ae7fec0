"""Types of the kernels for type checkers: a call of a class takes optional knobs, and returns a callable on tensors.

No program imports this file at run time. The `__init__` of a kernel itself requires all its knobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from blackwell_matmul.kernels.host.matmul import MatmulScript
from blackwell_matmul.runtime.script import Script
from blackwell_matmul.simulator.findings import Run


class Rung(MatmulScript):
    """Result of a call of a kernel's class, a `script.Kernel`. dtype: a tilus type or its name. knobs: those of
    `Schedule`."""

    script_cls: type[Script]
    pins: Mapping[str, object]

    def __init__(self, *, dtype: object = ..., **knobs: Any) -> None: ...

    def __call__(self, m: int, n: int, k: int, a: Tensor, b: Tensor, c: Tensor, *more: object) -> Run | Any: ...


BlackwellMatmul = Rung
BlackwellMatmulS0 = Rung
BlackwellMatmulS1 = Rung
BlackwellMatmulS2 = Rung
BlackwellMatmulV0 = Rung
BlackwellMatmulV1 = Rung
BlackwellMatmulV2 = Rung
BlackwellMatmulV3 = Rung
BlackwellMatmulV4 = Rung
BlackwellMatmulV5 = Rung
BlackwellMatmulV6 = Rung
GeforceMatmulG1 = Rung
GeforceMatmulV0 = Rung
HopperMatmul = Rung
HopperMatmulV0 = Rung
HopperMatmulV1 = Rung
HopperMatmulV2 = Rung
HopperMatmulV3 = Rung
HopperMatmulV4 = Rung
HopperMatmulV5 = Rung
HopperMatmulV6 = Rung
HopperMatmulV7 = Rung

# Former names (`kernels.OLD_NAMES`).
BlackwellMatmulV7 = BlackwellMatmul
HopperMatmulV8 = HopperMatmul
