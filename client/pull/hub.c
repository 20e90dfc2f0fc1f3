/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull/hub.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "client/pull/curl.h"
#include "client/pull/store.h"
#include "common/util.h"

#define LIST_MOST (16u << 20) /* bytes of a repository's list */
#define LIST_S    120         /* seconds for the whole list */

/* One GGUF of a list, with all its parts. */
struct offer {
    char stem[256], folder[256]; /* folder: within the repository; some repositories have a folder for each type */
    unsigned of;
    uint64_t bytes;
};

struct list {
    char owner[128], repo[160], type[64]; /* type "": not given */
    const char *hub;
    json_t *files;
    struct offer *offer;
    unsigned n;
    uint64_t seed; /* of the hash, so that nobody can make a list whose names all collide */
    /* Hash table [slots], a power of two above n: number of an offer, from 1 on; 0: free */
    uint32_t *slot;
    unsigned slots;
};

/* ---- names */

static bool is_word(const char *s, size_t n)
{
    if (!n || *s == '.' || *s == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i]))
            return false;
    return true;
}

static int read_name(const char *what, struct list *l, struct ntx_err *err)
{
    const char *slash = strchr(what, '/'), *colon = strchr(what, ':'), *end = colon ? colon : what + strlen(what);
    bool good = slash && slash < end && is_word(what, (size_t)(slash - what)) &&
                is_word(slash + 1, (size_t)(end - slash - 1)) && (!colon || is_word(colon + 1, strlen(colon + 1)));
    if (good)
        good = (size_t)(slash - what) < sizeof l->owner && (size_t)(end - slash - 1) < sizeof l->repo &&
               (!colon || strlen(colon + 1) < sizeof l->type);
    if (!good)
        return ntx_err_set(err, -EINVAL,
                           "'%.120s' names no model of the hub: write hf:OWNER/REPO or hf:OWNER/REPO:TYPE, as "
                           "hf:someone/Some-Model-GGUF:Q4_K_M",
                           what);
    snprintf(l->owner, sizeof l->owner, "%.*s", (int)(slash - what), what);
    snprintf(l->repo, sizeof l->repo, "%.*s", (int)(end - slash - 1), slash + 1);
    snprintf(l->type, sizeof l->type, "%s", colon ? colon + 1 : "");
    return 0;
}

/* ---- the repository's list */

struct text {
    char *p;
    size_t n;
};

static int take_text(void *arg, const struct ntx_web_answer *a, const void *p, size_t n)
{
    struct text *t = arg;
    char *more = t->n + n > LIST_MOST ? NULL : realloc(t->p, t->n + n);
    (void)a;
    if (!more)
        return -E2BIG;
    memcpy(more + t->n, p, n);
    t->p = more;
    t->n += n;
    return 0;
}

static int get_list(struct ntx_web *w, struct list *l, struct ntx_err *err)
{
    char url[NTX_WEB_URL];
    struct text t = {0};
    struct ntx_web_answer a;
    struct ntx_err why = {0};
    snprintf(url, sizeof url, "%s/api/models/%s/%s/tree/main?recursive=true", l->hub, l->owner, l->repo);
    struct ntx_web_ask q = {.url = url, .most_s = LIST_S, .take = take_text, .arg = &t};
    int rc = ntx_web_get(w, &q, &a, &why);
    if (!rc && !(l->files = json_loadb(t.p ? t.p : "", t.n, JSON_REJECT_DUPLICATES, NULL)))
        rc = ntx_err_set(&why, -EPROTO, "the answer is not a list");
    if (!rc && !json_is_array(l->files))
        rc = ntx_err_set(&why, -EPROTO, "the answer is not a list");
    if (!rc && a.more)
        rc = ntx_err_set(&why, -E2BIG, "it has more files than one list holds; give the address of the file");
    free(t.p);
    if (!rc)
        return 0;
    const char *reason = rc == -E2BIG ? "its list is too long" : strerror(-rc);
    if (*why.text)
        reason = why.text;
    return ntx_err_set(err, rc, "%s/%s: %.300s", l->owner, l->repo, reason);
}

static const char *path_of(const json_t *file)
{
    const char *type = json_string_value(json_object_get(file, "type"));
    return type && !strcmp(type, "file") ? json_string_value(json_object_get(file, "path")) : NULL;
}

static uint64_t size_of(const json_t *file)
{
    const json_t *lfs = json_object_get(file, "lfs"), *size = json_object_get(lfs ? lfs : file, "size");
    return json_is_integer(size) && json_integer_value(size) > 0 ? (uint64_t)json_integer_value(size) : 0;
}

/* Splits a path into folder, stem and number; false: not a model. */
static bool read_path(const char *path, struct offer *o, unsigned *no)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    if (slash && (size_t)(slash - path) >= sizeof o->folder)
        return false;
    snprintf(o->folder, sizeof o->folder, "%.*s", slash ? (int)(slash - path) : 0, path);
    return ntx_store_stem(file, o->stem, no, &o->of) && strncasecmp(o->stem, "mmproj", 6) &&
           strncasecmp(o->stem, "imatrix", 7);
}

static bool same_offer(const struct offer *a, const struct offer *b)
{
    return a->of == b->of && !strcmp(a->stem, b->stem) && !strcmp(a->folder, b->folder);
}

static uint64_t hash_of(const struct list *l, const struct offer *o)
{
    uint64_t h = l->seed ^ o->of; /* FNV-1a */
    for (const char *c = o->stem; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    for (const char *c = o->folder; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    return h ^ h >> 32;
}

/* The slot of this offer, or the free slot for it. */
static uint32_t *slot_of(const struct list *l, const struct offer *o)
{
    unsigned i = (unsigned)hash_of(l, o) & (l->slots - 1);
    while (l->slot[i] && !same_offer(&l->offer[l->slot[i] - 1], o))
        i = (i + 1) & (l->slots - 1);
    return &l->slot[i];
}

/* Makes room for one more; both arrays double, so that the time is linear in the length. */
static int grow_offers(struct list *l)
{
    const unsigned slots = l->slots ? 2 * l->slots : 64;
    if (2 * l->n < l->slots)
        return 0;
    struct offer *more = realloc(l->offer, slots / 2 * sizeof *more);
    uint32_t *slot = more ? calloc(slots, sizeof *slot) : NULL;
    l->offer = more ? more : l->offer;
    if (!slot)
        return -ENOMEM;
    free(l->slot);
    l->slot = slot;
    l->slots = slots;
    for (unsigned i = 0; i < l->n; i++)
        *slot_of(l, &l->offer[i]) = i + 1;
    return 0;
}

static int add_offer(struct list *l, const struct offer *o, uint64_t size)
{
    if (grow_offers(l))
        return -ENOMEM;
    uint32_t *at = slot_of(l, o);
    if (!*at) {
        l->offer[l->n++] = *o;
        *at = l->n;
    }
    l->offer[*at - 1].bytes += size;
    return 0;
}

static int list_offers(struct list *l, struct ntx_err *err)
{
    size_t i;
    json_t *file;
    json_array_foreach(l->files, i, file) {
        struct offer o = {0};
        unsigned no;
        const char *path = path_of(file);
        if (path && read_path(path, &o, &no) && add_offer(l, &o, size_of(file)))
            return ntx_err_set(err, -ENOMEM, "no memory");
    }
    return l->n ? 0
                : ntx_err_set(err, -ENOENT, "%s/%s has no GGUF: look for a repository of this model that has", l->owner,
                              l->repo);
}

/* ---- the choice */

static bool is_of_type(const struct offer *o, const char *type)
{
    size_t n = strlen(o->stem), k = strlen(type);
    const char *folder = strrchr(o->folder, '/');
    folder = folder ? folder + 1 : o->folder;
    if (!strcasecmp(o->stem, type) || !strcasecmp(folder, type))
        return true;
    return n > k && !strcasecmp(o->stem + n - k, type) && strchr("-.", o->stem[n - k - 1]);
}

/* Counts the offers of this type; *o: the last of them. */
static unsigned count_type(const struct list *l, const char *type, const struct offer **o)
{
    unsigned found = 0;
    for (unsigned i = 0; i < l->n; i++)
        if (is_of_type(&l->offer[i], type)) {
            /* UD-Q4_K_M is a Q4_K_M, too, but Q4_K_M means the plain one */
            bool exact = !strcasecmp(ntx_store_type(l->offer[i].stem), type);
            if (exact && found && strcasecmp(ntx_store_type((*o)->stem), type))
                found = 0;
            if (found && !exact && !strcasecmp(ntx_store_type((*o)->stem), type))
                continue;
            *o = &l->offer[i];
            found++;
        }
    return found;
}

static int tell_choice(const struct list *l, const char *why, struct ntx_err *err)
{
    char all[420] = "", size[32];
    for (unsigned i = 0; i < l->n && strlen(all) < sizeof all - 60; i++) {
        const char *type = ntx_store_type(l->offer[i].stem);
        size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%.80s (%s)", n ? ", " : "", *type ? type : l->offer[i].stem,
                 ntx_format_size(l->offer[i].bytes, size, sizeof size));
    }
    return ntx_err_set(err, -ENOTUNIQ, "%s/%s: %s; there are %s: hf:OWNER/REPO:TYPE", l->owner, l->repo, why, all);
}

static int choose_offer(const struct list *l, const struct offer **o, struct ntx_err *err)
{
    static const char *const usual[] = {"Q4_K_M", "MXFP4", "Q4_0", "Q8_0"};
    if (*l->type) {
        unsigned n = count_type(l, l->type, o);
        if (n == 1)
            return 0;
        return tell_choice(l, n ? "several files are of this type" : "no file is of this type", err);
    }
    if (l->n == 1)
        return *o = l->offer, 0;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (count_type(l, usual[i], o) == 1)
            return 0;
    return tell_choice(l, "say which type", err);
}

/* ---- its files */

static int url_of(const struct list *l, const char *path, char url[NTX_WEB_URL])
{
    const struct ntx__curl *lib = ntx__curl(NULL);
    char *escaped = lib ? lib->easy_escape(NULL, path, 0) : NULL;
    int n = escaped ? snprintf(url, NTX_WEB_URL, "%s/%s/%s/resolve/main/", l->hub, l->owner, l->repo) : -1;
    for (const char *c = escaped; n > 0 && c && *c && n < NTX_WEB_URL - 1; c++) { /* keep '/' */
        bool slash = !strncmp(c, "%2F", 3);
        url[n++] = slash ? '/' : *c;
        c += slash ? 2 : 0;
    }
    if (lib)
        lib->free(escaped);
    if (n <= 0 || n >= NTX_WEB_URL - 1)
        return -ENAMETOOLONG;
    url[n] = 0;
    return 0;
}

static int set_file(struct ntx_hub_file *f, const char *url, const char *name)
{
    *f = (struct ntx_hub_file){.url = strdup(url), .size = NTX_WEB_UNKNOWN};
    snprintf(f->name, sizeof f->name, "%s", name);
    return f->url ? 0 : -ENOMEM;
}

static void set_sha256(struct ntx_hub_file *f, const char *hex)
{
    if (!hex || strlen(hex) != 64 || strspn(hex, "0123456789abcdefABCDEF") < 64)
        return;
    for (size_t i = 0; i < 64; i++)
        f->sha256[i] = (char)tolower((unsigned char)hex[i]);
}

static int add_part(const struct list *l, const json_t *file, const char *path, unsigned no, struct ntx_hub_model *m)
{
    char url[NTX_WEB_URL];
    const char *slash = strrchr(path, '/');
    struct ntx_hub_file *f = &m->file[no - 1];
    if (f->url || url_of(l, path, url) || set_file(f, url, slash ? slash + 1 : path))
        return -EINVAL;
    f->size = size_of(file) ? size_of(file) : NTX_WEB_UNKNOWN;
    set_sha256(f, json_string_value(json_object_get(json_object_get(file, "lfs"), "oid")));
    return 0;
}

static int take_offer(const struct list *l, const struct offer *want, struct ntx_hub_model *m, struct ntx_err *err)
{
    size_t i;
    json_t *file;
    int rc = 0;
    if (want->of > NTX_HUB_PARTS || !(m->file = calloc(want->of, sizeof *m->file)))
        return ntx_err_set(err, -E2BIG, "%s: %u parts are too many; %u is the most", want->stem, want->of,
                           NTX_HUB_PARTS);
    m->n = want->of;
    snprintf(m->dir, sizeof m->dir, "%s/%s", l->owner, l->repo);
    json_array_foreach(l->files, i, file) {
        struct offer o = {0};
        unsigned no = 1;
        const char *path = path_of(file);
        if (!rc && path && read_path(path, &o, &no) && same_offer(&o, want))
            rc = add_part(l, file, path, no, m);
    }
    for (unsigned k = 0; !rc && k < m->n; k++)
        if (!m->file[k].url)
            return ntx_err_set(err, -ENOENT, "%s/%s lacks part %u of %u of %s", l->owner, l->repo, k + 1, m->n,
                               want->stem);
    return rc ? ntx_err_set(err, rc, "%s/%s: its list is in no order", l->owner, l->repo) : 0;
}

static int find_repo(struct ntx_web *w, const char *hub, const char *name, struct ntx_hub_model *m, struct ntx_err *err)
{
    struct list l = {.hub = hub};
    const struct offer *o = NULL;
    int rc = read_name(name, &l, err);
    if (!rc && getrandom(&l.seed, sizeof l.seed, 0) != sizeof l.seed)
        rc = ntx_err_set(err, -EIO, "the kernel has no random bytes: %s", strerror(errno));
    if (!rc)
        rc = get_list(w, &l, err);
    if (!rc)
        rc = list_offers(&l, err);
    if (!rc)
        rc = choose_offer(&l, &o, err);
    if (!rc)
        rc = take_offer(&l, o, m, err);
    json_decref(l.files);
    free(l.offer);
    free(l.slot);
    return rc;
}

/* ---- a URL */

/* The file's name within the URL: [at, at + n). */
static const char *last_name(const char *url, size_t *n)
{
    const char *path = strstr(url, "://"), *end = url + strcspn(url, "?#"), *at = end;
    path = path ? strchr(path + 3, '/') : NULL;
    if (!path || path >= end)
        return NULL;
    while (at > path && at[-1] != '/')
        at--;
    *n = (size_t)(end - at);
    return at;
}

static int find_url(const char *url, struct ntx_hub_model *m, struct ntx_err *err)
{
    char stem[256], name[256], each[NTX_WEB_URL];
    unsigned no, of;
    size_t n = 0;
    int len = 0;
    const char *at = last_name(url, &n);
    const struct ntx__curl *lib = ntx__curl(NULL);
    char *plain = lib && at ? lib->easy_unescape(NULL, at, (int)n, &len) : NULL;
    bool good = plain && (size_t)len == strlen(plain) && ntx_store_stem(plain, stem, &no, &of);
    snprintf(name, sizeof name, "%s", good ? plain : "");
    if (lib)
        lib->free(plain);
    if (!good)
        return ntx_err_set(
            err, -EINVAL,
            "the address does not end with the name of a GGUF that can be kept: letters, digits and such, then .gguf");
    if (no != 1 || of > NTX_HUB_PARTS || strlen(url) >= sizeof each)
        return ntx_err_set(err, -EINVAL, "%s: give the address of the first part, of %u at most", name, NTX_HUB_PARTS);
    if (of > 1 && (n < 20 || memcmp(at + n - 20, name + strlen(name) - 20, 20)))
        return ntx_err_set(
            err, -EINVAL, "%s: its number and ending must stand in the address as they are, not percent-encoded", name);
    if (!(m->file = calloc(of, sizeof *m->file)))
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (m->n = 0; m->n < of; m->n++) {
        char number[8];
        snprintf(each, sizeof each, "%s", url);
        snprintf(number, sizeof number, "%05u", m->n + 1);
        if (of > 1) { /* "-00001-of-00003.gguf" is the end of both */
            memcpy(each + (at - url) + n - 19, number, 5);
            memcpy(name + strlen(name) - 19, number, 5);
        }
        if (set_file(&m->file[m->n], each, name))
            return ntx_err_set(err, -ENOMEM, "no memory");
    }
    return 0;
}

int ntx_hub_find(struct ntx_web *w, const char *hub, const char *what, struct ntx_hub_model *m, struct ntx_err *err)
{
    *m = (struct ntx_hub_model){0};
    if (!strncasecmp(what, "http://", 7) || !strncasecmp(what, "https://", 8))
        return find_url(what, m, err);
    return find_repo(w, hub, strncasecmp(what, "hf:", 3) ? what : what + 3, m, err);
}

void ntx_hub_free(struct ntx_hub_model *m)
{
    for (unsigned i = 0; i < m->n; i++)
        free(m->file[i].url);
    free(m->file);
    *m = (struct ntx_hub_model){0};
}
