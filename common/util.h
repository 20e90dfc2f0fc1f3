/* SPDX-License-Identifier: Apache-2.0 */
/* util.h: the few helpers that all daemons and clients share. Thread-safe, no global state but the log's name. */
#ifndef NTX_COMMON_UTIL_H
#define NTX_COMMON_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* Sizes as people write them: "512M", "3G", "1.5G", "4096", with K M G T as binary units (an optional "iB" or "B"
 * follows). Rates: "3.3G" is 3.3e9 bytes per second (SI, as drives and links are sold). -EINVAL on anything else. */
int ntx_parse_size(const char *text, uint64_t *bytes);
int ntx_parse_rate(const char *text, double *bytes_per_s);

/* "3.2 GiB" into buf; returns buf. */
const char *ntx_format_size(uint64_t bytes, char *buf, size_t n);

uint64_t ntx_now_ns(void); /* CLOCK_MONOTONIC */

/* A page of this machine, and a huge page: as much as one page of its table maps. 4 KiB and 2 MiB; on 64-bit Arm also
 * 16 KiB and 32 MiB, or 64 KiB and 512 MiB, as its kernel was built. */
uint64_t ntx_page_bytes(void);
uint64_t ntx_huge_bytes(void);

/* How long somebody else is waited for, by one who looks again and again. Between two looks at most a quarter of a
 * second counts: while this process itself does not run (stopped, in a frozen cgroup, in a paused machine) the other
 * may not run either. */
struct ntx_patience {
    uint64_t left_ns, seen_ns;
};
struct ntx_patience ntx_patience(uint64_t limit_ns);
bool ntx_patience_over(struct ntx_patience *p); /* a look */

/* First of all in main(): what was closed of descriptors 0 to 2 is taken up by one that can be neither read nor written
 * (2 swallows what is written), so that no file or socket of ours gets one of these numbers, and with it what is
 * printed. A write beyond the limit of a file's size (ulimit -f) is an error from now on, and no signal. Stacks of all
 * threads have a size of their own, whatever ulimit -s says; where it, or ulimit -v, leaves too little to begin with,
 * the process says so and ends with 111. */
void ntx_stdio_init(void);

/* Raises the soft limit of descriptors to n; -EMFILE where the hard one is lower. Before anything is opened: libraries
 * abort for want of one. */
int ntx_need_descriptors(unsigned n, struct ntx_err *err);
#define NTX_DAEMON_DESCRIPTORS 128 /* of a worker, or of ntx-computed without its clients */

/* Log lines go to stderr, one line per event, "name: text"; under journald with a <level> prefix. Foreign bytes among
 * the arguments are made printable, here and in the two below (printable.h). */
enum ntx_log_level { NTX_LOG_ERR = 3, NTX_LOG_WARN = 4, NTX_LOG_INFO = 6, NTX_LOG_DEBUG = 7 };
void ntx_log_init(const char *name, enum ntx_log_level max);
void ntx_log(enum ntx_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What a program tells the person who called it: "name: text" to stderr, whatever is logged. */
void ntx_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* argp_error. */
struct argp_state;
void ntx_usage_error(const struct argp_state *st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Runtime directory: $NTX_RUNTIME, else /run/ntx when `service`, else $XDG_RUNTIME_DIR/ntx, else ntx-UID in the
 * temporary directory. Created 0700 when it is ours to create; a foreign or world-writable one is refused. */
int ntx_runtime_dir(bool service, char *buf, size_t n, struct ntx_err *err);

/* Descriptors over unix sockets. send: len >= 1 bytes and n_fds descriptors in one message.
 * recv: returns bytes received (0 at end of file) or a negative errno; *n_fds holds the room in and the count out;
 * received descriptors are close-on-exec; surplus ones are closed. */
int ntx_send_fds(int sock, const void *buf, size_t len, const int *fds, unsigned n_fds);
int ntx_recv_fds(int sock, void *buf, size_t len, int *fds, unsigned *n_fds);

/* write()/read() until done; 0 or negative errno (read: -EPIPE when the file ends early). */
int ntx_write_all(int fd, const void *buf, size_t len);
int ntx_read_all(int fd, void *buf, size_t len);
/* pread() until done; 0 or negative errno (-ENODATA when the file ends early), and what that says in words. */
int ntx_read_at(int fd, void *buf, size_t len, uint64_t at);
const char *ntx_read_error(int rc);

/* Readiness under systemd ($NOTIFY_SOCKET); a no-op elsewhere. state e.g. "READY=1\nSTATUS=...". */
void ntx_notify(const char *state);
int ntx_notify_fds(const char *state, const int *fds,
                   unsigned n_fds); /* with descriptors, for its store of them; -ENOENT elsewhere */

#define NTX_ROUND_UP(x, a)   (((x) + (a)-1) / (a) * (a))
#define NTX_ROUND_DOWN(x, a) ((x) / (a) * (a))
#define NTX_MIN(a, b)        ((a) < (b) ? (a) : (b))
#define NTX_MAX(a, b)        ((a) > (b) ? (a) : (b))

#endif
