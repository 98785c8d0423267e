/* Any bytes as messages, connections and time passing, at a leader, a member and a joiner: no
 * crash, views stay within their bounds, epochs only grow. */
#include "comm/member/member.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_MAX = 8, PEERS = 4 };

typedef struct machine {
    ru_arena arena, fx_arena;
    ru_effects fx;
    ru_member *m;
    ru_time now;
    uint32_t epoch;
} machine;

static void after(machine *x)
{
    ru_effects_clear(&x->fx);
    const ru_view *v = ru_member_view(x->m);
    if (v->epoch < x->epoch || v->n > N_MAX || v->blob_bytes > RU_MEMBER_BLOB_MAX) {
        abort();
    }
    x->epoch = v->epoch;
}

static void step(machine *x, ru_event ev)
{
    ev.now = x->now;
    ru_member_step(x->m, &ev, &x->fx);
    after(x);
}

static void machine_open(machine *x, const char *join)
{
    memset(x, 0, sizeof *x);
    ru_arena_init(&x->arena, 0);
    ru_arena_init(&x->fx_arena, 0);
    ru_effects_init(&x->fx, &x->fx_arena);
    x->now.ns = 1000000000;
    ru_member_options o = {.n_max = N_MAX, .join = join};
    o.self = (ru_member_info){.node = {100}, .address = "a:1", .host = "h", .capacity = 1};
    if (ru_member_open(&o, &x->arena, &x->m, NULL) != RU_OK) {
        abort();
    }
    step(x, (ru_event){.kind = RU_EV_START});
    for (uint64_t k = 1; k <= PEERS; k++) {
        step(x, (ru_event){.kind = RU_EV_UP, .node = {k}, .data = "b:1", .size_bytes = 4});
    }
}

static void install(machine *x)
{
    ru_member_wanted w;
    ru_node_id nodes[N_MAX];
    if (!ru_member_leads(x->m)) {
        return;
    }
    ru_member_wanted_get(x->m, &w);
    for (uint32_t i = 0; i < w.n; i++) {
        nodes[i] = w.at[i].node;
    }
    if (w.n > 0) {
        ru_member_install(x->m, nodes, w.n, "blob", 4, x->now, &x->fx);
        after(x);
    }
}

/* One command: what, from whom, length; then that many bytes. */
static size_t command(machine *x, const uint8_t *p, size_t left)
{
    enum { HEAD = 3, MESSAGES = 12 };
    ru_node_id node = {1 + p[1] % PEERS};
    size_t n = p[2] < left - HEAD ? p[2] : left - HEAD;
    uint8_t what = p[0] % 32;
    if (what < 24) {
        step(x, (ru_event){.kind = RU_EV_MESSAGE,
                           .node = node,
                           .what = RU_MEMBER_WHAT_FIRST + what % MESSAGES,
                           .data = p + HEAD,
                           .size_bytes = (int64_t)n});
        return HEAD + n;
    }
    switch (what) {
    case 24:
        x->now.ns += 50000000;
        step(x, (ru_event){.kind = RU_EV_TIMER, .what = RU_MEMBER_TIMER_FIRST});
        break;
    case 25:
        step(x, (ru_event){.kind = RU_EV_DOWN, .node = node, .value = RU_E_PEER});
        break;
    case 26:
        step(x, (ru_event){.kind = RU_EV_DOWN, .node = node, .value = RU_E_IO});
        break;
    case 27:
        step(x, (ru_event){.kind = RU_EV_UP, .node = node, .data = "c:1", .size_bytes = 4});
        break;
    case 28:
        step(x,
             (ru_event){.kind = RU_EV_DOWN, .value = RU_E_AGAIN, .data = "b:1", .size_bytes = 4});
        break;
    case 29:
        ru_member_suspect(x->m, node, p[2] % 2 == 0, x->now, &x->fx);
        after(x);
        break;
    default:
        install(x);
    }
    return HEAD;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    machine x;
    machine_open(&x, data[0] % 2 == 0 ? NULL : "b:1");
    if (data[0] % 4 == 0) {
        install(&x);
    }
    for (size_t i = 1; i + 3 <= size;) {
        i += command(&x, data + i, size - i);
    }
    ru_arena_fini(&x.arena);
    ru_arena_fini(&x.fx_arena);
    return 0;
}
