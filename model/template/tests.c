/* SPDX-License-Identifier: Apache-2.0 */
/* tests.c: the table of tests ("x is defined"). */
#include <errno.h>

#include <utf8proc.h>

#include "model/template/tpl.h"

static struct val first(struct ntx__tpl *t, const struct args *a)
{
    if (!a->n)
        ntx__tpl_fail(t, -EINVAL, "a test lacks what it compares with");
    return a->v[0];
}

static bool all_case(const struct str *s, bool upper)
{
    bool any = false;
    uint32_t c;
    for (size_t i = 0; i < s->n;) {
        i += ntx__tpl_char(s->p + i, s->n - i, &c);
        bool is_upper = utf8proc_tolower((utf8proc_int32_t)c) != (utf8proc_int32_t)c,
             is_lower = utf8proc_toupper((utf8proc_int32_t)c) != (utf8proc_int32_t)c;
        if (upper ? is_lower : is_upper)
            return false;
        any |= upper ? is_upper : is_lower;
    }
    return any;
}

#define TEST(name, condition)                                                                                          \
    static bool t_##name(struct ntx__tpl *t, struct val v, const struct args *a)                                       \
    {                                                                                                                  \
        (void)t;                                                                                                       \
        (void)a;                                                                                                       \
        return condition;                                                                                              \
    }

TEST(defined, v.type != V_UNDEF)
TEST(undefined, v.type == V_UNDEF)
TEST(none, v.type == V_NONE)
TEST(string, v.type == V_STR)
TEST(mapping, v.type == V_DICT)
TEST(iterable, v.type == V_UNDEF || (v.type >= V_STR && v.type <= V_DICT))
TEST(number, v.type == V_INT || v.type == V_FLOAT || v.type == V_BOOL)
TEST(integer, v.type == V_INT)
TEST(float, v.type == V_FLOAT)
TEST(boolean, v.type == V_BOOL)
TEST(true, v.type == V_BOOL && v.b)
TEST(false, v.type == V_BOOL && !v.b)
TEST(callable, v.type >= V_MACRO)
TEST(odd, ntx__tpl_truth(ntx__tpl_binary(t, OP_MOD, v, ntx__tpl_int(2))))
TEST(even, !ntx__tpl_truth(ntx__tpl_binary(t, OP_MOD, v, ntx__tpl_int(2))))
TEST(divisibleby, !ntx__tpl_truth(ntx__tpl_binary(t, OP_MOD, v, first(t, a))))
TEST(eq, ntx__tpl_equal(t, v, first(t, a)))
TEST(ne, !ntx__tpl_equal(t, v, first(t, a)))
TEST(lt, ntx__tpl_order(t, v, first(t, a)) < 0)
TEST(le, ntx__tpl_order(t, v, first(t, a)) <= 0)
TEST(gt, ntx__tpl_order(t, v, first(t, a)) > 0)
TEST(ge, ntx__tpl_order(t, v, first(t, a)) >= 0)
TEST(in, ntx__tpl_in(t, v, first(t, a)))
TEST(sameas, v.type == first(t, a).type && ntx__tpl_equal(t, v, first(t, a)))
TEST(lower, all_case(ntx__tpl_string(t, v), false))
TEST(upper, all_case(ntx__tpl_string(t, v), true))
TEST(filter, ntx__tpl_has_filter(ntx__tpl_string(t, v)))
TEST(test, ntx__tpl_has_test(ntx__tpl_string(t, v)))

static const struct {
    const char *name;
    bool (*test)(struct ntx__tpl *t, struct val v, const struct args *a);
} rows[] = {
    {"defined", t_defined},
    {"undefined", t_undefined},
    {"none", t_none},
    {"string", t_string},
    {"mapping", t_mapping},
    {"iterable", t_iterable},
    {"sequence", t_iterable},
    {"number", t_number},
    {"integer", t_integer},
    {"float", t_float},
    {"boolean", t_boolean},
    {"true", t_true},
    {"false", t_false},
    {"callable", t_callable},
    {"odd", t_odd},
    {"even", t_even},
    {"divisibleby", t_divisibleby},
    {"eq", t_eq},
    {"equalto", t_eq},
    {"==", t_eq},
    {"ne", t_ne},
    {"!=", t_ne},
    {"lt", t_lt},
    {"lessthan", t_lt},
    {"<", t_lt},
    {"le", t_le},
    {"<=", t_le},
    {"gt", t_gt},
    {"greaterthan", t_gt},
    {">", t_gt},
    {"ge", t_ge},
    {">=", t_ge},
    {"in", t_in},
    {"sameas", t_sameas},
    {"lower", t_lower},
    {"upper", t_upper},
    {"filter", t_filter},
    {"test", t_test},
};

bool ntx__tpl_has_test(const struct str *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (ntx__tpl_is(name, rows[i].name))
            return true;
    return false;
}

bool ntx__tpl_test(struct ntx__tpl *t, const struct str *name, struct val v, const struct args *a)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (ntx__tpl_is(name, rows[i].name)) {
            ntx__tpl_charge_text(t, v);
            return rows[i].test(t, v, a);
        }
    ntx__tpl_fail(t, -EINVAL, "there is no test '%.*s'", (int)(name->n < 40 ? name->n : 40), name->p);
}
