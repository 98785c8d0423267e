/* Records -> lanes, and which spans of different lanes belong together. */
#include <stdlib.h>
#include <string.h>

#include "tool/page/page_impl.h"

enum {
    LANE_DEPTH_MAX = 32, /* deeper spans are left out of the picture */
    KINDS_MAX = 48,      /* of asynchronous spans of one thread */
};

/* One end of a transfer, or one rank's part of a sum. */
typedef struct end {
    uint64_t flow, nth; /* nth: the step of a sum, the count of a transfer with this flow */
    uint32_t side;      /* 0 sum, 1 send, 2 receive */
    uint32_t lane;
    int64_t i, start_ns;
} end;

static int by_side(const void *pa, const void *pb)
{
    const end *a = pa, *b = pb;
    if (a->flow != b->flow) {
        return a->flow < b->flow ? -1 : 1;
    }
    if (a->side != b->side) {
        return a->side < b->side ? -1 : 1;
    }
    if (a->start_ns != b->start_ns) {
        return a->start_ns < b->start_ns ? -1 : 1;
    }
    return a->lane < b->lane ? -1 : a->lane > b->lane;
}

static int by_nth(const void *pa, const void *pb)
{
    const end *a = pa, *b = pb;
    if (a->flow != b->flow) {
        return a->flow < b->flow ? -1 : 1;
    }
    if ((a->side == 0) != (b->side == 0)) {
        return a->side == 0 ? -1 : 1;
    }
    if (a->nth != b->nth) {
        return a->nth < b->nth ? -1 : 1;
    }
    return by_side(a, b);
}

static const ru_record_more *more_of(const ru_page_in *in, const rui_lane *l, int64_t i)
{
    return ru_trace_more(&in->traces[l->trace].threads[l->thread], l->spans[i]->record);
}

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena for the page is full");
}

/* Spans into lanes by depth; all else of the lanes is that of `like`. */
static ru_status put_spans(rui_lane like, const ru_trace_span *const *spans, int64_t n,
                           ru_arena *arena, rui_lanes *out, uint32_t max, ru_err *err)
{
    int64_t count[LANE_DEPTH_MAX] = {0};
    for (int64_t i = 0; i < n; i++) {
        if (spans[i]->depth < LANE_DEPTH_MAX) {
            count[spans[i]->depth]++;
        }
    }
    for (uint32_t d = 0; d < LANE_DEPTH_MAX && count[d] > 0 && out->n < max; d++) {
        rui_lane *l = &out->at[out->n++];
        const ru_trace_span **list = RU_NEW(arena, const ru_trace_span *, count[d]);
        if (list == NULL) {
            return full(err);
        }
        *l = like;
        l->depth = d;
        l->spans = list;
        for (int64_t i = 0; i < n; i++) {
            if (spans[i]->depth == d) {
                list[l->n++] = spans[i];
            }
        }
    }
    return RU_OK;
}

/* What an asynchronous span belongs to: a peer and a direction, or the name of a sum. */
typedef struct kind {
    ru_rec_kind what; /* RU_REC_SEND, RU_REC_RECV, or RU_REC_SUM for all that has a name */
    uint64_t id;      /* of the peer, or the name's number */
    int64_t n;
} kind;

static kind kind_of(const ru_trace_thread *t, const ru_record *r)
{
    const ru_record_more *m = ru_trace_more(t, r);
    bool moves = m != NULL && (r->kind == RU_REC_SEND || r->kind == RU_REC_RECV);
    return moves ? (kind){r->kind, m->peer, 0} : (kind){RU_REC_SUM, r->name, 0};
}

static const char *label_of(const ru_page_in *in, const ru_trace *t, const kind *k, ru_arena *arena)
{
    if (k->what == RU_REC_SUM) {
        return k->id < t->n_names ? t->names[k->id].name : "spans";
    }
    const char *way = k->what == RU_REC_SEND ? "to" : "from";
    for (uint32_t i = 0; i < in->n; i++) {
        if (in->traces[i].node == k->id && k->id != 0) {
            return ru_arena_printf(arena, "%s rank %u", way, ru_trace_number(&in->traces[i]));
        }
    }
    return ru_arena_printf(arena, "%s others", way);
}

/* Asynchronous spans: lanes of their own for each peer, direction and sum; of one such kind, spans
 * that overlap lie below each other. */
static ru_status put_beside(const ru_page_in *in, uint32_t trace, uint32_t thread, ru_arena *arena,
                            rui_lanes *out, uint32_t max, ru_err *err)
{
    const ru_trace_thread *t = &in->traces[trace].threads[thread];
    ru_trace_span *spans;
    int64_t n, n_kinds = 0;
    RU_TRY(ru_trace_asyncs(t, arena, &spans, &n, err));
    kind kinds[KINDS_MAX];
    uint32_t *of = RU_NEW(arena, uint32_t, n > 0 ? n : 1);
    const ru_trace_span **list = RU_NEW(arena, const ru_trace_span *, n > 0 ? n : 1);
    if (of == NULL || list == NULL) {
        return full(err);
    }
    for (int64_t i = 0; i < n; i++) {
        kind k = kind_of(t, spans[i].record);
        int64_t at = 0;
        while (at < n_kinds && (kinds[at].what != k.what || kinds[at].id != k.id)) {
            at++;
        }
        at = at < KINDS_MAX ? at : KINDS_MAX - 1; /* the last one takes the rest */
        if (at == n_kinds) {
            kinds[n_kinds++] = k;
        }
        of[i] = (uint32_t)at;
    }
    for (int64_t k = 0; k < n_kinds; k++) {
        int64_t count = 0, ends[LANE_DEPTH_MAX];
        uint32_t lanes = 0;
        for (int64_t i = 0; i < n; i++) {
            if (of[i] != k) {
                continue;
            }
            uint32_t d = 0;
            while (d < lanes && ends[d] > spans[i].start_ns) {
                d++;
            }
            lanes = d == lanes && lanes < LANE_DEPTH_MAX ? lanes + 1 : lanes;
            if (d < LANE_DEPTH_MAX) {
                ends[d] = spans[i].end_ns;
            }
            spans[i].depth = d;
            list[count++] = &spans[i];
        }
        const rui_lane like = {
            .trace = trace,
            .thread = thread,
            .async = true,
            .label = label_of(in, &in->traces[trace], &kinds[k], arena),
        };
        RU_TRY(like.label == NULL ? full(err) : put_spans(like, list, count, arena, out, max, err));
    }
    return RU_OK;
}

static ru_status put_thread(const ru_page_in *in, uint32_t trace, uint32_t thread, ru_arena *arena,
                            rui_lanes *out, uint32_t max, ru_err *err)
{
    const ru_trace_thread *t = &in->traces[trace].threads[thread];
    const rui_lane like = {
        .trace = trace, .thread = thread, .label = t->name != NULL ? t->name : "thread"};
    ru_trace_span *spans;
    int64_t n;
    RU_TRY(ru_trace_spans(t, arena, &spans, &n, err));
    const ru_trace_span **list = RU_NEW(arena, const ru_trace_span *, n > 0 ? n : 1);
    if (list == NULL) {
        return full(err);
    }
    for (int64_t i = 0; i < n; i++) {
        list[i] = &spans[i];
    }
    RU_TRY(put_spans(like, list, n, arena, out, max, err));
    return put_beside(in, trace, thread, arena, out, max, err);
}

static void describe(const ru_page_in *in, rui_lane *l, int64_t page_ns)
{
    int64_t most = 0, before = ru_trace_global(in->clocks, l->trace, l->spans[0]->start_ns);
    l->at_ns = before - page_ns;
    for (int64_t i = 0; i < l->n; i++) {
        const ru_trace_span *s = l->spans[i];
        int64_t start = ru_trace_global(in->clocks, l->trace, s->start_ns);
        int64_t gap = start - before, dur = s->end_ns - s->start_ns;
        most = gap > most ? gap : most;
        most = dur > most ? dur : most;
        before = start > before ? start : before;
        l->predicted |= s->record->predicted_ns > 0;
        l->plan |= s->record->plan != 0;
        l->value |= s->record->value != 0 && s->record->kind != RU_REC_WAIT;
    }
    for (l->unit_ns = 1; most / l->unit_ns >= UINT32_MAX; l->unit_ns *= 2) {
    }
}

static ru_status ends_of(const ru_page_in *in, rui_lanes *lanes, ru_arena *arena, end **ends,
                         int64_t *n, ru_err *err)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < lanes->n; k++) {
        most += lanes->at[k].async ? lanes->at[k].n : 0;
    }
    *ends = RU_NEW(arena, end, most > 0 ? most : 1);
    *n = 0;
    for (uint32_t k = 0; *ends != NULL && k < lanes->n; k++) {
        rui_lane *l = &lanes->at[k];
        for (int64_t i = 0; l->async && i < l->n; i++) {
            const ru_record *r = l->spans[i]->record;
            const ru_record_more *m = more_of(in, l, i);
            if (m == NULL) {
                continue;
            }
            if (l->group == NULL) {
                l->group = RU_NEW(arena, uint32_t, l->n);
            }
            if (l->group == NULL) {
                break;
            }
            (*ends)[(*n)++] =
                (end){.flow = m->flow,
                      .nth = m->step,
                      .side = r->kind == RU_REC_SUM || r->kind == RU_REC_ASYNC ? 0
                              : r->kind == RU_REC_SEND                         ? 1
                                                                               : 2,
                      .lane = k,
                      .i = i,
                      .start_ns = ru_trace_global(in->clocks, l->trace, l->spans[i]->start_ns)};
        }
    }
    return *ends == NULL ? RU_FAIL(err, RU_E_LIMIT, "the arena for the page is full") : RU_OK;
}

/* Number the ends that belong together: sums by flow and step, the k-th send of a flow and its k-th
 * receive. */
static ru_status join(const ru_page_in *in, rui_lanes *lanes, ru_arena *arena, ru_err *err)
{
    end *ends;
    int64_t n;
    RU_TRY(ends_of(in, lanes, arena, &ends, &n, err));
    qsort(ends, (size_t)n, sizeof *ends, by_side);
    for (int64_t i = 0; i < n; i++) {
        bool more = i > 0 && ends[i].flow == ends[i - 1].flow && ends[i].side == ends[i - 1].side;
        if (ends[i].side != 0) {
            ends[i].nth = more ? ends[i - 1].nth + 1 : 0;
        }
    }
    qsort(ends, (size_t)n, sizeof *ends, by_nth);
    for (int64_t from = 0, to; from < n; from = to) {
        for (to = from + 1;
             to < n && ends[to].flow == ends[from].flow &&
             (ends[to].side == 0) == (ends[from].side == 0) && ends[to].nth == ends[from].nth;
             to++) {
        }
        lanes->groups += to - from > 1;
        for (int64_t i = from; to - from > 1 && i < to; i++) {
            lanes->at[ends[i].lane].group[ends[i].i] = lanes->groups;
        }
    }
    return RU_OK;
}

ru_status rui_lanes_make(const ru_page_in *in, ru_arena *arena, rui_lanes *out, ru_err *err)
{
    uint32_t max = 0;
    for (uint32_t k = 0; k < in->n; k++) {
        for (uint32_t h = 0; h < in->traces[k].n_threads; h++) {
            const int64_t most = (1 + KINDS_MAX) * LANE_DEPTH_MAX, n = in->traces[k].threads[h].n;
            max += (uint32_t)(n < most ? n : most);
        }
    }
    *out = (rui_lanes){.at = RU_NEW(arena, rui_lane, max > 0 ? max : 1),
                       .start_ns = INT64_MAX,
                       .end_ns = INT64_MIN};
    if (out->at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the page is full");
    }
    for (uint32_t k = 0; k < in->n; k++) {
        const ru_trace *t = &in->traces[k];
        for (uint32_t h = 0; h < t->n_threads; h++) {
            RU_TRY(put_thread(in, k, h, arena, out, max, err));
        }
        int64_t start = ru_trace_global(in->clocks, k, t->first_ns);
        int64_t last = ru_trace_global(in->clocks, k, t->last_ns);
        if (t->first_ns != 0 || t->last_ns != 0) {
            out->start_ns = start < out->start_ns ? start : out->start_ns;
            out->end_ns = last > out->end_ns ? last : out->end_ns;
        }
    }
    if (out->start_ns == INT64_MAX) {
        out->start_ns = out->end_ns = 0;
    }
    for (uint32_t i = 0; i < out->n; i++) {
        describe(in, &out->at[i], out->start_ns);
    }
    return join(in, out, arena, err);
}
