/* Models with branches, for placed steps: a stem with branches of given widths, and two
 * towers that meet at the end, or more of them, of dense layers. Names are those of modules, so
 * that a job can place them. */
#include <math.h>
#include <stddef.h>

#include "bench/train/placed.h"
#include "store/onnx_file.h"
#include "world/graph/build.h"

enum { CLASSES = 10, SIDE = 16 /* behind a stem */, DENSE = 256, DENSE_END = 64 };

static const char *const names[RUI_PLACED_BRANCHES_MAX] = {"a", "b", "c", "d", "e", "f", "g", "h"};

typedef struct writer {
    ru_build b;
    ru_arena *a;
    const rui_placed_net_shape *shape;
    uint32_t batch;  /* index of symbol "N" */
    uint64_t random; /* of start values */
} writer;

/* Even in -1 .. 1. */
static float draw(writer *w)
{
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(w->random >> 11) / (double)(UINT64_C(1) << 52) - 1);
}

static ru_value_id param(writer *w, const char *module, const char *name, const int64_t *dims,
                         uint32_t rank, int64_t fan_in)
{
    ru_type t = ru_type_make(RU_F32, rank, dims);
    int64_t n = ru_type_count(&t);
    float *data = RU_NEW(w->a, float, n), most = sqrtf(6.0F / (float)fan_in);
    const char *full = ru_arena_printf(w->a, "%s.%s", module, name);
    if (data == NULL || full == NULL) {
        w->b.status = RU_FAIL(&w->b.err, RU_E_MEM, "no memory for %s.%s", module, name);
        return (ru_value_id){0};
    }
    for (int64_t k = 0; k < n; k++) {
        data[k] = most * draw(w);
    }
    return ru_build_param(&w->b, full, t, data);
}

static int64_t dim(const writer *w, ru_value_id v, uint32_t d)
{
    return v.v != 0 ? ru_graph_value(w->b.g, v)->type.dims[d] : 1;
}

/* Convolution and Relu; the image keeps its side, or gets `stride` times smaller. */
static ru_value_id conv(writer *w, ru_value_id x, const char *module, int64_t out, int64_t kernel,
                        int64_t stride)
{
    int64_t in = dim(w, x, 1), dims[] = {out, in, kernel, kernel}, half = kernel / 2;
    ru_value_id args[] = {x, param(w, module, "weight", dims, 4, in * kernel * kernel)}, y = {0};
    ru_build_node(&w->b, RU_OP_Conv, args, 2,
                  (ru_attr[]){RU_AIS(kernel_shape, ((int64_t[]){kernel, kernel}), 2),
                              RU_AIS(strides, ((int64_t[]){stride, stride}), 2),
                              RU_AIS(pads, ((int64_t[]){half, half, half, half}), 4),
                              RU_AI(group, 1), RU_A_END},
                  &y, 1);
    return ru_build_op1(&w->b, RU_OP_Relu, y, NULL);
}

/* Each 4 x 4 numbers become one. */
static ru_value_id pool(writer *w, ru_value_id x)
{
    return ru_build_op1(&w->b, RU_OP_MaxPool, x,
                        (ru_attr[]){RU_AIS(kernel_shape, ((int64_t[]){4, 4}), 2),
                                    RU_AIS(strides, ((int64_t[]){4, 4}), 2), RU_A_END});
}

static ru_value_id linear(writer *w, ru_value_id x, const char *module, int64_t out)
{
    ru_value_id flat = ru_build_op1(&w->b, RU_OP_Flatten, x, (ru_attr[]){RU_AI(axis, 1), RU_A_END});
    int64_t in = dim(w, flat, 1), dims[] = {in, out};
    return ru_build_op2(&w->b, RU_OP_MatMul, flat, param(w, module, "weight", dims, 2, in), NULL);
}

static ru_value_id join(writer *w, const ru_value_id *xs, uint32_t n)
{
    ru_value_id y = {0};
    ru_build_node(&w->b, RU_OP_Concat, xs, n, (ru_attr[]){RU_AI(axis, 1), RU_A_END}, &y, 1);
    return y;
}

static int64_t or_else(int64_t x, int64_t other)
{
    return x > 0 ? x : other;
}

static ru_value_id stem(writer *w, ru_value_id x, const char *module)
{
    return conv(w, x, module, or_else(w->shape->stem, 32), 5, dim(w, x, 2) / SIDE);
}

/* Convolutions and a pool: a.conv1, a.conv2, a.conv3. */
static ru_value_id branch(writer *w, ru_value_id x, const char *module, int64_t width)
{
    uint32_t depth = w->shape->depth > 0 ? w->shape->depth : 3;
    for (uint32_t k = 1; k <= depth; k++) {
        const char *name = ru_arena_printf(w->a, "%s.conv%u", module, k);
        x = conv(w, x, name != NULL ? name : "", width, or_else(w->shape->kernel, 3), 1);
    }
    return pool(w, x);
}

static void build_branches(writer *w, ru_value_id x)
{
    ru_value_id ends[RUI_PLACED_BRANCHES_MAX];
    const rui_placed_net_shape *s = w->shape;
    RU_CHECK(s->n <= RUI_PLACED_BRANCHES_MAX);
    x = stem(w, x, "stem");
    for (uint32_t k = 0; k < s->n; k++) {
        ends[k] = branch(w, x, names[k], s->widths[k]);
    }
    x = linear(w, join(w, ends, s->n), "head", CLASSES);
    ru_build_output(&w->b, x, "logits");
}

/* a.fc; of several a.fc, a.fc2, a.fc3. */
static ru_value_id end(writer *w, ru_value_id x, const char *tower)
{
    uint32_t layers = w->shape->layers > 0 ? w->shape->layers : 1;
    for (uint32_t k = 1; k <= layers; k++) {
        const char *name = k > 1 ? ru_arena_printf(w->a, "%s.fc%u", tower, k)
                                 : ru_arena_printf(w->a, "%s.fc", tower);
        x = linear(w, x, name != NULL ? name : "", or_else(w->shape->hidden, 128));
        x = ru_build_op1(&w->b, RU_OP_Relu, x, NULL);
    }
    return x;
}

/* Three fifths of the work are those of the first tower, unless both have as many channels. */
static void build_towers(writer *w, ru_value_id x)
{
    static const int64_t widths[] = {256, 208};
    ru_value_id both[2];
    for (uint32_t k = 0; k < 2; k++) {
        const char *name = ru_arena_printf(w->a, "%s.stem", names[k]);
        ru_value_id y = stem(w, x, name != NULL ? name : "");
        y = branch(w, y, names[k], or_else(w->shape->tower, widths[k]));
        both[k] = end(w, y, names[k]);
    }
    x = linear(w, join(w, both, 2), "head", CLASSES);
    ru_build_output(&w->b, x, "logits");
}

/* Many weights, little computing: a.fc1, a.fc2, a.fc3. */
static void build_dense(writer *w, ru_value_id x, uint32_t n)
{
    static const int64_t out[] = {DENSE, DENSE, DENSE_END};
    ru_value_id ends[RUI_PLACED_BRANCHES_MAX];
    RU_CHECK(n <= RUI_PLACED_BRANCHES_MAX);
    for (uint32_t k = 0; k < n; k++) {
        ru_value_id y = x;
        for (uint32_t i = 0; i < RU_ARRAY_LEN(out); i++) {
            const char *name = ru_arena_printf(w->a, "%s.fc%u", names[k], i + 1);
            y = linear(w, y, name != NULL ? name : "", out[i]);
            y = ru_build_op1(&w->b, RU_OP_Relu, y, NULL);
        }
        ends[k] = y;
    }
    x = linear(w, join(w, ends, n), "head", CLASSES);
    ru_build_output(&w->b, x, "logits");
}

static ru_status begin(writer *w, ru_graph *g, const char *name, ru_value_id *x, ru_err *err)
{
    int64_t side = or_else(w->shape->side, 32), dims[] = {0, 3, side, side};
    RU_CHECK(side >= SIDE && side % SIDE == 0);
    RU_TRY(ru_graph_init(g, w->a, name, err));
    RU_TRY(ru_graph_symbol(g, "N", &w->batch, err));
    dims[0] = ru_dim_symbol(w->batch, 1);
    ru_build_init(&w->b, g);
    *x = ru_build_input(&w->b, "x", ru_type_make(RU_F32, 4, dims));
    return RU_OK;
}

static ru_status finish(writer *w, const char *path, ru_err *err)
{
    const ru_onnx_write_options opt = {.external = true}; /* read from where they are */
    RU_TRY(ru_build_finish(&w->b, err));
    return ru_onnx_file_save(path, w->b.g, &opt, NULL, err);
}

ru_status rui_placed_net(const rui_placed_net_shape *shape, const char *path, ru_arena *arena,
                         ru_err *err)
{
    ru_graph g;
    writer w = {.a = arena, .shape = shape, .random = 1};
    ru_value_id x;
    RU_TRY(begin(&w, &g, shape->n == 0 ? "towers" : "branches", &x, err));
    if (shape->n == 0) {
        build_towers(&w, x);
    } else {
        build_branches(&w, x);
    }
    return finish(&w, path, err);
}

ru_status rui_placed_towers(uint32_t n, const char *path, ru_arena *arena, ru_err *err)
{
    static const rui_placed_net_shape any = {0};
    ru_graph g;
    writer w = {.a = arena, .shape = &any, .random = 1};
    ru_value_id x;
    RU_TRY(begin(&w, &g, "towers", &x, err));
    build_dense(&w, x, n);
    return finish(&w, path, err);
}
