/* A job's placement by measured units: every unit has a device, in an order in which it can run,
 * and no device holds more than it may. */
#include "train/pipe/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "test/test.h"

static const char text[] = "name: t\n"
                           "model: {zoo: resnet18, width: 4}\n"
                           "data: {format: synthetic, generator: digits, count: 16}\n"
                           "train: {batch: 4, steps: 1, threads: 1}\n";

typedef struct rig {
    ru_arena arena;
    char dir[64];
    ru_job job;
} rig;

static void open_rig(rig *r)
{
    ru_err err = {0};
    ru_arena_init(&r->arena, 0);
    (void)snprintf(r->dir, sizeof r->dir, "/tmp/rubato-test-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    const char *path = ru_path_join(&r->arena, r->dir, "job.yaml");
    assert_ok(ru_file_replace(path, text, (int64_t)strlen(text), &err), err);
    assert_ok(ru_job_load(path, NULL, 0, &r->arena, &r->job, NULL, &err), err);
}

static void close_rig(rig *r)
{
    ru_err err;
    (void)!ru_path_remove(r->dir, &err);
    ru_arena_fini(&r->arena);
}

static uint32_t place_of(const ru_units_choice *c, const char *name)
{
    uint32_t k = 0;
    while (k < c->devices.n && strcmp(c->devices.at[k].key, name) != 0) {
        k++;
    }
    assert_true(k < c->devices.n);
    return k;
}

static void all_units_are_placed(void **state)
{
    (void)state;
    rig r;
    ru_err err = {0};
    ru_units_choice c;
    open_rig(&r);
    assert_ok(ru_units_choose(&r.job, 1, 1, 0, &r.arena, &c, &err), err);
    assert_int_equal(c.n, 29); /* 20 convolutions, 8 sums, fc */
    assert_int_equal(c.devices.n, c.n);
    assert_int_equal(c.used, 1);
    assert_int_equal(c.sent_bytes, 0);
    assert_true(c.step_s > 0 && c.single_s > 0);
    for (uint32_t k = 0; k < c.n; k++) {
        assert_true(c.devices.at[k].value == 1);
    }
    assert_int_equal(place_of(&c, "conv1"), 0);
    assert_int_equal(place_of(&c, "fc"), c.n - 1);
    assert_true(place_of(&c, "layer2.0.downsample.0") < place_of(&c, "layer2.1.conv1"));
    assert_int_equal(ru_units_choose(&r.job, 1, 65, 0, &r.arena, &c, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "at most 64 devices, and the job has 65 workers"));
    close_rig(&r);
}

/* What one device cannot hold goes to two; what two cannot hold is refused. */
static void memory_divides_a_model(void **state)
{
    (void)state;
    rig r;
    ru_err err = {0};
    ru_units_choice c;
    open_rig(&r);
    r.job.train.placed.latency_ns = 1000000000; /* nothing else would send anything */
    int64_t low = 0, high = INT64_C(1) << 24;   /* less than the one, at most the other */
    r.job.train.memory_bytes = high;            /* few looks: each measures all layers */
    assert_ok(ru_units_choose(&r.job, 1, 2, 0, &r.arena, &c, &err), err);
    assert_int_equal(c.used, 1);
    while (high - low > high / 8) {
        r.job.train.memory_bytes = low + (high - low) / 2;
        ru_status st = ru_units_choose(&r.job, 1, 2, 0, &r.arena, &c, &err);
        bool one = st == RU_OK && c.used == 1;
        *(one ? &high : &low) = r.job.train.memory_bytes;
    }
    r.job.train.memory_bytes = low; /* times decide how well two divide it */
    assert_ok(ru_units_choose(&r.job, 1, 2, 0, &r.arena, &c, &err), err);
    assert_int_equal(c.used, 2);
    assert_true(c.sent_bytes > 0 && c.single_s == 0);
    r.job.train.memory_bytes = high / 4;
    assert_int_equal(ru_units_choose(&r.job, 1, 2, 0, &r.arena, &c, &err), RU_E_INFEASIBLE);
    if (strstr(err.text, "(train.memory) cannot hold the measured layers") == NULL) {
        fail_msg("'%s' does not say what is too small", err.text);
    }
    r.job.train.memory_bytes = 0; /* more workers here than this machine has memory for */
    assert_int_equal(ru_units_choose(&r.job, 1, 2, 1 << 24, &r.arena, &c, &err), RU_E_INFEASIBLE);
    assert_non_null(strstr(err.text, "(their share of memory) cannot hold the measured layers"));
    close_rig(&r);
}

RU_TESTS(train_units, cmocka_unit_test(all_units_are_placed),
         cmocka_unit_test(memory_divides_a_model))
