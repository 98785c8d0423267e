/* Sums as acts: each carries the plan it follows and the time that was predicted for it. */
#include <string.h>

#include "base/hash.h"
#include "train/elastic_impl.h"

void rui_el_sums_planned(ru_elastic *e, ru_time now)
{
    rui_el_sums *s = &e->sums;
    s->plan = 0;
    s->free_ns = 0;
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

void rui_el_sum_begin(ru_elastic *e, uint32_t b, ru_time now)
{
    rui_el_batch *batch = &e->batches[b];
    batch->begun_ns = now.ns;
    batch->due_ns = 0;
    int64_t alone = e->sums.plan != 0 ? e->v.choice[b].predicted_ns : 0;
    if (alone > 0) { /* the network carries one sum after the other */
        int64_t from = e->sums.free_ns > now.ns ? e->sums.free_ns : now.ns;
        e->sums.free_ns = batch->due_ns = from + alone;
    }
}

void rui_el_sum_done(ru_elastic *e, uint32_t b, ru_time now)
{
    const rui_el_batch *batch = &e->batches[b];
    if (e->opt.summed == NULL) {
        return;
    }
    const ru_elastic_sum sum = {
        .batch = b,
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
