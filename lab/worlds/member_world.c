#include "lab/worlds/member_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"

typedef enum event_kind { E_MESSAGE, E_UP, E_DOWN, E_TIMER, E_CONNECT, E_OWNER, E_EXIT } event_kind;

typedef struct event {
    event_kind kind;
    uint32_t to, from; /* from: WORLD_NODES_MAX: nobody */
    uint32_t what;
    uint64_t gen;
    int64_t value;
    int64_t size_bytes;
    uint8_t *data; /* malloc */
} event;

typedef struct side { /* of a connection, as one of the two sees it */
    bool up;
    uint32_t gen;
    int64_t last_ns; /* arrival of the last thing sent to the other */
    int64_t cut_until_ns;
} side;

struct world {
    world_options opt;
    ru_time now;
    ru_rng rng;
    world_node *nodes;
    side *sides; /* [nodes * nodes] from a to b */
    uint32_t gen;
    ru_heap heap;
    ru_heap_item *items;
    event *events; /* pool */
    uint32_t *free_at;
    uint32_t n_free, pool;
    int64_t n_events, n_sends;
    uint64_t hash;
    world_view *views;
    uint32_t n_views;
    char breach[256];
};

enum { FX_BYTES = 1 << 20 };
static const uint32_t nobody = WORLD_NODES_MAX;
static const int64_t exit_ns = 20000000; /* a process that is out ends soon */

static uint32_t node_from(ru_node_id id)
{
    return (uint32_t)((id.v - 0x1000) / 0x9e3779b1u);
}

static bool votes(const world *w, uint32_t i)
{
    return (w->opt.no_vote >> i % 64 & 1) == 0 || w->nodes[i].voter;
}

static side *side_of(world *w, uint32_t a, uint32_t b)
{
    return &w->sides[(size_t)a * w->opt.nodes + b];
}

static void breach(world *w, const char *fmt, ...) RU_PRINTF(2, 3);
static void breach(world *w, const char *fmt, ...)
{
    if (w->breach[0] != '\0') {
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(w->breach, sizeof w->breach, "at %.3f s: ", (double)w->now.ns / 1e9);
    vsnprintf(w->breach + n, sizeof w->breach - (size_t)n, fmt, ap);
    va_end(ap);
}

world *world_new(const world_options *opt)
{
    world *w = calloc(1, sizeof *w);
    RU_CHECK(w != NULL && opt->nodes <= WORLD_NODES_MAX);
    w->opt = *opt;
    w->opt.delay_min_ns = opt->delay_min_ns == 0 ? 100000 : opt->delay_min_ns;
    w->opt.delay_max_ns = opt->delay_max_ns == 0 ? 2000000 : opt->delay_max_ns;
    w->opt.events_max = opt->events_max == 0 ? 20000000 : opt->events_max;
    w->opt.n_max = opt->n_max == 0 ? opt->nodes : opt->n_max;
    w->rng = ru_rng_from(opt->seed, 77);
    w->now.ns = 1000000000;
    w->pool = opt->nodes > 100 ? 1 << 20 : 1 << 14;
    w->nodes = calloc(opt->nodes, sizeof *w->nodes);
    w->sides = calloc((size_t)opt->nodes * opt->nodes, sizeof *w->sides);
    w->items = calloc(w->pool, sizeof *w->items);
    w->events = calloc(w->pool, sizeof *w->events);
    w->free_at = calloc(w->pool, sizeof *w->free_at);
    w->views = calloc(WORLD_VIEWS_MAX, sizeof *w->views);
    RU_CHECK(w->nodes != NULL && w->sides != NULL && w->items != NULL && w->events != NULL &&
             w->free_at != NULL && w->views != NULL);
    ru_heap_init(&w->heap, w->items, w->pool);
    for (uint32_t i = 0; i < w->pool; i++) {
        w->free_at[w->n_free++] = w->pool - 1 - i;
    }
    return w;
}

void world_free(world *w)
{
    for (uint32_t i = 0; i < w->opt.nodes; i++) {
        ru_arena_fini(&w->nodes[i].arena);
        ru_arena_fini(&w->nodes[i].fx_arena);
        free(w->nodes[i].fx_memory);
    }
    for (ru_heap_item it; ru_heap_pop(&w->heap, &it);) {
        free(w->events[it.value].data);
    }
    free(w->nodes);
    free(w->sides);
    free(w->items);
    free(w->events);
    free(w->free_at);
    free(w->views);
    free(w);
}

static void push(world *w, int64_t at_ns, event e, const void *data)
{
    RU_CHECK(w->n_free > 0);
    uint32_t i = w->free_at[--w->n_free];
    e.data = NULL;
    if (e.size_bytes > 0) {
        e.data = malloc((size_t)e.size_bytes);
        RU_CHECK(e.data != NULL);
        memcpy(e.data, data, (size_t)e.size_bytes);
    }
    w->events[i] = e;
    RU_CHECK(ru_heap_push(&w->heap, at_ns < w->now.ns ? w->now.ns : at_ns, i) == RU_OK);
}

static int64_t delay(world *w)
{
    int64_t spread = w->opt.delay_max_ns - w->opt.delay_min_ns + 1;
    return w->opt.delay_min_ns + (int64_t)ru_rng_below_u64(&w->rng, (uint64_t)spread);
}

/* When something sent now from a arrives at b: in order, not before a cut heals. */
static int64_t arrival(world *w, uint32_t a, uint32_t b)
{
    side *s = side_of(w, a, b);
    int64_t at = (s->cut_until_ns > w->now.ns ? s->cut_until_ns : w->now.ns) + delay(w);
    at = at <= s->last_ns ? s->last_ns + 1 : at;
    s->last_ns = at;
    return at;
}

static void address_of(uint32_t i, char out[WORLD_NAME_MAX])
{
    snprintf(out, WORLD_NAME_MAX, "n%u:1", i);
}

/* -- rules that always hold -------------------------------------------------------------------- */

static const world_view *view_find(const world *w, uint32_t epoch)
{
    for (uint32_t i = 0; i < w->n_views; i++) {
        if (w->views[i].epoch == epoch) {
            return &w->views[i];
        }
    }
    return NULL;
}

static bool descends(const world *w, uint32_t epoch, uint32_t from)
{
    while (epoch > from) {
        const world_view *v = view_find(w, epoch);
        epoch = v == NULL ? 0 : v->prev;
    }
    return epoch == from;
}

/* Two views that follow the same one: somebody living holds the other branch? */
static void check_fork(world *w, const world_view *v)
{
    for (uint32_t i = 0; i < w->n_views; i++) {
        const world_view *o = &w->views[i];
        /* The same members once more: a successor has put in force what was under way, and its
         * first leader learns late that it was. It can do nothing more. */
        bool same = o->hash == v->hash;
        if (o->prev != v->prev || o->epoch == v->epoch || v->prev == UINT32_MAX || same) {
            continue;
        }
        for (uint32_t k = 0; k < w->opt.nodes; k++) {
            const world_node *n = &w->nodes[k];
            if (n->started && n->alive && !n->out && descends(w, n->epoch, o->epoch)) {
                breach(w, "views %u and %u both follow view %u, and process %u lives in the first",
                       o->epoch, v->epoch, v->prev, k);
            }
        }
    }
}

static uint64_t view_hash(const ru_view *v)
{
    ru_hasher h;
    ru_hasher_init(&h);
    for (uint32_t i = 0; i < v->n; i++) {
        ru_hasher_put_u64(&h, v->at[i].node.v);
        ru_hasher_put_u64(&h, v->at[i].number);
        ru_hasher_put_str(&h, v->at[i].address);
    }
    ru_hasher_put(&h, v->blob, v->blob_bytes);
    return ru_hasher_get(&h).low;
}

static bool known_by_living(const world *w, uint32_t but, uint32_t epoch)
{
    for (uint32_t k = 0; k < w->opt.nodes; k++) {
        const world_node *n = &w->nodes[k];
        if (k != but && n->started && n->alive && !n->out && descends(w, n->epoch, epoch)) {
            return true;
        }
    }
    return false;
}

static void check_view(world *w, uint32_t i)
{
    world_node *n = &w->nodes[i];
    const ru_view *v = ru_member_view(n->m);
    if (v->epoch <= n->epoch) {
        breach(w, "epoch %u after %u at process %u", v->epoch, n->epoch, i);
    }
    uint32_t number = 0, voters = 0;
    for (uint32_t k = 0; k < v->n; k++) {
        voters += votes(w, node_from(v->at[k].node));
    }
    for (uint32_t k = 0; k < v->n; k++) {
        if (v->at[k].number <= number) {
            breach(w, "numbers of view %u do not ascend", v->epoch);
        }
        number = v->at[k].number;
        uint32_t who = node_from(v->at[k].node);
        w->nodes[who].voter = w->nodes[who].voter || voters == 0; /* then all do, and keep it */
        if (v->at[k].no_vote ? (w->opt.no_vote >> who % 64 & 1) == 0 : !votes(w, who)) {
            breach(w, "view %u is wrong about the vote of its member %u", v->epoch, k);
        }
        if (v->at[k].node.v == v->leader.v && v->at[k].no_vote) {
            breach(w, "the leader of view %u has no vote", v->epoch);
        }
    }
    const world_view *known = view_find(w, v->epoch);
    world_view now = {.epoch = v->epoch,
                      .prev = n->epoch,
                      .n = v->n,
                      .leader = v->leader,
                      .hash = view_hash(v),
                      .at = w->now};
    if (known == NULL) { /* its proposer is the first to know, but for one that left by it */
        if (n->epoch == 0 && v->epoch > 1) {
            now.prev = view_find(w, v->epoch - 1) != NULL ? v->epoch - 1 : UINT32_MAX;
        }
        if (w->n_views == WORLD_VIEWS_MAX) {
            breach(w, "more than %d views", WORLD_VIEWS_MAX);
            return;
        }
        w->views[w->n_views++] = now;
        n->epoch = v->epoch;
        check_fork(w, &now);
    } else if (known->leader.v != now.leader.v || known->hash != now.hash) {
        if (known_by_living(w, i, v->epoch)) {
            breach(w, "view %u is another one at process %u", v->epoch, i);
        }
        w->views[known - w->views] = now; /* nobody is left of those who knew the other */
    }
    n->epoch = v->epoch;
}

/* -- what membership wants --------------------------------------------------------------------- */

static void perform(world *w, uint32_t i);

bool world_install(world *w, uint32_t i)
{
    world_node *n = &w->nodes[i];
    ru_member_wanted wanted;
    n->asked = false;
    if (!n->alive || n->out || !ru_member_leads(n->m)) {
        return false;
    }
    ru_member_wanted_get(n->m, &wanted);
    if (wanted.n == 0) {
        return false;
    }
    ru_node_id nodes[WORLD_NODES_MAX];
    for (uint32_t k = 0; k < wanted.n; k++) {
        nodes[k] = wanted.at[k].node;
    }
    uint32_t blob[RU_MEMBER_BLOB_MAX / 4] = {wanted.n, i};
    const int64_t bytes = 8 + w->opt.blob_more;
    bool proposed = ru_member_install(n->m, nodes, wanted.n, blob, bytes, w->now, &n->fx);
    perform(w, i);
    return proposed;
}

static void local(world *w, uint32_t i, const ru_effect *e)
{
    world_node *n = &w->nodes[i];
    int64_t later = w->opt.owner_delay_ns == 0
                        ? 0
                        : (int64_t)ru_rng_below_u64(&w->rng, (uint64_t)w->opt.owner_delay_ns);
    switch ((ru_member_local)e->what) {
    case RU_MEMBER_VIEW:
        n->n_views++;
        n->joined_at = n->joined_at.ns == 0 ? w->now : n->joined_at;
        check_view(w, i);
        break;
    case RU_MEMBER_CHANGE:
    case RU_MEMBER_LEAD:
        if (!votes(w, i)) {
            breach(w, "process %u leads without a vote", i);
        }
        n->n_leads += e->what == RU_MEMBER_LEAD;
        if (!w->opt.hold_installs && (!n->asked || e->what == RU_MEMBER_LEAD || e->value == 1)) {
            later = e->what == RU_MEMBER_LEAD || e->value == 1 ? 0 : later;
            n->asked = true;
            push(w, w->now.ns + later, (event){.kind = E_OWNER, .to = i, .from = nobody}, NULL);
        }
        break;
    case RU_MEMBER_OUT:
        n->out = true;
        n->n_outs++;
        n->out_at = w->now;
        snprintf(n->why, sizeof n->why, "%s", (const char *)e->data);
        push(w, w->now.ns + exit_ns, (event){.kind = E_EXIT, .to = i, .from = nobody}, NULL);
        break;
    case RU_MEMBER_STATUS:
    case RU_MEMBER_LEADERLESS:
        n->n_statuses += e->what == RU_MEMBER_STATUS;
        break;
    }
}

static void end_side(world *w, uint32_t a, uint32_t b, ru_status why)
{
    side *s = side_of(w, b, a);
    if (s->up) { /* told to b in order, after what a sent */
        push(w, arrival(w, a, b),
             (event){.kind = E_DOWN, .to = b, .from = a, .gen = s->gen, .value = why}, NULL);
    }
}

static void send(world *w, uint32_t a, const ru_effect *e)
{
    uint32_t b = node_from(e->node);
    if (b >= w->opt.nodes || a == b || !side_of(w, a, b)->up) {
        return;
    }
    w->n_sends++;
    push(w, arrival(w, a, b),
         (event){.kind = E_MESSAGE,
                 .to = b,
                 .from = a,
                 .what = e->what,
                 .gen = side_of(w, a, b)->gen,
                 .size_bytes = e->size_bytes},
         e->data);
}

static void perform(world *w, uint32_t i)
{
    world_node *n = &w->nodes[i];
    for (uint32_t k = 0; k < n->fx.n; k++) {
        const ru_effect *e = &n->fx.at[k];
        switch (e->kind) {
        case RU_FX_SEND:
            send(w, i, e);
            break;
        case RU_FX_TIMER:
            n->timer_gen++;
            push(
                w, e->at.ns,
                (event){
                    .kind = E_TIMER, .to = i, .from = nobody, .what = e->what, .gen = n->timer_gen},
                NULL);
            break;
        case RU_FX_TIMER_OFF:
            n->timer_gen++;
            break;
        case RU_FX_CONNECT:
            push(w, w->now.ns + delay(w),
                 (event){.kind = E_CONNECT, .to = i, .from = nobody, .size_bytes = e->size_bytes},
                 e->data);
            break;
        case RU_FX_DISCONNECT: {
            uint32_t b = node_from(e->node);
            if (b < w->opt.nodes && side_of(w, i, b)->up) {
                side_of(w, i, b)->up = false;
                end_side(w, i, b, RU_E_PEER);
            }
            break;
        }
        case RU_FX_LOCAL:
            local(w, i, e);
            break;
        case RU_FX_LOG:
            if (w->opt.verbose) {
                printf("%9.4f  %3u  %s\n", (double)w->now.ns / 1e9, i, (const char *)e->data);
            }
            break;
        }
    }
    ru_effects_clear(&n->fx);
}

static void step(world *w, uint32_t i, ru_event ev)
{
    world_node *n = &w->nodes[i];
    ev.now = w->now;
    if (w->opt.sealed) {
        ru_alloc_seal();
    }
    ru_member_step(n->m, &ev, &n->fx);
    if (w->opt.sealed) {
        ru_alloc_unseal();
    }
    perform(w, i);
}

/* -- the network ------------------------------------------------------------------------------- */

/* An attempt to connect has reached the other host. */
static void connect(world *w, const event *e)
{
    uint32_t a = e->to, b = nobody;
    char name[WORLD_NAME_MAX];
    for (uint32_t i = 0; i < w->opt.nodes; i++) {
        address_of(i, name);
        b = strcmp(name, (const char *)e->data) == 0 ? i : b;
    }
    event failed = {.kind = E_DOWN,
                    .to = a,
                    .from = nobody,
                    .value = w->opt.refused ? RU_E_PEER : RU_E_AGAIN,
                    .size_bytes = e->size_bytes};
    const world_node *n = b == nobody ? NULL : &w->nodes[b];
    bool vanished = n != NULL && n->vanished;
    int64_t heals_ns = b == nobody ? 0 : side_of(w, a, b)->cut_until_ns;
    if (heals_ns > w->now.ns && heals_ns < w->now.ns + 5000000000) {
        push(w, heals_ns + delay(w) * 10, *e, e->data); /* the kernel tries again */
        return;
    }
    if (b != nobody && (vanished || side_of(w, a, b)->cut_until_ns > w->now.ns)) {
        failed.value = RU_E_AGAIN;
        push(w, w->now.ns + 5000000000, failed, e->data); /* no answer at all */
        return;
    }
    if (n == NULL || !n->started || !n->alive || a == b) {
        push(w, w->now.ns + delay(w), failed, e->data);
        return;
    }
    side *ab = side_of(w, a, b), *ba = side_of(w, b, a);
    if (ab->up && ba->up && ab->gen == ba->gen) {
        return; /* one stands already */
    }
    ab->up = ba->up = true;
    ab->gen = ba->gen = ++w->gen;
    push(w, arrival(w, b, a), (event){.kind = E_UP, .to = a, .from = b, .gen = w->gen}, NULL);
    push(w, arrival(w, a, b), (event){.kind = E_UP, .to = b, .from = a, .gen = w->gen}, NULL);
}

/* The sender's kernel learns that nobody is there, if the connection is still the same. */
static void nobody_there(world *w, const event *e)
{
    side *other = side_of(w, e->from, e->to);
    if (other->up && other->gen == e->gen) {
        event down = {
            .kind = E_DOWN, .to = e->from, .from = e->to, .gen = e->gen, .value = RU_E_PEER};
        push(w, arrival(w, e->to, e->from), down, NULL);
    }
}

static void deliver(world *w, const event *e)
{
    side *s = e->from == nobody ? NULL : side_of(w, e->to, e->from);
    ru_event ev = {.node = e->from == nobody ? (ru_node_id){0} : world_id(e->from),
                   .what = e->what,
                   .value = e->value,
                   .data = e->data,
                   .size_bytes = e->size_bytes};
    char name[WORLD_NAME_MAX];
    switch (e->kind) {
    case E_MESSAGE:
        if (w->opt.verbose && e->what != RU_MEMBER_WHAT_FIRST + 4) {
            printf("%9.4f       %u: message %u from %u\n", (double)w->now.ns / 1e9, e->to,
                   e->what - RU_MEMBER_WHAT_FIRST, e->from);
        }
        if (!s->up || s->gen != e->gen) {
            nobody_there(w, e);
            return;
        }
        ev.kind = RU_EV_MESSAGE;
        break;
    case E_UP:
        if (!s->up || s->gen != e->gen) {
            return;
        }
        ev.kind = RU_EV_UP;
        address_of(e->from, name);
        ev.data = name;
        ev.size_bytes = (int64_t)strlen(name) + 1;
        break;
    case E_DOWN:
        if (s != NULL && (!s->up || s->gen != e->gen)) {
            return;
        }
        if (s != NULL) {
            s->up = false;
        }
        ev.kind = RU_EV_DOWN;
        break;
    case E_TIMER:
        if (e->gen != w->nodes[e->to].timer_gen) {
            return;
        }
        ev.kind = RU_EV_TIMER;
        break;
    case E_CONNECT:
    case E_OWNER:
    case E_EXIT:
        return;
    }
    step(w, e->to, ev);
}

bool world_run(world *w, ru_time until)
{
    while (w->breach[0] == '\0') {
        const ru_heap_item *next = ru_heap_peek(&w->heap);
        if (next == NULL || next->key > until.ns) {
            w->now = until;
            return true;
        }
        ru_heap_item it;
        ru_heap_pop(&w->heap, &it);
        event *e = &w->events[it.value];
        w->now.ns = it.key;
        world_node *n = &w->nodes[e->to];
        bool frozen = n->frozen_until.ns > w->now.ns && e->kind != E_CONNECT;
        if (frozen && n->alive) {
            RU_CHECK(ru_heap_push(&w->heap, n->frozen_until.ns, it.value) == RU_OK);
            continue;
        }
        if (++w->n_events > w->opt.events_max) {
            breach(w, "more than %lld events", (long long)w->opt.events_max);
        }
        uint64_t word[4] = {(uint64_t)it.key, e->kind, e->to, e->from};
        w->hash = ru_hash_bytes(word, sizeof word, w->hash);
        if (e->kind == E_EXIT) {
            bool left = n->left;
            world_kill(w, e->to);
            n->left = left;
        } else if (n->alive && e->kind == E_CONNECT) {
            connect(w, e);
        } else if (n->alive && !n->out && e->kind == E_OWNER) {
            world_install(w, e->to);
        } else if (n->alive && e->kind != E_OWNER) {
            deliver(w, e);
        } else if (!n->alive && !n->vanished && e->kind == E_MESSAGE) {
            nobody_there(w, e);
        }
        free(e->data);
        w->free_at[w->n_free++] = (uint32_t)it.value;
    }
    return false;
}

bool world_run_ms(world *w, int64_t for_ms)
{
    return world_run(w, ru_time_after(w->now, for_ms * 1000000));
}

/* -- what happens to processes ----------------------------------------------------------------- */

void world_start(world *w, uint32_t i, int32_t join)
{
    world_node *n = &w->nodes[i];
    RU_CHECK(!n->started);
    ru_arena_init(&n->arena, 0);
    if (w->opt.sealed) {
        n->fx_memory = malloc(FX_BYTES);
        RU_CHECK(n->fx_memory != NULL);
        ru_arena_init_fixed(&n->fx_arena, n->fx_memory, FX_BYTES);
    } else {
        ru_arena_init(&n->fx_arena, 0);
    }
    ru_effects_init(&n->fx, &n->fx_arena);
    char address[WORLD_NAME_MAX];
    ru_member_options o = {
        .n_max = w->opt.n_max, .mesh_max = w->opt.mesh_max, .join_ns = 6000000000};
    n->contact = join;
    o.agreed = w->opt.agreed[i % 8];
    o.self = (ru_member_info){.node = world_id(i),
                              .capacity = 4,
                              .number = w->opt.wish[i % 8],
                              .tier = votes(w, i) ? RU_TIER_RELIABLE : RU_TIER_TRANSIENT,
                              .no_vote = !votes(w, i)};
    address_of(i, o.self.address);
    snprintf(o.self.host, sizeof o.self.host, "host%u", i);
    if (join >= 0) {
        address_of((uint32_t)join, address);
        o.join = address;
    }
    ru_err err;
    if (ru_member_open(&o, &n->arena, &n->m, &err) != RU_OK) {
        ru_panic(__FILE__, __LINE__, "%s", err.text);
    }
    n->started = n->alive = true;
    step(w, i, (ru_event){.kind = RU_EV_START});
}

static void end(world *w, uint32_t i, bool silently)
{
    world_node *n = &w->nodes[i];
    if (!n->started || !n->alive) {
        return;
    }
    n->alive = false;
    n->vanished = silently;
    n->died_at = w->now;
    for (uint32_t k = 0; k < w->opt.nodes; k++) {
        if (side_of(w, i, k)->up) {
            side_of(w, i, k)->up = false;
            if (!silently) {
                end_side(w, i, k, RU_E_PEER);
            }
        }
    }
}

static void say(const world *w, const char *what, uint32_t a, uint32_t b)
{
    if (w->opt.verbose) {
        printf("%9.4f  %s %u %u\n", (double)w->now.ns / 1e9, what, a, b);
    }
}

void world_kill(world *w, uint32_t i)
{
    say(w, "=== kill", i, i);
    end(w, i, false);
}

void world_vanish(world *w, uint32_t i)
{
    say(w, "=== vanish", i, i);
    end(w, i, true);
}

void world_freeze(world *w, uint32_t i, int64_t for_ns)
{
    if (w->nodes[i].frozen_until.ns > w->now.ns) {
        return; /* what waits keeps its order */
    }
    say(w, "=== freeze", i, (uint32_t)(for_ns / 1000000));
    w->nodes[i].frozen_until = ru_time_after(w->now, for_ns);
}

void world_cut(world *w, uint32_t a, uint32_t b, ru_time until)
{
    if (until.ns > w->now.ns) {
        say(w, "=== cut", a, b);
    }
    side_of(w, a, b)->cut_until_ns = side_of(w, b, a)->cut_until_ns = until.ns;
}

static void down_at(world *w, const char *what, uint32_t a, uint32_t b, ru_status why)
{
    say(w, what, a, b);
    side *s = side_of(w, b, a);
    event down = {.kind = E_DOWN, .to = b, .from = a, .gen = s->gen, .value = why};
    if (s->up && w->nodes[b].alive) {
        push(w, w->now.ns, down, NULL);
    }
}

void world_half_open(world *w, uint32_t a, uint32_t b)
{
    down_at(w, "=== half_open", a, b, RU_E_IO);
}

void world_reset(world *w, uint32_t a, uint32_t b)
{
    down_at(w, "=== reset", a, b, RU_E_PEER);
}

void world_leave(world *w, uint32_t i)
{
    say(w, "=== leave", i, i);
    world_node *n = &w->nodes[i];
    if (n->started && n->alive && !n->out) {
        n->left = true;
        ru_member_leave(n->m, w->now, &n->fx);
        perform(w, i);
    }
}

void world_suspect(world *w, uint32_t i, uint32_t whom, bool certain)
{
    say(w, "=== suspect", i, whom);
    world_node *n = &w->nodes[i];
    ru_member_suspect(n->m, world_id(whom), certain, w->now, &n->fx);
    perform(w, i);
}

void world_message(world *w, uint32_t a, uint32_t b, uint32_t what, const void *data,
                   int64_t size_bytes)
{
    ru_effect e = {.node = world_id(b), .what = what, .data = data, .size_bytes = size_bytes};
    send(w, a, &e);
}

world_node *world_at(world *w, uint32_t i)
{
    return &w->nodes[i];
}
ru_time world_now(const world *w)
{
    return w->now;
}
ru_rng *world_rng(world *w)
{
    return &w->rng;
}
const char *world_breach(const world *w)
{
    return w->breach[0] == '\0' ? NULL : w->breach;
}
int64_t world_sends(const world *w)
{
    return w->n_sends;
}
uint64_t world_hash(const world *w)
{
    return w->hash;
}
const world_view *world_views(const world *w, uint32_t *n)
{
    *n = w->n_views;
    return w->views;
}

int32_t world_leader(world *w)
{
    int32_t best = -1;
    for (uint32_t i = 0; i < w->opt.nodes; i++) {
        const world_node *n = &w->nodes[i];
        if (n->started && n->alive && !n->out && ru_member_leads(n->m) &&
            (best < 0 || n->epoch > w->nodes[best].epoch)) {
            best = (int32_t)i;
        }
    }
    return best;
}

bool world_settled(world *w, char *why, size_t cap)
{
    int32_t lead = world_leader(w);
    if (lead < 0) {
        snprintf(why, cap, "nobody leads");
        return false;
    }
    const ru_view *v = ru_member_view(w->nodes[lead].m);
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < w->opt.nodes; i++) {
        const world_node *n = &w->nodes[i];
        bool member = false;
        for (uint32_t k = 0; k < v->n; k++) {
            member = member || v->at[k].node.v == world_id(i).v;
        }
        bool stranded = n->epoch > 0 && !member; /* cut out, and nobody can tell it so */
        bool living = n->started && n->alive && !n->out && !n->left && !stranded;
        wanted += living;
        if (member && !living) {
            snprintf(why, cap, "process %u is still a member of view %u", i, v->epoch);
            return false;
        }
        if (living && member && n->epoch != v->epoch) {
            snprintf(why, cap, "process %u is in view %u, not %u", i, n->epoch, v->epoch);
            return false;
        }
    }
    if (v->n != (wanted < w->opt.n_max ? wanted : w->opt.n_max)) {
        snprintf(why, cap, "%u members, %u processes want to be", v->n, wanted);
        return false;
    }
    return true;
}
