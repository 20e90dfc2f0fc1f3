/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms by value. The trace's ring: records come out once and in order, overwritten ones are counted as missed, no
 * torn record is taken while several threads write. The cost of a record is printed. */
#include "shm/counters.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>

#include "common/util.h"
#include "tests/lib/check.h"

static void test_histograms(void)
{
    struct ntx_hist h = {0};
    CHECK_EQ(ntx_hist_bound(NTX_H_ttft, 0), 1000);
    CHECK_EQ(ntx_hist_bound(NTX_H_ttft, 1), 2500);
    CHECK_EQ(ntx_hist_bound(NTX_H_ttft, 2), 5000);
    CHECK_EQ(ntx_hist_bound(NTX_H_ttft, 3), 10000);
    CHECK_EQ(ntx_hist_bound(NTX_H_ttft, 17), 500000000);
    CHECK(ntx_hist_quantile(&h, NTX_H_ttft, 0.5) == 0);
    ntx_hist_add(&h, NTX_H_ttft, 0);
    ntx_hist_add(&h, NTX_H_ttft, 1000);
    ntx_hist_add(&h, NTX_H_ttft, 1001);
    ntx_hist_add(&h, NTX_H_ttft, UINT32_MAX);
    CHECK_EQ(h.bucket[0], 2);
    CHECK_EQ(h.bucket[1], 1);
    CHECK_EQ(h.bucket[NTX_HIST_BOUNDS], 1);
    CHECK_EQ(h.sum, 2001 + (uint64_t)UINT32_MAX);
    CHECK_EQ(ntx_hist_count(&h), 4);
    CHECK(fabs(ntx_hist_quantile(&h, NTX_H_ttft, 0.5) - 0.001) < 1e-9);
    CHECK(fabs(ntx_hist_quantile(&h, NTX_H_ttft, 0.75) - 0.0025) < 1e-9);
    CHECK(ntx_hist_quantile(&h, NTX_H_ttft, 1) == 500);
}

static void test_order(struct ntx_trace *t)
{
    struct ntx_trace_record r[64];
    uint64_t next = 0, missed = 0;
    CHECK_EQ(ntx_trace_take(t, &next, r, 64, &missed), 0);
    for (uint32_t i = 0; i < 100; i++)
        ntx_trace_put(t, NTX_TR_LAYER, i, i + 1, i, i + 2, i + 3);
    CHECK_EQ(ntx_trace_take(t, &next, r, 64, &missed), 64);
    CHECK_EQ(r[63].t0, 63);
    CHECK_EQ(r[63].c, 66);
    CHECK_EQ(ntx_trace_take(t, &next, r, 64, &missed), 36);
    CHECK_EQ(r[0].a, 64);
    CHECK_EQ(missed, 0);
    for (uint32_t i = 0; i < NTX_TRACE_RECORDS + 10; i++)
        ntx_trace_put(t, NTX_TR_LAYER, i, i, i, i, i);
    CHECK_EQ(ntx_trace_take(t, &next, r, 1, &missed), 1);
    CHECK_EQ(missed, 10);
    CHECK_EQ(r[0].a, 10);
    next = atomic_load(&t->head);
    /* the reader does not wait for ever for a writer that died in the middle of a record */
    atomic_fetch_add(&t->head, 1);
    for (uint32_t i = 0; i < 4; i++)
        ntx_trace_put(t, NTX_TR_LAYER, i, i, i, i, i);
    CHECK_EQ(ntx_trace_take(t, &next, r, 64, &missed), 0);
    for (uint32_t i = 0; i < NTX_TRACE_RECORDS / 2; i++)
        ntx_trace_put(t, NTX_TR_LAYER, i, i, i, i, i);
    missed = 0;
    CHECK_EQ(ntx_trace_take(t, &next, r, 64, &missed), 64);
    CHECK_EQ(missed, 1);
}

/* A slot that is being written, or was used in a later lap, is left alone. */
static void test_dropped(struct ntx_trace *t)
{
    for (int later = 0; later < 2; later++) {
        uint64_t n = atomic_load(&t->head), held = later ? n + 1 + NTX_TRACE_RECORDS : 1ull << 63 | 1;
        struct ntx_trace_record *r = &t->r[n % NTX_TRACE_RECORDS];
        atomic_store(&r->seq, held);
        r->a = 77;
        ntx_trace_put(t, NTX_TR_LAYER, 1, 1, 1, 1, 1);
        CHECK_EQ(atomic_load(&r->seq), held);
        CHECK_EQ(r->a, 77);
    }
}

enum { WRITERS = 3, EACH = 100000 };
#ifdef __SANITIZE_THREAD__ /* a seqlock discards torn copies, which TSan cannot know */
enum { TSAN = true };
#else
enum { TSAN = false };
#endif

static void *write_many(void *arg)
{
    struct ntx_trace *t = arg;
    for (uint64_t i = 0; i < EACH; i++)
        ntx_trace_put(t, NTX_TR_READ, i, i * 3, (uint32_t)i, i * 5, i * 7);
    return NULL;
}

static void test_threads(struct ntx_trace *t)
{
    static struct ntx_trace_record r[256];
    pthread_t id[WRITERS];
    uint64_t next = 0, missed = 0, got = 0;
    for (int i = 0; i < WRITERS; i++)
        CHECK(!pthread_create(&id[i], NULL, write_many, t));
    while (next < (uint64_t)WRITERS * EACH) {
        unsigned n = ntx_trace_take(t, &next, r, 256, &missed);
        for (unsigned i = 0; i < n; i++)
            CHECK(r[i].t1 == r[i].t0 * 3 && r[i].a == (uint32_t)r[i].t0 && r[i].b == r[i].t0 * 5 &&
                  r[i].c == r[i].t0 * 7);
        got += n;
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(id[i], NULL);
    CHECK_EQ(got + missed, (uint64_t)WRITERS * EACH);
    CHECK(got > 0);
}

static void print_cost(struct ntx_trace *t)
{
    enum { N = 1000000 };
    uint64_t begin = ntx_now_ns();
    for (uint32_t i = 0; i < N; i++)
        ntx_trace_put(t, NTX_TR_SLOT, begin, begin, i, 0, 0);
    double alone = (double)(ntx_now_ns() - begin) / N;
    begin = ntx_now_ns();
    for (uint32_t i = 0; i < N; i++)
        ntx_trace_put(t, NTX_TR_SLOT, begin, ntx_now_ns(), i, 0, 0);
    printf("%.0f ns a record, %.0f with the clock\n", alone, (double)(ntx_now_ns() - begin) / N);
    CHECK(alone < 5000);
}

int main(void)
{
    struct ntx_trace *t[3];
    for (int i = 0; i < 3; i++)
        CHECK(!posix_memalign((void **)&t[i], 64, sizeof **t) && memset(t[i], 0, sizeof **t));
    test_histograms();
    test_order(t[0]);
    test_dropped(t[0]);
    if (!TSAN)
        test_threads(t[1]);
    print_cost(t[2]);
    for (int i = 0; i < 3; i++)
        free(t[i]);
    return 0;
}
