/* SPDX-License-Identifier: Apache-2.0 */
/* A served model outlives its process: by a pair of sockets, as under `ntx up`, and by systemd's store, which may
 * return the descriptors in any order. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/keeper.h"
#include "tests/lib/check.h"

static int file_with(const char *text)
{
    char path[] = "/tmp/ntx-keeper-XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static struct ntx_kept made(const char *name, const char *a, const char *b)
{
    struct ntx_kept k = {.n_fds = 2, .fds = {file_with(a), file_with(b)}};
    k.load = malloc(sizeof *k.load);
    ntx__load__init(k.load);
    k.load->n_names = 1;
    k.load->names = malloc(sizeof *k.load->names);
    k.load->names[0] = strdup(name);
    k.load->ctx = 77;
    return k;
}

static char first_of(int fd)
{
    char c = 0;
    CHECK_EQ(pread(fd, &c, 1, 0), 1);
    return c;
}

static void has(struct ntx_keeper *k, const char *name, char a, char b)
{
    struct ntx_kept got;
    struct ntx_err err = {0};
    CHECK_EQ(ntx_keeper_take(k, &got, &err), 1);
    CHECK_EQ(strcmp(got.load->names[0], name), 0);
    CHECK_EQ(got.load->ctx, 77);
    CHECK_EQ(got.n_fds, 2);
    CHECK_EQ(first_of(got.fds[0]), a);
    CHECK_EQ(first_of(got.fds[1]), b);
    ntx_kept_free(&got);
    close(k->memo);
}

static void test_pair(void)
{
    int pair[2];
    struct ntx_keeper k;
    struct ntx_err err = {0};
    struct ntx_kept got, one = made("one", "a", "b"), two = made("two", "c", "d");
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ntx_keeper_open(&k, pair);
    CHECK_EQ(ntx_keeper_take(&k, &got, &err), 0); /* nothing is kept */
    CHECK_EQ(ntx_keeper_put(&k, &one, &err), 0);
    CHECK_EQ(ntx_keeper_put(&k, &two, &err), 0); /* replaces it */
    close(k.memo);                               /* the process dies */
    ntx_kept_free(&one);
    ntx_kept_free(&two);
    for (int i = 0; i < NTX_KEEP_TRIES; i++) { /* and so do its successors */
        ntx_keeper_open(&k, pair);
        has(&k, "two", 'c', 'd');
    }
    ntx_keeper_open(&k, pair);
    CHECK_EQ(ntx_keeper_take(&k, &got, &err), -ELOOP);
    CHECK_EQ(strcmp(err.text, "two is not loaded again: ntx-computed has ended 3 times while it was loaded"), 0);
    one = made("one", "a", "b");
    CHECK_EQ(ntx_keeper_put(&k, &one, &err), 0);
    ntx_kept_free(&one);
    close(k.memo);
    ntx_keeper_open(&k, pair);
    has(&k, "one", 'a', 'b'); /* with its own count of tries */
    ntx_keeper_open(&k, pair);
    CHECK_EQ(ntx_keeper_take(&k, &got, &err), 1);
    ntx_kept_free(&got);
    ntx_keeper_drop(&k);
    CHECK_EQ(ntx_keeper_take(&k, &got, &err), 0);
    close(pair[0]);
    close(pair[1]);
}

/* Other descriptors come back than were kept: an error, and none stays open. */
static void refused(const int *fds, unsigned n, int rc, const char *words)
{
    int pair[2];
    struct ntx_keeper k;
    struct ntx_kept got;
    struct ntx_err err = {0};
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    CHECK_EQ(ntx_send_fds(pair[1], "k", 1, fds, n), 0);
    ntx_keeper_open(&k, pair);
    CHECK_EQ(ntx_keeper_take(&k, &got, &err), rc);
    CHECK_EQ(strstr(err.text, words) != NULL, 1);
    CHECK_EQ(got.load == NULL && !got.n_fds, 1);
    ntx_keeper_drop(&k);
    close(pair[0]);
    close(pair[1]);
}

static void test_refused(void)
{
    int pair[2], fds[4];
    struct ntx_keeper k;
    struct ntx_err err = {0};
    struct ntx_kept one = made("one", "a", "b");
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ntx_keeper_open(&k, pair);
    CHECK_EQ(ntx_keeper_put(&k, &one, &err), 0);
    fds[0] = one.fds[1];
    fds[1] = k.memo;
    refused(fds, 2, -ENOENT, "not all of its files were kept: one"); /* the first file is missing */
    fds[0] = one.fds[0];
    fds[1] = one.fds[1];
    refused(fds, 2, -ENOENT, "not all of its files were kept"); /* no memo */
    uint32_t huge = UINT32_MAX, at[] = {12, 16};                /* n_files, load_bytes */
    for (int i = 0; i < 2; i++) {
        uint32_t was;
        CHECK_EQ(pread(k.memo, &was, 4, at[i]), 4);
        CHECK_EQ(pwrite(k.memo, &huge, 4, at[i]), 4);
        fds[2] = k.memo;
        refused(fds, 3, i ? -EBADMSG : -ENOENT, "not all of its files were kept");
        CHECK_EQ(pwrite(k.memo, &was, 4, at[i]), 4);
    }
    CHECK_EQ(ftruncate(k.memo, 30), 0);
    refused(fds, 3, -EBADMSG, "not all of its files were kept");
    ntx_keeper_drop(&k);
    ntx_kept_free(&one);
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    unsetenv("NOTIFY_SOCKET");
    test_pair();
    test_refused();
    return 0;
}
