/* Servers: members that compute nothing and add the gradients of the others.
 *
 *   worker   gradients of a bucket --> its server: adds them by rank of the workers
 *   server   the sum --> every member, small ranks first: the order in which the next step reads
 *   who computes nothing sends a sixty-fourth of its zeros: it has begun (plan/net/coll.h)
 *
 * The leader computes, since it measures and plans; of the others that hold the whole state the
 * oldest serve, as many as the job asks for. Servers hold and update all parameters as everybody
 * does, so a view without a dead one goes on from the same step, with the next member in its place.
 * Who serves, and what, follows from view and table on every member alike; ranks come with GO.
 *
 * Source: tictac-2019 sec 5 for the order at the sender. Thread: loop only. */
#include <stdlib.h>

#include "base/log.h"
#include "train/elastic/elastic_impl.h"

void rui_el_servers_mark(const ru_elastic *e, rui_el_view *v, ru_node_id leader)
{
    uint32_t full = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        v->at[i].serves = false;
        full += v->at[i].full ? 1 : 0;
    }
    v->servers = e->opt.servers < full ? e->opt.servers : full > 0 ? full - 1 : 0;
    uint32_t left = v->servers;
    for (uint32_t i = 0; i < v->n && left > 0; i++) {
        v->at[i].serves = v->at[i].full && !ru_node_is(v->at[i].node, leader);
        left -= v->at[i].serves ? 1 : 0;
    }
}

void rui_el_servers_tell(const ru_elastic *e, ru_effects *fx)
{
    if (e->opt.servers > 0) {
        ru_fx_log(fx, e->v.servers < e->opt.servers ? RU_LOG_WARN : RU_LOG_INFO,
                  "%u of %u servers add the gradients of %u worker%s", e->v.servers, e->opt.servers,
                  e->v.workers, e->v.workers == 1 ? "" : "s");
    }
}

/* The next bucket goes to the server with the fewest bytes so far; of each member. */
static uint32_t next_server(const ru_elastic *e, int64_t size_bytes, int64_t *bytes)
{
    uint32_t best = e->v.n;
    for (uint32_t i = 0; i < e->v.n; i++) {
        bool serves = e->v.at[i].serves;
        best = serves && (best == e->v.n || bytes[i] < bytes[best]) ? i : best;
    }
    RU_CHECK(best < e->v.n);
    bytes[best] += size_bytes;
    return best;
}

static void share_buckets(ru_elastic *e)
{
    int64_t bytes[RUI_EL_PROBED_MAX] = {0};
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        rui_el_bucket *at = &e->reduce.buckets[b];
        at->root = (uint16_t)next_server(e, at->part.size_bytes, bytes);
    }
}

/* -- memory -------------------------------------------------------------------------------------
 */

/* What workers send of the chunks under way stands aside until it is added in their order. */
ru_status rui_el_servers_fit(ru_elastic *e, const ru_elastic_part *parts, uint32_t n, ru_err *err)
{
    int64_t bytes[RUI_EL_PROBED_MAX] = {0};
    for (uint32_t i = 0; i < e->v.n; i++) {
        e->v.at[i].aside_said_bytes = e->v.at[i].aside_bytes = 0;
    }
    for (uint32_t b = 0; b < n; b++) {
        rui_el_member *m = &e->v.at[next_server(e, parts[b].size_bytes, bytes)];
        int64_t once = rui_el_lanes_bytes(&e->v.choice[b], parts[b].size_bytes);
        uint32_t idle = e->v.n > e->v.workers ? e->v.n - 1 - e->v.workers : 0;
        m->aside_said_bytes += once * e->v.workers + once * idle / RU_COLL_IDLE_BLOCKS;
    }
    for (uint32_t i = 0; i < e->v.n; i++) {
        const rui_el_member *m = &e->v.at[i];
        if (m->free_bytes > 0 && m->aside_said_bytes > m->free_bytes) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "worker %u has %lld MiB of free memory, but a server that adds the "
                           "gradients of %u others needs %lld MiB; start fewer workers or raise "
                           "train.servers",
                           m->number, (long long)(m->free_bytes >> 20), e->v.workers,
                           (long long)(m->aside_said_bytes >> 20));
        }
    }
    return RU_OK;
}

bool rui_el_servers_fit_two(const ru_elastic *e)
{
    bool all = true;
    for (uint32_t i = 0; i < e->v.n; i++) {
        const rui_el_member *m = &e->v.at[i];
        all = all && (m->free_bytes == 0 || 2 * m->aside_said_bytes <= m->free_bytes / 2);
    }
    return all;
}

/* -- ranks --------------------------------------------------------------------------------------
 */

typedef struct placed {
    uint32_t rank, bucket;
} placed;

static int sooner(const void *x, const void *y)
{
    const placed *a = x, *b = y;
    return a->rank != b->rank ? (a->rank < b->rank ? -1 : 1) : a->bucket < b->bucket ? -1 : 1;
}

ru_status rui_el_ranks_write(const ru_elastic *e, const ru_elastic_part *parts, uint32_t n,
                             ru_arena *arena, ru_wire_out *w, ru_err *err)
{
    uint32_t *rank = RU_NEW(arena, uint32_t, e->opt.n_tensors);
    placed *at = RU_NEW(arena, placed, n);
    uint16_t *place = RU_NEW(arena, uint16_t, n);
    if (rank == NULL || at == NULL || place == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the order of %u sums", n);
    }
    for (uint32_t k = 0; k < e->opt.n_tensors; k++) {
        rank[k] = e->opt.n_tensors - 1 - k;
    }
    if (e->opt.order != NULL) {
        e->opt.order(e->opt.news_self, rank);
    }
    for (uint32_t b = 0; b < n; b++) {
        at[b] = (placed){UINT32_MAX, b};
        for (uint32_t k = parts[b].first; k < parts[b].first + parts[b].n; k++) {
            at[b].rank = rank[k] < at[b].rank ? rank[k] : at[b].rank;
        }
    }
    qsort(at, n, sizeof *at, sooner);
    for (uint32_t k = 0; k < n; k++) {
        place[at[k].bucket] = (uint16_t)k;
    }
    for (uint32_t b = 0; b < n; b++) {
        ru_wire_put_u16(w, place[b]);
    }
    return RU_OK;
}

ru_status rui_el_ranks_read(ru_elastic *e, ru_wire_in *w, ru_err *err)
{
    ru_arena *arena = &e->view_arena[e->view_side];
    uint32_t n = e->reduce.n_buckets;
    bool *taken = RU_NEW(arena, bool, n);
    if (taken == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the order of %u sums", n);
    }
    for (uint32_t b = 0; b < n; b++) {
        uint32_t rank = ru_wire_u16(w);
        if (w->bad || rank >= n || taken[rank]) {
            return RU_FAIL(err, RU_E_DATA,
                           "the leader's order of sums does not name each once; start all workers "
                           "with the same job and version");
        }
        taken[rank] = true;
        e->reduce.buckets[b].rank = (uint16_t)rank;
    }
    share_buckets(e);
    return RU_OK;
}
