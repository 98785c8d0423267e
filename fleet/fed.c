#include "fleet/fed.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cost/step/prior.h"
#include "fleet/fed_impl.h"

static const double drift_far = 0.3, drift_part = 0.1, learn = 0.4;
static const double window_rounds = 20, pacer_step = 0.05;

uint32_t rui_fed_at_once(const ru_fed_options *opt)
{
    return opt->at_once > 0 && opt->at_once < opt->n ? opt->at_once : opt->n;
}

ru_fed_options ru_fed_options_of(const ru_job *job, uint32_t n)
{
    const ru_job_federated *j = &job->federated;
    return (ru_fed_options){
        .n = n,
        .rounds = (uint32_t)j->rounds,
        .per_round = j->per_round,
        .n_tiers = j->tiers,
        .interval = j->interval,
        .profile_rounds = j->profiles,
        .profile_wait_ns = j->profile_wait_ns,
        .answers_min = j->answers_min > j->secure.threshold ? j->answers_min : j->secure.threshold,
        .method = (ru_pick_method)j->method,
        .seed = (uint64_t)job->train.seed,
        .absent = true,
        .at_once = j->at_once,
        .clients_min = j->clients_min,
        .deadline_s = (double)j->deadline_ns * 1e-9,
        .keeps = true,
        .noise = j->privacy.noise / 2, /* a move of length clip for another */
        .delta = j->privacy.delta,
        .epsilon_most = j->privacy.epsilon};
}

ru_status ru_fed_init(const ru_fed_options *opt, ru_time now, ru_arena *arena, ru_fed **out,
                      ru_err *err)
{
    if (opt->n < 1 || opt->rounds < 1 || opt->profile_rounds < 1 || opt->profile_wait_ns < 1 ||
        opt->n_tiers < 1 || opt->n_tiers > RU_PICK_TIERS_MAX || opt->interval < 1 ||
        (opt->samples == NULL && !opt->absent)) {
        return RU_FAIL(err, RU_E_ARG, "%u rounds of %u clients in %u tiers, %u profiles",
                       opt->rounds, opt->n, opt->n_tiers, opt->profile_rounds);
    }
    (void)now;
    ru_fed *f = RU_NEW(arena, ru_fed, 1);
    client *clients = RU_NEW(arena, client, opt->n);
    ru_pick_client *facts = RU_NEW(arena, ru_pick_client, opt->n);
    uint32_t *lists = RU_NEW(arena, uint32_t, 4 * (int64_t)opt->n + rui_fed_at_once(opt));
    int64_t work_bytes = 131072 + 256 * (int64_t)opt->n +
                         (opt->kmeans ? 16 * ((int64_t)opt->n_tiers + 2) * (opt->n + 1) : 0);
    void *work = ru_arena_alloc(arena, work_bytes, 64);
    if (f == NULL || clients == NULL || facts == NULL || lists == NULL || work == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u clients", opt->n);
    }
    *f = (ru_fed){.opt = *opt,
                  .clients = clients,
                  .facts = facts,
                  .tier_of = lists,
                  .list = lists + opt->n,
                  .merge = lists + 2 * (size_t)opt->n,
                  .queue = lists + 3 * (size_t)opt->n,
                  .probes = lists + 4 * (size_t)opt->n,
                  .round = opt->round_first,
                  .stage = opt->absent ? WAIT : PROFILE,
                  .told = {INT64_MAX},
                  .deadline = {INT64_MAX},
                  .last_tier = RU_PICK_NONE,
                  .prefer = 0.3};
    ru_arena_init_fixed(&f->work, work, work_bytes);
    for (uint32_t i = 0; i < opt->n; i++) {
        clients[i] = (client){.samples = opt->samples != NULL ? opt->samples[i] : 1, .loss = -1};
        clients[i].state = opt->absent ? AWAY : IDLE;
        f->tier_of[i] = RU_PICK_NONE;
    }
    for (uint32_t t = 0; t < RU_PICK_TIERS_MAX; t++) {
        f->tier[t] = (ru_pick_tier){-1, -1, -1};
    }
    *out = f;
    if (!(opt->noise > 0)) {
        return RU_OK;
    }
    f->privacy.before = RU_NEW(arena, double, RU_PRIVACY_ORDERS);
    return f->privacy.before != NULL
               ? ru_privacy_open(opt->noise, arena, &f->privacy.account, err)
               : RU_FAIL(err, RU_E_MEM, "no memory for the account of privacy");
}

static void tell(const ru_fed *f, ru_fed_word word, ru_effects *fx)
{
    ru_fx_local(fx, f->opt.what_first + (uint32_t)word, 0, NULL, 0);
}

static ru_fed_list *tell_list(const ru_fed *f, ru_fed_word word, const uint32_t *list, uint32_t n,
                              ru_effects *fx)
{
    int64_t clients_bytes = n * (int64_t)sizeof *list;
    ru_fed_list *l = ru_fx_local(fx, f->opt.what_first + (uint32_t)word, 0, NULL,
                                 (int64_t)sizeof *l + clients_bytes);
    l->round = f->round;
    l->n = n;
    memcpy(l->client, list, (size_t)clients_bytes);
    return l;
}

void rui_fed_recount(ru_fed *f, client *c)
{
    bool measures = c->mean_s > 0 && c->state != AWAY, idle = measures && c->state == IDLE;
    f->there += (uint32_t)measures - (uint32_t)c->measures;
    f->free += (uint32_t)idle - (uint32_t)c->idle;
    c->measures = measures;
    c->idle = idle;
}

static void task_to(ru_fed *f, uint32_t i, ru_time now)
{
    client *c = &f->clients[i];
    c->state = BUSY;
    c->sent = now;
    c->task = f->task;
    rui_fed_recount(f, c);
    f->list[f->n_list++] = i;
}

/* The task to those of the list, if there are any. */
static void send(ru_fed *f, bool profile, double share_most, ru_effects *fx)
{
    if (f->n_list > 0) {
        ru_fed_list *l = tell_list(f, RU_FED_TASK, f->list, f->n_list, fx);
        l->task = f->task;
        l->profile = profile;
        l->share_most = share_most;
    }
    f->n_list = 0;
}

static void begin_profile(ru_fed *f, ru_time now, ru_effects *fx)
{
    f->task++;
    f->profiles++;
    f->answered = 0;
    f->deadline.ns = now.ns + f->opt.profile_wait_ns;
    for (uint32_t i = 0; i < f->opt.n; i++) {
        if (f->clients[i].state == IDLE) {
            task_to(f, i, now);
        }
    }
    f->wait = f->n_list;
    send(f, true, 0, fx);
}

const ru_pick_in *ru_fed_facts(ru_fed *f)
{
    for (uint32_t i = 0; i < f->opt.n; i++) {
        const client *c = &f->clients[i];
        f->facts[i] = (ru_pick_client){.latency_s = c->mean_s,
                                       .samples = c->samples,
                                       .loss = c->loss,
                                       .picks = c->picks,
                                       .last_round = c->last_round,
                                       .away = c->state != IDLE || !(c->mean_s > 0)};
    }
    f->in = (ru_pick_in){
        .client = f->facts,
        .n = f->opt.n,
        .tier_of = f->tiered_round > 0 ? f->tier_of : NULL,
        .n_tiers = f->opt.n_tiers,
        .kmeans = f->opt.kmeans,
        .tier = f->tier,
        .n_told = f->opt.n_tiers,
        .chance = f->chance,
        .n_chance = f->has_chance ? f->opt.n_tiers : 0,
        .round = f->round > 0 ? f->round : 1,
        .rounds = f->opt.rounds,
        .per_round = f->opt.per_round,
        .interval = f->opt.interval,
        .last_tier = f->last_tier == RU_PICK_NONE ? -1 : (int64_t)f->last_tier,
        .fedcs_s = f->opt.fedcs_s,
        .prefer = f->prefer,
        .spread = f->spread_n > 0 ? sqrt(fmax(0, f->spread_square / f->spread_n) + f->doubt) : 0,
        .seed = f->opt.seed,
        .method = f->opt.method};
    return &f->in;
}

/* Is more than a tenth of a tier far off what it was when tiers were made? */
static bool drifted(const ru_fed *f)
{
    uint32_t n[RU_PICK_TIERS_MAX] = {0}, far[RU_PICK_TIERS_MAX] = {0};
    for (uint32_t i = 0; i < f->opt.n; i++) {
        const client *c = &f->clients[i];
        if (c->state != AWAY && f->tier_of[i] < f->opt.n_tiers) {
            n[f->tier_of[i]]++;
            far[f->tier_of[i]] += fabs(c->mean_s / c->tiered_s - 1) > drift_far ? 1 : 0;
        }
    }
    for (uint32_t t = 0; t < f->opt.n_tiers; t++) {
        if (far[t] > drift_part * n[t]) {
            return true;
        }
    }
    return false;
}

/* A profile of few tasks spreads the means of clients that are alike: their logarithms are replaced
 * by what the law of all clients says about each. What stays unknown of one adds to the jitter. */
static ru_status shrink(ru_fed *f, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(&f->work);
    double *log_s = RU_NEW(&f->work, double, f->opt.n), doubt;
    uint32_t n = 0;
    if (log_s == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u means", f->opt.n);
    }
    for (uint32_t i = 0; i < f->opt.n; i++) {
        if (f->tier_of[i] != RU_PICK_NONE) {
            log_s[n++] = ru_math_log(f->clients[i].mean_s);
        }
    }
    double jitter = f->spread_n > 0 ? fmax(0, f->spread_square / f->spread_n) : 0;
    RU_TRY(ru_prior_means(log_s, n, sqrt(jitter / f->opt.profile_rounds), &f->work, log_s, &doubt,
                          err));
    for (uint32_t i = 0, k = 0; i < f->opt.n; i++) {
        if (f->tier_of[i] != RU_PICK_NONE) {
            f->clients[i].mean_s = ru_math_exp(log_s[k++]);
        }
    }
    f->doubt = doubt;
    ru_arena_rewind(&f->work, mark);
    return RU_OK;
}

/* Tiers of all that are not away; those that are late count with the time they take by now. */
static ru_status make_tiers(ru_fed *f, ru_effects *fx, ru_err *err)
{
    bool due = f->opt.retier_rounds > 0 && f->round >= f->tiered_round + f->opt.retier_rounds;
    if (f->tiered_round > 0 && !f->stale && !due && !drifted(f)) {
        return RU_OK;
    }
    ru_pick_in in = *ru_fed_facts(f);
    for (uint32_t i = 0; i < f->opt.n; i++) {
        f->facts[i].away = f->clients[i].state == AWAY || !(f->clients[i].mean_s > 0);
    }
    RU_TRY(ru_pick_tiers(&in, &f->work, f->tier_of, err));
    if (f->tiered_round == 0) {
        RU_TRY(shrink(f, err));
    }
    for (uint32_t i = 0; i < f->opt.n; i++) {
        f->clients[i].tiered_s = f->clients[i].mean_s;
    }
    f->tiered_round = f->round;
    f->stale = false;
    tell(f, RU_FED_RETIERED, fx);
    return RU_OK;
}

/* Oort's pacer: slower clients become welcome when utility falls. */
static void pace(ru_fed *f)
{
    if (f->opt.method == RU_PICK_OORT && f->round > 1 && fmod(f->round - 1, window_rounds) < 0.5) {
        if (f->utility_before > 0 && f->utility < 0.9 * f->utility_before) {
            f->prefer = fmin(1, f->prefer + pacer_step);
        }
        f->utility_before = f->utility;
        f->utility = 0;
    }
}

/* Too few clients are free: the round begins when others answer or join. */
static bool must_wait(const ru_fed *f)
{
    bool few = f->round == 0 && f->there < f->opt.clients_min;
    return few || f->free < f->opt.per_round || f->there < f->opt.n_tiers;
}

static void say_waiting(const ru_fed *f, ru_effects *fx)
{
    ru_fx_local(fx, f->opt.what_first + RU_FED_WAITING, f->there, NULL, 0);
}

double ru_fed_epsilon(const ru_fed *f)
{
    return f->privacy.account != NULL ? ru_privacy_epsilon(f->privacy.account, f->opt.delta, 0)
                                      : -1;
}

double ru_fed_epsilon_of(const ru_fed *f, uint32_t i)
{
    return f->privacy.account != NULL
               ? ru_privacy_known(f->opt.noise, f->clients[i].picks, f->opt.delta)
               : -1;
}

/* Would another round, with that chance of each client to be in it, tell too much of one? */
static bool tells_too_much(const ru_fed *f, double share)
{
    return f->privacy.account != NULL && f->opt.epsilon_most > 0 &&
           ru_privacy_epsilon(f->privacy.account, f->opt.delta, share) > f->opt.epsilon_most;
}

static void done(ru_fed *f, int64_t why, ru_effects *fx)
{
    f->stage = DONE;
    f->deadline.ns = INT64_MAX;
    ru_fx_local(fx, f->opt.what_first + RU_FED_DONE, why, NULL, 0);
}

static ru_status begin_round(ru_fed *f, ru_time now, ru_effects *fx, ru_err *err)
{
    if (must_wait(f)) {
        if (f->stage != WAIT || f->opt.absent) {
            say_waiting(f, fx);
        }
        f->stage = WAIT;
        f->deadline.ns = INT64_MAX;
        return RU_OK;
    }
    f->stage = ROUND;
    f->round++;
    pace(f);
    RU_TRY(make_tiers(f, fx, err));
    ru_arena_mark mark = ru_arena_mark_get(&f->work);
    ru_pick_plan p;
    const ru_pick_in *in = ru_fed_facts(f);
    RU_TRY(ru_plan_pick(in, &f->work, &f->work, &p, err));
    RU_TRY(ru_plan_pick_check(in, &p, &f->work, err));
    f->privacy.share = p.share_drawn;
    if (tells_too_much(f, f->privacy.share)) {
        f->round--;
        done(f, 1, fx);
        ru_arena_rewind(&f->work, mark);
        return RU_OK;
    }
    f->task++;
    for (uint32_t k = 0; k < p.n; k++) {
        task_to(f, p.client[k], now);
    }
    for (uint32_t t = 0; t < p.n_tiers; t++) {
        f->tier[t].credits = p.credits[t];
        f->chance[t] = p.chance[t];
    }
    f->has_chance = true;
    f->last_tier = p.tier;
    f->wait = p.wait;
    f->sent_n = p.n;
    f->answered = f->n_merge = 0;
    double deadline_s =
        f->opt.deadline_s > 0 ? f->opt.deadline_s : fmax(p.deadline_s, f->opt.deadline_least_s);
    /* Nobody waits longer than eleven days, and the sum of many rounds fits into the clock. */
    f->deadline.ns = now.ns + (int64_t)(fmin(deadline_s, 1e6) * 1e9);
    send(f, false, p.share_most, fx);
    ru_arena_rewind(&f->work, mark);
    return RU_OK;
}

/* All profiles are there: means, spread, and who never answered. */
static ru_status end_profile(ru_fed *f, ru_time now, ru_effects *fx, ru_err *err)
{
    double wait_s = (double)f->opt.profile_wait_ns * 1e-9;
    for (uint32_t i = 0; i < f->opt.n; i++) {
        client *c = &f->clients[i];
        if (c->state == BUSY) {
            c->state = LATE;
        }
        c->mean_s = c->profile_s / f->opt.profile_rounds;
        if (c->measured == 0 || c->profile_s >= f->opt.profile_rounds * wait_s) {
            c->state = AWAY;
        }
        if (c->measured > 1) {
            double m = c->log_sum / c->measured;
            f->spread_square += c->log_square - c->measured * m * m;
            f->spread_n += c->measured - 1;
        }
        rui_fed_recount(f, c);
    }
    return begin_round(f, now, fx, err);
}

/* The rest of a profile counts as long as it was waited for. */
static void close_profile(ru_fed *f)
{
    for (uint32_t i = 0; i < f->opt.n; i++) {
        client *c = &f->clients[i];
        if (c->state != AWAY && c->task != f->task) {
            c->profile_s += (double)f->opt.profile_wait_ns * 1e-9; /* late from an earlier one */
        } else if (c->state == BUSY) {
            c->profile_s += (double)f->opt.profile_wait_ns * 1e-9;
            c->state = LATE;
        }
    }
}

static ru_status next_profile(ru_fed *f, ru_time now, ru_effects *fx, ru_err *err)
{
    close_profile(f);
    if (f->profiles < f->opt.profile_rounds) {
        begin_profile(f, now, fx);
        return RU_OK;
    }
    return end_profile(f, now, fx, err);
}

static ru_status after_kept(ru_fed *f, ru_time now, ru_effects *fx, ru_err *err)
{
    if (f->round >= f->opt.rounds) {
        done(f, 0, fx);
        return RU_OK;
    }
    bool uses = f->opt.method == RU_PICK_ADAPTIVE || f->opt.method == RU_PICK_TIFL;
    if (uses && f->round % f->opt.interval == 0) {
        f->stage = EVALUATE;
        f->deadline.ns = INT64_MAX;
        tell(f, RU_FED_EVALUATE, fx);
        return RU_OK;
    }
    return begin_round(f, now, fx, err);
}

static ru_status after_round(ru_fed *f, ru_time now, ru_effects *fx, ru_err *err)
{
    if (f->opt.keeps) {
        f->stage = KEEP;
        f->deadline.ns = INT64_MAX;
        return RU_OK;
    }
    return after_kept(f, now, fx, err);
}

static ru_status end_round(ru_fed *f, ru_time now, ru_effects *fx, ru_err *err)
{
    uint32_t n_stop = 0;
    for (uint32_t i = 0; i < f->opt.n; i++) {
        client *c = &f->clients[i];
        if (c->state == BUSY && f->n_merge == f->wait && !c->probing) {
            c->state = IDLE;
            c->task = 0; /* what comes all the same is not taken */
            rui_fed_recount(f, c);
            f->list[n_stop++] = i;
        } else if (c->state == BUSY && !(f->opt.absent && c->probing)) {
            c->state = LATE; /* it takes at least as long as this */
            c->mean_s = fmax(c->mean_s, (double)(now.ns - c->sent.ns) * 1e-9);
        }
    }
    if (n_stop > 0) {
        tell_list(f, RU_FED_STOP, f->list, n_stop, fx);
    }
    uint32_t least = f->opt.answers_min > 0 ? f->opt.answers_min : 1;
    if (f->n_merge < least) {
        f->round--; /* once more, without those that are late */
        return begin_round(f, now, fx, err);
    }
    if (f->privacy.account != NULL) {
        memcpy(f->privacy.before, ru_privacy_orders(f->privacy.account),
               RU_PRIVACY_ORDERS * sizeof *f->privacy.before);
        ru_privacy_add(f->privacy.account, f->privacy.share);
    }
    tell_list(f, RU_FED_MERGE, f->merge, f->n_merge, fx);
    return after_round(f, now, fx, err);
}

/* -- clients that come while the job runs ---------------------------------------------------------
 */

static void probe(ru_fed *f, uint32_t i, ru_time now)
{
    f->clients[i].probing = true;
    f->probes[f->n_probes++] = i;
    task_to(f, i, now);
}

static void probe_over(ru_fed *f, uint32_t i)
{
    for (uint32_t k = 0; k < f->n_probes; k++) {
        if (f->probes[k] == i) {
            f->probes[k] = f->probes[--f->n_probes];
            return;
        }
    }
}

/* Profiles of those who wait, at most `at_once` under way. */
static void probe_next(ru_fed *f, ru_time now, ru_effects *fx)
{
    f->task += f->n_queue > 0 ? 1 : 0;
    while (f->n_queue > 0 && f->n_probes < rui_fed_at_once(&f->opt) && f->stage != DONE) {
        uint32_t i = f->queue[f->queue_at];
        f->queue_at = (f->queue_at + 1) % f->opt.n;
        f->n_queue--;
        f->clients[i].queued = false;
        if (f->clients[i].state == IDLE && !f->clients[i].probing) {
            probe(f, i, now);
        }
    }
    send(f, true, 0, fx);
}

static void enqueue(ru_fed *f, uint32_t i)
{
    if (!f->clients[i].queued) {
        f->clients[i].queued = true;
        f->queue[(f->queue_at + f->n_queue++) % f->opt.n] = i;
    }
}

/* Those whose profile takes too long count as late, and others take their turn. */
static void probes_late(ru_fed *f, ru_time now)
{
    for (uint32_t k = f->n_probes; k-- > 0;) {
        client *c = &f->clients[f->probes[k]];
        if (now.ns - c->sent.ns >= f->opt.profile_wait_ns) {
            c->state = LATE;
            rui_fed_recount(f, c);
            f->probes[k] = f->probes[--f->n_probes];
        }
    }
}

/* The mean of the profile's answers so far; another one follows. */
static void profiled(ru_fed *f, uint32_t i, double took)
{
    client *c = &f->clients[i];
    double l = ru_math_log(took), before = c->measured > 0 ? c->log_sum / c->measured : 0;
    c->measured++;
    c->log_sum += l;
    if (c->measured > 1) {
        f->spread_square += (l - before) * (l - c->log_sum / c->measured);
        f->spread_n++;
    }
    c->profile_s += took;
    c->probing = c->measured < f->opt.profile_rounds;
    c->mean_s = c->probing ? 0 : c->profile_s / c->measured;
    if (c->probing) {
        c->probing = false;
        enqueue(f, i);
    }
}

static ru_status answer_probe(ru_fed *f, uint32_t i, double took, ru_time now, ru_effects *fx,
                              ru_err *err)
{
    client *c = &f->clients[i];
    probe_over(f, i);
    c->probing = false;
    profiled(f, i, took);
    f->stale = f->stale || c->mean_s > 0;
    rui_fed_recount(f, c);
    probe_next(f, now, fx);
    return f->stage == WAIT ? begin_round(f, now, fx, err) : RU_OK;
}

bool ru_fed_counts(const ru_fed *f, uint32_t i, uint32_t task)
{
    RU_CHECK(i < f->opt.n);
    const client *c = &f->clients[i];
    return f->stage == ROUND && c->state == BUSY && !c->probing && c->task == task;
}

static ru_status answer(ru_fed *f, const ru_fed_answer *a, ru_time now, ru_effects *fx, ru_err *err)
{
    RU_CHECK(a->client < f->opt.n);
    client *c = &f->clients[a->client];
    if ((c->state != BUSY && c->state != LATE) || c->task != a->task) {
        return RU_OK; /* it left meanwhile, or answers twice */
    }
    double took = fmax((double)(now.ns - c->sent.ns) * 1e-9, 1e-9);
    bool counts = c->state == BUSY;
    c->state = IDLE;
    rui_fed_recount(f, c);
    if (f->opt.absent && c->probing) {
        return answer_probe(f, a->client, took, now, fx, err);
    }
    if (f->stage == PROFILE) {
        if (counts) {
            double l = ru_math_log(took);
            c->profile_s += took;
            c->measured++;
            c->log_sum += l;
            c->log_square += l * l;
            f->answered++;
        }
        return f->answered == f->wait ? next_profile(f, now, fx, err) : RU_OK;
    }
    c->mean_s = c->mean_s > 0 ? c->mean_s + learn * (took - c->mean_s) : took;
    rui_fed_recount(f, c);
    bool probing = c->probing;
    c->probing = false;
    f->stale = f->stale || probing;
    if (f->stage == WAIT) {
        return begin_round(f, now, fx, err);
    }
    if (!counts || probing || f->stage != ROUND) {
        return RU_OK;
    }
    c->picks++;
    c->last_round = f->round;
    c->loss = a->loss >= 0 ? a->loss : c->loss;
    f->utility += fmax(a->loss, 0) * c->samples;
    f->merge[f->n_merge++] = a->client;
    return f->n_merge == f->wait || f->n_merge >= f->sent_n ? end_round(f, now, fx, err) : RU_OK;
}

static void evaluated(ru_fed *f, const double *accuracy)
{
    for (uint32_t t = 0; t < f->opt.n_tiers; t++) {
        f->tier[t].before = f->tier[t].accuracy;
        f->tier[t].accuracy = accuracy[t];
    }
}

static uint32_t client_of(const ru_fed *f, int64_t value)
{
    RU_CHECK(value >= 0 && value < f->opt.n);
    return (uint32_t)value;
}

static ru_status join_late(ru_fed *f, uint32_t i, ru_time now, ru_effects *fx, ru_err *err)
{
    client *c = &f->clients[i];
    probe_over(f, i);
    c->state = IDLE;
    c->probing = false;
    c->task = 0;
    rui_fed_recount(f, c);
    if (!(c->mean_s > 0)) {
        enqueue(f, i);
        probe_next(f, now, fx);
    } else if (f->tier_of[i] == RU_PICK_NONE) {
        f->stale = true;
    }
    return f->stage == WAIT ? begin_round(f, now, fx, err) : RU_OK;
}

static void join(ru_fed *f, uint32_t i, ru_time now, ru_effects *fx)
{
    f->clients[i].state = IDLE;
    rui_fed_recount(f, &f->clients[i]);
    f->stale = true;
    if (f->stage != PROFILE && f->stage != DONE) { /* how long does it take? */
        f->clients[i].probing = true;
        task_to(f, i, now);
        send(f, true, 0, fx);
    }
}

/* Who was to be waited for and is lost is waited for no more. */
static ru_status away(ru_fed *f, uint32_t i, ru_time now, ru_effects *fx, ru_err *err)
{
    client *c = &f->clients[i];
    bool owes = f->stage == ROUND && c->state == BUSY && !c->probing;
    c->state = AWAY;
    c->probing = false;
    rui_fed_recount(f, c);
    if (!f->opt.absent) {
        f->stale = true;
        return RU_OK;
    }
    probe_over(f, i);
    probe_next(f, now, fx);
    f->sent_n -= owes ? 1 : 0;
    return owes && f->n_merge >= f->sent_n ? end_round(f, now, fx, err) : RU_OK;
}

/* It is not waited for; what it says later shows how long it takes. */
static ru_status excused(ru_fed *f, uint32_t i, ru_time now, ru_effects *fx, ru_err *err)
{
    client *c = &f->clients[i];
    if (f->stage != ROUND || c->state != BUSY || c->probing) {
        return RU_OK;
    }
    c->state = LATE;
    rui_fed_recount(f, c);
    f->sent_n--;
    return f->n_merge >= f->sent_n ? end_round(f, now, fx, err) : RU_OK;
}

static ru_status again(ru_fed *f, ru_time now, ru_effects *fx, ru_err *err)
{
    if (f->stage != KEEP) {
        return RU_OK;
    }
    if (f->privacy.account != NULL) { /* nothing was made of that sum, or told */
        memcpy(ru_privacy_orders(f->privacy.account), f->privacy.before,
               RU_PRIVACY_ORDERS * sizeof *f->privacy.before);
    }
    f->round--;
    return begin_round(f, now, fx, err);
}

static ru_status hear(ru_fed *f, const ru_event *ev, ru_effects *fx, ru_err *err)
{
    switch (ru_word(ev->what, f->opt.what_first, RU_FED_WORDS)) {
    case RU_FED_ANSWER:
        return answer(f, ru_event_data(ev, sizeof(ru_fed_answer)), ev->now, fx, err);
    case RU_FED_EVALUATED:
        if (f->stage != EVALUATE) {
            return RU_OK;
        }
        evaluated(f, ru_event_data(ev, f->opt.n_tiers * (int64_t)sizeof(double)));
        return begin_round(f, ev->now, fx, err);
    case RU_FED_JOIN:
        if (ev->size_bytes > 0) {
            f->clients[client_of(f, ev->value)].samples =
                *(const double *)ru_event_data(ev, sizeof(double));
        }
        if (f->opt.absent) {
            return join_late(f, client_of(f, ev->value), ev->now, fx, err);
        }
        join(f, client_of(f, ev->value), ev->now, fx);
        return RU_OK;
    case RU_FED_LEAVE:
        return away(f, client_of(f, ev->value), ev->now, fx, err);
    case RU_FED_KEPT:
        return f->stage == KEEP ? after_kept(f, ev->now, fx, err) : RU_OK;
    case RU_FED_AGAIN:
        return again(f, ev->now, fx, err);
    case RU_FED_EXCUSED:
        return excused(f, client_of(f, ev->value), ev->now, fx, err);
    default:
        return RU_OK;
    }
}

static ru_status wake(ru_fed *f, ru_time now, ru_effects *fx, ru_err *err)
{
    f->told.ns = INT64_MAX;
    if (f->opt.absent) {
        probes_late(f, now);
        probe_next(f, now, fx);
    }
    if (now.ns < f->deadline.ns) {
        return RU_OK;
    }
    return f->stage == PROFILE ? next_profile(f, now, fx, err)
           : f->stage == ROUND ? end_round(f, now, fx, err)
                               : RU_OK;
}

void ru_fed_step(ru_fed *f, const ru_event *ev, ru_effects *fx)
{
    ru_err err = {0};
    ru_status st = RU_OK;
    if (ev->kind == RU_EV_START && f->opt.absent) {
        st = begin_round(f, ev->now, fx, &err);
    } else if (ev->kind == RU_EV_START) {
        begin_profile(f, ev->now, fx);
    } else if (ev->kind == RU_EV_LOCAL) {
        st = hear(f, ev, fx, &err);
    } else if (ev->kind == RU_EV_TIMER && ev->what == f->opt.what_first + RU_FED_TIMER) {
        st = wake(f, ev->now, fx, &err);
    }
    if (st != RU_OK) {
        f->stage = DONE;
        f->deadline.ns = INT64_MAX;
        ru_fx_local(fx, f->opt.what_first + RU_FED_FAILED, st, err.text,
                    (int64_t)strlen(err.text) + 1);
    }
    ru_time at = f->deadline;
    for (uint32_t k = 0; f->opt.absent && k < f->n_probes; k++) {
        int64_t late_ns = f->clients[f->probes[k]].sent.ns + f->opt.profile_wait_ns;
        at.ns = late_ns < at.ns ? late_ns : at.ns;
    }
    ru_fx_wake(fx, f->opt.what_first + RU_FED_TIMER, at, &f->told);
}

uint32_t ru_fed_round(const ru_fed *f)
{
    return f->round;
}

const uint32_t *ru_fed_tier_of(const ru_fed *f)
{
    return f->tier_of;
}

ru_pick_client ru_fed_audit(const ru_fed *f, uint32_t i)
{
    RU_CHECK(i < f->opt.n);
    const client *c = &f->clients[i];
    return (ru_pick_client){c->mean_s, c->samples,    c->loss,
                            c->picks,  c->last_round, c->state == AWAY};
}
