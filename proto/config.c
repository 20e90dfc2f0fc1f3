/* SPDX-License-Identifier: Apache-2.0 */
/* ntx.conf: settings of a load and of the service, over libinih. inih reports no line to its handler: so lines are
 * counted where it fetches them. */
#include "proto/config.h"

#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"

struct ntx_config_text { /* a value from the file */
    struct ntx_config_text *next;
    char text[];
};

void ntx_config_free(struct ntx_config *c)
{
    for (struct ntx_config_text *t = c->texts, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    c->texts = NULL;
}

#define PROCESS_BYTES (64ull << 20) /* for the three daemons beside ram, as in computed/plan/budget.c */
#define KERNEL_PART   64            /* 1/64 of ram: page tables for small pages, mapped by three processes */

uint64_t ntx_config_memory_max(const struct ntx_config *c)
{
    uint64_t ram = c->load.ram;
    return ram ? ram + PROCESS_BYTES + ram / KERNEL_PART : 0;
}

struct reading {
    FILE *file;
    struct ntx_config_errors *errors;
    unsigned line;
    bool cut; /* the line was too long: its rest is no line */
    struct ntx_config c;
    int failed; /* a negative errno that is no error of the file's */
};

#define REFUSE(r, ...) ntx_config_refuse((r)->errors, (r)->line, __VA_ARGS__)

void ntx_config_refuse(struct ntx_config_errors *e, unsigned line, const char *fmt, ...)
{
    char text[sizeof((struct ntx_err *)0)->text];
    struct ntx_err err;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (line)
        ntx_err_set(&err, -EINVAL, "%s:%u: %s", e->path, line, text);
    else
        ntx_err_set(&err, -EINVAL, "%s: %s", e->path, text);
    if (!e->n++)
        e->first = err;
    if (e->say)
        e->say(err.text);
}

unsigned ntx_config_line(const struct ntx_config *c, const char *section, const char *key)
{
    const struct ntx_setting *s;
    for (unsigned i = 0; (s = ntx_config_key(i, NULL, NULL)); i++)
        if (s->section && !strcmp(s->section, section) && !strcmp(s->in_conf, key))
            return c->lines[i];
    return 0;
}

/* Copies a value, which must outlive inih's buffer. */
static const char *keep_text(struct reading *r, const char *v)
{
    size_t n = strlen(v) + 1;
    struct ntx_config_text *t = malloc(sizeof *t + n);
    if (!t)
        return NULL;
    memcpy(t->text, v, n);
    t->next = r->c.texts;
    r->c.texts = t;
    return t->text;
}

static void set_value(struct reading *r, const struct ntx_setting *s, void *to, const char *v)
{
    struct ntx_err err = {0};
    if (s->open && !strcmp(v, s->open)) /* unchanged */
        return;
    if (!(v = keep_text(r, v)))
        r->failed = -ENOMEM;
    else if (ntx_setting_read(s, v, to, &err))
        REFUSE(r, "%s: %s", s->in_conf, err.text);
}

static bool is_section(const char *section)
{
    const struct ntx_setting *s;
    for (unsigned i = 0; (s = ntx_config_key(i, NULL, NULL)); i++)
        if (s->section && !strcmp(s->section, section))
            return true;
    return false;
}

/* The section's own keys are nearer than those of others. */
static void refuse_unknown(struct reading *r, const char *section, const char *name)
{
    const struct ntx_setting *elsewhere = NULL, *s;
    struct ntx_near near;
    ntx_near_begin(&near, name, "");
    for (unsigned i = 0; (s = ntx_config_key(i, NULL, NULL)); i++) {
        if (s->section && !strcmp(s->in_conf, name))
            elsewhere = s;
        if (s->section && !strcmp(s->section, section))
            ntx_near_offer(&near, s->in_conf, strlen(s->in_conf));
    }
    if (!*section && elsewhere)
        REFUSE(r, "'%s' stands before the first section; it belongs in [%s]", name, elsewhere->section);
    else if (elsewhere)
        REFUSE(r, "unknown key '%s' in [%s]; it belongs in [%s]", name, section, elsewhere->section);
    else if (!*section)
        REFUSE(r, "'%s' stands before the first section; there are " NTX_CONF_SECTIONS, name);
    else if (!is_section(section))
        REFUSE(r, "there is no section [%s]; there are " NTX_CONF_SECTIONS, section);
    else
        REFUSE(r, "unknown key '%s' in [%s]%s", name, section, near.hint);
}

/* Called by inih. 1: go on. */
static int on_pair(void *arg, const char *section, const char *name, const char *value)
{
    struct reading *r = arg;
    const struct ntx_setting *s;
    void *to;
    for (unsigned i = 0; (s = ntx_config_key(i, &r->c, &to)); i++) {
        if (!s->section || strcmp(s->section, section) || strcmp(s->in_conf, name))
            continue;
        if (r->c.lines[i])
            return REFUSE(r, "%s is set again; it was in line %u", name, r->c.lines[i]), 1;
        r->c.lines[i] = r->line;
        return set_value(r, s, to, value), 1;
    }
    refuse_unknown(r, section, name);
    return 1;
}

/* inih reports only the first such line. */
static bool is_line(const char *text)
{
    const char *p = text + (strncmp(text, "\xef\xbb\xbf", 3) ? 0 : 3);
    p += strspn(p, " \t\r\n");
    if (*p == '[')
        return strchr(p, ']') != NULL;
    return !*p || *p == '#' || *p == ';' || strpbrk(p, "=:");
}

/* fgets() that counts lines. A line that inih's buffer cannot hold is refused, since inih would take the rest for
 * another line; so is one that is no line of such a file. inih gets an empty one instead. */
static char *next_line(char *buf, int n, void *arg)
{
    struct reading *r = arg;
    if (r->failed || !fgets(buf, n, r->file))
        return NULL;
    bool rest = r->cut;
    r->cut = !strchr(buf, '\n') && !feof(r->file);
    r->line += !rest;
    if (r->cut && !rest)
        REFUSE(r, "longer than %d bytes", n - 2);
    else if (!rest && !is_line(buf))
        REFUSE(r, "neither '[section]' nor 'key = value'");
    if (r->cut || rest || !is_line(buf))
        return strcpy(buf, "\n");
    /* inih takes an indented line for more of the value above, which no key has */
    if (*buf == ' ' || *buf == '\t')
        memmove(buf, buf + strspn(buf, " \t"), strlen(buf + strspn(buf, " \t")) + 1);
    return buf;
}

int ntx_config_read(const char *path, struct ntx_config *c, struct ntx_config_errors *e, struct ntx_err *err)
{
    struct reading r = {.file = fopen(path, "re"), .errors = e};
    e->path = path;
    if (!r.file)
        return ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
    ntx_config_defaults(&r.c);
    int bad = ini_parse_stream(next_line, &r, on_pair, &r);
    if (bad > 0 && !e->n) {
        r.line = (unsigned)bad;
        REFUSE(&r, "neither '[section]' nor 'key = value'");
    }
    if (ferror(r.file))
        r.failed = -EIO;
    fclose(r.file);
    if (bad < 0 || r.failed) {
        ntx_config_free(&r.c);
        return ntx_err_set(err, r.failed ? r.failed : -ENOMEM, "%s: cannot be read", path);
    }
    *c = r.c;
    return 0;
}

int ntx_config_load(const char *path, struct ntx_config *c, struct ntx_err *err)
{
    struct ntx_config_errors e = {.n = 0};
    struct ntx_config read;
    int rc = ntx_config_read(path, &read, &e, err);
    if (rc)
        return rc;
    if (e.n) {
        ntx_config_free(&read);
        return ntx_err_set(err, e.first.code, "%s", e.first.text);
    }
    *c = read;
    return 0;
}
