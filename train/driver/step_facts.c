#include "train/driver/step_facts.h"

#include <math.h>
#include <string.h>

#include "env/file/file.h"
#include "trace/read/steps.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory for the steps of the run");
}

/* Items of all tasks that the trace has. */
static int64_t items_of(const ru_trace *t)
{
    int64_t items = 0;
    for (uint32_t h = 0; h < t->n_threads; h++) {
        for (int64_t i = 0; i < t->threads[h].n; i++) {
            const ru_record *r = &t->threads[h].records[i];
            bool task = r->kind == RU_REC_SPAN && ru_trace_more(&t->threads[h], r) != NULL;
            items += task ? r->value : 0;
        }
    }
    return items;
}

/* all: items of all ranks, which count once in each round of a clock. */
static ru_step_fact fact_of(const ru_trace *t, const ru_rank_steps *s, const ru_world_job *job,
                            int64_t all)
{
    double share = all > 0 ? (double)items_of(t) / (double)all : 0;
    double n = (double)s->n, square = 0, mean = (double)s->step_ns / n;
    int64_t least = INT64_MAX, most = 0;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t took = s->at[i].end_ns - s->at[i].start_ns;
        square += ((double)took - mean) * ((double)took - mean);
        least = took < least ? took : least;
        most = took > most ? took : most;
    }
    return (ru_step_fact){.job = job->name,
                          .rank = ru_trace_number(t),
                          .samples = (int64_t)(share * (double)job->batch + 0.5),
                          .batch = job->batch,
                          .compute_ns = (double)s->total_ns[RU_STEP_COMPUTE] / n,
                          .network_ns = (double)s->total_ns[RU_STEP_NETWORK] / n,
                          .input_ns = (double)s->total_ns[RU_STEP_INPUT] / n,
                          .wait_ns = (double)s->total_ns[RU_STEP_PEER] / n,
                          .took = {.count = s->n,
                                   .mean_ns = mean,
                                   .stddev_ns = sqrt(square / n),
                                   .min_ns = least,
                                   .max_ns = most}};
}

ru_status ru_step_facts(const char *run, int64_t bytes_max, ru_arena *arena, ru_world *w,
                        ru_err *err)
{
    ru_trace *traces;
    ru_trace_clocks clocks;
    uint32_t n;
    const char *dir = ru_path_join(arena, run, "trace");
    if (dir == NULL) {
        return full(err);
    }
    if (w->facts.steps.n > 0 || w->jobs.n == 0 || !ru_path_is_dir(dir)) {
        return RU_OK;
    }
    RU_TRY(ru_trace_run_load_end(run, bytes_max, arena, &traces, &n, err));
    ru_rank_steps *steps = RU_NEW(arena, ru_rank_steps, n);
    ru_step_fact *facts = RU_NEW(arena, ru_step_fact, n);
    if (steps == NULL || facts == NULL) {
        return full(err);
    }
    RU_TRY(ru_trace_align(traces, n, arena, &clocks, err));
    RU_TRY(ru_trace_steps(traces, n, &clocks, arena, steps, err));
    uint32_t ranks = 0;
    int64_t all = 0;
    for (uint32_t k = 0; k < n; k++) {
        all += items_of(&traces[k]);
    }
    for (uint32_t k = 0; k < n; k++) {
        if (steps[k].n > 0) {
            facts[ranks++] = fact_of(&traces[k], &steps[k], &w->jobs.at[0], all);
        }
    }
    for (uint32_t k = 0; k < ranks; k++) {
        facts[k].workers = ranks;
    }
    w->facts.steps.at = facts;
    w->facts.steps.n = ranks;
    return RU_OK;
}
