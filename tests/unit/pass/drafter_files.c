/* SPDX-License-Identifier: Apache-2.0 */
/* Drafter files without a model: a script's tokens come as often as it says, an index finds the continuation of the
 * longest match, and other files are refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "computed/draft/draft_index.h"
#include "computed/draft/drafter_file_impl.h"
#include "tests/lib/check.h"
#include "tests/lib/temporary.h"

#define VOCAB 300
static struct ntx_draft_node draft[NTX_DRAFTER_NODES];

static void *opened(const struct ntx_drafter_file_ops *ops, const void *bytes, size_t n)
{
    void *self;
    struct ntx_err err = {0};
    uint8_t *copy = malloc(n + 1);
    CHECK(copy);
    memcpy(copy, bytes, n);
    copy[n] = 0;
    CHECK_MSG(!ops->open(copy, n, VOCAB, 77, &self, &err), "%s", err.text);
    return self;
}

static void refused(const struct ntx_drafter_file_ops *ops, const void *bytes, size_t n, const char *words)
{
    void *self;
    struct ntx_err err = {0};
    uint8_t *copy = malloc(n + 1);
    memcpy(copy, bytes, n);
    copy[n] = 0;
    CHECK(ops->open(copy, n, VOCAB, 77, &self, &err) < 0);
    CHECK_MSG(strstr(err.text, words), "'%s' is not in '%s'", words, err.text);
    free(copy);
}

static uint32_t tree(const struct ntx_drafter_file_ops *ops, const void *self, const int32_t *tokens, uint32_t n,
                     uint32_t n_prompt)
{
    const struct ntx_drafter_file_text t = {tokens, n, n_prompt, VOCAB};
    draft[0] = (struct ntx_draft_node){tokens[n - 1], 0, 1};
    uint32_t k = ops->tree(self, &t, draft);
    CHECK(k && k <= NTX_DRAFTER_NODES);
    for (uint32_t i = 1; i < k; i++)
        CHECK(draft[i].parent < i && draft[i].token >= 0 && draft[i].token < VOCAB && draft[i].chance >= 0 &&
              draft[i].chance <= 1);
    return k;
}

/* A text of 2000 tokens: by depth, how many of the draft tokens are right. */
static void scripted(void)
{
    static int32_t text[2004];
    char *words = NULL;
    size_t n = 0, right[2] = {0};
    FILE *f = open_memstream(&words, &n);
    fprintf(f, "ntx-script 1\nchance 0.9 0.5\nseed 3\ntext 7 7 7\ntext");
    for (int i = 0; i < 2000; i++)
        fprintf(f, " %d", text[2 + i] = i * i % VOCAB);
    fclose(f);
    void *s = opened(&ntx__draft_script, words, n);
    for (uint32_t at = 3; at < 2000; at++) {
        CHECK(tree(&ntx__draft_script, s, text, at, 2) >= 3 && draft[1].parent == 0 && draft[2].parent == 1 &&
              draft[1].chance == 0.9f && draft[2].chance == 0.5f);
        right[0] += draft[1].token == text[at];
        right[1] += draft[2].token == text[at + 1];
    }
    CHECK_MSG(right[0] > 1750 && right[0] < 1850 && right[1] > 930 && right[1] < 1070, "%zu and %zu of 1997", right[0],
              right[1]);
    text[2] = 250; /* no line begins so */
    CHECK_EQ(tree(&ntx__draft_script, s, text, 3, 2), 1);
    text[2] = 7; /* the first one does */
    CHECK(tree(&ntx__draft_script, s, text, 3, 2) == 3 && draft[1].token <= 8);
    ntx__draft_script.free(s);
    free(words);
    static const char beside[] = "ntx-script 1\nchance 0.7\nbeside 2\ntext 5 6";
    s = opened(&ntx__draft_script, beside, sizeof beside - 1);
    CHECK(tree(&ntx__draft_script, s, text, 1, 1) == 7 && draft[2].parent == 0 && draft[3].parent == 0 &&
          draft[4].parent == 1);
    CHECK(draft[2].token != draft[1].token && draft[2].token != 5 && draft[3].token != 5 &&
          draft[3].token != draft[2].token);
    ntx__draft_script.free(s);
#define REFUSED(text, words) refused(&ntx__draft_script, text, sizeof text - 1, words)
    REFUSED("ntx-script 2\ntext 1", "another version");
    REFUSED("ntx-script 1\ntext 1 300", "line 2 of the script: a number is out of bounds");
    REFUSED("ntx-script 1\nchance 1.5", "line 2 of the script: a number is out of bounds");
    REFUSED("ntx-script 1\nchance", "line 2");
    REFUSED("ntx-script 1\nseed 1\ntexts 1", "line 3 of the script: it is none of");
    REFUSED("ntx-script 1\ntext 1 x", "line 2");
    REFUSED("ntx-script 1\nbeside 17", "line 2");
    REFUSED("ntx-script 1\n\0", "a script is text");
}

static void indexed(void)
{
    static const char text[] = "the cat sat on the mat.|the dog sat on the rug and slept.|a cat sat on the mat again.";
    int32_t tokens[100], past[64];
    uint32_t n = sizeof text - 1;
    struct ntx_err err = {0};
    char *bytes = NULL;
    size_t len = 0;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = text[i] == '|' ? -1 : text[i];
    FILE *f = open_memstream(&bytes, &len);
    CHECK(!ntx_draft_index_write(f, tokens, n, VOCAB, 77, &err) && !fclose(f));
    void *x = opened(&ntx__draft_index, bytes, len);
    static const struct {
        const char *past, *next;
    } of[] = {{"dog sat on the ", "rug and slept."},
              {"cat sat on the ", "mat"},
              {"zzza cat sat on the mat", " again."},
              {"the d", "og sat on the rug"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        uint32_t p = (uint32_t)strlen(of[i].past), up = 0, k, at = 0;
        for (uint32_t c = 0; c < p; c++)
            past[c] = of[i].past[c];
        k = tree(&ntx__draft_index, x, past, p, 1);
        for (uint32_t c = 1; c < k && of[i].next[at]; c++)
            if (draft[c].parent == up) {
                CHECK_MSG(draft[c].token == of[i].next[at], "behind '%s': %c for %c of '%s'", of[i].past,
                          draft[c].token, of[i].next[at], of[i].next);
                up = c;
                at++;
            }
        CHECK_MSG(!of[i].next[at], "behind '%s' only %u come", of[i].past, at);
    }
    past[0] = 'Q';
    CHECK_EQ(tree(&ntx__draft_index, x, past, 1, 1), 1); /* nothing was like it */
    past[0] = 't';                                       /* several ways: each with a first token of its own */
    uint32_t k = tree(&ntx__draft_index, x, past, 1, 1), ways = 0;
    for (uint32_t c = 1; c < k; c++) {
        ways += !draft[c].parent;
        for (uint32_t d = 1; d < c; d++)
            CHECK(draft[c].parent || draft[d].parent || draft[c].token != draft[d].token);
    }
    CHECK_MSG(ways == 3, "%u ways behind a t", ways); /* h, a space, a full stop */
    ntx__draft_index.free(x);
#define SPOIL(at, value, words)                                                                                        \
    do {                                                                                                               \
        uint8_t was = (uint8_t)bytes[at];                                                                              \
        bytes[at] = (char)(value);                                                                                     \
        refused(&ntx__draft_index, bytes, len, words);                                                                 \
        bytes[at] = (char)was;                                                                                         \
    } while (0)
    SPOIL(8, 9, "of version 9");
    SPOIL(16, 78, "another vocabulary");
    SPOIL(24, 1, "longer than it says");
    SPOIL(35, 0x70, "out of bounds");
    SPOIL(len - 2, 0x70, "out of bounds");
    refused(&ntx__draft_index, bytes, len - 4, "cut off");
    refused(&ntx__draft_index, bytes, 20, "cut off");
    free(bytes);
}

static void looked_at(void)
{
    char in[4096];
    struct ntx_err err = {0};
    enum ntx_drafter_file_kind kind;
    struct ntx_drafter_needs needs;
    char one[NTX_DRAFTER_FILE_TEXT], other[NTX_DRAFTER_FILE_TEXT];
    int fd = temporary_file(in, sizeof in, "drafter-files");
    CHECK(!unlink(in));
    CHECK(write(fd, "ntx-script 1\n", 13) == 13);
    CHECK(!ntx_drafter_file_look(fd, NULL, 1, 1, &kind, &needs, &err) && kind == NTX_DRAFTER_FILE_SCRIPT &&
          needs.bytes == 39 + (64 << 10));
    CHECK(!ntx_drafter_file_digest(fd, one, &err) && strlen(one) == 32);
    CHECK(pwrite(fd, "ntx-script 2\n", 13, 0) == 13 && !ntx_drafter_file_digest(fd, other, &err) &&
          strcmp(one, other)); /* of the same size */
    CHECK(pwrite(fd, "something else", 14, 0) == 14 &&
          ntx_drafter_file_look(fd, NULL, 1, 1, &kind, &needs, &err) == -EINVAL &&
          strstr(err.text, "neither a small model (GGUF), nor an index"));
    close(fd);
}

int main(void)
{
    scripted();
    indexed();
    looked_at();
    return 0;
}
