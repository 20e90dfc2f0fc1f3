/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/commands/steps.h"
#include "common/util.h"

static int parse_ids(const char *s, int32_t **ids, size_t *n, struct ntx_err *err)
{
    int32_t *v = malloc((strlen(s) / 2 + 1) * sizeof *v);
    size_t k = 0;
    for (const char *p = s; v;) {
        char *end;
        errno = 0;
        long x = strtol(p, &end, 10);
        if (end == p || errno || x < 0 || x > INT32_MAX || (*end && *end != ',')) {
            free(v);
            return ntx_err_set(err, -EINVAL, "--tokens: '%s' is no list of ids such as 1,5,9", s);
        }
        v[k++] = (int32_t)x;
        if (!*end)
            break;
        p = end + 1;
    }
    if (!v)
        return ntx_err_set(err, -ENOMEM, "no memory");
    *ids = v;
    *n = k;
    return 0;
}

/* Destinations of the logits and the steps. */
struct sheets {
    int fd;      /* -o, or -1 */
    FILE *steps; /* --steps, or NULL */
    const char *out, *steps_path;
    struct ntx_steps all;
};

static int take_reply(struct sheets *w, const Ntx__Reply *r, struct ntx_err *err)
{
    if (r->body_case == NTX__REPLY__BODY_STEP)
        return ntx_steps_add(&w->all, r->step, err);
    if (r->body_case != NTX__REPLY__BODY_LOGITS || w->fd < 0)
        return 0;
    int rc = ntx_write_all(w->fd, r->logits->f32.data, r->logits->f32.len);
    return rc ? ntx_err_set(err, rc, "%s: cannot write: %s", w->out, strerror(-rc)) : 0;
}

static int receive_replies(struct ntx_client *c, uint64_t id, struct sheets *w, struct ntx_err *err)
{
    struct ntx_replies p = {.client = c, .id = id, .last = NTX__REPLY__BODY_DONE};
    int rc = 0;
    while (ntx_client_more(&p, &rc, err))
        rc = take_reply(w, p.reply, err);
    if (rc)
        return rc;
    return w->steps ? ntx_steps_write(&w->all, w->steps, w->steps_path, err) : 0;
}

static int open_sheets(const struct ntx_options *o, struct sheets *w, struct ntx_err *err)
{
    *w = (struct sheets){.fd = -1, .out = o->out, .steps_path = o->steps};
    if (o->out && (w->fd = open(o->out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        return ntx_err_set(err, -errno, "%s: %s", o->out, strerror(errno));
    if (o->steps && !(w->steps = fopen(o->steps, "we")))
        return ntx_err_set(err, -errno, "%s: %s", o->steps, strerror(errno));
    return 0;
}

/* After an error no half of a file stays; a device or a link does. */
static void remove_regular(const char *path)
{
    struct stat st;
    if (path && !lstat(path, &st) && S_ISREG(st.st_mode))
        unlink(path);
}

static int close_sheets(struct sheets *w, int rc, struct ntx_err *err)
{
    const bool began = w->fd >= 0;
    if (began)
        close(w->fd);
    if (w->steps && fclose(w->steps) && !rc)
        rc = ntx_err_set(err, -errno, "%s: %s", w->steps_path, strerror(errno));
    if (rc && began)
        remove_regular(w->out);
    if (rc && w->steps)
        remove_regular(w->steps_path);
    ntx_steps_free(&w->all);
    return rc;
}

static int compare_steps(const struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_steps a = {0}, b = {0};
    int rc = ntx_steps_read(o->compare, &a, &err);
    if (!rc)
        rc = ntx_steps_read(o->args[0], &b, &err);
    if (!rc)
        rc = ntx_steps_compare(&a, &b, o->compare, o->args[0], (double)o->tolerance, &err);
    ntx_steps_free(&a);
    ntx_steps_free(&b);
    return rc < 0 ? ntx_fail(&err) : rc;
}

int ntx_cmd_logits(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_client *c = NULL;
    struct sheets w = {.fd = -1};
    Ntx__LogitsReq m = NTX__LOGITS_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    uint64_t id;
    if (o->compare)
        return compare_steps(o);
    if (!o->tokens || !(o->out || o->steps))
        return fputs("ntx logits: --tokens IDS and -o FILE or --steps FILE are needed; see ntx logits --help\n",
                     stderr),
               NTX_EXIT_USAGE;
    int rc = parse_ids(o->tokens, &m.tokens, &m.n_tokens, &err);
    if (!rc)
        rc = open_sheets(o, &w, &err);
    if (!rc)
        rc = ntx_captive_model(o, &f, &c, &err);
    if (o->steps)
        m.steps = o->step_values ? 2 : 1;
    q.body_case = NTX__REQUEST__BODY_LOGITS;
    q.logits = &m;
    if (!rc)
        rc = ntx_client_send(c, &q, NULL, 0, &id, &err);
    if (!rc)
        rc = receive_replies(c, id, &w, &err);
    ntx_client_free(c);
    ntx_model_files_close(&f);
    free(m.tokens);
    return close_sheets(&w, rc, &err) ? ntx_fail(&err) : 0;
}
