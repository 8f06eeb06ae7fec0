"""The table of GPUs: identity, limits, features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blackwell_matmul import predict
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.frontend import target_for
from blackwell_matmul.frontend.faults.tilus_compat import target, target_names
from blackwell_matmul.hardware.gpus import (
    FEATURES,
    GPUS,
    OTHER_NAMES,
    OTHER_TARGETS,
    Gpu,
    board,
    by_name,
    gpu_for_target,
    gpu_named,
    target_named,
)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
def test_each_gpu_agrees_with_tilus(gpu: Gpu) -> None:
    assert gpu.arch in target_names()
    with target(gpu.arch) as known:
        assert known.properties.compute_capability == gpu.compute_capability
        assert known.properties.shared_memory_per_block == gpu.shared_memory_per_block_bytes


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
def test_each_gpu_is_consistent(gpu: Gpu) -> None:
    assert gpu.features <= set(FEATURES)
    assert ("tcgen05" in gpu.features) == (gpu.tensor_memory_columns == 512)
    assert ("wgmma" in gpu.features) == (gpu.arch == "sm_90a")
    assert gpu.shared_memory_per_block_bytes == gpu.shared_memory_per_sm_bytes - 1024
    assert GPUS[gpu.name] is gpu


def test_a_board_goes_by_the_name_that_its_driver_gives_it_and_a_smaller_one_does_not() -> None:
    found = replace(GPUS["H100"], name="H100 80GB HBM3")
    assert board(found) is GPUS["H100"] and board(GPUS["RTX 5090"]) is GPUS["RTX 5090"]
    assert board(replace(found, sm_count=114)) is None and board(replace(found, name="H1000")) is None
    assert predict("h1", 256, 256, 256, gpu=found, explained=False).gpu == "H100"


@pytest.mark.parametrize(
    ("arch", "name"),
    [("sm_100a", "B200"), ("sm_103a", "B300"), ("sm_90a", "H100"), ("sm_120a", "RTX 5090"), ("sm_121a", "GB10")],
)
def test_a_gpu_stands_for_each_target(arch: str, name: str) -> None:
    assert gpu_for_target(arch) is GPUS[name]


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
def test_a_gpu_is_named_by_itself_or_by_its_target(gpu: Gpu) -> None:
    assert gpu_named(gpu.name) is gpu_named(gpu.name.lower()) is by_name(gpu.name) is gpu
    assert target_named(gpu.name) == target_named(gpu.arch) == target_for(object(), gpu.name) == gpu.arch
    assert gpu_named(gpu.arch) is gpu_for_target(gpu.arch)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_a_gpu_without_figures_is_named_as_a_target(name: str) -> None:
    arch = OTHER_NAMES[name]
    assert target_named(name) == target_named(name.lower()) == target_for(object(), name) == arch
    with pytest.raises(
        InputError, match=rf"'{name}' \({arch}\), of which only the target is known here; it must be a GPU"
    ):
        gpu_named(name)


def test_the_targets_are_those_of_tilus() -> None:
    assert sorted((*OTHER_TARGETS, *{gpu.arch for gpu in GPUS.values()})) == sorted(target_names())
    assert target_named("sm_80") == "sm_80"


@pytest.mark.parametrize("text", ["H20", "", None, 7])
def test_any_other_name_is_refused_with_those_that_work(text: Any) -> None:
    with pytest.raises(InputError, match=r"it must be a GPU \(B200, .*H200.*\) or a target \(sm_100a, .*sm_90a"):
        gpu_named(text)


def test_an_unknown_target_names_those_that_work() -> None:
    with pytest.raises(InputError, match=r"target is 'sm_42'; .*sm_100a.*sm_90a"):
        gpu_for_target("sm_42")
