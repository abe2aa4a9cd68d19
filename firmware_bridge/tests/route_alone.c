/* SPDX-License-Identifier: Apache-2.0
 *
 * The golden vectors without a libc: exit status 0, or the number of the first vector that is wrong (of 255 at most).
 * `tests/targets.sh` builds it for other machines and runs it emulated.
 */
#include "alone.h"
#include "route_golden.h"

static golden_memory memory;

__attribute__((noreturn)) void _start(void);
void _start(void) {
    int wrong = golden_all(&memory);
    leave(wrong > 255 ? 255 : wrong);
}
