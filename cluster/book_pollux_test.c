/* What Pollux does with what jobs say that they have left. */
#include <stdlib.h>

#include "cluster/book.h"
#include "test/test.h"

typedef struct life {
    ru_arena arena;
    ru_book b;
    ru_book_measured of[2];
    int64_t seq, now_ns;
} life;

static const ru_goodput_model scales = {
    {1e-3, 1e-2, 1e-3, 1e-6, 1e-3, 1e-6, 1}, 0, 0, 64, 64, 1, 64, 64, false};

static void must(life *l, ru_journal_event e)
{
    ru_err err = {0};
    e.seq = ++l->seq;
    e.at_ns = l->now_ns;
    e.who = "alice";
    e.text = ru_arena_str(&l->arena, e.text != NULL ? e.text : "");
    assert_ok(ru_book_fold(&l->b, &e, &err), err);
}

static void slots(life *l, uint32_t n)
{
    must(l, (ru_journal_event){.kind = RU_BOOK_NODE, .a = n, .text = "n"});
}

/* Of one to four workers. */
static void submit(life *l)
{
    ru_text t = ru_text_arena(&l->arena);
    ru_book_spec_put(&(ru_book_spec){"job", "secret", "/out", "name: x\n", 0}, &t);
    must(l, (ru_journal_event){
                .kind = RU_BOOK_SUBMIT, .job = l->b.jobs.n + 1, .a = 1, .b = 4, .text = t.p});
}

/* Two seconds later: workers of the two jobs, as 10 * first + second. */
static uint32_t planned(life *l)
{
    ru_err err = {0};
    ru_journal_event *events;
    uint32_t n;
    l->now_ns += INT64_C(2000000000);
    assert_ok(ru_book_plan(&l->b, l->of, l->now_ns, &l->arena, &events, &n, &err), err);
    for (uint32_t k = 0; k < n; k++) {
        must(l, events[k]);
    }
    return 10 * l->b.sched.jobs[0].replicas + l->b.sched.jobs[1].replicas;
}

static life *life_open(uint32_t n)
{
    ru_err err = {0};
    life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    ru_arena_init(&l->arena, 0);
    assert_ok(ru_book_init(&l->b, &l->arena, &err), err);
    slots(l, n);
    return l;
}

static void life_close(life *l)
{
    ru_arena_fini(l->b.fx.arena);
    ru_arena_fini(&l->arena);
    free(l);
}

/* Of two jobs whose steps scale alike who has less left has more of three slots; one that waits
 * takes the slot of one that has much more left, and nobody takes turns. */
static void short_work_goes_first(void **state)
{
    (void)state;
    life *l = life_open(3);
    l->of[0] = (ru_book_measured){scales, 100, NULL, 0};
    l->of[1] = (ru_book_measured){scales, 1000, NULL, 0};
    submit(l);
    submit(l);
    l->now_ns += INT64_C(100000000000);
    assert_int_equal(planned(l), 21);
    l->of[0].remaining = 9000;
    assert_int_equal(planned(l), 12);
    slots(l, 1);
    assert_int_equal(planned(l), 1);
    static const double left[][2] = {{8000, 10000}, {10000, 8000}, {9000, 11000}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(left); k++) {
        l->of[0].remaining = left[k][0];
        l->of[1].remaining = left[k][1];
        assert_int_equal(planned(l), 1);
    }
    l->of[0].remaining = 2000;
    assert_int_equal(planned(l), 10);
    life_close(l);
}

/* Its steps across nodes are tried when those on one are known, or when it tells none. */
static void what_is_unknown_begins_on_one_node(void **state)
{
    (void)state;
    for (uint32_t tells = 0; tells < 2; tells++) {
        life *l = life_open(2);
        must(l, (ru_journal_event){.kind = RU_BOOK_NODE, .node = 1, .a = 2, .text = "m"});
        submit(l);
        for (uint32_t k = 0; k < 3; k++) {
            assert_int_equal(planned(l), 20);
        }
        if (tells == 1) {
            l->of[0] = (ru_book_measured){scales, 100000, NULL, 0};
        } else {
            l->now_ns += INT64_C(60000000000);
        }
        assert_int_equal(planned(l), 40);
        life_close(l);
    }
}

RU_TESTS(cluster_book_pollux, cmocka_unit_test(short_work_goes_first),
         cmocka_unit_test(what_is_unknown_begins_on_one_node))
