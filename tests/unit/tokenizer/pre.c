/* SPDX-License-Identifier: Apache-2.0 */
/* Words of pre-tokenizers, piece by piece: shapes whose rules depend on case, endings and marks. */
#include <errno.h>

#include "model/tokenizer_pre.h"
#include "tests/lib/check.h"

#define ACUTE "\xcc\x81" /* a mark */

struct cuts {
    char text[256];
    size_t n;
};

static int put_word(void *arg, const char *w, size_t n)
{
    struct cuts *c = arg;
    CHECK(c->n + n + 1 < sizeof(c->text));
    memcpy(c->text + c->n, w, n);
    c->text[c->n + n] = '~';
    c->n += n + 1;
    return 0;
}

/* want: the words of the text, each followed by '~'. */
static void check_cuts(const char *name, const char *const (*list)[2], size_t n)
{
    struct ntx__pre *p;
    struct ntx__pre_traits traits;
    struct ntx_err err = {0};
    CHECK_MSG(ntx__pre_open((struct ntx_str){.p = name, .n = strlen(name)}, &p, &traits, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < n; i++) {
        struct cuts c = {.n = 0};
        CHECK_EQ(ntx__pre_split(p, list[i][0], strlen(list[i][0]), put_word, &c), 0);
        CHECK_STR(c.text, list[i][1]);
    }
    ntx__pre_free(p);
}

static const char *const o200k[][2] = {
    {"camelCase HTMLParser ABCdefGHI", "camel~Case~ HTMLParser~ ABCdef~GHI~"},
    {"don't WE'LL I've it'sa they'Re", "don't~ WE'LL~ I've~ it's~a~ they'Re~"}, /* endings stay, in either case */
    {"'tis 's  're", "'tis~ '~s~ ~ '~re~"},                                     /* not endings without a word */
    {"x'mY'dz'q it'\xc5\xbf", "x'm~Y'd~z~'q~ it'\xc5\xbf~"},                    /* the long s is an s */
    {"1234567 x86_64", "123~456~7~ x~86~_~64~"},
    {"a/b //\n/\r\n/c ...\n\n d", "a~/b~ //\n/\r\n/~c~ ...\n\n~ d~"},
    {"a  b \r\n\r\n  c\t\xc2\xa0\n", "a~ ~ b~ \r\n\r\n~ ~ c~\t\xc2\xa0\n~"},
    {"\xe2\x80\x83\xe3\x80\x80z", "\xe2\x80\x83~\xe3\x80\x80z~"},
    {"\xc3\x89tat\xc3\x89tat \xd0\x9c\xd0\xb8\xd0\x9c",
     "\xc3\x89tat~\xc3\x89tat~ \xd0\x9c\xd0\xb8~\xd0\x9c~"},               /* case beyond ASCII */
    {"\xc7\x85u\xc7\x85 \xca\xb0\x41", "\xc7\x85u~\xc7\x85~ \xca\xb0~A~"}, /* title case; a modifier */
    {"\xe6\x97\xa5"
     "A\xe6\x9c\xac"
     "bC",
     "\xe6\x97\xa5"
     "A\xe6\x9c\xac"
     "b~C~"}, /* letters without case count as both */
    {"e" ACUTE "e E" ACUTE "E 1" ACUTE "AB", "e" ACUTE "e~ E" ACUTE "~E~ ~1~" ACUTE "~AB~"}, /* marks belong to words */
    {"\xf0\x9f\x98\x80\xf0\x9f\x98\x80 ok", "\xf0\x9f\x98\x80\xf0\x9f\x98\x80~ ok~"},
    {"", ""},
};

static const char *const tekken[][2] = {
    {"camelCase HTMLParser don't I'M", "camel~Case~ HTMLParser~ don~'t~ I~'M~"},
    {"123 a//\n/", "1~2~3~ a~//\n/~"},
    {"1" ACUTE "AB " ACUTE "A",
     "1~" ACUTE "~AB~ " ACUTE "~A~"}, /* both begin with a mark, which alone counts as lower case */
};

static const char *const afmoe[][2] = {
    {"1 12 123 1234 12345 123456 1234567", "1~ ~12~ ~123~ ~1~234~ ~12~345~ ~123~456~ ~1~234~567~"},
    {"It's 日本語x \xe0\xb9\x80"
     "a //\n\n",
     "It~'s~ ~日本語~x~ ~\xe0\xb9\x80~a~ //\n\n~"},
};

/* Words with single spaces between them are one piece. */
static const char *const exaone_moe[][2] = {
    {"It's a long way  to go", "It~'s~ a long way~ ~ to go~"},
    {"12 a/b //\n/\n\nc", "1~2~ a~/b~ //\n~/\n~\n~c~"},
    {"e" ACUTE " f" ACUTE "g", "e" ACUTE " f" ACUTE "g~"},
};

/* As another engine splits them (kimi-k2: by its own expression). */
static const char *const glm4[][2] = {
    {"It's we'LL 12345 a//b\n/ ...\n\n d", "It~'s~ we~'LL~ ~123~45~ a~//~b~\n~/~ ...\n\n~ d~"},
    {"e" ACUTE "t 日本語abc中文カナ 1٣x", "e~́t~ 日本語abc中文カナ~ ~1٣~x~"},
    {"x=3.14; // «q» $100+€\n\n\ty  \n z", "x~=~3~.~14~;~ //~ «~q~»~ $~100~+€\n\n~\ty~  \n~ z~"},
};

static const char *const deepseek_v3[][2] = {
    {"It's we'LL 12345 a//b\n/ ...\n\n d", "It~'s~ we~'LL~ ~123~45~ a~//~b~\n~/~ ...\n\n~ d~"},
    {"e" ACUTE "t 日本語abc中文カナ 1٣x", "e" ACUTE "t~ ~日本語~abc~中文カナ~ ~1٣~x~"},
    {"x=3.14; // «q» $100+€\n\n\ty  \n z", "x~=~3~.~14~;~ //~ «~q~»~ $~100~+€\n\n~\ty~  \n~ z~"},
};

static const char *const kimi_k2[][2] = {
    {"It's we'LL 12345 a//b\n/ ...\n\n d", "It's~ we'LL~ ~123~45~ a~//~b~\n~/~ ...\n\n~ d~"},
    {"e" ACUTE "t 日本語abc中文カナ 1٣x", "e" ACUTE "t~ ~日本語~abc~中文~カナ~ ~1٣~x~"},
    {"x=3.14; // «q» $100+€\n\n\ty  \n z", "x~=~3~.~14~;~ //~ «~q~»~ $~100~+€\n\n~\ty~  \n~ z~"},
};

static const char *const qwen35[][2] = {
    {"It's we'LL 12345 a//b\n/ ...\n\n d", "It~'s~ we~'LL~ ~1~2~3~4~5~ a~//~b~\n~/~ ...\n\n~ d~"},
    {"e" ACUTE "t 日本語abc中文カナ 1٣x", "e" ACUTE "t~ 日本語abc中文カナ~ ~1~٣~x~"},
    {"x=3.14; // «q» $100+€\n\n\ty  \n z", "x~=~3~.~1~4~;~ //~ «~q~»~ $~1~0~0~+€\n\n~\ty~  \n~ z~"},
};

static const char *const deepseek_coder[][2] = {
    {"It's we'LL 12345 a//b\n/ ...\n\n d", "It~'~s~ we~'~LL~ ~1~2~3~4~5~ a~//~b~\n~/~ ...~\n~\n~ d~"},
    {"e" ACUTE "t 日本語abc中文カナ 1٣x", "e~́~t~ ~日本語~abc~中文カナ~ ~1~٣~x~"},
    {"x=3.14; // «q» $100+€\n\n\ty  \n z", "x~=~3~.~1~4~;~ //~ «~q~»~ $~1~0~0~+~€~\n~\n~\ty~  ~\n~ z~"},
};

static const char *const default_[][2] = {
    {"It's we'LL 12345 a//b\n/ ...\n\n d", "It~'~s~ we~'~LL~ ~123~45~ a~//~b~\n~/~ ~...~\n\n~ d~"},
    {"e" ACUTE "t 日本語abc中文カナ 1٣x", "e~́~t~ 日本語abc中文カナ~ ~1٣~x~"},
    {"x=3.14; // «q» $100+€\n\n\ty  \n z", "x~=~3~.~14~;~ ~//~ ~«~q~»~ ~$~100~+~€~\n\n~\t~y~  \n~ z~"},
};

#define CHECK_CUTS(name, list) check_cuts(name, list, sizeof(list) / sizeof(list[0]))

static void check_refused(void)
{
    struct ntx__pre *p;
    struct ntx__pre_traits traits;
    struct ntx_err err = {0};
    CHECK_EQ(ntx__pre_open((struct ntx_str){.p = "no-such", .n = 7}, &p, &traits, &err), -ENOTSUP);
    CHECK(strstr(err.text, "\"no-such\""));
}

int main(void)
{
    static const char *const alike[] = {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"};
    for (size_t i = 0; i < sizeof(alike) / sizeof(alike[0]); i++)
        CHECK_CUTS(alike[i], o200k);
    CHECK_CUTS("tekken", tekken);
    CHECK_CUTS("glm4", glm4);
    CHECK_CUTS("chatglm-bpe", glm4);
    CHECK_CUTS("deepseek-v3", deepseek_v3);
    CHECK_CUTS("hunyuan-dense", deepseek_v3);
    CHECK_CUTS("kimi-k2", kimi_k2);
    CHECK_CUTS("qwen35", qwen35);
    CHECK_CUTS("deepseek-coder", deepseek_coder);
    CHECK_CUTS("default", default_);
    CHECK_CUTS("afmoe", afmoe);
    CHECK_CUTS("exaone-moe", exaone_moe);
    check_refused();
    return 0;
}
