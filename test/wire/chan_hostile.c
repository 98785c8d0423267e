#include "test/wire/chan_hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/chan/chan_impl.h"
#include "lab/worlds/pipe.h"

enum { VICTIM, HONEST, EVIL, HOSTS, SLOTS = 6, SLOT_BYTES = 3000, EDGE = 64, GIFT = 5000 };

typedef struct attack attack;

typedef struct host {
    attack *a;
    uint32_t index, node;
    ru_chan *ch;
    ru_arena arena;
    ru_time tick_at;
    char address[16];
    bool up[HOSTS];
    uint32_t downs[HOSTS];
} host;

struct attack {
    ru_pipe *net;
    ru_rng rng;
    const uint8_t *data;
    int64_t left;
    host hosts[HOSTS];
    uint8_t slots[SLOTS][EDGE + SLOT_BYTES + EDGE]; /* the victim's, for the evil one's streams */
    ru_span spans[SLOTS];
    ru_xfer_id ids[SLOTS];
    uint32_t iter;
    uint8_t gift[GIFT], taken[GIFT]; /* honest bytes */
    uint32_t gifts, messages;
    bool gift_open;
    const char *wrong;
    ru_chan_hostile_report report;
};

static uint64_t draw(attack *a)
{
    if (a->data == NULL) {
        return ru_rng_u64(&a->rng);
    }
    uint64_t v = 0;
    for (uint32_t i = 0; i < 8 && a->left > 0; i++, a->left--) {
        v |= (uint64_t)*a->data++ << (8 * i);
    }
    return v;
}

static uint32_t below(attack *a, uint32_t n)
{
    return (uint32_t)(draw(a) % n);
}

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    host *h = self;
    (void)address;
    (void)now;
    h->up[node.v - 1] = true;
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    host *h = self;
    (void)address;
    (void)why;
    (void)now;
    if (node.v != 0) {
        h->up[node.v - 1] = false;
        h->downs[node.v - 1]++;
    }
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    host *h = self;
    (void)data;
    (void)now;
    if (h->index == VICTIM && from.v == HONEST + 1) {
        bool right = what == h->a->messages && size_bytes == (int64_t)(what % 700);
        h->a->wrong = right ? h->a->wrong : "an honest message is wrong";
        h->a->messages++;
    }
}

static void on_end(void *self, uint64_t cookie, ru_time now)
{
    (void)self;
    (void)cookie;
    (void)now;
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    host *h = self;
    (void)why;
    (void)now;
    if (h->index == HONEST || cookie == 1000) {
        h->a->wrong = "an honest stream failed";
    }
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    host *h = self;
    (void)now;
    if (cookie == 1000) {
        h->a->gift_open = false;
        h->a->report.honest++;
        if (memcmp(h->a->gift, h->a->taken, GIFT) != 0) {
            h->a->wrong = "honest bytes are wrong";
        }
    }
}

static void on_tick_at(void *self, ru_time at)
{
    ((host *)self)->tick_at = at;
}

static void open_host(attack *a, uint32_t i)
{
    host *h = &a->hosts[i];
    h->a = a;
    h->index = i;
    ru_arena_init(&h->arena, 0);
    snprintf(h->address, sizeof h->address, "h%u:1", i);
    h->node = ru_pipe_node(a->net, h->address);
    ru_chan_options opt = {.self = {i + 1},
                           .address = h->address,
                           .job = 1,
                           .token = (const uint8_t *)"t",
                           .token_bytes = 1,
                           .peers_max = 4,
                           .streams_max = 16,
                           .slots_max = 16,
                           .grants = i == VICTIM};
    ru_chan_user user = {.self = h,
                         .up = on_up,
                         .down = on_down,
                         .message = on_message,
                         .sent = on_end,
                         .failed = on_failed,
                         .arrived = on_arrived,
                         .tick_at = on_tick_at};
    ru_link link = ru_pipe_link(a->net, h->node);
    RU_CHECK(ru_chan_open(&opt, &link, &user, &h->arena, &h->ch, NULL) == RU_OK);
    ru_pipe_user(a->net, h->node, ru_chan_link_user(h->ch));
}

static void move(attack *a, uint32_t steps)
{
    for (uint32_t k = 0; k < steps; k++) {
        if (!ru_pipe_step(a->net)) {
            ru_pipe_wait(a->net, 20000);
        }
        for (uint32_t i = 0; i < HOSTS; i++) {
            host *h = &a->hosts[i];
            if (h->tick_at.ns <= ru_pipe_now(a->net).ns) {
                h->tick_at = ru_chan_tick(h->ch, ru_pipe_now(a->net));
            }
        }
    }
}

/* A frame that could almost be one. */
static int64_t make_frame(attack *a, uint8_t *buf, int64_t max, uint32_t seq)
{
    static const uint32_t lens[] = {0, 1, 16, 40, 48, 64, 100, 700, 3000};
    rui_frame f = {.type = (rui_frame_type)(1 + below(a, RUI_FRAME_TYPES - 1)),
                   .class = (uint8_t)below(a, 4),
                   .flags = (uint8_t)(below(a, 16) & below(a, 16)),
                   .rank = (uint16_t)below(a, 5),
                   .iter = a->iter + below(a, 2)};
    f.flags &= (uint8_t)~RUI_CRC;
    f.len = lens[below(a, RU_ARRAY_LEN(lens))];
    f.stream = below(a, SLOTS + 2);
    f.offset = below(a, 3) == 0 ? draw(a) : below(a, SLOT_BYTES + 1);
    f.deadline = below(a, 8) == 0 ? (uint32_t)draw(a) : seq;
    if (f.type == RUI_DATA && below(a, 4) != 0) {
        f.len = f.len > 0 ? f.len : 1;
        f.offset %= SLOT_BYTES;
    }
    uint8_t head[RU_LINK_HEAD_BYTES];
    rui_frame_encode(&f, head);
    for (uint32_t k = below(a, 4) == 0 ? 1 + below(a, 3) : 0; k > 0; k--) {
        head[below(a, sizeof head)] ^= (uint8_t)(1u << below(a, 8));
    }
    memcpy(buf, head, sizeof head);
    int64_t n = RU_LINK_HEAD_BYTES;
    uint64_t fill = draw(a);
    for (; n < RU_LINK_HEAD_BYTES + (int64_t)f.len && n < max; n++) {
        buf[n] = (uint8_t)(fill >> (8 * (n % 8)));
    }
    return n;
}

static void attack_before(attack *a)
{
    uint8_t buf[8192];
    uint32_t raw = ru_pipe_raw(a->net, a->hosts[VICTIM].node);
    if (below(a, 2) == 0) { /* a right greeting, then something */
        rui_hello hello = {.job = 1, .node = 1 + below(a, 5), .pair = 7};
        rui_frame f = {.type = RUI_HELLO, .class = (uint8_t)below(a, 2)};
        f.len = (uint32_t)rui_hello_encode(&hello, buf + RU_LINK_HEAD_BYTES);
        rui_frame_encode(&f, buf);
        ru_pipe_raw_write(a->net, raw, buf, RU_LINK_HEAD_BYTES + f.len);
    }
    for (uint32_t k = 1 + below(a, 3); k > 0; k--) {
        int64_t n = make_frame(a, buf, sizeof buf, 1);
        ru_pipe_raw_write(a->net, raw, buf, n);
        a->report.frames_before++;
    }
    move(a, 20);
    ru_pipe_raw_close(a->net, raw);
}

static void post_for_evil(attack *a)
{
    ru_time now = ru_pipe_now(a->net);
    ru_chan *ch = a->hosts[VICTIM].ch;
    a->iter++;
    for (uint32_t i = 0; i < SLOTS; i++) {
        ru_chan_unpost(ch, a->ids[i], now);
        a->spans[i] = (ru_span){a->slots[i] + EDGE, SLOT_BYTES};
        ru_chan_post_in in = {.from = {EVIL + 1},
                              .name = {i, a->iter},
                              .spans = &a->spans[i],
                              .n_spans = 1,
                              .cookie = i};
        if (ru_chan_post(ch, &in, now, &a->ids[i]) != RU_OK) {
            a->ids[i] = (ru_xfer_id){0};
        }
    }
}

static void attack_after(attack *a)
{
    host *evil = &a->hosts[EVIL], *victim = &a->hosts[VICTIM];
    if (!evil->up[VICTIM] || !victim->up[EVIL]) {
        ru_status st = RU_OK;
        for (uint32_t k = 0; k < 60 && (!evil->up[VICTIM] || !victim->up[EVIL]); k++) {
            bool apart = !evil->up[VICTIM] && k % 20 == 0;
            st = apart ? ru_chan_connect(evil->ch, victim->address, ru_pipe_now(a->net), NULL) : st;
            move(a, 60);
        }
        return;
    }
    if (below(a, 3) == 0) {
        post_for_evil(a);
    }
    uint8_t buf[8192];
    uint32_t p = rui_peer_find(evil->ch, VICTIM + 1);
    uint32_t side = ru_pipe_side(a->net, evil->node, (ru_link_class)below(a, 2));
    for (uint32_t k = 1 + below(a, 3); k > 0 && p != RUI_NONE && side != UINT32_MAX; k--) {
        int64_t n = make_frame(a, buf, sizeof buf, (uint32_t)(evil->ch->peers[p].tx_seq + 1));
        a->report.frames_after += ru_pipe_inject(a->net, side, buf, n);
        move(a, 12);
        p = rui_peer_find(evil->ch, VICTIM + 1);
        side = ru_pipe_side(a->net, evil->node, (ru_link_class)below(a, 2));
    }
    move(a, 20);
}

static void honest(attack *a)
{
    ru_time now = ru_pipe_now(a->net);
    host *h = &a->hosts[HONEST], *v = &a->hosts[VICTIM];
    uint8_t buf[700] = {0};
    if (ru_chan_message(h->ch, (ru_node_id){VICTIM + 1}, a->gifts, buf, a->gifts % 700, now) !=
        RU_OK) {
        a->wrong = "an honest message was refused";
    }
    if (!a->gift_open) {
        for (uint32_t i = 0; i < GIFT; i++) {
            a->gift[i] = (uint8_t)(i * 3 + a->gifts);
        }
        memset(a->taken, 0, GIFT);
        ru_span from = {a->gift, GIFT}, to = {a->taken, GIFT};
        ru_stream_name name = {99, a->gifts};
        ru_xfer_id id;
        ru_chan_post_in in = {
            .from = {HONEST + 1}, .name = name, .spans = &to, .n_spans = 1, .cookie = 1000};
        ru_chan_send_in out = {.to = {VICTIM + 1},
                               .name = name,
                               .class = RU_CLASS_NORMAL,
                               .spans = &from,
                               .n_spans = 1,
                               .cookie = 1001};
        if (ru_chan_post(v->ch, &in, now, &id) != RU_OK ||
            ru_chan_send(h->ch, &out, now, &id) != RU_OK) {
            a->wrong = "an honest stream was refused";
        }
        a->gift_open = true;
    }
    a->gifts++;
}

static uint32_t cells_taken(const rui_cells *c)
{
    uint32_t n = c->used;
    for (uint32_t i = c->free; i != RUI_NONE; i = c->next[i]) {
        n--;
    }
    return n;
}

static uint32_t chain_large(const rui_blocks *b, uint32_t chain)
{
    uint32_t n = 0;
    for (; chain != RUI_NONE && (chain & RUI_BLOCK_IS_SMALL) == 0; chain = b->large.next[chain]) {
        n++;
    }
    return n;
}

/* Everything that is taken belongs to a peer's items, an early slot or an arriving frame. */
static void check_memory(attack *a, ru_chan *ch)
{
    uint32_t items = 0, small = 0, large = 0;
    for (uint32_t i = 0; i < ch->peers_used; i++) {
        const rui_peer *p = &ch->peers[i];
        for (uint32_t k = p->item_first; k != RUI_NONE;) {
            const rui_item *it = rui_cells_at(&ch->items, k);
            items++;
            small += it->block != RUI_NONE && (it->block & RUI_BLOCK_IS_SMALL) != 0;
            large += chain_large(&ch->blocks, it->block);
            k = it->next;
        }
        if (p->state == RUI_PEER_FREE && p->item_first != RUI_NONE) {
            a->wrong = "a peer that is gone keeps frames";
        }
    }
    for (uint32_t i = 0; i < rui_ingress_used(ch->ingress); i++) {
        const rui_slot *s = rui_ingress_slot(ch->ingress, i);
        if (s->state == RUI_SLOT_EARLY) {
            small += (s->block & RUI_BLOCK_IS_SMALL) != 0;
            large += chain_large(&ch->blocks, s->block);
        }
    }
    for (uint32_t i = 0; i < ch->conns_used; i++) {
        const rui_conn *c = &ch->conns[i];
        if (c->state != RUI_CONN_FREE && c->rx_block != RUI_NONE) {
            small += (c->rx_block & RUI_BLOCK_IS_SMALL) != 0;
            large += chain_large(&ch->blocks, c->rx_block);
        }
    }
    if (items != cells_taken(&ch->items) || small != cells_taken(&ch->blocks.small) ||
        large != cells_taken(&ch->blocks.large)) {
        a->wrong = "memory of frames is lost";
    }
}

static void check(attack *a)
{
    for (uint32_t i = 0; i < HOSTS; i++) {
        check_memory(a, a->hosts[i].ch);
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        for (uint32_t k = 0; k < EDGE; k++) {
            if (a->slots[i][k] != 0xab || a->slots[i][EDGE + SLOT_BYTES + k] != 0xab) {
                a->wrong = "bytes beside a slot";
            }
        }
    }
    const host *v = &a->hosts[VICTIM];
    if (!v->up[HONEST] || v->downs[HONEST] > 0 || a->hosts[HONEST].downs[VICTIM] > 0) {
        a->wrong = "the honest peer was lost";
    }
    if (v->ch->unproved > v->ch->unproved_max) {
        a->wrong = "too many connections without a proof";
    }
}

ru_status ru_chan_hostile(uint64_t seed, int64_t frames, const uint8_t *data, int64_t size_bytes,
                          ru_chan_hostile_report *report, ru_err *err)
{
    attack *a = calloc(1, sizeof *a);
    RU_CHECK(a != NULL);
    a->rng = ru_rng_from(seed, ru_rng_label("hostile"));
    a->net = ru_pipe_new(&(ru_pipe_options){.seed = seed, .queue_bytes = 16 << 10});
    memset(a->slots, 0xab, sizeof a->slots);
    for (uint32_t i = 0; i < HOSTS; i++) {
        open_host(a, i);
    }
    ru_status st =
        ru_chan_connect(a->hosts[HONEST].ch, a->hosts[VICTIM].address, ru_pipe_now(a->net), NULL);
    RU_CHECK(st == RU_OK);
    move(a, 400);
    RU_CHECK(a->hosts[VICTIM].up[HONEST]);
    a->data = data;
    a->left = size_bytes;
    ru_chan_hostile_report *r = &a->report;
    for (int64_t k = 0; a->wrong == NULL; k++) {
        if (data != NULL ? a->left == 0 : r->frames_before + r->frames_after >= frames) {
            break;
        }
        if (below(a, 3) == 0) {
            attack_before(a);
        } else {
            attack_after(a);
        }
        if (k % 8 == 0) {
            honest(a);
            check(a);
        }
    }
    a->data = NULL;
    move(a, 5000);
    check(a);
    if (a->wrong == NULL && (a->gift_open || a->messages != a->gifts)) {
        a->wrong = "honest bytes never came";
    }
    ru_chan_stats stats;
    ru_chan_stats_get(a->hosts[VICTIM].ch, &stats);
    r->refused = stats.refused;
    *report = *r;
    for (uint32_t i = 0; i < HOSTS; i++) {
        ru_chan_close(a->hosts[i].ch);
        ru_arena_fini(&a->hosts[i].arena);
    }
    ru_pipe_free(a->net);
    const char *wrong = a->wrong;
    free(a);
    return wrong == NULL ? RU_OK
                         : RU_FAIL(err, RU_E_BUG, "%s; again: build/test/chan-storm hostile %llu",
                                   wrong, (unsigned long long)seed);
}
