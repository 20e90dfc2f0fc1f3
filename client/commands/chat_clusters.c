/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/chat_clusters.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <wctype.h>

#include "client/cluster.h"
#include "common/util.h"

/* Letters of one width each, so that libedit's commands for words work: Cuneiform, Anatolian hieroglyphs, Bamum
 * supplement; CJK extension G. Such a letter in a text gets a stand-in, too. */
static const struct {
    wchar_t first, last;
    unsigned columns;
} scripts[] = {{0x12000, 0x12399, 1}, {0x14400, 0x14646, 1}, {0x16800, 0x16a38, 1}, {0x30000, 0x3134a, 2}};
enum { N_SCRIPTS = sizeof scripts / sizeof *scripts, ONE_CLUSTER = 256 };

struct ntx_clusters {
    char **text[N_SCRIPTS]; /* of each stand-in in use, in order */
    unsigned used[N_SCRIPTS];
    int fd;       /* the stream's */
    char part[8]; /* bytes of a character that the stream has not got all of */
    size_t n_part;
};

struct ntx_clusters *ntx_clusters_new(void) { return calloc(1, sizeof(struct ntx_clusters)); }

void ntx_clusters_free(struct ntx_clusters *c)
{
    for (unsigned s = 0; c && s < N_SCRIPTS; s++) {
        while (c->used[s])
            free(c->text[s][--c->used[s]]);
        free(c->text[s]);
    }
    free(c);
}

static unsigned script_size(unsigned s) { return (unsigned)(scripts[s].last - scripts[s].first) + 1; }

static bool may_stand_in(wchar_t w)
{
    for (unsigned s = 0; s < N_SCRIPTS; s++)
        if (w >= scripts[s].first && w <= scripts[s].last)
            return true;
    return false;
}

/* NULL: the character is no stand-in. */
static const char *text_of(const struct ntx_clusters *c, wchar_t w)
{
    for (unsigned s = 0; s < N_SCRIPTS; s++)
        if (w >= scripts[s].first && w - scripts[s].first < (wchar_t)c->used[s])
            return c->text[s][w - scripts[s].first];
    return NULL;
}

static int add_cluster(struct ntx_clusters *c, unsigned s, const char *p, size_t n)
{
    char **more = realloc(c->text[s], (c->used[s] + 1) * sizeof *more), *copy = more ? strndup(p, n) : NULL;
    if (more)
        c->text[s] = more;
    if (!copy)
        return -1;
    more[c->used[s]++] = copy;
    return 0;
}

/* Columns of the part of a cluster that is shown. A mark without a letter is shown on a dotted circle. */
static unsigned shown_columns(const char *p, size_t n)
{
    unsigned columns = ntx_cluster_columns(p, ntx_cluster_shown(p, n));
    return columns ? columns : 1;
}

/* The stand-in of a cluster; 0: there is none. */
static wchar_t find_stand_in(struct ntx_clusters *c, const char *p, size_t n)
{
    unsigned columns = shown_columns(p, n), free_one = N_SCRIPTS;
    for (unsigned s = 0; s < N_SCRIPTS; s++) {
        for (unsigned i = 0; i < c->used[s]; i++)
            if (!strncmp(c->text[s][i], p, n) && !c->text[s][i][n])
                return scripts[s].first + (wchar_t)i;
        if (free_one == N_SCRIPTS && scripts[s].columns == columns && c->used[s] < script_size(s))
            free_one = s;
    }
    if (free_one == N_SCRIPTS || add_cluster(c, free_one, p, n))
        return 0;
    return scripts[free_one].first + (wchar_t)c->used[free_one] - 1;
}

static size_t put_point(wchar_t w, char out[4]) { return (size_t)utf8proc_encode_char(w, (utf8proc_uint8_t *)out); }

/* One code point that libedit shows as it is. */
static bool is_plain(const char *p, size_t n)
{
    int32_t w;
    if (utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)n, &w) != (utf8proc_ssize_t)n)
        return (unsigned char)*p >= 0x80 && n == 1; /* a wrong byte stays */
    if (w < 0x80)
        return true;
    return !may_stand_in(w) && iswprint((wint_t)w) && wcwidth(w) > 0;
}

char *ntx_clusters_fold(struct ntx_clusters *c, const char *text)
{
    char *out = NULL, code[4];
    size_t n_out = 0, left = strlen(text);
    FILE *f = open_memstream(&out, &n_out);
    if (!f)
        return NULL;
    for (size_t n; left; text += n, left -= n) {
        n = *text == '\r' || *text == '\n' ? 1 : ntx_cluster_at(text, left);
        wchar_t w = is_plain(text, n) ? 0 : find_stand_in(c, text, n);
        if (w)
            fwrite(code, 1, put_point(w, code), f);
        else
            fwrite(text, 1, n, f);
    }
    if (!fclose(f))
        return out;
    free(out);
    return NULL;
}

/* Writes p[0..n) with clusters in place of stand-ins. Returns the bytes taken: a part of a character at the end is
 * left. shown: only the part of a cluster that the terminal shows. */
static size_t write_unfolded(const struct ntx_clusters *c, const char *p, size_t n, bool shown, FILE *f)
{
    size_t at = 0;
    while (at < n) {
        int32_t w;
        size_t k = 1;
        const char *text = NULL;
        if (((unsigned char)p[at] & 0xf8) == 0xf0) {
            if (n - at < 4)
                break;
            utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)p + at, 4, &w);
            k = got > 0 ? (size_t)got : 1;
            text = got > 0 ? text_of(c, w) : NULL;
        }
        if (text && shown) {
            size_t part = ntx_cluster_shown(text, strlen(text));
            if (!ntx_cluster_columns(text, part))
                fputs("\u25cc", f);
            fwrite(text, 1, part, f);
        } else if (text) {
            fputs(text, f);
        } else {
            fwrite(p + at, 1, k, f);
        }
        at += k;
    }
    return at;
}

char *ntx_clusters_unfold(const struct ntx_clusters *c, const char *text, size_t n)
{
    char *out = NULL;
    size_t n_out = 0;
    FILE *f = open_memstream(&out, &n_out);
    if (!f)
        return NULL;
    size_t taken = write_unfolded(c, text, n, false, f);
    fwrite(text + taken, 1, n - taken, f);
    if (!fclose(f))
        return out;
    free(out);
    return NULL;
}

wchar_t ntx_clusters_join(struct ntx_clusters *c, wchar_t before, wchar_t next)
{
    char both[ONE_CLUSTER], code[4];
    const char *text = text_of(c, before);
    size_t n = text ? strlen(text) : put_point(before, code), k;
    if (before < ' ' || next < 0x80 || n + 4 > sizeof both)
        return 0;
    memcpy(both, text ? text : code, n);
    k = put_point(next, both + n);
    return ntx_cluster_at(both, n + k) == n + k ? find_stand_in(c, both, n + k) : 0;
}

wchar_t ntx_clusters_alone(struct ntx_clusters *c, wchar_t one)
{
    char code[4];
    if (one < 0x80)
        return one;
    size_t n = put_point(one, code);
    wchar_t w = is_plain(code, n) ? one : find_stand_in(c, code, n);
    return w ? w : one;
}

/* ---- the stream */

static ssize_t write_shown(void *cookie, const char *p, size_t n)
{
    struct ntx_clusters *c = cookie;
    char *out = NULL, *all = malloc(c->n_part + n);
    size_t n_out = 0, n_all = c->n_part + n;
    FILE *f = all ? open_memstream(&out, &n_out) : NULL;
    if (f) {
        memcpy(all, c->part, c->n_part);
        memcpy(all + c->n_part, p, n);
        size_t taken = write_unfolded(c, all, n_all, true, f);
        c->n_part = n_all - taken; /* at most 3 */
        memcpy(c->part, all + taken, c->n_part);
        if (!fclose(f))
            ntx_write_all(c->fd, out, n_out);
    }
    free(out);
    free(all);
    return (ssize_t)n;
}

FILE *ntx_clusters_stream(struct ntx_clusters *c, int fd)
{
    c->fd = fd;
    return fopencookie(c, "w", (cookie_io_functions_t){.write = write_shown});
}
