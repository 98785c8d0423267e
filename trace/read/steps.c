/* A walk over the spans of the thread that runs the steps, with a stack of what encloses what; the
 * time of every span less that of the spans inside it belongs to one part. Waits for sums are then
 * cut by what all ranks recorded of these sums. */
#include "trace/read/steps.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64, PART_SUMS = RU_STEP_PARTS /* a wait that is cut later */ };

/* One rank's record of one sum. */
typedef struct sum {
    uint64_t flow;
    uint32_t step, trace;
    int64_t start_ns, end_ns; /* global time */
    int64_t all_ns;           /* when the last rank began it */
    uint32_t last;            /* which one: index of the trace */
} sum;

typedef struct sums {
    sum *at; /* [n] by trace, then start */
    int64_t n;
    int64_t *first; /* [traces + 1] */
} sums;

const char *ru_step_part_name(ru_step_part part)
{
    static const char *const names[RU_STEP_PARTS] = {"compute", "network", "peer", "input",
                                                     "other"};
    RU_CHECK(part < RU_STEP_PARTS);
    return names[part];
}

static int by_flow(const void *pa, const void *pb)
{
    const sum *a = pa, *b = pb;
    if (a->flow != b->flow) {
        return a->flow < b->flow ? -1 : 1;
    }
    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    return a->trace < b->trace ? -1 : a->trace > b->trace;
}

static int by_trace(const void *pa, const void *pb)
{
    const sum *a = pa, *b = pb;
    if (a->trace != b->trace) {
        return a->trace < b->trace ? -1 : 1;
    }
    if (a->start_ns != b->start_ns) {
        return a->start_ns < b->start_ns ? -1 : 1;
    }
    return by_flow(a, b);
}

/* When had all ranks begun each sum? A rank that began it twice (the step was repeated) counts with
 * its last time. */
static void join(sum *at, int64_t n)
{
    for (int64_t from = 0, to; from < n; from = to) {
        int64_t all = at[from].start_ns;
        uint32_t last = at[from].trace;
        for (to = from + 1; to < n && at[to].flow == at[from].flow && at[to].step == at[from].step;
             to++) {
            if (at[to].start_ns > all) {
                all = at[to].start_ns;
                last = at[to].trace;
            }
        }
        for (int64_t i = from; i < to; i++) {
            /* A sum of another attempt: this rank was done before that one began. */
            bool other = all > at[i].end_ns;
            at[i].all_ns = other ? at[i].start_ns : all;
            at[i].last = other ? at[i].trace : last;
        }
    }
}

static ru_status collect(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                         ru_arena *arena, sums *out, ru_err *err)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < n; k++) {
        most += traces[k].records;
    }
    out->at = RU_NEW(arena, sum, most > 0 ? most : 1);
    out->first = RU_NEW(arena, int64_t, (int64_t)n + 1);
    if (out->at == NULL || out->first == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the steps of the trace is full");
    }
    out->n = 0;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t h = 0; h < traces[k].n_threads; h++) {
            const ru_trace_thread *t = &traces[k].threads[h];
            for (int64_t i = 0; i < t->n; i++) {
                const ru_record *r = &t->records[i];
                const ru_record_more *m = r->kind == RU_REC_SUM ? ru_trace_more(t, r) : NULL;
                if (m != NULL && out->n < most) {
                    out->at[out->n++] =
                        (sum){.flow = m->flow,
                              .step = m->step,
                              .trace = k,
                              .start_ns = ru_trace_global(clocks, k, r->start_ns),
                              .end_ns = ru_trace_global(clocks, k, r->start_ns + r->dur_ns)};
                }
            }
        }
    }
    qsort(out->at, (size_t)out->n, sizeof *out->at, by_flow);
    join(out->at, out->n);
    qsort(out->at, (size_t)out->n, sizeof *out->at, by_trace);
    for (uint32_t k = 0, i = 0; k <= n; k++) {
        while ((int64_t)i < out->n && out->at[i].trace < k) {
            i++;
        }
        out->first[k] = i;
    }
    return RU_OK;
}

static uint32_t part_of(const ru_trace *t, const ru_record *r, uint32_t outer)
{
    const ru_trace_name *name = &t->names[r->name];
    if (r->kind == RU_REC_WAIT && strcmp(name->category, "train") == 0) {
        static const char *const waits[] = {"sums of gradients", "end of the clock",
                                            "rows of a block"}; /* the last two: of apps */
        for (uint32_t k = 0; k < RU_ARRAY_LEN(waits); k++) {
            if (strcmp(name->name, waits[k]) == 0) {
                return PART_SUMS;
            }
        }
        return strcmp(name->name, "input") == 0              ? RU_STEP_INPUT
               : strcmp(name->name, "rows") == 0             ? RU_STEP_NETWORK
               : strcmp(name->name, "wait for a stage") == 0 ? RU_STEP_PEER
                                                             : RU_STEP_OTHER;
    }
    static const char *const works[] = {"tasks", "forward", "backward",
                                        "update"}; /* of any number of threads; parts of a stage */
    for (uint32_t k = 0; k < RU_ARRAY_LEN(works) && strcmp(name->category, "train") == 0; k++) {
        if (strcmp(name->name, works[k]) == 0) {
            return RU_STEP_COMPUTE;
        }
    }
    if (strcmp(name->category, "train") == 0 && strcmp(name->name, "input") == 0) {
        return RU_STEP_INPUT;
    }
    return strcmp(name->category, "op") == 0 ? (uint32_t)RU_STEP_COMPUTE : outer;
}

/* The span in which the reader's batch is taken tells its samples. */
static int64_t samples_of(const ru_trace *t, const ru_record *r)
{
    const ru_trace_name *name = &t->names[r->name];
    bool is = r->kind == RU_REC_SPAN && r->value > 0 && strcmp(name->category, "train") == 0 &&
              strcmp(name->name, "input") == 0;
    return is ? r->value : 0;
}

static bool is_step(const ru_trace *t, const ru_record *r)
{
    const ru_trace_name *name = &t->names[r->name];
    return r->kind == RU_REC_SPAN && strcmp(name->name, "step") == 0 &&
           strcmp(name->category, "train") == 0;
}

typedef struct walk {
    const ru_trace *t;
    uint32_t trace;
    const ru_trace_clocks *clocks;
    const sums *all;
    int64_t next_sum;
    int64_t *blame_ns; /* [traces] in this step */
    uint32_t traces;
    struct {
        uint32_t part;
        int64_t end_ns;
    } stack[DEPTH_MAX];
} walk;

/* The sum that all ranks have begun first after `now`, of those that were not over then; NULL: none
 * before `to`. `until`: how long a sum under way at `now` lasts. */
static const sum *next_begun(const sums *all, int64_t at, int64_t end, int64_t now, int64_t to,
                             int64_t *until)
{
    const sum *next = NULL;
    *until = now;
    for (int64_t i = at; i < end && all->at[i].start_ns < to; i++) {
        const sum *p = &all->at[i];
        if (p->end_ns > now && p->all_ns <= now) {
            *until = p->end_ns > *until ? p->end_ns : *until;
        } else if (p->end_ns > now && (next == NULL || p->all_ns < next->all_ns)) {
            next = p;
        }
    }
    return next;
}

/* Add to s what a rank did in [from, to), a wait for sums: the network while one is under way that
 * all ranks have begun, else the rank that begins the next one last. */
static void cut_wait(walk *w, ru_step_time *s, int64_t from, int64_t to)
{
    int64_t end = w->all->first[w->trace + 1];
    while (w->next_sum < end && w->all->at[w->next_sum].end_ns <= from) {
        w->next_sum++; /* sums end about in the order of their start */
    }
    for (int64_t now = from, until; now < to; now = until) {
        const sum *next = next_begun(w->all, w->next_sum, end, now, to, &until);
        uint32_t part = RU_STEP_NETWORK;
        if (until == now) {
            until = next != NULL ? next->all_ns : to;
            part = next != NULL && next->last != w->trace ? RU_STEP_PEER : RU_STEP_NETWORK;
        }
        until = until < to ? until : to;
        s->part_ns[part] += until - now;
        if (part == RU_STEP_PEER) {
            w->blame_ns[next->last] += until - now;
        }
    }
}

/* Time [from, to) of a step, in `part`. */
static void give(walk *w, ru_step_time *s, uint32_t part, int64_t from, int64_t to)
{
    if (to <= from) {
        return;
    }
    if (part == PART_SUMS) {
        cut_wait(w, s, from, to);
    } else {
        s->part_ns[part] += to - from;
    }
}

/* Spans 1 .. n - 1 lie inside the step spans[0] or behind it; returns how many are inside. */
static int64_t walk_step(walk *w, const ru_trace_span *spans, int64_t n, ru_step_time *s)
{
    uint32_t base = spans[0].depth, top = 0;
    int64_t i = 1, done = s->start_ns;
    w->stack[0].part = RU_STEP_OTHER;
    w->stack[0].end_ns = s->end_ns;
    for (; i < n && spans[i].start_ns < spans[0].end_ns && spans[i].depth > base; i++) {
        int64_t start = ru_trace_global(w->clocks, w->trace, spans[i].start_ns);
        int64_t end = ru_trace_global(w->clocks, w->trace, spans[i].end_ns);
        uint32_t depth = spans[i].depth - base;
        if (depth >= DEPTH_MAX) {
            continue;
        }
        while (top >= depth) {
            give(w, s, w->stack[top].part, done, w->stack[top].end_ns);
            done = w->stack[top].end_ns > done ? w->stack[top].end_ns : done;
            top--;
        }
        give(w, s, w->stack[top].part, done, start);
        done = start > done ? start : done;
        uint32_t outer = w->stack[top].part;
        top = top + 1;
        w->stack[top].part = part_of(w->t, spans[i].record, outer);
        int64_t samples = samples_of(w->t, spans[i].record);
        s->samples = samples > 0 ? samples : s->samples;
        w->stack[top].end_ns = end < s->end_ns ? end : s->end_ns;
    }
    for (;; top--) {
        give(w, s, w->stack[top].part, done, w->stack[top].end_ns);
        done = w->stack[top].end_ns > done ? w->stack[top].end_ns : done;
        if (top == 0) {
            return i;
        }
    }
}

static ru_status steps_of(walk *w, ru_arena *arena, ru_rank_steps *out, ru_err *err)
{
    *out = (ru_rank_steps){0};
    for (uint32_t h = 0; h < w->t->n_threads && out->n == 0; h++) {
        ru_trace_span *spans;
        int64_t n, count = 0;
        bool has = false;
        for (int64_t i = 0; i < w->t->threads[h].n && !has; i++) {
            has = is_step(w->t, &w->t->threads[h].records[i]);
        }
        if (!has) {
            continue;
        }
        RU_TRY(ru_trace_spans(&w->t->threads[h], arena, &spans, &n, err));
        for (int64_t i = 0; i < n; i++) {
            count += is_step(w->t, spans[i].record);
        }
        ru_step_time *at = RU_NEW(arena, ru_step_time, count);
        if (at == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena for the steps of the trace is full");
        }
        for (int64_t i = 0; i < n;) {
            if (!is_step(w->t, spans[i].record)) {
                i++;
                continue;
            }
            ru_step_time *s = &at[out->n++];
            *s = (ru_step_time){.step = spans[i].record->value,
                                .start_ns = ru_trace_global(w->clocks, w->trace, spans[i].start_ns),
                                .end_ns = ru_trace_global(w->clocks, w->trace, spans[i].end_ns),
                                .late = RU_STEP_NOBODY};
            memset(w->blame_ns, 0, w->traces * sizeof *w->blame_ns);
            i += walk_step(w, &spans[i], n - i, s);
            for (uint32_t k = 0; k < w->traces; k++) {
                if (w->blame_ns[k] > s->late_ns) {
                    s->late_ns = w->blame_ns[k];
                    s->late = k;
                }
            }
            for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
                out->total_ns[p] += s->part_ns[p];
            }
            out->step_ns += s->end_ns - s->start_ns;
        }
        for (int64_t i = 0; out->total_ns[RU_STEP_COMPUTE] == 0 && i < out->n; i++) {
            at[i].part_ns[RU_STEP_COMPUTE] = at[i].part_ns[RU_STEP_OTHER]; /* no ops recorded */
            at[i].part_ns[RU_STEP_OTHER] = 0;
        }
        if (out->total_ns[RU_STEP_COMPUTE] == 0) {
            out->total_ns[RU_STEP_COMPUTE] = out->total_ns[RU_STEP_OTHER];
            out->total_ns[RU_STEP_OTHER] = 0;
        }
        out->at = at;
        out->thread = h;
    }
    return RU_OK;
}

ru_status ru_trace_steps(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                         ru_arena *arena, ru_rank_steps *out, ru_err *err)
{
    sums all;
    RU_TRY(collect(traces, n, clocks, arena, &all, err));
    int64_t *blame_ns = RU_NEW(arena, int64_t, n > 0 ? n : 1);
    if (blame_ns == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the steps of the trace is full");
    }
    for (uint32_t k = 0; k < n; k++) {
        walk w = {.t = &traces[k],
                  .trace = k,
                  .clocks = clocks,
                  .all = &all,
                  .next_sum = all.first[k],
                  .blame_ns = blame_ns,
                  .traces = n};
        RU_TRY(steps_of(&w, arena, &out[k], err));
    }
    return RU_OK;
}

/* Of a step: what the rank did itself, and the others had to wait for. */
static int64_t own_ns(const ru_step_time *s)
{
    return s->part_ns[RU_STEP_COMPUTE] + s->part_ns[RU_STEP_INPUT] + s->part_ns[RU_STEP_OTHER];
}

ru_status ru_trace_chain(const ru_rank_steps *ranks, uint32_t n, ru_arena *arena,
                         int64_t (**on)[RU_STEP_PARTS], ru_err *err)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < n; k++) {
        for (int64_t i = 0; i < ranks[k].n; i++) {
            most = ranks[k].at[i].step > most ? ranks[k].at[i].step : most;
        }
    }
    enum { STEPS_MAX = 1 << 24 }; /* a damaged record may name any step */
    most = most < STEPS_MAX ? most : STEPS_MAX;
    const ru_step_time **pace = RU_NEW(arena, const ru_step_time *, most + 1);
    uint32_t *who = RU_NEW(arena, uint32_t, most + 1);
    *on = ru_arena_zalloc(arena, (int64_t)sizeof **on * (n > 0 ? n : 1), _Alignof(int64_t));
    if (pace == NULL || who == NULL || *on == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the steps of the trace is full");
    }
    for (uint32_t k = 0; k < n; k++) {
        for (int64_t i = 0; i < ranks[k].n; i++) {
            const ru_step_time *s = &ranks[k].at[i];
            if (s->step < 0 || s->step > most) {
                continue;
            }
            const ru_step_time *p = pace[s->step];
            if (p == NULL || who[s->step] == k || own_ns(s) > own_ns(p)) {
                pace[s->step] = s;
                who[s->step] = k;
            }
        }
    }
    for (int64_t i = 0; i <= most; i++) {
        for (uint32_t p = 0; pace[i] != NULL && p < RU_STEP_PARTS; p++) {
            (*on)[who[i]][p] += pace[i]->part_ns[p];
        }
    }
    return RU_OK;
}
