/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_impl.h: the parts of a report, each measured by its own file. */
#ifndef NTX_CLIENT_DOCTOR_DOCTOR_IMPL_H
#define NTX_CLIENT_DOCTOR_DOCTOR_IMPL_H

#include "computed/cpu/cpu.h"
#include "computed/cpu/pool.h"
#include "client/doctor/doctor.h"

void ntx__doctor_say(struct ntx_doctor_report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Threads and memory for the measurements of all rounds. */
struct ntx__doctor_bench {
    struct ntx_pool *one, *all; /* of one thread, of all threads */
    const struct ntx_cpu_ops *ops;
    void *buf; /* far larger than caches */
    size_t bytes;
};

/* memory.c: in huge pages if there are any. */
void *ntx__doctor_buffer(size_t bytes);
void ntx__doctor_buffer_free(void *p, size_t bytes);
/* The best rate of reading it, in bytes per second. */
double ntx__doctor_read_rate(struct ntx_pool *pool, const void *buf, size_t bytes, double seconds);
/* Seconds of one ntx_pool_run that does nothing: a quarter of the samples took less. */
double ntx__doctor_step(struct ntx_pool *pool, double seconds);

/* median.c: of v [n], which it sorts: so many quarters of them are less. Of times that only waiting makes longer one
 * quarter is taken, since on a busy machine most samples may be far too long. */
double ntx__doctor_quantile(double *v, unsigned n, unsigned quarters);

/* kernels.c: hw->kernels, for each type. */
int ntx__doctor_kernels(const struct ntx__doctor_bench *b, double seconds, struct ntx_hw *hw);
/* Seconds that a product of one row takes beside its bytes, where all threads share a small matrix: its first reads,
 * and threads that end apart. */
int ntx__doctor_round(const struct ntx__doctor_bench *b, double seconds, double *round_s);
/* rows.c: hw->attend, value_s. */
int ntx__doctor_rows(const struct ntx__doctor_bench *b, double seconds, struct ntx_hw *hw);
/* Fills with bytes that give finite scales in every type, and no subnormal floats. */
void ntx__doctor_fill(void *buf, size_t bytes);

/* layers.c: hw->prompts, of models whose weights are the bench's buffer. open: the first sample, brief: the only one;
 * measure: others, in some rounds; rate: at the end, by the rates in hw. */
struct ntx__doctor_layers;
int ntx__doctor_layers_open(const struct ntx__doctor_bench *b, bool brief, struct ntx__doctor_layers **out,
                            struct ntx_err *err);
int ntx__doctor_layers_measure(struct ntx__doctor_layers *l, struct ntx_err *err);
void ntx__doctor_layers_rate(struct ntx__doctor_layers *l, struct ntx_hw *hw);
void ntx__doctor_layers_close(struct ntx__doctor_layers *l);

/* drive.c: hw->reads, read_s, in_flight. seconds: at open for all rounds together, at a measurement for this one. */
struct ntx__doctor_drive;
int ntx__doctor_drive_open(const char *dir, double seconds, struct ntx_doctor_report *r, struct ntx__doctor_drive **out,
                           struct ntx_err *err);
int ntx__doctor_drive_measure(struct ntx__doctor_drive *d, double seconds, struct ntx_hw *hw, struct ntx_err *err);
void ntx__doctor_drive_close(struct ntx__doctor_drive *d);
int ntx__doctor_drive_file(const struct ntx__doctor_drive *d, uint64_t *bytes); /* the file that it reads: borrowed */

/* stream.c: bytes per second of reads of this size that the compute threads multiply as they come. open: starts a
 * reader's thread, which sleeps between measurements; the ring's content at the beginning does not count. */
struct ntx__doctor_stream;
int ntx__doctor_stream_open(int file, uint64_t file_bytes, uint32_t read_bytes, struct ntx__doctor_stream **out,
                            struct ntx_err *err);
int ntx__doctor_stream_measure(struct ntx__doctor_stream *s, const struct ntx__doctor_bench *b, double seconds,
                               double *bps, struct ntx_err *err);
void ntx__doctor_stream_close(struct ntx__doctor_stream *s);

/* median.c: each rate of `out` is the median of the rounds [n], all of which measured the same things; the rest is
 * unchanged. */
void ntx__doctor_median(const struct ntx_hw *rounds, unsigned n, struct ntx_hw *out);

/* gpu.c: hw.gpu; false: no usable GPU, and why */
bool ntx__doctor_gpu(struct ntx_doctor_report *r, char *why, size_t n);

/* machine.c */
uint32_t ntx__doctor_threads(void);
void ntx__doctor_machine(struct ntx_doctor_report *r); /* r->hw.load: when measuring began */

#endif
