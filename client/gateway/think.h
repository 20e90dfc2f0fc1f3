/* think.h: what a model thinks, apart from what it answers: the text between <think> and </think> at an answer's beginning. The tags and the blanks around
 * them belong to neither. A tag in the middle of an answer is text. */
#ifndef NTX_GATEWAY_THINK_H
#define NTX_GATEWAY_THINK_H

#include "client/gateway/buf.h"

struct ntx_think { /* zero-initialised: an answer begins */
    enum { NTX_THINK_BEGIN, NTX_THINK_OPENED, NTX_THINK_INSIDE, NTX_THINK_OUTSIDE } at;
    bool after;          /* a thought has ended: blanks before what follows are its */
    struct ntx_buf held; /* may become a tag */
};

typedef void ntx_think_cb(void *arg, bool thought, const char *text, size_t len);

/* Feeds the next text; hands out what is certain. end: nothing more comes, so all is. */
void ntx_think_feed(struct ntx_think *t, const char *text, size_t len, bool end, ntx_think_cb *cb, void *arg);
void ntx_think_free(struct ntx_think *t);

#endif
