/* Steps against closed forms, and against the least times that satisfy all constraints. */
#include "train/pipe/play.h"

#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { N = 4, M = 16, LINKS = 2 * (N - 1), STEPS = 4 };

typedef struct pipeline {
    int64_t forward_ns[N], backward_ns[N], update_ns[N];
    ru_pipe_play_link links[LINKS];
    ru_pipe_play_in in;
} pipeline;

/* A chain: link 2 k goes from stage k forward, 2 k + 1 comes back to it. */
static void chain(pipeline *p, uint32_t n, uint32_t micro, ru_pipe_schedule schedule)
{
    p->in = (ru_pipe_play_in){.n = n,
                              .micro = micro,
                              .schedule = schedule,
                              .forward_ns = p->forward_ns,
                              .backward_ns = p->backward_ns,
                              .update_ns = p->update_ns,
                              .links = p->links,
                              .n_links = 2 * (n - 1)};
    for (uint32_t k = 0; k + 1 < n; k++) {
        p->links[2 * k].from = p->links[2 * k + 1].to = k;
        p->links[2 * k].to = p->links[2 * k + 1].from = k + 1;
    }
}

static void equal_stages_are_idle_as_the_closed_form_says(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, m;
        ru_pipe_schedule schedule;
    } cases[] = {{4, 4, RU_PIPE_SCHEDULE_GPIPE},
                 {4, 16, RU_PIPE_SCHEDULE_FLUSH},
                 {2, 1, RU_PIPE_SCHEDULE_FLUSH},
                 {3, 2, RU_PIPE_SCHEDULE_FLUSH}};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    for (uint32_t c = 0; c < RU_ARRAY_LEN(cases); c++) {
        uint32_t n = cases[c].n, m = cases[c].m;
        pipeline p = {0};
        ru_pipe_play x;
        chain(&p, n, m, cases[c].schedule);
        for (uint32_t k = 0; k < n; k++) {
            p.forward_ns[k] = 10;
            p.backward_ns[k] = 20;
        }
        assert_ok(ru_pipe_play_step(&p.in, &a, &x, &err), err);
        assert_int_equal(x.step_ns, 30 * (m + n - 1));
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(x.busy_ns[k], 30 * m);
        }
    }
    ru_arena_fini(&a);
}

/* The slowest of: a worker; what a worker sends; a round through all stages, of which 3 are on
 * their way. */
static void what_flows_on_is_as_fast_as_its_slowest_part(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    for (uint32_t c = 0; c < 3; c++) {
        pipeline p = {0};
        ru_pipe_play x;
        chain(&p, 3, 1, c == 0 ? RU_PIPE_SCHEDULE_VERTICAL : RU_PIPE_SCHEDULE_STASH);
        for (uint32_t k = 0; k < 3; k++) {
            p.forward_ns[k] = 10;
            p.backward_ns[k] = k == 1 && c == 2 ? 200 : 20;
            p.update_ns[k] = 5;
        }
        for (uint32_t l = 0; l < p.in.n_links; l++) {
            p.links[l].xfer_ns = c == 1 ? 40 : 0;
        }
        assert_ok(ru_pipe_play_step(&p.in, &a, &x, &err), err);
        assert_int_equal(x.step_ns, c == 0 ? 35 : c == 1 ? 85 : 215);
        for (uint32_t k = 0; k < 3; k++) {
            assert_int_equal(x.busy_ns[k], 15 + p.backward_ns[k]);
        }
    }
    ru_arena_fini(&a);
}

/* Times of the parts and of the pieces of all steps, raised until no constraint is violated. */
typedef struct least {
    int64_t part[STEPS][N][2 * M], piece[STEPS][LINKS][M], update[STEPS][N]; /* ends */
    bool changed;
} least;

static void raise(least *t, int64_t *x, int64_t to)
{
    t->changed = t->changed || *x < to;
    *x = *x < to ? to : *x;
}

static uint32_t place(const ru_pipe_act *order, uint32_t micro, bool back, uint32_t m)
{
    uint32_t i = 0;
    while (i < 2 * m && (order[i].micro != micro || order[i].back != back)) {
        i++;
    }
    return i;
}

static void constrain(least *t, const pipeline *p, uint32_t s, uint32_t k)
{
    const ru_pipe_play_in *in = &p->in;
    ru_pipe_act order[2 * M], last[2 * M];
    const ru_pipe_shape shape = {.schedule = in->schedule, .n = in->n, .micro = in->micro};
    ru_pipe_order(&shape, k, 0, order);
    ru_pipe_order(&shape, in->n - 1, 0, last);
    int64_t sent = 0, free = s > 0 ? t->update[s - 1][k] : 0;
    for (uint32_t l = 0; l < in->n_links && s > 0; l++) { /* the link still sends */
        for (uint32_t j = 0; j < in->micro && in->links[l].from == k; j++) {
            sent = t->piece[s - 1][l][j] > sent ? t->piece[s - 1][l][j] : sent;
        }
    }
    for (uint32_t i = 0; i < 2 * in->micro; i++) {
        uint32_t j = order[i].micro;
        bool back = order[i].back;
        int64_t took = back ? p->backward_ns[k] : p->forward_ns[k];
        raise(t, &t->part[s][k][i], free + took);
        if (back ? k + 1 < in->n : k > 0) {
            raise(t, &t->part[s][k][i], t->piece[s][back ? 2 * k + 1 : 2 * (k - 1)][j] + took);
        }
        free = t->part[s][k][i];
        if (back ? k > 0 : k + 1 < in->n) {
            uint32_t l = back ? 2 * (k - 1) + 1 : 2 * k;
            raise(t, &t->piece[s][l][j], (free > sent ? free : sent) + in->links[l].xfer_ns);
            sent = t->piece[s][l][j];
        }
    }
    raise(t, &t->update[s][k], free + p->update_ns[k]);
    uint32_t decided = place(last, in->micro - 1, false, in->micro);
    raise(t, &t->update[s][k], t->part[s][in->n - 1][decided] + p->update_ns[k]);
}

static void steps_take_the_least_time(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(ru_test_seed(), ru_rng_label("pipe play"));
    static least t;
    for (uint32_t turn = 0; turn < 60; turn++) {
        pipeline p = {0};
        ru_pipe_play x;
        ru_arena a;
        ru_err err;
        ru_arena_init(&a, 0);
        chain(&p, 2 + (uint32_t)ru_rng_below(&rng, N - 1), 1 + (uint32_t)ru_rng_below(&rng, M),
              turn % 2 == 0 ? RU_PIPE_SCHEDULE_FLUSH : RU_PIPE_SCHEDULE_GPIPE);
        for (uint32_t k = 0; k < p.in.n; k++) {
            p.forward_ns[k] = (int64_t)ru_rng_below(&rng, 100);
            p.backward_ns[k] = (int64_t)ru_rng_below(&rng, 200);
            p.update_ns[k] = (int64_t)ru_rng_below(&rng, 50);
        }
        for (uint32_t l = 0; l < p.in.n_links; l++) {
            p.links[l].xfer_ns = (int64_t)ru_rng_below(&rng, 150);
        }
        memset(&t, 0, sizeof t);
        do {
            t.changed = false;
            for (uint32_t s = 0; s < STEPS; s++) {
                for (uint32_t k = 0; k < p.in.n; k++) {
                    constrain(&t, &p, s, k);
                }
            }
        } while (t.changed);
        assert_ok(ru_pipe_play_step(&p.in, &a, &x, &err), err);
        assert_int_equal(x.step_ns, t.update[STEPS - 1][0] - t.update[STEPS - 2][0]);
        ru_arena_fini(&a);
    }
}

RU_TESTS(train_play, cmocka_unit_test(what_flows_on_is_as_fast_as_its_slowest_part),
         cmocka_unit_test(equal_stages_are_idle_as_the_closed_form_says),
         cmocka_unit_test(steps_take_the_least_time))
