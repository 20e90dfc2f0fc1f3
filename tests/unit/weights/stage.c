/* SPDX-License-Identifier: Apache-2.0 */
/* The stage against a thread that acts as iod, beside passes of a text: the right bytes in every window, whatever fails
 * or dies. Run as `stage CASE`, each case in its own process. */
#include "computed/weights/stage.h"

#include <errno.h>
#include <sys/wait.h>

#include "tests/unit/weights/engine.h"

#define READS  60u
#define SLOTS  3u /* read r lies in slot r % SLOTS, which is used again and again */
#define BLOCKS 4u /* of a slot */

static const struct shape shape = {.n_layers = 5,
                                   .per_layer = 6,
                                   .n_desc = 7,
                                   .n_slots = 10,
                                   .n_demands = 4,
                                   .chunk_bytes = 9000,
                                   .host = true,
                                   .n_stage_reads = 8,
                                   .stage_blocks = SLOTS * BLOCKS};

struct encode {
    struct engine *e;
    struct ntx_stage *g;
    struct ntx_stage_read reads[READS];
    atomic_bool unwanted;
    _Atomic uint32_t checked; /* reads whose bytes were right, of all passes */
    atomic_bool stop;
    pthread_t thread;
};

static void list_reads(struct encode *x, uint32_t seed)
{
    for (uint32_t i = 0; i < READS; i++) {
        const uint64_t offset = (seed * 7919u + i * 6151u) % 90000;
        x->reads[i] = (struct ntx_stage_read){.offset = offset,
                                              .bytes = 1 + (seed * 31 + i * 977) % ((BLOCKS - 1) * BLOCK),
                                              .at = i % SLOTS * BLOCKS * BLOCK + offset % BLOCK};
    }
}

static void check_read(struct encode *x, uint32_t i)
{
    const struct ntx_stage_read *r = &x->reads[i];
    for (uint32_t k = 0; k < r->bytes; k++)
        CHECK_MSG(ntx_stage_memory(x->g)[r->at + k] == pattern(1, r->offset + k), "read %u byte %u", i, k);
    atomic_fetch_add(&x->checked, 1);
}

static int begin(struct encode *x, uint32_t seed, struct ntx_err *err)
{
    list_reads(x, seed);
    return ntx_stage_begin(
        x->g, &(struct ntx_stage_pass){.file = 1, .reads = x->reads, .n = READS, .unwanted = &x->unwanted}, err);
}

static int one_pass(struct encode *x, uint32_t seed, struct ntx_err *err)
{
    int rc = begin(x, seed, err);
    for (uint32_t i = 0; i < READS && !rc; i++) {
        ntx_stage_allow(x->g, i + SLOTS);
        if (!(rc = ntx_stage_wait(x->g, i + 1, err)))
            check_read(x, i);
    }
    ntx_stage_end(x->g);
    return rc;
}

static void start(struct encode *x, struct engine *e)
{
    *x = (struct encode){.e = e};
    set_up_patient(e, &shape, 60, 20);
    CHECK((x->g = ntx_stream_stage(e->s)));
}

/* ---- cases */

static void *encode_on(void *arg)
{
    struct encode *x = arg;
    struct ntx_err err = {0};
    for (uint32_t seed = 0; !atomic_load(&x->stop); seed++)
        CHECK_MSG(!one_pass(x, seed, &err), "%s", err.text);
    return NULL;
}

static void case_beside_text(void)
{
    struct encode x;
    struct engine e;
    start(&x, &e);
    fake_start(&e.iod);
    CHECK(!pthread_create(&x.thread, NULL, encode_on, &x));
    while (atomic_load(&x.checked) < 3 * READS)
        CHECK_EQ(run_pass(&e, 0, 3), 0);
    atomic_store(&x.stop, true);
    CHECK(!pthread_join(x.thread, NULL));
    fake_kill(&e.iod);
    tear_down(&e);
}

/* The old reads land at the last moment, when their successors have long been used. */
static void case_deaths(void)
{
    struct encode x;
    struct engine e;
    start(&x, &e);
    fake_start(&e.iod);
    CHECK(!pthread_create(&x.thread, NULL, encode_on, &x));
    for (int i = 0; i < 12; i++) {
        const uint32_t before = atomic_load(&x.checked);
        while (atomic_load(&x.checked) < before + 5)
            CHECK_EQ(run_pass(&e, 0, 2), 0);
        fake_kill(&e.iod);
        struct fake_iod dead = e.iod;
        ntx_stream_iod_died(e.s);
        e.iod.n_under_way = 0;
        e.iod.seed++;
        fake_start(&e.iod);
        CHECK_EQ(run_pass(&e, 0, 2), 0);
        fake_land(&dead, true);
        ntx_stream_end_quarantine(e.s);
    }
    atomic_store(&x.stop, true);
    CHECK(!pthread_join(x.thread, NULL));
    fake_kill(&e.iod);
    tear_down(&e);
}

static void case_failures(void)
{
    struct encode x;
    struct engine e;
    struct ntx_err err = {0};
    start(&x, &e);
    e.iod.fail_demand = true;
    fake_start(&e.iod);
    CHECK_EQ(one_pass(&x, 1, &err), -EIO);
    CHECK_MSG(strstr(err.text, "cannot read ") && strstr(err.text, "Input/output error"), "%s", err.text);
    ntx_stream_io_error(e.s, NTX_STAGE_CHUNK, "of the failure before");
    CHECK_MSG(!one_pass(&x, 2, &err), "%s", err.text);
    CHECK_EQ(begin(&x, 3, &err), 0);
    ntx_stream_io_error(e.s, NTX_STAGE_CHUNK, "cannot read 7 bytes: a broken drive (tried 4 times)");
    e.iod.fail_demand = true;
    ntx_stage_allow(x.g, 1);
    CHECK_EQ(ntx_stage_wait(x.g, 1, &err), -EIO);
    CHECK_STR(err.text, "cannot read 7 bytes: a broken drive (tried 4 times)");
    CHECK_EQ(ntx_stage_wait(x.g, 1, &err), -EIO); /* the same again */
    ntx_stage_end(x.g);
    CHECK_MSG(!one_pass(&x, 4, &err), "%s", err.text);
    CHECK_EQ(run_pass(&e, 0, 3), 0); /* the text never noticed */
    fake_kill(&e.iod);
    tear_down(&e);
}

/* No iod runs: the encode is taken back, or waits have no end in sight. What was posted does not disturb the next. */
static void case_ends(void)
{
    struct encode x;
    struct engine e;
    struct ntx_err err = {0};
    start(&x, &e);
    atomic_store(&x.unwanted, true);
    CHECK_EQ(one_pass(&x, 1, &err), -ECANCELED);
    atomic_store(&x.unwanted, false);
    ntx_stream_abort(e.s, -EIO, "ntx-iod does not come back");
    CHECK_EQ(one_pass(&x, 2, &err), -EIO);
    CHECK_STR(err.text, "ntx-iod does not come back");
    ntx_stream_abort(e.s, 0, NULL);
    fake_start(&e.iod);
    CHECK_MSG(!one_pass(&x, 3, &err), "%s", err.text);
    /* cancelled while iod reads */
    CHECK_EQ(begin(&x, 4, &err), 0);
    ntx_stage_allow(x.g, SLOTS);
    ntx_stage_end(x.g);
    CHECK_MSG(!one_pass(&x, 5, &err), "%s", err.text);
    fake_kill(&e.iod);
    tear_down(&e);
}

/* Reads of a dead iod that may come at any time: at once an error, instead of wrong bytes or a wait. */
static void case_unproved(void)
{
    struct encode x;
    struct engine e;
    struct ntx_err err = {0};
    start(&x, &e);
    e.iod.max_ticks = 1u << 30;
    CHECK_EQ(begin(&x, 1, &err), 0);
    fake_start(&e.iod);
    ntx_stage_allow(x.g, SLOTS);
    const uint32_t first = ntx_region_first_stage(e.r.hdr);
    while (ntx_word_state(e.r.demand[first].word) != NTX_FILLING)
        usleep(100);
    fake_kill(&e.iod);
    ntx_stream_unproved(e.s);
    ntx_stream_iod_died(e.s);
    e.iod.n_under_way = 0;
    e.iod.max_ticks = 0;
    fake_start(&e.iod);
    CHECK_EQ(ntx_stage_wait(x.g, 1, &err), 0); /* the same bytes, by the next one */
    ntx_stage_allow(x.g, READS);
    CHECK_EQ(ntx_stage_wait(x.g, READS, &err), -EIO);
    CHECK_MSG(strstr(err.text, "load the model again"), "%s", err.text);
    ntx_stage_end(x.g);
    CHECK_EQ(one_pass(&x, 2, &err), -EIO);
    CHECK_EQ(run_pass(&e, 0, 3), 0);
    fake_kill(&e.iod);
    tear_down(&e);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"beside_text", case_beside_text},
                 {"deaths", case_deaths},
                 {"failures", case_failures},
                 {"ends", case_ends},
                 {"unproved", case_unproved}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name))
            continue;
        const pid_t pid = argc > 1 ? 0 : fork();
        int status = 0;
        if (!pid) {
            cases[i].run();
            return 0;
        }
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_MSG(!status, "case %s", cases[i].name);
    }
    return 0;
}
