/* Networks whose steps were timed on rented devices, as lists of ops by our own shape inference
 * from their published architectures.
 *
 * Source: profet (which networks were trained, in which variants). */
#include <string.h>

#include "bench/replay/cut/replay_device.h"

typedef struct map { /* height, width, channels */
    uint32_t h, w, c;
} map;

enum { SAME, VALID };

static double size_of(map x)
{
    return (double)x.h * x.w * x.c;
}

static rui_net_op *push(rui_net *n, rui_net_kind kind, double in, double out)
{
    RU_CHECK(n->n < RUI_NET_OPS_MAX);
    rui_net_op *op = &n->ops[n->n++];
    *op = (rui_net_op){.kind = kind, .in = in, .out = out, .taps = 1};
    return op;
}

static uint32_t along(uint32_t size, uint32_t k, uint32_t stride, int pad)
{
    RU_CHECK(pad == SAME || size >= k);
    return pad == SAME ? (size + stride - 1) / stride : (size - k) / stride + 1;
}

static map conv(rui_net *n, map x, uint32_t c, uint32_t kh, uint32_t kw, uint32_t stride, int pad,
                bool depthwise)
{
    map o = {along(x.h, kh, stride, pad), along(x.w, kw, stride, pad), c};
    double in = depthwise ? 1 : x.c, taps = (double)kh * kw;
    bool first = n->n == 0;
    rui_net_op *op = push(n, depthwise ? RUI_NET_DEPTHWISE : RUI_NET_CONV, size_of(x), size_of(o));
    op->params = taps * in * c;
    op->flops = 2 * op->out * in * taps;
    op->channels_in = in;
    op->channels_out = depthwise ? 1 : c;
    op->taps = taps;
    op->first = first;
    return o;
}

static map each(rui_net *n, rui_net_kind kind, map x)
{
    rui_net_op *op = push(n, kind, size_of(x), size_of(x));
    op->params = kind == RUI_NET_NORM ? 4.0 * x.c : kind == RUI_NET_BIAS ? x.c : 0;
    return x;
}

static map relu(rui_net *n, map x)
{
    return each(n, RUI_NET_RELU, x);
}

static map norm(rui_net *n, map x)
{
    return each(n, RUI_NET_NORM, x);
}

/* Convolution with bias; an activation that follows at once is computed with both. */
static map conv_bias(rui_net *n, map x, uint32_t c, uint32_t k, uint32_t stride, int pad, bool act)
{
    map o = each(n, RUI_NET_BIAS, conv(n, x, c, k, k, stride, pad, false));
    n->ops[n->n - 1].fused = act;
    if (act) {
        relu(n, o);
        n->ops[n->n - 1].fused = true;
    }
    return o;
}

/* Convolution without bias, normalisation, activation. */
static map cbr(rui_net *n, map x, uint32_t c, uint32_t kh, uint32_t kw, uint32_t stride, int pad)
{
    return relu(n, norm(n, conv(n, x, c, kh, kw, stride, pad, false)));
}

static map unit(rui_net *n, map x, uint32_t c, uint32_t k)
{
    return cbr(n, x, c, k, k, 1, SAME);
}

static map down(rui_net *n, map x, uint32_t c)
{
    return cbr(n, x, c, 3, 3, 2, VALID);
}

static map pool(rui_net *n, map x, uint32_t k, uint32_t stride, int pad, bool mean)
{
    map o = {along(x.h, k, stride, pad), along(x.w, k, stride, pad), x.c};
    rui_net_op *op = push(n, mean ? RUI_NET_MEAN_POOL : RUI_NET_MAX_POOL, size_of(x), size_of(o));
    op->flops = op->out * k * k;
    return o;
}

static map concat(rui_net *n, map a, uint32_t more)
{
    map o = {a.h, a.w, a.c + more};
    push(n, RUI_NET_CONCAT, size_of(o), size_of(o));
    return o;
}

static void add(rui_net *n, map x)
{
    push(n, RUI_NET_ADD, 2 * size_of(x), size_of(x));
}

static map dense(rui_net *n, map x, uint32_t units, bool act)
{
    rui_net_op *op = push(n, RUI_NET_DENSE, size_of(x), units);
    op->params = op->in * units;
    op->flops = 2 * op->params;
    map o = each(n, RUI_NET_BIAS, (map){1, 1, units});
    return act ? relu(n, o) : o;
}

static void head(rui_net *n, map x)
{
    push(n, RUI_NET_MEAN, size_of(x), x.c);
    dense(n, (map){1, 1, x.c}, n->classes, false);
}

static void vgg(rui_net *n, map x, const uint32_t *repeat)
{
    static const uint32_t width[] = {64, 128, 256, 512, 512};
    for (uint32_t b = 0; b < 5; b++) {
        for (uint32_t k = 0; k < repeat[b]; k++) {
            x = conv_bias(n, x, width[b], 3, 1, SAME, true);
        }
        x = pool(n, x, 2, 2, VALID, false);
    }
    dense(n, dense(n, dense(n, x, 4096, true), 4096, true), n->classes, false);
}

static void resnet(rui_net *n, map x, const uint32_t *repeat, bool wide)
{
    uint32_t c = 64;
    x = pool(n, relu(n, norm(n, conv_bias(n, x, 64, 7, 2, SAME, false))), 3, 2, SAME, false);
    for (uint32_t b = 0; b < 4; b++, c *= 2) {
        for (uint32_t k = 0; k < repeat[b]; k++) {
            uint32_t stride = k == 0 && b > 0 ? 2 : 1;
            map y = b == 0 && k == 0 ? x : relu(n, norm(n, x));
            y = conv_bias(n, y, c, wide ? 1 : 3, stride, SAME, false);
            y = conv_bias(n, relu(n, norm(n, y)), c, 3, 1, SAME, false);
            if (wide) {
                y = conv_bias(n, relu(n, norm(n, y)), 4 * c, 1, 1, SAME, false);
            }
            if (y.h != x.h || y.c != x.c) {
                conv_bias(n, x, y.c, 1, y.h != x.h ? (x.h + y.h - 1) / y.h : 1, SAME, false);
            }
            add(n, y);
            x = y;
        }
    }
    x = relu(n, norm(n, x));
    dense(n, pool(n, x, x.h, 1, VALID, true), n->classes, false);
}

/* Blocks of 1x1 convolutions alone. */
static void resnet_small(rui_net *n, map x)
{
    static const uint32_t width[] = {64, 64, 128, 128};
    x = pool(n, norm(n, conv_bias(n, x, 64, 7, 2, SAME, true)), 3, 2, SAME, false);
    for (uint32_t b = 0; b < 4; b++) {
        uint32_t stride = b % 2 == 0 ? 2 : 1;
        if (stride == 2) {
            norm(n, conv_bias(n, x, width[b], 1, 2, SAME, false));
        }
        x = relu(n, norm(n, conv_bias(n, x, width[b], 1, stride, SAME, false)));
        x = norm(n, conv_bias(n, x, width[b], 1, 1, SAME, false));
        add(n, x);
        relu(n, x);
    }
    head(n, x);
}

static void small(rui_net *n, map x, const char *name)
{
    bool cifar = strcmp(name, "CIFAR10_CNN") == 0, lenet = strcmp(name, "LeNet5") == 0;
    for (uint32_t b = 0; b < 2; b++) {
        uint32_t c = lenet ? (b == 0 ? 6 : 16) : b == 0 ? 32 : 64;
        if (cifar) {
            x = conv_bias(n, x, c, 3, 1, SAME, true);
        }
        x = pool(n, conv_bias(n, x, c, lenet ? 5 : 3, 1, VALID, true), 2, 2, VALID, false);
        if (cifar) {
            each(n, RUI_NET_DROPOUT, x);
        }
    }
    if (lenet) {
        x = dense(n, dense(n, x, 120, true), 84, true);
    } else if (cifar) {
        x = each(n, RUI_NET_DROPOUT, dense(n, x, 512, true));
    } else {
        each(n, RUI_NET_DROPOUT, x);
    }
    dense(n, x, n->classes, false);
}

/* A variant of AlexNet with normalisation and more channels. */
static void alexnet(rui_net *n, map x)
{
    static const uint32_t width[] = {96, 256, 512, 1024, 1024}, kernel[] = {11, 5, 3, 3, 3};
    for (uint32_t b = 0; b < 5; b++) {
        if (b >= 2) {
            map o = {x.h + 2, x.w + 2, x.c};
            push(n, RUI_NET_PAD, size_of(x), size_of(o));
            x = o;
        }
        x = relu(n, norm(n, conv_bias(n, x, width[b], kernel[b], 1, SAME, false)));
        x = b == 3 ? x : pool(n, x, 2, 2, VALID, false);
    }
    for (uint32_t b = 0; b < 2; b++) {
        x = relu(n, norm(n, dense(n, x, b == 0 ? 3072 : 4096, false)));
        each(n, RUI_NET_DROPOUT, x);
    }
    norm(n, dense(n, x, n->classes, false));
}

static map stem(rui_net *n, map x)
{
    x = unit(n, cbr(n, down(n, x, 32), 32, 3, 3, 1, VALID), 64, 3);
    x = pool(n, x, 3, 2, VALID, false);
    x = cbr(n, cbr(n, x, 80, 1, 1, 1, VALID), 192, 3, 3, 1, VALID);
    return pool(n, x, 3, 2, VALID, false);
}

static map three(rui_net *n, map x, uint32_t a, uint32_t b, uint32_t c)
{
    return unit(n, unit(n, unit(n, x, a, 1), b, 3), c, 3);
}

static map mean_unit(rui_net *n, map x, uint32_t c)
{
    return unit(n, pool(n, x, 3, 1, SAME, true), c, 1);
}

static map inception_block(rui_net *n, map x, uint32_t first, uint32_t pooled)
{
    map a = unit(n, x, first, 1);
    unit(n, unit(n, x, 48, 1), 64, 5);
    three(n, x, 64, 96, 96);
    mean_unit(n, x, pooled);
    return concat(n, a, 64 + 96 + pooled);
}

static map reduce_block(rui_net *n, map x)
{
    map a = down(n, x, 384);
    down(n, unit(n, unit(n, x, 64, 1), 96, 3), 96);
    pool(n, x, 3, 2, VALID, false);
    return concat(n, a, 96 + x.c);
}

static map sevens(rui_net *n, map x, uint32_t c)
{
    map a = unit(n, x, 192, 1), b = unit(n, x, c, 1);
    cbr(n, cbr(n, b, c, 1, 7, 1, SAME), 192, 7, 1, 1, SAME);
    b = cbr(n, cbr(n, unit(n, x, c, 1), c, 7, 1, 1, SAME), c, 1, 7, 1, SAME);
    cbr(n, cbr(n, b, c, 7, 1, 1, SAME), 192, 1, 7, 1, SAME);
    mean_unit(n, x, 192);
    return concat(n, a, 3 * 192);
}

static void split_threes(rui_net *n, map x)
{
    map a = cbr(n, x, 384, 1, 3, 1, SAME);
    cbr(n, x, 384, 3, 1, 1, SAME);
    concat(n, a, 384);
}

static void inception(rui_net *n, map x)
{
    x = inception_block(n, stem(n, x), 64, 32);
    x = inception_block(n, inception_block(n, x, 64, 64), 64, 64);
    x = sevens(n, reduce_block(n, x), 128);
    x = sevens(n, sevens(n, sevens(n, x, 160), 160), 192);
    map a = down(n, unit(n, x, 192, 1), 320), b = unit(n, x, 192, 1);
    down(n, cbr(n, cbr(n, b, 192, 1, 7, 1, SAME), 192, 7, 1, 1, SAME), 192);
    pool(n, x, 3, 2, VALID, false);
    x = concat(n, a, 192 + x.c);
    for (uint32_t k = 0; k < 2; k++) {
        a = unit(n, x, 320, 1);
        split_threes(n, unit(n, x, 384, 1));
        split_threes(n, unit(n, unit(n, x, 448, 1), 384, 3));
        mean_unit(n, x, 192);
        x = concat(n, a, 768 + 768 + 192);
    }
    head(n, x);
}

static void join(rui_net *n, map x, map mixed, bool act)
{
    conv_bias(n, mixed, x.c, 1, 1, SAME, false);
    add(n, x);
    if (act) {
        relu(n, x);
    }
}

static void inception_resnet(rui_net *n, map x)
{
    x = inception_block(n, stem(n, x), 96, 64);
    for (uint32_t k = 0; k < 10; k++) {
        map a = unit(n, x, 32, 1);
        unit(n, unit(n, x, 32, 1), 32, 3);
        three(n, x, 32, 48, 64);
        join(n, x, concat(n, a, 32 + 64), true);
    }
    map a = down(n, x, 384);
    down(n, unit(n, unit(n, x, 256, 1), 256, 3), 384);
    pool(n, x, 3, 2, VALID, false);
    x = concat(n, a, 384 + x.c);
    for (uint32_t k = 0; k < 20; k++) {
        a = unit(n, x, 192, 1);
        cbr(n, cbr(n, unit(n, x, 128, 1), 160, 1, 7, 1, SAME), 192, 7, 1, 1, SAME);
        join(n, x, concat(n, a, 192), true);
    }
    a = down(n, unit(n, x, 256, 1), 384);
    down(n, unit(n, x, 256, 1), 288);
    down(n, unit(n, unit(n, x, 256, 1), 288, 3), 320);
    pool(n, x, 3, 2, VALID, false);
    x = concat(n, a, 288 + 320 + x.c);
    for (uint32_t k = 0; k < 10; k++) {
        a = unit(n, x, 192, 1);
        cbr(n, cbr(n, unit(n, x, 192, 1), 224, 1, 3, 1, SAME), 256, 3, 1, 1, SAME);
        join(n, x, concat(n, a, 256), k < 9);
    }
    head(n, unit(n, x, 1536, 1));
}

static void mobilenet(rui_net *n, map x)
{
    static const uint32_t grow[] = {1, 6, 6, 6, 6, 6, 6}, width[] = {16, 24, 32, 64, 96, 160, 320};
    static const uint32_t repeat[] = {1, 2, 3, 4, 3, 3, 1}, stride[] = {1, 2, 2, 2, 1, 2, 1};
    x = cbr(n, x, 32, 3, 3, 2, SAME);
    for (uint32_t b = 0; b < 7; b++) {
        for (uint32_t k = 0; k < repeat[b]; k++) {
            map y = grow[b] > 1 ? unit(n, x, grow[b] * x.c, 1) : x;
            y = relu(n, norm(n, conv(n, y, y.c, 3, 3, k == 0 ? stride[b] : 1, SAME, true)));
            y = norm(n, conv(n, y, width[b], 1, 1, 1, SAME, false));
            if (y.h == x.h && y.c == x.c) {
                add(n, y);
            }
            x = y;
        }
    }
    head(n, unit(n, x, 1280, 1));
}

bool rui_net_make(const char *name, uint32_t side, uint32_t classes, rui_net *net)
{
    static const uint32_t r18[] = {2, 2, 2, 2}, r34[] = {3, 4, 6, 3};
    static const struct {
        const char *name;
        uint32_t repeat[5];
    } vggs[] = {{"VGG11", {1, 1, 2, 2, 2}},
                {"VGG13", {2, 2, 2, 2, 2}},
                {"VGG16", {2, 2, 3, 3, 3}},
                {"VGG19", {2, 2, 4, 4, 4}}};
    const map x = {side, side, 3};
    net->n = 0;
    net->side = side;
    net->classes = classes;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(vggs); k++) {
        if (strcmp(name, vggs[k].name) == 0) {
            vgg(net, x, vggs[k].repeat);
        }
    }
    if (strcmp(name, "ResNet18") == 0) {
        resnet(net, x, r18, false);
    } else if (strcmp(name, "ResNet34") == 0 || strcmp(name, "ResNet50") == 0) {
        resnet(net, x, r34, name[6] == '5');
    } else if (strcmp(name, "ResNetSmall") == 0) {
        resnet_small(net, x);
    } else if (strcmp(name, "AlexNet") == 0) {
        alexnet(net, x);
    } else if (strcmp(name, "InceptionV3") == 0) {
        inception(net, x);
    } else if (strcmp(name, "InceptionResNetV2") == 0) {
        inception_resnet(net, x);
    } else if (strcmp(name, "MobileNetV2") == 0) {
        mobilenet(net, x);
    } else if (strcmp(name, "LeNet5") == 0 || strcmp(name, "MNIST_CNN") == 0 ||
               strcmp(name, "CIFAR10_CNN") == 0) {
        small(net, x, name);
    }
    return net->n > 0;
}
