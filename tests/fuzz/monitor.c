/* SPDX-License-Identifier: Apache-2.0 */
/* monitor.c: a foreign counters' file, as ntx-top, ntx-metrics and ntx trace read it, under libFuzzer. The input is
 * changes to a valid file (fuzz.h): one half is made before the first sample of ntx-top, the other before its next
 * two. The byte behind the changes is the size of the terminal. The metrics are lines of text and nothing else, the
 * JSON parses, and the picture fits the terminal. */
#include <fcntl.h>
#include <jansson.h>

#include "client/monitor/metrics_text.h"
#include "client/monitor/top_view.h"
#include "client/trace.h"
#include "tests/fuzz/fuzz.h"

#define RECORDS 64 /* valid records in each ring; the others are empty */

static struct ntx_counters *shared, *right;
static FILE *nowhere;
static char dir[] = "/dev/shm/fuzz-monitor-XXXXXX", path[64];

static void clean_up(void)
{
    unlink(path);
    rmdir(dir);
}

static void fill(struct ntx_counters *c)
{
    snprintf(c->mon.model, sizeof c->mon.model, "a model");
    snprintf(c->mon.arch, sizeof c->mon.arch, "llama");
    snprintf(c->mon.kernel, sizeof c->mon.kernel, "avx2");
    atomic_store(&c->mon.n_layers, 9);
    for (unsigned i = 0; i < 9; i++) {
        atomic_store(&c->mon.layer[i].host, 1000);
        atomic_store(&c->mon.layer[i].storage, 100 * i);
    }
    atomic_store(&c->mon.session[1].state, NTX_MON_WRITING);
    atomic_store(&c->mon.session[1].generated, 5);
    for (unsigned i = 0; i < RECORDS; i++)
        for (unsigned who = 0; who < NTX_N_TRACES; who++)
            ntx_trace_put(&c->trace[who],
                          who == NTX_TRACE_IOD ? NTX_TR_READ : (enum ntx_trace_kind)(1 + i % (NTX_TR_KINDS - 1)),
                          1000 * i, 1000 * i + 900, i % 5, i, i);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct ntx_err err = {0};
    int fd;
    (void)argc;
    (void)argv;
    if (fuzz_seed_dir()) {
        static const uint32_t zones[] = {0,
                                         offsetof(struct ntx_counters, v),
                                         offsetof(struct ntx_counters, mon),
                                         offsetof(struct ntx_counters, mon.layer),
                                         offsetof(struct ntx_counters, mon.session),
                                         offsetof(struct ntx_counters, trace),
                                         offsetof(struct ntx_counters, trace[1].r)};
        for (unsigned i = 0; i < sizeof zones / sizeof *zones; i++) {
            const uint8_t seed[8] = {(uint8_t)(zones[i] / 4), (uint8_t)(zones[i] / 4 >> 8),
                                     (uint8_t)(zones[i] / 4 >> 16), 4, 1};
            char name[16];
            snprintf(name, sizeof name, "zone%u", i);
            fuzz_seed(name, seed, sizeof seed);
        }
        /* counts between two samples; the terminal is small, or large with ASCII only */
        static const struct {
            uint32_t at;
            uint8_t bits, value;
        } later[] = {{offsetof(struct ntx_counters, v[NTX_C_comp_sessions]), 2, 1},
                     {offsetof(struct ntx_counters, v[NTX_C_comp_decisions]), 2, 9},
                     {offsetof(struct ntx_counters, v[NTX_C_comp_passes]), 2, 7},
                     {offsetof(struct ntx_counters, v[NTX_C_comp_stall_ns]), 2, 99},
                     {offsetof(struct ntx_counters, mon.layer[3].skipped), 2, 5},
                     {offsetof(struct ntx_counters, mon.layer[4].predicted), 2, 5},
                     {offsetof(struct ntx_counters, v[NTX_C_comp_expert_hits]), 2, 50},
                     {offsetof(struct ntx_counters, v[NTX_C_comp_prefetch_wanted]), 2, 5},
                     {offsetof(struct ntx_counters, v[NTX_C_comp_prefetch_bytes]), 2, 5},
                     {offsetof(struct ntx_counters, mon.session[2].state), 1, 4}};
        enum { N = sizeof later / sizeof *later };
        uint8_t seed[2 * N * 8 + 1] = {0};
        for (unsigned i = 0; i < N; i++) {
            const uint8_t change[8] = {(uint8_t)(later[i].at / 4), (uint8_t)(later[i].at / 4 >> 8),
                                       (uint8_t)(later[i].at / 4 >> 16), later[i].bits, later[i].value};
            memcpy(seed + 8 * (N + i), change, 8);
        }
        for (unsigned i = 0; i < 8; i++) {
            char name[16];
            seed[sizeof seed - 1] = (uint8_t)(i | i << 4);
            snprintf(name, sizeof name, "later%u", i);
            fuzz_seed(name, seed, sizeof seed);
        }
        exit(0);
    }
    MUST(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/counters", dir);
    atexit(clean_up);
    MUST(!ntx_counters_create(dir, &shared, &fd, &err));
    fill(shared);
    right = malloc(sizeof *right);
    MUST(right);
    memcpy(right, shared, sizeof *right);
    nowhere = fopen("/dev/null", "w");
    MUST(nowhere);
    return 0;
}

static void use_metrics(const struct ntx_counters *c)
{
    size_t len, lines = 0;
    char *text = ntx_metrics_text(c, &len);
    MUST(text && len == strlen(text) && text[len - 1] == '\n');
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save), lines++) {
        MUST(!strncmp(l, "# HELP ntx_", 11) || !strncmp(l, "# TYPE ntx_", 11) ||
             (!strncmp(l, "ntx_", 4) && strchr(l, ' ')));
        MUST(strlen(l) < 600);
        for (const char *p = l; *p; p++)
            MUST((unsigned char)*p >= 0x20);
    }
    MUST(lines > 100);
    free(text);
}

static void draw(const struct ntx_top *t, uint8_t how)
{
    static const struct {
        int w, h;
    } sizes[] = {{80, 24}, {20, 5}, {1, 1}, {0, 3}, {300, 120}, {40, 50}, {13, 24}, {200, 12}};
    static struct ntx_canvas canvas;
    bool ascii = how & 16;
    ntx_canvas_begin(&canvas, sizes[how % 8].w, sizes[how % 8].h, ascii);
    if (how & 64)
        ntx_top_draw_help(&canvas);
    else
        ntx_top_draw(&canvas, t, how & 32);
    for (int i = 0; i < canvas.w * canvas.h; i++) {
        wchar_t ch = canvas.cell[i / canvas.w][i % canvas.w].ch;
        MUST(ch >= ' ' && (!ascii || ch < 127));
    }
    ntx_canvas_print(&canvas, nowhere);
}

static void use_top(struct ntx_top *t, uint8_t how)
{
    ntx_top_step(t);
    draw(t, how);
    char *text = ntx_top_json(t);
    json_t *j = text ? json_loads(text, 0, NULL) : NULL;
    MUST(json_is_object(j) && json_array_size(json_object_get(j, "layers")) <= NTX_MON_LAYERS);
    json_decref(j);
    free(text);
}

static void use_trace(const struct ntx_counters *c)
{
    static struct ntx_trace_event e[NTX_N_TRACES * RECORDS];
    struct ntx_trace_record r[RECORDS];
    struct ntx_trace_summary s = {0};
    struct ntx_err err = {0};
    size_t n = 0;
    for (unsigned who = 0; who < NTX_N_TRACES; who++) {
        uint64_t next = 0, missed = 0;
        unsigned k = ntx_trace_take(&c->trace[who], &next, r, RECORDS, &missed);
        for (unsigned i = 0; i < k; i++)
            e[n++] = (struct ntx_trace_event){r[i], who};
    }
    ntx_trace_sort(e, n);
    MUST(!ntx_trace_export("/dev/null", e, n, 0, &s, &err));
    MUST(s.records == n);
}

/* The file names the daemons' process ids: they must not hit a process of this machine, except this one. */
static void nobody(uint8_t how)
{
    ntx_gauge(shared, NTX_C_comp_pid, how >= 192 ? (uint64_t)getpid() : 0);
    ntx_gauge(shared, NTX_C_iod_pid, 0);
    ntx_gauge(shared, NTX_C_pred_pid, how >= 192 ? UINT64_MAX : 0);
}

static void use(const uint8_t *more, size_t size, uint8_t how)
{
    static struct ntx_top t;
    const struct ntx_counters *c;
    struct ntx_err err = {0};
    if (ntx_counters_open(dir, &c, &err)) {
        MUST(err.text[0]);
        return;
    }
    nobody(how);
    ntx_top_begin(&t, c);
    fuzz_patch((uint8_t *)shared, sizeof *shared, more, size);
    nobody(how);
    ntx_top_step(&t);
    use_top(&t, how);
    use_metrics(c);
    use_trace(c);
    ntx_counters_close((struct ntx_counters *)(uintptr_t)c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size = size < 512 ? size : 512;
    uint8_t how = size % 8 ? data[size - 1] : 0;
    size_t half = size / 16 * 8;
    fuzz_patch((uint8_t *)shared, sizeof *shared, data, half);
    use(data + half, size - half, how);
    fuzz_restore((uint8_t *)shared, (const uint8_t *)right, sizeof *shared, data, size);
    return 0;
}
