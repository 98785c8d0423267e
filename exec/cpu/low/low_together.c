/* One arena for several lowered graphs whose phases take turns (exec/together.h): their lifetimes,
 * counted over the steps of all turns, go through the planner of plan/step/mem.h at once. */
#include <string.h>

#include "env/process/memory.h"
#include "exec/cpu/low/low.h"

#define NONE UINT32_MAX

typedef struct joiner {
    uint32_t *begin;  /* [n, 3] step of all turns at which a phase begins; NONE: it is no turn */
    uint32_t *end;    /* [n] the last one of its turns */
    uint32_t n_steps; /* of all turns, at least 1 */
    ru_mem_buf *bufs; /* [n_bufs] */
    uint32_t *which;  /* [n_bufs] root in its graph */
    uint32_t *first;  /* [n + 1] of each graph's */
    ru_mem_plan plan;
} joiner;

static void phase_of(const rui_low *lo, ru_phase phase, uint32_t *begin, uint32_t *end)
{
    bool forward = phase == RU_PHASE_FORWARD, back = phase == RU_PHASE_BACKWARD;
    *begin = forward ? 0 : back ? lo->backward_from : lo->update_from;
    *end = forward ? lo->backward_from : back ? lo->update_from : lo->run.n;
}

static void count_turns(rui_low *const *at, uint32_t n, const ru_exe_turn *turns, uint32_t n_turns,
                        joiner *j)
{
    memset(j->begin, 0xff, 3 * n * sizeof *j->begin);
    for (uint32_t k = 0; k < n_turns; k++) {
        uint32_t e = turns[k].exe, from, to;
        ru_phase phase = turns[k].phase;
        RU_CHECK(e < n && phase <= RU_PHASE_UPDATE && j->begin[3 * e + phase] == NONE);
        for (uint32_t later = phase; later < 3; later++) { /* none of them came before */
            RU_CHECK(j->begin[3 * e + later] == NONE);
        }
        phase_of(at[e], phase, &from, &to);
        j->begin[3 * e + phase] = j->n_steps;
        j->n_steps += to - from;
        j->end[e] = j->n_steps > 0 ? j->n_steps - 1 : 0;
    }
    j->n_steps = j->n_steps > 0 ? j->n_steps : 1;
}

/* When a step of graph `e` runs; of a phase that is no turn, behind its last one. */
static uint32_t when(const rui_low *lo, const joiner *j, uint32_t e, uint32_t step)
{
    for (uint32_t phase = 0; phase < 3; phase++) {
        uint32_t from, to, begin = j->begin[3 * e + phase];
        phase_of(lo, (ru_phase)phase, &from, &to);
        if (step >= from && step < to && begin != NONE) {
            return begin + step - from;
        }
    }
    return j->end[e];
}

static void list_bufs(rui_low *const *at, uint32_t n, joiner *j)
{
    uint32_t all = 0;
    for (uint32_t e = 0; e < n; e++) {
        rui_low *lo = at[e];
        uint32_t some = rui_low_bufs(lo, j->bufs + all, j->which + all);
        j->first[e] = all;
        for (uint32_t k = all; k < all + some; k++) {
            ru_mem_buf *b = &j->bufs[k];
            bool stays = lo->bufs[j->which[k]].pinned;
            b->first = when(lo, j, e, b->first);
            b->last = stays ? j->n_steps - 1 : when(lo, j, e, b->last);
            RU_CHECK(b->first <= b->last);
        }
        all += some;
    }
    j->first[n] = all;
}

static ru_status plan(rui_low *const *at, uint32_t n, const ru_exe_turn *turns, uint32_t n_turns,
                      ru_arena *scratch, joiner *j, ru_err *err)
{
    int64_t most = 1;
    for (uint32_t e = 0; e < n; e++) {
        most += at[e]->n_bufs;
    }
    j->begin = RU_NEW(scratch, uint32_t, 3 * (int64_t)n);
    j->end = RU_NEW(scratch, uint32_t, n);
    j->first = RU_NEW(scratch, uint32_t, n + 1);
    j->bufs = RU_NEW(scratch, ru_mem_buf, most);
    j->which = RU_NEW(scratch, uint32_t, most);
    if (j->begin == NULL || j->end == NULL || j->first == NULL || j->bufs == NULL ||
        j->which == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u executables", n);
    }
    count_turns(at, n, turns, n_turns, j);
    list_bufs(at, n, j);
    const ru_mem_in in = {.bufs = j->bufs, .n = j->first[n]};
    RU_TRY(ru_plan_mem(&in, scratch, scratch, &j->plan, err));
    return ru_plan_mem_check(&in, &j->plan, scratch, err);
}

static ru_status bind(rui_low *const *at, uint32_t n, const joiner *j, uint8_t *memory, ru_err *err)
{
    for (uint32_t e = 0; e < n; e++) {
        for (uint32_t k = j->first[e]; k < j->first[e + 1]; k++) {
            at[e]->bufs[j->which[k]].ptr = memory + j->plan.offsets[k];
        }
        RU_TRY(rui_low_bind(at[e], err));
    }
    return RU_OK;
}

ru_status rui_low_together(rui_low *const *at, uint32_t n, const ru_exe_turn *turns,
                           uint32_t n_turns, void **memory, int64_t *size_bytes, ru_err *err)
{
    ru_arena scratch;
    joiner j = {0};
    ru_arena_init(&scratch, 0);
    ru_status st = plan(at, n, turns, n_turns, &scratch, &j, err);
    *size_bytes = j.plan.peak_bytes > 0 ? j.plan.peak_bytes : 1;
    st = st == RU_OK ? rui_low_free(*size_bytes, "", err) : st;
    *memory = st == RU_OK ? ru_memory_map(*size_bytes) : NULL;
    if (st == RU_OK && *memory == NULL) {
        st = RU_FAIL(err, RU_E_MEM,
                     "the executables need %lld MiB of memory, which this machine does not have",
                     (long long)(*size_bytes >> 20));
    }
    st = st == RU_OK ? bind(at, n, &j, *memory, err) : st;
    ru_arena_fini(&scratch);
    return st;
}
