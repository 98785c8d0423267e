/* Attention on a cache: the new keys and values are written, then each row sees its sequence.
 *
 * Rows of one slot at successive positions (a piece of a prompt) are one group, which reads each
 * key once. */
#include <math.h>
#include <string.h>

#include "exec/cpu/lower/lower_kern.h"

typedef struct cached_state {
    const ru_kern *k;
    ru_kern_attn proto;
    int64_t rows, slots, heads, room, size, work; /* work: floats of one thread */
    int64_t *begin;                               /* [rows + 1] first rows of groups, in the run */
} cached_state;

enum { C_QKV, C_KEYS, C_VALUES, C_SLOT, C_AT, C_Y, C_KEYS_OUT, C_VALUES_OUT, C_WORK, C_BUFS };

static const void *const_at(const void *x, ru_dtype t, int64_t at)
{
    return (const char *)x + at * ru_dtype_bytes(t);
}

static void *at_of(void *x, ru_dtype t, int64_t at)
{
    return (char *)x + at * ru_dtype_bytes(t);
}

/* One head of one position. */
static void put(const cached_state *s, const void *x, int64_t from, void *cache, int64_t to)
{
    ru_dtype t = s->proto.t, kv = s->proto.t_kv;
    const void *src = const_at(x, t, from);
    void *dst = at_of(cache, kv, to);
    if (t == kv) {
        memcpy(dst, src, (size_t)(s->size * ru_dtype_bytes(t)));
    } else {
        RU_CHECK(s->k->cast(t, src, kv, dst, s->size));
    }
}

/* Rows begin .. end of both caches. */
static void write_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const cached_state *s = state;
    const int64_t *slot = bufs[C_SLOT], *at = bufs[C_AT];
    int64_t width = s->heads * s->size;
    for (int64_t i = begin; i < end; i++) {
        for (int64_t h = 0; at[i] >= 0 && h < s->heads; h++) {
            int64_t from = i * 3 * width + width + h * s->size,
                    to = ((slot[i] * s->heads + h) * s->room + at[i]) * s->size;
            put(s, bufs[C_QKV], from, bufs[C_KEYS_OUT], to);
            put(s, bufs[C_QKV], from + width, bufs[C_VALUES_OUT], to);
        }
    }
}

static void one_group(const cached_state *s, void *const *bufs, int64_t i, int64_t rows, int64_t h,
                      float *work)
{
    const int64_t *slot = bufs[C_SLOT], *at = bufs[C_AT];
    int64_t width = s->heads * s->size, base = (slot[i] * s->heads + h) * s->room * s->size;
    ru_kern_attn a = s->proto;
    a.k = const_at(bufs[C_KEYS_OUT], a.t_kv, base);
    a.v = const_at(bufs[C_VALUES_OUT], a.t_kv, base);
    a.work = work;
    a.q = const_at(bufs[C_QKV], a.t, i * 3 * width + h * s->size);
    a.y = at_of(bufs[C_Y], a.t, i * width + h * s->size);
    a.rows = rows;
    a.past = at[i];
    a.keys = at[i] + rows;
    if (at[i] >= 0) {
        (rows == 1 ? s->k->attn_row : s->k->attn_rows)(&a);
        return;
    }
    memset(a.y, 0, (size_t)(s->size * ru_dtype_bytes(a.t))); /* a row that is none: alone */
}

static void attend_part(const void *state, void *const *bufs, int64_t begin, int64_t end,
                        void *work)
{
    const cached_state *s = state;
    for (int64_t i = begin; i < end; i++) {
        int64_t g = i / s->heads;
        one_group(s, bufs, s->begin[g], s->begin[g + 1] - s->begin[g], i % s->heads, work);
    }
}

/* Groups of rows; RU_E_DATA for a place that there is not. */
static ru_status group(cached_state *s, void *const *bufs, int64_t *n, ru_err *err)
{
    const int64_t *slot = bufs[C_SLOT], *at = bufs[C_AT];
    *n = 0;
    for (int64_t i = 0; i < s->rows; i++) {
        if (at[i] >= s->room || slot[i] < 0 || slot[i] >= s->slots) {
            return RU_FAIL(err, RU_E_DATA,
                           "AttentionCached: row %lld has slot %lld and position %lld, but there "
                           "are %lld slots of %lld positions",
                           (long long)i, (long long)slot[i], (long long)at[i], (long long)s->slots,
                           (long long)s->room);
        }
        bool goes_on = i > 0 && at[i] > 0 && slot[i] == slot[i - 1] && at[i] == at[i - 1] + 1;
        if (!goes_on) {
            s->begin[(*n)++] = i;
        }
    }
    s->begin[*n] = s->rows;
    return RU_OK;
}

static ru_status cached_run(void *state, void *const *bufs, const rui_run *run)
{
    cached_state *s = state;
    int64_t groups, bytes = s->slots * s->heads * s->room * s->size * ru_dtype_bytes(s->proto.t_kv);
    RU_TRY(group(s, bufs, &groups, run->err));
    for (uint32_t k = 0; k < 2; k++) { /* equal where the cache is updated in place */
        if (bufs[C_KEYS_OUT + k] != bufs[C_KEYS + k]) {
            memcpy(bufs[C_KEYS_OUT + k], bufs[C_KEYS + k], (size_t)bytes);
        }
    }
    rui_kern_for(run, write_part, s, bufs, s->rows, rui_kern_grain(2 * s->heads * s->size));
    rui_kern_for_own(run, attend_part, s, bufs, groups * s->heads, 1, bufs[C_WORK],
                     s->work * (int64_t)sizeof(float));
    return RU_OK;
}

ru_status rui_lower_kern_attention_cached(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *keys = rui_type(lo, n->in[1]);
    bool all = ru_node_has_out(n, 0) && ru_node_has_out(n, 1) && ru_node_has_out(n, 2);
    ru_dtype t = rui_kern_dtype(lo, n->in[0]), kv = keys->dtype;
    if (!all || !rui_kern_float(t) || !rui_kern_float(kv) || ru_type_count(keys) == 0 ||
        ru_type_count(x) == 0) {
        return RU_E_UNSUPPORTED;
    }
    cached_state *s = rui_keep(lo, (int64_t)sizeof *s);
    int64_t *begin = rui_keep(lo, (x->dims[0] + 1) * (int64_t)sizeof *begin);
    if (s == NULL || begin == NULL) {
        return rui_done(lo);
    }
    int64_t d = keys->dims[3], width = keys->dims[1] * d;
    *s = (cached_state){.k = ru_kern_best(),
                        .rows = x->dims[0],
                        .slots = keys->dims[0],
                        .heads = keys->dims[1],
                        .room = keys->dims[2],
                        .size = d,
                        .begin = begin};
    s->proto =
        (ru_kern_attn){.t = t,
                       .t_kv = kv,
                       .rows = s->rows,
                       .keys = s->room,
                       .head_size = d,
                       .ld_q = 3 * width,
                       .ld_k = d,
                       .ld_v = d,
                       .ld_y = width,
                       .scale = (float)ru_node_float(n, RU_ATTR_scale, 1.0 / sqrt((double)d)),
                       .causal = true};
    s->work = (s->k->attn_rows_work(&s->proto) + 1023) / 1024 * 1024;
    rui_buf b[C_BUFS] = {{0}};
    const rui_layout *cache = rui_plain(lo, keys);
    b[C_QKV] = rui_in(lo, n->in[0], rui_plain_as(lo, x, t));
    b[C_KEYS] = rui_in(lo, n->in[1], cache);
    b[C_VALUES] = rui_in(lo, n->in[2], cache);
    b[C_SLOT] = rui_in_plain(lo, n->in[3]);
    b[C_AT] = rui_in_plain(lo, n->in[4]);
    b[C_Y] = rui_out(lo, n->out[0], rui_plain_as(lo, rui_type(lo, n->out[0]), t));
    b[C_KEYS_OUT] = rui_out_over(lo, n->out[1], cache, b[C_KEYS]);
    b[C_VALUES_OUT] = rui_out_over(lo, n->out[2], cache, b[C_VALUES]);
    b[C_WORK] = rui_scratch(lo, s->work * (int64_t)sizeof(float) * (int64_t)rui_threads(lo));
    rui_emit(lo, &(rui_step){.kernel = "kern attention cached",
                             .fn = cached_run,
                             .state = s,
                             .bufs = b,
                             .n_bufs = C_BUFS});
    return rui_done(lo);
}
