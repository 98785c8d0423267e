#include "test/wire/chan_scan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "comm/chan/chan_impl.h"
#include "env/link/link_tcp.h"

enum {
    HUB,
    HONEST,
    OTHER, /* has another token */
    HOSTS,
    HELD = 150,      /* connections that the strangers keep at once */
    LINES_MAX = 40,  /* kinds of refusals, of one host */
    EVERY = 8,       /* an honest message between so many strangers */
    PATIENCE = 20000 /* rounds of 1 ms at most */
};

typedef struct scan scan;

typedef struct host {
    scan *s;
    uint32_t index, ups, downs, messages;
    ru_link_tcp *link;
    ru_chan *ch;
    ru_arena arena;
} host;

typedef struct stranger {
    int fd; /* -1: none */
    uint8_t bytes[512];
    uint32_t n, at;
    bool slow; /* a byte at a time */
} stranger;

struct scan {
    ru_chan_scan_options opt;
    ru_rng rng;
    ru_loop *loop;
    host hosts[HOSTS];
    stranger held[HELD];
    struct sockaddr_in to;
    uint32_t sent;
    const char *wrong;
    ru_chan_scan_report report;
};

static const char *const tokens[HOSTS] = {"a token of this job, 32 bytes..",
                                          "a token of this job, 32 bytes..",
                                          "a token of that job, 32 bytes.."};

/* -- the three channels --------------------------------------------------------------------------
 */

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    (void)node, (void)address, (void)now;
    ((host *)self)->ups++;
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    (void)node, (void)address, (void)why, (void)now;
    ((host *)self)->downs++;
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    (void)data, (void)size_bytes, (void)now;
    host *h = self;
    if (h->index != HUB || from.v != HONEST + 1 || what != h->messages) {
        h->s->wrong = "a message of nobody, or out of order";
    }
    h->messages++;
}

static void on_timer(void *self, uint32_t what, ru_time now)
{
    host *h = self;
    ru_loop_timer(h->s->loop, on_timer, h, what, ru_chan_tick(h->ch, now));
}

static void on_tick_at(void *self, ru_time at)
{
    host *h = self;
    ru_loop_timer(h->s->loop, on_timer, h, h->index, at);
}

static ru_status open_host(scan *s, uint32_t i, ru_err *err)
{
    host *h = &s->hosts[i];
    h->s = s;
    h->index = i;
    ru_arena_init(&h->arena, 0);
    const uint8_t *token = (const uint8_t *)tokens[i];
    ru_link_tcp_options lo = {.loop = s->loop,
                              .listen = i == HUB ? "127.0.0.1:0" : NULL,
                              .psk = token,
                              .psk_bytes = 32,
                              .tls_always = s->opt.tls,
                              .conns_max = ru_chan_conns(4) + RU_LINK_TCP_STRANGERS};
    RU_TRY(ru_link_tcp_open(&lo, &h->link, err));
    ru_chan_options co = {.self = {i + 1},
                          .address = i == HUB ? ru_link_tcp_address(h->link) : "127.0.0.1:1",
                          .job = 1,
                          .token = token,
                          .token_bytes = 32,
                          .peers_max = 4,
                          .streams_max = 8,
                          .slots_max = 8};
    ru_chan_user user = {
        .self = h, .up = on_up, .down = on_down, .message = on_message, .tick_at = on_tick_at};
    ru_link link = ru_link_tcp_link(h->link);
    RU_TRY(ru_chan_open(&co, &link, &user, &h->arena, &h->ch, err));
    ru_link_tcp_user(h->link, ru_chan_link_user(h->ch));
    on_timer(h, i, ru_clock_now());
    return RU_OK;
}

static void close_host(host *h)
{
    ru_chan_close(h->ch);
    ru_link_tcp_close(h->link);
    if (h->s != NULL) {
        ru_loop_timer_off(h->s->loop, on_timer, h, h->index);
        ru_arena_fini(&h->arena);
    }
}

static ru_status turn(scan *s, int64_t wait_ns, ru_err *err)
{
    return ru_loop_round(s->loop, wait_ns, err);
}

/* -- strangers -----------------------------------------------------------------------------------
 */

static uint32_t put_frame(stranger *x, rui_frame f, const void *data, uint32_t n)
{
    f.len = n;
    rui_frame_encode(&f, x->bytes);
    memcpy(x->bytes + RU_LINK_HEAD_BYTES, data, n);
    return RU_LINK_HEAD_BYTES + n;
}

static void fill_random(scan *s, uint8_t *at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        at[i] = (uint8_t)ru_rng_u64(&s->rng);
    }
}

/* What it has to say. */
static void script(scan *s, stranger *x)
{
    static const char get[] = "GET / HTTP/1.1\r\nHost: x\r\nAccept: everything, really\r\n\r\n";
    static const uint8_t client_hello[] = {0x16, 0x03, 0x01, 0x00, 0xc8, 0x01, 0x00, 0x00,
                                           0xc4, 0x03, 0x03, 0x17, 0x2a, 0x3b, 0x4c, 0x5d};
    rui_hello hello = {.job = 1, .node = 7, .pair = 1 + ru_rng_below(&s->rng, 1000)};
    uint8_t text[RUI_HELLO_MAX];
    uint32_t kind = ru_rng_below(&s->rng, 8), n = (uint32_t)rui_hello_encode(&hello, text);
    x->slow = ru_rng_below(&s->rng, 4) == 0;
    x->n = 0; /* kind 0: silent */
    if (kind == 1) {
        x->n = 1 + ru_rng_below(&s->rng, 200);
        fill_random(s, x->bytes, x->n);
    } else if (kind == 2) {
        x->n = sizeof get - 1;
        memcpy(x->bytes, get, x->n);
    } else if (kind == 3) {
        x->n = sizeof client_hello;
        memcpy(x->bytes, client_hello, x->n);
    } else if (kind == 4) { /* a sentence for our log */
        fill_random(s, text, 40);
        x->n = put_frame(x, (rui_frame){.type = RUI_ERR}, text, 40);
    } else if (kind >= 5) {
        x->n = put_frame(x, (rui_frame){.type = RUI_HELLO}, text, n);
        if (kind == 5) {
            x->n = 1 + ru_rng_below(&s->rng, x->n - 1); /* half of it */
        } else if (kind == 6) {
            rui_frame f = {.type = RUI_PROOF, .len = RUI_PROOF_BYTES};
            rui_frame_encode(&f, x->bytes + x->n);
            fill_random(s, x->bytes + x->n + RU_LINK_HEAD_BYTES, RUI_PROOF_BYTES);
            x->n += RU_LINK_HEAD_BYTES + RUI_PROOF_BYTES;
        }
    }
}

static void hang_up(scan *s, stranger *x)
{
    if (x->fd >= 0) {
        struct linger at_once = {.l_onoff = 1};
        if (ru_rng_below(&s->rng, 2) == 0) { /* a reset */
            (void)setsockopt(x->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        }
        close(x->fd);
    }
    x->fd = -1;
}

static void dial(scan *s, stranger *x)
{
    hang_up(s, x);
    x->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int rc = x->fd >= 0 ? connect(x->fd, (const struct sockaddr *)&s->to, sizeof s->to) : -1;
    if (rc != 0 && errno != EINPROGRESS) {
        hang_up(s, x);
        return;
    }
    x->at = 0;
    script(s, x);
    s->report.connections++;
}

static void speak(stranger *x)
{
    uint32_t left = x->n - x->at;
    if (x->fd < 0 || left == 0) {
        return;
    }
    ssize_t n = send(x->fd, x->bytes + x->at, x->slow ? 1 : left, MSG_NOSIGNAL);
    x->at += n > 0 ? (uint32_t)n : 0;
}

/* Was it cut off? */
static bool is_out(const stranger *x)
{
    uint8_t bin[512];
    ssize_t n;
    while ((n = recv(x->fd, bin, sizeof bin, 0)) > 0) {
    }
    return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

/* -- running -------------------------------------------------------------------------------------
 */

static ru_status honest_up(scan *s, ru_err *err)
{
    for (uint32_t k = 0; k < PATIENCE && s->hosts[HUB].ups == 0; k++) {
        RU_TRY(turn(s, 1000000, err));
    }
    return s->hosts[HUB].ups == 1 ? RU_OK : RU_FAIL(err, RU_E_BUG, "the honest pair never stood");
}

static ru_status attack(scan *s, ru_err *err)
{
    for (uint32_t k = 0; k < s->opt.strangers && s->wrong == NULL; k++) {
        dial(s, &s->held[ru_rng_below(&s->rng, HELD)]);
        for (uint32_t i = 0; i < HELD; i++) {
            speak(&s->held[i]);
        }
        if (k % 64 == 0) {
            RU_TRY(ru_chan_connect(s->hosts[OTHER].ch, s->hosts[HUB].ch->address, ru_clock_now(),
                                   err));
        }
        if (k % EVERY == 0 && ru_chan_message(s->hosts[HONEST].ch, (ru_node_id){HUB + 1}, s->sent,
                                              "", 0, ru_clock_now()) == RU_OK) {
            s->sent++;
        }
        RU_TRY(turn(s, 0, err));
        if (s->hosts[HUB].ch->unproved > s->hosts[HUB].ch->unproved_max) {
            s->wrong = "too many connections without a proof";
        }
    }
    for (uint32_t k = 0; k < PATIENCE && s->hosts[HUB].messages < s->sent; k++) {
        RU_TRY(turn(s, 1000000, err));
    }
    return RU_OK;
}

/* All that say nothing more are cut off in time. */
static ru_status outlive(scan *s, ru_err *err)
{
    uint32_t left = HELD;
    for (uint32_t k = 0; k < PATIENCE && left > 0; k++) {
        left = 0;
        for (uint32_t i = 0; i < HELD; i++) {
            stranger *x = &s->held[i];
            speak(x);
            left += x->fd >= 0 && !is_out(x);
        }
        RU_TRY(turn(s, 1000000, err));
    }
    s->wrong = left > 0 ? "strangers were not cut off" : s->wrong;
    return RU_OK;
}

static void judge(scan *s, int fd)
{
    char *text = calloc(1, 1 << 20);
    RU_CHECK(text != NULL);
    ssize_t n = pread(fd, text, (1 << 20) - 1, 0);
    for (ssize_t i = 0; i < n; i++) {
        s->report.lines += text[i] == '\n';
    }
    free(text);
    const host *hub = &s->hosts[HUB], *honest = &s->hosts[HONEST], *other = &s->hosts[OTHER];
    if (s->wrong != NULL) {
        return;
    }
    if (hub->ups != 1 || hub->downs + honest->downs > 0) {
        s->wrong = "somebody got in, or the honest pair was broken";
    } else if (hub->messages != s->sent || s->sent == 0) {
        s->wrong = "honest messages were lost";
    } else if (other->ups > 0) {
        s->wrong = "another token was taken for the right one";
    } else if (s->report.lines == 0 || s->report.lines > LINES_MAX) {
        s->wrong = "the log does not hold one line for each kind";
    }
}

static ru_status life(scan *s, ru_err *err)
{
    RU_TRY(ru_loop_open(&s->loop, err));
    for (uint32_t i = 0; i < HOSTS; i++) {
        RU_TRY(open_host(s, i, err));
    }
    const char *address = s->hosts[HUB].ch->address;
    s->to.sin_family = AF_INET;
    s->to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->to.sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10));
    RU_TRY(ru_chan_connect(s->hosts[HONEST].ch, address, ru_clock_now(), err));
    RU_TRY(honest_up(s, err));
    RU_TRY(attack(s, err));
    return s->opt.wait ? outlive(s, err) : RU_OK;
}

ru_status ru_chan_scan(const ru_chan_scan_options *opt, ru_chan_scan_report *report, ru_err *err)
{
    scan *s = calloc(1, sizeof *s);
    RU_CHECK(s != NULL);
    s->opt = *opt;
    s->rng = ru_rng_from(opt->seed, ru_rng_label("scan"));
    for (uint32_t i = 0; i < HELD; i++) {
        s->held[i].fd = -1;
    }
    ru_log_options was = ru_log_get();
    int fd = memfd_create("log", MFD_CLOEXEC);
    RU_CHECK(fd >= 0);
    ru_log_set(&(ru_log_options){.level = RU_LOG_OFF, .level_file = RU_LOG_WARN, .fd_file = fd});
    ru_status st = life(s, err);
    for (uint32_t i = 0; i < HELD; i++) {
        hang_up(s, &s->held[i]);
    }
    s->report.messages = s->hosts[HUB].messages;
    if (s->hosts[HUB].ch != NULL) {
        ru_chan_stats stats;
        ru_chan_stats_get(s->hosts[HUB].ch, &stats);
        s->report.refused = stats.refused;
    }
    for (uint32_t i = 0; i < HOSTS; i++) {
        close_host(&s->hosts[i]);
    }
    ru_loop_close(s->loop);
    judge(s, fd);
    ru_log_set(&was);
    close(fd);
    *report = s->report;
    const char *wrong = s->wrong;
    free(s);
    return st != RU_OK || wrong == NULL
               ? st
               : RU_FAIL(err, RU_E_BUG, "%s; again: build/test/chan-storm scan %llu %u%s", wrong,
                         (unsigned long long)opt->seed, opt->strangers, opt->tls ? " tls" : "");
}
