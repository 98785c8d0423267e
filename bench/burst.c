/* rubato-bench burst: nginx that compresses each answer, behind nginx as a proxy whose log tells
 * what requests took, in a control group of a part of a core, an hour of credits in a minute. One
 * turn it is paced by `rubato cluster burst`, the other it runs at full speed (the same command,
 * which is told that no saving is worth it). Clients that wait for answers are wrk, more of them
 * than in no part and fewer than in others of the profile; an open load is ours. */
#include "bench/burst.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "bench/serve/load.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/group.h"
#include "env/process/process.h"

enum { CLIENTS = 9, ANSWER = 40000, WARM = 5, WINDOWS_MAX = 4096 };

static const double cores = 0.12, slo_s = 0.3;
static const double day_credits = 0.12 * 60 / 10 * 24; /* what such a machine can save */
static const int64_t patience_ns = 10 * INT64_C(1000000000);

/* What the windows of one turn say. */
typedef struct turn {
    double use, rate, share, error, level_error; /* share: of windows within the objective */
    uint32_t windows;
} turn;

typedef struct bench {
    ru_bench *b;
    const char *rubato, *dir;
    uint32_t window_s, rounds;
    ru_process *back, *front;
    turn closed[2][RU_BENCH_ROUNDS_MAX];
    double open_p95[2][RU_BENCH_ROUNDS_MAX];
} bench;

static ru_status put(const bench *t, const char *name, const ru_text *text, ru_err *err)
{
    const char *path = ru_path_join(t->b->arena, t->dir, name);
    return path == NULL || text->cut ? RU_FAIL(err, RU_E_MEM, "no memory for a file")
                                     : ru_file_replace(path, text->p, text->n, err);
}

static ru_status put_nginx(const bench *t, const char *name, const char *server, ru_err *err)
{
    ru_text c = ru_text_arena(t->b->arena);
    ru_text_putf(&c, "daemon off; master_process off; pid %s/%s.pid;\nerror_log %s/%s.err;\n",
                 t->dir, name, t->dir, name);
    ru_text_put(&c, "events { worker_connections 512; }\nhttp {\ndefault_type text/plain;\n"
                    "keepalive_requests 1000000000;\nkeepalive_timeout 1h;\n"); /* a fast machine
                                                          meets nginx's 1,000 within a part */
    for (uint32_t k = 0; k < 5; k++) {
        static const char *const of[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};
        ru_text_putf(&c, "%s_temp_path %s/tmp;\n", of[k], t->dir);
    }
    ru_text_putf(&c, "%s}\n", server);
    return put(t, ru_arena_printf(t->b->arena, "%s.conf", name), &c, err);
}

static ru_status put_service(const bench *t, const char *name, double gain_min, ru_err *err)
{
    ru_text y = ru_text_arena(t->b->arena);
    ru_text_putf(&y, "name: bench%lld\nfolder: out\npid_file: back.pid\naccess_log: access.log\n",
                 (long long)ru_process_id(t->back));
    ru_text_putf(&y, "cpu: {cores: %g, credits_per_hour: %g, cap: 1000, level: 900}\n", cores,
                 cores * 60 / 10);
    ru_text_putf(&y, "slo: %gs\nwindow: %us\nclock: 60\ngain_min: %g\n", slo_s, t->window_s,
                 gain_min);
    ru_text_put(&y,
                "profile:\n  load: \"wrk -t1 -c$CLIENTS -d${DURATION}s -H 'Accept-Encoding: gzip' "
                "http://127.0.0.1:18480/a\"\n  clients: [2, 6, 12]\n");
    return put(t, name, &y, err);
}

static ru_status start(const char *const *argv, ru_process **out, ru_err *err)
{
    const ru_process_options o = {.argv = argv, .quiet = true, .own_group = true, .pipe_out = true};
    return ru_process_start(&o, out, err);
}

static ru_status start_nginx(bench *t, const char *name, ru_process **out, ru_err *err)
{
    const char *conf = ru_arena_printf(t->b->arena, "%s/%s.conf", t->dir, name);
    const char *own = ru_arena_printf(t->b->arena, "%s/%s.pid", t->dir, name);
    const char *argv[] = {"/usr/sbin/nginx", "-p", t->dir, "-c", conf, NULL};
    RU_TRY(conf == NULL || own == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path")
                                       : start(argv, out, err));
    for (int64_t waited = 0; !ru_path_exists(own); waited += 20000000) {
        if (waited > patience_ns) {
            return RU_FAIL(err, RU_E_PEER, "nginx does not start: see %s/%s.err", t->dir, name);
        }
        ru_clock_pause(20000000);
    }
    return RU_OK;
}

static ru_status begin(bench *t, ru_err *err)
{
    ru_text text = ru_text_arena(t->b->arena);
    ru_rng rng = ru_rng_from(1, 1);
    for (uint32_t k = 0; k < ANSWER; k++) {
        ru_text_char(&text, (char)('0' + (int)ru_rng_below(&rng, 64)), 1);
    }
    const char *tmp = ru_path_join(t->b->arena, t->dir, "tmp");
    RU_TRY(tmp == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path") : ru_dir_make(tmp, err));
    RU_TRY(put(t, "tmp/a", &text, err));
    const char *back = ru_arena_printf(
        t->b->arena,
        "access_log off; gzip on; gzip_comp_level 6; gzip_types text/plain;\ngzip_proxied any;\n"
        "server { listen 127.0.0.1:18481; location / { root %s/tmp; } }\n",
        t->dir);
    const char *front = ru_arena_printf(
        t->b->arena,
        "log_format t '$status $request_time'; access_log %s/access.log t;\n"
        "upstream b { server 127.0.0.1:18481; keepalive 64; }\nserver { listen 127.0.0.1:18480;\n"
        "location / { proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection "
        "\"\";\n"
        "proxy_set_header Accept-Encoding gzip; } }\n",
        t->dir);
    RU_TRY(back == NULL || front == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a file") : RU_OK);
    RU_TRY(put_nginx(t, "back", back, err));
    RU_TRY(put_nginx(t, "front", front, err));
    RU_TRY(start_nginx(t, "back", &t->back, err));
    RU_TRY(start_nginx(t, "front", &t->front, err));
    RU_TRY(put_service(t, "paced.yaml", 0.02, err));
    return put_service(t, "full.yaml", 1, err);
}

/* -- a turn --------------------------------------------------------------------------------------
 */

static ru_status pacer(const bench *t, bool paced, uint32_t seconds, ru_process **out, ru_err *err)
{
    const char *yaml = ru_path_join(t->b->arena, t->dir, paced ? "paced.yaml" : "full.yaml");
    const char *time = ru_arena_printf(t->b->arena, "%us", seconds);
    const char *argv[] = {t->rubato, "cluster", "burst", yaml, "--for", time, NULL};
    return yaml == NULL || time == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path")
                                        : start(argv, out, err);
}

static ru_status ended(ru_process *p, const char *what, ru_err *err)
{
    const char *line = "";
    ru_status st = RU_OK;
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, 0, &line, err);
    }
    int code = ru_process_wait(p);
    ru_process_close(p);
    return st != RU_OK || code == 0
               ? st
               : RU_FAIL(err, code == 77 || code == 66 ? RU_E_MISSING : RU_E_USER,
                         "%s ended with %d", what, code);
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* Windows behind `from` bytes of the file, without the first ones and the last: the load begins and
 * ends there. */
static ru_status read_turn(const bench *t, int64_t from, turn *out, ru_err *err)
{
    char *text;
    int64_t n;
    uint32_t lines = 0, k = 0, predicted = 0;
    RU_TRY(ru_file_read(ru_arena_printf(t->b->arena, "%s/out/windows.jsonl", t->dir), 0,
                        t->b->arena, &text, &n, err));
    for (int64_t i = from; i < n; i++) {
        lines += text[i] == '\n';
    }
    ru_str rest = ru_str_from(ru_str_n(text, n), from), line;
    *out = (turn){0};
    for (; ru_str_next(&rest, '\n', &line); k++) {
        json_t *o = k >= WARM && k + 1 < lines ? json_loadb(line.p, (size_t)line.n, 0, NULL) : NULL;
        double is = number(o, "latency_s"), was = number(o, "predicted_s");
        if (o != NULL && isfinite(is)) {
            out->windows++;
            out->use += number(o, "use");
            out->rate += number(o, "rate");
            out->share += is <= slo_s;
            out->error += isfinite(was) ? fabs(was / is - 1) : 0;
            predicted += isfinite(was) ? 1 : 0;
            double off = fabs(number(o, "level_predicted") - number(o, "level")) / day_credits;
            out->level_error = off > out->level_error ? off : out->level_error;
        }
        json_decref(o);
    }
    if (out->windows == 0) {
        return RU_FAIL(err, RU_E_USER, "no window of %s/out has requests", t->dir);
    }
    out->use /= out->windows;
    out->rate /= out->windows;
    out->share /= out->windows;
    out->error /= predicted > 0 ? predicted : 1;
    return RU_OK;
}

static int64_t told_bytes(const bench *t)
{
    const char *path = ru_arena_printf(t->b->arena, "%s/out/windows.jsonl", t->dir);
    return path != NULL ? ru_path_bytes(path) : 0;
}

static ru_status closed_turn(bench *t, bool paced, uint32_t round, uint32_t seconds, ru_err *err)
{
    ru_process *p, *load;
    int64_t from = told_bytes(t);
    RU_TRY(pacer(t, paced, seconds, &p, err));
    const char *argv[] = {"wrk",
                          "-t1",
                          ru_arena_printf(t->b->arena, "-c%d", CLIENTS),
                          ru_arena_printf(t->b->arena, "-d%us", seconds),
                          "-H",
                          "Accept-Encoding: gzip",
                          "http://127.0.0.1:18480/a",
                          NULL};
    ru_status st = start(argv, &load, err);
    st = st == RU_OK ? ended(load, "wrk", err) : st;
    RU_TRY(st == RU_OK ? ended(p, "rubato cluster burst", err) : (ru_process_close(p), st));
    return read_turn(t, from, &t->closed[paced][round], err);
}

static ru_status open_turn(bench *t, bool paced, uint32_t round, uint32_t seconds, double per_s,
                           ru_err *err)
{
    static const char request[] = "GET /a HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n";
    rui_load_out *out = RU_NEW(t->b->arena, rui_load_out, 1);
    ru_process *p;
    RU_TRY(out == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a load") : RU_OK);
    RU_TRY(pacer(t, paced, seconds, &p, err));
    const rui_load l = {.address = "127.0.0.1:18480",
                        .request = request,
                        .size_bytes = sizeof request - 1,
                        .conns = 64,
                        .per_s = per_s,
                        .seconds = seconds};
    ru_status st = rui_load_run(&l, out, err);
    RU_TRY(st == RU_OK ? ended(p, "rubato cluster burst", err) : (ru_process_close(p), st));
    t->open_p95[paced][round] = 1e-9 * (double)ru_hist_quantile(&out->latency, 0.95);
    return RU_OK;
}

/* -- rows ----------------------------------------------------------------------------------------
 */

static ru_status row(bench *t, const char *name, const char *unit, bool lower, double goal,
                     double *ours, double *theirs, ru_err *err)
{
    ru_bench_row r = {.name = name, .unit = unit, .lower = lower, .goal = goal};
    r.ours = ru_bench_stat_of(ours, t->rounds);
    if (theirs != NULL) {
        r.theirs = ru_bench_stat_of(theirs, t->rounds);
        r.peer = "untouched";
    }
    return ru_bench_add(t->b, &r, err);
}

static ru_status closed(bench *t, ru_err *err)
{
    double lasts[RU_BENCH_ROUNDS_MAX], share[RU_BENCH_ROUNDS_MAX], error[RU_BENCH_ROUNDS_MAX],
        level[RU_BENCH_ROUNDS_MAX];
    const double earn = cores / 60 / 10;
    for (uint32_t k = 0; k < 2 * t->rounds; k++) {
        RU_TRY(closed_turn(t, k % 2 == 0, k / 2, (t->b->quick ? 12 : 22) * t->window_s, err));
    }
    for (uint32_t k = 0; k < t->rounds; k++) {
        const turn *is = &t->closed[1][k], *was = &t->closed[0][k];
        lasts[k] = (was->use - earn) / fmax(is->use - earn, 1e-9);
        share[k] = is->share;
        error[k] = is->error;
        level[k] = is->level_error;
    }
    RU_TRY(row(t, "closed loop, credits last", "times", false, 2.5, lasts, NULL, err));
    RU_TRY(row(t, "closed loop, windows within", "share", false, 0.95, share, NULL, err));
    RU_TRY(row(t, "closed loop, p95 predicted", "error", true, 0.1, error, NULL, err));
    return row(t, "closed loop, level predicted", "of a day's", true, 0.02, level, NULL, err);
}

static ru_status open(bench *t, ru_err *err)
{
    double per_s = 0;
    for (uint32_t k = 0; k < t->rounds; k++) {
        per_s += 0.5 * t->closed[0][k].rate / t->rounds;
    }
    for (uint32_t k = 0; k < 2 * t->rounds; k++) {
        RU_TRY(open_turn(t, k % 2 == 0, k / 2, (t->b->quick ? 12 : 22) * t->window_s, per_s, err));
    }
    /* 2 % longer is allowed: it stands down. */
    return row(t, "open loop, p95", "s", true, 0.98, t->open_p95[1], t->open_p95[0], err);
}

static ru_status rows(bench *t, ru_err *err)
{
    ru_process *p;
    RU_TRY(begin(t, err));
    RU_TRY(pacer(t, true, 19 * t->window_s, &p, err)); /* the profile */
    RU_TRY(ended(p, "rubato cluster burst", err));
    RU_TRY(closed(t, err));
    return open(t, err);
}

static void end(ru_process *p)
{
    if (p != NULL) {
        ru_process_kill(p, 15);
        (void)ru_process_wait(p);
    }
    ru_process_close(p);
}

/* The group that the pacer left with the service in it. */
static void remove_group(const bench *t)
{
    ru_group *g;
    ru_err ignored;
    char name[64];
    const ru_group_limits none = {.measured = RU_GROUP_CPU};
    (void)snprintf(name, sizeof name, "rubato-burst/bench%lld", (long long)ru_process_id(t->back));
    ru_process_kill(t->back, 9); /* it may not have come into the group */
    if (ru_group_make(name, &none, NULL, NULL, &g, &ignored) == RU_OK) {
        (void)ru_group_kill(g);
        (void)ru_process_wait(t->back);
        (void)!ru_group_remove(g, &ignored);
        ru_group_close(g);
    }
}

ru_status ru_bench_burst(ru_bench *b, ru_err *err)
{
    bench *t = RU_NEW(b->arena, bench, 1);
    if (t == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the benchmark");
    }
    if (!ru_path_exists("/usr/sbin/nginx") || !ru_path_exists("/usr/bin/wrk")) {
        fprintf(stderr, "burst: skipped: nginx or wrk is not installed; run scripts/setup check\n");
        b->told = true;
        return RU_OK;
    }
    t->b = b;
    t->rubato = ru_bench_rubato(b->arena);
    t->dir = ru_path_join(b->arena, b->dir, "burst");
    t->window_s = b->quick ? 3 : 6;
    t->rounds = b->quick ? 2 : 5;
    RU_TRY(t->dir == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path") : RU_OK);
    ru_err ignored;
    (void)!ru_path_remove(t->dir, &ignored); /* of a run that was interrupted */
    RU_TRY(ru_dir_make(t->dir, err));
    char *whole = realpath(t->dir, NULL); /* nginx takes others from its own folder */
    t->dir = whole != NULL ? ru_arena_str(b->arena, whole) : NULL;
    free(whole);
    RU_TRY(t->dir == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path") : RU_OK);
    ru_status st = rows(t, err);
    end(t->front);
    if (t->back != NULL) {
        remove_group(t);
    }
    end(t->back);
    if (st == RU_E_MISSING) {
        fprintf(stderr, "burst: skipped, it needs control groups that can be made: %s\n",
                err->text);
        b->told = true;
        return RU_OK;
    }
    return st;
}
