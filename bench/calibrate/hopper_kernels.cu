// Microbenchmarks of one SM of Hopper and of what it shares with others. hopper_micro.py compiles them behind
// `instructions.cu` of first-light, with a struct Mma<N> for each width of wgmma and the entries of the templates.

struct alignas(64) Map {
    u64 words[16];
};

template <int N>
struct Mma;

constexpr int WARPGROUP = 128, ROW_BYTES = 128, BOX_BYTES = 32768, STAGES = 6, FEWER_STAGES = 4;
constexpr int A_BYTES = 64 * ROW_BYTES, B_BYTES = 256 * ROW_BYTES, OPERAND_BYTES = 2 * A_BYTES + B_BYTES;

// --- one instruction each

__device__ __forceinline__ int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ u32 in_cta(u32 place, int rank) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(place), "r"(rank));
    return there;
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void arrive_there(u32 barrier) {  // releases to its own CTA only, as for what it has read
    asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void release_there(u32 barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ bool is_over_for_cluster(u32 barrier, int parity) {
    u32 over;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
    return over;
}

// Asks again and again, where `wait` lets the warp be put to sleep.
__device__ __forceinline__ void spin(u32 barrier, int parity) {
    u32 over = 0;
    for (int tries = 0; !over; ++tries) {
        asm volatile(
            "{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(over)
            : "r"(barrier), "r"(parity)
            : "memory");
        if (tries == MOST_TRIES) __trap();
    }
}

__device__ __forceinline__ void wait_for_cluster(u32 barrier, int parity) {
    for (int tries = 0; !is_over_for_cluster(barrier, parity); ++tries)
        if (tries == MOST_TRIES) __trap();
}

__device__ __forceinline__ void load_box(u32 place, const Map& map, int row, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            place),
        "l"(&map), "r"(0), "r"(row), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void load_box_for(int ctas, u32 place, const Map& map, int row, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
        "{%2, %3}], [%4], %5;" ::"r"(place),
        "l"(&map), "r"(0), "r"(row), "r"(barrier), "h"((unsigned short)((1 << ctas) - 1))
        : "memory");
}

__device__ __forceinline__ void store_box(const Map& map, int row, u32 place) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(0),
                 "r"(row), "r"(place)
                 : "memory");
}

__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void stores_written() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

__device__ __forceinline__ void sync_warpgroup(int which) {
    asm volatile("bar.sync %0, 128;" ::"r"(which + 1) : "memory");
}

template <int CTAS>
__device__ __forceinline__ void sync_all() {
    if (CTAS > 1)
        sync_cluster();
    else
        __syncthreads();
}

// --- wgmma

__device__ __forceinline__ u64 operand(u32 place) {  // rows of 128 bytes along k, swizzled by 128 bytes
    return (u64)1 << 62 | (u64)(8 * ROW_BYTES >> 4) << 32 | (u64)1 << 16 | (place & 0x3ffff) >> 4;
}

enum Waits { FREE, BEHIND, EACH };  // for nothing, for the k-tile before, for each k-tile

template <int N, bool FROM_REGISTERS, Waits WAITS>
__device__ __forceinline__ void multiply(float (&d)[N / 2], u64 a, u64 b, const u32 (&r)[4], int tiles) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            if (FROM_REGISTERS)
                Mma<N>::registers(d, r, b + 2 * step);
            else
                Mma<N>::shared(d, a + 2 * step, b + 2 * step);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (WAITS == BEHIND) asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (WAITS == EACH) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ __forceinline__ void fill_operands(const char* data) {
    for (int i = threadIdx.x * 4; i < OPERAND_BYTES; i += blockDim.x * 4) *(u32*)(dynamic + i) = *(const u32*)(data + i);
    fence_proxy();
    __syncthreads();
}

template <int VALUES>
__device__ __forceinline__ void keep(const float (&values)[VALUES], u64* place) {  // so that they are computed
    float sum = 0;
    for (int i = 0; i < VALUES; ++i) sum += values[i];
    if (sum == 1.2345e-30f) *place = 1;
}

// out: cycles of each warpgroup for so many k-tiles of 64, 64 x N each.
template <int N, bool FROM_REGISTERS, Waits WAITS>
__device__ __forceinline__ void products(u64* out, const char* data, int tiles) {
    fill_operands(data);
    int group = threadIdx.x / WARPGROUP;
    u64 a = operand(shared_address(dynamic) + group * A_BYTES), b = operand(shared_address(dynamic) + 2 * A_BYTES);
    u32 r[4];
    for (int i = 0; i < 4; ++i) r[i] = ((const u32*)dynamic)[threadIdx.x + i * WARPGROUP];
    float d[N / 2];
    for (int i = 0; i < N / 2; ++i) d[i] = 0;
    u64 elapsed = 0;
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {  // the first one fetches the instructions
        __syncthreads();
        u64 start = cycles();
        multiply<N, FROM_REGISTERS, WAITS>(d, a, b, r, tiles);
        elapsed = cycles() - start;
    }
    keep(d, out + blockIdx.x * SLOTS + 7);
    if (threadIdx.x % WARPGROUP == 0) out[blockIdx.x * SLOTS + group] = elapsed;
}

// The warpgroups multiply, and a last warp has so many boxes in flight, one each `pace` cycles at most. out: cycles of
// each warpgroup, ns of the first, boxes, and cycles of all of them together where one is in flight.
template <int N>
__device__ __forceinline__ void products_with_loads(const Map& map, u64* out, const char* data, int tiles, int stages,
                                                    int rows, int pace, int span) {
    u32 ring = shared_address(dynamic) + OPERAND_BYTES, full = ring + FEWER_STAGES * BOX_BYTES;
    volatile int* finished = (volatile int*)(dynamic + OPERAND_BYTES + FEWER_STAGES * (BOX_BYTES + 8));
    int group = threadIdx.x / WARPGROUP, groups = blockDim.x / WARPGROUP;
    u64* mine = out + blockIdx.x * SLOTS;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < FEWER_STAGES; ++stage) start_barrier(full + 8 * stage, 1);
        barriers_started();
        *finished = 0;
    }
    fill_operands(data);
    if (group < groups) {
        u64 a = operand(shared_address(dynamic) + group * A_BYTES), b = operand(shared_address(dynamic) + 2 * A_BYTES);
        u32 r[4] = {0, 0, 0, 0};
        float d[N / 2];
        for (int i = 0; i < N / 2; ++i) d[i] = 0;
        multiply<N, false, BEHIND>(d, a, b, r, 8);
        u64 began = nanoseconds(), start = cycles();
        multiply<N, false, BEHIND>(d, a, b, r, tiles);
        u64 elapsed = cycles() - start, took = nanoseconds() - began;
        keep(d, mine + 7);
        if (threadIdx.x % WARPGROUP == 0) {
            mine[group] = elapsed;
            if (group == 0) mine[2] = took;
            atomicAdd((int*)finished, 1);
        }
    } else if (threadIdx.x % 32 == 0 && stages > 0) {
        u64 waited = 0, sent = 0, due = cycles();
        int first = sm_id() * span, arrived = 0, stage = 0, parity = 1, offset = 0;
#pragma unroll 1
        for (int issued = 0; *finished != groups; ++issued) {
            if (issued >= stages) {
                wait(full + 8 * stage, parity);
                ++arrived;
                waited += cycles() - sent;
            }
            while (cycles() < due) {
            }
            due += pace;
            sent = cycles();
            expect(full + 8 * stage, rows * ROW_BYTES);
            load_box(ring + stage * BOX_BYTES, map, first + offset, full + 8 * stage);
            offset = offset + rows < span ? offset + rows : 0;
            if (++stage == stages) stage = 0, parity ^= 1;
        }
        for (int left = 0; left < stages; ++left) {
            wait(full + 8 * stage, parity);
            ++arrived;
            if (++stage == stages) stage = 0, parity ^= 1;
        }
        mine[3] = arrived;
        mine[4] = waited;
    }
}

// --- TMA loads

// One thread has `stages` boxes in flight, which each CTA of a cluster loads a part of for all. What an SM loads depends
// on its role: `span` rows, again and again, from first_row on. Only each `every`th SM below `limit` takes part.
// out: cycles and ns after the first `stages` boxes, how many they were, the SM.
template <int CTAS>
__device__ __forceinline__ void loads(const Map& map, u64* out, int boxes, int stages, int rows, int first_row, int span,
                                      int divisor, int modulus, int every, int limit) {
    u32 ring = shared_address(dynamic), full = ring + STAGES * BOX_BYTES, empty = full + 8 * STAGES;
    int sm = sm_id(), rank = cluster_rank(), part = rows / CTAS;
    if (CTAS == 1 && (sm % every || sm >= limit)) return;
    int first = first_row + (CTAS == 1 ? sm / divisor % modulus : (int)blockIdx.x / CTAS) * span;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            start_barrier(full + 8 * stage, 1);
            start_barrier(empty + 8 * stage, CTAS);
        }
        barriers_started();
    }
    sync_all<CTAS>();
    if (threadIdx.x == 0) {
        u64 start = 0, began = 0;
        int stage = 0, parity = 1, offset = 0;  // parity: of the phase that a stage's barriers are over with
#pragma unroll 1
        for (int i = 0; i < boxes + stages; ++i) {
            u32 its_full = full + 8 * stage, its_empty = empty + 8 * stage;
            if (i >= stages) {
                wait(its_full, parity);
                if (CTAS > 1 && i < boxes)
                    for (int other = 0; other < CTAS; ++other) arrive_there(in_cta(its_empty, other));
                if (i == 2 * stages - 1) {
                    start = cycles();
                    began = nanoseconds();
                }
            }
            if (i < boxes) {
                if (CTAS > 1 && i >= stages) wait(its_empty, parity);
                expect(its_full, rows * ROW_BYTES);
                int row = first + offset + rank * part;
                u32 place = ring + stage * BOX_BYTES + rank * part * ROW_BYTES;
                if (CTAS > 1)
                    load_box_for(CTAS, place, map, row, its_full);
                else
                    load_box(place, map, row, its_full);
                offset = offset + rows < span ? offset + rows : 0;
            }
            if (++stage == stages) stage = 0, parity ^= 1;
        }
        u64* mine = out + blockIdx.x * SLOTS;
        mine[0] = cycles() - start;
        mine[1] = nanoseconds() - began;
        mine[2] = boxes - stages;
        mine[3] = sm;
    }
    sync_all<CTAS>();
}

// One box at a time, of rows that follow each other. out: cycles from the issue until a thread that spins sees it, of
// the first ones and of the last `boxes`, together.
extern "C" __global__ void load_once(const __grid_constant__ Map map, u64* out, int boxes, int rows, int limit) {
    u32 ring = shared_address(dynamic), full = ring + STAGES * BOX_BYTES;
    if (threadIdx.x != 0 || sm_id() >= limit) return;
    start_barrier(full, 1);
    barriers_started();
    u64 together = 0;
    for (int i = 0; i < boxes + 2; ++i) {
        u64 start = cycles();
        expect(full, rows * ROW_BYTES);
        load_box(ring, map, (sm_id() * (boxes + 2) + i) * rows, full);
        spin(full, i & 1);
        if (i >= 2) together += cycles() - start;
    }
    out[blockIdx.x * SLOTS] = together;
    out[blockIdx.x * SLOTS + 1] = boxes;
}

// Of each k-tile its stage, but no sooner than `pace` cycles after the one before. out: cycles from the first k-tile to
// the last, the SM.
__device__ __forceinline__ void give_back(u64* out, int k_tiles, int stages, int pace, u32 full, u32 empty) {
    int stage = 0, parity = 0;
    u64 start = 0, due = 0;
#pragma unroll 1
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
        wait(full + 8 * stage, parity);
        if (k_tile == 0) start = due = cycles();
        while (cycles() < due) {
        }
        due = (due > cycles() - pace ? due : cycles()) + pace;
        arrive(empty + 8 * stage);
        if (++stage == stages) stage = 0, parity ^= 1;
    }
    out[blockIdx.x * SLOTS] = cycles() - start;
    out[blockIdx.x * SLOTS + 1] = sm_id();
}

// The k-tiles of a product, loaded by one thread of each CTA and given back by another, no sooner than `pace` cycles
// after the one before: `a` rows that CTAs share whose numbers are equal modulo `across`, and `b` that as many follow
// each other for. All CTAs run at once; by_sm: their numbers are those of their SMs. out: cycles from the first k-tile
// to the last, the SM.
extern "C" __global__ void shared_tiles(const __grid_constant__ Map map_a, const __grid_constant__ Map map_b, u64* out,
                                        int k_tiles, int stages, int a, int b, int across, int by_sm, int pace) {
    int rows = a + b, number = by_sm ? sm_id() : blockIdx.x, all = across * a + (gridDim.x / across + 1) * b;
    u32 ring = shared_address(dynamic), full = ring + stages * rows * ROW_BYTES, empty = full + 8 * stages;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < stages; ++stage) {
            start_barrier(full + 8 * stage, 1);
            start_barrier(empty + 8 * stage, 1);
        }
        barriers_started();
    }
    __syncthreads();
    int stage = 0, parity = 0;
    if (threadIdx.x == 0) {
        int first_a = number % across * a, first_b = across * a + number / across * b;
#pragma unroll 1
        for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
            wait(empty + 8 * stage, parity ^ 1);
            expect(full + 8 * stage, rows * ROW_BYTES);
            u32 place = ring + stage * rows * ROW_BYTES;
            load_box(place, map_a, (k_tile & 3) * all + first_a, full + 8 * stage);
            load_box(place + a * ROW_BYTES, map_b, (k_tile & 3) * all + first_b, full + 8 * stage);
            if (++stage == stages) stage = 0, parity ^= 1;
        }
    } else if (threadIdx.x == 32) {
        give_back(out, k_tiles, stages, pace, full, empty);
    }
}

__device__ __forceinline__ bool elected() {
    u32 chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
    return chosen;
}

// The k-tiles of `high` times `wide` tiles of a product, one a CTA, as fast as they come, but `pace` cycles one after
// another at least. CTAs that follow each other go down the rows of a group, then to the next column, and each begins
// up to `skew` cycles late. out: cycles from the first k-tile to the last, the SM.
template <int CTAS>
__device__ __forceinline__ void squares(const Map& map_a, const Map& map_b, u64* out, int k_tiles, int stages, int a,
                                        int b, int high, int wide, int group, int pace, int skew) {
    int rows = a + b, all = high * a + wide * b, of_a_group = group * wide, place = blockIdx.x % of_a_group;
    int first = blockIdx.x / of_a_group * group, left = min(group, high - first);
    int first_a = (first + place % left) * a, first_b = high * a + place / left * b;
    u32 ring = shared_address(dynamic), full = ring + stages * rows * ROW_BYTES, empty = full + 8 * stages;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < stages; ++stage) {
            start_barrier(full + 8 * stage, 1);
            start_barrier(empty + 8 * stage, 1);
        }
        barriers_started();
    }
    sync_all<CTAS>();
    int stage = 0, parity = 0, moved = rows * ROW_BYTES;
    if (threadIdx.x < 32) {  // a whole warp, so that what TMA takes is uniform
        u64 began = cycles(), late = skew ? blockIdx.x * 2654435761u % 65536 * (u64)skew / 65536 : 0;
        while (cycles() - began < late) {
        }
#pragma unroll 1
        for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
            u32 its_full = full + 8 * stage, to = ring + stage * moved;
            wait(empty + 8 * stage, parity ^ 1);
            if (elected()) {
                expect(its_full, moved);
                load_box(to, map_a, (k_tile & 3) * all + first_a, its_full);
                load_box(to + a * ROW_BYTES, map_b, (k_tile & 3) * all + first_b, its_full);
            }
            __syncwarp();
            if (++stage == stages) stage = 0, parity ^= 1;
        }
    } else if (threadIdx.x == 32) {
        give_back(out, k_tiles, stages, pace, full, empty);
    }
}

// What threads move themselves. A warp goes on by `step` bytes with each of `count` instructions, its lanes are
// `between` bytes apart, and its first one begins at its number times `apart`, where `fold` of them stand side by side.
// out: cycles of each CTA from its first instruction to the last one's end, the SM.
struct alignas(16) Two {
    u64 low, high;
};

template <typename T>
__device__ __forceinline__ void store(char* place, int i) {
    *(volatile T*)place = (T)i;
}

template <>
__device__ __forceinline__ void store<Two>(char* place, int i) {
    asm volatile("st.global.v2.u64 [%0], {%1, %1};" ::"l"(place), "l"((u64)i) : "memory");
}

template <typename T>
__device__ __forceinline__ u64 fetch(const char* place) {
    return *(const volatile T*)place;
}

template <>
__device__ __forceinline__ u64 fetch<Two>(const char* place) {
    u64 low, high;
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(place) : "memory");
    return low ^ high;
}

template <typename T, bool STORES>
__device__ __forceinline__ void scattered(u64* out, char* data, int count, int step, int between, int apart, int fold,
                                          int beside) {
    int warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    char* place = data + (u64)(warp / fold) * apart + warp % fold * step * count + (u64)(lane / beside) * between;
    place += lane % beside * sizeof(T);
    u64 kept = 0;
    __syncthreads();
    u64 start = cycles();
#pragma unroll 8
    for (int i = 0; i < count; ++i, place += step) {
        if (STORES)
            store<T>(place, i);
        else
            kept ^= fetch<T>(place);
    }
    __threadfence();
    if (!STORES && kept == 0x5a5a) out[SLOTS - 1] = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        out[blockIdx.x * SLOTS] = cycles() - start;
        out[blockIdx.x * SLOTS + 1] = sm_id();
    }
}

// A chain of plain loads past the L1. out: cycles.
extern "C" __global__ void chase(u64* out, const int* next, int hops) {
    int at = 0;
    u64 start = cycles();
    for (int hop = 0; hop < hops; ++hop) asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(at) : "l"(next + at) : "memory");
    u64 elapsed = cycles() - start;
    out[0] = elapsed;
    out[1] = at;
}

// --- barriers and fences

#define TIMED(slot, operation)                        \
    _Pragma("unroll 1") for (int round = 0; round < 2; ++round) { \
        u64 start = cycles();                         \
        _Pragma("unroll") for (int i = 0; i < 32; ++i) { \
            operation;                                \
        }                                             \
        out[slot] = cycles() - start;                 \
    }

// out: cycles of 32 each, by one thread: nothing, arrive, arrive.expect_tx, a wait that is over, arrive and wait,
// fence.proxy.async, the same after a store, a commit and wait of no stores.
extern "C" __global__ void signals(u64* out) {
    if (threadIdx.x != 0) return;
    u32 many = shared_address(dynamic), over = many + 8, single = many + 16, place = many + 24;
    start_barrier(many, 1 << 18);
    start_barrier(over, 1);
    start_barrier(single, 1);
    barriers_started();
    arrive(over);
    wait(over, 0);
    TIMED(0, )
    TIMED(1, arrive(many))
    TIMED(2, expect(many, 0))
    TIMED(3, wait(over, 0))
    TIMED(4, arrive(single); wait(single, i & 1))
    TIMED(5, fence_proxy())
    TIMED(6, asm volatile("st.shared.u32 [%0], %1;" ::"r"(place), "r"(i) : "memory"); fence_proxy())
    TIMED(7, commit_stores(); stores_read<0>())
}

// out: cycles of 32 each, of one thread: fence.acq_rel.cluster, .gpu; the same after a store to global memory.
extern "C" __global__ void fences(u64* out, u32* place) {
    if (threadIdx.x != 0) return;
    TIMED(0, asm volatile("fence.acq_rel.cluster;" ::: "memory"))
    TIMED(1, asm volatile("fence.acq_rel.gpu;" ::: "memory"))
    TIMED(2, asm volatile("st.global.u32 [%0], %1;" ::"l"(place + i * 32), "r"(i) : "memory");
          asm volatile("fence.acq_rel.cluster;" ::: "memory"))
    TIMED(3, asm volatile("st.global.u32 [%0], %1;" ::"l"(place + i * 32), "r"(i) : "memory");
          asm volatile("fence.acq_rel.gpu;" ::: "memory"))
}

// out: cycles until 8 loads of one box each are issued, and until all have arrived.
extern "C" __global__ void issues(const __grid_constant__ Map map, u64* out, int rows) {
    u32 ring = shared_address(dynamic), full = ring + STAGES * BOX_BYTES;
    if (threadIdx.x != 0) return;
    start_barrier(full, 1);
    barriers_started();
#pragma unroll 1
    for (int round = 0; round < 4; ++round) {
        u64 start = cycles();
        expect(full, 8 * rows * ROW_BYTES);
#pragma unroll
        for (int i = 0; i < 8; ++i) load_box(ring + i % STAGES * BOX_BYTES, map, (round * 8 + i) * rows, full);
        out[0] = cycles() - start;
        wait(full, round & 1);
        out[1] = cycles() - start;
    }
}

// Of one CTA; the same, and spinning; of two, told that something was read; of two, with a release.
enum Reach { WARPS, SPINNING, TOLD, RELEASED };

// Two take turns, each with an arrival at the other's barrier. out: cycles of so many rounds, two arrivals each.
template <Reach REACH>
__device__ __forceinline__ void turns(u64* out, int rounds) {
    constexpr bool ALONE = REACH == WARPS || REACH == SPINNING;
    u32 barriers = shared_address(dynamic);
    int rank = cluster_rank(), player = ALONE ? threadIdx.x / 32 : rank;
    if (threadIdx.x == 0) {
        for (int which = 0; which < 2; ++which) start_barrier(barriers + 8 * which, 1);
        barriers_started();
    }
    sync_all<ALONE ? 1 : 2>();
    if (threadIdx.x == (ALONE ? 32 * player : 0)) {
        u32 own = barriers + 8 * player, other = barriers + 8 * (1 - player);
        if (!ALONE) other = in_cta(other, 1 - rank);
        u64 start = cycles();
        for (int round = 0; round < rounds; ++round) {
            for (int turn = 0; turn < 2; ++turn) {
                if (turn == player) {
                    if (ALONE) arrive(other);
                    if (REACH == TOLD) arrive_there(other);
                    if (REACH == RELEASED) release_there(other);
                } else if (REACH == RELEASED) {
                    wait_for_cluster(own, round & 1);
                } else if (REACH == SPINNING) {
                    spin(own, round & 1);
                } else {
                    wait(own, round & 1);
                }
            }
        }
        out[blockIdx.x * SLOTS + (ALONE ? player : 0)] = cycles() - start;
    }
    sync_all<ALONE ? 1 : 2>();
}

// out: cycles of 32 of them.
template <int CTAS>
__device__ __forceinline__ void syncs(u64* out) {
    u64 elapsed = 0;
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
        sync_all<CTAS>();
        u64 start = cycles();
#pragma unroll 1
        for (int i = 0; i < 32; ++i) sync_all<CTAS>();
        elapsed = cycles() - start;
    }
    if (threadIdx.x == 0) out[blockIdx.x * SLOTS] = elapsed;
}

// The CTAs of a cluster give each other `vectors` times 16 bytes a thread, through the L2. how: 0, an arrival that
// releases to the cluster; 1, barrier.cluster; 2, an arrival that releases nothing. out: cycles from the start till the
// stores are issued, till it is told, till the other has told, till the other's values are there.
template <int CTAS>
__device__ __forceinline__ void exchange(u64* out, char* data, int vectors, int how) {
    u32 told = shared_address(dynamic);
    int rank = cluster_rank(), cta_bytes = vectors * blockDim.x * 16;
    if (threadIdx.x == 0) {
        start_barrier(told, CTAS);
        barriers_started();
    }
    char* mine = data + blockIdx.x * cta_bytes + threadIdx.x * 16;
    char* its = data + ((int)blockIdx.x - rank + (rank + 1) % CTAS) * cta_bytes + threadIdx.x * 16;
    u64 stored = 0, said = 0, heard = 0, loaded = 0;
    u32 sum = 0;
#pragma unroll 1
    for (int round = 0; round < 4; ++round) {
        sync_cluster();
        u64 start = cycles();
        for (int i = 0; i < vectors; ++i)
            asm volatile("st.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(mine + i * blockDim.x * 16), "r"(round) : "memory");
        stored = cycles() - start;
        __syncthreads();
        if (how == 1) {
            asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
            said = cycles() - start;
            asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        } else {
            if (threadIdx.x == 0)
                for (int other = 0; other < CTAS; ++other) {
                    if (how == 0)
                        release_there(in_cta(told, other));
                    else
                        arrive_there(in_cta(told, other));
                }
            said = cycles() - start;
            wait_for_cluster(told, round & 1);
        }
        heard = cycles() - start;
        for (int i = 0; i < vectors; ++i) {
            u32 x, y, z, w;
            asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                         : "l"(its + i * blockDim.x * 16)
                         : "memory");
            sum += x + y + z + w;
        }
        if (sum == 0x12345679) out[7] = 1;
        loaded = cycles() - start;
    }
    if (threadIdx.x == 0) {
        u64* place = out + blockIdx.x * SLOTS;
        place[0] = stored;
        place[1] = said;
        place[2] = heard;
        place[3] = loaded;
    }
    sync_cluster();
}

// --- stores

__device__ __forceinline__ void clear_boxes() {
    for (int i = threadIdx.x; i < 2 * BOX_BYTES / 4; i += blockDim.x) ((u32*)dynamic)[i] = 0;
    fence_proxy();
    __syncthreads();
}

// out: cycles from the issue of one store till it is committed, till its source was read, till it is written.
extern "C" __global__ void store_once(const __grid_constant__ Map map, u64* out, int rows) {
    clear_boxes();
    if (threadIdx.x != 0) return;
    u64* mine = out + blockIdx.x * SLOTS;
#pragma unroll 1
    for (int round = 0; round < 4; ++round) {
        u64 start = cycles();
        store_box(map, blockIdx.x * rows, shared_address(dynamic));
        commit_stores();
        mine[0] = cycles() - start;
        stores_read<0>();
        mine[1] = cycles() - start;
        stores_written();
        mine[2] = cycles() - start;
    }
}

// So many stores, of which one at most, or none, is still read when the next one begins. out: cycles until all are
// issued, and until all are written.
extern "C" __global__ void store_many(const __grid_constant__ Map map, u64* out, int rows, int boxes, int buffers) {
    clear_boxes();
    if (threadIdx.x != 0) return;
    u64* mine = out + blockIdx.x * SLOTS;
    u64 start = cycles();
    for (int box = 0; box < boxes; ++box) {
        store_box(map, (blockIdx.x * boxes + box) * rows, shared_address(dynamic) + box % 2 * BOX_BYTES);
        commit_stores();
        if (buffers == 2)
            stores_read<1>();
        else
            stores_read<0>();
    }
    mine[0] = cycles() - start;
    stores_written();
    mine[1] = cycles() - start;
}

enum Steps { CAST = 1, MATRICES = 2, WORDS = 4, FENCE = 8, SYNCS = 16, STORE = 32 };

__device__ __forceinline__ u32 pair(float low, float high) {
    u32 both;
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Strips of 64 rows of each warpgroup, from the registers of a product to memory, in the steps that are asked for.
// out: cycles of `count` strips, of each warpgroup.
template <int COLUMNS, int STEPS, int BUFFERS>
__device__ __forceinline__ void strips(const Map& map, u64* out, int count) {
    constexpr int PITCH = COLUMNS * 2, STRIP_BYTES = 64 * PITCH, CHUNKS = PITCH / 16 < 8 ? PITCH / 16 : 8;
    int group = threadIdx.x / WARPGROUP, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    float values[COLUMNS / 2];
    for (int i = 0; i < COLUMNS / 2; ++i) values[i] = threadIdx.x + i;
    u32 base = shared_address(dynamic) + group * 2 * STRIP_BYTES;
    u64 elapsed = 0;
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
        __syncthreads();
        u64 start = cycles();
#pragma unroll 2
        for (int strip = 0; strip < count; ++strip) {
            if (STEPS & STORE && threadIdx.x % WARPGROUP == 0) {
                if (BUFFERS == 2)
                    stores_read<1>();
                else
                    stores_read<0>();
            }
            if (STEPS & SYNCS) sync_warpgroup(group);
            u32 place = base + strip % BUFFERS * STRIP_BYTES;
#pragma unroll
            for (int column = 0; column < COLUMNS; column += 16) {
                u32 packed[4];
                for (int i = 0; i < 4; ++i) {
                    float low = values[column / 2 + 2 * i], high = values[column / 2 + 2 * i + 1];
                    packed[i] = STEPS & CAST ? pair(low, high) : __float_as_uint(low);
                }
                if (STEPS & MATRICES) {
                    u32 offset = (warp * 16 + lane % 16) * PITCH + column * 2 + lane / 16 * 16;
                    offset ^= (offset >> 7 & (CHUNKS - 1)) << 4;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(place + offset),
                                 "r"(packed[0]), "r"(packed[1]), "r"(packed[2]), "r"(packed[3])
                                 : "memory");
                }
                if (STEPS & WORDS)
                    for (int i = 0; i < 4; ++i) {
                        u32 offset = (warp * 16 + lane / 4 + i % 2 * 8) * PITCH + column * 2 + i / 2 * 16 + lane % 4 * 4;
                        offset ^= (offset >> 7 & (CHUNKS - 1)) << 4;
                        asm volatile("st.shared.u32 [%0], %1;" ::"r"(place + offset), "r"(packed[i]) : "memory");
                    }
            }
            if (STEPS & FENCE) fence_proxy();
            if (STEPS & SYNCS) sync_warpgroup(group);
            if (STEPS & STORE && threadIdx.x % WARPGROUP == 0) {
                store_box(map, ((blockIdx.x * 2 + group) * count + strip) * 64, place);
                commit_stores();
            }
        }
        elapsed = cycles() - start;
        stores_read<0>();
    }
    if (threadIdx.x % WARPGROUP == 0) out[blockIdx.x * SLOTS + group] = elapsed;
}

// --- launches

// out: the SM, ns and cycle when the CTA begins to work, cycle and ns when it ends, after `busy` cycles.
template <int CTAS>
__device__ __forceinline__ void stamps(u64* out, int busy) {
    u64 start = cycles(), began = nanoseconds();
    while (cycles() - start < busy) {
    }
    if (threadIdx.x == 0) {
        u64* mine = out + blockIdx.x * SLOTS;
        mine[0] = sm_id();
        mine[1] = began;
        mine[2] = start;
        mine[4] = nanoseconds();
        mine[3] = cycles();
    }
}

extern "C" __global__ void nothing() {}
