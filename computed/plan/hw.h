/* SPDX-License-Identifier: Apache-2.0 */
/* hw.h: the hardware profile: what a machine can do, as numbers. `ntx doctor` measures and stores it; it may be edited,
 * and for absent machines it is written by hand (bench/profiles/). Plain values; nothing here measures.
 *
 * The file is JSON. Rates are GB/s (1e9 bytes), operations GFLOP/s (a multiply-add is two), sizes of memory GiB:
 *
 *   { "ntx_profile": 1, "name": "...", "source": "measured" | "brief" | "estimated", "load": 0.1, "notes": "...",
 *     "cpu":    {"model": "...", "threads": 2, "kernel": "avx512"},
 *     "ram":    {"gib": 23.4, "gb_s_1": 16.1, "gb_s": 31.0},             one thread, all threads
 *     "drive":  {"reads": [{"bytes": 4096, "gb_s": 0.46}, ...],       by size of a read
 *                "read_us": 95, "in_flight": 4194304,                  one read alone
 *                "streams": [{"bytes": 524288, "gb_s": 1.9}, ...]},    reads whose bytes are multiplied as they come;
 *                                                                      without it: as "reads"
 *     "kernels":[{"type": "Q4_K", "rows": 1, "gb_s": 21.0}, {"type": "*", "rows": 64, "gflops": 900}, ...],
 *                weights from memory, all threads; "gb_s_1": one thread, without it in proportion; with
 *                "dot_ns": an output beside its bytes, of one row;
 *                "interleaved": true for resident weights in another order (computed/cpu/interleaved.h)
 *     "gpu":    {"name": "...", "gib": 24, "gb_s": 800, "gflops": 71000, "int8_gops": 142000, "h2d_gb_s": 6.5,
 *                "rates": {"Q4_K": 510}}, absent without one; with "unified": true its memory is the host's: it reads
 *                weights in place, and "gib" is how much of that it can use
 *     "pass":   {"layer_us": 12, "token_us": 100,                         not overlapped: per layer, per pass
 *                "value_ns": 0.3, "dot_ns": 1.5,                      of a row: a value between two matrices; an output
 *                                                                      beside its bytes; all threads
 *                "attend": {"f16": {"one": {"gflops": 90, "score_ns": 0.8}, "rows": {...}}, "q8_0": ...}} }
 *                "prompts": [{"embd": 512, "times": 1.4}, ...],       whole layers of such models: time over what the
 *                                                                      rates give
 *                attention over keys and values of a type, of one row, and of several at a time; a score (a query
 *                head at a position) beside them; all threads. Older profiles have "attend_gflops": F16, rows
 *
 * "load" is the load per processor by others during the measurement: above one half the machine was busy, and such a
 * profile does not replace one of a quiet machine. "brief" is what `ntx plan` measures in a moment, if there is no
 * profile yet.
 *
 * All keys but "ntx_profile" may be absent: 0 then means unknown, and nothing that depends on it is predicted. Unknown
 * keys are ignored (doctor adds "findings" and "date" for people). */
#ifndef NTX_COMPUTED_PLAN_HW_H
#define NTX_COMPUTED_PLAN_HW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/cpu/cpu.h"
#include "model/quant.h"

#define NTX_HW_READS   12
#define NTX_HW_STREAMS 4
#define NTX_HW_KERNELS 160
#define NTX_HW_PROMPTS 4
#define NTX_HW_WIDTH   4096u      /* inputs of an output, as kernels are measured */
#define NTX_HW_ANY     UINT32_MAX /* kernel type "*": all types without an entry */

struct ntx_hw_read {
    uint32_t bytes; /* of one read */
    double bps;
};

struct ntx_hw_kernel {
    uint32_t type;    /* enum ntx_type, or NTX_HW_ANY */
    uint32_t rows;    /* activations that a weight is multiplied by per read */
    bool interleaved; /* for resident weights */
    double bps;       /* bytes of weights per second, 0 if flops is given */
    double bps_1;     /* the same with one thread; 0: in proportion */
    double flops;
    double dot_s; /* of one row: an output takes so much longer than bytes of NTX_HW_WIDTH inputs do; 0: unknown */
};

struct ntx_hw_attend {
    double flops, score_s; /* 0: unknown */
};

/* Of a prompt's pass in a model so wide: its products, and the values between them, take so many times what the other
 * rates give. */
struct ntx_hw_prompt {
    uint32_t width;
    double times;
};

struct ntx_hw {
    char name[96], source[16], cpu[96], kernel[16];
    uint32_t threads;
    uint64_t ram_bytes;
    double ram_bps_1, ram_bps;
    struct ntx_hw_read reads[NTX_HW_READS]; /* by increasing size */
    unsigned n_reads;
    struct ntx_hw_read streams[NTX_HW_STREAMS]; /* by increasing size; of bytes that are multiplied as they come */
    unsigned n_streams;
    double read_s; /* one read alone, from request to result */
    uint64_t in_flight;
    struct ntx_hw_kernel kernels[NTX_HW_KERNELS];
    unsigned n_kernels;
    struct {
        char name[96];
        uint64_t bytes; /* 0: there is none */
        bool unified;   /* uses the host's memory, in place */
        double bps, flops, int8_ops, h2d_bps;
        double type_bps[NTX_TYPE_LIMIT]; /* of a type's products of a few rows, as measured; 0: not measured */
    } gpu;
    double layer_s, token_s;
    struct ntx_hw_attend attend[NTX_N_KV][2];     /* of one row; of several */
    double value_s, dot_s;                        /* of rows; 0: unknown, and left out */
    struct ntx_hw_prompt prompts[NTX_HW_PROMPTS]; /* by increasing width */
    unsigned n_prompts;
    double load; /* per processor, during the measurement; 0: none, or unknown */
};

#define NTX_HW_BRIEF "brief"
static inline bool ntx_hw_load_busy(double load) { return load > 0.5; }
static inline bool ntx_hw_busy(const struct ntx_hw *hw) { return ntx_hw_load_busy(hw->load); }

/* Bytes per second of the drive for reads of this size, interpolated by the logarithm of the size; 0: unknown. */
double ntx_hw_drive_bps(const struct ntx_hw *hw, uint64_t read_bytes);

/* The same for a streaming model, whose bytes are multiplied as they come: slower on some machines. Beyond the measured
 * sizes in proportion to the drive's own rates; without any measurement, those. */
double ntx_hw_stream_bps(const struct ntx_hw *hw, uint64_t read_bytes);

/* Bytes of a read while a model streams: 512 KiB, or 1 MiB if the profile has it no slower, since that costs ntx-iod
 * less. hw may be NULL. */
uint64_t ntx_hw_read_bytes(const struct ntx_hw *hw);

/* Two reads closer than this are better merged: half of the bytes that the drive reads at its best rate in the time
 * that a read costs beside its bytes. At all of them nothing is gained; half keeps three quarters of the time that
 * merging can save, for a quarter of the unwanted bytes (gaps of any size being equally likely; measured:
 * docs/log/sparse.md). 0: unknown. */
uint64_t ntx_hw_read_gap(const struct ntx_hw *hw);

/* Seconds to multiply one byte of weights of `type` with `rows` rows, from memory, with `threads` threads (0: as
 * measured). stays: resident weights, which may have their own rates. Between measured row counts linear, above the
 * largest one proportional; never faster than memory. 0: unknown. */
double ntx_hw_byte_s(const struct ntx_hw *hw, uint32_t type, uint32_t rows, uint32_t threads, bool stays);

/* Seconds that an output of one row's product takes beside its bytes, all threads. 0: unknown. */
double ntx_hw_dot_s(const struct ntx_hw *hw, uint32_t type, bool stays);

/* Seconds of the CPU's arithmetic for attention of so many rows over K and V of a type: `ops` additions and
 * multiplications, and `scores`. A rate that is not known is that of F16, or of several rows; without any: 0. */
double ntx_hw_attend_s(const struct ntx_hw *hw, enum ntx_kv_type type, uint32_t rows, double ops, double scores);

/* So many times what the rates give do products of so many rows take in a model so wide: interpolated by the logarithms
 * of the width, among widths that are multiples of 256 (blocks of 256 fit) or among the others, and, from a few rows to
 * 64, of the rows. 1: nothing is known. */
double ntx_hw_times(const struct ntx_hw *hw, uint32_t width, uint32_t rows);

/* Memory read rate with so many threads: proportional from one thread up to the measured maximum. */
double ntx_hw_ram_bps(const struct ntx_hw *hw, uint32_t threads);

/* For an emulated drive or link: limits the rates to it. 0 changes nothing. */
void ntx_hw_cap(struct ntx_hw *hw, double nvme_bps, double h2d_bps);

/* Parsing validates each number (finite, not negative, in a possible range). -ENOENT: there is no such file. */
int ntx_hw_parse(const char *json, struct ntx_hw *out, struct ntx_err *err);
int ntx_hw_load(const char *path, struct ntx_hw *out, struct ntx_err *err);
/* malloc'd JSON text. */
char *ntx_hw_dump(const struct ntx_hw *hw, const char *const *findings, unsigned n_findings);
/* Makes the directories, writes a new file and renames it. */
int ntx_hw_store(const char *path, const char *json, struct ntx_err *err);
/* The same with these permissions: for a file that others must not read. */
int ntx_hw_store_as(const char *path, const char *json, unsigned mode, struct ntx_err *err);
/* For a new measurement. *kept: it is of a busy machine, and the stored one, of the same machine while quiet, is
 * kept. */
int ntx_hw_store_measured(const char *path, const struct ntx_hw *hw, const char *json, bool *kept, struct ntx_err *err);

/* The profile's place: $XDG_CACHE_HOME/ntx/profile.json ($HOME/.cache without it), else the service's. */
#define NTX_HW_SERVICE_PATH "/var/lib/ntx/profile.json"
int ntx_hw_user_path(char *buf, unsigned n); /* -ENOENT: neither variable is set */
/* The user's, else the service's. -ENOENT (without text): no profile has been made. */
int ntx_hw_find(struct ntx_hw *out, struct ntx_err *err);

#endif
