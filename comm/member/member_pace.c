/* How many views are on their way at one time.
 *
 * A view of a thousand members has 90 KB, and the leader sends it to all of them: 90 MB, which take
 * 7 s at 100 Mbit/s. Given to the channel at once, and again 200 ms later, they would take its
 * memory, and beats would wait behind them for longer than anybody is patient. So a window bounds
 * the bytes of copies that nobody has said to have; the others follow when it has room.
 *
 * The window grows by each copy that is there soon and shrinks by each one that is late: it settles
 * at what the link carries in AIM_NS. A copy that its receiver's channel has not acknowledged is
 * under way and is not sent again.
 *
 * Source: a window that follows the delay, as LEDBAT's (shalunov-2012 sec 2.4.2); ours: it counts
 * whole copies, and the aim is a part of what members take for silence. */
#include <stddef.h>

#include "comm/member/member_impl.h"

enum { AGAIN_NS = 200000000, AIM_NS = 200000000, WINDOW_MIN = 64 << 10, WINDOW_MAX = 64 << 20 };

static bool under_way(const ru_member *m, const rui_m_peer *p)
{
    ru_time since = rui_m_unacked(m, p->node);
    return since.ns != 0 && since.ns <= p->told_at.ns;
}

bool rui_m_pace_fits(const ru_member *m, int64_t bytes)
{
    int64_t window = m->pace.window_bytes > WINDOW_MIN ? m->pace.window_bytes : WINDOW_MIN;
    return m->pace.flight_bytes == 0 || m->pace.flight_bytes + bytes <= window;
}

bool rui_m_pace_again(ru_member *m, rui_m_peer *p, int64_t bytes)
{
    if (rui_m_since(m, p->told_at) < AGAIN_NS || under_way(m, p)) {
        return false;
    }
    rui_m_pace_over(m, p); /* it was there and was not taken */
    return rui_m_pace_fits(m, bytes);
}

void rui_m_pace_sent(ru_member *m, rui_m_peer *p, uint32_t epoch, int64_t bytes)
{
    p->told_at = m->now;
    p->copy_epoch = epoch;
    if (rui_m_since(m, p->heard) < m->opt.suspect_ns) { /* else it may be gone: none waits for it */
        p->copy_bytes += bytes;
        m->pace.flight_bytes += bytes;
    }
}

void rui_m_pace_there(ru_member *m, rui_m_peer *p, uint32_t epoch)
{
    if (p->copy_bytes == 0 || epoch < p->copy_epoch) {
        return;
    }
    bool soon = rui_m_since(m, p->told_at) <= AIM_NS;
    m->pace.window_bytes = m->pace.window_bytes > WINDOW_MIN ? m->pace.window_bytes : WINDOW_MIN;
    m->pace.window_bytes += soon ? p->copy_bytes : -p->copy_bytes;
    m->pace.window_bytes = m->pace.window_bytes < WINDOW_MAX ? m->pace.window_bytes : WINDOW_MAX;
    rui_m_pace_over(m, p);
}

void rui_m_pace_over(ru_member *m, rui_m_peer *p)
{
    m->pace.flight_bytes -= p->copy_bytes;
    RU_CHECK(m->pace.flight_bytes >= 0);
    p->copy_bytes = 0;
}

void rui_m_pace_end(ru_member *m)
{
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        rui_m_pace_over(m, p);
    }
}
