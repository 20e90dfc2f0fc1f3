/* doctor_impl.h: the parts of a report, each measured by a file of its own. */
#ifndef NTX_DOCTOR_IMPL_H
#define NTX_DOCTOR_IMPL_H

#include "computed/cpu/cpu.h"
#include "computed/pool.h"
#include "doctor/doctor.h"

void ntx__doctor_say(struct ntx_doctor_report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* drive.c: hw.reads, read_s, in_flight. Needs `seconds`. */
int ntx__doctor_drive(const char *dir, double seconds, struct ntx_doctor_report *r, struct ntx_err *err);

/* memory.c: a buffer far larger than caches, in huge pages where they are to be had. */
void *ntx__doctor_buffer(size_t bytes);
void ntx__doctor_buffer_free(void *p, size_t bytes);
/* Best bytes per second of reading it. */
double ntx__doctor_read_rate(struct ntx_pool *pool, const void *buf, size_t bytes, double seconds);
/* Seconds of one ntx_pool_run that does nothing. */
double ntx__doctor_step(struct ntx_pool *pool, double seconds);

/* kernels.c: hw.kernels, for each type; `one`: a pool of one thread. */
int ntx__doctor_kernels(struct ntx_pool *one, struct ntx_pool *pool, const struct ntx_cpu_ops *ops, void *buf, size_t bytes, double seconds,
                        struct ntx_doctor_report *r);

/* gpu.c: hw.gpu; false: there is none that can be used, and why */
bool ntx__doctor_gpu(struct ntx_doctor_report *r, char *why, size_t n);

/* machine.c */
uint32_t ntx__doctor_threads(void);
/* load_before: the load average when measuring began. */
void ntx__doctor_machine(double load_before, struct ntx_doctor_report *r);

#endif
