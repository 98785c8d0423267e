/* Layouts: where elements stand, and which two layouts are the same bytes. Witness: oneDNN's own
 * reorders, and orders that can be told by hand. */
#include "test/test.h"

#include "exec/cpu/low/low.h"

typedef struct rig {
    ru_arena arena;
    ru_graph graph;
    rui_low lo;
} rig;

static int setup(void **state)
{
    rig *r = calloc(1, sizeof *r);
    ru_err err = {0};
    if (r == NULL) {
        return -1;
    }
    ru_arena_init(&r->arena, 0);
    assert_ok(ru_graph_init(&r->graph, &r->arena, "none", &err), err);
    assert_ok(rui_low_init(&r->lo, &r->graph, &(ru_exe_options){.device = RU_DEVICE_CPU}, true, 1,
                           NULL, &r->arena, &err),
              err);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    rig *r = *state;
    rui_low_fini(&r->lo);
    ru_arena_fini(&r->arena);
    free(r);
    return 0;
}

static const rui_layout *layout_of(rig *r, dnnl_format_tag_t tag, ru_dtype dtype, int64_t a,
                                   int64_t b, int64_t c, int64_t d)
{
    dnnl_memory_desc_t md;
    const dnnl_dims_t dims = {a, b, c, d};
    assert_int_equal(r->lo.nn.memory_desc_init_by_tag(&md, 4, dims, rui_dnnl_type(dtype), tag),
                     dnnl_success);
    const rui_layout *l = rui_layout_md(&r->lo, &md);
    assert_non_null(l);
    return l;
}

/* Element [i] of the reordered memory is where rui_layout_places says, padding included. */
static void check_places(rig *r, const rui_layout *l)
{
    ru_err err = {0};
    const rui_layout *plain = rui_plain(&r->lo, &l->type);
    int64_t n = ru_type_count(&l->type), *places[4];
    float *from = ru_arena_zalloc(&r->arena, n * 4, 64);
    float *to = ru_arena_zalloc(&r->arena, l->size_bytes, 64);
    float *back = ru_arena_zalloc(&r->arena, n * 4, 64);
    for (int64_t k = 0; k < n; k++) {
        from[k] = (float)(k + 1);
    }
    for (uint32_t d = 0; d < 4; d++) {
        places[d] = RU_NEW(&r->arena, int64_t, l->type.dims[d]);
        rui_layout_places(l, d, places[d]);
    }
    assert_ok(rui_copy_now(&r->lo, plain, from, l, to, &err), err);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = 0, left = k;
        for (uint32_t d = 4; d-- > 0;) {
            at += places[d][left % l->type.dims[d]];
            left /= l->type.dims[d];
        }
        assert_in_range(at, 0, l->size_bytes / 4 - 1);
        assert_true(to[at] == from[k]);
        to[at] = 0;
    }
    for (int64_t k = 0; k < l->size_bytes / 4; k++) {
        assert_true(to[k] == 0); /* padding is zero */
    }
    assert_ok(rui_copy_now(&r->lo, plain, from, l, to, &err), err);
    assert_ok(rui_copy_now(&r->lo, l, to, plain, back, &err), err);
    assert_memory_equal(from, back, (size_t)n * 4);
}

static void elements_stand_where_places_says(void **state)
{
    rig *r = *state;
    static const dnnl_format_tag_t tags[] = {dnnl_nchw,       dnnl_nhwc,       dnnl_nChw16c,
                                             dnnl_nChw8c,     dnnl_OIhw16i16o, dnnl_OIhw16o16i,
                                             dnnl_OIhw8i16o2i};
    static const int64_t dims[][4] = {{32, 48, 3, 2}, {20, 35, 1, 3}, {3, 1, 5, 1}};
    for (uint32_t t = 0; t < RU_ARRAY_LEN(tags); t++) {
        for (uint32_t k = 0; k < RU_ARRAY_LEN(dims); k++) {
            const int64_t *d = dims[k];
            check_places(r, layout_of(r, tags[t], RU_F32, d[0], d[1], d[2], d[3]));
        }
    }
}

/* Different orders are different pointers, the same order is one, whatever it is called. */
static void equal_bytes_are_one_pointer(void **state)
{
    rig *r = *state;
    static const dnnl_format_tag_t tags[] = {dnnl_nchw,       dnnl_nhwc,       dnnl_nChw16c,
                                             dnnl_nChw8c,     dnnl_OIhw16i16o, dnnl_OIhw16o16i,
                                             dnnl_OIhw8i16o2i};
    const rui_layout *l[RU_ARRAY_LEN(tags)];
    for (uint32_t i = 0; i < RU_ARRAY_LEN(tags); i++) {
        l[i] = layout_of(r, tags[i], RU_F32, 32, 32, 3, 3);
        assert_ptr_equal(l[i], layout_of(r, tags[i], RU_F32, 32, 32, 3, 3));
        for (uint32_t j = 0; j < i; j++) {
            assert_ptr_not_equal(l[i], l[j]);
        }
    }
    assert_ptr_equal(l[0], rui_plain(&r->lo, &l[0]->type));
    /* one picture point: channels follow each other in any of them */
    const rui_layout *point = layout_of(r, dnnl_nchw, RU_F32, 2, 512, 1, 1);
    assert_ptr_equal(layout_of(r, dnnl_nChw16c, RU_F32, 2, 512, 1, 1), point);
    assert_ptr_equal(layout_of(r, dnnl_nhwc, RU_F32, 2, 512, 1, 1), point);
    /* one block: o outside i is row-major, i outside o is not */
    const rui_layout *block = layout_of(r, dnnl_nchw, RU_F32, 16, 16, 1, 1);
    assert_ptr_equal(layout_of(r, dnnl_OIhw16o16i, RU_F32, 16, 16, 1, 1), block);
    assert_ptr_not_equal(layout_of(r, dnnl_OIhw16i16o, RU_F32, 16, 16, 1, 1), block);
    /* channels that fill no block stand apart from those that do, and are marked */
    const rui_layout *few = layout_of(r, dnnl_nChw16c, RU_F32, 2, 3, 1, 1);
    assert_ptr_not_equal(few, layout_of(r, dnnl_nchw, RU_F32, 2, 3, 1, 1));
    assert_true(few->padded && few->size_bytes == 2 * 16 * 4);
    assert_false(layout_of(r, dnnl_nChw16c, RU_F32, 2, 32, 4, 4)->padded);
}

static void layouts_change_their_type(void **state)
{
    rig *r = *state;
    const rui_layout *f = layout_of(r, dnnl_nChw16c, RU_F32, 2, 32, 4, 4);
    const rui_layout *h = rui_layout_as(&r->lo, f, RU_BF16);
    assert_int_equal(h->type.dtype, RU_BF16);
    assert_int_equal(h->size_bytes * 2, f->size_bytes);
    assert_ptr_equal(rui_layout_as(&r->lo, h, RU_F32), f);
    /* pairs of input channels for bf16 kernels; their gradients come without pairs */
    const rui_layout *pairs = layout_of(r, dnnl_OIhw8i16o2i, RU_BF16, 32, 32, 3, 3);
    assert_ptr_equal(rui_layout_master(&r->lo, pairs, RU_F32),
                     layout_of(r, dnnl_OIhw16i16o, RU_F32, 32, 32, 3, 3));
    assert_ptr_equal(rui_layout_master(&r->lo, h, RU_F32), f);
}

/* A step turns images of any size between rows and channels last as a plain loop does, whatever the
 * number of threads, and writes nothing behind them. */
static void turn_case(rig *r, ru_pool *pool, ru_dtype t, const int64_t d[4], bool to_last)
{
    const rui_layout *last = layout_of(r, dnnl_nhwc, t, d[0], d[1], d[2], d[3]);
    const rui_layout *plain = rui_plain(&r->lo, &last->type);
    const int64_t n = ru_type_count(&last->type), size = ru_dtype_bytes(t), places = d[2] * d[3];
    uint8_t *from = ru_arena_zalloc(&r->arena, n * size, 64);
    uint8_t *to = ru_arena_zalloc(&r->arena, n * size + 1, 64);
    for (int64_t k = 0; k < n * size; k++) {
        from[k] = (uint8_t)((uint64_t)k * 0x9e3779b97f4a7c15u >> 56);
    }
    to[n * size] = 0xa5;
    rui_step step;
    assert_int_equal(rui_reorder_step(&r->lo, to_last ? plain : last, (rui_buf){0},
                                      to_last ? last : plain, (rui_buf){0}, &step),
                     RU_OK);
    assert_string_equal(step.kernel, "kern reorder");
    void *bufs[2] = {from, to};
    assert_int_equal(step.fn(step.state, bufs, &(rui_run){.pool = pool}), RU_OK);
    for (int64_t k = 0; k < n; k++) {
        const int64_t image = k / (d[1] * places), c = k / places % d[1], p = k % places;
        const int64_t at = (image * places + p) * d[1] + c;
        assert_memory_equal(to + (to_last ? at : k) * size, from + (to_last ? k : at) * size,
                            (size_t)size);
    }
    assert_int_equal(to[n * size], 0xa5);
}

static void images_turn_as_a_loop_does(void **state)
{
    rig *r = *state;
    static const ru_dtype types[] = {RU_U8, RU_BF16, RU_F32};
    static const int64_t dims[][4] = {{1, 2, 1, 3},  {3, 5, 7, 9},   {2, 17, 1, 65}, {1, 3, 37, 41},
                                      {2, 64, 8, 8}, {5, 33, 13, 5}, {1, 130, 2, 1}};
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        ru_pool *pool = NULL;
        ru_err err = {0};
        assert_ok(ru_pool_new(threads, &pool, &err), err);
        r->lo.threads = threads;
        for (uint32_t k = 0; k < RU_ARRAY_LEN(dims) * RU_ARRAY_LEN(types) * 2; k++) {
            turn_case(r, pool, types[k / 2 % RU_ARRAY_LEN(types)],
                      dims[k / 2 / RU_ARRAY_LEN(types)], k % 2 == 0);
        }
        ru_pool_free(pool);
    }
    r->lo.threads = 1;
}

/* Blocks of channels, some of them padded, stay with oneDNN. */
static void blocks_are_no_images(void **state)
{
    rig *r = *state;
    const rui_layout *few = layout_of(r, dnnl_nChw16c, RU_F32, 2, 19, 3, 5);
    const rui_layout *plain = rui_plain(&r->lo, &few->type);
    rui_step step;
    assert_int_equal(rui_reorder_step(&r->lo, plain, (rui_buf){0}, few, (rui_buf){0}, &step),
                     RU_OK);
    assert_string_equal(step.kernel, "dnnl reorder");
    step.fini(step.state);
}

#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

RU_TESTS(exec_layout, RIG_TEST(elements_stand_where_places_says),
         RIG_TEST(equal_bytes_are_one_pointer), RIG_TEST(layouts_change_their_type),
         RIG_TEST(images_turn_as_a_loop_does), RIG_TEST(blocks_are_no_images))
