/* SPDX-License-Identifier: Apache-2.0 */
/* engine_skip.h: the skip decisions of ntx-predictor, as the forward pass sees them (struct ntx_skip_hooks).
 *
 *   engine: probe board row, word READY(gen) --mail--> main --ProbeNotice--> predictor
 *   engine: waits                            <-------- main <--Decision----- predictor
 *
 * Every decode row goes to the probe board. When the policy may skip, the pass waits for all decisions. It asks again
 * every 100 ms, and at once when a new predictor connects. After 5 s it goes on without skipping: those rows are
 * `lost`, and their sessions skip no more. When the policy cannot skip, nothing waits. A decision may come at any time
 * before the pass needs it. */
#ifndef NTX_COMPUTED_ENGINE_ENGINE_SKIP_H
#define NTX_COMPUTED_ENGINE_ENGINE_SKIP_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/engine/reply_queue.h"
#include "computed/pass/forward.h"
#include "shm/counters.h"
#include "shm/region.h"

struct ntx_skip;

struct ntx_skip_config {
    struct ntx_region *region;
    struct ntx_counters *counters;
    struct ntx_mailbox *mail;
    uint32_t probe_layer, n_layers, max_rows;
    bool propagate;   /* K and V at skipped layers (forward.h) */
    bool skips;       /* the policy may skip: wait for decisions */
    uint32_t wait_ms; /* 0: 5000 */
};

int ntx_skip_new(const struct ntx_skip_config *c, struct ntx_skip **out);
void ntx_skip_free(struct ntx_skip *s);
struct ntx_skip_hooks ntx_skip_hooks(struct ntx_skip *s);

/* Engine thread, after a pass: the outcome of a row. */
uint32_t ntx_skip_layers(const struct ntx_skip *s, uint32_t row); /* layers it skipped */
bool ntx_skip_lost(const struct ntx_skip *s, uint32_t row);       /* no answer came in time */
/* Rows of a pass that the probe board holds. */
uint32_t ntx_skip_room(const struct ntx_skip *s);

/* Main thread. */
struct ntx_skip_answer { /* a predictor's decision on probe `index`: the layers that row `row` of the pass skips */
    uint32_t index, gen, row;
    uint64_t pass;
    const uint8_t *skip; /* bit l of byte l / 8: layer l */
    size_t n_skip;       /* bytes */
};
void ntx_skip_decision(struct ntx_skip *s, const struct ntx_skip_answer *m);
void ntx_skip_resend(struct ntx_skip *s); /* a predictor has connected */
/* true: the predictor is lost, so nothing waits and rows are lost at once. false: it is back. */
void ntx_skip_away(struct ntx_skip *s, bool away);
bool ntx_skip_waits(struct ntx_skip *s);                 /* a pass waits for a decision */
void ntx_skip_give_up(struct ntx_skip *s);               /* shutdown: no pass waits any more */
void ntx_skip_cancel(struct ntx_skip *s, uint64_t pass); /* that pass waits no more */

#endif
