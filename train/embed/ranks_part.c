#include "train/embed/ranks_part.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "comm/member/among.h"
#include "plan/net/coll.h"

enum {
    OPENED = RU_NODE_WHAT_FIRST, /* to rank 0: my buckets are open */
    GO,                          /* to all: everybody's are */
    LOST,                        /* to all, a byte: the rank that this one goes for */
};

struct rui_piece {
    rui_piece *next;
    rui_ranks_call of;
    int64_t at, size_bytes; /* of every block */
};

struct rui_bucket {
    rui_piece *first, **last;
    ru_span spans[RUI_RANKS_SPANS_MAX];
    uint8_t *pad; /* of the smallest size: [blocks][smallest] */
    uint32_t iter;
    bool runs;
};

static void end(rui_ranks_part *g, ru_status st, const char *text, ru_time now)
{
    if (!g->ended) {
        g->ended = true;
        g->ops->ended(g->self, st, text, now);
    }
}

static void lost(rui_ranks_part *g, ru_node_id node, ru_time now)
{
    for (uint32_t r = 0; r < g->n_ranks; r++) {
        if (ru_node_is(g->ranks[r].node, node)) {
            char text[160 + RU_MEMBER_ADDRESS_MAX];
            (void)snprintf(text, sizeof text, "rank %u (%s) has left the group or was lost", r,
                           g->ranks[r].address);
            g->gone = g->ended ? g->gone : r + 1;
            end(g, RU_E_PEER, text, now);
            return;
        }
    }
}

/* -- pieces --------------------------------------------------------------------------------------
 */

static uint32_t blocks_of(const rui_ranks_part *g, ru_coll_op op)
{
    return op == RU_COLL_ALL_GATHER || op == RU_COLL_REDUCE_SCATTER ? g->n_ranks : 1;
}

/* Where the piece lies; what lacks to the bucket's size is padded by zeros. */
static uint32_t spans_of(rui_ranks_part *g, rui_bucket *b, const rui_piece *p, int64_t size_bytes)
{
    uint32_t n = 0;
    int64_t pad = size_bytes - p->size_bytes;
    for (uint32_t k = 0; k < blocks_of(g, p->of.op); k++) {
        if (p->size_bytes > 0) {
            b->spans[n++] = (ru_span){.data = p->of.data + k * p->of.n_bytes + p->at,
                                      .size_bytes = p->size_bytes};
        }
        if (pad > 0) {
            memset(b->pad + k * RUI_RANKS_LEAST, 0, (size_t)pad);
            b->spans[n++] = (ru_span){.data = b->pad + k * RUI_RANKS_LEAST, .size_bytes = pad};
        }
    }
    return n;
}

static void next_of(rui_ranks_part *g, uint32_t k, ru_time now)
{
    rui_bucket *b = &g->buckets[k];
    ru_err err;
    if (b->runs || b->first == NULL || g->ended) {
        return;
    }
    b->runs = true;
    uint32_t n = spans_of(g, b, b->first, g->table.at[k].size_bytes);
    ru_status st = ru_coll_begin(g->coll, k, b->iter++, b->spans, n, (ru_time){0}, now, &err);
    if (st != RU_OK) {
        end(g, st, err.text, now);
    }
}

static void coll_done(void *self, uint32_t k, uint32_t iter, ru_time now)
{
    rui_ranks_part *g = self;
    rui_bucket *b = &g->buckets[k];
    rui_piece *p = b->first;
    (void)iter;
    b->runs = false;
    b->first = p->next;
    if (b->first == NULL) {
        b->last = &b->first;
    }
    g->ops->done(g->self, p->of.call);
    p->next = g->spare;
    g->spare = p;
    next_of(g, k, now);
}

static void coll_failed(void *self, ru_node_id peer, ru_status why, ru_time now)
{
    (void)why;
    lost(self, peer, now);
}

static bool put(rui_ranks_part *g, const rui_ranks_call *t, const rui_ranks_piece *cut, ru_time now)
{
    rui_piece *p = g->spare;
    if (p != NULL) {
        g->spare = p->next;
    } else if ((p = RU_NEW(g->arena, rui_piece, 1)) == NULL) {
        end(g, RU_E_MEM, "no memory for the pieces of a collective", now);
        return false;
    }
    uint32_t first, n;
    rui_ranks_kind kind = rui_ranks_kind_of(t->op, t->dtype);
    rui_ranks_find(kind, t->root, cut->size, &first, &n);
    uint32_t k = first + g->turn[kind][cut->size]++ % n;
    rui_bucket *b = &g->buckets[k];
    *p = (rui_piece){.of = *t, .at = cut->at, .size_bytes = cut->size_bytes};
    *b->last = p;
    b->last = &p->next;
    next_of(g, k, now);
    return true;
}

static void begin(rui_ranks_part *g, const rui_ranks_call *t, ru_time now)
{
    rui_ranks_piece cut[RUI_RANKS_CUT_MAX];
    for (int64_t at = 0; at < t->n_bytes || at == 0;) {
        uint32_t n = rui_ranks_cut(at, t->n_bytes, cut);
        for (uint32_t k = 0; k < n; k++) {
            if (g->ended || !put(g, t, &cut[k], now)) {
                return;
            }
        }
        at = cut[n - 1].at + cut[n - 1].size_bytes;
        if (t->n_bytes == 0) {
            return;
        }
    }
}

void rui_ranks_part_begin(rui_ranks_part *g, const rui_ranks_call *t, ru_time now)
{
    if (g->met) {
        begin(g, t, now);
    } else {
        g->early[g->n_early++] = *t;
    }
}

/* -- meeting -------------------------------------------------------------------------------------
 */

static ru_status open_buckets(rui_ranks_part *g, const ru_view *v, uint32_t me, ru_err *err)
{
    uint32_t n = g->table.n;
    ru_node_id *nodes = RU_NEW(g->arena, ru_node_id, v->n);
    ru_coll_bucket *b = RU_NEW(g->arena, ru_coll_bucket, n);
    const ru_coll_schedule **s = RU_NEW(g->arena, const ru_coll_schedule *, n);
    g->ranks = RU_NEW(g->arena, ru_member_info, v->n);
    if (nodes == NULL || b == NULL || s == NULL || g->ranks == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a group of %u ranks", v->n);
    }
    for (uint32_t r = 0; r < v->n; r++) {
        nodes[r] = v->at[r].node;
        g->ranks[r] = v->at[r];
    }
    for (uint32_t k = 0; k < n; k++) {
        b[k] = rui_ranks_bucket(&g->table, k);
        const ru_coll_in in = {
            .op = b[k].op, .algo = b[k].algo, .n_ranks = v->n, .root = b[k].root};
        ru_coll_schedule *own = RU_NEW(g->arena, ru_coll_schedule, 1);
        if (own == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for a group of %u ranks", v->n);
        }
        RU_TRY(ru_plan_coll_rank(&in, me, g->arena, own, err));
        s[k] = own;
    }
    const ru_coll_options opt = {.chan = ru_node_chan(g->node),
                                 .nodes = nodes,
                                 .n_ranks = v->n,
                                 .rank = me,
                                 .epoch = v->epoch,
                                 .buckets = b,
                                 .schedules = s,
                                 .n_buckets = n,
                                 .spans_max = RUI_RANKS_SPANS_MAX};
    const ru_coll_user user = {.self = g, .done = coll_done, .failed = coll_failed};
    return ru_coll_open(&opt, &user, g->arena, &g->coll, err);
}

static void meet(rui_ranks_part *g, ru_time now)
{
    g->met = true;
    g->ops->met(g->self);
    for (uint32_t k = 0; k < g->n_early; k++) {
        begin(g, &g->early[k], now);
    }
    g->n_early = 0;
}

static void opened(rui_ranks_part *g, ru_effects *fx, ru_time now)
{
    const ru_view *v = ru_member_view(ru_node_member(g->node));
    g->n_opened++;
    for (uint32_t r = 1; g->n_opened == v->n && r < v->n; r++) {
        ru_fx_send(fx, v->at[r].node, GO, NULL, 0);
    }
    if (g->n_opened == v->n) {
        meet(g, now);
    }
}

static void viewed(rui_ranks_part *g, ru_effects *fx, ru_time now)
{
    const ru_view *v = ru_member_view(ru_node_member(g->node));
    uint32_t me = 0;
    ru_err err;
    for (uint32_t r = 0; g->coll != NULL && r < g->n_ranks; r++) {
        if (ru_member_among(v->at, v->n, g->ranks[r].node) == NULL) {
            lost(g, g->ranks[r].node, now);
        }
    }
    if (g->coll != NULL || v->n != g->n_ranks) {
        return;
    }
    while (me < v->n && !ru_node_is(v->at[me].node, g->id)) {
        me++;
    }
    ru_status st = me == g->rank
                       ? open_buckets(g, v, me, &err)
                       : RU_FAIL(&err, RU_E_CONFIG, "two processes of the group have the rank %u",
                                 g->rank < me ? g->rank : me);
    if (st != RU_OK) {
        end(g, st, err.text, now);
    } else if (me == 0) {
        opened(g, fx, now);
    } else {
        ru_fx_send(fx, v->at[0].node, OPENED, NULL, 0);
    }
}

/* Too few may be left to decide who is gone, but without any of them the group is over. */
static void leaderless(rui_ranks_part *g, bool led, ru_time now)
{
    const ru_member *m = ru_node_member(g->node);
    for (uint32_t r = 0; g->coll != NULL && r < g->n_ranks; r++) {
        ru_node_id node = g->ranks[r].node; /* only a leader hears all */
        if ((led || ru_node_is(node, g->lead)) &&
            ru_member_silent_ns(m, node, now) >= g->silent_ns) {
            lost(g, node, now);
        }
    }
}

/* The leader: nobody is left out, nobody is added later. */
static void gather(rui_ranks_part *g, ru_effects *fx, ru_time now)
{
    ru_member *m = ru_node_member(g->node);
    ru_member_wanted w;
    ru_node_id nodes[RU_RANKS_RANKS_MAX];
    ru_member_wanted_get(m, &w);
    bool all = g->coll == NULL ? w.n == g->n_ranks : w.n_dead + w.n_leaving > 0;
    for (uint32_t k = 0; all && k < w.n && k < RU_RANKS_RANKS_MAX; k++) {
        nodes[k] = w.at[k].node;
    }
    if (all) {
        (void)ru_member_install(m, nodes, w.n, NULL, 0, now, fx);
    }
}

/* Those that hear of this rank's end before that of the lost one know whom to name. */
static void tell_lost(const rui_ranks_part *g, ru_effects *fx)
{
    uint8_t gone = (uint8_t)(g->gone - 1);
    for (uint32_t r = 0; r < g->n_ranks; r++) {
        if (r != g->rank && r != gone) {
            ru_fx_send(fx, g->ranks[r].node, LOST, &gone, 1);
        }
    }
}

static void hear(rui_ranks_part *g, const ru_event *ev, ru_effects *fx)
{
    if (ev->kind == RU_EV_DOWN && g->coll != NULL && ev->node.v != 0) {
        lost(g, ev->node, ev->now);
    } else if (ev->kind == RU_EV_MESSAGE && ev->what == RU_COLL_WHAT && g->coll != NULL) {
        ru_coll_heard(g->coll, ev->node, ev->data, ev->size_bytes, ev->now);
    } else if (ev->kind == RU_EV_MESSAGE && ev->what == OPENED && g->rank == 0 && !g->met) {
        opened(g, fx, ev->now);
    } else if (ev->kind == RU_EV_MESSAGE && ev->what == GO && g->coll != NULL && !g->met) {
        meet(g, ev->now);
    } else if (ev->kind == RU_EV_MESSAGE && ev->what == LOST && g->coll != NULL &&
               ev->size_bytes == 1 && *(const uint8_t *)ev->data < g->n_ranks) {
        lost(g, g->ranks[*(const uint8_t *)ev->data].node, ev->now);
    } else if (ev->kind == RU_EV_LOCAL &&
               (ev->what == RU_MEMBER_LEAD || ev->what == RU_MEMBER_CHANGE)) {
        gather(g, fx, ev->now);
    } else if (ev->kind == RU_EV_LOCAL && ev->what == RU_MEMBER_LEADERLESS) {
        leaderless(g, ev->value != 0, ev->now);
    } else if (ev->kind == RU_EV_LOCAL && ev->what == RU_MEMBER_VIEW) {
        viewed(g, fx, ev->now);
    } else if (ev->kind == RU_EV_LOCAL && ev->what == RU_MEMBER_OUT) {
        ru_str why = ru_str_n(ev->data, ev->data != NULL ? ev->size_bytes : 0);
        char text[RU_ERR_TEXT_MAX];
        (void)snprintf(text, sizeof text, "%.*s", (int)why.n, why.p != NULL ? why.p : "");
        end(g, ev->value != 0 ? (ru_status)ev->value : RU_E_PEER, text, ev->now);
    }
}

static void step(void *self, const ru_event *ev, ru_effects *fx)
{
    rui_ranks_part *g = self;
    ru_node_id lead = ru_member_leader(ru_node_member(g->node));
    g->lead = lead.v != 0 ? lead : g->lead;
    if (!g->ended) {
        hear(g, ev, fx);
    }
    if (g->gone > 0 && !g->told) {
        g->told = true;
        tell_lost(g, fx);
    }
}
/* -- streams -------------------------------------------------------------------------------------
 */

static bool owns(void *self, uint64_t cookie)
{
    rui_ranks_part *g = self;
    return g->coll != NULL && ru_coll_owns(g->coll, cookie);
}

static void sent(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    rui_ranks_part *g = self;
    (void)fx;
    ru_coll_sent(g->coll, cookie, now);
}

static void arrived(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    rui_ranks_part *g = self;
    (void)fx;
    ru_coll_arrived(g->coll, cookie, now);
}

static void failed(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    rui_ranks_part *g = self;
    (void)fx;
    ru_coll_xfer_failed(g->coll, cookie, why, now);
}

static void room(void *self, ru_time now, ru_effects *fx)
{
    rui_ranks_part *g = self;
    (void)fx;
    if (g->coll != NULL) {
        ru_coll_room(g->coll, now);
    }
}

static const ru_part_ops part_ops = {.name = "group",
                                     .step = step,
                                     .owns = owns,
                                     .sent = sent,
                                     .arrived = arrived,
                                     .failed = failed,
                                     .room = room};

ru_status rui_ranks_part_open(rui_ranks_part *g, ru_arena *arena, ru_err *err)
{
    g->arena = arena;
    rui_ranks_table_make(&g->table, g->n_ranks);
    g->early = RU_NEW(arena, rui_ranks_call, RU_RANKS_CALLS_MAX);
    g->buckets = RU_NEW(arena, rui_bucket, g->table.n);
    bool ok = g->early != NULL && g->buckets != NULL;
    for (uint32_t k = 0; ok && k < g->table.n; k++) {
        g->buckets[k].last = &g->buckets[k].first;
        g->buckets[k].pad = ru_arena_zalloc(arena, RUI_RANKS_LEAST * (int64_t)g->n_ranks, 64);
        ok = g->buckets[k].pad != NULL;
    }
    if (!ok) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a group of %u ranks", g->n_ranks);
    }
    ru_node_part(g->node, &(ru_part){.ops = &part_ops,
                                     .self = g,
                                     .what_first = RU_NODE_WHAT_FIRST,
                                     .what_end = RU_COLL_WHAT + 1});
    return RU_OK;
}

void rui_ranks_part_close(rui_ranks_part *g, ru_time now)
{
    ru_coll_close(g->coll, now);
    g->coll = NULL;
}
