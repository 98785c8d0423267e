#include "train/pipe/again.h"

#include <math.h>
#include <string.h>

#include "trace/read/stages.h"
#include "train/pipe/play.h"

enum { TRACE_BYTES = 1 << 20 }; /* of each trace: the newest steps */

/* first[k] [n + 1]: with which layer stage k begins. */
static ru_status list_first(const ru_pipe_layers *l, const ru_pipe_runs *r, ru_arena *arena,
                            uint32_t **out, ru_err *err)
{
    uint32_t n = r->n_cut + 1, *first = RU_NEW(arena, uint32_t, n + 1), at = 0;
    if (first == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the cut of a pipeline");
    }
    for (uint32_t k = 1; k < n; k++) {
        while (at < l->n && strcmp(l->name[at], r->cut[k - 1]) != 0) {
            at++;
        }
        first[k] = at;
    }
    first[n] = l->n;
    *out = first;
    return at < l->n ? RU_OK : RU_FAIL(err, RU_E_MISSING, "the cut is not one of measured layers");
}

/* Of layers [a, b) in a step: one part of each kind, and all micro-batches with the update. */
typedef struct work {
    double forward, backward, update, all;
} work;

static work work_of(const ru_pipe_layers *l, uint32_t a, uint32_t b)
{
    double micro = ru_pipe_micro(l->schedule, l->micro);
    work w = {0};
    for (uint32_t k = a; k < b; k++) {
        w.forward += (double)l->forward_ns[k] / micro;
        w.backward += (double)l->backward_ns[k] / micro;
        w.update += (double)l->update_ns[k];
    }
    w.all = micro * (w.forward + w.backward) + w.update;
    return w;
}

ru_status ru_pipe_runs_read(const ru_pipe_layers *l, const char *run, ru_arena *arena,
                            ru_pipe_runs *r, ru_err *err)
{
    uint32_t n = r->n_cut + 1, *first, n_traces;
    ru_trace *traces;
    ru_trace_clocks clocks;
    ru_trace_pipe p;
    RU_TRY(list_first(l, r, arena, &first, err));
    RU_TRY(ru_trace_run_load_end(run, TRACE_BYTES, arena, &traces, &n_traces, err));
    RU_TRY(ru_trace_align(traces, n_traces, arena, &clocks, err));
    RU_TRY(ru_trace_pipe_read(traces, n_traces, &clocks, arena, &p, err));
    if (p.n != n) {
        return RU_FAIL(err, RU_E_MISSING, "no records of %u stages", n);
    }
    double bytes = 0, ns = 0;
    for (uint32_t k = 0; k < n; k++) {
        const ru_stage_time *x = &p.stages[k];
        double all = p.micro * (double)(x->forward_ns + x->backward_ns) + (double)x->update_ns;
        double said = work_of(l, first[k], first[k + 1]).all;
        if (x->trace == UINT32_MAX || x->steps == 0 || !(said > 0) || !(all > 0)) {
            return RU_FAIL(err, RU_E_MISSING, "no records of stage %u", k + 1);
        }
        r->slow[k] = all / said;
    }
    for (uint32_t k = 0; k < p.n_flows; k++) {
        bytes += (double)p.flows[k].bytes * (double)p.flows[k].n;
        ns += (double)p.flows[k].xfer_ns * (double)p.flows[k].n;
    }
    r->bytes_per_s = bytes > 0 && ns > 0 ? 1e9 * bytes / ns : r->bytes_per_s;
    return RU_OK;
}

/* -- the cut ----------------------------------------------------------------------------------- */

static double link_ns(const ru_pipe_layers *l, const ru_pipe_runs *r, uint32_t behind)
{
    return 1e9 * (double)l->cross_bytes[behind] / r->bytes_per_s;
}

/* Stage k has layers [a, b): its time, or that of the link behind it, both ways. */
static double cost_ns(const ru_pipe_layers *l, const ru_pipe_runs *r, uint32_t k, uint32_t a,
                      uint32_t b)
{
    double own = r->slow[k] * work_of(l, a, b).all;
    return k < r->n_cut ? fmax(own, 2 * link_ns(l, r, b - 1)) : own;
}

static bool learns(const ru_pipe_layers *l, uint32_t a, uint32_t b)
{
    int64_t bytes = 0;
    for (uint32_t k = a; k < b; k++) {
        bytes += l->param_bytes[k];
    }
    return bytes > 0;
}

/* best[k * (L + 1) + b]: stages 0 .. k have the layers before b. */
static ru_status divide(const ru_pipe_layers *l, const ru_pipe_runs *r, ru_arena *arena,
                        uint32_t *first, ru_err *err)
{
    uint32_t n = r->n_cut + 1, wide = l->n + 1;
    double *best = RU_NEW(arena, double, (int64_t)n *wide);
    uint32_t *from = RU_NEW(arena, uint32_t, (int64_t)n * wide);
    if (best == NULL || from == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the cut of a pipeline");
    }
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t b = 0; b <= l->n; b++) {
            double *at = &best[k * wide + b];
            *at = HUGE_VAL;
            for (uint32_t a = k; a < b; a++) {
                double before = k == 0 ? (a == 0 ? 0 : HUGE_VAL) : best[(k - 1) * wide + a];
                double x = fmax(before, cost_ns(l, r, k, a, b));
                if (x < *at && learns(l, a, b)) {
                    *at = x;
                    from[k * wide + b] = a;
                }
            }
        }
    }
    first[n] = l->n;
    for (uint32_t k = n; k-- > 0;) {
        first[k] = from[k * wide + first[k + 1]];
    }
    return best[n * wide - 1] < HUGE_VAL
               ? RU_OK
               : RU_FAIL(err, RU_E_INFEASIBLE, "%u layers do not make %u stages", l->n, n);
}

static ru_status play(const ru_pipe_layers *l, const ru_pipe_runs *r, const uint32_t *first,
                      ru_arena *arena, double *s, ru_err *err)
{
    uint32_t n = r->n_cut + 1, micro = ru_pipe_micro(l->schedule, l->micro);
    int64_t *ns = RU_NEW(arena, int64_t, 3 * (int64_t)n);
    ru_pipe_play_link *link = RU_NEW(arena, ru_pipe_play_link, 2 * (int64_t)n);
    ru_pipe_play played;
    if (ns == NULL || link == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the cut of a pipeline");
    }
    for (uint32_t k = 0; k < n; k++) {
        work w = work_of(l, first[k], first[k + 1]);
        ns[k] = (int64_t)(r->slow[k] * w.forward);
        ns[n + k] = (int64_t)(r->slow[k] * w.backward);
        ns[2 * n + k] = (int64_t)(r->slow[k] * w.update);
        if (k + 1 < n) {
            int64_t sent = (int64_t)(link_ns(l, r, first[k + 1] - 1) / micro);
            link[2 * k] = (ru_pipe_play_link){k, k + 1, sent};
            link[2 * k + 1] = (ru_pipe_play_link){k + 1, k, sent};
        }
    }
    const ru_pipe_play_in in = {.n = n,
                                .micro = micro,
                                .schedule = l->schedule,
                                .forward_ns = ns,
                                .backward_ns = ns + n,
                                .update_ns = ns + 2 * n,
                                .links = link,
                                .n_links = 2 * (n - 1)};
    RU_TRY(ru_pipe_play_step(&in, arena, &played, err));
    *s = 1e-9 * (double)played.step_ns;
    return RU_OK;
}

ru_status ru_pipe_cut_again(const ru_pipe_layers *l, const ru_pipe_runs *r, ru_arena *arena,
                            ru_pipe_again *out, ru_err *err)
{
    uint32_t *was, *first = RU_NEW(arena, uint32_t, r->n_cut + 2);
    const char **cut = RU_NEW(arena, const char *, r->n_cut + 1);
    if (first == NULL || cut == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the cut of a pipeline");
    }
    RU_TRY(list_first(l, r, arena, &was, err));
    RU_TRY(divide(l, r, arena, first, err));
    RU_TRY(play(l, r, was, arena, &out->was_s, err));
    RU_TRY(play(l, r, first, arena, &out->will_s, err));
    for (uint32_t k = 1; k <= r->n_cut; k++) {
        cut[k - 1] = l->name[first[k]];
    }
    out->cut = cut;
    return RU_OK;
}
