/* main.c: ntx-mkmodel [OPTIONS] OUT.gguf */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "model/arch.h"
#include "tests/mkmodel/plan.h"

enum { EXIT_USAGE = 100, EXIT_RUNTIME = 111 };

enum opt {
    O_HELP = 1, O_ARCH, O_TYPE, O_NAME, O_CHAT, O_VOCAB, O_VOCAB_SIZE, O_LAYERS, O_EMBD, O_FF, O_EXPERTS, O_USED, O_EXPERT_FF, O_SHARED_FF, O_HEADS, O_KV, O_HEAD_DIM, O_WINDOW, O_CTX,
    O_DENSE, O_NEXTN, O_ROTATED, O_QK_NORMS, O_EXPERT_SCALE, O_TIED, O_BIASES, O_REPEAT, O_BASE, O_SCALING, O_FACTOR, O_ORIG, O_FREQS, O_LOGIT, O_VERSION, O_SPLIT, O_SEED,
};

static const struct option options[] = {
    {"help", 0, 0, O_HELP}, {"arch", 1, 0, O_ARCH}, {"type", 1, 0, O_TYPE}, {"name", 1, 0, O_NAME},
    {"chat-template", 1, 0, O_CHAT}, {"vocab-from", 1, 0, O_VOCAB}, {"vocab-size", 1, 0, O_VOCAB_SIZE}, {"layers", 1, 0, O_LAYERS},
    {"embd", 1, 0, O_EMBD}, {"ff", 1, 0, O_FF}, {"experts", 1, 0, O_EXPERTS},
    {"experts-used", 1, 0, O_USED}, {"expert-ff", 1, 0, O_EXPERT_FF}, {"shared-ff", 1, 0, O_SHARED_FF}, {"heads", 1, 0, O_HEADS}, {"kv", 1, 0, O_KV}, {"head-dim", 1, 0, O_HEAD_DIM},
    {"window", 1, 0, O_WINDOW}, {"ctx", 1, 0, O_CTX},
    {"dense", 1, 0, O_DENSE}, {"nextn", 1, 0, O_NEXTN}, {"rotated", 1, 0, O_ROTATED}, {"qk-norms", 0, 0, O_QK_NORMS}, {"expert-scale", 1, 0, O_EXPERT_SCALE},
    {"tied", 0, 0, O_TIED}, {"biases", 0, 0, O_BIASES}, {"repeat-layers", 0, 0, O_REPEAT}, {"rope-base", 1, 0, O_BASE},
    {"rope-scaling", 1, 0, O_SCALING}, {"rope-factor", 1, 0, O_FACTOR}, {"rope-orig", 1, 0, O_ORIG}, {"rope-freqs", 0, 0, O_FREQS},
    {"logit-scale", 1, 0, O_LOGIT}, {"gguf-version", 1, 0, O_VERSION}, {"split", 1, 0, O_SPLIT}, {"seed", 1, 0, O_SEED},
    {0},
};

static void usage(FILE *to)
{
    fprintf(to,
            "usage: ntx-mkmodel [OPTIONS] OUT.gguf\n"
            "Writes a GGUF model with random weights; the same options and seed give the same bytes.\n"
            "  --arch %s   (llama)\n"
            "  --type TYPE                   (F32) %s\n"
            "  --layers N (4)  --embd N (256)  --ff N (768)  --heads N (8)  --kv N (2)  --head-dim N (embd / heads)\n"
            "  --experts N (none, or 8 where the architecture has experts)  --experts-used N (2)  --expert-ff N (ff)  --shared-ff N (ff)\n"
            "  --dense N (0: leading layers without experts)  --nextn N (0: blocks that foretell tokens)  --rotated N (whole heads)  --expert-scale F (no key)\n"
            "  --window N (32; gpt-oss)  --ctx N (512)  --tied  --biases (q, k, v)  --qk-norms (both where the architecture leaves them open)  --logit-scale F (3)\n"
            "  --rope-base F (10000)  --rope-scaling none|linear|yarn  --rope-factor F (1)  --rope-orig N (ctx / factor)\n"
            "  --rope-freqs                  writes the frequency divisors of Llama 3.1 for --rope-factor\n"
            "  --vocab-from X.gguf           its tokenizer; else a small built-in one, filled up to --vocab-size N\n"
            "  --chat-template llama-2|llama-3|chatml|mistral|harmony\n"
            "  --repeat-layers               later layers are the bytes of the first ones: a large model's shape in a small file\n"
            "  --gguf-version 2|3 (3)  --split N (1)  --seed N (1)  --name TEXT\n",
            ntx_arch_names(), mk_type_names());
}

/* A whole number in [min, max]; false on anything else. */
static bool number(const char *text, uint64_t min, uint64_t max, uint64_t *v)
{
    char *end;
    unsigned long long x = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || x < min || x > max)
        return false;
    *v = x;
    return true;
}

static bool number32(const char *text, uint32_t min, uint32_t max, uint32_t *v)
{
    uint64_t x;
    if (!number(text, min, max, &x))
        return false;
    *v = (uint32_t)x;
    return true;
}

static bool real(const char *text, float min, float *v)
{
    char *end;
    float x = strtof(text, &end);
    if (end == text || *end || !(x >= min && x < 1e12f))
        return false;
    *v = x;
    return true;
}

static bool one_of(const char *text, const char *const *names, const char **v)
{
    for (; *names; names++)
        if (!strcmp(*names, text)) {
            *v = *names;
            return true;
        }
    return false;
}

static bool take(struct mk_options *o, int opt, const char *a)
{
    static const char *const scalings[] = {"none", "linear", "yarn", NULL};
    switch (opt) {
    case O_ARCH: o->arch = a; return mk_arch_known(a);
    case O_SCALING: return one_of(a, scalings, &o->rope_scaling);
    case O_TYPE: o->type = a; return mk_type_known(a);
    case O_NAME: o->name = a; return true;
    case O_CHAT: o->chat_template = a; return true;
    case O_VOCAB: o->vocab_from = a; return true;
    case O_VOCAB_SIZE: return number32(a, 1, 200000, &o->vocab_size);
    case O_LAYERS: return number32(a, 1, 512, &o->layers);
    case O_EMBD: return number32(a, 1, 1 << 20, &o->embd);
    case O_FF: return number32(a, 1, 1 << 20, &o->ff);
    case O_EXPERTS: return number32(a, 1, 1024, &o->experts);
    case O_USED: return number32(a, 1, 1024, &o->experts_used);
    case O_EXPERT_FF: return number32(a, 1, 1 << 20, &o->expert_ff);
    case O_SHARED_FF: return number32(a, 1, 1 << 20, &o->shared_ff);
    case O_HEADS: return number32(a, 1, 4096, &o->heads);
    case O_KV: return number32(a, 1, 4096, &o->kv);
    case O_HEAD_DIM: return number32(a, 2, 4096, &o->head_dim);
    case O_WINDOW: return number32(a, 1, 1 << 24, &o->window);
    case O_CTX: return number32(a, 1, 1 << 24, &o->ctx);
    case O_DENSE: return number32(a, 0, 512, &o->dense);
    case O_NEXTN: return number32(a, 0, 16, &o->nextn);
    case O_ROTATED: return number32(a, 2, 4096, &o->rotated);
    case O_QK_NORMS: return o->qk_norms = true;
    case O_EXPERT_SCALE: return real(a, 0, &o->expert_scale);
    case O_TIED: return o->tied = true;
    case O_BIASES: return o->biases = true;
    case O_REPEAT: return o->repeat_layers = true;
    case O_FREQS: return o->rope_freqs = true;
    case O_BASE: return real(a, 1, &o->rope_base);
    case O_FACTOR: return real(a, 1, &o->rope_factor);
    case O_ORIG: return number32(a, 1, 1 << 24, &o->rope_orig);
    case O_LOGIT: return real(a, 0, &o->logit_scale);
    case O_VERSION: return number32(a, 2, 3, &o->version);
    case O_SPLIT: return number32(a, 1, 128, &o->parts);
    case O_SEED: return number(a, 0, UINT64_MAX, &o->seed);
    default: return false;
    }
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
    if (o->experts && o->experts_used > o->experts)
        return "--experts-used is more than --experts";
    if ((!strcmp(o->type, "F32") || !strcmp(o->type, "F16") || !strcmp(o->type, "BF16")) || (o->embd % 32 == 0 && o->ff % 32 == 0 && o->expert_ff % 32 == 0 && o->shared_ff % 32 == 0))
        return NULL;
    return "quantised types want --embd and --ff to be multiples of 32";
}

int main(int argc, char **argv)
{
    struct mk_options o = {.arch = "llama", .type = "F32", .name = "random", .rope_scaling = "none", .layers = 4, .embd = 256,
                           .ff = 768, .heads = 8, .kv = 2, .ctx = 512, .rope_base = 10000, .rope_factor = 1, .logit_scale = 3,
                           .experts_used = 2, .window = 32, .version = 3, .parts = 1, .seed = 1};
    struct mk_file f = {0};
    struct ntx_err err = {0};
    float *freqs = NULL;
    uint64_t bytes = 0;
    char size[32];
    const char *problem;
    int opt, at = 0;
    while ((opt = getopt_long(argc, argv, "", options, &at)) != -1) {
        if (opt == O_HELP) {
            usage(stdout);
            return 0;
        }
        if (opt != '?' && take(&o, opt, optarg))
            continue;
        if (opt != '?')
            fprintf(stderr, "ntx-mkmodel: --%s %s: not possible; see --help\n", options[at].name, optarg ? optarg : "");
        return EXIT_USAGE;
    }
    if (!o.experts && mk_arch_experts(o.arch, 0))
        o.experts = 8;
    if (optind != argc - 1 || (problem = inconsistent(&o))) {
        fprintf(stderr, "ntx-mkmodel: %s\n", optind != argc - 1 ? "give one output file; see --help" : problem);
        return EXIT_USAGE;
    }
    uint64_t start = ntx_now_ns();
    int rc = mk_plan(&f, &o, &freqs, &err);
    if (!rc)
        rc = mk_write(&f, argv[optind], o.parts, &bytes, &err);
    if (rc)
        fprintf(stderr, "ntx-mkmodel: %s\n", err.text);
    else
        printf("%s: %zu tensors, %s, %.1f s\n", argv[optind], f.n_tensors, ntx_format_size(bytes, size, sizeof size),
               (double)(ntx_now_ns() - start) * 1e-9);
    free(freqs);
    mk_file_free(&f);
    return rc ? EXIT_RUNTIME : 0;
}
