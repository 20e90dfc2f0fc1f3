/* SPDX-License-Identifier: Apache-2.0 */
/* Two different machines, here processes: pair.c [COMMAND...] starts the second one, which is this program with generic
 * C, or COMMAND: this program in an emulator (tests/guest/arm64). Each alone gives the same logits for a text, bit by
 * bit, and so do both together, whichever is rank 0, by rows, by heads and by whole layers. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "computed/ranks/ranks.h"
#include "tests/lib/emulated.h"
#include "tests/unit/pass/rig.h"

#define N             21
#define LIMIT_MS      600000       /* an emulator takes its time */
#define MESSAGE_BYTES (128u << 10) /* at most */

/* ---- a struct ntx_net over a socket that keeps messages apart */

struct ntx_net {
    int fd;
    uint32_t rank;
    struct {
        void *to;
        size_t n;
    } wanted[64];
    unsigned n_wanted;
    uint8_t last[MESSAGE_BYTES];
};

static uint32_t net_rank(const struct ntx_net *n) { return n->rank; }
static uint32_t net_size(const struct ntx_net *n)
{
    (void)n;
    return 2;
}
static const char *net_name(const struct ntx_net *n) { return n->rank ? "second" : "first"; }
static const char *net_error(const struct ntx_net *n)
{
    (void)n;
    return "the socket is closed";
}

static int net_send(struct ntx_net *n, uint32_t to, const void *bytes, size_t len)
{
    (void)to;
    CHECK(len <= MESSAGE_BYTES);
    return send(n->fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -EIO;
}

static int net_take(struct ntx_net *n, uint32_t from, void *bytes, size_t len)
{
    (void)from;
    CHECK(n->n_wanted < 64);
    n->wanted[n->n_wanted].to = bytes;
    n->wanted[n->n_wanted++].n = len;
    return 0;
}

/* The next message's bytes, n at most, or a negative errno. */
static ssize_t receive(struct ntx_net *n, void *to, size_t len, uint32_t limit_ms)
{
    struct pollfd p = {.fd = n->fd, .events = POLLIN};
    if (poll(&p, 1, limit_ms ? (int)limit_ms : -1) <= 0)
        return -ETIMEDOUT;
    const ssize_t got = recv(n->fd, to, len, 0);
    return got > 0 ? got : -EIO;
}

static int net_wait(struct ntx_net *n, uint32_t limit_ms)
{
    int rc = 0;
    for (unsigned i = 0; i < n->n_wanted && !rc; i++) {
        const ssize_t got = receive(n, n->wanted[i].to, n->wanted[i].n, limit_ms);
        rc = got < 0 ? (int)got : 0;
    }
    n->n_wanted = 0;
    return rc;
}

static int net_next(struct ntx_net *n, uint32_t from, const void **bytes, size_t *len, uint32_t limit_ms,
                    const atomic_bool *stop)
{
    (void)from, (void)stop;
    const ssize_t got = receive(n, n->last, sizeof n->last, limit_ms);
    *bytes = n->last;
    *len = got < 0 ? 0 : (size_t)got;
    return got < 0 ? (int)got : 0;
}

static const struct ntx_net_ops net_socket = {
    .abi = NTX_NET_ABI,
    .rank = net_rank,
    .size = net_size,
    .name = net_name,
    .send = net_send,
    .take = net_take,
    .wait = net_wait,
    .next = net_next,
    .error = net_error,
};

/* ---- computation */

static const struct ntx_share shares[] = {
    {.n = 2, .part = {1, 1}},
    {.n = 2, .part = {1, 2}, .split = NTX_SPLIT_HEADS},
    {.n = 2, .part = {1, 1}, .split = NTX_SPLIT_LAYERS, .owner = {1, 0, 1, NTX_SHARE_ALL}}};
static const struct {
    const char *arch, *type;
    uint32_t experts;
} models[] = {
    {"llama", "Q4_K_M", 0}, {"llama", "Q8_0", 0},      {"llama", "IQ3_XXS", 0}, {"llama", "MXFP4", 0},
    {"llama", "F16", 0},    {"qwen3moe", "Q4_K_M", 6}, {"qwen35", "Q8_0", 0},   {"gemma3", "Q5_1", 0},
};
enum { N_MODELS = sizeof models / sizeof *models, N_SHARES = sizeof shares / sizeof *shares };

static struct rig_options options(size_t i, const char *kernel)
{
    struct rig_options o = {.make = rig_model(), .kernel = kernel, .chunk_bytes = 20000};
    o.make.arch = models[i].arch;
    o.make.type = models[i].type;
    o.make.experts = models[i].experts;
    o.make.layers = 3;
    o.make.window = 5;
    o.make.attention_every = 2;
    return o;
}

/* Logits over both machines, on rank 0; NULL on rank 1. */
static float *together(struct ntx_net *net, const struct ntx_share *of, struct rig_options o)
{
    static const char *const names[NTX_RANKS_MAX] = {"first", "second"};
    const struct ntx_ranks_config c = {.ops = &net_socket, .net = net, .names = names, .limit_ms = LIMIT_MS};
    struct ntx_share share = *of;
    const atomic_bool stop = false;
    struct ntx_ranks *ranks;
    struct rig r;
    float *got = NULL;
    CHECK_EQ(ntx_ranks_new(&c, &ranks), 0);
    share.rank = net->rank;
    o.share = &share;
    o.ranks = ranks;
    o.backend = net->rank ? NULL : ntx_ranks_backend(ranks);
    rig_open(&r, &o);
    if (net->rank) {
        const int rc = ntx_ranks_follow(ranks, r.f, &stop);
        CHECK_MSG(!rc, "the second machine ended with %d: %s", rc, r.w.w.error.text);
    } else {
        int32_t ids[N];
        struct ntx_kv_seq *kv = rig_seq(&r, N);
        got = malloc((size_t)N * r.n_vocab * sizeof *got);
        rig_ids(&r, 5, ids, N); /* as rig_logits */
        rig_feed(&r, kv, ids, N, 0, 8, got);
        ntx_kv_seq_free(kv);
        CHECK(ntx_ranks_messages(ranks) > 0);
        CHECK_EQ(ntx_ranks_quit(ranks), 0);
    }
    rig_close(&r);
    ntx_ranks_free(ranks);
    return got;
}

/* Compares n floats of rank 1 with those of rank 0. */
static void compare(struct ntx_net *net, const float *mine, size_t n, const char *what)
{
    static float theirs[MESSAGE_BYTES / sizeof(float)];
    for (size_t k = 0, some; k < n; k += some) {
        some = n - k < MESSAGE_BYTES / sizeof(float) ? n - k : MESSAGE_BYTES / sizeof(float);
        if (net->rank) {
            CHECK_EQ(net_send(net, 0, mine + k, some * sizeof *mine), 0);
        } else {
            CHECK_EQ(receive(net, theirs, sizeof theirs, LIMIT_MS), (ssize_t)(some * sizeof *theirs));
            CHECK_MSG(!memcmp(theirs, mine + k, some * sizeof *mine), "%s: the other machine alone has other logits",
                      what);
        }
    }
}

static void compute(int fd, uint32_t rank, const char *kernel)
{
    static struct ntx_net net;
    net.fd = fd;
    net.rank = rank;
    for (size_t i = 0; i < N_MODELS; i++) {
        const struct rig_options o = options(i, kernel);
        char what[64];
        size_t n;
        float *want = rig_logits(&o, N, N, &n);
        snprintf(what, sizeof what, "%s in %s", models[i].arch, models[i].type);
        compare(&net, want, n, what);
        for (size_t k = 0; k < N_SHARES; k++) {
            float *got = together(&net, &shares[k], o);
            CHECK_MSG(rank || !memcmp(got, want, n * sizeof *got), "%s: over two machines, share %zu, other logits",
                      what, k);
            free(got);
        }
        free(want);
    }
}

/* The other machine is rank `theirs`. */
static void pair(char **command, uint32_t theirs)
{
    int fds[2], status;
    char fd[16];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        char *argv[32];
        size_t n = 0;
        for (; command[n] && n < 27; n++)
            argv[n] = command[n];
        snprintf(fd, sizeof fd, "%d", fds[1]);
        argv[n++] = "--other";
        argv[n++] = fd;
        argv[n++] = theirs ? "1" : "0";
        argv[n] = NULL;
        close(fds[0]);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(fds[1]);
    compute(fds[0], !theirs, NULL);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_MSG(WIFEXITED(status) && !WEXITSTATUS(status), "the other machine's process ended with %#x", status);
    close(fds[0]);
}

int main(int argc, char **argv)
{
    if (argc >= 4 && !strcmp(argv[1], "--other")) {
        compute(atoi(argv[2]), (uint32_t)atoi(argv[3]), NULL);
        return 0;
    }
    char *plain[] = {argv[0], "--plain", NULL};
    if (argc >= 5 && !strcmp(argv[1], "--plain")) {
        compute(atoi(argv[3]), (uint32_t)atoi(argv[4]), "generic");
        return 0;
    }
    skip_if_emulated();
    for (uint32_t theirs = 0; theirs < 2; theirs++)
        pair(argc > 1 ? argv + 1 : plain, theirs);
    printf("%d models, each machine alone, and both together in %d ways with either as the first\n", N_MODELS,
           N_SHARES);
    return 0;
}
