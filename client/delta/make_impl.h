/* SPDX-License-Identifier: Apache-2.0 */
/* make_impl.h: shared by the files of client/delta/. */
#ifndef NTX_CLIENT_DELTA_MAKE_IMPL_H
#define NTX_CLIENT_DELTA_MAKE_IMPL_H

#include <stdatomic.h>

#include "client/delta/lowrank.h"
#include "client/delta/make.h"
#include "model/gguf_out.h"

/* ---- spool.c: keeps results until the file is written */

struct ntx__spool {
    int fd; /* unnamed */
    _Atomic uint64_t end;
};
struct ntx__spooled {
    uint64_t at, bytes;
};
int ntx__spool_open(const char *beside, struct ntx__spool *s, struct ntx_err *err);
void ntx__spool_close(struct ntx__spool *s);
struct ntx__spooled ntx__spool_take(struct ntx__spool *s, uint64_t bytes); /* reserves room; any thread */
int ntx__spool_write(const struct ntx__spool *s, const struct ntx__spooled *to, uint64_t at, const void *from,
                     uint64_t n, struct ntx_err *err);
/* Appends bytes of one file to another. */
int ntx__copy(int from, uint64_t at, uint64_t bytes, int to, const char *what, struct ntx_err *err);

/* ---- same.c: layers with the same matrices */

/* base [n_layers]: the first layer with the same matrices, byte for byte; its own number: there is none. */
int ntx__same_layers(const struct ntx_model *m, const int *fds, uint32_t *base, struct ntx_err *err);
bool ntx__same_bytes(const struct ntx_gguf_tensor *a, const struct ntx_gguf_tensor *b, const int *fds, int *rc,
                     struct ntx_err *err);

/* ---- matrix.c: one matrix of a layer, and its difference from the base */

#define NTX__TYPES 7u
struct ntx__types { /* that differences, and matrices alone, are tried in: falling bytes' other way round */
    uint32_t n, type[NTX__TYPES];
    struct ntx_quantizer *q[NTX__TYPES];
};

enum ntx__how { NTX__EQUAL, NTX__LOW_RANK, NTX__TYPED };
struct ntx__made {
    enum ntx__how how;
    uint32_t rank, type;
    struct ntx__spooled part[2]; /* A and B, or the whole */
    uint64_t bytes, alone_bytes;
    double square, difference, left; /* sums of squares: of the matrix, of D, of the loss */
};

struct ntx__matrix_job {
    struct ntx__matrix m, base;
    uint64_t in, out;
    const struct ntx__types *types;
    const struct ntx_delta_options *o;
    struct ntx__spool *spool;
};
int ntx__make_matrix(const struct ntx__matrix_job *j, struct ntx__made *made, struct ntx_err *err);

#endif
