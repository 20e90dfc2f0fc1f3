/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kit.h: a GPU for a test: opens a plug-in library's table; the test is skipped where there is no card. */
#ifndef NTX_TESTS_LIB_CUDA_KIT_H
#define NTX_TESTS_LIB_CUDA_KIT_H

#include <dlfcn.h>

#include "cuda/ntx_cuda.h"
#include "tests/lib/check.h"
#include "tests/lib/cpu_blocks.h"
#include "tests/lib/cpu_kit.h"

struct gpu {
    const struct ntx_gpu_ops *ops;
    struct ntx_gpu *g;
    struct ntx_gpu_stream *s;
    struct ntx_gpu_info info;
};

#define OK(gpu, call) CHECK_MSG(!(call), "%s", (gpu)->ops->error((gpu)->g))

KIT void gpu_open(struct gpu *u, const char *library)
{
    char why[256] = "";
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK_MSG(lib, "%s", dlerror());
    const struct ntx_gpu_ops *(*table)(void);
    *(void **)&table = dlsym(lib, NTX_GPU_SYMBOL);
    CHECK(table);
    u->ops = table();
    CHECK_EQ(u->ops->abi, NTX_GPU_ABI);
    int rc = u->ops->open(0, &u->g, why, sizeof why);
    if (rc == -19) /* ENODEV */
        SKIP("%s", why);
    CHECK_MSG(!rc, "%s", why);
    OK(u, u->ops->stream_new(u->g, &u->s));
    OK(u, u->ops->info(u->g, &u->info));
    printf("%s: %s, compute capability %u.%u\n", u->ops->name, u->info.name, u->info.capability / 10,
           u->info.capability % 10);
}

KIT void gpu_close(struct gpu *u)
{
    u->ops->stream_free(u->s);
    u->ops->close(u->g);
}

KIT void *gpu_new(struct gpu *u, size_t bytes)
{
    void *p;
    OK(u, u->ops->alloc(u->g, bytes, &p));
    OK(u, u->ops->fill(u->s, p, 0xff, bytes)); /* NaN, in every form */
    return p;
}

/* A copy on the device, followed by `slack` poisoned bytes. */
KIT void *gpu_put(struct gpu *u, const void *host, size_t bytes, size_t slack)
{
    void *p = gpu_new(u, bytes + slack);
    OK(u, u->ops->upload(u->s, p, host, bytes));
    OK(u, u->ops->stream_sync(u->s));
    return p;
}

KIT void gpu_get(struct gpu *u, void *host, const void *dev, size_t bytes)
{
    OK(u, u->ops->download(u->s, host, dev, bytes));
    OK(u, u->ops->stream_sync(u->s));
}

KIT void gpu_drop(struct gpu *u, void *p) { u->ops->free(u->g, p); }

KIT void fill_random(struct rng *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = rng_float(r);
}

/* The `beside` floats after each row of n must still be poison. */
KIT void check_rows(const char *what, const float *got, size_t ld, const float *want, uint32_t n, uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t k = 0; k < n; k++)
            CHECK_MSG(!memcmp(&got[r * ld + k], &want[(size_t)r * n + k], 4), "%s: row %u value %u: %.9g, not %.9g",
                      what, r, k, (double)got[r * ld + k], (double)want[(size_t)r * n + k]);
        for (size_t k = n; k < ld; k++)
            CHECK_MSG(isnan(got[r * ld + k]), "%s: row %u: written behind its end", what, r);
    }
}

KIT uint8_t *random_weights(struct rng *r, uint32_t type, size_t bytes, bool extreme)
{
    uint8_t *w = malloc(bytes);
    uint32_t size = ntx_type_info(type)->block_bytes;
    for (size_t at = 0; at < bytes; at += size)
        random_block(r, type, (char *)w + at, size, extreme);
    return w;
}

#endif
