"""One description per instruction. Importing this package registers them all."""

from blackwell_matmul.simulator.semantics import (  # noqa: F401
    cluster,
    cp_async,
    debug,
    dot,
    elementwise,
    griddepcontrol,
    mbarrier,
    memory,
    reduce,
    sync,
    tcgen05,
    tma,
    views,
    wgmma,
)
from blackwell_matmul.simulator.semantics.description import DESCRIPTIONS, Description, description_of

__all__ = ["DESCRIPTIONS", "Description", "description_of"]
