/* SPDX-License-Identifier: Apache-2.0 */
/* peer_valid.c: the only place that validates a daemon's message, field by field. The receiver checks what depends on
 * the loaded region (a probe's index, a chunk's number), since it has the geometry. */
#include <errno.h>

#include "proto/link.h"
#include "proto/valid.h"
#include "shm/region.h"

#define MAX_BUILD  63u
#define MAX_WORD   64u
#define MAX_POLICY 4096u
#define MAX_FAULT  1024u
#define MAX_TEXT   511u /* as much as struct ntx_err holds */
#define MAX_SKIP   (8u * NTX_MAP_WORDS)
#define MAX_GEN    (1u << 28)

static bool hello_ok(const Ntx__Hello *m)
{
    return m && m->role && (!strcmp(m->role, "iod") || !strcmp(m->role, "predictor")) && m->instance &&
           ntx__text_fits(m->build, MAX_BUILD);
}

static bool iod_config_ok(const Ntx__IodConfig *m)
{
    return m && ntx__not_negative(m->rate_bps) && m->inflight_bytes <= 1ull << 40 && m->piece_bytes <= 1ull << 40 &&
           ntx__text_fits(m->source, MAX_WORD) && ntx__text_fits(m->fault, MAX_FAULT);
}

static bool iod_error_ok(const Ntx__IodError *m)
{
    return m && (m->file < NTX_MAX_FILES || m->file == UINT32_MAX) && m->err <= 0 && m->err > -4096 &&
           ntx__text_fits(m->text, MAX_TEXT);
}

static bool policy_state_ok(const Ntx__PolicyState *m)
{
    return m && m->probe_layer < 64u * NTX_MAP_WORDS && ntx__text_fits(m->policy, MAX_POLICY) &&
           ntx__text_fits(m->error, MAX_TEXT);
}

static bool decision_ok(const Ntx__Decision *m) { return m && m->gen < MAX_GEN && m->skip.len <= MAX_SKIP; }

int ntx_peer_validate(const Ntx__Peer *m)
{
    bool ok = false;
    switch (m->body_case) {
    case NTX__PEER__BODY_HELLO: ok = hello_ok(m->hello); break;
    case NTX__PEER__BODY_IOD_CONFIG: ok = iod_config_ok(m->iod_config); break;
    case NTX__PEER__BODY_IOD_ERROR: ok = iod_error_ok(m->iod_error); break;
    case NTX__PEER__BODY_POLICY_SET:
        ok = m->policy_set && ntx__text_fits(m->policy_set->policy, MAX_POLICY) &&
             ntx__text_fits(m->policy_set->fault, MAX_FAULT) && ntx__text_fits(m->policy_set->model, MAX_WORD);
        break;
    case NTX__PEER__BODY_POLICY_STATE: ok = policy_state_ok(m->policy_state); break;
    case NTX__PEER__BODY_PROBE: ok = m->probe && m->probe->gen < MAX_GEN; break;
    case NTX__PEER__BODY_DECISION: ok = decision_ok(m->decision); break;
    case NTX__PEER__BODY_HINT: ok = m->hint && m->hint->skip.len <= MAX_SKIP; break;
    case NTX__PEER__BODY_PING: ok = m->ping != NULL; break;
    case NTX__PEER__BODY_PONG: ok = m->pong != NULL; break;
    default: break;
    }
    return ok ? 0 : -EBADMSG;
}
