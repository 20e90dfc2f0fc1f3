/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h: the settings of a load and of an answer's sampling, from the command line, ntx.conf or a client. Each
 * setting is declared once, as an entry of a table. The entries give the options of `ntx` with their help
 * (client/options.c), the keys of ntx.conf (proto/config.c), the fields of Load and Sampling in both directions, and
 * the bounds of all of them.
 *
 *     text --ntx_setting_read--> plain struct --to_wire--> message --fit (frame_valid.c), check--> from_wire --> struct
 *
 * A new setting of a load needs a field in proto/ntx.proto, a field in the struct below, an entry in settings_load.c,
 * and the code that uses it. Zero, false and empty text mean "not set" everywhere. */
#ifndef NTX_PROTO_SETTINGS_H
#define NTX_PROTO_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum ntx_setting_kind {
    NTX_SET_SIZE,    /* uint64_t, bytes: 512M */
    NTX_SET_COUNT,   /* uint32_t */
    NTX_SET_SECONDS, /* uint32_t of milliseconds, written in seconds */
    NTX_SET_NUMBER,  /* uint64_t */
    NTX_SET_REAL,    /* float */
    NTX_SET_RATE,    /* double, bytes per second: 3.3G */
    NTX_SET_WORD,    /* const char *, one of choices */
    NTX_SET_TEXT,    /* const char * */
    NTX_SET_PATH,    /* const char *, an absolute path or empty */
    NTX_SET_FLAG,    /* bool; an option without a value */
    NTX_SET_YES,     /* bool: yes or no */
    NTX_SET_ON,      /* negated bool: on or off, and off sets it */
    NTX_SET_OWN,     /* parsed by `own` */
};

struct ntx_setting {
    const char *name; /* "kv-type", as an option and in messages */
    int key;          /* its short form, or 0 */
    const char *arg;  /* its value's name in the help */
    const char *help; /* '$' stands for preset. NULL: no option of `ntx` */
    bool hidden;      /* not in the help */
    bool small;       /* a size that may be a few KiB; others below 100000 need a unit */
    enum ntx_setting_kind kind;
    double min, max;     /* bounds of a number; max: also bytes of a text. max 0: the kind's own limit */
    const char *choices; /* of words: "form:md|csv|json": the noun for messages, then the words */
    const char *values;  /* for completion, beside choices: "off|lookup|FILE"; FILE, DIR and MODEL stand for names */
    const char *preset;  /* default, as text; NULL: zero */
    const char *minus;   /* "-1", as other programs have it, is read as this text; "": as not given */
    uint16_t at;         /* its offset in the plain struct */
    uint16_t given;      /* offset of a bool that says that it was set; 0: none */
    uint16_t wire, wire_size;             /* offset and size in the message; 0: not there */
    const char *section, *in_conf, *open; /* in ntx.conf: section, key, and the value that means "not set" */
    const char *about;                    /* its comment in ntx.conf */
    int (*own)(void *to, const char *text, struct ntx_err *err);
};

/* [clients] stop_grace of ntx.conf, in seconds, for ntx-computed and ntx-gateway. */
#define NTX_STOP_GRACE      "30"
#define NTX_GATEWAY_STALL   "30" /* [gateway] stall, in seconds, for both */
#define NTX_STOP_GRACE_MOST 3600

struct ntx_settings {
    const struct ntx_setting *entry;
    unsigned n;
};

/* Parses text (NULL: a flag without a value) as s into the plain struct `to`, which borrows the text. -EINVAL: err says
 * what is wrong with the text, without the setting's name. */
int ntx_setting_read(const struct ntx_setting *s, const char *text, void *to, struct ntx_err *err);
/* Sets all defaults. */
void ntx_settings_preset(const struct ntx_settings *t, void *to);

/* Texts are borrowed in all of these. fit: all numbers and lengths are within bounds or not set. check: so are the
 * words; err names the option. fill: settings that m leaves open and ntx.conf can set are taken from d. */
bool ntx_settings_fit(const struct ntx_settings *t, const void *m);
int ntx_settings_check(const struct ntx_settings *t, const void *m, struct ntx_err *err);
void ntx_settings_to_wire(const struct ntx_settings *t, const void *from, void *m);
void ntx_settings_from_wire(const struct ntx_settings *t, const void *m, void *to);
void ntx_settings_fill(const struct ntx_settings *t, void *m, const void *d);

/* keep replaces the texts by copies (-ENOMEM: by none); drop frees them. */
int ntx_settings_keep(const struct ntx_settings *t, void *of);
void ntx_settings_drop(const struct ntx_settings *t, void *of);

struct ntx_load_settings { /* Load in ntx.proto explains each */
    uint64_t ram, vram, chunk, state_max, kv_ram;
    uint32_t ctx, threads, sessions, rows, ring;
    const char *backend, *kernel, *source, *fault, *skip, *skip_kv, *kv_type, *ffn_sparse, *draft, *lora, *override_kv,
        *state, *split, *think, *chat_template, *mmproj;
    float max_gap; /* seconds */
    double link_nvme, link_h2d, link_net /* bytes per second */, link_delay /* microseconds */;
    uint32_t skip_verify, capture_ffns, draft_nodes;
    bool skip_adapt, capture, sum_inputs, no_prefetch, no_prefix_cache, trace_experts, no_gpu_graphs;
};
#define NTX_STATE_MAX (20ull << 30)                 /* default of state_max */
extern const struct ntx_settings ntx_load_settings; /* fields of an Ntx__Load */

#define NTX_LEAST_SHARE 1e-6f /* a top_p or typical_p of 0: one token; in an Ntx__Sampling 0 is off */
struct ntx_sampling_settings {
    float temp, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    float typical_p, mirostat_tau, mirostat_eta;
    uint32_t top_k, repeat_last, mirostat;
    uint64_t seed;
    bool has_temp, has_seed, has_repeat_last;
};
extern const struct ntx_settings ntx_sampling_settings; /* fields of an Ntx__Sampling */

/* True for a policy that was learned and needs a sidecar: static or predictive, with or without fields
 * (predictor/policy.h). */
bool ntx_skip_learned(const char *policy);
/* --draft: off; or a list of drafters with commas between: lookup, nextn, and at most NTX_DRAFT_FILES files (nextn
 * counts as one, and so does self); or auto, also for NULL and "": prompt lookup, nextn where the model has it, and the
 * drafter that the model's card names, or else self, where memory allows and where they pay. */
#define NTX_DRAFT_FILES 3u
bool ntx_draft_off(const char *draft);
bool ntx_draft_auto(const char *draft);
bool ntx_draft_looks_up(const char *draft);
/* The model's own next-token block is named. It is no file, but counts as one of NTX_DRAFT_FILES. */
bool ntx_draft_nextn(const char *draft);
/* self is named: a file, or, where the model has no copy, none: then its layers in memory draft. */
bool ntx_draft_has_self(const char *draft);
/* Whether a file of the list is called so: the model's copy in fewer bits (computed/draft/drafter_file.h). */
bool ntx_draft_self(const char *file);
unsigned ntx_draft_files(const char *draft);
int ntx_draft_file(const char *draft, unsigned i, char *path, size_t room, struct ntx_err *err); /* the i-th file */
/* Index among the files of the i-th of those that came with a request; self may be without a file. */
unsigned ntx_draft_came(const char *draft, unsigned n_came, unsigned i);
/* Puts the i-th file before an error about it. Returns the error's code. */
int ntx_draft_blame(const char *draft, unsigned i, struct ntx_err *err);
/* --lora: [NAME=]FILE, several with commas between. The default name is the file's, without its folder and .gguf. */
#define NTX_LORA_NAME 64
unsigned ntx_lora_files(const char *lora);
int ntx_lora_file(const char *lora, unsigned i, char *name, size_t name_room, char *path, size_t room,
                  struct ntx_err *err);
/* Least number of logits rows for a session with these drafts; 0: any number. */
uint32_t ntx_draft_rows(const char *draft, uint32_t nodes);
/* Trees may have many more nodes: a drafter is named, and no number of nodes. */
bool ntx_draft_trees(const char *draft, uint32_t nodes);
/* No layer is skipped. */
bool ntx_skip_off(const char *policy);

#endif
