/* SPDX-License-Identifier: Apache-2.0 */
/* planes_memory.c: what stays in memory of a model in high and low bits (planes.h). */
#include "common/util.h"
#include "model/arch.h"
#include "model/planes.h"

bool ntx_planes_stays(const struct ntx_model *m, uint32_t tensor, struct ntx_planes_range *out)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, tensor);
    const struct ntx_planes *p = ntx_planes_of(t->type);
    bool looked_up = (tensor == m->token_embd && tensor != m->output) || tensor == m->input_embd ||
                     tensor == m->gram_embd;
    if (!ntx_gguf_planes(m->gguf) || looked_up || !(ntx_planes_low(t->type) || t->file == NTX_GGUF_HIGH_FILE))
        return false;
    *out = (struct ntx_planes_range){t->offset, t->bytes};
    if (ntx_planes_low(t->type))
        *out = (struct ntx_planes_range){t->high, t->bytes / ntx_type_info(p->low)->block_bytes *
                                                      ntx_type_info(p->high)->block_bytes};
    return true;
}

uint64_t ntx_planes_bytes(const struct ntx_model *m)
{
    const uint64_t page = ntx_page_bytes();
    struct ntx_planes_range r;
    uint64_t sum = 0;
    for (uint32_t i = 0; ntx_gguf_planes(m->gguf) && i < ntx_gguf_n_tensors(m->gguf); i++)
        if (ntx_planes_stays(m, i, &r))
            sum += r.bytes;
    return NTX_ROUND_UP(sum, page) + (sum ? page : 0);
}
