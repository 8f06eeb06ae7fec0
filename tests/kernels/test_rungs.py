"""The ladder as text and as programs: the rungs stay close to one another and keep their synchronisation."""

from __future__ import annotations

import difflib
import inspect
import itertools
import subprocess
import sys

import pytest
import tilus

import blackwell_matmul
from blackwell_matmul import kernels
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.frontend.bind import Bound
from blackwell_matmul.frontend.build import build
from blackwell_matmul.frontend.recording import instructions
from blackwell_matmul.kernels import KERNELS, NAMES, OLD_NAMES, RUNGS, known_rung, rung
from blackwell_matmul.scheduling.space import SPACE, projection


def code(name: str) -> list[str]:
    """The lines of a kernel without comments, docstrings and indentation."""
    lines = [line.strip() for line in inspect.getsource(rung(name)).splitlines()]
    return [line for line in lines[2:] if line and not line.startswith("#")]


MOST = 60
"""Most lines of code that a rung changes, drops or adds, in every ladder. This limit is frozen: it is not raised."""

WITH_SCALES = [("v1", "s0"), ("v4", "s1"), ("v6", "s2")]
"""A rung, and the same with block scales."""

STEPS = [
    *((lower, upper) for lower, upper in itertools.pairwise(RUNGS) if lower[0] == upper[0] != "s"),
    *WITH_SCALES,
]


@pytest.mark.parametrize(("lower", "upper"), STEPS)
def test_a_rung_changes_few_lines_of_the_one_below(lower: str, upper: str) -> None:
    changed = [line for line in difflib.ndiff(code(lower), code(upper)) if line[0] in "+-"]
    assert len(changed) <= MOST, "\n".join(changed)


def test_sections_come_in_one_order() -> None:
    sections = [
        "# The grid",
        "# On-chip memory",
        "# Barriers",
        "# Prologue",
        "# Main loop",
        "# Epilogue",
        "# Tensor memory",
    ]
    for name in RUNGS:
        text = inspect.getsource(rung(name))
        found = [text.index(section) for section in sections if section in text]
        assert found == sorted(found)
        assert len(found) == len(sections) - (name != "v2") or name[0] != "v"


def test_knobs_are_the_parameters() -> None:
    for name in KERNELS.keys() - {"few"}:
        parameters = list(inspect.signature(rung(name).__init__).parameters)
        fixed = ["sm_count"] if "persistent" in rung(name).features else []
        fixed += ["queue"] if "queue" in rung(name).features else []
        fixed += ["by_element", "form"] if "forms" in rung(name).features else []
        fixed += ["c_dtype", "types"] if "scaled" in rung(name).features else []
        assert parameters == ["self", "dtype", *rung(name).knobs, *fixed]
        assert set(rung(name).knobs) <= set(SPACE)


def test_an_unknown_rung_names_all_that_are_known() -> None:
    with pytest.raises(InputError) as raised:
        rung("gemvv")
    listed = str(raised.value).removeprefix("rung is 'gemvv'; the rungs are ").removesuffix(".").split(", ")
    assert listed == list(NAMES) and {"v0", "h7", "g1", "few", "gemv"} <= set(listed)
    assert all(rung(name).__module__ == home.partition(":")[0] for name, home in NAMES.items())


def test_an_old_name_is_that_of_the_product() -> None:
    """Wherever a name is looked up; the class by its old name is the class."""
    assert OLD_NAMES == {
        "v7": "blackwell", "h8": "hopper", "BlackwellMatmulV7": "BlackwellMatmul", "HopperMatmulV8": "HopperMatmul",
    }  # fmt: skip
    assert (known_rung("v7"), known_rung("H8")) == ("blackwell", "hopper") and rung("h8") is rung("hopper")
    for old, new in OLD_NAMES.items():
        if old not in ("v7", "h8"):
            assert getattr(blackwell_matmul, old) is getattr(blackwell_matmul, new) is getattr(kernels, old)
            assert old not in blackwell_matmul.__all__
    found = [str(blackwell_matmul.schedules(name, 256, 256, 256)) for name in ("v7", "blackwell")]
    assert found[0] == found[1]


@pytest.mark.process
def test_the_registry_imports_nothing_heavy() -> None:
    code = "import sys, blackwell_matmul.scheduling.space; assert not {'torch', 'tilus'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("dtype", [tilus.float16, tilus.bfloat16])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v0", {"CopyAsyncInst": 2, "FenceProxyAsync": 1, "WaitBarrierInst": 1, "Tcgen05WaitInst": 1}),
        ("v1", {"CopyAsyncTensorGlobalToSharedInst": 2, "FenceProxyAsync": 1, "WaitBarrierInst": 2}),
        ("v2", {"CopyAsyncTensorGlobalToSharedInst": 4, "FenceProxyAsync": 1, "WaitBarrierInst": 2}),
        ("v3", {"CopyAsyncTensorGlobalToSharedInst": 2, "Tcgen05CommitInst": 2, "WaitBarrierInst": 3}),
        ("v4", {"CopyAsyncTensorGlobalToSharedInst": 2, "Tcgen05CommitInst": 2, "WaitBarrierInst": 3}),
    ],
)
def test_what_a_program_is_made_of(name: str, expected: dict[str, int], dtype: tilus.DataType) -> None:
    knobs = projection(rung(name))[0].as_dict()
    bound = Bound(
        script_cls=rung(name),
        init_kwargs={"dtype": dtype, **knobs},
        args=(),
        consts={"n": 72, "k": 40},
        kernel_args={"m": 5, "a_ptr": 0, "b_ptr": 0, "c_ptr": 0},
        divisibility={"m": 1},
    )
    names = [type(inst).__name__ for inst in instructions(build(bound, "sm_100a").tile)]
    assert {key: names.count(key) for key in expected} == expected
    assert all(inst.sem == "acquire" for inst in instructions(build(bound, "sm_100a").tile) if hasattr(inst, "phase"))
