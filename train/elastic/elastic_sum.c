/* Sums as acts: each carries the plan it follows and the time that was predicted for it. */
#include <string.h>

#include "base/hash.h"
#include "train/elastic/elastic_impl.h"

void rui_el_sums_planned(ru_elastic *e, ru_time now)
{
    rui_el_sums *s = &e->sums;
    s->plan = 0;
    if (!e->v.local) {
        ru_hasher h;
        ru_hasher_init(&h);
        const uint64_t shape[] = {e->v.n, e->n_batches};
        ru_hasher_put(&h, shape, sizeof shape);
        for (uint32_t b = 0; b < e->n_batches; b++) {
            const ru_coll_choice *c = &e->v.choice[b];
            const int64_t line[] = {e->batches[b].part.size_bytes, (int64_t)c->algo, c->chunk_bytes,
                                    (int64_t)c->depth, c->predicted_ns};
            ru_hasher_put(&h, line, sizeof line);
        }
        s->plan = ru_hasher_get(&h).low | 1; /* 0 means none */
    }
    rui_el_news(e, RU_ELASTIC_PLANNED, e->n_batches, 0, now);
}

void rui_el_sums_clear(ru_elastic *e)
{
    for (uint32_t b = 0; b < e->n_batches; b++) {
        e->batches[b].rest_ns = 0;
    }
}

static ru_chan_class class_of(const rui_el_batch *b)
{
    return ru_coll_class(RU_CLASS_NORMAL, b->part.size_bytes);
}

/* Batches by urgency: by class, then in their order, which is the rank that they travel with. One
 * walk a class; `at` begins with {0, 0}. */
typedef struct turn {
    uint32_t class, next;
} turn;

static rui_el_batch *next_of(ru_elastic *e, turn *at)
{
    for (; at->class <= RU_CLASS_NORMAL; at->class ++, at->next = 0) {
        while (at->next < e->n_batches) {
            rui_el_batch *b = &e->batches[at->next++];
            if (b->rest_ns > 0 && class_of(b) == at->class) {
                return b;
            }
        }
    }
    return NULL;
}

/* The network as predicted: it carries one sum at a time, the most urgent first. */
static void carry(ru_elastic *e, ru_time now)
{
    int64_t left_ns = now.ns - e->sums.seen_ns;
    e->sums.seen_ns = now.ns;
    rui_el_batch *b = NULL;
    for (turn at = {0}; left_ns > 0 && (b = next_of(e, &at)) != NULL;) {
        int64_t took_ns = b->rest_ns < left_ns ? b->rest_ns : left_ns;
        b->rest_ns -= took_ns;
        left_ns -= took_ns;
    }
}

/* Of a sum on the wire: what a more urgent one has to wait for. */
static int64_t chunk_ns(const ru_elastic *e, const rui_el_batch *b)
{
    double alone_ns = (double)e->v.choice[b - e->batches].predicted_ns;
    double part = (double)RUI_EL_ON_WIRE_BYTES / (double)b->part.size_bytes;
    int64_t ns = (int64_t)(part < 1 ? alone_ns * part : alone_ns);
    return ns < b->rest_ns ? ns : b->rest_ns;
}

/* Until the network turns to `own`: what is at least as urgent, else the chunk that is on the wire.
 * What overtakes it later is not known yet. */
static int64_t before_ns(ru_elastic *e, const rui_el_batch *own)
{
    int64_t wait_ns = 0;
    rui_el_batch *b = NULL;
    for (turn at = {0}; (b = next_of(e, &at)) != NULL;) {
        if (class_of(b) > class_of(own) || (class_of(b) == class_of(own) && b > own)) {
            return wait_ns > 0 ? wait_ns : chunk_ns(e, b);
        }
        wait_ns += b->rest_ns;
    }
    return wait_ns;
}

void rui_el_sum_begin(ru_elastic *e, uint32_t b, ru_time now)
{
    rui_el_batch *batch = &e->batches[b];
    batch->begun_ns = now.ns;
    batch->due_ns = 0;
    int64_t alone = e->sums.plan != 0 ? e->v.choice[b].predicted_ns : 0;
    if (alone > 0) {
        carry(e, now);
        batch->due_ns = now.ns + before_ns(e, batch) + alone;
        batch->rest_ns = alone;
    }
}

void rui_el_sum_done(ru_elastic *e, uint32_t b, ru_time now)
{
    rui_el_batch *batch = &e->batches[b];
    carry(e, now);
    batch->rest_ns = 0;
    if (e->opt.summed == NULL) {
        return;
    }
    const ru_elastic_sum sum = {
        .batch = b,
        .epoch = e->v.epoch,
        .begun = {batch->begun_ns},
        .ended = now,
        .size_bytes = batch->part.size_bytes,
        .predicted_ns = batch->due_ns > 0 ? batch->due_ns - batch->begun_ns : 0,
        .plan = e->sums.plan,
    };
    e->opt.summed(e->opt.news_self, &sum);
}

ru_status ru_elastic_sums_get(const ru_elastic *e, ru_arena *arena, ru_elastic_sums *into,
                              ru_err *err)
{
    *into = (ru_elastic_sums){.plan = e->sums.plan,
                              .epoch = e->v.epoch,
                              .n_members = e->v.n,
                              .local = e->v.local,
                              .n_batches = e->n_batches,
                              .costs = rui_el_leads(e) && e->probed_n == e->v.n ? e->costs : NULL};
    ru_elastic_batch *at = RU_NEW(arena, ru_elastic_batch, e->n_batches);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to describe %u sums", e->n_batches);
    }
    for (uint32_t b = 0; b < e->n_batches; b++) {
        at[b] = (ru_elastic_batch){.part = e->batches[b].part};
        if (e->sums.plan != 0) {
            at[b].choice = e->v.choice[b];
        }
    }
    into->at = at;
    return RU_OK;
}
