/* SPDX-License-Identifier: Apache-2.0 */
/* Uses of experts: counted, ordered, stored and read again; damaged files change nothing. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "computed/plan/heat_file.h"
#include "tests/lib/check.h"

enum { LAYERS = 3, EXPERTS = 4 };

static struct ntx_heat *counted(void)
{
    struct ntx_heat *h;
    CHECK_EQ(ntx_heat_new(LAYERS, EXPERTS, &h), 0);
    ntx_heat_count(h, 0, (uint32_t[]){1, 3}, (uint32_t[]){10, 5}, 2, 10); /* of ten rows, all used 1, and half 3 */
    ntx_heat_count(h, 2, (uint32_t[]){0, 2}, (uint32_t[]){3, 4}, 2, 4);
    return h;
}

static void ordered(void)
{
    struct ntx_heat *h = counted();
    uint32_t list[LAYERS * EXPERTS];
    CHECK_EQ(ntx_heat_order(h, list), 4);
    const uint32_t want[] = {1, 2 * EXPERTS + 2, 2 * EXPERTS, 3}; /* shares 1, 1, 0.75, 0.5 */
    CHECK(!memcmp(list, want, sizeof want));
    CHECK(ntx_heat_share(h, 3) == 0.5f && ntx_heat_share(h, 0) == 0 && ntx_heat_share(h, EXPERTS) == 0);
    for (int i = 0; i < 64; i++) /* 65536 rows later the old uses count half */
        ntx_heat_count(h, 0, (uint32_t[]){0}, (uint32_t[]){1024}, 1, 1024);
    CHECK(fabsf(h->uses[1] - 5) < 0.01f && h->uses[0] > 30000 && h->uses[2] == 0);
    CHECK_EQ(ntx_heat_order(h, list), 5);
    CHECK_EQ(list[0], 2 * EXPERTS + 2);
    CHECK_EQ(list[1], 0);
    ntx_heat_free(h);
}

static void stored(void)
{
    struct ntx_err err = {0};
    struct ntx_heat *h = counted(), *back, *other;
    char *text = ntx_heat_dump(h);
    CHECK_EQ(ntx_heat_new(LAYERS, EXPERTS, &back), 0);
    CHECK_MSG(!ntx_heat_parse(text, back, &err), "%s", err.text);
    CHECK(fabsf(back->uses[1] - 10) < 0.01f && back->uses[3] == 5 && back->rows[0] == 10 && back->rows[1] == 0 &&
          back->uses[2 * EXPERTS + 2] == 4);
    CHECK_EQ(ntx_heat_new(LAYERS, EXPERTS + 1, &other), 0);
    CHECK_EQ(ntx_heat_parse(text, other, &err), -EINVAL);
    ntx_heat_free(other);
    const char *bad[] = {
        "",
        "{}",
        "{\"ntx_heat\":2,\"experts\":4,\"rows\":[0,0,0],\"uses\":[[],[],[]]}",
        "{\"ntx_heat\":1,\"experts\":4,\"rows\":[0,0],\"uses\":[[],[],[]]}",
        "{\"ntx_heat\":1,\"experts\":4,\"rows\":[1,0,0],\"uses\":[[],[],[]]}",
        "{\"ntx_heat\":1,\"experts\":4,\"rows\":[1,0,0],\"uses\":[[1,2,3],[],[]]}",
        "{\"ntx_heat\":1,\"experts\":4,\"rows\":[1,0,0],\"uses\":[[1,2,3,-4],[],[]]}",
        "{\"ntx_heat\":1,\"experts\":4,\"rows\":[1,0,0],\"uses\":[[1,2,3,1e30],[],[]]}",
        "{\"ntx_heat\":1,\"experts\":4,\"rows\":[9999999999999,0,0],\"uses\":[[1,2,3,4],[],[]]}",
        "{\"ntx_heat\":1,\"experts\":4,\"rows\":[1,0,0],\"uses\":[[1,2,3,\"4\"],[],[]]}",
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(ntx_heat_parse(bad[i], back, &err) == -EINVAL, "%s", bad[i]);
    CHECK(fabsf(back->uses[1] - 10) < 0.01f && back->rows[0] == 10);
    free(text);
    ntx_heat_free(back);
    ntx_heat_free(h);
}

int main(void)
{
    ordered();
    stored();
    return 0;
}
