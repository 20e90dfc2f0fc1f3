/* SPDX-License-Identifier: Apache-2.0 */
/* read_at.c: bytes at a place of a file are all there, or it is said that the file ends. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/lib/check.h"

int main(void)
{
    FILE *f = tmpfile();
    char got[8] = "xxxxxxx";
    int pipe_of[2];
    CHECK(f && fwrite("0123456789", 1, 10, f) == 10 && !fflush(f) && !pipe(pipe_of));
    CHECK_EQ(ntx_read_at(fileno(f), got, 6, 4), 0);
    CHECK(!memcmp(got, "456789x", 8));
    CHECK_EQ(ntx_read_at(fileno(f), got, 7, 4), -ENODATA);
    CHECK_EQ(ntx_read_at(fileno(f), got, 1, 10), -ENODATA);
    CHECK_EQ(ntx_read_at(fileno(f), got, 0, 10), 0);
    CHECK_EQ(ntx_read_at(pipe_of[0], got, 1, 0), -ESPIPE);
    CHECK_STR(ntx_read_error(-ENODATA), "the file ends too early");
    CHECK_STR(ntx_read_error(-EIO), strerror(EIO));
    return 0;
}
