/* Models with branches, for placed steps: a stem with branches of given widths, and two
 * towers that meet at the end, or more of them, of dense layers. Names are those of modules, so
 * that a job can place them. */
#include <math.h>
#include <stddef.h>

#include "bench/train/placed.h"
#include "store/onnx_file.h"
#include "world/graph/build.h"

enum { CLASSES = 10, SIDE = 32, DENSE = 256, DENSE_END = 64 };

static const char *const names[RUI_PLACED_BRANCHES_MAX] = {"a", "b", "c", "d", "e", "f", "g", "h"};

typedef struct writer {
    ru_build b;
    ru_arena *a;
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

/* Three convolutions and a pool: a.conv1, a.conv2, a.conv3. */
static ru_value_id branch(writer *w, ru_value_id x, const char *module, int64_t width)
{
    for (uint32_t k = 1; k <= 3; k++) {
        const char *name = ru_arena_printf(w->a, "%s.conv%u", module, k);
        x = conv(w, x, name != NULL ? name : "", width, 3, 1);
    }
    return pool(w, x);
}

static void build_branches(writer *w, ru_value_id x, const int64_t *widths, uint32_t n)
{
    ru_value_id ends[RUI_PLACED_BRANCHES_MAX];
    RU_CHECK(n <= RUI_PLACED_BRANCHES_MAX);
    x = conv(w, x, "stem", 32, 5, 2);
    for (uint32_t k = 0; k < n; k++) {
        ends[k] = branch(w, x, names[k], widths[k]);
    }
    x = linear(w, join(w, ends, n), "head", CLASSES);
    ru_build_output(&w->b, x, "logits");
}

/* Three fifths of the work are those of the first tower. */
static void build_towers(writer *w, ru_value_id x)
{
    static const int64_t widths[] = {256, 208};
    ru_value_id ends[2];
    for (uint32_t k = 0; k < 2; k++) {
        const char *stem = ru_arena_printf(w->a, "%s.stem", names[k]);
        const char *end = ru_arena_printf(w->a, "%s.fc", names[k]);
        ru_value_id y = conv(w, x, stem != NULL ? stem : "", 32, 5, 2);
        y = linear(w, branch(w, y, names[k], widths[k]), end != NULL ? end : "", 128);
        ends[k] = ru_build_op1(&w->b, RU_OP_Relu, y, NULL);
    }
    x = linear(w, join(w, ends, 2), "head", CLASSES);
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

static ru_status begin(writer *w, ru_graph *g, const char *name, ru_arena *arena, ru_value_id *x,
                       ru_err *err)
{
    int64_t dims[] = {0, 3, SIDE, SIDE};
    *w = (writer){.a = arena, .random = 1};
    RU_TRY(ru_graph_init(g, arena, name, err));
    RU_TRY(ru_graph_symbol(g, "N", &w->batch, err));
    dims[0] = ru_dim_symbol(w->batch, 1);
    ru_build_init(&w->b, g);
    *x = ru_build_input(&w->b, "x", ru_type_make(RU_F32, 4, dims));
    return RU_OK;
}

static ru_status end(writer *w, const char *path, ru_err *err)
{
    const ru_onnx_write_options opt = {0};
    RU_TRY(ru_build_finish(&w->b, err));
    return ru_onnx_file_save(path, w->b.g, &opt, NULL, err);
}

ru_status rui_placed_net(const int64_t *widths, uint32_t n, const char *path, ru_arena *arena,
                         ru_err *err)
{
    ru_graph g;
    writer w;
    ru_value_id x;
    RU_TRY(begin(&w, &g, n == 0 ? "towers" : "branches", arena, &x, err));
    if (n == 0) {
        build_towers(&w, x);
    } else {
        build_branches(&w, x, widths, n);
    }
    return end(&w, path, err);
}

ru_status rui_placed_towers(uint32_t n, const char *path, ru_arena *arena, ru_err *err)
{
    ru_graph g;
    writer w;
    ru_value_id x;
    RU_TRY(begin(&w, &g, "towers", arena, &x, err));
    build_dense(&w, x, n);
    return end(&w, path, err);
}
