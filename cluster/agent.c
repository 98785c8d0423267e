#include "cluster/agent.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cluster/agent_impl.h"
#include "comm/node/guest.h"
#include "env/file/claim.h"
#include "env/file/file.h"
#include "env/link/link_tcp.h"
#include "env/process/self.h"
#include "env/process/stop.h"

enum { TIMER_TICK = RU_GUEST_TIMER + 100, TIMER_LOOK, TIMER_DIAL, TIMER_BYE };

static const int64_t tick_ns = 1000000000, look_ns = 50000000, dial_ns = 300000000;
static const int64_t claim_wait_ns = 2000000000;
static const int64_t seat_wait_ns = 30000000000; /* another machine may still hold the seat */
static const int64_t bye_ns = 200000000;         /* for the last words to be sent */
static const int64_t alone_ns = 1000000000; /* a notice is short, and a scheduler may be gone */

static void on_timer(void *self, uint32_t what, ru_time now);

/* -- to the scheduler ----------------------------------------------------------------------------
 */

static void put_procs(const rui_agent *a, ru_cluster_state *s)
{
    *s = (ru_cluster_state){.name = a->opt->name,
                            .slots = a->opt->slots,
                            .leaving = a->leaving,
                            .heard = a->heard.number};
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        const rui_proc *p = &a->procs[k];
        if (p->agent != NULL) {
            s->procs[s->n++] = (ru_cluster_proc){.job = p->job,
                                                 .generation = p->generation,
                                                 .rank = p->rank,
                                                 .alive = p->alive || p->pid == 0,
                                                 .code = p->code,
                                                 .goes = p->sent != 0,
                                                 .left = p->left,
                                                 .ended = p->ended,
                                                 .address = p->alive ? p->address : "",
                                                 .why = p->why};
        }
    }
    rui_agent_services(a, s);
}

static void tell(void *self, ru_time now)
{
    rui_agent *a = self;
    if (a->leaving && !rui_agent_busy(a)) { /* these are its last words */
        ru_loop_timer(a->loop, on_timer, a, TIMER_BYE, ru_time_after(now, bye_ns));
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_cluster_state *s = a->up ? ru_arena_zalloc(&scratch, sizeof *s, 8) : NULL;
    void *bytes = ru_arena_alloc(&scratch, RU_CLUSTER_MESSAGE_BYTES, 8);
    if (s != NULL && bytes != NULL) {
        put_procs(a, s);
        int64_t n = ru_cluster_state_put(s, bytes);
        if (n == 0 || ru_guest_send(a->guest, RU_CLUSTER_STATE, bytes, n, now) != RU_OK) {
            ru_log(RU_LOG_WARN, "cluster", "state", "the scheduler did not take the state of %s",
                   a->opt->name);
        }
    }
    ru_arena_fini(&scratch);
}

void rui_agent_changed(rui_agent *a)
{
    ru_loop_after(a->loop, tell, a);
}

/* Where the scheduler is now, if the file can be read; true: not where it was dialed last. */
static bool look_up(rui_agent *a, ru_err *err)
{
    char *text;
    int64_t n = 0;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    bool moved = false;
    if (ru_file_read(a->opt->find, sizeof a->dialed - 1, &scratch, &text, &n, err) == RU_OK) {
        text[strcspn(text, "\n")] = 0;
        moved = strcmp(text, a->dialed) != 0;
        (void)snprintf(a->dialed, sizeof a->dialed, "%s", text);
    }
    ru_arena_fini(&scratch);
    return moved;
}

static void dial(rui_agent *a, ru_time now)
{
    ru_err err = {0};
    (void)look_up(a, &err);
    if (err.status != RU_OK || ru_guest_dial(a->guest, a->dialed, now, &err) != RU_OK) {
        ru_loop_timer(a->loop, on_timer, a, TIMER_DIAL, ru_time_after(now, dial_ns));
    }
}

/* Another scheduler leads when the address changes; the one before may not know it yet. */
static void follow_lead(rui_agent *a, ru_time now)
{
    ru_err err = {0};
    if (a->up && look_up(a, &err)) {
        ru_log(RU_LOG_INFO, "cluster", "lead", "the scheduler is at %s now", a->dialed);
        a->up = false;
        dial(a, now);
    }
}

static void on_up(void *self, ru_time now)
{
    rui_agent *a = self;
    a->up = true;
    ru_log(RU_LOG_INFO, "cluster", "agent_up", "node %s, %u slots", a->opt->name, a->opt->slots);
    tell(a, now);
}

static void on_down(void *self, ru_status why, const char *sentence, ru_time now)
{
    rui_agent *a = self;
    if (a->up || why == RU_E_PERM) {
        ru_log(RU_LOG_WARN, "cluster", "agent_down", "no scheduler: %s", sentence);
    }
    a->up = false;
    ru_loop_timer(a->loop, on_timer, a, TIMER_DIAL, ru_time_after(now, dial_ns));
}

bool rui_agent_hear(rui_agent *a, const void *data, int64_t size_bytes)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_cluster_orders *o = RU_NEW(&arena, ru_cluster_orders, 1);
    bool fine = o != NULL && ru_cluster_orders_get(data, size_bytes, &arena, o);
    if (!fine) {
        ru_log(RU_LOG_ERROR, "cluster", "orders", "the scheduler sent what are no orders");
    } else if (o->epoch < a->heard.epoch) {
        ru_log(RU_LOG_WARN, "cluster", "orders",
               "a scheduler of epoch %llu gave orders after that of %llu",
               (unsigned long long)o->epoch, (unsigned long long)a->heard.epoch);
        fine = false;
    }
    if (!fine) {
        ru_arena_fini(&arena);
        return false;
    }
    a->heard = *o;
    ru_arena_fini(&a->heard_arena);
    a->heard_arena = arena;
    return true;
}

static void on_message(void *self, uint32_t what, const void *data, int64_t size_bytes, ru_time now)
{
    rui_agent *a = self;
    if (what != RU_CLUSTER_ORDERS || !rui_agent_hear(a, data, size_bytes)) {
        return;
    }
    rui_agent_follow(a, now);
    rui_agent_changed(a); /* it follows them, and what it started has slots */
    ru_loop_timer(a->loop, on_timer, a, TIMER_LOOK, ru_time_after(now, look_ns));
}

/* -- the loop ------------------------------------------------------------------------------------
 */

static void on_timer(void *self, uint32_t what, ru_time now)
{
    rui_agent *a = self;
    if (what == TIMER_DIAL) {
        dial(a, now);
    } else if (what == TIMER_LOOK) {
        if (rui_agent_look(a, now)) {
            ru_loop_timer(a->loop, on_timer, a, TIMER_LOOK, ru_time_after(now, look_ns));
        }
        rui_agent_follow(a, now);
    } else if (what == TIMER_TICK) {
        follow_lead(a, now);
        rui_agent_pace(a, now);
        rui_agent_follow(a, now);
        if (a->leaving && !a->up && ru_time_since(now, a->noticed) > alone_ns) {
            rui_agent_clear(a, SIGTERM, now);
        }
        if (a->leaving && a->opt->grace_ns > 0 &&
            ru_time_since(now, a->noticed) > a->opt->grace_ns) {
            rui_agent_clear(a, SIGKILL, now);
        }
        tell(a, now);
        ru_loop_timer(a->loop, on_timer, a, TIMER_TICK, ru_time_after(now, tick_ns));
    } else if (what == TIMER_BYE) {
        ru_loop_stop(a->loop);
    } else {
        ru_guest_timer(a->guest, now);
    }
}

static void timers_set(void *self, uint32_t what, ru_time at)
{
    rui_agent *a = self;
    ru_loop_timer(a->loop, on_timer, a, what, at);
}

static void timers_off(void *self, uint32_t what)
{
    rui_agent *a = self;
    ru_loop_timer_off(a->loop, on_timer, a, what);
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    rui_agent *a = self;
    (void)events;
    if (!a->opt->leaves) {
        ru_loop_stop(a->loop);
        return;
    }
    ru_loop_fd_off(a->loop, fd);
    a->leaving = true;
    a->noticed = now;
    ru_log(RU_LOG_INFO, "cluster", "notice", "node %s leaves", a->opt->name);
    tell(a, now);
}

static ru_status open_guest(rui_agent *a, ru_err *err)
{
    const ru_agent_options *o = a->opt;
    const ru_link_tcp_options lo = {.loop = a->loop,
                                    .psk = (const uint8_t *)o->key,
                                    .psk_bytes = (uint32_t)strlen(o->key),
                                    .conns_max = ru_guest_conns() + RU_LINK_TCP_STRANGERS};
    RU_TRY(ru_link_tcp_open(&lo, &a->link, err));
    ru_guest_options go = {.address = "",
                           .job = RU_CLUSTER_SERVICE,
                           .token = lo.psk,
                           .token_bytes = lo.psk_bytes,
                           .link = ru_link_tcp_link(a->link),
                           .timers = {timers_set, timers_off, a},
                           .up = on_up,
                           .message = on_message,
                           .down = on_down,
                           .self_up = a};
    ru_self_random(&go.self.v, sizeof go.self.v);
    RU_TRY(ru_guest_open(&go, a->arena, &a->guest, err));
    ru_link_tcp_user(a->link, ru_guest_link_user(a->guest));
    return RU_OK;
}

static ru_status run(rui_agent *a, ru_err *err)
{
    int fd = ru_self_stop_fd();
    RU_TRY(ru_loop_open(&a->loop, err));
    RU_TRY(open_guest(a, err));
    RU_TRY(rui_agent_adopt(a, err));
    RU_TRY(rui_agent_bursts_open(a, err));
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(a->loop, fd, 1, on_stop, a, err));
    }
    ru_time now = ru_clock_now();
    on_timer(a, TIMER_LOOK, now);
    ru_loop_timer(a->loop, on_timer, a, TIMER_TICK, ru_time_after(now, tick_ns));
    dial(a, now);
    return ru_loop_run(a->loop, err);
}

ru_status ru_agent_run(const ru_agent_options *opt, ru_arena *arena, ru_err *err)
{
    rui_agent *a = RU_NEW(arena, rui_agent, 1);
    ru_claim *claim = NULL;
    if (a == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an agent");
    }
    RU_TRY(ru_dir_make(opt->folder, err));
    const ru_claim_options co = {
        .dir = opt->folder, .alone = true, .wait_ns = opt->leaves ? seat_wait_ns : claim_wait_ns};
    RU_TRY(ru_claim_open(&co, &claim, err));
    a->opt = opt;
    a->arena = arena;
    ru_arena_init(&a->heard_arena, 0);
    ru_self_stop_watch();
    if (opt->leaves) {
        ru_self_stop_patient();
    }
    ru_status st = run(a, err);
    ru_self_stop_unwatch();
    for (uint32_t k = 0; k < RU_CLUSTER_PROCS_MAX; k++) {
        ru_process_leave(a->procs[k].child);
    }
    rui_agent_bursts_close(a);
    ru_guest_close(a->guest);
    ru_link_tcp_close(a->link);
    ru_loop_close(a->loop);
    ru_arena_fini(&a->heard_arena);
    ru_claim_close(claim);
    return st;
}
