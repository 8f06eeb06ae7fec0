"""Translates tilus's host function, after all passes, to a `LaunchPlan`.

The host function computes grids, tensor maps and arguments and calls the driver. An unknown statement raises
UnsupportedError with its name. This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tilus.hidet.ir import expr as ir
from tilus.hidet.ir import stmt as st
from tilus.hidet.ir.tools import TypeInfer
from tilus.hidet.ir.type import DataType, OpaqueType, PointerType, TensorType
from tilus.ir.instructions.cuda.cp_async_tensor import CopyAsyncTensorSharedToGlobalInst

from blackwell_matmul.base.errors import CompileError, UnsupportedError
from blackwell_matmul.compiler.plan import (
    Argument,
    Check,
    Dim3,
    Expr,
    LaunchPlan,
    Parameter,
    TensorMap,
    Workspace,
    folded,
    parameters_of,
)
from blackwell_matmul.frontend.bind import pointee
from blackwell_matmul.frontend.faults.tilus_compat import deep
from blackwell_matmul.frontend.faults.tma_coordinates import misplaced
from blackwell_matmul.frontend.faults.wide_views import (
    BY_COORDINATES,
    MOST_OFFSET,
    TOO_WIDE,
    counted_views,
    last_offset,
)
from blackwell_matmul.frontend.pointer_views import joined_accesses
from blackwell_matmul.frontend.program import Program
from blackwell_matmul.frontend.recording import instructions

NONE: Mapping[str, int | float] = {}

_BINARY: Mapping[type, str] = {
    ir.Add: "+", ir.Sub: "-", ir.Multiply: "*", ir.Div: "//", ir.FloorDiv: "//", ir.Mod: "%",
    ir.LessThan: "<", ir.LessEqual: "<=", ir.Equal: "==", ir.NotEqual: "!=",
    ir.LogicalAnd: "and", ir.LogicalOr: "or",
    ir.BitwiseAnd: "&", ir.BitwiseOr: "|", ir.BitwiseXor: "^", ir.LeftShift: "<<", ir.RightShift: ">>",
}  # fmt: skip
_UNARY: Mapping[type, str] = {ir.LogicalNot: "not", ir.Neg: "neg"}
_WRAPS = {"+", "-", "*", "<<", "neg"}
"""Operators whose unsigned results may wrap in C."""

_CALLS: tuple[tuple[str, str], ...] = (
    (r"cuda_fastdiv_precompute_(m|s)", "fastdiv_{}"),
    (r"(?:\w+_)?[iu](?:nt)?(?:8|16|32|64)_(min|max)", "{}"),
)
"""Patterns of host functions, and their operators in a plan."""

_ENUMS = {
    "dtype": "CU_TENSOR_MAP_DATA_TYPE_",
    "interleave": "CU_TENSOR_MAP_INTERLEAVE_",
    "swizzle": "CU_TENSOR_MAP_SWIZZLE_",
    "l2_promotion": "CU_TENSOR_MAP_L2_PROMOTION_",
    "oob_fill": "CU_TENSOR_MAP_FLOAT_OOB_FILL_",
}
_IGNORED = ("cudaFuncSetAttribute(", "{cudaError_t err", "printf(", "//", "/*")
"""Beginnings of host statements that the runtime replaces: attributes, error checks, messages."""

_SENTENCES = {
    "Invalid launch configuration": "the grid or the block is larger than CUDA allows",
    "Cluster dims must elementwise evenly divide grid dims": "the grid is no multiple of the cluster",
    "At most 8 thread blocks in a cluster": "the cluster has more than 8 CTAs",
    "The last dimension of the global tensor must be contiguous": "a tensor behind TMA has strided rows",
}
"""Message for each failed assertion of tilus; tilus's text states the requirement, not the fault."""


@deep()
def launch_plan(
    module: Any, program: Program, kernel: str, early_start: Expr = 0, defaults: Mapping[str, int | float] = NONE
) -> LaunchPlan:
    """Return the plan of the module's `launch` function. kernel: name of its device function in the cubin. early_start:
    condition under which the grid may start before preceding grids have ended; the kernel waits for them itself
    (`launch_order`). defaults: of optional parameters."""
    plan = _Planner(module, program, kernel).plan()
    parameters = tuple(replace(each, default=defaults.get(each.name)) for each in plan.parameters)
    return replace(plan, early_start=early_start, parameters=parameters)


class _Planner:
    """Translates the host function's statements in order, and records every variable's value."""

    def __init__(self, module: Any, program: Program, kernel: str) -> None:
        (self._host,) = [function for function in module.functions.values() if function.kind == "public"]
        self._functions = module.functions
        self._program = program
        self._kernel = kernel
        self._infer = TypeInfer()
        self._values: dict[Any, Expr] = {}
        self._buffers: dict[Any, dict[int, Expr]] = {}
        self._maps: dict[Any, TensorMap] = {}
        self._workspaces: dict[Any, Workspace] = {}
        self._checks: list[Check] = []
        self._launch: Any = None
        self._parameters = tuple(
            self._parameter(var, name) for var, (name, _) in zip(self._host.params, program.params)
        )

    def plan(self) -> LaunchPlan:
        self._refuse_other_signs()
        self._refuse_other_multiples()
        self._refuse_wide_views()
        self._refuse_coordinates()
        self._refuse_addresses()
        self._walk(self._host.body, 1)
        launch = self._launch
        if launch is None:
            raise self._unsupported("no launch of a kernel")
        params = self._functions[launch.func_var.name].params
        arguments = tuple(self._argument(each, var) for each, var in zip(launch.args, params, strict=True))
        maps, workspaces = tuple(self._maps.values()), tuple(self._workspaces.values())
        for described in maps:
            self._check_map(described)
        return LaunchPlan(
            kernel=self._kernel,
            parameters=self._parameters,
            checks=tuple(dict.fromkeys(self._checks)),
            grid=self._dim3(launch.grid_dim),
            block=self._dim3(launch.block_dim),
            cluster=self._dim3(launch.cluster_dim),
            dynamic_shared_bytes=self._expr(launch.shared_mem_bytes),
            tensor_maps=maps,
            workspaces=workspaces,
            arguments=arguments,
        )

    def _dim3(self, dims: Any) -> Dim3:
        x, y, z = (self._expr(dim) for dim in dims)
        return x, y, z

    # --- parameters and arguments

    def _parameter(self, var: Any, name: str) -> Parameter:
        self._values[var] = name
        lies, taken_as = name in self._program.row_major, self._program.taken_as.get(name, "")
        return Parameter(name, _type_name(var.type), pointee(var.type), row_major=lies, taken_as=taken_as)

    def _argument(self, value: Any, param: Any) -> Argument:
        for kind, known in (("tensor_map", self._maps), ("workspace", self._workspaces)):
            if isinstance(value, ir.Var) and value in known:
                return Argument(kind, _type_name(param.type), list(known).index(value))
        return Argument("value", _type_name(param.type), self._expr(value))

    def _refuse_other_signs(self) -> None:
        """Check that parameters with a known divisor are >= 0, as the generated code assumes (`of_any_sign`)."""
        for name, var in self._program.params:
            if var in self._program.final.metadata.param2divisibility and _is_signed(var.type):
                wanted = f"it was compiled for {name} >= 0; compile it again with a negative {name} as the example"
                self._require((">=", name, 0), wanted)

    def _refuse_other_multiples(self) -> None:
        """Check that parameters are multiples of the divisors that the generated code assumes."""
        known = self._program.final.metadata.param2divisibility
        for name, var in self._program.params:
            divisor = known.get(var, 1)
            if divisor > 1:
                wanted = f"it was compiled for multiples of {divisor}; compile it again with this {name} as the example"
                self._require(("==", ("%", name, divisor), 0), wanted)

    def _refuse_wide_views(self) -> None:
        """Check that views whose size depends on the parameters fit 32-bit indices. Views of other layouts are skipped
        (`wide_views`)."""
        self._values.update((var, name) for name, var in self._program.params)
        for view in counted_views(self._program.tile):
            with suppress(UnsupportedError):
                last = self._expr(last_offset(view))
                name = self._program.name_of(view.output) or "a view"
                self._require(("<=", last, MOST_OFFSET), f"{name} {TOO_WIDE}")

    def _refuse_coordinates(self) -> None:
        """Check the constant start coordinates of each TMA copy; variable coordinates are skipped
        (`tma_coordinates`)."""
        for inst in instructions(self._program.tile):
            if isinstance(inst, BY_COORDINATES):
                store = isinstance(inst, CopyAsyncTensorSharedToGlobalInst)
                tensor = inst.inputs[0 if store else 1]
                name = self._program.name_of(tensor) or "a tensor"
                wrong = misplaced(name, [self._known(each) for each in inst.offsets], tensor.dtype.nbits, store)
                self._require(int(not wrong), f"{wrong} ({self._program.location_of(inst)})")

    def _refuse_addresses(self) -> None:
        """Check that each pointer is aligned to the widest access of the code."""
        for pointer, inst, unit in joined_accesses(self._program.tile, self._program.access_bytes):
            name = self._expr(pointer) if isinstance(pointer, ir.Var) else None
            if isinstance(name, str):
                line = self._program.location_of(inst)
                needed = f"which {line.short if line else 'the kernel'} accesses at once; pass a copy of the tensor"
                wanted = f"{name} does not start at a multiple of {unit} bytes, {needed}"
                self._require(("==", ("&", name, unit - 1), 0), wanted)

    def _known(self, value: Any) -> int | None:
        """Return the value of a constant expression; None if it depends on the device or the launch."""
        with suppress(UnsupportedError):
            found = self._expr(value)
            return found if isinstance(found, int) else None
        return None

    # --- statements

    def _walk(self, stmt: Any, path: Expr) -> None:
        """Translate a statement. path: condition under which the host function reaches `stmt`."""
        visit = getattr(self, f"_walk_{type(stmt).__name__}", None)
        if visit is None:
            raise self._unsupported(f"a {type(stmt).__name__}")
        visit(stmt, path)

    def _walk_SeqStmt(self, stmt: st.SeqStmt, path: Expr) -> None:
        for each in stmt.seq:
            self._walk(each, path)

    def _walk_LetStmt(self, stmt: st.LetStmt, path: Expr) -> None:
        for var, value in zip(stmt.bind_vars, stmt.bind_values):
            self._bind(var, value)
        self._walk(stmt.body, path)

    def _walk_DeclareStmt(self, stmt: st.DeclareStmt, path: Expr) -> None:
        if isinstance(stmt.var.type, TensorType):
            self._buffers[stmt.var] = {}
        elif stmt.init is not None:
            self._bind(stmt.var, stmt.init)
        elif not isinstance(stmt.var.type, OpaqueType):
            raise self._unsupported(f"a variable {stmt.var.hint} without a value")

    def _bind(self, var: Any, value: Any) -> None:
        call = value.expr if isinstance(value, ir.Cast) else value
        if isinstance(call, ir.Call) and call.func_var.name == "request_cuda_workspace":
            nbytes, clear = (self._expr(each) for each in call.args)
            self._workspaces[var] = Workspace(nbytes, bool(clear))
        else:
            self._values[var] = self._expr(value)

    def _walk_BufferStoreStmt(self, stmt: st.BufferStoreStmt, path: Expr) -> None:
        (index,) = stmt.indices
        self._buffers[stmt.buf][int(index)] = self._expr(stmt.value)

    def _walk_IfStmt(self, stmt: st.IfStmt, path: Expr) -> None:
        condition = self._expr(stmt.cond)
        self._walk(stmt.then_body, _and(path, condition))
        if stmt.else_body is not None:
            self._walk(stmt.else_body, _and(path, ("not", condition)))

    def _walk_AssertStmt(self, stmt: st.AssertStmt, path: Expr) -> None:
        message = str(stmt.msg or "an assertion of the host code fails").rstrip(".")
        self._require(_or(("not", path), self._expr(stmt.cond)), _SENTENCES.get(message, message))

    def _walk_LaunchKernelStmt(self, stmt: st.LaunchKernelStmt, path: Expr) -> None:
        # the host function launches only if no extent of the grid is 0: `Launch.is_empty`
        if self._launch is not None:
            raise self._unsupported("two launches")
        self._launch = stmt

    def _walk_BlackBoxStmt(self, stmt: st.BlackBoxStmt, path: Expr) -> None:
        text = stmt.template_string
        if text.startswith("cuTensorMapEncodeTiled("):
            var, described = self._tensor_map(text, *stmt.exprs)
            self._maps[var] = described
        elif not text.startswith(_IGNORED):
            raise self._unsupported(f"the statement {text.split('(')[0][:60]!r}")

    def _walk_EvaluateStmt(self, stmt: st.EvaluateStmt, path: Expr) -> None:
        if not (isinstance(stmt.expr, ir.Call) and stmt.expr.func_var.name == "printf"):
            raise self._unsupported(f"the statement {str(stmt.expr)[:60]!r}")

    # --- tensor maps

    def _tensor_map(self, text: str, var: Any, rank: Any, pointer: Any, *buffers: Any) -> tuple[Any, TensorMap]:
        ranks = self._expr(rank)
        assert isinstance(ranks, int)
        dims, strides, box, element_strides = (self._buffer(buffer) for buffer in buffers)
        enums = {field: re.findall(rf"{prefix}(\w+)", text)[0] for field, prefix in _ENUMS.items()}
        described = TensorMap(
            pointer=self._expr(pointer), dims=dims[:ranks], strides_bytes=strides[: ranks - 1], box=box[:ranks],
            element_strides=element_strides[:ranks], **enums,
        )  # fmt: skip
        return var.expr if isinstance(var, ir.Address) else var, described

    def _buffer(self, buffer: Any) -> tuple[Expr, ...]:
        stored = self._buffers[buffer]
        return tuple(stored[index] for index in range(len(stored)))

    def _check_map(self, described: TensorMap) -> None:
        """Check cuTensorMapEncodeTiled's rules on its arguments, as the driver returns only an error code."""
        name = described.pointer if isinstance(described.pointer, str) else "a tensor behind TMA"
        self._require(
            ("==", ("&", described.pointer, 15), 0), f"{name} does not start at a multiple of 16 bytes, as TMA needs it"
        )
        box = f"boxes of {described.box} elements of {described.dtype} with swizzle {described.swizzle}"
        rule = "an extent is 1 to 256, and a row a multiple of 16 bytes and no longer than the swizzle"
        self._require(_box_fits(described), f"TMA cannot copy {box}; {rule}")
        for stride in described.strides_bytes:
            self._require(
                ("==", ("&", stride, 15), 0), f"the rows of {name} are no multiple of 16 bytes apart, as TMA needs them"
            )

    def _require(self, condition: Expr, message: str) -> None:
        condition = folded(condition)
        if isinstance(condition, int) and not condition:
            raise CompileError(f"{self._program.name} cannot be launched for any argument: {message}.")
        if parameters_of(condition):
            self._checks.append(Check(condition, message))

    # --- expressions

    def _expr(self, value: Any) -> Expr:
        return folded(self._unfolded(value))

    def _unfolded(self, value: Any) -> Expr:
        if isinstance(value, (bool, int)):
            return int(value)
        visit = getattr(self, f"_expr_{type(value).__name__}", None)
        if visit is not None:
            found: Expr = visit(value)
            return found
        if type(value) in _BINARY:
            return self._binary(value)
        if type(value) in _UNARY:
            return self._wrapped((_UNARY[type(value)], self._expr(value.a)), value)
        raise self._unsupported(f"a {type(value).__name__}")

    def _expr_Var(self, value: ir.Var) -> Expr:
        if value not in self._values:
            raise self._unsupported(f"the variable {value.hint or value.name}")
        return self._values[value]

    def _expr_Constant(self, value: ir.Constant) -> Expr:
        if isinstance(value.value, (bool, int)) or (isinstance(value.type, DataType) and value.type.is_integer()):
            return int(value.value)
        raise self._unsupported(f"the constant {value.value!r}")

    def _expr_IfThenElse(self, value: ir.IfThenElse) -> Expr:
        condition = self._expr(value.cond)
        if isinstance(condition, int):
            return self._expr(value.then_expr if condition else value.else_expr)
        return ("?:", condition, self._expr(value.then_expr), self._expr(value.else_expr))

    def _expr_Cast(self, value: ir.Cast) -> Expr:
        inner, target, source = self._expr(value.expr), value.target_type, self._infer(value.expr)
        if isinstance(target, PointerType) or _same(target, source):
            return inner
        if isinstance(target, DataType) and target.name == "bool":
            return ("!=", inner, 0)
        if isinstance(target, DataType) and target.is_integer() and not _is_float(source):
            return (_short(target), inner)
        raise self._unsupported(f"a cast to {target}")

    def _expr_Call(self, value: ir.Call) -> Expr:
        for pattern, operator in _CALLS:
            named = re.fullmatch(pattern, value.func_var.name or "")
            if named:
                return (operator.format(named[1]), *(self._expr(each) for each in value.args))
        raise self._unsupported(f"a call of {value.func_var.name}")

    def _binary(self, value: Any) -> Expr:
        operator, a, b = _BINARY[type(value)], self._expr(value.a), self._expr(value.b)
        types = self._infer(value.a), self._infer(value.b)
        if any(_is_float(each) for each in types):
            raise self._unsupported("arithmetic on floating-point numbers")
        if isinstance(types[0], PointerType) and operator in "+-":
            b = folded(("*", b, _element_bytes(types[0])))
        return self._wrapped((operator, a, b), value)

    def _wrapped(self, expr: tuple[Any, ...], value: Any) -> Expr:
        kind = self._infer(value)
        unsigned = isinstance(kind, DataType) and kind.name.startswith("uint")
        return (_short(kind), expr) if expr[0] in _WRAPS and unsigned else expr

    def _unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"The host code of {self._program.name} has {what}, which a launch plan cannot hold.")


def _box_fits(described: TensorMap) -> Expr:
    """Return 1 if a box fits, else 0 ("cuTensorMapEncodeTiled", boxDim and swizzle). A box has 1 to 256 elements in
    each dimension. Its rows are multiples of 16 bytes and not longer than the swizzle."""
    known = [extent for extent in described.box if isinstance(extent, int)]
    bits = re.match(r"(?:B|T)?(?:UINT|INT|FLOAT)(\d+)", described.dtype)  # packed types of 4 and 6 bits do not match
    row = described.box[0]
    span = re.match(r"\d+", described.swizzle)
    row_bits = row * int(bits[1]) if bits and isinstance(row, int) else 0
    whole_rows = row_bits % 128 == 0 and (span is None or row_bits <= int(span[0]) * 8)
    return int(whole_rows and all(1 <= extent <= 256 for extent in known))


def _and(a: Expr, b: Expr) -> Expr:
    return b if a == 1 else ("and", a, b)


def _or(a: Expr, b: Expr) -> Expr:
    a, b = folded(a), folded(b)
    if isinstance(a, int):
        return 1 if a else b
    return a if b == 0 else ("or", a, b)


def _type_name(kind: Any) -> str:
    """Return the name of an argument's type in a plan."""
    if isinstance(kind, PointerType):
        return "pointer"
    return str(kind.cpp_name if isinstance(kind, OpaqueType) else kind.name)


def _short(kind: DataType) -> str:
    return f"{kind.name[0]}{kind.nbits}"


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, DataType) and isinstance(b, DataType) and a.name == b.name


def _is_signed(kind: Any) -> bool:
    return isinstance(kind, DataType) and kind.name.startswith("int")


def _is_float(kind: Any) -> bool:
    return isinstance(kind, DataType) and kind.is_float()


def _element_bytes(pointer: PointerType) -> int:
    base = pointer.base_type
    return int(base.nbytes) if isinstance(base, DataType) else 1
