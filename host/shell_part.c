/* What other processes ask: the job, the world file, windows of traces. */
#include <string.h>

#include "base/str.h"
#include "base/wire.h"
#include "comm/member/among.h"
#include "host/shell_impl.h"

enum { PART_BYTES = 48 << 10 };

/* A text in parts; half of one is none, so that who misses a part asks again. */
static void send_parts(ru_shell *h, ru_node_id to, uint32_t what, ru_str text, ru_time now)
{
    ru_chan *chan = ru_node_chan(h->timers.node);
    uint8_t buf[PART_BYTES + 32];
    for (int64_t at = 0; at < text.n || (at == 0 && text.n == 0); at += PART_BYTES) {
        int64_t n = text.n - at < PART_BYTES ? text.n - at : PART_BYTES;
        ru_wire_out o = ru_wire_out_into(buf, sizeof buf);
        ru_wire_put_u32(&o, (uint32_t)text.n);
        ru_wire_put_u32(&o, (uint32_t)at);
        ru_wire_put_bytes(&o, text.p != NULL ? text.p + at : NULL, n);
        if (ru_chan_message(chan, to, what, buf, ru_wire_size(&o), now) != RU_OK) {
            ru_chan_drop(chan, to, now);
            return;
        }
    }
}

/* The run's folder, a zero byte, the job as YAML. */
static void send_job(ru_shell *h, ru_node_id to, ru_time now)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text text = ru_text_arena(&scratch);
    ru_text_put(&text, h->out);
    ru_text_put_n(&text, "", 1);
    ru_text_put(&text, h->yaml);
    if (!text.cut) {
        send_parts(h, to, RUI_MSG_JOB_PART, ru_str_n(text.p, text.n), now);
    }
    ru_arena_fini(&scratch);
}

void ru_shell_world(ru_shell *h, const char *text, int64_t size_bytes, ru_time now)
{
    for (uint32_t k = 0; k < h->n_asking; k++) {
        send_parts(h, h->asking[k], RUI_MSG_WORLD, ru_str_n(text, size_bytes), now);
    }
    h->n_asking = 0;
}

/* Who does not lead, or cannot answer, says where the leader is. */
static void world_asked(ru_shell *h, ru_node_id from, ru_time now)
{
    const ru_member *m = ru_node_member(h->timers.node);
    if (ru_member_leads(m) && !h->ended && h->n_asking < RU_SHELL_ASKING_MAX &&
        h->ops->world != NULL) {
        h->asking[h->n_asking++] = from;
        if (h->n_asking == 1) {
            h->ops->world(h->self, now);
        }
        return;
    }
    const ru_view *v = ru_member_view(m);
    const ru_member_info *leader = ru_member_among(v->at, v->n, v->leader);
    const char *at = leader != NULL ? leader->address : ""; /* nobody leads */
    ru_chan *chan = ru_node_chan(h->timers.node);
    if (ru_chan_message(chan, from, RUI_MSG_WORLD_AT, at, (int64_t)strlen(at), now) != RU_OK) {
        ru_chan_drop(chan, from, now);
    }
}

static void step(void *self, const ru_event *ev, ru_effects *fx)
{
    ru_shell *h = self;
    (void)fx;
    if (ev->kind == RU_EV_LOCAL && ev->what == RU_MEMBER_VIEW && h->ops->view != NULL) {
        h->ops->view(h->self, ev->now);
    }
    if (ev->kind != RU_EV_MESSAGE) {
        return;
    }
    if (ev->what >= RU_SHELL_WHAT_OWNER) {
        if (h->ops->message != NULL) {
            h->ops->message(h->self, ev);
        }
    } else if (ev->what == RUI_MSG_JOB_ASK && h->yaml != NULL) {
        send_job(h, ev->node, ev->now);
    } else if (ev->what == RUI_MSG_WORLD_ASK) {
        world_asked(h, ev->node, ev->now);
    } else {
        ru_tracing_hear(&h->tracing, ev->node, ev->what, ev->data, ev->size_bytes, ev->now);
    }
}

static const ru_part_ops part = {.name = "job", .step = step};

ru_part rui_shell_part(ru_shell *h)
{
    return (ru_part){.ops = &part,
                     .self = h,
                     .what_first = RU_NODE_WHAT_OWNER,
                     .what_end = 2 * RU_NODE_WHAT_OWNER};
}
