/* SPDX-License-Identifier: Apache-2.0 */
/* attach.c: packets with descriptors on the socket through which workers get the region, under libFuzzer. The first
 * byte is the number of descriptors. An accepted packet is complete and terminated; a refused one leaves no
 * descriptor open. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "common/util.h"
#include "proto/attach.h"
#include "tests/fuzz/fuzz.h"

#define MOST NTX_ATTACH_MAX_FDS

static int some_fd;

/* File descriptors that come with the message, in the first byte of its seed. */
static uint8_t files_of_seed(int kind)
{
    if (kind == NTX_AT_WELCOME)
        return 1;
    return kind == NTX_AT_ATTACH ? NTX_IOD_FDS + 3 : 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    some_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!fuzz_seed_dir())
        return 0;
    for (int kind = NTX_AT_HELLO; kind <= NTX_AT_DETACHED; kind++) {
        struct ntx_attach_msg m = {.magic = NTX_ATTACH_MAGIC,
                                   .version = NTX_ATTACH_VERSION,
                                   .kind = (uint32_t)kind,
                                   .role = NTX_ROLE_IOD,
                                   .build = "build"};
        m.n_files = kind == NTX_AT_ATTACH ? 3 : 0;
        uint8_t seed[1 + sizeof m] = {files_of_seed(kind)};
        char name[16];
        memcpy(seed + 1, &m, sizeof m);
        snprintf(name, sizeof name, "kind%d", kind);
        fuzz_seed(name, seed, sizeof seed);
        if (kind != NTX_AT_ATTACH)
            continue;
        m.role = NTX_ROLE_PREDICTOR;
        m.n_files = 1;
        seed[0] = NTX_PREDICTOR_FDS + 1;
        memcpy(seed + 1, &m, sizeof m);
        fuzz_seed("board", seed, sizeof seed);
    }
    exit(0);
}

static int lowest_free(void)
{
    int fd = dup(some_fd);
    close(fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2], fds[MOST], send[120];
    struct ntx_attach_msg m;
    unsigned n = 0;
    if (size < 2)
        return 0;
    for (int i = 0; i < 120; i++)
        send[i] = some_fd;
    MUST(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair));
    int before = lowest_free();
    MUST(!ntx_send_fds(pair[0], data + 1, size - 1, send, data[0] % 120));
    int rc = ntx_attach_recv(pair[1], &m, fds, &n);
    MUST(rc == 1 || rc == -EPROTO);
    if (rc == 1) {
        MUST(size - 1 == sizeof m && n == data[0] % 120 && n <= MOST && m.n_files <= 100 && m.kind >= NTX_AT_HELLO &&
             m.kind <= NTX_AT_DETACHED);
        MUST(memchr(m.build, 0, sizeof m.build) && memchr(m.text, 0, sizeof m.text));
        while (n)
            close(fds[--n]);
    }
    MUST(lowest_free() == before);
    close(pair[0]);
    close(pair[1]);
    return 0;
}
