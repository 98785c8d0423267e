/* What moves to another process: its sender keeps the bytes until the receiver says that they came,
 * and sends them again when a connection broke in between. The receiver knows a second copy by its
 * number of hops. */
#include "comm/ps/ps_impl.h"

static void send(ru_ps *ps, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_ps_moving *m = &ps->moving[k];
    m->again = false;
    m->head.epoch = ps->epoch;
    if (!ru_pull_send(ps->pull, m->to, RUI_PS_MOVED, &m->head, sizeof m->head, m->bytes, m->n,
                      false, RUI_PS_LEAVING | k, now, fx)) {
        m->reading++;
    }
}

bool rui_ps_move(ru_ps *ps, uint32_t k, ru_node_id to, void *bytes, int64_t n, ru_time now,
                 ru_effects *fx)
{
    rui_ps_moving *m = &ps->moving[k];
    rui_ps_move_drop(ps, k); /* it is here again, so it came */
    if (m->bytes != NULL) {
        return false;
    }
    *m = (rui_ps_moving){.hops = m->hops + 1, .bytes = bytes, .n = n, .to = to};
    m->head = (rui_ps_head){.generation = ps->generation, .shard = k, .hops = m->hops};
    send(ps, k, now, fx);
    return true;
}

void rui_ps_move_again(ru_ps *ps, ru_node_id up, ru_time now, ru_effects *fx)
{
    for (uint32_t k = 0; k < ps->place.n_shards + ps->opt.n_executors; k++) {
        const rui_ps_moving *m = &ps->moving[k];
        bool again = m->again || (up.v != 0 && ru_node_is(m->to, up));
        if (m->bytes != NULL && !m->over && again) {
            send(ps, k, now, fx);
        }
    }
}

void rui_ps_move_sent(ru_ps *ps, uint32_t k, bool ok)
{
    rui_ps_moving *m = &ps->moving[k];
    m->again = m->again || !ok;
    if (m->over && m->reading == 0) {
        ru_bufs_put(&ps->bufs, m->bytes);
        m->bytes = NULL;
    }
}

void rui_ps_move_came(ru_ps *ps, const rui_ps_head *h, bool later)
{
    if (h->shard < ps->place.n_shards + ps->opt.n_executors && h->generation == ps->generation &&
        ps->moving[h->shard].head.hops == h->hops) {
        if (later) {
            ps->moving[h->shard].again = true;
        } else {
            rui_ps_move_drop(ps, h->shard);
        }
    }
}

/* What came, or is of an old generation. A receiver that is no member any more may never take it:
 * the parcel keeps the bytes, and the object can move again. */
void rui_ps_move_drop(ru_ps *ps, uint32_t k)
{
    rui_ps_moving *m = &ps->moving[k];
    if (m->bytes == NULL) {
        return;
    }
    m->over = true;
    if (m->reading == 1 && ru_pull_give(ps->pull, RUI_PS_LEAVING | k)) {
        m->reading = 0;
        m->bytes = NULL;
    } else {
        rui_ps_move_sent(ps, k, true);
    }
}
