"""Each rule of order: a program without the edge has the finding, and the same program with the edge has none."""

from __future__ import annotations

import numpy as np
import pytest
from litmus import ARRIVE, HEAD, INIT, LOAD, STORE, checked, codes, named, wait

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.emulator import check_ptx

PUT, TAKE = "st.shared.b32 [%mine], %t;", "ld.shared.b32 %r9, [%other]; st.global.b32 [%out], %r9;"
FENCE = "fence.proxy.async.shared::cta;"

THREADS = [
    ("nothing between two warps", PUT + TAKE, {"data-race"}),
    ("bar.sync", PUT + "bar.sync 0;" + TAKE, set()),
    ("a named barrier of another number is another barrier", PUT + "bar.sync 2, 64;" + TAKE, set()),
    ("bar.red", PUT + "bar.red.popc.u32 %r1, 0, %first;" + TAKE, set()),
    ("a write behind a read", PUT + "bar.sync 0;" + TAKE + PUT, {"data-race"}),
    ("a write behind a read and a barrier", PUT + "bar.sync 0;" + TAKE + "bar.sync 0;" + PUT, set()),
    ("bar.warp.sync is not for another warp", PUT + "bar.warp.sync -1;" + TAKE, {"data-race"}),
    ("bar.warp.sync is for the warp", PUT + "bar.warp.sync -1; ld.shared.b32 %r9, [%next];", set()),
    ("a vote orders nothing", PUT + "vote.sync.ballot.b32 %r1, %first, -1; ld.shared.b32 %r9, [%next];", {"data-race"}),
    ("a lane knows what it wrote", PUT + "ld.shared.b32 %r9, [%mine];", set()),
    ("one value by one instruction", "st.shared.b32 [%data], 7; bar.sync 0; ld.shared.b32 %r9, [%data];", set()),
    ("two values", "st.shared.b32 [%data], %t; bar.sync 0;", {"data-race"}),
    ("who arrives tells", f"@%zero {PUT} @%zero bar.arrive 1, 64; @%one bar.sync 1, 64; @%one {TAKE[:28]}", set()),
    ("who arrives is not told", f"@%one {PUT} @%zero bar.arrive 1, 64; @%one bar.sync 1, 64; @%zero {TAKE[:28]}",
     {"data-race"}),
    ("part of a word", "@%first st.shared.b8 [%data+1], 1; @%one ld.shared.b16 %r9, [%data];", {"data-race"}),
    ("a store beyond shared memory", "st.shared.b32 [%mine+65536], %t;", {"out-of-bounds"}),
    ("a load beyond global memory", "ld.global.b32 %r9, [%base+8192];", {"out-of-bounds"}),
    ("a misaligned load", "ld.shared.b32 %r9, [%mine+1];", {"misaligned-address"}),
    ("a barrier beyond 15", "mov.u32 %r9, 17; bar.sync %r9, 64;", {"no-such-barrier"}),
    ("a load from nowhere", "ld.global.b32 %r9, [%base+1073741824];", {"out-of-bounds"}),
    ("beside a word", "@%first st.shared.b8 [%data+1], 1; @%one ld.shared.b16 %r9, [%data+2];", set()),
]  # fmt: skip

MBARRIERS = [
    ("all arrive", INIT.format(64) + PUT + ARRIVE + wait(0, "W") + TAKE, set()),
    ("one arrives for its warp", INIT.format(2) + PUT + "@%lead " + ARRIVE + wait(0, "W") + TAKE, {"data-race"}),
    ("one arrives behind bar.warp.sync",
     INIT.format(2) + PUT + "bar.warp.sync -1; @%lead " + ARRIVE + wait(0, "W") + TAKE, set()),
    ("a store behind the arrival", INIT.format(64) + ARRIVE + PUT + wait(0, "W") + TAKE, {"data-race"}),
    ("a relaxed arrival",
     INIT.format(64) + PUT + "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%bar];" + wait(0, "W") + TAKE,
     {"relaxed-order"}),
    ("a relaxed arrival behind a fence",
     INIT.format(64) + PUT + "fence.acq_rel.cta; mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%bar];"
     + wait(0, "W") + TAKE, set()),
    ("nothing behind mbarrier.init", INIT.format(64).replace("bar.sync 0;", "") + ARRIVE + wait(0, "W"), {"data-race"}),
    ("initialised twice", INIT.format(1) + INIT.format(1), {"mbarrier-initialised-twice"}),
    ("invalidated in between",
     INIT.format(1) + "@%first mbarrier.inval.shared::cta.b64 [%bar];" + INIT.format(1), set()),
    ("too many arrivals", INIT.format(1) + ARRIVE.replace("];", "], 2;"), {"mbarrier-over-arrival"}),
    ("no mbarrier.init", ARRIVE, {"mbarrier-not-initialised"}),
    ("used behind mbarrier.inval",
     INIT.format(64) + "@%first mbarrier.inval.shared::cta.b64 [%bar]; bar.sync 0;" + ARRIVE,
     {"mbarrier-not-initialised"}),
    ("a parity of 2", INIT.format(64) + ARRIVE + wait(2, "W"), {"mbarrier-parity"}),
    ("too few arrivals", INIT.format(65) + ARRIVE + wait(0, "W"), {"deadlock"}),
    ("the phase that was before all", INIT.format(1) + PUT + wait(1, "W") + TAKE, {"data-race"}),
]  # fmt: skip

REDUCE = (
    PUT + FENCE + "bar.sync 0; @%first cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%base], [%data],"
)
REDUCE += " 256; @%first cp.async.bulk.commit_group; @%first cp.async.bulk.wait_group.read 0; bar.sync 0;"
DONE = "@%first cp.async.bulk.wait_group 0;"
LOAD_MORE = LOAD.replace("[%data]", "[%data+1024]")
BY_ALL = (STORE + DONE).replace("%first", "%zero")
READ = "ld.shared.b32 %r9, [%other];"
COPY = "cp.async.ca.shared.global [%mine], [%out], 4; cp.async.commit_group;"
COPIES = [
    ("cp.async of another lane", COPY + "cp.async.wait_group 0; ld.shared.b32 %r9, [%next];", {"read-before-complete"}),
    ("cp.async of this lane", COPY + "cp.async.wait_group 0; ld.shared.b32 %r9, [%mine];", set()),
    ("cp.async and a barrier", COPY + "cp.async.wait_all; bar.sync 0; ld.shared.b32 %r9, [%other];", set()),
    ("cp.async, a group too many",
     COPY + "cp.async.wait_group 1; ld.shared.b32 %r9, [%mine];", {"read-before-complete"}),
    ("cp.async into a copy of its own", COPY + COPY, {"overwritten-in-flight"}),
    ("cp.async into a copy of its own, waited for", COPY + "cp.async.wait_group 0;" + COPY, set()),
    ("cp.async into what another lane wrote", "st.shared.b32 [%next], %t;" + COPY, {"data-race"}),
    ("cp.async into what this lane wrote", PUT + COPY, set()),
    ("cp.async.mbarrier.arrive.noinc",
     INIT.format(64) + COPY + "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%bar];" + wait(0, "W") + TAKE, set()),
    ("cp.async and a plain arrival", INIT.format(64) + COPY + ARRIVE + wait(0, "W") + READ, {"read-before-complete"}),
    ("a bulk load", INIT.format(1) + LOAD + wait(0, "W") + READ, set()),
    ("a bulk load without a wait", INIT.format(1) + LOAD + READ, {"read-before-complete", "(in-flight-at-exit)"}),
    ("a wait by parity, behind the one before", INIT.format(1) + LOAD + wait(0, "W") + "bar.sync 0;" + LOAD_MORE
     + wait(1, "V") + "ld.shared.b32 %r9, [%other+1024];", set()),
    ("a wait by parity may pass on the phase before all", INIT.format(1) + LOAD + "bar.sync 0;" + LOAD_MORE
     + wait(1, "V") + "ld.shared.b32 %r9, [%other+1024];", {"read-before-complete", "(in-flight-at-exit)"}),
    ("a bulk load into what was read", INIT.format(1) + LOAD + wait(0, "W")
     + "ld.shared.b32 %r9, [%mine]; bar.sync 0;"     + LOAD + wait(1, "V"), {"(missing-proxy-fence)"}),
    ("a bulk load into what was written", INIT.format(1) + PUT + "bar.sync 0;" + LOAD + wait(0, "W"),
     {"missing-proxy-fence"}),
    ("a bulk store", PUT + FENCE + "bar.sync 0;" + STORE + "@%first cp.async.bulk.wait_group 0;", set()),
    ("a bulk store, the fence behind the barrier",
     PUT + "bar.sync 0;" + FENCE + STORE + "@%first cp.async.bulk.wait_group 0;", set()),
    ("two reductions of the same words", REDUCE + REDUCE + "@%first cp.async.bulk.wait_group 0;", set()),
    ("a reduction and a store of the same words", REDUCE + STORE + DONE, {"overwritten-in-flight"}),
    ("a bulk store without a fence", PUT + "bar.sync 0;" + STORE + DONE, {"missing-proxy-fence"}),
    ("a fence for global memory", PUT + "fence.proxy.async.global; bar.sync 0;" + STORE + DONE,
     {"missing-proxy-fence"}),
    ("a bulk store without a barrier", PUT + FENCE + STORE + DONE, {"race-with-operation"}),
    ("a bulk store, overwritten", PUT + FENCE + "bar.sync 0;" + STORE + PUT + DONE, {"overwritten-in-flight"}),
    ("one bulk store by all lanes of a warp", PUT + FENCE + "bar.sync 0;" + BY_ALL, set()),
    ("bulk stores of other bytes by the lanes",
     PUT + FENCE + "bar.sync 0; shl.b32 %r3, %lane, 4; add.s32 %r3, %data, %r3;"
     + BY_ALL.replace("[%data], 256", "[%r3], 16"), {"overwritten-in-flight"}),
    ("a bulk store that nobody waits for", PUT + FENCE + "bar.sync 0;" + STORE, {"(in-flight-at-exit)"}),
    ("a bulk store, overwritten behind .read",
     PUT + FENCE + "bar.sync 0;" + STORE + "@%first cp.async.bulk.wait_group.read 0; bar.sync 0;" + PUT, set()),
    ("the result of a bulk store behind .read",
     PUT + FENCE + "bar.sync 0;" + STORE + "@%first cp.async.bulk.wait_group.read 0; bar.sync 0;"
     + "ld.global.b32 %r9, [%out];",
     {"read-before-complete"}),
    ("the result of a bulk store", PUT + FENCE + "bar.sync 0;" + STORE + "@%first cp.async.bulk.wait_group.read 0;"
     "@%first cp.async.bulk.wait_group 0; bar.sync 0; ld.global.b32 %r9, [%out];", set()),
    ("a wait by another lane is for nothing", PUT + FENCE + "bar.sync 0;" + STORE + "@%one cp.async.bulk.wait_group 0;"
     "bar.sync 0;" + PUT, {"overwritten-in-flight"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "wanted"), THREADS + MBARRIERS, ids=named)
def test_threads_and_mbarriers(name: str, body: str, wanted: set[str]) -> None:
    assert codes(checked(body)) == wanted


@pytest.mark.parametrize(("name", "body", "wanted"), COPIES, ids=named)
def test_asynchronous_copies(name: str, body: str, wanted: set[str]) -> None:
    assert codes(checked(body)) == wanted


SAY = "@%p1 st.global.b32 [%word], 7; @%p1 {} @!%p2 bra END; POLL: {} setp.eq.u32 %p3, %r9, 0; @%p3 bra POLL; {}"
SAID = "setp.eq.u32 %p3, %cta, 0; and.pred %p1, %first, %p3; setp.ne.u32 %p3, %cta, 0; and.pred %p2, %first, %p3;"
FLAGS = [
    ("release and acquire",
     "st.release.gpu.global.b32 [%flag], 1;", "ld.acquire.gpu.global.b32 %r9, [%flag];", "", set()),
    ("relaxed", "st.relaxed.gpu.global.b32 [%flag], 1;", "ld.relaxed.gpu.global.b32 %r9, [%flag];", "", {"data-race"}),
    ("relaxed with fences", "fence.acq_rel.gpu; @%p1 st.relaxed.gpu.global.b32 [%flag], 1;",
     "ld.relaxed.gpu.global.b32 %r9, [%flag];", "fence.acq_rel.gpu;", set()),
    ("one fence", "fence.acq_rel.gpu; @%p1 st.relaxed.gpu.global.b32 [%flag], 1;",
     "ld.relaxed.gpu.global.b32 %r9, [%flag];", "", {"data-race"}),
    ("fences of the CTA", "fence.acq_rel.cta; @%p1 st.relaxed.gpu.global.b32 [%flag], 1;",
     "ld.relaxed.gpu.global.b32 %r9, [%flag];", "fence.acq_rel.cta;", {"data-race"}),
    ("an atomic as the release", "atom.add.release.gpu.global.u32 %r8, [%flag], 1;",
     "ld.acquire.gpu.global.b32 %r9, [%flag];", "", set()),
    ("a relaxed atomic", "atom.add.global.u32 %r8, [%flag], 1;", "ld.acquire.gpu.global.b32 %r9, [%flag];", "",
     {"data-race"}),
    ("release for the CTA", "st.release.cta.global.b32 [%flag], 1;", "ld.acquire.gpu.global.b32 %r9, [%flag];", "",
     {"data-race"}),
    ("weak", "st.global.b32 [%flag], 1;", "ld.global.b32 %r9, [%flag];", "", {"data-race"}),
    ("volatile with membar", "membar.gl; @%p1 st.volatile.global.b32 [%flag], 1;",
     "ld.volatile.global.b32 %r9, [%flag];", "membar.gl;", set()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "say", "poll", "behind", "wanted"), FLAGS, ids=named)
def test_flags_between_ctas(name: str, say: str, poll: str, behind: str, wanted: set[str]) -> None:
    body = SAID + SAY.format(say, poll, behind) + "ld.global.b32 %r10, [%word]; END:"
    assert codes(checked(body, ctas=2)) == wanted


PEER = "xor.b32 %r1, %cta, 1; mapa.shared::cluster.u32 %there, %mine, %r1; st.shared::cluster.b32 [%there], %t;"
CLUSTERS = [
    ("barrier.cluster", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", set()),
    ("barrier.cluster, relaxed", "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;",
     {"relaxed-order"}),
    ("behind a fence", "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;",
     set()),
    ("a barrier of the CTA", "bar.sync 0;", {"data-race"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "edge", "wanted"), CLUSTERS, ids=named)
def test_clusters(name: str, edge: str, wanted: set[str]) -> None:
    end = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    assert codes(checked(PEER + edge + "ld.shared.b32 %r9, [%mine];" + end, ctas=2, cluster=2)) == wanted


TOLD = """setp.ne.u32 %p1, %cta, 0; @%p1 bra READ; st.global.b32 [%out], %t; bar.sync 0;
@%first st.release.gpu.global.b32 [%flag], 1; bra END; READ: @!%first bra END;
POLL: ld.acquire.gpu.global.b32 %r9, [%flag]; setp.eq.u32 %p3, %r9, 0; @%p3 bra POLL;"""


@pytest.mark.parametrize(
    ("fence", "wanted"),
    [("", {"missing-proxy-fence"}), ("fence.proxy.async.global;", set()), (FENCE, {"missing-proxy-fence"})],
)
def test_a_proxy_fence_covers_what_another_cluster_has_told(fence: str, wanted: set[str]) -> None:
    assert codes(checked(INIT.format(1) + TOLD + fence + LOAD + wait(0, "W") + "END:", ctas=2)) == wanted


def test_two_ctas_write_one_word() -> None:
    assert codes(checked("st.global.b32 [%word], %cta;", ctas=2)) == {"data-race"}
    assert codes(checked("red.global.add.u32 [%word], 1;", ctas=2)) == set()


ALLOC = "@%zero tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bar+32], 32; bar.sync 0;"
ALLOC += "ld.shared.b32 %r20, [%bar+32]; shl.b32 %r21, %warp, 21; add.s32 %r21, %r20, %r21;"
FREE = "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;"
FREE += "@%zero tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r20, 32;"
TPUT = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r21], {%t};"
TGET = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r9}, [%r21];"
STORED, LOADED = "tcgen05.wait::st.sync.aligned;", "tcgen05.wait::ld.sync.aligned;"
TENSOR = [
    ("both waits", TPUT + STORED + TGET + LOADED, set()),
    ("no wait for the store", TPUT + TGET + LOADED + STORED, {"read-before-complete"}),
    ("no wait for the load", TPUT + STORED + TGET + TPUT + STORED + LOADED, {"overwritten-in-flight"}),
    ("never written", TGET + LOADED, {"(uninitialised-read)"}),
    ("no wait in front of dealloc", TPUT + STORED + TGET, {"dealloc-in-flight"}),
]


@pytest.mark.parametrize(("name", "body", "wanted"), TENSOR, ids=named)
def test_tensor_memory(name: str, body: str, wanted: set[str]) -> None:
    assert codes(checked(ALLOC + body + FREE, threads=128, target="sm_100a")) == wanted


def test_a_finding_names_both_lines_the_edge_and_what_mends_it() -> None:
    (found,) = checked("\n" + PUT + "\n" + TAKE).errors
    assert found.first is not None and found.second is not None and abs(found.second.line - found.first.line) == 1
    assert {found.first.text, found.second.text} == {"st.shared.b32 [%mine], %t", "ld.shared.b32 %r9, [%other]"}
    assert "bar.sync" in found.mend and found.edge and "Causality Order" in found.rule
    assert "lane" in found.text and "bytes" in found.text and "shared memory of CTA (0, 0, 0)" in found.text


def test_a_finding_names_the_source_line() -> None:
    body = '\n.file 1 "kernel.py"\n.loc 1 41 0\n' + PUT + "\n.loc 1 42 0\n" + TAKE
    (found,) = checked(body).errors
    assert "kernel.py:41" in str(found) and "kernel.py:42" in str(found)


def test_a_mask_of_a_cta_that_the_cluster_lacks() -> None:
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%bar], %h;"
    body = f"{INIT.format(1)} {CLUSTERS[0][1]} .reg .b16 %h; mov.b16 %h, 7; @%first {commit}"
    assert codes(checked(body, ctas=2, cluster=2, target="sm_100a")) == {"no-such-cta"}


@pytest.mark.parametrize(("space", "wanted"), [("cta", {"remote-mbarrier"}), ("cluster", set())])
def test_an_arrival_elsewhere_needs_the_space_of_the_cluster(space: str, wanted: set[str]) -> None:
    body = f"{INIT.format(1)} {CLUSTERS[0][1]} xor.b32 %r1, %cta, 1; mapa.shared::cluster.u32 %there, %bar, %r1;"
    body += f"@%first mbarrier.arrive.shared::{space}.b64 _, [%there];" + wait(0, "W") + CLUSTERS[0][1]
    assert codes(checked(body, ctas=2, cluster=2)) == wanted


PAIRS = """@%zero tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%bar+32], 32; bar.sync 0;
ld.shared.b32 %r20, [%bar+32]; {} @%zero tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r20, 32;"""
MEET = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"


@pytest.mark.parametrize(
    ("before", "between", "wanted"),
    [
        (MEET, MEET, set()),
        ("", MEET, {"(peer-not-started)"}),
        (MEET, "bar.sync 0;", {"dealloc-in-flight"}),
    ],
)
def test_a_pair_allocates_and_frees_together(before: str, between: str, wanted: set[str]) -> None:
    body = before + PAIRS.format(between) + CLUSTERS[0][1]
    assert codes(checked(body, ctas=2, cluster=2, threads=128, target="sm_100a")) == wanted


@pytest.mark.parametrize(
    ("release", "acquire", "wanted"),
    [
        (".release.cluster", ".acquire.cluster", set()),
        ("", "", {"(relaxed-order)"}),
    ],
)
def test_dealloc_behind_arrivals_of_the_other_cta(release: str, acquire: str, wanted: set[str]) -> None:
    """Each CTA learns from the other that its own warps have loaded; without a scope an arrival is of one CTA."""
    begin = "xor.b32 %r1, %cta, 1; mapa.shared::cluster.u32 %there, %bar, %r1;" + CLUSTERS[0][1]
    use = "shl.b32 %r21, %warp, 21; add.s32 %r21, %r20, %r21;" + TPUT + STORED + TGET + LOADED
    use += "tcgen05.fence::before_thread_sync;"
    for place in (0, 8):
        use += f"mbarrier.arrive{release}.shared::cluster.b64 _, [%there+{place}];"
        use += wait(0, f"W{place}").replace("parity.", f"parity{acquire}.").replace("[%bar]", f"[%bar+{place}]")
    init = "@%first mbarrier.init.shared::cta.b64 [%bar+8], 128;" + INIT.format(128)
    body = init + begin + PAIRS.format(use + "tcgen05.fence::after_thread_sync;") + CLUSTERS[0][1]
    assert codes(checked(body, ctas=2, cluster=2, threads=128, target="sm_100a")) == wanted


PRODUCT = """.reg .f32 %f<4>; .reg .b64 %da, %db;
@%first mbarrier.init.shared::cta.b64 [%bar+8], 1; @%first mbarrier.init.shared::cta.b64 [%bar], 1;
shl.b32 %r1, %t, 4; add.s32 %r1, %data, %r1; mov.b32 %r2, 0;
st.shared.v4.b32 [%r1], {%r2, %r2, %r2, %r2}; st.shared.v4.b32 [%r1+2560], {%r2, %r2, %r2, %r2};
fence.proxy.async.shared::cta; bar.sync 0;
shr.u32 %r1, %data, 4; cvt.u64.u32 %da, %r1; or.b64 %da, %da, 0x1000080000; add.s64 %db, %da, 160;
setp.eq.u32 %p1, %warp, 4; setp.eq.u32 %p2, %t, 32; setp.eq.u32 %p3, %t, 128;
@%p1 bra COPY;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %da, %db, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
"""
MULTIPLIED, ONE_ARRIVES = "wgmma.wait_group.sync.aligned 0;", "@%p2 mbarrier.arrive.shared::cta.b64 _, [%bar+8];"


@pytest.mark.parametrize("order", ["eager", "late", "random"])
@pytest.mark.parametrize(
    ("ends", "wanted"),
    [(MULTIPLIED + ONE_ARRIVES, set()), (ONE_ARRIVES + MULTIPLIED, {"overwritten-in-flight"})],
    ids=["behind the wait", "in front of the wait"],
)
def test_a_group_of_products_is_of_the_warpgroup(ends: str, wanted: set[str], order: str) -> None:
    """One warp of the four tells that the operands may be overwritten."""
    copy = wait(0, "FREE").replace("[%bar]", "[%bar+8]") + LOAD.replace("@%first", "@%p3") + wait(0, "DONE")
    body = f"{PRODUCT} {ends} bra END;\nCOPY: {copy}\nEND:"
    assert codes(checked(body, threads=160, orders=[order])) == wanted


MAP = "".join(
    f"@%first tensormap.replace.tile.{field};"
    for field in (
        "global_address.global.b1024.b64 [%flag], %base", "rank.global.b1024.b32 [%flag], 0",
        "elemtype.global.b1024.b32 [%flag], 2", "interleave_layout.global.b1024.b32 [%flag], 0",
        "swizzle_mode.global.b1024.b32 [%flag], 0", "fill_mode.global.b1024.b32 [%flag], 0",
        "box_dim.global.b1024.b32 [%flag], 0, 64", "global_dim.global.b1024.b32 [%flag], 0, 64",
        "element_stride.global.b1024.b32 [%flag], 0, 1",
    )
)  # fmt: skip
MAP += "@%first fence.proxy.tensormap::generic.release.gpu;"
MAP += "@%first fence.proxy.tensormap::generic.acquire.gpu [%flag], 128;"
BY_MAP = """@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256; @%first
cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%data], [%flag, {0}], [%bar];"""
MOVE = "@%first tensormap.replace.tile.global_address.global.b1024.b64 [%flag], %word;"


@pytest.mark.parametrize(
    ("ends", "wanted"), [(MOVE + wait(0, "W"), {"overwritten-in-flight"}), (wait(0, "W") + MOVE, set())]
)
def test_a_copy_reads_its_map_until_it_is_over(ends: str, wanted: set[str]) -> None:
    assert codes(checked(INIT.format(1) + MAP + BY_MAP + ends)) == wanted


def test_a_deadlock_tells_the_phase_and_what_is_missing() -> None:
    (found,) = checked(INIT.format(65) + ARRIVE + wait(0, "W")).errors
    assert found.code == "deadlock" and "phase 0, 1 of 65 arrivals and 0 bytes missing" in found.text


def test_the_same_value_is_benign_and_not_told_unless_asked() -> None:
    report = checked("st.shared.b32 [%data], 7; bar.sync 0;")
    assert [each.code for each in report.findings] == ["same-value"] and report.ok
    assert "same-value" not in str(report) and any("same-value" in line for line in report.lines(all=True))


@pytest.mark.parametrize("order", ["late", "newest", "random"])
def test_findings_hold_in_other_orders(order: str) -> None:
    for _, body, wanted in COPIES:
        found = codes(checked(body, orders=[order]))
        assert bool(found) == bool(wanted), (body, found, wanted)


HELD = [
    ("read behind the wait", TPUT + STORED + TGET + LOADED + "add.u32 %r8, %r9, 1;", set()),
    ("read in front of the wait", TPUT + STORED + TGET + "add.u32 %r8, %r9, 1;" + LOADED, {"(read-before-complete)"}),
    ("written in front of the wait", TPUT + STORED + TGET + "add.u32 %r9, %r8, 1;" + LOADED, {"overwritten-in-flight"}),
    ("moved in front of the wait", TPUT + STORED + TGET + "mov.b32 %r8, %r9;" + LOADED + "add.u32 %r7, %r8, 1;", set()),
    (
        "moved and read in front of the wait",
        TPUT + STORED + TGET + "mov.b32 %r8, %r9; add.u32 %r7, %r8, 1;" + LOADED,
        {"(read-before-complete)"},
    ),
    (
        "read without a wait",
        TPUT + STORED + TGET + "add.u32 %r8, %r9, 1;",
        {"read-before-complete", "dealloc-in-flight"},
    ),
]


@pytest.mark.parametrize(("name", "body", "wanted"), HELD, ids=named)
def test_registers_of_a_load_from_tensor_memory(name: str, body: str, wanted: set[str]) -> None:
    assert codes(checked(ALLOC + body + FREE, threads=128, target="sm_100a")) == wanted


def test_each_order_begins_with_the_same_tensors() -> None:
    """A kernel that adds to what it finds; a fault of one order is told once."""
    add = "ld.global.b32 %r9, [%out]; add.u32 %r9, %r9, 1; st.global.b32 [%out], %r9;"
    memory = np.zeros(2048, np.uint32)
    text = HEAD.format(target="sm_90a") + add + PUT + TAKE + "ret;\n}\n"
    report = check_ptx(text, memory, grid=1, block=64, orders=["eager", "late", "random"])
    assert len(report.errors) == 1 and report.orders == ("eager", "late", "random") and memory[200] == 0
    clean = HEAD.format(target="sm_90a") + add + "ret;\n}\n"
    memory[:] = 0
    assert check_ptx(clean, memory, grid=1, block=64, orders=["eager", "late"]).ok and memory[:64].tolist() == [1] * 64


def test_a_run_that_stops_has_its_kernel_and_target() -> None:
    report = checked("ld.shared.b32 %r9, [%mine+1];")
    assert (report.kernel, report.target) == ("litmus", "sm_90a")


def test_no_order_is_no_check() -> None:
    with pytest.raises(InputError, match=r"orders is \[\]; it must be a list"):
        checked(PUT, orders=[])
    with pytest.raises(InputError, match="orders is 3; it must be a list"):
        checked(PUT, orders=3)
