#include "plan/machines.h"

#include <errno.h>

#include "common/util.h"

#define INPUT_BYTES 1.125 /* of a value: 8 bits, and what a block of 32 has beside them */

/* Rows whose outputs come from other machines than the first. */
static double elsewhere(const struct ntx_share *s, uint32_t n_out) { return n_out - ntx_share_of(s, n_out, 0).n; }

/* One exchange of so many rows: an input of n_in values goes out, outputs of n_out values come back. */
static void add_run(const struct ntx_share *s, double rows, uint32_t n_in, uint32_t n_out, unsigned matrices, struct ntx_machines_forecast *f)
{
    if (!ntx_share_deals(s, n_out))
        return;
    f->runs++;
    f->crosses += rows * (INPUT_BYTES * n_in * (s->n - 1) + matrices * sizeof(float) * elsewhere(s, n_out));
}

/* Experts are dealt by rows where all of their matrices can be. */
static void add_experts(const struct ntx_model *m, uint32_t l, const struct ntx_share *s, struct ntx_machines_forecast *f)
{
    const struct ntx_hparams *hp = &m->hp;
    if (m->layers[l].down_shared != NTX_NO_TENSOR) {
        add_run(s, 1, hp->n_embd, hp->n_ff_shexp, 2, f);
        add_run(s, 1, hp->n_ff_shexp, hp->n_embd, 1, f);
    }
    if (ntx_share_deals(s, hp->n_ff_exp) && ntx_share_deals(s, hp->n_embd)) {
        add_run(s, hp->n_expert_used, hp->n_embd, hp->n_ff_exp, 2, f);
        add_run(s, hp->n_expert_used, hp->n_ff_exp, hp->n_embd, 1, f);
    }
}

/* Products of a layer with the same input are one exchange. */
static void add_layer(const struct ntx_model *m, uint32_t l, const struct ntx_share *s, struct ntx_machines_forecast *f)
{
    const struct ntx_layer *layer = &m->layers[l];
    int before = -1;
    for (uint32_t i = 0; i < layer->n_steps; i++) {
        const struct ntx_step *step = &layer->step[i];
        if (step->op == NTX_OP_EXPERTS)
            add_experts(m, l, s, f);
        if (step->op != NTX_OP_MM) {
            before = -1;
            continue;
        }
        const struct ntx_shape shape = ntx_shape_of(&m->hp, l, (enum ntx_tensor)step->weight[0]);
        if (ntx_tensor_kinds[step->weight[0]].use == NTX_USE_RESIDENT || !ntx_share_deals(s, shape.n_out))
            continue;
        if (before != step->in[0]) {
            f->runs++;
            f->crosses += INPUT_BYTES * (double)shape.n_in * (s->n - 1);
        }
        before = step->in[0];
        f->crosses += sizeof(float) * elsewhere(s, shape.n_out);
    }
}

static void add_output(const struct ntx_model *m, const struct ntx_share *s, struct ntx_machines_forecast *f)
{
    f->runs++;
    f->crosses += INPUT_BYTES * m->hp.n_embd * (s->n - 1) + sizeof(float) * elsewhere(s, m->hp.n_vocab);
}

static void tell_machine(const struct ntx_share_machine *m, const struct ntx_share_work *w, double share, struct ntx_machines_of *of)
{
    of->share = share;
    of->bytes = share * ntx_share_bytes(w);
    of->keeps = NTX_MIN(of->bytes, m->keeps);
    of->reads = ntx_share_reads(m, w, share);
}

static struct ntx_share_work work_of(const struct ntx_outline *o)
{
    const struct ntx_hparams *hp = &o->model->hp;
    return (struct ntx_share_work){.dense = (double)(ntx_outline_bytes(o, NTX_PART_DENSE) + ntx_outline_bytes(o, NTX_PART_HEAD)), .experts = (double)ntx_outline_bytes(o, NTX_PART_EXPERT),
                                   .used = hp->n_expert ? (double)hp->n_expert_used / hp->n_expert : 0};
}

int ntx_machines_forecast(const struct ntx_outline *o, const struct ntx_hw *hw, const uint64_t *budget, uint32_t n, const struct ntx_machines_link *link, struct ntx_machines_forecast *out,
                          struct ntx_err *err)
{
    struct ntx_share_machine of[NTX_RANKS_MAX];
    struct ntx_share share = {0};
    struct ntx_machines_forecast f = {0};
    const struct ntx_share_work work = work_of(o);
    double all = 0, read = 0;
    if (n < 2 || n > NTX_RANKS_MAX)
        return ntx_err_set(err, -EINVAL, "%u machines: 2 to %u can share a model", n, NTX_RANKS_MAX);
    for (uint32_t i = 0; i < n; i++)
        of[i] = (struct ntx_share_machine){NTX_SHARE_KEEPS * (double)budget[i], ntx_hw_ram_bps(&hw[i], 0), ntx_hw_stream_bps(&hw[i], ntx_hw_read_bytes(&hw[i]))};
    f.weights_s = ntx_share_even(of, n, &work, &share);
    if (!(f.weights_s > 0))
        return ntx_err_set(err, -ENODATA, "a machine's memory or drive has no rate: say memory=RATE and drive=RATE");
    for (uint32_t i = 0; i < n; i++)
        all += share.part[i];
    for (uint32_t i = 0; i < n; i++) {
        tell_machine(&of[i], &work, share.part[i] / all, &f.of[i]);
        read += f.of[i].reads;
    }
    for (uint32_t l = 0; l < o->model->hp.n_layers; l++)
        add_layer(o->model, l, &share, &f);
    add_output(o->model, &share, &f);
    f.messages_s = f.runs * 2 * link->latency_s + (link->bytes_per_s > 0 ? f.crosses / link->bytes_per_s : 0);
    f.parts = share;
    f.token_s = f.weights_s + f.messages_s;
    f.limit = f.messages_s > f.weights_s ? "network" : read > 0 ? "drives" : "memories";
    *out = f;
    return 0;
}
