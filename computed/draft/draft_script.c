/* SPDX-License-Identifier: Apache-2.0 */
/* A scripted drafter for tests and measurements: it knows the answers, and drafts them with given chances. So the cost
 * and gain of trees can be measured apart from the quality of a drafter.
 *
 *   ntx-script 1
 *   chance 0.9 0.8       chance that the next token is drafted, by depth; the last one is for all deeper ones
 *   beside 2             number of wrong drafts beside each
 *   seed 7
 *   text 12 55 90        the tokens of an answer; one line for each possible answer
 *
 * An answer follows the first line that begins with its tokens so far. Seed and place decide once whether a token is
 * drafted. If not, the tree has another token in its place, and goes on below it with the right ones. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/draft/drafter_file_impl.h"

#define DEPTHS      64u
#define BESIDE_MOST 16u

struct line {
    uint32_t first, n; /* in tokens */
};

struct script {
    double chance[DEPTHS];
    uint32_t n_chances, beside;
    uint64_t seed;
    int32_t *tokens;
    struct line *line;
    uint32_t n_lines, n_tokens;
};

static void free_script(void *self)
{
    struct script *s = self;
    free(s->tokens);
    free(s->line);
    free(s);
}

/* Takes the next number of a line; false: there is none. */
static bool take_number(char **at, double *x)
{
    char *end;
    *x = strtod(*at, &end);
    bool got = end != *at;
    *at = end;
    return got;
}

static bool at_end(const char *at) { return !at[strspn(at, " \r")]; }

static int take_text(struct script *s, char *at, uint32_t n_vocab)
{
    struct line *l = &s->line[s->n_lines++];
    double x;
    *l = (struct line){.first = s->n_tokens};
    while (take_number(&at, &x)) {
        if (!(x >= 0 && x < n_vocab))
            return -ERANGE;
        s->tokens[s->n_tokens++] = (int32_t)x;
        l->n++;
    }
    return at_end(at) ? 0 : -EINVAL;
}

static int take_chances(struct script *s, char *at)
{
    double x;
    for (s->n_chances = 0; s->n_chances < DEPTHS && take_number(&at, &x); s->n_chances++) {
        if (!(x > 0 && x <= 1))
            return -ERANGE;
        s->chance[s->n_chances] = x;
    }
    return !at_end(at) || !s->n_chances ? -EINVAL : 0;
}

static int take_line(struct script *s, char *line, uint32_t n_vocab)
{
    double x = 0;
    size_t key = strcspn(line, " ");
    char *at = line + key;
    if (!strncmp(line, "text", key) && key == 4)
        return take_text(s, at, n_vocab);
    if (!strncmp(line, "chance", key) && key == 6)
        return take_chances(s, at);
    bool beside = key == 6 && !strncmp(line, "beside", key), seed = key == 4 && !strncmp(line, "seed", key);
    if (!*line || (!beside && !seed))
        return *line ? -EINVAL : 0;
    if (!take_number(&at, &x) || !at_end(at) || !(x >= 0 && x <= (beside ? BESIDE_MOST : 1e15)))
        return -EINVAL;
    s->beside = beside ? (uint32_t)x : s->beside;
    s->seed = seed ? (uint64_t)x : s->seed;
    return 0;
}

static int take_lines(struct script *s, char *text, uint32_t n_vocab, struct ntx_err *err)
{
    unsigned n = 0;
    for (char *line = text, *next; line; line = next) {
        char *end = strchr(line, '\n');
        next = end ? end + 1 : NULL;
        if (end)
            *end = 0;
        if (!n++ && strcmp(line, "ntx-script 1"))
            return ntx_err_set(err, -EINVAL, "a script of another version: its first line is not 'ntx-script 1'");
        int rc = n == 1 ? 0 : take_line(s, line, n_vocab);
        if (rc)
            return ntx_err_set(err, rc, "line %u of the script: %s", n,
                               rc == -ERANGE ? "a number is out of bounds"
                                             : "it is none of chance, beside, seed and text with their numbers");
    }
    return 0;
}

static int open_script(uint8_t *bytes, size_t n, uint32_t n_vocab, uint64_t vocab, void **self, struct ntx_err *err)
{
    struct script *s = calloc(1, sizeof *s);
    size_t lines = 1;
    (void)vocab;
    for (size_t i = 0; i < n; i++)
        lines += bytes[i] == '\n';
    if (!s || !(s->tokens = malloc((n / 2 + 1) * sizeof *s->tokens)) || !(s->line = malloc(lines * sizeof *s->line))) {
        if (s)
            free_script(s);
        return ntx_err_set(err, -ENOMEM, "no memory");
    }
    s->chance[0] = 1;
    s->n_chances = 1;
    int rc = memchr(bytes, 0, n) ? ntx_err_set(err, -EINVAL, "a script is text")
                                 : take_lines(s, (char *)bytes, n_vocab, err);
    if (rc) {
        free_script(s);
        return rc;
    }
    free(bytes);
    *self = s;
    return 0;
}

/* A uniform number in [0, 1), by seed and place. */
static double uniform_at(const struct script *s, uint32_t line, uint32_t at)
{
    uint64_t x = s->seed * 0x9e3779b97f4a7c15u + ((uint64_t)line << 32 | at) + 1;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) / 9007199254740992.0;
}

static const struct line *find_line(const struct script *s, const struct ntx_drafter_file_text *t)
{
    uint32_t n = t->n - t->n_prompt;
    for (uint32_t i = 0; i < s->n_lines; i++)
        if (s->line[i].n > n && !memcmp(s->tokens + s->line[i].first, t->tokens + t->n_prompt, n * sizeof *s->tokens))
            return &s->line[i];
    return NULL;
}

static uint32_t script_tree(const void *self, const struct ntx_drafter_file_text *t, struct ntx_draft_node *out)
{
    const struct script *s = self;
    const struct line *l = find_line(s, t);
    uint32_t n = 1, up = 0, at = t->n - t->n_prompt;
    for (uint32_t k = 0; l && k < DEPTHS && at + k < l->n; k++) {
        double chance = s->chance[NTX_MIN(k, s->n_chances - 1)];
        uint32_t token = (uint32_t)s->tokens[l->first + at + k],
                 right = uniform_at(s, (uint32_t)(l - s->line), at + k) < chance ? 0 : 1, next = n;
        n = ntx__draft_node_add(out, n, up, (int32_t)((token + right) % t->n_vocab), (float)chance);
        for (uint32_t b = 0; b < s->beside; b++)
            n = ntx__draft_node_add(out, n, up, (int32_t)((token + 2 + b) % t->n_vocab),
                                    (float)((1 - chance) / (s->beside + 1)));
        up = next;
    }
    return n;
}

const struct ntx_drafter_file_ops ntx__draft_script = {open_script, script_tree, free_script};
