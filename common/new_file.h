/* SPDX-License-Identifier: Apache-2.0 */
/* new_file.h: a file that appears under its name only when it is whole, whatever happens before.
 *
 * Where the drive's file system knows unnamed files (O_TMPFILE: ext4, XFS, btrfs, tmpfs), it has no name while it is
 * written, so nothing is left of it even after SIGKILL or a loss of power. Elsewhere, and where /proc is not there, it
 * is PATH.PID.tmp until then, and that is what a kill leaves.
 *
 *   open -> write to fd -> sync -> name: it has its name, in place of a file that had it; or drop: it is gone
 *
 * One thread. Errors are negative errno. */
#ifndef NTX_COMMON_NEW_FILE_H
#define NTX_COMMON_NEW_FILE_H

#include <stdbool.h>

enum { NTX_NEW_FILE_PATH = 4096 };

struct ntx_new_file {
    int fd; /* for writing; -1: none */
    bool unnamed;
    char temp[NTX_NEW_FILE_PATH + 32];
};

/* Readable by others as the umask allows. After an error nothing is there, and drop may be called. */
int ntx_new_file_open(struct ntx_new_file *f, const char *path);

/* Gives it its name, and closes it. After an error the file is still there, to be dropped. */
int ntx_new_file_name(struct ntx_new_file *f, const char *path);

/* Also of what was named already, or never opened (all zeros): then nothing happens. */
void ntx_new_file_drop(struct ntx_new_file *f);

/* The folder that a path is in. -ENAMETOOLONG */
int ntx_folder_of(const char *path, char folder[NTX_NEW_FILE_PATH]);

#endif
