#include "train/pipe/again.h"

#include <math.h>

#include "plan/cut/pipe.h"
#include "trace/read/stages.h"

enum { TRACE_BYTES = 1 << 20 }; /* of each trace: the newest steps */

/* What layers [a, b) take in a step: all micro-batches with the update. */
static double work_ns(const ru_pipe_layers *l, uint32_t a, uint32_t b)
{
    double ns = 0;
    for (uint32_t k = a; k < b; k++) {
        ns += (double)(l->forward_ns[k] + l->backward_ns[k] + l->update_ns[k]);
    }
    return ns;
}

ru_status ru_pipe_runs_read(const ru_pipe_layers *l, const char *run, ru_arena *arena,
                            ru_pipe_runs *r, ru_err *err)
{
    uint32_t n = r->n_cut + 1, *first, n_traces;
    ru_trace *traces;
    ru_trace_clocks clocks;
    ru_trace_pipe p;
    RU_TRY(rui_pipe_firsts(l, r->cut, r->n_cut, arena, &first, err));
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
        double said = work_ns(l, first[k], first[k + 1]);
        if (x->trace == UINT32_MAX || x->steps == 0 || !(said > 0) || !(all > 0)) {
            return RU_FAIL(err, RU_E_MISSING, "no records of stage %u", k + 1);
        }
        r->speed[k] = fmin(fmax(said / all, RU_PIPE_SPEED_MIN), RU_PIPE_SPEED_MAX);
    }
    for (uint32_t k = 0; k < p.n_flows; k++) {
        bytes += (double)p.flows[k].bytes * (double)p.flows[k].n;
        ns += (double)p.flows[k].xfer_ns * (double)p.flows[k].n;
    }
    r->bytes_per_s = bytes > 0 && ns > 0 ? 1e9 * bytes / ns : r->bytes_per_s;
    return RU_OK;
}

ru_status ru_pipe_cut_again(const ru_pipe_layers *l, const ru_pipe_runs *r, ru_arena *arena,
                            double *was_s, ru_pipe_choice *out, ru_err *err)
{
    ru_pipe_layers as = *l;
    as.speeds = r->speed;
    RU_TRY(ru_pipe_given(&as, r->cut, r->n_cut, r->bytes_per_s, arena, was_s, err));
    RU_TRY(ru_pipe_choose(&as, r->n_cut + 1, r->bytes_per_s, arena, out, err));
    return out->n_cut == r->n_cut ? RU_OK
                                  : RU_FAIL(err, RU_E_INFEASIBLE, "%u layers do not make %u stages",
                                            l->n, r->n_cut + 1);
}
