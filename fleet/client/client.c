#include "fleet/client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "env/process/self.h"
#include "env/zone.h"
#include "fleet/client/client_impl.h"
#include "fleet/client/masked.h"

/* LEAST: bytes of a tensor without a name and dimensions. */
enum { TENSORS_MAX = 1 << 20, TENSOR_LEAST = 8, SAMPLES_MAX = 1000000000 };

/* -- the model ------------------------------------------------------------------------------------
 */

/* The layout (train/model/flat.h), then the text of the job. */
bool rui_fed_client_model(ru_fed_client *c, const uint8_t *body, int64_t body_bytes)
{
    const rui_fed_start *s = &c->start;
    RU_CHECK(!c->desk.model && s->count > 0);
    ru_wire_in w = ru_wire_in_from(body, body_bytes);
    uint32_t n = ru_wire_u32(&w);
    bool fits_in = n <= TENSORS_MAX && n <= ru_wire_left(&w) / TENSOR_LEAST;
    ru_fed_tensor *t = fits_in ? RU_NEW(&c->arena, ru_fed_tensor, n + 1) : NULL;
    int64_t at = 0;
    for (uint32_t k = 0; k < n && t != NULL && !w.bad; k++) {
        uint32_t length = 0;
        const char *name = ru_wire_text(&w, UINT16_MAX, &length);
        uint32_t rank = ru_wire_u32(&w);
        bool there = rank <= UINT8_MAX && rank <= ru_wire_left(&w) / (int64_t)sizeof(int64_t);
        int64_t *dims = there ? RU_NEW(&c->arena, int64_t, rank + 1) : NULL;
        int64_t count = 1;
        for (uint32_t d = 0; d < rank && dims != NULL; d++) {
            dims[d] = (int64_t)ru_wire_u64(&w);
            bool fits = dims[d] >= 1 && dims[d] <= (int64_t)s->count / count;
            count = fits ? count * dims[d] : (int64_t)s->count + 1;
        }
        t[k] = (ru_fed_tensor){.name = name != NULL ? ru_arena_strn(&c->arena, name, length) : NULL,
                               .at = at,
                               .count = count,
                               .dims = dims,
                               .rank = rank};
        if (dims == NULL || t[k].name == NULL || count > (int64_t)s->count - at) {
            return false;
        }
        at += count;
    }
    int64_t left = ru_wire_left(&w);
    const char *job = (const char *)ru_wire_bytes(&w, left);
    c->model = (ru_fed_model){.count = (int64_t)s->count,
                              .params = (int64_t)s->params,
                              .masked = s->threshold > 0,
                              .hash = s->hash,
                              .tensors = t,
                              .n_tensors = n,
                              .job = job != NULL ? ru_arena_strn(&c->arena, job, left) : NULL,
                              .job_bytes = left};
    return t != NULL && !w.bad && at == (int64_t)s->count && c->model.job != NULL;
}

/* -- what the program calls -----------------------------------------------------------------------
 */

/* Under `lock`: the end, as the program hears it. */
static ru_status ended(const ru_fed_client *c, ru_err *err)
{
    if (c->why.status != RU_OK && err != NULL) {
        *err = c->why;
    }
    return c->why.status;
}

ru_status ru_fed_client_model(ru_fed_client *c, const ru_fed_model **out, ru_err *err)
{
    ru_mutex_lock(&c->lock);
    while (!c->desk.model && !c->desk.over) {
        ru_cond_wait(&c->changed, &c->lock);
    }
    ru_status st = c->desk.model ? RU_OK : ended(c, err);
    if (!c->desk.model && st == RU_OK) {
        st = RU_FAIL(err, RU_E_CANCELLED, "this client was stopped before it had the model of %s",
                     c->opt.address);
    }
    ru_mutex_unlock(&c->lock);
    *out = &c->model;
    return st;
}

ru_status ru_fed_client_ready(ru_fed_client *c, int64_t samples, int64_t held, ru_err *err)
{
    if (samples < 1 || samples > SAMPLES_MAX || held < 0 || held > SAMPLES_MAX) {
        return RU_FAIL(err, RU_E_USAGE,
                       "a client of a federation has 1 to %d samples, and at most as many that it "
                       "holds out; this one has %lld and %lld",
                       SAMPLES_MAX, (long long)samples, (long long)held);
    }
    RU_TRY(c->start.threshold > 0 ? rui_masked_open(c, err) : RU_OK);
    ru_mutex_lock(&c->lock);
    RU_CHECK(c->desk.model && !c->desk.ready);
    c->desk.samples = (double)samples;
    c->desk.held = (double)held;
    c->desk.ready = true;
    ru_mutex_unlock(&c->lock);
    ru_loop_wake(c->loop, c->waker);
    return RU_OK;
}

/* The work in hand, as the program left it. */
static void post(ru_fed_client *c)
{
    RU_CHECK(c->hand.kind != RUI_FED_DO_NONE); /* an answer to nothing */
    ru_mutex_lock(&c->lock);
    c->hand.done = true;
    c->desk.job = c->hand;
    ru_mutex_unlock(&c->lock);
    ru_loop_wake(c->loop, c->waker);
    c->hand = (rui_fed_job){0};
}

ru_status ru_fed_client_next(ru_fed_client *c, ru_fed_work *out, ru_err *err)
{
    rui_fed_job *h = &c->hand;
    *out = (ru_fed_work){.over = true};
    for (;;) {
        ru_mutex_lock(&c->lock);
        while ((c->desk.job.kind == RUI_FED_DO_NONE || c->desk.job.done) && !c->desk.over) {
            ru_cond_wait(&c->changed, &c->lock);
        }
        *h = c->desk.job;
        bool over = c->desk.over;
        ru_status st = over ? ended(c, err) : RU_OK;
        ru_mutex_unlock(&c->lock);
        if (over) {
            return st;
        }
        if (h->kind == RUI_FED_DO_TASK) {
            break;
        }
        (void)!rui_masked_add(c, h, &h->why);
        post(c);
    }
    rui_masked_from(c, h);
    *out = (ru_fed_work){.evaluate = h->task.kind == RUI_FED_EVALUATE,
                         .round = h->task.round,
                         .epochs = h->task.epochs,
                         .values = h->values};
    return RU_OK;
}

bool ru_fed_client_stopped(const ru_fed_client *c)
{
    return ru_flag_get(&c->give_up) != 0;
}

void ru_fed_client_trained(ru_fed_client *c, const ru_fed_result *result)
{
    c->hand.result = *result;
    if (!(result->accuracy >= 0)) {
        c->hand.result.accuracy = -1;
    }
    if (!(result->loss_rms > 0)) {
        c->hand.result.loss_rms = result->loss > 0 ? result->loss : -result->loss;
    }
    post(c);
}

void ru_fed_client_scored(ru_fed_client *c, const ru_fed_score *score)
{
    c->hand.score = *score;
    post(c);
}

void ru_fed_client_failed(ru_fed_client *c, const ru_err *why)
{
    c->hand.why = *why;
    post(c);
}

void ru_fed_client_stop(ru_fed_client *c)
{
    ru_flag_set(&c->stop, 1);
    ru_flag_set(&c->give_up, 1);
    ru_loop_wake(c->loop, c->waker);
}

/* -- opening and closing --------------------------------------------------------------------------
 */

/* NAME:KEY as `rubato fed token` prints it. */
static ru_status read_token(ru_fed_client *c, const char *text, ru_err *err)
{
    static const char digits[] = "0123456789abcdef";
    const char *colon = text != NULL ? strchr(text, ':') : NULL;
    bool fine = colon != NULL && colon - text <= RUI_FED_NAME_MAX &&
                strlen(colon + 1) == (size_t)2 * RU_FED_KEY_BYTES;
    for (uint32_t k = 0; fine && k < RU_FED_KEY_BYTES; k++) {
        const char *high = strchr(digits, colon[1 + 2 * k]);
        const char *low = strchr(digits, colon[2 + 2 * k]);
        fine = high != NULL && low != NULL;
        c->key[k] = (uint8_t)(fine ? (high - digits) << 4 | (low - digits) : 0);
    }
    if (fine) {
        memcpy(c->name, text, (size_t)(colon - text));
        fine = rui_fed_name_ok(c->name);
    }
    return fine ? RU_OK
                : RU_FAIL(err, RU_E_USAGE,
                          "the token is not one of `rubato fed token NAME`, which prints NAME:KEY");
}

static ru_status start(ru_fed_client *c, ru_err *err)
{
    const char *address = c->opt.address;
    if (address == NULL || !ru_link_tcp_address_ok(address)) {
        return RU_FAIL(err, RU_E_USAGE, "'%s': expected HOST:PORT or [v6]:PORT",
                       address != NULL ? address : "");
    }
    RU_TRY(read_token(c, c->opt.token, err));
    RU_TRY(rui_hours_read(c->opt.hours, &c->hours, err));
    if (c->opt.hours != NULL && !ru_zone_known()) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the system does not know the time zone TZ=%s of the hours '%s'; name one "
                       "that it has (package tzdata), as Europe/Berlin",
                       ru_conf_env("TZ"), c->opt.hours);
    }
    c->opt.token = NULL;
    c->opt.address = ru_arena_str(&c->arena, address);
    c->opt.hours = c->opt.hours != NULL ? ru_arena_str(&c->arena, c->opt.hours) : "";
    if (c->opt.address == NULL || c->opt.hours == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a client");
    }
    ru_self_random(&c->process, sizeof c->process);
    if (c->opt.quiet) {
        ru_log_set(&(ru_log_options){.level = RU_LOG_OFF});
    }
    RU_TRY(rui_fed_client_connect(c, err));
    return ru_thread_start(&c->thread, "client", rui_fed_client_loop, c, err);
}

ru_status ru_fed_client_open(const ru_fed_client_options *opt, ru_fed_client **out, ru_err *err)
{
    int64_t known = opt->values > 0 ? opt->values : INT64_C(1) << 36;
    int64_t most = opt->values_max > 0 ? opt->values_max : known;
    ru_fed_client *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a client");
    }
    c->opt = *opt;
    if (opt->signals) { /* before what may fail: close ends it */
        ru_self_stop_watch();
    }
    ru_arena_init(&c->arena, 0);
    ru_arena_init(&c->fx_arena, 0);
    ru_effects_init(&c->fx, &c->fx_arena);
    /* A task, the next one and the update before it, and what masks need. */
    ru_bufs_init(&c->bufs, 4 * most * (int64_t)sizeof(float) + (64 << 20));
    ru_mutex_init(&c->lock);
    ru_cond_init(&c->changed);
    ru_status st = start(c, err);
    if (st != RU_OK) {
        ru_fed_client_close(c);
        return st;
    }
    *out = c;
    return RU_OK;
}

void ru_fed_client_close(ru_fed_client *c)
{
    if (c == NULL) {
        return;
    }
    if (c->thread.started) {
        ru_fed_client_stop(c);
        ru_thread_join(&c->thread);
    }
    if (c->opt.signals) {
        ru_self_stop_unwatch();
    }
    rui_masked_close(c);
    ru_pull_close(c->pull);
    ru_guest_close(c->guest);
    ru_link_tcp_close(c->link);
    ru_loop_close(c->loop);
    ru_bufs_fini(&c->bufs);
    ru_arena_fini(&c->fx_arena);
    ru_arena_fini(&c->arena);
    ru_cond_fini(&c->changed);
    ru_mutex_fini(&c->lock);
    free(c);
}
