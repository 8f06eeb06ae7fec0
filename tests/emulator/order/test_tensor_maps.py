"""Tensor maps that a kernel makes: the writer's release, an edge, and an acquire of that map before the copy."""

from __future__ import annotations

import pytest
from litmus import INIT, checked, codes, named, wait

FIELDS = {
    "global_address": ("b64", "%base"), "rank": ("b32", "0"), "box_dim": ("b32", "0, 64"),
    "global_dim": ("b32", "0, 256"), "element_stride": ("b32", "0, 1"), "elemtype": ("b32", "2"),
    "interleave_layout": ("b32", "0"),
    "swizzle_mode": ("b32", "0"), "fill_mode": ("b32", "0"),
}  # fmt: skip
PLACES = """add.s32 %r30, %data, 4096; add.s64 %x5, %base, 7168; add.s64 %x6, %base, 7040; setp.eq.u32 %p5, %t, 32;
shl.b32 %r29, %lane, 2; add.s32 %r31, %r30, %r29; cvt.u64.u32 %x7, %r29; add.s64 %x7, %x5, %x7;"""


def made(space: str, place: str, word: str) -> str:
    """Clear 128 bytes by warp 0, and write each field by its first lane."""
    fields = (f"@%first tensormap.replace.tile.{name}.{space}.b1024.{type} [{place}], {value};"
              for name, (type, value) in FIELDS.items())  # fmt: skip
    clear = f"{PLACES} @%zero st.{space}.b32 [{word}], 0; @%zero bar.warp.sync -1;"
    return INIT.format(1) + clear + "\n".join(fields) + "@%zero bar.warp.sync -1;"


COPIED = made("shared::cta", "%r30", "%r31") + (
    "@%zero tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%x5], [%r30], 128;"
)
IN_PLACE = made("global", "%x5", "%x7")
RELEASE = "@%first fence.proxy.tensormap::generic.release.gpu;"
ACQUIRE = "@{} fence.proxy.tensormap::generic.acquire.gpu [{}], 128;"
USE = """@{0} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
@{0} cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%data], [%x5, {{0}}], [%bar];"""
MINE, OTHER = ACQUIRE.format("%first", "%x5"), ACQUIRE.format("%p5", "%x5")

CASES = [
    ("copied and acquired", COPIED + MINE + USE.format("%first"), set()),
    ("copied", COPIED + USE.format("%first"), {"missing-proxy-fence"}),
    ("another map is acquired", COPIED + ACQUIRE.format("%first", "%x6") + USE.format("%first"),
     {"missing-proxy-fence"}),
    ("acquired too early", MINE + COPIED.replace(PLACES, "") + USE.format("%first"), {"missing-proxy-fence"}),
    ("changed in place", IN_PLACE + RELEASE + MINE + USE.format("%first"), set()),
    ("changed in place, no release", IN_PLACE + MINE + USE.format("%first"), {"missing-proxy-fence"}),
    ("by another warp", IN_PLACE + RELEASE + "bar.sync 0;" + OTHER + USE.format("%p5"), set()),
    ("by another warp, the async proxy's fence", IN_PLACE + "fence.proxy.async; bar.sync 0;" + USE.format("%p5"),
     {"missing-proxy-fence"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "wanted"), CASES, ids=named)
def test_a_tensor_map_that_the_kernel_makes(name: str, body: str, wanted: set[str]) -> None:
    body = PLACES + body if name == "acquired too early" else body
    assert codes(checked(body + wait(0, "W") + "ld.shared.b32 %r9, [%mine];")) == wanted
