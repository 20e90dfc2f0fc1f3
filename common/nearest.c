/* SPDX-License-Identifier: Apache-2.0 */
#include "common/nearest.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LONGEST 255

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static int lower(char c) { return tolower((unsigned char)c); }

/* Optimal string alignment (Damerau 1964, without edits within a swapped pair); keeps three lines of its table. */
static size_t edit_distance(const char *a, const char *b, size_t m)
{
    size_t n = strlen(a), rows[3][LONGEST + 1];
    if (n > LONGEST || m > LONGEST)
        return SIZE_MAX;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *two = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            int x = lower(a[i - 1]), y = lower(b[j - 1]);
            now[j] = smaller(smaller(before[j], now[j - 1]) + 1, before[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y)
                now[j] = smaller(now[j], two[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

/* SIZE_MAX if half of a word's letters differ, the first among them: "port" is no "cors". */
static size_t distance(const char *word, const char *name, size_t len)
{
    const size_t d = edit_distance(word, name, len);
    return lower(*word) != lower(*name) && d < SIZE_MAX && 2 * d >= strlen(word) ? SIZE_MAX : d;
}

/* Least number of edits that is too many. */
static size_t too_many(const char *word) { return (strlen(word) + 2) / 3 + 1; }

void ntx_near_begin(struct ntx_near *n, const char *word, const char *head)
{
    *n = (struct ntx_near){.word = word, .head = head, .few = too_many(word)};
}

void ntx_near_offer(struct ntx_near *n, const char *name, size_t len)
{
    size_t d = distance(n->word, name, len), typed = strlen(n->word);
    if (typed > 1 && typed < len && !strncasecmp(n->word, name, typed)) /* its beginning */
        d = 1;
    if (d >= n->few)
        return;
    n->few = d;
    snprintf(n->hint, sizeof n->hint, "; did you mean %s%.*s?", n->head, (int)len, name);
}

void ntx_near_offer_list(struct ntx_near *n, const char *words)
{
    for (size_t len; *words; words += strspn(words, "|, ")) {
        len = strcspn(words, "|, ");
        ntx_near_offer(n, words, len);
        words += len;
    }
}

static void keep_nearer(const char *word, const char *name, size_t *few, const char **best)
{
    size_t d = distance(word, name, strlen(name));
    if (d >= *few)
        return;
    *few = d;
    *best = name;
}

const char *ntx_nearest(const char *word, const char *(*at)(size_t i), size_t count)
{
    const char *best = NULL;
    size_t few = too_many(word);
    for (size_t i = 0; i < count; i++)
        keep_nearer(word, at(i), &few, &best);
    return best;
}

const char *ntx_nearest_of(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t few = too_many(word);
    for (size_t i = 0; i < count; i++)
        keep_nearer(word, names[i], &few, &best);
    return best;
}
