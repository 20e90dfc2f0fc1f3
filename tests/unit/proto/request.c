/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that ntx_request_decode and ntx_reply_decode accept and refuse. */
#include <math.h>
#include <stdbool.h>

#include "proto/frame.h"
#include "tests/lib/check.h"

/* Packs and unpacks; true when it was accepted. */
static bool accepted(const Ntx__Request *r)
{
    uint8_t *frame;
    size_t len;
    CHECK_EQ(ntx_request_encode(r, &frame, &len), 0);
    Ntx__Request *m = ntx_request_decode(frame + 4, len - 4, NULL);
    free(frame);
    bool ok = m != NULL;
    if (m)
        ntx__request__free_unpacked(m, NULL);
    return ok;
}

static void test_generate(void)
{
    Ntx__Request r = NTX__REQUEST__INIT;
    Ntx__Generate g = NTX__GENERATE__INIT;
    Ntx__Sampling s = NTX__SAMPLING__INIT;
    r.id = 1;
    r.body_case = NTX__REQUEST__BODY_GENERATE;
    r.generate = &g;
    g.sampling = &s;
    CHECK(accepted(&r));
    float bad[] = {NAN, INFINITY, -1};
    float *field[] = {&s.temp, &s.top_p, &s.min_p, &s.repeat_penalty};
    for (size_t f = 0; f < 4; f++)
        for (size_t b = 0; b < 3; b++) {
            *field[f] = bad[b];
            CHECK(!accepted(&r));
            *field[f] = 0.5f;
        }
    CHECK(accepted(&r));

    char *stops[65];
    for (int i = 0; i < 65; i++)
        stops[i] = (char *)"x";
    g.stop = stops;
    g.n_stop = 64;
    CHECK(accepted(&r));
    g.n_stop = 65;
    CHECK(!accepted(&r));
    g.n_stop = 0;

    size_t max = 1u << 20;
    g.tokens = calloc(max + 1, sizeof *g.tokens);
    g.n_tokens = max;
    CHECK(accepted(&r));
    g.n_tokens = max + 1;
    CHECK(!accepted(&r));
    free(g.tokens);
}

/* Images stand within their text, in order, and none is empty. */
static void test_images(void)
{
    Ntx__Request r = NTX__REQUEST__INIT;
    Ntx__Generate g = NTX__GENERATE__INIT;
    Ntx__Message m = NTX__MESSAGE__INIT, *messages[] = {&m};
    Ntx__Image a = NTX__IMAGE__INIT, b = NTX__IMAGE__INIT, *images[] = {&a, &b};
    static uint8_t bytes[] = "abc";
    r.id = 1;
    r.body_case = NTX__REQUEST__BODY_GENERATE;
    r.generate = &g;
    g.messages = messages;
    g.n_messages = 1;
    m.role = (char *)"user";
    m.text = (ProtobufCBinaryData){3, bytes};
    m.images = images;
    m.n_images = 2;
    a.data = b.data = m.text;
    a.at = 1;
    b.at = 3;
    CHECK(accepted(&r));
    b.at = 4;
    CHECK(!accepted(&r));
    b.at = 0;
    CHECK(!accepted(&r));
    b.at = 1;
    b.data.len = 0;
    CHECK(!accepted(&r));
    b.data.len = 3;
    CHECK(accepted(&r));
    g.n_messages = 0;
    g.prompt = m.text;
    g.images = images;
    g.n_images = 2;
    CHECK(accepted(&r));
    b.at = 4;
    CHECK(!accepted(&r));
}

static void test_load(void)
{
    Ntx__Request r = NTX__REQUEST__INIT;
    Ntx__Load m = NTX__LOAD__INIT;
    char *names[101], path[4098];
    r.id = 1;
    r.body_case = NTX__REQUEST__BODY_LOAD;
    r.load = &m;
    CHECK(accepted(&r));
    for (int i = 0; i < 101; i++)
        names[i] = (char *)"part.gguf";
    m.names = names;
    m.n_names = 100;
    CHECK(accepted(&r));
    m.n_names = 101;
    CHECK(!accepted(&r));
    m.n_names = 1;
    memset(path, 'a', 4097);
    path[4097] = 0;
    names[0] = path;
    CHECK(!accepted(&r));
    names[0] = path + 1;
    CHECK(accepted(&r));
    m.ram_bytes = UINT64_MAX;
    CHECK(!accepted(&r));
    m.ram_bytes = 1ull << 40;
    m.link_nvme_bps = NAN;
    CHECK(!accepted(&r));
    m.link_nvme_bps = 3.3e9;
    m.ring_slots = UINT32_MAX;
    CHECK(!accepted(&r));
    m.ring_slots = 0;
    CHECK(accepted(&r));
}

static void test_score(void)
{
    Ntx__Request r = NTX__REQUEST__INIT;
    Ntx__ScoreReq m = NTX__SCORE_REQ__INIT;
    int32_t tokens[3] = {1, 2, 3};
    r.id = 1;
    r.body_case = NTX__REQUEST__BODY_SCORE;
    r.score = &m;
    m.tokens = tokens;
    m.n_tokens = 3;
    m.from = 3;
    CHECK(accepted(&r));
    m.from = 4;
    CHECK(!accepted(&r));
}

static void test_malformed(void)
{
    static const uint8_t no_body[] = {8, 1};
    static const uint8_t unknown_field[] = {8, 1, 0x32, 0, 0xa0, 6, 1}; /* id, status {}, field 100 = 1 */
    static const uint8_t cut[] = {8, 1, 0x22, 200, 1, 0x1a};
    CHECK(!ntx_request_decode(no_body, sizeof no_body, NULL));
    CHECK(!ntx_request_decode(cut, sizeof cut, NULL));
    CHECK(!ntx_request_decode((const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11, NULL));
    Ntx__Request *m = ntx_request_decode(unknown_field, sizeof unknown_field, NULL); /* from a newer client: accepted */
    CHECK(m && m->body_case == NTX__REQUEST__BODY_STATUS);
    ntx__request__free_unpacked(m, NULL);
}

/* 8 million tiny fields would cost 40 bytes each; the frame is refused before that. */
static void test_amplification(void)
{
    size_t n = NTX_FRAME_MAX;
    uint8_t *body = malloc(n);
    CHECK(body != NULL);
    for (size_t i = 0; i + 1 < n; i += 2) {
        body[i] = 8; /* id */
        body[i + 1] = 1;
    }
    CHECK(!ntx_request_decode(body, n, NULL));
    for (size_t i = 0; i + 1 < n; i += 2) {
        body[i] = 0x32; /* status {} */
        body[i + 1] = 0;
    }
    CHECK(!ntx_request_decode(body, n, NULL));
    CHECK(!ntx_reply_decode(body, n));
    free(body);
}

static void test_reply(void)
{
    static const uint8_t odd_logits[] = {8, 1, 0x42, 5, 0x12, 3, 1, 2, 3};
    static const uint8_t logits[] = {8, 1, 0x42, 6, 0x12, 4, 1, 2, 3, 4};
    CHECK(!ntx_reply_decode(odd_logits, sizeof odd_logits));
    Ntx__Reply *m = ntx_reply_decode(logits, sizeof logits);
    CHECK(m && m->logits->f32.len == 4);
    ntx__reply__free_unpacked(m, NULL);
    CHECK(!ntx_reply_decode(logits, 2));
}

int main(void)
{
    test_generate();
    test_images();
    test_load();
    test_score();
    test_malformed();
    test_amplification();
    test_reply();
    return 0;
}
