// SPDX-License-Identifier: Apache-2.0
// What every kernel of this package begins with: tensors as (base, byte offset), vectors of V lanes, storage types.
// V and CPU (0 or 1) are defined before this text.

#pragma OPENCL FP_CONTRACT ON

#ifndef CPU
#define CPU 0
#endif
#ifndef FP16
#define FP16 0
#endif
#ifndef SIGNED_DOT
#define SIGNED_DOT 0
#endif
#ifndef WEIGHTS_HALF
#define WEIGHTS_HALF 0
#endif

// What a CPU's functions may use: all that the compiler takes it for, and what `Facts.target` asks for besides
#ifdef __AVX512F__
#define HAS_AVX512F 1
#endif
#ifdef __AVX512VL__
#define HAS_AVX512VL 1
#endif
#ifdef __AVX512VNNI__
#define HAS_AVX512VNNI 1
#endif

// Drivers inline kernels into functions of their own, which do not ask: what is worth asking for stays a function
#ifdef ASKING
#define INNER static __attribute__((noinline))
#else
#define INNER inline
#endif

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

// PoCL calls min, max and clamp as functions, too
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))
#define WITHIN(x, lo, hi) LEAST(MOST(x, lo), hi)

#define TENSOR(n) __global uchar *n##_base, const ulong n##_at
#define AS(type, n) ((__global type *)(n##_base + n##_at))

#ifndef V
#define V 4
#endif
#if V == 1
typedef float VF;
typedef int VI;
#else
typedef CAT(float, V) VF;
typedef CAT(int, V) VI;
#endif

// PoCL calls vloadN and vstoreN as functions, which costs every vector register; a CPU reads unaligned memory itself
#if V == 1
#define LOADV(p) ((p)[0])
#define STOREV(x, p) ((p)[0] = (x))
#elif CPU
typedef VF VFU __attribute__((aligned(4)));
#define LOADV(p) (*(__global const VFU *)(p))
#define STOREV(x, p) (*(__global VFU *)(p) = (x))
#else
#define LOADV(p) CAT(vload, V)(0, p)
#define STOREV(x, p) CAT(vstore, V)(x, 0, p)
#endif

// Weights: floats, or (WEIGHTS_HALF) halves, which any device reads. FP16 1: products and short sums are halves, too.
// FP16 2 is a stand-in for tests on devices without cl_khr_fp16: the same steps with floats in the place of halves.
#if WEIGHTS_HALF
typedef half WEIGHT;
#else
typedef float WEIGHT;
#endif
#define FLUSH 16
#if FP16 == 1
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef half NARROW;
typedef CAT(half, V) NARROWV;
#define NARROWED(x) CAT(convert_half, V)(x)
#define WIDENED(x) CAT(convert_float, V)(x)
#define LOADW(p) CAT(vload, V)(0, p)
#define WEIGHT_AT(p, i) ((p)[i])
#else
typedef float NARROW;
typedef VF NARROWV;
#define NARROWED(x) (x)
#define WIDENED(x) (x)
#if WEIGHTS_HALF
#define LOADW(p) CAT(vload_half, V)(0, p)
#define WEIGHT_AT(p, i) vload_half(i, p)
#else
#define LOADW(p) LOADV(p)
#define WEIGHT_AT(p, i) ((p)[i])
#endif
#endif

#if SIGNED_DOT
// acc + the four products of signed bytes of a and b; devices that have no instruction for it do the same in steps
#if defined(cl_khr_integer_dot_product) && defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
#define DOT_BYTES(acc, a, b) ((acc) + dot_4x8packed_ss_int(as_uint(a), as_uint(b)))
#elif defined(cl_arm_integer_dot_product_accumulate_int8)
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_accumulate_int8 : enable
#define DOT_BYTES(acc, a, b) arm_dot_acc(as_char4(a), as_char4(b), acc)
#else
inline int dot_bytes(const int acc, const char4 a, const char4 b) {
    return acc + (int)a.s0 * b.s0 + (int)a.s1 * b.s1 + (int)a.s2 * b.s2 + (int)a.s3 * b.s3;
}
#define DOT_BYTES(acc, a, b) dot_bytes(acc, as_char4(a), as_char4(b))
#endif

inline VI dot_lanes(const VI acc, const int a, const VI b) {
    int sum[V], other[V];
    CAT(vstore, V)(acc, 0, sum);
    CAT(vstore, V)(b, 0, other);
#pragma unroll
    for (int l = 0; l < V; l++) sum[l] = DOT_BYTES(sum[l], a, other[l]);
    return CAT(vload, V)(0, sum);
}
#endif

// The sum of a vector's lanes, halves first
inline float total(const VF x) {
#if V == 16
    const float8 a = x.lo + x.hi;
    const float4 b = a.lo + a.hi;
#elif V == 8
    const float4 b = x.lo + x.hi;
#elif V == 4
    const float4 b = x;
#endif
#if V == 1
    return x;
#else
    const float2 c = b.lo + b.hi;
    return c.s0 + c.s1;
#endif
}

#if V > 1
// Lanes begin .. end of the V floats at p, the others being those of `other`; no other memory is touched
// The built-ins know no address spaces, and a CPU has none
#if CPU && V == 16 && defined(HAS_AVX512F)
#define MASKED_LOAD(p, other, mask) __builtin_ia32_loadups512_mask((const float *)(size_t)(p), other, (ushort)(mask))
#define MASKED_STORE(x, p, mask) __builtin_ia32_storeups512_mask((float *)(size_t)(p), x, (ushort)(mask))
#elif CPU && V == 8 && defined(HAS_AVX512VL)
#define MASKED_LOAD(p, other, mask) __builtin_ia32_loadups256_mask((const VF *)(size_t)(p), other, (uchar)(mask))
#define MASKED_STORE(x, p, mask) __builtin_ia32_storeups256_mask((VF *)(size_t)(p), x, (uchar)(mask))
#endif
#ifdef MASKED_LOAD
inline VF load_lanes_or(__global const float *p, const int begin, const int end, const VF other) {
    return MASKED_LOAD(p, other, ((1u << end) - 1u) & ~((1u << begin) - 1u));
}

inline VF load_private(const float *p, const int have) { return MASKED_LOAD(p, (VF)(0.f), (1u << have) - 1u); }

inline void store_some(const VF x, __global float *p, const int have) { MASKED_STORE(x, p, (1u << have) - 1u); }
#else
inline VF load_lanes_or(__global const float *p, const int begin, const int end, const VF other) {
    float lane[V];
    CAT(vstore, V)(other, 0, lane);
    for (int l = 0; l < V; l++) lane[l] = l >= begin && l < end ? p[l] : lane[l];
    return CAT(vload, V)(0, lane);
}

inline VF load_private(const float *p, const int have) {
    float lane[V];
    for (int l = 0; l < V; l++) lane[l] = l < have ? p[l] : 0.f;
    return CAT(vload, V)(0, lane);
}

inline void store_some(const VF x, __global float *p, const int have) {
    float lane[V];
    CAT(vstore, V)(x, 0, lane);
    for (int l = 0; l < have; l++) p[l] = lane[l];
}
#endif

inline VF load_some(__global const float *p, const int have) { return load_lanes_or(p, 0, have, (VF)(0.f)); }

#if defined(SW) && defined(MASKED_LOAD)
// Which of V floats from `first` on a row of `size` floats has, as bits
inline uint row_has(const int first, const int size) {
    return (1u << WITHIN(size - first, 0, V)) - (1u << WITHIN(-first, 0, V));
}

// The same for elements first, first + SW, ... (SW 1 or 2), which lie in two vectors
inline uint2 columns_of(const int first, const int size) {
    return (uint2)(row_has(first, size), row_has(first + V, size));
}

// These elements of the row at p as lanes, `other` where there are none
inline VF columns(__global const float *p, const uint2 there, const VF other) {
    const VF a = MASKED_LOAD(p, other, there.s0);
#if SW == 1
    return a;
#else
    const VF b = MASKED_LOAD(p + V, other, there.s1);
    return (VF)(a.even, b.even);
#endif
}
#endif

#if CPU
#define LOADP(p) (*(const VFU *)(p))
#define STOREP(x, p) (*(VFU *)(p) = (x))
#else
#define LOADP(p) CAT(vload, V)(0, p)
#define STOREP(x, p) CAT(vstore, V)(x, 0, p)
#endif
#define LOADN(p, have) ((have) >= V ? LOADV(p) : load_some(p, have))
#define STOREN(x, p, have)         \
    do {                           \
        if ((have) >= V)           \
            STOREV(x, p);          \
        else                       \
            store_some(x, p, have); \
    } while (0)
#endif

