#include "host/shell.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "env/process/self.h"
#include "env/process/shm.h"
#include "env/thread.h"
#include "host/shell_impl.h"
#include "run/message.h"

enum {
    PEERS_MORE = 16,    /* those who join while others leave */
    QUEUE_NS = 5000000, /* the loop thread shares its core with a compute thread */
    LOOK_NS = 20000000,
    LOOKS_MAX = 50, /* a second for traces of other hosts on their way */
};

/* -- opening ----------------------------------------------------------------------------------- */

static uint32_t n_max(const ru_shell_options *o)
{
    return o->n_max > 0 ? o->n_max : RU_WORKERS_MAX;
}

uint32_t ru_shell_peers_max(const ru_shell_options *opt)
{
    return n_max(opt) + PEERS_MORE;
}

static ru_status open_link(ru_shell *h, ru_err *err)
{
    const ru_shell_options *o = h->opt;
    char near[RU_LINK_TCP_ADDRESS_MAX];
    const char *listen = o->listen != NULL ? o->listen : "127.0.0.1:0";
    if (o->listen == NULL && o->join != NULL) { /* later ones must reach it from where that is */
        bool known = ru_link_tcp_source(o->join, near);
        listen = known ? ru_arena_printf(h->arena, "%s:0", near) : ":0";
    }
    if (listen == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    const ru_link_tcp_options lo = {
        .loop = h->loop,
        .listen = listen,
        .toward = o->toward != NULL ? o->toward : o->join,
        .psk = o->token,
        .psk_bytes = o->token_bytes,
        .conns_max = ru_chan_conns(ru_shell_peers_max(o)) + RU_LINK_TCP_STRANGERS,
        .queue_ns = o->queue_ns > 0 ? o->queue_ns : QUEUE_NS,
    };
    RU_TRY(ru_link_tcp_open(&lo, &h->link, err));
    if (o->address != NULL) {
        o->address(o->self, ru_link_tcp_address(h->link));
    }
    return RU_OK;
}

static void on_wake(void *self, ru_time now)
{
    ru_shell *h = self;
    ru_effects *fx = ru_node_enter(h->timers.node, now);
    for (uint32_t k = 0; k < h->n_lines; k++) {
        uint32_t n;
        for (const void *x; (x = ru_spsc_peek(h->lines[k], 1, &n), n > 0);) {
            h->ops->said(h->self, x, now, fx);
            ru_spsc_drop(h->lines[k], 1);
        }
    }
    ru_node_leave(h->timers.node, now);
}

ru_status ru_shell_open(ru_shell *h, const ru_shell_options *opt, const ru_shell_ops *ops,
                        void *self, ru_arena *arena, ru_err *err)
{
    *h = (ru_shell){.opt = opt, .ops = ops, .self = self, .arena = arena};
    RU_TRY(ru_loop_open(&h->loop, err));
    RU_TRY(ru_loop_waker(h->loop, on_wake, h, &h->waker, err));
    return open_link(h, err);
}

/* Processes that can share memory have the same text. */
static void host_text(char into[64])
{
    char host[RU_SHM_HOST_MAX], name[256];
    ru_shm_host(host);
    ru_self_host(name, sizeof name);
    (void)snprintf(into, 64, "%.40s/%016llx", name,
                   (unsigned long long)ru_hash_bytes(host, (int64_t)strlen(host), 0));
}

static void member_options(const ru_shell *h, const ru_shell_node_options *no, ru_member_options *m)
{
    const ru_shell_options *o = h->opt;
    *m = (ru_member_options){.self = {.node = h->id,
                                      .number = o->number | (o->newcomer ? RU_MEMBER_LATER : 0),
                                      .capacity = no->capacity,
                                      .tier = o->transient ? RU_TIER_TRANSIENT : RU_TIER_RELIABLE,
                                      .no_vote = o->transient},
                             .join = o->join,
                             .n_max = no->n_max > 0 && no->n_max < n_max(o) ? no->n_max : n_max(o),
                             .agreed = no->agreed};
    if (no->silent_ns > 0) {
        m->dead_ns = no->silent_ns;
        m->suspect_ns = no->silent_ns - (RU_MEMBER_DEAD_NS - RU_MEMBER_SUSPECT_NS);
    }
    (void)snprintf(m->self.address, sizeof m->self.address, "%s", ru_link_tcp_address(h->link));
    if (no->host != NULL) {
        (void)snprintf(m->self.host, sizeof m->self.host, "%s", no->host);
    } else {
        host_text(m->self.host);
    }
}

/* The whole path of the run's folder, for processes in other folders. */
static ru_status find_out(ru_shell *h, const char *out, ru_err *err)
{
    char *path = out != NULL ? realpath(out, NULL) : NULL;
    h->out = out != NULL ? ru_arena_str(h->arena, path != NULL ? path : out) : NULL;
    free(path);
    return h->out != NULL || out == NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a worker");
}

ru_status ru_shell_node(ru_shell *h, const ru_shell_node_options *no, ru_err *err)
{
    const ru_shell_options *o = h->opt;
    RU_TRY(find_out(h, no->out, err));
    ru_self_random(&h->id.v, sizeof h->id.v);
    h->yaml = no->yaml;
    h->timers.loop = h->loop;
    ru_node_options to = {.chan = {.self = h->id,
                                   .address = ru_link_tcp_address(h->link),
                                   .job = ru_hash_bytes(o->token, o->token_bytes, 1),
                                   .token = o->token,
                                   .token_bytes = o->token_bytes,
                                   .peers_max = ru_shell_peers_max(o),
                                   .streams_max = no->xfers_max,
                                   .slots_max = no->xfers_max,
                                   .buffer_bytes = no->buffer_bytes,
                                   .chunk_bytes = no->chunk_bytes,
                                   .recorder = no->recorder},
                          .link = ru_link_tcp_link(h->link),
                          .timers = ru_node_loop_timers(&h->timers),
                          .log = no->log,
                          .log_self = h->self};
    member_options(h, no, &to.member);
    RU_TRY(ru_node_open(&to, h->arena, &h->timers.node, err));
    h->tracing = (ru_tracing){.recorder = no->recorder,
                              .loop = h->loop,
                              .chan = ru_node_chan(h->timers.node),
                              .member = ru_node_member(h->timers.node),
                              .self = h->id,
                              .out = h->out,
                              .rank = no->rank,
                              .over = &h->ended};
    ru_link_tcp_user(h->link, ru_node_link_user(h->timers.node));
    return RU_OK;
}

/* -- what threads say -------------------------------------------------------------------------- */

ru_status ru_shell_line(ru_shell *h, ru_spsc *line, uint32_t count, uint32_t elem_bytes,
                        ru_err *err)
{
    RU_CHECK(h->n_lines < RU_SHELL_LINES_MAX);
    void *slots = ru_arena_alloc(h->arena, (int64_t)count * elem_bytes, 64);
    if (slots == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    ru_spsc_init(line, slots, count, elem_bytes);
    h->lines[h->n_lines++] = line;
    return RU_OK;
}

void ru_shell_say(ru_shell *h, ru_spsc *line, const void *element)
{
    void *place = ru_spsc_place(line);
    RU_CHECK(place != NULL);
    memcpy(place, element, line->elem_bytes);
    ru_spsc_put(line);
    ru_loop_wake(h->loop, h->waker);
}

/* -- running ----------------------------------------------------------------------------------- */

bool ru_shell_leaves(const ru_shell *h)
{
    return h->opt->stop_leaves || (h->opt->term_leaves && ru_self_stop_asked() == SIGTERM);
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    (void)events;
    ru_shell *h = self;
    ru_loop_fd_off(h->loop, fd);
    if (!h->ended) {
        h->asked = true;
        ru_effects *fx = ru_node_enter(h->timers.node, now);
        h->ops->stop(h->self, !ru_shell_leaves(h), now, fx);
        ru_node_leave(h->timers.node, now);
    }
}

ru_status ru_shell_guests(ru_shell *h, const char *listen, uint32_t conns,
                          const ru_guests_options *o, ru_err *err)
{
    ru_guests_options go = *o;
    const ru_link_tcp_options lo = {.loop = h->loop,
                                    .listen = listen,
                                    .psk = o->token,
                                    .psk_bytes = o->token_bytes,
                                    .conns_max = conns + RU_LINK_TCP_STRANGERS,
                                    .queue_ns = QUEUE_NS};
    RU_TRY(ru_link_tcp_open(&lo, &h->guests, err));
    go.address = ru_link_tcp_address(h->guests);
    go.link = ru_link_tcp_link(h->guests);
    ru_self_random(&go.self.v, sizeof go.self.v);
    RU_TRY(ru_node_guests(h->timers.node, &go, h->arena, err));
    ru_link_tcp_user(h->guests, ru_node_guests_link_user(h->timers.node));
    return RU_OK;
}

ru_status ru_shell_run(ru_shell *h, ru_err *err)
{
    int fd = ru_self_stop_fd();
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(h->loop, fd, 1 /* EPOLLIN */, on_stop, h, err));
    }
    const ru_part part = rui_shell_part(h); /* the last: it sees a view after the owner's parts */
    ru_node_part(h->timers.node, &part);
    ru_thread_prompt();
    ru_node_start(h->timers.node, ru_clock_now());
    return ru_loop_run(h->loop, err);
}

void ru_shell_number(ru_shell *h, uint32_t number, bool takes_state)
{
    char text[16];
    h->number = number;
    (void)snprintf(text, sizeof text, "%u", number);
    ru_recorder_meta(h->tracing.recorder, "number", text); /* its file is named by a process */
    if (h->opt->member != NULL) {
        h->opt->member(h->opt->self, number, takes_state);
    }
}

void ru_shell_tell_view(const ru_shell *h)
{
    const ru_member *member = ru_node_member(h->timers.node);
    const ru_view *v = ru_member_view(member);
    ru_member_wanted w;
    ru_msg m = {.kind = RU_MSG_VIEW, .view = {.epoch = v->epoch, .spares = -1}};
    if (ru_member_leads(member)) {
        ru_member_wanted_get(member, &w);
        m.view.spares = w.n_joining;
    }
    RU_CHECK(v->n <= RU_MSG_NUMBERS_MAX);
    for (uint32_t k = 0; k < v->n; k++) {
        m.view.numbers[m.view.n++] = v->at[k].number;
        if (v->at[k].number != h->number && v->at[k].number > m.view.last) {
            m.view.last = v->at[k].number;
            m.view.address = v->at[k].address;
        }
    }
    (void)!ru_msg_tell(&m, NULL); /* it is short enough */
}

/* -- the end ----------------------------------------------------------------------------------- */

void ru_shell_end(ru_shell *h, ru_status st, const char *text, ru_time now)
{
    h->ended = true;
    h->end_status = st;
    (void)snprintf(h->end_text, sizeof h->end_text, "%s", text);
    ru_tracing_end(&h->tracing, now);
}

static void bye(void *self, uint32_t looks, ru_time now)
{
    ru_shell *h = self;
    if (!ru_tracing_waits(&h->tracing) || looks >= LOOKS_MAX) {
        ru_loop_stop(h->loop);
        return;
    }
    ru_loop_timer(h->loop, bye, h, looks + 1, ru_time_after(now, LOOK_NS));
}

void ru_shell_bye(ru_shell *h, int64_t wait_ns, ru_time now)
{
    ru_loop_timer(h->loop, bye, h, 0, ru_time_after(now, wait_ns));
}

bool ru_shell_removed(const ru_shell *h, char *again)
{
    ru_member_facts f;
    ru_member *m = ru_node_member(h->timers.node);
    const ru_view *v = ru_member_view(m);
    ru_member_facts_get(m, &f);
    bool removed = false;
    for (uint32_t k = 0; k < v->n && f.removed && !h->asked; k++) {
        bool other = !ru_node_is(v->at[k].node, h->id);
        if (other && (!removed || ru_node_is(v->at[k].node, v->leader))) {
            removed = true;
            (void)snprintf(again, RU_LINK_TCP_ADDRESS_MAX, "%s", v->at[k].address);
        }
    }
    return removed;
}

void ru_shell_close(ru_shell *h)
{
    ru_node_close(h->timers.node);
    ru_link_tcp_close(h->link);
    ru_link_tcp_close(h->guests);
    ru_loop_close(h->loop);
    *h = (ru_shell){0};
}
