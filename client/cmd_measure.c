#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands.h"
#include "common/util.h"

static int parse_ids(const char *s, int32_t **ids, size_t *n, struct ntx_err *err)
{
    int32_t *v = malloc((strlen(s) / 2 + 1) * sizeof *v);
    size_t k = 0;
    for (const char *p = s; v;) {
        char *end;
        errno = 0;
        long x = strtol(p, &end, 10);
        if (end == p || errno || x < 0 || x > INT32_MAX || (*end && *end != ',')) {
            free(v);
            return ntx_err_set(err, -EINVAL, "--tokens: '%s' is no list of ids such as 1,5,9", s);
        }
        v[k++] = (int32_t)x;
        if (!*end)
            break;
        p = end + 1;
    }
    if (!v)
        return ntx_err_set(err, -ENOMEM, "no memory");
    *ids = v;
    *n = k;
    return 0;
}

static int receive_logits(struct ntx_client *c, uint64_t id, int fd, const char *out, struct ntx_err *err)
{
    for (bool done = false; !done;) {
        Ntx__Reply *r;
        int rc = ntx_client_next(c, id, -1, &r, err);
        if (rc)
            return rc;
        if (r->body_case == NTX__REPLY__BODY_LOGITS)
            rc = ntx_write_all(fd, r->logits->f32.data, r->logits->f32.len);
        done = r->body_case == NTX__REPLY__BODY_DONE;
        ntx__reply__free_unpacked(r, NULL);
        if (rc)
            return ntx_err_set(err, rc, "%s: cannot write: %s", out, strerror(-rc));
    }
    return 0;
}

int ntx_cmd_logits(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_client *c = NULL;
    Ntx__LogitsReq m = NTX__LOGITS_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    uint64_t id;
    int fd = -1;
    if (!o->tokens || !o->out)
        return fputs("ntx logits: --tokens IDS and -o FILE are needed; see ntx logits --help\n", stderr), NTX_EXIT_USAGE;
    int rc = parse_ids(o->tokens, &m.tokens, &m.n_tokens, &err);
    if (!rc && (fd = open(o->out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        rc = ntx_err_set(&err, -errno, "%s: %s", o->out, strerror(errno));
    if (!rc)
        rc = ntx_captive_model(o, &f, &c, &err);
    q.body_case = NTX__REQUEST__BODY_LOGITS;
    q.logits = &m;
    if (!rc)
        rc = ntx_client_send(c, &q, NULL, 0, &id, &err);
    if (!rc)
        rc = receive_logits(c, id, fd, o->out, &err);
    ntx_client_free(c);
    ntx_model_files_close(&f);
    free(m.tokens);
    if (fd >= 0)
        close(fd);
    return rc ? ntx_fail(&err) : 0;
}

/* ------------------------------------------------------------------------------------------------ bench */

struct figure {
    const char *name;
    double v[64];
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int bench_once(struct ntx_client *c, const struct ntx_options *o, int32_t *ids, json_t **stats, struct ntx_err *err)
{
    Ntx__Generate m = NTX__GENERATE__INIT;
    Ntx__Sampling s = NTX__SAMPLING__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    uint64_t id;
    m.tokens = ids;
    m.n_tokens = o->prompt_n;
    m.ignore_eos = true;
    m.max_tokens = o->n;
    m.raw = true;
    m.chat_template = (char *)"";
    m.sampling = &s;
    q.body_case = NTX__REQUEST__BODY_GENERATE;
    q.generate = &m;
    int rc = ntx_client_send(c, &q, NULL, 0, &id, err);
    for (bool done = false; !rc && !done;) {
        Ntx__Reply *r;
        if ((rc = ntx_client_next(c, id, -1, &r, err)))
            break;
        if ((done = r->body_case == NTX__REPLY__BODY_DONE))
            *stats = json_loads(r->done->stats_json, 0, NULL);
        ntx__reply__free_unpacked(r, NULL);
    }
    return rc;
}

static int print_bench(const struct ntx_options *o, struct figure *fig, unsigned n_fig, unsigned runs, const json_t *last, struct ntx_err *err)
{
    json_t *j = json_copy((json_t *)(uintptr_t)last);
    for (unsigned k = 0; k < n_fig; k++) {
        char name[64];
        qsort(fig[k].v, runs, sizeof *fig[k].v, by_value);
        double med = runs % 2 ? fig[k].v[runs / 2] : (fig[k].v[runs / 2 - 1] + fig[k].v[runs / 2]) / 2;
        json_object_set_new(j, fig[k].name, json_real(med));
        snprintf(name, sizeof name, "%s_min", fig[k].name);
        json_object_set_new(j, name, json_real(fig[k].v[0]));
        snprintf(name, sizeof name, "%s_max", fig[k].name);
        json_object_set_new(j, name, json_real(fig[k].v[runs - 1]));
        if (!o->json)
            printf("%-22s median %10.3f   min %10.3f   max %10.3f\n", fig[k].name, med, fig[k].v[0], fig[k].v[runs - 1]);
    }
    json_object_set_new(j, "runs", json_integer(runs));
    if (o->json) {
        json_dumpf(j, stdout, JSON_COMPACT);
        putchar('\n');
    }
    int rc = ntx_write_stats(o, j, err);
    json_decref(j);
    return rc;
}

int ntx_cmd_bench(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_client *c = NULL;
    struct figure fig[] = {{"prefill_tok_s", {0}}, {"decode_tok_s", {0}}, {"ttft_s", {0}}, {"io_gb_s", {0}}, {"bytes_read_per_token", {0}}};
    enum { N_FIG = sizeof fig / sizeof *fig };
    json_t *last = NULL;
    if (!o->n)
        o->n = 32;
    o->repeats = NTX_MIN(o->repeats, 64u);
    if (!o->ctx)
        o->ctx = o->prompt_n + o->n + 1;
    int rc = ntx_captive_model(o, &f, &c, &err);
    uint64_t n_vocab = 0;
    if (!rc)
        n_vocab = ntx_gguf_find(f.gguf, "tokenizer.ggml.tokens")->count;
    int32_t *ids = malloc(o->prompt_n * sizeof *ids);
    for (uint32_t i = 0; !rc && ids && i < o->prompt_n; i++) /* spread over the vocabulary, the same each time */
        ids[i] = (int32_t)((uint64_t)(i + 1) * 2654435761u % n_vocab);
    for (unsigned run = 0; !rc && run < o->repeats; run++) {
        json_decref(last);
        last = NULL;
        rc = bench_once(c, o, ids, &last, &err);
        for (unsigned k = 0; k < N_FIG && !rc; k++)
            fig[k].v[run] = json_number_value(json_object_get(last, fig[k].name));
    }
    if (!rc)
        rc = print_bench(o, fig, N_FIG, o->repeats, last, &err);
    json_decref(last);
    free(ids);
    ntx_client_free(c);
    ntx_model_files_close(&f);
    return rc ? ntx_fail(&err) : 0;
}
