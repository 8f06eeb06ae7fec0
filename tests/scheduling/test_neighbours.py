"""The schedules beside one: one thing is changed, and what follows it."""

import pytest

from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.cost_model import predicted_cycles
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.neighbours import MOST, SLOWER, neighbours
from blackwell_matmul.scheduling.rules import why_not

H3 = "block_m=64,block_n=256,block_k=64,e_block_n=64,stages=5,consumers=1"
H7 = "block_m=128,block_n=256,block_k=64,e_block_n=64,stages=4,consumers=2,group_m=16,cluster_m=1,split_k={}"
V3 = "block_m=128,block_n=256,block_k=64,e_block_n=64,stages=4"


def schedule(text: str, mma: str = "wgmma") -> Schedule:
    return Schedule(**dict(Schedule.parse(text)), mma=mma)  # type: ignore[arg-type]


def changes(of: Schedule, sizes: tuple[int, int, int], gpu: str = "H100") -> list[dict[str, int]]:
    found = neighbours(of, Problem(*sizes), GPUS[gpu])
    return [{name: value for name, value in each if dict(of)[name] != value} for some in found for each in some]


def test_two_warpgroups_have_twice_the_rows_and_the_stages_that_fit() -> None:
    assert {"block_m": 128, "consumers": 2, "stages": 4} in changes(schedule(H3), (4096, 4096, 4096))


def test_wider_k_tiles_have_as_many_stages_or_as_many_as_take_the_same_room() -> None:
    short = schedule("block_m=128,block_n=96,block_k=32,e_block_n=32,stages=4", "tcgen05")
    (change,) = (each for each in changes(short, (2048, 2048, 8192), "B200") if "block_k" in each)
    assert change in ({"block_k": 64}, {"block_k": 64, "stages": 2})


def test_fewer_parts_are_beside_many() -> None:
    assert changes(schedule(H7.format(4)), (2048, 2048, 1024))[0] == {"split_k": 1}


@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (512, 512, 512), (100, 264, 1000)])
def test_each_can_run_and_is_no_slower_than_worth_a_try(sizes: tuple[int, int, int]) -> None:
    problem, gpu = Problem(*sizes), GPUS["H100"]
    of = schedule(H7.format(2))
    found = neighbours(of, problem, gpu)
    own, *costs = (predicted_cycles(tile_config(each, problem, gpu)) for each in (of, *(some[0] for some in found)))
    assert len(found) <= MOST and costs == sorted(costs) and costs[-1] <= SLOWER * own
    assert not any(why_not(each, problem, gpu) for some in found for each in some)


def test_a_rung_without_a_knob_has_no_other_value_of_it() -> None:
    found = changes(schedule(V3, "tcgen05"), (1024, 1024, 4096), "B200")
    assert found and all(set(each) <= {"block_n", "block_k", "e_block_n", "stages"} for each in found)
