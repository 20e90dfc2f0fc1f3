/* SPDX-License-Identifier: Apache-2.0 */
/* Drafter files that use states of a model's layers: their drafts are llama.cpp's with the same files
 * (tests/golden/heads.json); unsuitable files are refused. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "computed/draft/drafter.h"
#include "computed/draft/drafter_file.h"
#include "tests/lib/temporary.h"
#include "tests/mkmodel/options.h"
#include "tests/unit/pass/rig.h"

enum { CTX = 128, DEEP = 3 };
#define SHARP 0.75 /* drafter.c */

struct file {
    char path[4096];
    int fd;
    struct ntx_gguf *gguf;
};

static void make(struct file *f, const char *options)
{
    struct mk_file file = {0};
    struct mk_options o = {.arch = "llama",
                           .type = "F32",
                           .name = "random",
                           .rope_scaling = "none",
                           .layers = 4,
                           .embd = 256,
                           .ff = 768,
                           .heads = 8,
                           .kv = 2,
                           .experts_used = 2,
                           .seed = 1,
                           .ctx = 512,
                           .rope_base = 10000,
                           .rope_factor = 1,
                           .logit_scale = 3,
                           .window = 32,
                           .version = 3};
    struct ntx_err err = {0};
    char *argv[64] = {"heads"}, *text = strdup(options), *save;
    int argc = 1;
    float *freqs = NULL;
    uint64_t bytes;
    for (char *word = strtok_r(text, " ", &save); word && argc < 63; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    CHECK(mk_options_take(&o, argc, argv) == argc);
    CHECK(!close(temporary_file(f->path, sizeof f->path, "heads")));
    CHECK_MSG(!mk_describe(&file, &o, &freqs, &err) && !mk_write(&file, f->path, 1, &bytes, &err), "%s", err.text);
    free(freqs);
    mk_file_free(&file);
    free(text);
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    CHECK_MSG(f->fd >= 0 && !ntx_gguf_open(&f->fd, 1, NULL, &f->gguf, &err), "%s", err.text);
}

static void drop(struct file *f)
{
    ntx_gguf_free(f->gguf);
    close(f->fd);
    unlink(f->path);
}

static const char *str(const json_t *j, const char *key) { return json_string_value(json_object_get(j, key)); }

static double number(const json_t *list, size_t i) { return json_number_value(json_array_get(list, i)); }

static uint32_t child(const struct ntx_draft_node *g, uint32_t n, uint32_t parent, int32_t token)
{
    for (uint32_t i = 1; i < n; i++)
        if (g[i].parent == parent && g[i].token == token)
            return i;
    return 0;
}

/* The likeliest tokens are the same, and their chances have the same ratios. The expected ones have three decimals. */
static uint32_t check_children(const char *name, const struct ntx_draft_node *g, uint32_t n, uint32_t parent,
                               const json_t *want)
{
    double first = number(json_array_get(want, 0), 1);
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = g[i].parent == parent && (!best || g[i].chance > g[best].chance) ? i : best;
    CHECK_MSG(best && g[best].token == (int32_t)number(json_array_get(want, 0), 0),
              "%s: below node %u token %d is the likeliest, not %g", name, parent, best ? g[best].token : -1,
              number(json_array_get(want, 0), 0));
    for (size_t k = 1; k < json_array_size(want); k++) {
        double p = number(json_array_get(want, k), 1);
        uint32_t c = child(g, n, parent, (int32_t)number(json_array_get(want, k), 0));
        if (p < 0.04) /* it may be too unlikely to be kept */
            continue;
        CHECK_MSG(c, "%s: node %u has no child %g", name, parent, number(json_array_get(want, k), 0));
        double got = SHARP * log((double)g[c].chance / (double)g[best].chance), there = log(p / first);
        CHECK_MSG(fabs(got - there) < 0.01 + 0.001 / p, "%s: token %d below node %u: %g, not %g", name, g[c].token,
                  parent, got, there);
    }
    return best;
}

/* All at once, or as if generated: each call's text is shown after the one before. */
static void check_calls(const json_t *e, struct ntx_drafter *d, struct rig *r, uint32_t n_taps, bool along)
{
    static struct ntx_draft_node g[NTX_DRAFTER_NODES];
    const json_t *calls = json_object_get(e, "calls");
    float *left = malloc((size_t)n_taps * r->n_embd * sizeof *left);
    struct ntx_kv_seq *kv = rig_seq(r, CTX);
    uint32_t shown = 0;
    for (size_t c = 0; c < json_array_size(calls); c++) {
        const json_t *call = json_array_get(calls, c), *drafted = json_object_get(call, "drafted"),
                     *ids = json_object_get(call, "tokens");
        int32_t tokens[CTX];
        struct ntx_drafter_text t = {.session = along ? 1 : c + 1,
                                     .tokens = tokens,
                                     .n = (uint32_t)json_array_size(ids),
                                     .sampling = {.temp = 0, .top_p = 1, .repeat_penalty = 1}};
        for (uint32_t i = 0; i < t.n; i++)
            tokens[i] = (int32_t)number(ids, i);
        t.n_prompt = along ? (uint32_t)json_array_size(json_object_get(json_array_get(calls, 0), "tokens")) : t.n;
        for (uint32_t pos = along ? shown : 0; pos + 1 < t.n; pos++) {
            struct ntx_row row = {.token = tokens[pos], .pos = pos, .kv = kv, .left = left};
            CHECK(!rig_run(r, &row, 1) && !ntx_drafter_saw(d, &t, pos, left, true));
        }
        shown = t.n - 1;
        int i = ntx_drafter_follow(d, &t), rc;
        CHECK(i >= 0);
        while ((rc = ntx_drafter_grow(d, (unsigned)i, 24)) > 0)
            ;
        CHECK_EQ(rc, 0);
        uint32_t n = ntx_drafter_tree(d, (unsigned)i, g), node = 0;
        for (uint32_t deep = 0; deep < DEEP; deep++)
            node = check_children(str(e, "name"), g, n, node, json_array_get(drafted, deep));
    }
    ntx_kv_seq_free(kv);
    free(left);
}

static void golden(const json_t *e)
{
    struct file model, head;
    struct rig r;
    struct ntx_drafter *d;
    struct ntx_drafter_needs needs;
    struct ntx_err err = {0};
    enum ntx_drafter_file_kind kind;
    make(&model, str(e, "model"));
    make(&head, str(e, "head"));
    CHECK_MSG(!ntx_drafter_file_look(head.fd, model.gguf, CTX, 2, &kind, &needs, &err) &&
                  kind == NTX_DRAFTER_FILE_STATES && needs.n_taps,
              "%s: %s", str(e, "name"), err.text);
    rig_open(&r, &(struct rig_options){.path = model.path, .n_taps = needs.n_taps, .taps = needs.tap, .ctx = CTX});
    for (int along = 0; along < 2; along++) {
        CHECK_MSG(!ntx_drafter_head_new(head.fd, model.gguf, &model.fd, 1, CTX, 2, &d, &err), "%s", err.text);
        check_calls(e, d, &r, needs.n_taps, along);
        ntx_drafter_free(d);
    }
    rig_close(&r);
    drop(&head);
    drop(&model);
}

#define MODEL "--layers 2 --embd 64 --heads 2 --kv 2 --ff 96 --seed 3 --experts-used 2"
#define HEAD  "--arch eagle3 --layers 1 --embd 64 --heads 2 --kv 2 --ff 96 --seed 4 "

#define BLOCK "--arch dflash --layers 2 --embd 64 --heads 2 --kv 2 --ff 96 --seed 4 "

/* Unsuitable files, with a text that says why. */
static void refused(void)
{
    static const struct {
        const char *head, *why;
    } of[] = {
        {HEAD "--taps 0,1,3", "the model has 2"},
        {HEAD "--taps 0,1,2 --state-width 96", "the model's have 64"},
        {HEAD "--taps 0,2", "goes by 2 layers' states"},
        {HEAD "--taps 0,2,1", "no ascending layers"},
        {HEAD "--taps 0,1,2 --vocab-size 600", "a drafter must have the very same"},
        {"--arch eagle3 --layers 1 --embd 96 --heads 2 --kv 2 --ff 96 --state-width 64 --bare --taps 0,1,2",
         "token_embd.weight' is 64 x 548 x 1 x 1, expected 96"},
        {BLOCK "--taps 0,1,3", "the model has 2"},
        {BLOCK "--taps 0,1,2 --embd 96 --heads 4", "the model's have 64"},
        {BLOCK "--taps 0,1 --vocab-size 600", "a drafter must have the very same"},
    };
    struct file model, head;
    make(&model, MODEL);
    for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
        struct ntx_drafter_needs needs;
        struct ntx_err err = {0};
        enum ntx_drafter_file_kind kind;
        make(&head, of[i].head);
        CHECK(ntx_drafter_file_look(head.fd, model.gguf, CTX, 1, &kind, &needs, &err) < 0);
        CHECK_MSG(strstr(err.text, of[i].why), "%s: %s", of[i].head, err.text);
        drop(&head);
    }
    struct ntx_model *m;
    struct ntx_err err = {0};
    make(&head, HEAD "--taps 0,1,2");
    CHECK(ntx_model_open(head.gguf, &m, &err) == -ENOTSUP &&
          strstr(err.text, "a drafter of the EAGLE-3 kind: name the model that it is for"));
    drop(&head);
    drop(&model);
}

/* A list of tokens that do not exist, which only its reader notices. */
static void no_such_token(void)
{
    struct file model, head;
    struct ntx_drafter *d;
    struct ntx_err err = {0};
    const int64_t beyond = 548;
    make(&model, MODEL);
    make(&head, HEAD "--taps 0,1,2 --draft-vocab 100");
    int fd = open(head.path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 &&
          pwrite(fd, &beyond, sizeof beyond, (off_t)ntx_gguf_tensor(head.gguf, "d2t")->offset + 800 - 8) ==
              sizeof beyond &&
          !close(fd));
    CHECK(ntx_drafter_head_new(head.fd, model.gguf, &model.fd, 1, CTX, 1, &d, &err) == -EINVAL);
    CHECK_MSG(strstr(err.text, "token 548, of 548"), "%s", err.text);
    drop(&head);
    drop(&model);
}

int main(void)
{
    char path[512];
    json_error_t why;
    snprintf(path, sizeof path, "%s/tests/golden/heads.json", getenv("NTX_SOURCE"));
    json_t *all = json_load_file(path, 0, &why), *cases = json_object_get(all, "cases");
    CHECK_MSG(json_array_size(cases), "%s: %s", path, why.text);
    for (size_t i = 0; i < json_array_size(cases); i++)
        golden(json_array_get(cases, i));
    json_decref(all);
    refused();
    no_such_token();
    return 0;
}
