/* SPDX-License-Identifier: Apache-2.0 */
/* kv_io.h: reads of a file's pages into memory, some at a time: by io_uring, or one after the other where that is
 * refused. O_DIRECT where the file system has it, so that the pages are counted once; elsewhere the kernel's cached
 * copy is dropped. One thread calls. */
#ifndef NTX_COMPUTED_STATE_KV_IO_H
#define NTX_COMPUTED_STATE_KV_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "shm/drive.h"

#define NTX__KV_IO_PIECE ((uint64_t)1 << 20) /* bytes of one read at most, */
#define NTX__KV_IO_PARTS 64                  /* and places in memory that it fills */

struct ntx__kv_io;

/* fd: borrowed. drive: the emulated one that sets the speed. */
int ntx__kv_io_new(int fd, struct ntx_drive drive, struct ntx__kv_io **out);
void ntx__kv_io_free(struct ntx__kv_io *io); /* no read may be under way */
/* Room for one more read, within the bytes that drives want under way. */
bool ntx__kv_io_room(const struct ntx__kv_io *io);
uint32_t ntx__kv_io_flying(const struct ntx__kv_io *io);
/* Each place is whole blocks of the drive. */
void ntx__kv_io_read(struct ntx__kv_io *io, uint64_t at, const struct iovec *to, uint32_t n, uint64_t tag);
/* Waits for the end of one read: its tag. 0 or its negative errno; -EIO also where the file ends before. */
int ntx__kv_io_wait(struct ntx__kv_io *io, uint64_t *tag);

/* At once, in the caller's thread. */
int ntx__kv_io_now(int fd, bool write, uint64_t at, uint64_t bytes, void *memory);

#endif
