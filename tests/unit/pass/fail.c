/* SPDX-License-Identifier: Apache-2.0 */
/* Failures: at any chunk, with any number of threads, the pass ends in order with the reason, and the next one
 * succeeds. */
#include <errno.h>

#include "tests/unit/pass/rig.h"

static void at_any_chunk(uint32_t threads, uint32_t window)
{
    struct rig r;
    const struct rig_options o = {.make = rig_model(), .threads = threads, .window = window, .chunk_bytes = 100 << 10};
    struct ntx_row rows[3];
    char want_text[64];
    rig_open(&r, &o);
    size_t n = r.n_vocab;
    struct ntx_kv_seq *kv = rig_seq(&r, 32);
    float *want = malloc(3 * n * 4), *got = malloc(3 * n * 4);
    int32_t ids[3];
    rig_ids(&r, 1, ids, 3);
    rig_feed(&r, kv, ids, 3, 0, 3, want);
    for (uint32_t i = 0; i < 3; i++)
        rows[i] = (struct ntx_row){.token = ids[i], .pos = i, .kv = kv, .logits = got + i * n};
    for (uint32_t c = 0; c < r.chunks->n; c++) {
        r.w.fail_chunk = c;
        CHECK_EQ(rig_run(&r, rows, 3), -EIO);
        snprintf(want_text, sizeof want_text, "chunk %u cannot be read", c);
        CHECK_STR(r.w.w.error.text, want_text);
        CHECK_EQ(r.w.begins, r.w.ends);
        r.w.fail_chunk = UINT32_MAX;
        if (c % 7)
            continue;
        memset(got, 0, 3 * n * 4);
        CHECK_EQ(rig_run(&r, rows, 3), 0);
        CHECK_SAME(got, want, 3 * n);
    }
    r.w.fail_rows = true;
    CHECK_EQ(rig_run(&r, rows, 3), -EIO);
    CHECK_STR(r.w.w.error.text, "an embedding's entry cannot be read");
    r.w.fail_rows = false;
    r.w.fail_begin = true;
    CHECK_EQ(rig_run(&r, rows, 3), -EIO);
    r.w.fail_begin = false;
    CHECK_EQ(rig_run(&r, rows, 3), 0);
    CHECK_SAME(got, want, 3 * n);
    ntx_kv_seq_free(kv);
    rig_close(&r);
    free(want), free(got);
}

/* Invalid batches are refused before anything is touched. */
static void bad_batches(void)
{
    struct rig r;
    const struct rig_options o = {.make = rig_model(), .max_rows = 4, .ctx = 50};
    rig_open(&r, &o);
    struct ntx_kv_seq *kv = rig_seq(&r, 20), *big = rig_seq(&r, 100); /* rooms: 32 and 128 */
    const struct {
        struct ntx_row row;
        uint32_t n;
        const char *text;
    } bad[] = {
        {{.token = -1, .kv = kv}, 1, "token -1 is not in the vocabulary of 548"},
        {{.token = 548, .kv = kv}, 1, "token 548 is not in the vocabulary of 548"},
        {{.token = 1, .pos = 32, .kv = kv}, 1, "position 32 is beyond the context of 32"},
        {{.token = 1, .pos = 50, .kv = big}, 1, "position 50 is beyond the context of 50"},
        {{.token = 1, .kv = kv}, 0, "a batch of 0 rows; 1 to 4 are possible"},
        {{.token = 1, .kv = kv}, 5, "a batch of 5 rows; 1 to 4 are possible"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ntx_row rows[5] = {bad[i].row, bad[i].row, bad[i].row, bad[i].row, bad[i].row};
        CHECK_EQ(rig_run(&r, rows, bad[i].n), -EINVAL);
        CHECK_STR(r.w.w.error.text, bad[i].text);
    }
    CHECK_EQ(r.w.begins, 0);
    struct ntx_row last = {.token = 547, .pos = 0, .kv = kv};
    CHECK_EQ(rig_run(&r, &last, 1), 0);
    ntx_kv_seq_free(kv);
    ntx_kv_seq_free(big);
    rig_close(&r);
}

static void bad_configs(void)
{
    struct rig r;
    struct ntx_err err = {0};
    struct ntx_forward *f = NULL;
    const struct rig_options o = {.make = rig_model()};
    rig_open(&r, &o);
    struct ntx_forward_config c = {.model = r.model,
                                   .chunks = r.chunks,
                                   .ops = ntx_cpu_pick(NULL),
                                   .weights = &r.w.w,
                                   .threads = 0,
                                   .max_rows = 1,
                                   .ctx = 1};
    CHECK_EQ(ntx_forward_new(&c, &f, &err), -EINVAL);
    c.threads = 2000;
    CHECK_EQ(ntx_forward_new(&c, &f, &err), -EINVAL);
    CHECK_STR(err.text, "2000 compute threads; 1 to 1024 are possible");
    CHECK(!f);
    ntx_forward_free(NULL);
    rig_close(&r);
}

/* A step that takes a weight out of turn reports it at once, also in the middle of a pass. */
static void out_of_order(void)
{
    struct rig r;
    const struct rig_options o = {.make = rig_model(), .window = 2};
    struct ntx_row row = {.token = 1};
    rig_open(&r, &o);
    struct ntx_layer *l = &r.model->layers[2];
    struct ntx_kv_seq *kv = row.kv = rig_seq(&r, 8);
    uint32_t gate = 0;
    while (!l->step[gate].n_weights || l->step[gate].weight[0] != NTX_T_gate)
        gate++;
    l->step[gate].weight[0] = NTX_T_up;
    r.w.forgive = true; /* the pass ends with chunks that were not taken */
    CHECK_EQ(rig_run(&r, &row, 1), -EPROTO);
    CHECK_STR(r.w.w.error.text, "layer 2 takes tensor 'blk.2.ffn_up.weight' when it is the turn of "
                                "'blk.2.ffn_gate.weight': weights are read in the order of the steps");
    r.w.forgive = false;
    l->step[gate].weight[0] = NTX_T_gate;
    CHECK_EQ(rig_run(&r, &row, 1), 0);
    ntx_kv_seq_free(kv);
    rig_close(&r);
}

int main(void)
{
    out_of_order();
    at_any_chunk(1, 0);
    at_any_chunk(2, 2);
    at_any_chunk(3, 1);
    bad_batches();
    bad_configs();
    return 0;
}
