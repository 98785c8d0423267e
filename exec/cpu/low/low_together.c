/* One arena for several lowered graphs whose phases take turns (exec/together.h): their lifetimes,
 * counted over the steps of all turns, go through the planner of plan/step/mem.h at once. An input
 * to which a port hands its value over has no memory: it stands at the port, which lives until the
 * last of them is read. */
#include <string.h>

#include "env/process/memory.h"
#include "exec/cpu/low/low.h"

#define NONE UINT32_MAX

/* An input that stands where the value of another graph does. */
typedef struct handed {
    uint32_t from, to; /* graphs */
    rui_buf port;      /* in `from` */
    uint32_t root;     /* of the input, in `to` */
} handed;

typedef struct joiner {
    uint32_t *begin;  /* [n, 3] step of all turns at which a phase begins; NONE: it is no turn */
    uint32_t *end;    /* [n] the last one of its turns */
    uint32_t n_steps; /* of all turns, at least 1 */
    ru_mem_buf *bufs; /* [n_bufs] */
    uint32_t *which;  /* [n_bufs] root in its graph */
    uint32_t *first;  /* [n + 1] of each graph's */
    handed *hands;    /* [n_hands] */
    uint32_t n_hands;
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

/* Both stand row-major: the value of a port, which is no view of anything else, and the input. */
static void take_hands(rui_low *const *at, const ru_exe_order *order, joiner *j)
{
    for (uint32_t k = 0; k < order->n_hands; k++) {
        const ru_exe_hand *h = &order->hands[k];
        const rui_home *port = rui_home_find(at[h->from], h->port, NULL);
        const rui_home *input = rui_home_find(at[h->to], h->input, NULL);
        if (port == NULL || input == NULL) {
            continue;
        }
        const rui_buf_rec *from = &at[h->from]->bufs[rui_root(at[h->from], port->buf)];
        rui_buf_rec *to = &at[h->to]->bufs[input->buf.v];
        bool fits = from->kind == RUI_BUF_TEMP && from->kept && port->layout->plain &&
                    to->kind == RUI_BUF_INPUT && to->root == input->buf.v &&
                    port->layout->type.dtype == input->layout->type.dtype &&
                    port->layout->size_bytes == to->size_bytes;
        if (fits) {
            to->kind = RUI_BUF_DATA; /* memory of another one's */
            j->hands[j->n_hands++] = (handed){h->from, h->to, port->buf, to->root};
        }
    }
}

/* A port lives until all inputs to which it is handed over are read. */
static void extend(rui_low *const *at, joiner *j)
{
    for (uint32_t k = 0; k < j->n_hands; k++) {
        const handed *h = &j->hands[k];
        const rui_buf_rec *in = &at[h->to]->bufs[h->root];
        uint32_t root = rui_root(at[h->from], h->port), b = j->first[h->from];
        while (b < j->first[h->from + 1] && j->which[b] != root) {
            b++;
        }
        RU_CHECK(b < j->first[h->from + 1]);
        bool read = in->first != UINT32_MAX;
        uint32_t last = in->pinned ? j->n_steps - 1
                        : read     ? when(at[h->to], j, h->to, in->last)
                                   : 0;
        RU_CHECK(!read || when(at[h->to], j, h->to, in->first) >= j->bufs[b].first);
        j->bufs[b].last = last > j->bufs[b].last ? last : j->bufs[b].last;
    }
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
            bool input = lo->bufs[j->which[k]].kind == RUI_BUF_INPUT;
            bool stays = input || lo->bufs[j->which[k]].pinned;
            b->first = input ? 0 : when(lo, j, e, b->first);
            b->last = stays ? j->n_steps - 1 : when(lo, j, e, b->last);
            RU_CHECK(b->first <= b->last);
        }
        all += some;
    }
    j->first[n] = all;
}

static ru_status plan(rui_low *const *at, uint32_t n, const ru_exe_order *order, ru_arena *scratch,
                      joiner *j, ru_err *err)
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
    j->hands = RU_NEW(scratch, handed, (int64_t)order->n_hands + 1);
    if (j->begin == NULL || j->end == NULL || j->first == NULL || j->bufs == NULL ||
        j->which == NULL || j->hands == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u executables", n);
    }
    count_turns(at, n, order->turns, order->n_turns, j);
    take_hands(at, order, j);
    list_bufs(at, n, j);
    extend(at, j);
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
    }
    for (uint32_t k = 0; k < j->n_hands; k++) {
        const handed *h = &j->hands[k];
        at[h->to]->bufs[h->root].ptr = rui_buf_ptr(at[h->from], h->port);
    }
    for (uint32_t e = 0; e < n; e++) {
        RU_TRY(rui_low_bind(at[e], err));
    }
    return RU_OK;
}

ru_status rui_low_together(rui_low *const *at, uint32_t n, const ru_exe_order *order, void **memory,
                           int64_t *size_bytes, ru_err *err)
{
    ru_arena scratch;
    joiner j = {0};
    ru_arena_init(&scratch, 0);
    ru_status st = plan(at, n, order, &scratch, &j, err);
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
