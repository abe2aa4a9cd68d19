/* SPDX-License-Identifier: Apache-2.0
 *
 * A Cortex-M without an operating system: vectors, and as much of a C library as the C tests use, over semihosting.
 *
 * In: the folder the emulator was started in, as the test's argument. Out: the test's text and exit code. Memory that is
 * freed in the order it came from is used again; the rest is not. Faults end the program with code 3.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SYS_OPEN = 1, SYS_CLOSE = 2, SYS_WRITE0 = 4, SYS_READ = 6, SYS_SEEK = 10, SYS_FLEN = 12, SYS_EXIT = 0x20 };
enum { APPLICATION_EXIT = 0x20026 };

extern char stack_top[], heap_start[], heap_end[], data_load[], data_start[], data_end[], bss_start[], bss_end[];
int main(int count, char **arguments);

static int call(int operation, const void *block) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

__attribute__((noreturn)) void exit(int code) {
    uint32_t block[2] = {APPLICATION_EXIT, (uint32_t)code};
    for (;;) call(SYS_EXIT, block);
}

void abort(void) {
    exit(1);
}

static void fault(void) {
    call(SYS_WRITE0, "a fault\n");
    exit(3);
}

void _start(void);
void _start(void) {
    static char name[] = "test", folder[] = ".";
    char *arguments[] = {name, folder, NULL};
    memcpy(data_start, data_load, (size_t)(data_end - data_start));
    memset(bss_start, 0, (size_t)(bss_end - bss_start));
    exit(main(2, arguments));
}

__attribute__((section(".vectors"), used)) static const void *const VECTORS[16] = {
    stack_top, (void *)_start, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
};

void *memcpy(void *restrict to, const void *restrict from, size_t nbytes) {
    unsigned char *a = to;
    const unsigned char *b = from;
    while (nbytes-- != 0) *a++ = *b++;
    return to;
}

void *memset(void *to, int value, size_t nbytes) {
    unsigned char *a = to;
    while (nbytes-- != 0) *a++ = (unsigned char)value;
    return to;
}

int memcmp(const void *one, const void *two, size_t nbytes) {
    const unsigned char *a = one, *b = two;
    for (; nbytes != 0; nbytes--, a++, b++) {
        if (*a != *b) return *a < *b ? -1 : 1;
    }
    return 0;
}

size_t strlen(const char *text) {
    size_t count = 0;
    while (text[count] != 0) count++;
    return count;
}

int strncmp(const char *one, const char *two, size_t most) {
    for (; most != 0; most--, one++, two++) {
        if (*one != *two || *one == 0) return (unsigned char)*one - (unsigned char)*two;
    }
    return 0;
}

int strcmp(const char *one, const char *two) {
    return strncmp(one, two, (size_t)-1);
}

static char *heap = heap_start;
static char *newest;

void *malloc(size_t nbytes) {
    size_t room = (nbytes + 15) & ~(size_t)15;
    if (room < nbytes || room > (size_t)(heap_end - heap)) return NULL;
    newest = heap;
    heap += room;
    return newest;
}

void *aligned_alloc(size_t alignment, size_t nbytes) {
    size_t rest = (uintptr_t)heap & (alignment - 1);
    if (rest != 0 && malloc(alignment - rest) == NULL) return NULL;
    return malloc(nbytes);
}

void *calloc(size_t count, size_t each) {
    void *bytes = malloc(count * each);
    return bytes == NULL ? NULL : memset(bytes, 0, count * each);
}

void free(void *bytes) {
    if (bytes != NULL && bytes == newest) heap = newest;
}

static void put(char *text, size_t room, size_t *at, char c) {
    if (*at + 1 < room) text[*at] = c;
    ++*at;
}

static void put_number(char *text, size_t room, size_t *at, uint64_t number, unsigned base, int width) {
    char digits[24];
    int count = 0;
    do {
        digits[count++] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number != 0);
    while (count < width) digits[count++] = '0';
    while (count-- != 0) put(text, room, at, digits[count]);
}

/* %s, %c, and %d, %u, %x, %zu, %lu, %llx of numbers that are not negative, with widths filled with zeros: what the tests print. */
static int write_text(char *text, size_t room, const char *format, va_list list) {
    size_t at = 0;
    for (; *format != 0; format++) {
        int width = 0;
        if (*format != '%') {
            put(text, room, &at, *format);
            continue;
        }
        for (format++; *format >= '0' && *format <= '9'; format++) width = 10 * width + *format - '0';
        int longs = 0;
        for (; *format == 'z' || *format == 'l'; format++) longs += *format == 'l';
        if (*format == 's') {
            for (const char *s = va_arg(list, const char *); *s != 0; s++) put(text, room, &at, *s);
        } else if (*format == 'c') {
            put(text, room, &at, (char)va_arg(list, int));
        } else {
            uint64_t number = longs == 2 ? va_arg(list, unsigned long long) : va_arg(list, unsigned long);
            put_number(text, room, &at, number, *format == 'x' ? 16 : 10, width);
        }
    }
    if (room != 0) text[at < room ? at : room - 1] = 0;
    return (int)at;
}

int snprintf(char *text, size_t room, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int count = write_text(text, room, format, list);
    va_end(list);
    return count;
}

static int tell(const char *format, va_list list) {
    static char line[256];
    int count = write_text(line, sizeof line, format, list);
    call(SYS_WRITE0, line);
    return count;
}

int puts(const char *text) {
    return printf("%s\n", text);
}

int printf(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int count = tell(format, list);
    va_end(list);
    return count;
}

int fprintf(FILE *file, const char *format, ...) {
    va_list list;
    (void)file;
    va_start(list, format);
    int count = tell(format, list);
    va_end(list);
    return count;
}

static FILE opened;

FILE *fopen(const char *path, const char *mode) {
    uint32_t block[3] = {(uint32_t)(uintptr_t)path, 1, (uint32_t)strlen(path)};
    (void)mode; /* read, binary */
    opened.handle = call(SYS_OPEN, block);
    return opened.handle == -1 ? NULL : &opened;
}

static uint32_t handle(FILE *file) {
    return (uint32_t)file->handle;
}

int fseek(FILE *file, long offset, int whence) {
    uint32_t block[2] = {handle(file), 0};
    file->place = whence == SEEK_END ? call(SYS_FLEN, block) + offset : offset;
    block[1] = (uint32_t)file->place;
    return call(SYS_SEEK, block);
}

long ftell(FILE *file) {
    return file->place;
}

void rewind(FILE *file) {
    fseek(file, 0, SEEK_SET);
}

size_t fread(void *bytes, size_t each, size_t count, FILE *file) {
    uint32_t block[3] = {handle(file), (uint32_t)(uintptr_t)bytes, (uint32_t)(each * count)};
    return count - (size_t)call(SYS_READ, block) / each;
}

int fclose(FILE *file) {
    uint32_t block[1] = {handle(file)};
    return call(SYS_CLOSE, block);
}
