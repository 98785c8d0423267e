/* Sends joined with their receives, by pair of ranks and time -> logarithms of ratios of the rates
 * of all other pairs to those of one rank -> a cut in two where they changed -> a slow sender,
 * receiver or link.
 *
 * Neither end alone knows how long a transfer took: the kernel takes the bytes of a small one at
 * once, and its receiver reads them at once when the last has come. So a transfer lasts from the
 * call of its sender until its receiver has all, both on one clock; what it waited for earlier ones
 * of the same pair does not count:
 *
 *   send  |--1--|        |-2-|-3-|           calls
 *   link        ####        #####%%%%%       1, 2 and 3 take the time from the later of their call
 *                  ^1           ^2   ^3      and the arrival before, to their own arrival
 *
 * Source: hashemi-2020, whose time oracle cleans receives so. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/read/cause_impl.h"

enum {
    TRANSFER_MIN = 2048, /* bytes: smaller ones measure latency */
    BUSY_MIN = 65536,    /* bytes that waited behind others, of a link whose rate they tell */
    QUEUED_MIN = 262144, /* larger ones keep their link busy by themselves */
    AROUND = 9,          /* bins: one alone may hold a burst */
    BINS_MAX = 512,      /* of the run's steps; since_step is exact to one */
    CELLS_MAX = 1 << 23,
};

static const double rate_low = 0.67, rate_low_both = 0.8, rate_low_turned = 0.45, similar_min = 0.4,
                    sure_min = 4;

/* Bytes and time of the larger transfers from one rank to another; and of those that kept the link
 * busy. Only these tell its rate: another one passes a link that has rested as a burst. */
typedef struct pair {
    double bytes, ns, queued_bytes, queued_ns;
} pair;

/* One end of a transfer, then the whole transfer. */
typedef struct transfer {
    uint64_t flow;
    int64_t step; /* from w->first */
    uint32_t from, to;
    bool receive;
    int64_t start_ns, end_ns; /* global: of a send its call, of a receive its end; then both */
    int64_t bytes;
} transfer;

typedef struct rates {
    rui_causes *w;
    int64_t n_bins, width; /* steps of a bin */
    transfer *at;          /* [n] */
    int64_t n;
    pair *moved;     /* [n_bins][ranks][ranks]; 0: none, or explained */
    int64_t *at_bin; /* [n_bins] */
    double *rest;    /* [n_bins] rate of the pairs that a rank has no part in */
    double *sorted;  /* [ranks * ranks] */
} rates;

static uint32_t trace_of(const rui_causes *w, uint64_t node)
{
    for (uint32_t k = 0; node != 0 && k < w->n; k++) {
        if (w->traces[k].node == node) {
            return k;
        }
    }
    return RU_STEP_NOBODY;
}

static bool end_of(const rui_causes *w, uint32_t k, const ru_trace_thread *t, const ru_record *rec,
                   transfer *out)
{
    const ru_record_more *m = ru_trace_more(t, rec);
    bool receive = rec->kind == RU_REC_RECV;
    if (m == NULL || (!receive && rec->kind != RU_REC_SEND) || rec->value < TRANSFER_MIN ||
        (m->flags & (RU_REC_FAILED | RU_REC_MESSAGE)) != 0) {
        return false;
    }
    uint32_t other = trace_of(w, m->peer);
    /* Transfers count from 0; a damaged record may name any step. */
    int64_t step = (int64_t)((uint64_t)m->step + 1 - (uint64_t)w->first);
    int64_t at_ns = ru_trace_global(w->clocks, k, rec->start_ns + (receive ? rec->dur_ns : 0));
    *out = (transfer){.flow = m->flow,
                      .step = step,
                      .from = receive ? other : k,
                      .to = receive ? k : other,
                      .receive = receive,
                      .start_ns = at_ns,
                      .end_ns = at_ns,
                      .bytes = rec->value};
    return other != RU_STEP_NOBODY && step >= 0 && step < w->n_steps;
}

static int by_flow(const void *pa, const void *pb)
{
    const transfer *a = pa, *b = pb;
    if (a->flow != b->flow) {
        return a->flow < b->flow ? -1 : 1;
    }
    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

static int by_arrival(const void *pa, const void *pb)
{
    const transfer *a = pa, *b = pb;
    if (a->from != b->from) {
        return a->from < b->from ? -1 : 1;
    }
    if (a->to != b->to) {
        return a->to < b->to ? -1 : 1;
    }
    return (a->end_ns > b->end_ns) - (a->end_ns < b->end_ns);
}

/* Both ends of each transfer become one. */
static void join(rates *r)
{
    int64_t n = 0;
    qsort(r->at, (size_t)r->n, sizeof *r->at, by_flow);
    for (int64_t i = 0; i + 1 < r->n; i++) {
        transfer *a = &r->at[i];
        const transfer *b = a + 1;
        if (a->flow == b->flow && a->step == b->step && !a->receive && b->receive &&
            a->from == b->from && a->to == b->to) {
            a->end_ns = b->end_ns;
            r->at[n++] = *a;
            i++;
        }
    }
    r->n = n;
    qsort(r->at, (size_t)r->n, sizeof *r->at, by_arrival);
}

static ru_status collect(rates *r, ru_err *err)
{
    const rui_causes *w = r->w;
    int64_t most = 0;
    for (uint32_t k = 0; k < w->n; k++) {
        most += w->traces[k].records;
    }
    r->at = RU_NEW(w->arena, transfer, most > 0 ? most : 1);
    if (r->at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the causes is full");
    }
    for (uint32_t k = 0; k < w->n; k++) {
        for (uint32_t h = 0; h < w->traces[k].n_threads; h++) {
            const ru_trace_thread *t = &w->traces[k].threads[h];
            for (int64_t i = 0; i < t->n && r->n < most; i++) {
                r->n += end_of(w, k, t, &t->records[i], &r->at[r->n]);
            }
        }
    }
    join(r);
    for (int64_t i = 0; i < r->n; i++) {
        const transfer *t = &r->at[i];
        bool same = i > 0 && t[-1].from == t->from && t[-1].to == t->to;
        bool behind = same && t[-1].end_ns > t->start_ns;
        double ns = (double)t->end_ns - (double)(behind ? t[-1].end_ns : t->start_ns);
        pair *p = &r->moved[((size_t)(t->step / r->width) * w->n + t->from) * w->n + t->to];
        bool queued = behind || t->bytes >= QUEUED_MIN;
        p->bytes += (double)t->bytes;
        p->ns += ns > 0 ? ns : 0;
        p->queued_bytes += queued ? (double)t->bytes : 0;
        p->queued_ns += queued && ns > 0 ? ns : 0;
    }
    return RU_OK;
}

/* Was its link busy for most of the bytes? Shorter times are those of bursts. */
static bool busy(const pair *p)
{
    return p->queued_ns > 0 && p->queued_bytes >= BUSY_MIN && 2 * p->queued_bytes >= p->bytes;
}

/* Rate of busy links on which `k` sends, or receives: the median, of an even number the faster one
 * in the middle. One slow partner of two is no fault of k. */
static double rate_of(const rates *r, int64_t bin, uint32_t k, bool out)
{
    int64_t n = 0;
    for (uint32_t j = 0; j < r->w->n; j++) {
        uint32_t from = out ? k : j, to = out ? j : k;
        const pair *p = &r->moved[((size_t)bin * r->w->n + from) * r->w->n + to];
        if (busy(p)) {
            r->sorted[n++] = p->queued_bytes / p->queued_ns;
        }
    }
    return isfinite(rui_median(r->sorted, n)) ? r->sorted[n / 2] : RU_NAN; /* sorted now */
}

typedef enum which { APART, TO, FROM } which; /* links that a rank has no part in; to it; from it */

/* Median rate of links that were busy. */
static double busy_rate(const rates *r, int64_t bin, uint32_t k, which links)
{
    uint32_t n_ranks = r->w->n;
    int64_t n = 0;
    for (uint32_t a = 0; a < n_ranks; a++) {
        for (uint32_t b = 0; b < n_ranks; b++) {
            const pair *p = &r->moved[((size_t)bin * n_ranks + a) * n_ranks + b];
            bool wanted = links == APART ? a != k && b != k : (links == TO ? b : a) == k;
            if (wanted && busy(p)) {
                r->sorted[n++] = p->queued_bytes / p->queued_ns;
            }
        }
    }
    return rui_median(r->sorted, n);
}

/* Bins that know a rate of these links: into r->at_bin and w->series. */
static int64_t known_rates(const rates *r, uint32_t k, which links)
{
    int64_t n = 0;
    for (int64_t bin = 0; bin < r->n_bins; bin++) {
        double rate = busy_rate(r, bin, k, links);
        if (isfinite(rate)) {
            r->at_bin[n] = bin;
            r->w->series[n++] = rate;
        }
    }
    return n;
}

/* r->rest for rank k: the median of the AROUND bins nearest to each that know one. Where it has a
 * part in all links, as one of two or the hub of a star, its other direction is what to compare.
 * Returns how slow it must be at least, as part of that rate: a hub's links share its interface,
 * and not in both directions alike. */
static double find_rest(rates *r, uint32_t k, ru_cause_kind kind)
{
    int64_t n = known_rates(r, k, APART), from = 0;
    bool turned = n == 0 && kind != RU_CAUSE_LINK;
    if (turned) {
        n = known_rates(r, k, kind == RU_CAUSE_SENDER ? TO : FROM);
    }
    for (int64_t bin = 0; bin < r->n_bins; bin++) {
        double v[AROUND];
        int64_t m = n < AROUND ? n : AROUND;
        while (from + m < n && r->at_bin[from + m] - bin < bin - r->at_bin[from]) {
            from++;
        }
        for (int64_t i = 0; i < m; i++) {
            v[i] = r->w->series[from + i];
        }
        r->rest[bin] = rui_median(v, m);
    }
    return turned && r->w->n > 2 ? rate_low_turned : rate_low;
}

/* How many times as long as at the others' rate take the transfers that rank k sends, or receives;
 * NAN: not known. */
static double slowness(const rates *r, int64_t bin, uint32_t k, bool out)
{
    double own = rate_of(r, bin, k, out);
    return own > 0 && r->rest[bin] > 0 ? r->rest[bin] / own : RU_NAN;
}

/* These pairs are explained. */
static void explained(rates *r, uint32_t k, ru_cause_kind kind)
{
    uint32_t n = r->w->n;
    for (int64_t bin = 0; bin < r->n_bins; bin++) {
        pair *at = &r->moved[(size_t)bin * n * n];
        for (uint32_t j = 0; j < n; j++) {
            at[k * n + j] = kind != RU_CAUSE_RECEIVER ? (pair){0} : at[k * n + j];
            at[j * n + k] = kind != RU_CAUSE_SENDER ? (pair){0} : at[j * n + k];
        }
    }
}

/* By how much longer the transfers of rank k take than at the others' rate, in the bins from `at`
 * on: part of the time of its steps, at most what all wait for the network. */
static double excess(const rates *r, uint32_t k, ru_cause_kind kind, int64_t at)
{
    const rui_causes *w = r->w;
    double lost[2] = {0}, wall = 0; /* out, in: at the same time, as pairs of either are */
    int64_t since = w->first + at * r->width;
    for (int64_t bin = at; bin < r->n_bins; bin++) {
        double rest = r->rest[bin], most[2] = {0};
        for (uint32_t j = 0; rest > 0 && j < w->n; j++) {
            const pair *out = &r->moved[((size_t)bin * w->n + k) * w->n + j];
            const pair *in = &r->moved[((size_t)bin * w->n + j) * w->n + k];
            most[0] = fmax(most[0], out->ns - out->bytes / rest);
            most[1] = fmax(most[1], in->ns - in->bytes / rest);
        }
        lost[0] += most[0];
        lost[1] += most[1];
    }
    for (int64_t i = 0; i < w->steps[k].n; i++) {
        const ru_step_time *s = &w->steps[k].at[i];
        wall += s->step >= since ? (double)(s->end_ns - s->start_ns) : 0;
    }
    double own = kind == RU_CAUSE_SENDER     ? lost[0]
                 : kind == RU_CAUSE_RECEIVER ? lost[1]
                                             : fmax(lost[0], lost[1]);
    double network = rui_part_of(w, RU_STEP_NOBODY, RU_STEP_NETWORK, at > 0 ? since : 0);
    return wall > 0 ? fmin(own / wall, network) : 0;
}

/* Is the mean of the series far from 0 for what it varies by? */
static bool sure(const rui_causes *w, int64_t n, double mean)
{
    double square = 0, count = 0;
    for (int64_t i = 0; i < n; i++) {
        double off = isfinite(w->series[i]) ? w->series[i] - mean : 0;
        square += off * off;
        count += isfinite(w->series[i]);
    }
    return mean * sqrt(count) > sure_min * sqrt(square / fmax(count, 1));
}

/* w->series: logarithms of the slowness of what rank k sends or receives, of a link of their mean.
 * Returns how many are known. */
static int64_t find_series(rates *r, uint32_t k, ru_cause_kind kind)
{
    int64_t known = 0;
    for (int64_t bin = 0; bin < r->n_bins; bin++) {
        double out = log(slowness(r, bin, k, true)), in = log(slowness(r, bin, k, false));
        r->w->series[bin] = kind == RU_CAUSE_SENDER     ? out
                            : kind == RU_CAUSE_RECEIVER ? in
                                                        : 0.5 * (out + in);
        known += isfinite(r->w->series[bin]);
    }
    return known;
}

/* Median of w->series from `at` on: one bin alone may hold a burst. */
static double level_from(const rates *r, int64_t at)
{
    int64_t n = 0;
    for (int64_t bin = at; bin < r->n_bins; bin++) {
        if (isfinite(r->w->series[bin])) {
            r->w->scratch[n++] = r->w->series[bin];
        }
    }
    return rui_median(r->w->scratch, n);
}

/* Are both directions of the link of rank k slow from bin *at on, to a similar extent? A slow
 * sender or receiver makes the mean of both slow too. *at becomes the first bin in which a
 * direction is slow: few bins tell both. */
static bool both_slow(rates *r, uint32_t k, int64_t *at)
{
    static const ru_cause_kind direction[] = {RU_CAUSE_SENDER, RU_CAUSE_RECEIVER};
    double level[2], mean, jump;
    int64_t first = *at;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(direction); i++) {
        (void)find_series(r, k, direction[i]);
        level[i] = level_from(r, *at);
        int64_t cut = rui_cut(r->w->series, r->n_bins, &mean, &jump);
        bool same = *at > 0 && cut > 0 && rui_same_time(r->w, cut * r->width, *at * r->width);
        first = same && jump > 0 && cut < first ? cut : first;
    }
    *at = first;
    return fmin(level[0], level[1]) >= -log(rate_low_both) &&
           fmin(level[0], level[1]) >= similar_min * fmax(level[0], level[1]);
}

/* The only rank that k sends to, or receives from, when it too has no other partner in that
 * direction, as in a ring: index + 1, else 0. */
static uint32_t only_peer(const rates *r, uint32_t k, bool out)
{
    const double nearly_all = 0.9;
    uint32_t n = r->w->n, best = 0;
    double own = 0, most = 0, others = 0;
    for (uint32_t j = 0; j < n; j++) {
        double bytes = 0;
        for (int64_t bin = 0; bin < r->n_bins; bin++) {
            bytes += r->moved[((size_t)bin * n + (out ? k : j)) * n + (out ? j : k)].bytes;
        }
        own += bytes;
        best = bytes > most ? j + 1 : best;
        most = bytes > most ? bytes : most;
    }
    for (uint32_t j = 0; best > 0 && j < n; j++) {
        for (int64_t bin = 0; bin < r->n_bins; bin++) {
            others +=
                r->moved[((size_t)bin * n + (out ? j : best - 1)) * n + (out ? best - 1 : j)].bytes;
        }
    }
    return most >= nearly_all * own && most >= nearly_all * others ? best : 0;
}

/* Are the transfers of others to those that k sends to (or from those that it receives from) as
 * slow as its own, from bin `at` on? Then that is the slow end. */
static bool others_too(rates *r, uint32_t k, bool out, int64_t at)
{
    rui_causes *w = r->w;
    int64_t known = 0;
    for (int64_t bin = at; bin < r->n_bins; bin++) {
        const pair *p = &r->moved[(size_t)bin * w->n * w->n];
        double own = rate_of(r, bin, k, out);
        int64_t n = 0;
        for (uint32_t j = 0; j < w->n; j++) {
            for (uint32_t i = 0; i < w->n && busy(out ? &p[k * w->n + j] : &p[j * w->n + k]); i++) {
                const pair *q = out ? &p[i * w->n + j] : &p[j * w->n + i];
                if (i != k && busy(q)) {
                    r->sorted[n++] = q->queued_bytes / q->queued_ns;
                }
            }
        }
        double others = rui_median(r->sorted, n);
        if (own > 0 && others > 0) {
            w->scratch[known++] = log(others / own);
        }
    }
    return known >= RUI_SIDE_MIN && rui_median(w->scratch, known) <= -log(rate_low);
}

/* A rank, or the link to its only partner in that direction. */
static void name(rates *r, ru_cause c)
{
    rui_causes *w = r->w;
    uint32_t k = c.trace;
    uint32_t peer = c.kind == RU_CAUSE_LINK ? 0 : only_peer(r, k, c.kind == RU_CAUSE_SENDER);
    ru_cause *slow = &w->slow[peer > 0 && w->slow[k].factor <= 0 ? peer - 1 : k];
    bool same = c.since_step == 0 || rui_same_time(w, slow->since_step, c.since_step);
    if (slow->factor > 0 && same && c.factor < RUI_SLOW_ALSO * slow->factor) {
        slow->cost += c.cost; /* a slow processor handles its transfers slowly too */
        return;
    }
    if (peer > 0) {
        c.trace = c.kind == RU_CAUSE_SENDER ? k : peer - 1;
        c.peer = c.kind == RU_CAUSE_SENDER ? peer : k + 1;
        c.kind = RU_CAUSE_PATH;
    }
    rui_cause_name(w, c);
}

/* Does rank k send, or receive, more slowly than others, at least at the end? */
static void judge(rates *r, uint32_t k, ru_cause_kind kind)
{
    rui_causes *w = r->w;
    double mean, jump, low = find_rest(r, k, kind);
    int64_t known = find_series(r, k, kind), at = rui_cut(w->series, r->n_bins, &mean, &jump);
    bool is_sure = at > 0 || sure(w, r->n_bins, mean);
    double level = level_from(r, at);
    if (known < RUI_SIDE_MIN || !is_sure || level <= -log(low) ||
        (kind == RU_CAUSE_LINK ? !both_slow(r, k, &at)
                               : others_too(r, k, kind == RU_CAUSE_SENDER, at))) {
        return;
    }
    int64_t since = at > 0 ? w->first + at * r->width : 0;
    name(r, (ru_cause){.kind = kind,
                       .trace = k,
                       .since_step = since,
                       .factor = exp(level),
                       .cost = excess(r, k, kind, at)});
    explained(r, k, kind);
}

/* The rank that sends slowly, or whose receiving is slow, as a cause says; else nobody. */
static uint32_t sends(const ru_cause *c)
{
    return c->kind == RU_CAUSE_SENDER || c->kind == RU_CAUSE_PATH ? c->trace : RU_STEP_NOBODY;
}

static uint32_t receives(const ru_cause *c)
{
    return c->kind == RU_CAUSE_RECEIVER ? c->trace
           : c->kind == RU_CAUSE_PATH   ? c->peer - 1
                                        : RU_STEP_NOBODY;
}

/* A rank that sends and receives slowly, told by different bins or partners: its link. */
static void join_directions(rui_causes *w)
{
    for (uint32_t i = 0; i < w->n_causes; i++) {
        ru_cause *out = &w->causes[i];
        for (uint32_t j = 0; sends(out) != RU_STEP_NOBODY && j < w->n_causes; j++) {
            const ru_cause *in = &w->causes[j];
            bool same = rui_same_time(w, in->since_step, out->since_step);
            bool paths = in->kind == RU_CAUSE_PATH || out->kind == RU_CAUSE_PATH;
            if (receives(in) == sends(out) && (same || !paths)) {
                bool later = in->since_step > out->since_step;
                out->kind = RU_CAUSE_LINK;
                out->peer = 0;
                out->since_step = later != same ? in->since_step : out->since_step;
                out->factor = fmin(out->factor, in->factor);
                out->cost = fmax(out->cost, in->cost);
                w->causes[j] = w->causes[--w->n_causes];
            }
        }
    }
}

/* Links that are slow in both directions first, since they make their neighbours look slow too. */
ru_status rui_cause_transfers(rui_causes *w, ru_err *err)
{
    static const ru_cause_kind order[] = {RU_CAUSE_LINK, RU_CAUSE_SENDER, RU_CAUSE_RECEIVER};
    int64_t pairs = (int64_t)w->n * w->n;
    int64_t most = CELLS_MAX / pairs < BINS_MAX ? CELLS_MAX / pairs : BINS_MAX;
    most = most > 0 ? most : 1;
    rates r = {.w = w, .width = (w->n_steps + most - 1) / most};
    r.n_bins = (w->n_steps + r.width - 1) / r.width;
    r.moved = RU_NEW(w->arena, pair, r.n_bins * pairs);
    r.rest = RU_NEW(w->arena, double, r.n_bins);
    r.at_bin = RU_NEW(w->arena, int64_t, r.n_bins);
    r.sorted = RU_NEW(w->arena, double, pairs);
    if (r.moved == NULL || r.rest == NULL || r.at_bin == NULL || r.sorted == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the causes is full");
    }
    RU_TRY(collect(&r, err));
    for (uint32_t k = 0; k < w->n; k++) {
        if (w->paused[k]) {
            explained(&r, k, RU_CAUSE_LINK);
        }
    }
    for (uint32_t o = 0; o < RU_ARRAY_LEN(order); o++) {
        for (uint32_t k = 0; k < w->n; k++) {
            judge(&r, k, order[o]);
        }
    }
    join_directions(w);
    return RU_OK;
}
