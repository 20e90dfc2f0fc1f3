#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands.h"
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

static int receive_logits(struct ntx_client *c, uint64_t id, int fd, const char *out, struct ntx_err *err)
{
    for (bool done = false; !done;) {
        Ntx__Reply *r;
        int rc = ntx_client_next(c, id, -1, &r, err);
        if (rc)
            return rc;
        if (r->body_case == NTX__REPLY__BODY_LOGITS)
            rc = ntx_write_all(fd, r->logits->f32.data, r->logits->f32.len);
        done = r->body_case == NTX__REPLY__BODY_DONE;
        ntx__reply__free_unpacked(r, NULL);
        if (rc)
            return ntx_err_set(err, rc, "%s: cannot write: %s", out, strerror(-rc));
    }
    return 0;
}

int ntx_cmd_logits(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_client *c = NULL;
    Ntx__LogitsReq m = NTX__LOGITS_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    uint64_t id;
    int fd = -1;
    if (!o->tokens || !o->out)
        return fputs("ntx logits: --tokens IDS and -o FILE are needed; see ntx logits --help\n", stderr), NTX_EXIT_USAGE;
    int rc = parse_ids(o->tokens, &m.tokens, &m.n_tokens, &err);
    if (!rc && (fd = open(o->out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        rc = ntx_err_set(&err, -errno, "%s: %s", o->out, strerror(errno));
    if (!rc)
        rc = ntx_captive_model(o, &f, &c, &err);
    q.body_case = NTX__REQUEST__BODY_LOGITS;
    q.logits = &m;
    if (!rc)
        rc = ntx_client_send(c, &q, NULL, 0, &id, &err);
    if (!rc)
        rc = receive_logits(c, id, fd, o->out, &err);
    ntx_client_free(c);
    ntx_model_files_close(&f);
    free(m.tokens);
    if (fd >= 0)
        close(fd);
    return rc ? ntx_fail(&err) : 0;
}
