#include "fleet/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/heap.h"
#include "base/rng.h"
#include "base/str.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "fleet/fed.h"
#include "fleet/local.h"
#include "fleet/secure/mask.h"
#include "fleet/snapshot.h"
#include "fleet/sum.h"

/* How long this machine took to choose rounds. */
typedef struct decisions {
    double sum_s, most_s;
    uint32_t n;
} decisions;

/* Times of a trace. */
typedef struct recorded {
    ru_latency_trace *trace; /* NULL: the law */
    uint32_t *turns;         /* [clients] tasks so far */
} recorded;

typedef struct sim {
    const ru_fed_sim_options *opt;
    const ru_job_federated *job;
    ru_arena *arena;
    const char *out;
    ru_rundir run;
    ru_dataset *train, *test;
    ru_split *split, *held; /* held NULL: nothing is held out */
    ru_local *local;
    ru_fed *fed;
    ru_arena fx_arena;
    ru_effects fx;
    ru_fed_sum sum;
    uint32_t
        *masked; /* [count] sum of fixed point, as masks leave it; NULL: updates come as they are */
    double told; /* samples of the clients of the round */
    float *values, *work; /* [flat.count] of the model; of a client */
    int64_t count;
    int64_t *view; /* [most samples of a client] */
    recorded times;
    ru_heap due; /* answers to come: client << 32 | task; items are of malloc */
    ru_time now, timer, round_begun, begun;
    bool merged, done, spent;
    ru_rng rng, noise;
    double loss, correct, weight;
    uint32_t round, first, n_sent, n_merged; /* first: rounds of processes before */
    uint8_t *saved;                          /* of malloc */
    decisions decided;
} sim;

/* -- clients --------------------------------------------------------------------------------------
 */

static double samples_of(const sim *s, uint32_t client)
{
    /* Views of one size, but for a file. */
    return s->opt->split.kind == RU_SPLIT_FILE ? (double)ru_split_view(s->split, client, s->view)
                                               : (double)ru_split_most(s->split);
}

static double takes(sim *s, uint32_t client, uint32_t round)
{
    if (s->times.trace != NULL) {
        return ru_latency_trace_at(s->times.trace, client, round, s->times.turns[client]++);
    }
    ru_rng own =
        ru_rng_from((uint64_t)s->opt->train->job->train.seed, ru_rng_label("speed") + client);
    double part = 1; /* of one size, but for a file */
    if (s->opt->split.kind == RU_SPLIT_FILE) {
        part = samples_of(s, client) * s->opt->split.clients / (double)ru_dataset_count(s->train);
    }
    double took = s->opt->median_s * ru_latency_speed(s->opt->law, s->opt->spread, &own) * part *
                  ru_math_exp(s->opt->jitter * ru_rng_normal(&s->rng));
    return fmin(took, 1e6); /* as the longest round */
}

static void put_due(sim *s, ru_time at, uint32_t client, uint32_t task)
{
    ru_heap *h = &s->due;
    if (h->n == h->max) {
        h->max = h->max > 0 ? 2 * h->max : 1024;
        h->items = realloc(h->items, h->max * sizeof *h->items);
        RU_CHECK(h->items != NULL);
    }
    (void)!ru_heap_push(h, at.ns, (uint64_t)client << 32 | task);
}

static ru_local_view view_of(sim *s, const ru_split *split, const ru_dataset *data, uint32_t client)
{
    return (ru_local_view){
        .data = data, .index = s->view, .n = ru_split_view(split, client, s->view)};
}

static ru_mask_scale scale_of(const sim *s, double samples)
{
    double clip = s->job->privacy.clip;
    return (ru_mask_scale){.range = s->job->secure.range,
                           .clip = clip,
                           .share = clip > 0 ? 1.0 / s->n_sent : samples / s->told};
}

/* The arithmetic of masked updates. The masks themselves vanish to the last bit and are left out.
 */
static ru_status add_masked(sim *s, double samples, ru_err *err)
{
    const ru_mask_scale scale = scale_of(s, samples);
    uint32_t *moves = (uint32_t *)(void *)s->work;
    RU_TRY(ru_mask_encode(&scale, s->values, s->work, s->count, moves, err));
    for (int64_t i = 0; i < s->count; i++) {
        s->masked[i] += moves[i];
    }
    s->sum.n++;
    return RU_OK;
}

/* Does this client send its move with the other sign? */
static bool turned(const sim *s, uint32_t client)
{
    ru_rng own =
        ru_rng_from((uint64_t)s->opt->train->job->train.seed, ru_rng_label("turned") + client);
    return ru_rng_f64(&own) < s->opt->turned;
}

/* The training of an answer that is averaged, done when it comes. */
static ru_status learn(sim *s, uint32_t client, double *loss_rms, ru_err *err)
{
    ru_local_result r;
    ru_local_view view = view_of(s, s->split, s->train, client);
    const ru_local_task t = {.round = ru_fed_round(s->fed),
                             .seed = (uint64_t)s->opt->train->job->train.seed + client,
                             .epochs = s->job->epochs};
    if (view.n == 0) {
        *loss_rms = -1;
        return RU_OK;
    }
    memcpy(s->work, s->values, (size_t)s->count * sizeof *s->work);
    RU_TRY(ru_local_train(s->local, &view, &t, s->work, &r, err));
    const bool turns = turned(s, client);
    for (int64_t i = 0; i < s->count && turns; i++) {
        s->work[i] = 2 * s->values[i] - s->work[i];
    }
    RU_TRY(s->masked != NULL ? add_masked(s, (double)view.n, err)
                             : ru_fed_sum_add(&s->sum, s->work, (double)view.n, err));
    s->loss += r.loss * (double)view.n;
    s->correct += r.accuracy * (double)view.n;
    s->weight += (double)view.n;
    *loss_rms = r.loss_rms;
    return RU_OK;
}

/* -- the machine ----------------------------------------------------------------------------------
 */

static void tasks(sim *s, const ru_fed_list *l)
{
    if (!l->profile) {
        ru_fed_sum_begin(&s->sum, s->values);
        s->loss = s->correct = s->weight = 0;
        s->round_begun = s->now;
        s->n_sent = l->n;
        s->told = 0;
        for (uint32_t k = 0; k < l->n && s->masked != NULL; k++) {
            s->told += samples_of(s, l->client[k]);
        }
        if (s->masked != NULL) {
            memset(s->masked, 0, (size_t)s->count * sizeof *s->masked);
        }
    }
    for (uint32_t k = 0; k < l->n; k++) {
        double took = takes(s, l->client[k], l->round);
        if (!(ru_rng_f64(&s->rng) < s->opt->lost) && took >= 0) {
            put_due(s, ru_time_after(s->now, (int64_t)(took * 1e9)), l->client[k], l->task);
        }
    }
}

static ru_status scores(sim *s, double *accuracy, ru_err *err)
{
    uint32_t n = s->opt->split.clients;
    const uint32_t *tier = ru_fed_tier_of(s->fed);
    double hits[RU_PICK_TIERS_MAX] = {0}, rows[RU_PICK_TIERS_MAX] = {0};
    uint32_t asked[RU_PICK_TIERS_MAX] = {0}, full = 0;
    for (uint32_t k = 0; s->held != NULL && k < n && full < s->job->tiers; k++) {
        uint32_t i = (uint32_t)(((uint64_t)k + s->round * UINT64_C(7919)) % n), t = tier[i];
        if (t >= s->job->tiers || asked[t] == s->job->per_round) {
            continue;
        }
        full += ++asked[t] == s->job->per_round ? 1 : 0;
        ru_local_score c;
        ru_local_view view = view_of(s, s->held, s->test, i);
        RU_TRY(ru_local_eval(s->local, &view, s->values, &c, err));
        hits[t] += c.correct;
        rows[t] += c.count;
    }
    for (uint32_t t = 0; t < s->job->tiers; t++) {
        accuracy[t] = rows[t] > 0 ? hits[t] / rows[t] : -1;
    }
    return RU_OK;
}

static ru_status say(sim *s, ru_event ev, ru_err *err);

static ru_status word(sim *s, ru_fed_word w, int64_t value, const void *data, int64_t size_bytes,
                      ru_err *err)
{
    return say(
        s,
        (ru_event){
            .kind = RU_EV_LOCAL, .what = w, .value = value, .data = data, .size_bytes = size_bytes},
        err);
}

/* What the machine wants; *look: the accuracy of the tiers. */
static ru_status follow(sim *s, const ru_effect *e, bool *look, bool *round, ru_err *err)
{
    const ru_fed_list *l = e->data;
    if (e->kind != RU_FX_LOCAL) {
        s->timer.ns = e->kind == RU_FX_TIMER ? e->at.ns : INT64_MAX;
    } else if (e->what == RU_FED_TASK) {
        *round = *round || !l->profile;
        tasks(s, l);
    } else if (e->what == RU_FED_MERGE) {
        s->merged = true;
        s->round = l->round;
        s->n_merged = l->n;
        if (s->sum.n > 0 && s->masked != NULL) {
            const ru_mask_scale scale = scale_of(s, 1);
            ru_fed_sum_masked(&s->sum, s->masked, ru_mask_unit(&scale) / scale.share, s->weight,
                              s->sum.n);
        }
        if (s->sum.n > 0) {
            ru_fed_sum_end(&s->sum, s->values);
        }
    } else if (e->what == RU_FED_EVALUATE) {
        *look = true;
    } else if (e->what == RU_FED_DONE) {
        s->done = true;
        s->spent = e->value != 0;
    } else if (e->what == RU_FED_FAILED) {
        return RU_FAIL(err, (ru_status)e->value, "%s", (const char *)e->data);
    }
    return RU_OK;
}

static ru_status say(sim *s, ru_event ev, ru_err *err)
{
    bool look = false, round = false;
    ru_status st = RU_OK;
    ev.now = s->now;
    ru_time before = ru_clock_now();
    ru_fed_step(s->fed, &ev, &s->fx);
    double took = (double)ru_time_since(ru_clock_now(), before) * 1e-9;
    for (uint32_t k = 0; k < s->fx.n && st == RU_OK; k++) {
        st = follow(s, &s->fx.at[k], &look, &round, err);
    }
    ru_effects_clear(&s->fx);
    if (round) {
        s->decided.n++;
        s->decided.sum_s += took;
        s->decided.most_s = fmax(s->decided.most_s, took);
    }
    if (st == RU_OK && look) {
        double accuracy[RU_PICK_TIERS_MAX];
        RU_TRY(scores(s, accuracy, err));
        return word(s, RU_FED_EVALUATED, 0, accuracy, s->job->tiers * (int64_t)sizeof *accuracy,
                    err);
    }
    return st;
}

static ru_status advance(sim *s, ru_err *err)
{
    const ru_heap_item *first = ru_heap_peek(&s->due);
    if (first == NULL && s->timer.ns == INT64_MAX) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no client answers any more, and a round needs %u; lower "
                       "federated.per_round or the part that is lost",
                       s->job->per_round);
    }
    if (first == NULL || s->timer.ns <= first->key) {
        s->now = s->timer;
        s->timer.ns = INT64_MAX;
        return say(s, (ru_event){.kind = RU_EV_TIMER, .what = RU_FED_TIMER}, err);
    }
    ru_heap_item d;
    (void)ru_heap_pop(&s->due, &d);
    ru_fed_answer a = {.client = (uint32_t)(d.value >> 32), .task = (uint32_t)d.value, .loss = -1};
    s->now.ns = d.key;
    if (ru_fed_counts(s->fed, a.client, a.task)) {
        RU_TRY(learn(s, a.client, &a.loss, err));
    }
    return word(s, RU_FED_ANSWER, 0, &a, sizeof a, err);
}

/* -- data -----------------------------------------------------------------------------------------
 */

static ru_status open_data(sim *s, ru_err *err)
{
    const ru_job *job = &s->run.job;
    ru_data_options d = ru_job_data_options(job, false);
    RU_TRY(ru_dataset_open(&d, &s->train, err));
    RU_TRY(ru_split_open(&s->opt->split, s->train, s->arena, &s->split, err));
    int64_t most = ru_split_most(s->split);
    if (ru_job_has_test(job)) {
        ru_split_options held = s->opt->split;
        held.kind = held.kind == RU_SPLIT_FILE ? RU_SPLIT_IID : held.kind;
        held.samples = held.samples > 0 ? held.samples : most;
        RU_TRY(ru_rundir_data(&s->run, NULL, 0, true, &s->test, err));
        RU_TRY(ru_split_open(&held, s->test, s->arena, &s->held, err));
        most = ru_split_most(s->held) > most ? ru_split_most(s->held) : most;
    }
    s->view = RU_NEW(s->arena, int64_t, most);
    return s->view != NULL ? RU_OK
                           : RU_FAIL(err, RU_E_MEM, "no memory for the samples of a client");
}

static ru_status open_trace(sim *s, ru_err *err)
{
    if (s->opt->trace == NULL) {
        return RU_OK;
    }
    uint32_t n = s->opt->split.clients;
    s->times.turns = RU_NEW(s->arena, uint32_t, n);
    if (s->times.turns == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u clients", n);
    }
    memset(s->times.turns, 0, n * sizeof *s->times.turns);
    return ru_latency_trace_open(s->opt->trace, s->arena, &s->times.trace, err);
}

/* -- snapshots ------------------------------------------------------------------------------------
 */

enum { RNG_BYTES = 44, HEAD_BYTES = 4 + 8 + 8 + 8 + 2 * RNG_BYTES + 8 + 4, DUE_BYTES = 24 };
static const uint32_t mark = 0x52554653;

/* Of all that makes another simulation of the same job. */
static uint64_t clients_of(const sim *s)
{
    ru_hasher h;
    const ru_fed_sim_options *o = s->opt;
    const double laws[] = {o->median_s, o->spread, o->jitter, o->lost, o->turned, o->split.alpha};
    ru_hasher_init(&h);
    ru_hasher_put(&h, laws, sizeof laws);
    ru_hasher_put_u64(&h, o->split.clients);
    ru_hasher_put_u64(&h, (uint64_t)o->split.kind);
    ru_hasher_put_u64(&h, o->split.classes);
    ru_hasher_put_u64(&h, (uint64_t)o->split.samples);
    ru_hasher_put_u64(&h, o->split.seed);
    ru_hasher_put_u64(&h, (uint64_t)o->law);
    ru_hasher_put_u64(&h, s->times.trace != NULL ? ru_latency_trace_hash(s->times.trace) : 0);
    return ru_hasher_get(&h).low;
}

static void put_rng(ru_wire_out *o, const ru_rng *r)
{
    ru_wire_put_u64(o, r->seed);
    ru_wire_put_u64(o, r->stream);
    ru_wire_put_u64(o, r->index);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(r->block); k++) {
        ru_wire_put_u32(o, r->block[k]);
    }
    ru_wire_put_u32(o, r->left);
}

static bool get_rng(ru_wire_in *w, ru_rng *r)
{
    r->seed = ru_wire_u64(w);
    r->stream = ru_wire_u64(w);
    r->index = ru_wire_u64(w);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(r->block); k++) {
        r->block[k] = ru_wire_u32(w);
    }
    r->left = ru_wire_u32(w);
    return r->left <= RU_ARRAY_LEN(r->block);
}

static int64_t turns_bytes(const sim *s)
{
    return s->times.trace != NULL ? (int64_t)s->opt->split.clients * (int64_t)sizeof *s->times.turns
                                  : 0;
}

/* Clock, random numbers, answers to come, turns in the trace; then the machine, and the optimizer
 * of the server. */
static ru_status save(sim *s, const ru_text *line, ru_err *err)
{
    int64_t slots = s->sum.n_slots * (int64_t)sizeof *s->sum.slots;
    int64_t turns = turns_bytes(s);
    int64_t bytes = HEAD_BYTES + DUE_BYTES * (int64_t)s->due.n + turns +
                    ru_fed_saved_bytes(s->fed, true) + slots;
    uint8_t *at = realloc(s->saved, (size_t)bytes);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the snapshot of a simulation");
    }
    s->saved = at;
    ru_wire_out o = ru_wire_out_into(at, bytes);
    ru_wire_put_u32(&o, mark);
    ru_wire_put_u64(&o, clients_of(s));
    ru_wire_put_u64(&o, (uint64_t)s->now.ns);
    ru_wire_put_u64(&o, (uint64_t)s->timer.ns);
    put_rng(&o, &s->rng);
    put_rng(&o, &s->noise);
    ru_wire_put_u64(&o, s->due.pushes);
    ru_wire_put_u32(&o, s->due.n);
    for (uint32_t k = 0; k < s->due.n; k++) {
        ru_wire_put_u64(&o, (uint64_t)s->due.items[k].key);
        ru_wire_put_u64(&o, s->due.items[k].order);
        ru_wire_put_u64(&o, s->due.items[k].value);
    }
    ru_wire_put_bytes(&o, s->times.turns, turns);
    ru_fed_save(s->fed, true, &o);
    ru_wire_put_bytes(&o, s->sum.slots, slots);
    RU_CHECK(!o.bad && ru_wire_size(&o) == bytes);
    return rui_fed_snapshot_write(s->out, s->round, at, bytes, line->p, line->n, err);
}

static bool load_due(sim *s, ru_wire_in *w)
{
    ru_heap *h = &s->due;
    h->pushes = ru_wire_u64(w);
    uint32_t n = ru_wire_u32(w);
    if (w->bad || n > ru_wire_left(w) / DUE_BYTES) {
        return false;
    }
    h->items = malloc((n + 1) * sizeof *h->items);
    h->n = h->items != NULL ? n : 0;
    h->max = n + 1;
    bool fine = h->items != NULL;
    for (uint32_t k = 0; k < h->n && fine; k++) {
        int64_t key = (int64_t)ru_wire_u64(w);
        uint64_t order = ru_wire_u64(w), value = ru_wire_u64(w);
        h->items[k] = (ru_heap_item){key, order, value};
        fine = value >> 32 < s->opt->split.clients && key >= s->now.ns;
    }
    return fine;
}

static bool load_turns(sim *s, ru_wire_in *w)
{
    int64_t bytes = turns_bytes(s);
    const void *from = ru_wire_bytes(w, bytes);
    if (bytes > 0 && from != NULL) {
        memcpy(s->times.turns, from, (size_t)bytes);
    }
    return from != NULL;
}

static ru_status load(sim *s, const char *path, ru_err *err)
{
    char *data;
    int64_t n;
    RU_TRY(ru_file_read(path, 0, s->arena, &data, &n, err));
    ru_wire_in w = ru_wire_in_from(data, n);
    bool fine = ru_wire_u32(&w) == mark;
    if (fine && ru_wire_u64(&w) != clients_of(s)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "%s is of other clients; resume with the --clients, --split, --samples, "
                       "--latency, --law, --spread, --jitter, --latencies, --lost, --turned and "
                       "train.seed that "
                       "the run had",
                       path);
    }
    s->now.ns = (int64_t)ru_wire_u64(&w);
    s->timer.ns = (int64_t)ru_wire_u64(&w);
    fine = fine && get_rng(&w, &s->rng) && get_rng(&w, &s->noise) && load_due(s, &w) &&
           load_turns(s, &w);
    if (fine) {
        RU_TRY(ru_fed_load(s->fed, true, &w, err));
    }
    int64_t slots = s->sum.n_slots * (int64_t)sizeof *s->sum.slots;
    const void *from = ru_wire_bytes(&w, slots);
    if (!fine || from == NULL || ru_wire_left(&w) != 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s is damaged, or of a run with other settings of `federated`", path);
    }
    if (slots > 0) {
        memcpy(s->sum.slots, from, (size_t)slots);
    }
    return RU_OK;
}

static ru_status open_fed(sim *s, int64_t round, ru_err *err)
{
    const ru_fed_options fo = ru_fed_options_of(s->opt->train->job, s->opt->split.clients);
    RU_TRY(ru_fed_init(&fo, s->now, s->arena, &s->fed, err));
    RU_TRY(rui_fed_snapshot_open(s->out, err));
    if (round > 0) {
        const char *path = rui_fed_snapshot_path(s->out, round, s->arena);
        s->round = s->first = (uint32_t)round;
        RU_TRY(path != NULL ? load(s, path, err) : RU_FAIL(err, RU_E_MEM, "no memory for a name"));
        return word(s, RU_FED_KEPT, 0, NULL, 0, err);
    }
    RU_TRY(say(s, (ru_event){.kind = RU_EV_START}, err));
    for (uint32_t i = 0; i < fo.n; i++) {
        double samples = fmax(samples_of(s, i), 1);
        RU_TRY(word(s, RU_FED_JOIN, i, &samples, sizeof samples, err));
    }
    return RU_OK;
}

/* -- for the run ----------------------------------------------------------------------------------
 */

static ru_status begin(void *self, const ru_rounds_start *start, ru_err *err)
{
    sim *s = self;
    s->out = start->out;
    s->run = start->run;
    s->count = start->flat->count;
    s->begun = ru_clock_now();
    s->values = malloc((size_t)s->count * sizeof *s->values);
    s->work = malloc((size_t)s->count * sizeof *s->work);
    s->masked = s->job->secure.threshold > 0 ? malloc((size_t)s->count * sizeof *s->masked) : NULL;
    if (s->values == NULL || s->work == NULL ||
        (s->masked == NULL && s->job->secure.threshold > 0)) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the values of the model");
    }
    memcpy(s->values, start->values, (size_t)s->count * sizeof *s->values);
    RU_TRY(open_data(s, err));
    RU_TRY(open_trace(s, err));
    RU_TRY(ru_local_open(&s->run, 0, s->arena, &s->local, err));
    ru_fed_sum_options sum = ru_fed_sum_of(s->job, start->flat);
    sum.rng = &s->noise; /* two runs with one seed are equal; nobody's samples are in it */
    RU_TRY(ru_fed_sum_open(&sum, s->arena, &s->sum, err));
    return open_fed(s, start->round, err);
}

/* The round as a line, and the snapshot. */
static ru_status write_round(sim *s, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text t = ru_text_arena(&arena);
    ru_text_putf(&t,
                 "{\"schema\":\"rubato.fed.round/1\",\"round\":%u,\"sent\":%u,\"answers\":%u,"
                 "\"seconds\":",
                 s->round, s->n_sent, s->n_merged);
    ru_text_f64(&t, (double)(s->now.ns - s->round_begun.ns) * 1e-9);
    ru_text_put(&t, ",\"simulated_s\":");
    ru_text_f64(&t, (double)s->now.ns * 1e-9);
    ru_text_put(&t, ",\"loss\":");
    ru_text_f64(&t, s->weight > 0 ? s->loss / s->weight : 0);
    if (ru_fed_epsilon(s->fed) >= 0) {
        ru_text_put(&t, ",\"epsilon\":");
        ru_text_f64(&t, ru_fed_epsilon(s->fed));
    }
    ru_text_put(&t, "}\n");
    ru_status st = t.cut ? RU_FAIL(err, RU_E_MEM, "no memory for a line") : save(s, &t, err);
    ru_arena_fini(&arena);
    return st;
}

static ru_status next(void *self, ru_round *out, ru_err *err)
{
    sim *s = self;
    s->merged = false;
    while (!s->merged && !s->done) {
        if (ru_self_stop_asked() != 0) {
            *out = (ru_round){.ended = "stopped"};
            return RU_OK;
        }
        RU_TRY(advance(s, err));
    }
    *out = (ru_round){.values = s->values,
                      .samples = (int64_t)s->weight * s->job->epochs,
                      .loss = s->weight > 0 ? s->loss / s->weight : -1,
                      .accuracy = s->weight > 0 ? s->correct / s->weight : -1,
                      .ended = s->merged ? NULL : "done"};
    return s->merged ? write_round(s, err) : RU_OK;
}

static ru_status kept(void *self, int64_t round, ru_err *err)
{
    (void)round;
    return word(self, RU_FED_KEPT, 0, NULL, 0, err);
}

ru_status ru_fed_sim(const ru_fed_sim_options *opt, ru_arena *arena, ru_fed_sim_result *out,
                     ru_err *err)
{
    static const ru_rounds_ops ops = {begin, next, kept};
    sim *s = RU_NEW(arena, sim, 1);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a simulation");
    }
    *s = (sim){.opt = opt,
               .job = &opt->train->job->federated,
               .arena = arena,
               .timer = {INT64_MAX},
               .rng = ru_rng_from((uint64_t)opt->train->job->train.seed, ru_rng_label("sim")),
               .noise = ru_rng_from((uint64_t)opt->train->job->train.seed, ru_rng_label("noise"))};
    ru_arena_init(&s->fx_arena, 0);
    ru_effects_init(&s->fx, &s->fx_arena);
    ru_status st = ru_train_rounds(opt->train, &ops, s, arena, &out->train, err);
    double took = s->begun.ns != 0 ? (double)ru_time_since(ru_clock_now(), s->begun) * 1e-9 : 0;
    out->simulated_s = (double)s->now.ns * 1e-9;
    out->decision_most_s = s->decided.most_s;
    out->decision_mean_s = s->decided.n > 0 ? s->decided.sum_s / s->decided.n : 0;
    out->decisions = s->decided.n;
    out->epsilon = s->fed != NULL ? ru_fed_epsilon(s->fed) : -1;
    out->client_epsilon = -1;
    for (uint32_t i = 0, most = 0; out->epsilon >= 0 && i < opt->split.clients; i++) {
        uint32_t picks = ru_fed_audit(s->fed, i).picks;
        if (i == 0 || picks > most) {
            most = picks;
            out->client_epsilon = ru_fed_epsilon_of(s->fed, i);
        }
    }
    out->spent = s->spent;
    out->rounds_per_s = took > 0 ? (s->round - s->first) / took : 0;
    ru_local_close(s->local);
    ru_dataset_close(s->train);
    ru_dataset_close(s->test);
    free(s->values);
    free(s->work);
    free(s->masked);
    free(s->due.items);
    free(s->saved);
    ru_arena_fini(&s->fx_arena);
    return st;
}
