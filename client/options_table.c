/* SPDX-License-Identifier: Apache-2.0 */
#include "client/options_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "model/layer_delta.h"
#include "model/override.h"
#include "model/think.h"

/* ---- readers of options with their own form */

/* Reads a latency: "50us". */
static bool read_delay(const char *text, double *us)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || strcmp(end, "us") || !(v >= 0 && v <= 1e6))
        return false;
    *us = v;
    return true;
}

/* The rate that a part of --link sets, or NULL. */
static double *link_rate(struct ntx_options *o, const char *part)
{
    if (!strncmp(part, "nvme=", 5))
        return &o->load.link_nvme;
    if (!strncmp(part, "h2d=", 4))
        return &o->load.link_h2d;
    return !strncmp(part, "net=", 4) ? &o->load.link_net : NULL;
}

static int read_link(void *to, const char *text, struct ntx_err *err)
{
    struct ntx_options *o = to;
    char buf[128];
    snprintf(buf, sizeof buf, "%s", text);
    for (char *save, *p = strtok_r(buf, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        double *rate = link_rate(o, p);
        if (!strchr(p, '=') && read_delay(p, &o->load.link_delay))
            continue;
        if (!rate || ntx_parse_rate(strchr(p, '=') + 1, rate))
            return ntx_err_set(err, -EINVAL,
                               "'%s' is not a link rate; write it as nvme=3.3G, the latency between machines as 50us",
                               p);
    }
    return 0;
}

static int read_think(void *to, const char *text, struct ntx_err *err)
{
    struct ntx_options *o = to;
    struct ntx_think t;
    int rc = *text ? ntx_think_read(text, &t, err)
                   : ntx_err_set(err, -EINVAL, "on, off, a level or a number is missing");
    if (!rc)
        o->think = text;
    return rc;
}

/* Checks each key; the daemons get all of them, joined by commas. */
static int read_override(void *to, const char *text, struct ntx_err *err)
{
    struct ntx_options *o = to;
    struct ntx_override each;
    const size_t n = strlen(o->override_kv);
    int rc;
    for (const char *at = text; (rc = ntx_override_next(&at, &each, err)) > 0;)
        ;
    if (rc)
        return rc;
    if (n + strlen(text) + 2 > sizeof o->override_kv)
        return ntx_err_set(err, -E2BIG, "all keys together have up to %zu bytes", sizeof o->override_kv - 1);
    snprintf(o->override_kv + n, sizeof o->override_kv - n, "%s%s", n ? "," : "", text);
    o->load.override_kv = o->override_kv;
    return 0;
}

static int read_image(void *to, const char *text, struct ntx_err *err)
{
    struct ntx_options *o = to;
    if (o->n_images == NTX_MAX_IMAGES)
        return ntx_err_set(err, -E2BIG, "more than %d pictures", NTX_MAX_IMAGES);
    o->images[o->n_images++] = text;
    return 0;
}

static int read_also(void *to, const char *text, struct ntx_err *err)
{
    struct ntx_options *o = to;
    if (o->n_also == NTX_MAX_ALSO)
        return ntx_err_set(err, -EINVAL, "may be given %d times", NTX_MAX_ALSO);
    o->also[o->n_also++] = text;
    return 0;
}

static int read_stop(void *to, const char *text, struct ntx_err *err)
{
    struct ntx_options *o = to;
    if (o->n_stops == NTX_MAX_STOPS || !*text)
        return ntx_err_set(err, -EINVAL, "takes a text, at most %d times", NTX_MAX_STOPS);
    o->stops[o->n_stops++] = text;
    return 0;
}

static int read_tensor(void *to, const char *text, struct ntx_err *err)
{
    struct ntx_options *o = to;
    if (o->n_tensors == NTX_MAX_TENSORS)
        return ntx_err_set(err, -EINVAL, "may be given %d times", NTX_MAX_TENSORS);
    o->tensors[o->n_tensors++] = text;
    return 0;
}

static const struct ntx_setting at_least_one = {.kind = NTX_SET_COUNT, .min = 1};

static int read_n(void *to, const char *text, struct ntx_err *err)
{
    struct ntx_options *o = to;
    o->n = 0;
    return strcmp(text, "-1") && strcmp(text, "-2") ? ntx_setting_read(&at_least_one, text, &o->n, err) : 0;
}

/* Reads a list: "512,1024". */
static int read_list(struct ntx_list *l, const char *s, struct ntx_err *err)
{
    char buf[256];
    int rc = 0;
    snprintf(buf, sizeof buf, "%s", s);
    l->n = 0;
    if (strlen(s) >= sizeof buf || !*s || strstr(s, ",,") || s[strlen(s) - 1] == ',')
        return ntx_err_set(err, -EINVAL, "'%s' is not a list of numbers such as 512,1024", s);
    for (char *save, *p = strtok_r(buf, ",", &save); !rc && p; p = strtok_r(NULL, ",", &save)) {
        if (l->n == NTX_MAX_LIST)
            return ntx_err_set(err, -EINVAL, "more than %d numbers", NTX_MAX_LIST);
        rc = ntx_setting_read(&at_least_one, p, &l->v[l->n++], err);
    }
    return rc;
}

static int read_ranks(void *to, const char *text, struct ntx_err *err)
{
    struct ntx_list *l = &((struct ntx_options *)to)->ranks;
    int rc = read_list(l, text, err);
    if (!rc && l->n > NTX_ANALYZE_RANKS)
        return ntx_err_set(err, -EINVAL, "more than %d ranks", NTX_ANALYZE_RANKS);
    for (unsigned i = 0; i < l->n && !rc; i++)
        if (l->v[i] > NTX_ANALYZE_MAX_RANK || (i && l->v[i] <= l->v[i - 1]))
            rc = ntx_err_set(err, -EINVAL, "ranks rise, up to %u: 8,32,128", NTX_ANALYZE_MAX_RANK);
    return rc;
}

static int read_prompts(void *to, const char *text, struct ntx_err *err)
{
    return read_list(&((struct ntx_options *)to)->prompts, text, err);
}
static int read_writes(void *to, const char *text, struct ntx_err *err)
{
    return read_list(&((struct ntx_options *)to)->writes, text, err);
}

/* ---- the options: name, letter, value, help; then the kind and the destination. Options of a load and of sampling are
 * in proto/settings_load.c */

#define AT(f)           .at = offsetof(struct ntx_options, f)
#define TEXT(f)         .kind = NTX_SET_TEXT, AT(f)
#define FLAG(f)         .kind = NTX_SET_FLAG, AT(f)
#define COUNT(f)        .kind = NTX_SET_COUNT, .min = 1, AT(f)
#define REAL(f, lo, hi) .kind = NTX_SET_REAL, .min = lo, .max = hi, AT(f)
#define OWN(f)          .kind = NTX_SET_OWN, .own = f

static const struct ntx_setting model_entries[] = {
    {"model", 'm', "MODEL", "the model, instead of as the first argument", TEXT(model)},
    {"override-kv", 0, "KEY=TYPE:VALUE",
     "set a key of MODEL's file that is wrong or missing (repeatable); TYPE is int, float, bool or str: "
     "tokenizer.ggml.pre=str:llama-bpe",
     OWN(read_override)},
};
static const struct ntx_setting prompt_entries[] = {
    {"prompt", 'p', "TEXT", "the prompt, instead of as an argument", TEXT(prompt)}};
static const struct ntx_setting load_entries[] = {
    {"link", 0, "nvme=RATE,h2d=RATE,net=RATE,TIME",
     "emulate a slower drive (of each, with --also), link to the GPU, or link between machines that share the model "
     "(all on one, "
     "for trials): bytes per second, as 3.3G, and its latency, as 50us",
     OWN(read_link)},
    {"also", 0, "PATH",
     "the same model on another drive (up to 3 times): each read is split between the drives, whose rates add up",
     OWN(read_also)},
    {"sidecar", 0, "FILE",
     "the file that `ntx calibrate` made, for --skip and --ffn-sparse predicted (default: the model's path with "
     ".skip.gguf for "
     ".gguf)",
     TEXT(sidecar)},
    {"skip-threshold", 0, "P",
     "skip a layer where the predictor (static: the calibration's share of tokens) says at least P, 0 to 1 (default: "
     "the sidecar's)",
     REAL(skip_threshold, 0, 1)},
    {"skip-max-consecutive", 0, "N", "layers skipped in a row at most (default: no limit)", COUNT(skip_most)},
};
static const struct ntx_setting pack_entries[] = {
    {"group", 0, "SIZE",
     "approximate bytes of a group of neurons (default: the smallest read with two fifths of the drive's best rate, by "
     "`ntx doctor`'s profile; 16K without one)",
     .kind = NTX_SET_SIZE, .small = true, AT(group)},
    {"gate-in-bundle", 0, NULL,
     "gate rows go into the groups, too, and are read with them: for --ffn-sparse predicted and prompt",
     FLAG(gate_in_bundle)},
    {"order", 0, "SIDECAR",
     "store neurons together that are active together, as `ntx calibrate --ffn` found for this model", TEXT(order)},
    {"from", 0, "FILE", "the same model in a higher precision: the source of the down columns", TEXT(from)},
    {"down-type", 0, "TYPE",
     "store down matrices as columns rounded to this type: F16, Q8_0, Q6_K, Q5_K, Q4_K, ... (default: no weight is "
     "changed; with --from their type, or the next that can be written)",
     TEXT(down_type), .values = "F32|F16|Q8_0|Q6_K|Q5_K|Q4_K|Q5_0|Q4_0"},
    {"text", 0, "FILE", "text to count on which groups a token touches (default: a paragraph of ours)", TEXT(text)},
    {"profile", 0, "FILE", "profile of the target machine (default: this one, as `ntx doctor` measured it)",
     TEXT(profile)},
    {"share", 0, "I/N",
     "no groups: the file of machine I of N that share the model (mpirun ... ntx up), which has bytes only where that "
     "machine reads; all must be made with the same parts",
     TEXT(of_machines)},
    {"machines", 0, "FILE",
     "with --share: the split and parts that `ntx plan --machines FILE` finds (default: rows, equal parts)",
     TEXT(machines)},
    {"split", 0, "HOW",
     "with --share: rows, heads (whose files are those of rows), layers or auto, as the machines will be started "
     "(default auto)",
     .kind = NTX_SET_WORD, .choices = "way to split a model:auto|rows|heads|layers", AT(load.split)},
    {"delta", 0, NULL, "no groups: one base for all layers, that stays in memory, and a difference for each layer",
     FLAG(delta)},
    {"rank", 0, "R", "with --delta: rank R of all differences (default: the rank, or the bits, that --error needs)",
     COUNT(delta_rank)},
    {"error", 0, "E",
     "with --delta: largest relative error, of the matrices (default 0.1); with --base of the differences (0.2)",
     REAL(delta_error, 0, 1)},
    {"base", 0, "BASE", "with --delta: OUT is the difference of MODEL, a fine-tune, from BASE: an adapter for --lora",
     TEXT(delta_base)},
    {"planes", 0, NULL,
     "no groups: OUT gets the low bits of the weights, and OUT.draft.gguf the high bits, which stay in memory and "
     "draft "
     "while the low bits are read",
     FLAG(planes)},
    {"low-bits", 0, "N", "with --planes: low bits of Q4_K's weights, 1 or 2 (default 2); other types have one way",
     .kind = NTX_SET_COUNT, .min = 1, .max = 2, AT(low_bits)},
    {"join", 0, NULL, "OUT is the whole model again, of low and high bits that --planes wrote", FLAG(join)},
    {"force", 0, NULL, "write the file even if it saves nothing; with --delta also whatever its error", FLAG(force)},
};
static const struct ntx_setting quantize_entries[] = {
    {"imatrix", 0, "FILE", "an importance matrix, made by `ntx imatrix` or by llama.cpp: the mean square of each input",
     TEXT(imatrix)},
    {"tensor", 0, "REGEX=TYPE",
     "tensors whose names match get this type (repeatable; the first that matches counts): 'ffn_down=Q6_K', "
     "'^output=Q8_0'",
     OWN(read_tensor)},
    {"pure", 0, NULL, "all matrices in one type, without the other types of the mix", FLAG(pure)},
    {"split", 0, "SIZE", "parts of at most SIZE: OUT-00001-of-00004.gguf and so on", .kind = NTX_SET_SIZE, AT(split)},
    {"dry-run", 0, NULL, "print which tensor would get which type, and the sizes; write nothing", FLAG(dry_run)},
    {"threads", 't', "N", "threads (default: a thread for each CPU)", COUNT(load.threads)},
};
static const struct ntx_setting imatrix_entries[] = {
    {"output", 'o', "FILE", "the importance matrix to write", TEXT(out)},
    {"limit", 0, "N", "tokens of the text at most", COUNT(limit)},
};
static const struct ntx_setting index_entries[] = {{"output", 'o', "FILE", "the index to write", TEXT(out)}};
static const struct ntx_setting analyze_entries[] = {
    {"ranks", 0, "R[,R...]", "ranks of deltas that are tried (default $)", OWN(read_ranks), .preset = "8,32,128"},
    {"bound", 0, "E", "largest error that a delta may leave, of the matrix's own size (default $)", REAL(bound, 0, 1),
     .preset = "0.1"},
    {"apart", 0, "N", "compare layers that lie N apart (default $: neighbours)", COUNT(apart), .preset = "1"},
    {"base", 0, "L", "compare all layers with layer L instead", .kind = NTX_SET_NUMBER, .max = 100000, AT(base),
     .given = offsetof(struct ntx_options, has_base)},
    {"experts", 0, "N", "compare N experts of each layer (default $)", COUNT(experts), .preset = "4"},
    {"pairs", 0, NULL, "a line for each pair of matrices, below the line of their means", FLAG(pairs)},
    {"threads", 't', "N", "threads (default: a thread for each CPU)", COUNT(load.threads)},
};
static const struct ntx_setting quiet_entries[] = {{"quiet", 0, NULL, "only errors", FLAG(quiet)}};
#define THINK_ENTRY                                                                                                    \
    {                                                                                                                  \
        "think", 0, "HOW", THINK_HELP, OWN(read_think)                                                                 \
    }
#define THINK_HELP                                                                                                     \
    "thoughts (reasoning): on, off, minimal, low, medium, high, xhigh, max, or a number of tokens after which they "   \
    "are ended (0: off, -1: no limit); also several: on,high,2048 (default: as the chat template has it)"
#define TEMPLATE_ENTRY                                                                                                 \
    {                                                                                                                  \
        "chat-template", 0, "FILE", TEMPLATE_HELP, TEXT(chat_template), .values = TEMPLATE_NAMES                       \
    }
#define TEMPLATE_NAMES "llama-2|llama-3|chatml|mistral|mistral-v1|mistral-v7|harmony|harmony-low|harmony-high|plain"
#define TEMPLATE_HELP                                                                                                  \
    "the chat template (Jinja) in FILE, or llama-2, llama-3, chatml, mistral (also -v1, -v7), harmony (also -low, "    \
    "-high) or plain, instead of the model's own; a file is for commands that load a model"
static const struct ntx_setting gen_entries[] = {
    {"n", 'n', "N", "tokens to generate at most (default, and -1: until the model ends or the context is full)",
     OWN(read_n)},
    {"raw", 0, NULL, "the prompt as it is, no chat template; control tokens in it (<|fim_prefix|>) parse as such",
     FLAG(raw)},
    {"no-special", 0, NULL, "with --raw: control tokens in the prompt are plain text, as they always are in a chat",
     FLAG(no_special)},
    {"file", 'f', "FILE", "read the prompt from FILE; behind PROMPT where both are given", TEXT(prompt_file)},
    {"image", 0, "FILE",
     "a picture before the prompt, or before the chat's first message (repeatable): JPEG, PNG, WebP, GIF or BMP; the "
     "model needs its projector (--mmproj)",
     OWN(read_image)},
    {"system", 0, "TEXT", "system message of the chat", TEXT(system)},
    {"stop", 0, "TEXT", "end before this text (repeatable)", OWN(read_stop)},
    {"json-schema", 0, "FILE", "constrain the answer to JSON that is valid for the JSON Schema in FILE",
     TEXT(json_schema)},
    {"grammar", 0, "FILE", "constrain the answer to the grammar in FILE (GBNF: root ::= \"yes\" | \"no\")",
     TEXT(grammar)},
    {"adapter", 0, "NAME", "name of the --lora adapter to use; base: none (default: the first)", TEXT(adapter)},
    {"ignore-eos", 0, NULL, "go on past end-of-generation tokens", FLAG(ignore_eos)},
    THINK_ENTRY,
    TEMPLATE_ENTRY,
};
static const struct ntx_setting form_entries[] = {THINK_ENTRY, TEMPLATE_ENTRY};
static const struct ntx_setting chat_entries[] = {
    {"resume", 0, NULL,
     "go on with a conversation that /save NAME saved: with the one of the NAME that follows, or the last one",
     FLAG(resume)}};
static const struct ntx_setting output_entries[] = {
    {"stats", 0, "FILE", "write the statistics as JSON to FILE, '-' for stdout", TEXT(stats)},
    {"quiet", 0, NULL, "only the text and errors", FLAG(quiet)},
    {"no-wrap", 0, NULL, "on a terminal, do not break lines between words", FLAG(no_wrap)},
    {"json", 0, NULL,
     "a JSON line {token, text} per token, then one with the statistics; an interrupted answer may end with a line "
     "{text}: text that was held back as the beginning of a --stop",
     FLAG(json)},
};
static const struct ntx_setting socket_entries[] = {
    {"socket", 0, "PATH", "the daemon's socket (default: that of `ntx up`, else the service's, /run/ntx/ntx.sock)",
     TEXT(socket)}};
static const struct ntx_setting serve_entries[] = {
    {"listen", 0, "WHERE", "127.0.0.1:8080, [::1]:8080 or unix:/path (default $)", TEXT(listen),
     .preset = "127.0.0.1:8080"},
    {"api-key-file", 0, "FILE",
     "require the key in this file (mode 0600) of each request; needed where other machines reach WHERE",
     TEXT(key_file)},
    {"cors", 0, "ORIGINS",
     "origins whose web pages may send requests (CORS): https://example.org, several with blanks between them, or *; "
     "pages of localhost may always, except with none",
     TEXT(cors)},
    {"hosts", 0, "NAMES",
     "without a key, also answer requests with these names in the Host header, beside localhost and loopback "
     "addresses: example.org, several with blanks between them",
     TEXT(hosts)},
    {"image-hosts", 0, "HOSTS",
     "hosts from which pictures in requests (image_url) are fetched: example.org, *.example.org, example.org:8443, "
     "several with blanks between them; * for all names (default: none). Addresses of this machine and of private "
     "networks must be written",
     TEXT(image_hosts)},
    {"stable-prompts", 0, "yes|no",
     "leave out parts of system prompts that clients change with each request and that mean nothing to a model, so "
     "that the rest is found in the prefix cache (default: yes)",
     TEXT(stable)},
    {"stall", 0, "SECONDS",
     "time for a client to send more of a request or take more of an answer; then its connection is closed (default: "
     "30)",
     TEXT(http_stall)},
    {"keep-alive", 0, "TIME",
     "unload a model after so long without requests: 5m, 30s, 2h; -1: never (default). A request's keep_alive "
     "overrides "
     "it for its model",
     TEXT(keep_alive)},
    {"at-once", 0, "N",
     "keep up to N models loaded at a time, as long as all of them fit into --ram; then the least recently used one is "
     "unloaded. Each takes 64 MiB of --ram more (default $)",
     .kind = NTX_SET_COUNT, .min = 1, .max = 4, AT(at_once), .preset = "1"},
    {"manage", 0, "yes|no",
     "requests may pull, name and delete models, as Ollama's clients do; those of ntx's own folder of models are "
     "served, "
     "too. Where other machines reach WHERE, it takes --manage-key-file (default: no)",
     TEXT(manage)},
    {"manage-key-file", 0, "FILE",
     "only requests with the key in this file (mode 0600) may pull, name and delete models; it is also an API key",
     TEXT(manage_key_file)},
};
static const struct ntx_setting when_entries[] = {
    {"wait", 0, NULL, "while answers are generated, wait for a moment without any (default: refuse)", FLAG(when_wait)},
    {"drain", 0, NULL, "wait for the end of the present answers; new requests wait for the new model",
     FLAG(when_drain)},
    {"force", 0, NULL, "end the present answers where they are", FLAG(when_force)},
};
static const struct ntx_setting logits_entries[] = {
    {"tokens", 0, "IDS", "token ids, comma separated", TEXT(tokens)},
    {"output", 'o', "FILE", "float32, little-endian, [n_tokens x n_vocab]", TEXT(out)},
    {"steps", 0, "FILE",
     "write the result of each operation of each layer: a line of JSON for each, with a digest of every token's values",
     TEXT(steps)},
    {"step-values", 0, NULL, "the values, too, in --steps", FLAG(step_values)},
    {"compare", 0, "FILE",
     "instead: find the first operation in which this file of --steps differs from the one in MODEL's place; exit code "
     "1 "
     "if there is one",
     TEXT(compare)},
    {"tolerance", 0, "T",
     "with --compare: values may differ by T times the largest of their row (default 0: equal bits); both files need "
     "--step-values",
     REAL(tolerance, 0, 1e9)},
};
static const struct ntx_setting bench_entries[] = {
    {"prompt", 'p', "N[,N...]", "prompt tokens (default $), a test for each", OWN(read_prompts), .preset = "128"},
    {"n", 'n', "N[,N...]",
     "tokens to generate (default $), a test for each except 1: the first token comes with its prompt",
     OWN(read_writes), .preset = "32"},
    {"repeat", 'r', "N", "runs (default $)", COUNT(repeats), .preset = "5"},
    {"output", 'o', "FORM", "md, csv or json: a row for each test (default md)", .kind = NTX_SET_WORD,
     .choices = "form:md|csv|json", AT(out)},
};
static const struct ntx_setting tok_entries[] = {
    {"no-bos", 0, NULL, "no beginning-of-text token", FLAG(no_bos)},
    {"no-special", 0, NULL, "control tokens in the text are plain text", FLAG(no_special)}};
static const struct ntx_setting ppl_entries[] = {
    {"save-logits", 0, "BASE",
     "write this model's logits of each scored token to the file BASE (2 bytes per token and vocabulary entry)",
     TEXT(save_logits)},
    {"kl", 0, "BASE",
     "compare with the run that wrote BASE: KL divergence from it, agreement of the likeliest token, both perplexities",
     TEXT(kl)},
};
static const struct ntx_setting eval_entries[] = {
    {"questions", 0, "FILE", "JSON lines {\"prompt\": \"...\", \"answer\": \"...\"}", TEXT(questions)}};
static const struct ntx_setting plan_entries[] = {
    {"profile", 0, "FILE",
     "the hardware: a profile as `ntx doctor` writes it (default: this machine's, measured for a moment where there is "
     "none)",
     TEXT(profile)},
    {"machine", 0, "WORDS",
     "the hardware by words: gpu=3090,ram=64G,drive=7G,pcie=4x16 (also memory=ddr5 or a rate, cores=N); this,gpu=3090: "
     "this machine with that changed",
     TEXT(machine)},
    {"machines", 0, "FILE",
     "several machines that share the model (mpirun ... ntx up): a line NAME WORDS for each, as of --machine, and a "
     "line net=RATE,TIME: 117M,100us",
     TEXT(machines)},
    {"list", 0, NULL, "models, types and GPUs that it knows by name", FLAG(list)},
    {"roofline", 0, NULL, "each operation of a layer against the roof, too", FLAG(roofline)},
    {"batch", 0, "N", "sequences of the roofline table (default $)", COUNT(batch), .preset = "1"},
    {"image", 0, "WxH",
     "what a picture of W x H pixels becomes: tokens of context, and memory to encode it (needs the model's file and "
     "its projector)",
     TEXT(image_size)},
    {"compat", 0, NULL, "the roofline with the formulas as published, slips included", FLAG(compat)},
};
static const struct ntx_setting doctor_entries[] = {
    {"dir", 0, "DIR", "where models are, on the drive to be measured (default: here)", TEXT(dir)},
    {"seconds", 0, "S", "time for all measurements (default 18)", REAL(seconds, 0.1, 600)},
};
static const struct ntx_setting traced_entries[] = {
    {"trace", 0, "FILE", "write a trace for Perfetto (ui.perfetto.dev) to FILE", TEXT(trace)}};
static const struct ntx_setting alias_entries[] = {
    {"alias", 0, "NAME", "the name of the first MODEL in requests, beside its file's", TEXT(alias)},
};
static const struct ntx_setting up_entries[] = {
    {"respawn", 0, "COMMAND",
     "with several machines that share a model: instead of MODEL, the command that starts them: 'mpirun -n 2 "
     "--hostfile HOSTS "
     "ntx up MODEL --ram 12G'; when one of them dies or hangs, "
     "all are started again",
     TEXT(respawn)},
};
static const struct ntx_setting trace_entries[] = {
    {"output", 'o', "FILE", "where to write the trace", TEXT(out)},
    {"seconds", 's', "S", "how long to record (default $; Ctrl-C ends it earlier)", REAL(trace_seconds, 0.01, 3600),
     .preset = "5"},
    {"quiet", 0, NULL, "only errors", FLAG(quiet)},
};
static const struct ntx_setting calibrate_entries[] = {
    {"text", 0, "FILE", "text to learn from", TEXT(text)},
    {"output", 'o', "FILE", "the sidecar to write", TEXT(out)},
    {"limit", 0, "N", "tokens of the text at most (default 32768; a state each is kept in memory)", COUNT(limit)},
    {"first", 0, "L", "first layer that may be skipped; the state before it decides (default: an eighth of the layers)",
     COUNT(first)},
    {"last", 0, "L", "last layer that may be skipped (default: all but the last)", COUNT(last)},
    {"share", 0, "P", "share of all tokens' layers, the least changing ones, that counts as skippable (default $)",
     REAL(share, 0, 1), .preset = "0.3"},
    {"threshold", 0, "P",
     "the threshold to write (default: the one that keeps a KL divergence of 0.02 on the end of the text, which is run "
     "for it some dozens of times; nothing is written where that saves less than a tenth of a token's bytes)",
     REAL(threshold, 0, 1)},
    {"force", 0, NULL, "write the sidecar even then; without a threshold that keeps it nothing is skipped",
     FLAG(force)},
    {"epochs", 0, "N", "passes over the samples in training (default $)", COUNT(epochs), .preset = "12"},
    {"ffn", 0, NULL,
     "also learn the activity of FFN neurons: for a packed model, which groups will be active (for --ffn-sparse "
     "predicted); for any other, "
     "which neurons are active together (for ntx pack --order)",
     FLAG(ffn)},
    {"ffn-active", 0, "P",
     "largest share of neurons, or groups, that counts as active: those with the largest effect (default $)",
     REAL(ffn_active, 0, 1), .preset = "0.3"},
    {"ffn-recall", 0, "P", "share of the active groups that the written limit must predict (default $)",
     REAL(ffn_recall, 0, 1), .preset = "0.95"},
    {"ffn-rank", 0, "N", "hidden units of each layer's network (default $)", .kind = NTX_SET_COUNT, .min = 1,
     .max = 4096, AT(ffn_rank), .preset = "64"},
    {"seed", 0, "S", "of the training (default 1)", .kind = NTX_SET_NUMBER, AT(sampling.seed),
     .given = offsetof(struct ntx_options, sampling.has_seed)},
};
static const struct ntx_setting hub_entries[] = {
    {"token-file", 0, "FILE",
     "the hub's token (mode 0600), for restricted models (default: HF_TOKEN, else ~/.config/ntx/token)",
     TEXT(token_file)},
    {"stall-s", 0, "N",
     "repeat the request when a server sends less than 1 KiB a second for N seconds; after six "
     "such tries the pull ends, and continues the next time (default $)",
     .kind = NTX_SET_COUNT, .min = 1, .max = 3600, AT(stall_s), .preset = "30"},
};
static const struct ntx_setting pull_entries[] = {
    {"type", 0, "TYPE",
     "the type to pull, Q4_K_M for example; best: the recommended one (default: shows all types, and asks on a "
     "terminal)",
     TEXT(type)},
    {"list", 0, NULL, "list the short names, and those of ~/.config/ntx/models.ini", FLAG(list)},
    {"sha256", 0, "HEX", "for a URL: the file's expected SHA-256 (the hub knows that of its models)", TEXT(sha256)},
    {"retry-ms", 0, "N", "wait so long before the first new try, then twice as long each time (tests)", true,
     COUNT(retry_ms), .preset = "1000"},
    {"anyway", 0, NULL, "pull a model even if ntx cannot run it", FLAG(anyway)},
    {"no-mmproj", 0, NULL, "leave out the projector (mmproj), which comes with a model that takes images",
     FLAG(no_mmproj)},
    {"json", 0, NULL,
     "print a JSON line for each step: {status: looking, pulling or done, file, completed, total, path} or {error}; "
     "takes "
     "the recommended type where none is given",
     FLAG(json)},
};
static const struct ntx_setting search_entries[] = {
    {"limit", 0, "N", "results at most (default $)", .kind = NTX_SET_COUNT, .min = 1, .max = 50, AT(results),
     .preset = "10"},
};
static const struct ntx_setting json_entries[] = {{"json", 0, NULL, "as JSON", FLAG(json)}};

#define ENTRIES(r)                                                                                                     \
    {                                                                                                                  \
        r, sizeof r / sizeof *r                                                                                        \
    }
const struct option_group ntx__option_groups[NTX__N_OPTION_GROUPS] = {
    /* neighbours may share a title */
    {NTX_OPT_PROMPT, ENTRIES(prompt_entries), NULL, 0, "Text:"},
    {NTX_OPT_GEN, ENTRIES(gen_entries), NULL, 0, "Text:"},
    {NTX_OPT_FORM, ENTRIES(form_entries), NULL, 0, "Text:"},
    {NTX_OPT_GEN, {NULL, 0}, &ntx_sampling_settings, offsetof(struct ntx_options, sampling), "Text:"},
    {NTX_OPT_CHAT, ENTRIES(chat_entries), NULL, 0, "Text:"},
    {NTX_OPT_MODEL, ENTRIES(model_entries), NULL, 0, "Model and machine:"},
    {NTX_OPT_LOAD, ENTRIES(load_entries), NULL, 0, "Model and machine:"},
    {NTX_OPT_LOAD, {NULL, 0}, &ntx_load_settings, offsetof(struct ntx_options, load), "Model and machine:"},
    {NTX_OPT_LOGITS, ENTRIES(logits_entries), NULL, 0, "Logits:"},
    {NTX_OPT_PPL, ENTRIES(ppl_entries), NULL, 0, "Comparing:"},
    {NTX_OPT_EVAL, ENTRIES(eval_entries), NULL, 0, "Questions:"},
    {NTX_OPT_BENCH, ENTRIES(bench_entries), NULL, 0, "Measuring:"},
    {NTX_OPT_CALIBRATE, ENTRIES(calibrate_entries), NULL, 0, "Calibrating:"},
    {NTX_OPT_PACK, ENTRIES(pack_entries), NULL, 0, "Packing:"},
    {NTX_OPT_IMATRIX, ENTRIES(imatrix_entries), NULL, 0, "Importance:"},
    {NTX_OPT_INDEX, ENTRIES(index_entries), NULL, 0, "Index:"},
    {NTX_OPT_QUANTIZE, ENTRIES(quantize_entries), NULL, 0, "Quantising:"},
    {NTX_OPT_ANALYZE, ENTRIES(analyze_entries), NULL, 0, "Comparing layers:"},
    {NTX_OPT_QUIET, ENTRIES(quiet_entries), NULL, 0, "Output:"},
    {NTX_OPT_TOK, ENTRIES(tok_entries), NULL, 0, "Tokens:"},
    {NTX_OPT_PLAN, ENTRIES(plan_entries), NULL, 0, "Prediction:"},
    {NTX_OPT_DOCTOR, ENTRIES(doctor_entries), NULL, 0, "Measuring:"},
    {NTX_OPT_OUTPUT, ENTRIES(output_entries), NULL, 0, "Output:"},
    {NTX_OPT_JSON, ENTRIES(json_entries), NULL, 0, "Output:"},
    {NTX_OPT_TRACED, ENTRIES(traced_entries), NULL, 0, "Output:"},
    {NTX_OPT_TRACE, ENTRIES(trace_entries), NULL, 0, "Recording:"},
    {NTX_OPT_UP, ENTRIES(up_entries), NULL, 0, "Several machines:"},
    {NTX_OPT_SERVE, ENTRIES(serve_entries), NULL, 0, "HTTP:"},
    {NTX_OPT_SERVE | NTX_OPT_UP, ENTRIES(alias_entries), NULL, 0, "Names:"},
    {NTX_OPT_WHEN, ENTRIES(when_entries), NULL, 0, "Answers under way:"},
    {NTX_OPT_PULL, ENTRIES(pull_entries), NULL, 0, "Pulling:"},
    {NTX_OPT_SEARCH, ENTRIES(search_entries), NULL, 0, "The hub:"},
    {NTX_OPT_HUB, ENTRIES(hub_entries), NULL, 0, "The hub:"},
    {NTX_OPT_SOCKET, ENTRIES(socket_entries), NULL, 0, "Connection:"},
};
