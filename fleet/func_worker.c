#include "fleet/func_worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "env/clock.h"
#include "fleet/exchange/exchange.h"
#include "train/driver/summed.h"

typedef struct order { /* a call */
    const char *store, *token, *keys, *job, *facts;
    uint32_t epoch, rank, workers;
    int64_t first, end, steps, at, batch;
    double left_s;
    ru_conf_texts files;
    int64_t before, samples;
} order;

static const ru_conf_field order_fields[] = {
    RU_ROW(TEXT, order, store, NULL, "address"),
    RU_ROW(TEXT, order, token, NULL, "of the store"),
    RU_ROW(TEXT, order, keys, "", "of bytes elsewhere: redis:// or s3://"),
    RU_ROW(TEXT, order, job, NULL, "16 hex digits"),
    RU_ROW(U32, order, epoch, NULL, "of the keys", RU_IN(1, 4294967295.0)),
    RU_ROW(U32, order, rank, NULL, "of this worker", RU_IN(0, RU_SHARD_WORKERS_MAX - 1)),
    RU_ROW(U32, order, workers, NULL, "that share a step", RU_IN(1, RU_SHARD_WORKERS_MAX)),
    RU_ROW(I64, order, first, NULL, "steps done", RU_IN(0, 1e15)),
    RU_ROW(I64, order, end, NULL, "steps at the end of the call", RU_IN(0, 1e15)),
    RU_ROW(I64, order, steps, NULL, "of the whole run", RU_IN(0, 1e15)),
    RU_ROW(I64, order, at, NULL, "samples of the steps done", RU_IN(0, 1e18)),
    RU_ROW(I64, order, batch, NULL, "samples of each step of the call", RU_IN(1, 1e9)),
    RU_ROW(F64, order, left_s, "0", "time of the call; 0: no limit", RU_IN(0, 1e9)),
    RU_ROW(TEXT_LIST, order, files, "[]", "of data.follow"),
    RU_ROW(I64, order, before, "0", "samples before them", RU_IN(0, 1e18)),
    RU_ROW(I64, order, samples, "0", "in them", RU_IN(0, 1e18)),
    RU_ROW(TEXT, order, facts, NULL, "text of state.json"),
};
static const ru_conf_table order_table = RU_TABLE("call", order, order_fields, NULL);

struct ru_func_worker {
    uint32_t threads;
    ru_arena arena;   /* of the job that is open */
    ru_hash128 facts; /* its */
    ru_summed_worker *worker;
    const order *now;
    uint64_t job, state_of; /* of this call; the one whose state the worker has */
    int64_t count;          /* floats that are summed */
    ru_loop *loop;
    ru_exchange *exchange;
    bool was_last;
};

/* -- a call ---------------------------------------------------------------------------------------
 */

static ru_status sum(void *self, int64_t step, float *vec, bool *last, ru_err *err)
{
    ru_func_worker *w = self;
    int64_t named;
    RU_TRY(ru_exchange_sum(w->exchange, step, vec, w->count, &named, err));
    w->was_last = named >= 0 && step >= named;
    *last = w->was_last || step + 1 >= w->now->end;
    return RU_OK;
}

static void forget(ru_func_worker *w)
{
    ru_summed_worker_close(w->worker);
    w->worker = NULL;
    ru_arena_fini(&w->arena);
    ru_arena_init(&w->arena, 0);
}

/* The job of this call is open. */
static ru_status open_job(ru_func_worker *w, const order *o, ru_err *err)
{
    int64_t n = (int64_t)strlen(o->facts);
    ru_hash128 h = ru_hash128_bytes(o->facts, n);
    if (w->worker != NULL && h.low == w->facts.low && h.high == w->facts.high) {
        return RU_OK;
    }
    forget(w);
    w->facts = h;
    return ru_summed_worker_open(o->facts, n, w->threads, &w->arena, &w->worker, err);
}

/* The files of a call hold all samples of its steps. */
static ru_status take_files(ru_func_worker *w, const order *o, ru_err *err)
{
    const ru_summed_files f = {
        .paths = o->files.at, .n = o->files.n, .before = o->before, .samples = o->samples};
    if (ru_summed_worker_follows(w->worker) != (f.n > 0)) {
        return RU_FAIL(err, RU_E_DATA, "the call names %u files for its job", f.n);
    }
    if (f.n == 0) {
        return RU_OK;
    }
    int64_t steps = o->end - o->first;
    if (steps > INT64_MAX / 4 / o->batch || o->at < f.before ||
        o->at + steps * o->batch - f.before > f.samples) {
        return RU_FAIL(err, RU_E_DATA,
                       "the files of the call do not hold the samples of its steps");
    }
    return ru_summed_worker_files(w->worker, &f, err);
}

static ru_status train(ru_func_worker *w, const order *o, ru_arena *arena, ru_err *err)
{
    int64_t first = o->batch * o->rank / o->workers, bytes;
    ru_summed_task t = {.first = first,
                        .n = o->batch * (o->rank + 1) / o->workers - first,
                        .batch = o->batch,
                        .step = o->first,
                        .at = o->at,
                        .end = o->steps,
                        .sum = sum,
                        .self = w};
    RU_TRY(ru_summed_worker_build(w->worker, t.n, t.batch, &w->count, &bytes, err));
    RU_TRY(take_files(w, o, err));
    if (w->state_of != w->job || ru_summed_worker_step(w->worker) != o->first) {
        void *state = ru_arena_alloc(arena, bytes, 64);
        if (state == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the state of the model");
        }
        RU_TRY(ru_exchange_state(w->exchange, o->first, state, bytes, err));
        t.state = state;
    }
    w->state_of = w->job;
    return ru_summed_worker_run(w->worker, &t, err);
}

static ru_status read_order(const uint8_t *body, int64_t n, ru_arena *arena, order *o,
                            uint64_t *job, ru_err *err)
{
    ru_conf *c;
    char *end;
    RU_TRY(ru_conf_new(&order_table, arena, &c, err));
    RU_TRY(ru_conf_add_json(c, "the call", (const char *)body, n, err));
    RU_TRY(ru_conf_apply(c, o, err));
    *job = strtoull(o->job, &end, 16);
    return *end == '\0' && o->rank < o->workers && o->first <= o->end && o->end <= o->steps
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "the call names a job, a rank or steps that make no sense");
}

ru_status ru_func_worker_answer(void *self, const uint8_t *body, int64_t body_bytes, ru_time until,
                                ru_arena *arena, ru_text *out, ru_err *err)
{
    ru_func_worker *w = self;
    order o;
    RU_TRY(read_order(body, body_bytes, arena, &o, &w->job, err));
    w->now = &o;
    w->was_last = false;
    ru_exchange_options xo = {.loop = w->loop,
                              .store = o.store,
                              .token = o.token,
                              .keys = o.keys,
                              .job = w->job,
                              .epoch = o.epoch,
                              .rank = o.rank,
                              .workers = o.workers};
    if (o.left_s > 0) {
        xo.until = ru_time_after(ru_clock_now(), (int64_t)(o.left_s * 1e9));
    }
    if (until.ns != 0 && (xo.until.ns == 0 || until.ns < xo.until.ns)) {
        xo.until = until; /* the platform's */
    }
    RU_TRY(open_job(w, &o, err));
    if (o.batch < o.workers) {
        return RU_FAIL(err, RU_E_DATA, "%u workers for %lld samples", o.workers,
                       (long long)o.batch);
    }
    RU_TRY(ru_exchange_open(&xo, arena, &w->exchange, err));
    ru_status st = train(w, &o, arena, err);
    ru_exchange_close(w->exchange);
    const char *why = st == RU_E_CANCELLED ? "fenced" : w->was_last ? "last" : "end";
    RU_TRY(st == RU_E_CANCELLED ? RU_OK : st);
    ru_json j = ru_json_into(out);
    ru_json_open(&j, NULL, '{');
    ru_json_i64(&j, "step", ru_summed_worker_step(w->worker));
    ru_json_str(&j, "why", why);
    ru_json_close(&j);
    return RU_OK;
}

ru_status ru_func_worker_open(uint32_t threads, ru_arena *arena, ru_func_worker **out, ru_err *err)
{
    ru_func_worker *w = RU_NEW(arena, ru_func_worker, 1);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a function");
    }
    *w = (ru_func_worker){.threads = threads};
    ru_arena_init(&w->arena, 0);
    RU_TRY(ru_loop_open(&w->loop, err));
    *out = w;
    return RU_OK;
}

void ru_func_worker_close(ru_func_worker *w)
{
    if (w == NULL) {
        return;
    }
    forget(w);
    ru_arena_fini(&w->arena);
    ru_loop_close(w->loop);
}
