/* SPDX-License-Identifier: Apache-2.0
 *
 * The golden vectors of routing as a program of start.c: exit code 0, or 1 with the number of the first that is wrong.
 */
#include <stdio.h>

#include "route_golden.h"

static golden_memory memory;

int main(void) {
    int wrong = golden_all(&memory);
    if (wrong == 0) {
        printf("route: ok, every golden vector\n");
        return 0;
    }
    fprintf(stderr, "route: golden vector %d is wrong\n", wrong);
    return 1;
}
