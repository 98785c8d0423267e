#include "lab/worlds/pipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct side {
    bool used, raw, accepted, open_due, eof, paused, may_pull;
    uint32_t gen, node, other; /* other: UINT32_MAX: gone */
    ru_link_class class;
    ru_status why;
    uint8_t *q; /* [queue_bytes] ring of bytes for this side, in `queues` */
    int64_t head, n;
    ru_link_tx tx;
    bool tx_live;
    int64_t tx_at, tx_total;
    uint8_t rx_head[RU_LINK_HEAD_BYTES];
    int64_t head_n;
    ru_link_rx rx;
    bool rx_live;
    uint32_t rx_span;
    int64_t rx_inside, acked;
    uint32_t tap; /* index + 1; 0: none */
} side;

typedef struct node {
    char address[64];
    const ru_link_user *user;
    bool dead;
    ru_pipe *net;
    uint32_t index;
} node;

enum { TAPS = 8, TAP_BYTES = 1024 };

/* What an accepted side was sent first. */
typedef struct tap {
    uint32_t node;
    int64_t n;
    uint8_t data[TAP_BYTES];
} tap;

struct ru_pipe {
    tap taps[TAPS];
    uint32_t n_taps;
    ru_pipe_options opt;
    ru_rng rng;
    ru_time now;
    node nodes[RU_PIPE_NODES_MAX];
    uint32_t n_nodes;
    side sides[RU_PIPE_SIDES_MAX];
    uint32_t n_sides;
    bool refuse;
    uint8_t *scratch;
    uint8_t *queues; /* of all sides: nothing is allocated when connections come */
};

static ru_conn_id id_of(const ru_pipe *net, uint32_t i)
{
    return (ru_conn_id){net->sides[i].gen << 12 | (i + 1)};
}

static side *side_of(ru_pipe *net, ru_conn_id id)
{
    uint32_t i = (id.v & 0xfff) - 1;
    if (i >= net->n_sides || !net->sides[i].used || (net->sides[i].gen & 0xfffff) != id.v >> 12) {
        return NULL;
    }
    return &net->sides[i];
}

ru_pipe *ru_pipe_new(const ru_pipe_options *opt)
{
    ru_pipe *net = calloc(1, sizeof *net);
    RU_CHECK(net != NULL);
    net->opt = *opt;
    net->opt.queue_bytes = opt->queue_bytes > 0 ? opt->queue_bytes : 64 << 10;
    net->opt.step_ns = opt->step_ns > 0 ? opt->step_ns : 1000;
    net->rng = ru_rng_from(opt->seed, ru_rng_label("pipe"));
    net->now.ns = 1000000000;
    net->scratch = malloc((size_t)net->opt.queue_bytes);
    net->queues = malloc((size_t)net->opt.queue_bytes * RU_PIPE_SIDES_MAX);
    RU_CHECK(net->scratch != NULL && net->queues != NULL);
    return net;
}

void ru_pipe_free(ru_pipe *net)
{
    free(net->queues);
    free(net->scratch);
    free(net);
}

ru_time ru_pipe_now(const ru_pipe *net)
{
    return net->now;
}

void ru_pipe_wait(ru_pipe *net, int64_t ns)
{
    net->now.ns += ns;
}

static uint32_t side_new(ru_pipe *net, uint32_t at_node)
{
    uint32_t i = 0;
    while (i < net->n_sides && net->sides[i].used) {
        i++;
    }
    RU_CHECK(i < RU_PIPE_SIDES_MAX);
    net->n_sides += i == net->n_sides;
    side *s = &net->sides[i];
    *s = (side){.used = true,
                .gen = s->gen + 1,
                .node = at_node,
                .q = net->queues + (int64_t)i * net->opt.queue_bytes,
                .other = UINT32_MAX,
                .open_due = true,
                .why = RU_E_IO};
    s->gen &= 0xfffff;
    return i;
}

static void side_drop(ru_pipe *net, side *s)
{
    if (s->other != UINT32_MAX) {
        net->sides[s->other].eof = true;
        net->sides[s->other].why = RU_E_PEER;
        net->sides[s->other].other = UINT32_MAX;
    }
    s->used = false;
}

static ru_status op_connect(void *self, const char *address, ru_link_class class, ru_conn_id *c,
                            ru_err *err)
{
    node *me = self;
    ru_pipe *net = me->net;
    uint32_t to = 0;
    while (to < net->n_nodes && strcmp(net->nodes[to].address, address) != 0) {
        to++;
    }
    if (strchr(address, ':') == NULL) {
        return RU_FAIL(err, RU_E_ARG, "\"%s\" is no address", address);
    }
    uint32_t a = side_new(net, me->index);
    net->sides[a].class = class;
    if (to == net->n_nodes || net->nodes[to].dead || net->refuse) {
        net->sides[a].open_due = false;
        net->sides[a].eof = true;
        net->sides[a].why = RU_E_PEER;
    } else {
        uint32_t b = side_new(net, to);
        net->sides[b].accepted = true;
        if (net->n_taps < TAPS) {
            net->taps[net->n_taps].node = to;
            net->sides[b].tap = ++net->n_taps;
        }
        net->sides[b].class = class;
        net->sides[b].other = a;
        net->sides[a].other = b;
    }
    *c = id_of(net, a);
    return RU_OK;
}

static void op_close(void *self, ru_conn_id c)
{
    node *me = self;
    side *s = side_of(me->net, c);
    if (s != NULL) {
        side_drop(me->net, s);
    }
}

static void op_wake(void *self, ru_conn_id c)
{
    side *s = side_of(((node *)self)->net, c);
    if (s != NULL) {
        s->may_pull = true;
    }
}

static void op_resume(void *self, ru_conn_id c)
{
    side *s = side_of(((node *)self)->net, c);
    if (s != NULL) {
        s->paused = false;
    }
}

static void op_redirect(void *self, ru_conn_id c, const ru_link_rx *rx)
{
    side *s = side_of(((node *)self)->net, c);
    if (s == NULL || !s->rx_live) {
        return;
    }
    int64_t done = s->rx_inside;
    for (uint32_t i = 0; i < s->rx_span; i++) {
        done += s->rx.spans[i].size_bytes;
    }
    s->rx = *rx;
    s->rx_span = 0;
    s->rx_inside = done;
    while (s->rx_span < rx->n_spans && s->rx_inside >= rx->spans[s->rx_span].size_bytes) {
        s->rx_inside -= rx->spans[s->rx_span++].size_bytes;
    }
}

static void op_knobs(void *self, ru_conn_id c, const ru_link_knobs *knobs)
{
    (void)self;
    (void)c;
    (void)knobs;
}

static void op_facts(void *self, ru_conn_id c, ru_link_facts *into)
{
    const side *s = side_of(((node *)self)->net, c);
    *into = (ru_link_facts){
        .acked_bytes = s != NULL ? s->acked : 0, .rtt_ns = 50000, .rtt_min_ns = 50000};
}

static const ru_link_ops ops = {
    .name = "pipe",
    .connect = op_connect,
    .close = op_close,
    .wake = op_wake,
    .resume = op_resume,
    .redirect = op_redirect,
    .knobs = op_knobs,
    .facts = op_facts,
};

uint32_t ru_pipe_node(ru_pipe *net, const char *address)
{
    uint32_t i = net->n_nodes++;
    RU_CHECK(i < RU_PIPE_NODES_MAX);
    node *n = &net->nodes[i];
    *n = (node){.net = net, .index = i};
    snprintf(n->address, sizeof n->address, "%s", address);
    return i;
}

void ru_pipe_user(ru_pipe *net, uint32_t i, const ru_link_user *user)
{
    net->nodes[i].user = user;
}

ru_link ru_pipe_link(ru_pipe *net, uint32_t i)
{
    return (ru_link){&ops, &net->nodes[i]};
}

void ru_pipe_kill(ru_pipe *net, uint32_t i)
{
    net->nodes[i].dead = true;
    for (uint32_t k = 0; k < net->n_sides; k++) {
        side *s = &net->sides[k];
        if (s->used && s->node == i) {
            side_drop(net, s);
        }
    }
}

void ru_pipe_refuse(ru_pipe *net, bool refuse)
{
    net->refuse = refuse;
}

/* -- moving bytes --------------------------------------------------------------------------------
 */

static void put(ru_pipe *net, side *to, const uint8_t *data, int64_t n)
{
    tap *t = to->tap > 0 ? &net->taps[to->tap - 1] : NULL;
    if (t != NULL && data != NULL) {
        int64_t part = TAP_BYTES - t->n < n ? TAP_BYTES - t->n : n;
        memcpy(t->data + t->n, data, (size_t)part);
        t->n += part;
    }
    for (int64_t done = 0; done < n;) {
        int64_t at = (to->head + to->n) % net->opt.queue_bytes;
        int64_t part = net->opt.queue_bytes - at < n - done ? net->opt.queue_bytes - at : n - done;
        if (data != NULL) {
            memcpy(to->q + at, data + done, (size_t)part);
        }
        done += part;
        to->n += part;
    }
}

static void get(const ru_pipe *net, side *s, uint8_t *into, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        int64_t left = net->opt.queue_bytes - s->head;
        int64_t part = left < n - done ? left : n - done;
        if (into != NULL) {
            memcpy(into + done, s->q + s->head, (size_t)part);
        }
        done += part;
        s->head = (s->head + part) % net->opt.queue_bytes;
        s->n -= part;
    }
}

static int64_t draw(ru_pipe *net, int64_t most)
{
    int64_t bound = net->opt.move_max > 0 ? net->opt.move_max : net->opt.queue_bytes;
    int64_t n = 1 + (int64_t)ru_rng_below_u64(&net->rng, (uint64_t)bound);
    return n < most ? n : most;
}

static bool act_write(ru_pipe *net, uint32_t i)
{
    side *s = &net->sides[i];
    const node *me = &net->nodes[s->node];
    if (s->other == UINT32_MAX || net->sides[s->other].n == net->opt.queue_bytes) {
        return false;
    }
    if (!s->tx_live) {
        if (!s->may_pull) {
            return false;
        }
        int64_t room = 1 + (int64_t)ru_rng_below(&net->rng, 4 << 20);
        ru_conn_id id = id_of(net, i);
        memset(&s->tx, 0, sizeof s->tx);
        bool more = me->user->pull(me->user->self, id, room, &s->tx, net->now);
        if (side_of(net, id) != s) {
            return true;
        }
        s->may_pull = more;
        if (!more) {
            return true;
        }
        s->tx_live = true;
        s->tx_at = 0;
        s->tx_total = RU_LINK_HEAD_BYTES;
        for (uint32_t k = 0; k < s->tx.n_spans; k++) {
            s->tx_total += s->tx.spans[k].size_bytes;
        }
    }
    side *to = &net->sides[s->other];
    int64_t most = net->opt.queue_bytes - to->n;
    most = draw(net, most < s->tx_total - s->tx_at ? most : s->tx_total - s->tx_at);
    int64_t base = 0;
    for (uint32_t k = 0; k <= s->tx.n_spans && most > 0; k++) {
        const uint8_t *data = k == 0 ? s->tx.head : s->tx.spans[k - 1].data;
        int64_t size = k == 0 ? RU_LINK_HEAD_BYTES : s->tx.spans[k - 1].size_bytes;
        if (s->tx_at < base + size) {
            int64_t inside = s->tx_at - base, n = size - inside < most ? size - inside : most;
            put(net, to, data != NULL ? data + inside : NULL, n);
            s->tx_at += n;
            most -= n;
        }
        base += size;
    }
    if (s->tx_at == s->tx_total) {
        s->tx_live = false;
        me->user->sent(me->user->self, id_of(net, i), s->tx.cookie, net->now);
    }
    return true;
}

static void closed(ru_pipe *net, uint32_t i, ru_status why, const char *sentence)
{
    side *s = &net->sides[i];
    const node *me = &net->nodes[s->node];
    ru_conn_id id = id_of(net, i);
    side_drop(net, s);
    me->user->closed(me->user->self, id, why, sentence, net->now);
}

/* The header is complete: where to? False: not now, or the connection is gone. */
static bool ask_head(ru_pipe *net, uint32_t i)
{
    side *s = &net->sides[i];
    const node *me = &net->nodes[s->node];
    ru_conn_id id = id_of(net, i);
    memset(&s->rx, 0, sizeof s->rx);
    ru_status st = me->user->head(me->user->self, id, s->rx_head, &s->rx, net->now);
    if (side_of(net, id) != s) {
        return false;
    }
    if (st == RU_E_AGAIN) {
        s->paused = true;
        return false;
    }
    if (st != RU_OK) {
        closed(net, i, st, "refused by the user");
        return false;
    }
    s->rx_live = true;
    s->rx_span = 0;
    s->rx_inside = 0;
    return true;
}

static bool act_read(ru_pipe *net, uint32_t i)
{
    side *s = &net->sides[i];
    const node *me = &net->nodes[s->node];
    ru_conn_id id = id_of(net, i);
    if (s->paused || s->open_due) {
        return false;
    }
    if (!s->rx_live && s->head_n == RU_LINK_HEAD_BYTES) {
        (void)ask_head(net, i);
        return true;
    }
    bool full = s->rx_live && s->rx_span == s->rx.n_spans;
    if (!full && s->n == 0) {
        return false;
    }
    int64_t most = draw(net, s->n);
    if (s->other != UINT32_MAX) {
        net->sides[s->other].acked += most;
    }
    if (!s->rx_live) {
        int64_t want = RU_LINK_HEAD_BYTES - s->head_n;
        int64_t n = want < most ? want : most;
        get(net, s, s->rx_head + s->head_n, n);
        s->head_n += n;
        return true;
    }
    while (s->rx_span < s->rx.n_spans && most > 0) {
        ru_span *to = &s->rx.spans[s->rx_span];
        int64_t n = to->size_bytes - s->rx_inside;
        n = n < most ? n : most;
        get(net, s, to->data != NULL ? (uint8_t *)to->data + s->rx_inside : NULL, n);
        s->rx_inside += n;
        most -= n;
        if (s->rx_inside == to->size_bytes) {
            s->rx_span++;
            s->rx_inside = 0;
        }
    }
    if (s->rx_span == s->rx.n_spans) {
        s->rx_live = false;
        if (s->rx.more) {
            return true; /* the header stands: asked again */
        }
        s->head_n = 0;
        ru_status st = me->user->body(me->user->self, id, net->now);
        if (st != RU_OK && side_of(net, id) == s) {
            closed(net, i, st, "refused by the user");
        }
    }
    return true;
}

static bool act(ru_pipe *net, uint32_t i)
{
    side *s = &net->sides[i];
    if (!s->used || s->raw) {
        return false;
    }
    const node *me = &net->nodes[s->node];
    if (s->open_due) {
        s->open_due = false;
        const char *from = s->accepted && s->other != UINT32_MAX && !net->sides[s->other].raw
                               ? net->nodes[net->sides[s->other].node].address
                               : "outside:1";
        me->user->opened(me->user->self, id_of(net, i), s->accepted, from, net->now);
        return true;
    }
    if (s->eof && (s->n == 0 || s->paused)) {
        closed(net, i, s->why, "the other side is gone");
        return true;
    }
    bool first_reads = ru_rng_below(&net->rng, 2) != 0;
    return first_reads ? act_read(net, i) || act_write(net, i)
                       : act_write(net, i) || act_read(net, i);
}

bool ru_pipe_step(ru_pipe *net)
{
    net->now.ns += net->opt.step_ns;
    if (net->n_sides == 0) {
        return false;
    }
    uint32_t from = ru_rng_below(&net->rng, net->n_sides);
    for (uint32_t k = 0; k < net->n_sides; k++) {
        if (act(net, (from + k) % net->n_sides)) {
            return true;
        }
    }
    return false;
}

bool ru_pipe_cut(ru_pipe *net)
{
    if (net->n_sides == 0) {
        return false;
    }
    uint32_t from = ru_rng_below(&net->rng, net->n_sides);
    for (uint32_t k = 0; k < net->n_sides; k++) {
        side *s = &net->sides[(from + k) % net->n_sides];
        if (!s->used || s->raw || s->other == UINT32_MAX || s->open_due) {
            continue;
        }
        side *o = &net->sides[s->other];
        s->eof = o->eof = true;
        s->n = o->n = 0;
        s->other = o->other = UINT32_MAX;
        return true;
    }
    return false;
}

/* -- from outside --------------------------------------------------------------------------------
 */

uint32_t ru_pipe_raw(ru_pipe *net, uint32_t i)
{
    uint32_t a = side_new(net, i), b = side_new(net, i);
    net->sides[a].raw = true;
    net->sides[a].other = b;
    net->sides[b].other = a;
    net->sides[b].accepted = true;
    return a;
}

bool ru_pipe_raw_live(const ru_pipe *net, uint32_t raw)
{
    return net->sides[raw].used && net->sides[raw].other != UINT32_MAX;
}

int64_t ru_pipe_raw_write(ru_pipe *net, uint32_t raw, const void *data, int64_t size_bytes)
{
    if (!ru_pipe_raw_live(net, raw)) {
        return 0;
    }
    side *to = &net->sides[net->sides[raw].other];
    int64_t n = net->opt.queue_bytes - to->n;
    n = n < size_bytes ? n : size_bytes;
    put(net, to, data, n);
    return n;
}

int64_t ru_pipe_raw_read(ru_pipe *net, uint32_t raw, void *into, int64_t size_max_bytes)
{
    side *s = &net->sides[raw];
    int64_t n = s->n < size_max_bytes ? s->n : size_max_bytes;
    get(net, s, into, n);
    return n;
}

void ru_pipe_raw_close(ru_pipe *net, uint32_t raw)
{
    if (net->sides[raw].used) {
        side_drop(net, &net->sides[raw]);
    }
}

int64_t ru_pipe_tapped(const ru_pipe *net, uint32_t at, uint32_t nth, void *into, int64_t max)
{
    for (uint32_t i = 0; i < net->n_taps; i++) {
        const tap *t = &net->taps[i];
        if (t->node == at && nth-- == 0) {
            int64_t n = t->n < max ? t->n : max;
            memcpy(into, t->data, (size_t)n);
            return n;
        }
    }
    return 0;
}

uint32_t ru_pipe_side(const ru_pipe *net, uint32_t a, ru_link_class class)
{
    for (uint32_t i = 0; i < net->n_sides; i++) {
        const side *s = &net->sides[i];
        if (s->used && !s->raw && s->node == a && s->class == class && s->other != UINT32_MAX) {
            return i;
        }
    }
    return UINT32_MAX;
}

bool ru_pipe_inject(ru_pipe *net, uint32_t i, const void *data, int64_t size_bytes)
{
    side *s = &net->sides[i];
    if (!s->used || s->other == UINT32_MAX || s->tx_live ||
        net->sides[s->other].n + size_bytes > net->opt.queue_bytes) {
        return false;
    }
    put(net, &net->sides[s->other], data, size_bytes);
    return true;
}
