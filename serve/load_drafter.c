/* load_drafter.c: files that guess (--draft FILE): found to suit the model and counted in the budget; small models are then the predictor's. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "proto/frame.h"
#include "serve/load.h"

/* A model that we opened has its drafters' paths in ntx.conf. */
static int open_path(const struct ntx_load_request *r, unsigned i, int *fd, struct ntx_err *err)
{
    char file[NTX_OPTION_MAX];
    int rc = ntx_draft_file(r->set.draft, i, file, sizeof file, err);
    if (rc)
        return rc;
    if (!r->path)
        return ntx_err_set(err, -EINVAL, "--draft '%.100s': the drafter's file did not come with the request; there are also off and lookup", file);
    *fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return *fd < 0 ? ntx_err_set(err, -errno, "%s: cannot open the drafter: %s", file, strerror(errno)) : 0;
}

/* Of a model that we opened: the drafter that its card names, where it is there. */
static int open_card(const struct ntx_load_request *r, struct ntx_loaded *l)
{
    char file[NTX_OPTION_MAX];
    int fd = ntx_guesser_card(l->gguf, r->path, file, sizeof file) ? open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;
    if (fd >= 0)
        l->drafter[l->n_drafters++] = (struct ntx_load_drafter){.fd = fd};
    return 0;
}

int ntx__load_drafters_open(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    bool automatic = ntx_draft_auto(r->set.draft);
    unsigned n = automatic ? r->n_drafters : ntx_draft_files(r->set.draft);
    if (automatic && !n && r->path)
        return open_card(r, l);
    int rc = n > NTX_DRAFT_FILES ? ntx_err_set(err, -E2BIG, "--draft names more than %u files", NTX_DRAFT_FILES) : 0;
    for (unsigned i = 0; i < n && !rc; i++) {
        struct ntx_load_drafter *d = &l->drafter[i];
        *d = (struct ntx_load_drafter){.fd = i < r->n_drafters ? r->drafter_fd[i] : -1};
        if (i < r->n_drafters)
            r->drafter_fd[i] = -1;
        rc = d->fd < 0 ? open_path(r, i, &d->fd, err) : 0;
        l->n_drafters += !rc;
    }
    return rc;
}

/* Where nobody names a context the plan may have 4096 tokens at most. */
int ntx__load_drafters_bytes(struct ntx_loaded *l, const char *draft, uint32_t ctx, uint64_t *bytes, struct ntx_err *err)
{
    int rc = 0;
    ctx = ctx ? ctx : NTX_MIN(l->model->hp.ctx_train, 4096u);
    *bytes = 0;
    for (unsigned i = 0; i < l->n_drafters && !rc; i++) {
        uint64_t its = 0;
        rc = ntx_guesser_look(l->drafter[i].fd, l->gguf, ctx, &l->drafter[i].kind, &its, err);
        *bytes += its + (l->drafter[i].kind == NTX_GUESSER_MODEL ? ntx_drafts_bytes(ctx) : 0);
    }
    bool unasked = l->n_drafters && ntx_draft_auto(draft), never = unasked && ntx__load_undrafted(l);
    if (!unasked || (!rc && !never && ntx_guesser_small(*bytes, l->ram_bytes)))
        return rc;
    ntx_log(NTX_LOG_INFO, "the drafter that the model's card names is not used: %s", rc ? err->text : never ? "guesses of a file do not suit its recurrent state here" : "it would take too much of --ram");
    ntx__load_drafters_free(l);
    l->n_drafters = 0;
    *bytes = 0;
    *err = (struct ntx_err){0};
    return 0;
}

int ntx__load_drafters_build(struct ntx_loaded *l, uint64_t epoch, struct ntx_err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < l->n_drafters && !rc; i++) {
        struct ntx_load_drafter *d = &l->drafter[i];
        rc = d->kind == NTX_GUESSER_MODEL ? ntx_drafts_make(epoch, l->plan->ctx, &d->drafts, err) : ntx_guesser_new(d->fd, l->gguf, &d->guesser, err);
    }
    return rc;
}

void ntx__load_drafters_free(struct ntx_loaded *l)
{
    for (unsigned i = 0; i < l->n_drafters; i++) {
        struct ntx_load_drafter *d = &l->drafter[i];
        close(d->fd);
        ntx_guesser_free(d->guesser);
        if (d->drafts.asks)
            ntx_drafts_close(&d->drafts);
    }
}
