/* device_packed.c: the FFN of a packed layer on a device: sparse.c's walk with other hands.
 *
 *   gate matrix, each chunk where it lives -> (its values down, the CPU chooses, what is left of them up) -> lists up
 *   groups on the device, or brought there: up (and gate, where it is in them) -> hidden values -> their columns are added to y
 *   groups on the host, of few rows: the CPU computes them in place, from x and the gates, and y goes up
 *
 * A layer's groups are all on the device, or none is: so the sum goes over the neurons in one order. All rows are exact, prompts' too. Which groups
 * are used is the CPU's to say; the states that it says it from come down before. */
#include <string.h>

#include "infer/device/device_impl.h"

static const struct ntx_layer_weights *layer(const struct ntx_forward *f) { return &f->c.chunks->layers[f->layer]; }

static bool on_device(const struct ntx_device *d, uint32_t l) { return d->at[d->c.chunks->layers[l].groups.chunk0] != NULL; }

bool ntx__device_has(const struct ntx_forward *f, uint32_t chunk) { return f->c.device->at[chunk] != NULL; }

/* ---- rows between the host's memory and the device's */

static int send_x(struct ntx_device *d, const struct ntx__input *in, uint32_t forms, uint32_t to)
{
    uint32_t n = d->hp->n_embd;
    int rc = 0;
    if (forms >> NTX_ACT_F32 & 1)
        rc = d->ops->upload_rows(d->compute, d->m.x + to * NTX__DEVICE_LD(n), NTX__DEVICE_LD(n) * sizeof(float), in->x, in->ld * sizeof(float), n * sizeof(float),
                                 in->n_rows);
    for (int form = NTX_ACT_F32 + 1; !rc && form < NTX_N_ACTS; form++) {
        size_t bytes = ntx_act_row_bytes((enum ntx_act)form, n);
        if (forms >> form & 1)
            rc = d->ops->upload_rows(d->compute, (uint8_t *)d->m.quantized[form] + to * d->stride[form], d->stride[form], in->quantized[form], bytes, bytes, in->n_rows);
    }
    return rc;
}

/* The live rows' x, as the CPU's part multiplies by it. */
static int bring_x(struct ntx_device *d, uint32_t forms)
{
    struct ntx_forward *f = d->f;
    uint32_t n = d->hp->n_embd;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < f->n_live; i++) {
        if (forms >> NTX_ACT_F32 & 1)
            rc = d->ops->download(d->compute, f->m.x + i * f->ld_x, d->m.x + i * NTX__DEVICE_LD(n), n * sizeof(float));
        for (int form = NTX_ACT_F32 + 1; !rc && form < NTX_N_ACTS; form++) {
            size_t bytes = ntx_act_row_bytes((enum ntx_act)form, n);
            if (forms >> form & 1)
                rc = d->ops->download(d->compute, (uint8_t *)f->m.quantized[form] + i * bytes, (const uint8_t *)d->m.quantized[form] + i * d->stride[form], bytes);
        }
    }
    return rc;
}

/* Both sides' rows of gates have the same length (f->ld_gate). */
static int bring_gates(struct ntx_device *d, uint32_t from, uint32_t n)
{
    struct ntx_forward *f = d->f;
    return d->ops->download(d->compute, f->m.gate + from * f->ld_gate, d->m.gate + from * f->ld_gate, n * f->ld_gate * sizeof(float));
}

/* ---- gates */

int ntx__device_gates(struct ntx_forward *f, const struct ntx__product *p, const struct ntx__input *in)
{
    struct ntx_device *d = f->c.device;
    uint32_t at = d->c.max_rows; /* behind the rows of the pass */
    void *quantized[NTX_N_ACTS] = {NULL};
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++)
        quantized[form] = (uint8_t *)d->m.quantized[form] + at * d->stride[form];
    const struct ntx__device_product to = {.w = p->w, .y = d->m.gate + at * p->ld, .ld_y = p->ld, .host_y = p->y};
    const struct ntx__device_input x = {.x = d->m.x + at * NTX__DEVICE_LD(d->hp->n_embd), .ld = NTX__DEVICE_LD(d->hp->n_embd), .quantized = quantized, .n = in->n_rows};
    int rc = send_x(d, in, ntx__forms(&p->w, 1), at);
    if (rc)
        return ntx__device_fail(d, rc, "states of the next layer");
    if ((rc = ntx__device_multiply(d, &to, 1, &x)))
        return rc;
    if ((rc = d->ops->download(d->compute, p->y, to.y, in->n_rows * p->ld * sizeof(float))) || (rc = d->ops->stream_sync(d->compute)))
        return ntx__device_fail(d, rc, "gates of the next layer");
    return 0;
}

/* The layer's own gate matrix; what was left of the prediction goes with it, behind the live rows. */
static int gates(struct ntx_device *d)
{
    struct ntx_forward *f = d->f;
    const struct ntx_weight *w = &layer(f)->gate;
    uint32_t kept = ntx__kept_rows(f);
    const struct ntx__input early = {.x = f->m.groups.x, .ld = f->ld_x, .quantized = f->m.groups.quantized, .n_rows = kept};
    const struct ntx__device_product p = {.w = w, .y = d->m.gate, .ld_y = f->ld_gate, .host_y = f->m.gate};
    const struct ntx__device_input in = ntx__device_normed(d, f->n_live + kept, 0, 0);
    int rc = kept ? send_x(d, &early, ntx__forms(&w, 1), f->n_live) : 0;
    if (rc)
        return ntx__device_fail(d, rc, "states");
    if ((rc = ntx__device_multiply(d, &p, 1, &in)) || !kept)
        return rc;
    if ((rc = bring_gates(d, f->n_live, kept)) || (rc = d->ops->stream_sync(d->compute)))
        return ntx__device_fail(d, rc, "gates");
    ntx__choose_by_gates(f, f->layer, f->m.gate + f->n_live * f->ld_gate);
    return 0;
}

/* ---- groups on the device */

static const void *part_of(const void *groups, const struct ntx_pack_layer *p, enum ntx_pack_part part) { return (const uint8_t *)groups + p->at[part]; }

static int multiply_part(struct ntx_device *d, const void *w, const struct ntx_gpu_groups *g, enum ntx_pack_part part, float *y, size_t ldy)
{
    const struct ntx_pack_layer *p = &layer(d->f)->pack;
    enum ntx_act form = ntx_act_for(p->type[part]);
    const struct ntx_gpu_product k = {
        .w = part_of(w, p, part), .x = form == NTX_ACT_F32 ? d->m.x : d->m.quantized[form], .y = y, .groups = *g, .row_bytes = p->row_bytes[part],
        .x_stride = form == NTX_ACT_F32 ? NTX__DEVICE_LD(d->hp->n_embd) * sizeof(float) : d->stride[form], .ldy = ldy, .type = p->type[part],
        .n_out = g->n * g->size, .n_in = d->hp->n_embd, .n_rows = d->f->n_live,
    };
    return ntx__device_go(d, NTX_GPU_PRODUCT, &k, "groups of neurons");
}

/* w: the device's memory of group `first`; n groups from there, or those of `list`. */
static int compute_groups(struct ntx_device *d, const void *w, const uint32_t *list, uint32_t first, uint32_t n)
{
    const struct ntx_forward *f = d->f;
    const struct ntx_pack_layer *p = &layer(f)->pack;
    const struct ntx_gpu_groups g = {.list = list, .bytes = p->group_bytes, .first = first, .n = n, .size = p->group, .n_neurons = d->hp->n_ff};
    const struct ntx_gpu_hidden hidden = {
        .gate = d->m.gate, .up = d->m.up, .uses = d->masked ? d->m.uses : NULL, .groups = g, .ld_gate = f->ld_gate, .ld_up = d->hp->n_ff, .ld_uses = p->n_groups,
        .n_rows = f->n_live, .act = ntx__packed_act(f, f->layer),
    };
    const struct ntx_gpu_columns columns = {
        .w = part_of(w, p, NTX_PACK_DOWN), .hidden = d->m.gate, .y = d->m.y, .groups = g, .row_bytes = p->row_bytes[NTX_PACK_DOWN], .ld_hidden = f->ld_gate,
        .ld_y = d->hp->n_embd, .type = p->type[NTX_PACK_DOWN], .n = d->hp->n_embd, .n_rows = f->n_live,
    };
    int rc = ntx_pack_has_gate(p) ? multiply_part(d, w, &g, NTX_PACK_GATE, d->m.gate, f->ld_gate) : 0;
    if (rc || (rc = multiply_part(d, w, &g, NTX_PACK_UP, d->m.up, d->hp->n_ff)) || (rc = ntx__device_go(d, NTX_GPU_HIDDEN, &hidden, "hidden values")))
        return rc;
    return ntx__device_go(d, NTX_GPU_COLUMNS, &columns, "columns");
}

/* Of one chunk, brought to a stage: all its groups, or wanted[i .. i + n). */
static int compute_chunk(struct ntx_device *d, uint32_t chunk, const uint32_t *wanted, uint32_t i, uint32_t n)
{
    const struct ntx_chunk *c = &d->c.chunks->list[chunk];
    const struct ntx__device_part part = {.rows = wanted ? wanted + i : NULL, .n = n, .row_bytes = layer(d->f)->pack.group_bytes};
    struct ntx__stage *s;
    int rc = ntx__device_bring(d, chunk, &part, &s);
    if (!rc)
        rc = compute_groups(d, s->bytes, wanted ? d->m.groups + i : NULL, c->row0, wanted ? n : c->n_rows);
    return rc ? rc : ntx__device_used(d, s);
}

/* wanted: n groups, which d->m.groups has, too; NULL: all. */
static int compute_all(struct ntx_device *d, const uint32_t *wanted, uint32_t n)
{
    const struct ntx_weight *w = &layer(d->f)->groups;
    const struct ntx_chunk *list = d->c.chunks->list;
    int rc = ntx__turn(d->f, w->chunk0, w->n_chunks);
    if (rc)
        return rc;
    if ((rc = d->ops->fill(d->compute, d->m.y, 0, (uint64_t)d->f->n_live * d->hp->n_embd * sizeof(float))))
        return ntx__device_fail(d, rc, "the FFN's sum");
    if (on_device(d, d->f->layer))
        return wanted && !n ? 0 : compute_groups(d, d->at[w->chunk0], wanted ? d->m.groups : NULL, 0, wanted ? n : w->n_out);
    for (uint32_t c = w->chunk0, i = 0; !rc && c < w->chunk0 + w->n_chunks; c++) {
        uint32_t first = i;
        while (wanted && i < n && wanted[i] < list[c].row0 + list[c].n_rows)
            i++;
        if (!wanted || i > first)
            rc = compute_chunk(d, c, wanted, first, i - first);
    }
    return rc;
}

/* ---- what is chosen */

/* Which live row uses which group, where rows are told so. */
static bool lay_uses(struct ntx_device *d)
{
    struct ntx_forward *f = d->f;
    uint32_t n = layer(f)->pack.n_groups;
    bool some = false;
    for (uint32_t i = 0; i < f->n_live; i++) {
        const uint8_t *uses = ntx__groups_of(f, f->m.live[i], f->layer);
        some |= uses != NULL;
        if (uses)
            memcpy(d->host.uses + (size_t)i * n, uses, n);
        else
            memset(d->host.uses + (size_t)i * n, 1, n);
    }
    return some;
}

/* The lists of the layer before have been copied when these are written. */
static int send_choice(struct ntx_device *d, uint32_t n)
{
    struct ntx_forward *f = d->f;
    int rc = d->ops->event_sync(d->lists);
    if (rc)
        return rc;
    memcpy(d->host.groups, f->m.groups.wanted, n * sizeof *d->host.groups);
    if (n && (rc = d->ops->upload(d->compute, d->m.groups, d->host.groups, n * sizeof *d->host.groups)))
        return rc;
    d->masked = ntx_ffn_mode_groups(&f->c.ffn) && lay_uses(d);
    if (d->masked)
        rc = d->ops->upload(d->compute, d->m.uses, d->host.uses, (uint64_t)f->n_live * layer(f)->pack.n_groups);
    else if (!ntx_ffn_mode_groups(&f->c.ffn)) /* what the rows do not use of their gates is 0 now */
        rc = d->ops->upload(d->compute, d->m.gate, f->m.gate, f->n_live * f->ld_gate * sizeof(float));
    return rc ? rc : d->ops->event_record(d->lists, d->compute);
}

static int all(struct ntx_forward *f)
{
    f->c.device->masked = false;
    return compute_all(f->c.device, NULL, 0);
}

static int chosen(struct ntx_forward *f, uint32_t n)
{
    struct ntx_device *d = f->c.device;
    int rc = send_choice(d, n);
    if (rc)
        return ntx__device_fail(d, rc, "groups of neurons");
    if ((rc = compute_all(d, f->m.groups.wanted, n)))
        return rc;
    rc = ntx__device_settle(d); /* those that were copied may be replaced after this */
    return rc ? ntx__device_fail(d, rc, "a copy") : 0;
}

/* ---- by whom */

static bool in_place(const struct ntx_device *d)
{
    const struct ntx_pack_layer *p = &layer(d->f)->pack;
    return !on_device(d, d->f->layer) && d->share.of[p->type[NTX_PACK_UP]][NTX_MIN(d->f->n_live, NTX_SHARE_ROWS)] < 32;
}

/* The states are the CPU's to look at: where groups are predicted from them, and where the next layer's may be prefetched. */
static bool predicts(const struct ntx_device *d)
{
    const struct ntx_forward *f = d->f;
    if (f->c.ffn.kind == NTX_FFN_PREDICTED)
        return f->groups.n_decode > 0;
    if (f->c.ffn.kind == NTX_FFN_ALL || ntx_ffn_mode_groups(&f->c.ffn) || f->layer + 1 == d->hp->n_layers || !f->c.weights->ops->prefetch_groups)
        return false;
    const struct ntx_weight *next = &layer(f)[1].groups;
    return d->c.table[next->chunk0 + next->n_chunks - 1].placement == NTX_PLACE_FRAME;
}

/* What the CPU needs of this layer: gates to choose by, states, and all of the input where it computes. */
static int bring(struct ntx_device *d, bool place)
{
    struct ntx_forward *f = d->f;
    const struct ntx_layer_weights *w = layer(f);
    uint64_t state_bytes = (uint64_t)f->b->n_rows * d->hp->n_embd * sizeof(float);
    bool own_gate = !ntx_pack_has_gate(&w->pack), chooses = f->c.ffn.kind != NTX_FFN_ALL && !ntx_ffn_mode_groups(&f->c.ffn), states = predicts(d);
    int rc = own_gate && (chooses || place) ? bring_gates(d, 0, f->n_live) : 0;
    if (!rc && states)
        rc = d->ops->download(d->compute, d->host.h, d->m.h, state_bytes);
    if (!rc && place)
        rc = bring_x(d, ntx__forms((const struct ntx_weight *const[]){&w->gate, &w->up}, 2));
    if (!rc && (place || chooses || states))
        rc = d->ops->stream_sync(d->compute);
    if (!rc && states)
        memcpy(f->m.h, d->host.h, state_bytes);
    return rc ? ntx__device_fail(d, rc, "states and gates") : 0;
}

static int by_cpu(struct ntx_device *d)
{
    struct ntx_forward *f = d->f;
    int rc = ntx__device_settle(d); /* the ring's slots are free for what is to come */
    if (rc)
        return ntx__device_fail(d, rc, "a copy");
    if ((rc = ntx__packed_sum(f)))
        return rc;
    rc = d->ops->upload(d->compute, d->m.y, f->m.y, (uint64_t)f->n_live * d->hp->n_embd * sizeof(float));
    return rc ? ntx__device_fail(d, rc, "the FFN's sum") : 0;
}

static int by_device(struct ntx_device *d)
{
    static const struct ntx__packed_steps steps = {.all = all, .chosen = chosen};
    struct ntx_forward *f = d->f;
    int rc = ntx__packed_walk(f, &steps);
    if (rc || !ntx__watches_groups(f))
        return rc;
    if ((rc = bring_gates(d, 0, f->n_live)) || (rc = d->ops->stream_sync(d->compute)))
        return ntx__device_fail(d, rc, "hidden values");
    ntx__watch_groups(f);
    return 0;
}

int ntx__device_packed(struct ntx_forward *f, const struct ntx__run *r)
{
    (void)r;
    struct ntx_device *d = f->c.device;
    bool place = in_place(d);
    int rc = ntx_pack_has_gate(&layer(f)->pack) ? 0 : gates(d);
    if (!rc)
        rc = bring(d, place);
    if (rc)
        return rc;
    return place ? by_cpu(d) : by_device(d);
}
