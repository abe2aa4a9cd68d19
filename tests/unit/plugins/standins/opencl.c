/* SPDX-License-Identifier: Apache-2.0 */
/* A driver for OpenCL's loader (ICD) that is PoCL with a test's hand on every call: `standin.h` says how calls fail.
 *
 * STANDIN_REAL names PoCL's library. Its dispatch table is changed in place, so its devices compute as ever. Besides:
 *   STANDIN_NAME, STANDIN_VERSION, STANDIN_EXTENSIONS, STANDIN_TYPE   what clGetDeviceInfo says of the device
 *   STANDIN_COPIES=1   CL_MEM_USE_HOST_PTR copies at creation and never back, as drivers of GPUs may
 * With cl_arm_import_memory among the extensions clImportMemoryARM is there, as strict as Mali's kernel driver: whole
 * pages only (mali_kbase: kbase_mem_from_user_buffer).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <sys/mman.h>

#include "standin.h"

typedef void *object;
typedef int32_t status;
typedef uint64_t bits;

static void **table; /* the order is that of cl_icd.h */

#define CALL(index, name, parameters, arguments)                                                                       \
    static status (*real_##name) parameters;                                                                           \
    static status name parameters {                                                                                    \
        STANDIN_CALL(status);                                                                                          \
        return real_##name arguments;                                                                                  \
    }                                                                                                                  \
    enum { at_##name = index };

#define MAKE(index, name, parameters, arguments)                                                                       \
    static object(*real_##name) parameters;                                                                            \
    static object name parameters {                                                                                    \
        static int calls;                                                                                              \
        int told = standin_called(#name, ++calls);                                                                     \
        if (told != 0) {                                                                                               \
            if (code != NULL) *code = told;                                                                            \
            return NULL;                                                                                               \
        }                                                                                                              \
        return real_##name arguments;                                                                                  \
    }                                                                                                                  \
    enum { at_##name = index };

#ifndef WITHOUT_clGetDeviceIDs
CALL(2, clGetDeviceIDs, (object p, bits t, uint32_t n, object *d, uint32_t *f), (p, t, n, d, f))
#endif
MAKE(4, clCreateContext, (const intptr_t *p, uint32_t n, const object *d, object f, void *u, status *code), (p, n, d, f, u, code))
MAKE(9, clCreateCommandQueue, (object c, object d, bits p, status *code), (c, d, p, code))
MAKE(123, clCreateCommandQueueWithProperties, (object c, object d, const bits *p, status *code), (c, d, p, code))
MAKE(26, clCreateProgramWithSource, (object c, uint32_t n, const char **s, const size_t *l, status *code), (c, n, s, l, code))
MAKE(27, clCreateProgramWithBinary,
     (object c, uint32_t n, const object *d, const size_t *l, const unsigned char **b, status *s, status *code), (c, n, d, l, b, s, code))
CALL(30, clBuildProgram, (object p, uint32_t n, const object *d, const char *o, object f, void *u), (p, n, d, o, f, u))
CALL(32, clGetProgramInfo, (object p, uint32_t i, size_t n, void *v, size_t *s), (p, i, n, v, s))
MAKE(34, clCreateKernel, (object p, const char *name, status *code), (p, name, code))
CALL(38, clSetKernelArg, (object k, uint32_t i, size_t n, const void *v), (k, i, n, v))
CALL(46, clFlush, (object q), (q))
CALL(47, clFinish, (object q), (q))
MAKE(56, clEnqueueMapBuffer,
     (object q, object m, uint32_t b, bits f, size_t o, size_t n, uint32_t w, const object *l, object *e, status *code),
     (q, m, b, f, o, n, w, l, e, code))
CALL(58, clEnqueueUnmapMemObject, (object q, object m, void *a, uint32_t n, const object *l, object *e), (q, m, a, n, l, e))
CALL(59, clEnqueueNDRangeKernel,
     (object q, object k, uint32_t d, const size_t *o, const size_t *g, const size_t *l, uint32_t n, const object *w, object *e),
     (q, k, d, o, g, l, n, w, e))

/* A kernel that never ends: its event never tells. */
static status (*real_clSetEventCallback)(object, status, object, void *);
static status clSetEventCallback(object event, status when, object function, void *data) {
    static int calls;
    const char *told = standin_told("clSetEventCallback", ++calls);
    if (told != NULL && strncmp(told, "silent", 6) == 0) return 0;
    if (told != NULL && strncmp(told, "failed", 6) == 0) {
        ((void (*)(object, status, void *))function)(event, -5, data);
        return 0;
    }
    int number = standin_called("clSetEventCallback", calls);
    return number != 0 ? (status)number : real_clSetEventCallback(event, when, function, data);
}

static object (*real_clCreateBuffer)(object, bits, size_t, void *, status *);
static object clCreateBuffer(object context, bits flags, size_t size, void *host, status *code) {
    static int calls;
    int told = standin_called("clCreateBuffer", ++calls);
    if (told != 0) {
        if (code != NULL) *code = told;
        return NULL;
    }
    const bits use_host = 1 << 3, copy_host = 1 << 5;
    if (standin_number("STANDIN_COPIES", 0) != 0 && (flags & use_host) != 0) flags = (flags & ~use_host) | copy_host;
    return real_clCreateBuffer(context, flags, size, host, code);
}

static object clImportMemoryARM(object context, bits flags, const intptr_t *properties, void *memory, size_t size, status *code) {
    static int calls;
    int told = standin_called("clImportMemoryARM", ++calls);
    if (properties == NULL || properties[0] != 0x40B2 || properties[1] != 0x40B3) told = -30; /* CL_INVALID_VALUE */
    if ((uintptr_t)memory % 4096 != 0 || size % 4096 != 0) told = -30;
    if (told != 0) {
        *code = told;
        return NULL;
    }
    return real_clCreateBuffer(context, flags | 1 << 3, size, memory, code);
}

static status (*real_clGetDeviceInfo)(object, uint32_t, size_t, void *, size_t *);
static status clGetDeviceInfo(object device, uint32_t what, size_t room, void *value, size_t *size) {
    STANDIN_CALL(status);
    const char *text = NULL;
    if (what == 0x102B) text = standin_text("STANDIN_NAME", NULL);
    if (what == 0x102F) text = standin_text("STANDIN_VERSION", NULL);
    if (what == 0x1030) text = standin_text("STANDIN_EXTENSIONS", NULL);
    if (what == 0x1000 && getenv("STANDIN_TYPE") != NULL) {
        if (value != NULL) *(bits *)value = (bits)standin_number("STANDIN_TYPE", 2);
        if (size != NULL) *size = sizeof(bits);
        return 0;
    }
    if (text == NULL) return real_clGetDeviceInfo(device, what, room, value, size);
    if (size != NULL) *size = strlen(text) + 1;
    if (value != NULL) {
        if (room < strlen(text) + 1) return -30;
        strcpy(value, text);
    }
    return 0;
}

static void *(*real_clGetExtensionFunctionAddressForPlatform)(object, const char *);
static void *clGetExtensionFunctionAddressForPlatform(object platform, const char *name) {
    if (strcmp(name, "clImportMemoryARM") == 0 && strstr(standin_text("STANDIN_EXTENSIONS", ""), "cl_arm_import_memory") != NULL)
        return (void *)clImportMemoryARM;
    return real_clGetExtensionFunctionAddressForPlatform(platform, name);
}

#define TAKE(index, name) (real_##name = (void *)table[index], table[index] = (void *)name)

static void *real(void) {
    static void *library;
    if (library == NULL) library = dlopen(standin_text("STANDIN_REAL", "libpocl.so"), RTLD_NOW | RTLD_LOCAL);
    return library;
}

static void take(object platform) {
    if (table != NULL) return;
    table = *(void ***)platform;
    uintptr_t first = (uintptr_t)table & ~4095UL, end = (uintptr_t)(table + 124);
    mprotect((void *)first, end - first, PROT_READ | PROT_WRITE);
#ifndef WITHOUT_clGetDeviceIDs
    TAKE(2, clGetDeviceIDs);
#else
    table[2] = NULL;
#endif
    TAKE(3, clGetDeviceInfo), TAKE(4, clCreateContext), TAKE(9, clCreateCommandQueue), TAKE(14, clCreateBuffer);
    TAKE(26, clCreateProgramWithSource), TAKE(27, clCreateProgramWithBinary), TAKE(30, clBuildProgram);
    TAKE(32, clGetProgramInfo), TAKE(34, clCreateKernel), TAKE(38, clSetKernelArg), TAKE(46, clFlush), TAKE(47, clFinish);
    TAKE(56, clEnqueueMapBuffer), TAKE(58, clEnqueueUnmapMemObject), TAKE(59, clEnqueueNDRangeKernel);
    TAKE(81, clSetEventCallback), TAKE(107, clGetExtensionFunctionAddressForPlatform);
    TAKE(123, clCreateCommandQueueWithProperties);
}

static status clIcdGetPlatformIDsKHR(uint32_t room, object *platforms, uint32_t *count) {
    STANDIN_CALL(status);
    void *(*address)(const char *) = (void *(*)(const char *))dlsym(real(), "clGetExtensionFunctionAddress");
    status (*ask)(uint32_t, object *, uint32_t *) = (status(*)(uint32_t, object *, uint32_t *))address("clIcdGetPlatformIDsKHR");
    status found = ask(room, platforms, count);
    if (found == 0 && platforms != NULL && room > 0) take(platforms[0]);
    return found;
}

/* The two functions that the loader looks for by name. */
void *clGetExtensionFunctionAddress(const char *name) {
    if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0) return (void *)clIcdGetPlatformIDsKHR;
    void *(*address)(const char *) = (void *(*)(const char *))dlsym(real(), "clGetExtensionFunctionAddress");
    return address(name);
}

status clGetPlatformInfo(object platform, uint32_t what, size_t room, void *value, size_t *size) {
    status (*ask)(object, uint32_t, size_t, void *, size_t *) = (status(*)(object, uint32_t, size_t, void *, size_t *))dlsym(real(), "clGetPlatformInfo");
    return ask(platform, what, room, value, size);
}
