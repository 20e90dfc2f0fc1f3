/* generic.c: kernels in plain C, for any CPU: the oracle of the others. */
#include "infer/cpu/mm_plain.h"
#include "infer/cpu/ops.h"

PLAIN_SIMPLE(q4_0, false)
PLAIN_SIMPLE(q4_1, true)
PLAIN_SIMPLE(q5_0, false)
PLAIN_SIMPLE(q5_1, true)
PLAIN_SIMPLE(q8_0, false)
PLAIN_SIMPLE(mxfp4, false)
PLAIN_SUPER(q2_k, true)
PLAIN_SUPER(q3_k, false)
PLAIN_SUPER(q4_k, true)
PLAIN_SUPER(q5_k, true)
PLAIN_SUPER(q6_k, false)
PLAIN_MATMUL(f32, dot_float(w, n_in, x, 4, plain_f32))
PLAIN_MATMUL(f16, dot_float(w, n_in, x, 2, plain_f16))
PLAIN_MATMUL(bf16, dot_float(w, n_in, x, 2, plain_bf16))

const struct ntx_cpu_ops ntx__cpu_generic = {
    .name = "generic",
    .matmul = {
        [NTX_F32] = plain_mm_f32, [NTX_F16] = plain_mm_f16, [NTX_BF16] = plain_mm_bf16,
        [NTX_Q4_0] = plain_mm_q4_0, [NTX_Q4_1] = plain_mm_q4_1, [NTX_Q5_0] = plain_mm_q5_0,
        [NTX_Q5_1] = plain_mm_q5_1, [NTX_Q8_0] = plain_mm_q8_0, [NTX_Q2_K] = plain_mm_q2_k,
        [NTX_Q3_K] = plain_mm_q3_k, [NTX_Q4_K] = plain_mm_q4_k, [NTX_Q5_K] = plain_mm_q5_k,
        [NTX_Q6_K] = plain_mm_q6_k, [NTX_MXFP4] = plain_mm_mxfp4,
    },
    OPS_TABLE,
};
