#include "trace/read/predicted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum {
    /* Bytes: smaller ones measure how soon processes wake up. A sum that is cut evenly has chunks
     * of more than 32 KiB, so the pieces on up to 8 members count. */
    TRANSFER_MIN = 4096,
    REPEATS_MIN = 4,
};

/* One end of a transfer, or one rank's part of a sum, on the clock of all. */
typedef struct end {
    uint64_t flow;
    int64_t start_ns, end_ns;
    int64_t said_ns, bytes;
    uint64_t peer;
    uint32_t step, trace;
    uint16_t kind, bucket;
    uint16_t label; /* of its own trace */
    uint8_t chan_class;
    bool wanted, known; /* began late enough; its clock was measured */
    bool probe;         /* of a sum that measures the network before the first step */
} end;

typedef struct work {
    const ru_trace_clocks *clocks;
    end *ends;           /* [n_ends] */
    ru_predicted *pairs; /* [n_pairs] */
    int64_t n_ends, n_pairs;
} work;

static void put(work *w, const ru_predicted *p)
{
    if (p->said_ns > 0 && p->took_ns > 0) {
        w->pairs[w->n_pairs++] = *p;
    }
}

static uint64_t same_of(uint32_t trace, uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t words[] = {trace, a, b, c};
    uint64_t same = ru_hash_bytes(words, sizeof words, 0);
    return same != 0 ? same : 1;
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
    w->pairs = RU_NEW(arena, ru_predicted, spans + ends + 1);
    if (w->ends == NULL || w->pairs == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the errors of predictions is full");
    }
    return RU_OK;
}

static bool is_probe(const ru_trace *t, const ru_record_more *m)
{
    return m->label != 0 && m->label < t->n_names &&
           strcmp(t->names[m->label].category, "probe") == 0;
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
                put(w, &(ru_predicted){.predictor = t->names[r->name].category,
                                       .said_ns = wanted ? r->predicted_ns : 0,
                                       .took_ns = r->dur_ns,
                                       .same = same_of(k, r->name, (uint64_t)r->value, 0),
                                       .start_ns = ru_trace_global(w->clocks, k, r->start_ns),
                                       .size_bytes = r->value,
                                       .trace = k,
                                       .step = m != NULL ? m->step : 0});
            } else if (is_end(r, m)) {
                w->ends[w->n_ends++] =
                    (end){.flow = m->flow,
                          .start_ns = ru_trace_global(w->clocks, k, r->start_ns),
                          .end_ns = ru_trace_global(w->clocks, k, r->start_ns + r->dur_ns),
                          .said_ns = r->predicted_ns,
                          .bytes = r->value,
                          .peer = m->peer,
                          .step = m->step,
                          .trace = k,
                          .kind = r->kind,
                          .bucket = m->rank,
                          .label = m->label,
                          .chan_class = m->chan_class,
                          .wanted = wanted,
                          .known = ru_trace_bound(w->clocks, k, r->start_ns) >= 0,
                          .probe = is_probe(t, m)};
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
            uint64_t what = (uint64_t)s->label << 32 | (uint64_t)s->bucket << 8 | s->chan_class;
            put(w, &(ru_predicted){.predictor = s->probe ? "link probe" : "link",
                                   .said_ns = (double)s->said_ns,
                                   .took_ns = (double)(r->end_ns - s->start_ns),
                                   .same = same_of(s->trace, s->peer, (uint64_t)s->bytes, what),
                                   .start_ns = s->start_ns,
                                   .size_bytes = s->bytes,
                                   .trace = s->trace,
                                   .to = r->trace + 1,
                                   .step = s->step,
                                   .chan_class = s->chan_class});
        }
    }
}

static int by_place(const void *pa, const void *pb)
{
    const ru_predicted *a = pa, *b = pb;
    if ((a->to > 0) != (b->to > 0)) {
        return a->to > 0 ? -1 : 1;
    }
    if (a->same != b->same) {
        return a->same < b->same ? -1 : 1;
    }
    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

/* Of the transfers of one sum between two ranks the first of a step is the same as the first of
 * another. */
static void number(work *w)
{
    qsort(w->pairs, (size_t)w->n_pairs, sizeof *w->pairs, by_place);
    for (int64_t i = 0, next; i < w->n_pairs && w->pairs[i].to > 0; i = next) {
        const ru_predicted first = w->pairs[i];
        uint32_t place = 0, step = first.step;
        for (next = i;
             next < w->n_pairs && w->pairs[next].to > 0 && w->pairs[next].same == first.same;
             next++) {
            ru_predicted *p = &w->pairs[next];
            place = p->step == step ? place : 0;
            step = p->step;
            p->same = same_of(p->trace, first.same, place++, 1);
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
            put(w, &(ru_predicted){.predictor = "coll",
                                   .said_ns = (double)last.said_ns,
                                   .took_ns = (double)(last.end_ns - last.start_ns),
                                   .same = same_of(0, last.bucket, (uint64_t)last.bytes, 2),
                                   .start_ns = last.start_ns,
                                   .size_bytes = last.bytes,
                                   .trace = last.trace,
                                   .step = last.step,
                                   .part = last.bucket,
                                   .label = last.label,
                                   .chan_class = last.chan_class});
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
        uint64_t bytes = 0;
        for (next = i; next < w->n_ends && w->ends[next].step == first->step; next++) {
            const end *s = &w->ends[next];
            if (next > i && s->bucket == first->bucket) {
                break;
            }
            int64_t due = s->start_ns + s->said_ns;
            due_ns = due > due_ns ? due : due_ns;
            end_ns = s->end_ns > end_ns ? s->end_ns : end_ns;
            bytes += (uint64_t)s->bytes;
        }
        if (next > i + 1) {
            put(w, &(ru_predicted){.predictor = "coll step",
                                   .said_ns = (double)(due_ns - first->start_ns),
                                   .took_ns = (double)(end_ns - first->start_ns),
                                   .same = same_of(0, (uint64_t)(next - i), bytes, 3),
                                   .start_ns = first->start_ns,
                                   .size_bytes = (int64_t)bytes,
                                   .trace = first->trace,
                                   .step = first->step});
        }
    }
}

static double error_of(double said, double took)
{
    return fabs(said - took) / took;
}

static int by_same(const void *pa, const void *pb)
{
    const ru_predicted *a = pa, *b = pb;
    int names = strcmp(a->predictor, b->predictor);
    if (names != 0) {
        return names;
    }
    if (a->same != b->same) {
        return a->same < b->same ? -1 : 1;
    }
    return (a->took_ns > b->took_ns) - (a->took_ns < b->took_ns);
}

static int by_number(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

/* Between the neighbours of (n - 1) q; sorts. */
static double quantile(double *x, int64_t n, double q)
{
    qsort(x, (size_t)n, sizeof *x, by_number);
    double at = (double)(n - 1) * q;
    int64_t low = (int64_t)at, high = low + 1 < n ? low + 1 : low;
    return x[low] + (at - (double)low) * (x[high] - x[low]);
}

/* Of n comparisons of one predictor, those of the same behind each other by rising time. */
static void repeats(const ru_predicted *p, int64_t n, double *x, ru_predictor_error *out)
{
    for (int64_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && p[next].same == p[i].same;) {
            next++;
        }
        double median = (p[(i + next - 1) / 2].took_ns + p[(i + next) / 2].took_ns) / 2;
        for (int64_t k = i; k < next && next - i >= REPEATS_MIN && p[i].same != 0; k++) {
            x[out->repeat_n++] = error_of(median, p[k].took_ns);
        }
    }
    if (out->repeat_n > 0) {
        out->repeat_median = quantile(x, out->repeat_n, 0.5);
        out->repeat_p95 = quantile(x, out->repeat_n, 0.95);
    }
}

/* Of n comparisons of one predictor; x [n] is overwritten. */
static void tell(const ru_predicted *p, int64_t n, double *x, ru_predictor_error *out)
{
    double said = 0, took = 0;
    *out = (ru_predictor_error){.predictor = p->predictor, .n = n};
    repeats(p, n, x, out);
    for (int64_t i = 0; i < n; i++) {
        said += p[i].said_ns;
        took += p[i].took_ns;
        x[i] = error_of(p[i].said_ns, p[i].took_ns);
    }
    out->median = quantile(x, n, 0.5);
    out->p95 = quantile(x, n, 0.95);
    out->bias = said / took - 1;
    for (int64_t i = 0; i < n; i++) {
        x[i] = 1e-9 * (p[i].took_ns - p[i].said_ns);
    }
    out->late_s = quantile(x, n, 0.5);
    out->late95_s = quantile(x, n, 0.95);
}

ru_status ru_predicted_errors(ru_predicted *all, int64_t n, ru_arena *arena,
                              ru_predictor_error *out, uint32_t max, uint32_t *n_out, ru_err *err)
{
    double *x = RU_NEW(arena, double, n + 1);
    if (x == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the errors of predictions is full");
    }
    qsort(all, (size_t)n, sizeof *all, by_same);
    *n_out = 0;
    for (int64_t i = 0, next; i < n && *n_out < max; i = next) {
        for (next = i + 1; next < n && strcmp(all[i].predictor, all[next].predictor) == 0;) {
            next++;
        }
        tell(&all[i], next - i, x, &out[(*n_out)++]);
    }
    return RU_OK;
}

ru_status ru_trace_compare(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                           int64_t last_ns, ru_arena *arena, ru_predicted **out, int64_t *n_out,
                           ru_err *err)
{
    work w = {.clocks = clocks};
    RU_TRY(room(&w, traces, n, arena, err));
    for (uint32_t k = 0; k < n; k++) {
        bool all = last_ns <= 0 || traces[k].last_ns < INT64_MIN + last_ns;
        collect(&w, traces, k, all ? INT64_MIN : traces[k].last_ns - last_ns);
    }
    qsort(w.ends, (size_t)w.n_ends, sizeof *w.ends, by_flow);
    transfers(&w);
    number(&w);
    sums(&w);
    steps(&w);
    *out = w.pairs;
    *n_out = w.n_pairs;
    return RU_OK;
}

ru_status ru_trace_predicted(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                             int64_t last_ns, ru_arena *arena, ru_predictor_error *out,
                             uint32_t *n_out, ru_err *err)
{
    ru_predicted *all;
    int64_t n_all;
    RU_TRY(ru_trace_compare(traces, n, clocks, last_ns, arena, &all, &n_all, err));
    return ru_predicted_errors(all, n_all, arena, out, RU_PREDICTORS_MAX, n_out, err);
}
