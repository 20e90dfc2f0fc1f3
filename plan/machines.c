#include "plan/machines.h"

#include <errno.h>

#include "common/util.h"

#define INPUT_BYTES 1.125 /* of a value: 8 bits, and what a block of 32 has beside them */

/* Runs of products of a layer with the same input: each is one exchange. */
static void add_layer(const struct ntx_model *m, uint32_t l, const struct ntx_share *s, struct ntx_machines_forecast *f)
{
    const struct ntx_layer *layer = &m->layers[l];
    int before = -1;
    for (uint32_t i = 0; i < layer->n_steps; i++) {
        const struct ntx_step *step = &layer->step[i];
        if (step->op != NTX_OP_MM) {
            before = -1;
            continue;
        }
        const struct ntx_shape shape = ntx_shape_of(&m->hp, l, (enum ntx_tensor)step->weight[0]);
        if (!ntx_share_deals(s, (uint32_t)shape.n_out))
            continue;
        if (before != step->in[0]) {
            f->runs++;
            f->crosses += INPUT_BYTES * (double)shape.n_in * (s->n - 1);
        }
        before = step->in[0];
        f->crosses += sizeof(float) * (double)(shape.n_out - ntx_share_of(s, (uint32_t)shape.n_out, 0).n);
    }
}

static void add_output(const struct ntx_model *m, const struct ntx_share *s, struct ntx_machines_forecast *f)
{
    f->runs++;
    f->crosses += INPUT_BYTES * m->hp.n_embd * (s->n - 1) + sizeof(float) * (double)(m->hp.n_vocab - ntx_share_of(s, m->hp.n_vocab, 0).n);
}

static void tell_machine(const struct ntx_share_machine *m, double share, double bytes, struct ntx_machines_of *of)
{
    of->share = share;
    of->bytes = share * bytes;
    of->keeps = NTX_MIN(of->bytes, m->keeps);
    of->reads = of->bytes - of->keeps;
}

int ntx_machines_forecast(const struct ntx_outline *o, const struct ntx_hw *hw, const uint64_t *budget, uint32_t n, const struct ntx_machines_link *link, struct ntx_machines_forecast *out,
                          struct ntx_err *err)
{
    struct ntx_share_machine of[NTX_RANKS_MAX];
    struct ntx_share share = {0};
    struct ntx_machines_forecast f = {0};
    double bytes = (double)ntx_outline_model_bytes(o), all = 0, read = 0;
    if (n < 2 || n > NTX_RANKS_MAX)
        return ntx_err_set(err, -EINVAL, "%u machines: 2 to %u can share a model", n, NTX_RANKS_MAX);
    if (o->model->hp.n_expert)
        return ntx_err_set(err, -ENOTSUP, "a model with experts is not predicted for several machines: what each keeps of them depends on the text");
    for (uint32_t i = 0; i < n; i++)
        of[i] = (struct ntx_share_machine){NTX_SHARE_KEEPS * (double)budget[i], ntx_hw_ram_bps(&hw[i], 0), ntx_hw_stream_bps(&hw[i], ntx_hw_read_bytes(&hw[i]))};
    f.weights_s = ntx_share_even(of, n, bytes, &share);
    if (!(f.weights_s > 0))
        return ntx_err_set(err, -ENODATA, "a machine's memory or drive has no rate: say memory=RATE and drive=RATE");
    for (uint32_t i = 0; i < n; i++)
        all += share.part[i];
    for (uint32_t i = 0; i < n; i++) {
        tell_machine(&of[i], share.part[i] / all, bytes, &f.of[i]);
        read += f.of[i].reads;
    }
    for (uint32_t l = 0; l < o->model->hp.n_layers; l++)
        add_layer(o->model, l, &share, &f);
    add_output(o->model, &share, &f);
    f.messages_s = f.runs * 2 * link->latency_s + (link->bytes_per_s > 0 ? f.crosses / link->bytes_per_s : 0);
    f.token_s = f.weights_s + f.messages_s;
    f.limit = f.messages_s > f.weights_s ? "network" : read > 0 ? "drives" : "memories";
    *out = f;
    return 0;
}
