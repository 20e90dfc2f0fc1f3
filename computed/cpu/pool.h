/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: the compute threads of a forward pass: the caller and n - 1 workers, which run one function together.
 *
 *   caller  --run--> fn(ctx, 0) ------------------> wait for workers inside --> returns
 *   worker 1         fn(ctx, 1) -> done
 *   worker 2         fn(ctx, 2) -------> done
 *   worker 3                (delayed by the system: it comes after the caller has finished, and does not enter)
 *
 * fn takes its share of the work from a counter, so that it does not matter how many workers come: a worker without a
 * processor delays no other thread. Each thread is in fn at most once per run. A return of ntx_pool_run is the barrier
 * between two steps: all threads see what any thread wrote before it. A waiting thread spins for about 50 us (steps
 * follow one another much faster than a wake-up takes), then sleeps on a futex, so that waiting for a slow drive costs
 * nothing. Only one thread at a time may call. */
#ifndef NTX_COMPUTED_CPU_POOL_H
#define NTX_COMPUTED_CPU_POOL_H

#include "common/err.h"

struct ntx_pool;
typedef void ntx_pool_fn(void *ctx, unsigned thread /* 0: the caller */);

int ntx_pool_new(unsigned n_threads, struct ntx_pool **out, struct ntx_err *err); /* 1: no worker */
void ntx_pool_free(struct ntx_pool *p);                                           /* not while it runs */
unsigned ntx_pool_threads(const struct ntx_pool *p);
void ntx_pool_run(struct ntx_pool *p, ntx_pool_fn *fn, void *ctx);

#endif
