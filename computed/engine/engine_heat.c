/* SPDX-License-Identifier: Apache-2.0 */
/* The uses of experts (computed/weights/heat.h) outlive the load, and a new load preloads the hottest experts while
 * nobody asks anything. */
#include <errno.h>
#include <time.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"
#include "computed/plan/heat_file.h"
#include "model/digest.h"

#define NEWS   64u      /* passes; fewer are not worth writing the file */
#define GLANCE 2000000u /* ns between looks for reads that have ended */

void ntx__engine_heat_new(struct ntx_engine *e)
{
    struct ntx_err err = {0};
    struct ntx_heat *heat = e->l->stream ? ntx_stream_heat(e->l->stream) : NULL;
    if (!heat || !e->l->gguf || e->l->set.no_prefetch || ntx_model_digest(e->l->gguf, e->l->fds, e->heat_digest, &err))
        return;
    e->heat = heat;
    int rc = ntx_heat_load(e->heat_digest, heat, &err);
    if (rc && rc != -ENOENT)
        ntx_log(NTX_LOG_WARN, "the uses of experts begin anew: %s", err.text);
    if (!rc)
        ntx_stream_preload(e->l->stream);
    e->preloading = !rc;
}

void ntx__engine_heat_keep(struct ntx_engine *e)
{
    struct ntx_err err = {0};
    if (!e->heat || e->heat_news < NEWS)
        return;
    e->heat_news = 0;
    if (!ntx_heat_store(e->heat_digest, e->heat, &err))
        return;
    ntx_log(NTX_LOG_DEBUG, "%s", err.text);
    e->heat = NULL; /* one failure ends it */
}

bool ntx__engine_preload(struct ntx_engine *e)
{
    if (!e->preloading)
        return false;
    e->preloading = ntx_stream_preload_more(e->l->stream);
    if (!e->preloading)
        return false;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const uint64_t ns = (uint64_t)until.tv_nsec + GLANCE;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    pthread_mutex_lock(&e->lock);
    if (!e->jobs && !e->read && !e->poked)
        pthread_cond_timedwait(&e->wake, &e->lock, &until);
    pthread_mutex_unlock(&e->lock);
    return true;
}
