/* A process that is stopped and continued: all its threads stand still, so the timers of its loop
 * run late by about the length of each pause, many times as long as on other ranks.
 *
 * A quota of processor time stops a process too, but it is known: its ops take longer then. */
#include <math.h>
#include <string.h>

#include "trace/read/cause_impl.h"
#include "trace/read/fold.h"

enum { PAUSES_MIN = 5 };
/* Timers of a loop on a busy machine (load of 8 a core) run late by 5 ms in the middle, seldom by
 * 30. */
#define PAUSE_MIN_NS   INT64_C(40000000)
#define OTHERS_TIMES   4
#define PAUSE_COST_MIN 0.05

typedef struct pauses {
    int64_t n, first_ns; /* global */
    double all_ns, middle_ns;
} pauses;

static bool is_late(const ru_trace *t, const ru_record *r)
{
    const ru_trace_name *name = r->name < t->n_names ? &t->names[r->name] : NULL;
    return r->kind == RU_REC_ASYNC && r->dur_ns >= PAUSE_MIN_NS && name != NULL &&
           strcmp(name->category, "env") == 0 && strcmp(name->name, "timer late") == 0;
}

/* Several timers may wait for one pause: what lies within a pause that is counted does not count.
 */
static ru_status find(const rui_causes *w, uint32_t k, pauses *out, ru_err *err)
{
    const ru_trace *t = &w->traces[k];
    *out = (pauses){.first_ns = INT64_MAX};
    int64_t most = 1;
    for (uint32_t h = 0; h < t->n_threads; h++) {
        for (int64_t i = 0; i < t->threads[h].n; i++) {
            most += is_late(t, &t->threads[h].records[i]);
        }
    }
    double *took = RU_NEW(w->arena, double, most);
    if (took == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the causes is full");
    }
    for (uint32_t h = 0; h < t->n_threads; h++) {
        int64_t end_ns = INT64_MIN;
        for (int64_t i = 0; i < t->threads[h].n; i++) {
            const ru_record *r = &t->threads[h].records[i];
            if (!is_late(t, r) || r->start_ns < end_ns) {
                continue;
            }
            end_ns = r->start_ns + r->dur_ns;
            int64_t at_ns = ru_trace_global(w->clocks, k, r->start_ns);
            out->first_ns = at_ns < out->first_ns ? at_ns : out->first_ns;
            out->all_ns += (double)r->dur_ns;
            took[out->n++] = (double)r->dur_ns;
        }
    }
    out->middle_ns = out->n > 0 ? rui_median(took, out->n) : 0;
    return RU_OK;
}

static int64_t step_at(const ru_rank_steps *s, int64_t global_ns)
{
    for (int64_t i = 0; i < s->n; i++) {
        if (s->at[i].end_ns >= global_ns) {
            return i >= RUI_SIDE_MIN ? s->at[i].step : 0;
        }
    }
    return 0;
}

ru_status rui_cause_pauses(rui_causes *w, ru_err *err)
{
    pauses *p = RU_NEW(w->arena, pauses, w->n);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the causes is full");
    }
    for (uint32_t k = 0; k < w->n; k++) {
        RU_TRY(find(w, k, &p[k], err));
    }
    for (uint32_t k = 0; k < w->n; k++) {
        int64_t others = 0;
        double wall_ns = 0;
        for (uint32_t j = 0; j < w->n; j++) {
            if (j != k) {
                w->scratch[others++] = p[j].all_ns;
            }
        }
        double usual_ns = others > 0 ? rui_median(w->scratch, others) : 0;
        for (int64_t i = 0; i < w->steps[k].n; i++) {
            wall_ns += (double)(w->steps[k].at[i].end_ns - w->steps[k].at[i].start_ns);
        }
        bool stops = p[k].n >= PAUSES_MIN && p[k].all_ns >= OTHERS_TIMES * usual_ns &&
                     p[k].all_ns >= PAUSE_COST_MIN * wall_ns;
        if (!stops || ru_trace_meta_get(&w->traces[k], RU_TRACE_QUOTA) != NULL) {
            continue;
        }
        w->paused[k] = true;
        w->slow[k] = (ru_cause){0}; /* its ops stand still with it */
        rui_cause_name(w, (ru_cause){.kind = RU_CAUSE_PAUSE,
                                     .trace = k,
                                     .since_step = step_at(&w->steps[k], p[k].first_ns),
                                     .factor = p[k].middle_ns * 1e-9,
                                     .cost = fmin(p[k].all_ns / wall_ns, 1)});
    }
    return RU_OK;
}
