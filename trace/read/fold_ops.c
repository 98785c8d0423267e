/* Folding the records of one executable into facts of its op instances. A record of a step carries
 * the executable (low half of its id, as the plan) and the step's place in the list (as the value),
 * so names are not needed: the end of a long file is enough.
 *
 * Three passes: count, collect, sort each step's durations. */
#include "trace/read/fold.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "env/file/file.h"
#include "trace/record/format.h"

/* The durations of one step of the list. */
typedef struct place {
    int64_t *ns; /* [n], in the order of the records */
    int64_t n, end_ns;
    bool joins; /* the record before was cut at the longest duration: the next goes on */
} place;

static int by_size(const void *pa, const void *pb)
{
    int64_t a = *(const int64_t *)pa, b = *(const int64_t *)pb;
    return a < b ? -1 : a > b;
}

static bool is_op(const ru_record *r, uint32_t exe, uint32_t n)
{
    return r->kind == RU_REC_SPAN && r->plan == exe && r->value >= 0 && r->value < (int64_t)n;
}

static void take(place *p, const ru_record *r)
{
    int64_t end_ns = r->start_ns + r->dur_ns;
    if (p->joins) {
        p->ns[p->n - 1] += r->dur_ns;
    } else {
        p->ns[p->n++] = r->dur_ns;
    }
    p->joins = r->dur_ns == UINT32_MAX;
    p->end_ns = end_ns > p->end_ns ? end_ns : p->end_ns;
}

/* The first run touches memory and caches for the first time: it counts only when it is the only
 * one. */
static ru_fact fact_of(place *p, int64_t last_ns)
{
    int64_t *ns = p->n > 1 ? p->ns + 1 : p->ns, n = p->n > 1 ? p->n - 1 : p->n;
    double sum = 0, squares = 0;
    qsort(ns, (size_t)n, sizeof *ns, by_size);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)ns[i];
    }
    ru_fact f = {.count = n,
                 .mean_ns = sum / (double)n,
                 .min_ns = ns[0],
                 .median_ns = ns[n / 2],
                 .p90_ns = ns[n * 9 / 10],
                 .max_ns = ns[n - 1],
                 .age_ns = last_ns - p->end_ns};
    for (int64_t i = 0; i < n; i++) {
        double d = (double)ns[i] - f.mean_ns;
        squares += d * d;
    }
    f.stddev_ns = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    return f;
}

ru_status ru_trace_fold_ops(const ru_trace *t, uint32_t exe, ru_op_fact *ops, uint32_t n,
                            ru_arena *scratch, ru_op_fold *out, ru_err *err)
{
    ru_op_fold f = {0};
    place *places = RU_NEW(scratch, place, n);
    int64_t *counts = RU_NEW(scratch, int64_t, n);
    bool fits = n == 0 || (places != NULL && counts != NULL);
    for (uint32_t k = 0; fits && k < t->n_threads; k++) {
        for (int64_t i = 0; i < t->threads[k].n; i++) {
            const ru_record *r = &t->threads[k].records[i];
            if (is_op(r, exe, n)) {
                counts[r->value]++;
                f.records++;
            }
        }
    }
    int64_t *all = RU_NEW(scratch, int64_t, f.records);
    if (!fits || (f.records > 0 && all == NULL)) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the trace is full");
    }
    for (uint32_t s = 0; s < n; s++) {
        places[s].ns = all;
        all += counts[s];
    }
    for (uint32_t k = 0; k < t->n_threads; k++) {
        for (int64_t i = 0; i < t->threads[k].n; i++) {
            const ru_record *r = &t->threads[k].records[i];
            if (is_op(r, exe, n)) {
                take(&places[r->value], r);
            }
        }
    }
    for (uint32_t s = 0; s < n; s++) {
        if (places[s].n > 0) {
            ops[s].took = fact_of(&places[s], t->last_ns);
            f.last_ns = places[s].end_ns > f.last_ns ? places[s].end_ns : f.last_ns;
            f.n_measured++;
        }
    }
    *out = f;
    return RU_OK;
}

/* -- the end of a file ------------------------------------------------------------------------- */

/* The first whole block at or behind `at`; size_bytes: there is none. */
static int64_t next_block(const uint8_t *data, int64_t size_bytes, int64_t at)
{
    for (; at + RUI_TRACE_BLOCK_BYTES <= size_bytes; at++) {
        uint32_t w[6];
        memcpy(w, data + at, sizeof w);
        if (w[0] == RUI_TRACE_BLOCK_MAGIC && w[3] <= RUI_TRACE_PAYLOAD_MAX &&
            (int64_t)w[3] <= size_bytes - at - RUI_TRACE_BLOCK_BYTES &&
            ru_crc32c(0, data + at + RUI_TRACE_BLOCK_BYTES, w[3]) == w[4]) {
            return at;
        }
    }
    return size_bytes;
}

/* Bytes of the blocks before `end` that say what later records mean; into `to` unless it is NULL.
 */
static int64_t keep_meanings(const uint8_t *data, int64_t end, uint8_t *to)
{
    int64_t kept = 0;
    for (int64_t at = RUI_TRACE_HEADER_BYTES; at + RUI_TRACE_BLOCK_BYTES <= end;) {
        uint32_t w[6];
        memcpy(w, data + at, sizeof w);
        int64_t n = RUI_TRACE_BLOCK_BYTES + (int64_t)w[3];
        if (w[0] != RUI_TRACE_BLOCK_MAGIC || w[3] > RUI_TRACE_PAYLOAD_MAX || n > end - at) {
            break;
        }
        bool means = w[1] == RUI_TRACE_NAMES || w[1] == RUI_TRACE_THREAD ||
                     w[1] == RUI_TRACE_NODE || w[1] == RUI_TRACE_PEER || w[1] == RUI_TRACE_META;
        if (means && to != NULL) {
            memcpy(to + kept, data + at, (size_t)n);
        }
        kept += means ? n : 0;
        at += n;
    }
    return kept;
}

ru_status ru_trace_load_end(const char *path, int64_t bytes_max, ru_arena *arena, ru_trace *out,
                            ru_err *err)
{
    ru_map_file m;
    RU_CHECK(bytes_max > 0);
    RU_TRY(ru_file_map(path, &m, err));
    if (m.size_bytes <= RUI_TRACE_HEADER_BYTES + bytes_max) {
        ru_file_unmap(&m);
        return ru_trace_load(path, arena, out, err);
    }
    int64_t at = next_block(m.data, m.size_bytes, m.size_bytes - bytes_max);
    int64_t n = m.size_bytes - at, kept = keep_meanings(m.data, at, NULL);
    uint8_t *copy = ru_arena_alloc(arena, RUI_TRACE_HEADER_BYTES + kept + n, 8);
    if (copy != NULL) {
        memcpy(copy, m.data, RUI_TRACE_HEADER_BYTES);
        keep_meanings(m.data, at, copy + RUI_TRACE_HEADER_BYTES);
        memcpy(copy + RUI_TRACE_HEADER_BYTES + kept, m.data + at, (size_t)n);
        n += kept;
    }
    ru_file_unmap(&m);
    if (copy == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the trace is full");
    }
    ru_status st = ru_trace_parse(copy, RUI_TRACE_HEADER_BYTES + n, arena, out, err);
    return st == RU_OK ? st : ru_err_wrap(err, st, "%s", path);
}
