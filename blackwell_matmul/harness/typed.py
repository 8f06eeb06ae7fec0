"""Types of the rungs for type checkers: calling a class returns a callable on tensors, and all knobs are optional.

No program imports this at run time. A rung's own `__init__` has the knobs that are chosen for a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from blackwell_matmul.kernels.host.matmul import MatmulScript
from blackwell_matmul.runtime.script import Script
from blackwell_matmul.simulator.findings import Run


class Rung(MatmulScript):
    """Result of calling a rung's class, a `script.Kernel`. dtype: a tilus type or its name. knobs: of `Schedule`."""

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

# Names of the products while they were rungs (`kernels.OLD_NAMES`).
BlackwellMatmulV7 = BlackwellMatmul
HopperMatmulV8 = HopperMatmul
