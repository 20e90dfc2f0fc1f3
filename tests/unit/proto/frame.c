/* SPDX-License-Identifier: Apache-2.0 */
/* Frames on a byte stream: the same messages come out however the bytes are cut; impossible lengths are refused. */
#include "proto/frame.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/lib/check.h"

static uint8_t stream[4096];
static size_t stream_len;

static void add_request(uint64_t id, const char *prompt)
{
    Ntx__Request r = NTX__REQUEST__INIT;
    Ntx__Generate g = NTX__GENERATE__INIT;
    uint8_t *frame;
    size_t len;
    r.id = id;
    r.body_case = NTX__REQUEST__BODY_GENERATE;
    r.generate = &g;
    g.prompt.data = (uint8_t *)prompt;
    g.prompt.len = strlen(prompt);
    CHECK_EQ(ntx_request_encode(&r, &frame, &len), 0);
    CHECK(stream_len + len <= sizeof stream);
    memcpy(stream + stream_len, frame, len);
    stream_len += len;
    free(frame);
}

/* Takes the complete frames; checks that ids count up and prompts are right. */
static void take(struct ntx_frame_in *in, uint64_t *next)
{
    const uint8_t *body;
    size_t len;
    int rc;
    while ((rc = ntx_frame_next(in, &body, &len)) == 1) {
        char want[32];
        Ntx__Request *r = ntx_request_decode(body, len, NULL);
        CHECK(r != NULL);
        CHECK_EQ(r->id, *next);
        snprintf(want, sizeof want, "prompt number %d", (int)*next);
        CHECK_EQ(r->generate->prompt.len, strlen(want));
        CHECK(!memcmp(r->generate->prompt.data, want, strlen(want)));
        ntx__request__free_unpacked(r, NULL);
        ++*next;
    }
    CHECK_EQ(rc, 0);
}

static void test_every_split(void)
{
    for (int i = 1; i <= 5; i++) {
        char prompt[32];
        snprintf(prompt, sizeof prompt, "prompt number %d", i);
        add_request((uint64_t)i, prompt);
    }
    for (size_t step = 1; step <= stream_len; step++) {
        struct ntx_frame_in in = {0};
        uint64_t next = 1;
        for (size_t at = 0; at < stream_len; at += step) {
            CHECK_EQ(ntx_frame_feed(&in, stream + at, NTX_MIN(step, stream_len - at)), 0);
            take(&in, &next);
        }
        CHECK_EQ(next, 6);
        CHECK_EQ(in.len, in.used);
        ntx_frame_free(&in);
    }
}

static void test_lengths(void)
{
    static const struct {
        uint8_t head[4];
        int rc;
    } t[] = {
        {{0, 0, 0, 0}, -EMSGSIZE},
        {{1, 0, 0, 1}, -EMSGSIZE}, /* NTX_FRAME_MAX + 1 */
        {{0, 0, 0, 1}, 0},         /* NTX_FRAME_MAX: valid, but not complete yet */
        {{255, 255, 255, 255}, -EMSGSIZE},
        {{'G', 'E', 'T', ' '}, -EMSGSIZE},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct ntx_frame_in in = {0};
        const uint8_t *body;
        size_t len;
        CHECK_EQ(ntx_frame_feed(&in, t[i].head, 3), 0);
        CHECK_EQ(ntx_frame_next(&in, &body, &len), 0);
        CHECK_EQ(ntx_frame_feed(&in, t[i].head + 3, 1), 0);
        CHECK_EQ(ntx_frame_next(&in, &body, &len), t[i].rc);
        CHECK(in.room <= 4096); /* the claimed length is not allocated */
        ntx_frame_free(&in);
    }
}

/* The largest frame passes; a peer that only piles up bytes is stopped; memory is freed. */
static void test_large(void)
{
    struct ntx_frame_in in = {0};
    const uint8_t *body;
    size_t len, fed = 0;
    static uint8_t block[1u << 20];
    uint8_t head[4] = {0, 0, 0, 1};
    CHECK_EQ(ntx_frame_feed(&in, head, 4), 0);
    for (int i = 0; i < 16; i++) {
        CHECK_EQ(ntx_frame_next(&in, &body, &len), 0);
        CHECK_EQ(ntx_frame_feed(&in, block, sizeof block), 0);
    }
    CHECK_EQ(ntx_frame_next(&in, &body, &len), 1);
    CHECK_EQ(len, NTX_FRAME_MAX);
    CHECK(in.room >= NTX_FRAME_MAX && in.room <= NTX_FRAME_MAX + (2u << 20));
    CHECK_EQ(ntx_frame_next(&in, &body, &len), 0);
    CHECK_EQ(in.room, 0);
    while (ntx_frame_feed(&in, block, sizeof block) == 0)
        CHECK((fed += sizeof block) <= NTX_FRAME_MAX + (2u << 20));
    CHECK_EQ(ntx_frame_feed(&in, block, sizeof block), -EMSGSIZE);
    ntx_frame_free(&in);
}

static void test_socket(void)
{
    int s[2], got_fd = -1;
    unsigned n_fds = 0;
    uint8_t buf[256];
    struct ntx_frame_in in = {0};
    const uint8_t *body;
    size_t len;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);

    Ntx__Request r = NTX__REQUEST__INIT;
    Ntx__Load load = NTX__LOAD__INIT;
    char *name = (char *)"a.gguf";
    r.id = 9;
    r.body_case = NTX__REQUEST__BODY_LOAD;
    r.load = &load;
    load.names = &name;
    load.n_names = 1;
    CHECK_EQ(ntx_frame_send_request(s[0], &r, &s[0], 1), 0);
    for (int rc = 0; !rc; rc = ntx_frame_next(&in, &body, &len)) {
        unsigned room = 1;
        int fd = -1, n = ntx_recv_fds(s[1], buf, sizeof buf, &fd, &room);
        CHECK(n > 0);
        if (room) { /* descriptors come with the first bytes, once */
            CHECK_EQ(in.len, 0);
            got_fd = fd;
            n_fds = room;
        }
        CHECK_EQ(ntx_frame_feed(&in, buf, (size_t)n), 0);
    }
    CHECK_EQ(n_fds, 1);
    close(got_fd);
    ntx_frame_free(&in);

    Ntx__Reply reply = NTX__REPLY__INIT, *back;
    Ntx__Token token = NTX__TOKEN__INIT;
    uint8_t *frame;
    reply.id = 9;
    reply.body_case = NTX__REPLY__BODY_TOKEN;
    reply.token = &token;
    token.token = 42;
    CHECK_EQ(ntx_reply_encode(&reply, &frame, &len), 0);
    CHECK_EQ(ntx_write_all(s[1], frame, len), 0);
    CHECK_EQ(ntx_write_all(s[1], frame, len - 1), 0); /* and a frame that never ends */
    free(frame);
    close(s[1]);
    CHECK_EQ(recv(s[0], buf, sizeof buf, MSG_WAITALL), (ssize_t)(2 * len - 1));
    CHECK_EQ(ntx_frame_feed(&in, buf, 2 * len - 1), 0);
    CHECK_EQ(ntx_frame_next(&in, &body, &len), 1);
    CHECK((back = ntx_reply_decode(body, len)) && back->token->token == 42);
    ntx__reply__free_unpacked(back, NULL);
    CHECK_EQ(ntx_frame_next(&in, &body, &len), 0);
    CHECK_EQ(ntx_frame_send_request(s[0], &r, NULL, 0), -EPIPE); /* and no SIGPIPE */
    ntx_frame_free(&in);
    close(s[0]);
}

int main(void)
{
    test_every_split();
    test_lengths();
    test_large();
    test_socket();
    return 0;
}
