"""`range` in a script means what it means in Python.

tilus 0.2.0 refuses `range(start, stop)`, fails in a later pass at a range that is always empty, and runs one with a
negative step too often: `range(3, 0, -1)` five times. It counts in int32 without a word, also from an int64
to an int64. Removable when it does none of these. This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from numbers import Number
from typing import Any

from tilus.hidet.ir.dtypes import int32, int64
from tilus.hidet.ir.expr import Constant, Expr, cast, if_then_else, less_than
from tilus.hidet.ir.tools import infer_type
from tilus.ir.builders import IRBuilder
from tilus.ir.stmt import DeclareStmt, SeqStmt, Stmt
from tilus.lang.constructs import loops

from blackwell_matmul.frontend.faults.tilus_compat import replaced
from blackwell_matmul.frontend.messages.phrases import one
from blackwell_matmul.frontend.messages.raised import Refusal, one_of
from blackwell_matmul.frontend.python.python_operators import fits, holds_more, is_float, number, type_of


def python_ranges() -> AbstractContextManager[None]:
    """Read ranges with Python's meaning, inside the block."""
    return replaced((loops, "range", _loop_range))


SHORT_STEP = 2048
"""Longest step with which 1,000,000 rounds, the most that simulate allows, stay within int32."""


class _RangeLoop(loops.RangeLoop, Sequence[int]):
    @property
    def values(self) -> range:
        """Return the range as Python's; raise Refusal if its bounds are known only when the kernel runs."""
        bounds = self.start, self.stop, self.step
        if not _known(*bounds):
            raise Refusal(
                "a range whose bounds are known only when the kernel runs has no list of values; a for statement goes "
                "over it"
            )
        return range(*map(int, bounds))

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def generate_loop_statement(self, loop_vars: list[Any], body: Stmt) -> Stmt:
        for kind in (infer_type(each) for each in (self.start, self.stop, self.step)):
            if holds_more(kind, int32):
                raise Refusal(
                    f"a for statement counts in int32, and here is {one(kind.name)}; int32(n) converts it, and a while "
                    "statement counts in every type"
                )
        known = _known(self.start, self.stop, self.step)
        if known and not self.values:
            return SeqStmt(())
        if _known(self.step) and int(self.step) > 0 and not (known and self.values != range(len(self.values))):
            return super().generate_loop_statement(loop_vars, body)
        return self._of_any_step(loop_vars[0], body)

    def _of_any_step(self, loop_var: Any, body: Stmt) -> Stmt:
        builder = IRBuilder()
        factor = -1 if self.unroll == "all" else self.unroll
        with builder.for_range(extent=self._rounds(), iter_name_hint=f"{loop_var.hint}_", unroll_factor=factor) as i:
            if self._is_far():
                value = cast(self.start + cast(i, int64) * self.step, int32)
            else:
                value = self.start + i * self.step
            builder.append(DeclareStmt(loop_var, init=value))
            builder.append(body)
        return builder.flush_stmts()

    def _is_far(self) -> bool:
        """Return True if the distance from the start may be beyond int32. Elsewhere int32 keeps what tilus knows of the
        value's divisors, which cp.async needs."""
        if _known(self.start, self.stop, self.step):
            return not fits(int(self.stop) - int(self.start), int32)
        return not _known(self.step) or abs(int(self.step)) > SHORT_STEP

    def _rounds(self) -> Any:
        """Count the rounds in int64, rounded away from 0 as C rounds towards it; none where the step leads away."""
        if _known(self.start, self.stop, self.step):
            return len(self.values)
        far = cast(self.stop, int64) - self.start
        if _known(self.step):
            step = -int(self.step)
            return (step - 1 - far) // step
        one = if_then_else(less_than(self.step, 0), 1, -1)
        return (far + self.step + one) // self.step


def _known(*values: Any) -> bool:
    return all(isinstance(each, Constant) for each in values)


def _loop_range(*bounds: Any, unroll: Any = None) -> _RangeLoop:
    given = [each for each in bounds if each is not None]  # self.range passes None for what it is not told
    if not 1 <= len(given) <= 3:
        raise ValueError(
            f"range takes a stop, a start and a stop, or both and a step, and here are {len(given)} values"
        )
    for each in given:
        if not isinstance(each, (Expr, Number)):
            raise ValueError(f"range counts in integers, and here is {one_of(each)}")
    if any(is_float(type_of(each)) for each in given):
        raise ValueError("range counts in integers, and here is a float; int32(f) converts it first")
    start, stop, step = {1: (0, *given, 1), 2: (*given, 1), 3: given}[len(given)]
    loop = _RangeLoop(number(start), number(stop), number(step), unroll)
    if _known(loop.step) and int(loop.step) == 0:
        raise ValueError("the step of this range is 0, with which it has no end")
    return loop
