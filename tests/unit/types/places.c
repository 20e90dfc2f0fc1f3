/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a table of types and their kernels from the tables that choose kernels, and compares it with that of
 * docs/types.md. test_types-places --print prints it, to be pasted after a change. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "computed/cpu/cpu.h"
#include "model/quant.h"
#include "model/quantize.h"
#include "tests/lib/check.h"
#include "tests/mkmodel/describe.h"

extern const struct ntx_cpu_ops ntx__cpu_generic, ntx__cpu_avx2, ntx__cpu_avx512, ntx__cpu_amx;

#define NAME(rule, TYPE, ...) NTX_##TYPE,
static const uint32_t all[] = {NTX_TYPES(NAME)};

static char *text_of(const char *path)
{
    char whole[4096];
    const char *source = getenv("NTX_SOURCE");
    CHECK_MSG(source, "run it through ctest, or set NTX_SOURCE");
    snprintf(whole, sizeof whole, "%s/%s", source, path);
    FILE *f = fopen(whole, "r");
    CHECK_MSG(f, "%s", whole);
    char *text = calloc(1, 1 << 20);
    CHECK(text && fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

/* `word` is in the line that begins with `start`, or in a line that continues it, and no letter of a name is beside
 * it. */
static bool in_line(const char *text, const char *start, const char *word)
{
    const char *line = strstr(text, start), *end = line ? strchr(line, '\n') : NULL;
    while (end && end[-1] == '\\')
        end = strchr(end + 1, '\n');
    CHECK_MSG(line && end, "no line '%s'", start);
    for (const char *at = line; (at = strstr(at, word)) && at < end; at++)
        if (strchr(" ,(-:", at[-1]) && strchr(" ,):;}", at[strlen(word)]))
            return true;
    return false;
}

static const char *has(bool yes) { return yes ? "own" : "plain"; }

/* Panels serve many rows: where the table of AVX-512 has another function than that of AVX2 and of plain C. With tiles:
 * yet another. */
static void row_of(uint32_t type, const char *neon, const char *long_test, const char *golden, char *row, size_t size)
{
    const struct ntx_type_info *t = ntx_type_info(type);
    const struct ntx_cpu_ops *amx = &ntx__cpu_amx, *avx512 = &ntx__cpu_avx512;
    const bool panels = t->block > 1 && avx512->own[type] && avx512->matmul[type] != ntx__cpu_avx2.matmul[type],
               tiles = panels && amx->matmul[type] != avx512->matmul[type];
    const bool codes = in_line(neon, "#define NEON_CODES", t->name),
               simple = in_line(neon, "#define NEON_SIMPLE", t->name),
               super = in_line(neon, "#define NEON_SUPER", t->name);
    char oracle[32];
    snprintf(oracle, sizeof oracle, "--type %s%s ", t->name, type == NTX_Q4_K || type == NTX_Q5_K ? "_M" : "");
    snprintf(row, size, "| %s | %u | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", t->name, t->block,
             has(ntx__cpu_avx2.own[type]), has(avx512->own[type]), panels ? "panels" : "rows", tiles ? "tiles" : "rows",
             avx512->interleaved[type] && amx->interleaved[type] ? "yes" : "no",
             has(codes || simple || super || in_line(neon, "#define NEON_FLOAT", t->name)),
             codes || simple || super ? "i8mm" : "rows", ntx_quantizes(type) ? "yes" : "no",
             mk_type_known(t->name) ? "yes" : "no", in_line(long_test, "${NTX_TYPES:-", t->name) ? "yes" : "no",
             strstr(golden, oracle) ? "yes" : "no");
}

int main(int argc, char **argv)
{
    char *doc = text_of("docs/types.md"), *neon = text_of("computed/cpu/neon.h"),
         *long_test = text_of("tests/system/pipeline/types_test.sh"), *readme = text_of("README.md"),
         *golden = text_of("tests/golden/make.py"), row[256];
    const bool print = argc > 1 && !strcmp(argv[1], "--print");
    const char *at = strstr(doc, "\n| F32 |");
    CHECK(print || at);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        row_of(all[i], neon, long_test, golden, row, sizeof row);
        if (print) {
            fputs(row, stdout);
            continue;
        }
        CHECK_MSG(!strncmp(at + 1, row, strlen(row)), "docs/types.md does not say, in the order of NTX_TYPES:\n%s",
                  row);
        at += strlen(row);
    }
    CHECK_MSG(print || at[1] != '|', "docs/types.md has more types than NTX_TYPES");
    /* the table of types has only those of NTX_TYPES, integers, which have no product, and high and low bits */
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_type_info(t) && t < NTX_PLANES_FIRST && t != NTX_I8 && t != NTX_I32 && t != NTX_I64) {
            bool listed = false;
            for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                listed |= all[i] == t;
            CHECK_MSG(listed, "%s", ntx_type_info(t)->name);
            CHECK_MSG(ntx__cpu_generic.matmul[t] && ntx__cpu_avx2.matmul[t] && ntx__cpu_avx512.matmul[t] &&
                          ntx__cpu_amx.matmul[t],
                      "%s", ntx_type_info(t)->name);
        }
    CHECK(strstr(readme, "(docs/types.md)"));
    free(doc);
    free(neon);
    free(long_test);
    free(readme);
    free(golden);
    return 0;
}
