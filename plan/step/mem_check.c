/* The judge of buffer plans. Shares nothing with the planner: it knows offsets, lifetimes and who
 * is part of whom, and looks at every two buffers that share an address. */
#include "plan/step/mem.h"

#include <string.h>

typedef struct judge {
    const ru_mem_in *in;
    const ru_mem_plan *plan;
    int64_t align;
    uint32_t *root;        /* [n] outermost buffer of each */
    uint32_t *by_address;  /* [n] */
    uint32_t *begin, *end; /* [n] lifetime of a whole family, at its root */
    int64_t *reach;        /* [n] bytes of a whole family, at its root */
} judge;

/* Shell sort of indices by a rising 64-bit key. */
static void sort_rising(uint32_t *idx, uint32_t n, const int64_t *key)
{
    uint32_t gap = 1;
    while (gap < n / 3) {
        gap = gap * 3 + 1;
    }
    for (; gap > 0; gap /= 3) {
        for (uint32_t i = gap; i < n; i++) {
            uint32_t x = idx[i], j = i;
            for (; j >= gap && key[idx[j - gap]] > key[x]; j -= gap) {
                idx[j] = idx[j - gap];
            }
            idx[j] = x;
        }
    }
}

static int64_t whole(const judge *j, uint32_t i)
{
    return (j->in->bufs[i].size_bytes + j->align - 1) & ~(j->align - 1);
}

/* Offsets in range and aligned, parts at their place, the peak what it should be. */
static ru_status judge_places(const judge *j, ru_err *err)
{
    int64_t top = 0;
    for (uint32_t i = 0; i < j->in->n; i++) {
        const ru_mem_buf *b = &j->in->bufs[i];
        int64_t at = j->plan->offsets[i];
        if (at < 0 || at > INT64_MAX / 2 || at % j->align != 0) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "buffer %u is at offset %lld, which is not a multiple of %lld", i,
                           (long long)at, (long long)j->align);
        }
        if (b->part_of != 0 && at - j->plan->offsets[b->part_of - 1] != b->part_at_bytes) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "buffer %u is not %lld bytes inside buffer %u", i,
                           (long long)b->part_at_bytes, b->part_of - 1);
        }
        top = at + whole(j, i) > top ? at + whole(j, i) : top;
    }
    if (top != j->plan->peak_bytes) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the buffers end at %lld bytes, the plan says %lld",
                       (long long)top, (long long)j->plan->peak_bytes);
    }
    return RU_OK;
}

static ru_status judge_collisions(const judge *j, ru_err *err)
{
    const ru_mem_buf *bufs = j->in->bufs;
    for (uint32_t k = 0; k < j->in->n; k++) {
        uint32_t a = j->by_address[k];
        int64_t end = j->plan->offsets[a] + bufs[a].size_bytes;
        for (uint32_t l = k + 1; l < j->in->n; l++) {
            uint32_t b = j->by_address[l];
            if (j->plan->offsets[b] >= end) {
                break;
            }
            bool together = bufs[a].first <= bufs[b].last && bufs[b].first <= bufs[a].last;
            if (together && bufs[b].size_bytes > 0 && j->root[a] != j->root[b]) {
                return RU_FAIL(
                    err, RU_E_INFEASIBLE,
                    "buffers %u (steps %u to %u) and %u (steps %u to %u) share byte %lld", a,
                    bufs[a].first, bufs[a].last, b, bufs[b].first, bufs[b].last,
                    (long long)j->plan->offsets[b]);
            }
        }
    }
    return RU_OK;
}

/* The bound again: at the start of each family, all families alive. `key` [n] is scratch. */
static ru_status judge_bound(const judge *j, uint32_t *starts, uint32_t *ends, int64_t *key,
                             ru_err *err)
{
    uint32_t n = 0, done = 0;
    int64_t live = 0, most = 0;
    for (uint32_t i = 0; i < j->in->n; i++) {
        if (j->root[i] == i) {
            starts[n] = ends[n] = i;
            n++;
        }
        key[i] = j->begin[i];
    }
    sort_rising(starts, n, key);
    for (uint32_t i = 0; i < j->in->n; i++) {
        key[i] = j->end[i];
    }
    sort_rising(ends, n, key);
    for (uint32_t k = 0; k < n; k++) {
        live += j->reach[starts[k]];
        while (j->end[ends[done]] < j->begin[starts[k]]) {
            live -= j->reach[ends[done++]];
        }
        most = live > most ? live : most;
    }
    if (most != j->plan->bound_bytes || most > j->plan->peak_bytes) {
        return RU_FAIL(
            err, RU_E_INFEASIBLE,
            "at most %lld bytes are alive at one step, the plan says %lld, with a peak of %lld",
            (long long)most, (long long)j->plan->bound_bytes, (long long)j->plan->peak_bytes);
    }
    return RU_OK;
}

static void find_families(judge *j)
{
    for (uint32_t i = 0; i < j->in->n; i++) {
        const ru_mem_buf *b = &j->in->bufs[i];
        uint32_t r = b->part_of == 0 ? i : j->root[b->part_of - 1];
        int64_t far = j->plan->offsets[i] - j->plan->offsets[r] + whole(j, i);
        j->root[i] = r;
        if (r == i) {
            j->begin[i] = b->first;
            j->end[i] = b->last;
        }
        j->begin[r] = b->first < j->begin[r] ? b->first : j->begin[r];
        j->end[r] = b->last > j->end[r] ? b->last : j->end[r];
        j->reach[r] = far > j->reach[r] ? far : j->reach[r];
        j->by_address[i] = i;
    }
    sort_rising(j->by_address, j->in->n, j->plan->offsets);
}

ru_status ru_plan_mem_check(const ru_mem_in *in, const ru_mem_plan *plan, ru_arena *scratch,
                            ru_err *err)
{
    if (plan->n != in->n) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the plan has %u buffers, the question %u", plan->n,
                       in->n);
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    judge j = {.in = in, .plan = plan};
    j.align = in->align_bytes != 0 ? in->align_bytes : RU_MEM_ALIGN_DEFAULT;
    uint32_t *idx = RU_NEW(scratch, uint32_t, 6 * (int64_t)in->n);
    int64_t *wide = RU_NEW(scratch, int64_t, 2 * (int64_t)in->n);
    ru_status st = RU_OK;
    if (idx == NULL || wide == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "scratch arena is full while checking %u buffers", in->n);
    }
    j.root = idx;
    j.by_address = idx + in->n;
    j.begin = idx + 2 * (int64_t)in->n;
    j.end = idx + 3 * (int64_t)in->n;
    j.reach = wide;
    st = judge_places(&j, err);
    if (st == RU_OK) {
        find_families(&j);
        st = judge_collisions(&j, err);
    }
    if (st == RU_OK) {
        st = judge_bound(&j, idx + 4 * (int64_t)in->n, idx + 5 * (int64_t)in->n, wide + in->n, err);
    }
    ru_arena_rewind(scratch, mark);
    return st;
}
