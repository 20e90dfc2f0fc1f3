/* SPDX-License-Identifier: Apache-2.0 */
#include "client/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/out.h"
#include "common/util.h"

/* DEC's sequences, which all common terminals know: ESC 7 and ESC 8 save and restore the cursor, ESC D moves it a
 * line down, scrolling at the bottom. */
#define BELOW       "\033D\033[A\0337\033[B\r\033[K"
#define BELOW_AGAIN "\0337\033[B\r\033[K"
#define BACK        "\0338"

/* The line, of which a process has one at a time. Other threads write lines, too. */
static struct {
    _Atomic bool shown, below; /* below: on the line below unfinished text */
    _Atomic bool midline;      /* the cursor is behind unfinished text */
} line;

struct ntx_progress ntx_progress_begin(const struct ntx_options *o)
{
    bool shared = isatty(STDERR_FILENO) && isatty(STDOUT_FILENO);
    bool on = !o->quiet && !o->verbose && isatty(STDERR_FILENO); /* -v: the daemons' log goes there, too */
    return (struct ntx_progress){.on = on, .shared = shared};
}

static int columns(void)
{
    struct winsize w;
    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : 80;
}

void ntx_progress_say(struct ntx_progress *p, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    if (!p->on)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *start = "\r\033[K";
    if (line.midline)
        start = line.shown ? BELOW_AGAIN : BELOW;
    fprintf(stderr, "%s%.*s%s", start, columns() - 1, text, line.midline ? BACK : "");
    line.shown = true;
    line.below = line.midline;
}

static void erase_line(void)
{
    if (line.shown)
        fputs(line.below ? BELOW_AGAIN BACK : "\r\033[K", stderr);
    line.shown = false;
}

void ntx_progress_clear(struct ntx_progress *p)
{
    (void)p;
    erase_line();
}

void ntx_progress_midline(struct ntx_progress *p, bool midline) { line.midline = p->shared && midline; }

void ntx_progress_yield(void)
{
    erase_line();
    if (line.midline)
        fputc('\n', stderr);
    line.midline = false;
}

static const char *duration_text(double s, char *buf, size_t n)
{
    uint64_t t = (uint64_t)(s + 0.5);
    if (t < 120)
        snprintf(buf, n, "%llu s", (unsigned long long)t);
    else if (t < 7200)
        snprintf(buf, n, "%llu min", (unsigned long long)(t + 30) / 60);
    else
        snprintf(buf, n, "%.1f hours", s / 3600);
    return buf;
}

/* "2.1 of 7.3 GiB" */
static size_t share_text(uint64_t done, uint64_t total, char *buf, size_t n)
{
    int shift = 10;
    if (total >> 30)
        shift = 30;
    else if (total >> 20)
        shift = 20;
    double unit = (double)(1u << shift);
    return (size_t)snprintf(buf, n, "%.1f of %.1f %ciB", (double)done / unit, (double)total / unit,
                            "KMG"[shift / 10 - 1]);
}

/* ", 2.1 of 7.3 GiB at 1.90 GB/s, 3 s left", as much of it as is known. */
static void amounts_text(const Ntx__Progress *m, char *buf, size_t n)
{
    char size[32], left[32];
    size_t k = 0;
    if (m->total)
        k = (size_t)snprintf(buf, n, ", ") + share_text(m->done, m->total, buf + 2, n - 2);
    else if (m->done)
        k = (size_t)snprintf(buf, n, ", %s read", ntx_format_size(m->done, size, sizeof size));
    buf[k] = 0;
    if (m->bytes_per_s >= 1e9)
        k += (size_t)snprintf(buf + k, n - k, " at %.2f GB/s", m->bytes_per_s / 1e9);
    else if (m->bytes_per_s >= 1e5)
        k += (size_t)snprintf(buf + k, n - k, " at %.1f MB/s", m->bytes_per_s / 1e6);
    if (m->left_s >= 0.5)
        snprintf(buf + k, n - k, ", %s left", duration_text(m->left_s, left, sizeof left));
}

void ntx_progress_show(struct ntx_progress *p, const Ntx__Progress *m)
{
    char prompt[64] = "", how_far[160], phase[24];
    amounts_text(m, how_far, sizeof how_far);
    if (m->prompt_total)
        snprintf(prompt, sizeof prompt, "prompt %llu of %llu, ", (unsigned long long)m->prompt_done,
                 (unsigned long long)m->prompt_total);
    if (!strcmp(m->phase, "load"))
        ntx_progress_say(p, "loading %s", *how_far ? how_far + 2 : "");
    else if (!strcmp(m->phase, "pass"))
        ntx_progress_say(p, "%slayer %u of %u%s", prompt, m->layer, m->layers, how_far);
    else if (!strcmp(m->phase, "prompt"))
        ntx_progress_say(p, "prompt %llu of %llu", (unsigned long long)m->done, (unsigned long long)m->total);
    else if (!strcmp(m->phase, "picture") && m->total)
        ntx_progress_say(p, "picture %llu of %llu, %u %% of them seen",
                         (unsigned long long)(NTX_MIN(m->done, m->total - 1) / 1000 + 1),
                         (unsigned long long)(m->total / 1000), (unsigned)(100 * m->done / m->total));
    else if (!strcmp(m->phase, "queue"))
        ntx_progress_say(p, "waiting for memory that other requests hold, with %llu more",
                         (unsigned long long)(m->total ? m->total - 1 : 0));
    else
        ntx_progress_say(p, "%s %llu of %llu", ntx_out_line(m->phase, phase, sizeof phase), (unsigned long long)m->done,
                         (unsigned long long)m->total);
}
