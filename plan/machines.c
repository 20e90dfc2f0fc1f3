#include "plan/machines.h"

#include <errno.h>

#include "common/util.h"
#include "infer/cpu/cpu.h"

#define HEAD_BYTES 150     /* of an exchange's two messages, beside the values */

/* Rows whose outputs come from other machines than the first. */
static double elsewhere(const struct ntx_share *s, uint32_t n_out) { return n_out - ntx_share_of(s, n_out, 0).n; }

static void begin_run(const struct ntx_share *s, struct ntx_machines_forecast *f)
{
    f->runs++;
    f->crosses += HEAD_BYTES * (s->n - 1);
}

static bool has(const struct ntx_model *m, uint32_t l, int tensor) { return m->layers[l].tensor[tensor] != NTX_NO_TENSOR; }

static enum ntx_act form_of(const struct ntx_model *m, uint32_t tensor) { return ntx_act_for(ntx_gguf_tensor_at(m->gguf, tensor)->type); }

/* `n` inputs of n_in values go out to all others, in the form that the matrix multiplies by. */
static void add_input(const struct ntx_model *m, const struct ntx_share *s, uint32_t tensor, double n, uint32_t n_in, struct ntx_machines_forecast *f)
{
    f->crosses += n * (double)ntx_act_row_bytes(form_of(m, tensor), n_in) * (s->n - 1);
}

static void add_output_values(const struct ntx_share *s, double n, uint32_t n_out, struct ntx_machines_forecast *f) { f->crosses += sizeof(float) * n * elsewhere(s, n_out); }

/* One exchange of a layer's tensor: so many inputs go out, so many outputs come back. */
static void add_run(const struct ntx_model *m, uint32_t l, int tensor, const struct ntx_share *s, double in, double out, struct ntx_machines_forecast *f)
{
    const struct ntx_shape shape = ntx_shape_of(&m->hp, l, (enum ntx_tensor)tensor);
    if (!ntx_share_deals(s, shape.n_out))
        return;
    begin_run(s, f);
    add_input(m, s, m->layers[l].tensor[tensor], in, shape.n_in, f);
    add_output_values(s, out, shape.n_out, f);
}

/* Experts are dealt by rows where all of their matrices can be. Of gate and up one value comes back, and Y once for all experts of a row; but where experts have biases, everything does. */
static void add_experts(const struct ntx_model *m, uint32_t l, const struct ntx_step *step, const struct ntx_share *s, struct ntx_machines_forecast *f)
{
    const struct ntx_hparams *hp = &m->hp;
    const bool dealt = ntx_share_deals(s, hp->n_ff_exp) && ntx_share_deals(s, hp->n_embd), biases = has(m, l, NTX_T_expert_gate_bias), sums = dealt && !has(m, l, NTX_T_expert_down_bias);
    const double used = hp->n_expert_used;
    if (has(m, l, NTX_T_down_shared)) {
        add_run(m, l, NTX_T_gate_shared, s, 1, 1, f);
        add_run(m, l, NTX_T_down_shared, s, 1, sums ? 0 : 1, f);
    }
    if (dealt) {
        add_run(m, l, NTX_T_expert_gate, s, step->weighs_input ? used : 1, biases ? 2 * used : used, f);
        add_run(m, l, NTX_T_expert_down, s, used, sums ? 1 : used, f);
    }
}

/* The output of the second of two products is no more than what a GLU takes. */
static bool hides(const struct ntx_layer *l, uint32_t i)
{
    const struct ntx_step *s = &l->step[i];
    return i && i + 1 < l->n_steps && s[-1].op == NTX_OP_MM && s[1].op == NTX_OP_GLU && s[-1].in[0] == s->in[0] && s[1].in[0] == s[-1].out && s[1].in[1] == s->out && !s[1].from;
}

/* Products of a layer with the same input are one exchange; forms: those that it has sent. */
static void add_layer(const struct ntx_model *m, uint32_t l, const struct ntx_share *s, struct ntx_machines_forecast *f)
{
    const struct ntx_layer *layer = &m->layers[l];
    uint32_t forms = 0;
    int before = -1;
    for (uint32_t i = 0; i < layer->n_steps; i++) {
        const struct ntx_step *step = &layer->step[i];
        if (step->op == NTX_OP_EXPERTS)
            add_experts(m, l, step, s, f);
        if (step->op != NTX_OP_MM) {
            before = -1;
            continue;
        }
        const uint32_t tensor = layer->tensor[step->weight[0]];
        const struct ntx_shape shape = ntx_shape_of(&m->hp, l, (enum ntx_tensor)step->weight[0]);
        if (ntx_tensor_kinds[step->weight[0]].use == NTX_USE_RESIDENT || !ntx_share_deals(s, shape.n_out))
            continue;
        if (before != step->in[0]) {
            begin_run(s, f);
            forms = 0;
        }
        if (!(forms >> form_of(m, tensor) & 1))
            add_input(m, s, tensor, 1, shape.n_in, f);
        forms |= 1u << form_of(m, tensor);
        before = step->in[0];
        if (!hides(layer, i))
            add_output_values(s, 1, shape.n_out, f);
    }
}

static void add_output(const struct ntx_model *m, const struct ntx_share *s, struct ntx_machines_forecast *f)
{
    begin_run(s, f);
    add_input(m, s, m->output, 1, m->hp.n_embd, f);
    add_output_values(s, 1, m->hp.n_vocab, f);
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

/* Whole layers: the drives read side by side, but one machine computes at a time. */
static double in_turn(const struct ntx_share_machine *m, uint32_t n, const struct ntx_share_work *w, const struct ntx_machines_forecast *f)
{
    double computes = 0, reads = 0;
    for (uint32_t i = 0; i < n; i++) {
        computes += f->of[i].share * ntx_share_taken(w) / m[i].memory;
        reads = NTX_MAX(reads, f->of[i].reads > 0 ? f->of[i].reads / m[i].drive : 0);
    }
    return NTX_MAX(computes, reads);
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
    f.prompt_s = link->bytes_per_s > 0 ? f.crosses / link->bytes_per_s : 0;
    f.messages_s = f.runs * 2 * link->latency_s + f.prompt_s;
    f.in_turn_s = in_turn(of, n, &work, &f) + n * (link->latency_s + (link->bytes_per_s > 0 ? sizeof(float) * o->model->hp.n_embd / link->bytes_per_s : 0));
    f.parts = share;
    f.token_s = f.weights_s + f.messages_s;
    f.limit = f.messages_s > f.weights_s ? "network" : read > 0 ? "drives" : "memories";
    *out = f;
    return 0;
}
