/* SPDX-License-Identifier: Apache-2.0
 *
 * What the C tests use of stdlib, in start.c.
 */
#ifndef BARE_STDLIB_H
#define BARE_STDLIB_H

#include <stddef.h>

void *malloc(size_t nbytes);
void *calloc(size_t count, size_t each);
void *aligned_alloc(size_t alignment, size_t nbytes);
void free(void *bytes);
__attribute__((noreturn)) void abort(void);
__attribute__((noreturn)) void exit(int code);

#endif
