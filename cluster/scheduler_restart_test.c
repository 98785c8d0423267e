/* Orders where jobs stop and start, against agents that follow them late: whatever changes
 * meanwhile, all workers of a generation end by themselves before one worker founds the next,
 * nobody is killed, and the job is never told as ended. The agents are written here anew. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cluster/scheduler_impl.h"
#include "env/file/file.h"
#include "test/test.h"

enum { NODES = 3, SLOTS = 2, MINE = 12, SEEDS = 5, TURNS = 400, CALM = 400 };

typedef struct worker {
    uint32_t rank, generation; /* 0: none */
    bool in, ends, dead;
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
    char dir[32];
    uint32_t ran; /* the last generation that was founded */
    uint32_t founded;
} world;

static ru_book_job *job(const world *w)
{
    return ru_book_job_at(&w->s->book, 1);
}

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
    *w = (world){.s = calloc(1, sizeof *w->s), .dir = "/tmp/rubato-restart-XXXXXX"};
    assert_non_null(w->s);
    assert_non_null(mkdtemp(w->dir));
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
    ru_book_spec_put(&(ru_book_spec){"job", "secret", w->dir, "name: x\n", 0}, &t);
    fold(w, (ru_journal_event){.kind = RU_BOOK_RESIZE, .a = 1});
    fold(w, (ru_journal_event){.kind = RU_BOOK_SUBMIT, .job = 1, .a = 1, .b = 4, .text = t.p});
}

static void finish(world *w)
{
    ru_err err = {0};
    assert_ok(ru_path_remove(w->dir, &err), err);
    ru_arena_fini(w->s->book.fx.arena);
    ru_arena_fini(&w->arena);
    free(w->s);
}

/* Slots on nodes drawn at random, one at least. */
static void grant(world *w)
{
    ru_text t = ru_text_arena(&w->arena);
    uint32_t sure = ru_rng_below(&w->rng, NODES), all = 0;
    for (uint32_t k = 0; k < NODES; k++) {
        uint32_t n = ru_rng_below(&w->rng, SLOTS + 1);
        n = n == 0 && k == sure ? 1 : n;
        n = n < 4 - all ? n : 4 - all;
        if (n > 0) {
            ru_text_putf(&t, "%s%u:%u", all > 0 ? " " : "", k, n);
        }
        all += n;
    }
    fold(w, (ru_journal_event){.kind = RU_BOOK_GRANT, .job = 1, .text = t.p});
}

/* What node k has now, as STATE would say it. Nothing of it is the end of the job. */
static void tell(world *w, uint32_t k, uint64_t heard)
{
    ru_cluster_state *st = &w->s->live[k].state;
    ru_journal_event e;
    *st = (ru_cluster_state){.name = "", .slots = SLOTS, .heard = heard};
    for (uint32_t i = 0; i < MINE; i++) {
        const worker *p = &w->nodes[k].at[i];
        if (p->rank != 0) {
            st->procs[st->n++] = (ru_cluster_proc){.job = 1,
                                                   .generation = p->generation,
                                                   .rank = p->rank,
                                                   .alive = !p->dead,
                                                   .goes = p->ends,
                                                   .ended = p->dead ? "stopped" : "",
                                                   .why = "",
                                                   .address = p->in && !p->dead ? "host:1" : ""};
        }
    }
    assert_false(rui_scheduler_ended(w->s, job(w), &e));
}

/* Workers that live: those in the job of a generation, or all (generation 0). */
static uint32_t living(const world *w, uint32_t generation)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < NODES; k++) {
        for (uint32_t i = 0; i < MINE; i++) {
            const worker *p = &w->nodes[k].at[i];
            bool its = generation == 0 || (p->generation == generation && p->in && !p->ends);
            n += p->rank != 0 && !p->dead && its;
        }
    }
    return n;
}

static void start(world *w, node *n, worker *p, const ru_cluster_order *o)
{
    bool founds = o->join[0] == 0;
    if (founds) {
        assert_int_equal(living(w, 0), 0); /* whoever ran before has ended, and saved its state */
        assert_true(o->generation > w->ran);
        assert_int_equal(o->resume, o->generation > 1);
        w->ran = o->generation;
        w->founded++;
    }
    *p = (worker){.rank = ++n->ranks, .generation = o->generation, .in = founds};
}

static void follow(world *w, node *n, const ru_cluster_order *o)
{
    uint32_t have = 0;
    for (uint32_t i = 0; i < MINE; i++) {
        worker *p = &n->at[i];
        bool older = p->rank != 0 && p->generation < o->generation;
        if (older && !p->dead) {
            fail_msg("a worker of generation %u is killed for %u", p->generation, o->generation);
        }
        if (older) {
            *p = (worker){0};
        }
        p->ends = p->ends || (p->rank != 0 && o->end);
        have += p->rank != 0 && p->generation == o->generation && !p->dead && !p->ends;
    }
    for (uint32_t i = 0; i < MINE && !o->end && have < o->want; i++) {
        if (n->at[i].rank == 0 && (o->join[0] != 0 || (o->found && have == 0))) {
            start(w, n, &n->at[i], o);
            have++;
        }
    }
}

/* As scheduler.c tells a node. */
static void order(world *w, uint32_t k)
{
    if (!w->nodes[k].due) {
        rui_scheduler_orders(w->s, k, &w->nodes[k].told);
        w->nodes[k].told.number = ++w->s->number;
        w->s->live[k].told = w->nodes[k].told;
        w->nodes[k].due = true;
    }
}

static void obey(world *w, uint32_t k)
{
    node *n = &w->nodes[k];
    for (uint32_t i = 0; n->due && i < n->told.n; i++) {
        follow(w, n, &n->told.at[i]);
    }
    n->due = false;
    tell(w, k, n->told.number);
}

/* One comes into the job through who is in it, or ends with its checkpoint. */
static void live(world *w, uint32_t k, worker *p)
{
    bool waits = p->rank != 0 && !p->dead && !p->ends && !p->in;
    p->in = p->in || (waits && living(w, p->generation) > 0);
    p->dead = p->dead || p->ends;
    tell(w, k, w->s->live[k].state.heard);
}

static void turn(world *w)
{
    uint32_t k = ru_rng_below(&w->rng, NODES), what = ru_rng_below(&w->rng, 40);
    if (what < 10) {
        order(w, k);
    } else if (what < 20) {
        obey(w, k);
    } else if (what < 39) {
        uint32_t i = ru_rng_below(&w->rng, MINE), n = 0;
        for (; n < MINE && w->nodes[k].at[i].rank == 0; n++) {
            i = (i + 1) % MINE;
        }
        live(w, k, &w->nodes[k].at[i]);
    } else {
        grant(w);
    }
}

/* Once nothing changes any more, the job runs with all that it was granted. */
static void calm(world *w)
{
    for (uint32_t t = 0; t < CALM; t++) {
        for (uint32_t k = 0; k < NODES; k++) {
            order(w, k);
            obey(w, k);
            for (uint32_t i = 0; i < MINE; i++) {
                live(w, k, &w->nodes[k].at[i]);
            }
        }
    }
    const ru_sched_job *p = ru_book_place(&w->s->book, job(w));
    assert_int_equal(living(w, job(w)->generation), p->replicas);
    assert_int_equal(living(w, 0), p->replicas);
    assert_int_equal(w->ran, job(w)->generation);
}

static void generations_follow_one_another(void **state)
{
    (void)state;
    uint32_t founded = 0, granted = 0;
    world *w = malloc(sizeof *w);
    assert_non_null(w);
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        setup(w, ru_test_seed() + seed);
        grant(w);
        for (uint32_t k = 0; k < TURNS; k++) {
            turn(w);
        }
        calm(w);
        founded += w->founded;
        granted += job(w)->generation;
        finish(w);
    }
    free(w);
    assert_true(founded > 2 * SEEDS && granted > founded); /* some ended before they began */
}

/* A worker that was asked to stop was done meanwhile: the job has ended, and starts no more. */
static void who_is_done_meanwhile_is_done(void **state)
{
    (void)state;
    static const struct {
        const char *ended;
        bool alive, own, done;
    } rows[] = {{"done", false, false, true},     {"target", false, false, true},
                {"stopped", false, false, false}, {"", false, false, false},
                {"done", true, false, false},  /* others of it still end */
                {"done", false, true, false}}; /* the next one has begun without it */
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        world w;
        ru_journal_event e = {0};
        setup(&w, 1);
        fold(&w, (ru_journal_event){.kind = RU_BOOK_GRANT, .job = 1, .text = "0:1"});
        fold(&w, (ru_journal_event){.kind = RU_BOOK_GRANT, .job = 1, .text = "0:2"});
        assert_int_equal(job(&w)->generation, 2);
        ru_cluster_state *st = &w.s->live[0].state;
        *st = (ru_cluster_state){.name = "", .slots = SLOTS, .n = 2};
        for (uint32_t i = 0; i < 2; i++) {
            st->procs[i] = (ru_cluster_proc){.job = 1,
                                             .generation = i == 1 && rows[k].own ? 2 : 1,
                                             .alive = i == 1 && (rows[k].alive || rows[k].own),
                                             .ended = i == 0 ? rows[k].ended : "",
                                             .why = "",
                                             .address = ""};
        }
        assert_int_equal(rui_scheduler_ended(w.s, job(&w), &e), rows[k].done);
        if (rows[k].done) {
            assert_int_equal(e.kind, RU_BOOK_END);
            assert_int_equal(e.a, RU_BOOK_DONE);
        }
        finish(&w);
    }
}

RU_TESTS(cluster_scheduler_restart, cmocka_unit_test(generations_follow_one_another),
         cmocka_unit_test(who_is_done_meanwhile_is_done))
