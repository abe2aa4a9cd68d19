/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs every input of the folders given, without a fuzzer: what `make test` does with the corpus.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { LARGEST = 1 << 20 };

static int replay(const char *folder, const char *name, uint8_t *buffer) {
    char path[4096];
    if (name[0] == '.') return 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    size_t nbytes = fread(buffer, 1, LARGEST, file);
    fclose(file);
    LLVMFuzzerTestOneInput(buffer, nbytes);
    return 1;
}

int main(int count, char **folders) {
    static uint8_t buffer[LARGEST];
    int inputs = 0;
    for (int i = 1; i < count; i++) {
        DIR *folder = opendir(folders[i]);
        if (folder == NULL) {
            perror(folders[i]);
            return 1;
        }
        struct dirent *entry;
        while ((entry = readdir(folder)) != NULL) inputs += replay(folders[i], entry->d_name, buffer);
        closedir(folder);
    }
    printf("replay: %d inputs, ok\n", inputs);
    return inputs == 0;
}
