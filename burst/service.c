#include "burst/service.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fields.h"
#include "base/log.h"
#include "env/clock.h"
#include "env/file/claim.h"
#include "env/file/file.h"
#include "env/loop/loop.h"
#include "env/process/group.h"
#include "env/process/origin.h"
#include "env/process/process.h"
#include "env/process/self.h"

enum { TICK, LOOK, TICKS_METRICS = 10, WINDOWS_BYTES = 64 << 20 }; /* /metrics: each second */

static const int64_t tick_ns = 100000000, look_ns = 1000000000, claim_wait_ns = 3000000000;
static const double period_ns = 1e7; /* longer ones make all that waits wait so long */

typedef struct saved {
    const char *resource; /* whose speeds were chosen; `level` is that of the first */
    double level, launch;
    double meter_level[RU_BURST_METERS];
    int64_t meter_count[RU_BURST_METERS];
    int64_t cpu_ns, wall_ns;
    ru_conf_f64s measured; /* ru_pace_save */
} saved;

typedef struct service {
    const ru_burst_options *opt;
    ru_pace *pace;
    double cores;                       /* that the service may use; 0: no limit */
    ru_meter *paced[RU_PACE_RESOURCES]; /* whose speeds are chosen; NULL: the processor's */
    char resource[64];                  /* all of these */
    ru_meter meters[RU_BURST_METERS];
    ru_source source;
    ru_source_news *news;
    ru_loop *loop;
    ru_group *group;
    ru_process *guard, *load;
    bool guarded; /* the guard lives */
    ru_log_file *windows;
    int64_t pid, cpu_ns;
    char mark[RU_PROCESS_MARK_BYTES];
    ru_time end;
    uint32_t ticks;
    bool deaf; /* the source does not answer, and the log says so */
    ru_status st;
    ru_err *err;
} service;

static bool is_paced(const service *s, const ru_meter *m)
{
    bool is = false;
    for (uint32_t i = 0; i < s->opt->pace.n; i++) {
        is = is || s->paced[i] == m;
    }
    return is;
}

/* -- the control group ---------------------------------------------------------------------------
 */

static ru_status group_of(const ru_burst_options *o, ru_group **out, ru_err *err)
{
    char name[128];
    const uint32_t disk = o->meters[0].kind != RU_METER_NONE ? RU_GROUP_IO : 0;
    const ru_group_limits none = {.measured = RU_GROUP_CPU | disk, .alone = true};
    (void)snprintf(name, sizeof name, "rubato-burst/%s", o->name);
    /* Without the quota of an earlier one. */
    ru_status st = ru_group_make(name, &none, NULL, NULL, out, err);
    return st != RU_E_AGAIN ? st
                            : RU_FAIL(err, st,
                                      "another process paces a service named '%s' from another "
                                      "folder; give one of the two another name",
                                      o->name);
}

/* What is in force for the processor and the disk. */
static ru_status set_limits(service *s, ru_err *err)
{
    const ru_meter *disk = &s->meters[0];
    RU_CHECK(s->cores >= 0);
    const ru_group_limits l = {.cpu_quota_ns = (int64_t)(s->cores * period_ns),
                               .cpu_period_ns = (int64_t)period_ns,
                               .io = &disk->io,
                               .n_io = disk->opt->kind != RU_METER_NONE && disk->rate > 0};
    return ru_group_set(s->group, &l, err);
}

static ru_status read_pid(const char *path, int64_t *pid, ru_err *err)
{
    char *text;
    int64_t n;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_status st = ru_file_read(path, 256, &arena, &text, &n, err);
    bool good = st == RU_OK && ru_str_i64(ru_str_trim(ru_str_n(text, n)), pid) && *pid > 1;
    ru_arena_fini(&arena);
    return st != RU_OK || good ? st : RU_FAIL(err, RU_E_DATA, "%s holds no process number", path);
}

/* The processes that the pid file names now, and all that came from them. */
static ru_status take_in(service *s, ru_err *err)
{
    int64_t pid;
    char mark[RU_PROCESS_MARK_BYTES];
    RU_TRY(read_pid(s->opt->pid_file, &pid, err));
    if (!ru_process_mark(pid, mark)) {
        return RU_FAIL(err, RU_E_MISSING, "process %lld of %s does not run", (long long)pid,
                       s->opt->pid_file);
    }
    if (pid == s->pid && strcmp(mark, s->mark) == 0) {
        return RU_OK;
    }
    if (ru_process_is_above(pid)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "process %lld of %s started this one, which would pace itself; name the "
                       "service's own file",
                       (long long)pid, s->opt->pid_file);
    }
    if (ru_process_follows(pid, s->opt->pid_file)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "process %lld began after %s was written, so it is another one; start the "
                       "service again",
                       (long long)pid, s->opt->pid_file);
    }
    RU_TRY(ru_group_enter_all(s->group, pid, err));
    s->pid = pid;
    (void)snprintf(s->mark, sizeof s->mark, "%s", mark);
    return RU_OK;
}

/* -- files ---------------------------------------------------------------------------------------
 */

static const ru_conf_field saved_fields[] = {
    RU_ROW(TEXT, saved, resource, "cpu", "whose speeds were chosen"),
    RU_ROW(F64, saved, level, NULL, "earned credits"),
    RU_ROW(F64, saved, launch, NULL, "launch credits"),
    RU_ROW(I64, saved, cpu_ns, NULL, "processor time that was counted"),
    RU_ROW(I64, saved, wall_ns, NULL, "when, since 1970"),
    RU_ROW(F64_LIST, saved, measured, "[]", "what the latency model is fitted to"),
    RU_ROW_AS("disk_level", F64, saved, meter_level[0], "-1", "tokens of the disk"),
    RU_ROW_AS("disk_count", I64, saved, meter_count[0], "0", "its counter"),
    RU_ROW_AS("network_level", F64, saved, meter_level[1], "-1", "tokens of the network"),
    RU_ROW_AS("network_count", I64, saved, meter_count[1], "0", "its counter"),
};
static const ru_conf_table saved_table = RU_TABLE("state", saved, saved_fields, "a bucket");

static ru_status save(const service *s, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text t = ru_text_arena(&arena);
    const char *path = ru_path_join(&arena, s->opt->folder, "state.json");
    double *numbers = RU_NEW(&arena, double, RU_PACE_SAVED);
    if (numbers != NULL) {
        saved is = {.resource = s->resource,
                    .level = s->pace->bucket[0].earned,
                    .launch = s->pace->bucket[0].launch,
                    .cpu_ns = s->cpu_ns,
                    .wall_ns = ru_clock_wall_ns(),
                    .measured = {numbers, ru_pace_save(s->pace, numbers)}};
        for (uint32_t k = 0; k < RU_BURST_METERS; k++) {
            bool own = s->meters[k].known && !is_paced(s, &s->meters[k]);
            is.meter_level[k] = own ? s->meters[k].bucket.earned : -1;
            is.meter_count[k] = s->meters[k].count;
        }
        for (uint32_t i = 1; i < s->opt->pace.n; i++) { /* only the first is the processor */
            is.meter_level[s->paced[i] - s->meters] = s->pace->bucket[i].earned;
        }
        ru_json j = ru_json_into(&t);
        ru_fields_json(&saved_table, &is, NULL, &j);
    }
    ru_status st = numbers == NULL || path == NULL || t.cut
                       ? RU_FAIL(err, RU_E_MEM, "no memory for a state")
                       : ru_file_own(path, t.p, t.n, err);
    ru_arena_fini(&arena);
    return st;
}

/* A bucket of before; a counter that is lower than then is another one. */
static void restore_meter(const service *s, ru_meter *m, double level, int64_t count, double gap_s)
{
    if (m->opt->kind == RU_METER_NONE || level < 0 || is_paced(s, m)) {
        return;
    }
    int64_t now = ru_meter_count(m, s->group);
    double used = now > count ? (double)(now - count) : 0;
    m->bucket.earned = fmin(level, m->opt->rules.cap);
    if (gap_s > 0) {
        ru_credit_rules r = m->opt->rules;
        r.burst = fmax(r.burst, used / gap_s);
        (void)ru_credit_run(&r, &m->bucket, used / gap_s, gap_s * m->opt->clock);
    }
}

/* Tokens of a resource whose speed is chosen that were used since then; another counter: 0. */
static double used_since(const service *s, uint32_t i, const saved *is)
{
    if (s->paced[i] == NULL) {
        return fmax(1e-9 * (double)(s->cpu_ns - is->cpu_ns), 0) / 60;
    }
    int64_t now = ru_meter_count(s->paced[i], s->group);
    return fmax((double)(now - is->meter_count[s->paced[i] - s->meters]), 0);
}

static void restore_paced(service *s, uint32_t i, const saved *is, double gap_s)
{
    ru_credit_rules r = s->opt->pace.at[i].rules;
    double level = i == 0 ? is->level : is->meter_level[s->paced[i] - s->meters];
    s->pace->bucket[i] = (ru_credit){.earned = fmin(fmax(level, 0), r.cap),
                                     .launch = i == 0 ? fmax(is->launch, 0) : 0};
    if (gap_s > 0) {
        double use = used_since(s, i, is) / gap_s;
        r.burst = fmax(r.burst, use);
        (void)ru_credit_run(&r, &s->pace->bucket[i], use, gap_s * s->opt->pace.clock);
    }
}

/* The buckets as they were left, and what happened since: the group's counters went on. */
static ru_status restore(service *s, ru_arena *arena, ru_err *err)
{
    char *text;
    int64_t n;
    ru_conf *c;
    saved is;
    const char *path = ru_path_join(arena, s->opt->folder, "state.json");
    if (path == NULL || !ru_path_exists(path)) {
        return RU_OK;
    }
    RU_TRY(ru_file_read(path, 1 << 20, arena, &text, &n, err));
    RU_TRY(ru_conf_new(&saved_table, arena, &c, err));
    RU_TRY(ru_conf_add_json(c, path, text, n, err));
    RU_TRY(ru_conf_apply(c, &is, err));
    double gap_s = 1e-9 * (double)(ru_clock_wall_ns() - is.wall_ns);
    bool same = strcmp(is.resource, s->resource) == 0; /* else it begins anew */
    for (uint32_t i = 0; same && i < s->opt->pace.n; i++) {
        restore_paced(s, i, &is, gap_s);
    }
    if (same) {
        ru_pace_resume(s->pace, is.measured.at, is.measured.n);
    }
    for (uint32_t k = 0; k < RU_BURST_METERS; k++) {
        restore_meter(s, &s->meters[k], is.meter_level[k], is.meter_count[k], gap_s);
    }
    return RU_OK;
}

/* For one more window. */
static ru_status open_windows(service *s, ru_arena *arena, ru_err *err)
{
    const char *path = ru_path_join(arena, s->opt->folder, "windows.jsonl");
    const char *old = ru_path_join(arena, s->opt->folder, "windows.jsonl.1");
    if (path == NULL || old == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for windows");
    }
    ru_log_file_close(s->windows);
    s->windows = NULL;
    if (ru_path_bytes(path) > WINDOWS_BYTES) {
        RU_TRY(ru_path_rename(path, old, err));
    }
    return ru_log_file_open(path, true, &s->windows, err);
}

static void put_meters(const service *s, ru_json *j)
{
    for (uint32_t k = 0; k < RU_BURST_METERS; k++) {
        const ru_meter *m = &s->meters[k];
        if (m->opt->kind != RU_METER_NONE && !is_paced(s, m)) {
            ru_json_open(j, m->opt->name, '{');
            ru_json_f64(j, "level", ru_credit_level(&m->bucket));
            ru_json_f64(j, "cap", m->opt->rules.cap);
            ru_json_f64(j, "use", m->use);
            ru_json_f64(j, "rate", m->rate);
            ru_json_bool(j, "empty", m->limited);
            ru_json_f64(j, "empty_s", m->empty_s);
            if (m->alarm[0] != 0) {
                ru_json_str(j, "alarm", m->alarm);
            }
            ru_json_close(j);
        }
    }
}

/* Of resources whose speeds are chosen beside that of the first. */
static void put_beside(const service *s, const ru_pace_record *r, ru_json *j)
{
    for (uint32_t i = 1; i < s->opt->pace.n; i++) {
        const ru_pace_bucket *b = &r->at[i];
        ru_json_open(j, s->opt->pace.at[i].name, '{');
        ru_json_f64(j, "speed", b->speed);
        ru_json_f64(j, "level", b->level);
        ru_json_f64(j, "level_predicted", b->level_predicted);
        ru_json_f64(j, "cap", s->opt->pace.at[i].rules.cap);
        ru_json_f64(j, "use", b->use);
        ru_json_f64(j, "rate", s->pace->rate[i]);
        ru_json_bool(j, "empty", b->empty);
        ru_json_f64(j, "empty_s", b->empty_s);
        ru_json_f64(j, "next_speed", b->next_speed);
        ru_json_close(j);
    }
}

static ru_status put_window(service *s, const ru_pace_record *r, const char *alarm, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text t = ru_text_arena(&arena);
    ru_json j = ru_json_into(&t);
    char phase[16];
    const ru_pace_bucket *b = &r->at[0];
    ru_fields_choice(RU_PACE_PHASES, r->phase, phase, sizeof phase);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "schema", "rubato.burst/1");
    ru_json_i64(&j, "wall_ns", ru_clock_wall_ns());
    ru_json_i64(&j, "window", r->window);
    ru_json_str(&j, "resource", s->opt->pace.at[0].name);
    ru_json_str(&j, "phase", phase);
    ru_json_f64(&j, "speed", b->speed);
    ru_json_bool(&j, "empty", b->empty);
    ru_json_bool(&j, "open", r->open);
    ru_json_f64(&j, "rate", r->rate);
    ru_json_f64(&j, "clients", r->clients);
    ru_json_f64(&j, "latency_s", r->latency_s);
    ru_json_f64(&j, "predicted_s", r->predicted_s);
    ru_json_f64(&j, "slo_s", s->opt->pace.slo_s);
    ru_json_f64(&j, "level", b->level);
    ru_json_f64(&j, "level_predicted", b->level_predicted);
    ru_json_f64(&j, "cap", s->opt->pace.at[0].rules.cap);
    ru_json_f64(&j, "earn", s->opt->pace.at[0].rules.earn);
    ru_json_f64(&j, "use", b->use);
    ru_json_f64(&j, "empty_s", b->empty_s);
    ru_json_f64(&j, "next_speed", b->next_speed);
    ru_json_f64(&j, "next_s", r->next_s);
    ru_json_f64(&j, "stretch", r->stretch);
    ru_json_str(&j, "plan", r->plan);
    ru_json_str(&j, "why", r->why);
    if (alarm[0] != 0) {
        ru_json_str(&j, "alarm", alarm);
    }
    put_beside(s, r, &j);
    put_meters(s, &j);
    if (r->input != NULL) {
        ru_json_raw(&j, "input", r->input);
    }
    ru_json_close(&j);
    ru_text_put(&t, "\n");
    ru_status st =
        t.cut ? RU_FAIL(err, RU_E_MEM, "no memory for a window") : open_windows(s, &arena, err);
    st = st == RU_OK ? ru_log_file_append(s->windows, t.p, t.n, err) : st;
    ru_arena_fini(&arena);
    return st;
}

static void tell(const service *s, const ru_pace_record *r)
{
    char text[512], phase[16];
    const uint32_t n = s->opt->pace.n;
    ru_text t = ru_text_into(text, sizeof text);
    ru_fields_choice(RU_PACE_PHASES, r->phase, phase, sizeof phase);
    ru_text_putf(&t, "window %u %s speed %.2f", r->window, phase, r->at[0].speed);
    for (uint32_t i = 1; i < n; i++) {
        ru_text_putf(&t, " %s %.2f", s->opt->pace.at[i].name, r->at[i].speed);
    }
    ru_text_putf(&t, ": %.1f requests/s", r->rate);
    if (isfinite(r->latency_s)) {
        ru_text_putf(&t, ", %.1f ms", r->latency_s * 1e3);
    }
    if (isfinite(r->predicted_s)) {
        ru_text_putf(&t, " (predicted %.1f ms)", r->predicted_s * 1e3);
    }
    for (uint32_t i = 0; i < n; i++) {
        ru_text_putf(&t, ", %.4g credits%s%s", r->at[i].level, n > 1 ? " of the " : "",
                     n > 1 ? s->opt->pace.at[i].name : "");
        if (isfinite(r->at[i].empty_s)) {
            ru_text_putf(&t, ", empty in %.0f s", r->at[i].empty_s);
        }
    }
    for (uint32_t k = 0; k < RU_BURST_METERS; k++) {
        const ru_meter *m = &s->meters[k];
        if (m->opt->kind != RU_METER_NONE && !is_paced(s, m)) {
            ru_text_putf(&t, ", %s %.4g %s", m->opt->name, ru_credit_level(&m->bucket),
                         m->limited ? "(empty)" : "left");
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        ru_text_putf(&t, "%s%.2f", i == 0 ? "; then " : " ", r->at[i].next_speed);
    }
    ru_text_putf(&t, ": %.200s\n", r->why);
    ru_self_tell(t.p, t.n);
}

/* -- the loop ------------------------------------------------------------------------------------
 */

static void fail(service *s, ru_status st)
{
    if (st != RU_OK && s->st == RU_OK) {
        s->st = st;
        ru_loop_stop(s->loop);
    }
}

/* The profile's load: a command for sh, which finds CLIENTS and DURATION (seconds). */
static ru_status start_load(service *s, uint32_t clients, ru_err *err)
{
    char n[32], seconds[32];
    int code = 0;
    if (s->load != NULL) {
        ru_process_kill(s->load, SIGKILL);
        code = ru_process_wait(s->load);
    }
    ru_process_close(s->load);
    s->load = NULL;
    if (code == 126 || code == 127) {
        return RU_FAIL(err, RU_E_MISSING, "sh cannot run profile.load: %s", s->opt->load);
    }
    if (clients == 0) {
        return RU_OK;
    }
    (void)snprintf(n, sizeof n, "CLIENTS=%u", clients);
    (void)snprintf(seconds, sizeof seconds, "DURATION=%.0f",
                   ceil(1.3e-9 * (double)s->opt->pace.window_ns) + 1);
    static const char silent[] = "exec >/dev/null </dev/null; eval \"exec $0\"";
    const char *argv[] = {"sh", "-c", silent, s->opt->load, NULL}, *set[] = {n, seconds, NULL};
    const ru_process_options o = {.argv = argv, .set = set, .quiet = true};
    return ru_process_start(&o, &s->load, err);
}

static ru_status listen_to(service *s, ru_err *err)
{
    ru_err why = {0};
    s->news->n = s->news->requests = 0;
    if (s->opt->source.metrics[0] != 0 && s->ticks % TICKS_METRICS != 0) {
        return RU_OK;
    }
    ru_status st = ru_source_look(&s->source, s->news, &why);
    if (st != RU_OK && !s->source.begun) {
        return RU_FAIL(err, st, "%s", why.text);
    }
    if (st != RU_OK && !s->deaf) { /* without requests the service runs at full speed */
        ru_log(RU_LOG_WARN, "burst", "deaf", "%s", why.text);
    }
    s->deaf = st != RU_OK;
    return RU_OK;
}

static ru_status tick_meters(service *s, ru_time now, bool *other, ru_err *err)
{
    for (uint32_t k = 0; k < RU_BURST_METERS; k++) {
        ru_meter *m = &s->meters[k];
        if (is_paced(s, m)) {
            continue;
        }
        int64_t count = m->opt->kind != RU_METER_NONE ? ru_meter_count(m, s->group) : 0;
        if (count < 0) {
            return RU_FAIL(err, RU_E_MISSING, "the kernel does not count what %s uses of the %s",
                           s->opt->name, m->opt->name);
        }
        bool first = !m->known;
        if (m->opt->kind != RU_METER_NONE && ru_meter_step(m, count, now)) {
            RU_TRY(ru_meter_set(m, err));
            *other = true;
        }
        if (first && m->known) { /* what passed before there was a limit is not the bucket's */
            m->count = ru_meter_count(m, s->group);
        }
    }
    return RU_OK;
}

static void end_meters(service *s, ru_time now)
{
    for (uint32_t k = 0; k < RU_BURST_METERS; k++) {
        ru_meter *m = &s->meters[k];
        if (!is_paced(s, m)) {
            ru_meter_window(m, now);
        }
        if (m->alarm[0] != 0) {
            ru_log(RU_LOG_WARN, "burst", "credits", "%s: %s", s->opt->name, m->alarm);
        }
    }
}

/* Tokens of a resource whose speed is chosen, since the last call. */
static ru_status used_now(service *s, ru_meter *paced, double *used, ru_err *err)
{
    ru_group_figures f;
    if (paced != NULL) {
        int64_t count = ru_meter_count(paced, s->group);
        *used = count >= 0 ? ru_meter_used(paced, count) : 0;
        return count >= 0
                   ? RU_OK
                   : RU_FAIL(err, RU_E_MISSING, "the kernel does not count what %s uses of the %s",
                             s->opt->name, paced->opt->name);
    }
    ru_group_read(s->group, &f);
    if (f.cpu_ns < 0) {
        return RU_FAIL(err, RU_E_MISSING, "the kernel does not count the processor time of %s",
                       s->opt->name);
    }
    *used = f.cpu_ns > s->cpu_ns ? 1e-9 * (double)(f.cpu_ns - s->cpu_ns) / 60 : 0;
    s->cpu_ns = f.cpu_ns;
    return RU_OK;
}

/* Let the chosen rate be in force: the group's own limits follow. */
static ru_status set_rate(service *s, ru_meter *paced, double rate, ru_err *err)
{
    if (paced == NULL) {
        s->cores = rate * 60;
        return RU_OK;
    }
    ru_meter_let(paced, rate);
    return ru_meter_set(paced, err);
}

static ru_status tick(service *s, ru_time now, ru_err *err)
{
    ru_pace_effects fx;
    const uint32_t n = s->opt->pace.n;
    bool other = false;
    RU_TRY(listen_to(s, err));
    ru_pace_tick t = {.now = now,
                      .requests = s->news->requests,
                      .latency_s = s->news->latency_s,
                      .n = s->news->n};
    for (uint32_t i = 0; i < n; i++) {
        RU_TRY(used_now(s, s->paced[i], &t.used[i], err));
    }
    RU_CHECK(t.n <= RU_SOURCE_MAX);
    s->ticks++;
    ru_pace_step(s->pace, &t, &fx);
    for (uint32_t i = 0; i < n; i++) {
        RU_TRY(fx.quota[i] ? set_rate(s, s->paced[i], fx.rate[i], err) : RU_OK);
        other = other || fx.quota[i];
    }
    RU_TRY(tick_meters(s, now, &other, err));
    RU_TRY(other ? set_limits(s, err) : RU_OK);
    if (fx.load) {
        RU_TRY(start_load(s, fx.clients, err));
    }
    if (fx.record) {
        end_meters(s, now);
        RU_TRY(put_window(s, &fx.window, fx.alarm, err));
        RU_TRY(save(s, err));
        tell(s, &fx.window);
    }
    if (fx.alarm[0] != 0) {
        ru_log(RU_LOG_WARN, "burst", "credits", "%s: %s", s->opt->name, fx.alarm);
    }
    return RU_OK;
}

static void on_guard(void *self, int64_t pid, ru_time now)
{
    service *s = self;
    (void)pid;
    (void)now;
    s->guarded = false; /* the next look starts another one */
}

static ru_status start_guard(service *s, ru_err *err)
{
    char log[4096];
    if (snprintf(log, sizeof log, "%s/log", s->opt->folder) >= (int)sizeof log) {
        return RU_FAIL(err, RU_E_LIMIT, "the path of the folder %s is too long", s->opt->folder);
    }
    const ru_process_options o = {.argv = s->opt->guard, .pipe_in = true, .outlive = log};
    ru_process_close(s->guard);
    s->guard = NULL;
    RU_TRY(ru_process_start(&o, &s->guard, err));
    s->guarded = true;
    return ru_loop_child(s->loop, ru_process_id(s->guard), on_guard, s, err);
}

static void on_timer(void *self, uint32_t what, ru_time now)
{
    service *s = self;
    if (s->opt->patience_ns > 0 && ru_time_since(now, s->end) >= 0) {
        ru_loop_stop(s->loop);
        return;
    }
    if (what == TICK) {
        fail(s, tick(s, now, s->err));
        ru_loop_timer(s->loop, on_timer, s, TICK, ru_time_after(now, tick_ns));
    } else {
        (void)!take_in(s, NULL); /* it may be starting again */
        if (!s->guarded) {
            ru_log(RU_LOG_WARN, "burst", "guard", "the guard of %s ended; another one starts",
                   s->opt->name);
            fail(s, start_guard(s, s->err));
        }
        ru_loop_timer(s->loop, on_timer, s, LOOK, ru_time_after(now, look_ns));
    }
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    (void)fd;
    (void)events;
    (void)now;
    ru_loop_stop(((service *)self)->loop);
}

static ru_status open_all(service *s, uint64_t seed, ru_arena *arena, ru_err *err)
{
    RU_TRY(ru_pace_init(s->pace, &s->opt->pace, seed, err));
    for (uint32_t k = 0; k < RU_BURST_METERS; k++) {
        RU_TRY(ru_meter_open(&s->meters[k], &s->opt->meters[k], arena, err));
    }
    RU_TRY(group_of(s->opt, &s->group, err));
    RU_TRY(ru_loop_open(&s->loop, err));
    RU_TRY(start_guard(s, err));
    RU_TRY(take_in(s, err));
    ru_group_figures f;
    ru_group_read(s->group, &f);
    s->cpu_ns = f.cpu_ns > 0 ? f.cpu_ns : 0;
    RU_TRY(restore(s, arena, err));
    return open_windows(s, arena, err);
}

static ru_status run(service *s, ru_err *err)
{
    int fd = ru_self_stop_fd();
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(s->loop, fd, 1, on_stop, s, err));
    }
    ru_time now = ru_clock_now();
    s->end = ru_time_after(now, s->opt->patience_ns);
    on_timer(s, LOOK, now);
    on_timer(s, TICK, now);
    RU_TRY(s->st);
    RU_TRY(ru_loop_run(s->loop, err));
    RU_TRY(s->st);
    return save(s, err);
}

static void clear_meters(const ru_burst_options *o)
{
    for (uint32_t k = 0; k < RU_BURST_METERS; k++) {
        ru_meter_clear(&o->meters[k]);
    }
}

static void close_all(service *s)
{
    ru_process_close(s->load);
    if (s->group != NULL) {
        ru_err err;
        clear_meters(s->opt);
        const ru_group_limits none = {.measured = RU_GROUP_CPU};
        if (ru_group_set(s->group, &none, &err) != RU_OK) {
            ru_log(RU_LOG_WARN, "burst", "quota", "%s keeps its quota: %s", s->opt->name, err.text);
        }
        (void)!ru_group_remove(s->group, &err); /* not while the service is in it */
        ru_group_close(s->group);
    }
    if (s->guard != NULL) {
        ru_err err;
        (void)!ru_process_write(s->guard, "\n", 1, &err); /* nothing is left for it to do */
        (void)ru_process_wait(s->guard);
        ru_process_close(s->guard);
    }
    ru_log_file_close(s->windows);
    ru_loop_close(s->loop);
    ru_pace_fini(s->pace);
}

ru_status ru_burst_run(const ru_burst_options *o, ru_arena *arena, ru_err *err)
{
    service *s = RU_NEW(arena, service, 1);
    ru_claim *claim;
    uint64_t seed;
    if (s == NULL || (s->pace = RU_NEW(arena, ru_pace, 1)) == NULL ||
        (s->news = RU_NEW(arena, ru_source_news, 1)) == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a service");
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const double asked = o->pace.at[0].rules.burst * 60;
    if (cores > 0 && o->paced[0] == 0 && asked > (double)cores) {
        return RU_FAIL(err, RU_E_CONFIG, "cpu.cores is %g, and this machine has %ld cores", asked,
                       cores);
    }
    RU_TRY(ru_dir_make(o->folder, err));
    const ru_claim_options co = {.dir = o->folder, .alone = true, .wait_ns = claim_wait_ns};
    RU_TRY(ru_claim_open(&co, &claim, err));
    s->opt = o;
    ru_text all = ru_text_into(s->resource, sizeof s->resource);
    for (uint32_t i = 0; i < o->pace.n; i++) {
        RU_CHECK(o->paced[i] <= RU_BURST_METERS && (i == 0 || o->paced[i] > o->paced[i - 1]));
        s->paced[i] = o->paced[i] > 0 ? &s->meters[o->paced[i] - 1] : NULL;
        ru_text_putf(&all, "%s%s", i > 0 ? "+" : "", o->pace.at[i].name);
    }
    s->source.opt = o->source;
    s->err = err;
    ru_self_random(&seed, sizeof seed);
    ru_self_stop_watch();
    ru_status st = open_all(s, seed, arena, err);
    st = st == RU_OK ? run(s, err) : st;
    close_all(s);
    ru_self_stop_unwatch();
    ru_claim_close(claim);
    return st;
}

ru_status ru_burst_guard(const ru_burst_options *o, ru_err *err)
{
    ru_claim *claim;
    ru_group *group;
    if (getchar() != EOF) {
        return RU_OK;
    }
    const ru_claim_options co = {.dir = o->folder, .alone = true, .wait_ns = claim_wait_ns};
    ru_status st = ru_claim_open(&co, &claim, err);
    if (st == RU_E_AGAIN) { /* the next one has begun by taking it away */
        return RU_OK;
    }
    RU_TRY(st);
    st = group_of(o, &group, err);
    if (st == RU_E_AGAIN) { /* who has it keeps its quota */
        st = RU_OK;
    } else if (st == RU_OK) {
        ru_err left;
        clear_meters(o);
        (void)!ru_group_remove(group, &left);
        ru_group_close(group);
    }
    ru_claim_close(claim);
    return st;
}
