/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "computed/draft/drafter_file.h"
#include "common/nearest.h"
#include "common/util.h"
#include "model/kind.h"
#include "model/mmproj.h"
#include "model/override.h"

/* errno says why the file cannot be opened. */
static int refuse_path(const char *path, struct ntx_err *err)
{
    const int why = errno;
    struct ntx_near near = {.hint = ""};
    if (why == EACCES)
        return ntx_err_set(err, -why, "%s: %s; you may not read the file, or not look into a folder on its way", path,
                           strerror(why));
    if (why == ENOENT)
        ntx_model_near(path, &near);
    return ntx_err_set(err, -why, "%s: %s%s", path, strerror(why),
                       *near.hint ? near.hint : "; give the path of a GGUF file, or a name of `ntx list`");
}

static int open_part(const char *path, int *fd, struct ntx_err *err)
{
    struct stat st;
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a pipe is refused below, without waiting for
                                                                       * its writer */
    if (f < 0)
        return refuse_path(path, err);
    if (fstat(f, &st) || !S_ISREG(st.st_mode)) {
        close(f);
        return ntx_err_set(err, -EINVAL, "%s: not a regular file; give the path of a GGUF file", path);
    }
    fcntl(f, F_SETFL, 0);
    *fd = f;
    return 0;
}

/* Appends all parts of a model. */
static int open_parts(const char *path, struct ntx_model_files *m, struct ntx_err *err)
{
    char **paths = NULL;
    int rc = 0, probe;
    /* Open the first part first: a wrong path is then reported as the user gave it. */
    if ((rc = open_part(path, &probe, err)))
        return rc;
    close(probe);
    int n = ntx_gguf_split_paths(path, &paths, err);
    if (n < 0)
        return n;
    if (n + m->n > sizeof m->fds / sizeof *m->fds)
        rc = ntx_err_set(err, -E2BIG, "%s: %d parts are too many; 128 is the most", path, n);
    for (int i = 0; i < n && !rc; i++) {
        if ((rc = open_part(paths[i], &m->fds[m->n], err)))
            break;
        char *real = realpath(paths[i], NULL); /* the daemon's messages need absolute paths */
        m->names[m->n++] = real ? real : strdup(paths[i]);
    }
    for (int i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
    return rc;
}

static int look_at_adapter(int fd, const char *path, struct ntx_err *err)
{
    struct ntx_gguf *g = NULL;
    struct ntx_str type;
    int rc = ntx_gguf_open(&fd, 1, &path, &g, err);
    if (!rc && (ntx_gguf_str(g, "general.type", &type) || type.n != 7 || memcmp(type.p, "adapter", 7)))
        rc = ntx_err_set(
            err, -EINVAL,
            "%s: this is no adapter (key general.type is not 'adapter'): --lora needs a file of llama.cpp's "
            "convert_lora_to_gguf.py or ntx pack --delta --base wrote",
            path);
    ntx_gguf_free(g);
    return rc;
}

/* Adapters follow the model's own parts. */
static int open_lora(const char *lora, struct ntx_model_files *m, struct ntx_err *err)
{
    char name[NTX_LORA_NAME], path[NTX_OPTION_MAX];
    int rc = 0;
    for (unsigned i = 0; i < ntx_lora_files(lora) && !rc; i++) {
        if ((rc = ntx_lora_file(lora, i, name, sizeof name, path, sizeof path, err)))
            break;
        if (m->n == sizeof m->fds / sizeof *m->fds)
            return ntx_err_set(err, -E2BIG, "%s: too many files", path);
        if ((rc = open_part(path, &m->fds[m->n], err)))
            break;
        if ((rc = look_at_adapter(m->fds[m->n], path, err))) {
            close(m->fds[m->n]);
            break;
        }
        char *real = realpath(path, NULL);
        m->names[m->n++] = real ? real : strdup(path);
    }
    return rc;
}

/* Applies --override-kv, to the model and no other file. A key that the file lacks may be a typing error. */
static int apply_overrides(const struct ntx_options *o, const char *path, struct ntx_model_files *m,
                           struct ntx_err *err)
{
    const char *given = o->n_args && path == o->args[0] ? o->load.override_kv : NULL;
    struct ntx_override each;
    int rc;
    for (const char *at = given; (rc = ntx_override_next(&at, &each, err)) > 0;)
        if (!o->quiet && !ntx_gguf_find(m->gguf, each.key))
            ntx_say("--override-kv: the file has no key '%s'; it is added", each.key);
    return rc ? rc : ntx_gguf_override(m->gguf, given, err);
}

/* lora: adapters, or NULL. any: the file need not be a language model. */
static int open_all(const struct ntx_options *o, const char *path, const char *lora, bool any,
                    struct ntx_model_files *f, struct ntx_err *err)
{
    struct ntx_model_files m = {0};
    int rc = open_parts(path, &m, err);
    if (!rc)
        rc = open_lora(lora, &m, err);
    if (!rc)
        rc = ntx_gguf_open(m.fds, m.n, (const char *const *)m.names, &m.gguf, err);
    if (!rc)
        rc = apply_overrides(o, path, &m, err);
    if (!rc && !any)
        rc = ntx_kind_refuse(m.gguf, path, err);
    if (rc) {
        ntx_model_files_close(&m);
        return rc;
    }
    *f = m;
    return 0;
}

int ntx_model_files_load(const struct ntx_options *o, struct ntx_model_files *f, struct ntx_err *err)
{
    if (o->load.lora && *o->load.lora && o->n_also)
        return ntx_err_set(err, -ENOTSUP, "--lora and --also do not go together: an adapter has no copies");
    return open_all(o, o->args[0], o->load.lora, false, f, err);
}

int ntx_model_files_open(const struct ntx_options *o, const char *path, struct ntx_model_files *f, struct ntx_err *err)
{
    return open_all(o, path, NULL, false, f, err);
}

int ntx_model_files_any(const struct ntx_options *o, const char *path, struct ntx_model_files *f, struct ntx_err *err)
{
    return open_all(o, path, NULL, true, f, err);
}

/* Whether --ffn-sparse predicted uses the sidecar's networks: asked for, or the groups hold nothing else to predict
 * from. */
static bool uses_learned_ffn(const struct ntx_options *o, const struct ntx_model_files *f)
{
    const char *m = o->load.ffn_sparse;
    if (!m || strncmp(m, "predicted", 9))
        return false;
    return !m[9] || strstr(m, ",learned") || ntx_gguf_find(f->gguf, "ntx.pack.gate_type");
}

static int open_regular(int fd, const char *name, int *out, struct ntx_err *err)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return ntx_err_set(err, -EINVAL, "%s: not a regular file", name);
    }
    *out = fd;
    return 0;
}

/* Opens the drafter beside the model; *n 0: there is none. */
static void open_found_drafter(const struct ntx_model_files *f, int *fd, unsigned *n)
{
    int at = f->n ? ntx_drafter_file_found(f->gguf, f->names[0]) : -1;
    *n = 0;
    if (at >= 0)
        fd[(*n)++] = at;
}

int ntx_projector_open(const struct ntx_options *o, const struct ntx_model_files *f, int *fd, char path[4096],
                       struct ntx_err *err)
{
    const char *given = o->load.mmproj ? o->load.mmproj : "";
    *fd = -1;
    *path = 0;
    if (!strcmp(given, "off") || (!*given && (!f->n || !ntx_mmproj_beside(f->gguf, f->names[0], path, 4096))))
        return 0;
    char *real = realpath(*given ? given : path, NULL); /* for the daemon's messages */
    int at = real ? open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1, rc = 0;
    if (at < 0)
        rc = ntx_err_set(err, -errno, "%s: cannot open the projector: %s", *given ? given : path, strerror(errno));
    else if (strlen(real) >= 4096)
        rc = ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long", given);
    else
        rc = open_regular(at, real, fd, err);
    if (!rc)
        snprintf(path, 4096, "%s", real);
    free(real);
    return rc;
}

void ntx_projector_tell(const struct ntx_options *o, const struct ntx_model_files *f)
{
    char path[4096];
    if (!o->quiet && !(o->load.mmproj && *o->load.mmproj) && f->n &&
        ntx_mmproj_beside(f->gguf, f->names[0], path, sizeof path))
        ntx_say("images go through %s, which lies beside the model (--mmproj off leaves it out)", path);
}

/* errno says why the file cannot be opened. */
static int refuse_drafter(const char *file, struct ntx_err *err)
{
    const int why = errno;
    struct ntx_near near;
    ntx_near_begin(&near, file, "");
    ntx_near_offer_list(&near, "auto|off|lookup|nextn|self");
    if (why == ENOENT && !*near.hint)
        ntx_model_near(file, &near);
    return ntx_err_set(
        err, -why,
        "--draft %s: %s; there are auto, off, lookup, nextn, self, and drafters' files, with commas between "
        "them%s",
        file, strerror(why), near.hint);
}

/* The path of --draft self. Without a copy there it has no file: then layers of the model draft. */
static int name_self(const struct ntx_model_files *f, char *file, size_t room, bool *none, struct ntx_err *err)
{
    if (!f->n || !ntx_drafter_file_self(f->names[0], file, room))
        return ntx_err_set(err, -EINVAL, "--draft self: it needs a model's file with a shorter path");
    *none = access(file, F_OK) && errno == ENOENT;
    return 0;
}

int ntx_drafters_open(const struct ntx_options *o, const struct ntx_model_files *f, int *fd, unsigned *n,
                      struct ntx_err *err)
{
    char file[NTX_OPTION_MAX];
    if (ntx_draft_auto(o->load.draft))
        return open_found_drafter(f, fd, n), 0;
    unsigned named = ntx_draft_files(o->load.draft);
    int rc = 0;
    *n = 0;
    for (unsigned i = 0; i < named && !rc; i++) {
        bool none = false;
        if ((rc = ntx_draft_file(o->load.draft, i, file, sizeof file, err)))
            break;
        if (ntx_draft_self(file) && (rc = name_self(f, file, sizeof file, &none, err)))
            break;
        if (none)
            continue;
        int at = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        rc = at < 0 ? refuse_drafter(file, err) : open_regular(at, file, &fd[*n], err);
        *n += !rc;
    }
    while (rc && *n)
        close(fd[--*n]);
    return rc;
}

int ntx_sidecar_open(const struct ntx_options *o, const struct ntx_model_files *f, int *fd, struct ntx_err *err)
{
    char path[4096];
    size_t len = strlen(f->names[0]);
    *fd = -1;
    if (!ntx_skip_learned(o->load.skip) && !uses_learned_ffn(o, f))
        return o->sidecar ? ntx_err_set(err, -EINVAL,
                                        "--sidecar has a meaning with --skip static or predictive, and with "
                                        "--ffn-sparse predicted where that is learned")
                          : 0;
    if (len > 5 && !strcmp(f->names[0] + len - 5, ".gguf"))
        len -= 5;
    int n = snprintf(path, sizeof path, "%.*s.skip.gguf", (int)len, f->names[0]);
    const char *name = o->sidecar ? o->sidecar : path;
    if (!o->sidecar && n >= (int)sizeof path)
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long for a sidecar beside it", f->names[0]);
    int at = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (at < 0)
        return ntx_err_set(err, -errno,
                           "%s: %s; %s %s needs a sidecar: make one with ntx calibrate MODEL --text FILE -o SIDECAR",
                           name, strerror(errno), ntx_skip_learned(o->load.skip) ? "--skip" : "--ffn-sparse",
                           ntx_skip_learned(o->load.skip) ? o->load.skip : o->load.ffn_sparse);
    return open_regular(at, name, fd, err);
}

/* Opens the copies of a model, without those that f has. */
int ntx_model_copies_open(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_model_files *out,
                          struct ntx_err *err)
{
    struct ntx_model_files m = {0};
    int rc = 0;
    for (unsigned i = 0; !rc && i < o->n_also; i++) {
        rc = open_parts(o->also[i], &m, err);
        if (!rc && m.n != f->n * (i + 1))
            rc = ntx_err_set(err, -EINVAL, "%s: not as many parts as %s", o->also[i], f->names[0]);
    }
    if (!rc && m.n + f->n > sizeof m.fds / sizeof *m.fds)
        rc = ntx_err_set(err, -E2BIG, "%s: %u copies of %u parts are too many files", f->names[0], o->n_also + 1, f->n);
    if (rc) {
        ntx_model_files_close(&m);
        return rc;
    }
    *out = m;
    return 0;
}

void ntx_model_files_close(struct ntx_model_files *f)
{
    for (unsigned i = 0; i < f->n; i++) {
        close(f->fds[i]);
        free(f->names[i]);
    }
    ntx_gguf_free(f->gguf);
    *f = (struct ntx_model_files){0};
}
