/* Convolutions as products, and products themselves, at odd sizes and in all their forms, against
 * the reference. */
#include "exec/cpu/kern/kern.h"
#include "exec/cpu/kern/side.h"
#include "test/ops/slow_net.h"

/* Over one, two and three axes, with groups, strides, dilations, paddings, places between windows
 * that nothing reaches, bias, activation; `extra`: output_padding. */
static const struct turned_case {
    char kernel; /* w: windows; c: columns; p: a product; o: another */
    uint32_t axes;
    int64_t ci, co, groups, x[3], k[3], s[3], d[3], p[6], extra[3];
} turned_cases[] = {
    {'w', 2, 6, 6, 1, {13, 901}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {0}},
    {'w', 2, 6, 5, 1, {13, 31}, {2, 2}, {2, 2}, {1, 1}, {0}, {0}},
    {'w', 2, 6, 8, 2, {13, 33}, {3, 4}, {2, 3}, {1, 1}, {1, 0, 2, 1}, {0}},
    {'w', 2, 3, 20, 1, {13, 31}, {3, 2}, {1, 2}, {2, 3}, {0, 1, 1, 0}, {0}},
    {'w', 2, 9, 3, 3, {13, 16}, {1, 5}, {3, 1}, {1, 1}, {0, 4, 0, 4}, {0}},
    {'w', 2, 4, 9, 1, {7, 15}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {'w', 2, 5, 7, 1, {5, 9}, {2, 1}, {4, 3}, {1, 1}, {0, 1, 3, 0}, {2, 2}},
    {'w', 2, 8, 8, 8, {9, 40}, {4, 4}, {2, 2}, {1, 1}, {1, 1, 1, 1}, {0}},
    {'w', 2, 2, 6, 2, {6, 20}, {3, 3}, {4, 2}, {2, 2}, {5, 4, 2, 3}, {1, 0}},
    {'c', 2, 64, 40, 1, {4, 17}, {2, 2}, {2, 2}, {1, 1}, {0}, {0}},
    {'c', 2, 20, 24, 1, {6, 19}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, {0}},
    {'w', 1, 5, 6, 1, {37}, {5}, {2}, {1}, {2, 1}, {1}},
    {'w', 1, 4, 2, 2, {1}, {3}, {3}, {3}, {0, 2}, {0}},
    {'w', 3, 4, 6, 2, {3, 5, 18}, {2, 3, 3}, {2, 1, 2}, {1, 2, 1}, {0, 1, 1, 1, 0, 1}, {1, 0, 1}},
    {'w', 3, 3, 3, 1, {4, 2, 7}, {2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {0}, {0}},
    {'c', 2, 40, 6, 1, {9, 11}, {4, 4}, {2, 2}, {1, 1}, {1, 1, 1, 1}, {0}},
    {'c', 2, 9, 2, 1, {7, 13}, {5, 5}, {2, 2}, {1, 1}, {2, 1, 2, 1}, {0}},
    {'c', 2, 66, 10, 2, {8, 9}, {3, 2}, {1, 3}, {2, 1}, {1, 0, 1, 2}, {0, 1}},
    {'c', 2, 24, 24, 1, {8, 8}, {20, 20}, {8, 8}, {1, 1}, {6, 6, 6, 6}, {0}},
    {'c', 2, 300, 3, 3, {6, 6}, {3, 3}, {4, 1}, {1, 1}, {0}, {2, 0}},
    {'c', 1, 48, 7, 1, {50}, {8}, {4}, {1}, {2, 2}, {0}},
    {'c', 3, 36, 5, 1, {3, 4, 5}, {2, 3, 2}, {2, 1, 2}, {1, 1, 1}, {0, 1, 1, 0, 1, 1}, {0}},
    {'w', 2, 2, 2, 2, {5, 6}, {64, 64}, {32, 32}, {1, 1}, {16, 16, 16, 16}, {0}},
    {'o', 2, 40, 20, 1, {5, 5}, {3, 3}, {2, 2}, {1, 1}, {0}, {0}},
    {'p', 2, 40, 22, 2, {9, 11}, {1, 1}, {1, 1}, {1, 1}, {0}, {0}},
    {'p', 1, 70, 61, 1, {201}, {1}, {1}, {1}, {0}, {0}},
};

static void transposed_convolutions(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4 * RU_ARRAY_LEN(turned_cases); k++) {
        const struct turned_case *c = &turned_cases[k / 4];
        net t;
        net_init(&t);
        uint32_t axes = c->axes;
        int64_t ci = c->ci, co = c->co, groups = c->groups;
        int64_t dims[5] = {2, ci}, weights[5] = {ci, co / groups};
        for (uint32_t d = 0; d < axes; d++) {
            dims[2 + d] = c->x[d];
            weights[2 + d] = c->k[d];
        }
        ru_value_id x = input(&t, "x", ru_type_make(RU_F32, 2 + axes, dims));
        const ru_type of = ru_type_make(RU_F32, 2 + axes, weights);
        ru_value_id w = k % 4 < 2 ? param(&t, of, 1.0f) : input(&t, "w", of);
        ru_value_id b = k % 2 == 1 ? param(&t, T(F32, co), 1.0f) : (ru_value_id){0};
        const ru_attr attrs[] = {RU_AI(group, groups),
                                 RU_AIS(strides, c->s, axes),
                                 RU_AIS(dilations, c->d, axes),
                                 RU_AIS(pads, c->p, 2 * axes),
                                 RU_AIS(output_padding, c->extra, axes),
                                 RU_A_END};
        ru_value_id y = ru_build_op3(&t.b, RU_OP_ConvTranspose, x, w, b, attrs);
        y = k % 2 == 1 ? ru_build_op1(&t.b, RU_OP_Tanh, y, NULL) : y;
        ru_build_output(&t.b, y, "y");
        char name[32];
        snprintf(name, sizeof name, "transposed %u", k);
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
        const char *text = ru_exe_print(e, &t.arena);
        assert_int_equal(strstr(text, "kern deconv windows") != NULL, c->kernel == 'w');
        assert_int_equal(strstr(text, "kern deconv columns") != NULL, c->kernel == 'c');
        bool product = c->kernel == 'p' && ru_kern_at(RU_KERN_AVX512) != NULL;
        assert_true(!product || strstr(text, "kern conv product") != NULL);
        ru_exe_close(e);
        fast_and_right(&t, 1e-5, name);
    }
}

static const struct rows_case {
    char kernel; /* p: a product, c: of patches, o: another */
    uint32_t axes;
    int64_t ci, co, groups, x[3], k[3], s[3], d[3], p[6];
} rows_cases[] = {
    {'p', 2, 33, 21, 1, {9, 13}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {'p', 2, 64, 60, 2, {8, 8}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {'p', 2, 300, 40, 1, {31, 37}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {'c', 2, 16, 50, 1, {17, 19}, {1, 1}, {2, 2}, {1, 1}, {0}},
    {'p', 2, 3, 50, 1, {41, 39}, {4, 4}, {4, 4}, {1, 1}, {2, 1, 1, 3}},
    {'p', 2, 6, 110, 2, {30, 31}, {3, 2}, {3, 3}, {1, 2}, {1, 0, 0, 2}},
    {'p', 2, 1, 64, 1, {33, 35}, {5, 4}, {2, 3}, {2, 1}, {4, 1, 3, 2}},
    {'p', 1, 20, 16, 1, {130}, {1}, {1}, {1}, {0}},
    {'p', 1, 1, 48, 1, {700}, {10}, {5}, {1}, {3, 8}},
    {'p', 3, 20, 12, 1, {4, 5, 7}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}},
    {'p', 3, 3, 48, 1, {9, 10, 16}, {2, 3, 2}, {2, 3, 2}, {1, 1, 1}, {1, 1, 0, 0, 1, 1}},
    {'o', 2, 33, 21, 1, {7, 9}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {'o', 2, 16, 15, 1, {30, 30}, {3, 3}, {3, 3}, {1, 1}, {0}},
    {'c', 2, 10, 70, 2, {31, 34}, {2, 2}, {3, 2}, {2, 1}, {0}},
    {'c', 3, 2, 33, 1, {6, 9, 31}, {2, 1, 4}, {2, 3, 5}, {1, 1, 1}, {0}},
    {'c', 1, 8, 16, 1, {300}, {14}, {14}, {1}, {0}},
    {'p', 1, 1, 48, 1, {16 * 1025}, {16}, {16}, {1}, {0}},
    {'c', 2, 1, 40, 1, {112, 64}, {16, 16}, {16, 16}, {1, 1}, {0}},
};

/* Whose result only the caller reads: of windows of one place, of those that do not overlap, and of
 * one channel with steps. */
static void convolutions_of_rows(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4 * RU_ARRAY_LEN(rows_cases); k++) {
        const struct rows_case *c = &rows_cases[k / 4];
        net t;
        net_init(&t);
        int64_t dims[5] = {3, c->ci}, weights[5] = {c->co, c->ci / c->groups};
        for (uint32_t d = 0; d < c->axes; d++) {
            dims[2 + d] = c->x[d];
            weights[2 + d] = c->k[d];
        }
        const ru_type of = ru_type_make(RU_F32, 2 + c->axes, weights);
        ru_value_id x = input(&t, "x", ru_type_make(RU_F32, 2 + c->axes, dims));
        ru_value_id w = k % 4 < 2 ? param(&t, of, 1.0f) : input(&t, "w", of);
        ru_value_id b = k % 2 == 1 ? param(&t, T(F32, c->co), 1.0f) : (ru_value_id){0};
        const ru_attr attrs[] = {RU_AI(group, c->groups), RU_AIS(strides, c->s, c->axes),
                                 RU_AIS(dilations, c->d, c->axes), RU_AIS(pads, c->p, 2 * c->axes),
                                 RU_A_END};
        ru_value_id y = ru_build_op3(&t.b, RU_OP_Conv, x, w, b, attrs);
        y = k % 2 == 1 ? ru_build_op1(&t.b, RU_OP_Tanh, y, NULL) : y;
        ru_build_output(&t.b, y, "y");
        char name[32];
        snprintf(name, sizeof name, "rows %u", k);
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
        const char *text = ru_exe_print(e, &t.arena);
        bool wide = ru_kern_at(RU_KERN_AVX512) != NULL;
        assert_int_equal(strstr(text, "kern conv product") != NULL, wide && c->kernel == 'p');
        assert_int_equal(strstr(text, "kern conv patches") != NULL, wide && c->kernel == 'c');
        ru_exe_close(e);
        fast_and_right(&t, 1e-5, name);
    }
}

/* Of few products, whose right sides, left sides or both are of a batch. */
static void batches_of_short_sums(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 12; k++) {
        const int64_t batches = 3, m = 70 + k, n = 951, deep = 1 + k % 4 * 2;
        net t;
        net_init(&t);
        ru_value_id a = k / 4 == 0 ? input(&t, "a", T(F32, m, deep))
                                   : input(&t, "a", T(F32, k / 4 == 1 ? batches : 1, m, deep));
        ru_value_id b = input(&t, "b", T(F32, k / 4 == 1 && k % 2 == 1 ? 1 : batches, deep, n));
        ru_build_output(&t.b, ru_build_op2(&t.b, RU_OP_MatMul, a, b, NULL), "y");
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
        const bool outer = strstr(ru_exe_print(e, &t.arena), "kern outer") != NULL;
        assert_int_equal(outer, ru_kern_at(RU_KERN_AVX512) != NULL);
        ru_exe_close(e);
        fast_and_right(&t, 1e-5, "batches of short sums");
    }
}

/* Of few columns, of one, and sums of few products; of floats and doubles, either side turned. */
static void narrow_products(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{37, 1, 501},  {500, 3, 3},   {300, 10, 10}, {1, 1, 700},
                                        {29, 2, 600},  {450, 333, 3}, {1100, 70, 1}, {257, 260, 8},
                                        {64, 1100, 7}, {3, 1, 70000}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(shapes) * 16; k++) {
        const int64_t *s = shapes[k / 16];
        bool ta = k % 2 == 1, tb = k / 2 % 2 == 1, wide = k / 4 % 2 == 1, full = k / 8 % 2 == 1;
        ru_dtype d = wide ? RU_F64 : RU_F32;
        const int64_t a_dims[] = {ta ? s[2] : s[0], ta ? s[0] : s[2]};
        const int64_t b_dims[] = {tb ? s[1] : s[2], tb ? s[2] : s[1]};
        net t;
        net_init(&t);
        ru_value_id a = input(&t, "a", ru_type_make(d, 2, a_dims));
        ru_value_id b = input(&t, "b", ru_type_make(d, 2, b_dims)), c = {0};
        if (full) {
            const bool row = k % 5 < 2; /* the same to each row */
            c = input(&t, "c", ru_type_make(d, row ? 1 : 2, row ? s + 1 : s));
        }
        const ru_attr attrs[] = {RU_AI(transA, ta), RU_AI(transB, tb), RU_AF(alpha, 0.5),
                                 RU_AF(beta, k % 3 == 0 ? 2.0 : 1.0), RU_A_END};
        ru_build_output(&t.b, ru_build_op3(&t.b, RU_OP_Gemm, a, b, c, attrs), "y");
        char name[32];
        snprintf(name, sizeof name, "narrow %u", k);
        fast_and_right(&t, wide ? 1e-13 : 1e-5, name);
    }
}

/* Executables of one sample and of some beside it read weights that are packed once, but not those
 * of few columns, which packing would multiply. */
static void samples_share_packed_weights(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{256, 300}, {10, 256}, {37, 33},
                                        {530, 260}, {3, 600},  {1, 64}};
    static const int64_t samples[] = {1, 2, 3, 7, 14, 16, 23, 32, 33};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(shapes) * 4; k++) {
        const int64_t n = shapes[k / 4][0], d = shapes[k / 4][1];
        const bool turned = k % 2 == 1, relu = k / 2 % 2 == 1;
        float *data = NULL, *more = NULL;
        net nets[RU_ARRAY_LEN(samples)];
        ru_exe *exes[RU_ARRAY_LEN(samples)];
        for (uint32_t i = 0; i < RU_ARRAY_LEN(samples); i++) {
            net *t = &nets[i];
            net_init(t);
            data = i > 0 ? data : ru_arena_alloc(&t->arena, n * d * 4, 64);
            more = i > 0 ? more : ru_arena_alloc(&t->arena, n * 4, 64);
            for (int64_t j = 0; i == 0 && j < n * d; j++) {
                data[j] = noise(7, j) * 0.1f;
                more[j % n] = noise(8, j % n);
            }
            ru_value_id x = input(t, "x", T(F32, samples[i], d));
            ru_value_id w = ru_build_const(&t->b, turned ? T(F32, n, d) : T(F32, d, n), data);
            ru_value_id b = relu ? ru_build_const(&t->b, T(F32, n), more) : (ru_value_id){0};
            const ru_attr attrs[] = {RU_AI(transB, turned), RU_A_END};
            ru_value_id y = ru_build_op3(&t->b, RU_OP_Gemm, x, w, b, attrs);
            ru_build_output(&t->b, relu ? ru_build_op1(&t->b, RU_OP_Relu, y, NULL) : y, "y");
            assert_ok(ru_build_finish(&t->b, &t->err), t->err);
            exes[i] = open_on(
                t,
                (ru_exe_options){.threads = 1, .once = true, .share = i > 0 ? exes[i - 1] : NULL});
            ru_exe *ref = open_on(t, (ru_exe_options){.device = RU_DEVICE_REF, .threads = 1});
            same_output(t, exes[i], ref, t->g.outputs[0], 1e-5, "samples");
            ru_exe_close(ref);
            ru_exe_stats stats;
            ru_exe_stats_get(exes[i], &stats);
            const bool own = strstr(ru_exe_print(exes[i], &t->arena), "kern samples") != NULL;
            assert_int_equal(own, ru_kern_at(RU_KERN_AVX512) != NULL && samples[i] <= 32 && n > 3);
            assert_true(!own || (i == 0 ? stats.const_bytes >= n * d * 4 : stats.const_bytes == 0));
        }
        for (uint32_t i = RU_ARRAY_LEN(samples); i-- > 0;) {
            ru_exe_close(exes[i]);
            ru_arena_fini(&nets[i].arena);
        }
    }
}

/* Whole numbers, whose sums wrap as the reference's do, and one row or column of floats, in batches
 * that repeat an operand, as vectors, with what is fused into them. */
static void products_of_any_type(void **state)
{
    (void)state;
    static const struct {
        uint32_t a_rank, b_rank;
        int64_t a[4], b[4];
    } shapes[] = {
        {2, 2, {37, 29}, {29, 45}},      {2, 2, {300, 17}, {17, 1}},
        {2, 2, {1, 70}, {70, 133}},      {3, 2, {3, 20, 33}, {33, 1}},
        {3, 3, {4, 19, 7}, {4, 7, 1}},   {4, 3, {2, 3, 5, 21}, {3, 21, 9}},
        {3, 3, {1, 1, 18}, {6, 18, 50}}, {1, 2, {40}, {40, 61}},
        {2, 1, {83, 40}, {40}},          {1, 1, {900}, {900}},
        {3, 1, {2, 9, 13}, {13}},        {1, 3, {8}, {5, 8, 31}},
        {2, 2, {5, 0}, {0, 1}},          {3, 2, {2, 4, 0}, {0, 1}},
        {2, 2, {7, 0}, {0, 9}},          {3, 3, {2, 4, 0}, {2, 0, 5}},
    };
    static const ru_dtype types[] = {RU_I32, RU_U32, RU_I64, RU_U64, RU_F32, RU_F64};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(shapes) * RU_ARRAY_LEN(types); k++) {
        const uint32_t i = k / RU_ARRAY_LEN(types);
        const ru_dtype d = types[k % RU_ARRAY_LEN(types)];
        net t;
        net_init(&t);
        ru_value_id a = input(&t, "a", ru_type_make(d, shapes[i].a_rank, shapes[i].a));
        ru_value_id b = input(&t, "b", ru_type_make(d, shapes[i].b_rank, shapes[i].b));
        ru_value_id y = ru_build_op2(&t.b, RU_OP_MatMul, a, b, NULL);
        y = k % 2 == 0 && ru_dtype_is_float(d) ? ru_build_op1(&t.b, RU_OP_Tanh, y, NULL) : y;
        ru_build_output(&t.b, y, "y");
        char name[32];
        snprintf(name, sizeof name, "any type %u", k);
        fast_and_right(&t, d == RU_F64 ? 1e-13 : 1e-5, name);
    }
}

/* Rows and columns of a product by themselves have the sums that they have in all of it, to the
 * last bit: threads divide it where they like. */
static void parts_of_products_are_the_same(void **state)
{
    (void)state;
    enum { MOST = 100 };
    static const int64_t sizes[][3] = {{5, 40, 67}, {40, 5, 67},  {8, 33, 100}, {3, 50, 41},
                                       {1, 90, 37}, {70, 1, 100}, {90, 3, 4},   {90, 5, 8}};
    static double x[2 * MOST * MOST], whole[MOST * MOST], parts[MOST * MOST];
    for (int64_t i = 0; i < 2 * MOST * MOST; i++) {
        x[i] = 1.0 / (double)(i % 257 + 3);
    }
    for (uint32_t i = 0; i < RU_KERN_LEVELS * RU_ARRAY_LEN(sizes) * 4; i++) {
        const ru_kern *kern = ru_kern_at((ru_kern_level)(i % RU_KERN_LEVELS));
        const int64_t *s = sizes[i / RU_KERN_LEVELS / 4], m = s[0], n = s[1], k = s[2];
        const bool ta = i / RU_KERN_LEVELS & 1, tb = i / RU_KERN_LEVELS & 2;
        ru_kern_gemm64 g = {.m = m,
                            .n = n,
                            .k = k,
                            .a = x,
                            .b = x + MOST * MOST,
                            .c = whole,
                            .a_row = ta ? 1 : k,
                            .a_col = ta ? m : 1,
                            .b_row = tb ? 1 : n,
                            .b_col = tb ? k : 1,
                            .c_row = n,
                            .alpha = 1.0};
        if (kern == NULL) {
            continue;
        }
        double *work = aligned_alloc(64, (size_t)(kern->gemm64_work() * 8));
        kern->gemm64(&g, 0, m, 0, n, work);
        g.c = parts;
        for (int64_t cut = 0; cut < m + n; cut++) {
            const int64_t row = cut < m ? cut : m, col = cut < m ? n : cut - m;
            kern->gemm64(&g, 0, row, 0, col, work);
            kern->gemm64(&g, cut < m ? row : 0, m, cut < m ? 0 : col, n, work);
            assert_memory_equal(parts, whole, (size_t)(m * n) * sizeof *parts);
        }
        free(work);
    }
}

static const struct bytes_case {
    uint32_t axes;
    int64_t ci, co, groups, x[3], k[3], s[3], d[3], p[6];
} bytes_cases[] = {
    {2, 2, 140, 1, {60, 9}, {1, 1}, {2, 2}, {1, 1}, {0}},
    {2, 2, 8, 1, {13, 25}, {3, 3}, {1, 1}, {1, 1}, {0}},
    {2, 3, 18, 1, {46, 17}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {2, 6, 10, 2, {17, 19}, {3, 2}, {2, 3}, {1, 3}, {2, 1, 1, 4}},
    {2, 3, 5, 1, {33, 150}, {4, 4}, {4, 4}, {1, 1}, {0}},
    {1, 5, 7, 1, {300}, {11}, {5}, {2}, {9, 30}},
    {1, 64, 3, 1, {70}, {1}, {1}, {1}, {0}},
    {3, 4, 8, 2, {4, 5, 37}, {2, 3, 4}, {2, 1, 1}, {1, 2, 1}, {1, 0, 3, 0, 2, 1}},
    {2, 3, 6, 3, {2, 3}, {1, 5}, {1, 3}, {1, 1}, {0, 40, 0, 40}},
};

/* Short sums: of u8 and i8, with and without a zero point (pads then stand for it: not here). */
static void windows_of_bytes(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4 * RU_ARRAY_LEN(bytes_cases); k++) {
        const struct bytes_case *c = &bytes_cases[k / 4];
        const ru_dtype of = k % 2 == 0 ? RU_U8 : RU_I8;
        net t;
        net_init(&t);
        int64_t dims[5] = {3, c->ci}, weights[5] = {c->co, c->ci / c->groups}, pads = 0;
        for (uint32_t d = 0; d < c->axes; d++) {
            dims[2 + d] = c->x[d];
            weights[2 + d] = c->k[d];
            pads += c->p[d] + c->p[d + c->axes];
        }
        const ru_type tw = ru_type_make(RU_I8, 2 + c->axes, weights);
        int8_t *w = ru_arena_zalloc(&t.arena, ru_type_bytes(&tw), 64);
        for (int64_t i = 0; i < ru_type_count(&tw); i++) {
            w[i] = (int8_t)(i * 77 + i / 7 * 31);
        }
        ru_value_id in[3] = {input(&t, "x", ru_type_make(of, 2 + c->axes, dims)),
                             ru_build_const(&t.b, tw, w)};
        const bool zero = k % 4 >= 2 && pads == 0;
        in[2] = zero ? input(&t, "z", ru_type_scalar(of)) : (ru_value_id){0};
        const ru_attr attrs[] = {RU_AI(group, c->groups), RU_AIS(strides, c->s, c->axes),
                                 RU_AIS(dilations, c->d, c->axes), RU_AIS(pads, c->p, 2 * c->axes),
                                 RU_A_END};
        ru_value_id y;
        ru_build_node(&t.b, RU_OP_ConvInteger, in, zero ? 3 : 2, attrs, &y, 1);
        ru_build_output(&t.b, y, "y");
        char name[32];
        snprintf(name, sizeof name, "bytes %u", k);
        assert_ok(ru_build_finish(&t.b, &t.err), t.err);
        ru_exe *e = open_on(&t, (ru_exe_options){.threads = 1});
        bool few = strstr(ru_exe_print(e, &t.arena), "kern few bytes of windows") != NULL;
        assert_int_equal(few, ru_kern_bytes_here() != NULL);
        ru_exe_close(e);
        fast_and_right(&t, 0, name);
    }
}

RU_TESTS(exec_product, cmocka_unit_test(windows_of_bytes),
         cmocka_unit_test(samples_share_packed_weights),
         cmocka_unit_test(parts_of_products_are_the_same), cmocka_unit_test(products_of_any_type),
         cmocka_unit_test(transposed_convolutions), cmocka_unit_test(convolutions_of_rows),
         cmocka_unit_test(narrow_products), cmocka_unit_test(batches_of_short_sums))
