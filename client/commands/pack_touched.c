/* SPDX-License-Identifier: Apache-2.0 */
/* Measures, before `ntx pack` writes, which groups of neurons a token would touch: the model runs over a text as it is,
 * and its hidden values are put into the groups that the packed file would have. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/commands/calibrate.h"
#include "client/commands/pack.h"
#include "common/util.h"
#include "model/quant.h"

#define TOKENS 64 /* of the text; the share of groups hardly differs from token to token */

/* Used without --text. */
static const char usual_text[] =
    "A library in a small town opened again this spring after two years of repairs. The roof had leaked for so long "
    "that the staff kept buckets between the shelves, and each winter a few hundred books were thrown away. The new "
    "roof cost more than the building was worth, but the town voted for it all the same. \"We come here to be warm,\" "
    "said one of the readers, \"and then we happen to learn something.\" The following program counts its visitors: "
    "for (i = 0; i < n; i++) { if (door[i].open) total += 1; }";

struct touching {
    const struct ntx_ffn_capture *f;
    const struct ntx_pack_layer *pack;
    const uint32_t *order; /* ntx_pack_options.order */
    struct ntx_pack_touched *t;
    uint32_t first, layers;
    float *sorted; /* [n_ff] */
    uint8_t *used; /* [groups] */
    double groups; /* over tokens and layers */
};

/* Groups with a neuron whose energy is above the level, or at it if the level is not 0. */
static uint32_t groups_above(const struct touching *k, uint32_t layer, const float *energy, float level)
{
    const struct ntx_pack_layer *p = &k->pack[layer];
    uint32_t n = 0;
    memset(k->used, 0, p->n_groups);
    for (uint32_t i = 0; i < k->f->n_ff; i++) {
        const float e = energy[k->order ? k->order[(size_t)layer * k->f->n_ff + i] : i];
        k->used[i / p->group] |= e > level || (level > 0 && e >= level);
    }
    for (uint32_t g = 0; g < p->n_groups; g++)
        n += k->used[g];
    return n;
}

static int add_touched(void *ctx, const Ntx__StatesRow *r, struct ntx_err *err)
{
    struct touching *k = ctx;
    const size_t width = k->f->n_ff * sizeof(float);
    if (r->ffn_energy.len != k->layers * width)
        return ntx_err_set(err, -EPROTO, "the daemon sent FFNs of %zu bytes, expected %zu", r->ffn_energy.len,
                           k->layers * width);
    for (uint32_t i = 0; i < k->layers && r->row; i++) { /* the first token's state is unlike all others */
        const uint32_t layer = k->first + i;
        memcpy(k->sorted, r->ffn_energy.data + i * width, width);
        k->groups += k->pack[layer].n_groups;
        for (unsigned m = 0; m < NTX_PACK_MODES; m++) {
            float level = 0;
            const float *energy = (const float *)(const void *)(r->ffn_energy.data + i * width);
            if (ntx_pack_modes[m].share > 0)
                level = ntx_learn_level(k->sorted, k->f->n_ff, ntx_pack_modes[m].share);
            k->t->groups[m] += groups_above(k, layer, energy, level);
        }
    }
    return 0;
}

static int run_text(struct touching *k, struct ntx_options *o, struct ntx_err *err)
{
    struct ntx_model_files f = {0}; /* opened anew: the daemons change how a description reads */
    struct ntx_client *c = NULL;
    int32_t *ids = NULL, bos = -1;
    char path[32];
    int n = 0, fd = o->text ? -1 : memfd_create("text", MFD_CLOEXEC), rc = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!o->text && (fd < 0 || (rc = ntx_write_all(fd, usual_text, sizeof usual_text - 1))))
        rc = ntx_err_set(err, -EIO, "no memory for a text");
    if (!rc)
        rc = ntx_model_files_load(o, &f, err);
    if (!rc)
        rc = ntx_tokens_of_file(&f, o->text ? o->text : path, &ids, &n, &bos, err);
    if (fd >= 0)
        close(fd);
    const uint32_t at_once = ntx_calibrate_ffn_at_once(k->f, TOKENS);
    o->load.ctx = o->limit = TOKENS;
    o->load.capture = true;
    o->load.capture_ffns = at_once;
    if (!rc)
        rc = ntx_captive_start(o, &f, &c, err);
    for (k->first = 0; k->first < k->f->n_layers && !rc; k->first += k->layers) {
        k->layers = NTX_MIN(at_once, k->f->n_layers - k->first);
        const struct ntx_calibrate_text text = {.client = c,
                                                .ids = ids,
                                                .n_ids = n,
                                                .bos = bos,
                                                .ffn_first = k->first,
                                                .ffn_layers = k->layers,
                                                .what = "groups that a token touches: ",
                                                .row = add_touched,
                                                .ctx = k};
        rc = ntx_calibrate_text(&text, o, err);
    }
    ntx_client_free(c);
    ntx_model_files_close(&f);
    free(ids);
    return rc;
}

static double ffn_bytes(const struct ntx_model *m, uint32_t l)
{
    static const enum ntx_tensor ffn[] = {NTX_T_gate, NTX_T_up, NTX_T_down};
    double bytes = 0;
    for (size_t i = 0; i < sizeof ffn / sizeof *ffn; i++)
        bytes += (double)ntx_gguf_tensor_at(m->gguf, m->layers[l].tensor[ffn[i]])->bytes;
    return bytes;
}

/* Shares of groups become shares of bytes: a gate matrix outside of the groups is read whole. */
static void count_bytes(const struct ntx_model *m, const struct ntx_pack_layer *pack, struct ntx_pack_touched *t)
{
    double groups = 0, outside = 0, all = 0;
    for (uint32_t l = 0; l < m->hp.n_layers; l++) {
        groups += (double)pack[l].n_groups * pack[l].group_bytes;
        outside += ntx_pack_has_gate(&pack[l])
                       ? 0
                       : (double)ntx_gguf_tensor_at(m->gguf, m->layers[l].tensor[NTX_T_gate])->bytes;
        all += ffn_bytes(m, l);
    }
    for (unsigned i = 0; i < NTX_PACK_MODES; i++)
        t->bytes[i] = (outside + t->groups[i] * groups) / all;
}

int ntx__pack_touched(const struct ntx_options *o, const struct ntx_model *m, const struct ntx_pack_layer *pack,
                      const uint32_t *order, struct ntx_pack_touched *t, struct ntx_err *err)
{
    struct ntx_options run = *o;
    struct ntx_pack_touched sums = {.groups = {0}};
    struct ntx_ffn_capture ffn = {.n_layers = m->hp.n_layers, .n_embd = m->hp.n_embd, .n_ff = m->hp.n_ff};
    struct touching k = {.f = &ffn, .pack = pack, .order = order, .t = &sums};
    uint32_t most = 0;
    for (uint32_t l = 0; l < m->hp.n_layers; l++) {
        ffn.units[l] = m->hp.n_ff;
        most = NTX_MAX(most, pack[l].n_groups);
    }
    k.sorted = malloc(m->hp.n_ff * sizeof *k.sorted);
    k.used = malloc(most);
    int rc = k.sorted && k.used ? run_text(&k, &run, err) : ntx_err_set(err, -ENOMEM, "no memory");
    free(k.sorted);
    free(k.used);
    ntx_clear_progress();
    if (!rc && !(k.groups > 0))
        rc = ntx_err_set(err, -EINVAL, "--text: a text of some words is needed");
    if (rc)
        return rc;
    for (unsigned i = 0; i < NTX_PACK_MODES; i++)
        sums.groups[i] /= k.groups;
    count_bytes(m, pack, &sums);
    *t = sums;
    return 0;
}
