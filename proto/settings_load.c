/* SPDX-License-Identifier: Apache-2.0 */
/* settings_load.c: the list of all settings of a load and of an answer's sampling. */
#include <errno.h>
#include <string.h>

#include "common/backends.h"
#include "proto/frame.h"
#include "proto/settings.h"

#define LOAD(f, m)                                                                                                     \
    .at = offsetof(struct ntx_load_settings, f), .wire = offsetof(Ntx__Load, m),                                       \
    .wire_size = sizeof(((Ntx__Load *)0)->m)
#define CONF(s, k, none) .section = s, .in_conf = k, .open = none

static const struct ntx_setting load_entries[] = {
    {"ram", 0, "SIZE",
     "memory for weights, KV cache and all other data (default: the smaller of available memory and the cgroup's "
     "limit, less 10 %)",
     .kind = NTX_SET_SIZE, LOAD(ram, ram_bytes), CONF("model", "ram", "0"),
     .about = "Memory for the model: resident weights, the ring, KV cache, activations, conversations. 0: the smaller\n"
              "of the available memory and the cgroup's limit, less 10 %. With a size here, the slice of the three\n"
              "daemons is limited to it plus 64 MiB and 1/64."},
    {"vram", 0, "SIZE", "GPU memory to use at most (default: all that is free)", .kind = NTX_SET_SIZE,
     LOAD(vram, vram_bytes)},
    {"ctx", 'c', "N",
     "tokens of context (default: the smallest of the model's own, 4096, and those that fit in a quarter of --ram)",
     .kind = NTX_SET_COUNT, .min = 1, .max = NTX_CTX_MAX, LOAD(ctx, ctx), CONF("model", "ctx", "0"),
     .about =
         "Tokens of context per session. 0: the smallest of the model's own, 4096 and those that fit in a quarter\n"
         "of ram."},
    {"threads", 't', "N", "compute threads (default, and -1: all cores)", .kind = NTX_SET_COUNT, .min = 1,
     .max = NTX_COUNT_MAX, .minus = "", LOAD(threads, threads), CONF("model", "threads", "0"),
     .about = "Compute threads. 0: one per core."},
    {"sessions", 0, "N", "full-context sessions to reserve KV for (default, and -1: 1)", .kind = NTX_SET_COUNT,
     .min = 1, .max = NTX_COUNT_MAX, .minus = "", LOAD(sessions, sessions), CONF("model", "sessions", "0"),
     .about = "Sessions with full context that memory is reserved for. 0: one; others share its unused memory."},
    {"rows", 0, "N", "rows (tokens) per pass at most", .kind = NTX_SET_COUNT, .min = 1, .max = NTX_COUNT_MAX,
     LOAD(rows, max_rows), CONF("model", "rows", "0"), .about = "Rows (tokens) per pass at most. 0: planned."},
    {"max-gap", 0, "SECONDS",
     "target for the time between two tokens of an answer while prompts are read beside it: a pass has only so many "
     "rows of prompts. It is at least twice the time of a pass without them (default 0.35; 3600: no limit; changes no "
     "output)",
     .kind = NTX_SET_REAL, .min = 0.01, .max = 3600, LOAD(max_gap, max_gap), CONF("clients", "max_gap", "0.35"),
     .about =
         "Target for the time between two tokens of an answer while prompts are read beside it, in seconds: a pass\n"
         "has only so many rows of prompts. It is at least twice the time of a pass without them. 3600: no limit.\n"
         "It changes no output."},
    {"backend", 0, "NAME", "auto, cpu or cuda (default auto)", .kind = NTX_SET_WORD,
     .choices = "back end:auto" NTX_BACKEND_CHOICES, LOAD(backend, backend), CONF("model", "backend", "auto"),
     .about = "auto, cpu or cuda"},
    {"kernel", 0, "NAME", "force an instruction set: generic, avx2, avx512, amx, neon or i8mm", .kind = NTX_SET_WORD,
     .choices = "known instruction set:generic|avx2|avx512|amx|neon|i8mm", LOAD(kernel, kernel),
     CONF("model", "kernel", "auto"), .about = "Instruction set: auto, generic, avx2, avx512, amx, neon or i8mm"},
    {"source", 0, "NAME", "how ntx-iod reads: auto, uring or pread", .kind = NTX_SET_WORD,
     .choices = "way to read:auto|uring|pread", LOAD(source, source), CONF("model", "source", "auto"),
     .about = "How ntx-iod reads: auto (io_uring, else pread), uring or pread"},
    {"skip", 0, "POLICY",
     "layer skip (lossy; on Qwen2.5-Coder-0.5B not worth its loss): off, static or predictive (both from a sidecar "
     "that "
     "`ntx calibrate` made) "
     "(default off)",
     .kind = NTX_SET_TEXT, .values = "off|static|predictive", LOAD(skip, skip), CONF("model", "skip", "off"),
     .about = "Layer skip, which changes the output: off, or a policy"},
    {"skip-kv", 0, "HOW",
     "KV of a token in a layer that it skips: propagate (computed from the state that skips the layer, which reads "
     "the K and V matrices; the default of static and predictive) or hole (masked; the default of the others)",
     .kind = NTX_SET_WORD, .choices = "way to keep KV at skipped layers:hole|propagate", LOAD(skip_kv, skip_kv)},
    {"skip-adapt", 0, NULL, "adapt each layer's skip threshold to the prompt", .kind = NTX_SET_FLAG,
     LOAD(skip_adapt, skip_adapt)},
    {"skip-verify", 0, "N", "every Nth generated token skips nothing, and its layers adapt the thresholds",
     .kind = NTX_SET_COUNT, .min = 2, .max = NTX_COUNT_MAX, LOAD(skip_verify, skip_verify)},
    {"ffn-sparse", 0, "MODE",
     "sparse FFN for a model that `ntx pack` made: compute and read only some neurons for a token: off, threshold=T "
     "(those with |act(gate)| above T; 0 leaves out exact zeros only, is lossless, and saves nothing with SwiGLU), "
     "topk=F (the share F with the "
     "largest; lossy); for generated tokens, and lossy: predicted=F[,gate|,learned] (the share F of the groups, "
     "predicted from the state before the layer by the gate matrix or by the sidecar's networks; without F the "
     "networks' own limits) or prompt=F (the share F of the groups that were most active in the prompt) (default off)",
     .kind = NTX_SET_TEXT, .values = "off|threshold=|topk=|predicted|predicted=|prompt=", LOAD(ffn_sparse, ffn_sparse),
     CONF("model", "ffn_sparse", "off"),
     .about =
         "Sparse FFN for a model that `ntx pack` made: off, threshold=T, topk=F, predicted=F or prompt=F (lossy but\n"
         "for threshold=0; `ntx run --help-all` explains each)"},
    {"kv-type", 0, "TYPE",
     "type of the KV cache: f16; q8_0 (lossy), about half the memory; or q4_0 (lossier; not on a GPU), about a "
     "third (default f16)",
     .kind = NTX_SET_WORD, .choices = "type of keys and values:f16|q8_0|q4_0", LOAD(kv_type, kv_type),
     CONF("model", "kv_type", "f16"),
     .about =
         "Type of the KV cache: f16; q8_0, which takes about half the memory and changes the output; or q4_0, which\n"
         "takes a third and changes it more"},
    {"draft", 0, "WAY",
     "speculative decoding: draft tokens and verify several in one pass; the text stays the same: auto (lookup, the "
     "model's own next-token block, and the drafter that its card names or self, where they pay), off, lookup (prompt "
     "lookup: what followed an earlier part that equals the text's end), nextn (that block), self (the model's copy in "
     "fewer bits, MODEL.draft.gguf beside it, made by `ntx quantize`; without one, the model's layers that are in "
     "memory), FILE (a small model of the same vocabulary, "
     "which drafts while weights are read; a drafter of the EAGLE-3 or DFlash kind made for the model; or an index "
     "that `ntx draft-index` made of texts); or several of them, with commas between (default auto)",
     .kind = NTX_SET_TEXT, .values = "auto|off|lookup|nextn|self|FILE", LOAD(draft, draft),
     CONF("model", "draft", "auto"),
     .about =
         "Speculative decoding: draft tokens and verify several in one pass; the text stays the same. auto: lookup,\n"
         "the model's own next-token block and the drafter that its card names, or else self, where they pay. off.\n"
         "lookup: drafts from the text itself. nextn: that block. self: the model's copy in fewer bits, x.draft.gguf\n"
         "beside x.gguf (ntx quantize x.gguf x.draft.gguf Q2_K), or else its layers that are in memory. PATH: a small\n"
         "model of the same vocabulary, a drafter of the EAGLE-3 or DFlash kind made for the model, or an index of\n"
         "`ntx draft-index` (the user ntx must be able to read it; its memory is part of ram). Or several, with "
         "commas\n"
         "between: lookup,PATH"},
    {"lora", 0, "FILE",
     "adapters (LoRA) of this model, as llama.cpp's tools and `ntx pack --delta --base` write them: [NAME=]FILE, at "
     "most four with commas between. A request may name one (--adapter); else it uses the first (statistics name it)",
     .kind = NTX_SET_TEXT, LOAD(lora, lora), CONF("model", "lora", ""),
     .about =
         "Adapters (LoRA) of the model: [NAME=]PATH, at most four, with commas between. A request names one as its\n"
         "model: MODEL:NAME, or none: MODEL:base; else it uses the first. The user ntx must be able to read them;\n"
         "their memory is part of ram."},
    {"mmproj", 0, "FILE",
     "the model's projector (llama.cpp's mmproj file), by which it takes images; off: none (default: the file beside "
     "the model whose name has mmproj in it, if there is one)",
     .kind = NTX_SET_TEXT, .max = 4096, .values = "off|FILE", LOAD(mmproj, mmproj), CONF("model", "mmproj", ""),
     .about = "The model's projector (an mmproj file), by which it takes images: its path, which the user ntx must be\n"
              "able to read; off; or empty: the file beside the model whose name has mmproj in it, if there is one.\n"
              "Its memory is part of ram."},
    {"override-kv", .kind = NTX_SET_TEXT, LOAD(override_kv, override_kv),
     CONF("model", "override_kv", ""), /* an option of every command with a MODEL: client/options.c */
     .about =
         "Replaces keys of the model's file that are wrong or missing: KEY=TYPE:VALUE, several with commas between.\n"
         "TYPE is int, float, bool or str: tokenizer.ggml.pre=str:llama-bpe"},
    {"think", .kind = NTX_SET_TEXT, .max = 47, LOAD(think, think),
     CONF("model", "think", ""), /* an option with the texts': client/options_table.c */
     .about =
         "Thoughts (reasoning) of answers whose request says nothing of them: on, off, minimal, low, medium, high,\n"
         "xhigh, max, a number of tokens as the limit, or several: on,2048. Empty: as the chat template has it."},
    {"chat-template", .kind = NTX_SET_TEXT, .max = 1 << 20, LOAD(chat_template, chat_template),
     CONF("model", "chat_template", ""), /* likewise */
     .about =
         "The chat template, instead of the model's own: the path of a file with one (Jinja), which the user ntx must\n"
         "be able to read, or a name: llama-2, llama-3, chatml, mistral, harmony, plain. Empty: the model's own."},
    {"draft-nodes", 0, "N",
     "draft N tokens for a pass wherever a drafter has a proposal (default: as many as pay, up to 127)",
     .kind = NTX_SET_COUNT, .min = 1, .max = 127, LOAD(draft_nodes, draft_nodes)},
    {"prefetch", 0, "on|off",
     "prefetch experts, and groups of neurons (--ffn-sparse), that the next layer will probably use (default on; "
     "changes no output)",
     .kind = NTX_SET_ON, LOAD(no_prefetch, no_prefetch)},
    {"gpu-graphs", 0, "on|off",
     "launch a token's kernels together as CUDA graphs, if the GPU has all of the model and they are the kernels of "
     "the "
     "previous token (default on; changes no output)",
     .kind = NTX_SET_ON, LOAD(no_gpu_graphs, no_gpu_graphs)},
    {"prefix-cache", 0, "on|off",
     "keep the KV of texts, as long as the memory is not needed, and reuse it for texts with the same beginning "
     "(default on; changes no output)",
     .kind = NTX_SET_ON, LOAD(no_prefix_cache, no_prefix_cache), CONF("model", "prefix_cache", "on"),
     .about =
         "Keep the KV of texts, as long as the memory is not needed, and reuse it for texts with the same beginning:\n"
         "on or off. It changes no output."},
    {"state", 0, "DIR",
     "keep the KV of texts in DIR too, so that a later run can reuse it (changes no output). DIR is made if it does "
     "not exist; no other user may have access to it",
     .kind = NTX_SET_PATH, LOAD(state, state), CONF("prefix", "state", ""),
     .about =
         "A directory for the KV of texts, which then survives a restart, in files of at most state_max bytes in\n"
         "all; empty: none. It is made if it does not exist, and only the user ntx may have access to it; under the\n"
         "unit it is below /var/lib/ntx. Its content reveals prompts, as memory does."},
    {"state-max", 0, "SIZE",
     "bytes of the files in --state DIR in all (default 20G); with --at-once, of those of each model",
     .kind = NTX_SET_SIZE, LOAD(state_max, state_max), CONF("prefix", "state_max", "20G"),
     .about = "Bytes of these files in all; with [model] at_once above 1, of those of each model."},
    {"kv-ram", 0, "SIZE",
     "keep at most SIZE of keys and values in memory (part of --ram), and older ones in an unnamed file in --state "
     "DIR, "
     "read ahead for each pass: for contexts beyond memory (default: all in memory; changes no output)",
     .kind = NTX_SET_SIZE, LOAD(kv_ram, kv_ram), CONF("prefix", "kv_ram", "0"),
     .about =
         "Most bytes of keys and values in memory (part of ram). Older ones are in an unnamed file in the directory\n"
         "`state`, read ahead for each pass. 0: all are in memory. It changes no output."},
    {"split", 0, "HOW",
     "how several machines share the model: rows (each has some outputs of every matrix, and all multiply at once), "
     "heads (the same, and each has K, V and attention of some heads), layers (each has whole layers, in turn: a "
     "quarter to a half of the message bytes, but one multiplies at a time) or auto (the fastest for a prompt and an "
     "answer, by the machines' profiles, the measured network and the context) (default auto; changes no output)",
     .kind = NTX_SET_WORD, .choices = "way to split a model:auto|rows|heads|layers", LOAD(split, split),
     CONF("model", "split", "auto"),
     .about = "How several machines share the model: rows (each has some outputs of every matrix), heads (the same,\n"
              "and each has keys and values of some heads), layers (each has whole layers) or auto (the fastest)"},
    {"trace-experts", 0, NULL,
     "event traces name the experts that each layer uses, which reveals something about the text", .kind = NTX_SET_FLAG,
     LOAD(trace_experts, trace_experts)},
    {"chunk", 0, "SIZE", "bytes of a chunk at most (default: planned)", .kind = NTX_SET_SIZE, .small = true,
     LOAD(chunk, chunk_bytes)},
    {"ring", 0, "N", "slots of the staging ring (default: planned)", .kind = NTX_SET_COUNT, .min = 3,
     .max = NTX_COUNT_MAX, LOAD(ring, ring_slots)},
    {"fault", 0, "SPEC", "inject faults (tests)", true, .kind = NTX_SET_TEXT, LOAD(fault, fault)},
    /* settings of --link, and those that `ntx calibrate` sets */
    {"link nvme", .kind = NTX_SET_RATE, LOAD(link_nvme, link_nvme_bps), CONF("links", "nvme", "0"),
     .about = "Emulate a slower drive. 0: the drive's own rate."},
    {"link h2d", .kind = NTX_SET_RATE, LOAD(link_h2d, link_h2d_bps)},
    {"link net", .kind = NTX_SET_RATE, LOAD(link_net, link_net_bps)},
    {"link delay", .kind = NTX_SET_RATE, .max = 1e6, LOAD(link_delay, link_net_us)},
    {"capture", .kind = NTX_SET_FLAG, LOAD(capture, capture)},
    {"sum inputs", .kind = NTX_SET_FLAG, LOAD(sum_inputs, sum_inputs)},
    {"capture ffns", .kind = NTX_SET_COUNT, .max = NTX_COUNT_MAX, LOAD(capture_ffns, capture_ffns)},
};
const struct ntx_settings ntx_load_settings = {load_entries, sizeof load_entries / sizeof *load_entries};

#define SAMPLING(f)                                                                                                    \
    .at = offsetof(struct ntx_sampling_settings, f), .wire = offsetof(Ntx__Sampling, f),                               \
    .wire_size = sizeof(((Ntx__Sampling *)0)->f)
#define ALL_TOKENS "268435456"
_Static_assert(NTX_CTX_MAX == 268435456, "ALL_TOKENS");
#define GIVEN(f) .given = offsetof(struct ntx_sampling_settings, f)

static const struct ntx_setting sampling_entries[] = {
    {"temp", 0, "T", "temperature, 0 is greedy (default $; with --raw 0)", .kind = NTX_SET_REAL, .max = 100,
     .preset = "0.8", SAMPLING(temp), GIVEN(has_temp)},
    {"top-k", 0, "K", "sample from the K likeliest tokens (default $; 0 and -1: off)", .kind = NTX_SET_COUNT,
     .preset = "40", .minus = "0", SAMPLING(top_k)},
    {"top-p", 0, "P",
     "sample from the likeliest tokens of probability P in all (default $; 1: off, 0: the likeliest one)",
     .kind = NTX_SET_REAL, .max = 1, .preset = "0.95", SAMPLING(top_p)},
    {"min-p", 0, "P", "drop tokens below P times the likeliest one's probability (default $, 0 off)",
     .kind = NTX_SET_REAL, .max = 1, .preset = "0.05", SAMPLING(min_p)},
    {"typical-p", 0, "P",
     "sample from the tokens of probability P in all whose surprise is nearest to the mean (default $, off; 0: one "
     "token)",
     .kind = NTX_SET_REAL, .max = 1, .preset = "1", SAMPLING(typical_p)},
    {"mirostat", 0, "V",
     "instead of top-k, typical-p, top-p and min-p, bound the surprise of tokens so that its mean is mirostat-tau: "
     "version 1 or 2 (default $, off)",
     .kind = NTX_SET_COUNT, .max = 2, .preset = "0", SAMPLING(mirostat)},
    {"mirostat-tau", 0, "BITS", "the mean surprise of mirostat (default $)", .kind = NTX_SET_REAL, .min = 0.01,
     .max = 100, .preset = "5", SAMPLING(mirostat_tau)},
    {"mirostat-eta", 0, "R", "how fast mirostat follows (default $)", .kind = NTX_SET_REAL, .min = 0.0001, .max = 10,
     .preset = "0.1", SAMPLING(mirostat_eta)},
    {"repeat-penalty", 0, "R", "divide logits of the last tokens (repeat-last-n) by R (default $; 0 and 1: off)",
     .kind = NTX_SET_REAL, .max = 100, .preset = "1", SAMPLING(repeat_penalty)},
    {"repeat-last-n", 0, "N", "tokens that repeat-penalty looks back at (default 64; 0: off, -1: all of the context)",
     .kind = NTX_SET_COUNT, .max = NTX_CTX_MAX, .minus = ALL_TOKENS, SAMPLING(repeat_last), GIVEN(has_repeat_last)},
    {"presence-penalty", 0, "R",
     "subtract R from the logits of tokens that the answer has already (default $, off; -2 to 2)", .kind = NTX_SET_REAL,
     .min = -2, .max = 2, .preset = "0", SAMPLING(presence_penalty)},
    {"frequency-penalty", 0, "R",
     "subtract R from them for each time that the answer has them (default $, off; -2 to 2)", .kind = NTX_SET_REAL,
     .min = -2, .max = 2, .preset = "0", SAMPLING(frequency_penalty)},
    {"seed", 0, "S", "random seed (default, -1 and 4294967295: random, printed)", .kind = NTX_SET_NUMBER, .minus = "",
     SAMPLING(seed), GIVEN(has_seed)},
};
const struct ntx_settings ntx_sampling_settings = {sampling_entries,
                                                   sizeof sampling_entries / sizeof *sampling_entries};

static bool policy_is(const char *policy, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(policy, name, n) && (!policy[n] || policy[n] == ':');
}

bool ntx_skip_learned(const char *policy)
{
    return policy && (policy_is(policy, "static") || policy_is(policy, "predictive"));
}
bool ntx_skip_off(const char *policy)
{
    return !policy || !*policy || !strcmp(policy, "off") || !strcmp(policy, "none");
}

/* Length of the comma-separated part at p. Returns the next part, or NULL. */
static const char *next_part(const char *p, size_t *len)
{
    *len = strcspn(p, ",");
    return p[*len] ? p + *len + 1 : NULL;
}

static bool part_is(const char *p, size_t len, const char *word)
{
    return len == strlen(word) && !memcmp(p, word, len);
}

bool ntx_draft_off(const char *draft) { return draft && !strcmp(draft, "off"); }
bool ntx_draft_auto(const char *draft) { return !draft || !*draft || !strcmp(draft, "auto"); }

/* The list of drafters; NULL for off and auto. */
static const char *named_parts(const char *draft)
{
    return ntx_draft_off(draft) || ntx_draft_auto(draft) ? NULL : draft;
}

static bool draft_names(const char *draft, const char *word)
{
    size_t len;
    for (const char *p = named_parts(draft), *next; p; p = next) {
        next = next_part(p, &len);
        if (part_is(p, len, word))
            return true;
    }
    return false;
}

unsigned ntx_lora_files(const char *lora)
{
    unsigned n = 0;
    size_t len;
    for (const char *p = lora && *lora ? lora : NULL; p; n++)
        p = next_part(p, &len);
    return n;
}

int ntx_lora_file(const char *lora, unsigned i, char *name, size_t name_room, char *path, size_t room,
                  struct ntx_err *err)
{
    size_t len = 0;
    const char *p = lora, *next = next_part(p, &len);
    for (; i && next; i--) {
        p = next;
        next = next_part(p, &len);
    }
    const char *equal = memchr(p, '=', len), *file = equal ? equal + 1 : p;
    size_t n = len - (size_t)(file - p);
    if (i || !n || n >= room)
        return ntx_err_set(err, -EINVAL, "--lora '%.100s': %s; write [NAME=]FILE, several with commas between", lora,
                           n >= room ? "a path is too long" : "an empty name");
    memcpy(path, file, n);
    path[n] = 0;
    const char *end = strrchr(path, '/');
    const char *from = end ? end + 1 : path;
    if (equal)
        from = p;
    size_t chars = equal ? (size_t)(equal - p) : strlen(from);
    if (!equal && chars > 5 && !strcmp(from + chars - 5, ".gguf"))
        chars -= 5;
    if (!chars || chars >= name_room || memchr(from, ':', chars) || (chars == 4 && !memcmp(from, "base", 4)))
        return ntx_err_set(
            err, -EINVAL,
            "--lora '%.100s': a name has 1 to %zu characters, no colon among them, and is not 'base'; give NAME=FILE",
            lora, name_room - 1);
    memcpy(name, from, chars);
    name[chars] = 0;
    return 0;
}

bool ntx_draft_looks_up(const char *draft) { return draft_names(draft, "lookup") || ntx_draft_auto(draft); }
bool ntx_draft_nextn(const char *draft) { return draft_names(draft, "nextn"); }
bool ntx_draft_has_self(const char *draft) { return draft_names(draft, "self"); }
bool ntx_draft_self(const char *file) { return !strcmp(file, "self"); }

/* The i-th file's part; NULL: none, and then *n is the number of files. */
static const char *file_part(const char *draft, unsigned i, size_t *len, unsigned *n)
{
    *n = 0;
    for (const char *p = named_parts(draft), *next; p; p = next) {
        next = next_part(p, len);
        if (!part_is(p, *len, "lookup") && !part_is(p, *len, "nextn") && (*n)++ == i)
            return p;
    }
    return NULL;
}

unsigned ntx_draft_files(const char *draft)
{
    size_t len;
    unsigned n;
    file_part(draft, UINT32_MAX, &len, &n);
    return n;
}

int ntx_draft_file(const char *draft, unsigned i, char *path, size_t room, struct ntx_err *err)
{
    size_t len = 0;
    unsigned n;
    const char *p = file_part(draft, i, &len, &n);
    if (ntx_draft_files(draft) + ntx_draft_nextn(draft) > NTX_DRAFT_FILES)
        return ntx_err_set(err, -E2BIG, "--draft names more than %u files", NTX_DRAFT_FILES);
    if (!p || !len || len >= room)
        return ntx_err_set(
            err, p && len ? -ENAMETOOLONG : -ENOENT,
            "--draft '%.100s': %s; write auto, off, or lookup, nextn, self and drafter files with commas between them",
            draft, p && len ? "a path is too long" : "an empty name");
    memcpy(path, p, len);
    path[len] = 0;
    return 0;
}

unsigned ntx_draft_came(const char *draft, unsigned n_came, unsigned i)
{
    const unsigned all = ntx_draft_files(draft);
    size_t len = 0;
    unsigned k, n;
    for (k = 0; k < all; k++) {
        const char *p = file_part(draft, k, &len, &n);
        if (!(n_came < all && part_is(p, len, "self")) && !i--)
            break;
    }
    return k;
}

int ntx_draft_blame(const char *draft, unsigned i, struct ntx_err *err)
{
    size_t len = 0;
    unsigned n;
    const char *p = file_part(draft, i, &len, &n);
    if (!p)
        return err->code;
    return ntx_err_prefix(err, "--draft %.*s", len < 200 ? (int)len : 200, p);
}

bool ntx_draft_trees(const char *draft, uint32_t nodes)
{
    return !nodes && (ntx_draft_files(draft) || ntx_draft_nextn(draft));
}
uint32_t ntx_draft_rows(const char *draft, uint32_t nodes)
{
    if (ntx_draft_off(draft) || (ntx_draft_auto(draft) && !nodes))
        return 0;
    return 1 + (nodes ? nodes : 31);
}
