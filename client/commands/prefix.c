/* SPDX-License-Identifier: Apache-2.0 */
/* `ntx prefix`: the running daemons compute the beginning of later conversations (a system prompt) and keep it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands/commands.h"
#include "client/out.h"
#include "client/progress.h"
#include "common/util.h"

static int read_file(const char *path, char **text, size_t *len, struct ntx_err *err)
{
    FILE *f = !strcmp(path, "-") ? stdin : fopen(path, "re");
    int rc = f ? ntx_read_stream(f, text, len) : -errno;
    if (f && f != stdin)
        fclose(f);
    if (!rc && *len && (*text)[*len - 1] == '\n')
        --*len;
    if (!rc && !*len)
        rc = -ENODATA;
    if (!rc)
        return 0;
    return ntx_err_set(err, rc, "%s: %s", path, rc == -ENODATA ? "there is no text in it" : strerror(-rc));
}

static void report_prefix(const Ntx__Done *d, const char *path)
{
    json_t *j = json_loads(d->stats_json, 0, NULL);
    ntx_say("%s is kept: %lld tokens, %u of them were there", path,
            (long long)json_integer_value(json_object_get(j, "prompt_tokens")), d->cached_tokens);
    json_decref(j);
}

static int compute_prefix(struct ntx_client *c, const struct ntx_options *o, Ntx__Generate *m, struct ntx_err *err)
{
    struct ntx_progress p = ntx_progress_begin(o);
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_replies w = {.client = c, .last = NTX__REPLY__BODY_DONE};
    q.body_case = NTX__REQUEST__BODY_GENERATE;
    q.generate = m;
    int rc = ntx_client_send(c, &q, NULL, 0, &w.id, err);
    while (ntx_client_more(&w, &rc, err)) {
        if (w.reply->body_case == NTX__REPLY__BODY_PROGRESS)
            ntx_progress_show(&p, w.reply->progress);
        if (w.reply->body_case == w.last) {
            ntx_clear_progress();
            report_prefix(w.reply->done, o->args[0]);
        }
    }
    return rc;
}

int ntx_cmd_prefix(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_client *c = NULL;
    char *text = NULL;
    Ntx__Generate m = NTX__GENERATE__INIT;
    Ntx__Message said[2] = {NTX__MESSAGE__INIT, NTX__MESSAGE__INIT}, *messages[2] = {&said[0], &said[1]};
    int rc = read_file(o->args[0], &text, &said[0].text.len, &err);
    said[0].role = (char *)"system";
    said[0].text.data = (uint8_t *)text;
    said[1].role = (char *)"user";
    said[1].text = (ProtobufCBinaryData){1, (uint8_t *)"."};
    m.messages = messages;
    m.n_messages = 2;
    m.max_tokens = 1;
    m.prefix = true;
    if (!rc)
        rc = ntx_client_connect(o->socket, &c, &err);
    if (!rc)
        rc = compute_prefix(c, o, &m, &err);
    ntx_client_free(c);
    free(text);
    return rc ? ntx_fail(&err) : 0;
}
