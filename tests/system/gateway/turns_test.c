/* SPDX-License-Identifier: Apache-2.0 */
/* Turns for models, with loads that only take time: who gets one when, and what is loaded. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/gateway/turns.h"
#include "tests/lib/check.h"

static atomic_uint loads, unloads;

static void pause_ms(long ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* "bad" cannot be loaded: the model before stays. */
static int load_fake(void *arg, const char *model, char now[NTX_KNOWN_NAME], struct ntx_err *err)
{
    char *loaded = arg;
    pause_ms(20);
    atomic_fetch_add(*model ? &loads : &unloads, 1);
    const bool bad = !strcmp(model, "bad");
    if (!bad)
        snprintf(loaded, NTX_KNOWN_NAME, "%s", model);
    snprintf(now, NTX_KNOWN_NAME, "%s", loaded);
    return bad ? ntx_err_set(err, -EINVAL, "bad: no GGUF") : 0;
}

/* Whether the turn is held before `ms` have passed. */
static int await_turn(struct ntx_turn *t, long ms)
{
    struct ntx_err err;
    int rc = -EAGAIN;
    for (long i = 0; i < ms && (rc = ntx_turn_check(t, &err)) == -EAGAIN; i++)
        pause_ms(1);
    return rc;
}

static struct ntx_turn *turn_for(struct ntx_turns *s, const char *model)
{
    struct ntx_turn *t = NULL;
    CHECK_EQ(ntx_turn_new(s, model, &t), 0);
    return t;
}

int main(void)
{
    char loaded[NTX_KNOWN_NAME] = "";
    struct ntx_turns *s = NULL;
    struct ntx_turns_state is;
    struct ntx_err err;
    struct ntx_turn *extra = NULL;
    const struct ntx_turns_config c = {.load = load_fake, .arg = loaded, .most = 3, .keep_ms = NTX_KEEP_EVER};
    CHECK_EQ(ntx_turns_new(&c, &s), 0);

    /* Turns of one model share a load, and one of the loaded model does not wait. */
    struct ntx_turn *a = turn_for(s, "a"), *b = turn_for(s, "a");
    CHECK_EQ(await_turn(a, 30000), 0);
    CHECK_EQ(await_turn(b, 30000), 0);
    CHECK_EQ(atomic_load(&loads), 1);
    struct ntx_turn *more = turn_for(s, "a");
    CHECK_EQ(ntx_turn_check(more, &err), 0);
    ntx_turn_free(more);

    /* Another model waits for the end of all turns. */
    struct ntx_turn *other = turn_for(s, "b");
    ntx_turn_free(a);
    CHECK_EQ(await_turn(other, 100), -EAGAIN);
    more = turn_for(s, "a");
    CHECK_EQ(ntx_turn_check(more, &err), 0); /* not closed yet: the other waits for less than a second */
    CHECK_EQ(await_turn(other, 1200), -EAGAIN);
    struct ntx_turn *late = turn_for(s, "a");
    CHECK_EQ(ntx_turn_check(late, &err), -EAGAIN); /* closed */
    ntx_turn_free(more);
    ntx_turn_free(b);
    CHECK_EQ(await_turn(other, 30000), 0);
    CHECK_EQ(ntx_turn_check(late, &err), -EAGAIN);
    ntx_turns_look(s, &is);
    CHECK(!strcmp(is.loaded, "b") && is.held == 1 && is.waiting == 1);

    /* No more than `most` wait; those for the loaded model do not count. */
    struct ntx_turn *w1 = turn_for(s, "c"), *w2 = turn_for(s, "c");
    CHECK_EQ(ntx_turn_new(s, "c", &extra), -EAGAIN);
    ntx_turn_free(w1);
    ntx_turn_free(w2);

    /* Somebody else loaded another model: it is loaded again. */
    snprintf(loaded, sizeof loaded, "foreign");
    ntx_turn_lost(other);
    CHECK_EQ(await_turn(late, 30000), 0);
    ntx_turn_free(late);
    CHECK_EQ(await_turn(other, 30000), 0);

    /* A load that fails gives its reason to those who wait for that model. */
    struct ntx_turn *bad = turn_for(s, "bad");
    ntx_turn_free(other);
    CHECK_EQ(await_turn(bad, 30000), -EINVAL);
    CHECK_EQ(ntx_turn_check(bad, &err), -EINVAL);
    CHECK(!strcmp(err.text, "bad: no GGUF"));
    ntx_turn_free(bad);
    ntx_turns_look(s, &is);
    CHECK(!strcmp(is.loaded, "b"));

    /* Kept for a while after the last turn; then unloaded. */
    CHECK(!ntx_turns_unload(s, "a"));
    a = turn_for(s, "b");
    CHECK_EQ(await_turn(a, 30000), 0);
    ntx_turn_keep(a, 100);
    pause_ms(300);
    CHECK_EQ(atomic_load(&unloads), 0); /* a turn is held */
    ntx_turn_free(a);
    for (int i = 0; i < 30000 && !atomic_load(&unloads); i++)
        pause_ms(1);
    CHECK_EQ(atomic_load(&unloads), 1);
    ntx_turns_free(s);
    return 0;
}
