"""`build`: run tilus once over a bound script and keep both views of the result.

The stages are tilus's own, driven directly: its JitInstance would transpile in a process pool, write to a
cache folder and ask for a GPU. No file is written here and no process started.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blackwell_matmul.base.errors import BlackwellMatmulError, CompileError
from blackwell_matmul.frontend.bind import Bound
from blackwell_matmul.frontend.faults import tilus_compat
from blackwell_matmul.frontend.faults.tilus_arithmetic import held_constants, sound_arithmetic
from blackwell_matmul.frontend.identity import IdentityMap
from blackwell_matmul.frontend.program import Location, Program

if TYPE_CHECKING:
    from blackwell_matmul.frontend.recording import Recorder, RecordingCodegen

CACHED_PROGRAMS = 64
"""Maximum number of programs in the process's cache; the least recently used is dropped first."""

_cache: OrderedDict[Hashable, Program] = OrderedDict()


def build(bound: Bound, target: str) -> Program:
    """Return the program of `bound` for `target`; raise CompileError, one sentence, if tilus refuses it."""
    tilus_compat.import_tilus()
    tilus_compat.check_target(target)
    key = _key(bound, target)
    with tilus_compat.lock:
        program = None if key is None else _cache.pop(key, None)
        program = program or _Build(bound, target).run()
        if key is not None:
            _cache[key] = program
            while len(_cache) > CACHED_PROGRAMS:
                _cache.popitem(last=False)
        return program


def build_first(candidates: Sequence[Bound], target: str) -> tuple[Bound, Program]:
    """Return the first candidate that compiles; if none does, the first CompileError."""
    refusal: CompileError | None = None
    for bound in candidates:
        try:
            return bound, build(bound, target)
        except CompileError as error:
            refusal = refusal or error
    raise refusal or ValueError("build_first needs at least one candidate")


def _key(bound: Bound, target: str) -> Hashable | None:
    """Return all that a program depends on; None if something has no name, and then the program is not kept."""
    from blackwell_matmul.frontend.fingerprint import meaning

    named = named_values(bound)
    means = meaning(bound.script_cls).name
    return None if named is None or means is None else (bound.script_cls, means, named, target)


def named_values(bound: Bound) -> Hashable | None:
    """Return names of all values that a call compiles in. The names distinguish 1 from True and 1.0, and 0.0 from -0.0.
    None: a value has no name."""
    from blackwell_matmul.frontend.fingerprint import named_value

    parts = (bound.init_kwargs, bound.consts, bound.divisibility)
    named = tuple(tuple((name, named_value(part[name])) for name in sorted(part)) for part in parts)
    return None if any(text is None for part in named for _, text in part) else named


class _Build:
    """One run of tilus: transpile, the passes up to the layouts, the other passes, code generation."""

    def __init__(self, bound: Bound, target: str) -> None:
        from blackwell_matmul.frontend.recording import Recorder

        self.bound = bound
        self.target = target
        self.recorder: Recorder = Recorder()
        self.codegen: RecordingCodegen | None = None

    def run(self) -> Program:
        from blackwell_matmul.frontend.faster.hidet_rules import quick_rules
        from blackwell_matmul.frontend.faster.hidet_visits import quick_hidet_visits
        from blackwell_matmul.frontend.faster.quick_visits import quick_visits
        from blackwell_matmul.frontend.faults.operand_majors import any_major
        from blackwell_matmul.frontend.faults.reductions import from_infinity
        from blackwell_matmul.frontend.faults.scratch_memory import scratch_of_each_group
        from blackwell_matmul.frontend.messages import reasons
        from blackwell_matmul.frontend.python.loop_ranges import python_ranges

        # the sentence is made inside of the block: some of it asks tilus about the target
        with tilus_compat.target(self.target):
            try:
                with (
                    tilus_compat.restore_scopes(),
                    tilus_compat.products(),
                    tilus_compat.workspace_bytes(),
                    tilus_compat.shared_of_any_type(),
                    scratch_of_each_group(),
                    sound_arithmetic(),
                    from_infinity(),
                    quick_rules(),
                    tilus_compat.signed_bounds(),
                    tilus_compat.boxes_of_full_rank(),
                    tilus_compat.strides_that_are_products(),
                    tilus_compat.exact_casts(),
                    quick_visits(),
                    quick_hidet_visits(),
                    any_major(),
                    python_ranges(),
                    tilus_compat.observe_rewrites(self.recorder.rewritten, self.recorder.failed),
                ):
                    return self._program()
            except BlackwellMatmulError:
                raise
            except Exception as error:
                text = reasons.sentence(self.bound.script_cls, self.target, error, self.recorder, self.codegen)
                raise CompileError(text) from error

    def _program(self) -> Program:
        from tilus.ir.tools import verify
        from tilus.transforms import PassContext, get_default_passes
        from tilus.transforms.layout_inference import LayoutInferencePass
        from tilus.transforms.lower_assume import LowerAssumePass

        from blackwell_matmul.frontend.faults.refusals import refusals, tile_refusals

        program = self._transpile()
        verify(program)
        self._refuse(tile_refusals(_function(program)))
        passes = get_default_passes()
        kinds = [type(each) for each in passes]
        # assumptions are read where names stand for parameters already and no pass has dropped them
        assumes_end, tile_end = kinds.index(LowerAssumePass), kinds.index(LayoutInferencePass) + 1
        with PassContext():
            program = _apply(passes[:assumes_end], program)
            assumes = self._assumes(program)
            program = passes[assumes_end](program)
            program = tilus_compat.of_any_sign(program, self._negative(program))
            tile = self._in_launch_order(_apply(passes[assumes_end + 1 : tile_end], program))
            self._refuse(refusals(_function(tile), self.recorder.names(_function(tile))))
            final = _apply(passes[tile_end:], tile)
        return self._assemble(_function(tile), _function(final), assumes)

    def _transpile(self) -> Any:
        from tilus.ir.prog import Program as TilusProgram
        from tilus.utils import to_snake_case

        from blackwell_matmul.frontend.recording import NamingTranspiler

        script_cls = self.bound.script_cls
        # tilus.Script.__new__ returns something else
        script: Any = object.__new__(script_cls)
        script.__init__(**self.bound.init_kwargs)
        transpiler = NamingTranspiler(self.recorder)
        with held_constants():
            function = transpiler.transpile(script, dict(self.bound.consts), dict(self.bound.divisibility))
        self.recorder.function = function = function.with_name(to_snake_case(script_cls.__name__))
        return TilusProgram.create(functions={function.name: function})

    def _negative(self, program: Any) -> list[Any]:
        """Return the integer parameters with a negative argument."""
        pairs = zip(self.bound.kernel_args, _function(program).params, strict=True)
        known = self.bound.divisibility
        return [var for name, var in pairs if name not in known and tilus_compat.is_integer(var.type)]

    def _assumes(self, program: Any) -> tuple[tuple[Any, Location], ...]:
        from tilus.ir.instructions import AssumeInst

        from blackwell_matmul.frontend.recording import instructions

        found = [inst for inst in instructions(_function(program)) if isinstance(inst, AssumeInst)]
        lines = [self.recorder.line_of(inst) for inst in found]
        return tuple((inst.condition, line) for inst, line in zip(found, lines, strict=True) if line is not None)

    def _in_launch_order(self, program: Any) -> Any:
        """Return the program; a grid that can start early gets the wait for the grids before (griddepcontrol.wait)."""
        from blackwell_matmul.frontend.launch_order import may_start_early, waiting

        function = _function(program)
        if not may_start_early(self.target, function):
            return program
        ordered = function.with_body(waiting(function.body, self.recorder.rewritten))
        self.recorder.rewritten(function, ordered)
        return program.with_function(ordered)

    def _refuse(self, found: Iterable[tuple[Any, str]]) -> None:
        for inst, why in found:
            name, line = self.bound.script_cls.__name__, self.recorder.line_of(inst)
            raise CompileError(f"{name} does not compile for {self.target}: {why} ({line}).")

    def _lower(self, final: Any) -> Any:
        from tilus.hidet.ir.tools.verifier import verify

        from blackwell_matmul.frontend.recording import RecordingCodegen

        self.codegen = RecordingCodegen()
        module = self.codegen(final)
        verify(module)
        return module

    def _assemble(self, tile: Any, final: Any, assumes: tuple[tuple[Any, Location], ...]) -> Program:
        from blackwell_matmul.frontend.launch_order import is_lone, may_start_early
        from blackwell_matmul.frontend.pointer_views import elements_of_pointers, row_major_pointers
        from blackwell_matmul.frontend.recording import instructions, operands

        lowered = self._lower(final)
        codegen, recorder = self.codegen, self.recorder
        assert codegen is not None
        params = tuple(zip(self.bound.kernel_args, tile.params, strict=True))
        for name, var in params:
            recorder.name(var, name)
        insts = instructions(tile)
        origins = recorder.origins(codegen.emitted, insts)
        tensors = recorder.origins(codegen.shared, [tensor for inst in insts for tensor in operands(inst)])
        return Program(
            name=self.bound.script_cls.__name__,
            target=self.target,
            params=params,
            consts=dict(self.bound.consts),
            tile=tile,
            lowered=lowered,
            shared=_rekeyed(codegen.shared, tensors),
            barrier_address=codegen.barrier_block.address if codegen.barrier_block else None,
            dynamic_shared_bytes=codegen.dynamic_shared_bytes,
            locations=recorder.lines(tile),
            names=recorder.names(tile),
            assumes=assumes,
            barriers=_rekeyed(codegen.barrier_addresses, origins),
            workspace=codegen.workspace,
            final=final,
            origins=origins,
            access_bytes=_rekeyed(codegen.access_bytes, origins),
            early_start=may_start_early(self.target, tile),
            lone_cta=is_lone(tile.metadata.cluster_blocks),
            row_major=row_major_pointers(tile, params, recorder),
            taken_as=elements_of_pointers(tile, params) if hasattr(self.bound.script_cls, "check_arguments") else {},
        )


def _apply(passes: Sequence[Any], program: Any) -> Any:
    for each in passes:
        program = each(program)
    return program


def _function(program: Any) -> Any:
    """Return the single function of a tilus program that was built from one script."""
    (function,) = program.functions.values()
    return function


def _rekeyed(found: Mapping[Any, Any], origins: Mapping[Any, Any]) -> Any:
    """Return the values found for nodes of code generation, keyed by their nodes of the tile view."""
    return IdentityMap((origins[node], value) for node, value in found.items() if node in origins)
