/* Tables that count what executors hold, after members died.
 *
 *   leader     begins a generation at the clock that is open, with no checkpoint: RU_ENGINE_COUNTED
 *   shard      has first values
 *   executor   goes on with the state that it has; one that was lost is opened with the newest
 *              state that was saved, of any generation (engine_recover.c)
 *   task       of that clock has `recount` set, and adds all that the state of its executor says
 *
 *   later task reads its rows when that clock is closed, whatever the slack
 *
 * So the tables agree with the states again when that clock closes, whatever was lost and from
 * where the states are; the clock itself, and what the lost executors did since they were saved,
 * are the loss. Nothing of the generation before is heard any more.
 *
 * Every executor is marked as moved and lost: a member that has it keeps it, another one rebuilds
 * it. That is right for a member that missed some views, too: any of its states will do.
 *
 * Source: qiao-2019 (partial recovery); counting again is ours. */
#include <string.h>

#include "train/engine/engine_impl.h"

bool rui_count_is(const ru_engine *e)
{
    return e->base.generation == RU_ENGINE_COUNTED;
}

bool rui_count_may(const ru_engine *e, const ru_node_id *nodes, uint32_t n)
{
    bool any = false, driver = e->opt.ops->drive != NULL; /* its state is that of this leader */
    if (!e->counts || e->generation == 0 || e->closed == 0 || e->copies.n_keepers > 0 ||
        ru_member_view(e->opt.member)->epoch != e->epoch ||
        (driver && (e->lead.renew || e->lead.reading))) {
        return false;
    }
    for (uint32_t k = 0; k < e->n_execs; k++) {
        any = any || rui_among(nodes, n, e->holder[k]);
    }
    return any;
}

ru_engine_ckpt rui_count_from(ru_engine *e, const ru_node_id *nodes, uint32_t n,
                              ru_engine_ckpt newest, ru_time now)
{
    e->saved = newest;
    for (uint32_t k = 0; k < e->n_execs; k++) {
        e->lead.lost[k] = !rui_among(nodes, n, e->holder[k]);
    }
    e->lead.lost_at = now;
    /* The end of the job has to be done again: a clock that is counted trains nothing. */
    uint32_t last = e->opt.clocks - 1;
    return (ru_engine_ckpt){RU_ENGINE_COUNTED, e->closed < last ? e->closed : last};
}

uint32_t rui_count_need(const ru_engine *e, uint32_t need)
{
    uint32_t whole = e->base.clock + 1;
    return rui_count_is(e) && need < whole ? whole : need;
}

void rui_count_begin(ru_engine *e)
{
    for (uint32_t k = 0; k < e->n_execs; k++) {
        e->lead.rebuilt[k].rows = e->lead.lost[k] ? -1 : 0;
    }
}

void rui_count_execs(ru_engine *e)
{
    for (uint32_t k = 0; k < e->n_execs; k++) {
        rui_exec *x = &e->exec[k];
        bool mine = ru_node_is(e->holder[k], e->opt.self);
        bool goes_on = rui_count_is(e) && mine && x->want == RUI_WANT_READY && x->state != NULL;
        rui_exec_reset(e, k);
        if (goes_on) {
            rui_exec_at(e, k, e->closed);
            x->want = RUI_WANT_READY;
        } else if (mine && !e->moved[k]) {
            x->want = RUI_WANT_RESTORE;
        }
    }
}

uint32_t rui_count_since(const ru_engine *e)
{
    bool any = e->counts && (e->saved.generation == 0 || e->saved.generation == RU_ENGINE_GIVEN);
    return any ? 0 : e->counts ? e->saved.generation : e->generation;
}
