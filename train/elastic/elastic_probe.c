/* What collectives cost between these members: a short probe before the first step of a view, of
 * the first view of a job. Members that come or go later find a job that trains, and a probe takes
 * as long as a hundred steps of it: they are measured once they have stayed together for a while.
 * Until then costs are those of the members before, or assumed.
 *
 * Every member runs the same list of all-reduces; the leader takes the time of each from its own
 * begin to its own end and fits the formulas of cost/step/coll. The sum of a later one cannot begin
 * before the earlier one has ended anywhere it matters, because every rank has a part in every sum.
 *
 *   small sizes  in turns by all, also the star
 *   drain        the largest by the ring, one after the other
 *   large sizes  in turns, without a pause, so that no token bucket fills again
 *
 * The drain is there because a shaped link lets what its token bucket holds go at full speed (512
 * kB and more), so a first sum of 1 MiB says nothing about the rate of the ones behind it.
 *
 * Each is run twice and the second counts: who ends the first early begins the second early, and
 * finds the others so far behind at its end as well; after another algorithm the leader may begin
 * late and find all of it done. A turn begins with another algorithm each time (an estimate that
 * the kernel keeps of a connection favours whoever ran last), and the median counts: the least of
 * the large ones is the one before which somebody was held up and the token bucket filled. A phase
 * ends with its turns or, on slow links, after the turn in which its time is over. The leader's
 * clock alone can say so: when it begins the last sum of a turn, it sends PROBE_TURN(phase, turn,
 * over) to all. The message travels while that sum does, and nobody begins the next turn without
 * it. */
#include "base/log.h"
#include "train/elastic/elastic_impl.h"

enum { SIZES = 3, SMALL = 2, TWICE = 2, LARGEST_BYTES = 1 << 20 };

/* The star is last: its root carries everything, so it has small sizes only. */
static const ru_coll_algo algos[] = {RU_ALGO_RING, RU_ALGO_HALVING, RU_ALGO_DOUBLING,
                                     RU_ALGO_DIRECT, RU_ALGO_HIERARCHY};
static const int64_t part_of[SIZES] = {256, 16, 1}; /* of the largest */

enum { ALGOS = RU_ARRAY_LEN(algos), FLAT = ALGOS - 1, BUCKETS = FLAT * SIZES + SMALL };

typedef struct phase {
    uint32_t first, n_sizes, turns;
    int64_t most_ns;
    bool drains;
} phase;

/* A probe takes a second on a link of 200 Mbit/s: a part of 1 in 20 at most. */
static const int64_t stay_ns = 20 * INT64_C(1000000000);

/* Twelve sums by the ring move 12 MiB at least over a link of each of two members: token buckets of
 * 512 kB (tc), 1 to 4 MB (switches, clouds). */
static const phase phases[] = {
    {.n_sizes = SMALL, .turns = 3, .most_ns = 100000000},
    {.first = SIZES - 1, .n_sizes = 1, .turns = 6, .most_ns = 100000000, .drains = true},
    {.first = SMALL, .n_sizes = SIZES - SMALL, .turns = 3, .most_ns = 200000000},
};

void ru_elastic_measure(ru_elastic *e)
{
    e->reduce.probed_n = 0;
    e->reduce.asked = e->v.n > 1 && rui_el_leads(e);
    e->lead.change = e->lead.change || e->reduce.asked;
}

static bool lacks(const ru_elastic *e)
{
    return e->v.n > 1 && e->v.n <= RUI_EL_PROBED_MAX && !e->v.local && !e->opt.counted &&
           e->reduce.probed_n != e->v.n;
}

bool rui_el_probe_ripe(const ru_elastic *e, ru_time now)
{
    return lacks(e) && e->reduce.stay_n == e->v.n && now.ns - e->reduce.stay_ns >= stay_ns;
}

bool rui_el_probe_due(ru_elastic *e, ru_time now)
{
    if (!lacks(e)) {
        e->reduce.stay_n = 0; /* who comes after these begins anew */
        return false;
    }
    if (e->reduce.stay_n != e->v.n) {
        e->reduce.stay_n = e->v.n;
        e->reduce.stay_ns = now.ns;
    }
    return e->committed == e->opt.first_step || e->reduce.asked || rui_el_probe_ripe(e, now);
}

static int64_t size_of(const ru_elastic *e, uint32_t k)
{
    int64_t most = e->opt.probe_bytes > 0 ? e->opt.probe_bytes : LARGEST_BYTES;
    return most / part_of[k];
}

/* Members of one host: the hierarchy is no star, and its sums need their shared memory. */
static uint32_t algos_in(const ru_elastic *e, const phase *p)
{
    return p->drains ? 1 : p->first < SMALL && !e->v.near ? ALGOS : FLAT;
}

/* Of the sum under way. */
static uint32_t bucket_of(const ru_elastic *e)
{
    const phase *p = &phases[e->reduce.probing.phase];
    uint32_t n = algos_in(e, p), at = e->reduce.probing.at / TWICE;
    return (at + e->reduce.probing.turn) % n * SIZES + p->first + at / n;
}

static bool last_of_turn(const ru_elastic *e)
{
    const rui_el_probe *q = &e->reduce.probing;
    const phase *p = &phases[q->phase];
    return q->at + 1 == TWICE * p->n_sizes * algos_in(e, p);
}

/* Leader: is the phase over with this turn? */
static void say_turn(ru_elastic *e, ru_time now)
{
    const rui_el_probe *q = &e->reduce.probing;
    const phase *p = &phases[q->phase];
    bool over = q->turn + 1 == p->turns || now.ns - q->phase_ns >= p->most_ns;
    uint8_t buf[8];
    ru_wire_out w = rui_el_word(e, buf, sizeof buf);
    ru_wire_put_u8(&w, (uint8_t)q->phase);
    ru_wire_put_u8(&w, (uint8_t)q->turn);
    ru_wire_put_u8(&w, over ? 1 : 0);
    rui_el_tell_all(e, RUI_EL_PROBE_TURN_MSG, &w, now, e->fx);
}

static void next_probe(ru_elastic *e, ru_time now)
{
    rui_el_probe *q = &e->reduce.probing;
    const phase *p = &phases[q->phase];
    if (q->at == 0 && q->turn == 0) {
        q->phase_ns = now.ns;
    }
    q->begun_ns = now.ns;
    uint32_t bucket = bucket_of(e);
    if (rui_el_leads(e) && last_of_turn(e)) {
        say_turn(e, now);
    }
    q->span.size_bytes = size_of(e, p->first + q->at / (TWICE * algos_in(e, p)));
    ru_err err;
    ru_status st = ru_coll_begin(e->reduce.probe, bucket, q->begun[bucket]++, &q->span, 1,
                                 (ru_time){0}, now, &err);
    if (st != RU_OK && st != RU_E_PEER) {
        ru_fx_log(e->fx, RU_LOG_ERROR, "measuring the network: %s", err.text);
    }
}

/* The turn is done here and its message is there. */
static void turn_done(ru_elastic *e, ru_time now)
{
    rui_el_probe *q = &e->reduce.probing;
    q->told = q->waits = false;
    q->at = 0;
    q->turn++;
    if (q->over) {
        q->turns[q->phase++] = q->turn;
        q->turn = 0;
    }
    if (q->phase < RU_ARRAY_LEN(phases)) {
        next_probe(e, now);
    } else {
        rui_el_say_only(e, RUI_EL_PROBED_MSG, now, e->fx);
    }
}

static void probe_done(void *self, uint32_t bucket, uint32_t iter, ru_time now)
{
    (void)iter;
    ru_elastic *e = self;
    rui_el_probe *q = &e->reduce.probing;
    if (e->phase != RUI_EL_PROBE || q->phase >= RU_ARRAY_LEN(phases)) {
        return;
    }
    if (!phases[q->phase].drains) {
        q->ns[bucket * RUI_EL_PROBE_TURNS + q->turn] = now.ns - q->begun_ns;
    }
    bool last = last_of_turn(e);
    q->at++;
    if (!last) {
        next_probe(e, now);
    } else if (q->told) {
        turn_done(e, now);
    } else {
        q->waits = true;
    }
}

void rui_el_probe_hear(ru_elastic *e, ru_wire_in *w, ru_time now, ru_effects *fx)
{
    rui_el_probe *q = &e->reduce.probing;
    uint32_t at = ru_wire_u8(w), turn = ru_wire_u8(w), over = ru_wire_u8(w);
    if (w->bad || e->phase != RUI_EL_PROBE || q->told || q->phase >= RU_ARRAY_LEN(phases) ||
        at != q->phase || turn != q->turn || over > 1 ||
        (over == 0 && turn + 1 >= phases[at].turns)) {
        return; /* of another turn, or no message of this version */
    }
    e->fx = fx;
    q->told = true;
    q->over = over == 1;
    if (q->waits) {
        turn_done(e, now);
    }
}

static void probe_failed(void *self, ru_node_id peer, ru_status why, ru_time now)
{
    ru_elastic *e = self;
    rui_el_lost(e, peer, why, now);
}

/* As few as may be: what a bucket waits for takes slots of the channel from its first sum on. */
static ru_status declare(ru_elastic *e, uint32_t n_buckets, ru_coll_bucket *buckets,
                         const ru_coll_schedule **schedules, ru_arena *arena, ru_err *err)
{
    uint16_t label =
        e->opt.recorder != NULL ? ru_recorder_name(e->opt.recorder, "measuring sums", "probe") : 0;
    for (uint32_t b = 0; b < n_buckets; b++) {
        uint32_t a = b / SIZES, k = b % SIZES;
        if (k == 0) {
            RU_TRY(rui_el_schedule(e, algos[a], 0, false, arena, &schedules[b], err));
        } else {
            schedules[b] = schedules[b - 1];
        }
        buckets[b] = (ru_coll_bucket){.op = RU_COLL_ALL_REDUCE,
                                      .algo = algos[a],
                                      .dtype = e->opt.bf16 ? RU_BF16 : RU_F32,
                                      .n = size_of(e, k) / (e->opt.bf16 ? 2 : 4),
                                      .class = RU_CLASS_NORMAL,
                                      .label = label};
    }
    return RU_OK;
}

static ru_status open_probe(ru_elastic *e, ru_err *err)
{
    ru_arena *arena = &e->view_arena[e->view_side];
    ru_node_id *nodes = RU_NEW(arena, ru_node_id, e->v.n);
    ru_coll_bucket *buckets = RU_NEW(arena, ru_coll_bucket, BUCKETS);
    const ru_coll_schedule **schedules = RU_NEW(arena, const ru_coll_schedule *, BUCKETS);
    uint32_t n_buckets = e->v.near ? FLAT * SIZES : BUCKETS;
    rui_el_probe q = {.ns = RU_NEW(arena, int64_t, BUCKETS * RUI_EL_PROBE_TURNS),
                      .begun = RU_NEW(arena, uint32_t, BUCKETS),
                      .span.data = ru_arena_zalloc(arena, size_of(e, SIZES - 1), 64)};
    if (nodes == NULL || buckets == NULL || schedules == NULL || q.ns == NULL || q.begun == NULL ||
        q.span.data == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to measure the network");
    }
    e->reduce.probing = q;
    for (uint32_t i = 0; i < e->v.n; i++) {
        nodes[i] = e->v.at[i].node;
    }
    RU_TRY(declare(e, n_buckets, buckets, schedules, arena, err));
    ru_coll_options opt = {.chan = e->opt.chan,
                           .nodes = nodes,
                           .n_ranks = e->v.n,
                           .rank = e->v.me,
                           .epoch = e->v.epoch | RUI_EL_PROBE_EPOCH,
                           .buckets = buckets,
                           .schedules = schedules,
                           .n_buckets = n_buckets};
    const ru_coll_user user = {.self = e, .done = probe_done, .failed = probe_failed};
    return ru_coll_open(&opt, &user, arena, &e->reduce.probe, err);
}

void rui_el_probe_begin(ru_elastic *e, ru_time now, ru_effects *fx)
{
    ru_err err;
    RU_CHECK(e->v.n > 1);
    e->fx = fx;
    e->reduce.asked = false;
    e->reduce.stay_ns = now.ns; /* what cannot be used is not measured again at once */
    ru_status st = open_probe(e, &err);
    if (st != RU_OK) {
        ru_fx_log(fx, RU_LOG_ERROR, "%s", err.text);
        rui_el_device_failed(e, st, "measuring the network for", e->step, err.text, now, fx);
        return;
    }
    e->phase = RUI_EL_PROBE;
    next_probe(e, now);
}

/* Of those above 0: a leader that was held up (frozen, cut off) may begin a second sum late as well
 * and find all of it done, which says nothing. 0: none. */
static int64_t median(int64_t *x, uint32_t all)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < all; i++) {
        if (x[i] > 0) {
            x[n++] = x[i];
        }
    }
    for (uint32_t i = 1; i < n; i++) {
        for (uint32_t k = i; k > 0 && x[k] < x[k - 1]; k--) {
            int64_t swap = x[k];
            x[k] = x[k - 1];
            x[k - 1] = swap;
        }
    }
    return n > 0 ? x[(n - 1) / 2] : 0;
}

/* What was not measured is taken from the algorithm that was the fastest with that size, else from
 * the next size. false: nothing was measured. */
static bool fill(ru_coll_point points[][SIZES], uint32_t n_algos)
{
    for (uint32_t k = SIZES; k-- > 0;) {
        int64_t least = 0;
        for (uint32_t a = 0; a < n_algos; a++) {
            int64_t ns = points[a][k].ns;
            least = ns > 0 && (least == 0 || ns < least) ? ns : least;
        }
        for (uint32_t a = 0; a < n_algos; a++) {
            int64_t other = least > 0 || k + 1 == SIZES ? least : points[a][k + 1].ns;
            points[a][k].ns = points[a][k].ns > 0 ? points[a][k].ns : other;
        }
    }
    return points[0][0].ns > 0 && points[0][SIZES - 1].ns > 0;
}

ru_status rui_el_probe_fit(ru_elastic *e, ru_err *err)
{
    rui_el_probe *q = &e->reduce.probing;
    ru_coll_point points[ALGOS][SIZES];
    uint32_t n_algos = e->v.near ? FLAT : ALGOS;
    e->reduce.costs[RU_ALGO_HIERARCHY] = (ru_coll_cost){0};
    for (uint32_t a = 0; a < n_algos; a++) {
        for (uint32_t k = 0; k < SIZES; k++) {
            bool runs = a < FLAT || k < SMALL;
            points[a][k] = (ru_coll_point){
                size_of(e, k), !runs ? 0
                                     : median(q->ns + (a * SIZES + k) * RUI_EL_PROBE_TURNS,
                                              q->turns[k < SMALL ? 0 : RU_ARRAY_LEN(phases) - 1])};
        }
    }
    bool measured = fill(points, FLAT);
    for (uint32_t a = FLAT; a < n_algos && measured; a++) {
        ru_coll_point *star = points[a];
        star[SMALL].ns = ru_cost_coll_carry_ns(&points[0][SMALL], RU_COLL_ALL_REDUCE, algos[0],
                                               algos[a], e->v.n);
        star[SMALL].ns = star[SMALL].ns > star[SMALL - 1].ns ? star[SMALL].ns : star[SMALL - 1].ns;
        measured = fill(points, n_algos);
    }
    for (uint32_t a = 0; a < n_algos; a++) {
        e->reduce.costs[algos[a]] = (ru_coll_cost){0}; /* the formulas alone */
        if (measured) {
            RU_TRY(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, algos[a], e->v.n, points[a], SIZES,
                                    &e->reduce.costs[algos[a]], err));
        }
    }
    /* Trees cost steps and bytes like the others on the same links. */
    e->reduce.costs[RU_ALGO_TREE] = e->reduce.costs[RU_ALGO_DOUBLE_TREE] =
        e->reduce.costs[RU_ALGO_DOUBLING];
    e->reduce.probed_n = e->v.n;
    e->reduce.probed_epoch = e->v.epoch;
    return RU_OK;
}
