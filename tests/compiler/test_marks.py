"""Kernels that write when their instructions begin and end: compiled, executed by the emulator, read, and held against
the prediction, which has the same instructions (`compiler/marks.py`, `harness/timelines.py`).
"""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from compiler_samples import lowered, rung_bundle, rung_program

import blackwell_matmul.simulator.semantics  # noqa: F401, describes the instructions
from blackwell_matmul import Bundle, Timeline, compile, emulate, measured_timeline, timeline_buffer, trace
from blackwell_matmul.base.errors import CompileError, InputError
from blackwell_matmul.compiler import marks
from blackwell_matmul.compiler.source import lower
from blackwell_matmul.harness.compiled import mark_names
from blackwell_matmul.simulator.description import DESCRIPTIONS
from blackwell_matmul.simulator.trace.recorder import WAITS

OTHER_WARPS = f"{WAITS}other warps"
MARKS = mark_names()

SAMPLES = {
    "h0": (64, 128, 192),
    "h2": (100, 64, 192),
    "h7": (72, 128, 320),
    "v2": (128, 64, 192),
    "v6": (128, 64, 192),
    "g0": (64, 64, 192),
}
COMPARED = {
    *("cp.async.bulk.tensor (load)", "cp.async.bulk.tensor (store)", "wgmma.mma_async", "tcgen05.mma", "store_shared"),
    *("mbarrier.arrive.expect_tx", "mbarrier.arrive.expect_tx (remote)", "fence.proxy.async", "mbarrier.wait"),
}
"""What a prediction draws whenever it is executed; of waits it shows those alone that take time."""


def operands(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=made).half() for rows in (m, n))
    return a, b, torch.full((m, n), torch.nan, dtype=torch.float16)


@functools.cache
def emulated(name: str, order: str = "late") -> tuple[Bundle, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The bundle with marks, C of a kernel without and of one with them, and the buffer."""
    m, n, k = SAMPLES[name]
    a, b, c = operands(m, n, k)
    plain, marked = (compile(name, m, n, k, a, b, c, timeline=each) for each in (None, 511))
    arguments = plain.ordered(m=m, n=n, k=k, a_ptr=a, b_ptr=b)
    emulate(plain, *arguments, c, order=order, seed=3)
    with_marks = torch.full_like(c, torch.nan)
    buffer = timeline_buffer(marked, *arguments, with_marks)
    emulate(marked, *arguments, with_marks, buffer, order=order, seed=3)
    return marked, c, with_marks, buffer


def by_warp(timeline: Timeline, barriers: set[str]) -> dict[str, list[tuple[str, str]]]:
    """For each warp of the first CTA what it executes, and at which line, in its order."""
    found = defaultdict(list)
    for each in timeline.events:
        waited = each.name.removeprefix(WAITS)
        name = "mbarrier.wait" if timeline.measured and waited in barriers else each.name
        if "warp " in each.track and name in COMPARED and each.detail.startswith("CTA (0, 0, 0)"):
            found[each.track.split(": ")[-1]].append((name, each.line))
    return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_the_product_is_the_same_bit_for_bit(name: str) -> None:
    _, c, with_marks, _ = emulated(name)
    assert not c.isnan().any() and torch.equal(c, with_marks)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_a_warp_executes_one_instruction_after_the_other(name: str) -> None:
    bundle, *_, buffer = emulated(name)
    found = measured_timeline(bundle, buffer)
    assert found.measured and not found.predicted and "emulated" in found.title and found.title.endswith(": measured")
    until: dict[str, float] = {}
    for each in found.events:
        assert until.get(each.track, -1) < each.start_cycles < each.end_cycles <= found.end_cycles
        until[each.track] = each.end_cycles
    assert until and set(until) <= set(found.tracks)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_warp_does_lies_within_its_cta(name: str) -> None:
    bundle, *_, buffer = emulated(name)
    found = measured_timeline(bundle, buffer)
    ctas = {each.name: each for each in found.events if each.track.endswith("CTA")}
    assert ctas and all(each.detail in ctas for each in found.events if each.detail)
    for each in found.events:
        within = ctas[each.detail or each.name]
        assert within.start_cycles <= each.start_cycles < each.end_cycles <= within.end_cycles


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_each_warp_executes_what_the_prediction_says_in_its_order(name: str) -> None:
    bundle, *_, buffer = emulated(name)
    pins = {knob: value for knob, value in bundle.schedule.items() if knob not in ("dtype", "sm_count")}
    predicted = trace(name, *SAMPLES[name], schedule=pins)
    assert bundle.marks is not None
    barriers = {each for _, each in bundle.marks.barriers}
    executed = by_warp(measured_timeline(bundle, buffer), barriers)
    assert executed and executed == by_warp(predicted, barriers)


@pytest.mark.slow
def test_an_order_by_chance_has_the_same_instructions() -> None:
    bundle, _, c, buffer = emulated("h7")
    other, _, same, shuffled = emulated("h7", "random")
    assert torch.equal(c, same) and bundle.key == other.key and bundle.marks is not None
    barriers = {each for _, each in bundle.marks.barriers}
    first, second = (by_warp(measured_timeline(bundle, each), barriers) for each in (buffer, shuffled))
    assert first == second and not torch.equal(buffer, shuffled)


def test_waits_name_their_mbarriers() -> None:
    bundle, *_, buffer = emulated("h7")
    found = measured_timeline(bundle, buffer)
    waits = {each.name.removeprefix(WAITS) for each in found.events if each.name.startswith(WAITS)}
    tiles, stages = 320 // bundle.schedule["block_k"], bundle.schedule["stages"]
    assert {f"ring.full_barriers[{i}]" for i in range(min(tiles, stages))} < waits
    assert {f"ring.empty_barriers[{i}]" for i in range(stages)} < waits
    assert "mbarrier" not in waits and "wgmma.mma_async" in waits


def test_names_are_those_of_the_prediction() -> None:
    described = {each.name for each, _ in DESCRIPTIONS.values()}
    marked = [each for each, _ in DESCRIPTIONS.values() if each.mark]
    assert {each.mark for each in marked if each.name == "sync"} == {OTHER_WARPS}
    for each in marked:
        if each.mark.startswith(WAITS):
            assert each.mark in (OTHER_WARPS, f"{WAITS}mbarrier") or each.mark.removeprefix(WAITS) in described
            assert each.waits
        else:
            assert each.name.startswith(each.mark)


# --- without marks


def test_code_without_marks_has_nothing_of_them() -> None:
    program = rung_program("h2")
    before = str(program.lowered)
    with_marks, made = marks.marked(program, 64, MARKS)
    assert made.marks and with_marks.params[-1][0] == marks.PARAMETER
    assert str(program.lowered) == before and marks.PARAMETER not in dict(program.params)
    assert str(lower(program).module) == str(lowered(program).module)
    bundle = rung_bundle("h2")
    assert bundle.marks is None and not any("timeline" in text for text in (bundle.source, bundle.ptx))


@pytest.mark.slow
def test_code_without_marks_is_the_same_after_code_with_them() -> None:
    args = operands(64, 64, 64)
    first = compile("h1", 64, 64, 64, *args, cache=False)
    marked = compile("h1", 64, 64, 64, *args, cache=False, timeline=64)
    again = compile("h1", 64, 64, 64, *args, cache=False)
    assert first == again and (first.cubin, first.key) != (marked.cubin, marked.key)
    assert compile("h1", 64, 64, 64, *args, timeline=64) == marked


# --- what is saved, and what is refused


def test_a_bundle_keeps_its_marks(tmp_path: Path) -> None:
    bundle, *_ = emulated("h2")
    assert Bundle.load(bundle.save(tmp_path / "with")) == bundle
    plain = rung_bundle("h2")
    assert Bundle.load(plain.save(tmp_path / "without")) == plain
    assert '"marks"' not in (tmp_path / "without" / "bundle.json").read_text()


def test_rows_begin_at_multiples_of_16_bytes() -> None:
    made = marks.marked(rung_program("h2"), 7, MARKS)[1]
    assert made.events == 8 and (marks.HEADER_BYTES + marks.RECORD_BYTES * made.events) % 16 == 0


def test_a_kernel_that_writes_a_buffer_starts_after_the_one_before_it() -> None:
    m, n, k = SAMPLES["h2"]
    values = [m, 16, 32, 48]
    assert compile("h2", m, n, k).plan.evaluate(values).early_start
    assert not compile("h2", m, n, k, timeline=64).plan.evaluate([*values, 64]).early_start


@pytest.mark.parametrize("records", [0, -1, 2.0, True, "64", marks.MOST_RECORDED_EVENTS + 1])
def test_how_many_records(records: Any) -> None:
    with pytest.raises(InputError, match=r"timeline is .*; it must be how many records a warp may write, from 1 to"):
        compile("h2", 64, 64, 64, timeline=records)


def test_a_parameter_of_that_name() -> None:
    program = rung_program("h2")
    taken = replace(program, params=(("timeline", program.params[0][1]), *program.params[1:]))
    with pytest.raises(CompileError, match=r"has a parameter timeline already"):
        marks.marked(taken, 64, MARKS)


@pytest.mark.slow
def test_rows_that_are_too_short_say_how_long_they_must_be() -> None:
    m, n, k = 64, 64, 256
    a, b, c = operands(m, n, k)
    short = compile("h2", m, n, k, a, b, c, timeline=10)
    buffer = timeline_buffer(short, m, a, b, c)
    emulate(short, m, a, b, c, buffer)
    with pytest.raises(InputError, match=r"had (\d+) records .* holds 10; compile with timeline=\1\.") as told:
        measured_timeline(short, buffer)
    enough = compile("h2", m, n, k, a, b, c, timeline=int(str(told.value).rstrip(".").split("=")[1]))
    buffer = timeline_buffer(enough, m, a, b, c)
    emulate(enough, m, a, b, c, buffer)
    assert measured_timeline(enough, buffer).events


# --- groups of threads


@pytest.mark.parametrize(
    ("outer", "threads", "begin", "has"),
    [
        (128, 32, "0", True), (128, 32, "16", False), (128, 32, "elect_any", True), (128, 48, "0", False),
        (128, 1, "0", True), (32, 1, "elect_any", True), (1, 1, "0", True), (128, 4, "0", False), (4, 1, "0", False),
        (0, 1, "0", False),
    ],
)  # fmt: skip
def test_which_groups_have_marks(outer: int, threads: int, begin: str, has: bool) -> None:
    assert marks._has_marks(outer, threads, begin) is has
