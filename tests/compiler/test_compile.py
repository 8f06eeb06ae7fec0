"""compile: every target, the cache and what can happen to it, several processes, many schedules, messages."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import pwd
import re
import shutil
import stat
import warnings
from pathlib import Path
from typing import Any

import compiler_scripts
import pytest
import tilus
import torch
from compiler_samples import ARRAY, EVERY_RUNG, RUNGS, TARGETS, matmul_arguments, rung_bundle, script_bundle

from blackwell_matmul import compile as compile_kernel
from blackwell_matmul import emulate
from blackwell_matmul.base.errors import BlackwellMatmulError, CompileError, InputError, UnsupportedError
from blackwell_matmul.compiler import Bundle, cache, cache_bound, compile, compile_many, compiling, nvrtc, resources
from blackwell_matmul.kernels import rung

COPY = (100, 128, ARRAY, ARRAY)


def copy(**options: Any) -> Bundle:
    return compile(compiler_scripts.TmaCopy, *COPY, target="sm_90a", **options)


# --- targets and types


@pytest.mark.slow
@pytest.mark.parametrize("architecture", TARGETS)
def test_targets(architecture: str) -> None:
    made = script_bundle("TmaCopy", 100, 128, "array", "array", target=architecture)
    assert made.cubin[:4] == b"\x7fELF"
    assert f".target {architecture}" in made.ptx
    assert "cp.async.bulk.tensor.2d" in made.ptx
    assert script_bundle("MmaSync", 64, "array", "array", "array", target=architecture).ptx.count("mma.sync") >= 1


def test_bf16_rung() -> None:
    made = compile(rung("v1"), *matmul_arguments(dtype=torch.bfloat16), cache=False)
    assert {each.dtype for each in made.plan.tensor_maps} == {"BFLOAT16"}
    assert "cuda_bf16.h" in made.source
    assert made.schedule["dtype"] == "bfloat16"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
def test_real_types(dtype: str) -> None:
    made = script_bundle("Elementwise", 100, "array", "array", dtype=getattr(tilus, dtype))
    assert "#include" in made.source


def test_the_plan_has_what_each_pointer_points_to() -> None:
    typed, untyped = (
        script_bundle("Scratch", 100, "array", "array"),
        script_bundle("TmaCopy", 100, 128, "array", "array"),
    )
    assert [each.element for each in typed.plan.parameters if each.type == "pointer"] == ["float32", "float32"]
    assert [each.element for each in untyped.plan.parameters if each.type == "pointer"] == ["", ""]


def test_a_target_that_nvrtc_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "supported_targets", lambda: ("sm_90a",))
    with pytest.raises(UnsupportedError, match="does not compile for sm_100a, only for sm_90a"):
        script_bundle("TmaCopy", 100, 128, "array", "array", target="sm_100a")


def test_a_target_that_nobody_knows() -> None:
    with pytest.raises(InputError, match="target is 'sm_1'"):
        compile(compiler_scripts.TmaCopy, *COPY, target="sm_1")


def test_an_error_of_the_front_end_names_the_line() -> None:
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_source('#line 84 "/k/v2.py"\n__device__ int x = y;\n', "sm_90a", "Kernel")
    assert str(caught.value) == 'Kernel does not compile for sm_90a: identifier "y" is undefined (/k/v2.py:84).'


def test_an_error_of_the_assembler_names_the_line() -> None:
    text = 'extern "C" __global__ void f() {\n#line 7 "/k/v2.py"\n  asm volatile ("foo.bar;");\n}\n'
    with pytest.raises(CompileError, match=r"^Kernel does not compile for sm_90a: ptxas: .* \(/k/v2.py:7\)\.$"):
        nvrtc.compile_source(text, "sm_90a", "Kernel")


def test_an_empty_log_leaves_the_space_alone() -> None:
    """NVRTC writes a NUL into the buffer; CPython keeps one object for each byte string of length 1."""
    nvrtc.version.__wrapped__()
    assert " ".join(["a", "b"]).encode() == b"a b"
    assert b" " == bytes([32])


def test_a_missing_nvrtc_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import cuda.bindings.nvrtc as bindings

    def fail() -> None:
        raise RuntimeError("Failure finding libnvrtc.so")

    nvrtc._nvrtc.cache_clear()
    monkeypatch.setattr(bindings, "nvrtcVersion", fail)
    try:
        with pytest.raises(UnsupportedError, match="needs NVRTC, which the packages cuda-python and nvidia-cuda-nvrtc"):
            nvrtc.compile_source("", "sm_90a", "Kernel")
    finally:
        nvrtc._nvrtc.cache_clear()


def test_missing_headers_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda import pathfinder

    monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", lambda name: None)
    nvrtc._cuda_headers.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match="nvidia-cuda-runtime brings; install it"):
            nvrtc.compile_source("#include <cuda_fp16.h>", "sm_90a", "Kernel")
    finally:
        nvrtc._cuda_headers.cache_clear()


# --- what a bundle says


@pytest.mark.parametrize("on", [True, False])
def test_nothing_is_collected_while_it_compiles(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(compiling, "build_first", lambda *_: seen.append(gc.isenabled()) or 1 // 0)
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError):
            compile(rung("v0"), *matmul_arguments())
        assert (seen, gc.isenabled()) == ([False], on)
    finally:
        gc.enable()


def test_serves() -> None:
    assert rung_bundle("v2").serves == "Serves any m with n = 1024 and k = 1024."
    assert rung_bundle("v2").consts == {"n": 1024, "k": 1024}
    assert script_bundle("MmaSync", 64, "array", "array", "array").serves == "Serves one size with k = 64."


def attribute(cubin: bytes, code: int) -> int:
    """A number of .nv.info: format 4 (sized value), code, 8 bytes: the symbol, the number; the greatest of all
    symbols.
    """
    found = re.findall(re.escape(bytes([4, code, 8, 0])) + b"....(....)", cubin, re.DOTALL)
    return max(int.from_bytes(each, "little") for each in found)


REGISTERS, FRAME_BYTES = 0x2F, 0x11


@pytest.mark.parametrize("name", RUNGS)
def test_resources_are_those_of_the_cubin(name: str) -> None:
    made = rung_bundle(name)
    assert made.resources is not None
    assert made.resources.registers == attribute(made.cubin, REGISTERS)
    assert made.resources.stack_bytes == attribute(made.cubin, FRAME_BYTES)
    assert made.resources.dynamic_shared_bytes == made.plan.dynamic_shared_bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_RUNG)
def test_no_rung_keeps_registers_in_memory(name: str) -> None:
    """As happens when the index of a register is left to run time, for want of a simplification."""
    made = rung_bundle(name).resources
    assert made is not None and (made.stack_bytes, made.spill_bytes) == (0, 0)


def test_a_log_without_a_report_gives_no_resources() -> None:
    assert resources.resources("", rung_bundle("v1").plan, "sm_100a") is None


def test_occupancy() -> None:
    made = rung_bundle("v2").resources
    assert made is not None and made.ctas_per_sm == 1 and made.limited_by == "shared memory"
    assert made.warps == 4


# --- the cache


def test_in_memory() -> None:
    assert copy() is copy()
    assert copy(cache=False) is not copy()


def left_out(bundle: Bundle) -> dict[str, object]:
    return {each.name: each.default for each in bundle.plan.parameters if each.default is not None}


def test_defaults_are_those_of_the_script_but_for_a_pointer_that_was_given(own_cache: Path) -> None:
    """In memory and on disk, where the code is the same otherwise."""
    y, extra = torch.empty(32), torch.empty(32)
    for _ in range(2):
        without = compile(compiler_scripts.LeftOut, 32, y, 0, 7, target="sm_90a")
        given = compile(compiler_scripts.LeftOut, 32, y, extra, target="sm_90a")
        assert left_out(without) == {"extra_ptr": 0, "count": 3, "scale": 0.5}
        assert left_out(given) == {"count": 3, "scale": 0.5}
        assert without.cubin == given.cubin and without.key != given.key
        compiling._memo.clear()
    emulate(without, y)
    emulate(given, y, extra, 4)
    assert y.tolist() == extra.tolist() == [2.0] * 32
    emulate(without, y)
    assert y.tolist() == [1.5] * 32


def test_on_disk(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = copy()
    compiling._memo.clear()
    monkeypatch.setattr(nvrtc, "compile_source", None)  # a second compilation would fail
    assert copy() == first
    assert [path.parent.name for path in own_cache.rglob("bundle.json")] == [first.key]


CANNOT_BE = {"nan": "NaN", "deep": "[" * 99_000 + "]" * 99_000}


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "foreign", "file", "folder", "fifo", "nan", "deep"])
def test_a_damaged_entry_is_made_again(own_cache: Path, damage: str) -> None:
    first = copy()
    (entry,) = [path.parent for path in own_cache.rglob("bundle.json")]
    cubin = entry / "kernel.cubin"
    if damage == "flip":
        cubin.write_bytes(bytes([cubin.read_bytes()[0] ^ 1]) + cubin.read_bytes()[1:])
    elif damage == "truncate":
        (entry / "bundle.json").write_text("{")
    elif damage == "remove":
        cubin.unlink()
    elif damage == "foreign":  # a whole bundle, of another key
        other = compile(compiler_scripts.MmaSync, 64, ARRAY, ARRAY, ARRAY, target="sm_90a", cache=False)
        shutil.rmtree(entry)
        other.save(entry)
    elif damage == "fifo":
        cubin.unlink()
        os.mkfifo(cubin)
    elif damage in ("nan", "deep"):
        record = (entry / "bundle.json").read_text()
        (entry / "bundle.json").write_text(record.replace('"name":', f'"more": {CANNOT_BE[damage]}, "name":', 1))
    elif damage == "file":
        shutil.rmtree(entry)
        entry.write_text("not a folder")
    else:
        shutil.rmtree(entry)
        (entry / "bundle.json").mkdir(parents=True)
    compiling._memo.clear()
    again = copy()
    assert again == first
    assert Bundle.load(entry) == first
    compiling._memo.clear()
    assert cache.read(first.key) == first


def test_of_a_user_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no entry in /etc/passwd."""

    def nobody(*_: object) -> None:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "XDG_CACHE_HOME", cache.CACHE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache, "_warned", set())
    with pytest.warns(
        RuntimeWarning, match=r"are not kept: this user has no home folder; .* names a folder, or off\.$"
    ):
        first = copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        assert copy() == first and cache.folder() is None and not cache.is_off()


def test_a_read_only_cache(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.warns(RuntimeWarning, match="are not kept in .*: Read-only file system"):
        first = copy()
    compiling._memo.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        assert copy() == first


def test_a_full_disk(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        copy()
    assert not [path for path in own_cache.rglob("*") if path.is_file()]


def test_the_bound_holds_where_kernels_are_compiled(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_bound, "most_bytes", lambda: 1)  # less than any bundle
    first, second = copy(), copy(schedule={"block": 32})
    assert [path.parent.name for path in own_cache.rglob("bundle.json")] == [second.key]
    assert cache.read(second.key) == second and cache.read(first.key) is None


def test_a_bundle_that_is_read_is_used(own_cache: Path) -> None:
    first = copy()
    (entry,) = [path.parent for path in own_cache.rglob("bundle.json")]
    os.utime(entry, (0, 0))
    assert cache.read(first.key) == first
    assert entry.stat().st_mtime > 0


def test_others_cannot_read_the_cache(own_cache: Path) -> None:
    copy()
    folders = [own_cache, *(path for path in own_cache.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


OF_A_USER = """
import tilus, torch
from tilus import {0}, float32

class Doubled(tilus.Script):
    def __call__(self, x: ~{0}, y: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        g_x = self.global_view(x, dtype={0}, shape=[32])
        g_y = self.global_view(y, dtype=float32, shape=[32])
        r_x = self.load_global(g_x, offsets=[0], shape=[32])
        self.store_global(g_y, self.cast(r_x, dtype=float32) * 2.0, offsets=[0])

def example_args(m=1, n=1, k=1):
    return torch.zeros(32).to(torch.{1}), torch.zeros(32)
"""


@pytest.mark.parametrize(
    ("dtype", "in_torch"), [("float16", "float16"), ("bfloat16", "bfloat16"), ("float8_e4m3", "float8_e4m3fn")]
)
def test_a_bundle_is_the_same_wherever_its_files_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, in_torch: str
) -> None:
    made = []
    for place in (tmp_path / "one", tmp_path / "another" / "folder"):
        (place / "own_package").mkdir(parents=True)
        (place / "own_package" / "__init__.py").touch()
        (place / "own_package" / "doubled.py").write_text(OF_A_USER.format(dtype, in_torch))
        monkeypatch.chdir(place)
        made.append(compile_kernel(f"{place}/own_package/doubled.py:Doubled", cache=False))
    assert made[0] == made[1] and made[0].key == made[1].key
    files = re.findall(r'\.file\s+\d+ "(.*?)"', made[0].ptx)
    assert "/own_package/doubled.py" in files and {len(Path(each).parts) for each in files} <= {2, 3, 4}
    assert not any(part in made[0].cubin for part in (str(tmp_path).encode(), b"site-packages"))


def test_switched_off(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, "off")
    assert copy().cubin
    assert not own_cache.exists()


def test_the_default_place_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.CACHE_VARIABLE)
    place = cache.folder()
    assert place is not None and "blackwell-matmul" in place.parts


def test_the_key_knows_versions_target_and_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        copy(cache=False).key,
        compile(compiler_scripts.TmaCopy, *COPY, target="sm_100a", cache=False).key,
        compile(compiler_scripts.TmaCopy, 100, 256, ARRAY, ARRAY, target="sm_90a", cache=False).key,
        copy(cache=False, schedule={"block": 32}).key,
    }
    monkeypatch.setattr(compiling, "_versions", lambda: {"nvrtc": "another"})
    keys.add(copy(cache=False).key)
    assert len(keys) == 5
    monkeypatch.undo()
    assert copy(cache=False).key in keys


def _compile_there(place: str, start: Any, sender: Any) -> None:
    os.environ[cache.CACHE_VARIABLE] = place
    compiling._memo.clear()
    start.wait()
    made = [compile(rung("v1"), *matmul_arguments()), copy()]
    sender.send([(each.key, each.cubin) for each in made])


@pytest.mark.process
def test_two_processes_on_one_cache(own_cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    start, pipes, children = context.Barrier(2), [], []
    for _ in range(2):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_compile_there, args=(str(own_cache), start, sender))
        child.start()
        pipes.append(receiver)
        children.append(child)
    first, second = (pipe.recv() for pipe in pipes)
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert first == second
    entries = [path.parent for path in own_cache.rglob("bundle.json")]
    assert {entry.name for entry in entries} == set(dict(first))
    assert all(Bundle.load(entry).key == entry.name for entry in entries)
    assert not list(own_cache.rglob(".draft-*"))


# --- many schedules


@pytest.mark.process
def test_compile_many() -> None:
    told: list[tuple[int, int]] = []
    schedules = [{"block": 32}, {"block": 64}, {"block": 3}]
    made = compile_many(
        compiler_scripts.TmaCopy,
        *COPY,
        schedules=schedules,
        target="sm_90a",
        workers=2,
        progress=lambda done, total: told.append((done, total)),
    )
    assert [each.schedule["block"] for each in made[:2] if isinstance(each, Bundle)] == [32, 64]
    assert isinstance(made[2], BlackwellMatmulError)
    assert str(made[2]).endswith(".")
    assert told == [(1, 3), (2, 3), (3, 3)]
    alone = compile_many(compiler_scripts.TmaCopy, *COPY, schedules=schedules[:2], target="sm_90a", workers=1)
    assert alone == made[:2]


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, "2"])
def test_workers_must_be_a_number(workers: Any) -> None:
    with pytest.raises(InputError, match="workers is"):
        compile_many(compiler_scripts.TmaCopy, *COPY, schedules=[{}], target="sm_90a", workers=workers)


def test_a_bundle_travels() -> None:
    made = rung_bundle("v2")
    made.plan.evaluate([1, 16, 16, 16])
    assert pickle.loads(pickle.dumps(made)) == made
