/* Boosted trees trained by XGBoost. See solver.h.
 *
 * One thread, one seed: the same trees for the same input. Quantiles are boosted here: XGBoost 1.7
 * grows each tree on the gradient of the pinball loss, then each leaf gets the quantile of what is
 * left in it (friedman-2001, sec 4.3, with a quantile for the median). */
#include "solve/solver_impl.h"

#include "base/str.h"
#include "base/vec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ru_status check(const ru_trees_in *in, ru_err *err)
{
    if (in->m == 0 || in->n == 0 || in->goal > RU_TREES_QUANTILE) {
        return RU_FAIL(err, RU_E_ARG, "trees cannot be trained on %u rows of %u features", in->m,
                       in->n);
    }
    if (in->goal == RU_TREES_QUANTILE && !(in->q > 0 && in->q < 1)) {
        return RU_FAIL(err, RU_E_ARG,
                       "the quantile of trees is %g, expected a number between 0 and 1", in->q);
    }
    if (in->goal == RU_TREES_QUANTILE && in->monotone != NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "trees for a quantile cannot be monotone; use the mean, or isotonic "
                       "regression of the result");
    }
    if (in->goal == RU_TREES_CLASSES && (in->n_classes < 2 || in->n_classes > 1000)) {
        return RU_FAIL(err, RU_E_ARG, "trees have %u classes, expected 2 to 1000", in->n_classes);
    }
    if (in->rounds > 10000 || in->depth > 20 || !(in->rate >= 0 && in->rate <= 1) ||
        !(in->row_share >= 0 && in->row_share <= 1) ||
        !(in->column_share >= 0 && in->column_share <= 1) || !isfinite(in->ridge) ||
        !(in->split_gain_min >= 0) || !(in->leaf_weight_min >= 0)) {
        return RU_FAIL(err, RU_E_ARG,
                       "trees have %u rounds (at most 10000), depth %u (at most 20) and rate %g (0 "
                       "to 1), or another option out of range",
                       in->rounds, in->depth, in->rate);
    }
    double top = in->goal == RU_TREES_CLASSES ? in->n_classes - 1.0 : 1;
    bool classes = in->goal == RU_TREES_CLASSES || in->goal == RU_TREES_BINARY;
    for (uint32_t i = 0; i < in->m; i++) {
        double y = (double)in->y[i], w = in->weight != NULL ? (double)in->weight[i] : 1;
        bool fits = !classes || (y >= 0 && y <= top && y == floor(y));
        if (!isfinite(y) || !fits || !(w >= 0) || isinf(w)) {
            return RU_FAIL(
                err, RU_E_ARG,
                "row %u has the value %g and the weight %g, which must be finite and not negative",
                i, y, w);
        }
    }
    for (uint64_t i = 0; i < (uint64_t)in->m * in->n; i++) {
        if (isinf(in->x[i])) {
            return RU_FAIL(err, RU_E_ARG, "row %u, feature %u is infinite", (uint32_t)(i / in->n),
                           (uint32_t)(i % in->n));
        }
    }
    return RU_OK;
}

#ifdef RU_HAS_XGBOOST
#include <xgboost/c_api.h>

#define RUI_XGB_LIST(X)           \
    X(XGDMatrixCreateFromMat)     \
    X(XGDMatrixSetFloatInfo)      \
    X(XGDMatrixFree)              \
    X(XGBoosterCreate)            \
    X(XGBoosterSetParam)          \
    X(XGBoosterUpdateOneIter)     \
    X(XGBoosterBoostOneIter)      \
    X(XGBoosterSaveModelToBuffer) \
    X(XGBoosterFree)              \
    X(XGBGetLastError)

typedef struct xgb_library {
#define RU_X(f) __typeof__(f) *f;
    RUI_XGB_LIST(RU_X)
#undef RU_X
} xgb_library;

static bool load(xgb_library *lib)
{
    bool all = true;
#define RU_X(f) all = all && rui_load(RU_XGBOOST_SONAME, #f, &lib->f);
    RUI_XGB_LIST(RU_X)
#undef RU_X
    return all;
}

bool ru_solver_has_trees(void)
{
    xgb_library lib;
    return load(&lib);
}

typedef struct training {
    const xgb_library *lib;
    const ru_trees_in *in;
    DMatrixHandle data;
    ru_err *err;
} training;

static ru_status failed(const training *t, const char *what)
{
    return RU_FAIL(t->err, RU_E_BUG, "XGBoost cannot %s: %.300s", what, t->lib->XGBGetLastError());
}

static ru_status set_text(const training *t, BoosterHandle b, const char *name, const char *value)
{
    return t->lib->XGBoosterSetParam(b, name, value) == 0 ? RU_OK : failed(t, name);
}

static ru_status set_number(const training *t, BoosterHandle b, const char *name, double v)
{
    char text[40];
    snprintf(text, sizeof text, "%.9g", v);
    return set_text(t, b, name, text);
}

static ru_status set_monotone(const training *t, BoosterHandle b, ru_arena *arena)
{
    ru_text text = ru_text_arena(arena);
    for (uint32_t j = 0; j < t->in->n; j++) {
        ru_text_putf(&text, "%s%d", j == 0 ? "(" : ",", t->in->monotone[j]);
    }
    ru_text_put(&text, ")");
    return set_text(t, b, "monotone_constraints", text.p);
}

static ru_status configure(const training *t, BoosterHandle b, uint64_t seed, ru_arena *arena)
{
    static const char *const goals[] = {"reg:squarederror", "binary:logistic", "multi:softprob",
                                        "reg:squarederror"};
    const ru_trees_in *in = t->in;
    RU_TRY(set_text(t, b, "objective", goals[in->goal]));
    RU_TRY(set_text(t, b, "verbosity", "0"));
    RU_TRY(set_text(t, b, "nthread", "1"));
    RU_TRY(set_text(t, b, "tree_method", in->m <= 65536 ? "exact" : "hist"));
    RU_TRY(set_number(t, b, "seed", (double)(seed % 2147483647)));
    RU_TRY(set_number(t, b, "max_depth", in->depth > 0 ? in->depth : 6));
    RU_TRY(set_number(t, b, "eta", in->rate > 0 ? in->rate : 0.1));
    RU_TRY(set_number(t, b, "lambda", in->ridge > 0 ? in->ridge : in->ridge < 0 ? 0 : 1));
    RU_TRY(set_number(t, b, "gamma", in->split_gain_min));
    RU_TRY(set_number(t, b, "min_child_weight", in->leaf_weight_min > 0 ? in->leaf_weight_min : 1));
    RU_TRY(set_number(t, b, "subsample", in->row_share > 0 ? in->row_share : 1));
    RU_TRY(set_number(t, b, "colsample_bytree", in->column_share > 0 ? in->column_share : 1));
    if (in->goal == RU_TREES_CLASSES) {
        RU_TRY(set_number(t, b, "num_class", in->n_classes));
    }
    return in->monotone != NULL ? set_monotone(t, b, arena) : RU_OK;
}

static ru_status read_back(const training *t, BoosterHandle b, ru_arena *out, ru_trees *trees)
{
    bst_ulong size;
    const char *text;
    if (t->lib->XGBoosterSaveModelToBuffer(b, "{\"format\": \"json\"}", &size, &text) != 0) {
        return failed(t, "save a model");
    }
    return ru_trees_read_json(text, (int64_t)size, out, trees, t->err);
}

static ru_status boost(const training *t, BoosterHandle b, ru_arena *out, ru_trees *trees)
{
    RU_TRY(configure(t, b, t->in->seed, out));
    uint32_t rounds = t->in->rounds > 0 ? t->in->rounds : 100;
    for (uint32_t k = 0; k < rounds; k++) {
        if (t->lib->XGBoosterUpdateOneIter(b, (int)k, t->data) != 0) {
            return failed(t, "train a round");
        }
    }
    return read_back(t, b, out, trees);
}

/* -- quantiles ------------------------------------------------------------------------------------
 */

typedef struct left_over {
    uint32_t leaf, row;
    float off; /* y - prediction */
} left_over;

static int by_leaf(const void *a, const void *b)
{
    const left_over *p = a, *q = b;
    if (p->leaf != q->leaf) {
        return p->leaf < q->leaf ? -1 : 1;
    }
    if (p->off != q->off) {
        return p->off < q->off ? -1 : 1;
    }
    return p->row < q->row ? -1 : p->row > q->row;
}

static double weight_of(const ru_trees_in *in, uint32_t row)
{
    return in->weight != NULL ? (double)in->weight[row] : 1;
}

/* Least `off` of rows [0, n), in order, with a share q of the weight at or below it. */
static float quantile_of(const ru_trees_in *in, const left_over *rows, uint32_t n)
{
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        total += weight_of(in, rows[i].row);
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += weight_of(in, rows[i].row);
        if (sum >= in->q * total && sum > 0) {
            return rows[i].off;
        }
    }
    return rows[n - 1].off;
}

static uint32_t leaf_of(const ru_trees *t, const float *x)
{
    uint32_t at = t->root[0];
    while (t->feature[at] >= 0) {
        float v = x[t->feature[at]];
        bool left = isnan(v) ? t->missing_left[at] != 0 : v < t->value[at];
        at = left ? t->left[at] : t->right[at];
    }
    return at;
}

RU_VEC(tree_list, ru_trees)

typedef struct quantile_run {
    const training *t;
    float *at, *grad, *hess; /* [m] */
    left_over *rows;         /* [m] */
} quantile_run;

/* Give the leaves of the one new tree their values and move the predictions. */
static void refresh(const quantile_run *r, const ru_trees *tree, float *value)
{
    const ru_trees_in *in = r->t->in;
    double rate = in->rate > 0 ? in->rate : 0.1;
    for (uint32_t i = 0; i < in->m; i++) {
        r->rows[i] = (left_over){leaf_of(tree, in->x + (size_t)i * in->n), i, in->y[i] - r->at[i]};
    }
    qsort(r->rows, in->m, sizeof *r->rows, by_leaf);
    for (uint32_t i = 0, end; i < in->m; i = end) {
        for (end = i + 1; end < in->m && r->rows[end].leaf == r->rows[i].leaf;) {
            end++;
        }
        value[r->rows[i].leaf] = (float)(rate * (double)quantile_of(in, r->rows + i, end - i));
        for (uint32_t k = i; k < end; k++) {
            r->at[r->rows[k].row] += value[r->rows[i].leaf];
        }
    }
}

static ru_status quantile_round(const quantile_run *r, uint32_t k, ru_arena *arena, ru_trees *tree)
{
    const training *t = r->t;
    const ru_trees_in *in = t->in;
    for (uint32_t i = 0; i < in->m; i++) {
        double w = weight_of(in, i), g = r->at[i] > in->y[i] ? 1 - in->q : -in->q;
        r->grad[i] = (float)(w * g);
        r->hess[i] = (float)w;
    }
    BoosterHandle b;
    if (t->lib->XGBoosterCreate(&t->data, 1, &b) != 0) {
        return failed(t, "make a booster");
    }
    ru_status st = configure(t, b, in->seed + k, arena);
    if (st == RU_OK && t->lib->XGBoosterBoostOneIter(b, t->data, r->grad, r->hess, in->m) != 0) {
        st = failed(t, "train a round");
    }
    if (st == RU_OK) {
        st = read_back(t, b, arena, tree);
    }
    t->lib->XGBoosterFree(b);
    if (st == RU_OK) {
        float *value = ru_arena_copy(arena, tree->value, tree->n_nodes * (int64_t)sizeof *value,
                                     _Alignof(float));
        if (value == NULL) {
            return RU_FAIL(t->err, RU_E_LIMIT, "no memory for a tree");
        }
        refresh(r, tree, value);
        tree->value = value;
    }
    return st;
}

/* One forest of many. */
static ru_status join(const training *t, const tree_list *list, float base, ru_arena *out,
                      ru_trees *trees)
{
    uint32_t nodes = 0;
    for (uint32_t k = 0; k < list->n; k++) {
        nodes += list->at[k].n_nodes;
    }
    float *bases = RU_NEW(out, float, 1), *value = RU_NEW(out, float, nodes);
    uint32_t *root = RU_NEW(out, uint32_t, list->n), *output = RU_NEW(out, uint32_t, list->n);
    uint32_t *left = RU_NEW(out, uint32_t, nodes), *right = RU_NEW(out, uint32_t, nodes);
    int32_t *feature = RU_NEW(out, int32_t, nodes);
    uint8_t *missing = RU_NEW(out, uint8_t, nodes);
    if (bases == NULL || value == NULL || root == NULL || output == NULL || left == NULL ||
        right == NULL || feature == NULL || missing == NULL) {
        return RU_FAIL(t->err, RU_E_LIMIT, "no memory for %u trees", list->n);
    }
    bases[0] = base;
    for (uint32_t k = 0, first = 0; k < list->n; first += list->at[k++].n_nodes) {
        const ru_trees *one = &list->at[k];
        root[k] = first + one->root[0];
        for (uint32_t i = 0; i < one->n_nodes; i++) {
            value[first + i] = one->value[i];
            feature[first + i] = one->feature[i];
            missing[first + i] = one->missing_left[i];
            left[first + i] = first + one->left[i];
            right[first + i] = first + one->right[i];
        }
    }
    *trees =
        (ru_trees){t->in->n, 1,    list->n, nodes,  RU_TREES_IDENTITY, bases, root, output, feature,
                   value,    left, right,   missing};
    return ru_trees_check(trees, t->err);
}

static ru_status boost_quantile(const training *t, ru_arena *out, ru_trees *trees)
{
    const ru_trees_in *in = t->in;
    ru_arena work;
    ru_arena_init(&work, 0);
    quantile_run r = {t, RU_NEW(&work, float, in->m), RU_NEW(&work, float, in->m),
                      RU_NEW(&work, float, in->m), RU_NEW(&work, left_over, in->m)};
    tree_list list = {0};
    ru_status st = RU_OK;
    if (r.at == NULL || r.grad == NULL || r.hess == NULL || r.rows == NULL) {
        st = RU_FAIL(t->err, RU_E_MEM, "no memory for %u rows", in->m);
    }
    for (uint32_t i = 0; st == RU_OK && i < in->m; i++) {
        r.rows[i] = (left_over){0, i, in->y[i]};
    }
    float base = 0;
    if (st == RU_OK) {
        qsort(r.rows, in->m, sizeof *r.rows, by_leaf);
        base = quantile_of(in, r.rows, in->m);
    }
    for (uint32_t i = 0; st == RU_OK && i < in->m; i++) {
        r.at[i] = base;
    }
    uint32_t rounds = in->rounds > 0 ? in->rounds : 100;
    for (uint32_t k = 0; st == RU_OK && k < rounds; k++) {
        ru_trees *tree = tree_list_push(&list, &work);
        st = tree != NULL ? quantile_round(&r, k, &work, tree)
                          : RU_FAIL(t->err, RU_E_MEM, "no memory for %u trees", rounds);
    }
    if (st == RU_OK) {
        st = join(t, &list, base, out, trees);
    }
    ru_arena_fini(&work);
    return st;
}

ru_status rui_trees_train(const ru_trees_in *in, ru_arena *out, ru_trees *trees, ru_err *err)
{
    xgb_library lib;
    if (!load(&lib)) {
        return rui_no_library("boosted trees (XGBoost)", "libxgboost0", true, err);
    }
    RU_TRY(check(in, err));
    training t = {.lib = &lib, .in = in, .err = err};
    if (lib.XGDMatrixCreateFromMat(in->x, in->m, in->n, NAN, &t.data) != 0) {
        return failed(&t, "take the rows");
    }
    ru_status st = RU_OK;
    if (lib.XGDMatrixSetFloatInfo(t.data, "label", in->y, in->m) != 0 ||
        (in->weight != NULL &&
         lib.XGDMatrixSetFloatInfo(t.data, "weight", in->weight, in->m) != 0)) {
        st = failed(&t, "take the values");
    }
    if (st == RU_OK && in->goal == RU_TREES_QUANTILE) {
        st = boost_quantile(&t, out, trees);
    } else if (st == RU_OK) {
        BoosterHandle b;
        if (lib.XGBoosterCreate(&t.data, 1, &b) != 0) {
            st = failed(&t, "make a booster");
        } else {
            st = boost(&t, b, out, trees);
            lib.XGBoosterFree(b);
        }
    }
    lib.XGDMatrixFree(t.data);
    return st;
}

#else

bool ru_solver_has_trees(void)
{
    return false;
}

ru_status rui_trees_train(const ru_trees_in *in, ru_arena *out, ru_trees *trees, ru_err *err)
{
    (void)out;
    (void)trees;
    RU_TRY(check(in, err));
    return rui_no_library("boosted trees (XGBoost)", "libxgboost-dev", false, err);
}

#endif
