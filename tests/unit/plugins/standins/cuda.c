/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-in for libcuda.so.1: CUDA_GPUS (1) H100s. Registered host memory has the device address of its host address, so
 * that a session on the CPU stands for one on the GPU.
 *
 * CUDA_CAPABILITY=90   compute capability, two digits
 * CUDA_FREE=n          free memory in percent (75)
 * CUDA_HOST_PAGES=1    the device reads the host's page tables, as Grace's does
 * CUDA_UUID=hex        32 hexadecimal digits of the first device, as a MIG instance has its own
 * CUDA_BDF=text        PCI address of the first
 * Each function fails as STANDIN says (standin.h); -DWITHOUT_name leaves one out, as an old driver does.
 */
#include "standin.h"

typedef int Result;
enum { SUCCESS = 0, INVALID = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_CONTEXT = 201, REGISTERED = 712, NOT_REGISTERED = 713 };
#define REGIONS 64
static struct {
    char *start;
    size_t size;
} regions[REGIONS];
static int initialised, context, streams, registered_now;
static __thread int current;

Result cuInit(unsigned flags) {
    STANDIN_CALL(Result);
    initialised = 1;
    return standin_number("CUDA_GPUS", 1) > 0 ? SUCCESS : NO_DEVICE;
}
Result cuDriverGetVersion(int *version) {
    STANDIN_CALL(Result);
    *version = 13000;
    return SUCCESS;
}
Result cuGetErrorName(int code, const char **text) {
    switch (code) {
    case 2: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case 35: *text = "CUDA_ERROR_INSUFFICIENT_DRIVER"; break;
    case 100: *text = "CUDA_ERROR_NO_DEVICE"; break;
    case 700: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case 712: *text = "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"; break;
    case 999: *text = "CUDA_ERROR_UNKNOWN"; break;
    default: return INVALID;
    }
    return SUCCESS;
}
#ifndef WITHOUT_cuGetErrorString
Result cuGetErrorString(int code, const char **text) {
    *text = "as the driver puts it";
    return SUCCESS;
}
#endif
Result cuDeviceGetCount(int *count) {
    STANDIN_CALL(Result);
    *count = (int)standin_number("CUDA_GPUS", 1);
    return initialised ? SUCCESS : NOT_INITIALIZED;
}
Result cuDeviceGet(int *device, int ordinal) {
    STANDIN_CALL(Result);
    *device = ordinal;
    return SUCCESS;
}
Result cuDeviceGetName(char *to, int size, int device) {
    STANDIN_CALL(Result);
    snprintf(to, (size_t)size, "NVIDIA H100 80GB HBM3");
    return SUCCESS;
}
Result cuDeviceGetPCIBusId(char *to, int size, int device) {
    STANDIN_CALL(Result);
    unsigned domain = 0, bus = 0, number = 0;
    const char *first = standin_text("CUDA_BDF", "0000:18:00.0");
    sscanf(first, "%x:%x:%x", &domain, &bus, &number);
    if (bus != 0) bus += (unsigned)device; /* a machine's own bus */
    else number += (unsigned)device;       /* a virtual machine's: all on bus 0 */
    snprintf(to, (size_t)size, strlen(first) > 12 ? "%08X:%02X:%02X.0" : "%04X:%02X:%02X.0", domain, bus, number);
    return SUCCESS;
}
#ifndef WITHOUT_cuDeviceGetUuid_v2
Result cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    STANDIN_CALL(Result);
    const char *hex = standin_text("CUDA_UUID", "8932f937d72c4106c12f20bd9faed9f6");
    for (int i = 0; i < 16; i++) sscanf(hex + 2 * i, "%2hhx", &uuid[i]);
    return SUCCESS;
}
#endif
Result cuDeviceTotalMem_v2(size_t *bytes, int device) {
    STANDIN_CALL(Result);
    *bytes = 85899345920UL;
    return SUCCESS;
}
Result cuDeviceGetAttribute(int *value, int which, int device) {
    STANDIN_CALL(Result);
    int capability = (int)standin_number("CUDA_CAPABILITY", 90);
    switch (which) {
    case 75: *value = capability / 10; break;
    case 76: *value = capability % 10; break;
    case 18: *value = (int)standin_number("CUDA_INTEGRATED", 0); break;
    case 19: *value = 1; break;
    case 100: *value = (int)standin_number("CUDA_HOST_PAGES", 0); break;
    default: *value = 0;
    }
    return SUCCESS;
}
Result cuDevicePrimaryCtxRetain(void **made, int device) {
    STANDIN_CALL(Result);
    *made = &context;
    return SUCCESS;
}
Result cuCtxSetCurrent(void *wanted) {
    STANDIN_CALL(Result);
    current = wanted == &context;
    return current ? SUCCESS : INVALID_CONTEXT;
}
Result cuCtxGetStreamPriorityRange(int *last, int *first) {
    STANDIN_CALL(Result);
    *last = 0, *first = -5;
    return current ? SUCCESS : INVALID_CONTEXT;
}
Result cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    STANDIN_CALL(Result);
    if (!current) return INVALID_CONTEXT;
    streams++;
    *stream = (void *)(long)(0x1000 - priority);
    return SUCCESS;
}
Result cuMemGetInfo_v2(size_t *free, size_t *total) {
    STANDIN_CALL(Result);
    if (!current) return INVALID_CONTEXT;
    *total = 85899345920UL;
    *free = *total / 100 * (size_t)standin_number("CUDA_FREE", 75);
    return SUCCESS;
}
Result cuMemHostRegister_v2(char *start, size_t size, unsigned flags) {
    STANDIN_CALL(Result);
    if (!current) return INVALID_CONTEXT;
    if ((size_t)start % 4096 != 0 || size == 0 || flags != 3) return INVALID;
    for (int i = 0; i < REGIONS; i++)
        if (regions[i].size != 0 && start < regions[i].start + regions[i].size && regions[i].start < start + size) return REGISTERED;
    for (int i = 0; i < REGIONS; i++)
        if (regions[i].size == 0) {
            regions[i].start = start, regions[i].size = size;
            registered_now++;
            return SUCCESS;
        }
    return 2;
}
Result cuMemHostUnregister(char *start) {
    STANDIN_CALL(Result);
    for (int i = 0; i < REGIONS; i++)
        if (regions[i].size != 0 && regions[i].start == start) {
            regions[i].size = 0;
            registered_now--;
            return SUCCESS;
        }
    return NOT_REGISTERED;
}
Result cuMemHostGetDevicePointer_v2(void **address, void *host, unsigned flags) {
    STANDIN_CALL(Result);
    *address = host;
    return current ? SUCCESS : INVALID_CONTEXT;
}
/* For tests: how many ranges are registered now, and how many streams were made. */
int standin_registered(void) { return registered_now; }
int standin_streams(void) { return streams; }
