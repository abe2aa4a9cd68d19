/* SPDX-License-Identifier: Apache-2.0
 *
 * echo.h - takes the loudspeaker out of the microphone: what was played is known, what the room makes of it is learnt.
 *
 * Normalised least mean squares (Nagumo and Noda, IEEE AC-12, 1967) over the last 32 ms that were played, in integers. The error is
 * clipped at twice its usual size before anything is learnt from it, and the usual size rises slowly (after Gänsler and others,
 * IEEE Trans. SAP 8, 2000): a person who begins to speak does not undo what was learnt. No division, no allocation, no libc.
 */
#ifndef DPF_FW_ECHO_H
#define DPF_FW_ECHO_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DPF_FW_ECHO_TAPS = 512 };

typedef struct dpf_fw_echo {
    int32_t weights[DPF_FW_ECHO_TAPS];     /* of the room, times 2^28: at most 4 */
    int16_t played[2 * DPF_FW_ECHO_TAPS];  /* each sample twice, so that the newest DPF_FW_ECHO_TAPS are always in a row */
    uint32_t at;                           /* of the newest in the first half; they go backwards */
    int64_t power;                         /* of these */
    int32_t usual;                         /* size of the error, times 2^8 */
} dpf_fw_echo;

void dpf_fw_echo_init(dpf_fw_echo *echo);

/* `count` samples captured at the moments at which those of `played` left, or later by what the room takes; what is left of
 * them in `out`. */
void dpf_fw_echo_cancel(dpf_fw_echo *echo, const int16_t *captured, const int16_t *played, int16_t *out, uint32_t count);

#ifdef __cplusplus
}
#endif

#endif
