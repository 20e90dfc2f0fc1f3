/* SPDX-License-Identifier: Apache-2.0 */
/* engine_skip.h: the predictor's circuit, as the forward pass sees it (struct ntx_skip_hooks).
 *
 *   engine: probe board row, word READY(gen) --mail--> main --ProbeNotice--> predictor
 *   engine: waits                            <-------- main <--Decision----- predictor
 *
 * Every decode row is shown. When the policy may skip, the pass waits for all answers, asks again every 100 ms and at
 * once when a new predictor says hello, and goes on without skipping after 5 s: those rows are then `lost`, and their
 * sessions skip no more. When the policy cannot skip, nothing waits. An answer that came late, but before the pass
 * asked for it, is as good as an early one. */
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

/* Engine thread, after a pass: what became of a row. */
uint32_t ntx_skip_layers(const struct ntx_skip *s, uint32_t row); /* layers it skipped */
bool ntx_skip_lost(const struct ntx_skip *s, uint32_t row);       /* no answer came in time */
/* Rows of a pass that may be shown at once. */
uint32_t ntx_skip_room(const struct ntx_skip *s);

/* Main thread. */
struct ntx_skip_answer { /* a predictor's: of probe `index`, what row `row` of the pass may skip */
    uint32_t index, gen, row;
    uint64_t pass;
    const uint8_t *skip; /* bit l of byte l / 8: layer l */
    size_t n_skip;       /* bytes */
};
void ntx_skip_decision(struct ntx_skip *s, const struct ntx_skip_answer *m);
void ntx_skip_ask_again(struct ntx_skip *s); /* a predictor is there (again) */
void ntx_skip_away(struct ntx_skip *s,
                   bool away);             /* it is lost: nobody waits for it, rows are lost at once; or it is back */
bool ntx_skip_waits(struct ntx_skip *s);   /* a pass has asked something that is not answered yet */
void ntx_skip_give_up(struct ntx_skip *s); /* shutdown: nobody waits any more */
void ntx_skip_cancel(struct ntx_skip *s, uint64_t pass); /* nobody waits for that pass's answers any more */

#endif
