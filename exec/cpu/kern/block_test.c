/* Products, attention, normalisation, losses and optimizers against brute force in
 * double, on odd sizes and on every instruction set that this CPU has. */
#include "exec/cpu/kern/kern.h"
#include "exec/cpu/kern/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test/test.h"

static float noise(uint64_t k)
{
    uint64_t x = (k + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
    return (float)(x >> 40) / (float)(1 << 23) - 1.0f;
}

static float *numbers(int64_t n, uint64_t seed)
{
    float *p = aligned_alloc(64, (size_t)((n * 4 + 127) / 64 * 64));
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        p[i] = noise(seed * 1000003u + (uint64_t)i);
    }
    return p;
}

/* Every table this CPU can run. */
static const ru_kern *kern_at(int level)
{
    return ru_kern_at((ru_kern_level)level);
}

static void near(double got, double want, double tol, const char *what, const ru_kern *k)
{
    if (!(fabs(got - want) <= tol * fmax(1.0, fabs(want)))) {
        fail_msg("%s on %s: %.9g, expected %.9g", what, k->name, got, want);
    }
}

/* -- products ------------------------------------------------------------------------------------
 */

static void product_case(const ru_kern *k, int64_t m, int64_t n, int64_t d, bool ta, bool tb)
{
    float *a = numbers(m * d, 1), *b = numbers(d * n, 2), *c = numbers(m * (n + 3), 3);
    float *work = numbers(k->gemm_work(m, n, d), 4),
          *packed = numbers(k->gemm_pack_floats(d, n), 5);
    float *was = numbers(m * (n + 3), 3);
    int64_t ar = ta ? 1 : d, ac = ta ? m : 1, br = tb ? 1 : n, bc = tb ? d : 1;
    k->gemm_pack(b, br, bc, d, n, packed);
    for (int way = 0; way < 2; way++) {
        memcpy(c, was, sizeof(float) * (size_t)(m * (n + 3)));
        ru_kern_gemm g = {.m = m,
                          .n = n,
                          .k = d,
                          .a = a,
                          .a_row = ar,
                          .a_col = ac,
                          .b = b,
                          .b_row = br,
                          .b_col = bc,
                          .c = c,
                          .c_row = n + 3,
                          .alpha = 0.5f,
                          .packed_b = way == 0 ? NULL : packed,
                          .add = way == 1,
                          .work = work};
        k->gemm(&g);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n + 3; j++) {
                double sum = way == 1 || j >= n ? (double)was[i * (n + 3) + j] : 0.0;
                for (int64_t p = 0; p < d && j < n; p++) {
                    sum += 0.5 * (double)a[i * ar + p * ac] * (double)b[p * br + j * bc];
                }
                near((double)c[i * (n + 3) + j], sum, 2e-5, "product", k);
            }
        }
    }
    free(a), free(b), free(c), free(work), free(packed), free(was);
}

/* The large product, made in two parts; bias, sum and relu by `with`. */
static void large_case(const ru_kern *k, int64_t m, int64_t n, int64_t d, bool ta, bool tb,
                       int with)
{
    int64_t ld = n + 3;
    float *a = numbers(m * d, 1), *b = numbers(d * n, 2), *c = numbers(m * ld, 3);
    float *was = numbers(m * ld, 3), *bias = numbers(n, 6);
    float *work = numbers(k->product_work(m, n, d), 4);
    ru_kern_product g = {.m = m,
                         .n = n,
                         .k = d,
                         .a = a,
                         .a_row = ta ? 1 : d,
                         .a_col = ta ? m : 1,
                         .b = b,
                         .b_row = tb ? 1 : n,
                         .b_col = tb ? d : 1,
                         .bias = (with & 1) != 0 ? bias : NULL,
                         .c = c,
                         .c_row = ld,
                         .alpha = 0.5f,
                         .add = (with & 2) != 0,
                         .relu = with == 3};
    k->product(&g, 0, m / 2, 0, n, work);
    k->product(&g, m / 2, m, 0, n / 3, work);
    k->product(&g, m / 2, m, n / 3, n, work);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < ld; j++) {
            double sum = g.add || j >= n ? (double)was[i * ld + j] : 0.0;
            sum += g.bias != NULL && j < n ? (double)bias[j] : 0.0;
            for (int64_t p = 0; p < d && j < n; p++) {
                sum += 0.5 * (double)a[i * g.a_row + p * g.a_col] *
                       (double)b[p * g.b_row + j * g.b_col];
            }
            sum = g.relu && j < n && sum < 0.0 ? 0.0 : sum;
            near((double)c[i * ld + j], sum, 2e-5, "large product", k);
        }
    }
    free(a), free(b), free(c), free(was), free(bias), free(work);
}

static void large_products_agree_with_double(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {7, 17, 9}, {100, 20, 300}, {13, 1030, 20}};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        for (uint32_t s = 0; kern_at(level) != NULL && s < RU_ARRAY_LEN(sizes); s++) {
            for (int t = 0; t < 4; t++) {
                large_case(kern_at(level), sizes[s][0], sizes[s][1], sizes[s][2], t & 1, t >> 1, t);
                large_case(kern_at(level), sizes[s][0], sizes[s][1], sizes[s][2], t & 1, t >> 1,
                           3 - t);
            }
        }
    }
}

/* ReLU behind a product keeps what is no number, in whole tiles and at their edges. */
static void large_products_keep_nan(void **state)
{
    (void)state;
    enum { M = 7, COLS = 19, D = 5 };
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = kern_at(level);
        if (k == NULL) {
            continue;
        }
        float *a = numbers(M * D, 1), *b = numbers(D * COLS, 2), *c = numbers(M * COLS, 3);
        float *work = numbers(k->product_work(M, COLS, D), 4);
        a[2 * D + 1] = NAN;
        ru_kern_product g = {.m = M,
                             .n = COLS,
                             .k = D,
                             .a = a,
                             .a_row = D,
                             .a_col = 1,
                             .b = b,
                             .b_row = COLS,
                             .b_col = 1,
                             .c = c,
                             .c_row = COLS,
                             .alpha = 1.0f,
                             .relu = true};
        k->product(&g, 0, M, 0, COLS, work);
        for (int64_t i = 0; i < M * COLS; i++) {
            assert_true(i / COLS == 2 ? isnan(c[i]) : c[i] >= 0.0f);
        }
        free(a), free(b), free(c), free(work);
    }
}

static void products_agree_with_double(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 33, 7},   {5, 32, 64},  {15, 47, 31},
                                       {29, 100, 5}, {64, 200, 3}, {3, 17, 300}, {70, 170, 260}};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        for (uint32_t s = 0; kern_at(level) != NULL && s < RU_ARRAY_LEN(sizes); s++) {
            for (int t = 0; t < 4; t++) {
                product_case(kern_at(level), sizes[s][0], sizes[s][1], sizes[s][2], t & 1, t >> 1);
            }
        }
    }
}

static void bf16_products_agree_with_double(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 2}, {5, 33, 64}, {32, 47, 30}, {17, 100, 1030}};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = kern_at(level);
        for (uint32_t s = 0; k != NULL && k->gemm_bf16_packs(2) && s < RU_ARRAY_LEN(sizes); s++) {
            int64_t m = sizes[s][0], n = sizes[s][1], d = sizes[s][2];
            float *a = numbers(m * d, 1), *b = numbers(d * n, 2), *c = numbers(m * n, 3);
            uint16_t *ah = aligned_alloc(64, (size_t)((m * d * 2 + 127) / 64 * 64));
            uint16_t *packed = (uint16_t *)(void *)numbers(k->gemm_pack_floats(d, n), 5);
            for (int64_t i = 0; i < d * n; i++) { /* exact in bf16, so that sums compare */
                b[i] = (float)((int)(b[i] * 64.0f));
            }
            for (int64_t i = 0; i < m * d; i++) {
                a[i] = (float)((int)(a[i] * 64.0f));
            }
            (void)k->cast(RU_F32, a, RU_BF16, ah, m * d);
            k->gemm_bf16_pack(b, n, 1, d, n, packed);
            k->gemm_bf16(m, n, d, ah, d, packed, c, n, false);
            for (int64_t i = 0; i < m * n; i++) {
                double sum = 0.0;
                for (int64_t p = 0; p < d; p++) {
                    sum += (double)a[i / n * d + p] * (double)b[p * n + i % n];
                }
                near((double)c[i], sum, 1e-6, "bf16 product", k);
            }
            free(a), free(b), free(c), free(ah), free(packed);
        }
    }
}

/* -- attention -----------------------------------------------------------------------------------
 */

/* Loss = sum of y * dy for one head, in double. */
static double attention_loss(const ru_kern_attn *a, const double *q, const double *k,
                             const double *v, const float *dy, double *y)
{
    double loss = 0.0;
    int64_t d = a->head_size;
    double *p = malloc(sizeof(double) * (size_t)a->keys);
    for (int64_t i = 0; i < a->rows; i++) {
        int64_t see = a->causal && i + 1 < a->keys ? i + 1 : a->keys;
        double max = -1e300, sum = 0.0;
        for (int64_t j = 0; j < see; j++) {
            p[j] = 0.0;
            for (int64_t c = 0; c < d; c++) {
                p[j] += q[i * d + c] * k[j * d + c];
            }
            p[j] = p[j] * (double)a->scale +
                   (a->mask == NULL ? 0.0 : (double)a->mask[i * a->mask_row + j * a->mask_col]);
            max = fmax(max, p[j]);
        }
        for (int64_t j = 0; j < see; j++) {
            p[j] = exp(p[j] - max);
            sum += p[j];
        }
        for (int64_t c = 0; c < d; c++) {
            double o = 0.0;
            for (int64_t j = 0; j < see; j++) {
                o += p[j] / sum * v[j * d + c];
            }
            y[i * d + c] = o;
            loss += o * (double)dy[i * d + c];
        }
    }
    free(p);
    return loss;
}

static void attention_case(const ru_kern *k, int64_t rows, int64_t keys, int64_t d, bool causal,
                           bool masked)
{
    float *f[3] = {numbers(rows * d, 1), numbers(keys * d, 2), numbers(keys * d, 3)};
    float *dy = numbers(rows * d, 4), *y = numbers(rows * d, 5), *mask = numbers(rows * keys, 6);
    float *g[3] = {numbers(rows * d, 7), numbers(keys * d, 8), numbers(keys * d, 9)};
    float *stats = numbers(rows, 10);
    ru_kern_attn a = {.t = RU_F32,
                      .t_kv = RU_F32,
                      .rows = rows,
                      .keys = keys,
                      .head_size = d,
                      .ld_q = d,
                      .ld_k = d,
                      .ld_v = d,
                      .ld_y = d,
                      .ld_dq = d,
                      .ld_dk = d,
                      .ld_dv = d,
                      .q = f[0],
                      .k = f[1],
                      .v = f[2],
                      .y = y,
                      .dy = dy,
                      .dq = g[0],
                      .dk = g[1],
                      .dv = g[2],
                      .stats = stats,
                      .mask = masked ? mask : NULL,
                      .mask_row = keys,
                      .mask_col = 1,
                      .scale = 0.4f,
                      .causal = causal};
    a.work = numbers(k->attn_work(&a, true), 11);
    k->attn(&a);
    k->attn_grad(&a);
    int64_t n[3] = {rows * d, keys * d, keys * d};
    double *x[3], *yd = malloc(sizeof(double) * (size_t)(rows * d));
    for (int t = 0; t < 3; t++) {
        x[t] = malloc(sizeof(double) * (size_t)n[t]);
        for (int64_t i = 0; i < n[t]; i++) {
            x[t][i] = (double)f[t][i];
        }
    }
    (void)attention_loss(&a, x[0], x[1], x[2], dy, yd);
    for (int64_t i = 0; i < rows * d; i++) {
        near((double)y[i], yd[i], 1e-5, "attention", k);
    }
    for (int t = 0; t < 3; t++) {
        for (int64_t i = 0; i < n[t]; i += 13) {
            double keep = x[t][i], h = 1e-5;
            x[t][i] = keep + h;
            double up = attention_loss(&a, x[0], x[1], x[2], dy, yd);
            x[t][i] = keep - h;
            double down = attention_loss(&a, x[0], x[1], x[2], dy, yd);
            x[t][i] = keep;
            near((double)g[t][i], (up - down) / (2 * h), 2e-4, "attention gradient", k);
        }
    }
    for (int t = 0; t < 3; t++) {
        free(x[t]), free(f[t]), free(g[t]);
    }
    free(yd), free(dy), free(y), free(mask), free(stats), free(a.work);
}

static void attention_agrees_with_finite_differences(void **state)
{
    (void)state;
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        if (kern_at(level) != NULL) {
            attention_case(kern_at(level), 7, 7, 5, true, false);
            attention_case(kern_at(level), 37, 37, 16, true, true);
            attention_case(kern_at(level), 33, 50, 8, false, true);
            attention_case(kern_at(level), 1, 9, 3, false, false);
        }
    }
}

/* One row of a cache in double. */
static void cached_row(const ru_kern_attn *a, const float *q, const float *k, const float *v,
                       int64_t see, double *y)
{
    int64_t d = a->head_size;
    double sum = 0, max = -INFINITY;
    double *p = malloc(sizeof *p * (size_t)see);
    for (int64_t j = 0; j < see; j++) {
        p[j] = 0;
        for (int64_t c = 0; c < d; c++) {
            p[j] += (double)q[c] * (double)k[j * d + c] * (double)a->scale;
        }
        max = fmax(max, p[j]);
    }
    memset(y, 0, sizeof *y * (size_t)d);
    for (int64_t j = 0; j < see; j++) {
        double e = exp(p[j] - max);
        sum += e;
        for (int64_t c = 0; c < d; c++) {
            y[c] += e * (double)v[j * d + c];
        }
    }
    for (int64_t c = 0; c < d; c++) {
        y[c] /= sum;
    }
    free(p);
}

static void cast(const ru_kern *k, ru_dtype from, const void *x, ru_dtype to, void *y, int64_t n)
{
    if (from == to) {
        memcpy(y, x, (size_t)(n * ru_dtype_bytes(to)));
    } else {
        assert_true(k->cast(from, x, to, y, n));
    }
}

/* Rows on a cache that is exactly as long as what they see; a group, then each row alone. */
static void cached_case(const ru_kern *k, int64_t rows, int64_t past, int64_t d, float scale,
                        ru_dtype t, ru_dtype kv)
{
    int64_t keys = past + rows, n[3] = {rows * d, keys * d, keys * d};
    float *f[3], *y = numbers(rows * d, 4);
    void *x[3], *out = malloc((size_t)(rows * d * ru_dtype_bytes(t)));
    double *want = malloc(sizeof *want * (size_t)d), tol = t == RU_F32 ? 2e-5 : 8e-3;
    for (uint32_t i = 0; i < 3; i++) { /* numbers that the kernel sees */
        ru_dtype of = i == 0 ? t : kv;
        f[i] = numbers(n[i], i + 1);
        x[i] = malloc((size_t)(n[i] * ru_dtype_bytes(of)));
        cast(k, RU_F32, f[i], of, x[i], n[i]);
        cast(k, of, x[i], RU_F32, f[i], n[i]);
    }
    ru_kern_attn a = {.t = t, .t_kv = kv, .rows = rows, .keys = keys, .head_size = d};
    a.ld_q = a.ld_k = a.ld_v = a.ld_y = d;
    a.q = x[0], a.k = x[1], a.v = x[2], a.y = out;
    a.scale = scale, a.causal = true, a.past = past;
    a.work = numbers(k->attn_rows_work(&a), 11);
    for (int64_t row = -1; row < rows; row++) { /* -1: all of them */
        ru_kern_attn one = a;
        one.q = (char *)x[0] + (row < 0 ? 0 : row) * d * ru_dtype_bytes(t);
        one.rows = 1, one.keys = past + row + 1;
        row < 0 ? k->attn_rows(&a) : k->attn_row(&one);
        cast(k, t, out, RU_F32, y, (row < 0 ? rows : 1) * d);
        for (int64_t i = row < 0 ? 0 : row; i <= (row < 0 ? rows - 1 : row); i++) {
            cached_row(&a, f[0] + i * d, f[1], f[2], past + i + 1, want);
            for (int64_t c = 0; c < d; c++) {
                near((double)y[(row < 0 ? i : 0) * d + c], want[c], tol, "a cache", k);
            }
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        free(f[i]), free(x[i]);
    }
    free(y), free(out), free(want), free(a.work);
}

static void cached_rows_agree_with_double(void **state)
{
    (void)state;
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        for (uint32_t t = 0; kern_at(level) != NULL && t < 3; t++) {
            ru_dtype of = t == 2 ? RU_BF16 : RU_F32, kv = t > 0 ? RU_BF16 : RU_F32;
            cached_case(kern_at(level), 2, 0, 5, 0.4f, of, kv);
            cached_case(kern_at(level), 9, 200, 64, 2.0f, of, kv);
            cached_case(kern_at(level), 16, 63, 32, 8.0f, of, kv);
            cached_case(kern_at(level), 17, 64, 80, 0.3f, of, kv);
            cached_case(kern_at(level), 70, 131, 33, 1.0f, of, kv);
        }
    }
}

/* A value that is no number, of a key that only later rows see: those before keep their bits. */
static void later_values_stay_unseen(void **state)
{
    (void)state;
    static const float odd[] = {NAN, INFINITY};
    for (uint32_t way = 0; way < 2 * RU_KERN_LEVELS * 3; way++) {
        const ru_kern *k = kern_at((int)(way / 6));
        if (k == NULL) {
            continue;
        }
        int64_t rows = 9 + 16 * (way / 2 % 3), past = 60, d = 33, keys = past + rows, bad = 6;
        float *q = numbers(rows * d, 1), *v = numbers(keys * d, 3), *y[2];
        ru_kern_attn a = {.t = RU_F32, .t_kv = RU_F32, .rows = rows, .keys = keys, .head_size = d};
        a.ld_q = a.ld_k = a.ld_v = a.ld_y = d;
        a.q = q, a.k = numbers(keys * d, 2), a.v = v;
        a.scale = 0.3f, a.causal = true, a.past = past;
        a.work = numbers(k->attn_rows_work(&a), 11);
        for (uint32_t i = 0; i < 2; i++) {
            v[(past + bad) * d + 3] = i == 0 ? v[(past + bad) * d + 3] : odd[way % 2];
            a.y = y[i] = numbers(rows * d, 4);
            k->attn_rows(&a);
        }
        for (int64_t i = 0; i < rows * d; i++) {
            bool after = i / d >= bad && i % d == 3;
            assert_true(after ? !isfinite(y[1][i]) : y[0][i] == y[1][i]);
        }
        free(q), free(v), free((void *)(uintptr_t)a.k), free(a.work), free(y[0]), free(y[1]);
    }
}

/* -- sums, losses, optimizers --------------------------------------------------------------------
 */

static void reductions_are_the_same_everywhere(void **state)
{
    (void)state;
    float *x = numbers(5000, 1);
    for (int64_t n = 1; n < 5000; n += 311) {
        double sum = 0.0, sq = 0.0;
        float max = -INFINITY;
        for (int64_t i = 0; i < n; i++) {
            sum += (double)x[i];
            sq += (double)x[i] * (double)x[i];
            max = fmaxf(max, x[i]);
        }
        float first = kern_at(0)->reduce(RU_KERN_RED_SUM, RU_F32, x, n, 1, 0);
        for (int level = 0; level < RU_KERN_LEVELS; level++) {
            const ru_kern *k = kern_at(level);
            if (k == NULL) {
                continue;
            }
            near((double)k->reduce(RU_KERN_RED_SUM, RU_F32, x, n, 1, 0), sum, 1e-5, "sum", k);
            near((double)k->reduce(RU_KERN_RED_SUM_SQUARE, RU_F32, x, n, 1, 0), sq, 1e-5, "squares",
                 k);
            assert_true(k->reduce(RU_KERN_RED_MAX, RU_F32, x, n, 1, 0) == max);
            assert_true(k->reduce(RU_KERN_RED_SUM, RU_F32, x, n, 1, 0) == first);
        }
    }
    x[77] = NAN;
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        if (kern_at(level) != NULL) {
            assert_true(isnan(kern_at(level)->reduce(RU_KERN_RED_MAX, RU_F32, x, 100, 1, 0)));
        }
    }
    free(x);
}

static void cross_entropy_counts_and_refuses(void **state)
{
    (void)state;
    enum { ROWS = 4, C = 70 };
    static const int64_t labels[ROWS] = {3, -100, 69, 0};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = kern_at(level);
        if (k == NULL) {
            continue;
        }
        float *x = numbers(ROWS * C, 1), *p = numbers(ROWS * C, 2), loss[ROWS], weight[ROWS];
        uint8_t flags[ROWS];
        x[3] = 9.0f;
        assert_int_equal(k->cross_entropy(RU_F32, x, RU_I64, labels, NULL, -100, 0.1f, p, loss,
                                          weight, flags, ROWS, C),
                         -1);
        assert_int_equal(flags[0], 3);
        assert_int_equal(flags[1], 0);
        assert_true(loss[1] == 0.0f && weight[1] == 0.0f);
        for (int64_t r = 0; r < ROWS; r++) {
            double sum = 0.0, mean = 0.0;
            for (int64_t c = 0; c < C; c++) {
                sum += exp((double)x[r * C + c]);
                mean += (double)x[r * C + c] / C;
            }
            double want =
                r == 1 ? 0.0
                       : 0.9 * (log(sum) - (double)x[r * C + labels[r]]) + 0.1 * (log(sum) - mean);
            near((double)loss[r], want, 1e-5, "cross entropy", k);
        }
        static const int64_t bad[1] = {C};
        assert_int_equal(k->cross_entropy(RU_F32, x, RU_I64, bad, NULL, -100, 0.0f, p, loss, weight,
                                          flags, 1, C),
                         0);
        free(x), free(p);
    }
}

static void adam_follows_its_definition(void **state)
{
    (void)state;
    enum { N = 101 };
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = kern_at(level);
        if (k == NULL) {
            continue;
        }
        float *p = numbers(N, 1), *g = numbers(N, 2), *m = numbers(N, 3), *v = numbers(N, 4);
        float *p2 = numbers(N, 5), *m2 = numbers(N, 6), *v2 = numbers(N, 7);
        for (int64_t i = 0; i < N; i++) {
            v[i] = fabsf(v[i]);
        }
        ru_kern_adam o = ru_kern_adam_step(0.01, 0.5, 0.9, 0.99, 1e-8, 0.1, true, 3);
        ru_kern_segment s = {
            .p = p, .g = g, .m = m, .v = v, .p_out = p2, .m_out = m2, .v_out = v2, .n = N};
        k->adam(&o, &s, 0, 40);
        k->adam(&o, &s, 40, N);
        for (int64_t i = 0; i < N; i++) {
            double d = 0.5 * (double)g[i], m1 = 0.9 * (double)m[i] + 0.1 * d;
            double v1 = 0.99 * (double)v[i] + 0.01 * d * d;
            double step = 0.01 * (m1 / (1 - pow(0.9, 3))) / (sqrt(v1 / (1 - pow(0.99, 3))) + 1e-8);
            near((double)p2[i], (double)p[i] * (1 - 0.01 * 0.1) - step, 2e-6, "adam", k);
            near((double)m2[i], m1, 1e-6, "adam m", k);
            near((double)v2[i], v1, 1e-6, "adam v", k);
        }
        free(p), free(g), free(m), free(v), free(p2), free(m2), free(v2);
    }
}

/* -- batch normalisation ------------------------------------------------------------------------
 */

/* Forward and backward of one run with a mask from x, and the sums of both, for one lane each. */
static void batch_norm_case(const ru_kern *k, int64_t s, int64_t lanes)
{
    int64_t n = s * lanes;
    float *x = numbers(n, 1), *dy = numbers(n, 2), *out = numbers(n, 3), *dres = numbers(n, 4);
    float c[6][16], sum[16], sq[16], dsum[16], dot[16];
    for (int i = 0; i < 6 * 16; i++) {
        c[i / 16][i % 16] = noise(77 + (uint64_t)i);
    }
    ru_kern_bn b = {.t = RU_F32,
                    .s = s,
                    .lanes = lanes,
                    .relu = true,
                    .x = x,
                    .out = out,
                    .mean = c[0],
                    .mul = c[1],
                    .add = c[2],
                    .k_dy = c[3],
                    .k_x = c[4],
                    .k_1 = c[5]};
    k->bn_sums(&b, sum, sq);
    k->bn_apply(&b);
    for (int64_t i = 0; i < n; i++) {
        double y = (double)x[i] * (double)c[1][i % lanes] + (double)c[2][i % lanes];
        near((double)out[i], y > 0 ? y : 0, 1e-6, "bn_apply", k);
    }
    b.dy = dy;
    b.dres = dres;
    k->bn_grad_sums(&b, dsum, dot);
    k->bn_grad_apply(&b);
    for (int64_t l = 0; l < lanes; l++) {
        double want[4] = {0};
        for (int64_t i = l; i < n; i += lanes) {
            double d = (double)x[i] - (double)c[0][l];
            bool on = (double)x[i] * (double)c[1][l] + (double)c[2][l] > 0;
            double g = on ? (double)dy[i] : 0;
            want[0] += d;
            want[1] += d * d;
            want[2] += g;
            want[3] += g * d;
            near((double)dres[i], g, 0, "bn_grad_apply, dres", k);
            near((double)out[i],
                 g * (double)c[3][l] + (double)x[i] * (double)c[4][l] + (double)c[5][l], 1e-6,
                 "bn_grad_apply", k);
        }
        near((double)sum[l], want[0], 1e-5, "bn_sums", k);
        near((double)sq[l], want[1], 1e-5, "bn_sums, squares", k);
        near((double)dsum[l], want[2], 1e-5, "bn_grad_sums", k);
        near((double)dot[l], want[3], 1e-5, "bn_grad_sums, products", k);
    }
    free(x), free(dy), free(out), free(dres);
}

static void batch_norm_agrees_with_double(void **state)
{
    (void)state;
    static const int64_t positions[] = {1, 2, 7, 49, 64};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        for (uint32_t i = 0; kern_at(level) != NULL && i < RU_ARRAY_LEN(positions); i++) {
            batch_norm_case(kern_at(level), positions[i], 1);
            batch_norm_case(kern_at(level), positions[i], 8);
            batch_norm_case(kern_at(level), positions[i], 16);
        }
    }
}

/* Element i of an array of any type of product, as a whole number. */
static void any_set(ru_dtype t, void *p, int64_t i, uint64_t x)
{
    if (t == RU_F64) {
        ((double *)p)[i] = (double)(int64_t)x;
    } else if (t == RU_F32) {
        ((float *)p)[i] = (float)(int64_t)x;
    } else if (t == RU_U64) {
        ((uint64_t *)p)[i] = x;
    } else {
        ((uint32_t *)p)[i] = (uint32_t)x;
    }
}

static uint64_t any_get(ru_dtype t, const void *p, int64_t i)
{
    return t == RU_F64   ? (uint64_t)(int64_t)((const double *)p)[i]
           : t == RU_F32 ? (uint64_t)(int64_t)((const float *)p)[i]
           : t == RU_U64 ? ((const uint64_t *)p)[i]
                         : ((const uint32_t *)p)[i];
}

static void *any_new(ru_dtype t, int64_t n, uint64_t by, int64_t step, int64_t span)
{
    void *p = malloc((size_t)((n + 1) * ru_dtype_bytes(t)));
    for (int64_t i = 0; i < n; i++) {
        any_set(t, p, i, by * (uint64_t)((i * step + 11) % span - span / 2));
    }
    return p;
}

static void any_run(int level, ru_dtype t, const ru_kern_gemm64 *g, int64_t m0, int64_t n0)
{
    const ru_kern_numbers *k = ru_kern_numbers_at((ru_kern_level)level);
    void *work = aligned_alloc(64, (size_t)(kern_at(level)->gemm64_work() * ru_dtype_bytes(t)));
    (t == RU_F64   ? kern_at(level)->gemm64
     : t == RU_F32 ? k->gemm_f32
     : t == RU_U64 ? k->gemm_u64
                   : k->gemm_u32)(g, m0, g->m, n0, g->n, work);
    free(work);
}

/* Rows m0 .. and columns n0 .. of a product, either operand transposed. Sums of whole numbers are
 * exact in any order: of few bits in floats, of any that wrap. */
static void any_case(int level, ru_dtype t, int64_t m, int64_t n, int64_t d, bool ta, bool tb)
{
    const bool whole = t == RU_U32 || t == RU_U64;
    const uint64_t by = whole ? 0x9E3779B97F4A7C15u : 1, alpha = whole ? 1 : 2;
    void *a = any_new(t, m * d, by, 37, 129), *b = any_new(t, d * n, by, 53, 33);
    void *c = any_new(t, m * n, 1, 1, 1);
    const ru_kern_gemm64 g = {.m = m,
                              .n = n,
                              .k = d,
                              .a = a,
                              .b = b,
                              .c = c,
                              .a_row = ta ? 1 : d,
                              .a_col = ta ? m : 1,
                              .b_row = tb ? 1 : n,
                              .b_col = tb ? d : 1,
                              .c_row = n,
                              .alpha = (double)alpha};
    const int64_t m0 = m / 3, n0 = m > 300 ? 0 : n / 4;
    any_run(level, t, &g, m0, n0);
    for (int64_t at = 0; at < m * n; at++) {
        const int64_t i = at / n, j = at % n;
        uint64_t sum = 0;
        for (int64_t p = 0; i >= m0 && j >= n0 && p < d; p++) {
            sum +=
                any_get(t, a, i * g.a_row + p * g.a_col) * any_get(t, b, p * g.b_row + j * g.b_col);
        }
        sum = t == RU_U32 ? (uint32_t)sum : alpha * sum;
        if (any_get(t, c, at) != sum) {
            fail_msg("product of %s, %dx%dx%d at %d, %d on %s: %lld, expected %lld",
                     ru_dtype_name(t), (int)m, (int)n, (int)d, (int)i, (int)j, kern_at(level)->name,
                     (long long)any_get(t, c, at), (long long)sum);
        }
    }
    free(a), free(b), free(c);
}

static const ru_dtype any_types[] = {RU_F32, RU_F64, RU_U32, RU_U64};

static void products_of_any_type_are_exact(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {
        {1, 1, 1},     {1, 37, 7},     {5, 32, 64},  {15, 47, 31},  {29, 100, 0}, {14, 90, 257},
        {13, 71, 511}, {131, 70, 300}, {1, 1, 100},  {9, 1, 3},     {23, 1, 16},  {70, 1, 45},
        {1, 50, 17},   {1, 9, 35},     {1, 4500, 9}, {3, 1, 99000}, {71, 1, 2},   {71, 1, 4},
        {90, 1, 7},    {90, 1, 8},     {71, 1, 64},  {331, 2, 4},   {331, 3, 3},  {331, 5, 5},
        {331, 9, 8},   {331, 12, 1},   {331, 12, 9}};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        for (uint32_t i = 0; kern_at(level) != NULL && i < RU_ARRAY_LEN(sizes) * 16; i++) {
            const int64_t *s = sizes[i / 16];
            if (s[2] < 2048 || any_types[i % 4] != RU_F32) { /* sums of floats have 24 bits */
                any_case(level, any_types[i % 4], s[0], s[1], s[2], i & 4, i & 8);
            }
        }
    }
}

/* An infinity reaches its own row of a column and no other, wherever it stands. */
static void columns_keep_infinities(void **state)
{
    (void)state;
    enum { ROWS = 37, MOST = 41 };
    float a[ROWS * MOST], b[MOST], c[ROWS];
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        for (int64_t at = 0; kern_at(level) != NULL && at < MOST * MOST; at++) {
            const int64_t k = at / MOST + 1, p = at % MOST;
            for (int64_t i = 0; i < ROWS * k; i++) {
                a[i] = b[i % k] = 1.0f;
            }
            if (p < k) {
                a[2 * k + p] = (float)INFINITY;
            }
            const ru_kern_gemm64 g = {ROWS, 1, k, (void *)a, (void *)b, (void *)c,
                                      k,    1, 1, 1,         1,         1.0};
            any_run(level, RU_F32, &g, 0, 0);
            for (int i = 0; i < ROWS; i++) {
                const float want = i == 2 && p < k ? (float)INFINITY : (float)k;
                assert_true(c[i] == want);
            }
        }
    }
}

RU_TESTS(exec_block, cmocka_unit_test(products_of_any_type_are_exact),
         cmocka_unit_test(columns_keep_infinities), cmocka_unit_test(batch_norm_agrees_with_double),
         cmocka_unit_test(products_agree_with_double),
         cmocka_unit_test(large_products_agree_with_double),
         cmocka_unit_test(large_products_keep_nan),
         cmocka_unit_test(bf16_products_agree_with_double),
         cmocka_unit_test(attention_agrees_with_finite_differences),
         cmocka_unit_test(cached_rows_agree_with_double),
         cmocka_unit_test(later_values_stay_unseen),
         cmocka_unit_test(reductions_are_the_same_everywhere),
         cmocka_unit_test(cross_entropy_counts_and_refuses),
         cmocka_unit_test(adam_follows_its_definition))
