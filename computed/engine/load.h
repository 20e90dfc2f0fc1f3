/* SPDX-License-Identifier: Apache-2.0 */
/* load.h: from descriptors or a path to everything that a loaded model needs. Blocking: the server calls it in a work
 * thread.
 *
 *   ntx_load_open   files -> header -> model -> tokenizer -> plan      cheap; refuses what cannot work, changes nothing
 *   ntx_load_build  region -> stream -> KV pool takes the memory; may take seconds. Without a GPU the arena's comes in
 *                   while iod
 *                                                                      reads into what is there already (load_arena.c):
 *                                                                        ntx_load_arena tells when it is
 *   ntx_load_start  forward pass, once the predictor said which layer it looks at
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
#include "proto/settings.h"
#include "computed/engine/session.h"
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
    char *path;                 /* opened here when there are no descriptors */
    char *also[NTX_MAX_COPIES]; /* and further copies of it */
    unsigned n_also;
    char *names[NTX_MAX_FILES]; /* of the parts, for messages */
    int fds[NTX_MAX_FILES];     /* owned: closed with the request, or taken by the model. The parts, copy by copy */
    unsigned n_files;           /* in all */
    unsigned copies;
    uint64_t reclaim_bytes;            /* what the model that this one replaces gives back first */
    struct ntx_load_settings set;      /* texts owned, none NULL; taken by the model */
    char *iod_fault, *predictor_fault; /* what set.fault has for each; never NULL */
    int sidecar_fd;                    /* owned, -1: none */
    int drafter_fd[NTX_DRAFT_FILES];   /* owned: the files of set.draft, */
    unsigned n_drafters;               /*   so many that came with the request */
    struct ntx_machines *machines;     /* that share the model; NULL: this one is alone */
    const atomic_bool *stop;           /* set: opening ends soon with -ECANCELED; NULL: nobody sets it */
};

/* A file that guesses (--draft FILE), or the model's own block that does, which is the last of them. Of what goes by
 * the model's states there is one. */
struct ntx_load_drafter {
    int fd; /* -1: the model's own */
    enum ntx_drafter_file_kind kind;
    struct ntx_drafts drafts;              /* of a small model */
    struct ntx_drafter *by_states;         /* of what goes by the model's states: a file, or its own block, */
    struct ntx_drafter_needs needs;        /*  and at which layers */
    struct ntx_drafter_file *drafter_file; /* of any other file */
};

struct ntx_loaded {
    char *names[NTX_MAX_FILES];
    int fds[NTX_MAX_FILES];
    struct stat stamps[NTX_MAX_FILES]; /* as they were when the header was read */
    unsigned n_files;                  /* parts of the model: the first of the descriptors */
    unsigned n_fds;                    /* with all copies of them, which iod reads as several drives */
    struct ntx_gguf *gguf;
    struct ntx_model *model;
    struct ntx_tokenizer *tok;
    struct ntx_chat_template *chat; /* the model's own, or NULL */
    struct ntx_session_env env;
    ntx_words_slot words;
    const struct ntx_cpu_ops *ops;
    uint64_t ram_bytes;
    uint32_t max_sessions; /* that may run at once */
    uint32_t logits_rows;  /* rows of a pass that may ask for logits */
    uint64_t kept_bytes;   /* that sessions may hold together */
    struct ntx_ffn_mode ffn;
    struct ntx_ffn_nets *nets; /* NULL: no networks are asked for it */
    struct ntx_plan *plan;
    struct ntx_gpu_back back; /* .kind and .gpu NULL: the CPU computes everything */
    char back_note[300];      /* why the GPU does not, where `auto` looked for one */
    struct ntx_device *device;
    bool registered, registered_rows; /* the region, and the pass's memory, are locked for the GPU's copies */
    uint64_t pageable;                /* bytes of these that are not: a refusal */
    char lock_note[300];              /* which says so */
    char graph_note[300];             /* that the GPU makes no graphs; "": it does, or none are wanted */
    struct ntx_copy_share share;

    struct ntx_region region;
    char note[512];          /* what the region fell back to, "" when nothing; once the arena is there */
    struct ntx_arena *arena; /* who brings it in */
    int wake_fd;
    struct ntx_stream *stream;   /* NULL: the weights come another way (tests) */
    struct ntx_weights *weights; /* as the pass has them */
    struct ntx_kv_pool *kv;

    struct ntx_machines *machines;  /* borrowed, or NULL; then */
    struct ntx_share machine_share; /* who has which outputs, */
    struct ntx_ranks *ranks;        /*   and how they are reached */
    struct ntx_counters *counters;  /* borrowed */
    struct ntx_forward *forward;
    struct ntx_load_settings set; /* as asked */
    char *iod_fault, *predictor_fault;
    bool skips;     /* the policy may skip layers */
    int sidecar_fd; /* -1: none */
    struct ntx_load_drafter drafter[NTX_DRAFT_FILES];
    unsigned n_drafters;
    int left_out[NTX_DRAFT_FILES]; /* files that would guess, but did not pay here before (computed/plan/draft_stats.h)
                                    */
    unsigned n_left_out;
    bool drafters_left_out;       /* those, or the model's own block */
    char digest[NTX_DIGEST_TEXT]; /* of the model, where there is a sidecar, else "" */
    bool kv_propagate;
    uint32_t capture_rows; /* rows of a pass that may be looked at closely; 0: none ever is */
    uint32_t capture_ffns; /* layers whose FFNs a look takes in, at most */
    bool predictor_lost;   /* it kept ending before it had said what it skips: nothing is */
    uint32_t probe_layer;
    struct ntx_input_sums *sums; /* NULL: nobody asked for them */
};

void ntx_load_request_free(struct ntx_load_request *r);

int ntx_load_open(struct ntx_load_request *r, struct ntx_loaded **out, struct ntx_err *err);
int ntx_load_build(struct ntx_loaded *l, uint64_t epoch, struct ntx_counters *counters, struct ntx_err *err);
/* 0: all memory of the region is there. -EAGAIN: not yet. Else there is too little, as err says. */
int ntx_load_arena(const struct ntx_loaded *l, struct ntx_err *err);
int ntx_load_start(struct ntx_loaded *l, const struct ntx_skip_hooks *skip, struct ntx_err *err);
void ntx_loaded_free(struct ntx_loaded *l); /* no thread and no worker uses it any more */

/* load_gpu.c: the GPU's part of each step, nothing to do where there is none. pick: after the model is read; vram: what
 * the plan may count on; plan: once it is made for this request, which it may show not to go with a GPU. */
int ntx__load_pick_gpu(const struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err);
uint64_t ntx__load_vram(const struct ntx_load_request *r, const struct ntx_loaded *l);
int ntx__load_plan_gpu(const struct ntx_load_request *r, struct ntx_loaded *l, const struct ntx_plan_request *q,
                       struct ntx_err *err);
int ntx__load_build_gpu(struct ntx_loaded *l, struct ntx_err *err);
void ntx__load_start_gpu(struct ntx_loaded *l); /* once the forward pass has its memory */
void ntx__load_free_gpu(struct ntx_loaded *l);

/* load_drafter.c: files that guess. open: once the model is read; bytes: whether they suit, and what they take beside
 * the model, with what they are told; build: with the region. */
/* Why a model with recurrent states writes without drafts here, or NULL. */
const char *ntx__load_undrafted(const struct ntx_loaded *l);
int ntx__load_drafters_open(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err);
int ntx__load_drafters_bytes(struct ntx_loaded *l, const struct ntx_load_settings *set, uint32_t threads,
                             uint64_t *bytes, struct ntx_err *err);
/* The plan is made with them; `without`, without them: where they are known to pay for their memory less than weights
 * would, l goes on without them and that plan, and the other one is freed; else `without` is. */
void ntx__load_drafters_weigh(struct ntx_loaded *l, const struct ntx_load_settings *set, struct ntx_plan *without);
unsigned ntx_load_drafter_files(const struct ntx_loaded *l); /* without the model's own block */
/* What is kept of guesses in this model by those that l has, into g, which was begun. digest [NTX_DIGEST_TEXT]: the
 * model's, "" where it is not to be kept. As ntx_draft_stats_load. */
int ntx_load_draft_stats(const struct ntx_loaded *l, struct ntx_draft_stats *g, char *digest, struct ntx_err *err);
int ntx__load_drafters_build(struct ntx_loaded *l, uint64_t epoch, struct ntx_err *err);
void ntx__load_drafters_free(struct ntx_loaded *l);

/* load_arena.c */
int ntx__load_begin_region(struct ntx_loaded *l, struct ntx_err *err); /* its tables, slots and frames */
int ntx__load_arena_start(struct ntx_loaded *l, struct ntx_err *err);  /* the rest, once there is a stream */
void ntx__load_arena_free(struct ntx_loaded *l);

/* load_machines.c: with other machines. share: the same model, and who has which rows; plan: within it; unshared: the
 * load has failed here, which the others are told unless they know. */
int ntx__load_share(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err);
int ntx__load_plan_shared(struct ntx_loaded *l, struct ntx_plan_request *q, struct ntx_err *err);
void ntx__load_unshared(struct ntx_machines *m, const struct ntx_loaded *l, const struct ntx_err *failed);
bool ntx__load_is_first(const struct ntx_machines *m); /* the machine with the sessions */
void ntx__load_over(struct ntx_loaded *l); /* nobody computes any more, which the first one tells the others */

/* load_files.c: opens or takes over the request's files; each copy must be the same files as the first. */
int ntx__load_files(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err);

/* -ESTALE with the file's name when a file is not any more what it was when its header was read. */
int ntx_loaded_check(const struct ntx_loaded *l, struct ntx_err *err);
bool ntx_loaded_changed(const struct stat *was, const struct stat *now); /* of a file: by its size and its times */

#endif
