/* SPDX-License-Identifier: Apache-2.0 */
/* bench_trace_switch DIR: switches tracing of the daemons that run in DIR. A line "0" on standard input stops the
 * records, "1" resumes them. The answer to each is the number of records so far. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "shm/counters.h"

int main(int argc, char **argv)
{
    char path[300], line[16];
    struct ntx_counters *c;
    struct ntx_err err = {0};
    snprintf(path, sizeof path, "%s/counters", argc > 1 ? argv[1] : ".");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || ntx_counters_map(fd, &c, &err)) {
        fprintf(stderr, "bench_trace_switch: %s: %s\n", path, err.text[0] ? err.text : "cannot be opened");
        return 111;
    }
    while (fgets(line, sizeof line, stdin)) {
        uint64_t n = 0;
        for (unsigned who = 0; who < NTX_N_TRACES; who++) {
            atomic_store(&c->trace[who].off, line[0] == '0');
            n += atomic_load(&c->trace[who].head);
        }
        printf("%llu\n", (unsigned long long)n);
        fflush(stdout);
    }
    ntx_counters_close(c);
    close(fd);
    return 0;
}
