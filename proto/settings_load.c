/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a load and of an answer's sampling: the only place that lists them. */
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
     "memory for weights, KV and all that grows (default: the smaller of available memory and the cgroup's limit, less "
     "10 %)",
     .kind = NTX_SET_SIZE, LOAD(ram, ram_bytes), CONF("model", "ram", "0"),
     .about = "What the model may take of memory: weights that stay, the ring, KV, activations, conversations. 0: the "
              "smaller of what is available and the\n"
              "cgroup's limit, less 10 %. With a size here, the three daemons' slice is limited to it, 64 MiB and 1/64 "
              "more."},
    {"vram", 0, "SIZE", "GPU memory to use at most (default: what is free)", .kind = NTX_SET_SIZE,
     LOAD(vram, vram_bytes)},
    {"ctx", 'c', "N",
     "tokens of context (default: the smallest of the model's own, 4096, and what a quarter of --ram holds)",
     .kind = NTX_SET_COUNT, .min = 1, .max = NTX_CTX_MAX, LOAD(ctx, ctx), CONF("model", "ctx", "0"),
     .about =
         "Tokens of context per session. 0: the smallest of the model's own, 4096 and what a quarter of ram holds."},
    {"threads", 't', "N", "compute threads (default: all cores)", .kind = NTX_SET_COUNT, .min = 1, .max = NTX_COUNT_MAX,
     LOAD(threads, threads), CONF("model", "threads", "0"), .about = "Compute threads. 0: one per core."},
    {"sessions", 0, "N", "full-context sessions to reserve KV for (default 1)", .kind = NTX_SET_COUNT, .min = 1,
     .max = NTX_COUNT_MAX, LOAD(sessions, sessions), CONF("model", "sessions", "0"),
     .about = "Sessions with full context that memory is kept for. 0: one; others share what it leaves."},
    {"rows", 0, "N", "rows (tokens) per pass at most", .kind = NTX_SET_COUNT, .min = 1, .max = NTX_COUNT_MAX,
     LOAD(rows, max_rows), CONF("model", "rows", "0"),
     .about = "Rows (tokens) that one pass computes at most. 0: planned."},
    {"backend", 0, "NAME", "auto, cpu or cuda (default auto)", .kind = NTX_SET_WORD,
     .choices = "back end:auto" NTX_BACKEND_CHOICES, LOAD(backend, backend), CONF("model", "backend", "auto"),
     .about = "auto, cpu or cuda"},
    {"kernel", 0, "NAME", "force an instruction set: generic, avx2, avx512, amx, neon or i8mm", .kind = NTX_SET_WORD,
     .choices = "known instruction set:generic|avx2|avx512|amx|neon|i8mm", LOAD(kernel, kernel),
     CONF("model", "kernel", "auto"), .about = "Instruction set: auto, generic, avx2, avx512, amx, neon or i8mm"},
    {"source", 0, "NAME", "how iod reads: auto, uring or pread", .kind = NTX_SET_WORD,
     .choices = "way to read:auto|uring|pread", LOAD(source, source), CONF("model", "source", "auto"),
     .about = "How ntx-iod reads: auto (io_uring, else pread), uring or pread"},
    {"skip", 0, "POLICY",
     "layer skip (lossy): off, static or predictive (both from a sidecar that `ntx calibrate` made); "
     "random:P,FIRST-LAST[,SEED] and "
     "script:LAYERS[@ROW][;...] for measurements (default off)",
     .kind = NTX_SET_TEXT, LOAD(skip, skip), CONF("model", "skip", "off"),
     .about = "Layer skip, which changes the output: off, or a policy"},
    {"skip-kv", 0, "HOW",
     "KV of a token in a layer that it skips: propagate (K and V of the state that passes by, whose matrices are then "
     "read; the default of static and predictive) or hole (masked; the default of the others)",
     .kind = NTX_SET_WORD, .choices = "way to keep KV at skipped layers:hole|propagate", LOAD(skip_kv, skip_kv)},
    {"skip-adapt", 0, NULL, "what the prompt shows of each layer moves its threshold", .kind = NTX_SET_FLAG,
     LOAD(skip_adapt, skip_adapt)},
    {"skip-verify", 0, "N", "every Nth generated token skips nothing, and its layers move the thresholds",
     .kind = NTX_SET_COUNT, .min = 2, .max = NTX_COUNT_MAX, LOAD(skip_verify, skip_verify)},
    {"ffn-sparse", 0, "MODE",
     "neurons that a token uses, of a model that `ntx pack` made; the others are neither computed nor read: off, "
     "threshold=T "
     "(those with |act(gate)| above T; 0 leaves out exact zeros only, and is lossless), topk=F (the share F with the "
     "largest; lossy); and, for generated tokens "
     "and lossy, predicted=F[,gate|,learned] (the share F of the groups that the state before the layer predicts: by "
     "the gate matrix, or by the sidecar's networks, which also have "
     "limits of their own: predicted) or prompt=F (the share F of the groups that did most while the prompt was read) "
     "(default off)",
     .kind = NTX_SET_TEXT, LOAD(ffn_sparse, ffn_sparse), CONF("model", "ffn_sparse", "off"),
     .about = "Neurons that a token uses, of a model packed by `ntx pack`: off, threshold=T, topk=F, predicted=F or "
              "prompt=F (lossy but for\n"
              "threshold=0; `ntx run --help` tells what each does)"},
    {"kv-type", 0, "TYPE",
     "how keys and values are kept: f16; q8_0 (lossy), which takes about half the memory; or q4_0 (lossier; not on a "
     "GPU), which takes about a quarter (default f16)",
     .kind = NTX_SET_WORD, .choices = "type of keys and values:f16|q8_0|q4_0", LOAD(kv_type, kv_type),
     CONF("model", "kv_type", "f16"),
     .about = "How keys and values are kept: f16; q8_0, which takes about half the memory and changes the output; or "
              "q4_0, which takes a quarter and changes it more"},
    {"draft", 0, "WAY",
     "guess tokens and compute several in one pass; those that hold advance the text, which stays the same: auto "
     "(lookup, the model's own next-token block, and the drafter that its card names, where they pay), off, lookup "
     "(what came when the text was like "
     "its end before), nextn (that block), FILE, a small model of the same vocabulary, which guesses while weights are "
     "read, a drafter of the EAGLE-3 or DFlash kind made for the model, or what `ntx draft-index` made of texts; or "
     "several of them, with commas between (default auto)",
     .kind = NTX_SET_TEXT, LOAD(draft, draft), CONF("model", "draft", "auto"),
     .about = "Guess tokens, and compute several in one pass; the text stays the same: auto (lookup, the model's own "
              "next-token\n"
              "block, and the drafter that its card names, where they pay), off, lookup (from the text itself), nextn "
              "(that block), the path of a small model of the same vocabulary,\n"
              "of a drafter of the EAGLE-3 or DFlash kind made for the model, or of what `ntx draft-index` made (the "
              "user ntx must be able to read it,\n"
              "and what it takes is part of ram), or several, with commas between: lookup,PATH"},
    {"lora", 0, "FILE",
     "adapters (LoRA) of this model, as llama.cpp's tools and `ntx pack --delta --base` write them: [NAME=]FILE, at "
     "most four with commas between. Each request may name one (--adapter); who names none has the first "
     "(statistics name it)",
     .kind = NTX_SET_TEXT, LOAD(lora, lora), CONF("model", "lora", ""),
     .about = "Adapters (LoRA) of the model: [NAME=]PATH, at most four, with commas between. A request names one as "
              "its model: MODEL:NAME, or none of them: MODEL:base; else it has the first.\n"
              "The user ntx must be able to read them; what they take is part of ram."},
    {"override-kv", .kind = NTX_SET_TEXT, LOAD(override_kv, override_kv),
     CONF("model", "override_kv", ""), /* an option of every command with a MODEL: client/options.c */
     .about = "Keys of the model's file that are wrong or missing: KEY=TYPE:VALUE, several with commas between, where "
              "TYPE is int, float, bool or str:\n"
              "tokenizer.ggml.pre=str:llama-bpe"},
    {"draft-nodes", 0, "N",
     "guess so many tokens for a pass wherever there is anything to guess by (default: as many as pay, up to 127)",
     .kind = NTX_SET_COUNT, .min = 1, .max = 127, LOAD(draft_nodes, draft_nodes)},
    {"prefetch", 0, "on|off",
     "experts, and groups of neurons (--ffn-sparse), that are not in memory: also prefetch those that the next layer "
     "will probably want (default on; changes no output)",
     .kind = NTX_SET_ON, LOAD(no_prefetch, no_prefetch)},
    {"gpu-graphs", 0, "on|off",
     "a GPU that has all of the model is given a token's kernels together, as CUDA graphs, where they are those of the "
     "token before (default on; changes no output)",
     .kind = NTX_SET_ON, LOAD(no_gpu_graphs, no_gpu_graphs)},
    {"prefix-cache", 0, "on|off",
     "keep what was computed of texts, as long as its memory is not wanted, for those that begin alike (default on; "
     "changes no output)",
     .kind = NTX_SET_ON, LOAD(no_prefix_cache, no_prefix_cache), CONF("model", "prefix_cache", "on"),
     .about = "Keep what was computed of texts, as long as its memory is not wanted, for those that begin alike: on or "
              "off. It changes no output."},
    {"state", 0, "DIR",
     "keep what was computed of texts in DIR, too, where it outlives the daemons: a later run goes on from it (changes "
     "no output). DIR is made where it is not there, and "
     "must be the user's alone",
     .kind = NTX_SET_PATH, LOAD(state, state), CONF("prefix", "state", ""),
     .about = "A directory where what was computed of texts outlives a restart, as files of at most state_max bytes "
              "together; empty: nowhere. It is made where it is not there, and\n"
              "must be the user ntx's alone; under the unit it lies below /var/lib/ntx. What is in it tells what was "
              "asked, as memory does."},
    {"state-max", 0, "SIZE", "bytes of the files in --state DIR together (default 20G)", .kind = NTX_SET_SIZE,
     LOAD(state_max, state_max), CONF("prefix", "state_max", "20G"), .about = "Bytes of these files together."},
    {"kv-ram", 0, "SIZE",
     "keep at most so much of keys and values in memory (part of --ram), and older ones in an unnamed file in --state "
     "DIR, read ahead for each pass: for contexts beyond memory "
     "(default: all in memory; changes no output)",
     .kind = NTX_SET_SIZE, LOAD(kv_ram, kv_ram), CONF("prefix", "kv_ram", "0"),
     .about = "At most so many bytes of keys and values are in memory (they are part of ram), older ones in an unnamed "
              "file in the directory `state`, read ahead for each pass.\n"
              "0: all are in memory. It changes no output."},
    {"split", 0, "HOW",
     "with several machines that share the model: rows (each has some of every matrix, and all multiply at once), "
     "heads (the same, and each keeps K and V of some heads and attends with them), layers (each "
     "has whole layers, which go round: a quarter to a half of the messages' bytes, but one multiplies at a time) or "
     "auto (what takes least for a prompt and an answer, by the machines' profiles, the network as it is measured and "
     "the context) (default auto; changes no output)",
     .kind = NTX_SET_WORD, .choices = "way to split a model:auto|rows|heads|layers", LOAD(split, split),
     CONF("model", "split", "auto"),
     .about = "With several machines that share the model: rows (each has some of every matrix), heads (the same, and "
              "each keeps keys and values of some heads), layers (each has whole\n"
              "layers) or auto (what is faster)"},
    {"trace-experts", 0, NULL,
     "event traces name the experts that each layer wants, which tells something about the text", .kind = NTX_SET_FLAG,
     LOAD(trace_experts, trace_experts)},
    {"chunk", 0, "SIZE", "bytes of a chunk at most (default: planned)", .kind = NTX_SET_SIZE, LOAD(chunk, chunk_bytes)},
    {"ring", 0, "N", "slots of the staging ring (default: planned)", .kind = NTX_SET_COUNT, .min = 3,
     .max = NTX_COUNT_MAX, LOAD(ring, ring_slots)},
    {"fault", 0, "SPEC", "inject faults (tests)", true, .kind = NTX_SET_TEXT, LOAD(fault, fault)},
    /* --link's, and those that `ntx calibrate` sets */
    {"link nvme", .kind = NTX_SET_RATE, LOAD(link_nvme, link_nvme_bps), CONF("links", "nvme", "0"),
     .about = "Emulate a slower drive. 0: as fast as it is."},
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
#define GIVEN(f) .given = offsetof(struct ntx_sampling_settings, f)

static const struct ntx_setting sampling_entries[] = {
    {"temp", 0, "T", "temperature, 0 is greedy (default $; with --raw 0)", .kind = NTX_SET_REAL, .max = 100,
     .preset = "0.8", SAMPLING(temp), GIVEN(has_temp)},
    {"top-k", 0, "K", "sample from the K likeliest (default $, 0 off)", .kind = NTX_SET_COUNT, .preset = "40",
     SAMPLING(top_k)},
    {"top-p", 0, "P", "sample from the likeliest with sum P (default $, 1 off)", .kind = NTX_SET_REAL, .max = 1,
     .preset = "0.95", SAMPLING(top_p)},
    {"min-p", 0, "P", "drop what is below P times the likeliest (default $, 0 off)", .kind = NTX_SET_REAL, .max = 1,
     .preset = "0.05", SAMPLING(min_p)},
    {"repeat-penalty", 0, "R", "divide logits of the last 64 tokens by R (default $, off)", .kind = NTX_SET_REAL,
     .min = 0.01, .max = 100, .preset = "1", SAMPLING(repeat_penalty)},
    {"presence-penalty", 0, "R",
     "take R from the logits of tokens that the answer has already (default $, off; -2 to 2)", .kind = NTX_SET_REAL,
     .min = -2, .max = 2, .preset = "0", SAMPLING(presence_penalty)},
    {"frequency-penalty", 0, "R", "take R from them for each time that it has them (default $, off; -2 to 2)",
     .kind = NTX_SET_REAL, .min = -2, .max = 2, .preset = "0", SAMPLING(frequency_penalty)},
    {"seed", 0, "S", "random seed (default: random, printed)", .kind = NTX_SET_NUMBER, SAMPLING(seed), GIVEN(has_seed)},
    {"repeat last", .kind = NTX_SET_COUNT, SAMPLING(repeat_last)},
};
const struct ntx_settings ntx_sampling_settings = {sampling_entries,
                                                   sizeof sampling_entries / sizeof *sampling_entries};

static bool named(const char *policy, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(policy, name, n) && (!policy[n] || policy[n] == ':');
}

bool ntx_skip_learned(const char *policy) { return policy && (named(policy, "static") || named(policy, "predictive")); }
bool ntx_skip_off(const char *policy)
{
    return !policy || !*policy || !strcmp(policy, "off") || !strcmp(policy, "none");
}

/* The part between two commas that begins at p; the next one, or NULL. */
static const char *next_part(const char *p, size_t *len)
{
    *len = strcspn(p, ",");
    return p[*len] ? p + *len + 1 : NULL;
}

static bool is(const char *p, size_t len, const char *word) { return len == strlen(word) && !memcmp(p, word, len); }

bool ntx_draft_off(const char *draft) { return draft && !strcmp(draft, "off"); }
bool ntx_draft_auto(const char *draft) { return !draft || !*draft || !strcmp(draft, "auto"); }

/* What is named, by itself. */
static const char *named_parts(const char *draft)
{
    return ntx_draft_off(draft) || ntx_draft_auto(draft) ? NULL : draft;
}

static bool names(const char *draft, const char *word)
{
    size_t len;
    for (const char *p = named_parts(draft), *next; p; p = next) {
        next = next_part(p, &len);
        if (is(p, len, word))
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
    const char *from = equal ? p : end ? end + 1 : path;
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

bool ntx_draft_looks_up(const char *draft) { return names(draft, "lookup") || ntx_draft_auto(draft); }
bool ntx_draft_nextn(const char *draft) { return names(draft, "nextn"); }

/* The i-th file's part, or NULL; *n: how many there are, where it is asked for one that is not. */
static const char *file_part(const char *draft, unsigned i, size_t *len, unsigned *n)
{
    *n = 0;
    for (const char *p = named_parts(draft), *next; p; p = next) {
        next = next_part(p, len);
        if (!is(p, *len, "lookup") && !is(p, *len, "nextn") && (*n)++ == i)
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
            "--draft '%.100s': %s; there are auto, off, lookup, nextn, and files that guess, with commas between them",
            draft, p && len ? "a path is too long" : "an empty name");
    memcpy(path, p, len);
    path[len] = 0;
    return 0;
}

bool ntx_draft_trees(const char *draft, uint32_t nodes)
{
    return !nodes && (ntx_draft_files(draft) || ntx_draft_nextn(draft));
}
uint32_t ntx_draft_rows(const char *draft, uint32_t nodes)
{
    return ntx_draft_off(draft) || (ntx_draft_auto(draft) && !nodes) ? 0 : 1 + (nodes ? nodes : 31);
}
