/* The benchmark of plans of sums in the network laboratory: four processes on hosts of their own,
 * whose device is a script of a published graph. Everything else is that of a real job: encrypted
 * links, membership, collectives, two steps under way. Every sum is looked at.
 *
 *   transfer   nothing computes: what the links take, the scale of compute and part of the bound
 *   starts     many small sums instead: what a sum takes to start. A line through sums of all sizes
 *              says that it takes nothing, since a link lets bursts through at full speed
 *   plan, ddp, serial   in turns; the plan rests on what the links took
 *
 * Bytes are scaled so that a step's transfers or its computing take half a second, times so that
 * their ratio is that of the setting; the factors are printed. Where the processes kept the machine
 * busier than BUSY_MAX, the cell runs again on links of half the rate. */
#include "bench/wire/sums.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "bench/wire/collective.h"
#include "bench/wire/order.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "plan/net/sums_policy.h"
#include "train/elastic/elastic.h"

enum {
    HOSTS = 4,
    PORT = 7711, /* + the number of the run: no address is used twice in a row */
    PORTS = 64,
    STEPS = 12,
    STEPS_QUICK = 8,
    ROUNDS = 5,
    ROUNDS_QUICK = 2,
    METHODS = 3,
    TRIES = 3,
    LINKS = 2,
    STARTS = 256, /* sums one after the other: what one takes to start */
    START_BYTES = 256,
    RATE_MBIT = 200,
    RATE_MIN_MBIT = 25,
};

#define STEP_S   0.5
#define BUSY_MAX 0.8
#define GOODPUT  0.92  /* of a link's rate, encrypted: the start of the scale */
#define NATURAL  117e6 /* bytes/s of 1 Gbit/s */

static const int64_t answer_ns = (int64_t)240 * 1000000000;

enum { PLAN, DDP, SERIAL };
static const ru_sums_method methods[METHODS] = {RU_SUMS_CARAMEL, RU_SUMS_DDP, RU_SUMS_SERIAL};
static const char *const method_names[METHODS] = {"plan", "ddp", "serial"};

static const char *const graphs[] = {"resnet50",      "inception_v3", "densenet121", "nasnetalarge",
                                     "nasnetamobile", "resnet18",     "resnet101",   "resnext50",
                                     "resnext101",    "alexnet",      "vgg16",       "gnmt",
                                     "gnmt_large",    "squeezenet1_0"};

/* delay_us: of a packet. A ring of four takes six messages one after another, so the start-up of a
 * sum is six times that. */
static const struct {
    const char *name;
    bool natural; /* 1 Gbit/s against the graph's own times; else transfers as long as computing */
    int delay_us;
} settings[] = {{"1:1", false, 0}, {"1:1 at 2 ms", false, 333}, {"1 Gbit/s", true, 0}};

/* What is asked for; graphs that are not named must not lose. */
static const struct {
    const char *graph;
    uint32_t setting;
    double over_ddp, over_serial, bound;
} goals[] = {{"resnet50", 0, 1.3, 0, 1.06},
             {"inception_v3", 0, 1.3, 0, 1.06},
             {"densenet121", 0, 1.3, 0, 1.06},
             {"nasnetalarge", 1, 0.98, 3.8, 0}};

typedef struct bench {
    ru_bench *b;
    const char *script, *data, *relay, *file, *lab;
    const char *graph;
    uint32_t setting;
    int rate_mbit;
    uint32_t runs;
    ru_arena arena; /* of the cell */
    rui_sums_graph g;
    int64_t *size_bytes; /* [g.n_grads] as they are summed */
    double bytes, bytes_factor;
    /* measured and planned */
    double transfer_s, compute_s, alpha_ns, busy;
    rui_sums_job jobs[METHODS], links, starts; /* the last two: nothing computes */
    double predicted_s[METHODS], step_s[METHODS][ROUNDS];
    uint32_t rounds;
} bench;

/* -- the graph -----------------------------------------------------------------------------------
 */

static ru_status no_memory(const bench *t, ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the graph %s", t->graph);
}

/* Bytes over one direction of a link for each byte that is summed. */
static double carried(void)
{
    return ru_cost_coll_terms(RU_COLL_ALL_REDUCE, RU_ALGO_RING, HOSTS).busy;
}

/* Transfers of a step over its computing. */
static double ratio_of(const bench *t)
{
    double bytes = t->g.bytes;
    return settings[t->setting].natural ? carried() * bytes / NATURAL / (t->g.natural_ns * 1e-9)
                                        : 1;
}

static void scale_bytes(bench *t)
{
    double ratio = ratio_of(t);
    double want = STEP_S * (ratio < 1 ? ratio : 1) * GOODPUT * t->rate_mbit * 125e3 / carried();
    t->bytes_factor = want / t->g.bytes;
    t->bytes = 0;
    for (uint32_t k = 0; k < t->g.n_grads; k++) {
        int64_t words = (int64_t)((double)t->g.grads[k].size_bytes * t->bytes_factor / 4);
        t->size_bytes[k] = 4 * (words > 0 ? words : 1);
        t->bytes += (double)t->size_bytes[k];
    }
}

/* -- processes -----------------------------------------------------------------------------------
 */

static ru_status lab(const bench *t, const char *what, ru_err *err)
{
    ru_arena *a = t->b->arena;
    bool up = strcmp(what, "up") == 0, check = strcmp(what, "check") == 0;
    int delay_us = settings[t->setting].delay_us;
    const char *hosts = rui_team_number(a, HOSTS), *rate = rui_team_number(a, t->rate_mbit);
    const char *argv[20] = {t->script, what, check ? NULL : t->lab, up ? hosts : NULL};
    uint32_t n = 4;
    if (up) {
        argv[n++] = "--owner";
        argv[n++] = rui_team_number(a, ru_self_pid());
        argv[n++] = delay_us > 0 ? "--relay" : "--rate";
        argv[n++] = delay_us > 0 ? t->relay : ru_arena_printf(a, "%smbit", rate);
        argv[n++] = delay_us > 0 ? "--delay-us" : "--burst";
        argv[n++] = delay_us > 0 ? rui_team_number(a, delay_us) : "64kb";
        argv[n++] = delay_us > 0 ? "--rate-mbit" : NULL;
        argv[n++] = rate;
    }
    ru_process *p;
    ru_process_options opt = {.argv = argv, .quiet = true};
    RU_TRY(ru_process_start(&opt, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_PEER, "%s %s ended with %d", t->script, what, code);
}

static ru_status start(bench *t, rui_team *team, ru_err *err)
{
    ru_arena *a = &t->arena;
    uint32_t port = PORT + t->runs++ % PORTS;
    for (uint32_t k = 1; k <= HOSTS; k++) {
        const char *argv[] = {t->script,
                              "in",
                              t->lab,
                              rui_team_number(a, k),
                              ru_bench_rubato(a),
                              "bench",
                              "--worker",
                              "net",
                              "sums-work",
                              rui_team_number(a, k),
                              ru_arena_printf(a, "10.77.0.%u:%u", k, port),
                              k == 1 ? "-" : ru_arena_printf(a, "10.77.0.1:%u", port),
                              t->file,
                              NULL};
        RU_TRY(rui_team_start_one(team, argv, err));
    }
    return RU_OK;
}

typedef struct answer {
    double step_s, cpu_s;
} answer;

/* The first process leads and has measured; processor time is that of all. */
static ru_status hear(rui_team *team, answer *into, ru_err *err)
{
    *into = (answer){0};
    for (uint32_t k = 0; k < HOSTS; k++) {
        const char *line;
        char *rest;
        RU_TRY(ru_process_line(team->p[k], answer_ns, &line, err));
        if (line == NULL) {
            return RU_FAIL(err, RU_E_PEER, "process %u of the sums ended without an answer", k + 1);
        }
        double step_ns = strtod(line, &rest);
        into->cpu_s += strtod(rest, NULL) * 1e-9;
        into->step_s = k == 0 ? step_ns * 1e-9 : into->step_s;
    }
    return into->step_s > 0 ? RU_OK : RU_FAIL(err, RU_E_PEER, "the processes told of no step");
}

/* One job from its begin to its end. */
static ru_status run_once(bench *t, const rui_sums_job *job, answer *into, ru_err *err)
{
    rui_team team = {.name = "sums"};
    RU_TRY(rui_sums_write(t->file, job, &t->arena, err));
    int64_t from_ns = ru_clock_now().ns;
    ru_status st = start(t, &team, err);
    st = st == RU_OK ? hear(&team, into, err) : st;
    double wall_s = (double)(ru_clock_now().ns - from_ns) * 1e-9;
    rui_team_close(&team);
    double busy = st == RU_OK ? into->cpu_s / (wall_s * ru_pool_cores()) : 0;
    t->busy = busy > t->busy ? busy : t->busy;
    return st;
}

/* Beside other work a process may be silent for so long that the others go on without it. */
static ru_status run(bench *t, const rui_sums_job *job, answer *into, ru_err *err)
{
    ru_status st = RU_E_PEER;
    for (uint32_t k = 0; k < TRIES && st == RU_E_PEER; k++) {
        st = run_once(t, job, into, err);
    }
    return st;
}

/* -- jobs ----------------------------------------------------------------------------------------
 */

static ru_status script_of(bench *t, double step_s, ru_script *s, ru_err *err)
{
    double *at = RU_NEW(&t->arena, double, (int64_t)t->g.n_steps + 1);
    double *ready = RU_NEW(&t->arena, double, t->g.n_grads);
    double *need = RU_NEW(&t->arena, double, t->g.n_grads);
    if (at == NULL || ready == NULL || need == NULL) {
        return no_memory(t, err);
    }
    for (uint32_t i = 0; i < t->g.n_steps; i++) {
        at[i + 1] = at[i] + t->g.step_ns[i] / t->g.natural_ns;
    }
    for (uint32_t k = 0; k < t->g.n_grads; k++) {
        ready[k] = fmin(1, at[t->g.grads[k].made + 1]);
        need[k] = at[t->g.grads[k].used];
    }
    *s = (ru_script){.sample_ns = step_s * 1e9,
                     .size_bytes = t->size_bytes,
                     .ready = ready,
                     .need = need,
                     .n = t->g.n_grads};
    return RU_OK;
}

/* The table of a method on links as they were measured. */
static ru_status plan(bench *t, uint32_t m, ru_err *err)
{
    ru_arena *a = &t->arena;
    rui_sums_job *job = &t->jobs[m];
    double *step_ns = RU_NEW(a, double, t->g.n_steps);
    ru_sums_grad *grads = RU_NEW(a, ru_sums_grad, t->g.n_grads);
    if (step_ns == NULL || grads == NULL) {
        return no_memory(t, err);
    }
    for (uint32_t i = 0; i < t->g.n_steps; i++) {
        step_ns[i] = t->g.step_ns[i] / t->g.natural_ns * t->compute_s * 1e9;
    }
    for (uint32_t k = 0; k < t->g.n_grads; k++) {
        grads[k] = t->g.grads[k];
        grads[k].size_bytes = t->size_bytes[k];
    }
    const ru_coll_cost costs[RU_COLL_ALGOS] = {
        [RU_ALGO_RING] = {.alpha_ns = t->alpha_ns,
                          .beta_ns = t->transfer_s * 1e9 / (carried() * t->bytes),
                          .n_points = 2}};
    const ru_sums_facts f = {.step_ns = step_ns,
                             .n_steps = t->g.n_steps,
                             .update_from = t->g.n_steps,
                             .grads = grads,
                             .n_grads = t->g.n_grads,
                             .n_ranks = HOSTS,
                             .costs = costs,
                             .method = methods[m]};
    ru_sums_policy_in in;
    ru_sums_in q;
    ru_sums_plan p;
    ru_sums_part *parts;
    ru_sums_cut *cuts;
    uint32_t n;
    RU_TRY(ru_sums_policy_in_of(&f, a, &in, err));
    RU_TRY(ru_sums_in_of(&in, a, &q, err));
    RU_TRY(ru_plan_sums(&q, a, a, &p, err));
    RU_TRY(ru_sums_table(&q, &p, grads, t->g.n_grads, a, &parts, &n, err));
    RU_TRY(ru_sums_cuts(parts, n, t->size_bytes, RU_ELASTIC_CUTS_MAX, a, &cuts, &n, err));
    t->predicted_s[m] = (double)p.step_ns * 1e-9;
    RU_TRY(script_of(t, t->compute_s, &job->script, err));
    job->founders = HOSTS;
    job->steps = t->b->quick ? STEPS_QUICK : STEPS;
    job->table = cuts;
    job->n_table = n;
    job->flight = p.depth;
    job->held = p.barrier;
    job->serial = methods[m] == RU_SUMS_SERIAL;
    return RU_OK;
}

/* Small sums, each behind the one before. */
static ru_status starts_of(bench *t, ru_err *err)
{
    ru_arena *a = &t->arena;
    int64_t *size_bytes = RU_NEW(a, int64_t, STARTS);
    double *ready = RU_NEW(a, double, STARTS), *need = RU_NEW(a, double, STARTS);
    ru_sums_cut *table = RU_NEW(a, ru_sums_cut, STARTS);
    if (size_bytes == NULL || ready == NULL || need == NULL || table == NULL) {
        return no_memory(t, err);
    }
    for (uint32_t k = 0; k < STARTS; k++) {
        size_bytes[k] = START_BYTES;
        ready[k] = 1;
        table[k] = (ru_sums_cut){.first = k, .n = 1, .size_bytes = START_BYTES};
    }
    t->starts = t->links;
    t->starts.table = table;
    t->starts.n_table = STARTS;
    t->starts.flight = 1;
    t->starts.held = true;
    t->starts.script = (ru_script){.sample_ns = t->links.script.sample_ns,
                                   .size_bytes = size_bytes,
                                   .ready = ready,
                                   .need = need,
                                   .n = STARTS};
    return RU_OK;
}

/* What the links take when nothing computes; then each method's table. */
static ru_status prepare(bench *t, ru_err *err)
{
    answer x;
    t->links = (rui_sums_job){.founders = HOSTS, .steps = STEPS_QUICK};
    scale_bytes(t);
    RU_TRY(script_of(t, 1e-3, &t->links.script, err));
    RU_TRY(starts_of(t, err));
    double starts_s = HUGE_VAL;
    for (uint32_t k = 0; k < LINKS; k++) { /* other work only makes it longer */
        RU_TRY(run(t, &t->links, &x, err));
        t->transfer_s = k == 0 ? x.step_s : fmin(t->transfer_s, x.step_s);
        RU_TRY(run(t, &t->starts, &x, err));
        starts_s = fmin(starts_s, x.step_s);
    }
    t->alpha_ns =
        starts_s * 1e9 / STARTS / ru_cost_coll_terms(RU_COLL_ALL_REDUCE, RU_ALGO_RING, HOSTS).steps;
    t->compute_s = t->transfer_s / ratio_of(t);
    for (uint32_t m = 0; m < METHODS; m++) {
        RU_TRY(plan(t, m, err));
    }
    return RU_OK;
}

/* Transfers alone in turns with the methods: what they take then is part of the bound, and
 * predictions are for links as they were beside the steps. */
static ru_status turns(bench *t, ru_err *err)
{
    double links_s[ROUNDS];
    answer x;
    t->rounds = t->b->quick ? ROUNDS_QUICK : ROUNDS;
    for (uint32_t r = 0; r < t->rounds; r++) {
        RU_TRY(run(t, &t->links, &x, err));
        links_s[r] = x.step_s;
        for (uint32_t k = 0; k < METHODS; k++) {
            uint32_t m = (k + r) % METHODS;
            RU_TRY(run(t, &t->jobs[m], &x, err));
            t->step_s[m][r] = x.step_s;
        }
    }
    t->transfer_s = ru_bench_stat_of(links_s, t->rounds).median;
    for (uint32_t m = 0; m < METHODS; m++) {
        rui_sums_job ran = t->jobs[m];
        RU_TRY(plan(t, m, err));
        t->jobs[m] = ran;
    }
    return RU_OK;
}

/* -- figures -------------------------------------------------------------------------------------
 */

/* Of a method's rounds, each over `by`. */
static ru_bench_stat stat_of(const bench *t, uint32_t m, double by)
{
    double x[ROUNDS];
    for (uint32_t r = 0; r < t->rounds; r++) {
        x[r] = t->step_s[m][r] / by;
    }
    return ru_bench_stat_of(x, t->rounds);
}

static ru_status add(bench *t, const char *name, const char *what, ru_bench_row row, ru_err *err)
{
    row.name = ru_arena_printf(t->b->arena, "%s %s", name, what);
    row.lower = true;
    return row.name != NULL ? ru_bench_add(t->b, &row, err) : no_memory(t, err);
}

static ru_status rows(bench *t, const char *name, ru_err *err)
{
    double over_ddp = 0.98, over_serial = 0, bound = 0;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(goals); i++) {
        if (strcmp(goals[i].graph, t->graph) == 0 && goals[i].setting == t->setting) {
            over_ddp = goals[i].over_ddp;
            over_serial = goals[i].over_serial;
            bound = goals[i].bound;
        }
    }
    const ru_bench_stat ours = stat_of(t, PLAN, 1);
    RU_TRY(add(t, name, "step",
               (ru_bench_row){.unit = "s",
                              .ours = ours,
                              .theirs = stat_of(t, DDP, 1),
                              .peer = method_names[DDP],
                              .goal = over_ddp},
               err));
    RU_TRY(add(t, name, "step",
               (ru_bench_row){.unit = "s",
                              .ours = ours,
                              .theirs = stat_of(t, SERIAL, 1),
                              .peer = method_names[SERIAL],
                              .goal = over_serial},
               err));
    double least_s = fmax(t->transfer_s, t->compute_s);
    RU_TRY(add(t, name, "over the bound",
               (ru_bench_row){.unit = "x", .ours = stat_of(t, PLAN, least_s), .goal = bound}, err));
    for (uint32_t m = 0; m < METHODS; m++) {
        double off = fabs(stat_of(t, m, t->predicted_s[m]).median - 1);
        RU_TRY(add(t, name, ru_arena_printf(t->b->arena, "%s off its prediction", method_names[m]),
                   (ru_bench_row){.unit = "", .ours = {off, off, off, 1}, .goal = 0.1}, err));
    }
    return RU_OK;
}

static void tell(const bench *t, const char *name)
{
    fprintf(stderr,
            "%s: times x%.3g, bytes x%.3g on %d Mbit/s; a step's transfers %.3f s, compute %.3f s; "
            "a message of a sum %.0f us; processor %.0f %%\n",
            name, t->compute_s * 1e9 / t->g.natural_ns, t->bytes_factor, t->rate_mbit,
            t->transfer_s, t->compute_s, t->alpha_ns * 1e-3, 100 * t->busy);
    for (uint32_t m = 0; m < METHODS; m++) {
        fprintf(stderr, "  %-8s %4u sums%s  predicted %.3f s, measured %.3f s\n", method_names[m],
                t->jobs[m].n_table, t->jobs[m].held ? ", barrier" : "         ", t->predicted_s[m],
                stat_of(t, m, 1).median);
    }
}

static ru_status on_links(bench *t, ru_err *err)
{
    t->busy = 0;
    RU_TRY(lab(t, "up", err));
    ru_status st = prepare(t, err);
    st = st == RU_OK ? turns(t, err) : st;
    ru_err ignored;
    if (lab(t, "down", &ignored) != RU_OK) {
        fprintf(stderr, "%s\n", ignored.text);
    }
    return st;
}

static ru_status cell(bench *t, const char *name, ru_err *err)
{
    ru_arena_init(&t->arena, 0);
    ru_status st = rui_sums_graph_read(
        ru_arena_printf(&t->arena, "%s/pipedream-profiles/%s.graph.txt", t->data, t->graph),
        &t->arena, &t->g, err);
    t->size_bytes = st == RU_OK ? RU_NEW(&t->arena, int64_t, t->g.n_grads) : NULL;
    st = st == RU_OK && t->size_bytes == NULL ? no_memory(t, err) : st;
    t->rate_mbit = RATE_MBIT;
    while (st == RU_OK) {
        st = on_links(t, err);
        if (t->busy <= BUSY_MAX || t->rate_mbit / 2 < RATE_MIN_MBIT) {
            break;
        }
        t->rate_mbit /= 2;
    }
    if (st == RU_OK) {
        tell(t, name);
        st = rows(t, name, err);
    }
    ru_arena_fini(&t->arena);
    return st;
}

static bool has_goal(const char *graph, uint32_t setting)
{
    bool has = false;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(goals); i++) {
        has = has || (strcmp(goals[i].graph, graph) == 0 && goals[i].setting == setting);
    }
    return has;
}

ru_status ru_bench_sums(ru_bench *b, ru_err *err)
{
    bench t = {.b = b, .data = ru_conf_env("RUBATO_DATA")};
    const char *why = t.data == NULL ? "RUBATO_DATA does not name the folder of published data"
                                     : "no network laboratory here";
    t.script = ru_arena_printf(b->arena, "%s/../test/lab/net.sh", ru_bench_scripts(b->arena));
    t.relay = ru_process_beside(b->arena, "rubato-relay", "test");
    t.lab = ru_arena_printf(b->arena, "rusum%d", (int)(ru_self_pid() % 1000000));
    t.file = ru_arena_printf(b->arena, "%s/allreduce-plan.txt", b->dir);
    if (t.data == NULL || lab(&t, "check", err) != RU_OK) {
        fprintf(stderr, "allreduce-plan: skipped: %s\n", why);
        b->told = true;
        return RU_OK;
    }
    for (uint32_t s = 0; s < RU_ARRAY_LEN(settings); s++) {
        for (uint32_t i = 0; i < RU_ARRAY_LEN(graphs); i++) {
            const char *name = ru_arena_printf(b->arena, "%s, %s", graphs[i], settings[s].name);
            bool wants = name != NULL && ru_bench_wants(b, name) &&
                         (!b->quick || b->only[0] != '\0' || has_goal(graphs[i], s));
            if (wants && settings[s].delay_us > 0 && t.relay == NULL) {
                fprintf(stderr, "%s: skipped: the program rubato-relay is not beside this one\n",
                        name);
                wants = false;
            }
            t.graph = graphs[i];
            t.setting = s;
            RU_TRY(wants ? cell(&t, name, err) : RU_OK);
        }
    }
    return RU_OK;
}
