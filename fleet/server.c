#include "fleet/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/file/file.h"
#include "env/file/secret.h"
#include "env/process/self.h"
#include "fleet/secure/serve.h"
#include "fleet/secure/wait.h"
#include "fleet/server_impl.h"
#include "fleet/snapshot.h"

enum { GUESTS_MAX = 4096, STREAMS = 256, MESSAGE_BYTES = 32 << 10 };

static const int64_t idle_ns = 120000000000, bodies_ns = 5000000000;

/* -- keys -----------------------------------------------------------------------------------------
 */

static ru_status key_of_node(const char *secret, ru_node_id node, uint8_t key[RU_FED_KEY_BYTES],
                             ru_err *err)
{
    char purpose[64];
    uint8_t whole[RU_SECRET_BYTES];
    (void)snprintf(purpose, sizeof purpose, "rubato federation client %016llx",
                   (unsigned long long)node.v);
    RU_TRY(ru_secret_key(secret, purpose, whole, err));
    memcpy(key, whole, RU_FED_KEY_BYTES);
    return RU_OK;
}

ru_status ru_fed_key(const char *secret, const char *name, uint8_t key[RU_FED_KEY_BYTES],
                     ru_err *err)
{
    if (!rui_fed_name_ok(name)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "'%s' is no name of a client; use up to %d letters, digits, - _ and .", name,
                       RUI_FED_NAME_MAX);
    }
    return key_of_node(secret, ru_guest_name(name), key, err);
}

static bool key_of(void *self, ru_node_id node, const uint8_t **key, uint32_t *key_bytes)
{
    rui_fed_server *s = self;
    *key = s->key;
    *key_bytes = sizeof s->key;
    return key_of_node(s->opt->secret, node, s->key, NULL) == RU_OK;
}

static bool psk_of(void *self, const char *name, uint8_t *key, uint32_t *key_bytes)
{
    rui_fed_server *s = self;
    *key_bytes = RU_FED_KEY_BYTES;
    return ru_fed_key(s->opt->secret, name, key, NULL) == RU_OK;
}

/* -- opening --------------------------------------------------------------------------------------
 */

static ru_status open_guests(rui_fed_server *s, ru_err *err)
{
    static const uint8_t none[16] = {1}; /* every guest has a key of its own */
    uint32_t n = s->job->clients_max < GUESTS_MAX ? s->job->clients_max : GUESTS_MAX;
    int64_t model_bytes = s->flat.count * (int64_t)sizeof(float);
    int64_t body_max = rui_secure_body_max(s->job);
    body_max = body_max > model_bytes ? body_max : model_bytes;
    /* Small ones come many at a time, or each would wait for those before it across the network. */
    int64_t bodies = RU_FED_BODIES_BYTES / body_max;
    bodies = bodies < RU_FED_BODIES ? RU_FED_BODIES : bodies > STREAMS ? STREAMS : bodies;
    const ru_guests_options go = {.address = ru_link_tcp_address(s->link),
                                  .job = RUI_FED_SERVICE,
                                  .token = none,
                                  .token_bytes = sizeof none,
                                  .key_of = key_of,
                                  .key_self = s,
                                  .link = ru_link_tcp_link(s->link),
                                  .n_max = n,
                                  .message_bytes = MESSAGE_BYTES,
                                  .messages_per_s = 200,
                                  .bytes_per_s = 4 << 20,
                                  .unanswered_max = 64,
                                  .idle_ns = idle_ns,
                                  .streams_max = STREAMS,
                                  .slots_max = (uint32_t)bodies + 2};
    const ru_part part = {
        .ops = &rui_fed_part, .self = s, .guest_first = RUI_FED_HELLO, .guest_end = RUI_FED_END};
    RU_TRY(ru_node_loop_alone(&s->bridge, &part, &go, s->arena, err));
    ru_bufs_init(&s->bufs, (bodies + 2) * (body_max + body_max / 4) + (16 << 20));
    const ru_pull_options po = {.chan = ru_node_guests_chan(s->bridge.node),
                                .bufs = &s->bufs,
                                .user = {s, rui_fed_got, rui_fed_sent},
                                .peers_max = n + 16,
                                .what_first = RUI_FED_PARCELS,
                                .local = RUI_FED_LOCAL,
                                .body_max = body_max,
                                .granted_bytes = bodies * body_max};
    RU_TRY(ru_pull_open(&po, s->arena, &s->pull, err));
    ru_link_tcp_user(s->link, ru_node_guests_link_user(s->bridge.node));
    return RU_OK;
}

static ru_status open_link(rui_fed_server *s, ru_err *err)
{
    RU_TRY(ru_loop_open(&s->loop, err));
    s->bridge.loop = s->loop;
    uint32_t n = s->job->clients_max < GUESTS_MAX ? s->job->clients_max : GUESTS_MAX;
    const ru_link_tcp_options lo = {.loop = s->loop,
                                    .listen = s->opt->listen,
                                    .psk_of = psk_of,
                                    .psk_self = s,
                                    .queue_ns = 10000000, /* the line, not a message, is dear */
                                    .conns_max = ru_guests_conns(n) + RU_LINK_TCP_STRANGERS};
    RU_TRY(ru_link_tcp_open(&lo, &s->link, err));
    RU_TRY(open_guests(s, err));
    RU_TRY(ru_loop_waker(s->loop, rui_fed_wake, s, &s->waker, err));
    int fd = ru_self_stop_fd();
    return fd >= 0 ? ru_loop_fd(s->loop, fd, 1, rui_fed_stop, s, err) : RU_OK;
}

static ru_status open_fed(rui_fed_server *s, int64_t rounds_done, ru_err *err)
{
    const ru_job_federated *j = s->job;
    ru_fed_options fo = ru_fed_options_of(s->opt->train->job, j->clients_max);
    fo.clients_min = j->clients_min > j->per_round ? j->clients_min : j->per_round;
    fo.deadline_least_s = 1;       /* of a network and a busy machine */
    if (j->secure.threshold > 0) { /* what measured clients does not show: keys, then boxes */
        ru_mask_wait wait = {.fixed_ns = j->secure.wait_ns};
        fo.deadline_least_s += 2e-9 * (double)ru_mask_wait_begin(&wait, j->per_round, 0);
    }
    fo.round_first = (uint32_t)rounds_done;
    s->members = RU_NEW(s->arena, rui_fed_member, j->clients_max);
    s->pace.queue = RU_NEW(s->arena, uint32_t, j->clients_max);
    s->pace.max = j->clients_max;
    if (s->members == NULL || s->pace.queue == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u clients", j->clients_max);
    }
    ru_map_init(&s->by_node, s->arena, j->clients_max);
    const ru_fed_sum_options sum = ru_fed_sum_of(j, &s->flat);
    RU_TRY(ru_fed_sum_open(&sum, s->arena, &s->sum, err));
    RU_TRY(j->secure.threshold > 0 ? rui_secure_open(s, err) : RU_OK);
    return ru_fed_init(&fo, ru_clock_now(), s->arena, &s->fed, err);
}

/* -- snapshots ------------------------------------------------------------------------------------
 */

static ru_status read_snapshot(rui_fed_server *s, const char *path, ru_err *err)
{
    char *data;
    int64_t n;
    RU_TRY(ru_file_read(path, 0, s->arena, &data, &n, err));
    ru_wire_in w = ru_wire_in_from(data, n);
    uint32_t clients = ru_wire_u32(&w);
    for (uint32_t i = 0; i < clients && !w.bad; i++) {
        const char *name = (const char *)ru_wire_bytes(&w, RUI_FED_NAME_MAX + 1);
        double samples = ru_wire_f64(&w), held = ru_wire_f64(&w);
        rui_fed_member *m = name != NULL && name[RUI_FED_NAME_MAX] == '\0' && rui_fed_name_ok(name)
                                ? rui_fed_member_new(s, name)
                                : NULL;
        if (m == NULL) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s is damaged, or of more clients than "
                           "federated.clients_max",
                           path);
        }
        m->samples = samples;
        m->held = held;
    }
    RU_TRY(ru_fed_load(s->fed, false, &w, err));
    int64_t bytes = s->sum.n_slots * (int64_t)sizeof *s->sum.slots;
    const void *slots = ru_wire_bytes(&w, bytes);
    if (slots == NULL) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s does not hold the state of federated.optimizer; resume with the one "
                       "that the run had",
                       path);
    }
    if (bytes > 0) {
        memcpy(s->sum.slots, slots, (size_t)bytes);
    }
    return ru_wire_left(&w) == 0
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "%s is of another federated.optimizer, or of a run with "
                         "federated.privacy.noise; resume with the settings that the run had",
                         path);
}

/* Where the federation stood after that round; without it clients are measured anew. */
static ru_status go_on(rui_fed_server *s, int64_t round, ru_err *err)
{
    const char *path = rui_fed_snapshot_path(s->out, round, s->arena);
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the name of a snapshot");
    }
    if (!ru_path_exists(path) && s->job->privacy.noise > 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s is missing: what the rounds before tell about a client is not known",
                       path);
    }
    if (!ru_path_exists(path)) {
        ru_log(RU_LOG_WARN, "fed", "snapshot",
               "%s is missing: all clients are measured anew, and tiers begin anew", path);
        return RU_OK;
    }
    return read_snapshot(s, path, err);
}

/* RUN/federation/spent holds the bound of epsilon at which the job ended: who resumes it with the
 * same one has nothing to wait for. */
static const char *spent_path(const rui_fed_server *s)
{
    return ru_arena_printf(s->arena, "%s/federation/spent", s->out);
}

static ru_status write_spent(const rui_fed_server *s, ru_err *err)
{
    char text[64];
    const char *path = spent_path(s);
    int n = snprintf(text, sizeof text, "%.17g\n", s->job->privacy.epsilon);
    return path != NULL ? ru_file_own(path, text, n, err)
                        : RU_FAIL(err, RU_E_MEM, "no memory for the name of a file");
}

static ru_status read_spent(rui_fed_server *s, bool *out, ru_err *err)
{
    char *text;
    int64_t n;
    double bound = 0;
    const char *path = spent_path(s);
    *out = false;
    if (path == NULL || !(s->job->privacy.epsilon > 0) || !ru_path_exists(path)) {
        return RU_OK;
    }
    RU_TRY(ru_file_read(path, 64, s->arena, &text, &n, err));
    *out = n > 1 && ru_str_f64((ru_str){text, n - 1}, &bound) && s->job->privacy.epsilon <= bound;
    return RU_OK;
}

/* -- for the run ----------------------------------------------------------------------------------
 */

static void thread_main(void *self)
{
    rui_fed_server *s = self;
    ru_err err;
    ru_thread_prompt();
    ru_time now = ru_clock_now();
    ru_loop_timer(s->loop, rui_fed_timer, s, RUI_FED_TIMER_BODIES, ru_time_after(now, bodies_ns));
    rui_fed_first(s, now);
    ru_status st = ru_loop_run(s->loop, &err);
    if (st != RU_OK) {
        rui_fed_fail(s, st, err.text);
    }
}

static ru_status begin(void *self, const ru_rounds_start *start, ru_err *err)
{
    rui_fed_server *s = self;
    int64_t bytes = start->flat->count * (int64_t)sizeof(float);
    s->out = start->out;
    s->flat = *start->flat;
    s->labels = (double)ru_type_count(&start->run.ckpt.facts.y);
    s->told = start->round;
    s->welcome = (rui_fed_welcome){.head = {.count = (uint64_t)s->flat.count,
                                            .params = (uint64_t)s->flat.params,
                                            .hash = s->flat.hash,
                                            .per_round = s->job->per_round,
                                            .threshold = s->job->secure.threshold,
                                            .neighbours = s->job->secure.neighbours,
                                            .range = s->job->secure.range,
                                            .clip = s->job->privacy.clip},
                                   .state = start->state,
                                   .state_bytes = start->state_bytes};
    s->now_values = &s->editions[0];
    s->now_values->values = malloc((size_t)bytes);
    s->now_values->refs = 1;
    if (s->now_values->values == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the values of the model");
    }
    memcpy(s->now_values->values, start->values, (size_t)bytes);
    RU_TRY(rui_fed_snapshot_open(s->out, err));
    RU_TRY(open_fed(s, start->round, err));
    RU_TRY(start->round > 0 ? go_on(s, start->round, err) : RU_OK);
    bool spent = false;
    RU_TRY(start->round > 0 ? read_spent(s, &spent, err) : RU_OK);
    if (spent) {
        rui_fed_spent(s);
        rui_fed_end(s, "done");
        return RU_OK;
    }
    RU_TRY(open_link(s, err));
    ru_node_start(s->bridge.node, ru_clock_now());
    ru_log(RU_LOG_INFO, "fed", "listening", "clients join at %s", ru_link_tcp_address(s->link));
    return ru_thread_start(&s->thread, "federation", thread_main, s, err);
}

static ru_status write_snapshot(rui_fed_server *s, const rui_fed_slot *slot, ru_err *err)
{
    return rui_fed_snapshot_write(s->out, ++s->told, slot->saved_bytes > 0 ? slot->saved : NULL,
                                  slot->saved_bytes, slot->line.p, slot->line.n, err);
}

/* Who is there while no round goes on, as a line of RUN/federation.jsonl. Not under `lock`. */
static ru_status write_clients(const rui_fed_server *s, uint32_t there, uint32_t resting,
                               ru_err *err)
{
    char line[128];
    int n = snprintf(
        line, sizeof line,
        "{\"schema\":\"rubato.fed.clients/1\",\"round\":%lld,\"there\":%u,\"resting\":%u}\n",
        (long long)s->told, there, resting);
    return rui_fed_snapshot_write(s->out, s->told, NULL, 0, line, n, err);
}

static ru_status next(void *self, ru_round *out, ru_err *err)
{
    rui_fed_server *s = self;
    rui_fed_slot *slot = &s->slot;
    ru_mutex_lock(&s->lock);
    while (!slot->ready && slot->ended == NULL && slot->why.status == RU_OK) {
        if (slot->waits) {
            uint32_t there = slot->there, resting = slot->resting;
            slot->waits = false;
            ru_mutex_unlock(&s->lock);
            RU_TRY(write_clients(s, there, resting, err));
            ru_mutex_lock(&s->lock);
            continue;
        }
        if (slot->masked == RUI_MASKED) { /* the loop thread leaves it alone meanwhile */
            ru_err why = {0};
            ru_mutex_unlock(&s->lock);
            (void)!rui_secure_unmask(s, &why);
            ru_mutex_lock(&s->lock);
            slot->unmask = why;
            slot->masked = RUI_UNMASKED;
            ru_loop_wake(s->loop, s->waker);
            continue;
        }
        ru_cond_wait(&s->changed, &s->lock);
    }
    *out = (ru_round){.ended = slot->ended,
                      .samples = slot->samples,
                      .loss = slot->loss,
                      .accuracy = slot->accuracy};
    ru_status st = slot->why.status;
    if (slot->ready) { /* a round that was merged counts, also when a stop signal came since */
        out->ended = NULL;
        out->values = slot->edition->values;
    } else if (st != RU_OK && slot->ended == NULL && err != NULL) {
        *err = slot->why;
    }
    st = slot->ready || slot->ended != NULL ? RU_OK : st;
    bool spent = out->ended != NULL && slot->spent;
    ru_mutex_unlock(&s->lock);
    if (st == RU_OK && spent) {
        return write_spent(s, err);
    }
    /* The loop thread leaves the slot alone until the round is kept. */
    return st == RU_OK && out->ended == NULL ? write_snapshot(s, slot, err) : st;
}

static ru_status kept(void *self, int64_t round, ru_err *err)
{
    rui_fed_server *s = self;
    (void)round;
    (void)err;
    ru_mutex_lock(&s->lock);
    s->slot.ready = false;
    s->slot.kept = true;
    ru_mutex_unlock(&s->lock);
    ru_loop_wake(s->loop, s->waker);
    return RU_OK;
}

static void close_all(rui_fed_server *s)
{
    if (s->thread.started) {
        ru_mutex_lock(&s->lock);
        s->slot.ending = true;
        ru_mutex_unlock(&s->lock);
        ru_loop_wake(s->loop, s->waker);
        ru_thread_join(&s->thread);
    }
    ru_node_quiet(s->bridge.node);
    ru_pull_close(s->pull);
    ru_node_close(s->bridge.node);
    ru_link_tcp_close(s->link);
    ru_loop_close(s->loop);
    ru_bufs_fini(&s->bufs);
    for (uint32_t k = 0; k < RU_FED_EDITIONS_MAX; k++) {
        free(s->editions[k].values);
        free(s->editions[k].packed);
    }
    free(s->slot.saved);
    ru_arena_fini(&s->slot.line_arena);
    ru_cond_fini(&s->changed);
    ru_mutex_fini(&s->lock);
}

ru_status ru_fed_serve(const ru_fed_serve_options *opt, ru_arena *arena, ru_train_result *out,
                       ru_err *err)
{
    static const ru_rounds_ops ops = {begin, next, kept};
    uint8_t key[RU_FED_KEY_BYTES];
    rui_fed_server *s = RU_NEW(arena, rui_fed_server, 1);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a federation");
    }
    RU_TRY(ru_fed_key(opt->secret, "server", key, err)); /* a secret that is none says so now */
    *s = (rui_fed_server){.opt = opt, .job = &opt->train->job->federated, .arena = arena};
    ru_mutex_init(&s->lock);
    ru_cond_init(&s->changed);
    ru_arena_init(&s->slot.line_arena, 0);
    ru_status st = ru_train_rounds(opt->train, &ops, s, arena, out, err);
    close_all(s);
    return st;
}
