/* SPDX-License-Identifier: Apache-2.0
 *
 * Which form of the products this CPU runs: asked of the CPU, never of a file.
 */
#include <string.h>

#include "blocks.h"

static bool runs(const dpf_blocks_form *form) {
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    if (form == &dpf_blocks_avx2) return avx2;
    if (form == &dpf_blocks_avx512) {
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
    }
#endif
    return form == &dpf_blocks_plain;
}

static const dpf_blocks_form *const forms[] = {
#if defined(__x86_64__)
    &dpf_blocks_avx512,
    &dpf_blocks_avx2,
#endif
    &dpf_blocks_plain,
};

const dpf_blocks_form *dpf_blocks_best(void) {
    for (size_t i = 0; i + 1 < sizeof forms / sizeof *forms; i++) {
        if (runs(forms[i])) return forms[i];
    }
    return &dpf_blocks_plain;
}

const dpf_blocks_form *dpf_blocks_named(const char *name) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i]->name, name) == 0 && runs(forms[i])) return forms[i];
    }
    return NULL;
}
