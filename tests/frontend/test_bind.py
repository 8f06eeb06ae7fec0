"""`bind` accepts every way to hold a script, restricts the schedule space, and says what does not fit."""

from __future__ import annotations

import math
import types
from typing import Any

import frontend_scripts as scripts
import numpy as np
import pytest
import torch
from frontend_samples import ARRAY, CALLS

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.frontend import bind, bind_all
from blackwell_matmul.problem.problem import Schedule

MATMUL = CALLS["TmaMatmul"]


def schedules(script: Any, args: tuple[Any, ...] = MATMUL, **options: Any) -> list[tuple[int, ...]]:
    bounds = bind_all(script, args, target="sm_100a", **options)
    return [(b.init_kwargs["block_m"], b.init_kwargs["block_n"], b.init_kwargs["stages"]) for b in bounds]


def refusal(script: Any, *args: Any, target: str = "sm_100a", schedule: Any = None) -> str:
    with pytest.raises(InputError) as error:
        bind(script, args, target=target, schedule=schedule)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_class_and_its_tilus_instance_give_the_same_candidates_in_the_same_order() -> None:
    from_class = bind_all(scripts.TmaMatmul, MATMUL, target="sm_100a")
    from_instance = bind_all(scripts.TmaMatmul(), MATMUL, target="sm_100a")
    assert [b.init_kwargs for b in from_class] == [b.init_kwargs for b in from_instance]
    assert len(from_class) == 4
    assert from_class[0].init_kwargs["block_k"] == 32


def test_a_schedule_restricts_the_space() -> None:
    assert schedules(scripts.TmaMatmul, schedule={"stages": 3}) == [(128, 64, 3), (128, 128, 3)]
    assert schedules(scripts.TmaMatmul(), schedule=Schedule(block_n=128)) == [(128, 128, 2), (128, 128, 3)]
    assert schedules(scripts.TmaMatmul(block_k=64), schedule={"stages": 2}) == [(128, 64, 2), (128, 128, 2)]


def test_pins_of_a_kernel_object_and_a_schedule_are_merged() -> None:
    kernel = types.SimpleNamespace(script_cls=scripts.TmaMatmul, pins={"block_n": 64})
    assert schedules(kernel, schedule={"stages": 3}) == [(128, 64, 3)]
    assert schedules(kernel, schedule={"block_n": 64}) == [(128, 64, 2), (128, 64, 3)]
    message = refusal(kernel, *MATMUL, schedule={"block_n": 128})
    assert "block_n=64" in message and "block_n=128" in message


def test_a_parameter_outside_of_the_space_can_be_given() -> None:
    bound = bind(scripts.TmaMatmul, MATMUL, schedule={"block_k": 64}, target="sm_100a")
    assert bound.init_kwargs["block_k"] == 64


def test_a_class_that_completes_its_schedule_is_asked() -> None:
    assert bind(scripts.Completing, (8,), target="sm_90a").init_kwargs == {"block": 4, "label": "sm_90a"}
    assert bind(scripts.Completing, (8,), schedule={"block": 2}, target="sm_80").init_kwargs["block"] == 2


def test_a_debug_schedule_replaces_the_space() -> None:
    for script in (scripts.Debugged, scripts.Debugged()):
        (bound,) = bind_all(script, (1,), target="sm_100a")
        assert bound.init_kwargs == {"block": 8, "warps": 4}


def test_arguments_are_split_by_their_annotations() -> None:
    tensor = torch.zeros(4)
    bound = bind(scripts.Scalars, (np.int64(1), "a", True, 2, 3, True, tensor, 4096), target="sm_100a")
    assert bound.consts == {"n": 1, "name": "a", "flag": True, "rate": 2.0}
    assert type(bound.consts["n"]) is int and type(bound.consts["rate"]) is float
    assert list(bound.kernel_args) == ["m", "on", "p", "q"]
    assert bound.kernel_args["p"] is tensor and bound.kernel_args["q"] == 4096
    assert bound.divisibility == {"m": 1, "on": 1}
    assert len(bound.args) == 8


def test_defaults_of_the_call_are_applied() -> None:
    bound = bind(scripts.CpAsync, CALLS["CpAsync"], target="sm_100a")
    assert bound.consts == {"n": 64, "scale": 1.0}
    assert bind(scripts.CpAsync, (*CALLS["CpAsync"], 2), target="sm_100a").consts["scale"] == 2.0


def test_refusals_name_what_is_wrong_and_what_would_work() -> None:
    assert "6 arguments (m, n, k, a_ptr, b_ptr, c_ptr) but got 1" in refusal(scripts.TmaMatmul, 1)
    assert "4 to 5 arguments" in refusal(scripts.CpAsync)
    assert "no schedule parameter 'tiles'" in refusal(scripts.TmaMatmul, *MATMUL, schedule={"tiles": 1})
    assert "its parameters are block_m, block_n, stages" in refusal(scripts.TmaMatmul, *MATMUL, schedule={"tiles": 1})
    offer = refusal(scripts.TmaMatmul, *MATMUL, schedule={"block_n": 96})
    assert "block_n=96" in offer and "block_n: 64, 128" in offer
    assert "sm_100a" in refusal(scripts.TmaMatmul, *MATMUL, target="b200")
    assert "cannot be a kernel: n has no annotation; int32, float32, pointers such" in refusal(scripts.NoAnnotation, 1)
    assert "is no kernel" in refusal(3)
    assert "must be a Schedule" in refusal(scripts.TmaMatmul, *MATMUL, schedule=3)
    needs = types.SimpleNamespace(script_cls=scripts.Ring, pins={})
    assert "cannot be a kernel" in refusal(needs) or "is no kernel" in refusal(needs)


def test_an_instance_of_no_kernel_is_refused_when_it_is_made() -> None:
    with pytest.raises(
        InputError, match=r"NoCall\.__call__ cannot be a kernel: the class has none; write def __call__"
    ):
        scripts.NoCall()
    with pytest.raises(InputError, match=r"OfList\.__call__ cannot be a kernel: m is annotated with list; int32,"):
        scripts.OfList()


@pytest.mark.parametrize(
    ("position", "value", "words"),
    [
        (0, ARRAY, "n of Scalars is an array of shape (4,) and type float32"),
        (0, 1.5, "must be of type int"),
        (1, 7, "must be of type str"),
        (2, 1, "must be of type bool"),
        (3, "fast", "must be of type float"),
        (4, ARRAY, "m of Scalars is an array"),
        (4, ARRAY, "or annotate a pointer to a tensor with m: ~int32."),
        (4, 2**31, "int32 holds -2147483648 to 2147483647"),
        (5, 2, "bool holds 0 to 1"),
        (6, 1.5, "p of Scalars is 1.5; it must be a tensor, an array or an address"),
        (6, ARRAY.astype("float64"), "p of Scalars is an array of float64 and the kernel takes ~float32"),
        (7, "x", "must be a tensor, an array or an address"),
        (7, True, "must be a tensor, an array or an address"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused(position: int, value: Any, words: str) -> None:
    args: list[Any] = [1, "a", True, 2.0, 3, True, ARRAY, ARRAY]
    args[position] = value
    assert words in refusal(scripts.Scalars, *args)


@pytest.mark.parametrize("beyond", [1e39, -1e39, 3.4028235677973366e38, 2**200, np.float64(1e300)])
def test_a_number_that_rounds_to_an_infinity_of_its_type_is_refused(beyond: Any) -> None:
    """The largest number of float32, as people write it, and an infinity itself are taken."""
    assert "it must be a number that fits float32" in refusal(scripts.OneFloat, beyond)
    for value in (3.4028235e38, -math.inf, math.nan, 2**127, 1e-60):
        (bound,) = bind(scripts.OneFloat, (value,), target="sm_100a").kernel_args.values()
        assert bound == value or math.isnan(value)


def test_a_star_among_the_parameters_is_told() -> None:
    with pytest.raises(InputError, match=r"each of its parameters needs a name and a place; leave out \* and /"):
        bind(scripts.Starred, (3, 4), target="sm_100a")
