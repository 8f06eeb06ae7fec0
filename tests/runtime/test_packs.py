"""Packs: kernels compiled ahead, carried to another cache, and found there by the first call of an operation."""

from __future__ import annotations

import re
import zipfile
from weakref import WeakKeyDictionary

import pytest
import torch

from blackwell_matmul import cli, linear
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.compiler import cache, compiling, nvrtc
from blackwell_matmul.hardware.gpus import gpu_named
from blackwell_matmul.jobs import worker_main
from blackwell_matmul.jobs.worker import TaskOutcome
from blackwell_matmul.ops import direct, ready
from blackwell_matmul.runtime import script_calls, torch_cuda
from blackwell_matmul.runtime.recent import Recent
from blackwell_matmul.tuner import packs
from blackwell_matmul.tuner.pack_tasks import OPERATIONS

SIZE = {"m": 72, "n": 136, "k": 64}
PROBLEM = {"operation": "linear with bias", **SIZE, "dtype": "bf16"}


def compiled_here(tasks, limit_s, module, tell):
    """The outcomes of tasks that run in this process."""
    return {name: TaskOutcome(**worker_main.outcome(task, tell)[0]) for name, task in tasks.items()}


def nothing_compiles(*about):
    raise AssertionError("a kernel is compiled")


@pytest.fixture
def into(tmp_path, monkeypatch):
    """Choose a cache by name, empty at first; nothing is known in this process then."""

    def choose(name):
        monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / name))
        monkeypatch.setattr(script_calls, "_loaded", Recent(8))
        monkeypatch.setattr(compiling, "_memo", WeakKeyDictionary())

    choose("first")
    monkeypatch.setattr(packs, "problems", lambda: iter([PROBLEM]))
    monkeypatch.setattr(packs, "compiled_in_pool", compiled_here)
    return choose


@pytest.fixture
def packed(into, tmp_path):
    """Return the file of a pack for an H100 with one kernel."""
    packs.save(packs.make(gpu_named("H100"), lambda told: None), tmp_path / "pack.zip")
    return tmp_path / "pack.zip"


@pytest.mark.slow
@pytest.mark.process
def test_the_first_call_finds_the_kernel_of_a_pack(gpu, on_gpu, packed, into, monkeypatch, capsys):
    into("second")
    assert cli.main(["compile", "--pack", str(packed)]) == 0
    assert capsys.readouterr().out.startswith("1 kernels for H100 copied into this machine's cache\n")
    monkeypatch.setattr(nvrtc, "compile_source", nothing_compiles)
    gpu.is_a("NVIDIA H100 80GB HBM3", (9, 0), 132, 232448)
    for module in (ready, direct):
        monkeypatch.setattr(module, "PLAIN_TYPES", {*direct.PLAIN_TYPES, type(on_gpu(torch.zeros(1)))})
    monkeypatch.setattr(torch_cuda, "_fast_empty", torch._C._dynamo.guards._empty_strided_cpu)
    m, n, k = SIZE.values()
    x, w, bias = (on_gpu(torch.zeros(shape, dtype=torch.bfloat16)) for shape in ((m, k), (n, k), (n,)))
    linear(x, w, bias)
    assert len(gpu.calls("cuLaunchKernelEx")) == 1
    with pytest.raises(AssertionError, match="a kernel is compiled"):
        linear(x, w, bias, "relu")


@pytest.mark.slow
def test_a_second_start_compiles_nothing(packed, monkeypatch):
    monkeypatch.setattr(nvrtc, "compile_source", nothing_compiles)
    made = packs.make(gpu_named("H100"), lambda told: None)
    assert len(made.keys) == 1 and packs.install(packed) == made


def test_products_without_a_kernel_are_counted_by_reason(into):
    made = packs.make(gpu_named("RTX 5090"), lambda told: None)
    ((why, count),) = made.refused.items()
    assert (count, made.keys) == (1, []) and why.startswith("There is no kernel for RTX 5090 (sm_120a) yet")


def replaced(file, name, content):
    """Replace a file of a zip file."""
    with zipfile.ZipFile(file) as before:
        kept = {each: before.read(each) for each in before.namelist()}
    with zipfile.ZipFile(file, "w") as after:
        for each, bytes_ in kept.items():
            after.writestr(each, content if each.endswith(name) else bytes_)


@pytest.mark.slow
def test_a_pack_that_does_not_fit_is_a_sentence(packed, into, monkeypatch):
    into("second")
    here = packs.versions_here()
    monkeypatch.setattr(packs, "versions_here", lambda: {**here, "tilus": "0.3.0"})
    told = re.escape(f"was made with tilus {here['tilus']}, and here is tilus 0.3.0; make it again: ")
    with pytest.raises(InputError, match=told + "blackwell-matmul compile --pack 'H100'"):
        packs.install(packed)
    monkeypatch.undo()
    replaced(packed, "kernel.cubin", b"another")
    with pytest.raises(InputError, match=r"kernel\.cubin is damaged"):
        packs.install(packed)
    replaced(packed, "pack.json", b"{}")
    with pytest.raises(InputError, match="no pack of format 1"):
        packs.install(packed)
    packed.write_bytes(b"")
    with pytest.raises(InputError, match=r"is no pack that can be read: .*; `compile --pack GPU"):
        packs.install(packed)


def test_without_a_cache_there_is_no_pack(monkeypatch):
    monkeypatch.setenv(cache.CACHE_VARIABLE, "off")
    with pytest.raises(InputError, match="the cache is off"):
        packs.make(gpu_named("H100"), print)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["v1", "--pack", "H100"], "only -o and --json go with it"), (["--pack", "H10"], "it must be a GPU"),
        (["--pack", __file__, "-o", "pack.zip"], "-o goes with a GPU's name"), ([], "there is no kernel; name one"),
    ],
)  # fmt: skip
def test_bad_words_are_a_sentence(words, told, capsys):
    assert cli.main(["compile", *words]) == 2
    assert told in capsys.readouterr().err


def test_the_products_of_a_pack_are_of_every_kind_and_bounded():
    found = list(packs.problems())
    assert len(found) == len({tuple(each.values()) for each in found}) == 864
    assert {each["operation"] for each in found} == set(OPERATIONS)
