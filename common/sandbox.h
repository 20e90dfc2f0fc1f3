/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.h: a process gives up all rights that it does not need, for good, before it reads bytes of others. Code that
 * takes the process over by such bytes then has only the process's descriptors, and the operations on them that are
 * allowed.
 *
 *   seccomp        a list of system calls, by libseccomp: those that every worker needs (sandbox.c) and those that this
 *                  one needs. All others fail with EPERM: no file or device is opened, no program started, no process
 *                  traced, no memory made executable, no socket made except unix ones, no io_uring made
 *   Landlock       nothing in the file system can be opened, made or removed, except (where `binds`) sockets in the
 *                  runtime directory; no TCP, no abstract socket or signal to processes outside. As far as the kernel
 *                  supports it (Linux 5.13 to 6.12); without it, a log line says so
 *   no_new_privs   both require it
 *
 * Neither can forbid connecting to a unix socket by its path, since nanomsg reconnects when the other side was
 * restarted. A build with sanitizers also allows what their runtimes need, and is no protection. */
#ifndef NTX_COMMON_SANDBOX_H
#define NTX_COMMON_SANDBOX_H

#include <seccomp.h>
#include <stdbool.h>

#include "common/err.h"

/* An allowed system call; n is 1: only with this condition on its arguments. */
struct ntx_sandbox_call {
    int call; /* SCMP_SYS(name) */
    unsigned n;
    struct scmp_arg_cmp when;
};

struct ntx_sandbox {
    const struct ntx_sandbox_call *calls;
    unsigned n_calls;
    bool binds; /* may bind unix sockets in the runtime directory; other processes remove them */
    bool bare;  /* `calls` and those for memory and its end are all that it may do */
};

/* Applies to the whole process, threads included; it cannot be undone. */
int ntx_sandbox(const struct ntx_sandbox *needs, const char *dir, struct ntx_err *err);

#endif
