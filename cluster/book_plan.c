/* The next plan of a cluster: plan/fleet/alloc.h for each priority, the highest first. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cluster/book.h"

/* What a job loses while it grows or shrinks, or stops and starts to do so (0.43 to 0.88 s with a
 * state of 1 MB), as long as nobody has measured it, and the time in which that must pay. */
static const double pause_s = 0.3, restart_s = 0.5;
static const int64_t hold_ns = 30 * INT64_C(1000000000);
/* Models of jobs are wrong by some hundredths, and other ones every round: a change that is worth
 * less is made again and again, there and back. */
static const double worth = 0.05;
static const int64_t starves_ns = 600 * INT64_C(1000000000);
/* To the policy two jobs are alike of which one can run: without this they would take turns, and
 * stop and start in each round. So much heavier is one that runs; a job that waits loses a thousand
 * times what one that runs does, so this is a tenth of what a job has. */
static const double goes_on = 1.0001;
/* Short work first: a job that has measured its steps weighs (mean / what it has left)^rush, the
 * mean that of all such jobs, as the replay has it (docs/policies/alloc.md). What is left is known
 * to some tenths, so another job takes the place of one that runs only if it has much less. */
static const double rush = 0.5, goes_on_rush = 1.1, left_max_s = 1e15;
static const double unknown_s = 30; /* device-seconds in which a job begins to tell its steps */
static const uint32_t any_batch = 1 << 20; /* of a job of which nothing was measured */
static const double demote_s = 57600;      /* of a journal that says nothing */
/* A full search of a large cluster takes half a second. Between two of them a round begins with
 * what is in force: devices that are free go to who gains most, and a few moves follow for jobs
 * that wait. Moves of these, measured on a day of 1,000 nodes (docs/measured/cluster.md). */
static const int64_t search_ns = 1800 * INT64_C(1000000000);
enum { LARGE = 256, TRIES = 200, TRIES_JOB = 1000, TRIES_MAX = 4000 }; /* LARGE: jobs and nodes */

typedef struct planner {
    const ru_book *b;
    const ru_book_measured *measured; /* by slot */
    int64_t now_ns;
    ru_arena *scratch;
    uint32_t left[RU_BOOK_NODES_MAX]; /* slots that nobody has been given yet */
    uint32_t *most;                   /* by slot: workers that the user's slots allow */
    bool weighs;                      /* users have weights, and the method knows them */
    bool brief;                       /* no full search in this round */
    ru_journal_event *events;         /* [n] */
    uint32_t n;
} planner;

static void put_grant(planner *p, uint32_t job, const ru_alloc_part *parts, uint32_t n,
                      uint32_t demoted)
{
    ru_text t = ru_text_arena(p->scratch);
    for (uint32_t k = 0; k < n; k++) {
        ru_text_putf(&t, "%s%u:%u", k > 0 ? " " : "", parts[k].node, parts[k].devices);
    }
    p->events[p->n++] = (ru_journal_event){
        .kind = RU_BOOK_GRANT, .job = job, .b = demoted, .text = n > 0 ? t.p : ""};
}

/* Those that would stop because they were scaled to more than there is, or request more than they
 * have, go on with less. */
static bool some_go_on(const planner *p, const uint32_t *numbers, const ru_alloc_plan *plan,
                       ru_alloc_job *jobs)
{
    bool any = false;
    for (uint32_t i = 0; i < plan->n_jobs; i++) {
        const ru_book_job *j = ru_book_job_at(p->b, numbers[i]);
        uint32_t least = j->least, has = ru_book_place(p->b, j)->replicas;
        bool grew = ru_alloc_fixed(p->b->method) && has >= least && has < jobs[i].replicas;
        if (plan->jobs[i].replicas == 0 && jobs[i].n_now > 0 &&
            (least < jobs[i].replicas_min || grew)) {
            jobs[i].replicas_min = least < jobs[i].replicas_min ? least : jobs[i].replicas_min;
            jobs[i].replicas = has > least ? has : least;
            any = true;
        }
    }
    return any;
}

static const ru_alloc_part *part_on(const ru_alloc_part *parts, uint32_t n, uint32_t node)
{
    for (uint32_t k = 0; k < n; k++) {
        if (parts[k].node == node) {
            return &parts[k];
        }
    }
    return NULL;
}

/* May a job that spans nodes use this one? No other that does may. */
static bool link_free(const ru_alloc_plan *plan, uint32_t job, uint32_t node)
{
    bool is = true;
    for (uint32_t i = 0; i < plan->n_jobs && is; i++) {
        const ru_alloc_share *s = &plan->jobs[i];
        is =
            i == job || s->n_parts < 2 || part_on(&plan->parts[s->first], s->n_parts, node) == NULL;
    }
    return is;
}

/* To the plan all nodes are alike: a job gets a node that it has instead of a new one if so many
 * slots are left there, so that no worker moves for nothing. false: nothing of it changes then. */
static bool stay_put(planner *p, const ru_alloc_plan *plan, const ru_alloc_job *j, uint32_t i,
                     ru_alloc_part *parts)
{
    uint32_t n = plan->jobs[i].n_parts;
    bool changes = n != j->n_now;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t h = 0; h < j->n_now && part_on(j->now, j->n_now, parts[k].node) == NULL;
             h++) {
            uint32_t old = j->now[h].node;
            if (part_on(parts, n, old) == NULL && p->left[old] >= parts[k].devices &&
                (n < 2 || link_free(plan, i, old))) {
                p->left[parts[k].node] += parts[k].devices;
                p->left[old] -= parts[k].devices;
                parts[k].node = old;
            }
        }
        const ru_alloc_part *had = part_on(j->now, j->n_now, parts[k].node);
        changes = changes || had == NULL || had->devices != parts[k].devices;
    }
    return changes;
}

/* Whole nanoseconds as the file of `alloc` has them: both plans see the same bits. */
static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

static void put_ns(ru_json *j, const char *key, double s)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lldns", (long long)(s * 1e9 + 0.5));
    ru_json_str(j, key, text);
}

static void put_job(const planner *p, uint32_t number, const ru_alloc_job *a, ru_json *j)
{
    const ru_perf *f = &a->model.perf;
    const double perf[] = {f->pass_s, f->pass_example_s, f->net_s,  f->net_replica_s,
                           f->node_s, f->node_replica_s, f->overlap};
    ru_json_open(j, NULL, '{');
    ru_json_str(
        j, "name",
        ru_arena_printf(p->scratch, "%u %s", number, ru_book_job_at(p->b, number)->spec.name));
    ru_json_i64(j, "replicas", a->replicas);
    ru_json_i64(j, "replicas_min", a->replicas_min);
    ru_json_i64(j, "replicas_max", a->replicas_max);
    ru_json_i64(j, "batch_first", a->model.batch_first);
    ru_json_i64(j, "batch_max", a->model.batch_max);
    ru_json_i64(j, "local_min", a->model.local_min);
    ru_json_i64(j, "local_max", a->model.local_max);
    ru_json_i64(j, "batch", a->model.batch);
    ru_json_bool(j, "one_pass", a->model.one_pass);
    ru_json_open(j, "perf", '[');
    for (uint32_t k = 0; f->overlap >= 1 && k < RU_ARRAY_LEN(perf); k++) {
        ru_json_f64(j, NULL, perf[k]);
    }
    ru_json_close(j);
    ru_json_f64(j, "sqr", a->model.sqr);
    ru_json_f64(j, "var", a->model.var);
    put_ns(j, "age", a->age_s);
    ru_json_f64(j, "service", a->service_s);
    ru_json_i64(j, "restarts", a->restarts);
    ru_json_f64(j, "remaining", a->remaining);
    ru_json_f64(j, "left", a->left);
    ru_json_i64(j, "demoted", a->demoted);
    ru_json_open(j, "step", '[');
    for (uint32_t k = 0; k < a->n_step; k++) {
        ru_json_f64(j, NULL, a->step_s[k]);
    }
    ru_json_close(j);
    ru_json_open(j, "now", '[');
    for (uint32_t k = 0; k < a->n_now; k++) {
        for (uint32_t i = 0; i < a->now[k].devices; i++) {
            ru_json_i64(j, NULL, a->now[k].node);
        }
    }
    ru_json_close(j);
    ru_json_close(j);
}

/* What is asked, as plan/fleet/alloc_policy.c reads it. */
static void put_question(const planner *p, const uint32_t *numbers, const ru_alloc_in *in)
{
    ru_json j = ru_json_into(p->b->asks);
    ru_json_open(&j, NULL, '{');
    ru_json_open(&j, "nodes", '[');
    for (uint32_t k = 0; k < in->n_nodes; k++) {
        ru_json_i64(&j, NULL, in->devices[k]);
    }
    ru_json_close(&j);
    ru_json_open(&j, "jobs", '[');
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        put_job(p, numbers[i], &in->jobs[i], &j);
    }
    ru_json_close(&j);
    if (in->method == RU_ALLOC_POLLUX) {
        ru_json_open(&j, "weights", '[');
        for (uint32_t i = 0; i < in->n_jobs; i++) {
            ru_json_f64(&j, NULL, in->jobs[i].weight);
        }
        ru_json_close(&j);
    }
    ru_json_f64(&j, "power", in->power);
    put_ns(&j, "restart", in->restart_s);
    put_ns(&j, "hold", in->hold_s);
    ru_json_f64(&j, "decay", in->decay);
    ru_json_f64(&j, "decay_service", in->decay_s);
    ru_json_f64(&j, "rush", in->rush);
    ru_json_i64(&j, "spread_max", in->spread_max);
    ru_json_i64(&j, "nodes_min", in->nodes_min);
    ru_json_i64(&j, "nodes_max", in->nodes_max);
    ru_json_i64(&j, "seed", (int64_t)in->seed);
    ru_json_i64(&j, "tries", in->tries);
    ru_json_f64(&j, "demote", in->demote_s);
    ru_json_str(&j, "method", ru_alloc_method_name(in->method));
    ru_json_close(&j);
    ru_text_put(p->b->asks, "\n");
}

/* A job of which nothing is known yet begins on one node: whether sums between nodes pay is not
 * worth a guess that holds up its first steps. One that tells no steps is bounded for a while only.
 */
static uint32_t first_most(const planner *p, const ru_alloc_job *job)
{
    uint32_t most = job->replicas_min > 1 ? job->replicas_min : 1, has = 0;
    for (uint32_t k = 0; k < p->b->n_nodes; k++) {
        most = p->left[k] > most ? p->left[k] : most;
    }
    for (uint32_t k = 0; k < job->n_now; k++) {
        has += job->now[k].devices;
    }
    most = has > most ? has : most;
    return most < job->replicas_max ? most : job->replicas_max;
}

static void put_facts(const planner *p, const uint32_t *numbers, uint32_t n, ru_alloc_job *jobs)
{
    const uint32_t slots = ru_book_slots(p->b, false);
    for (uint32_t i = 0; i < n; i++) {
        const ru_book_job *j = ru_book_job_at(p->b, numbers[i]);
        ru_sched_facts(&p->b->sched, j->slot, (ru_time){p->now_ns}, &jobs[i]);
        jobs[i].age_s = seconds(p->now_ns - p->b->sched.jobs[j->slot].arrived.ns);
        jobs[i].replicas_max = p->most[j->slot];
        jobs[i].replicas_min = j->min < p->most[j->slot] ? j->min : p->most[j->slot];
        jobs[i].remaining = p->measured[j->slot].remaining;
        jobs[i].model = p->measured[j->slot].model;
        jobs[i].step_s = p->measured[j->slot].step_s;
        jobs[i].n_step = p->measured[j->slot].n_step;
        if (jobs[i].model.perf.overlap < 1 || ru_goodput_replicas_max(&jobs[i].model) < j->min) {
            jobs[i].model = (ru_goodput_model){
                .batch_first = 1, .batch_max = any_batch, .local_min = 1, .local_max = any_batch};
            jobs[i].remaining = 0;
            if (p->b->method == RU_ALLOC_POLLUX && jobs[i].service_s < unknown_s) {
                jobs[i].replicas_max = first_most(p, &jobs[i]);
            }
        }
        jobs[i].left = jobs[i].remaining * jobs[i].model.batch_first;
        const uint32_t bounds[] = {slots, p->most[j->slot],
                                   ru_goodput_replicas_max(&jobs[i].model)};
        jobs[i].replicas = ru_book_request(j);
        for (uint32_t k = 0; k < RU_ARRAY_LEN(bounds); k++) {
            jobs[i].replicas = bounds[k] < jobs[i].replicas ? bounds[k] : jobs[i].replicas;
        }
        if (jobs[i].replicas < jobs[i].replicas_min) {
            jobs[i].replicas = jobs[i].replicas_min;
        }
    }
}

/* The users of some jobs. */
typedef struct sharer {
    const char *owner;
    uint32_t weight, jobs, slots, next;
} sharer;

static uint32_t sharer_of(const planner *p, sharer *all, uint32_t *n, const char *owner)
{
    uint32_t k = 0;
    while (k < *n && strcmp(all[k].owner, owner) != 0) {
        k++;
    }
    if (k == *n) {
        all[(*n)++] = (sharer){.owner = owner, .weight = ru_book_weight(p->b, owner)};
    }
    return k;
}

/* Users take turns: the next job is the earliest one of who has the fewest slots for its weight.
 * Those for which nothing is left come behind the others in `numbers`. How many come first? */
static uint32_t take_turns(const planner *p, sharer *users, uint32_t n_users, uint32_t *of,
                           uint32_t *numbers, bool *goes, uint32_t n)
{
    uint64_t left = 0;
    for (uint32_t k = 0; k < p->b->n_nodes; k++) {
        left += p->left[k];
    }
    for (uint32_t turn = 0; turn < n; turn++) {
        sharer *next = NULL;
        for (uint32_t k = 0; k < n_users; k++) {
            sharer *u = &users[k];
            while (u->next < n && of[u->next] != k) {
                u->next++;
            }
            if (u->next < n && (next == NULL || (uint64_t)u->slots * next->weight <
                                                    (uint64_t)next->slots * u->weight)) {
                next = u;
            }
        }
        RU_CHECK(next != NULL);
        uint32_t least = ru_book_job_at(p->b, numbers[next->next])->least;
        goes[next->next++] = least <= left;
        next->slots += least <= left ? least : 0;
        left -= least <= left ? least : 0;
    }
    uint32_t first = 0, late = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (goes[i]) {
            numbers[first++] = numbers[i];
        } else {
            of[late++] = numbers[i]; /* whose place is not asked for any more */
        }
    }
    memcpy(&numbers[first], of, late * sizeof *of);
    return first;
}

/* Jobs of a user share its weight. *first: so many are planned before the others. */
static ru_status weigh(const planner *p, uint32_t *numbers, uint32_t n, uint32_t *first,
                       double *weights, ru_err *err)
{
    sharer *users = RU_NEW(p->scratch, sharer, RU_BOOK_USERS_MAX + 1);
    uint32_t *of = RU_NEW(p->scratch, uint32_t, n), n_users = 0;
    bool *goes = RU_NEW(p->scratch, bool, n);
    if (users == NULL || of == NULL || goes == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u jobs", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        of[i] = sharer_of(p, users, &n_users, ru_book_job_at(p->b, numbers[i])->owner);
    }
    *first = take_turns(p, users, n_users, of, numbers, goes, n);
    for (uint32_t from = 0, to = *first; from < n; from = to, to = n) { /* each part by itself */
        for (uint32_t pass = 0; pass < 2; pass++) {
            for (uint32_t i = from; i < to; i++) {
                const char *owner = ru_book_job_at(p->b, numbers[i])->owner;
                sharer *u = &users[sharer_of(p, users, &n_users, owner)];
                u->jobs = pass == 0 ? u->jobs + 1 : u->jobs;
                weights[i] = (double)u->weight / u->jobs;
            }
        }
        for (uint32_t k = 0; k < n_users; k++) {
            users[k].jobs = 0;
        }
    }
    return RU_OK;
}

/* Moves of the search; 0: a full one. */
static uint32_t tries_of(const planner *p, const ru_alloc_job *jobs, uint32_t n)
{
    uint32_t tries = TRIES;
    for (uint32_t i = 0; i < n && tries < TRIES_MAX; i++) {
        tries += jobs[i].n_now == 0 ? TRIES_JOB : 0;
    }
    return p->brief ? tries : 0;
}

/* Seconds of one device that jobs have left, on the geometric mean of those that know; 0: none. */
static double usual_left_s(const ru_alloc_job *jobs, uint32_t n)
{
    double sum = 0;
    uint32_t known = 0;
    for (uint32_t i = 0; i < n; i++) {
        double goodput = jobs[i].left > 0 ? ru_goodput_best(&jobs[i].model, 1, 1).goodput : 0;
        sum += goodput > 0 ? log(jobs[i].left / goodput) : 0;
        known += goodput > 0;
    }
    return known > 0 ? fmin(exp(sum / known), left_max_s) : 0;
}

/* Some jobs of one priority, by their numbers, on what is left. `weights`: NULL: all are alike. */
static ru_status plan_some(planner *p, const uint32_t *numbers, uint32_t n, const double *weights,
                           ru_err *err)
{
    ru_alloc_job *jobs = RU_NEW(p->scratch, ru_alloc_job, n);
    if (jobs == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u jobs", n);
    }
    put_facts(p, numbers, n, jobs);
    const bool rushes = p->b->method == RU_ALLOC_POLLUX && !p->weighs; /* else users' weights */
    for (uint32_t i = 0; i < n && p->b->method == RU_ALLOC_POLLUX; i++) {
        jobs[i].weight = weights != NULL ? weights[i] : 1;
        jobs[i].weight *= jobs[i].n_now == 0 ? 1 : rushes ? goes_on_rush : goes_on;
    }
    const double lost_s = p->b->pause_s > 0 ? p->b->pause_s : p->b->restarts ? restart_s : pause_s;
    const ru_alloc_in in = {.jobs = jobs,
                            .n_jobs = n,
                            .devices = p->left,
                            .n_nodes = p->b->n_nodes,
                            .power = -1,
                            .restart_s = seconds((int64_t)(1e9 * lost_s + 0.5)),
                            .hold_s = seconds((int64_t)fmin((double)hold_ns, 1e9 * lost_s / worth)),
                            .decay_s = rushes ? usual_left_s(jobs, n) : 0,
                            .rush = rushes ? rush : 0,
                            .spread_max = RU_BOOK_SPREAD_MAX,
                            .nodes_min = 1,
                            .nodes_max = p->b->n_nodes,
                            .demote_s =
                                p->b->demote_ms > 0 ? 1e-3 * (double)p->b->demote_ms : demote_s,
                            .method = p->b->method,
                            .tries = tries_of(p, jobs, n),
                            .seed = 1};
    ru_alloc_plan plan;
    RU_TRY(ru_plan_alloc(&in, p->scratch, p->scratch, &plan, err));
    while (some_go_on(p, numbers, &plan, jobs)) {
        RU_TRY(ru_plan_alloc(&in, p->scratch, p->scratch, &plan, err));
    }
    RU_TRY(ru_plan_alloc_check(&in, &plan, p->scratch, err));
    if (p->b->asks != NULL) {
        put_question(p, numbers, &in);
    }
    ru_alloc_part *all = RU_NEW(p->scratch, ru_alloc_part, plan.n_parts + 1);
    if (all == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u jobs", n);
    }
    for (uint32_t k = 0; k < plan.n_parts; k++) {
        all[k] = plan.parts[k];
        p->left[all[k].node] -= all[k].devices;
    }
    plan.parts = all;
    for (uint32_t i = 0; i < n; i++) {
        const ru_alloc_share *a = &plan.jobs[i];
        ru_alloc_part *parts = &all[a->first];
        bool moves = a->changed && stay_put(p, &plan, &jobs[i], i, parts);
        if (moves || a->demoted != jobs[i].demoted) {
            put_grant(p, numbers[i], parts, a->n_parts, a->demoted);
        }
    }
    return RU_OK;
}

/* The jobs of one priority. */
static ru_status plan_all(planner *p, uint32_t *numbers, uint32_t n, ru_err *err)
{
    uint32_t first = n;
    double *weights = p->weighs ? RU_NEW(p->scratch, double, n) : NULL;
    if (weights == NULL) {
        return p->weighs ? RU_FAIL(err, RU_E_MEM, "no memory to plan %u jobs", n)
                         : plan_some(p, numbers, n, NULL, err);
    }
    RU_TRY(weigh(p, numbers, n, &first, weights, err));
    RU_TRY(first > 0 ? plan_some(p, numbers, first, weights, err) : RU_OK);
    return first < n ? plan_some(p, &numbers[first], n - first, &weights[first], err) : RU_OK;
}

/* What the jobs of a user may have: the least of each in their order, then more in the same order.
 * Those for which nothing is left get 0. */
static void share_slots(planner *p, const ru_book_user *u, const int64_t (*order)[2], uint32_t n)
{
    uint32_t left = u->slots;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < n; i++) {
            const ru_book_job *j = ru_book_job_at(p->b, order[i][1]);
            if (u->slots == 0 || strcmp(j->owner, u->name) != 0) {
                continue;
            }
            uint32_t has = pass == 0 ? 0 : p->most[j->slot];
            uint32_t least = j->min <= left ? j->min : j->least;
            uint32_t wants = pass == 0 ? least : has == 0 ? 0 : j->max - has;
            uint32_t more = wants <= left ? wants : pass == 0 ? 0 : left;
            p->most[j->slot] = has + more;
            left -= more;
        }
    }
}

static int by_priority(const void *x, const void *y)
{
    const int64_t *a = x, *b = y;
    return a[0] != b[0] ? (a[0] > b[0] ? -1 : 1) : (a[1] > b[1]) - (a[1] < b[1]);
}

ru_status ru_book_plan(ru_book *b, const ru_book_measured *measured, int64_t now_ns,
                       ru_arena *scratch, ru_journal_event **events, uint32_t *n, ru_err *err)
{
    planner p = {.b = b,
                 .measured = measured,
                 .now_ns = now_ns > b->at_ns ? now_ns : b->at_ns,
                 .scratch = scratch};
    int64_t(*order)[2] = ru_arena_zalloc(scratch, (int64_t)(b->n_live + 1) * 16, 8);
    uint32_t *numbers = RU_NEW(scratch, uint32_t, b->n_live + 1), n_jobs = 0;
    p.weighs = b->method == RU_ALLOC_POLLUX && ru_book_weight(b, "") > 0;
    p.events = RU_NEW(scratch, ru_journal_event, b->n_live + 1);
    p.most = RU_NEW(scratch, uint32_t, b->sched.n_jobs + 1);
    if (order == NULL || p.most == NULL || numbers == NULL || p.events == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to plan %u jobs", b->n_live);
    }
    for (uint32_t k = 0; k < b->n_nodes; k++) {
        p.left[k] = b->nodes[k].drained ? 0 : b->nodes[k].slots;
    }
    for (uint32_t slot = 0; slot < b->sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(b, b->of[slot]);
        if (j != NULL && !j->cancelled) {
            bool starves = j->state == RU_BOOK_WAITS && p.now_ns - j->waits_ns > starves_ns;
            order[n_jobs][0] = 2 * j->priority + starves;
            order[n_jobs++][1] = b->of[slot];
            p.most[slot] = j->max;
        }
        for (uint32_t k = 0; j != NULL && j->cancelled && k < b->n_nodes; k++) {
            uint32_t has = ru_book_granted(b, j, k);
            p.left[k] -= has < p.left[k] ? has : p.left[k];
        }
    }
    n_jobs = b->n_nodes > 0 ? n_jobs : 0;
    p.brief =
        b->searched_ns > 0 && p.now_ns - b->searched_ns < search_ns && n_jobs + b->n_nodes > LARGE;
    b->searched_ns = p.brief ? b->searched_ns : p.now_ns;
    qsort(order, n_jobs, sizeof *order, by_priority);
    for (uint32_t k = 0; k < b->n_users; k++) {
        share_slots(&p, &b->users[k], (const int64_t(*)[2])order, n_jobs);
    }
    for (uint32_t n_some = 0, i = 0; i < n_jobs; i++) {
        const ru_book_job *j = ru_book_job_at(b, order[i][1]);
        if (p.most[j->slot] > 0) {
            numbers[n_some++] = (uint32_t)order[i][1];
        } else if (ru_book_place(b, j)->n_parts > 0) { /* its user's slots go to others */
            put_grant(&p, (uint32_t)order[i][1], NULL, 0, ru_book_place(b, j)->demoted);
        }
        if (i + 1 == n_jobs || order[i + 1][0] != order[i][0]) {
            RU_TRY(n_some > 0 ? plan_all(&p, numbers, n_some, err) : RU_OK);
            n_some = 0;
        }
    }
    for (uint32_t i = 0; i < p.n; i++) {
        p.events[i].a = p.n - 1 - i;
    }
    *events = p.events;
    *n = p.n;
    return RU_OK;
}
