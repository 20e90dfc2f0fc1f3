/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of drafts (computed/engine/draft_policy.h), replayed over texts whose repetitions are known, with times
 * from a model: a text that repeats is copied in few passes, and another one costs what it costs without drafts. */
#include "computed/engine/draft_policy.h"

#include <math.h>

#include "common/util.h"
#include "tests/lib/check.h"

enum { N = 400, PROMPT = 200 };

struct machine {
    double drive, one, row; /* ns of the drive a pass; of one row's pass; of each further row */
};
struct result {
    uint32_t passes, first; /* passes; tokens written when a pass first had 8 drafts */
    double ns;
};

/* Random tokens; `copies`: the second half of the text is the first one. */
static void write_text(int32_t *text, bool copies)
{
    uint32_t seed = 7;
    for (uint32_t i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        text[i] = copies && i >= PROMPT ? text[i - PROMPT] : (int32_t)(seed >> 24) % 48;
    }
}

static struct result replay(const int32_t *text, const struct machine *m, bool automatic)
{
    static struct ntx_draft d;
    struct ntx_draft_chances c;
    struct ntx_draft_policy p = {.automatic = automatic, .reads = m->drive > 0, .gain = 2};
    struct result r = {.first = N};
    ntx_draft_chances(&c);
    ntx_draft_turn_begin(&p.turn, true);
    for (uint32_t n = PROMPT + 1, tokens; n < N; n += tokens, r.passes++) {
        uint32_t at = 0;
        double least = ntx_draft_policy_least(&p, 1);
        ntx_draft_lookup(&d, &c, text, n, NTX_DRAFT_NODES, N - n - 1, NTX_MIN(least, 0.05));
        const uint32_t proposed = d.n;
        ntx_draft_policy_cut(&p, &d, &c, 1);
        const uint32_t rows = d.n;
        ntx_draft_policy_proposed(&p, rows - 1);
        r.first = rows > 8 ? NTX_MIN(r.first, n - PROMPT) : r.first;
        d.n = proposed;
        tokens = 0;
        do {
            at = ntx_draft_follow(&d, &c, at, text[n + tokens++]);
        } while (at && at < rows && n + tokens < N);
        double busy = m->one + m->row * (rows - 1), ns = NTX_MAX(m->drive, busy);
        ntx_draft_policy_pass(&p, rows, ns, ns - busy);
        ntx_draft_policy_wrote(&p, tokens, 0, 1, ns, ns - busy);
        r.ns += ns;
    }
    return r;
}

/* Beside a draft model: look-up alone would have taken one pass for a copy of ten tokens, and one for each token where
 * it proposes nothing; of two texts in a pass half as many. */
static void alone(void)
{
    struct ntx_draft_policy p = {.models = true};
    ntx_draft_turn_begin(&p.turn, true);
    ntx_draft_policy_wrote(&p, 10, 9, 1, 1e8, 0);
    CHECK(p.texts.tokens == 10 && p.texts.ns == 1e8 && p.texts.alone == 1 && fabs(p.looked - 0.9) < 1e-9);
    p = (struct ntx_draft_policy){.models = true, .turn.on = true};
    ntx_draft_policy_wrote(&p, 5, 0, 1, 1e8, 0);
    CHECK(p.texts.alone == 5);
    p = (struct ntx_draft_policy){.models = true, .turn.on = true, .looked = 1};
    ntx_draft_policy_wrote(&p, 10, 0, 2, 1e8, 0);
    CHECK(p.texts.tokens == 10 && p.texts.alone == 3);
    p = (struct ntx_draft_policy){.models = true};
    ntx_draft_policy_wrote(&p, 1, 0, 1, 1e8, 0); /* in turns without the model nothing is learned */
    CHECK(p.texts.tokens == 0);
}

int main(void)
{
    alone();
    const struct machine drive = {5e8, 7e7, 3e7}, memory = {0, 7e7, 3e7}, dear = {0, 7e7, 7e7};
    int32_t text[N];
    write_text(text, true);
    struct result r = replay(text, &drive, true);
    CHECK_MSG(r.first <= 8 && r.passes < 25, "8 drafts after %u tokens, %u passes", r.first, r.passes);
    CHECK(r.ns < 25 * 6e8); /* drafts that the drive does not hide are few */
    r = replay(text, &memory, true);
    CHECK_MSG(r.ns < 0.55 * (N - PROMPT - 1) * memory.one, "%f", r.ns); /* at best 3 / 7 */
    write_text(text, false);
    r = replay(text, &drive, true);
    CHECK_MSG(r.ns < 1.02 * (N - PROMPT - 1) * drive.drive, "%f", r.ns);
    r = replay(text, &memory, true);
    CHECK_MSG(r.ns < 1.02 * (N - PROMPT - 1) * memory.one, "%f", r.ns);
    r = replay(text, &dear, true);
    CHECK_MSG(r.ns < 1.02 * (N - PROMPT - 1) * dear.one, "%f", r.ns);
    return 0;
}
