/* SPDX-License-Identifier: Apache-2.0 */
/* Lines broken between words, whatever the pieces in which the text comes; and the columns of grapheme clusters. */
#include "client/wrap.h"

#include "client/cluster.h"
#include "tests/lib/check.h"

#define FAMILY "\U0001f468\u200d\U0001f469\u200d\U0001f467" /* man, woman, girl, joined */
#define FLAG   "\U0001f1e9\U0001f1ea"
#define THUMB  "\U0001f44d\U0001f3fd" /* with a skin tone */
#define HEART  "\u2764\ufe0f"         /* as an emoji */
#define ACCENT "e\u0301"

static void put_file(void *arg, const char *text, size_t n) { fwrite(text, 1, n, arg); }

static char *wrapped(const char *text, unsigned width, size_t piece, bool markdown, unsigned indent)
{
    char *out;
    size_t n, len = strlen(text);
    FILE *f = open_memstream(&out, &n);
    CHECK(f);
    struct ntx_wrap *w = ntx_wrap_new(&(struct ntx_wrap_to){put_file, f, markdown, indent});
    CHECK(w);
    for (size_t i = 0, k; i < len; i += k) {
        for (k = piece; i + k < len && (text[i + k] & 0xc0) == 0x80;) /* whole characters */
            k++;
        k = len - i < k ? len - i : k;
        CHECK_EQ(ntx_wrap_text(w, width, text + i, k), 0);
    }
    ntx_wrap_flush(w);
    ntx_wrap_free(w);
    fclose(f);
    return out;
}

static void check(unsigned width, const char *text, const char *want)
{
    for (size_t piece = 1; piece < 40; piece += piece < 8 ? 1 : 31) {
        char *out = wrapped(text, width, piece, true, 0);
        CHECK_STR(out, want);
        free(out);
    }
}

static void words(void)
{
    check(10, "one two three four", "one two\nthree four");
    check(10, "one two   three", "one two\nthree");
    check(10, "one\ntwo\n\nthree", "one\ntwo\n\nthree");
    check(10, "exactly 10 and", "exactly 10\nand");
    check(10, "exactly 10\nand", "exactly 10\nand");
    check(10, "blanks   \nat the end   ", "blanks\nat the end   ");
    check(10, "a verylongwordindeed b", "a\nverylongwordindeed b"); /* the terminal cuts it */
    check(0, "one two three four", "one two three four");
    check(12, "a  b\tc", "a  b\tc");
    char *note = wrapped("ntx: a note of several words\n", 16, 3, false, 5);
    CHECK_STR(note, "ntx: a note of\n     several\n     words\n");
    free(note);
}

static void markdown(void)
{
    check(12, "```c\nint a_long_line = 1;\n```\none two three", "```c\nint a_long_line = 1;\n```\none two\nthree");
    check(12, "~~~\na b c d e f g h\n```\n~~~\none two three", "~~~\na b c d e f g h\n```\n~~~\none two\nthree");
    check(12, "    code that is long\none two three", "    code that is long\none two\nthree");
    check(12, "| a | table | row |\n", "| a | table | row |\n");
    check(12, "- one two three\n", "- one two\n  three\n");
    check(14, "10. one two three\n", "10. one two\n    three\n");
    check(14, "    - one two three\n", "    - one two\n      three\n");
    check(12, "  indented text\n", "  indented\n  text\n");
    check(12, "`a` and `b` and c", "`a` and `b`\nand c");
}

static void wide(void)
{
    check(10, "日本語の文章です", "日本語の文\n章です");
    check(10, "今日は晴。明日", "今日は晴。\n明日");
    check(8, "今日は晴。明日", "今日は\n晴。明日"); /* no line begins with a full stop */
    check(8, "日本「語」です", "日本\n「語」で\nす");
    check(8, "abc 日本語", "abc 日本\n語");
    check(8, "ab" ACCENT "def ghi", "ab" ACCENT "def\nghi");
    check(8, "a b c " FLAG, "a b c " FLAG);
    check(8, "a b c d " FLAG " e", "a b c d\n" FLAG " e");
    check(8, "x \xff\xfe y z w", "x \xff\xfe y z\nw"); /* bytes that are no UTF-8 */
}

/* The last word comes only when it has ended. A narrower window has wrapped the line itself: three columns of "The sky
 * is blue" are on its second line. */
static void streamed(void)
{
    char *out;
    size_t n;
    FILE *f = open_memstream(&out, &n);
    struct ntx_wrap *w = ntx_wrap_new(&(struct ntx_wrap_to){put_file, f, true, 0});
    static const struct {
        unsigned width;
        const char *piece, *shown;
    } step[] = {
        {20, "The sky", "The"},
        {20, " is bl", "The sky is"},
        {20, "ue", "The sky is"},
        {20, " here", "The sky is blue"},
        {12, "", "The sky is blue"},
        {12, " now", "The sky is blue here"},
        {12, "\n", "The sky is blue here now\n"},
    };
    CHECK(f && w);
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        CHECK_EQ(ntx_wrap_text(w, step[i].width, step[i].piece, strlen(step[i].piece)), 0);
        fflush(f);
        CHECK_STR(out, step[i].shown);
    }
    CHECK(!ntx_wrap_midline(w));
    ntx_wrap_free(w);
    fclose(f);
    free(out);
}

/* Whatever the text, the width and the pieces are, only blanks and newlines change. */
static void random_texts(void)
{
    static const char *const parts[] = {
        "a", "bc", " ",      "  ",     "\n", "\t",   "`",    "```",    "~~~",           "|",
        "-", "1.", "\u8a9e", "\u3002", FLAG, FAMILY, ACCENT, "\u0301", "longerthanthis"};
    unsigned r = 1;
    for (unsigned round = 0; round < 3000; round++) {
        char text[1024] = "", want[1024], got[8192];
        for (unsigned k = round % 40; k; k--) {
            r = r * 1664525 + 1013904223;
            strcat(text, parts[(r >> 8) % (sizeof parts / sizeof *parts)]);
        }
        char *out = wrapped(text, 8 + round % 30, 1 + round % 7, true, round % 5);
        size_t n = 0, k = 0;
        for (const char *p = text; *p; p++)
            if (!strchr(" \n\t", *p))
                want[n++] = *p;
        for (const char *p = out; *p && k + 1 < sizeof got; p++)
            if (!strchr(" \n\t", *p))
                got[k++] = *p;
        want[n] = got[k] = 0;
        CHECK_STR(got, want);
        free(out);
    }
}

static void cluster(const char *text, unsigned apart, size_t shown, unsigned whole)
{
    size_t n = strlen(text);
    CHECK_EQ(ntx_cluster_at(text, n), n);
    ntx_cluster_set_whole(false);
    CHECK_EQ(ntx_cluster_columns(text, n), apart);
    CHECK_EQ(ntx_cluster_shown(text, n), shown);
    ntx_cluster_set_whole(true);
    CHECK_EQ(ntx_cluster_columns(text, n), whole);
    CHECK_EQ(ntx_cluster_shown(text, n), n);
    ntx_cluster_set_whole(false);
}

int main(void)
{
    words();
    markdown();
    wide();
    streamed();
    random_texts();
    cluster("a", 1, 1, 1);
    cluster(ACCENT, 1, 3, 1);
    cluster("語", 2, 3, 2);
    cluster(FAMILY, 6, 4, 2);
    cluster(FLAG, 2, 8, 2);
    cluster(THUMB, 4, 4, 2);
    cluster(HEART, 1, 3, 2);
    cluster("\u0915\u093e", 2, 6, 2);       /* a letter of Devanagari with a spacing mark */
    cluster("\u1112\u1161\u11ab", 2, 9, 2); /* a syllable of three jamo */
    CHECK_EQ(ntx_cluster_at(FAMILY "x", sizeof FAMILY), sizeof FAMILY - 1);
    CHECK_EQ(ntx_cluster_at(FLAG FLAG, 16), 8);
    return 0;
}
