/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of thoughts, and the variables by which templates of every family get them. */
#include "model/think.h"
#include "tests/lib/check.h"

static struct ntx_think read_setting(const char *text)
{
    struct ntx_think t;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_think_read(text, &t, &err), "%s: %s", text, err.text);
    return t;
}

static void check_setting(const char *text, enum ntx_think_state state, enum ntx_think_level level, int budget)
{
    struct ntx_think t = read_setting(text);
    CHECK_MSG(t.state == state && t.level == level && t.limited == (budget > 0) &&
                  (!t.limited || t.budget == (uint32_t)budget),
              "%s: state %d, level %d, %s %u", text, (int)t.state, (int)t.level, t.limited ? "limit" : "no limit",
              t.budget);
}

static void test_settings(void)
{
    static const char *const bad[] = {
        "yes", "-2", "1.5", "12x", "on,loud", "99999999999", "on,on,on,on,on,on,on,on,on,on,on,on,on,on,on,on,on,on"};
    check_setting("", NTX_THINK_AUTO, NTX_LEVEL_UNSAID, 0);
    check_setting("on", NTX_THINK_ON, NTX_LEVEL_UNSAID, 0);
    check_setting("off", NTX_THINK_OFF, NTX_LEVEL_UNSAID, 0);
    check_setting("none", NTX_THINK_OFF, NTX_LEVEL_UNSAID, 0);
    check_setting("0", NTX_THINK_OFF, NTX_LEVEL_UNSAID, 0);
    check_setting("-1", NTX_THINK_ON, NTX_LEVEL_UNSAID, 0);
    check_setting("2048", NTX_THINK_ON, NTX_LEVEL_UNSAID, 2048);
    check_setting("xhigh", NTX_THINK_ON, NTX_LEVEL_XHIGH, 0);
    check_setting("on,high,12", NTX_THINK_ON, NTX_LEVEL_HIGH, 12);
    check_setting("auto,low", NTX_THINK_AUTO, NTX_LEVEL_LOW, 0);
    check_setting("off,high,12", NTX_THINK_OFF, NTX_LEVEL_UNSAID, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ntx_think t;
        struct ntx_err err = {0};
        CHECK_MSG(ntx_think_read(bad[i], &t, &err) < 0, "'%s' is taken", bad[i]);
        CHECK_MSG(strstr(err.text, "number of tokens"), "'%s': %s", bad[i], err.text);
    }
    /* what a request leaves open comes from the default, and a default of off goes with `auto` */
    struct ntx_think t = ntx_think_or(read_setting("auto,low"), read_setting("off"));
    CHECK_EQ(t.state, NTX_THINK_OFF);
    t = ntx_think_or(read_setting("on"), read_setting("high,7"));
    CHECK(t.state == NTX_THINK_ON && t.level == NTX_LEVEL_HIGH && t.limited && t.budget == 7);
    t = ntx_think_or(read_setting("off"), read_setting("high,7"));
    CHECK(t.state == NTX_THINK_OFF && !t.level && !t.limited);
}

struct family {
    const char *name, *reads, *text; /* of its template: variables with blanks between, and a part that matters */
    bool marks;
    const char *on, *off, *low, *max, *limit; /* variables of "on", "off", "low", "max" and "64" */
};
static const struct family families[] = {
    {"Qwen 3, GLM, SmolLM3, Gemma 4", " enable_thinking ", "<think>", true, "{\"enable_thinking\":true}",
     "{\"enable_thinking\":false}", "{\"enable_thinking\":true}", "{\"enable_thinking\":true}",
     "{\"enable_thinking\":true}"},
    {"DeepSeek V3.1, Granite, Kimi K2.5", " thinking ", "<think>", true, "{\"thinking\":true}", "{\"thinking\":false}",
     "{\"thinking\":true}", "{\"thinking\":true}", "{\"thinking\":true}"},
    {"gpt-oss", " reasoning_effort ", "set reasoning_effort = \"medium\"", true, "", "{\"reasoning_effort\":\"low\"}",
     "{\"reasoning_effort\":\"low\"}", "{\"reasoning_effort\":\"high\"}", ""},
    {"Mistral Small 4", " reasoning_effort ", "in ['none', 'high']", true, "", "{\"reasoning_effort\":\"none\"}",
     "{\"reasoning_effort\":\"high\"}", "{\"reasoning_effort\":\"high\"}", ""},
    {"Hy", " reasoning_effort ", "in ['no_think', 'low', 'high']", true, "", "{\"reasoning_effort\":\"no_think\"}",
     "{\"reasoning_effort\":\"low\"}", "{\"reasoning_effort\":\"high\"}", ""},
    {"DeepSeek V4", " thinking_mode reasoning_effort ", "'thinking' 'chat' 'high' 'max'", true,
     "{\"thinking_mode\":\"thinking\"}", "{\"thinking_mode\":\"chat\"}",
     "{\"thinking_mode\":\"thinking\",\"reasoning_effort\":\"high\"}",
     "{\"thinking_mode\":\"thinking\",\"reasoning_effort\":\"max\"}", "{\"thinking_mode\":\"thinking\"}"},
    {"MiniMax M3", " thinking_mode ", "'enabled' 'disabled' 'adaptive'", true, "{\"thinking_mode\":\"enabled\"}",
     "{\"thinking_mode\":\"disabled\"}", "{\"thinking_mode\":\"enabled\"}", "{\"thinking_mode\":\"enabled\"}",
     "{\"thinking_mode\":\"enabled\"}"},
    {"Seed", " thinking_budget ", "<seed:think>", true, "", "{\"thinking_budget\":0}", "", "",
     "{\"thinking_budget\":64}"},
    {"DeepSeek R1, MiniMax M2", " ", "<think>", true, "", "", "", "", ""},
    {"one without thoughts", " ", "", false, "", "", "", "", ""},
};

static bool reads_name(void *arg, const char *name)
{
    const struct family *f = arg;
    char word[40];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(f->reads, word) != NULL;
}

static void test_families(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *f = &families[i];
        const struct ntx_think_facts facts = ntx_think_facts(f->text, strlen(f->text), f->marks, reads_name,
                                                             (void *)(uintptr_t)f);
        const char *const settings[] = {"on", "off", "low", "max", "64"}, *const want[] = {f->on, f->off, f->low,
                                                                                           f->max, f->limit};
        for (int k = 0; k < 5; k++) {
            char got[NTX_THINK_VARIABLES];
            struct ntx_think t = read_setting(settings[k]);
            ntx_think_variables(&facts, &t, got);
            CHECK_MSG(!strcmp(got, want[k]), "%s, %s: %s instead of %s", f->name, settings[k], got, want[k]);
        }
        struct ntx_think none = {0};
        char got[NTX_THINK_VARIABLES];
        ntx_think_variables(&facts, &none, got);
        CHECK_STR(got, "");
        /* a setting without effect gets a note, others do not */
        struct ntx_think on = read_setting("on"), off = read_setting("off"), low = read_setting("low"),
                         limit = read_setting("64");
        bool levels = strstr(f->reads, "effort") != NULL;
        CHECK_EQ(ntx_think_thinks(&facts), f->marks);
        CHECK_EQ(ntx_think_lacks(&facts, &on), f->marks ? 0 : NTX_LACKS_STATE);
        CHECK_EQ(ntx_think_lacks(&facts, &off), 0);
        CHECK_EQ(ntx_think_lacks(&facts, &low) & NTX_LACKS_LEVEL, levels ? 0 : NTX_LACKS_LEVEL);
        CHECK_EQ(ntx_think_lacks(&facts, &limit) & NTX_LACKS_BUDGET, f->marks ? 0 : NTX_LACKS_BUDGET);
        CHECK_EQ(*ntx_think_note(&facts, &low) != 0, !levels);
        CHECK_EQ(*ntx_think_note(&facts, &off), 0);
    }
}

int main(void)
{
    test_settings();
    test_families();
    return 0;
}
