/* Maps to start from: the baselines, each a rule of its own. */
#include <math.h>
#include <stddef.h>

#include "cost/load.h"
#include "plan/crew/moves_impl.h"

/* Load of w with object j on it as well; conn: bytes of j's pairs with objects on w. */
static int64_t load_with(const rui_moves_map *m, uint32_t j, uint32_t w, int64_t placed,
                         int64_t conn)
{
    const ru_moves_worker *k = &m->in->worker[w];
    return ru_load_ns(m->cpu_ns[w] + m->in->object[j].cpu_ns, k->cores,
                      m->net_bytes[w] + m->base[j] + placed - 2 * conn, k->bytes_per_s);
}

/* Put j, which lies nowhere, where the load is least with it, memory first. conn: [workers] zeroes,
 * and zeroes again on return. */
static void put_best(rui_moves_map *m, uint32_t j, const rui_moves_dual *dual, double misfit,
                     int64_t *conn)
{
    const ru_moves_in *in = m->in;
    int64_t placed = 0;
    for (uint32_t k = m->near_at[j]; k < m->near_at[j + 1]; k++) {
        uint32_t there = m->to[m->near[k]];
        if (there != RU_MOVES_NONE) {
            conn[there] += m->near_bytes[k];
            placed += m->near_bytes[k];
        }
    }
    int64_t need = in->object[j].state_bytes + in->object[j].data_bytes;
    uint32_t best = RU_MOVES_NONE;
    int64_t best_ns = 0;
    bool best_fits = false;
    for (uint32_t w = 0; w < in->n_workers; w++) {
        if (in->worker[w].leaving) {
            continue;
        }
        int64_t room = in->worker[w].memory_bytes;
        bool fits = room == 0 || m->memory_bytes[w] + need <= room;
        int64_t ns = load_with(m, j, w, placed, conn[w]);
        if (misfit > 0) {
            double more = dual->y[w] * rui_moves_alone_ns(m, j, w) - dual->least[j];
            ns += (int64_t)fmin(misfit * more * in->n_workers, 1e18);
        }
        if (best == RU_MOVES_NONE || fits > best_fits || (fits == best_fits && ns < best_ns)) {
            best = w;
            best_ns = ns;
            best_fits = fits;
        }
    }
    for (uint32_t k = m->near_at[j]; k < m->near_at[j + 1]; k++) {
        uint32_t there = m->to[m->near[k]];
        if (there != RU_MOVES_NONE) {
            conn[there] = 0;
        }
    }
    rui_moves_put(m, j, best);
}

static bool stays(const ru_moves_in *in, uint32_t j)
{
    uint32_t on = in->object[j].on;
    return on != RU_MOVES_NONE && !in->worker[on].leaving;
}

ru_status rui_moves_lpt(rui_moves_map *m, const rui_moves_dual *dual, double misfit,
                        ru_arena *scratch, ru_err *err)
{
    uint32_t *order = rui_moves_by_size(m, scratch);
    int64_t *conn = RU_NEW(scratch, int64_t, m->in->n_workers);
    if (order == NULL || conn == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u objects", m->n);
    }
    for (uint32_t j = 0; j < m->n; j++) {
        rui_moves_put(m, j, RU_MOVES_NONE);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        put_best(m, order[i], dual, misfit, conn);
    }
    return RU_OK;
}

ru_status rui_moves_keep(rui_moves_map *m, ru_arena *scratch, ru_err *err)
{
    uint32_t *order = rui_moves_by_size(m, scratch);
    int64_t *conn = RU_NEW(scratch, int64_t, m->in->n_workers);
    if (order == NULL || conn == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u objects", m->n);
    }
    for (uint32_t j = 0; j < m->n; j++) {
        rui_moves_put(m, j, stays(m->in, j) ? m->in->object[j].on : RU_MOVES_NONE);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->to[order[i]] == RU_MOVES_NONE) {
            put_best(m, order[i], NULL, 0, conn);
        }
    }
    return RU_OK;
}

/* Whole numbers of `total` in proportion to cores, largest remainders first. */
static void targets(const ru_moves_in *in, uint32_t total, uint32_t *target)
{
    double cores = 0;
    uint32_t left = total;
    for (uint32_t w = 0; w < in->n_workers; w++) {
        cores += in->worker[w].leaving ? 0 : in->worker[w].cores;
    }
    for (uint32_t w = 0; w < in->n_workers; w++) {
        double part = in->worker[w].leaving ? 0 : total * in->worker[w].cores / cores;
        target[w] = (uint32_t)part < left ? (uint32_t)part : left;
        left -= target[w];
    }
    while (left > 0) {
        uint32_t best = RU_MOVES_NONE;
        double most = 0;
        for (uint32_t w = 0; w < in->n_workers; w++) {
            double lacks = total * in->worker[w].cores / cores - target[w];
            if (!in->worker[w].leaving && (best == RU_MOVES_NONE || lacks > most)) {
                best = w;
                most = lacks;
            }
        }
        target[best]++;
        left--;
    }
}

/* Objects first .. end - 1: donors above their target give what has least state, to the worker that
 * lacks most. */
static void count_part(rui_moves_map *m, uint32_t first, uint32_t end, uint32_t *target,
                       uint32_t *has)
{
    const ru_moves_in *in = m->in;
    targets(in, end - first, target);
    for (uint32_t w = 0; w < in->n_workers; w++) {
        has[w] = 0;
    }
    for (uint32_t j = first; j < end; j++) {
        rui_moves_put(m, j, stays(in, j) ? in->object[j].on : RU_MOVES_NONE);
        if (m->to[j] != RU_MOVES_NONE) {
            has[m->to[j]]++;
        }
    }
    for (;;) {
        uint32_t give = RU_MOVES_NONE, most = RU_MOVES_NONE;
        for (uint32_t j = first; j < end; j++) {
            bool loose = m->to[j] == RU_MOVES_NONE;
            bool surplus = !loose && has[m->to[j]] > target[m->to[j]];
            if ((loose || surplus) && (give == RU_MOVES_NONE ||
                                       in->object[j].state_bytes < in->object[give].state_bytes)) {
                give = j;
            }
        }
        if (give == RU_MOVES_NONE) {
            break;
        }
        for (uint32_t w = 0; w < in->n_workers; w++) {
            if (!in->worker[w].leaving &&
                (most == RU_MOVES_NONE ||
                 (int64_t)target[w] - has[w] > (int64_t)target[most] - has[most])) {
                most = w;
            }
        }
        if (m->to[give] != RU_MOVES_NONE) {
            has[m->to[give]]--;
        }
        has[most]++;
        rui_moves_put(m, give, most);
    }
}

ru_status rui_moves_count(rui_moves_map *m, ru_arena *scratch, ru_err *err)
{
    uint32_t *target = RU_NEW(scratch, uint32_t, m->in->n_workers);
    uint32_t *has = RU_NEW(scratch, uint32_t, m->in->n_workers);
    if (target == NULL || has == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", m->in->n_workers);
    }
    count_part(m, 0, m->in->n_executors, target, has);
    count_part(m, m->in->n_executors, m->n, target, has);
    return RU_OK;
}
