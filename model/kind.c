/* SPDX-License-Identifier: Apache-2.0 */
#include "model/kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/printable.h"
#include "model/arch.h"

#define WRITES_NONE "and writes none; name a model that writes text"

/* Kinds by general.type or by the architecture. */
static const struct {
    const char *type, *arch;
    int rc;
    const char *is;
} kinds[] = {
    {"adapter", NULL, -EINVAL, "is an adapter: name the model that it is for, and this file with --lora"},
    {"imatrix", "imatrix", -EINVAL,
     "is an importance matrix: name the model, and this file with ntx quantize --imatrix"},
    {NULL, "ntx-skip", -EINVAL, "is a sidecar of ntx calibrate: name its model, and this file with --sidecar"},
    {NULL, "controlvector", -EINVAL, "is a control vector, which ntx does not apply: name the model that it is for"},
    {"vocab", NULL, -EINVAL, "has a vocabulary and no weights: name the model's own file"},
    {"mmproj", "clip", -ENOTSUP,
     "is the part of a model that reads images or sounds (mmproj): name the file of the language model that it is for"},
};

/* Architectures whose networks write no text. */
static const struct {
    const char *is;
    const char *archs; /* with a space before and after each */
} others[] = {
    {"is an embedding model: it makes a vector of a text " WRITES_NONE,
     " bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert gemma-embedding "
     "llama-embed "},
    {"is an encoder with a decoder behind it, of which ntx runs neither: name a model that is a decoder alone",
     " t5 t5encoder bart m2m madlad "},
    {"is a model of speech: name a model that writes text",
     " whisper parakeet wavtokenizer-dec qwen3tts pockettts kokoro parler outetts moonshine "},
    {"is a model that makes pictures or films: name a model that writes text",
     " flux flux2 sd sd1 sd2 sd3 sdxl pixart hidream qwen_image qwen-image aura auraflow cosmos hyvid wan wan2 ltxv "
     "lumina2 z_image z-image mochi chroma omnigen "},
};

static bool key_is(const struct ntx_gguf *g, const char *key, const char *value)
{
    struct ntx_str s;
    return value && !ntx_gguf_str(g, key, &s) && s.n == strlen(value) && !memcmp(s.p, value, s.n);
}

/* "FILE: this GGUF ..." */
static int refuse_file(int rc, const char *name, const char *what, struct ntx_err *err)
{
    ntx_err_set(err, rc, "this GGUF %s", what);
    if (name)
        ntx_err_prefix(err, "%s", name);
    return rc;
}

/* Refuses embedding models and rerankers, which pool their outputs (key pooling_type). */
static int refuse_pooling(const struct ntx_gguf *g, const char *arch, const char *name, struct ntx_err *err)
{
    static const char *const pools[] = {"none", "mean", "cls", "last", "rank"};
    char key[96], what[400];
    uint64_t v;
    snprintf(key, sizeof key, "%s.pooling_type", arch);
    if (ntx_gguf_u64(g, key, &v) || !v || v == UINT32_MAX)
        return 0;
    snprintf(what, sizeof what,
             "is %s (key '%s' is %llu%s%s): it %s " WRITES_NONE "; --override-kv %s=int:0 runs it all the same",
             v == 4 ? "a reranker" : "an embedding model", key, (unsigned long long)v, v < 5 ? ", " : "",
             v < 5 ? pools[v] : "", v == 4 ? "tells how well a text answers a question" : "makes a vector of a text",
             key);
    return refuse_file(-ENOTSUP, name, what, err);
}

bool ntx_kind_is_vocab(const struct ntx_gguf *g) { return key_is(g, "general.type", "vocab"); }

int ntx_kind_refuse(const struct ntx_gguf *g, const char *name, struct ntx_err *err)
{
    struct ntx_str arch;
    char text[48], padded[52], what[160];
    if (ntx_head_kind(g)) {
        snprintf(what, sizeof what,
                 "is a drafter of the %s kind: name the model that it is for, and this file with --draft",
                 ntx_head_kind(g));
        return refuse_file(-ENOTSUP, name, what, err);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (key_is(g, "general.type", kinds[i].type) || key_is(g, "general.architecture", kinds[i].arch))
            return refuse_file(kinds[i].rc, name, kinds[i].is, err);
    if (ntx_gguf_str(g, "general.architecture", &arch))
        return 0;
    ntx_printable(text, sizeof text, arch.p, arch.n);
    snprintf(padded, sizeof padded, " %s ", text);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(others[i].archs, padded))
            return refuse_file(-ENOTSUP, name, others[i].is, err);
    return refuse_pooling(g, text, name, err);
}
