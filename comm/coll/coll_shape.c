/* A schedule made ready: who waits for whom, where the buffer is cut, where scratch slots lie. */
#include <string.h>

#include "comm/coll/coll_impl.h"

#define NONE UINT32_MAX

bool rui_coll_by_block(ru_coll_op op)
{
    return op == RU_COLL_REDUCE_SCATTER || op == RU_COLL_ALL_GATHER || op == RU_COLL_ALL_TO_ALL;
}

/* -- order: last writer and readers since then of each place (a block, or its aside) -------------
 */

typedef struct places {
    uint32_t *writer, *readers; /* [2 * n_blocks] */
    uint32_t *step, *next;      /* nodes of the lists of readers */
    uint32_t n;
    uint32_t *last; /* [n steps] step that was last found to wait for it */
} places;

/* Steps of many blocks meet at each of these: one wait is enough. */
static void edge(rui_coll_shape *s, places *p, uint32_t before, uint32_t after, bool count)
{
    if (p->last[before] == after) {
        return;
    }
    p->last[before] = after;
    if (count) {
        s->first[before + 1]++;
        s->waits[after]++;
    } else {
        s->followers[s->first[before]++] = after;
    }
}

static void read_place(rui_coll_shape *s, places *p, uint32_t at, uint32_t i, bool count)
{
    if (p->writer[at] != NONE) {
        edge(s, p, p->writer[at], i, count);
    }
    p->step[p->n] = i;
    p->next[p->n] = p->readers[at];
    p->readers[at] = p->n++;
}

static void write_place(rui_coll_shape *s, places *p, uint32_t at, uint32_t i, bool count)
{
    if (p->writer[at] != NONE) {
        edge(s, p, p->writer[at], i, count);
    }
    for (uint32_t k = p->readers[at]; k != NONE; k = p->next[k]) {
        edge(s, p, p->step[k], i, count);
    }
    p->readers[at] = NONE;
    p->writer[at] = i;
}

static void walk(rui_coll_shape *s, places *p, bool count)
{
    uint32_t nb = s->schedule->n_blocks;
    memset(p->writer, 0xff, 2 * (size_t)nb * sizeof(uint32_t));
    memset(p->readers, 0xff, 2 * (size_t)nb * sizeof(uint32_t));
    memset(p->last, 0xff, s->n * sizeof *p->last);
    p->n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const ru_coll_step *x = &s->steps[i];
        bool local = x->kind == RU_COLL_FOLD || x->kind == RU_COLL_PLACE;
        for (uint32_t b = x->block; b < x->block + x->n_blocks; b++) {
            if (x->kind == RU_COLL_SEND) {
                read_place(s, p, b, i, count);
            } else if (x->kind != RU_COLL_RECV_ASIDE) {
                write_place(s, p, b, i, count);
            }
            if (local || x->kind == RU_COLL_RECV_ASIDE) {
                write_place(s, p, nb + b, i, count);
            }
        }
    }
}

static bool find_order(rui_coll_shape *s, ru_arena *arena)
{
    uint32_t nb = s->schedule->n_blocks;
    int64_t touches = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        touches += s->steps[i].n_blocks;
    }
    s->waits = RU_NEW(arena, uint32_t, s->n);
    s->first = RU_NEW(arena, uint32_t, (int64_t)s->n + 1);
    s->followers = NULL;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    places p = {.writer = RU_NEW(&scratch, uint32_t, 2 * (int64_t)nb),
                .readers = RU_NEW(&scratch, uint32_t, 2 * (int64_t)nb),
                .step = RU_NEW(&scratch, uint32_t, touches),
                .next = RU_NEW(&scratch, uint32_t, touches),
                .last = RU_NEW(&scratch, uint32_t, s->n)};
    bool room = s->waits != NULL && s->first != NULL && p.writer != NULL && p.readers != NULL &&
                p.step != NULL && p.next != NULL && p.last != NULL;
    if (room) {
        walk(s, &p, true);
        for (uint32_t i = 0; i < s->n; i++) {
            s->first[i + 1] += s->first[i];
        }
        s->followers = RU_NEW(arena, uint32_t, s->first[s->n]);
    }
    if (s->followers != NULL) {
        walk(s, &p, false); /* moves each beginning to the end: that of the next one */
        memmove(s->first + 1, s->first, s->n * sizeof *s->first);
        s->first[0] = 0;
    }
    ru_arena_fini(&scratch);
    return s->followers != NULL;
}

/* -- cuts and scratch ----------------------------------------------------------------------------
 */

static bool find_cuts(rui_coll_shape *s, bool by_block, ru_arena *arena)
{
    uint32_t nb = s->schedule->n_blocks;
    uint32_t *at = RU_NEW(arena, uint32_t, (int64_t)nb + 1); /* 1 where a cut is, then its number */
    s->cuts = RU_NEW(arena, uint32_t, (int64_t)nb + 1);
    s->lo = RU_NEW(arena, uint32_t, s->n);
    s->hi = RU_NEW(arena, uint32_t, s->n);
    if (at == NULL || s->cuts == NULL || s->lo == NULL || s->hi == NULL) {
        return false;
    }
    at[0] = at[nb] = 1;
    for (uint32_t i = 0; i < s->n; i++) {
        at[s->steps[i].block] = at[s->steps[i].block + s->steps[i].n_blocks] = 1;
    }
    for (uint32_t b = 0; b <= nb; b++) {
        if (at[b] != 0 || by_block) {
            at[b] = s->n_cuts;
            s->cuts[s->n_cuts++] = b;
        }
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->lo[i] = at[s->steps[i].block];
        s->hi[i] = at[s->steps[i].block + s->steps[i].n_blocks];
    }
    return true;
}

/* The first RECV_ASIDE of a run on the same blocks holds the aside of all up to the FOLD or PLACE.
 */
static uint32_t find_aside(const rui_coll_shape *s, uint32_t i)
{
    const ru_coll_step *x = &s->steps[i];
    uint32_t found = i;
    for (uint32_t k = i; k-- > 0;) {
        const ru_coll_step *y = &s->steps[k];
        bool same = y->block == x->block && y->n_blocks == x->n_blocks;
        if (same && (y->kind == RU_COLL_FOLD || y->kind == RU_COLL_PLACE)) {
            break;
        }
        found = same && y->kind == RU_COLL_RECV_ASIDE ? k : found;
    }
    return found;
}

static bool find_scratch(rui_coll_shape *s, ru_arena *arena)
{
    s->unit = RU_NEW(arena, uint32_t, s->n);
    s->aside_of = RU_NEW(arena, uint32_t, s->n);
    if (s->unit == NULL || s->aside_of == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const ru_coll_step *x = &s->steps[i];
        if (rui_coll_in_scratch(x)) {
            s->unit[i] = s->units;
            s->units += x->n_blocks;
        }
        bool aside =
            x->kind == RU_COLL_RECV_ASIDE || x->kind == RU_COLL_FOLD || x->kind == RU_COLL_PLACE;
        s->aside_of[i] = aside ? find_aside(s, i) : i;
        s->n_recv += ru_coll_step_receives(x);
        s->n_send += x->kind == RU_COLL_SEND;
    }
    return true;
}

/* The peers of sends and receives, each once. */
static bool find_peers(rui_coll_shape *s, ru_arena *arena)
{
    uint32_t n_ranks = s->schedule->n_ranks;
    uint16_t *place = RU_NEW(arena, uint16_t, 2 * (int64_t)n_ranks); /* 1 + index */
    s->in = RU_NEW(arena, uint16_t, s->n_recv);
    s->out = RU_NEW(arena, uint16_t, s->n_send);
    s->out_of = RU_NEW(arena, uint16_t, s->n);
    if (place == NULL || s->in == NULL || s->out == NULL || s->out_of == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const ru_coll_step *x = &s->steps[i];
        if (ru_coll_step_receives(x) && place[x->peer] == 0) {
            s->in[s->n_in++] = x->peer;
            place[x->peer] = (uint16_t)s->n_in;
        }
        if (x->kind == RU_COLL_SEND) {
            if (place[n_ranks + x->peer] == 0) {
                s->out[s->n_out++] = x->peer;
                place[n_ranks + x->peer] = (uint16_t)s->n_out;
            }
            s->out_of[i] = (uint16_t)(place[n_ranks + x->peer] - 1);
        }
    }
    return true;
}

/* What the engine relies on; the owner has the whole proof (ru_plan_coll_check). */
static bool is_sound(const rui_coll_shape *s, uint32_t rank)
{
    uint32_t n_ranks = s->schedule->n_ranks, nb = s->schedule->n_blocks;
    for (uint32_t i = 0; i < s->n; i++) {
        const ru_coll_step *x = &s->steps[i];
        bool local = x->kind == RU_COLL_FOLD || x->kind == RU_COLL_PLACE;
        if (x->kind >= RU_COLL_STEP_KINDS || x->peer >= n_ranks || (x->peer == rank) != local ||
            x->tag >> s->tag_bits != 0 || x->n_blocks < 1 || x->block >= nb ||
            x->n_blocks > nb - x->block) {
            return false;
        }
    }
    return true;
}

ru_status rui_coll_shape_make(rui_coll_shape *s, const ru_coll_schedule *schedule, uint32_t rank,
                              bool by_block, ru_arena *arena, ru_err *err)
{
    *s = (rui_coll_shape){.schedule = schedule,
                          .steps = schedule->steps + schedule->begin[rank],
                          .n = schedule->begin[rank + 1] - schedule->begin[rank]};
    while (2 * schedule->n_ranks + 64 > 1u << s->tag_bits) {
        s->tag_bits++;
    }
    if (s->n > RU_COLL_STEPS_MAX || schedule->n_blocks < 1 || !is_sound(s, rank)) {
        return RU_FAIL(err, RU_E_ARG, "the schedule of %s by %s does not match rank %u of %u",
                       ru_coll_op_name(schedule->op), ru_coll_algo_name(schedule->algo), rank,
                       schedule->n_ranks);
    }
    if (!find_order(s, arena) || !find_cuts(s, by_block, arena) || !find_scratch(s, arena) ||
        !find_peers(s, arena)) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a schedule of %u steps", s->n);
    }
    return RU_OK;
}
