/* SPDX-License-Identifier: Apache-2.0 */
/* other_iod.c: an ntx-iod of another build, for upgrade_test.sh: says who it is, and ends as one that was refused. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/attach.h"

#define REFUSED 112 /* as the units have it */

int main(int argc, char **argv)
{
    struct ntx_attach_msg m = {.kind = NTX_AT_HELLO, .role = NTX_ROLE_IOD, .pid = getpid()};
    struct sockaddr_un a;
    struct ntx_err err = {0};
    int fds[NTX_ATTACH_MAX_FDS];
    unsigned n;
    if (argc != 3 || strcmp(argv[1], "--runtime"))
        return 100;
    int s = ntx_attach_socket(argv[2], &a, &err);
    snprintf(m.build, sizeof m.build, "0.0.0+another");
    if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof a) || ntx_attach_send(s, &m, NULL, 0)) {
        perror(argv[2]);
        return 1;
    }
    struct pollfd p = {s, POLLIN, 0};
    poll(&p, 1, 10000);
    return ntx_attach_recv(s, &m, fds, &n) == 1 && m.kind == NTX_AT_REFUSED && m.instance ? REFUSED : 1;
}
