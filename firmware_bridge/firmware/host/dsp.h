/* SPDX-License-Identifier: Apache-2.0
 *
 * dsp.h - a sound converter made of a file: what its DMA would have written and read.
 *
 *     page (4096 bytes) | captured i16[capacity] | played i16[capacity]
 *
 * Sample n is the same moment in both. Whoever maps the file may write captured samples ahead of `tick`, and read what was
 * played behind it; what nobody wrote is silence. Little-endian, as everything that is shared.
 */
#ifndef DPF_FW_DSP_H
#define DPF_FW_DSP_H

#include "core.h"

#define DPF_FW_DSP_MAGIC 0x3150534446504446ull /* "FDPFDSP1" */
enum { DPF_FW_DSP_PAGE = 4096 };

/* Commands: what buttons do. The one who obeys writes 0. */
enum { DPF_FW_DSP_NONE = 0, DPF_FW_DSP_END = 1, DPF_FW_DSP_FLUSH = 2, DPF_FW_DSP_CLEAR = 3, DPF_FW_DSP_STOP = 4 };

typedef struct dpf_fw_dsp {
    uint64_t magic;
    uint64_t capacity;              /* samples of each kind */
    DPF_ATOMIC(uint64_t) tick;      /* blocks that were captured and played */
    DPF_ATOMIC(uint64_t) start_ns;  /* CLOCK_MONOTONIC of sample 0; 0: not begun */
    DPF_ATOMIC(uint32_t) command;
    uint32_t chosen;                /* the instance that serves; 0xFFFFFFFF: none */
    uint64_t late_ns;               /* the latest that a tick ended behind its time */
    uint64_t longest_ns;            /* the longest that a tick took */
    dpf_fw_counters counters;       /* as of the last tick */
} dpf_fw_dsp;

DPF_ASSERT(offsetof(dpf_fw_dsp, command) == 32 && offsetof(dpf_fw_dsp, counters) == 56, "read by tests/e2e/made/made_firmware.py");
DPF_ASSERT(sizeof(dpf_fw_counters) == 80, "read by tests/e2e/made/made_firmware.py");

#endif
