#include "burst/fleet_run.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "env/file/claim.h"
#include "env/file/file.h"
#include "env/loop/loop.h"
#include "env/process/command.h"
#include "env/process/group.h"
#include "env/process/self.h"

enum { TICKS_METRICS = 10, SEATS = 2 * RU_FLEET_MAX };

static const int64_t tick_ns = 100000000, again_ns = 1000000000, claim_wait_ns = 3000000000;
static const int64_t spread_ns = 60 * INT64_C(1000000000), grace_end_ns = 10 * INT64_C(1000000000);
static const double period_ns = 1e7;
/* The shell becomes the command that serves: at SIGTERM it would end before that command. */
static const char silent[] = "exec >/dev/null </dev/null; "
                             "case $0 in exec\\ *) eval \"$0\" ;; *) eval \"exec $0\" ;; esac";

typedef struct seat { /* of a machine */
    uint32_t number;  /* 0: free */
    char type[64];
    ru_process *p; /* NULL: it does not run */
    ru_group *group;
    double vcpus; /* in force */
    int64_t cpu_ns;
    bool goes, told; /* it is in no plan; it got SIGTERM */
    ru_time at;      /* of its last start, or of SIGTERM */
} seat;

typedef struct fleet_run {
    const ru_fleet_run_options *opt;
    ru_fleet *fleet;
    ru_source source;
    ru_source_news *news;
    ru_loop *loop;
    ru_command spread;
    bool asks; /* the spread is not in force yet */
    ru_time asked;
    seat seats[SEATS];
    ru_log_file *periods;
    ru_time end;
    uint32_t ticks;
    bool deaf;
    ru_status st;
    ru_err *err;
} fleet_run;

/* -- machines ------------------------------------------------------------------------------------
 */

static seat *seat_of(fleet_run *r, uint32_t number)
{
    for (uint32_t k = 0; k < SEATS; k++) {
        if (r->seats[k].number == number) {
            return &r->seats[k];
        }
    }
    return NULL;
}

static ru_status bound(fleet_run *r, seat *s, double vcpus, ru_err *err)
{
    const ru_group_limits l = {.cpu_quota_ns = (int64_t)(vcpus * r->opt->core * period_ns),
                               .cpu_period_ns = (int64_t)period_ns};
    if (s->vcpus == vcpus) {
        return RU_OK;
    }
    s->vcpus = vcpus;
    return ru_group_set(s->group, &l, err);
}

static ru_status start(fleet_run *r, seat *s, ru_time now, ru_err *err)
{
    char number[64], type[96];
    (void)snprintf(number, sizeof number, "RUBATO_INSTANCE=%u", s->number);
    (void)snprintf(type, sizeof type, "RUBATO_TYPE=%s", s->type);
    const char *argv[] = {"sh", "-c", silent, r->opt->start, NULL}, *set[] = {number, type, NULL};
    const ru_process_options po = {.argv = argv, .set = set, .own_group = true, .group = s->group};
    s->at = now;
    return ru_process_start(&po, &s->p, err);
}

/* A new machine, in a group of its own. */
static ru_status come(fleet_run *r, uint32_t one, ru_time now, ru_err *err)
{
    const ru_fleet_one *o = &r->fleet->one[one];
    seat *s = seat_of(r, 0);
    char name[160];
    const ru_group_limits none = {.measured = RU_GROUP_CPU, .alone = true};
    if (s == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "%d machines have not ended yet", SEATS);
    }
    (void)snprintf(name, sizeof name, "rubato-fleet/%s-%u", r->opt->name, o->number);
    RU_TRY(ru_group_make(name, &none, NULL, NULL, &s->group, err));
    *s = (seat){.number = o->number, .group = s->group, .vcpus = -1};
    (void)snprintf(s->type, sizeof s->type, "%s", r->fleet->type[o->type].name);
    ru_group_figures g;
    ru_group_read(s->group, &g);
    s->cpu_ns = g.cpu_ns > 0 ? g.cpu_ns : 0; /* of an earlier one of this name */
    RU_TRY(bound(r, s, ru_fleet_vcpus(r->fleet, one), err));
    return start(r, s, now, err);
}

static void leave(seat *s)
{
    ru_err err;
    if (s->group != NULL) {
        (void)ru_group_kill(s->group);
    }
    ru_process_close(s->p);
    if (s->group != NULL) {
        (void)!ru_group_remove(s->group, &err); /* who ends late leaves it empty */
    }
    ru_group_close(s->group);
    *s = (seat){0};
}

static bool is_gone(const seat *s)
{
    char mark[RU_PROCESS_MARK_BYTES];
    return s->p == NULL || !ru_process_mark(ru_process_id(s->p), mark);
}

/* Those that go end; one that ended by itself starts again, with the credits that it has. */
static ru_status look(fleet_run *r, ru_time now, ru_err *err)
{
    for (uint32_t k = 0; k < SEATS; k++) {
        seat *s = &r->seats[k];
        if (s->number == 0) {
            continue;
        }
        if (s->goes && !r->asks && !s->told) {
            (void)kill((pid_t)-ru_process_id(s->p), SIGTERM);
            s->told = true;
            s->at = now;
        } else if (s->told && (is_gone(s) || ru_time_since(now, s->at) > r->opt->grace_ns)) {
            leave(s);
        } else if (!s->goes && is_gone(s) && ru_time_since(now, s->at) > again_ns) {
            ru_log(RU_LOG_WARN, "fleet", "machine", "machine %u ended and starts again", s->number);
            ru_process_close(s->p);
            s->p = NULL;
            RU_TRY(start(r, s, now, err));
        }
    }
    return RU_OK;
}

/* -- the plan ------------------------------------------------------------------------------------
 */

/* For who spreads the requests. */
static ru_status put_machines(const fleet_run *r, ru_arena *arena, ru_err *err)
{
    ru_text t = ru_text_arena(arena);
    for (uint32_t k = 0; k < r->fleet->n; k++) {
        const ru_fleet_one *o = &r->fleet->one[k];
        ru_text_putf(&t, "%u %s %.6g\n", o->number, r->fleet->type[o->type].name, o->rate);
    }
    const char *path = ru_path_join(arena, r->opt->folder, "machines");
    return path == NULL || t.cut ? RU_FAIL(err, RU_E_MEM, "no memory for the machines")
                                 : ru_file_own(path, t.n > 0 ? t.p : "", t.n, err);
}

/* Ends what a killed fleet has left, and groups of machines whose last process ended late. */
static void sweep(const fleet_run *r)
{
    char name[160];
    (void)snprintf(name, sizeof name, "rubato-fleet/%s-", r->opt->name);
    uint32_t n = ru_group_sweep(name, NULL);
    if (n > 0) {
        ru_log(RU_LOG_WARN, "fleet", "left", "%u processes of earlier machines were ended", n);
    }
}

static ru_status follow(fleet_run *r, ru_time now, ru_err *err)
{
    ru_arena arena;
    ru_status st = RU_OK;
    sweep(r);
    for (uint32_t k = 0; k < SEATS; k++) {
        r->seats[k].goes = r->seats[k].number > 0;
    }
    for (uint32_t k = 0; k < r->fleet->n && st == RU_OK; k++) {
        seat *s = seat_of(r, r->fleet->one[k].number);
        if (s != NULL) {
            s->goes = false;
        } else {
            st = come(r, k, now, err);
        }
    }
    ru_arena_init(&arena, 0);
    st = st == RU_OK ? put_machines(r, &arena, err) : st;
    ru_arena_fini(&arena);
    r->asks = true;
    r->asked = (ru_time){now.ns - again_ns};
    return st;
}

/* Again and again until it ends with 0: until then machines that are to end serve, too. */
static ru_status ask_spread(fleet_run *r, ru_time now, ru_err *err)
{
    int code;
    char path[4096], set_path[4200];
    if (ru_command_ended(&r->spread, spread_ns, now, &code)) {
        r->asks = code != 0;
        if (code != 0) {
            ru_log(RU_LOG_WARN, "fleet", "spread", "`spread` ended with code %d: %s", code,
                   r->spread.last);
        }
        return RU_OK;
    }
    if (!r->asks || r->spread.p != NULL || ru_time_since(now, r->asked) < again_ns) {
        return RU_OK;
    }
    r->asked = now;
    if (snprintf(path, sizeof path, "%s/machines", r->opt->folder) >= (int)sizeof path) {
        return RU_FAIL(err, RU_E_LIMIT, "the path of the folder %s is too long", r->opt->folder);
    }
    (void)snprintf(set_path, sizeof set_path, "RUBATO_FLEET=%s", path);
    const char *argv[] = {"sh", "-c", r->opt->spread, NULL}, *set[] = {set_path, NULL};
    return ru_command_start(&r->spread, r->loop, argv, set, now, err);
}

static ru_status put_period(fleet_run *r, const ru_fleet_effects *fx, ru_err *err)
{
    const ru_fleet_record *w = &fx->was;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text t = ru_text_arena(&arena), line = ru_text_arena(&arena);
    ru_json j = ru_json_into(&t);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "schema", "rubato.fleet/1");
    ru_json_i64(&j, "wall_ns", ru_clock_wall_ns());
    ru_json_i64(&j, "period", w->period);
    ru_json_f64(&j, "expected", w->expected);
    ru_json_f64(&j, "rate", w->rate);
    ru_json_f64(&j, "latency_s", w->latency_s);
    ru_json_i64(&j, "machines", w->machines);
    ru_json_i64(&j, "limited", w->limited);
    ru_json_f64(&j, "usd", w->usd);
    ru_json_f64(&j, "usd_all", w->usd_all);
    ru_json_f64(&j, "replay_usd_all", w->replay_usd_all);
    ru_json_str(&j, "next_plan", fx->id);
    if (fx->input != NULL) {
        ru_json_raw(&j, "next_input", fx->input);
    }
    ru_json_close(&j);
    ru_text_put(&t, "\n");
    ru_text_putf(&line, "period %u: %.4g requests/s (expected %.4g)", w->period, w->rate,
                 w->expected);
    if (isfinite(w->latency_s)) {
        ru_text_putf(&line, ", p%g %.1f ms", 100 * r->opt->fleet.quantile, 1e3 * w->latency_s);
    }
    ru_text_putf(&line, " on %u machines, %u without credits; %.4g USD so far, the replay %.4g\n",
                 w->machines, w->limited, w->usd_all, w->replay_usd_all);
    ru_status st = t.cut || line.cut ? RU_FAIL(err, RU_E_MEM, "no memory for a period")
                                     : ru_log_file_append(r->periods, t.p, t.n, err);
    if (st == RU_OK) {
        ru_self_tell(line.p, line.n);
    }
    ru_arena_fini(&arena);
    return st;
}

/* -- the loop ------------------------------------------------------------------------------------
 */

static ru_status hear(fleet_run *r, ru_err *err)
{
    ru_err why = {0};
    r->news->n = r->news->requests = 0;
    if (r->opt->source.metrics[0] != 0 && r->ticks % TICKS_METRICS != 0) {
        return RU_OK;
    }
    ru_status st = ru_source_look(&r->source, r->news, &why);
    if (st != RU_OK && !r->source.begun) {
        return RU_FAIL(err, st, "%s", why.text);
    }
    if (st != RU_OK && !r->deaf) {
        ru_log(RU_LOG_WARN, "fleet", "deaf", "%s", why.text);
    }
    r->deaf = st != RU_OK;
    return RU_OK;
}

static ru_status tick(fleet_run *r, ru_time now, ru_err *err)
{
    double used[RU_FLEET_MAX];
    ru_fleet *f = r->fleet;
    ru_fleet_effects fx;
    RU_TRY(hear(r, err));
    r->ticks++;
    for (uint32_t k = 0; k < f->n; k++) {
        seat *s = seat_of(r, f->one[k].number);
        ru_group_figures g;
        RU_CHECK(s != NULL);
        ru_group_read(s->group, &g);
        if (g.cpu_ns < 0) {
            return RU_FAIL(err, RU_E_MISSING, "the kernel does not count what a machine uses");
        }
        used[k] = fmax(1e-9 * (double)(g.cpu_ns - s->cpu_ns), 0) / r->opt->core / 60;
        s->cpu_ns = g.cpu_ns;
    }
    const ru_fleet_tick t = {now, used, r->news->requests, r->news->latency_s, r->news->n};
    ru_err why = {0};
    ru_status st = ru_fleet_step(f, &t, &fx, &why);
    if (st != RU_OK && f->count == 0) {
        return RU_FAIL(err, st, "%s", why.text);
    }
    if (st != RU_OK) {
        ru_log(RU_LOG_WARN, "fleet", "plan", "the machines stay: %s", why.text);
    }
    RU_TRY(fx.record ? put_period(r, &fx, err) : RU_OK);
    RU_TRY(fx.plan ? follow(r, now, err) : RU_OK);
    for (uint32_t k = 0; k < f->n; k++) {
        RU_TRY(bound(r, seat_of(r, f->one[k].number), ru_fleet_vcpus(f, k), err));
    }
    RU_TRY(ask_spread(r, now, err));
    return look(r, now, err);
}

static void on_tick(void *self, uint32_t what, ru_time now)
{
    fleet_run *r = self;
    (void)what;
    if (r->opt->patience_ns > 0 && ru_time_since(now, r->end) >= 0) {
        ru_loop_stop(r->loop);
        return;
    }
    ru_status st = tick(r, now, r->err);
    if (st != RU_OK) {
        r->st = st;
        ru_loop_stop(r->loop);
        return;
    }
    ru_loop_timer(r->loop, on_tick, r, 0, ru_time_after(now, tick_ns));
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    (void)fd;
    (void)events;
    (void)now;
    ru_loop_stop(((fleet_run *)self)->loop);
}

static ru_status open_and_run(fleet_run *r, uint64_t seed, ru_arena *arena, ru_err *err)
{
    int fd = ru_self_stop_fd();
    const char *path = ru_path_join(arena, r->opt->folder, "periods.jsonl");
    RU_TRY(path == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for periods") : RU_OK);
    RU_TRY(ru_fleet_init(r->fleet, &r->opt->fleet, seed, err));
    RU_TRY(ru_log_file_open(path, true, &r->periods, err));
    RU_TRY(ru_loop_open(&r->loop, err));
    RU_TRY(fd >= 0 ? ru_loop_fd(r->loop, fd, 1, on_stop, r, err) : RU_OK);
    r->end = ru_time_after(ru_clock_now(), r->opt->patience_ns);
    ru_loop_timer(r->loop, on_tick, r, 0, ru_clock_now());
    RU_TRY(ru_loop_run(r->loop, err));
    return r->st;
}

/* All machines at once get SIGTERM, then what still lives is killed. */
static void close_all(fleet_run *r)
{
    int64_t until =
        ru_clock_now().ns + (r->opt->grace_ns < grace_end_ns ? r->opt->grace_ns : grace_end_ns);
    ru_command_close(&r->spread);
    for (uint32_t k = 0; k < SEATS; k++) {
        if (r->seats[k].p != NULL && !is_gone(&r->seats[k])) {
            (void)kill((pid_t)-ru_process_id(r->seats[k].p), SIGTERM);
        }
    }
    for (uint32_t k = 0; k < SEATS; k++) {
        while (r->seats[k].p != NULL && !is_gone(&r->seats[k]) && ru_clock_now().ns < until) {
            ru_clock_pause(tick_ns / 10);
        }
        leave(&r->seats[k]);
    }
    sweep(r);
    ru_log_file_close(r->periods);
    ru_loop_close(r->loop);
    ru_fleet_fini(r->fleet);
}

ru_status ru_fleet_run(const ru_fleet_run_options *o, ru_arena *arena, ru_err *err)
{
    fleet_run *r = RU_NEW(arena, fleet_run, 1);
    ru_claim *claim;
    uint64_t seed;
    if (r == NULL || (r->fleet = RU_NEW(arena, ru_fleet, 1)) == NULL ||
        (r->news = RU_NEW(arena, ru_source_news, 1)) == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a fleet");
    }
    RU_TRY(ru_dir_make(o->folder, err));
    const ru_claim_options co = {.dir = o->folder, .alone = true, .wait_ns = claim_wait_ns};
    RU_TRY(ru_claim_open(&co, &claim, err));
    r->opt = o;
    r->source.opt = o->source;
    r->err = err;
    ru_self_random(&seed, sizeof seed);
    ru_self_stop_watch();
    ru_status st = open_and_run(r, seed, arena, err);
    close_all(r);
    ru_self_stop_unwatch();
    ru_claim_close(claim);
    return st;
}
