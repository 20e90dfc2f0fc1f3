/* SPDX-License-Identifier: Apache-2.0 */
/* by_size.c: chooses types so that the file has at most so many bytes and the loss is small.
 *
 * Some outputs of each matrix are quantised in every possible type. The loss is the share of the output's energy
 * (inputs weighed by the importance matrix) that becomes noise: the noises of all matrices add up, whatever their
 * sizes. All matrices begin with the fewest bytes; then the step that removes most noise per byte is taken, as long
 * as there is room. So small matrices, where many bits are cheap, get them. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/quantize/job_impl.h"
#include "common/util.h"
#include "model/arch.h"

#define SAMPLE        16 /* sampled outputs of a matrix */
#define EXPERT_SAMPLE 48 /* and of one with experts */
#define CANDIDATES    16
#define OUTPUT_WEIGHT 8

struct candidate {
    uint32_t type;
    uint64_t bytes;
    double loss;
};

struct choice {
    uint32_t tensor, n, at; /* candidates, by bytes; index of the chosen one */
    struct candidate of[CANDIDATES];
};

static const struct {
    uint32_t type;
    bool blind; /* usable without an importance matrix */
} types[] = {{NTX_IQ1_M, false},   {NTX_IQ2_XXS, false}, {NTX_IQ2_XS, false}, {NTX_IQ2_S, false}, {NTX_Q2_K, true},
             {NTX_IQ3_XXS, false}, {NTX_IQ3_S, true},    {NTX_IQ4_XS, true},  {NTX_IQ4_NL, true}, {NTX_Q4_K, true},
             {NTX_Q5_0, true},     {NTX_Q5_K, true},     {NTX_Q6_K, true},    {NTX_Q8_0, true},   {NTX_F16, true}};
_Static_assert(sizeof types / sizeof *types < CANDIDATES, "and the tensor's own");

static uint64_t outputs_of(const struct ntx_gguf_tensor *t) { return t->ne[1] * t->ne[2] * t->ne[3]; }

/* Types with blocks of 32 are for widths that allow no others. */
static bool suits_width(const struct ntx__target *k, size_t i)
{
    uint64_t n = k->t->ne[0];
    uint32_t type = types[i].type;
    if (n % ntx_type_info(type)->block || ntx_row_bytes(type, n) >= ntx_row_bytes(k->t->type, n))
        return false;
    return n % NTX_QKK == 0 ? type != NTX_IQ4_NL && type != NTX_Q5_0 && (types[i].blind || k->importance) : true;
}

/* Weight of a matrix's noise. Matrices within layers add to a residual stream that many of them feed; all noise of
 * the output matrix goes directly into the logits, and changes the chosen tokens. */
static double noise_weight(const struct ntx__job *j, const struct ntx_gguf_tensor *t)
{
    bool output = !strcmp(
        t->name, ntx_end_kinds[ntx_end_tensor(j->g, NTX_END_output) ? NTX_END_output : NTX_END_token_embd].name);
    return output ? OUTPUT_WEIGHT : 1;
}

/* Measures the loss of these outputs in every type. */
static int measure_outputs(struct ntx__job *j, struct choice *c, const uint8_t *in, uint64_t step, uint64_t n,
                           struct ntx_err *err)
{
    const struct ntx__target *k = &j->target[c->tensor];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!suits_width(k, i))
            continue;
        struct ntx__piece r = {.target = k, .type = types[i].type, .step = step, .n = n, .in = in, .weighed = true};
        int rc = ntx__quantize_piece(j, &r, err);
        if (rc == -ERANGE) /* values too large for the type */
            continue;
        if (rc)
            return rc;
        c->of[c->n++] = (struct candidate){r.type, ntx_row_bytes(r.type, k->t->ne[0]) * outputs_of(k->t),
                                           r.squares > 0 ? noise_weight(j, k->t) * r.error / r.squares : 0};
    }
    c->of[c->n++] = (struct candidate){k->t->type, k->t->bytes, 0};
    return 0;
}

static int measure_tensor(struct ntx__job *j, struct choice *c, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = j->target[c->tensor].t;
    uint64_t outputs = outputs_of(t), n = NTX_MIN(outputs, (uint64_t)(t->ne[2] > 1 ? EXPERT_SAMPLE : SAMPLE)),
             step = outputs / n, bytes = ntx_row_bytes(t->type, t->ne[0]);
    uint8_t *in = malloc(n * bytes);
    int rc = in ? 0 : ntx_err_set(err, -ENOMEM, "no memory for outputs of tensor '%s'", t->name);
    for (uint64_t i = 0; i < n && !rc; i++)
        rc = ntx__read_at(j, t, i * step * bytes, in + i * bytes, bytes, err);
    if (!rc)
        rc = measure_outputs(j, c, in, step, n, err);
    free(in);
    return rc;
}

/* The next step: noise saved per byte. */
static double best_step(const struct choice *c, uint64_t room, uint32_t *to)
{
    const struct candidate *now = &c->of[c->at];
    double best = 0;
    for (uint32_t i = c->at + 1; i < c->n; i++) {
        const struct candidate *k = &c->of[i];
        if (k->bytes <= now->bytes
                ? k->loss < now->loss
                : k->bytes - now->bytes <= room && (now->loss - k->loss) / (double)(k->bytes - now->bytes) > best) {
            best = k->bytes <= now->bytes ? INFINITY : (now->loss - k->loss) / (double)(k->bytes - now->bytes);
            *to = i;
        }
    }
    return best;
}

static void take_steps(struct choice *c, uint32_t n, uint64_t room)
{
    for (;;) {
        uint32_t which = 0, to = 0, at = 0;
        double best = 0;
        for (uint32_t i = 0; i < n; i++) {
            double gain = best_step(&c[i], room, &at);
            if (gain > best) {
                best = gain;
                which = i;
                to = at;
            }
        }
        if (!(best > 0))
            return;
        room += c[which].of[c[which].at].bytes;
        room -= c[which].of[to].bytes;
        c[which].at = to;
    }
}

static int compare_tensors(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                : (x->loss < y->loss) - (x->loss > y->loss);
}

/* The header, and the padding of tensors. */
static uint64_t header_bytes(const struct ntx__job *j)
{
    uint64_t header = UINT64_MAX;
    for (uint32_t i = 0; i < j->n; i++) /* it ends where the first tensor begins */
        header = j->target[i].t->file ? header : NTX_MIN(header, j->target[i].t->offset);
    return 1024 /* keys of an importance matrix */ + 32 * (uint64_t)j->n + (header == UINT64_MAX ? 0 : header);
}

static uint64_t bytes_as(const struct ntx_gguf_tensor *t, uint32_t type)
{
    return ntx_row_bytes(type, t->ne[0]) * outputs_of(t);
}

/* Bytes that do not depend on the choice, including tensors without one. */
static uint64_t fixed_bytes(const struct ntx__job *j)
{
    uint64_t bytes = header_bytes(j);
    for (uint32_t i = 0; i < j->n; i++)
        bytes += j->target[i].type == NTX_TYPE_LIMIT ? 0 : bytes_as(j->target[i].t, j->target[i].type);
    return bytes;
}

/* The type that a pattern gave, or the fallback for the tensor's width. */
static uint32_t given_type(const struct ntx__target *k, uint32_t given)
{
    return given == k->t->type ? given : ntx_mix_for_inputs(given, k->t->ne[0]);
}

uint64_t ntx__least_by_size(const struct ntx__job *j, const uint32_t *given)
{
    uint64_t bytes = header_bytes(j);
    for (uint32_t i = 0; i < j->n; i++) {
        const struct ntx__target *k = &j->target[i];
        uint64_t least = bytes_as(k->t, given[i] == NTX_TYPE_LIMIT ? k->t->type : given_type(k, given[i]));
        for (size_t t = 0; given[i] == NTX_TYPE_LIMIT && ntx_mix_allows(j->g, k->t) && t < sizeof types / sizeof *types;
             t++)
            if (suits_width(k, t))
                least = NTX_MIN(least, bytes_as(k->t, types[t].type));
        bytes += least;
    }
    return bytes;
}

static int choose_types(struct ntx__job *j, struct choice *c, uint32_t n, uint64_t bytes, struct ntx_err *err)
{
    char want[32];
    uint64_t least = fixed_bytes(j);
    for (uint32_t i = 0; i < n; i++) {
        if (j->o->stop && *j->o->stop)
            return ntx_err_set(err, -EINTR, "interrupted: nothing was written");
        if (j->o->progress)
            j->o->progress(j->o->ctx, &(struct ntx_quantize_progress){i, n, c[i].tensor, j->n,
                                                                      j->target[c[i].tensor].t->name, true});
        int rc = measure_tensor(j, &c[i], err);
        if (rc)
            return rc;
        qsort(c[i].of, c[i].n, sizeof *c[i].of, compare_tensors);
        least += c[i].of[0].bytes;
    }
    if (least > bytes)
        return ntx_err_set(
            err, -EINVAL, "it does not fit: the least that this model takes is fit:%llu (%s)%s",
            (unsigned long long)least, ntx_format_size(least, want, sizeof want),
            j->o->imatrix ? "" : "; less with an importance matrix, --imatrix, made by ntx imatrix MODEL TEXT -o FILE");
    take_steps(c, n, bytes - least);
    for (uint32_t i = 0; i < n; i++)
        j->target[c[i].tensor].type = c[i].of[c[i].at].type;
    return 0;
}

int ntx__choose_by_size(struct ntx__job *j, const uint32_t *given, uint64_t bytes, struct ntx_err *err)
{
    struct choice *c = calloc((size_t)j->n + 1, sizeof *c);
    uint32_t n = 0;
    if (!c)
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (uint32_t i = 0; i < j->n; i++) {
        struct ntx__target *k = &j->target[i];
        if (given[i] != NTX_TYPE_LIMIT) {
            k->type = given_type(k, given[i]);
        } else if (ntx_mix_allows(j->g, k->t)) {
            k->type = NTX_TYPE_LIMIT;
            c[n++].tensor = i;
        }
    }
    int rc = choose_types(j, c, n, bytes, err);
    free(c);
    return rc;
}
