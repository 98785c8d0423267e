#include "fleet/functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "fleet/functions_impl.h"

enum { SPARE = 2, READ = 1 /* EPOLLIN */ };
static const int64_t start_ns = 60000000000, keep_ns = 600000000000, end_ns = 2000000000,
                     ended_ns = 50000000; /* calls, instances and this process end: 30 ms */

static void step(rui_functions *a, ru_event ev);

void rui_functions_say(rui_functions *a, ru_func_word word, int64_t value, const void *data,
                       int64_t size_bytes)
{
    step(a, (ru_event){.kind = RU_EV_LOCAL,
                       .now = ru_clock_now(),
                       .what = word,
                       .value = value,
                       .data = data,
                       .size_bytes = size_bytes});
}

void rui_functions_fail(rui_functions *a, ru_status st, const char *text)
{
    ru_mutex_lock(&a->lock);
    if (a->slot.why.status == RU_OK) {
        (void)ru_err_set(&a->slot.why, st, "%s", text);
    }
    ru_cond_broadcast(&a->changed);
    ru_mutex_unlock(&a->lock);
}

void rui_functions_stop(rui_functions *a)
{
    ru_mutex_lock(&a->lock);
    a->slot.ended = "stopped";
    ru_cond_broadcast(&a->changed);
    ru_mutex_unlock(&a->lock);
}

/* -- the store ------------------------------------------------------------------------------------
 */

/* Steps that wait for the main thread are no sign of trouble. */
static void set_window(rui_functions *a)
{
    ru_mutex_lock(&a->lock);
    int64_t taken = a->slot.taken;
    ru_mutex_unlock(&a->lock);
    bool busy = a->done >= taken + RUI_FUNCTIONS_AHEAD - 1;
    ru_store_window(a->store, a->done - 1, taken + RUI_FUNCTIONS_AHEAD);
    if (busy != a->busy) {
        a->busy = busy;
        rui_functions_say(a, RU_FUNC_BUSY, busy, NULL, 0);
    }
}

static void summed(rui_functions *a, int64_t at)
{
    a->parts[at % RUI_FUNCTIONS_AHEAD] = 0;
    a->done = at + 1;
    a->run.samples += a->run.batch;
    rui_functions_took(a, ru_clock_now());
    ru_mutex_lock(&a->lock);
    a->slot.ready = a->done;
    ru_cond_broadcast(&a->changed);
    ru_mutex_unlock(&a->lock);
    rui_functions_say(a, RU_FUNC_SUMMED, at, NULL, 0);
    rui_functions_price(a, ru_clock_now());
    set_window(a);
}

void rui_functions_part(rui_functions *a, int64_t at)
{
    uint32_t all = a->shards.blocks * a->shards.workers;
    a->parts[at % RUI_FUNCTIONS_AHEAD]++;
    while (a->parts[a->done % RUI_FUNCTIONS_AHEAD] == all) {
        summed(a, a->done);
    }
}

static void on_put(void *self, const ru_shard_key *k, const void *data, int64_t size_bytes)
{
    rui_functions *a = self;
    int64_t first, n, ahead = k->step - a->done;
    if (k->kind != RU_SHARD_SUM || k->epoch != a->epoch || ahead < 0 ||
        ahead >= RUI_FUNCTIONS_AHEAD) {
        return;
    }
    if (k->block >= a->shards.blocks || k->shard >= a->shards.workers || k->rank != 0) {
        return;
    }
    ru_shards_range(&a->shards, k->block, k->shard, &first, &n);
    float *into = a->sums[k->step % RUI_FUNCTIONS_AHEAD] + first;
    if (a->keys != NULL) {
        rui_functions_fetch(a, k, into, n);
    } else if (size_bytes == n * (int64_t)sizeof(float)) {
        memcpy(into, data, (size_t)size_bytes);
        rui_functions_part(a, k->step);
    }
}

/* -- the machine ----------------------------------------------------------------------------------
 */

static void on_timer(void *self, uint32_t what, ru_time now)
{
    step(self, (ru_event){.kind = RU_EV_TIMER, .now = now, .what = what});
}

static void on_epoch(rui_functions *a, uint32_t epoch)
{
    a->epoch = epoch;
    a->shards = ru_shards_of(a->run.count, a->choice.workers);
    a->epoch_at = ru_clock_now();
    a->summed_at = (ru_time){0};
    memset(a->parts, 0, sizeof a->parts);
    ru_store_epoch(a->store, epoch);
    set_window(a);
}

static void want_state(rui_functions *a, int64_t at)
{
    ru_mutex_lock(&a->lock);
    a->slot.wanted = at;
    a->slot.written = false;
    ru_cond_broadcast(&a->changed);
    ru_mutex_unlock(&a->lock);
}

static void follow(rui_functions *a, const ru_effect *e)
{
    if (e->kind == RU_FX_TIMER) {
        ru_loop_timer(a->loop, on_timer, a, e->what, e->at);
        return;
    }
    if (e->kind == RU_FX_TIMER_OFF) {
        ru_loop_timer_off(a->loop, on_timer, a, e->what);
        return;
    }
    switch ((ru_func_word)e->what) {
    case RU_FUNC_PLAN:
        rui_functions_choose(a);
        break;
    case RU_FUNC_EPOCH:
        on_epoch(a, (uint32_t)e->value);
        break;
    case RU_FUNC_STATE:
        want_state(a, e->value);
        break;
    case RU_FUNC_CALL:
        rui_functions_call(a, e->data);
        break;
    case RU_FUNC_LAST:
        ru_log(RU_LOG_INFO, "functions", "hand_over", "workers hand over after step %lld",
               (long long)e->value + 1);
        ru_store_last(a->store, e->value);
        break;
    case RU_FUNC_FENCE:
        if (!a->ending) {
            ru_log(RU_LOG_WARN, "functions", "fenced", "epoch %u is given up after step %lld",
                   a->epoch, (long long)a->done);
        }
        a->epoch = 0;
        ru_store_epoch(a->store, 0);
        break;
    case RU_FUNC_FAILED:
        rui_functions_fail(a, (ru_status)e->value, e->data);
        break;
    case RU_FUNC_CHOICE:
    case RU_FUNC_AGAIN:
    case RU_FUNC_ANSWER:
    case RU_FUNC_SUMMED:
    case RU_FUNC_BUSY:
    case RU_FUNC_STOP:
    case RU_FUNC_TIMER:
    case RU_FUNC_WORDS:
        break;
    }
}

static void step(rui_functions *a, ru_event ev)
{
    ru_effects mine;
    ru_arena arena; /* what follows may step again */
    ru_arena_init(&arena, 0);
    ru_effects_init(&mine, &arena);
    ru_func_step(a->machine, &ev, &mine);
    for (uint32_t k = 0; k < mine.n; k++) {
        follow(a, &mine.at[k]);
    }
    ru_arena_fini(&arena);
}

/* -- the loop thread ------------------------------------------------------------------------------
 */

static void on_end(void *self, uint32_t what, ru_time now)
{
    (void)what;
    (void)now;
    ru_loop_stop(((rui_functions *)self)->loop);
}

/* The run is over: calls that end by themselves are waited for a moment, so that the bill is whole.
 */
void rui_functions_answered(rui_functions *a)
{
    if (a->ending && (a->done < a->run.steps || ru_function_host_meter(a->host).busy == 0)) {
        ru_loop_stop(a->loop);
    }
}

void rui_functions_put_state(rui_functions *a, const ru_shard_key *k, const void *data,
                             int64_t size_bytes)
{
    ru_err err = {0};
    if (ru_store_put(a->store, k, data, size_bytes, &err) != RU_OK) {
        rui_functions_fail(a, RU_E_MEM, err.text);
    }
}

static void on_wake(void *self, ru_time now)
{
    rui_functions *a = self;
    ru_mutex_lock(&a->lock);
    bool ending = a->slot.ending, put = a->slot.written && a->slot.wanted >= 0;
    int64_t at = a->slot.wanted;
    if (put) {
        a->slot.wanted = -1;
    }
    ru_mutex_unlock(&a->lock);
    if (ending && !a->ending) {
        a->ending = true;
        rui_functions_say(a, RU_FUNC_STOP, 0, NULL, 0);
        ru_loop_timer(a->loop, on_end, a, 0, ru_time_after(now, end_ns));
        rui_functions_answered(a);
    }
    if (ending) {
        return;
    }
    if (put && a->epoch != 0) {
        const ru_shard_key k = {
            .job = a->job, .epoch = a->epoch, .kind = RU_SHARD_STATE, .step = at};
        if (a->keys != NULL) {
            rui_functions_far_state(a, &k);
        } else {
            rui_functions_put_state(a, &k, a->state, a->run.state_bytes);
        }
    }
    set_window(a);
    rui_functions_follow_more(a);
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    rui_functions *a = self;
    (void)events;
    (void)now;
    ru_loop_fd_off(a->loop, fd);
    rui_functions_stop(a);
}

static void thread_main(void *self)
{
    rui_functions *a = self;
    ru_err err = {0};
    ru_thread_prompt();
    step(a, (ru_event){.kind = RU_EV_START, .now = ru_clock_now()});
    ru_status st = ru_loop_run(a->loop, &err);
    if (st != RU_OK) {
        rui_functions_fail(a, st, err.text);
    }
    if (a->keys != NULL) {
        rui_functions_keys_close(a);
    }
}

/* -- opening --------------------------------------------------------------------------------------
 */

static ru_status open_memory(rui_functions *a, ru_err *err)
{
    bool fine = true;
    for (uint32_t k = 0; k < RUI_FUNCTIONS_AHEAD; k++) {
        a->sums[k] = malloc((size_t)a->run.count * sizeof(float));
        fine = fine && a->sums[k] != NULL;
    }
    a->state = malloc((size_t)a->run.state_bytes + 1);
    return fine && a->state != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the sums of %d steps", RUI_FUNCTIONS_AHEAD);
}

static ru_status open_store(rui_functions *a, ru_err *err)
{
    uint8_t secret[RUI_FUNCTIONS_TOKEN];
    ru_self_random(secret, sizeof secret);
    ru_self_random(&a->job, sizeof a->job);
    for (uint32_t k = 0; k < RUI_FUNCTIONS_TOKEN; k++) {
        (void)snprintf(a->token + 2 * (size_t)k, 3, "%02x", secret[k]);
    }
    const ru_store_options so = {.loop = a->loop,
                                 .listen = a->opt->listen,
                                 .token = a->token,
                                 .job = a->job,
                                 .workers_max = a->opt->scale.workers_max,
                                 .put = on_put,
                                 .drop = a->opt->keys != NULL ? rui_functions_dropped : NULL,
                                 .self = a};
    RU_TRY(a->opt->keys != NULL ? rui_functions_keys_open(a, err) : RU_OK);
    RU_TRY(ru_store_open(&so, &a->loop_arena, &a->store, err));
    a->reach = ru_arena_printf(&a->loop_arena, "http://%s",
                               a->opt->reach != NULL ? a->opt->reach : ru_store_address(a->store));
    return a->reach != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for an address");
}

static ru_status open_functions(rui_functions *a, ru_err *err)
{
    const ru_functions_train_options *o = a->opt;
    const ru_function_host_options ho = {
        .loop = a->loop,
        .pool = {.instances_max = SPARE * o->scale.workers_max,
                 .waiting_max = SPARE * o->scale.workers_max,
                 .tries_max = 1, /* what runs twice must be of two epochs */
                 .limit_ns = o->scale.life_ns,
                 .start_max_ns = start_ns,
                 .keep_ns = a->follow.files != NULL ? RUI_FUNCTIONS_IDLE_NS : keep_ns},
        .argv = o->argv,
        .url = o->url,
        .name = o->name,
        .sign = o->sign};
    const ru_func_options fo = {.first = a->run.step,
                                .steps = a->run.steps,
                                .life_ns = o->scale.life_ns,
                                .ahead = o->keys != NULL ? RUI_FUNCTIONS_AHEAD : 0};
    RU_TRY(ru_function_host_open(&ho, &a->loop_arena, &a->host, err));
    return ru_func_init(&fo, &a->loop_arena, &a->machine, err);
}

/* What was spent goes to a file of the run. */
static ru_status open_money(rui_functions *a, ru_err *err)
{
    const char *path = ru_path_join(&a->loop_arena, a->run.dir, "functions.jsonl");
    a->money.usd_per_gb_s = a->opt->scale.usd_per_gb_s;
    return path != NULL ? ru_log_file_open(path, a->run.step > 0, &a->money.log, err)
                        : RU_FAIL(err, RU_E_MEM, "no memory for a name");
}

static ru_status begin(void *self, const ru_summed_start *start, ru_err *err)
{
    rui_functions *a = self;
    a->run = *start;
    a->run.steps = start->steps < INT64_C(1) << 48 ? start->steps : INT64_C(1) << 48;
    a->done = a->slot.ready = a->slot.taken = start->step;
    RU_TRY(open_memory(a, err));
    RU_TRY(ru_loop_open(&a->loop, err));
    RU_TRY(ru_loop_waker(a->loop, on_wake, a, &a->waker, err));
    RU_TRY(open_store(a, err));
    RU_TRY(open_functions(a, err));
    RU_TRY(open_money(a, err));
    RU_TRY(a->follow.files != NULL ? rui_functions_follow_open(a, err) : RU_OK);
    int fd = ru_self_stop_fd();
    RU_TRY(fd >= 0 ? ru_loop_fd(a->loop, fd, READ, on_stop, a, err) : RU_OK);
    RU_TRY(ru_functions_scales(a->opt)
               ? ru_func_scale_init(&a->scale, &a->opt->scale, a->begun, err)
               : RU_OK);
    a->scale.opt.end_ns = ended_ns + start->save_ns; /* it ends with a checkpoint, too */
    ru_log(RU_LOG_INFO, "functions", "begin", "the store is at %s", a->reach);
    RU_TRY(ru_thread_start(&a->thread, "functions", thread_main, a, err));
    return a->follow.files != NULL ? rui_functions_follow_start(a, err) : RU_OK;
}

/* Main thread: `step` steps are updated. */
static ru_status next(void *self, int64_t at, ru_summed_next *out, ru_err *err)
{
    (void)err;
    rui_functions *a = self;
    bool wrote = out->state != NULL;
    *out = (ru_summed_next){0};
    ru_mutex_lock(&a->lock);
    a->slot.taken = at;
    a->slot.written = a->slot.written || (wrote && a->slot.wanted == at);
    ru_mutex_unlock(&a->lock);
    ru_loop_wake(a->loop, a->waker);
    ru_mutex_lock(&a->lock);
    rui_functions_slot *s = &a->slot;
    while (s->ended == NULL && s->why.status == RU_OK && (s->wanted != at || s->written) &&
           s->ready <= at && (!s->idle || s->rested)) {
        ru_cond_wait(&a->changed, &a->lock);
    }
    ru_status st = s->why.status;
    out->ended = s->ended;
    if (s->ended != NULL) {
        st = RU_OK;
    } else if (st != RU_OK) { /* ru_functions_train tells why, behind the checkpoint */
        out->ended = "stopped";
        st = RU_OK;
    } else if (s->wanted == at && !s->written) {
        out->state = a->state;
    } else if (s->ready <= at) {
        out->idle = s->rested = true;
    } else {
        out->sums = a->sums[at % RUI_FUNCTIONS_AHEAD];
    }
    ru_mutex_unlock(&a->lock);
    return st;
}

static void end(void *self)
{
    rui_functions *a = self;
    if (a->thread.started) {
        ru_mutex_lock(&a->lock);
        a->slot.ending = true;
        ru_cond_broadcast(&a->changed);
        ru_mutex_unlock(&a->lock);
        ru_loop_wake(a->loop, a->waker);
        ru_thread_join(&a->follow.thread);
        ru_thread_join(&a->thread);
        rui_functions_tell(a);
    }
}

static void close_all(rui_functions *a)
{
    ru_function_host_close(a->host);
    ru_store_close(a->store);
    ru_keys_close(a->keys);
    ru_loop_close(a->loop);
    for (uint32_t k = 0; k < RUI_FUNCTIONS_AHEAD; k++) {
        free(a->sums[k]);
    }
    free(a->state);
    ru_log_file_close(a->money.log);
    rui_functions_follow_close(a);
    ru_arena_fini(&a->loop_arena);
    ru_cond_fini(&a->changed);
    ru_mutex_fini(&a->lock);
}

ru_status ru_functions_train(const ru_functions_train_options *opt, ru_arena *arena,
                             ru_train_result *out, ru_err *err)
{
    static const ru_summed_ops ops = {begin, next, end};
    rui_functions *a = RU_NEW(arena, rui_functions, 1);
    if (a == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for training on functions");
    }
    *a = (rui_functions){.opt = opt, .arena = arena, .slot = {.wanted = -1}};
    ru_train_options train = *opt->train;
    ru_arena_init(&a->loop_arena, 0);
    ru_arena_init(&a->follow.arena, 0);
    ru_mutex_init(&a->lock);
    ru_cond_init(&a->changed);
    ru_status st = train.job->data.follow_ns > 0
                       ? rui_functions_first(a, &train.files, &train.n_files, err)
                       : RU_OK;
    a->begun = ru_clock_now(); /* a deadline counts from here on */
    st = st == RU_OK ? ru_train_summed(&train, opt->scale.workers_max, &ops, a, arena, out, err)
                     : st;
    close_all(a);
    if (st == RU_OK && a->slot.ended == NULL && a->slot.why.status != RU_OK) {
        st = RU_FAIL(err, a->slot.why.status, "%s; the checkpoint of %s is saved for --resume",
                     a->slot.why.text, out->out);
    }
    return st;
}
