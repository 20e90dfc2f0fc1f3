/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ffn_learned.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf_values.h"

#define VERSION 1u
#define WHAT    "the FFN sidecar"

struct part { /* a tensor of a network */
    const char *name;
    float **values;
    uint32_t width, rows;
};

enum { N_PARTS = 6 };

static void parts_of(struct ntx_mlp_weights *n, struct part p[N_PARTS])
{
    const struct part all[N_PARTS] = {{"mean", &n->mean, n->n_in, 0},        {"scale", &n->scale, n->n_in, 0},
                                      {"w1", &n->w1, n->n_in, n->n_hidden},  {"b1", &n->b1, n->n_hidden, 0},
                                      {"w2", &n->w2, n->n_hidden, n->n_out}, {"b2", &n->b2, n->n_out, 0}};
    memcpy(p, all, sizeof all);
}

int ntx_mlp_weights_alloc(struct ntx_mlp_weights *n)
{
    struct part p[N_PARTS];
    int rc = 0;
    parts_of(n, p);
    for (int i = 0; i < N_PARTS; i++)
        if (!(*p[i].values = calloc((size_t)p[i].width * (p[i].rows ? p[i].rows : 1), sizeof(float))))
            rc = -ENOMEM;
    if (rc)
        ntx_mlp_weights_free(n);
    return rc;
}

void ntx_mlp_weights_free(struct ntx_mlp_weights *n)
{
    struct part p[N_PARTS];
    parts_of(n, p);
    for (int i = 0; i < N_PARTS; i++) {
        free(*p[i].values);
        *p[i].values = NULL;
    }
}

void ntx_ffn_learned_free(struct ntx_ffn_learned *f)
{
    for (uint32_t l = 0; f->net && l < f->n_layers; l++)
        ntx_mlp_weights_free(&f->net[l]);
    free(f->net);
    free(f->limit);
    free(f->order);
    *f = (struct ntx_ffn_learned){0};
}

/* ---- writing */

static void put_nets(const struct ntx_ffn_learned *f, struct ntx_gguf_out *g)
{
    uint32_t groups[NTX_MAX_LAYERS];
    for (uint32_t l = 0; l < f->n_layers; l++)
        groups[l] = f->net[l].n_out;
    ntx_gguf_out_u32(g, "ntx.ffn.hidden", f->net[0].n_hidden);
    ntx_gguf_out_u32s(g, "ntx.ffn.groups", groups, f->n_layers);
    ntx_gguf_out_f32s(g, "ntx.ffn.limit", f->limit, f->n_layers);
    for (uint32_t l = 0; l < f->n_layers; l++) {
        struct part p[N_PARTS];
        parts_of(&f->net[l], p);
        for (int i = 0; i < N_PARTS; i++) {
            char name[32];
            snprintf(name, sizeof name, "ffn.%u.%s", l, p[i].name);
            ntx_gguf_out_tensor(g, name, *p[i].values, p[i].width, p[i].rows);
        }
    }
}

void ntx_ffn_learned_put(const struct ntx_ffn_learned *f, const char *model, struct ntx_gguf_out *g)
{
    ntx_gguf_out_u32(g, "ntx.ffn.version", VERSION);
    ntx_gguf_out_str(g, "ntx.ffn.model", model);
    if (f->net)
        put_nets(f, g);
    for (uint32_t l = 0; f->order && l < f->n_layers; l++) {
        char key[32];
        snprintf(key, sizeof key, "ntx.ffn.order.%u", l);
        ntx_gguf_out_u32s(g, key, f->order + (size_t)l * f->n_ff, f->n_ff);
    }
}

/* ---- reading */

static int open_sidecar(int fd, const char *model, struct ntx_gguf **g, struct ntx_err *err)
{
    uint32_t version;
    char digest[NTX_DIGEST_TEXT];
    int rc = ntx_gguf_open(&fd, 1, (const char *const[]){WHAT}, g, err);
    if (rc)
        return rc;
    if (!ntx_gguf_find(*g, "ntx.ffn.version"))
        rc = ntx_err_set(err, -ENOENT, "the sidecar holds nothing about FFNs: make it with ntx calibrate --ffn");
    else if (!(rc = ntx_gguf_take_u32(*g, WHAT, "ntx.ffn.version", VERSION, VERSION, &version, err)))
        rc = ntx_gguf_take_digest(*g, WHAT, "ntx.ffn.model", model, digest, err);
    if (rc)
        ntx_gguf_free(*g);
    return rc;
}

static int read_net(const struct ntx_gguf *g, int fd, uint32_t layer, struct ntx_mlp_weights *n, struct ntx_err *err)
{
    struct part p[N_PARTS];
    int rc = 0;
    parts_of(n, p);
    for (int i = 0; i < N_PARTS && !rc; i++) {
        char name[32];
        snprintf(name, sizeof name, "ffn.%u.%s", layer, p[i].name);
        rc = ntx_gguf_take_tensor(g, fd, WHAT, name, *p[i].values, p[i].width, p[i].rows, err);
    }
    return rc;
}

static int take_layer(const struct ntx_gguf *g, int fd, const struct ntx_model *m, uint32_t hidden, uint32_t layer,
                      struct ntx_ffn_nets *x, struct ntx_err *err)
{
    struct ntx_mlp_weights n = {.n_in = m->hp.n_embd, .n_hidden = hidden, .n_out = m->pack[layer].n_groups};
    int rc = ntx_mlp_weights_alloc(&n);
    if (!rc && (rc = read_net(g, fd, layer, &n, err))) {
        ntx_mlp_weights_free(&n);
        return rc;
    }
    if (!rc)
        rc = ntx_mlp_new(&n, NULL, &x->mlp[layer]);
    ntx_mlp_weights_free(&n);
    x->bytes += ntx_mlp_bytes(m->hp.n_embd, hidden, n.n_out);
    return rc ? ntx_err_set(err, rc, "no memory for the FFN predictor") : 0;
}

static int take_nets(const struct ntx_gguf *g, int fd, const struct ntx_model *m, struct ntx_ffn_nets *x,
                     struct ntx_err *err)
{
    uint32_t groups[NTX_MAX_LAYERS], hidden;
    int rc;
    if (!ntx_gguf_find(g, "ntx.ffn.groups"))
        return ntx_err_set(err, -ENOENT,
                           "the sidecar holds no FFN predictor: it was made of a model that is not packed");
    if ((rc = ntx_gguf_take_u32(g, WHAT, "ntx.ffn.hidden", 1, NTX_FFN_HIDDEN_MAX, &hidden, err)) ||
        (rc = ntx_gguf_take_u32s(g, WHAT, "ntx.ffn.groups", groups, m->hp.n_layers, err)) ||
        (rc = ntx_gguf_take_f32s(g, WHAT, "ntx.ffn.limit", x->limit, m->hp.n_layers, err)))
        return rc;
    for (uint32_t l = 0; l < m->hp.n_layers && !rc; l++)
        rc = groups[l] == m->pack[l].n_groups
                 ? take_layer(g, fd, m, hidden, l, x, err)
                 : ntx_err_set(err, -EINVAL, WHAT " is for %u groups in layer %u, which has %u", groups[l], l,
                               m->pack[l].n_groups);
    return rc;
}

int ntx_ffn_nets_read(int fd, const struct ntx_model *m, const char *model, struct ntx_ffn_nets **out,
                      struct ntx_err *err)
{
    struct ntx_gguf *g;
    int rc = open_sidecar(fd, model, &g, err);
    if (rc)
        return rc;
    struct ntx_ffn_nets *x = calloc(1, sizeof *x);
    if (x) {
        x->n_layers = m->hp.n_layers;
        x->mlp = calloc(x->n_layers, sizeof *x->mlp);
        x->limit = calloc(x->n_layers, sizeof *x->limit);
    }
    rc = x && x->mlp && x->limit ? take_nets(g, fd, m, x, err)
                                 : ntx_err_set(err, -ENOMEM, "no memory for the FFN predictor");
    ntx_gguf_free(g);
    if (rc) {
        ntx_ffn_nets_free(x);
        return rc;
    }
    *out = x;
    return 0;
}

void ntx_ffn_nets_free(struct ntx_ffn_nets *x)
{
    if (!x)
        return;
    for (uint32_t l = 0; x->mlp && l < x->n_layers; l++)
        ntx_mlp_free(x->mlp[l]);
    free(x->mlp);
    free(x->limit);
    free(x);
}

/* The list has every neuron exactly once. seen: [n_ff], zeros. */
static bool is_order(const uint32_t *order, uint32_t n, uint8_t *seen)
{
    for (uint32_t i = 0; i < n; i++) {
        if (order[i] >= n || seen[order[i]])
            return false;
        seen[order[i]] = 1;
    }
    return true;
}

static int take_order(const struct ntx_gguf *g, const struct ntx_model *m, uint32_t layer, uint32_t *order,
                      struct ntx_err *err)
{
    char key[32];
    snprintf(key, sizeof key, "ntx.ffn.order.%u", layer);
    int rc = ntx_gguf_take_u32s(g, WHAT, key, order, m->hp.n_ff, err);
    if (rc)
        return rc;
    uint8_t *seen = calloc(m->hp.n_ff, 1);
    if (!seen)
        rc = ntx_err_set(err, -ENOMEM, "no memory for an order of neurons");
    else if (!is_order(order, m->hp.n_ff, seen))
        rc = ntx_err_set(err, -EINVAL, WHAT ": '%s' is no order of %u neurons", key, m->hp.n_ff);
    free(seen);
    return rc;
}

int ntx_ffn_order_read(int fd, const struct ntx_model *m, const char *model, uint32_t **out, struct ntx_err *err)
{
    struct ntx_gguf *g;
    int rc = open_sidecar(fd, model, &g, err);
    if (rc)
        return rc;
    uint32_t *order = malloc((size_t)m->hp.n_layers * m->hp.n_ff * sizeof *order);
    if (!order)
        rc = ntx_err_set(err, -ENOMEM, "no memory for an order of neurons");
    for (uint32_t l = 0; l < m->hp.n_layers && !rc; l++)
        rc = take_order(g, m, l, order + (size_t)l * m->hp.n_ff, err);
    ntx_gguf_free(g);
    if (rc) {
        free(order);
        return rc;
    }
    *out = order;
    return 0;
}
