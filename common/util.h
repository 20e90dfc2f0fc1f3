/* SPDX-License-Identifier: Apache-2.0 */
/* util.h: helpers that all daemons and clients share. Thread-safe; the log's name is the only global state. */
#ifndef NTX_COMMON_UTIL_H
#define NTX_COMMON_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* Parse sizes: "512M", "3G", "1.5G", "4096", where K M G T are binary units (an optional "iB" or "B" follows). Parse
 * rates: "3.3G" is 3.3e9 bytes per second (SI, as for drives and links). -EINVAL on anything else. */
int ntx_parse_size(const char *text, uint64_t *bytes);
int ntx_parse_rate(const char *text, double *bytes_per_s);

/* "3.2 GiB" into buf; returns buf. */
const char *ntx_format_size(uint64_t bytes, char *buf, size_t n);
/* The same size as ntx_parse_size reads it, exactly: "3G", "2765M", "14863117". */
const char *ntx_format_exact(uint64_t bytes, char *buf, size_t n);

uint64_t ntx_now_ns(void); /* CLOCK_MONOTONIC */

/* Bytes of a page and of a huge page: 4 KiB and 2 MiB; on 64-bit Arm also 16 KiB and 32 MiB, or 64 KiB and 512 MiB,
 * depending on its kernel. A huge page is what one page of its table maps. */
uint64_t ntx_page_bytes(void);
uint64_t ntx_huge_bytes(void);

/* A time limit for a poll loop that waits for another process. Between two polls at most a quarter of a second counts:
 * while this process does not run (stopped, in a frozen cgroup, in a paused machine), the other may not run either. */
struct ntx_patience {
    uint64_t left_ns, seen_ns;
};
struct ntx_patience ntx_patience(uint64_t limit_ns);
bool ntx_patience_over(struct ntx_patience *p); /* call it at each poll */

/* Call it first in main(). Closed descriptors 0 to 2 are replaced by ones that cannot be read or written (2 discards),
 * so that no file or socket of ours gets such a number, and our output with it. A write beyond the file size limit
 * (ulimit -f) becomes an error, not a signal. Stacks of all threads get our own size, whatever ulimit -s says; where
 * it, or ulimit -v, is too small to start, the process says so and exits with 111. */
void ntx_stdio_init(void);

/* Raises the soft limit of descriptors to n; -EMFILE where the hard limit is lower. Call it before anything is opened:
 * libraries abort when they get no descriptor. */
int ntx_need_descriptors(unsigned n, struct ntx_err *err);
#define NTX_DAEMON_DESCRIPTORS 128 /* for a worker, or for ntx-computed without its clients */

/* Log lines go to stderr, one line per event: "name: text", or with a <level> prefix under journald. Foreign bytes
 * among the arguments become printable (printable.h), also in ntx_say and ntx_usage_error. */
enum ntx_log_level { NTX_LOG_ERR = 3, NTX_LOG_WARN = 4, NTX_LOG_INFO = 6, NTX_LOG_DEBUG = 7 };
void ntx_log_init(const char *name, enum ntx_log_level max);
void ntx_log(enum ntx_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Lines of this process, each with its newline, go to `put`, in any thread, instead of to stderr. Call it before there
 * are threads. */
void ntx_log_through(void (*put)(const char *line, size_t n));
/* In the environment of a program whose terminal another one may show a progress line on: each line of the log first
 * erases what stands in its place. */
#define NTX_LOG_ERASES "NTX_LOG_ERASES"

/* Message to the user: "name: text" to stderr, at any log level. */
void ntx_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* argp_error with a printable text. */
struct argp_state;
void ntx_usage_error(const struct argp_state *st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Runtime directory: $NTX_RUNTIME, else /run/ntx when `service`, else $XDG_RUNTIME_DIR/ntx, else ntx-UID in the
 * temporary directory. It is made with mode 0700 if it does not exist. A directory of another user, or one that others
 * may write, is refused. */
int ntx_runtime_dir(bool service, char *buf, size_t n, struct ntx_err *err);

/* Pass descriptors over unix sockets. send: len >= 1 bytes and n_fds descriptors in one message. recv: returns the
 * bytes received (0 at end of file) or a negative errno; *n_fds is the room, then the count; received descriptors are
 * close-on-exec; surplus ones are closed. */
int ntx_send_fds(int sock, const void *buf, size_t len, const int *fds, unsigned n_fds);
int ntx_recv_fds(int sock, void *buf, size_t len, int *fds, unsigned *n_fds);

/* write()/read() until done. 0 or negative errno (read: -EPIPE when the file ends early). */
int ntx_write_all(int fd, const void *buf, size_t len);
int ntx_read_all(int fd, void *buf, size_t len);
/* pread() until done; 0 or negative errno (-ENODATA when the file ends early), and what that says in words. */
int ntx_read_at(int fd, void *buf, size_t len, uint64_t at);
const char *ntx_read_error(int rc);

/* Reports readiness to systemd ($NOTIFY_SOCKET); does nothing elsewhere. state e.g. "READY=1\nSTATUS=...". */
void ntx_notify(const char *state);
/* The same with descriptors, for systemd's descriptor store; -ENOENT elsewhere. */
int ntx_notify_fds(const char *state, const int *fds, unsigned n_fds);

#define NTX_ROUND_UP(x, a)   (((x) + (a)-1) / (a) * (a))
#define NTX_ROUND_DOWN(x, a) ((x) / (a) * (a))
#define NTX_MIN(a, b)        ((a) < (b) ? (a) : (b))
#define NTX_MAX(a, b)        ((a) > (b) ? (a) : (b))

#endif
