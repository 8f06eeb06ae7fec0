"""The compiled code of every rung, executed: right, and bit for bit what the simulator computes from the script.

Small integers: every sum is exact, so that the order of the sums is of no concern.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from blackwell_matmul import compile, emulate, simulate
from blackwell_matmul.base.errors import EmulationError, InputError
from blackwell_matmul.compiler import Bundle
from blackwell_matmul.emulator import ORDERS
from blackwell_matmul.emulator.emulate import of_bundle
from blackwell_matmul.emulator.parser import Number, parse
from blackwell_matmul.emulator.scheduler import Choices
from blackwell_matmul.kernels import KERNELS, rung
from blackwell_matmul.problem.form import Epilogue
from blackwell_matmul.problem.problem import Schedule
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER

pytestmark = pytest.mark.slow

M, N, K = 137, 72, 264
"""As in order/test_kernels.py: what it compiles is compiled once."""


def operands(dtype: torch.dtype = torch.float16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-3, 4, (rows, K), generator=generator).to(dtype) for rows in (M, N))
    return a, b, torch.full((M, N), float("nan"), dtype=dtype)


def sizes(bundle: Bundle, m: int = M) -> list[int]:
    """Those that a launch takes."""
    return bundle.ordered(m=m, n=N, k=K)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.double() @ b.double().T).to(a.dtype)


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in BLOCK_SCALED_LADDER])
def test_a_rung_computes_what_the_simulator_computes(name: str) -> None:
    a, b, c = operands()
    bundle = compile(rung(name), M, N, K, a, b, c)
    order = sorted(ORDERS)[list(KERNELS).index(name) % len(ORDERS)]  # each order for some
    took = emulate(bundle, *sizes(bundle), a, b, c, order=order)
    simulated = torch.full_like(c, float("nan"))
    simulate(rung(name), M, N, K, a, b, simulated, workers=1)
    assert torch.equal(c, product(a, b)) and torch.equal(c, simulated)
    assert took.kernel == bundle.plan.kernel and took.target == bundle.target and took.instructions > 1000


def test_operands_that_are_contiguous_along_their_rows_in_a_cluster() -> None:
    """A descriptor tells how far the spans of a tile are apart; an address has the rank of its CTA just there."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-3, 4, (64, rows), generator=generator).half().T for rows in (256, 128))
    c = torch.full((256, 128), float("nan"), dtype=torch.float16)
    schedule = "block_m=128,block_n=128,consumers=2,cluster_m=1,split_k=1"
    bundle = compile("hopper", 256, 128, 64, a, b, c, schedule=schedule)
    assert "__cluster_dims__(2, 1, 1)" in bundle.source
    emulate(bundle, 256, 128, 64, a, b, c)
    assert torch.equal(c, product(a, b))


def test_m_is_free_and_nothing_of_no_rows_runs() -> None:
    a, b, c = operands()
    bundle = compile(rung("v2"), M, N, K, a, b, c)
    with pytest.raises(InputError, match=r"takes 4 arguments .m, a_ptr, b_ptr, c_ptr. but got 3"):
        emulate(bundle, M, a, b)
    for m in (1, 129):
        some = torch.full((m, N), float("nan"), dtype=torch.float16)
        emulate(bundle, m, a[:m], b, some)
        assert torch.equal(some, product(a[:m], b))
    assert emulate(bundle, 0, a[:0], b, c[:0]).instructions == 0


@pytest.mark.parametrize("name", ["blackwell", "hopper"])
def test_n_and_k_are_free_too(name: str) -> None:
    """Also of more tiles than CTAs, and with numbers of tiles that are no powers of two."""
    a, b, c = operands()
    bundle = compile(rung(name), M, N, K, a, b, c, schedule="block_n=64")
    for m, n, k in ((1, 8, 8), (300, 4 * 64 + 8, 136), (130, 3 * 64, 64)):
        generator = torch.Generator().manual_seed(n)
        a, b = (torch.randint(-3, 4, (rows, k), generator=generator).half() for rows in (m, n))
        c = torch.full((m, n), float("nan"), dtype=torch.float16)
        emulate(bundle, m, n, k, a, b, c)
        assert torch.equal(c, product(a, b))
    with pytest.raises(InputError, match=r"rows of a_ptr are no multiple of 16 bytes apart"):
        emulate(bundle, m, n, k - 1, a, b, c)


FORMS = [name for name in KERNELS if "forms" in rung(name).features]


@pytest.mark.parametrize("name", FORMS)
def test_a_bundle_takes_six_to_eleven_arguments_also_when_saved(name: str, tmp_path: Path) -> None:
    a, b, c = operands()
    compile(rung(name), M, N, K, a, b, c).save(tmp_path)
    bundle = Bundle.load(tmp_path)
    emulate(bundle, M, N, K, a, b, c, 0, 0)
    assert torch.equal(c, product(a, b))
    for wrong in ((M, N, K, a, b), (M, N, K, a, b, c, 0, 0, 0, 0, 1, 1)):
        with pytest.raises(InputError, match=f"takes 6 to 11 arguments .*, bias_ptr = 0, .* but got {len(wrong)}"):
            emulate(bundle, *wrong)


def test_code_for_a_residual_is_not_called_without_one() -> None:
    """The code reads it: it is told from code for no residual, which is the same program otherwise."""
    a, b, c = operands()
    residual = torch.ones_like(c)
    bundle = compile(rung("blackwell")(form=Epilogue(residual=True)), M, N, K, a, b, c, 0, residual)
    emulate(bundle, M, N, K, a, b, c, 0, residual)
    assert torch.equal(c, (a.double() @ b.double().T + 1).to(c.dtype))
    with pytest.raises(InputError, match=r"takes 8 to 11 arguments .*bias_ptr = 0, residual_ptr, scale_a_ptr = 0"):
        emulate(bundle, M, N, K, a, b, c)


@pytest.mark.parametrize("name", FORMS)
def test_code_for_an_n_that_is_a_multiple_of_8_takes_no_other(name: str) -> None:
    a, b, c = operands()
    bundle = compile(rung(name), M, N, K, a, b, c)
    assert bundle.serves == "Serves any m, n, k and batches with n a multiple of 8."
    with pytest.raises(InputError, match=r"compiled for multiples of 8; compile it again with this n as the example"):
        emulate(bundle, M, N - 4, K, a, b, c)


# --- faults in the code generation


def faulty(name: str, opcode: str, change: int, place: int = 2) -> EmulationError | bool:
    """The rung with an immediate of each of these instructions changed: what stops it, or whether C is right."""
    a, b, c = operands()
    bundle = compile(rung(name), M, N, K, a, b, c, schedule=Schedule(block_k=64))
    module = parse(bundle.ptx)
    code = module.kernels[bundle.plan.kernel].instructions
    count = 0
    for index, each in enumerate(code):
        number = each.operands[place] if each.opcode.startswith(opcode) and len(each.operands) > place else None
        if isinstance(number, Number) and int(number.value).bit_length() > 60:
            changed = (*each.operands[:place], Number(int(number.value) ^ change), *each.operands[place + 1 :])
            code[index] = dataclasses.replace(each, operands=changed)
            count += 1
    assert count, f"no {opcode} of {name} has a descriptor"
    try:
        of_bundle(bundle, module, (M, a, b, c), Choices())
    except EmulationError as error:
        return error
    return torch.equal(c, product(a, b))


@pytest.mark.parametrize(
    ("name", "bits", "what"),
    [
        ("v2", 6 << 61, "swizzle of 32 bytes"),
        ("v2", 1 << 33, "stride"),
        ("h2", 1 << 62, "swizzle"),
        ("h2", 1 << 34, "stride"),
    ],
)
def test_a_wrong_descriptor_shows(name: str, bits: int, what: str) -> None:
    assert faulty(name, "or.b64", bits) is not True, what


def test_a_reserved_bit_of_a_descriptor_stops_with_both_lines() -> None:
    error = faulty("v2", "or.b64", 1 << 14)
    assert isinstance(error, EmulationError)
    assert "bits set that are reserved" in str(error) and "v2.py:" in str(error) and "tcgen05.mma" in str(error)


@pytest.mark.parametrize("name", ["v1", "h1"])
def test_another_swizzle_of_a_tensor_map_shows(name: str) -> None:
    a, b, c = operands()
    bundle = compile(rung(name), M, N, K, a, b, c, schedule=Schedule(block_k=64))
    first, *others = bundle.plan.tensor_maps
    assert first.swizzle == "128B"
    plan = dataclasses.replace(bundle.plan, tensor_maps=(dataclasses.replace(first, swizzle="64B"), *others))
    with pytest.raises(
        EmulationError, match=r"rows of 128 bytes are no multiple of 16 or longer than the swizzle of 64"
    ):
        emulate(dataclasses.replace(bundle, plan=plan), M, a, b, c)


def test_a_missing_arrival_is_a_deadlock_that_names_the_barrier_and_both_lines() -> None:
    a, b, c = operands()
    bundle = compile(rung("v2"), M, N, K, a, b, c)
    module = parse(bundle.ptx)
    code = module.kernels[bundle.plan.kernel].instructions
    code[:] = [
        dataclasses.replace(each, opcode="pmevent", operands=(Number(0),))
        if each.opcode.startswith("tcgen05.commit")
        else each
        for each in code
    ]
    with pytest.raises(EmulationError, match=r"^deadlock: .*v2\.py:\d+: mbarrier\.try_wait.*1 of 1 arrivals"):
        of_bundle(bundle, module, (M, a, b, c), Choices())


def test_tensors_that_share_memory_share_it_here() -> None:
    a, b, _ = operands()
    whole = torch.full((M + 8, N), float("nan"), dtype=torch.float16)
    bundle = compile(rung("h1"), M, N, K, a, b, whole[:M])
    emulate(bundle, M, a, b, whole[4 : M + 4])
    assert torch.equal(whole[4 : M + 4], product(a, b)) and whole[:4].isnan().all() and whole[M + 4 :].isnan().all()
    assert np.isnan(whole[:4].numpy()).all()
