/* How many of Slurm's seats the jobs need, and which go. */
#include "cluster/scheduler_impl.h"
#include "cluster/slurm.h"

/* Workers that all jobs could use, those of a user at most as many as it may have. */
static uint64_t wanted(const rui_scheduler *s)
{
    const ru_book *b = &s->book;
    uint32_t left[RU_BOOK_USERS_MAX];
    uint64_t want = 0;
    for (uint32_t k = 0; k < b->n_users; k++) {
        left[k] = b->users[k].slots > 0 ? b->users[k].slots : UINT32_MAX;
    }
    for (uint32_t slot = 0; slot < b->sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(b, b->of[slot]);
        const ru_book_user *u = j != NULL ? ru_book_user_of(b, j->owner) : NULL;
        uint32_t most = j == NULL || j->cancelled   ? 0
                        : ru_alloc_fixed(b->method) ? ru_book_request(j)
                                                    : j->max;
        uint32_t fast = s->figures[slot].job == b->of[slot] ? s->figures[slot].most : 0;
        most = fast > 0 && fast < most && !ru_alloc_fixed(b->method) ? fast : most;
        if (u != NULL) {
            most = most < left[u - b->users] ? most : left[u - b->users];
            left[u - b->users] -= most;
        }
        want += most;
    }
    return want;
}

uint32_t rui_scheduler_wants(const rui_scheduler *s)
{
    uint64_t want = s->closing ? 0 : wanted(s), have = 0;
    uint32_t k;
    for (uint32_t n = 0; n < s->book.n_nodes; n++) {
        const ru_book_node *o = &s->book.nodes[n];
        bool always = !ru_slurm_seat_of(o->name, &k) && o->market == 0 && !o->drained;
        have += always ? o->slots : 0;
    }
    uint64_t more = want > have ? want - have : 0;
    return more < UINT32_MAX ? (uint32_t)more : UINT32_MAX;
}

static uint32_t needed(const rui_scheduler *s)
{
    const ru_slurm_options *o = s->opt->slurm;
    uint64_t seats = ((uint64_t)rui_scheduler_wants(s) + o->slots - 1) / o->slots;
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
    uint32_t slots = more > 0 ? more * s->opt->slurm->slots : 0;
    return slots + rui_market_more(s, RU_BOOK_SPREAD_MAX - more);
}

bool rui_scheduler_seat_goes(const rui_scheduler *s, const char *node)
{
    uint32_t seat;
    return (s->slurm != NULL && ru_slurm_seat_of(node, &seat) &&
            (s->seat_goes[seat] || !ru_slurm_wanted(s->slurm, seat))) ||
           rui_market_goes(s, node);
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
