/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client/doctor/doctor_impl.h"
#include "common/clones.h"
#include "common/util.h"

#define PIECE (1u << 20)
#define HUGE  (2u << 20)

void *ntx__doctor_buffer(size_t bytes)
{
    void *p = aligned_alloc(HUGE, NTX_ROUND_UP(bytes, (size_t)HUGE));
    if (p)
        madvise(p, NTX_ROUND_UP(bytes, (size_t)HUGE), MADV_HUGEPAGE);
    return p;
}

void ntx__doctor_buffer_free(void *p, size_t bytes)
{
    (void)bytes;
    free(p);
}

typedef uint64_t v8 __attribute__((vector_size(64)));

NTX_CLONES static uint64_t read_piece(const void *p, size_t bytes)
{
    const v8 *v = p;
    v8 a[8] = {{0}};
    for (size_t i = 0; i < bytes / 512; i++, v += 8)
        for (int k = 0; k < 8; k++) {
            __builtin_prefetch(v + 32 + k);
            a[k] ^= v[k];
        }
    v8 x = a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
    return x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ x[7];
}

struct reading {
    const char *buf;
    size_t bytes;
    _Atomic size_t next;
    _Atomic uint64_t seen; /* keeps the compiler from dropping reads */
};

static void read_buffer(void *ctx, unsigned thread)
{
    struct reading *r = ctx;
    uint64_t x = 0;
    (void)thread;
    for (size_t at; (at = atomic_fetch_add(&r->next, PIECE)) + PIECE <= r->bytes;)
        x ^= read_piece(r->buf + at, PIECE);
    atomic_fetch_xor(&r->seen, x);
}

double ntx__doctor_read_rate(struct ntx_pool *pool, const void *buf, size_t bytes, double seconds)
{
    struct reading r = {.buf = buf, .bytes = bytes};
    double best = 0;
    uint64_t end = ntx_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        uint64_t t0 = ntx_now_ns();
        atomic_store(&r.next, 0);
        ntx_pool_run(pool, read_buffer, &r);
        best = NTX_MAX(best, (double)(bytes / PIECE * PIECE) / ((double)(ntx_now_ns() - t0) * 1e-9));
    } while (ntx_now_ns() < end);
    return best;
}

static void do_nothing(void *ctx, unsigned thread)
{
    (void)ctx;
    (void)thread;
}

double ntx__doctor_step(struct ntx_pool *pool, double seconds)
{
    enum { RUNS = 8, LEAST = 24, MOST = 512 }; /* runs of a sample; samples */
    double v[MOST];
    unsigned n = 0;
    const uint64_t end = ntx_now_ns() + (uint64_t)(seconds * 1e9);
    do {
        const uint64_t t0 = ntx_now_ns();
        for (int i = 0; i < RUNS; i++)
            ntx_pool_run(pool, do_nothing, NULL);
        v[n++] = (double)(ntx_now_ns() - t0) * 1e-9 / RUNS;
    } while ((n < LEAST || ntx_now_ns() < end) && n < MOST);
    return ntx__doctor_quantile(v, n, 1);
}
