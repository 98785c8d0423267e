/* Windows of convolution and pooling. */
#include "exec/cpu/low/window.h"

#include <string.h>

static void read3(const ru_node *n, ru_attr_key key, int nsp, int64_t dflt, int64_t *into)
{
    uint32_t count = 0;
    const int64_t *xs = ru_node_ints(n, key, &count);
    for (int d = 0; d < nsp; d++) {
        into[d] = xs != NULL && (int)count > d ? xs[d] : dflt;
    }
}

/* Padding of one dimension. The right side is the node's when it gives the output's size, else what
 * makes the size true (ceil_mode, auto_pad). */
static void pads_of(const ru_node *n, rui_window *w, int d, bool transposed)
{
    const char *mode = ru_node_str(n, RU_ATTR_auto_pad, "NOTSET");
    uint32_t count = 0;
    const int64_t *pads = ru_node_ints(n, RU_ATTR_pads, &count);
    int64_t span = (w->kernel[d] - 1) * (w->dilate[d] + 1) + 1;
    int64_t small = transposed ? w->in[d] : w->out[d];
    int64_t large = transposed ? w->out[d] : w->in[d];
    int64_t total = (small - 1) * w->stride[d] + span - large;
    int64_t left = 0;
    int64_t right = 0;
    uint32_t n_extra = 0;
    const int64_t *extra = transposed ? ru_node_ints(n, RU_ATTR_output_padding, &n_extra) : NULL;
    int64_t cut = total + (extra != NULL && (int)n_extra > d ? extra[d] : 0);
    cut = cut > 0 ? cut : 0;
    bool shaped = transposed && ru_node_attr(n, RU_ATTR_output_shape) != NULL;
    if (strcmp(mode, "SAME_UPPER") == 0) {
        left = cut / 2;
    } else if (strcmp(mode, "SAME_LOWER") == 0 || shaped) { /* pads are not read */
        left = cut - cut / 2;
    } else if (strcmp(mode, "VALID") != 0 && pads != NULL && (int)count >= 2 * w->nsp) {
        left = pads[d];
        right = pads[w->nsp + d];
    }
    int64_t room = large + left + right - span;
    bool fits = room >= 0 && room / w->stride[d] + 1 == small;
    w->pad_l[d] = left;
    w->pad_r[d] = fits ? right : total - left;
}

static void dims_of(rui_window *w, const ru_type *wt, bool transposed)
{
    w->x_dims[0] = w->n;
    w->x_dims[1] = w->ci;
    w->y_dims[0] = w->n;
    w->y_dims[1] = w->co;
    for (int d = 0; d < w->nsp; d++) {
        w->x_dims[2 + d] = w->in[d];
        w->y_dims[2 + d] = w->out[d];
    }
    if (wt == NULL) {
        return;
    }
    /* ONNX: Conv [co, ci/g, k], ConvTranspose [ci, co/g, k]; oneDNN wants [g, co/g, ci/g, k] in
     * order of meaning, the transposed order in memory is the caller's strides. */
    int at = 0;
    if (w->groups > 1) {
        w->w_dims[at++] = w->groups;
    }
    w->w_dims[at++] = w->co / w->groups;
    w->w_dims[at++] = w->ci / w->groups;
    for (int d = 0; d < w->nsp; d++) {
        w->w_dims[at++] = w->kernel[d];
    }
    w->w_ndims = at;
    (void)transposed;
}

ru_status rui_window_of(const ru_node *n, const ru_type *x, const ru_type *w, const ru_type *y,
                        bool transposed, bool global, rui_window *out)
{
    memset(out, 0, sizeof *out);
    if (x->rank < 3 || x->rank > 5 || ru_type_count(x) <= 0 || ru_type_count(y) <= 0) {
        return RU_E_UNSUPPORTED;
    }
    out->nsp = (int)x->rank - 2;
    out->n = x->dims[0];
    out->ci = x->dims[1];
    out->co = y->dims[1];
    out->groups = w == NULL ? 1 : ru_node_int(n, RU_ATTR_group, 1);
    read3(n, RU_ATTR_strides, out->nsp, 1, out->stride);
    read3(n, RU_ATTR_dilations, out->nsp, 1, out->dilate);
    read3(n, RU_ATTR_kernel_shape, out->nsp, 1, out->kernel);
    for (int d = 0; d < out->nsp; d++) {
        out->in[d] = x->dims[2 + d];
        out->out[d] = y->dims[2 + d];
        out->dilate[d]--;
        if (w != NULL) {
            out->kernel[d] = w->dims[2 + d];
        } else if (global) {
            out->kernel[d] = out->in[d];
        }
        if (global) {
            out->stride[d] = out->kernel[d];
        } else {
            pads_of(n, out, d, transposed);
        }
    }
    dims_of(out, w, transposed);
    return RU_OK;
}

rui_cube rui_cube_of(const rui_window *w)
{
    rui_cube c = {.taps = 1, .places = 1, .inside = true, .same = true};
    for (int k = 0; k < 3; k++) {
        const int d = k - (3 - w->nsp); /* < 0: an axis of one */
        c.in[k] = d < 0 ? 1 : w->in[d];
        c.out[k] = d < 0 ? 1 : w->out[d];
        c.kernel[k] = d < 0 ? 1 : w->kernel[d];
        c.stride[k] = d < 0 ? 1 : w->stride[d];
        c.dilate[k] = d < 0 ? 1 : w->dilate[d] + 1;
        c.pad[k] = d < 0 ? 0 : w->pad_l[d];
        c.taps *= c.kernel[k];
        c.places *= c.out[k];
        c.inside = c.inside && c.pad[k] == 0 &&
                   (c.out[k] - 1) * c.stride[k] + (c.kernel[k] - 1) * c.dilate[k] < c.in[k];
        c.same =
            c.same && c.kernel[k] == 1 && c.stride[k] == 1 && c.pad[k] == 0 && c.in[k] == c.out[k];
    }
    return c;
}

bool rui_leaves(const rui_low *lo, const ru_node *n)
{
    ru_value_id v = n->out[0];
    const ru_node *reader = rui_only_reader(lo, v);
    while (reader != NULL && (reader->op == RU_OP_Reshape || reader->op == RU_OP_Squeeze ||
                              reader->op == RU_OP_Unsqueeze || reader->op == RU_OP_Flatten)) {
        v = reader->out[0];
        reader = rui_only_reader(lo, v);
    }
    return rui_uses(lo, v) == 1 && reader == NULL;
}

void rui_window_images(rui_window *w, int64_t n)
{
    w->n = w->x_dims[0] = w->y_dims[0] = n;
}

int64_t rui_part_images(const rui_low *lo, int64_t n)
{
    enum { PART = 4 };
    bool parts = rui_options(lo)->share != NULL && rui_inference(lo) && rui_threads(lo) == 1;
    return !parts ? n : n > PART && n % PART == 0 ? PART : n == 2 ? 1 : n;
}

static bool stands_apart(rui_low *lo, const_dnnl_primitive_desc_t pd, int arg, int64_t times)
{
    dnnl_memory_desc_t md = rui_pd_md(lo, pd, arg), all = md;
    all.dims[0] *= times;
    all.padded_dims[0] *= times;
    const rui_dnnl *nn = rui_nn(lo);
    return md.format_kind == dnnl_blocked &&
           memcmp(md.dims, md.padded_dims, (size_t)md.ndims * sizeof md.dims[0]) == 0 &&
           nn->memory_desc_get_size(&all) == (size_t)times * nn->memory_desc_get_size(&md);
}

bool rui_pd_repeats(rui_low *lo, const_dnnl_primitive_desc_t pd, int64_t times)
{
    return stands_apart(lo, pd, DNNL_ARG_SRC, times) && stands_apart(lo, pd, DNNL_ARG_DST, times);
}
