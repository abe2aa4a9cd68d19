/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of float activations with a matrix in blocks of 4- or 8-bit codes, read where and as the package has it.
 *
 * Activations are rounded to 16 bits per block of 32 and multiplied in integers: as fast as 8 bits where memory is what
 * a step waits for, 256 times finer, and exact on CPUs whose 8-bit products saturate. Of the matrix nothing is packed or
 * copied.
 */
#ifndef DPF_BLOCKS_H
#define DPF_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DPF_SHOWN __attribute__((visibility("default"))) /* for tests and benches; onnxruntime asks for one other name */

enum {
    DPF_BLOCK = 32,     /* elements that share a scale */
    DPF_CHUNK = 64,     /* bytes of codes that are multiplied at once: 4 blocks of 4 bits, 2 of 8 */
    DPF_LANES = 16,     /* 32-bit sums of a chunk, and what `scales` and `sums` of activations are padded to */
    DPF_WORDS = 32,     /* 16-bit activations of one vector */
};

/* Element (output, b·32 + i) = scale[output, b]·code + end[output, b], where 8-bit codes are bytes minus 128. */
typedef struct {
    const uint8_t *codes; /* [outputs, blocks, 4·bits], the lower element in the lower bits */
    const void *scales;   /* f16 or f32 [outputs, blocks] */
    const void *ends;     /* likewise; NULL: all 0 */
    const float *bias;    /* [outputs], or NULL */
    size_t outputs, blocks;
    unsigned bits; /* 4 or 8 */
    bool halves;   /* scales and ends are f16 */
    bool fine;     /* of 8 bits without ends: a scale for every 16 elements, [outputs, 2·blocks] */
} dpf_matrix;

/* Rounded activations of `tokens` rows; element 32b + i of a row = scale·word. neon.h places them in its own way. */
typedef struct {
    int16_t *words; /* [tokens, chunks, vectors, 32]: word w of vector v of a chunk is its element w·vectors + v */
    float *scales;  /* [tokens, chunks, 16]: of the block that each 32-bit sum of the chunk belongs to; 0 behind the last */
    float *sums;    /* [tokens, ends]: of each block as rounded, times what the matrix' ends count; 0 behind the last */
    size_t tokens, chunks, ends;
} dpf_rounded;

/* What one kind of CPU does. Rows of x and y are `columns` and `outputs` floats. */
typedef struct {
    const char *name;
    /* Rows `first` to `last` of x into `to`; `share` is what sums are multiplied by. A row with an infinity or a NaN
     * has a scale that is not a number there, and so are all its results; blocks of values under 1.1e-34 are rounded to 0. */
    void (*round)(const float *x, size_t columns, unsigned bits, float share, const dpf_rounded *to, size_t first, size_t last);
    /* y[token, output] of the outputs from `first` to `last`, of every token; each in an order of its own sums only. */
    void (*multiply)(const dpf_matrix *matrix, const dpf_rounded *by, size_t first, size_t last, float *y);
} dpf_blocks_form;

extern const dpf_blocks_form dpf_blocks_plain;
#if defined(__x86_64__)
extern const dpf_blocks_form dpf_blocks_avx2;
extern const dpf_blocks_form dpf_blocks_avx512;
#elif defined(__AARCH64EL__)
extern const dpf_blocks_form dpf_blocks_neon;
extern const dpf_blocks_form dpf_blocks_neon_dotprod;
#endif

/* The fastest form this CPU has; always the same one. */
DPF_SHOWN const dpf_blocks_form *dpf_blocks_best(void);

/* The form called so, or NULL where this CPU lacks it or none has that name. */
DPF_SHOWN const dpf_blocks_form *dpf_blocks_named(const char *name);

/* Chunks of a row of `blocks` blocks. */
static inline size_t dpf_chunks(size_t blocks, unsigned bits) {
    const size_t each = DPF_CHUNK / (4 * bits);
    return (blocks + each - 1) / each;
}

/* Blocks padded to whole vectors of sums. */
static inline size_t dpf_padded(size_t blocks) {
    return (blocks + DPF_LANES - 1) / DPF_LANES * DPF_LANES;
}

#endif
