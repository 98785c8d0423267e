/* Records of streams and messages. Both ends know the same names, so they make the same `flow` of
 * them and nothing more has to travel: of a stream its name, of a message its number in the session
 * of the pair. */
#include "base/hash.h"
#include "comm/chan/chan_impl.h"

enum { FLOW_STREAM = 1, FLOW_MESSAGE = 2 };

static uint64_t flow_of(uint64_t from, uint64_t to, uint64_t a, uint64_t b, uint64_t kind)
{
    const uint64_t words[] = {from, to, a, b};
    return ru_hash_bytes(words, sizeof words, kind);
}

void rui_trace_open(ru_chan *ch)
{
    static const char *const classes[RU_CLASS_COUNT] = {"control", "urgent", "normal",
                                                        "background"};
    ru_recorder *r = ch->opt.recorder;
    ch->recorder = r;
    for (uint32_t k = 0; k < RU_CLASS_COUNT && r != NULL; k++) {
        ch->names.send[k] = ru_recorder_name(r, classes[k], "send");
        ch->names.recv[k] = ru_recorder_name(r, classes[k], "receive");
    }
    ch->names.message_out = ru_recorder_name(r, "message", "send");
    ch->names.message_in = ru_recorder_name(r, "message", "receive");
    ch->names.up = ru_recorder_name(r, "peer up", "net");
    ch->names.down = ru_recorder_name(r, "peer down", "net");
    ru_recorder_node(r, ch->opt.self.v);
}

void ru_chan_step(ru_chan *ch, uint32_t step)
{
    ch->step = step;
}

void rui_trace_stream(ru_chan *ch, rui_stream *s)
{
    if (ch->recorder == NULL || s->recorded) {
        return;
    }
    s->recorded = true;
    uint64_t self = ch->opt.self.v, peer = ch->peers[s->name.peer].name.stream;
    bool failed = s->last.ns == 0;
    ru_time end = failed ? ch->now : s->last;
    end = end.ns < s->since.ns ? s->since : end;
    const ru_rec_flow f = {
        .kind = RU_REC_SEND,
        .name = ch->names.send[s->class],
        .label = s->label,
        .flow = flow_of(self, peer, s->name.stream, s->name.iter, FLOW_STREAM),
        .peer = peer,
        .start_ns = s->since.ns,
        .end_ns = end.ns,
        .wait_ns =
            s->first.ns != 0 ? ru_time_since(s->first, s->since) : ru_time_since(end, s->since),
        .bytes = s->total_bytes,
        .step = s->name.iter,
        .plan = s->plan,
        .predicted_ns = s->predicted_ns,
        .rank = s->rank,
        .chan_class = s->class,
        .flags = failed ? RU_REC_FAILED : 0,
    };
    ru_rec_flows(ch->recorder, &f);
}

void rui_trace_slot(ru_chan *ch, const rui_slot *s)
{
    if (ch->recorder == NULL) {
        return;
    }
    uint64_t self = ch->opt.self.v, peer = ch->peers[s->name.peer].name.stream;
    const ru_rec_flow f = {
        .kind = RU_REC_RECV,
        .name = ch->names.recv[s->class],
        .label = s->label,
        .flow = flow_of(peer, self, s->name.stream, s->name.iter, FLOW_STREAM),
        .peer = peer,
        .start_ns = s->first.ns != 0 ? s->first.ns : s->last.ns,
        .end_ns = s->last.ns,
        .bytes = s->total_bytes,
        .step = s->name.iter,
        .plan = s->plan,
        .rank = s->rank,
        .chan_class = s->class,
    };
    ru_rec_flows(ch->recorder, &f);
}

static uint64_t message_flow(uint64_t from, uint64_t to, const rui_peer *p, uint32_t seq)
{
    return flow_of(from, to, p->session[0], seq, FLOW_MESSAGE);
}

void rui_trace_message_out(ru_chan *ch, const rui_peer *p, const rui_item *it, ru_time now)
{
    if (ch->recorder == NULL || it->type != RUI_MESSAGE) {
        return;
    }
    uint64_t self = ch->opt.self.v, peer = p->name.stream;
    const ru_rec_flow f = {
        .kind = RU_REC_SEND,
        .name = ch->names.message_out,
        .flow = message_flow(self, peer, p, (uint32_t)it->seq),
        .peer = peer,
        .start_ns = it->since.ns,
        .end_ns = now.ns > it->since.ns ? now.ns : it->since.ns,
        .wait_ns = ru_time_since(now, it->since),
        .bytes = it->len,
        .step = ch->step,
        .rank = (uint16_t)it->iter,
        .chan_class = RU_CLASS_CONTROL,
        .flags = RU_REC_MESSAGE,
    };
    ru_rec_flows(ch->recorder, &f);
}

void rui_trace_message_in(ru_chan *ch, const rui_conn *c, ru_time now)
{
    if (ch->recorder == NULL) {
        return;
    }
    const rui_peer *p = &ch->peers[c->peer];
    uint64_t self = ch->opt.self.v, peer = p->name.stream;
    const ru_rec_flow f = {
        .kind = RU_REC_RECV,
        .name = ch->names.message_in,
        .flow = message_flow(peer, self, p, c->rx.deadline),
        .peer = peer,
        .start_ns = c->rx_begun.ns,
        .end_ns = rui_clock_now(ch, now).ns,
        .bytes = c->rx.len,
        .step = ch->step,
        .rank = (uint16_t)c->rx.iter,
        .chan_class = RU_CLASS_CONTROL,
        .flags = RU_REC_MESSAGE,
    };
    ru_rec_flows(ch->recorder, &f);
}

void rui_trace_peer(ru_chan *ch, const rui_peer *p, bool up, ru_time now)
{
    ru_rec_instant_at(ch->recorder, up ? ch->names.up : ch->names.down, now.ns,
                      (int64_t)p->name.stream);
}
