/* monitor.c: the counters' file of somebody else's daemons, as ntx-top, ntx-metrics and ntx trace read it, under libFuzzer: a
 * right one with changes (fuzz.h). The metrics are lines of text and nothing else, the JSON parses, the picture fits. */
#include <fcntl.h>
#include <jansson.h>

#include "client/metrics_text.h"
#include "client/top_view.h"
#include "client/trace.h"
#include "tests/fuzz/fuzz.h"

#define RECORDS 64 /* of each ring are made right; the others are empty */

static struct ntx_counters *shared, *right;
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
            ntx_trace_put(&c->trace[who], who == NTX_TRACE_IOD ? NTX_TR_READ : (enum ntx_trace_kind)(1 + i % (NTX_TR_KINDS - 1)), 1000 * i, 1000 * i + 900, i % 5, i, i);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct ntx_err err = {0};
    int fd;
    (void)argc;
    (void)argv;
    if (fuzz_seed_dir()) {
        static const uint32_t zones[] = {0, offsetof(struct ntx_counters, v), offsetof(struct ntx_counters, mon), offsetof(struct ntx_counters, mon.layer),
                                         offsetof(struct ntx_counters, mon.session), offsetof(struct ntx_counters, trace), offsetof(struct ntx_counters, trace[1].r)};
        for (unsigned i = 0; i < sizeof zones / sizeof *zones; i++) {
            const uint8_t seed[8] = {(uint8_t)(zones[i] / 4), (uint8_t)(zones[i] / 4 >> 8), (uint8_t)(zones[i] / 4 >> 16), 4, 1};
            char name[16];
            snprintf(name, sizeof name, "zone%u", i);
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
    return 0;
}

static void use_metrics(const struct ntx_counters *c)
{
    size_t len, lines = 0;
    char *text = ntx_metrics_text(c, &len);
    MUST(text && len == strlen(text) && text[len - 1] == '\n');
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save), lines++) {
        MUST(!strncmp(l, "# HELP ntx_", 11) || !strncmp(l, "# TYPE ntx_", 11) || (!strncmp(l, "ntx_", 4) && strchr(l, ' ')));
        MUST(strlen(l) < 600);
        for (const char *p = l; *p; p++)
            MUST((unsigned char)*p >= 0x20);
    }
    MUST(lines > 100);
    free(text);
}

static void use_top(const struct ntx_counters *c)
{
    static struct ntx_top t;
    static struct ntx_canvas canvas;
    ntx_top_begin(&t, c);
    ntx_top_step(&t);
    for (int ascii = 0; ascii < 2; ascii++) {
        ntx_canvas_begin(&canvas, 80, 24, ascii);
        ntx_top_draw(&canvas, &t, false);
        for (int i = 0; ascii && i < 80 * 24; i++)
            MUST(canvas.cell[i / 80][i % 80].ch >= ' ' && canvas.cell[i / 80][i % 80].ch < 127);
    }
    char *text = ntx_top_json(&t);
    json_t *j = text ? json_loads(text, 0, NULL) : NULL;
    MUST(json_is_object(j) && json_array_size(json_object_get(j, "layers")) <= NTX_MON_LAYERS);
    json_decref(j);
    free(text);
}

static void use_trace(const struct ntx_counters *c)
{
    static struct ntx_trace_event e[2 * RECORDS];
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

static void use(void)
{
    const struct ntx_counters *c;
    struct ntx_err err = {0};
    if (ntx_counters_open(dir, &c, &err)) {
        MUST(err.text[0]);
        return;
    }
    ntx_gauge(shared, NTX_C_comp_pid, 0); /* the file says who the daemons are: no process of this machine, please */
    ntx_gauge(shared, NTX_C_iod_pid, 0);
    ntx_gauge(shared, NTX_C_pred_pid, 0);
    use_metrics(c);
    use_top(c);
    use_trace(c);
    ntx_counters_close((struct ntx_counters *)(uintptr_t)c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size = size < 512 ? size : 512;
    fuzz_patch((uint8_t *)shared, sizeof *shared, data, size);
    use();
    fuzz_restore((uint8_t *)shared, (const uint8_t *)right, sizeof *shared, data, size);
    return 0;
}
