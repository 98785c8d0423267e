/* Executors at a member: their data, their state, from where it comes and where it goes.
 *
 *   not open --device--> open --restore, or arrive--> ready: runs --moved away--> its new holder
 *
 * State as bytes: pack | numbers of slices | results of clocks that are not closed | those of the
 * rounds of the clock under way | local rows | the app's bytes */
#include <stdio.h>
#include <string.h>

#include "train/app/call.h"
#include "train/engine/engine_impl.h"

#define PACK_MAGIC UINT32_C(0x31457552) /* "RuE1" */

typedef struct pack {
    uint32_t magic, executor, step, done_first; /* results of clocks done_first .. of step */
    int64_t sums_n, local_floats, app_bytes, cpu_ns;
} pack;

uint32_t rui_exec_clock(const ru_engine *e, uint32_t k)
{
    return e->exec[k].step / e->opt.shape->rounds;
}

uint32_t rui_exec_packed(const ru_engine *e, const void *bytes, int64_t n)
{
    pack p = {0};
    if (n >= (int64_t)sizeof p) {
        memcpy(&p, bytes, sizeof p);
    }
    return p.step / e->opt.shape->rounds;
}

bool rui_exec_stateful(const ru_engine *e)
{
    bool any = e->opt.ops->exec_save != NULL;
    for (uint32_t t = 0; t < e->opt.shape->n_tables; t++) {
        any = any || e->opt.shape->table[t].local;
    }
    return any;
}

static int64_t local_floats(const ru_engine *e, const rui_exec *x)
{
    int64_t n = 0;
    for (uint32_t t = 0; t < e->opt.shape->n_tables; t++) {
        n += e->opt.shape->table[t].local ? x->rows * e->opt.shape->table[t].width : 0;
    }
    return n;
}

static void copy_locals(const ru_engine *e, const rui_exec *x, uint8_t *bytes, bool out)
{
    for (uint32_t t = 0; t < e->opt.shape->n_tables; t++) {
        size_t n = (size_t)x->rows * e->opt.shape->table[t].width * 4;
        if (e->opt.shape->table[t].local && n > 0) {
            memcpy(out ? (void *)bytes : x->local[t], out ? (const void *)x->local[t] : bytes, n);
            bytes += n;
        }
    }
}

void *rui_exec_pack(ru_engine *e, uint32_t k, int64_t *n)
{
    const rui_exec *x = &e->exec[k];
    ru_app_bytes app = {0};
    ru_app_call_exec_save(e->opt.ops, x->state, k, &app);
    uint32_t clock = rui_exec_clock(e, k), first = e->closed < clock ? e->closed : clock;
    int64_t sums_bytes = e->sums_n * (int64_t)sizeof(double);
    pack p = {.magic = PACK_MAGIC,
              .executor = k,
              .step = x->step,
              .done_first = first,
              .sums_n = e->sums_n,
              .local_floats = local_floats(e, x),
              .app_bytes = app.n,
              .cpu_ns = x->cpu_ns};
    int64_t numbers = rui_slice_numbers_bytes(e);
    *n =
        (int64_t)sizeof p + numbers + (clock - first + 1) * sums_bytes + 4 * p.local_floats + app.n;
    uint8_t *out = app.full ? NULL : ru_bufs_get(e->bufs, *n), *at = out;
    if (out != NULL) {
        memcpy(at, &p, sizeof p);
        at += sizeof p;
        rui_slice_numbers(e, k, at, true);
        at += numbers;
        for (uint32_t c = first; c < clock; c++, at += sums_bytes) {
            memcpy(at, x->done + c % e->window * e->sums_n, (size_t)sums_bytes);
        }
        memcpy(at, x->sums, (size_t)sums_bytes);
        at += sums_bytes;
        copy_locals(e, x, at, true);
        at += 4 * p.local_floats;
        if (app.n > 0) {
            memcpy(at, app.p, (size_t)app.n);
        }
    }
    ru_app_bytes_fini(&app);
    return out;
}

static ru_status unpack(ru_engine *e, uint32_t k, const uint8_t *at, int64_t n, ru_err *err)
{
    rui_exec *x = &e->exec[k];
    pack p;
    if (n < (int64_t)sizeof p) {
        return RU_FAIL(err, RU_E_DATA, "the state of executor %u is too short", k);
    }
    memcpy(&p, at, sizeof p);
    at += sizeof p;
    int64_t sums_bytes = e->sums_n * (int64_t)sizeof(double);
    int64_t numbers = rui_slice_numbers_bytes(e);
    uint32_t clock = p.step / e->opt.shape->rounds;
    if (p.magic != PACK_MAGIC || p.executor != k || p.sums_n != e->sums_n ||
        p.local_floats != local_floats(e, x) || p.done_first > clock ||
        clock - p.done_first > e->window || p.app_bytes < 0 ||
        n != (int64_t)sizeof p + numbers + (clock - p.done_first + 1) * sums_bytes +
                 4 * p.local_floats + p.app_bytes) {
        return RU_FAIL(err, RU_E_DATA, "the state of executor %u is damaged, or of another job", k);
    }
    rui_slice_numbers(e, k, (uint8_t *)(uintptr_t)at, false);
    at += numbers;
    for (uint32_t c = p.done_first; c < clock; c++, at += sums_bytes) {
        memcpy(x->done + c % e->window * e->sums_n, at, (size_t)sums_bytes);
    }
    memcpy(x->sums, at, (size_t)sums_bytes);
    at += sums_bytes;
    copy_locals(e, x, (uint8_t *)(uintptr_t)at, false);
    at += 4 * p.local_floats;
    x->step = p.step;
    x->cpu_ns = p.cpu_ns;
    x->used = true;
    return ru_app_call_exec_load(e->opt.ops, x->state, k, at, p.app_bytes, err);
}

static ru_status gather_exec(const ru_engine *e, uint32_t k, const uint8_t *bytes, int64_t n,
                             ru_app_state *into)
{
    pack p;
    const rui_exec *x = &e->exec[k];
    if (n < (int64_t)sizeof p) {
        return RU_E_DATA;
    }
    memcpy(&p, bytes, sizeof p);
    if (p.magic != PACK_MAGIC || p.executor != k || p.local_floats != local_floats(e, x) ||
        p.app_bytes < 0 || n < (int64_t)sizeof p + 4 * p.local_floats + p.app_bytes) {
        return RU_E_DATA;
    }
    const uint8_t *app = bytes + (n - p.app_bytes), *at = app - 4 * p.local_floats;
    for (uint32_t t = 0; t < e->opt.shape->n_tables; t++) {
        uint32_t width = e->opt.shape->table[t].width;
        size_t size = (size_t)x->rows * width * 4;
        if (e->opt.shape->table[t].local && size > 0) {
            memcpy(into->value[t] + x->first * width, at, size);
            at += size;
        }
    }
    into->exec[k].n = 0;
    ru_app_put(&into->exec[k], app, p.app_bytes);
    return into->exec[k].full ? RU_E_MEM : RU_OK;
}

ru_status ru_engine_gather(const ru_engine *e, uint32_t object, const void *bytes, int64_t n,
                           ru_app_state *into)
{
    const int64_t sums = RU_APP_SUMS_MAX * (int64_t)sizeof(double);
    if (object < e->n_execs) {
        return gather_exec(e, object, bytes, n, into);
    }
    if (object == e->n_execs + e->n_shards) {
        into->driver.n = 0;
        ru_app_put(&into->driver, bytes, n);
        return n < sums ? RU_E_DATA : into->driver.full ? RU_E_MEM : RU_OK;
    }
    float *value[RU_APP_TABLES_MAX];
    for (uint32_t t = 0; t < e->opt.shape->n_tables; t++) {
        value[t] = e->opt.shape->table[t].local ? NULL : into->value[t];
    }
    return ru_ps_shard_rows(e->ps, object - e->n_execs, bytes, n, value, into->extra);
}

static int64_t scatter_exec(const ru_engine *e, uint32_t k, const ru_app_state *from, uint8_t *at)
{
    const rui_exec *x = &e->exec[k];
    const ru_app_bytes *app = &from->exec[k];
    int64_t numbers = rui_slice_numbers_bytes(e), sums = e->sums_n * (int64_t)sizeof(double);
    const pack p = {.magic = PACK_MAGIC,
                    .executor = k,
                    .step = from->clock * e->opt.shape->rounds,
                    .done_first = from->clock,
                    .sums_n = e->sums_n,
                    .local_floats = local_floats(e, x),
                    .app_bytes = app->n};
    int64_t size = (int64_t)sizeof p + numbers + sums + 4 * p.local_floats + app->n;
    if (at == NULL) {
        return size;
    }
    memcpy(at, &p, sizeof p);
    at += sizeof p;
    rui_slice_first_numbers(e, at);
    at += numbers;
    memset(at, 0, (size_t)sums);
    at += sums;
    for (uint32_t t = 0; t < e->opt.shape->n_tables; t++) {
        uint32_t width = e->opt.shape->table[t].width;
        size_t bytes = (size_t)x->rows * width * 4;
        if (e->opt.shape->table[t].local && bytes > 0) {
            memcpy(at, from->value[t] + x->first * width, bytes);
            at += bytes;
        }
    }
    if (app->n > 0) {
        memcpy(at, app->p, (size_t)app->n);
    }
    return size;
}

int64_t ru_engine_scatter(const ru_engine *e, uint32_t object, const ru_app_state *from, void *into)
{
    if (object < e->n_execs) {
        return scatter_exec(e, object, from, into);
    }
    if (object == e->n_execs + e->n_shards) {
        if (into != NULL && from->driver.n > 0) {
            memcpy(into, from->driver.p, (size_t)from->driver.n);
        }
        return from->driver.n;
    }
    float *value[RU_APP_TABLES_MAX];
    for (uint32_t t = 0; t < e->opt.shape->n_tables; t++) {
        value[t] = e->opt.shape->table[t].local ? NULL : from->value[t];
    }
    return ru_ps_shard_of_rows(e->ps, object - e->n_execs, from->clock, value, from->extra, into);
}

/* -- opening -------------------------------------------------------------------------------------
 */

void rui_exec_close(ru_engine *e, uint32_t k)
{
    rui_exec *x = &e->exec[k];
    for (uint32_t t = 0; t < RU_APP_TABLES_MAX; t++) {
        ru_bufs_put(e->bufs, x->local[t]);
        x->local[t] = NULL;
    }
    if (x->state != NULL) {
        e->opt.device->close(e->opt.device_self, k, x->state);
        x->state = NULL;
    }
}

static bool open_locals(ru_engine *e, rui_exec *x)
{
    const ru_app_shape *s = e->opt.shape;
    for (uint32_t t = 0; t < s->n_tables; t++) {
        if (!s->table[t].local) {
            continue;
        }
        uint32_t width = s->table[t].width;
        x->local[t] = ru_bufs_get(e->bufs, x->rows * width * 4);
        if (x->local[t] == NULL) {
            return false;
        }
        for (int64_t r = 0; r < x->rows; r++) {
            ru_app_first(e->opt.ops, e->opt.app, s, t, x->first + r, x->local[t] + r * width);
        }
    }
    return true;
}

void ru_engine_opened(ru_engine *e, uint32_t executor, uint32_t helper, void *state, ru_status st,
                      const char *why, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[executor];
    RU_CHECK(helper != executor || x->busy == RUI_OPENS);
    x->busy = helper != executor ? x->busy : RUI_IDLE;
    if (st != RU_OK) {
        rui_engine_fail(e, st, why, now, fx);
        return;
    }
    if (helper >= e->n_execs) {
        rui_redo_opened(e, executor, state, now, fx);
        return;
    }
    if (helper != executor) {
        rui_help_opened(e, helper, executor, state, now, fx);
        return;
    }
    x->state = state;
    x->used = false;
    if (!open_locals(e, x)) {
        rui_engine_fail(e, RU_E_MEM, "there is no memory for local rows", now, fx);
        return;
    }
    if (x->prepare) {
        x->prepare = false;
        rui_engine_head h = {.executor = executor};
        rui_engine_send(e, ru_member_leader(e->opt.member), RUI_ENGINE_PREPARED, &h, NULL, 0, now,
                        fx);
    }
    rui_exec_settle(e, executor, now, fx);
}

/* The state with which its generation begins; false: the job has failed. */
static bool restored(ru_engine *e, uint32_t k, const void *bytes, int64_t n, ru_status st,
                     ru_err *err, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    st = st == RU_OK ? unpack(e, k, bytes, n, err) : st;
    if (st == RU_OK && x->step != e->base.clock * e->opt.shape->rounds) {
        st = RU_FAIL(err, RU_E_DATA, "the state of executor %u is of another clock", k);
    }
    if (st != RU_OK) {
        rui_engine_fail(e, st, err->text, now, fx);
        return false;
    }
    x->want = RUI_WANT_READY;
    rui_engine_ready(e, false, now, fx);
    return true;
}

void ru_engine_read(ru_engine *e, uint32_t tag, uint32_t object, const void *bytes, int64_t n,
                    ru_status st, const char *why, ru_time now, ru_effects *fx)
{
    bool current = tag == e->generation && !e->ended;
    ru_err err = {.status = st};
    (void)snprintf(err.text, sizeof err.text, "%s", why != NULL ? why : "");
    if ((tag & RUI_ENGINE_REBUILDS) != 0) {
        if ((tag & ~RUI_ENGINE_REBUILDS) == e->generation && !e->ended) {
            rui_rebuild_read(e, object, bytes, n, st, why, now, fx);
        }
        return;
    }
    if (object == e->n_execs + e->n_shards) {
        if (current) {
            rui_lead_read(e, bytes, n, st, why, now, fx);
        }
        return;
    }
    if (object >= e->n_execs) {
        uint32_t s = object - e->n_execs;
        if (!current) {
            return;
        }
        st = st == RU_OK ? ru_ps_shard_load(e->ps, s, bytes, n, now, fx) : st;
        if (st != RU_OK) {
            rui_engine_fail(e, st, err.text[0] ? err.text : "a shard of the checkpoint is damaged",
                            now, fx);
        }
        rui_engine_ready(e, false, now, fx);
        return;
    }
    rui_exec *x = &e->exec[object];
    RU_CHECK(x->busy == RUI_READS);
    x->busy = RUI_IDLE;
    if (!current || x->want != RUI_WANT_RESTORE ||
        restored(e, object, bytes, n, st, &err, now, fx)) {
        rui_exec_settle(e, object, now, fx);
    }
}

/* -- where it comes from, where it goes ----------------------------------------------------------
 */

void rui_exec_came(ru_engine *e, uint32_t k, void *bytes, int64_t n, uint32_t epoch, ru_time now,
                   ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    if (x->arrived != NULL || x->want == RUI_WANT_READY) {
        ru_bufs_put(e->bufs, bytes);
        return;
    }
    x->arrived = bytes;
    x->arrived_bytes = n;
    x->arrived_epoch = epoch;
    x->arrived_at = now;
    rui_exec_settle(e, k, now, fx);
}

static void ship(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    int64_t n = x->arrived_bytes;
    void *bytes = x->arrived;
    if (bytes == NULL) {
        bytes = rui_exec_pack(e, k, &n);
        if (bytes == NULL) {
            rui_engine_fail(e, RU_E_MEM,
                            "there is no memory to move an executor, or the app wrote its state "
                            "without ru_app_put",
                            now, fx);
            return;
        }
    }
    if (!ru_ps_object_send(e->ps, k, e->holder[k], bytes, n, now, fx)) {
        if (x->arrived == NULL) {
            ru_bufs_put(e->bufs, bytes);
        }
        ru_fx_timer(fx, RUI_ENGINE_AGAIN, ru_time_after(now, 5000000));
        return; /* the copy that went before is still read: again then */
    }
    x->arrived = NULL;
    x->want = RUI_WANT_NONE;
    e->facts.shipped++;
    rui_slice_left(e, k);
    rui_exec_close(e, k);
}

static void restore(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    x->generation = e->generation;
    if (rui_copy_restores(e)) {
        int64_t n;
        const void *bytes = rui_copy_base(e, k, &n, now, fx);
        ru_err err = {0};
        if (bytes != NULL && restored(e, k, bytes, n, RU_OK, &err, now, fx)) {
            rui_exec_settle(e, k, now, fx);
        }
        return;
    }
    if (e->base.generation > 0) {
        x->busy = RUI_READS;
        e->opt.device->read(e->opt.device_self, e->base, k, e->generation);
        return;
    }
    if (x->used) { /* opened anew */
        rui_exec_close(e, k);
    } else {
        x->step = 0;
        x->want = RUI_WANT_READY;
        rui_engine_ready(e, false, now, fx);
    }
    rui_exec_settle(e, k, now, fx);
}

static void arrive(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    ru_err err;
    ru_status st = unpack(e, k, x->arrived, x->arrived_bytes, &err);
    ru_bufs_put(e->bufs, x->arrived);
    x->arrived = NULL;
    if (st != RU_OK) {
        rui_engine_fail(e, st, err.text, now, fx);
        return;
    }
    x->want = RUI_WANT_READY;
    e->facts.moves++;
    rui_engine_news(e,
                    &(ru_engine_news){.kind = RU_ENGINE_MOVED,
                                      .object = k,
                                      .bytes = x->arrived_bytes,
                                      .took_ns = now.ns - x->arrived_at.ns},
                    now);
    rui_engine_ready(e, false, now, fx);
    rui_exec_tell(e, k, now, fx);
    rui_exec_settle(e, k, now, fx);
}

void rui_exec_at(ru_engine *e, uint32_t k, uint32_t clock)
{
    rui_exec *x = &e->exec[k];
    memset(x->done, 0, (size_t)(e->window * e->sums_n) * sizeof *x->done);
    memset(x->done_cpu, 0, e->window * sizeof *x->done_cpu);
    memset(x->sums, 0, (size_t)e->sums_n * sizeof *x->sums);
    x->cpu_ns = 0;
    x->step = clock * e->opt.shape->rounds;
}

ru_status rui_exec_revive(ru_engine *e, uint32_t k, const void *bytes, int64_t n, ru_time now,
                          ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    uint32_t rounds = e->opt.shape->rounds;
    ru_err err;
    rui_exec_at(e, k, 0);
    if (bytes != NULL) {
        RU_TRY(unpack(e, k, bytes, n, &err));
    }
    uint32_t clock = rui_exec_clock(e, k);
    /* Clocks that it has done and that are open are told again; those that it lacks stay lost. */
    if (clock < e->closed || x->step % rounds != 0) {
        x->step = (clock < e->closed ? e->closed : clock) * rounds;
    }
    memset(x->sums, 0, (size_t)e->sums_n * sizeof *x->sums);
    x->cpu_ns = 0;
    if (rui_count_is(e)) { /* whatever clock it is of */
        rui_exec_at(e, k, e->closed);
    }
    x->want = RUI_WANT_READY;
    rui_engine_ready(e, false, now, fx);
    rui_exec_tell(e, k, now, fx);
    return RU_OK;
}

/* A checkpoint that this member has not given its part of: executors at its clock. */
static void save(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_copy_take(e, k, now, fx);
    if (e->save == 0 || e->written[k] || e->exec[k].step != (e->save - 1) * e->opt.shape->rounds) {
        return;
    }
    int64_t n;
    void *bytes = rui_exec_pack(e, k, &n);
    if (bytes == NULL) {
        rui_engine_fail(
            e, RU_E_MEM,
            "there is no memory to save an executor, or the app wrote its state without ru_app_put",
            now, fx);
        return;
    }
    e->written[k] = 1;
    e->opt.device->write(e->opt.device_self, (ru_engine_ckpt){e->generation, e->save - 1}, k, bytes,
                         n);
    ru_bufs_put(e->bufs, bytes);
}

static void settle(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    if (e->ended) {
        return;
    }
    if (x->busy == RUI_FETCHES && !x->mine) {
        ru_ps_forget(e->ps, k);
        x->busy = RUI_IDLE;
    }
    if (x->busy != RUI_IDLE) {
        return;
    }
    if (!x->mine) {
        /* Changes that a lost shard may need again die with this process: they are sent from where
         * the executor is. What came by a map that is not here yet waits for it. */
        bool goes =
            x->want == RUI_WANT_READY && rui_slice_leaves(e, k, now, fx) && !ru_ps_keeps(e->ps, k);
        if (goes || (x->arrived != NULL && x->arrived_epoch <= e->epoch)) {
            ship(e, k, now, fx);
        }
        return;
    }
    if (x->state == NULL) {
        x->busy = RUI_OPENS;
        e->opt.device->open(e->opt.device_self, k, k);
    } else if (x->want == RUI_WANT_RESTORE) {
        restore(e, k, now, fx);
    } else if ((x->want == RUI_WANT_ARRIVE || x->want == RUI_WANT_REBUILD) && x->arrived != NULL) {
        arrive(e, k, now, fx);
    } else if (x->want == RUI_WANT_READY && rui_slice_ready(e, k, now, fx)) {
        rui_backup_skip(e, k);
        save(e, k, now, fx);
        rui_task_begin(e, k, now, fx);
    } else if (x->want == RUI_WANT_REBUILD) {
        rui_rebuild_look(e, now, fx);
    }
}

void rui_exec_settle(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    settle(e, k, now, fx);
    rui_engine_record_look(e, k, now);
}

void rui_exec_reset(ru_engine *e, uint32_t k)
{
    rui_exec *x = &e->exec[k];
    ru_bufs_put(e->bufs, x->arrived);
    x->arrived = NULL;
    x->busy = x->busy == RUI_FETCHES || x->busy == RUI_FLUSHES ? RUI_IDLE : x->busy;
    rui_slice_reset(e, k);
    x->cpu_ns = 0;
    x->step = 0;
    x->want = RUI_WANT_NONE;
    x->mine = false;
}

void rui_exec_map(ru_engine *e, uint32_t k, bool mine, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    bool was = x->mine;
    x->mine = mine;
    if (mine && !was && x->want == RUI_WANT_NONE) {
        x->want = RUI_WANT_ARRIVE;
    } else if (!mine && x->want == RUI_WANT_ARRIVE && x->arrived == NULL) {
        x->want = RUI_WANT_NONE; /* it goes to the next holder as soon as it comes */
    }
    rui_exec_settle(e, k, now, fx);
}

void rui_exec_tell(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    const rui_exec *x = &e->exec[k];
    uint32_t clock = rui_exec_clock(e, k);
    for (uint32_t c = e->closed; c < clock && !ru_ps_replays(e->ps, k) && !rui_redo_owes(e, k);
         c++) {
        rui_engine_head h = {.executor = k, .clock = c, .cpu_ns = x->done_cpu[c % e->window]};
        rui_slice_told(e, k, c, &h);
        rui_stage_facts(e, &h);
        rui_engine_send(e, ru_member_leader(e->opt.member), RUI_ENGINE_DONE, &h,
                        x->done + c % e->window * e->sums_n, e->sums_n * (int64_t)sizeof *x->done,
                        now, fx);
    }
}
