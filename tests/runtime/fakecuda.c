/* A libcuda.so.1 that records calls instead of making them. The tests build it and load it in processes of their own.

   fake_configure(line) sets something, fake_log() gives the record: one line a call. Threads may call at once, as of the
   real driver. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef struct {
    unsigned grid[3], block[3], shared_bytes;
    void *stream, *attributes;
    unsigned attribute_count;
} Config;

static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;
static char *record_text;
static size_t record_size, record_room;
static int recording = 1, devices = 1, major = 9, minor = 0, sms = 132, shared_optin = 232448;
static char failing[64], name[64] = "NVIDIA H200";
static int failing_code, failing_count;
static int parameter_count, parameter_bytes[64];
static __thread uintptr_t current_context;
static __thread int capture_mode;

static void record(const char *format, ...) {
    if (!recording) return;
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    size_t length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&record_lock);
    if (record_size + length + 2 > record_room) {
        record_room = 2 * (record_room + length + 64);
        record_text = realloc(record_text, record_room);
    }
    memcpy(record_text + record_size, line, length);
    record_size += length;
    record_text[record_size++] = '\n';
    record_text[record_size] = 0;
    pthread_mutex_unlock(&record_lock);
}

static int fails(const char *function) {
    if (failing_count <= 0 || strcmp(function, failing)) return 0;
    failing_count--;
    return failing_code;
}

const char *fake_log(void) { return record_size ? record_text : ""; }
void fake_clear(void) { record_size = 0; }
void fake_recording(int on) { recording = on; }
void fake_fail(const char *function, int code, int count) {
    snprintf(failing, sizeof failing, "%s", function);
    failing_code = code;
    failing_count = count;
}
void fake_gpu(const char *gpu, int cc_major, int cc_minor, int sm_count, int optin, int count) {
    snprintf(name, sizeof name, "%s", gpu);
    major = cc_major, minor = cc_minor, sms = sm_count, shared_optin = optin, devices = count;
}
void fake_parameters(int count, const int *bytes) {
    parameter_count = count;
    memcpy(parameter_bytes, bytes, count * sizeof(int));
}
void fake_forget_context(void) { current_context = 0; }

#define CALL(function) do { int code = fails(#function); if (code) { record(#function " -> %d", code); return code; } } while (0)

CUresult cuInit(unsigned flags) { CALL(cuInit); record("cuInit"); return 0; }
CUresult cuDriverGetVersion(int *version) { *version = 13000; return 0; }
CUresult cuDeviceGetCount(int *count) { *count = devices; return 0; }
CUresult cuDeviceGet(int *device, int ordinal) {
    CALL(cuDeviceGet);
    if (ordinal < 0 || ordinal >= devices) return 101;
    *device = ordinal;
    return 0;
}
CUresult cuDeviceGetName(char *text, int length, int device) { snprintf(text, length, "%s", name); return 0; }
CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    CALL(cuDeviceGetAttribute);
    switch (attribute) {
    case 75: *value = major; break;
    case 76: *value = minor; break;
    case 16: *value = sms; break;
    case 97: *value = shared_optin; break;
    default: *value = 0;
    }
    return 0;
}
CUresult cuGetErrorName(int code, const char **text) {
    switch (code) {
    case 1: *text = "CUDA_ERROR_INVALID_VALUE"; return 0;
    case 2: *text = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
    case 100: *text = "CUDA_ERROR_NO_DEVICE"; return 0;
    case 201: *text = "CUDA_ERROR_INVALID_CONTEXT"; return 0;
    case 209: *text = "CUDA_ERROR_NO_BINARY_FOR_GPU"; return 0;
    case 500: *text = "CUDA_ERROR_NOT_FOUND"; return 0;
    case 700: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
    case 701: *text = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"; return 0;
    }
    *text = NULL;
    return 1;
}
CUresult cuGetErrorString(int code, const char **text) {
    *text = code == 1 ? "invalid argument" : code == 700 ? "an illegal memory access was encountered" : "some reason";
    return 0;
}
CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
    CALL(cuDevicePrimaryCtxRetain);
    *context = (void *)(uintptr_t)(0xC000 + device);
    record("cuDevicePrimaryCtxRetain device=%d", device);
    return 0;
}
CUresult cuCtxGetCurrent(void **context) { *context = (void *)current_context; return 0; }
CUresult cuCtxSetCurrent(void *context) {
    CALL(cuCtxSetCurrent);
    current_context = (uintptr_t)context;
    record("cuCtxSetCurrent context=%lx", (unsigned long)current_context);
    return 0;
}
static __thread uintptr_t stack[8];
static __thread int depth;
CUresult cuCtxPushCurrent_v2(void *context) {
    CALL(cuCtxPushCurrent);
    stack[depth++] = current_context;
    current_context = (uintptr_t)context;
    record("cuCtxPushCurrent context=%lx", (unsigned long)current_context);
    return 0;
}
CUresult cuCtxPopCurrent_v2(void **context) {
    *context = (void *)current_context;
    current_context = stack[--depth];
    record("cuCtxPopCurrent");
    return 0;
}
CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    record("cuThreadExchangeStreamCaptureMode mode=%d", capture_mode);
    return 0;
}
CUresult cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
    CALL(cuLibraryLoadData);
    *library = (void *)0x11B;
    record("cuLibraryLoadData first=%02x%02x%02x%02x", ((unsigned char *)code)[0], ((unsigned char *)code)[1],
           ((unsigned char *)code)[2], ((unsigned char *)code)[3]);
    return 0;
}
CUresult cuLibraryGetKernel(void **kernel, void *library, const char *kernel_name) {
    CALL(cuLibraryGetKernel);
    *kernel = (void *)0xF00;
    record("cuLibraryGetKernel name=%s", kernel_name);
    return 0;
}
CUresult cuKernelGetFunction(void **function, void *kernel) {
    CALL(cuKernelGetFunction);
    if (!current_context) return 201;
    *function = (void *)(0xF0000 + current_context);
    record("cuKernelGetFunction context=%lx mode=%d", (unsigned long)current_context, capture_mode);
    return 0;
}
CUresult cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
    CALL(cuKernelSetAttribute);
    record("cuKernelSetAttribute attribute=%d value=%d device=%d", attribute, value, device);
    return 0;
}
static size_t list64(char *text, const char *label, const uint64_t *values, unsigned count) {
    size_t length = sprintf(text, " %s=", label);
    for (unsigned i = 0; i < count; i++) length += sprintf(text + length, "%s%llu", i ? "," : "", (unsigned long long)values[i]);
    return length;
}
static size_t list32(char *text, const char *label, const uint32_t *values, unsigned count) {
    size_t length = sprintf(text, " %s=", label);
    for (unsigned i = 0; i < count; i++) length += sprintf(text + length, "%s%u", i ? "," : "", values[i]);
    return length;
}
CUresult cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *dims,
                                const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                                int interleave, int swizzle, int l2, int fill) {
    CALL(cuTensorMapEncodeTiled);
    if (!current_context) return 201;  /* as seen on an H200 with driver 580 */
    char text[1024];
    size_t at = list64(text, "dims", dims, rank);
    at += list64(text + at, "strides", strides, rank - 1);
    at += list32(text + at, "box", box, rank);
    list32(text + at, "element_strides", element_strides, rank);
    record("cuTensorMapEncodeTiled modulo=%d type=%d rank=%u address=%p%s interleave=%d swizzle=%d l2=%d fill=%d",
           (int)((uintptr_t)map % 128), type, rank, address, text, interleave, swizzle, l2, fill);
    memset(map, 0, 128);
    memcpy(map, &address, sizeof address);
    return (uintptr_t)address % 16 ? 1 : 0;
}
CUresult cuTensorMapReplaceAddress(void *map, void *address) {
    CALL(cuTensorMapReplaceAddress);
    record("cuTensorMapReplaceAddress modulo=%d address=%p", (int)((uintptr_t)map % 128), address);
    memcpy(map, &address, sizeof address);
    return (uintptr_t)address % 16 ? 1 : 0;
}
/* The value of CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION; an attribute has 72 bytes, its value at 8. */
static int early(const Config *config) {
    const int *attribute = config->attributes;
    return config->attribute_count == 1 && attribute[0] == 6 ? attribute[2] : 0;
}
CUresult cuLaunchKernelEx(const Config *config, void *function, void **parameters, void **extra) {
    CALL(cuLaunchKernelEx);
    if ((uintptr_t)config->stream <= 2 && !current_context) return 201;
    if (!recording) return 0;
    char text[2048];
    int at = 0;
    for (int i = 0; i < parameter_count; i++) {
        at += sprintf(text + at, " p%d=", i);
        if (parameter_bytes[i] == 128) at += sprintf(text + at, "@%d:", (int)((uintptr_t)parameters[i] % 128));
        for (int byte = 0; byte < parameter_bytes[i] && byte < 8; byte++)
            at += sprintf(text + at, "%02x", ((unsigned char *)parameters[i])[byte]);
    }
    text[at] = 0;
    record("cuLaunchKernelEx function=%p grid=%u,%u,%u block=%u,%u,%u shared=%u stream=%p attributes=%u early=%d context=%lx%s",
           function, config->grid[0], config->grid[1], config->grid[2], config->block[0], config->block[1],
           config->block[2], config->shared_bytes, config->stream, config->attribute_count, early(config),
           (unsigned long)current_context, text);
    return 0;
}
/* NVRTC opens the driver and calls this one without a look at whether it is there. */
CUresult cuGetExportTable(const void **table, const void *id) { *table = NULL; return 500; }
/* What cuda-python looks every function up with. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    static const char *second[] = {"cuCtxPushCurrent", "cuCtxPopCurrent", "cuGetProcAddress"};
    char text[128];
    snprintf(text, sizeof text, "%s", symbol);
    for (int i = 0; i < 3; i++) if (!strcmp(symbol, second[i])) snprintf(text, sizeof text, "%s_v2", symbol);
    Dl_info here;
    dladdr((void *)cuGetProcAddress_v2, &here);
    void *self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *function = self ? dlsym(self, text) : NULL;
    if (status) *status = *function ? 0 : 1;
    return *function ? 0 : 500;
}
CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
