/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c: every type, instruction set and shape gives the oracle's bits; the oracle agrees with float64 on the
 * dequantised weights; nothing is read behind the weights or written beside y. Interleaved weights give them, too. */
#include "computed/cpu/interleaved_row.h"
#include "model/quant.h"
#include "tests/lib/cpu_blocks.h"
#include "tests/lib/cpu_kit.h"

enum { MAX_OUT = 37, MAX_ROWS = 17, POISON = 0x7fa12345 };

#define TYPE(rule, TYPE, ...) NTX_##TYPE,
static const uint32_t types[] = {NTX_TYPES(TYPE)};

struct problem {
    uint32_t type, n_in, n_out, n_rows;
    size_t row_bytes, x_stride;
    struct guarded w;
    char *x;  /* packed rows */
    float *y; /* [n_rows x n_out] by the oracle */
    bool extreme;
};

static float extreme_value(struct rng *r) { return rng_u32(r) & 1 ? 3.0f : -3.0f; }

static void problem_new(struct problem *p, struct rng *r)
{
    const struct ntx_cpu_ops *g = ntx_cpu_pick("generic");
    const struct ntx_type_info *t = ntx_type_info(p->type);
    enum ntx_act form = ntx_act_for(p->type);
    p->row_bytes = ntx_row_bytes(p->type, p->n_in);
    CHECK(p->row_bytes > 0);
    p->w = guard_new(p->row_bytes * p->n_out);
    for (char *b = p->w.end - p->row_bytes * p->n_out; b < p->w.end; b += t->block_bytes)
        random_block(r, p->type, b, t->block_bytes, p->extreme);
    p->x_stride = ntx_act_row_bytes(form, p->n_in) + 64;
    p->x = aligned_bytes(p->x_stride * p->n_rows);
    p->y = aligned_bytes(sizeof *p->y * p->n_rows * p->n_out);
    float *x = aligned_bytes(sizeof *x * p->n_in);
    for (uint32_t row = 0; row < p->n_rows; row++) {
        for (uint32_t k = 0; k < p->n_in; k++)
            x[k] = p->extreme ? extreme_value(r) : rng_float(r);
        g->act_quantize[form](x, p->x + row * p->x_stride, p->n_in);
    }
    free(x);
    g->matmul[p->type](p->w.end - p->row_bytes * p->n_out, p->row_bytes, p->n_out, p->n_in, p->x, p->x_stride,
                       p->n_rows, p->y, p->n_out);
}

static void problem_free(struct problem *p)
{
    guard_free(p->w);
    free(p->x);
    free(p->y);
}

/* Activations as the kernel sees them: q * d of 32 or 256 values each (kern.h: integers first, then scales). */
static double activation(const struct problem *p, uint32_t row, uint32_t k)
{
    const char *x = p->x + row * p->x_stride;
    uint32_t block = ntx_act_for(p->type) == NTX_ACT_Q8 ? 32 : 256, pad = block == 32 ? 16 : 4;
    uint32_t blocks = (p->n_in / block + pad - 1) / pad * pad;
    float d;
    if (ntx_act_for(p->type) == NTX_ACT_F32) {
        memcpy(&d, x + 4 * k, 4);
        return d;
    }
    memcpy(&d, x + (size_t)blocks * block + 4 * (k / block), 4);
    return (double)d * ((const int8_t *)x)[k];
}

static void check_float64(const struct problem *p)
{
    float *w = aligned_bytes(sizeof *w * p->n_in);
    const struct ntx_type_info *t = ntx_type_info(p->type);
    for (uint32_t o = 0; o < p->n_out; o += 5) {
        t->dequant(p->w.end - p->row_bytes * (p->n_out - o), w, p->n_in / t->block);
        for (uint32_t r = 0; r < p->n_rows; r += 7) {
            double y = 0, size = 0;
            for (uint32_t k = 0; k < p->n_in; k++) {
                double product = w[k] * activation(p, r, k);
                y += product;
                size += fabs(product);
            }
            double off = fabs(y - (double)p->y[r * p->n_out + o]);
            CHECK_MSG(off <= 3e-6 * size + 1e-30, "%s n_in %u: %g of %g", t->name, p->n_in, off, size);
        }
    }
    free(w);
}

struct kernel { /* of `ops`; `many` with its scratch, or `matmul` */
    const struct ntx_cpu_ops *ops;
    ntx_matmul_fn *matmul;
    ntx_many_fn *many;
    void *scratch;
    size_t bytes;
};

/* The last n_out weight rows and the first n_rows of x must give their part of the whole result. `w` holds those rows
 * in the kernel's layout. */
static void check_outputs(const struct problem *p, const struct kernel *k, const char *w, uint32_t n_out,
                          uint32_t n_rows)
{
    size_t ldy = n_out + 3;
    static uint32_t y[(MAX_OUT + 3) * 300];
    for (size_t i = 0; i < ldy * n_rows; i++)
        y[i] = POISON;
    if (k->many)
        k->many(w, p->row_bytes, n_out, p->n_in, p->x, p->x_stride, n_rows, (float *)y, ldy, k->scratch, k->bytes);
    else
        k->matmul(w, p->row_bytes, n_out, p->n_in, p->x, p->x_stride, n_rows, (float *)y, ldy);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t o = 0; o < ldy; o++) {
            uint32_t want = POISON;
            if (o < n_out)
                memcpy(&want, &p->y[r * p->n_out + p->n_out - n_out + o], 4);
            CHECK_MSG(y[r * ldy + o] == want, "%s %s n_in %u n_out %u n_rows %u: y[%zu][%zu] is %08x, expected %08x",
                      k->ops->name, ntx_type_info(p->type)->name, p->n_in, n_out, n_rows, r, o, y[r * ldy + o], want);
        }
}

static void check_shape(const struct problem *p, const struct ntx_cpu_ops *ops, uint32_t n_out, uint32_t n_rows)
{
    check_outputs(p, &(struct kernel){.ops = ops, .matmul = ops->matmul[p->type]}, p->w.end - p->row_bytes * n_out,
                  n_out, n_rows);
}

/* The same by packing, with scratch for `together` rows at once. */
static void check_packed(const struct problem *p, const struct ntx_cpu_ops *ops, uint32_t n_out, uint32_t n_rows,
                         uint32_t together)
{
    const size_t bytes = (p->n_in + 31) / 32 * 32 * sizeof(float) * (NTX_MANY_OUTS + together);
    const struct kernel k = {.ops = ops, .many = ops->many[p->type], .scratch = aligned_bytes(bytes), .bytes = bytes};
    check_outputs(p, &k, p->w.end - p->row_bytes * n_out, n_out, n_rows);
    free(k.scratch);
}

/* Each row comes out of its slice as it went in. */
static void check_rows_back(const struct problem *p, const char *slices, const char *rows, uint32_t n_out)
{
    char *row = malloc(p->row_bytes);
    for (uint32_t o = 0; o < n_out; o++) {
        const bool known = ntx_cpu_interleaved_row(p->type, slices + o / NTX_SLICE_OUTS * NTX_SLICE_OUTS * p->row_bytes,
                                                   p->row_bytes, o % NTX_SLICE_OUTS, row);
        CHECK_EQ(known, p->type != NTX_Q1_0);
        CHECK_MSG(!known || !memcmp(row, rows + o * p->row_bytes, p->row_bytes), "%s n_in %u: row %u",
                  ntx_type_info(p->type)->name, p->n_in, o);
    }
    free(row);
}

/* The same rows interleaved, whole slices of them. */
static void check_interleaved(const struct problem *p, const struct ntx_cpu_ops *ops, uint32_t n_out,
                              const uint32_t *rows, unsigned n)
{
    size_t bytes = p->row_bytes * n_out;
    struct guarded w = guard_new(bytes), scratch = guard_new(p->row_bytes * NTX_SLICE_OUTS);
    char *from = memcpy(w.end - bytes, p->w.end - bytes, bytes);
    for (uint32_t o = 0; o < n_out; o += NTX_SLICE_OUTS)
        ops->interleave[p->type](from + o * p->row_bytes, p->row_bytes, scratch.end - p->row_bytes * NTX_SLICE_OUTS);
    check_rows_back(p, from, p->w.end - bytes, n_out);
    for (unsigned i = 0; i < n; i++)
        if (rows[i] <= p->n_rows)
            check_outputs(p, &(struct kernel){.ops = ops, .matmul = ops->interleaved[p->type]}, from, n_out, rows[i]);
    guard_free(w);
    guard_free(scratch);
}

static bool wants_vbmi(uint32_t type) { return type >= NTX_IQ2_XXS && type != NTX_IQ4_NL && type != NTX_BF16; }

/* The sets of isa_at; for types that use VBMI and BITALG the last AVX-512 set follows once more without them.
 * Emulated tiles are left out, since processors with tiles have both. */
static const struct ntx_cpu_ops *build_at(uint32_t type, unsigned k)
{
    const struct ntx_cpu_ops *ops = isa_at(k);
    if (ops || !k || !wants_vbmi(type))
        return ops;
#if defined(__x86_64__) && !defined(NTX_TILES_EMULATED)
    extern bool ntx__cpu_permutes_bytes; /* computed/cpu/pick.c, which finds it anew at each choice */
    static struct ntx_cpu_ops without;
    const struct ntx_cpu_ops *last = isa_at(k - 1);
    if (last && strcmp(last->name, "avx2") && ntx__cpu_permutes_bytes) {
        ntx__cpu_permutes_bytes = false;
        without = *last;
        without.name = "AVX-512 without VBMI";
        return &without;
    }
#endif
    return NULL;
}

static void check_all_shapes(struct problem *p, struct rng *r)
{
    static const uint32_t outs[] = {1, 2, 3, 5, 16, 17, MAX_OUT},
                          rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, MAX_ROWS};
    problem_new(p, r);
    check_float64(p);
    const struct ntx_cpu_ops *ops;
    for (unsigned k = 0; (ops = build_at(p->type, k)); k++) {
        CHECK(!ops->interleaved[p->type] == !ops->interleave[p->type]);
        for (unsigned i = 0; i < sizeof outs / sizeof *outs; i++)
            for (unsigned j = 0; j < sizeof rows / sizeof *rows; j++)
                if (outs[i] <= p->n_out && rows[j] <= p->n_rows &&
                    (ops->own[p->type] || (i % 3 == 0 && j % 5 == 0))) /* the plain one takes its time */
                    check_shape(p, ops, outs[i], rows[j]);
        for (unsigned i = 0; ops->many[p->type] && i < sizeof outs / sizeof *outs; i++)
            for (unsigned j = 10; outs[i] <= p->n_out && p->n_rows == MAX_ROWS && j < sizeof rows / sizeof *rows; j++)
                check_packed(p, ops, outs[i], rows[j], NTX_MANY_TILE);
        for (uint32_t n = NTX_SLICE_OUTS; ops->interleaved[p->type] && n <= p->n_out; n += NTX_SLICE_OUTS)
            check_interleaved(p, ops, n, rows, sizeof rows / sizeof *rows);
    }
    problem_free(p);
}

/* Row counts beyond any tile. */
static void check_many_rows(uint32_t type, struct rng *r)
{
    struct problem p = {.type = type, .n_in = 512, .n_out = MAX_OUT, .n_rows = 300};
    problem_new(&p, r);
    const struct ntx_cpu_ops *ops;
    for (unsigned k = 0; (ops = build_at(type, k)); k++) {
        check_shape(&p, ops, MAX_OUT, 300);
        check_shape(&p, ops, MAX_OUT, 67);
        check_shape(&p, ops, 16, 129);
        for (uint32_t together = 0; ops->many[type] && together <= 8 * NTX_MANY_TILE; together += 4 * NTX_MANY_TILE) {
            check_packed(&p, ops, MAX_OUT, 300, together);
            check_packed(&p, ops, 32, 67, together);
        }
        if (ops->interleaved[type])
            check_interleaved(&p, ops, 32, (const uint32_t[]){129, 143, 300}, 3);
    }
    problem_free(&p);
}

/* Checks a few shapes, so that an emulator needs only seconds. Prints a hash of the oracle's bits, which is the same on
 * every machine. */
static int few(struct rng *r)
{
    /* Eight rows of the first width, and four of the second, are more than neon_many.c holds. */
    static const uint32_t values[] = {40960, 81920};
    static const uint32_t blocks[] = {1, 5, 18}, outs[] = {1, 5}, rows[] = {1, 2, 3, 4, 5, 7};
    enum { N_ROWS = sizeof rows / sizeof *rows };
    for (unsigned t = 0; t < sizeof types / sizeof *types; t++) {
        uint64_t bits = 14695981039346656037u; /* FNV-1a */
        for (unsigned b = 0; b < (types[t] == NTX_Q4_0 ? 5 : 3); b++) {
            const uint32_t block = ntx_type_info(types[t])->block;
            uint32_t n_in = b < 3 ? blocks[b] * block : values[b - 3];
            if (b < 3 && block == 1)
                n_in = blocks[b] * 7 + 1;
            struct problem p = {.type = types[t],
                                .n_in = n_in,
                                .n_out = 2 * NTX_SLICE_OUTS,
                                .n_rows = 7,
                                .extreme = b == 1 && block > 1};
            problem_new(&p, r);
            const struct ntx_cpu_ops *ops;
            for (unsigned k = 0; (ops = build_at(types[t], k)); k++) {
                for (unsigned i = 0; i < 2 * N_ROWS; i++)
                    check_shape(&p, ops, outs[i / N_ROWS], rows[i % N_ROWS]);
                if (ops->interleaved[types[t]])
                    check_interleaved(&p, ops, p.n_out, rows, N_ROWS);
            }
            for (size_t i = 0; i < sizeof *p.y * p.n_rows * p.n_out; i++)
                bits = (bits ^ ((const uint8_t *)p.y)[i]) * 1099511628211u;
            problem_free(&p);
        }
        printf("%s %016llx\n", ntx_type_info(types[t])->name, (unsigned long long)bits);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct rng r = {42};
    if (argc > 1 && !strcmp(argv[1], "few"))
        return few(&r);
    if (argc > 1 && !strcmp(argv[1], "best")) {
        printf("%s %ld\n", ntx_cpu_pick(NULL)->name, sysconf(_SC_PAGESIZE));
        return 0;
    }
    if (!isa_at(0))
        printf("neither AVX2 nor AVX-512 here: only the generic kernels are checked\n");
    for (unsigned t = 0; t < sizeof types / sizeof *types; t++) {
        uint32_t block = ntx_type_info(types[t])->block;
        for (uint32_t blocks = 1; blocks <= 20; blocks++) {
            uint32_t n_in = block == 1 ? blocks * 7 + 1 : blocks * block;
            struct problem p = {.type = types[t], .n_in = n_in, .n_out = MAX_OUT, .n_rows = MAX_ROWS};
            check_all_shapes(&p, &r);
        }
        struct problem wide = {
            .type = types[t], .n_in = 256 * 37, .n_out = 33, .n_rows = 7}; /* several panels to a lane */
        check_all_shapes(&wide, &r);
        struct problem hard = {
            .type = types[t], .n_in = 256 * 6, .n_out = MAX_OUT, .n_rows = MAX_ROWS, .extreme = block > 1};
        check_all_shapes(&hard, &r);
        check_many_rows(types[t], &r);
        struct problem endless = {.type = types[t],
                                  .n_in = 256 * 257,
                                  .n_out = 3,
                                  .n_rows = 2}; /* more than kernels keep a copy of (avx512_codes.c) */
        if (wants_vbmi(types[t]))
            check_all_shapes(&endless, &r);
    }
    return 0;
}
