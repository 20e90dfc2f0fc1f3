/* SPDX-License-Identifier: Apache-2.0 */
/* ntx.conf: every value, refusals by text and line, and the shipped file against the defaults. */
#include "proto/config.h"

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

#include "tests/lib/check.h"
#include "tests/lib/temporary.h"

struct dir {
    char path[256], file[300];
};

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

static void same(const struct ntx_config *a, const struct ntx_config *b)
{
    CHECK_STR(a->model, b->model);
    CHECK_EQ(a->load.ram, b->load.ram);
    CHECK_EQ(a->load.ctx, b->load.ctx);
    CHECK_EQ(a->load.threads, b->load.threads);
    CHECK_EQ(a->load.sessions, b->load.sessions);
    CHECK_EQ(a->load.rows, b->load.rows);
    CHECK_STR(a->load.backend, b->load.backend);
    CHECK_STR(a->load.kernel, b->load.kernel);
    CHECK_STR(a->load.source, b->load.source);
    CHECK_STR(a->load.skip, b->load.skip);
    CHECK_STR(a->load.kv_type, b->load.kv_type);
    CHECK_STR(a->load.draft, b->load.draft);
    CHECK_STR(a->load.lora ? a->load.lora : "", b->load.lora ? b->load.lora : "");
    CHECK_STR(a->load.override_kv ? a->load.override_kv : "", b->load.override_kv ? b->load.override_kv : "");
    CHECK_STR(a->load.ffn_sparse, b->load.ffn_sparse);
    CHECK(a->load.link_nvme == b->load.link_nvme);
    CHECK_EQ(a->max_clients, b->max_clients);
    CHECK_EQ(a->max_per_user, b->max_per_user);
    CHECK_EQ(a->idle_ms, b->idle_ms);
    CHECK_EQ(a->stall_ms, b->stall_ms);
    CHECK_EQ(a->queue_wait, b->queue_wait);
    CHECK_STR(a->share, b->share);
    CHECK_STR(a->prefix_file, b->prefix_file);
    CHECK_STR(a->load.state, b->load.state);
    CHECK_EQ(a->load.state_max, b->load.state_max);
    CHECK_EQ(a->load.kv_ram, b->load.kv_ram);
    CHECK_EQ(a->stop_grace_ms, b->stop_grace_ms);
    CHECK_STR(a->admin, b->admin);
    CHECK_STR(a->metrics_listen, b->metrics_listen);
    CHECK_STR(a->gateway_listen, b->gateway_listen);
    CHECK_STR(a->gateway_key, b->gateway_key);
    CHECK_STR(a->gateway_cors, b->gateway_cors);
    CHECK_STR(a->gateway_hosts, b->gateway_hosts);
    CHECK_STR(a->gateway_image_hosts, b->gateway_image_hosts);
    CHECK_EQ(a->gateway_stall_ms, b->gateway_stall_ms);
}

static void defaults(const struct dir *d)
{
    struct ntx_config c, def;
    memset(&c, 1, sizeof c);
    ntx_config_defaults(&def);
    write_file(d->file, "# nothing\n\n; but comments\n[model]\n");
    CHECK_EQ(ntx_config_load(d->file, &c, NULL), 0);
    same(&c, &def);
    CHECK_EQ(def.max_clients, 32);
    CHECK_EQ(ntx_config_memory_max(&def), 0);
    CHECK_EQ(def.stop_grace_ms, 30000);
    CHECK_STR(def.admin, "owner");
    CHECK_STR(def.share, "user");
    CHECK(def.queue_wait);
    CHECK_EQ(def.gateway_stall_ms, 30000);
}

static void values(const struct dir *d)
{
    struct ntx_config c;
    write_file(
        d->file,
        "[model]\npath = /srv/models/a model.gguf\n  ram=3G\nctx = 2048 ; a comment\nthreads = 2\nsessions = 4\nrows = "
        "64\n"
        "backend = cpu\nkernel = avx2\nsource = pread\nkv_type = q8_0\nprefix_cache = off\ndraft = /m/d.gguf\nlora = "
        "x=/m/l.gguf\noverride_kv = a.b=int:5,c=str:x y\nthink = on,2048\nchat_template = /m/t.jinja\nffn_sparse = "
        "topk=0.2\nskip = script:3,5@0;7\r\n"
        "[links]\nnvme = 3.3G\n[clients]\nmax = 7\nper_user = 5\nidle = 90\nstall = 20\nadmin = group\nshare = "
        "all\nqueue_wait = no\nstop_grace = 5\nmax_gap = 0.5\n[prefix]\nfile = /etc/ntx/system.txt\nstate = "
        "/var/lib/ntx/prefixes\nstate_max = 5G\nkv_ram = 2G\n[metrics]\nlisten = 127.0.0.1:9464\n"
        "[gateway]\nlisten = 127.0.0.1:8080\napi_key_file = /etc/ntx/key\ncors = https://a.example *\nhosts = "
        "b.example\nimage_hosts = *.c.example\nstall = 7\n");
    CHECK_EQ(ntx_config_load(d->file, &c, NULL), 0);
    CHECK_STR(c.model, "/srv/models/a model.gguf");
    CHECK_EQ(c.load.ram, 3ll << 30);
    CHECK_EQ(c.load.ctx, 2048);
    CHECK_EQ(c.load.threads, 2);
    CHECK_EQ(c.load.sessions, 4);
    CHECK_EQ(c.load.rows, 64);
    CHECK_STR(c.load.backend, "cpu");
    CHECK_STR(c.load.kernel, "avx2");
    CHECK_STR(c.load.source, "pread");
    CHECK_STR(c.load.kv_type, "q8_0");
    CHECK_STR(c.load.draft, "/m/d.gguf");
    CHECK_STR(c.load.lora, "x=/m/l.gguf");
    CHECK_STR(c.load.override_kv, "a.b=int:5,c=str:x y");
    CHECK_STR(c.load.think, "on,2048");
    CHECK_STR(c.load.chat_template, "/m/t.jinja");
    CHECK_STR(c.load.ffn_sparse, "topk=0.2");
    CHECK_STR(c.load.skip, "script:3,5@0;7");
    CHECK(c.load.link_nvme == 3.3e9);
    CHECK(c.load.max_gap == 0.5f);
    CHECK_EQ(c.max_clients, 7);
    CHECK_EQ(ntx_config_memory_max(&c), c.load.ram + (64u << 20) + c.load.ram / 64);
    CHECK_EQ(c.max_per_user, 5);
    CHECK_EQ(c.idle_ms, 90000);
    CHECK_EQ(c.stall_ms, 20000);
    CHECK_STR(c.admin, "group");
    CHECK_STR(c.share, "all");
    CHECK_STR(c.prefix_file, "/etc/ntx/system.txt");
    CHECK_STR(c.load.state, "/var/lib/ntx/prefixes");
    CHECK_EQ(c.load.state_max, 5ull << 30);
    CHECK_EQ(c.load.kv_ram, 2ull << 30);
    CHECK(c.load.no_prefix_cache);
    CHECK(!c.queue_wait);
    CHECK_EQ(c.stop_grace_ms, 5000);
    CHECK_STR(c.metrics_listen, "127.0.0.1:9464");
    CHECK_STR(c.gateway_listen, "127.0.0.1:8080");
    CHECK_STR(c.gateway_key, "/etc/ntx/key");
    CHECK_STR(c.gateway_cors, "https://a.example *");
    CHECK_STR(c.gateway_hosts, "b.example");
    CHECK_STR(c.gateway_image_hosts, "*.c.example");
    CHECK_EQ(c.gateway_stall_ms, 7000);
    static const char *const kernels[] = {"generic", "avx2", "avx512", "amx", "neon", "i8mm"}; /* values of --kernel */
    for (unsigned i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        char text[64];
        snprintf(text, sizeof text, "[model]\nkernel = %s\n", kernels[i]);
        write_file(d->file, text);
        ntx_config_free(&c);
        CHECK_EQ(ntx_config_load(d->file, &c, NULL), 0);
        CHECK_STR(c.load.kernel, kernels[i]);
    }
    write_file(d->file, "[model]\nkernel = auto\npath =\n");
    ntx_config_free(&c);
    CHECK_EQ(ntx_config_load(d->file, &c, NULL), 0);
    CHECK_STR(c.load.kernel, "");
    CHECK_STR(c.model, "");
    ntx_config_free(&c);
}

/* Checks a refusal with that text in that line, and that the output is untouched. */
static void refused(const struct dir *d, const char *text, unsigned line, const char *why)
{
    struct ntx_config c = {.load.ctx = 77};
    struct ntx_err err = {0};
    char place[320];
    write_file(d->file, text);
    CHECK_MSG(ntx_config_load(d->file, &c, &err) == -EINVAL, "%s", text);
    snprintf(place, sizeof place, "%s:%u: ", d->file, line);
    CHECK_MSG(!strncmp(err.text, place, strlen(place)), "%s: %s", text, err.text);
    CHECK_MSG(strstr(err.text, why), "%s: %s", text, err.text);
    CHECK_EQ(c.load.ctx, 77);
}

static void refusals(const struct dir *d)
{
    char path[400] = "[model]\npath = /";
    refused(d, "[model]\n\nctxx = 5\n", 3, "unknown key 'ctxx' in [model]");
    refused(d, "ctx = 5\n", 1, "it belongs in [model]");
    refused(d, "[modle]\nctx = 5\n", 2, "it belongs in [model]");
    refused(d, "[model]\nctx = -5\n", 2, "ctx: '-5' is not a whole number of at least 1");
    refused(d, "[model]\nctx = 5x\n", 2, "a whole number");
    refused(d, "[model]\nctx =\n", 2, "a whole number");
    refused(d, "[model]\nctx = 99999999999999999999999\n", 2, "a whole number");
    refused(d, "[model]\nram = lots\n", 2, "a size");
    refused(d, "[links]\nnvme = fast\n", 2, "nvme: 'fast' is not a rate");
    refused(d, "[clients]\nmax = 4097\n", 2, "'4097' is more than 4096");
    refused(d, "[model]\nkv_type = q5_0\n", 2, "there are f16, q8_0 and q4_0");
    refused(d, "[clients]\nmax = 0\n", 2, "max: '0' is not a whole number of at least 1");
    refused(d, "[clients]\nqueue_wait = maybe\n", 2, "yes or no");
    refused(d, "[model]\nbackend = cp\n", 2, "'cp' is not a back end; there are auto, cpu and cuda");
    refused(d, "[clients]\nshare = none\n", 2, "there are user and all");
    refused(d, "[clients]\nadmin = everybody\n", 2, "there are owner and group");
    refused(d, "[model]\npath = model.gguf\n", 2, "whole path");
    refused(d, "[model]\nctx = 1\n# more\nctx = 2\n", 4, "it was in line 2");
    refused(d, "[model]\nctx = 1\nwhat is this\n[links]\n", 3, "neither");
    refused(d, "[model]\nctx = x\nram = y\n", 2, "ctx"); /* the first of several errors */
    memset(path + strlen(path), 'a', sizeof path - 1 - strlen(path));
    refused(d, path, 2, "longer than");
}

static char said[8][512];
static unsigned n_said;

static void keep_said(const char *text)
{
    CHECK(n_said < 8);
    snprintf(said[n_said++], sizeof *said, "%s", text);
}

/* Reading goes on after errors: each is told with its line, and the values beside them are taken. */
static void every_error(const struct dir *d)
{
    struct ntx_config_errors e = {.say = keep_said};
    struct ntx_config c;
    struct ntx_err err = {0};
    char text[2048] = "[model]\nctxx = 5\nram = 3\nthreads = 2\nnonsense\n[modle]\nx = 1\n[clients]\nmax = 0\n#";
    memset(text + strlen(text), 'a', 900);
    write_file(d->file, text);
    CHECK_EQ(ntx_config_read(d->file, &c, &e, &err), 0);
    CHECK_EQ(e.n, 6);
    CHECK_EQ(n_said, 6);
    CHECK(strstr(said[0], ":2: unknown key 'ctxx' in [model]; did you mean ctx?"));
    CHECK(strstr(said[1], ":3: ram: '3' has no unit and would be bytes; did you mean 3G?"));
    CHECK(strstr(said[2], ":5: neither '[section]' nor 'key = value'"));
    CHECK(strstr(said[3], ":7: there is no section [modle]"));
    CHECK(strstr(said[4], ":9: max: '0' is not a whole number of at least 1"));
    CHECK(strstr(said[5], ":10: longer than"));
    CHECK_STR(e.first.text, said[0]);
    CHECK_EQ(c.load.threads, 2);
    CHECK_EQ(ntx_config_line(&c, "model", "threads"), 4);
    CHECK_EQ(ntx_config_line(&c, "model", "rows"), 0);
    ntx_config_free(&c);
}

static void without_section(const struct dir *d)
{
    struct ntx_config c;
    struct ntx_err err = {0};
    write_file(d->file, "ram = 3G\n[model]\n");
    CHECK_EQ(ntx_config_load(d->file, &c, &err), -EINVAL);
    CHECK(strstr(err.text, ":1: 'ram' stands before the first section; it belongs in [model]"));
    write_file(d->file, "none = 3G\n[model]\n");
    CHECK_EQ(ntx_config_load(d->file, &c, &err), -EINVAL);
    CHECK(strstr(err.text, ":1: 'none' stands before the first section; there are [model],"));
}

static void missing(const struct dir *d)
{
    struct ntx_config c = {.load.ctx = 77};
    struct ntx_err err = {0};
    unlink(d->file);
    CHECK_EQ(ntx_config_load(d->file, &c, &err), -ENOENT);
    CHECK(strstr(err.text, d->file));
    CHECK_EQ(c.load.ctx, 77);
}

/* The shipped file gives the defaults, as it is and with every "#key = value" active; no key is missing. */
static void shipped(const struct dir *d)
{
    struct ntx_config c, def;
    char path[4096], line[512];
    int keys = 0;
    ntx_config_defaults(&def);
    snprintf(path, sizeof path, "%s/deploy/ntx.conf", getenv("NTX_SOURCE"));
    CHECK_EQ(ntx_config_load(path, &c, NULL), 0);
    same(&c, &def);
    ntx_config_free(&c);
    FILE *in = fopen(path, "r"), *out = fopen(d->file, "w");
    CHECK(in && out);
    while (fgets(line, sizeof line, in)) {
        bool key = line[0] == '#' && line[1] >= 'a' && line[1] <= 'z';
        keys += key;
        CHECK(fputs(line + key, out) >= 0);
    }
    fclose(in);
    CHECK(!fclose(out));
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_config_load(d->file, &c, &err), "%s", err.text);
    same(&c, &def);
    ntx_config_free(&c);
    CHECK_EQ(keys, 46);
}

/* The shipped file equals the printed table of settings. */
static void printed(const struct dir *d)
{
    char command[4400];
    FILE *out = fopen(d->file, "w");
    CHECK(out);
    ntx_config_print(out);
    CHECK(!fclose(out));
    snprintf(command, sizeof command, "diff -u '%s/deploy/ntx.conf' '%s'", getenv("NTX_SOURCE"), d->file);
    CHECK_MSG(!system(command), "deploy/ntx.conf is not what `ntx-computed --print-config` prints");
}

int main(void)
{
    struct dir d;
    temporary_dir(d.path, sizeof d.path, "config");
    snprintf(d.file, sizeof d.file, "%s/ntx.conf", d.path);
    defaults(&d);
    values(&d);
    refusals(&d);
    every_error(&d);
    without_section(&d);
    missing(&d);
    shipped(&d);
    printed(&d);
    unlink(d.file);
    rmdir(d.path);
    return 0;
}
