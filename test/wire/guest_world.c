#include "test/wire/guest_world.h"

#include <stdio.h>
#include <string.h>

enum { ACT = 2 /* timer of an honest guest */, ACT_NS = 20000000, GUSH = 3000, GUSH_BYTES = 1500 };

static const char members_token[] = "a token of the counter, 32 bytes";
static const char guests_token[] = "another token for guests, 32 byt";

static void must(ru_status st, const ru_err *err)
{
    if (st != RU_OK) {
        ru_panic(__FILE__, __LINE__, "%s", err->text);
    }
}

/* -- hosts ----------------------------------------------------------------------------------------
 */

static void mute_step(void *self, const ru_event *ev, ru_effects *fx)
{
    (void)self;
    (void)ev;
    (void)fx;
}

static void mute_guest(void *self, const ru_event *ev, ru_effects *fx)
{
    static const uint8_t bytes[GUSH_BYTES];
    guest_host *h = self;
    h->mute_downs += ev->kind == RU_EV_DOWN;
    for (uint32_t k = 0; ev->kind == RU_EV_MESSAGE && ev->what == GUEST_GUSH && k < GUSH; k++) {
        ru_fx_send(fx, ev->node, GUEST_GUSH, bytes, sizeof bytes);
    }
}

static const ru_part_ops mute_part = {.name = "mute", .step = mute_step, .guest = mute_guest};

static void host_fire(void *self, uint32_t what, ru_time now)
{
    guest_host *h = self;
    ru_node_timer(h->node, what, now);
}

static void host_begin(void *self, uint64_t arg)
{
    (void)arg;
    guest_host *h = self;
    ru_node_start(h->node, ru_sim_now(h->world->sim));
}

static void host_add(guest_world *w, uint32_t k)
{
    guest_host *h = &w->hosts[k];
    ru_err err = {0};
    const ru_sim_nic nic = {.host = 1 + k};
    h->world = w;
    snprintf(h->address, sizeof h->address, "10.0.0.%u:7", k);
    snprintf(h->door_address, sizeof h->door_address, "10.0.0.%u:8", k);
    must(ru_sim_process_open(&h->process, w->sim, h->address, &nic, host_fire, h, &err), &err);
    must(ru_sim_nic_add(w->sim, h->door_address, &nic, NULL, &h->door_link, &h->door, &err), &err);
    h->counter.self.v = ru_rng_u64(ru_sim_rng(w->sim)) | 1;
    ru_node_options o = {
        .chan = {.self = h->counter.self,
                 .address = h->address,
                 .job = 1,
                 .token = (const uint8_t *)members_token,
                 .token_bytes = 32,
                 .peers_max = 2 * GUEST_HOSTS,
                 .streams_max = 16,
                 .slots_max = 16},
        .link = h->process.link,
        .member = {.join = k == 0 ? NULL : w->hosts[0].address, .n_max = GUEST_HOSTS},
        .timers = {ru_sim_process_timer, ru_sim_process_timer_off, &h->process}};
    o.member.self.node = h->counter.self;
    snprintf(o.member.self.address, sizeof o.member.self.address, "%s", h->address);
    must(ru_node_open(&o, &h->process.arena, &h->node, &err), &err);
    ru_sim_process_user(&h->process, ru_node_link_user(h->node));
    ru_guests_options g = w->limits;
    g.self = h->counter.self;
    g.address = h->door_address;
    g.job = 2;
    g.token = (const uint8_t *)guests_token;
    g.token_bytes = 32;
    g.link = h->door_link;
    must(ru_node_guests(h->node, &g, &h->process.arena, &err), &err);
    ru_sim_nic_user(w->sim, h->door, ru_node_guests_link_user(h->node));
    h->counter.goal = GUEST_GOAL;
    h->counter.step_ns = ACT_NS;
    ru_counter_part(&h->counter, h->node);
    ru_node_part(h->node, &(ru_part){.ops = &mute_part,
                                     .self = h,
                                     .what_first = 0x380,
                                     .what_end = 0x381,
                                     .guest_first = GUEST_MUTE,
                                     .guest_end = GUEST_MUTE_END});
    ru_sim_process_at(&h->process, ru_sim_now(w->sim), host_begin, h, 0);
}

void guest_world_open(guest_world *w, uint64_t seed, uint32_t n_hosts)
{
    ru_err err = {0};
    const ru_sim_options so = {.seed = seed, .nodes_max = 2 * GUEST_HOSTS + GUEST_VISITORS};
    must(ru_sim_open(&so, &w->sim, &err), &err);
    for (; w->n_hosts < n_hosts; w->n_hosts++) {
        host_add(w, w->n_hosts);
    }
}

void guest_world_close(guest_world *w)
{
    for (uint32_t k = 0; k < w->n_hosts; k++) {
        ru_node_close(w->hosts[k].node);
    }
    for (uint32_t k = 0; k < w->n_visitors; k++) {
        ru_guest_close(w->visitors[k].guest);
    }
    ru_sim_close(w->sim);
    for (uint32_t k = 0; k < w->n_hosts; k++) {
        ru_sim_process_fini(&w->hosts[k].process);
    }
    for (uint32_t k = 0; k < w->n_visitors; k++) {
        ru_sim_process_fini(&w->visitors[k].process);
    }
}

void guest_world_told(void *self, ru_sim_fault what, uint32_t node, uint32_t other, ru_time now)
{
    guest_world *w = self;
    (void)other;
    (void)now;
    for (uint32_t k = 0; k < w->n_hosts && (what == RU_SIM_CRASH || what == RU_SIM_VANISH); k++) {
        guest_host *h = &w->hosts[k];
        if (h->process.node != node && h->door != node) {
            continue;
        }
        uint32_t twin = h->process.node == node ? h->door : h->process.node;
        if (ru_sim_alive(w->sim, twin)) {
            (what == RU_SIM_CRASH ? ru_sim_crash : ru_sim_vanish)(w->sim, twin);
        }
    }
}

/* -- guests ---------------------------------------------------------------------------------------
 */

static void on_up(void *self, ru_time now)
{
    guest_visitor *v = self;
    (void)now;
    v->up = true;
    v->ups++;
}

static void on_message(void *self, uint32_t what, const void *data, int64_t size_bytes, ru_time now)
{
    guest_visitor *v = self;
    ru_counter_known known;
    (void)now;
    v->answers++;
    if (what == RU_COUNTER_KNOWN && size_bytes == (int64_t)sizeof known) {
        memcpy(&known, data, sizeof known);
        v->known = known.yours > v->known ? known.yours : v->known;
    }
}

static void on_down(void *self, ru_status why, const char *sentence, ru_time now)
{
    guest_visitor *v = self;
    (void)now;
    v->up = v->dialed = false;
    v->why = why;
    v->refusals += why == RU_E_PERM;
    snprintf(v->sentence, sizeof v->sentence, "%s", sentence);
}

void guest_world_dial(guest_visitor *v, uint32_t host)
{
    ru_err err;
    v->at = host;
    v->up = false;
    v->dialed = ru_guest_dial(v->guest, v->world->hosts[host].door_address,
                              ru_sim_now(v->world->sim), &err) == RU_OK;
}

ru_status guest_world_send(guest_visitor *v, uint32_t what, const void *data, int64_t size_bytes)
{
    return ru_guest_send(v->guest, what, data, size_bytes, ru_sim_now(v->world->sim));
}

/* One more, or the last ones again to another host. */
static void act(guest_visitor *v)
{
    if (!v->up && !v->dialed) {
        guest_world_dial(v, (v->at + 1) % v->world->n_hosts);
    } else if (v->up) {
        v->count += v->count < v->goal ? 1 : 0;
        (void)!guest_world_send(v, RU_COUNTER_ADD, &v->count, sizeof v->count);
    }
    ru_sim_process_timer(&v->process, ACT, (ru_time){ru_sim_now(v->world->sim).ns + ACT_NS});
}

static void visitor_fire(void *self, uint32_t what, ru_time now)
{
    guest_visitor *v = self;
    if (what == RU_GUEST_TIMER) {
        ru_guest_timer(v->guest, now);
    } else {
        act(v);
    }
}

guest_visitor *guest_world_visit(guest_world *w, bool honest, const char *token)
{
    RU_CHECK(w->n_visitors < GUEST_VISITORS);
    guest_visitor *v = &w->visitors[w->n_visitors];
    ru_err err = {0};
    *v = (guest_visitor){.world = w, .honest = honest, .goal = GUEST_GOAL, .at = w->n_visitors};
    snprintf(v->address, sizeof v->address, "10.1.0.%u:7", w->n_visitors++);
    must(ru_sim_process_open(&v->process, w->sim, v->address, &(ru_sim_nic){0}, visitor_fire, v,
                             &err),
         &err);
    v->id.v = ru_rng_u64(ru_sim_rng(w->sim)) | 1;
    v->id = w->name != NULL ? ru_guest_name(w->name) : v->id;
    const ru_guest_options o = {
        .self = v->id,
        .address = v->address,
        .job = 2,
        .token = (const uint8_t *)(token != NULL ? token : guests_token),
        .token_bytes = 32,
        .link = v->process.link,
        .timers = {ru_sim_process_timer, ru_sim_process_timer_off, &v->process},
        .up = on_up,
        .message = on_message,
        .down = on_down,
        .self_up = v};
    must(ru_guest_open(&o, &v->process.arena, &v->guest, &err), &err);
    ru_sim_process_user(&v->process, ru_guest_link_user(v->guest));
    if (honest) {
        ru_sim_process_timer(&v->process, ACT, (ru_time){ru_sim_now(w->sim).ns + 1});
    }
    return v;
}

void guest_world_run_ms(guest_world *w, int64_t for_ms)
{
    ru_err err = {0};
    must(ru_sim_run(w->sim, (ru_time){ru_sim_now(w->sim).ns + for_ms * 1000000}, &err), &err);
}

/* -- storm ----------------------------------------------------------------------------------------
 */

typedef struct script {
    const uint8_t *at, *end;
} script;

static uint32_t take(script *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

static void do_evil(guest_visitor *v, script *s, uint8_t bytes[])
{
    static const uint32_t numbers[] = {
        RU_COUNTER_ADD, RU_COUNTER_KNOWN, GUEST_MUTE, GUEST_GUSH, RU_GUEST_REFUSED, 0x100, 0x104,
        0x300,          UINT32_MAX};
    uint32_t kind = take(s), size = take(s);
    if (!v->up || kind % 16 == 0) {
        guest_world_dial(v, 0);
        guest_world_run_ms(v->world, 20);
        return;
    }
    if (kind % 16 == 1) {
        guest_world_run_ms(v->world, 10 * (int64_t)size);
        return;
    }
    uint32_t what = numbers[kind % RU_ARRAY_LEN(numbers)] + (kind > 250 ? take(s) : 0);
    size = kind % 16 == 2 ? size * 257 : size;
    for (uint32_t k = 0; k < size && k < 16; k++) {
        bytes[k] = (uint8_t)take(s);
    }
    for (uint32_t n = kind % 8 == 3 ? 40 : 1; n > 0; n--) {
        (void)!guest_world_send(v, what, bytes, what == RU_COUNTER_ADD && size % 2 == 0 ? 8 : size);
    }
    guest_world_run_ms(v->world, 1);
}

ru_status guest_storm(const uint8_t *data, int64_t size_bytes, ru_err *err)
{
    static const ru_guests_options limits = {.n_max = 2, .idle_ns = 900000000};
    uint8_t bytes[RU_CHAN_MESSAGE_MAX] = {0};
    guest_world w = {.limits = limits};
    script s = {data, data + size_bytes};
    guest_world_open(&w, 1, 1);
    const guest_host *h = &w.hosts[0];
    guest_visitor *good = guest_world_visit(&w, true, NULL);
    guest_visitor *evil = guest_world_visit(&w, false, NULL);
    uint64_t before = 0;
    guest_world_run_ms(&w, 100);
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < 200 && s.at < s.end && st == RU_OK; k++) {
        do_evil(evil, &s, bytes);
        ru_guests_facts f;
        ru_node_guests_facts(h->node, &f);
        if (f.n > limits.n_max || f.taken < before) {
            st = RU_FAIL(err, RU_E_BUG, "%u guests at once, at most %u", f.n, limits.n_max);
        }
        before = f.taken;
    }
    guest_world_run_ms(&w, 2000);
    uint64_t of_good = 0;
    for (uint32_t k = 0; k < h->counter.n; k++) {
        bool is = h->counter.seen[k].node == good->id.v && h->counter.seen[k].guest != 0;
        of_good = is ? h->counter.seen[k].count : of_good;
    }
    if (st == RU_OK && (good->known != GUEST_GOAL || good->refusals > 0 || good->ups != 1)) {
        st = RU_FAIL(err, RU_E_BUG, "the honest guest got %llu of %d counts through: %s",
                     (unsigned long long)good->known, GUEST_GOAL, good->sentence);
    }
    if (st == RU_OK && (of_good != good->count || h->counter.seen[0].count != GUEST_GOAL)) {
        st = RU_FAIL(err, RU_E_BUG, "the service knows of %llu counts of a guest that made %llu",
                     (unsigned long long)of_good, (unsigned long long)good->count);
    }
    guest_world_close(&w);
    return st;
}
