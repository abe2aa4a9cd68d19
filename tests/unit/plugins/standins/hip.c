/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libamdhip64.so.7: devices at the PCI addresses in STANDIN_HIP, none when it is empty. */
#include "standin.h"

enum { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorNoDevice = 100, hipErrorInvalidDevice = 101 };

static const char *addresses(void) { return standin_text("STANDIN_HIP", "0000:05:00.0"); }

static const char *address(int number) {
    const char *at = addresses();
    while (number-- > 0 && at != NULL) at = (at = strchr(at, ',')) == NULL ? NULL : at + 1;
    return at == NULL || *at == '\0' ? NULL : at;
}

int hipGetDeviceCount(int *count) {
    STANDIN_CALL(int);
    *count = 0;
    while (address(*count) != NULL) ++*count;
    return *count == 0 ? hipErrorNoDevice : hipSuccess;
}

int hipDeviceGetPCIBusId(char *text, int size, int number) {
    STANDIN_CALL(int);
    const char *at = address(number);
    if (at == NULL || size < 16) return at == NULL ? hipErrorInvalidDevice : hipErrorInvalidValue;
    snprintf(text, (size_t)size, "%.12s", at);
    return hipSuccess;
}

int hipSetDevice(int number) {
    STANDIN_CALL(int);
    return address(number) == NULL ? hipErrorInvalidDevice : hipSuccess;
}

int hipDeviceSynchronize(void) {
    STANDIN_CALL(int);
    return hipSuccess;
}

#ifndef WITHOUT_hipRuntimeGetVersion
int hipRuntimeGetVersion(int *version) {
    STANDIN_CALL(int);
    *version = 70126015;
    return hipSuccess;
}
#endif

const char *hipGetErrorString(int error) {
    return error == hipErrorNoDevice ? "no ROCm-capable device is detected" : "invalid argument";
}
