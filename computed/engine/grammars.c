/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/grammars.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ntx_shared_grammar {
    struct ntx_shared_grammar *next; /* in the order in which they were made or last given back */
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

static void free_grammar(struct ntx_shared_grammar *s)
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
        free_grammar(s);
    }
    ntx_masks_free(g->masks);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static size_t grammar_bytes(const struct ntx_shared_grammar *s)
{
    return sizeof *s + s->len + ntx_grammar_bytes(s->grammar);
}

static bool has_key(const struct ntx_shared_grammar *s, const struct ntx_grammar_key *k)
{
    return s->chat == k->chat && s->len == k->text.len && !strcmp(s->kind, k->kind) &&
           !strcmp(s->reply, k->reply ? k->reply : "") && (!s->len || !memcmp(s->text, k->text.data, s->len));
}

static void append_grammar(struct ntx_grammars *g, struct ntx_shared_grammar *s)
{
    struct ntx_shared_grammar **p = &g->first;
    while (*p)
        p = &(*p)->next;
    s->next = NULL;
    *p = s;
}

static struct ntx_shared_grammar *find_grammar(struct ntx_grammars *g, const struct ntx_grammar_key *key)
{
    pthread_mutex_lock(&g->lock);
    struct ntx_shared_grammar *s = g->first;
    while (s && !has_key(s, key))
        s = s->next;
    if (s)
        s->users++;
    pthread_mutex_unlock(&g->lock);
    return s;
}

static struct ntx_shared_grammar *new_grammar(const struct ntx_grammar_key *key)
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
    struct ntx_shared_grammar *s = find_grammar(g, key);
    struct ntx_grammar *made = NULL;
    int rc = s ? 0 : make(ctx, &made, err); /* without the lock, since it may take long */
    if (rc)
        return rc;
    if (!s && !(s = new_grammar(key))) {
        ntx_grammar_free(made);
        return ntx_err_set(err, -ENOMEM, "no memory for a grammar");
    }
    if (made) {
        s->grammar = made;
        pthread_mutex_lock(&g->lock);
        append_grammar(g, s);
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
    append_grammar(g, s);
    s->users--;
    pthread_mutex_unlock(&g->lock);
}

const struct ntx_grammar *ntx_grammars_of(const struct ntx_shared_grammar *s) { return s->grammar; }

static size_t compiled_bytes(struct ntx_grammars *g)
{
    size_t bytes = 0;
    pthread_mutex_lock(&g->lock);
    for (const struct ntx_shared_grammar *s = g->first; s; s = s->next)
        bytes += grammar_bytes(s);
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
    free_grammar(s);
    return true;
}
