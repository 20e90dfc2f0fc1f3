/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/config_fit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "computed/plan/place.h"
#include "model/kind.h"
#include "model/override.h"

enum { MOST_PARTS = 128 };

/* Opens the parts of the model and reads its header. */
static int read_header(const char *path, struct ntx_gguf **g, struct ntx_err *err)
{
    char **paths = NULL;
    int fds[MOST_PARTS], n = ntx_gguf_split_paths(path, &paths, err), opened = 0;
    int rc = n < 0 ? n : 0;
    if (n > MOST_PARTS)
        rc = ntx_err_set(err, -E2BIG, "%s: %d parts are too many", path, n);
    for (; !rc && opened < n; opened++)
        if ((fds[opened] = open(paths[opened], O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0) {
            rc = ntx_err_set(err, -errno, "%s: %s", paths[opened], strerror(errno));
            break;
        }
    if (!rc)
        rc = ntx_gguf_open(fds, (unsigned)n, (const char *const *)paths, g, err);
    for (int i = 0; i < opened; i++)
        close(fds[i]);
    for (int i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
    return rc;
}

/* The least memory counts drafters and adapters for nothing: too little is refused, the rest when it is loaded. A GPU
 * may take what does not fit. */
static int check_room(const struct ntx_config *c, const struct ntx_outline *o, struct ntx_err *err)
{
    static const struct ntx_hw unknown;
    struct ntx_layout l;
    struct ntx_place_request r = {.plan = {.ram_bytes = c->load.ram,
                                           .ctx = c->load.ctx,
                                           .sessions = c->load.sessions,
                                           .threads = c->load.threads,
                                           .max_rows = c->load.rows,
                                           .kv_ram = c->load.kv_ram},
                                  .vram = UINT64_MAX};
    bool cpu = !strcmp(c->load.backend, "cpu") || access("/dev/nvidiactl", F_OK);
    int rc = ntx_kv_type_of(c->load.kv_type, &o->model->hp, &r.plan.kv_type, err);
    return rc || !c->load.ram || !cpu ? rc : ntx_place(&unknown, o, &r, &l, err);
}

void ntx_config_fit(const struct ntx_config *c, struct ntx_config_errors *e)
{
    struct ntx_gguf *g = NULL;
    struct ntx_outline o = {.own = NULL};
    struct ntx_err err = {0};
    unsigned line = ntx_config_line(c, "model", "path");
    const char *key = "path";
    if (!*c->model || access(c->model, R_OK))
        return;
    int rc = read_header(c->model, &g, &err);
    if (!rc)
        rc = ntx_kind_refuse(g, c->model, &err);
    if (!rc && (rc = ntx_gguf_override(g, c->load.override_kv, &err))) {
        line = ntx_config_line(c, "model", "override_kv");
        key = "override_kv";
    }
    if (!rc)
        rc = ntx_outline_gguf(g, c->model, &o, &err);
    if (!rc && *o.why)
        rc = ntx_err_set(&err, -ENOTSUP, "ntx does not run this file: %s", o.why);
    if (!rc && (rc = check_room(c, &o, &err))) {
        line = ntx_config_line(c, "model", "ram");
        key = "ram";
    }
    if (rc)
        ntx_config_refuse(e, line, "%s: %s", key, err.text);
    ntx_outline_free(&o);
    ntx_gguf_free(g);
}
