"""Winners are found again for what they were found for, and for nothing else; a damaged file is none."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.calls.inputs import arguments_of
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.form import Epilogue, Form
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.runtime import script_calls, winners
from blackwell_matmul.scheduling import space
from blackwell_matmul.tuner import stored

B200 = GPUS["B200"]
PROBLEM = Problem(100, 256, 128)
PINS = {"block_m": 128, "block_n": 64, "block_k": 16, "e_block_n": 32}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BLACKWELL_MATMUL_CACHE", str(tmp_path))
    winners._read.cache_clear()
    yield tmp_path
    winners._read.cache_clear()


def kept(pins=PINS, problem=PROBLEM):
    return winners.keep(rung("v1"), problem, B200, {"schedule": pins})


def test_a_winner_is_found_for_its_kernel_sizes_type_and_gpu():
    kept()
    assert stored("v1", PROBLEM, B200) == stored(rung("v1"), PROBLEM, B200) == PINS
    assert stored("v2", PROBLEM, B200) is None
    assert stored("v1", PROBLEM, GPUS["GB200"]) is None
    for other in (
        Problem(100, 512, 128),
        Problem(100, 256, 64),
        Problem(100, 256, 128, "bf16"),
        Problem(129, 256, 128),
    ):
        assert stored("v1", other, B200) is None


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ((3, PROBLEM, B200), "script is 3; give a tilus.Script class"),
        (("v1", (8, 8, 8), B200), r"problem is \(8, 8, 8\) and gpu is .*; they must be a Problem and a Gpu"),
        (("v1", PROBLEM, "B200"), "problem is .* and gpu is 'B200'; they must be a Problem and a Gpu"),
    ],
)
def test_what_is_asked_for_wrongly_is_one_sentence(asked, text):
    with pytest.raises(InputError, match=f"^{text}.*\\.$"):
        stored(*asked)


def test_m_counts_by_its_band():
    kept()
    assert [stored("v1", Problem(m, 256, 128), B200) is not None for m in (64, 65, 128, 129)] == [
        False,
        True,
        True,
        False,
    ]
    assert [winners.band(m) for m in (1, 2, 3, 128, 129)] == [1, 2, 4, 128, 256]


@pytest.mark.parametrize("what", ["_versions", "_source", "kernels_digest"])
def test_after_an_update_nothing_is_found(monkeypatch, what):
    kept()
    monkeypatch.setattr(winners, what, {"_versions": lambda: {"driver": "new"}}.get(what, lambda *args: "new"))
    assert stored("v1", PROBLEM, B200) is None
    monkeypatch.undo()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"format": 1}', '{"format": 1, "schedule": 3}', '{"format": 2}']
)
def test_a_damaged_file_is_none_and_is_written_anew(content):
    file = kept()
    file.write_text(content)
    winners._read.cache_clear()
    assert stored("v1", PROBLEM, B200) is None
    assert kept() == file and stored("v1", PROBLEM, B200) == PINS
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_file_of_another_problem_under_this_name_is_none():
    other = kept(problem=Problem(100, 512, 64))
    file = winners.place(rung("v1"), PROBLEM, B200)
    other.rename(file)
    assert stored("v1", PROBLEM, B200) is None
    assert kept() == file and stored("v1", PROBLEM, B200) == PINS


@pytest.mark.parametrize("schedule", [3, None, [], {"block_m": [128]}, {"block_m": {"a": 1}}])
def test_a_schedule_that_is_none_is_not_found(schedule):
    kept(schedule)
    assert stored("v1", PROBLEM, B200) is None


def test_a_cache_that_is_switched_off_keeps_nothing(monkeypatch):
    monkeypatch.setenv("BLACKWELL_MATMUL_CACHE", "off")
    assert kept() is None and stored("v1", PROBLEM, B200) is None


def test_what_json_does_not_have_is_not_kept():
    assert kept({"block_m": float("nan")}) is None and stored("v1", PROBLEM, B200) is None


def test_a_cache_that_cannot_be_written_to_keeps_nothing(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("BLACKWELL_MATMUL_CACHE", str(tmp_path / "file" / "cache"))
    assert kept() is None and stored("v1", PROBLEM, B200) is None


def test_the_file_says_what_it_was_found_under():
    under = json.loads(kept().read_text())["under"]
    assert {"gpu": "B200", "m_up_to": 128, "n": 256, "k": 128, "dtype": "fp16"}.items() <= under.items()
    assert {"driver", "torch", "tilus", "nvrtc", "blackwell-matmul", "source"} <= set(under)


# --- a call


def call(m=100, dtype=torch.float16):
    return (m, 256, 128, *(torch.zeros(shape, dtype=dtype) for shape in ((m, 128), (256, 128), (m, 256))))


def schedule(pins, arguments, name="v1"):
    kernel = SimpleNamespace(script_cls=rung(name), pins=pins)
    return script_calls._schedule(kernel, script_calls._tuned(kernel, arguments, B200), arguments, B200)


def test_a_call_without_pins_takes_the_winner():
    before = schedule({}, call())
    kept()
    after = schedule({}, call())
    assert PINS.items() <= after.items() and not PINS.items() <= before.items()
    assert schedule({}, call(m=300))["block_n"] == schedule({}, call(m=301))["block_n"]


def test_a_block_scaled_kernel_takes_the_winner_of_its_format():
    """As scaled_mm calls it: with bytes, and the format pinned."""
    pins, problem = {"block_n": 64, "group_m": 4}, Problem(100, 256, 128, "nvfp4")
    assert winners.keep(rung("s2"), problem, B200, {"schedule": pins}) is not None
    m, n, k, *tensors = arguments_of(problem, seed=None)
    arguments = (m, n, k, *(each.view(torch.uint8) for each in tensors[:-1]), tensors[-1])
    assert pins.items() <= schedule({"dtype": "nvfp4"}, arguments, "s2").items()
    assert schedule({"dtype": "nvfp4", "group_m": 1}, arguments, "s2")["group_m"] == 1


def test_pins_of_the_user_win():
    kept()
    assert schedule({"block_n": 128}, call())["block_n"] == 128


def test_wrong_arguments_are_told_as_ever():
    kept()
    with pytest.raises(InputError, match="a has shape"):
        schedule({}, (100, 256, 128, torch.zeros(3, 3).half(), *call()[4:]))


@pytest.mark.parametrize("arguments", [(), (1, 2, 3), ("x", None, 3, torch.zeros(2)), (1, 2, 3, torch.zeros(2).int())])
def test_any_other_call_pins_nothing(arguments):
    assert winners.pins_for_call(rung("v1"), {}, arguments, B200) == {}


def test_a_winner_of_a_form_is_for_that_form_alone():
    """In its key: what the tensors say, and the activation, which a kernel pins."""
    form = Form(b_major="n", epilogue=Epilogue(bias=True, activation="gelu"))
    problem, product = Problem(128, 256, 128, form=form), rung("blackwell")
    chosen = space.choose(product, problem, B200, {"block_n": 256}).as_dict()
    assert winners.keep(product, problem, B200, {"schedule": chosen}) is not None
    arguments = arguments_of(problem, seed=None)
    assert winners.pins_for_call(product, {"form": form}, arguments, B200) == chosen
    assert winners.pins_for_call(product, {}, arguments, B200) == {}
    assert schedule({"form": form}, arguments, "blackwell").items() >= {**chosen, "form": form}.items()
    plain = (*arguments_of(Problem(128, 256, 128), None), 0, 0, 0, 0, 1)
    assert winners.pins_for_call(product, {}, plain, B200) == {}
