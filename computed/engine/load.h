/* SPDX-License-Identifier: Apache-2.0 */
/* load.h: from descriptors or a path to everything that a loaded model needs. Blocking: the server calls it in a work
 * thread.
 *
 *   ntx_load_open   files -> header -> model -> tokenizer -> plan. Cheap; refuses what cannot work, changes nothing.
 *   ntx_load_build  region -> stream -> KV pool. Takes the memory; may take seconds. Without a GPU the arena comes in
 *                   while ntx-iod reads into its first parts (load_arena.c); ntx_load_arena tells when it is complete.
 *   ntx_load_start  forward pass, once the predictor has named its probe layer.
 *
 * The struct is filled in that order and is constant afterwards, but for the objects' own insides. */
#ifndef NTX_COMPUTED_ENGINE_LOAD_H
#define NTX_COMPUTED_ENGINE_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"
#include "computed/cpu/cpu.h"
#include "computed/gpu/device.h"
#include "computed/pass/forward.h"
#include "computed/gpu/gpu.h"
#include "computed/draft/drafter_file.h"
#include "computed/ranks/ranks.h"
#include "computed/state/kv.h"
#include "computed/plan/plan.h"
#include "computed/vision/need.h"
#include "proto/settings.h"
#include "computed/engine/facts.h"
#include "computed/engine/session.h"
#include "computed/engine/starts.h"
#include "computed/weights/stream.h"
#include "model/digest.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "shm/counters.h"
#include "shm/drafts.h"
#include "shm/region.h"

#define NTX_MAX_COPIES 4 /* NTX_IOD_MAX_DRIVES */

struct ntx_machines;

struct ntx_load_request {
    char *path;                 /* opened here if there are no descriptors */
    char *also[NTX_MAX_COPIES]; /* further copies of it */
    unsigned n_also;
    char *names[NTX_MAX_FILES]; /* of the parts, for messages */
    int fds[NTX_MAX_FILES];     /* owned: closed with the request, or taken by the model; the parts, copy by copy */
    unsigned n_files;           /* of all copies */
    unsigned copies;
    uint64_t reclaim_bytes;       /* bytes that the replaced model gives back first */
    uint64_t beside_bytes;        /* bytes of the budget that others take; not 0: -EDQUOT unless all is in memory */
    struct ntx_load_settings set; /* texts owned, none NULL; taken by the model */
    char *iod_fault, *predictor_fault; /* set.fault's rules for each; never NULL */
    int sidecar_fd;                    /* owned; -1: none */
    int projector_fd;                  /* likewise */
    int drafter_fd[NTX_DRAFT_FILES];   /* owned: n_drafters files of set.draft that came with the request */
    unsigned n_drafters;
    struct ntx_machines *machines; /* the machines that share the model; NULL: this one is alone */
    const atomic_bool *stop;       /* if set, opening ends soon with -ECANCELED; may be NULL */
};

/* A drafter: a file (--draft FILE), or, as the last, the model's own block or its layers in memory. At most one works
 * by the model's states, or is these layers. */
struct ntx_load_drafter {
    int fd;         /* -1: the model's own */
    unsigned named; /* index among the files of --draft */
    enum ntx_drafter_file_kind kind;
    struct ntx_drafts drafts;              /* of a draft model */
    struct ntx_drafter *by_states;         /* of one by the model's states, or its layers */
    struct ntx_drafter_needs needs;        /* memory and layers that it needs */
    struct ntx_drafter_file *drafter_file; /* of any other file */
};

struct ntx_loaded {
    char *names[NTX_MAX_FILES];
    int fds[NTX_MAX_FILES];
    struct stat stamps[NTX_MAX_FILES]; /* when the header was read */
    struct ntx_facts facts;            /* for lists of models */
    unsigned n_files;                  /* parts of the model: the first descriptors */
    unsigned n_fds;                    /* with all copies, which ntx-iod reads as several drives */
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_tokenizer *tok;
    struct ntx_chat_template *chat; /* the model's own, or NULL */
    struct ntx_session_env env;
    ntx_words_slot words;
    struct ntx_starts starts;
    const struct ntx_cpu_ops *ops;
    uint64_t ram_bytes;
    uint32_t max_sessions; /* sessions that may run at once */
    uint32_t logits_rows;  /* rows of a pass that may have logits */
    uint32_t few_rows;     /* rows of drafts that have the largest logits only */
    uint64_t kept_bytes;   /* bytes that all sessions may hold */
    struct ntx_ffn_mode ffn;
    struct ntx_kv_form *kv_form; /* NULL: K is kept as it is */
    struct ntx_ffn_nets *nets;   /* NULL: no networks predict it */
    struct ntx_plan *plan;
    struct ntx_gpu_back back; /* .kind and .gpu NULL: the CPU computes everything */
    char back_note[300];      /* why not the GPU, where `auto` looked for one */
    struct ntx_device *device;
    bool registered, registered_rows; /* the region, and the pass's memory, are locked for the GPU's copies */
    uint64_t pageable;                /* bytes of these that could not be locked */
    char lock_note[300];              /* the message about it */
    char graph_note[300];             /* why the GPU makes no graphs; "": it does, or none are wanted */
    struct ntx_copy_share share;

    struct ntx_segment high; /* of a model in high and low bits: what stays, in the places of its file */
    struct ntx_region region;
    char note[512];          /* what the region fell back to, or ""; valid once the arena is complete */
    struct ntx_arena *arena; /* the thread that faults the arena in */
    int wake_fd;
    struct ntx_stream *stream;   /* NULL: the weights come another way (tests) */
    struct ntx_weights *weights; /* as the pass sees them */
    struct ntx_kv_pool *kv;

    struct ntx_machines *machines;  /* borrowed; NULL: one machine */
    struct ntx_share machine_share; /* which outputs each machine has */
    struct ntx_ranks *ranks;        /* the connection to them */
    struct ntx_counters *counters;  /* borrowed */
    struct ntx_forward *forward;
    struct ntx_load_settings set; /* as requested */
    char *iod_fault, *predictor_fault;
    bool skips;     /* the policy may skip layers */
    int sidecar_fd; /* -1: none */
    struct ntx_load_drafter drafter[NTX_DRAFT_FILES];
    unsigned n_drafters;
    /* drafters left out, since they did not pay here before (computed/plan/draft_stats.h) */
    int left_out[NTX_DRAFT_FILES];
    unsigned n_left_out;
    bool drafters_left_out;       /* drafters or the model's own block were left out */
    bool drafters_unsure;         /* nobody named them, and they take much: they must pay */
    bool drafters_unfit;          /* since there is no room for them: the text itself drafts */
    char digest[NTX_DIGEST_TEXT]; /* of the model, if there is a sidecar; else "" */
    bool kv_propagate;
    uint32_t capture_rows; /* rows of a pass that may be captured; 0: none */
    uint32_t capture_ffns; /* most layers whose FFNs a capture has */
    bool predictor_lost;   /* it kept dying before it named its probe layer: nothing is skipped */
    uint32_t probe_layer;
    struct ntx_input_sums *sums; /* NULL: not wanted */
    int projector_fd;            /* -1: none */
    uint64_t projector_size;     /* bytes of its file */
    bool projector_found;        /* it lay beside the model: where it is of no use, the model takes no pictures */
    char blind[512];             /* why the model takes none */
    struct ntx_vision *vision;   /* its tower; NULL: no pictures */
    struct ntx_images *images;
    struct ntx_vision_need sight; /* its memory, and that of pictures */
};

void ntx_load_request_free(struct ntx_load_request *r);

int ntx_load_open(struct ntx_load_request *r, struct ntx_loaded **out, struct ntx_err *err);
int ntx_load_build(struct ntx_loaded *l, uint64_t epoch, struct ntx_counters *counters, struct ntx_err *err);
/* 0: all memory of the region has come in. -EAGAIN: not yet. Else there is too little, as err says. */
int ntx_load_arena(const struct ntx_loaded *l, struct ntx_err *err);
int ntx_load_start(struct ntx_loaded *l, const struct ntx_skip_hooks *skip, struct ntx_err *err);
/* The descriptors for ntx-iod: each copy of the model, and behind it a projector that streams. Returns their number. */
unsigned ntx_loaded_files(const struct ntx_loaded *l, int fds[NTX_MAX_FILES]);
void ntx_loaded_free(struct ntx_loaded *l); /* no thread or worker may use it any more */

/* load_gpu.c: the GPU's part of each step; nothing to do without a GPU. pick: after the model is read. vram: bytes for
 * the plan. plan: after the plan for this request, which may show that the GPU cannot be used. */
int ntx__load_pick_gpu(const struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err);
uint64_t ntx__load_vram(const struct ntx_load_request *r, const struct ntx_loaded *l);
int ntx__load_plan_gpu(const struct ntx_load_request *r, struct ntx_loaded *l, const struct ntx_plan_request *q,
                       struct ntx_err *err);
int ntx__load_build_gpu(struct ntx_loaded *l, struct ntx_err *err);
void ntx__load_start_gpu(struct ntx_loaded *l); /* once the forward pass has its memory */
void ntx__load_free_gpu(struct ntx_loaded *l);

/* load_drafter.c: drafters. open: once the model is read. bytes: whether they suit, the memory that they take, and
 * their threads. build: with the region. */
/* Why a model with recurrent states decodes without drafts here, or NULL. */
const char *ntx__load_undrafted(const struct ntx_loaded *l);
int ntx__load_drafters_open(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err);
int ntx__load_drafters_bytes(struct ntx_loaded *l, const struct ntx_load_settings *set, uint32_t threads,
                             uint64_t *bytes, struct ntx_err *err);
/* l's plan is made with drafters, `without` without them. If the drafters are known to gain less than weights in their
 * memory would, l takes `without` and drops them. The other plan is freed. */
void ntx__load_drafters_weigh(struct ntx_loaded *l, const struct ntx_load_settings *set, const struct ntx_hw *hw,
                              struct ntx_plan *without);
/* l's drafters do not fit, and are dropped with a warning: they take `bytes`, and a budget of `needed` has room. */
void ntx__load_drafters_unfit(struct ntx_loaded *l, uint64_t bytes, uint64_t needed);
unsigned ntx_load_drafter_files(const struct ntx_loaded *l); /* without the model's own block or layers */
/* Loads the draft statistics of this model with l's drafters into g, which was begun. digest [NTX_DIGEST_TEXT]: the
 * model's, "" if nothing is to be kept. Returns as ntx_draft_stats_load. */
int ntx_load_draft_stats(const struct ntx_loaded *l, struct ntx_draft_stats *g, char *digest, struct ntx_err *err);
int ntx__load_drafters_build(struct ntx_loaded *l, uint64_t epoch, struct ntx_err *err);
/* The model's layers in memory, or NULL; they are of no use in l's plan, and are dropped with a warning; they begin,
 * once there is a forward pass. */
struct ntx_load_drafter *ntx__load_drafters_layers(struct ntx_loaded *l);
void ntx__load_drafters_layers_drop(struct ntx_loaded *l);
/* --draft auto without a drafter: offers these layers. Returns the bytes that they take; 0: they cannot draft here. */
uint64_t ntx__load_layers_offer(struct ntx_loaded *l, const struct ntx_load_settings *set);
int ntx__load_drafters_start(struct ntx_loaded *l, struct ntx_err *err);
void ntx__load_drafters_free(struct ntx_loaded *l);

/* load_vision.c: the projector. open: once the model is read and the GPU picked; threads: of
 * the tower; ram: the budget. bytes: those in the plan, the region's stage included. stream: with the plan, or NULL if
 * nothing fits: where memory is short, the weights are read for each picture. shrink: the plan needs memory. Both
 * return whether these bytes are fewer now. start: with the last plan. build: with the stream. */
int ntx__load_vision_open(struct ntx_load_request *r, struct ntx_loaded *l, uint32_t threads, uint64_t ram,
                          struct ntx_err *err);
bool ntx__load_vision_stream(struct ntx_loaded *l);
bool ntx__load_vision_shrink(struct ntx_loaded *l);
uint64_t ntx__load_vision_bytes(const struct ntx_loaded *l);
/* Names the part of pictures in the error about a budget that is too small. */
int ntx__load_vision_no_room(const struct ntx_loaded *l, struct ntx_err *err);
/* The model takes no pictures, for this reason. */
void ntx__load_vision_drop(struct ntx_loaded *l, const char *why);
int ntx__load_vision_start(struct ntx_loaded *l, struct ntx_err *err);
void ntx__load_vision_build(struct ntx_loaded *l);
void ntx__load_vision_free(struct ntx_loaded *l);

/* load_planes.c: reads what stays in memory of a model in high and low bits. Nothing to do for others. */
int ntx__load_planes(struct ntx_loaded *l, struct ntx_err *err);

/* load_template.c */
int ntx__load_template(struct ntx_loaded *l, const struct ntx_load_settings *set, struct ntx_err *err);

/* load_arena.c */
int ntx__load_begin_region(struct ntx_loaded *l, struct ntx_err *err); /* its tables, slots and frames */
int ntx__load_arena_start(struct ntx_loaded *l, struct ntx_err *err);  /* the rest, once there is a stream */
void ntx__load_arena_free(struct ntx_loaded *l);

/* load_machines.c: several machines. share: agree on the model and each one's rows. plan: within it. unshared: the load
 * has failed here, which the others are told unless they know. */
int ntx__load_share(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err);
int ntx__load_plan_shared(struct ntx_loaded *l, struct ntx_plan_request *q, struct ntx_err *err);
void ntx__load_unshared(struct ntx_machines *m, const struct ntx_loaded *l, const struct ntx_err *failed);
bool ntx__load_is_first(const struct ntx_machines *m); /* the machine with the sessions */
void ntx__load_over(struct ntx_loaded *l);             /* computing is over; the first machine tells the others */

/* load_files.c: opens or takes over the request's files; each copy must have the same bytes as the first. */
int ntx__load_files(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err);

/* -ESTALE with the file's name if a file has changed since its header was read. */
int ntx_loaded_check(const struct ntx_loaded *l, struct ntx_err *err);
bool ntx_loaded_changed(const struct stat *was, const struct stat *now); /* by size and times */

#endif
