/* SPDX-License-Identifier: Apache-2.0 */
/* drafters.c: files that propose drafts: an index, or a script, read and then looked in. What is taken gives trees that are well
 * formed, of tokens that there are. */
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
    static struct ntx_draft_node guess[NTX_DRAFTER_NODES];
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
        guess[0] = (struct ntx_draft_node){text[n - 1], 0, 1};
        uint32_t k = ops->tree(self, &t, guess);
        MUST(k >= 1 && k <= NTX_DRAFTER_NODES);
        for (uint32_t i = 1; i < k; i++)
            MUST(guess[i].parent < i && guess[i].token >= 0 && guess[i].token < (int32_t)VOCAB &&
                 guess[i].chance >= 0 && guess[i].chance <= 1);
    }
    ops->free(self);
    return 0;
}
