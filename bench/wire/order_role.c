/* The processes of the benchmark of orders: one that gives parameters, and workers that pull them
 * and play a graph of ops with timers. */
#include "bench/wire/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "comm/pull/ask.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/self.h"

enum { WHAT = 100, TIMER_START = 1, TIMER_OP = 2 };

/* -- the graph as a file -------------------------------------------------------------------------
 */

ru_status rui_order_write(const char *path, const ru_script_ops *ops, ru_arena *arena, ru_err *err)
{
    ru_text t = ru_text_arena(arena);
    ru_text_putf(&t, "%u %u\n", ops->n, ops->n_edges);
    for (uint32_t i = 0; i < ops->n; i++) {
        ru_text_putf(&t, "%lld %lld\n", (long long)ops->op_ns[i], (long long)ops->need[i]);
    }
    for (uint32_t e = 0; e < ops->n_edges; e++) {
        ru_text_putf(&t, "%u %u\n", ops->edges[e].from, ops->edges[e].to);
    }
    return ru_file_replace(path, t.p, t.n, err);
}

static int64_t number(char **at)
{
    return strtoll(*at, at, 10);
}

ru_status rui_order_read(const char *path, ru_arena *arena, ru_script_ops *ops, ru_err *err)
{
    char *text;
    int64_t n;
    RU_TRY(ru_file_read(path, 64 << 20, arena, &text, &n, err));
    *ops = (ru_script_ops){.n = (uint32_t)number(&text)};
    ops->n_edges = (uint32_t)number(&text);
    int64_t *ns = RU_NEW(arena, int64_t, ops->n), *need = RU_NEW(arena, int64_t, ops->n);
    ru_step_edge *edges = RU_NEW(arena, ru_step_edge, ops->n_edges + 1);
    if (ns == NULL || need == NULL || edges == NULL) {
        return RU_FAIL(err, RU_E_MEM, "%s: no memory for %u ops", path, ops->n);
    }
    for (uint32_t i = 0; i < ops->n; i++) {
        ns[i] = number(&text);
        need[i] = number(&text);
    }
    for (uint32_t e = 0; e < ops->n_edges; e++) {
        edges[e].from = (uint32_t)number(&text);
        edges[e].to = (uint32_t)number(&text);
    }
    ops->op_ns = ns;
    ops->need = need;
    ops->edges = edges;
    return RU_OK;
}

/* -- both ends -----------------------------------------------------------------------------------
 */

typedef struct role {
    rui_net_end *self; /* first: &end, as its calls expect */
    rui_net_end end;
    ru_script_ops ops;
    uint32_t n_params, *op_of; /* [n_params] parameters in the order of their ops */
    uint8_t *bytes;            /* of the largest one */
    /* the giver */
    ru_give *give;
    ru_arena memory;
    ru_effects fx;
    /* a worker */
    uint32_t number;
    ru_arena step_arena;
    ru_ask *ask;
    ru_script_ops_play play;
    uint32_t *order; /* [n_params] parameters as they are asked for, in this step */
    double scale;
    uint32_t running; /* UINT32_MAX: none */
    ru_time began, busy_until;
    uint32_t arrived;
    /* a worker that pulls only */
    const char **names; /* [n_params] */
    uint32_t rounds, asked;
    ru_rng rng;
} role;

static ru_status open_role(role *r, const char *path, ru_err *err)
{
    int64_t most = 1;
    RU_TRY(rui_order_read(path, &r->end.arena, &r->ops, err));
    r->op_of = RU_NEW(&r->end.arena, uint32_t, r->ops.n);
    r->order = RU_NEW(&r->end.arena, uint32_t, r->ops.n);
    for (uint32_t i = 0; r->op_of != NULL && i < r->ops.n; i++) {
        most = r->ops.need[i] > most ? r->ops.need[i] : most;
        if (r->ops.need[i] > 0) {
            r->op_of[r->n_params++] = i;
        }
    }
    r->bytes = ru_arena_zalloc(&r->end.arena, most, 64);
    return r->op_of != NULL && r->order != NULL && r->bytes != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the parameters of %s", path);
}

/* -- the giver -----------------------------------------------------------------------------------
 */

static bool find(void *self, ru_str name, ru_span *out)
{
    const role *r = self;
    int64_t op;
    if (!ru_str_i64(name, &op) || op < 0 || op >= r->ops.n) {
        return false;
    }
    *out = (ru_span){r->bytes, r->ops.need[op]};
    return true;
}

static void perform(role *r, ru_time now)
{
    for (uint32_t i = 0; i < r->fx.n; i++) {
        const ru_effect f = r->fx.at[i];
        (void)!ru_chan_message(r->end.chan, f.node, f.what, f.data, f.size_bytes, now);
    }
    ru_effects_clear(&r->fx);
}

static void hear(void *self, ru_node_id from, uint32_t what, const void *data, int64_t size_bytes,
                 ru_time now)
{
    role *r = self;
    const ru_event ev = {.kind = RU_EV_MESSAGE,
                         .now = now,
                         .node = from,
                         .what = what,
                         .data = data,
                         .size_bytes = size_bytes};
    if (r->ask != NULL) {
        ru_ask_hear(r->ask, &ev);
    } else if (r->give != NULL) {
        ru_give_hear(r->give, &ev, &r->fx);
        perform(r, now);
    }
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    role *r = self;
    ru_give_over(r->give, cookie, now, &r->fx);
    perform(r, now);
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    role *r = self;
    (void)why;
    if (r->give != NULL) {
        on_sent(self, cookie, now);
    } else {
        r->end.failed = true;
        ru_loop_stop(r->end.loop);
    }
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    role *r = self;
    ru_ask_arrived(r->ask, cookie, now);
}

static void on_room(void *self, ru_time now)
{
    role *r = self;
    if (r->give != NULL) {
        ru_give_room(r->give, now, &r->fx);
        perform(r, now);
    }
}

static const ru_chan_user calls = {
    .message = hear, .sent = on_sent, .failed = on_failed, .arrived = on_arrived, .room = on_room};

static void on_quit(void *self, int fd, uint32_t events, ru_time now)
{
    (void)fd, (void)events, (void)now;
    ru_loop_stop(self);
}

/* records: where it writes what left; NULL: nowhere. */
static ru_status serve(role *r, const char *listen, uint64_t node, const char *records, ru_err *err)
{
    rui_order_tap *tap = NULL;
    const ru_give_options go = {.askers_max = RUI_NET_PEERS_MAX,
                                .items_max = RUI_NET_PEERS_MAX * RU_ORDER_OPS_MAX,
                                .what_first = WHAT,
                                .self = r,
                                .find = find};
    ru_give_options with = go;
    ru_chan_user user = calls;
    user.self = r;
    ru_effects_init(&r->fx, &r->memory);
    RU_TRY(rui_net_open(&r->end, node, listen, true, &user, err));
    RU_TRY(records != NULL ? rui_order_tap_open(records, &r->end, &tap, err) : RU_OK);
    with.chan = r->end.chan;
    RU_TRY(ru_give_open(&with, &r->end.arena, &r->give, err));
    RU_TRY(ru_loop_fd(r->end.loop, 0, 1, on_quit, r->end.loop, err));
    printf("ready %s\n", ru_link_tcp_address(r->end.link));
    fflush(stdout);
    ru_status st = ru_loop_run(r->end.loop, err);
    return st == RU_OK ? rui_order_tap_close(tap, err) : st;
}

/* -- a worker ------------------------------------------------------------------------------------
 */

static void on_timer(void *self, uint32_t what, ru_time now);

/* Run what can run; the step is over when all ops are done. */
static void go_on(role *r, ru_time now)
{
    uint32_t op;
    while (r->running == UINT32_MAX && ru_script_ops_next(&r->play, &op)) {
        int64_t ns = (int64_t)((double)r->ops.op_ns[op] * r->scale);
        r->busy_until = ru_time_after(r->busy_until, ns); /* a late wake-up is no longer step */
        if (r->busy_until.ns <= now.ns) {
            ru_script_ops_done(&r->play, op);
        } else {
            r->running = op;
            ru_loop_timer(r->end.loop, on_timer, r, TIMER_OP, r->busy_until);
        }
    }
    if (r->play.n_done == r->ops.n && r->arrived == r->n_params) {
        printf("%lld %lld\n", (long long)ru_time_since(r->busy_until, r->began),
               (long long)r->busy_until.ns);
        fflush(stdout);
    }
}

static void arrived(void *self, uint32_t item, ru_time now)
{
    role *r = self;
    r->arrived++;
    if (r->running == UINT32_MAX && r->busy_until.ns < now.ns) {
        r->busy_until = now; /* it stood still until now */
    }
    ru_script_ops_arrived(&r->play, r->op_of[r->order[item]]);
    go_on(r, now);
}

static void failed(void *self, uint32_t item, ru_status why, const char *sentence, ru_time now)
{
    role *r = self;
    (void)now;
    r->end.failed = true;
    (void)RU_FAIL(&r->end.err, why, "parameter %u: %s", item, sentence);
    ru_loop_stop(r->end.loop);
}

static ru_status ask(role *r, ru_time now, ru_err *err)
{
    ru_ask_item *items = RU_NEW(&r->step_arena, ru_ask_item, r->n_params);
    const ru_ask_options ao = {.chan = r->end.chan,
                               .n_max = r->n_params,
                               .what_first = WHAT,
                               .self = r,
                               .arrived = arrived,
                               .failed = failed};
    RU_TRY(ru_ask_open(&ao, &r->step_arena, &r->ask, err));
    for (uint32_t k = 0; items != NULL && k < r->n_params; k++) {
        uint32_t op = r->op_of[r->order[k]];
        items[k] = (ru_ask_item){.name = ru_arena_printf(&r->step_arena, "%u", op),
                                 .size_bytes = r->ops.need[op],
                                 .into = r->bytes, /* nobody reads it */
                                 .from = r->end.peers[0],
                                 .rank = (uint16_t)k};
    }
    return items != NULL ? ru_ask_for(r->ask, items, r->n_params, now, err) : RU_E_MEM;
}

static void on_timer(void *self, uint32_t what, ru_time now)
{
    role *r = self;
    if (what == TIMER_OP) {
        uint32_t op = r->running;
        r->running = UINT32_MAX;
        ru_script_ops_done(&r->play, op);
        go_on(r, now);
        return;
    }
    ru_script_ops_begin(&r->play);
    r->running = UINT32_MAX;
    r->arrived = 0;
    r->busy_until = r->began;
    if (ask(r, now, &r->end.err) != RU_OK) {
        r->end.failed = true;
        ru_loop_stop(r->end.loop);
        return;
    }
    go_on(r, now);
}

/* The order of this worker: places in the list of its own, or the one of all. */
static ru_status plan(role *r, ru_order_method method, uint64_t seed, ru_err *err)
{
    ru_arena scratch;
    ru_order_plan p;
    const ru_order_in in = {.n = r->ops.n,
                            .op_ns = r->ops.op_ns,
                            .param_bytes = r->ops.need,
                            .edges = r->ops.edges,
                            .n_edges = r->ops.n_edges,
                            .link = {.bytes_per_s = 117e6},
                            .workers = RUI_ORDER_WORKERS,
                            .slice_bytes = INT64_C(1) << 40,
                            .partition_bytes = INT64_C(1) << 40,
                            .credit_bytes = INT64_C(1) << 40,
                            .seed = seed,
                            .method = method};
    ru_arena_init(&scratch, 0);
    ru_status st = ru_plan_order(&in, &r->step_arena, &scratch, &p, err);
    ru_arena_fini(&scratch);
    RU_TRY(st);
    RU_CHECK(p.n_pieces == r->n_params);
    uint32_t list = p.n_lists > 1 ? r->number : 0;
    uint32_t *param = RU_NEW(&r->step_arena, uint32_t, r->ops.n);
    if (param == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an order");
    }
    for (uint32_t k = 0; k < r->n_params; k++) {
        param[r->op_of[k]] = k;
    }
    for (uint32_t k = 0; k < p.n_pieces; k++) {
        r->order[k] = param[p.pieces[list * p.n_pieces + k].op];
    }
    return RU_OK;
}

static void on_line(void *self, int fd, uint32_t events, ru_time now)
{
    role *r = self;
    char line[128], *at = line;
    (void)fd, (void)events, (void)now;
    if (fgets(line, sizeof line, stdin) == NULL || strncmp(line, "quit", 4) == 0) {
        ru_loop_stop(r->end.loop);
        return;
    }
    ru_arena_fini(&r->step_arena);
    ru_arena_init(&r->step_arena, 0);
    int64_t method = number(&at), seed = number(&at);
    r->began.ns = number(&at);
    r->scale = strtod(at, NULL);
    if (plan(r, (ru_order_method)method, (uint64_t)seed, &r->end.err) != RU_OK) {
        r->end.failed = true;
        ru_loop_stop(r->end.loop);
        return;
    }
    ru_loop_timer(r->end.loop, on_timer, r, TIMER_START, r->began);
}

static ru_status work(role *r, const char *address, ru_err *err)
{
    ru_chan_user user = calls;
    user.self = r;
    r->end.grants = true;
    RU_TRY(rui_net_open(&r->end, 2 + r->number, NULL, true, &user, err));
    RU_TRY(ru_script_ops_open(&r->ops, &r->end.arena, &r->play, err));
    RU_TRY(rui_net_connect(&r->end, address, err));
    RU_TRY(ru_loop_fd(r->end.loop, 0, 1, on_line, r, err));
    printf("ready worker\n");
    fflush(stdout);
    RU_TRY(ru_loop_run(r->end.loop, err));
    return r->end.failed ? RU_FAIL(err, r->end.err.status, "%s", r->end.err.text) : RU_OK;
}

/* -- a worker that pulls all tensors, again and again --------------------------------------------
 */

/* In an order of its own; the ranks of a round are 0, 1, 2 ... */
static ru_status ask_round(role *r, ru_time now, ru_err *err)
{
    ru_ask_item *items = RU_NEW(&r->end.arena, ru_ask_item, r->n_params);
    ru_rng_shuffle(&r->rng, r->order, r->n_params);
    for (uint32_t k = 0; items != NULL && k < r->n_params; k++) {
        uint32_t t = r->order[k];
        items[k] = (ru_ask_item){.name = r->names[t],
                                 .size_bytes = r->ops.need[r->op_of[t]],
                                 .into = r->bytes, /* nobody reads it */
                                 .from = r->end.peers[t % r->end.n_peers],
                                 .rank = (uint16_t)k};
    }
    r->asked++;
    return items != NULL ? ru_ask_for(r->ask, items, r->n_params, now, err) : RU_E_MEM;
}

/* Small ranks of the next round are asked for while large ones are under way. */
static void pulled(void *self, uint32_t item, ru_time now)
{
    role *r = self;
    (void)item;
    r->arrived++;
    if (r->asked < r->rounds && r->asked * r->n_params - r->arrived < r->n_params / 3 &&
        ask_round(r, now, &r->end.err) != RU_OK) {
        r->end.failed = true;
        ru_loop_stop(r->end.loop);
    }
    if (r->arrived == r->rounds * r->n_params) {
        printf("%u\n", r->arrived);
        fflush(stdout);
    }
}

static void on_rounds(void *self, int fd, uint32_t events, ru_time now)
{
    role *r = self;
    char line[64];
    (void)fd, (void)events;
    if (fgets(line, sizeof line, stdin) == NULL || strncmp(line, "quit", 4) == 0) {
        ru_loop_stop(r->end.loop);
        return;
    }
    r->rounds = (uint32_t)strtoul(line, NULL, 10);
    const ru_ask_options ao = {.chan = r->end.chan,
                               .n_max = r->rounds * r->n_params,
                               .what_first = WHAT,
                               .self = r,
                               .arrived = pulled,
                               .failed = failed};
    ru_status st = ru_ask_open(&ao, &r->end.arena, &r->ask, &r->end.err);
    if ((st == RU_OK ? ask_round(r, now, &r->end.err) : st) != RU_OK) {
        r->end.failed = true;
        ru_loop_stop(r->end.loop);
    }
}

static ru_status pull(role *r, const char *const *addresses, uint32_t n, ru_err *err)
{
    ru_chan_user user = calls;
    user.self = r;
    r->end.grants = true;
    r->rng = ru_rng_from(1, r->number);
    r->names = RU_NEW(&r->end.arena, const char *, r->n_params);
    RU_TRY(rui_net_open(&r->end, 1 + RUI_ORDER_SERVERS + r->number, NULL, true, &user, err));
    for (uint32_t k = 0; r->names != NULL && k < r->n_params; k++) {
        r->names[k] = ru_arena_printf(&r->end.arena, "%u", r->op_of[k]);
        r->order[k] = k;
    }
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(rui_net_connect(&r->end, addresses[k], err));
    }
    RU_TRY(r->names != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for names"));
    RU_TRY(ru_loop_fd(r->end.loop, 0, 1, on_rounds, r, err));
    printf("ready worker\n");
    fflush(stdout);
    RU_TRY(ru_loop_run(r->end.loop, err));
    return r->end.failed ? RU_FAIL(err, r->end.err.status, "%s", r->end.err.text) : RU_OK;
}

ru_status rui_order_role(const char *const *words, uint32_t n, ru_err *err)
{
    role r = {.running = UINT32_MAX};
    r.self = &r.end;
    ru_arena_init(&r.end.arena, 0);
    ru_arena_init(&r.memory, 0);
    ru_arena_init(&r.step_arena, 0);
    bool gives = (n == 3 || n == 5) && strcmp(words[0], "order-serve") == 0;
    bool pulls = n >= 4 && n < 4 + RUI_ORDER_SERVERS && strcmp(words[0], "order-pull") == 0;
    if (!gives && !pulls && (n != 4 || strcmp(words[0], "order-work") != 0)) {
        return RU_FAIL(err, RU_E_USAGE, "'%s' is no role of the benchmark of orders", words[0]);
    }
    ru_status st = open_role(&r, words[2], err);
    if (st == RU_OK && !gives) {
        r.number = (uint32_t)strtoul(words[pulls ? 1 : 3], NULL, 10);
    }
    uint64_t node = gives && n == 5 ? strtoul(words[3], NULL, 10) : 1;
    st = st != RU_OK ? st
         : gives     ? serve(&r, words[1], node, n == 5 ? words[4] : NULL, err)
         : pulls     ? pull(&r, words + 3, n - 3, err)
                     : work(&r, words[1], err);
    rui_net_close(&r.end);
    ru_arena_fini(&r.memory);
    ru_arena_fini(&r.step_arena);
    return st;
}
