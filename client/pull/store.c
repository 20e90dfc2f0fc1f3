/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull/store.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/pull/place.h"
#include "common/util.h"

#define SERVICE "/var/lib/ntx/models"
enum { DEPTH = 2, MODELS_MOST = 4096 };

/* ---- names */

static bool ends_with(const char *s, size_t n, const char *tail)
{
    size_t k = strlen(tail);
    return n > k && !strncasecmp(s + n - k, tail, k);
}

/* "-00001-of-00003" */
static bool part_suffix(const char *s, unsigned *no, unsigned *of)
{
    int n = 0;
    for (int i = 0; i < 15; i++)
        if (strchr("-of", "-00001-of-00003"[i]) ? s[i] != "-00001-of-00003"[i] : !isdigit((unsigned char)s[i]))
            return false;
    return sscanf(s, "-%5u-of-%5u%n", no, of, &n) == 2 && n == 15 && *no >= 1 && *no <= *of;
}

bool ntx_store_stem(const char *file, char stem[256], unsigned *no, unsigned *of)
{
    size_t n = strlen(file);
    if (n > 250 || *file == '.' || *file == '-' || !ends_with(file, n, ".gguf"))
        return false;
    for (const char *c = file; *c; c++)
        if (*c == '/' || *c == '\\' || *c < ' ' || *c > '~')
            return false;
    n -= 5;
    if (n > 15 && part_suffix(file + n - 15, no, of))
        n -= 15;
    else
        *no = *of = 1;
    snprintf(stem, 256, "%.*s", (int)n, file);
    return true;
}

/* Q4_K_M, IQ2_XXS, UD-Q4_K_XL, F16, BF16, MXFP4, TQ1_0 */
bool ntx_store_is_projector(const char *stem) { return strcasestr(stem, "mmproj"); }

/* A projector, or a model's copy that drafts for it (computed/draft/drafter_file.h): no model to run. */
static bool is_companion(const char *stem)
{
    return ntx_store_is_projector(stem) || ends_with(stem, strlen(stem), ".draft");
}

static bool is_type(const char *s)
{
    static const char *const begins[] = {"IQ", "TQ", "Q", "BF", "F", "MXFP", "NVFP"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t n = strlen(begins[i]);
        if (strncasecmp(s, begins[i], n) || !isdigit((unsigned char)s[n]))
            continue;
        while (isalnum((unsigned char)s[n]) || s[n] == '_')
            n++;
        return !s[n];
    }
    return false;
}

const char *ntx_store_type(const char *stem)
{
    const char *end = stem + strlen(stem), *p = end;
    while (p > stem && p[-1] != '-' && p[-1] != '.')
        p--;
    if (p == stem || !is_type(p))
        return end;
    return p - stem > 3 && !strncasecmp(p - 3, "UD-", 3) ? p - 3 : p;
}

/* ---- places */

static bool service_dir(char *buf, size_t n) { return (size_t)snprintf(buf, n, "%s", SERVICE) < n; }

static bool own_dir(char *buf, size_t n)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && *data == '/')
        return (size_t)snprintf(buf, n, "%s/ntx/models", data) < n;
    return home && *home == '/' && (size_t)snprintf(buf, n, "%s/.local/share/ntx/models", home) < n;
}

int ntx_store_dir(char *buf, size_t n, struct ntx_err *err)
{
    const char *data = getenv("XDG_DATA_HOME");
    bool known = geteuid() || (data && *data == '/') ? own_dir(buf, n) : service_dir(buf, n);
    if (!known)
        return ntx_err_set(err, -EINVAL,
                           "no folder for models: neither XDG_DATA_HOME nor HOME is a path that can be used");
    return 0;
}

/* ---- the models */

/* The model of this stem in this folder: found, or added. */
static struct ntx_stored *find_or_add(struct ntx_store *s, const char *dir, const char *within, const char *stem,
                                      unsigned of)
{
    for (unsigned i = 0; i < s->n; i++)
        if (!strcmp(s->m[i].dir, dir) && !strcmp(s->m[i].stem, stem) && s->m[i].of == of)
            return &s->m[i];
    struct ntx_stored *m = s->n < MODELS_MOST ? realloc(s->m, (s->n + 1) * sizeof *m) : NULL;
    const char *type = ntx_store_type(stem);
    if (!m) {
        s->lack = true;
        return NULL;
    }
    s->m = m;
    m += s->n++;
    *m = (struct ntx_stored){.of = of};
    snprintf(m->dir, sizeof m->dir, "%s", dir);
    m->root = (unsigned)(strlen(dir) - strlen(within) - (*within != 0));
    snprintf(m->stem, sizeof m->stem, "%s", stem);
    if (*within)
        snprintf(m->name, sizeof m->name, "%.140s:%s", within, *type ? type : stem);
    else
        snprintf(m->name, sizeof m->name, "%s", stem);
    return m;
}

static void add_file(struct ntx_store *s, const char *dir, const char *within, const char *file, const struct stat *st)
{
    char name[300], stem[256];
    unsigned no, of;
    size_t n = strlen(file);
    bool part = *file == '.' && ends_with(file, n, ".part");
    snprintf(name, sizeof name, "%.*s", (int)(part ? n - 6 : n), file + part);
    if (n >= sizeof name || !ntx_store_stem(name, stem, &no, &of) || is_companion(stem))
        return;
    struct ntx_stored *m = find_or_add(s, dir, within, stem, of);
    if (!m)
        return;
    m->when = NTX_MAX(m->when, st->st_mtime);
    if (no == 1)
        snprintf(m->first, sizeof m->first, "%s", name);
    *(part ? &m->pulled : &m->bytes) += (uint64_t)st->st_size;
    m->parts += !part;
}

static void scan_folder(struct ntx_store *s, const char *dir, const char *within, unsigned depth)
{
    char path[1024], name[300];
    struct stat st;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= sizeof path || stat(path, &st))
            continue;
        if (S_ISREG(st.st_mode))
            add_file(s, dir, within, e->d_name, &st);
        else if (S_ISDIR(st.st_mode) && *e->d_name != '.' && depth &&
                 (size_t)snprintf(name, sizeof name, "%s%s%s", within, *within ? "/" : "", e->d_name) < sizeof name)
            scan_folder(s, path, name, depth - 1);
    }
    if (d)
        closedir(d);
}

static int compare_names(const void *a, const void *b)
{
    return strcasecmp(((const struct ntx_stored *)a)->name, ((const struct ntx_stored *)b)->name);
}

int ntx_store_scan(struct ntx_store *s, struct ntx_err *err)
{
    char own[1024], service[1024];
    *s = (struct ntx_store){0};
    bool mine = own_dir(own, sizeof own);
    if (mine)
        scan_folder(s, own, "", DEPTH);
    if (service_dir(service, sizeof service) && !(mine && !strcmp(own, service)))
        scan_folder(s, service, "", DEPTH);
    if (s->lack)
        return ntx_err_set(err, -ENOMEM, "more than %d models, or no memory", MODELS_MOST);
    if (s->n)
        qsort(s->m, s->n, sizeof *s->m, compare_names);
    return 0;
}

void ntx_store_free(struct ntx_store *s)
{
    free(s->m);
    *s = (struct ntx_store){0};
}

/* ---- removal */

static int remove_file(const struct ntx_stored *m, int dir, const char *form, unsigned i, struct ntx_err *err)
{
    char name[300], path[320];
    size_t len = strlen(m->first);
    if (m->of > 1) /* .GGUF, if the first part has it */
        snprintf(name, sizeof name, "%s-%05u-of-%05u%s", m->stem, i, m->of, len > 5 ? m->first + len - 5 : ".gguf");
    else
        snprintf(name, sizeof name, "%s", m->first);
    snprintf(path, sizeof path, form, name);
    return unlinkat(dir, path, 0) && errno != ENOENT
               ? ntx_err_set(err, -errno, "%s/%s: %s", m->dir, path, strerror(errno))
               : 0;
}

/* The stem of a file that is whole or not; false: it is no GGUF of the store. */
static bool any_stem(const char *file, char stem[256])
{
    char name[300];
    unsigned no, of;
    const size_t n = strlen(file);
    const bool part = *file == '.' && (ends_with(file, n, ".part") || ends_with(file, n, ".from"));
    snprintf(name, sizeof name, "%.*s", (int)NTX_MIN(part ? n - 6 : n, sizeof name - 1), file + part);
    return ntx_store_stem(name, stem, &no, &of);
}

/* Removes projectors and drafting copies from a folder without models. */
static void remove_companions(int dir)
{
    char stem[256];
    bool models = false;
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    for (struct dirent *e; d && (e = readdir(d));)
        models |= any_stem(e->d_name, stem) && !is_companion(stem);
    if (d)
        rewinddir(d);
    for (struct dirent *e; d && !models && (e = readdir(d));)
        if (any_stem(e->d_name, stem))
            unlinkat(dir, e->d_name, 0);
    if (d)
        closedir(d);
    else if (again >= 0)
        close(again);
}

/* Removes "OWNER/REPO", then "OWNER", if they are empty. */
static void remove_folders(const char *root, const char *within)
{
    char path[NTX_STORE_NAME];
    struct ntx_err err = {0};
    snprintf(path, sizeof path, "%s", within);
    for (bool gone = true; gone && *path;) {
        char *slash = strrchr(path, '/'), name[NTX_STORE_NAME];
        snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
        *(slash ? slash : path) = 0;
        int above = ntx_place_open(root, path, false, &err);
        gone = above >= 0 && !unlinkat(above, name, AT_REMOVEDIR);
        if (above >= 0)
            close(above);
    }
}

int ntx_store_remove(const struct ntx_stored *m, struct ntx_err *err)
{
    char root[sizeof m->dir];
    const char *within = m->dir + m->root + (m->dir[m->root] == '/');
    snprintf(root, sizeof root, "%.*s", (int)m->root, m->dir);
    int dir = ntx_place_open(root, within, false, err), rc = dir < 0 ? dir : 0;
    for (unsigned i = 1; !rc && i <= m->of; i++) {
        rc = remove_file(m, dir, "%s", i, err);
        rc = rc ? rc : remove_file(m, dir, ".%s.part", i, err);
        rc = rc ? rc : remove_file(m, dir, ".%s.from", i, err);
    }
    if (!rc && *within) /* files of URLs share a folder */
        remove_companions(dir);
    if (dir >= 0)
        close(dir);
    if (!rc)
        remove_folders(root, within);
    return rc;
}

/* ---- names of models */

static bool same_text(const char *a, size_t n, const char *b) { return strlen(b) == n && !strncasecmp(a, b, n); }

static bool name_means(const char *name, const struct ntx_stored *m)
{
    size_t n = strlen(name), all = strlen(m->name), repo = strcspn(m->name, ":");
    const char *tail = strrchr(m->name, '/');
    tail = tail ? tail + 1 : m->name;
    if (!n)
        return false; /* like the first file of a model that lacks it */
    if (!strcasecmp(name, m->name) || !strcasecmp(name, tail) || !strcasecmp(name, m->stem) ||
        !strcasecmp(name, m->first))
        return true;
    return repo < all && ((n == repo && !strncasecmp(name, m->name, n)) || same_text(tail, strcspn(tail, ":"), name));
}

int ntx_store_find(const struct ntx_store *s, const char *name, const struct ntx_stored **m, struct ntx_err *err)
{
    char list[420] = "";
    unsigned found = 0;
    if (!strncasecmp(name, "hf:", 3))
        name += 3;
    for (unsigned i = 0; i < s->n; i++) {
        if (!name_means(name, &s->m[i]) || (found && !strcmp(s->m[i].name, (*m)->name) &&
                                            !strcmp(s->m[i].stem, (*m)->stem))) /* the same in both folders */
            continue;
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%.150s", n ? ", " : "", s->m[i].name);
        *m = &s->m[i];
        found++;
    }
    if (found > 1)
        return ntx_err_set(err, -ENOTUNIQ, "'%.100s' means %u models: %s", name, found, list);
    return found ? 0 : -ENOENT;
}
