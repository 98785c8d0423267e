/* The fold of a cluster's events: random lives keep the books, and the same events give the same
 * state. What may be granted is counted here again, from the texts of the events alone. */
#include "cluster/book.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "plan/row/policy.h"
#include "test/test.h"

enum { EVENTS = 1500, JOBS = 40, NODES = 4 };

typedef struct life {
    ru_arena arena, texts;
    ru_book b;
    ru_journal_event at[EVENTS];
    uint32_t n;
    ru_rng rng;
    int64_t now_ns;
    const ru_book_measured *measured; /* by slot; NULL: nothing */
} life;

static ru_status add(life *l, ru_journal_event e, ru_err *err)
{
    assert_true(l->n < EVENTS);
    e.seq = l->n + 1;
    e.at_ns = l->now_ns;
    e.who = e.who != NULL ? e.who : "alice";
    e.text = ru_arena_str(&l->texts, e.text != NULL ? e.text : "");
    ru_status st = ru_book_fold(&l->b, &e, err);
    if (st == RU_OK) {
        l->at[l->n++] = e;
    }
    return st;
}

static void must(life *l, ru_journal_event e)
{
    ru_err err = {0};
    assert_ok(add(l, e, &err), err);
}

static uint32_t draw(life *l, uint32_t n)
{
    return (uint32_t)ru_rng_below(&l->rng, n);
}

static void submit_as(life *l, const char *who, uint32_t min, uint32_t max, int64_t priority)
{
    ru_text t = ru_text_arena(&l->texts);
    ru_book_spec_put(&(ru_book_spec){"a \"job\"", "secret", "/out", "name: x\nlist: [1]\n", 0}, &t);
    must(l, (ru_journal_event){.kind = RU_BOOK_SUBMIT,
                               .job = l->b.jobs.n + 1,
                               .node = priority,
                               .a = min,
                               .b = max,
                               .who = who,
                               .text = t.p});
}

static void submit(life *l, uint32_t min, uint32_t max, int64_t priority)
{
    submit_as(l, "alice", min, max, priority);
}

static void user(life *l, const char *name, uint32_t slots, uint32_t weight)
{
    ru_text t = ru_text_arena(&l->texts);
    ru_book_user_put(&(ru_book_user){.name = name, .key = "0123456789abcdef"}, &t);
    must(l, (ru_journal_event){.kind = RU_BOOK_USER, .a = slots, .b = weight, .text = t.p});
}

static void node(life *l, uint32_t k, uint32_t slots)
{
    char name[16];
    snprintf(name, sizeof name, "node%u", k);
    must(l, (ru_journal_event){.kind = RU_BOOK_NODE, .node = k, .a = slots, .text = name});
}

/* Workers that a plan of these events gives a job. */
static uint32_t given(const life *l, const ru_journal_event *events, uint32_t n, uint32_t number)
{
    const ru_book_job *j = ru_book_job_at(&l->b, number);
    uint32_t sum = ru_book_place(&l->b, j)->replicas;
    for (uint32_t k = 0; k < n; k++) {
        if (events[k].job == number) {
            sum = 0;
            for (const char *at = events[k].text; (at = strchr(at, ':')) != NULL; at++) {
                sum += (uint32_t)strtoul(at + 1, NULL, 10);
            }
        }
    }
    return sum;
}

/* What a round asked, asked again as the file of the policy: the same workers for each job. */
static void ask_again(life *l, const char *asks, const ru_journal_event *events, uint32_t n)
{
    ru_arena a;
    ru_err err = {0};
    ru_str rest = ru_str_c(asks), line;
    ru_arena_init(&a, 0);
    while (ru_str_next(&rest, '\n', &line) && line.n > 0) {
        const ru_policy *p = &ru_policy_alloc;
        const ru_policy_tools tools = {&a, &a, NULL};
        ru_alloc_plan again;
        ru_conf *c;
        void *in = ru_arena_zalloc(&a, p->in->size_bytes, 64);
        assert_ok(ru_conf_new(p->in, &a, &c, &err), err);
        assert_ok(ru_conf_add_json(c, "asks", line.p, line.n, &err), err);
        assert_ok(ru_conf_apply(c, in, &err), err);
        assert_ok(p->plan(in, &tools, &again, &err), err);
        const char *at = line.p;
        for (uint32_t i = 0; i < again.n_jobs; i++) {
            at = strstr(at, "{\"name\":\"");
            assert_non_null(at);
            at += strlen("{\"name\":\"");
            uint32_t number = (uint32_t)strtoul(at, NULL, 10);
            assert_int_equal(again.jobs[i].replicas, given(l, events, n, number));
        }
    }
    ru_arena_fini(&a);
}

static void plan(life *l)
{
    ru_journal_event *events;
    uint32_t n;
    ru_err err = {0};
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text asks = ru_text_arena(&scratch);
    const ru_book_measured *measured =
        l->measured != NULL ? l->measured : RU_NEW(&scratch, ru_book_measured, JOBS);
    l->b.asks = &asks;
    assert_ok(ru_book_plan(&l->b, measured, l->now_ns, &scratch, &events, &n, &err), err);
    l->b.asks = NULL;
    ask_again(l, asks.p, events, n);
    for (uint32_t k = 0; k < n; k++) {
        must(l, events[k]);
    }
    ru_arena_fini(&scratch);
}

static void check(const life *l)
{
    uint32_t used[NODES] = {0}, live = 0;
    for (uint32_t k = 1; k <= l->b.jobs.n; k++) {
        const ru_book_job *j = ru_book_job_at(&l->b, k);
        const ru_sched_job *p = ru_book_place(&l->b, j);
        if (p == NULL) {
            assert_int_equal(ru_book_granted(&l->b, j, 0), 0);
            continue;
        }
        live++;
        assert_int_equal(l->b.of[j->slot], k);
        assert_int_equal(j->state == RU_BOOK_RUNS, p->n_parts > 0);
        assert_true(j->state != RU_BOOK_RUNS || j->generation > 0);
        for (uint32_t i = 0; i < p->n_parts; i++) {
            used[p->parts[i].node] += p->parts[i].devices;
        }
    }
    assert_int_equal(l->b.n_live, live);
    for (uint32_t k = 0; k < l->b.n_nodes; k++) {
        assert_true(used[k] <= l->b.nodes[k].slots);
        assert_int_equal(l->b.sched.nodes[k].used, used[k]);
    }
}

/* Slots of a node that are free, or of jobs of lower priority than `j`. */
static uint32_t takable(const life *l, const ru_book_job *j, uint32_t node)
{
    uint32_t n = l->b.nodes[node].drained ? 0 : l->b.nodes[node].slots;
    for (uint32_t k = 1; k <= l->b.jobs.n && n > 0; k++) {
        const ru_book_job *o = ru_book_job_at(&l->b, k);
        n -= o->cancelled || o->priority >= j->priority ? ru_book_granted(&l->b, o, node) : 0;
    }
    return n;
}

/* After a plan each job has as many as it may have, or none, or what it had when it was scaled;
 * nobody of lower priority keeps, and nobody leaves free, the least that a waiting job could begin
 * with on one node. */
static void check_plan(const life *l)
{
    const bool fixed = ru_alloc_fixed(l->b.method);
    const uint32_t slots = ru_book_slots(&l->b, false);
    for (uint32_t k = 1; k <= l->b.jobs.n; k++) {
        const ru_book_job *j = ru_book_job_at(&l->b, k);
        const ru_sched_job *p = ru_book_place(&l->b, j);
        if (p != NULL && !j->cancelled) {
            assert_true(p->replicas == 0 || (p->replicas >= j->least && p->replicas <= j->max));
            assert_true(j->least == j->min || (p->replicas > 0 && j->least < j->min));
            for (uint32_t node = 0; p->replicas == 0 && node < l->b.n_nodes; node++) {
                uint32_t asks = ru_book_request(j) < slots ? ru_book_request(j) : slots;
                assert_true(takable(l, j, node) < (fixed && asks > j->min ? asks : j->min));
            }
        }
    }
}

static void act(life *l)
{
    uint32_t job = l->b.jobs.n > 0 ? 1 + draw(l, l->b.jobs.n) : 0, min = 1 + draw(l, 3);
    ru_book_job *j = ru_book_job_at(&l->b, job);
    bool lives = j != NULL && ru_book_place(&l->b, j) != NULL;
    l->now_ns += draw(l, 2000000000);
    switch (draw(l, 8)) {
    case 0:
        if (l->b.jobs.n < JOBS) {
            submit_as(l, draw(l, 2) == 0 ? "alice" : "bob", min, min + draw(l, 4),
                      (int64_t)draw(l, 3) - 1);
        } else if (draw(l, 4) == 0) {
            user(l, draw(l, 2) == 0 ? "alice" : "bob", 0, draw(l, 4));
        }
        break;
    case 1: {
        uint32_t k = draw(l, NODES);
        node(l, k <= l->b.n_nodes ? k : l->b.n_nodes, draw(l, 5));
        break;
    }
    case 2:
        if (lives) {
            must(l, (ru_journal_event){
                        .kind = RU_BOOK_SCALE, .job = job, .a = min, .b = min + draw(l, 3)});
        }
        break;
    case 3:
        if (lives && draw(l, 3) == 0) {
            must(l, (ru_journal_event){.kind = RU_BOOK_CANCEL, .job = job});
        }
        break;
    case 4:
        if (lives && j->state == RU_BOOK_RUNS) {
            must(l, (ru_journal_event){.kind = RU_BOOK_FAIL, .job = job, .a = 1, .text = "why"});
        }
        break;
    case 5:
        if (lives && draw(l, 4) == 0) {
            must(l, (ru_journal_event){.kind = RU_BOOK_END, .job = job, .a = RU_BOOK_DONE});
        }
        break;
    case 6:
        if (l->b.n_nodes > 0) {
            must(l, (ru_journal_event){
                        .kind = RU_BOOK_DRAIN, .node = draw(l, l->b.n_nodes), .a = draw(l, 2)});
        }
        break;
    default:
        plan(l);
        check_plan(l);
    }
}

static void life_open(life *l)
{
    ru_err err = {0};
    memset(l, 0, sizeof *l);
    ru_arena_init(&l->arena, 0);
    ru_arena_init(&l->texts, 0);
    l->rng = ru_rng_from(ru_test_seed(), 0);
    assert_ok(ru_book_init(&l->b, &l->arena, &err), err);
}

static void life_close(life *l)
{
    ru_arena_fini(l->b.fx.arena);
    ru_arena_fini(&l->texts);
    ru_arena_fini(&l->arena);
}

static void one_life(ru_alloc_method m)
{
    life *l = calloc(1, sizeof *l), *again = calloc(1, sizeof *again);
    ru_err err = {0};
    assert_true(l != NULL && again != NULL);
    life_open(l);
    must(l, (ru_journal_event){.kind = RU_BOOK_METHOD, .a = m, .b = 5000});
    while (l->n < EVENTS - 2 * JOBS) {
        act(l);
        check(l);
    }
    life_open(again);
    for (uint32_t k = 0; k < l->n; k++) { /* the journal alone */
        assert_ok(ru_book_fold(&again->b, &l->at[k], &err), err);
    }
    assert_int_equal(again->b.jobs.n, l->b.jobs.n);
    for (uint32_t k = 1; k <= l->b.jobs.n; k++) {
        const ru_book_job *x = ru_book_job_at(&l->b, k), *y = ru_book_job_at(&again->b, k);
        assert_int_equal(x->state, y->state);
        assert_int_equal(x->generation, y->generation);
        assert_int_equal(x->failures, y->failures);
        assert_string_equal(x->spec.yaml, "name: x\nlist: [1]\n");
        assert_string_equal(y->spec.name, "a \"job\"");
        for (uint32_t n = 0; n < l->b.n_nodes; n++) {
            assert_int_equal(ru_book_granted(&l->b, x, n), ru_book_granted(&again->b, y, n));
        }
        if (ru_book_place(&l->b, x) != NULL) {
            assert_int_equal(ru_book_place(&l->b, x)->service_ns,
                             ru_book_place(&again->b, y)->service_ns);
            assert_int_equal(ru_book_place(&l->b, x)->demoted,
                             ru_book_place(&again->b, y)->demoted);
        }
    }
    assert_int_equal(again->b.method, m);
    life_close(l);
    life_close(again);
    free(l);
    free(again);
}

static void random_lives_keep_the_books(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < RU_ALLOC_METHODS; m++) {
        one_life((ru_alloc_method)m);
    }
}

/* By hand, four slots, eight slot-seconds of the upper queue: a job that has used them up makes
 * room for one that has not, and comes back when that has, too. Who reads the journal has the same
 * queues. */
static void tiresias_keeps_its_queues_in_the_journal(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l), *again = calloc(1, sizeof *again);
    ru_err err = {0};
    assert_true(l != NULL && again != NULL);
    life_open(l);
    must(l, (ru_journal_event){.kind = RU_BOOK_METHOD, .a = RU_ALLOC_TIRESIAS, .b = 8000});
    node(l, 0, 4);
    submit(l, 1, 4, 0);
    submit(l, 1, 4, 0);
    plan(l);
    const ru_sched_job *at = l->b.sched.jobs;
    assert_true(at[0].replicas == 4 && at[1].replicas == 0);
    l->now_ns += INT64_C(1900000000);
    plan(l);
    assert_true(at[0].replicas == 4 && at[0].demoted == 0);
    l->now_ns += INT64_C(100000000);
    plan(l);
    assert_true(at[0].replicas == 0 && at[0].demoted == 1 && at[1].replicas == 4);
    l->now_ns += INT64_C(2000000000);
    plan(l); /* the order of the lower queue: the first that came there */
    assert_true(at[0].replicas == 4 && at[1].replicas == 0 && at[1].demoted == 2);
    life_open(again);
    for (uint32_t k = 0; k < l->n; k++) {
        assert_ok(ru_book_fold(&again->b, &l->at[k], &err), err);
    }
    assert_true(again->b.sched.jobs[0].demoted == 1 && again->b.sched.jobs[1].demoted == 2);
    must(l, (ru_journal_event){.kind = RU_BOOK_SCALE, .job = 1, .a = 1, .b = 9});
    submit(l, 1, 2, 0);
    node(l, 1, 2);
    plan(l); /* the new one first; the first one keeps its four, though it requests all six now */
    assert_true(at[2].replicas == 2 && at[0].replicas == 4 && at[1].replicas == 0);
    life_close(l);
    life_close(again);
    free(l);
    free(again);
}

/* Two jobs whose steps scale alike: who has more of them left has more of three slots. */
static void what_is_left_decides_for_optimus(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    ru_book_measured of[JOBS] = {0};
    assert_non_null(l);
    life_open(l);
    must(l, (ru_journal_event){.kind = RU_BOOK_METHOD, .a = RU_ALLOC_OPTIMUS});
    for (uint32_t k = 0; k < 2; k++) {
        of[k].model = (ru_goodput_model){{.1, .1, .1, .1, .1, .1, 1}, 0, 0, 64, 64, 1, 64, 64, 0};
    }
    of[0].remaining = 100;
    of[1].remaining = 1000;
    l->measured = of;
    node(l, 0, 3);
    submit(l, 1, 4, 0);
    submit(l, 1, 4, 0);
    plan(l);
    const ru_sched_job *at = l->b.sched.jobs;
    assert_true(at[0].replicas == 1 && at[1].replicas == 2);
    of[0].remaining = 9000;
    plan(l);
    assert_true(at[0].replicas == 2 && at[1].replicas == 1);
    life_close(l);
    free(l);
}

/* A job that adapts up to two samples, and requests four workers. */
static void nobody_requests_workers_without_samples(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    ru_book_measured of[JOBS] = {0};
    assert_non_null(l);
    life_open(l);
    must(l, (ru_journal_event){.kind = RU_BOOK_METHOD, .a = RU_ALLOC_FIFO});
    of[0].model = (ru_goodput_model){{.1, .1, .1, .1, .1, .1, 1}, 1, 1, 1, 2, 1, 2, 0, false};
    l->measured = of;
    node(l, 0, 4);
    submit(l, 1, 4, 0);
    plan(l);
    assert_int_equal(l->b.sched.jobs[0].replicas, 2);
    life_close(l);
    free(l);
}

/* One whose submissions say nothing of a request, and which names no method. */
static void a_journal_of_an_earlier_program_is_read(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    life_open(l);
    node(l, 0, 4);
    must(l, (ru_journal_event){
                .kind = RU_BOOK_SUBMIT,
                .job = 1,
                .a = 2,
                .b = 3,
                .text = "{\"name\":\"x\",\"token\":\"t\",\"out\":\"/o\",\"yaml\":\"y\"}"});
    must(l, (ru_journal_event){.kind = RU_BOOK_GRANT, .job = 1, .text = "0:3"});
    assert_int_equal(ru_book_request(ru_book_job_at(&l->b, 1)), 3);
    assert_int_equal(l->b.method, RU_ALLOC_POLLUX);
    assert_int_equal(l->b.sched.jobs[0].demoted, 0);
    life_close(l);
    free(l);
}

/* By hand: priority takes slots, three failures soon one after the other hold a job. */
static void priorities_and_failures(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    life_open(l);
    node(l, 0, 2);
    node(l, 1, 2);
    submit(l, 1, 4, 0);
    plan(l);
    l->now_ns += INT64_C(60000000000); /* it is new no more */
    plan(l);
    assert_int_equal(ru_book_place(&l->b, ru_book_job_at(&l->b, 1))->replicas, 4);
    submit(l, 3, 3, 7);
    plan(l);
    const ru_book_job *low = ru_book_job_at(&l->b, 1); /* jobs may have moved in memory */
    const ru_book_job *high = ru_book_job_at(&l->b, 2);
    assert_int_equal(ru_book_place(&l->b, high)->replicas, 3);
    assert_int_equal(ru_book_place(&l->b, low)->replicas, 1);
    assert_int_equal(low->generation, 1); /* it shrank in place */
    const ru_journal_event failure = {.kind = RU_BOOK_FAIL, .job = 2, .text = "no data"};
    must(l, failure);
    assert_int_equal(high->generation, 2);
    l->now_ns += INT64_C(61000000000); /* it lived: counted anew */
    must(l, failure);
    must(l, failure);
    assert_int_equal(high->state, RU_BOOK_RUNS);
    must(l, failure);
    assert_int_equal(high->state, RU_BOOK_FAILED);
    assert_string_equal(high->why, "no data");
    plan(l);
    assert_int_equal(ru_book_place(&l->b, low)->replicas, 4);
    life_close(l);
    free(l);
}

/* It keeps what it has, grows when it can, and is then held to what it was scaled to. */
static void a_job_scaled_beyond_the_slots_goes_on(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    life_open(l);
    node(l, 0, 3);
    submit(l, 2, 2, 0);
    submit(l, 1, 1, 0);
    plan(l);
    must(l, (ru_journal_event){.kind = RU_BOOK_SCALE, .job = 1, .a = 4, .b = 4});
    plan(l);
    const ru_book_job *j = ru_book_job_at(&l->b, 1), *other = ru_book_job_at(&l->b, 2);
    assert_int_equal(ru_book_place(&l->b, j)->replicas, 2);
    assert_int_equal(ru_book_place(&l->b, other)->replicas, 1);
    must(l, (ru_journal_event){.kind = RU_BOOK_SCALE, .job = 1, .a = 5, .b = 6});
    node(l, 1, 1);
    plan(l);
    assert_true(ru_book_place(&l->b, j)->replicas >= 2);
    assert_int_equal(ru_book_place(&l->b, other)->replicas, 1);
    node(l, 1, 3);
    plan(l);
    assert_int_equal(ru_book_place(&l->b, j)->replicas, 5);
    assert_int_equal(j->generation, 1); /* it never stopped */
    must(l, (ru_journal_event){.kind = RU_BOOK_DRAIN, .node = 1, .a = 1});
    plan(l);
    assert_int_equal(j->state, RU_BOOK_WAITS); /* as with any job that has had its fewest */
    life_close(l);
    free(l);
}

/* The first job of alice takes what she may have, the second keeps what it has. */
static void a_job_scaled_beyond_its_users_slots_goes_on(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    life_open(l);
    node(l, 0, 8);
    ru_text t = ru_text_arena(&l->texts);
    ru_book_user_put(&(ru_book_user){.name = "alice", .key = "0123456789abcdef"}, &t);
    must(l, (ru_journal_event){.kind = RU_BOOK_USER, .a = 3, .text = t.p});
    submit(l, 2, 2, 0);
    submit(l, 1, 1, 0);
    plan(l);
    must(l, (ru_journal_event){.kind = RU_BOOK_SCALE, .job = 2, .a = 2, .b = 2});
    plan(l);
    assert_int_equal(ru_book_place(&l->b, ru_book_job_at(&l->b, 1))->replicas, 2);
    assert_int_equal(ru_book_place(&l->b, ru_book_job_at(&l->b, 2))->replicas, 1);
    assert_int_equal(ru_book_job_at(&l->b, 2)->generation, 1);
    life_close(l);
    free(l);
}

/* Small jobs that come first leave no room for a large one; after ten minutes it is its turn. */
static void a_large_job_does_not_starve(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    life_open(l);
    node(l, 0, 4);
    submit(l, 1, 4, 0);
    submit(l, 1, 4, 0);
    plan(l);
    submit(l, 4, 4, 0);
    plan(l);
    assert_int_equal(ru_book_job_at(&l->b, 3)->state, RU_BOOK_WAITS);
    l->now_ns += INT64_C(601000000000);
    plan(l); /* whatever else happened */
    assert_int_equal(ru_book_place(&l->b, ru_book_job_at(&l->b, 3))->replicas, 4);
    assert_int_equal(ru_book_job_at(&l->b, 1)->state, RU_BOOK_WAITS);
    life_close(l);
    free(l);
}

/* Jobs of a user stay within its slots, those of others do not care; a growth beyond them is
 * granted as far as they go. */
static void a_user_stays_within_its_slots(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    life_open(l);
    node(l, 0, 8);
    ru_text t = ru_text_arena(&l->texts);
    ru_book_user_put(&(ru_book_user){.name = "alice", .key = "0123456789abcdef"}, &t);
    must(l, (ru_journal_event){.kind = RU_BOOK_USER, .a = 3, .text = t.p});
    for (uint32_t k = 0; k < 3; k++) {
        submit(l, 1 + k % 2, 8, 0); /* 1, 2, 1 at least */
    }
    plan(l);
    uint32_t sum = 0;
    for (uint32_t k = 1; k <= 3; k++) {
        sum += ru_book_place(&l->b, ru_book_job_at(&l->b, k))->replicas;
    }
    assert_int_equal(sum, 3);
    assert_int_equal(ru_book_job_at(&l->b, 3)->state, RU_BOOK_WAITS);
    must(l, (ru_journal_event){.kind = RU_BOOK_USER, .a = 1, .text = t.p});
    plan(l);
    assert_int_equal(ru_book_job_at(&l->b, 2)->state, RU_BOOK_WAITS);
    assert_int_equal(ru_book_place(&l->b, ru_book_job_at(&l->b, 1))->replicas, 1);
    assert_int_equal(l->b.n_users, 1);
    life_close(l);
    free(l);
}

/* Slots of a user's jobs. */
static uint32_t slots_of(const life *l, const char *who)
{
    uint32_t sum = 0;
    for (uint32_t k = 1; k <= l->b.jobs.n; k++) {
        const ru_book_job *j = ru_book_job_at(&l->b, k);
        const ru_sched_job *p = strcmp(j->owner, who) == 0 ? ru_book_place(&l->b, j) : NULL;
        sum += p != NULL ? p->replicas : 0;
    }
    return sum;
}

/* Weights of 2 to 1 give 2 to 1 of the slots: of jobs that grow, of more jobs than slots, and where
 * one user has more jobs. Who asks for less leaves the rest. New jobs begin on one node. */
static void users_share_slots_by_weight(void **state)
{
    static const struct {
        uint32_t nodes, alice, bob, most, weight, gets, rest; /* jobs of each */
    } rows[] = {
        {3, 1, 1, 64, 2, 8, 4},   {3, 2, 2, 64, 2, 8, 4},  {3, 12, 12, 1, 2, 8, 4},
        {3, 1, 4, 64, 2, 8, 4},   {3, 1, 1, 64, 5, 10, 2}, {3, 3, 12, 1, 2, 3, 9},
        {3, 12, 12, 64, 3, 9, 3}, {3, 2, 2, 64, 0, 6, 6},
    };
    (void)state;
    for (uint32_t r = 0; r < RU_ARRAY_LEN(rows); r++) {
        life *l = calloc(1, sizeof *l);
        assert_non_null(l);
        life_open(l);
        user(l, "alice", 0, rows[r].weight);
        user(l, "bob", 0, 0);
        for (uint32_t k = 0; k < rows[r].nodes; k++) {
            node(l, k, 4);
        }
        for (uint32_t k = 0; k < rows[r].alice || k < rows[r].bob; k++) {
            if (k < rows[r].bob) {
                submit_as(l, "bob", 1, rows[r].most, 0);
            }
            if (k < rows[r].alice) {
                submit_as(l, "alice", 1, rows[r].most, 0);
            }
        }
        plan(l);
        for (uint32_t again = 0; again < 3; again++) { /* and it stays so */
            l->now_ns += INT64_C(30000000000);
            plan(l);
            assert_int_equal(slots_of(l, "alice"), rows[r].gets);
            assert_int_equal(slots_of(l, "bob"), rows[r].rest);
        }
        check(l);
        life_close(l);
        free(l);
    }
}

/* A job lies on sixteen nodes at most: what needs more waits, and the count of slots says so. */
static void a_job_lies_on_sixteen_nodes(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    life_open(l);
    for (uint32_t k = 0; k < RU_BOOK_SPREAD_MAX + 4; k++) {
        node(l, k, k < 2 ? 3 : 1);
    }
    assert_int_equal(ru_book_slots(&l->b, false), RU_BOOK_SPREAD_MAX + 4);
    must(l, (ru_journal_event){.kind = RU_BOOK_DRAIN, .node = 1, .a = 1});
    assert_int_equal(ru_book_slots(&l->b, false), RU_BOOK_SPREAD_MAX + 2);
    assert_int_equal(ru_book_slots(&l->b, true), RU_BOOK_SPREAD_MAX + 4);
    submit(l, RU_BOOK_SPREAD_MAX + 3, RU_BOOK_SPREAD_MAX + 3, 0);
    submit(l, RU_BOOK_SPREAD_MAX + 2, RU_BOOK_SPREAD_MAX + 2, 0);
    plan(l);
    assert_int_equal(ru_book_job_at(&l->b, 1)->state, RU_BOOK_WAITS);
    assert_int_equal(ru_book_job_at(&l->b, 2)->state, RU_BOOK_RUNS);
    life_close(l);
    free(l);
}

static void events_that_cannot_follow_are_refused(void **state)
{
    (void)state;
    life *l = calloc(1, sizeof *l);
    ru_err err;
    assert_non_null(l);
    life_open(l);
    node(l, 0, 2);
    submit(l, 1, 1, 0);
    static const ru_journal_event bad[] = {
        {.kind = RU_BOOK_SUBMIT, .job = 7, .a = 1, .b = 1, .text = "{}"},
        {.kind = RU_BOOK_SUBMIT, .job = 2, .a = 2, .b = 1, .text = "{}"},
        {.kind = RU_BOOK_SUBMIT, .job = 2, .a = 1, .b = 1, .text = "{}"},
        {.kind = RU_BOOK_NODE, .node = 2, .a = 1, .text = "x"},
        {.kind = RU_BOOK_NODE, .node = 0, .a = 65},
        {.kind = RU_BOOK_GRANT, .job = 1, .text = "0:3"},
        {.kind = RU_BOOK_GRANT, .job = 1, .text = "1:1"},
        {.kind = RU_BOOK_GRANT, .job = 1, .text = "0:1 x"},
        {.kind = RU_BOOK_GRANT, .job = 9, .text = ""},
        {.kind = RU_BOOK_END, .job = 1, .a = RU_BOOK_RUNS},
        {.kind = RU_BOOK_CANCEL, .job = 0},
        {.kind = RU_BOOK_KINDS, .job = 1},
        {.kind = RU_BOOK_METHOD, .a = RU_ALLOC_METHODS},
        {.kind = RU_BOOK_GRANT, .job = 1, .b = -1, .text = "0:1"},
        {.kind = RU_BOOK_USER,
         .b = RU_BOOK_WEIGHT_MAX + 1,
         .text = "{\"name\": \"x\", \"key\": \"y\"}"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        ru_status st = add(l, bad[k], &err);
        assert_true(st == RU_E_DATA || st == RU_E_CONFIG);
    }
    l->now_ns = -1;
    assert_int_equal(add(l, (ru_journal_event){.kind = RU_BOOK_CANCEL, .job = 1}, &err), RU_E_DATA);
    life_close(l);
    free(l);
}

/* A job that grows keeps the node that it has; so it does when another one comes. */
static void a_job_that_grows_stays(void **state)
{
    (void)state;
    for (uint32_t first = 0; first < NODES; first++) {
        life *l = calloc(1, sizeof *l);
        assert_non_null(l);
        life_open(l);
        for (uint32_t k = 0; k < NODES; k++) {
            node(l, k, 1);
            must(l, (ru_journal_event){.kind = RU_BOOK_DRAIN, .node = k, .a = k != first});
        }
        submit(l, 1, 1, 0);
        plan(l);
        ru_book_job *j = ru_book_job_at(&l->b, 1);
        assert_int_equal(ru_book_granted(&l->b, j, first), 1);
        for (uint32_t k = 0; k < NODES; k++) {
            must(l, (ru_journal_event){.kind = RU_BOOK_DRAIN, .node = k});
        }
        must(l, (ru_journal_event){.kind = RU_BOOK_SCALE, .job = 1, .a = 2, .b = 2});
        plan(l);
        assert_int_equal(ru_book_place(&l->b, j)->replicas, 2);
        assert_int_equal(ru_book_granted(&l->b, j, first), 1);
        submit(l, 2, 2, 0);
        plan(l);
        assert_int_equal(ru_book_granted(&l->b, j, first), 1);
        j = ru_book_job_at(&l->b, 2);
        assert_int_equal(ru_book_place(&l->b, j)->replicas, 2);
        check(l);
        life_close(l);
        free(l);
    }
}

/* A large cluster searches in full once in half an hour, a small one in each round. */
static void large_clusters_search_seldom(void **state)
{
    (void)state;
    for (uint32_t large = 0; large < 2; large++) {
        life *l = calloc(1, sizeof *l);
        assert_non_null(l);
        life_open(l);
        for (uint32_t k = 0; k < (large == 1 ? 300 : 3); k++) {
            node(l, k, 1);
        }
        submit(l, 1, 4, 0);
        l->now_ns = INT64_C(1000000000);
        plan(l);
        assert_int_equal(l->b.searched_ns, l->now_ns);
        submit(l, 1, 4, 0);
        l->now_ns += INT64_C(1799000000000);
        plan(l); /* also asks again what was asked */
        assert_int_equal(l->b.searched_ns == l->now_ns, large == 0);
        assert_true(ru_book_place(&l->b, ru_book_job_at(&l->b, 2))->replicas > 0);
        l->now_ns += INT64_C(1000000000);
        plan(l);
        assert_int_equal(l->b.searched_ns, l->now_ns);
        life_close(l);
        free(l);
    }
}

/* More than slots, and two on three slots, whose models say now a hundredth more, now less. */
static void jobs_that_are_alike_take_no_turns(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        life *l = calloc(1, sizeof *l);
        ru_book_measured of[JOBS] = {0};
        uint32_t n = r == 0 ? 8 : 2, had[8] = {0}, changes = 0;
        life_open(l);
        l->measured = r == 0 ? NULL : of;
        l->b.pause_s = 0.05;
        node(l, 0, r == 0 ? 4 : 3);
        for (uint32_t k = 0; k < n; k++) {
            submit(l, 1, 4, 0);
        }
        for (uint32_t round = 0; round < 30; round++, l->now_ns += 2000000000) {
            plan(l);
            for (uint32_t k = 0; k < n; k++) {
                const double s = (round + k) % 2 == 0 ? 4e-3 : 5e-3; /* of a step of 40 ms */
                of[k].model = (ru_goodput_model){
                    {1e-4, 1e-3, s, 1e-6, s, 1e-6, 1}, 0, 0, 64, 64, 1, 64, 64, false};
                changes += l->b.sched.jobs[k].replicas != had[k];
                had[k] = l->b.sched.jobs[k].replicas;
            }
        }
        assert_int_equal(changes, r == 0 ? 4 : 2);
        life_close(l);
        free(l);
    }
}

RU_TESTS(cluster_book, cmocka_unit_test(a_job_that_grows_stays),
         cmocka_unit_test(large_clusters_search_seldom),
         cmocka_unit_test(jobs_that_are_alike_take_no_turns),
         cmocka_unit_test(tiresias_keeps_its_queues_in_the_journal),
         cmocka_unit_test(what_is_left_decides_for_optimus),
         cmocka_unit_test(nobody_requests_workers_without_samples),
         cmocka_unit_test(a_journal_of_an_earlier_program_is_read),
         cmocka_unit_test(a_user_stays_within_its_slots),
         cmocka_unit_test(users_share_slots_by_weight),
         cmocka_unit_test(a_job_lies_on_sixteen_nodes),
         cmocka_unit_test(a_job_scaled_beyond_its_users_slots_goes_on),
         cmocka_unit_test(a_job_scaled_beyond_the_slots_goes_on),
         cmocka_unit_test(a_large_job_does_not_starve),
         cmocka_unit_test(events_that_cannot_follow_are_refused),
         cmocka_unit_test(priorities_and_failures), cmocka_unit_test(random_lives_keep_the_books))
