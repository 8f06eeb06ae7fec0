// Microbenchmarks of one SM, of the L2 and of launches. `micro.py` prepends #define TCGEN05 or MMA_SYNC and
// `instructions.cu`, and appends the generated kernels `tensor_loads`.

__shared__ __align__(16) u64 barriers[8];
__shared__ __align__(16) u32 answer[4];
__shared__ u32 columns_at;

// --- instructions

__device__ __forceinline__ void load_bytes(u32 place, const void* from, u32 nbytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place),
                 "l"(from), "r"(nbytes), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ u64* mine(u64* out) { return out + blockIdx.x * SLOTS; }

// --- every GPU with TMA

// out: cycles of `count` stores to shared memory, and of `count` stores that are each followed by fence.proxy.async.
extern "C" __global__ void __launch_bounds__(128) fences(u64* out, int count) {
    volatile u32* place = (volatile u32*)dynamic + threadIdx.x;
    u64 start = cycles();
    for (int i = 0; i < count; ++i) *place = i;
    u64 between = cycles();
    for (int i = 0; i < count; ++i) {
        *place = i;
        fence_proxy();
    }
    if (threadIdx.x == 0) {
        mine(out)[0] = between - start;
        mine(out)[1] = cycles() - between;
    }
}

// One thread stores `nbytes` by cp.async.bulk, `count` times, each after wait_group.read. out: cycles until the last
// source is free, and until all data is written.
extern "C" __global__ void __launch_bounds__(32) bulk_stores(u64* out, char* data, int nbytes, int count) {
    for (int i = threadIdx.x * 4; i < nbytes; i += 128) *(u32*)(dynamic + i) = i;
    fence_proxy();
    __syncwarp();
    if (threadIdx.x != 0) return;
    char* to = data + (u64)blockIdx.x * nbytes * count;
    u64 start = cycles();
    for (int i = 0; i < count; ++i) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + (u64)i * nbytes),
                     "r"(shared_address(dynamic)), "r"(nbytes)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    u64 read = cycles();
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    mine(out)[0] = read - start;
    mine(out)[1] = cycles() - start;
}

// Each `sharers` consecutive CTAs load the same bytes `count` times, four loads of `nbytes` in flight. out: cycles, ns,
// and bytes.
extern "C" __global__ void __launch_bounds__(32)
    shared_loads(u64* out, const char* data, int nbytes, int pieces, int count, int sharers) {
    if (threadIdx.x != 0) return;
    const char* from = data + (u64)(blockIdx.x / sharers) * nbytes * pieces;
    for (int stage = 0; stage < 4; ++stage) start_barrier(shared_address(barriers + stage), 1);
    barriers_started();
    u64 start = cycles(), began = nanoseconds();
    for (int i = 0; i < count + 4; ++i) {
        u32 barrier = shared_address(barriers + i % 4);
        if (i >= 4) wait(barrier, (i / 4 - 1) & 1);
        if (i < count) {
            expect(barrier, nbytes);
            load_bytes(shared_address(dynamic) + i % 4 * nbytes, from + (u64)(i % pieces) * nbytes, nbytes, barrier);
        }
    }
    mine(out)[0] = cycles() - start;
    mine(out)[1] = nanoseconds() - began;
    mine(out)[2] = (u64)count * nbytes;
}

// 128 threads load 16 KiB by cp.async, `count` times, three groups in flight. out: cycles, bytes.
extern "C" __global__ void __launch_bounds__(128) cp_async(u64* out, const char* data, int count) {
    __syncthreads();
    u64 start = cycles();
    for (int i = 0; i < count; ++i) {
        for (int part = 0; part < 8; ++part) {
            int offset = part * 2048 + threadIdx.x * 16;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                             shared_address(dynamic) + i % 3 * 16384 + offset),
                         "l"(data + offset)
                         : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    if (threadIdx.x == 0) {
        mine(out)[0] = cycles() - start;
        mine(out)[1] = (u64)count * 16384;
    }
}

// The CTA waits for `busy` cycles. out: the SM, ns and cycle of the CTA's start, cycle and ns of its end.
__device__ __forceinline__ void stamp(u64* out, int busy) {
    u64 start = cycles(), began = nanoseconds();
    while (cycles() - start < busy) {
    }
    if (threadIdx.x == 0) {
        mine(out)[0] = sm_id();
        mine(out)[1] = began;
        mine(out)[2] = start;
        mine(out)[4] = nanoseconds();
        mine(out)[3] = cycles();
    }
}

extern "C" __global__ void __launch_bounds__(384) stamps_1(u64* out, int busy) { stamp(out, busy); }
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384) stamps_2(u64* out, int busy) {
    stamp(out, busy);
}

#ifdef TCGEN05

// --- tensor memory

template <int GROUP>
__device__ __forceinline__ u32 allocate(int columns) {
    if (GROUP == 1)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         shared_address(&columns_at)),
                     "r"(columns)
                     : "memory");
    else
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         shared_address(&columns_at)),
                     "r"(columns)
                     : "memory");
    __syncwarp();
    return *(volatile u32*)&columns_at;
}

template <int GROUP>
__device__ __forceinline__ void release(u32 at, int columns) {
    if (GROUP == 1)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(at), "r"(columns) : "memory");
    else
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(at), "r"(columns) : "memory");
}

template <int GROUP>
__device__ __forceinline__ void commit(u32 barrier) {
    if (GROUP == 1)
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                     : "memory");
    else
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                     : "memory");
}

template <int GROUP>
__device__ __forceinline__ void copy_scales(u32 columns, u64 from) {
    if (GROUP == 1)
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(columns), "l"(from) : "memory");
    else
        asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(columns), "l"(from) : "memory");
}

__device__ __forceinline__ u64 operand(u32 place) {  // rows of 128 bytes along K, swizzled by 128 bytes
    return 0x4000404000000000ull | (place & 0x3ffff) >> 4;
}

__device__ __forceinline__ u64 scales(u32 place) { return 0x400800010000ull | (place & 0x3ffff) >> 4; }

constexpr int A_BYTES = 128 * 128, B_BYTES = 256 * 128, SCALE_BYTES = 2048, SCALE_COLUMNS = 448;

__device__ __forceinline__ void fill(const char* data, u32 scale_word) {
    for (int i = threadIdx.x * 4; i < A_BYTES + B_BYTES; i += blockDim.x * 4)
        *(u32*)(dynamic + i) = *(const u32*)(data + i);
    for (int i = threadIdx.x * 4; i < SCALE_BYTES; i += blockDim.x * 4)
        *(u32*)(dynamic + A_BYTES + B_BYTES + i) = scale_word;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 8; ++i) start_barrier(shared_address(barriers + i), 1);
        barriers_started();
    }
    fence_proxy();
    __syncthreads();
}

#define PLAIN(KIND, GROUP)                                                                                      \
    struct Plain_##KIND##_##GROUP {                                                                             \
        static __device__ __forceinline__ void issue(u32 d, u64 a, u64 b, u32 idesc, u32 sa, u32 sb, u32 add) { \
            asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::" #GROUP ".kind::" #KIND  \
                         " [%0], %1, %2, %3, p; }" ::"r"(d),                                                     \
                         "l"(a), "l"(b), "r"(idesc), "r"(add)                                                   \
                         : "memory");                                                                           \
        }                                                                                                       \
    };
#define SCALED(KIND, BLOCK, GROUP)                                                                              \
    struct Scaled_##KIND##_##GROUP {                                                                            \
        static __device__ __forceinline__ void issue(u32 d, u64 a, u64 b, u32 idesc, u32 sa, u32 sb, u32 add) { \
            asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::" #GROUP ".kind::" #KIND  \
                         ".block_scale." #BLOCK " [%0], %1, %2, %3, [%5], [%6], p; }" ::"r"(d),                 \
                         "l"(a), "l"(b), "r"(idesc), "r"(add), "r"(sa), "r"(sb)                                 \
                         : "memory");                                                                           \
        }                                                                                                       \
    };

// `count` MMAs of 32 bytes along K into one accumulator. out: cycles from the first issue until the commit's arrival is
// seen, and cycles of the issues alone.
template <typename Product, int GROUP>
__device__ __forceinline__ void products(u64* out, const char* data, u32 scale_word, u32 idesc, int count) {
    fill(data, scale_word);
    if (GROUP == 2) sync_cluster();
    u32 at = 0;
    if (threadIdx.x < 32) at = allocate<GROUP>(512);
    if (GROUP == 2) sync_cluster();
    if (threadIdx.x == 0 && (GROUP == 1 || blockIdx.x % 2 == 0)) {
        u32 place = shared_address(dynamic), done = shared_address(barriers);
        u64 a = operand(place), b = operand(place + A_BYTES);
        for (int i = 0; i < 4; ++i) {
            copy_scales<GROUP>(at + SCALE_COLUMNS + 4 * i, scales(place + A_BYTES + B_BYTES + 512 * i));
            copy_scales<GROUP>(at + SCALE_COLUMNS + 16 + 4 * i, scales(place + A_BYTES + B_BYTES + 512 * i));
        }
        commit<GROUP>(done);
        wait(done, 0);
        u32 sa = at + SCALE_COLUMNS, sb = at + SCALE_COLUMNS + 16;
        for (u32 round = 0; round < 2; ++round) {  // the first round loads the instructions into the cache
            u64 start = cycles();
#pragma unroll 1
            for (int i = 0; i < count; ++i) Product::issue(at, a + 2 * (i & 3), b + 2 * (i & 3), idesc, sa, sb, i > 0);
            u64 issued = cycles();
            commit<GROUP>(done);
            wait(done, 1 ^ round);
            mine(out)[0] = cycles() - start;
            mine(out)[1] = issued - start;
        }
    }
    __syncthreads();
    if (GROUP == 2) sync_cluster();
    if (threadIdx.x < 32) release<GROUP>(at, 512);
}

#define PRODUCTS(NAME, PRODUCT, GROUP)                                                                            \
    extern "C" __global__ void __cluster_dims__(GROUP, 1, 1) __launch_bounds__(128)                              \
        products_##NAME##_##GROUP(u64* out, const char* data, u32 scale_word, u32 idesc, int count) {            \
        products<PRODUCT##_##GROUP, GROUP>(out, data, scale_word, idesc, count);                                 \
    }
#define BOTH(MACRO, ...) MACRO(__VA_ARGS__, 1) MACRO(__VA_ARGS__, 2)

BOTH(PLAIN, f16)
BOTH(PLAIN, tf32)
BOTH(PLAIN, f8f6f4)
BOTH(SCALED, mxf8f6f4, block32)
BOTH(SCALED, mxf4nvf4, block16)
BOTH(PRODUCTS, f16, Plain_f16)
BOTH(PRODUCTS, tf32, Plain_tf32)
BOTH(PRODUCTS, f8f6f4, Plain_f8f6f4)
BOTH(PRODUCTS, mxf8f6f4, Scaled_mxf8f6f4)
BOTH(PRODUCTS, mxf4nvf4, Scaled_mxf4nvf4)

// `count` copies of 512 bytes of scales. out: cycles until the commit's arrival is seen.
extern "C" __global__ void __launch_bounds__(128) scale_copies(u64* out, const char* data, int count) {
    fill(data, 0x7f7f7f7f);
    u32 at = 0;
    if (threadIdx.x < 32) at = allocate<1>(512);
    if (threadIdx.x == 0) {
        u64 from = scales(shared_address(dynamic) + A_BYTES + B_BYTES);
        for (u32 round = 0; round < 2; ++round) {
            u64 start = cycles();
#pragma unroll 1
            for (int i = 0; i < count; ++i) copy_scales<1>(at + 4 * (i & 63), from);
            commit<1>(shared_address(barriers));
            wait(shared_address(barriers), round);
            mine(out)[0] = cycles() - start;
        }
    }
    __syncthreads();
    if (threadIdx.x < 32) release<1>(at, 512);
}

// An order that PTX does not guarantee: MMAs with scales of 1, then a copy that overwrites the scales with 2, without a
// wait between them. data: bytes of 1.0 as e4m3. out: number of lanes of warp 0 with a wrong sum, and the rounds.
extern "C" __global__ void __launch_bounds__(128)
    copy_after_products(u64* out, const char* data, u32 idesc, int count, int rounds) {
    fill(data, 0x7f7f7f7f);
    for (int i = threadIdx.x * 4; i < 512; i += 512) *(u32*)(dynamic + A_BYTES + B_BYTES + 512 + i) = 0x80808080;
    fence_proxy();
    __syncthreads();
    u32 at = 0;
    if (threadIdx.x < 32) at = allocate<1>(512);
    if (threadIdx.x < 32) {
        u32 place = shared_address(dynamic), done = shared_address(barriers), wrong = 0;
        u64 a = operand(place), b = operand(place + A_BYTES), once = scales(place + A_BYTES + B_BYTES);
        u32 sa = at + SCALE_COLUMNS, sb = sa + 16;
        for (int round = 0; round < rounds; ++round) {
            if (threadIdx.x == 0) {
                copy_scales<1>(sa, once);
                copy_scales<1>(sb, once);
                copy_scales<1>(sb + 4, once);
#pragma unroll 1
                for (int i = 0; i < count; ++i)
                    Scaled_mxf8f6f4_1::issue(at, a + 2 * (i & 3), b + 2 * (i & 3), idesc, sa, sb, i > 0);
                copy_scales<1>(sa, once + (512 >> 4));
                commit<1>(done);
            }
            __syncwarp();
            wait(done, round & 1);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            u32 sum;
            asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(sum) : "r"(at) : "memory");
            asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
            asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
            wrong += __popc(__ballot_sync(0xffffffff, __uint_as_float(sum) != 32.0f * count));
        }
        if (threadIdx.x == 0) {
            mine(out)[0] = wrong;
            mine(out)[1] = rounds;
        }
        release<1>(at, 512);
    }
}

// Two CTAs on an SM each allocate half of tensor memory. out: the SM, ns of the request, of the allocation, of the end.
extern "C" __global__ void __launch_bounds__(32) half_allocations(u64* out, int relinquish, int busy) {
    u64 asked = nanoseconds();
    u32 at = allocate<1>(256);
    u64 got = nanoseconds(), start = cycles();
    if (relinquish) asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
    while (cycles() - start < busy) {
    }
    release<1>(at, 256);
    if (threadIdx.x == 0) {
        mine(out)[0] = sm_id();
        mine(out)[1] = asked;
        mine(out)[2] = got;
        mine(out)[3] = nanoseconds();
    }
}

// Cancel clusters that have not started, one at a time, until a request fails. out: cycles from requests to responses,
// number of requests, number of cancelled clusters, ns of the start and of the failed request.
extern "C" __global__ void __launch_bounds__(32) cancels(u64* out, int busy) {
    if (threadIdx.x != 0) return;
    u32 done = shared_address(barriers), at = shared_address(answer), more = 1;
    u64 began = nanoseconds(), together = 0, asked = 0;
    start_barrier(done, 1);
    barriers_started();
    while (more) {
        u64 start = cycles();
        expect(done, 16);
        asm volatile(
            "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(at),
            "r"(done)
            : "memory");
        wait(done, asked & 1);
        together += cycles() - start;
        ++asked;
        asm volatile(
            "{ .reg .b128 given; .reg .pred p; ld.shared.b128 given, [%1];\n"
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, given; selp.u32 %0, 1, 0, p; }"
            : "=r"(more)
            : "r"(at)
            : "memory");
        fence_proxy();
        start = cycles();
        while (more && cycles() - start < busy) {
        }
    }
    mine(out)[0] = together;
    mine(out)[1] = asked;
    mine(out)[2] = asked - 1;
    mine(out)[3] = began;
    mine(out)[4] = nanoseconds();
}

#endif

#ifdef MMA_SYNC

// Each warp has four accumulators. out: cycles of `count` rounds of four MMAs.
template <typename Product>
__device__ __forceinline__ void warp_products(u64* out, const char* data, u32 scale_word, int count) {
    u32 a[4], b[2];
    for (int i = 0; i < 4; ++i) a[i] = ((const u32*)data)[threadIdx.x + 32 * i];
    for (int i = 0; i < 2; ++i) b[i] = ((const u32*)data)[threadIdx.x + 128 + 32 * i];
    float d[4][4] = {};
    u64 elapsed = 0;
    for (int round = 0; round < 2; ++round) {
        __syncthreads();
        u64 start = cycles();
#pragma unroll 1
        for (int i = 0; i < count; ++i)
            for (int each = 0; each < 4; ++each) Product::issue(d[each], a, b, scale_word);
        elapsed = cycles() - start;
    }
    float sum = 0;
    for (int i = 0; i < 16; ++i) sum += d[i / 4][i % 4];
    if (sum == 1.2345e-30f) mine(out)[7] = 1;  // keeps the compiler from removing the MMAs
    if (threadIdx.x == 0) mine(out)[0] = elapsed;
}

#define WARP(NAME, TEXT, SCALES)                                                                                     \
    struct Warp_##NAME {                                                                                            \
        static __device__ __forceinline__ void issue(float (&d)[4], u32 (&a)[4], u32 (&b)[2], u32 scale) {           \
            asm volatile(TEXT " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}" SCALES ";"            \
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                           \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scale));           \
        }                                                                                                           \
    };                                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                               \
        warps_##NAME(u64* out, const char* data, u32 scale_word, int count) {                                       \
        warp_products<Warp_##NAME>(out, data, scale_word, count);                                                   \
    }

WARP(f16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "")
WARP(f8f6f4, "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32", "")
WARP(mxf8f6f4,
     "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
     ", {%10}, {0, 0}, {%10}, {0, 0}")
WARP(mxf4nvf4,
     "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
     ", {%10}, {0, 0}, {%10}, {0, 0}")

#endif
