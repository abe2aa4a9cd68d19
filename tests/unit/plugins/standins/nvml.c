/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-in for libnvidia-ml.so.1: an H100, or the instances of one in MIG mode (NVML_MIG=1), as NVML describes them.
 *
 * NVML_LIES=na      memory reads zero, and what a Jetson or a vGPU does not tell is NOT_SUPPORTED ("[N/A]" of nvidia-smi)
 * NVML_LIES=wild    percentages over 100, more free than total memory
 * NVML_GPUS=n       how many GPUs (1)
 * NVML_BDF=text     PCI address of the first
 * NVML_XIDS=n       XID events waiting, each of number NVML_XID (79)
 * Each function fails as STANDIN says (standin.h); -DWITHOUT_name leaves one out, as a driver before it does.
 */
#include "standin.h"

typedef int Return;
enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMED_OUT = 10 };
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
} Pci;
typedef struct {
    unsigned long long total, free, used;
} Memory;
typedef struct {
    unsigned gpu, memory;
} Rates;
typedef struct {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} Event;

#define GPU "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
static const char *const PARTS[] = {"MIG-c7384736-a75d-5afc-978f-d2f1294409fd", "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d"};
static int handles[8], parts[2], set;
static long waiting = -1;

static int lies(const char *kind) { return strcmp(standin_text("NVML_LIES", ""), kind) == 0; }
static int part_of(void *handle) {
    for (int i = 0; i < 2; i++)
        if (handle == &parts[i]) return i;
    return -1;
}
static Return text(char *to, unsigned size, const char *from) {
    snprintf(to, size, "%s", from);
    return SUCCESS;
}

Return nvmlInitWithFlags(unsigned flags) {
    STANDIN_CALL(Return);
    return flags == 0 ? SUCCESS : INVALID;
}
const char *nvmlErrorString(Return code) {
    switch (code) {
    case 3: return "Not Supported";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}
Return nvmlSystemGetDriverVersion(char *to, unsigned size) {
    STANDIN_CALL(Return);
    return text(to, size, "580.65.06");
}
Return nvmlDeviceGetCount_v2(unsigned *count) {
    STANDIN_CALL(Return);
    *count = (unsigned)standin_number("NVML_GPUS", 1);
    return SUCCESS;
}
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    STANDIN_CALL(Return);
    *handle = &handles[index];
    return SUCCESS;
}
Return nvmlDeviceGetHandleByPciBusId_v2(const char *place, void **handle) {
    STANDIN_CALL(Return);
    if (strstr(standin_text("NVML_BDF", "0000:18:00.0"), place) == NULL) return NOT_FOUND;
    *handle = &handles[0];
    return SUCCESS;
}
Return nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    STANDIN_CALL(Return);
    for (int i = 0; i < 2; i++)
        if (strcmp(uuid, PARTS[i]) == 0) {
            *handle = &parts[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}
Return nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) {
    STANDIN_CALL(Return);
    memset(pci, 0, sizeof *pci);
    sscanf(standin_text("NVML_BDF", "0000:18:00.0"), "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    pci->bus += (unsigned)((int *)handle - handles);
    return SUCCESS;
}
Return nvmlDeviceGetName(void *handle, char *to, unsigned size) {
    STANDIN_CALL(Return);
    return text(to, size, part_of(handle) < 0 ? "NVIDIA H100 80GB HBM3" : "NVIDIA H100 80GB HBM3 MIG 3g.40gb");
}
Return nvmlDeviceGetUUID(void *handle, char *to, unsigned size) {
    STANDIN_CALL(Return);
    return text(to, size, part_of(handle) < 0 ? GPU : PARTS[part_of(handle)]);
}
Return nvmlDeviceGetVbiosVersion(void *handle, char *to, unsigned size) {
    STANDIN_CALL(Return);
    return lies("na") ? NOT_SUPPORTED : text(to, size, "96.00.74.00.01");
}
Return nvmlDeviceGetSerial(void *handle, char *to, unsigned size) {
    STANDIN_CALL(Return);
    return lies("na") ? NOT_SUPPORTED : text(to, size, "1650522003820");
}
Return nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    STANDIN_CALL(Return);
    *major = 9, *minor = 0;
    return SUCCESS;
}
Return nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later) {
    STANDIN_CALL(Return);
    if (lies("na")) return NOT_SUPPORTED;
    *now = *later = (unsigned)standin_number("NVML_MIG", 0);
    return SUCCESS;
}
Return nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    STANDIN_CALL(Return);
    *count = 7;
    return SUCCESS;
}
Return nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **part) {
    STANDIN_CALL(Return);
    if (index != 0 && index != 2) return NOT_FOUND; /* gaps */
    *part = &parts[index / 2];
    return SUCCESS;
}
Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *part, void **handle) {
    STANDIN_CALL(Return);
    *handle = &handles[0];
    return SUCCESS;
}
Return nvmlDeviceGetGpuInstanceId(void *part, unsigned *id) {
    STANDIN_CALL(Return);
    *id = part_of(part) == 0 ? 1 : 2;
    return SUCCESS;
}
Return nvmlDeviceGetComputeInstanceId(void *part, unsigned *id) {
    STANDIN_CALL(Return);
    *id = 0;
    return SUCCESS;
}
Return nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    STANDIN_CALL(Return);
    memory->total = part_of(handle) < 0 ? 85899345920ULL : 42949672960ULL;
    memory->free = memory->total / 4 * 3;
    memory->used = memory->total - memory->free;
    if (lies("na")) memset(memory, 0, sizeof *memory);
    if (lies("wild")) memory->free = memory->total * 3;
    return SUCCESS;
}
Return nvmlDeviceGetUtilizationRates(void *handle, Rates *rates) {
    STANDIN_CALL(Return);
    if (lies("na") || part_of(handle) >= 0) return NOT_SUPPORTED;
    rates->gpu = lies("wild") ? 4294967295U : 40;
    rates->memory = 10;
    return SUCCESS;
}
Return nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *degrees) {
    STANDIN_CALL(Return);
    if (lies("na")) return NOT_SUPPORTED;
    *degrees = 61;
    return SUCCESS;
}
#ifndef WITHOUT_nvmlDeviceGetCurrentClocksEventReasons
Return nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    STANDIN_CALL(Return);
    if (lies("na")) return NOT_SUPPORTED;
    *reasons = (unsigned long long)standin_number("NVML_REASONS", 0);
    return SUCCESS;
}
#endif
Return nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    STANDIN_CALL(Return);
    *reasons = (unsigned long long)standin_number("NVML_REASONS", 0);
    return SUCCESS;
}
Return nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *count) {
    STANDIN_CALL(Return);
    if (lies("na")) return NOT_SUPPORTED;
    *count = kind == 0 ? 5 : 1;
    return SUCCESS;
}
Return nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *clock) {
    STANDIN_CALL(Return);
    *clock = 1410;
    return SUCCESS;
}
Return nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    STANDIN_CALL(Return);
    if (lies("na")) return NOT_SUPPORTED;
    *milliwatts = 251500;
    return SUCCESS;
}
Return nvmlDeviceGetMaxClockInfo(void *handle, int kind, unsigned *clock) {
    STANDIN_CALL(Return);
    *clock = 1980;
    return SUCCESS;
}
Return nvmlEventSetCreate(void **events) {
    STANDIN_CALL(Return);
    *events = &set;
    return SUCCESS;
}
Return nvmlEventSetFree(void *events) { return SUCCESS; }
Return nvmlDeviceRegisterEvents(void *handle, unsigned long long kinds, void *events) {
    STANDIN_CALL(Return);
    return lies("na") ? NOT_SUPPORTED : SUCCESS;
}
Return nvmlEventSetWait_v2(void *events, Event *event, unsigned timeout) {
    STANDIN_CALL(Return);
    if (waiting < 0) waiting = standin_number("NVML_XIDS", 0);
    if (waiting == 0) return TIMED_OUT;
    waiting--;
    memset(event, 0, sizeof *event);
    event->device = &handles[0];
    event->type = 8;
    event->data = (unsigned long long)standin_number("NVML_XID", 79);
    return SUCCESS;
}
