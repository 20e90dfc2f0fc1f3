/* SPDX-License-Identifier: Apache-2.0 */
/* by_size.c: types so that all fits into so many bytes, and as little as possible is lost.
 *
 * Of each matrix some outputs' weights are quantised in every type that it could have; what each loses is the share of
 * its output's energy (inputs weighed by the importance matrix) that becomes noise: a matrix's noise adds to that of
 * the others, however large it is. Then all begin with the fewest bytes, and the step that saves most noise for its
 * bytes is taken, as long as there is room: so much for a small matrix that many bits are cheap there. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/quantize/job_impl.h"
#include "common/util.h"
#include "model/arch.h"

#define SAMPLE        16 /* outputs of a matrix that are looked at; */
#define EXPERT_SAMPLE 48 /* of one with experts */
#define CANDIDATES    16
#define OUTPUT_WEIGHT 8

struct candidate {
    uint32_t type;
    uint64_t bytes;
    double loss;
};

struct choice {
    uint32_t tensor, n, at; /* candidates, by bytes; the one that is taken */
    struct candidate of[CANDIDATES];
};

static const struct {
    uint32_t type;
    bool blind; /* of worth without an importance matrix, too */
} types[] = {{NTX_IQ1_M, false},   {NTX_IQ2_XXS, false}, {NTX_IQ2_XS, false}, {NTX_IQ2_S, false}, {NTX_Q2_K, true},
             {NTX_IQ3_XXS, false}, {NTX_IQ3_S, true},    {NTX_IQ4_XS, true},  {NTX_IQ4_NL, true}, {NTX_Q4_K, true},
             {NTX_Q5_0, true},     {NTX_Q5_K, true},     {NTX_Q6_K, true},    {NTX_Q8_0, true},   {NTX_F16, true}};
_Static_assert(sizeof types / sizeof *types < CANDIDATES, "and the tensor's own");

static uint64_t outputs_of(const struct ntx_gguf_tensor *t) { return t->ne[1] * t->ne[2] * t->ne[3]; }

/* Types of 32 values are for widths that have no others. */
static bool suits(const struct ntx__target *k, size_t i)
{
    uint64_t n = k->t->ne[0];
    uint32_t type = types[i].type;
    if (n % ntx_type_info(type)->block || ntx_row_bytes(type, n) >= ntx_row_bytes(k->t->type, n))
        return false;
    return n % NTX_QKK == 0 ? type != NTX_IQ4_NL && type != NTX_Q5_0 && (types[i].blind || k->importance) : true;
}

/* How much a matrix's noise counts. Those within layers add to a stream that many of them feed; logits are all noise of
 * one, and errors of a text's choice of words. */
static double weight_of(const struct ntx__job *j, const struct ntx_gguf_tensor *t)
{
    bool output = !strcmp(
        t->name, ntx_end_kinds[ntx_end_tensor(j->g, NTX_END_output) ? NTX_END_output : NTX_END_token_embd].name);
    return output ? OUTPUT_WEIGHT : 1;
}

/* What every type would lose of these outputs' weights. */
static int look(struct ntx__job *j, struct choice *c, const uint8_t *in, uint64_t step, uint64_t n, struct ntx_err *err)
{
    const struct ntx__target *k = &j->target[c->tensor];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!suits(k, i))
            continue;
        struct ntx__piece r = {.target = k, .type = types[i].type, .step = step, .n = n, .in = in, .weighed = true};
        int rc = ntx__quantize_piece(j, &r, err);
        if (rc == -ERANGE) /* values too large for it */
            continue;
        if (rc)
            return rc;
        c->of[c->n++] = (struct candidate){r.type, ntx_row_bytes(r.type, k->t->ne[0]) * outputs_of(k->t),
                                           r.squares > 0 ? weight_of(j, k->t) * r.error / r.squares : 0};
    }
    c->of[c->n++] = (struct candidate){k->t->type, k->t->bytes, 0};
    return 0;
}

static int look_at(struct ntx__job *j, struct choice *c, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = j->target[c->tensor].t;
    uint64_t outputs = outputs_of(t), n = NTX_MIN(outputs, (uint64_t)(t->ne[2] > 1 ? EXPERT_SAMPLE : SAMPLE)),
             step = outputs / n, bytes = ntx_row_bytes(t->type, t->ne[0]);
    uint8_t *in = malloc(n * bytes);
    int rc = in ? 0 : ntx_err_set(err, -ENOMEM, "no memory for outputs of tensor '%s'", t->name);
    for (uint64_t i = 0; i < n && !rc; i++)
        rc = ntx__read_at(j, t, i * step * bytes, in + i * bytes, bytes, err);
    if (!rc)
        rc = look(j, c, in, step, n, err);
    free(in);
    return rc;
}

/* The next step: what it saves for a byte. */
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

static void fill(struct choice *c, uint32_t n, uint64_t room)
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

static int compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                : (x->loss < y->loss) - (x->loss > y->loss);
}

/* The header, and what tensors are rounded up to. */
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

/* Bytes that are taken whatever is chosen: of tensors that have no choice, too. */
static uint64_t fixed_bytes(const struct ntx__job *j)
{
    uint64_t bytes = header_bytes(j);
    for (uint32_t i = 0; i < j->n; i++)
        bytes += j->target[i].type == NTX_TYPE_LIMIT ? 0 : bytes_as(j->target[i].t, j->target[i].type);
    return bytes;
}

/* The type that a pattern gave, for the tensor's width. */
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
            if (suits(k, t))
                least = NTX_MIN(least, bytes_as(k->t, types[t].type));
        bytes += least;
    }
    return bytes;
}

static int choose(struct ntx__job *j, struct choice *c, uint32_t n, uint64_t bytes, struct ntx_err *err)
{
    char want[32];
    uint64_t least = fixed_bytes(j);
    for (uint32_t i = 0; i < n; i++) {
        if (j->o->stop && *j->o->stop)
            return ntx_err_set(err, -EINTR, "interrupted: nothing was written");
        if (j->o->progress)
            j->o->progress(j->o->ctx, &(struct ntx_quantize_progress){i, n, c[i].tensor, j->n,
                                                                      j->target[c[i].tensor].t->name, true});
        int rc = look_at(j, &c[i], err);
        if (rc)
            return rc;
        qsort(c[i].of, c[i].n, sizeof *c[i].of, compare);
        least += c[i].of[0].bytes;
    }
    if (least > bytes)
        return ntx_err_set(
            err, -EINVAL, "it does not fit: the least that this model takes is fit:%llu (%s)%s",
            (unsigned long long)least, ntx_format_size(least, want, sizeof want),
            j->o->imatrix ? "" : "; less with an importance matrix, --imatrix, made by ntx imatrix MODEL TEXT -o FILE");
    fill(c, n, bytes - least);
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
    int rc = choose(j, c, n, bytes, err);
    free(c);
    return rc;
}
