/* State for joiners: pieces of every state tensor, a few a step.
 *
 * The pieces of all tensors are numbered; a joiner holds the first `held` of them, each as of the
 * last committed step. In a step everybody knows from the view and the commits since which pieces
 * come next and which full member sends each: no message asks for anything. */
#include <stddef.h>

#include "base/log.h"
#include "train/elastic/elastic_impl.h"

/* A group's tensors: sizes, and how many cuts of the largest. */
typedef struct group {
    uint32_t first, n;  /* of `member` */
    int64_t most_bytes; /* of a tensor */
    int64_t cuts;       /* 1: whole tensors, their elements do not match */
} group;

static bool same_group(const ru_elastic *e, uint32_t a, uint32_t b)
{
    return a == b || (e->opt.state_group != NULL && e->opt.state_group[a] == e->opt.state_group[b]);
}

/* The group that begins with tensor k; n 0: k belongs to an earlier one. */
static group group_of(const ru_elastic *e, uint32_t k)
{
    group g = {.first = k, .cuts = 1};
    for (uint32_t i = 0; i < k && e->opt.state_group != NULL; i++) {
        if (same_group(e, i, k)) {
            return g;
        }
    }
    for (uint32_t i = k; i < e->opt.n_state; i++) {
        bool in = same_group(e, k, i);
        g.n += in ? 1 : 0;
        g.most_bytes =
            in && e->opt.state_bytes[i] > g.most_bytes ? e->opt.state_bytes[i] : g.most_bytes;
        if (e->opt.state_group == NULL) {
            break;
        }
    }
    g.cuts = (g.most_bytes + e->opt.piece_bytes - 1) / e->opt.piece_bytes;
    for (uint32_t i = k; i < e->opt.n_state; i++) { /* sizes 1, 1/2, 1/4, ...: cut alike */
        int64_t bytes = e->opt.state_bytes[i];
        if (g.n > 1 && same_group(e, k, i) &&
            (bytes == 0 || g.most_bytes % bytes != 0 ||
             e->opt.piece_bytes % (g.most_bytes / bytes) != 0)) {
            g.cuts = 1;
        }
    }
    return g;
}

/* Pieces of one cut of a group: of every tensor its part, or all of it by pieces. */
static uint64_t cut_group(ru_elastic *e, const group *g, int64_t cut, rui_el_piece *into)
{
    uint64_t n = 0;
    for (uint32_t i = g->first; i < e->opt.n_state; i++) {
        int64_t bytes = e->opt.state_bytes[i];
        if (!same_group(e, g->first, i) || bytes == 0) {
            continue;
        }
        int64_t each = e->opt.piece_bytes / (g->cuts > 1 ? g->most_bytes / bytes : 1);
        int64_t from = g->cuts > 1 ? cut * each : 0;
        int64_t to = g->cuts > 1 && from + each < bytes ? from + each : bytes;
        for (int64_t at = from; at < to; at += each, n++) {
            if (into != NULL) {
                into[n] = (rui_el_piece){.tensor = i,
                                         .more = true,
                                         .offset = at,
                                         .size = to - at < each ? to - at : each};
            }
        }
    }
    if (into != NULL && n > 0) {
        into[n - 1].more = false;
    }
    return n;
}

static ru_status cut_all(ru_elastic *e, uint64_t *n_pieces, rui_el_piece *into, ru_err *err)
{
    uint64_t n = 0;
    for (uint32_t k = 0; k < e->opt.n_state; k++) {
        group g = group_of(e, k);
        for (int64_t cut = 0; g.n > 0 && cut < g.cuts; cut++) {
            uint64_t of_cut = cut_group(e, &g, cut, into == NULL ? NULL : into + n);
            n += of_cut;
            if (n > UINT32_MAX / 2 || (g.n > 1 && of_cut > RUI_EL_XFERS_MAX / 4)) {
                return RU_FAIL(err, RU_E_LIMIT, "state tensor %u is too large to move to a joiner",
                               k);
            }
        }
    }
    *n_pieces = n;
    return RU_OK;
}

static ru_status pieces(ru_elastic *e, ru_err *err)
{
    uint64_t n = 0;
    RU_TRY(cut_all(e, &n, NULL, err));
    e->mover.pieces = RU_NEW(e->arena, rui_el_piece, n + 1);
    if (e->mover.pieces == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %llu pieces of state", (unsigned long long)n);
    }
    e->mover.n_pieces = (uint32_t)n;
    return cut_all(e, &n, e->mover.pieces, err);
}

ru_status rui_el_state_open(ru_elastic *e, ru_err *err)
{
    RU_TRY(pieces(e, err));
    rui_el_mover *m = &e->mover; /* touched when used */
    m->in = ru_arena_alloc(e->arena, RUI_EL_XFERS_MAX * sizeof *m->in, 8);
    m->out = ru_arena_alloc(e->arena, RUI_EL_XFERS_MAX * sizeof *m->out, 8);
    if (m->in == NULL || m->out == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for state on its way to joiners");
    }
    return RU_OK;
}

uint32_t rui_el_pieces_now(const ru_elastic *e, uint32_t held)
{
    int64_t bytes = 0, first = 0;
    uint32_t n = 0, whole = 0; /* whole: up to the last piece that needs no more */
    while (held + n < e->mover.n_pieces && n < RUI_EL_XFERS_MAX / 4) {
        bytes += e->mover.pieces[held + n].size;
        if (whole > 0 && bytes > e->v.budget_bytes) {
            break;
        }
        whole = e->mover.pieces[held + n].more ? whole : n + 1;
        first = first > 0 || whole == 0 ? first : bytes;
        n++;
    }
    /* What is larger than the budget of a step waits until the steps between have as much. */
    int64_t every = first > e->v.budget_bytes ? (first - 1) / e->v.budget_bytes + 1 : 1;
    return (e->committed - e->v.start) % every == 0 ? whole : 0;
}

/* Which full member sends piece p: they take turns. */
static uint32_t sender_of(const ru_elastic *e, uint32_t p)
{
    uint32_t full = 0;
    for (uint32_t i = 0; i < e->v.n; i++) {
        full += e->v.at[i].full ? 1 : 0;
    }
    RU_CHECK(full > 0);
    uint32_t turn = p % full;
    for (uint32_t i = 0; i < e->v.n; i++) {
        if (e->v.at[i].full && turn-- == 0) {
            return i;
        }
    }
    return 0;
}

/* Stream of the k-th piece of this step to member `to`: unlike any of the group's buckets. */
static ru_stream_name name_of(const ru_elastic *e, uint32_t to, uint32_t k)
{
    return (ru_stream_name){.stream = (uint64_t)(e->v.epoch & 0xffffff) << 40 |
                                      UINT64_C(0xffff) << 24 | (uint64_t)(to & 0xfff) << 12 |
                                      (uint64_t)(k & 0xfff),
                            .iter = (uint32_t)e->step};
}

static rui_el_xfer *free_out(ru_elastic *e)
{
    uint32_t i = 0;
    while (i < e->mover.top_out && e->mover.out[i].used) {
        i++;
    }
    if (i == RUI_EL_XFERS_MAX) {
        return NULL;
    }
    e->mover.top_out = i < e->mover.top_out ? e->mover.top_out : i + 1;
    e->mover.out[i] = (rui_el_xfer){0};
    return &e->mover.out[i];
}

static void piece_release(ru_elastic *e, rui_el_xfer *x)
{
    x->used = false;
    e->mover.n_out--;
    e->opt.device.ops->state_release(e->opt.device.self, x->cookie);
}

static void send_piece(ru_elastic *e, uint32_t to, uint32_t k, ru_time now, ru_effects *fx)
{
    const rui_el_piece *p = &e->mover.pieces[e->v.at[to].held + k];
    const ru_elastic_device_ops *ops = e->opt.device.ops;
    rui_el_xfer *x = free_out(e);
    if (x == NULL) {
        return; /* the joiner is not DONE without it: the watch names it; cannot happen in budget */
    }
    ru_span span;
    ru_status st =
        ops->state_copy(e->opt.device.self, p->tensor, p->offset, p->size, &span, &x->cookie);
    if (st == RU_OK) {
        x->used = true;
        e->mover.n_out++;
        ru_chan_send_in in = {.to = e->v.at[to].node,
                              .name = name_of(e, to, k),
                              .class = RU_CLASS_BACKGROUND,
                              .spans = &span,
                              .n_spans = 1,
                              .cookie =
                                  RUI_EL_COOKIE | UINT64_C(1) << 32 | (uint32_t)(x - e->mover.out)};
        st = ru_chan_send(e->opt.chan, &in, now, &x->id);
        if (st != RU_OK) {
            piece_release(e, x);
        }
    }
    if (st != RU_OK) {
        ru_fx_log(fx, RU_LOG_WARN, "could not send state to worker %u: %s", e->v.at[to].number,
                  ru_status_name(st));
        if (st == RU_E_PEER) {
            ru_member_suspect(e->opt.member, e->v.at[to].node, true, now, fx);
        } else {
            rui_el_broken(e, now); /* it cannot be done with this step */
        }
    }
}

static void take_piece(ru_elastic *e, uint32_t k, ru_time now, ru_effects *fx)
{
    const rui_el_piece *p = &e->mover.pieces[e->v.at[e->v.me].held + k];
    const ru_elastic_device_ops *ops = e->opt.device.ops;
    rui_el_xfer *x = &e->mover.in[k];
    *x = (rui_el_xfer){0};
    ru_span span;
    ru_status st =
        ops->state_place(e->opt.device.self, p->tensor, p->offset, p->size, &span, &x->cookie);
    if (st == RU_OK) {
        x->used = true;
        e->mover.in_left++;
        ru_chan_post_in in = {.from = e->v.at[sender_of(e, e->v.at[e->v.me].held + k)].node,
                              .name = name_of(e, e->v.me, k),
                              .spans = &span,
                              .n_spans = 1,
                              .cookie = RUI_EL_COOKIE | k};
        st = ru_chan_post(e->opt.chan, &in, now, &x->id);
    }
    if (st != RU_OK) {
        ru_fx_log(fx, RU_LOG_ERROR, "cannot receive the state from the other workers: %s",
                  ru_status_name(st));
        ru_member_leave(e->opt.member, now, fx);
        rui_el_end(e, st, "this worker has no memory for the state of the job", now, fx);
    }
}

void rui_el_state_begin(ru_elastic *e, ru_time now, ru_effects *fx)
{
    e->mover.n_in = e->mover.in_left = 0;
    for (uint32_t i = 0; i < e->v.n && e->v.takers > 0; i++) {
        uint32_t n = rui_el_pieces_now(e, e->v.at[i].held);
        for (uint32_t k = 0; k < n && e->phase == RUI_EL_STEP; k++) {
            if (i == e->v.me) {
                e->mover.n_in++;
                take_piece(e, k, now, fx);
            } else if (sender_of(e, e->v.at[i].held + k) == e->v.me) {
                send_piece(e, i, k, now, fx);
            }
        }
    }
}

void rui_el_state_commit(ru_elastic *e)
{
    for (uint32_t k = 0; k < e->mover.n_in; k++) {
        RU_CHECK(e->mover.in[k].used && e->mover.in[k].arrived);
        e->opt.device.ops->state_placed(e->opt.device.self, e->mover.in[k].cookie, true);
        e->mover.in[k].used = false;
    }
    e->mover.n_in = 0;
    for (uint32_t i = 0, n = e->v.takers > 0 ? e->v.n : 0; i < n; i++) {
        rui_el_member *to = &e->v.at[i];
        bool takes = to->held < e->mover.n_pieces;
        to->held += rui_el_pieces_now(e, to->held);
        e->v.takers -= takes && to->held == e->mover.n_pieces ? 1 : 0;
    }
    e->mover.has_state = e->v.at[e->v.me].held == e->mover.n_pieces;
}

void rui_el_state_close(ru_elastic *e)
{
    for (uint32_t k = 0; e->mover.n_out > 0; k++) {
        if (e->mover.out[k].used) {
            piece_release(e, &e->mover.out[k]);
        }
    }
}

void rui_el_state_drop(ru_elastic *e, ru_time now)
{
    for (uint32_t k = 0; k < e->mover.n_in; k++) {
        if (e->mover.in[k].used) {
            ru_chan_unpost(e->opt.chan, e->mover.in[k].id, now);
            e->opt.device.ops->state_placed(e->opt.device.self, e->mover.in[k].cookie, false);
            e->mover.in[k].used = false;
        }
    }
    e->mover.n_in = e->mover.in_left = 0;
    for (uint32_t k = 0, left = e->mover.n_out; left > 0; k++) {
        if (e->mover.out[k].used) {
            left--;
            /* Released by `failed` or `sent`, perhaps later: the link may read the piece still. */
            ru_chan_cancel(e->opt.chan, e->mover.out[k].id, now);
        }
    }
}

/* -- upcalls of the channel -----------------------------------------------------------------------
 */

bool rui_el_state_owns(uint64_t cookie)
{
    return (cookie & (UINT64_C(0xff) << 56)) == RUI_EL_COOKIE;
}

static rui_el_xfer *piece_of(ru_elastic *e, uint64_t cookie, bool *out)
{
    *out = (cookie >> 32 & 1) != 0;
    uint32_t k = (uint32_t)cookie;
    if (k >= (*out ? e->mover.top_out : e->mover.n_in)) {
        return NULL;
    }
    rui_el_xfer *x = *out ? &e->mover.out[k] : &e->mover.in[k];
    return x->used ? x : NULL;
}

void rui_el_state_sent(ru_elastic *e, uint64_t cookie)
{
    bool out;
    rui_el_xfer *x = piece_of(e, cookie, &out);
    if (x != NULL && out) {
        piece_release(e, x);
    }
}

void rui_el_state_arrived(ru_elastic *e, uint64_t cookie, ru_time now, ru_effects *fx)
{
    bool out;
    rui_el_xfer *x = piece_of(e, cookie, &out);
    if (x != NULL && !out && !x->arrived) {
        x->arrived = true;
        e->mover.in_left--;
        rui_el_step_check(e, now, fx);
    }
}

void rui_el_state_failed(ru_elastic *e, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    bool out;
    rui_el_xfer *x = piece_of(e, cookie, &out);
    if (x != NULL && out) {
        piece_release(e, x);
    }
    if (x != NULL && why != RU_E_CANCELLED && e->phase == RUI_EL_STEP) { /* the joiner misses it */
        rui_el_redo(e, now, fx);
    }
}
