/* The scheduler in time: rate, chunk size, aging, predicted lateness. */
#include "comm/chan/egress_impl.h"

enum {
    SAMPLE_NS = 10000000,
    SAMPLE_MAX_NS = 1000000000,
    SAMPLE_BYTES = 16 << 10, /* of a sample that is not as long */
    WINDOW_NS = 1000000000,  /* the largest rate of one to two of these bounds lesser lines */
    LATE_NS = 5000000,
    LATE_NS_PER_STREAM = 5000, /* sorting costs about 0.1 us a stream: 2 % of a core */
    BUDGET_NS = 1000000000,
    CHUNK_STEP = 16 << 10,
    CHUNK_MIN = 64 << 10,
    CHUNK_LEAST = 4 << 10, /* the header is 1 % of it */
    CHUNK_MAX = 4 << 20,
    IDLE_NS = 100000000,
    BUSY_NS = SAMPLE_NS,
    DEADLINES_NS = 2000000,
    LOOK_MAX = 64,
};

int64_t rui_egress_chunk_min(double rate)
{
    double most = rate * 0.02;
    most = most < CHUNK_LEAST ? CHUNK_LEAST : most;
    return rate > 0 && most < CHUNK_MIN ? (int64_t)most / CHUNK_LEAST * CHUNK_LEAST : CHUNK_MIN;
}

/* 0.5 ms worth, in steps of 16 KiB; stays where it is within a step and a half. On slow links at
 * most 20 ms worth, in steps of 4 KiB; grows by a step and a half. */
static void set_chunk(rui_egress *e)
{
    if (e->opt.chunk_bytes > 0 || e->rate <= 0) {
        return;
    }
    int64_t least = rui_egress_chunk_min(e->rate);
    double slow = e->rate * 0.02;
    if (least < CHUNK_MIN || e->chunk_bytes < CHUNK_MIN) {
        bool grows = slow >= (double)e->chunk_bytes + 1.5 * CHUNK_LEAST;
        e->chunk_bytes = grows || slow < (double)e->chunk_bytes ? least : e->chunk_bytes;
        return;
    }
    double want = e->rate * 0.0005;
    want = want < CHUNK_MIN ? CHUNK_MIN : want > CHUNK_MAX ? CHUNK_MAX : want;
    double off = want - (double)e->chunk_bytes;
    if (off < -1.5 * CHUNK_STEP || off > 1.5 * CHUNK_STEP || want <= CHUNK_MIN) {
        e->chunk_bytes = (int64_t)(want + CHUNK_STEP / 2) / CHUNK_STEP * CHUNK_STEP;
    }
}

void rui_egress_acked(rui_egress *e, int64_t bytes, ru_time now)
{
    RU_CHECK(bytes >= 0);
    e->sample_bytes += bytes;
    int64_t span_ns = ru_time_since(now, e->sample_at);
    if (span_ns < SAMPLE_NS) {
        return;
    }
    int64_t least = e->rate > 0 ? SAMPLE_BYTES : 1;
    if (!e->tainted && e->sample_bytes < least && span_ns < SAMPLE_MAX_NS) {
        return; /* a chunk takes long on this link: of a few, one more or less says little */
    }
    bool grew = false;
    if (!e->tainted && e->sample_bytes > 0) {
        double rate = (double)e->sample_bytes * 1e9 / (double)span_ns;
        rate = e->gated && rate < e->rate ? e->rate : rate;
        grew = rate > 1.05 * e->rate_max;
        e->rate = e->rate > 0 ? e->rate + 0.25 * (rate - e->rate) : rate;
        e->window_max[0] = rate > e->window_max[0] ? rate : e->window_max[0];
        set_chunk(e);
    }
    if (ru_time_since(now, e->window_at) >= WINDOW_NS) {
        if (e->window_max[0] > 0) { /* nothing measured: what was known stays */
            e->window_max[1] = e->window_max[0];
            e->window_max[0] = 0;
        }
        e->window_at = now;
    }
    double most = e->window_max[0] > e->window_max[1] ? e->window_max[0] : e->window_max[1];
    e->rate_max = most > 0 ? most : e->rate;
    e->sample_at = now;
    e->samples += !grew; /* a probe that found more goes on */
    e->gated = false;
    e->sample_bytes = 0;
    e->tainted = e->n_queued == 0;
}

/* Keys with a deadline hold the rate of their making; made again when it is another by 5 %. */
static void refresh_keys(rui_egress *e)
{
    double off = e->rate_keys > 0 ? e->rate / e->rate_keys : 2;
    if (e->n_deadlines == 0 || e->rate <= 0 || (off > 0.95 && off < 1.05)) {
        return;
    }
    e->rate_keys = e->rate;
    for (uint32_t i = 0; i < e->n_queued; i++) {
        uint32_t s = e->queued[i];
        rui_egress_item *it = &e->items[s];
        if (it->deadline.ns != 0 && !it->aged_out) {
            rui_key before = it->key, key;
            rui_egress_key(e, it);
            key = it->key;
            it->key = before;
            rui_egress_rekey(e, s, &key);
        }
    }
}

/* What counts is the time that better classes and deadlines kept an item waiting. Ranks are one
 * user's own order of streams that are all to arrive: the last of many sums waits for all before it
 * and does not starve, whoever is served at the moment of this look. */
static void age(rui_egress *e, ru_time now)
{
    rui_egress_count(e, now);
    while (e->age_root != RUI_NONE && e->items[e->age_root].age_at.ns <= now.ns) {
        uint32_t s = e->age_root;
        rui_egress_item *it = &e->items[s];
        rui_pheap_remove(&e->by_age, &e->age_root, s);
        int64_t left_ns = it->age_ns - (rui_egress_behind(e, it) - it->waits_from);
        if (left_ns <= 0 && !it->aged_out) {
            rui_key key = it->key;
            if (key.class > 1) {
                key.class --;
            } else {
                it->aged_out = true; /* before the others of its class, by arrival */
                key.start_ns = INT64_MIN;
                key.rank = 0;
            }
            rui_egress_rekey(e, s, &key);
            it->waits_from = rui_egress_behind(e, it);
        }
        it->age_at = ru_time_after(now, left_ns > 0 ? left_ns : it->age_ns);
        rui_pheap_push(&e->by_age, &e->age_root, s);
    }
}

/* -- when a stream arrives ------------------------------------------------------------------------
 */

void rui_egress_left(rui_egress *e, int64_t bytes, ru_time now)
{
    RU_CHECK(bytes >= 0);
    e->wire_until = ru_time_after(now, rui_egress_solo_ns(e, bytes));
}

/* Bytes with the key of the stream in question that wait on another line. */
typedef struct rival {
    uint32_t line;
    double bytes;
} rival;

static void add_rival(rival *rivals, uint32_t *n, const rui_egress_item *it)
{
    uint32_t k = 0;
    while (k < *n && rivals[k].line != it->line) {
        k++;
    }
    *n += k == *n;
    rivals[k].line = it->line;
    rivals[k].bytes += (double)it->bytes;
}

/* Bytes that go before the last ones of `it`. Between equal keys a line goes by arrival, and lines
 * take turns: another line sends as much as its own one until then, or all it has. */
static int64_t ahead(const rui_egress *e, const rui_egress_item *it)
{
    rival rivals[LOOK_MAX] = {0};
    uint32_t stride = (e->n_queued + LOOK_MAX - 1) / LOOK_MAX, looked = 0, n = 0;
    double better = 0, own = 0, turns = 0;
    for (uint32_t i = 0; i < e->n_queued; i += stride, looked++) {
        const rui_egress_item *b = &e->items[e->queued[i]];
        bool closed = e->lines[b->line].state == RUI_LINE_CLOSED;
        int order = rui_key_order(&b->key, &it->key);
        if (b == it || order > 0 || (closed && b->line != it->line)) {
            continue;
        }
        if (order < 0) {
            better += (double)b->bytes;
        } else if (b->line != it->line) {
            add_rival(rivals, &n, b);
        } else if (b->key.arrival < it->key.arrival) {
            own += (double)b->bytes;
        }
    }
    double scale = looked > 0 ? (double)e->n_queued / looked : 0;
    own *= scale;
    for (uint32_t k = 0; k < n; k++) {
        double all = rivals[k].bytes * scale, until = own + (double)it->bytes;
        turns += all < until ? all : until;
    }
    double bytes = better * scale + own + turns;
    return bytes < 1e18 ? (int64_t)bytes : (int64_t)1e18;
}

static int64_t arrives_ns(const rui_egress *e, uint32_t line, int64_t bytes, ru_time now)
{
    int64_t wire_ns = ru_time_since(e->wire_until, now);
    return (wire_ns > 0 ? wire_ns : 0) + rui_egress_solo_ns(e, bytes) + e->lines[line].rtt_ns / 2;
}

int64_t rui_egress_arrives_ns(const rui_egress *e, uint32_t s, ru_time now)
{
    RU_CHECK(rui_egress_has(e, s));
    const rui_egress_item *it = &e->items[s];
    return e->rate > 0 ? arrives_ns(e, it->line, ahead(e, it) + it->total_bytes, now) : 0;
}

int64_t rui_egress_beside_ns(const rui_egress *e, uint32_t line, int64_t bytes, ru_time now)
{
    return e->rate > 0 ? arrives_ns(e, line, bytes, now) : 0;
}

/* -- lateness ------------------------------------------------------------------------------------
 */

static bool row_before(const rui_late_row *a, const rui_late_row *b)
{
    return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a->s < b->s;
}

static void sift(rui_late_row *rows, uint32_t n, uint32_t at)
{
    rui_late_row row = rows[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && row_before(&rows[child], &rows[child + 1])) {
            child++;
        }
        if (!row_before(&row, &rows[child])) {
            break;
        }
        rows[at] = rows[child];
    }
    rows[at] = row;
}

static void sort(rui_late_row *rows, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;) {
        sift(rows, n, i);
    }
    for (uint32_t i = n; i-- > 1;) {
        rui_late_row top = rows[0];
        rows[0] = rows[i];
        rows[i] = top;
        sift(rows, i, 0);
    }
}

/* Work due before t against rate * t: of each class in the order of deadlines, after all work of
 * the classes before it. */
static void predict(rui_egress *e, rui_egress_late_fn late, void *self, ru_time now)
{
    int64_t ahead[RUI_EGRESS_CLASSES] = {
        0}; /* by class: bytes before the next stream of that class */
    uint32_t n = 0, classes = 0;
    for (uint32_t i = 0; i < e->n_queued; i++) {
        const rui_egress_item *it = &e->items[e->queued[i]];
        ahead[it->key.class] += it->bytes;
        classes = it->key.class >= classes ? it->key.class + 1u : classes;
        if (it->deadline.ns != 0) {
            e->rows[n++] = (rui_late_row){it->deadline.ns, e->queued[i]};
        }
    }
    int64_t before = 0;
    for (uint32_t c = 0; c < classes; c++) {
        int64_t of_class = ahead[c];
        ahead[c] = before;
        before += of_class;
    }
    sort(e->rows, n);
    for (uint32_t i = 0; i < n; i++) {
        rui_egress_item *it = &e->items[e->rows[i].s];
        if (it->place == RUI_NONE) {
            continue; /* an upcall cancelled it */
        }
        int64_t work = ahead[it->key.class] += it->bytes;
        double ends_ns = (double)work / e->rate * 1e9 + (double)e->lines[it->line].rtt_ns / 2;
        double late_ns = ends_ns - (double)ru_time_since(it->deadline, now);
        if (late_ns >= 1 && late_ns >= 2 * (double)it->late_ns) {
            it->late_ns = late_ns < 1e18 ? (int64_t)late_ns : (int64_t)1e18;
            late(self, e->rows[i].s, it->late_ns, now);
        }
    }
}

ru_time rui_egress_due(const rui_egress *e, ru_time now)
{
    int64_t in_ns = e->n_queued == 0 ? IDLE_NS : e->n_deadlines > 0 ? DEADLINES_NS : BUSY_NS;
    ru_time next = ru_time_after(now, in_ns);
    if (e->age_root != RUI_NONE && e->items[e->age_root].age_at.ns < next.ns) {
        next = e->items[e->age_root].age_at;
    }
    return next.ns > now.ns ? next : now;
}

ru_time rui_egress_tick(rui_egress *e, rui_egress_late_fn late, void *self, ru_time now)
{
    refresh_keys(e);
    age(e, now);
    if (e->n_deadlines > 0 && e->rate > 0 && late != NULL && now.ns >= e->late_at.ns) {
        int64_t pause_ns = LATE_NS_PER_STREAM * (int64_t)e->n_queued;
        e->late_at = ru_time_after(now, pause_ns > LATE_NS ? pause_ns : LATE_NS);
        predict(e, late, self, now);
    }
    if (ru_time_since(now, e->budget_at) >= BUDGET_NS) {
        e->control_bytes /= 2;
        e->all_bytes /= 2;
        e->budget_at = now;
    }
    ru_time next = rui_egress_due(e, now);
    if (e->gate_at.ns != 0 && e->gate_at.ns > now.ns && e->gate_at.ns < next.ns) {
        next = e->gate_at;
    }
    e->gate_at = (ru_time){0};
    return next;
}
