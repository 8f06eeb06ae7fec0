"""Nothing of a CTA that shares nothing goes the way through its cluster; of one that is a cluster, what would."""

from __future__ import annotations

import re

import pytest
from compiler_samples import rung_bundle

from blackwell_matmul.compiler import lone_cta

pytestmark = pytest.mark.slow

LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"


def load(name: str) -> str:
    """The product has a matrix for each batch."""
    return LOAD.replace("2d", "3d") if name == "hopper" else LOAD


@pytest.mark.parametrize("name", ["h6", "h7", "hopper"])
def test_a_cta_that_shares_nothing_keeps_to_itself(name: str) -> None:
    lone = {"h6": {}, "h7": {"split_k": 1}, "hopper": {"cluster_n": 1, "split_k": 1}}[name]
    ptx = rung_bundle(name, block_m=64, block_n=64, cluster_m=1, **lone).ptx
    assert not re.search(r"mapa|multicast|arrive\S*\.shared::cluster", ptx)
    assert ptx.count(load(name).replace("::cluster", "::cta")) >= 2
    assert re.search(r"mbarrier\.arrive\S*\.release\.cta\.shared::cta", ptx)


@pytest.mark.parametrize(
    ("name", "pins"), [("h6", {"cluster_m": 2}), ("h7", {"cluster_m": 2, "split_k": 2}), ("hopper", {"cluster_n": 2})]
)
def test_a_cluster_talks(name: str, pins: dict[str, int]) -> None:
    ptx = rung_bundle(name, block_m=64, block_n=64, **pins).ptx
    assert "mapa.shared::cluster" in ptx and f"{load(name)}.multicast::cluster" in ptx


def test_a_mask_without_the_cta_is_no_load() -> None:
    load = f"{LOAD}.multicast::cluster [%0], [%1, {{%2, %3}}], [%4], %5;"
    template = f"{{.reg.pred __pred; setp.ne.u32 __pred, %6, 0; @__pred {load}}}"
    assert lone_cta.at_home(template) == (
        "{.reg.pred __pred; .reg .b32 __own; cvt.u32.u16 __own, %5; and.b32 __own, __own, %6; "
        f"setp.ne.u32 __pred, __own, 0; @__pred {LOAD} [%0], [%1, {{%2, %3}}], [%4];}}"
    )


@pytest.mark.parametrize("template", ["wgmma.fence.sync.aligned;", f"{LOAD} [%0], [%1, {{%2, %3}}], [%4];"])
def test_what_does_not_leave_the_cta_stays(template: str) -> None:
    assert lone_cta.at_home(template) == template
