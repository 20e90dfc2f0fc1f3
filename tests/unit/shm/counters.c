/* SPDX-License-Identifier: Apache-2.0 */
/* The counters file: it is made, a monitor reads it, a worker writes it, and another version's file is refused. */
#include "shm/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/lib/check.h"
#include "tests/lib/temporary.h"

static void spoil(int fd, off_t at)
{
    uint32_t bad = 0x5a5a5a5a;
    CHECK_EQ(pwrite(fd, &bad, sizeof bad, at), 4);
}

int main(void)
{
    char dir[256], path[300];
    struct ntx_counters *mine, *worker;
    const struct ntx_counters *monitor = NULL;
    struct ntx_err err = {0};
    struct stat st;
    int fd;
    temporary_dir(dir, sizeof dir, "counters");
    CHECK_EQ(ntx_counters_open(dir, &monitor, &err), -ENOENT);
    CHECK(strstr(err.text, "counters"));
    CHECK_EQ(ntx_counters_create(dir, &mine, &fd, &err), 0);
    CHECK_EQ(ntx_counters_open(dir, &monitor, &err), 0);
    CHECK_EQ(ntx_counters_map(fd, &worker, &err), 0);
    snprintf(path, sizeof path, "%s/counters", dir);
    CHECK(!stat(path, &st));
    CHECK_EQ(st.st_mode & 07777, 0640);
    CHECK_EQ(st.st_size, sizeof(struct ntx_counters));
    CHECK(mine->started_ns && mine->started_ns <= ntx_now_ns());

    ntx_count(worker, NTX_C_iod_reads, 3);
    ntx_count(worker, NTX_C_iod_reads, 4);
    ntx_gauge(mine, NTX_C_comp_ring_slots, 17);
    ntx_gauge(mine, NTX_C_comp_ring_slots, 16);
    CHECK_EQ(ntx_counter_get(monitor, NTX_C_iod_reads), 7);
    CHECK_EQ(ntx_counter_get(monitor, NTX_C_comp_ring_slots), 16);
    CHECK_EQ(ntx_counter_get(NULL, NTX_C_iod_reads), 0);
    ntx_count(NULL, NTX_C_iod_reads, 1);
    CHECK_STR(ntx_counter_info[NTX_C_iod_reads].name, "iod_reads");
    CHECK_EQ(ntx_counter_info[NTX_C_iod_reads].kind, 'c');
    CHECK_EQ(ntx_counter_info[NTX_C_comp_ring_slots].kind, 'g');
    CHECK_STR(ntx_counter_info[NTX_N_COUNTERS - 1].name, "pred_pid");

    /* a second computed makes a new file; processes that have mapped the old one keep it */
    struct ntx_counters *second;
    int fd2;
    CHECK_EQ(ntx_counters_create(dir, &second, &fd2, &err), 0);
    CHECK_EQ(ntx_counter_get(second, NTX_C_iod_reads), 0);
    CHECK_EQ(ntx_counter_get(monitor, NTX_C_iod_reads), 7);
    ntx_counters_close((struct ntx_counters *)(uintptr_t)monitor);
    monitor = NULL;

    spoil(fd2, offsetof(struct ntx_counters, version));
    CHECK_EQ(ntx_counters_open(dir, &monitor, &err), -EPROTO);
    CHECK(!ftruncate(fd2, 8));
    CHECK_EQ(ntx_counters_open(dir, &monitor, &err), -EPROTO);
    CHECK(strstr(err.text, "another version"));
    CHECK(!monitor);

    ntx_counters_close(mine);
    ntx_counters_close(worker);
    ntx_counters_close(NULL);
    unlink(path);
    CHECK_EQ(ntx_counters_create("/nonexistent", &mine, &fd, &err), -ENOENT);
    CHECK(!rmdir(dir));
    return 0;
}
