#include "comm/chan/egress_impl.h"

enum { AGE_FACTOR = 4 };
enum { RATE_GUESS = 12500000 /* bytes/s, until one is measured */ };
/* The lesser lines get what is left of 97 % of the rate; in one sample of 20, of 125 %, to see
 * whether there is more. */
enum { PROBE_EVERY = 20, BUSY_MAX_NS = 20000000 };
static const double LEAVE = 0.97, PROBE = 1.25;
enum { AGE_MIN_NS = 4000000, CONTROL_FREE_BYTES = 256 << 10 };
enum { WIRE_FACTOR = 4 }; /* a chunk keeps others waiting for so many of its times at most */

static bool key_before(const void *self, uint32_t a, uint32_t b)
{
    const rui_egress *e = self;
    const rui_key *x = &e->items[a].key, *y = &e->items[b].key;
    int order = rui_key_order(x, y);
    return order != 0 ? order < 0 : x->arrival < y->arrival;
}

static bool age_before(const void *self, uint32_t a, uint32_t b)
{
    const rui_egress *e = self;
    const rui_egress_item *x = &e->items[a], *y = &e->items[b];
    return x->age_at.ns != y->age_at.ns ? x->age_at.ns < y->age_at.ns
                                        : x->key.arrival < y->key.arrival;
}

static bool line_before(const void *self, uint32_t a, uint32_t b)
{
    const rui_egress *e = self;
    const rui_egress_line_rec *x = &e->lines[a], *y = &e->lines[b];
    int order = rui_key_order(&e->items[x->root].key, &e->items[y->root].key);
    if (order != 0) {
        return order < 0;
    }
    return x->served != y->served ? x->served < y->served : a < b;
}

ru_status rui_egress_open(const rui_egress_options *opt, ru_arena *arena, rui_egress **out,
                          ru_err *err)
{
    rui_egress *e = RU_NEW(arena, rui_egress, 1);
    if (e == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the egress scheduler");
    }
    int64_t n = opt->streams_max;
    e->opt = *opt;
    e->items = ru_arena_alloc(arena, n * (int64_t)sizeof *e->items, 64);
    e->queued = ru_arena_alloc(arena, n * (int64_t)sizeof *e->queued, 64);
    e->rows = ru_arena_alloc(arena, n * (int64_t)sizeof *e->rows, 64);
    e->lines = RU_NEW(arena, rui_egress_line_rec, opt->lines_max);
    rui_pnode *by_key = ru_arena_alloc(arena, n * (int64_t)sizeof *by_key, 64);
    rui_pnode *by_age = ru_arena_alloc(arena, n * (int64_t)sizeof *by_age, 64);
    rui_pnode *all = RU_NEW(arena, rui_pnode, opt->lines_max);
    rui_pnode *room = RU_NEW(arena, rui_pnode, opt->lines_max);
    if (e->items == NULL || e->queued == NULL || e->rows == NULL || e->lines == NULL ||
        by_key == NULL || by_age == NULL || all == NULL || room == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u streams of the egress scheduler",
                       opt->streams_max);
    }
    e->by_key = (rui_pheap){by_key, key_before, e};
    e->by_age = (rui_pheap){by_age, age_before, e};
    e->all_lines = (rui_pheap){all, line_before, e};
    e->room_lines = (rui_pheap){room, line_before, e};
    e->age_root = e->all_root = e->room_root = RUI_NONE;
    for (uint32_t i = 0; i < opt->lines_max; i++) {
        e->lines[i].root = e->lines[i].last = RUI_NONE;
    }
    e->rate = e->rate_max = e->rate_keys = opt->rate_bytes_per_s;
    e->chunk_bytes = opt->chunk_bytes > 0 ? opt->chunk_bytes : rui_egress_chunk_min(e->rate);
    e->tainted = true;
    *out = e;
    return RU_OK;
}

/* -- lines in the two heaps of lines -------------------------------------------------------------
 */

static void line_out(rui_egress *e, uint32_t line)
{
    rui_egress_line_rec *l = &e->lines[line];
    if (l->in_all) {
        rui_pheap_remove(&e->all_lines, &e->all_root, line);
    }
    if (l->in_room) {
        rui_pheap_remove(&e->room_lines, &e->room_root, line);
    }
    l->in_all = l->in_room = false;
}

static void line_in(rui_egress *e, uint32_t line)
{
    rui_egress_line_rec *l = &e->lines[line];
    RU_DCHECK(!l->in_all && !l->in_room);
    if (l->root == RUI_NONE || l->state == RUI_LINE_CLOSED) {
        return;
    }
    rui_pheap_push(&e->all_lines, &e->all_root, line);
    l->in_all = true;
    if (l->state != RUI_LINE_FULL) {
        rui_pheap_push(&e->room_lines, &e->room_root, line);
        l->in_room = true;
    }
}

void rui_egress_line(rui_egress *e, uint32_t line, bool open)
{
    RU_CHECK(line < e->opt.lines_max);
    line_out(e, line);
    e->lines[line].state = open ? RUI_LINE_ROOM : RUI_LINE_CLOSED;
    line_in(e, line);
}

void rui_egress_line_rtt(rui_egress *e, uint32_t line, int64_t rtt_ns)
{
    e->lines[line].rtt_ns = rtt_ns;
}

/* -- streams -------------------------------------------------------------------------------------
 */

static bool queued(const rui_egress *e, uint32_t s)
{
    return s < e->streams_used && e->items[s].place != RUI_NONE;
}

bool rui_egress_has(const rui_egress *e, uint32_t s)
{
    return queued(e, s);
}

void rui_egress_key(rui_egress *e, rui_egress_item *it)
{
    if (it->aged_out) {
        return;
    }
    if (it->deadline.ns == 0) {
        it->key.start_ns = INT64_MAX;
        return;
    }
    double rate = e->rate_keys;
    double needs_ns = rate > 0 ? (double)it->bytes / rate * 1e9 : 0;
    needs_ns = needs_ns < 1e17 ? needs_ns : 1e17;
    it->key.start_ns = it->deadline.ns - (int64_t)needs_ns - e->lines[it->line].rtt_ns / 2;
}

void rui_egress_rekey(rui_egress *e, uint32_t s, const rui_key *key)
{
    rui_egress_item *it = &e->items[s];
    line_out(e, it->line);
    rui_pheap_remove(&e->by_key, &e->lines[it->line].root, s);
    it->key = *key;
    rui_pheap_push(&e->by_key, &e->lines[it->line].root, s);
    line_in(e, it->line);
}

int64_t rui_egress_solo_ns(const rui_egress *e, int64_t bytes)
{
    double rate = e->rate > 0 ? e->rate : RATE_GUESS; /* a slow guess: nothing ages too soon */
    double ns = (double)bytes / rate * 1e9;
    return ns < 1e15 ? (int64_t)ns : (int64_t)1e15;
}

void rui_egress_count(rui_egress *e, ru_time now)
{
    int64_t ns = ru_time_since(now, e->on_wire_at);
    ns = ns < e->on_wire_max_ns ? ns : e->on_wire_max_ns;
    ns = ns > 0 ? ns : 0;
    e->class_ns[e->on_wire_class] += ns;
    e->due_ns[e->on_wire_class] += e->on_wire_due ? ns : 0;
    e->on_wire_max_ns -= ns;
    e->on_wire_at = now;
}

int64_t rui_egress_behind(const rui_egress *e, const rui_egress_item *it)
{
    int64_t ns = e->due_ns[it->key.class];
    for (uint32_t c = 0; c < it->key.class; c++) {
        ns += e->class_ns[c];
    }
    return ns;
}

static void start_aging(rui_egress *e, rui_egress_item *it, ru_time now)
{
    it->age_ns = AGE_FACTOR * rui_egress_solo_ns(e, it->total_bytes);
    it->age_ns = it->age_ns > AGE_MIN_NS ? it->age_ns : AGE_MIN_NS;
    it->waits_from = rui_egress_behind(e, it);
    it->age_at = ru_time_after(now, it->age_ns);
}

void rui_egress_add(rui_egress *e, uint32_t s, const rui_egress_stream *in, ru_time now)
{
    RU_CHECK(s < e->opt.streams_max);
    RU_CHECK(in->line < e->opt.lines_max && in->bytes > 0);
    RU_CHECK(in->class < RUI_EGRESS_CLASSES);
    while (e->streams_used <= s) {
        e->items[e->streams_used++].place = RUI_NONE;
    }
    RU_CHECK(e->items[s].place == RUI_NONE);
    rui_egress_item *it = &e->items[s];
    *it = (rui_egress_item){.line = in->line,
                            .bytes = in->bytes,
                            .total_bytes = in->total_bytes,
                            .deadline = in->deadline,
                            .place = e->n_queued};
    it->started = in->bytes < in->total_bytes;
    uint8_t class = in->class == 0 && rui_egress_control_spent(e) ? 1 : in->class;
    rui_egress_count(e, now);
    it->key = (rui_key){.class = class, .rank = in->rank, .arrival = e->arrivals++};
    rui_egress_key(e, it);
    e->queued[e->n_queued++] = s;
    e->n_deadlines += in->deadline.ns != 0;
    line_out(e, it->line);
    rui_pheap_push(&e->by_key, &e->lines[it->line].root, s);
    line_in(e, it->line);
    start_aging(e, it, now);
    rui_pheap_push(&e->by_age, &e->age_root, s);
}

void rui_egress_remove(rui_egress *e, uint32_t s)
{
    if (!queued(e, s)) {
        return;
    }
    rui_egress_item *it = &e->items[s];
    line_out(e, it->line);
    rui_pheap_remove(&e->by_key, &e->lines[it->line].root, s);
    line_in(e, it->line);
    rui_pheap_remove(&e->by_age, &e->age_root, s);
    uint32_t last = e->queued[--e->n_queued];
    e->queued[it->place] = last;
    e->items[last].place = it->place;
    it->place = RUI_NONE;
    e->n_deadlines -= it->deadline.ns != 0;
    e->tainted = e->tainted || e->n_queued == 0;
}

/* -- choosing ------------------------------------------------------------------------------------
 */

/* May `line`, the best of those with room, send now? Yes when no full line has better, or when the
 * better ones leave some of the interface. */
static bool gate_open(rui_egress *e, uint32_t line, ru_time now)
{
    uint32_t best = e->all_root;
    if (best == line || e->rate_max <= 0 || e->busy_until.ns <= now.ns) {
        return true;
    }
    const rui_key *a = &e->items[e->lines[best].root].key;
    if (rui_key_order(a, &e->items[e->lines[line].root].key) >= 0) {
        return true;
    }
    e->gate_at = e->busy_until;
    e->gated = true;
    return false;
}

bool rui_egress_pick(rui_egress *e, uint32_t line, ru_time now, uint32_t *s)
{
    RU_CHECK(line < e->opt.lines_max);
    rui_egress_line_rec *l = &e->lines[line];
    if (l->state == RUI_LINE_CLOSED) {
        return false;
    }
    if (l->state == RUI_LINE_FULL) {
        line_out(e, line);
        l->state = RUI_LINE_ROOM;
        line_in(e, line);
    }
    l->state = RUI_LINE_ROOM;
    if (l->root == RUI_NONE || e->room_root != line || !gate_open(e, line, now)) {
        return false;
    }
    *s = l->root;
    return true;
}

static void count(rui_egress *e, uint32_t line, uint32_t s)
{
    rui_egress_line_rec *l = &e->lines[line];
    if (l->last != RUI_NONE && l->last != s && queued(e, l->last) &&
        e->items[l->last].line == line && e->items[l->last].started) {
        e->preemptions++;
    }
    if (e->all_root != line &&
        rui_key_order(&e->items[e->lines[e->all_root].root].key, &e->items[s].key) < 0) {
        e->inversions++;
    }
}

static void spend(rui_egress *e, int64_t bytes, bool control, ru_time now)
{
    e->all_bytes += bytes;
    e->control_bytes += control ? bytes : 0;
    if (e->rate_max > 0) {
        int64_t from = e->busy_until.ns > now.ns ? e->busy_until.ns : now.ns;
        double pace = e->rate_max * (e->samples % PROBE_EVERY == 0 ? PROBE : LEAVE);
        from += (int64_t)((double)bytes / pace * 1e9);
        e->busy_until.ns = from < now.ns + BUSY_MAX_NS ? from : now.ns + BUSY_MAX_NS;
    }
}

static void put_on_wire(rui_egress *e, rui_egress_item *it, int64_t bytes, ru_time now)
{
    rui_egress_count(e, now);
    e->on_wire_class = it->key.class;
    e->on_wire_due = it->key.start_ns != INT64_MAX;
    e->on_wire_max_ns = WIRE_FACTOR * rui_egress_solo_ns(e, bytes);
    it->waits_from = rui_egress_behind(e, it);
}

void rui_egress_took(rui_egress *e, uint32_t s, int64_t bytes, ru_time now)
{
    RU_CHECK(queued(e, s));
    rui_egress_item *it = &e->items[s];
    uint32_t line = it->line;
    rui_egress_line_rec *l = &e->lines[line];
    RU_CHECK(bytes > 0 && bytes <= it->bytes);
    count(e, line, s);
    spend(e, bytes, it->key.class == 0, now);
    e->wire_until = ru_time_after(e->wire_until.ns > now.ns ? e->wire_until : now,
                                  rui_egress_solo_ns(e, bytes));
    l->last = s;
    l->served = ++e->services;
    it->bytes -= bytes;
    it->started = true;
    put_on_wire(e, it, bytes, now);
    line_out(e, line);
    l->state = RUI_LINE_FULL;
    line_in(e, line);
    if (it->bytes == 0) {
        rui_egress_remove(e, s);
        return;
    }
    rui_key before = it->key;
    rui_egress_key(e, it);
    if (it->key.start_ns != before.start_ns) {
        rui_key key = it->key;
        it->key = before;
        rui_egress_rekey(e, s, &key);
    }
}

uint32_t rui_egress_wake(rui_egress *e, ru_time now)
{
    uint32_t line = e->room_root;
    if (line == RUI_NONE || e->lines[line].state == RUI_LINE_WOKEN || !gate_open(e, line, now)) {
        return RUI_NONE;
    }
    e->lines[line].state = RUI_LINE_WOKEN;
    return line;
}

ru_time rui_egress_gate(const rui_egress *e)
{
    return e->gate_at;
}

void rui_egress_beside(rui_egress *e, int64_t bytes, bool control)
{
    e->control_bytes += control ? bytes : 0;
    e->all_bytes += bytes;
}

bool rui_egress_control_spent(const rui_egress *e)
{
    return e->control_bytes > CONTROL_FREE_BYTES && e->control_bytes > e->all_bytes / 50;
}

bool rui_egress_urgent(const rui_egress *e)
{
    return e->all_root != RUI_NONE && e->items[e->lines[e->all_root].root].key.class <= 1;
}

int64_t rui_egress_chunk(const rui_egress *e)
{
    return e->chunk_bytes;
}
double rui_egress_rate(const rui_egress *e)
{
    return e->rate;
}
uint32_t rui_egress_queued(const rui_egress *e)
{
    return e->n_queued;
}
int64_t rui_egress_preemptions(const rui_egress *e)
{
    return e->preemptions;
}
int64_t rui_egress_inversions(const rui_egress *e)
{
    return e->inversions;
}
