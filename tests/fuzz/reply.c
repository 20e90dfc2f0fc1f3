/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c: the parser of model output, under libFuzzer. The first byte picks the format and its start; the second
 * says how the reply is split and whether it was cut off. The rest is the reply. It parses the same whole and split,
 * and loses no text but markers and blanks. */
#include "model/reply/reply.h"
#include "tests/fuzz/fuzz.h"

struct sum {
    uint64_t hash[3];
    size_t bytes;
};

static int part(void *arg, const struct ntx_reply_part *p)
{
    struct sum *s = arg;
    MUST(p->kind <= NTX_REPLY_CALL && (p->kind == NTX_REPLY_CALL || p->len));
    if (p->kind == NTX_REPLY_CALL)
        MUST(p->name[0] && p->id && ntx_reply_whole(p->text, p->len) <= p->len);
    for (size_t i = 0; i < p->len; i++)
        s->hash[p->kind] = (s->hash[p->kind] ^ (uint8_t)p->text[i]) * 1099511628211u;
    s->bytes += p->len;
    return 0;
}

static struct sum run(const struct ntx_reply_format *f, bool thinks, const char *text, size_t len, size_t piece,
                      bool cut)
{
    struct sum s = {.bytes = 0};
    struct ntx_reply *r;
    struct ntx_reply_options options = {.format = f, .thinks = thinks, .part = part, .arg = &s};
    MUST(!ntx_reply_new(&options, &r));
    for (size_t i = 0; i < len; i += piece)
        MUST(!ntx_reply_feed(r, text + i, len - i < piece ? len - i : piece));
    MUST(!(cut ? ntx_reply_cut : ntx_reply_end)(r));
    ntx_reply_free(r);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"harmony", "deepseek-v4", "deepseek-v3.2", "deepseek",  "kimi",
                                        "minimax", "glm",         "qwen3-coder",   "mistral",   "hermes",
                                        "llama-3", "plain",       "seed",          "command-a", "lfm2",
                                        "apertus", "nemotron-2",  "jamba",         "hy-3",      "minimax-m3"};
    if (size < 2 || size > 4000)
        return 0;
    const struct ntx_reply_format *f = ntx_reply_by_name(names[data[0] % (sizeof names / sizeof *names)]);
    const char *text = (const char *)data + 2;
    struct sum a = run(f, data[0] & 0x80, text, size - 2, size, data[1] & 0x80),
               b = run(f, data[0] & 0x80, text, size - 2, 1 + data[1] % 16, data[1] & 0x80);
    MUST(!memcmp(&a, &b, sizeof a));
    (void)ntx_reply_by_template(text, size - 2);
    return 0;
}
