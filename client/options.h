/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: the options of the `ntx` commands, rows of settings (proto/settings.h) in groups, from which argp gets
 * what it parses and its --help. A command names the groups it takes; parsing fills one struct. */
#ifndef NTX_CLIENT_OPTIONS_H
#define NTX_CLIENT_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/defaults.h"
#include "common/err.h"
#include "proto/ntx.pb-c.h"
#include "proto/settings.h"

#define NTX_MAX_STOPS    16
#define NTX_MAX_ARGS     1024
#define NTX_MAX_ALSO     3
#define NTX_MAX_LIST     16
#define NTX_MAX_TENSORS  64
#define NTX_MAX_IMAGES   64

#define NTX_OVERRIDE_MAX 2048

struct ntx_list {
    uint32_t v[NTX_MAX_LIST];
    unsigned n;
};

struct ntx_options {
    const char *args[NTX_MAX_ARGS];
    unsigned n_args;
    const char *model, *prompt; /* -m, -p: become args */
    struct ntx_load_settings load;
    /* and what makes them */
    const char *sidecar;
    float skip_threshold; /* < 0: the sidecar's */
    uint32_t skip_most;
    char skip_policy[128];              /* what these make of load.skip */
    char override_kv[NTX_OVERRIDE_MAX]; /* all of --override-kv, with commas between */
    const char *also[NTX_MAX_ALSO];
    unsigned n_also;
    struct ntx_sampling_settings sampling;
    uint32_t n;
    bool raw, ignore_eos;
    const char *adapter;
    const char *prompt_file, *system, *json_schema, *grammar, *think;
    const char *chat_template;                 /* a name of the table, or NULL */
    const char *template_file, *template_text; /* or a file, and the Jinja in it */
    const char *stops[NTX_MAX_STOPS];
    unsigned n_stops;
    const char *images[NTX_MAX_IMAGES]; /* files */
    unsigned n_images;
    bool resume;      /* a chat */
    const char *talk; /* its name; NULL: the last one */
    /* output */
    const char *stats;
    bool quiet, json, no_wrap;
    bool tell_stats; /* a line of statistics after each answer; the chat's /set stats */
    /* the rest */
    const char *respawn; /* up: a command */
    const char *socket, *out, *tokens;
    const char *steps, *compare; /* logits */
    bool step_values;
    float tolerance;
    const char *image_hosts;                                                         /* HTTP */
    const char *listen, *key_file, *cors, *hosts, *stable, *http_stall, *keep_alive; /* HTTP */
    uint32_t at_once;                                                                /* models that are loaded */
    const char *manage, *manage_key_file;                                            /* likewise */
    const char *alias;                                                               /* serve */
    bool when_wait, when_drain, when_force;                                          /* load */
    const char *questions, *save_logits, *kl;
    struct ntx_list prompts, writes; /* bench: tokens */
    uint32_t repeats;
    const char *trace;
    float trace_seconds;
    bool no_bos, no_special, verbose, pairs;
    /* plan, doctor */
    const char *profile, *dir;
    const char *machine, *machines;
    bool compat, roofline, list;
    const char *image_size; /* of `ntx plan --image` */
    uint32_t batch;
    float seconds;
    const char *from, *down_type; /* packing */
    uint64_t group;
    bool gate_in_bundle;
    const char *text; /* calibrating */
    uint32_t first, last, limit, epochs;
    float share, threshold; /* threshold < 0: by KL */
    bool ffn;
    uint32_t ffn_rank;
    float ffn_active, ffn_recall;
    const char *order;
    const char *of_machines; /* --share I/N */
    bool delta, force;       /* force: pack, calibrate */
    bool planes, join;
    uint32_t low_bits; /* 0: not given */
    const char *delta_base;
    uint32_t delta_rank;
    float delta_error;
    /* quantizing */
    const char *imatrix, *tensors[NTX_MAX_TENSORS];
    unsigned n_tensors;
    uint64_t split;
    bool pure, dry_run;
    /* analyzing */
    struct ntx_list ranks;
    float bound;
    uint32_t apart, experts;
    uint64_t base;
    bool has_base;
    const char *token_file, *sha256, *type; /* pulling */
    uint32_t retry_ms, stall_s, results;
    bool anyway, no_mmproj;
    struct ntx_defaults defaults;
};

enum { /* groups */
       NTX_OPT_LOAD = 1,
       NTX_OPT_GEN = 2,
       NTX_OPT_OUTPUT = 4,
       NTX_OPT_SOCKET = 8,
       NTX_OPT_LOGITS = 16,
       NTX_OPT_BENCH = 32,
       NTX_OPT_TOK = 64,
       NTX_OPT_JSON = 128,
       NTX_OPT_PPL = 256,
       NTX_OPT_EVAL = 512,
       NTX_OPT_CALIBRATE = 1 << 12,
       NTX_OPT_PACK = 1 << 13,
       NTX_OPT_QUIET = 1 << 14,
       NTX_OPT_PLAN = 1 << 16,
       NTX_OPT_DOCTOR = 1 << 17,
       NTX_OPT_TRACED = 1024,
       NTX_OPT_TRACE = 2048,
       NTX_OPT_SERVE = 1 << 20,
       NTX_OPT_PULL = 1 << 21,
       NTX_OPT_QUANTIZE = 1 << 22,
       NTX_OPT_IMATRIX = 1 << 23,
       NTX_OPT_ANALYZE = 1 << 24,
       NTX_OPT_WHEN = 1 << 15,
       NTX_OPT_CHAT = 1 << 25,
       NTX_OPT_INDEX = 1 << 26,
       NTX_OPT_UP = 1 << 27,
       NTX_OPT_HUB = 1 << 28,
       NTX_OPT_SEARCH = 1 << 29,
       NTX_OPT_FORM = 1 << 30, /* the form of conversations, for commands that only load a model */
       NTX_OPT_MODEL = 1 << 18,
       NTX_OPT_PROMPT = 1 << 19, /* taken from how the command shows its arguments */
};

/* Under which title `ntx --help` lists a command. */
enum ntx_command_kind { NTX_KIND_RUN, NTX_KIND_SERVE, NTX_KIND_MODELS, NTX_KIND_MEASURE, NTX_KIND_TOOLS, NTX_N_KINDS };

struct ntx_command {
    enum ntx_command_kind kind;
    const char *name;
    const char *args;     /* as shown: "MODEL [PROMPT]" */
    const char *brief;    /* one line of at most 43 characters, for `ntx --help` */
    const char *doc;      /* the explanation that --help-all adds, or NULL */
    const char *examples; /* two or more lines for --help */
    unsigned groups, min_args, max_args;
};

/* Its first argument is a MODEL. */
bool ntx_command_takes_model(const struct ntx_command *cmd);
/* Its groups, with those that follow from its arguments. */
unsigned ntx_command_groups(const struct ntx_command *cmd);
/* Calls see for each option that --help-all shows, but for those of all commands. title: of the help's part. */
void ntx_command_options(const struct ntx_command *cmd,
                         void (*see)(void *arg, const char *title, const struct ntx_setting *s), void *arg);
/* Options of all commands: --help and its like. */
extern const struct argp_option ntx_common_options[];
/* The whole help of an option, in buf if it shows a preset. */
#define NTX_OPTION_HELP 512
const char *ntx_option_help(const struct ntx_setting *s, char buf[NTX_OPTION_HELP]);

/* Parses argv[0..argc) ("run", ...) for `cmd`; usage errors print and exit with 100, --help and
 * --help-all print and exit with 0: they come from argp before anything is started. */
void ntx_options_parse(const struct ntx_command *cmd, int argc, char **argv, struct ntx_options *o);

/* One option of the text's, by its name, outside of a command line: a chat's /set. Underscores may stand for dashes, a
 * switch takes on or off, "seed random" and "stop none" go back to the default. value is borrowed. On failure o is in
 * no order, err has the parser's words. */
int ntx_options_set(struct ntx_options *o, const char *name, const char *value, struct ntx_err *err);

/* The Load and Sampling parts of requests, from options. Strings are borrowed from o. */
void ntx_options_load(const struct ntx_options *o, Ntx__Load *m);
void ntx_options_sampling(const struct ntx_options *o, Ntx__Sampling *m);

#define NTX_EXIT_USAGE  100
#define NTX_EXIT_FAILED 111

#endif
