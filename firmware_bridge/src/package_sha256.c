/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 after FIPS 180-4, for dpf/digest.h.
 */
#include "dpf/digest.h"
#include "package_sha256.h"

static uint32_t turn(uint32_t word, unsigned bits) {
    return word >> bits | word << (32 - bits);
}

static uint32_t big32(const unsigned char *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void expand(uint32_t word[64], const unsigned char *block) {
    for (unsigned i = 0; i < 16; i++) word[i] = big32(block + 4 * i);
    for (unsigned i = 16; i < 64; i++) {
        uint32_t a = word[i - 15], b = word[i - 2];
        uint32_t low = turn(a, 7) ^ turn(a, 18) ^ a >> 3, high = turn(b, 17) ^ turn(b, 19) ^ b >> 10;
        word[i] = word[i - 16] + low + word[i - 7] + high;
    }
}

static void compress(uint32_t state[8], const unsigned char *block) {
    uint32_t word[64], v[8];
    expand(word, block);
    for (unsigned i = 0; i < 8; i++) v[i] = state[i];
    for (unsigned i = 0; i < 64; i++) {
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]), majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        uint32_t one = v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) + choice + ROUND[i] + word[i];
        uint32_t two = (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) + majority;
        v[7] = v[6], v[6] = v[5], v[5] = v[4], v[4] = v[3] + one;
        v[3] = v[2], v[2] = v[1], v[1] = v[0], v[0] = one + two;
    }
    for (unsigned i = 0; i < 8; i++) state[i] += v[i];
}

void dpf_sha256_begin(dpf_sha256 *sha256) {
    sha256->nbytes = 0;
    for (unsigned i = 0; i < 8; i++) sha256->state[i] = START[i];
}

void dpf_sha256_add(dpf_sha256 *sha256, const void *bytes, uint64_t nbytes) {
    const unsigned char *at = bytes;
    unsigned held = (unsigned)(sha256->nbytes % 64);
    sha256->nbytes += nbytes;
    while (held != 0 && nbytes != 0) {
        sha256->block[held] = *at++;
        nbytes--;
        held = (held + 1) % 64;
        if (held == 0) compress(sha256->state, sha256->block);
    }
    for (; nbytes >= 64; at += 64, nbytes -= 64) compress(sha256->state, at);
    for (uint64_t i = 0; i < nbytes; i++) sha256->block[i] = at[i];
}

void dpf_sha256_end(dpf_sha256 *sha256, unsigned char digest[DPF_SHA256_BYTES]) {
    static const unsigned char PAD[64] = {0x80};
    uint64_t bits = sha256->nbytes * 8;
    unsigned held = (unsigned)(sha256->nbytes % 64);
    unsigned char length[8];
    for (unsigned i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    dpf_sha256_add(sha256, PAD, held < 56 ? 56 - held : 120 - held);
    dpf_sha256_add(sha256, length, 8);
    for (unsigned i = 0; i < 32; i++) digest[i] = (unsigned char)(sha256->state[i / 4] >> (24 - 8 * (i % 4)));
}
