/* SPDX-License-Identifier: Apache-2.0 */
/* check.h: assertions for test programs. A failed CHECK prints its place and exits 1; SKIP prints the reason and exits
 * 77. */
#ifndef NTX_TESTS_LIB_CHECK_H
#define NTX_TESTS_LIB_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_MSG(cond, ...)                                                                                           \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: failed: %s: ", __FILE__, __LINE__, #cond);                                         \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_EQ(a, b)                                                                                                 \
    do {                                                                                                               \
        long long a_ = (long long)(a), b_ = (long long)(b);                                                            \
        if (a_ != b_) {                                                                                                \
            fprintf(stderr, "%s:%d: %s is %lld, expected %s = %lld\n", __FILE__, __LINE__, #a, a_, #b, b_);            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_STR(a, b)                                                                                                \
    do {                                                                                                               \
        const char *a_ = (a), *b_ = (b);                                                                               \
        if (strcmp(a_, b_)) {                                                                                          \
            fprintf(stderr, "%s:%d: %s is \"%s\", expected \"%s\"\n", __FILE__, __LINE__, #a, a_, b_);                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define SKIP(...)                                                                                                      \
    do {                                                                                                               \
        printf("skipped: " __VA_ARGS__);                                                                               \
        putchar('\n');                                                                                                 \
        exit(77);                                                                                                      \
    } while (0)

#endif
