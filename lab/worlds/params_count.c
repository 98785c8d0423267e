/* An app whose tables count what executors and the driver hold: every item of an executor is in one
 * bin and goes to another one in each clock; the driver's number grows, and executors know it. */
#include <stdlib.h>
#include <string.h>

#include "lab/worlds/params_app.h"

enum { BINS, TOTAL };
enum { ROWS = 97, NONE = 255 };

typedef struct state {
    uint32_t k, total;
    uint8_t bin[RU_PARAMS_ITEMS];
} state;

typedef struct args {
    uint32_t total, step;
} args;

static uint32_t count_tables(const void *self, ru_app_table *t)
{
    const ru_params_app *a = self;
    t[BINS] = (ru_app_table){
        .name = "bins", .rows = ROWS, .width = 1, .rule = RU_APP_ADD, .rotate = a->job->rotate};
    t[TOTAL] = (ru_app_table){.name = "total", .rows = 1, .width = 1, .rule = RU_APP_ADD};
    return 2;
}

static ru_status count_exec_open(const void *self, uint32_t k, const ru_sparse *part, void **out,
                                 ru_err *err)
{
    (void)self;
    (void)part;
    state *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory");
    }
    s->k = k;
    memset(s->bin, NONE, sizeof s->bin);
    *out = s;
    return RU_OK;
}

static void count_exec_close(void *self)
{
    free(self);
}

static void count_exec_save(const void *self, ru_app_bytes *to)
{
    ru_app_put(to, self, sizeof(state));
}

static ru_status count_exec_load(void *self, const void *bytes, int64_t n, ru_err *err)
{
    state *s = self;
    if (n != (int64_t)sizeof *s || ((const state *)bytes)->k != s->k) {
        return RU_FAIL(err, RU_E_DATA, "a foreign state");
    }
    memcpy(s, bytes, sizeof *s);
    return RU_OK;
}

static uint32_t first_of(const ru_app_task *t, uint32_t block)
{
    return ROWS * block / t->blocks;
}

static uint32_t count_wants(void *self, const ru_app_task *t, ru_app_want *w, uint32_t max)
{
    (void)self;
    RU_CHECK(max >= 2);
    uint32_t lo = first_of(t, t->block), hi = first_of(t, t->block + 1);
    w[0] = (ru_app_want){.table = BINS, .first = lo, .rows = hi - lo, .write = true};
    w[1] = (ru_app_want){.table = TOTAL, .rows = 1, .write = true};
    return 2;
}

/* Items of a block stay in it, those that are in no bin are dealt to the blocks. */
static void deal(state *s, const ru_app_task *t, float *bins)
{
    uint32_t lo = first_of(t, t->block), n = first_of(t, t->block + 1) - lo;
    for (uint32_t i = 0; i < RU_PARAMS_ITEMS && n > 0; i++) {
        bool fresh = s->bin[i] == NONE && i % t->blocks == t->block;
        if (!fresh && (s->bin[i] < lo || s->bin[i] >= lo + n)) {
            continue;
        }
        if (!fresh) {
            bins[s->bin[i] - lo] -= 1;
        }
        s->bin[i] = (uint8_t)(lo + (t->seed + 7 * i + (uint64_t)(int64_t)(bins[i % n] * 3)) % n);
        bins[s->bin[i] - lo] += 1;
    }
}

/* From some clocks on, a table without the items of this executor is one that is counted. */
static bool is_partial(const state *s, const ru_app_task *t, const float *bins)
{
    float seen = 0;
    bool any = t->clock <= 8 || t->blocks > 1;
    for (uint32_t i = 0; i < ROWS && !any; i++) {
        seen += bins[i];
    }
    for (uint32_t i = 0; i < RU_PARAMS_ITEMS && !any; i++) {
        any = s->bin[i] == NONE;
    }
    return !any && seen <= 0;
}

static ru_status count_run(void *self, const ru_app_task *t, const ru_app_view *view,
                           ru_app_result *result, ru_err *err)
{
    state *s = self;
    uint32_t lo = first_of(t, t->block), hi = first_of(t, t->block + 1);
    for (uint32_t i = 0; t->recount && i < RU_PARAMS_ITEMS; i++) {
        if (s->bin[i] != NONE && s->bin[i] >= lo && s->bin[i] < hi) {
            view->value[0][s->bin[i] - lo] += 1;
        }
    }
    if (!t->recount && is_partial(s, t, view->value[0])) {
        return RU_FAIL(err, RU_E_BUG, "executor %u reads empty bins in clock %u", s->k, t->clock);
    }
    if (!t->recount) {
        deal(s, t, view->value[0]);
    }
    if (t->args_bytes > 0 && t->round == 0) {
        args a;
        memcpy(&a, t->args, sizeof a);
        s->total = t->recount ? a.total : s->total + a.step;
        if (s->total != a.total) {
            return RU_FAIL(err, RU_E_BUG, "executor %u has %u in clock %u, and the driver %u", s->k,
                           s->total, t->clock, a.total);
        }
        view->value[1][0] += s->k == 0 ? (float)s->total - view->value[1][0] : 0;
    }
    result->sums[0] = 1;
    return RU_OK;
}

static ru_status count_drive(void *driver, uint32_t clock, const double *sums,
                             const ru_app_view *view, ru_app_bytes *to, ru_err *err)
{
    (void)view;
    (void)err;
    uint32_t *total = driver;
    args a = {.step = clock > 0 && sums == NULL ? 0 : 1 + clock % 5};
    *total += a.step;
    a.total = *total;
    ru_app_put(to, &a, sizeof a);
    return RU_OK;
}

ru_app_ops ru_params_count_ops(const ru_params_job *job)
{
    ru_app_ops ops = ru_params_ops(job);
    ops.name = "count";
    ops.recount = job->drive ? RU_APP_RECOUNT_DRIVER : RU_APP_RECOUNT_STATES;
    ops.tables = count_tables;
    ops.first = NULL;
    ops.exec_open = count_exec_open;
    ops.exec_close = count_exec_close;
    ops.exec_save = count_exec_save;
    ops.exec_load = count_exec_load;
    ops.wants = count_wants;
    ops.run = count_run;
    ops.drive = job->drive ? count_drive : NULL;
    ops.drive_wants = NULL;
    return ops;
}

int64_t ru_params_count_wrong(const ru_params_job *job, float *const *table,
                              const ru_app_bytes *states)
{
    float bins[ROWS] = {0};
    int64_t wrong = 0;
    state s = {0};
    for (uint32_t k = 0; k < job->executors; k++) {
        RU_CHECK(states[k].n == (int64_t)sizeof s);
        memcpy(&s, states[k].p, sizeof s);
        for (uint32_t i = 0; i < RU_PARAMS_ITEMS; i++) {
            if (s.bin[i] != NONE) {
                bins[s.bin[i]] += 1;
            }
        }
        wrong += job->drive && (float)s.total != table[TOTAL][0] ? 1 : 0;
    }
    for (uint32_t b = 0; b < ROWS; b++) {
        wrong += bins[b] == table[BINS][b] ? 0 : 1;
    }
    return wrong;
}
