/* SPDX-License-Identifier: Apache-2.0
 *
 * port.h - everything the core needs from the board it runs on: a clock, a doorbell, the cache. PORTING.md says what each must
 * be; host/ has them for Linux. None may wait.
 */
#ifndef DPF_FW_PORT_H
#define DPF_FW_PORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Nanoseconds of the clock that Linux calls CLOCK_MONOTONIC; 0 where that is not known. */
uint64_t dpf_fw_port_now_ns(void);

/* Tells the other side of a session to look. Called at most once in a tick for each session. */
void dpf_fw_port_doorbell(uint32_t session);

/* Writes what the core has written there back to memory, before the other side is told of it. */
void dpf_fw_port_clean(const void *from, uint32_t nbytes);

/* Forgets what the cache holds of it, before the core reads what the other side has written. */
void dpf_fw_port_invalidate(const void *from, uint32_t nbytes);

#ifdef __cplusplus
}
#endif

#endif
