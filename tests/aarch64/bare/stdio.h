/* SPDX-License-Identifier: Apache-2.0
 *
 * What the C tests use of stdio, in start.c: one file at a time, formats of start.c only.
 */
#ifndef BARE_STDIO_H
#define BARE_STDIO_H

#include <stddef.h>
#include <stdint.h>

typedef struct FILE {
    int handle;
    long place;
} FILE;

enum { SEEK_SET = 0, SEEK_END = 2 };
#define stderr ((FILE *)0)

FILE *fopen(const char *path, const char *mode);
int fseek(FILE *file, long offset, int whence);
long ftell(FILE *file);
void rewind(FILE *file);
size_t fread(void *bytes, size_t each, size_t count, FILE *file);
int fclose(FILE *file);
int puts(const char *text);
int printf(const char *format, ...);
int fprintf(FILE *file, const char *format, ...);
int snprintf(char *text, size_t room, const char *format, ...);

#endif
