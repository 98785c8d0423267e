#include "trace/read/sums.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "trace/read/steps.h"

/* One rank did a step from here to there. */
typedef struct begin {
    int64_t step, start_ns, end_ns;
} begin;

static int by_step(const void *pa, const void *pb)
{
    const begin *a = pa, *b = pb;
    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

/* All begins of all ranks: a step that was repeated has several. */
static ru_status find_begins(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                             ru_arena *arena, begin **out, int64_t *n_out, ru_err *err)
{
    ru_rank_steps *ranks = RU_NEW(arena, ru_rank_steps, (int64_t)n + 1);
    int64_t all = 0;
    if (ranks == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the sums of the trace is full");
    }
    RU_TRY(ru_trace_steps(traces, n, clocks, arena, ranks, err));
    for (uint32_t k = 0; k < n; k++) {
        all += ranks[k].n;
    }
    begin *at = RU_NEW(arena, begin, all + 1);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the sums of the trace is full");
    }
    *n_out = 0;
    for (uint32_t k = 0; k < n; k++) {
        for (int64_t i = 0; i < ranks[k].n; i++) {
            at[(*n_out)++] =
                (begin){ranks[k].at[i].step, ranks[k].at[i].start_ns, ranks[k].at[i].end_ns};
        }
    }
    qsort(at, (size_t)*n_out, sizeof *at, by_step);
    *out = at;
    return RU_OK;
}

/* The first begin of the attempt that the sum is of: of its step's begins before it the newest, and
 * those of other ranks that had not ended by then, as an attempt before had. NULL: none is
 * recorded.
 */
static const begin *begin_of(const begin *at, int64_t n, int64_t ranks, const ru_predicted *sum)
{
    int64_t step = (int64_t)sum->step + 1, low = 0, high = n;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        bool before =
            at[mid].step < step || (at[mid].step == step && at[mid].start_ns <= sum->start_ns);
        low = before ? mid + 1 : low;
        high = before ? high : mid;
    }
    int64_t newest = low - 1, first = newest;
    if (newest < 0 || at[newest].step != step) {
        return NULL;
    }
    while (first > 0 && at[first - 1].step == step && newest - first + 1 < ranks &&
           at[first - 1].end_ns > at[newest].start_ns) {
        first--;
    }
    return &at[first];
}

/* One sum of one step. */
typedef struct one {
    uint32_t sum, last, step;
    uint16_t label;
    int64_t size_bytes, start_ns, ready_ns, arrive_ns, said_ns;
} one;

static int by_sum(const void *pa, const void *pb)
{
    const one *a = pa, *b = pb;
    if (a->sum != b->sum) {
        return a->sum < b->sum ? -1 : 1;
    }
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

static int by_value(const void *pa, const void *pb)
{
    const int64_t *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

static int64_t median(const one *at, int64_t n, size_t field, int64_t *room)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(&room[i], (const uint8_t *)&at[i] + field, sizeof room[i]);
    }
    qsort(room, (size_t)n, sizeof *room, by_value);
    return room[n / 2];
}

/* The index that stands most often in `last`; of equal ones the smaller. */
static void find_last(const one *at, int64_t n, ru_sum_time *into, int64_t *room)
{
    for (int64_t i = 0; i < n; i++) {
        room[i] = at[i].last;
    }
    qsort(room, (size_t)n, sizeof *room, by_value);
    for (int64_t i = 0, run = 0; i < n; i++) {
        run = i > 0 && room[i] == room[i - 1] ? run + 1 : 1;
        if (run > into->last_n) {
            into->last_n = run;
            into->last = (uint32_t)room[i];
        }
    }
}

/* Steps that a sum of the table in force may be behind the newest one: what is under way when the
 * records end. */
enum { BEHIND = 4 };

/* The step of the sum that began last. */
static uint32_t newest_step(const one *at, int64_t n)
{
    const one *newest = at;
    for (int64_t i = 1; i < n; i++) {
        newest = at[i].start_ns > newest->start_ns ? &at[i] : newest;
    }
    return n > 0 ? newest->step : 0;
}

/* Those of the newest one's size move to the front of a run of one number. Returns how many. */
static int64_t of_size(one *at, int64_t n)
{
    int64_t kept = 0, size = at[n - 1].size_bytes;
    for (int64_t i = 0; i < n; i++) {
        if (at[i].size_bytes == size) {
            at[kept++] = at[i];
        }
    }
    return kept;
}

static ru_status collect(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                         ru_arena *arena, one **out, int64_t *n_out, ru_err *err)
{
    ru_predicted *all;
    begin *begins = NULL;
    int64_t n_all = 0, n_begins = 0;
    RU_TRY(ru_trace_compare(traces, n, clocks, 0, arena, &all, &n_all, err));
    RU_TRY(find_begins(traces, n, clocks, arena, &begins, &n_begins, err));
    one *at = RU_NEW(arena, one, n_all + 1);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the sums of the trace is full");
    }
    *n_out = 0;
    for (int64_t i = 0; i < n_all; i++) {
        const ru_predicted *x = &all[i];
        const begin *from =
            strcmp(x->predictor, "coll") == 0 ? begin_of(begins, n_begins, n, x) : NULL;
        if (from != NULL) {
            int64_t ready = x->start_ns - from->start_ns;
            at[(*n_out)++] = (one){.sum = x->part,
                                   .last = x->trace,
                                   .step = x->step,
                                   .label = x->label,
                                   .size_bytes = x->size_bytes,
                                   .start_ns = x->start_ns,
                                   .ready_ns = ready,
                                   .arrive_ns = ready + (int64_t)x->took_ns,
                                   .said_ns = ready + (int64_t)x->said_ns};
        }
    }
    qsort(at, (size_t)*n_out, sizeof *at, by_sum);
    *out = at;
    return RU_OK;
}

static const char *name_of(const ru_trace *traces, const one *x)
{
    const ru_trace *t = &traces[x->last];
    return x->label != 0 && x->label < t->n_names ? t->names[x->label].name : "";
}

ru_status ru_trace_sums(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                        ru_arena *arena, ru_sum_time **out, uint32_t *n_out, ru_err *err)
{
    one *at = NULL;
    int64_t n_at = 0;
    RU_TRY(collect(traces, n, clocks, arena, &at, &n_at, err));
    int64_t *room = RU_NEW(arena, int64_t, n_at + 1);
    *out = RU_NEW(arena, ru_sum_time, n_at + 1);
    *n_out = 0;
    if (room == NULL || *out == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the sums of the trace is full");
    }
    const uint32_t newest = newest_step(at, n_at);
    for (int64_t from = 0, to; from < n_at; from = to) {
        for (to = from + 1; to < n_at && at[to].sum == at[from].sum; to++) {
        }
        int64_t k = of_size(&at[from], to - from);
        if ((int64_t)at[from + k - 1].step + BEHIND < newest) {
            continue;
        }
        ru_sum_time *x = &(*out)[(*n_out)++];
        *x = (ru_sum_time){.sum = at[from].sum,
                           .size_bytes = at[from].size_bytes,
                           .n = k,
                           .ready_ns = median(&at[from], k, offsetof(one, ready_ns), room),
                           .arrive_ns = median(&at[from], k, offsetof(one, arrive_ns), room),
                           .said_ns = median(&at[from], k, offsetof(one, said_ns), room),
                           .name = name_of(traces, &at[from + k - 1])};
        find_last(&at[from], k, x, room);
    }
    return RU_OK;
}
