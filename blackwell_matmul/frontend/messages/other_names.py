"""Names of CUDA, Triton and torch, and the statements of a script for them."""

from __future__ import annotations

import re

_PLACES = (
    "a tile's layout shares it out over the threads; `with self.single_warp(i):` or self.single_thread() has some act "
    "alone, and self.register_tensor(..., init=lambda i, j: ...) knows each element's place"
)
_CTA = "self.blockIdx.x is this CTA's number, self.cluster.blockRank that in its cluster"
_ATOMICS = (
    "tilus has no atomics; CTAs take turns by self.lock_semaphore and self.release_semaphore, or each writes a part of "
    "its own that a second kernel adds"
)
_SYNC = "self.sync() is the barrier of the threads that execute it, self.cluster.sync() that of a cluster"
_ORDER = "self.sync() orders threads, and self.fence.proxy_async(space=...) what TMA and the tensor core do after them"
_LOAD = "by where the tensor lies, self.load_global, self.load_shared or self.tcgen05.load"
_STORE = "by where the tensor lies, self.store_global, self.store_shared or self.tcgen05.store"
_COPY = "self.copy_async copies by cp.async, self.tma.global_to_shared and self.tma.shared_to_global by TMA"
_GROUPS = (
    "self.copy_async_commit_group and self.copy_async_wait_group are cp.async's, self.tma.commit_group and "
    "self.tma.wait_group those of TMA's stores"
)
_FILLED = "self.register_tensor(dtype=..., shape=[...], init=0.0) is one that is filled; init=lambda i: i numbers it"
_PRODUCT = "self.dot multiplies registers, self.wgmma.mma and self.tcgen05.mma what lies in shared memory"
_SHARED = "self.shared_tensor(dtype=..., shape=[...])"
_REGISTERS = "self.register_tensor(dtype=..., shape=[...], init=0.0)"
_TENSOR = "self.tcgen05.alloc(dtype=float32, shape=[128, n])"
_VIEW = "self.global_view(pointer, dtype=..., shape=[...]) is the tensor at a pointer"
_BARRIER = "self.mbarrier.alloc(counts=...) makes and initialises mbarriers"
_WAIT = "self.mbarrier.wait(barrier, phase=...)"
_EXPECT = "self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=...)"
_WHERE = "self.where(a < b, a, b) chooses element by element"
_EXP = (
    "self.exp, self.exp2, self.log, self.sqrt and self.rsqrt are there, and what they make up: 1.0 / (1.0 + "
    "self.exp(-x))"
)
_LANE_EXCHANGES = "lanes exchange by self.sum, self.max, self.min, self.any and self.all, or through shared memory"
_REDUCE = "self.sum, self.max, self.min, self.any and self.all reduce a dimension; others go through shared memory"
_RESHAPES = "self.squeeze, self.unsqueeze and self.transpose change a tile's shape, and an extent of 1 goes with any"
_CONVERSIONS = "self.cast(x, dtype=...) or x.to(dtype)"
_PRINT = "self.printf('%d', x) prints numbers, self.print_tensor('x', x) a tile"
_LOOP = "self.range(n, unroll=...) is a loop that is unrolled"
_WARPS = "self.attrs.warps is how many warps a CTA has, self.current_num_threads how many threads are here"

_SAID: dict[str, str] = {
    _PLACES: "threadidx thread_idx tid thread_id lane lane_id laneid lane_idx warpidx warp_idx warp_id warpid",
    _CTA: "program_id pid block_id cta_id ctaid block_idx cta_rank block_rank cluster_id cluster_idx",
    "self.gridDim.x": "num_programs grid_dim griddim",
    _WARPS: "blockdim block_dim num_threads num_warps warps block_size",
    "self.attrs.blocks is set in __call__": "grid blocks num_blocks",
    _ATOMICS: "atomic atomic_* red reduce_add red_add scatter_add index_add",
    _SYNC: "syncthreads sync_threads syncwarp sync_warp barrier debug_barrier bar_sync cta_sync block_sync barrier_sync"
    " cluster_sync named_barrier",
    _ORDER: "threadfence* memory_fence membar fence_proxy* fence_view* async_fence",
    _LOAD: "load load_tile ldg ld ldmatrix load_matrix load_tensor tmem_load load_tmem gather",
    _STORE: "store store_tile stg st stmatrix store_tensor tmem_store store_tmem scatter",
    _COPY: "copy cp_async async_copy memcpy memcpy_async tma_load tma_store tma_copy async_load async_store"
    " global_to_shared shared_to_global copy_tile bulk_copy cp_async_bulk*",
    _GROUPS: "cp_async_commit* cp_async_wait* async_wait* commit_group wait_group async_commit* copy_async_wait"
    " copy_async_commit pipeline*",
    _FILLED: "zeros ones full empty zeros_like full_like ones_like fill arange iota linspace clear",
    _PRODUCT: "matmul mma gemm mm bmm wmma dot_scaled mma_sync tcgen05_mma wgmma_mma mma_async einsum",
    _SHARED: "shared smem alloc_shared shared_memory allocate_shared shared_array local_alloc alloc_smem",
    _REGISTERS: "register registers fragment alloc_fragment alloc_local local accumulator tensor register_array",
    _TENSOR: "tmem alloc_tmem tensor_memory tmem_alloc",
    _VIEW: "make_block_ptr make_tensor make_tensor_descriptor tensor_descriptor view_global global_ptr block_ptr"
    " tensor_view make_tensor_ptr tma_descriptor",
    _BARRIER: "init_barrier barrier_init mbarrier_init alloc_barrier alloc_mbarrier mbarriers init",
    _WAIT: "try_wait test_wait wait_barrier mbarrier_wait barrier_wait wait_parity",
    _EXPECT: "expect_tx arrive_expect_tx expect expect_bytes arrive_tx",
    _WHERE: "minimum select fmin fmax relu pmax",
    _EXP: "sigmoid tanh erf gelu silu softmax sin cos pow softplus exp_approx rcp reciprocal log2 cosh sinh",
    _LANE_EXCHANGES: "shfl* shuffle* warp_reduce* ballot vote warp_shuffle* activemask",
    _REDUCE: "cumsum cumprod argmax argmin sort topk scan reduce mean var prod norm histogram associative_scan",
    _RESHAPES: "reshape permute trans expand_dims broadcast_to broadcast join split cat concat ravel swapaxes",
    _CONVERSIONS: "astype convert to type_as bitcast_to to_dtype float half",
    _PRINT: "print device_print print_tile debug_print",
    _LOOP: "static_range unroll serial grid_range vectorized parallel pipelined",
    "self.static_assert(condition, text)": "device_assert assert_ static_check",
    "cdiv is from tilus.utils": "ceil_div ceildiv cdiv",
    "self.transpose(x), or x.transpose() of a shared tensor": "t mT",
}

_OF_GROUPS: dict[str, dict[str, str]] = {
    "self.tma": {"load": "self.tma.global_to_shared", "store": "self.tma.shared_to_global", "wait": _GROUPS,
                 "commit": _GROUPS, "copy": _COPY, "reduce_add": _ATOMICS},
    "self.mbarrier": {"wait_parity": _WAIT},
    "self.tcgen05": {"ld": "self.tcgen05.load", "st": "self.tcgen05.store", "cp": "self.tcgen05.copy",
                     "wait": "self.tcgen05.wait_load and self.tcgen05.wait_store wait for its own, self.mbarrier.wait "
                     "for what self.tcgen05.commit tells", "fence": "tilus puts tcgen05's fences beside each wait",
                     "arrive": "self.tcgen05.commit(mbarrier=...)"},
    "self.wgmma": {"wait": "self.wgmma.wait_group(n)", "commit": "self.wgmma.commit_group()",
                   "arrive": "self.wgmma.fence()"},
    "self.cluster": {"arrive": "self.cluster.sync()", "wait": "self.cluster.sync()",
                     "mapa": "self.cluster.map_shared_addr(address, target_rank=...)",
                     "rank": "self.cluster.blockRank"},
    "self.fence": {"async_proxy": "self.fence.proxy_async(space=...)", "view_async_shared": _ORDER},
}  # fmt: skip
"""Meanings of names after `self.tma` and the like; they take precedence over the general meanings."""

_PATTERNS = [(re.compile(name.replace("*", ".*")), text) for text, names in _SAID.items() for name in names.split()]


def instead(name: str, owner: str = "self") -> str | None:
    """Return the tilus statement for a name of CUDA, Triton or torch; None if there is none. owner: the object on
    which the name was looked up."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip("_")).lower()
    found = _OF_GROUPS.get(owner, {}).get(plain)
    spellings = (plain, plain.replace("_", ""))
    return found or next((text for each, text in _PATTERNS if any(map(each.fullmatch, spellings))), None)
