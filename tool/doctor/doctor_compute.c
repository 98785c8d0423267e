/* Doctor's checks of what computes: the CPU device against plain loops, threads, and variables of
 * the environment that change results or speed behind one's back. */
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "base/conf.h"
#include "base/rng.h"
#include "base/unit.h"
#include "env/clock.h"
#include "exec/exe.h"
#include "exec/pool.h"
#include "tool/doctor/doctor.h"
#include "world/graph/build.h"

enum { ROWS = 32, INNER = 48, COLUMNS = 40 };

/* relu(x w): x [ROWS, INNER], w [INNER, COLUMNS]. */
static ru_status build_graph(ru_graph *g, ru_arena *arena, const float *w, ru_err *err)
{
    RU_TRY(ru_graph_init(g, arena, "doctor", err));
    ru_build b;
    ru_build_init(&b, g);
    ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, (int64_t[]){ROWS, INNER}));
    ru_value_id p =
        ru_build_param(&b, "w", ru_type_make(RU_F32, 2, (int64_t[]){INNER, COLUMNS}), w);
    ru_value_id y = ru_build_op1(&b, RU_OP_Relu, ru_build_op2(&b, RU_OP_MatMul, x, p, NULL), NULL);
    ru_build_output(&b, y, "y");
    return ru_build_finish(&b, err);
}

/* Largest difference from the same sums by three loops. */
static double difference(const float *x, const float *w, const float *y)
{
    double worst = 0;
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t j = 0; j < COLUMNS; j++) {
            double sum = 0;
            for (uint32_t k = 0; k < INNER; k++) {
                sum += (double)x[i * INNER + k] * (double)w[k * COLUMNS + j];
            }
            worst = fmax(worst, fabs(fmax(sum, 0) - (double)y[i * COLUMNS + j]));
        }
    }
    return worst;
}

static ru_status run_graph(ru_arena *arena, rui_machine *m, double *worst, ru_err *err)
{
    float *x = RU_NEW(arena, float, ROWS *INNER), *w = RU_NEW(arena, float, INNER *COLUMNS);
    if (x == NULL || w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory");
    }
    ru_rng r = ru_rng_from(1, 1);
    for (uint32_t i = 0; i < ROWS * INNER; i++) {
        x[i] = (float)ru_rng_normal(&r);
    }
    for (uint32_t i = 0; i < INNER * COLUMNS; i++) {
        w[i] = (float)ru_rng_normal(&r);
    }
    ru_graph g;
    RU_TRY(build_graph(&g, arena, w, err));
    ru_exe *exe;
    RU_TRY(ru_exe_open(&g, &(ru_exe_options){.device = RU_DEVICE_CPU}, &exe, err));
    memcpy(ru_exe_input(exe, g.inputs[0]), x, ROWS * INNER * sizeof *x);
    ru_time begin = ru_clock_now();
    ru_status st = ru_exe_run(exe, &(ru_run_args){0}, err);
    m->compute_ns = ru_time_since(ru_clock_now(), begin);
    if (st == RU_OK) {
        *worst = difference(x, w, ru_exe_output(exe, g.outputs[0]));
    }
    ru_exe_close(exe);
    return st;
}

/* The version of the oneDNN that is loaded now; false when there is none. */
static bool put_onednn(ru_text *t)
{
    /* The first fields of dnnl_version_t, the same in versions 2 and 3. */
    typedef struct version {
        int major, minor, patch;
    } version;
    static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2"};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(names); i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
        void *at = library != NULL ? dlsym(library, "dnnl_version") : NULL;
        if (at != NULL) {
            const version *(*get)(void);
            memcpy(&get, &at, sizeof at);
            const version *v = get();
            ru_text_putf(t, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
            return true;
        }
    }
    return false;
}

/* Operators of ONNX that run on the scalar reference kernels whatever their types. */
static void put_slow(ru_text *t)
{
    uint32_t n = 0;
    for (uint32_t op = 1; op < RU_OP_COUNT; op++) {
        const ru_op_info *info = ru_op_get((ru_op)op);
        if (info->onnx && !ru_exe_op_fast((ru_op)op)) {
            ru_text_putf(t, "%s%s",
                         n++ == 0 ? "; slow, because only reference kernels exist for " : " ",
                         info->name);
        }
    }
}

void rui_doctor_compute(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m)
{
    (void)dir;
    ru_err err = {0};
    double worst = 0;
    ru_status st = run_graph(arena, m, &worst, &err);
    if (st != RU_OK) {
        c->health = RUI_BROKEN;
        ru_text_put(&c->text, err.text);
        ru_text_put(&c->fix, "apt-get install libdnnl2");
        return;
    }
    if (!put_onednn(&c->text)) {
        ru_text_put(&c->text, "without oneDNN");
    }
    /* Sums of 48 products of standard normal numbers: 48 roundings of 2^-24 of about 7. */
    if (!(worst < 1e-4)) {
        c->health = RUI_BROKEN;
        ru_text_putf(&c->text, ": a matrix product has an error of %g", worst);
        ru_text_put(&c->fix,
                    "unset the variables listed under environment; if the error stays, report it");
        return;
    }
    ru_text_putf(&c->text, ", matrix products agree with plain loops to %.1g in ", worst);
    ru_text_time_short(&c->text, m->compute_ns);
    put_slow(&c->text);
}

static void visit(void *arg, uint32_t thread, uint32_t threads)
{
    uint8_t *seen = arg;
    seen[thread] = (uint8_t)(threads < 255 ? threads : 255);
}

void rui_doctor_threads(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m)
{
    (void)dir;
    uint32_t want = m->cores;
    ru_pool *pool = NULL;
    ru_err err = {0};
    uint8_t *seen = RU_NEW(arena, uint8_t, want + 1);
    if (seen == NULL || ru_pool_new(want, &pool, &err) != RU_OK) {
        c->health = RUI_BROKEN;
        ru_text_put(&c->text, err.text);
        ru_text_put(&c->fix, "rubato train JOB --threads 1");
        return;
    }
    ru_pool_run(pool, visit, seen);
    uint32_t came = 0;
    for (uint32_t i = 0; i < want; i++) {
        came += seen[i] != 0;
    }
    ru_pool_free(pool);
    ru_text_putf(&c->text, "a team of %u threads works", came);
    if (came < want) {
        c->health = RUI_WARN;
        ru_text_putf(&c->fix, "%u threads were requested: unset OMP_THREAD_LIMIT OMP_NUM_THREADS",
                     want);
    }
}

/* Variables that make compute libraries behave in another way. */
static const struct {
    const char *name, *effect;
} traps[] = {
    {"OMP_NUM_THREADS", "sets the size of thread teams; --threads sets it for one run"},
    {"OMP_THREAD_LIMIT", "limits the size of every thread team"},
    {"OMP_PROC_BIND", "pins threads; two processes may then share the same cores"},
    {"OMP_PLACES", "pins threads; two processes may then share the same cores"},
    {"GOMP_CPU_AFFINITY", "pins threads; two processes may then share the same cores"},
    {"OMP_WAIT_POLICY", "passive waiting makes small models up to a third slower"},
    {"GOMP_SPINCOUNT", "changes how threads wait"},
    {"ONEDNN_MAX_CPU_ISA", "prevents oneDNN from using the fastest instructions"},
    {"DNNL_MAX_CPU_ISA", "prevents oneDNN from using the fastest instructions"},
    {"ONEDNN_DEFAULT_FPMATH_MODE", "lets oneDNN round f32 to bf16"},
    {"ONEDNN_VERBOSE", "oneDNN prints a line for each primitive"},
    {"DNNL_VERBOSE", "oneDNN prints a line for each primitive"},
    {"OPENBLAS_CORETYPE", "makes OpenBLAS use kernels of another processor (half the speed here); "
                          "do not compare speeds with it"},
    {"OPENBLAS_L2_SIZE", "gives OpenBLAS a wrong cache size; do not compare speeds with it"},
    {"MALLOC_PERTURB_", "fills every allocation, which is slow"},
    {"LD_PRELOAD", "loads another library before all others"},
};

void rui_doctor_environment(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m)
{
    (void)arena;
    (void)dir;
    (void)m;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(traps); i++) {
        const char *value = ru_conf_env(traps[i].name);
        if (value == NULL || *value == '\0') {
            continue;
        }
        ru_text_putf(&c->text, "%s%s is '%.40s': %s", c->text.n > 0 ? "; " : "", traps[i].name,
                     value, traps[i].effect);
        ru_text_putf(&c->fix, "%s %s", c->fix.n > 0 ? "" : "unset", traps[i].name);
        c->health = RUI_WARN;
    }
    if (c->text.n == 0) {
        ru_text_put(&c->text, "no variable that changes results or speed is set");
    }
}
