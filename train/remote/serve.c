/* A process that serves weights and does nothing else: a node of one member, which nobody joins,
 * whose only part answers guests. */
#include "train/remote/serve.h"

#include "base/hash.h"
#include "base/map.h"
#include "base/wire.h"
#include "comm/node/loop.h"
#include "env/link/link_tcp.h"
#include "env/process/self.h"
#include "train/remote/remote_impl.h"

enum { GUESTS = 64, ITEMS_PER_GUEST = 1 << 14 };

typedef struct server {
    const ru_remote *w;
    ru_span model;
    ru_map names; /* name -> index */
    ru_give *give;
    ru_node_loop bridge;
} server;

/* -- the part ------------------------------------------------------------------------------------
 */

static bool find(void *self, ru_str name, ru_span *out)
{
    const server *s = self;
    const int64_t head = (int64_t)sizeof RUI_REMOTE_TENSOR - 1;
    if (ru_str_eq_c(name, RUI_REMOTE_MODEL)) {
        *out = s->model;
        return true;
    }
    if (!ru_str_starts(name, RUI_REMOTE_TENSOR)) {
        return false;
    }
    const uint64_t *i = ru_map_get(&s->names, ru_str_n(name.p + head, name.n - head));
    if (i == NULL) {
        return false;
    }
    const ru_remote_tensor *t = &s->w->at[*i];
    union { /* the channel reads them only */
        const void *from;
        void *data;
    } bytes = {.from = t->data};
    *out = (ru_span){bytes.data, ru_type_bytes(&t->type)};
    return true;
}

static void say_head(const server *s, const ru_event *ev, ru_effects *fx)
{
    uint8_t m[64];
    static const char program[] = "rubato " RU_VERSION;
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    ru_wire_put_u32(&o, RU_REMOTE_VERSION);
    ru_wire_put_u64(&o, (uint64_t)s->model.size_bytes);
    ru_wire_put_u64(&o, ru_hash_bytes(s->model.data, s->model.size_bytes, 0));
    ru_wire_put_text(&o, program, (uint32_t)sizeof program - 1);
    ru_fx_send(fx, ev->node, RUI_REMOTE_HEAD, m, ru_wire_size(&o));
}

static void part_guest(void *self, const ru_event *ev, ru_effects *fx)
{
    server *s = self;
    if (ev->kind == RU_EV_MESSAGE && ev->what == RUI_REMOTE_HELLO) {
        say_head(s, ev, fx);
    } else if (ev->kind == RU_EV_MESSAGE && ev->what == RUI_REMOTE_STILL) {
        ru_fx_send(fx, ev->node, RUI_REMOTE_STILL, NULL, 0);
    } else if (ev->kind == RU_EV_DOWN || ev->what >= RUI_REMOTE_ASK) {
        ru_give_hear(s->give, ev, fx);
    }
}

static bool part_owns(void *self, uint64_t cookie)
{
    const server *s = self;
    return ru_give_owns(s->give, cookie);
}

static void part_over(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    server *s = self;
    ru_give_over(s->give, cookie, now, fx);
}

static void part_failed(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    (void)why;
    part_over(self, cookie, now, fx);
}

static void part_room(void *self, ru_time now, ru_effects *fx)
{
    server *s = self;
    ru_give_room(s->give, now, fx);
}

static const ru_part_ops part_ops = {.name = "weights",
                                     .owns = part_owns,
                                     .sent = part_over,
                                     .arrived = part_over,
                                     .failed = part_failed,
                                     .room = part_room,
                                     .guest = part_guest};

/* -- opening -------------------------------------------------------------------------------------
 */

static ru_status open_guests(server *s, const ru_remote_serve_options *opt, ru_link_tcp *link,
                             ru_arena *arena, ru_err *err)
{
    uint32_t guests = opt->guests_max > 0 ? opt->guests_max : GUESTS;
    const ru_guests_options go = {.address = ru_link_tcp_address(link),
                                  .job = RUI_REMOTE_JOB,
                                  .token = opt->token,
                                  .token_bytes = opt->token_bytes,
                                  .link = ru_link_tcp_link(link),
                                  .n_max = guests,
                                  .message_bytes = RU_ASK_MESSAGE_BYTES,
                                  .messages_per_s = 1000,
                                  .bytes_per_s = 16 << 20,
                                  .unanswered_max = 1000,
                                  .streams_max = guests * RU_GIVE_OUT_MAX};
    const ru_part part = {
        .ops = &part_ops, .self = s, .guest_first = RUI_REMOTE_HELLO, .guest_end = RUI_REMOTE_END};
    RU_TRY(ru_node_loop_alone(&s->bridge, &part, &go, arena, err));
    const ru_give_options give = {.chan = ru_node_guests_chan(s->bridge.node),
                                  .askers_max = guests + 8,
                                  .items_max = (guests + 8) * ITEMS_PER_GUEST,
                                  .what_first = RUI_REMOTE_ASK,
                                  .self = s,
                                  .find = find};
    return ru_give_open(&give, arena, &s->give, err);
}

static ru_status list_names(server *s, ru_arena *arena, ru_err *err)
{
    ru_map_init(&s->names, arena, RU_REMOTE_TENSORS_MAX);
    for (uint32_t i = 0; i < s->w->n; i++) {
        uint64_t *at = ru_map_put_c(&s->names, s->w->at[i].name, NULL);
        if (at == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the names of %u tensors", s->w->n);
        }
        *at = i;
    }
    return ru_remote_pack(s->w, arena, &s->model, err);
}

/* -- until it is stopped -------------------------------------------------------------------------
 */

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    (void)fd;
    (void)events;
    (void)now;
    ru_loop_stop(self);
}

static ru_status run(server *s, const ru_remote_serve_options *opt, ru_link_tcp *link,
                     ru_arena *arena, ru_err *err)
{
    int fd = ru_self_stop_fd();
    RU_TRY(list_names(s, arena, err));
    RU_TRY(open_guests(s, opt, link, arena, err));
    ru_link_tcp_user(link, ru_node_guests_link_user(s->bridge.node));
    ru_node_start(s->bridge.node, ru_clock_now());
    if (opt->address != NULL) {
        opt->address(opt->self, ru_link_tcp_address(link));
    }
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(s->bridge.loop, fd, 1, on_stop, s->bridge.loop, err));
    }
    return ru_loop_run(s->bridge.loop, err);
}

ru_status ru_remote_serve(const ru_remote_serve_options *opt, ru_arena *arena, ru_err *err)
{
    server s = {.w = opt->weights};
    ru_link_tcp *link = NULL;
    uint32_t guests = opt->guests_max > 0 ? opt->guests_max : GUESTS;
    RU_TRY(ru_loop_open(&s.bridge.loop, err));
    const ru_link_tcp_options lo = {.loop = s.bridge.loop,
                                    .listen = opt->listen,
                                    .psk = opt->token,
                                    .psk_bytes = opt->token_bytes,
                                    .conns_max = ru_guests_conns(guests) + RU_LINK_TCP_STRANGERS};
    ru_status st = ru_link_tcp_open(&lo, &link, err);
    if (st == RU_OK) {
        st = run(&s, opt, link, arena, err);
    }
    ru_node_close(s.bridge.node);
    ru_link_tcp_close(link);
    ru_loop_close(s.bridge.loop);
    return st;
}
