/* SPDX-License-Identifier: Apache-2.0
 *
 * Which form of the products this CPU runs: asked of the CPU, never of a file.
 */
#include <string.h>

#include "blocks.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Registers that the system saves for a process. */
enum { AVX_STATE = 0x6, AVX512_STATE = 0xe6 };

static bool all(uint32_t found, uint32_t wanted) {
    return (found & wanted) == wanted;
}

/* By CPUID itself: what zig's clang makes of __builtin_cpu_supports says no to everything. */
static bool runs_own(const dpf_blocks_form *form) {
    uint32_t a, b, c, d, basic, saved;
    if (!__get_cpuid(1, &a, &b, &basic, &d) || !all(basic, bit_OSXSAVE | bit_FMA | bit_F16C)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !all(b, bit_AVX2)) return false;
    __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    if (form == &dpf_blocks_avx2) return all(saved, AVX_STATE);
    if (form != &dpf_blocks_avx512) return false;
    return all(saved, AVX512_STATE) && all(b, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) && all(c, bit_AVX512VNNI);
}
#elif defined(__AARCH64EL__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool runs_own(const dpf_blocks_form *form) {
    return form == &dpf_blocks_neon || (form == &dpf_blocks_neon_dotprod && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0);
}
#else
static bool runs_own(const dpf_blocks_form *form) {
    (void)form;
    return false;
}
#endif

static const dpf_blocks_form *const forms[] = {
#if defined(__x86_64__)
    &dpf_blocks_avx512,
    &dpf_blocks_avx2,
#elif defined(__AARCH64EL__)
    &dpf_blocks_neon_dotprod,
    &dpf_blocks_neon,
#endif
    &dpf_blocks_plain,
};

static bool runs(const dpf_blocks_form *form) {
    return form == &dpf_blocks_plain || runs_own(form);
}

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
