/* SPDX-License-Identifier: Apache-2.0 */
/* pick.c: selects the table of kernels, once, and the form of activations for each type. NTX_WITHOUT_<SET>: this
 * build lacks the kernels of that set (computed/cpu/CMakeLists.txt). */
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "computed/cpu/kern.h"

static bool have_generic(void) { return true; }

#if defined(__x86_64__)
bool ntx__cpu_fetch_far, ntx__cpu_follows;
bool ntx__cpu_permutes_bytes;
#endif

#if defined(__x86_64__) && !defined(NTX_WITHOUT_AVX2)
/* An AMD processor with AVX-512 before Zen 5, whose family is 26. */
static bool is_zen4(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f") && __get_cpuid(1, &a, &b, &c, &d) &&
           (a >> 8 & 15) + (a >> 20 & 255) < 26;
}

static bool have_avx2(void)
{
    __builtin_cpu_init();
    ntx__cpu_fetch_far = __builtin_cpu_is("amd");
    ntx__cpu_follows = is_zen4();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
#define AVX2_CHOICES {&ntx__cpu_avx2, have_avx2},
#define AVX2_NAMES   ",avx2"
#else
#define AVX2_CHOICES
#define AVX2_NAMES
#endif

#if defined(__x86_64__) && !defined(NTX_WITHOUT_AVX512)
static bool have_avx512(void)
{
    __builtin_cpu_init();
    ntx__cpu_permutes_bytes = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bitalg");
    return have_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

/* Tiles need the CPU (AMX-TILE, AMX-INT8) and the kernel's permission, which then holds for the whole process. */
static bool have_amx(void)
{
    enum { AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25, REQ_XCOMP_PERM = 0x1023, XFEATURE_TILEDATA = 18 };
    unsigned a, b, c, d;
    if (!have_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_TILE) || !(d & AMX_INT8))
        return false;
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XFEATURE_TILEDATA) == 0;
}
#define AVX512_CHOICES {&ntx__cpu_amx, have_amx}, {&ntx__cpu_avx512, have_avx512},
#define AVX512_NAMES   ",avx512,amx"
#else
#define AVX512_CHOICES
#define AVX512_NAMES
#endif

#if defined(__aarch64__) && !defined(NTX_WITHOUT_NEON)
static bool have_neon(void) { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }

static bool have_i8mm(void) { return have_neon() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM); }
#define NEON_CHOICES {&ntx__cpu_i8mm, have_i8mm}, {&ntx__cpu_neon, have_neon},
#define NEON_NAMES   ",neon,i8mm"
#else
#define NEON_CHOICES
#define NEON_NAMES
#endif

/* Best first. */
static const struct {
    const struct ntx_cpu_ops *ops;
    bool (*have)(void);
} choices[] = {AVX512_CHOICES AVX2_CHOICES NEON_CHOICES{&ntx__cpu_generic, have_generic}};

const struct ntx_cpu_ops *ntx_cpu_pick(const char *force)
{
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        if ((!force || !strcmp(force, choices[i].ops->name)) && choices[i].have())
            return choices[i].ops;
    return NULL;
}

const char *ntx_cpu_names(void) { return "generic" AVX2_NAMES AVX512_NAMES NEON_NAMES; }

#define FORM_FLOAT                NTX_ACT_F32
#define FORM_SIMPLE               NTX_ACT_Q8
#define FORM_HALVES               NTX_ACT_Q8
#define FORM_SUPER                NTX_ACT_Q8K
#define FORM_ROW(rule, TYPE, ...) [NTX_##TYPE] = FORM_##rule,

#define FORM_Q4_K                 NTX_ACT_Q8K
#define FORM_Q5_K                 NTX_ACT_Q8K
#define FORM_Q6_K                 NTX_ACT_Q8K
#define FORM_Q5_0                 NTX_ACT_Q8
#define FORM_Q8_0                 NTX_ACT_Q8
#define FORM_PLANES(WHOLE, whole, low_bits, high_bits, ...)                                                            \
    [NTX_##WHOLE##_LOW##low_bits] = FORM_##WHOLE, [NTX_##WHOLE##_HIGH##high_bits] = FORM_##WHOLE,

enum ntx_act ntx_act_for(uint32_t type)
{
    static const uint8_t form[NTX_TYPE_LIMIT] = {NTX_TYPES(FORM_ROW) NTX_PLANES(FORM_PLANES)};
    return type < NTX_TYPE_LIMIT ? form[type] : NTX_ACT_F32;
}

size_t ntx_act_row_bytes(enum ntx_act form, uint32_t n)
{
    size_t nb;
    switch (form) {
    case NTX_ACT_Q8: return (size_t)round_up(n / NTX_QK, LANES) * (NTX_QK + 4 + 4);
    case NTX_ACT_Q8K: nb = n / NTX_QKK; return (nb + 3) / 4 * 4 * (NTX_QKK + 32 + 16) + (nb + 15) / 16 * 16 * 4;
    default: return ((size_t)n * 4 + 63) / 64 * 64;
    }
}
