/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: ntx-mkmodel [OPTIONS] OUT.gguf */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "model/arch.h"
#include "tests/mkmodel/options.h"

enum { EXIT_USAGE = 100, EXIT_RUNTIME = 111 };

static void usage(FILE *to)
{
    fprintf(
        to,
        "usage: ntx-mkmodel [OPTIONS] OUT.gguf\n"
        "Writes a GGUF model with random weights; the same options and seed give the same bytes.\n"
        "  --arch %s   (llama)\n"
        "  --type TYPE                   (F32) %s\n"
        "  --layers N (4)  --embd N (256)  --ff N (768)  --heads N (8)  --kv N (2)  --head-dim N (embd / heads)\n"
        "  --experts N (none, or 8 where the architecture has experts)  --experts-used N (2)  --expert-ff N (ff)  "
        "--shared-ff N (ff)\n"
        "  --dense N (0: leading layers without experts)  --nextn N (0: next-token blocks)  --nextn-agrees F (what "
        "layers add is made so small, and the block goes by the token alone: it is mostly right)  --rotated N (whole "
        "heads)  --expert-scale F (no key)\n"
        "  --expert-every N (1; llama4: of so many layers the last has experts)  --attn-chunk N  --attn-chunk-pattern "
        "N (no "
        "keys; llama4)  --temperature-length N (no key; deepseek2, mistral4)\n"
        "  gemma4, each third layer having no window: --window-head N (head-dim)  --full-kv N (kv)  --shared-kv N (0)  "
        "--layer-input N (none)  --no-v\n"
        "  nemotron_h_moe: --latent N (0: experts read the state itself; kimi-k3: 64)  jamba: --q-lora N (32: rank of "
        "the rates)\n"
        "  grovemoe: --shared-ff N (ff: width of a group's adjugate expert; groups have 2 experts, or 3 of an odd "
        "number)  "
        "--expert-scale F (0.5: its factor)\n"
        "  step35: --window-heads N (heads), of all layers but each third, which have a window\n"
        "  --kv-lora N  --q-lora N (none)  --value-dim N (as --head-dim)  --kv-joined  --log-multiplier F (no key)   "
        "attention over latents: deepseek2, kimi-linear, kimi-k3\n"
        "  --index-heads N (8)  --index-head N (64)  --index-most N (24)  --index-every N (no key: all layers)   of "
        "chosen positions: deepseek32, glm-dsa, deepseek4, glm5-next, qwen4exp\n"
        "  glm5-next: --index-pool N (4: positions that are chosen together)  --delta-bound F (no key)\n"
        "  minimax-m3: --index-pool N (128: positions of a block)  --index-most N (16 blocks)\n"
        "  qwen4exp: --index-pool N (4)  --low-rank N (16)  --gram-layer N (none: from 1 on, the layer that adds what "
        "follows from the last three tokens)  --gram-heads N (2)  --gram-entries N (97)\n"
        "  deepseek4, whose layers in turn pool nothing, 4 and 128 positions: --hashed N (0: first layers whose "
        "experts follow from the token)  --o-parts N (2)  --o-lora N (32)\n"
        "  --expert-groups N (none)  --expert-groups-used N  --sigmoid (router, where the architecture leaves it "
        "open)\n"
        "  --delta-head N (32)  --delta-heads N (4)  --delta-keys N (2)  --delta-taps N (4)  --attention-every N (4)   "
        "  where layers are delta nets\n"
        "  --fused (an expert's gate and up are one matrix)  --delta-joined (qwen3next: a delta net's q, k, v and gate "
        "are)\n"
        "  --window N (32; gpt-oss, gemma)  --ctx N (512)  --tied  --biases (q, k, v)  --qk-norms (both where the "
        "architecture leaves them open)  --logit-scale F (3)\n"
        "  --scales (matrices X.weight have an X.scale beside them, as files of NVFP4 do)\n"
        "  --arch eagle3 or dflash, drafters: --taps N,N,N (0,1,2: layers of the model that it is for)  --state-width "
        "N (embd: that model's)  --draft-vocab N (all: tokens that it knows)  --norm-before-fc  --norm-before-residual "
        " --bare (embedding and output are that model's)\n"
        "  dflash: --block N (8: tokens that are drafted at once)  --window N (32: of each other layer)\n"
        "  --arch mmproj-KIND: a projector file for a model of --embd (KIND: qwen2vl_merger, qwen2.5vl_merger, "
        "qwen3vl_merger, glm4v, gemma3, pixtral, mimovl, deepseek4v and others)  --state-width N (48)  --type "
        "F32|F16|Q8_0\n"
        "  --rope-base F (10000)  --rope-scaling none|linear|yarn  --rope-factor F (1)  --rope-orig N (ctx / factor)  "
        "--yarn-magnitude F (no key)\n"
        "  --rope-freqs                  writes the frequency divisors of Llama 3.1 for --rope-factor\n"
        "  --vocab-from X.gguf           its tokenizer; else a small built-in one, filled up to --vocab-size N\n"
        "  --chat-template llama-2|llama-3|chatml|mistral|harmony\n"
        "  --repeat-layers               later layers are the bytes of the first ones: a large model's shape in a "
        "small file\n"
        "  --holes                       weights are zeros that take no room on the drive: a large model's true size\n"
        "  --gguf-version 2|3 (3)  --split N (1)  --seed N (1)  --name TEXT\n",
        ntx_arch_names(), mk_type_names());
}

static const char *inconsistent(const struct mk_options *o)
{
    uint32_t head = o->head_dim ? o->head_dim : o->embd / o->heads;
    if (!o->head_dim && o->embd % o->heads)
        return "--embd is not a multiple of --heads: give --head-dim";
    if (head < 2 || head % 2)
        return "a head must be an even number of values wide";
    if (o->heads % o->kv)
        return "--heads is not a multiple of --kv";
    if (o->experts && !mk_arch_experts(o->arch, o->experts))
        return "--experts wants an --arch with experts";
    if (o->rotated % 2 || o->rotated > head)
        return "--rotated must be even, and no more than a head";
    bool chooses = !strcmp(o->arch, "deepseek32") || !strcmp(o->arch, "glm-dsa") || !strcmp(o->arch, "hy_v4");
    if (chooses && (!o->q_lora || o->kv_joined || (o->index_head ? o->index_head : 64) < o->rotated))
        return "positions are chosen with --q-lora, without --kv-joined, and by an --index-head of --rotated values or "
               "more";
    if ((chooses || !strcmp(o->arch, "deepseek2") || !strcmp(o->arch, "kimi-linear") || !strcmp(o->arch, "kimi-k3")) &&
        (!o->kv_lora || !o->rotated || o->rotated >= head))
        return "attention over latents wants --kv-lora, and --rotated, less than --head-dim";
    if (!strcmp(o->arch, "glm5-next") && (!o->q_lora || !o->kv_lora || o->kv_joined || o->rotated))
        return "glm5-next wants --q-lora and --kv-lora, and neither --kv-joined nor --rotated";
    uint32_t grams = 2 * (o->gram_heads ? o->gram_heads : 2), turned = o->rotated ? o->rotated : head;
    if (!strcmp(o->arch, "qwen4exp") && ((o->gram_layer && (o->gram_layer > o->layers || o->embd % grams)) ||
                                         (o->index_head ? o->index_head : 64) < turned))
        return "qwen4exp wants a --gram-layer of its --layers, an --embd that is a multiple of its table's rows of a "
               "token, and an --index-head of --rotated values or more";
    if (!strcmp(o->arch, "deepseek4") && (o->layers < 2 || !o->q_lora || !o->rotated || head % 16 ||
                                          (o->index_head ? o->index_head : 64) < o->rotated || o->kv != 1))
        return "deepseek4 wants --layers 2 or more, --kv 1, --q-lora, --rotated, heads of a multiple of 16, and an "
               "--index-head of --rotated values or more";
    if (o->experts && o->experts_used > o->experts)
        return "--experts-used is more than --experts";
    if ((!strcmp(o->type, "F32") || !strcmp(o->type, "F16") || !strcmp(o->type, "BF16")) ||
        (o->embd % 32 == 0 && o->ff % 32 == 0 && o->expert_ff % 32 == 0 && o->shared_ff % 32 == 0))
        return NULL;
    return "quantised types want --embd and --ff to be multiples of 32";
}

int main(int argc, char **argv)
{
    struct mk_options o = {.arch = "llama",
                           .type = "F32",
                           .name = "random",
                           .rope_scaling = "none",
                           .layers = 4,
                           .embd = 256,
                           .ff = 768,
                           .heads = 8,
                           .kv = 2,
                           .ctx = 512,
                           .rope_base = 10000,
                           .rope_factor = 1,
                           .logit_scale = 3,
                           .experts_used = 2,
                           .window = 32,
                           .version = 3,
                           .parts = 1,
                           .seed = 1};
    struct mk_file f = {0};
    struct ntx_err err = {0};
    float *freqs = NULL;
    uint64_t bytes = 0;
    char size[32];
    const char *problem;
    int first = mk_options_take(&o, argc, argv);
    if (first == MK_HELP)
        usage(stdout);
    if (first <= 0)
        return first ? EXIT_USAGE : 0;
    if (!o.experts && mk_arch_experts(o.arch, 0))
        o.experts = 8;
    if (first != argc - 1 || (problem = inconsistent(&o))) {
        fprintf(stderr, "ntx-mkmodel: %s\n", first != argc - 1 ? "give one output file; see --help" : problem);
        return EXIT_USAGE;
    }
    uint64_t start = ntx_now_ns();
    int rc = mk_describe(&f, &o, &freqs, &err);
    if (!rc)
        rc = mk_write(&f, argv[first], o.parts, &bytes, &err);
    if (rc)
        fprintf(stderr, "ntx-mkmodel: %s\n", err.text);
    else
        printf("%s: %zu tensors, %s, %.1f s\n", argv[first], f.n_tensors, ntx_format_size(bytes, size, sizeof size),
               (double)(ntx_now_ns() - start) * 1e-9);
    free(freqs);
    mk_file_free(&f);
    return rc ? EXIT_RUNTIME : 0;
}
