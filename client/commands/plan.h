/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: the parts of `ntx plan`: the answer (plan.c), the hardware profile it uses (plan_profile.c), and the
 * output: the answer in words first (plan_words.c), then the figures (plan_print.c). */
#ifndef NTX_CLIENT_COMMANDS_PLAN_H
#define NTX_CLIENT_COMMANDS_PLAN_H

#include "computed/plan/advice.h"
#include "computed/plan/place.h"
#include "computed/plan/roofline.h"
#include "computed/vision/need.h"
#include "model/share.h"

enum {
    NTX_PLAN_NOTE_BUDGET,
    NTX_PLAN_NOTE_MODEL,
    NTX_PLAN_NOTE_GPU,
    NTX_PLAN_NOTE_CONSTRAINED,
    NTX_PLAN_NOTE_DRAFTER,
    NTX_PLAN_NOTE_PLANES,
    NTX_PLAN_NOTE_PROFILE,
    NTX_PLAN_NOTE_BUSY,
    NTX_PLAN_NOTES
};

struct ntx_plan_image {                            /* of --image */
    uint32_t width, height, fit_width, fit_height; /* pixels, and as the model sees them; 0: not asked */
    struct ntx_vision_grid grid;
    uint32_t tokens; /* of context, with those between rows of the grid */
    uint64_t bytes;  /* of memory to encode it, the projector's weights included */
};

struct ntx_plan_answer {
    struct ntx_hw hw;
    struct ntx_outline model;
    struct ntx_layout place;
    struct ntx_draft_stats draft_stats; /* statistics of earlier loads of the model (--draft) */
    bool exact;                      /* exact to the byte, as `ntx run` would place it: there is a file, and no GPU */
    bool named, here;                /* the model has no file; the machine is this one */
    const char *path;                /* of its file, for commands; NULL: it is not here yet */
    char notes[NTX_PLAN_NOTES][300]; /* warnings on the figures; "" */
    uint64_t drafter_bytes;          /* of the drafters of --draft */
    bool unsure;                     /* nobody named the drafter, and it takes much: it must pay */
    struct ntx_plan_image image;
    bool sees, projector_found; /* it has a projector; which lay beside it */
    struct ntx_vision_need sight;
    bool small_models; /* they are small models, all of them */
    struct ntx_advice advice[NTX_ADVICE_MAX];
    unsigned n_advice;
    struct ntx_roof_model roof_model;
    struct ntx_roof_machine roof; /* bps 0: unknown, no table */
    bool roof_gpu, compat;
    bool show_roof;
    uint32_t batch;
};

struct ntx_options;
struct ntx_model_files;
/* For --machines. */
int ntx__plan_machines(const struct ntx_options *o, const struct ntx_plan_answer *a, struct ntx_err *err);
/* The machines' shares of a model's file. */
int ntx__plan_parts(const struct ntx_options *o, const struct ntx_gguf *g, const char *name, struct ntx_share *parts,
                    struct ntx_err *err);
/* Fills, from open files, all that ntx__plan_print_words needs, on this machine. Call ntx__plan_done afterwards,
 * also on failure. */
int ntx__plan_files(const struct ntx_options *o, const struct ntx_model_files *f, const char *name,
                    struct ntx_plan_answer *a, struct ntx_err *err);

/* plan_image.c. projector: fills a->sight, for a budget of so many bytes. image: fills a->image for "WxH". */
int ntx__plan_projector(const struct ntx_options *o, const struct ntx_model_files *f, uint64_t ram,
                        struct ntx_plan_answer *a, struct ntx_err *err);
int ntx__plan_image(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_plan_answer *a,
                    struct ntx_err *err);

/* plan_copies.c: for a model that is read from the drive, notes what its copy in fewer bits would give as a drafter,
 * and what it would give split in high and low bits, where either pays. r: with the budgets in force. */
void ntx__plan_note_copies(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_plan_answer *a,
                           const struct ntx_place_request *r);

/* Fills a->hw, and notes on it: the machine by words, from a file, or this one. */
int ntx__plan_machine(const struct ntx_options *o, struct ntx_plan_answer *a, struct ntx_err *err);

/* plan_types.c: tokens a second of the same model in another type, "Q4_K_M" or "UD-Q4_K_XL", with a's machine and
 * budget; bytes: of that file, or UINT64_MAX. The layout of the type's own mix, at the scale of those bytes. 0: no
 * prediction. *streamed: its share that is read from the drive. */
double ntx__plan_type_rate(const struct ntx_plan_answer *a, const struct ntx_gguf *g, const char *type, uint64_t bytes,
                           double *streamed);
/* The same by the size alone, if each weight is used for each token: experts make it faster. */
double ntx__plan_size_rate(const struct ntx_hw *hw, uint64_t ram, uint64_t bytes, double *streamed);

/* plan_profile.c: fills a->hw, and a note unless it is the stored profile of a complete measurement. dir: where to
 * measure if nothing is stored. */
int ntx__plan_profile(const char *dir, struct ntx_plan_answer *a, struct ntx_err *err);
/* True, and a sentence: predictions by a profile of this load may be too low. */
bool ntx_plan_busy(double load, char *text, size_t room);
void ntx__plan_note_busy(struct ntx_plan_answer *a);

void ntx__plan_done(struct ntx_plan_answer *a);

void ntx_plan_print(const struct ntx_plan_answer *a);
void ntx_plan_print_json(const struct ntx_plan_answer *a);
void ntx__plan_print_words(const struct ntx_plan_answer *a);
/* "12 tokens a second", "a token every 2.1 seconds"; returns buf. */
const char *ntx__plan_rate_text(double tok_s, char *buf, size_t n);
/* Prints the known models, types and GPUs. */
void ntx__plan_print_lists(bool json);

#endif
