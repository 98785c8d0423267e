/* The next plan of a cluster: plan/fleet/alloc.h for each priority, the highest first. */
#include <stdlib.h>
#include <string.h>

#include "cluster/book.h"

/* What a job loses while it grows or shrinks, and the time in which that must pay. */
static const double pause_s = 0.3, hold_s = 30;
static const int64_t starves_ns = 600 * INT64_C(1000000000);
static const uint32_t any_batch = 1 << 20; /* of a job of which nothing was measured */

typedef struct planner {
    const ru_book *b;
    const ru_goodput_model *models; /* by slot */
    ru_arena *scratch;
    uint32_t left[RU_BOOK_NODES_MAX]; /* slots that nobody has been given yet */
    ru_journal_event *events;         /* [n] */
    uint32_t n;
} planner;

static void put_grant(planner *p, uint32_t job, const ru_alloc_part *parts, uint32_t n)
{
    ru_text t = ru_text_arena(p->scratch);
    for (uint32_t k = 0; k < n; k++) {
        ru_text_putf(&t, "%s%u:%u", k > 0 ? " " : "", parts[k].node, parts[k].devices);
    }
    p->events[p->n++] =
        (ru_journal_event){.kind = RU_BOOK_GRANT, .job = job, .text = n > 0 ? t.p : ""};
}

/* The jobs of one priority, by their numbers, on what is left. */
static ru_status plan_some(planner *p, const uint32_t *numbers, uint32_t n, ru_err *err)
{
    ru_alloc_job *jobs = RU_NEW(p->scratch, ru_alloc_job, n);
    if (jobs == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u jobs", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        const ru_book_job *j = ru_book_job_at(p->b, numbers[i]);
        ru_sched_facts(&p->b->sched, j->slot, &jobs[i]);
        jobs[i].replicas_min = j->min;
        jobs[i].replicas_max = j->max;
        jobs[i].replicas = j->max;
        jobs[i].model = p->models[j->slot];
        if (jobs[i].model.perf.overlap < 1 || jobs[i].model.batch < j->min) {
            jobs[i].model = (ru_goodput_model){
                .batch_first = 1, .batch_max = any_batch, .local_min = 1, .local_max = any_batch};
        }
    }
    const ru_alloc_in in = {.jobs = jobs,
                            .n_jobs = n,
                            .devices = p->left,
                            .n_nodes = p->b->n_nodes,
                            .power = -1,
                            .restart_s = pause_s,
                            .hold_s = hold_s,
                            .nodes_min = 1,
                            .nodes_max = p->b->n_nodes,
                            .seed = 1};
    ru_alloc_plan plan;
    RU_TRY(ru_plan_alloc(&in, p->scratch, p->scratch, &plan, err));
    RU_TRY(ru_plan_alloc_check(&in, &plan, p->scratch, err));
    for (uint32_t i = 0; i < n; i++) {
        const ru_alloc_share *s = &plan.jobs[i];
        const ru_alloc_part *parts = &plan.parts[s->first];
        for (uint32_t k = 0; k < s->n_parts; k++) {
            p->left[parts[k].node] -= parts[k].devices;
        }
        if (s->changed) {
            put_grant(p, numbers[i], parts, s->n_parts);
        }
    }
    return RU_OK;
}

static int by_priority(const void *x, const void *y)
{
    const int64_t *a = x, *b = y;
    return a[0] != b[0] ? (a[0] > b[0] ? -1 : 1) : (a[1] > b[1]) - (a[1] < b[1]);
}

ru_status ru_book_plan(const ru_book *b, const ru_goodput_model *models, ru_arena *scratch,
                       ru_journal_event **events, uint32_t *n, ru_err *err)
{
    planner p = {.b = b, .models = models, .scratch = scratch};
    int64_t(*order)[2] = ru_arena_zalloc(scratch, (int64_t)(b->n_live + 1) * 16, 8);
    uint32_t *numbers = RU_NEW(scratch, uint32_t, b->n_live + 1), n_jobs = 0;
    p.events = RU_NEW(scratch, ru_journal_event, b->n_live + 1);
    if (order == NULL || numbers == NULL || p.events == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u jobs", b->n_live);
    }
    for (uint32_t k = 0; k < b->n_nodes; k++) {
        p.left[k] = b->nodes[k].drained ? 0 : b->nodes[k].slots;
    }
    for (uint32_t slot = 0; slot < b->sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(b, b->of[slot]);
        if (j != NULL && !j->cancelled) {
            bool starves = j->state == RU_BOOK_WAITS && b->at_ns - j->waits_ns > starves_ns;
            order[n_jobs][0] = 2 * j->priority + starves;
            order[n_jobs++][1] = b->of[slot];
        }
        for (uint32_t k = 0; j != NULL && j->cancelled && k < b->n_nodes; k++) {
            uint32_t has = ru_book_granted(b, j, k);
            p.left[k] -= has < p.left[k] ? has : p.left[k];
        }
    }
    n_jobs = b->n_nodes > 0 ? n_jobs : 0;
    qsort(order, n_jobs, sizeof *order, by_priority);
    for (uint32_t first = 0, i = 0; i < n_jobs; i++) {
        numbers[i] = (uint32_t)order[i][1];
        if (i + 1 == n_jobs || order[i + 1][0] != order[i][0]) {
            RU_TRY(plan_some(&p, &numbers[first], i + 1 - first, err));
            first = i + 1;
        }
    }
    for (uint32_t i = 0; i < p.n; i++) {
        p.events[i].a = p.n - 1 - i;
    }
    *events = p.events;
    *n = p.n;
    return RU_OK;
}
