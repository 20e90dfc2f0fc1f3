/* SPDX-License-Identifier: Apache-2.0 */
#include "common/util.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/printable.h"

/* Stack of each thread, and of the first one where that is allowed; the usual default of systems. */
#define STACK_BYTES (8ul << 20)
#define STACK_LEAST (512ul << 10)
#define SPACE_LEAST (64ul << 20)

static _Noreturn void exit_too_little(const char *what, rlim_t have, rlim_t need, const char *option)
{
    char line[200];
    int n = snprintf(line, sizeof line,
                     "ntx: %s is limited to %llu KiB, and %llu are needed: raise the limit (ulimit %s)\n", what,
                     (unsigned long long)have >> 10, (unsigned long long)need >> 10, option);
    ntx_write_all(STDERR_FILENO, line, (size_t)n);
    _exit(111);
}

/* Without this check a stack that is too small, or a library that gets no memory, would end the process by a signal.
 * The C library would use the stack limit for the stacks of all threads. */
static void check_limits(void)
{
    struct rlimit l;
    pthread_attr_t a;
    if (!getrlimit(RLIMIT_AS, &l) && l.rlim_cur < SPACE_LEAST)
        exit_too_little("the address space", l.rlim_cur, SPACE_LEAST, "-v");
    if (!getrlimit(RLIMIT_STACK, &l) && l.rlim_cur < STACK_BYTES) {
        l.rlim_cur = NTX_MIN((rlim_t)STACK_BYTES, l.rlim_max);
        setrlimit(RLIMIT_STACK, &l);
        if (l.rlim_cur < STACK_LEAST)
            exit_too_little("the stack", l.rlim_cur, STACK_LEAST, "-s");
    }
    if (!pthread_attr_init(&a)) {
        if (!pthread_attr_setstacksize(&a, STACK_BYTES))
            pthread_setattr_default_np(&a);
        pthread_attr_destroy(&a);
    }
}

void ntx_stdio_init(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY) < 0)
            _exit(111); /* not even /dev/null */
    signal(SIGXFSZ, SIG_IGN);
    check_limits();
}

int ntx_need_descriptors(unsigned n, struct ntx_err *err)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= n)
        return 0;
    l.rlim_cur = NTX_MIN((rlim_t)n, l.rlim_max);
    setrlimit(RLIMIT_NOFILE, &l);
    if (l.rlim_cur >= n)
        return 0;
    return ntx_err_set(err, -EMFILE,
                       "%u descriptors are needed, but no more than %llu are allowed here: raise the limit (ulimit -n)",
                       n, (unsigned long long)l.rlim_cur);
}

/* One number with an optional unit letter; `base` is 1024 for sizes and 1000 for rates. */
static int parse_scaled(const char *text, double base, double *out)
{
    char *end;
    if (!text || !(*text >= '0' && *text <= '9'))
        return -EINVAL;
    errno = 0;
    double v = strtod(text, &end);
    if (errno || !isfinite(v) || v < 0)
        return -EINVAL;
    static const char units[] = "KMGT";
    if (*end) {
        const char *u = strchr(units, *end >= 'a' ? *end - 32 : *end);
        if (u) {
            v *= pow(base, (double)(u - units + 1));
            end++;
        }
        if (!strcasecmp(end, "iB") || !strcasecmp(end, "B") || !strcasecmp(end, "B/s"))
            end += strlen(end);
    }
    if (*end || !isfinite(v)) /* the unit may make it overflow */
        return -EINVAL;
    *out = v;
    return 0;
}

int ntx_parse_size(const char *text, uint64_t *bytes)
{
    double v;
    int rc = parse_scaled(text, 1024, &v);
    if (rc || v >= 9.2e18)
        return -EINVAL;
    *bytes = (uint64_t)v;
    return 0;
}

int ntx_parse_rate(const char *text, double *bytes_per_s)
{
    double v;
    if (parse_scaled(text, 1000, &v) || v < 1)
        return -EINVAL;
    *bytes_per_s = v;
    return 0;
}

const char *ntx_format_size(uint64_t bytes, char *buf, size_t n)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    unsigned u = 0;
    while (v >= 1024 && u < 4) {
        v /= 1024;
        u++;
    }
    snprintf(buf, n, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
    return buf;
}

const char *ntx_format_exact(uint64_t bytes, char *buf, size_t n)
{
    static const char unit[] = "KMGT";
    unsigned u = 0;
    while (bytes && bytes % 1024 == 0 && u < 4) {
        bytes /= 1024;
        u++;
    }
    snprintf(buf, n, u ? "%llu%c" : "%llu", (unsigned long long)bytes, u ? unit[u - 1] : 0);
    return buf;
}

uint64_t ntx_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t ntx_page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

uint64_t ntx_huge_bytes(void)
{
    uint64_t page = ntx_page_bytes();
    return page / 8 * page; /* entries of 8 bytes */
}

#define LOOK_NS 250000000u

struct ntx_patience ntx_patience(uint64_t limit_ns) { return (struct ntx_patience){limit_ns, ntx_now_ns()}; }

bool ntx_patience_over(struct ntx_patience *p)
{
    uint64_t now = ntx_now_ns(), gone = NTX_MIN(now - p->seen_ns, (uint64_t)LOOK_NS);
    p->seen_ns = now;
    p->left_ns -= NTX_MIN(gone, p->left_ns);
    return !p->left_ns;
}

static struct {
    char name[32];
    int max;
    bool journal, erases;
    void (*put)(const char *line, size_t n); /* or NULL */
} logger = {"ntx", NTX_LOG_INFO, false, false, NULL};

void ntx_log_init(const char *name, enum ntx_log_level max)
{
    snprintf(logger.name, sizeof logger.name, "%s", name);
    logger.max = (int)max;
    logger.journal = getenv("JOURNAL_STREAM") != NULL;
    logger.erases = getenv(NTX_LOG_ERASES) && isatty(STDERR_FILENO);
}

void ntx_log_through(void (*put)(const char *line, size_t n)) { logger.put = put; }

/* Writes head and the formatted text as one line by one write, so that lines of several processes do not mix. */
static void write_line(const char *head, const char *fmt, va_list ap)
{
    char raw[1024], line[1200];
    size_t n = (size_t)snprintf(line, sizeof line, "%s%s", logger.erases ? "\r\033[K" : "", head);
    vsnprintf(raw, sizeof raw, fmt, ap);
    n += ntx_printable(line + n, sizeof line - n - 1, raw, strlen(raw));
    line[n++] = '\n';
    if (logger.put)
        logger.put(line, n);
    else
        ntx_write_all(STDERR_FILENO, line, n);
}

void ntx_log(enum ntx_log_level level, const char *fmt, ...)
{
    char head[sizeof logger.name + 8];
    if ((int)level > logger.max)
        return;
    if (logger.journal)
        snprintf(head, sizeof head, "<%d>", (int)level);
    else
        snprintf(head, sizeof head, "%s: ", logger.name);
    va_list ap;
    va_start(ap, fmt);
    write_line(head, fmt, ap);
    va_end(ap);
}

void ntx_say(const char *fmt, ...)
{
    char head[sizeof logger.name + 8];
    va_list ap;
    snprintf(head, sizeof head, "%s: ", logger.name);
    va_start(ap, fmt);
    write_line(head, fmt, ap);
    va_end(ap);
}

void ntx_usage_error(const struct argp_state *st, const char *fmt, ...)
{
    char raw[1024], text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    ntx_printable(text, sizeof text, raw, strlen(raw));
    argp_error(st, "%s", text);
}

int ntx_runtime_dir(bool service, char *buf, size_t n, struct ntx_err *err)
{
    const char *s;
    int len;
    if ((s = getenv("NTX_RUNTIME")) && *s)
        len = snprintf(buf, n, "%s", s);
    else if (service)
        len = snprintf(buf, n, "/run/ntx");
    else if ((s = getenv("XDG_RUNTIME_DIR")) && *s)
        len = snprintf(buf, n, "%s/ntx", s);
    else
        len = snprintf(buf, n, "%s/ntx-%u", (s = getenv("TMPDIR")) && *s ? s : "/tmp", (unsigned)getuid());
    if (len < 0 || (size_t)len >= n)
        return ntx_err_set(err, -ENAMETOOLONG,
                           "the runtime directory's path is too long: set NTX_RUNTIME to a shorter one");
    if (mkdir(buf, 0700) && errno != EEXIST)
        return ntx_err_set(err, -errno,
                           "%s: cannot create the runtime directory: %s; set NTX_RUNTIME to a directory of yours", buf,
                           strerror(errno));
    struct stat st;
    if (lstat(buf, &st) || !S_ISDIR(st.st_mode))
        return ntx_err_set(err, -ENOTDIR, "%s: not a directory; set NTX_RUNTIME to another place", buf);
    if (!service && (st.st_uid != getuid() || (st.st_mode & 022)))
        return ntx_err_set(err, -EPERM,
                           "%s: owned by somebody else or writable by others, so no place for sockets; set NTX_RUNTIME "
                           "to a directory of your own (mode 0700)",
                           buf);
    return 0;
}
