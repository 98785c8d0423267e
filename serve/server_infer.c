/* An infer request, from its bytes to its answer. */
#include <stdlib.h>
#include <string.h>

#include "env/process/memory.h"
#include "serve/beside/beside.h"
#include "serve/far/far.h"
#include "serve/server_impl.h"
#include "trace/export/export.h"

enum {
    CALL_KEEPS_BYTES = 1 << 20, /* of memory, for its next request */
    COPY_BYTES = 8 << 10,
    CALLS_KEPT = 32, /* when none is under way: 40 kB each */
};
#define FORGET_NS INT64_C(1000000000)
#define MARGIN_NS INT64_C(4000000000) /* a margin of promises decays by e in it */
/* Waking a thread and being woken by it takes 20 to 60 us of processor time (hop of an MLP: 26 us
 * computed here, 56 by a thread; LeNet, 58 us a row, one connection: 9,900 rows/s and 3,700). */
#define HERE_NS INT64_C(100000)
/* Longer than that other requests and streams notice: a model whose time depends on its data. */
#define HERE_MAX_NS INT64_C(1000000)

static const char FULL[] = "too many requests wait; come again after the time of Retry-After";

/* -- calls -------------------------------------------------------------------------------------
 */

static rui_call *call_new(ru_server *s)
{
    rui_call *c = s->free_calls;
    if (c != NULL) {
        s->free_calls = c->next;
    } else {
        c = calloc(1, sizeof *c);
        if (c == NULL) {
            return NULL;
        }
        ru_arena_init(&c->arena, 0);
        c->server = s;
        c->next_all = s->all_calls;
        s->all_calls = c;
        s->n_all++;
    }
    c->place = RU_SERVE_NONE;
    c->entry = (rui_entry){0};
    c->in.id = (ru_str){0};
    s->n_calls++;
    return c;
}

void rui_hold(ru_server *s, int64_t bytes, int64_t *mine)
{
    *mine += bytes;
    s->held_bytes += bytes;
}

ru_status rui_hold_more(ru_server *s, int64_t bytes, int64_t *mine, ru_err *err)
{
    if (s->held_bytes > 0 && bytes > s->opt.outputs_max_bytes - s->held_bytes) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "outputs of other requests take all memory for outputs; try again");
    }
    rui_hold(s, bytes, mine);
    return RU_OK;
}

void rui_call_over(ru_server *s, rui_version *v)
{
    s->n_calls--;
    v->calls--;
    if (v->state == RUI_DRAINING || (s->n_calls == 0 && s->stopped != NULL)) {
        ru_loop_wake(s->opt.loop, s->waker); /* the last one: looked at when nobody works on it */
    }
}

/* After a while without requests most calls of a crowd are forgotten. */
static void forget_calls(void *self, uint32_t what, ru_time now)
{
    ru_server *s = self;
    (void)what;
    (void)now;
    if (s->n_calls > 0) {
        return;
    }
    s->free_calls = NULL; /* all are free */
    for (rui_call **at = &s->all_calls, *c = *at; c != NULL; c = *at) {
        if (s->n_all > CALLS_KEPT) {
            *at = c->next_all;
            ru_arena_fini(&c->arena);
            free(c);
            s->n_all--;
        } else {
            c->next = s->free_calls;
            s->free_calls = c;
            at = &c->next_all;
        }
    }
    ru_memory_trim();
}

static void on_round(void *self, ru_time now);
static void on_here(void *self, ru_time now);

void rui_calls_free(ru_server *s)
{
    ru_loop_timer_off(s->opt.loop, forget_calls, s, 0);
    ru_loop_after_off(s->opt.loop, on_round, s);
    ru_loop_after_off(s->opt.loop, on_here, s);
    while (s->all_calls != NULL) {
        rui_call *c = s->all_calls;
        s->all_calls = c->next_all;
        ru_arena_fini(&c->arena);
        free(c);
    }
}

static void call_done(void *self)
{
    rui_call *c = self;
    ru_server *s = c->server;
    rui_version *v = c->version;
    rui_hold(s, -c->held_bytes, &c->held_bytes);
    if (c->arena.used_bytes > CALL_KEEPS_BYTES) {
        ru_arena_fini(&c->arena);
        ru_arena_init(&c->arena, 0);
    } else {
        ru_arena_rewind(&c->arena, (ru_arena_mark){0});
    }
    c->next = s->free_calls;
    s->free_calls = c;
    rui_call_over(s, v);
    if (s->n_calls == 0 && s->n_all > CALLS_KEPT) {
        ru_loop_timer(s->opt.loop, forget_calls, s, 0, ru_time_after(ru_clock_now(), FORGET_NS));
    }
}

/* `retry_ns`: after which the client may come again; 0: not said. */
static void refuse_until(rui_call *c, rui_miss why, uint32_t status, const char *sentence,
                         int64_t retry_ns)
{
    rui_stats *st = &c->version->stats;
    st->miss[why]++;
    st->missed_ns += ru_time_since(ru_clock_now(), c->r->since);
    retry_ns = retry_ns == 0 && status == 503 ? 1 : retry_ns; /* memory comes back */
    ru_http_refuse(c->r, status, sentence, (retry_ns + 999999999) / 1000000000);
    call_done(c);
}

static void refuse(rui_call *c, rui_miss why, uint32_t status, const char *sentence)
{
    refuse_until(c, why, status, sentence, 0);
}

static uint32_t http_of(ru_status st)
{
    return st == RU_E_MEM || st == RU_E_LIMIT          ? 503
           : st == RU_E_DATA || st == RU_E_UNSUPPORTED ? 400
                                                       : 500;
}

/* -- answers -----------------------------------------------------------------------------------
 */

/* The outputs that the request wants, with their data; 0: it wants one that there is not. */
static ru_status outputs_of(const rui_call *c, ru_oip_tensor *out, uint32_t *n, ru_err *err)
{
    const ru_served_facts *f = ru_served_facts_get(c->version->served);
    uint32_t wanted = c->in.n_outputs > 0 ? c->in.n_outputs : f->n_outputs;
    for (uint32_t k = 0; k < wanted; k++) {
        uint32_t i = c->in.n_outputs > 0 ? 0 : k;
        while (c->in.n_outputs > 0 && i < f->n_outputs &&
               !ru_str_eq_c(c->in.outputs[k].name, f->outputs[i].name)) {
            i++;
        }
        if (i == f->n_outputs) {
            return RU_FAIL(err, RU_E_DATA, "the model has no output '%.*s'",
                           RUI_CUT(c->in.outputs[k].name, 100));
        }
        out[k] =
            (ru_oip_tensor){.name = ru_str_c(f->outputs[i].name),
                            .type = ru_served_type(f, &f->outputs[i], c->part.rows, c->part.size),
                            .data = c->part.out[i],
                            .texts = f->outputs[i].texts,
                            .binary = c->in.n_outputs > 0 ? c->in.outputs[k].binary : c->in.binary};
    }
    *n = wanted;
    return RU_OK;
}

/* The texts of an output from their numbers: the request's or the model's. */
static bool texts_of(rui_call *c, ru_oip_tensor *t)
{
    const ru_texts *words = ru_served_facts_get(c->version->served)->words;
    int64_t n = ru_type_count(&t->type);
    const int64_t *codes = t->data;
    const char **text = RU_NEW(&c->arena, const char *, n);
    for (int64_t i = 0; text != NULL && i < n; i++) {
        text[i] = ru_texts_find(&c->in.words, codes[i]);
        text[i] = text[i] == NULL && words != NULL ? ru_texts_find(words, codes[i]) : text[i];
        text[i] = text[i] == NULL ? "" : text[i];
    }
    t->text = text;
    if (text != NULL && t->binary) {
        uint8_t *packed = ru_arena_alloc(&c->arena, ru_oip_bytes(t), 1);
        if (packed != NULL) {
            ru_oip_pack(t, packed);
        }
        t->data = packed;
    }
    return text != NULL && t->data != NULL;
}

static void note_batch(rui_call *c, ru_time now)
{
    rui_entry *e = &c->entry;
    e->buffer_ns = ru_time_since(c->job->left, c->queued);
    e->queue_ns = ru_time_since(c->job->begun, c->job->left);
    e->compute_ns = ru_time_since(c->job->ended, c->job->begun);
    e->answer_ns = ru_time_since(now, c->job->ended);
    e->batch_rows = c->job->rows;
    e->batch_requests = c->job->n;
    e->why = c->job->why;
}

static void put_ms(ru_text *t, const char *name, int64_t ns)
{
    int64_t us = (ns + 500) / 1000;
    ru_text_putf(t, "%s;dur=%lld.%03lld", name, (long long)(us / 1000), (long long)(us % 1000));
}

/* Follows the quantile of the promise, and some more, of how much later than predicted answers
 * come.
 */
static void learn_margin(const rui_call *c, int64_t took_ns, ru_time now)
{
    rui_version *v = c->version;
    const ru_server_options *o = &c->server->opt;
    int64_t step = o->slo_ns / 64, down = (int64_t)((1 - o->slo_q) * (double)step);
    int64_t calm_ns = ru_time_since(now, v->margin_at);
    double calm = calm_ns < MARGIN_NS ? (double)calm_ns / (double)MARGIN_NS : 1;
    int64_t off = (int64_t)((double)v->margin_ns * calm);
    int64_t to = v->margin_ns - off; /* what was so once is forgotten where few ask, too */
    to += took_ns - c->ask.wait_ns > v->margin_ns ? step : -down;
    v->margin_ns = to < 0 ? 0 : to > o->slo_ns / 4 ? o->slo_ns / 4 : to;
    v->margin_at = now;
}

/* Where the time of a request went. */
static void note_answer(rui_call *c, ru_text *timing)
{
    rui_stats *st = &c->version->stats;
    const rui_entry *e = &c->entry;
    ru_time now = ru_clock_now();
    int64_t all = ru_time_since(now, c->r->since), promise = c->server->opt.slo_ns;
    int64_t from_whole = ru_time_since(now, c->r->whole);
    note_batch(c, now);
    if (promise > 0 && c->ask.wait_ns > 0) {
        learn_margin(c, from_whole, now);
    }
    if (c->version->far != NULL) {
        rui_far_answered(c->version->far, c->part.size, all);
    }
    rui_times_add(&st->request, all);
    st->last_ms = ru_clock_wall_ns() / 1000000;
    rui_times_add(&st->parse, e->parse_ns);
    rui_times_add(&st->queue, e->buffer_ns + e->queue_ns);
    rui_times_add(&st->compute, e->compute_ns);
    rui_times_add(&st->answer, e->answer_ns);
    st->late_answers += promise > 0 && from_whole > promise ? 1 : 0;
    put_ms(timing, "parse", e->parse_ns);
    put_ms(timing, ", buffer", e->buffer_ns);
    put_ms(timing, ", queue", e->queue_ns);
    put_ms(timing, ", compute", e->compute_ns);
    ru_text_putf(timing, ", batch;desc=\"%u rows, %s\"", e->batch_rows, rui_stats_reason(e->why));
    if (e->trace[0] != '\0') {
        ru_text_putf(timing, ", traceparent;desc=\"00-%s-%s-01\"", e->trace, e->span);
    }
}

static void answer(rui_call *c)
{
    ru_oip_tensor out[RU_OIP_TENSORS_MAX];
    ru_http_span spans[RU_OIP_TENSORS_MAX + 1];
    uint32_t n = 0, n_spans = 1;
    char length[24], timing[256];
    RU_CHECK(outputs_of(c, out, &n, NULL) == RU_OK); /* as before it was computed */
    for (uint32_t k = 0; k < n; k++) {
        if (out[k].texts && !texts_of(c, &out[k])) {
            refuse(c, RUI_MISS_FAILED, 503, "no memory for the texts of the answer");
            return;
        }
    }
    ru_text text = ru_text_arena(&c->arena);
    ru_oip_answer(c->version->model, c->version->version, c->in.id, out, n, &text);
    int64_t head = text.n;
    bool binary = false;
    for (uint32_t k = 0; k < n; k++) {
        if (!out[k].binary) {
            continue;
        }
        binary = true;
        if (ru_oip_bytes(&out[k]) <= COPY_BYTES && n_spans == 1) { /* one piece: one system call */
            ru_text_put_n(&text, out[k].data, ru_oip_bytes(&out[k]));
        } else {
            spans[n_spans++] = (ru_http_span){out[k].data, ru_oip_bytes(&out[k])};
        }
    }
    if (text.cut) {
        refuse(c, RUI_MISS_FAILED, 503, "no memory for the answer");
        return;
    }
    rui_hold(c->server, text.n, &c->held_bytes); /* until its client has read it */
    spans[0] = (ru_http_span){text.p, text.n};
    ru_text times = ru_text_into(timing, sizeof timing);
    note_answer(c, &times);
    ru_text at = ru_text_into(length, sizeof length);
    ru_text_putf(&at, "%lld", (long long)head);
    const ru_http_field fields[] = {
        {"Content-Type", binary ? "application/octet-stream" : "application/json"},
        {"Server-Timing", timing},
        {"X-Request-Id", c->entry.id},
        {"Inference-Header-Content-Length", length}};
    ru_http_answer(c->r, &(ru_http_reply){.status = 200,
                                          .fields = fields,
                                          .n_fields = binary ? 4 : 3,
                                          .spans = spans,
                                          .n_spans = n_spans,
                                          .done = call_done,
                                          .self = c});
}

/* -- the machine -------------------------------------------------------------------------------
 */

static rui_call *call_of(uint64_t id)
{
    return (rui_call *)(uintptr_t)id;
}

/* Batches that wait follow at once: a round of the loop between two of them asks for the answers of
 * all requests that wait. */
static void on_here(void *self, ru_time now)
{
    ru_server *s = self;
    ru_time from = ru_clock_now();
    (void)now;
    do {
        rui_version *v = s->here_of;
        s->here_of = NULL;
        rui_crew_run(v->crew, s->here);
        rui_infer_jobs(v);
    } while (s->here_of != NULL && ru_time_since(ru_clock_now(), from) < HERE_MAX_NS / 2);
    if (s->here_of == NULL) {
        ru_loop_after_off(s->opt.loop, on_here, s);
    }
}

static uint32_t size_of(int64_t rows)
{
    uint32_t k = 0;
    while (k + 1 < RU_SERVE_SIZES && INT64_C(1) << k < rows) {
        k++;
    }
    return k;
}

/* The loop computes a batch itself that takes less than waking a thread, on one thread; one at a
 * time. Not before all is open: rows with NaN may wait for the loader. */
static bool keep(rui_version *v, rui_job *job)
{
    ru_server *s = v->server;
    int64_t takes_ns = ru_served_service_ns(v->served, job->rows);
    if (s->here_of != NULL || s->opt.served.exe.threads != 1 || !v->grown ||
        ru_served_facts_get(v->served)->prepares || takes_ns == 0 || takes_ns > HERE_NS ||
        v->service_ns[size_of(job->rows)] > HERE_MAX_NS) {
        return false;
    }
    s->here_of = v;
    s->here = job;
    ru_loop_after(s->opt.loop, on_here, s);
    return true;
}

/* A batch goes to an instance that is free. */
static void start(rui_version *v, const ru_serve_start *b)
{
    RU_CHECK(v->n_idle > 0);
    rui_job *job = &v->jobs[v->idle[--v->n_idle]];
    job->batch = b->batch;
    job->n = 0;
    job->rows = b->rows;
    job->why = b->why;
    job->memory_mb = b->memory_mb;
    job->left = b->left;
    for (uint32_t p = b->first; p != RU_SERVE_NONE; p = ru_serve_next(v->machine, p)) {
        rui_call *c = call_of(ru_serve_id(v->machine, p));
        job->parts[job->n++] = &c->part;
    }
    if (v->far != NULL) {
        rui_far_give(v->far, job);
    } else if (v->crew != NULL) { /* else the server closes: nobody waits for it */
        rui_beside_begins(v->server);
        if (!keep(v, job)) {
            rui_crew_give(v->crew, job);
        }
    }
}

static void on_timer(void *self, uint32_t what, ru_time now)
{
    (void)now;
    rui_infer_step(self, (ru_event){.kind = RU_EV_TIMER, .what = what});
}

void rui_infer_end(rui_version *v)
{
    ru_loop_timer_off(v->server->opt.loop, on_timer, v, RU_SERVE_TIMER);
}

static void perform(rui_version *v, const ru_effect *fx)
{
    if (fx->kind == RU_FX_TIMER) {
        ru_loop_timer(v->server->opt.loop, on_timer, v, fx->what, fx->at);
    } else if (fx->kind == RU_FX_TIMER_OFF) {
        ru_loop_timer_off(v->server->opt.loop, on_timer, v, fx->what);
    }
    if (fx->kind != RU_FX_LOCAL) {
        return;
    }
    const ru_serve_request *r = fx->data;
    switch (fx->what) {
    case RU_SERVE_TAKEN:
        call_of(r->id)->place = r->place;
        call_of(r->id)->ask.wait_ns = r->wait_ns;
        break;
    case RU_SERVE_REFUSED:
        refuse_until(call_of(r->id), RUI_MISS_FULL, 429, FULL, r->wait_ns > 0 ? r->wait_ns : 1);
        break;
    case RU_SERVE_LATE:
        refuse(call_of(r->id), RUI_MISS_LATE, 504,
               "the time that the request allows is over; it was not computed");
        break;
    case RU_SERVE_CANCELLED:
        refuse(call_of(r->id), RUI_MISS_CANCELLED, 499, "the client left");
        break;
    case RU_SERVE_START:
        start(v, fx->data);
        break;
    default:
        break;
    }
}

/* The time is read here: callbacks of one round of the loop have times of their own, in any order.
 */
void rui_infer_step(rui_version *v, ru_event ev)
{
    ev.now = ru_clock_now();
    ru_serve_step(v->machine, &ev, &v->fx);
    for (uint32_t k = 0; k < v->fx.n; k++) {
        perform(v, &v->fx.at[k]);
    }
    ru_effects_clear(&v->fx);
}

static void say(rui_version *v, ru_serve_word word, const ru_serve_request *r)
{
    rui_infer_step(
        v, (ru_event){
               .kind = RU_EV_LOCAL, .what = (uint32_t)word, .data = r, .size_bytes = sizeof *r});
}

/* The largest batch of which two fit into the promise: the one that runs when a request comes, and
 * its own, with the margin of the promise; else those that come meanwhile would be refused. */
void rui_infer_pace(rui_version *v)
{
    int64_t promise = v->server->opt.slo_ns;
    ru_serve_pace p = {.batch = 1};
    bool changed = false;
    if (v->far != NULL) { /* its choice says so */
        return;
    }
    ru_http_turn(v->server->http, &p.turn_ns, &p.margin_ns);
    p.margin_ns += v->margin_ns;
    p.margin_ns = p.margin_ns < promise / 4 ? p.margin_ns : promise / 4;
    for (uint32_t k = 0; k < RU_SERVE_SIZES; k++) {
        int64_t opened = ru_served_service_ns(v->served, INT64_C(1) << k);
        if (opened == 0) {
            break;
        }
        v->service_ns[k] = v->service_ns[k] > 0 ? v->service_ns[k] : opened;
        p.service_ns[k] = v->service_ns[k];
        int64_t two_ns = 2 * p.service_ns[k] + p.margin_ns;
        p.batch = promise == 0 || two_ns <= promise ? 1u << k : p.batch;
        int64_t off = p.service_ns[k] - v->pace.service_ns[k];
        changed = changed || (off < 0 ? -off : off) > v->pace.service_ns[k] / 8;
    }
    int64_t off = p.turn_ns + p.margin_ns - v->pace.turn_ns - v->pace.margin_ns;
    changed = changed || (off < 0 ? -off : off) > (v->pace.turn_ns + v->pace.margin_ns) / 8;
    if (changed || p.batch != v->pace.batch) {
        v->pace = p;
        rui_infer_step(
            v, (ru_event){
                   .kind = RU_EV_LOCAL, .what = RU_SERVE_PACE, .data = &p, .size_bytes = sizeof p});
    }
}

/* Follows the 95th percentile of what a batch takes from the loop's hand to its answers: up by 4.75
 * % when one takes longer, down by 0.25 % when not. */
static void learn(rui_version *v, const rui_job *job, ru_time now)
{
    uint32_t k = size_of(job->rows);
    int64_t took = ru_time_since(now, job->given);
    v->stats.batches_of[k]++;
    v->stats.batch_ns[k] += ru_time_since(job->ended, job->begun);
    v->stats.rows += job->rows;
    if (v->service_ns[k] > 0) {
        v->service_ns[k] +=
            took > v->service_ns[k] ? v->service_ns[k] / 21 : -(v->service_ns[k] / 400);
    }
}

static rui_job *job_take(rui_version *v)
{
    return v->far != NULL ? rui_far_take(v->far) : v->crew != NULL ? rui_crew_take(v->crew) : NULL;
}

/* The time is read here: the loop may have computed the job after its callback began. */
void rui_infer_jobs(rui_version *v)
{
    for (rui_job *job = job_take(v); job != NULL; job = job_take(v)) {
        uint32_t batch = job->batch;
        ru_time now = ru_clock_now();
        rui_beside_ended(v->server);
        learn(v, job, now);
        for (uint32_t k = 0; k < job->n; k++) {
            rui_call *c = (rui_call *)(void *)((uint8_t *)job->parts[k] - offsetof(rui_call, part));
            c->job = job;
            if (c->part.st == RU_OK) {
                answer(c);
            } else {
                note_batch(c, now);
                refuse(c, c->part.st == RU_E_DATA ? RUI_MISS_BAD : RUI_MISS_FAILED,
                       http_of(c->part.st), job->err.text);
            }
        }
        v->idle[v->n_idle++] = job->instance;
        /* the machine forgets the batch after its calls were read */
        rui_infer_step(v, (ru_event){.kind = RU_EV_LOCAL, .what = RU_SERVE_DONE, .value = batch});
        rui_infer_pace(v);
        if (v->late && ru_served_service_ns(v->served, 1) > 0) {
            v->late = false;
            rui_version_grow(v);
        }
    }
}

/* -- requests ----------------------------------------------------------------------------------
 */

/* Memory for its outputs, out of what all requests may have; a single row always gets it when
 * nobody else has any. */
static ru_status get_outputs(rui_call *c, const ru_served_facts *f, ru_err *err)
{
    int64_t rows = c->part.rows, bytes = 0, most = c->server->opt.outputs_max_bytes;
    for (uint32_t k = 0; k < f->n_outputs; k++) {
        bytes += ru_served_row_bytes(f, &f->outputs[k], c->part.size);
    }
    if (rows > 1 && bytes > most / rows) {
        return RU_FAIL(err, RU_E_DATA,
                       "outputs of one request may have %lld bytes: ask for at most %lld rows, not "
                       "%lld",
                       (long long)most, (long long)(most / bytes > 1 ? most / bytes : 1),
                       (long long)rows);
    }
    bytes *= rows;
    RU_TRY(rui_hold_more(c->server, bytes, &c->held_bytes, err));
    for (uint32_t k = 0; k < f->n_outputs; k++) {
        c->part.out[k] = ru_arena_alloc(
            &c->arena, rows * ru_served_row_bytes(f, &f->outputs[k], c->part.size), 64);
        if (c->part.out[k] == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for the answer");
        }
    }
    return RU_OK;
}

/* -1: its body is JSON alone. */
static ru_status json_bytes_of(const ru_http_request *r, int64_t *bytes, ru_err *err)
{
    const char *header = ru_http_asked(r, "Inference-Header-Content-Length");
    *bytes = -1;
    return header == NULL || (ru_str_i64(ru_str_c(header), bytes) && *bytes >= 0)
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "Inference-Header-Content-Length '%.40s' is not a length",
                         header);
}

static ru_status read_call(rui_call *c, ru_err *err)
{
    const ru_served_facts *f = ru_served_facts_get(c->version->served);
    uint32_t slot[RU_OIP_TENSORS_MAX], n;
    ru_oip_tensor out[RU_OIP_TENSORS_MAX];
    int64_t json_bytes;
    RU_TRY(json_bytes_of(c->r, &json_bytes, err));
    RU_TRY(ru_oip_read(c->r->body, c->r->body_bytes, json_bytes, &c->arena, &c->in, err));
    RU_TRY(ru_served_fit(c->version->served, &c->in, &c->part, slot, err));
    for (uint32_t k = 0; k < f->n_inputs; k++) {
        c->part.in[k] = c->in.inputs[slot[k]].data;
    }
    RU_TRY(get_outputs(c, f, err));
    return outputs_of(c, out, &n, err);
}

/* What others call it: its id and its trace. */
static void name(rui_call *c)
{
    rui_entry *e = &c->entry;
    const char *asked = ru_http_asked(c->r, "X-Request-Id");
    const char *parent = ru_http_asked(c->r, "traceparent");
    ru_str id = c->in.id.n > 0 ? c->in.id : ru_str_c(asked != NULL ? asked : "");
    ru_text t = ru_text_into(e->id, sizeof e->id);
    ru_text_utf8(&t, id);
    for (char *p = e->id; *p != '\0'; p++) { /* it becomes a field of the answer */
        *p = *p < ' ' || *p > '~' ? '?' : *p;
    }
    if (e->id[0] == '\0') {
        rui_journal_name(c->server->journal, e->id);
    }
    if (parent != NULL && ru_traceparent_read(parent, e->trace, e->parent)) {
        ru_text own = ru_text_into(e->span, sizeof e->span);
        ru_text_putf(&own, "%016llx", (unsigned long long)ru_rng_u64(&c->server->spans));
    }
}

#define MS_MAX 1e12 /* 31 years: sums with the clock stay below 2^63 ns */

ru_status rui_due(const rui_version *v, const ru_http_request *r, int64_t timeout_us, ru_time *due,
                  ru_err *err)
{
    const char *header = ru_http_asked(r, "Rubato-Deadline-Ms");
    double ms = (double)timeout_us * 1e-3;
    ms = ms < MS_MAX ? ms : MS_MAX;
    if (header != NULL && (!ru_str_f64(ru_str_c(header), &ms) || !(ms > 0 && ms < MS_MAX))) {
        return RU_FAIL(err, RU_E_DATA, "Rubato-Deadline-Ms '%.40s' is not a time", header);
    }
    int64_t ns = (int64_t)(ms * 1e6), most = v->server->opt.wait_max_ns;
    int64_t usual = v->config.timeout_us * 1000;
    ns = usual > 0 && (ns <= 0 || ns > usual || !v->config.shorter) ? usual : ns;
    ns = most > 0 && (ns <= 0 || ns > most) ? most : ns;
    *due = ns > 0 ? ru_time_after(r->since, ns) : (ru_time){0};
    return RU_OK;
}

uint32_t rui_priority(const rui_version *v, int64_t asked)
{
    int64_t p = asked == 0 ? v->config.priority : asked;
    return (uint32_t)(p < RU_SERVE_PRIORITIES ? p : RU_SERVE_PRIORITIES - 1);
}

/* Requests of one round of the loop come together: a batch takes all of them. */
static void on_round(void *self, ru_time now)
{
    ru_server *s = self;
    (void)now;
    rui_call *c = s->came, *next;
    s->came = NULL;
    for (; c != NULL; c = next) {
        next = c->next; /* it may be answered at once */
        c->ask.more = next != NULL && next->version == c->version;
        c->version->came_rows = 0; /* the machine hears all of them now */
        say(c->version, RU_SERVE_REQUEST, &c->ask);
    }
}

/* Is it late whatever it asks, or would one of a row be refused, and it says no priority? Then it
 * is not read: reading takes longer than refusing, and others wait to be read. */
static bool is_refused(rui_version *v, const ru_http_request *r, int64_t *wait_ns)
{
    ru_time now = ru_clock_now();
    int64_t json_bytes, promise = v->server->opt.slo_ns;
    bool late = promise > 0 && ru_time_since(now, r->whole) > promise;
    *wait_ns = 0;
    if (late || promise == 0 || v->far != NULL || json_bytes_of(r, &json_bytes, NULL) != RU_OK ||
        ru_oip_may_have_priority(r->body, r->body_bytes, json_bytes)) {
        return late;
    }
    const ru_serve_request like = {
        .rows = v->came_rows + 1, .priority = rui_priority(v, 0), .since = r->whole};
    return ru_serve_refuse(v->machine, &like, now, wait_ns);
}

void rui_infer(ru_server *s, rui_version *v, ru_http_request *r)
{
    int64_t wait_ns;
    rui_call *c = call_new(s);
    ru_err err = {0};
    if (c == NULL) {
        ru_http_refuse(r, 503, "no memory for the request", 1);
        return;
    }
    c->version = v;
    c->r = r;
    r->mine = c;
    v->calls++;
    c->ask = (ru_serve_request){.id = (uint64_t)(uintptr_t)c, .since = r->whole};
    v->came[v->n_came++ % RUI_CAME_MAX] = r->since;
    if (is_refused(v, r, &wait_ns)) {
        name(c);
        refuse_until(c, RUI_MISS_FULL, 429, FULL, wait_ns > 0 ? wait_ns : 1);
        return;
    }
    ru_status st = read_call(c, &err);
    name(c);
    st = st == RU_OK ? rui_due(v, r, c->in.timeout_us, &c->ask.due, &err) : st;
    if (st != RU_OK) {
        refuse(c, st == RU_E_LIMIT ? RUI_MISS_FAILED : RUI_MISS_BAD, http_of(st), err.text);
        return;
    }
    c->entry.rows = (uint32_t)c->part.rows;
    c->ask.rows = (uint32_t)(c->part.rows < UINT32_MAX / 4 ? c->part.rows : UINT32_MAX / 4);
    c->ask.priority = rui_priority(v, c->in.priority);
    c->queued = ru_clock_now();
    c->entry.parse_ns = ru_time_since(c->queued, r->since);
    if (v->far != NULL) {
        c->ask.class_of = rui_far_came(v->far, c->queued, c->part.size);
    }
    rui_beside_waits(v);
    /* the machine may refuse a larger one, and what is urgent may pass one of a low priority */
    bool waits = c->ask.rows <= v->pace.batch && c->in.priority == 0;
    v->came_rows += waits ? c->ask.rows : 0;
    c->next = NULL;
    *(s->came != NULL ? &s->came_last->next : &s->came) = c;
    s->came_last = c;
    ru_loop_after(s->opt.loop, on_round, s);
}

void rui_infer_gone(ru_server *s, ru_http_request *r)
{
    (void)s;
    const rui_call *c = r->mine;
    if (c != NULL && c->place != RU_SERVE_NONE) {
        const ru_serve_request gone = {.id = (uint64_t)(uintptr_t)c, .place = c->place};
        say(c->version, RU_SERVE_CANCEL, &gone);
    }
}
