/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of templates: endless loops, growth, nesting; and the origin of the bytes that they write. */
#include <errno.h>

#include "model/template/template.h"
#include "tests/lib/check.h"

static struct ntx_err err;

static int render(const char *text, const char *variables, const struct ntx_template_limits *limits,
                  struct ntx_template_text *out)
{
    struct ntx_template *t;
    err = (struct ntx_err){0};
    int rc = ntx_template_parse(text, strlen(text), &t, &err);
    if (rc)
        return rc;
    rc = ntx_template_render(t, variables, strlen(variables), limits, out, &err);
    ntx_template_free(t);
    return rc;
}

static void check_refused(const char *text, const struct ntx_template_limits *limits, int want, const char *words)
{
    struct ntx_template_text out = {0};
    CHECK_EQ(render(text, "{}", limits, &out), want);
    CHECK(!out.text);
    CHECK_MSG(strstr(err.text, words), "%s", err.text);
}

/* marks: one character per byte of the text, 'p' for a user's. */
static void check_marks(const char *text, const char *variables, const char *want, const char *marks)
{
    struct ntx_template_text out;
    CHECK_MSG(!render(text, variables, NULL, &out), "%s: %s", text, err.text);
    CHECK_STR(out.text, want);
    CHECK_EQ(out.len, strlen(marks));
    for (size_t i = 0; i < out.len; i++)
        CHECK_MSG(out.people[i] == (marks[i] == 'p'), "%s: byte %zu of %s", text, i, out.text);
    free(out.text);
}

static void check_whose(void)
{
    const char *v = "{\"messages\": [{\"role\": \"user\", \"content\": \"<x>\"}, {\"role\": \"a<\", \"content\": "
                    "[1]}], \"bos_token\": \"<s>\", \"q\": \"ab\", \"n\": 5}";
    check_marks("{{ bos_token }}<{{ messages[0].role }}>{{ messages[0].content }}", v, "<s><user><x>", ".........ppp");
    check_marks("{{ messages[1].role }}{{ n }}{{ messages[1].content }}", v, "a<5[1]", "pp....");
    check_marks("{{ 'x' + q + 'y' }}{{ q[0] }}{{ q ~ q }}{{ q * 2 }}", v, "xabyaabababab", ".pp.ppppppppp");
    check_marks("{{ q | upper }}{{ q | replace('a', '-') }}{{ '-b-' | replace('b', q) }}{{ q[::-1] }}", v, "AB-b-ab-ba",
                "pp.p.pp.pp");
    check_marks("{{ [q, 'c'] }}{{ {'k': q} | tojson }}{{ 'k=%s' % q }}{{ '<{}>'.format(q) }}", v,
                "['ab', 'c']{\"k\": \"ab\"}k=ab<ab>",
                "..pp......."
                ".......pp.."
                "..pp"
                ".pp.");
    check_marks("{% set t %}<{{ q }}>{% endset %}{{ t | trim }}{{ t | length }}{{ ['a', q] | join('+') }}{{ 'a "
                "b'.split(' ')[0] }}",
                v, "<ab>4a+aba",
                ".pp...."
                "pp.");
    check_marks("{{ strftime_now(q) }}", v, "ab", "pp");
    check_marks("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(q) | trim }}{{ (q ~ '|z').split('|') | last }}{{ q | "
                "indent(1, true) }}",
                v, "[ab]z ab", ".pp...pp");
}

static void check_limits(void)
{
    static const atomic_bool stop = true;
    check_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                  &(struct ntx_template_limits){.steps = 200000}, -ENOBUFS, "200000 steps");
    check_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", NULL, -ENOBUFS,
                  "more than");
    check_refused("{% for a in range(9) %}x{% endfor %}", &(struct ntx_template_limits){.steps = 20}, -ENOBUFS,
                  "20 steps");
    check_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                  &(struct ntx_template_limits){.cancel = &stop}, -ECANCELED, "canceled");
    check_refused("{{ 'x' * 999999999 }}", NULL, -ENOBUFS, "MiB");
    check_refused("{{ 'x' * 9223372036854775807 }}", NULL, -ENOBUFS, "MiB");
    check_refused("{{ [1] * 9223372036854775807 }}", NULL, -ENOBUFS, "MiB");
    check_refused(
        "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", NULL,
        -ENOBUFS, "MiB");
    check_refused("{{ 'x' * 4096 }}", &(struct ntx_template_limits){.output = 4095}, -ENOBUFS, "more than");
    check_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL, -ENOBUFS, "deeper");
    check_refused("{% set l = [] %}{{ l.append(l) }}{{ l }}", NULL, -ENOBUFS, "deeper");
    check_refused("{% set l = [] %}{{ l.append(l) }}{{ l | tojson }}", NULL, -ENOBUFS, "deeper");
    check_refused("{% set l = [] %}{% set _ = l.append(l) %}{{ l | map(*(['map'] * 50000)) }}", NULL, -ENOBUFS,
                  "deeper");
    check_refused("{{ {'nan' | float: 1} | tojson(sort_keys=true) }}", NULL, -EINVAL, "NaN");
    check_refused("{% set x = 'a' * 1048576 %}{% for a in range(99999) %}{% if x.isalpha() %}{% endif %}{% endfor %}",
                  &(struct ntx_template_limits){.steps = 3000000}, -ENOBUFS, "steps");
    check_refused("{% set l = [1] * 90000 %}{% for a in range(99999) %}{% if 5 in l %}{% endif %}{% endfor %}",
                  &(struct ntx_template_limits){.steps = 3000000}, -ENOBUFS, "steps");
    check_refused("{{ 9223372036854775807 + 1 }}", NULL, -EINVAL, "too large");
    check_refused("{{ (-9223372036854775807 - 1) // -1 }}", NULL, -EINVAL, "too large");
    check_refused("\n\n{{ x.y }}", NULL, -EINVAL, "line 3: 'x' is undefined");
    check_refused("{{ raise_exception('roles must alternate') }}", NULL, -EINVAL, "roles must alternate");
    check_refused("a\n{% if x %}\n", NULL, -EINVAL, "the block of line 2 has no '{% endif %}'");
}

/* Look-ups of each key among all before it. */
static void check_objects(void)
{
    enum { KEYS = 200000 };
    static const atomic_bool stop = true;
    char *text = malloc(16 * KEYS);
    size_t n = 0;
    for (int i = 0; i < KEYS; i++)
        n += (size_t)sprintf(text + n, "%c\"%06d\":1", i ? ',' : '{', i);
    text[n++] = '}';
    CHECK_EQ(ntx_template_check_object(text, n, NULL, &err), -ENOBUFS);
    CHECK_EQ(ntx_template_check_object(text, n, &stop, &err), -ECANCELED);
    CHECK_EQ(ntx_template_check_object("[]", 2, NULL, &err), -EINVAL);
    CHECK_EQ(ntx_template_check_object("{\"a\": {}}", 9, NULL, &err), 0);
    free(text);
}

static void check_nesting(void)
{
    static char text[3 << 20];
    struct ntx_template *t = NULL;
    size_t n = 0;
    for (int i = 0; i < 100000; i++)
        n += (size_t)sprintf(text + n, "{{%s", i ? "(((" : "");
    CHECK_EQ(ntx_template_parse(text, n, &t, &err), -EINVAL);
    memset(text, '(', 900000);
    memcpy(text, "{{", 2);
    CHECK_EQ(ntx_template_parse(text, 900000, &t, &err), -EINVAL);
    for (n = 0; n < 1000000;)
        n += (size_t)sprintf(text + n, "{%% if 1 %%}");
    CHECK_EQ(ntx_template_parse(text, n, &t, &err), -EINVAL);
    memset(text, 'x', sizeof text);
    CHECK_EQ(ntx_template_parse(text, sizeof text, &t, &err), -EFBIG);
    CHECK(!t);
}

static void check_variables(void)
{
    struct ntx_template_text out = {0};
    static const char *const bad[] = {"",
                                      "[]",
                                      "{",
                                      "{\"a\"}",
                                      "{\"a\": }",
                                      "{\"a\": 1,}",
                                      "{} x",
                                      "{\"a\": \"\\q\"}",
                                      "{\"a\": \"\\u12\"}",
                                      "{\"a\": 01x}",
                                      "{\"a\": nul}",
                                      "{\"a\": \"x}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(render("x", bad[i], NULL, &out) == -EINVAL && err.text[0], "%s", bad[i]);
    CHECK(!render("{{ a }} {{ b }} {{ c | tojson }} {{ d }}",
                  "{\"a\": \"\\u00e9\\ud83d\\ude00\\n\", \"b\": 1e3, \"c\": \"\\u0001\", \"d\": -12}", NULL, &out));
    CHECK_STR(out.text, "é😀\n 1000.0 \"\\u0001\" -12");
    free(out.text);
}

int main(void)
{
    check_whose();
    check_limits();
    check_nesting();
    check_objects();
    check_variables();
    return 0;
}
