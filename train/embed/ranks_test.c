/* Ranks of a group in one process, each on a thread of its own, over loopback. */
#include "train/embed/ranks.h"

#include <string.h>

#include "base/rng.h"
#include "env/thread.h"
#include "test/test.h"
#include "train/embed/ranks_cut.h"

enum { RANKS = 3, LARGEST = 2600000 };
#define WAIT_NS INT64_C(300000000000)

static const int64_t sizes[] = {1, 7, 1000, 1025, 70000, LARGEST};

/* What rank r gives as element i of call c: small whole numbers, whose sums are exact. */
static float given(uint32_t r, uint32_t c, int64_t i)
{
    return (float)((i * 7 + r * 13 + c * 3) % 101);
}

typedef struct rank {
    ru_thread thread;
    uint32_t rank;
    char join[128];
    ru_ranks *g;
    float *data;
    int64_t wrong;
    ru_status st;
    ru_err err;
} rank;

static ru_status call(rank *k, ru_coll_op op, ru_dtype dtype, uint32_t root, void *data, int64_t n)
{
    uint64_t no;
    RU_TRY(ru_ranks_begin(k->g, op, dtype, root, data, n, &no, &k->err));
    return ru_ranks_wait(k->g, no, WAIT_NS, &k->err);
}

static void fill(rank *k, uint32_t c, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        k->data[i] = given(k->rank, c, i);
    }
}

static ru_status all_ops(rank *k, uint32_t c, int64_t n)
{
    fill(k, c, n);
    RU_TRY(call(k, RU_COLL_ALL_REDUCE, RU_F32, 0, k->data, n));
    for (int64_t i = 0; i < n; i++) {
        k->wrong += k->data[i] != given(0, c, i) + given(1, c, i) + given(2, c, i);
    }
    fill(k, c, n);
    RU_TRY(call(k, RU_COLL_BROADCAST, RU_U8, c % RANKS, k->data, 4 * n - 1));
    for (int64_t i = 0; i < n - 1; i++) {
        k->wrong += k->data[i] != given(c % RANKS, c, i);
    }
    int64_t part = n / RANKS;
    for (int64_t i = 0; i < part; i++) {
        k->data[k->rank * part + i] = given(k->rank, c, i);
    }
    RU_TRY(call(k, RU_COLL_ALL_GATHER, RU_U8, 0, k->data, 4 * part));
    for (int64_t i = 0; i < RANKS * part; i++) {
        k->wrong += k->data[i] != given((uint32_t)(i / part), c, i % part);
    }
    fill(k, c, n);
    RU_TRY(call(k, RU_COLL_REDUCE_SCATTER, RU_F32, 0, k->data, part));
    for (int64_t i = k->rank * part; i < (k->rank + 1) * part; i++) {
        k->wrong += k->data[i] != given(0, c, i) + given(1, c, i) + given(2, c, i);
    }
    return call(k, RU_COLL_BARRIER, RU_F32, 0, NULL, 0);
}

static ru_status work(rank *k)
{
    RU_TRY(ru_ranks_meet(k->g, WAIT_NS, &k->err));
    for (uint32_t c = 0; c < RU_ARRAY_LEN(sizes); c++) {
        RU_TRY(all_ops(k, c, sizes[c]));
    }
    return RU_OK;
}

static void run(void *self)
{
    rank *k = self;
    k->st = work(k);
}

static void open_rank(rank *all, uint32_t r)
{
    const ru_ranks_options opt = {.join = r > 0 ? ru_ranks_address(all[0].g) : NULL,
                                  .token = "0123456789abcdef",
                                  .rank = r,
                                  .n_ranks = RANKS};
    all[r].rank = r;
    assert_ok(ru_ranks_open(&opt, &all[r].g, &all[r].err), all[r].err);
}

static void collectives_are_right(void **state)
{
    (void)state;
    static rank all[RANKS];
    ru_err err;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        open_rank(all, r);
        all[r].data = RU_NEW(&arena, float, LARGEST);
        assert_non_null(all[r].data);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_ok(ru_thread_start(&all[r].thread, "rank", run, &all[r], &err), err);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        ru_thread_join(&all[r].thread);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_ok(all[r].st, all[r].err);
        assert_int_equal(all[r].wrong, 0);
    }
    /* One closes: what the others wait for ends, and its rank is named. */
    ru_ranks_close(all[1].g);
    uint64_t no;
    ru_status st =
        ru_ranks_begin(all[0].g, RU_COLL_ALL_REDUCE, RU_F32, 0, all[0].data, 9, &no, &err);
    st = st == RU_OK ? ru_ranks_wait(all[0].g, no, WAIT_NS, &err) : st;
    assert_int_equal(st, RU_E_PEER);
    assert_non_null(strstr(err.text, "rank 1 ("));
    ru_ranks_close(all[0].g);
    ru_ranks_close(all[2].g);
    ru_arena_fini(&arena);
}

/* Pieces cover every byte once, in order, and no piece but one of the smallest size is padded. */
static void pieces_cover_all(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(5, 0);
    for (uint32_t k = 0; k < 3000; k++) {
        int64_t n_bytes = k < 9 ? k : (int64_t)ru_rng_below_u64(&rng, UINT64_C(1) << (k % 28));
        rui_ranks_piece cut[RUI_RANKS_CUT_MAX];
        int64_t at = 0;
        uint32_t n = 0;
        do {
            uint32_t m = rui_ranks_cut(at, n_bytes, cut);
            n += m;
            for (uint32_t i = 0; i < m; i++) {
                int64_t whole = (int64_t)RUI_RANKS_LEAST << 2 * cut[i].size;
                assert_int_equal(cut[i].at, at);
                assert_true(cut[i].size_bytes == whole ||
                            (cut[i].size == 0 && cut[i].size_bytes < whole));
                at += cut[i].size_bytes;
            }
        } while (at < n_bytes);
        assert_int_equal(at, n_bytes);
        assert_int_equal(n, rui_ranks_pieces(n_bytes));
    }
}

RU_TESTS(train_ranks, cmocka_unit_test(collectives_are_right), cmocka_unit_test(pieces_cover_all))
