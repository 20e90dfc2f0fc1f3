/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_pre.c: the table of pre-tokenizers, run by PCRE2 with Unicode properties (compiled to machine code if
 * the system allows it).
 *
 * A pre-tokenizer is a list of expressions. The first one splits the text: each match is a piece, and so is the text
 * between two matches. The next one splits each piece as if it stood alone, and so on. The expressions are those of
 * the models' own tokenizer.json, with these changes: white space is written as a class (Unicode's White_Space,
 * which is not quite PCRE2's \s); English endings are written in both cases; none of them needs quadratic time. */
#include "model/tokenizer_pre.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define WS             "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SYMBOLS        "[^" WS "\\p{L}\\p{N}]+"

#define GPT2           "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?" SYMBOLS "|[" WS "]+(?![^" WS "])"
/* An English ending; s: the letters for "s". */
#define ENDING(s)      "'(?:[" s "tTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
/* Llama 3 and Qwen 2 differ in the number of digits of a word. */
#define LLAMA3(digits) ENDING("sS") "|" WORDS(digits)
#define WORDS(digits)  "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?" SYMBOLS "[\\r\\n]*|" BLANKS
#define BLANKS         "[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"

/* Words are also split before upper case that follows lower case; letters without case, and marks, count as both.
 * The order of the alternatives matters if the character before the word is a mark. */
#define TITLE          "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER          "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASES(ending, digits)                                                                                          \
    "[^\\r\\n\\p{L}\\p{N}]?" TITLE "*" LOWER "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" TITLE "+" LOWER "*" ending           \
    "|" digits "| ?" SYMBOLS "[\\r\\n/]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"
#define TEKKEN         CASES("", "\\p{N}") /* Mistral's */
/* OpenAI's o200k: endings stay with their word; its case-insensitive "s" includes the long s. */
#define O200K          CASES("(?:" ENDING("sS\\x{17F}") ")?", "\\p{N}{1,3}")

/* Kimi: like o200k, but Chinese characters are words of their own, and symbols end before a slash. */
#define NOT_HAN(class) "(?:(?!\\p{Han})" class ")"
/* clang-format off */
#define KIMI "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(TITLE) "*" NOT_HAN(LOWER) "+(?:" ENDING("sS\\x{17F}") ")?" \
    "|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN(TITLE) "+" \
    NOT_HAN(LOWER) "*(?:" ENDING("sS\\x{17F}") ")?|\\p{N}{1,3}| ?" SYMBOLS "[\\r\\n]*|" BLANKS
/* clang-format on */
/* Qwen 3.5: like Qwen 2, but marks belong to words. */
#define QWEN35                                                                                                         \
    ENDING("sS") "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS
/* Words of DeepSeek V3, after digits and CJK. Another model differs in the end of symbols and in blank lines. */
#define CJK "\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}"
#define V3(symbols_end, lines)                                                                                         \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" symbols_end "|" lines    \
    "|[" WS "]+(?![^" WS "])|[" WS "]+"

/* Letters of the scripts with upper and lower case, as DeepSeek's file lists them. */
#define CASED                                                                                                          \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}"   \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"     \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"       \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{"    \
    "1D9A}"                                                                                                            \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{"     \
    "1F5B}"                                                                                                            \
    "\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{"     \
    "1FCC}"                                                                                                            \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{"     \
    "2107}"                                                                                                            \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}" \
    "\\x{2139}"                                                                                                        \
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"          \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{"     \
    "A787}"                                                                                                            \
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{"    \
    "FF5A}"                                                                                                            \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"        \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

#define EAST     "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
/* Text that BLOOM does not split; ( and | in the class are a slip of the original. */
#define UNBROKEN "[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"

/* Scripts without spaces between words, as Trinity's file lists them. */
#define ASIAN                                                                                                          \
    "\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{"    \
    "2FDF}"                                                                                                            \
    "\\x{0E40}-\\x{0EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{"    \
    "D7AF}"                                                                                                            \
    "\\x{1100}-\\x{11FF}"

struct shape {
    const char *names[12]; /* values of tokenizer.ggml.pre that split alike */
    struct ntx__pre_traits traits;
    const char *regex[NTX__PRE_MAX];
};

static const struct shape shapes[] = {
    {.names = {"gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "a.x-4.0", "mellum", "exaone4", "trillion",
               "granite-docling"},
     .regex = {GPT2}},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
     .traits = {.whole_words = true, .add_bos = true},
     .regex = {LLAMA3("\\p{N}{1,3}")}},
    {.names = {"dbrx", "smaug-bpe", "chatglm-bpe"}, .regex = {LLAMA3("\\p{N}{1,3}")}},
    {.names = {"glm4", "glm5"}, .traits = {.whole_words = true}, .regex = {LLAMA3("\\p{N}{1,3}")}},
    {.names = {"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo", "f2llmv2", "hunyuan", "solar-open",
               "grok-2"},
     .regex = {LLAMA3("\\p{N}")}},
    {.names = {"qwen35"}, .regex = {QWEN35}},
    {.names = {"ufakzeka"}, .regex = {WORDS("\\p{N}")}},
    {.names = {"laguna"}, .regex = {"[^\\n]+|\\n+", LLAMA3("\\p{N}")}},
    {.names = {"minicpm5"}, .traits = {.whole_words = true}, .regex = {"\\p{N}{1,3}", LLAMA3("\\p{N}+")}},
    {.names = {"bailingmoe", "bailingmoe2", "llada-moe"},
     .regex = {ENDING("sS") "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?" SYMBOLS "[\\r\\n]*|[" WS "]*[\\r\\n]|[" WS
                            "]+(?![^" WS "])|[" WS "]+"}},
    {.names = {"seed-coder"}, .regex = {ENDING("sS") "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?" SYMBOLS "|" BLANKS}},
    {.names = {"tekken"}, .traits = {.whole_words = true, .add_bos = true}, .regex = {TEKKEN}},
    {.names = {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, .regex = {O200K}},
    {.names = {"kimi-k2"}, .regex = {KIMI}},
    {.names = {"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
     .regex = {"\\p{N}", GPT2}},
    {.names = {"falcon"}, .regex = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9]{3}"}},
    {.names = {"default"}, .regex = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9]{3}"}},
    {.names = {"poro-chat", "bloom", "gpt3-finnish"}, .regex = {" ?" UNBROKEN}},
    {.names = {"viking"}, .regex = {" ?" UNBROKEN, "\\p{N}"}},
    {.names = {"deepseek-llm"},
     .regex = {"[\\r\\n]", "[" WS "]?[" CASED "]+",
               "[" WS "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
               "(?<![" WS "])[" WS "]+\\z", EAST, "\\p{N}+"}},
    {.names = {"deepseek-coder"}, .regex = {"[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+", EAST, "\\p{N}"}},
    {.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
     .regex = {"\\p{N}{1,3}", "[" CJK "]+", V3("[\\r\\n]*", "[" WS "]*[\\r\\n]+")}},
    /* digits by threes from the right */
    {.names = {"afmoe"},
     .regex = {"\\p{N}+", "\\A\\p{N}{1,2}(?=(?:\\p{N}{3})+\\z)|\\p{N}{1,3}", "[" ASIAN "]+",
               V3("[\\r\\n]*", "[" WS "]*[\\r\\n]+")}},
    {.names = {"exaone-moe"},
     .regex = {ENDING("sS") "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?" SYMBOLS
                            "[\\r\\n/]?|[" WS "]*[\\r\\n]|[" WS "]+(?![^" WS "])|[" WS "]+"}},
    {.names = {"spark2_5"}, .regex = {"\\p{N}{1,3}", "[" CJK "]+", V3("", "[\\r\\n]"), "\\p{N}"}},
};
#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))
#define N_NAMES  (sizeof(shapes[0].names) / sizeof(shapes[0].names[0]))

struct ntx__pre {
    unsigned n;
    pcre2_code *code[NTX__PRE_MAX];
    pcre2_match_context *limits;
};

static const struct shape *find_shape(struct ntx_str name)
{
    for (size_t i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < N_NAMES && shapes[i].names[k]; k++)
            if (strlen(shapes[i].names[k]) == name.n && !memcmp(shapes[i].names[k], name.p, name.n))
                return &shapes[i];
    return NULL;
}

static int refuse_name(struct ntx_str name, struct ntx_err *err)
{
    unsigned known = 0;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < N_NAMES && shapes[i].names[k]; k++)
            known++;
    return ntx_err_set(err, -ENOTSUP,
                       "tokenizer.ggml.pre names the pre-tokenizer \"%.*s\", which is none of the %u that are known; "
                       "--override-kv tokenizer.ggml.pre=str:NAME names another",
                       (int)(name.n < 40 ? name.n : 40), name.n ? name.p : "", known);
}

static int compile(const char *regex, pcre2_code **out, struct ntx_err *err)
{
    int code;
    PCRE2_SIZE at;
    *out = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (!*out)
        return ntx_err_set(err, -EINVAL, "PCRE2 refuses a pre-tokenizer's expression (error %d at %zu)", code,
                           (size_t)at);
    (void)pcre2_jit_compile(*out,
                            PCRE2_JIT_COMPLETE); /* fails if memory may not be executable; then it is interpreted */
    return 0;
}

int ntx__pre_open(struct ntx_str name, struct ntx__pre **out, struct ntx__pre_traits *traits, struct ntx_err *err)
{
    const struct shape *shape = find_shape(name);
    if (!shape)
        return refuse_name(name, err);
    struct ntx__pre *p = calloc(1, sizeof(*p));
    int rc = p && (p->limits = pcre2_match_context_create(NULL)) ? 0 : -ENOMEM;
    if (!rc) { /* expressions backtrack little, but a run of blanks may be long */
        pcre2_set_match_limit(p->limits, UINT32_MAX);
        pcre2_set_heap_limit(p->limits, UINT32_MAX);
    }
    for (; !rc && p->n < NTX__PRE_MAX && shape->regex[p->n]; p->n++)
        rc = compile(shape->regex[p->n], &p->code[p->n], err);
    if (rc) {
        ntx__pre_free(p);
        return rc;
    }
    *traits = shape->traits;
    *out = p;
    return 0;
}

void ntx__pre_free(struct ntx__pre *p)
{
    if (!p)
        return;
    for (unsigned i = 0; i < NTX__PRE_MAX; i++)
        pcre2_code_free(p->code[i]);
    pcre2_match_context_free(p->limits);
    free(p);
}

size_t ntx__pre_bytes(const struct ntx__pre *p)
{
    size_t total = sizeof(*p);
    for (unsigned i = 0; i < p->n; i++) {
        size_t code = 0, jit = 0;
        (void)pcre2_pattern_info(p->code[i], PCRE2_INFO_SIZE, &code);
        (void)pcre2_pattern_info(p->code[i], PCRE2_INFO_JITSIZE, &jit);
        total += code + jit;
    }
    return total;
}

struct split {
    const struct ntx__pre *p;
    pcre2_match_data *match; /* read before the next expression runs, so one is enough for all levels */
    int (*word)(void *arg, const char *w, size_t n);
    void *arg;
};

static int match_error(int code)
{
    return code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAPLIMIT ? -ENOMEM : -EIO;
}

static int split_level(const struct split *s, unsigned level, const char *text, size_t len)
{
    if (level == s->p->n)
        return s->word(s->arg, text, len);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->match);
    int rc = 0;
    size_t done = 0;
    while (!rc && done < len) {
        int code = pcre2_match(s->p->code[level], (PCRE2_SPTR)text, len, done, PCRE2_NO_UTF_CHECK, s->match,
                               s->p->limits);
        if (code < 0 && code != PCRE2_ERROR_NOMATCH)
            return match_error(code);
        size_t from = code < 0 ? len : span[0], to = code < 0 ? len : span[1];
        if (from > done)
            rc = split_level(s, level + 1, text + done, from - done);
        if (!rc && to > from)
            rc = split_level(s, level + 1, text + from, to - from);
        done = to;
    }
    return rc;
}

int ntx__pre_split(const struct ntx__pre *p, const char *text, size_t len,
                   int (*word)(void *arg, const char *w, size_t n), void *arg)
{
    struct split s = {.p = p, .match = pcre2_match_data_create(1, NULL), .word = word, .arg = arg};
    int rc = s.match ? split_level(&s, 0, text, len) : -ENOMEM;
    pcre2_match_data_free(s.match);
    return rc;
}
