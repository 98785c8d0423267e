/* keep: hit rates and least-recently-used caches simulated read by read, times against closed
 * forms, the choice against all forms, corrupted plans. */
#include "plan/disk/keep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

static ru_keep_in pictures(void)
{
    return (ru_keep_in){.samples = 1000,
                        .epochs = 5,
                        .hosts = 1,
                        .readers = 2,
                        .threads = 1,
                        .fetch_s = 4e-3,
                        .decode_s = 2e-3,
                        .unpack_s = 1e-4,
                        .bytes = 100000,
                        .decoded_bytes = 150000,
                        .room_bytes = 75000000,
                        .read_mb_per_s = 500,
                        .write_mb_per_s = 500,
                        .gain_min = 0.02};
}

static ru_keep_plan plan_of(const ru_keep_in *in)
{
    ru_err err;
    ru_keep_plan p;
    assert_ok(ru_plan_keep(in, &p, &err), err);
    assert_ok(ru_plan_keep_check(in, &p, &err), err);
    return p;
}

static void shuffle(uint32_t *at, uint32_t n, ru_rng *rng)
{
    for (uint32_t i = 0; i < n; i++) {
        at[i] = i;
    }
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = ru_rng_below(rng, i), x = at[i - 1];
        at[i - 1] = at[k];
        at[k] = x;
    }
}

/* Room for c of the data: keeping what came first misses 1 - c, replacing what was used longest ago
 * misses more. */
static void test_replacing_misses_more(void **state)
{
    (void)state;
    enum { N = 400, EPOCHS = 12 };
    static const struct {
        double c, least, most; /* misses of least recently used */
    } rows[] = {{0.5, 0.82, 0.88}, {0.25, 0.95, 0.99}};
    ru_rng rng = ru_rng_from(ru_test_seed(), 0);
    for (uint32_t r = 0; r < RU_ARRAY_LEN(rows); r++) {
        uint32_t order[N], missed = 0, room = (uint32_t)(rows[r].c * N);
        int64_t used[N], now = 0;
        bool here[N] = {false};
        uint32_t n = 0;
        memset(used, 0, sizeof used);
        for (uint32_t e = 0; e < EPOCHS; e++) {
            shuffle(order, N, &rng);
            for (uint32_t i = 0; i < N; i++) {
                uint32_t s = order[i], oldest = N;
                used[s] = ++now;
                if (here[s]) {
                    continue;
                }
                missed += e > 1;
                for (uint32_t k = 0; n == room && k < N; k++) {
                    oldest = here[k] && (oldest == N || used[k] < used[oldest]) ? k : oldest;
                }
                if (oldest < N) {
                    here[oldest] = false;
                    n--;
                }
                here[s] = true;
                n++;
            }
        }
        double lru = missed / (double)(N * (EPOCHS - 2));
        assert_true(lru > rows[r].least && lru < rows[r].most);
        ru_keep_in in = pictures();
        in.method = RU_KEEP_BYTES;
        in.room_bytes = (int64_t)(rows[r].c * (double)in.samples) * in.bytes;
        assert_float_equal(plan_of(&in).hit, rows[r].c, 1e-12);
    }
}

/* Hosts that draw their parts anew in each epoch. */
static void test_hit_rate_of_hosts(void **state)
{
    (void)state;
    enum { N = 1200, HOSTS = 4, EPOCHS = 9, RUNS = 6 };
    ru_rng rng = ru_rng_from(ru_test_seed(), 0);
    double hits[EPOCHS] = {0};
    uint32_t room = N / 2;
    for (uint32_t r = 0; r < RUNS; r++) {
        static bool kept[HOSTS][N];
        uint32_t n[HOSTS] = {0}, order[N];
        memset(kept, 0, sizeof kept);
        for (uint32_t e = 0; e < EPOCHS; e++) {
            shuffle(order, N, &rng);
            for (uint32_t i = 0; i < N; i++) {
                uint32_t h = i * HOSTS / N, s = order[i];
                hits[e] += kept[h][s] ? 1.0 / N / RUNS : 0;
                if (!kept[h][s] && n[h] < room) {
                    kept[h][s] = true;
                    n[h]++;
                }
            }
        }
    }
    for (int64_t e = 1; e <= EPOCHS; e++) {
        ru_keep_in in = pictures();
        in.method = RU_KEEP_BYTES;
        in.hosts = HOSTS;
        in.epochs = e;
        in.room_bytes = in.samples / 2 * in.bytes;
        assert_float_equal(plan_of(&in).hit, hits[e - 1], 0.02);
    }
}

/* One host: the first epoch reads all from the source, the others all but what is kept. */
static void test_times_of_one_host(void **state)
{
    (void)state;
    ru_keep_in in = pictures();
    ru_keep_plan p = plan_of(&in); /* room for half of it decoded, or three quarters of the bytes */
    assert_int_equal(p.form, RU_KEPT_BYTES);
    assert_int_equal(p.kept, 750);
    assert_float_equal(p.none_s, 4.0, 1e-9);  /* fetching */
    assert_float_equal(p.first_s, 4.0, 1e-9); /* writing goes on beside it */
    assert_float_equal(p.epoch_s, 1.0, 1e-9); /* a quarter is fetched, 2 threads decode for 1 s */
    assert_float_equal(p.all_s, 8.0, 1e-9);
    assert_float_equal(p.written_mb, 75.0, 1e-9);
    in.room_bytes = INT64_C(1) << 40; /* now decoded samples take less than decoding */
    p = plan_of(&in);
    assert_int_equal(p.form, RU_KEPT_DECODED);
    assert_float_equal(p.epoch_s, 0.3, 1e-9); /* 150 MB at 500 MB/s */
    in.train_s = 5e-3;                        /* nothing that is kept makes training faster */
    assert_int_equal(plan_of(&in).form, RU_KEPT_NONE);
    in = pictures();
    in.epochs = 1; /* nothing is read again */
    assert_int_equal(plan_of(&in).form, RU_KEPT_NONE);
}

/* One reader and two threads of training on two cores: both need 1 ms of a core, so a sample takes
 * 1 ms of decoding and 2 ms of training, or 1.5 ms. */
static void test_shared_cores(void **state)
{
    (void)state;
    ru_keep_in in = pictures();
    in.fetch_s = 0;
    in.decode_s = in.train_s = 1e-3;
    in.readers = 1;
    in.threads = in.cores = 2;
    in.unpack_s = 0;
    in.method = RU_KEEP_DECODED;
    in.room_bytes = INT64_C(1) << 40;
    ru_keep_plan p = plan_of(&in);
    assert_float_equal(p.first_s, 1.5, 1e-9);
    assert_float_equal(p.epoch_s, 1.0, 1e-9); /* nothing decodes */
    in.cores = 3;
    assert_float_equal(plan_of(&in).first_s, 1.0, 1e-9);
    in.cores = 1; /* two threads of training on one core */
    assert_float_equal(plan_of(&in).first_s, 2.0, 1e-9);
    in.cores = 0;
    assert_float_equal(plan_of(&in).first_s, 1.0, 1e-9);
}

/* Cores that are shared in small turns: a step begins when a sample is there, and takes `work`
 * seconds of its threads alone; readers read up to 4 samples ahead. */
static double share_cores(const ru_keep_in *in, double work, double *all_s)
{
    enum { SAMPLES = 400 };
    const double turn = 2e-6;
    double ready = 0, left = 0, stepped = 0, now = 0;
    uint32_t done = 0;
    double alone = fmin(1, (double)in->cores / in->threads);
    for (; done < SAMPLES; now += turn) {
        bool reads = ready < 4;
        if (left <= 0 && ready >= 1) {
            ready -= 1;
            left = work;
        }
        bool trains = left > 0;
        double run = (reads ? in->readers : 0) + (trains ? in->threads : 0);
        double each = run > 0 ? fmin(1, in->cores / run) : 0;
        ready += reads ? in->readers * each * turn / in->decode_s : 0;
        stepped += trains ? turn : 0;
        left -= trains ? each / alone * turn : 0;
        done += trains && left <= 0;
    }
    *all_s = now / SAMPLES;
    return stepped / SAMPLES;
}

/* What training takes alone, found from a run in which readers work beside it. */
static void test_alone(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(ru_test_seed(), 0);
    for (uint32_t k = 0; k < 40; k++) {
        ru_keep_in in = pictures();
        in.cores = 1 + ru_rng_below(&rng, 4);
        in.threads = 1 + ru_rng_below(&rng, 4);
        in.readers = 1 + ru_rng_below(&rng, 4);
        in.decode_s = 2e-4 * (1 + ru_rng_below(&rng, 20));
        double work = 2e-4 * (1 + ru_rng_below(&rng, 20)), all_s;
        double step_s = share_cores(&in, work, &all_s);
        assert_float_equal((float)(ru_keep_train_alone(&in, step_s, all_s) / work), 1, 0.05);
    }
}

static double any(ru_rng *rng, double least, double most)
{
    return least * pow(most / least, ru_rng_f64(rng));
}

static ru_keep_in drawn(ru_rng *rng)
{
    return (ru_keep_in){.samples = 1 + ru_rng_below(rng, 100000),
                        .epochs = 1 + ru_rng_below(rng, 40),
                        .hosts = 1 + ru_rng_below(rng, 6),
                        .readers = 1 + ru_rng_below(rng, 8),
                        .threads = 1 + ru_rng_below(rng, 8),
                        .cores = ru_rng_below(rng, 9),
                        .fetch_s = any(rng, 1e-6, 1e-1),
                        .decode_s = any(rng, 1e-6, 1e-1),
                        .unpack_s = any(rng, 1e-6, 1e-3),
                        .train_s = ru_rng_below(rng, 2) * any(rng, 1e-6, 1e-1),
                        .bytes = ru_rng_below(rng, 4) * 50000,
                        .decoded_bytes = ru_rng_below(rng, 4) * 100000,
                        .room_bytes = (int64_t)any(rng, 1, 1e11),
                        .read_mb_per_s = any(rng, 10, 5000),
                        .write_mb_per_s = any(rng, 10, 5000),
                        .gain_min = 0.02};
}

/* No other form is faster by more than what is not worth it; a changed plan is refused. */
static void test_drawn(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(ru_test_seed(), 0);
    uint32_t forms[RU_KEPT_FORMS] = {0};
    for (uint32_t k = 0; k < 3000; k++) {
        ru_keep_in in = drawn(&rng), other = in;
        ru_keep_plan p = plan_of(&in), q;
        forms[p.form]++;
        double none_s = 0;
        for (other.method = RU_KEEP_NONE; other.method <= RU_KEEP_DECODED; other.method++) {
            bool can = other.method == RU_KEEP_NONE ||
                       (other.method == RU_KEEP_BYTES ? in.bytes : in.decoded_bytes) > 0;
            ru_status st = ru_plan_keep(&other, &q, NULL);
            assert_int_equal(st, can ? RU_OK : RU_E_INFEASIBLE);
            if (can) {
                none_s = other.method == RU_KEEP_NONE ? q.all_s : none_s;
                assert_true(q.all_s >= p.all_s || q.all_s > (1 - in.gain_min) * none_s);
                if (q.form == p.form || fabs(q.all_s - p.all_s) > 1e-5 * p.all_s) {
                    assert_int_equal(ru_plan_keep_check(&in, &q, NULL),
                                     q.form == p.form ? RU_OK : RU_E_INFEASIBLE);
                }
            }
        }
        q = p;
        double *figures[] = {&q.hit, &q.all_s, &q.first_s, &q.epoch_s, &q.none_s, &q.written_mb};
        *figures[k % RU_ARRAY_LEN(figures)] += 0.01 + 0.01 * *figures[k % RU_ARRAY_LEN(figures)];
        assert_int_equal(ru_plan_keep_check(&in, &q, NULL), RU_E_INFEASIBLE);
        q = p;
        q.kept++;
        assert_int_equal(ru_plan_keep_check(&in, &q, NULL), RU_E_INFEASIBLE);
    }
    assert_true(forms[0] > 100 && forms[1] > 100 && forms[2] > 100);
}

RU_TESTS(plan_keep, cmocka_unit_test(test_replacing_misses_more),
         cmocka_unit_test(test_hit_rate_of_hosts), cmocka_unit_test(test_shared_cores),
         cmocka_unit_test(test_alone), cmocka_unit_test(test_times_of_one_host),
         cmocka_unit_test(test_drawn))
