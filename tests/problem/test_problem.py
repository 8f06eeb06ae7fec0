"""`Problem`, `Schedule` and what they make of the integers, texts and mappings that a user passes."""

import enum
import math

import numpy as np
import pytest

from blackwell_matmul import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.problem.problem import Problem, Schedule, as_pins, plain_seed


class Dtype(enum.StrEnum):
    BF16 = "bf16"


def test_integers_and_texts_of_any_kind_become_pythons_own():
    problem = Problem(np.int64(8), 16, np.uint8(24), Dtype.BF16)
    assert problem == Problem(8, 16, 24, "bf16") and str(problem) == "8x16x24 bf16"
    assert [type(value) for value in (problem.m, problem.k, problem.dtype)] == [int, int, str]
    assert type(Schedule(block_m=np.int32(128)).block_m) is int
    assert type(plain_seed(np.int64(3))) is int


@pytest.mark.parametrize("value", [0, -1, 2**31, 10**5000, True, 8.0, math.nan, "8", None, np.array(8), [8]], ids=shown)
def test_a_size_is_an_integer_from_1(value):
    with pytest.raises(InputError, match=r"k is .*; it must be an integer from 1 to 2147483647\."):
        Problem(8, 8, value)


@pytest.mark.parametrize("value", [0, -128, 2**31, True, 128.0, "128"])
def test_a_knob_is_an_integer_from_1_or_not_set(value):
    assert Schedule(block_m=None) == Schedule()
    with pytest.raises(InputError, match=r"block_m is .*; it must be an integer from 1"):
        Schedule(block_m=value)


def test_a_schedule_is_read_as_it_is_printed():
    schedule = Schedule(128, 64, 32, stages=3)
    assert Schedule.parse(str(schedule)) == schedule
    assert Schedule.parse(" stages = 3 ,, block_m=0128 ") == Schedule(block_m=128, stages=3)
    assert Schedule.parse("") == Schedule()


def test_only_the_knobs_of_a_rung_are_read():
    assert Schedule.parse("stages=3", ("block_m", "stages")) == Schedule(stages=3)
    with pytest.raises(InputError, match=r"schedule names 'stages'; the knobs are block_m, block_n\.$"):
        Schedule.parse("stages=3", ("block_m", "block_n"))


@pytest.mark.parametrize(
    "text, words",
    [
        ("block_m=99999999999", "schedule gives block_m the value '99999999999'; it must be a positive integer."),
        ("block_m=9999999999", "block_m is 9999999999; it must be an integer from 1 to 2147483647."),
        ("block_m=0", "block_m is 0; it must be"),
        ("block_m=1,block_m=1", "schedule names block_m twice; give it once."),
        ("warps=4", "schedule names 'warps'; the knobs are block_m, block_n"),
        (None, "schedule is None; it must be text such as 'block_m=128,stages=3'."),
        (["block_m=1"], "schedule is ['block_m=1']; it must be text"),
    ],
)
def test_what_is_no_schedule_is_refused_by_its_word(text, words):
    with pytest.raises(InputError) as caught:
        Schedule.parse(text)
    assert words in str(caught.value)


def test_pins_come_from_a_schedule_a_mapping_or_nothing():
    given = {"block_m": 128}
    assert as_pins(None) == {} and as_pins(Schedule(block_m=128)) == as_pins(given) == given
    assert as_pins(given) is not given
    for wrong, words in (([], "schedule is []; it must be"), ({3: 4}, "schedule names 3; a knob's name is text.")):
        with pytest.raises(InputError) as caught:
            as_pins(wrong)
        assert words in str(caught.value)


def test_a_schedule_has_the_features_that_its_knobs_tune():
    assert Schedule(128, 64, 32).kernel_features == frozenset()
    assert Schedule(128, 64, 32, 32, stages=3).kernel_features == {"tma", "ring"}
    assert Schedule(128, 64, 32, 32, features=("tma",)) == Schedule(128, 64, 32, 32)  # said twice


def test_features_can_be_named_apart_from_the_knobs():
    named = Schedule(128, 64, 32, 32, 3, cluster_m=2, features=["clusters", "ring", "tma", "specialised"])
    assert named.features == ("tma", "ring", "specialised", "clusters")
    assert named.kernel_features == set(named.features) and named != Schedule(128, 64, 32, 32, 3, cluster_m=2)


@pytest.mark.parametrize("value", ["warp", ("tma", 3), 64, [[]]], ids=shown)
def test_what_is_no_feature_is_refused(value):
    with pytest.raises(InputError, match=r"features names .*; the features are tma, ring, "):
        Schedule(features=value)
