/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.h: files of pictures as parts of messages. ntx-computed decodes them; here only their first bytes are looked
 * at, so that a wrong file is refused before a model is loaded. */
#ifndef NTX_CLIENT_COMMANDS_PICTURES_H
#define NTX_CLIENT_COMMANDS_PICTURES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "proto/ntx.pb-c.h"

struct ntx_pictures { /* zero-initialised */
    Ntx__Image *image, **list;
    unsigned n;
    size_t bytes;
};

/* Adds the file's bytes. The pictures of a request must fit in its frame (proto/frame.h). */
int ntx_pictures_add(struct ntx_pictures *p, const char *path, struct ntx_err *err);
int ntx_pictures_add_all(struct ntx_pictures *p, const char *const *paths, unsigned n, struct ntx_err *err);
void ntx_pictures_free(struct ntx_pictures *p);
/* Whether the file is there and is a picture that is decoded. err may be NULL. */
int ntx_picture_look(const char *path, struct ntx_err *err);
/* Puts n pictures from `first` on before the message's text. They move when others are added. */
void ntx_pictures_before(const struct ntx_pictures *p, unsigned first, unsigned n, Ntx__Message *m);

#endif
