/* Ops that few networks have: diagonals in Einsum, columns that become images, samples of images.
 */
#include "test/ops/slow_net.h"
#include "world/pass/pass.h"

/* -- Einsum ---------------------------------------------------------------------------------------
 */

/* The sum over all labels that the result lacks, label by label. */
static void einsum_by_hand(const char *equation, const int64_t *size, const float *const *in,
                           double *out)
{
    int64_t at[26] = {0};
    for (bool more = true; more;) {
        double product = 1;
        int64_t place = 0;
        uint32_t term = 0;
        for (const char *p = equation;; p++) {
            if (*p >= 'a' && *p <= 'z') {
                place = place * size[*p - 'a'] + at[*p - 'a'];
                continue;
            }
            if (*p == '\0') {
                break;
            }
            product *= *p == '>' ? 1.0 : (double)in[term++][place];
            place = 0;
        }
        out[place] += product;
        more = false;
        for (uint32_t l = 0; l < 26 && !more; l++) {
            more = size[l] > 0 && ++at[l] < size[l];
            at[l] = more ? at[l] : 0;
        }
    }
}

static ru_type term_type(const char *p, const int64_t *size)
{
    ru_type t = {.dtype = RU_F32};
    for (; *p >= 'a' && *p <= 'z'; p++) {
        t.dims[t.rank++] = size[*p - 'a'];
    }
    return t;
}

static void einsum_case(const char *equation)
{
    net t;
    ru_graph fast;
    ru_value_id in[2];
    int64_t size[26] = {0};
    uint32_t n = 0;
    net_init(&t);
    for (const char *p = equation; *p != '\0'; p++) {
        if (*p >= 'a' && *p <= 'z') {
            size[*p - 'a'] = 3 + (*p - 'a') % 4;
        }
    }
    for (const char *p = equation; p != NULL && *p != '>'; p = strpbrk(p, ",-") + 1) {
        in[n] = input(&t, n == 0 ? "a" : "b", term_type(p, size));
        n++;
    }
    ru_value_id y;
    ru_build_node(&t.b, RU_OP_Einsum, in, n, (ru_attr[]){RU_AS(equation, equation), RU_A_END}, &y,
                  1);
    ru_build_output(&t.b, y, "y");
    assert_ok(ru_build_finish(&t.b, &t.err), t.err);
    assert_ok(ru_pass_fuse(&t.g, NULL, true, &t.arena, &fast, &t.err), t.err);
    for (uint32_t i = 1; i < fast.n_nodes; i++) {
        assert_true(fast.nodes[i].op != RU_OP_Einsum);
    }
    t.g = fast;
    ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
    const float *from[2] = {0}, *got = ru_exe_output(e, t.g.outputs[0]);
    double want[4096] = {0};
    for (uint32_t k = 0; k < n; k++) {
        from[k] = ru_exe_input(e, in[k]);
    }
    einsum_by_hand(equation, size, from, want);
    for (int64_t i = 0; i < ru_type_count(&t.g.values[t.g.outputs[0].v].type); i++) {
        if (!(fabs(want[i] - (double)got[i]) < 1e-5)) {
            fail_msg("%s: element %lld is %g, must be %g", equation, (long long)i, (double)got[i],
                     want[i]);
        }
    }
    ru_exe_close(e);
    ru_arena_fini(&t.arena);
}

static void diagonals_in_einsum(void **state)
{
    (void)state;
    static const char *const equations[] = {
        "ii->i",       "ii->",        "bii->bi",   "iib->ib",  "ibi->bi",
        "iii->i",      "ijij->ji",    "biijj->bj", "ii,ij->j", "bii,cii->bc",
        "iji,jkk->ik", "aab,bcc->ac", "iib->b",    "ijji->",   "ajaja->ja",
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(equations); k++) {
        einsum_case(equations[k]);
    }
}

/* -- columns to images ---------------------------------------------------------------------------
 */

typedef struct fold_case {
    uint32_t axes;
    int64_t image[3], block[3], strides[3], dilations[3], pads[6];
} fold_case;

static const fold_case fold_cases[] = {
    {2, {30, 31}, {3, 3}, {1, 1}, {1, 1}, {0}},
    {2, {17, 34}, {4, 4}, {2, 2}, {1, 1}, {0}},
    {2, {9, 8}, {3, 2}, {1, 3}, {2, 2}, {2, 1, 0, 3}},
    {2, {5, 7}, {5, 7}, {2, 5}, {1, 1}, {0}},
    {2, {12, 9}, {2, 1}, {3, 4}, {1, 1}, {0, 2, 1, 1}},
    {1, {40}, {5}, {3}, {2}, {4, 1}},
    {3, {5, 6, 7}, {2, 3, 3}, {1, 2, 2}, {2, 1, 1}, {0, 1, 1, 1, 0, 2}},
};

static void columns_become_images(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(fold_cases); k++) {
        const fold_case *c = &fold_cases[k];
        int64_t taps = 1, windows = 1;
        for (uint32_t d = 0; d < c->axes; d++) {
            int64_t reach = (c->block[d] - 1) * c->dilations[d] + 1;
            int64_t room = c->image[d] + c->pads[d] + c->pads[c->axes + d] - reach;
            taps *= c->block[d];
            windows *= room / c->strides[d] + 1;
        }
        net t;
        net_init(&t);
        ru_type x = T(F32, 2, 3 * taps, windows);
        ru_value_id in[3] = {k % 2 == 0 ? input(&t, "x", x) : param(&t, x, 1.0f),
                             ru_build_const_i64s(&t.b, c->image, c->axes),
                             ru_build_const_i64s(&t.b, c->block, c->axes)};
        ru_value_id y = ru_build_op3(&t.b, RU_OP_Col2Im, in[0], in[1], in[2],
                                     (ru_attr[]){RU_AIS(strides, c->strides, c->axes),
                                                 RU_AIS(dilations, c->dilations, c->axes),
                                                 RU_AIS(pads, c->pads, 2 * c->axes), RU_A_END});
        ru_build_output(&t.b, y, "y");
        char name[32];
        snprintf(name, sizeof name, "fold %u", k);
        fast_and_right(&t, 1e-6, name);
    }
}

/* Two windows of one element, 2^24 apart: a line as long as the pads would be 64 MiB for 40 bytes.
 */
static void columns_far_apart(void **state)
{
    (void)state;
    const int64_t image[] = {5, 5}, block[] = {1, 1}, far = 1 << 24;
    net t;
    net_init(&t);
    ru_value_id y =
        ru_build_op3(&t.b, RU_OP_Col2Im, input(&t, "x", T(F32, 1, 1, 10)),
                     ru_build_const_i64s(&t.b, image, 2), ru_build_const_i64s(&t.b, block, 2),
                     (ru_attr[]){RU_AIS(strides, ((int64_t[]){1, far}), 2),
                                 RU_AIS(pads, ((int64_t[]){0, far - 1, 0, 0}), 4), RU_A_END});
    ru_build_output(&t.b, y, "y");
    assert_ok(ru_build_finish(&t.b, &t.err), t.err);
    ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
    const float *got = ru_exe_output(e, y), *x = ru_exe_input(e, t.g.inputs[0]);
    for (int64_t i = 0; i < 25; i++) { /* window 1 of a row begins at element 1 */
        assert_true(got[i] == (i % 5 == 1 ? x[i / 5 * 2 + 1] : 0.0f));
    }
    ru_exe_stats s;
    ru_exe_stats_get(e, &s);
    assert_true(s.arena_bytes + s.scratch_bytes < 1 << 20);
    ru_exe_close(e);
    ru_arena_fini(&t.arena);
}

/* -- samples -------------------------------------------------------------------------------------
 */

/* The grid reaches 2.6 beyond the image on each side. */
static ru_value_id grid_of(net *t, uint32_t axes, int64_t places)
{
    ru_value_id g = axes == 1   ? input(t, "g", T(F32, 2, places, 1))
                    : axes == 2 ? input(t, "g", T(F32, 2, places / 7, 7, 2))
                                : input(t, "g", T(F32, 2, 7, places / 7, 1, 3));
    static float scale = 3.6f;
    return ru_build_op2(&t->b, RU_OP_Mul, g, ru_build_const(&t->b, T(F32, 1), &scale), NULL);
}

static void samples_of_images(void **state)
{
    (void)state;
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const pads[] = {"zeros", "border", "reflection"};
    for (uint32_t k = 0; k < 3 * 3 * 3 * 2 * 2; k++) {
        uint32_t axes = k % 3 + 1, mode = k / 3 % 3, pad = k / 9 % 3, align = k / 27 % 2;
        bool small = k / 54 == 1; /* images of one element along an axis */
        net t;
        net_init(&t);
        ru_value_id x = axes == 1   ? input(&t, "x", T(F32, 2, 3, small ? 1 : 19))
                        : axes == 2 ? input(&t, "x", T(F32, 2, 3, small ? 1 : 9, 13))
                                    : input(&t, "x", T(F32, 2, 3, 4, small ? 1 : 5, 6));
        ru_value_id y =
            ru_build_op2(&t.b, RU_OP_GridSample, x, grid_of(&t, axes, k % 2 == 0 ? 133 : 259),
                         (ru_attr[]){RU_AS(mode, modes[mode]), RU_AS(padding_mode, pads[pad]),
                                     RU_AI(align_corners, align), RU_A_END});
        ru_build_output(&t.b, y, "y");
        char name[64];
        snprintf(name, sizeof name, "%s, %s, %u axes%s", modes[mode], pads[pad], axes,
                 small ? ", small" : "");
        fast_and_right(&t, 3e-6, name);
    }
}

/* What is no place gives NaN, far away is outside. */
static void samples_nowhere(void **state)
{
    (void)state;
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const pads[] = {"zeros", "border", "reflection"};
    static const float grid[] = {NAN, INFINITY, -INFINITY, 1e30f, -3e4f};
    for (uint32_t k = 0; k < 9; k++) {
        net t;
        net_init(&t);
        ru_value_id y = ru_build_op2(
            &t.b, RU_OP_GridSample, input(&t, "x", T(F32, 1, 1, 6)),
            ru_build_const(&t.b, T(F32, 1, 5, 1), grid),
            (ru_attr[]){RU_AS(mode, modes[k % 3]), RU_AS(padding_mode, pads[k / 3]), RU_A_END});
        ru_build_output(&t.b, y, "y");
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
        const float *got = ru_exe_output(e, y), *x = ru_exe_input(e, t.g.inputs[0]);
        assert_true(isnan(got[0]) && isnan(got[1]) && isnan(got[2]));
        if (k / 3 < 2) {
            assert_true(fabsf(got[3] - (k / 3 == 0 ? 0.0f : x[5])) < 1e-6f);
            assert_true(fabsf(got[4] - (k / 3 == 0 ? 0.0f : x[0])) < 1e-6f);
        }
        ru_exe_close(e);
        ru_arena_fini(&t.arena);
    }
}

/* -- Fourier -------------------------------------------------------------------------------------
 * Lines alone and side by side, along the last axis and others, padded, in all five forms. */

typedef struct fourier_case {
    int64_t outer, dim, inner, length;
} fourier_case;

static const fourier_case fourier_cases[] = {
    {1, 2, 1, 0},    {3, 4, 1, 0},     {1, 16, 5, 0},   {37, 8, 1, 0},   {1, 64, 1, 0},
    {16, 32, 1, 0},  {2, 128, 9, 0},   {17, 256, 1, 0}, {3, 512, 1, 0},  {1, 1024, 1, 0},
    {1, 2048, 1, 0}, {5, 100, 1, 128}, {2, 3, 1, 1024}, {20, 30, 1, 64}, {3, 100, 2, 32},
    {1, 33, 1, 0},   {2, 101, 3, 0},   {3, 1000, 1, 0}, {2, 40, 1, 77},  {1, 1021, 1, 1021},
    {2, 90, 1, 47},
};

static void fourier_of_many_lengths(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2 * 5 * RU_ARRAY_LEN(fourier_cases); k++) {
        const fourier_case *c = &fourier_cases[k / 10];
        bool inverse = k % 5 == 2 || k % 5 == 4, half = k % 5 >= 3, wide = k / 5 % 2 == 1;
        const int64_t parts = k % 5 == 0 || k % 5 == 3 ? 1 : 2, axis = 1;
        const int64_t half_dim = c->length == 0 && c->dim % 2 == 0 ? c->dim / 2 + 1 : c->dim;
        const int64_t dim = half && inverse ? half_dim : c->dim;
        net t;
        net_init(&t);
        ru_type x =
            wide ? T(F64, c->outer, dim, c->inner, parts) : T(F32, c->outer, dim, c->inner, parts);
        ru_value_id in[3] = {input(&t, "x", x),
                             c->length == 0 ? (ru_value_id){0}
                                            : ru_build_const_i64s(&t.b, &c->length, 1),
                             ru_build_const_i64s(&t.b, &axis, 1)};
        ru_value_id y =
            ru_build_op3(&t.b, RU_OP_DFT, in[0], in[1], in[2],
                         (ru_attr[]){RU_AI(inverse, inverse), RU_AI(onesided, half), RU_A_END});
        ru_build_output(&t.b, y, "y");
        char name[64];
        snprintf(name, sizeof name, "transform %u, form %u, %s", k / 10, k % 5,
                 wide ? "f64" : "f32");
        fast_and_right(&t, wide ? 1e-13 : 1e-6, name);
    }
}

/* -- peepholes ------------------------------------------------------------------------------------
 */

static void peepholes(void **state)
{
    (void)state;
    static const int64_t hidden[] = {5, 16, 37};
    for (uint32_t k = 0; k < 3 * 2 * 2; k++) {
        int64_t h = hidden[k % 3], d = k / 3 % 2 + 1;
        net t;
        ru_value_id y[3];
        net_init(&t);
        ru_value_id x = input(&t, "x", T(F32, 6, 3, 7));
        ru_value_id in[8] = {
            x, param(&t, T(F32, d, 4 * h, 7), 0.5f), param(&t, T(F32, d, 4 * h, h), 0.5f),
            param(&t, T(F32, d, 8 * h), 0.5f), [7] = param(&t, T(F32, d, 3 * h), 1.0f)};
        if (k / 6 == 1) { /* else they begin with zeros */
            in[5] = input(&t, "h", T(F32, d, 3, h));
            in[6] = input(&t, "c", T(F32, d, 3, h));
        }
        ru_build_node(&t.b, RU_OP_LSTM, in, 8,
                      (ru_attr[]){RU_AI(hidden_size, h),
                                  RU_AS(direction, d == 2       ? "bidirectional"
                                                   : k % 2 == 0 ? "forward"
                                                                : "reverse"),
                                  RU_A_END},
                      y, 3);
        for (uint32_t i = 0; i < 3; i++) {
            ru_build_output(&t.b, y[i], i == 0 ? "y" : i == 1 ? "yh" : "yc");
        }
        char name[48];
        snprintf(name, sizeof name, "peepholes %u", k);
        fast_and_right(&t, 1e-5, name);
    }
}

/* -- scales of blocks ----------------------------------------------------------------------------
 */

static void scales_of_blocks(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 7, 8, 63, 64, 600, 1300};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(sizes) * 4; k++) {
        int64_t block = sizes[k % RU_ARRAY_LEN(sizes)], blocks = (1300 - 1) / block + 1;
        bool back = k / RU_ARRAY_LEN(sizes) % 2 == 1, zeros = k / RU_ARRAY_LEN(sizes) / 2 == 1;
        net t;
        net_init(&t);
        ru_type type = T(F32, 3, blocks), zero = T(I8, 3, blocks);
        float *scale = ru_arena_alloc(&t.arena, ru_type_bytes(&type), 64);
        int8_t *zs = ru_arena_alloc(&t.arena, ru_type_bytes(&zero), 64);
        for (int64_t i = 0; i < 3 * blocks; i++) { /* powers of two: quotients are exact */
            scale[i] = 1.0f / (float)(8 << i % 5);
            zs[i] = (int8_t)(i % 11 - 5);
        }
        ru_value_id in[3] = {input(&t, "x", back ? T(I8, 3, 1300) : T(F32, 3, 1300)),
                             ru_build_const(&t.b, type, scale)};
        in[2] = zeros || !back ? ru_build_const(&t.b, zero, zs) : (ru_value_id){0};
        ru_value_id y =
            ru_build_op3(&t.b, back ? RU_OP_DequantizeLinear : RU_OP_QuantizeLinear, in[0], in[1],
                         in[2], (ru_attr[]){RU_AI(axis, -1), RU_AI(block_size, block), RU_A_END});
        ru_build_output(&t.b, y, "y");
        char name[48];
        snprintf(name, sizeof name, "%s of blocks of %d", back ? "numbers" : "bytes", (int)block);
        fast_and_right(&t, 1e-6, name);
    }
}

/* Bytes of all kinds beside one that repeats, in rows of any length. No quotient ends in a half. */
static void bytes_beside_one(void **state)
{
    (void)state;
    static const int64_t dims[][2] = {{1, 3000}, {3, 1100}, {5, 700}};
    uint8_t bytes[3500];
    for (uint32_t k = 0; k < RU_ARRAY_LEN(dims) * 16; k++) {
        const int64_t *dim = dims[k / 16];
        ru_dtype ta = k % 2 == 0 ? RU_U8 : RU_I8, tb = k / 2 % 2 == 0 ? RU_U8 : RU_I8;
        bool product = k / 4 % 2 == 1, turned = k / 8 % 2 == 1;
        net t;
        net_init(&t);
        for (uint32_t i = 0; i < sizeof bytes; i++) {
            bytes[i] = (uint8_t)(i * 37 + i / 256);
        }
        ru_value_id a = ru_build_const(&t.b, ru_type_make(ta, 2, dim), bytes);
        ru_value_id b = input(&t, "b", ru_type_make(tb, 2, (int64_t[]){dim[0], 1}));
        const ru_attr attrs[] = {RU_AF(x_scale, 0.5),
                                 RU_AI(x_zero, 3),
                                 RU_AF(b_scale, 0.25),
                                 RU_AI(b_zero, 1),
                                 RU_AI(to, ru_dtype_onnx(ta)),
                                 RU_AF(y_scale, product ? 0.375 : 0.75),
                                 RU_AI(y_zero, 7),
                                 RU_A_END};
        ru_build_output(&t.b,
                        ru_build_op2(&t.b, product ? RU_OP_MulInt8 : RU_OP_AddInt8, turned ? b : a,
                                     turned ? a : b, attrs),
                        "y");
        char name[32];
        snprintf(name, sizeof name, "bytes beside one %u", k);
        fast_and_right(&t, 0, name);
    }
}

/* Rows of more bins than a vector has, that read lines of up to 70 elements. */
static void regions_of_many_bins(void **state)
{
    (void)state;
    static const float rois[] = {0, 0, 69, 20, 3.5f, 2, 40, 17, -9, -4, 22, 30, 50, 5, 53, 9};
    static const int64_t images[] = {1, 0, 1, 0}, bins[] = {15, 16, 17, 40};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bins) * 4; k++) {
        net t;
        net_init(&t);
        ru_value_id x = input(&t, "x", T(F32, 2, 3, 21, 70));
        const ru_attr attrs[] = {RU_AI(output_height, 3),
                                 RU_AI(output_width, bins[k / 4]),
                                 RU_AI(sampling_ratio, k % 2 * 2),
                                 RU_AS(mode, k / 2 % 2 == 0 ? "avg" : "max"),
                                 RU_AS(coordinate_transformation_mode, "half_pixel"),
                                 RU_A_END};
        ru_value_id y =
            ru_build_op3(&t.b, RU_OP_RoiAlign, x, ru_build_const(&t.b, T(F32, 4, 4), rois),
                         ru_build_const(&t.b, T(I64, 4), images), attrs);
        ru_build_output(&t.b, y, "y");
        fast_and_right(&t, 1e-5, "regions of many bins");
    }
}

/* Bins of whole elements: of one element, shared ones, outside, turned around, of NaN and of
 * nothing that is larger than minus infinity. */
static void regions_of_whole_elements(void **state)
{
    (void)state;
    static const float rois[] = {0,  0, 69,   20, 3.5f, 2,  40,  17, -9, -4,  22,   30,  50, 5,
                                 53, 9, 80,   3,  90,   20, 5,   6,  5,  6,   60,   18,  2,  1,
                                 0,  0, 2e9f, 7,  NAN,  1,  NAN, 9,  0,  .5f, 1.5f, 2.5f};
    static const int64_t images[] = {1, 0, 1, 0, 0, 1, 1, 0, 0, 1};
    static const int64_t shapes[][2] = {{7, 7}, {1, 1}, {3, 40}, {30, 2}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(shapes) * 2; k++) {
        net t;
        net_init(&t);
        const ru_attr attrs[] = {RU_AIS(pooled_shape, shapes[k / 2], 2),
                                 RU_AF(spatial_scale, k % 2 == 0 ? 1.0 : 0.5625), RU_A_END};
        ru_value_id y = ru_build_op3(&t.b, RU_OP_RoiAlign, input(&t, "x", T(F32, 2, 67, 21, 70)),
                                     ru_build_const(&t.b, T(F32, 10, 4), rois),
                                     ru_build_const(&t.b, T(I64, 10), images), attrs);
        ru_build_output(&t.b, y, "y");
        fast_and_right(&t, 0, "regions of whole elements");
    }
}

/* Parts of few lines that are joined and cut, each by all threads. */
static void parts_of_few_lines(void **state)
{
    (void)state;
    static const int64_t lines[] = {1, 2, 7};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(lines) * 2; k++) {
        const ru_dtype of = k % 2 == 0 ? RU_F32 : RU_U8;
        net t;
        net_init(&t);
        ru_value_id x[3], y[2], all;
        x[0] = input(&t, "a", ru_type_make(of, 2, (int64_t[]){lines[k / 2], 30011}));
        x[1] = input(&t, "b", ru_type_make(of, 2, (int64_t[]){lines[k / 2], 1}));
        x[2] = input(&t, "c", ru_type_make(of, 2, (int64_t[]){lines[k / 2], 50003}));
        const ru_attr last[] = {RU_AI(axis, 1), RU_A_END};
        ru_build_node(&t.b, RU_OP_Concat, x, 3, last, &all, 1);
        ru_build_output(&t.b, all, "joined");
        const ru_attr two[] = {RU_AI(axis, 1), RU_AI(num_outputs, 2), RU_A_END};
        ru_build_node(&t.b, RU_OP_Split, &all, 1, two, y, 2);
        ru_build_output(&t.b, y[0], "left");
        ru_build_output(&t.b, y[1], "right");
        fast_and_right(&t, 0, "parts of few lines");
    }
}

RU_TESTS(exec_rare, cmocka_unit_test(bytes_beside_one), cmocka_unit_test(parts_of_few_lines),
         cmocka_unit_test(regions_of_many_bins), cmocka_unit_test(regions_of_whole_elements),
         cmocka_unit_test(diagonals_in_einsum), cmocka_unit_test(columns_become_images),
         cmocka_unit_test(columns_far_apart), cmocka_unit_test(samples_of_images),
         cmocka_unit_test(samples_nowhere), cmocka_unit_test(fourier_of_many_lengths),
         cmocka_unit_test(peepholes), cmocka_unit_test(scales_of_blocks))
