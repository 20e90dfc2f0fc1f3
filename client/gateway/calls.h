/* calls.h: the calls of tools in what a model writes, apart from its text, in the form that Hermes and Qwen models have:
 *
 *      <tool_call>
 *      {"name": "weather", "arguments": {"city": "Graz"}}
 *      </tool_call>
 *
 * Blanks around a call belong to neither. What stands between the tags and is no such object stays text, tags and all. */
#ifndef NTX_GATEWAY_CALLS_H
#define NTX_GATEWAY_CALLS_H

#include "client/gateway/buf.h"

#define NTX_CALLS_MOST 64u /* of an answer; what comes then stays text */

struct ntx_calls { /* zero-initialised: an answer begins */
    struct ntx_buf held;
    bool inside;
    unsigned n; /* calls so far */
};

struct ntx_calls_to {
    void (*text)(void *arg, const char *text, size_t len);
    void (*call)(void *arg, const char *name, json_t *arguments); /* arguments: an object, borrowed */
    void *arg;
};

/* Feeds the next text; hands out what is certain. end: nothing more comes, so all is. */
void ntx_calls_feed(struct ntx_calls *c, const char *text, size_t len, bool end, const struct ntx_calls_to *to);
void ntx_calls_free(struct ntx_calls *c);

#endif
