/* What collectives cost between these members: a short probe before the first step of a view.
 *
 * Every member runs the same list of all-reduces, in turns (an estimate that the kernel keeps of
 * a connection favours whoever ran last); the leader takes the time of
 * each from its own begin to its own end, keeps the best of the repetitions and fits the formulas
 * of cost/coll. The sum of a later one cannot begin before the earlier one has ended anywhere it
 * matters, because every rank has a part in every sum. */
#include <string.h>

#include "base/log.h"
#include "train/elastic_impl.h"

enum { PROBE_SIZES = 3, PROBE_REPEATS = 3, LARGEST_BYTES = 1 << 20 };

static const ru_coll_algo algos[] = {RU_ALGO_RING, RU_ALGO_HALVING, RU_ALGO_DOUBLING,
                                     RU_ALGO_DIRECT};
static const int64_t part_of[PROBE_SIZES] = {256, 16, 1}; /* of the largest */

enum { PROBES = RU_ARRAY_LEN(algos) * PROBE_SIZES };

bool rui_el_probe_due(const ru_elastic *e)
{
    return e->v.n > 1 && e->v.n <= RUI_EL_PROBED_MAX && !e->v.local && !e->opt.deterministic &&
           !e->opt.counted && e->probed_n != e->v.n;
}

static int64_t size_of(const ru_elastic *e, uint32_t k)
{
    int64_t most = e->opt.probe_bytes > 0 ? e->opt.probe_bytes : LARGEST_BYTES;
    return most / part_of[k];
}

static void next_probe(ru_elastic *e, ru_time now)
{
    e->probe_begun_ns = now.ns;
    uint32_t batch = e->probe_at % PROBES;
    ru_span span = {.data = e->probe_span.data, .size_bytes = size_of(e, batch % PROBE_SIZES)};
    ru_err err;
    ru_status st =
        ru_coll_begin(e->probe, batch, e->probe_at / PROBES, &span, 1, (ru_time){0}, now, &err);
    if (st != RU_OK && st != RU_E_PEER) {
        ru_fx_log(e->fx, RU_LOG_ERROR, "measuring the network: %s", err.text);
    }
}

static void probe_done(void *self, uint32_t batch, uint32_t iter, ru_time now)
{
    (void)iter;
    ru_elastic *e = self;
    if (e->phase != RUI_EL_PROBE) {
        return;
    }
    int64_t took = now.ns - e->probe_begun_ns;
    if (e->probe_ns[batch] == 0 || took < e->probe_ns[batch]) {
        e->probe_ns[batch] = took > 0 ? took : 1;
    }
    if (++e->probe_at < PROBES * PROBE_REPEATS) {
        next_probe(e, now);
    } else {
        rui_el_tell(e, RUI_EL_PROBED_MSG, now, e->fx);
    }
}

static void probe_failed(void *self, ru_node_id peer, ru_status why, ru_time now)
{
    ru_elastic *e = self;
    rui_el_lost(e, peer, why, now);
}

static ru_status open_probe(ru_elastic *e, ru_err *err)
{
    ru_arena *arena = &e->view_arena[e->view_side];
    ru_node_id *nodes = RU_NEW(arena, ru_node_id, e->v.n);
    ru_coll_batch *batches = RU_NEW(arena, ru_coll_batch, PROBES);
    const ru_coll_schedule **schedules = RU_NEW(arena, const ru_coll_schedule *, PROBES);
    e->probe_ns = RU_NEW(arena, int64_t, PROBES);
    e->probe_span.data = ru_arena_zalloc(arena, size_of(e, PROBE_SIZES - 1), 64);
    if (nodes == NULL || batches == NULL || schedules == NULL || e->probe_ns == NULL ||
        e->probe_span.data == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to measure the network");
    }
    for (uint32_t i = 0; i < e->v.n; i++) {
        nodes[i] = e->v.at[i].node;
    }
    for (uint32_t a = 0; a < RU_ARRAY_LEN(algos); a++) {
        const ru_coll_schedule *s;
        RU_TRY(rui_el_schedule(e, algos[a], arena, &s, err));
        for (uint32_t k = 0; k < PROBE_SIZES; k++) {
            schedules[a * PROBE_SIZES + k] = s;
            batches[a * PROBE_SIZES + k] = (ru_coll_batch){.op = RU_COLL_ALL_REDUCE,
                                                           .algo = algos[a],
                                                           .dtype = RU_F32,
                                                           .n = size_of(e, k) / 4,
                                                           .class = RU_CLASS_NORMAL};
        }
    }
    ru_coll_options opt = {.chan = e->opt.chan,
                           .nodes = nodes,
                           .n_ranks = e->v.n,
                           .rank = e->v.me,
                           .epoch = e->v.epoch | RUI_EL_PROBE_EPOCH,
                           .batches = batches,
                           .schedules = schedules,
                           .n_batches = PROBES};
    const ru_coll_user user = {.self = e, .done = probe_done, .failed = probe_failed};
    return ru_coll_open(&opt, &user, arena, &e->probe, err);
}

void rui_el_probe_begin(ru_elastic *e, ru_time now, ru_effects *fx)
{
    ru_err err;
    e->fx = fx;
    ru_status st = open_probe(e, &err);
    if (st != RU_OK) {
        ru_fx_log(fx, RU_LOG_ERROR, "%s", err.text);
        return;
    }
    e->phase = RUI_EL_PROBE;
    e->probe_at = 0;
    next_probe(e, now);
}

ru_status rui_el_probe_fit(ru_elastic *e, ru_err *err)
{
    for (uint32_t a = 0; a < RU_ARRAY_LEN(algos); a++) {
        ru_coll_point points[PROBE_SIZES];
        for (uint32_t k = 0; k < PROBE_SIZES; k++) {
            points[k] = (ru_coll_point){.size_bytes = size_of(e, k),
                                        .ns = e->probe_ns[a * PROBE_SIZES + k]};
        }
        RU_TRY(ru_cost_coll_fit(RU_COLL_ALL_REDUCE, algos[a], e->v.n, points, PROBE_SIZES,
                                &e->costs[algos[a]], err));
    }
    /* Trees cost steps and bytes like the others on the same links. */
    e->costs[RU_ALGO_TREE] = e->costs[RU_ALGO_DOUBLE_TREE] = e->costs[RU_ALGO_DOUBLING];
    e->probed_n = e->v.n;
    return RU_OK;
}
