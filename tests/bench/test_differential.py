"""The differential run without its GPU: its cases, how it resumes, what a broken process costs, what differs."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

GPU = Path(__file__).resolve().parents[2] / "bench" / "gpu"
sys.path[:0] = [str(GPU), str(Path(__file__).parent)]

import comparing  # noqa: E402
import differential  # noqa: E402
import explanations  # noqa: E402
import fake_launches  # noqa: E402
import records  # noqa: E402
from cases import case_of, known  # noqa: E402
from cases.made import TYPES, edges, few_edges, values  # noqa: E402
from explanations import EXACT, Bound  # noqa: E402

FMA = explanations.Bound("one ulp", lambda pairs: pairs.ulps() <= 1)
ANY = explanations.Bound("anything", lambda pairs: pairs.ulps() <= 1e9)

SAMPLE = (
    "cast/float32/int8/4", "cast/float6_e3m2/bfloat16/8", "cast/float32/float6_e3m2/8",
    "unary/exp/float16", "binary/lt/int32/float16", "rung/h0/fp16/0",
    "reduce/sum/float16/1/4/32x64", "scalar/sub/int32/uint32", "loop/bound_down", "tma/load/float32/3/2",
    "tma/store/int32/2/2",
    "dot/float16/float32/16x8x16/1/third", "program/int32/7/",
)  # fmt: skip


def sampled(beginning: str) -> str:
    return next(key for key in known() if key.startswith(beginning))


def test_there_are_thousands_of_cases_in_every_family() -> None:
    counts = Counter(case.family for case in known().values())
    assert sum(counts.values()) > 7000
    assert {"cast", "unary", "binary", "reduce", "scalar", "loop", "copy", "shared", "tma", "dot", "wgmma", "group",
            "program", "rung", "script"} <= set(counts)  # fmt: skip


def test_a_key_is_a_word_for_a_shell() -> None:
    assert all(set(key) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") for key in known())


@pytest.mark.slow
@pytest.mark.parametrize("beginning", SAMPLE)
def test_a_case_simulates_and_compiles(beginning: str) -> None:
    row = comparing.compare(lambda step: None, sampled(beginning), gpu=False)
    assert row["outcome"] == "no-gpu", row
    assert row["launches"] >= 1 and row["times"]["compile"] > 0


def test_a_case_is_the_same_whenever_it_is_made() -> None:
    key = sampled("program/float32/3/")
    one, other = case_of(key).make(), case_of(key).make()
    assert one.text == other.text
    assert all(
        torch.equal(a.view(torch.uint8), b.view(torch.uint8))
        for a, b in zip(one.launches[1][1:], other.launches[1][1:])
    )


def test_a_shorter_program_is_the_beginning_of_a_longer_one() -> None:
    short, long = (case_of(f"program/int32/5/{count}").make().text.split("self.sync()\n")[0] for count in (3, 8))
    assert long.startswith(short.rstrip().rsplit("\n", 1)[0])


def test_operands_have_the_edge_values() -> None:
    assert torch.equal(values(TYPES["int32"], 300)[: len(edges(TYPES["int32"]))], edges(TYPES["int32"]))
    assert len(set(values(TYPES["float8_e4m3"], 512).view(torch.uint8).tolist())) == 256


# --- what is different


def outcome(ours: torch.Tensor, theirs: torch.Tensor, bound: Bound = EXACT) -> str:
    return comparing.outcome_of([ours], [theirs], [], bound, False)["outcome"]


def test_outcomes() -> None:
    x = torch.tensor([1.0, 2.0, float("nan")])
    near = x * torch.tensor([1 + 2**-23, 1.0, 1.0])
    other_nan = x.view(torch.int32).bitwise_or(1).view(torch.float32)
    other_nan[:2] = x[:2]
    assert outcome(x, x.clone()) == "equal"
    assert outcome(x, near) == "DIFFERENT"
    assert outcome(x, near, FMA) == "rounding"
    assert outcome(x, x + 1, FMA) == "DIFFERENT"
    assert outcome(x, other_nan) == "nan-bits"
    assert outcome(x, torch.tensor([1.0, float("inf"), 0.0]), ANY) == "DIFFERENT"
    assert outcome(torch.tensor([0.0]), torch.tensor([-0.0])) == "DIFFERENT"
    assert outcome(torch.tensor([1, 2]), torch.tensor([1, 3]), ANY) == "DIFFERENT"


def test_a_write_around_a_tensor_is_a_difference_and_a_finding_excuses() -> None:
    x = torch.zeros(4)
    assert comparing.outcome_of([x], [x], [0], EXACT, False)["outside"] == [0]
    assert comparing.outcome_of([x], [x + 1], [], EXACT, True)["outcome"] == "finding"


def test_both_values_are_told() -> None:
    row = comparing.difference(torch.tensor([7, 1]), torch.tensor([7, -1]), EXACT)
    assert row["at"] == [1] and row["simulated"][0].startswith("1 (0x") and row["gpu"][0].startswith("-1 (0xf")


def judged(bound: Bound, ours: torch.Tensor, theirs: torch.Tensor, *arguments: Any) -> str:
    return comparing.outcome_of([ours], [theirs], [], bound, False, (), arguments)["outcome"]


def test_unsigned_numbers_and_a_type_that_the_kernel_views() -> None:
    for kind in (torch.uint16, torch.uint32, torch.uint64):
        assert outcome(torch.tensor([1, 2], dtype=kind), torch.tensor([1, 3], dtype=kind)) == "DIFFERENT"
    ours, theirs = (
        torch.tensor([value, 0], dtype=torch.int32).view(torch.uint64) for value in (0x7FC00000, 0x7FFFFFFF)
    )
    assert outcome(ours, theirs) == "DIFFERENT"
    assert comparing.outcome_of([ours], [theirs], [], EXACT, False, [torch.float32])["outcome"] == "nan-bits"


def test_the_kernel_says_in_which_type_its_result_is() -> None:
    for key, kind in (
        ("add/int8/float16", torch.float16),
        ("lt/int32/int8", torch.bool),
        ("mul/uint8/int16", torch.int32),
    ):
        made = case_of(f"binary/{key}").make()
        assert comparing.types_of(made.kernel(), made.launches[0], made)[2] == kind


def test_a_contraction_rounds_once() -> None:
    x = torch.tensor([1 / 3, 0.1, -1.0], dtype=torch.float32)
    unfused, fused = x * x + x, (x.double() * x.double() + x.double()).float()
    assert not torch.equal(unfused, fused)
    assert judged(explanations.SQUARE_AND_ITSELF, unfused, fused, x) == "rounding"
    beyond = torch.nextafter(fused, torch.full_like(fused, 9.0))
    assert judged(explanations.SQUARE_AND_ITSELF, unfused, beyond, x) == "DIFFERENT"
    # element 5 * 512 + 511 of i * 3e9 - j: 15e9 - 511, where 15e9 alone is a tie that goes up
    ours, theirs = (torch.zeros(6 * 512, dtype=torch.int64) for _ in range(2))
    ours[-1], theirs[-1] = 15000000512, 14999999488
    assert judged(explanations.index_times_scalar(512), ours, theirs, 3e9) == "rounding"
    theirs[-1] -= 1024
    assert judged(explanations.index_times_scalar(512), ours, theirs, 3e9) == "DIFFERENT"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_rounding_of_exact_values_is_that_of_torch(dtype: torch.dtype) -> None:
    some = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1000
    assert [explanations.rounded(Fraction(float(each)), dtype) for each in some] == some.to(dtype).double().tolist()
    assert explanations.rounded(Fraction(10) ** 400, dtype) == float("inf")
    assert explanations.rounded(Fraction(2) ** -149, torch.float32) == 0.0


def test_exponentials_divisions_and_sums_of_bytes_have_bounds_of_their_own() -> None:
    x = torch.tensor([80.0, 0.5])
    y = x.exp()
    assert judged(explanations.EXPONENTIAL, y, y * torch.tensor([1 + 40 * 2**-23, 1.0]), x) == "rounding"
    assert judged(explanations.EXPONENTIAL, y, y * torch.tensor([1.0, 1 + 40 * 2**-23]), x) == "DIFFERENT"
    quotient = torch.tensor([5 / 3], dtype=torch.float32)
    assert judged(explanations.SCALAR_DIVISION, quotient.double(), (quotient * (1 + 2**-23)).double()) == "rounding"
    assert judged(explanations.SCALAR_DIVISION, quotient.double(), quotient.double() * (1 + 2**-30)) == "DIFFERENT"
    a = torch.ones(1, 32)
    for off, expected in ((2**-12 * 32, "rounding"), (2**-11 * 32, "DIFFERENT")):
        assert judged(explanations.BYTE_SUMS, torch.zeros(1), torch.tensor([off]), a, a) == expected


def test_all_pairs_of_few_edges_fit_a_tile() -> None:
    assert all(len(few_edges(kind)) <= 22 for kind in TYPES.values() if not kind.packed)
    assert (
        few_edges(TYPES["int8"]).tolist()[:2] == [-128, -127] and few_edges(TYPES["uint64"]).view(torch.int64)[-1] == -1
    )


# --- launches, on a GPU that is the simulator


def test_a_launch_gets_the_arguments_of_the_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = fake_launches.install(monkeypatch)
    row = comparing.compare(lambda step: None, "script/primitives/GemmTile", gpu=True)
    assert row["outcome"] == "equal" and len(launched[0].plan.parameters) < len(launched[0].named)


def test_what_differs_without_a_contraction_is_different(monkeypatch: pytest.MonkeyPatch) -> None:
    key = sampled("program/float32/3/")
    fake_launches.install(monkeypatch, lambda tensors: tensors[0].neg_(), compiled=False)
    assert comparing.compare(lambda step: None, key, gpu=True)["outcome"] == "DIFFERENT"
    monkeypatch.undo()
    first = iter([True])  # the first launch alone is changed, as by a contraction, which the second is compiled without
    launched = fake_launches.install(
        monkeypatch, lambda tensors: tensors[0].neg_() if next(first, False) else None, compiled=False
    )
    row = comparing.compare(lambda step: None, key, gpu=True)
    assert row["outcome"] == "rounding" and "--fmad=false" in row["why"] and len(launched) == 3


def test_a_copy_that_stops_a_gpu_is_not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = fake_launches.install(monkeypatch, compiled=False)
    broken = [key for key in known() if key.startswith("tma/broken/")]
    row = comparing.compare(lambda step: None, broken[0], gpu=True)
    assert len(broken) == 10 and not launched
    assert row["outcome"] in ("finding", "DIFFERENT") and (row["outcome"] == "finding") == ("findings" in row)


def test_the_other_tensor_copies_begin_where_a_gpu_takes_them() -> None:
    for key in [key for key in known() if key.startswith("tma/") and "broken" not in key][::7]:
        _, side, kind, rank, _ = key.split("/")
        for place in (launch[: int(rank)] for launch in case_of(key).make().launches):
            assert place[-1] * TYPES[kind].nbits % 128 == 0 and (side == "load" or min(place) >= 0), key


def test_a_record_holds_the_simulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = ("binary/mul/float32/int8", "unary/neg/int16", "cast/float16/int8/4", "unary/abs/boolean")
    fake_launches.install(monkeypatch, lambda tensors: tensors[-1].view(torch.uint8)[3, 3].add_(1), compiled=False)
    wrong = comparing.compare(lambda step: None, keys[1], gpu=True, record=True)
    monkeypatch.undo()
    fake_launches.install(monkeypatch, compiled=False)
    rows = [comparing.compare(lambda step: None, key, gpu=True, record=True) for key in keys]
    assert records.write(tmp_path / "r.json.gz", rows, "none") == 4 - (rows[3]["outcome"] in records.NOT_RUN)
    cases = records.read(tmp_path / "r.json.gz")["cases"]
    assert not any(records.against(key, record)["worse"] for key, record in cases.items())
    cases[keys[1]]["launches"] = wrong["recorded"]
    assert wrong["outcome"] == "DIFFERENT" and records.against(keys[1], cases[keys[1]])["worse"]


# --- the run


@pytest.mark.process
def test_a_process_that_dies_or_hangs_costs_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    run = differential.Run(tmp_path / "rows.jsonl", False, 1, time.monotonic() + 500, limit_s=2.0)
    run.run(["a", "dies", "b", "hangs", "c"], "breaking_cases:breaking")
    rows = {row["key"]: row for row in differential.rows_in(tmp_path / "rows.jsonl")}
    assert [rows[key]["outcome"] for key in ("a", "b", "c")] == ["equal"] * 3
    assert rows["dies"]["outcome"] == rows["hangs"]["outcome"] == "error"
    assert rows["dies"]["at"] == "launch" and "code 3" in rows["dies"]["sentence"] and rows["hangs"]["hung"]


def test_what_is_recorded_has_a_file_of_its_own(tmp_path: Path) -> None:
    run = differential.Run(tmp_path / "rows.jsonl", False, 1, time.monotonic() + 500, limit_s=60.0, record=True)
    run._keep({"key": "cast/a", "outcome": "equal", "recorded": [{"1": "00"}]})
    assert differential.rows_in(tmp_path / "rows.jsonl") == [{"key": "cast/a", "outcome": "equal"}]
    assert differential.rows_in(tmp_path / differential.COMPUTED)[0]["recorded"] == [{"1": "00"}]
    assert run._options("cast/a") == {"record": True} and run._options("loop/range") == {}


def test_a_second_run_does_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"key": "a", "outcome": "equal"}\n{"key": "b", "outcome": "no-gpu"}\n{"key": "c", "outc')
    assert sorted(differential.missing(["a", "b", "c"], file, gpu=False)) == ["c"]
    assert sorted(differential.missing(["a", "b", "c"], file, gpu=True)) == ["b", "c"]


def test_a_run_out_of_time_starts_nothing(tmp_path: Path) -> None:
    run = differential.Run(tmp_path / "rows.jsonl", False, 2, time.monotonic() - 1, limit_s=2.0)
    run.run(["a", "b"], "breaking_cases:breaking")
    assert differential.rows_in(tmp_path / "rows.jsonl") == []


def test_the_summary_groups_by_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanations, "RULES", ((r"DIFFERENT cast/", "casts are known"),))
    rows = [
        {"key": "cast/a/b", "outcome": "DIFFERENT", "simulated": ["1"], "gpu": ["2"]},
        {"key": "loop/x", "outcome": "DIFFERENT"},
        {"key": "loop/y", "outcome": "equal", "launches": 3},
        {"key": "unary/z", "outcome": "finding", "findings": ["overflow"]},
    ]
    found = differential.summary(rows, [row["key"] for row in rows], "none", 1.0)
    assert found["outcomes"] == {"DIFFERENT": 2, "equal": 1, "finding": 1} and found["launches"] == 3
    assert set(found["differences"]["DIFFERENT"]) == {"casts are known", explanations.UNEXPLAINED}
    assert found["differences"]["DIFFERENT"]["casts are known"]["first"][0]["gpu"] == ["2"]
    assert set(found["differences"]["finding"]) == {"finding: overflow"}
    json.dumps(found)
