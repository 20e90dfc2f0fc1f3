/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is changed after it was checked ends the pass with a clear error. */
#include <errno.h>

#include "tests/unit/pass/rig.h"

/* Whether token 7's experts are valid, or the text of the pass that must refuse them. */
static bool possible(const int32_t *id, uint32_t used, uint32_t n, char *why, size_t size)
{
    static const char name[] = "tensor 'blk.0.ffn_gate_tid2eid.weight': token 7 goes through expert ",
                      end[] = ": the file is damaged; get it, or convert it, anew";
    for (uint32_t k = 0; k < used; k++) {
        if (id[k] < 0 || id[k] >= (int32_t)n) {
            snprintf(why, size, "%s%d of %u%s", name, id[k], n, end);
            return false;
        }
        for (uint32_t j = 0; j < k; j++)
            if (id[j] == id[k]) {
                snprintf(why, size, "%s%d twice%s", name, id[k], end);
                return false;
            }
    }
    return true;
}

/* A table of experts by token may change after it was checked: invalid rows of it end the pass, however many rows use
 * them, and no buffer is overrun. */
int main(void)
{
    struct rig_options o = {.make = rig_pooled()};
    struct rig r;
    rig_open(&r, &o);
    const uint32_t used = r.model->hp.n_expert_used, n = r.model->hp.n_expert, rows = 16;
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(r.gguf, "blk.0.ffn_gate_tid2eid.weight");
    int32_t *id = (int32_t *)(void *)(r.w.files[t->file] + t->offset) + 7 * used;
    struct ntx_row row[16];
    uint32_t seed = 1, refused = 0;
    char why[200];
    r.w.forgive = true;
    for (uint32_t turn = 0; turn < 200; turn++) {
        struct ntx_kv_seq *kv = rig_seq(&r, rows);
        for (uint32_t i = 0; i < rows; i++)
            row[i] = (struct ntx_row){.token = i ? 7 : 6, .pos = i, .kv = kv};
        for (uint32_t k = 0; k < used; k++) {
            seed = seed * 1664525 + 1013904223;
            id[k] = seed >> 29 ? (int32_t)(seed >> 8) % (int32_t)n : (int32_t)seed; /* few are out of range */
            if (turn < 8)                                                           /* one for all */
                id[k] = (int32_t)turn;
        }
        const bool good = possible(id, used, n, why, sizeof why);
        const int rc = rig_run(&r, row, rows);
        CHECK_MSG(rc == (good ? 0 : -EINVAL), "turn %u: %d, %s", turn, rc, rc ? r.w.w.error.text : why);
        if (!good)
            CHECK_STR(r.w.w.error.text, why);
        refused += !good;
        ntx_kv_seq_free(kv);
    }
    CHECK(refused > 100 && refused < 200);
    rig_close(&r);
    return 0;
}
