/* SPDX-License-Identifier: Apache-2.0 */
/* floor.c: the cost of a token's exchanges alone: the same calls of the MPI plug-in without any product.
 *
 *     mpirun -n 3 build/bench/bench_ranks_floor build/bin/libntx-mpi.so EXCHANGES BYTES TOKENS
 *
 * In an exchange rank 0 sends half of BYTES to all others together, and all of them send the other half back. The
 * program prints seconds per token. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "computed/ranks/net.h"

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int exchange(const struct ntx_net_ops *o, struct ntx_net *net, char *out, char *in, size_t n, uint32_t others)
{
    int rc = 0;
    for (uint32_t i = 1; i <= others && !rc; i++)
        rc = o->send(net, i, out, n);
    rc = rc ? rc : o->wait(net, 60000);
    for (uint32_t i = 1; i <= others && !rc; i++)
        rc = o->take(net, i, in + (i - 1) * n, n);
    return rc ? rc : o->wait(net, 60000);
}

static int answer(const struct ntx_net_ops *o, struct ntx_net *net, size_t n)
{
    const void *got;
    size_t bytes;
    int rc = o->next(net, 0, &got, &bytes, 0, NULL);
    if (!rc && !(rc = o->send(net, 0, got, n < bytes ? n : bytes)))
        rc = o->wait(net, 60000);
    return rc;
}

int main(int argc, char **argv)
{
    char why[256] = "";
    struct ntx_net *net = NULL;
    void *lib = argc == 5 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    const struct ntx_net_ops *(*get)(void) = NULL;
    if (lib)
        *(void **)&get = dlsym(lib, NTX_NET_SYMBOL);
    if (!get || get()->open(&net, why, sizeof why)) {
        fprintf(stderr, "usage: bench_ranks_floor LIBNTX-MPI.SO EXCHANGES BYTES TOKENS %s\n", why);
        return 1;
    }
    const struct ntx_net_ops *o = get();
    const uint32_t others = o->size(net) - 1;
    const long exchanges = atol(argv[2]), tokens = atol(argv[4]);
    const size_t n = (size_t)atol(argv[3]) / 2 / (others ? others : 1) + 1;
    char *out = calloc(1, n), *in = calloc(others + 1, n);
    double t0 = now_s();
    int rc = out && in ? 0 : -1;
    for (long i = 0; i < exchanges * tokens && !rc; i++)
        rc = o->rank(net) ? answer(o, net, n) : exchange(o, net, out, in, n, others);
    if (!o->rank(net))
        printf("%.6g\n", (now_s() - t0) / (double)tokens);
    o->close(net, true);
    free(out), free(in);
    return rc != 0;
}
