/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/catalog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "model/gguf.h"
#include "model/kind.h"

enum { DEEP = 3, PATH = 4096 };

struct scan {
    const struct ntx_catalog *before;
    struct ntx_catalog out;
    bool lack; /* an allocation failed */
};

/* ---- names */

/* The length of a file's name without ".gguf" and "-00001-of-00003"; 0: no GGUF, or not its first part. */
static size_t stem_length(const char *file)
{
    size_t n = strlen(file);
    unsigned no, of;
    if (n < 6 || *file == '.' || strcasecmp(file + n - 5, ".gguf"))
        return 0;
    n -= 5;
    if (n <= 15 || sscanf(file + n - 15, "-%5u-of-%5u", &no, &of) != 2)
        return n;
    return no == 1 ? n - 15 : 0;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const struct ntx_catalog_model *named_so(const struct ntx_catalog *k, const char *name, size_t len)
{
    for (unsigned i = 0; i < k->n; i++)
        for (unsigned j = 0; j < k->m[i].n_names; j++)
            if (!strncasecmp(k->m[i].name[j], name, len) && !k->m[i].name[j][len])
                return &k->m[i];
    return NULL;
}

const struct ntx_catalog_model *ntx_catalog_at(const struct ntx_catalog *k, const char *path)
{
    for (unsigned i = 0; i < k->n; i++)
        if (!strcmp(k->m[i].path, path))
            return &k->m[i];
    return NULL;
}

const struct ntx_catalog_model *ntx_catalog_find(const struct ntx_catalog *k, const char *name)
{
    const char *colon = strrchr(name, ':');
    size_t n = strlen(name);
    const struct ntx_catalog_model *m = named_so(k, name, n);
    if (!m && n > 5 && !strcasecmp(name + n - 5, ".gguf"))
        m = named_so(k, name, n - 5);
    if (!m && colon && colon > name)
        m = named_so(k, name, (size_t)(colon - name));
    return m ? m : ntx_catalog_at(k, name);
}

/* Adds a name that no other model has. */
static void add_name(struct scan *s, struct ntx_catalog_model *m, const char *name)
{
    char *copy = m->n_names < NTX_KNOWN_NAMES && *name && strlen(name) < NTX_KNOWN_NAME ? strdup(name) : NULL;
    if (copy)
        ntx_facts_id(copy);
    if (copy && !named_so(&s->out, copy, strlen(copy)))
        m->name[m->n_names++] = copy;
    else
        free(copy);
}

/* "llama-3-8b-Q4_K_M" -> "Q4_K_M", as `ntx list` has it; or the whole stem. */
static const char *type_in(const char *stem)
{
    const char *p = stem + strlen(stem);
    while (p > stem && p[-1] != '-' && p[-1] != '.')
        p--;
    const bool is = p > stem && (!strncasecmp(p, "Q", 1) || !strncasecmp(p, "IQ", 2) || !strncasecmp(p, "F", 1) ||
                                 !strncasecmp(p, "BF", 2) || !strncasecmp(p, "TQ", 2) || !strncasecmp(p, "MXFP", 4));
    return is ? p : stem;
}

/* path: as the list or the folder has it, since a link may lead to a file without a name (a hub's cache).
 * within: folders below the one that the list names. */
static void add_names(struct scan *s, struct ntx_catalog_model *m, const char *path, const char *given,
                      const char *within)
{
    char stem[NTX_KNOWN_NAME], longer[2 * NTX_KNOWN_NAME];
    const char *file = base_of(path);
    size_t n = stem_length(file);
    snprintf(stem, sizeof stem, "%.*s", n ? (int)n : (int)sizeof stem - 1, file);
    add_name(s, m, given);
    add_name(s, m, stem);
    snprintf(longer, sizeof longer, "%s:%s", within, type_in(stem));
    if (strchr(within, '/'))
        add_name(s, m, longer);
    if (strcmp(file, base_of(m->path)) && (n = stem_length(base_of(m->path)))) { /* of a link, also the target's */
        snprintf(stem, sizeof stem, "%.*s", (int)n, base_of(m->path));
        add_name(s, m, stem);
    }
    if (m->n_names)
        return;
    snprintf(longer, sizeof longer, "%s/%s", *within ? within : "file", stem); /* the same name in another folder */
    add_name(s, m, longer);
}

/* ---- headers */

static void take_header(struct ntx_catalog_model *m, const struct ntx_gguf *g, const int *fds)
{
    struct ntx_err ignored;
    ntx_facts_read(g, fds, &m->facts);
    m->read = !ntx_kind_refuse(g, NULL, &ignored);
}

/* Opens all parts; the sum of their bytes is known even if the header cannot be read. */
static void read_header(struct ntx_catalog_model *m)
{
    char **paths = NULL;
    struct ntx_err ignored;
    struct ntx_gguf *g = NULL;
    struct stat st;
    int n = ntx_gguf_split_paths(m->path, &paths, &ignored), fds[128], opened = 0;
    for (int i = 0; i < n && i < 128; i++) {
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd < 0)
            break;
        fds[opened++] = fd;
        m->bytes += !i || fstat(fd, &st) ? 0 : (uint64_t)st.st_size;
    }
    if (opened && opened == n && !ntx_gguf_open(fds, (unsigned)n, NULL, &g, &ignored))
        take_header(m, g, fds);
    ntx_gguf_free(g);
    while (opened)
        close(fds[--opened]);
    for (int i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
}

/* ---- files and folders */

static void drop_model(struct ntx_catalog_model *m)
{
    while (m->n_names)
        free(m->name[--m->n_names]);
    free(m->path);
}

static void look_at(const struct scan *s, struct ntx_catalog_model *m)
{
    const struct ntx_catalog_model *was = s->before ? ntx_catalog_at(s->before, m->path) : NULL;
    struct stat st;
    if (stat(m->path, &st) || !S_ISREG(st.st_mode))
        return;
    m->bytes = (uint64_t)st.st_size;
    m->changed = st.st_mtim.tv_sec;
    m->changed_ns = st.st_mtim.tv_nsec;
    if (!was || was->changed != m->changed || was->changed_ns != m->changed_ns || !was->read) {
        read_header(m);
        return;
    }
    m->bytes = was->bytes;
    m->facts = was->facts;
    m->read = true;
}

/* found: in a folder; only what can be read as a language model counts. */
static void add_file(struct scan *s, const char *path, const char *given, const char *within, bool found)
{
    struct ntx_catalog_model one = {0};
    char *real = realpath(path, NULL);
    one.path = real ? real : strdup(path);
    const struct ntx_catalog_model *there = one.path ? ntx_catalog_at(&s->out, one.path) : NULL;
    if (there) { /* another name for it */
        add_name(s, &s->out.m[there - s->out.m], given);
        free(one.path);
        return;
    }
    struct ntx_catalog_model *m = one.path && s->out.n < NTX_KNOWN_MOST ? realloc(s->out.m, (s->out.n + 1) * sizeof *m)
                                                                        : NULL;
    s->lack |= !one.path || (!m && s->out.n < NTX_KNOWN_MOST);
    s->out.m = m ? m : s->out.m;
    if (m)
        look_at(s, &one);
    if (m && (one.read || !found))
        add_names(s, &one, path, given, within);
    if (one.n_names)
        s->out.m[s->out.n++] = one;
    else
        drop_model(&one);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The names in a folder, in order, so that an id does not depend on the order on the drive. */
static char **names_in(const char *dir, size_t *n)
{
    char **list = NULL;
    DIR *d = opendir(dir);
    *n = 0;
    for (struct dirent *e; d && (e = readdir(d)) && *n < 16 * NTX_KNOWN_MOST;) {
        char **more = *e->d_name == '.' ? NULL : realloc(list, (*n + 1) * sizeof *list);
        list = more ? more : list;
        if (more && (list[*n] = strdup(e->d_name)))
            ++*n;
    }
    if (d)
        closedir(d);
    if (*n)
        qsort(list, *n, sizeof *list, by_name);
    return list;
}

static void add_folder(struct scan *s, const char *dir, const char *within, unsigned depth)
{
    size_t n;
    char **names = names_in(dir, &n), path[PATH], below[NTX_KNOWN_NAME];
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        const bool fits = snprintf(path, sizeof path, "%s/%s", dir, names[i]) < (int)sizeof path &&
                          snprintf(below, sizeof below, "%s%s%s", within, *within ? "/" : "", names[i]) <
                              (int)sizeof below;
        if (fits && !stat(path, &st)) {
            if (S_ISDIR(st.st_mode) && depth < DEEP)
                add_folder(s, path, below, depth + 1);
            else if (S_ISREG(st.st_mode) && stem_length(names[i]))
                add_file(s, path, "", within, true);
        }
        free(names[i]);
    }
    free(names);
}

/* A NAME ends at the first '=', before any slash. */
static void add_entry(struct scan *s, char *entry)
{
    char *equals = strchr(entry, '='), *slash = strchr(entry, '/');
    const bool named = equals && (!slash || equals < slash);
    const char *path = named ? equals + 1 : entry;
    struct stat st;
    if (named)
        *equals = 0;
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        add_folder(s, path, "", 0);
    else
        add_file(s, path, named ? entry : "", "", false);
}

int ntx_catalog_scan(const char *list, const struct ntx_catalog *before, struct ntx_catalog *out)
{
    struct scan s = {.before = before};
    char *copy = strdup(list);
    for (char *save, *p = copy ? strtok_r(copy, ",", &save) : NULL; p; p = strtok_r(NULL, ",", &save)) {
        p += strspn(p, " ");
        if (*p)
            add_entry(&s, p);
    }
    s.lack |= !copy;
    free(copy);
    if (s.lack) {
        ntx_catalog_free(&s.out);
        return -ENOMEM;
    }
    *out = s.out;
    return 0;
}

void ntx_catalog_free(struct ntx_catalog *k)
{
    for (unsigned i = 0; i < k->n; i++)
        drop_model(&k->m[i]);
    free(k->m);
    *k = (struct ntx_catalog){0};
}

json_t *ntx_catalog_json(const struct ntx_catalog *k)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < k->n; i++) {
        const struct ntx_catalog_model *m = &k->m[i];
        json_t *names = json_array();
        for (unsigned j = 0; j < m->n_names; j++)
            json_array_append_new(names, json_string(m->name[j]));
        json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:s}", "id", m->name[0],
                                              "names", names, "path", m->path, "bytes", (json_int_t)m->bytes, "changed",
                                              (json_int_t)m->changed, "ctx", (json_int_t)m->facts.ctx, "parameters",
                                              (json_int_t)m->facts.parameters, "arch", m->facts.arch, "type",
                                              m->facts.type, "digest", m->facts.digest));
    }
    return list;
}
