/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/draft/drafter.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/draft/drafter_impl.h"

/* ---- following a text */

/* Resets the tree to node 0. The spine must be in order. */
static void reset_tree(struct ntx__drafter_text *t)
{
    t->n_nodes = 1;
    t->n_expanded = 0;
    t->node[0] = (struct ntx__drafter_node){.token = t->tokens[t->n - 1], .chance = 1, .path = 1};
}

static int order_spine(struct ntx_drafter *d, struct ntx__drafter_text *t)
{
    int rc = t->n_spine ? ntx_forward_commit(d->f, t->kv, t->kv_n, t->spine, t->n_spine) : 0;
    t->kv_n += rc ? 0 : t->n_spine;
    t->n_spine = 0;
    return rc;
}

static uint32_t child_node(const struct ntx__drafter_text *t, uint32_t node, int32_t token)
{
    for (uint32_t i = node + 1; i < t->n_nodes; i++)
        if (t->node[i].parent == node && t->node[i].token == token)
            return i;
    return 0;
}

/* Makes the subtree of `root` the tree. Parents stay before their children. */
static void reroot(struct ntx__drafter_text *t, uint32_t root)
{
    uint32_t n = 0, depth = t->node[root].depth, to[NTX_DRAFTER_NODES];
    float path = t->node[root].path;
    t->n_expanded = 0;
    for (uint32_t i = root; i < t->n_nodes; i++) {
        struct ntx__drafter_node x = t->node[i];
        to[i] = UINT32_MAX;
        if (i != root && (x.parent < root || to[x.parent] == UINT32_MAX))
            continue;
        x.parent = i == root ? 0 : to[x.parent];
        x.depth -= depth;
        x.path /= path;
        t->n_expanded += x.expanded;
        to[i] = n;
        t->node[n++] = x;
    }
    t->n_nodes = n;
}

/* A drafter by states, or by the model's layers. The last token was read with a state of the large model and is in its
 * place; drafts below it are not. */
static int follow_by_states(const struct ntx_drafter *d, struct ntx__drafter_text *t, const int32_t *tokens, uint32_t n)
{
    t->kv_n += n > t->n && t->node[0].expanded && !ntx__drafter_block_of(d);
    for (uint32_t i = t->n; i < n; i++) {
        t->tokens[i] = tokens[i];
        ntx_sampler_wrote(t->sampler, tokens[i]);
    }
    if (n > t->n || !t->n_nodes) {
        t->n = n;
        reset_tree(t);
    }
    return 0;
}

/* Follows the text, which went on with tokens[t->n .. n). */
static int follow_tokens(struct ntx_drafter *d, struct ntx__drafter_text *t, const int32_t *tokens, uint32_t n)
{
    uint32_t at = 0;
    bool lost = false;
    if (d->states || ntx__drafter_by_layers(d))
        return follow_by_states(d, t, tokens, n);
    for (uint32_t i = t->n; i < n; i++) {
        uint32_t next = lost || !t->node[at].expanded || t->n_spine > SPINE ? 0 : child_node(t, at, tokens[i]);
        if (!lost && t->node[at].expanded && t->n_spine <= SPINE)
            t->spine[t->n_spine++] = t->node[at].slot;
        lost |= !next;
        at = next;
        t->tokens[i] = tokens[i];
        ntx_sampler_wrote(t->sampler, tokens[i]);
    }
    t->n = n;
    if (!lost && t->n_spine <= SPINE) {
        reroot(t, at);
        return 0;
    }
    int rc = order_spine(d, t);
    reset_tree(t);
    return rc;
}

static int reset_text(struct ntx__drafter_text *t, const struct ntx_drafter_text *x, uint32_t common, uint32_t n_vocab)
{
    ntx_sampler_free(t->sampler);
    t->sampler = NULL;
    memcpy(t->tokens, x->tokens, x->n * sizeof *t->tokens);
    t->n = x->n;
    t->n_prompt = x->n_prompt;
    t->sampling = x->sampling;
    common = NTX_MIN(common, x->n - 1);
    t->kv_n = NTX_MIN(t->kv_n, common - NTX_MIN(common, t->skip));
    t->n_spine = 0;
    reset_tree(t);
    int rc = ntx_sampler_new(&t->sampling, n_vocab, &t->sampler);
    for (uint32_t i = 0; !rc && i < t->n; i++)
        if (i < t->n_prompt)
            ntx_sampler_accept(t->sampler, t->tokens[i]);
        else
            ntx_sampler_wrote(t->sampler, t->tokens[i]);
    return rc;
}

static struct ntx__drafter_text *text_for(struct ntx_drafter *d, uint64_t session)
{
    struct ntx__drafter_text *t = &d->text[0];
    for (unsigned i = 0; i < NTX_DRAFTER_TEXTS; i++) {
        if ((d->text[i].used || d->text[i].n_shown) && d->text[i].session == session)
            return &d->text[i];
        if (d->text[i].asked < t->asked)
            t = &d->text[i];
    }
    t->used = false;
    t->session = session;
    t->n = t->kv_n = t->n_spine = t->skip = t->shown_at = t->n_shown = 0;
    return t;
}

static bool same_sampling(const struct ntx__drafter_text *t, const struct ntx_drafter_text *x)
{
    const struct ntx_sampling *a = &t->sampling, *b = &x->sampling;
    return t->used && t->n_prompt == x->n_prompt && a->temp == b->temp && a->top_k == b->top_k &&
           a->top_p == b->top_p && a->min_p == b->min_p && a->seed == b->seed &&
           a->repeat_penalty == b->repeat_penalty && a->repeat_last == b->repeat_last &&
           a->presence_penalty == b->presence_penalty && a->frequency_penalty == b->frequency_penalty;
}

/* Whether the shown states cover the text from the last token read to the last but one. If they begin later, the text
 * is read from their begin. */
static bool states_there(const struct ntx_drafter *d, struct ntx__drafter_text *t, uint32_t n)
{
    const uint32_t first = t->shown_at + ntx__drafter_behind(d);
    if (t->shown_at + t->n_shown + 1 < n || t->shown_at + 2 > n)
        return false;
    if (first > t->skip + t->kv_n || t->skip + 1 > n) {
        t->skip = first;
        t->kv_n = 0;
        reset_tree(t);
    }
    return true;
}

/* Takes a text's KV away. It is read anew when it is wanted again. */
static void forget_text(struct ntx__drafter_text *t)
{
    ntx_kv_seq_free(t->kv);
    t->kv = NULL;
    t->used = false;
    t->n = t->kv_n = t->n_spine = t->n_nodes = t->n_expanded = t->skip = t->shown_at = t->n_shown = 0;
}

static struct ntx__drafter_text *oldest_other(struct ntx_drafter *d, const struct ntx__drafter_text *t)
{
    struct ntx__drafter_text *oldest = NULL;
    for (unsigned i = 0; i < NTX_DRAFTER_TEXTS; i++)
        if (&d->text[i] != t && d->text[i].kv && (!oldest || d->text[i].asked < oldest->asked))
            oldest = &d->text[i];
    return oldest;
}

/* Gives a text KV for n tokens and a tree, with room to grow. Texts share the pool: those asked for longest ago lose
 * their KV. */
static int make_room(struct ntx_drafter *d, struct ntx__drafter_text *t, uint32_t n)
{
    struct ntx__drafter_text *other;
    int rc;
    if (t->kv && ntx_kv_seq_room(t->kv) >= n + SLOTS)
        return 0;
    ntx_kv_seq_free(t->kv);
    t->kv = NULL;
    t->kv_n = t->n_spine = 0;
    t->used = false; /* it is read from its begin */
    uint32_t room = d->states ? d->ctx : NTX_MIN(n + NTX_MAX(n, GROWS), d->ctx);
    while ((rc = ntx_kv_seq_new(d->pool, room + SLOTS, &t->kv)) == -EAGAIN && (other = oldest_other(d, t)))
        forget_text(other);
    return rc;
}

/* The text's K and V are the large model's, which may have moved them. */
static int borrow_kv(struct ntx__drafter_text *t, const struct ntx_drafter_text *x)
{
    if (t->kv != x->kv || t->adapter != x->adapter)
        t->n_nodes = 0;
    t->kv = x->kv;
    t->adapter = x->adapter;
    if (!x->kv)
        return -EAGAIN;
    return ntx_kv_seq_room(x->kv) < x->n ? -E2BIG : 0;
}

int ntx_drafter_follow(struct ntx_drafter *d, const struct ntx_drafter_text *x)
{
    if (!x->n || x->n >= d->ctx)
        return -E2BIG;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->tokens[i] < 0 || (uint32_t)x->tokens[i] >= d->n_vocab)
            return -EINVAL;
    struct ntx__drafter_text *t = text_for(d, x->session);
    uint32_t common = 0;
    t->asked = ++d->asked;
    int rc = ntx__drafter_by_layers(d) ? borrow_kv(t, x) : make_room(d, t, x->n);
    if (rc)
        return rc;
    while (common < NTX_MIN(t->n, x->n) && t->tokens[common] == x->tokens[common])
        common++;
    rc = same_sampling(t, x) && common == t->n ? follow_tokens(d, t, x->tokens, x->n)
                                               : reset_text(t, x, common, d->n_vocab);
    t->session = x->session;
    t->used = !rc;
    t->kv_n = ntx__drafter_by_layers(d) ? t->n - 1 : t->kv_n;
    if (!rc && d->states && !states_there(d, t, t->n))
        return -EAGAIN;
    return rc ? rc : (int)(t - d->text);
}

/* ---- growing the tree */

int ntx__drafter_run(struct ntx_drafter *d, struct ntx_forward *f, struct ntx_row *rows, uint32_t n)
{
    const struct ntx_batch b = {.pass = d->pass++, .rows = rows, .n_rows = n};
    int rc = ntx__drafter_by_layers(d) ? ntx_forward_run_part(f, &b, d->layers.weights, d->layers.without)
                                       : ntx_forward_run(f, &b);
    return rc ? rc : (int)n;
}

static int read_text(struct ntx_drafter *d, struct ntx__drafter_text *t)
{
    struct ntx_row rows[READ];
    uint32_t from = t->skip + t->kv_n, n = NTX_MIN(t->n - 1 - from, READ);
    const float *states = NULL;
    int rc = d->states ? ntx__drafter_states(d, t, from, n, &states) : 0;
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct ntx_row){.token = t->tokens[from + i],
                                   .pos = t->kv_n + i,
                                   .kv = t->kv,
                                   .state = states ? states + (size_t)i * d->model->hp.n_embd : NULL};
    rc = rc < 0 || ntx__drafter_block_of(d) ? rc : ntx__drafter_run(d, d->f, rows, n);
    t->kv_n += rc > 0 ? n : 0;
    return rc;
}

/* Leaves out nodes that are much less likely than the likeliest: their rows would delay it. */
static uint32_t drop_unlikely(const struct ntx__drafter_text *t, uint32_t n, const uint32_t *likeliest_first)
{
    while (n > 1 && t->node[likeliest_first[n - 1]].path < NARROW * t->node[likeliest_first[0]].path)
        n--;
    return n;
}

/* Chooses the likeliest nodes that are not expanded, in the order of their numbers. */
static uint32_t choose_nodes(const struct ntx_drafter *d, const struct ntx__drafter_text *t, uint32_t most,
                             uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        const struct ntx__drafter_node *x = &t->node[i];
        if (x->expanded || x->path < LEAST || x->depth >= DEEPEST || t->n + x->depth + 1 >= d->ctx)
            continue;
        uint32_t k = n;
        while (k && t->node[out[k - 1]].path < x->path)
            k--;
        if (k == most)
            continue;
        n += n < most;
        memmove(&out[k + 1], &out[k], (n - 1 - k) * sizeof *out);
        out[k] = i;
    }
    n = drop_unlikely(t, n, out);
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = i; k && out[k - 1] > out[k]; k--) {
            uint32_t x = out[k];
            out[k] = out[k - 1];
            out[k - 1] = x;
        }
    return n;
}

/* Finds slots for nodes to expand: after their parents', ascending, and not used by the spine or another node. Slots of
 * drafts that the text left are free. */
static bool find_slots(const struct ntx__drafter_text *t, const uint32_t *node, uint32_t n, uint32_t *slot)
{
    bool taken[SLOTS] = {false};
    uint32_t next = 0;
    for (uint32_t i = 0; i < t->n_spine; i++)
        taken[t->spine[i] - t->kv_n] = true;
    for (uint32_t i = 0; i < t->n_nodes; i++)
        if (t->node[i].expanded)
            taken[t->node[i].slot - t->kv_n] = true;
    for (uint32_t i = 0; i < n; i++) {
        const struct ntx__drafter_node *up = &t->node[t->node[node[i]].parent];
        uint32_t behind = t->n_spine ? t->spine[t->n_spine - 1] + 1 - t->kv_n : 0;
        if (node[i])
            behind = up->slot + 1 - t->kv_n;
        next = NTX_MAX(next, behind);
        while (next < SLOTS && taken[next])
            next++;
        if (next == SLOTS)
            return false;
        slot[i] = t->kv_n + next++;
    }
    return true;
}

/* root: the state that node 0 is fed with. */
static struct ntx_row make_row(struct ntx_drafter *d, struct ntx__drafter_text *t, uint32_t node, const float *root,
                               uint32_t *path, float *logits)
{
    const struct ntx__drafter_node *x = &t->node[node];
    uint32_t n = t->n_spine + x->depth + 1;
    memcpy(path, t->spine, t->n_spine * sizeof *path);
    for (uint32_t i = node, k = n; k-- > t->n_spine; i = t->node[i].parent)
        path[k] = t->node[i].slot;
    struct ntx_row row = {.token = x->token,
                          .pos = t->n - 1 - t->skip + x->depth,
                          .n_path = n,
                          .path = path,
                          .kv = t->kv,
                          .adapter = t->adapter,
                          .logits = logits};
    if (d->states) {
        const size_t width = d->model->hp.n_embd;
        row.state = node ? t->left + (t->node[x->parent].slot - t->kv_n) * width : root;
        row.left = t->left + (x->slot - t->kv_n) * width;
    }
    return row;
}

static void add_children(struct ntx__drafter_text *t, uint32_t node, const float *logits)
{
    struct ntx_candidate kid[KIDS];
    ntx_sampler_take(t->sampler, logits);
    uint32_t n = ntx_sampler_draft(t->sampler, t->n + t->node[node].depth, SHARP, kid, KIDS);
    for (uint32_t i = 0; i < n && t->n_nodes < NTX_DRAFTER_NODES; i++) {
        float path = t->node[node].path * kid[i].logit;
        if (path >= LEAST / 8)
            t->node[t->n_nodes++] = (struct ntx__drafter_node){.token = kid[i].id,
                                                               .parent = node,
                                                               .depth = t->node[node].depth + 1,
                                                               .chance = kid[i].logit,
                                                               .path = path};
    }
}

int ntx_drafter_grow(struct ntx_drafter *d, unsigned text, uint32_t most)
{
    struct ntx__drafter_text *t = &d->text[text];
    struct ntx_row rows[STEP];
    uint32_t node[STEP + 1], slot[STEP], path[STEP][NTX_PATH_MAX];
    if (!t->used)
        return 0;
    if (t->skip + t->kv_n + t->n_spine + 1 < t->n)
        return read_text(d, t);
    most = d->states ? NTX_MIN(most, OWN_NODES) : most;
    if (ntx__drafter_by_layers(d))
        most = NTX_MIN(most, NTX_MIN(d->layers.max_rows, ntx_kv_seq_room(t->kv) - t->kv_n) - 1);
    if (ntx__drafter_block_of(d))
        return ntx__drafter_block(d, t, most);
    uint32_t n = t->n_expanded < most ? choose_nodes(d, t, NTX_MIN(d->step, most - t->n_expanded), node) : 0;
    if (n && !find_slots(t, node, n, slot)) {
        int rc = order_spine(d, t);
        reset_tree(t);
        return rc ? rc : 1;
    }
    const float *root = NULL;
    int rc = n && !node[0] && d->states ? ntx__drafter_states(d, t, t->n - 1, 1, &root) : 0;
    for (uint32_t i = 0; i < n; i++) {
        t->node[node[i]].slot = slot[i];
        rows[i] = make_row(d, t, node[i], root, path[i], d->logits + (size_t)i * d->n_vocab);
    }
    rc = n && rc >= 0 ? ntx__drafter_run(d, d->f, rows, n) : rc;
    for (uint32_t i = 0; rc > 0 && i < n; i++) {
        if (rows[i].left)
            ntx__drafter_left(d, rows[i].left);
        t->node[node[i]].expanded = true;
        t->n_expanded++;
        add_children(t, node[i], ntx__drafter_logits(d, rows[i].logits));
    }
    return rc;
}

/* ---- taking states */

/* Drops the first n states. */
static void drop_states(const struct ntx_drafter *d, struct ntx__drafter_text *t, uint32_t n)
{
    const size_t width = d->shown_width;
    n = NTX_MIN(n, t->n_shown);
    memmove(t->shown, t->shown + n * width, (t->n_shown - n) * width * sizeof *t->shown);
    t->shown_at += n;
    t->n_shown -= n;
}

/* Reads the text by all shown states but the last. */
static int read_shown(struct ntx_drafter *d, const struct ntx_drafter_text *x)
{
    struct ntx_drafter_text known = *x;
    struct ntx__drafter_text *t = text_for(d, x->session);
    known.n = NTX_MIN(x->n, t->shown_at + t->n_shown + 1);
    int rc = ntx_drafter_follow(d, &known);
    while (rc >= 0 && t->skip + t->kv_n + 1 < t->n)
        rc = read_text(d, t);
    /* the next token to read; its state is the first still wanted */
    uint32_t next = t->skip + t->kv_n - ntx__drafter_behind(d);
    if (rc >= 0 && next > t->shown_at)
        drop_states(d, t, next - t->shown_at);
    return rc < 0 ? rc : 0;
}

int ntx_drafter_saw(struct ntx_drafter *d, const struct ntx_drafter_text *x, uint32_t pos, const float *state,
                    bool read)
{
    struct ntx__drafter_text *t = text_for(d, x->session);
    int rc = 0;
    t->asked = ++d->asked;
    if (pos < t->shown_at || pos > t->shown_at + t->n_shown) { /* states were left out, or the text was cut back far */
        t->shown_at = pos;
        t->n_shown = 0;
    }
    t->n_shown = pos - t->shown_at;
    if (t->n_shown == SHOWN && read && (rc = read_shown(d, x)) && rc != -EAGAIN)
        return rc;
    if (t->n_shown == SHOWN)
        drop_states(d, t, SHOWN / 2);
    ntx__drafter_keep(d, state, t->shown + (size_t)t->n_shown++ * d->shown_width);
    return 0;
}

uint32_t ntx_drafter_expanded(const struct ntx_drafter *d, unsigned text) { return d->text[text].n_expanded; }

uint32_t ntx_drafter_tree(const struct ntx_drafter *d, unsigned text, struct ntx_draft_node *out)
{
    const struct ntx__drafter_text *t = &d->text[text];
    for (uint32_t i = 0; i < t->n_nodes; i++)
        out[i] = (struct ntx_draft_node){t->node[i].token, t->node[i].parent, t->node[i].chance};
    return t->n_nodes;
}
