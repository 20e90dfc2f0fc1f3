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

#include "client/pull/hub_json.h"
#include "client/pull/curl.h"
#include "client/pull/hub_impl.h"
#include "client/pull/store.h"
#include "common/util.h"

#define SIZE_MOST (1ull << 56) /* so that sums do not overflow */

struct ntx_hub_repo {
    char name[NTX_HUB_NAME];
    const char *hub;
    json_t *list, *files; /* files: borrowed from list */
    struct ntx_hub_offer *offer;
    unsigned n;
    uint64_t seed; /* of the hash, so that nobody can make a list whose names all collide */
    /* Hash table [slots], a power of two above n: number of an offer, from 1 on; 0: free */
    uint32_t *slot;
    unsigned slots;
};

const char *ntx_hub_address(void)
{
    const char *hub = getenv("NTX_HUB");
    return hub && *hub ? hub : NTX_HUB;
}

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

bool ntx_hub_is_name(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash && slash - name < 128 && strlen(slash + 1) < 160 && is_word(name, (size_t)(slash - name)) &&
           is_word(slash + 1, strlen(slash + 1));
}

bool ntx_hub_is_url(const char *what) { return !strncasecmp(what, "http://", 7) || !strncasecmp(what, "https://", 8); }

/* ---- the repository's list */

/* Of an element of a list of files, or of one of an information's siblings. */
static const char *path_of(const json_t *file)
{
    const char *type = json_string_value(json_object_get(file, "type"));
    if (type && strcmp(type, "file"))
        return NULL;
    return json_string_value(json_object_get(file, type ? "path" : "rfilename"));
}

static uint64_t size_of(const json_t *file)
{
    const json_t *lfs = json_object_get(file, "lfs"), *size = json_object_get(lfs ? lfs : file, "size");
    json_int_t n = json_is_integer(size) ? json_integer_value(size) : 0;
    return n > 0 && (uint64_t)n <= SIZE_MOST ? (uint64_t)n : NTX_WEB_UNKNOWN;
}

/* No component is empty, "." or "..", and nothing in it steers a terminal. */
static bool is_safe(const char *path)
{
    for (const char *c = path;; c++) {
        size_t n = strcspn(c, "/");
        if (!n || (n <= 2 && !strncmp(c, "..", n)))
            return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)c[i] < ' ' || c[i] == 127 || c[i] == '\\')
                return false;
        c += n;
        if (!*c)
            return true;
    }
}

/* Files beside a model: projectors, importance matrices, and drafters ("mtp-MODEL-Q4_0.gguf", "MTP/..."). A
 * drafter has the name of a type and a small size, so it would be taken for the fastest type of the model. */
static bool is_beside(const char *folder, const char *stem)
{
    static const char *const begins[] = {"imatrix", "mtp-", "mtp_", "dspark-"};
    const char *slash = strrchr(folder, '/');
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncasecmp(stem, begins[i], strlen(begins[i])))
            return true;
    return ntx_store_is_projector(stem) || !strcasecmp(slash ? slash + 1 : folder, "mtp");
}

/* Splits a path into folder, stem and number; false: not a model. */
static bool read_path(const char *path, struct ntx_hub_offer *o, unsigned *no)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    if (!is_safe(path))
        return false;
    if (slash && (size_t)(slash - path) >= sizeof o->folder)
        return false;
    snprintf(o->folder, sizeof o->folder, "%.*s", slash ? (int)(slash - path) : 0, path);
    return ntx_store_stem(file, o->stem, no, &o->of) && !is_beside(o->folder, o->stem);
}

static bool same_offer(const struct ntx_hub_offer *a, const struct ntx_hub_offer *b)
{
    return !strcmp(a->stem, b->stem) && !strcmp(a->folder, b->folder);
}

static uint64_t hash_of(const struct ntx_hub_repo *l, const struct ntx_hub_offer *o)
{
    uint64_t h = l->seed; /* FNV-1a */
    for (const char *c = o->stem; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    for (const char *c = o->folder; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    return h ^ h >> 32;
}

/* The slot of this offer, or the free slot for it. */
static uint32_t *slot_of(const struct ntx_hub_repo *l, const struct ntx_hub_offer *o)
{
    unsigned i = (unsigned)hash_of(l, o) & (l->slots - 1);
    while (l->slot[i] && !same_offer(&l->offer[l->slot[i] - 1], o))
        i = (i + 1) & (l->slots - 1);
    return &l->slot[i];
}

/* Makes room for one more; both arrays double, so that the time is linear in the length. */
static int grow_offers(struct ntx_hub_repo *l)
{
    const unsigned slots = l->slots ? 2 * l->slots : 64;
    if (2 * l->n < l->slots)
        return 0;
    struct ntx_hub_offer *more = realloc(l->offer, slots / 2 * sizeof *more);
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

/* Some repositories have a model whole and split under one name: the one with fewer parts is offered. */
static int add_offer(struct ntx_hub_repo *l, const struct ntx_hub_offer *o, uint64_t size)
{
    if (grow_offers(l))
        return -ENOMEM;
    uint32_t *at = slot_of(l, o);
    if (!*at) {
        l->offer[l->n++] = *o;
        *at = l->n;
    }
    if (o->of > l->offer[*at - 1].of)
        return 0;
    if (o->of < l->offer[*at - 1].of)
        l->offer[*at - 1] = *o;
    uint64_t *sum = &l->offer[*at - 1].bytes;
    *sum = *sum == NTX_WEB_UNKNOWN || size == NTX_WEB_UNKNOWN ? NTX_WEB_UNKNOWN : NTX_MIN(*sum + size, SIZE_MOST);
    return 0;
}

static int list_offers(struct ntx_hub_repo *l, struct ntx_err *err)
{
    size_t i;
    json_t *file;
    json_array_foreach(l->files, i, file) {
        struct ntx_hub_offer o = {0};
        unsigned no;
        const char *path = path_of(file);
        if (path && read_path(path, &o, &no) && add_offer(l, &o, size_of(file)))
            return ntx_err_set(err, -ENOMEM, "no memory");
    }
    return l->n ? 0
                : ntx_err_set(err, -ENOENT, "%s has no GGUF of a model: `ntx search` finds repositories that have",
                              l->name);
}

/* ---- the choice */

static bool is_of_type(const struct ntx_hub_offer *o, const char *type)
{
    size_t n = strlen(o->stem), k = strlen(type);
    const char *folder = strrchr(o->folder, '/');
    folder = folder ? folder + 1 : o->folder;
    if (!strcasecmp(o->stem, type) || !strcasecmp(folder, type))
        return true;
    return n > k && !strcasecmp(o->stem + n - k, type) && strchr("-.", o->stem[n - k - 1]);
}

/* Counts the offers of this type; *o: the last of them. */
static unsigned count_type(const struct ntx_hub_repo *l, const char *type, const struct ntx_hub_offer **o)
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

const char *ntx_hub_label(const struct ntx_hub_repo *r, const struct ntx_hub_offer *o)
{
    const char *type = ntx_store_type(o->stem);
    unsigned same = 0;
    for (unsigned i = 0; i < r->n; i++)
        same += !strcasecmp(ntx_store_type(r->offer[i].stem), type);
    return *type && same == 1 ? type : o->stem;
}

static int tell_choice(const struct ntx_hub_repo *l, const char *why, struct ntx_err *err)
{
    char all[420] = "", size[32];
    for (unsigned i = 0; i < l->n && strlen(all) < sizeof all - 100; i++) {
        size_t n = strlen(all);
        ntx_format_size(l->offer[i].bytes, size, sizeof size);
        snprintf(all + n, sizeof all - n, "%s%.60s (%s)", n ? ", " : "", ntx_hub_label(l, &l->offer[i]),
                 l->offer[i].bytes == NTX_WEB_UNKNOWN ? "?" : size);
    }
    return ntx_err_set(err, -ENOTUNIQ, "%s: %s; there are %s", l->name, why, all);
}

int ntx_hub_choose(const struct ntx_hub_repo *r, const char *type, const struct ntx_hub_offer **o, struct ntx_err *err)
{
    unsigned n = count_type(r, type, o);
    if (n == 1)
        return 0;
    return tell_choice(r, n ? "several files are of this type" : "no file is of this type", err);
}

const struct ntx_hub_offer *ntx_hub_offers(const struct ntx_hub_repo *r, unsigned *n)
{
    *n = r->n;
    return r->offer;
}

/* ---- its files */

static int url_of(const struct ntx_hub_repo *l, const char *path, char url[NTX_WEB_URL])
{
    const struct ntx__curl *lib = ntx__curl(NULL);
    char *escaped = lib ? lib->easy_escape(NULL, path, 0) : NULL;
    int n = escaped ? snprintf(url, NTX_WEB_URL, "%s/%s/resolve/main/", l->hub, l->name) : -1;
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

static int add_part(const struct ntx_hub_repo *l, const json_t *file, const char *path, unsigned no,
                    struct ntx_hub_model *m)
{
    char url[NTX_WEB_URL];
    const char *slash = strrchr(path, '/');
    struct ntx_hub_file *f = &m->file[no - 1];
    if (f->url || url_of(l, path, url) || set_file(f, url, slash ? slash + 1 : path))
        return -EINVAL;
    f->size = size_of(file);
    set_sha256(f, json_string_value(json_object_get(json_object_get(file, "lfs"), "oid")));
    return 0;
}

int ntx_hub_take(const struct ntx_hub_repo *l, const struct ntx_hub_offer *want, struct ntx_hub_model *m,
                 struct ntx_err *err)
{
    size_t i;
    json_t *file;
    int rc = 0;
    *m = (struct ntx_hub_model){0};
    if (want->of > NTX_HUB_PARTS || !(m->file = calloc(want->of, sizeof *m->file)))
        return ntx_err_set(err, -E2BIG, "%s: %u parts are too many; %u is the most", want->stem, want->of,
                           NTX_HUB_PARTS);
    m->n = want->of;
    snprintf(m->dir, sizeof m->dir, "%s", l->name);
    json_array_foreach(l->files, i, file) {
        struct ntx_hub_offer o = {0};
        unsigned no = 1;
        const char *path = path_of(file);
        if (!rc && path && read_path(path, &o, &no) && o.of == want->of && same_offer(&o, want))
            rc = add_part(l, file, path, no, m);
    }
    for (unsigned k = 0; !rc && k < m->n; k++)
        if (!m->file[k].url)
            return ntx_err_set(err, -ENOENT, "%s lacks part %u of %u of %s", l->name, k + 1, m->n, want->stem);
    return rc ? ntx_err_set(err, rc, "%s: its list is in no order", l->name) : 0;
}

/* How good a projector's type is: 16 bits lose nothing that is noticed, and take half of 32. */
static unsigned projector_rank(const char *path)
{
    static const char *const types[] = {"BF16", "F16", "Q8_0", "F32"};
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    char stem[256];
    unsigned no, of;
    if (!is_safe(path) || !ntx_store_stem(file, stem, &no, &of) || !ntx_store_is_projector(stem) || of > 1)
        return 0;
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        if (strcasestr(stem, types[i]))
            return strcasestr(stem, "BF16") ? 8 : 9 - i;
    return 1;
}

int ntx_hub_projector(const struct ntx_hub_repo *r, struct ntx_hub_model *m, struct ntx_err *err)
{
    const json_t *best = NULL;
    unsigned best_rank = 0;
    size_t i;
    json_t *file;
    *m = (struct ntx_hub_model){0};
    json_array_foreach(r->files, i, file) {
        const char *path = path_of(file);
        const unsigned rank = path ? projector_rank(path) : 0;
        if (rank > best_rank) {
            best = file;
            best_rank = rank;
        }
    }
    if (!best)
        return 0;
    if (!(m->file = calloc(1, sizeof *m->file)))
        return ntx_err_set(err, -ENOMEM, "no memory");
    m->n = 1;
    snprintf(m->dir, sizeof m->dir, "%s", r->name);
    return add_part(r, best, path_of(best), 1, m) ? ntx_err_set(err, -EINVAL, "%s: its list is in no order", r->name)
                                                  : 0;
}

void ntx_hub_repo_free(struct ntx_hub_repo *r)
{
    if (!r)
        return;
    json_decref(r->list);
    free(r->offer);
    free(r->slot);
    free(r);
}

int ntx__hub_make(const char *hub, const char *name, json_t *list, struct ntx_hub_repo **out, struct ntx_err *err)
{
    struct ntx_hub_repo *r = calloc(1, sizeof *r);
    if (!r) {
        json_decref(list);
        return ntx_err_set(err, -ENOMEM, "no memory");
    }
    snprintf(r->name, sizeof r->name, "%s", name);
    r->hub = hub;
    r->list = list;
    r->files = json_is_object(list) ? json_object_get(list, "siblings") : list;
    int rc = json_is_array(r->files) ? 0 : ntx_err_set(err, -EPROTO, "%s: the hub's answer is not a list", name);
    if (!rc && getrandom(&r->seed, sizeof r->seed, 0) != sizeof r->seed)
        rc = ntx_err_set(err, -EIO, "the kernel has no random bytes: %s", strerror(errno));
    if (!rc)
        rc = list_offers(r, err);
    if (rc)
        ntx_hub_repo_free(r);
    else
        *out = r;
    return rc;
}

int ntx_hub_parse(const char *hub, const char *name, const char *text, size_t n, struct ntx_hub_repo **out,
                  struct ntx_err *err)
{
    json_t *list = NULL;
    int rc = ntx__hub_json_parse(text, n, &list, err);
    return rc ? ntx_err_prefix(err, "%s", name), rc : ntx__hub_make(hub, name, list, out, err);
}

int ntx_hub_list(struct ntx_web *w, const char *hub, const char *name, struct ntx_hub_repo **out, struct ntx_err *err)
{
    char url[NTX_WEB_URL];
    json_t *list = NULL;
    bool more = false;
    snprintf(url, sizeof url, "%s/api/models/%s/tree/main?recursive=true", hub, name);
    int rc = ntx__hub_json_get(w, url, &list, &more, err);
    if (!rc && more)
        rc = ntx_err_set(err, -E2BIG, "it has more files than one list holds; give the address of the file");
    if (!rc)
        return ntx__hub_make(hub, name, list, out, err);
    json_decref(list);
    ntx_err_prefix(err, "%s", name);
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

int ntx_hub_url(const char *url, struct ntx_hub_model *m, struct ntx_err *err)
{
    char stem[256], name[256], each[NTX_WEB_URL];
    unsigned no, of;
    size_t n = 0;
    int len = 0;
    *m = (struct ntx_hub_model){0};
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

void ntx_hub_free(struct ntx_hub_model *m)
{
    for (unsigned i = 0; i < m->n; i++)
        free(m->file[i].url);
    free(m->file);
    *m = (struct ntx_hub_model){0};
}
