/* Figures of a run from its metrics: means are those of the lines, and the model fitted to a job
 * whose steps follow a closed form predicts them. */
#include "cluster/figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "test/test.h"

static void steps_become_a_model(void **state)
{
    (void)state;
    char dir[] = "/tmp/rubato-figures-XXXXXX", path[64];
    static const uint32_t workers[] = {1, 2, 4};
    ru_cluster_figures f = {0};
    ru_goodput_model m;
    ru_err err;
    assert_non_null(mkdtemp(dir));
    ru_figures_look(&f, dir, 1); /* nothing is there yet */
    ru_figures_model(&f, &m);
    assert_true(m.perf.overlap < 1);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "{\"schema\":\"rubato.train.start/1\",\"batch\":64}\n");
    int step = 0;
    for (uint32_t k = 0; k < 3; k++) {
        double compute = 1e-3 + 64.0 / workers[k] * 1e-3; /* and a sum of 4 ms from two on */
        double all = compute + (workers[k] > 1 ? 4e-3 : 0);
        fprintf(out,
                "{\"schema\":\"rubato.train.event/1\",\"what\":\"replan\","
                "\"predicted_compute_s\":%.9g}\n",
                compute / 10); /* as without its quota */
        for (int i = 0; i < 20; i++) {
            fprintf(out,
                    "{\"schema\":\"rubato.train.step/1\",\"step\":%d,\"loss\":0.5,\"step_s\":%.9g,"
                    "\"samples_per_s\":9,\"workers\":%u,\"compute_s\":%.9g}\n",
                    ++step, i < 2 || (i == 19 && k < 2) ? 1.0 : all, workers[k],
                    compute); /* around a change: slow */
        }
    }
    fputs("{\"schema\":\"rubato.train.step/1\",\"step\":9", out); /* half a line */
    fclose(out);
    ru_figures_look(&f, dir, 1);
    ru_figures_look(&f, dir, 1); /* nothing twice */
    assert_int_equal(f.step, 60);
    assert_int_equal(f.workers, 4);
    assert_int_equal(f.n, 3);
    assert_true(f.loss == 0.5);
    assert_int_equal(f.pauses, 2);
    assert_true(ru_figures_remaining(&f) == 60); /* it tells no end: as many as it has done */
    f.total = 100;
    assert_true(ru_figures_remaining(&f) == 40);
    f.epochs = 5; /* it adapts: in the second of five */
    f.epoch = 2;
    f.batch_max = 256;
    assert_true(ru_figures_remaining(&f) == 80);
    f.batch_max = 0;
    assert_true(fabs(f.paused_s - 4 + 2 * (65e-3 + 37e-3)) < 1e-6);
    ru_figures_model(&f, &m);
    assert_true(m.perf.overlap >= 1);
    assert_int_equal(m.batch, 64);
    for (uint32_t k = 0; k < 3; k++) {
        double is = 1e-3 + 64.0 / workers[k] * 1e-3 + (workers[k] > 1 ? 4e-3 : 0);
        double says = ru_perf_step_s(&m.perf, 1, workers[k], 64 / workers[k], 0);
        assert_true(fabs(f.seen[k].step_s / f.seen[k].steps - is) < 1e-9);
        assert_true(fabs(says - is) < 0.1 * is);
    }
    double was = f.seen[0].steps; /* it goes on from a checkpoint: nothing counts twice */
    assert_int_equal(truncate(path, 600), 0);
    ru_figures_look(&f, dir, 1);
    out = fopen(path, "a");
    assert_non_null(out);
    fprintf(out, "\n{\"schema\":\"rubato.train.step/1\",\"step\":5,\"step_s\":1,\"workers\":4}\n");
    fclose(out);
    ru_figures_look(&f, dir, 1);
    assert_int_equal(f.step, 5);
    assert_int_equal(f.pauses, 2);
    assert_true(f.seen[0].steps == was);
    assert_ok(ru_path_remove(dir, &err), err);
}

/* A job that adapts on two workers: what each computes shows in the speed; the model may choose the
 * batch once the noise is known. */
static void batches_that_adapt_are_seen(void **state)
{
    (void)state;
    char dir[] = "/tmp/rubato-figures-XXXXXX", path[64];
    ru_cluster_figures f = {0};
    ru_goodput_model m;
    ru_err err;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "{\"schema\":\"rubato.train.start/1\",\"batch\":32,\"batch_max\":256}\n");
    for (int step = 1; step <= 40; step++) {
        int batch = step <= 20 ? 32 : 128;
        double step_s = 1e-3 + batch / 2 * 1e-4;
        fprintf(out,
                "{\"schema\":\"rubato.train.step/1\",\"step\":%d,\"loss\":1,\"step_s\":%.9g,"
                "\"samples_per_s\":%.9g,\"workers\":2%s}\n",
                step, step_s, batch / step_s, step > 30 ? ",\"gradient_noise\":64" : "");
        if (step == 30) {
            fflush(out);
            ru_figures_look(&f, dir, 1);
            ru_figures_model(&f, &m);
            assert_int_equal(m.batch, 32); /* nothing is known of the noise */
        }
    }
    fclose(out);
    ru_figures_look(&f, dir, 1);
    assert_int_equal(f.n, 2);
    assert_int_equal(f.seen[0].local, 16);
    assert_int_equal(f.seen[1].local, 64);
    ru_figures_model(&f, &m);
    assert_int_equal(m.batch, 0);
    assert_int_equal(m.batch_first, 32);
    assert_int_equal(m.batch_max, 256);
    assert_true(fabs(m.batch_first * m.var / m.sqr - 64) < 1e-9);
    assert_true(fabs(ru_goodput_efficiency(&m, 128) - 96.0 / 192) < 1e-9);
    assert_int_equal(ru_goodput_best(&m, 1, 1).passes, 0); /* one worker knows its noise */
    for (uint32_t k = 0; k < 2; k++) {
        double is = 1e-3 + f.seen[k].local * 1e-4;
        assert_true(fabs(ru_perf_step_s(&m.perf, 1, 2, f.seen[k].local, 0) - is) < 0.15 * is);
    }
    assert_ok(ru_path_remove(dir, &err), err);
}

/* Also what is none. */
static void whatever_a_user_writes_is_a_count(void **state)
{
    (void)state;
    char dir[] = "/tmp/rubato-figures-XXXXXX", path[64];
    ru_cluster_figures f = {0};
    ru_err err;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "{\"schema\":\"rubato.train.start/1\",\"batch\":32,\"batch_max\":64,"
                 "\"steps\":1e15,\"epochs\":1e15}\n"
                 "{\"schema\":\"rubato.train.step/1\",\"step\":7,\"epoch\":1}\n");
    fflush(out);
    ru_figures_look(&f, dir, 1);
    assert_true(f.step == 7 && ru_figures_remaining(&f) == 1e15);
    fprintf(out, "{\"schema\":\"rubato.train.step/1\",\"step\":1e300,\"epoch\":-1e300}\n");
    fclose(out);
    ru_figures_look(&f, dir, 1);
    assert_true(f.step == 0 && f.epoch == 0 && ru_figures_remaining(&f) == 0);
    assert_ok(ru_path_remove(dir, &err), err);
}

/* More batches than there is room for: what has the most steps stays, the newest one is seen. */
static void the_newest_batches_are_seen(void **state)
{
    (void)state;
    enum { MANY = RU_FIGURES_SAMPLES + 4 };
    char dir[] = "/tmp/rubato-figures-XXXXXX", path[64];
    ru_cluster_figures f = {0};
    ru_err err;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "{\"schema\":\"rubato.train.start/1\",\"batch\":32,\"batch_max\":9999}\n");
    for (int step = 1, batch = 32; batch < 32 + MANY; step++) {
        fprintf(out,
                "{\"schema\":\"rubato.train.step/1\",\"step\":%d,\"loss\":1,\"step_s\":0.5,"
                "\"samples_per_s\":%d,\"workers\":1}\n",
                step, 2 * batch);
        batch += step > 9 ? step % 2 : 0; /* two steps each, more of the first */
    }
    fclose(out);
    ru_figures_look(&f, dir, 1);
    assert_int_equal(f.n, RU_FIGURES_SAMPLES);
    bool first = false, last = false;
    for (uint32_t k = 0; k < f.n; k++) {
        first = first || f.seen[k].local == 32;
        last = last || f.seen[k].local == 32 + MANY - 1;
        assert_true(fabs(f.seen[k].step_s - 0.5 * f.seen[k].steps) < 1e-9);
    }
    assert_true(first && last);
    assert_ok(ru_path_remove(dir, &err), err);
}

RU_TESTS(cluster_figures, cmocka_unit_test(whatever_a_user_writes_is_a_count),
         cmocka_unit_test(the_newest_batches_are_seen),
         cmocka_unit_test(batches_that_adapt_are_seen), cmocka_unit_test(steps_become_a_model))
