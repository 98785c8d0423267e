/* Where rows are. A table's rows are cut into blocks of about block_bytes, and a block belongs to
 * the shard that its hash names: which rows a lost shard takes along is random, so its loss is the
 * smallest perturbation that is possible without knowing which (qiao-2019). */
#include "base/hash.h"
#include "comm/ps/ps_impl.h"

static ru_status check(const ru_ps_options *o, ru_err *err)
{
    if (o->n_tables < 1 || o->n_tables > RU_PS_TABLES_MAX || o->n_shards < 1 ||
        o->n_shards > RU_PS_SHARDS_MAX || o->n_executors < 1 ||
        o->n_executors > RU_PS_EXECUTORS_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "a store has 1 to %d tables, 1 to %d shards and 1 to %d executors; it was "
                       "given %u, %u and %u",
                       RU_PS_TABLES_MAX, RU_PS_SHARDS_MAX, RU_PS_EXECUTORS_MAX, o->n_tables,
                       o->n_shards, o->n_executors);
    }
    int64_t rows = 0;
    for (uint32_t t = 0; t < o->n_tables; t++) {
        const ru_ps_table *x = &o->tables[t];
        if (x->rows < 1 || x->rows > UINT32_MAX / 2 || x->width < 1 || x->width > 1 << 20 ||
            x->extra > 1 << 20) {
            return RU_FAIL(err, RU_E_LIMIT,
                           "table %u has %lld rows of %u floats; 1 to %u rows of 1 to %d are "
                           "possible",
                           t, (long long)x->rows, x->width, UINT32_MAX / 2, 1 << 20);
        }
        rows += x->rows;
    }
    if (rows > UINT32_MAX / 2) {
        return RU_FAIL(err, RU_E_LIMIT, "all tables have %lld rows; at most %u are possible",
                       (long long)rows, UINT32_MAX / 2);
    }
    return RU_OK;
}

static bool rotates(const ru_ps_options *o)
{
    bool any = false;
    for (uint32_t t = 0; t < o->n_tables; t++) {
        any = any || o->tables[t].cut != NULL;
    }
    return any;
}

static ru_status check_cut(const ru_ps_options *o, ru_err *err)
{
    for (uint32_t t = 0; t < o->n_tables; t++) {
        const ru_ps_table *x = &o->tables[t];
        for (uint32_t e = 0; x->cut != NULL && e < o->n_executors; e++) {
            if (x->cut[0] != 0 || x->cut[e] > x->cut[e + 1] || x->cut[o->n_executors] != x->rows) {
                return RU_FAIL(err, RU_E_ARG,
                               "the %u blocks of table %u do not cover its %lld rows in order",
                               o->n_executors, t, (long long)x->rows);
            }
        }
    }
    return RU_OK;
}

static void count(const ru_ps_options *o, rui_ps_place *p)
{
    int64_t bytes = o->block_bytes > 0 ? o->block_bytes : 4096;
    for (uint32_t t = 0; t < o->n_tables; t++) {
        const ru_ps_table *x = &o->tables[t];
        int64_t rows = bytes / (4 * (int64_t)x->width);
        rows = rows < 1 ? 1 : rows > x->rows ? x->rows : rows;
        bool whole = x->cut != NULL;
        p->table[t] = *x;
        p->block_rows[t] = whole ? 0 : (uint32_t)rows;
        p->first[t + 1] = p->first[t] + (uint32_t)x->rows;
        p->block_first[t + 1] =
            p->block_first[t] + (whole ? o->n_executors : (uint32_t)((x->rows + rows - 1) / rows));
    }
    p->n_tables = o->n_tables;
    p->n_spread = o->n_shards;
    p->n_shards = o->n_shards + (rotates(o) ? o->n_executors : 0);
    p->n_rows = p->first[o->n_tables];
    p->n_blocks = p->block_first[o->n_tables];
}

/* First row of each block, and its shard. */
static void cut(const ru_ps_options *o, rui_ps_place *p)
{
    for (uint32_t t = 0; t < p->n_tables; t++) {
        for (uint32_t b = p->block_first[t]; b < p->block_first[t + 1]; b++) {
            uint32_t k = b - p->block_first[t];
            const uint64_t key[2] = {o->seed, b};
            bool whole = p->block_rows[t] == 0;
            p->block_row[b] =
                p->first[t] + (whole ? (uint32_t)p->table[t].cut[k] : k * p->block_rows[t]);
            p->shard[b] = whole ? p->n_spread + k
                                : (uint32_t)(ru_hash_bytes(key, sizeof key, 0) % p->n_spread);
        }
    }
    p->block_row[p->n_blocks] = p->n_rows;
}

ru_status rui_ps_place_open(const ru_ps_options *opt, ru_arena *arena, rui_ps_place *p, ru_err *err)
{
    RU_TRY(check(opt, err));
    RU_TRY(check_cut(opt, err));
    *p = (rui_ps_place){0};
    count(opt, p);
    p->shard = RU_NEW(arena, uint32_t, p->n_blocks);
    p->offset = RU_NEW(arena, int64_t, p->n_blocks);
    p->block = RU_NEW(arena, uint32_t, p->n_blocks);
    p->block_row = RU_NEW(arena, uint32_t, p->n_blocks + 1);
    p->shard_first = RU_NEW(arena, uint32_t, p->n_shards + 2);
    p->shard_floats = RU_NEW(arena, int64_t, p->n_shards);
    if (p->shard == NULL || p->offset == NULL || p->block == NULL || p->block_row == NULL ||
        p->shard_first == NULL || p->shard_floats == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the places of %u blocks", p->n_blocks);
    }
    cut(opt, p);
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        uint32_t s = p->shard[b], table = rui_ps_block_table(p, b);
        p->offset[b] = p->shard_floats[s];
        p->shard_floats[s] +=
            (int64_t)(p->block_row[b + 1] - p->block_row[b]) * rui_ps_stride(p, table);
        p->shard_first[s + 2]++;
    }
    for (uint32_t s = 0; s < p->n_shards; s++) {
        p->shard_first[s + 2] += p->shard_first[s + 1];
    }
    for (uint32_t b = 0; b < p->n_blocks; b++) { /* afterwards shard_first[s] is where s begins */
        p->block[p->shard_first[p->shard[b] + 1]++] = b;
    }
    return RU_OK;
}

uint32_t rui_ps_block_table(const rui_ps_place *p, uint32_t block)
{
    uint32_t t = 0;
    while (block >= p->block_first[t + 1]) {
        t++;
    }
    return t;
}

uint32_t rui_ps_block_cut(const rui_ps_place *p, uint32_t table, uint32_t row)
{
    uint32_t lo = p->block_first[table], hi = p->block_first[table + 1]; /* the last not after it */
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        lo = p->block_row[mid] <= row ? mid : lo;
        hi = p->block_row[mid] <= row ? hi : mid;
    }
    return lo;
}
