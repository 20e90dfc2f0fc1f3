/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins for grapheme clusters: one wide character each, and the same text afterwards. */
#include "client/commands/chat_clusters.h"

#include <limits.h>
#include <locale.h>
#include <unistd.h>
#include <wchar.h>

#include "client/cluster.h"
#include "tests/lib/check.h"

#define FAMILY "\U0001f468\u200d\U0001f469\u200d\U0001f467"
#define FLAG   "\U0001f1e9\U0001f1ea"

/* wide: characters of libedit's line; columns: what it thinks that they take */
static void fold(struct ntx_clusters *c, const char *text, int wide, int columns)
{
    wchar_t line[64];
    char *folded = ntx_clusters_fold(c, text);
    CHECK(folded);
    CHECK_EQ(mbstowcs(line, folded, 64), wide);
    CHECK_EQ(wcswidth(line, 64), columns);
    char *again = ntx_clusters_unfold(c, folded, strlen(folded));
    CHECK(again);
    CHECK_STR(again, text);
    free(again);
    free(folded);
}

static void join(struct ntx_clusters *c)
{
    static const wchar_t keys[] = {0x1f468, 0x200d, 0x1f469, 0x200d, 0x1f467};
    wchar_t now = keys[0];
    for (unsigned i = 1; i < 5; i++)
        CHECK((now = ntx_clusters_join(c, now, keys[i])));
    char code[MB_LEN_MAX] = "";
    CHECK(wctomb(code, now) > 0);
    char *text = ntx_clusters_unfold(c, code, strlen(code));
    CHECK_STR(text, FAMILY);
    free(text);
    CHECK_EQ(ntx_clusters_join(c, now, 'x'), 0);
    CHECK_EQ(ntx_clusters_join(c, 'x', 'y'), 0);
    CHECK_EQ(ntx_clusters_join(c, '\n', 0x301), 0);
    CHECK(ntx_clusters_join(c, 'e', 0x301));
    CHECK_EQ(ntx_clusters_alone(c, 'e'), 'e');
    CHECK_EQ(ntx_clusters_alone(c, 0x8a9e), 0x8a9e);
    CHECK(ntx_clusters_alone(c, 0x301) != 0x301);
}

/* Also where the bytes of a stand-in come in several writes. */
static void stream(struct ntx_clusters *c, bool whole, const char *want)
{
    int ends[2];
    char got[128] = "";
    ntx_cluster_set_whole(whole);
    char *folded = ntx_clusters_fold(c, "a" FAMILY "b\u0301");
    CHECK(folded && !pipe(ends));
    FILE *f = ntx_clusters_stream(c, ends[1]);
    CHECK(f);
    for (const char *p = folded; *p; p++) {
        fputc(*p, f);
        fflush(f);
    }
    fclose(f);
    close(ends[1]);
    for (size_t n = 0; n < sizeof got - 1 && read(ends[0], got + n, 1) == 1; n++)
        ;
    close(ends[0]);
    CHECK_STR(got, want);
    free(folded);
}

/* More clusters than there are stand-ins: the last ones stay as they are. */
static void many(struct ntx_clusters *c)
{
    char text[8];
    for (unsigned a = 'a'; a <= 'z'; a++)
        for (unsigned mark = 0x300; mark < 0x36f; mark++) {
            snprintf(text, sizeof text, "%c%c%c", (char)a, (char)(0xc0 | mark >> 6), (char)(0x80 | (mark & 0x3f)));
            char *folded = ntx_clusters_fold(c, text);
            char *again = ntx_clusters_unfold(c, folded, strlen(folded));
            CHECK_STR(again, text);
            free(again);
            free(folded);
        }
}

int main(void)
{
    CHECK(setlocale(LC_CTYPE, "C.UTF-8"));
    struct ntx_clusters *c = ntx_clusters_new();
    CHECK(c);
    fold(c, "plain, \u8a9e", 8, 9);
    fold(c, "a" FAMILY "b" FLAG, 4, 6);
    fold(c, "e\u0301x", 2, 2);
    fold(c, "\U00012000\U00030000", 2, 3); /* real letters of the scripts */
    fold(c, "\u0301", 1, 1);               /* a mark alone */
    fold(c, "", 0, 0);
    join(c);
    stream(c, false, "a\U0001f468b\u0301");
    stream(c, true, "a" FAMILY "b\u0301");
    many(c);
    ntx_clusters_free(c);
    return 0;
}
