/* SPDX-License-Identifier: Apache-2.0 */
/* logits_base: rounding, divergence, and a file that reads as it was written. */
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "client/commands/logits_base.h"
#include "tests/lib/check.h"
#include "tests/lib/temporary.h"

enum { V = 5 };

static void rounding(void)
{
    const float a[V] = {1, 3, -2, 3, 0}, b[V] = {1, 2.5f, -2, 3.5f, 0}, far[V] = {0, -1000, 10, 0, 0},
                flat[V] = {2, 2, 2, 2, 2};
    struct ntx_base_row x, y;
    CHECK_EQ(ntx_base_row_new(V, &x), 0);
    CHECK_EQ(ntx_base_row_new(V, &y), 0);
    CHECK_EQ(ntx_base_round(&x, a, V, 0), 0);
    CHECK_EQ(x.top, 1); /* the first of equal logits */
    CHECK_EQ(x.q[1], 0);
    CHECK_EQ(x.q[2], 65535);
    CHECK(fabs(x.nll - (log(exp(1) + 2 * exp(3) + exp(-2) + 1) - 1)) < 1e-12);
    CHECK_EQ(ntx_base_round(&y, b, V, 3), 0);
    CHECK_EQ(y.top, 3);
    double za = log(exp(1) + 2 * exp(3) + exp(-2) + 1), zb = log(exp(1) + exp(2.5) + exp(-2) + exp(3.5) + 1), want = 0;
    for (int v = 0; v < V; v++)
        want += exp((double)a[v] - za) * ((a[v] - za) - (b[v] - zb));
    CHECK(fabs(ntx_base_kl(&x, &y, V) - want) < 2e-5 && want > 0.01);
    CHECK(ntx_base_kl(&x, &x, V) == 0);
    CHECK_EQ(ntx_base_round(&y, far, V, 2), 0);
    CHECK_EQ(y.q[1], 65535);
    CHECK(fabs(y.step - 32.0 / 65535) < 1e-9);
    CHECK_EQ(ntx_base_round(&y, flat, V, 4), 0);
    CHECK(y.step == 0 && fabs(y.nll - log(V)) < 1e-12);
    CHECK_EQ(ntx_base_round(&y, (const float[V]){0, NAN}, V, 0), -EDOM);
    free(x.q);
    free(y.q);
}

static void round_trip(void)
{
    char path[256];
    struct ntx_base_head h = {.n_vocab = V, .ctx = 4, .windows = 2, .scored = 1, .model = "m.gguf"};
    const int32_t tokens[8] = {1, 2, 3, 4, 1, 0, 0, 2};
    struct ntx_base_writer *w;
    struct ntx_base_reader *b;
    struct ntx_base_row x, y;
    struct ntx_err err = {0};
    close(temporary_file(path, sizeof path, "test"));
    CHECK_EQ(ntx_base_row_new(V, &x), 0);
    CHECK_EQ(ntx_base_row_new(V, &y), 0);
    CHECK_EQ(ntx_base_create(path, &h, tokens, &w, &err), 0);
    CHECK_EQ(ntx_base_round(&x, (const float[V]){5, 1, 2, 3, 4}, V, 4), 0);
    CHECK_EQ(ntx_base_write(w, &x, &err), 0);
    CHECK_EQ(ntx_base_write(w, &x, &err), 0);
    CHECK_EQ(ntx_base_finish(w, 1, &err), 0);
    CHECK_EQ(ntx_base_open(path, &b, &err), 0);
    CHECK_EQ(memcmp(ntx_base_tokens(b), tokens, sizeof tokens), 0);
    CHECK_STR(ntx_base_head(b)->model, "m.gguf");
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(ntx_base_read(b, &y, &err), 0);
        CHECK(y.nll == x.nll && y.step == x.step && y.top == x.top && !memcmp(x.q, y.q, V * sizeof *x.q));
    }
    CHECK(ntx_base_read(b, &y, &err) < 0);
    ntx_base_close(b);

    CHECK_EQ(ntx_base_create(path, &h, tokens, &w, &err), 0); /* a row is missing: the file is removed */
    CHECK_EQ(ntx_base_write(w, &x, &err), 0);
    CHECK(ntx_base_finish(w, 1, &err) < 0);
    CHECK(access(path, F_OK) != 0);
    free(x.q);
    free(y.q);
}

int main(void)
{
    rounding();
    round_trip();
    return 0;
}
