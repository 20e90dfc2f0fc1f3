/* SPDX-License-Identifier: Apache-2.0 */
/* plan_image.c: what a picture becomes by the model's projector. Headers alone are read. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/commands/plan.h"
#include "computed/picture/picture.h"
#include "computed/vision/vision.h"
#include "model/arch.h"

static int measure_image(const struct ntx_vision *v, struct ntx_plan_image *m, struct ntx_err *err)
{
    int rc = ntx_picture_size(ntx_vision_rule(v), m->width, m->height, &m->fit_width, &m->fit_height, err);
    if (rc)
        return rc;
    ntx_vision_grid(v, m->fit_width, m->fit_height, &m->columns, &m->rows);
    m->tokens = m->columns * m->rows + (ntx_vision_text(v)->row_end ? m->rows - 1 : 0);
    m->bytes = ntx_vision_bytes(v, m->fit_width, m->fit_height);
    return 0;
}

static int look_at_projector(int fd, const struct ntx_model_files *f, struct ntx_plan_image *m, struct ntx_err *err)
{
    struct ntx_model *text = NULL;
    struct ntx_vision *v = NULL;
    int rc = ntx_model_open(f->gguf, &text, err);
    if (!rc)
        rc = ntx_vision_open(&(struct ntx_vision_config){.fd = fd, .text = text, .threads = 1, .look = true}, &v, err);
    if (!rc)
        rc = measure_image(v, m, err);
    ntx_vision_close(v);
    ntx_model_free(text);
    return rc;
}

int ntx__plan_image(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_plan_answer *a,
                    struct ntx_err *err)
{
    struct ntx_plan_image m = {0};
    char path[4096], rest;
    int fd = -1;
    if (sscanf(o->image_size, "%ux%u%c", &m.width, &m.height, &rest) != 2 || !m.width || !m.height)
        return ntx_err_set(err, -EINVAL, "--image %s: is no size in pixels; write it as 4000x3000", o->image_size);
    if (!f->n)
        return ntx_err_set(err, -EINVAL, "--image needs the model's file, and its projector (--mmproj FILE)");
    int rc = ntx_projector_open(o, f, &fd, path, err);
    if (!rc && fd < 0)
        rc = ntx_err_set(err, -ENOENT, "--image: no projector lies beside the model; name it with --mmproj FILE");
    if (!rc && (rc = look_at_projector(fd, f, &m, err)))
        ntx_err_prefix(err, "%s", path);
    if (fd >= 0)
        close(fd);
    if (!rc)
        a->image = m;
    return rc;
}
