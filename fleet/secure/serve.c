#include "fleet/secure/serve.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "env/process/self.h"
#include "fleet/secure/wait.h"

typedef enum stage { OFF, KEYS, SHARES, TRAIN, OPEN } stage;

typedef struct rui_secure {
    ru_unmasker u;
    stage stage;
    ru_mask_wait wait[OPEN + 1]; /* of each stage */
    uint32_t task;
    uint32_t *client;    /* [per_round] members by their places */
    double told, weight; /* samples of those with keys; of the updates that came */
    ru_fed_list *merged; /* room for per_round; what the machine merges */
} rui_secure;

int64_t rui_secure_body_max(const ru_job_federated *job)
{
    return job->secure.threshold > 0 ? job->per_round * (int64_t)RU_MASK_BOX_BYTES : 0;
}

ru_status rui_secure_open(rui_fed_server *s, ru_err *err)
{
    uint32_t n = s->job->per_round;
    rui_secure *x = RU_NEW(s->arena, rui_secure, 1);
    int64_t list_bytes = (int64_t)sizeof(ru_fed_list) + n * (int64_t)sizeof(uint32_t);
    if (x == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for masked updates");
    }
    *x = (rui_secure){.client = RU_NEW(s->arena, uint32_t, n),
                      .merged = ru_arena_alloc(s->arena, list_bytes, RU_ALIGNOF(ru_fed_list))};
    if (x->client == NULL || x->merged == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for masked updates of %u clients", n);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(x->wait); k++) {
        x->wait[k].fixed_ns = s->job->secure.wait_ns;
    }
    s->secure = x;
    return ru_unmasker_open(n, s->flat.count, s->arena, &x->u, err);
}

uint32_t rui_secure_masked(const rui_fed_server *s)
{
    return s->secure->u.n_shared;
}

/* The member of a place, unless it is out of the round. */
static rui_fed_member *at(const rui_fed_server *s, uint32_t k)
{
    rui_fed_member *m = &s->members[s->secure->client[k]];
    return m->place == k + 1 ? m : NULL;
}

/* few: the stage before is over because too few answered in its time. */
static void enter(rui_fed_server *s, stage to, bool few, ru_time now)
{
    rui_secure *x = s->secure;
    if (x->stage != OFF && x->stage != TRAIN) {
        ru_mask_wait_end(&x->wait[x->stage], x->u.n, few);
    }
    x->stage = to;
    if (to == OFF || to == TRAIN) {
        ru_loop_timer_off(s->loop, rui_fed_timer, s, RUI_FED_TIMER_SECURE);
    } else {
        const ru_time at = {ru_mask_wait_begin(&x->wait[to], x->u.n, now.ns)};
        ru_loop_timer(s->loop, rui_fed_timer, s, RUI_FED_TIMER_SECURE, at);
    }
}

/* It need not finish its task. What it says next shows that it is there. */
static void excuse(rui_fed_server *s, rui_fed_member *m, ru_time now, ru_effects *fx)
{
    m->place = 0;
    if (m->up && m->task == s->secure->task) {
        ru_fx_send(fx, m->node, RUI_FED_STOP, &m->task, sizeof m->task);
        m->excused = m->task;
        m->task = 0;
        rui_fed_local(s, RU_FED_EXCUSED, rui_fed_number(s, m), NULL, 0, now, fx);
    }
}

/* Those who are still in the round and not in `stay`. With the last one the machine begins another
 * round, which ends the loop. */
static void excuse_but(rui_fed_server *s, const bool *stay, ru_time now, ru_effects *fx)
{
    uint32_t task = s->secure->task;
    for (uint32_t k = 0; k < s->secure->u.n && s->secure->task == task; k++) {
        rui_fed_member *m = at(s, k);
        if (m != NULL && (stay == NULL || !stay[k])) {
            excuse(s, m, now, fx);
        }
    }
}

void rui_secure_over(rui_fed_server *s, ru_time now, ru_effects *fx)
{
    rui_secure *x = s->secure;
    if (x == NULL || x->stage == OFF) {
        return;
    }
    bool hidden = x->stage == TRAIN; /* those with masks answer, late */
    enter(s, OFF, false, now);
    excuse_but(s, hidden ? x->u.shared : NULL, now, fx);
}

void rui_secure_begin(rui_fed_server *s, const ru_fed_list *l, ru_time now, ru_effects *fx)
{
    rui_secure *x = s->secure;
    if (x == NULL) {
        return;
    }
    rui_secure_over(s, now, fx);
    for (uint32_t k = 0; k < x->u.n; k++) {
        s->members[x->client[k]].place = 0;
    }
    RU_CHECK(l->n <= s->job->per_round);
    ru_unmasker_begin(&x->u, l->n, s->job->secure.threshold, s->job->secure.neighbours, l->task);
    x->task = l->task;
    x->told = x->weight = 0;
    for (uint32_t k = 0; k < l->n; k++) { /* in a random order: nobody knows who is near whom */
        uint64_t drawn;
        ru_self_random(&drawn, sizeof drawn);
        uint32_t other = (uint32_t)(drawn % (k + 1));
        x->client[k] = x->client[other];
        x->client[other] = l->client[k];
    }
    for (uint32_t k = 0; k < l->n; k++) {
        rui_fed_member *m = &s->members[x->client[k]];
        m->place = k + 1;
        ru_fx_send(fx, m->node, RUI_FED_ASK, &l->task, sizeof l->task);
    }
    enter(s, KEYS, false, now);
}

/* Answers of a stage after which most can go on: `threshold` of each neighbourhood. */
static uint32_t enough(const rui_secure *x)
{
    uint64_t all = (uint64_t)x->u.n * x->u.need;
    return x->u.near == 0 ? x->u.need : (uint32_t)((all + x->u.near) / (x->u.near + 1));
}

/* Too few are left: the round begins again. */
static void give_up(rui_fed_server *s, uint32_t n, const char *what, bool late, ru_time now,
                    ru_effects *fx)
{
    bool merged = s->secure->stage == OPEN;
    ru_log(RU_LOG_WARN, "fed", "secure",
           "round %u begins again: %u %s %s, federated.secure.threshold is %u", s->round, n,
           s->secure->u.near > 0 ? "clients of a neighbourhood" : "clients", what,
           s->job->secure.threshold);
    enter(s, OFF, late, now);
    if (merged) {
        rui_fed_local(s, RU_FED_AGAIN, 0, NULL, 0, now, fx);
    } else {
        excuse_but(s, NULL, now, fx);
    }
}

/* Bodies are views of the round under way. The hash shows a client that is slow and gets its own
 * when the next round has begun that it is none. */
static ru_wire_out head_of(const rui_secure *x, const void *body, int64_t bytes, uint8_t *into)
{
    ru_wire_out o = ru_wire_out_into(into, RUI_FED_HEAD_MAX);
    ru_wire_put_u32(&o, x->task);
    ru_wire_put_u64(&o, ru_hash_bytes(body, bytes, x->task));
    return o;
}

static void send(rui_fed_server *s, const rui_fed_member *m, uint32_t what, const ru_wire_out *head,
                 const void *body, int64_t bytes, ru_time now, ru_effects *fx)
{
    (void)ru_pull_send(s->pull, m->node, what, head->start, (uint32_t)ru_wire_size(head),
                       (void *)(uintptr_t)body, bytes, false, RUI_FED_COOKIE_NONE, now, fx);
}

static void send_roster(rui_fed_server *s, ru_time now, ru_effects *fx)
{
    rui_secure *x = s->secure;
    int64_t bytes = (int64_t)x->u.n * RU_MASK_PUBLIC_BYTES;
    for (uint32_t k = 0; k < x->u.n; k++) {
        const rui_fed_member *m = at(s, k);
        x->told += m != NULL ? m->samples : 0;
    }
    for (uint32_t k = 0; k < x->u.n; k++) {
        const rui_fed_member *m = at(s, k);
        uint8_t head[RUI_FED_HEAD_MAX];
        if (m != NULL) {
            ru_wire_out o = head_of(x, x->u.publics, bytes, head);
            ru_wire_put_u32(&o, x->u.n);
            ru_wire_put_u32(&o, k);
            ru_wire_put_f64(&o, x->told);
            send(s, m, RUI_FED_ROSTER, &o, x->u.publics, bytes, now, fx);
        }
    }
}

static void send_rows(rui_fed_server *s, ru_time now, ru_effects *fx)
{
    rui_secure *x = s->secure;
    for (uint32_t k = 0; k < x->u.n; k++) {
        const rui_fed_member *m = at(s, k);
        uint8_t head[RUI_FED_HEAD_MAX];
        if (m != NULL) {
            int64_t bytes;
            const uint8_t *row = ru_unmasker_row(&x->u, k, &bytes);
            const ru_wire_out o = head_of(x, row, bytes, head);
            send(s, m, RUI_FED_ROW, &o, row, bytes, now, fx);
        }
    }
}

/* Those in the round of whom `done` is so. */
static uint32_t count(const rui_fed_server *s, const bool *done, bool so)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->secure->u.n; k++) {
        n += at(s, k) != NULL && done[k] == so ? 1 : 0;
    }
    return n;
}

static void heard(const rui_fed_server *s, const bool *done, ru_time now)
{
    ru_mask_wait_heard(&s->secure->wait[s->secure->stage], count(s, done, true), enough(s->secure),
                       now.ns);
}

/* The stage of keys, or of boxes, is over when nobody is waited for any more. */
static void advance(rui_fed_server *s, bool late, ru_time now, ru_effects *fx)
{
    rui_secure *x = s->secure;
    bool keys = x->stage == KEYS;
    const bool *done = keys ? x->u.told : x->u.shared;
    if ((!keys && x->stage != SHARES) || (!late && count(s, done, false) > 0)) {
        return;
    }
    bool here[RU_MASK_CLIENTS_MAX];
    for (uint32_t k = 0; k < x->u.n; k++) {
        here[k] = at(s, k) != NULL && done[k];
    }
    uint32_t n = count(s, done, true), few = ru_unmasker_fewest(&x->u, done, here);
    if (n < s->job->secure.threshold || few < s->job->secure.threshold) {
        give_up(s, n < few ? n : few, keys ? "sent keys" : "sent boxes", late, now, fx);
        return;
    }
    excuse_but(s, done, now, fx);
    enter(s, keys ? SHARES : TRAIN, false, now);
    if (keys) {
        send_roster(s, now, fx);
    } else {
        ru_log(RU_LOG_DEBUG, "fed", "secure", "round %u: %u of %u clients have masks", s->round, n,
               x->u.n);
        send_rows(s, now, fx);
    }
}

/* Enough clients are left to open the sum, or it cannot be opened. */
static void check_open(rui_fed_server *s, ru_time now, ru_effects *fx)
{
    const ru_unmasker *u = &s->secure->u;
    bool can[RU_MASK_CLIENTS_MAX];
    for (uint32_t k = 0; k < u->n; k++) {
        can[k] = u->revealed[k] || (at(s, k) != NULL && u->survived[k] != 0);
    }
    uint32_t n = ru_unmasker_fewest(u, u->shared, can);
    if (n < u->need) {
        give_up(s, n, "are left to open the sum", false, now, fx);
    }
}

void rui_secure_timer(rui_fed_server *s, ru_time now, ru_effects *fx)
{
    if (s->secure->stage == OPEN) {
        const ru_unmasker *u = &s->secure->u;
        give_up(s, ru_unmasker_fewest(u, u->shared, u->revealed), "opened the sum in time", true,
                now, fx);
    } else {
        advance(s, true, now, fx);
    }
}

/* -- what clients say -----------------------------------------------------------------------------
 */

void rui_secure_word(rui_fed_server *s, rui_fed_member *m, ru_time now, ru_effects *fx)
{
    if (m != NULL && m->excused != 0) {
        const ru_fed_answer a = {.client = rui_fed_number(s, m), .task = m->excused, .loss = -1};
        m->excused = 0;
        rui_fed_local(s, RU_FED_ANSWER, 0, &a, sizeof a, now, fx);
    }
}

void rui_secure_keys(rui_fed_server *s, const ru_event *ev, ru_effects *fx)
{
    rui_secure *x = s->secure;
    rui_fed_member *m = rui_fed_member_of(s, ev->node);
    ru_wire_in w = ru_wire_in_from(ev->data, ev->size_bytes);
    uint32_t task = ru_wire_u32(&w);
    const uint8_t *publics = ru_wire_bytes(&w, RU_MASK_PUBLIC_BYTES);
    rui_fed_heard(ev->node, fx);
    if (m == NULL || m->place == 0 || task != x->task || x->stage != KEYS) {
        return; /* late */
    }
    if (publics == NULL ||
        !ru_unmasker_public(&x->u, m->place - 1, publics, RU_MASK_PUBLIC_BYTES)) {
        rui_fed_expel(s, m, "its keys are not valid, or come twice", ev->now, fx);
        return;
    }
    heard(s, x->u.told, ev->now);
    advance(s, false, ev->now, fx);
}

static void on_parts(rui_fed_server *s, rui_fed_member *m, const void *body, int64_t bytes,
                     ru_time now, ru_effects *fx)
{
    rui_secure *x = s->secure;
    if (!ru_unmasker_parts(&x->u, m->place - 1, body, bytes)) {
        rui_fed_expel(s, m, "it reveals what nobody asked for", now, fx);
        return;
    }
    ru_mask_wait_heard(&x->wait[x->stage], count(s, x->u.revealed, true), enough(x), now.ns);
    if (ru_unmasker_opens(&x->u)) {
        enter(s, OFF, false, now);
        rui_fed_unmask(s);
    }
}

void rui_secure_parcel(rui_fed_server *s, rui_fed_member *m, uint32_t what, const void *head,
                       uint32_t head_bytes, const void *body, int64_t body_bytes, ru_time now,
                       ru_effects *fx)
{
    rui_secure *x = s->secure;
    ru_wire_in w = ru_wire_in_from(head, head_bytes);
    stage of = what == RUI_FED_BOXES ? SHARES : OPEN;
    if (!m->up || m->place == 0 || ru_wire_u32(&w) != x->task || x->stage != of) {
        return; /* late */
    }
    if (of == OPEN) {
        on_parts(s, m, body, body_bytes, now, fx);
    } else if (!ru_unmasker_boxes(&x->u, m->place - 1, body, body_bytes)) {
        rui_fed_expel(s, m, "its boxes are not valid, or come twice", now, fx);
    } else {
        heard(s, x->u.shared, now);
        advance(s, false, now, fx);
    }
}

ru_status rui_secure_add(rui_fed_server *s, rui_fed_member *m, const float *masked, ru_err *err)
{
    rui_secure *x = s->secure;
    if (x->stage != TRAIN || m->place == 0 ||
        !ru_unmasker_add(&x->u, m->place - 1, (const uint32_t *)(const void *)masked)) {
        return RU_FAIL(err, RU_E_DATA, "it sends an update before it can have masks");
    }
    x->weight += m->samples;
    return RU_OK;
}

void rui_secure_lost(rui_fed_server *s, rui_fed_member *m, ru_time now, ru_effects *fx)
{
    if (s->secure == NULL || m->place == 0) {
        return;
    }
    m->place = 0;
    if (s->secure->stage == OPEN) {
        check_open(s, now, fx);
    } else {
        advance(s, false, now, fx);
    }
}

/* -- the sum --------------------------------------------------------------------------------------
 */

void rui_secure_merge(rui_fed_server *s, const ru_fed_list *l, ru_time now, ru_effects *fx)
{
    rui_secure *x = s->secure;
    uint8_t m[sizeof(uint32_t) + RU_MASK_CLIENTS_MAX];
    memcpy(x->merged, l, sizeof *l + l->n * sizeof *l->client);
    enter(s, OPEN, false, now);
    memcpy(m, &x->task, sizeof x->task);
    memcpy(m + sizeof x->task, x->u.survived, x->u.n);
    check_open(s, now, fx);
    for (uint32_t k = 0; x->stage == OPEN && k < x->u.n; k++) { /* clients refuse what is too few */
        const rui_fed_member *to = at(s, k);
        if (to != NULL && x->u.survived[k] != 0) {
            ru_fx_send(fx, to->node, RUI_FED_SURVIVED, m, (int64_t)(sizeof x->task + x->u.n));
        }
    }
}

ru_status rui_secure_unmask(rui_fed_server *s, ru_err *err)
{
    return ru_unmasker_unmask(&s->secure->u, err);
}

void rui_secure_unmasked(rui_fed_server *s, ru_time now, ru_effects *fx)
{
    rui_secure *x = s->secure;
    const ru_mask_scale scale = {.range = s->job->secure.range, .clip = s->job->privacy.clip};
    if (s->slot.unmask.status != RU_OK) {
        ru_log(RU_LOG_WARN, "fed", "secure", "round %u begins again: %s", s->round,
               s->slot.unmask.text);
        rui_fed_local(s, RU_FED_AGAIN, 0, NULL, 0, now, fx);
        return;
    }
    double unit = ru_mask_unit(&scale) * (scale.clip > 0 ? x->u.n : x->told);
    ru_fed_sum_masked(&s->sum, x->u.sum, unit, x->weight, x->u.n_survived);
    rui_fed_merged(s, x->merged, now);
}
