/* SPDX-License-Identifier: Apache-2.0 */
/* The process that decodes: it maps the file and the memory for pixels, gives up all other rights, and decodes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sandbox.h"
#include "common/util.h"
#include "computed/picture/picture_impl.h"

/* Pixels, a copy with alpha or of the coefficients of a progressive JPEG, the file, and the libraries. */
#define MEMORY_MOST ((uint64_t)NTX_PICTURE_PIXELS * 16 + NTX_PICTURE_BYTES + (256u << 20))
#define CPU_MOST_S  20

/* Where memory runs out, this process ends rather than one that many use. */
static void offer_as_victim(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, "1000", 4) != 4)
        ntx_log(NTX_LOG_DEBUG, "/proc/self/oom_score_adj: %s", strerror(errno));
    close(fd);
}

static int confine(struct ntx_err *err)
{
    const struct rlimit cpu = {CPU_MOST_S, CPU_MOST_S + 1}, none = {0, 0};
    const struct ntx_sandbox needs = {.bare = true};
    if (setrlimit(RLIMIT_CPU, &cpu) || setrlimit(RLIMIT_CORE, &none))
        return ntx_err_set(err, -errno, "cannot bound the process: %s", strerror(errno));
#ifndef NTX_SANITIZED /* their shadow takes terabytes of addresses */
    const struct rlimit memory = {MEMORY_MOST, MEMORY_MOST};
    if (setrlimit(RLIMIT_AS, &memory))
        return ntx_err_set(err, -errno, "cannot bound the process: %s", strerror(errno));
#endif
    return ntx_sandbox(&needs, "/", err);
}

/* Maps the file, confines the process, and decodes into the memory for pixels. */
static int decode(struct ntx__picture_verdict *v, struct ntx_err *err)
{
    struct stat st;
    struct ntx_picture p;
    const size_t room = 3 * (size_t)NTX_PICTURE_PIXELS;
    if (fstat(NTX__PICTURE_FILE, &st))
        return ntx_err_set(err, -errno, "no file");
    struct ntx__picture_file f = {NULL, (size_t)st.st_size};
    f.data = mmap(NULL, f.n, PROT_READ, MAP_PRIVATE, NTX__PICTURE_FILE, 0);
    uint8_t *to = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, NTX__PICTURE_OUT, 0);
    if (f.data == MAP_FAILED || to == MAP_FAILED)
        return ntx_err_set(err, -errno, "cannot map the file: %s", strerror(errno));
    int rc = confine(err);
    if (rc) {
        err->code = -ENOTSUP;
        return -ENOTSUP;
    }
    if ((rc = ntx__picture_read(&f, to, &p, err)))
        return rc;
    v->width = p.width;
    v->height = p.height;
    return 0;
}

int ntx_picture_process(void)
{
    struct ntx__picture_verdict v = {0};
    struct ntx_err err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "ntx-picture");
    offer_as_victim();
    v.rc = decode(&v, &err);
    memcpy(v.text, err.text, sizeof v.text);
    const ssize_t n = write(NTX__PICTURE_SOCK, &v, sizeof v);
    _exit(n == sizeof v ? 0 : 1);
}
