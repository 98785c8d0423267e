/* Allocations: least losses against all allocations of small clusters, baselines by hand,
 * corrupted plans. */
#include "plan/fleet/alloc.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "plan/row/policy.h"
#include "test/test.h"

enum { JOBS = 6, NODES = 4 };

typedef struct small {
    ru_alloc_job jobs[JOBS];
    ru_alloc_part now[JOBS][NODES];
    uint32_t devices[NODES];
    ru_alloc_in in;
} small;

static void job_make(ru_alloc_job *j, ru_rng *r)
{
    *j = (ru_alloc_job){
        .model = {.perf = {ru_rng_uniform(r, .05, .2), ru_rng_uniform(r, .001, .01),
                           ru_rng_uniform(r, .01, .5), ru_rng_uniform(r, .0001, .01),
                           ru_rng_uniform(r, .001, .1), ru_rng_uniform(r, .0001, .003), 1.3},
                  .sqr = .001,
                  .var = ru_rng_uniform(r, .0001, .01),
                  .batch_first = 64,
                  .batch_max = 2048,
                  .local_min = 16,
                  .local_max = 128},
        .replicas_max = 1 + ru_rng_below(r, 8),
        .replicas = 1 + ru_rng_below(r, 4),
        .age_s = ru_rng_below(r, 2000),
        .restarts = ru_rng_below(r, 5),
        .service_s = 20000.0 * ru_rng_below(r, 5),
        .remaining = 1 + ru_rng_below(r, 10000),
    };
    if (ru_rng_below(r, 5) == 0) {
        j->model.perf.overlap = 0;
    }
    j->replicas_min = ru_rng_below(r, 5) == 0 ? 1 + ru_rng_below(r, j->replicas_max) : 0;
}

static void small_make(small *s, ru_rng *r, uint32_t n_jobs, uint32_t n_nodes, ru_alloc_method m)
{
    uint32_t left[NODES], spans[NODES] = {0};
    memset(s, 0, sizeof *s);
    for (uint32_t n = 0; n < n_nodes; n++) {
        left[n] = s->devices[n] = ru_rng_below(r, 8) == 0 ? 0 : 1 + ru_rng_below(r, 3);
    }
    for (uint32_t j = 0; j < n_jobs; j++) {
        ru_alloc_job *job = &s->jobs[j];
        job_make(job, r);
        job->now = s->now[j];
        uint32_t k = 0;
        for (uint32_t n = 0; n < n_nodes; n++) {
            uint32_t take = ru_rng_below(r, 3) == 0 ? ru_rng_below(r, left[n] + 1) : 0;
            take = k + take > job->replicas_max ? job->replicas_max - k : take;
            if (take > 0 && spans[n] == 0) {
                s->now[j][job->n_now++] = (ru_alloc_part){n, take};
                left[n] -= take;
                k += take;
            }
        }
        for (uint32_t i = 0; job->n_now > 1 && i < job->n_now; i++) {
            spans[s->now[j][i].node] = 1;
        }
        if (k < job->replicas_min) { /* not legal: it waits instead */
            for (uint32_t i = 0; i < job->n_now; i++) {
                left[s->now[j][i].node] += s->now[j][i].devices;
            }
            job->n_now = 0;
        }
    }
    s->in = (ru_alloc_in){.jobs = s->jobs,
                          .n_jobs = n_jobs,
                          .devices = s->devices,
                          .n_nodes = n_nodes,
                          .power = -1,
                          .restart_s = 30,
                          .seed = ru_rng_u64(r),
                          .method = m};
}

static ru_alloc_plan plan_of(const ru_alloc_in *in, ru_arena *a)
{
    ru_alloc_plan p = {0};
    ru_err err;
    assert_ok(ru_plan_alloc(in, a, a, &p, &err), err);
    assert_ok(ru_plan_alloc_check(in, &p, a, &err), err);
    return p;
}

typedef struct all {
    const small *s;
    uint32_t left[NODES], spans[NODES];
    int64_t best;
} all;

static double share_of(const ru_alloc_in *in, const ru_alloc_job *j, uint32_t k, bool several)
{
    uint32_t total = 0, most = 0;
    for (uint32_t n = 0; n < in->n_nodes; n++) {
        total += in->devices[n];
        most = in->devices[n] > most ? in->devices[n] : most;
    }
    uint32_t fair = (total + in->n_jobs - 1) / in->n_jobs;
    bool known = j->model.perf.overlap > 0;
    uint32_t feeds = ru_goodput_replicas_max(&j->model);
    fair = fair < 1 ? 1 : known && fair > feeds ? feeds : fair;
    double is = known ? ru_goodput_best(&j->model, several ? 2 : 1, k).goodput : k;
    double of = known ? ru_goodput_best(&j->model, fair > most ? 2 : 1, fair).goodput : fair;
    return is / of * in->n_nodes / total;
}

/* Every allocation of job after job. */
static void try_all(all *t, uint32_t j, int64_t loss)
{
    const ru_alloc_in *in = &t->s->in;
    if (loss >= t->best) {
        return;
    }
    if (j == in->n_jobs) {
        t->best = loss;
        return;
    }
    const ru_alloc_job *job = &in->jobs[j];
    double weight = 0;
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        weight += in->jobs[i].weight > 0 ? in->jobs[i].weight : 1;
    }
    weight = (job->weight > 0 ? job->weight : 1) * in->n_jobs / weight;
    weight *= weight; /* the mean of power -1 */
    uint32_t code = 0, codes = 1;
    for (uint32_t n = 0; n < in->n_nodes; n++) {
        codes *= 4;
    }
    for (; code < codes; code++) {
        uint32_t k = 0, parts = 0, same = 0, x = code;
        bool legal = true;
        for (uint32_t n = 0; n < in->n_nodes; n++, x /= 4) {
            legal = legal && x % 4 <= t->left[n];
            k += x % 4;
            parts += x % 4 > 0;
            for (uint32_t i = 0; i < job->n_now; i++) {
                same += x % 4 > 0 && job->now[i].node == n && job->now[i].devices == x % 4;
            }
        }
        legal = legal && k <= job->replicas_max && (k == 0 || k >= job->replicas_min);
        x = code;
        for (uint32_t n = 0; n < in->n_nodes; n++, x /= 4) {
            legal = legal && !(parts > 1 && x % 4 > 0 && t->spans[n] > 0);
        }
        if (!legal) {
            continue;
        }
        bool stays = same == parts && parts == job->n_now;
        double keep = stays || job->n_now == 0
                          ? 1
                          : fmax(0, job->age_s - 30 * job->restarts) / (job->age_s + 30);
        double s = k > 0 ? share_of(in, job, k, parts > 1) * keep : 0;
        x = code;
        for (uint32_t n = 0; n < in->n_nodes; n++, x /= 4) {
            t->left[n] -= x % 4;
            t->spans[n] += parts > 1 && x % 4 > 0;
        }
        try_all(t, j + 1, loss + (int64_t)(weight * 1e9 / (s + 1e-3) + 0.5));
        x = code;
        for (uint32_t n = 0; n < in->n_nodes; n++, x /= 4) {
            t->left[n] += x % 4;
            t->spans[n] -= parts > 1 && x % 4 > 0;
        }
    }
}

static void test_least_loss_of_all_allocations(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 11);
    uint32_t exact = 0, near = 0, rounds = 60;
    for (uint32_t round = 0; round < rounds; round++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        small s;
        small_make(&s, &r, 1 + ru_rng_below(&r, 4), 1 + ru_rng_below(&r, 3), RU_ALLOC_POLLUX);
        for (uint32_t j = 0; round % 2 == 1 && j < s.in.n_jobs; j++) {
            s.jobs[j].weight = 1 + ru_rng_below(&r, 4);
        }
        s.in.tries = 20000;
        ru_alloc_plan p = plan_of(&s.in, &a);
        all t = {.s = &s, .best = INT64_MAX};
        memcpy(t.left, s.devices, sizeof t.left);
        try_all(&t, 0, 0);
        double more = (double)(p.loss - t.best) / (double)t.best;
        assert_true(more > -1e-9);
        exact += more < 1e-9;
        near += more < 0.05;
        ru_arena_fini(&a);
    }
    assert_true(exact >= rounds * 9 / 10);
    assert_true(near >= rounds - 2);
}

static void test_every_method_is_legal_and_repeats(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 12);
    for (uint32_t round = 0; round < 300; round++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        small s;
        small_make(&s, &r, ru_rng_below(&r, JOBS + 1), 1 + ru_rng_below(&r, NODES),
                   round % RU_ALLOC_METHODS);
        s.in.power = 0.5 * ru_rng_below(&r, 7) - 2;
        for (uint32_t j = 0; s.in.power >= -1 && j < s.in.n_jobs; j++) {
            s.jobs[j].weight =
                ru_rng_below(&r, 3) == 0 ? 0 : ru_math_exp(ru_rng_uniform(&r, -9, 9));
        }
        s.in.hold_s = 240 * ru_rng_below(&r, 2);
        s.in.decay = 0.5 * ru_rng_below(&r, 3);
        s.in.decay_s = 14400;
        s.in.rush = 0.5 * ru_rng_below(&r, 3);
        for (uint32_t j = 0; j < s.in.n_jobs; j++) {
            double left = ru_math_exp(ru_rng_uniform(&r, 0, 25));
            s.jobs[j].left = ru_rng_below(&r, 3) == 0 ? 0 : left;
        }
        s.in.share_links = ru_rng_below(&r, 2) == 0;
        s.in.util_low = 0.3;
        s.in.util_high = ru_rng_below(&r, 2) * 0.6;
        s.in.time_price = 4 * ru_rng_below(&r, 2);
        s.in.nodes_max = 8;
        ru_alloc_plan p = plan_of(&s.in, &a), q = plan_of(&s.in, &a);
        assert_int_equal(p.loss, q.loss);
        assert_memory_equal(p.parts, q.parts, p.n_parts * sizeof *p.parts);
        ru_arena_fini(&a);
    }
}

/* The most that jobs can weigh: some of all weight, and with next to nothing left. */
static void test_losses_of_heavy_jobs_are_whole(void **state)
{
    (void)state;
    enum { MANY = 4000 };
    static const uint32_t one[] = {1};
    static ru_alloc_job jobs[MANY];
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(5, 3);
    job_make(&jobs[0], &r);
    jobs[0].model.perf.overlap = 1.3;
    jobs[0].replicas_min = jobs[0].n_now = 0;
    jobs[0].left = 1e-6;
    for (uint32_t j = 1; j < MANY; j++) {
        jobs[j] = jobs[0];
        jobs[j].weight = j % 100 == 0 ? 1e9 : 1;
    }
    const ru_alloc_in in = {.jobs = jobs,
                            .n_jobs = MANY,
                            .devices = one,
                            .n_nodes = 1,
                            .power = -1,
                            .decay_s = 14400,
                            .rush = 1,
                            .tries = 1000};
    ru_alloc_plan p = plan_of(&in, &a); /* whose check counts in doubles */
    assert_true(p.loss > INT64_C(3000000000000000000));
    ru_arena_fini(&a);
}

/* A job comes to a cluster that is full: few moves make room for it and leave nearly all others
 * where they are. */
static void test_few_moves_go_on_from_what_is(void **state)
{
    (void)state;
    enum { MANY = 120, HOSTS = 35 };
    static ru_alloc_job jobs[MANY + 1];
    static uint32_t devices[HOSTS];
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_rng r = ru_rng_from(7, 17);
    for (uint32_t j = 0; j <= MANY; j++) {
        job_make(&jobs[j], &r);
        jobs[j].replicas_min = 1;
        jobs[j].replicas_max = 8;
        jobs[j].n_now = 0;
    }
    for (uint32_t k = 0; k < HOSTS; k++) {
        devices[k] = 4;
    }
    ru_alloc_in in = {.jobs = jobs,
                      .n_jobs = MANY,
                      .devices = devices,
                      .n_nodes = HOSTS,
                      .power = -1,
                      .restart_s = 0.3,
                      .hold_s = 30,
                      .seed = 1};
    ru_alloc_plan before = plan_of(&in, &a);
    for (uint32_t j = 0; j < MANY; j++) {
        jobs[j].now = &before.parts[before.jobs[j].first];
        jobs[j].n_now = before.jobs[j].n_parts;
    }
    in.tries = 1;
    const int64_t is = plan_of(&in, &a).loss;
    for (in.seed = 1; in.seed <= 8; in.seed++) { /* none makes worse what is in force */
        in.tries = 1200;
        assert_true(plan_of(&in, &a).loss <= is);
    }
    in.seed = 1;
    in.n_jobs = MANY + 1;
    in.tries = 1; /* free devices go to who gains most: there are none */
    ru_alloc_plan one = plan_of(&in, &a);
    in.tries = 1200;
    ru_alloc_plan few = plan_of(&in, &a);
    uint32_t changed = 0, waits = 0; /* nobody in place of who came */
    for (uint32_t j = 0; j < MANY; j++) {
        changed += few.jobs[j].changed;
        waits += few.jobs[j].replicas == 0;
    }
    assert_true(few.jobs[MANY].replicas > 0 && waits == 0);
    assert_true(changed < MANY / 4);
    assert_true(one.jobs[MANY].replicas == 0 && few.loss < one.loss);
    ru_arena_fini(&a);
}

/* Two equal jobs for three devices: the one with less left gets two; a job that says nothing
 * counts as one with four device-hours. */
static void test_what_is_left_decides(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    static const uint32_t three[] = {3};
    ru_rng r = ru_rng_from(3, 3);
    ru_alloc_job jobs[2];
    job_make(&jobs[0], &r);
    jobs[0].model.perf.overlap = 1.3;
    jobs[0].replicas_max = 2;
    jobs[0].replicas_min = 0;
    jobs[0].service_s = 0;
    jobs[1] = jobs[0];
    ru_alloc_in in = {.jobs = jobs,
                      .n_jobs = 2,
                      .devices = three,
                      .n_nodes = 1,
                      .power = -1,
                      .decay_s = 14400,
                      .rush = 0.5};
    double rate = ru_goodput_best(&jobs[0].model, 1, 2).goodput;
    for (uint32_t k = 0; k < 3; k++) {
        jobs[0].left = k == 2 ? 0 : rate * 7200; /* four device-hours */
        jobs[1].left = rate * (k == 1 ? 72000 : 60);
        ru_alloc_plan p = plan_of(&in, &a);
        uint32_t first = k == 1 ? 0 : 1;
        assert_int_equal(p.jobs[first].replicas, 2);
        assert_int_equal(p.jobs[1 - first].replicas, 1);
    }
    ru_arena_fini(&a);
}

static const uint32_t four[] = {4, 4};

static ru_alloc_job asks(uint32_t replicas)
{
    return (ru_alloc_job){
        .model = {.batch_first = 1, .batch_max = 1000, .local_min = 1, .local_max = 1000},
        .replicas_max = 64,
        .replicas = replicas};
}

/* Three devices: one job has two, whose sums take time; the other has one and knows of no sums, so
 * it would gain more from the second one. They exchange it only if both go on for long enough:
 * steps take 40 and 64 ms now, and a restart takes a second. */
static void test_no_exchange_shortly_before_an_end(void **state)
{
    (void)state;
    static const uint32_t three[] = {3};
    static const ru_alloc_part two = {0, 2}, one = {0, 1};
    static const double left[][2] = {{0, 0}, {1e6, 1e6}, {50, 1e6}, {1e6, 30}, {50, 30}};
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(left); k++) {
        ru_alloc_job jobs[2];
        for (uint32_t j = 0; j < 2; j++) {
            const ru_perf perf = {
                .pass_example_s = 1e-3, .node_s = j == 0 ? 8e-3 : 0, .overlap = 1};
            jobs[j] = (ru_alloc_job){.model = {perf, 0, 0, 64, 64, 1, 64, 64, false},
                                     .replicas_max = 2,
                                     .age_s = 1000,
                                     .remaining = left[k][j],
                                     .now = j == 0 ? &two : &one,
                                     .n_now = 1};
        }
        const ru_alloc_in in = {.jobs = jobs,
                                .n_jobs = 2,
                                .devices = three,
                                .n_nodes = 1,
                                .power = -1,
                                .restart_s = 1,
                                .hold_s = 30};
        ru_alloc_plan p = plan_of(&in, &a);
        bool exchange = k < 2;
        assert_int_equal(p.jobs[0].replicas, exchange ? 1 : 2);
        assert_int_equal(p.jobs[1].replicas, exchange ? 2 : 1);
        assert_true(p.jobs[0].changed == exchange && p.jobs[1].changed == exchange);
    }
    ru_arena_fini(&a);
}

static void test_baselines_by_hand(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    static const ru_alloc_part second[] = {{1, 4}};
    static const double steps[] = {10, 6, 5, 4.8, 4.7};
    ru_alloc_job jobs[] = {asks(4), asks(6), asks(3), asks(4)};
    jobs[0].service_s = 60000;
    jobs[3].now = second;
    jobs[3].n_now = 1;
    ru_alloc_in in = {.jobs = jobs, .n_jobs = 4, .devices = four, .n_nodes = 2, .power = -1};
    /* upper queue: 6, then nothing of 3 and 4 fits beside it; lower queue: 4 does not either */
    in.method = RU_ALLOC_TIRESIAS;
    ru_alloc_plan p = plan_of(&in, &a);
    assert_int_equal(p.jobs[0].demoted, 1);
    assert_int_equal(p.jobs[1].replicas, 6);
    assert_int_equal(p.used, 6);
    /* who runs stays; then 4 fits, nothing else */
    in.method = RU_ALLOC_FIFO;
    p = plan_of(&in, &a);
    assert_int_equal(p.jobs[3].replicas, 4);
    assert_false(p.jobs[3].changed);
    assert_int_equal(p.jobs[0].replicas, 4);
    assert_int_equal(p.used, 8);
    /* shortest first: job 2 has 10 steps of 5 s, job 3 20 of 4.8 s */
    for (uint32_t i = 0; i < 4; i++) {
        jobs[i].step_s = steps;
        jobs[i].n_step = 5;
        jobs[i].remaining = i == 2 ? 10 : i == 3 ? 20 : 1000;
    }
    in.method = RU_ALLOC_SRTF;
    p = plan_of(&in, &a);
    assert_int_equal(p.jobs[2].replicas, 3);
    assert_int_equal(p.jobs[3].replicas, 4);
    assert_int_equal(p.used, 7);
    /* one each; of the four others: jobs 0 and 1 save 4,000 s, then 1,000 s, a third device 200 */
    in.method = RU_ALLOC_OPTIMUS;
    p = plan_of(&in, &a);
    assert_int_equal(p.jobs[0].replicas, 3);
    assert_int_equal(p.jobs[1].replicas, 3);
    assert_int_equal(p.jobs[2].replicas, 1);
    assert_int_equal(p.jobs[3].replicas, 1);
    ru_arena_fini(&a);
}

typedef struct bent {
    const small *s;
    ru_alloc_plan p;
    ru_alloc_share jobs[JOBS];
    ru_alloc_part parts[JOBS * NODES];
    uint32_t refused;
} bent;

static void refuse(bent *b, ru_arena *a)
{
    ru_err err;
    assert_int_not_equal(ru_plan_alloc_check(&b->s->in, &b->p, a, &err), RU_OK);
    assert_true(err.text[0] != '\0');
    b->refused++;
}

static void bend_u32(bent *b, uint32_t *at, ru_arena *a)
{
    static const uint32_t add[] = {1, UINT32_MAX, 1000000};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(add); i++) {
        uint32_t was = *at;
        *at += add[i];
        refuse(b, a);
        *at = was;
    }
}

static void bend_f64(bent *b, double *at, ru_arena *a)
{
    double was = *at;
    *at = was * 1.001 + 0.001;
    refuse(b, a);
    *at = -1;
    refuse(b, a);
    *at = was;
}

static void test_corrupted_plans_are_refused(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 13);
    for (uint32_t round = 0; round < 40; round++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        small s;
        small_make(&s, &r, 1 + ru_rng_below(&r, JOBS), 1 + ru_rng_below(&r, NODES),
                   round % RU_ALLOC_METHODS);
        bent b = {.s = &s, .p = plan_of(&s.in, &a)};
        memcpy(b.jobs, b.p.jobs, b.p.n_jobs * sizeof *b.jobs);
        memcpy(b.parts, b.p.parts, b.p.n_parts * sizeof *b.parts);
        b.p.jobs = b.jobs;
        b.p.parts = b.parts;
        for (uint32_t i = 0; i < b.p.n_jobs; i++) {
            ru_alloc_share *j = &b.jobs[i];
            bend_u32(&b, &j->n_parts, &a);
            bend_u32(&b, &j->replicas, &a);
            bend_u32(&b, &j->demoted, &a);
            bend_f64(&b, &j->speedup, &a);
            j->changed = !j->changed;
            refuse(&b, &a);
            j->changed = !j->changed;
            if (j->goodput > 0) {
                bend_f64(&b, &j->goodput, &a);
                bend_u32(&b, &j->local, &a);
                bend_u32(&b, &j->passes, &a);
            }
        }
        for (uint32_t k = 0; k < b.p.n_parts; k++) {
            bend_u32(&b, &b.parts[k].devices, &a);
            b.parts[k].node += 1000;
            refuse(&b, &a);
            b.parts[k].node -= 1000;
        }
        bend_u32(&b, &b.p.n_jobs, &a);
        bend_u32(&b, &b.p.devices, &a);
        bend_u32(&b, &b.p.used, &a);
        bend_u32(&b, &b.p.nodes_wanted, &a);
        bend_f64(&b, &b.p.fitness, &a);
        bend_f64(&b, &b.p.utility, &a);
        b.p.loss += 1 + b.p.n_jobs + (b.p.loss > 0 ? b.p.loss / 100000 : 0);
        refuse(&b, &a);
        assert_true(b.refused > 15);
        ru_arena_fini(&a);
    }
}

static void test_facts_that_are_none_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    static const ru_alloc_part twice[] = {{1, 1}, {1, 2}}, outside[] = {{2, 1}};
    ru_alloc_job job = asks(1);
    ru_alloc_in good = {.jobs = &job, .n_jobs = 1, .devices = four, .n_nodes = 2, .power = -1};
    ru_alloc_plan p;
    ru_err err;
    for (uint32_t k = 0; k < 9; k++) {
        ru_alloc_in in = good;
        job = asks(1);
        in.power = k == 0 ? RU_NAN : in.power;
        in.n_nodes = k == 1 ? 0 : 2;
        in.restart_s = k == 2 ? -1 : 30;
        job.replicas_max = k == 3 ? 0 : 64;
        job.model.local_min = k == 4 ? 0 : k == 5 ? 1001 : 1;
        job.age_s = k == 6 ? RU_NAN : 0;
        job.now = k == 7 ? twice : outside;
        job.n_now = k == 7 ? 2 : k == 8 ? 1 : 0;
        assert_int_equal(ru_plan_alloc(&in, &a, &a, &p, &err), RU_E_ARG);
        assert_true(err.text[0] != '\0');
    }
    ru_arena_fini(&a);
}

/* Two hosts of two devices and one; steps of rank 0 by numbers of workers. */
static void test_facts_of_a_cluster_give_a_question(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    const ru_cluster_host hosts[] = {{.name = "a"}, {.name = "b"}};
    const ru_cluster_device devices[] = {
        {.name = "a0", .host = "a"}, {.name = "b0", .host = "b"}, {.name = "a1", .host = "a"}};
    const ru_world_job jobs[] = {{.name = "x", .batch = 32, .workers_min = 1, .workers_max = 3},
                                 {.name = "y", .workers_min = 2}};
    const ru_step_fact steps[] = {
        {.job = "x", .workers = 1, .samples = 32, .took = {.count = 9, .mean_ns = 1e9}},
        {.job = "x", .rank = 1, .workers = 3, .samples = 10, .took = {.count = 9, .mean_ns = 1e9}},
        {.job = "x",
         .workers = 3,
         .samples = 11,
         .compute_ns = 25e7,
         .gradient_noise = 64,
         .took = {.count = 9, .mean_ns = 5e8}}};
    ru_world w = {.cluster = {.hosts = {hosts, 2}, .devices = {devices, 3}},
                  .jobs = {jobs, 2},
                  .facts = {.steps = {steps, 3}}};
    ru_text text = ru_text_arena(&a);
    ru_json j = ru_json_into(&text);
    ru_json_open(&j, NULL, '{');
    assert_ok(ru_policy_alloc.derive(&w, &a, &j, &err), err);
    ru_json_close(&j);
    assert_string_equal(
        text.p, "{\"nodes\":[2,1],\"jobs\":[{\"name\":\"x\",\"replicas_min\":1,\"replicas\":3,"
                "\"replicas_max\":3,\"measured\":["
                "{\"nodes\":1,\"replicas\":1,\"local\":32,\"pass\":1,\"step\":1},"
                "{\"nodes\":2,\"replicas\":3,\"local\":11,\"pass\":0.25,\"step\":0.5}],"
                "\"batch_first\":32,\"batch_max\":32,\"batch\":32,\"sqr\":1,\"var\":2},"
                "{\"name\":\"y\",\"replicas_min\":2,\"measured\":[]}]}");
    w.cluster.devices.n = 0;
    assert_int_equal(ru_policy_alloc.derive(&w, &a, &j, &err), RU_E_MISSING);
    ru_arena_fini(&a);
}

RU_TESTS(plan_alloc, cmocka_unit_test(test_facts_of_a_cluster_give_a_question),
         cmocka_unit_test(test_least_loss_of_all_allocations),
         cmocka_unit_test(test_every_method_is_legal_and_repeats),
         cmocka_unit_test(test_losses_of_heavy_jobs_are_whole),
         cmocka_unit_test(test_what_is_left_decides),
         cmocka_unit_test(test_no_exchange_shortly_before_an_end),
         cmocka_unit_test(test_few_moves_go_on_from_what_is),
         cmocka_unit_test(test_baselines_by_hand),
         cmocka_unit_test(test_corrupted_plans_are_refused),
         cmocka_unit_test(test_facts_that_are_none_are_refused))
