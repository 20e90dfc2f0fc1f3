/* SPDX-License-Identifier: Apache-2.0 */
/* new_file.h: a new file that appears under its name only when it is complete.
 *
 * Where the file system supports unnamed files (O_TMPFILE: ext4, XFS, btrfs, tmpfs), the file has no name while it is
 * written, so nothing remains after SIGKILL or a loss of power. Elsewhere, and without /proc, it is PATH.PID.tmp until
 * then, and a kill leaves that file.
 *
 *   open -> write to fd -> sync -> name: gets its name and replaces a file of that name; or drop: the file is removed
 *
 * One thread. Errors are negative errno. */
#ifndef NTX_COMMON_NEW_FILE_H
#define NTX_COMMON_NEW_FILE_H

#include <stdbool.h>

enum { NTX_NEW_FILE_PATH = 4096 };

struct ntx_new_file {
    int fd; /* for writing; -1: no file */
    bool unnamed;
    char temp[NTX_NEW_FILE_PATH + 32];
};

/* Mode 0666 less the umask. After an error there is no file; drop may be called. */
int ntx_new_file_open(struct ntx_new_file *f, const char *path);

/* Gives the file its name and closes it. After an error the file still exists and must be dropped. */
int ntx_new_file_name(struct ntx_new_file *f, const char *path);

/* Removes the file. Does nothing when it was named already or never opened (all zeros). */
void ntx_new_file_drop(struct ntx_new_file *f);

/* The folder of a path. -ENAMETOOLONG. */
int ntx_folder_of(const char *path, char folder[NTX_NEW_FILE_PATH]);

#endif
