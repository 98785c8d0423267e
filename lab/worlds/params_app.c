#include "lab/worlds/params_app.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/app/rule.h"

/* -- the app -------------------------------------------------------------------------------------
 */

enum { COUNTS, NUMBERS, ROTATES, LOCALS };
enum { ROWS = 97, WIDTH = 5 };

typedef ru_params_app app;
typedef ru_params_state state;

static uint32_t app_tables(const void *self, ru_app_table *t)
{
    const app *a = self;
    t[COUNTS] = (ru_app_table){.name = "counts", .rows = ROWS, .width = 1, .rule = RU_APP_ADD};
    t[NUMBERS] = (ru_app_table){
        .name = "numbers", .rows = ROWS, .width = WIDTH, .rule = a->job->rule, .lr = 0.05};
    if (!a->job->rotate) {
        return 2;
    }
    t[ROTATES] = (ru_app_table){.name = "rotates", .rows = ROWS, .width = 3, .rotate = true};
    t[LOCALS] = (ru_app_table){
        .name = "locals", .rows = RU_PARAMS_ITEMS * a->job->executors, .width = 2, .local = true};
    return 4;
}

static void app_first(const void *self, uint32_t table, int64_t row, ru_rng *rng, float *value)
{
    const app *a = self;
    uint32_t numbers = a->job->divided ? 2 : NUMBERS; /* the table of params_item.c */
    (void)row;
    for (uint32_t i = 0; table == numbers && i < WIDTH; i++) {
        value[i] = ru_rng_f32(rng);
    }
}

static ru_status app_exec_open(const void *self, uint32_t k, const ru_sparse *part, void **out,
                               ru_err *err)
{
    (void)part;
    state *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory");
    }
    s->app = self;
    s->k = k;
    *out = s;
    return RU_OK;
}

static void app_exec_close(void *self)
{
    free(self);
}

static void app_exec_save(const void *self, ru_app_bytes *to)
{
    const state *s = self;
    ru_app_put(to, &s->next, sizeof s->next);
}

static ru_status app_exec_load(void *self, const void *bytes, int64_t n, ru_err *err)
{
    state *s = self;
    if (n != (int64_t)sizeof s->next) {
        return RU_FAIL(err, RU_E_DATA, "a foreign state");
    }
    memcpy(&s->next, bytes, sizeof s->next);
    return RU_OK;
}

static uint32_t app_wants(void *self, const ru_app_task *t, ru_app_want *w, uint32_t max)
{
    state *s = self;
    RU_CHECK(max >= 4);
    uint32_t row = (uint32_t)(t->seed % 11);
    for (uint32_t i = 0; i < 8; i++) {
        s->list[i] = row;
        row += 1 + (uint32_t)(t->seed >> (8 * i) & 7);
    }
    uint32_t mistake = t->clock == 2 ? s->app->job->mistake : RU_PARAMS_FINE;
    s->list[7] = mistake == RU_PARAMS_ROW ? ROWS : s->list[7];
    w[0] = (ru_app_want){.table = COUNTS, .rows = 8, .list = s->list, .write = true};
    w[1] = (ru_app_want){.table = NUMBERS, .first = 0, .rows = ROWS, .write = true};
    if (!s->app->job->rotate) {
        return mistake == RU_PARAMS_MANY ? RU_APP_WANTS_MAX + 1 : 2;
    }
    int64_t lo = ROWS * (int64_t)t->block / t->blocks,
            hi = ROWS * (int64_t)(t->block + 1) / t->blocks;
    hi = mistake == RU_PARAMS_BLOCK ? ROWS : hi;
    w[2] = (ru_app_want){.table = ROTATES, .first = lo, .rows = hi - lo, .write = true};
    w[3] = (ru_app_want){.table = LOCALS,
                         .first = RU_PARAMS_ITEMS * (int64_t)s->k,
                         .rows = RU_PARAMS_ITEMS,
                         .write = true};
    return 4;
}

static ru_status app_run(void *self, const ru_app_task *t, const ru_app_view *view,
                         ru_app_result *result, ru_err *err)
{
    state *s = self;
    const app *a = s->app;
    uint32_t rounds = a->job->rotate ? a->job->executors : 1;
    if (a->job->partial && s->next < t->clock * rounds + t->round) {
        s->next =
            t->clock * rounds + t->round; /* a state of before, of an executor that was lost */
    }
    if (s->next != t->clock * rounds + t->round) {
        return RU_FAIL(err, RU_E_BUG, "executor %u runs step %u instead of %u", s->k,
                       t->clock * rounds + t->round, s->next);
    }
    s->next++;
    for (uint32_t i = 0; i < 8; i++) {
        view->value[0][i] += 1;
    }
    float scale = 1;
    if (a->job->drive) {
        memcpy(&scale, t->args, sizeof scale);
    }
    float *x = view->value[1], *d = view->delta[1];
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        float other = x[(i * 7 + s->k) % (ROWS * WIDTH)];
        float step = scale * (0.01F * (float)(s->k + 1) * other - 0.03F * x[i] + 0.001F);
        if (d == NULL) {
            x[i] += step;
        } else {
            d[i] = -step;
        }
        result->sums[0] += (double)x[i];
    }
    if (t->clock == 2 && a->job->mistake == RU_PARAMS_NAN) {
        *(d == NULL ? x : d) = RU_NAN;
    }
    result->sums[1] = 1;
    if (a->job->rotate) {
        uint32_t rows = (uint32_t)(ROWS * (uint64_t)(t->block + 1) / t->blocks -
                                   ROWS * (uint64_t)t->block / t->blocks);
        for (uint32_t i = 0; i < rows * 3; i++) {
            view->value[2][i] = view->value[2][i] * 0.75F +
                                view->value[3][i % (RU_PARAMS_ITEMS * 2)] + (float)(s->k + 1);
        }
        for (uint32_t i = 0; i < RU_PARAMS_ITEMS * 2; i++) {
            view->value[3][i] += 0.5F + 0.125F * (rows > 0 ? view->value[2][i % (rows * 3)] : 0);
            view->value[3][i] *= 0.25F;
        }
    }
    return RU_OK;
}

static ru_status app_drive(void *driver, uint32_t clock, const double *sums,
                           const ru_app_view *view, ru_app_bytes *args, ru_err *err)
{
    uint32_t *calls = driver;
    float near = view->value[0][3];
    float scale = 1.0F / (1.0F + 0.1F * (float)clock) + 0.1F * near / (1 + near * near) +
                  (sums != NULL ? (float)(sums[1] / (100 + sums[0] * sums[0])) : 0);
    if (*calls != clock) {
        return RU_FAIL(err, RU_E_BUG, "the driver was asked for clock %u instead of %u", clock,
                       *calls);
    }
    ++*calls;
    ru_app_put(args, &scale, sizeof scale);
    return RU_OK;
}

static uint32_t app_drive_wants(void *driver, uint32_t clock, ru_app_want *w, uint32_t max)
{
    (void)driver;
    (void)clock;
    (void)max;
    w[0] = (ru_app_want){.table = NUMBERS, .first = 2, .rows = 3};
    return 1;
}

static uint32_t app_drive_wants_locals(void *driver, uint32_t clock, ru_app_want *w, uint32_t max)
{
    uint32_t n = app_drive_wants(driver, clock, w, max);
    w[0].table = clock == 2 ? LOCALS : NUMBERS;
    return n;
}

static ru_status app_drive_open(const void *self, void **driver, ru_err *err)
{
    (void)self;
    *driver = calloc(1, sizeof(uint32_t));
    return *driver == NULL ? RU_FAIL(err, RU_E_MEM, "no memory") : RU_OK;
}

static void app_drive_close(void *driver)
{
    free(driver);
}

static void app_drive_save(const void *driver, ru_app_bytes *to)
{
    ru_app_put(to, driver, sizeof(uint32_t));
}

static ru_status app_drive_load(void *driver, const void *bytes, int64_t n, ru_err *err)
{
    if (n != (int64_t)sizeof(uint32_t)) {
        return RU_FAIL(err, RU_E_DATA, "a foreign driver");
    }
    memcpy(driver, bytes, sizeof(uint32_t));
    return RU_OK;
}

static const ru_app_ops plain_ops = {.version = RU_APP_VERSION,
                                     .name = "tally",
                                     .tables = app_tables,
                                     .first = app_first,
                                     .exec_open = app_exec_open,
                                     .exec_close = app_exec_close,
                                     .exec_save = app_exec_save,
                                     .exec_load = app_exec_load,
                                     .wants = app_wants,
                                     .run = app_run};

ru_app_ops ru_params_ops(const ru_params_job *job)
{
    ru_app_ops ops = plain_ops;
    if (job->drive) {
        ops.drive = app_drive;
        ops.drive_wants =
            job->mistake == RU_PARAMS_DRIVER ? app_drive_wants_locals : app_drive_wants;
        ops.drive_open = app_drive_open;
        ops.drive_close = app_drive_close;
        ops.drive_save = app_drive_save;
        ops.drive_load = app_drive_load;
    }
    return ops;
}

/* -- one loop ------------------------------------------------------------------------------------
 */

void ru_params_tables(const ru_app_shape *s, ru_params_result *out)
{
    for (uint32_t t = 0; t < s->n_tables; t++) {
        out->floats[t] = s->table[t].rows * s->table[t].width;
        out->table[t] = calloc((size_t)out->floats[t], sizeof(float));
        RU_CHECK(out->table[t] != NULL);
    }
}

static float *row_of(const ru_app_shape *s, const ru_params_result *r, uint32_t t, int64_t row)
{
    return r->table[t] + row * s->table[t].width;
}

typedef struct change {
    uint32_t table;
    int64_t row;
    float d[WIDTH];
} change;

static void one_task(const ru_app_ops *ops, const ru_app_shape *s, state *x, ru_app_task task,
                     ru_params_result *r, change *log, uint32_t *n_log)
{
    ru_app_want w[RU_APP_WANTS_MAX];
    float *value[RU_APP_WANTS_MAX] = {0}, *delta[RU_APP_WANTS_MAX] = {0};
    uint32_t n = ops->wants(x, &task, w, RU_APP_WANTS_MAX);
    for (uint32_t k = 0; k < n; k++) {
        const ru_app_table *t = &s->table[w[k].table];
        value[k] = calloc((size_t)(w[k].rows * t->width + 1), sizeof(float));
        for (int64_t i = 0; i < w[k].rows; i++) {
            int64_t row = w[k].list != NULL ? w[k].list[i] : w[k].first + i;
            memcpy(value[k] + i * t->width, row_of(s, r, w[k].table, row), t->width * 4);
        }
        delta[k] = t->rule == RU_APP_ADD || t->rotate || t->local
                       ? NULL
                       : calloc((size_t)(w[k].rows * t->width), sizeof(float));
    }
    const ru_app_view view = {value, delta};
    ru_app_result result = {0};
    RU_CHECK(ops->run(x, &task, &view, &result, NULL) == RU_OK);
    for (uint32_t i = 0; i < RU_APP_SUMS_MAX; i++) {
        r->sums[i] += result.sums[i];
    }
    for (uint32_t k = 0; k < n; k++) {
        const ru_app_table *t = &s->table[w[k].table];
        for (int64_t i = 0; i < w[k].rows; i++) {
            int64_t row = w[k].list != NULL ? w[k].list[i] : w[k].first + i;
            float *at = row_of(s, r, w[k].table, row), *v = value[k] + i * t->width;
            if (t->rotate || t->local) {
                memcpy(at, v, t->width * 4);
                continue;
            }
            change *c = &log[(*n_log)++];
            *c = (change){.table = w[k].table, .row = row};
            for (uint32_t j = 0; j < t->width; j++) {
                c->d[j] = delta[k] != NULL ? delta[k][i * t->width + j] : v[j] - at[j];
            }
        }
        free(value[k]);
        free(delta[k]);
    }
}

/* Tasks of a clock in the order of rounds; their changes in the order (executor, round). */
static void one_clock(const app *a, const ru_app_ops *ops, const ru_app_shape *s, void **x,
                      uint32_t clock, const ru_app_bytes *args, ru_params_result *r,
                      float *const *extra)
{
    uint32_t n = s->executors, each = 8 + ROWS;
    change *log = calloc((size_t)n * s->rounds * each, sizeof *log);
    uint32_t *n_log = calloc((size_t)n * s->rounds, sizeof *n_log);
    double(*sums)[RU_APP_SUMS_MAX] = calloc((size_t)n * s->rounds, sizeof *sums);
    for (uint32_t round = 0; round < s->rounds; round++) {
        for (uint32_t k = 0; k < n; k++) {
            uint32_t slot = k * s->rounds + round;
            ru_app_task task = ru_app_task_of(s, k, clock, round, RU_PARAMS_ITEMS);
            task.args = args->p;
            task.args_bytes = args->n;
            memset(r->sums, 0, sizeof r->sums);
            one_task(ops, s, x[k], task, r, log + (size_t)slot * each, &n_log[slot]);
            memcpy(sums[slot], r->sums, sizeof r->sums);
        }
    }
    memset(r->sums, 0, sizeof r->sums);
    for (uint32_t slot = 0; slot < n * s->rounds; slot++) {
        for (uint32_t i = 0; i < RU_APP_SUMS_MAX; i++) {
            r->sums[i] += sums[slot][i];
        }
        for (uint32_t i = 0; i < n_log[slot]; i++) {
            const change *c = &log[(size_t)slot * each + i];
            const ru_app_table *t = &s->table[c->table];
            ru_rule_merge(ops, a, t, c->table, clock, row_of(s, r, c->table, c->row),
                          extra[c->table] + c->row * ru_rule_extra(t), c->d);
        }
    }
    free(log);
    free(n_log);
    free(sums);
}

void ru_params_alone(const ru_params_job *job, ru_params_result *out)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const app a = {job};
    const ru_app_ops ops = ru_params_ops(job);
    ru_app_shape s;
    ru_err err;
    float *extra[RU_PARAMS_TABLES] = {0};
    uint32_t driver = 0;
    ru_app_bytes args = {0};
    RU_CHECK(ru_app_shape_get(&ops, &a, job->executors, job->seed, &arena, &s, &err) == RU_OK);
    *out = (ru_params_result){.ended = true};
    ru_params_tables(&s, out);
    void **x = calloc(job->executors, sizeof *x);
    for (uint32_t t = 0; t < s.n_tables; t++) {
        extra[t] = calloc((size_t)(s.table[t].rows * ru_rule_extra(&s.table[t]) + 1), 4);
        for (int64_t r = 0; r < s.table[t].rows; r++) {
            ru_app_first(&ops, &a, &s, t, r, row_of(&s, out, t, r));
        }
    }
    for (uint32_t k = 0; k < job->executors; k++) {
        RU_CHECK(app_exec_open(&a, k, NULL, &x[k], &err) == RU_OK);
    }
    for (uint32_t c = 0; c < job->clocks; c++) {
        args.n = 0;
        float *value = row_of(&s, out, NUMBERS, 2);
        const ru_app_view view = {.value = &value};
        RU_CHECK(!job->drive ||
                 app_drive(&driver, c, c > 0 ? out->sums : NULL, &view, &args, &err) == RU_OK);
        one_clock(&a, &ops, &s, x, c, &args, out, extra);
    }
    for (uint32_t k = 0; k < job->executors; k++) {
        app_exec_close(x[k]);
    }
    for (uint32_t t = 0; t < s.n_tables; t++) {
        free(extra[t]);
    }
    free(x);
    ru_app_bytes_fini(&args);
    ru_arena_fini(&arena);
}

uint32_t ru_params_counted(const ru_params_job *job)
{
    return ROWS + (job->divided ? RU_PARAMS_SLICED * job->executors : 0);
}

void ru_params_counts(const ru_params_job *job, const uint8_t *lost, bool exact, double *low,
                      double *high)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const app a = {job};
    const ru_app_ops ops = ru_params_ops(job);
    ru_app_shape s;
    ru_err err;
    RU_CHECK(ru_app_shape_get(&ops, &a, job->executors, job->seed, &arena, &s, &err) == RU_OK);
    memset(low, 0, ROWS * sizeof *low);
    memset(high, 0, ROWS * sizeof *high);
    for (uint32_t i = 0; i < job->clocks * s.executors * s.rounds; i++) {
        uint32_t k = i % s.executors, c = i / s.executors / s.rounds;
        state x = {.app = &a, .k = k};
        ru_app_want w[RU_APP_WANTS_MAX];
        const ru_app_task t = ru_app_task_of(&s, k, c, i / s.executors % s.rounds, RU_PARAMS_ITEMS);
        (void)ops.wants(&x, &t, w, RU_APP_WANTS_MAX);
        for (uint32_t j = 0; j < 8; j++) {
            bool gone = lost[c * ROWS + x.list[j]] != 0;
            low[x.list[j]] += gone ? 0 : 1;
            high[x.list[j]] += !gone ? 1 : exact ? 0 : 2;
        }
    }
    ru_arena_fini(&arena);
}

void ru_params_result_fini(ru_params_result *r)
{
    free(r->lost);
    for (uint32_t t = 0; t < RU_PARAMS_TABLES; t++) {
        free(r->table[t]);
    }
}
