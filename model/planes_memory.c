/* SPDX-License-Identifier: Apache-2.0 */
/* planes_memory.c: what stays in memory of a model in high and low bits (planes.h). */
#include "common/util.h"
#include "model/chunk.h"
#include "model/planes.h"

static bool is_shared(const struct ntx_chunks *c) { return c && c->share.n > 1; }

/* The high bits of `bytes` low bits at this offset of the file of low bits. */
static struct ntx_planes_range high_of(const struct ntx_model *m, uint32_t tensor, uint64_t offset, uint64_t bytes)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, tensor);
    const struct ntx_planes *p = ntx_planes_of(t->type);
    const uint64_t low = ntx_type_info(p->low)->block_bytes, high = ntx_type_info(p->high)->block_bytes;
    return (struct ntx_planes_range){t->high + (offset - t->offset) / low * high, bytes / low * high, tensor};
}

/* Other tensors of the file of high bits stay for the drafter, which has all machines' layers or none. */
static bool tensor_stays(const struct ntx_model *m, uint32_t tensor, struct ntx_planes_range *out)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, tensor);
    const bool looked_up = (tensor == m->token_embd && tensor != m->output) || tensor == m->input_embd ||
                           tensor == m->gram_embd;
    if (ntx_planes_low(t->type))
        *out = high_of(m, tensor, t->offset, t->bytes);
    else if (t->file == NTX_GGUF_HIGH_FILE && !looked_up)
        *out = (struct ntx_planes_range){t->offset, t->bytes, tensor};
    else
        return false;
    return true;
}

/* The embedding has a place of its own, behind the chunks: rows of other machines' outputs are looked up, too. */
static bool chunk_stays(const struct ntx_model *m, const struct ntx_chunks *c, uint32_t place,
                        struct ntx_planes_range *out)
{
    const bool first = !c->share.rank;
    const uint32_t tensor = place < c->n ? c->list[place].tensor : m->token_embd;
    if (tensor == NTX_NO_TENSOR || !ntx_planes_low(ntx_gguf_tensor_at(m->gguf, tensor)->type))
        return false;
    if (place == c->n)
        return first && tensor_stays(m, tensor, out);
    if (first && tensor == m->token_embd)
        return false;
    *out = high_of(m, tensor, c->list[place].offset, c->list[place].bytes);
    return true;
}

uint32_t ntx_planes_places(const struct ntx_model *m, const struct ntx_chunks *chunks)
{
    if (!ntx_gguf_planes(m->gguf))
        return 0;
    return is_shared(chunks) ? chunks->n + 1 : (uint32_t)ntx_gguf_n_tensors(m->gguf);
}

bool ntx_planes_stays(const struct ntx_model *m, const struct ntx_chunks *chunks, uint32_t place,
                      struct ntx_planes_range *out)
{
    return is_shared(chunks) ? chunk_stays(m, chunks, place, out) : tensor_stays(m, place, out);
}

uint64_t ntx_planes_bytes(const struct ntx_model *m, const struct ntx_chunks *chunks)
{
    const uint64_t page = ntx_page_bytes();
    struct ntx_planes_range r;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ntx_planes_places(m, chunks); i++)
        if (ntx_planes_stays(m, chunks, i, &r))
            sum += r.bytes;
    return NTX_ROUND_UP(sum, page) + (sum ? page : 0);
}
