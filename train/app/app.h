/* An app: iterative learning with shared parameters, written as functions that an engine calls.
 *
 *   tables     shared parameters: rows of fixed width, kept in shards by servers. An update is a
 *              change of a row, merged by the table's rule, each exactly once.
 *   executors  a fixed number of them, each owns a part of the data and, if it wants, a state of
 *              its own. An executor runs one task at a time.
 *   tasks      a range of an executor's items in one clock (one pass, or a part of one). The engine
 *              decides where and when a task runs; a task decides nothing.
 *   driver     counts clocks: all executors in step (bsp), some clocks apart (ssp), without order
 *              (async), or by rotation, where every executor holds another block of the
 *              parameters at any time. An app may give each clock arguments of its own choice.
 *
 * A clock is one of `pieces` equal pieces of a pass over the data. In clock c executor e works on
 * piece c % pieces of its items. With rotation (a table says `rotate`) a clock has as many rounds
 * as there are executors, and executor e holds block (e + r) % executors in round r: one task for
 * each round. Rows that rotate and local rows have one holder at a time, who changes them in place.
 * All other rows show the state of the end of the clock before (bsp, rotation), and are merged in
 * the order (executor, round) when the clock ends.
 *
 * A task names the rows it will use before it runs, so the engine can fetch them ahead; while it
 * runs nothing blocks. Executors and shards may move to other processes between two tasks: an app
 * keeps nothing outside its executors' states and the tables.
 *
 * The same functions run in one process without any network, on many processes, and in the
 * simulator. In bsp and rotation the result is a function of the job alone: not of the number of
 * processes, nor of moves.
 *
 * Unit: items are rows of the data unless the app says otherwise.
 * Thread: functions of one executor are called by one thread at a time; those of several executors
 * at the same time. An app's `self` is read-only after open.
 * Source: litz-2018 (executors, tasks, driver), flexrr-2016 (tables, clocks), the names and the
 * declared rows are ours. */
#ifndef RU_TRAIN_APP_APP_H
#define RU_TRAIN_APP_APP_H

#include "base/conf.h"
#include "base/rng.h"
#include "base/str.h"
#include "data/format/sparse.h"

RU_API_BEGIN

enum {
    RU_APP_VERSION = 1,
    RU_APP_TABLES_MAX = 8,
    RU_APP_SUMS_MAX = 16, /* figures of a clock */
    RU_APP_METRICS_MAX = 4,
    RU_APP_WANTS_MAX = 16,
};

/* How a server merges an update d into a row x. Source of the last three: adagrad-2011,
 * adarevision-2014, adam-2014. State of a rule travels and is saved with its row. */
typedef enum ru_app_rule {
    RU_APP_ADD,  /* x += d */
    RU_APP_STEP, /* x -= lr d: d is a gradient, as in all that follow */
    RU_APP_ADAGRAD,
    RU_APP_ADAREVISION,
    RU_APP_ADAM,
    RU_APP_USER, /* the app's merge */
} ru_app_rule;

/* When workers die, tables that count what executors hold are made again from what is left: in one
 * clock, all tables have their first values, and `recount` of a task is set. */
typedef enum ru_app_recount {
    RU_APP_RECOUNT_NEVER,
    /* Tables follow from the states of all executors: the task adds what its state says. States of
     * executors that died are those that were saved last, or as exec_open makes them. */
    RU_APP_RECOUNT_STATES,
    /* Tables and states follow from the driver's state: `drive` is asked with `sums` NULL, its
     * arguments say all of it. Without the driver, whose process died, all goes back. */
    RU_APP_RECOUNT_DRIVER,
} ru_app_recount;

typedef struct ru_app_table {
    const char *name; /* in checkpoints and messages */
    int64_t rows;
    uint32_t width; /* floats a row, >= 1 */
    uint32_t rule;  /* ru_app_rule */
    uint32_t extra; /* RU_APP_USER: floats of state a row beside its values */
    double lr;
    /* Rows are cut into as many blocks as there are executors, and the blocks rotate: block b is
     * rows cut[b] .. cut[b + 1] - 1. Any table with it asks for rotation, which replaces bsp. */
    bool rotate;
    const int64_t *cut; /* [executors + 1] view until close; NULL: equal numbers of rows */
    /* Row r belongs to row r of the data (rows: those of the data): it lives with the executor that
     * has it, moves and is saved with it. No other executor reads it. */
    bool local;
    bool hidden; /* not in exports */
    bool told;   /* few rows: `objective` gets them */
} ru_app_table;

/* Rows first .. first + rows - 1 of a table, or rows that are listed. */
typedef struct ru_app_want {
    uint32_t table;
    int64_t first;
    int64_t rows;
    const uint32_t *list; /* [rows] ascending; NULL: the range */
    bool write;           /* the task changes them (else reading is enough) */
} ru_app_want;

typedef struct ru_app_task {
    uint32_t executor, clock;
    uint32_t round;   /* rotation: of the clock; else 0 */
    uint32_t block;   /* rotation: of the tables that rotate; else 0 */
    uint32_t blocks;  /* else 1 */
    int64_t lo, hi;   /* items lo .. hi - 1 of the executor's part; may be none */
    const void *args; /* of this clock, from the driver; view */
    int64_t args_bytes;
    uint64_t seed; /* of (job, executor, clock, round): the same wherever the task runs */
    bool recount;  /* of an app with `recount`: all tables have their first values */
} ru_app_task;

/* What a task works on: for want k, value[k] holds its rows one after another,
 * value[k] + i * width. They are the task's own copies, or the only ones: a task that wrote what it
 * declared sees its own writes. After the task the engine sends what has changed:
 *   one holder          nothing: rows that rotate and local rows are changed in place
 *   rule ADD            value[k] after the task minus before
 *   the other rules     delta[k]: the gradient or update, zero at the start; value[k] is const */
typedef struct ru_app_view {
    float *const *value; /* [n_wants] */
    float *const *delta; /* [n_wants]; NULL where the rule is ADD or the want is not `write` */
} ru_app_view;

/* Figures of one task; the engine adds them in the order (clock, executor, round). sums[0] is the
 * objective unless the app has `objective`. */
typedef struct ru_app_result {
    double sums[RU_APP_SUMS_MAX];
} ru_app_result;

typedef struct ru_app_metric {
    const char *name; /* "rmse", "accuracy" */
    double value;
} ru_app_metric;

/* What a job says and the data shows; view of everything, valid until close. */
typedef struct ru_app_setup {
    const void *config; /* filled from the job by the app's own conf table */
    const ru_sparse_file *data;
    int64_t rows, cols, classes; /* of the training data; classes 0: numbers, or none */
    uint32_t executors;          /* at most as many as the data has rows */
    uint64_t seed;
    bool eval; /* for eval and predict alone: `data` is what the model is used on */
} ru_app_setup;

/* Bytes that grow: `put` copies. Errors are kept and returned when the engine takes the bytes. */
typedef struct ru_app_bytes {
    uint8_t *p; /* [n]; freed by the engine */
    int64_t n, room;
    bool full; /* no memory for what was put */
} ru_app_bytes;
void ru_app_put(ru_app_bytes *to, const void *from, int64_t bytes);
/* Bytes that are read from the front: false, and nothing taken, when fewer are left. */
typedef struct ru_app_cursor {
    const uint8_t *p;
    int64_t n;
} ru_app_cursor;
bool ru_app_take(ru_app_cursor *c, void *into, int64_t bytes);

typedef struct ru_app_ops {
    uint32_t version; /* RU_APP_VERSION */
    const char *name;
    const char *help;            /* one sentence */
    const ru_conf_table *config; /* the section under the app's name; NULL: it has none */
    int64_t config_bytes;        /* size of the struct that it fills */
    bool labels;                 /* the data must have labels */
    /* Learning repairs rows, local ones too, that are some clocks older than the others: when
     * workers die, only what they held goes back. false: `recount`, or all goes back. */
    bool partial;
    uint32_t recount; /* ru_app_recount */
    /* Check the setup and the data; make what all executors share. Errors: one sentence. */
    ru_status (*open)(const ru_app_setup *setup, void **self, ru_err *err);
    void (*close)(void *self);
    /* Shape: tables [RU_APP_TABLES_MAX] -> how many. */
    uint32_t (*tables)(const void *self, ru_app_table *tables);
    /* Clocks of a pass, >= 1. NULL: 1. */
    uint32_t (*pieces)(const void *self);
    /* First values of a row, before clock 0: a function of its arguments. NULL: zero. */
    void (*first)(const void *self, uint32_t table, int64_t row, ru_rng *rng, float *value);

    /* Executor `k` with its part of the data (view until exec_close). */
    ru_status (*exec_open)(const void *self, uint32_t k, const ru_sparse *part, void **state,
                           ru_err *err);
    void (*exec_close)(void *state);
    /* State that changes. NULL where there is none: unless a table rotates, or one that is not
     * local has the rule ADD, the engine may then divide a task. It runs some of the items, with
     * the rows that `wants` named for all of the task, one range after another or elsewhere, with a
     * state of its own from exec_open on the same part. Changes of local rows are of the items' own
     * rows alone, and gradients add up. A load of foreign or damaged bytes is RU_E_DATA. */
    void (*exec_save)(const void *state, ru_app_bytes *to);
    ru_status (*exec_load)(void *state, const void *bytes, int64_t n, ru_err *err);
    /* Rows that the task will use: wants [max = RU_APP_WANTS_MAX] -> how many. Lists are view until
     * the task ended. Called again with the same task, it answers the same. */
    uint32_t (*wants)(void *state, const ru_app_task *task, ru_app_want *wants, uint32_t max);
    /* Not finite numbers are an error: RU_E_DATA. */
    ru_status (*run)(void *state, const ru_app_task *task, const ru_app_view *view,
                     ru_app_result *result, ru_err *err);

    /* Merge of RU_APP_USER: `value` [width], `extra` [extra] of the row. */
    void (*merge)(const void *self, uint32_t table, float *value, float *extra,
                  const float *update);

    /* Driver, may be NULL: arguments of clock `clock`, the same for all executors, when all clocks
     * below are applied. `sums` are those of the clock before (NULL at clock 0, and when `recount`
     * of the clock's tasks will be set: then `view` has first values), `view` of what
     * `drive_wants` named. The driver's state is saved and loaded with a checkpoint. */
    ru_status (*drive_open)(const void *self, void **driver, ru_err *err); /* *driver: not NULL */
    void (*drive_close)(void *driver);
    uint32_t (*drive_wants)(void *driver, uint32_t clock, ru_app_want *wants, uint32_t max);
    ru_status (*drive)(void *driver, uint32_t clock, const double *sums, const ru_app_view *view,
                       ru_app_bytes *args, ru_err *err);
    void (*drive_save)(const void *driver, ru_app_bytes *to);
    ru_status (*drive_load)(void *driver, const void *bytes, int64_t n, ru_err *err);

    /* What the job minimises or maximises, from the sums of a clock and the rows of the tables that
     * are `told`, when all of the clock is merged: told[t], else NULL. NAN: not known in this
     * clock. NULL: sums[0]. */
    double (*objective)(const void *self, const double *sums, const float *const *told);
    const char *objective_name; /* "loss", "log_likelihood" */
    bool maximise;

    /* Use of a trained model: `tables` hold all rows of each table, [rows, width]. NULL: none.
     * eval adds figures of rows `part` of other data to `sums`; metrics makes up to
     * RU_APP_METRICS_MAX named figures of them. predict writes the prediction of one row of `part`
     * as a line of text without its end. */
    ru_status (*eval)(const void *self, const float *const *tables, const ru_sparse *part,
                      double *sums, ru_err *err);
    uint32_t (*metrics)(const void *self, const double *sums, ru_app_metric *metrics);
    ru_status (*predict)(const void *self, const float *const *tables, const ru_sparse *part,
                         int64_t row, ru_text *out, ru_err *err);
} ru_app_ops;

/* A library of a user's own app exports this function: `app: path/to/libmyapp.so`. */
typedef const ru_app_ops *(*ru_app_main_fn)(void);
#define RU_APP_MAIN "ru_app_main"

RU_API_END

#endif
