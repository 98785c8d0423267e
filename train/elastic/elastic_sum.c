/* Sums as acts: each carries the plan it follows and the time that was predicted for it. */
#include <stdio.h>

#include "base/hash.h"
#include "train/elastic/elastic_impl.h"

enum { FLOW_SUM = 3 }; /* unlike those of comm/chan */

/* Jobs stand in the order of ranks. */
static ru_queue_job *job_of(const ru_elastic *e, uint32_t b)
{
    return &e->reduce.sums.jobs[rui_el_rank(e, b)];
}

ru_status rui_el_sums_open(ru_elastic *e, ru_arena *arena, ru_err *err)
{
    e->reduce.sums.jobs = RU_NEW(arena, ru_queue_job, e->reduce.n_buckets);
    e->reduce.sums.labels = RU_NEW(arena, uint16_t, e->reduce.n_buckets);
    e->reduce.sums.recur = RU_NEW(arena, ru_recur, e->reduce.n_buckets);
    e->reduce.sums.least = RU_NEW(arena, uint32_t, e->reduce.n_buckets);
    if (e->reduce.sums.jobs == NULL || e->reduce.sums.labels == NULL ||
        e->reduce.sums.recur == NULL || e->reduce.sums.least == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u sums", e->reduce.n_buckets);
    }
    return RU_OK;
}

void rui_el_sums_label(ru_elastic *e)
{
    for (uint32_t b = 0; e->opt.recorder != NULL && b < e->reduce.n_buckets; b++) {
        const ru_elastic_part *p = &e->reduce.buckets[b].part;
        char name[64], cut[24] = "";
        if (b > 0 && p->offset_bytes > 0) {
            (void)snprintf(cut, sizeof cut, " + %lld MiB", (long long)(p->offset_bytes >> 20));
        }
        (void)snprintf(name, sizeof name, "gradients %u..%u%s %s", p->first, p->first + p->n - 1,
                       cut, e->v.local ? "shared memory" : ru_coll_algo_name(e->v.choice[b].algo));
        e->reduce.sums.labels[b] = ru_recorder_name(e->opt.recorder, name, "sum");
    }
}

void rui_el_sums_planned(ru_elastic *e, ru_time now)
{
    rui_el_sums_label(e);
    e->reduce.sums.plan = e->v.local ? 0 : e->v.plan;
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        int64_t size = e->reduce.buckets[b].part.size_bytes;
        *job_of(e, b) =
            (ru_queue_job){.class = ru_coll_class(RU_CLASS_NORMAL, rui_el_in_order(e, b), size),
                           .size_bytes = size,
                           .alone_ns = e->reduce.sums.plan != 0 ? e->v.choice[b].predicted_ns : 0};
        e->reduce.sums.recur[b] = (ru_recur){0};
    }
    e->reduce.sums.all = (ru_recur){0};
    e->reduce.sums.last_off = 0;
    rui_el_news(e, RU_ELASTIC_PLANNED, e->reduce.n_buckets, 0, now);
}

void rui_el_sums_clear(ru_elastic *e)
{
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        e->reduce.sums.jobs[b].rest_ns = 0;
    }
}

static void carry(ru_elastic *e, ru_time now)
{
    int64_t ns = now.ns - e->reduce.sums.seen_ns;
    e->reduce.sums.seen_ns = now.ns;
    ru_queue_carry(e->reduce.sums.jobs, e->reduce.n_buckets, ns);
}

void rui_el_sum_begin(ru_elastic *e, uint32_t b, ru_time now)
{
    rui_el_bucket *bucket = &e->reduce.buckets[b];
    bucket->begun_ns = now.ns;
    bucket->due_ns = 0;
    ru_queue_job *job = job_of(e, b);
    if (job->alone_ns > 0) {
        carry(e, now);
        int64_t wait_ns = ru_queue_wait_ns(e->reduce.sums.jobs, e->reduce.n_buckets,
                                           rui_el_rank(e, b), RUI_EL_ON_WIRE_BYTES);
        bucket->model_ns = wait_ns + job->alone_ns;
        bucket->due_ns = now.ns + ru_recur_ns(&e->reduce.sums.recur[b], bucket->model_ns);
        job->rest_ns = job->alone_ns;
    }
}

/* All members make the same flow of what they agree on. */
static void record(ru_elastic *e, uint32_t b, ru_time now)
{
    if (e->opt.recorder == NULL) {
        return;
    }
    const rui_el_bucket *bucket = &e->reduce.buckets[b];
    const uint64_t words[] = {e->v.epoch, (uint64_t)e->reduce.step, b};
    const ru_rec_flow f = {
        .kind = RU_REC_SUM,
        .name = e->reduce.sums.labels[b],
        .label = e->reduce.sums.labels[b],
        .flow = ru_hash_bytes(words, sizeof words, FLOW_SUM),
        .start_ns = bucket->begun_ns,
        .end_ns = now.ns,
        .bytes = bucket->part.size_bytes,
        .step = (uint32_t)e->reduce.step,
        .plan = (uint32_t)e->reduce.sums.plan,
        .predicted_ns = bucket->due_ns > 0 ? bucket->due_ns - bucket->begun_ns : 0,
        .rank = (uint16_t)rui_el_rank(e, b),
        .chan_class =
            (uint8_t)ru_coll_class(RU_CLASS_NORMAL, rui_el_in_order(e, b), bucket->part.size_bytes),
    };
    ru_rec_flows(e->opt.recorder, &f);
}

void rui_el_sum_done(ru_elastic *e, uint32_t b, ru_time now)
{
    rui_el_bucket *bucket = &e->reduce.buckets[b];
    carry(e, now);
    job_of(e, b)->rest_ns = 0;
    bucket->took_ns = now.ns - bucket->begun_ns;
    record(e, b, now);
    if (e->opt.summed == NULL) {
        return;
    }
    const ru_elastic_sum sum = {
        .bucket = b,
        .epoch = e->v.epoch,
        .begun = {bucket->begun_ns},
        .ended = now,
        .size_bytes = bucket->part.size_bytes,
        .predicted_ns = bucket->due_ns > 0 ? bucket->due_ns - bucket->begun_ns : 0,
        .plan = e->reduce.sums.plan,
    };
    e->opt.summed(e->opt.news_self, &sum);
}

/* -- what sums took, among members ----------------------------------------------------------------
 */

/* All have the same buckets and recorders or none. */
static bool told(const ru_elastic *e)
{
    return e->opt.recorder != NULL && e->reduce.sums.plan != 0 &&
           e->reduce.n_buckets <= RUI_EL_TOLD_MAX;
}

static uint32_t took_of(const rui_el_bucket *b)
{
    return b->told_ns < 1 ? 1 : b->told_ns < UINT32_MAX ? (uint32_t)b->told_ns : UINT32_MAX;
}

void rui_el_sums_next(ru_elastic *e)
{
    e->reduce.sums.n_told = 0;
}

/* Sums of the next step may be done before the COMMIT of this one. */
void rui_el_sums_done(ru_elastic *e)
{
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        rui_el_bucket *bucket = &e->reduce.buckets[b];
        bucket->told_ns = bucket->took_ns;
        bucket->told_model_ns = bucket->model_ns;
    }
}

void rui_el_sums_tell(const ru_elastic *e, ru_wire_out *w)
{
    for (uint32_t b = 0; told(e) && b < e->reduce.n_buckets; b++) {
        ru_wire_put_u32(w, took_of(&e->reduce.buckets[b]));
    }
}

void rui_el_sums_told(ru_elastic *e, ru_wire_in *w)
{
    if (!told(e) || ru_wire_left(w) != 4 * (int64_t)e->reduce.n_buckets) {
        return;
    }
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        uint32_t ns = ru_wire_u32(w), *least = &e->reduce.sums.least[b];
        *least = e->reduce.sums.n_told == 0 || ns < *least ? ns : *least;
    }
    e->reduce.sums.n_told++;
}

void rui_el_sums_least(const ru_elastic *e, ru_wire_out *w)
{
    bool all = told(e) && e->reduce.sums.n_told == e->v.n;
    for (uint32_t b = 0; all && b < e->reduce.n_buckets; b++) {
        ru_wire_put_u32(w, e->reduce.sums.least[b]);
    }
}

/* 0: not known, or a view came whose GO is not here yet: what the view before has left of its last
 * step may still be told. */
static int64_t alone_of(const ru_elastic *e)
{
    int64_t sum = 0;
    for (uint32_t b = 0; e->v.choice != NULL && b < e->reduce.n_buckets; b++) {
        sum += e->v.choice[b].predicted_ns;
    }
    return sum;
}

double rui_el_sums_off(const ru_elastic *e)
{
    int64_t alone_ns = told(e) ? alone_of(e) : 0;
    return alone_ns > 0 && e->reduce.sums.all.time.n >= RU_RECUR_LAST
               ? (double)ru_recur_ns(&e->reduce.sums.all, alone_ns) / (double)alone_ns
               : 0;
}

/* The model told something of this member's begin: that counts where it began last. */
void rui_el_sums_learn(ru_elastic *e, ru_wire_in *w)
{
    if (!told(e) || ru_wire_left(w) != 4 * (int64_t)e->reduce.n_buckets) {
        return;
    }
    int64_t all_ns = 0;
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        const rui_el_bucket *bucket = &e->reduce.buckets[b];
        uint32_t ns = ru_wire_u32(w);
        all_ns += ns;
        bool last = ns == took_of(bucket);
        if (ns > 0 && ns < UINT32_MAX) { /* a longer one took nobody knows how long */
            ru_recur_add(&e->reduce.sums.recur[b], last ? bucket->told_model_ns : 0, ns);
        }
    }
    int64_t alone_ns = alone_of(e);
    if (all_ns > 0 && alone_ns > 0) {
        ru_recur_add(&e->reduce.sums.all, alone_ns, all_ns);
        e->reduce.sums.last_off = (double)all_ns / (double)alone_ns;
    }
}

ru_status ru_elastic_sums_get(const ru_elastic *e, ru_arena *arena, ru_elastic_sums *into,
                              ru_err *err)
{
    *into = (ru_elastic_sums){
        .plan = e->reduce.sums.plan,
        .epoch = e->v.epoch,
        .n_members = e->v.n,
        .local = e->v.local,
        .follows = e->reduce.sums.plan != 0 && rui_el_leads(e) && rui_el_may_follow(e, &e->v),
        .n_buckets = e->reduce.n_buckets,
        .costs = rui_el_leads(e) && e->reduce.probed_n == e->v.n ? e->reduce.costs : NULL,
        .measured = e->reduce.probed_epoch};
    ru_elastic_bucket *at = RU_NEW(arena, ru_elastic_bucket, e->reduce.n_buckets);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to describe %u sums", e->reduce.n_buckets);
    }
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        at[b] = (ru_elastic_bucket){.part = e->reduce.buckets[b].part};
        if (e->reduce.sums.plan != 0 && e->v.choice != NULL) {
            at[b].choice = e->v.choice[b];
            at[b].part.only = into->follows ? 1 + (uint32_t)e->v.choice[b].algo : 0;
        }
    }
    into->at = at;
    return RU_OK;
}
