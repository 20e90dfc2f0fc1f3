#include "client/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/util.h"
#include "proto/frame.h"

enum {
    O_TEMP = 256, O_TOP_K, O_TOP_P, O_MIN_P, O_REPEAT, O_SEED, O_RAW, O_SYSTEM, O_STOP, O_IGNORE_EOS, O_TEMPLATE,
    O_RAM, O_VRAM, O_BACKEND, O_STATS, O_QUIET, O_LINK, O_JSON, O_KERNEL, O_CHUNK, O_RING, O_SESSIONS, O_SOURCE, O_FAULT, O_SKIP,
    O_ROWS, O_SOCKET, O_TOKENS, O_NO_BOS, O_NO_SPECIAL, O_TRACE,
    O_KV_TYPE, O_QUESTIONS, O_SAVE_LOGITS, O_KL,
    O_PROFILE, O_MACHINE, O_LIST, O_ROOFLINE, O_COMPAT, O_BATCH, O_DIR, O_SECONDS,
    O_SIDECAR, O_SKIP_KV, O_SKIP_THRESHOLD, O_SKIP_MOST, O_SKIP_ADAPT, O_SKIP_VERIFY, O_TEXT, O_FIRST, O_LAST, O_LIMIT,
    O_EPOCHS, O_SHARE, O_PRECISION, O_FFN, O_FFN_ACTIVE, O_FFN_RECALL, O_FFN_RANK, O_ORDER,
    O_USAGE, O_ALSO, O_PREFETCH, O_TRACE_EXPERTS, O_FFN_SPARSE, O_GROUP, O_GATE_IN, O_FROM, O_DOWN_TYPE,
};

/* What argp would give itself, but with -h; and one switch for more words. */
static const struct argp_option common_options[] = {
    {"verbose", 'v', NULL, 0, "more words: notes about this machine that `ntx doctor` explains, and what the daemons log", 0},
    {"help", 'h', NULL, 0, "this text", -1},
    {NULL, '?', NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, -1},
    {"usage", O_USAGE, NULL, 0, "a short form of it", -1},
    {"version", 'V', NULL, 0, "the version", -1},
    {0},
};
static const struct argp_option model_options[] = {{"model", 'm', "MODEL", 0, "the model, instead of as the first argument", 0}, {0}};
static const struct argp_option prompt_options[] = {{"prompt", 'p', "TEXT", 0, "the prompt, instead of as an argument", 0}, {0}};
static const struct argp_option load_options[] = {
    {"ram", O_RAM, "SIZE", 0, "memory for weights, KV and all that grows (default: the smaller of available memory and the cgroup's limit, less 10 %)", 0},
    {"vram", O_VRAM, "SIZE", 0, "GPU memory to use at most (default: what is free)", 0},
    {"ctx", 'c', "N", 0, "tokens of context (default: the smallest of the model's own, 4096, and what a quarter of --ram holds)", 0},
    {"threads", 't', "N", 0, "compute threads (default: all cores)", 0},
    {"backend", O_BACKEND, "NAME", 0, "auto, cpu or cuda (default auto)", 0},
    {"link", O_LINK, "nvme=RATE,h2d=RATE", 0, "emulate a slower drive (of each, with --also), or link to the GPU: bytes per second, as 3.3G", 0},
    {"also", O_ALSO, "PATH", 0, "the same model on another drive (up to 3 times): each read is split between the drives, whose rates add up", 0},
    {"kernel", O_KERNEL, "NAME", 0, "force an instruction set: generic, avx2, avx512 or amx", 0},
    {"source", O_SOURCE, "NAME", 0, "how iod reads: auto, uring or pread", 0},
    {"skip", O_SKIP, "POLICY", 0, "layer skip (lossy): off, static or predictive (both from a sidecar that `ntx calibrate` made); random:P,FIRST-LAST[,SEED] and "
     "script:LAYERS[@ROW][;...] for measurements (default off)", 0},
    {"sidecar", O_SIDECAR, "FILE", 0, "what was learned for --skip, and for --ffn-sparse predicted (default: the model's path with .skip.gguf for .gguf)", 0},
    {"skip-threshold", O_SKIP_THRESHOLD, "P", 0, "skip a layer where the predictor (static: the calibration's share of tokens) says at least P, 0 to 1 (default: the sidecar's)", 0},
    {"skip-max-consecutive", O_SKIP_MOST, "N", 0, "layers skipped in a row at most (default: no limit)", 0},
    {"skip-kv", O_SKIP_KV, "HOW", 0, "KV of a token in a layer that it skips: propagate (K and V of the state that passes by, whose matrices are then read; the default of static and predictive) or hole (masked; the default of the others)", 0},
    {"skip-adapt", O_SKIP_ADAPT, NULL, 0, "what the prompt shows of each layer moves its threshold", 0},
    {"skip-verify", O_SKIP_VERIFY, "N", 0, "every Nth written token skips nothing, and its layers move the thresholds", 0},
    {"ffn-sparse", O_FFN_SPARSE, "MODE", 0, "neurons that a token uses, of a model that `ntx pack` made; the others are neither computed nor read: off, threshold=T "
     "(those with |act(gate)| above T; 0 leaves out exact zeros only, and is lossless), topk=F (the share F with the largest; lossy); and, for written tokens "
     "and lossy, predicted=F[,gate|,learned] (the share F of the groups that the state before the layer foretells: by the gate matrix, or by the sidecar's networks, which also have "
     "limits of their own: predicted) or prompt=F (the share F of the groups that did most while the prompt was read) (default off)", 0},
    {"kv-type", O_KV_TYPE, "TYPE", 0, "how keys and values are kept: f16, or q8_0 (lossy), which takes about half the memory (default f16)", 0},
    {"prefetch", O_PREFETCH, "on|off", 0, "experts, and groups of neurons (--ffn-sparse), that are not in memory: also read ahead those that the next layer will probably want (default on; changes no output)", 0},
    {"trace-experts", O_TRACE_EXPERTS, NULL, 0, "event traces name the experts that each layer wants, which tells something about the text", 0},
    {"sessions", O_SESSIONS, "N", 0, "full-context sessions to reserve KV for (default 1)", 0},
    {"rows", O_ROWS, "N", 0, "rows (tokens) per pass at most", 0},
    {"chunk", O_CHUNK, "SIZE", 0, "bytes of a chunk at most (default: planned)", 0},
    {"ring", O_RING, "N", 0, "slots of the staging ring (default: planned)", 0},
    {"fault", O_FAULT, "SPEC", OPTION_HIDDEN, "inject faults (tests)", 0},
    {0},
};
static const struct argp_option pack_options[] = {
    {"group", O_GROUP, "SIZE", 0, "bytes of a group of neurons, about (default: the smallest read that gets two fifths of the drive's best rate, by `ntx doctor`'s profile; 16K without one)", 0},
    {"gate-in-bundle", O_GATE_IN, NULL, 0, "gate rows go into the groups, too, and are read with them: for --ffn-sparse predicted and prompt", 0},
    {"order", O_ORDER, "SIDECAR", 0, "neurons that are active together lie together, as `ntx calibrate --ffn` saw it of this model", 0},
    {"from", O_FROM, "FILE", 0, "the same model in a higher precision: down columns are made from there", 0},
    {"down-type", O_DOWN_TYPE, "TYPE", 0, "type of the down columns: F16, Q8_0, Q6_K, Q5_K, Q4_K, ... (default: as they were, or the next that can be written)", 0},
    {"profile", O_PROFILE, "FILE", 0, "the machine that it is packed for (default: this one, as `ntx doctor` measured it)", 0},
    {0},
};
static const struct argp_option quiet_options[] = {{"quiet", O_QUIET, NULL, 0, "only errors", 0}, {0}};
static const struct argp_option gen_options[] = {
    {"n", 'n', "N", 0, "tokens to generate at most (default, and -1: until the model ends or the context is full)", 0},
    {"temp", O_TEMP, "T", 0, "temperature, 0 is greedy (default 0.8; with --raw 0)", 0},
    {"top-k", O_TOP_K, "K", 0, "sample from the K likeliest (default 40, 0 off)", 0},
    {"top-p", O_TOP_P, "P", 0, "sample from the likeliest with sum P (default 0.95, 1 off)", 0},
    {"min-p", O_MIN_P, "P", 0, "drop what is below P times the likeliest (default 0.05, 0 off)", 0},
    {"repeat-penalty", O_REPEAT, "R", 0, "divide logits of the last 64 tokens by R (default 1, off)", 0},
    {"seed", O_SEED, "S", 0, "random seed (default: random, printed)", 0},
    {"raw", O_RAW, NULL, 0, "the prompt as it is, no chat template", 0},
    {"file", 'f', "FILE", 0, "read the prompt from FILE; behind PROMPT where both are given", 0},
    {"system", O_SYSTEM, "TEXT", 0, "system message of the chat", 0},
    {"stop", O_STOP, "TEXT", 0, "end before this text (repeatable)", 0},
    {"ignore-eos", O_IGNORE_EOS, NULL, 0, "go on past end-of-generation tokens", 0},
    {"chat-template", O_TEMPLATE, "NAME", 0, "llama-2, llama-3, chatml, mistral (also -v1, -v7), harmony (also -low, -high) or plain, instead of the model's own", 0},
    {0},
};
static const struct argp_option output_options[] = {
    {"stats", O_STATS, "FILE", 0, "write the statistics as JSON to FILE, '-' for stdout", 0},
    {"quiet", O_QUIET, NULL, 0, "only the text and errors", 0},
    {"json", O_JSON, NULL, 0, "a JSON line {token, text} per token, then one with the statistics; an interrupted answer may end with a line {text}: what was held back as the beginning of a --stop", 0},
    {0},
};
static const struct argp_option socket_options[] = {
    {"socket", O_SOCKET, "PATH", 0, "the daemon's socket (default: that of `ntx up`, else the service's, /run/ntx/ntx.sock)", 0}, {0}};
static const struct argp_option logits_options[] = {
    {"tokens", O_TOKENS, "IDS", 0, "token ids, comma separated", 0}, {"output", 'o', "FILE", 0, "float32, little-endian, [n_tokens x n_vocab]", 0}, {0}};
static const struct argp_option bench_options[] = {
    {"prompt", 'p', "N[,N...]", 0, "prompt tokens (default 128), a test for each", 0},
    {"n", 'n', "N[,N...]", 0, "tokens to generate (default 32), a test for each", 0},
    {"repeat", 'r', "N", 0, "runs (default 5)", 0},
    {"output", 'o', "FORM", 0, "md, csv or json: a row for each test (default md)", 0},
    {0}};
static const struct argp_option tok_options[] = {{"no-bos", O_NO_BOS, NULL, 0, "no beginning-of-text token", 0},
                                                 {"no-special", O_NO_SPECIAL, NULL, 0, "control tokens in the text are plain text", 0},
                                                 {0}};
static const struct argp_option ppl_options[] = {
    {"save-logits", O_SAVE_LOGITS, "BASE", 0, "keep what this model says of each scored token in the file BASE (2 bytes per token and vocabulary entry)", 0},
    {"kl", O_KL, "BASE", 0, "compare with the run that wrote BASE: KL divergence from it, agreement of the likeliest token, both perplexities", 0},
    {0}};
static const struct argp_option eval_options[] = {
    {"questions", O_QUESTIONS, "FILE", 0, "JSON lines {\"prompt\": \"...\", \"answer\": \"...\"}", 0}, {0}};
static const struct argp_option plan_options[] = {
    {"profile", O_PROFILE, "FILE", 0, "the hardware: a profile as `ntx doctor` writes it (default: this machine's)", 0},
    {"machine", O_MACHINE, "WORDS", 0, "the hardware by words: gpu=3090,ram=64G,drive=7G,pcie=4x16 (also memory=ddr5 or a rate, cores=N); this,gpu=3090: this machine with that changed", 0},
    {"list", O_LIST, NULL, 0, "models, types and GPUs that it knows by name", 0},
    {"roofline", O_ROOFLINE, NULL, 0, "each operation of a layer against the roof, too", 0},
    {"batch", O_BATCH, "N", 0, "sequences of the roofline table (default 1)", 0},
    {"compat", O_COMPAT, NULL, 0, "the roofline with the formulas as published, slips included", 0},
    {0}};
static const struct argp_option doctor_options[] = {
    {"dir", O_DIR, "DIR", 0, "where models are, on the drive to be measured (default: here)", 0},
    {"seconds", O_SECONDS, "S", 0, "time for all measurements (default 18)", 0},
    {0}};
static const struct argp_option traced_options[] = {{"trace", O_TRACE, "FILE", 0, "write what happened as a trace for Perfetto (ui.perfetto.dev) to FILE", 0}, {0}};
static const struct argp_option trace_options[] = {{"output", 'o', "FILE", 0, "where to write the trace", 0},
                                                   {"seconds", 's', "S", 0, "how long to record (default 5; Ctrl-C ends it earlier)", 0},
                                                   {"quiet", O_QUIET, NULL, 0, "only errors", 0},
                                                   {0}};
static const struct argp_option calibrate_options[] = {
    {"text", O_TEXT, "FILE", 0, "text to learn from", 0},
    {"output", 'o', "FILE", 0, "the sidecar to write", 0},
    {"limit", O_LIMIT, "N", 0, "tokens of the text at most (default 32768; a state each is kept in memory)", 0},
    {"first", O_FIRST, "L", 0, "first layer that may be skipped; the state before it decides (default: an eighth of the layers)", 0},
    {"last", O_LAST, "L", 0, "last layer that may be skipped (default: all but the last)", 0},
    {"share", O_SHARE, "P", 0, "share of all tokens' layers, the least changing ones, that counts as skippable (default 0.3)", 0},
    {"precision", O_PRECISION, "P", 0, "of the skips on the held-out part, for the threshold written (default 0.9)", 0},
    {"epochs", O_EPOCHS, "N", 0, "passes over the samples in training (default 12)", 0},
    {"ffn", O_FFN, NULL, 0, "also learn what the FFNs do: of a packed model, which groups of neurons will be active (for --ffn-sparse predicted); of any other, "
     "which neurons are so together (for ntx pack --order)", 0},
    {"ffn-active", O_FFN_ACTIVE, "P", 0, "share of neurons, or of their groups, that counts as active at most: those that do most (default 0.3)", 0},
    {"ffn-recall", O_FFN_RECALL, "P", 0, "of the active groups, to be predicted by the limit that is written (default 0.95)", 0},
    {"ffn-rank", O_FFN_RANK, "N", 0, "hidden units of each layer's network (default 64)", 0},
    {"seed", O_SEED, "S", 0, "of the training (default 1)", 0},
    {0},
};
static const struct argp_option json_options[] = {{"json", O_JSON, NULL, 0, "as JSON", 0}, {0}};

struct parse {
    const struct ntx_command *cmd;
    struct ntx_options *o;
    unsigned n_kids; /* groups of options */
    unsigned groups; /* that the command takes */
    int key;         /* of the option that is being read */
    const char *model, *prompt; /* -m, -p */
};

static const char *option_name(int key, unsigned groups);

/* Usage error about the value of an option, which is named. */
static void refuse(struct argp_state *st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void refuse(struct argp_state *st, const char *fmt, ...)
{
    const struct parse *p = st->input;
    const char *name = option_name(p->key, p->groups);
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ntx_usage_error(st, "%s%s: %s", name[1] ? "--" : "-", name, text);
}

static uint64_t size_arg(const char *s, struct argp_state *st)
{
    uint64_t v = 0;
    if (ntx_parse_size(s, &v) || !v || v > NTX_BYTES_MAX)
        refuse(st, "'%s' is not a size; write it as 512M or 3G", s);
    return v;
}

static uint32_t count_upto(const char *s, uint32_t least, uint32_t most, struct argp_state *st)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno || *s < '0' || *s > '9' || *end || v < least)
        refuse(st, "'%s' is not a whole number of at least %u", s, least);
    if (v > most)
        refuse(st, "'%s' is more than %u", s, most);
    return (uint32_t)v;
}

static uint32_t count_arg(const char *s, uint32_t least, struct argp_state *st) { return count_upto(s, least, UINT32_MAX, st); }

static float real_arg(const char *s, float lo, float hi, struct argp_state *st)
{
    char *end;
    float v = strtof(s, &end);
    if (end == s || *end || !(v >= lo && v <= hi))
        refuse(st, "'%s' is not a number from %g to %g", s, (double)lo, (double)hi);
    return v;
}

static void link_arg(const char *s, struct ntx_options *o, struct argp_state *st)
{
    char buf[128];
    snprintf(buf, sizeof buf, "%s", s);
    for (char *save, *p = strtok_r(buf, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        double *to = !strncmp(p, "nvme=", 5) ? &o->link_nvme : !strncmp(p, "h2d=", 4) ? &o->link_h2d : NULL;
        if (!to || ntx_parse_rate(strchr(p, '=') + 1, to))
            refuse(st, "'%s' is not a link rate; write it as nvme=3.3G", p);
    }
}

static void backend_arg(const char *s, struct ntx_options *o, struct argp_state *st)
{
    if (strcmp(s, "auto") && strcmp(s, "cpu") && strcmp(s, "cuda"))
        refuse(st, "'%s' is not a back end; there are auto, cpu and cuda", s);
    o->backend = s;
}

static void seed_arg(const char *s, struct ntx_options *o, struct argp_state *st)
{
    char *end;
    errno = 0;
    o->seed = strtoull(s, &end, 10);
    if (errno || *s < '0' || *s > '9' || *end)
        refuse(st, "'%s' is not a seed; it is a whole number", s);
    o->has_seed = true;
}

static error_t load_opt(int key, char *arg, struct ntx_options *o, struct argp_state *st)
{
    switch (key) {
    case O_RAM: o->ram = size_arg(arg, st); return 0;
    case O_VRAM: o->vram = size_arg(arg, st); return 0;
    case 'c': o->ctx = count_upto(arg, 1, NTX_CTX_MAX, st); return 0;
    case 't': o->threads = count_upto(arg, 1, NTX_COUNT_MAX, st); return 0;
    case O_BACKEND: backend_arg(arg, o, st); return 0;
    case O_LINK: link_arg(arg, o, st); return 0;
    case O_ALSO:
        if (o->n_also == NTX_MAX_ALSO)
            refuse(st, "may be given %d times", NTX_MAX_ALSO);
        o->also[o->n_also++] = arg;
        return 0;
    case O_KERNEL: o->kernel = arg; return 0;
    case O_SOURCE: o->source = arg; return 0;
    case O_SKIP: o->skip = arg; return 0;
    case O_FFN_SPARSE: o->ffn_sparse = arg; return 0;
    case O_KV_TYPE: o->kv_type = arg; return 0;
    case O_SESSIONS: o->sessions = count_upto(arg, 1, NTX_COUNT_MAX, st); return 0;
    case O_ROWS: o->max_rows = count_upto(arg, 1, NTX_COUNT_MAX, st); return 0;
    case O_CHUNK: o->chunk = size_arg(arg, st); return 0;
    case O_RING: o->ring = count_upto(arg, 3, NTX_COUNT_MAX, st); return 0;
    case O_FAULT: o->fault = arg; return 0;
    case O_SIDECAR: o->sidecar = arg; return 0;
    case O_SKIP_KV:
        if (strcmp(arg, "hole") && strcmp(arg, "propagate"))
            refuse(st, "hole or propagate, not '%s'", arg);
        o->skip_kv = arg;
        return 0;
    case O_SKIP_THRESHOLD: o->skip_threshold = real_arg(arg, 0, 1, st); return 0;
    case O_SKIP_MOST: o->skip_most = count_arg(arg, 1, st); return 0;
    case O_SKIP_ADAPT: o->skip_adapt = true; return 0;
    case O_PREFETCH:
        if (strcmp(arg, "on") && strcmp(arg, "off"))
            refuse(st, "on or off, not '%s'", arg);
        o->no_prefetch = !strcmp(arg, "off");
        return 0;
    case O_TRACE_EXPERTS: o->trace_experts = true; return 0;
    case O_SKIP_VERIFY: o->skip_verify = count_upto(arg, 2, NTX_COUNT_MAX, st); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t gen_opt(int key, char *arg, struct ntx_options *o, struct argp_state *st)
{
    switch (key) {
    case 'n': o->n = strcmp(arg, "-1") ? count_arg(arg, 1, st) : 0; return 0;
    case O_TEMP: o->temp = real_arg(arg, 0, 100, st); o->has_temp = true; return 0;
    case O_TOP_K: o->top_k = count_arg(arg, 0, st); return 0;
    case O_TOP_P: o->top_p = real_arg(arg, 0, 1, st); return 0;
    case O_MIN_P: o->min_p = real_arg(arg, 0, 1, st); return 0;
    case O_REPEAT: o->repeat_penalty = real_arg(arg, 0.01f, 100, st); return 0;
    case O_SEED: seed_arg(arg, o, st); return 0;
    case O_RAW: o->raw = true; return 0;
    case 'f': o->prompt_file = arg; return 0;
    case O_SYSTEM: o->system = arg; return 0;
    case O_STOP:
        if (o->n_stops == NTX_MAX_STOPS || !*arg)
            refuse(st, "takes a text, at most %d times", NTX_MAX_STOPS);
        o->stops[o->n_stops++] = arg;
        return 0;
    case O_IGNORE_EOS: o->ignore_eos = true; return 0;
    case O_TEMPLATE: o->chat_template = arg; return 0;
    case O_STATS: o->stats = arg; return 0;
    case O_QUIET: o->quiet = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* "512,1024" */
static void list_arg(const char *s, struct ntx_list *l, struct argp_state *st)
{
    char buf[256];
    snprintf(buf, sizeof buf, "%s", s);
    l->n = 0;
    if (strlen(s) >= sizeof buf || !*s || strstr(s, ",,") || s[strlen(s) - 1] == ',')
        refuse(st, "'%s' is not a list of numbers such as 512,1024", s);
    for (char *save, *p = strtok_r(buf, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        if (l->n == NTX_MAX_LIST)
            refuse(st, "more than %d numbers", NTX_MAX_LIST);
        l->v[l->n++] = count_arg(p, 1, st);
    }
}

static error_t bench_opt(int key, char *arg, struct ntx_options *o, struct argp_state *st)
{
    switch (key) {
    case 'p': list_arg(arg, &o->prompts, st); return 0;
    case 'n': list_arg(arg, &o->writes, st); return 0;
    case 'o':
        if (strcmp(arg, "md") && strcmp(arg, "csv") && strcmp(arg, "json"))
            refuse(st, "'%s' is not a form; there are md, csv and json", arg);
        o->out = arg;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t common_opt(int key, char *arg, struct parse *p, struct argp_state *st)
{
    switch (key) {
    case 'v': p->o->verbose = true; return 0;
    case 'm': p->model = arg; return 0;
    case 'p': p->prompt = arg; return 0;
    case 'h':
    case '?': argp_state_help(st, stdout, ARGP_HELP_STD_HELP); return 0;
    case O_USAGE: argp_state_help(st, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK); return 0;
    case 'V':
        puts(argp_program_version);
        exit(0);
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Puts what came by an option where it would stand as an argument. */
static void insert_arg(struct parse *p, unsigned at, const char *what, struct argp_state *st)
{
    struct ntx_options *o = p->o;
    if (o->n_args == p->cmd->max_args)
        ntx_usage_error(st, "unexpected argument '%s': the model or the prompt is given twice", o->args[o->n_args - 1]);
    if (at > o->n_args)
        ntx_usage_error(st, "%s needs %s", p->cmd->name, p->cmd->args);
    memmove(o->args + at + 1, o->args + at, (o->n_args - at) * sizeof *o->args);
    o->args[at] = what;
    o->n_args++;
}

static error_t other_opt(int key, char *arg, struct ntx_options *o, struct argp_state *st)
{
    switch (key) {
    case O_JSON: o->json = true; return 0;
    case O_SOCKET: o->socket = arg; return 0;
    case O_TRACE: o->trace = arg; return 0;
    case 's': o->trace_seconds = (double)real_arg(arg, 0.01f, 3600, st); return 0;
    case O_TOKENS: o->tokens = arg; return 0;
    case 'o': o->out = arg; return 0;
    case 'r': o->repeats = count_arg(arg, 1, st); return 0;
    case O_QUESTIONS: o->questions = arg; return 0;
    case O_SAVE_LOGITS: o->save_logits = arg; return 0;
    case O_KL: o->kl = arg; return 0;
    case O_TEXT: o->text = arg; return 0;
    case O_FIRST: o->first = count_arg(arg, 1, st); return 0;
    case O_LAST: o->last = count_arg(arg, 1, st); return 0;
    case O_LIMIT: o->limit = count_arg(arg, 1, st); return 0;
    case O_FFN: o->ffn = true; return 0;
    case O_FFN_ACTIVE: o->ffn_active = real_arg(arg, 0, 1, st); return 0;
    case O_FFN_RECALL: o->ffn_recall = real_arg(arg, 0, 1, st); return 0;
    case O_FFN_RANK: o->ffn_rank = count_upto(arg, 1, 4096, st); return 0;
    case O_EPOCHS: o->epochs = count_arg(arg, 1, st); return 0;
    case O_SHARE: o->share = real_arg(arg, 0, 1, st); return 0;
    case O_PRECISION: o->precision = real_arg(arg, 0, 1, st); return 0;
    case O_NO_BOS: o->no_bos = true; return 0;
    case O_NO_SPECIAL: o->no_special = true; return 0;
    case O_GROUP: o->group = size_arg(arg, st); return 0;
    case O_ORDER: o->order = arg; return 0;
    case O_GATE_IN: o->gate_in_bundle = true; return 0;
    case O_FROM: o->from = arg; return 0;
    case O_DOWN_TYPE: o->down_type = arg; return 0;
    case O_PROFILE: o->profile = arg; return 0;
    case O_MACHINE: o->machine = arg; return 0;
    case O_LIST: o->list = true; return 0;
    case O_ROOFLINE: o->roofline = true; return 0;
    case O_COMPAT: o->compat = true; return 0;
    case O_BATCH: o->batch = count_arg(arg, 1, st); return 0;
    case O_DIR: o->dir = arg; return 0;
    case O_SECONDS: o->seconds = real_arg(arg, 0.1f, 600, st); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_opt(int key, char *arg, struct argp_state *st)
{
    struct parse *p = st->input;
    bool prompts = strstr(p->cmd->args, "PROMPT") != NULL; /* behind which only a '-' may stand */
    switch (key) {
    case ARGP_KEY_ARG:
        if (p->o->n_args == p->cmd->max_args || (prompts && p->o->n_args + 1 == p->cmd->max_args && strcmp(arg, "-")))
            ntx_usage_error(st, "unexpected argument '%s'%s", arg, prompts ? "; a prompt of several words goes in quotes" : "");
        p->o->args[p->o->n_args++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (p->model)
            insert_arg(p, 0, p->model, st);
        if (p->prompt)
            insert_arg(p, p->groups & NTX_OPT_MODEL ? 1 : 0, p->prompt, st);
        if (p->o->n_args < p->cmd->min_args)
            ntx_usage_error(st, "%s needs %s", p->cmd->name, p->cmd->args);
        return 0;
    case ARGP_KEY_INIT:
        for (unsigned i = 0; i < p->n_kids; i++)
            st->child_inputs[i] = p;
        return 0;
    }
    p->key = key;
    error_t rc = p->groups & NTX_OPT_BENCH ? bench_opt(key, arg, p->o, st) : ARGP_ERR_UNKNOWN;
    if (rc == ARGP_ERR_UNKNOWN)
        rc = common_opt(key, arg, p, st);
    if (rc == ARGP_ERR_UNKNOWN)
        rc = load_opt(key, arg, p->o, st);
    if (rc == ARGP_ERR_UNKNOWN)
        rc = gen_opt(key, arg, p->o, st);
    return rc == ARGP_ERR_UNKNOWN ? other_opt(key, arg, p->o, st) : rc;
}

static error_t parse_child(int key, char *arg, struct argp_state *st)
{
    if (key == ARGP_KEY_ARG || key == ARGP_KEY_END || key == ARGP_KEY_INIT)
        return ARGP_ERR_UNKNOWN;
    return parse_opt(key, arg, st);
}

static const struct {
    unsigned group;
    const struct argp_option *options;
    const char *title;
} groups[] = { /* neighbours may share a title */
    {NTX_OPT_PROMPT, prompt_options, "Text:"},
    {NTX_OPT_GEN, gen_options, "Text:"},
    {NTX_OPT_MODEL, model_options, "Model and machine:"},
    {NTX_OPT_LOAD, load_options, "Model and machine:"},
    {NTX_OPT_LOGITS, logits_options, "Logits:"},
    {NTX_OPT_PPL, ppl_options, "Comparing:"},
    {NTX_OPT_EVAL, eval_options, "Questions:"},
    {NTX_OPT_BENCH, bench_options, "Measuring:"},
    {NTX_OPT_CALIBRATE, calibrate_options, "Calibrating:"},
    {NTX_OPT_PACK, pack_options, "Packing:"},
    {NTX_OPT_QUIET, quiet_options, "Output:"},
    {NTX_OPT_TOK, tok_options, "Tokens:"},
    {NTX_OPT_PLAN, plan_options, "Prediction:"},
    {NTX_OPT_DOCTOR, doctor_options, "Measuring:"},
    {NTX_OPT_OUTPUT, output_options, "Output:"},
    {NTX_OPT_JSON, json_options, "Output:"},
    {NTX_OPT_TRACED, traced_options, "Output:"},
    {NTX_OPT_TRACE, trace_options, "Recording:"},
    {NTX_OPT_SOCKET, socket_options, "Connection:"},
};

#define N_GROUPS (sizeof groups / sizeof *groups)

static const char *option_name(int key, unsigned chosen)
{
    for (unsigned i = 0; i < N_GROUPS; i++)
        for (const struct argp_option *o = groups[i].options; chosen & groups[i].group && o->name; o++)
            if (o->key == key)
                return o->name;
    return "?";
}

/* What stands under one title in the help. */
struct section {
    struct argp_option options[40]; /* the last is {0} */
    struct argp argp;
};

_Static_assert(sizeof load_options <= sizeof ((struct section *)0)->options, "the longest section");

static void add_options(struct section *s, const struct argp_option *more)
{
    unsigned n = 0;
    while (s->options[n].name)
        n++;
    for (; more->name && n + 1 < sizeof s->options / sizeof *s->options; more++)
        s->options[n++] = *more;
}

/* Returns how many there are. */
static unsigned make_sections(unsigned chosen, struct section *sections, struct argp_child *kids)
{
    unsigned n = 0;
    for (unsigned i = 0; i < N_GROUPS; i++) {
        if (!(chosen & groups[i].group))
            continue;
        if (!n || strcmp(kids[n - 1].header, groups[i].title)) {
            sections[n].argp = (struct argp){sections[n].options, parse_child, 0, 0, 0, 0, 0};
            kids[n] = (struct argp_child){&sections[n].argp, 0, groups[i].title, (int)n + 1};
            n++;
        }
        add_options(&sections[n - 1], groups[i].options);
    }
    return n;
}

bool ntx_options_learned_skip(const struct ntx_options *o) { return o->skip && (!strcmp(o->skip, "static") || !strcmp(o->skip, "predictive")); }

/* "predictive" and its options become the policy's text (predictor/policy.h). */
static void compose_skip(struct ntx_options *o)
{
    int n = snprintf(o->skip_policy, sizeof o->skip_policy, "%s", o->skip);
    if (o->skip_threshold >= 0)
        n += snprintf(o->skip_policy + n, sizeof o->skip_policy - (size_t)n, ":threshold=%g", (double)o->skip_threshold);
    if (o->skip_most)
        snprintf(o->skip_policy + n, sizeof o->skip_policy - (size_t)n, "%smax=%u", o->skip_threshold >= 0 ? "," : ":", o->skip_most);
}

static void new_seed(struct ntx_options *o)
{
    o->has_seed = false;
    if (getrandom(&o->seed, sizeof o->seed, 0) == sizeof o->seed)
        o->seed &= 0xffffffff; /* short enough to type again */
}

void ntx_options_parse(const struct ntx_command *cmd, int argc, char **argv, struct ntx_options *o)
{
    struct section sections[N_GROUPS] = {0};
    struct argp_child kids[N_GROUPS + 1] = {0};
    char name[64];
    unsigned chosen = cmd->groups;
    if (!strncmp(cmd->args + (*cmd->args == '['), "MODEL", 5))
        chosen |= NTX_OPT_MODEL;
    if (strstr(cmd->args, "PROMPT"))
        chosen |= NTX_OPT_PROMPT;
    unsigned n = make_sections(chosen, sections, kids);
    struct argp argp = {common_options, parse_opt, cmd->args, cmd->doc, kids, NULL, NULL};
    struct parse p = {.cmd = cmd, .o = o, .n_kids = n, .groups = chosen};
    *o = (struct ntx_options){.temp = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1, .prompts = {.v = {128}, .n = 1}, .writes = {.v = {32}, .n = 1}, .repeats = 5, .batch = 1, .trace_seconds = 5, .skip_threshold = -1,
                              .epochs = 12, .share = 0.3f, .precision = 0.9f, .ffn_rank = 64, .ffn_active = 0.3f, .ffn_recall = 0.95f};
    snprintf(name, sizeof name, "ntx %s", cmd->name);
    argv[0] = name;
    argp_parse(&argp, argc, argv, ARGP_NO_HELP, NULL, &p);
    if (o->raw && !o->has_temp)
        o->temp = 0;
    if (ntx_options_learned_skip(o))
        compose_skip(o);
    if (!o->has_seed)
        new_seed(o);
}

static bool same_name(const char *option, const char *name)
{
    for (; *option && (*option == *name || (*option == '-' && *name == '_')); option++)
        name++;
    return !*option && !*name;
}

/* The parser takes the value, and its complaint is caught. */
static int set_checked(struct ntx_options *o, int key, char *value, struct ntx_err *err)
{
    char *said = NULL;
    size_t n = 0;
    struct argp none = {0};
    struct parse p = {.o = o, .groups = NTX_OPT_GEN, .key = key};
    struct argp_state st = {.root_argp = &none, .input = &p, .name = (char *)"", .flags = ARGP_NO_EXIT, .err_stream = open_memstream(&said, &n)};
    if (!st.err_stream)
        return ntx_err_set(err, -ENOMEM, "no memory");
    gen_opt(key, value, o, &st);
    fclose(st.err_stream);
    const char *from = n ? said + strspn(said, ": -") : ""; /* the program has no name here, and the option no dashes */
    int rc = n ? ntx_err_set(err, -EINVAL, "%.*s", (int)strcspn(from, "\n"), from) : 0;
    free(said);
    return rc;
}

int ntx_options_set(struct ntx_options *o, const char *name, const char *value, struct ntx_err *err)
{
    const struct argp_option *p = gen_options;
    while (p->name && !same_name(p->name, name))
        p++;
    if (!p->name || p->key == O_RAW || p->key == 'f' || p->key == O_SYSTEM)
        return ntx_err_set(err, -EINVAL, "there is no option '%s' that can be set here", name);
    if (p->key == O_SEED && !strcmp(value, "random"))
        return new_seed(o), 0;
    if (p->key == O_STOP && !strcmp(value, "none"))
        return o->n_stops = 0;
    if (!p->arg && strcmp(value, "on") && strcmp(value, "off"))
        return ntx_err_set(err, -EINVAL, "%s is on or off, not '%s'", p->name, value);
    if (p->key == O_IGNORE_EOS)
        return o->ignore_eos = !strcmp(value, "on"), 0;
    return set_checked(o, p->key, (char *)(uintptr_t)value, err);
}

static char *text(const char *s) { return (char *)(s ? s : ""); }

void ntx_options_load(const struct ntx_options *o, Ntx__Load *m)
{
    m->ram_bytes = o->ram;
    m->vram_bytes = o->vram;
    m->ctx = o->ctx;
    m->threads = o->threads;
    m->backend = text(o->backend);
    m->kernel = text(o->kernel);
    m->link_nvme_bps = o->link_nvme;
    m->link_h2d_bps = o->link_h2d;
    m->chunk_bytes = o->chunk;
    m->ring_slots = o->ring;
    m->sessions = o->sessions;
    m->source = text(o->source);
    m->fault = text(o->fault);
    m->skip = text(o->skip_policy[0] ? o->skip_policy : o->skip);
    m->skip_adapt = o->skip_adapt;
    m->skip_verify = o->skip_verify;
    m->skip_kv = text(o->skip_kv);
    m->study = o->study;
    m->study_ffns = o->study_ffns;
    m->no_prefetch = o->no_prefetch;
    m->trace_experts = o->trace_experts;
    m->kv_type = text(o->kv_type);
    m->ffn_sparse = text(o->ffn_sparse);
    m->max_rows = o->max_rows;
    m->copies = o->n_also + 1;
}

void ntx_options_sampling(const struct ntx_options *o, Ntx__Sampling *m)
{
    m->temp = o->temp;
    m->top_k = o->top_k;
    m->top_p = o->top_p;
    m->min_p = o->min_p;
    m->repeat_penalty = o->repeat_penalty;
    m->seed = o->seed;
}
