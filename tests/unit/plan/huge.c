/* SPDX-License-Identifier: Apache-2.0 */
/* huge.c: planning a sparse file of 3 TiB takes memory within the budget and little time, and gives an answer; a
 * requester that loses patience stops it. */
#include <errno.h>
#include <sys/resource.h>
#include <time.h>

#include "computed/plan/plan.h"
#include "tests/lib/check.h"
#include "tests/unit/plan/shape.h"

#define MIB (1ull << 20)
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static uint64_t peak(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)u.ru_maxrss << 10;
}

static int plan(const struct shape *s, uint64_t ram, const atomic_bool *stop, struct ntx_plan **p, struct ntx_err *err)
{
    struct ntx_plan_request r = {.ram_bytes = ram, .ctx = 128, .threads = 2, .stop = stop};
    return ntx_plan_make(s->model, &r, p, err);
}

/* The number in brackets. */
static uint64_t named(const struct ntx_err *err)
{
    const char *at = strchr(err->text, '(');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static void budgets(const struct shape *s)
{
    static const uint64_t rams[] = {1 * MIB, 20 * MIB, 100 * MIB, 300 * MIB};
    for (unsigned i = 0; i < sizeof rams / sizeof *rams; i++) {
        struct ntx_err err = {0};
        struct ntx_plan *p = NULL;
        uint64_t before = peak();
        clock_t began = clock();
        int rc = plan(s, rams[i], NULL, &p, &err);
        uint64_t ms = (uint64_t)(clock() - began) / (CLOCKS_PER_SEC / 1000), took = peak() - before;
        printf("%3llu MiB: %s; %llu ms, %llu MiB\n", (unsigned long long)(rams[i] / MIB), rc ? err.text : "planned",
               (unsigned long long)ms, (unsigned long long)(took / MIB));
        CHECK(!rc || rc == -ENOMEM);
        CHECK_MSG(took <= rams[i] + 40 * MIB || SANITIZED, "planning took %llu bytes", (unsigned long long)took);
        CHECK_MSG(ms <= 3000 || SANITIZED, "planning took %llu ms of processor time",
                  (unsigned long long)ms); /* it was 38 s once */
        CHECK(!rc || (strstr(err.text, "smallest memory budget") && named(&err) > rams[i]));
        ntx_plan_free(p);
    }
}

/* From refusal to refusal up to a budget that succeeds; one byte less fails. */
static void smallest(const struct shape *s)
{
    struct ntx_plan *p = NULL;
    struct ntx_err err = {0};
    uint64_t ram = MIB;
    for (int tries = 0; plan(s, ram, NULL, &p, &err); tries++) {
        CHECK_MSG(tries < 3 && named(&err) > ram, "%s", err.text);
        ram = named(&err);
    }
    CHECK(p->bytes_total <= ram);
    ntx_plan_free(p);
    CHECK_EQ(plan(s, ram - 1, NULL, &p, &err), -ENOMEM);
    CHECK_EQ(named(&err), ram);
}

static void stopped(const struct shape *s)
{
    atomic_bool stop = true;
    struct ntx_plan *p = NULL;
    struct ntx_err err = {0};
    clock_t began = clock();
    CHECK_EQ(plan(s, 300 * MIB, &stop, &p, &err), -ECANCELED);
    CHECK(clock() - began <= CLOCKS_PER_SEC / 10 || SANITIZED);
    CHECK(!p);
}

int main(void)
{
    struct shape s;
    shape_open(&s, SHAPE_3T);
    stopped(&s);
    budgets(&s);
    smallest(&s);
    shape_close(&s);
    return 0;
}
