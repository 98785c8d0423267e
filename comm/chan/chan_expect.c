/* How long a stream will take, from what the egress scheduler knows and what the same stream, or
 * one of its kind, took before. The same stream of the step before has the same name and another
 * iter. Its receiver's acknowledgement tells when the last byte came; the clocks of the two were
 * compared (chan_clock.c), so that acknowledgements may wait for company as long as they like.
 *
 *   (peer, name) ---hash---> [ key | recur ]   a place holds one: the last of those that fell on it
 *   (peer, class, size) ---> [ key | recur ] */
#include "base/hash.h"
#include "comm/chan/chan_impl.h"

enum { PLACES = 2048, NAME = 1, KIND = 2, NAME_MIN = 2 };
static const int64_t AHEAD_NS = 1000000; /* a stamp may seem so far in the future */

struct rui_expect {
    uint64_t key;
    ru_recur recur;
};

bool rui_expect_open(ru_chan *ch, ru_arena *arena)
{
    ch->expect = ch->opt.recorder != NULL ? RU_NEW(arena, rui_expect, PLACES) : NULL;
    return ch->opt.recorder == NULL || ch->expect != NULL;
}

static uint64_t name_key(const rui_stream *s)
{
    const uint64_t words[] = {s->name.stream, s->name.peer};
    return ru_hash_bytes(words, sizeof words, NAME);
}

/* Sizes within a factor of two. */
static uint64_t kind_key(const rui_stream *s)
{
    uint64_t size = 63u - (uint64_t)__builtin_clzll((uint64_t)s->total_bytes);
    const uint64_t words[] = {s->name.peer, s->class, size};
    return ru_hash_bytes(words, sizeof words, KIND);
}

static rui_expect *place_of(const ru_chan *ch, uint64_t key)
{
    return &ch->expect[key % PLACES];
}

int64_t rui_expect_ns(const ru_chan *ch, const rui_stream *s)
{
    uint64_t key = name_key(s);
    const rui_expect *e = place_of(ch, key);
    if (e->key != key || e->recur.time.n < NAME_MIN) {
        key = kind_key(s);
        e = place_of(ch, key);
    }
    return e->key == key ? ru_recur_ns(&e->recur, s->model_ns) : s->model_ns;
}

static void learn(ru_chan *ch, uint64_t key, int64_t model_ns, int64_t took_ns)
{
    rui_expect *e = place_of(ch, key);
    if (e->key != key) {
        *e = (rui_expect){.key = key};
    }
    ru_recur_add(&e->recur, model_ns, took_ns);
}

void rui_expect_arrived(ru_chan *ch, const rui_stream *s, uint16_t stamp, ru_time now)
{
    const rui_clock *k = &ch->peers[s->name.peer].clock;
    if (ch->expect == NULL || !k->known) {
        return;
    }
    /* `now` is when the loop woke up: a long callback since then would let stamps seem old. */
    ru_time until = ru_time_after(rui_clock_now(ch, now), k->best_ns + AHEAD_NS);
    ru_time there = rui_stamp_time(stamp, until);
    int64_t took_ns = there.ns - k->best_ns - s->since.ns;
    if (took_ns > 0) { /* clocks that were compared badly tell nothing */
        learn(ch, name_key(s), s->model_ns, took_ns);
        learn(ch, kind_key(s), s->model_ns, took_ns);
    }
}
