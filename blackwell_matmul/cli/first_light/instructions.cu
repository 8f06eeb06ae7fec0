// Functions of one PTX instruction each, for microbenchmarks. A program is this text, followed by a file of kernels:
// `micro.cu` here, or `hopper_kernels.cu` of bench/calibrate. A CTA writes SLOTS words into `out`.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int SLOTS = 8, MOST_TRIES = 1 << 20;

extern __shared__ __align__(1024) char dynamic[];

__device__ __forceinline__ u64 cycles() {
    u64 now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

__device__ __forceinline__ int sm_id() {
    int sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

__device__ __forceinline__ u32 shared_address(const void* place) { return (u32)__cvta_generic_to_shared(place); }

__device__ __forceinline__ void start_barrier(u32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barriers_started() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void expect(u32 barrier, int nbytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(nbytes) : "memory");
}

__device__ __forceinline__ bool is_over(u32 barrier, int parity) {
    u32 over;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
    return over;
}

__device__ __forceinline__ void wait(u32 barrier, int parity) {
    for (int tries = 0; !is_over(barrier, parity); ++tries)
        if (tries == MOST_TRIES) __trap();  // an error instead of a hang
}

__device__ __forceinline__ void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
