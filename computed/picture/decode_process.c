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

#define LIBRARIES  (256u << 20) /* addresses of the program and its libraries */
#define CPU_MOST_S 20

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

/* RLIMIT_DATA counts the memory that the process had at its start, too. */
static uint64_t data_bytes(void)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *line = strstr(text, "\nVmData:");
    return line ? strtoull(line + 8, NULL, 10) << 10 : 0;
}

static int confine(const struct ntx__picture_order *o, struct ntx_err *err)
{
    const struct rlimit cpu = {CPU_MOST_S, CPU_MOST_S + 1}, none = {0, 0};
    const struct ntx_sandbox needs = {.bare = true};
    if (setrlimit(RLIMIT_CPU, &cpu) || setrlimit(RLIMIT_CORE, &none))
        return ntx_err_set(err, -errno, "cannot bound the process: %s", strerror(errno));
#ifndef NTX_SANITIZED /* their shadow takes terabytes of addresses */
    const uint64_t heap = data_bytes() + o->heap, all = heap + o->room + NTX_PICTURE_BYTES + LIBRARIES;
    const struct rlimit data = {heap, heap}, addresses = {all, all};
    if (setrlimit(RLIMIT_DATA, &data) || setrlimit(RLIMIT_AS, &addresses))
        return ntx_err_set(err, -errno, "cannot bound the process: %s", strerror(errno));
#endif
    return ntx_sandbox(&needs, "/", err);
}

/* Maps the file, confines the process, and decodes into the memory for pixels. */
static int decode(struct ntx__picture_verdict *v, struct ntx_err *err)
{
    struct stat st;
    struct ntx_picture p;
    struct ntx__picture_order o;
    if (fstat(NTX__PICTURE_FILE, &st) || (uint64_t)st.st_size < sizeof o)
        return ntx_err_set(err, -EIO, "no file");
    const uint8_t *order = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, NTX__PICTURE_FILE, 0);
    if (order == MAP_FAILED)
        return ntx_err_set(err, -errno, "cannot map the file: %s", strerror(errno));
    memcpy(&o, order, sizeof o);
    const struct ntx__picture_file f = {order + sizeof o, (size_t)st.st_size - sizeof o};
    uint8_t *to = mmap(NULL, o.room, PROT_READ | PROT_WRITE, MAP_SHARED, NTX__PICTURE_OUT, 0);
    if (to == MAP_FAILED)
        return ntx_err_set(err, -errno, "cannot map the pixels: %s", strerror(errno));
    int rc = confine(&o, err);
    if (rc) {
        err->code = -ENOTSUP;
        return -ENOTSUP;
    }
    if ((rc = ntx__picture_read(&f, to, o.room, &p, err)))
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
