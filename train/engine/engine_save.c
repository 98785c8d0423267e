/* The running checkpoint of a member: after some clocks it appends some blocks of its shards, and
 * some of its executors that stand between two clocks, to its log (store/shardlog.h), while the
 * work goes on. plan/crew/save chooses the blocks. What is stored counts as saved only when the log
 * says so.
 *
 * First values need no saving. A generation that begins with a checkpoint first saves all that the
 * process holds, because that checkpoint may be removed. A record's object is a shard or an
 * executor, its clock that of the shard (rows that rotate: the step). */
#include <math.h>
#include <string.h>

#include "store/shardlog.h"
#include "train/engine/engine_impl.h"

enum { CLOCKS = 8 };
#define FRACTION 0.125

typedef struct block {
    const float *value;
    int64_t floats;
    uint32_t block, shard, closed;
} block;

void rui_saver_reset(ru_engine *e)
{
    rui_saver *s = &e->saver;
    s->begun = false;
    s->clock = e->closed;
    s->cursor = s->turn = 0;
    ru_bufs_put(e->bufs, s->bytes); /* an answer that is under way finds nothing */
    s->bytes = NULL;
}

void rui_saver_close(ru_engine *e)
{
    ru_arena_fini(&e->saver.out);
}

/* No checkpoint is of an earlier clock than one that was valid before it. */
bool rui_engine_newer(ru_engine_ckpt a, ru_engine_ckpt than)
{
    return a.generation != 0 && (than.generation == 0 || a.clock > than.clock ||
                                 (a.clock == than.clock && a.generation > than.generation));
}

/* Blocks of shards that are here, and how far each has moved: unsaved ones farther than all others.
 */
static uint32_t blocks_here(ru_engine *e, block *b, double *moved)
{
    bool caches = e->opt.recover == RU_RECOVER_NEWEST;
    uint32_t n = 0;
    double most = 0;
    for (uint32_t k = 0; k < ru_ps_blocks(e->ps); k++) {
        b[n].value = ru_ps_block(e->ps, k, &b[n].floats, &b[n].shard, &b[n].closed);
        if (b[n].value != NULL) {
            double d = ru_ps_block_moved(e->ps, k, caches);
            moved[n] = d > 1e150 ? 1e150 : d;
            most = moved[n] > most ? moved[n] : most;
            b[n++].block = k;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        moved[k] = moved[k] >= 0 ? moved[k] : 2 * most + 1;
    }
    return n;
}

/* Executors whose state is between two clocks, as bytes: those whose turn it is. */
static uint32_t executors(ru_engine *e, uint32_t most, uint32_t *which, void **bytes, int64_t *size)
{
    uint32_t n = 0, from = e->saver.turn;
    for (uint32_t i = 0; i < e->n_execs && n < most; i++) {
        uint32_t k = (from + i) % e->n_execs;
        const rui_exec *x = &e->exec[k];
        bool still = x->busy == RUI_IDLE || x->busy == RUI_FETCHES;
        if (!x->mine || x->want != RUI_WANT_READY || x->state == NULL || !still ||
            x->step % e->opt.shape->rounds != 0) {
            continue;
        }
        bytes[n] = rui_exec_pack(e, k, &size[n]);
        if (bytes[n] == NULL) {
            break; /* bounded memory: it has its turn again */
        }
        which[n++] = k;
        e->saver.turn = k + 1;
    }
    return n;
}

static uint32_t executors_here(const ru_engine *e)
{
    uint32_t n = 0;
    bool saves = rui_exec_stateful(e) && e->opt.ops->recount != RU_APP_RECOUNT_DRIVER;
    for (uint32_t k = 0; k < e->n_execs && saves; k++) {
        n += e->exec[k].mine && e->exec[k].want == RUI_WANT_READY ? 1 : 0;
    }
    return n;
}

/* Records of all that is chosen; NULL: no memory. */
static uint8_t *records(ru_engine *e, const block *b, const ru_save_plan *p, const uint32_t *which,
                        void *const *states, const int64_t *size, uint32_t n_states, int64_t *n)
{
    *n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        *n += ru_shardlog_bytes(4 * b[p->block[i]].floats);
    }
    for (uint32_t i = 0; i < n_states; i++) {
        *n += ru_shardlog_bytes(size[i]);
    }
    uint8_t *out = *n > 0 ? ru_bufs_get(e->bufs, *n) : NULL, *at = out;
    ru_shardlog_record r = {.generation = e->generation, .first = !e->saver.begun};
    for (uint32_t i = 0; out != NULL && i < p->n; i++) {
        const block *x = &b[p->block[i]];
        r.object = e->n_execs + x->shard;
        r.block = x->block;
        r.clock = x->closed;
        r.n = 4 * x->floats;
        r.bytes = x->value;
        ru_shardlog_put(&r, at);
        at += ru_shardlog_bytes(r.n);
    }
    for (uint32_t i = 0; out != NULL && i < n_states; i++) {
        r.object = which[i];
        r.block = 0;
        r.clock = rui_exec_clock(e, which[i]);
        r.n = size[i];
        r.bytes = states[i];
        ru_shardlog_put(&r, at);
        at += ru_shardlog_bytes(r.n);
    }
    return out;
}

/* How many of `n` this time: as much as a fraction of a checkpoint of them takes, heads of records
 * included, and as many fractions as are due, because the one before was being stored meanwhile.
 * Whole ones, and the rest is owed to the next save, so that all methods write as much. ratio:
 * bytes in a checkpoint over those of records. */
static uint32_t how_many(const ru_engine *e, uint32_t n, double ratio, double *owed)
{
    const ru_engine_saves *o = &e->opt.saves;
    if (!e->saver.begun || o->method == RU_SAVE_FULL) {
        return n;
    }
    if (o->method == RU_SAVE_NONE) {
        return 0;
    }
    double due = e->saver.due * (o->fraction > 0 ? o->fraction : FRACTION);
    double want = (due < 1 ? due : 1) * n * ratio + *owed, whole = floor(want + 1e-9);
    *owed = want - whole;
    return whole < n ? (uint32_t)whole : n;
}

/* Bytes of the shards here in a checkpoint, over those of records of all their blocks. */
static double ratio_of(const ru_engine *e, const block *b, uint32_t n)
{
    int64_t full = 0, records = 0;
    for (uint32_t s = 0; s < e->n_shards; s++) {
        full += ru_ps_shard_here(e->ps, s) ? ru_ps_shard_save_bytes(e->ps, s) : 0;
    }
    for (uint32_t k = 0; k < n; k++) {
        records += ru_shardlog_bytes(4 * b[k].floats);
    }
    return records > 0 ? (double)full / (double)records : 1;
}

/* A job that begins from nothing: first values are those that are lost least. */
static void begin(ru_engine *e)
{
    for (uint32_t k = 0; k < ru_ps_blocks(e->ps) && !e->counts; k++) {
        ru_ps_block_first(e->ps, k);
    }
    e->saver.begun = true;
}

static ru_status choose(ru_engine *e, const double *moved, uint32_t n, double ratio, ru_arena *out,
                        ru_save_plan *p, ru_time now, ru_err *err)
{
    rui_saver *s = &e->saver;
    const ru_engine_saves *o = &e->opt.saves;
    uint32_t most = how_many(e, n, ratio, &s->owed_blocks);
    ru_save_in in = {.distance = moved,
                     .n = n,
                     .fraction = n > 0 ? (double)most / n : 0,
                     .cursor = n > 0 ? s->cursor % n : 0,
                     .seed = (uint64_t)s->count << 32 | e->generation,
                     .lost = RU_SAVE_LOST,
                     .run = RU_SAVE_RUN,
                     .method = s->begun ? (ru_save_method)o->method : RU_SAVE_FULL};
    *p = (ru_save_plan){.cursor = in.cursor};
    if (most == 0) {
        return RU_OK;
    }
    RU_TRY(ru_plan_save(&in, out, p, err));
    RU_TRY(ru_plan_save_check(&in, p, out, err));
    if (e->opt.saving != NULL) {
        e->opt.saving(e->opt.news_self, &in, s->count, now);
    }
    return RU_OK;
}

static ru_status save(ru_engine *e, ru_time now, ru_err *err)
{
    rui_saver *s = &e->saver;
    ru_arena_rewind(&s->out, (ru_arena_mark){0});
    uint32_t blocks = ru_ps_blocks(e->ps);
    block *b = RU_NEW(&s->out, block, blocks + 1);
    double *moved = RU_NEW(&s->out, double, blocks + 1);
    void **states = RU_NEW(&s->out, void *, e->n_execs);
    int64_t *size = RU_NEW(&s->out, int64_t, e->n_execs);
    uint32_t *which = RU_NEW(&s->out, uint32_t, e->n_execs);
    if (b == NULL || moved == NULL || states == NULL || size == NULL || which == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to choose among %u blocks", blocks);
    }
    ru_save_plan p;
    bool known = e->base.generation == 0 || rui_count_is(e); /* older records are still there */
    if (!s->begun && known && e->opt.saves.method != RU_SAVE_FULL) {
        begin(e);
    }
    uint32_t n = e->counts ? 0 : blocks_here(e, b, moved), here = executors_here(e);
    RU_TRY(choose(e, moved, n, ratio_of(e, b, n), &s->out, &p, now, err));
    uint32_t n_states = executors(e, how_many(e, here, 1, &s->owed_states), which, states, size);
    s->bytes = records(e, b, &p, which, states, size, n_states, &s->n);
    for (uint32_t i = 0; i < n_states; i++) {
        ru_bufs_put(e->bufs, states[i]);
    }
    if (s->bytes == NULL) {
        return s->n == 0
                   ? RU_OK
                   : RU_FAIL(err, RU_E_MEM, "no memory for %lld bytes of the running checkpoint",
                             (long long)s->n);
    }
    s->cursor = p.cursor;
    s->count++;
    s->begun = true;
    s->at = now;
    e->opt.device->log(e->opt.device_self, e->generation, rui_count_since(e), s->bytes, s->n);
    return RU_OK;
}

void rui_saver_look(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_saver *s = &e->saver;
    const ru_engine_saves *o = &e->opt.saves;
    uint32_t clocks = o->clocks > 0 ? o->clocks : CLOCKS;
    double fraction = o->method == RU_SAVE_FULL ? 1 : o->fraction > 0 ? o->fraction : FRACTION;
    uint32_t every = (uint32_t)(fraction * clocks + 0.5);
    ru_err err;
    if ((!e->opt.partial && !e->counts) || e->ended || s->bytes != NULL || now.ns < s->next.ns ||
        (s->begun && e->closed < s->clock + (every > 0 ? every : 1))) {
        return;
    }
    s->due = s->begun && every > 0 ? (double)(e->closed - s->clock) / every : 1;
    s->clock = e->closed;
    if (save(e, now, &err) != RU_OK) {
        ru_fx_log(fx, RU_LOG_WARN, "the running checkpoint leaves out clock %u: %s", e->closed,
                  err.text);
    }
}

/* These blocks are stored: distances are counted from them. */
static void stored(ru_engine *e)
{
    ru_shardlog_record r;
    for (int64_t at = 0; ru_shardlog_next(e->saver.bytes, e->saver.n, &at, &r);) {
        if (r.object >= e->n_execs) {
            ru_ps_block_saved(e->ps, r.block, r.bytes);
        }
    }
}

void ru_engine_logged(ru_engine *e, uint32_t generation, int64_t busy_ns, ru_status st,
                      const char *why, ru_time now, ru_effects *fx)
{
    rui_saver *s = &e->saver;
    if (generation != e->generation || s->bytes == NULL || e->ended) {
        return;
    }
    if (st == RU_OK) {
        stored(e);
        e->facts.logged_bytes += s->n;
        rui_engine_news(e,
                        &(ru_engine_news){.kind = RU_ENGINE_LOGGED,
                                          .clock = s->clock,
                                          .bytes = s->n,
                                          .took_ns = now.ns - s->at.ns},
                        now);
    } else { /* the work goes on; what is stored is older */
        ru_fx_log(fx, RU_LOG_WARN, "the running checkpoint could not be written: %s", why);
    }
    if (e->opt.saves.cost_max > 0) {
        s->next = ru_time_after(s->at, (int64_t)((double)busy_ns / e->opt.saves.cost_max));
    }
    ru_bufs_put(e->bufs, s->bytes);
    s->bytes = NULL;
}
