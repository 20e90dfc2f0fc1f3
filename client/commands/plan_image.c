/* SPDX-License-Identifier: Apache-2.0 */
/* plan_image.c: what a picture becomes by the model's projector. Headers alone are read. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/commands/plan.h"
#include "computed/picture/picture.h"
#include "computed/vision/need.h"
#include "model/arch.h"

static int measure_image(const struct ntx_vision *v, struct ntx_plan_image *m, struct ntx_err *err)
{
    struct ntx_fitted size;
    int rc = ntx_picture_size(ntx_vision_rule(v), m->width, m->height, &size, err);
    if (rc)
        return rc;
    m->fit_width = size.width;
    m->fit_height = size.height;
    m->grid = ntx_vision_grid_of(v, &size);
    m->tokens = (uint32_t)ntx_vision_tokens(v, &m->grid);
    m->bytes = ntx_vision_bytes(v, &size);
    return 0;
}

static int open_look(int fd, const struct ntx_model_files *f, bool streams, struct ntx_vision **v, struct ntx_err *err)
{
    struct ntx_model *text = NULL;
    int rc = ntx_model_open(f->gguf, &text, err);
    if (!rc)
        rc = ntx_vision_open(
            &(struct ntx_vision_config){.fd = fd, .text = text, .threads = 1, .look = true, .streams = streams}, v,
            err);
    ntx_model_free(text);
    return rc;
}

static int look_at_projector(int fd, const struct ntx_model_files *f, bool streams, struct ntx_plan_image *m,
                             struct ntx_err *err)
{
    struct ntx_vision *v = NULL;
    int rc = open_look(fd, f, streams, &v, err);
    if (!rc)
        rc = measure_image(v, m, err);
    ntx_vision_close(v);
    return rc;
}

int ntx__plan_projector(const struct ntx_options *o, const struct ntx_model_files *f, uint64_t ram,
                        struct ntx_plan_answer *a, struct ntx_err *err)
{
    struct ntx_vision *v = NULL;
    char path[4096];
    int fd = -1, rc = f->n ? ntx_projector_open(o, f, &fd, path, err) : 0;
    if (rc || fd < 0)
        return rc;
    a->projector_found = !(o->load.mmproj && *o->load.mmproj);
    rc = open_look(fd, f, false, &v, err);
    if (!rc)
        rc = ntx_vision_need_of(v, ram, &a->sight, err);
    a->sees = !rc;
    ntx_vision_close(v);
    close(fd);
    if (rc && a->projector_found) { /* as a load, which takes no pictures then */
        *err = (struct ntx_err){0};
        return 0;
    }
    return rc ? ntx_err_prefix(err, "%s", path) : 0;
}

int ntx__plan_image(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_plan_answer *a,
                    struct ntx_err *err)
{
    struct ntx_plan_image m = {0};
    char path[4096], rest;
    int fd = -1;
    if (sscanf(o->image_size, "%ux%u%c", &m.width, &m.height, &rest) != 2 || !m.width || !m.height)
        return ntx_err_set(err, -EINVAL, "--image: '%s' is no size in pixels; write it as 4000x3000", o->image_size);
    if (!f->n)
        return ntx_err_set(err, -EINVAL, "--image needs the model's file, and its projector (--mmproj FILE)");
    int rc = ntx_projector_open(o, f, &fd, path, err);
    if (!rc && fd < 0)
        rc = ntx_err_set(err, -ENOENT, "--image: no projector lies beside the model; name it with --mmproj FILE");
    if (!rc && (rc = look_at_projector(fd, f, a->sight.streams, &m, err)))
        ntx_err_prefix(err, "%s", path);
    if (fd >= 0)
        close(fd);
    if (!rc)
        a->image = m;
    return rc;
}
