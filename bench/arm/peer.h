/* Products of llama.cpp's that peer.c knows: their names, bytes of a row of 4096 weights and of x. */
#ifndef BYTES_Q8_0
#define BYTES_Q8_0 (128 * 34)
#define BYTES_Q8_1 (128 * 36)
#define BYTES_Q8_K (16 * 292)
#endif
DOT(q4_0_q8_0, 128 * 18, BYTES_Q8_0) DOT(q4_1_q8_1, 128 * 20, BYTES_Q8_1) DOT(q5_0_q8_0, 128 * 22, BYTES_Q8_0) DOT(q5_1_q8_1, 128 * 24, BYTES_Q8_1)
DOT(q8_0_q8_0, 128 * 34, BYTES_Q8_0) DOT(mxfp4_q8_0, 128 * 17, BYTES_Q8_0) DOT(nvfp4_q8_0, 64 * 36, BYTES_Q8_0) DOT(iq4_nl_q8_0, 128 * 18, BYTES_Q8_0)
DOT(q1_0_q8_0, 32 * 18, BYTES_Q8_0) DOT(q2_0_q8_0, 64 * 18, BYTES_Q8_0)
DOT(q2_K_q8_K, 16 * 84, BYTES_Q8_K) DOT(q3_K_q8_K, 16 * 110, BYTES_Q8_K) DOT(q4_K_q8_K, 16 * 144, BYTES_Q8_K) DOT(q5_K_q8_K, 16 * 176, BYTES_Q8_K)
DOT(q6_K_q8_K, 16 * 210, BYTES_Q8_K) DOT(iq4_xs_q8_K, 16 * 136, BYTES_Q8_K) DOT(iq2_xxs_q8_K, 16 * 66, BYTES_Q8_K) DOT(iq2_xs_q8_K, 16 * 74, BYTES_Q8_K)
DOT(iq2_s_q8_K, 16 * 82, BYTES_Q8_K) DOT(iq3_xxs_q8_K, 16 * 98, BYTES_Q8_K) DOT(iq3_s_q8_K, 16 * 110, BYTES_Q8_K) DOT(iq1_s_q8_K, 16 * 50, BYTES_Q8_K)
DOT(iq1_m_q8_K, 16 * 56, BYTES_Q8_K) DOT(tq1_0_q8_K, 16 * 54, BYTES_Q8_K) DOT(tq2_0_q8_K, 16 * 66, BYTES_Q8_K)
REPACKED(q4_0_4x4_q8_0, 128 * 18, BYTES_Q8_0, 4) REPACKED(q4_0_4x8_q8_0, 128 * 18, BYTES_Q8_0, 4) REPACKED(q8_0_4x4_q8_0, 128 * 34, BYTES_Q8_0, 4) REPACKED(q8_0_4x8_q8_0, 128 * 34, BYTES_Q8_0, 4)
REPACKED(iq4_nl_4x4_q8_0, 128 * 18, BYTES_Q8_0, 4) REPACKED(mxfp4_4x4_q8_0, 128 * 17, BYTES_Q8_0, 4) REPACKED(q1_0_4x4_q8_0, 32 * 18, BYTES_Q8_0, 4) REPACKED(q1_0_4x8_q8_0, 32 * 18, BYTES_Q8_0, 4)
REPACKED(q4_K_8x4_q8_K, 16 * 144, BYTES_Q8_K, 8) REPACKED(q4_K_8x8_q8_K, 16 * 144, BYTES_Q8_K, 8) REPACKED(q5_K_8x4_q8_K, 16 * 176, BYTES_Q8_K, 8) REPACKED(q5_K_8x8_q8_K, 16 * 176, BYTES_Q8_K, 8)
REPACKED(q6_K_8x4_q8_K, 16 * 210, BYTES_Q8_K, 8) REPACKED(q6_K_8x8_q8_K, 16 * 210, BYTES_Q8_K, 8)
