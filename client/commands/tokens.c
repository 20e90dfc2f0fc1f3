/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands/commands.h"
#include "client/out.h"
#include "common/util.h"
#include "model/kind.h"
#include "model/tokenizer.h"

/* Needs a vocabulary only, so that a file without tensors will do. */
static int open_tokenizer(const struct ntx_options *o, struct ntx_tokenizer **t, struct ntx_err *err)
{
    struct ntx_model_files f = {0};
    int rc = ntx_model_files_any(o, o->args[0], &f, err);
    if (!rc && !ntx_kind_is_vocab(f.gguf))
        rc = ntx_kind_refuse(f.gguf, o->args[0], err);
    if (!rc && (rc = ntx_tokenizer_open(f.gguf, t, err)))
        ntx_err_prefix(err, "%s", o->args[0]);
    ntx_model_files_close(&f);
    if (!rc && ntx_tokenizer_note(*t) && !o->quiet)
        ntx_say("%s", ntx_tokenizer_note(*t));
    return rc;
}

int ntx_cmd_tokenize(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_tokenizer *t = NULL;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t len = 0;
    int n = 0, rc = open_tokenizer(o, &t, &err);
    if (!rc && (rc = ntx_read_stream(stdin, &text, &len)))
        ntx_err_set(&err, rc, "cannot read standard input: %s", strerror(-rc));
    if (!rc && (n = ntx_tokenize(t, text, len, (o->no_bos ? 0 : NTX_TOK_BOS) | (o->no_special ? 0 : NTX_TOK_SPECIAL),
                                 &ids)) < 0)
        rc = ntx_err_set(&err, n, "cannot tokenize: %s", strerror(-n));
    if (!rc) {
        putchar('[');
        for (int i = 0; i < n; i++)
            printf(i ? ", %d" : "%d", ids[i]);
        puts("]");
    }
    free(ids);
    free(text);
    ntx_tokenizer_free(t);
    return rc ? ntx_fail(&err) : 0;
}

/* Writes the text of all tokens; a character may span several. */
static int write_tokens(const struct ntx_tokenizer *t, const json_t *list, FILE *to, struct ntx_err *err)
{
    size_t i;
    json_t *v;
    bool first = true;
    json_array_foreach(list, i, v) {
        char buf[NTX_TOKEN_MAX];
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= ntx_tokenizer_n_vocab(t))
            return ntx_err_set(err, -EINVAL, "element %zu is no token id below %u", i, ntx_tokenizer_n_vocab(t));
        int n = ntx_detokenize_one(t, (int32_t)id, first, false, buf, sizeof buf);
        if (n < 0)
            return ntx_err_set(err, n, "token %lld: %s", (long long)id, strerror(-n));
        if (id != ntx_tokenizer_bos(t))
            first = false; /* the space before the first word belongs to the token, not to the text */
        fwrite(buf, 1, (size_t)n, to);
    }
    return 0;
}

static int print_tokens(const struct ntx_tokenizer *t, const json_t *list, struct ntx_err *err)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    int rc = f ? write_tokens(t, list, f, err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (f && fclose(f) && !rc)
        rc = ntx_err_set(err, -ENOMEM, "no memory for the text");
    if (!rc)
        ntx_out_text(text, len);
    free(text);
    return rc;
}

int ntx_cmd_detokenize(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_tokenizer *t = NULL;
    json_error_t je;
    json_t *list = NULL;
    int rc = open_tokenizer(o, &t, &err);
    if (!rc && (!(list = json_loadf(stdin, 0, &je)) || !json_is_array(list)))
        rc = ntx_err_set(&err, -EINVAL, "standard input is no JSON array of token ids%s%s", list ? "" : ": ",
                         list ? "" : je.text);
    if (!rc)
        rc = print_tokens(t, list, &err);
    json_decref(list);
    ntx_tokenizer_free(t);
    return rc ? ntx_fail(&err) : 0;
}
