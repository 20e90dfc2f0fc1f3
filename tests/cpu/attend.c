/* attend.c: attention of one head against float64, with holes and odd widths; equal bits on every instruction set; K and V are
 * read only where they are. */
#include "model/quant.h"
#include "tests/cpu/kit.h"

enum { MAX_POS = 200, MAX_HEAD = 256, MAX_BLOCKS = 64 };

struct kv {
    struct guarded mem[MAX_BLOCKS];
    const uint16_t *at[MAX_BLOCKS];
    uint32_t width, tokens;
};

static void kv_fill(struct kv *kv, struct rng *r, uint32_t n_pos, uint32_t tokens, uint32_t width, const uint8_t *hole)
{
    kv->width = width;
    kv->tokens = tokens;
    for (uint32_t b = 0; b * tokens < n_pos; b++) {
        uint32_t here = n_pos - b * tokens < tokens ? n_pos - b * tokens : tokens;
        kv->mem[b] = guard_new(here * width * 2); /* a last block that is part full ends at its page */
        uint16_t *p = (uint16_t *)(void *)(kv->mem[b].end - (size_t)here * width * 2);
        for (uint32_t t = 0; t < here; t++) {
            bool gone = hole && hole[(b * tokens + t) / 8] >> ((b * tokens + t) % 8) & 1;
            for (uint32_t i = 0; i < width; i++)
                p[t * width + i] = gone ? 0x7e00 /* NaN: must not be touched */ : ntx_f32_to_f16(rng_float(r));
        }
        kv->at[b] = p;
    }
}

static void kv_free(struct kv *kv, uint32_t n_pos)
{
    for (uint32_t b = 0; b * kv->tokens < n_pos; b++)
        guard_free(kv->mem[b]);
}

static double kv_at(const struct kv *kv, uint32_t p, uint32_t i)
{
    return (double)ntx_f16_to_f32(kv->at[p / kv->tokens][p % kv->tokens * kv->width + i]);
}

static void reference(const struct ntx_attn *a, const struct kv *k, const struct kv *v, double *out)
{
    double s[MAX_POS], max = -INFINITY, sum = 0;
    for (uint32_t p = 0; p < a->n_pos; p++) {
        s[p] = 0;
        for (uint32_t i = 0; i < a->head_k; i++)
            s[p] += (double)a->q[i] * kv_at(k, p, i);
        s[p] = a->hole && a->hole[p / 8] >> (p % 8) & 1 ? -INFINITY : s[p] * (double)a->scale;
        max = fmax(max, s[p]);
    }
    for (uint32_t i = 0; i < a->head_v; i++)
        out[i] = 0;
    for (uint32_t p = 0; p < a->n_pos; p++) {
        if (s[p] == -INFINITY)
            continue;
        double e = exp(s[p] - max);
        sum += e;
        for (uint32_t i = 0; i < a->head_v; i++)
            out[i] += e * kv_at(v, p, i);
    }
    for (uint32_t i = 0; i < a->head_v && sum > 0; i++)
        out[i] /= sum;
}

static void check_case(struct rng *r, uint32_t n_pos, uint32_t tokens, uint32_t head_k, uint32_t head_v, int holes)
{
    float q[MAX_HEAD], out[MAX_HEAD + 1], same[MAX_HEAD + 1];
    _Alignas(64) float scratch[MAX_POS + 16];
    uint8_t hole[MAX_POS / 8 + 1];
    double want[MAX_HEAD];
    struct kv k, v;
    for (uint32_t i = 0; i < sizeof hole; i++)
        hole[i] = (uint8_t)(holes == 1 ? rng_u32(r) & rng_u32(r) : 0xff);
    kv_fill(&k, r, n_pos, tokens, head_k, holes ? hole : NULL);
    kv_fill(&v, r, n_pos, tokens, head_v, holes ? hole : NULL);
    for (uint32_t i = 0; i < head_k; i++)
        q[i] = rng_float(r) * 4;
    struct ntx_attn a = {q, out, k.at, v.at, tokens, n_pos, head_k, head_v, 1 / sqrtf((float)head_k), holes ? hole : NULL, scratch};
    out[head_v] = same[head_v] = 77;
    reference(&a, &k, &v, want);
    ntx_cpu_pick("generic")->attend(&a);
    for (uint32_t i = 0; i < head_v; i++)
        CHECK_MSG(fabs((double)out[i] - want[i]) < 3e-6, "%u positions: %g, expected %g", n_pos, (double)out[i], want[i]);
    const struct ntx_cpu_ops *ops;
    for (unsigned n = 0; (ops = isa_at(n)); n++) {
        a.out = same;
        ops->attend(&a);
        CHECK(!memcmp(out, same, (head_v + 1) * sizeof *out));
    }
    kv_free(&k, n_pos);
    kv_free(&v, n_pos);
}

int main(void)
{
    static const uint32_t widths[] = {8, 16, 32, 40, 64, 80, 96, 128, 192, 256};
    static const uint32_t lengths[] = {1, 2, 7, 15, 16, 17, 33, 64, 100, 200};
    struct rng r = {5};
    for (unsigned w = 0; w < sizeof widths / sizeof *widths; w++)
        for (unsigned n = 0; n < sizeof lengths / sizeof *lengths; n++)
            for (int holes = 0; holes < 3; holes++)
                check_case(&r, lengths[n], n % 2 ? 16 : 32, widths[w], widths[(w + n) % 10], holes);
    return 0;
}
