/* SPDX-License-Identifier: Apache-2.0 */
/* A Load message as a plain struct: strings copied, descriptors taken over. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/wire.h"
#include "proto/settings.h"

static int copy_text(char **dst, const char *src)
{
    *dst = strdup(src ? src : "");
    return *dst ? 0 : -ENOMEM;
}

/* Splits "iod:...,predictor:..." in either order; each part goes to its worker unchanged. */
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
    if (copy_text(&r->iod_fault, i ? i + sizeof iod - 1 : "") ||
        copy_text(&r->predictor_fault, p ? p + sizeof pred - 1 : ""))
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
    ntx_settings_from_wire(&ntx_load_settings, m, &r->set);
    if (ntx_settings_keep(&ntx_load_settings, &r->set))
        return ntx_err_set(err, -ENOMEM, "no memory");
    for (unsigned i = 0; i < r->n_files; i++)
        if (copy_text(&r->names[i], i < m->n_names ? m->names[i] : "the model"))
            return ntx_err_set(err, -ENOMEM, "no memory");
    for (; r->n_also < m->n_also; r->n_also++)
        if (copy_text(&r->also[r->n_also], m->also[r->n_also]))
            return ntx_err_set(err, -ENOMEM, "no memory");
    return m->path && *m->path && copy_text(&r->path, m->path) ? ntx_err_set(err, -ENOMEM, "no memory") : 0;
}

/* Checks the number of drafters that a request announces. */
static int check_drafters(const Ntx__Load *m, struct ntx_err *err)
{
    const bool automatic = ntx_draft_auto(m->draft);
    /* auto: at most the one that the model's card names */
    const unsigned named = automatic ? 1 : ntx_draft_files(m->draft);
    if (named > NTX_DRAFT_FILES)
        return ntx_err_set(err, -E2BIG, "--draft names more than %u files", NTX_DRAFT_FILES);
    const unsigned least = automatic ? 0 : named - ntx_draft_has_self(m->draft);
    if (m->drafters > named || m->drafters < least)
        return ntx_err_set(err, -EINVAL,
                           "--draft '%.100s' names %u drafters, and %u are announced with the request: each must come",
                           m->draft ? m->draft : "", named, m->drafters);
    return 0;
}

int ntx_load_request_check(const Ntx__Load *m, unsigned came, struct ntx_err *err)
{
    const uint64_t last = (uint64_t)m->drafters + (m->sidecar ? 1 : 0) + (m->projector ? 1 : 0),
                   model = came > last ? came - last : 0;
    const unsigned lora = ntx_lora_files(m->lora);
    /* the configuration's model */
    if (!came && !m->n_names && !last && m->copies <= 1)
        return 0;
    if (!model)
        return ntx_err_set(err, -EINVAL,
                           "neither a path nor descriptors of a model were given: %u descriptors "
                           "came, and announced are %zu names, %s projector, %u drafters and %s sidecar",
                           came, m->n_names, m->projector ? "a" : "no", m->drafters, m->sidecar ? "a" : "no");
    if (m->n_names && m->n_names != model)
        return ntx_err_set(err, -EINVAL,
                           "%zu files of the model are named, and %llu came: send a descriptor for "
                           "each name",
                           m->n_names, (unsigned long long)model);
    if (lora && m->copies > 1)
        return ntx_err_set(err, -ENOTSUP, "--lora and --also do not go together: an adapter has no copies");
    if (lora >= model)
        return ntx_err_set(err, -EINVAL,
                           "--lora names %u adapters, and %llu files came with the model's: each "
                           "adapter's file must stand behind those of the model",
                           lora, (unsigned long long)model);
    return check_drafters(m, err);
}

int ntx_load_request_new(const Ntx__Load *m, const int *fds, unsigned n_fds, struct ntx_load_request **out,
                         struct ntx_err *err)
{
    struct ntx_load_request *r = calloc(1, sizeof *r);
    if (!r || n_fds > NTX_MAX_FILES) {
        for (unsigned i = 0; i < n_fds; i++)
            close(fds[i]);
        free(r);
        return ntx_err_set(err, r ? -E2BIG : -ENOMEM, r ? "a model of %u files: at most %d are supported" : "no memory",
                           n_fds, NTX_MAX_FILES);
    }
    if (n_fds)
        memcpy(r->fds, fds, n_fds * sizeof *fds);
    r->n_files = n_fds;
    r->sidecar_fd = r->projector_fd = -1;
    if (m->sidecar && r->n_files)
        r->sidecar_fd = r->fds[--r->n_files];
    r->n_drafters = NTX_MIN(NTX_MIN(m->drafters, NTX_DRAFT_FILES), r->n_files);
    r->n_files -= r->n_drafters;
    memcpy(r->drafter_fd, r->fds + r->n_files, r->n_drafters * sizeof *r->drafter_fd);
    if (m->projector && r->n_files)
        r->projector_fd = r->fds[--r->n_files];
    r->copies = m->copies ? m->copies : 1;
    r->beside_bytes = m->beside_bytes;
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
    if (r->projector_fd >= 0)
        close(r->projector_fd);
    for (unsigned i = 0; i < r->n_drafters; i++)
        if (r->drafter_fd[i] >= 0)
            close(r->drafter_fd[i]);
    ntx_settings_drop(&ntx_load_settings, &r->set);
    free(r->path);
    free(r->iod_fault);
    free(r->predictor_fault);
    free(r);
}
