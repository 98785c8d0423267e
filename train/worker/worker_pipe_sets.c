/* Sets of a worker's states (train/pipe/sets.h), on the compute thread: the leader says after which
 * steps, so seldom that the copies cost a hundredth of the time. */
#include <string.h>

#include "base/log.h"
#include "run/ckpt_held.h"
#include "train/pipe/units.h"
#include "train/worker/worker_pipe_impl.h"

enum {
    CHUNK_BYTES = 1 << 20,
    SHARE = 100,      /* a set costs at most 1 / SHARE of the time ... */
    FIRST = 10,       /* ... but the first ones, whose memory is new, come sooner */
    BYTES_PER_NS = 1, /* of another worker; the leader's own copies may be too few to measure */
};

static int64_t own_bytes(const rui_pipe_worker *w)
{
    int64_t sum = 0;
    for (uint32_t k = 0; k < w->stages.n; k++) {
        bool is = w->opt->far || rui_pipe_own(w, k) != NULL;
        sum += is ? w->state_bytes[k] : 0;
    }
    return sum;
}

bool rui_pipe_gives(const rui_pipe_worker *w)
{
    const rui_pipe_seats *s = &w->seats;
    bool with_leader = s->placed.n == 0 && s->place[s->own] + 1 == w->stages.n;
    return with_leader ? s->own + 1 == s->n : s->replica == 0;
}

int64_t rui_sets_bytes(const rui_pipe_worker *w)
{
    return w->sets.at != NULL && rui_pipe_gives(w) ? 2 * own_bytes(w) : 0;
}

/* Whoever joined learns it when all are there. */
static void go_on(rui_pipe_worker *w, int64_t after)
{
    if (w->opt->sets == NULL && after > 0) {
        w->sets.from = (ru_sets_at){.step = after, .samples = after * w->t.job->train.batch};
        w->first_step = after;
    }
}

ru_status rui_sets_open(rui_pipe_worker *w, ru_err *err)
{
    rui_pipe_sets *s = &w->sets;
    if (w->opt->sets == NULL) { /* far: from the leader */
        go_on(w, w->opt->after);
        return RU_OK;
    }
    ru_sets_state *states = RU_NEW(w->arena, ru_sets_state, w->n_states + 1);
    s->chunk = ru_arena_alloc(w->arena, CHUNK_BYTES, 64);
    if (states == NULL || s->chunk == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    for (uint32_t k = 0; k < w->n_states; k++) {
        states[k] = (ru_sets_state){.name = w->states[k].name, .bytes = w->states[k].bytes};
    }
    RU_TRY(ru_sets_open(w->opt->sets, states, w->n_states, w->arena, &s->at, err));
    ru_sets_at newest = ru_sets_newest(s->at);
    if (w->opt->train.resume && newest.step > w->first_step) { /* than the newest checkpoint */
        s->from = newest;
        w->first_step = newest.step;
    }
    return RU_OK;
}

/* One state of the part under way. */
static ru_status fill_state(rui_pipe_worker *w, const ru_value *x, ru_value_id v, ru_err *err)
{
    int64_t bytes = ru_type_bytes(&x->type);
    for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        int64_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        RU_TRY(ru_sets_read(w->sets.at, x->name, at, n, w->sets.chunk, err));
        RU_TRY(ru_exe_state_write_part(w->at->home, v, at, n, w->sets.chunk, err));
    }
    return RU_OK;
}

ru_status rui_sets_fill(rui_pipe_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    const ru_graph *g = &w->stages.at[w->at->stage].step.graph;
    const ru_sets_at *from = &w->sets.from;
    if (from->step == 0) {
        return RU_OK;
    }
    for (uint32_t v = 1; v < g->n_values && w->sets.at != NULL; v++) { /* else rui_sets_hand */
        const ru_value *x = &g->values[v];
        bool is = x->kind == RU_VALUE_STATE && x->name != NULL;
        RU_TRY(is ? fill_state(w, x, (ru_value_id){v}, err) : RU_OK);
    }
    t->step_done = t->step_resumed = t->step_first = from->step;
    t->samples = from->samples;
    t->learned = (rui_learned){.done = (double)from->step, .gain = 1};
    t->batch = t->job->train.batch;
    return RU_OK;
}

/* -- giving ------------------------------------------------------------------------------------ */

static bool has_name(const ru_value *x)
{
    return x->kind == RU_VALUE_STATE && x->name != NULL;
}

static int64_t place_bytes(const ru_value *x)
{
    return (ru_type_bytes(&x->type) + 63) / 64 * 64;
}

/* Where a state stands in the message of its stage. */
static int64_t place_of(const ru_graph *g, uint32_t state)
{
    int64_t sum = 0;
    for (uint32_t v = 1; v < state; v++) {
        sum += has_name(&g->values[v]) ? place_bytes(&g->values[v]) : 0;
    }
    return sum;
}

void rui_sets_after(rui_pipe_worker *w, int64_t after)
{
    uint32_t link = w->plan.fill;
    w->sets.after = after;
    go_on(w, after);
    for (uint32_t k = 0; k < w->stages.n && after > 0; k++) {
        const ru_graph *g = &w->stages.at[k].step.graph;
        int64_t bytes = place_of(g, g->n_values);
        for (uint32_t r = 0; r < w->seats.workers[k]; r++) { /* one without states gets one too */
            w->plan.bytes[link++] = bytes > 0 ? bytes : 64;
        }
    }
}

typedef struct message {
    const ru_graph *graph;
    uint8_t *piece;
} message;

static ru_status put_loaded(void *self, ru_value_id v, const void *data, ru_err *err)
{
    const message *m = self;
    (void)err;
    memcpy(m->piece + place_of(m->graph, v.v), data,
           (size_t)ru_type_bytes(&m->graph->values[v.v].type));
    return RU_OK;
}

/* gives: the leader's copies, or those of the checkpoint from which it goes on, into the piece;
 * else from there into the part with that stage. */
static ru_status move_stage(rui_pipe_worker *w, uint32_t stage, bool gives, uint8_t *piece,
                            ru_err *err)
{
    const ru_graph *g = &w->stages.at[stage].step.graph;
    if (gives && w->sets.from.step == 0) {
        message m = {g, piece};
        return ru_ckpt_load_to(&w->t.from, g, &(ru_ckpt_sink){put_loaded, &m}, true, err);
    }
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        if (!has_name(x)) {
            continue;
        }
        RU_TRY(
            gives ? ru_sets_read(w->sets.at, x->name, 0, ru_type_bytes(&x->type), piece, err)
                  : ru_exe_state_write(rui_pipe_own(w, stage)->home, (ru_value_id){v}, piece, err));
        piece += place_bytes(x);
    }
    return RU_OK;
}

/* Whose slots have weights of their own copied them before they came. */
static ru_status renew_slots(rui_pipe_worker *w, ru_err *err)
{
    const rui_pipe_part *p = w->parts;
    for (uint32_t k = 0; k < w->n_slots && w->course.whole && w->course.apart; k++) {
        RU_TRY(ru_exe_params_copy(p->slot[k], p->home, err));
    }
    return RU_OK;
}

ru_status rui_sets_hand(rui_pipe_worker *w, ru_err *err)
{
    const rui_pipe_seats *s = &w->seats;
    bool gives = s->own + 1 == s->n;
    uint32_t link = w->plan.fill;
    void *piece;
    if (gives && w->sets.after > 0 && w->sets.after != w->first_step) {
        return RU_FAIL(err, RU_E_BUG,
                       "the states after step %lld are wanted, and those here are of %lld",
                       (long long)w->sets.after, (long long)w->first_step);
    }
    for (uint32_t k = 0; k < w->stages.n && w->sets.after > 0; k++) {
        for (uint32_t r = 0; r < s->workers[k]; r++, link++) {
            uint32_t to = s->first[k] + r;
            if (to + 1 == s->n || (!gives && to != s->own)) {
                continue;
            }
            RU_TRY(rui_flow_place(w, link, 0, &piece));
            RU_TRY(move_stage(w, k, gives, piece, err));
            if (gives) {
                rui_flow_go(w, link, 0);
            } else { /* nothing comes behind it */
                rui_flow_drop(w, link);
            }
        }
    }
    for (link = w->plan.fill; link < w->n_links && gives; link++) {
        if (w->flows[link].bytes > 0) { /* it has left */
            RU_TRY(rui_flow_place(w, link, 0, &piece));
            rui_flow_drop(w, link);
        }
    }
    return gives || w->sets.after == 0 ? RU_OK : renew_slots(w, err);
}

/* -- writing ----------------------------------------------------------------------------------- */

bool rui_sets_due(const rui_pipe_worker *w)
{
    return w->sets.at != NULL && !w->sets.off && ru_clock_now().ns >= w->sets.next.ns;
}

static ru_status put_state(rui_pipe_worker *w, uint32_t k, ru_err *err)
{
    const rui_pipe_state *s = &w->states[k];
    const ru_sets_at now = {.step = w->t.step_done, .samples = w->t.samples};
    ru_exe *home = rui_pipe_own(w, s->stage)->home;
    RU_TRY(ru_sets_torn(w->sets.at, k, err));
    for (int64_t at = 0; at < s->bytes; at += CHUNK_BYTES) {
        int64_t n = s->bytes - at < CHUNK_BYTES ? s->bytes - at : CHUNK_BYTES;
        RU_TRY(ru_exe_state_read_part(home, s->value, at, n, w->sets.chunk, err));
        RU_TRY(ru_sets_write(w->sets.at, k, at, n, w->sets.chunk, err));
    }
    return ru_sets_whole(w->sets.at, k, now, err);
}

/* far: what its worker sent, as it stands in the copy for checkpoints. */
static ru_status put_sent(rui_pipe_worker *w, uint32_t k, ru_err *err)
{
    const rui_pipe_state *s = &w->states[k];
    const ru_sets_at now = {.step = w->t.step_done, .samples = w->t.samples};
    void *from;
    RU_TRY(ru_ckpt_held(w->t.ckpt, s->name, &from, err));
    RU_CHECK(from != NULL);
    RU_TRY(ru_sets_torn(w->sets.at, k, err));
    RU_TRY(ru_sets_write(w->sets.at, k, 0, s->bytes, from, err));
    return ru_sets_whole(w->sets.at, k, now, err);
}

static ru_status put(rui_pipe_worker *w, ru_err *err)
{
    ru_sets_begin(w->sets.at);
    for (uint32_t k = 0; k < w->n_states; k++) {
        bool own = rui_pipe_own(w, w->states[k].stage) != NULL && rui_pipe_gives(w);
        RU_TRY(own ? put_state(w, k, err) : w->opt->far ? put_sent(w, k, err) : RU_OK);
    }
    return RU_OK;
}

void rui_sets_fit(rui_pipe_worker *w, int64_t beside_bytes)
{
    int64_t share = ru_units_share(w->t.job, w->seats.n, w->arena); /* as the others take theirs */
    int64_t sets = rui_sets_bytes(w);
    if (sets > 0 && share > 0 && beside_bytes + sets > share) {
        w->sets.off = true;
        ru_log(RU_LOG_INFO, "train", "sets",
               "%s %u has no memory for two copies of its state, %lld bytes; after the loss of a "
               "worker all go on from the newest checkpoint",
               w->seats.called, w->seats.place[w->seats.own] + 1, (long long)sets);
    }
}

void rui_sets_put(rui_pipe_worker *w, int64_t waited_ns)
{
    rui_pipe_sets *s = &w->sets;
    ru_err err = {0};
    if (s->at == NULL || s->off) {
        return;
    }
    ru_time begun = ru_clock_now();
    ru_status st = put(w, &err);
    if (st != RU_OK) { /* the training goes on; checkpoints are still there */
        s->off = true;
        ru_log(RU_LOG_WARN, "train", "sets",
               "%s; a loss of a worker costs the steps since the "
               "newest checkpoint",
               err.text);
        return;
    }
    ru_time now = ru_clock_now();
    int64_t most = waited_ns + ru_time_since(now, begun);
    for (uint32_t d = 0; d < w->seats.n; d++) { /* whoever has most takes longest */
        int64_t ns = 0;
        for (uint32_t k = 0; k < w->stages.n; k++) {
            ns += w->seats.first[k] == d ? w->state_bytes[k] / BYTES_PER_NS : 0;
        }
        most = ns > most ? ns : most;
    }
    s->next = ru_time_after(now, (s->n++ < 2 ? FIRST : SHARE) * most);
    ru_rec_span(w->t.recorder, w->t.names.save, begun.ns, now.ns, w->t.step_done);
}
