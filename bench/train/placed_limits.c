/* Placed steps where memory binds: two devices, each in a control group with 55 % of what one
 * process needs.
 *
 *     alone    rubato train JOB                   in a group without a limit: what it needs
 *     placed   rubato train JOB --hosts A:1,B:1   A and B with a limit each, the launcher in that
 * of A; Rubato places the layers itself
 *
 * Both have an evaluation and a checkpoint at their end. Memory is what processes have for
 * themselves, without files; it is looked at many times in a step. That of a worker stands beside
 * what it planned for steps, evaluation and checkpoint (`rubato explain RUN place`). */
#include "bench/train/placed.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "bench/lab_run.h"
#include "env/file/file.h"
#include "env/process/process.h"

enum { DEVICES = 2, STEPS = 1000, STEPS_QUICK = 100, STEPS_ALONE = 4, PART = 55 };

#define LOOK_NS INT64_C(10000000)

/* Activations dominate the first one, weights the others. */
static const int64_t branches[] = {16, 16, 16, 16};

static const struct net {
    const char *name;
    rui_placed_net_shape shape;
    const char *zoo; /* in place of it; NULL: none */
    int batch;
} nets[] = {
    {"branches",
     {.widths = branches,
      .n = RU_ARRAY_LEN(branches),
      .stem = 16,
      .depth = 32,
      .kernel = 1,
      .side = 16},
     NULL,
     640},
    {"towers", {.stem = 16, .tower = 16, .side = 16, .hidden = 2048, .layers = 5}, NULL, 8},
    {"gpt",
     {0},
     "{zoo: gpt, layers: 2, heads: 8, width: 1024, context: 16, vocab: 256, tie: false}",
     2},
};

static const char *const row_names[] = {"steps, nobody killed", "peak beside the plan",
                                        "limit of a device"};
enum { ROW_STEPS, ROW_PEAK, ROW_LIMIT, ROWS };

typedef struct limits {
    ru_lab_run lab;
    const char *group;                  /* group.sh */
    const char *name[DEVICES];          /* of the groups, as those of the laboratory's hosts */
    const char *pid[DEVICES];           /* files with numbers: of the launcher, of the far worker */
    int64_t peak_bytes[DEVICES];        /* of the run under way */
    int64_t plan_bytes[DEVICES], kills; /* of the one that was placed */
} limits;

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the words of the benchmark");
}

/* -- jobs ---------------------------------------------------------------------------------------
 */

static ru_status make_data(const limits *t, const char *kind, const char *to, const char *size,
                           ru_err *err)
{
    const char *path = ru_path_join(t->lab.b->arena, t->lab.dir, to);
    bool noise = size != NULL;
    const char *argv[] = {t->lab.self,
                          "data",
                          "make",
                          kind,
                          "--out",
                          path,
                          "--count",
                          noise ? "4000" : "100000",
                          "--test",
                          noise ? "100" : "2000",
                          noise ? "--features" : NULL,
                          size,
                          noise ? "--classes" : NULL,
                          "10",
                          NULL};
    if (path == NULL) {
        return full(err);
    }
    return ru_path_exists(path) ? RU_OK : ru_lab_run_command(&t->lab, argv, NULL, err);
}

static ru_status put_job(const limits *t, const struct net *n, const char **yaml, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *dir = t->lab.dir, *onnx = ru_arena_printf(a, "%s/limits-%s.onnx", dir, n->name);
    ru_text y = ru_text_arena(a);
    *yaml = ru_arena_printf(a, "%s/limits-%s.yaml", dir, n->name);
    if (onnx == NULL || *yaml == NULL) {
        return full(err);
    }
    ru_text_putf(&y, "name: limits-%s\n", n->name);
    if (n->zoo != NULL) {
        ru_text_putf(&y,
                     "model: %s\ndata: {format: tokens, train: [%s/limits-text/train.txt], test: "
                     "[%s/limits-text/test.txt], token_bytes: 1, context: 16}\n",
                     n->zoo, dir, dir);
    } else {
        RU_TRY(rui_placed_net(&n->shape, onnx, a, err));
        ru_text_putf(&y,
                     "model: {onnx: %s}\ndata: {format: npy, train: [%s/limits-noise/train-x.npy, "
                     "%s/limits-noise/train-y.npy], test: [%s/limits-noise/test-x.npy, "
                     "%s/limits-noise/test-y.npy]}\n",
                     onnx, dir, dir, dir, dir);
    }
    ru_text_putf(&y,
                 "train: {batch: %d, optimizer: {adam: {lr: 0.0001}}, threads: 1, autotune: false, "
                 "steps: %d, eval_every: 1000000}\ncheckpoint: {every: 0s, keep: 1}\n",
                 n->batch, STEPS_ALONE);
    return y.cut ? full(err) : ru_file_replace(*yaml, y.p, y.n, err);
}

/* -- memory of processes ------------------------------------------------------------------------
 */

/* Number in the first line of a file that a script writes; 0: not there yet. */
static int64_t pid_of(const char *path)
{
    long long pid = 0;
    FILE *f = fopen(path, "re");
    if (f != NULL) {
        pid = fscanf(f, "%lld", &pid) == 1 ? pid : 0;
        (void)fclose(f);
    }
    return pid;
}

/* What a running process has for itself now; 0: it ended. */
static int64_t own_bytes(int64_t pid)
{
    char path[64], line[256];
    long long sum = 0, kib;
    (void)snprintf(path, sizeof path, "/proc/%lld/status", (long long)pid);
    FILE *f = pid > 0 ? fopen(path, "re") : NULL;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        bool is =
            sscanf(line, "RssAnon: %lld", &kib) == 1 || sscanf(line, "RssShmem: %lld", &kib) == 1;
        sum += is ? kib : 0;
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return sum * 1024;
}

/* Of the largest child but one, that of the far host: the launcher's worker. */
static int64_t child_bytes(int64_t pid, int64_t far)
{
    char path[64];
    long long child, most = 0;
    (void)snprintf(path, sizeof path, "/proc/%lld/task/%lld/children", (long long)pid,
                   (long long)pid);
    FILE *f = pid > 0 ? fopen(path, "re") : NULL;
    while (f != NULL && fscanf(f, "%lld", &child) == 1) {
        int64_t bytes = child != far ? own_bytes(child) : 0;
        most = bytes > most ? bytes : most;
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return most;
}

static void look(limits *t, bool alone)
{
    int64_t launcher = pid_of(t->pid[0]), far = pid_of(t->pid[1]);
    for (uint32_t d = 0; d < (alone ? 1 : DEVICES); d++) {
        int64_t here = d > 0 ? own_bytes(far) : child_bytes(launcher, far);
        int64_t itself = alone ? own_bytes(launcher) : 0; /* it computes */
        int64_t now = here > itself ? here : itself;
        t->peak_bytes[d] = now > t->peak_bytes[d] ? now : t->peak_bytes[d];
    }
}

/* -- runs ---------------------------------------------------------------------------------------
 */

static ru_status group(const limits *t, const char *verb, const char *name, const char *what,
                       const char **said, ru_err *err)
{
    const char *argv[] = {t->group, verb, name, what, NULL};
    return ru_lab_run_command(&t->lab, argv, said, err);
}

/* Groups of the laboratory's hosts; limit_bytes 0: without limits. */
static ru_status make_groups(const limits *t, int64_t limit_bytes, ru_err *err)
{
    const char *limit = ru_arena_printf(t->lab.b->arena, "%lld", (long long)limit_bytes);
    if (limit == NULL) {
        return full(err);
    }
    for (uint32_t d = 0; d < DEVICES; d++) {
        RU_TRY(group(t, "make", t->name[d], "memory", NULL, err));
        RU_TRY(limit_bytes > 0 ? group(t, "memory", t->name[d], limit, NULL, err) : RU_OK);
    }
    return RU_OK;
}

/* How a worker of the far host is started: with its number in a file, in its group. */
static ru_status put_ssh(const limits *t, const char **path, ru_err *err)
{
    ru_text s = ru_text_arena(t->lab.b->arena);
    *path = ru_path_join(t->lab.b->arena, t->lab.dir, "limits-ssh");
    ru_text_putf(&s,
                 "#!/bin/sh\nshift\nexec '%s' in %s 2 '%s' in %s sh -c 'echo $$ >\"$0\" && exec "
                 "\"$@\"' '%s' \"$@\"\n",
                 t->lab.script, t->lab.lab, t->group, t->name[1], t->pid[1]);
    if (s.cut || *path == NULL) {
        return full(err);
    }
    RU_TRY(ru_file_replace(*path, s.p, s.n, err));
    return chmod(*path, 0755) == 0 ? RU_OK : RU_FAIL(err, RU_E_IO, "%s cannot be run", *path);
}

/* Train to the end, looking at memory meanwhile; *code: its exit code. */
static ru_status train(limits *t, const char *yaml, const char *out, uint32_t steps, bool alone,
                       int *code, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *ssh = NULL, *line = "";
    RU_TRY(put_ssh(t, &ssh, err));
    const char *hosts = alone ? NULL : "10.77.0.1:1,10.77.0.2:1";
    const char *argv[] = {t->lab.script,
                          "in",
                          t->lab.lab,
                          "1",
                          t->group,
                          "in",
                          t->name[0],
                          "sh",
                          "-c",
                          "echo $$ >\"$0\" && exec \"$@\"",
                          t->pid[0],
                          t->lab.self,
                          "train",
                          "-q",
                          yaml,
                          "--out",
                          out,
                          "--set",
                          ru_arena_printf(a, "train.steps=%u", steps),
                          alone ? NULL : "--set",
                          "train.parallel=placed",
                          "--hosts",
                          hosts,
                          NULL};
    const char *set[] = {ru_arena_printf(a, "RUBATO_SSH=%s", ssh), NULL};
    const ru_process_options opt = {.argv = argv, .set = set, .pipe_out = true};
    ru_process *p = NULL;
    memset(t->peak_bytes, 0, sizeof t->peak_bytes);
    RU_TRY(ru_path_exists(out) ? ru_path_remove(out, err) : RU_OK);
    for (uint32_t d = 0; d < DEVICES; d++) {
        RU_TRY(ru_path_exists(t->pid[d]) ? ru_path_remove(t->pid[d], err) : RU_OK);
    }
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = RU_OK;
    while (line != NULL && (st == RU_OK || st == RU_E_AGAIN)) {
        st = ru_process_line(p, LOOK_NS, &line, err);
        look(t, alone);
    }
    *code = st == RU_OK ? ru_process_wait(p) : 1;
    ru_process_close(p);
    return st;
}

/* Of a run with or without limits, in a laboratory of its own. */
static ru_status run(limits *t, const char *yaml, const char *out, uint32_t steps,
                     int64_t limit_bytes, int *code, ru_err *err)
{
    RU_TRY(ru_lab_run_up(&t->lab, DEVICES, NULL, err));
    ru_status st = make_groups(t, limit_bytes, err);
    st = st == RU_OK ? train(t, yaml, out, steps, limit_bytes == 0, code, err) : st;
    t->kills = 0;
    for (uint32_t d = 0; d < DEVICES && st == RU_OK; d++) {
        const char *said = NULL;
        long long kills = 0;
        st = group(t, "figures", t->name[d], NULL, &said, err);
        if (st == RU_OK && (said == NULL || sscanf(said, "kills %lld", &kills) != 1)) {
            st = RU_FAIL(err, RU_E_PEER, "group.sh figures says no kills of %s", t->name[d]);
        }
        t->kills += kills;
    }
    ru_lab_run_down(&t->lab);
    return st;
}

/* What each worker planned: devices are numbered otherwise. */
static ru_status read_plan(limits *t, const char *out, ru_err *err)
{
    static const char key[] = "\"devices\":";
    const char *said = NULL;
    const char *argv[] = {t->lab.self, "explain", out, "place", "--json", NULL};
    RU_TRY(ru_lab_run_command(&t->lab, argv, &said, err));
    uint32_t n = 0;
    for (const char *p = said != NULL ? strstr(said, key) : NULL; p != NULL && n == 0;
         p = strstr(p + 1, key)) {
        json_t *at = json_loads(p + sizeof key - 1, JSON_DISABLE_EOF_CHECK, NULL), *x;
        size_t k;
        json_array_foreach(at, k, x)
        {
            json_int_t worker = json_integer_value(json_object_get(x, "worker"));
            json_int_t steps = json_integer_value(json_object_get(x, "planned_bytes"));
            json_int_t saves = json_integer_value(json_object_get(x, "to_save_bytes"));
            if (worker >= 1 && worker <= DEVICES && steps > 0) {
                t->plan_bytes[worker - 1] = steps + saves;
                n++;
            }
        }
        json_decref(at);
    }
    return n == DEVICES ? RU_OK
                        : RU_FAIL(err, RU_E_PEER, "rubato explain place says no planned memory");
}

/* -- rows ---------------------------------------------------------------------------------------
 */

static const char *row_name(const ru_bench *b, const struct net *n, uint32_t row)
{
    const char *name =
        ru_arena_printf(b->arena, "limits of %d %%, %s: %s", PART, n->name, row_names[row]);
    return name != NULL ? name : "";
}

static bool wanted(const ru_bench *b, const struct net *n)
{
    bool any = false;
    for (uint32_t k = 0; k < ROWS; k++) {
        any = any || ru_bench_wants(b, row_name(b, n, k));
    }
    return any;
}

static ru_status add(const limits *t, const struct net *n, uint32_t row, ru_bench_row x,
                     ru_err *err)
{
    x.name = row_name(t->lab.b, n, row);
    return ru_bench_wants(t->lab.b, x.name) ? ru_bench_add(t->lab.b, &x, err) : RU_OK;
}

/* The worker whose peak is farther from its plan. */
static double off_percent(const limits *t)
{
    double off = 0;
    for (uint32_t d = 0; d < DEVICES; d++) {
        double x = 100 * ((double)t->peak_bytes[d] / (double)t->plan_bytes[d] - 1);
        off = fabs(x) > fabs(off) ? x : off;
        fprintf(stderr, "  worker %u: %.1f MB planned, %.1f at the peak\n", d + 1,
                1e-6 * (double)t->plan_bytes[d], 1e-6 * (double)t->peak_bytes[d]);
    }
    return off;
}

static ru_status measure(limits *t, const struct net *n, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    uint32_t steps = t->lab.b->quick ? STEPS_QUICK : STEPS;
    const char *yaml = NULL, *out = ru_path_join(a, t->lab.dir, "limits-run");
    int code = 0;
    RU_TRY(out != NULL ? put_job(t, n, &yaml, err) : full(err));
    RU_TRY(run(t, yaml, out, STEPS_ALONE, 0, &code, err));
    int64_t need = t->peak_bytes[0], limit = need / 100 * PART;
    if (code != 0 || need == 0) {
        return RU_FAIL(err, RU_E_PEER, "%s alone ended with %d", n->name, code);
    }
    fprintf(stderr, "limits, %s: one process needs %.1f MB, a device gets %.1f\n", n->name,
            1e-6 * (double)need, 1e-6 * (double)limit);
    RU_TRY(run(t, yaml, out, steps, limit, &code, err));
    double done = code == 0 && t->kills == 0 ? steps : 0; /* else its own words stand above */
    double need_mb = 1e-6 * (double)need, limit_mb = 1e-6 * (double)limit;
    RU_TRY(add(t, n, ROW_LIMIT,
               (ru_bench_row){.unit = "MB",
                              .lower = true,
                              .ours = ru_bench_stat_of(&limit_mb, 1),
                              .theirs = ru_bench_stat_of(&need_mb, 1),
                              .peer = "one process"},
               err));
    RU_TRY(add(
        t, n, ROW_STEPS,
        (ru_bench_row){.unit = "steps", .ours = ru_bench_stat_of(&done, 1), .goal = (double)steps},
        err));
    if (code != 0) {
        return RU_OK;
    }
    RU_TRY(read_plan(t, out, err));
    double off = off_percent(t), beside = fabs(off);
    return add(t, n, ROW_PEAK,
               (ru_bench_row){.unit = off < 0 ? "% below" : "% above",
                              .lower = true,
                              .ours = ru_bench_stat_of(&beside, 1),
                              .goal = 5},
               err);
}

ru_status rui_placed_limits(ru_bench *b, ru_err *err)
{
    limits t = {0};
    bool any = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(nets); k++) {
        any = any || wanted(b, &nets[k]);
    }
    if (!any) {
        return RU_OK;
    }
    RU_TRY(ru_lab_run_open(b, "placed", false, &t.lab, err));
    const char *scripts = ru_bench_scripts(b->arena);
    t.group = ru_path_join(b->arena, scripts != NULL ? scripts : ".", "../test/lab/group.sh");
    for (uint32_t d = 0; d < DEVICES; d++) {
        t.name[d] = ru_arena_printf(b->arena, "%s-%u", t.lab.lab, d + 1);
        t.pid[d] = ru_arena_printf(b->arena, "%s/limits-pid-%u", t.lab.dir, d + 1);
        RU_TRY(t.group != NULL && t.name[d] != NULL && t.pid[d] != NULL ? RU_OK : full(err));
    }
    RU_TRY(group(&t, "check", "memory", NULL, NULL, err));
    RU_TRY(make_data(&t, "noise", "limits-noise", "16", err));
    RU_TRY(make_data(&t, "grammar", "limits-text", NULL, err));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(nets); k++) {
        RU_TRY(wanted(b, &nets[k]) ? measure(&t, &nets[k], err) : RU_OK);
    }
    return RU_OK;
}
