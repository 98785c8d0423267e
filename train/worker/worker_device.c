/* The device as the loop thread sees it: commands to the compute thread, events from it, pieces of
 * state read and written between its updates. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/worker/worker_impl.h"

/* -- commands ---------------------------------------------------------------------------------- */

void rui_worker_command(rui_worker *w, const rui_turn *cmd)
{
    rui_turn c = *cmd;
    c.leads = rui_worker_leads(w);
    ru_elastic_facts f;
    ru_elastic_facts_get(w->elastic, &f);
    c.workers = f.working;
    c.job_begun = f.born;
    c.job_first = f.first_step;
    const ru_view *v = ru_member_view(ru_node_member(w->shell.timers.node));
    c.members = v->n;
    for (uint32_t k = 0; k < v->n; k++) {
        c.voters += v->at[k].no_vote ? 0 : 1;
    }
    while (c.rank < v->n && v->at[c.rank].number != w->shell.number) {
        c.rank++;
    }
    w->rank = c.rank;
    ru_mutex_lock(&w->lock);
    RU_CHECK(w->next.kind == RUI_TURN_NONE || c.kind == RUI_TURN_QUIT);
    if (v->epoch != w->crew.epoch) {
        w->crew.n = v->n < w->crew.max ? v->n : w->crew.max;
        w->crew.epoch = v->epoch;
        for (uint32_t k = 0; k < w->crew.n; k++) {
            w->crew.at[k] = v->at[k];
        }
    }
    w->next = c;
    ru_cond_signal(&w->changed);
    ru_mutex_unlock(&w->lock);
}

static void say_verdict(rui_worker *w, rui_verdict v)
{
    ru_mutex_lock(&w->lock);
    w->verdict = v;
    ru_flag_set(&w->said, (uint32_t)v);
    if (v == RUI_VERDICT_ABORT) { /* nor is a step begun that was asked for */
        rui_early_clear(w);
        w->next.kind = w->next.kind == RUI_TURN_STEP ? RUI_TURN_NONE : w->next.kind;
    }
    ru_cond_signal(&w->changed);
    ru_mutex_unlock(&w->lock);
}

static void build(void *self, const ru_share *share, bool plain)
{
    rui_worker *w = self;
    const ru_view *v = ru_member_view(ru_node_member(w->shell.timers.node));
    int64_t n = share->n > 0 ? share->n : share->batch / (v->n > 0 ? v->n : 1);
    rui_worker_command(
        w, &(rui_turn){
               .kind = RUI_TURN_BUILD, .share = *share, .build_n = n > 0 ? n : 1, .plain = plain});
}

static void step(void *self, int64_t number, const ru_share *share)
{
    rui_worker *w = self;
    w->seq++;
    w->aborting = false;
    ru_tracing_step(&w->shell.tracing, number, ru_clock_now());
    w->ahead.share = *share;
    w->ahead.step = number;
    rui_worker_command(
        w, &(rui_turn){.kind = RUI_TURN_STEP, .share = *share, .step = number, .seq = w->seq});
}

static void abort_step(void *self)
{
    rui_worker *w = self;
    w->aborting = true;
    say_verdict(w, RUI_VERDICT_ABORT);
}

static void update(void *self, int64_t number)
{
    rui_worker *w = self;
    say_verdict(w, RUI_VERDICT_UPDATE);
    ru_tracing_updated(&w->shell.tracing, number, ru_clock_now());
}

/* -- reads of samples ---------------------------------------------------------------------------
 */

static bool reads(void *self, ru_elastic_reads *into)
{
    rui_worker *w = self;
    ru_stream_reads_sum x = {0};
    ru_mutex_lock(&w->lock);
    bool some = w->reads.stream != NULL;
    if (some) {
        ru_stream_reads_sum_get(w->reads.stream, &x);
    }
    *into = (ru_elastic_reads){.bytes = w->reads.before.bytes + x.bytes,
                               .busy_ns = w->reads.before.busy_ns + x.busy_ns,
                               .stall_ns = w->reads.before.stall_ns + x.stall_ns,
                               .batch_bytes = x.batch_bytes,
                               .outstanding_bytes = x.outstanding_bytes};
    ru_mutex_unlock(&w->lock);
    return some;
}

static void read_share(void *self, int64_t outstanding_bytes, uint64_t plan)
{
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    w->reads.share = outstanding_bytes;
    if (w->reads.stream != NULL) {
        ru_stream_reads_share(w->reads.stream, outstanding_bytes);
    }
    ru_mutex_unlock(&w->lock);
    ru_log(RU_LOG_INFO, "data", "read_share", "plan %016llx lets %.3g MB be outstanding",
           (unsigned long long)plan, 1e-6 * (double)outstanding_bytes);
}

/* -- state ------------------------------------------------------------------------------------- */

/* A piece on its way; the cookie is its address. */
typedef struct piece {
    uint32_t state;
    int64_t offset, size;
    uint8_t data[];
} piece;

static ru_status piece_new(uint32_t k, int64_t offset, int64_t size, ru_span *span,
                           uint64_t *cookie, piece **out)
{
    piece *p = malloc(sizeof *p + (size_t)size);
    if (p == NULL) {
        return RU_E_MEM;
    }
    *p = (piece){.state = k, .offset = offset, .size = size};
    *span = (ru_span){.data = p->data, .size_bytes = size};
    *cookie = (uint64_t)(uintptr_t)p;
    *out = p;
    return RU_OK;
}

static ru_status state_copy(void *self, uint32_t k, int64_t offset, int64_t size, ru_span *span,
                            uint64_t *cookie)
{
    rui_worker *w = self;
    piece *p;
    ru_status st = piece_new(k, offset, size, span, cookie, &p);
    if (st != RU_OK) {
        return st;
    }
    st = ru_exe_state_read_part(w->now->exe, w->now->states[k], offset, size, p->data, NULL);
    if (st != RU_OK) {
        free(p);
    }
    return st;
}

static void state_release(void *self, uint64_t cookie)
{
    (void)self;
    free((piece *)(uintptr_t)cookie);
}

static ru_status state_place(void *self, uint32_t k, int64_t offset, int64_t size, ru_span *span,
                             uint64_t *cookie)
{
    (void)self;
    piece *p;
    return piece_new(k, offset, size, span, cookie, &p);
}

static void state_placed(void *self, uint64_t cookie, bool arrived)
{
    rui_worker *w = self;
    piece *p = (piece *)(uintptr_t)cookie;
    if (arrived) {
        ru_status st = ru_exe_state_write_part(w->now->exe, w->now->states[p->state], p->offset,
                                               p->size, p->data, NULL);
        RU_CHECK(st == RU_OK); /* its place was checked when the pieces were listed */
    }
    free(p);
}

ru_elastic_device rui_worker_device(rui_worker *w)
{
    w->ops = (ru_elastic_device_ops){
        .name = "worker",
        .build = build,
        .step = step,
        .abort = abort_step,
        .update = update,
        .state_copy = state_copy,
        .state_release = state_release,
        .state_place = state_place,
        .state_placed = state_placed,
        .reads = reads,
        .read_share = read_share,
    };
    rui_early_ops(&w->ops);
    if (w->local.shm != NULL) {
        rui_local_ops(&w->ops);
    }
    return (ru_elastic_device){.ops = &w->ops, .self = w};
}

/* -- events -------------------------------------------------------------------------------------
 */

void rui_worker_said(void *self, const void *element, ru_time now, ru_effects *fx)
{
    rui_worker *w = self;
    const rui_event *x = element;
    bool current = x->seq == w->seq && !w->aborting;
    switch (x->kind) {
    case RUI_EVENT_BUILT:
        ru_elastic_built(w->elastic, x->status, x->layout, now, fx);
        break;
    case RUI_EVENT_READY:
        for (uint32_t k = x->tensor; current && k < x->tensor + x->n; k++) {
            const ru_exe_grad *g = &w->now->tensors[k];
            const ru_span span = {.data = g->data, .size_bytes = g->size_bytes};
            ru_elastic_ready(w->elastic, w->shell.tracing.step, k, &span, now, fx);
        }
        break;
    case RUI_EVENT_COMPUTED:
        if (current) {
            ru_elastic_computed(w->elastic, w->shell.tracing.step, x->status, x->ns, now, fx);
        }
        break;
    case RUI_EVENT_ABORTED:
        if (w->local.closing) { /* a sum may still be written */
            w->local.aborted = true;
            break;
        }
        ru_elastic_aborted(w->elastic, now, fx);
        break;
    case RUI_EVENT_LOCAL_OPENED:
        if (x->seq == w->local.seq) {
            ru_elastic_local_opened(w->elastic, x->status, now, fx);
        }
        break;
    case RUI_EVENT_REDUCED:
        if (x->seq == w->local.seq && !w->aborting) {
            ru_elastic_reduced(w->elastic, w->shell.tracing.step, x->tensor, now, fx);
        }
        break;
    case RUI_EVENT_LOCAL_CLOSED:
        w->local.closing = x->seq != w->local.close_seq; /* another one was asked meanwhile */
        if (w->local.aborted && !w->local.closing) {
            w->local.aborted = false;
            ru_elastic_aborted(w->elastic, now, fx);
        }
        break;
    case RUI_EVENT_UPDATED:
        rui_worker_updated(w, x->step + 1);
        ru_elastic_updated(w->elastic, x->step, x->status, now, fx);
        break;
    case RUI_EVENT_OVER:
        w->over = x->why;
        ru_elastic_stop(w->elastic, true, now, fx);
        break;
    case RUI_EVENT_EVALUATED:
        rui_evals_tell(w, x, now);
        break;
    case RUI_EVENT_TABLE:
    case RUI_EVENT_MEASURE:
        rui_plan_said(w, x->kind == RUI_EVENT_MEASURE);
        break;
    case RUI_EVENT_WORLD:
        rui_capture_send(w, now);
        break;
    case RUI_EVENT_WEIGHTS:
        rui_weights_made(w, fx);
        break;
    case RUI_EVENT_FINISHED:
        w->shell.end_status = x->status;
        ru_shell_bye(&w->shell, 0, now);
        break;
    }
}
