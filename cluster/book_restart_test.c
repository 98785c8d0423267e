/* A cluster whose jobs stop and start when their slots change. Generations and moves are counted
 * here again from the texts of the grants alone. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cluster/book.h"
#include "test/test.h"

enum { JOBS = 4, NODES = 3, SLOTS = 3, EVENTS = 600 };

typedef struct life {
    ru_arena arena;
    ru_book b;
    ru_journal_event at[EVENTS];
    uint32_t n;
    int64_t now_ns;
} life;

static ru_status add(life *l, ru_journal_event e, ru_err *err)
{
    assert_true(l->n < EVENTS);
    e.seq = l->n + 1;
    e.at_ns = l->now_ns;
    e.who = "alice";
    e.text = ru_arena_str(&l->arena, e.text != NULL ? e.text : "");
    RU_TRY(ru_book_fold(&l->b, &e, err));
    l->at[l->n++] = e;
    return RU_OK;
}

static void must(life *l, ru_journal_event e)
{
    ru_err err = {0};
    assert_ok(add(l, e, &err), err);
}

/* A second later. */
static void grant(life *l, uint32_t job, const char *text)
{
    l->now_ns += INT64_C(1000000000);
    must(l, (ru_journal_event){.kind = RU_BOOK_GRANT, .job = job, .text = text});
}

static void node(life *l, uint32_t k, uint32_t slots)
{
    static const char *const names[NODES] = {"a", "b", "c"};
    must(l, (ru_journal_event){.kind = RU_BOOK_NODE, .node = k, .a = slots, .text = names[k]});
}

static void resize(life *l, bool restarts)
{
    must(l, (ru_journal_event){.kind = RU_BOOK_RESIZE, .a = restarts});
}

static life *life_open(uint32_t jobs)
{
    ru_err err = {0};
    life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    ru_arena_init(&l->arena, 0);
    assert_ok(ru_book_init(&l->b, &l->arena, &err), err);
    ru_text t = ru_text_arena(&l->arena);
    ru_book_spec_put(&(ru_book_spec){"job", "secret", "/out", "name: x\n", 0}, &t);
    for (uint32_t k = 0; k < NODES; k++) {
        node(l, k, SLOTS);
    }
    for (uint32_t k = 1; k <= jobs; k++) {
        must(l, (ru_journal_event){
                    .kind = RU_BOOK_SUBMIT, .job = k, .a = 1, .b = NODES * SLOTS, .text = t.p});
    }
    return l;
}

static void life_close(life *l)
{
    ru_arena_fini(l->b.fx.arena);
    ru_arena_fini(&l->arena);
    free(l);
}

/* Generation, moves and the last move of the first job. */
static void is(const life *l, ru_book_state state, uint32_t generation, uint32_t moves,
               uint32_t moved)
{
    const ru_book_job *j = ru_book_job_at(&l->b, 1);
    assert_int_equal(j->state, state);
    assert_int_equal(j->generation, generation);
    assert_int_equal(j->moves, moves);
    assert_int_equal(j->moved, moved);
}

static void a_change_of_slots_is_a_generation(void **state)
{
    (void)state;
    ru_err err;
    life *l = life_open(1);
    resize(l, true);
    grant(l, 1, "0:1"); /* at 1 s: its first start is no move */
    is(l, RU_BOOK_RUNS, 1, 0, 0);
    grant(l, 1, "0:2");
    is(l, RU_BOOK_RUNS, 2, 1, 2);
    assert_int_equal(ru_book_job_at(&l->b, 1)->begun_ns, l->now_ns);
    assert_int_equal(ru_book_place(&l->b, ru_book_job_at(&l->b, 1))->replicas, 2);
    l->now_ns += INT64_C(1000000000);
    must(l, (ru_journal_event){.kind = RU_BOOK_GRANT, .job = 1, .b = 7, .text = "0:2"});
    is(l, RU_BOOK_RUNS, 2, 1, 2); /* another place in a queue alone */
    grant(l, 1, "1:2");
    is(l, RU_BOOK_RUNS, 3, 2, 3);
    grant(l, 1, "");
    is(l, RU_BOOK_WAITS, 3, 2, 3);
    grant(l, 1, "0:1"); /* it has waited */
    is(l, RU_BOOK_RUNS, 4, 2, 3);
    must(l, (ru_journal_event){.kind = RU_BOOK_FAIL, .job = 1, .text = "why"});
    is(l, RU_BOOK_RUNS, 5, 2, 3);
    resize(l, false);
    grant(l, 1, "0:2 1:1"); /* in place */
    is(l, RU_BOOK_RUNS, 5, 2, 3);
    resize(l, true);
    node(l, 1, 0);
    is(l, RU_BOOK_WAITS, 5, 2, 3); /* it needs a plan to go on without the node */
    assert_int_equal(l->b.sched.nodes[0].used, 0);
    /* one slot from 1 s to 2 s, two to 5 s, none to 6 s, one to 7 s, three to the end */
    assert_int_equal(l->b.sched.jobs[0].service_ns, INT64_C(1000000000) * (1 + 6 + 1));
    assert_int_equal(add(l, (ru_journal_event){.kind = RU_BOOK_RESIZE, .a = 2}, &err), RU_E_DATA);
    life_close(l);
}

/* What a change costs, as the question to the policy has it. */
static void the_policy_is_told_the_pause(void **state)
{
    static const struct {
        bool restarts;
        double pause_s;
        const char *asks;
    } rows[] = {{false, 0, "\"restart\":\"300000000ns\""},
                {true, 0, "\"restart\":\"500000000ns\""},
                {true, 1.25, "\"restart\":\"1250000000ns\""}};
    (void)state;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        life *l = life_open(2);
        ru_book_measured none[JOBS] = {0};
        ru_journal_event *events;
        uint32_t n;
        ru_err err = {0};
        ru_text asks = ru_text_arena(&l->arena);
        resize(l, rows[k].restarts);
        l->b.pause_s = rows[k].pause_s;
        l->b.asks = &asks;
        assert_ok(ru_book_plan(&l->b, none, l->now_ns, &l->arena, &events, &n, &err), err);
        assert_int_equal(n, 2);
        assert_non_null(strstr(asks.p, rows[k].asks));
        life_close(l);
    }
}

/* What is known of a job from the texts of its grants. */
typedef struct seen {
    char has[64];
    uint32_t generation, moves;
} seen;

/* Slots on nodes, of what the other jobs leave. */
static void draw(ru_rng *r, const seen *of, uint32_t job, const uint32_t *slots, char text[64])
{
    ru_text t = ru_text_into(text, 64);
    uint32_t left[NODES];
    memcpy(left, slots, sizeof left);
    for (uint32_t k = 1; k <= JOBS; k++) {
        for (const char *at = of[k].has; k != job && (at = strchr(at, ':')) != NULL; at++) {
            left[at[-1] - '0'] -= (uint32_t)(at[1] - '0');
        }
    }
    *text = 0;
    for (uint32_t k = 0; k < NODES; k++) {
        uint32_t n = ru_rng_below(r, left[k] + 1);
        if (n > 0) {
            ru_text_putf(&t, "%s%u:%u", t.n > 0 ? " " : "", k, n);
        }
    }
}

/* What a grant does to a job. */
static void note(seen *j, const char *text, bool restarts)
{
    bool had = j->has[0] != 0, has = text[0] != 0, same = strcmp(j->has, text) == 0;
    j->generation += has && (!had || (restarts && !same));
    j->moves += has && had && restarts && !same;
    strcpy(j->has, text);
}

/* A node is gone: without a place of its own a job stops, as it does where jobs restart. */
static void lose(seen *j, uint32_t k, bool restarts)
{
    const char part[] = {(char)('0' + k), ':', 0};
    char *at = strstr(j->has, part);
    if (at != NULL && restarts) {
        j->has[0] = 0;
    } else if (at != NULL) {
        char *rest = at[3] != 0 ? at + 4 : at + 3; /* behind "K:N", and its blank */
        memmove(at, rest, strlen(rest) + 1);
        size_t n = strlen(j->has);
        j->has[n > 0 && j->has[n - 1] == ' ' ? n - 1 : n] = 0;
    }
}

static void check(const life *l, const seen *of)
{
    for (uint32_t k = 1; k <= JOBS; k++) {
        const ru_book_job *j = ru_book_job_at(&l->b, k);
        assert_int_equal(j->generation, of[k].generation);
        assert_int_equal(j->moves, of[k].moves);
        assert_int_equal(j->state == RU_BOOK_RUNS, of[k].has[0] != 0);
        assert_int_equal(ru_book_place(&l->b, j)->restarts,
                         of[k].generation > 0 ? of[k].generation - 1 : 0);
    }
}

static void random_grants_are_counted(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    life *l = life_open(JOBS), *again = calloc(1, sizeof *again);
    seen of[JOBS + 1] = {0};
    uint32_t slots[NODES] = {SLOTS, SLOTS, SLOTS}, moves = 0;
    bool restarts = false;
    while (l->n < EVENTS) {
        uint32_t what = ru_rng_below(&r, 12), job = 1 + ru_rng_below(&r, JOBS);
        char text[64];
        if (what == 0) {
            restarts = !restarts;
            resize(l, restarts);
        } else if (what == 1) {
            uint32_t k = ru_rng_below(&r, NODES);
            slots[k] = slots[k] > 0 ? 0 : SLOTS;
            node(l, k, slots[k]);
            for (uint32_t i = 1; i <= JOBS && slots[k] == 0; i++) {
                lose(&of[i], k, restarts);
            }
        } else {
            draw(&r, of, job, slots, text);
            grant(l, job, text);
            note(&of[job], text, restarts);
        }
        check(l, of);
    }
    for (uint32_t k = 1; k <= JOBS; k++) {
        moves += of[k].moves;
    }
    assert_true(moves > 20);
    ru_arena_init(&again->arena, 0);
    assert_ok(ru_book_init(&again->b, &again->arena, &err), err);
    for (uint32_t k = 0; k < l->n; k++) { /* the journal alone */
        assert_ok(ru_book_fold(&again->b, &l->at[k], &err), err);
    }
    check(again, of);
    assert_int_equal(again->b.restarts, restarts);
    life_close(l);
    life_close(again);
}

RU_TESTS(cluster_book_restart, cmocka_unit_test(a_change_of_slots_is_a_generation),
         cmocka_unit_test(the_policy_is_told_the_pause),
         cmocka_unit_test(random_grants_are_counted))
