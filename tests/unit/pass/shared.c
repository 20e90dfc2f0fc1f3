/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of one row far behind, which threads share (computed/pass/forward_attend.c), gives the logits of one thread
 * and those of a pass with other rows. K and V are random numbers. */
#include <stdlib.h>
#include <string.h>

#include "computed/pass/forward_impl.h"
#include "tests/unit/pass/rig.h"

enum { DEEP = 2 * NTX__SHARED_POSITIONS + 300, CTX = 2 * NTX__SHARED_POSITIONS + 512 };

static struct ntx_kv_seq *filled(struct rig *r, enum ntx_kv_type type, uint64_t seed)
{
    const struct ntx_cpu_ops *o = ntx_cpu_pick(NULL);
    const struct ntx_hparams *hp = &r->model->hp;
    struct ntx_kv_seq *kv = rig_seq(r, CTX);
    float x[2][NTX_MAX_HEAD];
    for (uint32_t pos = 0; pos < DEEP; pos++)
        for (uint32_t l = 0; l < r->n_layers; l++)
            for (uint32_t h = 0; h < ntx_kv_heads(kv, l); h++) {
                for (uint32_t i = 0; i < 2 * hp->head_k; i++) {
                    seed = seed * 6364136223846793005u + 1442695040888963407u;
                    x[i % 2][i / 2] = (float)(seed >> 40) / (1 << 23) - 1;
                }
                o->k_store[type](x[0], ntx_kv_k(kv, l, h, pos), pos % NTX_KV_BLOCK, hp->head_k);
                o->v_store[type](x[1], ntx_kv_v(kv, l, h, pos), pos % NTX_KV_BLOCK, hp->head_v);
            }
    return kv;
}

/* Logits of a row behind DEEP positions, to be freed. beside: with a row of another session in the same pass. */
static float *deep_logits(const struct rig_options *o, bool beside)
{
    struct rig r;
    rig_open(&r, o);
    CHECK(o->threads == 1 || r.f->m.attn_rounds.ld);
    struct ntx_kv_seq *kv = filled(&r, o->kv_type, 1), *other = rig_seq(&r, 64);
    float *logits = malloc(r.n_vocab * sizeof *logits);
    struct ntx_row rows[2] = {{.token = 5, .pos = DEEP, .kv = kv, .logits = logits},
                              {.token = 7, .pos = 0, .kv = other}};
    CHECK(!rig_run(&r, rows, beside ? 2 : 1));
    ntx_kv_seq_free(kv);
    ntx_kv_seq_free(other);
    rig_close(&r);
    return logits;
}

static void check(uint32_t heads, uint32_t kv, enum ntx_kv_type type)
{
    struct rig_options o = {.make = rig_model(), .threads = 1, .ctx = CTX, .kv_tokens = CTX + 64, .kv_type = type};
    o.make.layers = 2;
    o.make.heads = heads;
    o.make.kv = kv;
    float *want = deep_logits(&o, false);
    for (o.threads = 1; o.threads <= 5; o.threads++)
        for (int beside = 0; beside < 2; beside++) {
            float *got = deep_logits(&o, beside);
            CHECK_MSG(!memcmp(got, want, 548 * sizeof *got), "%u heads on %u, type %d, %u threads, other rows: %d",
                      heads, kv, (int)type, o.threads, beside);
            free(got);
        }
    free(want);
}

int main(void)
{
    for (enum ntx_kv_type type = NTX_KV_F16; type < NTX_N_KV; type++) {
        check(4, 1, type); /* a head of 64 values, for all threads */
        check(2, 2, type); /* of 128 */
    }
    return 0;
}
