/* SPDX-License-Identifier: Apache-2.0 */
/* Emulates a machine with pages of PRETEND_PAGE bytes, as 64-bit Arm has them. Tests link it with --wrap of the
 * functions below. An address that is no multiple of such a page ends the test, since that kernel would refuse it.
 * Mappings begin at a page and fill whole ones. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/util.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { PAGE = PRETEND_PAGE };

uint64_t __wrap_ntx_page_bytes(void);
uint64_t __wrap_ntx_page_bytes(void) { return PAGE; }
uint64_t __wrap_ntx_huge_bytes(void);
uint64_t __wrap_ntx_huge_bytes(void) { return (uint64_t)PAGE / 8 * PAGE; }

void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t n);
int __wrap_munmap(void *at, size_t n);
int __real_madvise(void *at, size_t n, int advice);
int __wrap_madvise(void *at, size_t n, int advice);

static size_t whole_pages(const char *what, const void *at, size_t n)
{
    if ((uintptr_t)at % PAGE == 0)
        return NTX_ROUND_UP(n, (size_t)PAGE);
    fprintf(stderr, "%s of %p, which is at no page of %d bytes\n", what, at, PAGE);
    abort();
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    n = whole_pages("mmap", at, n);
    if (at)
        return __real_mmap(at, n, prot, flags, fd, offset);
    char *room = __real_mmap(NULL, n + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return room;
    char *from = (char *)NTX_ROUND_UP((uintptr_t)room, (uintptr_t)PAGE);
    if (from > room)
        __real_munmap(room, (size_t)(from - room));
    if (from < room + PAGE)
        __real_munmap(from + n, (size_t)(room + PAGE - from));
    return __real_mmap(from, n, prot, flags | MAP_FIXED, fd, offset);
}

int __wrap_munmap(void *at, size_t n) { return __real_munmap(at, whole_pages("munmap", at, n)); }

/* Linux reports success, and does nothing, when less than a huge page is to be collapsed. */
int __wrap_madvise(void *at, size_t n, int advice)
{
    n = whole_pages("madvise", at, n);
    if (advice == MADV_COLLAPSE) {
        uintptr_t huge = (uintptr_t)ntx_huge_bytes(), from = NTX_ROUND_UP((uintptr_t)at, huge),
                  end = NTX_ROUND_DOWN((uintptr_t)at + n, huge);
        if (from == end)
            return 0;
        if (from > end) {
            errno = EINVAL;
            return -1;
        }
        at = (void *)from;
        n = end - from;
    }
    return __real_madvise(at, n, advice);
}
