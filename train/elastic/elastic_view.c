/* The owner's part of a view: who computes what, from which step, with which collectives. */
#include <string.h>

#include "base/wire.h"
#include "train/elastic/elastic_impl.h"

enum { BLOB_VERSION = 2 };

/* Of many ranks each step waits for the slowest, and n log n messages a chunk are work for all:
 * fewer, larger chunks. */
#define LARGE_OVERHEAD 0.01

int64_t rui_el_blob_write(const rui_el_view *v, void *into, int64_t size_bytes)
{
    ru_wire_out w = ru_wire_out_into(into, size_bytes);
    ru_wire_put_u8(&w, BLOB_VERSION);
    bool moved = v->position != v->start * v->batch; /* the batch was another one before */
    bool paced = v->done != (double)v->start || v->gain != 1.0;
    ru_wire_put_u8(&w, (uint8_t)((v->plain ? 1 : 0) | (v->paused ? 2 : 0) | (v->local ? 4 : 0) |
                                 (v->near ? 8 : 0) | (moved ? 16 : 0) | (paced ? 32 : 0)));
    ru_wire_put_u64(&w, (uint64_t)v->start);
    ru_wire_put_u64(&w, (uint64_t)v->batch);
    ru_wire_put_u64(&w, (uint64_t)v->budget_bytes);
    ru_wire_put_u64(&w, (uint64_t)v->age_ns);
    ru_wire_put_u64(&w, (uint64_t)v->first);
    if (moved) {
        ru_wire_put_u64(&w, (uint64_t)v->position);
    }
    if (paced) {
        ru_wire_put_f64(&w, v->done);
        ru_wire_put_f64(&w, v->gain);
    }
    ru_wire_put_u32(&w, v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        ru_wire_put_u32(&w, (uint32_t)v->at[i].share.n);
        ru_wire_put_u32(&w, v->at[i].held);
        if (v->near) {
            ru_wire_put_u16(&w, v->at[i].host);
        }
    }
    return w.bad ? 0 : ru_wire_size(&w);
}

static ru_status bad_blob(ru_err *err, const char *what)
{
    return RU_FAIL(err, RU_E_DATA,
                   "the leader's view does not match this process (%s); start all workers with the "
                   "same job and version",
                   what);
}

static ru_status read_members(const ru_elastic *e, const ru_view *view, ru_wire_in *w,
                              rui_el_view *v, ru_err *err)
{
    int64_t first = 0;
    v->me = v->n;
    for (uint32_t i = 0; i < v->n; i++) {
        rui_el_member *m = &v->at[i];
        m->node = view->at[i].node;
        m->number = view->at[i].number;
        m->share = (ru_share){.first = first, .n = (int64_t)ru_wire_u32(w), .batch = v->batch};
        m->held = ru_wire_u32(w);
        m->host = v->near ? ru_wire_u16(w) : 0;
        m->full = m->held == e->mover.n_pieces;
        v->takers += m->full ? 0 : 1;
        v->workers += m->share.n > 0 ? 1 : 0;
        first += m->share.n;
        if (m->held > e->mover.n_pieces || (m->share.n > 0 && !m->full) || first > v->batch) {
            return bad_blob(err, "shares");
        }
        if (ru_node_is(m->node, e->opt.self)) {
            v->me = i;
        }
    }
    if (!v->paused && first != v->batch) {
        return bad_blob(err, "shares do not add up");
    }
    rui_el_servers_mark(e, v, view->leader);
    return RU_OK;
}

ru_status rui_el_blob_read(const ru_elastic *e, const ru_view *view, ru_arena *arena,
                           rui_el_view *out, ru_err *err)
{
    ru_wire_in w = ru_wire_in_from(view->blob, view->blob_bytes);
    if (ru_wire_u8(&w) != BLOB_VERSION) {
        return bad_blob(err, "version");
    }
    uint8_t flags = ru_wire_u8(&w);
    rui_el_view v = {.epoch = view->epoch,
                     .leader = view->leader,
                     .plain = (flags & 1) != 0,
                     .paused = (flags & 2) != 0,
                     .local = (flags & 4) != 0,
                     .near = (flags & 8) != 0};
    v.start = (int64_t)ru_wire_u64(&w);
    v.batch = (int64_t)ru_wire_u64(&w);
    v.budget_bytes = (int64_t)ru_wire_u64(&w);
    v.age_ns = (int64_t)ru_wire_u64(&w);
    v.first = (int64_t)ru_wire_u64(&w);
    bool moved = (flags & 16) != 0;
    v.position = moved ? (int64_t)ru_wire_u64(&w) : 0;
    v.done = (flags & 32) != 0 ? ru_wire_f64(&w) : (double)v.start;
    v.gain = (flags & 32) != 0 ? ru_wire_f64(&w) : 1;
    v.n = ru_wire_u32(&w);
    if (w.bad || v.n != view->n || v.start < 0 || v.start > e->opt.steps_end || v.batch < 1 ||
        v.batch > UINT32_MAX || v.position < 0 || v.budget_bytes < 1 || v.age_ns < 0 ||
        v.first < 0 || v.first > v.start || !(v.done >= 0 && v.done < 1e15) ||
        !(v.gain > 0 && v.gain < 1e9)) {
        return bad_blob(err, "batch or members");
    }
    v.position = moved ? v.position : v.start * v.batch;
    v.at = RU_NEW(arena, rui_el_member, v.n);
    if (v.at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a view of %u members", v.n);
    }
    RU_TRY(read_members(e, view, &w, &v, err));
    if (w.bad || ru_wire_left(&w) != 0) {
        return bad_blob(err, "length");
    }
    if (v.n > RUI_EL_PROBED_MAX) { /* everybody computes the same */
        RU_TRY(rui_el_choose(e, &v, e->reduce.rule, e->reduce.n_rule, arena, NULL, err));
    }
    *out = v;
    return RU_OK;
}

/* -- collectives ---------------------------------------------------------------------------------
 */

uint32_t rui_el_hosts(const rui_el_view *v, uint32_t *most)
{
    uint32_t hosts = 0;
    *most = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        uint32_t same = 0, before = 0;
        for (uint32_t k = 0; k < v->n; k++) {
            same += v->at[k].host == v->at[i].host ? 1 : 0;
            before += k < i && v->at[k].host == v->at[i].host ? 1 : 0;
        }
        hosts += before == 0 ? 1 : 0;
        *most = same > *most ? same : *most;
    }
    return hosts;
}

bool rui_el_may_follow(const ru_elastic *e, const rui_el_view *v)
{
    return !v->near && !v->local && v->servers == 0 && !e->opt.deterministic &&
           v->n <= RUI_EL_PROBED_MAX;
}

bool rui_el_follows(const ru_elastic *e, const rui_el_view *v)
{
    uint32_t made_for = e->reduce.table_members;
    return rui_el_may_follow(e, v) && (made_for == 0 || made_for == v->n);
}

/* [n] algorithms that parts name; NULL: they are to be chosen, all of them. */
static ru_status given_of(const ru_elastic *e, const rui_el_view *v, const ru_elastic_part *parts,
                          uint32_t n, ru_arena *arena, const int64_t **out, ru_err *err)
{
    bool follows = rui_el_follows(e, v);
    int64_t *given = follows ? RU_NEW(arena, int64_t, n) : NULL;
    bool any = false;
    if (follows && given == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to choose collectives");
    }
    for (uint32_t b = 0; given != NULL && b < n; b++) {
        given[b] = parts[b].only;
        any = any || given[b] != 0;
    }
    *out = any ? given : NULL;
    return RU_OK;
}

ru_status rui_el_choose(const ru_elastic *e, rui_el_view *v, const ru_elastic_part *parts,
                        uint32_t n, ru_arena *arena, ru_coll_policy_in *asked, ru_err *err)
{
    bool large = v->n > RUI_EL_PROBED_MAX;
    ru_coll_cost costs[RU_COLL_ALGOS];
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        costs[a] = large ? (ru_coll_cost){0} : e->reduce.costs[a];
    }
    /* The star is taken only where it was measured, and not for several sums of more than two
     * members, which share the links: its root carries n / 2 times what the others' members do. */
    if (e->reduce.probed_n != v->n || (v->n > 2 && n > 1 && v->servers == 0)) {
        costs[RU_ALGO_HIERARCHY].n_points = 0;
    }
    if (v->servers > 0 && costs[RU_ALGO_HIERARCHY].n_points == 0) {
        costs[RU_ALGO_HIERARCHY] = ru_cost_coll_prior();
    }
    int64_t *sizes = RU_NEW(arena, int64_t, n);
    v->choice = RU_NEW(arena, ru_coll_choice, n);
    if (sizes == NULL || v->choice == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to choose collectives");
    }
    for (uint32_t b = 0; b < n; b++) {
        sizes[b] = parts[b].size_bytes;
    }
    const int64_t *given = NULL;
    RU_TRY(given_of(e, v, parts, n, arena, &given, err));
    uint32_t most = 0, hosts = v->near ? rui_el_hosts(v, &most) : 0;
    ru_coll_choice_in in = {.op = RU_COLL_ALL_REDUCE,
                            .n_ranks = v->n,
                            .costs = costs,
                            .assume = true,
                            .n_hosts = hosts,
                            .host_most = most,
                            .mesh_max = RUI_EL_PROBED_MAX,
                            .sizes_bytes = sizes,
                            .n_sizes = n,
                            .given = given,
                            .overhead = large ? LARGE_OVERHEAD : 0.05,
                            /* a server adds in rank order as well */
                            .deterministic = e->opt.deterministic && v->servers == 0,
                            .only = v->servers > 0 ? 1 + RU_ALGO_HIERARCHY : 0};
    ru_coll_choice_plan plan;
    ru_coll_policy_in question;
    RU_TRY(ru_plan_coll_choose(&in, arena, &plan, err));
    RU_TRY(ru_plan_coll_choose_check(&in, &plan, err));
    RU_TRY(ru_coll_policy_in_of(&in, arena, &question, err));
    RU_CHECK(plan.n == n);
    for (uint32_t b = 0; b < n; b++) {
        v->choice[b] = plan.at[b];
        v->choice[b].predicted_ns =
            plan.at[b].predicted_ns > UINT32_MAX ? UINT32_MAX : plan.at[b].predicted_ns;
    }
    v->plan = ru_policy_head(&ru_policy_coll, &question).id.low;
    v->plan = v->plan != 0 ? v->plan : 1; /* 0 means none */
    if (asked != NULL) {
        *asked = question;
    }
    return RU_OK;
}

/* The plan's id, then runs of equal choices: hundreds of buckets of few kinds. A predicted time
 * takes 32 bits, as in a trace; a longer one is said to be 4.29 s. */
void rui_el_choices_write(const ru_elastic *e, uint32_t n, ru_wire_out *w)
{
    const ru_coll_choice *c = e->v.choice;
    ru_wire_put_u64(w, e->v.plan);
    for (uint32_t b = 0; b < n;) {
        uint32_t end = b + 1;
        while (end < n && c[end].algo == c[b].algo && c[end].chunk_bytes == c[b].chunk_bytes &&
               c[end].depth == c[b].depth) {
            end++;
        }
        ru_wire_put_u32(w, end - b);
        ru_wire_put_u8(w, (uint8_t)c[b].algo);
        ru_wire_put_u32(w, c[b].depth);
        ru_wire_put_u64(w, (uint64_t)c[b].chunk_bytes);
        for (; b < end; b++) {
            ru_wire_put_u32(w, (uint32_t)c[b].predicted_ns);
        }
    }
}

ru_status rui_el_choices_read(ru_elastic *e, ru_wire_in *w, ru_err *err)
{
    e->v.plan = ru_wire_u64(w);
    e->v.choice = RU_NEW(&e->view_arena[e->view_side], ru_coll_choice, e->reduce.n_buckets);
    if (e->v.choice == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u sums", e->reduce.n_buckets);
    }
    for (uint32_t b = 0; b < e->reduce.n_buckets;) {
        uint32_t n = ru_wire_u32(w);
        ru_coll_choice c = {.algo = (ru_coll_algo)ru_wire_u8(w)};
        c.depth = ru_wire_u32(w);
        c.chunk_bytes = (int64_t)ru_wire_u64(w);
        if (w->bad || n < 1 || n > e->reduce.n_buckets - b || c.algo >= RU_COLL_ALGOS ||
            c.chunk_bytes < 0) {
            return bad_blob(err, "collectives");
        }
        for (uint32_t end = b + n; b < end; b++) {
            c.predicted_ns = (int64_t)ru_wire_u32(w);
            e->v.choice[b] = c;
        }
    }
    return RU_OK;
}

ru_status rui_el_schedule(const ru_elastic *e, ru_coll_algo algo, uint32_t root, bool served,
                          ru_arena *arena, const ru_coll_schedule **out, ru_err *err)
{
    ru_coll_schedule *s = RU_NEW(arena, ru_coll_schedule, 1);
    uint16_t *host = RU_NEW(arena, uint16_t, e->v.n);
    bool *idle = RU_NEW(arena, bool, e->v.n);
    if (s == NULL || host == NULL || idle == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a schedule");
    }
    bool any = false;
    for (uint32_t i = 0; i < e->v.n; i++) {
        host[i] = e->v.at[i].host;
        idle[i] = served && i != root && e->v.at[i].share.n == 0;
        any = any || idle[i];
    }
    ru_coll_in in = {.op = RU_COLL_ALL_REDUCE,
                     .algo = algo,
                     .n_ranks = e->v.n,
                     .root = root,
                     .host = host,
                     .idle = any ? idle : NULL};
    *out = s;
    /* Each member of a large view keeps only its own list. The oldest ones prove the schedule
     * together, its sums in parts: no sum is complete before all of them have opened the group. */
    bool large = e->v.n > RUI_EL_PROBED_MAX;
    ru_arena_mark mark = ru_arena_mark_get(arena);
    if (e->v.me < RUI_EL_PROBED_MAX) {
        RU_TRY(ru_plan_coll(&in, arena, s, err));
        uint32_t parts = s->n_blocks < RUI_EL_PROBED_MAX ? s->n_blocks : RUI_EL_PROBED_MAX;
        RU_TRY(large ? ru_plan_coll_check_part(s, e->v.me % parts, parts, arena, err)
                     : ru_plan_coll_check(s, arena, err));
    }
    if (!large) {
        return RU_OK;
    }
    ru_arena_rewind(arena, mark);
    return ru_plan_coll_rank(&in, e->v.me, arena, s, err);
}

/* Memory of the members of this host; NULL where this one is alone. */
static ru_status near_of(const ru_elastic *e, ru_arena *arena, const ru_span **out, ru_err *err)
{
    *out = NULL;
    ru_span *near = RU_NEW(arena, ru_span, e->v.n);
    uint32_t rank = 0;
    if (near == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a group of %u", e->v.n);
    }
    for (uint32_t i = 0; e->v.near && i < e->v.n; i++) {
        if (e->v.at[i].host == e->v.at[e->v.me].host) {
            near[i] = e->opt.device.ops->local_memory(e->opt.device.self, rank++);
        }
    }
    *out = rank > 1 ? near : NULL;
    return RU_OK;
}

/* Slots and streams for one chunk by that algorithm, of the rank that needs most: the hub of a star
 * has as many as there are others. */
static bool steps_of(const ru_elastic *e, ru_coll_algo algo, ru_arena *scratch, uint32_t *recv,
                     uint32_t *send)
{
    uint16_t *host = RU_NEW(scratch, uint16_t, e->v.n);
    for (uint32_t i = 0; host != NULL && i < e->v.n; i++) {
        host[i] = e->v.at[i].host;
    }
    const ru_coll_in in = {.op = RU_COLL_ALL_REDUCE, .algo = algo, .n_ranks = e->v.n, .host = host};
    *recv = *send = 0;
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    for (uint32_t r = 0; r < e->v.n; r++) {
        ru_coll_schedule s;
        if (host == NULL || ru_plan_coll_rank(&in, r, scratch, &s, NULL) != RU_OK) {
            return false;
        }
        uint32_t receives = 0, sends = 0;
        for (uint32_t k = s.begin[r]; k < s.begin[r + 1]; k++) {
            receives += ru_coll_step_receives(&s.steps[k]) ? 1 : 0;
            sends += s.steps[k].kind == RU_COLL_SEND ? 1 : 0;
        }
        *recv = receives > *recv ? receives : *recv;
        *send = sends > *send ? sends : *send;
        ru_arena_rewind(scratch, mark);
    }
    return true;
}

bool rui_el_room_for_two(const ru_elastic *e)
{
    const ru_elastic_part *parts = e->reduce.rule;
    uint32_t n = e->v.n > RUI_EL_PROBED_MAX ? e->reduce.n_rule : rui_el_table(e, &parts);
    uint32_t recv[RU_COLL_ALGOS], send[RU_COLL_ALGOS];
    bool known[RU_COLL_ALGOS] = {0};
    uint64_t slots = 0, streams = 0;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    bool all = true;
    for (uint32_t b = 0; all && b < n; b++) {
        const ru_coll_choice *c = &e->v.choice[b];
        if (!known[c->algo]) {
            all = steps_of(e, c->algo, &scratch, &recv[c->algo], &send[c->algo]);
            known[c->algo] = true;
        }
        int64_t size = parts[b].size_bytes, chunk = c->chunk_bytes > 0 ? c->chunk_bytes : size;
        uint64_t chunks = (uint64_t)((size + chunk - 1) / chunk);
        uint64_t lanes = c->depth > 0 && c->depth < chunks ? c->depth : chunks;
        slots += lanes * recv[c->algo];
        streams += lanes * send[c->algo];
    }
    ru_arena_fini(&scratch);
    /* Twice as many, and half of that again for all else that the channel carries. */
    return all && 3 * slots <= ru_chan_slots(e->opt.chan) &&
           3 * streams <= ru_chan_streams(e->opt.chan);
}

int64_t rui_el_lanes_bytes(const ru_coll_choice *c, int64_t size_bytes)
{
    int64_t chunk = c->chunk_bytes > 0 ? c->chunk_bytes : size_bytes;
    int64_t chunks = size_bytes > 0 ? (size_bytes + chunk - 1) / chunk : 1;
    int64_t lanes = c->depth > 0 && c->depth < chunks ? c->depth : chunks;
    return (int64_t)((double)size_bytes * (double)lanes / (double)chunks);
}

/* What the lanes of one set put aside of bucket b until it is added, by the steps of this rank. */
static int64_t aside_of(const ru_elastic *e, const ru_coll_schedule *s, uint32_t b)
{
    int64_t bytes = rui_el_lanes_bytes(&e->v.choice[b], e->reduce.buckets[b].part.size_bytes);
    int64_t blocks = 0;
    for (uint32_t k = s->begin[e->v.me]; k < s->begin[e->v.me + 1]; k++) {
        bool adds =
            s->steps[k].kind == RU_COLL_REDUCE_RECV || s->steps[k].kind == RU_COLL_RECV_ASIDE;
        blocks += adds ? s->steps[k].n_blocks : 0;
    }
    return (int64_t)((double)bytes * (double)blocks / s->n_blocks);
}

/* Are there members to whom nobody sends before they have begun a sum themselves? Blocks of no
 * elements are not sent. */
static bool has_leaves(const ru_elastic *e, const ru_coll_choice *c, int64_t size_bytes)
{
    bool twos = c->algo == RU_ALGO_HALVING || c->algo == RU_ALGO_DOUBLING;
    bool all = c->algo == RU_ALGO_RING || c->algo == RU_ALGO_DIRECT ||
               (twos && (e->v.n & (e->v.n - 1)) == 0);
    int64_t chunks = c->chunk_bytes > 0 ? (size_bytes + c->chunk_bytes - 1) / c->chunk_bytes : 1;
    int64_t element = e->opt.bf16 ? 2 : 4, n = size_bytes / element;
    return !all || n / chunks < e->v.n; /* chunks are of equal size, to one element */
}

ru_status rui_el_group_open(ru_elastic *e, ru_err *err)
{
    ru_arena *arena = &e->view_arena[e->view_side];
    const ru_coll_schedule *known[RU_COLL_ALGOS + RUI_EL_PROBED_MAX] = {0}; /* by algorithm, hub */
    ru_node_id *nodes = RU_NEW(arena, ru_node_id, e->v.n);
    ru_coll_bucket *buckets = RU_NEW(arena, ru_coll_bucket, e->reduce.n_buckets);
    const ru_coll_schedule **schedules =
        RU_NEW(arena, const ru_coll_schedule *, e->reduce.n_buckets);
    if (nodes == NULL || buckets == NULL || schedules == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a group of %u", e->v.n);
    }
    for (uint32_t i = 0; i < e->v.n; i++) {
        nodes[i] = e->v.at[i].node;
    }
    const ru_span *near;
    RU_TRY(near_of(e, arena, &near, err));
    rui_el_sums_label(e);
    uint32_t most = 1;
    int64_t element = e->opt.bf16 ? 2 : 4;
    e->reduce.aside_bytes = 0;
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        most = e->reduce.buckets[b].part.n > most ? e->reduce.buckets[b].part.n : most;
        const ru_coll_choice *c = &e->v.choice[b];
        uint32_t root = e->v.servers > 0 ? e->reduce.buckets[b].root : 0;
        const ru_coll_schedule **s = &known[root > 0 ? RU_COLL_ALGOS + root : (uint32_t)c->algo];
        if (*s == NULL) {
            RU_TRY(rui_el_schedule(e, c->algo, root, e->v.servers > 0, arena, s, err));
        }
        schedules[b] = *s;
        e->reduce.buckets[b].leaves = has_leaves(e, c, e->reduce.buckets[b].part.size_bytes);
        buckets[b] = (ru_coll_bucket){.op = RU_COLL_ALL_REDUCE,
                                      .algo = c->algo,
                                      .dtype = e->opt.bf16 ? RU_BF16 : RU_F32,
                                      .n = e->reduce.buckets[b].part.size_bytes / element,
                                      .chunk_bytes = c->chunk_bytes,
                                      .depth = c->depth,
                                      .class = RU_CLASS_NORMAL,
                                      .rank = (uint16_t)rui_el_rank(e, b),
                                      .in_order = rui_el_in_order(e, b),
                                      .label = e->reduce.sums.labels[b]};
        e->reduce.aside_bytes += aside_of(e, *s, b);
    }
    ru_coll_options opt = {.chan = e->opt.chan,
                           .nodes = nodes,
                           .n_ranks = e->v.n,
                           .rank = e->v.me,
                           .epoch = e->v.epoch,
                           .buckets = buckets,
                           .schedules = schedules,
                           .n_buckets = e->reduce.n_buckets,
                           .iter_first = (uint32_t)e->step,
                           .spans_max = most,
                           .apart = e->steps.depth == 1, /* by the commit between steps */
                           .near = near,
                           .counted = e->opt.counted,
                           .plan = (uint32_t)e->v.plan};
    ru_coll_user user = *rui_el_coll_user();
    user.self = e;
    ru_status st = ru_coll_open(&opt, &user, arena, &e->reduce.group, err);
    if (st == RU_E_LIMIT && e->v.servers > 0) { /* the next one to serve could not either */
        return RU_FAIL(err, RU_E_CONFIG,
                       "%u servers cannot add %u sums of %u members at once; start fewer workers "
                       "or raise train.servers",
                       e->v.servers, e->reduce.n_buckets, e->v.n);
    }
    return st;
}

void rui_el_group_close(ru_elastic *e, ru_time now)
{
    ru_coll_close(e->reduce.group, now);
    ru_coll_close(e->reduce.probe, now);
    e->reduce.group = e->reduce.probe = NULL;
    if (e->reduce.local_open) {
        e->reduce.local_open = false;
        e->opt.device.ops->local_close(e->opt.device.self);
    }
    /* Of the probe as well, also where it was never opened here: a chunk that nobody will take
     * holds up its connection. */
    const uint64_t epochs = 0xffffff & ~RUI_EL_PROBE_EPOCH;
    ru_chan_cancel_all(e->opt.chan, epochs << 40, (e->v.epoch & epochs) << 40, now);
}

bool rui_el_group_read(const ru_elastic *e)
{
    const uint64_t epochs = 0xffffff & ~RUI_EL_PROBE_EPOCH;
    return ru_chan_reads(e->opt.chan, epochs << 40, (e->v.epoch & epochs) << 40);
}

/* Marks the peers of this rank in the schedules of the view. */
static bool mark_peers(ru_elastic *e, bool *peer, ru_arena *scratch)
{
    if (e->v.n <= RUI_EL_PROBED_MAX) { /* the probe tries everything */
        memset(peer, true, e->v.n);
        peer[e->v.me] = false;
        return true;
    }
    bool seen[RU_COLL_ALGOS] = {0};
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        ru_coll_algo a = e->v.choice[b].algo;
        if (seen[a]) {
            continue;
        }
        seen[a] = true;
        ru_coll_in in = {.op = RU_COLL_ALL_REDUCE, .algo = a, .n_ranks = e->v.n};
        ru_coll_schedule s;
        if (ru_plan_coll_rank(&in, e->v.me, scratch, &s, NULL) != RU_OK) {
            return false;
        }
        for (uint32_t k = s.begin[e->v.me]; k < s.begin[e->v.me + 1]; k++) {
            peer[s.steps[k].peer] = true;
        }
    }
    for (uint32_t i = 0; i < e->v.n; i++) { /* senders and takers of state */
        peer[i] = peer[i] || e->v.at[i].full != e->v.at[e->v.me].full;
    }
    peer[e->v.me] = false;
    return true;
}

bool rui_el_connected(ru_elastic *e, ru_effects *fx)
{
    if (e->v.n == 1) {
        return true;
    }
    ru_arena *arena = &e->view_arena[e->view_side];
    ru_arena_mark mark = ru_arena_mark_get(arena);
    bool *peer = RU_NEW(arena, bool, e->v.n);
    bool all = peer != NULL && mark_peers(e, peer, arena);
    const ru_view *view = ru_member_view(e->opt.member);
    RU_CHECK(view->epoch == e->v.epoch);
    bool marked = all;
    for (uint32_t i = 0; marked && i < e->v.n; i++) { /* all that are missing, at once */
        if (!peer[i] || ru_chan_is_up(e->opt.chan, e->v.at[i].node)) {
            continue;
        }
        all = false;
        if (i < e->v.me && !e->connect_asked) { /* the younger side connects */
            ru_fx_connect(fx, view->at[i].address);
        }
    }
    e->connect_asked = true;
    ru_arena_rewind(arena, mark);
    return all;
}
