"""MMAs of registers that may be deferred (machine/deferred.py), found before the lowering.

They are sequences of a = load_shared, b = load_shared, d = dot(a, b, c) and c = d, where both or neither of a and b
are transposed. Nothing else may use a, b or d. If the loaded data are constant memory, the values of a, b and d are
not computed; c gets its value when something reads it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from blackwell_matmul.frontend.program import Program
from blackwell_matmul.simulator.machine.registers import ThreadGroup, warp_layout
from blackwell_matmul.simulator.types import element


class Deferrable(NamedTuple):
    """Ids of deferrable tensors. tensors: a and b, their transposes, and d. accumulators: c."""

    tensors: frozenset[int]
    accumulators: frozenset[int]


def deferrable(program: Program) -> Deferrable:
    from blackwell_matmul.frontend.recording import instructions

    every = instructions(program.tile)
    made = {id(inst.output): inst for inst in every if inst.output is not None}
    uses = Counter(id(tensor) for inst in every for tensor in inst.inputs)
    viewed = {id(inst.inputs[0]) for inst in every if type(inst).__name__ == "ViewInst"}
    tensors, accumulators = set[int](), set[int]()
    for dot, assign in itertools.pairwise(every):
        if not _adds_in_place(dot, assign) or uses[id(dot.output)] != 1 or id(dot.inputs[2]) in viewed:
            continue
        chains = [list(_chain(tensor, made, uses)) for tensor in dot.inputs[:2]]
        if all(chains) and _whole(dot):
            tensors.update(*chains, [id(dot.output)])
            accumulators.add(id(dot.inputs[2]))
    return Deferrable(frozenset(tensors), frozenset(accumulators))


def _adds_in_place(dot: Any, assign: Any) -> bool:
    """Return True if it is c = a @ b + c, with types whose products may be added in float32 in any order."""
    if type(dot).__name__ != "DotInst" or type(assign).__name__ != "AssignInst":
        return False
    a, _, c = dot.inputs
    item = element(a.dtype)
    narrow = item.is_float and item.nbits < 32 and c.dtype.name == "float32"
    return narrow and assign.inputs[0] is c and assign.inputs[1] is dot.output


def _chain(tensor: Any, made: Mapping[int, Any], uses: Counter[int]) -> Iterator[int]:
    """Yield the tensors from an operand back to its load; nothing if another instruction uses one of them."""
    found = []
    while uses[id(tensor)] == 1 and id(tensor) in made:
        found.append(id(tensor))
        inst = made[id(tensor)]
        if type(inst).__name__ == "LoadSharedInst":
            yield from found
            return
        if type(inst).__name__ != "TransposeInst":
            return
        tensor = inst.inputs[0]


def _whole(dot: Any) -> bool:
    """Return True if each warp holds exactly the parts of a, b and c that its part of d needs."""
    group = ThreadGroup(0, dot.output.layout.spatial_size)
    return all(_holds(dot, group, warp) for warp in group.warps)


def _holds(dot: Any, group: ThreadGroup, warp: int) -> bool:
    a, b, c, d = (warp_layout(t.layout, group, warp) for t in (*dot.inputs, dot.output))
    (rows, columns), k = d.lines, range(a.shape[1])
    return a.holds((rows, k)) and b.holds((k, columns)) and c.holds((rows, columns))
