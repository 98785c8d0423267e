#include "bench/replay/fleet/replay_pick.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "sim/sim.h"

enum { SLOTS = 128, LAST = 50, EVERY = 5, BATCH = 10, INTERVAL = 10, PROFILES = 5 };

typedef float model[RUI_FED_CLASSES][RUI_FED_FEATURES];

typedef struct member {
    uint32_t *train, *test; /* images */
    uint32_t n_train, n_test;
    uint32_t group;
    double samples, seconds; /* mean time of a task */
    double right;            /* mean accuracy of the last rounds */
    bool dead;
} member;

typedef struct fleet {
    const rui_fed_in *in;
    ru_sim *sim;
    ru_fed *fed;
    ru_arena *arena;
    member *members; /* [n] */
    ru_rng rng;      /* jitter */
    model global, slot[SLOTS];
    uint32_t owner[SLOTS], n_slots;
    uint32_t round, looks;
    int64_t begun_ns, rounds_ns, ended_ns;
    uint64_t timer;
    ru_arena memory;
    ru_effects fx;
    bool upset;
    rui_fed_out out;
    ru_status st;
    ru_err *err;
} fleet;

/* -- data -------------------------------------------------------------------------------------- */

/* Which classes each client has: slots of classes by lot, no class twice. into [n, k]. */
static void deal_classes(ru_rng *rng, uint32_t n, uint32_t k, uint8_t *into)
{
    for (uint32_t i = 0; i < n * k; i++) {
        into[i] = (uint8_t)(i % RUI_FED_CLASSES);
    }
    for (uint32_t i = 0; i + 1 < n * k; i++) {
        uint32_t j = i + ru_rng_below(rng, n * k - i);
        uint8_t t = into[i];
        into[i] = into[j];
        into[j] = t;
    }
    for (uint32_t i = 0; i < n * k; i++) { /* a double is exchanged until it is none */
        for (bool twice = true; twice;) {
            twice = false;
            for (uint32_t j = i / k * k; j < i / k * k + k; j++) {
                twice = twice || (j != i && into[j] == into[i]);
            }
            if (twice) {
                uint32_t j = ru_rng_below(rng, n * k);
                uint8_t t = into[i];
                into[i] = into[j];
                into[j] = t;
                i = j / k < i / k ? j / k * k : i; /* what was exchanged is looked at again */
            }
        }
    }
}

/* The images of each class in equal parts to the clients that have it. */
static ru_status deal_images(fleet *f, const rui_images *images, const uint8_t *classes, bool train,
                             ru_err *err)
{
    const rui_fed_in *in = f->in;
    uint32_t k = in->classes, *order = RU_NEW(f->arena, uint32_t, images->n);
    for (uint32_t i = 0; i < in->n && order != NULL; i++) {
        uint32_t *list = RU_NEW(f->arena, uint32_t, images->n / in->n * RUI_FED_CLASSES + 64);
        if (list == NULL) {
            order = NULL;
        }
        *(train ? &f->members[i].train : &f->members[i].test) = list;
    }
    if (order == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the images of %u clients", in->n);
    }
    ru_rng rng = ru_rng_from(in->seed, ru_rng_label(train ? "train" : "test"));
    ru_rng_shuffle(&rng, order, images->n);
    uint32_t have[RUI_FED_CLASSES] = {0}, next[RUI_FED_CLASSES] = {0};
    for (uint32_t i = 0; i < in->n * k; i++) {
        have[classes[i]]++;
    }
    for (uint32_t p = 0; p < images->n; p++) {
        uint32_t c = images->label[order[p]], want = next[c]++ % have[c];
        for (uint32_t i = 0, seen = 0; i < in->n * k; i++) {
            if (classes[i] == c && seen++ == want) {
                member *m = &f->members[i / k];
                if (train) {
                    m->train[m->n_train++] = order[p];
                } else {
                    m->test[m->n_test++] = order[p];
                }
                break;
            }
        }
    }
    return RU_OK;
}

/* Shares of a core of five groups; a sample takes 1.1 ms of a whole one. */
static void set_speeds(fleet *f, uint32_t *order)
{
    static const double quota[RUI_FED_GROUPS] = {0.4, 0.2, 0.1, 0.05, 0.01};
    ru_rng rng = ru_rng_from(f->in->seed, ru_rng_label("speeds"));
    ru_rng_shuffle(&rng, order, f->in->n);
    for (uint32_t p = 0; p < f->in->n; p++) {
        member *m = &f->members[order[p]];
        m->group = (uint32_t)((uint64_t)p * RUI_FED_GROUPS / f->in->n);
        m->seconds = 0.05 + m->samples * 1.1e-3 / quota[m->group];
    }
}

/* -- training -----------------------------------------------------------------------------------
 */

static void scores(const model w, const float *x, float *out)
{
    for (uint32_t c = 0; c < RUI_FED_CLASSES; c++) {
        float sum = 0;
        for (uint32_t k = 0; k < RUI_FED_FEATURES; k++) {
            sum += w[c][k] * x[k];
        }
        out[c] = sum;
    }
}

/* Softmax in place; cross-entropy of `label`. */
static double softmax(float *s, uint32_t label)
{
    float top = s[0];
    double sum = 0;
    for (uint32_t c = 1; c < RUI_FED_CLASSES; c++) {
        top = s[c] > top ? s[c] : top;
    }
    for (uint32_t c = 0; c < RUI_FED_CLASSES; c++) {
        s[c] = (float)ru_math_exp(fmax(-80, (double)s[c] - (double)top));
        sum += (double)s[c];
    }
    for (uint32_t c = 0; c < RUI_FED_CLASSES; c++) {
        s[c] = (float)((double)s[c] / sum);
    }
    return -ru_math_log(fmax((double)s[label], 1e-30));
}

/* One local epoch from the global model; root mean square of the losses. */
static double train(fleet *f, uint32_t client, model w)
{
    const member *m = &f->members[client];
    const rui_images *im = f->in->train;
    double lr = 0.1 * ru_math_exp(ru_fed_round(f->fed) * ru_math_log(0.995)), squares = 0;
    ru_rng rng = ru_rng_from(f->in->seed + client, ru_fed_round(f->fed));
    uint32_t order[512], n = m->n_train < 512 ? m->n_train : 512;
    ru_rng_shuffle(&rng, order, n);
    memcpy(w, f->global, sizeof(model));
    for (uint32_t b = 0; b < n; b += BATCH) {
        model g = {{0}};
        uint32_t size = b + BATCH < n ? BATCH : n - b;
        for (uint32_t i = b; i < b + size; i++) {
            const float *x = im->x[m->train[order[i]]];
            uint32_t label = im->label[m->train[order[i]]];
            float s[RUI_FED_CLASSES];
            scores((const float(*)[RUI_FED_FEATURES])w, x, s);
            double loss = softmax(s, label);
            squares += loss * loss;
            s[label] -= 1;
            for (uint32_t c = 0; c < RUI_FED_CLASSES; c++) {
                for (uint32_t k = 0; k < RUI_FED_FEATURES; k++) {
                    g[c][k] += s[c] * x[k];
                }
            }
        }
        float step = (float)(lr / size);
        for (uint32_t c = 0; c < RUI_FED_CLASSES; c++) {
            for (uint32_t k = 0; k < RUI_FED_FEATURES; k++) {
                w[c][k] -= step * g[c][k];
            }
        }
    }
    return sqrt(squares / n);
}

static void merge(fleet *f, const uint32_t *who, uint32_t n)
{
    double all = 0;
    model sum = {{0}};
    for (uint32_t k = 0; k < n; k++) {
        all += f->members[who[k]].samples;
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t s = 0;
        while (f->owner[s] != who[k]) {
            s++;
        }
        float part = (float)(f->members[who[k]].samples / all);
        for (uint32_t c = 0; c < RUI_FED_CLASSES; c++) {
            for (uint32_t i = 0; i < RUI_FED_FEATURES; i++) {
                sum[c][i] += part * f->slot[s][c][i];
            }
        }
    }
    memcpy(f->global, sum, sizeof sum);
}

static double right_of(const fleet *f, const uint32_t *list, uint32_t n)
{
    uint32_t right = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = list != NULL ? list[i] : i, best = 0;
        float s[RUI_FED_CLASSES];
        scores((const float(*)[RUI_FED_FEATURES])f->global, f->in->test->x[at], s);
        for (uint32_t c = 1; c < RUI_FED_CLASSES; c++) {
            best = s[c] > s[best] ? c : best;
        }
        right += best == f->in->test->label[at] ? 1 : 0;
    }
    return (double)right / n;
}

/* Accuracy of each tier's clients, each by its own images. */
static void tier_accuracy(const fleet *f, double *into)
{
    double n[RU_PICK_TIERS_MAX] = {0};
    const uint32_t *tier_of = ru_fed_tier_of(f->fed);
    for (uint32_t t = 0; t < f->in->n_tiers; t++) {
        into[t] = 0;
    }
    for (uint32_t i = 0; i < f->in->n; i++) {
        const member *m = &f->members[i];
        if (tier_of[i] < f->in->n_tiers && !m->dead && m->n_test > 0) {
            into[tier_of[i]] += right_of(f, m->test, m->n_test) * m->n_test;
            n[tier_of[i]] += m->n_test;
        }
    }
    for (uint32_t t = 0; t < f->in->n_tiers; t++) {
        into[t] = n[t] > 0 ? into[t] / n[t] : -1;
    }
}

static void look(fleet *f, uint32_t round)
{
    if (f->in->test == NULL || round + LAST <= f->in->rounds || round % EVERY != 0) {
        return;
    }
    f->looks++;
    f->out.accuracy += right_of(f, NULL, f->in->test->n);
    for (uint32_t i = 0; i < f->in->n; i++) {
        f->members[i].right += right_of(f, f->members[i].test, f->members[i].n_test);
    }
}

/* -- rounds -------------------------------------------------------------------------------------
 */

static void answered(void *self, uint64_t arg);
static void timer(void *self, uint64_t unused);

/* Predicted seconds of a round from what the profile showed, or from the speeds themselves. */
static ru_status estimate(fleet *f, bool known, double *seconds, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(f->arena);
    ru_pick_in in = *ru_fed_facts(f->fed);
    ru_pick_client *c = RU_NEW(f->arena, ru_pick_client, in.n);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u clients", in.n);
    }
    for (uint32_t i = 0; i < in.n; i++) {
        c[i] = ru_fed_audit(f->fed, i);
        c[i].away = c[i].away || !(c[i].latency_s > 0);
        if (known) {
            c[i].latency_s = f->members[i].seconds;
            c[i].away = f->members[i].dead;
        }
    }
    in.client = c;
    in.n_chance = 0;
    in.tier_of = known ? NULL : in.tier_of;
    ru_pick_plan p;
    RU_TRY(ru_plan_pick(&in, f->arena, f->arena, &p, err));
    RU_TRY(ru_pick_round_mean(&in, &p, f->arena, seconds, err));
    ru_arena_rewind(f->arena, mark);
    return RU_OK;
}

static void upheaval(fleet *f)
{
    ru_rng rng = ru_rng_from(f->in->seed, ru_rng_label("upheaval"));
    for (uint32_t i = 0; i < f->in->n; i++) {
        member *m = &f->members[i];
        m->dead = ru_rng_f64(&rng) < 0.1;
        m->seconds *= m->group == 1 ? 2 : 1;
    }
}

/* A task of a round goes out: at first what it should take, then the upheaval half way. */
static void begin_round(fleet *f, const ru_fed_list *l)
{
    if (f->rounds_ns == 0) {
        f->rounds_ns = ru_sim_now(f->sim).ns;
        f->st = estimate(f, false, &f->out.estimate_s, f->err);
        f->out.estimate_s *= f->in->rounds;
    }
    if (f->in->upheaval && !f->upset && l->round >= f->in->rounds / 2) {
        double before = 0, after = 0;
        f->upset = true;
        f->st = estimate(f, true, &before, f->err);
        upheaval(f);
        f->st = f->st == RU_OK ? estimate(f, true, &after, f->err) : f->st;
        f->out.oracle_s = (before + after) * f->in->rounds / 2;
    }
    f->n_slots = 0;
    f->out.share_most = fmax(f->out.share_most, l->share_most);
}

static void send(fleet *f, const ru_fed_list *l)
{
    if (!l->profile) {
        begin_round(f, l);
    }
    for (uint32_t k = 0; k < l->n; k++) {
        const member *m = &f->members[l->client[k]];
        double jitter = f->in->jitter, z = jitter * ru_rng_normal(&f->rng);
        double s = m->seconds * ru_math_exp(z - jitter * jitter / 2);
        if (!m->dead) {
            ru_time at = {ru_sim_now(f->sim).ns + llround(s * 1e9)};
            (void)ru_sim_at(f->sim, at, answered, f,
                            (uint64_t)l->task << 33 | (uint64_t)(l->profile ? 1 : 0) << 32 |
                                l->client[k]);
        }
    }
}

/* What the machine tells. EVALUATE is answered when the step is over. */
static void hear(fleet *f, const ru_effect *e, bool *evaluate)
{
    const ru_fed_list *l = e->data;
    switch (e->what) {
    case RU_FED_MERGE:
        if (f->in->train != NULL) {
            merge(f, l->client, l->n);
            look(f, l->round);
        }
        break;
    case RU_FED_RETIERED:
        f->out.retiered++;
        break;
    case RU_FED_TASK:
        send(f, l);
        break;
    case RU_FED_EVALUATE:
        *evaluate = true;
        break;
    case RU_FED_DONE:
        f->ended_ns = ru_sim_now(f->sim).ns;
        ru_sim_stop(f->sim);
        break;
    case RU_FED_FAILED:
        f->st = RU_FAIL(f->err, (ru_status)e->value, "%s", (const char *)e->data);
        ru_sim_stop(f->sim);
        break;
    default:
        break;
    }
}

static void step(fleet *f, ru_event ev)
{
    double accuracy[RU_PICK_TIERS_MAX];
    for (bool more = true; more;) {
        more = false;
        ev.now = ru_sim_now(f->sim);
        ru_fed_step(f->fed, &ev, &f->fx);
        for (uint32_t i = 0; i < f->fx.n; i++) {
            const ru_effect *e = &f->fx.at[i];
            if (e->kind == RU_FX_LOCAL) {
                hear(f, e, &more);
            } else {
                ru_sim_cancel(f->sim, f->timer);
                f->timer = e->kind == RU_FX_TIMER ? ru_sim_at(f->sim, e->at, timer, f, 0) : 0;
            }
        }
        ru_effects_clear(&f->fx);
        for (uint32_t t = 0; more && t < f->in->n_tiers; t++) {
            accuracy[t] = -1;
        }
        if (more && f->in->test != NULL) {
            tier_accuracy(f, accuracy);
        }
        ev = (ru_event){.kind = RU_EV_LOCAL,
                        .what = RU_FED_EVALUATED,
                        .data = accuracy,
                        .size_bytes = f->in->n_tiers * (int64_t)sizeof *accuracy};
    }
}

static void timer(void *self, uint64_t unused)
{
    fleet *f = self;
    (void)unused;
    f->timer = 0;
    step(f, (ru_event){.kind = RU_EV_TIMER, .what = RU_FED_TIMER});
}

static void answered(void *self, uint64_t arg)
{
    fleet *f = self;
    uint32_t client = (uint32_t)arg;
    bool profile = (arg >> 32 & 1) != 0;
    double loss = -1;
    if (f->members[client].dead) {
        return;
    }
    if (!profile && f->in->train != NULL && f->n_slots < SLOTS) {
        f->owner[f->n_slots] = client;
        loss = train(f, client, f->slot[f->n_slots++]);
    }
    const ru_fed_answer a = {client, (uint32_t)(arg >> 33), loss};
    step(f, (ru_event){
                .kind = RU_EV_LOCAL, .what = RU_FED_ANSWER, .data = &a, .size_bytes = sizeof a});
}

static ru_status build(fleet *f, ru_err *err)
{
    const rui_fed_in *in = f->in;
    f->members = RU_NEW(f->arena, member, in->n);
    uint32_t *order = RU_NEW(f->arena, uint32_t, in->n);
    uint8_t *classes = RU_NEW(f->arena, uint8_t, (int64_t)in->n * RUI_FED_CLASSES);
    double *samples = RU_NEW(f->arena, double, in->n);
    if (f->members == NULL || order == NULL || classes == NULL || samples == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u clients", in->n);
    }
    if (in->train != NULL) {
        ru_rng rng = ru_rng_from(in->seed, ru_rng_label("classes"));
        deal_classes(&rng, in->n, in->classes, classes);
        RU_TRY(deal_images(f, in->train, classes, true, err));
        RU_TRY(deal_images(f, in->test, classes, false, err));
    }
    double wait = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        f->members[i].samples = in->train != NULL ? f->members[i].n_train : in->samples[i];
        samples[i] = f->members[i].samples;
    }
    set_speeds(f, order);
    for (uint32_t i = 0; i < in->n; i++) {
        wait = fmax(wait, 2 * f->members[i].seconds);
    }
    const ru_fed_options opt = {.n = in->n,
                                .samples = samples,
                                .rounds = in->rounds,
                                .per_round = in->per_round,
                                .n_tiers = in->n_tiers,
                                .interval = INTERVAL,
                                .profile_rounds = PROFILES,
                                .profile_wait_ns = llround(wait * 1e9),
                                .retier_rounds = in->retier_rounds,
                                .kmeans = in->kmeans,
                                .method = in->method,
                                .seed = in->seed};
    return ru_fed_init(&opt, ru_sim_now(f->sim), f->arena, &f->fed, err);
}

static void sum_up(fleet *f)
{
    const rui_fed_in *in = f->in;
    double ever = 0;
    f->out.seconds = (double)(f->ended_ns - f->rounds_ns) * 1e-9;
    f->out.profile_s = (double)(f->rounds_ns - f->begun_ns) * 1e-9;
    for (uint32_t i = 0; i < in->n; i++) {
        ever += ru_fed_audit(f->fed, i).picks > 0 ? 1 : 0;
    }
    f->out.covered = ever / in->n;
    double trained_all = 0, there_all = 0;
    for (uint32_t pass = 0; pass < 2 && in->labels != NULL; pass++) {
        for (uint32_t l = 0; l < in->n_labels; l++) {
            double trained = 0, there = 0;
            for (uint32_t i = 0; i < in->n; i++) {
                double v = in->labels[(size_t)i * in->n_labels + l];
                trained += v * ru_fed_audit(f->fed, i).picks;
                there += v;
            }
            trained_all += pass == 0 ? trained : 0;
            there_all += pass == 0 ? there : 0;
            f->out.label_gap += pass == 1 ? fabs(trained / trained_all - there / there_all) / 2 : 0;
        }
    }
    if (f->looks == 0) {
        return;
    }
    f->out.accuracy /= f->looks;
    uint32_t worst = in->n / 10;
    for (uint32_t k = 0; k < worst; k++) {
        uint32_t least = k;
        for (uint32_t i = k + 1; i < in->n; i++) {
            least = f->members[i].right < f->members[least].right ? i : least;
        }
        member t = f->members[k];
        f->members[k] = f->members[least];
        f->members[least] = t;
        f->out.worst_decile += f->members[k].right / f->looks / worst;
    }
}

ru_status rui_fed_run(const rui_fed_in *in, ru_arena *arena, rui_fed_out *out, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(arena);
    fleet *f = RU_NEW(arena, fleet, 1);
    if (f == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a fleet");
    }
    f->in = in;
    f->arena = arena;
    f->err = err;
    f->rng = ru_rng_from(in->seed, ru_rng_label("jitter"));
    const ru_sim_options opt = {.seed = in->seed};
    RU_TRY(ru_sim_open(&opt, &f->sim, err));
    f->begun_ns = ru_sim_now(f->sim).ns;
    ru_arena_init(&f->memory, 0);
    ru_effects_init(&f->fx, &f->memory);
    ru_status st = build(f, err);
    if (st == RU_OK) {
        step(f, (ru_event){.kind = RU_EV_START});
        st = f->st == RU_OK ? ru_sim_run(f->sim, (ru_time){INT64_C(4000000000000000000)}, err)
                            : f->st;
    }
    ru_sim_close(f->sim);
    ru_arena_fini(&f->memory);
    RU_TRY(st);
    RU_TRY(f->st);
    if (f->ended_ns == 0) {
        return RU_FAIL(err, RU_E_BUG, "the rounds came to a halt at %u", ru_fed_round(f->fed));
    }
    sum_up(f);
    *out = f->out;
    ru_arena_rewind(arena, mark);
    return RU_OK;
}
