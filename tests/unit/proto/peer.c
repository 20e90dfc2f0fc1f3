/* SPDX-License-Identifier: Apache-2.0 */
/* Validation of messages between daemons: one case per field that has a limit. */
#include <errno.h>
#include <math.h>

#include "proto/link.h"
#include "shm/region.h"
#include "tests/lib/check.h"

static char long_text[5000];

static void test_hello(void)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Hello h = NTX__HELLO__INIT;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG); /* no body */
    m.body_case = NTX__PEER__BODY_HELLO;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG); /* a body case without a body */
    Ntx__Ping ping = NTX__PING__INIT;
    m.body_case = NTX__PEER__BODY_PING;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
    m.ping = &ping;
    CHECK_EQ(ntx_peer_validate(&m), 0);
    m.ping = NULL;
    m.body_case = NTX__PEER__BODY_PONG;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
    m.pong = &ping;
    CHECK_EQ(ntx_peer_validate(&m), 0);
    m.pong = NULL;
    m.body_case = NTX__PEER__BODY_HELLO;
    m.hello = &h;
    h.role = (char *)"iod";
    h.instance = 1;
    h.build = (char *)"1+x";
    CHECK_EQ(ntx_peer_validate(&m), 0);
    h.role = (char *)"predictor";
    CHECK_EQ(ntx_peer_validate(&m), 0);
    h.role = (char *)"computed";
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
    h.role = (char *)"iod";
    h.instance = 0;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
    h.instance = 1;
    h.build = long_text;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
}

static void test_iod(void)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__IodConfig c = NTX__IOD_CONFIG__INIT;
    m.body_case = NTX__PEER__BODY_IOD_CONFIG;
    m.iod_config = &c;
    CHECK_EQ(ntx_peer_validate(&m), 0);
    c.rate_bps = -1;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
    c.rate_bps = NAN;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
    c.rate_bps = 3.3e9;
    c.inflight_bytes = UINT64_MAX;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
    c.inflight_bytes = 8u << 20;
    c.fault = long_text;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);

    Ntx__IodError e = NTX__IOD_ERROR__INIT;
    m.body_case = NTX__PEER__BODY_IOD_ERROR;
    m.iod_error = &e;
    e.err = -EIO;
    CHECK_EQ(ntx_peer_validate(&m), 0);
    e.err = 5;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
    e.err = -5000;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
    e.err = 0;
    e.file = NTX_MAX_FILES;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
    e.file = 0;
    e.text = long_text;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
}

static void test_predictor(void)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__PolicySet set = NTX__POLICY_SET__INIT;
    m.body_case = NTX__PEER__BODY_POLICY_SET;
    m.policy_set = &set;
    CHECK_EQ(ntx_peer_validate(&m), 0);
    set.policy = long_text;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);

    Ntx__PolicyState st = NTX__POLICY_STATE__INIT;
    m.body_case = NTX__PEER__BODY_POLICY_STATE;
    m.policy_state = &st;
    st.probe_layer = 64 * NTX_MAP_WORDS - 1;
    CHECK_EQ(ntx_peer_validate(&m), 0);
    st.probe_layer++;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);

    Ntx__ProbeNotice p = NTX__PROBE_NOTICE__INIT;
    m.body_case = NTX__PEER__BODY_PROBE;
    m.probe = &p;
    p.gen = (1u << 28) - 1;
    CHECK_EQ(ntx_peer_validate(&m), 0);
    p.gen++;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);

    static uint8_t bits[8 * NTX_MAP_WORDS + 1];
    Ntx__Decision d = NTX__DECISION__INIT;
    m.body_case = NTX__PEER__BODY_DECISION;
    m.decision = &d;
    d.skip.data = bits;
    d.skip.len = sizeof bits - 1;
    CHECK_EQ(ntx_peer_validate(&m), 0);
    d.skip.len++;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);

    Ntx__Hint h = NTX__HINT__INIT;
    m.body_case = NTX__PEER__BODY_HINT;
    m.hint = &h;
    h.skip.data = bits;
    h.skip.len = sizeof bits - 1;
    CHECK_EQ(ntx_peer_validate(&m), 0);
    h.skip.len++;
    CHECK_EQ(ntx_peer_validate(&m), -EBADMSG);
}

int main(void)
{
    memset(long_text, 'x', sizeof long_text - 1);
    test_hello();
    test_iod();
    test_predictor();
    return 0;
}
