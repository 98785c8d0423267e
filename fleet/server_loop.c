/* The loop thread of the server: what guests say goes to the machine of rounds, and what that wants
 * goes to guests. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fleet/client/pack.h"
#include "fleet/secure/serve.h"
#include "fleet/server_impl.h"

/* -- both threads ---------------------------------------------------------------------------------
 */

void rui_fed_fail(rui_fed_server *s, ru_status st, const char *text)
{
    ru_mutex_lock(&s->lock);
    if (s->slot.why.status == RU_OK) {
        (void)ru_err_set(&s->slot.why, st, "%s", text);
    }
    ru_cond_broadcast(&s->changed);
    ru_mutex_unlock(&s->lock);
}

void rui_fed_end(rui_fed_server *s, const char *ended)
{
    ru_mutex_lock(&s->lock);
    s->slot.ended = s->slot.ended == NULL ? ended : s->slot.ended;
    ru_cond_broadcast(&s->changed);
    ru_mutex_unlock(&s->lock);
}

void rui_fed_unmask(rui_fed_server *s)
{
    ru_mutex_lock(&s->lock);
    s->slot.masked = RUI_MASKED;
    ru_cond_broadcast(&s->changed);
    ru_mutex_unlock(&s->lock);
}

void rui_fed_spent(rui_fed_server *s)
{
    ru_log(RU_LOG_INFO, "fed", "privacy",
           "ends after round %u with an epsilon of %.4g: another round would exceed "
           "federated.privacy.epsilon, %.4g",
           ru_fed_round(s->fed), ru_fed_epsilon(s->fed), s->job->privacy.epsilon);
    ru_mutex_lock(&s->lock);
    s->slot.spent = true;
    ru_mutex_unlock(&s->lock);
}

/* -- members --------------------------------------------------------------------------------------
 */

rui_fed_member *rui_fed_member_of(rui_fed_server *s, ru_node_id node)
{
    const uint64_t *i = ru_map_get_u64(&s->by_node, node.v);
    return i != NULL ? &s->members[*i] : NULL;
}

rui_fed_member *rui_fed_member_new(rui_fed_server *s, const char *name)
{
    ru_node_id node = ru_guest_name(name);
    rui_fed_member *m = rui_fed_member_of(s, node);
    uint64_t *i =
        m == NULL && s->n < s->job->clients_max ? ru_map_put_u64(&s->by_node, node.v, NULL) : NULL;
    if (i != NULL) {
        *i = s->n;
        m = &s->members[s->n++];
        *m = (rui_fed_member){.node = node};
        memcpy(m->name, name, strlen(name) + 1);
    }
    return m;
}

uint32_t rui_fed_number(const rui_fed_server *s, const rui_fed_member *m)
{
    return (uint32_t)(m - s->members);
}

void rui_fed_heard(ru_node_id to, ru_effects *fx)
{
    ru_fx_send(fx, to, RUI_FED_HEARD, NULL, 0);
}

void rui_fed_say_no(ru_node_id to, ru_effects *fx, const char *fmt, ...)
{
    char text[RUI_FED_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ru_fx_send(fx, to, RUI_FED_NO, text, (int64_t)strlen(text));
}

/* -- the machine of rounds ------------------------------------------------------------------------
 */

void rui_fed_local(rui_fed_server *s, ru_fed_word word, int64_t value, const void *data,
                   int64_t size_bytes, ru_time now, ru_effects *fx)
{
    rui_fed_step(s,
                 (ru_event){.kind = RU_EV_LOCAL,
                            .now = now,
                            .what = word,
                            .value = value,
                            .data = data,
                            .size_bytes = size_bytes},
                 fx);
}

/* Has it the task of the round under way? */
static bool trains(const rui_fed_server *s, const rui_fed_member *m)
{
    return m->task != 0 && m->kind == RUI_FED_TRAIN && m->waits.round == s->round;
}

void rui_fed_leave(rui_fed_server *s, rui_fed_member *m, ru_time now, ru_effects *fx)
{
    if (!m->up) {
        return;
    }
    s->asked.lost += trains(s, m) ? 1 : 0;
    m->up = false;
    s->there--;
    bool scores = m->task != 0 && m->kind == RUI_FED_EVALUATE;
    m->task = m->excused = 0;
    rui_fed_local(s, RU_FED_LEAVE, rui_fed_number(s, m), NULL, 0, now, fx);
    rui_secure_lost(s, m, now, fx);
    if (scores && --s->eval_left == 0) {
        rui_fed_evaluated(s, now, fx);
    }
}

/* It broke the rules: out, until it comes again. */
void rui_fed_expel(rui_fed_server *s, rui_fed_member *m, const char *sentence, ru_time now,
                   ru_effects *fx)
{
    ru_log(RU_LOG_WARN, "fed", "refused", "client %s: %s", m->name, sentence);
    rui_fed_say_no(m->node, fx, "%s", sentence);
    rui_fed_leave(s, m, now, fx);
}

/* Who still waits for the values of an older round is too slow: nobody may hold their memory. */
static void refuse_slow(rui_fed_server *s, ru_time now)
{
    for (uint32_t i = 0; i < s->n; i++) {
        rui_fed_member *m = &s->members[i];
        if (m->up && m->reading != 0 && &s->editions[m->reading - 1] != s->now_values) {
            ru_log(RU_LOG_WARN, "fed", "slow", "client %s: the model takes too long to reach it",
                   m->name);
            ru_chan_refuse(ru_node_guests_chan(s->bridge.node), m->node,
                           "it takes too long to receive the model", now);
        }
    }
}

/* Room for the values of one more round. */
static rui_edition *edition_new(rui_fed_server *s, ru_time now)
{
    uint32_t used = 0;
    for (uint32_t k = 0; k < RU_FED_EDITIONS_MAX; k++) {
        used += s->editions[k].refs > 0 ? 1 : 0;
    }
    if (used >= RU_FED_EDITIONS) {
        refuse_slow(s, now);
    }
    for (uint32_t k = 0; k < RU_FED_EDITIONS_MAX; k++) {
        rui_edition *e = &s->editions[k];
        if (e->refs == 0) {
            e->packed_bytes = 0;
            if (e->values == NULL) {
                e->values = malloc((size_t)s->flat.count * sizeof *e->values);
            }
            return e->values != NULL ? e : NULL;
        }
    }
    return NULL;
}

static const int64_t pace_ns = 100000000;

static bool is_paced(const rui_fed_server *s)
{
    return s->flat.count * (int64_t)sizeof(float) >= RUI_FED_PACED_BYTES;
}

static int64_t sent_bytes(const rui_fed_server *s)
{
    ru_chan_stats stats;
    ru_chan_stats_get(ru_node_guests_chan(s->bridge.node), &stats);
    return stats.tx_bytes;
}

/* Packing and unpacking take about 4 ns for each value, which a line carries in 4 bytes: on a slow
 * line a sixth of its time is more. */
static bool packs(const rui_fed_server *s)
{
    static const double slow_bytes_per_s = 1e8;
    return is_paced(s) && s->pace.best > 0 && s->pace.best < slow_bytes_per_s;
}

/* The values of the round as they go to a client; *bytes. */
static void *body_of(rui_fed_server *s, const rui_fed_member *m, int64_t *bytes)
{
    rui_edition *e = s->now_values;
    *bytes = s->flat.count * (int64_t)sizeof(float);
    if (!m->unpacks || !packs(s)) {
        return e->values;
    }
    if (e->packed == NULL) {
        e->packed = malloc((size_t)rui_fed_pack_most(s->flat.count));
    }
    if (e->packed != NULL && e->packed_bytes == 0) {
        e->packed_bytes = rui_fed_pack(e->values, s->flat.count, e->packed);
    }
    if (e->packed == NULL || e->packed_bytes >= *bytes) {
        return e->values;
    }
    *bytes = e->packed_bytes;
    return e->packed;
}

static void send_model(rui_fed_server *s, uint32_t i, ru_time now, ru_effects *fx)
{
    uint8_t head[RUI_FED_HEAD_MAX];
    rui_fed_member *m = &s->members[i];
    int64_t bytes;
    void *body = body_of(s, m, &bytes);
    m->task_at = now;
    s->now_values->refs++;
    m->reading = 1 + (uint32_t)(s->now_values - s->editions);
    rui_fed_pace_sends(&s->pace, sent_bytes(s), bytes);
    uint64_t cookie = (uint64_t)i << 8 | (uint64_t)(s->now_values - s->editions);
    if (ru_pull_send(s->pull, m->node, RUI_FED_TASK, head, rui_fed_task_put(&m->waits, head), body,
                     bytes, false, cookie, now, fx)) {
        s->now_values->refs--;
        m->reading = 0;
        rui_fed_pace_sent(&s->pace);
    }
}

/* Who waited through the end of its round gets the values of today; its answer is late anyway. */
void rui_fed_paced_on(rui_fed_server *s, ru_time now, ru_effects *fx)
{
    uint32_t i;
    while (rui_fed_pace_take(&s->pace, sent_bytes(s), &i)) {
        rui_fed_member *m = &s->members[i];
        m->queued = false;
        if (m->up && m->task == m->waits.task) {
            send_model(s, i, now, fx);
        }
    }
}

void rui_fed_paced_look(rui_fed_server *s, ru_time now, ru_effects *fx)
{
    rui_fed_pace_look(&s->pace, sent_bytes(s), now);
    rui_fed_paced_on(s, now, fx);
    if (s->pace.n > 0) {
        ru_loop_timer(s->loop, rui_fed_timer, s, RUI_FED_TIMER_PACE, ru_time_after(now, pace_ns));
    }
}

static void send_task(rui_fed_server *s, uint32_t i, const rui_fed_task *t, ru_time now,
                      ru_effects *fx)
{
    rui_fed_member *m = &s->members[i];
    if (!m->up) { /* its LEAVE is on the way to the machine */
        s->asked.lost += t->kind == RUI_FED_TRAIN ? 1 : 0;
        return;
    }
    m->task = t->task;
    m->task_at = now;
    m->kind = t->kind;
    m->waits = *t;
    if (!is_paced(s)) {
        send_model(s, i, now, fx);
        return;
    }
    if (m->queued) {
        return; /* in its old place */
    }
    if (s->pace.n == 0) {
        rui_fed_pace_begin(&s->pace, sent_bytes(s), now);
        ru_loop_timer(s->loop, rui_fed_timer, s, RUI_FED_TIMER_PACE, ru_time_after(now, pace_ns));
    }
    m->queued = true;
    rui_fed_pace_put(&s->pace, i);
    rui_fed_paced_on(s, now, fx);
}

static void on_task(rui_fed_server *s, const ru_fed_list *l, ru_time now, ru_effects *fx)
{
    rui_fed_task t = {.task = l->task,
                      .round = l->round > 0 ? l->round : 1,
                      .epochs = (uint32_t)s->job->epochs,
                      .kind = l->profile ? RUI_FED_PROFILE : RUI_FED_TRAIN};
    if (!l->profile) {
        ru_fed_sum_begin(&s->sum, s->now_values->values);
        s->loss_sum = s->loss_weight = s->correct_sum = s->correct_weight = 0;
        s->round_begun = now;
        s->round = l->round;
        s->waits_for = 0;
        s->asked = (rui_fed_asked){.sent = l->n};
        rui_fed_pace_round(&s->pace);
        rui_secure_begin(s, l, now, fx);
        ru_log(RU_LOG_INFO, "fed", "round", "round %u of %lld: %u clients", l->round,
               (long long)s->job->rounds, l->n);
    }
    for (uint32_t k = 0; k < l->n; k++) {
        send_task(s, l->client[k], &t, now, fx);
    }
}

static void on_stop(rui_fed_server *s, const ru_fed_list *l, ru_effects *fx)
{
    for (uint32_t k = 0; k < l->n; k++) {
        rui_fed_member *m = &s->members[l->client[k]];
        uint32_t task = m->task;
        m->task = 0;
        if (m->up) {
            ru_fx_send(fx, m->node, RUI_FED_STOP, &task, sizeof task);
        }
    }
}

/* Clients that are connected, out of their hours. */
static uint32_t resting(const rui_fed_server *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        n += s->members[i].rests ? 1 : 0;
    }
    return n;
}

void rui_fed_tell_clients(rui_fed_server *s)
{
    uint32_t n = resting(s);
    bool waits = s->round == 0 || s->waits_for != 0;
    if (!waits || (n == s->slot.resting && (n == 0 || s->there == s->slot.there))) {
        return;
    }
    ru_mutex_lock(&s->lock);
    s->slot.waits = true;
    s->slot.there = s->there;
    s->slot.resting = n;
    ru_cond_broadcast(&s->changed);
    ru_mutex_unlock(&s->lock);
}

/* Clients that still owe their answer to the round. */
static uint32_t late(const rui_fed_server *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        n += trains(s, &s->members[i]) ? 1 : 0;
    }
    return n;
}

/* One line of JSON about a round that was merged. */
static void describe(rui_fed_server *s, const ru_fed_list *l, ru_time now, ru_text *t)
{
    const uint32_t *tier = ru_fed_tier_of(s->fed);
    ru_text_putf(t, "{\"schema\":\"rubato.fed.round/1\",\"round\":%u,\"sent\":%u,\"answers\":%u,",
                 l->round, s->asked.sent, l->n);
    ru_text_putf(t, "\"late\":%u,\"lost\":%u,", late(s), s->asked.lost);
    ru_text_putf(t, "\"seconds\":");
    ru_text_f64(t, (double)(now.ns - s->round_begun.ns) * 1e-9);
    ru_text_putf(t, ",\"there\":%u,\"samples\":%.0f,\"loss\":", s->there, s->sum.weight);
    ru_text_f64(t, s->loss_weight > 0 ? s->loss_sum / s->loss_weight : 0);
    if (resting(s) > 0) {
        ru_text_putf(t, ",\"resting\":%u", resting(s));
    }
    if (s->secure != NULL) {
        ru_text_putf(t, ",\"masked\":%u", rui_secure_masked(s));
    }
    if (ru_fed_epsilon(s->fed) >= 0) {
        ru_text_put(t, ",\"epsilon\":");
        ru_text_f64(t, ru_fed_epsilon(s->fed));
    }
    ru_text_put(t, ",\"clients\":[");
    for (uint32_t k = 0; k < l->n; k++) {
        ru_pick_client c = ru_fed_audit(s->fed, l->client[k]);
        uint32_t at = tier[l->client[k]];
        ru_text_putf(t, "%s{\"name\":\"%s\",\"tier\":%d,\"seconds\":", k > 0 ? "," : "",
                     s->members[l->client[k]].name, at == RU_PICK_NONE ? -1 : (int)at);
        ru_text_f64(t, c.latency_s);
        ru_text_put(t, ",\"took\":");
        ru_text_f64(t, s->members[l->client[k]].took_s);
        ru_text_putf(t, ",\"picks\":%u", c.picks);
        if (ru_fed_epsilon(s->fed) >= 0) {
            ru_text_put(t, ",\"epsilon\":");
            ru_text_f64(t, ru_fed_epsilon_of(s->fed, l->client[k]));
        }
        ru_text_put(t, "}");
    }
    ru_text_put(t, "]}\n");
}

/* Names of the clients by number, then the machine. */
static void save(rui_fed_server *s, rui_fed_slot *slot)
{
    const int64_t each = RUI_FED_NAME_MAX + 1 + 16;
    int64_t slots = s->sum.n_slots * (int64_t)sizeof *s->sum.slots;
    int64_t bytes = 16 + each * s->n + ru_fed_saved_bytes(s->fed, false) + slots;
    uint8_t *at = realloc(slot->saved, (size_t)bytes);
    if (at == NULL) {
        slot->saved_bytes = 0;
        return; /* a server that is killed profiles its clients anew */
    }
    ru_wire_out o = ru_wire_out_into(at, bytes);
    ru_wire_put_u32(&o, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        ru_wire_put_bytes(&o, s->members[i].name, RUI_FED_NAME_MAX + 1);
        ru_wire_put_f64(&o, s->members[i].samples);
        ru_wire_put_f64(&o, s->members[i].held);
    }
    ru_fed_save(s->fed, false, &o);
    ru_wire_put_bytes(&o, s->sum.slots, slots);
    slot->saved = at;
    slot->saved_bytes = o.bad ? 0 : ru_wire_size(&o);
}

void rui_fed_merged(rui_fed_server *s, const ru_fed_list *l, ru_time now)
{
    rui_edition *e = edition_new(s, now);
    if (e == NULL || s->sum.n == 0) {
        rui_fed_fail(s, RU_E_MEM, "no memory for the values of another round");
        return;
    }
    ru_fed_sum_end(&s->sum, e->values);
    s->now_values->refs--;
    s->now_values = e;
    e->refs = 2; /* of the tasks to come, and of the main thread */
    ru_mutex_lock(&s->lock);
    rui_fed_slot *slot = &s->slot;
    slot->ready = true;
    slot->edition = e;
    slot->samples = (int64_t)s->sum.weight * s->job->epochs;
    slot->loss = s->loss_weight > 0 ? s->loss_sum / s->loss_weight : -1;
    slot->accuracy = s->correct_weight > 0 ? s->correct_sum / s->correct_weight : -1;
    ru_arena_fini(&slot->line_arena);
    ru_arena_init(&slot->line_arena, 0);
    slot->line = ru_text_arena(&slot->line_arena);
    describe(s, l, now, &slot->line);
    slot->there = s->there; /* as the line says: what differs from it is told */
    slot->resting = resting(s);
    save(s, slot);
    ru_cond_broadcast(&s->changed);
    ru_mutex_unlock(&s->lock);
}

/* Accuracy of each tier on what its clients hold out: of some that are free. */
static void on_evaluate(rui_fed_server *s, ru_time now, ru_effects *fx)
{
    const uint32_t *tier = ru_fed_tier_of(s->fed);
    uint32_t asked[RU_PICK_TIERS_MAX] = {0};
    rui_fed_task t = {
        .task = UINT32_MAX - s->round, .round = s->round, .epochs = 1, .kind = RUI_FED_EVALUATE};
    s->eval_left = 0;
    rui_fed_pace_round(&s->pace);
    for (uint32_t k = 0; k < s->job->tiers; k++) {
        s->scores[k].hits = s->scores[k].rows = 0;
    }
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t i = (k + s->round * 7919u) % s->n; /* not always the same ones */
        const rui_fed_member *m = &s->members[i];
        if (m->up && m->held > 0 && m->task == 0 && tier[i] < s->job->tiers &&
            asked[tier[i]] < s->job->per_round) {
            asked[tier[i]]++;
            s->eval_left++;
            send_task(s, i, &t, now, fx);
        }
    }
    ru_loop_timer(s->loop, rui_fed_timer, s, RUI_FED_TIMER_EVAL,
                  ru_time_after(now, s->eval_left > 0 ? s->job->profile_wait_ns : 1));
}

void rui_fed_evaluated(rui_fed_server *s, ru_time now, ru_effects *fx)
{
    double accuracy[RU_PICK_TIERS_MAX];
    for (uint32_t k = 0; k < s->job->tiers; k++) {
        accuracy[k] = s->scores[k].rows > 0 ? s->scores[k].hits / s->scores[k].rows : -1;
    }
    for (uint32_t i = 0; i < s->n && s->eval_left > 0; i++) { /* what comes later is not taken */
        if (s->members[i].task != 0 && s->members[i].kind == RUI_FED_EVALUATE) {
            s->members[i].task = 0;
        }
    }
    s->eval_left = 0;
    ru_loop_timer_off(s->loop, rui_fed_timer, s, RUI_FED_TIMER_EVAL);
    rui_fed_local(s, RU_FED_EVALUATED, 0, accuracy, s->job->tiers * (int64_t)sizeof *accuracy, now,
                  fx);
}

static uint32_t needed(const ru_job_federated *j)
{
    uint32_t n = j->clients_min > j->per_round ? j->clients_min : j->per_round;
    return n > j->tiers ? n : j->tiers;
}

static void follow(rui_fed_server *s, const ru_effect *e, ru_time now, ru_effects *fx)
{
    if (e->kind == RU_FX_TIMER) {
        ru_loop_timer(s->loop, rui_fed_timer, s, RUI_FED_TIMER_FED, e->at);
        return;
    }
    if (e->kind == RU_FX_TIMER_OFF) {
        ru_loop_timer_off(s->loop, rui_fed_timer, s, RUI_FED_TIMER_FED);
        return;
    }
    switch ((ru_fed_word)e->what) {
    case RU_FED_TASK:
        on_task(s, e->data, now, fx);
        break;
    case RU_FED_STOP:
        on_stop(s, e->data, fx);
        break;
    case RU_FED_MERGE:
        if (s->secure != NULL) {
            rui_secure_merge(s, e->data, now, fx);
        } else {
            rui_fed_merged(s, e->data, now);
        }
        break;
    case RU_FED_EVALUATE:
        on_evaluate(s, now, fx);
        break;
    case RU_FED_WAITING:
        rui_secure_over(s, now, fx);
        if (s->waits_for == e->value + 1 || e->value >= needed(s->job)) {
            break; /* it was said, or all are busy */
        }
        s->waits_for = e->value + 1;
        ru_log(RU_LOG_INFO, "fed", "waiting", "waiting for %lld of %u clients%s",
               (long long)(needed(s->job) - e->value), needed(s->job),
               resting(s) > 0 ? "; some are out of their hours" : "");
        break;
    case RU_FED_DONE:
        if (e->value != 0) {
            rui_fed_spent(s);
        }
        rui_fed_end(s, "done");
        break;
    case RU_FED_FAILED:
        rui_fed_fail(s, (ru_status)e->value, e->data);
        break;
    case RU_FED_ANSWER:
    case RU_FED_EVALUATED:
    case RU_FED_JOIN:
    case RU_FED_LEAVE:
    case RU_FED_KEPT:
    case RU_FED_AGAIN:
    case RU_FED_EXCUSED:
    case RU_FED_TIMER:
    case RU_FED_RETIERED:
    case RU_FED_WORDS:
        break;
    }
}

void rui_fed_step(rui_fed_server *s, ru_event ev, ru_effects *fx)
{
    if (s->over) {
        return;
    }
    ru_effects mine;
    ru_arena arena; /* what follows may step again */
    ru_arena_init(&arena, 0);
    ru_effects_init(&mine, &arena);
    ru_fed_step(s->fed, &ev, &mine);
    for (uint32_t k = 0; k < mine.n; k++) {
        follow(s, &mine.at[k], ev.now, fx);
    }
    ru_arena_fini(&arena);
}

void rui_fed_first(rui_fed_server *s, ru_time now)
{
    ru_effects *fx = ru_node_enter(s->bridge.node, now);
    rui_fed_step(s, (ru_event){.kind = RU_EV_START, .now = now}, fx);
    ru_node_leave(s->bridge.node, now);
}
