#include "train/app/local.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/app/call.h"
#include "train/app/local_impl.h"
#include "train/app/rule.h"

/* -- open -------------------------------------------------------------------------------------- */

static void fill_first(void *arg, uint32_t thread, uint32_t threads)
{
    ru_app_local *l = arg;
    const ru_app_shape *shape = &l->state.shape;
    for (uint32_t t = 0; t < shape->n_tables; t++) {
        int64_t row, end;
        ru_pool_split(shape->table[t].rows, 1, thread, threads, &row, &end);
        for (; row < end; row++) {
            ru_app_first(l->opt.ops, l->self, shape, t, row,
                         l->state.value[t] + row * shape->table[t].width);
        }
    }
}

static ru_status open_executors(ru_app_local *l, ru_err *err)
{
    const ru_app_setup *setup = &l->opt.setup;
    ru_sparse_cut(setup->data, l->executors, l->first);
    for (uint32_t e = 0; e < l->executors; e++) {
        rui_executor *x = &l->exec[e];
        ru_sparse_part(setup->data, l->first[e], l->first[e + 1] - l->first[e], &x->part);
        RU_TRY(ru_app_call_exec_open(l->opt.ops, l->self, e, &x->part, &x->state, err));
        x->open = true;
    }
    return RU_OK;
}

static ru_status open_all(ru_app_local *l, ru_err *err)
{
    const ru_app_ops *ops = l->opt.ops;
    const ru_app_setup *setup = &l->opt.setup;
    int64_t rows = ru_sparse_rows(setup->data);
    RU_CHECK(setup->executors >= 1 && setup->executors <= RU_APP_EXECUTORS_MAX);
    RU_CHECK(setup->executors <= rows); /* ru_app_data_open says so */
    l->executors = setup->executors;
    RU_TRY(ru_pool_new(l->opt.threads, &l->pool, err));
    RU_TRY(ru_app_call_open(ops, setup, &l->self, err));
    l->opened = true;
    RU_TRY(ru_app_state_init(&l->state, ops, l->self, l->executors, rows, setup->seed, err));
    l->rounds = l->state.shape.rounds;
    l->first = calloc(l->executors + 1, sizeof *l->first);
    l->exec = calloc(l->executors, sizeof *l->exec);
    l->jobs = calloc((size_t)l->executors * l->rounds, sizeof *l->jobs);
    if (l->first == NULL || l->exec == NULL || l->jobs == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u executors", l->executors);
    }
    ru_pool_run(l->pool, fill_first, l);
    RU_TRY(open_executors(l, err));
    if (ops->drive_open != NULL) {
        RU_TRY(ru_app_call_drive_open(ops, l->self, &l->driver, err));
        l->driven = true;
    }
    return RU_OK;
}

ru_status ru_app_local_open(const ru_app_local_options *opt, ru_app_local **out, ru_err *err)
{
    ru_app_local *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the host of the app");
    }
    l->opt = *opt;
    ru_status st = open_all(l, err);
    if (st != RU_OK) {
        ru_app_local_close(l);
        return st;
    }
    *out = l;
    return RU_OK;
}

ru_status ru_app_local_record(ru_app_local *l, ru_recorder *r, ru_err *err)
{
    l->names.executor = calloc(l->executors, sizeof *l->names.executor);
    if (l->names.executor == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u executors", l->executors);
    }
    for (uint32_t e = 0; e < l->executors; e++) {
        char name[32];
        (void)snprintf(name, sizeof name, "executor %u", e);
        l->names.executor[e] = ru_recorder_name(r, name, "op");
    }
    l->names.tasks = ru_recorder_name(r, "tasks", "train");
    l->names.arguments = ru_recorder_name(r, "arguments", "op");
    l->names.merge = ru_recorder_name(r, "merge changes", "op");
    l->recorder = r;
    return RU_OK;
}

void ru_app_local_close(ru_app_local *l)
{
    if (l == NULL) {
        return;
    }
    const ru_app_ops *ops = l->opt.ops;
    for (uint32_t e = 0; l->exec != NULL && e < l->executors; e++) {
        if (l->exec[e].open && ops->exec_close != NULL) {
            ops->exec_close(l->exec[e].state);
        }
    }
    if (l->driven && ops->drive_close != NULL) {
        ops->drive_close(l->driver);
    }
    if (l->opened && ops->close != NULL) {
        ops->close(l->self);
    }
    for (size_t k = 0; l->jobs != NULL && k < (size_t)l->executors * l->rounds; k++) {
        ru_arena_fini(&l->jobs[k].arena);
    }
    ru_app_state_fini(&l->state);
    ru_arena_fini(&l->arena);
    ru_pool_free(l->pool);
    ru_app_bytes_fini(&l->args);
    free(l->first);
    free(l->exec);
    free(l->jobs);
    free(l->names.executor);
    free(l);
}

/* -- a clock ----------------------------------------------------------------------------------- */

static ru_status drive(ru_app_local *l, ru_err *err)
{
    const ru_app_ops *ops = l->opt.ops;
    l->args.n = 0;
    if (ops->drive == NULL) {
        return RU_OK;
    }
    static const ru_arena_mark start = {0};
    ru_arena_rewind(&l->arena, start);
    ru_app_want wants[RU_APP_WANTS_MAX] = {0};
    float *value[RU_APP_WANTS_MAX] = {0}, *delta[RU_APP_WANTS_MAX] = {0};
    uint32_t clock = l->state.clock, n = 0;
    if (ops->drive_wants != NULL) {
        RU_TRY(ru_app_call_drive_wants(ops, &l->state.shape, l->driver, clock, wants, &n, err));
    }
    for (uint32_t k = 0; k < n; k++) {
        value[k] = rui_local_rows(&l->state, &wants[k], true, &l->arena);
        if (value[k] == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the rows of the driver");
        }
    }
    ru_app_view view = {.value = value, .delta = delta};
    ru_status st =
        ru_app_call_drive(ops, l->driver, clock, clock > 0 ? l->sums : NULL, &view, &l->args, err);
    if (st == RU_OK && l->args.full) {
        st = RU_FAIL(err, RU_E_MEM,
                     "no memory for the driver's arguments, or it wrote them without ru_app_put");
    }
    return st == RU_OK ? st : ru_err_wrap(err, st, "app %s, driver, clock %u", ops->name, clock);
}

typedef struct wave {
    ru_app_local *l;
    uint32_t lo, hi; /* executors */
    uint32_t round;
} wave;

/* Run fn on all threads; what they do is `name` on this one. */
static void run_all(ru_app_local *l, ru_pool_fn fn, wave *w, uint16_t name)
{
    int64_t begin = l->recorder != NULL ? ru_rec_now() : 0;
    ru_pool_run(l->pool, fn, w);
    if (l->recorder != NULL) {
        ru_rec_span(l->recorder, name, begin, ru_rec_now(), w->hi - w->lo);
    }
}

static void run_wave(void *arg, uint32_t thread, uint32_t threads)
{
    const wave *w = arg;
    for (uint32_t e = w->lo + thread; e < w->hi; e += threads) {
        rui_local_task(w->l, e, w->round, &w->l->jobs[(size_t)e * w->l->rounds + w->round]);
    }
}

/* The first row of `c` at or behind row `from`: its place. */
static int64_t place_of(const rui_change *c, int64_t from)
{
    if (c->list == NULL) {
        int64_t k = from - c->first;
        return k < 0 ? 0 : k > c->rows ? c->rows : k;
    }
    int64_t lo = 0, hi = c->rows;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (c->list[mid] < from) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static void merge_rows(ru_app_local *l, const rui_change *c, int64_t from, int64_t until)
{
    const ru_app_state *s = &l->state;
    const ru_app_table *t = &s->shape.table[c->table];
    int64_t end = place_of(c, until);
    for (int64_t i = place_of(c, from); i < end; i++) {
        int64_t row = c->list != NULL ? c->list[i] : c->first + i;
        float *extra =
            s->extra[c->table] != NULL ? s->extra[c->table] + row * s->extra_width[c->table] : NULL;
        ru_rule_merge(l->opt.ops, l->self, t, c->table, s->clock,
                      s->value[c->table] + row * t->width, extra, c->delta + i * t->width);
    }
}

/* Each thread has rows of its own and merges the changes of all jobs in their order. */
static void merge_wave(void *arg, uint32_t thread, uint32_t threads)
{
    const wave *w = arg;
    ru_app_local *l = w->l;
    for (size_t k = (size_t)w->lo * l->rounds; k < (size_t)w->hi * l->rounds; k++) {
        for (uint32_t i = 0; i < l->jobs[k].n; i++) {
            const rui_change *c = &l->jobs[k].change[i];
            int64_t begin, end;
            ru_pool_split(l->state.shape.table[c->table].rows, 1, thread, threads, &begin, &end);
            merge_rows(l, c, begin, end);
        }
    }
}

static ru_status run_tasks(ru_app_local *l, ru_err *err)
{
    uint32_t step = l->executors;
    if (l->rounds == 1 && l->opt.order != RU_APP_BSP) {
        step = ru_pool_threads(l->pool);
    }
    for (uint32_t lo = 0; lo < l->executors; lo += step) {
        wave w = {l, lo, lo + step < l->executors ? lo + step : l->executors, 0};
        for (w.round = 0; w.round < l->rounds; w.round++) {
            run_all(l, run_wave, &w, l->names.tasks);
            for (uint32_t e = w.lo; e < w.hi; e++) {
                const rui_job *j = &l->jobs[(size_t)e * l->rounds + w.round];
                if (j->st != RU_OK) {
                    return ru_err_set(err, j->st, "%s", j->err.text);
                }
            }
        }
        run_all(l, merge_wave, &w, l->names.merge);
    }
    return RU_OK;
}

ru_status ru_app_local_clock(ru_app_local *l, double *sums, ru_err *err)
{
    int64_t begin = l->recorder != NULL ? ru_rec_now() : 0;
    RU_TRY(drive(l, err));
    if (l->recorder != NULL && l->opt.ops->drive != NULL) {
        ru_rec_span(l->recorder, l->names.arguments, begin, ru_rec_now(), 0);
    }
    RU_TRY(run_tasks(l, err));
    memset(sums, 0, sizeof l->sums);
    for (size_t k = 0; k < (size_t)l->executors * l->rounds; k++) {
        for (uint32_t i = 0; i < RU_APP_SUMS_MAX; i++) {
            sums[i] += l->jobs[k].result.sums[i];
        }
    }
    for (uint32_t i = 0; i < RU_APP_SUMS_MAX; i++) {
        if (!isfinite(sums[i])) {
            return RU_FAIL(err, RU_E_DATA,
                           "app %s, clock %u: figure %u is not finite; lower the learning rate",
                           l->opt.ops->name, l->state.clock, i);
        }
    }
    memcpy(l->sums, sums, sizeof l->sums);
    l->state.clock++;
    return RU_OK;
}

double ru_app_local_objective(const ru_app_local *l, const double *sums)
{
    const float *told[RU_APP_TABLES_MAX] = {0};
    for (uint32_t t = 0; t < l->state.shape.n_tables; t++) {
        told[t] = l->state.shape.table[t].told ? l->state.value[t] : NULL;
    }
    return ru_app_call_objective(l->opt.ops, l->self, l->state.clock - 1, sums, told);
}

/* -- state ------------------------------------------------------------------------------------- */

ru_status ru_app_local_save(ru_app_local *l, ru_app_state **out, ru_err *err)
{
    const ru_app_ops *ops = l->opt.ops;
    bool full = false;
    for (uint32_t e = 0; e < l->executors; e++) {
        ru_app_bytes *b = &l->state.exec[e];
        b->n = 0;
        b->full = false;
        ru_app_call_exec_save(ops, l->exec[e].state, e, b);
        full = full || b->full;
    }
    ru_app_bytes *b = &l->state.driver;
    b->n = 0;
    b->full = false;
    ru_app_put(b, l->sums, sizeof l->sums); /* the driver gets them in the next clock */
    ru_app_call_drive_save(ops, l->driver, b);
    if (full || b->full) {
        return RU_FAIL(err, RU_E_MEM,
                       "no memory for the states of %u executors, or app %s wrote one without "
                       "ru_app_put",
                       l->executors, ops->name);
    }
    *out = &l->state;
    return RU_OK;
}

ru_status ru_app_local_restore(ru_app_local *l, ru_err *err)
{
    const ru_app_ops *ops = l->opt.ops;
    for (uint32_t e = 0; e < l->executors && ops->exec_load != NULL; e++) {
        const ru_app_bytes *b = &l->state.exec[e];
        RU_TRY(ru_app_call_exec_load(ops, l->exec[e].state, e, b->p, b->n, err));
    }
    ru_app_cursor c = {l->state.driver.p, l->state.driver.n};
    if (!ru_app_take(&c, l->sums, sizeof l->sums)) {
        return RU_FAIL(err, RU_E_DATA, "the state of the driver is too short");
    }
    return ru_app_call_drive_load(ops, l->driver, c.p, c.n, err);
}

uint32_t ru_app_local_threads(const ru_app_local *l)
{
    return ru_pool_threads(l->pool);
}

uint32_t ru_app_local_pieces(const ru_app_local *l)
{
    return l->state.shape.pieces;
}

const void *ru_app_local_self(const ru_app_local *l)
{
    return l->self;
}
