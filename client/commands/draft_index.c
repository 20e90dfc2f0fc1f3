/* SPDX-License-Identifier: Apache-2.0 */
/* draft_index.c: `ntx draft-index` makes an index of texts, from which tokens are drafted
 * (computed/draft/draft_index.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands/commands.h"
#include "common/util.h"
#include "computed/draft/draft_index.h"
#include "model/tokenizer.h"

struct tokens {
    int32_t *id;
    size_t n, room;
};

static int add_tokens(struct tokens *t, const int32_t *ids, size_t n)
{
    if (t->n + n + 1 > t->room) {
        size_t room = 2 * (t->n + n + 1);
        int32_t *more = room > 2 * (size_t)NTX_DRAFT_INDEX_MOST ? NULL : realloc(t->id, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        t->id = more;
        t->room = room;
    }
    memcpy(t->id + t->n, ids, n * sizeof *ids);
    t->n += n;
    t->id[t->n++] = -1;
    return 0;
}

static int tokenize_file(struct tokens *t, const struct ntx_tokenizer *tok, const char *path, struct ntx_err *err)
{
    char *text = NULL;
    size_t len = 0;
    int32_t *ids = NULL;
    FILE *f = fopen(path, "re");
    int rc = f ? ntx_read_stream(f, &text, &len) : -errno, n = 0;
    if (f)
        fclose(f);
    if (!rc && (n = ntx_tokenize(tok, text, len, 0, &ids)) < 0)
        rc = n;
    if (!rc)
        rc = add_tokens(t, ids, (size_t)n);
    free(ids);
    free(text);
    return rc ? ntx_err_set(err, rc, "%s: %s", path, strerror(-rc)) : 0;
}

/* The file gets its name when it is complete. */
static int write_index(const struct tokens *t, const struct ntx_gguf *g, const char *path, struct ntx_err *err)
{
    char part[4096];
    uint32_t n_vocab;
    uint64_t vocab;
    int rc = ntx_draft_index_vocab(g, &n_vocab, &vocab, err);
    if (rc)
        return rc;
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long", path);
    FILE *f = fopen(part, "we");
    if (!f)
        return ntx_err_set(err, -errno, "%s: %s", part, strerror(errno));
    rc = ntx_draft_index_write(f, t->id, (uint32_t)t->n, n_vocab, vocab, err);
    if (fclose(f) && !rc)
        rc = ntx_err_set(err, -errno, "%s", strerror(errno));
    if (!rc && rename(part, path))
        rc = ntx_err_set(err, -errno, "%s", strerror(errno));
    if (rc) {
        remove(part);
        ntx_err_prefix(err, "%s", path);
    }
    return rc;
}

int ntx_cmd_draft_index(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_tokenizer *tok = NULL;
    struct tokens t = {0};
    if (!o->out) {
        fprintf(stderr, "ntx draft-index: -o FILE is needed: the index goes there\n");
        return NTX_EXIT_USAGE;
    }
    int rc = ntx_model_files_open(o, o->args[0], &f, &err);
    if (!rc && (rc = ntx_tokenizer_open(f.gguf, &tok, &err)))
        ntx_err_prefix(&err, "%s", o->args[0]);
    for (unsigned i = 1; i < o->n_args && !rc; i++)
        rc = tokenize_file(&t, tok, o->args[i], &err);
    if (!rc && t.n > NTX_DRAFT_INDEX_MOST)
        rc = ntx_err_set(&err, -E2BIG, "%zu tokens: an index has at most %u", t.n, NTX_DRAFT_INDEX_MOST);
    if (!rc && !(rc = write_index(&t, f.gguf, o->out, &err)) && !o->quiet)
        ntx_say("%s: %zu tokens of %u file%s; use it with --draft %s", o->out, t.n - (o->n_args - 1), o->n_args - 1,
                o->n_args > 2 ? "s" : "", o->out);
    free(t.id);
    ntx_tokenizer_free(tok);
    ntx_model_files_close(&f);
    return rc ? ntx_fail(&err) : 0;
}
