/* SPDX-License-Identifier: Apache-2.0 */
#include "client/quantize/job.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "client/quantize/job_impl.h"
#include "common/new_file.h"
#include "common/util.h"
#include "model/gguf_out.h"
#include "model/tensors.h"

#define MAX_PARTS   128u
#define HEADER_ROOM (64u << 10) /* of a part, besides its tensors: their names */

/* ---- types by pattern */

static int match_rule(const struct ntx__job *j, const struct ntx_quantize_rule *r, uint32_t *given, struct ntx_err *err)
{
    int number;
    size_t at;
    char words[128] = "";
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)r->pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &number, &at, NULL);
    if (!re) {
        pcre2_get_error_message(number, (PCRE2_UCHAR *)words, sizeof words);
        return ntx_err_set(err, -EINVAL, "'%s' is no regular expression: %s at character %zu", r->pattern, words,
                           at + 1);
    }
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    uint32_t matched = 0;
    for (uint32_t i = 0; m && i < j->n; i++) {
        const struct ntx_gguf_tensor *t = j->target[i].t;
        if (!ntx_mix_allows(j->g, t) || pcre2_match(re, (PCRE2_SPTR)t->name, strlen(t->name), 0, 0, m, NULL) < 0)
            continue;
        matched++;
        given[i] = given[i] == NTX_TYPE_LIMIT ? r->type : given[i];
    }
    pcre2_match_data_free(m);
    pcre2_code_free(re);
    if (!m)
        return ntx_err_set(err, -ENOMEM, "no memory");
    return matched ? 0
                   : ntx_err_set(err, -EINVAL,
                                 "'%s' is the name of no tensor that can be quantised; ntx inspect MODEL shows them",
                                 r->pattern);
}

static int take_rules(const struct ntx__job *j, uint32_t *given, struct ntx_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < j->n; i++)
        given[i] = NTX_TYPE_LIMIT;
    for (uint32_t i = 0; i < j->o->n_rules && !rc; i++)
        rc = match_rule(j, &j->o->rules[i], given, err);
    return rc;
}

/* ---- importance */

static int take_importance(struct ntx__job *j, struct ntx_err *err)
{
    for (uint32_t i = 0; i < j->n; i++) {
        const struct ntx_gguf_tensor *t = j->target[i].t;
        const struct ntx_importance *k = ntx_imatrix_find(j->o->imatrix, t->name);
        const uint64_t n_mat = t->ne[2] * t->ne[3];
        const bool counted_once = k && k->n_mat == 1 && k->n == t->ne[0] * n_mat; /* llama.cpp's form, for heads */
        if (k && !counted_once && (k->n != t->ne[0] || (k->n_mat != 1 && k->n_mat != n_mat)))
            return ntx_err_set(err, -EINVAL,
                               "the importance matrix is another model's: it has %u x %u values for tensor '%s', which "
                               "has %llu x %llu inputs; make one with ntx imatrix MODEL TEXT -o FILE",
                               k->n_mat, k->n, t->name, (unsigned long long)n_mat, (unsigned long long)t->ne[0]);
        j->target[i].importance = k;
    }
    return 0;
}

/* Reports the matrices that the importance matrix covers; refuses types that need it. */
static int look_at_importance(struct ntx__job *j, struct ntx_err *err)
{
    struct ntx_quantize_report *r = j->report;
    for (uint32_t i = 0; i < j->n; i++) {
        const struct ntx__target *k = &j->target[i];
        if (k->type == k->t->type)
            continue;
        if (!j->o->dry && !k->importance && ntx_mix_needs_importance(j->o->mix, k->t->name, k->type))
            return ntx_err_set(err, -EINVAL,
                               "tensor '%s' would be %s, which is worth little without an importance matrix%s; make "
                               "one with ntx imatrix MODEL TEXT -o FILE, and give it with --imatrix FILE",
                               k->t->name, ntx_type_info(k->type)->name,
                               j->o->imatrix ? ", and this one says nothing about it" : "");
        r->n_unknown += j->o->imatrix && !k->importance;
        for (uint32_t m = 0;
             k->importance && ntx_is_experts(k->t->name) && k->importance->n_mat > 1 && m < k->importance->n_mat; m++) {
            r->n_unseen += k->importance->count[m] == 0;
            r->n_experts++;
        }
    }
    return 0;
}

/* ---- scales of whole matrices (NVFP4's "X.scale" beside "X.weight"): in other types they are multiplied into the
 * weights */

static int32_t find_target(const struct ntx__job *j, const char *stem, size_t len, const char *end)
{
    for (uint32_t i = 0; i < j->n; i++) {
        const char *name = j->target[i].t->name;
        if (!strncmp(name, stem, len) && !strcmp(name + len, end))
            return (int32_t)i;
    }
    return -1;
}

static int fold_scale(struct ntx__job *j, struct ntx__target *s, struct ntx__target *w, struct ntx_err *err)
{
    uint64_t n = s->t->bytes / sizeof(float);
    if (s->t->type != NTX_F32 || (n != 1 && n != w->t->ne[2] * w->t->ne[3]))
        return ntx_err_set(err, -EINVAL, "tensor '%s' has %llu values of type %s; F32 is wanted, and 1 or %llu",
                           s->t->name, (unsigned long long)n, ntx_type_info(s->t->type)->name,
                           (unsigned long long)(w->t->ne[2] * w->t->ne[3]));
    if (!(w->scale = malloc(s->t->bytes)))
        return ntx_err_set(err, -ENOMEM, "no memory");
    w->n_scale = (uint32_t)n;
    s->dropped = true;
    return ntx__read_at(j, s->t, 0, w->scale, s->t->bytes, err);
}

static int fold_scales(struct ntx__job *j, struct ntx_err *err)
{
    static const char *const ends[] = {".input_scale", ".scale"};
    int rc = 0;
    for (uint32_t i = 0; i < j->n && !rc; i++) {
        const char *name = j->target[i].t->name;
        for (int e = 0; e < 2; e++) {
            size_t len = strlen(name), end = strlen(ends[e]);
            int32_t at = len > end && !strcmp(name + len - end, ends[e]) ? find_target(j, name, len - end, ".weight")
                                                                         : -1;
            if (at < 0 || j->target[at].type == j->target[at].t->type)
                continue;
            if (e)
                rc = fold_scale(j, &j->target[i], &j->target[at], err);
            j->target[i].dropped = true; /* of inputs: for kernels that round these to four bits, too */
            break;
        }
    }
    return rc;
}

/* ---- types and sizes */

static uint64_t target_bytes(const struct ntx__target *k)
{
    return k->dropped ? 0 : ntx_row_bytes(k->type, k->t->ne[0]) * k->t->ne[1] * k->t->ne[2] * k->t->ne[3];
}

/* The text never reaches next-token blocks after the layers: they get types that need no importance matrix. */
static uint32_t seen_or_safe(struct ntx__job *j, const struct ntx__target *k, uint32_t type)
{
    if (!j->o->imatrix || k->importance || type == k->t->type || !ntx_mix_is_nextn(j->g, k->t->name) ||
        !ntx_mix_needs_importance(j->o->mix, k->t->name, type))
        return type;
    j->report->n_nextn++;
    return type == NTX_IQ3_XXS || type == NTX_Q2_K ? NTX_Q3_K : NTX_Q2_K;
}

static int choose_types(struct ntx__job *j, struct ntx_err *err)
{
    const struct ntx_quantize_options *o = j->o;
    uint32_t *given = malloc((size_t)(j->n + 1) * sizeof *given), *type = malloc((size_t)(j->n + 1) * sizeof *type);
    struct ntx_mix_model of = ntx_mix_model_of(j->g, o->imatrix);
    int rc = given && type ? take_rules(j, given, err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc && o->mix && !(rc = ntx_mix_choose(o->mix, j->g, &of, o->pure, given, type, &j->report->n_other, err)))
        for (uint32_t i = 0; i < j->n; i++)
            j->target[i].type = given[i] == NTX_TYPE_LIMIT ? seen_or_safe(j, &j->target[i], type[i]) : type[i];
    if (!rc && !o->mix)
        rc = ntx__choose_by_size(j, given, o->fit, err);
    free(given);
    free(type);
    return rc;
}

static bool was_quantised(uint32_t type) { return ntx_type_info(type)->block > 1; }

static void count_report(struct ntx__job *j)
{
    struct ntx_quantize_report *r = j->report;
    for (uint32_t i = 0; i < j->n; i++) {
        const struct ntx__target *k = &j->target[i];
        r->values += k->t->ne[0] * k->t->ne[1] * k->t->ne[2] * k->t->ne[3];
        r->n_changed += k->type != k->t->type;
        r->n_twice += k->type != k->t->type && was_quantised(k->t->type);
        if (j->o->dry && j->o->on_type)
            j->o->on_type(j->o->ctx, k->t, k->type, -1);
    }
}

static int prepare_job(struct ntx__job *j, struct ntx_err *err)
{
    struct ntx_quantize_report *r = j->report;
    j->n = r->n_tensors = (uint32_t)ntx_gguf_n_tensors(j->g);
    if (ntx_gguf_find(j->g, "ntx.pack.version"))
        return ntx_err_set(err, -EINVAL,
                           "the model is packed (ntx pack): quantise the one that it was made from, ntx quantize MODEL "
                           "OUT.gguf TYPE, and pack that, ntx pack OUT.gguf PACKED.gguf");
    if (!(j->target = calloc((size_t)j->n + 1, sizeof *j->target)))
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (uint32_t i = 0; i < j->n; i++) {
        j->target[i] = (struct ntx__target){.t = ntx_gguf_tensor_at(j->g, i),
                                            .type = ntx_gguf_tensor_at(j->g, i)->type};
        r->bytes_in += j->target[i].t->bytes;
    }
    int rc = take_importance(j, err);
    if (!rc && !(rc = choose_types(j, err)) && !(rc = look_at_importance(j, err)) && !(rc = fold_scales(j, err)))
        count_report(j);
    return rc;
}

/* ---- the files */

struct part {
    struct ntx_gguf_out *g;
    uint32_t first, n; /* tensors */
    char path[NTX_NEW_FILE_PATH], older[NTX_NEW_FILE_PATH + 32];
    struct ntx_new_file file;
    bool named, had_older;
};

struct files {
    struct part part[MAX_PARTS];
    uint32_t n;
};

static bool starts(struct ntx_str s, const char *with)
{
    return s.n >= strlen(with) && !memcmp(s.p, with, strlen(with));
}
static bool str_is(struct ntx_str s, const char *what) { return s.n == strlen(what) && !memcmp(s.p, what, s.n); }

/* Keys that this file sets itself. */
static bool is_replaced(const struct ntx__job *j, struct ntx_str key)
{
    return str_is(key, "general.file_type") || str_is(key, "general.quantization_version") ||
           str_is(key, "general.alignment") || starts(key, "split.") ||
           (j->o->imatrix && starts(key, "quantize.imatrix."));
}

static void put_keys(const struct ntx__job *j, struct ntx_gguf_out *g)
{
    const struct ntx_quantize_options *o = j->o;
    for (uint64_t i = 0; i < ntx_gguf_n_kv(j->g); i++)
        if (!is_replaced(j, ntx_gguf_kv_at(j->g, i)->key))
            ntx_gguf_out_copy(g, ntx_gguf_kv_at(j->g, i));
    if (o->mix)
        ntx_gguf_out_u32(g, "general.file_type", ntx_mix_file_type(o->mix));
    ntx_gguf_out_u32(g, "general.quantization_version", 2);
    if (o->imatrix) {
        ntx_gguf_out_str(g, "quantize.imatrix.file", o->imatrix_path);
        ntx_gguf_out_str(g, "quantize.imatrix.dataset", ntx_imatrix_dataset(o->imatrix));
        ntx_gguf_out_u32(g, "quantize.imatrix.entries_count", ntx_imatrix_n(o->imatrix));
        ntx_gguf_out_u32(g, "quantize.imatrix.chunks_count", ntx_imatrix_chunks(o->imatrix));
    }
}

static void put_split(struct ntx_gguf_out *g, uint32_t no, uint32_t n, uint32_t n_tensors)
{
    uint16_t number = (uint16_t)no, count = (uint16_t)n;
    int32_t tensors = (int32_t)n_tensors;
    ntx_gguf_out_copy(g,
                      &(struct ntx_gguf_kv){.key = {"split.no", 8}, .type = NTX_GGUF_U16, .count = 1, .data = &number});
    ntx_gguf_out_copy(
        g, &(struct ntx_gguf_kv){.key = {"split.count", 11}, .type = NTX_GGUF_U16, .count = 1, .data = &count});
    ntx_gguf_out_copy(g, &(struct ntx_gguf_kv){
                             .key = {"split.tensors.count", 19}, .type = NTX_GGUF_I32, .count = 1, .data = &tensors});
}

static uint64_t largest_tensor(const struct ntx__job *j)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < j->n; i++)
        most = NTX_MAX(most, NTX_ROUND_UP(target_bytes(&j->target[i]), 32u));
    return most;
}

/* Size of a part: all but the last are full, less at most the largest tensor. */
static uint64_t part_size(const struct ntx__job *j)
{
    uint64_t all = ntx_gguf_header_bytes(j->g);
    for (uint32_t i = 0; i < j->n; i++)
        all += NTX_ROUND_UP(target_bytes(&j->target[i]), 32u);
    return all / (MAX_PARTS - 1) + 1 + HEADER_ROOM + largest_tensor(j);
}

/* Assigns the tensors to parts. */
static int cut_parts(const struct ntx__job *j, struct files *f, struct ntx_err *err)
{
    uint64_t room = j->o->split ? j->o->split : UINT64_MAX, used = ntx_gguf_header_bytes(j->g) + HEADER_ROOM;
    f->n = 1;
    for (uint32_t i = 0; i < j->n; i++) {
        uint64_t bytes = NTX_ROUND_UP(target_bytes(&j->target[i]), 32u);
        if (bytes > room - NTX_MIN(room, HEADER_ROOM))
            return ntx_err_set(
                err, -EINVAL,
                "tensor '%s' alone takes %llu bytes: parts of %llu are too small; --split %llu is the least",
                j->target[i].t->name, (unsigned long long)bytes, (unsigned long long)room,
                (unsigned long long)largest_tensor(j) + HEADER_ROOM);
        if (f->part[f->n - 1].n && bytes > room - NTX_MIN(room, used)) {
            if (f->n == MAX_PARTS)
                return ntx_err_set(err, -E2BIG, "more than %u parts; --split %llu or more is few enough", MAX_PARTS,
                                   (unsigned long long)part_size(j));
            f->part[f->n++].first = i;
            used = HEADER_ROOM;
        }
        f->part[f->n - 1].n++;
        used += bytes;
    }
    return 0;
}

static int name_part(struct part *p, const char *out, uint32_t no, uint32_t n, struct ntx_err *err)
{
    size_t len = strlen(out);
    char path[sizeof p->path];
    int k;
    if (n == 1) {
        k = snprintf(path, sizeof path, "%s", out);
    } else {
        len -= len > 5 && !strcmp(out + len - 5, ".gguf") ? 5 : 0;
        k = snprintf(path, sizeof path, "%.*s-%05u-of-%05u.gguf", (int)len, out, no + 1, n);
    }
    memcpy(p->path, path, sizeof path);
    snprintf(p->older, sizeof p->older, "%s.%d.old", path, (int)getpid());
    return k >= (int)sizeof path ? ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long", out) : 0;
}

static int write_tensor(void *ctx, uint32_t tensor, int fd, struct ntx_err *err)
{
    return ntx__write_tensor(ctx, tensor, fd, err);
}

static int make_part(struct ntx__job *j, struct files *f, uint32_t no, const char *out, struct ntx_err *err)
{
    struct part *p = &f->part[no];
    if (!(p->g = ntx_gguf_out_new()))
        return ntx_err_set(err, -ENOMEM, "no memory");
    if (!no)
        put_keys(j, p->g);
    uint32_t n_tensors = 0;
    for (uint32_t i = 0; i < j->n; i++)
        n_tensors += !j->target[i].dropped;
    if (f->n > 1)
        put_split(p->g, no, f->n, n_tensors);
    for (uint32_t i = p->first; i < p->first + p->n; i++) {
        const struct ntx__target *k = &j->target[i];
        if (!k->dropped)
            ntx_gguf_out_data(p->g, k->t->name, k->type, k->t->ne, k->t->n_dims, write_tensor, j, i);
    }
    j->report->bytes_out += ntx_gguf_out_bytes(p->g);
    return name_part(p, out, no, f->n, err);
}

/* No part may be one of the model's own files, which are read at the same time. */
static int check_place(const struct ntx__job *j, const struct files *f, struct ntx_err *err)
{
    struct stat a, b;
    for (uint32_t i = 0; i < f->n; i++) {
        if (stat(f->part[i].path, &a))
            continue;
        if (!S_ISREG(a.st_mode))
            return ntx_err_set(err, -EINVAL, "%s: not a regular file", f->part[i].path);
        for (uint32_t t = 0; t < j->n; t++)
            if (!fstat(j->fds[j->target[t].t->file], &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
                return ntx_err_set(err, -EINVAL, "%s: this is the model itself; give another name", f->part[i].path);
    }
    return 0;
}

/* A size for fit that suffices where only `room` bytes are free; 0: none does. */
static uint64_t fit_for_room(const struct ntx__job *j, uint64_t room)
{
    uint32_t *given = malloc((size_t)(j->n + 1) * sizeof *given);
    uint64_t least = UINT64_MAX;
    if (given && !j->o->split && !take_rules(j, given, NULL))
        least = ntx__least_by_size(j, given);
    free(given);
    room -= room / 256; /* for the file system itself */
    return least <= room ? room : 0;
}

static int check_space(const struct ntx__job *j, const char *path, struct ntx_err *err)
{
    char folder[NTX_NEW_FILE_PATH], want[32], have[32], fit[80] = "";
    struct statvfs v;
    if (ntx_folder_of(path, folder) || statvfs(folder, &v))
        return ntx_err_set(err, -errno, "%s: cannot write %s there: %s", folder, path, strerror(errno));
    uint64_t bytes = (uint64_t)v.f_bavail * v.f_frsize, size;
    if (bytes >= j->report->bytes_out)
        return 0;
    if ((size = fit_for_room(j, bytes)))
        snprintf(fit, sizeof fit, "; fit:%llu as TYPE makes a file that fits", (unsigned long long)size);
    return ntx_err_set(err, -ENOSPC, "%s needs %s, and %s are free there; make room, or take another drive%s", path,
                       ntx_format_size(j->report->bytes_out, want, sizeof want),
                       ntx_format_size(bytes, have, sizeof have), fit);
}

static int write_part(struct part *p, struct ntx_err *err)
{
    struct ntx_err why = {0};
    int rc = ntx_new_file_open(&p->file, p->path);
    if (!rc)
        rc = ntx_gguf_out_write_fd(p->g, p->file.fd, &why);
    if (rc == -EINTR && why.code)
        return ntx_err_set(err, rc, "%s", why.text);
    if (!rc)
        return 0;
    return ntx_err_set(err, rc, "%s: cannot write: %s", p->path, why.code ? why.text : strerror(-rc));
}

/* After this, the names are on the drive, too. */
static void sync_folder(const char *path)
{
    char folder[NTX_NEW_FILE_PATH];
    int fd = ntx_folder_of(path, folder) ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

/* An existing file of the part's name gets a second name until all parts are named (or is renamed, on file systems
 * without hard links). */
static int keep_older(struct part *p)
{
    struct stat st;
    if (lstat(p->path, &st) || !(S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)))
        return 0;
    p->had_older = !link(p->path, p->older) || !rename(p->path, p->older);
    return p->had_older ? 0 : -errno;
}

static int name_files(struct files *f, struct ntx_err *err)
{
    for (uint32_t i = 0; i < f->n; i++) {
        struct part *p = &f->part[i];
        int rc = f->n > 1 ? keep_older(p) : 0;
        if (!rc)
            rc = ntx_new_file_name(&p->file, p->path);
        if (rc)
            return ntx_err_set(err, rc, "%s: cannot be named so: %s", p->path, strerror(-rc));
        p->named = true;
    }
    sync_folder(f->part[0].path);
    return 0;
}

static int write_files(struct files *f, struct ntx_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < f->n && !rc; i++)
        rc = write_part(&f->part[i], err);
    return rc ? rc : name_files(f, err);
}

/* After a failure the old files are back. */
static void clean_up(struct part *p, bool failed)
{
    bool back = failed && p->had_older && !rename(p->older, p->path); /* does nothing where both names mean one file */
    ntx_new_file_drop(&p->file);
    if (failed && p->named && !p->had_older)
        unlink(p->path);
    if (p->had_older && (!failed || back))
        unlink(p->older);
}

static void close_files(struct files *f, int rc)
{
    for (uint32_t i = 0; f && i < f->n; i++) {
        clean_up(&f->part[i], rc != 0);
        ntx_gguf_out_free(f->part[i].g);
    }
    free(f);
}

static int write_model(struct ntx__job *j, const char *out, struct ntx_err *err)
{
    struct files *f = calloc(1, sizeof *f);
    int rc = f ? cut_parts(j, f, err) : ntx_err_set(err, -ENOMEM, "no memory");
    for (uint32_t i = 0; !rc && i < f->n; i++)
        rc = make_part(j, f, i, out, err);
    if (!rc && !(rc = check_place(j, f, err)) && !j->o->dry && !(rc = check_space(j, f->part[0].path, err)))
        rc = write_files(f, err);
    if (!rc)
        j->report->parts = f->n;
    close_files(f, rc);
    return rc;
}

int ntx_quantize_model(const struct ntx_gguf *g, const int *fds, const char *out, const struct ntx_quantize_options *o,
                       struct ntx_quantize_report *report, struct ntx_err *err)
{
    struct ntx_quantize_report r = {0};
    struct ntx__job j = {.g = g, .fds = fds, .o = o, .report = &r, .threads = NTX_MAX(o->threads, 1u)};
    int rc = ntx_gguf_planes(g) ? ntx_err_set(err, -ENOTSUP,
                                              "it is split in high and low bits (ntx pack --planes): make it whole "
                                              "again by ntx pack --join")
                                : prepare_job(&j, err);
    if (!rc)
        rc = write_model(&j, out, err);
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        ntx_quantizer_free(j.quantizer[t]);
    for (uint32_t i = 0; j.target && i < j.n; i++)
        free(j.target[i].scale);
    free(j.target);
    if (rc)
        return rc;
    r.error = j.squares > 0 ? sqrt(j.error / j.squares) : 0;
    *report = r;
    return 0;
}
