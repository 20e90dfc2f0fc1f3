/* What a Load message asks, as plain C: strings copied, descriptors taken over. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/settings.h"
#include "serve/load.h"

static int copy(char **dst, const char *src)
{
    *dst = strdup(src ? src : "");
    return *dst ? 0 : -ENOMEM;
}

/* "iod:...,predictor:..." in either order; each part goes to its worker as it is. */
static int split_fault(struct ntx_load_request *r, const char *fault, struct ntx_err *err)
{
    static const char iod[] = "iod:", pred[] = "predictor:";
    const char *p = strstr(fault, pred), *i = strstr(fault, iod);
    while (p && p != fault && p[-1] != ',')
        p = strstr(p + 1, pred);
    while (i && i != fault && i[-1] != ',')
        i = strstr(i + 1, iod);
    const char *first = !i || (p && p < i) ? p : i;
    if (*fault && first != fault)
        return ntx_err_set(err, -EINVAL, "fault '%s': expected iod:... or predictor:...", fault);
    if (copy(&r->iod_fault, i ? i + sizeof iod - 1 : "") || copy(&r->predictor_fault, p ? p + sizeof pred - 1 : ""))
        return ntx_err_set(err, -ENOMEM, "no memory");
    if (i && p) { /* cut the first part at the comma before the second */
        size_t len = (size_t)(i < p ? p - i - (ptrdiff_t)sizeof iod : i - p - (ptrdiff_t)sizeof pred);
        (i < p ? r->iod_fault : r->predictor_fault)[len] = 0;
    }
    return 0;
}

static int copy_strings(struct ntx_load_request *r, const Ntx__Load *m, struct ntx_err *err)
{
    int rc = split_fault(r, m->fault ? m->fault : "", err);
    if (rc)
        return rc;
    if (copy(&r->backend, m->backend) || copy(&r->kernel, m->kernel) || copy(&r->source, m->source) ||
        copy(&r->kv_type, m->kv_type) || copy(&r->ffn_sparse, m->ffn_sparse) || copy(&r->skip_kv, m->skip_kv) || copy(&r->policy, m->skip && *m->skip && strcmp(m->skip, "off") ? m->skip : "none"))
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (unsigned i = 0; i < r->n_files; i++)
        if (copy(&r->names[i], i < m->n_names ? m->names[i] : "the model"))
            return ntx_err_set(err, -ENOMEM, "no memory");
    for (; r->n_also < m->n_also; r->n_also++)
        if (copy(&r->also[r->n_also], m->also[r->n_also]))
            return ntx_err_set(err, -ENOMEM, "no memory");
    return m->path && *m->path && copy(&r->path, m->path) ? ntx_err_set(err, -ENOMEM, "no memory") : 0;
}

static void take_skip(struct ntx_load_request *r, const Ntx__Load *m)
{
    if (m->sidecar && r->n_files)
        r->sidecar_fd = r->fds[--r->n_files];
    r->skip_adapt = m->skip_adapt;
    r->skip_verify = m->skip_verify;
    r->capture = m->capture;
    r->capture_ffns = m->capture_ffns;
}

int ntx_load_request_new(const Ntx__Load *m, const int *fds, unsigned n_fds, struct ntx_load_request **out, struct ntx_err *err)
{
    struct ntx_load_request *r = calloc(1, sizeof *r);
    if (!r || n_fds > NTX_MAX_FILES) {
        for (unsigned i = 0; i < n_fds; i++)
            close(fds[i]);
        free(r);
        return ntx_err_set(err, r ? -E2BIG : -ENOMEM, r ? "a model of %u files: at most %d are supported" : "no memory", n_fds, NTX_MAX_FILES);
    }
    if (n_fds)
        memcpy(r->fds, fds, n_fds * sizeof *fds);
    r->n_files = n_fds;
    r->sidecar_fd = -1;
    take_skip(r, m);
    r->copies = m->copies ? m->copies : 1;
    r->ram_bytes = m->ram_bytes;
    r->vram_bytes = m->vram_bytes;
    r->ctx = m->ctx;
    r->threads = m->threads;
    r->sessions = m->sessions;
    r->max_rows = m->max_rows;
    r->ring_slots = m->ring_slots;
    r->chunk_bytes = m->chunk_bytes;
    r->link_nvme_bps = m->link_nvme_bps;
    r->prefetch = !m->no_prefetch;
    r->trace_experts = m->trace_experts;
    r->link_h2d_bps = m->link_h2d_bps;
    int rc = ntx_settings_check(&ntx_load_settings, m, err);
    if (!rc)
        rc = copy_strings(r, m, err);
    if (!rc && !r->n_files && !r->path)
        rc = ntx_err_set(err, -EINVAL, "neither a path nor descriptors of a model were given");
    if (rc) {
        ntx_load_request_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void ntx_load_request_free(struct ntx_load_request *r)
{
    if (!r)
        return;
    for (unsigned i = 0; i < r->n_files; i++) {
        close(r->fds[i]);
        free(r->names[i]);
    }
    for (unsigned i = 0; i < r->n_also; i++)
        free(r->also[i]);
    if (r->sidecar_fd >= 0)
        close(r->sidecar_fd);
    char *strings[] = {r->skip_kv, r->ffn_sparse, r->kv_type, r->path, r->backend, r->kernel, r->source, r->iod_fault, r->predictor_fault, r->policy};
    for (unsigned i = 0; i < sizeof strings / sizeof *strings; i++)
        free(strings[i]);
    free(r);
}
