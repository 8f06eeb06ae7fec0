"""TMA in its smallest form: values at odd sizes on every target, what a missing wait does, and what is refused."""

from __future__ import annotations

import importlib.util
import inspect
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.compiler import compile
from blackwell_matmul.kernels import primitives
from blackwell_matmul.kernels.primitives import GemmTile, TmaCopy, VectorAdd
from blackwell_matmul.kernels.primitives.tensors import BOX_BYTES, MAX_BOX_EXTENT, default_box
from blackwell_matmul.simulator import Run, simulate
from tests.sentences import one_sentence

TARGETS = ("sm_90a", "sm_100a")
TYPES = (torch.float16, torch.bfloat16, torch.float32)
SHAPES = [
    (1,),
    (257,),
    (3001,),
    (37, 24),
    (1, 8),
    (301, 264),
    (5, 7, 40),
    (3, 5, 2, 16),
    (7, 1, 33, 72),
    (2, 3, 5, 3, 8),
    (3, 5, 7, 9, 24),
]


def clean(kernel: Any, *args: Any, target: str = "sm_100a", policy: str = "adversarial") -> Run:
    run = simulate(kernel, *args, target=target, policy=policy, workers=1)
    assert run.ok and not run.findings, [str(finding) for finding in run.findings]
    return run


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", SHAPES)
def test_copy_of_one_to_five_dimensions(shape: tuple[int, ...], target: str) -> None:
    for dtype in TYPES:
        x = torch.randn(shape).to(dtype)
        y = torch.full_like(x, torch.nan)
        clean(TmaCopy(), x, y, target=target)
        assert torch.equal(x, y)


@pytest.mark.parametrize("policy", ["adversarial", "eager", "random"])
def test_copy_with_a_box_that_does_not_divide_the_tensor(policy: str) -> None:
    x = torch.randn(5, 11, 20)
    y = torch.full_like(x, torch.nan)
    run = clean(TmaCopy(box=(2, 3, 8)), x, y, policy=policy)
    assert torch.equal(x, y) and run.grid == (3 * 4 * 3, 1, 1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 7, 256, 1003])
def test_vector_add(n: int, target: str) -> None:
    for dtype in TYPES:
        x, y = torch.randn(n).to(dtype), torch.randn(n).to(dtype)
        z = torch.full_like(x, torch.nan)
        clean(VectorAdd(), n, x, y, z, target=target)
        assert torch.equal(z, x + y)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 8), (100, 72, 40), (65, 136, 104), (64, 64, 32)])
def test_gemm_tile(m: int, n: int, k: int, target: str) -> None:
    """Small integers: every sum is exact, in any order."""
    for dtype in (torch.float16, torch.bfloat16):
        a, b = (torch.randint(-4, 5, size).to(dtype) for size in ((m, k), (n, k)))
        c = torch.full((m, n), torch.nan, dtype=dtype)
        clean(GemmTile(), m, n, k, a, b, c, target=target)
        assert torch.equal(c, (a.double() @ b.double().T).to(dtype))


def test_gemm_tile_with_other_blocks() -> None:
    a, b = torch.randint(-4, 5, (50, 64)).half(), torch.randint(-4, 5, (40, 64)).half()
    c = torch.full((50, 40), torch.nan).half()
    run = clean(GemmTile(block_m=32, block_n=16, block_k=16), 50, 40, 64, a, b, c)
    assert torch.equal(c, a @ b.T) and run.grid == (2, 3, 1)


def test_a_call_runs_where_the_tensors_live() -> None:
    x, y = torch.randn(9, 12), torch.zeros(9, 12)
    TmaCopy()(x, y)
    assert torch.equal(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("target", [*TARGETS, "sm_120a"])
def test_the_compiler_takes_them_for_every_gpu_with_tma(target: str) -> None:
    x, v = torch.zeros(2, 3, 5, 3, 8), torch.zeros(100)
    a, c = torch.zeros(40, 24).half(), torch.zeros(40, 40).half()
    for kernel, args in (
        (TmaCopy(), (x, x.clone())),
        (VectorAdd(), (100, v, v.clone(), v.clone())),
        (GemmTile(), (40, 40, 24, a, a.clone(), c)),
    ):
        assert compile(kernel, *args, target=target).cubin


# --- a missing wait shows


def mutant(script: type, line: str, nth: int, folder: Path) -> ModuleType:
    """The file of a kernel without the nth line that holds `line`."""
    lines = Path(inspect.getfile(script)).read_text(encoding="utf-8").splitlines()
    place = [number for number, text in enumerate(lines) if line in text][nth]
    lines[place] = lines[place].replace(lines[place].strip(), "pass")
    file = folder / f"{script.__name__.lower()}_mutant.py"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("self.mbarrier.wait(", "read-before-complete"),
        ("self.mbarrier.arrive_and_expect_tx(", "deadlock"),
        ("self.tma.wait_group(", "in-flight-at-exit"),
    ],
)
def test_a_copy_without_a_wait_is_found(line: str, code: str, tmp_path: Path) -> None:
    copy = mutant(TmaCopy, line, 0, tmp_path).TmaCopy
    x, y = torch.randn(37, 24), torch.zeros(37, 24)
    run = simulate(copy(), x, y, workers=1)
    assert code in {finding.code for finding in run.findings} and not run.ok


def test_a_tile_whose_operands_are_overwritten_too_early_is_found(tmp_path: Path) -> None:
    tile = mutant(GemmTile, "self.sync()", 1, tmp_path).GemmTile
    a, b, c = torch.randn(64, 96).half(), torch.randn(64, 96).half(), torch.zeros(64, 64).half()
    run = simulate(tile(), 64, 64, 96, a, b, c, workers=1)
    assert not run.ok


# --- boxes


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("element_bytes", [1, 2, 4])
def test_a_default_box_keeps_to_the_limits_of_a_tensor_map(shape: tuple[int, ...], element_bytes: int) -> None:
    box = default_box(shape, element_bytes)
    assert len(box) == len(shape) and all(1 <= extent <= MAX_BOX_EXTENT for extent in box)
    assert box[-1] * element_bytes % 16 == 0 and math.prod(box) * element_bytes <= BOX_BYTES


@pytest.mark.parametrize("box", [(8,), (0, 8), (4, 3), (4, 257 * 4), (512, 8), "ab", 8, (4, True)])
def test_a_box_that_tma_has_not_is_refused(box: object) -> None:
    x = torch.zeros(8, 16)
    with pytest.raises(InputError, match=r"box is .*must have one extent for each"):
        simulate(TmaCopy(box=box), x, x.clone())


# --- what is refused


def floats(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


REFUSED: list[tuple[Any, tuple[Any, ...], str]] = [
    (TmaCopy, (floats(4, 5), floats(4, 5)), "A row of x is 20 bytes, and TMA needs a multiple of 16"),
    (TmaCopy, (floats(4, 8), floats(4, 4)), "y is torch.float32 of shape .4, 4. on cpu and x is"),
    (TmaCopy, (floats(4, 8), floats(4, 8).half()), "they must be alike"),
    (TmaCopy, (floats(1, 1, 1, 1, 1, 4), floats(1, 1, 1, 1, 1, 4)), "it must have 1 to 5 dimensions"),
    (TmaCopy, (floats(0, 4), floats(0, 4)), "none empty"),
    (TmaCopy, (torch.tensor(1.0), torch.tensor(1.0)), "1 to 5 dimensions"),
    (TmaCopy, (floats(8, 4).T, floats(4, 8)), r"x has strides .* it must be contiguous"),
    (TmaCopy, (floats(65)[1:], floats(64)), "x starts 4 bytes past a multiple of 16"),
    (TmaCopy, (floats(4, 8).double(), floats(4, 8).double()), "x is torch.float64; it must be one of float16"),
    (TmaCopy, ([1.0], floats(4, 8)), "must be a dense torch.Tensor"),
    (TmaCopy, (floats(4, 8), floats(4, 8).requires_grad_()), "y requires grad"),
    (VectorAdd, (65, floats(64), floats(64), floats(64)), "n is 65 and the tensors have shape .64,.; it must be"),
    (VectorAdd, (64, floats(8, 8), floats(8, 8), floats(8, 8)), "n is 64 and the tensors have shape .8, 8."),
    (GemmTile, (8, 8, 12, *(floats(8, 12).half(),) * 2, floats(8, 8).half()), "A row of a is 24 bytes"),
]


@pytest.mark.parametrize(("script", "args", "message"), REFUSED)
def test_what_tma_cannot_address_is_one_sentence(script: Any, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        script()(*args)
    one_sentence(raised.value)


def test_an_output_with_memory_of_an_input_is_refused() -> None:
    x = torch.zeros(64)
    with pytest.raises(InputError, match="y shares memory with x"):
        simulate(TmaCopy(), x, x)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = primitives.Nothing
