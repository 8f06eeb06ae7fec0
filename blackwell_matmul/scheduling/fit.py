"""Constants of the cost model that are fitted to measured times.

The files of fits/ have the values, with their meanings, units and measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from blackwell_matmul.base.data_files import entries, filled, read

FITS = Path(__file__).parent / "fits"
CLOSED_FORM, UNALIGNED_ROWS = FITS / "closed_form.toml", FITS / "unaligned_rows.toml"


@dataclass(frozen=True)
class Fit:
    """Constants of fits/closed_form.toml, which has their meanings."""

    out_of_step: float
    part_of_a: float
    few_rows: int
    few_columns: int
    part_of_many: float
    in_order: float
    in_order_drift: float
    late_ns: float
    early_weights: int
    early_products: int
    drift_bytes: float
    neighbours_part: float
    norm: float
    plain_strips: float
    narrow_rows: float
    narrow_row_bytes: int
    release_cycles: float
    outside_part: float
    many_outside: int
    zero_row_cycles: float
    turn_cycles: float
    deep_ring_cycles: float
    held_up: float
    lone_sums_cycles: float
    block_scales_cycles: float
    three_warpgroups: float
    large_clusters: Mapping[str, float]
    usual_registers: int


def closed_form() -> Fit:
    """Return the constants of the closed form."""
    values = {name: entry.value for name, entry in entries(CLOSED_FORM, read(CLOSED_FORM)).items()}
    return filled(Fit, CLOSED_FORM, values)


def cut_rows_traits() -> Mapping[str, float]:
    """Return the factors on predicted cycles for rows that begin within L2 lines, by `cost_model.traits`."""
    factors: Mapping[str, float] = entries(UNALIGNED_ROWS, read(UNALIGNED_ROWS))["cut_rows_traits"].value
    return factors
