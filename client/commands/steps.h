/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h: the values of each step of a pass (`ntx logits --steps`) as a file, and the comparison of two such files.
 *
 * The file has a line of JSON for each step, in the order of the pass:
 *   {"layer": 3, "step": 11, "name": "MM ffn_down.weight", "buffer": "Y", "width": 256, "min": -1.5, "max": 2.25,
 *    "mean": 0.01, "digests": ["0123456789abcdef", null, ...], "values": ["AACAPw==", null, ...]}
 * digests: by position, a hash of the bits of the row's values; null: the row skipped the layer, or its logits were not
 * requested. values: the same rows, little-endian float32 in base64, if requested. min, max and mean are over all rows;
 * null: not a number. "EMBED" comes before the layers, as layer 0; "OUTPUT" after them, as the layer after the last. */
#ifndef NTX_CLIENT_COMMANDS_STEPS_H
#define NTX_CLIENT_COMMANDS_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"
#include "proto/ntx.pb-c.h"

struct ntx_step_row {
    bool there;
    uint64_t digest;
    float *values; /* [width], or NULL */
};

struct ntx_step_line {
    uint32_t layer, step, width;
    char name[64], buffer[16];
    float min, max;
    double sum; /* sum of the rows' means */
    uint32_t n_there;
    struct ntx_step_row *row; /* [n_rows] */
    uint32_t n_rows;
};

struct ntx_steps {
    struct ntx_step_line *step; /* [n], in the order of the pass */
    size_t n, room, last;       /* last: index of the step found last */
};

/* Adds the values of one step for one token. -EPROTO, -ENOMEM. */
int ntx_steps_add(struct ntx_steps *s, const Ntx__StepRow *m, struct ntx_err *err);
/* The step of that layer, number and buffer; NULL: none. Fast when asked in order. */
struct ntx_step_line *ntx_steps_find(struct ntx_steps *s, uint32_t layer, uint32_t step, const char *buffer);
/* Adds an empty step at the end. NULL: no memory. */
struct ntx_step_line *ntx_steps_new(struct ntx_steps *s);
void ntx_steps_free(struct ntx_steps *s);

/* steps_file.c. path: for messages; other files are refused with path, line and reason. */
int ntx_steps_write(const struct ntx_steps *s, FILE *f, const char *path, struct ntx_err *err);
int ntx_steps_read(const char *path, struct ntx_steps *s, struct ntx_err *err);

/* steps_compare.c: prints the first difference of a and b, or that there is none. 0: equal within the tolerance, 1:
 * different. -EINVAL: they cannot be compared. */
int ntx_steps_compare(struct ntx_steps *a, struct ntx_steps *b, const char *name_a, const char *name_b,
                      double tolerance, struct ntx_err *err);

#endif
