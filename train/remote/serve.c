/* A process that serves weights and does nothing else: a node of one member, which nobody joins,
 * whose only part answers guests. */
#include "train/remote/serve.h"

#include "comm/node/loop.h"
#include "env/link/link_tcp.h"
#include "env/process/self.h"
#include "train/remote/giver.h"

typedef struct server {
    ru_offer offer;
    ru_giver *giver;
    ru_node_loop bridge;
} server;

static ru_status open_guests(server *s, const ru_remote_serve_options *opt, ru_link_tcp *link,
                             ru_arena *arena, ru_err *err)
{
    const ru_part part = ru_giver_part(s->giver);
    ru_guests_options go = ru_giver_guests(s->giver);
    go.address = ru_link_tcp_address(link);
    go.token = opt->token;
    go.token_bytes = opt->token_bytes;
    go.link = ru_link_tcp_link(link);
    RU_TRY(ru_node_loop_alone(&s->bridge, &part, &go, arena, err));
    return ru_giver_ready(s->giver, s->bridge.node, arena, err);
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
    ru_effects none = {0};
    RU_TRY(ru_offer_make(opt->weights, arena, &s->offer, err));
    ru_giver_set(s->giver, &s->offer, &none);
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
    server s = {0};
    ru_link_tcp *link = NULL;
    const ru_giver_options gi = {.guests_max = opt->guests_max};
    RU_TRY(ru_giver_open(&gi, arena, &s.giver, err));
    RU_TRY(ru_loop_open(&s.bridge.loop, err));
    const ru_link_tcp_options lo = {.loop = s.bridge.loop,
                                    .listen = opt->listen,
                                    .psk = opt->token,
                                    .psk_bytes = opt->token_bytes,
                                    .conns_max = ru_giver_conns(s.giver) + RU_LINK_TCP_STRANGERS};
    ru_status st = ru_link_tcp_open(&lo, &link, err);
    if (st == RU_OK) {
        st = run(&s, opt, link, arena, err);
    }
    ru_node_close(s.bridge.node);
    ru_link_tcp_close(link);
    ru_loop_close(s.bridge.loop);
    return st;
}
