/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/drafts.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "common/util.h"

static uint64_t requests_bytes(uint32_t ctx)
{
    return sizeof(struct ntx_drafts_requests) + (uint64_t)NTX_DRAFTS_TEXTS * ctx * sizeof(int32_t);
}

uint64_t ntx_drafts_bytes(uint32_t ctx)
{
    return requests_bytes(ctx) + sizeof(struct ntx_drafts_answers) + 2 * ntx_page_bytes();
}

static void set_pointers(struct ntx_drafts *d)
{
    d->requests = (struct ntx_drafts_requests *)d->part[0].at;
    d->tokens = (int32_t *)(d->part[0].at + sizeof *d->requests);
    d->answers = (struct ntx_drafts_answers *)d->part[1].at;
    d->ctx = d->requests->ctx;
}

int ntx_drafts_make(uint64_t epoch, uint32_t ctx, struct ntx_drafts *out, struct ntx_err *err)
{
    struct ntx_drafts d = {.part = {NTX_NO_SEGMENT, NTX_NO_SEGMENT}};
    int rc = ntx_segment_make("ntx-requests", requests_bytes(ctx), NTX_SEGMENT_OWNED, 0, NULL, &d.part[0], err);
    if (!rc)
        rc = ntx_segment_make("ntx-drafts", sizeof(struct ntx_drafts_answers), NTX_SEGMENT_SHARED, 0, NULL, &d.part[1],
                              err);
    if (rc) {
        ntx_drafts_close(&d);
        return rc;
    }
    struct ntx_drafts_requests *a = (struct ntx_drafts_requests *)d.part[0].at;
    a->magic = NTX_DRAFTS_MAGIC;
    a->version = NTX_DRAFTS_VERSION;
    a->hdr_bytes = sizeof *a;
    a->epoch = epoch;
    a->ctx = ctx;
    set_pointers(&d);
    *out = d;
    return 0;
}

static int check_parts(const struct ntx_segment *requests, const struct ntx_segment *answers, uint64_t epoch,
                       struct ntx_err *err)
{
    const struct ntx_drafts_requests *a = (const struct ntx_drafts_requests *)requests->at;
    if (requests->bytes < sizeof *a || a->magic != NTX_DRAFTS_MAGIC || a->version != NTX_DRAFTS_VERSION ||
        a->hdr_bytes != sizeof *a)
        return ntx_err_set(err, -EPROTO, "draft requests: this is no such part, or one of another version");
    if (a->epoch != epoch)
        return ntx_err_set(err, -ESTALE, "draft requests: the part belongs to another epoch");
    if (!a->ctx || NTX_ROUND_UP(requests_bytes(a->ctx), ntx_page_bytes()) != requests->bytes)
        return ntx_err_set(err, -EINVAL, "draft requests: %" PRIu64 " bytes, but %u tokens of context take %" PRIu64,
                           requests->bytes, a->ctx, requests_bytes(a->ctx));
    if (NTX_ROUND_UP(sizeof(struct ntx_drafts_answers), ntx_page_bytes()) != answers->bytes)
        return ntx_err_set(err, -EINVAL, "draft trees: %" PRIu64 " bytes, but they take %zu", answers->bytes,
                           sizeof(struct ntx_drafts_answers));
    return 0;
}

int ntx_drafts_attach(int requests, int answers, uint64_t epoch, struct ntx_drafts *out, struct ntx_err *err)
{
    struct ntx_drafts d = {.part = {NTX_NO_SEGMENT, NTX_NO_SEGMENT}};
    int rc = ntx_segment_take(requests, NTX_SEGMENT_OWNED, 0, &d.part[0], err);
    int other = ntx_segment_take(answers, NTX_SEGMENT_SHARED, 0, &d.part[1], err);
    rc = rc ? rc : other;
    if (!rc)
        rc = check_parts(&d.part[0], &d.part[1], epoch, err);
    if (rc) {
        ntx_drafts_close(&d);
        return rc;
    }
    set_pointers(&d);
    *out = d;
    return 0;
}

void ntx_drafts_close(struct ntx_drafts *d)
{
    ntx_segment_close(&d->part[0]);
    ntx_segment_close(&d->part[1]);
    *d = (struct ntx_drafts){.part = {NTX_NO_SEGMENT, NTX_NO_SEGMENT}};
}

void ntx_drafts_open_seq(_Atomic uint32_t *seq)
{
    atomic_store_explicit(seq, atomic_load_explicit(seq, memory_order_relaxed) | 1, memory_order_relaxed);
    /* The release fence pairs with the readers' acquire fence: a reader that sees a byte of this change also sees the
     * odd number when it checks its copy. */
    atomic_thread_fence(memory_order_release);
}

void ntx_drafts_close_seq(_Atomic uint32_t *seq, _Atomic uint32_t *bell)
{
    /* The release pairs with the readers' acquire load of an even number: the whole change is visible by then. */
    atomic_store_explicit(seq, atomic_load_explicit(seq, memory_order_relaxed) + 1, memory_order_release);
    atomic_fetch_add_explicit(bell, 1, memory_order_release);
    ntx_futex_wake(bell);
}

void ntx_drafts_post_request(struct ntx_drafts *d, unsigned text, const struct ntx_drafts_text *t,
                             const int32_t *tokens)
{
    struct ntx_drafts_text *to = &d->requests->text[text];
    ntx_drafts_open_seq(&to->seq);
    memcpy((char *)to + sizeof to->seq, (const char *)t + sizeof t->seq, sizeof *to - sizeof to->seq);
    memcpy(d->tokens + (size_t)text * d->ctx, tokens, t->n * sizeof *tokens);
    ntx_drafts_close_seq(&to->seq, &d->requests->bell);
}

static bool begin_copy(const _Atomic uint32_t *seq, uint32_t *was)
{
    *was = atomic_load_explicit(seq, memory_order_acquire); /* pairs with close_seq */
    return *was && !(*was & 1);
}

static bool unchanged(const _Atomic uint32_t *seq, uint32_t was)
{
    atomic_thread_fence(memory_order_acquire); /* pairs with open_seq */
    return atomic_load_explicit(seq, memory_order_relaxed) == was;
}

bool ntx_drafts_read_request(const struct ntx_drafts *d, unsigned text, struct ntx_drafts_text *t, int32_t *tokens,
                             uint32_t *seq)
{
    const struct ntx_drafts_text *from = &d->requests->text[text];
    if (!begin_copy(&from->seq, seq))
        return false;
    memcpy((char *)t + sizeof t->seq, (const char *)from + sizeof from->seq, sizeof *t - sizeof t->seq);
    if (t->n > d->ctx)
        return false;
    memcpy(tokens, d->tokens + (size_t)text * d->ctx, t->n * sizeof *tokens);
    return unchanged(&from->seq, *seq);
}

bool ntx_drafts_answered(const struct ntx_drafts *d, unsigned text, struct ntx_drafts_tree *t)
{
    const struct ntx_drafts_tree *from = &d->answers->tree[text];
    uint32_t seq;
    if (!begin_copy(&from->seq, &seq))
        return false;
    memcpy((char *)t + sizeof t->seq, (const char *)from + sizeof from->seq,
           offsetof(struct ntx_drafts_tree, node) - sizeof t->seq);
    if (t->n_nodes > NTX_DRAFTS_NODES)
        return false;
    memcpy(t->node, from->node, t->n_nodes * sizeof *t->node);
    return unchanged(&from->seq, seq);
}
