"""The face of the emulator: what is given, and a sentence for what does not fit (`emulator/emulate.py`)."""

import ast
import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ptx import module
from tilus import float16, float32, int32, uint32, void_p

import blackwell_matmul.emulator as package
from blackwell_matmul import Script, compile
from blackwell_matmul.base.errors import BlackwellMatmulError, InputError, UnsupportedError
from blackwell_matmul.emulator import Emulation, TensorMap, emulate
from blackwell_matmul.emulator.arguments import address_of
from blackwell_matmul.emulator.spaces import GlobalSpace
from blackwell_matmul.kernels import rung

ADD = module(
    """
    .reg .b32 %r<4>; .reg .b64 %x<4>; .reg .pred %p; mov.u32 %r0, %tid.x; ld.param.u32 %r1, [n];
    setp.ge.u32 %p, %r0, %r1; @%p exit;
    ld.param.u64 %x0, [a]; mul.wide.u32 %x1, %r0, 4; add.s64 %x0, %x0, %x1; ld.global.f32 %r2, [%x0];
    ld.param.f32 %r3, [f];
    mul.f32 %r2, %r2, %r3; st.global.f32 [%x0], %r2;""",
    [".u64 a", ".u32 n", ".f32 f"],
)
TWO = ADD + ADD.split("\n", 4)[4].replace(".entry k(", ".entry other(")


def test_the_emulator_shares_nothing_with_the_simulator() -> None:
    for file in Path(package.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not any(
                part in ("simulator", "tilus", "frontend", "kernels") for name in names for part in name.split(".")
            ), file


def test_tensors_are_written_in_place_and_numbers_fit_their_types() -> None:
    a, b = np.arange(8, dtype=np.float32), torch.arange(8, dtype=torch.float32)
    found = emulate(ADD, a, 5, 2, block=32)
    assert found == Emulation("k", "sm_90a", 1, found.instructions) and found.instructions > 5
    emulate(ADD, b, np.uint32(5), np.float32(2), block=(32, 1, 1), grid=[1])
    assert a.tolist() == b.tolist() == [0, 2, 4, 6, 8, 5, 6, 7]


class Scaled(Script):
    def __call__(self, by: float16, n: int32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1])
        by_n: float32 = float32(by) * n
        self.store_global(g_y, self.register_tensor(dtype=float32, shape=[1], init=lambda i: by_n), offsets=[0])


class Factored(Script):
    def __call__(self, by: float32, n: int32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1])
        by_n: float32 = by * n
        self.store_global(g_y, self.register_tensor(dtype=float32, shape=[1], init=lambda i: by_n), offsets=[0])


def test_a_bundle_takes_a_float16() -> None:
    y = torch.zeros(1)
    bundle = compile(Scaled, 0.1, 3, y)
    emulate(bundle, 0.1, 3, y)
    assert y.item() == pytest.approx(3 * 0.0999755859375)
    emulate(bundle, float("inf"), 1, y)
    assert y.item() == float("inf")
    for wrong in (1e9, 10**400):
        with pytest.raises(InputError, match="no value of type float16"):
            emulate(bundle, wrong, 1, y)


@pytest.mark.parametrize("name", ["grid", "block", "cluster"])
def test_a_plan_with_an_extent_of_0_or_less_is_refused(name: str) -> None:
    y = torch.zeros(1)
    bundle = compile(Scaled, 0.1, 3, y)
    for extent in (0, -1):
        shape = (1, 1, extent)
        if (name, extent) != ("grid", 0):  # which is an empty launch
            odd = replace(bundle, plan=replace(bundle.plan, **{name: shape}))
            with pytest.raises(InputError, match=rf"{name} is \(1, 1, {extent}\); each extent is 1 at least"):
                emulate(odd, 0.1, 3, y)


@pytest.mark.parametrize("given", [torch.tensor(2.5), torch.ones(3), np.ones(3, np.float32)], ids=str)
def test_a_tensor_is_no_number(given: Any) -> None:
    """Its address is never taken for one; a number of numpy is one."""
    y = torch.zeros(1)
    bundle = compile(Factored, 2.5, 3, y)
    emulate(bundle, np.float32(2.5), np.int64(3), y)
    assert y.item() == 7.5
    for args, says in (((given, 3, y), "by of Factored is .*float32"), ((2.5, given, y), "n of Factored is .*int32")):
        with pytest.raises(InputError, match=rf"{says}\."):
            emulate(bundle, *args)
    assert y.item() == 7.5


def test_a_struct_is_given_as_bytes_as_an_array_or_as_a_struct_of_ctypes() -> None:
    read = ".reg .b32 %r; .reg .b64 %x; ld.param.u64 %x, [o]; ld.param.u32 %r, [s+4]; st.global.u32 [%x], %r;"
    text, words = module(read, [".u64 o", ".align 4 .b8 s[8]"]), np.array([3, 5], np.uint32)
    for given in (words, words.tobytes(), bytearray(words), (ctypes.c_uint32 * 2)(3, 5)):
        found = np.zeros(1, np.uint32)
        emulate(text, found, given)
        assert found[0] == 5
    with pytest.raises(InputError, match="parameter 1 of k has 8 bytes and was given 4"):
        emulate(text, words, words[:1])


def test_a_struct_of_a_pointer_takes_an_array_by_its_address() -> None:
    read = ".reg .b32 %r; .reg .b64 %x, %y; ld.param.u64 %x, [o]; ld.param.u64 %y, [s]; ld.global.u32 %r, [%y];"
    found = np.zeros(1, np.uint32)
    emulate(module(read + "st.global.u32 [%x], %r;", [".u64 o", ".align 8 .b8 s[8]"]), found, np.array([7], np.uint32))
    assert found[0] == 7


def test_views_of_one_memory() -> None:
    base = torch.arange(16, dtype=torch.float32)
    emulate(ADD, base[4:], 2, 10.0, block=32)
    assert base.tolist()[3:7] == [3, 40, 50, 6]
    wide = np.arange(12, dtype=np.float32).reshape(3, 4)
    emulate(ADD, wide[1, 2:], 3, 0.0, block=32)
    assert wide.reshape(-1)[5:10].tolist() == [5, 0, 0, 0, 9]


def test_a_file_and_one_of_several_kernels(tmp_path: Path) -> None:
    path = tmp_path / "two.ptx"
    path.write_text(TWO)
    a = np.ones(4, np.float32)
    assert emulate(path, a, 1, 3.0, kernel="other", block=32).kernel == "other"
    assert emulate(str(path), a, 2, 3.0, kernel="k", block=32).kernel == "k"
    assert a.tolist() == [9, 3, 1, 1]


def refused(sentence: str, code: Any = ADD, args: Any = None, **launch: Any) -> None:
    """One sentence that says this."""
    args = (np.zeros(4, np.float32), 4, 1.0) if args is None else args
    with pytest.raises(BlackwellMatmulError) as caught:
        emulate(code, *args, **{"block": 32} | launch)
    text = str(caught.value)
    assert sentence in text and text.endswith(".") and "\n" not in text.strip()
    assert isinstance(caught.value, (InputError, UnsupportedError))


def test_what_is_no_code() -> None:
    refused("cannot read PTX from 'nowhere.ptx': No such file", "nowhere.ptx")
    refused("5 is neither a bundle nor PTX, as text or as the path of a file", 5)
    refused("cannot read PTX from", "x" * 5000)
    refused("cannot read PTX from", "a\0b")
    refused("None is neither a bundle nor PTX", None)
    refused("this is no PTX: it has no .version line", "hello\nworld\n")
    refused("this is no PTX: it has no .version line", "")


def test_a_binary_file(tmp_path: Path) -> None:
    (tmp_path / "k.cubin").write_bytes(b"\x7fELF\xff\xfe\x00")
    refused("cannot read PTX from", tmp_path / "k.cubin")


def test_another_target_or_kernel() -> None:
    refused("this PTX is for sm_75; emulated are sm_80", ADD.replace("sm_90a", "sm_75"))
    refused("this PTX is for compute_90", ADD.replace("sm_90a", "compute_90"))
    refused("there is no kernel 'nobody': this PTX has k", kernel="nobody")
    refused("which kernel? this PTX has k, other", TWO)


def test_arguments_that_do_not_fit() -> None:
    a = np.zeros(4, np.float32)
    refused("k takes 3 parameters (.u64, .u32, .f32) and got 2", args=(a, 4))
    refused("parameter 1 of k", args=(a, 1.5, 1.0))
    refused("parameter 1 of k has 4 bytes, in which 4294967296 does not fit", args=(a, 1 << 32, 1.0))
    refused("parameter 1 of k has 4 bytes, in which -2147483649 does not fit", args=(a, -(1 << 31) - 1, 1.0))
    refused("argument 0 is 'a'; a pointer takes a tensor or an array", args=("a", 4, 1.0))
    refused("parameter 2 of k is .f32", args=(a, 4, a))
    refused("parameter 1 of k is .u32; it was given None", args=(a, None, 1.0))
    refused("argument 0 is <class 'torch.Tensor'>; a pointer takes", args=(torch.Tensor, 4, 1.0))
    refused("parameter 1 of k is .u32", args=(a, a, 1.0))
    refused("parameter 2 of k", args=(a, 4, 1e300))
    refused("does not lie in writeable, contiguous memory", args=(np.zeros((4, 4), order="F"), 4, 1.0))
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    refused("writeable", args=(frozen, 4, 1.0))
    refused("the emulator takes tensors on the CPU", args=(torch.zeros(4, device="meta"), 4, 1.0))


def test_a_null_pointer_is_passed_and_stops_when_it_is_read() -> None:
    with pytest.raises(BlackwellMatmulError, match="reads global memory at 0x0"):
        emulate(ADD, None, 4, 1.0, block=32)
    emulate(ADD, None, 0, 1.0, block=32)


def test_launches_that_do_not_fit() -> None:
    refused("grid is 0; it takes one to three positive numbers", grid=0)
    refused("block is (1, 2, 3, 4)", block=(1, 2, 3, 4))
    refused("cluster is", cluster="2")
    refused("grid is 1.5", grid=1.5)
    refused("a grid of (3, 1, 1) CTAs is not made of clusters of (2, 1, 1)", grid=3, cluster=2)
    refused("a block of (2048, 1, 1) has 2048 threads", block=2048)
    refused("bytes of shared memory; a CTA has from 0 to 232,448", shared_bytes=1 << 20)
    refused(
        "bytes of shared memory; a CTA has from 0 to 232,448",
        ADD.replace("ret;", ".shared .b8 big[20000];ret;"),
        shared_bytes=220_000,
    )
    refused("-8 bytes of shared memory", shared_bytes=-8)
    refused("shared_bytes is '8'", shared_bytes="8")
    rules = {"seed": "a whole number", "shared_bytes": "a whole number", "grid": "one to", "block": "one to"}
    for name, rule in rules.items():
        refused(f"{name} is True; it takes {rule}", **{name: True})
    refused("k is compiled for 64 threads and not for 32", ADD.replace(")\n{", ")\n.reqntid 64\n{"))
    refused("k is compiled for 16 threads and not for 32", ADD.replace(")\n{", ")\n.maxntid 16\n{"))
    refused("order is 'soon'; there are late, eager", order="soon")
    refused("seed is", seed=[1])
    refused("a bundle says its own kernel", code=Path(__file__).parent)


def test_an_instruction_that_is_not_known_has_its_line_and_text() -> None:
    code = ADD.replace("mul.f32 %r2, %r2, %r3;", ".loc 1 42 5\nmul.f32.fancy %r2, %r2, %r3;").replace(
        ".address", '.file 1 "x/y.py"\n.address'
    )
    line = code[: code.index("mul.f32.fancy")].count("\n") + 1
    refused(f"PTX line {line} (x/y.py:42): mul.f32.fancy %r2, %r2, %r3: mul.f32.fancy is not emulated.", code)
    for text in (
        "call.uni f, (%r1);",
        "tcgen05.shift.cta_group::1.down [%r2];",
        "bra NOWHERE;",
        "mov$ %r1, 5;",
        "$x;",
        "mov.u32 %r1, nobody;",
        "add.s32 %r1, {%r1, %r2}, %r3;",
        "bar.sync;",
        "ld.global.u32 5, [%x1];",
        "add %r1, %r1, %r1;",
        "lop3.b32 %r1, %r1, %r1, %r1, %r2;",
        "setp.eq.s32 %p, %r1;",
        "st.global.u32 %r1, [%x1];",
        "mbarrier.init.shared.b64 [%r1];",
        "tcgen05.mma.cta_group::1 [%r1];",
        "cp.async.bulk.shared.global [%r1], [%x1];",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1}, %x1;",
    ):
        refused("PTX line", ADD.replace("mul.f32 %r2, %r2, %r3;", text))


def test_a_tensor_map_for_another_parameter() -> None:
    described = TensorMap(
        dtype="FLOAT32",
        pointer=np.zeros(64, np.float32),
        dims=(8, 8),
        strides_bytes=(32,),
        box=(8, 8),
        element_strides=(1, 1),
        interleave="NONE",
        swizzle="NONE",
        l2_promotion="NONE",
        oob_fill="NONE",
    )
    refused("parameter 1 of k has 4 bytes and was given 128", args=(np.zeros(4, np.float32), described, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v0", "v1"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_tensor_of_another_type_than_a_rung_was_compiled_for_is_refused(name: str, place: int) -> None:
    """Whether TMA reads and writes it, as in V1, or loads and stores."""
    operands = [torch.ones(128, 64).half(), torch.ones(64, 64).half(), torch.zeros(128, 64).half()]
    bundle = compile(rung(name), 128, 64, 64, *operands)
    for odd in (torch.bfloat16, torch.float32, torch.int16, torch.uint8):
        given = [each.to(odd) if i == place else each for i, each in enumerate(operands)]
        pointer = f"{'abc'[place]}_ptr of {bundle.name}"
        with pytest.raises(InputError, match=rf"^{pointer} is {odd}; the kernel was compiled for torch\.float16\.$"):
            emulate(bundle, 128, *given)
    emulate(bundle, 128, *(each.numpy() for each in operands))
    assert torch.equal(operands[2], torch.full((128, 64), 64.0).half())


class Viewed(Script):
    """A pointer that its annotation says nothing of, and a class that checks nothing."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=uint32, shape=[128])
        g_y = self.global_view(y_ptr, dtype=uint32, shape=[128])
        self.store_global(g_y, self.load_global(g_x, offsets=[0], shape=[128]), offsets=[0])


def test_a_void_p_of_a_script_of_ones_own_takes_any() -> None:
    x, y = torch.rand(128), torch.zeros(128)
    emulate(compile(Viewed, x, y, target="sm_90a"), x, y)
    assert torch.equal(x, y)


def test_a_view_without_elements_has_the_address_where_it_begins() -> None:
    """torch says 0 for its data_ptr()."""
    memory, rows = GlobalSpace(), torch.zeros(4, 8, dtype=torch.float16)
    whole, behind, none = (address_of(memory, "rows", view) for view in (rows, rows[3:], rows[3:3]))
    assert behind == none == whole + 3 * rows[0].nbytes and len(memory.memories) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"dims": (8,)}, "the tensor map has 1, 2, 2, 1 dims, box, element_strides and strides_bytes"),
        ({"strides_bytes": ()}, "the tensor map has 2, 2, 2, 0 dims, box, element_strides and strides_bytes"),
        ({"dims": ("a", 8)}, "the tensor map's dims is ('a', 8): it is a list of whole numbers from 1 on"),
        ({"dims": (0, 8)}, "the tensor map's dims is (0, 8): it is a list of whole numbers from 1 on"),
        ({"dims": 8}, "the tensor map's dims is 8: it is a list"),
        ({"box": (4, True)}, "the tensor map's box is (4, True): it is a list of whole numbers from 0 on"),
        ({"dtype": ["UINT32"]}, "a tensor map with element type ['UINT32'] is not emulated; there are"),
    ],
)
def test_tensor_maps_that_no_driver_encodes(change: dict[str, Any], text: str) -> None:
    fields = {"dims": (8, 8), "strides_bytes": (32,), "box": (4, 4), "element_strides": (1, 1), "dtype": "UINT32"}
    plain = dict.fromkeys(("interleave", "swizzle", "l2_promotion", "oob_fill"), "NONE")
    given = TensorMap(pointer=np.zeros(64, np.uint32), **(fields | plain | change))  # type: ignore[arg-type]
    with pytest.raises(BlackwellMatmulError) as caught:
        emulate(module("", [".align 64 .b8 m[128]"]), given)
    assert text in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("given", "more", "text"),
    [
        (1 << 200, {}, "has 4 bytes, in which a number of 201 bits does not fit"),
        (1, {"progress": 5}, "progress is 5; it takes a function"),
        (1, {"listener": 5}, "listener is 5; it takes an EmulationListener"),
    ],
)
def test_arguments_that_are_none(given: object, more: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        emulate(module("", [".u32 n"]), given, **more)
    assert text in str(caught.value) and str(caught.value).endswith(".")
    assert emulate(module("", [".u32 n"]), np.bool_(True)).ctas == 1
