/* Both ends of the transport's benchmark, and the server. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/train/exchange.h"
#include "bench/wire/order.h"
#include "bench/wire/sums.h"
#include "env/process/self.h"

static const uint8_t token[] = "both ends of one benchmark";

static void on_tick(void *self, uint32_t what, ru_time now)
{
    rui_net_end *e = self;
    ru_loop_timer(e->loop, on_tick, e, what, ru_chan_tick(e->chan, now));
}

static void on_tick_at(void *self, ru_time at)
{
    rui_net_end *e = *(rui_net_end **)self;
    ru_loop_timer(e->loop, on_tick, e, 0, at);
}

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    (void)address, (void)now;
    rui_net_end *e = *(rui_net_end **)self;
    if (e->n_peers < RUI_NET_PEERS_MAX) {
        e->peers[e->n_peers++] = node;
    }
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    (void)now;
    rui_net_end *e = *(rui_net_end **)self;
    for (uint32_t k = 0; k < e->n_peers; k++) {
        if (ru_node_is(e->peers[k], node)) {
            e->peers[k] = e->peers[--e->n_peers];
            return;
        }
    }
    e->failed = true;
    (void)RU_FAIL(&e->err, why, "%s: cannot connect", address);
}

ru_status rui_net_open(rui_net_end *e, uint64_t node, const char *listen, bool tls,
                       const ru_chan_user *user, ru_err *err)
{
    RU_TRY(ru_loop_open(&e->loop, err));
    ru_loop_poll(e->loop, e->poll_ns, true);
    ru_link_tcp_options lo = {.loop = e->loop,
                              .listen = listen,
                              .tls_never = !tls,
                              .psk = token,
                              .psk_bytes = sizeof token - 1};
    RU_TRY(ru_link_tcp_open(&lo, &e->link, err));
    e->l = ru_link_tcp_link(e->link);
    ru_chan_options co = {.self = {node},
                          .address = listen != NULL ? ru_link_tcp_address(e->link) : "",
                          .job = 1,
                          .token = token,
                          .token_bytes = sizeof token - 1,
                          .peers_max = RUI_NET_PEERS_MAX,
                          .streams_max = 1024,
                          .slots_max = 1024,
                          .grants = e->grants,
                          .recorder = e->recorder};
    e->user = *user;
    e->user.up = on_up;
    e->user.down = on_down;
    e->user.tick_at = on_tick_at;
    RU_TRY(ru_chan_open(&co, &e->l, &e->user, &e->arena, &e->chan, err));
    ru_link_tcp_user(e->link, ru_chan_link_user(e->chan));
    on_tick(e, 0, ru_clock_now());
    return RU_OK;
}

void rui_net_close(rui_net_end *e)
{
    ru_chan_close(e->chan); /* closes its connections */
    ru_link_tcp_close(e->link);
    ru_loop_close(e->loop);
    ru_arena_fini(&e->arena);
}

ru_status rui_net_connect(rui_net_end *e, const char *address, ru_err *err)
{
    uint32_t want = e->n_peers + 1;
    RU_TRY(ru_chan_connect(e->chan, address, ru_clock_now(), err));
    while (e->n_peers < want && !e->failed) {
        RU_TRY(ru_loop_round(e->loop, -1, err));
    }
    if (e->failed) {
        return RU_FAIL(err, e->err.status, "%s", e->err.text);
    }
    return RU_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double rui_net_percentile(double *samples, uint32_t n, double share)
{
    qsort(samples, n, sizeof *samples, ascending);
    uint32_t at = (uint32_t)(share * n);
    return samples[at < n ? at : n - 1];
}

/* ---- the server ---- */

typedef struct server {
    rui_net_end *end; /* first: what upcalls of the end look for */
    ru_node_id client;
    rui_net_config config;
    uint8_t *places[RUI_NET_STREAMS]; /* [depth][bytes] when stamped, else all in one place */
    int64_t room[RUI_NET_STREAMS];
    double *stamped, *urgent; /* [RUI_NET_SAMPLES_MAX] us */
    uint32_t n_stamped, n_urgent, n_bulk;
    ru_time first_bulk, last_bulk;
} server;

static uint8_t *place(const server *s, uint32_t stream, uint32_t iter)
{
    int64_t k = stream == s->config.stamped ? iter % s->config.depth[stream] : 0;
    return s->places[stream] + k * s->config.bytes[stream];
}

static void post(server *s, uint32_t stream, uint32_t iter, ru_time now)
{
    ru_span span = {place(s, stream, iter), s->config.bytes[stream]};
    ru_xfer_id id;
    ru_chan_post_in in = {.from = s->client,
                          .name = {stream, iter},
                          .spans = &span,
                          .n_spans = 1,
                          .cookie = (uint64_t)stream << 32 | iter};
    if (ru_chan_post(s->end->chan, &in, now, &id) != RU_OK) {
        (void)RU_FAIL(&s->end->err, RU_E_BUG, "the server could not post a slot");
        s->end->failed = true;
    }
}

static void configure(server *s, ru_node_id from, const rui_net_config *config, ru_time now)
{
    s->client = from;
    s->config = *config;
    s->n_stamped = s->n_urgent = s->n_bulk = 0;
    for (uint32_t stream = 1; stream < RUI_NET_STREAMS; stream++) {
        int64_t bytes =
            config->bytes[stream] * (stream == config->stamped ? config->depth[stream] : 1);
        if (bytes <= 0 || config->depth[stream] > RUI_NET_DEPTH_MAX) {
            continue;
        }
        if (s->room[stream] < bytes) {
            free(s->places[stream]);
            s->places[stream] = calloc(1, (size_t)bytes);
            RU_CHECK(s->places[stream] != NULL);
            s->room[stream] = bytes;
        }
        for (uint32_t k = 0; k < config->depth[stream]; k++) {
            post(s, stream, k, now);
        }
    }
    (void)!ru_chan_message(s->end->chan, from, RUI_NET_READY, NULL, 0, now);
}

static void report(server *s, ru_node_id to, ru_time now)
{
    rui_net_figures f = {.n = s->n_stamped, .n_urgent = s->n_urgent};
    if (f.n > 0) {
        f.p50_us = rui_net_percentile(s->stamped, f.n, 0.5);
        f.p99_us = rui_net_percentile(s->stamped, f.n, 0.99);
        f.max_us = s->stamped[f.n - 1];
    }
    if (f.n_urgent > 0) {
        f.urgent_p50_us = rui_net_percentile(s->urgent, f.n_urgent, 0.5);
        f.urgent_p99_us = rui_net_percentile(s->urgent, f.n_urgent, 0.99);
    }
    if (s->n_bulk > 1) {
        f.goodput_bytes_per_s = (double)(s->n_bulk - 1) * (double)s->config.bytes[RUI_NET_BULK] *
                                1e9 / (double)ru_time_since(s->last_bulk, s->first_bulk);
    }
    for (uint32_t k = 0; k < s->n_urgent && k < RUI_NET_URGENT_MAX; k++) {
        f.urgent_us[f.n_urgent_us++] = (float)s->urgent[k];
    }
    s->n_stamped = s->n_urgent = s->n_bulk = 0;
    (void)!ru_chan_message(s->end->chan, to, RUI_NET_FIGURES, &f, sizeof f, now);
}

static void keep(double *samples, uint32_t *n, const void *stamp, ru_time now)
{
    ru_time then;
    memcpy(&then, stamp, sizeof then);
    if (*n < RUI_NET_SAMPLES_MAX) {
        samples[(*n)++] = (double)ru_time_since(now, then) * 1e-3;
    }
}

static void server_message(void *self, ru_node_id from, uint32_t what, const void *data,
                           int64_t size_bytes, ru_time now)
{
    server *s = self;
    rui_net_config config;
    if (what == RUI_NET_ECHO) {
        (void)!ru_chan_message(s->end->chan, from, RUI_NET_ECHOED, data, size_bytes, now);
    } else if (what == RUI_NET_STAMP && size_bytes >= 8) {
        keep(s->stamped, &s->n_stamped, data, ru_clock_now());
    } else if (what == RUI_NET_CONFIG && size_bytes == (int64_t)sizeof config) {
        memcpy(&config, data, sizeof config);
        configure(s, from, &config, now);
    } else if (what == RUI_NET_REPORT) {
        report(s, from, now);
    }
}

static void server_arrived(void *self, uint64_t cookie, ru_time now)
{
    server *s = self;
    uint32_t stream = (uint32_t)(cookie >> 32), iter = (uint32_t)cookie;
    if (stream == RUI_NET_BULK) {
        s->last_bulk = now;
        s->first_bulk = s->n_bulk++ == 0 ? now : s->first_bulk;
    }
    if (stream == s->config.stamped) {
        keep(s->urgent, &s->n_urgent, place(s, stream, iter), ru_clock_now());
    }
    post(s, stream, iter + s->config.depth[stream], now);
}

static void server_sent(void *self, uint64_t cookie, ru_time now)
{
    (void)self, (void)cookie, (void)now;
}

static void server_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    (void)self, (void)cookie, (void)why, (void)now; /* the client went: the next one posts anew */
}

static void stop_asked(void *self, int fd, uint32_t events, ru_time now)
{
    (void)fd, (void)events, (void)now;
    ru_loop_stop(self);
}

static ru_status serve(const char *listen, bool tls, bool polls, ru_err *err)
{
    rui_net_end end = {.poll_ns = polls ? RUI_NET_POLL_NS : 0};
    server s = {.end = &end};
    ru_chan_user user = {.self = &s,
                         .message = server_message,
                         .sent = server_sent,
                         .failed = server_failed,
                         .arrived = server_arrived};
    s.stamped = calloc(RUI_NET_SAMPLES_MAX, sizeof *s.stamped);
    s.urgent = calloc(RUI_NET_SAMPLES_MAX, sizeof *s.urgent);
    ru_status st = s.stamped != NULL && s.urgent != NULL ? RU_OK : RU_E_MEM;
    uint64_t node = (uint64_t)ru_clock_now().ns << 20 | (uint64_t)ru_self_pid();
    st = st == RU_OK ? rui_net_open(&end, node, listen, tls, &user, err) : st;
    /* Its standard input ends when the driver does. */
    st = st == RU_OK ? ru_loop_fd(end.loop, 0, 1, stop_asked, end.loop, err) : st;
    if (st == RU_OK) {
        printf("%s\n", ru_link_tcp_address(end.link));
        fflush(stdout);
        st = ru_loop_run(end.loop, err);
    }
    rui_net_close(&end);
    for (uint32_t k = 0; k < RUI_NET_STREAMS; k++) {
        free(s.places[k]);
    }
    free(s.stamped);
    free(s.urgent);
    return st;
}

ru_status ru_bench_net_role(const char *const *words, uint32_t n, ru_err *err)
{
    if (n >= 2 && strcmp(words[0], "serve") == 0) {
        const char *how = n == 3 ? words[2] : "";
        return serve(words[1], strcmp(how, "tls") == 0, strcmp(how, "poll") == 0, err);
    }
    if (n >= 1 && strcmp(words[0], "clock") == 0) {
        return rui_net_clock(words, n, err);
    }
    if (n >= 1 && strncmp(words[0], "order-", 6) == 0) {
        return rui_order_role(words, n, err);
    }
    if (n >= 1 && strncmp(words[0], "sums-", 5) == 0) {
        return rui_sums_role(words, n, err);
    }
    if (n >= 1 && strncmp(words[0], "exchange-", 9) == 0) {
        return rui_exchange_role(words, n, err);
    }
    if (n >= 1 && strncmp(words[0], "bare-", 5) == 0) {
        return rui_net_bare(words, n, err);
    }
    return rui_net_client(words, n, err);
}
