"""The ladder with one line dropped or changed: what the simulator says of it, in the default order.

First some mutants with the code that each has to give; then a seeded sample of all that `bench/mutation.py` makes,
none of which may survive unless a rule shows that it is equivalent.
"""

from __future__ import annotations

import functools
import inspect
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel_edits import DROP, edited

from blackwell_matmul import kernels
from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.harness.calls.inputs import arguments_of
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.simulator import Run, simulate
from blackwell_matmul_studies import mutation

pytestmark = pytest.mark.slow

SCHEDULES = {
    "v0": {"block_n": 64, "block_k": 32},
    "v1": {"block_n": 64, "block_k": 32, "e_block_n": 16},
    "v2": {"block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3},
    "v3": {"block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3},
    "v4": {"block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 4},
    "v5": {"block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 4},
    "v6": {"block_m": 256, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "group_m": 4},
    "s0": {"block_n": 96, "block_k": 64, "e_block_n": 16},
    "s1": {"block_n": 96, "block_k": 64, "e_block_n": 16, "stages": 3, "group_m": 4},
    "s2": {"block_n": 256, "block_k": 256, "e_block_n": 32, "stages": 3, "group_m": 4},
}
SIZES = {
    "v5": (200, 232, 136),
    "v6": (200, 232, 136),
    "s0": (200, 232, 352),
    "s1": (200, 232, 352),
    "s2": (256, 776, 800),
}
"""Of the others: 200, 72, 264. These go through several tiles."""
SAMPLE = 4
"""Generated mutants of each rung that are run here."""

READ, WRITTEN, EXIT, DEADLOCK = "read-before-complete", "overwritten-in-flight", "in-flight-at-exit", "deadlock"
OVER, PHASE, FENCE = "mbarrier-over-arrival", "wrong-phase", "missing-proxy-fence"
OVERRUN, FREED, RELAXED = "phase-overrun", "dealloc-in-flight", "relaxed-wait"
LEFT = "exit-before-peer"

EPILOGUE = [
    ("self.tcgen05.wait_load()", DROP, 0, READ),
    ("self.tcgen05.wait_load()", DROP, 0, FREED),
    ("self.tma.commit_group()", DROP, 0, WRITTEN),
    ("self.tma.commit_group()", DROP, 0, EXIT),
    ("self.tma.wait_group(", DROP, 0, WRITTEN),
    ("wait_group(n=0", "wait_group(n=1", 0, WRITTEN),
    ("self.sync()", DROP, -2, "uninitialised-read"),
    ("self.sync()", DROP, -1, "values"),
    ("self.sync()", DROP, -1, WRITTEN),
    ("self.fence.proxy_async(", DROP, 0, FENCE),
    ('space="shared"', 'space="global"', 0, FENCE),
]
MMA_BARRIER = [
    ("self.tcgen05.commit(", DROP, 0, DEADLOCK),
    ("self.mbarrier.wait(mma_barrier", DROP, 0, WRITTEN),
    ("self.mbarrier.wait(mma_barrier", DROP, 0, READ),
    ("mma_barrier = self.mbarrier.alloc(counts=1)", "mma_barrier = self.mbarrier.alloc(counts=2)", 0, DEADLOCK),
]
TMA_BARRIER = [
    ("self.mbarrier.wait(tma_barrier", DROP, 0, READ),
    ("self.mbarrier.arrive_and_expect_tx(", DROP, 0, DEADLOCK),
    ("with self.single_thread():", "with self.single_warp():", 0, OVER),
]
MUTANTS: dict[str, list[tuple[str, str, int, str]]] = {
    "v0": [
        ("self.copy_async_wait_all()", DROP, 0, READ),
        ("self.copy_async_wait_all()", DROP, 0, WRITTEN),
        ("self.tcgen05.wait_load()", DROP, 0, READ),
        ("self.fence.proxy_async(", DROP, 0, FENCE),
        ("self.sync()", DROP, 1, WRITTEN),
        ("self.sync()", DROP, -1, FREED),
        ("phase: uint32 = 0", "phase: uint32 = 1", 0, PHASE),
        ("phase ^= 1", DROP, 0, PHASE),
        ("wait(mma_barrier, phase=phase)", "wait(mma_barrier, phase=phase ^ 1)", 0, PHASE),
        *MMA_BARRIER,
    ],
    "v1": [
        ("self.sync()", DROP, 1, OVERRUN),
        ("wait(tma_barrier, phase=phase)", 'wait(tma_barrier, phase=phase, sem="relaxed")', 0, RELAXED),
        ("s_a.nbytes + s_b.nbytes", "s_a.nbytes", 0, DEADLOCK),
        ("s_a.nbytes + s_b.nbytes", "s_a.nbytes + s_b.nbytes + 16", 0, DEADLOCK),
        ("tma_barrier = self.mbarrier.alloc(counts=1)", "tma_barrier = self.mbarrier.alloc(counts=2)", 0, DEADLOCK),
        ("phase: uint32 = 0", "phase: uint32 = 1", 0, PHASE),
        ("phase ^= 1", DROP, 0, PHASE),
        ("wait(tma_barrier, phase=phase)", "wait(tma_barrier, phase=phase ^ 1)", 0, PHASE),
        *TMA_BARRIER,
        *EPILOGUE,
    ],
    "v2": [
        ("self.sync()", DROP, 1, OVERRUN),
        ("transaction_bytes=tile_bytes", "transaction_bytes=tile_bytes + 16", 0, DEADLOCK),
        ("transaction_bytes=tile_bytes", "transaction_bytes=tile_bytes - 16", 1, DEADLOCK),
        ("counts=[1 for", "counts=[2 for", 0, DEADLOCK),
        ("tma_phase: uint32 = 0", "tma_phase: uint32 = 1", 0, PHASE),
        ("mma_phase: uint32 = 0", "mma_phase: uint32 = 1", 0, PHASE),
        ("mma_phase ^= 1", DROP, 0, PHASE),
        ("tma_phase ^= stage == 0", DROP, 0, PHASE),
        ("stage = (stage + 1) % self.stages", DROP, 0, DEADLOCK),
        ("s_a[stage], s_b", "s_a[(stage + 1) % self.stages], s_b", 0, READ),
        ("dst=s_a[stage]", "dst=s_a[(stage + 1) % self.stages]", 0, WRITTEN),
        ("if next_k < k:", "if next_k <= k + self.block_k:", 0, EXIT),
        ("offset_k + self.stages * self.block_k", "offset_k + (self.stages - 1) * self.block_k", 0, "values"),
        ("self.mbarrier.arrive_and_expect_tx(", DROP, 1, DEADLOCK),
        ("with self.single_thread():", "with self.single_warp():", 1, OVER),
    ],
    "v3": [
        ("self.mbarrier.wait(empty[stage]", DROP, 0, WRITTEN),
        ("self.mbarrier.wait(full[stage]", DROP, 0, OVERRUN),
        ("self.mbarrier.wait(complete", DROP, 0, READ),
        ("self.tcgen05.commit(mbarrier=empty[stage])", DROP, 0, DEADLOCK),
        ("self.tcgen05.commit(mbarrier=complete)", DROP, 0, DEADLOCK),
        ("producer_initial_phase", "consumer_initial_phase", 0, DEADLOCK),
        ("consumer_initial_phase", "producer_initial_phase", 0, OVERRUN),
        ("wait(full[stage], phase=phase)", 'wait(full[stage], phase=phase, sem="relaxed")', 0, RELAXED),
        ("phase ^= stage == 0", DROP, 0, PHASE),
    ],
    "v4": [
        ("ring.wait_empty()", DROP, 0, WRITTEN),
        ("ring.wait_full()", "ring.wait_empty()", 0, OVERRUN),
        ("ring.advance()", DROP, 0, OVER),
        ("commit(mbarrier=ring.empty())", "commit(mbarrier=ring.full())", 0, DEADLOCK),
        ("Ring(self.stages)", "Ring(self.stages, fills=2)", 0, DEADLOCK),
    ],
    "v5": [
        ("self.responses.wait_full()", DROP, 0, READ),
        ("self.responses.wait_empty()", DROP, 0, OVERRUN),
        ("sums.wait_full()", DROP, 0, READ),
        ("sums.advance()", DROP, 0, OVERRUN),
        ("self.clc.try_cancel(", DROP, 0, DEADLOCK),
        ("warps=7, ctas=1", "warps=6, ctas=1", 0, OVERRUN),
        ("self.fence.proxy_async(", DROP, 1, FENCE),
        ("self.mbarrier.arrive(self.responses.empty())", DROP, 0, DEADLOCK),
        ("arrive(self.responses.empty())", 'arrive(self.responses.empty(), sem="relaxed")', 0, RELAXED),
        ("if not another:", "if another:", 4, "cancel-after-refusal"),
    ],
    "v6": [
        ("self.cluster.sync()", DROP, 0, "mbarrier-not-initialised"),
        ("self.cluster.sync()", DROP, -1, LEFT),
        ("self.cluster.map_shared_addr(full, target_rank=0)", "full", 0, DEADLOCK),
        ("transaction_bytes=tile_bytes", "transaction_bytes=tile_bytes // 2", 0, "too-few-bytes"),
        ("mbarrier=ring.empty(), cta_group=2, multicast_mask=0b11", "mbarrier=ring.empty(), cta_group=2", 0, DEADLOCK),
        ("mbarrier=sums.full(), cta_group=2, multicast_mask=0b11", "mbarrier=sums.full(), cta_group=2", 0, DEADLOCK),
        ("multicast=True", "multicast=False", 0, DEADLOCK),
        ("self.responses.wait_empty()", DROP, 1, WRITTEN),
        (
            "sums.empty(), transaction_bytes=0, target_rank=0",
            "sums.empty(), transaction_bytes=0, target_rank=1",
            0,
            DEADLOCK,
        ),
        ("empties=ctas * warps", "empties=warps", 0, OVER),
        ("ring.wait_full()", DROP, 0, WRITTEN),
    ],
    "s0": [
        ("self.tcgen05.copy_scales(s_scale_a, t_scale_a)", DROP, 0, "uninitialised-read"),
        ("self.tcgen05.copy_scales(s_scale_b, t_scale_b)", DROP, 0, "uninitialised-read"),
        ("first_row=offset_n % 128", "first_row=0", 0, "values"),
        ("[offset_n // 128, atom, 0, 0]", "[0, atom, 0, 0]", 0, "values"),
        ("[offset_m // 128, atom, 0, 0]", "[0, atom, 0, 0]", 0, "values"),
        (" + s_scale_b.nbytes", "", 0, DEADLOCK),
        ("self.sync()", DROP, 1, OVERRUN),
        ("phase ^= 1", DROP, 0, PHASE),
        *TMA_BARRIER,
        *MMA_BARRIER,
        *EPILOGUE,
    ],
    "s1": [
        ("scales.load(", DROP, 0, DEADLOCK),
        (" + scales.nbytes", "", 0, DEADLOCK),
        ("self.mbarrier.wait(read", DROP, 0, "order-not-promised"),
        ("self.place = self.place ^ 1", DROP, 0, "order-not-promised"),
        ("copy(ring, self.block_n)", "copy(ring, self.block_n - 4)", 0, "scales-in-accumulator"),
        ("first_row=offset_n % 128", "first_row=0", 0, "values"),
        ("ring.wait_empty()", DROP, 0, WRITTEN),
        ("ring.wait_full()", "ring.wait_empty()", 0, OVERRUN),
        ("self.tcgen05.commit(mbarrier=complete)", DROP, 0, DEADLOCK),
        ("self.mbarrier.wait(complete", DROP, 0, READ),
    ],
    "s2": [
        ("sums.wait_empty()", DROP, 0, WRITTEN),
        ("sums.loaded(e_offset_n)", DROP, 0, DEADLOCK),
        ("sums.strip(e_offset_n)", "(e_offset_n, sums.column() + e_offset_n)", 0, WRITTEN),
        ("scales.load(stage, offset_m, column * self.block_n", "scales.load(stage, offset_m, offset_n", 0, "values"),
        ("2 * scales.nbytes", "scales.nbytes", 0, DEADLOCK),
        ("2 * scales.columns)", "scales.columns)", 0, "out-of-bounds"),
        ("ring.wait_empty()", DROP, 0, WRITTEN),
        ("ring.wait_full()", DROP, 0, OVERRUN),
        ("self.cluster.sync()", DROP, -1, FREED),
    ],
}
CASES = [(name, *mutant) for name, mutants in MUTANTS.items() for mutant in mutants]


@functools.cache
def ran(*mutant: Any) -> tuple[Run, bool]:
    """Once for all that has to be said of it."""
    with tempfile.TemporaryDirectory() as folder:
        return execute(mutated(Path(folder), *mutant), mutant[0])


def mutated(folder: Path, name: str, old: str, new: str, nth: int) -> type:
    """The rung's class with the nth line of code that has `old` changed, from a file of its own."""
    cls = rung(name)
    source = Path(inspect.getfile(cls)).read_text()
    if old in source:
        return mutation.load(edited(source, [(old, new, nth)]), cls.__name__, folder)
    part, text = next(each for each in mutation.parts(source).items() if old in each[1])
    changed = mutation.with_part(source, part, edited(text, [(old, new, nth)]))
    return mutation.load(changed, cls.__name__, folder)


def execute(cls: Any, name: str, k: int | None = None) -> tuple[Run, bool]:
    """The run, and whether C is right."""
    m, n, depth = SIZES.get(name, (200, 72, 264))
    problem = Problem(m, n, k or depth, "nvfp4" if name[0] == "s" else "fp16")
    arguments = arguments_of(problem, 0)
    run = simulate(cls, *arguments, schedule=SCHEDULES[name], workers=1)
    return run, check_product(problem, arguments[3:]).ok


@pytest.mark.parametrize("name, old, new, nth, code", CASES)
def test_a_mutant_is_exposed(name: str, old: str, new: str, nth: int, code: str) -> None:
    run, right = ran(name, old, new, nth)
    if code == "values":
        assert not right
    else:
        assert code in {f.code for f in run.findings}, [str(f) for f in run.findings]


@pytest.mark.parametrize("name", MUTANTS)
def test_what_is_not_mutated_is_right(tmp_path: Path, name: str) -> None:
    first = f'"""{name[0].upper()}'
    run, right = execute(mutated(tmp_path, name, first, first, 0), name)
    assert right and not run.findings


@pytest.mark.parametrize("name", MUTANTS)
def test_memory_that_is_never_freed(tmp_path: Path, name: str) -> None:
    tensor = "t_all" if name == "s1" else "t_acc"
    with pytest.raises(CompileError, match=f"tensor memory is not deallocated before the end of the kernel: {tensor}"):
        execute(mutated(tmp_path, name, f"self.tcgen05.dealloc({tensor})", DROP, 0), name)


def test_a_prologue_that_loads_more_than_there_is(tmp_path: Path) -> None:
    """With fewer k-tiles than stages, loads that nobody waits for outlive the CTA."""
    cls = mutated(tmp_path, "v2", "min(self.stages, cdiv(k, self.block_k))", "self.stages", 0)
    run, right = execute(cls, "v2", k=40)
    assert right and run.ok and {f.code for f in run.findings} == {EXIT}


# generated


def sample() -> Iterator[tuple[mutation.Mutant, mutation.Case]]:
    draw = random.Random(2)
    for name in MUTANTS:
        for mutant in draw.sample(mutation.mutants(name), SAMPLE):
            yield mutant, draw.choice(mutation.cases(name))


@pytest.mark.parametrize("mutant, case", list(sample()), ids=str)
def test_a_generated_mutant_does_not_survive(tmp_path: Path, mutant: mutation.Mutant, case: mutation.Case) -> None:
    assert mutation.judge(mutant, case, tmp_path).verdict in ("killed", "equivalent")


@pytest.mark.parametrize("name", MUTANTS)
def test_every_statement_that_orders_something_is_mutated(name: str) -> None:
    made = mutation.mutants(name)
    source = Path(inspect.getfile(rung(name))).read_text()
    dropped = {mutant.line for mutant in made if mutant.operator == "drop"}
    for text in ("self.sync()", "self.fence.", ".wait(", ".wait_full(", ".wait_empty(", ".advance(", ".commit("):
        lines = {i for i, line in enumerate(source.splitlines(), 1) if text in line.partition("#")[0]}
        assert lines <= dropped, text
    assert all(mutant.source.count("\n") == source.count("\n") for mutant in made)


def test_what_rungs_share_is_mutated_in_one_of_them(tmp_path: Path) -> None:
    """The waits of `Ring`, in V4."""
    wait = "self.mbarrier.wait(self.full(), phase=self.phase"
    made = {mutant.operator: mutant for mutant in mutation.mutants("ring of v4") if mutant.code.startswith(wait)}
    assert set(made) >= {"drop", "other parity", "relaxed"}
    outcome = mutation.judge(made["other parity"], mutation.cases("ring of v4")[0], tmp_path)
    assert outcome.verdict == "killed" and PHASE in outcome.how


def test_the_rules_tell_a_kernel_from_one_that_orders_less(tmp_path: Path) -> None:
    """The rules' own check: they accept the kernel itself, and refuse mutants that are known to be faulty."""
    case = mutation.cases("v1")[0]
    kernel = mutation.kernel_steps("v1", case)
    assert all(holds(kernel, dict(kernel)) for holds in mutation.RULES.values())
    for line in ("self.fence.proxy_async(", "self.sync()"):
        cls = mutated(tmp_path, "v1", line, DROP, -1)
        assert not any(holds(kernel, mutation.steps(cls, case)) for holds in mutation.RULES.values()), line


PARTS = Path(inspect.getfile(kernels)).parent / "parts"


@pytest.mark.parametrize("part", sorted(file.stem for file in PARTS.glob("[a-z]*.py")))
def test_each_part_is_mutated_in_each_kernel_that_uses_it(part: str) -> None:
    named = {
        owner for name in mutation.kernels() for kind, of, owner in [name.partition(" of ")] if of and kind == part
    }
    uses = {name for name in mutation.OWN if f"parts.{part} import" in mutation.kernel_source(name)}
    assert named and uses <= named
    for name in sorted(named):
        assert mutation.mutants(f"{part} of {name}") and mutation.cases(f"{part} of {name}")


def test_the_result_has_every_part_and_nothing_survives() -> None:
    folder = Path(__file__).parents[2] / "bench" / "results"
    results = [
        json.loads((folder / f"mutation_{name}.json").read_text())
        for name in ("parts", "queue", "scaled", "geforce", "quantizers")
    ]
    names = {each["mutant"].rsplit(":", 2)[0] for result in results for each in result["mutants"]}
    # No call has their form.
    of_no_call = {"block_scales of hopper", "element_store of blackwell", "element_store of hopper"}
    parts = {each for each in mutation.kernels() if " of " in each} - of_no_call
    assert names == {*kernels.PRODUCTS, *mutation.GROUPED, *mutation.QUANTIZERS, *parts, "g1"}
    assert {verdict for result in results for verdict in result["verdicts"]} <= {"killed", "equivalent", "exception"}


@pytest.mark.parametrize("name, operator, code", [
    ("multicast of hopper", "drop", "self.mbarrier.arrive_and_expect_tx_remote(empty"),
    ("zero_padding of hopper", "drop", "self.fence.proxy_async("),
    ("grouped_raster of grouped_hopper", "one more", "self.begin = self.end"),
])  # fmt: skip
def test_a_part_is_changed_where_a_kernel_has_it(tmp_path: Path, name: str, operator: str, code: str) -> None:
    """Unchanged in its place it is right, and with one line changed it is not."""
    cls = mutation.load(mutation.whole(name, mutation.source_of(name)), mutation.kernel(name).__name__, tmp_path)
    case = mutation.cases(name)[0]
    run, right = mutation.execute(cls, case)
    assert right and not run.findings
    made = [each for each in mutation.mutants(name) if each.operator == operator and each.code.startswith(code)]
    assert made and all(mutation.judge(each, case, tmp_path).verdict == "killed" for each in made)


@pytest.mark.parametrize("exception", mutation.EXCEPTIONS, ids=" ".join)
def test_each_exception_is_of_a_mutant_that_there_is(exception: tuple[str, str, str]):
    name, operator, code = exception
    names = [each for each in mutation.kernels() if each.partition(" of ")[0] == name]
    assert any((each.operator, each.code) == (operator, code) for name in names for each in mutation.mutants(name))
