/* The CUDA driver's or runtime's entry points, in a program that `blackwell-matmul emulate` runs.

   Each sends its number and its arguments to the emulator, and follows orders until one is the result. Words have 64
   bits, little-endian. An argument of 32 bits is in the low half of its word; the high half has no meaning. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef uint64_t word;
enum { ARGUMENTS = 12, NO_DEVICE = 100, NOT_FOUND = 500 };
enum { RESULT, READ, WRITE, LENGTH, ALLOCATE, RELEASE, CALL, EXIT };
typedef struct { word kind, values[4]; } Order;

word blackwell_matmul_forward(word number, const word *arguments);

#define ENTRY(number, name) \
    word name(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l) { \
        return blackwell_matmul_forward(number, (word[ARGUMENTS]){a, b, c, d, e, f, g, h, i, j, k, l}); \
    }
#define ALIAS(name, of) word name() __attribute__((alias(#of)));
#define PLACE(name) {#name, (void *)name},
#include "entries.h"

#ifdef DRIVER
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int connection = -1;
static pid_t connected;

static void lost(void) {
    fflush(NULL);
    _exit(1); /* the emulator has ended, and has said why */
}

static void put(const void *data, size_t size) {
    for (ssize_t done; size; data = (const char *)data + done, size -= done)
        if ((done = send(connection, data, size, MSG_NOSIGNAL)) < 0) {
            if (errno != EINTR) lost();
            done = 0;
        }
}

static void get(void *data, size_t size) {
    for (ssize_t done; size; data = (char *)data + done, size -= done)
        if ((done = recv(connection, data, size, 0)) <= 0) {
            if (!done || errno != EINTR) lost();
            done = 0;
        }
}

static int ready(void) {
    struct sockaddr_un address = {AF_UNIX};
    const char *path = getenv("BLACKWELL_MATMUL_HOST");
    if (connection >= 0 && connected == getpid()) return 1; /* a fork connects anew */
    if (!path || strlen(path) >= sizeof address.sun_path) return 0;
    strcpy(address.sun_path, path);
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connected = getpid();
    return connection >= 0 && !connect(connection, (struct sockaddr *)&address, sizeof address);
}

static word answer(word value) {
    put(&value, sizeof value);
    return value;
}

static void obey(word kind, const word *values) {
    void *found = NULL, *place = (void *)values[0];
    switch (kind) {
    case READ: put(place, values[1]); break;
    case WRITE: get(place, values[1]); break;
    case LENGTH: answer(strlen(place)); break;
    case ALLOCATE: answer(posix_memalign(&found, 4096, values[0]) ? 0 : (word)found); break;
    case RELEASE: free(place); break;
    case CALL: ((void (*)(word, word, word))place)(values[1], values[2], values[3]); answer(0); break;
    case EXIT: fflush(NULL); _exit(values[0]);
    }
}

word blackwell_matmul_forward(word number, const word *arguments) {
    Order order;
    pthread_mutex_lock(&lock);
    if (!ready()) {
        pthread_mutex_unlock(&lock);
        return NO_DEVICE;
    }
    answer(number);
    put(arguments, ARGUMENTS * sizeof *arguments);
    for (get(&order, sizeof order); order.kind != RESULT; get(&order, sizeof order)) obey(order.kind, order.values);
    pthread_mutex_unlock(&lock);
    return order.values[0];
}

static const struct { const char *name; void *place; } places[] = {PLACES};

int cuGetProcAddress_v2(const char *name, void **function, int version, word flags, int *status) {
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!strcmp(places[i].name, name)) {
            *function = places[i].place;
            if (status) *status = 0;
            return 0;
        }
    *function = strcmp(name, "cuGetProcAddress") ? NULL : (void *)cuGetProcAddress_v2;
    if (status) *status = !*function;
    return *function ? 0 : NOT_FOUND;
}

int cuGetProcAddress(const char *name, void **function, int version, word flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
#else
int cuGetProcAddress_v2(const char *name, void **function, int version, word flags, int *status);

int cudaGetDriverEntryPointByVersion(const char *name, void **function, int version, word flags, int *status) {
    return cuGetProcAddress_v2(name, function, version, flags, status);
}

int cudaGetDriverEntryPoint(const char *name, void **function, word flags, int *status) {
    return cuGetProcAddress_v2(name, function, 0, flags, status);
}
#endif
