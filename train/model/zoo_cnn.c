/* Models on flat samples and images: mlp, lenet, resnet, vgg, mobilenet.
 *
 * Source: mlp, lenet: LeNet-5's shape with the widths of the usual tutorials (32, 64, 512).
 * resnet: He et al., CVPR 2016, with torchvision's names and start values; images up to 64x64 take
 * the CIFAR stem (3x3, stride 1, no pooling). vgg: Simonyan and Zisserman, ICLR 2015. mobilenet:
 * Sandler et al., CVPR 2018. */
#include <string.h>

#include "train/model/zoo_impl.h"

enum { SMALL_SIDE_MAX = 64 }; /* images up to this side take the CIFAR stem */

static bool is_small(const rui_zoo *z)
{
    return z->opt->input[1] <= SMALL_SIDE_MAX && z->opt->input[2] <= SMALL_SIDE_MAX;
}

static int64_t or_default(int64_t x, int64_t dflt)
{
    return x != 0 ? x : dflt;
}

ru_status rui_zoo_mlp(rui_zoo *z, ru_err *err)
{
    static const int64_t hidden_default[] = {512, 512};
    const ru_zoo_options *o = z->opt;
    int64_t n = o->hidden_n > 0 ? o->hidden_n : 2;
    const int64_t *hidden = o->hidden_n > 0 ? o->hidden : hidden_default;
    const char *act = o->activation != NULL ? o->activation : "relu";
    ru_op op = strcmp(act, "relu") == 0   ? RU_OP_Relu
               : strcmp(act, "gelu") == 0 ? RU_OP_Gelu
               : strcmp(act, "tanh") == 0 ? RU_OP_Tanh
                                          : RU_OP_NONE;
    if (op == RU_OP_NONE) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "model mlp: activation must be relu, gelu or tanh, not '%s'", act);
    }
    RU_TRY(rui_zoo_classes(z, err));
    RU_TRY(rui_zoo_range(z, "dimensions of the input", o->input_rank, 1, 4, err));
    RU_TRY(rui_zoo_range(z, "number of hidden layers", n, 0, 1000, err));
    ru_value_id x = rui_zoo_flatten(z, rui_zoo_input(z, "x", RU_F32, o->input, o->input_rank));
    for (int64_t k = 0; k < n; k++) {
        RU_TRY(rui_zoo_range(z, "hidden", hidden[k], 1, 1 << 24, err));
        const char *name = ru_arena_printf(z->b.g->arena, "fc%lld", (long long)k + 1);
        x = rui_zoo_linear(z, x, name != NULL ? name : "", hidden[k], true, 0);
        x = rui_zoo_dropout(z, ru_build_op1(&z->b, op, x, NULL), o->dropout);
    }
    const char *name = ru_arena_printf(z->b.g->arena, "fc%lld", (long long)n + 1);
    x = rui_zoo_linear(z, x, name != NULL ? name : "", o->classes, true, 0);
    ru_build_output(&z->b, x, "logits");
    return RU_OK;
}

ru_status rui_zoo_lenet(rui_zoo *z, ru_err *err)
{
    const ru_zoo_options *o = z->opt;
    RU_TRY(rui_zoo_image(z, 16, 256, err));
    RU_TRY(rui_zoo_classes(z, err));
    int64_t width = or_default(o->width, 32);
    RU_TRY(rui_zoo_range(z, "width", width, 1, 4096, err));
    ru_value_id x = rui_zoo_input(z, "x", RU_F32, o->input, 3);
    x = rui_zoo_conv(z, x, "conv1",
                     &(rui_conv){.out = width, .kernel = 5, .stride = 1, .bias = true});
    x = rui_zoo_max_pool(z, rui_zoo_relu(z, x), 2, 2, 0);
    x = rui_zoo_conv(z, x, "conv2",
                     &(rui_conv){.out = 2 * width, .kernel = 5, .stride = 1, .bias = true});
    x = rui_zoo_max_pool(z, rui_zoo_relu(z, x), 2, 2, 0);
    x = rui_zoo_relu(z, rui_zoo_linear(z, rui_zoo_flatten(z, x), "fc1", 16 * width, true, 0));
    x = rui_zoo_dropout(z, x, o->dropout);
    x = rui_zoo_linear(z, x, "fc2", o->classes, true, 0);
    ru_build_output(&z->b, x, "logits");
    return RU_OK;
}

/* -- resnet ------------------------------------------------------------------------------------ */

static ru_value_id conv_bn(rui_zoo *z, ru_value_id x, const char *conv, const char *bn, rui_conv c)
{
    c.fan_out = true;
    return rui_zoo_batch_norm(z, rui_zoo_conv(z, x, conv, &c), bn);
}

/* One residual block; `bottleneck` gives 1x1, 3x3, 1x1 with four times the channels. */
static ru_value_id res_block(rui_zoo *z, ru_value_id x, const char *p, int64_t planes,
                             int64_t stride, bool bottleneck)
{
    int64_t out = bottleneck ? 4 * planes : planes;
    ru_value_id skip = x, y = x;
    if (bottleneck) {
        y = conv_bn(z, y, rui_zoo_name(z, p, "conv1"), rui_zoo_name(z, p, "bn1"),
                    (rui_conv){.out = planes, .kernel = 1, .stride = 1});
        y = conv_bn(z, rui_zoo_relu(z, y), rui_zoo_name(z, p, "conv2"), rui_zoo_name(z, p, "bn2"),
                    (rui_conv){.out = planes, .kernel = 3, .stride = stride, .pad = 1});
        y = conv_bn(z, rui_zoo_relu(z, y), rui_zoo_name(z, p, "conv3"), rui_zoo_name(z, p, "bn3"),
                    (rui_conv){.out = out, .kernel = 1, .stride = 1});
    } else {
        y = conv_bn(z, y, rui_zoo_name(z, p, "conv1"), rui_zoo_name(z, p, "bn1"),
                    (rui_conv){.out = planes, .kernel = 3, .stride = stride, .pad = 1});
        y = conv_bn(z, rui_zoo_relu(z, y), rui_zoo_name(z, p, "conv2"), rui_zoo_name(z, p, "bn2"),
                    (rui_conv){.out = planes, .kernel = 3, .stride = 1, .pad = 1});
    }
    if (stride != 1 || rui_zoo_dim(z, x, 1) != out) {
        skip = conv_bn(z, x, rui_zoo_name(z, p, "downsample.0"), rui_zoo_name(z, p, "downsample.1"),
                       (rui_conv){.out = out, .kernel = 1, .stride = stride});
    }
    return rui_zoo_relu(z, ru_build_op2(&z->b, RU_OP_Add, y, skip, NULL));
}

ru_status rui_zoo_resnet(rui_zoo *z, ru_err *err)
{
    static const int64_t blocks18[4] = {2, 2, 2, 2}, blocks34[4] = {3, 4, 6, 3};
    bool bottleneck = strcmp(z->model, "resnet50") == 0;
    const int64_t *blocks = strcmp(z->model, "resnet18") == 0 ? blocks18 : blocks34;
    RU_TRY(rui_zoo_image(z, 8, 4096, err));
    RU_TRY(rui_zoo_classes(z, err));
    int64_t width = or_default(z->opt->width, 64);
    RU_TRY(rui_zoo_range(z, "width", width, 1, 1024, err));
    ru_value_id x = rui_zoo_input(z, "x", RU_F32, z->opt->input, 3);
    if (is_small(z)) {
        x = conv_bn(z, x, "conv1", "bn1",
                    (rui_conv){.out = width, .kernel = 3, .stride = 1, .pad = 1});
        x = rui_zoo_relu(z, x);
    } else {
        x = conv_bn(z, x, "conv1", "bn1",
                    (rui_conv){.out = width, .kernel = 7, .stride = 2, .pad = 3});
        x = rui_zoo_max_pool(z, rui_zoo_relu(z, x), 3, 2, 1);
    }
    for (int64_t stage = 0; stage < 4; stage++) {
        const char *layer = ru_arena_printf(z->b.g->arena, "layer%lld", (long long)stage + 1);
        for (int64_t k = 0; k < blocks[stage]; k++) {
            int64_t stride = stage > 0 && k == 0 ? 2 : 1;
            x = res_block(z, x, rui_zoo_name_k(z, layer != NULL ? layer : "", k), width << stage,
                          stride, bottleneck);
        }
    }
    x = rui_zoo_linear(z, rui_zoo_global_pool(z, x), "fc", z->opt->classes, true, 0);
    ru_build_output(&z->b, x, "logits");
    return RU_OK;
}

/* -- vgg --------------------------------------------------------------------------------------- */

ru_status rui_zoo_vgg(rui_zoo *z, ru_err *err)
{
    /* channels, 0 = pooling; as in torchvision's configurations A and D */
    static const int64_t vgg11[] = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0, -1};
    static const int64_t vgg16[] = {64,  64,  0,   128, 128, 0,   256, 256, 256, 0,
                                    512, 512, 512, 0,   512, 512, 512, 0,   -1};
    const int64_t *plan = strcmp(z->model, "vgg11") == 0 ? vgg11 : vgg16;
    const ru_zoo_options *o = z->opt;
    RU_TRY(rui_zoo_image(z, 32, 1024, err));
    RU_TRY(rui_zoo_classes(z, err));
    int64_t width = or_default(o->width, is_small(z) ? 512 : 4096);
    RU_TRY(rui_zoo_range(z, "width", width, 1, 1 << 20, err));
    int64_t channels = or_default(o->channels, 64);
    RU_TRY(rui_zoo_range(z, "channels", channels, 1, 4096, err));
    ru_value_id x = rui_zoo_input(z, "x", RU_F32, o->input, 3);
    int64_t at = 0; /* index in nn.Sequential, which names the layer */
    for (; *plan >= 0; plan++) {
        if (*plan == 0) {
            x = rui_zoo_max_pool(z, x, 2, 2, 0);
            at++;
            continue;
        }
        x = rui_zoo_conv(z, x, rui_zoo_name_k(z, "features", at++),
                         &(rui_conv){.out = *plan / 64 * channels,
                                     .kernel = 3,
                                     .stride = 1,
                                     .pad = 1,
                                     .bias = true,
                                     .fan_out = true});
        if (o->batch_norm) {
            x = rui_zoo_batch_norm(z, x, rui_zoo_name_k(z, "features", at++));
        }
        x = rui_zoo_relu(z, x);
        at++;
    }
    x = rui_zoo_flatten(z, x);
    x = rui_zoo_relu(z, rui_zoo_linear(z, x, "classifier.0", width, true, 0.01));
    x = rui_zoo_dropout(z, x, o->dropout);
    x = rui_zoo_relu(z, rui_zoo_linear(z, x, "classifier.3", width, true, 0.01));
    x = rui_zoo_dropout(z, x, o->dropout);
    x = rui_zoo_linear(z, x, "classifier.6", o->classes, true, 0.01);
    ru_build_output(&z->b, x, "logits");
    return RU_OK;
}

/* -- mobilenet --------------------------------------------------------------------------------- */

static ru_value_id relu6(rui_zoo *z, ru_value_id x)
{
    return ru_build_op3(&z->b, RU_OP_Clip, x, ru_build_const_f32(&z->b, 0.0f),
                        ru_build_const_f32(&z->b, 6.0f), NULL);
}

/* conv, batch norm, relu6 under torchvision's names p.0 and p.1. */
static ru_value_id conv_bn_relu6(rui_zoo *z, ru_value_id x, const char *p, rui_conv c)
{
    return relu6(z, conv_bn(z, x, rui_zoo_name_k(z, p, 0), rui_zoo_name_k(z, p, 1), c));
}

static ru_value_id inverted_residual(rui_zoo *z, ru_value_id x, const char *p, int64_t expand,
                                     int64_t out, int64_t stride)
{
    int64_t in = rui_zoo_dim(z, x, 1), mid = in * expand, at = 0;
    const char *conv = rui_zoo_name(z, p, "conv");
    ru_value_id y = x;
    if (expand != 1) {
        y = conv_bn_relu6(z, y, rui_zoo_name_k(z, conv, at++),
                          (rui_conv){.out = mid, .kernel = 1, .stride = 1});
    }
    y = conv_bn_relu6(
        z, y, rui_zoo_name_k(z, conv, at++),
        (rui_conv){.out = mid, .kernel = 3, .stride = stride, .pad = 1, .group = mid});
    y = conv_bn(z, y, rui_zoo_name_k(z, conv, at), rui_zoo_name_k(z, conv, at + 1),
                (rui_conv){.out = out, .kernel = 1, .stride = 1});
    return stride == 1 && in == out ? ru_build_op2(&z->b, RU_OP_Add, x, y, NULL) : y;
}

ru_status rui_zoo_mobilenet(rui_zoo *z, ru_err *err)
{
    static const struct {
        int64_t expand, out, count, stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    RU_TRY(rui_zoo_image(z, 16, 4096, err));
    RU_TRY(rui_zoo_classes(z, err));
    bool small = is_small(z);
    ru_value_id x = rui_zoo_input(z, "x", RU_F32, z->opt->input, 3);
    x = conv_bn_relu6(z, x, "features.0",
                      (rui_conv){.out = 32, .kernel = 3, .stride = small ? 1 : 2, .pad = 1});
    int64_t at = 1;
    for (uint32_t s = 0; s < RU_ARRAY_LEN(stages); s++) {
        for (int64_t k = 0; k < stages[s].count; k++) {
            int64_t stride = k > 0 || (small && s == 1) ? 1 : stages[s].stride;
            x = inverted_residual(z, x, rui_zoo_name_k(z, "features", at++), stages[s].expand,
                                  stages[s].out, stride);
        }
    }
    x = conv_bn_relu6(z, x, rui_zoo_name_k(z, "features", at),
                      (rui_conv){.out = 1280, .kernel = 1, .stride = 1});
    x = rui_zoo_dropout(z, rui_zoo_global_pool(z, x), z->opt->dropout);
    x = rui_zoo_linear(z, x, "classifier.1", z->opt->classes, true, 0.01);
    ru_build_output(&z->b, x, "logits");
    return RU_OK;
}
