/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/shm/weak/weak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { PLACES = 512, RANGES = 12, SITES = 256, GRAIN = 4, STACK = 256 << 10, CHOICES = 1 << 16, STEPS_MOST = 20000 };
enum { RELAXED, CONSUME, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST }; /* as compilers number them */

struct view {
    uint32_t clock[WEAK_THREADS];
    uint16_t at[PLACES];
};

struct store {
    uint64_t value;
    struct store *before;
    struct view *carries; /* NULL: nothing */
    uint16_t number;
};

struct place {
    struct store *last;
    uint16_t last_seq_cst;
};

struct grain { /* time of the last accesses: clocks of threads */
    uint32_t run;
    int16_t place;
    uint8_t writer;
    uint32_t write, reads[WEAK_THREADS], atomic_reads[WEAK_THREADS], atomic_writes[WEAK_THREADS];
};

struct thread {
    ucontext_t context;
    char *stack;
    enum { RUNS, PAUSES, SLEEPS, AWAITS, ENDED, KILLED } state;
    uint32_t until; /* PAUSES: steps */
    const void *on; /* SLEEPS */
    unsigned event; /* AWAITS */
    struct view knows, acquired,
        released; /* acquired: by relaxed loads, for a later fence; released: at the last fence */
    bool has_released;
};

static struct {
    const struct weak_scenario *s;
    const struct weak_how *how;
    ucontext_t home;
    struct thread thread[WEAK_THREADS];
    int now; /* -1: none of them */
    struct {
        const char *at;
        size_t bytes;
        enum weak_kind kind;
        struct grain *grain;
    } range[RANGES];
    unsigned n_ranges, n_places;
    struct place place[PLACES];
    struct view seq_cst; /* of fences */
    struct {
        unsigned count;
        struct view view;
    } event[WEAK_EVENTS];
    uint32_t run, steps;
    uint64_t random;
    unsigned rate;
    char *arena;
    size_t arena_at, arena_room;
    struct {
        uint16_t took, of;
        uint8_t cost;
    } choice[CHOICES]; /* of an exhaustive run; cost of taking another than 0: 1 a switch, 2 an old store */
    unsigned n_choices, at_choice;
    int switches, old;
    bool failed;
    char why[sizeof((struct weak_result *)0)->why];
    struct {
        char *at;
        unsigned grains;
    } noted; /* a plain write to RACY memory that the thread is about to make */
    const void *site[SITES];
    int n_sites;
} m = {.now = -1};

static void *allot(size_t n)
{
    n = (n + 15) / 16 * 16;
    if (m.arena_at + n > m.arena_room) {
        fprintf(stderr, "weak: a run is too long\n");
        abort();
    }
    m.arena_at += n;
    return m.arena + m.arena_at - n;
}

/* ---- choices */

static uint32_t draw(void)
{
    m.random = m.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(m.random >> 33);
}

static unsigned choose(unsigned n, unsigned cost)
{
    if (n < 2)
        return 0;
    if (m.how->switches < 0) {
        if (cost == 1)
            return draw() % m.rate ? 0 : draw() % n;
        return cost == 2 && draw() % 4 ? 0 : draw() % n;
    }
    if (m.at_choice == m.n_choices) {
        if (m.n_choices == CHOICES)
            abort();
        m.choice[m.n_choices].took = 0;
        m.choice[m.n_choices].cost = (uint8_t)cost;
        m.choice[m.n_choices++].of = (uint16_t)(((cost == 1 && m.switches == 0) || (cost == 2 && m.old == 0)) ? 1 : n);
    }
    unsigned took = m.choice[m.at_choice++].took;
    m.switches -= took && cost == 1;
    m.old -= took && cost == 2;
    return took;
}

static bool next_choices(void)
{
    while (m.n_choices && m.choice[m.n_choices - 1].took + 1 == m.choice[m.n_choices - 1].of)
        m.n_choices--;
    if (m.n_choices)
        m.choice[m.n_choices - 1].took++;
    return m.n_choices != 0;
}

unsigned weak_choose(unsigned n) { return choose(n, 0); }

/* ---- threads */

static void settle(void);

static void stop(void)
{
    setcontext(&m.home);
    abort();
}

void weak_fail(const char *fmt, ...)
{
    va_list ap;
    int n = snprintf(m.why, sizeof m.why, "%s: thread %d: ", m.s->name, m.now);
    va_start(ap, fmt);
    vsnprintf(m.why + n, sizeof m.why - (size_t)n, fmt, ap);
    va_end(ap);
    m.failed = true;
    stop();
    abort();
}

static void resume(int t)
{
    int was = m.now;
    m.now = t;
    if (was != t)
        swapcontext(&m.thread[was].context, &m.thread[t].context);
}

static unsigned runnable(int *list, bool others)
{
    unsigned n = 0;
    for (int i = 0; i < (int)m.s->n; i++) {
        struct thread *t = &m.thread[i];
        if (t->state == PAUSES && m.steps >= t->until)
            t->state = RUNS;
        if (t->state == RUNS && (!others || i != m.now))
            list[n++] = i;
    }
    for (int i = 0; !n && !others && i < (int)m.s->n; i++) /* no thread can run: a pause ends */
        if (m.thread[i].state == PAUSES) {
            m.thread[i].state = RUNS;
            list[n++] = i;
        }
    return n;
}

/* Switches to another thread; the running one sleeps or has ended. */
static void give_way(void)
{
    int list[WEAK_THREADS];
    unsigned n = runnable(list, false), open = 0;
    for (unsigned i = 0; i < m.s->n; i++)
        open += m.thread[i].state == SLEEPS || m.thread[i].state == AWAITS;
    if (!n && !open)
        stop();
    if (!n)
        weak_fail("%u sleep, and nobody is left to wake them", open);
    resume(list[choose(n, 0)]);
}

void weak_yield(void)
{
    int list[WEAK_THREADS];
    settle();
    if (++m.steps > STEPS_MOST)
        weak_fail("no end after %u steps", m.steps);
    unsigned n = runnable(list, true), k = choose(n + 1, 1);
    if (k)
        resume(list[k - 1]);
}

void weak_pause(unsigned most)
{
    settle();
    m.thread[m.now].state = PAUSES;
    m.thread[m.now].until = m.steps + choose(most, 0);
    give_way();
}

static void entry(int i)
{
    m.s->thread[i]();
    m.thread[i].state = ENDED;
    give_way();
}

/* ---- what threads know */

static void join(struct view *to, const struct view *from)
{
    for (int i = 0; i < WEAK_THREADS; i++)
        to->clock[i] = to->clock[i] > from->clock[i] ? to->clock[i] : from->clock[i];
    for (unsigned i = 0; i < m.n_places; i++)
        to->at[i] = to->at[i] > from->at[i] ? to->at[i] : from->at[i];
}

/* No view knows a new place: its first store is number 0. */
static struct view *copy(const struct view *v)
{
    struct view *c = allot(sizeof *c);
    *c = *v;
    return c;
}

static struct grain *grain_of(const void *p, enum weak_kind *kind)
{
    for (unsigned i = 0; i < m.n_ranges; i++)
        if ((const char *)p >= m.range[i].at && (const char *)p < m.range[i].at + m.range[i].bytes) {
            struct grain *g = &m.range[i].grain[((const char *)p - m.range[i].at) / GRAIN];
            if (g->run != m.run)
                *g = (struct grain){.run = m.run, .place = -1};
            *kind = m.range[i].kind;
            return g;
        }
    return NULL;
}

static void race(const void *p, const char *what, const char *with)
{
    for (unsigned i = 0; i < m.n_ranges; i++)
        if ((const char *)p >= m.range[i].at && (const char *)p < m.range[i].at + m.range[i].bytes)
            weak_fail("data race: %s at byte %zu of range %u, with %s", what, (size_t)((const char *)p - m.range[i].at),
                      i, with);
    abort();
}

static bool all_before(const uint32_t *clocks)
{
    const struct thread *t = &m.thread[m.now];
    for (int i = 0; i < WEAK_THREADS; i++)
        if (clocks[i] > t->knows.clock[i])
            return false;
    return true;
}

static struct place *place_of(uint64_t value, struct grain *g)
{
    if (g->place < 0) {
        if (m.n_places == PLACES)
            abort();
        struct store *first = allot(sizeof *first);
        *first = (struct store){.value = value};
        g->place = (int16_t)m.n_places++;
        m.place[g->place] = (struct place){.last = first};
    }
    return &m.place[g->place];
}

/* ---- accesses that are not atomic */

static uint64_t atomic_load_at(const void *p, unsigned bytes, int order, struct grain *g);
static void atomic_store_at(void *p, unsigned bytes, uint64_t v, int order, struct grain *g);

static uint32_t word_at(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static void plain_write(struct grain *g, const void *p)
{
    struct thread *t = &m.thread[m.now];
    if (g->write > t->knows.clock[g->writer])
        race(p, "a write", "a write");
    if (!all_before(g->reads) || !all_before(g->atomic_reads) || !all_before(g->atomic_writes))
        race(p, "a write", "a read or an atomic access");
    g->write = t->knows.clock[m.now];
    g->writer = (uint8_t)m.now;
    g->place = -1; /* the next atomic access starts with the value that is there now */
}

static void plain_read(struct grain *g, const void *p)
{
    struct thread *t = &m.thread[m.now];
    if (g->write > t->knows.clock[g->writer] || !all_before(g->atomic_writes))
        race(p, "a read", "a write");
    g->reads[m.now] = t->knows.clock[m.now];
}

/* A write to RACY memory is announced before it is made. It becomes a store when the thread comes here again. */
static void note(void *p, size_t bytes)
{
    enum weak_kind kind;
    m.noted.at = p;
    m.noted.grains = (unsigned)(bytes / GRAIN);
    for (unsigned i = 0; i < m.noted.grains; i++)
        place_of(word_at(m.noted.at + GRAIN * i), grain_of(m.noted.at + GRAIN * i, &kind));
}

static void settle(void)
{
    enum weak_kind kind;
    unsigned n = m.noted.grains;
    m.noted.grains = 0;
    for (unsigned i = 0; i < n; i++) {
        char *at = m.noted.at + GRAIN * i;
        atomic_store_at(at, GRAIN, word_at(at), RELAXED, grain_of(at, &kind));
    }
}

static bool racy(const void *p)
{
    enum weak_kind kind;
    return m.now >= 0 && grain_of(p, &kind) && kind == WEAK_RACY;
}

static void each(const void *p, size_t bytes, bool write)
{
    enum weak_kind kind;
    if (m.now < 0)
        return;
    settle();
    if (write && racy(p)) {
        note((void *)(uintptr_t)p, bytes);
        return;
    }
    for (const char *c = (const char *)((uintptr_t)p / GRAIN * GRAIN); c < (const char *)p + bytes; c += GRAIN) {
        struct grain *g = grain_of(c, &kind);
        if (!g || kind == WEAK_RACY)
            continue; /* read by memcpy alone, see below */
        if (write)
            plain_write(g, c);
        else
            plain_read(g, c);
    }
}

void weak_reads(const void *at, size_t bytes) { each(at, bytes, false); }
void weak_writes(const void *at, size_t bytes) { each(at, bytes, true); }

void *__real_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n)
{
    enum weak_kind kind;
    if (m.now >= 0)
        settle();
    if (racy(from) || racy(to)) {
        for (size_t i = 0; i + 4 <= n; i += 4) {
            const char *f = (const char *)from + i;
            char *t = (char *)to + i;
            uint32_t v = racy(f) ? (uint32_t)atomic_load_at(f, 4, RELAXED, grain_of(f, &kind)) : word_at(f);
            if (racy(t))
                atomic_store_at(t, 4, v, RELAXED, grain_of(t, &kind));
            else
                __real_memcpy(t, &v, 4);
        }
        return to;
    }
    each(from, n, false);
    each(to, n, true);
    return __real_memcpy(to, from, n);
}

/* ---- atomic accesses */

static uint64_t value_at(const void *p, unsigned bytes)
{
    uint64_t v = 0;
    __real_memcpy(&v, p, bytes);
    return v;
}

static uint64_t atomic_load_at(const void *p, unsigned bytes, int order, struct grain *g)
{
    struct thread *t = &m.thread[m.now];
    struct place *at = place_of(value_at(p, bytes), g);
    unsigned i = (unsigned)(at - m.place), floor = t->knows.at[i], n;
    if (g->write > t->knows.clock[g->writer])
        race(p, "an atomic read", "a write");
    g->atomic_reads[m.now] = t->knows.clock[m.now];
    if (order == SEQ_CST && at->last_seq_cst > floor)
        floor = at->last_seq_cst;
    struct store *s = at->last;
    n = s->number - floor + 1u;
    for (unsigned back = choose(n, 2); back; back--)
        s = s->before;
    t->knows.at[i] = s->number;
    if (s->carries)
        join(order == ACQUIRE || order >= ACQ_REL || order == CONSUME ? &t->knows : &t->acquired, s->carries);
    return s->value;
}

/* carried: view of the previous store, which a read-modify-write passes on; else NULL. */
static void push(struct place *at, uint64_t v, int order, const struct view *carried)
{
    struct thread *t = &m.thread[m.now];
    struct store *s = allot(sizeof *s);
    *s = (struct store){.value = v, .before = at->last, .number = (uint16_t)(at->last->number + 1)};
    at->last = s;
    t->knows.at[at - m.place] = s->number;
    if (order == RELEASE || order >= ACQ_REL)
        s->carries = copy(&t->knows);
    else if (t->has_released)
        s->carries = copy(&t->released);
    if (s->carries && !(order == RELEASE || order >= ACQ_REL))
        s->carries->at[at - m.place] = s->number;
    if (carried) {
        if (!s->carries)
            s->carries = copy(carried);
        join(s->carries, carried);
    }
    if (order == RELEASE || order >= ACQ_REL)
        t->knows.clock[m.now]++;
    if (order == SEQ_CST)
        at->last_seq_cst = s->number;
}

static void atomic_store_at(void *p, unsigned bytes, uint64_t v, int order, struct grain *g)
{
    struct thread *t = &m.thread[m.now];
    struct place *at = place_of(value_at(p, bytes), g);
    if (g->write > t->knows.clock[g->writer] || !all_before(g->reads))
        race(p, "an atomic write", "another access");
    g->atomic_writes[m.now] = t->knows.clock[m.now];
    push(at, v, order, NULL);
    __real_memcpy(p, &v, bytes);
}

/* The order that is left when one half of it is taken away; other: the other half is there, rest: what it is alone. */
static int weaker_order(bool other, int order, int rest)
{
    if (!other)
        return RELAXED;
    return order >= ACQ_REL ? rest : order;
}

static int at_site(const void *site, int order, bool loads, bool stores)
{
    int i = 0;
    if (order == RELAXED)
        return order;
    while (i < m.n_sites && m.site[i] != site)
        i++;
    if (i == m.n_sites && m.n_sites < SITES)
        m.site[m.n_sites++] = site;
    if (m.how->weaken == i)
        return RELAXED;
    if (m.how->weaken == WEAK_ACQUIRE && loads)
        return weaker_order(stores, order, RELEASE);
    if (m.how->weaken == WEAK_RELEASE && stores)
        return weaker_order(loads, order, ACQUIRE);
    if (m.how->weaken == WEAK_SEQ_CST && order == SEQ_CST) {
        if (loads && stores)
            return ACQ_REL;
        return loads ? ACQUIRE : RELEASE;
    }
    return order;
}

static struct grain *enters(const void *p)
{
    enum weak_kind kind;
    if (m.now >= 0)
        settle();
    struct grain *g = m.now < 0 ? NULL : grain_of(p, &kind);
    if (g) {
        weak_yield();
        g = grain_of(p, &kind);
    }
    return g;
}

static uint64_t load(const void *p, unsigned bytes, int order, const void *site)
{
    struct grain *g = enters(p);
    return g ? atomic_load_at(p, bytes, at_site(site, order, true, false), g) : value_at(p, bytes);
}

static void store(void *p, unsigned bytes, uint64_t v, int order, const void *site)
{
    struct grain *g = enters(p);
    if (g)
        atomic_store_at(p, bytes, v, at_site(site, order, false, true), g);
    else
        __real_memcpy(p, &v, bytes);
}

enum operation { XCHG, ADD, SUB, AND, OR, XOR };

static uint64_t changed(uint64_t is, enum operation op, uint64_t v)
{
    switch (op) {
    case ADD: return is + v;
    case SUB: return is - v;
    case AND: return is & v;
    case OR: return is | v;
    case XOR: return is ^ v;
    default: return v;
    }
}

/* A read-modify-write takes the newest store; its own store follows directly. */
static void modify(void *p, unsigned bytes, uint64_t v, int order, struct grain *g)
{
    struct thread *t = &m.thread[m.now];
    struct place *at = place_of(value_at(p, bytes), g);
    const struct view *carried = at->last->carries;
    if (g->write > t->knows.clock[g->writer] || !all_before(g->reads))
        race(p, "an atomic write", "another access");
    g->atomic_reads[m.now] = g->atomic_writes[m.now] = t->knows.clock[m.now];
    if (carried)
        join(order == ACQUIRE || order >= ACQ_REL ? &t->knows : &t->acquired, carried);
    push(at, v, order, carried);
    __real_memcpy(p, &v, bytes);
}

static uint64_t rmw(void *p, unsigned bytes, enum operation op, uint64_t v, int order, const void *site)
{
    struct grain *g = enters(p);
    uint64_t is = value_at(p, bytes), to = changed(is, op, v);
    if (g)
        modify(p, bytes, to, at_site(site, order, true, true), g);
    else
        __real_memcpy(p, &to, bytes);
    return is;
}

static bool exchange_if(void *p, unsigned bytes, void *expected, uint64_t v, int order, int failure, const void *site)
{
    struct grain *g = enters(p);
    uint64_t is = value_at(p, bytes), want = value_at(expected, bytes);
    if (is == want) {
        if (g)
            modify(p, bytes, v, at_site(site, order, true, true), g);
        else
            __real_memcpy(p, &v, bytes);
        return true;
    }
    if (g)
        is = atomic_load_at(p, bytes, order == RELAXED ? failure : at_site(site, failure, true, false), g);
    __real_memcpy(expected, &is, bytes);
    return false;
}

static void fence(int order, const void *site)
{
    if (m.now < 0)
        return;
    settle();
    struct thread *t = &m.thread[m.now];
    order = at_site(site, order, order == ACQUIRE || order >= ACQ_REL, order == RELEASE || order >= ACQ_REL);
    if (order == ACQUIRE || order >= ACQ_REL)
        join(&t->knows, &t->acquired);
    if (order == SEQ_CST) {
        join(&t->knows, &m.seq_cst);
        join(&m.seq_cst, &t->knows);
    }
    if (order == RELEASE || order >= ACQ_REL) {
        t->released = t->knows;
        t->has_released = true;
        t->knows.clock[m.now]++;
    }
}

uint32_t weak_acquire(const void *word) { return (uint32_t)load(word, 4, ACQUIRE, __builtin_return_address(0)); }

/* ---- the kernel's part */

void weak_post(unsigned event)
{
    struct thread *t = &m.thread[m.now];
    weak_yield();
    join(&t->knows, &m.event[event].view);
    m.event[event].view = t->knows;
    t->knows.clock[m.now]++;
    m.event[event].count++;
    for (unsigned i = 0; i < m.s->n; i++)
        if (m.thread[i].state == AWAITS && m.thread[i].event == event)
            m.thread[i].state = RUNS;
}

void weak_await(unsigned event)
{
    struct thread *t = &m.thread[m.now];
    weak_yield();
    while (!m.event[event].count) {
        t->state = AWAITS;
        t->event = event;
        give_way();
    }
    m.event[event].count = 0;
    join(&t->knows, &m.event[event].view);
    m.event[event].view = t->knows;
    t->knows.clock[m.now]++;
}

/* The kernel reads the word under a lock that the waker takes too, so it sees the newest store. */
void weak_sleep_while(const void *word, uint32_t seen)
{
    struct thread *t = &m.thread[m.now];
    weak_yield();
    if (word_at(word) != seen)
        return;
    t->state = SLEEPS;
    t->on = word;
    give_way();
}

void weak_wake(const void *word)
{
    if (m.now < 0)
        return;
    weak_yield();
    for (unsigned i = 0; i < m.s->n; i++)
        if (m.thread[i].state == SLEEPS && m.thread[i].on == word)
            m.thread[i].state = RUNS;
}

void weak_kill(unsigned thread)
{
    struct thread *t = &m.thread[thread];
    if (t->state != ENDED)
        t->state = KILLED;
    join(&m.thread[m.now].knows, &t->knows);
}

/* ---- runs */

void weak_forget(void) { m.n_ranges = 0; }

void weak_share(const void *at, size_t bytes, enum weak_kind kind)
{
    if (m.n_ranges == RANGES)
        abort();
    unsigned i = m.n_ranges++;
    m.range[i].at = at;
    m.range[i].bytes = bytes;
    m.range[i].kind = kind;
    m.range[i].grain = realloc(m.range[i].grain, (bytes / GRAIN + 1) * sizeof(struct grain));
    memset(m.range[i].grain, 0, (bytes / GRAIN + 1) * sizeof(struct grain));
}

static void begin_run(uint64_t seed)
{
    m.run++;
    m.steps = m.n_places = 0;
    m.arena_at = 0;
    m.random = seed * 0x9e3779b97f4a7c15u + 12345;
    draw();
    m.rate = 1u << (1 + draw() % 6);
    m.at_choice = 0;
    m.switches = m.how->switches;
    m.old = m.how->old;
    m.failed = false;
    m.noted.grains = 0;
    memset(&m.seq_cst, 0, sizeof m.seq_cst);
    memset(m.event, 0, sizeof m.event);
    m.now = -1;
    m.s->setup();
    for (int i = 0; i < (int)m.s->n; i++) {
        struct thread *t = &m.thread[i];
        char *stack = t->stack ? t->stack : malloc(STACK);
        *t = (struct thread){.stack = stack};
        for (int k = 0; k < WEAK_THREADS; k++)
            t->knows.clock[k] = k == i;
        getcontext(&t->context);
        t->context.uc_stack.ss_sp = stack;
        t->context.uc_stack.ss_size = STACK;
        t->context.uc_link = NULL;
        makecontext(&t->context, (void (*)(void))(void *)entry, 1, i);
    }
}

static void run_once(uint64_t seed)
{
    begin_run(seed);
    volatile bool begun = false;
    getcontext(&m.home);
    if (!begun) {
        begun = true;
        m.now = (int)choose(m.s->n, 0);
        setcontext(&m.thread[m.now].context);
    }
    m.now = -1;
}

void weak_run(const struct weak_scenario *s, const struct weak_how *how, struct weak_result *r)
{
    *r = (struct weak_result){0};
    m.s = s;
    m.how = how;
    m.n_choices = 0;
    if (!m.arena)
        m.arena = malloc(m.arena_room = 64u << 20);
    bool exhaustively = how->switches >= 0, more = true;
    uint64_t limit = exhaustively ? how->most : how->seeds;
    if (exhaustively && !limit)
        limit = UINT64_MAX;
    for (uint64_t i = 0; more && !r->failed && i < limit; i++) {
        run_once(how->first + i);
        r->runs++;
        r->steps += m.steps;
        r->failed = m.failed;
        memcpy(r->why, m.why, sizeof r->why);
        more = !exhaustively || next_choices();
    }
    r->whole = !more;
}

int weak_sites(void) { return m.n_sites; }
const void *weak_site(int i) { return m.site[i]; }

/* ---- what the compiler calls */

#define EXPORT(type, name, ...)                                                                                        \
    type name(__VA_ARGS__);                                                                                            \
    type name(__VA_ARGS__)
#define HERE __builtin_return_address(0)

#define PLAIN(n)                                                                                                       \
    EXPORT(void, __tsan_read##n, void *p) { each(p, n, false); }                                                       \
    EXPORT(void, __tsan_write##n, void *p) { each(p, n, true); }                                                       \
    EXPORT(void, __tsan_unaligned_read##n, void *p) { each(p, n, false); }                                             \
    EXPORT(void, __tsan_unaligned_write##n, void *p) { each(p, n, true); }                                             \
    EXPORT(void, __tsan_volatile_read##n, void *p) { each(p, n, false); }                                              \
    EXPORT(void, __tsan_volatile_write##n, void *p) { each(p, n, true); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

EXPORT(void, __tsan_read_range, void *p, size_t n) { each(p, n, false); }
EXPORT(void, __tsan_write_range, void *p, size_t n) { each(p, n, true); }
EXPORT(void, __tsan_init, void) {}
EXPORT(void, __tsan_func_entry, void *p) { (void)p; }
EXPORT(void, __tsan_func_exit, void) {}

#define ATOMIC(bits, type)                                                                                             \
    EXPORT(type, __tsan_atomic##bits##_load, const volatile type *p, int o)                                            \
    {                                                                                                                  \
        return (type)load((const void *)(uintptr_t)p, bits / 8, o, HERE);                                              \
    }                                                                                                                  \
    EXPORT(void, __tsan_atomic##bits##_store, volatile type *p, type v, int o)                                         \
    {                                                                                                                  \
        store((void *)(uintptr_t)p, bits / 8, v, o, HERE);                                                             \
    }                                                                                                                  \
    EXPORT(type, __tsan_atomic##bits##_exchange, volatile type *p, type v, int o)                                      \
    {                                                                                                                  \
        return (type)rmw((void *)(uintptr_t)p, bits / 8, XCHG, v, o, HERE);                                            \
    }                                                                                                                  \
    EXPORT(type, __tsan_atomic##bits##_fetch_add, volatile type *p, type v, int o)                                     \
    {                                                                                                                  \
        return (type)rmw((void *)(uintptr_t)p, bits / 8, ADD, v, o, HERE);                                             \
    }                                                                                                                  \
    EXPORT(type, __tsan_atomic##bits##_fetch_sub, volatile type *p, type v, int o)                                     \
    {                                                                                                                  \
        return (type)rmw((void *)(uintptr_t)p, bits / 8, SUB, v, o, HERE);                                             \
    }                                                                                                                  \
    EXPORT(type, __tsan_atomic##bits##_fetch_and, volatile type *p, type v, int o)                                     \
    {                                                                                                                  \
        return (type)rmw((void *)(uintptr_t)p, bits / 8, AND, v, o, HERE);                                             \
    }                                                                                                                  \
    EXPORT(type, __tsan_atomic##bits##_fetch_or, volatile type *p, type v, int o)                                      \
    {                                                                                                                  \
        return (type)rmw((void *)(uintptr_t)p, bits / 8, OR, v, o, HERE);                                              \
    }                                                                                                                  \
    EXPORT(type, __tsan_atomic##bits##_fetch_xor, volatile type *p, type v, int o)                                     \
    {                                                                                                                  \
        return (type)rmw((void *)(uintptr_t)p, bits / 8, XOR, v, o, HERE);                                             \
    }                                                                                                                  \
    EXPORT(int, __tsan_atomic##bits##_compare_exchange_strong, volatile type *p, type *e, type v, int o, int f)        \
    {                                                                                                                  \
        return exchange_if((void *)(uintptr_t)p, bits / 8, e, v, o, f, HERE);                                          \
    }                                                                                                                  \
    EXPORT(int, __tsan_atomic##bits##_compare_exchange_weak, volatile type *p, type *e, type v, int o, int f)          \
    {                                                                                                                  \
        return exchange_if((void *)(uintptr_t)p, bits / 8, e, v, o, f, HERE);                                          \
    }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

EXPORT(void, __tsan_atomic_thread_fence, int o) { fence(o, HERE); }
EXPORT(void, __tsan_atomic_signal_fence, int o) { (void)o; }
