/* load_drafter.c: the drafter's file (--draft FILE): found to suit the model, counted in the budget, and then the predictor's. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "infer/drafter.h"
#include "serve/draft_file.h"
#include "serve/load.h"

/* A model that we opened has its drafter's path in ntx.conf. */
static int open_path(struct ntx_load_request *r, struct ntx_err *err)
{
    if (!r->path)
        return ntx_err_set(err, -EINVAL, "--draft '%.100s': the drafter's file did not come with the request; there are also off and lookup", r->set.draft);
    r->drafter_fd = open(r->set.draft, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return r->drafter_fd < 0 ? ntx_err_set(err, -errno, "%s: cannot open the drafter: %s", r->set.draft, strerror(errno)) : 0;
}

static int opened(int fd, struct ntx_gguf **g, struct ntx_model **m, struct ntx_err *err)
{
    struct stat st;
    *g = NULL;
    *m = NULL;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return ntx_err_set(err, -EINVAL, "not a regular file");
    int rc = ntx_gguf_open(&fd, 1, NULL, g, err);
    return rc ? rc : ntx_model_open(*g, m, err);
}

int ntx__load_drafter_open(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    struct ntx_gguf *g;
    struct ntx_model *m;
    if (!ntx_draft_by_file(r->set.draft))
        return 0;
    int rc = r->drafter_fd < 0 ? open_path(r, err) : 0;
    if (rc)
        return rc;
    rc = opened(r->drafter_fd, &g, &m, err);
    if (!rc)
        rc = ntx_drafter_suits(g, l->gguf, err);
    if (!rc && ntx_count_recurrent(&m->hp))
        rc = ntx_err_set(err, -ENOTSUP, "the recurrent state of a %s model does not go back to where its guesses part from the text", m->hp.arch);
    ntx_model_free(m);
    ntx_gguf_free(g);
    if (rc) {
        ntx_err_prefix(err, "the drafter");
        return rc;
    }
    l->drafter_fd = r->drafter_fd;
    r->drafter_fd = -1;
    return 0;
}

/* Where nobody names a context the plan may have 4096 tokens at most (DESIGN section 7). */
int ntx__load_drafter_bytes(const struct ntx_loaded *l, uint32_t ctx, uint64_t *bytes, struct ntx_err *err)
{
    struct ntx_gguf *g;
    struct ntx_model *m;
    struct stat st;
    if (l->drafter_fd < 0)
        return 0;
    if (fstat(l->drafter_fd, &st))
        return ntx_err_set(err, -errno, "the drafter: %s", strerror(errno));
    int rc = opened(l->drafter_fd, &g, &m, err);
    ctx = ctx ? ctx : NTX_MIN(l->model->hp.ctx_train, 4096u);
    if (!rc && !(*bytes = ntx_drafter_bytes(g, m, (uint64_t)st.st_size, ctx, err)))
        rc = err->code;
    ntx_model_free(m);
    ntx_gguf_free(g);
    if (rc)
        ntx_err_prefix(err, "the drafter");
    else
        *bytes += ntx_drafts_bytes(ctx);
    return rc;
}
