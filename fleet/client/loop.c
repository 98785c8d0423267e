/* The thread of a client that keeps its connection: what it says and hears. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "env/process/self.h"
#include "env/zone.h"
#include "fleet/client/client_impl.h"
#include "fleet/client/masked.h"
#include "fleet/client/pack.h"

enum { TIMER_DIAL = 16, TIMER_STILL, TIMER_HOURS, SLOTS = 4 };

static const int64_t dial_ns = 1000000000, still_ns = 20000000000;

/* -- sending --------------------------------------------------------------------------------------
 */

void rui_fed_client_give(ru_fed_client *c, const rui_fed_job *w)
{
    ru_mutex_lock(&c->lock);
    c->desk.job = *w;
    ru_cond_signal(&c->changed);
    ru_mutex_unlock(&c->lock);
}

void rui_fed_client_end(ru_fed_client *c, ru_status st, const char *text)
{
    if (!c->over && st != RU_OK) {
        (void)ru_err_set(&c->why, st, "%s", text);
    }
    c->over = true;
    ru_flag_set(&c->give_up, 1);
    ru_mutex_lock(&c->lock);
    c->desk.over = true;
    ru_cond_signal(&c->changed);
    ru_mutex_unlock(&c->lock);
    ru_loop_stop(c->loop);
}

void rui_fed_client_say(ru_fed_client *c, uint32_t what, const void *data, int64_t size_bytes,
                        ru_time now)
{
    (void)!ru_guest_send(c->guest, what, data, size_bytes, now);
}

/* What parcels want: messages to the server, and to be called again. */
static void perform(ru_fed_client *c, ru_time now)
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

void rui_fed_client_parcel(ru_fed_client *c, uint32_t what, const void *head, uint32_t head_bytes,
                           void *body, int64_t body_bytes, ru_time now)
{
    (void)ru_pull_send(c->pull, ru_guest_host(c->guest), what, head, head_bytes, body, body_bytes,
                       true, 0, now, &c->fx);
    perform(c, now);
}

static void say_failed(ru_fed_client *c, uint32_t task, const char *text, ru_time now)
{
    uint8_t m[RUI_FED_TEXT_MAX + 8];
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    uint32_t n = (uint32_t)strlen(text);
    ru_wire_put_u32(&o, task);
    ru_wire_put_text(&o, text, n < RUI_FED_TEXT_MAX - 1 ? n : RUI_FED_TEXT_MAX - 1);
    rui_fed_client_say(c, RUI_FED_FAILED, m, ru_wire_size(&o), now);
}

/* Minutes until its hours begin; 0: they are now. */
static uint32_t rests_for(const ru_fed_client *c, char zone[RU_ZONE_NAME])
{
    return rui_hours_until(&c->hours, ru_zone_minute(ru_clock_wall_ns(), zone));
}

static void say_away(ru_fed_client *c, ru_time now)
{
    uint8_t m[8];
    char zone[RU_ZONE_NAME];
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    ru_wire_put_u32(&o, rests_for(c, zone));
    rui_fed_client_say(c, RUI_FED_AWAY, m, ru_wire_size(&o), now);
}

/* The program and the server are there: it takes part, or says when it will. */
static void say_ready(ru_fed_client *c, ru_time now)
{
    if (c->rests) {
        say_away(c, now);
        return;
    }
    uint8_t m[RUI_FED_HEAD_MAX];
    const rui_fed_ready r = {.samples = c->desk.samples,
                             .held = c->desk.held,
                             .count = c->start.count,
                             .hash = c->start.hash,
                             /* who bounds its memory has none for a second copy */
                             .unpacks = c->opt.values_max > 0 ? 0 : 1};
    ru_log(RU_LOG_INFO, "fed", "ready", "client %s takes part with %.0f samples", c->name,
           r.samples);
    rui_fed_client_say(c, RUI_FED_READY, m, rui_fed_ready_put(&r, m), now);
}

/* The update, packed if the line is slow and there is memory for that. take: values. */
static void send_update(ru_fed_client *c, const rui_fed_update *u, float *values, ru_time now)
{
    uint8_t head[RUI_FED_HEAD_MAX];
    void *body = values;
    int64_t bytes = c->model.count * (int64_t)sizeof(float);
    const bool packs = c->packed && c->masked == NULL;
    uint8_t *packed = packs ? ru_bufs_get(&c->bufs, rui_fed_pack_most(c->model.count)) : NULL;
    const int64_t n = packed != NULL ? rui_fed_pack(values, c->model.count, packed) : bytes;
    if (n < bytes) {
        body = packed;
        bytes = n;
    }
    ru_bufs_put(&c->bufs, body == values ? (void *)packed : values);
    rui_fed_client_parcel(c, RUI_FED_UPDATE, head, rui_fed_update_put(u, head), body, bytes, now);
}

static void answer(ru_fed_client *c, rui_fed_job *w, ru_time now)
{
    uint8_t m[RUI_FED_HEAD_MAX];
    int64_t bytes = c->model.count * (int64_t)sizeof(float);
    if (w->why.status == RU_OK && rui_masked_trained(c, w)) {
        return; /* its masks come next */
    }
    c->task = 0;
    if (w->why.status != RU_OK) { /* it ends when the server has heard it */
        (void)ru_err_set(&c->why, w->why.status, "round %u: %s", w->task.round, w->why.text);
        say_failed(c, w->task.task, w->why.text, now);
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
        send_update(c, &u, w->values, now);
    }
}

static void on_timer(void *self, uint32_t what, ru_time now);

static void begin(ru_fed_client *c, const rui_fed_task *t, float *values)
{
    ru_flag_set(&c->give_up, 0);
    rui_fed_client_give(c, &(rui_fed_job){.kind = RUI_FED_DO_TASK, .task = *t, .values = values});
}

/* The task under way, if there is one: nobody waits for it any more. */
static void give_up(ru_fed_client *c)
{
    c->task = 0;
    ru_flag_set(&c->give_up, 1);
    ru_bufs_put(&c->bufs, c->next_values);
    c->next_values = NULL;
}

static void give_up_masks(ru_fed_client *c)
{
    if (c->opened) {
        rui_masked_give_up(c);
    }
}

/* Its hours begin or end. first: the first look of this process, which logs the time zone. */
static void look_at_hours(ru_fed_client *c, bool first, ru_time now)
{
    char zone[RU_ZONE_NAME];
    uint32_t minutes = rests_for(c, zone);
    if (first || c->rests != (minutes > 0)) {
        c->rests = minutes > 0;
        ru_log(RU_LOG_INFO, "fed", c->rests ? "rests" : "hours", "client %s is %s its hours, %s %s",
               c->name, c->rests ? "out of" : "in", c->opt.hours, zone);
        if (c->rests) {
            give_up(c);
            give_up_masks(c);
        }
        if (c->started && c->opened) {
            say_ready(c, now);
        }
    }
    int64_t minute_ns = INT64_C(60000000000);
    ru_loop_timer(c->loop, on_timer, c, TIMER_HOURS,
                  ru_time_after(now, minute_ns - ru_clock_wall_ns() % minute_ns + 1000000));
}

/* The program is ready, done with something, or stops. */
static void on_wake(void *self, ru_time now)
{
    ru_fed_client *c = self;
    if (ru_flag_get(&c->stop) != 0) {
        rui_fed_client_end(c, RU_OK, "");
        return;
    }
    ru_mutex_lock(&c->lock);
    rui_fed_job w = c->desk.job;
    bool ready = c->desk.ready;
    if (w.done) {
        c->desk.job = (rui_fed_job){0};
    }
    ru_mutex_unlock(&c->lock);
    if (ready && !c->opened) {
        c->opened = true;
        if (c->started) {
            say_ready(c, now);
        }
    }
    if (!w.done) {
        return;
    }
    if (w.task.task == c->task && c->next_values == NULL) {
        answer(c, &w, now);
    } else { /* nobody waits for it any more */
        ru_bufs_put(&c->bufs, w.values);
        if (c->next_values != NULL) {
            begin(c, &c->next, c->next_values);
            c->next_values = NULL;
        }
    }
}

/* -- hearing --------------------------------------------------------------------------------------
 */

/* What the server trains; a sentence when it is not for this program. */
static void take_model(ru_fed_client *c, const rui_fed_start *s, const void *body, int64_t bytes)
{
    char text[256];
    const ru_fed_client_options *o = &c->opt;
    long long count = (long long)s->count;
    if (o->values > 0 && o->values != count) {
        (void)snprintf(text, sizeof text,
                       "the model of %s has %lld values; this program trains one of %lld",
                       o->address, count, (long long)o->values);
        rui_fed_client_end(c, RU_E_DATA, text);
        return;
    }
    if (o->values_max > 0 && o->values_max < count) {
        (void)snprintf(
            text, sizeof text,
            "the model of %s has %lld values, more than the %lld that this program takes",
            o->address, count, (long long)o->values_max);
        rui_fed_client_end(c, RU_E_LIMIT, text);
        return;
    }
    c->start = *s;
    if (!rui_fed_client_model(c, body, bytes)) {
        (void)snprintf(text, sizeof text,
                       "what %s says of its model cannot be read, or there is no memory for it",
                       o->address);
        rui_fed_client_end(c, RU_E_DATA, text);
        return;
    }
    ru_mutex_lock(&c->lock);
    c->desk.model = true;
    ru_cond_signal(&c->changed);
    ru_mutex_unlock(&c->lock);
}

static void on_start(ru_fed_client *c, const void *head, uint32_t head_bytes, const void *body,
                     int64_t bytes, ru_time now)
{
    rui_fed_start s;
    if (c->started || !rui_fed_start_get(head, head_bytes, &s)) {
        return; /* what no server sends */
    }
    c->started = true;
    if (c->start.count == 0) {
        take_model(c, &s, body, bytes);
    } else if (s.count != c->start.count || s.hash != c->start.hash ||
               s.per_round != c->start.per_round || s.threshold != c->start.threshold ||
               s.neighbours != c->start.neighbours) {
        rui_fed_client_end(c, RU_E_DATA,
                           "the server is back with another model or other masks than before; "
                           "start this client again");
    } else if (c->opened) { /* the server came again */
        say_ready(c, now);
    }
}

/* Values that came packed in place of what they were packed into; false: they did not, or cannot be
 * unpacked. */
static bool unpack(ru_fed_client *c, void **body, int64_t *body_bytes)
{
    const int64_t bytes = c->model.count * (int64_t)sizeof(float);
    float *values = *body_bytes < bytes ? ru_bufs_get(&c->bufs, bytes) : NULL;
    if (values == NULL || !rui_fed_unpack(*body, *body_bytes, values, c->model.count)) {
        ru_bufs_put(&c->bufs, values);
        return false;
    }
    ru_bufs_put(&c->bufs, *body);
    *body = values;
    *body_bytes = bytes;
    return true;
}

static void got(void *self, ru_node_id from, uint32_t what, const void *head, uint32_t head_bytes,
                void *body, int64_t body_bytes, ru_time now, ru_effects *fx)
{
    ru_fed_client *c = self;
    rui_fed_task t;
    (void)from;
    (void)fx;
    const bool takes = c->opened && !c->rests, task = what == RUI_FED_TASK;
    const bool packed = takes && task && unpack(c, &body, &body_bytes);
    bool fits = takes && body_bytes == c->model.count * (int64_t)sizeof(float);
    ru_mutex_lock(&c->lock);
    bool idle = c->desk.job.kind == RUI_FED_DO_NONE;
    ru_mutex_unlock(&c->lock);
    if (what == RUI_FED_START && body_bytes > 0) {
        on_start(c, head, head_bytes, body, body_bytes, now);
    } else if (what == RUI_FED_TASK && fits && rui_fed_task_get(head, head_bytes, &t) &&
               (t.kind != RUI_FED_EVALUATE || c->desk.held > 0)) {
        give_up(c);
        c->packed = packed;
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
    ru_fed_client *c = self;
    char text[RUI_FED_TEXT_MAX + 64];
    if (what == RUI_FED_BYE) {
        ru_log(RU_LOG_INFO, "fed", "over", "the job is over");
        rui_fed_client_end(c, RU_OK, "");
    } else if (what == RUI_FED_HEARD && c->why.status != RU_OK) {
        rui_fed_client_end(c, RU_OK, ""); /* with what it told the server */
    } else if (what == RUI_FED_NO) {
        (void)snprintf(text, sizeof text, "%s refuses this client: %.*s", c->opt.address,
                       (int)(size_bytes < RUI_FED_TEXT_MAX ? size_bytes : RUI_FED_TEXT_MAX),
                       (const char *)data);
        rui_fed_client_end(c, RU_E_PERM, text);
    } else if (what == RUI_FED_STOP) {
        give_up(c);
        give_up_masks(c);
        rui_fed_client_say(c, RUI_FED_STILL, NULL, 0, now);
    } else if (what == RUI_FED_ASK && c->opened && !c->rests && c->masked != NULL) {
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

static void on_up(void *self, ru_time now)
{
    ru_fed_client *c = self;
    uint8_t m[RUI_FED_HEAD_MAX];
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    c->up = true;
    c->started = false;
    c->host = ru_guest_host(c->guest);
    c->tries = 0;
    ru_wire_put_u32(&o, RUI_FED_VERSION);
    ru_wire_put_text(&o, c->name, (uint32_t)strlen(c->name));
    ru_wire_put_u64(&o, c->process);
    rui_fed_client_say(c, RUI_FED_HELLO, m, ru_wire_size(&o), now);
    ru_loop_timer(c->loop, on_timer, c, TIMER_STILL, ru_time_after(now, still_ns));
}

static void on_down(void *self, ru_status why, const char *sentence, ru_time now)
{
    ru_fed_client *c = self;
    char text[RU_GUEST_REASON_MAX + 300];
    ru_chan_stats s;
    ru_chan_stats_get(ru_guest_chan(c->guest), &s);
    if (why == RU_E_PERM || (!c->up && s.denied > 0)) {
        (void)snprintf(text, sizeof text,
                       "%s refuses this client: %s; check that the token is of this server "
                       "(`rubato fed token NAME` there)",
                       c->opt.address, why == RU_E_PERM ? sentence : "the token is not valid");
        rui_fed_client_end(c, RU_E_PERM, text);
        return;
    }
    const ru_event ev = {.kind = RU_EV_DOWN, .now = now, .node = c->host};
    ru_pull_step(c->pull, &ev, &c->fx);
    perform(c, now);
    if (c->up) {
        c->lost_at = now;
    }
    if (c->opt.wait_ns > 0 && now.ns - c->lost_at.ns >= c->opt.wait_ns) {
        (void)snprintf(text, sizeof text, "there is no server at %s for %.1f s: %s", c->opt.address,
                       (double)(now.ns - c->lost_at.ns) * 1e-9, sentence);
        rui_fed_client_end(c, RU_E_PEER, text);
        return;
    }
    if (c->up || c->tries++ % 30 == 0) {
        ru_log(RU_LOG_INFO, "fed", "server", "waiting for the server at %s: %s", c->opt.address,
               sentence);
    }
    c->up = c->started = false;
    give_up(c);
    give_up_masks(c);
    if (c->why.status != RU_OK) {
        rui_fed_client_end(c, RU_OK, "");
    }
    ru_loop_timer(c->loop, on_timer, c, TIMER_DIAL, ru_time_after(now, dial_ns));
}

static void on_timer(void *self, uint32_t what, ru_time now)
{
    ru_fed_client *c = self;
    ru_err err;
    if (what == TIMER_STILL) {
        rui_fed_client_say(c, RUI_FED_STILL, NULL, 0, now);
        ru_loop_timer(c->loop, on_timer, c, TIMER_STILL, ru_time_after(now, still_ns));
    } else if (what == TIMER_HOURS) {
        look_at_hours(c, false, now);
    } else if (what == TIMER_DIAL) {
        if (ru_guest_dial(c->guest, c->opt.address, now, &err) != RU_OK) {
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
    ru_fed_client *c = self;
    ru_pull_arrived(c->pull, cookie, now, &c->fx);
    perform(c, now);
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    ru_fed_client *c = self;
    ru_pull_sent(c->pull, cookie, now, &c->fx);
    perform(c, now);
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    ru_fed_client *c = self;
    ru_pull_failed(c->pull, cookie, why, now, &c->fx);
    perform(c, now);
}

static void on_room(void *self, ru_time now)
{
    ru_fed_client *c = self;
    ru_pull_room(c->pull, now, &c->fx);
    perform(c, now);
}

/* -- opening --------------------------------------------------------------------------------------
 */

static void timers_set(void *self, uint32_t what, ru_time at)
{
    ru_loop_timer(((ru_fed_client *)self)->loop, on_timer, self, what, at);
}

static void timers_off(void *self, uint32_t what)
{
    ru_loop_timer_off(((ru_fed_client *)self)->loop, on_timer, self, what);
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    ru_fed_client *c = self;
    (void)events;
    (void)now;
    ru_loop_fd_off(c->loop, fd);
    rui_fed_client_end(c, RU_OK, "");
}

static ru_status open_guest(ru_fed_client *c, ru_err *err)
{
    const ru_node_id self = ru_guest_name(c->name);
    const ru_link_tcp_options lo = {.loop = c->loop,
                                    .psk = c->key,
                                    .psk_bytes = sizeof c->key,
                                    .psk_name = c->name,
                                    .queue_ns = 10000000,
                                    .conns_max = ru_guest_conns() + RU_LINK_TCP_STRANGERS};
    RU_TRY(ru_link_tcp_open(&lo, &c->link, err));
    const ru_guest_options go = {.self = self,
                                 .address = "",
                                 .job = RUI_FED_SERVICE,
                                 .token = c->key,
                                 .token_bytes = sizeof c->key,
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
    RU_TRY(ru_guest_open(&go, &c->arena, &c->guest, err));
    ru_link_tcp_user(c->link, ru_guest_link_user(c->guest));
    const ru_pull_options po = {.chan = ru_guest_chan(c->guest),
                                .self = self,
                                .bufs = &c->bufs,
                                .user = {c, got, sent},
                                .peers_max = 4,
                                .what_first = RUI_FED_PARCELS,
                                .local = RUI_FED_LOCAL};
    return ru_pull_open(&po, &c->arena, &c->pull, err);
}

ru_status rui_fed_client_connect(ru_fed_client *c, ru_err *err)
{
    RU_TRY(ru_loop_open(&c->loop, err));
    RU_TRY(open_guest(c, err));
    RU_TRY(ru_loop_waker(c->loop, on_wake, c, &c->waker, err));
    int fd = c->opt.signals ? ru_self_stop_fd() : -1;
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(c->loop, fd, 1, on_stop, c, err));
    }
    c->lost_at = ru_clock_now();
    if (c->hours.from != c->hours.to) {
        look_at_hours(c, true, c->lost_at);
    }
    return ru_guest_dial(c->guest, c->opt.address, c->lost_at, err);
}

void rui_fed_client_loop(void *self)
{
    ru_fed_client *c = self;
    ru_err err;
    ru_thread_prompt();
    ru_status st = ru_loop_run(c->loop, &err);
    if (st != RU_OK) {
        rui_fed_client_end(c, st, err.text);
    }
}
