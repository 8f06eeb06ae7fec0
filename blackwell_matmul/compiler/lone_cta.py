"""Kernels with a cluster of one CTA: remote arrivals and multicast loads become local.

A script for clusters of any size signals every CTA of a cluster that a stage is empty, and loads into all CTAs. In a
cluster of one CTA, local loads and arrivals mean the same and are faster. The order is unchanged: the same threads
signal the same barriers, with the same semantics and scope. `Program.lone_cta` is True if a kernel qualifies.
"""

from __future__ import annotations

import re

_MAPA = re.compile(r"mapa\.shared::cluster\.u32 (%\d+), (%\d+), %\d+;")
"""Pattern of `mapa`, which returns the address of the same variable in another CTA. Groups: result, address."""

_ARRIVAL = re.compile(r"(mbarrier\.arrive\S*)\.shared::cluster\.")

_MULTICAST = re.compile(
    r"setp\.ne\.u32 __pred, (%\d+), 0;(.*cp\.async\.bulk\.tensor.*)\.multicast::cluster (.*), (%\d+);\}"
)
"""Pattern of a load for the CTAs in a mask (PTX, "cp.async.bulk.tensor"). Groups: whether this thread loads, load,
operands, mask."""


def at_home(template: str) -> str:
    """Return an equivalent asm statement for a cluster of one CTA, rank 0. A mask without this CTA loads nothing."""
    template = _MAPA.sub(r"mov.u32 \1, \2;", template)
    template = _ARRIVAL.sub(r"\1.shared::cta.", template)
    leader_in_mask = r".reg .b32 __own; cvt.u32.u16 __own, \4; and.b32 __own, __own, \1; "
    return _MULTICAST.sub(leader_in_mask + r"setp.ne.u32 __pred, __own, 0;\2 \3;}", template)
