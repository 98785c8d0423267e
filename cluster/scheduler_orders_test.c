/* Orders against agents that follow them late: whatever moves, one worker founds the job, and a job
 * that was in somebody's hands stays in somebody's, until it shall end. The agents are written here
 * anew. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cluster/scheduler_impl.h"
#include "test/test.h"

enum { NODES = 3, SLOTS = 2, MINE = 8, TURNS = 400 };

typedef struct worker {
    uint32_t rank; /* 0: none */
    bool in, goes;
} worker;

typedef struct node {
    worker at[MINE];
    uint32_t ranks;
    ru_cluster_orders told; /* not yet followed, if `due` */
    bool due;
} node;

typedef struct world {
    rui_scheduler *s;
    ru_scheduler_options opt;
    ru_arena arena;
    node nodes[NODES];
    ru_rng rng;
    bool begun;
} world;

static void fold(world *w, ru_journal_event e)
{
    ru_err err = {0};
    e.seq = w->s->book.seq + 1;
    e.who = "alice";
    e.text = ru_arena_str(&w->arena, e.text != NULL ? e.text : "");
    assert_ok(ru_book_fold(&w->s->book, &e, &err), err);
}

static void setup(world *w, uint64_t seed)
{
    ru_err err = {0};
    static const char *const names[NODES] = {"a", "b", "c"};
    *w = (world){.s = calloc(1, sizeof *w->s)};
    assert_non_null(w->s);
    ru_arena_init(&w->arena, 0);
    w->rng = ru_rng_from(seed, 0);
    w->s->opt = &w->opt;
    assert_ok(ru_book_init(&w->s->book, &w->arena, &err), err);
    for (uint32_t k = 0; k < NODES; k++) {
        fold(w, (ru_journal_event){.kind = RU_BOOK_NODE, .node = k, .a = SLOTS, .text = names[k]});
        w->s->live[k].known = true;
        w->s->live[k].guest.v = k + 1;
    }
    ru_text t = ru_text_arena(&w->arena);
    ru_book_spec_put(&(ru_book_spec){"job", "secret", "/out", "name: x\n", 0}, &t);
    fold(w, (ru_journal_event){.kind = RU_BOOK_SUBMIT, .job = 1, .a = 1, .b = 4, .text = t.p});
}

/* Slots on nodes drawn at random, one at least. */
static void grant(world *w)
{
    ru_text t = ru_text_arena(&w->arena);
    uint32_t sure = (uint32_t)ru_rng_below(&w->rng, NODES), all = 0;
    for (uint32_t k = 0; k < NODES; k++) {
        uint32_t n = (uint32_t)ru_rng_below(&w->rng, SLOTS + 1);
        n = n == 0 && k == sure ? 1 : n;
        n = n < 4 - all ? n : 4 - all;
        if (n > 0) {
            ru_text_putf(&t, "%s%u:%u", all > 0 ? " " : "", k, n);
        }
        all += n;
    }
    fold(w, (ru_journal_event){.kind = RU_BOOK_GRANT, .job = 1, .text = t.p});
    const ru_book_job *j = ru_book_job_at(&w->s->book, 1);
    w->s->prepared[j->slot] = (uint64_t)1 << 32 | j->generation;
}

/* What node k has now, as STATE would say it. */
static void tell(world *w, uint32_t k, uint64_t heard)
{
    ru_cluster_state *st = &w->s->live[k].state;
    *st = (ru_cluster_state){.name = "", .slots = SLOTS, .heard = heard};
    for (uint32_t i = 0; i < MINE; i++) {
        const worker *p = &w->nodes[k].at[i];
        if (p->rank != 0) {
            st->procs[st->n++] = (ru_cluster_proc){.job = 1,
                                                   .generation = 1,
                                                   .rank = p->rank,
                                                   .alive = true,
                                                   .goes = p->goes,
                                                   .ended = "",
                                                   .why = "",
                                                   .address = p->in ? "host:1" : ""};
        }
    }
}

static uint32_t stay(const world *w)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < NODES; k++) {
        for (uint32_t i = 0; i < MINE; i++) {
            n += w->nodes[k].at[i].in && !w->nodes[k].at[i].goes;
        }
    }
    return n;
}

static uint32_t workers(const world *w)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < NODES; k++) {
        for (uint32_t i = 0; i < MINE; i++) {
            n += w->nodes[k].at[i].rank != 0;
        }
    }
    return n;
}

static void follow(world *w, node *n, const ru_cluster_order *o)
{
    uint32_t have = 0;
    for (uint32_t i = 0; i < MINE; i++) {
        have += n->at[i].rank != 0 && !n->at[i].goes;
    }
    for (; have > o->want; have--) { /* who is not in the job goes first, then the newest */
        worker *next = NULL;
        for (uint32_t i = 0; i < MINE; i++) {
            worker *p = &n->at[i];
            if (p->rank != 0 && !p->goes &&
                (next == NULL || (p->in != next->in ? !p->in : p->rank > next->rank))) {
                next = p;
            }
        }
        next->goes = true;
    }
    for (uint32_t i = 0; i < MINE && have < o->want; i++) {
        if (n->at[i].rank == 0 && (o->join[0] != 0 || (o->found && have == 0))) {
            assert_true(o->join[0] != 0 || workers(w) == 0); /* else there are two of the job */
            n->at[i] = (worker){.rank = ++n->ranks, .in = o->join[0] == 0};
            w->begun = w->begun || n->at[i].in;
            have++;
        }
    }
}

static void turn(world *w)
{
    uint32_t k = (uint32_t)ru_rng_below(&w->rng, NODES);
    rui_live *l = &w->s->live[k];
    node *n = &w->nodes[k];
    worker *p = &n->at[ru_rng_below(&w->rng, MINE)];
    switch (ru_rng_below(&w->rng, 5)) {
    case 0: /* as scheduler.c tells a node */
        if (!n->due) {
            rui_scheduler_orders(w->s, k, &n->told);
            n->told.number = ++w->s->number;
            l->told = n->told;
            n->due = true;
        }
        break;
    case 1:
        for (uint32_t i = 0; n->due && i < n->told.n; i++) {
            follow(w, n, &n->told.at[i]);
        }
        n->due = false;
        tell(w, k, n->told.number);
        break;
    case 2: /* one comes into the job through who is in it, or is gone */
        p->in = p->in || (p->rank != 0 && !p->goes && stay(w) > 0);
        if (p->goes) {
            *p = (worker){0};
        }
        tell(w, k, l->state.heard);
        break;
    default:
        if (ru_rng_below(&w->rng, 6) == 0) {
            grant(w);
        }
    }
}

static void the_last_one_stays(void **state)
{
    (void)state;
    uint32_t moved = 0;
    world *w = malloc(sizeof *w);
    assert_non_null(w);
    for (uint32_t seed = 0; seed < 200; seed++) {
        setup(w, ru_test_seed() + seed);
        grant(w);
        for (uint32_t k = 0; k < TURNS; k++) {
            turn(w);
            if (w->begun && stay(w) == 0) {
                fail_msg("seed %u, turn %u: nobody is left in the job", seed, k);
            }
        }
        moved += w->nodes[0].ranks + w->nodes[1].ranks + w->nodes[2].ranks;
        ru_arena_fini(w->s->book.fx.arena);
        ru_arena_fini(&w->arena);
        free(w->s);
    }
    free(w);
    assert_true(moved > 200 * 4); /* workers were replaced, or nothing was tried */
}

/* A node of a market that goes, through all that the scheduler may have seen of it last. */
static void a_notice_outlives_who_had_it(void **state)
{
    (void)state;
    static const char had[] = "evicted: it had its notice; its hour is refunded";
    static const char none[] = "evicted: gone without a notice; its hour is refunded";
    static const struct {
        bool known, leaving, up, drained, given_back;
        uint32_t slots;
        const char *why; /* "": it is not lost */
    } rows[] = {
        {.known = true, .up = true, .slots = 1, .why = ""},
        {.known = true, .slots = 1, .why = ""}, /* it may come back within `silent` */
        {.slots = 1, .why = ""},                /* a new scheduler has not heard it yet */
        {.known = true, .leaving = true, .up = true, .drained = true, .slots = 1, .why = had},
        {.known = true, .leaving = true, .up = true, .drained = true, .why = had},
        {.known = true, .leaving = true, .drained = true, .why = had}, /* its process has ended */
        {.known = true, .leaving = true, .drained = true, .slots = 1, .why = had},
        {.drained = true, .slots = 1, .why = had}, /* so has the scheduler that heard it */
        {.drained = true, .why = had},
        {.known = true, .why = none},
        {.why = none},
        {.known = true, .up = true, .drained = true, .given_back = true, .slots = 1, .why = ""},
        {.drained = true, .given_back = true, .why = ""},
        {.known = true, .leaving = true, .up = true, .given_back = true, .slots = 1, .why = had},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        const ru_market_alloc a = {.told = true, .leaving = rows[k].given_back};
        const ru_book_node n = {
            .slots = rows[k].slots, .drained = rows[k].drained, .leaves = rows[k].drained};
        const rui_live l = {
            .guest.v = rows[k].up, .known = rows[k].known, .state.leaving = rows[k].leaving};
        const char *why = rui_market_lost(&a, &n, &l);
        assert_string_equal(why != NULL ? why : "", rows[k].why);
    }
}

/* A job has ended as one of its workers tells. Where all ended well and none tells how (the one
 * that would have told was lost at the end), nobody knows that the job is complete: it goes on. */
static void the_end_is_told(void **state)
{
    (void)state;
    static const struct {
        ru_cluster_proc at[2];
        int kind;
        int64_t a;
    } rows[] = {
        {{{.ended = "done"}, {.ended = ""}}, RU_BOOK_END, RU_BOOK_DONE},
        {{{.ended = "target"}, {.ended = "", .left = true}}, RU_BOOK_END, RU_BOOK_DONE},
        {{{.ended = "patience"}, {.ended = ""}}, RU_BOOK_END, RU_BOOK_DONE},
        {{{.ended = "done", .left = true}, {.ended = ""}}, RU_BOOK_END, RU_BOOK_DONE},
        {{{.ended = "stopped"}, {.ended = ""}}, RU_BOOK_END, RU_BOOK_CANCELLED},
        {{{.ended = "stopped", .left = true}, {.ended = "", .left = true}}, RU_BOOK_FAIL, 0},
        {{{.ended = ""}, {.ended = "", .left = true}}, RU_BOOK_FAIL, 69},
        {{{.ended = "", .code = -1}, {.ended = ""}}, RU_BOOK_FAIL, -1},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        world w;
        ru_journal_event e;
        setup(&w, 1);
        grant(&w);
        fold(&w, (ru_journal_event){.kind = RU_BOOK_FAIL, .job = 1, .a = 69, .text = ""});
        ru_cluster_state *st = &w.s->live[0].state;
        *st = (ru_cluster_state){.name = "", .slots = SLOTS, .n = 2};
        memcpy(st->procs, rows[k].at, sizeof rows[k].at);
        for (uint32_t i = 0; i < 2; i++) {
            st->procs[i].job = 1;
            st->procs[i].generation = ru_book_job_at(&w.s->book, 1)->generation;
            st->procs[i].why = st->procs[i].address = "";
        }
        assert_true(rui_scheduler_ended(w.s, ru_book_job_at(&w.s->book, 1), &e));
        assert_int_equal(e.kind, rows[k].kind);
        assert_int_equal(e.a, rows[k].a);
        ru_arena_fini(w.s->book.fx.arena);
        ru_arena_fini(&w.arena);
        free(w.s);
    }
}

RU_TESTS(cluster_scheduler_orders, cmocka_unit_test(the_last_one_stays),
         cmocka_unit_test(the_end_is_told), cmocka_unit_test(a_notice_outlives_who_had_it))
