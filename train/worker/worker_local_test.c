/* The adder of two workers of one host: asked by its loop in any order, it opens only groups that
 * are wanted still, and says which one an answer is about. */
#include <stdlib.h>
#include <string.h>

#include "test/test.h"
#include "train/worker/worker_impl.h"

enum { TENSORS = 2, FLOATS = 1000 };

static const int64_t sizes[TENSORS] = {4 * FLOATS, 4};

/* A worker without compute thread and node: its loop is this test. */
typedef struct side {
    rui_worker w;
    ru_elastic_device_ops ops;
    int64_t tensor_bytes[TENSORS];
    rui_event awaited;
    bool came;
} side;

static void on_events(void *self, ru_time now)
{
    (void)now;
    side *s = self;
    rui_worker *w = &s->w;
    for (rui_event x; !s->came && ru_spsc_pop(&w->local.line, &x);) {
        if (x.kind == s->awaited.kind && x.seq == s->awaited.seq) {
            s->awaited = x;
            s->came = true;
            ru_loop_stop(w->shell.loop);
        }
    }
}

static void too_late(void *self, uint32_t what, ru_time now)
{
    (void)what, (void)now;
    ru_loop_stop(((side *)self)->w.shell.loop);
}

/* The answer of that kind about group `seq`. */
static rui_event await(side *s, rui_word_kind kind, uint32_t seq)
{
    ru_err err;
    s->awaited = (rui_event){.kind = kind, .seq = seq};
    s->came = false;
    ru_loop_timer(s->w.shell.loop, too_late, s, 0, ru_time_after(ru_clock_now(), 300000000000));
    on_events(s, ru_clock_now()); /* it may be there already */
    assert_ok(ru_loop_run(s->w.shell.loop, &err), err);
    ru_loop_timer_off(s->w.shell.loop, too_late, s, 0);
    assert_true(s->came);
    return s->awaited;
}

static ru_status side_open(side *s, ru_arena *arena, ru_err *err)
{
    rui_worker *w = &s->w;
    memset(s, 0, sizeof *s);
    memcpy(s->tensor_bytes, sizes, sizeof sizes);
    ru_mutex_init(&w->lock);
    ru_cond_init(&w->changed);
    ru_cond_init(&w->local.changed);
    w->arena = arena;
    w->list.n_tensors = TENSORS;
    w->list.tensor_bytes = s->tensor_bytes;
    w->shell.arena = arena;
    RU_TRY(ru_loop_open(&w->shell.loop, err));
    RU_TRY(ru_loop_waker(w->shell.loop, on_events, s, &w->shell.waker, err));
    rui_local_ops(&s->ops);
    return rui_local_open(w, err);
}

static void side_close(side *s)
{
    rui_local_stop(&s->w);
    ru_loop_close(s->w.shell.loop);
    ru_cond_fini(&s->w.changed);
    ru_cond_fini(&s->w.local.changed);
    ru_mutex_fini(&s->w.lock);
}

typedef struct pair {
    ru_arena arena;
    side s[2];
} pair;

static pair *pair_new(void)
{
    pair *p = aligned_alloc(_Alignof(pair), sizeof *p);
    RU_CHECK(p != NULL);
    ru_arena_init(&p->arena, 0);
    for (uint32_t i = 0; i < 2; i++) {
        ru_err err;
        assert_ok(side_open(&p->s[i], &p->arena, &err), err);
    }
    return p;
}

static void pair_free(pair *p)
{
    side_close(&p->s[0]);
    side_close(&p->s[1]);
    ru_arena_fini(&p->arena);
    free(p);
}

static uint32_t open_group(pair *p, uint32_t i, uint32_t epoch)
{
    side *s = &p->s[i];
    const char *handles[] = {p->s[0].ops.local_handle(&p->s[0].w),
                             p->s[1].ops.local_handle(&p->s[1].w)};
    s->ops.local_open(&s->w, handles, 2, i, epoch);
    return s->w.local.seq;
}

static uint32_t close_group(side *s)
{
    s->ops.local_close(&s->w);
    return s->w.local.seq;
}

/* Both sum two buckets, the second first here and last there. */
static void sum_both(pair *p, uint32_t epoch)
{
    static const ru_elastic_part part[] = {{0, 1, 0, 4 * FLOATS, 0}, {1, 1, 0, 4, 0}};
    uint32_t seq[2];
    for (uint32_t i = 0; i < 2; i++) {
        seq[i] = open_group(p, i, epoch);
    }
    for (uint32_t i = 0; i < 2; i++) {
        side *s = &p->s[i];
        assert_int_equal(await(s, RUI_EVENT_LOCAL_OPENED, seq[i]).status, RU_OK);
        float *x = rui_local_grad(&s->w, 0);
        for (uint32_t k = 0; k < FLOATS; k++) {
            x[k] = (float)(k * (1 + i));
        }
        *(float *)rui_local_grad(&s->w, 1) = 7;
        s->ops.local_reduce(&s->w, 1 - i, &part[1 - i], 0);
        s->ops.local_reduce(&s->w, i, &part[i], 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        side *s = &p->s[i];
        assert_int_equal(await(s, RUI_EVENT_REDUCED, seq[i]).tensor, 0);
        assert_int_equal(await(s, RUI_EVENT_REDUCED, seq[i]).tensor, 1);
        const float *x = rui_local_grad(&s->w, 0);
        for (uint32_t k = 0; k < FLOATS; k++) {
            assert_true(x[k] == (float)(3 * k));
        }
        assert_true(*(float *)rui_local_grad(&s->w, 1) == 14);
    }
}

static void test_sums_in_order(void **state)
{
    (void)state;
    pair *p = pair_new();
    for (uint32_t epoch = 1; epoch <= 3; epoch++) {
        sum_both(p, epoch);
        uint32_t left[2] = {close_group(&p->s[0]), close_group(&p->s[1])};
        (void)await(&p->s[0], RUI_EVENT_LOCAL_CLOSED, left[0]);
        (void)await(&p->s[1], RUI_EVENT_LOCAL_CLOSED, left[1]);
    }
    pair_free(p);
}

/* The neighbour never comes to the first group. While the adder waits for it there, that group is
 * given up, and one more before the adder had time to look at it: it waits in neither, and is in
 * time for the next. */
static void test_groups_given_up(void **state)
{
    (void)state;
    pair *p = pair_new();
    side *s = &p->s[0];
    uint32_t epoch = 0;
    for (uint32_t round = 0; round < 5; round++) {
        uint32_t first = open_group(p, 0, ++epoch);
        (void)close_group(s);
        uint32_t second = open_group(p, 0, ++epoch);
        uint32_t last = close_group(s);
        assert_true(first != second && second != last);
        (void)await(s, RUI_EVENT_LOCAL_CLOSED, last);
        sum_both(p, ++epoch);
        (void)close_group(&p->s[1]);
        (void)await(s, RUI_EVENT_LOCAL_CLOSED, close_group(s));
    }
    pair_free(p);
}

/* The answer about a group that was given up is not one about the next. */
static void test_answers_name_their_group(void **state)
{
    (void)state;
    pair *p = pair_new();
    side *s = &p->s[0];
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t first = open_group(p, 0, 2 * round + 1);
        (void)close_group(s);
        uint32_t next = open_group(p, 0, 2 * round + 2);
        uint32_t there = open_group(p, 1, 2 * round + 2);
        assert_true(first < next);
        assert_int_equal(await(s, RUI_EVENT_LOCAL_OPENED, next).status, RU_OK);
        assert_int_equal(await(&p->s[1], RUI_EVENT_LOCAL_OPENED, there).status, RU_OK);
        (void)close_group(&p->s[1]);
        (void)await(s, RUI_EVENT_LOCAL_CLOSED, close_group(s));
    }
    pair_free(p);
}

/* More than a group may have: all are told so, and the next group is as any other. */
static void test_too_many(void **state)
{
    (void)state;
    pair *p = pair_new();
    side *s = &p->s[0];
    const char *handles[RU_COLL_SHM_RANKS_MAX + 1];
    for (uint32_t k = 0; k < RU_ARRAY_LEN(handles); k++) {
        handles[k] = s->ops.local_handle(&s->w);
    }
    s->ops.local_open(&s->w, handles, RU_ARRAY_LEN(handles), 0, 1);
    assert_int_equal(await(s, RUI_EVENT_LOCAL_OPENED, s->w.local.seq).status, RU_E_LIMIT);
    (void)await(s, RUI_EVENT_LOCAL_CLOSED, close_group(s));
    sum_both(p, 2);
    pair_free(p);
}

/* Whatever fails while it opens: a worker without an adder offers no memory to others. */
static void test_opening_fails(void **state)
{
    (void)state;
    for (uint32_t os = 0; os < 2; os++) {
        bool failed = true;
        for (int64_t k = 0; failed; k++) {
            assert_true(k < 1000);
            side *s = aligned_alloc(_Alignof(side), sizeof *s);
            RU_CHECK(s != NULL);
            ru_arena arena;
            ru_arena_init(&arena, 0);
            ru_err err = {0};
            (os == 1 ? ru_test_os_fail : ru_test_alloc_fail)(k);
            ru_status st = side_open(s, &arena, &err);
            failed = (os == 1 ? ru_test_os_count() : ru_test_alloc_count()) > k;
            ru_test_os_fail(-1);
            ru_test_alloc_fail(-1);
            if (st != RU_OK) {
                assert_true(failed && err.text[0] != '\0');
                assert_null(s->w.local.shm);
            }
            side_close(s);
            ru_arena_fini(&arena);
            free(s);
        }
    }
}

RU_TESTS(train_worker_local, cmocka_unit_test(test_sums_in_order),
         cmocka_unit_test(test_groups_given_up), cmocka_unit_test(test_answers_name_their_group),
         cmocka_unit_test(test_too_many), cmocka_unit_test(test_opening_fails))
