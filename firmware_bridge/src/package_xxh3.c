/* SPDX-License-Identifier: Apache-2.0
 *
 * XXH3-64 and XXH3-128 with seed 0 and the default secret, after the public specification (xxhash_spec.md), for
 * dpf/digest.h. Inputs of 0, 1-3, 4-8, 9-16, 17-128, 129-240 and more bytes each have their own recipe.
 */
#include "dpf/digest.h"

#define PRIME32_1 0x9E3779B1u
#define PRIME32_2 0x85EBCA77u
#define PRIME32_3 0xC2B2AE3Du
#define PRIME64_1 0x9E3779B185EBCA87u
#define PRIME64_2 0xC2B2AE3D27D4EB4Fu
#define PRIME64_3 0x165667B19E3779F9u
#define PRIME64_4 0x85EBCA77C2B2AE63u
#define PRIME64_5 0x27D4EB2F165667C5u
#define PRIME_MX1 0x165667919E3779F9u
#define PRIME_MX2 0x9FB21C651E98DF25u

enum { SECRET_BYTES = 192, STRIPE = 64, BLOCK = 1024 };

static const unsigned char SECRET[SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

typedef struct pair {
    uint64_t low, high;
} pair;

static uint64_t read32(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t read64(const unsigned char *at) {
    return read32(at) | read32(at + 4) << 32;
}

static uint64_t secret64(uint64_t place) {
    return read64(SECRET + place);
}

static uint64_t turn(uint64_t word, unsigned bits) {
    return word << bits | word >> (64 - bits);
}

static uint64_t swap64(uint64_t word) {
    uint64_t swapped = 0;
    for (unsigned i = 0; i < 8; i++) swapped |= (word >> 8 * i & 255) << (56 - 8 * i);
    return swapped;
}

/* 64 × 64 → 128 bits; in halves, since firmware may run on a 32-bit core. */
static pair multiply(uint64_t a, uint64_t b) {
    uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    uint64_t low = al * bl, left = ah * bl, right = al * bh;
    uint64_t middle = (low >> 32) + (uint32_t)left + right;
    return (pair){middle << 32 | (uint32_t)low, ah * bh + (left >> 32) + (middle >> 32)};
}

static uint64_t fold(uint64_t a, uint64_t b) {
    pair product = multiply(a, b);
    return product.low ^ product.high;
}

static uint64_t avalanche(uint64_t x) {
    x = (x ^ x >> 37) * PRIME_MX1;
    return x ^ x >> 32;
}

static uint64_t avalanche_old(uint64_t x) {
    x = (x ^ x >> 33) * PRIME64_2;
    x = (x ^ x >> 29) * PRIME64_3;
    return x ^ x >> 32;
}

static uint32_t combine_3(const unsigned char *in, uint64_t n) {
    return (uint32_t)in[n - 1] | (uint32_t)n << 8 | (uint32_t)in[0] << 16 | (uint32_t)in[n >> 1] << 24;
}

static uint64_t small_64(const unsigned char *in, uint64_t n) {
    if (n == 0) return avalanche_old(secret64(56) ^ secret64(64));
    if (n <= 3) return avalanche_old((read32(SECRET) ^ read32(SECRET + 4)) ^ combine_3(in, n));
    if (n <= 8) {
        uint64_t x = (secret64(8) ^ secret64(16)) ^ (read32(in + n - 4) | read32(in) << 32);
        x = (x ^ turn(x, 49) ^ turn(x, 24)) * PRIME_MX2;
        x = (x ^ ((x >> 35) + n)) * PRIME_MX2;
        return x ^ x >> 28;
    }
    uint64_t low = secret64(24) ^ secret64(32) ^ read64(in), high = secret64(40) ^ secret64(48) ^ read64(in + n - 8);
    return avalanche(n + swap64(low) + high + fold(low, high));
}

static pair small_128_to_3(const unsigned char *in, uint64_t n) {
    uint32_t word = combine_3(in, n);
    uint32_t swapped = (uint32_t)(swap64(word) >> 32), turned = swapped << 13 | swapped >> 19;
    uint64_t low = read32(SECRET) ^ read32(SECRET + 4) ^ word;
    uint64_t high = read32(SECRET + 8) ^ read32(SECRET + 12) ^ turned;
    return (pair){avalanche_old(low), avalanche_old(high)};
}

static pair small_128_to_8(const unsigned char *in, uint64_t n) {
    uint64_t x = secret64(16) ^ secret64(24) ^ (read32(in) | read32(in + n - 4) << 32);
    pair r = multiply(x, PRIME64_1 + (n << 2));
    r.high += r.low << 1;
    r.low ^= r.high >> 3;
    r.low = (r.low ^ r.low >> 35) * PRIME_MX2;
    return (pair){r.low ^ r.low >> 28, avalanche(r.high)};
}

static pair small_128_to_16(const unsigned char *in, uint64_t n) {
    uint64_t first = read64(in), last = read64(in + n - 8);
    uint64_t one = secret64(32) ^ secret64(40) ^ first ^ last, two = secret64(48) ^ secret64(56) ^ last;
    pair r = multiply(one, PRIME64_1);
    r.low += (n - 1) << 54;
    r.high += (two >> 32 << 32) + (uint32_t)two * (uint64_t)PRIME32_2;
    r.low ^= swap64(r.high);
    pair s = multiply(r.low, PRIME64_2);
    return (pair){avalanche(s.low), avalanche(s.high + r.high * PRIME64_2)};
}

static pair small_128(const unsigned char *in, uint64_t n) {
    if (n == 0) return (pair){avalanche_old(secret64(64) ^ secret64(72)), avalanche_old(secret64(80) ^ secret64(88))};
    return n <= 3 ? small_128_to_3(in, n) : n <= 8 ? small_128_to_8(in, n) : small_128_to_16(in, n);
}

static uint64_t mix(const unsigned char *in, uint64_t place) {
    return fold(read64(in) ^ secret64(place), read64(in + 8) ^ secret64(place + 8));
}

static void mix_two(pair *acc, const unsigned char *one, const unsigned char *two, uint64_t place) {
    acc->low = (acc->low + mix(one, place)) ^ (read64(two) + read64(two + 8));
    acc->high = (acc->high + mix(two, place + 16)) ^ (read64(one) + read64(one + 8));
}

static uint64_t medium_64(const unsigned char *in, uint64_t n) {
    uint64_t acc = n * PRIME64_1;
    if (n <= 128) {
        for (uint64_t i = (n - 1) >> 5; i != UINT64_MAX; i--) {
            acc += mix(in + 16 * i, 32 * i) + mix(in + n - 16 * i - 16, 32 * i + 16);
        }
        return avalanche(acc);
    }
    for (uint64_t i = 0; i < 8; i++) acc += mix(in + 16 * i, 16 * i);
    acc = avalanche(acc);
    for (uint64_t i = 8; i < n >> 4; i++) acc += mix(in + 16 * i, 16 * (i - 8) + 3);
    return avalanche(acc + mix(in + n - 16, 119));
}

static pair medium_128(const unsigned char *in, uint64_t n) {
    pair acc = {n * PRIME64_1, 0};
    if (n <= 128) {
        for (uint64_t i = (n - 1) >> 5; i != UINT64_MAX; i--) mix_two(&acc, in + 16 * i, in + n - 16 * i - 16, 32 * i);
    } else {
        for (uint64_t i = 0; i < 4; i++) mix_two(&acc, in + 32 * i, in + 32 * i + 16, 32 * i);
        acc = (pair){avalanche(acc.low), avalanche(acc.high)};
        for (uint64_t i = 4; i < n >> 5; i++) mix_two(&acc, in + 32 * i, in + 32 * i + 16, 32 * (i - 4) + 3);
        mix_two(&acc, in + n - 16, in + n - 32, 103);
    }
    uint64_t high = acc.low * PRIME64_1 + acc.high * PRIME64_4 + n * PRIME64_2;
    return (pair){avalanche(acc.low + acc.high), 0 - avalanche(high)};
}

static void stripe(uint64_t acc[8], const unsigned char *in, uint64_t place) {
    for (unsigned i = 0; i < 8; i++) {
        uint64_t data = read64(in + 8 * i), key = data ^ secret64(place + 8 * i);
        acc[i ^ 1] += data;
        acc[i] += (uint32_t)key * (key >> 32);
    }
}

static void scramble(uint64_t acc[8]) {
    for (unsigned i = 0; i < 8; i++) {
        acc[i] = (acc[i] ^ acc[i] >> 47 ^ secret64(SECRET_BYTES - STRIPE + 8 * i)) * PRIME32_1;
    }
}

static void large(uint64_t acc[8], const unsigned char *in, uint64_t n) {
    static const uint64_t START[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3,
                                      PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    const unsigned char *end = in + n;
    for (unsigned i = 0; i < 8; i++) acc[i] = START[i];
    for (; n > BLOCK; in += BLOCK, n -= BLOCK) {
        for (uint64_t i = 0; i < BLOCK / STRIPE; i++) stripe(acc, in + STRIPE * i, 8 * i);
        scramble(acc);
    }
    for (uint64_t i = 0; i < (n - 1) / STRIPE; i++) stripe(acc, in + STRIPE * i, 8 * i);
    stripe(acc, end - STRIPE, SECRET_BYTES - 71);
}

static uint64_t merge(const uint64_t acc[8], uint64_t start, uint64_t place) {
    for (unsigned i = 0; i < 8; i += 2) {
        start += fold(acc[i] ^ secret64(place + 8 * i), acc[i + 1] ^ secret64(place + 8 * i + 8));
    }
    return avalanche(start);
}

uint64_t dpf_xxh3_64(const void *bytes, uint64_t nbytes) {
    uint64_t acc[8];
    if (nbytes <= 16) return small_64(bytes, nbytes);
    if (nbytes <= 240) return medium_64(bytes, nbytes);
    large(acc, bytes, nbytes);
    return merge(acc, nbytes * PRIME64_1, 11);
}

void dpf_xxh3_128(const void *bytes, uint64_t nbytes, unsigned char digest[DPF_XXH3_BYTES]) {
    uint64_t acc[8];
    pair hash;
    if (nbytes <= 16) {
        hash = small_128(bytes, nbytes);
    } else if (nbytes <= 240) {
        hash = medium_128(bytes, nbytes);
    } else {
        large(acc, bytes, nbytes);
        hash.low = merge(acc, nbytes * PRIME64_1, 11);
        hash.high = merge(acc, ~(nbytes * PRIME64_2), SECRET_BYTES - 75);
    }
    for (unsigned i = 0; i < 8; i++) {
        digest[i] = (unsigned char)(hash.high >> (56 - 8 * i));
        digest[8 + i] = (unsigned char)(hash.low >> (56 - 8 * i));
    }
}
