/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/nearest.h"
#include "common/util.h"

#define BELIEVED       0.8 /* share that is believed of published rates of memory and links */
#define BELIEVED_FLOPS 0.7
#define KERNEL_SHARE   0.8 /* of memory's rate, for weights of one row */
#define DDR4_BPS       51.2e9
#define DDR5_BPS       96e9

static const char *const keys[] = {"this", "gpu", "ram", "memory", "cores", "drive", "pcie"};
enum { THIS, GPU, RAM, MEMORY, CORES, DRIVE, PCIE, N_KEYS };

static const char *key_at(size_t i) { return keys[i]; }

static void set_memory(struct ntx_hw *hw, double bps)
{
    hw->ram_bps = bps;
    hw->ram_bps_1 = NTX_MIN(bps, NTX_MAX(0.54 * BELIEVED * DDR4_BPS, 0.45 * bps)); /* of one core */
}

/* Kernels as fast as memory with one row; arithmetic by the core. */
static void set_kernels(struct ntx_hw *hw, uint32_t cores)
{
    hw->threads = cores;
    hw->n_kernels = 0;
    hw->kernels[hw->n_kernels++] = (struct ntx_hw_kernel){
        .type = NTX_HW_ANY, .rows = 1, .bps = KERNEL_SHARE * hw->ram_bps};
    hw->kernels[hw->n_kernels++] = (struct ntx_hw_kernel){.type = NTX_HW_ANY, .rows = 8, .flops = 50e9 * cores};
    hw->kernels[hw->n_kernels++] = (struct ntx_hw_kernel){.type = NTX_HW_ANY, .rows = 64, .flops = 75e9 * cores};
    snprintf(hw->cpu, sizeof hw->cpu, "%u cores, AVX2", cores);
}

void ntx_machine_set_drive(struct ntx_hw *hw, double bps)
{
    hw->n_reads = hw->n_streams = 0;
    hw->reads[hw->n_reads++] = (struct ntx_hw_read){4096, NTX_MIN(0.15 * bps, 1.5e9)};
    hw->reads[hw->n_reads++] = (struct ntx_hw_read){65536, 0.75 * bps};
    hw->reads[hw->n_reads++] = (struct ntx_hw_read){524288, bps};
    hw->read_s = 80e-6;
    hw->in_flight = 4u << 20;
}

/* slot_bps 0: as good as the card's plug */
static void set_gpu(struct ntx_hw *hw, const struct ntx_card *card, double slot_bps)
{
    double plug = ntx_pcie_bps(card->pcie, card->lanes);
    snprintf(hw->gpu.name, sizeof hw->gpu.name, "%s", card->name);
    hw->gpu.bytes = (uint64_t)card->gib << 30;
    hw->gpu.unified = false;
    hw->gpu.bps = BELIEVED * card->gb_s * 1e9;
    hw->gpu.flops = BELIEVED_FLOPS * card->tflops * 1e12;
    hw->gpu.int8_ops = BELIEVED_FLOPS * card->tops * 1e12;
    hw->gpu.h2d_bps = BELIEVED * (slot_bps > 0 ? NTX_MIN(slot_bps, plug) : plug);
}

static void set_desktop(struct ntx_hw *hw)
{
    *hw = (struct ntx_hw){
        .source = "estimated", .kernel = "avx2", .ram_bytes = 32ull << 30, .layer_s = 30e-6, .token_s = 200e-6};
    set_memory(hw, BELIEVED * DDR4_BPS);
    set_kernels(hw, 8);
    ntx_machine_set_drive(hw, 3.3e9);
}

/* words that must wait for the others */
struct said {
    const struct ntx_card *card;
    bool no_gpu;
    double slot_bps, memory_bps;
    uint32_t cores;
};

static int bad_value(const char *key, const char *value, const char *expected, struct ntx_err *err)
{
    return ntx_err_set(err, -EINVAL, "--machine: '%s=%.40s' is wrong: expected %s", key, value, expected);
}

static int set_gpu_word(const char *value, struct said *s, struct ntx_err *err)
{
    s->no_gpu = !strcasecmp(value, "none");
    if (s->no_gpu || (s->card = ntx_card_find(value)))
        return 0;
    const char *near = ntx_nearest(value, ntx_card_name, ntx_card_count());
    return ntx_err_set(err, -EINVAL, "--machine: no GPU '%.40s' is known%s%s%s; `ntx plan --list` shows them", value,
                       near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static int set_memory_word(const char *value, struct said *s, struct ntx_err *err)
{
    bool ddr4 = !strcasecmp(value, "ddr4"), ddr5 = !strcasecmp(value, "ddr5");
    if (ddr4 || ddr5)
        s->memory_bps = BELIEVED * (ddr4 ? DDR4_BPS : DDR5_BPS);
    else if (ntx_parse_rate(value, &s->memory_bps) || s->memory_bps <= 0)
        return bad_value("memory", value, "ddr4, ddr5, or a rate such as 40G", err);
    return 0;
}

static int set_pcie_word(const char *value, struct said *s, struct ntx_err *err)
{
    char *end;
    unsigned long generation = strtoul(value, &end, 10), lanes = 16;
    if (end != value && *end == 'x')
        lanes = strtoul(end + 1, &end, 10);
    if (*end || lanes < 1 || lanes > 16 || generation > 6 ||
        !(s->slot_bps = ntx_pcie_bps((unsigned)generation, (unsigned)lanes)))
        return bad_value("pcie", value, "generation x lanes, such as 4x16", err);
    return 0;
}

static int set_word(size_t key, const char *value, struct ntx_hw *hw, struct said *s, struct ntx_err *err)
{
    char *end;
    double bps;
    switch (key) {
    case GPU: return set_gpu_word(value, s, err);
    case RAM:
        return ntx_parse_size(value, &hw->ram_bytes) || hw->ram_bytes < 1u << 20 /* a number without its unit */
                   ? bad_value("ram", value, "a size such as 64G", err)
                   : 0;
    case MEMORY: return set_memory_word(value, s, err);
    case CORES:
        s->cores = (uint32_t)strtoul(value, &end, 10);
        return end == value || *end || !s->cores || s->cores > 1024
                   ? bad_value("cores", value, "a number of cores, such as 8", err)
                   : 0;
    case DRIVE:
        if (ntx_parse_rate(value, &bps) || bps <= 0)
            return bad_value("drive", value, "bytes per second, such as 7G", err);
        ntx_machine_set_drive(hw, bps);
        return 0;
    default: return set_pcie_word(value, s, err);
    }
}

static int unknown_word(const char *word, struct ntx_err *err)
{
    const char *near = ntx_nearest(word, key_at, N_KEYS);
    return ntx_err_set(err, -EINVAL,
                       "--machine: '%.40s' is no word of it%s%s%s; the words are this, gpu=, ram=, memory=, cores=, "
                       "drive=, pcie=, with commas between them",
                       word, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* One "key=value". */
static int take_word(char *word, struct ntx_hw *hw, struct said *s, struct ntx_err *err)
{
    char *value = strchr(word, '=');
    size_t key = GPU;
    if (value)
        *value++ = 0;
    while (key < N_KEYS && strcasecmp(keys[key], word))
        key++;
    if (key == N_KEYS)
        return unknown_word(word, err);
    return value && *value ? set_word(key, value, hw, s, err) : bad_value(word, "", "a value behind it", err);
}

static void apply(const struct said *s, struct ntx_hw *hw)
{
    if (s->memory_bps > 0)
        set_memory(hw, s->memory_bps);
    if (s->memory_bps > 0 || s->cores)
        set_kernels(hw, s->cores ? s->cores : hw->threads);
    if (s->no_gpu)
        memset(&hw->gpu, 0, sizeof hw->gpu);
    if (s->card)
        set_gpu(hw, s->card, s->slot_bps);
    else if (s->slot_bps > 0 && hw->gpu.bytes)
        hw->gpu.h2d_bps = BELIEVED * s->slot_bps;
}

bool ntx_machine_is_this(const char *words) { return !strncasecmp(words, "this", 4) && (!words[4] || words[4] == ','); }

int ntx_machine_parse(const char *words, bool have_this, struct ntx_hw *hw, struct ntx_err *err)
{
    char text[256], *rest = text;
    struct said s = {0};
    struct ntx_hw m = *hw;
    if (strlen(words) >= sizeof text)
        return ntx_err_set(err, -E2BIG, "--machine: more than %zu characters", sizeof text - 1);
    if (!have_this)
        set_desktop(&m);
    snprintf(text, sizeof text, "%s", words + (ntx_machine_is_this(words) ? 4 + (words[4] == ',') : 0));
    int rc = 0;
    for (char *word; !rc && rest && *rest && (word = strsep(&rest, ","));)
        rc = take_word(word, &m, &s, err);
    if (rc)
        return rc;
    apply(&s, &m);
    snprintf(m.name, sizeof m.name, "%.95s", words);
    snprintf(m.source, sizeof m.source, "estimated");
    *hw = m;
    return 0;
}
