/* SPDX-License-Identifier: Apache-2.0 */
/* The warm prefix: the text of [prefix] in ntx.conf, with which conversations of all users begin. It is computed as
 * soon as a model is loaded. The template's text after the system message is computed in vain, a block at most. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define MOST (1u << 20)

struct warm_prefix {
    struct ntx_request_message messages[2];
    size_t n;
    char text[];
};

static struct warm_prefix *read_text(const char *path, struct ntx_err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct warm_prefix *p = NULL;
    if (fd < 0 || fstat(fd, &st))
        ntx_err_set(err, -errno, "%s", strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_size > MOST || !st.st_size)
        ntx_err_set(err, -EINVAL, "it is no file of 1 to %u bytes", MOST);
    else if (!(p = calloc(1, sizeof *p + (size_t)st.st_size)))
        ntx_err_set(err, -ENOMEM, "no memory");
    for (ssize_t got = 1; p && got > 0 && p->n < (size_t)st.st_size; p->n += (size_t)NTX_MAX(got, (ssize_t)0))
        got = read(fd, p->text + p->n, (size_t)st.st_size - p->n);
    if (p && p->n && p->text[p->n - 1] == '\n') /* as of a prompt's file */
        p->n--;
    if (fd >= 0)
        close(fd);
    return p;
}

static struct ntx_request *request_of(struct ntx_server *s, struct warm_prefix *p)
{
    struct ntx_request *q = calloc(1, sizeof *q);
    if (!q) {
        free(p);
        return NULL;
    }
    *q = (struct ntx_request){.kind = NTX_REQUEST_GENERATE,
                              .id = 1,
                              .prefix = true,
                              .max_tokens = 1,
                              .release = free,
                              .owner = p,
                              .sampling = {.top_p = 1, .repeat_penalty = 1, .repeat_last = 64}};
    p->messages[0] = (struct ntx_request_message){.role = "system", .text = {p->text, p->n}};
    p->messages[1] = (struct ntx_request_message){.role = "user", .text = {".", 1}};
    if (s->loaded->env.has_template) {
        q->messages = p->messages;
        q->n_messages = 2;
    } else {
        q->prompt = p->messages[0].text;
        q->raw = true;
    }
    return q;
}

void ntx__warm_prefix_begin(struct ntx_server *s)
{
    struct ntx_err err = {0};
    if (!s->c.warm_prefix || !*s->c.warm_prefix)
        return;
    struct warm_prefix *p = read_text(s->c.warm_prefix, &err);
    struct ntx_request *q = p ? request_of(s, p) : NULL;
    if (q && !s->warm_prefix)
        s->warm_prefix = ntx_reply_queue_new(&s->output_budget, 0);
    if (!q || !s->warm_prefix || ntx_engine_submit(s->engine, s->warm_prefix, q))
        ntx_log(NTX_LOG_WARN, "%s ([prefix] file) is not computed: %s", s->c.warm_prefix,
                err.code ? err.text : "no memory");
}

void ntx__warm_prefix_reply(struct ntx_server *s, const uint8_t *body, size_t n)
{
    Ntx__Reply *r = ntx_reply_decode(body, n);
    if (r && r->body_case == NTX__REPLY__BODY_ERROR)
        ntx_log(NTX_LOG_WARN, "%s ([prefix] file) is not computed: %s", s->c.warm_prefix, r->error->text);
    if (r && r->body_case == NTX__REPLY__BODY_DONE && !*r->done->finish)
        ntx_log(NTX_LOG_INFO, "%s ([prefix] file) is computed", s->c.warm_prefix);
    if (r)
        ntx__reply__free_unpacked(r, NULL);
}
