/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of machines: all rows, once each, in whole slices; and shares that take the same time. */
#include <math.h>
#include <string.h>

#include "model/share.h"
#include "tests/lib/check.h"

#define CAN(keeps_, memory_, drive_)                                                                                   \
    {                                                                                                                  \
        .keeps = keeps_, .memory = memory_, .drive = drive_                                                            \
    }

static void all_rows_once(void)
{
    static const struct ntx_share shares[] = {
        {.n = 1, .part = {1}},
        {.n = 2, .part = {1, 1}},
        {.n = 3, .part = {1, 2, 3}},
        {.n = 3, .part = {1, 1000000, 1}},
        {.n = 16, .part = {5, [15] = 1}},
        {.n = 4, .part = {0}},
    };
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        for (uint32_t n_out = 1; n_out < 3000; n_out += 37) {
            uint32_t at = 0;
            for (uint32_t rank = 0; rank < shares[i].n; rank++) {
                struct ntx_share_range own = ntx_share_of(&shares[i], 0, n_out, rank);
                CHECK_EQ(own.n ? own.first : at, at);
                CHECK(own.first % NTX_SHARE_UNIT == 0 || !own.n);
                CHECK_MSG(!ntx_share_deals(&shares[i], 0, n_out) || own.n >= NTX_SHARE_UNIT,
                          "rank %u has %u of %u rows", rank, own.n, n_out);
                CHECK(ntx_share_deals(&shares[i], 0, n_out) || !rank || !own.n);
                at += own.n;
            }
            CHECK_EQ(at, n_out);
        }
}

/* Layers go round, by the parts; the output is split by rows. */
static void layers_go_round(void)
{
    static const uint64_t bytes[] = {10, 10, 10, 10, 10, 10, 10, 10};
    struct ntx_share s = {.n = 3, .part = {1, 2, 1}};
    ntx_share_layers(&s, bytes, 8);
    static const uint8_t by_parts[] = {1, 0, 1, 2, 1, 0, 1, 2, NTX_SHARE_ALL};
    CHECK(!memcmp(s.owner, by_parts, sizeof by_parts));
    for (uint32_t rank = 0; rank < 3; rank++)
        CHECK_EQ(ntx_share_of(&s, 0, 77, rank).n, rank == 1 ? 77 : 0);
    CHECK(ntx_share_deals(&s, 0, 1) && !ntx_share_deals(&s, 1, 100000) && ntx_share_deals(&s, 8, 16000));
    CHECK_EQ(ntx_share_of(&s, 1, 77, 0).n, 77);
    CHECK_EQ(ntx_share_of(&s, 8, 16000, 1).n, 7984);
    CHECK(ntx_share_has_outputs(&s, 3, 2) && !ntx_share_has_outputs(&s, 3, 1) && ntx_share_has_outputs(&s, 8, 1));
    /* 10 of each layer are streamed: of two layers of a run two thirds must have been read when it begins; they would
     * be 40 beside the resident ones */
    static const struct ntx_share pairs = {.n = 3, .split = NTX_SPLIT_LAYERS, .owner = {0, 0, 1, 2, 0, 0, 1, 2}};
    CHECK(fabs(ntx_share_ahead(&pairs, 0, 8, 40) - 20) < 1e-9 && fabs(ntx_share_ahead(&pairs, 1, 8, 20) - 10) < 1e-9);
    CHECK(ntx_share_ahead(&pairs, 0, 8, 0) == 0 && fabs(ntx_share_ahead(&pairs, 0, 2, 40) - 80) < 1e-9);
}

static void in_proportion(void)
{
    const struct ntx_share s = {.n = 3, .part = {100, 300, 600}};
    CHECK_EQ(ntx_share_of(&s, 0, 16000, 0).n, 1600);
    CHECK_EQ(ntx_share_of(&s, 0, 16000, 1).n, 4800);
    CHECK_EQ(ntx_share_of(&s, 0, 16000, 2).n, 9600);
    CHECK(!ntx_share_deals(NULL, 0, 16000));
    CHECK_EQ(ntx_share_of(NULL, 0, 100, 0).n, 100);
}

static void the_same_time(void)
{
    struct ntx_share s;
    /* nothing is resident: in proportion to the drives */
    const struct ntx_share_machine drives[] = {CAN(0, 10e9, 100e6), CAN(0, 10e9, 300e6)};
    CHECK(fabs(ntx_share_even(drives, 2, &(struct ntx_share_work){.dense = 4e9}, &s) - 10) < 1e-6);
    CHECK(fabs((double)s.part[1] / s.part[0] - 3) < 1e-3);
    /* two keep 2 GB each, of 6: 2 GB are read by the third's drive, or by all */
    const struct ntx_share_machine mixed[] = {CAN(2e9, 10e9, 1e9), CAN(2e9, 10e9, 1e9), CAN(0, 10e9, 1e9)};
    CHECK(fabs(ntx_share_even(mixed, 3, &(struct ntx_share_work){.dense = 6e9}, &s) - 2.0 / 3) < 1e-6);
    CHECK(fabs((double)s.part[0] / s.part[2] - 4) < 1e-3);
    /* all in memory: in proportion to the memories */
    const struct ntx_share_machine memories[] = {CAN(1e12, 30e9, 1e9), CAN(1e12, 10e9, 1e9)};
    CHECK(fabs(ntx_share_even(memories, 2, &(struct ntx_share_work){.dense = 4e9}, &s) - 0.1) < 1e-6);
    CHECK(fabs((double)s.part[0] / s.part[1] - 3) < 1e-3);
    s.n = 77;
    CHECK(ntx_share_even((const struct ntx_share_machine[]){CAN(1, 0, 1), CAN(1, 1, 1)}, 2,
                         &(struct ntx_share_work){.dense = 1}, &s) == 0);
    CHECK_EQ(s.n, 77);
}

/* Two machines with 3 GB each: 1 GB of dense weights and 8 GB of experts, an eighth of which a token takes. */
static void experts_that_stay(void)
{
    struct ntx_share s;
    const struct ntx_share_work w = {.dense = 1e9, .experts = 8e9, .used = 0.125};
    const struct ntx_share_machine two[] = {CAN(3e9, 10e9, 1e9), CAN(3e9, 10e9, 1e9)};
    CHECK(fabs(ntx_share_reads(&two[0], &w, 0.5) - 0.125 * (4e9 - 2.5e9)) < 1);
    CHECK(fabs(ntx_share_even(two, 2, &w, &s) - 0.1875) < 1e-6);
    CHECK_EQ(s.part[0], s.part[1]);
    /* the second one keeps nothing: its drive reads dense bytes, too; the first has a larger share, so that both take
     * equally long */
    const struct ntx_share_machine unlike[] = {CAN(3e9, 10e9, 1e9), CAN(0, 10e9, 1e9)};
    double t = ntx_share_even(unlike, 2, &w, &s), part = (double)s.part[0] / (s.part[0] + s.part[1]);
    CHECK(fabs(ntx_share_reads(&unlike[0], &w, part) / 1e9 - t) < 1e-5 &&
          fabs(ntx_share_reads(&unlike[1], &w, 1 - part) / 1e9 - t) < 1e-5);
    /* so little is kept that dense bytes are read: no expert is resident */
    const struct ntx_share_machine small[] = {CAN(1e8, 10e9, 1e9), CAN(1e8, 10e9, 1e9)};
    CHECK(fabs(ntx_share_even(small, 2, &w, &s) - 0.9) < 1e-6);
}

int main(void)
{
    all_rows_once();
    experts_that_stay();
    in_proportion();
    layers_go_round();
    the_same_time();
    return 0;
}
