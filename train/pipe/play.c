#include "train/pipe/play.h"

#include <stddef.h>

enum {
    STEPS = 4,   /* the last of them counts: it begins as all further ones do */
    ROUNDS = 12, /* minibatches of a schedule that flows on, for each stage; the first and the last
                    two of them fill and drain */
};

#define NOT_YET (-1)

typedef struct player {
    const ru_pipe_play_in *in;
    uint32_t on;      /* it flows on: micro-batches of a minibatch; 0: it drains */
    uint32_t steps;   /* 1 then */
    int64_t *back_ns; /* [micro] end of their parts back of the last stage */
    ru_pipe_play *out;
    ru_pipe_act *order; /* [n, 2 micro] */
    uint32_t *next;     /* [n] part of its list */
    uint32_t *step;     /* [n] */
    int64_t *free_ns;   /* [n] the worker */
    int64_t *sent_ns;   /* [n] ... its link */
    int64_t *there_ns;  /* [n_links, micro] arrivals of the receiver's step; NOT_YET. No sender is a
                           step ahead: it waits for what comes back */
    int64_t decided_ns[STEPS], end_ns[STEPS];
} player;

static bool is_back(const ru_pipe_play_link *l)
{
    return l->from > l->to;
}

static int64_t *arrival(const player *p, uint32_t link, uint32_t micro)
{
    return &p->there_ns[(uint64_t)link * p->in->micro + micro];
}

/* When the last piece of a part is there; NOT_YET: some are not. *last: its link; n_links: none. */
static int64_t inputs(const player *p, uint32_t stage, const ru_pipe_act *a, uint32_t *last)
{
    int64_t at = 0;
    *last = p->in->n_links;
    for (uint32_t k = 0; k < p->in->n_links; k++) {
        const ru_pipe_play_link *l = &p->in->links[k];
        if (l->to == stage && is_back(l) == a->back) {
            int64_t x = *arrival(p, k, a->micro);
            if (x == NOT_YET) {
                return NOT_YET;
            }
            *last = x >= at ? k : *last;
            at = x > at ? x : at;
        }
    }
    return at;
}

/* What counts of a part: all of the last step; of one that flows on, minibatches in the middle. */
static void note(player *p, uint32_t stage, const ru_pipe_act *a, int64_t took, int64_t wait,
                 uint32_t last)
{
    const ru_pipe_play_in *in = p->in;
    uint32_t ends = 2 * in->n * p->on; /* fills and drains */
    bool counts = p->on > 0 ? a->micro >= ends && a->micro < in->micro - ends
                            : p->step[stage] + 1 == p->steps;
    if (counts) {
        p->out->busy_ns[stage] += took;
        if (last < in->n_links) {
            uint32_t every = p->on > 0 ? p->on : in->micro;
            p->out->wait_ns[(uint64_t)last * every + a->micro % every] += wait;
        }
    }
}

static void leave(player *p, uint32_t stage, const ru_pipe_act *a)
{
    for (uint32_t k = 0; k < p->in->n_links; k++) {
        const ru_pipe_play_link *l = &p->in->links[k];
        if (l->from == stage && is_back(l) == a->back) {
            int64_t ready = p->free_ns[stage];
            int64_t from = ready > p->sent_ns[stage] ? ready : p->sent_ns[stage];
            p->sent_ns[stage] = from + l->xfer_ns;
            *arrival(p, k, a->micro) = from + l->xfer_ns;
        }
    }
}

/* The next part of a stage; false: it waits. */
static bool part(player *p, uint32_t stage)
{
    const ru_pipe_play_in *in = p->in;
    const ru_pipe_act *a = &p->order[(uint64_t)stage * 2 * in->micro + p->next[stage]];
    uint32_t last;
    int64_t at = inputs(p, stage, a, &last);
    if (at == NOT_YET) {
        return false;
    }
    int64_t wait = at > p->free_ns[stage] ? at - p->free_ns[stage] : 0;
    int64_t took = a->back ? in->backward_ns[stage] : in->forward_ns[stage];
    p->free_ns[stage] += wait + took;
    bool updates = p->on > 0 && a->back && (a->micro + 1) % p->on == 0;
    int64_t update_ns = updates ? in->update_ns[stage] : 0;
    note(p, stage, a, took + update_ns, wait, last);
    if (!a->back && a->micro + 1 == in->micro && stage + 1 == in->n) {
        p->decided_ns[p->step[stage]] = p->free_ns[stage];
    }
    leave(p, stage, a);
    p->free_ns[stage] += update_ns;
    if (a->back && stage + 1 == in->n) {
        p->back_ns[a->micro] = p->free_ns[stage];
    }
    p->next[stage]++;
    return true;
}

/* All parts of the step are done, so the last forward part is, too: none begins backward before. */
static void update(player *p, uint32_t stage)
{
    uint32_t s = p->step[stage]++, m = p->in->micro;
    int64_t from = p->free_ns[stage] > p->decided_ns[s] ? p->free_ns[stage] : p->decided_ns[s];
    int64_t took = p->on > 0 ? 0 : p->in->update_ns[stage];
    p->free_ns[stage] = from + took;
    p->end_ns[s] = stage == 0 ? p->free_ns[0] : p->end_ns[s];
    p->out->busy_ns[stage] += s + 1 == p->steps ? took : 0;
    p->next[stage] = 0;
    for (uint32_t k = 0; k < p->in->n_links; k++) {
        for (uint32_t j = 0; p->in->links[k].to == stage && j < m; j++) {
            *arrival(p, k, j) = NOT_YET;
        }
    }
}

static void play(player *p)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t k = 0; k < p->in->n; k++) {
            while (p->step[k] < p->steps && part(p, k)) {
                moved = true;
                if (p->next[k] == 2 * p->in->micro) {
                    update(p, k);
                }
            }
        }
    }
    for (uint32_t k = 0; k < p->in->n; k++) {
        RU_CHECK(p->step[k] == p->steps); /* the lists wait for nothing that comes later */
    }
    if (p->on == 0) {
        p->out->step_ns = p->end_ns[STEPS - 1] - p->end_ns[STEPS - 2];
        return;
    }
    uint32_t first = 2 * p->in->n * p->on, end = p->in->micro - first, n = (end - first) / p->on;
    p->out->step_ns = (p->back_ns[end - 1] - p->back_ns[first - 1]) / n;
    for (uint32_t k = 0; k < p->in->n; k++) {
        p->out->busy_ns[k] /= n;
    }
    for (uint32_t k = 0; k < p->in->n_links * p->on; k++) {
        p->out->wait_ns[k] /= n;
    }
}

ru_status ru_pipe_play_step(const ru_pipe_play_in *asked, ru_arena *arena, ru_pipe_play *out,
                            ru_err *err)
{
    ru_pipe_play_in one = *asked;
    const ru_pipe_play_in *in = &one;
    bool on = ru_pipe_flows_on(asked->schedule);
    RU_CHECK(in->n > 0 && in->micro > 0);
    if (on) { /* the list of one long step that drains at its end is that of 1F1B */
        one.micro = ROUNDS * one.n * asked->micro;
        one.schedule = RU_PIPE_SCHEDULE_FLUSH;
    }
    int64_t pieces = (int64_t)in->n_links * in->micro, n = in->n;
    ru_pipe_play o = {.busy_ns = RU_NEW(arena, int64_t, n),
                      .wait_ns = RU_NEW(arena, int64_t, pieces + 1)};
    player p = {.in = in,
                .on = on ? asked->micro : 0,
                .steps = on ? 1 : STEPS,
                .back_ns = RU_NEW(arena, int64_t, in->micro),
                .out = &o,
                .order = RU_NEW(arena, ru_pipe_act, n * 2 * in->micro),
                .next = RU_NEW(arena, uint32_t, n),
                .step = RU_NEW(arena, uint32_t, n),
                .free_ns = RU_NEW(arena, int64_t, n),
                .sent_ns = RU_NEW(arena, int64_t, n),
                .there_ns = RU_NEW(arena, int64_t, pieces + 1)};
    if (o.busy_ns == NULL || o.wait_ns == NULL || p.order == NULL || p.next == NULL ||
        p.step == NULL || p.back_ns == NULL || p.free_ns == NULL || p.sent_ns == NULL ||
        p.there_ns == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the step of a pipeline is full");
    }
    for (int64_t k = 0; k < pieces; k++) {
        p.there_ns[k] = NOT_YET;
    }
    const ru_pipe_shape shape = {.schedule = in->schedule, .n = in->n, .micro = in->micro};
    for (uint32_t k = 0; k < in->n; k++) {
        ru_pipe_order(&shape, k, 0, p.order + (uint64_t)k * 2 * in->micro);
    }
    play(&p);
    *out = o;
    return RU_OK;
}
