/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's promises: for models from tiny to 70B and budgets from the smallest to all of it. */
#include <errno.h>
#include <math.h>

#include "common/util.h"
#include "computed/pass/forward.h"
#include "computed/plan/plan.h"
#include "computed/state/kv.h"
#include "tests/lib/check.h"
#include "tests/unit/plan/shape.h"

#define GIB   (1ull << 30)
#define MIB   (1ull << 20)
#define OTHER (3 * MIB)

static struct ntx_plan *make(const struct shape *s, struct ntx_plan_request r)
{
    struct ntx_plan *p = NULL;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_plan_make(s->model, &r, &p, &err), "%s with %llu: %s", s->name, (unsigned long long)r.ram_bytes,
              err.text);
    return p;
}

static uint64_t wide(const struct ntx_plan_chunk *c)
{
    return NTX_ROUND_UP(c->offset + c->bytes, 4096) - NTX_ROUND_DOWN(c->offset, 4096);
}

/* Every chunk is once in the arena or in the schedule; places in the arena do not overlap. */
static void check_places(const struct ntx_plan *p)
{
    uint64_t host = 0, storage = 0, end = 0;
    uint32_t n_sched = 0;
    CHECK_EQ(p->geo.n_chunks, p->chunks->n);
    for (uint32_t i = 0; i < p->chunks->n; i++) {
        const struct ntx_chunk *k = &p->chunks->list[i];
        const struct ntx_plan_chunk *c = &p->table[i];
        CHECK(c->offset == k->offset && c->bytes == k->bytes && c->file == k->file && c->layer == k->layer);
        CHECK(c->file < p->geo.n_files && c->layer <= p->geo.n_layers);
        if (c->placement == NTX_PLACE_STORAGE) {
            CHECK(!k->fixed);
            CHECK_EQ(c->sched, n_sched);
            CHECK_EQ(p->sched[n_sched++], i);
            CHECK(p->geo.slot_bytes >= c->bytes + 2 * 4096);
            storage += c->bytes;
            continue;
        }
        CHECK_EQ(c->placement, NTX_PLACE_HOST);
        CHECK_EQ(c->where % 4096, c->offset % 4096);
        CHECK(c->where - c->where % 4096 >= end);
        end = c->where - c->where % 4096 + wide(c);
        host += c->bytes;
    }
    CHECK(end <= p->geo.arena_bytes);
    CHECK_EQ(n_sched, p->geo.n_sched);
    CHECK_EQ(host, p->bytes_host + p->bytes_rows);
    CHECK_EQ(host, p->bytes_at_load);
    CHECK_EQ(storage, p->bytes_storage);
    CHECK_EQ(host + storage, p->bytes_model + p->bytes_rows);
    CHECK_EQ(p->bytes_model, p->chunks->matrix_bytes + p->chunks->fixed_bytes);
}

/* At any point of the list the bytes streamed so far are within two chunks of their share. So each layer streams the
 * same part of itself, and within a layer streamed chunks come at regular distances. */
static void check_spread(const struct shape *s, const struct ntx_plan *p)
{
    double streamed = 0, seen = 0, total = 0, most = 0;
    for (uint32_t i = 0; i < p->chunks->n; i++)
        if (!p->chunks->list[i].fixed)
            total += (double)p->table[i].bytes;
    double share = (double)p->bytes_storage / total, bound = 2.0 * (double)p->geo.slot_bytes + total * 0.003;
    for (uint32_t i = 0; i < p->chunks->n; i++) {
        if (p->chunks->list[i].fixed)
            continue;
        seen += (double)p->table[i].bytes;
        streamed += p->table[i].placement == NTX_PLACE_STORAGE ? (double)p->table[i].bytes : 0;
        most = fmax(most, fabs(streamed - share * seen));
    }
    CHECK_MSG(!p->geo.n_sched || most <= bound, "%s: %g bytes from the even share %g of %g", s->name, most, share,
              total);
}

static void check_layers(const struct shape *s, const struct ntx_plan *p)
{
    uint32_t n = p->geo.n_layers;
    double *all = calloc(n + 1, sizeof *all), *streamed = calloc(n + 1, sizeof *streamed), sum_all = 0, sum = 0;
    for (uint32_t i = 0; i < p->chunks->n; i++) {
        const struct ntx_plan_chunk *c = &p->table[i];
        all[c->layer] += (double)c->bytes;
        streamed[c->layer] += c->placement == NTX_PLACE_STORAGE ? (double)c->bytes : 0;
    }
    for (uint32_t l = 0; l <= n; l++)
        sum_all += all[l], sum += streamed[l];
    for (uint32_t l = 0; l <= n && p->geo.n_sched; l++)
        CHECK_MSG(fabs(streamed[l] - all[l] * sum / sum_all) <= 2.0 * (double)p->geo.slot_bytes + 0.01 * all[l],
                  "%s: layer %u streams %g of %g, all layers %g of %g", s->name, l, streamed[l], all[l], sum, sum_all);
    free(all);
    free(streamed);
}

/* The bill, item by item, and the bound. */
static void check_bill(const struct shape *s, const struct ntx_plan *p, const struct ntx_plan_request *r)
{
    const struct ntx_forward_config c = {
        .model = s->model, .chunks = p->chunks, .threads = p->threads, .max_rows = p->max_rows, .ctx = p->ctx};
    CHECK_EQ(p->bytes_region, ntx_region_bytes(&p->geo));
    CHECK_EQ(p->bytes_activations, ntx_forward_bytes(&c));
    CHECK(p->bytes_kv >= p->kv.blocks * ntx_kv_block_bytes(&s->model->hp, NTX_KV_F16));
    CHECK(p->bytes_total >= p->bytes_region + p->bytes_activations + p->bytes_kv + r->other_bytes);
    CHECK_MSG(p->bytes_total <= r->ram_bytes, "%s: %llu of %llu", s->name, (unsigned long long)p->bytes_total,
              (unsigned long long)r->ram_bytes);
    CHECK_EQ(p->geo.n_probes, p->max_rows);
    CHECK(p->geo.n_demands > p->max_rows);
    CHECK(p->geo.frame_bytes >= NTX_ROUND_UP(p->chunks->token_embd.row_bytes + 4095u, 4096u));
    CHECK_EQ(p->geo.n_embd, s->model->hp.n_embd);
    CHECK_EQ(p->geo.block, 4096);
    CHECK(p->max_rows >= 1 && p->max_rows <= 512 && p->kv.blocks * NTX_KV_BLOCK >= p->ctx);
}

static void check_ring(const struct ntx_plan *p)
{
    const struct ntx_region_geometry *g = &p->geo;
    if (!g->n_sched) {
        CHECK(!g->n_desc && !g->n_slots && !g->slot_bytes && !p->bytes_storage);
        return;
    }
    CHECK(g->n_desc >= 3);
    CHECK(g->n_slots >= g->n_desc + 2);
    CHECK_EQ(g->slot_bytes % 4096, 0);
    CHECK((uint64_t)g->n_slots * g->slot_bytes <= 48 * MIB);
}

static void check_plan(const struct shape *s, const struct ntx_plan *p, const struct ntx_plan_request *r)
{
    check_places(p);
    check_spread(s, p);
    check_layers(s, p);
    check_bill(s, p, r);
    check_ring(p);
}

/* The number in a refusal. */
static uint64_t smallest(const struct shape *s, struct ntx_plan_request r)
{
    struct ntx_plan *p = NULL;
    struct ntx_err err = {0};
    unsigned long long n;
    r.ram_bytes = 1;
    CHECK_EQ(ntx_plan_make(s->model, &r, &p, &err), -ENOMEM);
    CHECK(!p);
    const char *paren = strchr(err.text, '(');
    CHECK_MSG(paren && sscanf(paren, "(%llu bytes)", &n) == 1, "%s", err.text);
    CHECK(strstr(err.text, "--ram") && strstr(err.text, "--ctx"));
    return n;
}

/* Exactly that number succeeds and one byte less fails; the same number is named for any budget. */
static void check_smallest(const struct shape *s, struct ntx_plan_request r)
{
    struct ntx_err err = {0};
    struct ntx_plan *p = NULL;
    uint64_t n = smallest(s, r);
    r.ram_bytes = n - 1;
    CHECK_EQ(ntx_plan_make(s->model, &r, &p, &err), -ENOMEM);
    char text[64];
    snprintf(text, sizeof text, "(%llu bytes)", (unsigned long long)n);
    CHECK_MSG(strstr(err.text, text), "%s", err.text);
    r.ram_bytes = n;
    p = make(s, r);
    CHECK_EQ(p->bytes_total, n);
    check_plan(s, p, &r);
    printf("%-5s ctx %-5u smallest %8.1f MiB: chunk %llu KiB, %u + %u slots\n", s->name, p->ctx, (double)n / MIB,
           (unsigned long long)p->chunk_bytes >> 10, p->geo.n_desc, p->geo.n_slots - p->geo.n_desc);
    ntx_plan_free(p);
}

/* More than a few rows are not bought with a ring that the drive waits for. */
static void check_ring_before_rows(const struct shape *s, const struct ntx_plan *p)
{
    const struct ntx_region_geometry *g = &p->geo;
    if (g->n_sched && p->max_rows > 16 && p->chunk_bytes <= MIB / 2)
        CHECK_MSG(g->n_desc >= 8, "%s: %u rows, and a ring of %u chunks of %llu", s->name, p->max_rows, g->n_desc,
                  (unsigned long long)p->chunk_bytes);
}

static void small_budgets(const struct shape *s)
{
    struct ntx_plan_request r = {.other_bytes = OTHER, .threads = 2, .ctx = 256};
    uint64_t least = smallest(s, r);
    for (r.ram_bytes = least; r.ram_bytes < least + 12 * MIB; r.ram_bytes += MIB) {
        struct ntx_plan *p = make(s, r);
        check_plan(s, p, &r);
        check_ring_before_rows(s, p);
        ntx_plan_free(p);
    }
}

/* From the smallest budget to more than all: every plan keeps the promises; at the end nothing is streamed. */
static void sweep(const struct shape *s)
{
    struct ntx_plan_request r = {.other_bytes = OTHER, .threads = 2};
    uint64_t least = smallest(s, r), before = UINT64_MAX;
    for (double f = 1; f < 4000; f *= f < 16 ? 1.17 : 1.6) {
        r.ram_bytes = (uint64_t)((double)least * f) + 12345;
        struct ntx_plan *p = make(s, r);
        check_plan(s, p, &r);
        /* the rest is less than two chunks and two roundings to huge pages */
        if (p->geo.n_sched)
            CHECK_MSG(r.ram_bytes - p->bytes_total <= 2 * p->geo.slot_bytes + 4 * MIB + p->chunk_bytes,
                      "%s: %llu left over", s->name, (unsigned long long)(r.ram_bytes - p->bytes_total));
        bool all = !p->bytes_storage;
        const struct ntx_weight *w = &p->chunks->token_embd;
        const uint64_t table = w->tensor == p->chunks->output.tensor ? 0 : (uint64_t)w->n_out * w->row_bytes;
        CHECK(p->bytes_rows == (w->n_chunks ? table : 0) && (all || !p->bytes_rows));
        CHECK(!all || p->bytes_rows == table || r.ram_bytes - p->bytes_total < table + 4 * MIB + p->chunk_bytes);
        before = p->bytes_storage;
        ntx_plan_free(p);
        if (all)
            break;
    }
    CHECK_EQ(before, 0);
}

static void defaults(const struct shape *s13, const struct shape *s1)
{
    static const struct ntx_hw hw = {.threads = 2,
                                     .ram_bps = 30e9,
                                     .reads = {{1 << 20, 3.2e9}},
                                     .n_reads = 1,
                                     .kernels = {{.type = NTX_HW_ANY, .rows = 1, .bps = 14e9}},
                                     .n_kernels = 1};
    struct ntx_plan_request r = {.ram_bytes = 4 * GIB, .other_bytes = OTHER, .threads = 2, .hw = &hw};
    struct ntx_plan *p = make(s13, r);
    double kv = 256.0 * (double)ntx_kv_block_bytes(&s13->model->hp, NTX_KV_F16) /
                32; /* a text of that length is assumed */
    /* a quarter of 4 GiB in blocks of 32 x 0.8 MiB */
    CHECK_EQ(p->ctx, GIB / ntx_kv_block_bytes(&s13->model->hp, NTX_KV_F16) * 32);
    CHECK_EQ(p->kv.blocks, p->ctx / 32);
    CHECK_EQ(p->chunk_bytes, MIB / 2); /* one read each */
    CHECK(p->bytes_activations <= r.ram_bytes / 8);
    CHECK(p->max_rows >= 256);
    CHECK_STR(p->limit, "drive");
    CHECK(fabs(p->predicted_tok_s - 3.2e9 / (double)p->bytes_storage) < 1e-9);
    ntx_plan_free(p);
    r.ram_bytes = 64 * GIB;
    p = make(s13, r);
    CHECK_EQ(p->ctx, 4096);
    CHECK_EQ(p->max_rows, 512);
    CHECK_EQ(p->geo.n_sched, 0);
    CHECK_STR(p->limit, "compute");
    CHECK_MSG(fabs(p->predicted_tok_s - 1 / ((double)p->bytes_model / 14e9 + kv / 30e9)) < 1e-9, "%.9f",
              p->predicted_tok_s);
    ntx_plan_free(p);
    r.hw = NULL;
    p = make(s1, r); /* its own context is longer */
    CHECK_EQ(p->ctx, 4096);
    CHECK_STR(p->limit, "");
    CHECK(p->predicted_tok_s == 0);
    ntx_plan_free(p);
}

/* Reads of 1 MiB if the profile has them no slower than half of that. */
static void reads(const struct shape *s)
{
    static const struct {
        double half, whole;
        uint64_t want;
    } is[] = {{2.0e9, 2.1e9, MIB}, {2.0e9, 2.0e9, MIB}, {3.64e9, 3.38e9, MIB / 2}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        const struct ntx_hw hw = {.threads = 2,
                                  .ram_bps = 30e9,
                                  .reads = {{4096, 0.3e9}, {512 << 10, is[i].half}, {1 << 20, is[i].whole}},
                                  .n_reads = 3};
        struct ntx_plan_request r = {.ram_bytes = 4 * GIB, .other_bytes = OTHER, .threads = 2, .hw = &hw};
        struct ntx_plan *p = make(s, r);
        CHECK_EQ(p->piece_bytes, is[i].want);
        CHECK_EQ(p->chunk_bytes, is[i].want);
        for (uint32_t c = 0; c < p->geo.n_sched; c++)
            CHECK(wide(&p->table[p->sched[c]]) <= p->piece_bytes);
        ntx_plan_free(p);
    }
}

/* Requested values are planned, or refused. */
static void requests(const struct shape *s)
{
    struct ntx_plan_request r = {.ram_bytes = 3 * GIB,
                                 .other_bytes = OTHER,
                                 .threads = 3,
                                 .ctx = 1000,
                                 .sessions = 2,
                                 .max_rows = 33,
                                 .chunk_bytes = 1 * MIB,
                                 .ring_slots = 5};
    struct ntx_plan *p = make(s, r);
    check_plan(s, p, &r);
    CHECK_EQ(p->ctx, 1000);
    CHECK_EQ(p->kv.blocks, 2 * 32);
    CHECK_EQ(p->max_rows, 33);
    CHECK_EQ(p->threads, 3);
    CHECK_EQ(p->chunk_bytes, 1 * MIB);
    CHECK_EQ(p->geo.n_desc, 5);
    ntx_plan_free(p);
    check_smallest(s, r);
    check_smallest(s, (struct ntx_plan_request){.ctx = 4096, .sessions = 1});
    check_smallest(s, (struct ntx_plan_request){.ctx = 100000, .max_rows = 512, .threads = 8});
    check_smallest(s, (struct ntx_plan_request){.chunk_bytes = 4 * MIB, .other_bytes = 100 * MIB});
    struct ntx_err err = {0};
    r.ctx = UINT32_MAX;
    r.sessions = UINT32_MAX;
    p = NULL;
    CHECK(ntx_plan_make(s->model, &r, &p, &err) < 0 && !p && *err.text);
    r = (struct ntx_plan_request){.ram_bytes = UINT64_MAX, .other_bytes = UINT64_MAX};
    CHECK(ntx_plan_make(s->model, &r, &p, &err) < 0 && !p && *err.text);
}

/* Drafts get rows of logits beyond the fewest once a sixteenth of the budget holds them; without drafts there are
 * none. */
static void rows_for_drafts(void)
{
    CHECK_EQ(ntx_budget_clients(4096, 0, 0, false, 16 << 20).logits_rows, 8);
    CHECK_EQ(ntx_budget_clients(4096, 0, 32, true, 16 << 20).logits_rows, 64);
    CHECK_EQ(ntx_budget_clients(4096, 0, 32, false, 16 << 20).logits_rows, 32);
    CHECK_EQ(ntx_budget_clients(4096, 0, 32, true, 64 << 20).logits_rows, 128);
    CHECK_EQ(ntx_budget_clients(4096, 0, 32, true, 1 << 20).logits_rows, 32);
    CHECK_EQ(ntx_budget_clients(4096, 0, 32, true, 0).logits_rows, 32);
    /* rows of drafts that keep their largest logits: 127 in less than a thousandth of a GB */
    CHECK_EQ(ntx_budget_clients(151936, 0, 0, false, 391ull << 20).few_rows, 127);
    CHECK_EQ(ntx_budget_clients(151936, 0, 0, false, 391ull << 20).logits_rows, 5);
    CHECK(ntx_budget_clients(4096, 0, 0, false, 4 << 20).few_rows < 32 &&
          ntx_budget_clients(4096, 0, 0, false, 0).few_rows == 0);
}

/* Clients have room for a constrained answer and its vocabulary if that is a small part of the budget; otherwise the
 * plan says from which budget on. */
static void constrained(const struct shape *s)
{
    const uint32_t large = 151936; /* Qwen2.5's */
    const uint64_t words = ntx_budget_words(large), kept = 6 * MIB;
    struct ntx_budget_clients c = ntx_budget_clients(large, 0, 0, false, 400 * MIB);
    struct ntx_budget_clients few = ntx_budget_clients(large, 0, 0, false, 16 * MIB);
    struct ntx_budget_clients none = ntx_budget_clients(large, 0, 0, false, 0);
    CHECK(words > 2 * MIB && words < 3 * MIB); /* as measured there: 2.1 MiB */
    CHECK(c.constrains && c.kept_bytes >= words + 512 * 1024 && c.kept_bytes <= kept);
    CHECK(!few.constrains && few.kept_bytes == 128 * 1024 && !none.constrains);
    CHECK_EQ(ntx_budget_clients(large, 0, 0, false, ntx_budget_constrains_from(large)).constrains, true);
    CHECK_EQ(ntx_budget_clients(large, 0, 0, false, ntx_budget_constrains_from(large) - 1).constrains, false);
    struct ntx_budget_refused most = {.words = words, .grammar = MIB, .other = 64 * 1024}, over = {.grammar = 7 * MIB};
    const uint64_t room = ntx_budget_with_room(large, 0, &most);
    CHECK_EQ(room, NTX_ROUND_UP(128 * (words + 2 * (MIB + 64 * 1024)),
                                MIB)); /* half of what the vocabulary leaves is the answer's */
    CHECK_EQ(ntx_budget_with_room(large, room - MIB + 1, &most), room);
    CHECK_EQ(ntx_budget_with_room(large, room, &most), room);
    CHECK_EQ(ntx_budget_with_room(large, room + 1, &most), room + MIB);
    CHECK_EQ(ntx_budget_with_room(large, 0, &over), 0);
    const struct ntx_plan_clients clients = {.least_rows = 0};
    struct ntx_plan_request r = {.other_bytes = OTHER, .threads = 2, .clients = &clients};
    uint64_t from = ntx_plan_constrains_from(s->model, &r), least = ntx_plan_smallest(s->model, &r);
    CHECK_MSG(from >= least, "%s: %llu, %llu", s->name, (unsigned long long)from, (unsigned long long)least);
    for (int less = 0; less < 2; less++) {
        r.ram_bytes = from - (uint64_t)less;
        if (r.ram_bytes < least)
            continue;
        struct ntx_plan *p = make(s, r);
        CHECK_MSG(p->clients.constrains == !less, "%s with %llu bytes", s->name, (unsigned long long)r.ram_bytes);
        CHECK(p->bytes_total <= r.ram_bytes &&
              (less || p->clients.kept_bytes >= ntx_budget_constrained(s->model->hp.n_vocab)));
        ntx_plan_free(p);
    }
}

/* Layers that draft are whole, and the others stream as many bytes as without, or a few chunks more; the first seventh
 * and the output stay. With most layers missing, or none, nothing drafts. */
static void layers_that_draft(const struct shape *s)
{
    struct ntx_plan_request r = {.other_bytes = OTHER, .threads = 2, .ctx = 256};
    struct ntx_plan *whole = make(s, (struct ntx_plan_request){.ram_bytes = 200 * GIB, .ctx = 256, .layers = true});
    const uint64_t all = whole->bytes_total;
    uint32_t before = UINT32_MAX;
    CHECK(!whole->n_without);
    ntx_plan_free(whole);
    for (unsigned percent = 25; percent <= 95; percent += 5) {
        r.ram_bytes = all / 100 * percent;
        struct ntx_plan *usual = make(s, r);
        r.layers = true;
        struct ntx_plan *p = make(s, r);
        r.layers = false;
        uint32_t out = 0;
        check_places(p);
        check_bill(s, p, &r);
        check_ring(p);
        CHECK(!usual->n_without && p->bytes_storage <= usual->bytes_storage + 2 * p->geo.slot_bytes);
        for (uint32_t l = 0; l < p->geo.n_layers; l++)
            out += p->without[l / 64] >> l % 64 & 1;
        CHECK(out == p->n_without && out <= before);
        for (uint32_t i = 0; i < p->chunks->n && out; i++) {
            const uint32_t l = p->table[i].layer;
            const bool without = l < p->geo.n_layers && p->without[l / 64] >> l % 64 & 1;
            CHECK(p->table[i].placement == NTX_PLACE_HOST || without);
            CHECK(!without || l >= p->geo.n_layers / 7);
        }
        CHECK(percent < 60 || out);
        CHECK(percent > 30 || !out);
        CHECK(out <= p->geo.n_layers * 2 / 3);
        before = out ? out : before;
        ntx_plan_free(usual);
        ntx_plan_free(p);
    }
}

int main(void)
{
    struct shape s[N_SHAPES];
    rows_for_drafts();
    for (int i = 0; i < N_SHAPES; i++)
        shape_open(&s[i], i);
    defaults(&s[SHAPE_13B], &s[SHAPE_1B]);
    reads(&s[SHAPE_13B]);
    requests(&s[SHAPE_13B]);
    layers_that_draft(&s[SHAPE_13B]);
    for (int i = 0; i < N_SHAPES; i++) {
        check_smallest(&s[i], (struct ntx_plan_request){.other_bytes = OTHER, .threads = 2});
        constrained(&s[i]);
        small_budgets(&s[i]);
        sweep(&s[i]);
    }
    for (int i = 0; i < N_SHAPES; i++)
        shape_close(&s[i]);
    return 0;
}
