#include "trace/predicted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRANSFER_MIN = 16384 /* bytes: smaller ones measure latency */ };

typedef struct group {
    const char *name;
    int64_t n, at;          /* how many; filled so far */
    double *error, *late_s; /* [n] */
    double said, took;      /* sums, ns */
} group;

typedef struct groups {
    group at[RU_PREDICTORS_MAX];
    uint32_t n;
} groups;

/* Who predicted the record's time, and how long it took; NULL: nobody. */
static const char *predictor_of(const ru_trace *t, const ru_trace_thread *thread,
                                const ru_record *r, double *took_ns)
{
    *took_ns = (double)r->dur_ns;
    if (r->predicted_ns == 0 || r->dur_ns == 0) {
        return NULL;
    }
    if (r->kind == RU_REC_SPAN || r->kind == RU_REC_ASYNC) {
        return t->names[r->name].category;
    }
    const ru_record_more *m = ru_trace_more(thread, r);
    if (m == NULL || (m->flags & RU_REC_FAILED) != 0) {
        return NULL;
    }
    if (r->kind == RU_REC_SUM) {
        return "coll";
    }
    *took_ns -= (double)m->wait_ns;
    return r->kind == RU_REC_SEND && r->value >= TRANSFER_MIN && *took_ns > 0 ? "link" : NULL;
}

static group *group_of(groups *g, const char *name)
{
    uint32_t k = 0;
    while (k < g->n && strcmp(g->at[k].name, name) != 0) {
        k++;
    }
    if (k == RU_PREDICTORS_MAX) {
        return NULL;
    }
    if (k == g->n) {
        g->at[g->n++].name = name;
    }
    return &g->at[k];
}

/* Counts when the groups have no room yet, else fills. */
static void walk(const ru_trace *t, int64_t since_ns, groups *g)
{
    for (uint32_t h = 0; h < t->n_threads; h++) {
        for (int64_t i = 0; i < t->threads[h].n; i++) {
            const ru_record *r = &t->threads[h].records[i];
            double took;
            const char *name = predictor_of(t, &t->threads[h], r, &took);
            group *to = name != NULL && r->start_ns >= since_ns ? group_of(g, name) : NULL;
            if (to == NULL) {
                continue;
            }
            if (to->error == NULL) {
                to->n++;
                continue;
            }
            to->error[to->at] = fabs((double)r->predicted_ns - took) / took;
            to->late_s[to->at++] = 1e-9 * (took - (double)r->predicted_ns);
            to->said += (double)r->predicted_ns;
            to->took += took;
        }
    }
}

static int by_value(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;
    return a < b ? -1 : a > b;
}

static int by_name(const void *pa, const void *pb)
{
    return strcmp(((const group *)pa)->name, ((const group *)pb)->name);
}

/* Between the neighbours of (n - 1) q. */
static double quantile(const double *v, int64_t n, double q)
{
    double at = (double)(n - 1) * q;
    int64_t low = (int64_t)at, high = low + 1 < n ? low + 1 : low;
    return v[low] + (at - (double)low) * (v[high] - v[low]);
}

static void tell(group *g, ru_predictor_error *out)
{
    qsort(g->error, (size_t)g->n, sizeof *g->error, by_value);
    qsort(g->late_s, (size_t)g->n, sizeof *g->late_s, by_value);
    *out = (ru_predictor_error){.predictor = g->name,
                                .n = g->n,
                                .median = quantile(g->error, g->n, 0.5),
                                .p95 = quantile(g->error, g->n, 0.95),
                                .bias = g->said / g->took - 1,
                                .late_s = quantile(g->late_s, g->n, 0.5),
                                .late95_s = quantile(g->late_s, g->n, 0.95)};
}

ru_status ru_trace_predicted(const ru_trace *traces, uint32_t n, int64_t last_ns, ru_arena *arena,
                             ru_predictor_error *out, uint32_t *n_out, ru_err *err)
{
    groups g = {0};
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t k = 0; k < n; k++) {
            bool all = last_ns <= 0 || traces[k].last_ns < INT64_MIN + last_ns;
            walk(&traces[k], all ? INT64_MIN : traces[k].last_ns - last_ns, &g);
        }
        for (uint32_t i = 0; pass == 0 && i < g.n; i++) {
            g.at[i].error = RU_NEW(arena, double, g.at[i].n);
            g.at[i].late_s = RU_NEW(arena, double, g.at[i].n);
            if (g.at[i].error == NULL || g.at[i].late_s == NULL) {
                return RU_FAIL(err, RU_E_LIMIT, "the arena for the errors of predictions is full");
            }
        }
    }
    qsort(g.at, g.n, sizeof *g.at, by_name);
    for (uint32_t i = 0; i < g.n; i++) {
        tell(&g.at[i], &out[i]);
    }
    *n_out = g.n;
    return RU_OK;
}
