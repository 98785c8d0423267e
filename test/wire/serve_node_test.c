/* The server's buffers as a part of a node in the simulator: guests ask, and an owner beside the
 * machine runs the batches and answers. Every question is answered once. The same seed gives the
 * same events. */
#include <stdio.h>
#include <string.h>

#include "comm/node/guest.h"
#include "serve/serve.h"
#include "sim/process.h"
#include "test/test.h"

enum {
    SERVE_FIRST = 0x400, /* words of the machine */
    OWNER_FIRST = 0x420, /* timers: batch b is done */
    ASK = 0x480,         /* guests: a number; the answer is the same number */
    AGAIN,               /* the server is full */
    ACT = 2,             /* timer of a guest */
    PLACES = 8,
    GUESTS = 3,
    QUESTIONS = 40,
};

static const char members_token[] = "a token of the server's, 32 byte";
static const char guests_token[] = "another token for guests, 32 byt";

typedef struct host {
    ru_sim_process process;
    ru_link door_link;
    uint32_t door;
    ru_node *node;
    ru_serve *serve;
    ru_serve_start started[PLACES];
    ru_node_id asker[1 << 12]; /* by id of the request */
    uint32_t number[1 << 12], asked;
} host;

typedef struct visitor {
    ru_sim *sim;
    ru_sim_process process;
    ru_guest *guest;
    bool up, waits[QUESTIONS];
    uint32_t next, answers, refusals;
} visitor;

static void must(ru_status st, const ru_err *err)
{
    if (st != RU_OK) {
        ru_panic(__FILE__, __LINE__, "%s", err->text);
    }
}

/* -- parts ---------------------------------------------------------------------------------------
 */

static void serve_step(void *self, const ru_event *ev, ru_effects *fx)
{
    ru_serve_step(self, ev, fx);
}

static const ru_part_ops serve_part = {.name = "serve", .step = serve_step};

static void answer(host *h, uint64_t id, uint32_t what, ru_effects *fx)
{
    ru_fx_send(fx, h->asker[id], what, &h->number[id], sizeof h->number[id]);
}

/* A batch takes 4 ms and 1 ms for each request. */
static void owner_step(void *self, const ru_event *ev, ru_effects *fx)
{
    host *h = self;
    if (ev->kind == RU_EV_LOCAL && ev->what == SERVE_FIRST + RU_SERVE_START) {
        const ru_serve_start *s = ru_event_data(ev, sizeof *s);
        h->started[s->batch] = *s;
        ru_fx_timer(fx, OWNER_FIRST + s->batch, ru_time_after(ev->now, (4 + s->n) * 1000000));
    } else if (ev->kind == RU_EV_LOCAL && ev->what == SERVE_FIRST + RU_SERVE_REFUSED) {
        const ru_serve_request *r = ru_event_data(ev, sizeof *r);
        answer(h, r->id, AGAIN, fx);
    } else if (ev->kind == RU_EV_TIMER) {
        uint32_t batch = ev->what - OWNER_FIRST, p = h->started[batch].first;
        for (; p != RU_SERVE_NONE; p = ru_serve_next(h->serve, p)) {
            answer(h, ru_serve_id(h->serve, p), ASK, fx);
        }
        ru_fx_local(fx, SERVE_FIRST + RU_SERVE_DONE, batch, NULL, 0);
    }
}

static void owner_guest(void *self, const ru_event *ev, ru_effects *fx)
{
    host *h = self;
    if (ev->kind == RU_EV_MESSAGE && ev->what == ASK && ev->size_bytes == 4) {
        const ru_serve_request r = {.id = h->asked++};
        RU_CHECK(r.id < RU_ARRAY_LEN(h->asker));
        h->asker[r.id] = ev->node;
        memcpy(&h->number[r.id], ev->data, 4);
        ru_fx_local(fx, SERVE_FIRST + RU_SERVE_REQUEST, 0, &r, sizeof r);
    }
}

static const ru_part_ops owner_part = {.name = "owner", .step = owner_step, .guest = owner_guest};

/* -- the host ------------------------------------------------------------------------------------
 */

static void host_fire(void *self, uint32_t what, ru_time now)
{
    host *h = self;
    ru_node_timer(h->node, what, now);
}

static void host_begin(void *self, uint64_t arg)
{
    host *h = self;
    (void)arg;
    ru_node_start(h->node, ru_sim_now(h->process.sim));
}

static void open_node(host *h, ru_sim *sim)
{
    static const char address[] = "10.0.0.1:7", door[] = "10.0.0.1:8";
    const ru_sim_nic nic = {.host = 1};
    const ru_node_id self = {77};
    ru_err err;
    must(ru_sim_process_open(&h->process, sim, address, &nic, host_fire, h, &err), &err);
    must(ru_sim_nic_add(sim, door, &nic, NULL, &h->door_link, &h->door, &err), &err);
    ru_node_options o = {.chan = {.self = self,
                                  .address = address,
                                  .job = 1,
                                  .token = (const uint8_t *)members_token,
                                  .token_bytes = 32,
                                  .peers_max = 2,
                                  .streams_max = 4,
                                  .slots_max = 4},
                         .link = h->process.link,
                         .member = {.n_max = 2, .self = {.node = self}},
                         .timers = {ru_sim_process_timer, ru_sim_process_timer_off, &h->process}};
    snprintf(o.member.self.address, sizeof o.member.self.address, "%s", address);
    must(ru_node_open(&o, &h->process.arena, &h->node, &err), &err);
    ru_sim_process_user(&h->process, ru_node_link_user(h->node));
    const ru_guests_options g = {.self = self,
                                 .address = door,
                                 .job = 2,
                                 .token = (const uint8_t *)guests_token,
                                 .token_bytes = 32,
                                 .link = h->door_link};
    must(ru_node_guests(h->node, &g, &h->process.arena, &err), &err);
    ru_sim_nic_user(sim, h->door, ru_node_guests_link_user(h->node));
}

static void host_open(host *h, ru_sim *sim)
{
    static const double all_of[1] = {1};
    const ru_serve_rule rule = {.batch = 3, .timeout_ns = 15000000, .memory_mb = 1024};
    const ru_serve_table table = {1, 1, &rule, all_of};
    const ru_serve_options opt = {
        .requests_max = PLACES, .instances_max = 2, .seed = 1, .what_first = SERVE_FIRST};
    ru_err err;
    open_node(h, sim);
    must(ru_serve_init(&opt, &table, ru_sim_now(sim), &h->process.arena, &h->serve, &err), &err);
    ru_node_part(h->node, &(ru_part){.ops = &serve_part,
                                     .self = h->serve,
                                     .what_first = SERVE_FIRST,
                                     .what_end = SERVE_FIRST + RU_SERVE_WORDS});
    ru_node_part(h->node, &(ru_part){.ops = &owner_part,
                                     .self = h,
                                     .what_first = OWNER_FIRST,
                                     .what_end = OWNER_FIRST + PLACES,
                                     .guest_first = ASK,
                                     .guest_end = AGAIN + 1});
    ru_sim_process_at(&h->process, ru_sim_now(sim), host_begin, h, 0);
}

/* -- guests --------------------------------------------------------------------------------------
 */

static void on_up(void *self, ru_time now)
{
    visitor *v = self;
    v->up = true;
    ru_sim_process_timer(&v->process, ACT, ru_time_after(now, 1));
}

static void on_message(void *self, uint32_t what, const void *data, int64_t size_bytes, ru_time now)
{
    visitor *v = self;
    uint32_t k;
    (void)now;
    assert_int_equal(size_bytes, sizeof k);
    memcpy(&k, data, sizeof k);
    assert_true(k < QUESTIONS && v->waits[k]);
    v->waits[k] = false;
    if (what == AGAIN) {
        v->refusals++;
        v->waits[k] = true;
        assert_int_equal(ru_guest_send(v->guest, ASK, &k, sizeof k, now), RU_OK);
    } else {
        v->answers++;
    }
}

static void on_down(void *self, ru_status why, const char *sentence, ru_time now)
{
    (void)self;
    (void)now;
    ru_panic(__FILE__, __LINE__, "a guest lost its host: %s: %s", ru_status_name(why), sentence);
}

static void visitor_fire(void *self, uint32_t what, ru_time now)
{
    visitor *v = self;
    if (what == RU_GUEST_TIMER) {
        ru_guest_timer(v->guest, now);
    } else if (v->up && v->next < QUESTIONS) {
        uint32_t k = v->next++;
        v->waits[k] = true;
        assert_int_equal(ru_guest_send(v->guest, ASK, &k, sizeof k, now), RU_OK);
        int64_t pause_ns = ru_rng_below(ru_sim_rng(v->sim), 60) * INT64_C(1000000);
        ru_sim_process_timer(&v->process, ACT, ru_time_after(now, 1 + pause_ns));
    }
}

static void visitor_open(visitor *v, ru_sim *sim, uint32_t k)
{
    char address[32];
    ru_err err;
    v->sim = sim;
    snprintf(address, sizeof address, "10.1.0.%u:7", k);
    must(ru_sim_process_open(&v->process, sim, address, &(ru_sim_nic){0}, visitor_fire, v, &err),
         &err);
    const ru_guest_options o = {
        .self = {1000 + k},
        .address = "",
        .job = 2,
        .token = (const uint8_t *)guests_token,
        .token_bytes = 32,
        .link = v->process.link,
        .timers = {ru_sim_process_timer, ru_sim_process_timer_off, &v->process},
        .up = on_up,
        .message = on_message,
        .down = on_down,
        .self_up = v};
    must(ru_guest_open(&o, &v->process.arena, &v->guest, &err), &err);
    ru_sim_process_user(&v->process, ru_guest_link_user(v->guest));
    must(ru_guest_dial(v->guest, "10.0.0.1:8", ru_sim_now(sim), &err), &err);
}

/* -- tests ---------------------------------------------------------------------------------------
 */

/* Hash of the run. */
static uint64_t run(uint64_t seed)
{
    static const ru_time end = {INT64_C(10000000000)};
    host *h = calloc(1, sizeof *h);
    visitor *v = calloc(GUESTS, sizeof *v);
    ru_sim *sim;
    ru_err err;
    must(ru_sim_open(&(ru_sim_options){.seed = seed, .nodes_max = 2 + GUESTS}, &sim, &err), &err);
    host_open(h, sim);
    for (uint32_t k = 0; k < GUESTS; k++) {
        visitor_open(&v[k], sim, k);
    }
    must(ru_sim_run(sim, end, &err), &err);
    uint32_t refusals = 0;
    for (uint32_t k = 0; k < GUESTS; k++) {
        assert_int_equal(v[k].answers, QUESTIONS);
        refusals += v[k].refusals;
    }
    ru_serve_stats st = ru_serve_stats_get(h->serve);
    assert_int_equal(st.size_sum, GUESTS * QUESTIONS);
    assert_int_equal(st.refused, refusals);
    assert_true(st.why[RU_SERVE_FULL] > 5 && st.why[RU_SERVE_TIMEOUT] > 5);
    assert_true(st.open + st.ready + st.running == 0);
    uint64_t hash = ru_sim_hash(sim);
    ru_node_close(h->node);
    for (uint32_t k = 0; k < GUESTS; k++) {
        ru_guest_close(v[k].guest);
    }
    ru_sim_close(sim);
    ru_sim_process_fini(&h->process);
    for (uint32_t k = 0; k < GUESTS; k++) {
        ru_sim_process_fini(&v[k].process);
    }
    free(h);
    free(v);
    return hash;
}

static void test_buffers_beside_a_node_answer_every_guest(void **state)
{
    (void)state;
    uint64_t seed = ru_test_seed();
    uint64_t hash = run(seed);
    assert_true(hash == run(seed));
    for (uint64_t k = 1; k < 6; k++) {
        assert_true(run(seed + k) != hash);
    }
}

RU_TESTS(test_serve_node, cmocka_unit_test(test_buffers_beside_a_node_answer_every_guest))
