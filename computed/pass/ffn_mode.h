/* SPDX-License-Identifier: Apache-2.0 */
/* ffn_mode.h: --ffn-sparse: which neurons of a packed model's FFNs (model/pack.h) a row uses. Parsed once, at load.
 *
 *   off                all
 *   threshold=T        those with |act(gate)| > T. T 0 leaves out exact zeros only: not a bit changes
 *   topk=F             the share F (0 to 1) of them with the largest |act(gate)|, rounded up; of equal ones the first
 *
 * These two need the gate matrix in one piece. The next ones select whole groups, and for decode rows only; prompt rows
 * use all.
 *
 *   predicted=F[,HOW]  the share F of the groups that are predicted to be the most active, from the row's state before
 *                      the FFN of the layer before. HOW: gate, this layer's norm and gate on that state (the default
 *                      if the gate matrix is in one piece), or learned, by the sidecar's networks (ntx calibrate --ffn;
 *                      the default otherwise)
 *   predicted[,learned]  those above the sidecar's limit, by the same networks
 *   prompt=F           the share F of the groups that were the most active while the session's prompt was read; all
 *                      without a prompt
 *
 * The selection is a function of the row's own values and its session's tokens: the same for every budget, batch,
 * thread count and prefetch. */
#ifndef NTX_COMPUTED_PASS_FFN_MODE_H
#define NTX_COMPUTED_PASS_FFN_MODE_H

#include <stdbool.h>

#include "common/err.h"
#include "model/arch.h"
#include "model/ffn_learned.h"

enum ntx_ffn_kind { NTX_FFN_ALL, NTX_FFN_THRESHOLD, NTX_FFN_TOPK, NTX_FFN_PREDICTED, NTX_FFN_PROMPT };

struct ntx_ffn_mode {
    enum ntx_ffn_kind kind;
    float value;                     /* T or F; 0: the sidecar's limit */
    bool learned;                    /* needs a sidecar's networks: */
    const struct ntx_ffn_nets *nets; /* borrowed; set by the reader of the sidecar */
};

/* NULL and "" are off. -EINVAL: not a mode, or the model is not packed for it. */
int ntx_ffn_mode_parse(const char *text, const struct ntx_model *m, struct ntx_ffn_mode *out, struct ntx_err *err);
/* Whether the text may differ from that with all neurons. */
bool ntx_ffn_mode_lossy(const struct ntx_ffn_mode *mode);
/* Whether whole groups are selected, for decode rows. */
static inline bool ntx_ffn_mode_groups(const struct ntx_ffn_mode *m)
{
    return m->kind == NTX_FFN_PREDICTED || m->kind == NTX_FFN_PROMPT;
}

#endif
