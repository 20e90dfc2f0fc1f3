/* SPDX-License-Identifier: Apache-2.0 */
/* methods.c: the table of methods by type, and the text operations behind them. */
#include <errno.h>

#include <utf8proc.h>

#include "model/template/tpl.h"

static const struct val nothing = {.type = V_NONE};

/* ---- text */

static bool among(uint32_t c, struct val chars)
{
    if (chars.type != V_STR)
        return ntx__tpl_space(c);
    uint32_t x;
    for (size_t i = 0; i < chars.s->n;) {
        i += ntx__tpl_char(chars.s->p + i, chars.s->n - i, &x);
        if (x == c)
            return true;
    }
    return false;
}

struct val ntx__tpl_strip(struct ntx__tpl *t, const struct str *s, struct val chars, bool left, bool right)
{
    size_t from = 0, to = 0, n;
    uint32_t c;
    bool begun = !left;
    ntx__tpl_charge(t, s->n * (chars.type == V_STR ? chars.s->n + 1 : 1));
    for (size_t i = 0; i < s->n; i += n) {
        n = ntx__tpl_char(s->p + i, s->n - i, &c);
        bool drop = among(c, chars);
        if (!begun && !drop) {
            begun = true;
            from = i;
        }
        if (!drop)
            to = i + n;
    }
    if (!begun)
        from = s->n;
    return ntx__tpl_sub(t, s, from, right ? to : s->n);
}

struct val ntx__tpl_replace(struct ntx__tpl *t, const struct str *s, const struct str *old, const struct str *by,
                            int64_t most)
{
    struct buf b = {0};
    const uint8_t *marks = ntx__tpl_marks(s);
    size_t at = 0;
    uint32_t c;
    for (; most && at <= s->n; most -= most > 0) {
        const char *found = old->n ? memmem(s->p + at, s->n - at, old->p, old->n) : s->p + at;
        if (!found)
            break;
        size_t to = (size_t)(found - s->p), skip = old->n;
        ntx__tpl_add(t, &b, s->p + at, to - at, marks + at);
        ntx__tpl_add_str(t, &b, by);
        if (!skip && to < s->n) { /* an empty pattern matches between all characters */
            skip = ntx__tpl_char(found, s->n - to, &c);
            ntx__tpl_add(t, &b, found, skip, marks + to);
        }
        at = to + (skip ? skip : 1);
    }
    if (at < s->n)
        ntx__tpl_add(t, &b, s->p + at, s->n - at, marks + at);
    return ntx__tpl_taken(t, &b);
}

static bool letter_of_case(uint32_t c)
{
    return utf8proc_tolower((utf8proc_int32_t)c) != (utf8proc_int32_t)c ||
           utf8proc_toupper((utf8proc_int32_t)c) != (utf8proc_int32_t)c;
}

/* words: a word begins after white space or an opening bracket (filter title), else after a non-letter (method
 * title). */
static struct val cased(struct ntx__tpl *t, const struct str *s, uint32_t (*change)(uint32_t c, bool word), bool words)
{
    struct buf b = {0};
    bool inside = false;
    uint32_t c;
    for (size_t i = 0, n; i < s->n; i += n) {
        char text[4];
        uint8_t marks[4];
        n = ntx__tpl_char(s->p + i, s->n - i, &c);
        uint32_t d = c == 0xfffd ? c : change(c, inside);
        memset(marks, ntx__tpl_marks(s)[i], sizeof marks);
        if (d == c)
            ntx__tpl_add(t, &b, s->p + i, n, ntx__tpl_marks(s) + i);
        else
            ntx__tpl_add(t, &b, text, ntx__tpl_put_char(d, text), marks);
        const char ascii = c < 0x80 && c ? (char)c : 'x';
        inside = words ? !strchr("-({[<", ascii) && !ntx__tpl_space(c) : letter_of_case(c);
    }
    return ntx__tpl_taken(t, &b);
}

static uint32_t to_upper(uint32_t c, bool word)
{
    (void)word;
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
}

static uint32_t to_lower(uint32_t c, bool word)
{
    (void)word;
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

static uint32_t to_title(uint32_t c, bool word)
{
    return word ? to_lower(c, word) : (uint32_t)utf8proc_totitle((utf8proc_int32_t)c);
}

struct val ntx__tpl_upper(struct ntx__tpl *t, const struct str *s) { return cased(t, s, to_upper, false); }
struct val ntx__tpl_lower(struct ntx__tpl *t, const struct str *s) { return cased(t, s, to_lower, false); }
struct val ntx__tpl_title(struct ntx__tpl *t, const struct str *s, bool words) { return cased(t, s, to_title, words); }

struct val ntx__tpl_capital(struct ntx__tpl *t, const struct str *s)
{
    size_t first = ntx__tpl_offset(s->p, s->n, 1);
    return ntx__tpl_binary(t, OP_ADD, ntx__tpl_title(t, ntx__tpl_sub(t, s, 0, first).s, false),
                           ntx__tpl_lower(t, ntx__tpl_sub(t, s, first, s->n).s));
}

struct val ntx__tpl_lines(struct ntx__tpl *t, const struct str *s, bool keep_ends)
{
    struct val r = ntx__tpl_list(t, 0);
    size_t from = 0;
    uint32_t c;
    for (size_t i = 0, n; i < s->n; i += n) {
        n = ntx__tpl_char(s->p + i, s->n - i, &c);
        if (!ntx__tpl_line_end(c))
            continue;
        size_t end = i;
        n += c == '\r' && i + 1 < s->n && s->p[i + 1] == '\n';
        ntx__tpl_push(t, r.l, ntx__tpl_sub(t, s, from, keep_ends ? i + n : end));
        from = i + n;
    }
    if (from < s->n)
        ntx__tpl_push(t, r.l, ntx__tpl_sub(t, s, from, s->n));
    return r;
}

struct val ntx__tpl_escape(struct ntx__tpl *t, const struct str *s)
{
    static const char from[] = "&<>\"'";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    struct buf b = {0};
    for (size_t i = 0; i < s->n; i++) {
        const char *f = s->p[i] ? strchr(from, s->p[i]) : NULL;
        if (f)
            ntx__tpl_add_text(t, &b, to[f - from]);
        else
            ntx__tpl_add(t, &b, s->p + i, 1, ntx__tpl_marks(s) + i);
    }
    return ntx__tpl_taken(t, &b);
}

/* ---- methods of str */

#define METHOD(name) static struct val m_##name(struct ntx__tpl *t, struct val self, const struct args *a)
#define PLAIN(name, result)                                                                                            \
    METHOD(name)                                                                                                       \
    {                                                                                                                  \
        (void)t;                                                                                                       \
        (void)a;                                                                                                       \
        return result;                                                                                                 \
    }

static const struct str *text_arg(struct ntx__tpl *t, const struct args *a, size_t place, const char *name)
{
    struct val v = ntx__tpl_given(a, place, name, (struct val){0});
    if (v.type == V_UNDEF)
        ntx__tpl_undefined(t, v);
    if (v.type != V_STR)
        ntx__tpl_fail(t, -EINVAL, "a str is wanted, not a %s", ntx__tpl_type(v));
    return v.s;
}

PLAIN(strip, ntx__tpl_strip(t, self.s, ntx__tpl_given(a, 0, "chars", nothing), true, true))
PLAIN(lstrip, ntx__tpl_strip(t, self.s, ntx__tpl_given(a, 0, "chars", nothing), true, false))
PLAIN(rstrip, ntx__tpl_strip(t, self.s, ntx__tpl_given(a, 0, "chars", nothing), false, true))
PLAIN(upper, ntx__tpl_upper(t, self.s))
PLAIN(lower, ntx__tpl_lower(t, self.s))
PLAIN(title, ntx__tpl_title(t, self.s, false))
PLAIN(capitalize, ntx__tpl_capital(t, self.s))
PLAIN(splitlines, ntx__tpl_lines(t, self.s, ntx__tpl_truth(ntx__tpl_given(a, 0, "keepends", nothing))))
PLAIN(replace, ntx__tpl_replace(t, self.s, text_arg(t, a, 0, "old"), text_arg(t, a, 1, "new"),
                                ntx__tpl_given_int(t, a, 2, "count", -1)))
PLAIN(format, ntx__tpl_str_format(t, self.s, a))

/* Splits at white space; most < 0: no limit. */
static struct val split_blanks(struct ntx__tpl *t, const struct str *s, int64_t most)
{
    struct val r = ntx__tpl_list(t, 0);
    size_t from = 0, n;
    bool inside = false;
    uint32_t c;
    for (size_t i = 0; i < s->n; i += n) {
        n = ntx__tpl_char(s->p + i, s->n - i, &c);
        bool blank = ntx__tpl_space(c);
        if (!inside && !blank) {
            from = i;
            inside = true;
            if (most >= 0 && (int64_t)r.l->n == most) { /* the rest, without trailing blanks */
                struct val rest = ntx__tpl_sub(t, s, from, s->n);
                ntx__tpl_push(t, r.l, ntx__tpl_strip(t, rest.s, nothing, false, true));
                return r;
            }
        } else if (inside && blank) {
            ntx__tpl_push(t, r.l, ntx__tpl_sub(t, s, from, i));
            inside = false;
        }
    }
    if (inside)
        ntx__tpl_push(t, r.l, ntx__tpl_sub(t, s, from, s->n));
    return r;
}

static const struct str *separator(struct ntx__tpl *t, const struct args *a)
{
    struct val sep = ntx__tpl_given(a, 0, "sep", nothing);
    if (sep.type == V_NONE)
        return NULL;
    const struct str *s = text_arg(t, a, 0, "sep");
    if (!s->n)
        ntx__tpl_fail(t, -EINVAL, "an empty separator");
    return s;
}

METHOD(split)
{
    const struct str *s = self.s, *sep = separator(t, a);
    int64_t most = ntx__tpl_given_int(t, a, 1, "maxsplit", -1);
    if (!sep)
        return split_blanks(t, s, most);
    struct val r = ntx__tpl_list(t, 0);
    size_t from = 0;
    for (const char *f; most && (f = memmem(s->p + from, s->n - from, sep->p, sep->n)); most -= most > 0) {
        ntx__tpl_push(t, r.l, ntx__tpl_sub(t, s, from, (size_t)(f - s->p)));
        from = (size_t)(f - s->p) + sep->n;
    }
    ntx__tpl_push(t, r.l, ntx__tpl_sub(t, s, from, s->n));
    return r;
}

static size_t find_last(const struct str *s, size_t n, const struct str *what)
{
    for (size_t i = n >= what->n ? n - what->n + 1 : 0; i; i--)
        if (!memcmp(s->p + i - 1, what->p, what->n))
            return i - 1;
    return SIZE_MAX;
}

METHOD(rsplit)
{
    const struct str *s = self.s, *sep = separator(t, a);
    int64_t most = ntx__tpl_given_int(t, a, 1, "maxsplit", -1);
    if (!sep && most < 0)
        return split_blanks(t, s, most);
    if (!sep)
        ntx__tpl_fail(t, -EINVAL, "rsplit with a limit needs a separator");
    struct val down = ntx__tpl_list(t, 0);
    size_t to = s->n;
    ntx__tpl_charge(t, s->n * sep->n);
    for (size_t f; most && (f = find_last(s, to, sep)) != SIZE_MAX; most -= most > 0) {
        ntx__tpl_push(t, down.l, ntx__tpl_sub(t, s, f + sep->n, to));
        to = f;
    }
    ntx__tpl_push(t, down.l, ntx__tpl_sub(t, s, 0, to));
    return ntx__tpl_f_reverse(t, down, a);
}

static struct val parts(struct ntx__tpl *t, const struct str *s, const struct str *sep, size_t at, bool last)
{
    struct val r = ntx__tpl_list(t, 3), none = ntx__tpl_text(t, "");
    bool found = at != SIZE_MAX;
    struct val before = last ? none : ntx__tpl_of(s), after = last ? ntx__tpl_of(s) : none;
    if (found) {
        before = ntx__tpl_sub(t, s, 0, at);
        after = ntx__tpl_sub(t, s, at + sep->n, s->n);
    }
    ntx__tpl_push(t, r.l, before);
    ntx__tpl_push(t, r.l, found ? ntx__tpl_of(sep) : none);
    ntx__tpl_push(t, r.l, after);
    r.type = V_TUPLE;
    return r;
}

METHOD(partition)
{
    const struct str *sep = text_arg(t, a, 0, "sep");
    const char *f = memmem(self.s->p, self.s->n, sep->p, sep->n);
    return parts(t, self.s, sep, f ? (size_t)(f - self.s->p) : SIZE_MAX, false);
}

METHOD(rpartition)
{
    const struct str *sep = text_arg(t, a, 0, "sep");
    ntx__tpl_charge(t, self.s->n * sep->n);
    return parts(t, self.s, sep, find_last(self.s, self.s->n, sep), true);
}

static bool has_affix(const struct str *s, const struct str *x, bool end)
{
    return x->n <= s->n && !memcmp(end ? s->p + s->n - x->n : s->p, x->p, x->n);
}

static struct val affix(struct ntx__tpl *t, const struct str *s, const struct args *a, bool end)
{
    struct val v = ntx__tpl_given(a, 0, "", (struct val){0});
    if (v.type != V_TUPLE)
        return ntx__tpl_bool(has_affix(s, text_arg(t, a, 0, ""), end));
    for (size_t i = 0; i < v.l->n; i++)
        if (v.l->v[i].type == V_STR && has_affix(s, v.l->v[i].s, end))
            return ntx__tpl_bool(true);
    return ntx__tpl_bool(false);
}

PLAIN(startswith, affix(t, self.s, a, false))
PLAIN(endswith, affix(t, self.s, a, true))

METHOD(removeprefix)
{
    const struct str *x = text_arg(t, a, 0, "prefix");
    return has_affix(self.s, x, false) ? ntx__tpl_sub(t, self.s, x->n, self.s->n) : self;
}

METHOD(removesuffix)
{
    const struct str *x = text_arg(t, a, 0, "suffix");
    return has_affix(self.s, x, true) ? ntx__tpl_sub(t, self.s, 0, self.s->n - x->n) : self;
}

static int64_t find_text(struct ntx__tpl *t, const struct str *s, const struct args *a, bool last)
{
    const struct str *x = text_arg(t, a, 0, "sub");
    ntx__tpl_charge(t, last ? s->n * x->n : s->n);
    const size_t empty = last ? s->n : 0;
    const char *f = x->n ? memmem(s->p, s->n, x->p, x->n) : s->p + empty;
    size_t at = f ? (size_t)(f - s->p) : SIZE_MAX;
    if (last && x->n)
        at = find_last(s, s->n, x);
    return at == SIZE_MAX ? -1 : (int64_t)ntx__tpl_count(s->p, at);
}

PLAIN(find, ntx__tpl_int(find_text(t, self.s, a, false)))
PLAIN(rfind, ntx__tpl_int(find_text(t, self.s, a, true)))

METHOD(index)
{
    int64_t i = find_text(t, self.s, a, false);
    if (i < 0)
        ntx__tpl_fail(t, -EINVAL, "the text is not there");
    return ntx__tpl_int(i);
}

METHOD(count)
{
    const struct str *s = self.s, *x = text_arg(t, a, 0, "sub");
    if (!x->n)
        return ntx__tpl_int((int64_t)ntx__tpl_count(s->p, s->n) + 1);
    int64_t n = 0;
    size_t at = 0;
    for (const char *f; (f = memmem(s->p + at, s->n - at, x->p, x->n)); n++)
        at = (size_t)(f - s->p) + x->n;
    return ntx__tpl_int(n);
}

METHOD(join)
{
    struct val with = self;
    const struct list *l = ntx__tpl_iterate(t, ntx__tpl_given(a, 0, "iterable", nothing));
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].type != V_STR)
            ntx__tpl_fail(t, -EINVAL, "only strs can be joined, not a %s", ntx__tpl_type(l->v[i]));
    return ntx__tpl_f_join(t, (struct val){.type = V_LIST, .l = (struct list *)(uintptr_t)l},
                           &(struct args){.n = 1, .v = &with});
}

/* The text is not empty, and all characters are of the class. */
static bool all(const struct str *s, bool (*is)(uint32_t c))
{
    uint32_t c;
    for (size_t i = 0; i < s->n;) {
        i += ntx__tpl_char(s->p + i, s->n - i, &c);
        if (!is(c))
            return false;
    }
    return s->n > 0;
}

static utf8proc_category_t category(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c); }
static bool digit(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
static bool letter(uint32_t c) { return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO; }
static bool alnum(uint32_t c)
{
    return letter(c) || digit(c) || category(c) == UTF8PROC_CATEGORY_NL || category(c) == UTF8PROC_CATEGORY_NO;
}

PLAIN(isdigit, ntx__tpl_bool(all(self.s, digit)))
PLAIN(isalpha, ntx__tpl_bool(all(self.s, letter)))
PLAIN(isalnum, ntx__tpl_bool(all(self.s, alnum)))
PLAIN(isspace, ntx__tpl_bool(all(self.s, ntx__tpl_space)))
PLAIN(isupper, ntx__tpl_bool(ntx__tpl_test(t, ntx__tpl_text(t, "upper").s, self, a)))
PLAIN(islower, ntx__tpl_bool(ntx__tpl_test(t, ntx__tpl_text(t, "lower").s, self, a)))

/* ljust, rjust, center, zfill: left and right are parts of the padding. */
static struct val padded(struct ntx__tpl *t, const struct str *s, const struct args *a, unsigned left, unsigned right)
{
    int64_t missing = ntx__tpl_given_int(t, a, 0, "width", 0) - (int64_t)ntx__tpl_count(s->p, s->n);
    struct val fill = ntx__tpl_given(a, 1, "fillchar", ntx__tpl_text(t, " "));
    if (missing <= 0)
        return ntx__tpl_of(s);
    int64_t width = ntx__tpl_given_int(t, a, 0, "width", 0), before = left ? missing : 0;
    if (left && right)
        before = missing / 2 + (missing & width & 1);
    struct val v = ntx__tpl_binary(t, OP_ADD, ntx__tpl_binary(t, OP_MUL, fill, ntx__tpl_int(before)), ntx__tpl_of(s));
    return ntx__tpl_binary(t, OP_ADD, v, ntx__tpl_binary(t, OP_MUL, fill, ntx__tpl_int(missing - before)));
}

PLAIN(ljust, padded(t, self.s, a, 0, 1))
PLAIN(rjust, padded(t, self.s, a, 1, 0))
PLAIN(center, padded(t, self.s, a, 1, 1))

/* ---- methods of dict and list */

METHOD(get)
{
    struct val *v = ntx__tpl_find(t, self.d, ntx__tpl_given(a, 0, "key", nothing));
    return v ? *v : ntx__tpl_given(a, 1, "default", nothing);
}

PLAIN(items, ntx__tpl_f_items(t, self, a))
PLAIN(keys, ntx__tpl_f_list(t, self, &(struct args){0}))

METHOD(values)
{
    struct val r = ntx__tpl_list(t, self.d->n);
    (void)a;
    for (size_t i = 0; i < self.d->n; i++)
        ntx__tpl_push(t, r.l, self.d->e[i].v);
    return r;
}

METHOD(copy)
{
    struct val r = ntx__tpl_dict(t);
    (void)a;
    for (size_t i = 0; i < self.d->n; i++)
        ntx__tpl_put(t, r.d, self.d->e[i].k, self.d->e[i].v);
    return r;
}

METHOD(update)
{
    struct val from = ntx__tpl_given(a, 0, "", nothing);
    for (size_t i = 0; from.type == V_DICT && i < from.d->n; i++)
        ntx__tpl_put(t, self.d, from.d->e[i].k, from.d->e[i].v);
    for (size_t i = 0; i < a->n_kw; i++)
        ntx__tpl_put(t, self.d, ntx__tpl_of(a->kw[i].name), a->kw[i].v);
    return nothing;
}

METHOD(dict_pop)
{
    struct val key = ntx__tpl_given(a, 0, "key", nothing), *found = ntx__tpl_find(t, self.d, key);
    if (!found)
        return ntx__tpl_given(a, 1, "default", nothing);
    struct val v = *found;
    size_t i = (size_t)((struct pair *)((char *)found - offsetof(struct pair, v)) - self.d->e);
    memmove(&self.d->e[i], &self.d->e[i + 1], (--self.d->n - i) * sizeof *self.d->e);
    return v;
}

METHOD(append)
{
    ntx__tpl_push(t, self.l, ntx__tpl_given(a, 0, "object", nothing));
    return nothing;
}

METHOD(extend)
{
    const struct list *l = ntx__tpl_iterate(t, ntx__tpl_given(a, 0, "iterable", nothing));
    for (size_t i = 0, n = l->n; i < n; i++)
        ntx__tpl_push(t, self.l, l->v[i]);
    return nothing;
}

METHOD(list_pop)
{
    int64_t i = ntx__tpl_given_int(t, a, 0, "index", -1), n = (int64_t)self.l->n;
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        ntx__tpl_fail(t, -EINVAL, "pop of what is not there");
    struct val v = self.l->v[i];
    memmove(&self.l->v[i], &self.l->v[i + 1], (size_t)(n - i - 1) * sizeof v);
    self.l->n--;
    ntx__tpl_charge(t, (size_t)(n - i) * sizeof v);
    return v;
}

METHOD(insert)
{
    int64_t i = ntx__tpl_given_int(t, a, 0, "index", 0), n = (int64_t)self.l->n;
    i = i < 0 ? i + n : i;
    i = i < 0 ? 0 : i;
    i = i > n ? n : i;
    ntx__tpl_push(t, self.l, nothing);
    memmove(&self.l->v[i + 1], &self.l->v[i], (size_t)(n - i) * sizeof *self.l->v);
    self.l->v[i] = ntx__tpl_given(a, 1, "object", nothing);
    ntx__tpl_charge(t, (size_t)(n - i) * sizeof *self.l->v);
    return nothing;
}

METHOD(list_count)
{
    struct val x = ntx__tpl_given(a, 0, "value", nothing);
    int64_t n = 0;
    for (size_t i = 0; i < self.l->n; i++)
        n += ntx__tpl_equal(t, self.l->v[i], x);
    return ntx__tpl_int(n);
}

METHOD(list_index)
{
    struct val x = ntx__tpl_given(a, 0, "value", nothing);
    for (size_t i = 0; i < self.l->n; i++)
        if (ntx__tpl_equal(t, self.l->v[i], x))
            return ntx__tpl_int((int64_t)i);
    ntx__tpl_fail(t, -EINVAL, "the value is not in the list");
}

PLAIN(cycle, ntx__tpl_loop_cycle(t, self.loop, a))
PLAIN(changed, ntx__tpl_loop_changed(t, self.loop, a))

struct method_row {
    uint8_t type;
    const char *name;
    struct val (*call)(struct ntx__tpl *t, struct val self, const struct args *a);
};

static const struct method_row rows[] = {
    {V_STR, "strip", m_strip},
    {V_STR, "lstrip", m_lstrip},
    {V_STR, "rstrip", m_rstrip},
    {V_STR, "split", m_split},
    {V_STR, "rsplit", m_rsplit},
    {V_STR, "startswith", m_startswith},
    {V_STR, "endswith", m_endswith},
    {V_STR, "replace", m_replace},
    {V_STR, "upper", m_upper},
    {V_STR, "lower", m_lower},
    {V_STR, "title", m_title},
    {V_STR, "capitalize", m_capitalize},
    {V_STR, "splitlines", m_splitlines},
    {V_STR, "format", m_format},
    {V_STR, "join", m_join},
    {V_STR, "find", m_find},
    {V_STR, "rfind", m_rfind},
    {V_STR, "index", m_index},
    {V_STR, "count", m_count},
    {V_STR, "partition", m_partition},
    {V_STR, "rpartition", m_rpartition},
    {V_STR, "removeprefix", m_removeprefix},
    {V_STR, "removesuffix", m_removesuffix},
    {V_STR, "isdigit", m_isdigit},
    {V_STR, "isnumeric", m_isdigit},
    {V_STR, "isdecimal", m_isdigit},
    {V_STR, "isalpha", m_isalpha},
    {V_STR, "isalnum", m_isalnum},
    {V_STR, "isspace", m_isspace},
    {V_STR, "isupper", m_isupper},
    {V_STR, "islower", m_islower},
    {V_STR, "ljust", m_ljust},
    {V_STR, "rjust", m_rjust},
    {V_STR, "center", m_center},
    {V_DICT, "get", m_get},
    {V_DICT, "items", m_items},
    {V_DICT, "keys", m_keys},
    {V_DICT, "values", m_values},
    {V_DICT, "copy", m_copy},
    {V_DICT, "update", m_update},
    {V_DICT, "pop", m_dict_pop},
    {V_LIST, "append", m_append},
    {V_LIST, "extend", m_extend},
    {V_LIST, "pop", m_list_pop},
    {V_LIST, "insert", m_insert},
    {V_LIST, "count", m_list_count},
    {V_LIST, "index", m_list_index},
    {V_TUPLE, "count", m_list_count},
    {V_TUPLE, "index", m_list_index},
    {V_LOOP, "cycle", m_cycle},
    {V_LOOP, "changed", m_changed},
};

struct val ntx__tpl_method(struct ntx__tpl *t, struct val v, const struct str *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].type == v.type && ntx__tpl_is(name, rows[i].name)) {
            struct method *m = ntx__tpl_alloc(t, sizeof *m);
            *m = (struct method){v, &rows[i]};
            return (struct val){.type = V_METHOD, .bound = m};
        }
    return (struct val){.type = V_UNDEF, .s = name};
}

struct val ntx__tpl_method_call(struct ntx__tpl *t, const struct method *m, const struct args *a)
{
    ntx__tpl_charge_text(t, m->self);
    return m->row->call(t, m->self, a);
}
