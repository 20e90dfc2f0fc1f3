/* SPDX-License-Identifier: Apache-2.0 */
/* lex.c: splits the template into tokens. Text outside of marks is data. White space is removed here: all of it
 * beside a mark with '-'; the newline after a block or comment (trim_blocks); the blanks before a block or comment
 * that begins its line (lstrip_blocks; '+' keeps them). A newline at the end of the template is dropped. */
#include <errno.h>
#include <stdlib.h>

#include "model/template/tpl.h"

struct lexer {
    struct ntx__tpl *t;
    struct tokens *out;
    const char *p;
    size_t n, at;
    bool line_starts; /* the last mark ended its line */
};

static void add_token(struct lexer *l, enum tkind kind, enum op op, struct val v)
{
    struct tokens *o = l->out;
    if (o->n == o->room) {
        size_t room = o->room ? 2 * o->room : 256;
        struct token *p = ntx__tpl_alloc(l->t, room * sizeof *p);
        if (o->n)
            memcpy(p, o->v, o->n * sizeof *p);
        o->v = p;
        o->room = room;
    }
    o->v[o->n++] = (struct token){.kind = kind, .op = op, .line = l->t->line, .v = v};
}

static size_t blanks_after(const struct lexer *l, size_t at)
{
    uint32_t c;
    while (at < l->n) {
        size_t k = ntx__tpl_char(l->p + at, l->n - at, &c);
        if (!ntx__tpl_space(c))
            break;
        at += k;
    }
    return at;
}

static size_t without_blanks(const char *p, size_t n) /* n without trailing blanks */
{
    uint32_t c;
    size_t end = 0;
    for (size_t i = 0; i < n;) {
        i += ntx__tpl_char(p + i, n - i, &c);
        if (!ntx__tpl_space(c))
            end = i;
    }
    return end;
}

static void lines(struct lexer *l, size_t to)
{
    for (; l->at < to; l->at++)
        l->t->line += l->p[l->at] == '\n';
}

static bool begins(const struct lexer *l, size_t at, const char *what)
{
    size_t k = strlen(what);
    return l->n - at >= k && !memcmp(l->p + at, what, k);
}

/* Adds the data up to `to`, where a mark with this sign begins (0: no sign). */
static void add_data(struct lexer *l, size_t to, char sign, bool print)
{
    const char *p = l->p + l->at;
    size_t n = to - l->at;
    if (sign == '-') {
        n = without_blanks(p, n);
    } else if (sign != '+' && !print) {
        size_t line = n;
        while (line && p[line - 1] != '\n')
            line--;
        if ((line || l->line_starts) && without_blanks(p + line, n - line) == 0)
            n = line;
    }
    if (n)
        add_token(l, T_DATA, OP_NONE, ntx__tpl_of(ntx__tpl_str(l->t, p, n, 0)));
    lines(l, to);
}

/* The position behind a mark's end "%}" or "#}" at `at` (or its sign); SIZE_MAX: no mark ends there. */
static size_t mark_end(const struct lexer *l, size_t at, const char *close, bool trim)
{
    if (begins(l, at, close)) {
        at += 2;
        return trim && at < l->n && l->p[at] == '\n' ? at + 1 : at;
    }
    if (at < l->n && begins(l, at + 1, close)) {
        if (l->p[at] == '-')
            return blanks_after(l, at + 3);
        if (l->p[at] == '+' && trim)
            return at + 3;
    }
    return SIZE_MAX;
}

static void move_to(struct lexer *l, size_t to)
{
    l->line_starts = to && l->p[to - 1] == '\n';
    lines(l, to);
}

static char sign_at(const struct lexer *l, size_t at)
{
    return at < l->n && (l->p[at] == '-' || l->p[at] == '+') ? l->p[at] : 0;
}

static void skip_comment(struct lexer *l)
{
    for (size_t i = l->at + 2; i < l->n; i++) {
        size_t end = mark_end(l, i, "#}", true);
        if (end != SIZE_MAX) {
            move_to(l, end);
            return;
        }
    }
    ntx__tpl_fail(l->t, -EINVAL, "a comment has no end");
}

/* A block with this word alone at "{%": the position behind it, else SIZE_MAX. */
static size_t word_block(const struct lexer *l, size_t at, const char *word, bool trim)
{
    size_t i = blanks_after(l, at + 2 + (sign_at(l, at + 2) != 0));
    if (!begins(l, i, word))
        return SIZE_MAX;
    i = blanks_after(l, i + strlen(word));
    return mark_end(l, i, "%}", trim);
}

/* At "{% raw %}": everything up to "{% endraw %}" is data. */
static void lex_raw(struct lexer *l, size_t begin)
{
    move_to(l, begin);
    for (size_t i = l->at; i + 1 < l->n; i++) {
        size_t end = l->p[i] == '{' && l->p[i + 1] == '%' ? word_block(l, i, "endraw", true) : SIZE_MAX;
        if (end != SIZE_MAX) {
            add_data(l, i, sign_at(l, i + 2), false);
            move_to(l, end);
            return;
        }
    }
    ntx__tpl_fail(l->t, -EINVAL, "a raw block has no end");
}

static bool name_byte(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80 ||
           (!first && c >= '0' && c <= '9');
}

static bool digit(const struct lexer *l, size_t at) { return at < l->n && l->p[at] >= '0' && l->p[at] <= '9'; }

static size_t count_digits(const struct lexer *l, size_t at)
{
    while (digit(l, at) || (at < l->n && l->p[at] == '_' && digit(l, at + 1)))
        at++;
    return at;
}

static void lex_number(struct lexer *l)
{
    char text[64];
    size_t from = l->at, end = count_digits(l, from), k = 0;
    bool real = false, hex = l->p[from] == '0' && from + 2 < l->n && (l->p[from + 1] == 'x' || l->p[from + 1] == 'X');
    if (hex)
        for (end = from + 2; end < l->n && strchr("0123456789abcdefABCDEF", l->p[end]) && l->p[end];)
            end++;
    if (!hex && !(from && l->p[from - 1] == '.')) {
        if (end < l->n && l->p[end] == '.' && digit(l, end + 1)) {
            real = true;
            end = count_digits(l, end + 1);
        }
        size_t e = end < l->n && (l->p[end] == 'e' || l->p[end] == 'E') ? end + 1 : 0;
        e += e && sign_at(l, e);
        if (e && digit(l, e)) {
            real = true;
            end = count_digits(l, e);
        }
    }
    for (size_t i = from; i < end; i++) {
        if (k == sizeof text - 1)
            ntx__tpl_fail(l->t, -EINVAL, "a number of more than %zu digits", sizeof text - 1);
        if (l->p[i] != '_')
            text[k++] = l->p[i];
    }
    text[k] = 0;
    errno = 0;
    const int base = hex ? 16 : 10;
    struct val v = real ? ntx__tpl_float(strtod(text, NULL)) : ntx__tpl_int(strtoll(text, NULL, base));
    if (!real && errno)
        ntx__tpl_fail(l->t, -EINVAL, "the number %s is too large", text);
    add_token(l, real ? T_FLOAT : T_INT, OP_NONE, v);
    l->at = end;
}

/* Decodes \x, \u, \U and octal escapes; *used: their bytes after the backslash. */
static bool code_point(const char *p, size_t n, uint32_t *c, size_t *used)
{
    const unsigned want = (*p == 'x') * 2 + (*p == 'u') * 4 + (*p == 'U') * 8, base = want ? 16 : 8;
    size_t i = want ? 1 : 0, most = want ? want + 1 : 3;
    *c = 0;
    for (; i < n && i < most; i++) {
        char ch = (char)(p[i] | 0x20);
        unsigned v = 99;
        if (p[i] >= '0' && p[i] <= '9')
            v = (unsigned)(p[i] - '0');
        else if (ch >= 'a' && ch <= 'f')
            v = (unsigned)(ch - 'a' + 10);
        if (v >= base)
            break;
        *c = *c * base + v;
    }
    *used = i;
    return want ? i == most : i > 0;
}

static size_t escape(struct lexer *l, const char *p, size_t n, char **out)
{
    static const char from[] = "n\\'\"trabfv", to[] = "\n\\'\"\t\r\a\b\f\v";
    const char *f = *p ? strchr(from, *p) : NULL;
    uint32_t c;
    size_t used;
    if (f) {
        *(*out)++ = to[f - from];
        return 1;
    }
    if (*p == '\n')
        return 1;
    if (!code_point(p, n, &c, &used)) {
        if (*p == 'x' || *p == 'u' || *p == 'U')
            ntx__tpl_fail(l->t, -EINVAL, "a string has a broken escape \\%c", *p);
        *(*out)++ = '\\'; /* not an escape */
        *(*out)++ = *p;
        return 1;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        c = 0xfffd;
    *out += ntx__tpl_put_char(c, *out);
    return used;
}

static void string(struct lexer *l)
{
    char quote = l->p[l->at];
    size_t end = l->at + 1;
    while (end < l->n && l->p[end] != quote)
        end += 1 + (l->p[end] == '\\');
    if (end >= l->n)
        ntx__tpl_fail(l->t, -EINVAL, "a string has no end");
    struct str *s = ntx__tpl_str(l->t, NULL, end - l->at,
                                 0); /* decoding never grows the text, except by one byte for \7 at the end */
    char *out = s->p;
    for (size_t i = l->at + 1; i < end; i++) {
        if (l->p[i] == '\\' && i + 1 < end)
            i += escape(l, l->p + i + 1, end - i - 1, &out);
        else
            *out++ = l->p[i];
    }
    add_token(l, T_STRING, OP_NONE, ntx__tpl_of(ntx__tpl_str(l->t, s->p, (size_t)(out - s->p), 0)));
    lines(l, end + 1);
}

static void operator(struct lexer *l, unsigned *open)
{
    static const struct {
        char text[3];
        uint8_t op;
    } ops[] = {
        {"//", OP_FLOORDIV}, {"**", OP_POW},     {"==", OP_EQ},      {"!=", OP_NE},    {">=", OP_GE},
        {"<=", OP_LE},       {"+", OP_ADD},      {"-", OP_SUB},      {"*", OP_MUL},    {"/", OP_DIV},
        {"%", OP_MOD},       {"~", OP_TILDE},    {"<", OP_LT},       {">", OP_GT},     {"=", OP_ASSIGN},
        {".", OP_DOT},       {",", OP_COMMA},    {":", OP_COLON},    {"|", OP_PIPE},   {"(", OP_LPAREN},
        {")", OP_RPAREN},    {"[", OP_LBRACKET}, {"]", OP_RBRACKET}, {"{", OP_LBRACE}, {"}", OP_RBRACE},
        {";", OP_SEMICOLON},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (begins(l, l->at, ops[i].text)) {
            enum op op = ops[i].op;
            if (op == OP_LPAREN || op == OP_LBRACKET || op == OP_LBRACE)
                ++*open;
            if (op == OP_RPAREN || op == OP_RBRACKET || op == OP_RBRACE) {
                if (!*open)
                    ntx__tpl_fail(l->t, -EINVAL, "unexpected '%s'", ops[i].text);
                --*open;
            }
            add_token(l, T_OP, op, (struct val){0});
            l->at += strlen(ops[i].text);
            return;
        }
    ntx__tpl_fail(l->t, -EINVAL, "unexpected character '%c'", l->p[l->at]);
}

/* Lexes the text between "{{" or "{%" and its end. */
static void lex_inside(struct lexer *l, bool print)
{
    unsigned open = 0;
    for (;;) {
        lines(l, blanks_after(l, l->at));
        if (l->at >= l->n)
            ntx__tpl_fail(l->t, -EINVAL, "'%s' has no end", print ? "{{" : "{%");
        const char *close = print ? "}}" : "%}";
        size_t end = open ? SIZE_MAX : mark_end(l, l->at, close, !print);
        char c = l->p[l->at];
        if (end != SIZE_MAX) {
            add_token(l, print ? T_PRINT_END : T_BLOCK_END, OP_NONE, (struct val){0});
            move_to(l, end);
            return;
        }
        if (name_byte(c, true)) {
            size_t e = l->at;
            while (e < l->n && name_byte(l->p[e], false))
                e++;
            add_token(l, T_NAME, OP_NONE, ntx__tpl_of(ntx__tpl_str(l->t, l->p + l->at, e - l->at, 0)));
            l->at = e;
        } else if (c >= '0' && c <= '9') {
            lex_number(l);
        } else if (c == '\'' || c == '"') {
            string(l);
        } else {
            operator(l, &open);
        }
    }
}

static void mark(struct lexer *l, size_t at)
{
    char kind = l->p[at + 1], sign = sign_at(l, at + 2);
    add_data(l, at, sign, kind == '{');
    size_t verbatim = kind == '%' ? word_block(l, at, "raw", false) : SIZE_MAX;
    if (kind == '#') {
        skip_comment(l);
    } else if (verbatim != SIZE_MAX) {
        lex_raw(l, verbatim);
    } else {
        add_token(l, kind == '{' ? T_PRINT : T_BLOCK, OP_NONE, (struct val){0});
        l->at += 2 + (sign != 0);
        lex_inside(l, kind == '{');
    }
}

/* Normalises newlines, and drops one at the end. */
static size_t normalise(struct ntx__tpl *t, const char *text, size_t len, char **out)
{
    char *p = ntx__tpl_alloc(t, len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        p[n++] = text[i] == '\r' ? '\n' : text[i];
        i += text[i] == '\r' && i + 1 < len && text[i + 1] == '\n';
    }
    *out = p;
    return n && p[n - 1] == '\n' ? n - 1 : n;
}

void ntx__tpl_lex(struct ntx__tpl *t, const char *text, size_t len, struct tokens *out)
{
    char *p;
    size_t n = normalise(t, text, len, &p);
    struct lexer l = {.t = t, .out = out, .p = p, .n = n, .line_starts = true};
    t->line = 1;
    for (size_t i = 0; i + 1 < n;) {
        if (p[i] == '{' && (p[i + 1] == '{' || p[i + 1] == '%' || p[i + 1] == '#')) {
            mark(&l, i);
            i = l.at;
        } else {
            i++;
        }
    }
    if (l.at < n)
        add_token(&l, T_DATA, OP_NONE, ntx__tpl_of(ntx__tpl_str(t, p + l.at, n - l.at, 0)));
    add_token(&l, T_END, OP_NONE, (struct val){0});
}
