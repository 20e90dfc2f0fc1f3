/* SPDX-License-Identifier: Apache-2.0 */
/* delta_net.h: gated delta nets, and Mamba-1 scans: part of ops.h. A panel of a head's matrix (16 or 32 columns) is
 * updated row by row (key by key); columns are independent. So a value depends neither on the width of registers nor on
 * the thread. */

INLINE struct f16 silu16(struct f16 x) { return div16(x, add16(exp16(sub16(splat(-0.0f), x)), splat(1.0f))); }

static void convolve(const float *w, const float *const *x, uint32_t taps, uint32_t n, float *y)
{
    for (uint32_t c = 0; c < n; c += 16) {
        struct f16 sum = splat(0);
        for (uint32_t j = 0; j < taps; j++)
            sum = fma16(load16(w + (size_t)j * n + c), load16(x[j] + c), sum);
        store16(y + c, silu16(sum));
    }
}

static void normalise_unit(float *x, float eps, uint32_t n)
{
    float scale = (float)(1.0 / sqrt(sum_of_squares(x, n) + (double)eps));
    for (uint32_t k = 0; k < n; k++)
        x[k] *= scale;
}

INLINE void delta_read(const struct ntx_delta_net *a, const uint32_t vecs)
{
    struct f16 seen[2] = {splat(0), splat(0)};
    const float *from = a->from;
    for (uint32_t i = 0; i < a->n_keys; i++, from += 16 * vecs)
        for (uint32_t v = 0; v < vecs; v++)
            seen[v] = fma16(load16(from + 16 * v), splat(a->next_k[i]), seen[v]);
    for (uint32_t v = 0; v < vecs; v++)
        store16(a->seen + 16 * v, seen[v]);
}

INLINE void delta_update(const struct ntx_delta_net *a, const uint32_t vecs, const bool by_key)
{
    struct f16 seen[2] = {splat(0), splat(0)}, out[2] = {splat(0), splat(0)}, d[2] = {splat(0), splat(0)};
    const struct f16 decay = splat(a->decay);
    const float *from = a->from;
    float *to = a->to;
    for (uint32_t v = 0; v < vecs; v++)
        d[v] = load16(a->d + 16 * v);
    for (uint32_t i = 0; i < a->n_keys; i++, from += 16 * vecs, to += 16 * vecs) {
        const struct f16 k = splat(a->k[i]), q = splat(a->q[i]), next = splat(a->next_k[i]),
                         keeps = by_key ? splat(a->decays[i]) : decay;
        for (uint32_t v = 0; v < vecs; v++) {
            struct f16 s = fma16(k, d[v], mul16(load16(from + 16 * v), keeps));
            store16(to + 16 * v, s);
            out[v] = fma16(s, q, out[v]);
            seen[v] = fma16(s, next, seen[v]);
        }
    }
    for (uint32_t v = 0; v < vecs; v++) {
        store16(a->out + 16 * v, out[v]);
        store16(a->seen + 16 * v, seen[v]);
    }
}

static void delta_net(const struct ntx_delta_net *a)
{
    if (a->k && a->decays && a->n_values == 32)
        delta_update(a, 2, true);
    else if (a->k && a->decays)
        delta_update(a, 1, true);
    else if (a->k && a->n_values == 32)
        delta_update(a, 2, false);
    else if (a->k)
        delta_update(a, 1, false);
    else if (a->n_values == 32)
        delta_read(a, 2);
    else
        delta_read(a, 1);
}

static void scan_each(const struct ntx_scan_each *a)
{
    const struct f16 t = load16(a->t), tx = load16(a->tx);
    struct f16 out = splat(0);
    for (uint32_t k = 0; k < a->n_keys; k++) {
        const struct f16 keeps = exp16(mul16(t, load16(a->rates + 16 * (size_t)k))),
                         s = fma16(tx, splat(a->b[k]), mul16(keeps, load16(a->from + 16 * (size_t)k)));
        store16(a->to + 16 * (size_t)k, s);
        out = fma16(s, splat(a->c[k]), out);
    }
    store16(a->out, out);
}
