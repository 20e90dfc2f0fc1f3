/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h: helpers that the fuzzers share. A fuzzer aborts on an error that the sanitizers would not see. */
#ifndef NTX_TESTS_FUZZ_FUZZ_H
#define NTX_TESTS_FUZZ_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define MUST(cond)                                                                                                     \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__, __LINE__, #cond);                                      \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The input as a file, with a path for those who want one. */
static inline int fuzz_file(const void *data, size_t size, char path[64])
{
    int fd = memfd_create("input", MFD_CLOEXEC);
    MUST(fd >= 0 && (size_t)write(fd, data, size) == size);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* Seeds that a shell cannot write: with NTX_FUZZ_SEEDS=DIR the fuzzer writes them to DIR and ends. */
static inline const char *fuzz_seed_dir(void) { return getenv("NTX_FUZZ_SEEDS"); }
static inline void fuzz_seed(const char *name, const void *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", fuzz_seed_dir(), name);
    FILE *f = fopen(path, "wb");
    MUST(f && fwrite(data, 1, size, f) == size && !fclose(f));
}

/* Simulates memory that another process wrote, as a list of changes to valid contents. A change has 8 bytes: a place
 * in units of 4 bytes (24 bits), a mode (8 bits: 0 to 3 set 1, 2, 4 or 8 bytes; others add the value as a signed
 * byte), and a value of 4 bytes. */
static inline size_t fuzz_place(const uint8_t *change, size_t bytes)
{
    return ((size_t)change[0] | (size_t)change[1] << 8 | (size_t)change[2] << 16) * 4 % (bytes - 8);
}

static inline void fuzz_patch(uint8_t *base, size_t bytes, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        size_t at = fuzz_place(data, bytes);
        uint64_t value = 0;
        uint32_t word;
        memcpy(&value, data + 4, 4);
        if (data[3] == 3)
            value = (uint64_t)((int64_t)(value << 32) >> 20); /* large, or negative */
        if (data[3] < 4) {
            memcpy(base + at, &value, (size_t)1 << data[3]);
            continue;
        }
        memcpy(&word, base + at, 4);
        word += (uint32_t)(int8_t)data[4];
        memcpy(base + at, &word, 4);
    }
}

/* Undoes the changes. */
static inline void fuzz_restore(uint8_t *base, const uint8_t *right, size_t bytes, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        size_t at = fuzz_place(data, bytes);
        memcpy(base + at, right + at, 8);
    }
}

#endif
