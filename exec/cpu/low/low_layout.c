/* Layouts, interned: two descriptions of the same bytes are the same pointer.
 *
 * A layout is a nest of loops over (dimension, extent, stride). Extents of 1 do not matter and
 * loops of one dimension that continue each other are one loop; so nChw16c over [N,512,1,1] is
 * row-major, and no reorder is made for it. */
#include "exec/cpu/low/low.h"

#include <string.h>

enum { LOOPS_MAX = 2 * DNNL_MAX_NDIMS };

typedef struct loop {
    int dim;
    int64_t extent, stride;
} loop;

typedef struct nest {
    loop at[LOOPS_MAX];
    int n;
} nest;

static void nest_sort(nest *s)
{
    for (int i = 1; i < s->n; i++) {
        loop x = s->at[i];
        int j = i;
        for (; j > 0 && s->at[j - 1].stride < x.stride; j--) {
            s->at[j] = s->at[j - 1];
        }
        s->at[j] = x;
    }
}

static void nest_merge(nest *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        loop *last = n > 0 ? &s->at[n - 1] : NULL;
        if (last != NULL && last->dim == s->at[i].dim &&
            last->stride == s->at[i].extent * s->at[i].stride) {
            last->extent *= s->at[i].extent;
            last->stride = s->at[i].stride;
        } else {
            s->at[n++] = s->at[i];
        }
    }
    s->n = n;
}

/* Loops of a blocked descriptor over its padded dims, outermost first. */
static nest nest_of(const dnnl_memory_desc_t *md)
{
    nest s = {.n = 0};
    const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
    int64_t inner[DNNL_MAX_NDIMS];
    for (int d = 0; d < md->ndims; d++) {
        inner[d] = 1;
    }
    int64_t stride = 1;
    for (int k = b->inner_nblks - 1; k >= 0; k--) {
        int d = (int)b->inner_idxs[k];
        if (b->inner_blks[k] > 1) {
            s.at[s.n++] = (loop){d, b->inner_blks[k], stride};
        }
        inner[d] *= b->inner_blks[k];
        stride *= b->inner_blks[k];
    }
    for (int d = 0; d < md->ndims; d++) {
        int64_t extent = md->padded_dims[d] / inner[d];
        if (extent > 1) {
            s.at[s.n++] = (loop){d, extent, b->strides[d]};
        }
    }
    nest_sort(&s);
    nest_merge(&s);
    return s;
}

static bool nest_equal(const nest *a, const nest *b)
{
    if (a->n != b->n) {
        return false;
    }
    for (int i = 0; i < a->n; i++) {
        if (a->at[i].dim != b->at[i].dim || a->at[i].extent != b->at[i].extent ||
            a->at[i].stride != b->at[i].stride) {
            return false;
        }
    }
    return true;
}

static bool md_opaque(const dnnl_memory_desc_t *md)
{
    return md->format_kind != dnnl_blocked || md->extra.flags != 0;
}

static bool md_same_bytes(const rui_low *lo, const dnnl_memory_desc_t *a,
                          const dnnl_memory_desc_t *b)
{
    if (lo->nn.memory_desc_equal(a, b) != 0) {
        return true;
    }
    if (md_opaque(a) || md_opaque(b) || a->offset0 != b->offset0) {
        return false;
    }
    for (int d = 0; d < a->ndims; d++) {
        if (a->padded_dims[d] != b->padded_dims[d]) {
            return false;
        }
    }
    nest na = nest_of(a);
    nest nb = nest_of(b);
    return nest_equal(&na, &nb);
}

/* The same of the executable whose state is shared, which stays as long as this one; NULL: none. */
static const rui_layout *layout_shared(const rui_low *lo, const rui_layout *l)
{
    for (uint32_t i = 0; lo->share != NULL && i < lo->share->n_layouts; i++) {
        const rui_layout *o = lo->share->layouts[i];
        if (ru_type_equal(&o->type, &l->type) && o->plain == l->plain &&
            memcmp(&o->md, &l->md, sizeof o->md) == 0) {
            return o;
        }
    }
    return NULL;
}

static const rui_layout *layout_add(rui_low *lo, const rui_layout *l)
{
    if (lo->n_layouts == lo->cap_layouts) {
        uint32_t cap = lo->cap_layouts == 0 ? 64 : lo->cap_layouts * 2;
        const rui_layout **more = rui_keep(lo, (int64_t)cap * (int64_t)sizeof *more);
        if (more == NULL) {
            return NULL;
        }
        if (lo->n_layouts > 0) {
            memcpy(more, lo->layouts, lo->n_layouts * sizeof *more);
        }
        lo->layouts = more;
        lo->cap_layouts = cap;
    }
    const rui_layout *kept = layout_shared(lo, l);
    if (kept == NULL) {
        rui_layout *own = rui_keep(lo, sizeof *own);
        if (own != NULL) {
            *own = *l;
        }
        kept = own;
    }
    if (kept != NULL) {
        lo->layouts[lo->n_layouts++] = kept;
    }
    return kept;
}

dnnl_data_type_t rui_dnnl_type(ru_dtype t)
{
    if (t == RU_F32) {
        return dnnl_f32;
    }
    if (t == RU_BF16) {
        return dnnl_bf16;
    }
    if (t == RU_F16) {
        return dnnl_f16;
    }
    if (t == RU_I32) {
        return dnnl_s32;
    }
    if (t == RU_I8) {
        return dnnl_s8;
    }
    return t == RU_U8 ? dnnl_u8 : dnnl_data_type_undef;
}

ru_dtype rui_dnnl_dtype(dnnl_data_type_t t)
{
    for (int k = RU_NONE + 1; k < RU_DTYPE_COUNT; k++) {
        if (t != dnnl_data_type_undef && rui_dnnl_type((ru_dtype)k) == t) {
            return (ru_dtype)k;
        }
    }
    return RU_NONE;
}

/* Row-major descriptor of `t`; ndims 0 when oneDNN cannot describe it. */
static dnnl_memory_desc_t md_plain(const rui_low *lo, const ru_type *t)
{
    dnnl_memory_desc_t md;
    memset(&md, 0, sizeof md);
    dnnl_data_type_t dt = rui_dnnl_type(t->dtype);
    if (!lo->has_nn || dt == dnnl_data_type_undef || ru_type_count(t) <= 0) {
        return md;
    }
    dnnl_dims_t dims = {1};
    dnnl_dims_t strides = {1};
    int rank = t->rank == 0 ? 1 : (int)t->rank;
    int64_t stride = 1;
    for (int d = (int)t->rank - 1; d >= 0; d--) {
        dims[d] = t->dims[d];
        strides[d] = stride;
        stride *= t->dims[d];
    }
    if (lo->nn.memory_desc_init_by_strides(&md, rank, dims, dt, strides) != dnnl_success) {
        memset(&md, 0, sizeof md);
    }
    return md;
}

const rui_layout *rui_plain(rui_low *lo, const ru_type *t)
{
    for (uint32_t i = 0; i < lo->n_layouts; i++) {
        if (lo->layouts[i]->plain && ru_type_equal(&lo->layouts[i]->type, t)) {
            return lo->layouts[i];
        }
    }
    rui_layout l = {.type = *t,
                    .plain = true,
                    .flat_n = ru_type_count(t),
                    .size_bytes = ru_type_bytes(t),
                    .md = md_plain(lo, t)};
    return layout_add(lo, &l);
}

const rui_layout *rui_plain_as(rui_low *lo, const ru_type *t, ru_dtype dtype)
{
    ru_type as = *t;
    as.dtype = dtype;
    return rui_plain(lo, &as);
}

static bool md_is_padded(const dnnl_memory_desc_t *md)
{
    for (int d = 0; d < md->ndims; d++) {
        if (md->padded_dims[d] != md->dims[d]) {
            return true;
        }
    }
    return false;
}

const rui_layout *rui_layout_md(rui_low *lo, const dnnl_memory_desc_t *md)
{
    ru_type t = {.dtype = rui_dnnl_dtype(md->data_type), .rank = (uint32_t)md->ndims};
    for (int d = 0; d < md->ndims && d < RU_RANK_MAX; d++) {
        t.dims[d] = md->dims[d];
    }
    if (rui_plain(lo, &t) == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < lo->n_layouts; i++) {
        const rui_layout *l = lo->layouts[i];
        if (ru_type_equal(&l->type, &t) && l->md.ndims == md->ndims &&
            md_same_bytes(lo, &l->md, md)) {
            return l;
        }
    }
    int64_t bytes = (int64_t)lo->nn.memory_desc_get_size(md);
    bool opaque = md_opaque(md);
    rui_layout l = {.type = t,
                    .padded = !opaque && md_is_padded(md),
                    .opaque = opaque,
                    .flat_n = opaque ? 0 : bytes / ru_dtype_bytes(t.dtype),
                    .size_bytes = bytes,
                    .md = *md};
    return layout_add(lo, &l);
}

const rui_layout *rui_layout_as(rui_low *lo, const rui_layout *l, ru_dtype dtype)
{
    if (l->type.dtype == dtype) {
        return l;
    }
    if (l->plain) {
        return rui_plain_as(lo, &l->type, dtype);
    }
    RU_CHECK(!l->opaque);
    dnnl_memory_desc_t md = l->md;
    md.data_type = rui_dnnl_type(dtype);
    return rui_layout_md(lo, &md);
}

const rui_layout *rui_layout_master(rui_low *lo, const rui_layout *l, ru_dtype dtype)
{
    const rui_layout *as = rui_layout_as(lo, l, dtype);
    if (as == NULL || as->plain || as->md.format_desc.blocking.inner_nblks != 3) {
        return as;
    }
    dnnl_memory_desc_t md = as->md;
    dnnl_blocking_desc_t *b = &md.format_desc.blocking;
    if (b->inner_idxs[0] != b->inner_idxs[2]) {
        return as;
    }
    b->inner_blks[0] *= b->inner_blks[2];
    b->inner_nblks = 2;
    b->inner_blks[2] = 0;
    b->inner_idxs[2] = 0;
    return rui_layout_md(lo, &md);
}

void rui_layout_hash(const rui_layout *l, ru_hasher *h)
{
    ru_hasher_put_u64(h, (uint64_t)l->type.dtype);
    ru_hasher_put_u64(h, (uint64_t)l->size_bytes);
    ru_hasher_put_u64(h, l->plain ? 1 : 0);
    if (l->plain || l->opaque) {
        return;
    }
    nest s = nest_of(&l->md);
    for (int i = 0; i < s.n; i++) {
        ru_hasher_put_u64(h, (uint64_t)s.at[i].dim);
        ru_hasher_put_u64(h, (uint64_t)s.at[i].extent);
        ru_hasher_put_u64(h, (uint64_t)s.at[i].stride);
    }
}

void rui_layout_places(const rui_layout *l, uint32_t d, int64_t *into)
{
    RU_CHECK(!l->opaque && d < l->type.rank);
    if (l->plain) {
        int64_t stride = 1;
        for (uint32_t k = d + 1; k < l->type.rank; k++) {
            stride *= l->type.dims[k];
        }
        for (int64_t i = 0; i < l->type.dims[d]; i++) {
            into[i] = i * stride;
        }
        return;
    }
    const dnnl_blocking_desc_t *b = &l->md.format_desc.blocking;
    for (int64_t i = 0; i < l->type.dims[d]; i++) {
        int64_t left = i, place = 0, stride = 1;
        for (int k = b->inner_nblks - 1; k >= 0; k--) { /* innermost block first */
            if (b->inner_idxs[k] == (dnnl_dim_t)d) {
                place += left % b->inner_blks[k] * stride;
                left /= b->inner_blks[k];
            }
            stride *= b->inner_blks[k];
        }
        into[i] = place + left * b->strides[d];
    }
}
