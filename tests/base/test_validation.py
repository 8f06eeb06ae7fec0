"""Any value fits into a message, and the predicates answer for any value."""

import enum
import fractions
import json
import math
import sys
import threading

import numpy as np
import pytest
import torch
from tilus import float16

from blackwell_matmul.base.validation import (
    LONGEST_VALUE_CHARACTERS,
    accepts,
    attribute,
    has_memory,
    integer,
    is_text,
    near,
    number,
    plain_text,
    plain_values,
    same,
    shown,
    spelled,
)


class Silent(Exception):
    def __str__(self):
        raise RuntimeError

    def __getattr__(self, name):
        raise RuntimeError

    __repr__ = __eq__ = __hash__ = __str__


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "value, text",
    [
        (3, "3"),
        ("a\nb", r"'a\nb'"),
        ("\ud800", r"'\ud800'"),
        ("x" * 200, "'" + "x" * (LONGEST_VALUE_CHARACTERS - 1) + "..."),
        ([0] * 100, "an object of type list"),
        (torch.zeros(2, 3), "a tensor of shape (2, 3) and type torch.float32"),
        (np.zeros((2, 3)), "an array of shape (2, 3) and type float64"),
        (np.float32(3), "np.float32(3.0)"),
        (torch.float16, "torch.float16"),
    ],
)
def test_a_value_is_shown_in_a_few_words(value, text):
    assert shown(value) == text


def test_a_value_that_cannot_be_printed_goes_by_its_type():
    assert [shown(value) for value in (Silent(), 10**5000)] == ["an object of type Silent", "an object of type int"]


def nested(depth, wrap):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: {"a": x}], ids=["list", "tuple", "dict"])
def test_a_deep_value_goes_by_its_type_in_a_thread_whatever_the_recursion_limit(wrap):
    """`repr` would take the whole stack of the thread, which ends the process."""
    limit, found = sys.getrecursionlimit(), []
    thread = threading.Thread(target=lambda: found.append(shown(nested(90_000, wrap))))
    try:
        sys.setrecursionlimit(100_000)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
    assert found == [f"an object of type {type(wrap(1)).__name__}"]


def test_short_containers_are_shown_and_long_ones_go_by_their_type():
    for short in ([1, (2, {"a": [3]})], {1: {2}}, nested(30, lambda x: [x]), list(range(20)), frozenset("a")):
        assert shown(short) == repr(short)
    for long in (list(range(10**6)), dict.fromkeys(range(99)), [[0] * 40] * 2):
        assert shown(long) == f"an object of type {type(long).__name__}"


@pytest.mark.parametrize(("text", "good"), [("Kernel \u00b5", True), ("\ud800", False), (b"K", False), (None, False)])
def test_text_that_a_file_can_hold(text, good):
    assert is_text(text) is good


def test_values_in_plain_form_fit_into_json():
    values = {"a": math.nan, "b": math.inf, "c": 1.5, "d": float16, "e": object, "f": None, "g": True, "h": Silent()}
    plain = plain_values(values)
    assert plain == {
        "a": "nan", "b": "inf", "c": 1.5, "d": "float16", "e": "<class 'object'>", "f": None, "g": True,
        "h": "an object of type Silent",
    }  # fmt: skip
    json.dumps(plain, allow_nan=False)


def test_a_path_is_told_from_the_current_folder_if_it_is_inside(tmp_path, monkeypatch):
    inside, outside = tmp_path / "here" / "kernel.py", tmp_path / "kernel.py"
    inside.parent.mkdir()
    monkeypatch.chdir(inside.parent)
    assert near(str(inside)) == "kernel.py" and near(str(outside)) == str(outside) and near("") == ""


def test_an_error_is_spelled_on_one_line():
    assert spelled(ValueError("two\nlines.")) == "ValueError: two lines"
    assert spelled(KeyError()) == "KeyError" and spelled(Silent()) == "Silent"


def test_numbers_and_texts():
    assert [integer(x, 0, 9) for x in (9, np.int64(9), True, 10, -1, 9.0, None)] == [9, 9, None, None, None, None, None]
    assert [number(x) for x in (1, fractions.Fraction(1, 2), np.float32(2), True, 10**400, "1", 1j)] == [
        *(1.0, 0.5, 2.0, None, None, None, None)
    ]
    assert math.isnan(number(math.nan))
    assert plain_text("x") == "x" and type(plain_text(Colour.RED)) is str and plain_text(b"x") is None


def test_what_cannot_be_compared_or_asked_is_no_error():
    silent = Silent()
    assert same(1, 1.0) and not same(1, 2) and same(silent, silent) and not same(silent, 1)
    assert not same(np.zeros(3), np.zeros(3))
    assert attribute(torch.zeros(3), "dtype") is torch.float32
    assert attribute(silent, "dtype") is None and attribute(3, "dtype") is None


def test_memory():
    ones = torch.ones(8, 8)
    assert all(has_memory(tensor) for tensor in (ones, ones.T, ones[::2], ones.half(), torch.zeros(0)))
    without = [ones.to_sparse(), ones.to_mkldnn(), torch.complex(ones, ones).conj(), torch._neg_view(ones), None]
    assert not any(has_memory(tensor) for tensor in without)


def test_what_can_be_called():
    assert accepts(print, 2) and accepts(lambda a, b=0: a, 2)
    assert not any(accepts(value, 2) for value in (len, lambda: None, 3, None, int, Silent()))
