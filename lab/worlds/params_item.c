/* An app whose tasks can be divided: every item adds one to its row of a shared table and to its
 * local row, in every clock. */
#include "lab/worlds/params_app.h"

enum { COUNTS, ITEMS, NUMBERS, LOCALS };
enum { ROWS = 97, WIDTH = 5 };
enum { LEFT_OUT_MAX = 16 }; /* clocks in a row without an executor */

typedef ru_params_state state;

static uint32_t item_tables(const void *self, ru_app_table *t)
{
    const ru_params_app *a = self;
    int64_t all = (int64_t)RU_PARAMS_SLICED * a->job->executors;
    t[COUNTS] =
        (ru_app_table){.name = "counts", .rows = ROWS, .width = 1, .rule = RU_APP_STEP, .lr = 1};
    t[ITEMS] =
        (ru_app_table){.name = "items", .rows = all, .width = 2, .rule = RU_APP_STEP, .lr = 1};
    t[NUMBERS] = (ru_app_table){.name = "numbers",
                                .rows = ROWS,
                                .width = WIDTH,
                                .rule = a->job->rule == RU_APP_ADD ? RU_APP_STEP : a->job->rule,
                                .lr = 0.05};
    t[LOCALS] = (ru_app_table){.name = "locals", .rows = all, .width = 2, .local = true};
    return 4;
}

static uint32_t item_wants(void *self, const ru_app_task *t, ru_app_want *w, uint32_t max)
{
    state *s = self;
    int64_t first = (int64_t)RU_PARAMS_SLICED * s->k, n = t->hi - t->lo;
    RU_CHECK(max >= 4 && t->executor == s->k);
    for (int64_t i = 0; i < n; i++) {
        s->list[i] = (uint32_t)(first + t->lo + i);
    }
    w[0] = (ru_app_want){.table = COUNTS, .rows = ROWS, .write = true};
    w[1] = (ru_app_want){.table = ITEMS, .rows = n, .list = s->list, .write = true};
    w[2] = (ru_app_want){.table = NUMBERS, .rows = ROWS, .write = true};
    w[3] = (ru_app_want){.table = LOCALS, .first = first, .rows = RU_PARAMS_SLICED, .write = true};
    return 4;
}

/* What a task of this clock adds to the second number of an item: of jobs with executors in backup
 * the sum says which clocks are in it. */
static float second_of(const ru_params_job *job, uint32_t clock)
{
    return job->backup > 0 ? (float)(1U << clock) : (float)(clock % 5);
}

/* Which rows the view has is known from the list of `wants`: a task may be a part of it. */
static ru_status item_run(void *self, const ru_app_task *t, const ru_app_view *view,
                          ru_app_result *result, ru_err *err)
{
    const state *s = self;
    uint32_t first = RU_PARAMS_SLICED * s->k;
    for (int64_t i = t->lo; i < t->hi; i++) {
        float *local = view->value[3] + 2 * i;
        int64_t at = first + i - s->list[0];
        if (local[0] != (float)t->clock && !s->app->job->partial && s->app->job->backup == 0) {
            return RU_FAIL(err, RU_E_BUG, "item %lld of executor %u was worked on %g times",
                           (long long)i, s->k, (double)local[0]);
        }
        local[0] += 1;
        local[1] += (float)(i % 7);
        view->delta[0][(7 * i + s->k) % ROWS] -= 1;
        view->delta[1][2 * at] -= 1;
        view->delta[1][2 * at + 1] -= second_of(s->app->job, t->clock);
        for (uint32_t j = 0; j < WIDTH; j++) {
            view->delta[2][(i % ROWS) * WIDTH + j] += 0.01F * view->value[2][j];
        }
        result->sums[0] += 1;
        result->sums[1] += (double)i;
    }
    return RU_OK;
}

ru_app_ops ru_params_item_ops(const ru_params_job *job)
{
    ru_app_ops ops = ru_params_ops(job);
    ops.name = "item";
    ops.tables = item_tables;
    ops.exec_save = NULL;
    ops.exec_load = NULL;
    ops.wants = item_wants;
    ops.run = item_run;
    return ops;
}

/* Each item is there once in each clock but those whose changes of its row are said to be lost. */
static int64_t wrong_after_losses(const ru_params_job *job, const ru_params_result *r)
{
    uint32_t all = RU_PARAMS_SLICED * job->executors, rows = ru_params_counted(job);
    double counts[ROWS] = {0};
    for (uint32_t i = 0; i < all; i++) {
        float count = 0, fives = 0;
        uint32_t row = (7 * (i % RU_PARAMS_SLICED) + i / RU_PARAMS_SLICED) % ROWS;
        for (uint32_t c = 0; c < job->clocks; c++) {
            const uint8_t *lost = r->lost + (size_t)c * rows;
            count += lost[ROWS + i] == 0 ? 1 : 0;
            fives += lost[ROWS + i] == 0 ? (float)(c % 5) : 0;
            counts[row] += lost[row] == 0 ? 1 : 0;
        }
        /* What was lost before a rollback is not lost then. */
        bool back = r->generations > 1 && r->table[ITEMS][2 * i] <= (float)job->clocks;
        if (!back && (r->table[ITEMS][2 * i] != count || r->table[ITEMS][2 * i + 1] != fives)) {
            return 2 * (int64_t)i + 1;
        }
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        if (r->generations == 1 && (double)r->table[COUNTS][i] != counts[i]) {
            return 1;
        }
    }
    return 0;
}

/* A leader that begins with a clock knows nothing of those before. */
static uint32_t longest_gap(uint32_t mask, uint32_t begun_at, uint32_t clocks)
{
    uint32_t now = 0, longest = 0;
    for (uint32_t c = 0; c < clocks; c++) {
        now = begun_at >> c & 1 ? 0 : now;
        now = mask >> c & 1 ? 0 : now + 1;
        longest = now > longest ? now : longest;
    }
    return longest;
}

/* All items of an executor are there once in each clock, or none of them, so many executors are
 * missing in each clock as were told, and none of them for too long. */
static int64_t wrong_after_backup(const ru_params_job *job, const ru_params_result *r)
{
    uint32_t missing[RU_ARRAY_LEN(r->left_out)] = {0};
    double counts = 0, all = 0;
    for (uint32_t k = 0; k < job->executors; k++) {
        const float *item = r->table[ITEMS] + (size_t)2 * RU_PARAMS_SLICED * k;
        uint32_t clocks = (uint32_t)item[1];
        for (uint32_t i = 0; i < RU_PARAMS_SLICED; i++) {
            if (item[2 * i] != (float)__builtin_popcount(clocks) || item[2 * i + 1] != item[1] ||
                clocks >> job->clocks != 0) {
                return 2 * ((int64_t)k * RU_PARAMS_SLICED + i) + 1;
            }
        }
        if (longest_gap(clocks, r->begun_at, job->clocks) > LEFT_OUT_MAX) {
            return 2 * (int64_t)k * RU_PARAMS_SLICED + 1;
        }
        for (uint32_t c = 0; c < job->clocks; c++) {
            missing[c] += clocks >> c & 1 ? 0 : 1;
        }
        all += (double)item[0] * RU_PARAMS_SLICED;
    }
    for (uint32_t c = 0; c < job->clocks; c++) {
        if (missing[c] != r->left_out[c] || missing[c] > job->backup) {
            return 2 * (int64_t)c + 1;
        }
    }
    for (int64_t i = 0; i < ROWS; i++) {
        counts += (double)r->table[COUNTS][i];
    }
    return counts == all ? 0 : 1;
}

/* What is wrong with the tables after all clocks: 0 or the number of the wrong float + 1. */
int64_t ru_params_item_wrong(const ru_params_job *job, const ru_params_result *r)
{
    if (r->recoveries > 0) {
        return wrong_after_losses(job, r);
    }
    if (job->backup > 0) {
        return wrong_after_backup(job, r);
    }
    float fives = 0;
    for (uint32_t c = 0; c < job->clocks; c++) {
        fives += (float)(c % 5);
    }
    int64_t all = (int64_t)RU_PARAMS_SLICED * job->executors;
    double counts = 0;
    for (int64_t i = 0; i < all; i++) {
        float c = (float)job->clocks, seven = (float)(i % RU_PARAMS_SLICED % 7);
        if (r->table[ITEMS][2 * i] != c || r->table[ITEMS][2 * i + 1] != fives ||
            r->table[LOCALS][2 * i] != c || r->table[LOCALS][2 * i + 1] != c * seven) {
            return 2 * i + 1;
        }
    }
    for (int64_t i = 0; i < ROWS; i++) {
        counts += (double)r->table[COUNTS][i];
    }
    return counts == (double)all * job->clocks ? 0 : 1;
}
