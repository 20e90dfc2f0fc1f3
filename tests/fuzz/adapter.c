/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.c: files that are loaded beside a model (--lora), and models with layers that share matrices and add a
 * low-rank product to them, with neuron groups or without. The first byte picks: 0 is an adapter, with or without
 * room for its tensors, beside a small valid model; 1 is a model. */
#include <math.h>

#include "common/util.h"
#include "model/chunk.h"
#include "model/digest.h"
#include "model/gguf_out.h"
#include "model/quant.h"
#include "tests/fuzz/fuzz.h"

enum { LAYERS = 2, EMBD = 64, FF = 96, VOCAB = 8, RANK = 4, PLENTY = 1 << 20 };

static int base_fd = -1; /* the model */

static int no_bytes(void *ctx, uint32_t tensor, int fd, struct ntx_err *err)
{
    (void)ctx, (void)tensor, (void)fd, (void)err;
    return 0;
}

static void put(struct ntx_gguf_out *g, const char *name, uint32_t type, uint64_t n_in, uint64_t n_out)
{
    ntx_gguf_out_data(g, name, type, (const uint64_t[4]){n_in, n_out ? n_out : 1, 1, 1}, n_out ? 2 : 1, no_bytes, NULL,
                      0);
}

static void put_in_layer(struct ntx_gguf_out *g, uint32_t layer, const char *name, uint32_t type, uint64_t n_in,
                         uint64_t n_out)
{
    char whole[64];
    snprintf(whole, sizeof whole, "blk.%u.%s", layer, name);
    put(g, whole, type, n_in, n_out);
}

static struct ntx_gguf_out *with_keys(void)
{
    struct ntx_gguf_out *g = ntx_gguf_out_new();
    MUST(g);
    ntx_gguf_out_str(g, "general.architecture", "llama");
    return g;
}

static void put_model_keys(struct ntx_gguf_out *g)
{
    ntx_gguf_out_u32(g, "llama.block_count", LAYERS);
    ntx_gguf_out_u32(g, "llama.context_length", 64);
    ntx_gguf_out_u32(g, "llama.embedding_length", EMBD);
    ntx_gguf_out_u32(g, "llama.feed_forward_length", FF);
    ntx_gguf_out_u32(g, "llama.attention.head_count", 2);
    ntx_gguf_out_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

static const char *const squares[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"};

static void put_ends(struct ntx_gguf_out *g)
{
    put(g, "token_embd.weight", NTX_F32, EMBD, VOCAB);
    put(g, "output_norm.weight", NTX_F32, EMBD, 0);
}

static void put_layer(struct ntx_gguf_out *g, uint32_t l, bool ffn)
{
    put_in_layer(g, l, "attn_norm.weight", NTX_F32, EMBD, 0);
    put_in_layer(g, l, "ffn_norm.weight", NTX_F32, EMBD, 0);
    for (size_t i = 0; i < sizeof squares / sizeof *squares; i++)
        put_in_layer(g, l, squares[i], NTX_F16, EMBD, EMBD);
    put_in_layer(g, l, "ffn_gate.weight", NTX_F16, EMBD, FF);
    if (!ffn)
        return;
    put_in_layer(g, l, "ffn_up.weight", NTX_F16, EMBD, FF);
    put_in_layer(g, l, "ffn_down.weight", NTX_F16, FF, EMBD);
}

static void put_pair(struct ntx_gguf_out *g, uint32_t l, const char *name, uint64_t n_in, uint64_t n_out)
{
    char part[64];
    snprintf(part, sizeof part, "%s.lora_a", name);
    put_in_layer(g, l, part, NTX_F16, n_in, RANK);
    snprintf(part, sizeof part, "%s.lora_b", name);
    put_in_layer(g, l, part, NTX_F16, RANK, n_out);
}

static struct ntx_gguf_out *plain_model(void)
{
    struct ntx_gguf_out *g = with_keys();
    put_model_keys(g);
    put_ends(g);
    for (uint32_t l = 0; l < LAYERS; l++)
        put_layer(g, l, true);
    return g;
}

static struct ntx_gguf_out *adapter(void)
{
    struct ntx_gguf_out *g = with_keys();
    ntx_gguf_out_str(g, "general.type", "adapter");
    ntx_gguf_out_str(g, "adapter.type", "lora");
    ntx_gguf_out_f32(g, "adapter.lora.alpha", 8);
    ntx_gguf_out_f32(g, "ntx.delta.error", 0.1f);
    ntx_gguf_out_str(g, "ntx.delta.of", "0123456789abcdef0123456789abcdef");
    put_pair(g, 0, "attn_q.weight", EMBD, EMBD);
    put_pair(g, 1, "ffn_down.weight", FF, EMBD);
    put_in_layer(g, 1, "ffn_up.weight.delta", NTX_F16, EMBD, FF);
    return g;
}

/* A model whose layer 1 shares the matrices of layer 0, in neuron groups or not. */
static struct ntx_gguf_out *shared_model(bool grouped)
{
    static const uint32_t base[LAYERS], types[LAYERS] = {NTX_F16, NTX_F16}, groups[LAYERS] = {8, 8};
    struct ntx_gguf_out *g = with_keys();
    put_model_keys(g);
    ntx_gguf_out_u32s(g, "ntx.delta.base", base, LAYERS);
    ntx_gguf_out_f32(g, "ntx.delta.error", 0.1f);
    ntx_gguf_out_f32(g, "adapter.lora.alpha", 8);
    if (grouped) {
        ntx_gguf_out_align(g, 4096);
        ntx_gguf_out_u32(g, "ntx.pack.version", 1);
        ntx_gguf_out_u32s(g, "ntx.pack.group", groups, LAYERS);
        ntx_gguf_out_u32s(g, "ntx.pack.up_type", types, LAYERS);
        ntx_gguf_out_u32s(g, "ntx.pack.down_type", types, LAYERS);
        ntx_gguf_out_u32s(g, "ntx.pack.up_delta_type", types, LAYERS);
        ntx_gguf_out_u32s(g, "ntx.pack.down_delta_type", types, LAYERS);
        put_in_layer(g, 0, "ntx_ffn.weight", NTX_I8, 4096, FF / 8);
    }
    put_ends(g);
    put_layer(g, 0, !grouped);
    put_in_layer(g, 1, "attn_norm.weight", NTX_F32, EMBD, 0);
    put_in_layer(g, 1, "ffn_norm.weight", NTX_F32, EMBD, 0);
    for (uint32_t l = 0; l < LAYERS; l++) {
        put_pair(g, l, "attn_v.weight", EMBD, EMBD);
        put_pair(g, l, "ffn_gate.weight", EMBD, FF);
        if (!grouped) {
            put_pair(g, l, "ffn_up.weight", EMBD, FF);
            put_pair(g, l, "ffn_down.weight", FF, EMBD);
        } else {
            put_in_layer(g, l, "ntx_ffn_delta.weight", NTX_I8, 4096, FF / 8);
            put_in_layer(g, l, "ffn_up.weight.lora_a", NTX_F16, EMBD, RANK);
            put_in_layer(g, l, "ffn_down.weight.lora_b", NTX_F16, RANK, EMBD);
        }
    }
    return g;
}

/* A file with this header and zeros as the data of its tensors. */
static int file_of(const void *header, size_t n, uint64_t more)
{
    char path[64];
    int fd = fuzz_file(header, n, path);
    MUST(!more || !ftruncate(fd, (off_t)(n + more)));
    return fd;
}

static void seed(const char *name, uint8_t first, struct ntx_gguf_out *g)
{
    size_t n;
    uint8_t *header = ntx_gguf_out_header(g, &n), *whole = malloc(n + 1);
    MUST(header && whole);
    whole[0] = first;
    memcpy(whole + 1, header, n);
    fuzz_seed(name, whole, n + 1);
    free(header), free(whole);
    ntx_gguf_out_free(g);
}

/* Opens the files as the product does. Complete ones are accepted, and their adapters are cut into chunks. */
static void use(const int *fds, unsigned n, uint64_t bytes, bool must_do)
{
    char *const names[] = {(char[]){"model"}, (char[]){"adapter"}};
    struct ntx_gguf *g;
    struct ntx_model *m;
    struct ntx_chunks *c;
    struct ntx_err err = {0};
    if (ntx_gguf_open(fds, n, (const char *const *)names, &g, &err)) {
        MUST(err.code < 0 && err.text[0] && !must_do);
        return;
    }
    if (ntx_adapters_fit(g, fds, n, names, &err))
        MUST(err.code < 0 && err.text[0]);
    if (ntx_model_open(g, &m, &err)) {
        if (must_do)
            fputs(err.text, stderr);
        MUST(err.code < 0 && err.text[0] && !must_do);
        ntx_gguf_free(g);
        return;
    }
    for (unsigned k = 0; k <= ntx_gguf_adapters(g); k++)
        MUST(isfinite(m->delta.alpha[k]));
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        MUST(!m->delta.base || m->delta.base[l] < m->hp.n_layers);
    if (!ntx_chunks_make(m, 1 << 16, &c, NULL)) {
        ntx_chunks_on_demand(c);
        for (uint32_t i = 0; i < c->n; i++)
            MUST(c->list[i].bytes && (c->list[i].file + 1 < n || c->list[i].offset + c->list[i].bytes <= bytes));
        ntx_chunks_free(c);
    }
    ntx_model_free(m);
    ntx_gguf_free(g);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    size_t n;
    struct ntx_gguf_out *g = plain_model();
    void *header = ntx_gguf_out_header(g, &n);
    MUST(header);
    base_fd = file_of(header, n, PLENTY);
    free(header);
    ntx_gguf_out_free(g);
    use(&base_fd, 1, n + PLENTY, true);
    if (!fuzz_seed_dir())
        return 0;
    seed("adapter", 0, adapter());
    seed("shared", 1, shared_model(false));
    seed("grouped", 1, shared_model(true));
    exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    for (int plenty = 0; plenty < 2; plenty++) {
        int fd = file_of(data + 1, size - 1, plenty ? PLENTY : 0), fds[2] = {base_fd, fd};
        uint64_t bytes = size - 1 + (plenty ? PLENTY : 0);
        if (*data)
            use(&fd, 1, bytes, false);
        else
            use(fds, 2, bytes, false);
        close(fd);
    }
    return 0;
}
