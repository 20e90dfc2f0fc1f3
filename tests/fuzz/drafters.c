/* SPDX-License-Identifier: Apache-2.0 */
/* drafters.c: the files that a drafter drafts from, an index or a script. A file that opens must give well-formed trees
 * of tokens within the vocabulary. */
#include "common/err.h"
#include "computed/draft/draft_index.h"
#include "computed/draft/drafter_file_impl.h"
#include "tests/fuzz/fuzz.h"

#define VOCAB  50u
#define DIGEST 0x1122334455667788u

static const char script[] = "ntx-script 1\nchance 0.5 0.25\nbeside 2\nseed 7\ntext 1 2 3 4 5 6 7\ntext 9 8\n";

static void seed_index(void)
{
    int32_t tokens[64];
    struct ntx_err err = {0};
    char *bytes = NULL;
    size_t n = 0;
    for (int i = 0; i < 64; i++)
        tokens[i] = i % 23 ? i * i % 9 : -1;
    FILE *f = open_memstream(&bytes, &n);
    MUST(f && !ntx_draft_index_write(f, tokens, 64, VOCAB, DIGEST, &err) && !fclose(f));
    fuzz_seed("index", bytes, n);
    free(bytes);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    if (!fuzz_seed_dir())
        return 0;
    seed_index();
    fuzz_seed("script", script, sizeof script - 1);
    exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ntx_draft_node draft[NTX_DRAFTER_NODES];
    const struct ntx_drafter_file_ops *ops = size && data[0] == 'N' ? &ntx__draft_index : &ntx__draft_script;
    const int32_t text[] = {4, 0, 1, 4, 0, 7};
    struct ntx_err err = {0};
    uint8_t *bytes = malloc(size + 1);
    void *self;
    MUST(bytes);
    memcpy(bytes, data, size);
    bytes[size] = 0;
    if (ops->open(bytes, size, VOCAB, DIGEST, &self, &err)) {
        MUST(*err.text);
        free(bytes);
        return 0;
    }
    for (uint32_t n = 1; n <= 6; n++) {
        const struct ntx_drafter_file_text t = {text, n, n / 2, VOCAB};
        draft[0] = (struct ntx_draft_node){text[n - 1], 0, 1};
        uint32_t k = ops->tree(self, &t, draft);
        MUST(k >= 1 && k <= NTX_DRAFTER_NODES);
        for (uint32_t i = 1; i < k; i++)
            MUST(draft[i].parent < i && draft[i].token >= 0 && draft[i].token < (int32_t)VOCAB &&
                 draft[i].chance >= 0 && draft[i].chance <= 1);
    }
    ops->free(self);
    return 0;
}
