/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes: the worker is killed with messages in flight, and its successor, at its own address, is served at
 * once. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "proto/link.h"
#include "tests/lib/check.h"
#include "tests/lib/patient.h"
#include "tests/lib/emulated.h"
#include "tests/unit/proto/dir.h"

#define EPOCH 11

/* ---- the worker: Hello every 20 ms until PolicySet, which it answers ---- */

static struct ntx_link *worker_link;
static bool answered;

static void worker_on_message(void *ctx, const Ntx__Peer *m)
{
    (void)ctx;
    if (m->body_case != NTX__PEER__BODY_POLICY_SET)
        return;
    Ntx__Peer r = NTX__PEER__INIT;
    Ntx__PolicyState st = NTX__POLICY_STATE__INIT;
    r.body_case = NTX__PEER__BODY_POLICY_STATE;
    r.policy_state = &st;
    st.policy = m->policy_set->policy;
    CHECK_EQ(ntx_link_send(worker_link, &r), 0);
    answered = true;
}

static void worker_tick(uv_timer_t *t)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Hello h = NTX__HELLO__INIT;
    m.body_case = NTX__PEER__BODY_HELLO;
    m.hello = &h;
    h.role = (char *)"predictor";
    h.instance = *(uint32_t *)t->data;
    if (!answered)
        ntx_link_send(worker_link, &m);
    if (getppid() == 1)
        _exit(1);
}

static int worker_main(const char *dir, uint32_t instance)
{
    uv_loop_t loop;
    uv_timer_t timer;
    char path[128];
    CHECK_EQ(uv_loop_init(&loop), 0);
    ntx_link_address(path, sizeof path, dir, "cp", instance, 0);
    CHECK_EQ(ntx_link_open(&loop, path, false, worker_on_message, NULL, &worker_link, NULL), 0);
    ntx_link_set_epoch(worker_link, EPOCH);
    uv_timer_init(&loop, &timer);
    timer.data = &instance;
    uv_timer_start(&timer, worker_tick, 0, 20);
    return uv_run(&loop, UV_RUN_DEFAULT); /* until killed */
}

/* ---- the test, in computed's place ---- */

static uv_loop_t loop;
static unsigned hellos, states;
static uint32_t hello_instance;
static char state_policy[64];

static void on_message(void *ctx, const Ntx__Peer *m)
{
    (void)ctx;
    if (m->body_case == NTX__PEER__BODY_HELLO) {
        hellos++;
        hello_instance = m->hello->instance;
    } else if (m->body_case == NTX__PEER__BODY_POLICY_STATE) {
        states++;
        snprintf(state_policy, sizeof state_policy, "%s", m->policy_state->policy);
    }
}

static pid_t start_worker(const char *dir, uint32_t instance)
{
    char number[16];
    snprintf(number, sizeof number, "%u", instance);
    pid_t pid = fork(); /* exec follows at once: no nanomsg socket survives a fork */
    CHECK(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "test_proto_link_loss", dir, number, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void wait_for(const unsigned *count)
{
    uint64_t end = ntx_now_ns() + patient_ns(30000000000u);
    for (unsigned before = *count; *count == before;) {
        CHECK(ntx_now_ns() < end);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static void send_policy(struct ntx_link *l, const char *policy)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__PolicySet p = NTX__POLICY_SET__INIT;
    m.body_case = NTX__PEER__BODY_POLICY_SET;
    m.policy_set = &p;
    p.policy = (char *)policy;
    int rc = ntx_link_send(l, &m);
    CHECK(rc == 0 || rc == -EAGAIN);
}

int main(int argc, char **argv)
{
    char dir[64], path[128];
    if (argc == 3)
        return worker_main(argv[1], (uint32_t)atoi(argv[2]));
    skip_if_emulated();
    make_dir(dir);
    CHECK_EQ(uv_loop_init(&loop), 0);
    for (uint32_t instance = 1; instance <= 4; instance++) {
        struct ntx_link *l;
        char policy[32];
        int status;
        ntx_link_address(path, sizeof path, dir, "cp", instance, 0);
        CHECK_EQ(ntx_link_open(&loop, path, true, on_message, NULL, &l, NULL), 0);
        ntx_link_set_epoch(l, EPOCH);
        pid_t pid = start_worker(dir, instance);
        wait_for(&hellos);
        CHECK_EQ(hello_instance, instance);
        snprintf(policy, sizeof policy, "for-%u", instance);
        send_policy(l, policy);
        wait_for(&states);
        CHECK_STR(state_policy, policy);

        for (int i = 0; i < 10; i++)
            send_policy(l, "lost"); /* some in flight, some accepted for a dead peer */
        kill(pid, SIGKILL);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        for (int i = 0; i < 10; i++)
            send_policy(l, "lost");
        ntx_link_close(l);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
    CHECK_EQ(uv_loop_close(&loop), 0);
    drop_dir(dir);
    return 0;
}
