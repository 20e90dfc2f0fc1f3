/* SPDX-License-Identifier: Apache-2.0 */
/* chat_editor.c: libedit with our own reader, which also waits for signals, and with bracketed paste and grapheme
 * clusters, which libedit lacks. */
#include "client/commands/chat_editor.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "client/client.h"
#include "client/cluster.h"
#include "client/commands/chat_clusters.h"
#include "common/util.h"

/* Keys that the reader makes from signals; the terminal turns the typed characters into signals. */
#define KEY_CANCEL 3    /* SIGINT */
#define KEY_JOIN   0x1e /* the character before the cursor becomes e->joined */
#define KEY_REDRAW 0x1c /* after a change of the window's size, or after the shell had the terminal */

/* Asks whether the terminal shows whole clusters (DECRQM of mode 2027), then for its kind (DA1), which all terminals
 * answer. One that does not know the first question may show a part of it, which is erased. */
static const char query_whole[] = "\033[?2027$p\r\033[K\033[c", whole_on[] = "\033[?2027h", whole_off[] = "\033[?2027l";
#define ANSWER_MS 100

static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l", paste_end[] = "\033[201~";

struct paste {
    char *mark, *text;
};

struct ntx_editor {
    EditLine *el;
    History *recent;
    struct ntx_history *file;
    struct ntx_clusters *clusters;
    FILE *screen;
    wchar_t joined;
    bool verbatim;  /* a paste is being read: no clusters are made */
    bool whole_set; /* we have switched the terminal to whole clusters */
    const char *prompt;
    char in[4096]; /* read but not yet used */
    size_t n, at;
    bool canceled, signalled, ended;
    struct paste *pastes;
    unsigned n_pastes;
    char *last; /* last entry of the history */
    struct termios before;
};

static volatile sig_atomic_t resized, continued;

static void on_signal(int sig)
{
    if (sig == SIGWINCH)
        resized = 1;
    else
        continued = 1;
}

static void write_terminal(const char *s)
{
    if (write(STDERR_FILENO, s, strlen(s)) < 0)
        return; /* the terminal is closed; the next read reports it */
}

bool ntx_editor_fits(void)
{
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb");
}

/* ---- reading */

/* Removes the first "ESC [ ? digits and ; END" from the input; digits: what is between. False: there is none. */
static bool take_answer(struct ntx_editor *e, const char *end, char digits[32])
{
    for (size_t i = e->at; i + 3 < e->n; i++) {
        if (memcmp(e->in + i, "\033[?", 3))
            continue;
        size_t k = i + 3, n = strlen(end);
        while (k < e->n && strchr("0123456789;", e->in[k]) && e->in[k] && k - i < 30)
            k++;
        if (k + n > e->n || memcmp(e->in + k, end, n))
            continue;
        snprintf(digits, 32, "%.*s", (int)(k - i - 3), e->in + i + 3);
        memmove(e->in + i, e->in + k + n, e->n - k - n);
        e->n -= k + n - i;
        return true;
    }
    return false;
}

/* 1: there are bytes; 0: the end of input; 2: *key is set. */
static int read_input(struct ntx_editor *e, wchar_t *key)
{
    while (e->at == e->n) {
        if (resized || continued) {
            if (continued) { /* the shell has used the terminal */
                el_set(e->el, EL_PREP_TERM, 0);
                el_set(e->el, EL_PREP_TERM, 1);
                write_terminal(paste_on);
            }
            el_resize(e->el);
            resized = continued = 0;
            *key = KEY_REDRAW;
            return 2;
        }
        int rc = ntx_client_wait(STDIN_FILENO, -1);
        if (rc == -EINTR && ntx_client_signalled() == SIGINT) {
            *key = KEY_CANCEL;
            return 2;
        }
        if (rc) {
            e->signalled = true;
            return 0;
        }
        if (resized || continued)
            continue;
        ssize_t n = read(STDIN_FILENO, e->in, sizeof e->in);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return 0;
        e->at = 0;
        e->n = (size_t)n;
        char late[32]; /* answers of a slow terminal, which has to do without whole clusters */
        while (take_answer(e, "$y", late) || take_answer(e, "c", late))
            ;
    }
    return 1;
}

/* A character that belongs to the cluster before the cursor becomes a key that changes that cluster. */
static wchar_t join_cluster(struct ntx_editor *e, wchar_t c)
{
    const LineInfoW *line = el_wline(e->el);
    if (e->verbatim)
        return c;
    e->joined = line->cursor > line->buffer ? ntx_clusters_join(e->clusters, line->cursor[-1], c) : 0;
    return e->joined ? KEY_JOIN : ntx_clusters_alone(e->clusters, c);
}

/* libedit's el_rfunc_t: returns the next character in the locale's encoding. */
static int next_char(EditLine *el, wchar_t *out)
{
    struct ntx_editor *e;
    mbstate_t state = {0};
    el_get(el, EL_CLIENTDATA, &e);
    for (int some = 0;; some++) {
        int rc = read_input(e, out);
        if (rc == 2)
            return 1;
        if (rc != 1) {
            e->ended = true;
            return 0;
        }
        size_t k = mbrtowc(out, e->in + e->at, 1, &state);
        e->at++;
        if (k == (size_t)-2)
            continue; /* more bytes are needed */
        if (k == (size_t)-1) {
            e->at -= some > 0; /* an invalid continuation starts the next character */
            *out = 0xfffd;
        }
        *out = join_cluster(e, *out);
        return 1;
    }
}

/* ---- the terminal's kind */

/* Asks and waits for the answer. Keys that were typed before it stay in e->in. */
static void query_terminal(struct ntx_editor *e)
{
    const char *term = getenv("TERM");
    char mode[32] = "", kind[32];
    int64_t end = (int64_t)ntx_now_ns() + ANSWER_MS * 1000000LL;
    bool answered = false;
    if (!strcmp(term, "linux"))
        return;
    write_terminal(query_whole);
    while (!answered && e->n < sizeof e->in) {
        int64_t left = (end - (int64_t)ntx_now_ns()) / 1000000;
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        if (left <= 0 || poll(&p, 1, (int)left) <= 0)
            break;
        ssize_t n = read(STDIN_FILENO, e->in + e->n, sizeof e->in - e->n);
        if (n <= 0)
            break;
        e->n += (size_t)n;
        answered = take_answer(e, "c", kind);
    }
    take_answer(e, "$y", mode);
    int state = strncmp(mode, "2027;", 5) ? 0 : atoi(mode + 5);
    e->whole_set = state == 2;
    if (e->whole_set)
        write_terminal(whole_on);
    ntx_cluster_set_whole(state >= 1 && state <= 3);
}

/* ---- pastes */

static void screen_size(unsigned *rows, unsigned *columns)
{
    struct winsize w = {0};
    bool known = !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_row && w.ws_col;
    *rows = known ? w.ws_row : 24;
    *columns = known ? w.ws_col : 80;
}

static unsigned count_lines(const char *s)
{
    unsigned n = 1;
    while ((s = strchr(s, '\n')))
        n++, s++;
    return n;
}

/* libedit edits only the text that is on the screen: one paste may take half of it. */
static bool fits_screen(const char *s)
{
    unsigned rows, columns;
    screen_size(&rows, &columns);
    return count_lines(s) <= rows / 2 && strlen(s) <= (size_t)(rows / 2) * columns / 2;
}

/* The text as shown: itself, or a mark for it. Valid until the next call; NULL: no memory. */
static const char *fold_paste(struct ntx_editor *e, const char *text)
{
    if (fits_screen(text))
        return text;
    for (unsigned i = 0; i < e->n_pastes; i++)
        if (!strcmp(e->pastes[i].text, text))
            return e->pastes[i].mark;
    struct paste *p = realloc(e->pastes, (e->n_pastes + 1) * sizeof *p);
    if (!p)
        return NULL;
    e->pastes = p;
    p += e->n_pastes;
    unsigned lines = count_lines(text);
    int rc = lines > 1 ? asprintf(&p->mark, "[pasted %u: %u lines]", e->n_pastes + 1, lines)
                       : asprintf(&p->mark, "[pasted %u: %zu characters]", e->n_pastes + 1, strlen(text));
    if (rc < 0)
        return NULL;
    if (!(p->text = strdup(text))) {
        free(p->mark);
        return NULL;
    }
    return e->pastes[e->n_pastes++].mark;
}

/* The line with the texts in place of their marks; malloc'd. */
static char *unfold_pastes(const struct ntx_editor *e, const char *line, size_t len)
{
    char *out = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&out, &n);
    if (!f)
        return NULL;
    for (size_t i = 0; i < len;) {
        const struct paste *p = NULL;
        for (unsigned k = 0; k < e->n_pastes && line[i] == '[' && !p; k++)
            if (!strncmp(line + i, e->pastes[k].mark, strlen(e->pastes[k].mark)))
                p = &e->pastes[k];
        fputs(p ? p->text : (char[]){line[i], 0}, f);
        i += p ? strlen(p->mark) : 1;
    }
    if (fclose(f)) {
        free(out);
        return NULL;
    }
    return out;
}

static int insert_text(struct ntx_editor *e, const char *text)
{
    const char *paste = fold_paste(e, text);
    char *shown = paste ? ntx_clusters_fold(e->clusters, paste) : NULL;
    size_t n = shown ? mbstowcs(NULL, shown, 0) : (size_t)-1;
    wchar_t *w = n == (size_t)-1 ? NULL : malloc((n + 1) * sizeof *w);
    int rc = w ? 0 : -1;
    if (w)
        mbstowcs(w, shown, n + 1);
    if (w && n)
        rc = el_winsertstr(e->el, w);
    free(w);
    free(shown);
    return rc;
}

static wchar_t line_end_or(wchar_t c) { return c == '\r' ? L'\n' : c; }

/* Reads a paste up to its end, with line ends as
 *  and without control characters; malloc'd. */
static char *read_paste(EditLine *el)
{
    struct ntx_editor *e;
    const size_t end = sizeof paste_end - 1;
    char *out = NULL, one[MB_LEN_MAX];
    size_t n = 0, match = 0;
    wchar_t c, before = 0;
    el_get(el, EL_CLIENTDATA, &e);
    FILE *f = open_memstream(&out, &n);
    while (f && match < end && el_wgetc(el, &c) == 1) {
        if (c == KEY_CANCEL) {
            e->canceled = true;
            break;
        }
        match = c == (wchar_t)paste_end[match] ? match + 1 : c == (wchar_t)paste_end[0];
        bool text = c >= ' ' || c == '\t' || c == '\r' || (c == '\n' && before != '\r');
        int k = text && c != 0x7f ? wctomb(one, line_end_or(c)) : 0;
        if (k > 0)
            fwrite(one, 1, (size_t)k, f);
        before = c;
    }
    if (!f || fclose(f))
        return free(out), NULL;
    n -= match == end && n >= end - 1 ? end - 1 : 0; /* "[201~" was added as text */
    while (n && out[n - 1] == '\n')
        n--;
    out[n] = 0;
    return out;
}

static unsigned char key_cancel(EditLine *el, int ch)
{
    struct ntx_editor *e;
    (void)ch;
    el_get(el, EL_CLIENTDATA, &e);
    e->canceled = true;
    el_wpush(el, L"\r"); /* move below all shown lines */
    return CC_NORM;
}

static unsigned char key_paste(EditLine *el, int ch)
{
    struct ntx_editor *e;
    (void)ch;
    el_get(el, EL_CLIENTDATA, &e);
    e->verbatim = true;
    char *text = read_paste(el);
    e->verbatim = false;
    int rc = text && !e->canceled ? insert_text(e, text) : -1;
    free(text);
    if (e->canceled)
        return key_cancel(el, 0);
    if (e->ended)
        return CC_EOF;
    return rc ? CC_ERROR : CC_REFRESH;
}

static unsigned char key_newline(EditLine *el, int ch)
{
    (void)ch;
    return el_winsertstr(el, L"\n") ? CC_ERROR : CC_REFRESH;
}

static unsigned char key_join(EditLine *el, int ch)
{
    struct ntx_editor *e;
    wchar_t cluster[2] = {0};
    (void)ch;
    el_get(el, EL_CLIENTDATA, &e);
    cluster[0] = e->joined;
    e->joined = 0;
    if (!*cluster)
        return CC_ERROR;
    el_deletestr(el, 1);
    return el_winsertstr(el, cluster) ? CC_ERROR : CC_REFRESH;
}

static unsigned char key_redraw(EditLine *el, int ch)
{
    (void)el;
    (void)ch;
    return CC_REDISPLAY;
}

/* ---- the editor */

static char *show_prompt(EditLine *el)
{
    struct ntx_editor *e;
    el_get(el, EL_CLIENTDATA, &e);
    return (char *)(uintptr_t)e->prompt;
}

static void bind_keys(EditLine *el)
{
    el_set(el, EL_EDITOR, "emacs");
    el_source(el, NULL); /* ~/.editrc */
    /* The wide call keeps these strings; the narrow one would leak copies. */
    el_wset(el, EL_ADDFN, L"ntx-paste", L"takes a bracketed paste", key_paste);
    el_wset(el, EL_ADDFN, L"ntx-newline", L"a new line in the text", key_newline);
    el_wset(el, EL_ADDFN, L"ntx-cancel", L"gives the line up", key_cancel);
    el_wset(el, EL_ADDFN, L"ntx-join", L"joins a mark to its character", key_join);
    el_wset(el, EL_ADDFN, L"ntx-redraw", L"draws the line again", key_redraw);
    el_set(el, EL_BIND, "\033[200~", "ntx-paste", NULL);
    el_set(el, EL_BIND, "\033\r", "ntx-newline", NULL);
    el_set(el, EL_BIND, "\033\n", "ntx-newline", NULL);
    el_set(el, EL_BIND, "\003", "ntx-cancel", NULL);
    el_set(el, EL_BIND, "\034", "ntx-redraw", NULL);
    el_set(el, EL_BIND, "\036", "ntx-join", NULL);
    el_set(el, EL_BIND, "\033[3~", "ed-delete-next-char", NULL);
    el_set(el, EL_BIND, "\033[1;5C", "em-next-word", NULL); /* Ctrl-Right, Ctrl-Left */
    el_set(el, EL_BIND, "\033[1;5D", "ed-prev-word", NULL);
    el_set(el, EL_BIND, "\022", "em-inc-search-prev", NULL); /* Ctrl-R */
}

static void add_recent(void *ctx, const char *text)
{
    struct ntx_editor *e = ctx;
    HistEvent ev;
    const char *paste = fold_paste(e, text);
    char *copy = strdup(text), *shown = paste ? ntx_clusters_fold(e->clusters, paste) : NULL;
    if (shown)
        history(e->recent, &ev, H_ENTER, shown);
    free(shown);
    if (copy) {
        free(e->last);
        e->last = copy;
    }
}

/* Multi-byte characters need a locale with an encoding for them; without one, only the encoding is changed. */
static void set_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8"))
        setlocale(LC_CTYPE, "C.UTF-8");
}

static void watch_signals(bool on)
{
    struct sigaction a = {.sa_handler = on ? on_signal : SIG_DFL}; /* without SA_RESTART, so that a signal ends the
                                                                    * wait */
    sigaction(SIGWINCH, &a, NULL);
    sigaction(SIGCONT, &a, NULL);
}

/* Input typed during an answer, or before the first prompt, is not echoed, edited or taken as an end: it is kept for
 * the next line. Ctrl-C works. */
static void silence_terminal(const struct ntx_editor *e)
{
    struct termios t = e->before;
    t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    t.c_iflag &= ~(tcflag_t)ICRNL; /* as the editor sets it */
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

int ntx_editor_open(struct ntx_editor **out, struct ntx_err *err)
{
    struct ntx_editor *e = calloc(1, sizeof *e);
    HistEvent ev;
    set_locale();
    if (!e || tcgetattr(STDIN_FILENO, &e->before) || !(e->clusters = ntx_clusters_new()) ||
        !(e->screen = ntx_clusters_stream(e->clusters, STDERR_FILENO)) ||
        !(e->el = el_init_fd("ntx", stdin, e->screen, stderr, STDIN_FILENO, STDERR_FILENO, STDERR_FILENO)) ||
        !(e->recent = history_init())) {
        ntx_editor_close(e);
        return ntx_err_set(err, -ENOMEM, "the line editor cannot be prepared");
    }
    history(e->recent, &ev, H_SETSIZE, NTX_HISTORY_MOST);
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_PROMPT, show_prompt);
    el_set(e->el, EL_HIST, history, e->recent);
    el_wset(e->el, EL_GETCFN, next_char);
    bind_keys(e->el);
    silence_terminal(e);
    query_terminal(e);
    if (!ntx_history_open(&e->file))
        ntx_history_load(e->file, add_recent, e);
    watch_signals(true);
    write_terminal(paste_on);
    *out = e;
    return 0;
}

void ntx_editor_close(struct ntx_editor *e)
{
    if (!e)
        return;
    if (e->el) {
        watch_signals(false);
        write_terminal(paste_off);
        if (e->whole_set)
            write_terminal(whole_off);
        el_end(e->el);
        tcsetattr(STDIN_FILENO, TCSADRAIN, &e->before);
    }
    if (e->recent)
        history_end(e->recent);
    ntx_history_close(e->file);
    if (e->screen)
        fclose(e->screen);
    ntx_clusters_free(e->clusters);
    for (unsigned i = 0; i < e->n_pastes; i++) {
        free(e->pastes[i].mark);
        free(e->pastes[i].text);
    }
    free(e->pastes);
    free(e->last);
    free(e);
}

int ntx_editor_read(struct ntx_editor *e, const char *prompt, char **text, size_t *n)
{
    int count = 0;
    e->prompt = prompt;
    e->canceled = false;
    const char *line = el_gets(e->el, &count);
    silence_terminal(e);
    *n = line && count > 0 ? strlen(line) : 0;
    if (e->signalled || !*n)
        write_terminal("\n");
    if (e->signalled)
        return -EINTR;
    if (!*n)
        return 0;
    *n -= line[*n - 1] == '\n';
    if (e->canceled)
        return -ECANCELED;
    char *plain = ntx_clusters_unfold(e->clusters, line, *n);
    *text = plain ? unfold_pastes(e, plain, strlen(plain)) : NULL;
    free(plain);
    *n = *text ? strlen(*text) : 0;
    return *text ? 1 : -ENOMEM;
}

void ntx_editor_remember(struct ntx_editor *e, const char *text)
{
    if (!*text || (e->last && !strcmp(e->last, text)))
        return;
    ntx_history_append(e->file, text);
    add_recent(e, text);
}
