/* Small graphs that must not run on the scalar reference kernels, and must agree with them: what
 * the tests of lowerings share.
 *
 * Thread: one. */
#ifndef RU_TEST_OPS_SLOW_NET_H
#define RU_TEST_OPS_SLOW_NET_H

#include "exec/exe.h"
#include "test/test.h"
#include "world/graph/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct net {
    ru_arena arena;
    ru_graph g;
    ru_build b;
    ru_err err;
    uint32_t n_params;
} net;

static void net_init(net *t)
{
    memset(t, 0, sizeof *t);
    ru_arena_init(&t->arena, 0);
    assert_ok(ru_graph_init(&t->g, &t->arena, "slow", &t->err), t->err);
    ru_build_init(&t->b, &t->g);
}

/* A type by its dimensions. */
#define T(dtype, ...)                                                                        \
    ru_type_make(RU_##dtype, (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                 (int64_t[]){__VA_ARGS__})

static float noise(uint64_t stream, int64_t i)
{
    uint64_t x = ((uint64_t)i + stream * 0x9E3779B97F4A7C15U) * 0xBF58476D1CE4E5B9U;
    x ^= x >> 29;
    x *= 0x94D049BB133111EBU;
    x ^= x >> 32;
    return (float)(x >> 40) / (float)(1 << 23) - 1.0f;
}

static ru_value_id input(net *t, const char *name, ru_type type)
{
    return ru_build_input(&t->b, name, type);
}

static ru_value_id param(net *t, ru_type type, float scale)
{
    int64_t n = ru_type_count(&type);
    float *data = ru_arena_alloc(&t->arena, n * (int64_t)sizeof *data, 64);
    char name[16];
    snprintf(name, sizeof name, "p%u", t->n_params);
    for (int64_t i = 0; i < n; i++) {
        data[i] = scale * noise(t->n_params + 7, i);
    }
    t->n_params++;
    return ru_build_param(&t->b, ru_arena_str(&t->arena, name), type, data);
}

static void fill(void *p, const ru_type *t, uint32_t stream)
{
    int64_t n = ru_type_count(t), bytes = ru_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < n; i++) {
        float f = noise(stream, i);
        int64_t k = (int64_t)(fabsf(f) * 5);
        double d = (double)f;
        uint16_t h = ru_f32_to_f16(f);
        k = t->dtype == RU_BOOL ? k % 2 : k;
        const void *from = t->dtype == RU_F32   ? (const void *)&f
                           : t->dtype == RU_F64 ? (const void *)&d
                           : t->dtype == RU_F16 ? (const void *)&h
                                                : (const void *)&k;
        memcpy((char *)p + i * bytes, from, (size_t)bytes);
    }
}

static ru_exe *open_on(net *t, ru_exe_options opt)
{
    ru_exe *e = NULL;
    assert_ok(ru_exe_open(&t->g, &opt, &e, &t->err), t->err);
    for (uint32_t i = 0; i < t->g.n_inputs; i++) {
        fill(ru_exe_input(e, t->g.inputs[i]), &t->g.values[t->g.inputs[i].v].type, i);
    }
    assert_ok(ru_exe_run(e, NULL, &t->err), t->err);
    return e;
}

static double real_at(ru_dtype t, const void *p, int64_t i)
{
    return t == RU_F64   ? ((const double *)p)[i]
           : t == RU_F16 ? (double)ru_f16_to_f32(((const uint16_t *)p)[i])
                         : (double)((const float *)p)[i];
}

static void same_output(const net *t, ru_exe *cpu, ru_exe *ref, ru_value_id v, double tol,
                        const char *name)
{
    const ru_type *type = &t->g.values[v.v].type;
    const void *a = ru_exe_output(cpu, v), *b = ru_exe_output(ref, v);
    int64_t n = ru_type_count(type);
    if (!ru_dtype_is_float(type->dtype)) {
        if (memcmp(a, b, (size_t)ru_type_bytes(type)) != 0) {
            fail_msg("%s: differs from the reference", name);
        }
        return;
    }
    double scale = 1e-3, diff = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = real_at(type->dtype, a, i), y = real_at(type->dtype, b, i);
        scale = fmax(scale, fabs(y));
        diff = fmax(diff, fabs(x - y));
    }
    if (!(diff <= tol * scale)) {
        fail_msg("%s: off by %g of %g", name, diff, scale);
    }
}

/* Finish, run in the default ways, compare, close. `fast`: no reference kernel may run. */
static void agrees(net *t, double tol, const char *name, bool fast)
{
    assert_ok(ru_build_finish(&t->b, &t->err), t->err);
    ru_exe *ref = open_on(t, (ru_exe_options){.device = RU_DEVICE_REF});
    for (uint32_t way = 0; way < 3; way++) {
        ru_exe *cpu = open_on(t, (ru_exe_options){.threads = 1 + way / 2, .autotune = way == 1});
        ru_exe_stats s;
        ru_exe_stats_get(cpu, &s);
        if (fast && s.n_slow != 0) {
            fail_msg("%s runs on reference kernels: %s", name, s.slow);
        }
        for (uint32_t i = 0; i < t->g.n_outputs; i++) {
            same_output(t, cpu, ref, t->g.outputs[i], tol, name);
        }
        ru_exe_close(cpu);
    }
    ru_exe_close(ref);
    ru_arena_fini(&t->arena);
}

static void fast_and_right(net *t, double tol, const char *name)
{
    agrees(t, tol, name, true);
}

#endif
