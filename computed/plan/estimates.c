/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/estimates.h"

#include "model/quant.h"

#define BELIEVED (2.0 / 3)

static const uint16_t gb_s[NTX_TYPE_LIMIT][4] = {
    /* with 1, 2, 4 and 8 rows */
    [NTX_F32] = {3090, 1545, 1159, 965},      [NTX_F16] = {3090, 3090, 2957, 1643},
    [NTX_BF16] = {3090, 3090, 2957, 1643},    [NTX_Q2_0] = {2831, 2387, 1921, 1298},
    [NTX_Q1_0] = {2779, 1593, 1120, 706},     [NTX_NVFP4] = {3007, 2809, 2590, 1986},
    [NTX_TQ2_0] = {4646, 3107, 1344, 800},    [NTX_TQ1_0] = {2709, 1231, 858, 603},
    [NTX_IQ1_M] = {2855, 1946, 1061, 704},    [NTX_IQ1_S] = {2896, 2001, 1066, 709},
    [NTX_IQ2_S] = {2651, 2057, 1521, 1048},   [NTX_IQ2_XS] = {2697, 2074, 1495, 1010},
    [NTX_IQ2_XXS] = {2637, 2256, 1394, 944},  [NTX_IQ3_S] = {2666, 2409, 1663, 1267},
    [NTX_IQ3_XXS] = {2601, 2274, 1658, 1207}, [NTX_IQ4_XS] = {3042, 2966, 2280, 1684},
    [NTX_Q6_K] = {4754, 3763, 2638, 1637},    [NTX_Q5_K] = {5023, 3849, 2446, 1408},
    [NTX_Q4_K] = {5167, 3572, 2164, 1205},    [NTX_Q3_K] = {3424, 2831, 1564, 1024},
    [NTX_Q2_K] = {2723, 2194, 1548, 948},     [NTX_IQ4_NL] = {3326, 3076, 2358, 1440},
    [NTX_MXFP4] = {3065, 2840, 2284, 1381},   [NTX_Q8_0] = {6279, 5127, 3750, 2439},
    [NTX_Q5_1] = {5218, 4354, 2995, 1788},    [NTX_Q5_0] = {5043, 3919, 2644, 1602},
    [NTX_Q4_1] = {5343, 3925, 2564, 1514},    [NTX_Q4_0] = {4373, 3291, 2202, 1325},
};

double ntx_estimate_bps(uint32_t type, uint32_t rows)
{
    const unsigned column = (rows > 1) + (rows > 2) + (rows > 4);
    return type < NTX_TYPE_LIMIT ? BELIEVED * 1e9 * gb_s[type][column] : 0;
}
