/* ffn_mode.h: which neurons of a packed model's FFNs (model/pack.h) a row uses: --ffn-sparse. Parsed once, at load.
 *
 *   off             all
 *   threshold=T     those with |act(gate)| > T. T 0 leaves out exact zeros only: not a bit changes
 *   topk=F          the share F (0 to 1) of them with the largest |act(gate)|, rounded up; of equal ones the first
 * What is used is a function of the row's own gate values, whatever is predicted or read: the same for every budget, batch and thread count. */
#ifndef NTX_COMPUTED_FFN_MODE_H
#define NTX_COMPUTED_FFN_MODE_H

#include <stdbool.h>

#include "common/err.h"
#include "model/arch.h"

enum ntx_ffn_kind { NTX_FFN_ALL, NTX_FFN_THRESHOLD, NTX_FFN_TOPK };

struct ntx_ffn_mode {
    enum ntx_ffn_kind kind;
    float value; /* T or F */
};

/* NULL and "" are off. -EINVAL for what is no mode, or what this model is not packed for. */
int ntx_ffn_mode_parse(const char *text, const struct ntx_model *m, struct ntx_ffn_mode *out, struct ntx_err *err);
/* Whether the text may differ from that with all neurons. */
bool ntx_ffn_mode_lossy(const struct ntx_ffn_mode *mode);

#endif
