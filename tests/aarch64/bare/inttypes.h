/* SPDX-License-Identifier: Apache-2.0
 *
 * What the C tests use of inttypes.
 */
#include <stdint.h>

#define PRIx64 "llx"
