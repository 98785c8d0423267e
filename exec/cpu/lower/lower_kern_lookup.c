/* LookUp: a binary search among sorted keys for each element. */
#include <math.h>
#include <string.h>

#include "exec/cpu/lower/lower_kern.h"

typedef struct lookup_state {
    ru_dtype key;
    int64_t n, keys, bytes; /* bytes: of a value */
    bool dflt;
} lookup_state;

/* Keys below x are counted; NaN stands last. */
static int64_t below_f32(const float *keys, int64_t n, float x)
{
    int64_t at = 0;
    for (; n > 1; n -= n / 2) {
        float k = keys[at + n / 2 - 1];
        at += k < x || (isnan(x) && !isnan(k)) ? n / 2 : 0;
    }
    return at;
}

static int64_t below_i64(const int64_t *keys, int64_t n, int64_t x)
{
    int64_t at = 0;
    for (; n > 1; n -= n / 2) {
        at += keys[at + n / 2 - 1] < x ? n / 2 : 0;
    }
    return at;
}

/* The place of element k's key, -1 when there is none. */
static int64_t place_of(const lookup_state *s, const void *x, const void *keys, int64_t k)
{
    if (s->key == RU_F32) {
        const float *v = keys, *e = x;
        int64_t at = below_f32(v, s->keys, e[k]);
        return v[at] == e[k] || (isnan(v[at]) && isnan(e[k])) ? at : -1;
    }
    const int64_t *v = keys, *e = x;
    int64_t at = below_i64(v, s->keys, e[k]);
    return v[at] == e[k] ? at : -1;
}

/* bufs: x keys values default? y */
static void lookup_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const lookup_state *s = state;
    const char *values = bufs[2];
    char *y = bufs[4];
    for (int64_t k = begin; k < end; k++) {
        int64_t at = place_of(s, bufs[0], bufs[1], k);
        const char *from = at >= 0 ? values + at * s->bytes : bufs[3];
        if (s->bytes == 8) {
            memcpy(y + k * 8, from, 8);
        } else {
            memcpy(y + k * s->bytes, from, (size_t)s->bytes);
        }
    }
}

static ru_status lookup_run(void *state, void *const *bufs, const rui_run *run)
{
    const lookup_state *s = state;
    for (int64_t k = 0; !s->dflt && k < s->n; k++) {
        if (place_of(s, bufs[0], bufs[1], k) < 0) {
            return RU_FAIL(run->err, RU_E_DATA,
                           "LookUp: element %lld of its input is none of the %lld keys",
                           (long long)k, (long long)s->keys);
        }
    }
    rui_kern_for(run, lookup_part, s, bufs, s->n, rui_kern_grain(16));
    return RU_OK;
}

ru_status rui_lower_kern_lookup(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *keys = rui_type(lo, n->in[1]);
    if ((x->dtype != RU_F32 && x->dtype != RU_I64) || rui_bf16(lo)) {
        return RU_E_UNSUPPORTED;
    }
    lookup_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    bool dflt = ru_node_has_in(n, 3);
    *s = (lookup_state){.key = x->dtype,
                        .n = ru_type_count(x),
                        .keys = ru_type_count(keys),
                        .bytes = ru_dtype_bytes(rui_type(lo, n->out[0])->dtype),
                        .dflt = dflt};
    rui_buf bufs[5] = {rui_in_plain(lo, n->in[0]), rui_in_plain(lo, n->in[1]),
                       rui_in_plain(lo, n->in[2]), dflt ? rui_in_plain(lo, n->in[3]) : (rui_buf){0},
                       rui_out_plain(lo, n->out[0])};
    rui_emit(lo,
             &(rui_step){
                 .kernel = "kern lookup", .fn = lookup_run, .state = s, .bufs = bufs, .n_bufs = 5});
    return rui_done(lo);
}
