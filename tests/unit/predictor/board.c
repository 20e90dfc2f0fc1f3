/* SPDX-License-Identifier: Apache-2.0 */
/* The probe board: a probe is read whole or not at all, also while another thread writes it. */
#include "predictor/board.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/lib/check.h"

#define N_EMBD   512
#define N_LAYERS 4
#define FLOATS   (N_EMBD + N_LAYERS) /* of a probe: the state and the similarities */
#define GENS     20000

static struct ntx_board board;

/* As computed: clears READY, writes the data, then sets READY with the next generation. */
static void show(uint32_t index, uint32_t gen, float value)
{
    struct ntx_probe *p = &board.probe[index];
    atomic_store_explicit(&p->word, ntx_word(gen, NTX_FREE), memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (unsigned i = 0; i < FLOATS; i++)
        ((volatile float *)board.data)[index * FLOATS + i] = value;
    p->row = gen;
    p->pass = gen + 1;
    p->session = 5;
    p->layer = 2;
    p->pos = gen + 3;
    atomic_store_explicit(&p->word, ntx_word(gen, NTX_READY), memory_order_release);
}

static void test_values(void)
{
    struct ntx_board_probe p = {.row = 99};
    float hidden[FLOATS];
    show(1, 4, 0.5f);
    CHECK_EQ(ntx_board_read(&board, 1, 4, &p, hidden), 0);
    CHECK_EQ(p.row, 4);
    CHECK_EQ(p.pass, 5);
    CHECK_EQ(p.session, 5);
    CHECK_EQ(p.layer, 2);
    CHECK_EQ(p.pos, 7);
    CHECK(hidden[0] == 0.5f && hidden[FLOATS - 1] == 0.5f);
    p.row = 99;
    CHECK_EQ(ntx_board_read(&board, 1, 3, &p, hidden), -ESTALE);
    CHECK_EQ(ntx_board_read(&board, 1, 5, &p, hidden), -ESTALE);
    CHECK_EQ(ntx_board_read(&board, 2, 0, &p, hidden), -EINVAL);
    CHECK_EQ(ntx_board_read(&board, UINT32_MAX, 0, &p, hidden), -EINVAL);
    atomic_store(&board.probe[1].word, ntx_word(4, NTX_FREE));
    CHECK_EQ(ntx_board_read(&board, 1, 4, &p, hidden), -ESTALE);
    CHECK_EQ(p.row, 99);
}

#ifdef __SANITIZE_THREAD__
static void test_race(void) {} /* a race by design, which the second look at the word resolves */
#else
static atomic_uint whole; /* probes read so far */

/* From time to time the writer waits for the reader, so that both torn and whole reads happen on any machine. */
static void *write_all(void *arg)
{
    for (uint32_t gen = 1; gen <= GENS; gen++) {
        unsigned before = atomic_load(&whole);
        show(0, gen, (float)gen);
        while (gen % 64 == 0 && atomic_load(&whole) == before)
            sched_yield();
    }
    return arg;
}

static void test_race(void)
{
    pthread_t t;
    float hidden[FLOATS];
    CHECK_EQ(pthread_create(&t, NULL, write_all, NULL), 0);
    for (uint32_t gen = 0; gen < GENS;) {
        struct ntx_board_probe p;
        gen = ntx_word_gen(atomic_load(&board.probe[0].word));
        if (ntx_board_read(&board, 0, gen, &p, hidden))
            continue;
        CHECK_EQ(p.row, gen);
        for (unsigned i = 0; i < FLOATS; i++)
            CHECK(hidden[i] == (float)gen);
        atomic_fetch_add(&whole, 1);
    }
    pthread_join(t, NULL);
    CHECK(atomic_load(&whole) >= GENS / 64);
}
#endif

int main(void)
{
    struct ntx_err err = {0};
    CHECK_MSG(ntx_board_make(1, 2, N_LAYERS, N_EMBD, &board, &err) == 0, "%s", err.text);
    test_values();
    test_race();
    ntx_board_close(&board);
    return 0;
}
