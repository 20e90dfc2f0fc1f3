/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/grammars.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ntx_shared_grammar {
    struct ntx_shared_grammar *next; /* in the order in which they were last given back or made */
    struct ntx_grammar *grammar;
    unsigned users;
    char kind[16];
    char *reply;
    bool chat;
    size_t len;
    char text[];
};

struct ntx_grammars {
    pthread_mutex_t lock;
    struct ntx_shared_grammar *first;
    struct ntx_masks *masks;
};

int ntx_grammars_new(struct ntx_grammars **out)
{
    struct ntx_grammars *g = calloc(1, sizeof *g);
    if (!g)
        return -ENOMEM;
    if (ntx_masks_new(&g->masks)) {
        free(g);
        return -ENOMEM;
    }
    pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return 0;
}

static void free_one(struct ntx_shared_grammar *s)
{
    ntx_grammar_free(s->grammar);
    free(s->reply);
    free(s);
}

void ntx_grammars_free(struct ntx_grammars *g)
{
    if (!g)
        return;
    for (struct ntx_shared_grammar *s = g->first, *next; s; s = next) {
        next = s->next;
        free_one(s);
    }
    ntx_masks_free(g->masks);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static size_t bytes_of(const struct ntx_shared_grammar *s)
{
    return sizeof *s + s->len + ntx_grammar_bytes(s->grammar);
}

static bool is(const struct ntx_shared_grammar *s, const struct ntx_grammar_key *k)
{
    return s->chat == k->chat && s->len == k->text.len && !strcmp(s->kind, k->kind) &&
           !strcmp(s->reply, k->reply ? k->reply : "") && (!s->len || !memcmp(s->text, k->text.data, s->len));
}

static void append(struct ntx_grammars *g, struct ntx_shared_grammar *s)
{
    struct ntx_shared_grammar **p = &g->first;
    while (*p)
        p = &(*p)->next;
    s->next = NULL;
    *p = s;
}

static struct ntx_shared_grammar *find(struct ntx_grammars *g, const struct ntx_grammar_key *key)
{
    pthread_mutex_lock(&g->lock);
    struct ntx_shared_grammar *s = g->first;
    while (s && !is(s, key))
        s = s->next;
    if (s)
        s->users++;
    pthread_mutex_unlock(&g->lock);
    return s;
}

static struct ntx_shared_grammar *make_one(const struct ntx_grammar_key *key)
{
    struct ntx_shared_grammar *s = calloc(1, sizeof *s + key->text.len);
    if (!s || strlen(key->kind) >= sizeof s->kind || !(s->reply = strdup(key->reply ? key->reply : ""))) {
        free(s);
        return NULL;
    }
    strcpy(s->kind, key->kind);
    s->chat = key->chat;
    s->len = key->text.len;
    s->users = 1;
    if (s->len)
        memcpy(s->text, key->text.data, s->len);
    return s;
}

int ntx_grammars_take(struct ntx_grammars *g, const struct ntx_grammar_key *key, ntx_grammar_make_fn *make, void *ctx,
                      struct ntx_shared_grammar **out, struct ntx_err *err)
{
    struct ntx_shared_grammar *s = find(g, key);
    struct ntx_grammar *made = NULL;
    int rc = s ? 0 : make(ctx, &made, err); /* without the lock: it may take a while */
    if (rc)
        return rc;
    if (!s && !(s = make_one(key))) {
        ntx_grammar_free(made);
        return ntx_err_set(err, -ENOMEM, "no memory for a grammar");
    }
    if (made) {
        s->grammar = made;
        pthread_mutex_lock(&g->lock);
        append(g, s);
        pthread_mutex_unlock(&g->lock);
    }
    *out = s;
    return 0;
}

void ntx_grammars_give(struct ntx_grammars *g, struct ntx_shared_grammar *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&g->lock);
    struct ntx_shared_grammar **p = &g->first;
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    append(g, s);
    s->users--;
    pthread_mutex_unlock(&g->lock);
}

const struct ntx_grammar *ntx_grammars_of(const struct ntx_shared_grammar *s) { return s->grammar; }

static size_t compiled_bytes(struct ntx_grammars *g)
{
    size_t bytes = 0;
    pthread_mutex_lock(&g->lock);
    for (const struct ntx_shared_grammar *s = g->first; s; s = s->next)
        bytes += bytes_of(s);
    pthread_mutex_unlock(&g->lock);
    return bytes;
}

size_t ntx_grammars_bytes(struct ntx_grammars *g) { return compiled_bytes(g) + ntx_masks_bytes(g->masks); }

struct ntx_masks *ntx_grammars_masks(struct ntx_grammars *g) { return g->masks; }

void ntx_grammars_allow(struct ntx_grammars *g, uint64_t bytes)
{
    uint64_t others = compiled_bytes(g);
    ntx_masks_allow(g->masks, bytes > others ? bytes - others : 0);
}

bool ntx_grammars_trim(struct ntx_grammars *g)
{
    pthread_mutex_lock(&g->lock);
    struct ntx_shared_grammar **p = &g->first;
    while (*p && (*p)->users)
        p = &(*p)->next;
    struct ntx_shared_grammar *s = *p;
    if (s)
        *p = s->next;
    pthread_mutex_unlock(&g->lock);
    if (!s)
        return false;
    ntx_masks_forget(g->masks, s->grammar);
    free_one(s);
    return true;
}
