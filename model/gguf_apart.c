/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_apart.c: checks that tensors of a file do not overlap. A file with overlapping tensors is damaged or hostile,
 * and its meaning is unclear. Only the key ntx.shared_tensors (ntx-mkmodel --repeat-layers: a large shape in a small
 * file) allows tensors of one type to have exactly the same bytes. */
#include <errno.h>
#include <stdlib.h>

#include "model/gguf_part.h"

struct extent {
    uint64_t from;
    uint32_t i;
};

static int by_place(const void *va, const void *vb)
{
    const struct extent *a = va, *b = vb;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->i < b->i ? -1 : a->i > b->i;
}

static bool same_bytes(const struct ntx_gguf_tensor *a, const struct ntx_gguf_tensor *b)
{
    return a->offset == b->offset && a->bytes == b->bytes && a->type == b->type;
}

static int check_order(const struct ntx__gguf_part *p, const struct extent *e, bool shared, struct ntx_err *err)
{
    for (uint64_t k = 1; k < p->n_tensors; k++) {
        const struct ntx_gguf_tensor *a = &p->tensors[e[k - 1].i], *b = &p->tensors[e[k].i];
        if (b->offset - a->offset < a->bytes && !(shared && same_bytes(a, b)))
            return ntx_err_set(err, -EINVAL,
                               "tensors '%s' and '%s' overlap: the first has bytes %llu to %llu of the file, the "
                               "second begins at %llu; the file is damaged",
                               a->name, b->name, (unsigned long long)a->offset,
                               (unsigned long long)(a->offset + a->bytes - 1), (unsigned long long)b->offset);
    }
    return 0;
}

int ntx__gguf_part_apart(const struct ntx__gguf_part *p, bool shared, struct ntx_err *err)
{
    struct extent *e = malloc((p->n_tensors + 1) * sizeof *e);
    bool sorted = true;
    if (!e)
        return ntx_err_set(err, -ENOMEM, "no memory for %llu tensors", (unsigned long long)p->n_tensors);
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        e[i] = (struct extent){p->tensors[i].offset, (uint32_t)i};
        sorted &= !i || e[i - 1].from <= e[i].from;
    }
    if (!sorted)
        qsort(e, p->n_tensors, sizeof *e, by_place);
    int rc = check_order(p, e, shared, err);
    free(e);
    return rc;
}
