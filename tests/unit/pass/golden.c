/* SPDX-License-Identifier: Apache-2.0 */
/* Logits, hidden states and greedy paths against other engines' numbers: golden.c made | shapes | reference.
 *   made       tests/golden/golden.json: models by the model maker, logits by llama.cpp
 *   shapes     tests/golden/shapes.json: the same for a dozen random shapes of each architecture, as
 *              tests/golden/shapes.py draws them
 *              (an emulator takes a part of each of these two; sanitizers, but for --long, a quarter of the shapes)
 *   reference  $NTX_DATA: models by llama.cpp's quantiser, logits by a float64 pass and by llama.cpp */
#include <jansson.h>
#include <math.h>

#include "model/quant.h"
#include "tests/lib/emulated.h"
#include "tests/mkmodel/options.h"
#include "tests/unit/pass/rig.h"

static json_t *load(const char *path)
{
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    CHECK_MSG(j, "%s: %s", path, e.text);
    return j;
}

static double real_at(const json_t *j, const char *a, const char *b)
{
    return json_number_value(json_object_get(json_object_get(j, a), b));
}

static const char *str(const json_t *j, const char *key) { return json_string_value(json_object_get(j, key)); }

static uint32_t ints(const json_t *list, int32_t **out)
{
    uint32_t n = (uint32_t)json_array_size(list);
    *out = malloc(n * sizeof **out + 1);
    for (uint32_t i = 0; i < n; i++)
        (*out)[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return n;
}

static float *floats(const char *dir, const char *name, size_t n)
{
    char path[512];
    float *v = malloc(n * sizeof *v);
    snprintf(path, sizeof path, "%s/golden/%s", dir, name);
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f && fread(v, sizeof *v, n, f) == n, "%s", path);
    fclose(f);
    return v;
}

static double noise_of(const json_t *e, const char *what, const char *const *keys)
{
    double most = 0;
    for (; *keys; keys++)
        if (json_object_get(e, *keys))
            most = fmax(most, real_at(e, *keys, what));
    return most;
}

/* The best token must agree where the reference's gap is clear of the noise (twice the largest difference allowed). */
static void check_best(const json_t *e, const float *logits, const int32_t *positions, uint32_t n, uint32_t n_vocab,
                       double noise)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = rig_argmax(logits + (size_t)positions[i] * n_vocab, n_vocab);
        long long want = json_integer_value(json_array_get(json_object_get(e, "argmax"), i));
        double gap = json_number_value(json_array_get(json_object_get(e, "gap"), i));
        CHECK_MSG(best == want || gap <= noise, "row %u: best token %u, expected %lld with a gap of %g", i, best, want,
                  gap);
    }
}

/* ---- made */

static const char *const made_noise[] = {"main_vs_ref", "batch_vs_main", "f16kv_vs_main", NULL};

static void parse_options(char *text, struct mk_options *o)
{
    char *argv[96] = {"golden"}, *save;
    int argc = 1;
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        CHECK(argc < 95);
        argv[argc++] = word;
    }
    CHECK_MSG(mk_options_take(o, argc, argv) == argc, "options that ntx-mkmodel does not know");
}

static void made_case(const json_t *e)
{
    struct rig r;
    char *options = strdup(str(e, "options"));
    struct rig_options o = {.make = rig_model(), .ctx = 256, .max_rows = 32};
    int32_t *ids, *positions, *indices;
    uint32_t n = ints(json_object_get(e, "ids"), &ids), n_pos = ints(json_object_get(e, "positions"), &positions);
    uint32_t n_idx = ints(json_object_get(e, "indices"), &indices);
    parse_options(options, &o.make);
    rig_open(&r, &o);
    CHECK_EQ(r.n_vocab, json_integer_value(json_object_get(e, "n_vocab")));
    struct ntx_kv_seq *kv = rig_seq(&r, n);
    float *logits = malloc((size_t)n * r.n_vocab * sizeof *logits);
    rig_feed(&r, kv, ids, n, 0, 32, logits);
    double sd = json_number_value(json_object_get(e, "logit_sd")), sum = 0;
    for (uint32_t i = 0; i < n_pos; i++)
        for (uint32_t k = 0; k < n_idx; k++) {
            double want = json_number_value(json_array_get(json_array_get(json_object_get(e, "logits"), i), k));
            sum += pow(logits[(size_t)positions[i] * r.n_vocab + (uint32_t)indices[k]] - want, 2);
        }
    double rms = sqrt(sum / (n_pos * n_idx)) / sd, most = 2 * noise_of(e, "rms_over_sd", made_noise) + 1e-4;
    printf("%-24s rms/sd %.3g, at most %.3g\n", str(e, "name"), rms, most);
    CHECK_MSG(rms <= most, "%s: rms/sd %g", str(e, "name"), rms);
    check_best(e, logits, positions, n_pos, r.n_vocab, 3 * most * sd);
    ntx_kv_seq_free(kv);
    rig_close(&r);
    free(logits), free(ids), free(positions), free(indices), free(options);
}

static void made(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/golden.json", getenv("NTX_SOURCE"));
    json_t *all = load(path), *cases = json_object_get(all, "cases");
    CHECK(json_array_size(cases) > 0);
    for (size_t i = 0; i < json_array_size(cases); i += emulated_step(3))
        if (json_object_get(json_array_get(cases, i),
                            "ids")) /* far texts' tokens are drawn by golden_test.py, which has those cases */
            made_case(json_array_get(cases, i));
    json_decref(all);
}

/* ---- shapes */

enum { SHAPE_TOKENS = 40, SHAPE_ROWS = 4, SHAPE_VALUES = 10 }; /* as in shapes.py */
static const uint32_t shape_rows[SHAPE_ROWS] = {1, 9, 24, 39};

static void count_ids(const struct rig *r, uint32_t seed, int32_t *ids)
{
    ids[0] = 1;
    for (uint32_t i = 1; i < SHAPE_TOKENS; i++)
        ids[i] = (int32_t)(3 + (i * 7919 + seed) % (r->n_vocab - 3));
}

static void shape_case(const json_t *e)
{
    struct rig r;
    char *options = strdup(str(e, "options"));
    struct rig_options o = {.make = rig_model(), .ctx = 256, .max_rows = 16};
    int32_t ids[SHAPE_TOKENS];
    parse_options(options, &o.make);
    rig_open(&r, &o);
    count_ids(&r, (uint32_t)o.make.seed, ids);
    struct ntx_kv_seq *kv = rig_seq(&r, SHAPE_TOKENS);
    float *logits = malloc((size_t)SHAPE_TOKENS * r.n_vocab * sizeof *logits);
    rig_feed(&r, kv, ids, SHAPE_TOKENS, 0, 16, logits);
    double sd = json_number_value(json_object_get(e, "sd")), most = json_number_value(json_object_get(e, "most"));
    for (uint32_t i = 0; i < SHAPE_ROWS; i++) {
        const json_t *row = json_array_get(json_object_get(e, "logits"), i);
        double sum = 0;
        CHECK_EQ(json_array_size(row), SHAPE_VALUES);
        for (uint32_t k = 0; k < SHAPE_VALUES; k++)
            sum += pow(logits[(size_t)shape_rows[i] * r.n_vocab + k * r.n_vocab / SHAPE_VALUES] -
                           json_number_value(json_array_get(row, k)),
                       2);
        double rms = sqrt(sum / SHAPE_VALUES) / sd;
        CHECK_MSG(rms <= most, "row %u of %s: rms/sd %g, at most %g", shape_rows[i], str(e, "options"), rms, most);
    }
    ntx_kv_seq_free(kv);
    rig_close(&r);
    free(logits), free(options);
}

/* Every n-th shape of an architecture is tried: shapes differ in numbers, and the same functions compute them. */
static unsigned shape_step(void) { return thinned_step(3, 6); }

/* Each architecture of the model maker has its dozen. */
static void shapes(void)
{
    const unsigned every = shape_step();
    char path[512];
    unsigned of[64] = {0}, n_archs = 0;
    snprintf(path, sizeof path, "%s/tests/golden/shapes.json", getenv("NTX_SOURCE"));
    json_t *all = load(path);
    const char *last = "";
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *e = json_array_get(all, i);
        size_t words = strcspn(str(e, "options") + 7, " ") + 7; /* "--arch NAME" */
        if (!*last || strncmp(last, str(e, "options"), words + 1))
            n_archs++;
        last = str(e, "options");
        CHECK(n_archs < 64);
        if (of[n_archs]++ % every == 0)
            shape_case(e);
    }
    for (unsigned i = 1; i <= n_archs; i++)
        CHECK_EQ(of[i], 12);
    printf("%zu shapes of %u architectures\n", json_array_size(all) / every, n_archs);
    CHECK_MSG(n_archs >= 32, "%u", n_archs);
    json_decref(all);
}

/* ---- reference */

static const char *const reference_noise[] = {"main_vs_ref64", "mainbatch_vs_base", "mainf16kv_vs_base", NULL};

struct hidden { /* the residual stream after each layer, and its distance from the reference */
    const float *want;
    uint32_t n_rows, n_embd;
    double worst;
};

static void compare_hidden(void *ctx, uint32_t layer, const float *got, uint32_t n_rows)
{
    struct hidden *h = ctx;
    const float *want = h->want + (size_t)layer * h->n_rows * h->n_embd;
    double d = 0, s = 0;
    CHECK_EQ(n_rows, h->n_rows);
    for (size_t i = 0; i < (size_t)n_rows * h->n_embd; i++) {
        d += pow(got[i] - want[i], 2);
        s += pow(want[i], 2);
    }
    h->worst = fmax(h->worst, sqrt(d / s));
}

static void check_hidden(struct rig *r, const char *dir, const json_t *e, const int32_t *ids, uint32_t n, double most)
{
    const json_t *h = json_object_get(e, "hidden");
    if (!h)
        return;
    float *want = floats(dir, str(h, "file"), (size_t)r->n_layers * n * r->n_embd);
    struct hidden state = {.want = want, .n_rows = n, .n_embd = r->n_embd};
    struct ntx_kv_seq *kv = rig_seq(r, n);
    ntx_forward_trace(r->f, compare_hidden, &state);
    rig_feed(r, kv, ids, n, 0, n, NULL);
    ntx_forward_trace(r->f, NULL, NULL);
    printf("%-24s hidden: worst layer %.3g\n", str(e, "model"), state.worst);
    CHECK(state.worst > 0 && state.worst <= most);
    ntx_kv_seq_free(kv);
    free(want);
}

/* A near-tie in a random router can change a quantised model's routing: for such models the median row is compared, and
 * no greedy path. */
static bool may_turn(const json_t *e)
{
    return !strncmp(str(e, "model"), "nanomoe", 7) && !strstr(str(e, "model"), "f16");
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Root mean square of the difference of n_pos rows from `want`: over all, or of the median row. */
static double difference(const float *logits, const int32_t *positions, const float *want, uint32_t n_pos,
                         uint32_t n_vocab, bool median)
{
    double row[512], all = 0;
    CHECK(n_pos <= 512);
    for (uint32_t i = 0; i < n_pos; i++) {
        row[i] = 0;
        for (uint32_t k = 0; k < n_vocab; k++)
            row[i] += pow(logits[(size_t)positions[i] * n_vocab + k] - want[(size_t)i * n_vocab + k], 2);
        all += row[i];
    }
    qsort(row, n_pos, sizeof *row, by_size);
    return median ? sqrt(row[n_pos / 2] / n_vocab) : sqrt(all / ((double)n_pos * n_vocab));
}

static void reference_case(const char *dir, const json_t *e)
{
    char path[512];
    struct rig r;
    struct rig_options o = {.path = path};
    int32_t *ids, *positions;
    uint32_t n = ints(json_object_get(e, "ids"), &ids), n_pos = ints(json_object_get(e, "positions"), &positions);
    snprintf(path, sizeof path, "%s/models/%s", dir, str(e, "model"));
    rig_open(&r, &o);
    struct ntx_kv_seq *kv = rig_seq(&r, n);
    float *logits = malloc((size_t)n * r.n_vocab * sizeof *logits);
    const char *name = str(e, "ref64") ? str(e, "ref64") : str(e, "main");
    float *want = floats(dir, name, (size_t)n_pos * r.n_vocab);
    rig_feed(&r, kv, ids, n, 0, 64, logits);
    double sd = json_number_value(json_object_get(e, "logit_sd")),
           most = 2 * noise_of(e, "rms_over_sd", reference_noise) + 1e-4;
    double rms = difference(logits, positions, want, n_pos, r.n_vocab, may_turn(e)) / sd;
    printf("%-24s %s rms/sd %.3g, at most %.3g\n", str(e, "model"), str(e, "seq"), rms, most);
    CHECK_MSG(rms <= most, "%s: rms/sd %g", str(e, "model"), rms);
    if (!may_turn(e))
        check_best(e, logits, positions, n_pos, r.n_vocab, 3 * most * sd);
    check_hidden(&r, dir, e, ids, n, 2e-3);
    ntx_kv_seq_free(kv);
    rig_close(&r);
    free(logits), free(want), free(ids), free(positions);
}

/* Greedy tokens agree up to the first near-tie. */
static void greedy_case(const char *dir, const json_t *e, double noise)
{
    char path[512];
    struct rig r;
    struct rig_options o = {.path = path};
    int32_t *ids, *want;
    uint32_t n = ints(json_object_get(e, "ids"), &ids), n_want = ints(json_object_get(e, "main"), &want), i = 0;
    snprintf(path, sizeof path, "%s/models/%s", dir, str(e, "model"));
    rig_open(&r, &o);
    struct ntx_kv_seq *kv = rig_seq(&r, n + n_want);
    float *logits = malloc((size_t)n * r.n_vocab * sizeof *logits);
    rig_feed(&r, kv, ids, n, 0, 64, logits);
    int32_t token = (int32_t)rig_argmax(logits + (size_t)(n - 1) * r.n_vocab, r.n_vocab);
    for (; i < n_want && token == want[i]; i++) {
        rig_feed(&r, kv, &token, 1, n + i, 1, logits);
        token = (int32_t)rig_argmax(logits, r.n_vocab);
    }
    double gap = i < n_want ? json_number_value(json_array_get(json_object_get(e, "gap"), i)) : 0;
    printf("%-24s %u of %u greedy tokens", str(e, "model"), i, n_want);
    printf(i < n_want ? ", then a gap of %.3g\n" : "\n", gap);
    CHECK_MSG(i == n_want || gap <= 2 * noise, "token %u is %d, expected %d with a gap of %g", i, token, want[i], gap);
    ntx_kv_seq_free(kv);
    rig_close(&r);
    free(logits), free(ids), free(want);
}

static void reference(void)
{
    const char *dir = getenv("NTX_DATA");
    char path[512];
    snprintf(path, sizeof path, "%s/golden/logits.json", dir ? dir : "");
    FILE *f = fopen(path, "r");
    if (!f)
        SKIP("no reference data at %s", path);
    fclose(f);
    json_t *all = load(path), *greedy;
    snprintf(path, sizeof path, "%s/golden/greedy.json", dir);
    greedy = load(path);
    CHECK(json_array_size(all) > 0 && json_array_size(greedy) > 0);
    for (size_t i = 0; i < json_array_size(all); i++)
        reference_case(dir, json_array_get(all, i));
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        const json_t *g = json_array_get(greedy, i);
        double noise = 0;
        for (size_t k = 0; k < json_array_size(all); k++)
            if (!strcmp(str(json_array_get(all, k), "model"), str(g, "model")))
                noise = fmax(noise, noise_of(json_array_get(all, k), "max_abs", reference_noise));
        if (!may_turn(g))
            greedy_case(dir, g, noise);
    }
    json_decref(all);
    json_decref(greedy);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (!strcmp(argv[1], "made"))
        made();
    else if (!strcmp(argv[1], "shapes"))
        shapes();
    else
        reference();
    return 0;
}
