// A CUDA driver that writes down what it is asked for and does nothing else, for the host code that tilus generates: its
// text is compiled behind this header by an ordinary C++ compiler, with `kernel<<<...>>>(...)` spelled `fake_launch(...)(...)`.
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include <cuda.h>

#define DLL extern "C"
#define __forceinline__ inline
#define TVM_FFI_THROW(kind) std::abort(), std::ostringstream()

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

static std::ostringstream record;
static std::string answer;
static uint64_t maps_made;

extern "C" const char *take_record() {
    answer = record.str();
    record.str("");
    maps_made = 0;
    return answer.c_str();
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
