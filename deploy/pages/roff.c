/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/pages/roff.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ntx_version.h"

enum { COLUMNS = 78 };

/* Writes one character. Before a letter, a dash that begins a word is one to be typed. */
static void put_char(FILE *f, char c, bool begins)
{
    switch (c) {
    case '\\': fputs("\\e", f); break;
    case '\'': fputs("\\(aq", f); break;
    case '`': fputs("\\(ga", f); break;
    case '^': fputs("\\(ha", f); break;
    case '~': fputs("\\(ti", f); break;
    case '-': fputs(begins ? "\\-" : "-", f); break;
    default: fputc(c, f);
    }
}

static void put_escaped(FILE *f, const char *text, size_t len)
{
    bool begins = true;
    for (size_t i = 0; i < len; i++) {
        put_char(f, text[i], begins);
        begins = text[i] == '-' ? begins : !isalnum((unsigned char)text[i]);
    }
}

/* A name or a line that users type: all dashes are. */
static void put_typed(FILE *f, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        put_char(f, text[i], true);
}

void roff_text(FILE *f, const char *text)
{
    size_t column = 0;
    for (const char *p = text; *p;) {
        const size_t blanks = strspn(p, " \n");
        if (column && memchr(p, '\n', blanks) && memchr(p, '\n', blanks) != memrchr(p, '\n', blanks)) {
            fputs("\n.PP\n", f);
            column = 0;
        }
        p += blanks;
        const size_t len = strcspn(p, " \n");
        if (!len)
            break;
        if (column && column + 1 + len > COLUMNS - 10) { /* escapes take some */
            fputc('\n', f);
            column = 0;
        }
        fputs(column ? " " : "", f);
        fputs(!column && (*p == '.' || *p == '\'') ? "\\&" : "", f);
        put_escaped(f, p, len);
        column += len + 1;
        p += len;
    }
    fputc('\n', f);
}

void roff_item(FILE *f, const char *subject, const char *text)
{
    fputs(".TP\n\\fB", f);
    put_typed(f, subject, strlen(subject));
    fputs("\\fR\n", f);
    roff_text(f, text);
}

void roff_option(FILE *f, const char *name, int key, const char *arg, const char *text)
{
    fputs(".TP\n", f);
    if (key > ' ' && key < 127)
        fprintf(f, "\\fB\\-%c\\fR, ", key);
    fputs("\\fB\\-\\-", f);
    put_typed(f, name, strlen(name));
    fputs(arg ? "\\fR=" : "\\fR", f);
    if (arg) {
        fputs("\\fI", f);
        put_typed(f, arg, strlen(arg));
        fputs("\\fR", f);
    }
    fputc('\n', f);
    roff_text(f, text);
}

void roff_list(FILE *f, const char *title, const char *lines)
{
    char subject[128], text[512];
    if (!lines)
        return;
    fprintf(f, ".SH %s\n", title);
    for (const char *end; (end = strchr(lines, '\n')); lines = end + 1) {
        const size_t n = strcspn(lines, "\t");
        snprintf(subject, sizeof subject, "%.*s", (int)n, lines);
        snprintf(text, sizeof text, "%.*s", (int)(end - lines - (ptrdiff_t)n - 1), lines + n + 1);
        roff_item(f, subject, text);
    }
}

void roff_lines(FILE *f, const char *title, const char *lines)
{
    fprintf(f, ".SH %s\n.EX\n", title);
    for (size_t len; *lines; lines += len + (lines[len] == '\n')) {
        len = strcspn(lines, "\n");
        put_typed(f, lines, len);
        fputc('\n', f);
    }
    fputs(".EE\n", f);
}

void roff_see(FILE *f, const char *pages)
{
    fputs(".SH SEE ALSO\n", f);
    for (size_t len; *pages; pages += strspn(pages, ", ")) {
        len = strcspn(pages, "(");
        fputs(".BR ", f);
        put_typed(f, pages, len);
        const size_t end = strcspn(pages, ",");
        fprintf(f, " %.*s%s\n", (int)(end - len), pages + len, pages[end] ? " ," : "");
        pages += end;
    }
}

FILE *roff_open(const char *dir, const char *name, unsigned section, const char *brief)
{
    static const char *const manuals[] = {[1] = "User Commands", [5] = "File Formats", [8] = "System Administration"};
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/man%u/%s.%u", dir, section, name, section) >= sizeof path)
        return NULL;
    FILE *f = fopen(path, "w");
    if (!f)
        return NULL;
    fputs(".TH ", f);
    for (const char *p = name; *p; p++)
        put_char(f, (char)toupper((unsigned char)*p), true);
    fprintf(f, " %u %s \"ntx %s\" \"%s\"\n.SH NAME\n", section, getenv("NTX_DATE"), NTX_VERSION, manuals[section]);
    put_typed(f, name, strlen(name));
    fputs(" \\- ", f);
    put_escaped(f, brief, strlen(brief));
    fputc('\n', f);
    return f;
}

int roff_close(FILE *f)
{
    const int bad = ferror(f);
    return fclose(f) || bad;
}
