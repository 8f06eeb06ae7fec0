"""The records of foreign kernels: torch's own result is right by each reference, and nothing else is."""

from __future__ import annotations

import json
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "foreign"))

from case import asynchronous, instructions  # noqa: E402
from data import dtype_of, made, poison  # noqa: E402
from judging import judge  # noqa: E402
from references import REFERENCES, Expected, expected, spread, unpacked, wide  # noqa: E402
from run import argument, ptx_of, tensors_of  # noqa: E402
from who_pins import FACTS  # noqa: E402

RECORDS = sorted((ROOT / "tests" / "emulator" / "foreign").glob("*.json"))


def record_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.mark.parametrize("data", ["exact", "random"])
@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_torch_is_right_and_an_untouched_output_is_not(path: Path, data: str) -> None:
    record = record_of(path)
    tensors = tensors_of(record, data)
    exact = record["exact"] and data == "exact"
    for name, wanted in expected(record["reference"], tensors).items():
        assert judge(name, np.asarray(wanted.own).astype(tensors[name].dtype), wanted, exact).right
        assert not judge(name, tensors[name], wanted, exact).right


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_and_its_text_agree(path: Path) -> None:
    record, text = record_of(path), ptx_of(path)
    assert f".target {record['target']}" in text and f".entry {record['kernel']}(" in text
    assert record["opcodes"] == dict(asynchronous(text))
    assert record["reference"]["reference"] in REFERENCES
    tensors = tensors_of(record, "exact")
    assert len([argument(each, tensors) for each in record["arguments"]]) == text.split(")\n")[0].count(".param")


def test_instructions_are_found_behind_predicates_and_within_braces() -> None:
    text = """
    { // begin inline asm
    .reg .pred complete;
    wait: mbarrier.try_wait.parity.shared::cta.b64 complete, [%r1], %r2;
    @!complete bra.uni wait;
    }
    @%p1 wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1,%r2}, %rd1, 1;
    mov.b32 %r1, %r2; // mov.b64
    """
    assert [opcode for opcode, _ in instructions(text.replace("wait: ", "wait:\n"))] == [
        "mbarrier.try_wait.parity.shared::cta.b64",
        "bra.uni",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
        "mov.b32",
    ]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int8", "int32", "float32"])
def test_poison_is_no_result(dtype: str) -> None:
    values = poison((3, 4), dtype_of(dtype))
    wanted = Expected(np.zeros((3, 4)), np.zeros((3, 4)))
    verdict = judge("c", values, wanted, exact=True)
    assert not verdict.right and "12 as if never written" in verdict.message


def test_an_error_is_held_against_torchs_own() -> None:
    exact = np.array([1.0 + 2**-12, 2.0])
    wanted = Expected(exact, exact)
    assert judge("c", np.array([1.0, 2.0], np.float16), wanted, exact=False).right
    wrong = judge("c", np.array([1.0, 2.0 + 2**-8], np.float16), wanted, exact=False)
    assert not wrong.right and wrong.message.startswith("1 of 2 elements of c are wrong: c[1] is 2.00")


def test_a_value_of_four_bits_and_a_scale() -> None:
    assert wide(np.array([[0x21, 0xF8]], np.uint8), "e2m1").tolist() == [[0.5, 1.0, -0.0, -6.0]]
    assert spread(np.array([[127, 130]], np.uint8), 2).tolist() == [[1, 1, 8, 8]]


def test_packed_scales_are_put_in_order() -> None:
    """Row 32 i + j and column k lie at byte 16 j + 4 i + k of their 512."""
    scales = np.arange(512).reshape(128, 4)
    assert unpacked(scales)[32 * 3 + 5, 2] == 16 * 5 + 4 * 3 + 2


def test_the_same_recipe_gives_the_same_numbers() -> None:
    recipe = {"normal": 1.0, "seed": 4}
    first, second = (made((5, 7), dtype_of("bfloat16"), recipe) for _ in range(2))
    assert first.tobytes() == second.tobytes() and first.dtype == dtype_of("bfloat16")


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_that_is_broken_is_one_that_the_emulator_has(fact: str) -> None:
    """Compare each replacement with what it replaces: the name is there, and it takes as many arguments."""
    for place, name, other in FACTS[fact]():
        replaced = getattr(place, name)
        assert callable(other) == callable(replaced)
        if callable(other):
            assert signature(other).bind(*signature(replaced).parameters)
