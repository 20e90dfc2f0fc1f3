/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h: what a person, ntx.conf or a client may set of a load and of an answer. Each setting is declared once, as
 * an entry of a table: from the entries come the options of `ntx` with their help (client/options.c), the keys of
 * ntx.conf (computed/config.c), the fields of Load and Sampling in both directions, and the bounds that hold for all of
 * them.
 *
 *     text --ntx_setting_read--> plain struct --to_wire--> message --fit (frame_valid.c), check--> from_wire --> plain
 *       struct
 *
 * A new setting of a load is a field in proto/ntx.proto, one in the struct below, an entry in settings_load.c, and
 * where it is used. Zero, false and no text mean everywhere that nothing was said. */
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
    NTX_SET_PATH,    /* const char *, a whole path or nothing */
    NTX_SET_FLAG,    /* bool; an option without a value */
    NTX_SET_YES,     /* bool: yes or no */
    NTX_SET_ON,      /* bool that says no: on or off, and off sets it */
    NTX_SET_OWN,     /* what `own` makes of it */
};

struct ntx_setting {
    const char *name; /* "kv-type", as an option and in messages */
    int key;          /* its short form, or 0 */
    const char *arg,
        *help;   /* arg: how the help shows its value. help: '$' stands for preset. NULL: no option of `ntx` */
    bool hidden; /* not in the help */
    enum ntx_setting_kind kind;
    double min, max;     /* of numbers; of texts max bytes. max 0: as much as the kind holds */
    const char *choices; /* of words: "form:md|csv|json", what it is and which there are */
    const char *preset;  /* as it is where nothing is said; NULL: zero */
    uint16_t at,
        given; /* offsets in the plain struct: of it, and (or 0) of a bool that tells that something was said */
    uint16_t wire, wire_size;             /* in the message; 0: not there */
    const char *section, *in_conf, *open; /* in ntx.conf: section, key, and the value that leaves it open */
    const char *about;                    /* what that file says of it */
    int (*own)(void *to, const char *text, struct ntx_err *err);
};

/* [clients] stop_grace of ntx.conf, in seconds: ntx-computed and ntx-gateway both go by it. */
#define NTX_STOP_GRACE      "30"
#define NTX_GATEWAY_STALL   "30" /* [gateway] stall: seconds, likewise */
#define NTX_STOP_GRACE_MOST 3600

struct ntx_settings {
    const struct ntx_setting *entry;
    unsigned n;
};

/* Reads text (NULL: a flag that stands there) as s into the plain struct `to`, which borrows it. -EINVAL: err says what
 * text is not, without the setting's name. */
int ntx_setting_read(const struct ntx_setting *s, const char *text, void *to, struct ntx_err *err);
/* All presets. */
void ntx_settings_preset(const struct ntx_settings *t, void *to);

/* Texts are borrowed in all of these. fit: all numbers and lengths are within bounds, or nothing is said. check: so are
 * the words; err names the option. fill: what ntx.conf can say is taken from d where m says nothing. */
bool ntx_settings_fit(const struct ntx_settings *t, const void *m);
int ntx_settings_check(const struct ntx_settings *t, const void *m, struct ntx_err *err);
void ntx_settings_to_wire(const struct ntx_settings *t, const void *from, void *m);
void ntx_settings_from_wire(const struct ntx_settings *t, const void *m, void *to);
void ntx_settings_fill(const struct ntx_settings *t, void *m, const void *d);

/* The texts become copies of its own; on failure (-ENOMEM) there are none. And are freed. */
int ntx_settings_keep(const struct ntx_settings *t, void *of);
void ntx_settings_drop(const struct ntx_settings *t, void *of);

struct ntx_load_settings { /* Load in ntx.proto tells what each means */
    uint64_t ram, vram, chunk, state_max, kv_ram;
    uint32_t ctx, threads, sessions, rows, ring;
    const char *backend, *kernel, *source, *fault, *skip, *skip_kv, *kv_type, *ffn_sparse, *draft, *lora, *override_kv,
        *state, *split;
    double link_nvme, link_h2d, link_net /* bytes per second */, link_delay /* microseconds */;
    uint32_t skip_verify, capture_ffns, draft_nodes;
    bool skip_adapt, capture, sum_inputs, no_prefetch, no_prefix_cache, trace_experts, no_gpu_graphs;
};
#define NTX_STATE_MAX (20ull << 30)                 /* where state_max is left open */
extern const struct ntx_settings ntx_load_settings; /* of an Ntx__Load */

struct ntx_sampling_settings {
    float temp, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    uint32_t top_k, repeat_last;
    uint64_t seed;
    bool has_temp, has_seed;
};
extern const struct ntx_settings ntx_sampling_settings; /* of an Ntx__Sampling */

/* A skip policy that goes by what was learned, and needs a sidecar: static or predictive, with or without fields
 * (predictor/policy.h). */
bool ntx_skip_learned(const char *policy);
/* --draft: off; or who guesses, with commas between them: lookup, nextn, and at most NTX_DRAFT_FILES files, nextn being
 * one; or auto, also for NULL and "": look-up, nextn where the model has it, and the drafter that the model's card
 * names, in the memory that they find, and where it pays. */
#define NTX_DRAFT_FILES 3u
bool ntx_draft_off(const char *draft);
bool ntx_draft_auto(const char *draft);
bool ntx_draft_looks_up(const char *draft);
bool ntx_draft_nextn(const char *draft); /* the model's own next-token block is named; it counts as one of the files
                                            that there may be, but is none */
unsigned ntx_draft_files(const char *draft);
int ntx_draft_file(const char *draft, unsigned i, char *path, size_t room, struct ntx_err *err); /* the i-th of them */
/* --lora: [NAME=]FILE, several with commas between; the name is else the file's, without its folder and .gguf. */
#define NTX_LORA_NAME 64
unsigned ntx_lora_files(const char *lora);
int ntx_lora_file(const char *lora, unsigned i, char *name, size_t name_room, char *path, size_t room,
                  struct ntx_err *err);
/* Rows of logits that one session wants with it at least; 0: it takes what there is. */
uint32_t ntx_draft_rows(const char *draft, uint32_t nodes);
bool ntx_draft_trees(const char *draft,
                     uint32_t nodes); /* there may be trees of many more: a drafter is named, and no number */
/* Nothing is skipped. */
bool ntx_skip_off(const char *policy);

#endif
