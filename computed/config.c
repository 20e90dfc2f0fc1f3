/* A table of keys, each with its place in the struct, over libinih. inih's handler is not told the line and stops at no error,
 * so lines are counted where it fetches them, and the first error wins. */
#include "computed/config.h"

#include <errno.h>
#include <ini.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

enum kind { PATH, TEXT, NAME, SIZE, RATE, COUNT, SECONDS, BOOL };

struct key {
    const char *section, *name;
    enum kind kind;
    size_t offset, room;       /* of the field; room: bytes of a text */
    uint32_t min, max;         /* of COUNT and SECONDS */
    const char *choices;       /* of NAME: "a|b|c" */
};

#define FIELD(f) offsetof(struct ntx_config, f), sizeof(((struct ntx_config *)0)->f)
static const struct key keys[] = {
    {"model", "path", PATH, FIELD(model), 0, 0, NULL},
    {"model", "also", PATH, FIELD(also), 0, 0, NULL},
    {"model", "ram", SIZE, FIELD(ram), 0, 0, NULL},
    {"model", "ctx", COUNT, FIELD(ctx), 0, 1 << 24, NULL},
    {"model", "threads", COUNT, FIELD(threads), 0, 1024, NULL},
    {"model", "sessions", COUNT, FIELD(sessions), 0, 1024, NULL},
    {"model", "rows", COUNT, FIELD(rows), 0, 4096, NULL},
    {"model", "backend", NAME, FIELD(backend), 0, 0, "auto|cpu|cuda"},
    {"model", "kernel", NAME, FIELD(kernel), 0, 0, "auto|generic|avx2|avx512|amx"},
    {"model", "source", NAME, FIELD(source), 0, 0, "auto|uring|pread"},
    {"model", "skip", TEXT, FIELD(skip), 0, 0, NULL},
    {"model", "ffn_sparse", TEXT, FIELD(ffn_sparse), 0, 0, NULL},
    {"model", "kv_type", NAME, FIELD(kv_type), 0, 0, "f16|q8_0"},
    {"links", "nvme", RATE, FIELD(link_nvme), 0, 0, NULL},
    {"clients", "max", COUNT, FIELD(max_clients), 1, 4096, NULL},
    {"clients", "per_user", COUNT, FIELD(max_per_user), 0, 4096, NULL},
    {"clients", "idle", SECONDS, FIELD(idle_ms), 0, 86400, NULL},
    {"clients", "stall", SECONDS, FIELD(stall_ms), 1, 3600, NULL},
    {"clients", "admin", NAME, FIELD(admin), 0, 0, "owner|group"},
    {"clients", "queue_wait", BOOL, FIELD(queue_wait), 0, 0, NULL},
    {"clients", "stop_grace", SECONDS, FIELD(stop_grace_ms), 0, 3600, NULL},
    {"metrics", "listen", TEXT, FIELD(metrics_listen), 0, 0, NULL},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

struct reading {
    FILE *file;
    const char *path;
    unsigned line;
    unsigned seen[N_KEYS]; /* the line where a key was set */
    struct ntx_config c;
    struct ntx_err err;    /* the first one */
};

void ntx_config_defaults(struct ntx_config *c)
{
    *c = (struct ntx_config){
        .backend = "auto", .source = "auto", .skip = "off", .ffn_sparse = "off", .kv_type = "f16", .max_clients = 32, .admin = "owner", .idle_ms = 600000, .stall_ms = 60000, .queue_wait = true, .stop_grace_ms = 30000};
}

#define PROCESS_BYTES (64ull << 20) /* DESIGN section 7 */
#define KERNEL_PART 64                /* of ram: page tables, where memory is in small pages and mapped by three processes */

uint64_t ntx_config_memory_max(const struct ntx_config *c)
{
    return c->ram ? c->ram + PROCESS_BYTES + c->ram / KERNEL_PART : 0;
}

#define REFUSE(r, fmt, ...) ntx_err_set(&(r)->err, -EINVAL, "%s:%u: " fmt, (r)->path, (r)->line, __VA_ARGS__)

static int set_text(struct reading *r, const struct key *k, char *to, const char *v)
{
    if (strlen(v) >= k->room)
        return REFUSE(r, "%s is longer than %zu bytes", k->name, k->room - 1);
    if (k->kind == PATH && *v && *v != '/')
        return REFUSE(r, "%s = %s: write the whole path, from '/'", k->name, v);
    memcpy(to, v, strlen(v) + 1);
    return 0;
}

/* "auto" and nothing mean the same, but the kernel's field has no word for it. */
static int set_name(struct reading *r, const struct key *k, char *to, const char *v)
{
    size_t n = strlen(v);
    for (const char *c = k->choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
        if (n && !strncmp(c, v, n) && (c[n] == '|' || !c[n])) {
            bool none = to == r->c.kernel && !strcmp(v, "auto");
            snprintf(to, k->room, "%s", none ? "" : v);
            return 0;
        }
    return REFUSE(r, "%s = %s: none of %s", k->name, v, k->choices);
}

static int set_number(struct reading *r, const struct key *k, uint32_t *to, const char *v)
{
    char *end;
    errno = 0;
    unsigned long x = strtoul(v, &end, 10);
    if (*v < '0' || *v > '9' || *end || errno || x < k->min || x > k->max)
        return REFUSE(r, "%s = %s: a whole number from %u to %u is expected", k->name, v, k->min, k->max);
    *to = (uint32_t)(k->kind == SECONDS ? x * 1000 : x);
    return 0;
}

static int set_bool(struct reading *r, const struct key *k, bool *to, const char *v)
{
    bool yes = !strcmp(v, "yes") || !strcmp(v, "true") || !strcmp(v, "on");
    if (!yes && strcmp(v, "no") && strcmp(v, "false") && strcmp(v, "off"))
        return REFUSE(r, "%s = %s: yes or no is expected", k->name, v);
    *to = yes;
    return 0;
}

/* A rate of 0, which nothing else means, is a link left as it is. */
static int set_rate(struct reading *r, const struct key *k, double *to, const char *v)
{
    if (!strcmp(v, "0"))
        *to = 0;
    else if (ntx_parse_rate(v, to))
        return REFUSE(r, "%s = %s: bytes per second such as 3.3G are expected", k->name, v);
    return 0;
}

static int set(struct reading *r, const struct key *k, const char *v)
{
    void *to = (char *)&r->c + k->offset;
    switch (k->kind) {
    case PATH:
    case TEXT: return set_text(r, k, to, v);
    case NAME: return set_name(r, k, to, v);
    case SIZE: return ntx_parse_size(v, to) ? REFUSE(r, "%s = %s: a size such as 512M or 3G is expected", k->name, v) : 0;
    case RATE: return set_rate(r, k, to, v);
    case COUNT:
    case SECONDS: return set_number(r, k, to, v);
    case BOOL: return set_bool(r, k, to, v);
    }
    return 0;
}

static void unknown(struct reading *r, const char *section, const char *name)
{
    const struct key *elsewhere = NULL;
    for (int i = 0; i < N_KEYS; i++)
        if (!strcmp(keys[i].name, name))
            elsewhere = &keys[i];
    if (elsewhere)
        REFUSE(r, "unknown key '%s' in [%s]; it belongs in [%s]", name, section, elsewhere->section);
    else
        REFUSE(r, "unknown key '%s' in [%s]", name, section);
}

/* 1: go on; 0 tells inih of an error. */
static int on_pair(void *arg, const char *section, const char *name, const char *value)
{
    struct reading *r = arg;
    if (r->err.code)
        return 0;
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(keys[i].section, section) || strcmp(keys[i].name, name))
            continue;
        if (r->seen[i])
            return REFUSE(r, "%s is set again; it was in line %u", name, r->seen[i]), 0;
        r->seen[i] = r->line;
        return !set(r, &keys[i], value);
    }
    unknown(r, section, name);
    return 0;
}

/* fgets() that counts. What inih's buffer cannot hold is refused: it would go on with the rest as a line of its own. */
static char *next_line(char *buf, int n, void *arg)
{
    struct reading *r = arg;
    if (r->err.code || !fgets(buf, n, r->file))
        return NULL;
    r->line++;
    if (!strchr(buf, '\n') && !feof(r->file)) {
        REFUSE(r, "longer than %d bytes", n - 2);
        return NULL;
    }
    if (*buf == ' ' || *buf == '\t') /* inih takes an indented line for more of the value above, which no key here has */
        memmove(buf, buf + strspn(buf, " \t"), strlen(buf + strspn(buf, " \t")) + 1);
    return buf;
}

int ntx_config_load(const char *path, struct ntx_config *c, struct ntx_err *err)
{
    struct reading r = {.file = fopen(path, "re"), .path = path};
    if (!r.file)
        return ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
    ntx_config_defaults(&r.c);
    int bad = ini_parse_stream(next_line, &r, on_pair, &r);
    if (bad && !r.err.code) {
        r.line = bad > 0 ? (unsigned)bad : r.line;
        REFUSE(&r, "neither '[section]' nor '%s'", "key = value");
    }
    if (ferror(r.file) && !r.err.code)
        ntx_err_set(&r.err, -EIO, "%s: cannot be read", path);
    fclose(r.file);
    if (r.err.code)
        return ntx_err_set(err, r.err.code, "%s", r.err.text);
    *c = r.c;
    return 0;
}
