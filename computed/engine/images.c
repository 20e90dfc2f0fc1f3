/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <nettle/umac.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#define IMAGES_MOST 64 /* in memory */
#define IMAGE_MAGIC "ntxrows2"
#define ROWS_MOST   (1u << 20)
#define FILE_ENDING ".rows"
#define FILE_NAME   (2 * 16 + sizeof FILE_ENDING) /* half of the digest */
#define NEW_FILE    "image.new"

struct held_image {
    struct ntx_image *image;
    uint64_t used;
};

struct ntx_images {
    struct ntx_images_config c;
    uint8_t of[SHA256_DIGEST_SIZE];
    int dir; /* -1: no files */
    atomic_ullong encoded;
    pthread_mutex_t lock; /* guards what follows */
    struct held_image held[IMAGES_MOST];
    unsigned n;
    uint64_t uses;
};

struct ntx_image *ntx_image_ref(struct ntx_image *m)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void ntx_image_unref(struct ntx_image *m)
{
    if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) > 1)
        return;
    free(m->values);
    free(m);
}

/* Each eight rows have all words of the digest, so two pictures share no more than a few tokens. */
int32_t ntx_image_token(const struct ntx_image *m, uint32_t i)
{
    uint32_t word, turn = i / 8;
    memcpy(&word, m->digest + 4 * (i % 8), sizeof word);
    word = (word ^ (turn * 0x9e3779b1u)) % 0x7fffffffu;
    return -2 - (int32_t)word;
}

/* ---- files */

static void name_file(const uint8_t *digest, char name[FILE_NAME])
{
    for (unsigned i = 0; i < 16; i++)
        snprintf(name + 2 * i, 3, "%02x", digest[i]);
    memcpy(name + 32, FILE_ENDING, sizeof FILE_ENDING);
}

static void sum_image(const struct ntx_image_head *h, const float *values, uint64_t bytes, uint8_t sum[8])
{
    static const uint8_t key[16] = "rows of an image";
    struct umac64_ctx u;
    struct ntx_image_head x = *h;
    memset(x.sum, 0, sizeof x.sum);
    umac64_set_key(&u, key);
    umac64_update(&u, sizeof x, (const uint8_t *)&x);
    umac64_update(&u, bytes, (const uint8_t *)values);
    umac64_digest(&u, 8, sum);
}

/* A file that only we may read or write, and its size; else a negative errno. */
static int open_rows(const struct ntx_images *s, const char *name, uint64_t *bytes)
{
    struct stat st;
    int fd = openat(s->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077) {
        close(fd);
        return -EPERM;
    }
    *bytes = (uint64_t)st.st_size;
    return fd;
}

static bool is_area(uint32_t width, uint32_t height) { return width && height && height <= ROWS_MOST / width; }

static bool fits_model(const struct ntx_images *s, const struct ntx_vision_grid *g, uint32_t n_embd, uint32_t deep)
{
    return is_area(g->columns, g->rows) && is_area(g->across, g->down) &&
           (!(g->over_columns || g->over_rows) || is_area(g->over_columns, g->over_rows)) &&
           ntx_vision_grid_rows(g) <= ROWS_MOST && n_embd == s->c.n_embd && deep < 1024;
}

static struct ntx_image *new_image(const uint8_t *digest, const struct ntx_vision_grid *grid, uint32_t n_embd,
                                   uint32_t deep)
{
    struct ntx_image *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    atomic_init(&m->refs, 1);
    memcpy(m->digest, digest, sizeof m->digest);
    m->grid = *grid;
    m->n_embd = n_embd;
    m->deep = deep;
    return m;
}

static struct ntx_image *read_image(const struct ntx_images *s, int fd, uint64_t size, const uint8_t *digest)
{
    struct ntx_image_head h;
    uint8_t sum[8];
    if (size < sizeof h || ntx_read_all(fd, &h, sizeof h) || memcmp(h.magic, IMAGE_MAGIC, sizeof h.magic) ||
        memcmp(h.digest, digest, sizeof h.digest) || !fits_model(s, &h.grid, h.n_embd, h.deep))
        return NULL;
    struct ntx_image *m = new_image(digest, &h.grid, h.n_embd, h.deep);
    const uint64_t bytes = m ? ntx_image_bytes(m) : 0;
    if (m && size - sizeof h == bytes && (m->values = malloc(bytes)) && !ntx_read_all(fd, m->values, bytes)) {
        sum_image(&h, m->values, bytes, sum);
        if (!memcmp(sum, h.sum, sizeof sum))
            return m;
    }
    ntx_image_unref(m);
    return NULL;
}

static struct ntx_image *from_file(const struct ntx_images *s, const uint8_t *digest)
{
    char name[FILE_NAME];
    uint64_t bytes = 0;
    name_file(digest, name);
    int fd = s->dir < 0 ? -1 : open_rows(s, name, &bytes);
    if (fd < 0)
        return NULL;
    struct ntx_image *m = read_image(s, fd, bytes, digest);
    if (m)
        (void)futimens(fd, NULL); /* it was used */
    else
        ntx_log(NTX_LOG_WARN, "%s/%s is not used: it is torn, or of other rows", s->c.dir, name);
    close(fd);
    return m;
}

struct oldest {
    char name[FILE_NAME];
    struct timespec at;
    uint64_t bytes, all;
};

static bool is_older(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

/* The longest unused file, and the bytes of all. */
static int find_oldest(const struct ntx_images *s, struct oldest *o)
{
    int fd = openat(s->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct stat st;
    *o = (struct oldest){0};
    if (!d) {
        if (fd >= 0)
            close(fd);
        return -EIO;
    }
    for (struct dirent *e; (e = readdir(d));) {
        const size_t n = strlen(e->d_name);
        if (n + 1 != FILE_NAME || strcmp(e->d_name + 32, FILE_ENDING) ||
            fstatat(s->dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        o->all += (uint64_t)st.st_size;
        if (!*o->name || is_older(st.st_mtim, o->at)) {
            memcpy(o->name, e->d_name, n + 1);
            o->at = st.st_mtim;
        }
    }
    closedir(d);
    return 0;
}

/* Removes the longest unused files until there is room for so many bytes more. */
static bool make_room(const struct ntx_images *s, uint64_t bytes)
{
    struct oldest o;
    while (bytes <= s->c.most_file && !find_oldest(s, &o)) {
        if (o.all + bytes <= s->c.most_file)
            return true;
        if (!*o.name || unlinkat(s->dir, o.name, 0))
            return false;
    }
    return false;
}

static void to_file(const struct ntx_images *s, const struct ntx_image *m)
{
    const uint64_t bytes = ntx_image_bytes(m);
    char name[FILE_NAME];
    struct ntx_image_head h = {.grid = m->grid, .n_embd = m->n_embd, .deep = m->deep};
    if (s->dir < 0 || !make_room(s, sizeof h + bytes))
        return;
    memcpy(h.magic, IMAGE_MAGIC, sizeof h.magic);
    memcpy(h.digest, m->digest, sizeof h.digest);
    sum_image(&h, m->values, bytes, h.sum);
    name_file(m->digest, name);
    (void)unlinkat(s->dir, NEW_FILE, 0);
    int fd = openat(s->dir, NEW_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600), rc;
    rc = fd < 0 ? -errno : ntx_write_all(fd, &h, sizeof h);
    if (!rc)
        rc = ntx_write_all(fd, m->values, bytes);
    if (fd >= 0)
        close(fd);
    if (!rc && renameat(s->dir, NEW_FILE, s->dir, name))
        rc = -errno;
    if (!rc)
        return;
    (void)unlinkat(s->dir, NEW_FILE, 0);
    ntx_log(NTX_LOG_WARN, "the rows of a picture are not kept in %s: %s", s->c.dir, strerror(-rc));
}

/* ---- memory */

/* Gives up what was used longest ago. An image that a session has, too, costs nothing more. */
static void hold_locked(struct ntx_images *s, struct ntx_image *m)
{
    for (;;) {
        uint64_t bytes = ntx_image_bytes(m);
        unsigned least = 0;
        for (unsigned i = 0; i < s->n; i++) {
            bytes += ntx_image_bytes(s->held[i].image);
            least = s->held[i].used < s->held[least].used ? i : least;
        }
        if (bytes <= s->c.most && s->n < IMAGES_MOST)
            break;
        if (!s->n)
            return;
        ntx_image_unref(s->held[least].image);
        s->held[least] = s->held[--s->n];
    }
    s->held[s->n++] = (struct held_image){ntx_image_ref(m), ++s->uses};
}

static void hold(struct ntx_images *s, struct ntx_image *m)
{
    pthread_mutex_lock(&s->lock);
    hold_locked(s, m);
    pthread_mutex_unlock(&s->lock);
}

static struct ntx_image *find_held(struct ntx_images *s, const uint8_t *digest)
{
    struct ntx_image *m = NULL;
    pthread_mutex_lock(&s->lock);
    for (unsigned i = 0; !m && i < s->n; i++)
        if (!memcmp(s->held[i].image->digest, digest, NTX_IMAGE_DIGEST)) {
            s->held[i].used = ++s->uses;
            m = ntx_image_ref(s->held[i].image);
        }
    pthread_mutex_unlock(&s->lock);
    return m;
}

/* ---- */

static void digest_of(const struct ntx_images *s, uint64_t scope, const void *data, size_t n, uint8_t *digest)
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, sizeof s->of, s->of);
    sha256_update(&sha, sizeof scope, (const uint8_t *)&scope);
    sha256_update(&sha, n, data);
    sha256_digest(&sha, NTX_IMAGE_DIGEST, digest);
}

static int encode_image(struct ntx_images *s, const uint8_t *digest, const void *data, size_t n,
                        const atomic_bool *unwanted, struct ntx_image **out, struct ntx_err *err)
{
    struct ntx_vision_rows rows = {0};
    int rc = s->c.encode(s->c.ctx, data, n, unwanted, &rows, err);
    if (rc)
        return rc;
    atomic_fetch_add_explicit(&s->encoded, 1, memory_order_relaxed);
    if (!fits_model(s, &rows.grid, s->c.n_embd, rows.deep) || rows.width != (uint64_t)s->c.n_embd * (1 + rows.deep)) {
        free(rows.values);
        return ntx_err_set(err, -EINVAL, "the projector's rows of %u values do not fit the model's %u", rows.width,
                           s->c.n_embd);
    }
    if (!(*out = new_image(digest, &rows.grid, s->c.n_embd, rows.deep))) {
        free(rows.values);
        return ntx_err_set(err, -ENOMEM, "no memory for a picture");
    }
    (*out)->values = rows.values;
    to_file(s, *out);
    return 0;
}

static struct ntx_image *find_image(struct ntx_images *s, const uint8_t *digest)
{
    struct ntx_image *m = find_held(s, digest);
    if (!m && (m = from_file(s, digest)))
        hold(s, m);
    return m;
}

struct ntx_image *ntx_images_find(struct ntx_images *s, uint64_t scope, const void *data, size_t n)
{
    uint8_t digest[NTX_IMAGE_DIGEST];
    digest_of(s, scope, data, n, digest);
    return find_image(s, digest);
}

int ntx_images_get(struct ntx_images *s, uint64_t scope, const void *data, size_t n, const atomic_bool *unwanted,
                   struct ntx_image **out, struct ntx_err *err)
{
    uint8_t digest[NTX_IMAGE_DIGEST];
    digest_of(s, scope, data, n, digest);
    if ((*out = find_image(s, digest)))
        return 0;
    int rc = encode_image(s, digest, data, n, unwanted, out, err);
    if (!rc)
        hold(s, *out);
    return rc;
}

const struct ntx_vision_text *ntx_images_text(const struct ntx_images *s) { return s->c.text; }
uint64_t ntx_images_encoded(const struct ntx_images *s)
{
    return atomic_load_explicit(&((struct ntx_images *)(uintptr_t)s)->encoded, memory_order_relaxed);
}

/* As the prefix store's: ours, and writable by no other user. */
static int open_dir(const char *dir, struct ntx_err *err)
{
    struct stat st;
    if (mkdir(dir, 0700) && errno != EEXIST)
        return ntx_err_set(err, -errno, "%s cannot be made: %s", dir, strerror(errno));
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        int rc = -errno;
        if (fd >= 0)
            close(fd);
        return ntx_err_set(err, rc, "%s: %s", dir, strerror(-rc));
    }
    if (st.st_uid == geteuid() && !(st.st_mode & 022))
        return fd;
    close(fd);
    return ntx_err_set(err, -EPERM, "%s is not user %u's, or others may write into it", dir, (unsigned)geteuid());
}

int ntx_images_new(const struct ntx_images_config *c, struct ntx_images **out, struct ntx_err *err)
{
    struct ntx_images *s = calloc(1, sizeof *s);
    struct sha256_ctx sha;
    if (!s)
        return ntx_err_set(err, -ENOMEM, "no memory for pictures");
    s->c = *c;
    pthread_mutex_init(&s->lock, NULL);
    s->dir = *c->dir ? open_dir(c->dir, err) : -1;
    if (*c->dir && s->dir < 0) {
        int rc = s->dir;
        pthread_mutex_destroy(&s->lock);
        free(s);
        return rc;
    }
    sha256_init(&sha);
    sha256_update(&sha, strlen(c->of), (const uint8_t *)c->of);
    sha256_digest(&sha, sizeof s->of, s->of);
    *out = s;
    return 0;
}

void ntx_images_free(struct ntx_images *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < s->n; i++)
        ntx_image_unref(s->held[i].image);
    if (s->dir >= 0)
        close(s->dir);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
