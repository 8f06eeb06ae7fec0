"""How much memory a run takes, held against what a run took, and how much is available, on made-up machines."""

from pathlib import Path

import pytest

from blackwell_matmul import InputError, Problem
from blackwell_matmul.harness import make_inputs
from blackwell_matmul.harness.calls import host_memory
from blackwell_matmul.harness.calls.host_memory import MARGIN, available_bytes, run_bytes

KIB, MIB, GIB = 2**10, 2**20, 2**30


@pytest.mark.parametrize(
    ("size", "measured_mib"),
    [
        ((16384, 128, 2048), 474),
        ((128, 16384, 2048), 705),
        ((8192, 8192, 8), 300),
    ],
)
def test_a_run_takes_no_more_than_is_counted(size: tuple[int, int, int], measured_mib: int) -> None:
    """measured_mib: of `run v1` in two processes, above what it takes at 128x128x64."""
    counted = MARGIN * run_bytes(Problem(*size)) / MIB
    assert measured_mib <= counted <= 2 * measured_mib


def test_every_matrix_and_batch_is_counted() -> None:
    held = 2 * (3 * 64 * 16 + 3 * 32 * 16 + 3 * 64 * 32)
    assert run_bytes(Problem(64, 32, 16, batches=3)) > held == Problem(64, 32, 16, batches=3).bytes
    large = run_bytes(Problem(10**5, 10**5, 8))
    assert large >= 2 * 2 * 10**10  # C, and the copy that the processes share


class Machine:
    """Its /proc and its control groups, as files of text."""

    def __init__(self, folder: Path, available_kib: int | None = 64 * 2**20) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"
        left = "" if available_kib is None else f"MemAvailable:   {available_kib} kB\n"
        self.write(self.proc / "meminfo", f"MemTotal:       99999999 kB\nMemFree:  12 kB\n{left}")

    def write(self, file: Path, text: object) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(text))

    def v2(self, path: str, most: object, taken: int, files: int = 0) -> "Machine":
        folder = self.groups / path
        self.write(folder / "memory.max", f"{most}\n")
        self.write(folder / "memory.current", f"{taken}\n")
        self.write(folder / "memory.stat", f"anon 1\ninactive_file {files}\n")
        return self

    def v1(self, path: str, most: object, taken: int, files: int = 0) -> "Machine":
        folder = self.groups / "memory" / path
        self.write(folder / "memory.limit_in_bytes", f"{most}\n")
        self.write(folder / "memory.usage_in_bytes", f"{taken}\n")
        self.write(folder / "memory.stat", f"inactive_file 7\ntotal_inactive_file {files}\n")
        return self

    def inside(self, *lines: str) -> "Machine":
        self.write(self.proc / "self" / "cgroup", "".join(f"{line}\n" for line in lines))
        return self

    @property
    def available(self) -> int | None:
        return available_bytes(self.proc, self.groups)


def test_what_is_free_or_can_be_freed_counts_not_what_is_built_in(tmp_path: Path) -> None:
    assert Machine(tmp_path, 5 * KIB).available == 5 * MIB


def test_a_container_of_v2(tmp_path: Path) -> None:
    machine = Machine(tmp_path).inside("0::/").v2("", 4 * GIB, 3 * GIB, GIB // 2)
    assert machine.available == 3 * GIB // 2


def test_a_limit_of_a_group_above(tmp_path: Path) -> None:
    machine = Machine(tmp_path).inside("0::/user.slice/job/step").v2("user.slice/job/step", "max", GIB)
    assert machine.available == 64 * GIB
    assert machine.v2("user.slice/job", 8 * GIB, 2 * GIB).available == 6 * GIB


def test_a_group_whose_path_the_container_does_not_have(tmp_path: Path) -> None:
    assert Machine(tmp_path).inside("0::/docker/0123").v2("", 2 * GIB, GIB).available == GIB


@pytest.mark.parametrize("controllers", ["memory", "hugetlb,memory"])
def test_a_container_of_v1(tmp_path: Path, controllers: str) -> None:
    lines = f"9:{controllers}:/docker/0123", "3:cpu:/docker/0123", "0::/"
    machine = Machine(tmp_path).inside(*lines).v1("docker/0123", 4 * GIB, GIB, GIB // 4)
    assert machine.available == 13 * GIB // 4


def test_a_group_above_its_limit_has_nothing_left(tmp_path: Path) -> None:
    assert Machine(tmp_path).inside("0::/").v2("", GIB, 2 * GIB).available == 0


def test_what_cannot_be_read_limits_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path).inside("nonsense", "0::", "0::/x")
    machine.write(machine.groups / "x" / "memory.max", "many")
    assert machine.available == 64 * GIB
    assert isinstance(available_bytes(tmp_path / "none", tmp_path / "none"), int)  # all that there is


def test_what_does_not_fit_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(1024, 1024, 1024)
    need = MARGIN * run_bytes(problem)
    monkeypatch.setattr(host_memory, "available_bytes", lambda: int(need) + 1)
    assert make_inputs(problem)[2].shape == (1024, 1024)
    monkeypatch.setattr(host_memory, "available_bytes", lambda: int(need) - 1)
    with pytest.raises(InputError, match=r"1024x1024x1024 fp16 takes about .* GiB left; choose a smaller size\."):
        make_inputs(problem)
