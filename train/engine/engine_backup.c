/* Executors in backup: a clock closes when all but a few executors are done with it, and what the
 * others change in it counts for nothing.
 *
 *   leader    all but `backup` are done: the clock closes; CLOCK names those that were left out
 *   shards    leave out what these sent of the clock, and take nothing of it any more
 *   executor  that was left out: drops its task, goes on with the clock that is open
 *
 * All shards leave out the same, because what they hold is merged when they close the clock, and
 * whoever closes a clock knows by then who was left out. An executor is left out of so many clocks
 * in a row at most, so that its data are learned as well and it is never far behind. A leader that
 * begins from a checkpoint counts them anew.
 *
 * Source: flexrr-2016 (as a rival of reassignment). */
#include <string.h>

#include "train/engine/engine_impl.h"

enum {
    IN_A_ROW_MAX = 16,
    TOLD_CLOCKS =
        48, /* CLOCK names those of so many clocks: whoever hears it may have missed some */
};
_Static_assert(IN_A_ROW_MAX < TOLD_CLOCKS && TOLD_CLOCKS < (int)RU_PS_LEFT_OUT_CLOCKS,
               "nobody who takes part is farther behind");

typedef struct left_out {
    uint32_t executor, clock;
} left_out;

struct rui_backup {
    uint32_t *in_a_row; /* leader: [executors] clocks */
    left_out *told;     /* leader: [n] the oldest first */
    uint32_t n, last;   /* last: of the clock that was closed last */
};

ru_status rui_backup_open(ru_engine *e, ru_err *err)
{
    const ru_engine_options *o = &e->opt;
    const char *why = o->shape->whole != NULL ? o->shape->whole
                      : o->ops->drive != NULL ? "its driver decides by the changes of all executors"
                                              : NULL;
    if (why != NULL) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "app '%s' cannot lose changes of executors that are late, because %s: set "
                       "clocks.stragglers to wait",
                       o->ops->name, why);
    }
    if (o->driver != RU_ENGINE_BSP) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "clocks.stragglers is backup, which needs clocks.order bsp: with ssp and "
                       "async shards have merged the changes of late executors");
    }
    if (o->backup < 1 || o->backup >= e->n_execs) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "clocks.backup is %u; with %u executors a clock can close without 1 to %u",
                       o->backup, e->n_execs, e->n_execs > 0 ? e->n_execs - 1 : 0);
    }
    struct rui_backup *b = e->backup = RU_NEW(e->arena, struct rui_backup, 1);
    if (b != NULL) {
        b->in_a_row = RU_NEW(e->arena, uint32_t, e->n_execs);
        b->told = RU_NEW(e->arena, left_out, (int64_t)o->backup * (TOLD_CLOCKS + 1));
    }
    return b != NULL && b->in_a_row != NULL && b->told != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for %u executors in backup", o->backup);
}

void rui_backup_begin(ru_engine *e)
{
    if (e->backup != NULL) {
        e->backup->n = e->backup->last = 0;
        memset(e->backup->in_a_row, 0, e->n_execs * sizeof *e->backup->in_a_row);
    }
}

bool rui_backup_may_close(const ru_engine *e)
{
    const rui_lead *l = &e->lead;
    uint32_t missing = 0;
    for (uint32_t k = 0; k < e->n_execs; k++) {
        if (l->done[k] > l->closed) {
            continue;
        }
        /* It saves itself at the beginning of the clock, so it must come to that. */
        bool saves = l->save == l->closed + 1 && !l->stored[k];
        if (e->backup == NULL || saves || e->backup->in_a_row[k] == IN_A_ROW_MAX) {
            return false;
        }
        missing++;
    }
    return missing == 0 || missing <= e->opt.backup;
}

void rui_backup_close(ru_engine *e)
{
    rui_lead *l = &e->lead;
    struct rui_backup *b = e->backup;
    if (b == NULL) {
        return;
    }
    uint32_t old = 0;
    while (old < b->n && b->told[old].clock + TOLD_CLOCKS <= l->closed) {
        old++;
    }
    b->n -= old;
    b->last = 0;
    memmove(b->told, b->told + old, b->n * sizeof *b->told);
    for (uint32_t k = 0; k < e->n_execs; k++) {
        bool out = l->done[k] <= l->closed;
        b->in_a_row[k] = out ? b->in_a_row[k] + 1 : 0;
        if (out) {
            b->told[b->n++] = (left_out){k, l->closed};
            b->last++;
            l->done[k] = l->closed + 1; /* DONE that comes later is not heard */
            memset(l->sums + (l->closed % e->window * e->n_execs + k) * e->sums_n, 0,
                   (size_t)e->sums_n * sizeof *l->sums);
        }
    }
}

uint32_t rui_backup_last(const ru_engine *e)
{
    return e->backup != NULL ? e->backup->last : 0;
}

const void *rui_backup_list(const ru_engine *e, int64_t *n)
{
    *n = e->backup->n * (int64_t)sizeof(left_out);
    return e->backup->told;
}

void rui_backup_heard(ru_engine *e, uint32_t clock, const void *list, int64_t n)
{
    const int64_t size = sizeof(left_out);
    for (int64_t at = 0; e->backup != NULL && clock > e->closed && at + size <= n; at += size) {
        left_out x;
        memcpy(&x, (const uint8_t *)list + at, sizeof x);
        if (x.executor < e->n_execs && x.clock < clock) {
            ru_ps_leave_out(e->ps, x.executor, x.clock);
        }
    }
}

bool rui_backup_late(const ru_engine *e, uint32_t k)
{
    return e->backup != NULL && e->exec[k].step < e->closed;
}

void rui_backup_skip(ru_engine *e, uint32_t k)
{
    if (rui_backup_late(e, k)) {
        e->exec[k].step = e->closed;
        e->exec[k].cpu_ns = 0;
    }
}
