/* SPDX-License-Identifier: Apache-2.0 */
/* A profile's rates are the medians of doctor's rounds, each rate by itself. */
#include "client/doctor/doctor_impl.h"
#include "tests/lib/check.h"

enum { N = 3 };

static void one_rate_each(void)
{
    struct ntx_hw rounds[N], out = {.threads = 4};
    const double v[N] = {30e9, 50e9, 31e9};
    for (int i = 0; i < N; i++) {
        struct ntx_hw *h = &rounds[i];
        *h = (struct ntx_hw){.ram_bps_1 = v[i],
                             .ram_bps = v[(i + 1) % N],
                             .layer_s = 1e-6 * i,
                             .attend[NTX_KV_Q8_0][1] = {v[i], 1e-9 * i},
                             .value_s = 1e-9 * i,
                             .dot_s = 2e-9 * i,
                             .read_s = 1e-4 / (i + 1),
                             .in_flight = 4096,
                             .n_reads = 2,
                             .n_streams = 1,
                             .n_kernels = 2};
        h->reads[0] = (struct ntx_hw_read){4096, 1e8 * (i + 1)};
        h->streams[0] = (struct ntx_hw_read){524288, i == 2 ? 1e9 : 2e9 + i};
        h->reads[1] = (struct ntx_hw_read){65536, i == 1 ? 9e9 : 2e9 - i};
        h->kernels[0] = (struct ntx_hw_kernel){
            .type = NTX_Q4_K, .rows = 1, .interleaved = true, .bps = v[i], .bps_1 = v[i] / 2};
        h->kernels[1] = (struct ntx_hw_kernel){.type = NTX_Q4_K, .rows = 8, .bps = v[N - 1 - i] / 4};
    }
    ntx__doctor_median(rounds, N, &out);
    CHECK_EQ(out.threads, 4);
    CHECK(out.ram_bps_1 == 31e9 && out.ram_bps == 31e9 && out.layer_s == 1e-6 && out.read_s == 1e-4 / 2);
    CHECK(out.attend[NTX_KV_Q8_0][1].flops == 50e9 && out.attend[NTX_KV_Q8_0][1].score_s == 1e-9);
    CHECK(out.value_s == 1e-9 && out.dot_s == 2e-9);
    CHECK_EQ(out.in_flight, 4096);
    CHECK(out.n_reads == 2 && out.reads[0].bytes == 4096 && out.reads[0].bps == 2e8 && out.reads[1].bytes == 65536 &&
          out.reads[1].bps == 2e9);
    CHECK(out.n_streams == 1 && out.streams[0].bytes == 524288 && out.streams[0].bps == 2e9);
    CHECK(out.n_kernels == 2 && out.kernels[0].type == NTX_Q4_K && out.kernels[0].interleaved &&
          out.kernels[0].bps == 31e9 && out.kernels[0].bps_1 == 31e9 / 2);
    CHECK(out.kernels[1].rows == 8 && out.kernels[1].bps == 31e9 / 4 && out.kernels[1].bps_1 == 0);
    rounds[1].kernels[0].bps = rounds[2].kernels[0].bps = 40e9; /* memory's own rate was as high */
    rounds[1].kernels[1].bps = rounds[2].kernels[1].bps = 60e9; /* eight rows from it at a time: not memory's rate */
    ntx__doctor_median(rounds, N, &out);
    CHECK(out.ram_bps == 40e9 && out.ram_bps_1 == 31e9 && out.kernels[1].bps == 60e9);
    rounds[0].ram_bps = 70e9;
    ntx__doctor_median(rounds, 2, &out); /* of an even number: between the two in the middle */
    CHECK(out.ram_bps_1 == 40e9 && out.ram_bps == 50.5e9);
}

int main(void)
{
    one_rate_each();
    return 0;
}
