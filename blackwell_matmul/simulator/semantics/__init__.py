"""One description per instruction. Importing this package registers all descriptions.

May import: base, frontend, simulator, simulator.lowering, simulator.machine.
"""

from blackwell_matmul.simulator.description import DESCRIPTIONS, Description, description_of
from blackwell_matmul.simulator.semantics import (  # noqa: F401
    clc,
    cluster,
    cp_async,
    debug,
    dot,
    elementwise,
    griddepcontrol,
    load_store,
    mbarrier,
    reduce,
    sync,
    tcgen05,
    tma,
    views,
    wgmma,
)

__all__ = ["DESCRIPTIONS", "Description", "description_of"]
