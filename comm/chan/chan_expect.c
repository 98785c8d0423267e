/* How long a stream will take, from what the egress scheduler knows and what the same stream, or
 * one of its kind, took before. The same stream of the step before has the same name and another
 * iter. Its receiver's acknowledgement tells when the last byte came; the clocks of the two were
 * compared (chan_clock.c), so that acknowledgements may wait for company as long as they like.
 *
 *   (node, name) ---hash---> [ key | recur ] x 4   a place holds four: of those that fell on it,
 *   (node, class, size) ---> [ key | recur ] x 4   the last that were measured
 *
 * With one for each place, two names on the same one would throw each other out in every step. A
 * node id is drawn for a process: who takes the slot of a peer that left begins anew. */
#include "base/hash.h"
#include "comm/chan/chan_impl.h"

enum { PLACES = 1024, WAYS = 4 }; /* 352 KiB in all */
enum { NAME = 1, KIND = 2, NAME_MIN = 2 };
static const int64_t AHEAD_NS = 1000000; /* a stamp may seem so far in the future */

struct rui_expect {
    uint64_t key;
    ru_recur recur;
};

bool rui_expect_open(ru_chan *ch, ru_arena *arena)
{
    ch->expect = ch->opt.recorder != NULL ? RU_NEW(arena, rui_expect, PLACES * WAYS) : NULL;
    return ch->opt.recorder == NULL || ch->expect != NULL;
}

static uint64_t node_of(const ru_chan *ch, const rui_stream *s)
{
    return ch->peers[s->name.peer].name.stream;
}

static uint64_t name_key(const ru_chan *ch, const rui_stream *s)
{
    const uint64_t words[] = {s->name.stream, node_of(ch, s)};
    return ru_hash_bytes(words, sizeof words, NAME);
}

/* Sizes within a factor of two. */
static uint64_t kind_key(const ru_chan *ch, const rui_stream *s)
{
    uint64_t size = 63u - (uint64_t)__builtin_clzll((uint64_t)s->total_bytes);
    const uint64_t words[] = {node_of(ch, s), s->class, size};
    return ru_hash_bytes(words, sizeof words, KIND);
}

static rui_expect *place_of(const ru_chan *ch, uint64_t key)
{
    return &ch->expect[key % PLACES * WAYS];
}

/* Of the entry in its place; WAYS: there is none. */
static uint32_t way_of(const rui_expect *place, uint64_t key)
{
    uint32_t k = 0;
    while (k < WAYS && place[k].key != key) {
        k++;
    }
    return k;
}

/* NULL: nothing is known of it. */
static const ru_recur *find(const ru_chan *ch, uint64_t key)
{
    const rui_expect *place = place_of(ch, key);
    uint32_t k = way_of(place, key);
    return k < WAYS ? &place[k].recur : NULL;
}

int64_t rui_expect_ns(const ru_chan *ch, const rui_stream *s)
{
    const ru_recur *r = find(ch, name_key(ch, s));
    if (r == NULL || r->time.n < NAME_MIN) {
        r = find(ch, kind_key(ch, s));
    }
    return r != NULL ? ru_recur_ns(r, s->model_ns) : s->model_ns;
}

/* The entry measured last comes first; a new one takes the place of the last in the row. */
static void learn(ru_chan *ch, uint64_t key, int64_t model_ns, int64_t took_ns)
{
    rui_expect *place = place_of(ch, key);
    uint32_t k = way_of(place, key);
    rui_expect e = k < WAYS ? place[k] : (rui_expect){.key = key};
    ru_recur_add(&e.recur, model_ns, took_ns);
    for (k = k < WAYS ? k : WAYS - 1; k > 0; k--) {
        place[k] = place[k - 1];
    }
    place[0] = e;
}

void rui_expect_arrived(ru_chan *ch, const rui_stream *s, uint16_t stamp, ru_time now)
{
    const rui_clock *k = &ch->peers[s->name.peer].clock;
    if (ch->expect == NULL || !k->known || s->cut) {
        return;
    }
    /* `now` is when the loop woke up: a long callback since then would let stamps seem old. */
    ru_time heard = rui_clock_now(ch, now);
    /* The last byte came after it was let go. If that is long ago, several instants since then have
     * this stamp, and the latest would be too late by a multiple of 268 ms. */
    if (ru_time_since(heard, s->last.ns != 0 ? s->last : s->since) > RUI_STAMP_TELLS_NS) {
        return;
    }
    ru_time until = ru_time_after(heard, k->best_ns + AHEAD_NS);
    ru_time there = rui_stamp_time(stamp, until);
    int64_t took_ns = there.ns - k->best_ns - s->since.ns;
    if (took_ns > 0) { /* clocks that were compared badly tell nothing */
        learn(ch, name_key(ch, s), s->model_ns, took_ns);
        learn(ch, kind_key(ch, s), s->model_ns, took_ns);
    }
}
