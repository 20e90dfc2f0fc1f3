/* SPDX-License-Identifier: Apache-2.0 */
/* hw_json.c: the profile as a file. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/plan/hw.h"
#include "model/quant.h"

#define GIB        1073741824.0
#define RATE_MAX   1e6 /* GB/s; nothing is that fast */
#define GFLOPS_MAX 1e9

/* the first error stops all further reading */
struct reader {
    struct ntx_err *err;
    int rc;
};

static void set_error(struct reader *r, const char *what, const char *expected)
{
    if (!r->rc)
        r->rc = ntx_err_set(r->err, -EINVAL, "hardware profile: \"%s\" is wrong: expected %s", what, expected);
}

static double get_number(struct reader *r, const json_t *o, const char *key, double max)
{
    const json_t *v = json_object_get(o, key);
    double x = json_number_value(v);
    char get_text[64];
    if (!v)
        return 0;
    snprintf(get_text, sizeof get_text, "a number from 0 to %g", max);
    if (!json_is_number(v) || !isfinite(x) || x < 0 || x > max)
        return set_error(r, key, get_text), 0;
    return x;
}

static void get_text(struct reader *r, const json_t *o, const char *key, char *to, size_t n)
{
    const json_t *v = json_object_get(o, key);
    if (v && !json_is_string(v))
        set_error(r, key, "a text");
    else if (v)
        snprintf(to, n, "%s", json_string_value(v));
}

static const json_t *get_object(struct reader *r, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (v && !json_is_object(v))
        set_error(r, key, "an object");
    return v;
}

static const json_t *get_list(struct reader *r, const json_t *o, const char *key, size_t max)
{
    const json_t *v = json_object_get(o, key);
    if (v && (!json_is_array(v) || json_array_size(v) > max))
        return set_error(r, key, "a list of moderate length"), NULL;
    return v;
}

/* Returns how many there are. */
static unsigned read_rates(struct reader *r, const json_t *d, const char *key, struct ntx_hw_read *to, size_t max)
{
    const json_t *rates = get_list(r, d, key, max);
    unsigned n = 0;
    size_t i;
    json_t *v;
    json_array_foreach(rates, i, v) {
        struct ntx_hw_read e = {(uint32_t)get_number(r, v, "bytes", 1e9), get_number(r, v, "gb_s", RATE_MAX) * 1e9};
        if (!e.bytes || e.bps <= 0 || (n && e.bytes <= to[n - 1].bytes))
            return set_error(r, key, "increasing \"bytes\", each with its \"gb_s\""), 0;
        to[n++] = e;
    }
    return n;
}

static void read_drive(struct reader *r, const json_t *d, struct ntx_hw *hw)
{
    hw->read_s = get_number(r, d, "read_us", 1e9) / 1e6;
    hw->in_flight = (uint64_t)get_number(r, d, "in_flight", 1e12);
    hw->n_reads = read_rates(r, d, "reads", hw->reads, NTX_HW_READS);
    hw->n_streams = read_rates(r, d, "streams", hw->streams, NTX_HW_STREAMS);
}

static bool type_by_name(const char *name, uint32_t *type)
{
    if (!strcmp(name, "*"))
        return *type = NTX_HW_ANY, true;
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_type_info(t) && !strcmp(ntx_type_info(t)->name, name))
            return *type = t, true;
    return false;
}

static void read_kernels(struct reader *r, const json_t *k, struct ntx_hw *hw)
{
    size_t i;
    json_t *v;
    json_array_foreach(k, i, v) {
        struct ntx_hw_kernel e = {.rows = (uint32_t)get_number(r, v, "rows", 1e6),
                                  .bps = get_number(r, v, "gb_s", RATE_MAX) * 1e9,
                                  .bps_1 = get_number(r, v, "gb_s_1", RATE_MAX) * 1e9,
                                  .flops = get_number(r, v, "gflops", GFLOPS_MAX) * 1e9,
                                  .dot_s = get_number(r, v, "dot_ns", 1e9) / 1e9,
                                  .interleaved = json_is_true(json_object_get(v, "interleaved"))};
        char name[16] = "";
        get_text(r, v, "type", name, sizeof name);
        if (!type_by_name(name, &e.type) || !e.rows || (e.bps <= 0 && e.flops <= 0))
            return set_error(r, "kernels",
                             "entries of a known \"type\" (or \"*\"), \"rows\", and \"gb_s\" or \"gflops\"");
        hw->kernels[hw->n_kernels++] = e;
    }
}

static void read_gpu(struct reader *r, const json_t *g, struct ntx_hw *hw)
{
    if (!g || json_is_null(g))
        return;
    get_text(r, g, "name", hw->gpu.name, sizeof hw->gpu.name);
    hw->gpu.bytes = (uint64_t)(get_number(r, g, "gib", 1e6) * GIB);
    hw->gpu.bps = get_number(r, g, "gb_s", RATE_MAX) * 1e9;
    hw->gpu.flops = get_number(r, g, "gflops", GFLOPS_MAX) * 1e9;
    hw->gpu.int8_ops = get_number(r, g, "int8_gops", GFLOPS_MAX) * 1e9;
    hw->gpu.h2d_bps = get_number(r, g, "h2d_gb_s", RATE_MAX) * 1e9;
    hw->gpu.unified = json_is_true(json_object_get(g, "unified"));
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_type_info(t))
            hw->gpu.type_bps[t] = get_number(r, get_object(r, g, "rates"), ntx_type_info(t)->name, RATE_MAX) * 1e9;
}

static const char *const attend_types[NTX_N_KV] = {"f16", "q8_0", "q4_0"}, *const attend_rows[2] = {"one", "rows"};

static void read_attend(struct reader *r, const json_t *pass, struct ntx_hw *hw)
{
    const json_t *all = get_object(r, pass, "attend");
    hw->attend[NTX_KV_F16][1].flops = get_number(r, pass, "attend_gflops", GFLOPS_MAX) * 1e9;
    for (int t = 0; t < NTX_N_KV; t++)
        for (int many = 0; many < 2; many++) {
            const json_t *j = get_object(r, get_object(r, all, attend_types[t]), attend_rows[many]);
            if (j)
                hw->attend[t][many] = (struct ntx_hw_attend){get_number(r, j, "gflops", GFLOPS_MAX) * 1e9,
                                                             get_number(r, j, "score_ns", 1e9) / 1e9};
        }
}

static void read_prompts(struct reader *r, const json_t *prompts, struct ntx_hw *hw)
{
    size_t i;
    json_t *v;
    json_array_foreach(prompts, i, v) {
        struct ntx_hw_prompt e = {(uint32_t)get_number(r, v, "embd", 1e6), get_number(r, v, "times", 100)};
        if (!e.width || e.times <= 0 || (i && e.width <= hw->prompts[i - 1].width))
            return set_error(r, "prompts", "increasing \"embd\", each with its \"times\"");
        hw->prompts[hw->n_prompts++] = e;
    }
}

static void read_profile(struct reader *r, const json_t *j, struct ntx_hw *hw)
{
    const json_t *cpu = get_object(r, j, "cpu"), *ram = get_object(r, j, "ram"), *pass = get_object(r, j, "pass");
    get_text(r, j, "name", hw->name, sizeof hw->name);
    get_text(r, j, "source", hw->source, sizeof hw->source);
    get_text(r, cpu, "model", hw->cpu, sizeof hw->cpu);
    get_text(r, cpu, "kernel", hw->kernel, sizeof hw->kernel);
    hw->threads = (uint32_t)get_number(r, cpu, "threads", 65536);
    hw->ram_bytes = (uint64_t)(get_number(r, ram, "gib", 1e6) * GIB);
    hw->ram_bps_1 = get_number(r, ram, "gb_s_1", RATE_MAX) * 1e9;
    hw->ram_bps = get_number(r, ram, "gb_s", RATE_MAX) * 1e9;
    read_drive(r, get_object(r, j, "drive"), hw);
    read_kernels(r, get_list(r, j, "kernels", NTX_HW_KERNELS), hw);
    read_gpu(r, json_object_get(j, "gpu"), hw);
    hw->layer_s = get_number(r, pass, "layer_us", 1e9) / 1e6;
    hw->token_s = get_number(r, pass, "token_us", 1e9) / 1e6;
    read_attend(r, pass, hw);
    hw->value_s = get_number(r, pass, "value_ns", 1e9) / 1e9;
    hw->dot_s = get_number(r, pass, "dot_ns", 1e9) / 1e9;
    read_prompts(r, get_list(r, pass, "prompts", NTX_HW_PROMPTS), hw);
    hw->load = get_number(r, j, "load", 1e6);
}

int ntx_hw_parse(const char *json, struct ntx_hw *out, struct ntx_err *err)
{
    json_error_t why;
    json_t *j = json_loads(json, JSON_REJECT_DUPLICATES, &why);
    struct reader r = {.err = err};
    struct ntx_hw *hw = calloc(1, sizeof *hw);
    if (!hw)
        r.rc = ntx_err_set(err, -ENOMEM, "no memory for a hardware profile");
    else if (!j)
        r.rc = ntx_err_set(err, -EINVAL, "hardware profile: line %d: %s", why.line, why.text);
    else if (!json_is_object(j) || json_integer_value(json_object_get(j, "ntx_profile")) != 1)
        set_error(&r, "ntx_profile", "an object with \"ntx_profile\": 1; make one with `ntx doctor`");
    else
        read_profile(&r, j, hw);
    json_decref(j);
    if (!r.rc)
        *out = *hw;
    free(hw);
    return r.rc;
}

int ntx_hw_load(const char *path, struct ntx_hw *out, struct ntx_err *err)
{
    char buf[65536];
    FILE *f = fopen(path, "re");
    if (!f)
        return ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
    size_t n = fread(buf, 1, sizeof buf - 1, f);
    bool failed = ferror(f), more = !feof(f);
    fclose(f);
    if (failed || more)
        return ntx_err_set(err, failed ? -EIO : -EFBIG, "%s: %s", path,
                           failed ? "cannot be read" : "too long for a hardware profile");
    buf[n] = 0;
    int rc = ntx_hw_parse(buf, out, err);
    if (rc)
        ntx_err_prefix(err, "%s", path);
    return rc;
}

/* ---- writing */

static double rounded(double x) /* four digits are more than any measurement has */
{
    char s[32];
    snprintf(s, sizeof s, "%.4g", x);
    return atof(s);
}

static void put_rate(json_t *o, const char *key, double x)
{
    if (x > 0)
        json_object_set_new(o, key, json_real(rounded(x)));
}

static json_t *rates_json(const struct ntx_hw_read *rates, unsigned n)
{
    json_t *a = json_array();
    for (unsigned i = 0; i < n; i++) {
        json_t *e = json_pack("{s:I}", "bytes", (json_int_t)rates[i].bytes);
        put_rate(e, "gb_s", rates[i].bps / 1e9);
        json_array_append_new(a, e);
    }
    return a;
}

static json_t *drive_json(const struct ntx_hw *hw)
{
    json_t *d = json_object();
    json_object_set_new(d, "reads", rates_json(hw->reads, hw->n_reads));
    if (hw->n_streams)
        json_object_set_new(d, "streams", rates_json(hw->streams, hw->n_streams));
    put_rate(d, "read_us", hw->read_s * 1e6);
    json_object_set_new(d, "in_flight", json_integer((json_int_t)hw->in_flight));
    return d;
}

static json_t *kernels_json(const struct ntx_hw *hw)
{
    json_t *a = json_array();
    for (unsigned i = 0; i < hw->n_kernels; i++) {
        const struct ntx_hw_kernel *k = &hw->kernels[i];
        json_t *e = json_pack("{s:s, s:I}", "type", k->type == NTX_HW_ANY ? "*" : ntx_type_info(k->type)->name, "rows",
                              (json_int_t)k->rows);
        put_rate(e, "gb_s_1", k->bps_1 / 1e9);
        put_rate(e, "dot_ns", k->dot_s * 1e9);
        put_rate(e, "gb_s", k->bps / 1e9);
        put_rate(e, "gflops", k->flops / 1e9);
        if (k->interleaved)
            json_object_set_new(e, "interleaved", json_true());
        json_array_append_new(a, e);
    }
    return a;
}

static json_t *gpu_json(const struct ntx_hw *hw)
{
    json_t *g = json_pack("{s:s}", "name", hw->gpu.name);
    put_rate(g, "gib", (double)hw->gpu.bytes / GIB);
    put_rate(g, "gb_s", hw->gpu.bps / 1e9);
    put_rate(g, "gflops", hw->gpu.flops / 1e9);
    put_rate(g, "int8_gops", hw->gpu.int8_ops / 1e9);
    put_rate(g, "h2d_gb_s", hw->gpu.h2d_bps / 1e9);
    if (hw->gpu.unified)
        json_object_set_new(g, "unified", json_true());
    json_t *rates = json_object();
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_type_info(t))
            put_rate(rates, ntx_type_info(t)->name, hw->gpu.type_bps[t] / 1e9);
    if (json_object_size(rates))
        json_object_set(g, "rates", rates);
    json_decref(rates);
    return g;
}

static json_t *attend_json(const struct ntx_hw *hw)
{
    json_t *all = json_object();
    for (int t = 0; t < NTX_N_KV; t++) {
        json_t *type = json_object();
        for (int many = 0; many < 2; many++) {
            json_t *j = json_object();
            put_rate(j, "gflops", hw->attend[t][many].flops / 1e9);
            put_rate(j, "score_ns", hw->attend[t][many].score_s * 1e9);
            json_object_set_new(type, attend_rows[many], j);
        }
        json_object_set_new(all, attend_types[t], type);
    }
    return all;
}

static json_t *prompts_json(const struct ntx_hw *hw)
{
    json_t *a = json_array();
    for (unsigned i = 0; i < hw->n_prompts; i++)
        json_array_append_new(
            a, json_pack("{s:i, s:f}", "embd", (int)hw->prompts[i].width, "times", rounded(hw->prompts[i].times)));
    return a;
}

char *ntx_hw_dump(const struct ntx_hw *hw, const char *const *findings, unsigned n_findings)
{
    json_t *j = json_pack("{s:i, s:s, s:s}", "ntx_profile", 1, "name", hw->name, "source", hw->source),
           *ram = json_object(), *pass = json_object(), *said = json_array();
    time_t now = time(NULL);
    char date[32];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    json_object_set_new(j, "date", json_string(date));
    put_rate(j, "load", hw->load);
    json_object_set_new(
        j, "cpu", json_pack("{s:s, s:i, s:s}", "model", hw->cpu, "threads", (int)hw->threads, "kernel", hw->kernel));
    put_rate(ram, "gib", (double)hw->ram_bytes / GIB);
    put_rate(ram, "gb_s_1", hw->ram_bps_1 / 1e9);
    put_rate(ram, "gb_s", hw->ram_bps / 1e9);
    put_rate(pass, "layer_us", hw->layer_s * 1e6);
    put_rate(pass, "token_us", hw->token_s * 1e6);
    json_object_set_new(pass, "attend", attend_json(hw));
    put_rate(pass, "value_ns", hw->value_s * 1e9);
    put_rate(pass, "dot_ns", hw->dot_s * 1e9);
    if (hw->n_prompts)
        json_object_set_new(pass, "prompts", prompts_json(hw));
    for (unsigned i = 0; i < n_findings; i++)
        json_array_append_new(said, json_string(findings[i]));
    json_object_set_new(j, "ram", ram);
    json_object_set_new(j, "drive", drive_json(hw));
    json_object_set_new(j, "kernels", kernels_json(hw));
    if (hw->gpu.bytes)
        json_object_set_new(j, "gpu", gpu_json(hw));
    json_object_set_new(j, "pass", pass);
    json_object_set_new(j, "findings", said);
    char *text_ = json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(j);
    return text_;
}

/* ---- path */

static int make_parents(const char *path)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", path);
    for (char *p = dir + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        if (mkdir(dir, 0700) && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return 0;
}

int ntx_hw_store_as(const char *path, const char *json, unsigned mode, struct ntx_err *err)
{
    char tmp[4096 + 16];
    int rc = make_parents(path);
    snprintf(tmp, sizeof tmp, "%s.%d", path, (int)getpid());
    FILE *f = rc ? NULL : fopen(tmp, "we");
    if (!rc && !f)
        rc = -errno;
    if (f) {
        if (fputs(json, f) < 0 || fputc('\n', f) < 0 || fchmod(fileno(f), mode))
            rc = -EIO;
        if (fclose(f))
            rc = -EIO;
        if (!rc && rename(tmp, path))
            rc = -errno;
        if (rc)
            unlink(tmp);
    }
    return rc ? ntx_err_set(err, rc, "%s: cannot store the hardware profile: %s", path, strerror(-rc)) : 0;
}

int ntx_hw_store(const char *path, const char *json, struct ntx_err *err)
{
    return ntx_hw_store_as(path, json, 0644, err);
}

int ntx_hw_store_measured(const char *path, const struct ntx_hw *hw, const char *json, bool *kept, struct ntx_err *err)
{
    struct ntx_err ignored = {0};
    struct ntx_hw *old = calloc(1, sizeof *old);
    if (!old)
        return ntx_err_set(err, -ENOMEM, "no memory for a hardware profile");
    bool good = !ntx_hw_load(path, old, &ignored) && !ntx_hw_busy(old) && strcmp(old->source, NTX_HW_BRIEF);
    *kept = ntx_hw_busy(hw) && good && !strcmp(old->cpu, hw->cpu) && old->threads == hw->threads;
    free(old);
    return *kept ? 0 : ntx_hw_store(path, json, err);
}

int ntx_hw_user_path(char *buf, unsigned n)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int k = -1;
    if (cache && *cache == '/')
        k = snprintf(buf, n, "%s/ntx/profile.json", cache);
    else if (home && *home == '/')
        k = snprintf(buf, n, "%s/.cache/ntx/profile.json", home);
    return k < 0 || (unsigned)k >= n ? -ENOENT : 0;
}

int ntx_hw_find(struct ntx_hw *out, struct ntx_err *err)
{
    char path[4096];
    int rc = ntx_hw_user_path(path, sizeof path);
    if (!rc)
        rc = ntx_hw_load(path, out, err);
    return rc == -ENOENT ? ntx_hw_load(NTX_HW_SERVICE_PATH, out, err) : rc;
}
