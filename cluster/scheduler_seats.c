/* How many of Slurm's seats the jobs need, and which go. */
#include "cluster/scheduler_impl.h"
#include "cluster/slurm.h"

/* Workers that jobs could have beyond the slots of nodes that are always there. */
static uint32_t needed(const rui_scheduler *s)
{
    const ru_slurm_options *o = s->opt->slurm;
    uint64_t want = 0, have = 0;
    uint32_t k;
    for (uint32_t slot = 0; slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(&s->book, s->book.of[slot]);
        want += j != NULL && !j->cancelled ? j->max : 0;
    }
    for (uint32_t n = 0; n < s->book.n_nodes; n++) {
        bool always = !ru_slurm_seat_of(s->book.nodes[n].name, &k) && !s->book.nodes[n].drained;
        have += always ? s->book.nodes[n].slots : 0;
    }
    uint64_t seats = want > have ? (want - have + o->slots - 1) / o->slots : 0;
    seats = seats < o->seats_min ? o->seats_min : seats < o->seats ? seats : o->seats;
    return s->closing ? 0 : (uint32_t)seats;
}

/* Node of a seat; NULL: it never came. */
static const ru_book_node *node_of(const rui_scheduler *s, uint32_t seat, uint32_t *k)
{
    char name[16];
    ru_slurm_seat_name(seat, name);
    *k = ru_book_node_of(&s->book, name);
    return *k < s->book.n_nodes ? &s->book.nodes[*k] : NULL;
}

/* Of the seats that are wanted, the one that the fewest workers lose. */
static uint32_t cheapest(const rui_scheduler *s)
{
    uint32_t best = RU_SLURM_SEATS_MAX, least = UINT32_MAX, k;
    for (uint32_t seat = s->opt->slurm->seats; seat > 0; seat--) {
        const ru_book_node *n = node_of(s, seat - 1, &k);
        uint32_t used = n != NULL && n->slots > 0 ? 1 + s->book.sched.nodes[k].used : 0;
        if (ru_slurm_wanted(s->slurm, seat - 1) && !s->seat_goes[seat - 1] && used < least) {
            least = used;
            best = seat - 1;
        }
    }
    return best;
}

/* A seat that goes is drained first; its job of Slurm ends when no worker is left there. */
static void let_go(rui_scheduler *s)
{
    uint32_t k;
    for (uint32_t seat = 0; seat < s->opt->slurm->seats; seat++) {
        const ru_book_node *n = node_of(s, seat, &k);
        if (!s->seat_goes[seat]) {
            continue;
        }
        if (n == NULL || n->slots == 0 || !s->live[k].known) {
            ru_slurm_want(s->slurm, seat, false);
        } else if (!n->drained) {
            rui_scheduler_drain(s, k, true);
        } else if (!rui_scheduler_lives_on(s, k) && s->book.sched.nodes[k].used == 0) {
            ru_slurm_want(s->slurm, seat, false);
        }
        s->seat_goes[seat] = ru_slurm_wanted(s->slurm, seat);
    }
}

uint32_t rui_scheduler_more(const rui_scheduler *s)
{
    uint32_t more = 0, k;
    for (uint32_t seat = 0; s->slurm != NULL && seat < s->opt->slurm->seats; seat++) {
        const ru_book_node *n = node_of(s, seat, &k);
        more += (n == NULL || n->slots == 0) && more < RU_BOOK_SPREAD_MAX;
    }
    return more > 0 ? more * s->opt->slurm->slots : 0;
}

bool rui_scheduler_seat_goes(const rui_scheduler *s, const char *node)
{
    uint32_t seat;
    return s->slurm != NULL && ru_slurm_seat_of(node, &seat) &&
           (s->seat_goes[seat] || !ru_slurm_wanted(s->slurm, seat));
}

void rui_scheduler_seats(rui_scheduler *s, ru_time now)
{
    if (s->slurm == NULL || !ru_slurm_tick(s->slurm, now)) {
        return;
    }
    uint32_t want = needed(s), has = 0;
    for (uint32_t seat = 0; seat < s->opt->slurm->seats; seat++) {
        has += ru_slurm_wanted(s->slurm, seat) && !s->seat_goes[seat];
    }
    s->seats_enough = has > want ? s->seats_enough : now;
    for (uint32_t seat = 0; seat < s->opt->slurm->seats && has < want; seat++) {
        if (!ru_slurm_wanted(s->slurm, seat) || s->seat_goes[seat]) {
            ru_slurm_want(s->slurm, seat, true);
            s->seat_goes[seat] = false;
            has++;
        }
    }
    bool idle = s->closing || ru_time_since(now, s->seats_enough) > s->opt->slurm->idle_ns;
    while (has > want && idle) {
        s->seat_goes[cheapest(s)] = true;
        has--;
    }
    let_go(s);
}
