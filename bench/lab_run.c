#include "bench/lab_run.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "env/process/self.h"

enum { PORT = 7730, WORDS_MAX = 48 };

/* A worker is looked at so long; all of them together have half an hour. */
#define LOOK_NS     INT64_C(5000000)
#define PATIENCE_NS INT64_C(1800000000000)

static const char *const token = "RUBATO_TOKEN=of-the-questions-of-the-laboratory";

/* Wait for its end; what it says goes nowhere. */
static ru_status finish(ru_process *p, int *code, ru_err *err)
{
    const char *line = "";
    ru_status st = RU_OK;
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, 0, &line, err);
    }
    *code = ru_process_wait(p);
    return st;
}

static ru_status quietly(const char *const *argv, ru_err *err)
{
    int code = 0;
    ru_process *p = NULL;
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = finish(p, &code, err);
    ru_process_close(p);
    RU_TRY(st);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_USER, "%s %s ended with %d", argv[0], argv[1], code);
}

ru_status ru_lab_run_command(const ru_lab_run *t, const char *const *argv, const char **said,
                             ru_err *err)
{
    const ru_process_options opt = {.argv = argv, .pipe_out = true};
    const char *line = "";
    int code = 0;
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = RU_OK;
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, 0, &line, err);
        if (st == RU_OK && line != NULL && said != NULL) {
            *said = ru_arena_str(t->b->arena, line);
        }
    }
    code = ru_process_wait(p);
    ru_process_close(p);
    RU_TRY(st);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_PEER, "%s %s ended with %d", argv[0], argv[1], code);
}

/* Can this machine hold the laboratory? Its script says what is missing. */
static ru_status check_lab(const ru_lab_run *t, const char *what, bool quotas, ru_err *err)
{
    enum { REASON_MAX = 400 };
    const char *needs = "runs workers in network namespaces, which this machine cannot hold";
    const char *command = quotas ? "exec \"$0\" check cpu 2>&1" : "exec \"$0\" check 2>&1";
    const char *argv[] = {"sh", "-c", command, t->script, NULL};
    const ru_process_options opt = {.argv = argv, .pipe_out = true};
    if (!ru_path_exists(t->script)) {
        return RU_FAIL(err, RU_E_MISSING, "bench %s %s: %s is not there; run it in the source tree",
                       what, needs, t->script);
    }
    char reason[REASON_MAX] = "its check says nothing";
    const char *line = "";
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = RU_OK;
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, 0, &line, err);
        if (st == RU_OK && line != NULL && line[0] != '\0') {
            const char *skipped = strstr(line, "skipped: ");
            (void)snprintf(reason, sizeof reason, "%s",
                           skipped != NULL ? skipped + strlen("skipped: ") : line);
        }
    }
    int code = ru_process_wait(p);
    ru_process_close(p);
    RU_TRY(st);
    return code == 0 ? RU_OK : RU_FAIL(err, RU_E_MISSING, "bench %s %s: %s", what, needs, reason);
}

ru_status ru_lab_run_open(ru_bench *b, const char *name, bool quotas, ru_lab_run *out, ru_err *err)
{
    const char *scripts = ru_bench_scripts(b->arena);
    ru_lab_run t = {.b = b, .self = ru_bench_rubato(b->arena)};
    t.script = ru_path_join(b->arena, scripts != NULL ? scripts : ".", "../test/lab/net.sh");
    t.dir = ru_path_join(b->arena, b->dir, name);
    if (t.self == NULL || t.script == NULL || t.dir == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the paths of the benchmark");
    }
    snprintf(t.lab, sizeof t.lab, "%c%lld", name[0], (long long)ru_self_pid());
    RU_TRY(check_lab(&t, name, quotas, err));
    RU_TRY(ru_dir_make(t.dir, err));
    char *whole = realpath(t.dir, NULL); /* a job's paths may begin in the folder of its file */
    t.dir = whole != NULL ? ru_arena_str(b->arena, whole) : NULL;
    free(whole);
    *out = t;
    return t.dir != NULL ? RU_OK : RU_FAIL(err, RU_E_IO, "the folder of bench %s went away", name);
}

/* -- inputs ------------------------------------------------------------------------------------ */

static ru_status make_data(const ru_lab_run *t, const char *kind, const char *to,
                           const char *const *more, ru_err *err)
{
    const char *path = ru_path_join(t->b->arena, t->dir, to);
    const char *argv[16] = {t->self, "data", "make", kind, "--out", path};
    for (uint32_t k = 0; more[k] != NULL; k++) {
        argv[6 + k] = more[k];
    }
    return path == NULL || ru_path_exists(path) ? RU_OK : quietly(argv, err);
}

ru_status ru_lab_run_inputs(const ru_lab_run *t, ru_err *err)
{
    static const char *const digits[] = {"--count", "4000", "--test", "200", NULL};
    static const char *const noise[] = {"--count", "4000",      "--test", "100", "--features",
                                        "32",      "--classes", "10",     NULL};
    static const char *const text[] = {"--count", "400000", NULL};
    RU_TRY(make_data(t, "digits", "digits", digits, err));
    RU_TRY(make_data(t, "noise", "noise", noise, err));
    return make_data(t, "grammar", "text", text, err);
}

/* A worker looks for the data from where it stands: @ becomes the folder. */
static void put_data(ru_text *y, const char *data, const char *dir)
{
    for (; *data != '\0'; data++) {
        if (*data == '@') {
            ru_text_putf(y, "%s/", dir);
        } else {
            ru_text_putf(y, "%c", *data);
        }
    }
}

ru_status ru_lab_run_job(const ru_lab_run *t, const char *name, const char *model, const char *data,
                         const char *train, const char **path, ru_err *err)
{
    ru_text y = ru_text_arena(t->b->arena);
    *path = ru_arena_printf(t->b->arena, "%s/%s.yaml", t->dir, name);
    ru_text_putf(&y, "name: %s\nmodel: %s\ndata: ", name, model);
    put_data(&y, data, t->dir);
    ru_text_putf(&y,
                 "\ntrain: {optimizer: {sgd: {lr: 0.01}}, threads: 1, autotune: false, %s}\n"
                 "checkpoint: {every: 0s, keep: 1}\n",
                 train);
    return *path != NULL && !y.cut ? ru_file_replace(*path, y.p, y.n, err)
                                   : RU_FAIL(err, RU_E_MEM, "no memory for a job file");
}

/* -- running ----------------------------------------------------------------------------------- */

static const char *number(ru_arena *a, uint32_t k)
{
    return ru_arena_printf(a, "%u", k);
}

typedef struct words {
    const char *at[WORDS_MAX];
    uint32_t n;
} words;

static void word(words *w, const char *text)
{
    RU_CHECK(w->n + 1 < WORDS_MAX);
    w->at[w->n++] = text;
}

static void put_worker(const ru_lab_run *t, const ru_lab_scene *s, uint32_t k, const char *yaml,
                       const char *out, words *w)
{
    ru_arena *a = t->b->arena;
    uint32_t host = s->one_host ? 1 : k + 1;
    const char *const worker[] = {t->self,
                                  "worker",
                                  "-q",
                                  "--job",
                                  yaml,
                                  "--out",
                                  out,
                                  "--founders",
                                  number(a, s->workers),
                                  "--threads",
                                  "1",
                                  "--sockets",
                                  "--equal-shares",
                                  "--rank",
                                  number(a, k),
                                  "--listen",
                                  ru_arena_printf(a, "10.77.0.%u:%u", host, PORT + k)};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(worker); i++) {
        word(w, worker[i]);
    }
    if (k > 0) {
        word(w, "--join");
        word(w, ru_arena_printf(a, "10.77.0.1:%d", PORT));
    }
}

static void put_peer(const ru_lab_run *t, const ru_lab_scene *s, uint32_t k, words *w)
{
    const char *const place[] = {"--rank",    number(t->b->arena, k),
                                 "--world",   number(t->b->arena, s->workers),
                                 "--address", "10.77.0.1",
                                 "--port",    number(t->b->arena, PORT)};
    for (uint32_t i = 0; s->peer[i] != NULL; i++) {
        word(w, s->peer[i]);
    }
    for (uint32_t i = 0; i < RU_ARRAY_LEN(place); i++) {
        word(w, place[i]);
    }
}

static ru_status start_worker(const ru_lab_run *t, const ru_lab_scene *s, uint32_t k,
                              const char *yaml, const char *out, ru_process **p, ru_err *err)
{
    words w = {0};
    word(&w, t->script);
    word(&w, s->quota[k] != NULL ? "cpu" : "in");
    word(&w, t->lab);
    word(&w, number(t->b->arena, s->one_host ? 1 : k + 1));
    if (s->quota[k] != NULL) {
        word(&w, s->quota[k]);
    }
    if (s->peer != NULL) {
        put_peer(t, s, k, &w);
    } else {
        put_worker(t, s, k, yaml, out, &w);
    }
    const char *const set[] = {token, NULL};
    const ru_process_options opt = {
        .argv = w.at, .set = set, .pipe_out = true, .quiet = s->peer != NULL};
    return ru_process_start(&opt, p, err);
}

ru_status ru_lab_run_steps(const ru_lab_run *t, const char *out, double *s, uint32_t max,
                           uint32_t *n, ru_err *err)
{
    char *text;
    int64_t size;
    ru_str line;
    RU_TRY(ru_file_read(ru_path_join(t->b->arena, out, "metrics.jsonl"), 0, t->b->arena, &text,
                        &size, err));
    ru_str rest = ru_str_n(text, size);
    *n = 0;
    while (ru_str_next(&rest, '\n', &line) && *n < max) {
        json_t *root = json_loadb(line.p, (size_t)line.n, 0, NULL);
        const char *schema = json_string_value(json_object_get(root, "schema"));
        if (schema != NULL && strcmp(schema, "rubato.train.step/1") == 0) {
            s[(*n)++] = json_number_value(json_object_get(root, "step_s"));
        }
        json_decref(root);
    }
    return RU_OK;
}

ru_status ru_lab_run_up(const ru_lab_run *t, uint32_t hosts, const char *const *up, ru_err *err)
{
    words w = {0};
    word(&w, t->script);
    word(&w, "up");
    word(&w, t->lab);
    word(&w, number(t->b->arena, hosts));
    for (uint32_t k = 0; up != NULL && up[k] != NULL; k++) {
        word(&w, up[k]);
    }
    word(&w, "--owner");
    word(&w, ru_arena_printf(t->b->arena, "%lld", (long long)ru_self_pid()));
    return quietly(w.at, err);
}

ru_status ru_lab_run_rate(const ru_lab_run *t, uint32_t host, const char *rate, ru_err *err)
{
    const char *argv[] = {t->script, "rate", t->lab, number(t->b->arena, host), rate, NULL};
    return quietly(argv, err);
}

void ru_lab_run_down(const ru_lab_run *t)
{
    const char *down[] = {t->script, "down", t->lab, NULL};
    (void)!quietly(down, NULL);
}

ru_status ru_lab_run_profile(const ru_lab_run *t, const char *yaml, const char *set,
                             const char *const *quota, uint32_t n, const char *facts, ru_err *err)
{
    RU_TRY(ru_lab_run_up(t, 1, NULL, err));
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        const char *type = ru_arena_printf(t->b->arena, "cpu%s", quota[k]);
        const char *const profile[] = {t->script, "cpu",       t->lab,  "1",       quota[k],
                                       t->self,   "profile",   "-q",    yaml,      "--type",
                                       type,      "--threads", "1",     "--steps", "5",
                                       "--least", "2s",        "--out", facts};
        words w = {0};
        for (uint32_t i = 0; i < RU_ARRAY_LEN(profile); i++) {
            word(&w, profile[i]);
        }
        if (set != NULL) {
            word(&w, "--set");
            word(&w, set);
        }
        if (k > 0) {
            word(&w, "--add");
            word(&w, facts);
        }
        st = type != NULL ? ru_lab_run_command(t, w.at, NULL, err)
                          : RU_FAIL(err, RU_E_MEM, "no memory for a type of device");
    }
    ru_lab_run_down(t);
    return st;
}

/* The largest resident size of a running process so far; 0: it ended. */
static int64_t peak_of(const ru_process *p)
{
    char path[64], line[256];
    long long kib = 0;
    snprintf(path, sizeof path, "/proc/%lld/status", (long long)ru_process_id(p));
    FILE *f = fopen(path, "r");
    while (f != NULL && kib == 0 && fgets(line, sizeof line, f) != NULL) {
        (void)sscanf(line, "VmHWM: %lld", &kib);
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return kib * 1024;
}

/* A moment of one worker; *ended at its end. */
static ru_status watch(ru_process *p, ru_lab_told *told, uint32_t k, const char *what, bool *ended,
                       ru_err *err)
{
    const char *line = NULL;
    ru_err why;
    ru_status st = ru_process_line(p, LOOK_NS, &line, &why);
    if (st == RU_OK && line != NULL) {
        if (told != NULL && k == 0) {
            snprintf(told->line, sizeof told->line, "%s", line);
        }
    } else if (st == RU_OK) {
        int code = ru_process_wait(p);
        *ended = true;
        return code == 0
                   ? RU_OK
                   : RU_FAIL(err, RU_E_USER, "%s: worker %u ended with %d", what, k + 1, code);
    } else if (st != RU_E_AGAIN) {
        return ru_err_set(err, st, "%s", why.text);
    }
    int64_t peak = told != NULL ? peak_of(p) : 0;
    if (peak > 0) { /* the last one: a worker may begin anew, and never tells less otherwise */
        told->peak_bytes[k] = peak;
    }
    return RU_OK;
}

static ru_status watch_all(ru_process *const *p, uint32_t n, ru_lab_told *told, const char *what,
                           ru_err *err)
{
    bool ended[RU_LAB_WORKERS_MAX] = {false};
    ru_time begin = ru_clock_now();
    for (uint32_t left = n; left > 0;) {
        for (uint32_t k = 0; k < n; k++) {
            if (!ended[k]) {
                RU_TRY(watch(p[k], told, k, what, &ended[k], err));
                left -= ended[k] ? 1 : 0;
            }
        }
        if (ru_time_since(ru_clock_now(), begin) > PATIENCE_NS) {
            return RU_FAIL(err, RU_E_AGAIN, "%s: not done after half an hour", what);
        }
    }
    return RU_OK;
}

ru_status ru_lab_run_scene(const ru_lab_run *t, const ru_lab_scene *s, const char *yaml,
                           const char *out, ru_lab_told *told, ru_err *err)
{
    ru_process *p[RU_LAB_WORKERS_MAX] = {NULL};
    RU_CHECK(s->workers <= RU_LAB_WORKERS_MAX);
    if (told != NULL) {
        *told = (ru_lab_told){{0}, {0}};
    }
    RU_TRY(s->peer == NULL && ru_path_exists(out) ? ru_path_remove(out, err) : RU_OK);
    RU_TRY(ru_lab_run_up(t, s->one_host ? 1 : s->workers, s->up, err));
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < s->workers && st == RU_OK; k++) {
        st = start_worker(t, s, k, yaml, out, &p[k], err);
    }
    st = st == RU_OK ? watch_all(p, s->workers, told, s->peer != NULL ? s->peer[1] : out, err) : st;
    for (uint32_t k = 0; k < s->workers; k++) {
        ru_process_close(p[k]);
    }
    ru_lab_run_down(t);
    return st;
}
