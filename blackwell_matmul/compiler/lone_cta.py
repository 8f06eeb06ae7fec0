"""A kernel whose cluster is one CTA: what goes to the CTAs of the cluster stays at home.

A script with clusters of any size tells every CTA of a cluster that a stage is empty, and loads into all of them. Where
the cluster is one CTA, the way through the shared memory of a cluster leads back to where it began, and takes longer.
Loads and arrivals of the CTA's own mean the same: with them HopperMatmulV6, whose clusters were of one CTA then, was as
fast as HopperMatmulV5, on an H200 from 2048 up (bench/results/h200_ladder.json). Nothing that orders anything changes:
the same threads tell the same barriers the same, with the same semantics and scope, and `Program.lone_cta` says when it
is so.
"""

from __future__ import annotations

import re

_MAPA = re.compile(r"mapa\.shared::cluster\.u32 (%\d+), (%\d+), %\d+;")
"""The address of the same variable in another CTA (PTX, "mapa"). Here: (result, address)."""

_ARRIVAL = re.compile(r"(mbarrier\.arrive\S*)\.shared::cluster\.")

_MULTICAST = re.compile(
    r"setp\.ne\.u32 __pred, (%\d+), 0;(.*cp\.async\.bulk\.tensor.*)\.multicast::cluster (.*), (%\d+);\}"
)
"""A load for the CTAs in a mask (PTX, "cp.async.bulk.tensor"). Here: (leader or not, load, operands, mask)."""


def at_home(template: str) -> str:
    """An asm statement that means the same in a cluster of one CTA, of rank 0. A mask without it is still no load."""
    template = _MAPA.sub(r"mov.u32 \1, \2;", template)
    template = _ARRIVAL.sub(r"\1.shared::cta.", template)
    leader_in_mask = r".reg .b32 __own; cvt.u32.u16 __own, \4; and.b32 __own, __own, \1; "
    return _MULTICAST.sub(leader_in_mask + r"setp.ne.u32 __pred, __own, 0;\2 \3;}", template)
