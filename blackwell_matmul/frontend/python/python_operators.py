"""Operators in a script have the same value as in Python, or are refused; docs/python.md lists each operator.

tilus 0.2.0 reads `a < b < c` as `(a < b) < c`, and adds bools as bools. It converts 0.5 to 0 in an expression with an
integer tile, and divides integers by `/` as C does. The value of `n and 5` differs between its simplifier and C, and
`~n` is an address. Integers are divided as C does, variables and constants alike: docs/numbers.md. This module imports
tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilus.hidet import ir
from tilus.hidet.ir.dtypes import boolean, float32, int32, int64
from tilus.hidet.ir.dtypes.promotion import promote_type
from tilus.hidet.ir.expr import BitwiseNot, Cast, Constant, Expr, LeftShift, Neg, Var, as_expr, if_then_else
from tilus.hidet.ir.tools import infer_type
from tilus.hidet.ir.type import BaseType, DataType, PointerType
from tilus.ir.inst import Instruction
from tilus.ir.instructions import SliceRegisterInst
from tilus.ir.stmt import DeclareStmt, InstStmt, TensorItemValueStmt
from tilus.ir.tensor import GlobalTensor, RegisterTensor, SharedTensor, Tensor
from tilus.lang.constructs.structs.dim3 import Dim3
from tilus.lang.instructions.base import InstructionGroup
from tilus.lang.script import Script
from tilus.lang.transpiler import Transpiler

from blackwell_matmul.frontend.faults.tilus_arithmetic import overflows, quotient, wrapped
from blackwell_matmul.frontend.identity import IdentityMap
from blackwell_matmul.frontend.messages.phrases import one, plain_sentence
from blackwell_matmul.frontend.messages.raised import Refusal, kind, one_of

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)
_FLOOR_DIVISIONS = (ast.FloorDiv, ast.Mod)

_COMPARISONS: dict[type[ast.cmpop], tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    ast.Eq: (operator.eq, ir.equal),
    ast.NotEq: (operator.ne, ir.not_equal),
    ast.Lt: (operator.lt, ir.less_than),
    ast.LtE: (operator.le, ir.less_equal),
    ast.Gt: (operator.gt, lambda a, b: ir.less_than(b, a)),
    ast.GtE: (operator.ge, lambda a, b: ir.less_equal(b, a)),
}
"""Comparison operators: for Python values, and for values that the kernel computes."""

_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}


def refused(node: ast.AST, words: str) -> Refusal:
    """Return the error for this node of a script."""
    return Refusal(f"`{ast.unparse(getattr(node, 'written', node))}` {words}")


def known(value: Any) -> bool | None:
    """Return the truth of a value; None if the kernel computes the value."""
    if isinstance(value, Constant):
        return bool(value.value)
    if isinstance(value, Tensor):
        raise Refusal(
            "a tensor stands where one number must, as in a condition; choose between tiles with self.where, or take "
            "the .item() of a tensor of one element"
        )
    return None if isinstance(value, Expr) else bool(value)


def type_of(value: Any) -> Any:
    """Return the type of a kernel's number, or the type that a Python number gets in the kernel."""
    if isinstance(value, Var):
        return value.type
    if isinstance(value, bool):
        return boolean
    if isinstance(value, int):
        return int32 if fits(value, int32) else int64
    return float32 if isinstance(value, float) else infer_type(value)


def fits(value: int, integer: Any) -> bool:
    limits = integer.iinfo()
    return bool(limits.min <= value <= limits.max)


def is_integer(kind: Any) -> bool:
    """Return True for a type of integers; the type of truths is none."""
    return isinstance(kind, DataType) and kind.is_integer() and kind != boolean


def holds_more(one: Any, other: Any) -> bool:
    """Return True if the first integer type has a number that the second one lacks."""
    return is_integer(one) and not (fits(one.iinfo().min, other) and fits(one.iinfo().max, other))


def is_float(kind: Any) -> bool:
    return isinstance(kind, DataType) and bool(kind.is_float())


def number(value: Any) -> Any:
    """Return a Python number as a kernel's number: an int64 beyond int32, as in C."""
    if isinstance(value, int) and not fits(value, int32):
        if not fits(value, int64):
            raise Refusal(f"{value} is beyond int64, the widest integer of a kernel")
        return int64.constant(value)
    return value


def counted(value: Any) -> Any:
    """Return a truth value as 0 or 1, as in Python; any other number unchanged."""
    if type_of(value) != boolean:
        return number(value)
    return int(value) if isinstance(value, bool) else int32(value)


def truth(value: Any) -> Any:
    return value if type_of(value) == boolean else ir.not_equal(value, type_of(value).zero)


def choice(condition: Any, a: Any, b: Any) -> Any:
    """Return an expression of one of two values, by a condition, in a type that holds both."""
    if not all(isinstance(each, (Expr, bool, int, float)) for each in (a, b)):
        raise Refusal(f"{kind(a)} or {kind(b)} is chosen here while the kernel runs, and only numbers can be")
    kinds = type_of(a), type_of(b)
    if kinds[0] != kinds[1] and not any(map(is_float, kinds)):
        common = promote_type(*(int32 if each == boolean else each for each in kinds))
        a, b = common(number(a)), common(number(b))
    elif kinds[0] != kinds[1]:
        raise Refusal(
            f"{kinds[0].name} or {kinds[1].name} is chosen here, and a value of a kernel has one type; convert one of "
            "them, as in float32(n)"
        )
    return if_then_else(condition, a, b)


class PythonOperators(Transpiler):
    """tilus's transpiler with Python's operators."""

    def __init__(self) -> None:
        super().__init__()
        self._truths: IdentityMap[None] = IdentityMap()

    def declare(self, type: Any, init: Any = None, hint: str | None = None) -> Any:
        """Declare a variable, and convert its initial value to its type.

        tilus 0.2.0 substitutes the unconverted value for a variable that no statement assigns again. So half of a
        float32 that is declared int32 became an integer.
        """
        init = init if init is None else stored(init, type)
        return super().declare(type=type, init=init, hint=hint)

    def assign(self, var: Any, value: Any) -> None:
        """Assign a number, converted to the variable's type.

        tilus 0.2.0 uses the bounds of the sum as bounds of the variable, even if its type cannot hold them, as for a
        uint32 that counts below 0.
        """
        super().assign(var=var, value=stored(value, var.type))

    # --- two operands

    def visit_BinOp(self, expr: ast.BinOp) -> Any:
        return self.binary(expr, expr.op, self.visit(expr.left), self.visit(expr.right))

    def binary(self, node: ast.AST, op: ast.operator, a: Any, b: Any) -> Any:
        """Return the value of a binary operator. node: its place, for the sentence of a refusal."""
        if isinstance(a, RegisterTensor) or isinstance(b, RegisterTensor):
            return self._of_tiles(node, op, a, b)
        if isinstance(a, Expr) or isinstance(b, Expr):
            return _of_scalars(node, op, a, b)
        return _of_python(node, op, a, b)

    def _of_tiles(self, node: ast.AST, op: ast.operator, a: Any, b: Any) -> Any:
        tile = a if isinstance(a, RegisterTensor) else b
        other = b if tile is a else a
        if joins_truths(op, a, b):
            together = {ast.BitAnd: ir.logical_and, ast.BitOr: ir.logical_or, ast.BitXor: ir.not_equal}[type(op)]
            return self.elementwise_binary(self._scalar_tile(a), self._scalar_tile(b), f_compute=together)
        method = self._method(node, op, tile.dtype, other)
        return method(self._tile(node, a, tile), self._tile(node, b, tile))

    def _method(self, node: ast.AST, op: ast.operator, dtype: Any, other: Any) -> Callable[..., Any]:
        """Return the method for an operator of tiles; raise Refusal where Python has another value."""
        methods = {
            ast.Add: self.add,
            ast.Sub: self.sub,
            ast.Mult: self.mul,
            ast.Div: self.div,
            ast.FloorDiv: self.div,
            ast.Mod: self.mod,
            ast.BitXor: self.bitwise_xor,
        }
        if type(op) not in methods:
            raise refused(node, f"has no instruction for tiles{_instead(op)}")
        if not isinstance(other, (RegisterTensor, Expr, bool, int, float)) or kind(other) == "pointer":
            raise refused(node, f"has a tile and {one_of(other)}; operators take tiles and numbers")
        kinds = dtype, other.dtype if isinstance(other, RegisterTensor) else type_of(other)
        if kinds[0] == boolean and (kinds[1] == boolean or not isinstance(other, RegisterTensor)):
            raise refused(
                node,
                "computes with a tile of truths, whose sum and product are truths again; convert it first, "
                "with .to(int32), or use & and | of two such tiles",
            )
        alone = isinstance(op, ast.Div) and not isinstance(other, RegisterTensor)  # a number becomes one of the tile's
        _check_division(node, op, kinds[:1] if alone else kinds, "x.to(float32)")
        _check_divisor(node, op, other)
        return methods[type(op)]

    def _tile(self, node: ast.AST, value: Any, beside: Any) -> Any:
        """Return a number as a tile of the type and shape of the other operand."""
        if isinstance(value, RegisterTensor):
            return value
        why, into = misfit_of_tile(value, beside.dtype), "float32" if is_float(type_of(value)) else "int64"
        if why is not None:
            raise Refusal(f"the tile in `{ast.unparse(node)}` {why}; convert the tile first, as in x.to({into})")
        return self.allocate_register(dtype=beside.dtype, shape=beside.shape, f_init=lambda _: beside.dtype(value))

    # --- one operand

    def visit_UnaryOp(self, expr: ast.UnaryOp) -> Any:
        if isinstance(expr.op, ast.USub) and _rounds_up(expr.operand):
            raise refused(
                expr,
                "rounds up in Python alone, since // is C's in a kernel; cdiv(a, b) of "
                "tilus.utils rounds up, and (a + b - 1) // b",
            )
        value = self.truth(expr.operand) if isinstance(expr.op, ast.Not) else self.visit(expr.operand)
        if isinstance(value, RegisterTensor):
            return self._of_tile(expr, value)
        if isinstance(value, BaseType) and isinstance(expr.op, ast.Invert):
            return ~value
        if isinstance(value, (GlobalTensor, SharedTensor)) and isinstance(expr.op, ast.Invert):
            return self.tensor_item_ptr(value, space="generic")
        if isinstance(value, Expr) and not isinstance(value, Constant):
            return _of_scalar(expr, value)
        found = tried(expr, _UNARY[type(expr.op)], value)
        kept = isinstance(value, Constant) and not isinstance(found, bool) and _keeps_type(value.type)
        return value.type(wrapped(found, value.type) if isinstance(found, int) else found) if kept else found

    def _of_tile(self, expr: ast.UnaryOp, tile: Any) -> Any:
        op, truths = expr.op, tile.dtype == boolean
        if isinstance(op, (ast.USub, ast.UAdd)) and truths:
            raise refused(expr, "is of a tile of truths; convert it first, with .to(int32)")
        if isinstance(op, ast.UAdd):
            return self.copied(tile)
        if isinstance(op, ast.USub):
            return self.neg(tile)
        if isinstance(op, ast.Not) or truths:
            return self.logical_not(tile)
        if not is_integer(tile.dtype):
            raise refused(expr, f"inverts bits, and the tile is of {tile.dtype.name}")
        limits = tile.dtype.iinfo()
        ones = -1 if limits.min < 0 else limits.max
        return self.bitwise_xor(tile, self._tile(expr, ones, tile))

    def copied(self, tile: RegisterTensor) -> RegisterTensor:
        copy = self.allocate_register(dtype=tile.dtype, shape=tile.shape)
        self.assign_register(output=copy, x=tile)
        return copy

    # --- truths

    def truth(self, test: ast.expr) -> Any:
        """Return the value of an expression that is used only as a bool, such as a condition."""
        nodes = [test]
        while nodes:
            node = nodes.pop()
            if isinstance(node, ast.BoolOp):
                self._truths[node] = None
                nodes += node.values
        return self.visit(test)

    def visit_BoolOp(self, expr: ast.BoolOp) -> Any:
        """Evaluate `and` and `or`: stop at a known operand that decides, and drop known operands that do not."""
        joins, ends = _JOINS[type(expr.op)]
        operands: list[Any] = []
        for node in expr.values:
            visit = self._truth_alone if expr in self._truths else self.visit
            operands.append(self._aside(node, visit) if operands else visit(node))
            if isinstance(operands[-1], Tensor):
                raise refused(
                    expr,
                    "asks for the one truth of a tile, which has many; tiles of truths have & "
                    "and |, as in (x > 0) & (x < 5)",
                )
            if known(operands[-1]) is ends:
                break
        operands = [each for each in operands[:-1] if known(each) is None] + operands[-1:]
        if len(operands) == 1:
            return operands[0]
        return joins(*operands) if _all_truths(*operands) else self._one_of(operands, ends)

    def _truth_alone(self, node: ast.expr) -> Any:
        value = self.visit(node)
        return truth(value) if isinstance(value, Expr) and not isinstance(value, Constant) else value

    def _one_of(self, operands: Sequence[Any], ends: bool) -> Any:
        """Return the first operand whose truth is `ends`, else the last one."""
        found = operands[-1]
        for each in reversed(operands[:-1]):
            value = each if isinstance(each, Var) else self.declare(type=type_of(each), init=each)
            found = choice(truth(value), *((value, found) if ends else (found, value)))
        return found

    def _aside(self, node: ast.expr, visit: Callable[[Any], Any]) -> Any:
        """Return the value of an operand that Python may skip. It must have no side effects, since the kernel always
        evaluates it."""
        before = len(self._stack[-1])
        value = visit(node)
        if not all(map(_is_pure, self._stack[-1][before:])):
            raise refused(
                node, "may be skipped in Python, and what it reads or does is done here always; put it under an if"
            )
        return value

    def visit_IfExp(self, expr: ast.IfExp) -> Any:
        condition = self.truth(expr.test)
        chosen = None if isinstance(condition, Tensor) else known(condition)
        if chosen is not None:
            return self.visit(expr.body if chosen else expr.orelse)
        values = [self._aside(node, self.visit) for node in (expr.body, expr.orelse)]
        if not all(isinstance(each, (Expr, bool, int, float)) for each in (condition, *values)):
            raise Refusal(
                "`a if c else b` in a kernel is for scalars alone; use self.where on tiles, or an if statement"
            )
        return choice(truth(condition), *values)

    # --- comparisons

    def visit_Compare(self, expr: ast.Compare) -> Any:
        """Return the value of a comparison: `a < b < c` is `a < b and b < c`, with b computed once."""
        a, found = self.visit(expr.left), None
        for op, node in zip(expr.ops, expr.comparators, strict=True):
            b = self.visit(node) if found is None else self._aside(node, self.visit)
            each = self._compare(expr, op, a, b)
            found = each if found is None else self._both(found, each)
            a = b
        return found

    def _both(self, a: Any, b: Any) -> Any:
        if isinstance(a, RegisterTensor) or isinstance(b, RegisterTensor):
            return self.elementwise_binary(self._scalar_tile(a), self._scalar_tile(b), f_compute=ir.logical_and)
        return ir.logical_and(a, b)

    def _scalar_tile(self, value: Any) -> Any:
        if isinstance(value, RegisterTensor):
            return value
        return self.allocate_register(dtype=type_of(value), shape=[], f_init=lambda _: value)

    def _compare(self, node: ast.AST, op: ast.cmpop, a: Any, b: Any) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot)):
            return as_expr(_identical(node, a, b) is isinstance(op, ast.Is))
        if isinstance(op, (ast.In, ast.NotIn)):
            found = self._member(node, a, b)
            return found if isinstance(op, ast.In) else ir.logical_not(found)
        of_python, of_kernel = _COMPARISONS[type(op)]
        if not _computed(a) and not _computed(b):
            if holds_computed(a) or holds_computed(b):
                raise refused(node, "compares sequences with values that are known only when the kernel runs; compare "
                              "element by element, as in a[0] == b[0] and a[1] == b[1]")  # fmt: skip
            a, b = (as_expr(each) if isinstance(each, float) and isinstance(other, Constant) else each
                    for each, other in ((a, b), (b, a)))  # fmt: skip
            return as_expr(bool(tried(node, of_python, a, b)))
        for each in (a, b):
            if not isinstance(each, (RegisterTensor, Expr, bool, int, float)):
                raise refused(node, f"compares a number with {one_of(each)}; numbers are compared with numbers")
        a, b = _compared(a, op, b, left=True), _compared(b, op, a, left=False)
        if isinstance(a, RegisterTensor) or isinstance(b, RegisterTensor):
            return self._compare_tiles(of_kernel, a, b)
        return of_kernel(as_expr(number(a)), as_expr(number(b)))

    def _compare_tiles(self, compute: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        truths = [(each.dtype if isinstance(each, RegisterTensor) else type_of(each)) == boolean for each in (a, b)]
        if truths[0] != truths[1]:
            raise Refusal("a tile of truths is compared with numbers; convert it first, with .to(int32)")
        return self.elementwise_binary(self._scalar_tile(number(a)), self._scalar_tile(number(b)), f_compute=compute)

    def _member(self, node: ast.AST, a: Any, items: Any) -> Any:
        """Return the truth of `a in items` for numbers in a list or a tuple, or Python's own answer for its values."""
        if not isinstance(items, (list, tuple)) or not any(map(_computed, (a, *items))):
            if _computed(items) or holds_computed([a, items]):
                raise refused(node, "needs a list of numbers behind in, as (1, 3) is one; a range is 0 <= i < n")
            return as_expr(bool(tried(node, lambda a, b: a in b, a, items)))
        found = [self._compare(node, ast.Eq(), a, each) for each in items] or [as_expr(False)]
        if any(isinstance(each, RegisterTensor) for each in found):
            raise refused(node, "asks for the one truth of a tile, which has many; compare with == and |")
        return ir.logical_or(*found) if len(found) > 1 else found[0]


_JOINS: dict[type[ast.boolop], tuple[Callable[..., Any], bool]] = {
    ast.And: (ir.logical_and, False),
    ast.Or: (ir.logical_or, True),
}
"""The function that joins truths, and the truth of an operand that decides the result."""


def _compared(value: Any, op: ast.cmpop, other: Any, left: bool) -> Any:
    """Return a number for a comparison with another one: a float beside an integer as the integer that compares the
    same, since C would round the other one to float32; an integer beside a float as that type's."""
    into = other.dtype if isinstance(other, RegisterTensor) else type_of(other)
    found = value.value if isinstance(value, Constant) else value
    if isinstance(found, int) and is_float(into):
        return into(found)
    if not isinstance(found, float) or not is_integer(into) or not math.isfinite(found):
        return value
    if isinstance(op, (ast.Eq, ast.NotEq)) and not found.is_integer():
        return 0.5  # which float32 holds, and no integer equals
    whole = math.ceil(found) if isinstance(op, (ast.Lt, ast.GtE)) is not left else math.floor(found)
    return whole if fits(whole, int64) else math.copysign(math.inf, found)


def _computed(value: Any) -> bool:
    """Return True if the kernel computes a value, so that it is unknown before the kernel runs."""
    return isinstance(value, Tensor) or (isinstance(value, Expr) and not isinstance(value, Constant))


def _is_pure(stmt: Any) -> bool:
    """Return True if a statement makes values in registers and does nothing else."""
    if isinstance(stmt, TensorItemValueStmt):
        return isinstance(stmt.tensor, RegisterTensor)
    if isinstance(stmt, InstStmt):
        inst: Instruction = stmt.inst
        if isinstance(inst, SliceRegisterInst) and any(map(_computed, inst.offsets)):
            return False  # it may be beyond the tensor, where Python does not look
        return isinstance(inst.output, RegisterTensor) and all(isinstance(each, RegisterTensor) for each in inst.inputs)
    return isinstance(stmt, DeclareStmt)


def joins_truths(op: ast.operator, a: Any, b: Any) -> bool:
    """Return True for `&`, `|` and `^` of truths, which tiles have."""
    return isinstance(op, _BITWISE) and _all_truths(a, b)


def _all_truths(*values: Any) -> bool:
    return all(map(_is_truth, values))


def _is_truth(value: Any) -> bool:
    if isinstance(value, Tensor):
        return bool(value.dtype == boolean)
    return isinstance(value, (Expr, bool)) and type_of(value) == boolean


def _identical(node: ast.AST, a: Any, b: Any) -> bool:
    if not (a is None or b is None) and (_computed(a) or _computed(b)):
        raise refused(node, "asks whether two values of the kernel are one object; == compares their values")
    return a is b


def tried(node: ast.AST, compute: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """Return the result of `compute` on Python values; raise Refusal with Python's message."""
    try:
        return compute(*(each.value if isinstance(each, Constant) else each for each in values), **named)
    except Refusal:
        raise
    except KeyError as error:
        raise refused(node, f"asks for {error}, which the dict has not") from None
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise refused(node, f"has no value in Python: {plain_sentence(str(error))}") from None


def _of_python(node: ast.AST, op: ast.operator, a: Any, b: Any) -> Any:
    if isinstance(op, _FLOOR_DIVISIONS) and isinstance(a, int) and isinstance(b, int) and b != 0:
        return quotient(a, b) if isinstance(op, ast.FloorDiv) else a - b * quotient(a, b)
    if isinstance(op, ast.Add) and isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return a + b if type(a) is type(b) else [*a, *b]  # type: ignore[operator]
    if isinstance(a, _OBJECTS) or isinstance(b, _OBJECTS):
        raise refused(node, f"has {one_of(a)} and {one_of(b)}; operators take numbers and tiles")
    return tried(node, _OPERATORS[type(op)], a, b)


_OBJECTS = (BaseType, Dim3, InstructionGroup, Script)
"""Objects of a script that are never operands."""


def holds_computed(value: Any) -> bool:
    """Return True if a Python container has a value that the kernel computes."""
    items = (*value.keys(), *value.values()) if isinstance(value, Mapping) else value
    return isinstance(items, (list, tuple, set)) and any(_computed(each) or holds_computed(each) for each in items)


def _of_scalars(node: ast.AST, op: ast.operator, a: Any, b: Any) -> Any:
    for each in (a, b):
        if not isinstance(each, (Expr, bool, int, float)):
            raise refused(node, f"has a number of the kernel and {one_of(each)}; operators take numbers and tiles")
    kinds = type_of(a), type_of(b)
    if isinstance(op, (ast.Pow, ast.MatMult)):
        raise refused(node, f"has no code for a variable{_instead(op)}")
    if any(isinstance(each, PointerType) for each in kinds) and not _moves_pointer(op, kinds):
        raise refused(node, "has a pointer, to which an integer is added and nothing else")
    if isinstance(op, (*_BITWISE, ast.LShift, ast.RShift)) and any(map(is_float, kinds)):
        raise refused(node, "is of the bits of integers, and one operand is a float; int32(x) converts it")
    if all(isinstance(each, DataType) for each in kinds):
        _check_division(node, op, kinds, "float32(n)")
        _check_divisor(node, op, b)
        truths = kinds == (boolean, boolean) and not isinstance(op, _BITWISE)
        a, b = map(counted if truths else number, (a, b))
        if kinds[0] == boolean and is_integer(kinds[1]):  # tilus 0.2.0 would shift and join in the type of a truth
            a = kinds[1](a) if isinstance(a, Expr) else int(a)
        if is_float(kinds[0]) != is_float(kinds[1]):
            common = promote_type(*kinds)  # tilus 0.2.0 makes n of n * 1.0, which is an integer
            a, b = common(a), common(b)
        if boolean not in kinds and not _computed(a) and not _computed(b):
            return _of_constants(node, op, (a, b), kinds)
        if isinstance(op, _BITWISE) and all(map(is_integer, kinds)):
            a, b = _joined_bits(a, b, kinds)
    return _OPERATORS[type(op)](a, b)


def _moves_pointer(op: ast.operator, kinds: Sequence[Any]) -> bool:
    """Return True for the sum or the difference of a pointer and an integer."""
    added = is_integer(kinds[1]) or (isinstance(op, ast.Add) and is_integer(kinds[0]))
    return isinstance(op, (ast.Add, ast.Sub)) and added


def _of_constants(node: ast.AST, op: ast.operator, values: Sequence[Any], kinds: Sequence[Any]) -> Any:
    """Return the value of two constants in the type that C gives it: unsigned integers wrap, and floats are rounded."""
    into = kinds[0] if isinstance(op, (ast.LShift, ast.RShift)) else promote_type(*kinds)
    value = _of_python(node, op, *(each.value if isinstance(each, Constant) else each for each in values))
    value = wrapped(value, into) if is_integer(into) and into.iinfo().min == 0 else value
    why = misfit(value, into)
    if why is not None:
        raise refused(node, why)
    return into(value)


def stored(value: Any, into: Any) -> Any:
    """Return a number of Python or of the kernel as a variable of a type holds it."""
    if not isinstance(into, DataType) or not isinstance(value, (Expr, bool, int, float)):
        return value
    wide = isinstance(value, (Neg, LeftShift, BitwiseNot)) and is_integer(into) and into.nbytes < int32.nbytes  # in C
    if not isinstance(value, Expr) or type_of(value) != into:
        return into(value)
    return Cast(value, into) if wide else value


def _joined_bits(a: Any, b: Any, kinds: Sequence[Any]) -> tuple[Any, Any]:
    """Return the operands of `&`, `|` or `^` in a common type. tilus 0.2.0 uses the type of the left operand."""
    left, right = kinds
    common = promote_type(left, right)
    if common == left or (isinstance(b, int) and fits(b, left)):
        return a, b
    return common(a), b


def _of_scalar(expr: ast.UnaryOp, value: Any) -> Any:
    if isinstance(expr.op, ast.Not):
        return ir.logical_not(truth(value))
    if isinstance(type_of(value), PointerType):
        raise refused(expr, "has a pointer, to which an integer is added and nothing else")
    if isinstance(expr.op, ast.UAdd):
        return counted(value)
    if isinstance(expr.op, ast.USub):
        return -counted(value)
    if not is_integer(type_of(counted(value))):
        raise refused(expr, f"inverts the bits of an integer, and here is {_shown(value)}")
    return BitwiseNot(counted(value))


def _keeps_type(kind: Any) -> bool:
    """Return True if -x has the type of x, and not an int's value, as for signed integers and truths."""
    return is_float(kind) or (is_integer(kind) and kind.iinfo().min == 0 and kind.iinfo().bits >= 32)


def _check_division(node: ast.AST, op: ast.operator, kinds: Sequence[Any], conversion: str) -> None:
    """Refuse divisions in which C differs from Python in more than the signs of docs/numbers.md."""
    floats = any(map(is_float, kinds))
    if isinstance(op, ast.Div) and not floats:
        raise refused(
            node,
            f"divides integers, which gives a fraction in Python and none in C; // leaves it out, "
            f"{conversion} converts first",
        )
    if isinstance(op, _FLOOR_DIVISIONS) and floats:
        what = "quotient" if isinstance(op, ast.FloorDiv) else "remainder"
        raise refused(node, f"has no code for floats, whose {what} C does not round as Python does; / divides")


def _check_divisor(node: ast.AST, op: ast.operator, divisor: Any) -> None:
    divisor = divisor.value if isinstance(divisor, Constant) else divisor
    if isinstance(op, _FLOOR_DIVISIONS) and isinstance(divisor, int) and divisor == 0:
        raise refused(node, "has no value: it divides an integer by 0")


def _instead(op: ast.operator) -> str:
    if isinstance(op, ast.Pow):
        return "; multiply, as in n * n"
    return "; self.dot multiplies matrices" if isinstance(op, ast.MatMult) else ""


def misfit(value: Any, into: Any) -> str | None:
    """Return the reason why a number would change in this type; None: it fits."""
    if is_float(type_of(value)) and not is_float(into):
        if not isinstance(value, float) or not value.is_integer():
            return f"is of {into.name}, which would cut {_shown(value)}"
    if into == boolean and type_of(value) != boolean:
        return f"is of truths, and {_shown(value)} is none"
    if isinstance(value, int) and is_integer(into) and not fits(value, into):
        return f"is of {into.name}, which does not hold {value}"
    if isinstance(value, (int, float)) and is_float(into) and overflows(value, into):
        return f"is of {into.name}, which does not hold {value}"
    return None


def misfit_of_tile(value: Any, into: Any) -> str | None:
    """Return the reason why a number, or some value of its integer type, would change in a tile of this type; None: it
    fits."""
    if isinstance(value, Expr) and is_integer(into) and holds_more(type_of(value), into):
        return f"is of {into.name}, which would cut {_shown(value)}"
    return misfit(value, into)


def _shown(value: Any) -> str:
    return one(type_of(value).name) if isinstance(value, Expr) else str(value)


def check_integers(name: str, values: Any) -> None:
    """Raise Refusal if a value, or one of several values under a name, is a float."""
    for each in values if isinstance(values, (list, tuple)) else (values,):
        if isinstance(each, (Expr, float)) and is_float(type_of(each)):
            found = each.value if isinstance(each, Constant) else each
            raise Refusal(f"{name} takes integers, and here is {_shown(found)}; int32(x) converts it")


def _rounds_up(node: ast.expr) -> bool:
    """Return True for the -a // b of -(-a // b)."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)):
        return False
    return isinstance(node.left, ast.UnaryOp) and isinstance(node.left.op, ast.USub)
