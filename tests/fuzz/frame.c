/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c: untrusted bytes of the protocol, under libFuzzer: the byte stream of clients, their requests, our
 * replies, and the messages between daemons. The first byte picks the kind; the second byte of a stream says how it
 * is cut. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/link.h"
#include "shm/region.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A request that was accepted and packed must mean the same when it is read again. It may be refused then:
 * protobuf-c accepts an unknown field of number 0 whose tag has two bytes, packs the tag in one, and refuses that. */
static void use_request(const uint8_t *data, size_t size)
{
    Ntx__Request *m = ntx_request_decode(data, size, NULL);
    uint8_t *frame;
    size_t len;
    if (!m)
        return;
    if (ntx_request_encode(m, &frame, &len) == 0) {
        Ntx__Request *again = ntx_request_decode(frame + 4, len - 4, NULL);
        if (again && (again->body_case != m->body_case || again->id != m->id))
            abort();
        if (again)
            ntx__request__free_unpacked(again, NULL);
        free(frame);
    }
    ntx__request__free_unpacked(m, NULL);
}

static void use_reply(const uint8_t *data, size_t size)
{
    Ntx__Reply *m = ntx_reply_decode(data, size);
    uint8_t *frame;
    size_t len;
    if (!m)
        return;
    if (ntx_reply_encode(m, &frame, &len) == 0) {
        Ntx__Reply *again = ntx_reply_decode(frame + 4, len - 4);
        if (again && (again->body_case != m->body_case || again->id != m->id))
            abort();
        if (again)
            ntx__reply__free_unpacked(again, NULL);
        free(frame);
    }
    ntx__reply__free_unpacked(m, NULL);
}

static void use_peer(const uint8_t *data, size_t size)
{
    Ntx__Peer *m = size <= NTX_LINK_MAX ? ntx__peer__unpack(NULL, size, data) : NULL;
    if (!m)
        return;
    if (ntx_peer_validate(m) == 0) {
        if (m->body_case == NTX__PEER__BODY_DECISION && m->decision->skip.len > 8 * NTX_MAP_WORDS)
            abort();
        if (m->body_case == NTX__PEER__BODY_HELLO && strcmp(m->hello->role, "iod") &&
            strcmp(m->hello->role, "predictor"))
            abort();
    }
    ntx__peer__free_unpacked(m, NULL);
}

static void use_stream(const uint8_t *data, size_t size, size_t step)
{
    struct ntx_frame_in in = {0};
    size_t taken = 0;
    for (size_t at = 0; at < size; at += step) {
        const uint8_t *body;
        size_t len;
        int rc;
        if (ntx_frame_feed(&in, data + at, step < size - at ? step : size - at))
            break;
        while ((rc = ntx_frame_next(&in, &body, &len)) == 1) {
            taken += len + 4;
            if (!len || taken > size || memcmp(body, data + taken - len, len))
                abort();
            use_request(body, len);
        }
        if (rc < 0)
            break;
    }
    ntx_frame_free(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    switch (data[0] % 4) {
    case 0: use_stream(data + 2, size - 2, 1u + data[1]); break;
    case 1: use_request(data + 1, size - 1); break;
    case 2: use_reply(data + 1, size - 1); break;
    default: use_peer(data + 1, size - 1);
    }
    return 0;
}
