/* SPDX-License-Identifier: Apache-2.0 */
/* draft_states.c: a drafter in this process as a source of proposals (draft_file.h): by the model's states (its own
 * next-token block, or a file), or by its layers in memory. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/draft_file.h"

static struct ntx_drafter_text shown_text(const struct ntx_draft_text *t)
{
    return (struct ntx_drafter_text){.session = t->session,
                                     .tokens = t->tokens,
                                     .n = t->n,
                                     .n_prompt = t->n_prompt,
                                     .sampling = *t->sampling,
                                     .kv = t->kv,
                                     .adapter = t->adapter};
}

static void take_tree(struct ntx_draft_file *f, const struct ntx_draft_text *t, unsigned number)
{
    struct ntx_draft_node node[NTX_DRAFTER_NODES];
    f->tree.n_nodes = ntx_drafter_tree(f->by_states, number, node);
    f->tree.n_text = t->n;
    for (uint32_t i = 0; i < f->tree.n_nodes; i++)
        f->tree.node[i] = (struct ntx_drafts_node){node[i].token, node[i].parent, node[i].chance};
}

/* A step, whose time is learned. Returns as ntx_drafter_grow. */
static int grow_once(struct ntx_draft_file *f, unsigned number)
{
    const uint64_t t0 = ntx_now_ns();
    int rc = ntx_drafter_grow(f->by_states, number, NTX_DRAFT_NODES);
    if (rc > 0)
        f->step_ns += ((double)(ntx_now_ns() - t0) - f->step_ns) * (f->step_ns > 0 ? 0.2 : 1);
    return rc;
}

bool ntx_draft_file_grow(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most, double cost,
                         double worth)
{
    const struct ntx_drafter_text x = shown_text(t);
    int rc = most > 1 ? ntx_drafter_follow(f->by_states, &x) : -EAGAIN;
    unsigned number = (unsigned)rc;
    f->tree.n_nodes = 0;
    if (rc < 0)
        return false;
    do
        take_tree(f, t, number);
    while (!ntx__draft_settled(&f->tree, most, cost + f->step_ns * worth) && (rc = grow_once(f, number)) > 0);
    if (rc < 0 && !f->failure_logged)
        ntx_log(NTX_LOG_WARN, "no drafts by the model's states or layers: %s", strerror(-rc));
    f->failure_logged |= rc < 0;
    return rc >= 0;
}

void ntx_draft_file_show(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t pos, const float *state,
                         bool read)
{
    const struct ntx_drafter_text x = shown_text(t);
    /* a failure shows when a tree is wanted */
    (void)ntx_drafter_saw(f->by_states, &x, pos, state, read && !f->failure_logged);
}
