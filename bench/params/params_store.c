/* `rubato bench params --only redis`: rows per second of the store (comm/ps) and of Redis.
 *
 * Ours: two processes, with the channel of a job between them over TCP on loopback. Updates are
 * merged at once (as with clocks.order ssp and async), reads come from the server, never from the
 * client's cache. */
#include "bench/params/params_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/rng.h"
#include "bench/params/params.h"
#include "comm/node/loop.h"
#include "comm/ps/ps.h"
#include "env/link/link_tcp.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "train/app/rule.h"

enum {
    SHARDS = 16, /* as train/worker */
    EXECUTORS = RUI_STORE_DEPTH_MAX,
    WHAT_FIRST = 0x300,
    WHAT_END = 0x340,
    LOCAL = 0x300,
    STEPS_MAX = 1 << 30,
};

static const uint8_t token[] = "both ends of a store, 32 bytes..";

uint32_t rui_store_rows(uint32_t width)
{
    return width <= 100 ? 100000 : 20000;
}

const uint32_t *rui_store_lists(uint32_t width, ru_arena *arena)
{
    uint32_t rows = rui_store_rows(width), *list;
    list = RU_NEW(arena, uint32_t, (int64_t)RUI_STORE_LISTS * RUI_STORE_BATCH);
    for (uint32_t k = 0; list != NULL && k < RUI_STORE_LISTS; k++) {
        ru_rng r = ru_rng_from(k, ru_rng_label("batches"));
        for (uint32_t row = 0, n = 0; n < RUI_STORE_BATCH; row++) { /* each set as likely */
            if (ru_rng_below(&r, rows - row) < RUI_STORE_BATCH - n) {
                list[k * RUI_STORE_BATCH + n++] = row;
            }
        }
    }
    return list;
}

ru_status rui_store_answer(const rui_store_client *c, ru_err *err)
{
    char line[256];
    for (;;) {
        if (c->idle != NULL) {
            RU_TRY(c->idle(c->self, err));
        }
        if (fgets(line, sizeof line, stdin) == NULL || strncmp(line, "quit", 4) == 0) {
            return RU_OK;
        }
        double value = 0;
        char *rest;
        if (strncmp(line, "sum", 3) == 0) {
            RU_TRY(c->sum(c->self, &value, err));
        } else {
            rui_store_ask ask = {.op = (rui_store_op)strtoul(line, &rest, 10)};
            ask.variant = (uint32_t)strtoul(rest, &rest, 10);
            ask.depth = (uint32_t)strtoul(rest, &rest, 10);
            ask.batches = strtoll(rest, &rest, 10);
            RU_TRY(c->run(c->self, &ask, &value, err));
        }
        printf("%.9f 0\n", value);
        (void)fflush(stdout);
    }
}

/* -- one end -------------------------------------------------------------------------------------
 */

typedef struct slot {
    ru_ps_rows rows[RUI_STORE_BATCH];
    float *value; /* [BATCH * width] */
    uint32_t list, step;
} slot;

typedef struct end {
    ru_arena arena;
    ru_node_loop bridge;
    ru_link_tcp *link;
    ru_node_id self;
    ru_ps *ps;
    uint32_t width;
    bool serves, up;
    /* the client's */
    const uint32_t *lists;
    float *ones; /* [BATCH * width] what an update adds */
    slot slot[RUI_STORE_DEPTH_MAX];
    rui_store_ask ask;
    int64_t begun, done;
    double sum;
} end;

static void merge(void *self, uint32_t table, uint32_t clock, float *value, float *extra,
                  const float *update)
{
    const end *e = self;
    const ru_app_table t = {.width = e->width, .rule = RU_APP_ADD};
    ru_rule_merge(NULL, NULL, &t, table, clock, value, extra, update);
}

static void begin(end *e, uint32_t k, ru_time now, ru_effects *fx);

static void finished(end *e, uint32_t k, ru_time now, ru_effects *fx)
{
    e->done++;
    if (e->begun < e->ask.batches) {
        begin(e, k, now, fx);
    } else if (e->done == e->ask.batches) {
        ru_loop_stop(e->bridge.loop);
    }
}

static void change(end *e, uint32_t k, ru_time now, ru_effects *fx)
{
    slot *s = &e->slot[k];
    const ru_ps_tag tag = {.executor = k, .step = s->step++, .flow = k};
    if (ru_ps_update(e->ps, tag, 0, s->rows, RUI_STORE_BATCH, e->ones, now, fx)) {
        finished(e, k, now, fx);
    }
}

static void fetched(void *self, uint32_t ticket, ru_time now, ru_effects *fx)
{
    end *e = self;
    slot *s = &e->slot[ticket];
    for (uint32_t i = 0; i < RUI_STORE_BATCH; i++) {
        ru_ps_read(e->ps, &s->rows[i], s->value + (int64_t)i * e->width);
        e->sum += (double)s->value[(int64_t)i * e->width];
    }
    if (e->ask.op == RUI_STORE_TASK) {
        change(e, ticket, now, fx);
    } else {
        finished(e, ticket, now, fx);
    }
}

static void flushed(void *self, uint32_t flow, ru_time now, ru_effects *fx)
{
    finished(self, flow, now, fx);
}

static void begin(end *e, uint32_t k, ru_time now, ru_effects *fx)
{
    slot *s = &e->slot[k];
    const uint32_t *list = e->lists + e->begun++ % RUI_STORE_LISTS * RUI_STORE_BATCH;
    for (uint32_t i = 0; i < RUI_STORE_BATCH; i++) {
        s->rows[i] = (ru_ps_rows){0, list[i], 1};
    }
    if (e->ask.op == RUI_STORE_UPDATE) {
        change(e, k, now, fx);
    } else if (ru_ps_fetch(e->ps, k, 0, 0, true, s->rows, RUI_STORE_BATCH, now, fx)) {
        fetched(e, k, now, fx);
    }
}

static void never_closed(void *self, ru_time now, ru_effects *fx)
{
    (void)self, (void)now, (void)fx;
}

static void never_came(void *self, uint32_t shard, ru_time now, ru_effects *fx)
{
    (void)self, (void)shard, (void)now, (void)fx;
}

/* Both are members: the first one has all shards. */
static void begin_store(end *e, ru_time now, ru_effects *fx)
{
    const ru_view *v = ru_member_view(ru_node_member(e->bridge.node));
    ru_node_id holder[SHARDS];
    if (v->n != 2 || e->up) {
        return;
    }
    for (uint32_t s = 0; s < SHARDS; s++) {
        holder[s] = v->at[0].node;
    }
    e->up = true;
    ru_ps_reset(e->ps, 1, 0, fx);
    ru_ps_map(e->ps, holder, 1, now, fx);
    for (uint32_t s = 0; e->serves && s < SHARDS; s++) {
        RU_CHECK(ru_ps_shard_first(e->ps, s, now, fx) == RU_OK);
    }
    if (!e->serves) {
        ru_loop_stop(e->bridge.loop);
    }
}

static void install(end *e, ru_time now, ru_effects *fx)
{
    ru_member *m = ru_node_member(e->bridge.node);
    ru_member_wanted w;
    ru_node_id nodes[2];
    ru_member_wanted_get(m, &w);
    for (uint32_t k = 0; k < w.n && k < 2; k++) {
        nodes[k] = w.at[k].node;
    }
    ru_member_install(m, nodes, w.n < 2 ? w.n : 2, "", 0, now, fx);
}

/* -- as a part -----------------------------------------------------------------------------------
 */

static void step(void *self, const ru_event *ev, ru_effects *fx)
{
    end *e = self;
    if (ev->kind == RU_EV_LOCAL && ev->what != LOCAL) {
        if (ev->what == RU_MEMBER_CHANGE || ev->what == RU_MEMBER_LEAD) {
            install(e, ev->now, fx);
        } else if (ev->what == RU_MEMBER_VIEW) {
            begin_store(e, ev->now, fx);
        }
    } else if (ev->kind != RU_EV_START) {
        ru_ps_step(e->ps, ev, fx);
    }
}

static bool owns(void *self, uint64_t cookie)
{
    return ru_pull_owns(ru_ps_pull(((end *)self)->ps), cookie);
}

static void stream_sent(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_pull_sent(ru_ps_pull(((end *)self)->ps), cookie, now, fx);
}

static void stream_arrived(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_pull_arrived(ru_ps_pull(((end *)self)->ps), cookie, now, fx);
}

static void stream_failed(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    ru_pull_failed(ru_ps_pull(((end *)self)->ps), cookie, why, now, fx);
}

static void room(void *self, ru_time now, ru_effects *fx)
{
    ru_pull_room(ru_ps_pull(((end *)self)->ps), now, fx);
}

static const ru_part_ops part_ops = {.name = "store",
                                     .step = step,
                                     .owns = owns,
                                     .sent = stream_sent,
                                     .arrived = stream_arrived,
                                     .failed = stream_failed,
                                     .room = room};

static ru_status open_node(end *e, const char *join, ru_err *err)
{
    RU_TRY(ru_loop_open(&e->bridge.loop, err));
    const ru_link_tcp_options lo = {.loop = e->bridge.loop,
                                    .listen = "127.0.0.1:0",
                                    .psk = token,
                                    .psk_bytes = 32,
                                    .conns_max = ru_chan_conns(4) + RU_LINK_TCP_STRANGERS};
    RU_TRY(ru_link_tcp_open(&lo, &e->link, err));
    ru_self_random(&e->self.v, sizeof e->self.v);
    ru_node_options o = {.chan = {.self = e->self,
                                  .address = ru_link_tcp_address(e->link),
                                  .job = 1,
                                  .token = token,
                                  .token_bytes = 32,
                                  .peers_max = 4,
                                  .streams_max = 1024,
                                  .slots_max = 1024,
                                  .buffer_bytes = 64 << 20},
                         .link = ru_link_tcp_link(e->link),
                         .member = {.join = join, .n_max = 2},
                         .timers = ru_node_loop_timers(&e->bridge)};
    o.member.self.node = e->self;
    (void)snprintf(o.member.self.address, sizeof o.member.self.address, "%s",
                   ru_link_tcp_address(e->link));
    RU_TRY(ru_node_open(&o, &e->arena, &e->bridge.node, err));
    ru_link_tcp_user(e->link, ru_node_link_user(e->bridge.node));
    return RU_OK;
}

static ru_status open_store(end *e, ru_err *err)
{
    const ru_ps_table table = {.rows = rui_store_rows(e->width), .width = e->width};
    const ru_ps_options po = {.tables = &table,
                              .n_tables = 1,
                              .n_shards = SHARDS,
                              .n_executors = EXECUTORS,
                              .tickets = EXECUTORS,
                              .flows = EXECUTORS,
                              .seed = 1,
                              .chan = ru_node_chan(e->bridge.node),
                              .self = e->self,
                              .peers_max = 4,
                              .what_first = WHAT_FIRST,
                              .local = LOCAL,
                              .memory_bytes = INT64_C(1) << 30,
                              .user = {.self = e,
                                       .merge = merge,
                                       .fetched = fetched,
                                       .flushed = flushed,
                                       .closed = never_closed,
                                       .came = never_came}};
    RU_TRY(ru_ps_open(&po, &e->arena, &e->ps, err));
    ru_node_part(
        e->bridge.node,
        &(ru_part){.ops = &part_ops, .self = e, .what_first = WHAT_FIRST, .what_end = WHAT_END});
    ru_node_start(e->bridge.node, ru_clock_now());
    return RU_OK;
}

static void close_end(end *e)
{
    if (e->bridge.node != NULL) {
        ru_node_quiet(e->bridge.node);
    }
    ru_ps_close_all(e->ps);
    ru_node_close(e->bridge.node);
    ru_link_tcp_close(e->link);
    ru_loop_close(e->bridge.loop);
    ru_arena_fini(&e->arena);
    free(e);
}

static ru_status open_end(const char *width, const char *join, end **out, ru_err *err)
{
    end *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a store");
    }
    ru_arena_init(&e->arena, 0);
    e->width = (uint32_t)strtoul(width, NULL, 10);
    e->serves = join == NULL;
    RU_CHECK(e->width >= 1 && e->width <= RUI_STORE_WIDTH_MAX);
    ru_status st = open_node(e, join, err);
    st = st == RU_OK ? open_store(e, err) : st;
    if (st != RU_OK) {
        close_end(e);
        return st;
    }
    *out = e;
    return RU_OK;
}

ru_status rui_store_server(const char *const *words, uint32_t n, ru_err *err)
{
    end *e;
    if (n != 3) {
        return RU_FAIL(err, RU_E_USAGE, "a server needs: params store-server WIDTH");
    }
    RU_TRY(open_end(words[2], NULL, &e, err));
    printf("%s\n", ru_link_tcp_address(e->link));
    (void)fflush(stdout);
    ru_status st = ru_loop_run(e->bridge.loop, err); /* until the client kills it */
    close_end(e);
    return st;
}

/* -- the client ----------------------------------------------------------------------------------
 */

static ru_status run(void *self, const rui_store_ask *ask, double *seconds, ru_err *err)
{
    end *e = self;
    e->ask = *ask;
    e->begun = e->done = 0;
    ru_time from = ru_clock_now();
    ru_effects *fx = ru_node_enter(e->bridge.node, from);
    for (uint32_t k = 0; k < ask->depth && e->begun < ask->batches; k++) {
        begin(e, k, from, fx);
    }
    ru_node_leave(e->bridge.node, from);
    RU_TRY(ru_loop_run(e->bridge.loop, err));
    *seconds = (double)ru_time_since(ru_clock_now(), from) * 1e-9;
    return RU_OK;
}

/* The first float of all rows, by reads of all. */
static ru_status sum(void *self, double *out, ru_err *err)
{
    end *e = self;
    uint32_t rows = rui_store_rows(e->width);
    const uint32_t *lists = e->lists;
    uint32_t *all = RU_NEW(&e->arena, uint32_t, rows);
    double seconds;
    const rui_store_ask ask = {RUI_STORE_READ, 0, 1, RUI_STORE_LISTS};
    if (all == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u rows", rows);
    }
    for (uint32_t r = 0; r < rows; r++) {
        all[r] = r;
    }
    e->sum = 0;
    ru_status st = RU_OK;
    for (uint32_t at = 0; st == RU_OK && at < rows; at += RUI_STORE_BATCH) {
        rui_store_ask one = ask;
        one.batches = 1;
        e->lists = all + at;
        st = run(e, &one, &seconds, err);
    }
    e->lists = lists;
    *out = e->sum;
    return st;
}

static void heard(void *self, int fd, uint32_t events, ru_time now)
{
    end *e = self;
    (void)fd, (void)events, (void)now;
    ru_loop_stop(e->bridge.loop);
}

/* Members that say nothing for long are taken for dead. */
static ru_status idle(void *self, ru_err *err)
{
    end *e = self;
    RU_TRY(ru_loop_fd(e->bridge.loop, STDIN_FILENO, EPOLLIN, heard, e, err));
    ru_status st = ru_loop_run(e->bridge.loop, err);
    ru_loop_fd_off(e->bridge.loop, STDIN_FILENO);
    return st;
}

static ru_status serve_bench(end *e, ru_err *err)
{
    int64_t floats = (int64_t)RUI_STORE_BATCH * e->width;
    e->lists = rui_store_lists(e->width, &e->arena);
    e->ones = RU_NEW(&e->arena, float, floats);
    bool fine = e->lists != NULL && e->ones != NULL;
    for (uint32_t k = 0; k < RUI_STORE_DEPTH_MAX; k++) {
        e->slot[k].value = RU_NEW(&e->arena, float, floats);
        fine = fine && e->slot[k].value != NULL;
    }
    if (!fine) {
        return RU_FAIL(err, RU_E_MEM, "no memory for batches of %u floats", e->width);
    }
    for (int64_t i = 0; i < floats; i++) {
        e->ones[i] = 1.0F;
    }
    RU_TRY(ru_loop_run(e->bridge.loop, err)); /* until both are members */
    printf("{\"ready\":true,\"detail\":\"rubato " RU_VERSION "\"}\n");
    (void)fflush(stdout);
    const rui_store_client c = {e, run, sum, idle};
    return rui_store_answer(&c, err);
}

ru_status rui_store_server_start(const char *kind, const char *width, ru_arena *arena,
                                 ru_process **server, const char **address, ru_err *err)
{
    const char *const argv[] = {
        ru_bench_rubato(arena), "bench", "--worker", "params", kind, width, NULL};
    const ru_process_options po = {.argv = argv, .pipe_in = true, .pipe_out = true};
    RU_TRY(ru_process_start(&po, server, err));
    RU_TRY(ru_process_line(*server, INT64_C(10000000000), address, err));
    return *address != NULL ? RU_OK : RU_FAIL(err, RU_E_PEER, "the %s ended when it started", kind);
}

ru_status rui_store_worker(const char *const *words, uint32_t n, ru_err *err)
{
    if (n != 3) {
        return RU_FAIL(err, RU_E_USAGE, "a client needs: params store WIDTH");
    }
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_process *server = NULL;
    const char *address = NULL;
    end *e = NULL;
    ru_status st = rui_store_server_start("store-server", words[2], &arena, &server, &address, err);
    st = st == RU_OK ? open_end(words[2], address, &e, err) : st;
    st = st == RU_OK ? serve_bench(e, err) : st;
    if (e != NULL) {
        close_end(e);
    }
    if (server != NULL) {
        ru_process_kill(server, 9);
    }
    ru_process_close(server);
    ru_arena_fini(&arena);
    return st;
}
