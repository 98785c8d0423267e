/* The server of a federation hears clients that say what the input says: it refuses or takes each
 * word, counts who is there, and its model stays finite. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fleet/secure/serve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CLIENTS = 4, VALUES = 5, ROUND = 3, WORDS_MAX = 400, MESSAGE_MAX = 512 };

static const char *const names[CLIENTS] = {"a", "b", "c", "d"};

typedef struct input {
    const uint8_t *at, *end;
} input;

typedef struct rig {
    ru_job_federated job;
    rui_fed_server s;
    ru_arena arena, fx_arena;
    ru_effects fx;
    ru_time now;
} rig;

static uint8_t next(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* The node that lives as long as the process: nobody is connected to it. */
static ru_node_loop node_of(ru_loop **loop)
{
    static ru_node_loop bridge;
    static ru_arena arena;
    static ru_link_tcp *link;
    static const uint8_t token[16] = {1};
    if (bridge.node == NULL) {
        ru_arena_init(&arena, 0);
        RU_CHECK(ru_loop_open(&bridge.loop, NULL) == RU_OK);
        const ru_link_tcp_options lo = {
            .loop = bridge.loop, .listen = "127.0.0.1:0", .psk = token, .psk_bytes = 16};
        RU_CHECK(ru_link_tcp_open(&lo, &link, NULL) == RU_OK);
        const ru_guests_options go = {.address = ru_link_tcp_address(link),
                                      .job = RUI_FED_SERVICE,
                                      .token = token,
                                      .token_bytes = sizeof token,
                                      .link = ru_link_tcp_link(link),
                                      .n_max = CLIENTS,
                                      .message_bytes = 32 << 10,
                                      .streams_max = 4,
                                      .slots_max = 4};
        const ru_part part = {
            .ops = &rui_fed_part, .guest_first = RUI_FED_HELLO, .guest_end = RUI_FED_END};
        RU_CHECK(ru_node_loop_alone(&bridge, &part, &go, &arena, NULL) == RU_OK);
    }
    *loop = bridge.loop;
    return bridge;
}

static void open_rig(rig *r, uint8_t how)
{
    rui_fed_server *s = &r->s;
    bool secure = (how & 1) != 0;
    const double noise = how == 2 ? 1.5 : 0; /* its account takes long to open */
    *r = (rig){.job = {.rounds = 4,
                       .epochs = 1,
                       .eval_every = 1,
                       .profile_wait_ns = 1000000000,
                       .per_round = ROUND,
                       .clients_min = ROUND,
                       .clients_max = CLIENTS - 1, /* the last one finds no place */
                       .tiers = 1,
                       .interval = 2,
                       .lr = 1,
                       .sum = !secure && noise == 0 && (how & 4) != 0 ? RU_FED_MEDIAN : RU_FED_MEAN,
                       .privacy = {.clip = noise > 0 ? 1 : 0, .noise = noise, .delta = 1e-5},
                       .secure = {.threshold = secure ? 2 : 0, .range = 16}},
               .now = {1000000000}};
    ru_arena_init(&r->arena, 0);
    ru_arena_init(&r->fx_arena, 0);
    ru_effects_init(&r->fx, &r->fx_arena);
    s->job = &r->job;
    s->arena = &r->arena;
    s->out = "";
    s->flat = (ru_flat){.count = VALUES, .params = VALUES, .hash = 7};
    s->labels = 1;
    s->bridge = node_of(&s->loop);
    s->welcome.head = (rui_fed_start){.count = VALUES, .params = VALUES, .hash = 7, .range = 16};
    s->now_values = &s->editions[0];
    s->now_values->values = calloc(VALUES, sizeof(float));
    s->now_values->refs = 1;
    s->members = RU_NEW(&r->arena, rui_fed_member, r->job.clients_max);
    RU_CHECK(s->members != NULL && s->now_values->values != NULL);
    ru_map_init(&s->by_node, &r->arena, r->job.clients_max);
    ru_mutex_init(&s->lock);
    ru_cond_init(&s->changed);
    ru_arena_init(&s->slot.line_arena, 0);
    const ru_fed_sum_options sum = ru_fed_sum_of(&r->job, &s->flat);
    RU_CHECK(ru_fed_sum_open(&sum, &r->arena, &s->sum, NULL) == RU_OK);
    RU_CHECK(!secure || rui_secure_open(s, NULL) == RU_OK);
    const ru_fed_options fo = {.n = r->job.clients_max,
                               .rounds = 4,
                               .per_round = ROUND,
                               .n_tiers = 1,
                               .interval = 2,
                               .profile_rounds = 1,
                               .profile_wait_ns = 1000000000,
                               .method = RU_PICK_VANILLA,
                               .absent = true,
                               .clients_min = ROUND,
                               .deadline_least_s = 1,
                               .noise = noise,
                               .delta = 1e-5,
                               .keeps = true};
    RU_CHECK(ru_fed_init(&fo, r->now, &r->arena, &s->fed, NULL) == RU_OK);
    ru_bufs_init(&s->bufs, 64 << 20);
    int64_t body_max = rui_secure_body_max(&r->job);
    const ru_pull_options po = {.chan = ru_node_guests_chan(s->bridge.node),
                                .bufs = &s->bufs,
                                .user = {s, rui_fed_got, rui_fed_sent},
                                .peers_max = CLIENTS,
                                .what_first = RUI_FED_PARCELS,
                                .local = RUI_FED_LOCAL,
                                .body_max = body_max > 20 ? body_max : 20};
    RU_CHECK(ru_pull_open(&po, &r->arena, &s->pull, NULL) == RU_OK);
    rui_fed_step(s, (ru_event){.kind = RU_EV_START, .now = r->now}, &r->fx);
}

static void close_rig(rig *r)
{
    ru_pull_close(r->s.pull);
    ru_bufs_fini(&r->s.bufs);
    for (uint32_t k = 0; k < RU_FED_EDITIONS_MAX; k++) {
        free(r->s.editions[k].values);
    }
    free(r->s.slot.saved);
    ru_loop_timer_off(r->s.loop, rui_fed_timer, &r->s, RUI_FED_TIMER_FED);
    ru_loop_timer_off(r->s.loop, rui_fed_timer, &r->s, RUI_FED_TIMER_EVAL);
    ru_loop_timer_off(r->s.loop, rui_fed_timer, &r->s, RUI_FED_TIMER_SECURE);
    ru_arena_fini(&r->s.slot.line_arena);
    ru_arena_fini(&r->fx_arena);
    ru_arena_fini(&r->arena);
}

/* What the main thread does. */
static void keep(rig *r)
{
    rui_fed_server *s = &r->s;
    if (s->slot.masked == RUI_MASKED) {
        s->slot.unmask = (ru_err){0};
        (void)!rui_secure_unmask(s, &s->slot.unmask);
        s->slot.masked = RUI_MASKED_NONE;
        rui_secure_unmasked(s, r->now, &r->fx);
    }
    if (s->slot.ready) {
        for (uint32_t i = 0; i < VALUES; i++) {
            RU_CHECK(isfinite(s->slot.edition->values[i]));
        }
        s->slot.ready = false;
        s->slot.edition->refs--;
        s->slot.edition = NULL;
        rui_fed_local(s, RU_FED_KEPT, 0, NULL, 0, r->now, &r->fx);
    }
}

/* A word that an honest client would say now, in `m`; its number in *what. */
static int64_t honest(const rig *r, uint32_t k, uint8_t kind, uint8_t *m, uint32_t *what)
{
    ru_wire_out o = ru_wire_out_into(m, MESSAGE_MAX);
    const uint64_t *i = ru_map_get_u64(&r->s.by_node, ru_guest_name(names[k]).v);
    uint32_t task = i != NULL ? r->s.members[*i].task : 1;
    if (kind == 0) {
        *what = RUI_FED_HELLO;
        ru_wire_put_u32(&o, RUI_FED_VERSION);
        ru_wire_put_text(&o, names[k], (uint32_t)strlen(names[k]));
        ru_wire_put_u64(&o, k + 1);
    } else if (kind == 1) {
        *what = RUI_FED_READY;
        return rui_fed_ready_put(
            &(rui_fed_ready){.samples = 10, .held = 5, .count = VALUES, .hash = 7}, m);
    } else if (kind == 2) {
        *what = RUI_FED_SCORE;
        return rui_fed_score_put(
            &(rui_fed_score){.task = task, .correct = 3, .count = 5, .loss = 0.5}, m);
    } else if (kind == 3) {
        *what = RUI_FED_AWAY;
        ru_wire_put_u32(&o, 7);
    } else { /* a parcel in one message, as comm/pull sends it: id, bytes, kind, bytes of the head
              */
        uint8_t head[RUI_FED_HEAD_MAX];
        const float body[VALUES] = {1, 2, 3, 4, 5};
        const rui_fed_update u = {.task = task, .loss = 1, .loss_rms = 1, .accuracy = 0.5};
        uint32_t n = rui_fed_update_put(&u, head);
        *what = RUI_FED_PARCELS + 2;
        ru_wire_put_u64(&o, 0);
        ru_wire_put_u64(&o, sizeof body);
        ru_wire_put_u32(&o, RUI_FED_UPDATE);
        ru_wire_put_u32(&o, n);
        ru_wire_put_bytes(&o, head, n);
        ru_wire_put_bytes(&o, body, sizeof body);
    }
    return ru_wire_size(&o);
}

static void word(rig *r, input *in)
{
    uint8_t m[MESSAGE_MAX] = {0}, op = next(in), k = next(in) % CLIENTS;
    ru_event ev = {.kind = RU_EV_MESSAGE, .now = r->now, .node = ru_guest_name(names[k])};
    if (op % 8 == 7) {
        ev.kind = RU_EV_DOWN;
        ev.value = RU_E_PEER;
    } else if (op % 8 == 6) {
        r->now = ru_time_after(r->now, (int64_t)next(in) * 100000000);
        rui_fed_step(&r->s, (ru_event){.kind = RU_EV_TIMER, .now = r->now, .what = RU_FED_TIMER},
                     &r->fx);
        if (r->s.secure != NULL) {
            rui_secure_timer(&r->s, r->now, &r->fx);
        }
        return;
    } else if (op % 8 == 5) { /* anything */
        ev.what = RUI_FED_HELLO + next(in) % (RUI_FED_END - RUI_FED_HELLO);
        ev.size_bytes = next(in);
        for (int64_t i = 0; i < ev.size_bytes; i++) {
            m[i] = next(in);
        }
    } else {
        ev.size_bytes = honest(r, k, op % 8, m, &ev.what);
        for (uint8_t times = op / 8 % 4; times > 0; times--) {
            uint8_t where = next(in);
            m[where % ev.size_bytes] ^= next(in);
        }
    }
    ev.data = m;
    rui_fed_part.guest(&r->s, &ev, &r->fx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static rig r; /* timers know its address */
    ru_log_set(&(ru_log_options){.level = RU_LOG_OFF});
    input in = {data, data + size};
    open_rig(&r, next(&in));
    for (uint32_t k = 0; k < WORDS_MAX && in.at < in.end; k++) {
        word(&r, &in);
        keep(&r);
        rui_fed_tell_clients(&r.s);
        uint32_t up = 0;
        for (uint32_t i = 0; i < r.s.n; i++) {
            up += r.s.members[i].up ? 1 : 0;
        }
        RU_CHECK(up == r.s.there && r.s.n < CLIENTS && r.s.now_values->refs >= 1);
        ru_effects_clear(&r.fx);
    }
    close_rig(&r);
    return 0;
}
