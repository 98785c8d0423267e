/* Pieces between stages, at one end: places in memory, used in turn.
 *
 *   out   free --copy, SEND--> busy --sent--> free
 *   in    busy (posted) --arrived--> there --read, POST of the piece `ahead` later--> busy
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
    for (uint32_t k = 0; k < w->n_links; k++) {
        if (!is_used(w, k)) {
            continue;
        }
        rui_flow *f = &w->flows[k];
        uint32_t ahead = k < w->plan.sums ? most : 1;
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
                        .at = aligned_alloc(64, (size_t)(place * ahead + 64)),
                        .busy = RU_NEW(w->arena, uint8_t, ahead)};
        if (f->at == NULL || f->busy == NULL) {
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
    uint32_t from = states ? w->plan.state : 0, to = states ? w->plan.fill : w->plan.state;
    for (uint32_t k = from; k < to; k++) {
        sum += w->flows[k].bytes * w->flows[k].ahead;
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
        free(w->flows[k].at);
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

ru_status rui_flow_put(rui_pipe_worker *w, uint32_t link, uint32_t number, const void *data)
{
    void *place;
    ru_status st = rui_flow_place(w, link, number, &place);
    if (st == RU_OK) {
        memcpy(place, data, (size_t)bytes_of(w, link));
        rui_flow_go(w, link, number);
    }
    return st;
}
