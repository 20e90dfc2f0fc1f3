/* load_drafter.c: the drafter's file (--draft FILE): found to suit the model and counted in the budget, and then the predictor's. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "infer/drafter.h"
#include "serve/draft_file.h"
#include "serve/load.h"

/* A model that we opened has its drafter's path in ntx.conf. */
static int open_path(struct ntx_load_request *r, struct ntx_err *err)
{
    const char *file = ntx_draft_file(r->set.draft);
    if (!r->path)
        return ntx_err_set(err, -EINVAL, "--draft '%.100s': the drafter's file did not come with the request; there are also off and lookup", file);
    r->drafter_fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return r->drafter_fd < 0 ? ntx_err_set(err, -errno, "%s: cannot open the drafter: %s", file, strerror(errno)) : 0;
}

int ntx__load_drafter_open(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    if (!ntx_draft_file(r->set.draft))
        return 0;
    int rc = r->drafter_fd < 0 ? open_path(r, err) : 0;
    l->drafter_fd = r->drafter_fd;
    r->drafter_fd = -1;
    return rc;
}

/* Where nobody names a context the plan may have 4096 tokens at most. */
int ntx__load_drafter_bytes(const struct ntx_loaded *l, uint32_t ctx, uint64_t *bytes, struct ntx_err *err)
{
    ctx = ctx ? ctx : NTX_MIN(l->model->hp.ctx_train, 4096u);
    int rc = l->drafter_fd < 0 ? 0 : ntx_drafter_look(l->drafter_fd, l->gguf, ctx, bytes, err);
    *bytes += l->drafter_fd < 0 || rc ? 0 : ntx_drafts_bytes(ctx);
    return rc;
}
