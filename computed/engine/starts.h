/* SPDX-License-Identifier: Apache-2.0 */
/* starts.h: when conversations began. A chat template that writes the date or the time (strftime_now) gets the time at
 * which its conversation began, so that neither midnight nor a clock in the prompt hides the rest from the prefix
 * cache.
 *
 * A request without an answer in it begins a conversation. Later ones are known by the texts up to the first answer.
 * After NTX_STARTS_LIFE seconds, and beyond NTX_STARTS conversations, a time is forgotten; the next request then gets
 * the present one. Any thread. */
#ifndef NTX_COMPUTED_ENGINE_STARTS_H
#define NTX_COMPUTED_ENGINE_STARTS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "model/chat.h"

#define NTX_STARTS      256u
#define NTX_STARTS_LIFE 86400

struct ntx_starts { /* zero, but for the lock */
    pthread_mutex_t lock;
    struct ntx_start {
        uint64_t key; /* 0: unused */
        int64_t began, used;
    } each[NTX_STARTS];
};

/* now: in seconds. NULL is fine: now. */
int64_t ntx_starts_time(struct ntx_starts *s, const struct ntx_chat_msg *msgs, size_t n, int64_t now);

#endif
