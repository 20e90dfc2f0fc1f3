/* avx2.c: kernels for AVX2 with FMA and F16C. */
#include "infer/cpu/avx2.h"
#include "infer/cpu/ops.h"

const struct ntx_cpu_ops ntx__cpu_avx2 = {
    .name = "avx2",
    .matmul = {
        [NTX_F32] = ntx__mm256_f32, [NTX_F16] = ntx__mm256_f16, [NTX_BF16] = ntx__mm256_bf16,
        [NTX_Q4_0] = ntx__mm256_q4_0, [NTX_Q4_1] = ntx__mm256_q4_1, [NTX_Q5_0] = ntx__mm256_q5_0,
        [NTX_Q5_1] = ntx__mm256_q5_1, [NTX_Q8_0] = ntx__mm256_q8_0, [NTX_Q2_K] = ntx__mm256_q2_k,
        [NTX_Q3_K] = ntx__mm256_q3_k, [NTX_Q4_K] = ntx__mm256_q4_k, [NTX_Q5_K] = ntx__mm256_q5_k,
        [NTX_Q6_K] = ntx__mm256_q6_k, [NTX_MXFP4] = ntx__mm256_mxfp4,
    },
    OPS_TABLE,
};
