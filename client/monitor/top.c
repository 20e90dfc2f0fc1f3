/* SPDX-License-Identifier: Apache-2.0 */
/* ntx-top: the pipeline at a glance. It reads the counters' file (read-only shared memory) and /proc and sends the
 * daemons no request, so that it works while they are busy and costs them nothing. This file has the options and the
 * display loops. */
#include <argp.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/monitor/top_screen.h"
#include "client/monitor/top_view.h"
#include "client/options.h"
#include "client/out.h"
#include "client/where.h"
#include "common/programs.h"
#include "common/util.h"
#include "ntx_version.h"

struct options {
    bool once, json, no_color, ascii;
    double interval;
    const char *dir;
};

static error_t parse_opt(int key, char *arg, struct argp_state *st)
{
    struct options *o = st->input;
    char *end;
    switch (key) {
    case 'o': o->once = true; return 0;
    case 'j': o->json = true; return 0;
    case 'n': o->no_color = true; return 0;
    case 'a': o->ascii = true; return 0;
    case 'd':
        o->interval = strtod(arg, &end);
        if (*end || !(o->interval >= 0.05 && o->interval <= 3600))
            ntx_usage_error(st, "--interval: '%s' is not a number of seconds from 0.05 to 3600", arg);
        return 0;
    case 'r': o->dir = arg; return 0;
    case 'h': argp_state_help(st, stdout, ARGP_HELP_STD_HELP); return 0;
    case ARGP_KEY_ARG: ntx_usage_error(st, "unexpected argument '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void sleep_seconds(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static int columns(void)
{
    const char *s = getenv("COLUMNS");
    int n = s ? atoi(s) : 0;
    return n >= 60 && n <= NTX_CANVAS_W ? n : 80;
}

static int flush_output(struct ntx_err *err)
{
    bool failed = ferror(stdout), now = fflush(stdout);
    if (!failed && !now)
        return 0;
    return ntx_err_set(err, -EIO, "standard output: %s", strerror(now ? errno : EIO));
}

static int show_once(const struct options *o, struct ntx_top *t, struct ntx_err *err)
{
    sleep_seconds(o->interval);
    ntx_top_step(t);
    if (o->json) {
        char *text = ntx_top_json(t);
        if (text)
            ntx_out_json_text(text);
        free(text);
        return text ? flush_output(err) : -ENOMEM;
    }
    struct ntx_canvas *c = malloc(sizeof *c);
    if (!c)
        return -ENOMEM;
    ntx_canvas_begin(c, columns(), NTX_MAX(24, 21 + (int)t->n_sessions), o->ascii);
    ntx_top_draw(c, t, false);
    c->h--; /* no row of keys here */
    ntx_canvas_print(c, stdout);
    free(c);
    return flush_output(err);
}

struct live {
    struct options o;
    struct ntx_canvas canvas;
    bool paused, help;
    uint64_t due_ns;
};

static void redraw(struct live *l, const struct ntx_top *t)
{
    int w, h;
    ntx_screen_size(&w, &h);
    ntx_canvas_begin(&l->canvas, w, h, l->o.ascii);
    if (w < 60 || h < 8)
        ntx_canvas_text(&l->canvas, 0, 0, NTX_MARK_PLAIN, "ntx-top needs 60 x 8");
    else if (l->help)
        ntx_top_draw_help(&l->canvas);
    else if (t->n_history) /* else there is no data yet */
        ntx_top_draw(&l->canvas, t, l->paused);
    ntx_screen_show(&l->canvas);
}

/* False: quit. */
static bool on_key(struct live *l, int key)
{
    if (key == 'q' || key == 'Q' || key == NTX_KEY_GONE)
        return false;
    if (l->help && key != NTX_KEY_SIZE) {
        l->help = false;
        return true;
    }
    switch (key) {
    case 'h':
    case '?': l->help = true; break;
    case 'p':
    case ' ': l->paused = !l->paused; break;
    case 'a': l->o.ascii = !l->o.ascii; break;
    case '+': l->o.interval = NTX_MIN(l->o.interval * 2, 60.0); break;
    case '-': l->o.interval = NTX_MAX(l->o.interval / 2, 0.05); break;
    }
    return true;
}

/* Restarted daemons make another file under the same name. */
static bool is_replaced(const char *dir, const struct ntx_top *t)
{
    const struct ntx_counters *now;
    bool other = !ntx_counters_open(dir, &now, NULL);
    if (other) {
        other = now->started_ns != t->c->started_ns;
        ntx_counters_close((struct ntx_counters *)(uintptr_t)now);
    }
    return other;
}

static void reopen(const char *dir, struct ntx_top *t)
{
    const struct ntx_counters *c;
    if (!is_replaced(dir, t) || ntx_counters_open(dir, &c, NULL))
        return;
    ntx_counters_close((struct ntx_counters *)(uintptr_t)t->c);
    ntx_top_begin(t, c);
}

static int show_live(const struct options *o, const char *dir, struct ntx_top *t, struct ntx_err *err)
{
    struct live *l = calloc(1, sizeof *l);
    int rc = l ? ntx_screen_open(!o->no_color && !getenv("NO_COLOR"), err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (rc) {
        free(l);
        return rc;
    }
    l->o = *o;
    l->due_ns = ntx_now_ns() + 200000000u; /* show the first picture soon */
    redraw(l, t);
    for (bool on = true; on;) {
        uint64_t now = ntx_now_ns();
        int key = ntx_screen_key(l->due_ns > now ? (int)((l->due_ns - now) / 1000000) + 1 : 0);
        if (key != NTX_KEY_NONE)
            on = on_key(l, key);
        if (ntx_now_ns() >= l->due_ns) {
            l->due_ns = ntx_now_ns() + (uint64_t)(l->o.interval * 1e9);
            reopen(dir, t);
            if (!l->paused)
                ntx_top_step(t);
        }
        redraw(l, t);
    }
    ntx_screen_close();
    free(l);
    return 0;
}

const char *argp_program_version = "ntx-top " NTX_BUILD;

int main(int argc, char **argv)
{
    struct options o = {.interval = 1};
    struct ntx_err err = {0};
    const struct ntx_counters *c;
    struct ntx_where w;
    ntx_stdio_init();
    argp_err_exit_status = NTX_EXIT_USAGE;
    ntx_log_init("ntx-top", NTX_LOG_INFO);
    setlocale(LC_CTYPE, "");
    ntx_program_parse(&ntx_top_program, parse_opt, argc, argv, &o);
    o.ascii |= strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
    int rc = o.dir ? 0 : ntx_where(true, &w, &err);
    if (!o.dir)
        o.dir = w.dir;
    if (!rc)
        rc = ntx_counters_open(o.dir, &c, &err);
    if (rc)
        return ntx_say("%s", err.text), NTX_EXIT_FAILED;
    struct ntx_top *t = calloc(1, sizeof *t);
    if (!t)
        return NTX_EXIT_FAILED;
    ntx_top_begin(t, c);
    rc = o.once || o.json ? show_once(&o, t, &err) : show_live(&o, o.dir, t, &err);
    if (rc)
        ntx_say("%s", err.text[0] ? err.text : strerror(-rc));
    ntx_counters_close((struct ntx_counters *)(uintptr_t)t->c);
    free(t);
    return rc ? NTX_EXIT_FAILED : 0;
}
