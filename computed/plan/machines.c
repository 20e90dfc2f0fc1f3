/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/machines.h"

#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/cpu/cpu.h"
#include "computed/plan/plan.h"
#include "model/share_file.h"

#define KEEPS_BESIDE_KV 0.9 /* of a budget, beside K and V */
#define HEAD_BYTES      150 /* of an exchange's two messages, beside the values */

/* a layer's messages */
struct flow {
    const struct ntx_model *m;
    const struct ntx_share *s;
    uint32_t l;
    struct ntx_machines_forecast *f;
    /* For a row whose output is wanted; others do only what feeds the last layer's state (computed/pass/forward.c). */
    bool asked;
};

static bool has_whole_layers(const struct flow *x) { return x->s->split == NTX_SPLIT_LAYERS; }
/* Machines that a message goes to. */
static double receivers(const struct flow *x) { return has_whole_layers(x) ? 1 : x->s->n - 1; }
/* Rows whose outputs come from other machines than the first. */
static double elsewhere(const struct flow *x, uint32_t n_out) { return n_out - ntx_share_of(x->s, x->l, n_out, 0).n; }
static bool deals(const struct flow *x, uint32_t n_out) { return ntx_share_deals(x->s, x->l, n_out); }

/* Counts a run of products; without an answer the first machine does not wait. */
static void begin_run(const struct flow *x, bool answered)
{
    x->f->runs += answered;
    x->f->crosses += (answered ? HEAD_BYTES : HEAD_BYTES / 2.0) * receivers(x);
}

static bool has(const struct flow *x, int tensor) { return x->m->layers[x->l].tensor[tensor] != NTX_NO_TENSOR; }

static enum ntx_act form_of(const struct ntx_model *m, uint32_t tensor)
{
    return ntx_act_for(ntx_gguf_tensor_at(m->gguf, tensor)->type);
}

/* `n` inputs of n_in values go out, in the form that the matrix multiplies. */
static void add_input(const struct flow *x, uint32_t tensor, double n, uint32_t n_in)
{
    x->f->crosses += n * (double)ntx_act_row_bytes(form_of(x->m, tensor), n_in) * receivers(x);
}

static void add_output_values(const struct flow *x, double n, uint32_t n_out)
{
    x->f->crosses += sizeof(float) * n * elsewhere(x, n_out);
}

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

/* Experts are split by rows if all of their matrices can be. One value comes back of gate and up, and Y once for all
 * experts of a row; with biases of experts, everything does. A machine that has the whole layer keeps the inputs of
 * down. */
static void add_experts(const struct flow *x, const struct ntx_step *step)
{
    const struct ntx_hparams *hp = &x->m->hp;
    const bool dealt = ntx_experts_deal(hp, x->s, x->l), biases = has(x, NTX_T_expert_gate_bias),
               sums = dealt && !has(x, NTX_T_expert_down_bias);
    const double used = hp->n_expert_used;
    if (has(x, NTX_T_down_shared)) {
        add_run(x, NTX_T_gate_shared, 1, has_whole_layers(x) ? 0 : 1);
        add_run(x, NTX_T_down_shared, has_whole_layers(x) ? 0 : 1, sums ? 0 : 1);
    }
    if (dealt) {
        const bool keeps = has_whole_layers(x) && !biases;
        const double back = biases ? 2 * used : used;
        add_run(x, NTX_T_expert_gate, step->experts.weighs_input ? used : 1, keeps ? 0 : back);
        add_run(x, NTX_T_expert_down, keeps ? 0 : used, sums ? 1 : used);
    }
}

/* The output of the second of two products is used by a GLU only. */
static bool hides(const struct ntx_layer *l, uint32_t i)
{
    const struct ntx_step *s = &l->step[i];
    return i && i + 1 < l->n_steps && s[-1].op == NTX_OP_MM && s[1].op == NTX_OP_GLU && s[-1].in[0] == s->in[0] &&
           s[1].in[0] == s[-1].out && s[1].in[1] == s->out && !s[1].from;
}

/* And the GLU's output by one matrix only. */
static bool keeps(const struct flow *x, const struct ntx_layer *l, uint32_t i)
{
    return has_whole_layers(x) && hides(l, i) && i + 2 < l->n_steps && l->step[i + 2].op == NTX_OP_MM &&
           l->step[i + 2].in[0] == l->step[i + 1].out;
}

/* K and V of a layer go out with q, and attention's output comes back. */
static void add_attention(const struct flow *x)
{
    const struct ntx_dims w = ntx_dims_of(&x->m->hp, x->l);
    const double away = w.n_head_kv - ntx_share_heads(x->s, w.n_head_kv, 0).n, queries = away * w.n_head / w.n_head_kv;
    uint32_t asked = 0;
    for (uint32_t i = 1; i < x->s->n; i++)
        asked += ntx_share_heads(x->s, w.n_head_kv, i).n > 0;
    if (!asked)
        return;
    x->f->runs++;
    x->f->crosses += HEAD_BYTES * asked + sizeof(float) * (queries * (w.head_k + w.head_v) +
                                                           (w.kv_of == x->l ? away * (w.head_k + w.head_v) : 0));
}

/* Products of a layer with the same input are one exchange; forms: those already sent. */
static void add_layer(const struct flow *x)
{
    const struct ntx_layer *layer = &x->m->layers[x->l];
    uint32_t forms = 0;
    int before = -1;
    for (uint32_t i = 0; i < layer->n_steps; i++) {
        const struct ntx_step *step = &layer->step[i];
        if (!x->asked && !step->feeds)
            continue;
        if (step->op == NTX_OP_EXPERTS)
            add_experts(x, step);
        if (step->op == NTX_OP_ATTEND && x->s->split == NTX_SPLIT_HEADS)
            add_attention(x);
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

/* ahead: the share of what it could keep that is read ahead instead. */
static void set_machine(const struct ntx_share_machine *m, const struct ntx_share_work *w, double share, double ahead,
                        struct ntx_machines_of *of)
{
    const struct ntx_share_machine left = {.keeps = m->keeps - ahead, .memory = m->memory, .drive = m->drive};
    of->share = share;
    of->bytes = share * ntx_share_bytes(w);
    of->keeps = NTX_MIN(of->bytes, left.keeps);
    of->reads = ntx_share_reads(&left, w, share);
}

/* The part of all K and V that a machine keeps. */
static double kv_part(const struct ntx_model *m, const struct ntx_share *s, uint32_t rank)
{
    double own = 0, all = 0;
    if (s->split != NTX_SPLIT_HEADS)
        return rank ? 0 : 1;
    for (uint32_t l = 0; l < m->hp.n_layers; l++) {
        const struct ntx_dims w = ntx_dims_of(&m->hp, l);
        const double head = ntx_is_recurrent(&m->hp, l) && !m->hp.recurrent_attends ? 0 : (double)(w.head_k + w.head_v);
        own += head * ntx_share_heads(s, w.n_head_kv, rank).n;
        all += head * w.n_head_kv;
    }
    return all > 0 ? own / all : 0;
}

/* bytes used only for rows whose output is wanted: in the last layer, what does not feed its state; and the output */
struct end {
    double dense, experts;
};

static bool is_fed_by(const struct ntx_layer *l, uint32_t tensor)
{
    for (const struct ntx_step *s = l->step; s < l->step + l->n_steps; s++)
        for (uint8_t i = 0; s->feeds && i < s->n_weights; i++)
            if (l->tensor[s->weight[i]] == tensor)
                return true;
    return false;
}

static struct end last_row_bytes(const struct ntx_model *m)
{
    const struct ntx_layer *l = &m->layers[m->hp.n_layers - 1];
    struct end end = {.dense = m->output == NTX_NO_TENSOR ? 0 : (double)ntx_gguf_tensor_at(m->gguf, m->output)->bytes};
    for (const struct ntx_step *s = l->step; s < l->step + l->n_steps; s++)
        for (uint8_t i = 0; !s->feeds && i < s->n_weights; i++) {
            const uint32_t tensor = l->tensor[s->weight[i]];
            if (tensor != NTX_NO_TENSOR && !is_fed_by(l, tensor))
                *(ntx_tensor_kinds[s->weight[i]].use == NTX_USE_EXPERT
                      ? &end.experts
                      : &end.dense) += (double)ntx_gguf_tensor_at(m->gguf, tensor)->bytes;
        }
    return end;
}

/* For a prompt's pass, of which only the last row's output is wanted: a machine's products; and its reads if nothing is
 * resident. */
static double prompt_products(const struct ntx_share_machine *m, const struct ntx_share_work *w, const struct end *end)
{
    return NTX_MAX(w->dense - end->dense, 0.0) * m->prompt_s +
           NTX_MAX(w->experts - end->experts, 0.0) * m->prompt_expert_s +
           (end->dense + w->used * end->experts) / m->memory;
}
static double prompt_bytes(const struct ntx_share_work *w, const struct end *end)
{
    return ntx_share_bytes(w) - (1 - w->used) * end->experts;
}

/* Drives read in parallel. So do machines that split rows; machines with whole layers compute one at a time. */
static void set_times(const struct ntx_model *model, const struct ntx_share_machine *m, uint32_t n,
                      const struct ntx_share_work *w, struct ntx_machines_forecast *f)
{
    const bool in_turn = f->parts.split == NTX_SPLIT_LAYERS;
    const struct end end = last_row_bytes(model);
    const double passes = prompt_bytes(w, &end) / ntx_share_bytes(w);
    double reads = 0;
    bool known = true;
    for (uint32_t i = 0; i < n; i++) {
        const double part = kv_part(model, &f->parts, i), share = f->of[i].share;
        double products = share * ntx_share_taken(w) / m[i].memory, prompt = share * prompt_products(&m[i], w, &end);
        double dense = NTX_MAX(share * w->dense - f->of[i].keeps, 0),
               experts = (f->of[i].reads - dense) / m[i].drive; /* dense weights are resident first */
        f->of[i].kv = part * w->kv_kept;
        if (!f->lacks && f->of[i].kv > m[i].kv_room)
            f->lacks = i + 1;
        f->drives_s = NTX_MAX(f->drives_s, dense / m[i].drive);
        f->products_s = in_turn ? f->products_s + products : NTX_MAX(f->products_s, products);
        f->prompt_products_s = in_turn ? f->prompt_products_s + prompt : NTX_MAX(f->prompt_products_s, prompt);
        f->attend_s = NTX_MAX(f->attend_s, part * w->kv_read / m[i].memory);
        f->experts_s = in_turn ? f->experts_s + experts : NTX_MAX(f->experts_s, experts);
        reads = NTX_MAX(reads, passes * (f->of[i].bytes - f->of[i].keeps) / m[i].drive);
        known = known && m[i].prompt_s > 0;
    }
    f->prompt_products_s = known ? f->prompt_products_s : 0;
    f->prompt_pass_s = reads; /* the rest once messages are known */
}

/* Leaves room for K and V beside the weights: NTX_SHARE_KEEPS leaves some. */
static void leave_room(const struct ntx_model *m, const struct ntx_share *parts, const struct ntx_share_work *w,
                       const struct ntx_share_machine *of, uint32_t n, struct ntx_share_machine *out)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = of[i];
        out[i].kv_room = of[i].keeps / NTX_SHARE_KEEPS * KEEPS_BESIDE_KV;
        out[i].keeps = NTX_MAX(
            NTX_MIN(of[i].keeps, of[i].keeps / NTX_SHARE_KEEPS * KEEPS_BESIDE_KV - kv_part(m, parts, i) * w->kv_kept),
            0.0);
    }
}

/* share [n]: of all bytes, as whole layers allow. */
static int deal_layers(const struct ntx_model *m, const struct ntx_share_work *work, struct ntx_share *s, double *share,
                       struct ntx_err *err)
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

/* The type of most of the layers' bytes. */
static uint32_t main_type(const struct ntx_model *m, bool experts)
{
    double of[NTX_TYPE_LIMIT] = {0};
    uint32_t best = 0;
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        for (int t = 0; t < NTX_N_TENSORS; t++)
            if (m->layers[l].tensor[t] != NTX_NO_TENSOR && ntx_is_matrix((enum ntx_tensor)t) &&
                (t >= NTX_T_expert_gate && t <= NTX_T_expert_down) == experts) {
                const struct ntx_gguf_tensor *g = ntx_gguf_tensor_at(m->gguf, m->layers[l].tensor[t]);
                of[g->type] += (double)g->bytes;
                best = of[g->type] > of[best] ? g->type : best;
            }
    return best;
}

struct ntx_share_machine ntx_machines_can(const struct ntx_model *m, const struct ntx_hw *hw, uint64_t budget)
{
    const struct ntx_hparams *hp = &m->hp;
    const uint32_t each = hp->n_expert ? NTX_MAX(NTX_MACHINES_PROMPT * hp->n_expert_used / hp->n_expert, 1u)
                                       : 0; /* rows of an expert */
    return (struct ntx_share_machine){.keeps = NTX_SHARE_KEEPS * (double)budget,
                                      .memory = ntx_hw_ram_bps(hw, 0),
                                      .drive = ntx_hw_stream_bps(hw, ntx_hw_read_bytes(hw)),
                                      .prompt_s = ntx_hw_byte_s(hw, main_type(m, false), NTX_MACHINES_PROMPT, 0, true),
                                      .prompt_expert_s = each ? ntx_hw_byte_s(hw, main_type(m, true), each, 0, true)
                                                              : 0};
}

void ntx_machines_text(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t ctx, uint32_t sessions,
                       struct ntx_share_work *work)
{
    const uint32_t all = ntx_plan_ctx(hp, ctx), text = all / 2;
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        const double token = (double)(ntx_kv_layer_bytes(hp, type, l, false) + ntx_kv_layer_bytes(hp, type, l, true)) /
                             NTX_KV_BLOCK;
        const uint32_t most = ntx_windowed(hp, l) ? hp->window : UINT32_MAX;
        work->kv_read += ntx_kv_layer_reads(hp, type, l, text);
        work->kv_kept += token * NTX_MIN(all, most) * sessions;
    }
}

int ntx_machines_predict(const struct ntx_model *m, const struct ntx_share_work *work,
                         const struct ntx_share_machine *can, uint32_t n, const struct ntx_machines_link *link,
                         enum ntx_split split, struct ntx_machines_forecast *out, struct ntx_err *err)
{
    struct ntx_machines_forecast f = {
        .parts = {.n = n, .split = split == NTX_SPLIT_HEADS && ntx_heads_refuse(m) ? NTX_SPLIT_ROWS : split}};
    struct ntx_share_machine of[NTX_RANKS_MAX];
    double all = 0, share[NTX_RANKS_MAX];
    int rc = 0;
    if (n < 2 || n > NTX_RANKS_MAX)
        return ntx_err_set(err, -EINVAL, "%u machines: 2 to %u can share a model", n, NTX_RANKS_MAX);
    for (int round = 0; round < 2; round++) { /* heads are split by parts, which depend on the memory beside them */
        leave_room(m, &f.parts, work, can, n, of);
        if (!(ntx_share_even(of, n, work, &f.parts) > 0))
            return ntx_err_set(err, -ENODATA,
                               "a machine's memory or drive has no rate: say memory=RATE and drive=RATE");
    }
    for (uint32_t i = 0; i < n; i++)
        all += f.parts.part[i];
    for (uint32_t i = 0; i < n; i++)
        share[i] = f.parts.part[i] / all;
    if (split == NTX_SPLIT_LAYERS && (rc = deal_layers(m, work, &f.parts, share, err)))
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        double ahead = split == NTX_SPLIT_LAYERS
                           ? ntx_share_ahead(&f.parts, i, m->hp.n_layers, ntx_share_reads(&of[i], work, share[i]))
                           : 0;
        set_machine(&of[i], work, share[i], NTX_MIN(ahead, of[i].keeps), &f.of[i]);
    }
    struct ntx_machines_forecast unasked = {0};
    for (uint32_t l = 0; l < m->hp.n_layers; l++) {
        add_layer(&(struct flow){m, &f.parts, l, &f, true});
        add_layer(&(struct flow){m, &f.parts, l, &unasked, l + 1 < m->hp.n_layers});
    }
    add_output(&(struct flow){m, &f.parts, m->hp.n_layers, &f, true});
    set_times(m, of, n, work, &f);
    f.prompt_s = link->bytes_per_s > 0 ? unasked.crosses / link->bytes_per_s : 0;
    f.messages_s = f.runs * 2 * link->latency_s + (link->bytes_per_s > 0 ? f.crosses / link->bytes_per_s : 0);
    const double products = f.products_s + f.attend_s,
                 prompt = f.prompt_products_s + f.messages_s +
                          (NTX_MACHINES_PROMPT - 1) * f.prompt_s; /* only one row's output is wanted */
    f.token_s = NTX_MAX(f.drives_s, products + f.messages_s) + f.experts_s;
    f.prompt_pass_s = NTX_MAX(f.prompt_pass_s, prompt);
    f.limit = f.messages_s > products ? "network" : "memories";
    if (NTX_MAX(f.drives_s, f.experts_s) >= products + f.messages_s)
        f.limit = "drives";
    *out = f;
    return 0;
}

double ntx_machines_turn(const struct ntx_machines_forecast *f)
{
    return f->prompt_pass_s + NTX_MACHINES_ANSWER * f->token_s;
}

enum ntx_split ntx_machines_choose(const char *split, const struct ntx_machines_forecast *by, bool heads)
{
    enum ntx_split best = NTX_SPLIT_ROWS;
    const double gain = by[NTX_SPLIT_ROWS].lacks ? 1 : NTX_MACHINES_GAIN;
    for (int s = NTX_SPLIT_ROWS; s < NTX_SPLITS; s++)
        if (split && !strcmp(split, ntx_split_names[s]))
            return (enum ntx_split)s;
    for (int s = NTX_SPLIT_HEADS; s < NTX_SPLITS; s++)
        if ((s != NTX_SPLIT_HEADS || heads) && !by[s].lacks >= !by[best].lacks &&
            (!by[s].lacks > !by[best].lacks ||
             ntx_machines_turn(&by[s]) * (best == NTX_SPLIT_ROWS ? gain : 1) < ntx_machines_turn(&by[best])))
            best = (enum ntx_split)s;
    return best;
}
