/* SPDX-License-Identifier: Apache-2.0 */
/* region_pages.c: populates the region's memory: tables in ordinary pages, the target of DMA in huge pages where the
 * kernel gives them to an ordinary process. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "common/util.h"
#include "shm/region_impl.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* A failed collapse may have compacted memory for a while. After this many in a row we stop trying. */
#define COLLAPSE_PATIENCE 16

static void note_add(char *note, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void note_add(char *note, size_t len, const char *fmt, ...)
{
    size_t n = strnlen(note, len);
    if (n + 3 >= len)
        return;
    if (n)
        n += (size_t)snprintf(note + n, len - n, "; ");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(note + n, len - n, fmt, ap);
    va_end(ap);
}

static int populate(uint8_t *p, size_t n)
{
    if (!n || !madvise(p, n, MADV_POPULATE_WRITE))
        return 0;
    if (errno != EINVAL)
        return -errno;
    for (size_t i = 0; i < n; i += ntx_page_bytes()) /* before Linux 5.14 */
        *(volatile uint8_t *)(p + i) = 0;
    return 0;
}

/* One populated page suffices: the kernel collapses the range and fills the rest with zeros. So at most one small page
 * is held twice for a moment. */
static int collapse(uint8_t *p, size_t huge)
{
    int rc = populate(p, ntx_page_bytes());
    for (int attempt = 0; !rc && attempt < 2; attempt++) {
        if (!madvise(p, huge, MADV_COLLAPSE))
            return 0;
        if (errno != EAGAIN)
            break;
    }
    return rc ? rc : -errno;
}

/* Bytes to populate in one step: a huge page of this machine, or NTX_HUGE where a larger page does not fit. For less
 * than a huge page the kernel would report success and do nothing. */
static uint64_t step_bytes(const struct ntx_region *r)
{
    uint64_t huge = ntx_huge_bytes(), at = r->pages.at;
    return huge > NTX_HUGE && at % huge == 0 && r->bytes - at >= huge ? huge : NTX_HUGE;
}

static int bring_in_one(struct ntx_region_pages *p, uint8_t *page, uint64_t bytes)
{
    if (bytes < ntx_huge_bytes())
        return populate(page, bytes);
    int rc = p->failed < COLLAPSE_PATIENCE ? collapse(page, bytes) : p->why;
    if (!rc) {
        p->huge += bytes / NTX_HUGE;
        p->failed = 0;
        return 0;
    }
    p->why = rc;
    p->failed = rc == -EINVAL ? COLLAPSE_PATIENCE : p->failed + 1;
    return populate(page, bytes);
}

static int no_memory(const struct ntx_region *r, int rc, struct ntx_err *err)
{
    char size[32];
    return ntx_err_set(err, rc == -EFAULT ? -ENOMEM : rc,
                       "cannot get %s (%llu bytes) of memory for the shared region: %s; use a smaller --ram",
                       ntx_format_size(r->bytes, size, sizeof size), (unsigned long long)r->bytes, strerror(-rc));
}

int ntx_region_bring_in(struct ntx_region *r, uint64_t bytes, struct ntx_err *err)
{
    struct ntx_region_pages *p = &r->pages;
    uint64_t end = bytes < r->bytes - p->at ? p->at + NTX_ROUND_UP(bytes, NTX_HUGE) : r->bytes;
    int rc = 0;
    while (!rc && p->at < end) {
        uint64_t step = step_bytes(r);
        rc = bring_in_one(p, r->base + p->at, step);
        if (!rc)
            p->at += step;
    }
    return rc ? no_memory(r, rc, err) : 0;
}

int ntx_segment_bring_in(struct ntx_segment *s, uint64_t from, uint64_t bytes, struct ntx_err *err)
{
    const uint64_t huge = NTX_HUGE, page = ntx_page_bytes(), end = NTX_MIN(NTX_ROUND_UP(from + bytes, page), s->bytes);
    struct ntx_region_pages p = {0};
    int rc = 0;
    from = NTX_ROUND_DOWN(from, page);
    for (uint64_t at = from, step; at < end && !rc; at += step) {
        const uint64_t next = NTX_MIN(NTX_ROUND_DOWN(at, huge) + huge, end);
        step = next - at;
        rc = step == huge && ntx_huge_bytes() == huge ? bring_in_one(&p, s->at + at, huge) : populate(s->at + at, step);
    }
    if (rc)
        return ntx_err_set(err, rc == -EFAULT ? -ENOMEM : rc, "cannot get %llu bytes of memory: %s",
                           (unsigned long long)bytes, strerror(-rc));
    (void)mlock(s->at + from, end - from); /* where it is refused, the region's note says so */
    return 0;
}

static void lock_parts(struct ntx_region *r, char *note, size_t note_len)
{
    struct rlimit lim = {0, 0};
    char have[32], want[32];
    struct ntx_segment *const parts[] = {&r->part[NTX_REGION_BYTES], &r->part[NTX_REGION_CONTROL],
                                         &r->part[NTX_REGION_RING], &r->board.part};
    unsigned n = 0;
    while (n < 4 && !mlock(parts[n]->at, parts[n]->bytes))
        n++;
    if (n == 4)
        return;
    int why = errno;
    for (unsigned i = 0; i < n; i++)
        munlock(parts[i]->at, parts[i]->bytes);
    getrlimit(RLIMIT_MEMLOCK, &lim);
    note_add(note, note_len,
             "the shared region is not locked in memory (%s; needs %s, the limit on locked memory is %s): idle memory "
             "may be paged out",
             strerror(why), ntx_format_size(r->bytes, want, sizeof want),
             ntx_format_size(lim.rlim_cur, have, sizeof have));
}

int ntx__region_bring_in_front(struct ntx_region *r, struct ntx_err *err)
{
    int rc = populate(r->part[NTX_REGION_CONTROL].at, r->part[NTX_REGION_CONTROL].bytes);
    if (!rc)
        rc = populate(r->part[NTX_REGION_RING].at, r->part[NTX_REGION_RING].bytes);
    if (!rc)
        rc = populate(r->board.part.at, r->board.part.bytes);
    madvise(r->base, r->bytes, MADV_HUGEPAGE); /* enough where shmem_enabled is "advise" */
    return rc ? no_memory(r, rc, err) : 0;
}

static const char *why_small_pages(int why)
{
    if (!why)
        return "this machine's huge pages are larger than what is left of it";
    return why == -EINVAL ? "needs Linux 6.1 or later, and shmem huge pages not denied" : strerror(-why);
}

void ntx_region_settle(struct ntx_region *r, char *note, size_t note_len)
{
    const struct ntx_region_pages *p = &r->pages;
    uint64_t total = r->bytes / NTX_HUGE;
    char text[512] = "";
    r->huge_share = total ? (double)p->huge / (double)total : 0;
    if (p->huge < total)
        note_add(text, sizeof text, "only %.0f %% of the shared region is in huge pages (%s): reading will be slower",
                 100 * r->huge_share, why_small_pages(p->why));
    lock_parts(r, text, sizeof text);
    if (note && note_len)
        snprintf(note, note_len, "%s", text);
}
