/* The methods beside pollux: each gives every job a number of replicas, then nodes. */
#include <math.h>
#include <stddef.h>

#include "base/heap.h"
#include "plan/fleet/alloc_impl.h"

/* Jobs in the order in which a method serves them: by key, then by arrival. */
static ru_status order_by(const double *key, uint32_t n, ru_arena *a, uint32_t *order, ru_err *err)
{
    uint32_t *other = RU_NEW(a, uint32_t, n);
    if (other == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to sort %u jobs", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (uint64_t width = 1; width < n; width *= 2) { /* merges keep equal keys in order */
        for (uint64_t at = 0; at < n; at += 2 * width) {
            uint64_t mid = at + width < n ? at + width : n, end = at + 2 * width;
            end = end < n ? end : n;
            uint64_t x = at, y = mid;
            for (uint64_t k = at; k < end; k++) {
                bool left = x < mid && (y >= end || key[order[x]] <= key[order[y]]);
                other[k] = left ? order[x++] : order[y++];
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            order[i] = other[i];
        }
    }
    return RU_OK;
}

/* Devices from the node that has most free, again and again. False: the job needs more nodes than
 * it may have, or there are not enough devices. */
static bool place(rui_alloc_state *s, const ru_alloc_in *in, uint32_t job, uint32_t replicas)
{
    uint32_t left = replicas;
    while (left > 0) {
        uint32_t best = 0;
        for (uint32_t n = 1; n < in->n_nodes; n++) {
            best = s->open[n] > s->open[best] ? n : best;
        }
        uint32_t take = s->open[best] < left ? s->open[best] : left;
        if (take == 0 || s->n_parts[job] == s->spread) {
            while (s->n_parts[job] > 0) {
                const ru_alloc_part *p = &s->parts[(size_t)job * s->spread];
                rui_alloc_take(s, job, p->node, p->devices);
            }
            return false;
        }
        rui_alloc_give(s, job, best, take);
        left -= take;
    }
    return true;
}

/* Those that keep their replicas stay where they are, the others are placed in this order. */
static void place_all(const ru_alloc_in *in, rui_alloc_state *s, const uint32_t *want,
                      const uint32_t *order)
{
    for (uint32_t j = 0; j < in->n_jobs; j++) {
        const ru_alloc_job *job = &in->jobs[j];
        uint32_t k = 0;
        bool fits = job->n_now > 0 && job->n_now <= s->spread;
        for (uint32_t i = 0; i < job->n_now; i++) {
            k += job->now[i].devices;
            fits = fits && s->open[job->now[i].node] >= job->now[i].devices;
        }
        for (uint32_t i = 0; fits && k == want[j] && i < job->n_now; i++) {
            rui_alloc_give(s, j, job->now[i].node, job->now[i].devices);
        }
    }
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        uint32_t j = order[i];
        if (want[j] > 0 && s->k[j] == 0) {
            (void)place(s, in, j, want[j]); /* it waits when there is no room */
        }
    }
}

static double step_of(const ru_alloc_in *in, uint32_t job, uint32_t replicas, uint32_t most)
{
    const ru_alloc_job *j = &in->jobs[job];
    if (j->n_step > 0) {
        return j->step_s[(replicas < j->n_step ? replicas : j->n_step) - 1];
    }
    const ru_goodput_model *m = &j->model;
    if (!(m->perf.overlap >= 1)) {
        return 1.0 / replicas;
    }
    ru_goodput_choice c = ru_goodput_split(m, replicas, m->batch > 0 ? m->batch : m->batch_first);
    return ru_perf_step_s(&m->perf, replicas > most ? 2 : 1, replicas, c.local > 0 ? c.local : 1,
                          c.passes);
}

static double remaining_of(const ru_alloc_job *j)
{
    return j->remaining > 0 ? j->remaining : 1;
}

/* What one replica more saves, in nanoseconds; 0: it may have no more. */
static int64_t saves(const rui_alloc_values *v, uint32_t job, uint32_t replicas)
{
    const ru_alloc_job *j = &v->in->jobs[job];
    if (replicas + 1 > j->replicas_max) {
        return 0;
    }
    double s =
        (step_of(v->in, job, replicas, v->most) - step_of(v->in, job, replicas + 1, v->most)) *
        remaining_of(j);
    return (int64_t)(fmin(fmax(s, 0), 9e9) * 1e9);
}

static void push_gain(const rui_alloc_values *v, ru_heap *heap, uint32_t job, uint32_t replicas)
{
    int64_t gain = saves(v, job, replicas);
    if (gain > 0) {
        heap->pushes = job; /* equal gains: the earlier job first; each is in the heap once */
        RU_CHECK(ru_heap_push(heap, -gain, job) == RU_OK);
    }
}

/* Source: peng-2018 sec 4.1. */
static ru_status optimus(rui_alloc_values *v, uint32_t *want, ru_arena *scratch, ru_err *err)
{
    uint32_t n = v->in->n_jobs, left = v->total;
    ru_heap_item *items = RU_NEW(scratch, ru_heap_item, (int64_t)n + 1);
    if (items == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u jobs", n);
    }
    ru_heap heap;
    ru_heap_init(&heap, items, n + 1);
    for (uint32_t j = 0; j < n; j++) {
        uint32_t least = v->in->jobs[j].replicas_min > 1 ? v->in->jobs[j].replicas_min : 1;
        want[j] = least <= left ? least : 0;
        left -= want[j];
    }
    for (uint32_t j = 0; j < n && left > 0; j++) {
        if (want[j] > 0) {
            push_gain(v, &heap, j, want[j]);
        }
    }
    ru_heap_item item;
    for (; left > 0 && ru_heap_pop(&heap, &item); left--) {
        uint32_t j = (uint32_t)item.value;
        want[j]++;
        push_gain(v, &heap, j, want[j]);
    }
    return RU_OK;
}

/* Requested replicas in this order while they fit; those behind may go ahead. */
static void serve(const rui_alloc_values *v, const uint32_t *order, uint32_t *want, bool preempts)
{
    const ru_alloc_in *in = v->in;
    uint32_t left = v->total;
    for (uint32_t pass = preempts ? 1 : 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < in->n_jobs; i++) {
            const ru_alloc_job *job = &in->jobs[order[i]];
            bool mine = preempts || (pass == 0) == (job->n_now > 0);
            if (mine && job->replicas <= left) {
                want[order[i]] = job->replicas;
                left -= job->replicas;
            }
        }
    }
}

/* Jobs that have used up the upper queue go to the end of the lower one and stay there.
 * Source: gu-2019 sec 4.2 (two queues). */
static void demote(const ru_alloc_in *in, uint32_t *demoted, double *key)
{
    double limit = in->demote_s > 0 ? in->demote_s : 57600;
    uint32_t last = 0;
    for (uint32_t j = 0; j < in->n_jobs; j++) {
        demoted[j] = in->jobs[j].demoted;
        last = demoted[j] > last ? demoted[j] : last;
    }
    for (uint32_t j = 0; j < in->n_jobs; j++) {
        if (demoted[j] == 0 && in->jobs[j].service_s >= limit) {
            demoted[j] = last < UINT32_MAX ? ++last : last;
        }
        key[j] = demoted[j];
    }
}

ru_status rui_alloc_rules(rui_alloc_values *v, rui_alloc_state *s, uint32_t *demoted,
                          ru_arena *scratch, ru_err *err)
{
    const ru_alloc_in *in = v->in;
    uint32_t *want = RU_NEW(scratch, uint32_t, in->n_jobs);
    uint32_t *order = RU_NEW(scratch, uint32_t, in->n_jobs);
    double *key = RU_NEW(scratch, double, in->n_jobs);
    if (want == NULL || order == NULL || key == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u jobs", in->n_jobs);
    }
    for (uint32_t j = 0; j < in->n_jobs; j++) {
        const ru_alloc_job *job = &in->jobs[j];
        key[j] =
            in->method == RU_ALLOC_SRTF
                ? remaining_of(job) * step_of(in, j, job->replicas > 0 ? job->replicas : 1, v->most)
                : 0;
    }
    if (in->method == RU_ALLOC_TIRESIAS) {
        demote(in, demoted, key);
    }
    if (in->method == RU_ALLOC_OPTIMUS) {
        RU_TRY(optimus(v, want, scratch, err));
        for (uint32_t j = 0; j < in->n_jobs; j++) {
            key[j] = want[j];
        }
    }
    RU_TRY(order_by(key, in->n_jobs, scratch, order, err));
    if (in->method != RU_ALLOC_OPTIMUS) {
        serve(v, order, want, in->method != RU_ALLOC_FIFO);
    }
    place_all(in, s, want, order);
    return RU_OK;
}
