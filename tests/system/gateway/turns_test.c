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
static int load_fake(void *arg, unsigned place, const char *model, char now[NTX_KNOWN_NAME], struct ntx_err *err)
{
    char *loaded = arg;
    CHECK_EQ(place, 0);
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

/* Two places, and room for four units: "small" takes one, "half" two, "large" three. */
struct fake_places {
    char loaded[NTX_PLACES][NTX_KNOWN_NAME];
    atomic_uint most; /* units at once */
};

static unsigned units_of(const char *model)
{
    const unsigned large = *model == 'l' ? 3 : 2;
    if (!*model)
        return 0;
    return *model == 's' ? 1 : large;
}

static int load_beside(void *arg, unsigned place, const char *model, char now[NTX_KNOWN_NAME], struct ntx_err *err)
{
    struct fake_places *f = arg;
    unsigned beside = 0;
    pause_ms(5);
    for (unsigned i = 0; i < NTX_PLACES; i++)
        beside += i == place ? 0 : units_of(f->loaded[i]);
    const bool fits = !beside || beside + units_of(model) <= 4;
    if (fits)
        snprintf(f->loaded[place], NTX_KNOWN_NAME, "%s", model);
    if (fits && beside + units_of(model) > atomic_load(&f->most))
        atomic_store(&f->most, beside + units_of(model));
    snprintf(now, NTX_KNOWN_NAME, "%s", f->loaded[place]);
    return fits ? 0 : ntx_err_set(err, -EDQUOT, "no room");
}

static bool is_there(struct ntx_turns *s, const char *model)
{
    struct ntx_turns_state is;
    ntx_turns_look(s, &is);
    return ntx_turns_place_of(&is, model) < is.n_places;
}

static void answer_one(struct ntx_turns *s, const char *model)
{
    struct ntx_turn *t = turn_for(s, model);
    CHECK_EQ(await_turn(t, 30000), 0);
    CHECK(is_there(s, model));
    ntx_turn_free(t);
}

static atomic_uint tells;

/* News that come meanwhile must not be lost. */
static void tell_slowly(void *arg)
{
    (void)arg;
    atomic_fetch_add(&tells, 1);
    pause_ms(30);
}

/* Models that fit stay beside each other; the least recently used ones go when another one has no room. */
static void test_places(void)
{
    struct fake_places f = {0};
    struct ntx_turns *s = NULL;
    struct ntx_turns_state is;
    const struct ntx_turns_config c = {
        .load = load_beside, .tell = tell_slowly, .arg = &f, .places = 3, .most = 8, .keep_ms = NTX_KEEP_EVER};
    CHECK_EQ(ntx_turns_new(&c, &s), 0);
    answer_one(s, "small-1");
    answer_one(s, "half");
    answer_one(s, "small-2");
    CHECK(is_there(s, "small-1") && is_there(s, "half"));
    struct ntx_turn *held = turn_for(s, "half");
    CHECK_EQ(await_turn(held, 1000), 0);
    answer_one(s, "small-3"); /* no place is empty: the least recently used one goes, not the one in use */
    CHECK(!is_there(s, "small-1") && is_there(s, "half") && is_there(s, "small-2"));
    ntx_turn_free(held);
    answer_one(s, "large"); /* two others have to go */
    ntx_turns_look(s, &is);
    CHECK(is_there(s, "half") + is_there(s, "small-2") + is_there(s, "small-3") <= 1);
    CHECK_EQ(is.waiting, 0);
    answer_one(s, "half"); /* no room beside "large" */
    CHECK(!is_there(s, "large"));
    CHECK(atomic_load(&f.most) <= 4);
    CHECK(ntx_turns_unload(s, "half"));
    for (int i = 0; i < 3000 && is_there(s, "half"); i++)
        pause_ms(1);
    CHECK(!is_there(s, "half"));
    CHECK(atomic_load(&tells) > 0);
    ntx_turns_free(s);
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
    CHECK(!strcmp(is.place[0].loaded, "b") && is.held == 1 && is.waiting == 1);

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
    CHECK(!strcmp(is.place[0].loaded, "b"));

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
    test_places();
    return 0;
}
