/* Places that a tensor of indices names: shared by gathers and scatters.
 *
 * Elements: indices of the data's rank, each a place along one axis. Tuples: the last dim of the
 * indices is a tuple of `depth` numbers that names a slice of `cols` elements.
 *
 * Thread: as the executable. */
#ifndef RU_EXEC_CPU_LOWER_LOWER_KERN_INDEX_H
#define RU_EXEC_CPU_LOWER_LOWER_KERN_INDEX_H

#include "exec/cpu/lower/lower_kern.h"

typedef struct rui_index {
    const ru_kern *k;
    ru_dtype t, it;
    int64_t bytes;
    uint32_t rank, axis;
    int64_t dims[RU_RANK_MAX]; /* of the indices (elements) */
    int64_t step[RU_RANK_MAX]; /* of the data, in elements */
    int64_t limit[RU_RANK_MAX];
    int64_t rows, cols, depth, batch_rows, batch_step, total;
} rui_index;

/* What a thread met in its part of the indices. */
typedef struct rui_index_note {
    int64_t bad;    /* position of the first one out of range, -1: none */
    int64_t uneven; /* elements: rows whose indices are not all the same */
} rui_index_note;

/* Are there kernels for node `n` on data `x`? Fills `s`. */
bool rui_index_plan(rui_low *lo, const ru_node *n, const ru_type *x, bool elements, rui_index *s);

/* Slices along axis 0, as Gather takes them: tuples of one number. */
void rui_index_plan_rows(const ru_type *x, const ru_type *index, rui_index *s);

/* Notes of all threads, `each` for a thread, cleared; and what every one of them adds up to.
 * Errors: RU_E_DATA for an index out of range. */
rui_index_note *rui_index_notes(void *buf, uint32_t each, const rui_run *run);
RU_MUST_USE ru_status rui_index_judge(const rui_index *s, bool elements, const void *index,
                                      const rui_index_note *notes, uint32_t each,
                                      const rui_run *run, int64_t *uneven);

/* Does a ScatterND combine the slices that `n` (Gather, GatherND) takes, so that nobody else reads
 * them? It then takes them itself. */
bool rui_scatter_reads_past(rui_low *lo, const ru_node *n);

static inline int64_t rui_index_at(const rui_index *s, const void *index, int64_t i)
{
    return s->it == RU_I64 ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];
}

/* Index `v` along an axis of `limit`, counted from the front; -1 and a note when out of range. */
static inline int64_t rui_index_place(int64_t v, int64_t limit, int64_t at, rui_index_note *note)
{
    int64_t place = v < 0 ? v + limit : v;
    if (place < 0 || place >= limit) {
        note->bad = note->bad < 0 ? at : note->bad;
        return -1;
    }
    return place;
}

/* Where row r of the indices begins in the data, its place on the axis left out (elements). */
static inline int64_t rui_index_row(const rui_index *s, int64_t r)
{
    int64_t at = 0;
    for (uint32_t d = s->rank - 1; d-- > 0;) {
        at += d == s->axis ? 0 : r % s->dims[d] * s->step[d];
        r /= s->dims[d];
    }
    return at;
}

/* Where the slice begins that tuple r names; -1 and a note when it is out of range. */
static inline int64_t rui_index_tuple(const rui_index *s, const void *index, int64_t r,
                                      rui_index_note *note)
{
    int64_t at = s->batch_rows > 0 ? r / s->batch_rows * s->batch_step : 0;
    for (int64_t k = 0; k < s->depth; k++) {
        int64_t i = r * s->depth + k;
        int64_t v = rui_index_place(rui_index_at(s, index, i), s->limit[k], i, note);
        if (v < 0) {
            return -1;
        }
        at += v * s->step[k];
    }
    return at;
}

/* y[to] = x[from] for elements of 1, 2, 4 or 8 bytes. */
static inline void rui_index_move(int64_t bytes, void *y, int64_t to, const void *x, int64_t from)
{
    switch (bytes) {
    case 1:
        ((uint8_t *)y)[to] = ((const uint8_t *)x)[from];
        break;
    case 2:
        ((uint16_t *)y)[to] = ((const uint16_t *)x)[from];
        break;
    case 4:
        ((uint32_t *)y)[to] = ((const uint32_t *)x)[from];
        break;
    default:
        ((uint64_t *)y)[to] = ((const uint64_t *)x)[from];
        break;
    }
}

#endif
