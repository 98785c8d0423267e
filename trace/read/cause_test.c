/* Runs drawn from a seed, with noise, each with one planted cause or none: the cause is named, and
 * nothing else. */
#include "test/test.h"
#include "trace/read/cause.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum {
    RANKS_MAX = 6,
    STEPS = 80,
    SEEDS = 20,
    PER_STEP = 192,
    CHUNKS = 8,
    SINCE = 30,
    SAMPLES = 600
};
enum { N_OP, N_STEP, N_SUMS, N_INPUT, N_SEND, N_RECV, N_LATE, NAMES };
enum { RING_BYTES = 400000, OP_NS = 6000000 };

static const ru_trace_name names[NAMES] = {
    {"op", "Gemm"},     {"train", "step"},     {"train", "sums of gradients"}, {"train", "input"},
    {"send", "normal"}, {"receive", "normal"}, {"env", "timer late"}};

/* What rank `rank` suffers from step `since` on. */
typedef struct plant {
    double compute, out, in, all, ops; /* times as long; all, ops: of all ranks */
    bool shares; /* the slow rank gets as many samples fewer, from three steps later on */
    bool turns;  /* it sends in even steps alone, and receives in odd ones, each rank to all in turn
                  */
    int64_t every;  /* step of so many in which its transfers are slow; 0: in all */
    int64_t bursts; /* step of so many in which they are not; 0: in none */
    bool early;     /* its ops take longer from the first step on */
    bool beside;    /* all begin their sums before the ops */
    int64_t input_ns, start_ns;
    int64_t pause_ns; /* its process stands still so long in every second step, while it computes */
    bool star;        /* all send to rank 0, which sends to all then; else a ring */
    uint32_t rank;
    int64_t since;
} plant;

typedef struct run {
    ru_arena arena;
    ru_record *records[RANKS_MAX];
    int64_t n[RANKS_MAX];
    ru_trace_thread threads[RANKS_MAX];
    ru_trace traces[RANKS_MAX];
    ru_rank_steps steps[RANKS_MAX];
    ru_cause causes[RU_CAUSES_MAX];
    uint32_t n_causes;
} run;

static void put(run *r, uint32_t k, uint16_t name, ru_rec_kind kind, int64_t from, int64_t to,
                int64_t value, const ru_record_more *more)
{
    ru_record *at = &r->records[k][r->n[k]++];
    *at = (ru_record){.start_ns = from,
                      .dur_ns = (uint32_t)(to - from),
                      .name = name,
                      .kind = (uint16_t)kind,
                      .value = value};
    if (more != NULL) {
        memcpy(&r->records[k][r->n[k]++], more, sizeof *more);
    }
}

static double noise(ru_rng *rng)
{
    return 1 + 0.2 * (ru_rng_f64(rng) - 0.5);
}

/* RING_BYTES from one rank to another, and when they are there. */
static int64_t move(run *r, uint32_t from, uint32_t to, const plant *p, int64_t step, ru_rng *rng,
                    int64_t at)
{
    bool on = step >= p->since && (p->bursts == 0 || step % p->bursts != 0);
    double slow = step >= p->since && p->all > 0 ? p->all : 1;
    bool out_on = on && (p->every == 0 || step % p->every == 0);
    slow *= out_on && from == p->rank && p->out > 0 ? p->out : 1;
    slow = fmax(slow, on && to == p->rank && p->in > 0 ? p->in : 1);
    int64_t took = (int64_t)(4000000 * noise(rng) * slow);
    for (uint32_t i = 0; i < CHUNKS; i++) { /* the kernel takes each at once */
        uint64_t pair = ((uint64_t)step * RANKS_MAX + from) * RANKS_MAX + to;
        ru_record_more m = {.flow = pair * CHUNKS + i,
                            .peer = 100 + to,
                            .step = (uint32_t)step,
                            .kind = RU_REC_MORE};
        int64_t there = at + 50000 + took * (i + 1) / CHUNKS;
        put(r, from, N_SEND, RU_REC_SEND, at, at + 40000, RING_BYTES / CHUNKS, &m);
        m.peer = 100 + from;
        put(r, to, N_RECV, RU_REC_RECV, there - 3000, there, RING_BYTES / CHUNKS, &m);
    }
    return at + took + 100000;
}

static int64_t draw_ring(run *r, uint32_t n, const plant *p, int64_t step, ru_rng *rng, int64_t at)
{
    int64_t end = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t to = (k + 1 + (p->turns ? (uint32_t)(step / 2) % (n - 1) : 0)) % n;
        bool rests = p->turns && (step % 2 == 0 ? to == p->rank : k == p->rank);
        int64_t there = rests ? at : move(r, k, to, p, step, rng, at);
        end = there > end ? there : end;
    }
    return end;
}

static int64_t draw_star(run *r, uint32_t n, const plant *p, int64_t step, ru_rng *rng, int64_t at)
{
    int64_t end = 0, summed = 0;
    for (uint32_t k = 1; k < n; k++) {
        int64_t there = move(r, k, 0, p, step, rng, at);
        summed = there > summed ? there : summed;
    }
    for (uint32_t k = 1; k < n; k++) {
        int64_t there = move(r, 0, k, p, step, rng, summed);
        end = there > end ? there : end;
    }
    return end;
}

/* One step of a ring or star of n ranks that sum one bucket; now[k] moves to the end of rank k's
 * step. */
static void draw_step(run *r, uint32_t n, const plant *p, int64_t step, ru_rng *rng, int64_t *now)
{
    int64_t begun[RANKS_MAX], start[RANKS_MAX], all = 0, end;
    bool on = step >= p->since;
    for (uint32_t k = 0; k < n; k++) {
        bool it = on && k == p->rank;
        start[k] = now[k];
        int64_t input = (int64_t)(20000 * noise(rng)) + (it ? p->input_ns : 0);
        int64_t op =
            (int64_t)(OP_NS * noise(rng) *
                      ((it || (p->early && k == p->rank)) && p->compute > 0 ? p->compute : 1) *
                      (on && p->ops > 0 ? p->ops : 1));
        double share = p->shares && it && step >= p->since + 3 ? 1 / p->compute : 1;
        op = (int64_t)((double)op * share);
        if (it && p->pause_ns > 0 && step % 2 == 0) {
            put(r, k, N_LATE, RU_REC_ASYNC, now[k] + input, now[k] + input + p->pause_ns, 0, NULL);
            op += p->pause_ns;
        }
        put(r, k, N_INPUT, p->shares ? RU_REC_SPAN : RU_REC_WAIT, now[k], now[k] + input,
            p->shares ? (int64_t)(SAMPLES * share) : 0, NULL);
        put(r, k, N_OP, RU_REC_SPAN, now[k] + input, now[k] + input + op, 0, NULL);
        begun[k] = now[k] + input + op;
        all = begun[k] > all ? begun[k] : all;
    }
    end = p->star ? draw_star(r, n, p, step, rng, all) : draw_ring(r, n, p, step, rng, all);
    for (uint32_t k = 0; k < n; k++) {
        ru_record_more m = {.flow = 5, .step = (uint32_t)step, .kind = RU_REC_MORE};
        int64_t from = p->beside ? start[k] + 500 : begun[k] - 1000;
        put(r, k, N_SUMS, RU_REC_SUM, from, end, RING_BYTES, &m);
        put(r, k, N_SUMS, RU_REC_WAIT, begun[k], end, 0, NULL);
        put(r, k, N_STEP, RU_REC_SPAN, start[k], end, step + 1, NULL);
        now[k] = end;
    }
}

static void draw(run *r, uint32_t n, const plant *p, uint64_t seed)
{
    ru_rng rng = ru_rng_from(seed, 9);
    ru_err err = {0};
    int64_t now[RANKS_MAX], first[RANKS_MAX];
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    for (uint32_t k = 0; k < n; k++) {
        r->records[k] = RU_NEW(&r->arena, ru_record, STEPS * PER_STEP);
        first[k] = now[k] = 1000000000 + (k == p->rank ? p->start_ns : 0);
    }
    for (int64_t s = 0; s < STEPS; s++) {
        draw_step(r, n, p, s, &rng, now);
    }
    for (uint32_t k = 0; k < n; k++) {
        r->threads[k] = (ru_trace_thread){.name = "main", .records = r->records[k], .n = r->n[k]};
        r->traces[k] = (ru_trace){.process = "rubato",
                                  .rank = k,
                                  .names = names,
                                  .n_names = NAMES,
                                  .threads = &r->threads[k],
                                  .n_threads = 1,
                                  .node = 100 + k,
                                  .records = r->n[k],
                                  .first_ns = first[k],
                                  .last_ns = now[k]};
    }
    assert_ok(ru_trace_steps(r->traces, n, NULL, &r->arena, r->steps, &err), err);
    assert_ok(
        ru_trace_causes(r->traces, r->steps, n, NULL, &r->arena, r->causes, &r->n_causes, &err),
        err);
}

/* In every seed the first cause is this one; how many times anything else was named too. */
static void check(const plant *p, uint32_t n, ru_cause_kind kind, double factor, const char *text)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run r;
        draw(&r, n, p, seed);
        assert_int_equal(r.n_causes, 1);
        assert_int_equal(r.causes[0].kind, kind);
        assert_int_equal(r.causes[0].trace, p->all > 0 ? RU_STEP_NOBODY : p->rank);
        if (p->since > 0) {
            assert_in_range(r.causes[0].since_step, SINCE - 1, SINCE + 3);
        }
        assert_true(fabs(r.causes[0].factor / factor - 1) < 0.12);
        assert_true(r.causes[0].cost > 0.05 && r.causes[0].cost < 1);
        ru_text t = ru_text_arena(&r.arena);
        ru_cause_print(&r.causes[0], r.traces, &t);
        assert_non_null(strstr(t.p, text));
        ru_arena_fini(&r.arena);
    }
}

static void test_clean(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= RANKS_MAX; n++) {
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            run r;
            draw(&r, n, &(plant){.rank = 0}, seed);
            assert_int_equal(r.n_causes, 0);
            ru_arena_fini(&r.arena);
        }
    }
}

static void test_slow_rank(void **state)
{
    (void)state;
    const plant later = {.compute = 2, .rank = 1, .since = SINCE},
                always = {.compute = 2, .rank = 2};
    check(&later, 4, RU_CAUSE_COMPUTE, 2, "Rank 1 computes");
    check(&always, 4, RU_CAUSE_COMPUTE, 2, "as the others; this");
    check(&later, 2, RU_CAUSE_COMPUTE, 2, "since step");
}

/* Shares that follow the speeds leave nobody waiting, and the rank still costs a part of the work.
 */
static void test_slow_rank_with_less_work(void **state)
{
    (void)state;
    const plant p = {.compute = 3, .rank = 1, .since = SINCE, .shares = true};
    check(&p, 4, RU_CAUSE_COMPUTE, 3, "Rank 1 computes");
}

static void test_slow_alone(void **state)
{
    (void)state;
    const plant p = {.compute = 1.6, .since = SINCE};
    check(&p, 1, RU_CAUSE_COMPUTE, 1.6, "as before since step");
}

static void test_slow_disk(void **state)
{
    (void)state;
    const plant p = {.input_ns = 3000000, .rank = 3};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run r;
        draw(&r, 4, &p, seed);
        assert_int_equal(r.n_causes, 1);
        assert_int_equal(r.causes[0].kind, RU_CAUSE_INPUT);
        assert_int_equal(r.causes[0].trace, 3);
        assert_true(fabs(r.causes[0].cost - 0.22) < 0.05);
        ru_arena_fini(&r.arena);
    }
}

static void test_transfers(void **state)
{
    (void)state;
    const plant sender = {.out = 4, .rank = 2}, link = {.out = 2, .in = 2, .rank = 1};
    check(&sender, 4, RU_CAUSE_PATH, 4, "The link from rank 2 to rank 3 carries 2");
    check(&sender, 6, RU_CAUSE_PATH, 4, "The link from rank 2 to rank 3 carries 2");
    check(&link, 5, RU_CAUSE_LINK, 2, "in both directions");
    const plant later = {.out = 4, .rank = 2, .since = SINCE},
                half = {.out = 2, .in = 2, .rank = 1, .since = SINCE};
    check(&later, 4, RU_CAUSE_PATH, 4, "since step");
    check(&half, 4, RU_CAUSE_LINK, 2, "in both directions since step");
}

/* Bins in which it sends are not those in which it receives: its link all the same. */
static void test_link_in_turns(void **state)
{
    (void)state;
    const plant p = {.out = 3, .in = 3, .rank = 1, .turns = true};
    check(&p, 5, RU_CAUSE_LINK, 3, "in both directions");
}

/* A bucket of tokens that has rested lets some steps pass at full speed. */
static void test_link_with_bursts(void **state)
{
    (void)state;
    const plant p = {.out = 2, .in = 2, .rank = 1, .since = SINCE, .bursts = 3};
    check(&p, 4, RU_CAUSE_LINK, 2, "in both directions since step");
}

/* Ops that were slow before do not explain transfers that became slow later. */
static void test_link_of_slow_rank(void **state)
{
    (void)state;
    const plant p = {
        .compute = 1.35, .early = true, .out = 1.9, .in = 1.9, .rank = 1, .since = SINCE};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run r;
        draw(&r, 4, &p, seed);
        assert_true(r.n_causes >= 1);
        assert_int_equal(r.causes[0].kind, RU_CAUSE_LINK);
        assert_int_equal(r.causes[0].trace, 1);
        assert_in_range(r.causes[0].since_step, SINCE - 1, SINCE + 3);
        ru_arena_fini(&r.arena);
    }
}

/* Where sums begin before the ops nobody is seen to wait; the steps are longer all the same. */
static void test_slow_rank_beside_sums(void **state)
{
    (void)state;
    const plant p = {.compute = 2, .rank = 1, .since = SINCE, .beside = true};
    check(&p, 4, RU_CAUSE_COMPUTE, 2, "since step");
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run r;
        draw(&r, 4, &p, seed);
        double before = OP_NS + 4.2e6, after = 2 * OP_NS + 4.2e6;
        assert_true(fabs(r.causes[0].cost - (1 - before / after)) < 0.05);
        ru_arena_fini(&r.arena);
    }
}

/* A processor that is as slow as the transfers explains them; transfers that are much slower are a
 * cause of their own. */
static void test_slow_rank_with_slow_transfers(void **state)
{
    (void)state;
    const plant both = {.compute = 2, .out = 2.5, .in = 2.5, .rank = 1};
    check(&both, 4, RU_CAUSE_COMPUTE, 2, "Rank 1 computes");
    const plant in = {.compute = 2, .in = 2.5, .rank = 1}; /* rank 0 sends to it alone */
    check(&in, 4, RU_CAUSE_COMPUTE, 2, "Rank 1 computes");
    const plant apart = {.compute = 2, .out = 8, .in = 8, .rank = 1};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run r;
        draw(&r, 4, &apart, seed);
        assert_int_equal(r.n_causes, 2);
        assert_int_equal(r.causes[0].kind, RU_CAUSE_LINK);
        assert_int_equal(r.causes[1].kind, RU_CAUSE_COMPUTE);
        ru_arena_fini(&r.arena);
    }
}

/* The mean of rare slow transfers says nothing of a rate. */
static void test_rare_transfers(void **state)
{
    (void)state;
    const plant p = {.out = 20, .rank = 2, .every = 7};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run r;
        draw(&r, 4, &p, seed);
        assert_int_equal(r.n_causes, 0);
        ru_arena_fini(&r.arena);
    }
}

static void test_network(void **state)
{
    (void)state;
    const plant p = {.all = 2, .since = SINCE};
    check(&p, 4, RU_CAUSE_NETWORK, 1.98, "since step");
}

/* All became slower: other programs need the processors, and the network is not to blame. */
static void test_machine(void **state)
{
    (void)state;
    const plant p = {.all = 2, .ops = 1.6, .since = SINCE};
    check(&p, 4, RU_CAUSE_MACHINE, 1.6, "ops take 1.");
    check(&p, 2, RU_CAUSE_MACHINE, 1.6, "as when other programs");
}

/* The same processes recorded a second time, after a pause: none of them began late. */
static void test_again(void **state)
{
    (void)state;
    enum { N = 2 };
    const int64_t pause_ns = 50000000000;
    run r;
    ru_err err = {0};
    draw(&r, N, &(plant){.rank = 0}, 1);
    for (uint32_t k = 0; k < N; k++) {
        ru_record *again = RU_NEW(&r.arena, ru_record, r.n[k]);
        memcpy(again, r.records[k], (size_t)r.n[k] * sizeof *again);
        for (int64_t i = 0; i < r.n[k]; i++) {
            again[i].start_ns += again[i].kind == RU_REC_MORE ? 0 : pause_ns;
            again[i].value += again[i].kind == RU_REC_SPAN && again[i].name == N_STEP ? STEPS : 0;
        }
        r.threads[N + k] = (ru_trace_thread){.name = "main", .records = again, .n = r.n[k]};
        r.traces[N + k] = r.traces[k];
        r.traces[N + k].threads = &r.threads[N + k];
        r.traces[N + k].first_ns += pause_ns;
        r.traces[N + k].last_ns += pause_ns;
    }
    assert_ok(ru_trace_steps(r.traces, 2 * N, NULL, &r.arena, r.steps, &err), err);
    assert_ok(
        ru_trace_causes(r.traces, r.steps, 2 * N, NULL, &r.arena, r.causes, &r.n_causes, &err),
        err);
    assert_int_equal(r.n_causes, 0);
    ru_arena_fini(&r.arena);
}

static void test_late_start(void **state)
{
    (void)state;
    const plant p = {.start_ns = 800000000, .rank = 2};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run r;
        draw(&r, 4, &p, seed);
        assert_int_equal(r.n_causes, 1);
        assert_int_equal(r.causes[0].kind, RU_CAUSE_START);
        assert_int_equal(r.causes[0].trace, 2);
        assert_true(fabs(r.causes[0].factor - 0.8) < 0.01);
        ru_arena_fini(&r.arena);
    }
}

/* A process that is stopped for 120 ms of every second step: not a slow processor, not a slow link.
 */
static void test_pauses(void **state)
{
    (void)state;
    const plant p = {.pause_ns = 120000000, .rank = 2, .since = SINCE};
    check(&p, 4, RU_CAUSE_PAUSE, 0.12, "for 120 ms at a time since step");
}

/* The one cause of each seed: its kind and which ranks it names. */
static void one_cause(const plant *p, uint32_t n, ru_cause_kind kind, uint32_t trace, uint32_t peer)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run r;
        draw(&r, n, p, seed);
        if (r.n_causes != 1 || r.causes[0].kind != kind || r.causes[0].trace != trace ||
            r.causes[0].peer != peer) {
            fail_msg("%s of %u, rank %u, out %g, in %g, seed %llu: %u causes, %s of %u, peer %u",
                     p->star ? "star" : "ring", n, p->rank, p->out, p->in, (unsigned long long)seed,
                     r.n_causes, r.n_causes > 0 ? ru_cause_kind_name(r.causes[0].kind) : "none",
                     r.causes[0].trace, r.causes[0].peer);
        }
        ru_arena_fini(&r.arena);
    }
}

/* In a ring, or between two, each rank has one partner in each direction, and nothing tells which
 * end is slow: neither is accused. */
static void test_ring_accuses_neither_end(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 5; n++) {
        const plant out = {.out = 4, .rank = 1, .since = SINCE},
                    in = {.in = 4, .rank = 1, .since = SINCE}, always = {.in = 4, .rank = 0};
        one_cause(&out, n, RU_CAUSE_PATH, 1, 2 % n + 1);
        one_cause(&in, n, RU_CAUSE_PATH, 0, 2);
        one_cause(&always, n, RU_CAUSE_PATH, n - 1, 1);
    }
}

/* In a star the transfers of the hub and of the other ranks tell the end. */
static void test_star_tells_the_end(void **state)
{
    (void)state;
    for (uint32_t n = 3; n <= 5; n++) {
        for (uint32_t k = 0; k < n; k++) {
            const plant out = {.out = 4, .rank = k, .since = SINCE, .star = true},
                        in = {.in = 4, .rank = k, .star = true},
                        both = {.out = 3, .in = 3, .rank = k, .star = true};
            one_cause(&out, n, RU_CAUSE_SENDER, k, 0);
            one_cause(&in, n, RU_CAUSE_RECEIVER, k, 0);
            if (k > 0) {
                one_cause(&both, n, RU_CAUSE_LINK, k, 0);
            }
        }
    }
    const plant in = {.in = 4, .rank = 0, .star = true}, half = {.out = 1.8, .star = true};
    one_cause(&in, 2, RU_CAUSE_PATH, 1, 1);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) { /* the links of a hub share its interface */
        run r;
        draw(&r, 4, &half, seed);
        assert_int_equal(r.n_causes, 0);
        ru_arena_fini(&r.arena);
    }
}

#define T(f) cmocka_unit_test(f)
RU_TESTS(trace_cause, T(test_clean), T(test_pauses), T(test_ring_accuses_neither_end),
         T(test_star_tells_the_end), T(test_slow_rank), T(test_slow_rank_with_less_work),
         T(test_slow_alone), T(test_slow_disk), T(test_transfers), T(test_link_in_turns),
         T(test_link_with_bursts), T(test_link_of_slow_rank), T(test_slow_rank_beside_sums),
         T(test_slow_rank_with_slow_transfers), T(test_rare_transfers), T(test_network),
         T(test_machine), T(test_again), T(test_late_start))
