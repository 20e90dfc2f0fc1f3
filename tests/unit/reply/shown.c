/* SPDX-License-Identifier: Apache-2.0 */
/* How an answer is shown on a terminal and elsewhere. */
#include "client/commands/shown.h"
#include "tests/lib/check.h"

static void check(bool apart, const char *answer, const char *want)
{
    char *text;
    size_t n;
    FILE *real = stdout;
    CHECK((stdout = open_memstream(&text, &n)));
    struct ntx_shown *s = ntx_shown_begin(apart);
    for (const char *p = answer; *p; p++)
        ntx_shown_text(s, p, 1);
    ntx_shown_end(s);
    fclose(stdout);
    stdout = real;
    CHECK_STR(text, want);
    free(text);
}

int main(void)
{
    check(true, "<think>\nHm.\nWell.\n</think>\n\nYes.\n", "\033[2mHm.\nWell.\033[22m\n\nYes.\n");
    check(true, "<think>\nnever done", "\033[2mnever done\033[22m");
    check(true, " no <thought> \n", " no <thought> \n");
    check(false, "<think>\nHm.\n</think>\n\nYes.", "<think>\nHm.\n</think>\n\nYes.");
    return 0;
}
