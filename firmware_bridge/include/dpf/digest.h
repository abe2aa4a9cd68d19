/* SPDX-License-Identifier: Apache-2.0
 *
 * dpf/digest.h - the two digests of a package: SHA-256 (FIPS 180-4) and XXH3 (seed 0, default secret).
 *
 * Bytes in, digests out. No allocation, no tables to set up, no alignment asked of the input, the same results on every
 * machine. XXH3 finds accidents only; SHA-256 is what a signature vouches for. Portable C, but for what says so.
 */
#ifndef DPF_DIGEST_H
#define DPF_DIGEST_H

#include "dpf/base.h"

enum { DPF_SHA256_BYTES = 32, DPF_XXH3_BYTES = 16 };

/* A SHA-256 being fed; copy it freely. */
typedef struct dpf_sha256 {
    uint64_t nbytes;
    uint32_t state[8];
    unsigned char block[64];
} dpf_sha256;

DPF_BEGIN_C

void dpf_sha256_begin(dpf_sha256 *sha256);
void dpf_sha256_add(dpf_sha256 *sha256, const void *bytes, uint64_t nbytes);

/* The digest of all that was added. Begin again before more is added. */
void dpf_sha256_end(dpf_sha256 *sha256, unsigned char digest[DPF_SHA256_BYTES]);

/* Whether the two functions below may be used here: on x86-64 with its instructions for SHA-256 (SHA-NI). */
bool dpf_sha256_has_lanes(void);

/* As dpf_sha256_add, with those instructions. */
void dpf_sha256_add_lane(dpf_sha256 *sha256, const void *bytes, uint64_t nbytes);

/* Adds `nbytes` to each of two digests in the time that one takes. False, with nothing added, unless `nbytes` and all
 * that was added to both before are multiples of 64. */
bool dpf_sha256_add_lanes(dpf_sha256 *a, const void *bytes_a, dpf_sha256 *b, const void *bytes_b, uint64_t nbytes);

uint64_t dpf_xxh3_64(const void *bytes, uint64_t nbytes);

/* XXH3-128 in canonical (big-endian) form. */
void dpf_xxh3_128(const void *bytes, uint64_t nbytes, unsigned char digest[DPF_XXH3_BYTES]);

DPF_END_C

#endif
