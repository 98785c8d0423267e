/* The table of models and the layers they are made of.
 *
 * Names, shapes and start values follow PyTorch (nn.Linear, nn.Conv2d, torchvision, GPT-2), so that
 * weights move between the two by name. */
#include "train/model/zoo.h"

#include <math.h>
#include <string.h>

#include "train/model/zoo_impl.h"

typedef ru_status (*zoo_fn)(rui_zoo *z, ru_err *err);

/* Keep rows[] and builders[] in the same order. */
static const ru_zoo_row rows[] = {
    {"mlp", "fully connected layers on the flattened sample", "hidden activation dropout classes"},
    {"lenet", "two 5x5 convolutions with pooling and two linear layers, for 28x28 or 32x32",
     "width dropout classes"},
    {"resnet18", "residual network, 18 layers; CIFAR stem up to 64x64", "width classes"},
    {"resnet34", "residual network, 34 layers; CIFAR stem up to 64x64", "width classes"},
    {"resnet50", "residual network of bottlenecks, 50 layers; CIFAR stem up to 64x64",
     "width classes"},
    {"vgg11", "8 convolutions and 3 linear layers", "width channels batch_norm dropout classes"},
    {"vgg16", "13 convolutions and 3 linear layers", "width channels batch_norm dropout classes"},
    {"mobilenet", "inverted residuals with depthwise convolutions (MobileNetV2)",
     "dropout classes"},
    {"lstm", "stacked LSTM over tokens (vocab) or features, then a linear layer",
     "layers width vocab context dropout classes"},
    {"gpt", "decoder-only transformer over tokens",
     "layers heads width context vocab dropout bias tie"},
    {"vit", "transformer over image patches, mean over patches, linear head",
     "layers heads width patch dropout classes"},
};

static const zoo_fn builders[] = {
    rui_zoo_mlp, rui_zoo_lenet,     rui_zoo_resnet, rui_zoo_resnet, rui_zoo_resnet, rui_zoo_vgg,
    rui_zoo_vgg, rui_zoo_mobilenet, rui_zoo_lstm,   rui_zoo_gpt,    rui_zoo_vit,
};

_Static_assert(sizeof rows / sizeof rows[0] == sizeof builders / sizeof builders[0],
               "one builder per row");

const ru_zoo_row *ru_zoo_list(uint32_t *n)
{
    *n = RU_ARRAY_LEN(rows);
    return rows;
}

static ru_status build(const char *name, const ru_zoo_options *opt, const ru_zoo_steps *steps,
                       bool train, ru_graph *g, ru_zoo_model *out, ru_err *err)
{
    uint32_t k = 0;
    while (k < RU_ARRAY_LEN(rows) && strcmp(rows[k].name, name) != 0) {
        k++;
    }
    if (k == RU_ARRAY_LEN(rows)) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "the zoo has no model '%s'; it has mlp, lenet, resnet18, resnet34, resnet50, "
            "vgg11, vgg16, mobilenet, lstm, gpt, vit",
            name);
    }
    ru_zoo_model model = {0};
    rui_zoo z = {.opt = opt, .model = rows[k].name, .train = train, .steps = steps, .out = &model};
    ru_build_init(&z.b, g);
    RU_TRY(ru_graph_symbol(g, "N", &z.sym_batch, err));
    RU_TRY(builders[k](&z, err));
    ru_status st = ru_build_finish(&z.b, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "model %s", name);
    }
    model.inits = z.inits;
    model.n_inits = z.n_inits;
    *out = model;
    return RU_OK;
}

ru_status ru_zoo_build(const char *name, const ru_zoo_options *opt, bool train, ru_graph *g,
                       ru_zoo_model *out, ru_err *err)
{
    return build(name, opt, NULL, train, g, out, err);
}

ru_status ru_zoo_build_steps(const char *name, const ru_zoo_options *opt, const ru_zoo_steps *steps,
                             ru_graph *g, ru_err *err)
{
    ru_zoo_model out;
    if (strcmp(name, "gpt") != 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "model %s has no form in steps, only gpt has one",
                       name);
    }
    return build(name, opt, steps, false, g, &out, err);
}

/* -- checks ------------------------------------------------------------------------------------ */

ru_status rui_zoo_range(const rui_zoo *z, const char *option, int64_t value, int64_t min,
                        int64_t max, ru_err *err)
{
    if (value < min || value > max) {
        return RU_FAIL(err, RU_E_CONFIG, "model %s: %s must be %lld to %lld, not %lld", z->model,
                       option, (long long)min, (long long)max, (long long)value);
    }
    return RU_OK;
}

ru_status rui_zoo_image(const rui_zoo *z, int64_t side_min, int64_t side_max, ru_err *err)
{
    const ru_zoo_options *o = z->opt;
    if (o->input_rank != 3) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "model %s needs images [channels, height, width], but a sample of the data "
                       "has %u dimensions; choose another model or an image format",
                       z->model, o->input_rank);
    }
    RU_TRY(rui_zoo_range(z, "channels of the input", o->input[0], 1, 4096, err));
    RU_TRY(rui_zoo_range(z, "height of the input", o->input[1], side_min, side_max, err));
    return rui_zoo_range(z, "width of the input", o->input[2], side_min, side_max, err);
}

ru_status rui_zoo_classes(const rui_zoo *z, ru_err *err)
{
    return rui_zoo_range(z, "classes", z->opt->classes, 1, 1 << 24, err);
}

/* -- values ------------------------------------------------------------------------------------ */

int64_t rui_zoo_dim(const rui_zoo *z, ru_value_id v, uint32_t d)
{
    const ru_type *t = &ru_graph_value(z->b.g, v)->type;
    return d < t->rank ? t->dims[d] : 0;
}

const char *rui_zoo_name(rui_zoo *z, const char *a, const char *b)
{
    const char *s =
        a[0] == 0 ? ru_arena_str(z->b.g->arena, b) : ru_arena_printf(z->b.g->arena, "%s.%s", a, b);
    return s != NULL ? s : "";
}

const char *rui_zoo_name_k(rui_zoo *z, const char *a, int64_t k)
{
    const char *s = ru_arena_printf(z->b.g->arena, "%s.%lld", a, (long long)k);
    return s != NULL ? s : "";
}

ru_value_id rui_zoo_input(rui_zoo *z, const char *name, ru_dtype dtype, const int64_t *dims,
                          uint32_t rank)
{
    ru_type t = {.dtype = dtype, .rank = rank + 1};
    t.dims[0] = ru_dim_symbol(z->sym_batch, 1);
    for (uint32_t d = 0; d < rank; d++) {
        t.dims[d + 1] = dims[d];
    }
    return ru_build_input(&z->b, name, t);
}

static void add_init(rui_zoo *z, ru_value_id param, ru_init_kind kind, double scale, int64_t fan_in)
{
    if (z->n_inits == z->cap_inits) {
        uint32_t cap = z->cap_inits == 0 ? 64 : 2 * z->cap_inits;
        ru_init *more = RU_NEW(z->b.g->arena, ru_init, cap);
        if (more == NULL) {
            if (z->b.status == RU_OK) {
                z->b.status = RU_FAIL(&z->b.err, RU_E_LIMIT, "the arena of the graph is full");
            }
            return;
        }
        if (z->n_inits > 0) {
            memcpy(more, z->inits, (size_t)z->n_inits * sizeof *more);
        }
        z->inits = more;
        z->cap_inits = cap;
    }
    z->inits[z->n_inits++] =
        (ru_init){.param = param, .kind = kind, .scale = scale, .fan_in = fan_in};
}

ru_value_id rui_zoo_param(rui_zoo *z, const char *prefix, const char *name, const int64_t *dims,
                          uint32_t rank, ru_init_kind kind, double scale, int64_t fan_in)
{
    ru_value_id v = ru_build_param(&z->b, rui_zoo_name(z, prefix, name),
                                   ru_type_make(RU_F32, rank, dims), NULL);
    add_init(z, v, kind, scale, fan_in);
    return v;
}

/* -- layers ------------------------------------------------------------------------------------ */

ru_value_id rui_zoo_linear(rui_zoo *z, ru_value_id x, const char *prefix, int64_t out, bool bias,
                           double std)
{
    int64_t in = rui_zoo_dim(z, x, 1);
    int64_t wd[2] = {out, in};
    ru_init_kind kind = std > 0 ? RU_INIT_NORMAL : RU_INIT_KAIMING_UNIFORM;
    ru_value_id args[3] = {x, rui_zoo_param(z, prefix, "weight", wd, 2, kind, std, in), {0}};
    if (bias) {
        kind = std > 0 ? RU_INIT_ZEROS : RU_INIT_KAIMING_UNIFORM;
        args[2] = rui_zoo_param(z, prefix, "bias", wd, 1, kind, 0, in);
    }
    ru_value_id y = {0};
    ru_build_node(&z->b, RU_OP_Gemm, args, bias ? 3 : 2, (ru_attr[]){RU_AI(transB, 1), RU_A_END},
                  &y, 1);
    return y;
}

/* Attribute arrays are view, so they go to the graph's arena. */
static const int64_t *ints(rui_zoo *z, uint32_t n, int64_t x)
{
    int64_t *p = RU_NEW(z->b.g->arena, int64_t, n);
    static const int64_t nothing[4] = {1, 1, 1, 1};
    for (uint32_t k = 0; p != NULL && k < n; k++) {
        p[k] = x;
    }
    return p != NULL ? p : nothing;
}

ru_value_id rui_zoo_conv(rui_zoo *z, ru_value_id x, const char *prefix, const rui_conv *c)
{
    int64_t group = c->group > 0 ? c->group : 1;
    int64_t in = rui_zoo_dim(z, x, 1) / group;
    int64_t wd[4] = {c->out, in, c->kernel, c->kernel};
    int64_t area = c->kernel * c->kernel;
    /* torchvision: fan_out counts all outputs over the groups (nn.init of a [out, in/g, k, k]) */
    ru_value_id w = c->fan_out ? rui_zoo_param(z, prefix, "weight", wd, 4, RU_INIT_NORMAL,
                                               sqrt(2.0 / (double)(c->out * area)), in * area)
                               : rui_zoo_param(z, prefix, "weight", wd, 4, RU_INIT_KAIMING_UNIFORM,
                                               0, in * area);
    ru_value_id args[3] = {x, w, {0}};
    if (c->bias) {
        args[2] = rui_zoo_param(z, prefix, "bias", wd, 1,
                                c->fan_out ? RU_INIT_ZEROS : RU_INIT_KAIMING_UNIFORM, 0, in * area);
    }
    ru_value_id y = {0};
    ru_build_node(&z->b, RU_OP_Conv, args, c->bias ? 3 : 2,
                  (ru_attr[]){RU_AIS(kernel_shape, ints(z, 2, c->kernel), 2),
                              RU_AIS(strides, ints(z, 2, c->stride), 2),
                              RU_AIS(pads, ints(z, 4, c->pad), 4), RU_AI(group, group), RU_A_END},
                  &y, 1);
    return y;
}

ru_value_id rui_zoo_batch_norm(rui_zoo *z, ru_value_id x, const char *prefix)
{
    int64_t c = rui_zoo_dim(z, x, 1);
    ru_type t = ru_type_make(RU_F32, 1, &c);
    ru_value_id in[5] = {x};
    in[1] = rui_zoo_param(z, prefix, "weight", &c, 1, RU_INIT_ONES, 0, c);
    in[2] = rui_zoo_param(z, prefix, "bias", &c, 1, RU_INIT_ZEROS, 0, c);
    in[3] = ru_build_state(&z->b, rui_zoo_name(z, prefix, "running_mean"), t, RU_ROLE_BUFFER, NULL);
    add_init(z, in[3], RU_INIT_ZEROS, 0, c);
    in[4] = ru_build_state(&z->b, rui_zoo_name(z, prefix, "running_var"), t, RU_ROLE_BUFFER, NULL);
    add_init(z, in[4], RU_INIT_ONES, 0, c);
    ru_value_id out[5] = {{0}};
    if (z->train) {
        ru_build_node(
            &z->b, RU_OP_BatchNormTrain, in, 5,
            (ru_attr[]){RU_AF(epsilon, 1e-5), RU_AF(momentum, 0.9), RU_AI(bias, 1), RU_A_END}, out,
            5);
        ru_build_update(&z->b, in[3], out[1]);
        ru_build_update(&z->b, in[4], out[2]);
    } else {
        ru_build_node(&z->b, RU_OP_BatchNormalization, in, 5,
                      (ru_attr[]){RU_AF(epsilon, 1e-5), RU_AF(momentum, 0.9), RU_A_END}, out, 1);
    }
    return out[0];
}

ru_value_id rui_zoo_layer_norm(rui_zoo *z, ru_value_id x, const char *prefix, double epsilon)
{
    uint32_t rank = ru_graph_value(z->b.g, x)->type.rank;
    int64_t c = rui_zoo_dim(z, x, rank - 1);
    ru_value_id w = rui_zoo_param(z, prefix, "weight", &c, 1, RU_INIT_ONES, 0, c);
    ru_value_id in[3] = {x, w, {0}};
    uint32_t n_in = 2;
    if (z->opt->bias || strcmp(z->model, "gpt") != 0) {
        in[n_in++] = rui_zoo_param(z, prefix, "bias", &c, 1, RU_INIT_ZEROS, 0, c);
    }
    ru_value_id y = {0};
    ru_build_node(&z->b, RU_OP_LayerNormalization, in, n_in,
                  (ru_attr[]){RU_AI(axis, -1), RU_AF(epsilon, epsilon), RU_A_END}, &y, 1);
    return y;
}

ru_value_id rui_zoo_dropout(rui_zoo *z, ru_value_id x, double ratio)
{
    uint32_t stream = z->stream++;
    if (!z->train || !(ratio > 0)) {
        return x;
    }
    ru_value_id out[2] = {{0}};
    ru_build_node(&z->b, RU_OP_DropoutTrain, &x, 1,
                  (ru_attr[]){RU_AF(ratio, ratio), RU_AI(stream, stream), RU_A_END}, out, 2);
    return out[0];
}

ru_value_id rui_zoo_relu(rui_zoo *z, ru_value_id x)
{
    return ru_build_op1(&z->b, RU_OP_Relu, x, NULL);
}

ru_value_id rui_zoo_max_pool(rui_zoo *z, ru_value_id x, int64_t kernel, int64_t stride, int64_t pad)
{
    ru_value_id y = {0};
    ru_build_node(&z->b, RU_OP_MaxPool, &x, 1,
                  (ru_attr[]){RU_AIS(kernel_shape, ints(z, 2, kernel), 2),
                              RU_AIS(strides, ints(z, 2, stride), 2),
                              RU_AIS(pads, ints(z, 4, pad), 4), RU_A_END},
                  &y, 1);
    return y;
}

ru_value_id rui_zoo_flatten(rui_zoo *z, ru_value_id x)
{
    if (ru_graph_value(z->b.g, x)->type.rank == 2) {
        return x;
    }
    return ru_build_op1(&z->b, RU_OP_Flatten, x, (ru_attr[]){RU_AI(axis, 1), RU_A_END});
}

ru_value_id rui_zoo_reshape(rui_zoo *z, ru_value_id x, const int64_t *dims, uint32_t rank)
{
    ru_value_id shape = ru_build_const_i64s(&z->b, dims, rank);
    return ru_build_op2(&z->b, RU_OP_Reshape, x, shape, NULL);
}

ru_value_id rui_zoo_global_pool(rui_zoo *z, ru_value_id x)
{
    return rui_zoo_flatten(z, ru_build_op1(&z->b, RU_OP_GlobalAveragePool, x, NULL));
}
