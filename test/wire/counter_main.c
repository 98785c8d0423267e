/* The counter service in three real processes over loopback; one of them is killed on the way, and
 * a guest in a fourth process counts as well, first at the one that is killed.
 *
 *   counter-service        exit code 0 when the other two agree on a total that holds their counts
 *                          and the guest's
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/node/guest.h"
#include "comm/node/loop.h"
#include "env/link/link_tcp.h"
#include "env/process/self.h"
#include "test/wire/counter.h"

enum { PROCESSES = 3, GOAL = 50, PATIENCE_MS = 20000, LOOK_MS = 20 };

static const uint8_t token[] = "a token of the counter, 32 bytes";
static const uint8_t guests_token[] = "another token for guests, 32 byt";

/* What a process shows its parent. */
typedef struct shown {
    char address[128], door[128]; /* for members, for guests */
    uint64_t total, mine;
} shown;

typedef struct service {
    ru_counter counter;
    volatile shown *out;
} service;

static void told(void *self, uint64_t total)
{
    service *s = self;
    s->out->mine = s->counter.seen[0].count;
    s->out->total = total;
}

static void show(volatile char *into, const char *text)
{
    for (; *text != '\0'; text++) {
        *into++ = *text;
    }
}

/* Guests reach the service by a port of their own. */
static ru_status open_door(ru_node_loop *bridge, ru_node_id self, volatile shown *out,
                           ru_arena *arena, ru_err *err)
{
    const ru_link_tcp_options lo = {.loop = bridge->loop,
                                    .listen = "127.0.0.1:0",
                                    .psk = guests_token,
                                    .psk_bytes = 32,
                                    .conns_max = ru_guests_conns(0) + RU_LINK_TCP_STRANGERS};
    ru_link_tcp *link;
    RU_TRY(ru_link_tcp_open(&lo, &link, err));
    const ru_guests_options go = {.self = self,
                                  .address = ru_link_tcp_address(link),
                                  .job = 2,
                                  .token = guests_token,
                                  .token_bytes = 32,
                                  .link = ru_link_tcp_link(link)};
    RU_TRY(ru_node_guests(bridge->node, &go, arena, err));
    ru_link_tcp_user(link, ru_node_guests_link_user(bridge->node));
    show(out->door, ru_link_tcp_address(link));
    return RU_OK;
}

static ru_status serve(volatile shown *out, const char *join, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_node_loop bridge = {0};
    RU_TRY(ru_loop_open(&bridge.loop, err));
    const ru_link_tcp_options lo = {.loop = bridge.loop,
                                    .listen = "127.0.0.1:0",
                                    .psk = token,
                                    .psk_bytes = 32,
                                    .conns_max = ru_chan_conns(16) + RU_LINK_TCP_STRANGERS};
    ru_link_tcp *link;
    RU_TRY(ru_link_tcp_open(&lo, &link, err));
    service s = {.out = out};
    ru_self_random(&s.counter.self.v, sizeof s.counter.self.v);
    ru_node_options o = {.chan = {.self = s.counter.self,
                                  .address = ru_link_tcp_address(link),
                                  .job = 1,
                                  .token = token,
                                  .token_bytes = 32,
                                  .peers_max = 16,
                                  .streams_max = 16,
                                  .slots_max = 16},
                         .link = ru_link_tcp_link(link),
                         .member = {.join = join, .n_max = 8},
                         .timers = ru_node_loop_timers(&bridge)};
    o.member.self.node = s.counter.self;
    (void)snprintf(o.member.self.address, sizeof o.member.self.address, "%s",
                   ru_link_tcp_address(link));
    RU_TRY(ru_node_open(&o, &arena, &bridge.node, err));
    ru_link_tcp_user(link, ru_node_link_user(bridge.node));
    s.counter.goal = GOAL;
    s.counter.step_ns = 10000000;
    s.counter.told = told;
    s.counter.told_self = &s;
    ru_counter_part(&s.counter, bridge.node);
    RU_TRY(open_door(&bridge, s.counter.self, out, &arena, err));
    ru_node_start(bridge.node, ru_clock_now());
    show(out->address, ru_link_tcp_address(link));
    return ru_loop_run(bridge.loop, err); /* until it is killed */
}

/* -- the guest ------------------------------------------------------------------------------------
 */

typedef struct visitor {
    ru_loop *loop;
    ru_guest *guest;
    volatile shown *all; /* [PROCESSES + 1] the last is its own */
    uint32_t at;
    bool up, dialed;
    uint64_t count;
} visitor;

static void visitor_up(void *self, ru_time now)
{
    visitor *v = self;
    (void)now;
    v->up = true;
}

static void visitor_down(void *self, ru_status why, const char *sentence, ru_time now)
{
    visitor *v = self;
    (void)why;
    (void)sentence;
    (void)now;
    v->up = v->dialed = false;
}

static void visitor_message(void *self, uint32_t what, const void *data, int64_t size_bytes,
                            ru_time now)
{
    visitor *v = self;
    ru_counter_known known;
    (void)now;
    if (what == RU_COUNTER_KNOWN && size_bytes == (int64_t)sizeof known) {
        memcpy(&known, data, sizeof known);
        v->all[PROCESSES].mine = known.yours;
    }
}

static void visitor_fire(void *self, uint32_t what, ru_time now)
{
    visitor *v = self;
    (void)what;
    ru_guest_timer(v->guest, now);
}

static void visitor_set(void *self, uint32_t what, ru_time at)
{
    visitor *v = self;
    ru_loop_timer(v->loop, visitor_fire, v, what, at);
}

static void visitor_off(void *self, uint32_t what)
{
    visitor *v = self;
    ru_loop_timer_off(v->loop, visitor_fire, v, what);
}

/* One more, or the same again at the next host. */
static void visitor_act(void *self, uint32_t what, ru_time now)
{
    visitor *v = self;
    char door[128];
    if (!v->up && !v->dialed) {
        for (size_t i = 0; i < sizeof door; i++) {
            door[i] = v->all[v->at % PROCESSES].door[i];
        }
        v->at++;
        v->dialed = ru_guest_dial(v->guest, door, now, NULL) == RU_OK;
    } else if (v->up) {
        v->count += v->count < GOAL ? 1 : 0;
        (void)!ru_guest_send(v->guest, RU_COUNTER_ADD, &v->count, sizeof v->count, now);
    }
    ru_loop_timer(v->loop, visitor_act, v, what, ru_time_after(now, 20000000));
}

static ru_status visit(volatile shown *all, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    visitor v = {.all = all};
    RU_TRY(ru_loop_open(&v.loop, err));
    const ru_link_tcp_options lo = {.loop = v.loop,
                                    .listen = "127.0.0.1:0",
                                    .psk = guests_token,
                                    .psk_bytes = 32,
                                    .conns_max = ru_guest_conns() + RU_LINK_TCP_STRANGERS};
    ru_link_tcp *link;
    RU_TRY(ru_link_tcp_open(&lo, &link, err));
    ru_guest_options o = {.address = ru_link_tcp_address(link),
                          .job = 2,
                          .token = guests_token,
                          .token_bytes = 32,
                          .link = ru_link_tcp_link(link),
                          .timers = {visitor_set, visitor_off, &v},
                          .up = visitor_up,
                          .message = visitor_message,
                          .down = visitor_down,
                          .self_up = &v};
    ru_self_random(&o.self.v, sizeof o.self.v);
    RU_TRY(ru_guest_open(&o, &arena, &v.guest, err));
    ru_link_tcp_user(link, ru_guest_link_user(v.guest));
    visitor_act(&v, 2, ru_clock_now());
    return ru_loop_run(v.loop, err);
}

/* Process k; the last is the guest. */
static pid_t start(volatile shown *all, int k, const char *join)
{
    pid_t pid = fork();
    if (pid == 0) {
        ru_err err;
        if ((k == PROCESSES ? visit(all, &err) : serve(&all[k], join, &err)) != RU_OK) {
            (void)fprintf(stderr, "counter-service: %s\n", err.text);
        }
        _exit(1);
    }
    return pid;
}

/* Look every LOOK_MS until it is so; false after PATIENCE_MS. */
static bool becomes(bool (*is)(const volatile shown *), const volatile shown *all)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += LOOK_MS) {
        if (is(all)) {
            return true;
        }
        (void)poll(NULL, 0, LOOK_MS);
    }
    return false;
}

static bool listens(const volatile shown *all)
{
    return all[0].address[0] != '\0';
}

static bool all_count(const volatile shown *all)
{
    return all[0].mine > 3 && all[1].mine > 3 && all[2].mine > 3 && all[PROCESSES].mine > 3;
}

static bool two_agree(const volatile shown *all)
{
    return all[1].mine == GOAL && all[2].mine == GOAL && all[PROCESSES].mine == GOAL &&
           all[1].total == all[2].total && all[1].total > 3 * GOAL;
}

int main(void)
{
    volatile shown *all = mmap(NULL, (PROCESSES + 1) * sizeof *all, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[PROCESSES + 1] = {0};
    char join[128] = "";
    bool ok = all != MAP_FAILED;
    for (int k = 0; ok && k <= PROCESSES; k++) {
        pid[k] = start(all, k, k == 0 ? NULL : join);
        ok = k > 0 || becomes(listens, all);
        for (size_t i = 0; k == 0 && i < sizeof join; i++) {
            join[i] = all[0].address[i];
        }
    }
    ok = ok && becomes(all_count, all);
    if (ok) {
        (void)kill(pid[0], SIGKILL); /* the leader */
        ok = becomes(two_agree, all);
    }
    printf("totals %llu and %llu after the leader was killed: %s\n",
           (unsigned long long)all[1].total, (unsigned long long)all[2].total,
           ok ? "agreed" : "NOT agreed");
    for (int k = 0; k <= PROCESSES; k++) {
        if (pid[k] > 0) {
            (void)kill(pid[k], SIGKILL);
            (void)waitpid(pid[k], NULL, 0);
        }
    }
    return ok ? 0 : 1;
}
