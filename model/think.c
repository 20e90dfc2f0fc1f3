/* SPDX-License-Identifier: Apache-2.0 */
#include "model/think.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "common/util.h"

const char *const ntx_level_names[NTX_N_LEVELS] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

/* ---- the families: which variable of a template carries what
 *
 * A switch is set to `on` or `off`, where both words (if they are words) stand in the template's text. A level is the
 * nearest one that the text names; gpt-oss's names its default only, and takes low, medium and high. */
enum carries { SWITCH, LEVEL, BUDGET };
static const struct row {
    const char *variable;
    enum carries carries;
    const char *on, *off; /* of a switch, as JSON */
} table[] = {
    /* Qwen 3 to 3.8, GLM 4.5 to 5.3, SmolLM3 (which writes /no_think into its system text then), Gemma 4, Nemotron 3,
     * MiMo, MiniCPM, Hunyuan A13B */
    {"enable_thinking", SWITCH, "true", "false"},
    /* DeepSeek V3.1 and V3.2, Granite 3.2 and later, Kimi K2.5 and later */
    {"thinking", SWITCH, "true", "false"},
    /* MiniMax M3 */
    {"thinking_mode", SWITCH, "\"enabled\"", "\"disabled\""},
    /* DeepSeek V4 */
    {"thinking_mode", SWITCH, "\"thinking\"", "\"chat\""},
    /* gpt-oss (low, medium, high), Mistral Small 4 (none, high), Hy 3 and 4 (no_think, low, high), DeepSeek V4 (high,
     * max), GLM 5 */
    {"reasoning_effort", LEVEL, NULL, NULL},
    /* Seed-OSS; 0 is off */
    {"thinking_budget", BUDGET, NULL, NULL},
};
enum { N_ROWS = sizeof table / sizeof *table, NO_THINK = NTX_N_LEVELS }; /* NO_THINK: Hy's word for none */

/* ---- settings */

static bool read_number(const char *word, struct ntx_think *t)
{
    char *end;
    errno = 0;
    long long n = strtoll(word, &end, 10);
    if (end == word || *end || errno || n < -1 || n > INT32_MAX)
        return false;
    t->state = n ? NTX_THINK_ON : NTX_THINK_OFF;
    t->limited = n > 0;
    t->budget = n > 0 ? (uint32_t)n : 0;
    return true;
}

static bool read_word(const char *word, struct ntx_think *t)
{
    if (!strcmp(word, "on") || !strcmp(word, "off")) {
        t->state = word[1] == 'n' ? NTX_THINK_ON : NTX_THINK_OFF;
        return true;
    }
    for (int i = 0; i < NTX_N_LEVELS; i++)
        if (!strcmp(word, ntx_level_names[i])) {
            t->state = i ? NTX_THINK_ON : NTX_THINK_OFF;
            t->level = (enum ntx_think_level)i;
            return true;
        }
    return read_number(word, t);
}

int ntx_think_read(const char *text, struct ntx_think *out, struct ntx_err *err)
{
    char copy[NTX_THINK_TEXT];
    struct ntx_think t = {0};
    bool open = false, off = false;
    if (!text || !*text) {
        *out = t;
        return 0;
    }
    snprintf(copy, sizeof copy, "%s", text);
    bool fits = strlen(text) < sizeof copy;
    const char *last = "";
    for (char *save, *word = strtok_r(copy, ",", &save); word && fits; word = strtok_r(NULL, ",", &save)) {
        last = word;
        bool is_auto = !strcmp(word, "auto");
        fits = is_auto || read_word(word, &t);
        open |= is_auto;
        off |= !strcmp(word, "off") || !strcmp(word, "none") || !strcmp(word, "0");
    }
    if (!fits) {
        struct ntx_near near;
        ntx_near_begin(&near, last, "");
        ntx_near_offer_list(&near, "on|off|auto|minimal|low|medium|high|xhigh|max");
        return ntx_err_set(err, -EINVAL,
                           "'%.60s' is none of on, off, auto, minimal, low, medium, high, xhigh, max, and no number of "
                           "tokens (0: off, -1: no limit); several go with commas between%s",
                           text, near.hint);
    }
    if (open)
        t.state = NTX_THINK_AUTO;
    if (off)
        t = (struct ntx_think){.state = NTX_THINK_OFF};
    *out = t;
    return 0;
}

struct ntx_think ntx_think_or(struct ntx_think asked, struct ntx_think preset)
{
    if (asked.state == NTX_THINK_AUTO)
        asked.state = preset.state;
    if (asked.state == NTX_THINK_OFF)
        return (struct ntx_think){.state = NTX_THINK_OFF};
    if (!asked.level)
        asked.level = preset.level;
    if (!asked.limited) {
        asked.limited = preset.limited;
        asked.budget = preset.budget;
    }
    return asked;
}

/* ---- templates */

/* The text has the word as a string of its own. */
static bool has_word(const char *jinja, size_t len, const char *word)
{
    char quoted[2][24];
    snprintf(quoted[0], sizeof quoted[0], "'%s'", word);
    snprintf(quoted[1], sizeof quoted[1], "\"%s\"", word);
    size_t n = strlen(quoted[0]);
    return len && (memmem(jinja, len, quoted[0], n) || memmem(jinja, len, quoted[1], n));
}

/* json: a word in quotes, or true or false. */
static bool has_json(const char *jinja, size_t len, const char *json)
{
    char word[24];
    if (*json != '"')
        return true;
    snprintf(word, sizeof word, "%.*s", (int)strlen(json) - 2, json + 1);
    return has_word(jinja, len, word);
}

struct ntx_think_facts ntx_think_facts(const char *jinja, size_t len, bool marks,
                                       bool (*reads)(void *arg, const char *name), void *arg)
{
    struct ntx_think_facts f = {.marks = marks};
    for (unsigned i = 0; i < N_ROWS; i++) {
        const struct row *r = &table[i];
        bool fits = r->carries != SWITCH || (has_json(jinja, len, r->on) && has_json(jinja, len, r->off));
        f.rows |= fits && reads(arg, r->variable) ? 1u << i : 0;
    }
    for (int i = 0; i < NTX_N_LEVELS; i++)
        f.levels |= (uint16_t)(has_word(jinja, len, ntx_level_names[i]) ? 1u << i : 0);
    f.levels |= (uint16_t)(has_word(jinja, len, "no_think") ? 1u << NO_THINK : 0);
    return f;
}

static bool carries(const struct ntx_think_facts *f, enum carries what)
{
    for (unsigned i = 0; i < N_ROWS; i++)
        if (f->rows >> i & 1 && table[i].carries == what)
            return true;
    return false;
}

bool ntx_think_thinks(const struct ntx_think_facts *f) { return f->rows || f->marks; }

/* A word for none is a switch, too. */
static bool can_say_none(const struct ntx_think_facts *f)
{
    return carries(f, LEVEL) && f->levels & (1u | 1u << NO_THINK);
}

bool ntx_think_switches(const struct ntx_think_facts *f) { return carries(f, SWITCH) || can_say_none(f); }

uint16_t ntx_think_levels(const struct ntx_think_facts *f)
{
    const uint16_t named = f->levels & ((1u << NTX_N_LEVELS) - 2),
                   usual = 1u << NTX_LEVEL_LOW | 1u << NTX_LEVEL_MEDIUM | 1u << NTX_LEVEL_HIGH;
    if (!carries(f, LEVEL))
        return 0;
    /* a single word may be only the default of a template that takes any, as gpt-oss's */
    return can_say_none(f) || named & (named - 1) ? named : named | usual;
}

unsigned ntx_think_lacks(const struct ntx_think_facts *f, const struct ntx_think *t)
{
    bool thinks = ntx_think_thinks(f);
    unsigned lacks = 0;
    if (t->state == NTX_THINK_OFF)
        return 0; /* a thought is closed at once, where there is one */
    if (t->state == NTX_THINK_ON && !thinks)
        lacks |= NTX_LACKS_STATE;
    if (t->level && !ntx_think_levels(f))
        lacks |= NTX_LACKS_LEVEL;
    if (t->limited && !thinks)
        lacks |= NTX_LACKS_BUDGET;
    return lacks;
}

const char *ntx_think_note(const struct ntx_think_facts *f, const struct ntx_think *t)
{
    unsigned lacks = ntx_think_lacks(f, t);
    if (lacks && !ntx_think_thinks(f))
        return "the model's chat template knows no thoughts: think has no effect";
    if (lacks & NTX_LACKS_LEVEL)
        return "the model's chat template has no levels of thinking, only on and off: a number of tokens limits it";
    return "";
}

/* The nearest level that the template knows; of two, the lower one. */
static const char *nearest_level(const struct ntx_think_facts *f, int level)
{
    uint16_t known = ntx_think_levels(f);
    for (int away = 0; away < NTX_N_LEVELS; away++)
        for (int side = -1; side <= 1; side += 2) {
            int at = level + side * away;
            if (at > 0 && at < NTX_N_LEVELS && known >> at & 1)
                return ntx_level_names[at];
        }
    return ntx_level_names[level];
}

/* The variable's value as JSON; NULL: it is not set. */
static const char *value_of(const struct ntx_think_facts *f, const struct ntx_think *t, const struct row *r,
                            char buf[32])
{
    bool off = t->state == NTX_THINK_OFF, on = t->state == NTX_THINK_ON;
    const char *word = NULL;
    switch (r->carries) {
    case SWITCH:
        if (!on && !off)
            return NULL;
        return on ? r->on : r->off;
    case LEVEL:
        if (off && can_say_none(f))
            word = f->levels >> NO_THINK & 1 ? "no_think" : "none";
        else if (off && !carries(f, SWITCH))
            word = nearest_level(f, NTX_LEVEL_MINIMAL); /* as little as there is */
        else if (t->level && !off)
            word = nearest_level(f, (int)t->level);
        snprintf(buf, 32, "\"%s\"", word ? word : "");
        return word ? buf : NULL;
    default: snprintf(buf, 32, "%u", off ? 0 : t->budget); return off || t->limited ? buf : NULL;
    }
}

void ntx_think_variables(const struct ntx_think_facts *f, const struct ntx_think *t, char out[NTX_THINK_VARIABLES])
{
    char buf[32];
    size_t n = 0;
    *out = 0;
    for (unsigned i = 0; i < N_ROWS; i++) {
        const char *value = f->rows >> i & 1 ? value_of(f, t, &table[i], buf) : NULL;
        if (value && n < NTX_THINK_VARIABLES)
            n += (size_t)snprintf(out + n, NTX_THINK_VARIABLES - n, "%c\"%s\":%s", n ? ',' : '{', table[i].variable,
                                  value);
    }
    if (n)
        snprintf(out + n, NTX_THINK_VARIABLES - n, "}");
}
