/* Records of a whole job in the simulator: each transfer and sum is recorded at all its ends under
 * one flow, in virtual time, and the same seed writes the same bytes. */
#include "test/scratch.h"
#include "test/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "lab/job.h"
#include "trace/read/cause.h"
#include "trace/read/clock.h"
#include "trace/read/predicted.h"

enum { WORKERS = 3, STEPS = 8 };

static const char *simulate(ru_scratch *f, const char *name, uint64_t seed)
{
    const char *dir = ru_path_join(&f->arena, f->root, name);
    const ru_sim_job job = {.seed = seed,
                            .founders = WORKERS,
                            .steps = STEPS,
                            .batch = 48,
                            .n_tensors = 4,
                            .tensor_n = (const int64_t[]){300000, 20000, 100, 5},
                            .counted = true,
                            .sample_ns = 100000,
                            .trace_dir = dir};
    ru_sim_job_result r;
    assert_ok(ru_sim_job_run(&job, &r, &f->err), f->err);
    assert_int_equal(r.committed, STEPS);
    return dir;
}

typedef struct end {
    const ru_record *record;
    const ru_record_more *more;
    uint32_t at; /* which trace */
} end;

static uint32_t collect(const ru_trace *traces, uint32_t n, ru_rec_kind kind, end *into)
{
    uint32_t found = 0;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < traces[k].n_threads; i++) {
            const ru_trace_thread *t = &traces[k].threads[i];
            for (int64_t r = 0; r < t->n; r++) {
                const ru_record_more *m = ru_trace_more(t, &t->records[r]);
                if (t->records[r].kind == kind && (m->flags & RU_REC_FAILED) == 0) {
                    into[found++] = (end){&t->records[r], m, k};
                }
            }
        }
    }
    return found;
}

static void test_flows_join(void **state)
{
    ru_scratch *f = *state;
    ru_trace *t;
    uint32_t n;
    assert_ok(ru_trace_run_load(simulate(f, "a", 7), &f->arena, &t, &n, &f->err), f->err);
    assert_int_equal(n, WORKERS);
    enum { ENDS_MAX = 4096 };
    end *sends = RU_NEW(&f->arena, end, ENDS_MAX), *recvs = RU_NEW(&f->arena, end, ENDS_MAX);
    uint32_t n_sends = collect(t, n, RU_REC_SEND, sends);
    uint32_t n_recvs = collect(t, n, RU_REC_RECV, recvs);
    assert_true(n_recvs > STEPS * 4);
    uint32_t streams = 0;
    for (uint32_t i = 0; i < n_recvs; i++) {
        const end *r = &recvs[i], *s = NULL;
        for (uint32_t k = 0; k < n_sends; k++) {
            s = sends[k].more->flow == r->more->flow ? &sends[k] : s;
        }
        assert_non_null(s);
        assert_true(s->more->peer == t[r->at].node && r->more->peer == t[s->at].node);
        assert_int_equal(s->record->value, r->record->value);
        assert_true(s->record->start_ns <= r->record->start_ns);
        assert_true(s->record->start_ns + s->more->wait_ns <=
                    r->record->start_ns + r->record->dur_ns);
        if ((s->more->flags & RU_REC_MESSAGE) != 0) {
            assert_int_equal(s->more->rank, r->more->rank);
            continue;
        }
        assert_int_equal(s->more->step, r->more->step);
        assert_int_equal(s->more->chan_class, r->more->chan_class);
        assert_int_equal(s->record->plan, r->record->plan);
        const char *a = t[s->at].names[s->more->label].name;
        assert_string_equal(a, t[r->at].names[r->more->label].name);
        streams += s->record->plan != 0 && strncmp(a, "gradients ", 10) == 0;
    }
    assert_true(streams >= STEPS * (WORKERS - 1)); /* those of sums, by their plan */

    ru_trace_clocks c;
    assert_ok(ru_trace_align(t, n, &f->arena, &c, &f->err), f->err);
    assert_int_equal(c.flows, n_recvs);
    assert_int_equal(c.before, 0);
    for (uint32_t k = 0; k < n; k++) {
        assert_true(c.measured[k]); /* all processes of the simulator have one clock */
        int64_t wrong = ru_trace_global(&c, k, t[k].last_ns) - t[k].last_ns;
        assert_true(llabs(wrong) <= ru_trace_bound(&c, k, t[k].last_ns));
    }
}

/* Each sum has one record on every member, of the same step and bytes. */
static void test_sums_join(void **state)
{
    ru_scratch *f = *state;
    ru_trace *t;
    uint32_t n;
    assert_ok(ru_trace_run_load(simulate(f, "a", 7), &f->arena, &t, &n, &f->err), f->err);
    enum { SUMS_MAX = 1024 };
    end *sums = RU_NEW(&f->arena, end, SUMS_MAX);
    uint32_t n_sums = collect(t, n, RU_REC_SUM, sums);
    assert_true(n_sums >= STEPS * WORKERS);
    for (uint32_t i = 0; i < n_sums; i++) {
        uint32_t seen = 0;
        for (uint32_t k = 0; k < n_sums; k++) {
            if (sums[k].more->flow == sums[i].more->flow) {
                seen |= 1u << sums[k].at;
                assert_int_equal(sums[k].more->step, sums[i].more->step);
                assert_int_equal(sums[k].record->value, sums[i].record->value);
            }
        }
        assert_int_equal(seen, (1u << WORKERS) - 1);
        assert_true(sums[i].record->predicted_ns > 0);
    }
}

static void test_same_seed_same_bytes(void **state)
{
    ru_scratch *f = *state;
    const char *dirs[2] = {simulate(f, "a", 7), simulate(f, "b", 7)};
    for (uint32_t k = 0; k < WORKERS; k++) {
        char name[32], *data[2];
        int64_t size[2];
        snprintf(name, sizeof name, "rank%u.trace", k);
        for (uint32_t d = 0; d < 2; d++) {
            const char *path = ru_path_join(&f->arena, dirs[d], name);
            assert_ok(ru_file_read(path, 0, &f->arena, &data[d], &size[d], &f->err), f->err);
        }
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(data[0], data[1], (size_t)size[0]);
    }
}

typedef struct errors {
    ru_predictor_error at[RU_PREDICTORS_MAX];
    uint32_t n;
} errors;

/* Of what a job predicts whose gradients are those tensors, on links of 1 Gbit/s. */
static void predict(ru_scratch *f, const ru_sim_job *more, errors *into)
{
    ru_sim_job job = *more;
    ru_sim_job_result r;
    ru_trace *t;
    ru_trace_clocks c;
    uint32_t n;
    job.seed = 11;
    job.steps = 24;
    job.batch = 48;
    job.sample_ns = 100000;
    job.nic = (ru_sim_nic){.bytes_per_s = 1.25e8, .delay_ns = 50000};
    job.trace_dir = ru_path_join(&f->arena, f->root, "job");
    assert_ok(ru_sim_job_run(&job, &r, &f->err), f->err);
    assert_ok(ru_trace_run_load(job.trace_dir, &f->arena, &t, &n, &f->err), f->err);
    assert_ok(ru_trace_align(t, n, &f->arena, &c, &f->err), f->err);
    assert_ok(ru_trace_predicted(t, n, &c, 0, &f->arena, into->at, &into->n, &f->err), f->err);
}

static void within(const errors *e, const char *predictor, int64_t n_min, double median, double p95)
{
    for (uint32_t k = 0; k < e->n; k++) {
        if (strcmp(e->at[k].predictor, predictor) == 0) {
            assert_true(e->at[k].n >= n_min);
            assert_true(e->at[k].median <= median);
            assert_true(e->at[k].p95 <= p95);
            return;
        }
    }
    fail_msg("nobody predicted '%s'", predictor);
}

/* A link with nothing else to do: each transfer waits only for those of its sender that were known
 * when it was sent. */
static void test_predicted_transfers(void **state)
{
    const ru_sim_job job = {.founders = 2,
                            .sums = RU_SUMS_SERIAL, /* one sum for each gradient */
                            .n_tensors = 1,
                            .tensor_n = (const int64_t[]){2000000},
                            .counted = true,
                            .deterministic = true};
    errors e;
    predict(*state, &job, &e);
    within(&e, "link", 400, 0.005, 0.05); /* 0.01, 0.073 without what receivers said before */
}

/* By the costs that the members measured before the first step, and by the steps before; sums that
 * wait for others as well. */
static void test_predicted_sums(void **state)
{
    ru_sim_job job = {.founders = 4,
                      .sums = RU_SUMS_SERIAL,
                      .n_tensors = 1,
                      .tensor_n = (const int64_t[]){1000000, 400000, 300000}};
    errors e;
    predict(*state, &job, &e);
    within(&e, "coll", 24, 0.01, 0.05); /* by the costs alone 0.021, 0.026 */
    within(&e, "link", 1700, 0.05, 0.15);
    job.founders = 2;
    job.n_tensors = 3;
    predict(*state, &job, &e);
    within(&e, "coll", 3 * 24, 0.01, 0.10);  /* 0.059, 0.119 */
    within(&e, "coll step", 24, 0.01, 0.05); /* 0.062, 0.062 */
    within(&e, "link", 800, 0.03, 0.12);     /* 0.065, 0.669 */
}

/* The link of worker `at` carries a quarter, from the start on. */
typedef struct slow {
    ru_sim *sim;
    uint32_t at;
} slow;

static void slow_now(void *self, uint64_t arg)
{
    const slow *s = self;
    (void)arg;
    ru_sim_slow_link(s->sim, s->at, 0.25);
}

static void slow_open(void *self, ru_sim *sim)
{
    slow *s = self;
    s->sim = sim;
    (void)ru_sim_at(sim, (ru_time){1000000}, slow_now, s, 0);
}

static void slow_step(void *self, uint32_t worker, ru_sim_fn fed, void *fed_self, uint64_t arg)
{
    (void)self;
    (void)worker;
    fed(fed_self, arg);
}

static void slow_reads(void *self, uint32_t worker, ru_elastic_reads *into)
{
    (void)self;
    (void)worker;
    *into = (ru_elastic_reads){0};
}

/* When the link of one of 3 to 5 workers is slow both ways, it is named, whatever way the sums go
 * by the network's costs. Nobody can tell of two; where one of them adds for all, its own link may
 * carry as little to each. Nobody else is accused. */
static void test_causes_of_simulated_links(void **state)
{
    ru_scratch *f = *state;
    for (uint32_t k = 0; k < 8; k++) {
        uint32_t workers = 2 + k % 4, servers = k / 4;
        slow s = {.at = workers - 1};
        const ru_sim_input input = {
            .open = slow_open, .step = slow_step, .reads = slow_reads, .self = &s};
        char name[16];
        snprintf(name, sizeof name, "slow%u", k);
        const ru_sim_job job = {.seed = 3 + k,
                                .founders = workers,
                                .steps = 24,
                                .batch = 60,
                                .sums = RU_SUMS_SERIAL,
                                .n_tensors = 6,
                                .tensor_n =
                                    (const int64_t[]){100000, 80000, 90000, 100000, 90000, 100000},
                                .counted = true,
                                .equal_shares = true,
                                .sample_ns = 100000,
                                .nic = {.bytes_per_s = 1.25e8, .delay_ns = 50000},
                                .pace = {.servers = servers},
                                .input = &input,
                                .trace_dir = ru_path_join(&f->arena, f->root, name)};
        ru_sim_job_result r;
        ru_trace *t;
        ru_trace_clocks c;
        ru_cause causes[RU_CAUSES_MAX];
        uint32_t n, n_causes;
        assert_ok(ru_sim_job_run(&job, &r, &f->err), f->err);
        assert_ok(ru_trace_run_load(job.trace_dir, &f->arena, &t, &n, &f->err), f->err);
        assert_ok(ru_trace_align(t, n, &f->arena, &c, &f->err), f->err);
        ru_rank_steps *steps = RU_NEW(&f->arena, ru_rank_steps, n);
        assert_ok(ru_trace_steps(t, n, &c, &f->arena, steps, &f->err), f->err);
        assert_ok(ru_trace_causes(t, steps, n, &c, &f->arena, causes, &n_causes, &f->err), f->err);
        if (workers > 2 && servers == 0) {
            assert_int_equal(n_causes, 1);
        }
        for (uint32_t i = 0; i < n_causes; i++) {
            assert_int_equal(causes[i].kind, RU_CAUSE_LINK);
            assert_int_equal(causes[i].trace, s.at);
        }
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(test_trace_flow, T(test_flows_join), T(test_sums_join), T(test_same_seed_same_bytes),
         T(test_predicted_transfers), T(test_predicted_sums), T(test_causes_of_simulated_links))
