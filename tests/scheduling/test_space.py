"""The autotune space: projections, and the choice of a schedule."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpus import GPUS, Gpu
from blackwell_matmul.kernels import KERNELS, rung
from blackwell_matmul.kernels.host.matmul import MatmulScript
from blackwell_matmul.problem.form import Form
from blackwell_matmul.problem.problem import MMAS, Problem, Schedule, features_of
from blackwell_matmul.scheduling import space
from blackwell_matmul.scheduling.cost_model import predicted_cycles, resident_ctas
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER
from blackwell_matmul.scheduling.mma import MMA_SPECS, spec_of, tile_config
from blackwell_matmul.scheduling.rules import PROBLEM_RULES, broken, has_plain_strips, why_no_mma, why_not
from blackwell_matmul.scheduling.space import choose, knobs_of, projection

B200, B300, H200 = GPUS["B200"], GPUS["B300"], GPUS["H200"]
NAMES = tuple(name for name in KERNELS if name not in ("few", *BLOCK_SCALED_LADDER))
GPU_OF = {name: {"v": B200, "b": B200, "h": H200, "g": GPUS["RTX 5090"]}[name[0]] for name in NAMES}
ODD = Problem(1000, 200, 136)
"""Tails in m, n and k, and 16-byte rows."""


def test_a_projection_has_each_schedule_once_and_only_the_knobs() -> None:
    counts = {"v0": 21, "v1": 72, "v2": 720, "v6": 2880}
    counts |= {"h0": 42, "h2": 1080, "h3": 1320, "h4": 5280, "h6": 10920, "h7": 15960, "hopper": 40480}
    for name, count in (counts | {"g0": 1080, "g1": 270}).items():
        schedules = projection(rung(name))
        assert len(schedules) == len(set(schedules)) == count
        assert all(tuple(schedule.as_dict()) == rung(name).knobs for schedule in schedules)


def test_a_projection_has_only_parts_that_share_the_strips_and_fit_in_a_cluster() -> None:
    schedules = projection(rung("hopper"))
    assert all(s.block_n // s.e_block_n >= s.split_k for s in schedules)
    assert all(s.cluster_m * s.cluster_n * s.split_k <= 8 for s in schedules)
    assert {s.group_m for s in schedules if s.split_k > 1} == {16}
    shared_and_split = {*itertools.product((1, 2), (1, 2, 4, 8)), (4, 1)} - {(2, 8)}
    assert {(s.cluster_m, s.split_k) for s in schedules} == shared_and_split
    alone = {s for s in schedules if s.split_k == 1 and not s.swap_ab}
    in_order = [s for s in schedules if s.neighbours == 1]
    assert {(s.split_k, s.cluster_m, s.cluster_n) for s in in_order} == {(1, 1, 1)}
    assert {s.group_m for s in in_order if (s.block_n or 0) <= 176} == {4}
    assert {s.group_m for s in in_order if (s.block_n or 0) > 176} == {16}
    small = {schedule for schedule in alone if schedule.block_m < 64 or schedule.block_n < 64}
    plain = {schedule for schedule in alone if schedule.e_block_n not in (16, 32, 64)}
    h6, none = rung("h6").features, {"split_k": None, "swap_ab": None, "cluster_n": None, "neighbours": None}
    above = {s for s in alone - small - plain if (s.cluster_n, s.neighbours) == (1, 2) and s.consumers < 3}
    swizzled = {dataclasses.replace(s, **none, features=h6) for s in above if s.block_k <= 64}
    assert swizzled == set(projection(rung("h6")))
    assert all(schedule.block_n == schedule.e_block_n for schedule in plain)
    assert {schedule.block_n for schedule in plain} == {48, 80, 112, 144, 176}
    assert {(s.consumers, s.group_m, s.cluster_m, s.cluster_n) for s in small} == {(1, 16, 1, 1), (1, 1, 1, 1)}
    assert {s.block_k for s in small} == {64, 128}
    assert {s.block_m for s in small} == {16, 32, 64} and {16, 32, 48} < {s.block_n for s in small}


def test_what_is_computed_transposed_has_any_multiple_of_8_rows_of_c() -> None:
    swapped = [schedule for schedule in projection(rung("hopper")) if schedule.swap_ab]
    assert {schedule.block_n for schedule in swapped} == set(range(64, 257, 8))
    assert {(s.split_k, s.cluster_m, s.block_m // s.consumers) for s in swapped} == {(1, m, 64) for m in (1, 2, 4)}
    strips = {schedule.block_n: schedule.e_block_n for schedule in swapped if schedule.consumers < 3}
    assert strips.items() >= {64: 64, 104: 104, 120: 40, 136: 136, 176: 88, 208: 104, 248: 248, 256: 64}.items()


def test_clusters_that_share_a_and_three_warpgroups_have_one_way_each() -> None:
    schedules = projection(rung("hopper"))
    beside = [s for s in schedules if s.cluster_n > 1]
    assert {(s.cluster_m, s.cluster_n) for s in beside} == {*itertools.product((1, 2), (2, 4))}
    assert {(s.split_k, s.neighbours, s.group_m) for s in beside} == {(1, 2, 16)}
    assert {(s.block_k, s.consumers) for s in beside} == {(64, 1), (64, 2), (64, 3), (128, 3)}
    assert min(s.block_m for s in beside) == min(s.block_n for s in beside) == 64
    three = [s for s in schedules if s.consumers == 3]
    assert {(s.block_m, s.block_k, s.split_k) for s in three} == {(192, 64, 1), (192, 128, 1)}
    assert {s.block_n for s in three if s.block_k == 64} == set(range(64, 193, 8))
    assert {s.block_n for s in three if s.block_k == 128} == {96, 128}
    assert max(s.e_block_n for s in three if s.swap_ab and s.block_n % 16 == 0) <= 56


def test_projections_nest() -> None:
    lower = {dataclasses.replace(schedule, e_block_n=None) for schedule in projection(rung("h1"))}
    assert lower == set(projection(rung("h0")))


def test_a_projection_has_only_tiles_that_its_mma_computes() -> None:
    assert {schedule.block_m for schedule in projection(rung("v2"))} == {128}
    assert {schedule.block_m for schedule in projection(rung("h2"))} == {64, 128}
    assert all(schedule.block_m == 64 * schedule.consumers for schedule in projection(rung("h3")))
    assert all(schedule.block_n % schedule.e_block_n == 0 for schedule in projection(rung("v1")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v1", "blackwell", "h2", "h4", "g0"])
def test_a_projection_is_all_combinations_that_the_rules_leave_in_the_order_of_the_knobs(name: str) -> None:
    cls = rung(name)
    rows = (dict(zip(cls.knobs, values)) for values in itertools.product(*(space.SPACE[knob] for knob in cls.knobs)))
    mma = MMA_SPECS[cls.mma]
    tiles = (row for row in rows if mma.in_space(row, cls.features) and space._fills_its_cluster(row))
    left = [row for row in tiles if space._has_strips(row, has_plain_strips(mma, cls.features))]
    expected = [Schedule(**row, mma=cls.mma, features=cls.features) for row in left]
    assert list(projection(cls)) == expected
    assert [each.kernel_features for each in projection(cls)] == [each.kernel_features for each in expected]


def test_a_projection_takes_knob_names() -> None:
    assert projection(("block_n", "block_m")) == projection(("block_n", "block_m", "block_n"))
    assert projection(("e_block_n",)) == ()  # no tile has strips
    with pytest.raises(InputError, match="knob 'warps' is not in the space"):
        projection(("warps",))


# --- the choice


PAIRS: dict[str, Any] = {"neighbours": 2, "mma": "wgmma"}
CHOSEN: list[tuple[str, tuple[int, int, int], Schedule]] = [
    ("v0", (8192, 8192, 8192), Schedule(128, 256, 64)),  # the widest tile moves the fewest bytes
    ("v1", (2048, 2048, 2048), Schedule(128, 128, 64, 64)),  # one stage: two CTAs an SM, as good as four of 64 columns
    ("v1", (1024, 1024, 1024), Schedule(128, 64, 64, 64)),  # no tile gives every SM one: the most SMs, the least each
    ("v1", (4096, 72, 16), Schedule(128, 64, 16, 64)),  # no larger than n and k need
    ("v2", (8192, 8192, 8192), Schedule(128, 256, 64, 64, 2)),  # two CTAs of two stages: epilogues beside products
    ("v2", (2048, 2048, 64), Schedule(128, 128, 64, 64, 2)),  # one k-tile fills no ring; two CTAs an SM at once
    ("h2", (8192, 8192, 8192), Schedule(128, 192, 64, 64, 2, mma="wgmma")),  # one warpgroup holds no wider tile
    ("h5", (8192, 8192, 8192), Schedule(128, 256, 64, 64, 4, 2, 16, mma="wgmma")),  # of others shared memory holds some
    ("hopper", (8192, 8192, 8192), Schedule(128, 256, 64, 64, 4, 2, 16, 2, 1, 1, swap_ab=0, **PAIRS)),  # half of B
    (
        "hopper",
        (1024, 8192, 8192),
        Schedule(128, 256, 64, 64, 4, 2, 16, 1, 1, 1, 1, 0, mma="wgmma"),
    ),  # fewer rows of tiles
    ("h6", (2048, 2048, 2048), Schedule(128, 256, 64, 64, 4, 2, 16, 2, mma="wgmma")),  # 128 tiles for 132 SMs
    ("h6", (1024, 1024, 1024), Schedule(64, 128, 64, 64, 8, 1, 4, 1, mma="wgmma")),  # as many; measured best
    ("h6", (8192, 8192, 4096), Schedule(128, 256, 64, 64, 4, 2, 16, 2, mma="wgmma")),  # each half of B
    ("h6", (128, 6144, 4096), Schedule(64, 96, 64, 32, 10, 1, 16, 1, mma="wgmma")),  # 128 tiles
    ("h7", (8192, 8192, 8192), Schedule(128, 256, 64, 64, 4, 2, 16, 2, split_k=1, mma="wgmma")),  # each half of B
    (
        "hopper",
        (512, 3584, 3584),
        Schedule(128, 112, 64, 112, 6, 2, 4, 1, 1, 1, 1, 0, mma="wgmma"),
    ),  # four rows, one strip
    (
        "hopper",
        (512, 1536, 7168),
        Schedule(64, 96, 64, 32, 10, 1, 4, 1, 1, 1, 1, 0, mma="wgmma"),
    ),  # the L2 gives squares
    ("hopper", (399, 5440, 7488), Schedule(128, 136, 64, 136, 5, 2, 4, 1, 1, 1, 1, 1, mma="wgmma")),  # 3 x 136 rows
    ("hopper", (512, 1536, 2056), Schedule(128, 64, 64, 64, 8, 2, 16, 2, 4, 1, 2, 0, mma="wgmma")),  # eight share rows
    ("hopper", (619, 6288, 1896), Schedule(192, 160, 64, 40, 4, 3, 16, 1, 2, 1, 2, 1, mma="wgmma")),  # in one round
    ("g0", (4096, 4096, 4096), Schedule(64, 64, 64, 64, 2, mma="mma.sync")),  # the tensor cores hold all tiles alike
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sizes", "expected"), CHOSEN)
def test_the_choice(name: str, sizes: tuple[int, int, int], expected: Schedule) -> None:
    chosen = choose(rung(name), Problem(*sizes), GPU_OF[name])
    assert chosen == dataclasses.replace(expected, features=rung(name).features)


@pytest.mark.parametrize("name", ["v0", "h0"])
def test_the_last_rows_whose_offsets_have_32_bits_have_a_schedule(name: str) -> None:
    """The next multiple of 64 rows has none."""
    assert choose(rung(name), Problem(65535, 32768, 32), GPU_OF[name])


def test_the_order_that_predicts_few_is_the_order_of_preference() -> None:
    problem = Problem(1024, 768, 1024)
    by_stages = sorted(projection(rung("hopper"))[::53], key=lambda each: -each.stages)
    groups: dict[object, list[Schedule]] = {}
    for each in by_stages:
        groups.setdefault(space._all_but_ring_and_order(each), []).append(each)
    some = [schedule for group in groups.values() for schedule in group]
    in_order = sorted(some, key=lambda each: space.preference(each, tile_config(each, problem, H200)))
    assert len(some) > len(groups) and list(space._by_preference([*groups.values()], problem, H200)) == in_order


@pytest.mark.parametrize(("m", "n", "k"), [(1, 32000, 4096), (4, 151936, 2048), (2, 14336, 4096), (16, 128256, 4096)])
def test_few_rows_have_a_tile_of_few_rows_however_many_columns(m: int, n: int, k: int) -> None:
    """A transposed tile would load rows of zeros in each k-tile (bench/results/h200_thin.json)."""
    found = choose(rung("hopper"), Problem(m, n, k, "bf16"), H200)
    assert (found.block_m, found.swap_ab) == (16, 0)


def test_a_short_k_has_its_own_tile_where_c_is_large() -> None:
    def tile(m: int, n: int, k: int, batches: int) -> tuple[int | None, ...]:
        found = choose(rung("hopper"), Problem(m, n, k, "bf16", batches=batches), H200)
        return found.block_m, found.block_n, found.e_block_n, found.neighbours

    assert tile(2048, 2048, 128, 64) == tile(512, 512, 64, 128) == tile(16384, 16384, 128, 1) == space.SHORT_K_TILE
    assert space.SHORT_K_TILE not in (tile(512, 512, 64, 8), tile(2048, 2048, 256, 64))


def test_many_numbers_of_rows_are_chosen_for_at_once() -> None:
    """Those that fill tiles alike; what does not fit this very m is still refused."""
    product, by_m = rung("hopper"), Form(a_major="m")
    walks = space._first_that_runs.cache_info().misses
    assert len({choose(product, Problem(m, 768, 4096), H200) for m in range(4097, 4161)}) == 1
    assert space._first_that_runs.cache_info().misses <= walks + 1
    assert choose(product, Problem(1, 768, 4096), H200) != choose(product, Problem(2**31 - 1, 768, 4096), H200)
    assert choose(product, Problem(4088, 768, 4096, form=by_m), H200)
    with pytest.raises(InputError, match="M = 4089"):
        choose(product, Problem(4089, 768, 4096, form=by_m), H200, {"block_n": 128})


def test_a_split_tile_can_be_pinned_to_any_order_of_the_tiles() -> None:
    problem, pins = Problem(128, 4096, 4096), {"split_k": 2, "group_m": 4}
    chosen = choose(rung("h7"), problem, H200, pins)
    assert chosen == dataclasses.replace(choose(rung("h7"), problem, H200, {"split_k": 2}), group_m=4)


def test_a_choice_is_made_once_for_each_rung_problem_gpu_and_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [
        (name, problem, gpu) for name in ("v2", "v3") for problem in (ODD, Problem(8, 8, 8)) for gpu in (B200, B300)
    ]
    pins = [{}, {"block_n": 64}, {"block_n": 64, "stages": 2}]
    chosen = [choose(rung(name), problem, gpu, each) for name, problem, gpu in asked for each in pins]
    weighed: list[tuple[Problem, object]] = []
    monkeypatch.setattr(
        space, "preference", lambda schedule, tile: weighed.append((tile.problem, tile.gpu)) or (0,) * 3
    )
    assert [choose(rung(name), problem, gpu, each) for name, problem, gpu in asked for each in pins] == chosen
    assert not weighed
    choose(rung("v2"), ODD, dataclasses.replace(B200, sm_count=1))
    assert {sm.sm_count for _, sm in weighed} == {1}


def test_a_pin_that_only_equals_a_number_is_refused_after_that_number() -> None:
    assert choose(rung("h6"), ODD, H200, {"cluster_m": 1}).cluster_m == 1
    with pytest.raises(InputError, match="cluster_m = True is outside"):
        choose(rung("h6"), ODD, H200, {"cluster_m": True})


def test_a_gpu_that_no_schedule_can_run_on_is_named_once() -> None:
    with pytest.raises(InputError) as caught:
        choose(rung("v1"), Problem(64, 64, 64), H200)
    assert str(caught.value).startswith("BlackwellMatmulV1 cannot run: sm_90a (H100, H200) has no tcgen05 instructions")
    assert str(caught.value).count("H200") == 1


UNABLE = [
    Problem(1, 1, 1),
    Problem(64, 64, 511),
    Problem(64, 60, 64),
    Problem(64, 64, 64, "e4m3"),
    Problem(64, 64, 64, form=Form(a_major="m")),
]
"""Problems that one rung or another computes by no schedule."""


@pytest.mark.parametrize("problem", UNABLE, ids=str)
@pytest.mark.parametrize("name", list(KERNELS))
def test_what_no_schedule_can_run_is_refused_before_any_is_predicted(
    name: str, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a few of the schedules all have the reasons that are told."""
    gpu, schedules = GPU_OF.get(name, B200), projection(rung(name))
    reasons = broken(PROBLEM_RULES, schedules[0], problem, gpu)
    for other in schedules[:: max(1, len(schedules) // 50)]:
        assert broken(PROBLEM_RULES, other, problem, gpu) == reasons
        assert set(reasons) <= set(why_not(other, problem, gpu))
    if not reasons:
        return
    monkeypatch.setattr(space, "predicted_cycles", None)
    monkeypatch.setattr(space, "why_not", None)
    with pytest.raises(InputError) as caught:
        choose(rung(name), problem, gpu)
    assert all(reason.rstrip(".") in str(caught.value) for reason in reasons)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
@pytest.mark.parametrize("name", list(KERNELS))
def test_a_kernel_that_a_gpu_cannot_run_is_refused_with_all_that_it_can(name: str, gpu: Gpu) -> None:
    every = {each: rung(each) for each in KERNELS}
    specs = {each: spec_of(cls.mma, cls.features) for each, cls in every.items()}
    able = {each for each, spec in specs.items() if spec.gpu_feature in gpu.features}
    if name in able:
        assert why_no_mma(specs[name], gpu) is None and gpu.arch in every[name].targets
        return
    with pytest.raises(InputError) as caught:
        choose(rung(name), Problem(64, 64, 64, "nvfp4" if "scaled" in rung(name).features else "fp16"), gpu)
    others = [each.name for each in GPUS.values() if each.arch == gpu.arch]
    assert f"cannot run: {gpu.arch} ({', '.join(others)}) has no " in str(caught.value)
    said = str(caught.value).rpartition(f", and the kernels for {gpu.arch} are ")[2].rstrip(".").split(", ")
    assert set(said) == able and len(said) == len(able)


def test_a_partial_pin_restricts_the_choice() -> None:
    problem = Problem(8192, 8192, 8192)
    assert choose(rung("v2"), problem, B200, {"block_n": 64}) == Schedule(128, 64, 64, 16, 2)
    assert choose(rung("v2"), problem, B200, {"stages": 6}) == Schedule(128, 160, 64, 32, 6)  # short rows cost the L2
    narrow = [schedule for schedule in projection(rung("v1")) if not why_not(schedule, problem, B200)]
    for schedule in narrow:
        assert choose(rung("v1"), problem, B200, schedule.as_dict()) == schedule
    assert len(narrow) == 54


@pytest.mark.parametrize(
    ("pins", "problem", "message"),
    [
        ({"block_n": 80}, ODD, "block_n = 80 is outside of the space; block_n can be 64, 96, 128, .*, 256"),
        ({"block_n": "128"}, ODD, "block_n = '128' is outside"),
        ({"block_m": 64}, ODD, "block_m = 64 is outside of the space; block_m can be 128"),
        ({"block_n": 96, "e_block_n": 64}, ODD, "e_block_n = 64: strips must fill block_n = 96"),
        ({"warps": 4}, ODD, "BlackwellMatmulV2 has no knob 'warps'; its knobs are block_m"),
        (
            {"block_n": 256, "block_k": 64, "stages": 6},
            ODD,
            "None of 3 schedules of BlackwellMatmulV2 can run 1000x200x136 .*232448",
        ),
        ({}, Problem(64, 64, 511), "None of 720 schedules of BlackwellMatmulV2 can run .*pad K to 512"),
    ],
)
def test_pins_that_leave_nothing_say_why(pins: dict[str, object], problem: Problem, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose(rung("v2"), problem, B200, pins)


# --- rungs that are not in the ladders


class Clustered:
    """Clusters without a persistent kernel."""

    mma = "wgmma"
    features = ("tma", "ring", "specialised", "clusters")
    knobs = knobs_of(features, mma)


class Specialised:
    """Warps that specialise, without a choice of how many multiply."""

    features = ("tma", "ring", "specialised")
    knobs = knobs_of(features, "tcgen05")


def test_the_knobs_of_a_rung_follow_from_its_features() -> None:
    assert Clustered.knobs == ("block_m", "block_n", "block_k", "e_block_n", "stages", "consumers", "cluster_m")
    assert Specialised.knobs == rung("v2").knobs
    for name in NAMES:
        assert set(rung(name).features) >= set(features_of(rung(name).knobs))
        assert rung(name).knobs == knobs_of(rung(name).features, rung(name).mma)


def test_clusters_go_without_a_persistent_kernel() -> None:
    problem = Problem(256, 4096, 4096)
    chosen = choose(Clustered, problem, H200, {"cluster_m": 2, "stages": 2, "block_n": 64})
    assert chosen.group_m is None and not why_not(chosen, problem, H200)
    tile = tile_config(chosen, problem, H200)
    assert tile.cluster_ctas == 2 and tile.strip_buffers == 1 and resident_ctas(tile) > 1
    assert why_not(dataclasses.replace(chosen, features=None), problem, H200) == [
        "group_m is not set; a schedule with cluster_m has it."  # nobody says so: it is one of the ladder's
    ]


def test_warps_specialise_without_a_knob_for_it() -> None:
    problem = Problem(2048, 2048, 2048)
    chosen = choose(Specialised, problem, B200, {"block_n": 256, "block_k": 32, "stages": 8})
    tile, plain = (tile_config(each, problem, B200) for each in (chosen, dataclasses.replace(chosen, features=None)))
    assert (tile.barriers, plain.barriers) == (17, 9)
    assert predicted_cycles(tile) < predicted_cycles(plain)


def test_a_rung_with_odd_features_is_refused() -> None:
    odd = type("Odd", (Specialised,), {"features": ("magic",)})
    with pytest.raises(InputError, match="features names 'magic'; the features are tma"):
        projection(odd)


def test_a_subclass_that_names_its_knobs_has_their_features() -> None:
    knobs = ("block_m", "block_n", "block_k", "e_block_n", "stages")
    mine = type("Mine", (MatmulScript,), {"knobs": knobs})
    assert mine.features == ("tma", "ring") and mine.knobs == knobs
    assert projection(mine) == projection(rung("v2"))


def test_each_mma_has_a_spec() -> None:
    assert tuple(MMA_SPECS) == MMAS
