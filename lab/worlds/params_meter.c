#include "lab/worlds/params_meter.h"

#include "env/clock.h"

void ru_params_meter_begin(ru_params_meter *m)
{
    if (m->depth++ == 0 && m->timed) {
        m->since_ns = ru_clock_cpu_ns();
    }
}

void ru_params_meter_end(ru_params_meter *m)
{
    if (--m->depth == 0 && m->timed) {
        m->cpu_ns += ru_clock_cpu_ns() - m->since_ns;
    }
}

static void opened(void *self, ru_conn_id c, bool accepted, const char *address, ru_time now)
{
    ru_params_meter *m = self;
    ru_params_meter_begin(m);
    m->inner->opened(m->inner->self, c, accepted, address, now);
    ru_params_meter_end(m);
}

static void closed(void *self, ru_conn_id c, ru_status why, const char *sentence, ru_time now)
{
    ru_params_meter *m = self;
    ru_params_meter_begin(m);
    m->inner->closed(m->inner->self, c, why, sentence, now);
    ru_params_meter_end(m);
}

static bool pull(void *self, ru_conn_id c, int64_t room_bytes, ru_link_tx *tx, ru_time now)
{
    ru_params_meter *m = self;
    ru_params_meter_begin(m);
    bool any = m->inner->pull(m->inner->self, c, room_bytes, tx, now);
    ru_params_meter_end(m);
    return any;
}

static void sent(void *self, ru_conn_id c, uint64_t cookie, ru_time now)
{
    ru_params_meter *m = self;
    ru_params_meter_begin(m);
    m->inner->sent(m->inner->self, c, cookie, now);
    ru_params_meter_end(m);
}

static ru_status head(void *self, ru_conn_id c, const uint8_t *bytes, ru_link_rx *rx, ru_time now)
{
    ru_params_meter *m = self;
    ru_params_meter_begin(m);
    ru_status st = m->inner->head(m->inner->self, c, bytes, rx, now);
    ru_params_meter_end(m);
    m->frames++;
    return st;
}

static ru_status body(void *self, ru_conn_id c, ru_time now)
{
    ru_params_meter *m = self;
    ru_params_meter_begin(m);
    ru_status st = m->inner->body(m->inner->self, c, now);
    ru_params_meter_end(m);
    return st;
}

const ru_link_user *ru_params_meter_link(ru_params_meter *m, const ru_link_user *user)
{
    m->inner = user;
    m->outer = (ru_link_user){m, opened, closed, pull, sent, head, body};
    return &m->outer;
}
