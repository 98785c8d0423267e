/* The clients of the transport's benchmark; each prints one line of figures.
 *
 *   echo ADDRESS OUTSTANDING SECONDS   requests of 64 bytes: per second, p50 us, p99 us
 *   echo-poll ...                      the same, looking for messages before sleeping
 *   mixed ADDRESS SECONDS              64 MiB transfers one after the other, 1 KiB every 10 ms:
 *                                      p50 us, p99 us, bulk bytes/s
 *   bulk ADDRESS SECONDS               64 MiB transfers: bytes/s
 *   tls ADDRESS SECONDS                the same, encrypted: bytes/s
 *   preempt ADDRESS SECONDS            4 MiB every 300 ms, alone, then over 64 MiB transfers:
 *                                      p50 us alone, p50 us over, wire bytes / payload
 *   deadlines ADDRESS SECONDS RATE ORDERED SEED   see net_due.c
 *   spread ADDRESS SECONDS [ADDRESS]...      64 MiB transfers to all, 64 KiB urgent ones to one:
 *                                      p50 us, p99 us, all bytes/s, longest us */
#include "bench/wire/net_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAMP_BYTES = 1024, STAMP_EVERY_MS = 10, PREEMPT_EVERY_MS = 300, SPREAD_EVERY_MS = 7 };

static const int64_t ms = 1000000;

ru_status rui_client_send(rui_client *c, uint32_t peer, rui_net_stream stream, ru_chan_class class,
                          uint8_t *data, int64_t size_bytes)
{
    ru_span span = {data, size_bytes};
    ru_chan_send_in in = {.to = c->end.peers[peer],
                          .name = {stream, c->iter[peer][stream]},
                          .class = class,
                          .spans = &span,
                          .n_spans = 1,
                          .cookie = (uint64_t)peer << 40 | (uint64_t)stream << 32 |
                                    c->iter[peer][stream]};
    ru_xfer_id id;
    c->iter[peer][stream]++;
    ru_status st = ru_chan_send(c->end.chan, &in, ru_clock_now(), &id);
    if (st != RU_OK && !c->end.failed) {
        c->end.failed = true;
        (void)RU_FAIL(&c->end.err, st, "a transfer of %lld bytes was not taken",
                      (long long)size_bytes);
    }
    return st;
}

static void send_echo(rui_client *c)
{
    uint8_t request[64] = {0};
    ru_time now = ru_clock_now();
    memcpy(request, &now, sizeof now);
    if (ru_chan_message(c->end.chan, c->end.peers[0], RUI_NET_ECHO, request, sizeof request, now) !=
        RU_OK) {
        c->end.failed = true;
    }
}

static void client_message(void *self, ru_node_id from, uint32_t what, const void *data,
                           int64_t size_bytes, ru_time now)
{
    (void)from, (void)now;
    rui_client *c = self;
    if (what == RUI_NET_ECHOED && size_bytes == 64) {
        ru_time then, at = ru_clock_now();
        memcpy(&then, data, sizeof then);
        if (c->n_samples < RUI_NET_SAMPLES_MAX) {
            c->samples[c->n_samples] = (double)ru_time_since(at, then) * 1e-3;
        }
        c->n_samples++;
        send_echo(c);
    } else if (what == RUI_NET_READY) {
        c->n_ready++;
    } else if (what == RUI_NET_FIGURES && size_bytes == (int64_t)sizeof c->figures) {
        memcpy(&c->figures, data, sizeof c->figures);
        for (uint32_t k = 0; k < c->figures.n_urgent_us && c->n_samples < RUI_NET_SAMPLES_MAX;
             k++) {
            c->samples[c->n_samples++] = (double)c->figures.urgent_us[k];
        }
        c->n_figures++;
    }
}

static void client_sent(void *self, uint64_t cookie, ru_time now)
{
    rui_client *c = self;
    uint32_t peer = (uint32_t)(cookie >> 40), stream = (uint32_t)(cookie >> 32) & 0xff;
    if (stream == RUI_NET_BULK) {
        c->bulk_bytes += c->config.bytes[RUI_NET_BULK];
        if (!c->over && !c->drain) {
            (void)rui_client_send(c, peer, RUI_NET_BULK, RU_CLASS_NORMAL, c->bulk,
                                  c->config.bytes[RUI_NET_BULK]);
        }
    }
    if (c->sent != NULL) {
        c->sent(c, cookie, now);
    }
}

static void client_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    (void)cookie, (void)now;
    rui_client *c = self;
    if (!c->end.failed) {
        c->end.failed = true;
        (void)RU_FAIL(&c->end.err, why, "a transfer failed");
    }
}

static void client_arrived(void *self, uint64_t cookie, ru_time now)
{
    (void)self, (void)cookie, (void)now;
}

static void on_over(void *self, uint32_t what, ru_time now)
{
    (void)what, (void)now;
    rui_client *c = self;
    c->over = true;
}

ru_status rui_client_run(rui_client *c, double seconds, ru_err *err)
{
    c->over = false;
    ru_loop_timer(c->end.loop, on_over, c, 0,
                  ru_time_after(ru_clock_now(), (int64_t)(seconds * 1e9)));
    while (!c->over && !c->end.failed) {
        RU_TRY(ru_loop_round(c->end.loop, -1, err));
    }
    return c->end.failed ? RU_FAIL(err, c->end.err.status, "%s", c->end.err.text) : RU_OK;
}

/* Wait until *count reaches `want`, at most 30 s. */
static ru_status await(rui_client *c, const uint32_t *count, uint32_t want, ru_err *err)
{
    int64_t until_ns = ru_clock_now().ns + 30000 * ms;
    while (*count < want && !c->end.failed) {
        RU_TRY(ru_loop_round(c->end.loop, 100 * ms, err));
        if (ru_clock_now().ns > until_ns) {
            return RU_FAIL(err, RU_E_AGAIN, "the other end does not answer");
        }
    }
    return c->end.failed ? RU_FAIL(err, c->end.err.status, "%s", c->end.err.text) : RU_OK;
}

ru_status rui_client_open(rui_client *c, const char *const *addresses, uint32_t n, bool tls,
                          ru_err *err)
{
    ru_chan_user user = {.self = c,
                         .message = client_message,
                         .sent = client_sent,
                         .failed = client_failed,
                         .arrived = client_arrived};
    c->self = &c->end;
    c->samples = calloc(RUI_NET_SAMPLES_MAX, sizeof *c->samples);
    c->bulk = calloc(1, RUI_BULK_BYTES);
    c->urgent = calloc(1, RUI_URGENT_BYTES * RUI_DEPTH);
    if (c->samples == NULL || c->bulk == NULL || c->urgent == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the benchmark's client");
    }
    memset(c->bulk, 1, RUI_BULK_BYTES);
    memset(c->urgent, 2, RUI_URGENT_BYTES * RUI_DEPTH);
    uint64_t node = (uint64_t)ru_clock_now().ns << 8 | 0xff;
    RU_TRY(rui_net_open(&c->end, node, "0.0.0.0:0", tls, &user, err));
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(rui_net_connect(&c->end, addresses[k], err));
    }
    return RU_OK;
}

void rui_client_close(rui_client *c)
{
    rui_net_close(&c->end);
    free(c->samples);
    free(c->bulk);
    free(c->urgent);
}

ru_status rui_client_configure(rui_client *c, ru_err *err)
{
    uint32_t want = c->n_ready + c->end.n_peers;
    for (uint32_t k = 0; k < c->end.n_peers; k++) {
        RU_TRY(ru_chan_message(c->end.chan, c->end.peers[k], RUI_NET_CONFIG, &c->config,
                               sizeof c->config, ru_clock_now()));
    }
    return await(c, &c->n_ready, want, err);
}

static ru_status configure(rui_client *c, int64_t urgent_bytes, ru_err *err)
{
    c->config = (rui_net_config){.bytes = {0, RUI_BULK_BYTES, urgent_bytes},
                                 .depth = {0, RUI_DEPTH, RUI_DEPTH},
                                 .stamped = urgent_bytes > 0 ? RUI_NET_URGENT : 0};
    return rui_client_configure(c, err);
}

/* Of all peers: the last report stands in c->figures, all urgent samples in c->samples. */
static ru_status ask_figures(rui_client *c, ru_err *err)
{
    uint32_t want = c->n_figures + c->end.n_peers;
    c->n_samples = 0;
    for (uint32_t k = 0; k < c->end.n_peers; k++) {
        RU_TRY(
            ru_chan_message(c->end.chan, c->end.peers[k], RUI_NET_REPORT, NULL, 0, ru_clock_now()));
    }
    return await(c, &c->n_figures, want, err);
}

static void start_bulk(rui_client *c, uint32_t peer)
{
    for (uint32_t k = 0; k < 2; k++) {
        (void)rui_client_send(c, peer, RUI_NET_BULK, RU_CLASS_NORMAL, c->bulk,
                              c->config.bytes[RUI_NET_BULK]);
    }
}

/* ---- the kinds ---- */

static ru_status echo(rui_client *c, uint32_t outstanding, double seconds, ru_err *err)
{
    for (uint32_t k = 0; k < outstanding; k++) {
        send_echo(c);
    }
    RU_TRY(rui_client_run(c, 0.3, err)); /* warm up */
    c->n_samples = 0;
    ru_time t0 = ru_clock_now();
    RU_TRY(rui_client_run(c, seconds, err));
    double took_s = (double)ru_time_since(ru_clock_now(), t0) * 1e-9;
    uint32_t n = c->n_samples < RUI_NET_SAMPLES_MAX ? c->n_samples : RUI_NET_SAMPLES_MAX;
    if (n == 0) {
        return RU_FAIL(err, RU_E_PEER, "no answer came");
    }
    double rate = c->n_samples / took_s, p50 = rui_net_percentile(c->samples, n, 0.5);
    printf("%.1f %.3f %.3f\n", rate, p50, c->samples[n - 1 - n / 100]);
    return RU_OK;
}

static void stamp(void *self, uint32_t what, ru_time now)
{
    rui_client *c = self;
    static const uint8_t zero[STAMP_BYTES];
    uint8_t message[STAMP_BYTES];
    memcpy(message, zero, sizeof message);
    ru_time at = ru_clock_now();
    memcpy(message, &at, sizeof at);
    if (ru_chan_message(c->end.chan, c->end.peers[0], RUI_NET_STAMP, message, sizeof message,
                        now) != RU_OK) {
        c->end.failed = true;
    }
    ru_loop_timer(c->end.loop, stamp, c, what, ru_time_after(now, STAMP_EVERY_MS * ms));
}

static ru_status mixed(rui_client *c, double seconds, bool stamps, ru_err *err)
{
    RU_TRY(configure(c, 0, err));
    start_bulk(c, 0);
    if (stamps) {
        /* The first second: rates and windows settle. */
        RU_TRY(rui_client_run(c, 0.3, err));
        c->over = false;
        stamp(c, 1, ru_clock_now());
    }
    RU_TRY(rui_client_run(c, seconds, err));
    RU_TRY(ask_figures(c, err));
    const rui_net_figures *f = &c->figures;
    if (stamps) {
        printf("%.3f %.3f %.1f\n", f->p50_us, f->p99_us, f->goodput_bytes_per_s);
    } else {
        printf("%.1f\n", f->goodput_bytes_per_s);
    }
    return RU_OK;
}

static void preempt(void *self, uint32_t what, ru_time now)
{
    rui_client *c = self;
    uint32_t iter = c->iter[0][RUI_NET_URGENT];
    uint8_t *data = c->urgent + (iter % RUI_DEPTH) * RUI_URGENT_BYTES;
    ru_time at = ru_clock_now();
    memcpy(data, &at, sizeof at);
    (void)rui_client_send(c, 0, RUI_NET_URGENT, RU_CLASS_URGENT, data, RUI_URGENT_BYTES);
    ru_loop_timer(c->end.loop, preempt, c, what, ru_time_after(now, PREEMPT_EVERY_MS * ms));
}

static ru_status preempts(rui_client *c, double seconds, ru_err *err)
{
    RU_TRY(configure(c, RUI_URGENT_BYTES, err));
    preempt(c, 2, ru_clock_now());
    RU_TRY(rui_client_run(c, seconds / 2, err));
    ru_loop_timer_off(c->end.loop, preempt, c, 2);
    RU_TRY(rui_client_run(c, 0.2, err));
    RU_TRY(ask_figures(c, err));
    double alone_us = c->figures.urgent_p50_us;
    c->over = false;
    ru_chan_stats s0, s1;
    ru_chan_stats_get(c->end.chan, &s0);
    start_bulk(c, 0);
    RU_TRY(rui_client_run(c, 0.3, err));
    c->over = false;
    preempt(c, 2, ru_clock_now());
    RU_TRY(rui_client_run(c, seconds, err));
    ru_loop_timer_off(c->end.loop, preempt, c, 2);
    c->drain = true;
    RU_TRY(rui_client_run(c, 1.5, err)); /* what is under way ends */
    RU_TRY(ask_figures(c, err));
    ru_chan_stats_get(c->end.chan, &s1);
    int64_t payload = c->bulk_bytes + (int64_t)c->figures.n_urgent * RUI_URGENT_BYTES;
    double wire = (double)(s1.tx_bytes - s0.tx_bytes) +
                  (double)(s1.tx_chunks - s0.tx_chunks) * RU_LINK_HEAD_BYTES;
    printf("%.3f %.3f %.6f\n", alone_us, c->figures.urgent_p50_us, wire / (double)payload);
    return RU_OK;
}

/* Urgent transfers to one of several peers, in turns; when each was complete there is known by the
 * clock that all share: the peers keep the samples. */
static void scatter(void *self, uint32_t what, ru_time now)
{
    rui_client *c = self;
    uint32_t peer = c->turn++ % c->end.n_peers;
    uint32_t iter = c->iter[peer][RUI_NET_URGENT];
    uint8_t *data = c->urgent + ((peer + iter) % RUI_DEPTH) * RUI_URGENT_BYTES;
    ru_time at = ru_clock_now();
    memcpy(data, &at, sizeof at);
    (void)rui_client_send(c, peer, RUI_NET_URGENT, RU_CLASS_URGENT, data, RUI_SPREAD_BYTES);
    ru_loop_timer(c->end.loop, scatter, c, what, ru_time_after(now, SPREAD_EVERY_MS * ms));
}

static ru_status spread(rui_client *c, double seconds, ru_err *err)
{
    RU_TRY(configure(c, RUI_SPREAD_BYTES, err));
    for (uint32_t k = 0; k < c->end.n_peers; k++) {
        start_bulk(c, k);
    }
    scatter(c, 3, ru_clock_now());
    RU_TRY(rui_client_run(c, 0.5, err)); /* windows of both kinds of connections open */
    RU_TRY(ask_figures(c, err));
    c->over = false;
    ru_chan_stats s0, s1;
    ru_chan_stats_get(c->end.chan, &s0);
    ru_time start = ru_clock_now();
    RU_TRY(rui_client_run(c, seconds, err));
    ru_chan_stats_get(c->end.chan, &s1);
    double took_s = (double)ru_time_since(ru_clock_now(), start) * 1e-9;
    ru_loop_timer_off(c->end.loop, scatter, c, 3);
    RU_TRY(rui_client_run(c, 0.1, err)); /* the last ones arrive */
    RU_TRY(ask_figures(c, err));
    if (c->n_samples == 0) {
        return RU_FAIL(err, RU_E_PEER, "no urgent transfer arrived");
    }
    double p50 = rui_net_percentile(c->samples, c->n_samples, 0.5);
    printf("%.3f %.3f %.1f %.3f\n", p50, rui_net_percentile(c->samples, c->n_samples, 0.99),
           (double)(s1.tx_bytes - s0.tx_bytes) / took_s, c->samples[c->n_samples - 1]);
    return RU_OK;
}

static ru_status run_kind(rui_client *c, const char *const *words, uint32_t n, ru_err *err)
{
    double seconds = n > 2 ? strtod(words[2], NULL) : 0;
    if (strncmp(words[0], "echo", 4) == 0 && n == 4) {
        return echo(c, (uint32_t)strtoul(words[2], NULL, 10), strtod(words[3], NULL), err);
    }
    if (strncmp(words[0], "mixed", 5) == 0 || strcmp(words[0], "bulk") == 0 ||
        strcmp(words[0], "tls") == 0) {
        return mixed(c, seconds, words[0][0] == 'm', err);
    }
    if (strcmp(words[0], "preempt") == 0) {
        return preempts(c, seconds, err);
    }
    if (strcmp(words[0], "spread") == 0) {
        return spread(c, seconds, err);
    }
    if (strcmp(words[0], "deadlines") == 0 && n == 6) {
        return rui_client_deadlines(c, seconds, strtod(words[3], NULL), words[4][0] == '1',
                                    strtoull(words[5], NULL, 10), err);
    }
    return RU_FAIL(err, RU_E_USAGE, "'%s' is no role of the transport's benchmark", words[0]);
}

ru_status rui_net_client(const char *const *words, uint32_t n, ru_err *err)
{
    if (n < 3) {
        return RU_FAIL(err, RU_E_USAGE, "a role of the transport's benchmark needs an address");
    }
    rui_client c = {.self = NULL};
    const char *addresses[RUI_NET_PEERS_MAX] = {words[1]};
    uint32_t n_addresses = 1;
    for (uint32_t k = 3; strcmp(words[0], "spread") == 0 && k < n && n_addresses < 4; k++) {
        addresses[n_addresses++] = words[k];
    }
    bool tls = strcmp(words[0], "tls") == 0;
    const char *dash = strrchr(words[0], '-');
    c.end.poll_ns = dash != NULL && strcmp(dash, "-poll") == 0 ? RUI_NET_POLL_NS : 0;
    ru_status st = rui_client_open(&c, addresses, n_addresses, tls, err);
    if (st == RU_OK && tls && ru_link_tcp_plain(c.end.link) > 0) {
        st = RU_FAIL(err, RU_E_BUG, "the connection to %s is not encrypted", words[1]);
    }
    st = st == RU_OK ? run_kind(&c, words, n, err) : st;
    rui_client_close(&c);
    return st;
}
