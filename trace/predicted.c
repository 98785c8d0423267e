#include "trace/predicted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRANSFER_MIN = 16384 /* bytes: smaller ones measure how soon processes wake up */ };

/* One end of a transfer, or one rank's part of a sum, on the clock of all. */
typedef struct end {
    uint64_t flow;
    int64_t start_ns, end_ns;
    int64_t said_ns;
    uint32_t step;
    uint16_t kind, bucket;
    bool wanted, known; /* began late enough; its clock was measured */
} end;

/* What somebody predicted, and what was measured. */
typedef struct pair {
    const char *name;
    double said, took; /* ns */
} pair;

typedef struct work {
    const ru_trace_clocks *clocks;
    end *ends;   /* [n_ends] */
    pair *pairs; /* [n_pairs] */
    int64_t n_ends, n_pairs;
} work;

static void put(work *w, const char *name, int64_t said_ns, int64_t took_ns)
{
    if (said_ns > 0 && took_ns > 0) {
        w->pairs[w->n_pairs++] = (pair){name, (double)said_ns, (double)took_ns};
    }
}

static bool is_end(const ru_record *r, const ru_record_more *m)
{
    return m != NULL && (m->flags & (RU_REC_FAILED | RU_REC_MESSAGE)) == 0 &&
           (r->kind == RU_REC_SUM ||
            ((r->kind == RU_REC_SEND || r->kind == RU_REC_RECV) && r->value >= TRANSFER_MIN));
}

static bool is_span(const ru_record *r)
{
    return r->kind == RU_REC_SPAN || r->kind == RU_REC_ASYNC;
}

/* Two ends make at most one pair as a transfer, or as a sum and a part of a step. */
static ru_status room(work *w, const ru_trace *traces, uint32_t n, ru_arena *arena, ru_err *err)
{
    int64_t ends = 0, spans = 0;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t h = 0; h < traces[k].n_threads; h++) {
            const ru_trace_thread *t = &traces[k].threads[h];
            for (int64_t i = 0; i < t->n; i++) {
                spans += is_span(&t->records[i]) && t->records[i].predicted_ns > 0;
                ends += is_end(&t->records[i], ru_trace_more(t, &t->records[i]));
            }
        }
    }
    w->ends = RU_NEW(arena, end, ends + 1);
    w->pairs = RU_NEW(arena, pair, spans + ends + 1);
    if (w->ends == NULL || w->pairs == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the errors of predictions is full");
    }
    return RU_OK;
}

/* Takes spans as they are, ends for later. */
static void collect(work *w, const ru_trace *traces, uint32_t k, int64_t since_ns)
{
    const ru_trace *t = &traces[k];
    for (uint32_t h = 0; h < t->n_threads; h++) {
        for (int64_t i = 0; i < t->threads[h].n; i++) {
            const ru_record *r = &t->threads[h].records[i];
            const ru_record_more *m = ru_trace_more(&t->threads[h], r);
            bool wanted = r->start_ns >= since_ns;
            if (is_span(r)) {
                put(w, t->names[r->name].category, wanted ? r->predicted_ns : 0, r->dur_ns);
            } else if (is_end(r, m)) {
                w->ends[w->n_ends++] =
                    (end){.flow = m->flow,
                          .start_ns = ru_trace_global(w->clocks, k, r->start_ns),
                          .end_ns = ru_trace_global(w->clocks, k, r->start_ns + r->dur_ns),
                          .said_ns = r->predicted_ns,
                          .step = m->step,
                          .kind = r->kind,
                          .bucket = m->rank,
                          .wanted = wanted,
                          .known = ru_trace_bound(w->clocks, k, r->start_ns) >= 0};
            }
        }
    }
}

static int by_flow(const void *pa, const void *pb)
{
    const end *a = pa, *b = pb;
    if (a->flow != b->flow) {
        return a->flow < b->flow ? -1 : 1;
    }
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

static int by_step(const void *pa, const void *pb)
{
    const end *a = pa, *b = pb;
    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

/* The receive of a send follows it, unless one of them is missing. */
static void transfers(work *w)
{
    for (int64_t i = 0; i + 1 < w->n_ends; i++) {
        const end *s = &w->ends[i], *r = s + 1;
        if (s->kind == RU_REC_SEND && r->kind == RU_REC_RECV && s->flow == r->flow &&
            s->step == r->step && s->wanted && s->known && r->known) {
            put(w, "link", s->said_ns, r->end_ns - s->start_ns);
        }
    }
}

/* Leaves of each sum the part of the rank that began last. Nobody ends a sum before all have begun
 * it: a part that begins behind the ends of others is one of a later sum. */
static void sums(work *w)
{
    int64_t kept = 0;
    for (int64_t i = 0, next; i < w->n_ends; i = next) {
        int64_t least_end = w->ends[i].end_ns;
        for (next = i + 1; next < w->n_ends && w->ends[next].flow == w->ends[i].flow &&
                           w->ends[next].kind == RU_REC_SUM && w->ends[next].start_ns < least_end;
             next++) {
            least_end = w->ends[next].end_ns < least_end ? w->ends[next].end_ns : least_end;
        }
        const end last = w->ends[next - 1];
        if (last.kind == RU_REC_SUM && next > i + 1 && last.said_ns > 0 && last.wanted) {
            put(w, "coll", last.said_ns, last.end_ns - last.start_ns);
            w->ends[kept++] = last;
        }
    }
    w->n_ends = kept;
}

/* Of each step, once for each time that it was run: a run ends where its first sum begins again. */
static void steps(work *w)
{
    qsort(w->ends, (size_t)w->n_ends, sizeof *w->ends, by_step);
    for (int64_t i = 0, next; i < w->n_ends; i = next) {
        const end *first = &w->ends[i];
        int64_t due_ns = INT64_MIN, end_ns = INT64_MIN;
        for (next = i; next < w->n_ends && w->ends[next].step == first->step; next++) {
            const end *s = &w->ends[next];
            if (next > i && s->bucket == first->bucket) {
                break;
            }
            int64_t due = s->start_ns + s->said_ns;
            due_ns = due > due_ns ? due : due_ns;
            end_ns = s->end_ns > end_ns ? s->end_ns : end_ns;
        }
        if (next > i + 1) {
            put(w, "coll step", due_ns - first->start_ns, end_ns - first->start_ns);
        }
    }
}

static int by_error(const void *pa, const void *pb)
{
    const pair *a = pa, *b = pb;
    int names = strcmp(a->name, b->name);
    if (names != 0) {
        return names;
    }
    double x = fabs(a->said - a->took) / a->took, y = fabs(b->said - b->took) / b->took;
    return x < y ? -1 : x > y;
}

static int by_lateness(const void *pa, const void *pb)
{
    const pair *a = pa, *b = pb;
    double x = a->took - a->said, y = b->took - b->said;
    return x < y ? -1 : x > y;
}

static double error_of(const pair *p)
{
    return fabs(p->said - p->took) / p->took;
}

static double lateness_of(const pair *p)
{
    return 1e-9 * (p->took - p->said);
}

/* Between the neighbours of (n - 1) q. */
static double quantile(const pair *p, int64_t n, double q, double (*value)(const pair *p))
{
    double at = (double)(n - 1) * q;
    int64_t low = (int64_t)at, high = low + 1 < n ? low + 1 : low;
    double v = value(&p[low]);
    return v + (at - (double)low) * (value(&p[high]) - v);
}

/* Of n pairs with one name, sorted by error. */
static void tell(pair *p, int64_t n, ru_predictor_error *out)
{
    double said = 0, took = 0;
    for (int64_t i = 0; i < n; i++) {
        said += p[i].said;
        took += p[i].took;
    }
    *out = (ru_predictor_error){.predictor = p->name,
                                .n = n,
                                .median = quantile(p, n, 0.5, error_of),
                                .p95 = quantile(p, n, 0.95, error_of),
                                .bias = said / took - 1};
    qsort(p, (size_t)n, sizeof *p, by_lateness);
    out->late_s = quantile(p, n, 0.5, lateness_of);
    out->late95_s = quantile(p, n, 0.95, lateness_of);
}

ru_status ru_trace_predicted(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                             int64_t last_ns, ru_arena *arena, ru_predictor_error *out,
                             uint32_t *n_out, ru_err *err)
{
    work w = {.clocks = clocks};
    RU_TRY(room(&w, traces, n, arena, err));
    for (uint32_t k = 0; k < n; k++) {
        bool all = last_ns <= 0 || traces[k].last_ns < INT64_MIN + last_ns;
        collect(&w, traces, k, all ? INT64_MIN : traces[k].last_ns - last_ns);
    }
    qsort(w.ends, (size_t)w.n_ends, sizeof *w.ends, by_flow);
    transfers(&w);
    sums(&w);
    steps(&w);
    qsort(w.pairs, (size_t)w.n_pairs, sizeof *w.pairs, by_error);
    *n_out = 0;
    for (int64_t i = 0, next; i < w.n_pairs && *n_out < RU_PREDICTORS_MAX; i = next) {
        for (next = i + 1; next < w.n_pairs && strcmp(w.pairs[i].name, w.pairs[next].name) == 0;) {
            next++;
        }
        tell(&w.pairs[i], next - i, &out[(*n_out)++]);
    }
    return RU_OK;
}
