/* An infer request, from its bytes to its answer. */
#include <stdlib.h>
#include <string.h>

#include "serve/server_impl.h"

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
    }
    c->place = RU_SERVE_NONE;
    s->n_calls++;
    return c;
}

static void call_done(void *self)
{
    rui_call *c = self;
    ru_server *s = c->server;
    rui_version *v = c->version;
    ru_arena_rewind(&c->arena, (ru_arena_mark){0});
    c->next = s->free_calls;
    s->free_calls = c;
    s->n_calls--;
    v->calls--;
    if (v->state == RUI_DRAINING || (s->n_calls == 0 && s->stopped != NULL)) {
        ru_loop_wake(s->opt.loop, s->waker); /* the last one: looked at when nobody works on it */
    }
}

static void refuse(rui_call *c, uint32_t status, const char *sentence)
{
    c->version->stats.failed++;
    ru_http_refuse(c->r, status, sentence);
    call_done(c);
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
                           (int)(c->in.outputs[k].name.n < 100 ? c->in.outputs[k].name.n : 100),
                           c->in.outputs[k].name.p);
        }
        const ru_type *t = &f->outputs[i].type;
        out[k] =
            (ru_oip_tensor){.name = ru_str_c(f->outputs[i].name),
                            .type = *t,
                            .data = c->part.out[i],
                            .binary = c->in.n_outputs > 0 ? c->in.outputs[k].binary : c->in.binary};
        if (f->batched) {
            out[k].type.rank = t->rank + 1;
            out[k].type.dims[0] = c->part.rows;
            memcpy(out[k].type.dims + 1, t->dims, t->rank * sizeof *t->dims);
        }
    }
    *n = wanted;
    return RU_OK;
}

static void answer(rui_call *c)
{
    ru_oip_tensor out[RU_OIP_TENSORS_MAX];
    ru_http_span spans[RU_OIP_TENSORS_MAX + 1];
    uint32_t n = 0, n_spans = 1;
    char length[24];
    RU_CHECK(outputs_of(c, out, &n, NULL) == RU_OK); /* as before it was computed */
    ru_text text = ru_text_arena(&c->arena);
    ru_oip_answer(c->version->model, c->version->version, c->in.id, out, n, &text);
    for (uint32_t k = 0; k < n; k++) {
        if (out[k].binary) {
            spans[n_spans++] = (ru_http_span){out[k].data, ru_type_bytes(&out[k].type)};
        }
    }
    if (text.cut) {
        refuse(c, 503, "no memory for the answer");
        return;
    }
    spans[0] = (ru_http_span){text.p, text.n};
    ru_text_into(length, sizeof length);
    ru_text at = ru_text_into(length, sizeof length);
    ru_text_putf(&at, "%lld", (long long)text.n);
    const ru_http_field fields[] = {
        {"Content-Type", n_spans > 1 ? "application/octet-stream" : "application/json"},
        {"Inference-Header-Content-Length", length}};
    c->version->stats.success++;
    ru_http_answer(c->r, &(ru_http_reply){.status = 200,
                                          .fields = fields,
                                          .n_fields = n_spans > 1 ? 2 : 1,
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

/* A batch goes to an instance that is free. */
static void start(rui_version *v, const ru_serve_start *b)
{
    RU_CHECK(v->n_idle > 0);
    rui_job *job = &v->jobs[v->idle[--v->n_idle]];
    job->batch = b->batch;
    job->n = 0;
    for (uint32_t p = b->first; p != RU_SERVE_NONE; p = ru_serve_next(v->machine, p)) {
        rui_call *c = call_of(ru_serve_id(v->machine, p));
        job->parts[job->n++] = &c->part;
    }
    rui_crew_give(v->crew, job);
}

static void on_timer(void *self, uint32_t what, ru_time now)
{
    rui_infer_step(self, &(ru_event){.kind = RU_EV_TIMER, .now = now, .what = what});
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
        break;
    case RU_SERVE_REFUSED:
        refuse(call_of(r->id), 429, "as many requests as the server keeps are waiting");
        break;
    case RU_SERVE_CANCELLED:
        refuse(call_of(r->id), 499, "the client left");
        break;
    case RU_SERVE_START:
        start(v, fx->data);
        break;
    default:
        break;
    }
}

void rui_infer_step(rui_version *v, const ru_event *ev)
{
    ru_serve_step(v->machine, ev, &v->fx);
    for (uint32_t k = 0; k < v->fx.n; k++) {
        perform(v, &v->fx.at[k]);
    }
    ru_effects_clear(&v->fx);
}

static void say(rui_version *v, ru_serve_word word, rui_call *c)
{
    const ru_serve_request r = {.id = (uint64_t)(uintptr_t)c, .place = c->place};
    rui_infer_step(v, &(ru_event){.kind = RU_EV_LOCAL,
                                  .now = ru_clock_now(),
                                  .what = (uint32_t)word,
                                  .data = &r,
                                  .size_bytes = sizeof r});
}

void rui_infer_jobs(rui_version *v, ru_time now)
{
    for (rui_job *job = rui_crew_take(v->crew); job != NULL; job = rui_crew_take(v->crew)) {
        uint32_t batch = job->batch;
        v->idle[v->n_idle++] = job->instance;
        v->stats.batches++;
        v->stats.compute_ns += ru_time_since(job->ended, job->begun);
        for (uint32_t k = 0; k < job->n; k++) {
            rui_call *c = (rui_call *)(void *)((uint8_t *)job->parts[k] - offsetof(rui_call, part));
            v->stats.rows += (uint64_t)c->part.rows;
            v->stats.queue_ns += ru_time_since(job->begun, c->queued);
            if (c->part.st == RU_OK) {
                answer(c);
            } else {
                refuse(c, http_of(c->part.st), job->err.text);
            }
        }
        /* the machine forgets the batch after its calls were read */
        rui_infer_step(
            v, &(ru_event){.kind = RU_EV_LOCAL, .now = now, .what = RU_SERVE_DONE, .value = batch});
    }
}

/* -- requests ----------------------------------------------------------------------------------
 */

static ru_status read_call(rui_call *c, ru_err *err)
{
    const ru_served_facts *f = ru_served_facts_get(c->version->served);
    const char *header = ru_http_asked(c->r, "Inference-Header-Content-Length");
    const char *coding = ru_http_asked(c->r, "Content-Encoding");
    uint32_t slot[RU_OIP_TENSORS_MAX], n;
    ru_oip_tensor out[RU_OIP_TENSORS_MAX];
    int64_t json_bytes = -1;
    if (coding != NULL && strcmp(coding, "identity") != 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "bodies in Content-Encoding %.40s are not taken",
                       coding);
    }
    if (header != NULL && (!ru_str_i64(ru_str_c(header), &json_bytes) || json_bytes < 0)) {
        return RU_FAIL(err, RU_E_DATA, "Inference-Header-Content-Length '%.40s' is not a length",
                       header);
    }
    RU_TRY(ru_oip_read(c->r->body, c->r->body_bytes, json_bytes, &c->arena, &c->in, err));
    RU_TRY(ru_served_fit(c->version->served, &c->in, &c->part.rows, slot, err));
    for (uint32_t k = 0; k < f->n_inputs; k++) {
        c->part.in[k] = c->in.inputs[slot[k]].data;
    }
    for (uint32_t k = 0; k < f->n_outputs; k++) {
        c->part.out[k] = ru_arena_alloc(&c->arena, c->part.rows * f->outputs[k].row_bytes, 64);
        if (c->part.out[k] == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for the answer");
        }
    }
    return outputs_of(c, out, &n, err);
}

void rui_infer(ru_server *s, rui_version *v, ru_http_request *r)
{
    rui_call *c = call_new(s);
    ru_err err = {0};
    if (c == NULL) {
        ru_http_refuse(r, 503, "no memory for the request");
        return;
    }
    c->version = v;
    c->r = r;
    r->mine = c;
    v->calls++;
    ru_status st = read_call(c, &err);
    if (st != RU_OK) {
        refuse(c, http_of(st), err.text);
        return;
    }
    c->queued = ru_clock_now();
    say(v, RU_SERVE_REQUEST, c);
}

void rui_infer_gone(ru_server *s, ru_http_request *r)
{
    (void)s;
    rui_call *c = r->mine;
    if (c != NULL && c->place != RU_SERVE_NONE) {
        say(c->version, RU_SERVE_CANCEL, c);
    }
}
