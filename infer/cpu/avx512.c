/* avx512.c: kernels for AVX-512 (F BW VL DQ VNNI): by outputs for few rows, by panels for many. */
#include "infer/cpu/avx512.h"
#include "infer/cpu/ops.h"
#include "infer/cpu/interleaved.h"

const struct ntx_cpu_ops ntx__cpu_avx512 = {
    .name = "avx512",
    .matmul = {
        [NTX_F32] = ntx__mm512_f32, [NTX_F16] = ntx__mm512_f16, [NTX_BF16] = ntx__mm512_bf16,
        [NTX_Q4_0] = ntx__mmvec_q4_0, [NTX_Q4_1] = ntx__mmvec_q4_1, [NTX_Q5_0] = ntx__mmvec_q5_0,
        [NTX_Q5_1] = ntx__mmvec_q5_1, [NTX_Q8_0] = ntx__mmvec_q8_0, [NTX_Q2_K] = ntx__mmvec_q2_k,
        [NTX_Q3_K] = ntx__mmvec_q3_k, [NTX_Q4_K] = ntx__mmvec_q4_k, [NTX_Q5_K] = ntx__mmvec_q5_k,
        [NTX_Q6_K] = ntx__mmvec_q6_k, [NTX_MXFP4] = ntx__mmvec_mxfp4,
    },
    .interleaved = {[NTX_Q4_0] = ntx__interleaved_vec_q4_0, [NTX_Q8_0] = ntx__interleaved_vec_q8_0, [NTX_Q4_K] = ntx__interleaved_vec_q4_k, [NTX_Q5_K] = ntx__interleaved_vec_q5_k,
              [NTX_Q6_K] = ntx__interleaved_vec_q6_k, [NTX_MXFP4] = ntx__interleaved_vec_mxfp4},
    .interleave = {[NTX_Q4_0] = ntx__interleave_q4_0, [NTX_Q8_0] = ntx__interleave_q8_0, [NTX_Q4_K] = ntx__interleave_q4_k, [NTX_Q5_K] = ntx__interleave_q5_k,
              [NTX_Q6_K] = ntx__interleave_q6_k, [NTX_MXFP4] = ntx__interleave_mxfp4},
    OPS_TABLE,
};

/* The same with matrix tiles for many rows. */
const struct ntx_cpu_ops ntx__cpu_amx = {
    .name = "amx",
    .matmul = {
        [NTX_F32] = ntx__mm512_f32, [NTX_F16] = ntx__mm512_f16, [NTX_BF16] = ntx__mm512_bf16,
        [NTX_Q4_0] = ntx__mmamx_q4_0, [NTX_Q4_1] = ntx__mmamx_q4_1, [NTX_Q5_0] = ntx__mmamx_q5_0,
        [NTX_Q5_1] = ntx__mmamx_q5_1, [NTX_Q8_0] = ntx__mmamx_q8_0, [NTX_Q2_K] = ntx__mmamx_q2_k,
        [NTX_Q3_K] = ntx__mmamx_q3_k, [NTX_Q4_K] = ntx__mmamx_q4_k, [NTX_Q5_K] = ntx__mmamx_q5_k,
        [NTX_Q6_K] = ntx__mmamx_q6_k, [NTX_MXFP4] = ntx__mmamx_mxfp4,
    },
    .interleaved = {[NTX_Q4_0] = ntx__interleaved_amx_q4_0, [NTX_Q8_0] = ntx__interleaved_amx_q8_0, [NTX_Q4_K] = ntx__interleaved_amx_q4_k, [NTX_Q5_K] = ntx__interleaved_amx_q5_k,
              [NTX_Q6_K] = ntx__interleaved_amx_q6_k, [NTX_MXFP4] = ntx__interleaved_amx_mxfp4},
    .interleave = {[NTX_Q4_0] = ntx__interleave_q4_0, [NTX_Q8_0] = ntx__interleave_q8_0, [NTX_Q4_K] = ntx__interleave_q4_k, [NTX_Q5_K] = ntx__interleave_q5_k,
              [NTX_Q6_K] = ntx__interleave_q6_k, [NTX_MXFP4] = ntx__interleave_mxfp4},
    OPS_TABLE,
};
