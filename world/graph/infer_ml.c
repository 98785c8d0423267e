/* Shape rules of the ops behind classical models: trees, look-up tables, pairs of classes. */
#include <math.h>

#include "world/graph/infer_impl.h"

/* Input k: a constant vector of `dtype`; its length in *n. */
static ru_status vector(const rui_infer *c, uint32_t k, ru_dtype dtype, int64_t *n)
{
    const ru_value *v = ru_graph_value(c->g, c->n.in[k]);
    if (v->kind != RU_VALUE_CONST || v->data == NULL || v->type.rank != 1 ||
        v->type.dtype != dtype || v->type.dims[0] >= INT32_MAX) {
        return rui_infer_fail(c, "input %u must be a constant list of %s", k, ru_dtype_name(dtype));
    }
    *n = v->type.dims[0];
    return RU_OK;
}

static const int32_t *ints_of(const rui_infer *c, uint32_t k)
{
    return ru_graph_value(c->g, c->n.in[k])->data;
}

/* Children stand behind their parents, a leaf is its own left child, and all is in range: then
 * every walk ends in a leaf. */
static ru_status nodes_check(const rui_infer *c, int64_t n, int64_t roots, int64_t entries,
                             int64_t outputs)
{
    const int32_t *root = ints_of(c, 1), *feature = ints_of(c, 2), *left = ints_of(c, 4);
    const int32_t *first = ints_of(c, 5), *target = ints_of(c, 6);
    int64_t cols = rui_in(c, 0)->dims[1];
    bool ok = first[0] == 0 && first[n] == entries;
    for (int64_t k = 0; k < roots; k++) {
        ok = ok && root[k] >= 0 && root[k] < n;
    }
    for (int64_t k = 0; k < entries; k++) {
        ok = ok && target[k] >= 0 && target[k] < outputs;
    }
    for (int64_t k = 0; ok && k < n; k++) {
        int64_t f = feature[k] < 0 ? -1 - (int64_t)feature[k] : feature[k];
        bool leaf = left[k] == k;
        ok = first[k + 1] >= first[k] && left[k] >= k && left[k] < n &&
             (leaf || ru_dim_is_symbolic(cols) || f < cols);
        /* what every number leaves to the left needs no right child */
        ok = ok && (leaf || left[k] + 1 < n || feature[k] < 0);
    }
    return ok ? RU_OK
              : rui_infer_fail(c, "its trees name nodes, features or outputs that are not "
                                  "there");
}

ru_status rui_shape_trees(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    int64_t roots, n, values, left, first, targets, weights, outputs;
    if (x->rank != 2 || (x->dtype != RU_F32 && x->dtype != RU_F64)) {
        return rui_infer_fail(c, "the input must be a matrix of floats");
    }
    RU_TRY(vector(c, 1, RU_I32, &roots));
    RU_TRY(vector(c, 2, RU_I32, &n));
    RU_TRY(vector(c, 3, x->dtype, &values));
    RU_TRY(vector(c, 4, RU_I32, &left));
    RU_TRY(vector(c, 5, RU_I32, &first));
    RU_TRY(vector(c, 6, RU_I32, &targets));
    RU_TRY(vector(c, 7, x->dtype, &weights));
    RU_TRY(vector(c, 8, x->dtype, &outputs));
    if (values != n || left != n || first != n + 1 || targets != weights || roots < 1 ||
        outputs < 1) {
        return rui_infer_fail(c,
                              "its lists have %lld features, %lld values, %lld children, %lld "
                              "targets and %lld weights",
                              (long long)n, (long long)values, (long long)left, (long long)targets,
                              (long long)weights);
    }
    RU_TRY(nodes_check(c, n, roots, targets, outputs));
    ru_type t = {.dtype = x->dtype, .rank = 2, .dims = {x->dims[0], outputs}};
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_lookup(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0), *keys = rui_in(c, 1), *values = rui_in(c, 2);
    if (keys->dtype != x->dtype || keys->rank != 1 || values->rank != 1 ||
        keys->dims[0] != values->dims[0] || ru_type_count(keys) < 1) {
        return rui_infer_fail(c, "keys and values must be lists of one length, keys of the input's "
                                 "type");
    }
    const ru_type *dflt = ru_node_has_in(&c->n, 3) ? rui_in(c, 3) : NULL;
    if (dflt != NULL && (dflt->dtype != values->dtype || ru_type_count(dflt) != 1)) {
        return rui_infer_fail(c, "the default must be one element of the values' type");
    }
    ru_type t = *x;
    t.dtype = values->dtype;
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_couplepairs(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    int64_t n = 2;
    while (x->rank == 2 && n * (n - 1) / 2 < x->dims[1] && n < 1 << 16) {
        n++;
    }
    if (x->rank != 2 || n * (n - 1) / 2 != x->dims[1] || !ru_dtype_is_float(x->dtype)) {
        return rui_infer_fail(c, "the input must be a matrix with one column for each pair of "
                                 "classes");
    }
    ru_type t = {.dtype = x->dtype, .rank = 2, .dims = {x->dims[0], n}};
    rui_set_out(c, 0, &t);
    return RU_OK;
}
