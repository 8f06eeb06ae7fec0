"""Tracking of registers that nothing has written: tensors of register_tensor without init.

Each warp has an array of *origins* for such a tensor, of the same shape and width. The bytes of an element are 0, or
the number of the register_tensor on whose unwritten value it depends. None means that the whole tensor is written.
Instructions that move or combine elements (`Description.carries`) also move origins. Any other instruction that reads
an element with an origin is reported. A program without such tensors gets none of this code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from blackwell_matmul.frontend.program import Program
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.findings import Finding, Severity
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.memory import Box
from blackwell_matmul.simulator.machine.registers import WARP, WarpLayout, numbers, spread, warp_layout
from blackwell_matmul.simulator.semantics import description_of
from blackwell_matmul.simulator.types import Element, element

MAX_NUMBER = 255
"""Largest number, which fills a byte; further register_tensors share it."""

Origins = np.ndarray | None


class Unwritten:
    """Lines that follow origins, for `Lowering`. constant: gives a value a name. made: the register_tensors without
    init, from number 1 on. names: the Python variables of the origins, by tensor."""

    def __init__(self, program: Program, constant: Callable[[Any], str]) -> None:
        from blackwell_matmul.frontend.recording import instructions

        self.program, self.constant = program, constant
        every = instructions(program.tile)
        self.made = [inst for inst in every if makes_unwritten(inst)]
        self.names = {tensor: f"u{i}" for i, tensor in enumerate(_reached(program, every, self.made))}

    def head(self) -> list[str]:
        return [f"    {' = '.join(self.names.values())} = None"] if self.names else []

    def lines(self, inst: Any, context: LoweringContext, function: Callable[..., Any]) -> Iterator[str]:
        """Yield the lines before the call of an instruction, with its function."""
        own = self.names.get(id(inst.output))
        arguments = f"({''.join(f'{text}, ' for text in context.arguments)})"
        if makes_unwritten(inst):
            number = min(self.made.index(inst) + 1, MAX_NUMBER)
            yield f"{own} = {self.constant(fresh(inst.output, number))}(w)"
        elif context.description.carries and any(id(tensor) in self.names for tensor in inst.inputs):
            yield self._carry(inst, context, function, arguments)
        else:
            for tensor in {id(tensor): tensor for tensor in inst.inputs}.values():
                yield from self.read(tensor, context, arguments)
            if own is not None:
                yield f"{own} = {self.constant(written)}({own}, None)"

    def _carry(self, inst: Any, context: LoweringContext, function: Callable[..., Any], arguments: str) -> str:
        target, carry = self.names[id(_target(inst))], carried(context.carry or moved(function), context.operands)
        new = f"{self.constant(carry)}(w, {arguments}, [{', '.join(self._origins(context))}])"
        shares = context.description.shares
        return f"{target} = {new if shares else f'{self.constant(written)}({target}, {new})'}"

    def _origins(self, context: LoweringContext) -> Iterator[str]:
        """Yield the arguments, with origins instead of registers."""
        for i, text in enumerate(context.arguments):
            yield self.names.get(id(context.operands[i]), "None") if i in context.operands else text

    def read(self, tensor: Any, context: LoweringContext | Instruction, arguments: str = "()") -> Iterator[str]:
        """Yield the check before the tensor is read."""
        name = self.names.get(id(tensor))
        if name is not None:
            check = self.constant(self._check(tensor, context))
            yield f"if {name} is not None: {name} = {check}(w, {name}, {arguments})"

    def _check(
        self, tensor: Any, context: LoweringContext | Instruction
    ) -> Callable[[Warp, np.ndarray, tuple[Any, ...]], np.ndarray | None]:
        chosen = getattr(context, "chosen", None)

        def check(warp: Warp, origins: np.ndarray, arguments: tuple[Any, ...]) -> np.ndarray | None:
            layout = warp_layout(tensor.layout, context.group, warp.index)
            active = numbers(origins)[layout.lane : layout.lane + layout.lanes]
            if chosen is not None:
                active = np.where(chosen(warp, *arguments), active, 0)
            if not active.any():
                return origins
            warp.cta.grid.findings.add(self._finding(warp, tensor, context, layout, active))
            return None

        return check

    def _finding(
        self, warp: Warp, tensor: Any, context: LoweringContext | Instruction, layout: WarpLayout, active: np.ndarray
    ) -> Finding:
        """Return the finding. active: the number of each register that is read, or 0."""
        what, location = context.description.name, context.location
        made = self.made[active[active > 0][0] - 1]
        start, source = self.program.location_of(made), self.program.name_of(made.output) or "a register tensor"
        name, box, who = self.program.name_of(tensor) or "registers", _box(layout, active), f"warp {warp.index}"
        place = f"{name}[{', '.join(f'{lo}:{hi}' for lo, hi in box)}]" if box else name
        of_what = f"nothing has written {_share(active)}"
        if tensor is not made.output:
            of_what = f"{_share(active)} come from registers of {source} that nothing has written"
        advice = (
            f"give {source} init={_zero(element(made.output.dtype))} at {start}, or write all of it before {location}"
        )
        message = f"{what} by {who} reads {place}, of which {of_what} since it was made at {start}; {advice}"
        return Finding(
            "uninitialised-read", Severity.ERROR, message, warp.cta.position, location, start, tensor=name, box=box,
            agents=(who,), advice=advice,
        )  # fmt: skip


def makes_unwritten(inst: Any) -> bool:
    return type(inst).__name__ == "AllocateRegisterInst" and inst.init is None


def _target(inst: Any) -> Any:
    """Return the tensor that an instruction with `carries` writes: its result, or the tensor that it updates in
    place."""
    return inst.inputs[0] if inst.output is None else inst.output


def _reached(program: Program, every: list[Any], made: list[Any]) -> list[int]:
    """Return the tensors that may hold unwritten values."""
    found = {id(inst.output): None for inst in made}
    size = 0
    while size < len(found):
        size = len(found)
        for inst in every:
            reached = any(id(tensor) in found for tensor in inst.inputs)
            if reached and description_of(inst, str(program.location_of(inst)))[0].carries:
                found[id(_target(inst))] = None
    return list(found)


# origins


def filled(tensor: Any, number: int) -> np.ndarray:
    return spread(np.full((WARP, tensor.layout.local_size), number, np.uint8), element(tensor.dtype).dtype)


def fresh(tensor: Any, number: int) -> Callable[[Warp], Origins]:
    return lambda warp: filled(tensor, number) if warp.cta.grid.follow_unwritten else None


def written(old: Origins, new: Origins) -> Origins:
    """Return the origins of a tensor that is written as a whole, updated in place for its views."""
    if old is None or new is old:
        return new
    old[...] = 0 if new is None else new
    return None if new is None else old


def moved(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an instruction that only moves elements as a function of origins."""
    return lambda warp, arguments, *origins: function(warp, *origins)


def carried(carry: Callable[..., Any], operands: dict[int, Any]) -> Callable[..., Origins]:
    """Return a function that calls `carry` only if an operand has origins."""

    def run(warp: Warp, arguments: tuple[Any, ...], origins: list[Any]) -> Origins:
        if all(origins[i] is None for i in operands):
            return None
        for i, tensor in operands.items():
            if origins[i] is None:
                origins[i] = filled(tensor, 0)
        made = carry(warp, arguments, *origins)
        made = origins[0] if made is None else made  # updated in place
        return made if made.any() else None

    return run


# text


def _box(layout: WarpLayout, active: np.ndarray) -> Box:
    """Return the rectangle around these registers, in the tensor's coordinates."""
    held = [coordinate[active > 0] for coordinate in layout.coords]
    return tuple((int(each.min()), int(each.max()) + 1) for each in held)


def _share(active: np.ndarray) -> str:
    """Return a text such as `64 of 64 elements a lane`."""
    each, size = np.count_nonzero(active, axis=1), active.shape[1]
    if (each == each[0]).all():
        return f"{each[0]} of {size} elements a lane"
    return f"{each.sum()} of {active.size} elements of the warp"


def _zero(item: Element) -> str:
    return "0.0" if item.is_float else "False" if item.name == "bool" else "0"
