/* SPDX-License-Identifier: Apache-2.0 */
/* pull.h: the parts of `ntx pull` and `ntx search`: the hub and the name (pull_open.c), the choice of a type
 * (pull_pick.c), the download (pull.c). */
#ifndef NTX_CLIENT_COMMANDS_PULL_H
#define NTX_CLIENT_COMMANDS_PULL_H

#include "client/commands/commands.h"
#include "client/pull/hub.h"

struct ntx_pull_what {
    char repo[NTX_HUB_NAME], type[256]; /* type "": none was given */
    char url[NTX_WEB_URL];              /* instead of both, or "" */
};

/* A model of the hub, and its files' headers. */
struct ntx_pull_heads {
    struct ntx_hub_model model;
    struct ntx_model_files files; /* only their headers */
    char (*etag)[200];            /* [model.n]; NULL: not read yet */
};

/* The hub, with the user's token. Call ntx_web_close also on failure. */
int ntx__pull_web(const struct ntx_options *o, struct ntx_web **w, struct ntx_err *err);
/* Reads the first argument and --type. */
int ntx__pull_what(const struct ntx_options *o, struct ntx_pull_what *what, struct ntx_err *err);

/* Reads the headers of h->model, each within most_s seconds (0: no limit). Call ntx__pull_heads_free in any case. */
int ntx__pull_heads(const struct ntx_options *o, struct ntx_web *w, unsigned most_s, struct ntx_pull_heads *h,
                    struct ntx_err *err);
void ntx__pull_heads_free(struct ntx_pull_heads *h);
/* Whether ntx runs it. 1: it does not, which was said, and is to be pulled anyway. */
int ntx__pull_runs(const struct ntx_options *o, const struct ntx_gguf *g, struct ntx_err *err);
/* Bytes that files may take in a folder, which need not exist yet. */
int ntx__pull_room(const char *dir, uint64_t *bytes, struct ntx_err *err);

/* Shows the types of a repository, with sizes and speeds, and lets the user pick one; best: takes the recommended one.
 * The only one is taken as it is. *h: headers that were read, if they are of the picked one. 1: nothing was picked, and
 * the command to do it was said. */
int ntx__pull_pick(const struct ntx_options *o, struct ntx_web *w, const struct ntx_hub_repo *repo, const char *name,
                   bool best, const struct ntx_hub_offer **offer, struct ntx_pull_heads *h, struct ntx_err *err);

#endif
