#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "client/cmd_plan.h"
#include "client/commands.h"
#include "common/util.h"
#include "plan/budget.h"
#include "infer/drafter.h"
#include "infer/kv.h"
#include "plan/plan.h"
#include "model/arch.h"
#include "model/tokenizer.h"
#include "shm/drafts.h"

/* As serve/load.c asks, of this budget. */
static int request(const struct ntx_options *o, const struct ntx_model *m, const struct ntx_place_request *r, const struct ntx_hw *hw, struct ntx_plan_request *q,
                   struct ntx_err *err)
{
    *q = (struct ntx_plan_request){
        .ram_bytes = r->ram ? r->ram : hw->ram_bytes - hw->ram_bytes * 15 / 100,
        .ctx = o->load.ctx, .sessions = o->load.sessions, .threads = NTX_MIN(o->load.threads ? o->load.threads : NTX_MAX(hw->threads, 1u), 256u),
        .max_rows = o->load.rows, .chunk_bytes = o->load.chunk, .ring_slots = o->load.ring, .prefetch = !o->load.no_prefetch, .hw = hw,
    };
    q->kv_all = !ntx_skip_off(o->load.skip);
    return ntx_kv_type_of(o->load.kv_type, &m->hp, &q->kv_type, err);
}

/* With as many clients as a part of the budget holds, else with the fewest. */
static int make(const struct ntx_model *m, struct ntx_plan_request *q, uint64_t held, uint32_t rows, uint64_t *smallest, struct ntx_plan **p, struct ntx_err *err)
{
    q->other_bytes = held + ntx_budget_clients(m->hp.n_vocab, 0, rows, 0).bytes;
    *smallest = ntx_plan_smallest(m, q);
    q->other_bytes = held + ntx_budget_clients(m->hp.n_vocab, 0, rows, q->ram_bytes).bytes;
    int rc = ntx_plan_make(m, q, p, err);
    if (rc != -ENOMEM)
        return rc;
    q->other_bytes = held + ntx_budget_clients(m->hp.n_vocab, 0, rows, 0).bytes;
    return ntx_plan_make(m, q, p, err);
}

static void take(const struct ntx_model *m, const struct ntx_plan *p, uint64_t ram, struct ntx_plan_answer *a)
{
    struct ntx_load_bytes one, many;
    uint32_t text = NTX_MIN(p->ctx, NTX_PLACE_TEXT);
    uint64_t kept = p->bytes_kv + p->bytes_host;
    a->place = (struct ntx_layout){
        .bytes = {[NTX_TIER_HOST] = p->bytes_host, [NTX_TIER_STORAGE] = p->bytes_storage}, .ram = ram, .kv_bytes = p->bytes_kv,
        .work_bytes = p->bytes_total > kept ? p->bytes_total - kept : 0, .smallest = a->place.smallest, .ctx = p->ctx, .rows = p->max_rows, .threads = p->threads,
        .kv_token_bytes = (double)ntx_kv_block_bytes(&m->hp, p->kv_type) / NTX_KV_BLOCK, .multiply = NTX_MULTIPLY_CPU,
    };
    a->exact = true;
    a->predicted = ntx_plan_load(m, p, 1, text, &one) && ntx_plan_load(m, p, p->max_rows, text, &many) && !ntx_predict(&a->hw, &one, &a->decode) &&
                   !ntx_predict(&a->hw, &many, &a->prefill);
}

static int plan(const struct ntx_options *o, const struct ntx_model *m, uint64_t held, struct ntx_place_request *r, struct ntx_plan_answer *a, struct ntx_err *err)
{
    struct ntx_plan_request q;
    struct ntx_plan *p = NULL;
    int rc = request(o, m, r, &a->hw, &q, err);
    if (!rc && !q.ram_bytes)
        rc = ntx_err_set(err, -EINVAL, "the profile does not say how much memory the machine has: give --ram");
    if (!rc)
        rc = make(m, &q, held, ntx_draft_rows(o->load.draft, o->load.draft_nodes), &a->place.smallest, &p, err);
    if (rc)
        return rc;
    r->smallest = a->place.smallest;
    if (!a->hw.gpu.bytes || r->multiply == NTX_MULTIPLY_CPU)
        take(m, p, q.ram_bytes, a);
    ntx_plan_free(p);
    return a->exact;
}

/* As serve/load_drafter.c. */
static int drafter_bytes(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m, uint64_t *bytes, struct ntx_err *err)
{
    uint32_t ctx = o->load.ctx ? o->load.ctx : NTX_MIN(m->hp.ctx_train, 4096u);
    int fd, rc = ntx_drafter_open(o, &fd, err);
    if (rc || fd < 0)
        return rc;
    rc = ntx_drafter_look(fd, f->gguf, ctx, bytes, err);
    *bytes += rc ? 0 : ntx_drafts_bytes(ctx);
    close(fd);
    return rc;
}

int ntx__plan_exactly(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_place_request *r, struct ntx_plan_answer *a, struct ntx_err *err)
{
    struct ntx_model *m = NULL;
    struct ntx_tokenizer *t = NULL;
    struct ntx_err why = {0};
    uint64_t drafter = 0;
    int rc = 0;
    if (ntx_model_open(f->gguf, &m, &why) || ntx_tokenizer_open(f->gguf, &t, &why))
        snprintf(a->notes[1], sizeof a->notes[1], "ntx does not run this file (%.240s); the figures are an estimate.", why.text);
    else if (!(rc = drafter_bytes(o, f, m, &drafter, err)))
        rc = plan(o, m, ntx_gguf_header_bytes(f->gguf) + ntx_tokenizer_bytes(t) + drafter, r, a, err);
    ntx_tokenizer_free(t);
    ntx_model_free(m);
    return rc;
}
