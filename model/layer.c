/* SPDX-License-Identifier: Apache-2.0 */
#include "model/layer.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "model/pack.h"

#define X(field, name, in, out, use) {name, NTX_DIM_##in, NTX_DIM_##out, NTX_USE_##use},
const struct ntx_tensor_kind ntx_tensor_kinds[NTX_N_TENSORS] = {NTX_LAYER_TENSORS(X)};
#undef X
#define X(field, name, in, out, use, has) {name, NTX_DIM_##in, NTX_DIM_##out, NTX_USE_##use},
const struct ntx_tensor_kind ntx_end_kinds[NTX_N_ENDS] = {NTX_END_TENSORS(X)};
#undef X

#define X(symbol, name, has, first, last, run) name,
const char *const ntx_whole_names[NTX_N_WHOLES] = {NTX_WHOLES(X)};
#undef X

bool ntx_is_called(const char *name, enum ntx_tensor t) { return strstr(name, ntx_tensor_kinds[t].name); }

bool ntx_is_kin(const char *name, enum ntx_tensor t)
{
    const char *of = ntx_tensor_kinds[t].name;
    const size_t n = strcspn(of, ".");
    while (*name && strncmp(name, of, n))
        name++;
    return *name;
}

bool ntx_is_experts(const char *name)
{
    int t = 0;
    while (t < NTX_N_TENSORS && !(ntx_tensor_kinds[t].use == NTX_USE_EXPERT && ntx_is_called(name, (enum ntx_tensor)t)))
        t++;
    return t < NTX_N_TENSORS;
}

#define X(name, symbol, by, width, does, device) {#name, NTX_BY_##by, NTX_WRITES_##width, NTX_ON_DEVICE_##device, does},
const struct ntx_op_kind ntx_op_kinds[NTX_N_OPS + 1] = {
    NTX_OPS(X){"UNKNOWN", NTX_BY_BACK, NTX_WRITES_ONE, NTX_ON_DEVICE_NO, 0}};
#undef X

const char *ntx_op_name(enum ntx_op op) { return ntx_op_kinds[op].name; }

struct ntx_step *ntx_layer_add(struct ntx_layer *l, enum ntx_op op, enum ntx_buf out, enum ntx_buf in)
{
    assert(l->n_steps < NTX_LAYER_STEPS); /* the architecture's code decides the number, not the file */
    struct ntx_step *s = &l->step[l->n_steps++];
    *s = (struct ntx_step){.op = (uint8_t)op, .in = {(uint8_t)in}, .out = (uint8_t)out};
    return s;
}

void ntx_step_takes(struct ntx_step *s, enum ntx_tensor t, bool maybe)
{
    assert(s->n_weights < NTX_STEP_WEIGHTS);
    s->maybe |= (uint16_t)(maybe << s->n_weights);
    s->weight[s->n_weights++] = (uint16_t)t;
}

static bool keep_present(const struct ntx_layer *l, struct ntx_step *s)
{
    uint8_t n = 0;
    bool bare = !s->n_weights;
    for (uint8_t i = 0; i < s->n_weights; i++)
        if (l->tensor[s->weight[i]] != NTX_NO_TENSOR)
            s->weight[n++] = s->weight[i];
    s->n_weights = n;
    s->maybe = 0;
    return n || bare || !(ntx_op_kinds[s->op].does & NTX_DOES_WEIGHTS);
}

/* Walks back from the steps that store into the state. An INDEX_TOPK step that makes shared keys reads the
 * positions' keys from the state, so its queries need not feed. */
static void find_feeding(struct ntx_layer *l)
{
    bool wanted[NTX_N_BUFS] = {false};
    for (uint32_t i = l->n_steps; i-- > 0;) {
        struct ntx_step *s = &l->step[i];
        const bool joins_keys = s->op == NTX_OP_INDEX_TOPK && s->index_topk.keys,
                   both = ntx_op_kinds[s->op].does & NTX_DOES_BOTH;
        s->feeds = ntx_op_kinds[s->op].does & NTX_DOES_FEED || joins_keys || wanted[s->out] ||
                   (both && wanted[s->in[1]]);
        for (int k = 0; s->feeds && !joins_keys && k < 2; k++)
            wanted[s->in[k]] = s->in[k] != NTX_BUF_NONE;
        wanted[NTX_BUF_A] |= s->op == NTX_OP_DELTA || s->op == NTX_OP_SCANEACH;
    }
}

void ntx_layer_done(struct ntx_layer *l)
{
    uint32_t n = 0;
    uint8_t parts = 0;
    for (uint32_t i = 0; i < l->n_steps; i++) {
        if (l->step[i].op == NTX_OP_ADD && l->step[i].out == NTX_BUF_H)
            l->step[i].part = ++parts;
        if (keep_present(l, &l->step[i]))
            l->step[n++] = l->step[i];
    }
    l->n_steps = n;
    find_feeding(l);
}

const struct ntx_step *ntx_layer_find(const struct ntx_layer *l, enum ntx_op op)
{
    for (uint32_t i = 0; i < l->n_steps; i++)
        if (l->step[i].op == op)
            return &l->step[i];
    return NULL;
}
