/* Pieces between stages, at one end: places in memory, used in turn.
 *
 *   out   free --copy, SEND--> busy --sent--> free
 *   in    busy (posted) --arrived--> there --read, POST of the piece `ahead` later--> busy
 *
 * With one piece on its way, of a placed step, the place is where the executable makes or reads the
 * value, and nothing is copied.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/worker/worker_pipe_impl.h"

#define SLOW_NS INT64_C(5000000000) /* name who is waited for after */

static int64_t bytes_of(const rui_pipe_worker *w, uint32_t link)
{
    return w->plan.bytes[link];
}

static bool is_used(const rui_pipe_worker *w, uint32_t link)
{
    const ru_pipe_link *l = &w->links[link];
    bool mine = l->from == w->seats.own || l->to == w->seats.own;
    return mine && l->from != l->to && bytes_of(w, link) > 0;
}

/* Stages, or devices, of both ends, as people count. */
static uint32_t place_at(const rui_pipe_worker *w, uint32_t seat)
{
    return w->seats.place[seat] + 1;
}

static uint32_t common(uint32_t a, uint32_t b)
{
    uint32_t x = a;
    while (x % b != 0) {
        x += a;
    }
    return x;
}

uint32_t rui_pipe_link_of(const rui_pipe_worker *w, uint32_t edge, bool back, uint32_t *number)
{
    const ru_stage_edge *x = &w->stages.edges[edge];
    uint32_t from = w->seats.workers[x->from], to = w->seats.workers[x->to], j = w->turn.micro;
    uint32_t every = common(from, to); /* micro-batch is theirs */
    *number = w->turn.round * (w->micro / every) + j / every;
    return w->plan.edge[edge] + 2 * (j % from * to + j % to) + back;
}

uint32_t rui_pipe_pieces(const rui_pipe_worker *w, uint32_t stage)
{
    return (uint32_t)((w->state_bytes[stage] + RU_STAGE_PIECE_BYTES - 1) / RU_STAGE_PIECE_BYTES);
}

int64_t rui_pipe_piece_bytes(const rui_pipe_worker *w, uint32_t stage, uint32_t k)
{
    int64_t left = w->state_bytes[stage] - (int64_t)k * RU_STAGE_PIECE_BYTES;
    return left < RU_STAGE_PIECE_BYTES ? left : RU_STAGE_PIECE_BYTES;
}

int64_t rui_pipe_overlap(const rui_pipe_state *s, int64_t at, int64_t n, int64_t *from)
{
    int64_t begin = s->offset > at ? s->offset : at;
    int64_t end = s->offset + s->bytes < at + n ? s->offset + s->bytes : at + n;
    *from = begin - s->offset;
    return end > begin ? end - begin : 0;
}

/* Links whose places are in executables: pieces of a placed step, which has one micro-batch on its
 * way. What comes is written into its input; of what leaves the place is known when it is made. */
static void lend(rui_pipe_worker *w)
{
    for (uint32_t i = 0; i < 2 * w->stages.n_edges && w->seats.placed.n > 0; i++) {
        const ru_stage_edge *e = &w->stages.edges[i / 2];
        bool back = i % 2 == 1;
        uint32_t link = w->plan.edge[i / 2] + back;
        const rui_pipe_part *to = rui_pipe_own(w, back ? e->from : e->to);
        if (is_used(w, link)) {
            w->flows[link].lent = true;
            w->flows[link].at =
                to != NULL ? ru_exe_input(to->slot[0], back ? e->seed : e->in) : NULL;
        }
    }
}

ru_status rui_flows_open(rui_pipe_worker *w, ru_err *err)
{
    w->flows = RU_NEW(w->arena, rui_flow, w->n_links + 1);
    if (w->flows == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a stage");
    }
    uint32_t least = 1, most = 1, places = 0;
    for (uint32_t k = 0; k < w->stages.n; k++) {
        uint32_t n = rui_pipe_ahead(w, k);
        least = n > least ? n : least;
    }
    while (most < least) { /* numbers of pieces may begin again at 0 */
        most *= 2;
    }
    lend(w);
    for (uint32_t k = 0; k < w->n_links; k++) {
        if (!is_used(w, k)) {
            continue;
        }
        rui_flow *f = &w->flows[k];
        bool state = k >= w->plan.state && k < w->plan.fill;
        bool some = state && rui_pipe_pieces(w, k - w->plan.state) > 1;
        bool eval =
            k >= w->plan.eval.first[0] && k < w->plan.eval.first[1]; /* not the last batch */
        uint32_t ahead = k < w->plan.sums ? most : some || eval ? 2 : 1;
        places += ahead;
        if (places > RUI_PIPE_EVENTS_MAX / 2) {
            return RU_FAIL(err, RU_E_LIMIT,
                           "more than %d pieces would be on their way at %s %u; lower "
                           "train.accumulate, or cut where fewer values cross",
                           RUI_PIPE_EVENTS_MAX / 2, w->seats.called, place_at(w, w->seats.own));
        }
        int64_t bytes = bytes_of(w, k), place = (bytes + 63) / 64 * 64;
        *f = (rui_flow){.bytes = place,
                        .ahead = ahead,
                        .out = w->links[k].from == w->seats.own,
                        .lent = f->lent,
                        .at = f->lent ? f->at : aligned_alloc(64, (size_t)(place * ahead + 64)),
                        .busy = RU_NEW(w->arena, uint8_t, ahead)};
        if ((f->at == NULL && !f->lent) || f->busy == NULL) {
            return RU_FAIL(err, RU_E_MEM,
                           "not enough memory for %u pieces of %lld bytes between %ss %u and %u",
                           ahead, (long long)bytes, w->seats.called, place_at(w, w->links[k].from),
                           place_at(w, w->links[k].to));
        }
        memset(f->busy, f->out ? 0 : 1, ahead);
    }
    for (uint32_t k = 0; k < w->n_links; k++) {
        for (uint32_t i = 0; i < w->flows[k].ahead && !w->flows[k].out; i++) {
            rui_pipe_say(w, (rui_pipe_event){.word = RUI_PIPE_SAY_POST, .link = k, .number = i});
        }
    }
    return RU_OK;
}

int64_t rui_flows_bytes(const rui_pipe_worker *w, bool states)
{
    int64_t sum = 0; /* behind the states are those that are gone before the first step */
    uint32_t evals = w->plan.eval.first[0];
    uint32_t from = states ? evals : 0, to = states ? w->plan.fill : evals;
    for (uint32_t k = from; k < to; k++) {
        sum += w->flows[k].lent ? 0 : w->flows[k].bytes * w->flows[k].ahead;
    }
    return sum;
}

void rui_flow_drop(rui_pipe_worker *w, uint32_t link)
{
    free(w->flows[link].at);
    w->flows[link].at = NULL;
}

void rui_flows_close(rui_pipe_worker *w)
{
    for (uint32_t k = 0; k < w->n_links && w->flows != NULL; k++) {
        free(w->flows[k].lent ? NULL : w->flows[k].at);
    }
}

ru_span rui_flow_span(const rui_pipe_worker *w, uint32_t link, uint32_t number)
{
    const rui_flow *f = &w->flows[link];
    return (ru_span){.data = f->at + (int64_t)(number % f->ahead) * f->bytes,
                     .size_bytes = bytes_of(w, link)};
}

void rui_flow_moved(rui_pipe_worker *w, uint32_t link, uint32_t number)
{
    ru_mutex_lock(&w->lock);
    w->flows[link].busy[number % w->flows[link].ahead] = 0;
    ru_cond_broadcast(&w->changed);
    ru_mutex_unlock(&w->lock);
}

static void say_slow(const rui_pipe_worker *w, uint32_t link, int64_t waited_ns)
{
    const ru_pipe_link *l = &w->links[link];
    bool in = l->to == w->seats.own;
    ru_log(RU_LOG_INFO, "train", "waits", "%s %u has waited %.0f s for %s %u", w->seats.called,
           place_at(w, w->seats.own), (double)waited_ns * 1e-9, w->seats.called,
           place_at(w, in ? l->from : l->to));
}

/* Until the place is free, or full. */
static ru_status await(rui_pipe_worker *w, uint32_t link, uint32_t number)
{
    const rui_flow *f = &w->flows[link];
    ru_time begun = {0};
    ru_mutex_lock(&w->lock);
    while (f->busy[number % f->ahead] != 0 && !w->told.over) {
        begun = begun.ns == 0 ? ru_clock_now() : begun;
        if (!ru_cond_wait_for(&w->changed, &w->lock, SLOW_NS)) {
            say_slow(w, link, ru_time_since(ru_clock_now(), begun));
        }
    }
    bool over = w->told.over;
    ru_mutex_unlock(&w->lock);
    if (begun.ns != 0) {
        ru_time now = ru_clock_now();
        w->waited_ns += ru_time_since(now, begun);
        ru_rec_wait(w->t.recorder, w->t.names.sums, begun.ns, now.ns, w->links[link].label);
    }
    return over ? RU_E_CANCELLED : RU_OK;
}

ru_status rui_flow_place(rui_pipe_worker *w, uint32_t link, uint32_t number, void **place)
{
    ru_status st = await(w, link, number);
    *place = rui_flow_span(w, link, number).data;
    return st;
}

void rui_flow_go(rui_pipe_worker *w, uint32_t link, uint32_t number)
{
    rui_flow *f = &w->flows[link];
    ru_mutex_lock(&w->lock);
    f->busy[number % f->ahead] = 1;
    ru_mutex_unlock(&w->lock);
    rui_pipe_say(w, (rui_pipe_event){.word = f->out ? RUI_PIPE_SAY_SEND : RUI_PIPE_SAY_POST,
                                     .link = link,
                                     .number = f->out ? number : number + f->ahead});
}

ru_status rui_flow_put(rui_pipe_worker *w, uint32_t link, uint32_t number, void *data)
{
    rui_flow *f = &w->flows[link];
    ru_status st = await(w, link, number);
    if (st == RU_OK) {
        if (f->lent) {
            f->at = data;
        } else {
            memcpy(rui_flow_span(w, link, number).data, data, (size_t)bytes_of(w, link));
        }
        rui_flow_go(w, link, number);
    }
    return st;
}

ru_status rui_flows_sent(rui_pipe_worker *w, const rui_pipe_part *part)
{
    for (uint32_t i = 0; i < 2 * w->stages.n_edges && w->seats.placed.n > 0; i++) {
        bool back = i % 2 == 1;
        uint32_t link = w->plan.edge[i / 2] + back;
        bool is = part == NULL || (!back && w->stages.edges[i / 2].from == part->stage);
        bool lent = w->flows[link].lent && w->flows[link].out;
        RU_TRY(is && lent ? await(w, link, 0) : RU_OK);
    }
    return RU_OK;
}

ru_status rui_flows_release(rui_pipe_worker *w)
{
    RU_TRY(rui_flows_sent(w, w->at)); /* what is only passed on stands in an input */
    for (uint32_t i = 0; i < 2 * w->stages.n_edges && w->seats.placed.n > 0; i++) {
        const ru_stage_edge *x = &w->stages.edges[i / 2];
        bool back = i % 2 == 1;
        uint32_t number, link = rui_pipe_link_of(w, i / 2, back, &number);
        bool lent = w->flows[link].lent && !w->flows[link].out;
        if ((back ? x->from : x->to) == w->at->stage && lent) {
            rui_flow_go(w, link, number);
        }
    }
    return RU_OK;
}

/* -- states of this worker --------------------------------------------------------------------- */

/* Piece `k` of the states of a stage, at `to`. */
static ru_status read_piece(rui_pipe_worker *w, uint32_t stage, uint32_t k, uint8_t *to,
                            ru_err *err)
{
    int64_t at = (int64_t)k * RU_STAGE_PIECE_BYTES, n = rui_pipe_piece_bytes(w, stage, k);
    memset(to, 0, (size_t)w->plan.bytes[w->plan.state + stage]); /* also gaps, and the end */
    for (uint32_t i = 0; i < w->n_states; i++) {
        const rui_pipe_state *s = &w->states[i];
        int64_t from = 0, bytes = s->stage == stage ? rui_pipe_overlap(s, at, n, &from) : 0;
        RU_TRY(bytes > 0 ? ru_exe_state_read_part(rui_pipe_own(w, stage)->home, s->value, from,
                                                  bytes, to + s->offset + from - at, err)
                         : RU_OK);
    }
    return RU_OK;
}

ru_status rui_pipe_send_states(rui_pipe_worker *w, uint32_t flags, ru_err *err)
{
    void *place;
    if ((flags & (RUI_PIPE_SAVE | RUI_PIPE_FAR)) == 0 || !rui_pipe_gives(w)) {
        return RU_OK;
    }
    for (uint32_t stage = 0; stage < w->stages.n; stage++) {
        uint32_t link = w->plan.state + stage, pieces = rui_pipe_pieces(w, stage);
        for (uint32_t k = 0; k < pieces && rui_pipe_own(w, stage) != NULL; k++) {
            uint32_t number = w->counts.saves * pieces + k;
            RU_TRY(rui_flow_place(w, link, number, &place));
            RU_TRY(read_piece(w, stage, k, place, err));
            rui_flow_go(w, link, number);
        }
    }
    w->counts.saves++;
    return RU_OK;
}
