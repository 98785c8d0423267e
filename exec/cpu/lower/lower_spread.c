/* Broadcasting: merging the dimensions of a result, and the loop over its rows. */
#include "exec/cpu/lower/lower_spread.h"

#include <string.h>

/* Shorter rows are staged: a call takes 10 ns, as long as 64 additions do. The rows of an operand
 * that are staged at a time stay in L1. */
enum { SHORT_BYTES = 256, STAGE_BYTES = 4096, LINE = 64 };

/* Strides of `t` broadcast to `to` (rank r of `to`), 0 where it repeats. */
static void broadcast_strides(const ru_type *t, const ru_type *to, int64_t *s)
{
    int64_t step = 1;
    for (uint32_t d = to->rank; d-- > 0;) {
        uint32_t back = to->rank - d;
        int64_t dim = back <= t->rank ? t->dims[t->rank - back] : 1;
        s[d] = dim == 1 ? 0 : step;
        step *= dim;
    }
}

/* Neighbours whose strides continue each other for all operands are one; dimensions of 1 are none.
 */
void rui_spread_plan(rui_spread *s, const ru_type *out, const ru_type *const *t, uint32_t n)
{
    int64_t st[RUI_SPREAD_MAX][RU_RANK_MAX], dims[RU_RANK_MAX] = {1};
    uint32_t r = 0;
    RU_CHECK(n <= RUI_SPREAD_MAX);
    for (uint32_t k = 0; k < n; k++) {
        broadcast_strides(t[k], out, st[k]);
        s->step[k] = 1;
        s->bytes[k] = ru_dtype_bytes(t[k]->dtype);
    }
    s->bytes[n] = ru_dtype_bytes(out->dtype);
    for (uint32_t d = 0; d < out->rank; d++) {
        bool joins = r > 0;
        for (uint32_t k = 0; k < n && joins; k++) {
            joins = st[k][r - 1] == st[k][d] * out->dims[d];
        }
        if (out->dims[d] == 1) {
            continue;
        }
        if (joins) {
            dims[r - 1] *= out->dims[d];
        } else {
            dims[r++] = out->dims[d];
        }
        for (uint32_t k = 0; k < n; k++) {
            st[k][r - 1] = st[k][d];
        }
    }
    s->n = n;
    s->rank = r > 0 ? r - 1 : 0;
    s->cols = dims[s->rank];
    s->rows = 1;
    for (uint32_t d = 0; d < s->rank; d++) {
        s->dims[d] = dims[d];
        s->rows *= dims[d];
    }
    for (uint32_t k = 0; k < n && r > 0; k++) {
        for (uint32_t d = 0; d < s->rank; d++) {
            s->by[k][d] = st[k][d];
        }
        s->step[k] = st[k][r - 1];
    }
}

/* -- the loop ---------------------------------------------------------------------------------- */

typedef struct spread_call {
    const rui_spread *s;
    rui_spread_piece fn;
    const void *state;
} spread_call;

/* Elements of operand k before row `row`. */
static int64_t before(const rui_spread *s, uint32_t k, int64_t row)
{
    int64_t at = 0;
    for (uint32_t d = s->rank; d-- > 0;) {
        at += row % s->dims[d] * s->by[k][d];
        row /= s->dims[d];
    }
    return at;
}

/* How an operand's rows follow each other. */
typedef enum follow { FOLLOW_ON, FOLLOW_SAME, FOLLOW_ANY } follow;

static follow follows(const rui_spread *s, uint32_t k)
{
    bool on = s->step[k] == 1, same = true;
    int64_t each = s->cols;
    for (uint32_t d = s->rank; d-- > 0;) {
        on = on && s->by[k][d] == each;
        same = same && s->by[k][d] == 0;
        each *= s->dims[d];
    }
    return on ? FOLLOW_ON : same ? FOLLOW_SAME : FOLLOW_ANY;
}

/* Eight bytes of the same number over and over. */
static uint64_t word_of(const char *x, int64_t bytes)
{
    uint64_t word = 0;
    switch (bytes) {
    case 1:
        return (uint8_t)*x * UINT64_C(0x0101010101010101);
    case 2:
        memcpy(&word, x, 2);
        return word * UINT64_C(0x0001000100010001);
    case 4:
        memcpy(&word, x, 4);
        return word << 32 | word;
    default:
        memcpy(&word, x, 8);
        return word;
    }
}

/* Whole lines, up to one past the end, where the next row or room comes: stores of one element each
 * took longer than the division of 8 x 512 x 7 x 7 by channels. */
static void fill_row(uint64_t word, char *into, int64_t bytes)
{
    const uint64_t line[LINE / 8] = {word, word, word, word, word, word, word, word};
    for (int64_t c = 0; c < bytes; c += LINE) {
        memcpy(into + c, line, sizeof line);
    }
}

/* Rows `by` elements apart, one behind the other. */
static void copy_rows(const void *from, int64_t by, int64_t step, void *into, int64_t rows,
                      int64_t cols, int64_t bytes)
{
    if (step == 1 && by == cols) {
        memcpy(into, from, (size_t)(rows * cols * bytes));
        return;
    }
    for (int64_t r = 0; step == 1 && r < rows; r++) {
        memcpy((char *)into + r * cols * bytes, (const char *)from + r * by * bytes,
               (size_t)(cols * bytes));
    }
    for (int64_t r = 0; step != 1 && r < rows; r++) {
        uint64_t word = word_of((const char *)from + r * by * bytes, bytes);
        fill_row(word, (char *)into + r * cols * bytes, cols * bytes);
    }
}

/* Operand k's rows [row, row + n). */
static void stage_rows(const rui_spread *s, uint32_t k, const char *x, int64_t row, int64_t n,
                       char *into)
{
    const int64_t bytes = s->bytes[k], run = s->dims[s->rank - 1], by = s->by[k][s->rank - 1];
    for (int64_t m; n > 0; n -= m, row += m, into += m * s->cols * bytes) {
        m = run - row % run;
        m = m < n ? m : n;
        copy_rows(x + before(s, k, row) * bytes, by, s->step[k], into, m, s->cols, bytes);
    }
}

/* Rows [begin, end), several at a time. */
static void short_rows(const spread_call *c, void *const *bufs, int64_t begin, int64_t end,
                       int64_t rows)
{
    const rui_spread *s = c->s;
    _Alignas(64) char stage[RUI_SPREAD_MAX][STAGE_BYTES + LINE];
    follow how[RUI_SPREAD_MAX];
    int64_t step[RUI_SPREAD_MAX];
    void *at[RUI_SPREAD_MAX + 1];
    for (uint32_t k = 0; k < s->n; k++) {
        how[k] = follows(s, k);
        bool one = how[k] == FOLLOW_SAME && s->step[k] == 0;
        step[k] = one ? 0 : 1;
        at[k] = one || how[k] == FOLLOW_ON ? bufs[k] : stage[k];
        if (how[k] == FOLLOW_SAME && !one) {
            stage_rows(s, k, bufs[k], 0, rows < end - begin ? rows : end - begin, stage[k]);
        }
    }
    for (int64_t r = begin, n; r < end; r += n) {
        n = end - r < rows ? end - r : rows;
        for (uint32_t k = 0; k < s->n; k++) {
            if (how[k] == FOLLOW_ON) {
                at[k] = (char *)bufs[k] + r * s->cols * s->bytes[k];
            } else if (how[k] == FOLLOW_ANY) {
                stage_rows(s, k, bufs[k], r, n, stage[k]);
            }
        }
        at[s->n] = (char *)bufs[s->n] + r * s->cols * s->bytes[s->n];
        c->fn(c->state, at, step, n * s->cols);
    }
}

/* Rows [begin, end), each by itself. */
static void long_rows(const spread_call *c, void *const *bufs, int64_t begin, int64_t end)
{
    const rui_spread *s = c->s;
    void *at[RUI_SPREAD_MAX + 1];
    int64_t i[RU_RANK_MAX] = {0};
    for (int64_t d = (int64_t)s->rank - 1, r = begin; d >= 0; d--) {
        i[d] = r % s->dims[d];
        r /= s->dims[d];
    }
    for (uint32_t k = 0; k < s->n; k++) {
        at[k] = (char *)bufs[k] + before(s, k, begin) * s->bytes[k];
    }
    for (int64_t r = begin; r < end; r++) {
        at[s->n] = (char *)bufs[s->n] + r * s->cols * s->bytes[s->n];
        c->fn(c->state, at, s->step, s->cols);
        for (uint32_t d = s->rank; d-- > 0;) {
            bool over = ++i[d] == s->dims[d];
            for (uint32_t k = 0; k < s->n; k++) {
                int64_t by = over ? s->by[k][d] * (1 - s->dims[d]) : s->by[k][d];
                at[k] = (char *)at[k] + by * s->bytes[k];
            }
            if (!over) {
                break;
            }
            i[d] = 0;
        }
    }
}

/* Copies of two operands cost more than calls, except of the shortest rows. */
static void rows_part(const void *call, void *const *bufs, int64_t begin, int64_t end)
{
    const spread_call *c = call;
    const rui_spread *s = c->s;
    int64_t most = 1, any = 0;
    for (uint32_t k = 0; k < s->n; k++) {
        most = s->bytes[k] > most ? s->bytes[k] : most;
        any += follows(s, k) == FOLLOW_ANY ? 1 : 0;
    }
    if (s->cols * most <= (any > 1 ? SHORT_BYTES / 4 : SHORT_BYTES)) {
        short_rows(c, bufs, begin, end, STAGE_BYTES / (s->cols * most));
    } else {
        long_rows(c, bufs, begin, end);
    }
}

/* One long row is split by elements. */
static void flat_part(const void *call, void *const *bufs, int64_t begin, int64_t end)
{
    const spread_call *c = call;
    const rui_spread *s = c->s;
    void *at[RUI_SPREAD_MAX + 1];
    for (uint32_t k = 0; k < s->n; k++) {
        at[k] = (char *)bufs[k] + begin * s->step[k] * s->bytes[k];
    }
    at[s->n] = (char *)bufs[s->n] + begin * s->bytes[s->n];
    c->fn(c->state, at, s->step, end - begin);
}

void rui_spread_run(const rui_run *run, const rui_spread *s, rui_spread_piece fn, const void *state,
                    void *const *bufs)
{
    const spread_call c = {s, fn, state};
    if (s->rows == 1) {
        rui_kern_for(run, flat_part, &c, bufs, s->cols, 4096);
    } else {
        rui_kern_for(run, rows_part, &c, bufs, s->rows, rui_kern_grain(s->cols));
    }
}
