/* A cluster's book and plans in virtual time, without processes: a day of many agents and jobs, and
 * small clusters by seed. Jobs come, are planned, lose their nodes, are scaled and cancelled, and
 * end when their work is done; after every change the books must hold. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "bench/cluster.h"
#include "cluster/book.h"
#include "env/clock.h"

enum { SEEDS = 10000, SEEDS_QUICK = 500, USERS = 3 };

static const int64_t second_ns = 1000000000, never_ns = INT64_MAX;

typedef struct day {
    uint32_t nodes, jobs;
    int64_t long_ns; /* in which the jobs come */
    int64_t gap_ns;  /* least time between two rounds */
    double work_s;   /* median of a job, on one slot */
    double faults;   /* of a node, in all that time */
    double people;   /* scales and cancellations, for each job */
    uint64_t seed;
    ru_alloc_method method;
    bool restarts; /* jobs whose slots change */
} day;

typedef struct played {
    uint32_t rounds, events, done, cancelled, lost, moved; /* moved: restarts */
} played;

typedef struct world {
    const day *d;
    ru_arena arena;
    ru_book book;
    ru_rng rng;
    int64_t now_ns, seq, round_ns, arrival_ns, fault_ns, people_ns;
    bool due;
    double *left; /* [jobs] slot-seconds, by number - 1 */
    const char *spec;
    const char *users[USERS];
    played *out;
} world;

static ru_status fold(world *w, ru_journal_event e, ru_err *err)
{
    e.seq = ++w->seq;
    e.at_ns = w->now_ns;
    e.who = e.who != NULL ? e.who : "admin";
    e.text = e.text != NULL ? e.text : "";
    w->out->events++;
    return ru_book_fold(&w->book, &e, err);
}

static ru_status odd(const world *w, const char *what, uint32_t of, ru_err *err)
{
    return RU_FAIL(err, RU_E_BUG, "seed %" PRIu64 ", %.3f s: %s (%u)", w->d->seed,
                   1e-9 * (double)w->now_ns, what, of);
}

/* Counted from the jobs alone. */
static ru_status check(const world *w, ru_err *err)
{
    uint32_t used[RU_BOOK_NODES_MAX] = {0}, of_user[USERS] = {0}, live = 0;
    for (uint32_t slot = 0; slot < w->book.sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(&w->book, w->book.of[slot]);
        const ru_sched_job *p = &w->book.sched.jobs[slot];
        if (j == NULL) {
            continue;
        }
        live++;
        uint32_t has = 0, number = w->book.of[slot];
        for (uint32_t k = 0; k < p->n_parts; k++) {
            used[p->parts[k].node] += p->parts[k].devices;
            has += p->parts[k].devices;
        }
        for (uint32_t u = 0; u < USERS; u++) {
            of_user[u] += strcmp(w->users[u], j->owner) == 0 ? has : 0;
        }
        if (has != p->replicas || (has > 0) != (j->state == RU_BOOK_RUNS) ||
            p->n_parts > RU_BOOK_SPREAD_MAX) {
            return odd(w, "a job's slots are not its parts", number, err);
        }
    }
    for (uint32_t k = 0; k < w->book.n_nodes; k++) {
        if (used[k] > w->book.nodes[k].slots || used[k] != w->book.sched.nodes[k].used) {
            return odd(w, "a node has given more slots than it has", k, err);
        }
    }
    return live == w->book.n_live ? RU_OK : odd(w, "a job is lost", live, err);
}

/* After a round: bounds of jobs and users, and nobody waits for what is free. */
static ru_status check_round(const world *w, ru_err *err)
{
    uint32_t most_free = 0, of_user[USERS] = {0};
    for (uint32_t k = 0; k < w->book.n_nodes; k++) {
        uint32_t slots = w->book.nodes[k].slots, used = w->book.sched.nodes[k].used;
        most_free = slots - used > most_free ? slots - used : most_free;
    }
    for (uint32_t slot = 0; slot < w->book.sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(&w->book, w->book.of[slot]);
        uint32_t has = j != NULL ? w->book.sched.jobs[slot].replicas : 0;
        if (j == NULL) {
            continue;
        }
        for (uint32_t u = 0; u < USERS; u++) {
            of_user[u] += strcmp(w->users[u], j->owner) == 0 ? has : 0;
        }
        if (!j->cancelled && has > 0 && (has > j->max || has < j->least)) {
            return odd(w, "a job has more or fewer workers than it may have", w->book.of[slot],
                       err);
        }
        bool fixed = ru_alloc_fixed(w->d->method), bounded = strcmp(j->owner, w->users[0]) == 0;
        uint32_t needs = fixed ? ru_book_request(j) : j->min;
        if (!j->cancelled && has == 0 && !bounded && needs <= most_free) {
            return odd(w, "a job waits for what is free on one node", w->book.of[slot], err);
        }
    }
    const ru_book_user *u = ru_book_user_of(&w->book, w->users[0]);
    return of_user[0] <= u->slots ? RU_OK
                                  : odd(w, "a user has more slots than it may", of_user[0], err);
}

/* Does a grant give what the job has? */
static bool is_same(const ru_sched_job *p, const char *grant)
{
    bool same = true;
    uint32_t n = 0;
    for (char *end = NULL; *grant != 0; grant = *end == ' ' ? end + 1 : end, n++) {
        unsigned long node = strtoul(grant, &end, 10), slots = strtoul(end + 1, &end, 10);
        bool found = false;
        for (uint32_t k = 0; k < p->n_parts; k++) {
            found = found || (p->parts[k].node == node && p->parts[k].devices == slots);
        }
        same = same && found;
    }
    return same && n == p->n_parts;
}

/* The grants of a round: who gets its first slots starts, and, where jobs restart, who gets other
 * ones; all others go on. */
static ru_status grant_all(world *w, const ru_journal_event *events, uint32_t n, ru_arena *scratch,
                           ru_err *err)
{
    uint32_t *expected = RU_NEW(scratch, uint32_t, n + 1);
    if (expected == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a round");
    }
    for (uint32_t k = 0; k < n; k++) {
        const ru_book_job *j = ru_book_job_at(&w->book, events[k].job);
        const ru_sched_job *p = ru_book_place(&w->book, j);
        bool had = p->n_parts > 0, has = events[k].text[0] != 0;
        bool moves = had && has && w->d->restarts && !is_same(p, events[k].text);
        expected[k] = j->generation + (moves || (has && !had));
        w->out->moved += moves;
    }
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(fold(w, events[k], err));
    }
    for (uint32_t k = 0; k < n; k++) {
        if (ru_book_job_at(&w->book, events[k].job)->generation != expected[k]) {
            return odd(w, "a job was started for nothing, or not at all", (uint32_t)events[k].job,
                       err);
        }
    }
    return RU_OK;
}

static ru_status plan(world *w, ru_err *err)
{
    ru_journal_event *events;
    uint32_t n = 0;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    const ru_book_measured *none = RU_NEW(&scratch, ru_book_measured, w->book.sched.n_jobs + 1);
    ru_status st = none == NULL
                       ? RU_FAIL(err, RU_E_MEM, "no memory for a round")
                       : ru_book_plan(&w->book, none, w->now_ns, &scratch, &events, &n, err);
    st = st == RU_OK ? grant_all(w, events, n, &scratch, err) : st;
    ru_arena_fini(&scratch);
    w->round_ns = w->now_ns;
    w->due = false;
    w->out->rounds++;
    return st == RU_OK ? check_round(w, err) : st;
}

/* Time passes: jobs that run do their work. *next: when the first of them is done. */
static void work(world *w, int64_t to_ns, int64_t *next_ns)
{
    double took_s = 1e-9 * (double)(to_ns - w->now_ns);
    *next_ns = never_ns;
    for (uint32_t slot = 0; slot < w->book.sched.n_jobs; slot++) {
        uint32_t has = w->book.of[slot] > 0 ? w->book.sched.jobs[slot].replicas : 0;
        if (has > 0) {
            double *left = &w->left[w->book.of[slot] - 1];
            *left -= took_s * has;
            int64_t at = to_ns + (int64_t)ceil(1e9 * fmax(*left, 0) / has);
            *next_ns = at < *next_ns ? at : *next_ns;
        }
    }
    w->now_ns = to_ns;
}

static ru_status end_done(world *w, ru_err *err)
{
    for (uint32_t slot = 0; slot < w->book.sched.n_jobs; slot++) {
        uint32_t number = w->book.of[slot];
        const ru_book_job *j = ru_book_job_at(&w->book, number);
        bool done = j != NULL && j->state == RU_BOOK_RUNS && w->left[number - 1] <= 1e-6;
        if (done || (j != NULL && j->cancelled)) {
            ru_book_state as = done ? RU_BOOK_DONE : RU_BOOK_CANCELLED;
            RU_TRY(fold(w, (ru_journal_event){.kind = RU_BOOK_END, .job = number, .a = as}, err));
            w->out->done += done;
            w->out->cancelled += !done;
            w->due = true;
        }
    }
    return RU_OK;
}

static int64_t later(world *w, double mean_ns)
{
    return w->now_ns + 1 + (int64_t)(mean_ns * ru_rng_exponential(&w->rng));
}

static ru_status submit(world *w, ru_err *err)
{
    uint32_t min = 1 + ru_rng_below(&w->rng, 4), number = w->book.jobs.n + 1;
    const ru_journal_event e = {.kind = RU_BOOK_SUBMIT,
                                .job = number,
                                .node = ru_rng_below(&w->rng, 10) == 0,
                                .a = min,
                                .b = min + ru_rng_below(&w->rng, 13),
                                .who = w->users[ru_rng_below(&w->rng, USERS)],
                                .text = w->spec};
    w->left[number - 1] = w->d->work_s * exp(1.2 * ru_rng_normal(&w->rng));
    w->arrival_ns = number < w->d->jobs ? later(w, (double)w->d->long_ns / w->d->jobs) : never_ns;
    w->due = true;
    return fold(w, e, err);
}

/* A node goes, or comes back: all are up at the end. */
static ru_status fault(world *w, ru_err *err)
{
    uint32_t k = ru_rng_below(&w->rng, w->d->nodes);
    bool over = w->arrival_ns == never_ns;
    while (over && k < w->d->nodes && w->book.nodes[k].slots > 0) {
        k++;
    }
    w->fault_ns = later(w, (double)w->d->long_ns / fmax(w->d->faults * w->d->nodes, 1e-9));
    if (k == w->d->nodes) {
        return RU_OK;
    }
    bool up = w->book.nodes[k].slots > 0;
    w->out->lost += up;
    w->due = true;
    return fold(
        w, (ru_journal_event){.kind = RU_BOOK_NODE, .node = k, .a = up ? 0 : 4, .text = "n"}, err);
}

static ru_status person(world *w, ru_err *err)
{
    uint32_t number = w->book.jobs.n > 0 ? 1 + ru_rng_below(&w->rng, w->book.jobs.n) : 0;
    const ru_book_job *j = ru_book_job_at(&w->book, number);
    bool goes = j != NULL && ru_book_place(&w->book, j) != NULL && !j->cancelled;
    w->people_ns = w->arrival_ns == never_ns
                       ? never_ns
                       : later(w, (double)w->d->long_ns / fmax(w->d->people * w->d->jobs, 1e-9));
    if (!goes) {
        return RU_OK;
    }
    w->due = true;
    uint32_t min = 1 + ru_rng_below(&w->rng, 4);
    return fold(w,
                ru_rng_below(&w->rng, 3) == 0
                    ? (ru_journal_event){.kind = RU_BOOK_CANCEL, .job = number}
                    : (ru_journal_event){.kind = RU_BOOK_SCALE,
                                         .job = number,
                                         .a = min,
                                         .b = min + ru_rng_below(&w->rng, 8)},
                err);
}

static ru_status open_world(world *w, ru_err *err)
{
    char name[32];
    static const char *const users[USERS] = {"alice", "bob", "admin"};
    ru_arena_init(&w->arena, 0);
    memcpy(w->users, users, sizeof users);
    RU_TRY(ru_book_init(&w->book, &w->arena, err));
    ru_text spec = ru_text_arena(&w->arena), user = ru_text_arena(&w->arena);
    ru_book_spec_put(&(ru_book_spec){"job", "0123456789abcdef", "/srv/jobs/1", "name: job\n", 0},
                     &spec);
    ru_book_user_put(&(ru_book_user){.name = "alice", .key = "0123456789abcdef"}, &user);
    w->left = RU_NEW(&w->arena, double, w->d->jobs);
    w->spec = spec.p;
    if (w->left == NULL || spec.cut || user.cut) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a day");
    }
    RU_TRY(
        fold(w, (ru_journal_event){.kind = RU_BOOK_METHOD, .a = w->d->method, .b = 3600000}, err));
    RU_TRY(fold(w, (ru_journal_event){.kind = RU_BOOK_RESIZE, .a = w->d->restarts}, err));
    RU_TRY(fold(w,
                (ru_journal_event){.kind = RU_BOOK_USER,
                                   .a = 4 + w->d->nodes,
                                   .b = ru_rng_below(&w->rng, 3),
                                   .text = user.p},
                err));
    for (uint32_t k = 0; k < w->d->nodes; k++) {
        (void)snprintf(name, sizeof name, "n%u", k);
        RU_TRY(fold(w, (ru_journal_event){.kind = RU_BOOK_NODE, .node = k, .a = 4, .text = name},
                    err));
    }
    w->arrival_ns = later(w, (double)w->d->long_ns / w->d->jobs);
    w->fault_ns = later(w, (double)w->d->long_ns / fmax(w->d->faults * w->d->nodes, 1e-9));
    w->people_ns = later(w, (double)w->d->long_ns / fmax(w->d->people * w->d->jobs, 1e-9));
    return RU_OK;
}

static ru_status run(world *w, ru_err *err)
{
    int64_t next_ns;
    while (w->arrival_ns != never_ns || w->book.n_live > 0) {
        work(w, w->now_ns, &next_ns);
        int64_t round_ns = w->round_ns + (w->due ? w->d->gap_ns : 30 * second_ns);
        const int64_t of[] = {next_ns, w->arrival_ns, w->fault_ns, w->people_ns,
                              round_ns > w->now_ns ? round_ns : w->now_ns};
        int64_t at = never_ns;
        for (uint32_t k = 0; k < RU_ARRAY_LEN(of); k++) {
            at = of[k] < at ? of[k] : at;
        }
        work(w, at, &next_ns);
        RU_TRY(end_done(w, err));
        RU_TRY(at == w->arrival_ns ? submit(w, err) : RU_OK);
        RU_TRY(at == w->fault_ns ? fault(w, err) : RU_OK);
        RU_TRY(at == w->people_ns ? person(w, err) : RU_OK);
        RU_TRY(check(w, err));
        RU_TRY(at == of[4] ? plan(w, err) : RU_OK);
        RU_TRY(check(w, err));
        if (w->now_ns > 100 * w->d->long_ns) {
            return odd(w, "jobs never end", w->book.n_live, err);
        }
    }
    return w->out->done + w->out->cancelled == w->d->jobs
               ? RU_OK
               : odd(w, "jobs did not end once each", w->out->done + w->out->cancelled, err);
}

static ru_status play(ru_bench *b, const day *d, played *out, ru_err *err)
{
    world *w = RU_NEW(b->arena, world, 1);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a day");
    }
    *w = (world){.d = d, .rng = ru_rng_from(d->seed, 7), .out = out};
    ru_status st = open_world(w, err);
    st = st == RU_OK ? run(w, err) : st;
    if (w->book.fx.arena != NULL) {
        ru_arena_fini(w->book.fx.arena);
    }
    ru_arena_fini(&w->arena);
    return st;
}

static ru_status seeds(ru_bench *b, ru_err *err)
{
    uint32_t n = b->quick ? SEEDS_QUICK : SEEDS;
    double held = 0;
    played sum = {0};
    for (uint32_t seed = 0; seed < n; seed++) {
        ru_arena_mark mark = ru_arena_mark_get(b->arena);
        day d = {.nodes = 1 + seed % 6,
                 .jobs = 12,
                 .long_ns = 600 * second_ns,
                 .gap_ns = seed % 2 * second_ns,
                 .work_s = 60,
                 .faults = 3,
                 .people = 1,
                 .seed = seed,
                 .method = (ru_alloc_method)(seed / 6 % RU_ALLOC_METHODS),
                 .restarts = seed / 30 % 2 == 1};
        played one = {0};
        RU_TRY(play(b, &d, &one, err));
        ru_arena_rewind(b->arena, mark);
        sum.events += one.events;
        sum.rounds += one.rounds;
        sum.done += one.done;
        sum.cancelled += one.cancelled;
        sum.lost += one.lost;
        sum.moved += one.moved;
        held++;
    }
    fprintf(stderr,
            "%u seeds: %u events, %u rounds, %u jobs done, %u cancelled, %u nodes lost, %u jobs "
            "stopped and started\n",
            n, sum.events, sum.rounds, sum.done, sum.cancelled, sum.lost, sum.moved);
    return ru_bench_add(b,
                        &(ru_bench_row){.name = "seeds of a scheduler, no invariant broken",
                                        .unit = "seeds",
                                        .goal = n,
                                        .ours = ru_bench_stat_of(&held, 1)},
                        err);
}

ru_status ru_bench_cluster_day(ru_bench *b, ru_err *err)
{
    if (ru_bench_wants(b, "seeds of a scheduler")) {
        RU_TRY(seeds(b, err));
    }
    static const ru_alloc_method methods[] = {RU_ALLOC_TIRESIAS, RU_ALLOC_POLLUX};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(methods); k++) {
        char *name = ru_arena_printf(b->arena, "a day of 1,000 agents and 5,000 jobs, %s",
                                     ru_alloc_method_name(methods[k]));
        if (name == NULL || !ru_bench_wants(b, name) || (b->quick && k > 0)) {
            continue;
        }
        const day d = {.nodes = 1000,
                       .jobs = 5000,
                       .long_ns = 86400 * second_ns,
                       .gap_ns = 30 * second_ns,
                       .work_s = 20000,
                       .faults = 0.1,
                       .people = 0.02,
                       .seed = 1,
                       .method = methods[k]};
        played out = {0};
        int64_t begun = ru_clock_thread_cpu_ns();
        RU_TRY(play(b, &d, &out, err));
        double took = 1e-9 * (double)(ru_clock_thread_cpu_ns() - begun);
        fprintf(stderr, "%s: %u events, %u rounds, %u done, %u cancelled, %u nodes lost\n", name,
                out.events, out.rounds, out.done, out.cancelled, out.lost);
        RU_TRY(ru_bench_add(b,
                            &(ru_bench_row){.name = name,
                                            .unit = "s",
                                            .lower = true,
                                            .goal = 60,
                                            .ours = ru_bench_stat_of(&took, 1)},
                            err));
    }
    return RU_OK;
}
