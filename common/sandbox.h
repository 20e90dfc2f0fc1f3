/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.h: a process gives up for good every right that it does not need, before it looks at bytes of others, so that
 * whoever takes it over by such bytes stays where it is: it has its descriptors, and can do with them what the process
 * does.
 *
 *   seccomp    a list of system calls, by libseccomp: what every worker needs (sandbox.c) and what this one needs
 *              besides. All else gives EPERM: files and
 *              devices are not opened, programs not started, processes not traced, memory not made executable, no
 *                socket but a unix one is made, no io_uring
 *   Landlock   nothing of the file system can be opened, made or removed but, for who binds, sockets in the runtime
 *              directory; no TCP, no abstract
 *              socket or signal to processes outside. As far as the kernel has it (Linux 5.13 to 6.12); where it does
 *                not, one line in the log says so
 *   no_new_privs   which both presuppose
 *
 * What neither can forbid: to connect to a unix socket by its path, for nanomsg connects anew whenever the other side
 * was started again. A build with sanitizers allows what their runtimes need besides, and is no protection. */
#ifndef NTX_COMMON_SANDBOX_H
#define NTX_COMMON_SANDBOX_H

#include <seccomp.h>
#include <stdbool.h>

#include "common/err.h"

/* A system call that is needed, with one condition on its arguments where n is 1. */
struct ntx_sandbox_call {
    int call; /* SCMP_SYS(name) */
    unsigned n;
    struct scmp_arg_cmp when;
};

struct ntx_sandbox {
    const struct ntx_sandbox_call *calls;
    unsigned n_calls;
    bool binds; /* unix sockets in the runtime directory; others remove them */
};

/* Of the whole process, threads included; there is no way back. */
int ntx_sandbox(const struct ntx_sandbox *needs, const char *dir, struct ntx_err *err);

#endif
