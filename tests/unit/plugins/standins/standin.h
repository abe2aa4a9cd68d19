/* SPDX-License-Identifier: Apache-2.0 */
/* What every stand-in for a vendor's library shares: how a test tells one of its functions to fail.
 *
 * The environment variable STANDIN holds `function=what` items between commas, read at each call:
 *   nvmlInit_v2=999         return this number (of the library's own error type)
 *   nvmlInit_v2=999@3       return it from the third call on
 *   nvmlInit_v2=hang        never return
 *   nvmlInit_v2=crash       die by a segmentation fault
 *   load=hang|crash|exit|print|bytes|fork
 *                           what the library does when it is loaded: besides, end the process as if all were well,
 *                           print a line, or bytes that are no text, or leave a process behind that keeps every file open
 * `STANDIN_CALL(fail)` at the start of a function does all of that. A missing symbol is made by compiling without it:
 * -DWITHOUT_nvmlInit_v2 and `#ifndef` around the function.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What STANDIN says of `function`; NULL when nothing. */
static const char *standin_told(const char *function, int call) {
    const char *at = getenv("STANDIN");
    size_t length = strlen(function);
    while (at != NULL && *at != '\0') {
        if (strncmp(at, function, length) == 0 && at[length] == '=') {
            const char *value = at + length + 1, *end = strchr(value, ','), *from = strchr(value, '@');
            if (from == NULL || (end != NULL && from > end) || call >= atoi(from + 1)) return value;
        }
        at = strchr(at, ',');
        if (at != NULL) at++;
    }
    return NULL;
}

/* 0: go on; anything else is to be returned. */
static int standin_called(const char *function, int call) {
    const char *told = standin_told(function, call);
    if (told == NULL) return 0;
    if (strncmp(told, "hang", 4) == 0)
        for (;;) pause();
    if (strncmp(told, "crash", 5) == 0) raise(SIGSEGV);
    return atoi(told);
}

__attribute__((constructor)) static void standin_loaded(void) {
    const char *told = standin_told("load", 1);
    if (told == NULL) return;
    standin_called("load", 1);
    if (strncmp(told, "exit", 4) == 0) exit(0);
    if (strncmp(told, "print", 5) == 0) fflush((puts("driver: hello"), stdout));
    if (strncmp(told, "bytes", 5) == 0) fflush((fputs("\xff\xfe\n", stderr), fputs("\xff\xfe\n", stdout), NULL));
    if (strncmp(told, "fork", 4) == 0 && fork() == 0)
        for (;;) pause();
}

#define STANDIN_CALL(type)                                                                                             \
    do {                                                                                                               \
        static int calls;                                                                                              \
        int told = standin_called(__func__, ++calls);                                                                  \
        if (told != 0) return (type)told;                                                                              \
    } while (0)

/* An environment variable as a number. */
static inline long standin_number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text == NULL ? otherwise : atol(text);
}

/* An environment variable as text. */
static inline const char *standin_text(const char *name, const char *otherwise) {
    const char *text = getenv(name);
    return text == NULL ? otherwise : text;
}

#endif
