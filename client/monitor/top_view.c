/* SPDX-License-Identifier: Apache-2.0 */
/* The picture, from top to bottom: title, pipeline, layers, history, counters, sessions, keys. It fits 80 x 24; a
 * wider terminal gets longer arrows and more history, a higher one more sessions. */
#include "client/monitor/top_view.h"

#include <inttypes.h>
#include <string.h>

#include "common/util.h"
#include "ntx_version.h"

#define BOX       17
#define TAIL      10 /* from the arrow to the text */
#define LABEL     11
#define DRAFT_BAR 8
#define LINK_TEXT 9 /* columns of an arrow that can hold a rate */

#define NOW(name) ntx_top_now(t, NTX_C_##name)

static double share(double a, double b) { return b > 0 ? a / b : 0; }

static enum ntx_mark load_mark(double x)
{
    if (x > 0.85)
        return NTX_MARK_GOOD;
    return x > 0.3 ? NTX_MARK_BUSY : NTX_MARK_PLAIN;
}

static void draw_title(struct ntx_canvas *c, const struct ntx_top *t)
{
    uint64_t s = (uint64_t)t->uptime_s; /* 0 to 2^64 ns */
    int x = ntx_canvas_text(c, 1, 0, NTX_MARK_TITLE, "ntx-top");
    const uint64_t loading_ns = atomic_load(&t->c->mon.loading_ns);
    if (loading_ns)
        ntx_canvas_text(c, x + 2, 0, NTX_MARK_BUSY, "%.32s is being loaded, for %" PRIu64 " s", t->c->mon.loading,
                        (ntx_now_ns() - NTX_MIN(loading_ns, ntx_now_ns())) / 1000000000);
    else if (t->n_layers)
        ntx_canvas_text(c, x + 2, 0, NTX_MARK_PLAIN, "%.28s (%.12s, %.10s)", t->c->mon.model, t->c->mon.arch,
                        t->c->mon.kernel);
    else
        ntx_canvas_text(c, x + 2, 0, NTX_MARK_DIM,
                        t->service == NTX_MON_SERVICE_LOADING ? "a model is being loaded" : "no model is loaded");
    ntx_canvas_right(c, c->w - 1, 0, NTX_MARK_DIM, "up %" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60,
                     s % 60);
}

/* ---- the pipeline */

static void draw_drive(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    double used = share(t->drive_bps, t->drive_ceiling_bps);
    ntx_canvas_box(c, 0, y, BOX, 4, "drive");
    ntx_canvas_bar(c, 2, y + 1, BOX - 10, load_mark(used), used);
    ntx_canvas_right(c, BOX - 2, y + 1, NTX_MARK_PLAIN, "%3.0f %%", used * 100);
    if (t->drive_ceiling_bps > 0)
        ntx_canvas_text(c, 2, y + 2, NTX_MARK_DIM, "of %.2f %s", t->drive_ceiling_bps / 1e9,
                        t->emulated ? "(set)" : "GB/s");
    else
        ntx_canvas_text(c, 2, y + 2, NTX_MARK_DIM, "ceiling unseen");
}

static void draw_ring(struct ntx_canvas *c, const struct ntx_top *t, int x, int y)
{
    double full = share((double)NOW(comp_ring_ready), (double)NOW(comp_ring_slots));
    ntx_canvas_box(c, x, y, BOX, 4, "ring");
    ntx_canvas_bar(c, x + 2, y + 1, BOX - 10, NTX_MARK_FLOW, full);
    ntx_canvas_right(c, x + BOX - 2, y + 1, NTX_MARK_PLAIN, "%3.0f %%", full * 100);
    if (NOW(comp_quarantined_slots))
        ntx_canvas_text(c, x + 2, y + 2, NTX_MARK_BAD, "%" PRIu64 " tainted", NOW(comp_quarantined_slots));
    else
        ntx_canvas_text(c, x + 2, y + 2, NTX_MARK_DIM, "%" PRIu64 " of %" PRIu64 " ready", NOW(comp_ring_ready),
                        NOW(comp_ring_slots));
}

static void draw_compute(struct ntx_canvas *c, const struct ntx_top *t, int x, int y)
{
    ntx_canvas_box(c, x, y, BOX, 4, "compute");
    ntx_canvas_text(c, x + 2, y + 1, NTX_MARK_PLAIN, "CPU %.0f %%", t->process[0].cpu * 100);
    ntx_canvas_text(c, x + 2, y + 2, t->stall > 0.5 ? NTX_MARK_BUSY : NTX_MARK_DIM, "waits %.0f %%", t->stall * 100);
}

static void draw_arena(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    char size[32];
    double part = share((double)NOW(comp_bytes_host), (double)NOW(comp_bytes_model));
    ntx_canvas_box(c, 0, y, BOX, 4, "RAM arena");
    ntx_canvas_bar(c, 2, y + 1, BOX - 10, NTX_MARK_FLOW, part);
    ntx_canvas_right(c, BOX - 2, y + 1, NTX_MARK_PLAIN, "%3.0f %%", part * 100);
    ntx_canvas_text(c, 2, y + 2, NTX_MARK_DIM, "%s", ntx_format_size(NOW(comp_bytes_host), size, sizeof size));
}

/* The median and the 99th percentile of all answers so far, beside the arena. */
static void draw_waits(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    const struct ntx_hist *ttft = &t->c->mon.hist[NTX_H_ttft], *gap = &t->c->mon.hist[NTX_H_inter_token];
    if (!ntx_hist_count(ttft))
        return;
    ntx_canvas_text(c, BOX + 1, y, NTX_MARK_DIM, "p50, p99: TTFT %.2f, %.2f s; gaps of tokens %.3f, %.3f s",
                    ntx_hist_quantile(ttft, NTX_H_ttft, 0.5), ntx_hist_quantile(ttft, NTX_H_ttft, 0.99),
                    ntx_hist_quantile(gap, NTX_H_inter_token, 0.5), ntx_hist_quantile(gap, NTX_H_inter_token, 0.99));
}

static void draw_pipeline(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    int link = (c->w - 3 * BOX - TAIL) / 2, ring = BOX + link, compute = ring + BOX + link, tail = compute + BOX;
    double read = share(t->drive_bps, t->drive_ceiling_bps), ram = share(t->ram_bps, t->ram_best_bps);
    draw_drive(c, t, y);
    draw_ring(c, t, ring, y);
    draw_compute(c, t, compute, y);
    draw_arena(c, t, y + 4);
    if (link >= LINK_TEXT) {
        ntx_canvas_text(c, BOX, y, NTX_MARK_PLAIN, "%.2f GB/s", t->drive_bps / 1e9);
        ntx_canvas_text(c, BOX, y + 2, NTX_MARK_DIM, "%.1f MB", (double)NOW(iod_inflight) / 1e6);
        ntx_canvas_text(c, ring + BOX, y, NTX_MARK_PLAIN, "%.2f GB/s", t->ring_bps / 1e9);
    }
    ntx_canvas_arrow(c, BOX, y + 1, link, read);
    ntx_canvas_arrow(c, ring + BOX, y + 1, link, share(t->ring_bps, t->drive_ceiling_bps));
    ntx_canvas_text(c, tail, y, NTX_MARK_PLAIN, "%.2f tok/s", t->tok_s);
    ntx_canvas_arrow(c, tail, y + 1, c->w - tail - 1, t->tok_s > 0);
    ntx_canvas_text(c, tail, y + 2, NTX_MARK_DIM, "+%.0f read", t->prompt_s);
    if (t->draft_passes > 0)
        ntx_canvas_text(c, tail, y + 4, NTX_MARK_PLAIN, "%.1f a pass", 1 + t->draft_hits / t->draft_passes);
    if (t->draft_passes > 0)
        ntx_canvas_text(c, tail, y + 5, NTX_MARK_DIM, "of %.0f tried", t->draft_nodes / t->draft_passes);
    ntx_canvas_text(c, BOX, y + 4, NTX_MARK_PLAIN, "%.2f GB/s", t->ram_bps / 1e9);
    if (t->ram_best_bps > 0)
        ntx_canvas_text(c, BOX + 11, y + 4, NTX_MARK_DIM, "of %.2f seen", t->ram_best_bps / 1e9);
    ntx_canvas_arrow(c, BOX, y + 5, compute + BOX / 2 - BOX + 1, ram); /* its head is where it bends up */
    ntx_canvas_put(c, compute + BOX / 2, y + 5, NTX_MARK_FLOW, L'┘', '+');
    ntx_canvas_put(c, compute + BOX / 2, y + 4, NTX_MARK_FLOW, L'▲', '^');
    ntx_canvas_text(c, BOX + 1, y + 6, NTX_MARK_PLAIN, "limit: %s", t->limit);
    draw_waits(c, t, y + 7);
}

/* Shows the reason of a degraded service in the row of the drafts. */
static void draw_trouble(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    for (int i = 0; i < NTX_MON_N_PARTS; i++) {
        if (t->trouble[i].grade == NTX_MON_WELL)
            continue;
        ntx_canvas_text(c, 0, y, NTX_MARK_PLAIN, "%*s", c->w, "");
        ntx_canvas_text(c, 1, y, NTX_MARK_BAD, "%s: %s", ntx_mon_service_name[t->service], t->trouble[i].text);
        return;
    }
}

/* ---- layers: a column for each, or for several when there are more than columns */

static void draw_layer(struct ntx_canvas *c, int x, int y, const struct ntx_top_layer *l, unsigned n)
{
    static const wchar_t fine[] = L"·░▒▓█";
    static const char coarse[] = ".:+%#";
    double device = 0, host = 0, skipped = 0, predicted = 0;
    for (unsigned i = 0; i < n; i++) {
        device += l[i].device / n;
        host += l[i].host / n;
        skipped += l[i].skipped / n;
        predicted += l[i].predicted / n;
    }
    int k = (int)(host * 4 + 0.5);
    if (device > 0.5)
        ntx_canvas_put(c, x, y, NTX_MARK_GOOD, L'D', 'D');
    else
        ntx_canvas_put(c, x, y, k ? NTX_MARK_FLOW : NTX_MARK_DIM, fine[k], coarse[k]);
    if (skipped > 0)
        ntx_canvas_put(c, x, y + 1, NTX_MARK_BUSY, skipped > 0.5 ? L'S' : L's', skipped > 0.5 ? 'S' : 's');
    else if (predicted > 0)
        ntx_canvas_put(c, x, y + 1, NTX_MARK_DIM, L'p', 'p');
}

static void draw_layers(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    char model[32], storage[32];
    int room = c->w - LABEL - 1;
    ntx_canvas_text(c, 1, y, NTX_MARK_TITLE, "layers");
    if (!t->n_layers || room < 1)
        return;
    unsigned per = (t->n_layers + (unsigned)room - 1) / (unsigned)room;
    for (unsigned i = 0, x = LABEL; i < t->n_layers; i += per, x++)
        draw_layer(c, (int)x, y, &t->layer[i], NTX_MIN(per, t->n_layers - i));
    int x = ntx_canvas_text(c, LABEL, y + 2, NTX_MARK_DIM,
                            c->ascii ? "# RAM . drive D GPU s skipped p predicted"
                                     : "█ RAM · drive D GPU s skipped p predicted");
    ntx_canvas_text(c, x + 2, y + 2, NTX_MARK_DIM, "%s, %s a pass",
                    ntx_format_size(NOW(comp_bytes_model), model, sizeof model),
                    ntx_format_size(NOW(comp_bytes_storage), storage, sizeof storage));
}

/* ---- the rest */

/* A row for --draft: recent drafts, accepted ones, and their drafters. */
static void draw_drafts(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    double passes = t->draft_passes;
    if (passes <= 0)
        return;
    ntx_canvas_text(c, 1, y, NTX_MARK_TITLE, "drafts");
    ntx_canvas_bar(c, LABEL, y, DRAFT_BAR, NTX_MARK_GOOD, share(t->draft_hits, t->draft_nodes));
    ntx_canvas_text(c, LABEL + DRAFT_BAR + 1, y, NTX_MARK_PLAIN,
                    "%.1f of %.0f a pass held: look-up %.1f, file %.1f; waited %.0f %%", t->draft_hits / passes,
                    t->draft_nodes / passes, t->draft_lookup / passes, t->draft_file / passes, 100 * t->draft_wait);
}

static void draw_history(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    int w = c->w - LABEL - 13;
    ntx_canvas_text(c, 1, y, NTX_MARK_TITLE, "drive");
    ntx_canvas_right(
        c, c->w - 1, y, NTX_MARK_DIM, "max %.2f",
        ntx_canvas_spark(c, LABEL, y, w, NTX_MARK_FLOW, t->drive_history, t->n_history, t->drive_ceiling_bps / 1e9));
    ntx_canvas_text(c, 1, y + 1, NTX_MARK_TITLE, "tok/s");
    ntx_canvas_right(c, c->w - 1, y + 1, NTX_MARK_DIM, "max %.2f",
                     ntx_canvas_spark(c, LABEL, y + 1, w, NTX_MARK_GOOD, t->tok_history, t->n_history, 0));
    ntx_canvas_text(c, 1, y + 2, NTX_MARK_TITLE, "waiting");
    ntx_canvas_right(c, c->w - 1, y + 2, NTX_MARK_DIM, "max %.0f %%",
                     100 * ntx_canvas_spark(c, LABEL, y + 2, w, NTX_MARK_BUSY, t->stall_history, t->n_history, 1));
}

static void draw_figures(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    char m[3][32];
    ntx_canvas_text(c, 1, y, NTX_MARK_TITLE, "predictor");
    ntx_canvas_text(c, LABEL, y, NTX_MARK_PLAIN,
                    "%.1f/s  chunks %" PRIu64 " early, %" PRIu64 " late; wasted %s read, %" PRIu64 " decisions",
                    t->decisions_s, NOW(comp_skip_early), NOW(comp_skip_late),
                    ntx_format_size(NOW(comp_skip_wasted), m[0], sizeof m[0]), NOW(comp_decisions_late));
    ntx_canvas_text(c, 1, y + 1, NTX_MARK_TITLE, "memory");
    int x = LABEL;
    for (int i = 0; i < 3; i++) {
        const struct ntx_top_process *p = &t->process[i];
        if (p->pid)
            x = 2 + ntx_canvas_text(c, x, y + 1, NTX_MARK_PLAIN, "%s %s", p->name,
                                    ntx_format_size(p->memory, m[i], sizeof m[i]));
        else
            x = 2 + ntx_canvas_text(c, x, y + 1, NTX_MARK_BAD, "%s gone", p->name);
    }
    x = ntx_canvas_text(c, x, y + 1, NTX_MARK_DIM, "KV %" PRIu64 "/%" PRIu64, NOW(comp_kv_blocks_used),
                        NOW(comp_kv_blocks));
    if (NOW(comp_kv_blocks_kept))
        ntx_canvas_text(c, x, y + 1, NTX_MARK_DIM, ", %" PRIu64 " kept", NOW(comp_kv_blocks_kept));
}

/* A row for models with experts, which the picture of the layers does not show. */
static void draw_experts(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    double hits = (double)NOW(comp_expert_hits), wanted = hits + (double)NOW(comp_expert_misses);
    double predictable = (double)NOW(comp_prefetch_wanted), ahead = (double)NOW(comp_prefetch_bytes);
    if (wanted <= 0)
        return;
    ntx_canvas_text(c, 1, y, NTX_MARK_TITLE, "experts");
    int x = ntx_canvas_text(c, LABEL, y, NTX_MARK_PLAIN, "%.0f %% were there, in %" PRIu64 " frames",
                            100 * hits / wanted, NOW(comp_frames));
    if (predictable > 0)
        ntx_canvas_text(c, x, y, NTX_MARK_PLAIN, "; predicted %.0f %%, %.0f %% of it read in vain",
                        100 * (double)NOW(comp_prefetch_right) / predictable,
                        ahead > 0 ? 100 * (1 - (double)NOW(comp_prefetch_used_bytes) / ahead) : 0);
}

/* A row for each other machine that shares the model, with the traffic; returns their number. */
static int draw_machines(struct ntx_canvas *c, const struct ntx_top *t, int y)
{
    if (!t->n_ranks)
        return 0;
    ntx_canvas_text(c, 1, y, NTX_MARK_TITLE, "machines");
    ntx_canvas_text(c, LABEL, y, NTX_MARK_PLAIN, "%u; %.2f MB/s between them; this one waits for the others %.0f %%",
                    t->n_ranks, t->rank_bps / 1e6, 100 * t->rank_wait);
    for (unsigned i = 1; i < t->n_ranks; i++) {
        const struct ntx_top_rank *r = &t->rank[i];
        ntx_canvas_text(
            c, LABEL, y + (int)i, NTX_MARK_PLAIN,
            "%-22.22s drive %.2f GB/s, waits %.0f %%; products %.0f %%; messages %.0f %%; ring %u of %u; KV %.0f MB",
            r->name, r->drive_bps / 1e9, 100 * r->stall, 100 * r->multiply, 100 * r->message, r->ring_ready,
            r->ring_slots, (double)r->kv_bytes / 1e6);
    }
    return (int)t->n_ranks;
}

static const char *state_name(enum ntx_mon_state s)
{
    static const char *const names[] = {"", "waits", "reads", "writes", "kept"};
    return names[s];
}

static void draw_session(struct ntx_canvas *c, const struct ntx_top_session *s, int y)
{
    static const enum ntx_mark marks[] = {NTX_MARK_DIM, NTX_MARK_BUSY, NTX_MARK_FLOW, NTX_MARK_GOOD, NTX_MARK_DIM};
    ntx_canvas_text(c, 1, y, NTX_MARK_PLAIN, "%6" PRIu64, s->id);
    ntx_canvas_text(c, LABEL, y, marks[s->state], "%s", state_name(s->state));
    ntx_canvas_text(c, 19, y, NTX_MARK_PLAIN, "%7u %8u %9u", s->prompt, s->generated, s->past);
    if (s->ttft_s > 0)
        ntx_canvas_text(c, 46, y, NTX_MARK_PLAIN, "%8.2f s", s->ttft_s);
    if (s->tok_s > 0)
        ntx_canvas_text(c, 57, y, NTX_MARK_PLAIN, "%8.2f", s->tok_s);
    ntx_canvas_text(c, 66, y, NTX_MARK_DIM, "%7.0f s", s->age_s);
}

static void draw_sessions(struct ntx_canvas *c, const struct ntx_top *t, int y, int end)
{
    ntx_canvas_text(c, 1, y, NTX_MARK_TITLE,
                    "session   state    prompt  written   context      TTFT      tok/s      age");
    unsigned room = end > y + 1 ? (unsigned)(end - y - 1) : 0, shown = t->n_sessions;
    if (shown > room)
        shown = room ? room - 1 : 0;
    for (unsigned i = 0; i < shown; i++)
        draw_session(c, &t->session[i], ++y);
    if (shown < t->n_sessions)
        ntx_canvas_text(c, LABEL, y + (room > 0), NTX_MARK_BUSY,
                        "%u%s more not shown: a taller terminal, or ntx-top --once", t->n_sessions - shown,
                        t->n_sessions == NTX_MON_SESSIONS ? " or" : "");
    if (!t->n_sessions)
        ntx_canvas_text(c, LABEL, y + 1, NTX_MARK_DIM, "none");
}

static void draw_keys(struct ntx_canvas *c, const struct ntx_top *t, bool paused)
{
    int y = c->h - 1, x = ntx_canvas_text(c, 1, y, NTX_MARK_DIM, "q quit  h help  p pause  + - interval  a ASCII");
    if (paused)
        x = ntx_canvas_text(c, x + 3, y, NTX_MARK_BAD, "PAUSED");
    if (NOW(comp_turns_waiting))
        ntx_canvas_text(c, x + 3, y, NTX_MARK_BUSY, "models: %" PRIu64 " wait", NOW(comp_turns_waiting));
    ntx_canvas_right(c, c->w - 1, y, NTX_MARK_DIM, "%s", NTX_VERSION);
}

void ntx_top_draw(struct ntx_canvas *c, const struct ntx_top *t, bool paused)
{
    draw_title(c, t);
    draw_pipeline(c, t, 1);
    draw_drafts(c, t, 9);
    draw_trouble(c, t, 9);
    draw_layers(c, t, 10);
    draw_history(c, t, 13);
    draw_figures(c, t, 16);
    draw_experts(c, t, 18);
    draw_sessions(c, t, 19 + draw_machines(c, t, 19), c->h - 1);
    draw_keys(c, t, paused);
}

void ntx_top_draw_help(struct ntx_canvas *c)
{
    static const char *const lines[] = {
        "drive      read rate of ntx-iod, of this drive's best rate so far, or of",
        "           --link; MB below the arrow: bytes in flight",
        "ring       chunks read and not yet used. Full: the drive is ahead; empty:",
        "           computing waits for it",
        "RAM arena  weights that stay in memory, and the rate at which they are used",
        "compute    CPU of ntx-computed in per cent of a core; waits: share of the time",
        "           in which it waited for reading",
        "limit      the bottleneck: a faster drive or more --ram, or computing",
        "drafts     with --draft: share of accepted drafts, and their drafters",
        "layers     a column for each (or a few): where its weights are;",
        "           s: left out in some passes, S: in most, p: might have been",
        "predictor  chunks of skipped layers: early: not read; late: the read had begun",
        "           and was wasted; decisions that nobody waited for any more",
        "experts    share of those wanted that were in RAM; share that was predicted",
        "machines   others that share the model: their drives and states",
        "KV         blocks of context in use, of all there are",
        "TTFT       time from the request to its first token; gaps: between two tokens;",
        "           the median, and what 99 of 100 are below, since the start",
        "",
        "keys       q quit   h help   p pause   + and - slower and faster",
        "           a ASCII or Unicode   any other: redraw",
    };
    ntx_canvas_text(c, 1, 0, NTX_MARK_TITLE, "ntx-top: the picture explained");
    for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++)
        ntx_canvas_text(c, 1, 2 + (int)i, NTX_MARK_PLAIN, "%s", lines[i]);
    ntx_canvas_text(c, 1, c->h - 1, NTX_MARK_DIM, "any key: back");
}
