/* Our side of the collectives benchmark over TCP: one rank.
 *
 * Listens at its own address, connects to the higher ranks, says "ready". Then lines "BYTES TIMES
 * ALGORITHM CHUNK DEPTH": a group of its own for each, opened behind a barrier, TIMES all-reduces
 * of floats, answered with the seconds. The first all-reduce of every line is checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bench/wire/collective.h"
#include "comm/coll/coll.h"
#include "env/clock.h"
#include "env/link/link_tcp.h"
#include "plan/net/coll.h"

enum { RANKS_MAX = 16, LINE_BYTES = 256 };

typedef struct net_rank {
    ru_arena arena, group_arena;
    ru_loop *loop;
    ru_link_tcp *link;
    ru_chan *chan;
    uint32_t rank, n, ups, epoch;
    const char *const *addresses;
    ru_node_id nodes[RANKS_MAX];
    ru_coll *barrier, *group;
    uint32_t barriers; /* iterations of the barrier so far */
    bool barrier_done;
    float *data;
    int64_t data_bytes;
    ru_span span;
    int64_t times, at; /* all-reduces asked for, and done */
    bool failed;
    char line[LINE_BYTES];
    uint32_t line_n;
    bool has_line, end;
} net_rank;

/* -- the channel's user
 * ---------------------------------------------------------------------------- */

static void on_tick(void *self, uint32_t what, ru_time now)
{
    net_rank *r = self;
    ru_time next = ru_chan_tick(r->chan, now);
    ru_loop_timer(r->loop, on_tick, r, what, next);
}

static void on_tick_at(void *self, ru_time at)
{
    net_rank *r = self;
    ru_loop_timer(r->loop, on_tick, r, 1, at);
}

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    net_rank *r = self;
    (void)node;
    (void)address;
    (void)now;
    r->ups++;
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    net_rank *r = self;
    (void)now;
    if (node.v == 0) { /* not listening yet: once more */
        ru_err err;
        r->failed = r->failed || ru_chan_connect(r->chan, address, now, &err) != RU_OK;
        return;
    }
    (void)why;
    r->failed = true;
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    net_rank *r = self;
    if (what == RU_COLL_WHAT) {
        ru_coll_heard(r->barrier, from, data, size_bytes, now);
        if (r->group != NULL) {
            ru_coll_heard(r->group, from, data, size_bytes, now);
        }
    }
}

static ru_coll *group_of(const net_rank *r, uint64_t cookie)
{
    if (r->group != NULL && ru_coll_owns(r->group, cookie)) {
        return r->group;
    }
    return ru_coll_owns(r->barrier, cookie) ? r->barrier : NULL;
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    ru_coll *c = group_of(self, cookie);
    if (c != NULL) {
        ru_coll_sent(c, cookie, now);
    }
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    ru_coll *c = group_of(self, cookie);
    if (c != NULL) {
        ru_coll_xfer_failed(c, cookie, why, now);
    }
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    ru_coll *c = group_of(self, cookie);
    if (c != NULL) {
        ru_coll_arrived(c, cookie, now);
    }
}

static void on_room(void *self, ru_time now)
{
    net_rank *r = self;
    ru_coll_room(r->barrier, now);
    if (r->group != NULL) {
        ru_coll_room(r->group, now);
    }
}

/* -- groups
 * ---------------------------------------------------------------------------------------- */

static void on_barrier(void *self, uint32_t bucket, uint32_t iter, ru_time now)
{
    net_rank *r = self;
    (void)bucket;
    (void)iter;
    (void)now;
    r->barrier_done = true;
}

static void on_reduced(void *self, uint32_t bucket, uint32_t iter, ru_time now)
{
    net_rank *r = self;
    (void)bucket;
    ru_err err;
    if (++r->at < r->times &&
        ru_coll_begin(r->group, 0, iter + 1, &r->span, 1, (ru_time){0}, now, &err) != RU_OK) {
        r->failed = true;
    }
}

static void on_lost(void *self, ru_node_id peer, ru_status why, ru_time now)
{
    net_rank *r = self;
    (void)peer;
    (void)why;
    (void)now;
    r->failed = true;
}

static ru_status open_group(net_rank *r, const ru_coll_bucket *bucket, ru_arena *arena,
                            void (*done)(void *, uint32_t, uint32_t, ru_time), ru_coll **out,
                            ru_err *err)
{
    ru_coll_schedule *s = RU_NEW(arena, ru_coll_schedule, 1);
    const ru_coll_schedule **list = RU_NEW(arena, const ru_coll_schedule *, 1);
    ru_coll_bucket *copy = ru_arena_copy(arena, bucket, sizeof *bucket, 8);
    if (s == NULL || list == NULL || copy == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a group");
    }
    ru_coll_in in = {.op = bucket->op, .algo = bucket->algo, .n_ranks = r->n};
    RU_TRY(ru_plan_coll(&in, arena, s, err));
    RU_TRY(ru_plan_coll_check(s, arena, err));
    list[0] = s;
    ru_coll_options opt = {.chan = r->chan,
                           .nodes = r->nodes,
                           .n_ranks = r->n,
                           .rank = r->rank,
                           .epoch = ++r->epoch,
                           .buckets = copy,
                           .schedules = list,
                           .n_buckets = 1};
    ru_coll_user user = {.self = r, .done = done, .failed = on_lost};
    return ru_coll_open(&opt, &user, arena, out, err);
}

/* Turn the loop until a flag is set or something failed. */
static ru_status turn_until(net_rank *r, const bool *flag, ru_err *err)
{
    while (!*flag && !r->failed) {
        RU_TRY(ru_loop_round(r->loop, -1, err));
    }
    return r->failed ? RU_FAIL(err, RU_E_PEER, "rank %u lost a peer", r->rank) : RU_OK;
}

static ru_status barrier(net_rank *r, ru_err *err)
{
    r->barrier_done = false;
    RU_TRY(ru_coll_begin(r->barrier, 0, r->barriers++, NULL, 0, (ru_time){0}, ru_clock_now(), err));
    return turn_until(r, &r->barrier_done, err);
}

static ru_status reduce(net_rank *r, uint32_t iter, int64_t times, ru_err *err)
{
    r->at = 0;
    r->times = times;
    RU_TRY(ru_coll_begin(r->group, 0, iter, &r->span, 1, (ru_time){0}, ru_clock_now(), err));
    while (r->at < r->times && !r->failed) {
        RU_TRY(ru_loop_round(r->loop, -1, err));
    }
    return r->failed ? RU_FAIL(err, RU_E_PEER, "rank %u lost a peer", r->rank) : RU_OK;
}

static ru_status check_sum(net_rank *r, int64_t bytes, ru_err *err)
{
    int64_t count = bytes / 4;
    for (int64_t i = 0; i < count; i++) {
        r->data[i] = (float)(r->rank + 1);
    }
    RU_TRY(barrier(r, err));
    RU_TRY(reduce(r, 0, 1, err));
    float want = (float)(r->n * (r->n + 1) / 2);
    for (int64_t i = 0; i < count; i++) {
        if (r->data[i] != want) {
            return RU_FAIL(err, RU_E_BUG, "element %lld of %lld is %g, expected %g", (long long)i,
                           (long long)count, (double)r->data[i], (double)want);
        }
    }
    memset(r->data, 0, (size_t)bytes);
    return RU_OK;
}

static ru_status measure(net_rank *r, const char *line, ru_err *err)
{
    char algo[32] = "";
    long long bytes, times, chunk = 0;
    unsigned depth = 1;
    int k = sscanf(line, "%lld %lld %31s %lld %u", &bytes, &times, algo, &chunk, &depth);
    ru_coll_bucket bucket = {.algo = ru_coll_algo_find(algo),
                             .dtype = RU_F32,
                             .n = bytes / 4,
                             .chunk_bytes = chunk,
                             .depth = depth,
                             .class = RU_CLASS_NORMAL};
    if (k < 3 || bytes < 4 || bytes > r->data_bytes || times < 1 || bucket.algo == RU_COLL_ALGOS) {
        return RU_FAIL(err, RU_E_USAGE, "expected BYTES TIMES ALGORITHM CHUNK DEPTH, got '%s'",
                       line);
    }
    ru_arena_init(&r->group_arena, 0);
    r->span = (ru_span){r->data, bytes};
    ru_status st = open_group(r, &bucket, &r->group_arena, on_reduced, &r->group, err);
    st = st == RU_OK ? check_sum(r, bytes, err) : st;
    st = st == RU_OK ? barrier(r, err) : st;
    ru_time begin = ru_clock_now();
    st = st == RU_OK ? reduce(r, 1, times, err) : st;
    double took = (double)ru_time_since(ru_clock_now(), begin) * 1e-9;
    st = st == RU_OK ? barrier(r, err) : st;
    ru_coll_close(r->group, ru_clock_now());
    r->group = NULL;
    ru_arena_fini(&r->group_arena);
    if (st == RU_OK) {
        printf("%.9f\n", took);
        fflush(stdout);
    }
    return st;
}

/* -- the process
 * ----------------------------------------------------------------------------------- */

/* Lines come through the loop, so that the channel lives between measurements. */
static void on_input(void *self, int fd, uint32_t events, ru_time now)
{
    net_rank *r = self;
    (void)events;
    (void)now;
    char c;
    while (!r->has_line && !r->end) {
        ssize_t n = read(fd, &c, 1);
        r->end = n <= 0 || r->line_n + 1 >= LINE_BYTES;
        if (r->end) {
            break;
        }
        if (c == '\n') {
            r->line[r->line_n] = '\0';
            r->line_n = 0;
            r->has_line = true;
        } else {
            r->line[r->line_n++] = c;
        }
    }
    r->has_line = r->has_line || r->end;
}

static ru_status connect_all(net_rank *r, ru_err *err)
{
    for (uint32_t q = r->rank + 1; q < r->n; q++) {
        RU_TRY(ru_chan_connect(r->chan, r->addresses[q], ru_clock_now(), err));
    }
    on_tick(r, 1, ru_clock_now());
    while (r->ups < r->n - 1 && !r->failed) {
        RU_TRY(ru_loop_round(r->loop, -1, err));
    }
    ru_coll_bucket bucket = {
        .op = RU_COLL_BARRIER, .algo = RU_ALGO_DOUBLING, .dtype = RU_F32, .class = RU_CLASS_NORMAL};
    RU_TRY(open_group(r, &bucket, &r->arena, on_barrier, &r->barrier, err));
    return r->failed ? RU_FAIL(err, RU_E_PEER, "rank %u cannot connect", r->rank) : RU_OK;
}

/* All hosts are this machine. 1 KiB, 2 ranks on 2 cores under other load: 29 to 52 us, asleep 45 to
 * 125; 8 ranks 206 to 350, asleep 470 to 520. */
static const int64_t shared_poll_ns = 300000;

static ru_status open_all(net_rank *r, ru_err *err)
{
    RU_TRY(ru_loop_open(&r->loop, err));
    ru_loop_poll(r->loop, shared_poll_ns, true);
    ru_link_tcp_options lo = {.loop = r->loop, .listen = r->addresses[r->rank], .tls_never = true};
    RU_TRY(ru_link_tcp_open(&lo, &r->link, err));
    static const uint8_t token[] = "of a benchmark only";
    ru_chan_options co = {.self = r->nodes[r->rank],
                          .address = r->addresses[r->rank],
                          .job = 1,
                          .token = token,
                          .token_bytes = sizeof token,
                          .peers_max = RANKS_MAX,
                          .streams_max = 4096,
                          .slots_max = 4096};
    ru_chan_user user = {.self = r,
                         .up = on_up,
                         .down = on_down,
                         .message = on_message,
                         .sent = on_sent,
                         .failed = on_failed,
                         .arrived = on_arrived,
                         .room = on_room,
                         .tick_at = on_tick_at};
    ru_link link = ru_link_tcp_link(r->link);
    RU_TRY(ru_chan_open(&co, &link, &user, &r->arena, &r->chan, err));
    ru_link_tcp_user(r->link, ru_chan_link_user(r->chan));
    RU_TRY(connect_all(r, err));
    return ru_loop_fd(r->loop, 0, EPOLLIN, on_input, r, err);
}

ru_status ru_bench_coll_net_worker(const char *const *words, uint32_t n_words, ru_err *err)
{
    uint32_t n = n_words > 3 ? (uint32_t)strtoul(words[3], NULL, 10) : 0;
    if (n < 1 || n > RANKS_MAX || n_words != 5 + n) {
        return RU_FAIL(err, RU_E_USAGE,
                       "a rank needs: collective net RANK RANKS BYTES_MAX ADDRESS...");
    }
    net_rank r = {.rank = (uint32_t)strtoul(words[2], NULL, 10),
                  .n = n,
                  .addresses = words + 5,
                  .data_bytes = strtoll(words[4], NULL, 10)};
    for (uint32_t q = 0; q < n; q++) {
        r.nodes[q].v = q + 1;
    }
    ru_arena_init(&r.arena, 0);
    r.data = ru_arena_zalloc(&r.arena, r.data_bytes, 4096);
    ru_status st = r.data != NULL ? open_all(&r, err) : RU_FAIL(err, RU_E_MEM, "no memory");
    if (st == RU_OK) {
        printf("ready rubato " RU_VERSION "\n");
        fflush(stdout);
    }
    while (st == RU_OK) {
        st = turn_until(&r, &r.has_line, err);
        if (st != RU_OK || r.end || strncmp(r.line, "quit", 4) == 0) {
            break;
        }
        st = measure(&r, r.line, err);
        r.has_line = false;
    }
    ru_coll_close(r.barrier, ru_clock_now());
    ru_chan_close(r.chan);
    ru_link_tcp_close(r.link);
    ru_loop_close(r.loop);
    ru_arena_fini(&r.arena);
    return st;
}
