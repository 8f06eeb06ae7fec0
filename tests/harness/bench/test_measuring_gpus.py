"""Which GPUs measure: those asked for, or all of one kind; what cannot be is one sentence."""

from __future__ import annotations

import dataclasses
import types
import uuid
import warnings

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware import detect, driver
from blackwell_matmul.hardware.detect import DetectedGpu
from blackwell_matmul.harness.bench.measuring_gpus import MeasuringGpu, measuring_gpus

H200 = DetectedGpu(0, "NVIDIA H200", (9, 0), 132, 1 << 37, 232448, 1980.0, 3201.0, True, True)
H100 = dataclasses.replace(H200, name="NVIDIA H100 PCIe", sm_count=114)


@pytest.fixture
def machine(monkeypatch):
    """A machine with these GPUs."""

    def with_gpus(*gpus: DetectedGpu) -> None:
        there = tuple(dataclasses.replace(gpu, index=index) for index, gpu in enumerate(gpus))
        monkeypatch.setattr(detect, "detect", lambda: there)
        monkeypatch.setattr(detect, "alone", lambda index: {"CUDA_VISIBLE_DEVICES": f"GPU-{index}"})

    return with_gpus


def indices(asked=None) -> list[int]:
    return [gpu.index for gpu in measuring_gpus(asked)]


@pytest.mark.parametrize("asked", [None, [0]])
def test_one_gpu_needs_no_environment(machine, asked):
    machine(H200)
    assert measuring_gpus(asked) == (MeasuringGpu(0, {}),)


def test_all_of_one_kind_measure_unless_some_are_named(machine):
    machine(H200, H200, H200)
    assert indices() == [0, 1, 2] and indices((2, 1)) == [2, 1]
    assert measuring_gpus([1]) == (MeasuringGpu(1, {"CUDA_VISIBLE_DEVICES": "GPU-1"}),)


def test_another_kind_is_left_out_with_a_warning(machine):
    machine(H200, H100, H200)
    with pytest.warns(RuntimeWarning, match=r"since GPU 0 is NVIDIA H200 of 132 SMs: GPU 1 \(NVIDIA H100 PCIe\)\.$"):
        assert indices() == [0, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert indices([1]) == [1]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([0, 1], "names GPU 0, NVIDIA H200 of 132 SMs, and GPU 1, NVIDIA H100 PCIe of 114 SMs; times are compared"),
        ([0, 3], "gpus names GPU 3, and this process sees 3 GPUs, numbered from 0."),
        *((bad, r"it must be numbers of GPUs, each once") for bad in ([], "01", [0, 0], [-1], [True], 2, [None], {0})),
    ],
)
def test_what_cannot_be_is_one_sentence(machine, asked, words):
    machine(H200, H100, H200)
    with pytest.raises(InputError, match=words):
        measuring_gpus(asked)


def test_a_gpu_of_a_machine_with_one_or_none(machine):
    machine(H200)
    with pytest.raises(InputError, match="sees GPU 0 alone"):
        measuring_gpus([1])
    machine()
    with pytest.raises(InputError, match="sees no GPU"):
        measuring_gpus([0])


def test_a_process_is_told_its_gpu_by_uuid(monkeypatch):
    """Numbers would mean others in a process that has CUDA_VISIBLE_DEVICES already."""
    one = uuid.UUID("12345678-1234-5678-1234-567812345678")
    monkeypatch.setattr(driver, "call", lambda function, attempted, *of: types.SimpleNamespace(bytes=one.bytes))
    monkeypatch.setattr(driver, "device_handle", lambda device: device)
    assert detect.alone(3) == {"CUDA_VISIBLE_DEVICES": f"GPU-{one}"}
