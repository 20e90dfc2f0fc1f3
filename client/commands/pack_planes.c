/* SPDX-License-Identifier: Apache-2.0 */
/* ntx pack MODEL OUT --planes, and --join: a model as high and low bits (model/planes.h), and back. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/commands/pack.h"
#include "client/out.h"
#include "common/util.h"
#include "computed/draft/drafter_file.h"
#include "model/planes_make.h"

/* The file of high bits must not be one of the model's. */
static int check_high_path(const struct ntx_model_files *f, const char *path, struct ntx_err *err)
{
    struct stat to, st;
    for (unsigned i = 0; !stat(path, &to) && i < f->n; i++)
        if (!fstat(f->fds[i], &st) && st.st_dev == to.st_dev && st.st_ino == to.st_ino)
            return ntx_err_set(err, -EINVAL, "%s: this is the model itself; give OUT another name", path);
    return 0;
}

static void print_planes_report(const struct ntx_options *o, const char *high, const struct ntx_planes_report *r)
{
    char low_bytes[32], high_bytes[32], whole[32];
    if (o->json) {
        json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:I, s:b}", "low", o->args[1], "high", high, "low_bytes",
                              (json_int_t)r->low, "high_bytes", (json_int_t)r->high, "whole_bytes",
                              (json_int_t)r->whole, "same_file", r->same_file);
        ntx_out_json(j, JSON_COMPACT);
        json_decref(j);
        return;
    }
    if (o->quiet)
        return;
    printf("%s: low bits, %s\n%s: high bits and all else, %s, which stay in memory and draft\n", o->args[1],
           ntx_format_size(r->low, low_bytes, sizeof low_bytes), high,
           ntx_format_size(r->high, high_bytes, sizeof high_bytes));
    if (r->whole)
        printf("%s of it are matrices of types that have no low bits\n",
               ntx_format_size(r->whole, whole, sizeof whole));
    puts(r->same_file ? "no weight was changed: ntx pack --join gives the file back byte by byte"
                      : "no weight was changed: ntx pack --join gives the tensors back, in another order of the file");
}

int ntx__pack_planes(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_model *m,
                     struct ntx_err *err)
{
    struct ntx_planes_report r;
    char high[4096];
    if (!ntx_drafter_file_self(o->args[1], high, sizeof high))
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long", o->args[1]);
    int rc = check_high_path(f, high, err);
    if (!rc)
        rc = ntx_planes_make(m, f->fds, o->low_bits ? o->low_bits : 2, o->args[1], high, &r, err);
    if (!rc)
        print_planes_report(o, high, &r);
    else
        ntx_err_prefix(err, "%s", f->names[0]);
    return rc;
}

int ntx__pack_join(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_err *err)
{
    if (!ntx_gguf_planes(f->gguf))
        return ntx_err_set(err, -EINVAL,
                           "%s: it has no low bits to join (--join): give the file that ntx pack --planes wrote as OUT",
                           f->names[0]);
    int rc = ntx_planes_whole_make(f->gguf, f->fds, o->args[1], err);
    if (!rc && o->json)
        puts("{}");
    else if (!rc && !o->quiet)
        printf("%s: whole again\n", o->args[1]);
    return rc;
}
