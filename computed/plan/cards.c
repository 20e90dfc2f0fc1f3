/* SPDX-License-Identifier: Apache-2.0 */
/* cards.c: figures published by NVIDIA. Memory, bandwidth, plug: the cards' product pages and data sheets. Matrix
 * units: the white papers of the architectures Turing, Ampere GA102, Ada and Blackwell (GeForce and workstation
 * tables), A100, H100, and the data sheets of T4, A10, A30, A40, L4, L40S, H200 and B200. All figures are for dense
 * matrices; if a data sheet gives only those "with sparsity", half of them. GeForce cards sum in FP32 at half the rate
 * of FP16; the table has the former. ntx does not use cards of compute capability below 7.5 (Volta and older). */
#include "computed/plan/cards.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const struct ntx_card cards[] = {
    /* name, GiB, GB/s, FP16 TFLOP/s, INT8 TOP/s, PCIe. Turing, 2018 */
    {"2060", 6, 336, 25.8, 103.2, 3, 16},
    {"2060s", 8, 448, 28.7, 114.8, 3, 16},
    {"2070", 8, 448, 29.9, 119.4, 3, 16},
    {"2070s", 8, 448, 36.2, 145, 3, 16},
    {"2080", 8, 448, 40.3, 161.1, 3, 16},
    {"2080s", 8, 496, 44.6, 178.4, 3, 16},
    {"2080ti", 11, 616, 53.8, 215.2, 3, 16},
    {"titan", 24, 672, 130.5, 261, 3, 16},
    {"quadro-6000", 24, 672, 130.5, 261, 3, 16},
    {"quadro-8000", 48, 672, 130.5, 261, 3, 16},
    {"t4", 16, 320, 65, 130, 3, 16},
    /* Ampere, 2020 */
    {"3050", 8, 224, 18.2, 72.8, 4, 8},
    {"3060", 12, 360, 25.5, 102, 4, 16},
    {"3060ti", 8, 448, 32.4, 129.6, 4, 16},
    {"3070", 8, 448, 40.6, 162.6, 4, 16},
    {"3070ti", 8, 608, 43.5, 174, 4, 16},
    {"3080", 10, 760, 59.5, 238, 4, 16},
    {"3080-12g", 12, 912, 61.3, 245, 4, 16},
    {"3080ti", 12, 912, 68.2, 273, 4, 16},
    {"3090", 24, 936, 71, 284, 4, 16},
    {"3090ti", 24, 1008, 80, 320, 4, 16},
    {"a4000", 16, 448, 76.7, 153.4, 4, 16},
    {"a5000", 24, 768, 111.1, 222.2, 4, 16},
    {"a6000", 48, 768, 154.8, 309.7, 4, 16},
    {"a10", 24, 600, 125, 250, 4, 16},
    {"a30", 24, 933, 165, 330, 4, 16},
    {"a40", 48, 696, 149.7, 299.3, 4, 16},
    {"a100-40g", 40, 1555, 312, 624, 4, 16},
    {"a100-80g", 80, 1935, 312, 624, 4, 16},
    /* Ada, 2022; Hopper */
    {"4060", 8, 272, 30.2, 121, 4, 8},
    {"4060ti", 8, 288, 44.1, 176.5, 4, 8},
    {"4060ti-16g", 16, 288, 44.1, 176.5, 4, 8},
    {"4070", 12, 504, 58.3, 233.2, 4, 16},
    {"4070s", 12, 504, 70.9, 283.8, 4, 16},
    {"4070ti", 12, 504, 80.2, 320.7, 4, 16},
    {"4070tis", 16, 672, 88.2, 352.8, 4, 16},
    {"4080", 16, 717, 97.5, 389.9, 4, 16},
    {"4080s", 16, 736, 104.4, 417.7, 4, 16},
    {"4090", 24, 1008, 165.2, 660.6, 4, 16},
    {"4000-ada", 20, 360, 106.9, 213.8, 4, 16},
    {"5000-ada", 32, 576, 261.1, 522.2, 4, 16},
    {"6000-ada", 48, 960, 364.2, 728.5, 4, 16},
    {"l4", 24, 300, 121, 242, 4, 16},
    {"l40s", 48, 864, 362, 733, 4, 16},
    {"h100-pcie", 80, 2000, 756, 1513, 5, 16},
    {"h100", 80, 3350, 989, 1979, 5, 16},
    {"h200", 141, 4800, 989, 1979, 5, 16},
    /* Blackwell, 2025 */
    {"5050", 8, 320, 26.4, 105.3, 5, 8},
    {"5060", 8, 448, 38.4, 153.6, 5, 8},
    {"5060ti", 8, 448, 47.4, 189.6, 5, 8},
    {"5060ti-16g", 16, 448, 47.4, 189.6, 5, 8},
    {"5070", 12, 672, 61.7, 246.9, 5, 16},
    {"5070ti", 16, 896, 87.9, 351.5, 5, 16},
    {"5080", 16, 960, 112.6, 450.2, 5, 16},
    {"5090", 32, 1792, 209.5, 838, 5, 16},
    {"pro-6000", 96, 1792, 503.8, 1007.6, 5, 16},
    {"b200", 180, 7700, 2250, 4500, 5, 16},
};
enum { N_CARDS = sizeof cards / sizeof *cards };

size_t ntx_card_count(void) { return N_CARDS; }
const struct ntx_card *ntx_card_at(size_t i) { return &cards[i]; }
const char *ntx_card_name(size_t i) { return cards[i].name; }

/* Letters and digits in lower case, without words that all cards of a kind share. */
static void plain(const char *from, char *to, size_t n)
{
    static const char *const left_out[] = {"nvidia", "geforce", "rtx", "super", "gb"}, *const instead[] = {"", "", "",
                                                                                                           "s", "g"};
    size_t k = 0;
    while (*from && k + 1 < n) {
        size_t w = 0, words = sizeof left_out / sizeof *left_out;
        while (w < words && strncasecmp(from, left_out[w], strlen(left_out[w])))
            w++;
        if (w < words) {
            from += strlen(left_out[w]);
            if (*instead[w])
                to[k++] = *instead[w];
            continue;
        }
        if (isalnum((unsigned char)*from))
            to[k++] = (char)tolower((unsigned char)*from);
        from++;
    }
    to[k] = 0;
}

const struct ntx_card *ntx_card_find(const char *name)
{
    char wanted[64], is[64];
    plain(name, wanted, sizeof wanted);
    for (size_t i = 0; i < N_CARDS; i++) {
        plain(cards[i].name, is, sizeof is);
        if (!strcmp(wanted, is))
            return &cards[i];
    }
    return NULL;
}

double ntx_pcie_bps(unsigned generation, unsigned lanes)
{
    static const double lane[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
    return generation < sizeof lane / sizeof *lane ? lane[generation] * lanes : 0;
}
