/* SPDX-License-Identifier: Apache-2.0
 *
 * What the C tests use of string, in start.c.
 */
#ifndef BARE_STRING_H
#define BARE_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t nbytes);
void *memset(void *to, int value, size_t nbytes);
int memcmp(const void *one, const void *two, size_t nbytes);
size_t strlen(const char *text);
int strcmp(const char *one, const char *two);
int strncmp(const char *one, const char *two, size_t most);

#endif
