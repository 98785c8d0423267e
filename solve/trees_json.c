/* XGBoost's JSON models as plain arrays. See solver.h.
 *
 * Nodes are numbered again from each root downwards: the file may hold deleted nodes, and children
 * anywhere. Source: chen-guestrin-2016; the layout is that of model files of version 1.0 to 2.x. */
#include "solve/solver.h"

#include "base/rng.h"
#include "base/str.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

typedef struct reader {
    ru_arena *out;
    ru_trees t;
    float *base, *value;
    uint32_t *root, *output, *left, *right;
    int32_t *feature;
    uint8_t *missing_left;
    uint32_t made; /* nodes so far */
} reader;

static const struct {
    const char *name;
    ru_trees_link link;
    bool logit; /* base_score is a probability */
} objectives[] = {
    {"reg:squarederror", RU_TREES_IDENTITY, false},
    {"reg:squaredlogerror", RU_TREES_IDENTITY, false},
    {"reg:pseudohubererror", RU_TREES_IDENTITY, false},
    {"reg:absoluteerror", RU_TREES_IDENTITY, false},
    {"reg:quantileerror", RU_TREES_IDENTITY, false},
    {"reg:logistic", RU_TREES_LOGISTIC, true},
    {"binary:logistic", RU_TREES_LOGISTIC, true},
    {"binary:logitraw", RU_TREES_IDENTITY, true},
    {"multi:softprob", RU_TREES_SOFTMAX, false},
    {"multi:softmax", RU_TREES_SOFTMAX, false},
    {"count:poisson", RU_TREES_EXP, false},
    {"reg:gamma", RU_TREES_EXP, false},
    {"reg:tweedie", RU_TREES_EXP, false},
};

/* A number that may stand in quotes, as XGBoost writes parameters. */
static bool number(const json_t *v, double *out)
{
    if (json_is_number(v)) {
        *out = json_number_value(v);
        return true;
    }
    ru_str s = ru_str_c(json_string_value(v));
    if (ru_str_starts(s, "[") && ru_str_ends(s, "]")) { /* newer files: a list of one */
        s = ru_str_n(s.p + 1, s.n - 2);
    }
    return json_is_string(v) && ru_str_f64(s, out);
}

static ru_status bad(const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA,
                   "the XGBoost model in JSON is damaged: %s is missing or not valid", what);
}

static bool whole(const json_t *v, double max, uint32_t *out)
{
    double d;
    if (!number(v, &d) || !(d >= 0 && d <= max) || d != floor(d)) {
        return false;
    }
    *out = (uint32_t)d;
    return true;
}

static ru_status read_head(reader *r, const json_t *learner, ru_err *err)
{
    const json_t *param = json_object_get(learner, "learner_model_param");
    const char *name =
        json_string_value(json_object_get(json_object_get(learner, "objective"), "name"));
    uint32_t classes, k = 0;
    double base;
    if (name == NULL) {
        return bad("learner.objective.name", err);
    }
    while (k < RU_ARRAY_LEN(objectives) && strcmp(objectives[k].name, name) != 0) {
        k++;
    }
    if (k == RU_ARRAY_LEN(objectives)) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "the XGBoost model has the objective %.60s, which is not supported", name);
    }
    if (!whole(json_object_get(param, "num_feature"), 1e6, &r->t.n_features) ||
        !whole(json_object_get(param, "num_class"), 1e4, &classes) ||
        !number(json_object_get(param, "base_score"), &base)) {
        return bad("learner.learner_model_param", err);
    }
    r->t.link = objectives[k].link;
    if (objectives[k].logit || r->t.link == RU_TREES_EXP) {
        bool inside = base > 0 && (base < 1 || r->t.link == RU_TREES_EXP);
        if (!inside) {
            return bad("base_score", err);
        }
        base = ru_math_log(r->t.link == RU_TREES_EXP ? base : base / (1 - base));
    }
    r->t.n_outputs = classes > 1 ? classes : 1;
    r->base = RU_NEW(r->out, float, r->t.n_outputs);
    for (uint32_t i = 0; r->base != NULL && i < r->t.n_outputs; i++) {
        r->base[i] = (float)base;
    }
    return r->base != NULL ? RU_OK : RU_FAIL(err, RU_E_LIMIT, "no memory for a model");
}

typedef struct tree_in {
    const json_t *left, *right, *feature, *value, *missing_left, *type;
    size_t n;
} tree_in;

static int64_t integer_at(const json_t *list, size_t i)
{
    const json_t *v = json_array_get(list, i);
    return json_is_true(v) ? 1 : json_is_false(v) ? 0 : json_integer_value(v);
}

/* One node of the file becomes node `to`; its children get the next two numbers. `source` [made]
 * holds the number in the file of every node made. */
static ru_status read_node(reader *r, const tree_in *in, uint32_t to, uint32_t *source,
                           uint32_t limit, ru_err *err)
{
    size_t at = source[to];
    int64_t left = integer_at(in->left, at), right = integer_at(in->right, at);
    double value = json_number_value(json_array_get(in->value, at));
    r->value[to] = (float)value;
    r->feature[to] = -1;
    if (left == -1 && right == -1) {
        return RU_OK;
    }
    int64_t feature = integer_at(in->feature, at);
    if (left < 0 || right < 0 || (size_t)left >= in->n || (size_t)right >= in->n || feature < 0 ||
        feature >= r->t.n_features || r->made + 2 > limit) {
        return bad("a node of a tree", err);
    }
    if (integer_at(in->type, at) != 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "the XGBoost model has categorical splits, which are not supported");
    }
    r->feature[to] = (int32_t)feature;
    r->missing_left[to] = integer_at(in->missing_left, at) != 0;
    r->left[to] = r->made;
    source[r->made++] = (uint32_t)left;
    r->right[to] = r->made;
    source[r->made++] = (uint32_t)right;
    return RU_OK;
}

static ru_status read_tree(reader *r, const json_t *tree, uint32_t k, uint32_t *source, ru_err *err)
{
    tree_in in = {json_object_get(tree, "left_children"),
                  json_object_get(tree, "right_children"),
                  json_object_get(tree, "split_indices"),
                  json_object_get(tree, "split_conditions"),
                  json_object_get(tree, "default_left"),
                  json_object_get(tree, "split_type"),
                  json_array_size(json_object_get(tree, "left_children"))};
    if (in.n == 0 || json_array_size(in.right) != in.n || json_array_size(in.feature) != in.n ||
        json_array_size(in.value) != in.n || json_array_size(in.missing_left) != in.n) {
        return bad("a list of a tree", err);
    }
    /* Every node of the file is reached at most once, or there is a circle. */
    uint32_t first = r->made, limit = first + (uint32_t)in.n;
    r->root[k] = first;
    source[r->made++] = 0;
    for (uint32_t to = first; to < r->made; to++) {
        RU_TRY(read_node(r, &in, to, source, limit, err));
    }
    return RU_OK;
}

static ru_status read_trees(reader *r, const json_t *model, ru_err *err)
{
    const json_t *trees = json_object_get(model, "trees"),
                 *info = json_object_get(model, "tree_info");
    size_t nodes = 0, n = json_array_size(trees);
    for (size_t k = 0; k < n; k++) {
        nodes += json_array_size(json_object_get(json_array_get(trees, k), "left_children"));
    }
    if (!json_is_array(trees) || json_array_size(info) != n || nodes > 1u << 30) {
        return bad("learner.gradient_booster.model", err);
    }
    r->root = RU_NEW(r->out, uint32_t, n);
    r->output = RU_NEW(r->out, uint32_t, n);
    r->feature = RU_NEW(r->out, int32_t, nodes);
    r->value = RU_NEW(r->out, float, nodes);
    r->left = RU_NEW(r->out, uint32_t, nodes);
    r->right = RU_NEW(r->out, uint32_t, nodes);
    r->missing_left = RU_NEW(r->out, uint8_t, nodes);
    uint32_t *source = RU_NEW(r->out, uint32_t, nodes);
    if (r->root == NULL || r->output == NULL || r->feature == NULL || r->value == NULL ||
        r->left == NULL || r->right == NULL || r->missing_left == NULL || source == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %zu trees of %zu nodes", n, nodes);
    }
    for (uint32_t k = 0; k < n; k++) {
        int64_t output = integer_at(info, k);
        if (output < 0 || output >= r->t.n_outputs) {
            return bad("tree_info", err);
        }
        r->output[k] = (uint32_t)output;
        RU_TRY(read_tree(r, json_array_get(trees, k), k, source, err));
    }
    r->t.n_trees = (uint32_t)n;
    r->t.n_nodes = r->made;
    return RU_OK;
}

static ru_status read_model(reader *r, const json_t *root, ru_err *err)
{
    const json_t *learner = json_object_get(root, "learner");
    const json_t *booster = json_object_get(learner, "gradient_booster");
    const char *kind = json_string_value(json_object_get(booster, "name"));
    if (kind == NULL || strcmp(kind, "gbtree") != 0) {
        return RU_FAIL(err, kind == NULL ? RU_E_DATA : RU_E_UNSUPPORTED,
                       "the XGBoost model in JSON has the booster %.40s; only gbtree is supported",
                       kind == NULL ? "(none)" : kind);
    }
    RU_TRY(read_head(r, learner, err));
    RU_TRY(read_trees(r, json_object_get(booster, "model"), err));
    r->t.base = r->base;
    r->t.root = r->root;
    r->t.output = r->output;
    r->t.feature = r->feature;
    r->t.value = r->value;
    r->t.left = r->left;
    r->t.right = r->right;
    r->t.missing_left = r->missing_left;
    return ru_trees_check(&r->t, err);
}

ru_status ru_trees_read_json(const char *text, int64_t size_bytes, ru_arena *out, ru_trees *trees,
                             ru_err *err)
{
    json_error_t at;
    json_t *root = size_bytes >= 0 ? json_loadb(text, (size_t)size_bytes, 0, &at) : NULL;
    if (root == NULL) {
        return RU_FAIL(err, RU_E_DATA, "the XGBoost model in JSON is damaged: line %d: %s", at.line,
                       at.text);
    }
    reader r = {.out = out};
    ru_status st = read_model(&r, root, err);
    json_decref(root);
    if (st == RU_OK) {
        *trees = r.t;
    }
    return st;
}
