"""Each fitted constant says what it means, and what it was fitted to."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from blackwell_matmul.base.data_files import entries, read
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.scheduling.cost_model import CUT_ROWS_TRAITS, FIT
from blackwell_matmul.scheduling.fit import CLOSED_FORM, FITS, UNALIGNED_ROWS

ROOT = Path(__file__).resolve().parents[2]
NOT_KEPT = {"late_ns"}
"""Constants whose measurements were not kept."""


def test_a_fitted_constant_names_its_file_its_gpu_and_its_day() -> None:
    assert {*FITS.iterdir()} == {CLOSED_FORM, UNALIGNED_ROWS}
    found = entries(CLOSED_FORM, read(CLOSED_FORM)) | entries(UNALIGNED_ROWS, read(UNALIGNED_ROWS))
    fitted = {name: each for name, each in found.items() if each.how == "fitted"}
    assert len(fitted) == 28 and all(each.means.endswith(".") for each in found.values())
    for name, each in fitted.items():
        assert each.taken and each.gpu and {*each.gpu.split(", ")} <= {*GPUS}, name
        assert name in NOT_KEPT or all((ROOT / file).is_file() for file in each.file.split(", ")), name
    assert not any(fitted[name].file for name in NOT_KEPT)


def test_a_constant_has_the_type_of_its_field() -> None:
    """A whole number where the cost model counts: an exponent of 4.0 would round otherwise than one of 4."""
    whole = {field.name for field in dataclasses.fields(FIT) if field.type == "int"}
    assert {name for name in whole if type(getattr(FIT, name)) is not int} == set()
    assert type(FIT.norm) is int and len(CUT_ROWS_TRAITS) == 20
