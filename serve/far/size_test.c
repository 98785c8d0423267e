/* Routes by size, by drawing requests: what the choice predicts of each class is what happens, and
 * it costs less than one buffer does. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "serve/far/far_impl.h"
#include "test/test.h"

enum { CLASSES = 6, GAPS = 2048, REQUESTS = 200000, WIDTH = 64 };
#define SLO_S  0.3
#define MEAN_S 0.02

static const double share[CLASSES] = {0.45, 0.25, 0.12, 0.08, 0.06, 0.04};

typedef struct world {
    ru_server server;
    rui_version version;
    ru_server_functions functions;
    rui_far far;
    rui_far_size size;
} world;

static world *open_world(void)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->server.opt = (ru_server_options){.slo_ns = (int64_t)(SLO_S * 1e9), .slo_q = 0.95};
    w->version = (rui_version){.server = &w->server, .instances = 64};
    w->functions =
        (ru_server_functions){.usd_per_gb_s = 1.66667e-5, .usd_per_call = 2e-7, .buffers_max = 16};
    rui_far *f = &w->far;
    *f = (rui_far){.v = &w->version,
                   .opt = &w->functions,
                   .n_memory = 2,
                   .n_sizes = 4,
                   .memory_mb = {512, 1024},
                   .size = &w->size};
    w->size = (rui_far_size){.n = CLASSES, .most = CLASSES * WIDTH};
    for (uint32_t k = 0; k < CLASSES; k++) {
        w->size.bound[k] = (k + 1) * WIDTH;
        w->size.share[k] = share[k];
        for (uint32_t m = 0; m < 2; m++) {
            for (uint32_t b = 0; b < 4; b++) {
                f->service_ns[k][m][b] =
                    (m == 0 ? 2 : 1) * (10 + INT64_C(3) * ((k + 1) << b)) * 1000000;
            }
        }
    }
    ru_arena_init(&f->plan_arena, 0);
    rui_size_begin(f, &(ru_batch_choice){.memory_mb = 1024, .batch = 1});
    w->size.now = w->size.next;
    ru_rng rng = ru_rng_from(1, 1);
    uint32_t order[GAPS];
    for (uint32_t k = 0; k < GAPS; k++) {
        order[k] = k;
    }
    ru_rng_shuffle(&rng, order, GAPS);
    for (uint32_t k = 0; k < GAPS; k++) {
        f->facts.gap_s[k] = -MEAN_S * log(1 - (order[k] + 0.5) / GAPS);
    }
    f->facts.n = GAPS;
    f->facts.rate = 1 / MEAN_S;
    f->facts.scv = 1;
    rui_far_live_fit(f);
    return w;
}

typedef struct buffer {
    double came[64], leaves;
    uint32_t class_of[64], n;
} buffer;

/* What happened. */
typedef struct seen {
    double usd, own, padded;
    uint32_t n[CLASSES], within[CLASSES], early[CLASSES]; /* of the predicted latency; of less */
} seen;

static void leave(const world *w, const rui_far_routes *r, uint32_t i, buffer *b, double at,
                  seen *s)
{
    const ru_batch_choice *c = &r->at[i];
    uint32_t largest = 0, m = c->memory_mb > 512 ? 1 : 0;
    for (uint32_t k = 0; k < b->n; k++) {
        largest = b->class_of[k] > largest ? b->class_of[k] : largest;
    }
    double took = rui_far_service_s(&w->far, largest, m, b->n);
    for (uint32_t k = 0; k < b->n; k++) {
        uint32_t own = b->class_of[k];
        s->n[own]++;
        double latency = at + took - b->came[k];
        s->within[own] += latency <= r->latency_s[own] + 1e-9 ? 1 : 0;
        s->early[own] += latency <= 0.97 * r->latency_s[own] ? 1 : 0;
        s->own += w->size.bound[own];
        s->padded += w->size.bound[largest];
    }
    s->usd += rui_far_call_usd(&w->far, c->memory_mb, took);
    b->n = 0;
}

static seen draw(const world *w, const rui_far_routes *r)
{
    buffer all[RUI_FAR_CLASSES];
    ru_rng rng = ru_rng_from(ru_test_seed(), 3);
    seen s = {0};
    double at = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        all[i].n = 0;
    }
    for (uint32_t id = 0; id < REQUESTS; id++) {
        double to[RUI_FAR_CLASSES];
        uint32_t k = ru_rng_pick(&rng, share, CLASSES);
        at += ru_rng_exponential(&rng) * MEAN_S;
        for (uint32_t i = 0; i < r->n; i++) {
            to[i] = r->route[i * CLASSES + k];
            if (all[i].n > 0 && all[i].leaves < at) {
                leave(w, r, i, &all[i], all[i].leaves, &s);
            }
        }
        uint32_t i = ru_rng_pick(&rng, to, r->n);
        buffer *b = &all[i];
        b->leaves = b->n == 0 ? at + r->at[i].timeout_s : b->leaves;
        b->came[b->n] = at;
        b->class_of[b->n++] = k;
        if (b->n == r->at[i].batch) {
            leave(w, r, i, b, at, &s);
        }
    }
    return s;
}

static void test_each_class_keeps_what_is_predicted(void **state)
{
    (void)state;
    world *w = open_world();
    rui_far *f = &w->far;
    ru_err err = {0};
    assert_ok(rui_size_choose(f, &err), err);
    const rui_far_routes *r = &w->size.next;
    assert_true(r->n > 1);
    assert_true(f->found.next.latency_s <= SLO_S);
    assert_true(f->found.next.usd < 0.8 * f->found.alone.usd);
    assert_near(f->found.kept.usd,
                rui_far_call_usd(f, 1024, 0.013) * share[0] +
                    rui_far_call_usd(f, 1024, 0.016) * share[1] +
                    rui_far_call_usd(f, 1024, 0.019) * share[2] +
                    rui_far_call_usd(f, 1024, 0.022) * share[3] +
                    rui_far_call_usd(f, 1024, 0.025) * share[4] +
                    rui_far_call_usd(f, 1024, 0.028) * share[5],
                1e-6);
    seen s = draw(w, r);
    assert_near(s.usd / REQUESTS, f->found.next.usd, 0.02);
    assert_true(fabs(s.padded / s.own - 1 - r->padding) < 0.1 * r->padding + 0.002);
    for (uint32_t k = 0; k < CLASSES; k++) {
        double within = s.within[k] / (double)s.n[k], early = s.early[k] / (double)s.n[k];
        assert_true(within > 0.94 && early < 0.96 && r->latency_s[k] <= SLO_S);
    }
    ru_arena_fini(&f->plan_arena);
    free(w);
}

/* Instances that are too few for requests alone are enough for batches. */
static void test_batches_fit_few_instances(void **state)
{
    (void)state;
    world *w = open_world();
    rui_far *f = &w->far;
    ru_err err = {0};
    w->version.instances = 1;
    assert_ok(rui_size_choose(f, &err), err);
    assert_true(f->found.alone.instances > RUI_FAR_BUSY);
    assert_true(f->found.next.instances <= RUI_FAR_BUSY);
    ru_arena_fini(&f->plan_arena);
    free(w);
}

/* A block of requests of other sizes asks for a choice, one of the same does not. */
static void test_other_sizes_are_noticed(void **state)
{
    (void)state;
    world *w = open_world();
    rui_far *f = &w->far;
    ru_rng rng = ru_rng_from(ru_test_seed(), 5);
    uint32_t alarms[2] = {0};
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t k = 0; k < 1024; k++, f->n_came++) {
            uint32_t class_of = ru_rng_pick(&rng, share, CLASSES);
            alarms[turn] += rui_size_came(f, turn == 0 ? class_of : CLASSES - 1 - class_of);
        }
    }
    assert_int_equal(alarms[0], 0);
    assert_int_equal(alarms[1], 4);
    assert_true(f->from > 1024);
    rui_size_fit(f);
    assert_true(w->size.share[CLASSES - 1] > 0.3 && w->size.share[0] < 0.1);
    ru_arena_fini(&f->plan_arena);
    free(w);
}

RU_TESTS(serve_size, cmocka_unit_test(test_each_class_keeps_what_is_predicted),
         cmocka_unit_test(test_batches_fit_few_instances),
         cmocka_unit_test(test_other_sizes_are_noticed))
