/* SPDX-License-Identifier: Apache-2.0 */
/* files.c: files from elsewhere: a sidecar, which skip policies and FFNs then use, a base of logits, a list of
 * steps, and an importance matrix. The first byte picks the kind. An accepted file is complete and finite, and has
 * the sizes that it states. */
#include <errno.h>
#include <math.h>

#include "client/commands/logits_base.h"
#include "client/commands/steps.h"
#include "client/quantize/imatrix.h"
#include "predictor/sidecar.h"
#include "tests/fuzz/policy.h"

static const char model[NTX_DIGEST_TEXT] = "0123456789abcdef0123456789abcdef";

/* The model to which the FFN part of a sidecar must fit: 5 layers, 6 wide, 8 neurons in 4 groups. */
static struct ntx_pack_layer groups[5];
static const struct ntx_model *ffn_model(void)
{
    static struct ntx_model m = {.hp = {.n_layers = 5, .n_embd = 6, .n_ff = 8}, .pack = groups};
    for (int l = 0; l < 5; l++)
        groups[l] = (struct ntx_pack_layer){.group = 2, .n_groups = 4};
    return &m;
}

static void read_back(const char *path, const char *name, uint8_t first)
{
    static uint8_t seed[20000];
    FILE *f = fopen(path, "rb");
    MUST(f);
    seed[0] = first;
    size_t n = fread(seed + 1, 1, sizeof seed - 1, f);
    fclose(f);
    unlink(path);
    fuzz_seed(name, seed, n + 1);
}

static void seed_ffn(const char *path, const char *name, struct ntx_ffn_learned *f)
{
    struct ntx_sidecar s = {.n_layers = 5,
                            .n_embd = 6,
                            .n_hidden = 3,
                            .first = 2,
                            .last = 3,
                            .threshold = 0.5f,
                            .similarity = 0.9f,
                            .ffn = f};
    struct ntx_err err = {0};
    memcpy(s.model, model, sizeof s.model);
    MUST(!ntx_sidecar_alloc(&s) && !ntx_sidecar_write(&s, path, &err));
    ntx_sidecar_free(&s);
    read_back(path, name, 0);
}

static void seed_ffns(const char *path)
{
    uint32_t order[5 * 8];
    float limit[5] = {0};
    struct ntx_mlp_weights net[5];
    for (uint32_t i = 0; i < 40; i++)
        order[i] = 7 - i % 8;
    for (int l = 0; l < 5; l++) {
        net[l] = (struct ntx_mlp_weights){.n_in = 6, .n_hidden = 2, .n_out = 4};
        MUST(!ntx_mlp_weights_alloc(&net[l]));
    }
    seed_ffn(path, "order", &(struct ntx_ffn_learned){.n_layers = 5, .n_ff = 8, .order = order});
    seed_ffn(path, "nets", &(struct ntx_ffn_learned){.n_layers = 5, .n_ff = 8, .net = net, .limit = limit});
    for (int l = 0; l < 5; l++)
        ntx_mlp_weights_free(&net[l]);
}

static void seed_sidecar(const char *path)
{
    struct ntx_sidecar s = {.n_layers = 5,
                            .n_embd = 6,
                            .n_hidden = 3,
                            .first = 2,
                            .last = 3,
                            .n_tokens = 9,
                            .threshold = 0.5f,
                            .similarity = 0.9f};
    struct ntx_err err = {0};
    memcpy(s.model, model, sizeof s.model);
    MUST(!ntx_sidecar_alloc(&s) && !ntx_sidecar_write(&s, path, &err));
    ntx_sidecar_free(&s);
    read_back(path, "sidecar", 0);
}

static void seed_base(const char *path)
{
    const struct ntx_base_head h = {.n_vocab = 5, .ctx = 6, .windows = 2, .scored = 2, .model = "m"};
    const int32_t tokens[12] = {1, 2, 3, 4, 0, 1, 2, 3};
    const float logits[5] = {1, 2, 3, 4, 5};
    struct ntx_base_writer *w;
    struct ntx_base_row row;
    struct ntx_err err = {0};
    MUST(!ntx_base_create(path, &h, tokens, &w, &err) && !ntx_base_row_new(5, &row) &&
         !ntx_base_round(&row, logits, 5, 2));
    for (int i = 0; i < 4; i++)
        MUST(!ntx_base_write(w, &row, &err));
    MUST(!ntx_base_finish(w, 1, &err));
    free(row.q);
    read_back(path, "base", 1);
}

static void seed_steps(const char *path)
{
    struct ntx_steps s = {0};
    struct ntx_err err = {0};
    float values[] = {1, -2, 3.5f};
    FILE *f = fopen(path, "wb");
    for (uint32_t row = 0; row < 4; row += 2)
        for (uint32_t layer = 0; layer < 2; layer++) {
            Ntx__StepRow m = NTX__STEP_ROW__INIT;
            m.row = row;
            m.layer = layer;
            m.name = (char[]){"ADD"};
            m.buffer = (char[]){"H"};
            m.width = 3;
            m.values = (ProtobufCBinaryData){layer ? 0 : sizeof values, (uint8_t *)values};
            MUST(!ntx_steps_add(&s, &m, &err));
        }
    MUST(f && !ntx_steps_write(&s, f, path, &err) && !fclose(f));
    ntx_steps_free(&s);
    read_back(path, "steps", 2);
}

static void seed_imatrix(const char *path)
{
    struct ntx_imatrix *m = ntx_imatrix_new("some text", 3, 512);
    struct ntx_err err = {0};
    float sum2[6] = {1, 2, 3, 4, 5, 6}, count[2] = {7, 0};
    MUST(m &&
         !ntx_imatrix_add(m, &(struct ntx_importance){
                                 .name = "blk.0.attn_q.weight", .n = 6, .n_mat = 1, .sum2 = sum2, .count = count}));
    MUST(
        !ntx_imatrix_add(m, &(struct ntx_importance){
                                .name = "blk.0.ffn_up_exps.weight", .n = 3, .n_mat = 2, .sum2 = sum2, .count = count}));
    MUST(!ntx_imatrix_write(m, path, &err));
    ntx_imatrix_free(m);
    read_back(path, "imatrix", 4);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char path[512];
    (void)argc;
    (void)argv;
    if (!fuzz_seed_dir())
        return 0;
    snprintf(path, sizeof path, "%s/made", fuzz_seed_dir());
    seed_sidecar(path);
    seed_ffns(path);
    seed_base(path);
    seed_steps(path);
    seed_imatrix(path);
    exit(0);
}

static void use_policy(const char *text, int fd, const struct ntx_sidecar *s)
{
    const struct ntx_policy_sidecar from = {fd, s->model};
    const struct ntx_policy_shape shape = {s->n_layers, s->n_embd, &from};
    struct ntx_policy *p;
    struct ntx_err err = {0};
    if (ntx_policy_new(text, &shape, &p, &err)) {
        MUST(err.text[0]);
        return;
    }
    float *hidden = calloc(s->n_embd, sizeof *hidden);
    MUST(hidden);
    fuzz_decide(p, hidden, 0, s->n_layers);
    free(hidden);
    ntx_policy_free(p);
}

static void use_sidecar(int fd)
{
    struct ntx_sidecar s;
    struct ntx_err err = {0};
    if (ntx_sidecar_read(fd, NULL, &s, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return;
    }
    MUST(s.first >= 1 && s.first <= s.last && s.last < s.n_layers && strlen(s.model) == NTX_DIGEST_TEXT - 1);
    for (uint32_t i = 0; i < s.n_hidden * s.n_embd; i++)
        MUST(isfinite(s.w1[i]));
    use_policy("static", fd, &s);
    use_policy("predictive:threshold=0.1,max=2", fd, &s);
    ntx_sidecar_free(&s);
}

static void use_nets(int fd)
{
    struct ntx_ffn_nets *n;
    struct ntx_err err = {0};
    if (ntx_ffn_nets_read(fd, ffn_model(), model, &n, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return;
    }
    const float hidden[6] = {1, -2, 3};
    float logits[4];
    for (uint32_t l = 0; l < 5; l++) {
        void *scratch = malloc(ntx_mlp_scratch(n->mlp[l]));
        MUST(scratch && isfinite(n->limit[l]));
        ntx_mlp_logits(n->mlp[l], hidden, scratch, logits);
        free(scratch);
    }
    ntx_ffn_nets_free(n);
}

static void use_order(int fd)
{
    uint32_t *order, seen[5] = {0};
    struct ntx_err err = {0};
    if (ntx_ffn_order_read(fd, ffn_model(), model, &order, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return;
    }
    for (uint32_t i = 0; i < 40; i++)
        seen[i / 8] |= 1u << order[i];
    for (int l = 0; l < 5; l++)
        MUST(seen[l] == 0xff);
    free(order);
}

static void use_base(const char *path)
{
    struct ntx_base_reader *b;
    struct ntx_base_row row;
    struct ntx_err err = {0};
    if (ntx_base_open(path, &b, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return;
    }
    const struct ntx_base_head *h = ntx_base_head(b);
    MUST(!ntx_base_row_new(h->n_vocab, &row));
    for (uint64_t i = 0; i < (uint64_t)h->windows * h->ctx; i++)
        MUST(ntx_base_tokens(b)[i] >= 0 && (uint32_t)ntx_base_tokens(b)[i] < h->n_vocab);
    while (!ntx_base_read(b, &row, &err))
        MUST(isfinite(ntx_base_kl(&row, &row, h->n_vocab)) && row.top < h->n_vocab);
    free(row.q);
    ntx_base_close(b);
}

static void use_steps(const char *path)
{
    struct ntx_steps s;
    struct ntx_err err = {0};
    if (ntx_steps_read(path, &s, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return;
    }
    for (size_t i = 0; i < s.n; i++) {
        const struct ntx_step_line *t = &s.step[i];
        MUST(ntx_steps_find(&s, t->layer, t->step, t->buffer) == t && t->n_there <= t->n_rows &&
             memchr(t->name, 0, sizeof t->name));
        float sum = 0;
        for (uint32_t r = 0; r < t->n_rows; r++)
            for (uint32_t k = 0; t->row[r].values && k < t->width; k++)
                sum += t->row[r].values[k];
        volatile float seen = sum;
        (void)seen;
    }
    ntx_steps_free(&s);
}

static void use_imatrix(const char *path)
{
    static const char *const names[] = {"blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight", ""};
    struct ntx_imatrix *m;
    struct ntx_err err = {0};
    if (ntx_imatrix_read(path, &m, &err)) {
        MUST(err.code < 0 && err.text[0]);
        return;
    }
    MUST(ntx_imatrix_n(m) && strlen(ntx_imatrix_dataset(m)) < 512);
    for (int i = 0; i < 3; i++) {
        const struct ntx_importance *k = ntx_imatrix_find(m, names[i]);
        for (size_t j = 0; k && j < (size_t)k->n * k->n_mat; j++)
            MUST(isfinite(k->sum2[j]) && k->sum2[j] >= 0 && k->count[j / k->n] >= 0);
    }
    ntx_imatrix_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (!size)
        return 0;
    int fd = fuzz_file(data + 1, size - 1, path);
    if (data[0] & 1)
        use_base(path);
    else if (data[0] & 2)
        use_steps(path);
    else if (data[0] & 4)
        use_imatrix(path);
    else {
        use_sidecar(fd);
        use_nets(fd);
        use_order(fd);
    }
    close(fd);
    return 0;
}
