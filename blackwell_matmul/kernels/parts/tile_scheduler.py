"""Tile scheduler: gives a persistent CTA one tile after the other, by cluster launch control (CLC).

The grid has a CTA for each tile. A CTA that has computed its tile cancels the launch of another CTA, which has not
started, and computes that CTA's tile (PTX ISA, "clusterlaunchcontrol.try_cancel").

An example of 8 tiles on 3 SMs:

    SM 0    CTA 0:  tiles 0  3  5
    SM 1    CTA 1:  tiles 1  4  7       CTAs 3 to 7 never start
    SM 2    CTA 2:  tiles 2  6

Without CLC, the tiles of a CTA are fixed at its start: tile += gridDim.x (HopperMatmulV5).
"""

import tilus
from tilus import int32

from blackwell_matmul.kernels.parts.ring import Ring


class ClcTileScheduler(tilus.Class):
    """Requests and responses of cluster launch control. One warp calls `ask`; each other warp loops over the tiles:

        tile: int32 = scheduler.first()
        while True:
            ...
            another, tile = scheduler.next_tile()
            if not another:
                break

    warps: number of a CTA's warps that read the responses, including the warp that asks. ctas: CTAs that compute a tile
    together, 1 or 2. The first CTA of a pair sends the requests for both.
    """

    def __init__(self, warps: int, ctas: int):
        self.ctas = ctas
        self.s_response = self.shared_tensor(dtype=int32, shape=[4])
        self.responses = Ring(1, empties=ctas * warps * 32, scope="cta" if ctas == 1 else "cluster")

    def first(self):
        """Return the first tile of this CTA."""
        return self.blockIdx.x // self.ctas if self.ctas > 1 else self.blockIdx.x

    def next_tile(self):
        """Wait for the response; return True and the next tile, or False and any number if no tile is left."""
        self.responses.wait_full()
        another, block = self.clc.query_response(self.s_response)
        # Threads read through the generic proxy, CLC writes through the async proxy: each reader fences, then arrives.
        self.fence.proxy_async(space="shared")
        if self.ctas == 1:
            self.mbarrier.arrive(self.responses.empty())
        else:
            self.mbarrier.arrive_and_expect_tx_remote(
                self.responses.empty(), transaction_bytes=0, target_rank=0, scope="cluster"
            )
        self.responses.advance()
        return another, block.x // self.ctas if self.ctas > 1 else block.x

    def ask(self):
        """Request tiles until none is left. One warp of each CTA calls this method."""
        # After a failure no CTA may send a request, or exit before the response ("clusterlaunchcontrol.try_cancel").
        while True:
            if self.ctas == 1:
                self.responses.wait_empty()
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(self.responses.full(), transaction_bytes=self.s_response.nbytes)
                self.clc.try_cancel(self.s_response, mbarrier=self.responses.full(), multicast=False)
            elif self.cluster.blockRank == 0:
                self.responses.wait_empty()
                self.mbarrier.arrive_and_expect_tx_multicast(
                    self.responses.full(),
                    transaction_bytes=self.s_response.nbytes,
                    multicast_mask=0b11,
                    scope="cluster",
                )
                self.clc.try_cancel(self.s_response, mbarrier=self.responses.full(), multicast=True)
            another, _ = self.next_tile()
            if not another:
                break
