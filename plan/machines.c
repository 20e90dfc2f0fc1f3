#include "plan/machines.h"

#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "infer/cpu/cpu.h"
#include "model/share_file.h"

#define HEAD_BYTES 150     /* of an exchange's two messages, beside the values */

/* A layer's messages. */
struct flow {
    const struct ntx_model *m;
    const struct ntx_share *s;
    uint32_t l;
    struct ntx_machines_forecast *f;
};

static bool whole(const struct flow *x) { return x->s->split == NTX_SPLIT_LAYERS; }
/* Machines that a message goes out to. */
static double receivers(const struct flow *x) { return whole(x) ? 1 : x->s->n - 1; }
/* Rows whose outputs come from other machines than the first. */
static double elsewhere(const struct flow *x, uint32_t n_out) { return n_out - ntx_share_of(x->s, x->l, n_out, 0).n; }
static bool deals(const struct flow *x, uint32_t n_out) { return ntx_share_deals(x->s, x->l, n_out); }

/* Products that the first machine waits for, or, without an answer, does not. */
static void begin_run(const struct flow *x, bool answered)
{
    x->f->runs += answered;
    x->f->crosses += (answered ? HEAD_BYTES : HEAD_BYTES / 2.0) * receivers(x);
}

static bool has(const struct flow *x, int tensor) { return x->m->layers[x->l].tensor[tensor] != NTX_NO_TENSOR; }

static enum ntx_act form_of(const struct ntx_model *m, uint32_t tensor) { return ntx_act_for(ntx_gguf_tensor_at(m->gguf, tensor)->type); }

/* `n` inputs of n_in values go out, in the form that the matrix multiplies by. */
static void add_input(const struct flow *x, uint32_t tensor, double n, uint32_t n_in) { x->f->crosses += n * (double)ntx_act_row_bytes(form_of(x->m, tensor), n_in) * receivers(x); }

static void add_output_values(const struct flow *x, double n, uint32_t n_out) { x->f->crosses += sizeof(float) * n * elsewhere(x, n_out); }

/* Products of a layer's tensor: so many inputs go out, so many outputs come back. */
static void add_run(const struct flow *x, int tensor, double in, double out)
{
    const struct ntx_shape shape = ntx_shape_of(&x->m->hp, x->l, (enum ntx_tensor)tensor);
    if (!deals(x, shape.n_out))
        return;
    begin_run(x, out > 0);
    add_input(x, x->m->layers[x->l].tensor[tensor], in, shape.n_in);
    add_output_values(x, out, shape.n_out);
}

/* Experts are dealt by rows where all of their matrices can be. Of gate and up one value comes back, and Y once for all experts of a row; but where experts have biases, everything
 * does. Who has the whole layer keeps what its down matrices take. */
static void add_experts(const struct flow *x, const struct ntx_step *step)
{
    const struct ntx_hparams *hp = &x->m->hp;
    const bool dealt = deals(x, hp->n_ff_exp) && deals(x, hp->n_embd), biases = has(x, NTX_T_expert_gate_bias), sums = dealt && !has(x, NTX_T_expert_down_bias);
    const double used = hp->n_expert_used;
    if (has(x, NTX_T_down_shared)) {
        add_run(x, NTX_T_gate_shared, 1, whole(x) ? 0 : 1);
        add_run(x, NTX_T_down_shared, whole(x) ? 0 : 1, sums ? 0 : 1);
    }
    if (dealt) {
        const bool keeps = whole(x) && !biases;
        add_run(x, NTX_T_expert_gate, step->weighs_input ? used : 1, keeps ? 0 : biases ? 2 * used : used);
        add_run(x, NTX_T_expert_down, keeps ? 0 : used, sums ? 1 : used);
    }
}

/* The output of the second of two products is no more than what a GLU takes. */
static bool hides(const struct ntx_layer *l, uint32_t i)
{
    const struct ntx_step *s = &l->step[i];
    return i && i + 1 < l->n_steps && s[-1].op == NTX_OP_MM && s[1].op == NTX_OP_GLU && s[-1].in[0] == s->in[0] && s[1].in[0] == s[-1].out && s[1].in[1] == s->out && !s[1].from;
}

/* And a matrix alone takes what the GLU makes. */
static bool keeps(const struct flow *x, const struct ntx_layer *l, uint32_t i)
{
    return whole(x) && hides(l, i) && i + 2 < l->n_steps && l->step[i + 2].op == NTX_OP_MM && l->step[i + 2].in[0] == l->step[i + 1].out;
}

/* Products of a layer with the same input are one exchange; forms: those that it has sent. */
static void add_layer(const struct flow *x)
{
    const struct ntx_layer *layer = &x->m->layers[x->l];
    uint32_t forms = 0;
    int before = -1;
    for (uint32_t i = 0; i < layer->n_steps; i++) {
        const struct ntx_step *step = &layer->step[i];
        if (step->op == NTX_OP_EXPERTS)
            add_experts(x, step);
        if (step->op != NTX_OP_MM) {
            before = -1;
            continue;
        }
        const uint32_t tensor = layer->tensor[step->weight[0]];
        const struct ntx_shape shape = ntx_shape_of(&x->m->hp, x->l, (enum ntx_tensor)step->weight[0]);
        const bool kept = i > 1 && keeps(x, layer, i - 2), stays = keeps(x, layer, i) || keeps(x, layer, i + 1);
        if (ntx_tensor_kinds[step->weight[0]].use == NTX_USE_RESIDENT || !deals(x, shape.n_out))
            continue;
        if (before != step->in[0]) {
            begin_run(x, !stays);
            forms = 0;
        }
        if (!kept && !(forms >> form_of(x->m, tensor) & 1))
            add_input(x, tensor, 1, shape.n_in);
        forms |= 1u << form_of(x->m, tensor);
        before = step->in[0];
        if (!stays && !hides(layer, i))
            add_output_values(x, 1, shape.n_out);
    }
}

static void add_output(const struct flow *x)
{
    if (!deals(x, x->m->hp.n_vocab))
        return;
    begin_run(x, true);
    add_input(x, x->m->output, 1, x->m->hp.n_embd);
    add_output_values(x, 1, x->m->hp.n_vocab);
}

/* ahead: of what it could keep so much is read ahead instead. */
static void tell_machine(const struct ntx_share_machine *m, const struct ntx_share_work *w, double share, double ahead, struct ntx_machines_of *of)
{
    const struct ntx_share_machine left = {m->keeps - ahead, m->memory, m->drive};
    of->share = share;
    of->bytes = share * ntx_share_bytes(w);
    of->keeps = NTX_MIN(of->bytes, left.keeps);
    of->reads = ntx_share_reads(&left, w, share);
}

/* Drives read side by side. Rows are multiplied so, too; of whole layers one machine's at a time. */
static void tell_times(const struct ntx_share_machine *m, uint32_t n, const struct ntx_share_work *w, struct ntx_machines_forecast *f)
{
    for (uint32_t i = 0; i < n; i++) {
        const bool in_turn = f->parts.split == NTX_SPLIT_LAYERS;
        double products = f->of[i].share * ntx_share_taken(w) / m[i].memory;
        double dense = NTX_MAX(f->of[i].share * w->dense - f->of[i].keeps, 0), experts = (f->of[i].reads - dense) / m[i].drive; /* dense ones stay first */
        f->drives_s = NTX_MAX(f->drives_s, dense / m[i].drive);
        f->products_s = in_turn ? f->products_s + products : NTX_MAX(f->products_s, products);
        f->experts_s = in_turn ? f->experts_s + experts : NTX_MAX(f->experts_s, experts);
    }
}

/* share [n]: of all bytes, as the layers fall. */
static int deal_layers(const struct ntx_model *m, const struct ntx_share_work *work, struct ntx_share *s, double *share, struct ntx_err *err)
{
    uint64_t bytes[NTX_SHARE_LAYERS];
    double all = ntx_share_bytes(work), rest = all;
    int rc = ntx_share_by_layers(m, s, bytes, err);
    for (uint32_t l = 0; l < m->hp.n_layers && !rc; l++)
        rest -= (double)bytes[l];
    for (uint32_t i = 0; i < s->n && !rc; i++) {
        double has = rest * share[i]; /* of the output */
        for (uint32_t l = 0; l < m->hp.n_layers; l++)
            has += s->owner[l] == i ? (double)bytes[l] : 0;
        share[i] = has / all;
    }
    return rc;
}

int ntx_machines_predict(const struct ntx_model *m, const struct ntx_share_work *work, const struct ntx_share_machine *of, uint32_t n, const struct ntx_machines_link *link, enum ntx_split split,
                         struct ntx_machines_forecast *out, struct ntx_err *err)
{
    struct ntx_machines_forecast f = {0};
    double all = 0, share[NTX_RANKS_MAX];
    int rc = 0;
    if (n < 2 || n > NTX_RANKS_MAX)
        return ntx_err_set(err, -EINVAL, "%u machines: 2 to %u can share a model", n, NTX_RANKS_MAX);
    if (!(ntx_share_even(of, n, work, &f.parts) > 0))
        return ntx_err_set(err, -ENODATA, "a machine's memory or drive has no rate: say memory=RATE and drive=RATE");
    for (uint32_t i = 0; i < n; i++)
        all += f.parts.part[i];
    for (uint32_t i = 0; i < n; i++)
        share[i] = f.parts.part[i] / all;
    if (split == NTX_SPLIT_LAYERS && (rc = deal_layers(m, work, &f.parts, share, err)))
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        double ahead = split == NTX_SPLIT_LAYERS ? ntx_share_ahead(&f.parts, i, m->hp.n_layers, ntx_share_reads(&of[i], work, share[i])) : 0;
        tell_machine(&of[i], work, share[i], NTX_MIN(ahead, of[i].keeps), &f.of[i]);
    }
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        add_layer(&(struct flow){m, &f.parts, l, &f});
    add_output(&(struct flow){m, &f.parts, m->hp.n_layers, &f});
    tell_times(of, n, work, &f);
    f.prompt_s = link->bytes_per_s > 0 ? f.crosses / link->bytes_per_s : 0;
    f.messages_s = f.runs * 2 * link->latency_s + f.prompt_s;
    f.token_s = NTX_MAX(f.drives_s, f.products_s + f.messages_s) + f.experts_s;
    f.limit = NTX_MAX(f.drives_s, f.experts_s) >= f.products_s + f.messages_s ? "drives" : f.messages_s > f.products_s ? "network" : "memories";
    *out = f;
    return 0;
}

enum ntx_split ntx_machines_choose(const char *split, const struct ntx_machines_forecast *rows, const struct ntx_machines_forecast *layers)
{
    if (split && (!strcmp(split, "rows") || !strcmp(split, "layers")))
        return *split == 'r' ? NTX_SPLIT_ROWS : NTX_SPLIT_LAYERS;
    return rows->token_s > NTX_MACHINES_LAYERS_GAIN * layers->token_s ? NTX_SPLIT_LAYERS : NTX_SPLIT_ROWS;
}
