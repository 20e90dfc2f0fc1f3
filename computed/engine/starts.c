/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/starts.h"

#include <stdbool.h>
#include <string.h>

static uint64_t add_bytes(uint64_t h, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 0x100000001b3ULL;
    return h;
}

/* Of the messages before the first answer; *answered: there is one. */
static uint64_t key_of(const struct ntx_chat_msg *msgs, size_t n, bool *answered)
{
    uint64_t h = 0xcbf29ce484222325ULL; /* FNV-1a */
    size_t i = 0;
    for (; i < n && strcmp(msgs[i].role, "assistant"); i++) {
        h = add_bytes(h, msgs[i].role, strlen(msgs[i].role) + 1);
        h = add_bytes(h, msgs[i].text, msgs[i].len);
    }
    *answered = i < n;
    return h ? h : 1;
}

/* The conversation's place, or that of the one that was used longest ago. */
static struct ntx_start *start_of(struct ntx_starts *s, uint64_t key)
{
    struct ntx_start *oldest = &s->each[0];
    for (size_t i = 0; i < NTX_STARTS; i++) {
        if (s->each[i].key == key)
            return &s->each[i];
        if (s->each[i].used < oldest->used)
            oldest = &s->each[i];
    }
    return oldest;
}

int64_t ntx_starts_time(struct ntx_starts *s, const struct ntx_chat_msg *msgs, size_t n, int64_t now)
{
    bool answered;
    const uint64_t key = key_of(msgs, n, &answered);
    if (!s)
        return now;
    pthread_mutex_lock(&s->lock);
    struct ntx_start *p = start_of(s, key);
    if (p->key != key || !answered || now - p->began > NTX_STARTS_LIFE || p->began > now)
        *p = (struct ntx_start){.key = key, .began = now};
    p->used = now;
    const int64_t began = p->began;
    pthread_mutex_unlock(&s->lock);
    return began;
}
