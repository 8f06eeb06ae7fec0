"""Products of DTensors, and of parts that travel, in processes of gloo on the CPU, with the simulator as the kernel."""

from __future__ import annotations

import importlib
import socket

import pytest
import torch
import torch.multiprocessing as processes

pytest.importorskip("tilus")

from sharded_work import run

PARTS_TRAVEL = [
    f"overlap_work.{name}"
    for name in ("gathers", "scatters", "the_first_product_waits_for_nobody", "a_part_travels_before_the_last_product")
]
ALSO = [
    f"overlap_work.{name}"
    for name in ("gradients_of_gathers", "gradients_of_scatters", "frozen_operands", "what_does_not_fit", "the_bench")
]
IMPORTED = ("torch.distributed.fsdp", "torch.distributed.tensor.parallel", "overlap_work")
"""Here once, and not again in each of the processes."""


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.mark.process
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch was built without gloo")
@pytest.mark.parametrize(
    ("world", "names"),
    [
        (
            2,
            [
                "every_placement",
                "every_placement_without_options",
                "batches_and_extras",
                "tensor_parallel",
                "fully_sharded",
                *PARTS_TRAVEL,
                *ALSO,
            ],
        ),
        (4, ["two_dimensions", *PARTS_TRAVEL[1:]]),
    ],
)
def test_products_in_a_group(world: int, names: list[str]) -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    processes.start_processes(run, (world, free_port(), names), world, start_method="fork")
