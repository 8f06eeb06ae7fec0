"""LaunchPlan: what expressions mean, the JSON round trip, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
import timeit
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.compiler import plan as plans
from blackwell_matmul.compiler.plan import Argument, Check, Launch, LaunchPlan, Parameter, TensorMap, Workspace

MAP = TensorMap("FLOAT16", "a_ptr", (1024, ("u64", "m")), (2048,), (16, 128), (1, 1), "NONE", "32B", "L2_128B", "NONE")
PLAN = LaunchPlan(
    kernel="k",
    parameters=(Parameter("m", "int32"), Parameter("a_ptr", "pointer", "float16"), Parameter("scale", "float32")),
    checks=(Check(("==", ("&", "a_ptr", 15), 0), "a_ptr does not start at a multiple of 16 bytes"),),
    grid=(("//", ("+", "m", 127), 128), 16, 1),
    block=(128, 1, 1),
    cluster=(1, 1, 1),
    dynamic_shared_bytes=16516,
    tensor_maps=(MAP, MAP),
    workspaces=(Workspace(("*", "m", 4), True),),
    arguments=(
        Argument("value", "int32", "m"),
        Argument("value", "float32", "scale"),
        Argument("tensor_map", "CUtensorMap", 1),
        Argument("workspace", "pointer", 0),
    ),
)


FINISHING = dataclasses.replace(
    PLAN,
    parameters=(
        *PLAN.parameters[:2],
        Parameter("bias_ptr", "pointer", default=0),
        Parameter("scale", "float32"),
        Parameter("alpha", "float32", default=0.5),
        Parameter("batches", "int32", default=1),
    ),
    arguments=tuple(Argument("value", "int32", name) for name in ("bias_ptr", "scale", "alpha", "batches")),
)
"""bias_ptr has a default, and scale after it has none: a hole."""


def value(expr: plans.Expr, **names: int) -> Any:
    """What one expression is for these parameters."""
    parameters = tuple(Parameter(name, "int64") for name in names)
    plan = dataclasses.replace(
        PLAN, parameters=parameters, checks=(), grid=(expr, 1, 1), tensor_maps=(), workspaces=(), arguments=()
    )
    return plan.evaluate(list(names.values())).grid[0]


def test_a_launch() -> None:
    launch = PLAN.evaluate([1000, 0x1000, 0.5])
    assert launch.grid == (8, 16, 1)
    assert launch.tensor_maps[0].dims == (1024, 1000)
    assert launch.tensor_maps[0].pointer == 0x1000
    assert launch.tensor_maps[0] is launch.tensor_maps[1]
    assert launch.workspaces == (Workspace(4000, True),)
    assert [each.value for each in launch.arguments] == [1000, 0.5, 1, 0]
    assert not launch.is_empty and not launch.early_start
    early = dataclasses.replace(PLAN, early_start=("<=", "m", 1000))
    assert early.evaluate([1000, 0x1000, 0.5]).early_start is True
    assert early.evaluate([1001, 0x1000, 0.5]).early_start is False


def test_no_cta_is_no_error() -> None:
    assert PLAN.evaluate([0, 0x1000, 0.5]).is_empty


@pytest.mark.parametrize("a", [-7, -6, -1, 0, 1, 6, 7])
@pytest.mark.parametrize("b", [-3, -1, 1, 3])
def test_division_is_that_of_c(a: int, b: int) -> None:
    assert value(("//", "a", "b"), a=a, b=b) == int(a / b)
    assert value(("%", "a", "b"), a=a, b=b) == a - b * int(a / b)


@given(st.integers(-(2**63), 2**63 - 1))
def test_casts_wrap(a: int) -> None:
    assert value(("u32", "a"), a=a) == a % 2**32
    assert value(("i32", "a"), a=a) == (a + 2**31) % 2**32 - 2**31
    assert value(("u64", "a"), a=a) == a % 2**64
    assert value(("i8", "a"), a=a) == (a + 128) % 256 - 128


def test_the_other_operators() -> None:
    assert value(("?:", ("<", "a", 3), ("min", "a", 1), ("max", "a", 9)), a=2) == 1
    assert value(("?:", ("not", ("<", "a", 3)), ("neg", "a"), 0), a=5) == -5
    assert value(("|", ("<<", "a", 4), (">>", "a", 1)), a=6) == 99
    assert value(("^", ("&", "a", 12), 1), a=15) == 13
    assert value(("or", ("and", 0, ("//", 1, 0)), ("==", "a", 7)), a=7) == 1  # what is not reached is not computed


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_fast_division_is_exact(divisor: int, a: int) -> None:
    m, s = plans.fastdiv_m(divisor), plans.fastdiv_s(divisor)
    assert 0 <= m < 2**32
    for dividend in (a, a - a % divisor, max(a - a % divisor - 1, 0)):
        quotient = dividend >> s if m == 0 else (dividend * m >> 32) >> s
        assert quotient == dividend // divisor


def test_json_round_trip() -> None:
    for plan in (PLAN, FINISHING):
        record = json.loads(json.dumps(plan.as_dict()))
        assert LaunchPlan.from_dict(record) == plan
        assert LaunchPlan.from_dict(record).as_dict() == plan.as_dict()


def test_a_plan_that_was_used_travels() -> None:
    PLAN.evaluate([1, 16, 1.0])
    assert pickle.loads(pickle.dumps(PLAN)) == PLAN


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, 16], "takes 3 arguments (m, a_ptr, scale) but got 2"),
        ([2**31, 16, 1.0], "m of k is 2147483648, which does not fit int32"),
        ([1, -1, 1.0], "a_ptr of k is -1, which does not fit pointer"),
        ([1, 8, 1.0], "a_ptr does not start at a multiple of 16 bytes (a_ptr = 8)"),
        (["x", 16, 1.0], "cannot be launched"),
    ],
)
def test_arguments_that_do_not_fit(values: list[Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        PLAN.evaluate(values)
    assert text in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("rest", "values"),
    [
        ((32, 2.0), [32, 2.0, 0.5, 1]),
        ((32, 2.0, 0.25), [32, 2.0, 0.25, 1]),
        ((32, 2.0, 0.25, 7), [32, 2.0, 0.25, 7]),
    ],
)
def test_what_is_left_out_at_the_end_has_its_default(rest: tuple[float, ...], values: list[float]) -> None:
    for call in ([1, 16, *rest], (1, 16, *rest)):
        assert [each.value for each in FINISHING.evaluate(call).arguments] == values


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_too_few_too_many_and_a_hole(count: int) -> None:
    """Of three, bias_ptr is given, and scale after it is not."""
    names = "m, a_ptr, bias_ptr = 0, scale, alpha = 0.5, batches = 1"
    with pytest.raises(InputError) as caught:
        FINISHING.evaluate([16] * count)
    assert str(caught.value) == f"k takes 4 to 6 arguments ({names}) but got {count}."


def test_a_default_that_does_not_fit_is_told_as_an_argument() -> None:
    parameters = (*PLAN.parameters[:2], Parameter("scale", "uint8", default=256))
    with pytest.raises(InputError, match="scale of k is 256, which does not fit uint8"):
        dataclasses.replace(PLAN, parameters=parameters).evaluate([1, 16])


def test_division_by_zero_is_a_sentence() -> None:
    with pytest.raises(InputError, match=r"cannot be launched with a = 0"):
        value(("//", 1, "a"), a=0)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"format": 3},
        {"parameters": [{**PLAN.as_dict()["parameters"][0], "default": "0"}, *PLAN.as_dict()["parameters"][1:]]},
        {"grid": [["system", "m"], 1, 1]},
        {"grid": ["q", 1, 1]},
        {"grid": [1, 1]},
        {"grid": [["+", "m"], 1, 1]},
        {"grid": [True, 1, 1]},
        {"dynamic_shared_bytes": {"m": 1}},
        {"dynamic_shared_bytes": "__import__('os')"},
        {"parameters": [{"name": "m", "type": "int32"}]},
        {"parameters": [{"name": "m", "type": "int32"}, {"name": "m", "type": "int32"}]},
        {"arguments": [{"kind": "file", "type": "int32", "value": 1}]},
        {"arguments": [{"kind": "workspace", "type": "pointer", "value": 5}]},
        {"arguments": [{"kind": "value", "type": "int32"}]},
        {"arguments": 7},
        {"tensor_maps": [{**PLAN.as_dict()["tensor_maps"][0], "box": [1]}]},
        {"tensor_maps": [{**PLAN.as_dict()["tensor_maps"][0], "swizzle": 3}]},
        {"kernel": None},
        {"early_start": True},
        {"early_start": ["<=", "q", 1]},
    ],
)
def test_a_damaged_record_is_one_sentence(change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        LaunchPlan.from_dict({**PLAN.as_dict(), **change})
    assert str(caught.value).count("\n") == 0
    assert str(caught.value).endswith(".")


def test_what_a_plan_of_before_did_not_say_has_defaults() -> None:
    record = PLAN.as_dict()
    for each in record["parameters"]:
        del each["row_major"], each["taken_as"]
    assert record["format"] == 4 and LaunchPlan.from_dict(record) == PLAN


def test_a_missing_field_is_one_sentence() -> None:
    record = PLAN.as_dict()
    del record["grid"]
    with pytest.raises(InputError, match="it has no 'grid'"):
        LaunchPlan.from_dict(record)


def test_deep_nesting_is_one_sentence() -> None:
    expr: Any = "m"
    for _ in range(5000):
        expr = ["neg", expr]
    with pytest.raises(InputError, match="nested too deeply"):
        LaunchPlan.from_dict({**PLAN.as_dict(), "grid": [expr, 1, 1]})


@pytest.mark.parametrize("count", [-1, 64, 10**7, 2**62, 10**30, ("<<", "m", 62)])
@pytest.mark.parametrize("op", ["<<", ">>"])
def test_a_shift_that_c_does_not_have_is_refused_before_it_takes_memory(op: str, count: Any) -> None:
    plan = dataclasses.replace(PLAN, grid=(("%", (op, "m", count), 7), 1, 1))
    with pytest.raises(InputError, match=r"a shift by .* bits is none of C"):
        LaunchPlan.from_dict(plan.as_dict()).evaluate([1, 0x1000, 0.5])


@pytest.mark.parametrize("count", [0, 1, 63])
def test_shifts_are_exact(count: int) -> None:
    assert value(("<<", "a", "b"), a=-3, b=count) == -3 << count
    assert value((">>", "a", "b"), a=-(2**63), b=count) == -(2**63) >> count


def test_a_name_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match="kernel is "):
        LaunchPlan.from_dict({**PLAN.as_dict(), "kernel": "\ud800"})


def test_evaluation_is_of_the_ten_microsecond_class() -> None:
    PLAN.evaluate([1000, 16, 1.0])
    best = min(timeit.repeat(lambda: PLAN.evaluate([1000, 16, 1.0]), number=200, repeat=20)) / 200
    assert best < 50e-6  # 4 us on the machine that this was written on


@pytest.mark.process
def test_plain_data_imports_neither_tilus_nor_cuda() -> None:
    code = (
        "import sys, blackwell_matmul.compiler.plan, blackwell_matmul.compiler.bundle\n"
        "assert not {'tilus', 'cuda', 'torch', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_launch_is_a_tuple() -> None:
    assert isinstance(PLAN.evaluate([1, 16, 1.0]), Launch)
