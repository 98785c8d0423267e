/* What the clocks of peers show, for traces that are to be laid over each other.
 *
 *   t1 asked here ---TIME---> t2 came there       offset = ((t2 - t1) + (t3 - t4)) / 2
 *   t4 came here <---TOLD---- t3 left there       |error| <= ((t4 - t1) - (t3 - t2)) / 2
 *
 * t1 and t3 are read when the frame is handed to the link, t2 and t4 are the kernel's where it
 * stamps what comes, so that nobody's loop is part of the way. Stamps that are too early at the
 * sender or too late at the receiver make the bound wider, never wrong. Of a round of questions the
 * one with the shortest way counts. Of two peers the one with the smaller id asks, where something
 * is recorded; whoever is asked answers.
 *
 * Source: mills-1991 for the four times and the filter by the shortest way. */
#include "comm/chan/chan_impl.h"

enum { ROUND = 8 };                                             /* questions */
static const int64_t APART_NS = 5000000, EVERY_NS = 1000000000; /* in a round; rounds */
static const int64_t FOR_EACH_NS = 10000000;                    /* of many peers: less often */
static const double DRIFT = 50e-6;                   /* of one clock against another, at most */
static const int64_t TIME_MAX_NS = INT64_C(1) << 61; /* of a clock that may be believed */

ru_time rui_clock_now(const ru_chan *ch, ru_time now)
{
    return ch->link.ops->clock != NULL ? ch->link.ops->clock(ch->link.self) : now;
}

/* When the frame that was read last came to this machine. */
static ru_time came_at(const ru_chan *ch, const rui_peer *p, ru_time now)
{
    ru_time at = {0};
    if (ch->link.ops->arrived != NULL) {
        at = ch->link.ops->arrived(ch->link.self, p->link[RU_LINK_URGENT]);
    }
    return at.ns != 0 ? at : rui_clock_now(ch, now);
}

bool rui_clock_pull(ru_chan *ch, uint32_t pi, ru_link_tx *tx, ru_time now)
{
    rui_peer *p = &ch->peers[pi];
    rui_clock *k = &p->clock;
    if (!k->ask && !k->answer) {
        return false;
    }
    rui_frame f = {.type = RUI_PROBE};
    ru_time here = rui_clock_now(ch, now);
    if (k->answer) {
        int64_t stay = ru_time_since(here, k->came);
        f.flags = RUI_TOLD;
        f.stream = k->question;
        f.offset = (uint64_t)k->came.ns;
        f.deadline = stay < 0 ? 0 : stay > UINT32_MAX ? UINT32_MAX : (uint32_t)stay;
        k->answer = false;
    } else {
        f.flags = RUI_TIME;
        f.stream = (uint64_t)here.ns;
        f.offset = (uint64_t)k->best_ns;
        f.deadline = k->known;
        k->asked = here;
        k->ask = false;
    }
    tx->n_spans = 0;
    tx->cookie = (uint64_t)3 << 62;
    p->spoke_at = now;
    rui_tx_crc(ch, &f, tx);
    return true;
}

void rui_clock_asked(ru_chan *ch, uint32_t pi, const rui_frame *f, ru_time now)
{
    rui_peer *p = &ch->peers[pi];
    p->clock.question = f->stream; /* only the last question is answered */
    p->clock.came = came_at(ch, p, now);
    p->clock.answer = true;
    int64_t ahead_ns = (int64_t)f->offset; /* what ours shows more */
    if (f->deadline == 1 && ahead_ns <= TIME_MAX_NS && ahead_ns >= -TIME_MAX_NS) {
        p->clock.known = true;
        p->clock.best_ns = -ahead_ns;
    }
    rui_wake_conn(ch, pi, RU_LINK_URGENT);
}

void rui_clock_keep(ru_chan *ch, rui_peer *p)
{
    rui_clock *k = &p->clock;
    if (k->n > 0) {
        ru_recorder_peer(ch->recorder, p->name.stream, k->at.ns, k->offset_ns,
                         (k->round_ns + 1) / 2);
    }
    k->n = 0;
}

/* A late answer on a busy machine may be wrong by milliseconds: an older one stays until clocks may
 * have moved apart by as much. */
static void keep_best(rui_clock *k, int64_t bound_ns, int64_t offset_ns, ru_time at)
{
    int64_t moved_ns = (int64_t)((double)ru_time_since(at, k->best_at) * DRIFT);
    if (!k->known || bound_ns <= k->best_bound_ns + moved_ns) {
        k->known = true;
        k->best_ns = offset_ns;
        k->best_bound_ns = bound_ns;
        k->best_at = at;
    }
}

void rui_clock_told(ru_chan *ch, uint32_t pi, const rui_frame *f, ru_time now)
{
    rui_peer *p = &ch->peers[pi];
    rui_clock *k = &p->clock;
    int64_t t1 = k->asked.ns, t2 = (int64_t)f->offset, t3 = t2 + f->deadline;
    if (t1 == 0 || f->stream != (uint64_t)t1 || f->offset > (uint64_t)TIME_MAX_NS ||
        f->deadline == UINT32_MAX) {
        return;
    }
    k->asked = (ru_time){0};
    int64_t t4 = came_at(ch, p, now).ns, round_ns = (t4 - t1) - (t3 - t2);
    if (round_ns < 0) {
        return; /* a clock was set */
    }
    if (k->n == 0 || round_ns < k->round_ns) {
        k->round_ns = round_ns;
        k->offset_ns = ((t2 - t1) + (t3 - t4)) / 2;
        k->at = (ru_time){t1 + (t4 - t1) / 2};
    }
    keep_best(k, (round_ns + 1) / 2, ((t2 - t1) + (t3 - t4)) / 2, (ru_time){t4});
    if (++k->n == ROUND) {
        rui_clock_keep(ch, p);
    }
}

ru_time rui_clock_tick(ru_chan *ch, ru_time now)
{
    if (ch->recorder == NULL) {
        return (ru_time){INT64_MAX};
    }
    if (now.ns < ch->clock_at.ns) {
        return ch->clock_at;
    }
    bool begins = ch->clock_left == 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < ch->peers_used; i++) {
        rui_peer *p = &ch->peers[i];
        if (p->state != RUI_PEER_UP || p->name.stream < ch->opt.self.v) {
            continue;
        }
        n++;
        if (begins) {
            rui_clock_keep(ch, p); /* of a round in which answers were missing */
        }
        p->clock.ask = true;
        rui_wake_conn(ch, i, RU_LINK_URGENT);
    }
    ch->clock_left = begins ? ROUND - 1 : ch->clock_left - 1;
    int64_t pause = EVERY_NS > n * FOR_EACH_NS ? EVERY_NS : n * FOR_EACH_NS;
    ch->clock_at = ru_time_after(now, ch->clock_left > 0 ? APART_NS : pause);
    return ch->clock_at;
}
