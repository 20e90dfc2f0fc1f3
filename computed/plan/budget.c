/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/budget.h"

#include <errno.h>

#include "common/util.h"
#include "computed/pass/best.h"
#include "shm/memlimit.h"

/* The processes themselves may take this much beside the budget. */
#define PROCESS_BYTES (64ull << 20)

uint64_t ntx_budget_default(uint64_t reclaim_bytes)
{
    struct ntx_memlimit m;
    ntx_memlimit_read(&m);
    uint64_t ram = m.mem_available + reclaim_bytes;
    ram -= ram / 10;
    if (m.cgroup_left != UINT64_MAX) {
        uint64_t left = m.cgroup_left + reclaim_bytes, spare = NTX_MAX(left / 10, PROCESS_BYTES);
        ram = NTX_MIN(ram, left > spare ? left - spare : 0);
    }
    return NTX_ROUND_DOWN(ram, 1ull << 20);
}

int ntx_budget_nothing(struct ntx_err *err)
{
    struct ntx_memlimit m;
    char limit[32], left[32], need[32];
    ntx_memlimit_read(&m);
    ntx_format_size(NTX_MIN(m.available, m.mem_available), left, sizeof left);
    ntx_format_size(PROCESS_BYTES, need, sizeof need);
    if (m.cgroup_limit == UINT64_MAX)
        return ntx_err_set(
            err, -ENOMEM,
            "this machine has %s of memory available, and the daemons take up to %s beside a model: end other programs",
            left, need);
    return ntx_err_set(err, -ENOMEM,
                       "the memory limit of this cgroup (memory.max) is %s, of which %s are left, and the daemons take "
                       "up to %s beside a model: raise the limit, or name a budget with --ram at your own risk",
                       ntx_format_size(m.cgroup_limit, limit, sizeof limit), left, need);
}

static uint64_t budget_part(uint64_t ram, uint64_t of, uint64_t least, uint64_t most)
{
    return NTX_MIN(NTX_MAX(ram / of, least), most);
}

/* For one token: a bit in each of 32 masks, 8 bytes of lists, and the part of its text that it does not share with its
 * alphabetical neighbour: 2 bytes for English, 4 where many scripts are mixed. */
#define WORD_BYTES        18u
#define ANSWER_BYTES      (768ull << 10) /* for a grammar, and for the state of its answer */
#define CONSTRAINED_SHARE 16u            /* of the budget, at most */

uint64_t ntx_budget_words(uint32_t n_vocab) { return (uint64_t)WORD_BYTES * n_vocab + (64u << 10); }
uint64_t ntx_budget_constrained(uint32_t n_vocab) { return ntx_budget_words(n_vocab) + ANSWER_BYTES; }
uint64_t ntx_budget_constrains_from(uint32_t n_vocab) { return CONSTRAINED_SHARE * ntx_budget_constrained(n_vocab); }

void ntx_budget_constrain(uint32_t n_vocab, struct ntx_budget_clients *c)
{
    uint64_t need = ntx_budget_constrained(n_vocab), more = need - NTX_MIN(need, c->kept_bytes);
    c->kept_bytes += more;
    c->bytes += more;
    c->constrains = true;
}

#define FEW_SHARE    512u
#define FEW_ROWS     127u
#define KEPT_SHARE   128u
#define KEPT_MOST    (32ull << 20)
#define MAX_TELLING  (KEPT_SHARE * KEPT_MOST) /* more memory gives clients no more */

/* For a constrained answer. */
#define CHOICE_LEAST (256ull << 10)
#define CHOICE_MOST  (6ull << 20)

void ntx_budget_constraint(uint32_t n_vocab, const struct ntx_budget_clients *c, uint64_t *words, uint64_t *answer)
{
    *words = NTX_MAX(c->kept_bytes / 2, c->constrains ? ntx_budget_words(n_vocab) : 0);
    *answer = NTX_MIN(NTX_MAX((c->kept_bytes - *words) / 2, CHOICE_LEAST), CHOICE_MOST);
}

static bool has_room(uint32_t n_vocab, uint64_t ram, const struct ntx_budget_refused *r)
{
    const struct ntx_budget_clients c = ntx_budget_clients(n_vocab, 0, 0, false, ram);
    uint64_t words, answer;
    ntx_budget_constraint(n_vocab, &c, &words, &answer);
    return r->words <= words && r->grammar <= answer && r->words + r->grammar + r->other + answer <= c.kept_bytes;
}

uint64_t ntx_budget_with_room(uint32_t n_vocab, uint64_t from, const struct ntx_budget_refused *r)
{
    uint64_t no = from >> 20, yes = MAX_TELLING >> 20;
    if (!has_room(n_vocab, MAX_TELLING, r))
        return 0;
    no -= no > 0 && !(from & ((1u << 20) - 1)); /* `from` itself may do */
    while (no + 1 < yes) {
        uint64_t middle = (no + yes) / 2;
        *(has_room(n_vocab, middle << 20, r) ? &yes : &no) = middle;
    }
    return NTX_MAX(yes << 20, NTX_ROUND_UP(from, 1ull << 20));
}

struct ntx_budget_clients ntx_budget_clients(uint32_t n_vocab, uint64_t session_more, uint32_t least_rows, bool trees,
                                             uint64_t ram)
{
    uint64_t row = 4ull * n_vocab, session = 4 * row + (64u << 10) + session_more;
    uint64_t n = ram / 128 / session, rows = ram / 128 / row;
    struct ntx_budget_clients c = {.sessions = (uint32_t)NTX_MAX(NTX_MIN(n, (uint64_t)NTX_BUDGET_SESSIONS_MAX),
                                                                 (uint64_t)NTX_BUDGET_SESSIONS_MIN)};
    if (trees)
        rows = NTX_MAX(rows, ram / 16 / row);
    c.logits_rows = (uint32_t)NTX_MAX(NTX_MIN(rows, (uint64_t)128), (uint64_t)NTX_MAX(c.sessions, least_rows));
    c.few_rows = (uint32_t)NTX_MIN(ram / FEW_SHARE / sizeof(struct ntx_best), (uint64_t)FEW_ROWS);
    c.kept_bytes = budget_part(ram, KEPT_SHARE, 64u << 10, KEPT_MOST);
    c.read_bytes = budget_part(ram, 64, 128u << 10, 64u << 20);
    c.bytes = c.sessions * session + c.logits_rows * row + c.few_rows * sizeof(struct ntx_best) + c.kept_bytes +
              c.read_bytes;
    if (ram >= ntx_budget_constrains_from(n_vocab))
        ntx_budget_constrain(n_vocab, &c);
    return c;
}
