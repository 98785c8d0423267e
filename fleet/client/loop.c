#include "fleet/client/client.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "env/process/self.h"
#include "fleet/client/client_impl.h"
#include "fleet/client/masked.h"

enum { TIMER_DIAL = 16, TIMER_STILL, SLOTS = 4 };

static const int64_t dial_ns = 1000000000, still_ns = 20000000000;

/* -- main thread: sending -------------------------------------------------------------------------
 */

void rui_fed_client_give(rui_fed_client *c, const rui_fed_work *w)
{
    ru_mutex_lock(&c->lock);
    c->work = *w;
    ru_cond_signal(&c->changed);
    ru_mutex_unlock(&c->lock);
}

static void give(rui_fed_client *c, rui_fed_work_kind kind)
{
    rui_fed_client_give(c, &(rui_fed_work){.kind = kind});
}

void rui_fed_client_end(rui_fed_client *c, ru_status st, const char *text)
{
    if (!c->over && st != RU_OK) {
        (void)ru_err_set(&c->why, st, "%s", text);
    }
    c->over = true;
    ru_flag_set(&c->give_up, 1);
    ru_loop_stop(c->loop);
}

void rui_fed_client_say(rui_fed_client *c, uint32_t what, const void *data, int64_t size_bytes,
                        ru_time now)
{
    (void)!ru_guest_send(c->guest, what, data, size_bytes, now);
}

/* What parcels want: messages to the server, and to be called again. */
static void perform(rui_fed_client *c, ru_time now)
{
    bool again = false;
    for (uint32_t k = 0; k < c->fx.n; k++) {
        const ru_effect *e = &c->fx.at[k];
        if (e->kind == RU_FX_SEND) {
            rui_fed_client_say(c, e->what, e->data, e->size_bytes, now);
        }
        again = again || e->kind == RU_FX_LOCAL;
    }
    ru_effects_clear(&c->fx);
    if (again) {
        ru_pull_local(c->pull, now, &c->fx);
        perform(c, now);
    }
}

void rui_fed_client_parcel(rui_fed_client *c, uint32_t what, const void *head, uint32_t head_bytes,
                           void *body, int64_t body_bytes, ru_time now)
{
    (void)ru_pull_send(c->pull, ru_guest_host(c->guest), what, head, head_bytes, body, body_bytes,
                       true, 0, now, &c->fx);
    perform(c, now);
}

static void say_failed(rui_fed_client *c, uint32_t task, const char *text, ru_time now)
{
    uint8_t m[RUI_FED_TEXT_MAX + 8];
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    uint32_t n = (uint32_t)strlen(text);
    ru_wire_put_u32(&o, task);
    ru_wire_put_text(&o, text, n < RUI_FED_TEXT_MAX - 1 ? n : RUI_FED_TEXT_MAX - 1);
    rui_fed_client_say(c, RUI_FED_FAILED, m, ru_wire_size(&o), now);
}

static void say_ready(rui_fed_client *c, ru_time now)
{
    uint8_t m[RUI_FED_HEAD_MAX];
    const ru_flat *f = ru_local_flat(c->local);
    const rui_fed_ready r = {.samples = (double)ru_dataset_count(c->train),
                             .held = c->held != NULL ? (double)ru_dataset_count(c->held) : 0,
                             .count = (uint64_t)f->count,
                             .hash = f->hash};
    ru_log(RU_LOG_INFO, "fed", "ready", "client %s takes part with %.0f samples", c->opt->name,
           r.samples);
    rui_fed_client_say(c, RUI_FED_READY, m, rui_fed_ready_put(&r, m), now);
}

static void answer(rui_fed_client *c, rui_fed_work *w, ru_time now)
{
    uint8_t m[RUI_FED_HEAD_MAX];
    int64_t bytes = ru_local_flat(c->local)->count * (int64_t)sizeof(float);
    if (w->st == RU_OK && rui_masked_trained(c, w)) {
        return; /* its masks come next */
    }
    c->task = 0;
    if (w->st != RU_OK) { /* it ends when the server has heard it */
        (void)ru_err_set(&c->why, w->st, "round %u: %s", w->task.round, w->err.text);
        say_failed(c, w->task.task, w->err.text, now);
        ru_bufs_put(&c->bufs, w->values);
    } else if (w->task.kind == RUI_FED_EVALUATE) {
        const rui_fed_score s = {.task = w->task.task,
                                 .correct = w->score.correct,
                                 .count = w->score.count,
                                 .loss = w->score.loss};
        rui_fed_client_say(c, RUI_FED_SCORE, m, rui_fed_score_put(&s, m), now);
        ru_bufs_put(&c->bufs, w->values);
    } else {
        const rui_fed_update u = {.task = w->task.task,
                                  .loss = w->result.loss,
                                  .loss_rms = w->result.loss_rms,
                                  .accuracy = w->result.accuracy};
        if (c->masked != NULL && w->task.kind == RUI_FED_PROFILE) {
            memset(w->values, 0, (size_t)bytes); /* it shows how long it takes, no more */
        }
        rui_fed_client_parcel(c, RUI_FED_UPDATE, m, rui_fed_update_put(&u, m), w->values, bytes,
                              now);
    }
}

static void begin(rui_fed_client *c, const rui_fed_task *t, float *values)
{
    ru_flag_set(&c->give_up, 0);
    rui_fed_client_give(c, &(rui_fed_work){.kind = WORK_TASK, .task = *t, .values = values});
}

/* The task under way, if there is one: nobody waits for it any more. */
static void give_up(rui_fed_client *c)
{
    c->task = 0;
    ru_flag_set(&c->give_up, 1);
    ru_bufs_put(&c->bufs, c->next_values);
    c->next_values = NULL;
}

static void give_up_masks(rui_fed_client *c)
{
    if (c->opened) {
        rui_masked_give_up(c);
    }
}

/* The compute thread is done with something. */
static void on_wake(void *self, ru_time now)
{
    rui_fed_client *c = self;
    ru_mutex_lock(&c->lock);
    rui_fed_work w = c->work;
    bool done = w.done && w.kind != WORK_QUIT;
    if (done) {
        c->work = (rui_fed_work){0};
    }
    ru_mutex_unlock(&c->lock);
    if (!done) {
        return;
    }
    if (w.kind == WORK_OPEN && w.st != RU_OK) {
        rui_fed_client_end(c, w.st, w.err.text);
    } else if (w.kind == WORK_OPEN) {
        c->opened = true;
        if (c->up) {
            say_ready(c, now);
        }
    } else if (w.task.task == c->task && c->next_values == NULL) {
        answer(c, &w, now);
    } else { /* nobody waits for it any more */
        ru_bufs_put(&c->bufs, w.values);
        if (c->next_values != NULL) {
            begin(c, &c->next, c->next_values);
            c->next_values = NULL;
        }
    }
}

/* -- main thread: hearing -------------------------------------------------------------------------
 */

static void on_start(rui_fed_client *c, const void *body, int64_t bytes, ru_time now)
{
    if (c->state == NULL) {
        c->state = ru_arena_strn(c->arena, body, bytes);
        c->state_bytes = bytes;
        if (c->state == NULL) {
            rui_fed_client_end(c, RU_E_MEM, "no memory for the job of the server");
            return;
        }
        give(c, WORK_OPEN);
    } else if (c->opened) { /* the server came again */
        say_ready(c, now);
    }
}

static void got(void *self, ru_node_id from, uint32_t what, const void *head, uint32_t head_bytes,
                void *body, int64_t body_bytes, ru_time now, ru_effects *fx)
{
    rui_fed_client *c = self;
    rui_fed_task t;
    (void)from;
    (void)fx;
    bool fits = c->opened && body_bytes == ru_local_flat(c->local)->count * (int64_t)sizeof(float);
    ru_mutex_lock(&c->lock);
    bool idle = c->work.kind == WORK_NONE;
    ru_mutex_unlock(&c->lock);
    if (what == RUI_FED_START && body_bytes > 0) {
        on_start(c, body, body_bytes, now);
    } else if (what == RUI_FED_TASK && fits && rui_fed_task_get(head, head_bytes, &t) &&
               (t.kind != RUI_FED_EVALUATE || c->held != NULL)) {
        give_up(c);
        c->task = t.task;
        if (idle) {
            begin(c, &t, body);
        } else {
            c->next = t;
            c->next_values = body;
        }
        return;
    } else if (c->opened && c->masked != NULL) {
        rui_masked_parcel(c, what, head, head_bytes, body, body_bytes, now);
    }
    ru_bufs_put(&c->bufs, body);
}

static void sent(void *self, uint64_t cookie, bool ok, ru_time now, ru_effects *fx)
{
    (void)self; /* parcels own their bodies */
    (void)cookie;
    (void)ok;
    (void)now;
    (void)fx;
}

static void on_message(void *self, uint32_t what, const void *data, int64_t size_bytes, ru_time now)
{
    rui_fed_client *c = self;
    char text[RUI_FED_TEXT_MAX + 64];
    if (what == RUI_FED_BYE) {
        ru_log(RU_LOG_INFO, "fed", "over", "the job is over");
        rui_fed_client_end(c, RU_OK, "");
    } else if (what == RUI_FED_HEARD && c->why.status != RU_OK) {
        rui_fed_client_end(c, RU_OK, ""); /* with what it told the server */
    } else if (what == RUI_FED_NO) {
        (void)snprintf(text, sizeof text, "%s refuses this client: %.*s", c->opt->address,
                       (int)(size_bytes < RUI_FED_TEXT_MAX ? size_bytes : RUI_FED_TEXT_MAX),
                       (const char *)data);
        rui_fed_client_end(c, RU_E_PERM, text);
    } else if (what == RUI_FED_STOP) {
        give_up(c);
        give_up_masks(c);
        rui_fed_client_say(c, RUI_FED_STILL, NULL, 0, now);
    } else if (what == RUI_FED_ASK && c->opened && c->masked != NULL) {
        rui_masked_begin(c, data, size_bytes, now);
    } else if (what == RUI_FED_SURVIVED && c->opened && c->masked != NULL) {
        rui_masked_reveal(c, data, size_bytes, now);
    } else if (what >= RUI_FED_PARCELS && what < RUI_FED_END) {
        const ru_event ev = {.kind = RU_EV_MESSAGE,
                             .now = now,
                             .node = ru_guest_host(c->guest),
                             .what = what,
                             .data = data,
                             .size_bytes = size_bytes};
        ru_pull_step(c->pull, &ev, &c->fx);
        perform(c, now);
    }
}

static void on_timer(void *self, uint32_t what, ru_time now);

static void on_up(void *self, ru_time now)
{
    rui_fed_client *c = self;
    uint8_t m[RUI_FED_HEAD_MAX];
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    c->up = true;
    c->host = ru_guest_host(c->guest);
    c->tries = 0;
    ru_wire_put_u32(&o, RUI_FED_VERSION);
    ru_wire_put_text(&o, c->opt->name, (uint32_t)strlen(c->opt->name));
    ru_wire_put_u64(&o, c->process);
    rui_fed_client_say(c, RUI_FED_HELLO, m, ru_wire_size(&o), now);
    ru_loop_timer(c->loop, on_timer, c, TIMER_STILL, ru_time_after(now, still_ns));
}

static void on_down(void *self, ru_status why, const char *sentence, ru_time now)
{
    rui_fed_client *c = self;
    char text[RU_GUEST_REASON_MAX + 300];
    ru_chan_stats s;
    ru_chan_stats_get(ru_guest_chan(c->guest), &s);
    if (why == RU_E_PERM || (!c->up && s.refused > 0)) {
        (void)snprintf(text, sizeof text,
                       "%s refuses this client: %s; check that the token is of this server "
                       "(`rubato fed token NAME` there)",
                       c->opt->address, why == RU_E_PERM ? sentence : "the token is not valid");
        rui_fed_client_end(c, RU_E_PERM, text);
        return;
    }
    const ru_event ev = {.kind = RU_EV_DOWN, .now = now, .node = c->host};
    ru_pull_step(c->pull, &ev, &c->fx);
    perform(c, now);
    if (c->up || c->tries++ % 30 == 0) {
        ru_log(RU_LOG_INFO, "fed", "server", "waiting for the server at %s: %s", c->opt->address,
               sentence);
    }
    c->up = false;
    give_up(c);
    give_up_masks(c);
    if (c->why.status != RU_OK) {
        rui_fed_client_end(c, RU_OK, "");
    }
    ru_loop_timer(c->loop, on_timer, c, TIMER_DIAL, ru_time_after(now, dial_ns));
}

static void on_timer(void *self, uint32_t what, ru_time now)
{
    rui_fed_client *c = self;
    ru_err err;
    if (what == TIMER_STILL) {
        rui_fed_client_say(c, RUI_FED_STILL, NULL, 0, now);
        ru_loop_timer(c->loop, on_timer, c, TIMER_STILL, ru_time_after(now, still_ns));
    } else if (what == TIMER_DIAL) {
        if (ru_guest_dial(c->guest, c->opt->address, now, &err) != RU_OK) {
            rui_fed_client_end(c, RU_E_USAGE, err.text);
        }
    } else {
        ru_guest_timer(c->guest, now);
        ru_pull_room(c->pull, now, &c->fx);
        perform(c, now);
    }
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    rui_fed_client *c = self;
    ru_pull_arrived(c->pull, cookie, now, &c->fx);
    perform(c, now);
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    rui_fed_client *c = self;
    ru_pull_sent(c->pull, cookie, now, &c->fx);
    perform(c, now);
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    rui_fed_client *c = self;
    ru_pull_failed(c->pull, cookie, why, now, &c->fx);
    perform(c, now);
}

static void on_room(void *self, ru_time now)
{
    rui_fed_client *c = self;
    ru_pull_room(c->pull, now, &c->fx);
    perform(c, now);
}

/* -- opening --------------------------------------------------------------------------------------
 */

static void timers_set(void *self, uint32_t what, ru_time at)
{
    ru_loop_timer(((rui_fed_client *)self)->loop, on_timer, self, what, at);
}

static void timers_off(void *self, uint32_t what)
{
    ru_loop_timer_off(((rui_fed_client *)self)->loop, on_timer, self, what);
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    rui_fed_client *c = self;
    (void)events;
    (void)now;
    ru_loop_fd_off(c->loop, fd);
    rui_fed_client_end(c, RU_OK, "");
}

static ru_status open_guest(rui_fed_client *c, ru_err *err)
{
    const ru_fed_client_options *o = c->opt;
    RU_TRY(ru_loop_open(&c->loop, err));
    const ru_link_tcp_options lo = {.loop = c->loop,
                                    .psk = o->key,
                                    .psk_bytes = o->key_bytes,
                                    .psk_name = o->name,
                                    .conns_max = ru_guest_conns() + RU_LINK_TCP_STRANGERS};
    RU_TRY(ru_link_tcp_open(&lo, &c->link, err));
    c->self = ru_guest_name(o->name);
    const ru_guest_options go = {.self = c->self,
                                 .address = "",
                                 .job = RUI_FED_SERVICE,
                                 .token = o->key,
                                 .token_bytes = o->key_bytes,
                                 .link = ru_link_tcp_link(c->link),
                                 .timers = {timers_set, timers_off, c},
                                 .up = on_up,
                                 .message = on_message,
                                 .down = on_down,
                                 .slots_max = SLOTS,
                                 .arrived = on_arrived,
                                 .failed = on_failed,
                                 .sent = on_sent,
                                 .room = on_room,
                                 .self_up = c};
    RU_TRY(ru_guest_open(&go, c->arena, &c->guest, err));
    ru_link_tcp_user(c->link, ru_guest_link_user(c->guest));
    const ru_pull_options po = {.chan = ru_guest_chan(c->guest),
                                .self = c->self,
                                .bufs = &c->bufs,
                                .user = {c, got, sent},
                                .peers_max = 4,
                                .what_first = RUI_FED_PARCELS,
                                .local = RUI_FED_LOCAL};
    return ru_pull_open(&po, c->arena, &c->pull, err);
}

static ru_status run(rui_fed_client *c, ru_err *err)
{
    int fd = ru_self_stop_fd();
    RU_TRY(open_guest(c, err));
    RU_TRY(ru_loop_waker(c->loop, on_wake, c, &c->waker, err));
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(c->loop, fd, 1, on_stop, c, err));
    }
    RU_TRY(ru_thread_start(&c->thread, "client", rui_fed_compute, c, err));
    RU_TRY(ru_guest_dial(c->guest, c->opt->address, ru_clock_now(), err));
    RU_TRY(ru_loop_run(c->loop, err));
    if (c->why.status != RU_OK && err != NULL) {
        *err = c->why;
    }
    return c->why.status;
}

ru_status ru_fed_join(const ru_fed_client_options *opt, ru_arena *arena, ru_err *err)
{
    rui_fed_client *c = RU_NEW(arena, rui_fed_client, 1);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a client");
    }
    *c = (rui_fed_client){.opt = opt, .arena = arena};
    ru_bufs_init(&c->bufs, INT64_C(1) << 40); /* the server says how large the model is */
    ru_arena_init(&c->fx_arena, 0);
    ru_effects_init(&c->fx, &c->fx_arena);
    ru_mutex_init(&c->lock);
    ru_cond_init(&c->changed);
    ru_self_random(&c->process, sizeof c->process);
    ru_self_stop_watch();
    ru_status st = run(c, err);
    ru_self_stop_unwatch();
    if (c->thread.started) {
        ru_flag_set(&c->give_up, 1);
        give(c, WORK_QUIT);
        ru_thread_join(&c->thread);
    }
    ru_local_close(c->local);
    ru_dataset_close(c->train);
    ru_dataset_close(c->held);
    ru_pull_close(c->pull);
    ru_guest_close(c->guest);
    ru_link_tcp_close(c->link);
    ru_loop_close(c->loop);
    ru_bufs_fini(&c->bufs);
    ru_arena_fini(&c->fx_arena);
    ru_cond_fini(&c->changed);
    ru_mutex_fini(&c->lock);
    return st;
}
