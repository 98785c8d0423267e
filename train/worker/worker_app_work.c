/* Threads of a worker of a job with an app: those that compute, one for files, one for the
 * checkpoints that eval and predict read. A file of an object: hash | bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "env/file/file.h"
#include "run/ckpt_form.h"
#include "train/app/call.h"
#include "train/worker/worker_app_impl.h"

enum { KEPT = 2 }; /* valid checkpoints of the engine */
/* Pieces of a task, after which it may end early; turns of tasks of one thread. */
#define PIECE_NS INT64_C(1000000)
#define TURN_NS  INT64_C(10000000)

/* -- files ---------------------------------------------------------------------------------------
 */

static void folder_of(const rui_app_worker *w, ru_engine_ckpt at, char into[512])
{
    (void)snprintf(into, 512, "%s/params/%u-%u", w->opt->worker->train.out, at.clock,
                   at.generation);
}

static void path_of(const rui_app_worker *w, ru_engine_ckpt at, uint32_t object, char into[640])
{
    char folder[512];
    folder_of(w, at, folder);
    bool last = object + 1 == ru_engine_objects(w->engine);
    (void)snprintf(into, 640, last ? "%s/driver" : "%s/%u", folder, object);
}

static void write_object(const rui_app_worker *w, rui_app_command *c)
{
    char folder[512], path[640];
    folder_of(w, c->at, folder);
    path_of(w, c->at, c->object, path);
    ru_hash128 h = ru_hash128_bytes(c->bytes, c->n);
    uint32_t tries = 0;
    do {
        ru_out *out = NULL;
        c->status = ru_dir_make(folder, &c->err);
        c->status = c->status == RU_OK ? ru_out_open_own(path, &out, &c->err) : c->status;
        c->status = c->status == RU_OK ? ru_out_write(out, &h, sizeof h, &c->err) : c->status;
        c->status = c->status == RU_OK ? ru_out_write(out, c->bytes, c->n, &c->err) : c->status;
        c->status = c->status == RU_OK ? ru_out_commit(out, &c->err) : c->status;
        ru_out_close(out);
    } while (ru_ckpt_again(c->status, true, &tries));
}

static ru_status map_object(const rui_app_worker *w, ru_engine_ckpt at, uint32_t object,
                            ru_map_file *map, ru_err *err)
{
    char path[640];
    path_of(w, at, object, path);
    RU_TRY(ru_file_map(path, map, err));
    ru_hash128 h, is = {0};
    if (map->size_bytes >= (int64_t)sizeof h) {
        memcpy(&h, map->data, sizeof h);
        is = ru_hash128_bytes(map->data + sizeof h, map->size_bytes - (int64_t)sizeof h);
    }
    if (map->size_bytes < (int64_t)sizeof h || h.low != is.low || h.high != is.high) {
        ru_file_unmap(map);
        return RU_FAIL(err, RU_E_DATA, "%s is damaged: its hash differs from its content", path);
    }
    return RU_OK;
}

/* The checkpoint of one process at a clock (train/app/app_ckpt.h), read once. */
static ru_status read_given(rui_app_worker *w, uint32_t clock, ru_err *err)
{
    const ru_app_job_file *f = w->opt->file;
    char dir[640];
    ru_arena arena;
    ru_app_ckpt c;
    ru_app_state s = {0};
    if (w->given.ops != NULL) {
        return RU_OK;
    }
    (void)snprintf(dir, sizeof dir, "%s/checkpoints/" RU_CKPT_NAME, w->opt->worker->train.out,
                   (long long)clock);
    ru_arena_init(&arena, 0);
    ru_status st = ru_app_ckpt_find(dir, &arena, &c, err);
    st = st == RU_OK ? ru_app_state_init(&s, f->ops, w->self, w->data.executors,
                                         ru_sparse_rows(w->data.train), w->state.shape.seed, err)
                     : st;
    st = st == RU_OK ? ru_app_ckpt_tables(&c, &s, err) : st;
    st = st == RU_OK ? ru_app_ckpt_states(&c, &s, err) : st;
    if (st == RU_OK) {
        w->given = s;
    } else {
        ru_app_state_fini(&s);
    }
    ru_arena_fini(&arena);
    return st;
}

static void make_object(rui_app_worker *w, rui_app_command *c)
{
    ru_mutex_lock(&w->given_lock);
    c->status = read_given(w, c->at.clock, &c->err);
    ru_mutex_unlock(&w->given_lock); /* from now on it is only read */
    if (c->status != RU_OK) {
        return;
    }
    c->n = ru_engine_scatter(w->engine, c->object, &w->given, NULL);
    c->bytes = malloc((size_t)c->n + 1);
    if (c->bytes == NULL) {
        c->status = RU_FAIL(&c->err, RU_E_MEM, "no memory for an object of a checkpoint");
        return;
    }
    (void)ru_engine_scatter(w->engine, c->object, &w->given, c->bytes);
}

static void read_object(rui_app_worker *w, rui_app_command *c)
{
    ru_map_file map;
    if (c->at.generation == RU_ENGINE_GIVEN) {
        make_object(w, c);
        return;
    }
    c->status = map_object(w, c->at, c->object, &map, &c->err);
    if (c->status != RU_OK) {
        return;
    }
    c->n = map.size_bytes - (int64_t)sizeof(ru_hash128);
    c->bytes = malloc((size_t)c->n + 1);
    if (c->bytes == NULL) {
        c->status = RU_FAIL(&c->err, RU_E_MEM, "no memory for an object of a checkpoint");
    } else {
        memcpy(c->bytes, map.data + sizeof(ru_hash128), (size_t)c->n);
    }
    ru_file_unmap(&map);
}

/* Folders of valid checkpoints, the newest first. */
static int newer_first(const void *a, const void *b)
{
    const ru_engine_ckpt *x = a, *y = b;
    uint32_t p = x->clock != y->clock ? x->clock : x->generation;
    uint32_t q = x->clock != y->clock ? y->clock : y->generation;
    return p < q ? 1 : p > q ? -1 : 0;
}

static ru_status list_all(const rui_app_worker *w, ru_arena *arena, ru_engine_ckpt **out,
                          uint32_t *n_out, ru_err *err)
{
    char **names, dir[512];
    uint32_t n = 0;
    *n_out = 0;
    (void)snprintf(dir, sizeof dir, "%s/params", w->opt->worker->train.out);
    if (!ru_path_is_dir(dir)) {
        return RU_OK;
    }
    RU_TRY(ru_dir_list(dir, arena, &names, &n, err));
    ru_engine_ckpt *at = RU_NEW(arena, ru_engine_ckpt, n + 1);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the names of checkpoints");
    }
    for (uint32_t k = 0; k < n; k++) {
        char *end = NULL;
        unsigned long clock = strtoul(names[k], &end, 10);
        if (end != names[k] && *end == '-') {
            at[(*n_out)++] =
                (ru_engine_ckpt){(uint32_t)strtoul(end + 1, NULL, 10), (uint32_t)clock};
        }
    }
    qsort(at, *n_out, sizeof *at, newer_first);
    *out = at;
    return RU_OK;
}

static bool is_valid(const rui_app_worker *w, ru_engine_ckpt at)
{
    char folder[512], path[640];
    folder_of(w, at, folder);
    (void)snprintf(path, sizeof path, "%s/driver", folder);
    return ru_path_is_file(path);
}

ru_status rui_app_newest(rui_app_worker *w, ru_engine_ckpt *out, ru_err *err)
{
    ru_engine_ckpt *at = NULL;
    uint32_t n;
    *out = (ru_engine_ckpt){0};
    RU_TRY(list_all(w, w->arena, &at, &n, err));
    for (uint32_t k = 0; k < n && out->generation == 0; k++) {
        *out = is_valid(w, at[k]) ? at[k] : *out;
    }
    return RU_OK;
}

ru_status rui_app_from(rui_app_worker *w, ru_engine_ckpt *out, ru_err *err)
{
    ru_app_ckpt c;
    ru_err none;
    RU_TRY(rui_app_newest(w, out, err));
    ru_status st = ru_app_ckpt_find(w->opt->worker->train.out, w->arena, &c, &none);
    if (st == RU_E_MISSING || (st != RU_OK && out->generation != 0)) {
        return RU_OK;
    }
    if (st != RU_OK) {
        return ru_err_set(err, st, "%s", none.text);
    }
    if (out->generation == 0 || c.clock > out->clock) {
        *out = (ru_engine_ckpt){RU_ENGINE_GIVEN, (uint32_t)c.clock};
        return ru_app_ckpt_fits(&c, w->data.executors, ru_sparse_rows(w->data.train),
                                ru_sparse_cols(w->data.train), w->opt->file->job->train.seed, err);
    }
    return RU_OK;
}

/* All but the newest KEPT valid ones; newer ones are being written. */
static void remove_old(const rui_app_worker *w, ru_engine_ckpt newest)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_engine_ckpt *at = NULL;
    uint32_t n = 0, kept = 0;
    ru_err err;
    ru_status st = list_all(w, &arena, &at, &n, &err);
    for (uint32_t k = 0; st == RU_OK && k < n; k++) {
        char folder[512];
        bool valid = is_valid(w, at[k]);
        bool old = at[k].clock < newest.clock && (!valid || kept >= KEPT);
        kept += valid ? 1 : 0;
        folder_of(w, at[k], folder);
        st = old ? ru_path_remove(folder, &err) : RU_OK;
    }
    if (st != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "checkpoint", "an old checkpoint could not be removed: %s",
               err.text);
    }
    ru_arena_fini(&arena);
}

/* -- a checkpoint for eval, predict, export ------------------------------------------------------
 */

static ru_status evaluate(rui_app_worker *w, rui_app_command *c, ru_err *err)
{
    const ru_app_job_file *f = w->opt->file;
    RU_TRY(ru_app_data_test(&w->data, err));
    if (w->data.test == NULL) {
        return RU_OK;
    }
    ru_time begin = ru_clock_now();
    RU_TRY(ru_app_eval(f->ops, w->self, &w->state, w->data.test, &c->metrics, err));
    c->eval_ns = ru_clock_now().ns - begin.ns;
    return RU_OK;
}

static ru_status export_all(rui_app_worker *w, rui_app_command *c, ru_err *err)
{
    const ru_app_job_file *f = w->opt->file;
    for (uint32_t o = 0; o < ru_engine_objects(w->engine); o++) {
        ru_map_file map;
        RU_TRY(map_object(w, c->at, o, &map, err));
        ru_status st = ru_engine_gather(w->engine, o, map.data + sizeof(ru_hash128),
                                        map.size_bytes - (int64_t)sizeof(ru_hash128), &w->state);
        ru_file_unmap(&map);
        if (st != RU_OK) {
            return RU_FAIL(err, st, "object %u of the checkpoint of clock %u is of another job", o,
                           c->at.clock);
        }
    }
    w->state.clock = c->at.clock;
    const ru_app_ckpt ckpt = ru_app_data_ckpt(
        &w->data, c->at.clock, ru_app_data_items(&w->data, w->state.shape.pieces, c->at.clock));
    bool anew;
    RU_TRY(ru_run_place_restore(&w->folder, &anew, err));
    RU_TRY(ru_app_ckpt_save(w->opt->worker->train.out, &ckpt, &w->state, f->job->checkpoint.keep,
                            err));
    remove_old(w, c->at);
    return evaluate(w, c, err);
}

/* -- threads -------------------------------------------------------------------------------------
 */

static void open_exec(const rui_app_worker *w, rui_app_command *c)
{
    ru_sparse part;
    uint32_t k = c->object;
    ru_sparse_part(w->data.train, w->part[k], w->part[k + 1] - w->part[k], &part);
    const ru_app_ops *ops = w->opt->file->ops;
    c->status = ru_app_hopeless(w->opt->file, w->opt->worker->train.out, k, &c->err);
    if (c->status == RU_OK) {
        c->status = ru_app_call_exec_open(ops, w->self, k, &part, &c->state, &c->err);
    }
}

static bool others_wait(rui_app_worker *w)
{
    ru_mutex_lock(&w->lock);
    bool any = w->lane[RUI_APP_COMPUTE].todo != NULL;
    ru_mutex_unlock(&w->lock);
    return any;
}

/* A task, piece by piece if it has pieces. false: it is not over, and others wait. */
static bool run_task(rui_app_worker *w, ru_engine_task *t, int64_t begin_ns)
{
    const ru_app_ops *ops = w->opt->file->ops;
    if (t->cut.units == 0) {
        ru_engine_compute(ops, &w->state.shape, t);
        return true;
    }
    uint32_t units = 1;
    for (int64_t at_ns = begin_ns, turn_ns = begin_ns;;) {
        ru_mutex_lock(&w->part_lock);
        uint32_t from = t->cut.next;
        bool more = ru_engine_piece(t, units);
        uint32_t n = t->cut.next - from;
        ru_mutex_unlock(&w->part_lock);
        if (!more) {
            return true;
        }
        ru_engine_compute(ops, &w->state.shape, t);
        if (t->status != RU_OK) {
            return true;
        }
        int64_t now_ns = ru_clock_now().ns, each_ns = (now_ns - at_ns) / n + 1;
        int64_t most = PIECE_NS / each_ns;
        units = most < 1 ? 1 : most < 2 * (int64_t)units ? (uint32_t)most : 2 * units;
        at_ns = now_ns;
        if (now_ns - turn_ns >= TURN_NS) {
            if (others_wait(w)) {
                return false;
            }
            turn_ns = now_ns;
        }
    }
}

/* false: it goes on later. */
static bool work(rui_app_worker *w, rui_app_command *c)
{
    bool over = true;
    int64_t begin = ru_clock_now().ns;
    switch (c->kind) {
    case RUI_APP_OPEN:
        open_exec(w, c);
        break;
    case RUI_APP_RUN:
        over = run_task(w, c->task, begin);
        break;
    case RUI_APP_WRITE:
        write_object(w, c);
        break;
    case RUI_APP_READ:
        read_object(w, c);
        break;
    case RUI_APP_LOG:
        rui_app_log_append(w, c);
        break;
    case RUI_APP_LOG_READ:
        rui_app_log_gather(w, c);
        break;
    case RUI_APP_EXPORT:
        c->status = export_all(w, c, &c->err);
        break;
    case RUI_APP_WORLD:
        rui_app_world_make(w, c);
        break;
    case RUI_APP_KINDS:
        break;
    }
    int64_t end = ru_clock_now().ns;
    if (c->kind == RUI_APP_RUN) {
        c->task->cpu_ns += end - begin;
    }
    rui_app_trace_work(w, c, begin, end);
    return over;
}

static rui_app_lane *lane_of(rui_app_worker *w, const rui_app_command *c)
{
    switch (c->kind) {
    case RUI_APP_WRITE:
    case RUI_APP_LOG:
    case RUI_APP_LOG_READ:
        return &w->lane[RUI_APP_FILES];
    case RUI_APP_READ: /* an object of another host's checkpoint is computed */
        return &w->lane[c->at.generation == RU_ENGINE_GIVEN ? RUI_APP_COMPUTE : RUI_APP_FILES];
    case RUI_APP_EXPORT:
        return &w->lane[RUI_APP_EXPORTS];
    case RUI_APP_OPEN:
    case RUI_APP_RUN:
    case RUI_APP_WORLD:
    case RUI_APP_KINDS:
        break;
    }
    return &w->lane[RUI_APP_COMPUTE];
}

static void put(rui_app_lane *l, rui_app_command *c)
{
    if (l->todo == NULL) {
        l->todo = c;
    } else {
        l->last->next = c;
    }
    l->last = c;
}

static void thread(void *self)
{
    rui_app_lane *l = self;
    rui_app_worker *w = l->worker;
    ru_recorder_thread(w->recorder, l->name);
    ru_mutex_lock(&w->lock);
    while (!w->quit) {
        rui_app_command *c = l->todo;
        if (c == NULL) {
            ru_cond_wait(&l->changed, &w->lock);
            continue;
        }
        l->todo = c->next;
        ru_mutex_unlock(&w->lock);
        bool over = work(w, c);
        ru_mutex_lock(&w->lock);
        c->next = NULL;
        if (!over) {
            put(l, c);
            continue;
        }
        if (w->done == NULL) {
            w->done = c;
        } else {
            w->done_last->next = c;
        }
        w->done_last = c;
        ru_loop_wake(w->shell.loop, w->waker);
    }
    ru_mutex_unlock(&w->lock);
}

void rui_app_post(rui_app_worker *w, const rui_app_command *c)
{
    rui_app_command *copy = malloc(sizeof *copy);
    RU_CHECK(copy != NULL);
    *copy = *c;
    copy->next = NULL;
    rui_app_lane *l = lane_of(w, c);
    ru_mutex_lock(&w->lock);
    put(l, copy);
    ru_cond_signal(&l->changed);
    ru_mutex_unlock(&w->lock);
}

static void answer(rui_app_worker *w, const rui_app_command *c, ru_time now, ru_effects *fx)
{
    switch (c->kind) {
    case RUI_APP_OPEN:
        ru_engine_opened(w->engine, c->object, c->tag, c->state, c->status, c->err.text, now, fx);
        break;
    case RUI_APP_RUN:
        ru_engine_ran(w->engine, c->task, now, fx);
        break;
    case RUI_APP_WRITE:
        ru_engine_written(w->engine, c->at, c->object, c->status, c->err.text, now, fx);
        break;
    case RUI_APP_READ:
        ru_engine_read(w->engine, c->tag, c->object, c->bytes, c->n, c->status, c->err.text, now,
                       fx);
        break;
    case RUI_APP_LOG:
        ru_engine_logged(w->engine, c->at.generation, c->busy_ns, c->status, c->err.text, now, fx);
        break;
    case RUI_APP_LOG_READ:
        ru_engine_log_read(w->engine, c->at.generation, c->object, c->bytes, c->n, c->status,
                           c->err.text, now, fx);
        break;
    case RUI_APP_EXPORT:
        rui_app_exported(w, c);
        if (c->status == RU_E_DATA || c->status == RU_E_USER) { /* as in one process */
            ru_engine_fail(w->engine, c->status, c->err.text, now, fx);
        }
        break;
    case RUI_APP_WORLD:
        if (c->status != RU_OK) {
            ru_log(RU_LOG_WARN, "train", "world", "%s", c->err.text);
        }
        ru_shell_world(&w->shell, c->bytes, c->n, now);
        break;
    case RUI_APP_KINDS:
        break;
    }
}

void rui_app_answers(void *self, ru_time now)
{
    rui_app_worker *w = self;
    ru_mutex_lock(&w->lock);
    rui_app_command *c = w->done;
    w->done = NULL;
    ru_mutex_unlock(&w->lock);
    ru_effects *fx = ru_node_enter(w->shell.timers.node, now);
    while (c != NULL) {
        rui_app_command *next = c->next;
        answer(w, c, now, fx);
        free(c->bytes);
        free(c);
        c = next;
    }
    if (w->run.target && !w->stopping) {
        w->stopping = true;
        ru_engine_stop(w->engine, true, now, fx);
    }
    ru_node_leave(w->shell.timers.node, now);
}

void rui_app_threads_init(rui_app_worker *w)
{
    static const char *const names[] = {"compute", "files", "checkpoints"};
    for (uint32_t k = 0; k < RUI_APP_LANES; k++) {
        w->lane[k] = (rui_app_lane){.worker = w, .name = names[k]};
        ru_cond_init(&w->lane[k].changed);
    }
}

void rui_app_threads_fini(rui_app_worker *w)
{
    for (uint32_t k = 0; k < RUI_APP_LANES; k++) {
        ru_cond_fini(&w->lane[k].changed);
    }
}

ru_status rui_app_threads_start(rui_app_worker *w, ru_err *err)
{
    for (uint32_t k = 0; k < w->n_threads + RUI_APP_LANES - 1; k++) {
        rui_app_lane *l = &w->lane[k < w->n_threads ? 0 : k - w->n_threads + 1];
        RU_TRY(ru_thread_start(&w->thread[k], l->name, thread, l, err));
    }
    return RU_OK;
}

void rui_app_threads_stop(rui_app_worker *w)
{
    ru_mutex_lock(&w->lock);
    w->quit = true;
    for (uint32_t k = 0; k < RUI_APP_LANES; k++) {
        ru_cond_broadcast(&w->lane[k].changed);
    }
    ru_mutex_unlock(&w->lock);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(w->thread); k++) {
        ru_thread_join(&w->thread[k]);
    }
    for (uint32_t k = 0; k < RUI_APP_LANES; k++) {
        for (rui_app_command *c = w->lane[k].todo, *next; c != NULL; c = next) {
            next = c->next;
            free(c->bytes);
            free(c);
        }
    }
    for (rui_app_command *c = w->done, *next; c != NULL; c = next) {
        next = c->next;
        if (c->kind == RUI_APP_OPEN && c->status == RU_OK &&
            w->opt->file->ops->exec_close != NULL) {
            w->opt->file->ops->exec_close(c->state);
        }
        free(c->bytes);
        free(c);
    }
}

/* -- the engine's device -------------------------------------------------------------------------
 */

static void device_open(void *self, uint32_t executor, uint32_t helper)
{
    rui_app_post(self, &(rui_app_command){.kind = RUI_APP_OPEN, .object = executor, .tag = helper});
}

static void device_close(void *self, uint32_t executor, void *state)
{
    const rui_app_worker *w = self;
    (void)executor;
    if (w->opt->file->ops->exec_close != NULL) {
        w->opt->file->ops->exec_close(state);
    }
}

static void device_run(void *self, ru_engine_task *task)
{
    task->cpu_ns = 0;
    rui_app_post(self, &(rui_app_command){.kind = RUI_APP_RUN, .task = task});
}

static void device_hold(void *self, ru_engine_task *task)
{
    rui_app_worker *w = self;
    (void)task;
    ru_mutex_lock(&w->part_lock);
}

static void device_release(void *self, ru_engine_task *task)
{
    rui_app_worker *w = self;
    (void)task;
    ru_mutex_unlock(&w->part_lock);
}

static void device_write(void *self, ru_engine_ckpt at, uint32_t object, const void *bytes,
                         int64_t n)
{
    rui_app_command c = {.kind = RUI_APP_WRITE, .at = at, .object = object, .n = n};
    c.bytes = malloc((size_t)n + 1);
    RU_CHECK(c.bytes != NULL);
    if (n > 0) {
        memcpy(c.bytes, bytes, (size_t)n);
    }
    rui_app_post(self, &c);
}

static void device_read(void *self, ru_engine_ckpt at, uint32_t object, uint32_t tag)
{
    rui_app_post(self,
                 &(rui_app_command){.kind = RUI_APP_READ, .at = at, .object = object, .tag = tag});
}

static void device_log(void *self, uint32_t generation, uint32_t since, const void *bytes,
                       int64_t n)
{
    rui_app_command c = {
        .kind = RUI_APP_LOG, .at = {.generation = generation}, .since = since, .n = n};
    c.bytes = malloc((size_t)n);
    RU_CHECK(c.bytes != NULL);
    memcpy(c.bytes, bytes, (size_t)n);
    rui_app_post(self, &c);
}

static void device_log_read(void *self, uint32_t generation, uint32_t since, uint32_t object)
{
    rui_app_post(self, &(rui_app_command){.kind = RUI_APP_LOG_READ,
                                          .at = {.generation = generation},
                                          .since = since,
                                          .object = object});
}

const ru_engine_device_ops rui_app_device = {device_open, device_close,   device_run,
                                             device_hold, device_release, device_write,
                                             device_read, device_log,     device_log_read};
