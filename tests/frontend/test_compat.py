"""The workarounds for tilus 0.2.0 hold, and leave no trace behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import frontend_scripts as scripts
import numpy as np
import pytest
import tilus.target
from frontend_samples import CALLS
from tilus.ir.functors.functor import IRFunctor
from tilus.ir.layout.ops import local

from blackwell_matmul.base.errors import CompileError, InputError
from blackwell_matmul.compiler import compile
from blackwell_matmul.compiler.plan import c_div, c_mod
from blackwell_matmul.frontend import bind, build, import_tilus, target, target_names
from blackwell_matmul.frontend.faults import tilus_compat
from blackwell_matmul.frontend.faults.tilus_compat import (
    one_wgmma,
    signed_bounds,
    tcgen05_mma,
    wgmma_descriptors,
    wgmma_fragments,
    widest_wgmma,
    workspace_bytes,
)
from blackwell_matmul.simulator.machine.registers import coordinates

Limits = tuple[int | None, int | None]
ROOT = Path(__file__).parents[2]


def python(code: str, home: Path, **variables: str) -> str:
    """Run `code` in a fresh interpreter with an empty PATH; return what it prints."""
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    env = {"PATH": "", "HOME": str(home), "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


BUILD = """
import numpy as np
from blackwell_matmul.frontend import bind, build, import_tilus
import_tilus()
import frontend_scripts
array = np.zeros(4, np.float32)
print(build(bind(frontend_scripts.Inlined, (256, array, array), target="sm_100a"), "sm_100a").name)
"""

NO_BINDINGS = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "cuda" or name.startswith("cuda."):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
"""


@pytest.mark.process
def test_builds_without_git_and_cuda_bindings_and_leaves_neither_a_stand_in_nor_a_file(tmp_path: Path) -> None:
    check = "\nprint([name for name in sys.modules if name.split('.')[0] == 'cuda'])"
    assert python(NO_BINDINGS + BUILD + check, tmp_path).split("\n")[:2] == ["Inlined", "[]"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_importing_the_frontend_imports_no_tilus(tmp_path: Path) -> None:
    code = "import sys, blackwell_matmul.frontend; print('tilus' in sys.modules, 'torch' in sys.modules)"
    assert python(code, tmp_path).strip() == "False False"


def test_import_is_idempotent_and_restores_subprocess() -> None:
    run = subprocess.run
    assert import_tilus() is import_tilus()
    assert subprocess.run is run


@pytest.mark.parametrize("there", [False, True])
def test_a_module_that_tilus_lacks_is_not_looked_for_and_one_that_it_has_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    home = tmp_path / "tilus" / "hidet" / "ir"
    home.mkdir(parents=True)
    (tmp_path / "tilus" / "__init__.py").touch()
    if there:
        (home / "compute.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tilus.hidet.ir.compute", raising=False)
    tilus_compat._compute_is_missing.__wrapped__()
    known = {"tilus.hidet.ir.compute": None}.items() <= sys.modules.items()
    monkeypatch.setitem(sys.modules, "tilus.hidet.ir.compute", None)  # as it was
    assert known is not there


def test_the_cache_folder_of_tilus_stays_untouched(tmp_path: Path) -> None:
    before = tilus.option.get_option("cache_dir")
    tilus.option.cache_dir(tmp_path)
    try:
        build(bind(scripts.CpAsync, CALLS["CpAsync"], schedule={"stages": 4}, target="sm_90a"), "sm_90a")
    finally:
        tilus.option.cache_dir(before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"])
def test_target_is_set_and_restored(name: str) -> None:
    assert name in target_names()
    with target("sm_80"):
        with target(name) as inner:
            assert tilus.target.get_current_target() is inner
            assert str(inner) == "nvgpu/" + name.replace("_", "")
        assert str(tilus.target.get_current_target()) == "nvgpu/sm80"


def test_an_unset_target_stays_unset_after_success_and_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tilus.target, "_target", None)
    visit = IRFunctor.visit
    build(bind(scripts.CpAsync, CALLS["CpAsync"], schedule={"stages": 5}, target="sm_80"), "sm_80")
    assert tilus.target._target is None
    with pytest.raises(CompileError):
        build(bind(scripts.TooMuchShared, (1,), target="sm_100a"), "sm_100a")
    assert tilus.target._target is None
    assert IRFunctor.visit is visit


def test_an_accumulator_of_wgmma_is_laid_out_as_the_instruction_writes_it() -> None:
    """PTX ISA, "wgmma: Register Fragments": two neighbours of a row in each thread, also with fp8, where K is 32."""
    from tilus.ir.layout.inference.inference_rules import wgmma

    fault = wgmma.generate_wgmma_register_layout(64, 32, 64, 32, 32)
    with wgmma_fragments():
        mended = wgmma.generate_wgmma_register_layout(64, 32, 64, 32, 32)
    assert columns(fault) == [0, 1, 2, 3] and columns(mended) == [0, 1, 0, 1]
    assert wgmma.generate_wgmma_register_layout(64, 32, 64, 32, 32) == fault
    assert mended == wgmma.generate_wgmma_register_layout(64, 32, 64, 32, 16)


def test_a_tile_is_multiplied_by_the_widest_wgmma() -> None:
    """PTX ISA, "wgmma.mma_async": N is any multiple of 8 up to 256; tilus takes powers of two alone."""
    from tilus import float16, float32, int8, int32
    from tilus.ir.instructions.cuda.wgmma import WgmmaMmaSSInst

    def width(n: int, *types: Any) -> int:
        return WgmmaMmaSSInst.get_inst_mnk(64, n, 64, *(types or (float16, float16, float32)))[1]

    assert [width(n) for n in (96, 160, 192, 224, 256)] == [32, 32, 64, 32, 256]
    with widest_wgmma():
        assert [width(n) for n in (96, 160, 192, 224, 256, 320)] == [96, 160, 192, 224, 256, 160]
        assert width(24, int8, int8, int32) == 8
    assert width(224) == 32


def test_the_steps_of_a_descriptor_of_wgmma_are_additions() -> None:
    """PTX ISA, "Matrix Descriptor Format": the same descriptor, for the first and the last bytes of shared memory."""
    from tilus.backends.emitters.cuda.wgmma import SharedMatrixDescriptor
    from tilus.hidet.ir.dtypes import int32
    from tilus.hidet.ir.expr import Call, Var
    from tilus.hidet.ir.tools import collect

    step = SharedMatrixDescriptor(Var("address", int32) + 96, lbo=4096, sbo=1024, base_offset=0, swizzle_mode=1)
    assert len(collect(step.encoded(), Call)) == 1
    with wgmma_descriptors():
        encoded = step.encoded()
    assert not collect(encoded, Call)
    for first, rank in ((0, 0), (2**18 - 1024, 0), (1024, 1)):  # a cluster's second CTA is 2**24 bytes above the first
        names = {"uint64": int, "uint32": int, "cast": lambda _, value: value, "address": first + (rank << 24)}
        assert SharedMatrixDescriptor.decode(eval(str(encoded), names)) == replace(step, addr=first + 96)


def test_of_a_new_wgmma_what_is_called_is_made() -> None:
    """And what tilus itself would call, which makes all 48 where it does not find that."""
    from tilus.backends.emitters.cuda import wgmma as emitters
    from tilus.hidet.ir.dtypes import uint64
    from tilus.hidet.ir.expr import Var
    from tilus.hidet.ir.primitives.cuda.wgmma import WgmmaConfig
    from tilus.hidet.ir.primitives.func import registered_primitive_functions
    from tilus.hidet.ir.type import data_type

    before, multiply = set(registered_primitive_functions()), emitters.wgmma_async
    tensors = Var("a", uint64), Var("c", ~data_type("float32")), Var("b", uint64)

    def called(n: int, kind: str, k: int, trans_a: int, trans_b: int) -> tuple[str, set[str]]:
        config = WgmmaConfig.get(64, n, k, kind, kind, "f32")
        with one_wgmma():
            name = emitters.wgmma_async(config, *tensors, trans_a=trans_a, trans_b=trans_b).func_var.name
        return name, set(registered_primitive_functions()) - before

    for n, kind, k, bits in ((248, "bf16", 16, (0, 1)), (248, "tf32", 8, (0, 0))):
        before = set(registered_primitive_functions())
        name, made = called(n, kind, k, *bits)
        assert name in made and len(made) == 1 + any(bits)
        assert emitters.wgmma_async is multiply
        config = WgmmaConfig.get(64, n, k, kind, kind, "f32")
        alone = multiply(config, *tensors, trans_a=0, trans_b=0)
        assert set(registered_primitive_functions()) - before == made and alone.func_var.name in made


def test_a_tile_is_multiplied_by_the_widest_tcgen05_mma() -> None:
    """PTX ISA, "tcgen05.mma: Matrix Shape": N is any multiple of 16 up to 256; tilus takes powers of two alone."""
    from tilus.backends.emitters.cuda.tcgen05.mma import Tcgen05MmaKind, TMemoryMmaSSEmitter

    def width(n: int, kind: Any = Tcgen05MmaKind.F16) -> int:
        return TMemoryMmaSSEmitter.get_inst_mnk(kind, 1, 128, n, 64)[1]

    assert [width(n) for n in (96, 160, 192, 224, 256)] == [32, 32, 64, 32, 256]
    with tcgen05_mma():
        assert [width(n) for n in (96, 160, 192, 224, 256, 320)] == [96, 160, 192, 224, 256, 160]
        assert width(192, Tcgen05MmaKind.F8F6F4) == 192
    assert width(192) == 64


def test_tcgen05_mma_is_generated_for_its_family() -> None:
    """PTX ISA, "tcgen05.mma, Target ISA Notes": sm_100f and what belongs to it; tilus registers sm_100a alone."""
    from tilus.backends.emitter import BaseInstEmitter
    from tilus.ir.instructions.cuda.tcgen05 import Tcgen05MmaSSInst
    from tilus.target import match_target, nvgpu_sm103a, nvgpu_sm120a

    def generated(target: Any) -> bool:
        return match_target(target, list(BaseInstEmitter.REGISTRY[Tcgen05MmaSSInst])) is not None

    assert not generated(nvgpu_sm103a)
    with tcgen05_mma():
        assert generated(nvgpu_sm103a) and not generated(nvgpu_sm120a)
    assert not generated(nvgpu_sm103a)


def test_a_workspace_is_as_large_as_its_tensor() -> None:
    """16 x 4 numbers of fp32 take 256 bytes; tilus asks for as many bytes as they have bits."""
    from tilus.backends.contexts.gmem_alloc_ctx import GlobalMemoryAllocationContext

    def asked(bits: int) -> int:
        context = GlobalMemoryAllocationContext(None)
        context.allocate_global_memory(bits, clean=False)
        return int(context.gmem_allocated)

    assert asked(16 * 4 * 32) == 2048
    with workspace_bytes():
        assert asked(16 * 4 * 32) == 256
    assert asked(16 * 4 * 32) == 2048


@pytest.mark.parametrize("operator", ["*", "//", "%"])
def test_bounds_hold_for_negative_numbers(operator: str) -> None:
    """Every pair of small ranges: what C computes lies within the bounds, and tilus's own bounds miss some of it."""
    limits = [None, -7, -2, 0, 3, 8]
    ranges = [(low, high) for low in limits for high in limits if None in (low, high) or low <= high]
    pairs = [(a, b) for a in ranges for b in ranges if operator == "*" or b != (0, 0)]  # x // 0 is refused
    assert sum(_escapes(operator, a, b) for a, b in pairs) > 0
    with signed_bounds():
        assert [(a, b) for a, b in pairs if _escapes(operator, a, b)] == []
    assert sum(_escapes(operator, a, b) for a, b in pairs) > 0


@pytest.mark.parametrize("operator", ["*", "//", "%"])
def test_a_divisor_divides_what_c_computes(operator: str) -> None:
    """Every pair of small divisors and constants; tilus takes 8 // 12 and 16 // 12 for even."""
    pairs = [(divisor, other) for divisor in range(1, 25) for other in range(-13, 14) if other != 0]
    assert (sum(_is_not_divided(operator, *pair) for pair in pairs) > 0) is (operator != "*")
    with signed_bounds():
        assert [pair for pair in pairs if _is_not_divided(operator, *pair)] == []


def _is_not_divided(operator: str, divisor: int, other: int) -> bool:
    from tilus.ir.analyzers.scalar_analyzer import ScalarSet

    compute: Any = {"*": lambda x, y: x * y, "//": c_div, "%": c_mod}[operator]
    of_kind = {"*": ScalarSet.__mul__, "//": ScalarSet.__floordiv__, "%": ScalarSet.__mod__}[operator]
    found = of_kind(ScalarSet(divisibility=divisor), ScalarSet(abs(other), other, other))
    return any(compute(divisor * each, other) % found.divisibility for each in range(-9, 10))


def _escapes(operator: str, a: Limits, b: Limits) -> bool:
    """Whether a value is out of the bounds that tilus has for it."""
    from tilus.ir.analyzers.scalar_analyzer import ScalarSet

    compute: Any = {"*": lambda x, y: x * y, "//": c_div, "%": c_mod}[operator]
    sets = [ScalarSet(lower_bound=low, upper_bound=high) for low, high in (a, b)]
    found = {"*": ScalarSet.__mul__, "//": ScalarSet.__floordiv__, "%": ScalarSet.__mod__}[operator](*sets)
    values = [compute(x, y) for x in _samples(a) for y in _samples(b) if operator == "*" or y != 0]
    low, high = found.lower_bound, found.upper_bound
    return any((low is not None and value < low) or (high is not None and value > high) for value in values)


def _samples(limits: Limits) -> range:
    low, high = limits
    return range(-20 if low is None else low, 21 if high is None else high + 1)


def columns(layout: Any) -> list[int]:
    """Of the first four registers of the first thread."""
    return coordinates(layout, np.zeros(1, int))[1][0, :4].tolist()


def test_an_unknown_target_is_refused_with_those_that_work() -> None:
    with pytest.raises(InputError, match=r"target is 'B200'; it must be one of .*sm_100a"), target("B200"):
        pass


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork")
def test_a_child_forked_while_a_thread_builds_can_build() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def build_slowly() -> None:
        with target("sm_90a"):
            begun.set()
            goes_on.wait(0.2)

    before = tilus.target._target
    thread = threading.Thread(target=build_slowly)
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        free = tilus_compat.lock.acquire(timeout=5)
        os._exit(0 if free and tilus.target._target is before else 1)
    goes_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def squeezed(layout: Any) -> Any:
    x = np.zeros((16, 32), np.int32)
    return compile(scripts.Registers(layout, "squeezed"), x, x.copy(), target="sm_90a", cache=False)


def test_a_copy_of_a_copy_of_registers() -> None:
    source = squeezed(local(16, 1).spatial(1, 32)).source
    assert "int32_t regs_1[16];" in source and "] = regs_1[" in source


def test_a_copy_of_a_copy_is_not_declared_by_tilus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tilus_compat, "declared_copies", nullcontext)
    with pytest.raises(CompileError, match='identifier "regs_1" is undefined'):
        squeezed(local(16, 1).spatial(1, 32))
