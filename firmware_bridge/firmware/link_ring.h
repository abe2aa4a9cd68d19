/* SPDX-License-Identifier: Apache-2.0
 *
 * link_ring.h - a session over the rings of its arena.
 */
#ifndef DPF_FW_LINK_RING_H
#define DPF_FW_LINK_RING_H

#include "session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dpf_fw_link {
    dpf_fw_session session;
    uint32_t slot, generation; /* the place that is being filled */
    bool held;
} dpf_fw_link;

/* As dpf_fw_session_open. */
dpf_result dpf_fw_link_open(dpf_fw_link *link, void *base, uint64_t nbytes, uint64_t key);

#ifdef __cplusplus
}
#endif

#endif
