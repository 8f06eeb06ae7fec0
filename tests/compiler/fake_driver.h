// A CUDA driver that writes down what it is asked for and does nothing else, for the host code that tilus generates: its
// text is compiled behind this header by an ordinary C++ compiler, with `kernel<<<...>>>(...)` spelled `fake_launch(...)(...)`.
// Without streams and strings, which take five times as long to compile as all the rest.
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda.h>

#define DLL extern "C"
#define __forceinline__ inline
#define TVM_FFI_THROW(kind) std::abort(), Unheard()

typedef void *void_p;
typedef int cudaError_t;
typedef void *cudaStream_t;
enum { cudaSuccess = 0, cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct half {};
struct bfloat16_t {};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

struct Unheard {
    template <class Word> Unheard &operator<<(const Word &) { return *this; }
};

// What is asked for. A longer one would be a fault of the test.
struct Record {
    char text[1 << 16];
    size_t length;

    template <class Value> Record &put(const char *format, Value value) {
        length += snprintf(text + length, sizeof text - length, format, value);
        if (length >= sizeof text) abort();
        return *this;
    }
    Record &operator<<(const char *value) { return put("%s", value); }
    Record &operator<<(char value) { return put("%c", value); }
    Record &operator<<(int value) { return put("%d", value); }
    Record &operator<<(unsigned value) { return put("%u", value); }
    Record &operator<<(unsigned long value) { return put("%lu", value); }
    Record &operator<<(unsigned long long value) { return put("%llu", value); }
    Record &operator<<(double value) { return put("%g", value); }
};

static Record record, answer;
static uint64_t maps_made;

extern "C" const char *take_record() {
    answer = record;
    record = Record();
    maps_made = 0;
    return answer.text;
}

// The number of the map goes into the map, so that a launch shows which one it was given.
extern "C" CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType dtype, cuuint32_t rank, void *address,
                                           const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                           const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                                           CUtensorMapFloatOOBfill oob_fill) {
    record << "map " << dtype << ' ' << (uint64_t)address;
    for (cuuint32_t i = 0; i < rank; i++) record << ' ' << dims[i];
    for (cuuint32_t i = 0; i + 1 < rank; i++) record << ' ' << strides[i];
    for (cuuint32_t i = 0; i < rank; i++) record << ' ' << box[i];
    for (cuuint32_t i = 0; i < rank; i++) record << ' ' << element_strides[i];
    record << ' ' << interleave << ' ' << swizzle << ' ' << l2_promotion << ' ' << oob_fill << '\n';
    *(uint64_t *)map = maps_made++;
    return CUDA_SUCCESS;
}

static cudaError_t cudaGetLastError() { return cudaSuccess; }
static const char *cudaGetErrorString(cudaError_t) { return ""; }
static void *get_cuda_stream() { return nullptr; }
static void cudaFuncSetAttribute(const char *, int, int bytes) { record << "attribute " << bytes << '\n'; }

static void *request_cuda_workspace(uint64_t bytes, bool clear) {
    record << "workspace " << bytes << ' ' << clear << '\n';
    return (void *)(uintptr_t)(clear ? 0xC1EA0000 : 0xD1270000);
}

static void tell(int32_t value) { record << ' ' << value; }
static void tell(float value) { record << ' ' << value; }
static void tell(const void *value) { record << ' ' << (uint64_t)value; }
static void tell(const CUtensorMap &value) { record << " map" << *(const uint64_t *)&value; }

struct fake_launch {
    fake_launch(const char *, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t) {
        record << "launch " << grid.x << ' ' << grid.y << ' ' << grid.z << ' ' << block.x << ' ' << block.y << ' '
               << block.z << ' ' << shared_bytes;
    }
    template <class... Arguments> void operator()(const Arguments &...arguments) const {
        (tell(arguments), ...);
        record << '\n';
    }
};
