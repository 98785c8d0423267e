/* Copies between layouts: reorder steps, and reorders outside of runs. */
#include "exec/cpu/low/low.h"

#include <string.h>

#include "exec/cpu/lower/lower_kern.h"

typedef struct copy_state {
    const rui_dnnl *nn;
    dnnl_primitive_t prim;
    dnnl_memory_t from, to, scratch;
    int64_t size_bytes; /* of a plain copy */
} copy_state;

static ru_status copy_plain(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const copy_state *c = state;
    if (bufs[0] != bufs[1]) {
        memcpy(bufs[1], bufs[0], (size_t)c->size_bytes);
    }
    return RU_OK;
}

static ru_status copy_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)bufs;
    const copy_state *c = state;
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_FROM, c->from}, {DNNL_ARG_TO, c->to}, {DNNL_ARG_SCRATCHPAD, c->scratch}};
    return c->nn->primitive_execute(c->prim, run->stream, 3, args) == dnnl_success ? RU_OK
                                                                                   : RU_E_BUG;
}

static ru_status copy_bind(void *state, void *const *bufs, ru_err *err)
{
    copy_state *c = state;
    if (c->nn->memory_set_data_handle(c->from, bufs[0]) != dnnl_success ||
        c->nn->memory_set_data_handle(c->to, bufs[1]) != dnnl_success ||
        c->nn->memory_set_data_handle(c->scratch, bufs[2]) != dnnl_success) {
        return RU_FAIL(err, RU_E_BUG, "oneDNN refused the memory of a reorder");
    }
    return RU_OK;
}

static void copy_fini(void *state)
{
    copy_state *c = state;
    if (c->prim != NULL) {
        (void)c->nn->primitive_destroy(c->prim);
        (void)c->nn->memory_destroy(c->from);
        (void)c->nn->memory_destroy(c->to);
        (void)c->nn->memory_destroy(c->scratch);
    }
    memset(c, 0, sizeof *c);
}

/* A row-major side may be read with the other side's dims (grouped weights have one more). */
static dnnl_memory_desc_t side_md(rui_low *lo, const rui_layout *l, const rui_layout *other)
{
    if (!l->plain ||
        (l->md.ndims == other->md.ndims &&
         memcmp(l->type.dims, other->type.dims, l->type.rank * sizeof l->type.dims[0]) == 0)) {
        return l->md;
    }
    ru_type t = other->type;
    t.dtype = l->type.dtype;
    const rui_layout *p = rui_plain(lo, &t);
    return p == NULL ? l->md : p->md;
}

static ru_status make_primitive(rui_low *lo, const rui_layout *a, const rui_layout *b,
                                copy_state *c, int64_t *scratch_bytes)
{
    rui_dnnl *nn = &lo->nn;
    dnnl_memory_desc_t from = side_md(lo, a, b);
    dnnl_memory_desc_t to = a->plain ? b->md : side_md(lo, b, a); /* not both: they would swap */
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = nn->primitive_attr_create(&attr);
    st = st != dnnl_success
             ? st
             : nn->primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    st = st != dnnl_success
             ? st
             : nn->reorder_primitive_desc_create(&pd, &from, nn->engine, &to, nn->engine, attr);
    const dnnl_memory_desc_t *smd =
        st != dnnl_success ? NULL : nn->primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    st = st != dnnl_success ? st : nn->primitive_create(&c->prim, pd);
    st = st != dnnl_success ? st : nn->memory_create(&c->from, &from, nn->engine, DNNL_MEMORY_NONE);
    st = st != dnnl_success ? st : nn->memory_create(&c->to, &to, nn->engine, DNNL_MEMORY_NONE);
    st =
        st != dnnl_success ? st : nn->memory_create(&c->scratch, smd, nn->engine, DNNL_MEMORY_NONE);
    *scratch_bytes = st != dnnl_success ? 0 : (int64_t)nn->memory_desc_get_size(smd);
    if (pd != NULL) {
        (void)nn->primitive_desc_destroy(pd);
    }
    if (attr != NULL) {
        (void)nn->primitive_attr_destroy(attr);
    }
    nn->primitives++;
    if (st != dnnl_success) {
        return rui_fail(lo, RU_E_BUG, "oneDNN has no reorder from %s to %s (rank %u and %u): %s",
                        ru_dtype_name(a->type.dtype), ru_dtype_name(b->type.dtype), a->type.rank,
                        b->type.rank, rui_dnnl_status_name(st));
    }
    return RU_OK;
}

/* -- between row-major images and channels last --------------------------------------------------
 * Matrices of channels and places. oneDNN's reorder of bytes took 193 us of the 233 us of a
 * convolution of 3 images of 195 x 7 x 101 (one Zen 5 core). */

typedef struct turn_state {
    const ru_kern *k;
    int64_t bytes, images, channels, places;
    int64_t chunk, chunks; /* of places, for threads */
    bool to_last;
} turn_state;

static void turn_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const turn_state *s = state;
    for (int64_t i = begin; i < end; i++) {
        int64_t image = i / s->chunks * s->places * s->channels, first = i % s->chunks * s->chunk;
        int64_t n = s->places - first < s->chunk ? s->places - first : s->chunk;
        int64_t plain = (image + first) * s->bytes, last = (image + first * s->channels) * s->bytes;
        if (s->to_last) {
            s->k->transpose(s->bytes, (const char *)bufs[0] + plain, s->places,
                            (char *)bufs[1] + last, s->channels, s->channels, n);
        } else {
            s->k->transpose(s->bytes, (const char *)bufs[0] + last, s->channels,
                            (char *)bufs[1] + plain, s->places, n, s->channels);
        }
    }
}

static ru_status turn_run(void *state, void *const *bufs, const rui_run *run)
{
    const turn_state *s = state;
    rui_kern_for(run, turn_part, s, bufs, s->images * s->chunks,
                 rui_kern_grain(s->chunk * s->channels));
    return RU_OK;
}

static bool is_last(const rui_layout *l)
{
    return !l->plain && !l->padded && !l->opaque && l->type.rank > 2 && l->md.extra.flags == 0 &&
           rui_block_lanes(l) == 0 && l->md.ndims == (int)l->type.rank &&
           rui_side_by_side(l, &l->type) > 0;
}

/* False: it is another reorder. */
static bool turn_of(const rui_low *lo, const rui_layout *a, const rui_layout *b, turn_state *s)
{
    const rui_layout *last = a->plain ? b : a;
    const ru_type *t = &last->type;
    int64_t bytes = ru_dtype_bytes(t->dtype), threads = rui_threads(lo);
    if (a->plain == b->plain || !is_last(last) || a->type.dtype != b->type.dtype ||
        a->type.rank != t->rank || b->type.rank != t->rank ||
        memcmp(a->type.dims, b->type.dims, t->rank * sizeof t->dims[0]) != 0) {
        return false;
    }
    *s = (turn_state){.k = ru_kern_best(),
                      .bytes = bytes,
                      .images = t->dims[0],
                      .channels = t->dims[1],
                      .places = rui_dims(t, 2, t->rank),
                      .to_last = a->plain};
    int64_t wanted = threads < 2 ? 1 : (4 * threads + s->images - 1) / s->images;
    s->chunk = ((s->places + wanted - 1) / wanted + 63) / 64 * 64;
    s->chunks = (s->places + s->chunk - 1) / s->chunk;
    return ru_type_count(t) > 0;
}

static bool bytes_alike(const rui_layout *a, const rui_layout *b)
{
    return a == b || (a->plain && b->plain && a->type.dtype == b->type.dtype &&
                      a->size_bytes == b->size_bytes);
}

ru_status rui_reorder_step(rui_low *lo, const rui_layout *a, rui_buf from, const rui_layout *b,
                           rui_buf to, rui_step *out)
{
    copy_state *c = rui_keep(lo, sizeof *c);
    rui_buf *bufs = rui_keep(lo, 3 * (int64_t)sizeof *bufs);
    if (c == NULL || bufs == NULL) {
        return lo->status;
    }
    c->nn = &lo->nn;
    bufs[0] = from;
    bufs[1] = to;
    if (bytes_alike(a, b)) {
        c->size_bytes = a->size_bytes;
        *out =
            (rui_step){.kernel = "copy", .fn = copy_plain, .state = c, .bufs = bufs, .n_bufs = 2};
        return RU_OK;
    }
    turn_state turn, *kept;
    if (turn_of(lo, a, b, &turn)) {
        if ((kept = rui_keep(lo, (int64_t)sizeof *kept)) == NULL) {
            return lo->status;
        }
        *kept = turn;
        *out = (rui_step){
            .kernel = "kern reorder", .fn = turn_run, .state = kept, .bufs = bufs, .n_bufs = 2};
        return RU_OK;
    }
    int64_t scratch_bytes = 0;
    RU_TRY(make_primitive(lo, a, b, c, &scratch_bytes));
    bufs[2] = rui_scratch(lo, scratch_bytes);
    *out = (rui_step){.kernel = "dnnl reorder",
                      .fn = copy_run,
                      .state = c,
                      .bufs = bufs,
                      .n_bufs = 3,
                      .bind = copy_bind,
                      .fini = copy_fini};
    return RU_OK;
}

ru_status rui_copy_now(rui_low *lo, const rui_layout *a, const void *from, const rui_layout *b,
                       void *to, ru_err *err)
{
    if (bytes_alike(a, b)) {
        memcpy(to, from, (size_t)a->size_bytes);
        return RU_OK;
    }
    copy_state c = {.nn = &lo->nn};
    int64_t scratch_bytes = 0;
    if (make_primitive(lo, a, b, &c, &scratch_bytes) != RU_OK) {
        ru_status st = ru_err_set(err, lo->status, "%s", lo->err.text);
        lo->status = RU_OK;
        copy_fini(&c);
        return st;
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    union {
        const void *in;
        void *out;
    } src = {.in = from}; /* a reorder only reads it */
    void *bufs[3] = {src.out, to, ru_arena_zalloc(&scratch, scratch_bytes, 64)};
    ru_status st = copy_bind(&c, bufs, err);
    if (st == RU_OK) {
        const rui_run run = {.stream = lo->nn.stream};
        st = copy_run(&c, bufs, &run);
    }
    copy_fini(&c);
    ru_arena_fini(&scratch);
    return st == RU_OK ? RU_OK : ru_err_set(err, st, "a reorder of oneDNN failed");
}
