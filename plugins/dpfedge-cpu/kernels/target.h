/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that may use more of a CPU than the file's other functions: gcc and clang are told so differently.
 */
#ifndef DPF_TARGET_H
#define DPF_TARGET_H

#define DPF_PRAGMA(text) _Pragma(#text)

/* From here to DPF_TARGET_END every function may use `features`; headers of the C library come before. */
#if defined(__clang__)
#define DPF_TARGET(features) DPF_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define DPF_TARGET_END DPF_PRAGMA(clang attribute pop)
#else
#define DPF_TARGET(features) DPF_PRAGMA(GCC push_options) DPF_PRAGMA(GCC target(features))
#define DPF_TARGET_END DPF_PRAGMA(GCC pop_options)
#endif

#endif
