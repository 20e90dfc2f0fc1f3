#include "model/layer.h"

#include <assert.h>
#include <stddef.h>

#define X(field, name, in, out, use) {name, NTX_DIM_##in, NTX_DIM_##out, NTX_USE_##use},
const struct ntx_tensor_kind ntx_tensor_kinds[NTX_N_TENSORS] = {NTX_LAYER_TENSORS(X)};
#undef X

const char *ntx_op_name(enum ntx_op op)
{
    static const char *const names[NTX_N_OPS] = {
        [NTX_OP_NORM] = "NORM", [NTX_OP_MM] = "MM", [NTX_OP_BIAS] = "BIAS", [NTX_OP_ROPE] = "ROPE", [NTX_OP_PUT] = "PUT", [NTX_OP_ATTEND] = "ATTEND",
        [NTX_OP_GLU] = "GLU", [NTX_OP_ADD] = "ADD", [NTX_OP_ROUTE] = "ROUTE", [NTX_OP_EXPERTS] = "EXPERTS", [NTX_OP_GROUPS] = "GROUPS",
        [NTX_OP_SPLIT] = "SPLIT", [NTX_OP_GATE] = "GATE", [NTX_OP_CONV] = "CONV", [NTX_OP_UNIT] = "UNIT", [NTX_OP_RATES] = "RATES", [NTX_OP_DELTA] = "DELTA", [NTX_OP_SCALE] = "SCALE", [NTX_OP_INPUTS] = "INPUTS",
        [NTX_OP_STREAMS] = "STREAMS", [NTX_OP_MIXW] = "MIXW", [NTX_OP_MIX] = "MIX", [NTX_OP_SPREAD] = "SPREAD", [NTX_OP_POOL] = "POOL",
        [NTX_OP_MAP] = "MAP", [NTX_OP_PLUS] = "PLUS", [NTX_OP_GRAMS] = "GRAMS", [NTX_OP_DOTGATE] = "DOTGATE",
        [NTX_OP_LAYERNORM] = "LAYERNORM", [NTX_OP_HADAMARD] = "HADAMARD", [NTX_OP_CHOOSE] = "CHOOSE",
    };
    return names[op];
}

struct ntx_step *ntx_layer_add(struct ntx_layer *l, enum ntx_op op, enum ntx_buf out, enum ntx_buf in)
{
    assert(l->n_steps < NTX_LAYER_STEPS); /* the architecture's list, not the file's, says how many there are */
    struct ntx_step *s = &l->step[l->n_steps++];
    *s = (struct ntx_step){.op = (uint8_t)op, .in = {(uint8_t)in}, .out = (uint8_t)out};
    return s;
}

void ntx_step_takes(struct ntx_step *s, enum ntx_tensor t, bool maybe)
{
    assert(s->n_weights < NTX_STEP_WEIGHTS);
    s->maybe |= (uint16_t)(maybe << s->n_weights);
    s->weight[s->n_weights++] = (uint8_t)t;
}

/* Without its weight there is nothing to it. */
static bool is_all_weight(const struct ntx_step *s) { return s->op == NTX_OP_NORM || s->op == NTX_OP_MM || s->op == NTX_OP_BIAS || s->op == NTX_OP_SCALE; }

static bool keep_present(const struct ntx_layer *l, struct ntx_step *s)
{
    uint8_t n = 0;
    bool bare = !s->n_weights;
    for (uint8_t i = 0; i < s->n_weights; i++)
        if (l->tensor[s->weight[i]] != NTX_NO_TENSOR)
            s->weight[n++] = s->weight[i];
    s->n_weights = n;
    s->maybe = 0;
    return n || bare || !is_all_weight(s);
}

/* Backwards from what goes into the state. */
static void find_feeding(struct ntx_layer *l)
{
    bool wanted[NTX_N_BUFS] = {false};
    for (uint32_t i = l->n_steps; i-- > 0;) {
        struct ntx_step *s = &l->step[i];
        s->feeds = s->op == NTX_OP_PUT || s->op == NTX_OP_CONV || s->op == NTX_OP_DELTA || s->op == NTX_OP_POOL || wanted[s->out];
        for (int k = 0; s->feeds && k < 2; k++)
            wanted[s->in[k]] = s->in[k] != NTX_BUF_NONE;
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
