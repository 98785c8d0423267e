/* oneDNN primitives as steps. */
#include "exec/cpu/low/prim.h"
#include "exec/cpu/low/low.h"

#include <string.h>

typedef struct prim_state {
    const rui_dnnl *nn;
    dnnl_primitive_t prim;
    uint32_t times;
    int64_t src_step, dst_step; /* bytes, where times > 1 */
    int n_args;
    dnnl_exec_arg_t args[];
} prim_state;

static ru_status prim_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)bufs;
    const prim_state *s = state;
    dnnl_status_t st = s->nn->primitive_execute(s->prim, run->stream, s->n_args, s->args);
    return RU_LIKELY(st == dnnl_success)
               ? RU_OK
               : RU_FAIL(run->err, RU_E_BUG, "oneDNN: %s", rui_dnnl_status_name(st));
}

static ru_status prim_run_parts(void *state, void *const *bufs, const rui_run *run)
{
    const prim_state *s = state;
    dnnl_status_t st = dnnl_success;
    for (uint32_t t = 0; t < s->times && st == dnnl_success; t++) {
        for (int k = 0; k < s->n_args && st == dnnl_success; k++) {
            int64_t step = s->args[k].arg == DNNL_ARG_SRC   ? s->src_step
                           : s->args[k].arg == DNNL_ARG_DST ? s->dst_step
                                                            : 0;
            st = step > 0
                     ? s->nn->memory_set_data_handle(s->args[k].memory, (char *)bufs[k] + t * step)
                     : st;
        }
        st = st == dnnl_success ? s->nn->primitive_execute(s->prim, run->stream, s->n_args, s->args)
                                : st;
    }
    return RU_LIKELY(st == dnnl_success)
               ? RU_OK
               : RU_FAIL(run->err, RU_E_BUG, "oneDNN: %s", rui_dnnl_status_name(st));
}

static ru_status prim_bind(void *state, void *const *bufs, ru_err *err)
{
    prim_state *s = state;
    for (int k = 0; k < s->n_args; k++) {
        if (s->nn->memory_set_data_handle(s->args[k].memory, bufs[k]) != dnnl_success) {
            return RU_FAIL(err, RU_E_BUG, "oneDNN refused the memory of argument %d",
                           s->args[k].arg);
        }
    }
    return RU_OK;
}

static void prim_fini(void *state)
{
    prim_state *s = state;
    if (s->prim != NULL) {
        (void)s->nn->primitive_destroy(s->prim);
    }
    for (int k = 0; k < s->n_args; k++) {
        if (s->args[k].memory != NULL) {
            (void)s->nn->memory_destroy(s->args[k].memory);
        }
    }
    memset(s, 0, sizeof *s);
}

/* -- attributes and descriptors
 * --------------------------------------------------------------------- */

static dnnl_status_t post_ops(const rui_dnnl *nn, dnnl_post_ops_t ops, const rui_post *post)
{
    dnnl_status_t st = dnnl_success;
    if (post->sum) {
        st = nn->post_ops_append_sum(ops, 1.0f);
    }
    for (int k = 0; k < 2 && st == dnnl_success; k++) {
        if (post->add_md[k].ndims != 0) {
            st = nn->post_ops_append_binary(ops, dnnl_binary_add, &post->add_md[k]);
        }
    }
    if (st == dnnl_success && post->has_act) {
        float factor = post->scales != NULL ? post->act_scale : 1.0f;
        st = nn->post_ops_append_eltwise(ops, factor, post->act, post->alpha, post->beta);
    }
    return st;
}

/* The library keeps copies. */
static dnnl_status_t quantised(const rui_dnnl *nn, dnnl_primitive_attr_t attr, const rui_post *post)
{
    dnnl_status_t st =
        nn->primitive_attr_set_output_scales(attr, post->n_scales, post->scales_mask, post->scales);
    if (st == dnnl_success && post->x_zero != 0) {
        st = nn->primitive_attr_set_zero_points(attr, DNNL_ARG_SRC, 1, 0, &post->x_zero);
    }
    if (st == dnnl_success && post->y_zero != 0) {
        st = nn->primitive_attr_set_zero_points(attr, DNNL_ARG_DST, 1, 0, &post->y_zero);
    }
    return st;
}

dnnl_primitive_attr_t rui_attr_make(rui_low *lo, const rui_post *post)
{
    const rui_dnnl *nn = rui_nn(lo);
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    if (nn->primitive_attr_create(&attr) != dnnl_success) {
        return NULL;
    }
    dnnl_status_t st = nn->primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (st == dnnl_success && post != NULL) {
        st = nn->post_ops_create(&ops);
        st = st != dnnl_success ? st : post_ops(nn, ops, post);
        st = st != dnnl_success ? st : nn->primitive_attr_set_post_ops(attr, ops);
        if (st == dnnl_success && post->scaled) {
            st = nn->primitive_attr_set_output_scales(attr, 1, 0, &post->scale);
        }
        if (st == dnnl_success && post->scales != NULL) {
            st = quantised(nn, attr, post);
        }
    }
    if (ops != NULL) {
        (void)nn->post_ops_destroy(ops);
    }
    if (st != dnnl_success) {
        (void)nn->primitive_attr_destroy(attr);
        return NULL;
    }
    return attr;
}

static dnnl_primitive_desc_t pd_new(rui_low *lo, const_dnnl_op_desc_t desc, const rui_post *post,
                                    const_dnnl_primitive_desc_t hint)
{
    const rui_dnnl *nn = rui_nn(lo);
    dnnl_primitive_attr_t attr = rui_attr_make(lo, post);
    dnnl_primitive_desc_t pd = NULL;
    if (attr != NULL) {
        if (nn->primitive_desc_create(&pd, desc, attr, nn->engine, hint) != dnnl_success) {
            pd = NULL;
        }
        (void)nn->primitive_attr_destroy(attr);
    }
    return pd;
}

dnnl_primitive_desc_t rui_pd_make(rui_low *lo, dnnl_status_t described, const_dnnl_op_desc_t desc,
                                  const rui_post *post)
{
    return described == dnnl_success ? pd_new(lo, desc, post, NULL) : NULL;
}

dnnl_primitive_desc_t rui_pd_backward(rui_low *lo, dnnl_status_t described,
                                      const_dnnl_op_desc_t desc, dnnl_primitive_desc_t forward_take)
{
    bool possible = described == dnnl_success && forward_take != NULL;
    dnnl_primitive_desc_t pd = possible ? pd_new(lo, desc, NULL, forward_take) : NULL;
    rui_pd_free(lo, forward_take);
    return rui_pd_fast(lo, pd);
}

void rui_pd_free(rui_low *lo, dnnl_primitive_desc_t pd)
{
    if (pd != NULL) {
        (void)rui_nn(lo)->primitive_desc_destroy(pd);
    }
}

const char *rui_pd_name(rui_low *lo, const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    if (rui_nn(lo)->primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success ||
        name == NULL) {
        return "?";
    }
    return name;
}

dnnl_primitive_desc_t rui_pd_fast(rui_low *lo, dnnl_primitive_desc_t pd_take)
{
    if (pd_take != NULL && strncmp(rui_pd_name(lo, pd_take), "ref", 3) == 0) {
        rui_pd_free(lo, pd_take);
        return NULL;
    }
    return pd_take;
}

dnnl_memory_desc_t rui_pd_md(rui_low *lo, const_dnnl_primitive_desc_t pd, int arg)
{
    dnnl_memory_desc_t md;
    memset(&md, 0, sizeof md);
    const dnnl_memory_desc_t *at =
        rui_nn(lo)->primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
    return at == NULL ? md : *at;
}

dnnl_memory_desc_t rui_md_any(rui_low *lo, int ndims, const int64_t *dims, dnnl_data_type_t dt)
{
    dnnl_memory_desc_t md;
    memset(&md, 0, sizeof md);
    dnnl_dims_t d = {0};
    memcpy(d, dims, (size_t)ndims * sizeof d[0]);
    if (rui_nn(lo)->memory_desc_init_by_tag(&md, ndims, d, dt, dnnl_format_tag_any) !=
        dnnl_success) {
        memset(&md, 0, sizeof md);
    }
    return md;
}

dnnl_memory_desc_t rui_md_strided(rui_low *lo, int ndims, const int64_t *dims,
                                  const int64_t *strides, dnnl_data_type_t dt)
{
    dnnl_memory_desc_t md;
    memset(&md, 0, sizeof md);
    dnnl_dims_t d = {0};
    dnnl_dims_t s = {0};
    memcpy(d, dims, (size_t)ndims * sizeof d[0]);
    memcpy(s, strides, (size_t)ndims * sizeof s[0]);
    if (rui_nn(lo)->memory_desc_init_by_strides(&md, ndims, d, dt, s) != dnnl_success) {
        memset(&md, 0, sizeof md);
    }
    return md;
}

dnnl_memory_desc_t rui_md_plain(rui_low *lo, int ndims, const int64_t *dims, dnnl_data_type_t dt)
{
    int64_t strides[DNNL_MAX_NDIMS];
    int64_t stride = 1;
    for (int d = ndims - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= dims[d];
    }
    return rui_md_strided(lo, ndims, dims, strides, dt);
}

dnnl_memory_desc_t rui_md_vec(rui_low *lo, int64_t n, dnnl_data_type_t dt)
{
    return rui_md_plain(lo, 1, &n, dt);
}

/* `times` of them behind each other. */
static dnnl_memory_desc_t repeated(dnnl_memory_desc_t md, int64_t times)
{
    md.dims[0] *= times;
    md.padded_dims[0] *= times;
    return md;
}

/* -- steps
 * ------------------------------------------------------------------------------------------ */

void rui_prim_begin(rui_prim *p, rui_low *lo, dnnl_primitive_desc_t pd_take)
{
    p->lo = lo;
    p->pd = pd_take;
    p->n_args = 0;
    p->prep = false;
    p->times = 1;
}

/* Where the value of an argument stands: all parts of it. */
static const rui_layout *layout_of(const rui_prim *p, int arg, const dnnl_memory_desc_t *as)
{
    bool parts = p->times > 1 && (arg == DNNL_ARG_SRC || arg == DNNL_ARG_DST);
    dnnl_memory_desc_t all = parts ? repeated(*as, p->times) : *as;
    return rui_layout_md(p->lo, &all);
}

static dnnl_memory_desc_t md_of(const rui_prim *p, int arg, const dnnl_memory_desc_t *given)
{
    return given != NULL ? *given : rui_pd_md(p->lo, p->pd, arg);
}

void rui_prim_buf(rui_prim *p, int arg, rui_buf b, const dnnl_memory_desc_t *md)
{
    if (b.v != 0) {
        RU_CHECK(p->n_args < RUI_PRIM_ARGS_MAX);
        p->args[p->n_args++] = (rui_arg){arg, md_of(p, arg, md), b};
    }
}

void rui_prim_in(rui_prim *p, int arg, ru_value_id v, const dnnl_memory_desc_t *md)
{
    if (v.v != 0) {
        dnnl_memory_desc_t as = md_of(p, arg, md);
        rui_prim_buf(p, arg, rui_in(p->lo, v, layout_of(p, arg, &as)), &as);
    }
}

void rui_prim_out(rui_prim *p, int arg, ru_value_id v, const dnnl_memory_desc_t *md)
{
    if (v.v != 0) {
        dnnl_memory_desc_t as = md_of(p, arg, md);
        rui_prim_buf(p, arg, rui_out(p->lo, v, layout_of(p, arg, &as)), &as);
    }
}

static dnnl_status_t prim_make(rui_prim *p, prim_state *s)
{
    rui_dnnl *nn = rui_nn(p->lo);
    dnnl_status_t st = nn->primitive_create(&s->prim, p->pd);
    for (uint32_t k = 0; k < p->n_args && st == dnnl_success; k++) {
        s->args[k].arg = p->args[k].arg;
        st = nn->memory_create(&s->args[k].memory, &p->args[k].md, nn->engine, DNNL_MEMORY_NONE);
        s->n_args = (int)k + 1;
        int64_t bytes = (int64_t)nn->memory_desc_get_size(&p->args[k].md);
        s->src_step = p->args[k].arg == DNNL_ARG_SRC ? bytes : s->src_step;
        s->dst_step = p->args[k].arg == DNNL_ARG_DST ? bytes : s->dst_step;
    }
    nn->primitives++;
    return st;
}

ru_status rui_prim_emit(rui_prim *p, const char *what)
{
    rui_low *lo = p->lo;
    dnnl_memory_desc_t scratch = rui_pd_md(lo, p->pd, DNNL_ARG_SCRATCHPAD);
    int64_t scratch_bytes = (int64_t)rui_nn(lo)->memory_desc_get_size(&scratch);
    rui_prim_buf(p, DNNL_ARG_SCRATCHPAD, rui_scratch(lo, scratch_bytes), &scratch);
    prim_state *s = rui_keep(lo, (int64_t)(sizeof *s + p->n_args * sizeof s->args[0]));
    rui_buf bufs[RUI_PRIM_ARGS_MAX];
    if (s == NULL || rui_done(lo) != RU_OK) {
        rui_pd_free(lo, p->pd);
        return rui_done(lo);
    }
    for (uint32_t k = 0; k < p->n_args; k++) {
        bufs[k] = p->args[k].buf;
    }
    s->nn = rui_nn(lo);
    s->times = p->times;
    dnnl_status_t st = prim_make(p, s);
    const char *name = rui_keep_printf(lo, "dnnl %s %s", what, rui_pd_name(lo, p->pd));
    if (p->times > 1) {
        name = rui_keep_printf(lo, "%s, %u times", name, p->times);
    }
    rui_pd_free(lo, p->pd);
    p->pd = NULL;
    if (st != dnnl_success) {
        prim_fini(s);
        return rui_fail(lo, RU_E_BUG, "oneDNN cannot create %s: %s", what,
                        rui_dnnl_status_name(st));
    }
    const rui_step step = {.kernel = name,
                           .fn = p->times > 1 ? prim_run_parts : prim_run,
                           .state = s,
                           .bufs = bufs,
                           .n_bufs = p->n_args,
                           .bind = prim_bind,
                           .fini = prim_fini};
    rui_emit_to(lo, p->prep ? &lo->prep : &lo->run, &step, p->prep ? 0 : lo->node);
    return rui_done(lo);
}

ru_status rui_prim_emit_as(rui_prim *p, const char *what, ru_value_id result)
{
    rui_low *lo = p->lo;
    RU_TRY(rui_prim_emit(p, what));
    rui_restand(lo, result, rui_store_dtype(lo, result));
    return rui_done(lo);
}
