"""Products by mma.sync for which tilus 0.2.0 has wrong code.

A thread may hold neighbours along k for several mma.sync (`vec_k` of `AtomicMmaConfig`). If the result is not the
accumulator, `DotInstEmitter` begins each of these mma.sync with c again, and the result has only the last product. Seen
on an H200. Layouts that tilus chooses have a `vec_k` of 1. Removable when the emitter takes c for the first one only;
a test of `tests/frontend/test_products.py` shows the fault.
"""

from __future__ import annotations

from tilus.backends.emitters.cuda.mma_dot import DotInstEmitter
from tilus.ir.instructions import DotInst


def refusal(inst: DotInst) -> str | None:
    """Return the reason why this product has no right code, and a remedy; None: it has, or tilus itself reports the
    reason."""
    accumulator, out = inst.inputs[2].as_register_tensor(), inst.register_output
    vec_k = 1 if accumulator is out else _vec_k(inst)
    if vec_k == 1:
        return None
    return (
        f"the layouts of this dot give each thread the operands of {vec_k} mma.sync side by side, of which tilus 0.2.0 "
        "keeps the last alone; accumulate in place, as in self.dot(a, b, c, out=c)"
    )


def _vec_k(inst: DotInst) -> int:
    tensors = [each.as_register_tensor() for each in (*inst.inputs, inst.register_output)]
    try:
        config, _ = DotInstEmitter.resolve_mma_config(*tensors)
    except (AssertionError, RuntimeError):
        return 1
    return config.vec_k
