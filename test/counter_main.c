/* The counter service in three real processes over loopback; one of them is killed on the way.
 *
 *   counter-service        exit code 0 when the other two agree on a total that holds their counts
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/node/loop.h"
#include "env/link_tcp.h"
#include "env/self.h"
#include "test/counter.h"

enum { PROCESSES = 3, GOAL = 50, PATIENCE_MS = 20000, LOOK_MS = 20 };

static const uint8_t token[] = "a token of the counter, 32 bytes";

/* What a process shows its parent. */
typedef struct shown {
    char address[128];
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
    ru_node_start(bridge.node, ru_clock_now());
    for (const char *p = ru_link_tcp_address(link); *p != '\0'; p++) {
        out->address[p - ru_link_tcp_address(link)] = *p;
    }
    return ru_loop_run(bridge.loop, err); /* until it is killed */
}

static pid_t start(volatile shown *out, const char *join)
{
    pid_t pid = fork();
    if (pid == 0) {
        ru_err err;
        if (serve(out, join, &err) != RU_OK) {
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
    return all[0].mine > 3 && all[1].mine > 3 && all[2].mine > 3;
}

static bool two_agree(const volatile shown *all)
{
    return all[1].mine == GOAL && all[2].mine == GOAL && all[1].total == all[2].total &&
           all[1].total > 2 * GOAL;
}

int main(void)
{
    volatile shown *all = mmap(NULL, PROCESSES * sizeof *all, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[PROCESSES];
    char join[128] = "";
    bool ok = all != MAP_FAILED;
    for (int k = 0; ok && k < PROCESSES; k++) {
        pid[k] = start(&all[k], k == 0 ? NULL : join);
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
    for (int k = 0; k < PROCESSES; k++) {
        (void)kill(pid[k], SIGKILL);
        (void)waitpid(pid[k], NULL, 0);
    }
    return ok ? 0 : 1;
}
